"""Small networks on scikit-learn's tables, trained in seconds."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ig2._utils.suggestions import suggest
from ig2._utils.training import fit, load_or_train, local_seed
from ig2.errors import InputError, describe, import_extra
from ig2.modalities.table.columns import Number, infer_columns
from ig2.modalities.table.rows import TableSubject, subject

TABLES = ("breast-cancer", "wine", "iris", "diabetes")


def load(model: str = "breast-cancer") -> TableSubject:
    """Return a small network trained when first used on one of scikit-learn's tables.

    Args:
        model: `"breast-cancer"`, `"wine"` or `"iris"`, which predict classes, or `"diabetes"`, which predicts a number.
    """
    _check(model)
    frame, answers, classes, held_out = _table(model)
    numbers = model == "diabetes"
    columns = infer_columns(frame[~held_out])
    features = torch.tensor(np.stack([(frame[c.name] - c.mean) / c.std for c in columns if isinstance(c, Number)], axis=1))
    features = features.float()

    def build() -> nn.Sequential:
        with local_seed(0):
            width = 1 if numbers else len(classes)
            return nn.Sequential(
                nn.Linear(len(columns), 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, width)
            ).eval()

    def make() -> dict[str, Tensor]:
        train = torch.tensor(~held_out)
        epochs = 12_000 // int(train.sum())
        wanted = torch.tensor(answers)[train]
        if not numbers:
            loss = nn.functional.cross_entropy
            return fit(build(), [features[train]], wanted, loss, epochs=epochs, batch=32, decay=1e-2).state_dict()
        mean, std = wanted.mean(), wanted.std()
        scaled = ((wanted - mean) / std).float()[:, None]
        net = fit(build(), [features[train]], scaled, nn.functional.mse_loss, epochs=epochs, batch=32, decay=1e-2)
        with torch.no_grad():  # answers in their own units
            for tensor in net[-1].parameters():
                tensor.mul_(std)
            net[-1].get_parameter("bias").add_(mean)
        return net.state_dict()

    net = build()
    net.load_state_dict(load_or_train(f"table-{model}-1", make, net))
    rows = frame[~held_out].iloc[:: max(1, int((~held_out).sum()) // 60)]
    return subject(
        net,
        columns,
        classes,
        name=f"{model} MLP",
        outputs="numbers" if numbers else "classes",
        rows=rows.reset_index(drop=True),
    )


def example_rows(model: str = "breast-cancer", count: int = 5) -> Any:
    """Return rows of a built-in table that its network has not seen, as a DataFrame."""
    _check(model)
    frame, _, _, held_out = _table(model)
    return frame[held_out].iloc[:count].reset_index(drop=True)


def _table(model: str) -> tuple[Any, NDArray[Any], tuple[str, ...], NDArray[np.bool_]]:
    """Return a table of scikit-learn: its columns, its answers, the names of these, and which rows
    are kept out of training."""
    datasets = import_extra("sklearn.datasets", "demo", f"the table {model!r}")
    import_extra("pandas", "table", f"the table {model!r}")
    options: dict[str, Any] = {"scaled": False} if model == "diabetes" else {}
    table = getattr(datasets, f"load_{model.replace('-', '_')}")(as_frame=True, **options)
    classes = ("disease progression",) if model == "diabetes" else tuple(str(name) for name in table.target_names)
    return table.data, table.target.to_numpy(), classes, np.arange(len(table.data)) % 5 == 0


def _check(name: str) -> None:
    if name not in TABLES:
        raise InputError(f"there is no table {describe(name)}{suggest(name, TABLES)}")


load_breast_cancer = partial(load, "breast-cancer")
load_wine = partial(load, "wine")
load_iris = partial(load, "iris")
load_diabetes = partial(load, "diabetes")
