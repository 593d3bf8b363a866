"""Estimators of scikit-learn on tables: pipelines, forests, boosted trees, anything with `predict_proba` or `predict`.

PyTorch cannot compute their gradients. They are explained by what needs none: `ig2.KernelSHAP`, `ig2.Occlusion`, `ig2.scores`,
and the metrics that compare scores, such as insertion and deletion. IG², integrated gradients and every other path method need
gradients: rebuild a linear model or a perceptron from torch layers, or train a network on the estimator's predictions.

Columns, and so categories, are exchanged as a whole between a row and its references: the estimator sees only values that occur
in rows, never a mixture of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ig2._utils.files import check_regular
from ig2.errors import InputError, describe, import_extra, quote_names, reason
from ig2.methods import KernelSHAP, Method
from ig2.modalities.base import Outputs
from ig2.modalities.table.cells import read_frame
from ig2.modalities.table.columns import Category, Column, Number, infer_columns
from ig2.modalities.table.rows import TableSubject
from ig2.model import wrap


@dataclass(frozen=True, eq=False)
class Code(Category):
    """A category whose feature is the index of its value, for methods that exchange columns and never mix values."""

    @property
    def table(self) -> Tensor:
        return torch.arange(len(self.values), dtype=torch.float64)[:, None]


class Predictor:
    """An estimator as a function of features (B, columns), which are decoded to rows like those it was fitted on.

    Args:
        estimator: an estimator of scikit-learn, or an object with its methods.
        columns: the columns in the order of the features.
        named: whether the estimator takes a data frame with the columns' names; otherwise a plain array.
    """

    def __init__(self, estimator: Any, columns: Sequence[Column], named: bool) -> None:
        self.estimator, self.columns, self.named = estimator, tuple(columns), named

    def decode(self, features: NDArray[Any]) -> Any:
        """Return the rows with the original values of their categories."""
        if not self.named:
            return features
        cells: dict[str, Any] = {}
        for column, numbers in zip(self.columns, features.T, strict=True):
            if isinstance(column, Category):
                values = np.empty(len(column.values), dtype=object)
                values[:] = list(column.values)
                cells[column.name] = values[numbers.astype(np.int64)]
            else:
                cells[column.name] = numbers
        frame = import_extra("pandas", "table", "explaining an estimator").DataFrame(cells)
        return frame.infer_objects()

    def predict_proba(self, features: NDArray[Any]) -> NDArray[Any]:
        """Return the probability of each class, (B, classes)."""
        return np.asarray(self.estimator.predict_proba(self.decode(features)))

    def predict(self, features: NDArray[Any]) -> NDArray[Any]:
        """Return the predicted number for each row, (B,)."""
        return np.asarray(self.estimator.predict(self.decode(features)))


@dataclass(frozen=True, eq=False, repr=False)
class EstimatorSubject(TableSubject):
    """An estimator with the columns it takes."""

    has_gradients: ClassVar[bool] = False
    default_method: ClassVar[Method] = KernelSHAP()
    dtype: ClassVar[torch.dtype] = torch.float64  # the estimators' numbers

    def probabilities(self, scores: Tensor) -> Tensor | None:
        return None if self.outputs == "numbers" else scores


def is_estimator(value: object) -> bool:
    """Return whether a value has the interface of scikit-learn's estimators."""
    return not isinstance(value, (type, torch.nn.Module)) and callable(getattr(value, "predict", None))


def subject(
    estimator: Any,
    rows: Any,
    classes: Sequence[str] | None = None,
    *,
    categories: str | Sequence[str] = (),
    leave_out: str | Sequence[str] = (),
    name: str | None = None,
) -> EstimatorSubject:
    """Create a subject from any estimator or pipeline of scikit-learn on rows of a table.

    With `predict_proba`, the outputs are the probabilities of the classes; without it, the explained number is from `predict`.

    Args:
        estimator: a fitted estimator; fitted on a data frame, it knows its columns, fitted on an array, it does not.
        rows: the rows it was fitted on, or similar ones, in any form that `TableSubject.read` accepts; references are chosen
            from them. The columns are those that the estimator names, otherwise all.
        classes: names of the outputs; by default those of the estimator.
        categories: numeric columns to treat as categories; columns of text always are.
        leave_out: columns that are not inputs, for an estimator that does not name its columns.
        name: the name to show; by default the estimator's class.

    Returns:
        A subject for the methods and metrics that need no gradients.

    Raises:
        InputError: if it is not an estimator, is not fitted, or the rows lack a column.

    >>> import pandas
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> rows = pandas.DataFrame({"age": [20, 30, 50, 60], "debt": [1, 5, 2, 9]})
    >>> tree = DecisionTreeClassifier(random_state=0).fit(rows, ["no", "no", "yes", "yes"])
    >>> attribution = subject(tree, rows).explain([{"age": 55, "debt": 3}])
    >>> attribution.explained, attribution.sum_units()[0].round(2)
    (['yes rather than no'], array([2., 0.]))
    """
    if not is_estimator(estimator):
        raise InputError(f"expected an estimator with predict_proba or predict, got {describe(estimator)}")
    frame = read_frame(rows)
    frame.columns = [str(column) for column in frame.columns]
    wanted = getattr(estimator, "feature_names_in_", None)
    if wanted is not None:
        missing = [column for column in map(str, wanted) if column not in frame.columns]
        if missing:
            raise InputError(f"{type(estimator).__name__} was fitted on a column {missing[0]!r}, which the rows lack")
        frame, leave_out = frame[[str(column) for column in wanted]], ()
    columns = tuple(_as_code(column, frame) for column in infer_columns(frame, categories, leave_out=leave_out))
    if wanted is None and any(isinstance(column, Category) for column in columns):
        raise InputError(
            f"{type(estimator).__name__} was fitted on an array, which holds no categories: fit it on a data frame, or leave "
            f"{next(column.name for column in columns if isinstance(column, Category))!r} out"
        )
    has_classes = hasattr(estimator, "predict_proba")
    predictor = Predictor(estimator, columns, wanted is not None)
    if classes is None and has_classes:
        classes = list(map(str, getattr(estimator, "classes_", ()))) or None
    outputs: Outputs = "classes" if has_classes else "numbers"
    model = wrap(predictor.predict_proba if has_classes else predictor.predict, numpy=True, prepare=False)
    return EstimatorSubject(name or _name(estimator), model, classes, columns, outputs=outputs, samples=rows)


def load(path: str | PathLike[str], *, trust: bool = False) -> Any:
    """Load an estimator written by `skops.io.dump`. Pickles and joblib files, which can run any code, are not opened.

    Args:
        path: the .skops file.
        trust: whether to load types that skops cannot vouch for, such as custom functions, and the trees of forests, whose
            numbers scikit-learn does not check. Set it for files whose origin you trust as you trust code.

    Returns:
        The estimator.

    Raises:
        InputError: if the file is not valid, or has types that need trust.
    """
    skops = import_extra("skops.io", "estimators", f"reading {path}")
    check_regular(path)
    try:
        doubtful = skops.get_untrusted_types(file=fspath(path))
        if doubtful and not trust:
            raise InputError(
                f"{path} holds {quote_names(doubtful, 3)}, which can do harm if the file was made to: if you trust "
                "where it comes from, open it with --trust (trust=True in Python)"
            )
        return skops.load(fspath(path), trusted=doubtful)
    except (OSError, InputError):
        raise
    except Exception as error:  # a broken archive, or an estimator of another version
        raise InputError(f"{path} is no estimator that can be opened: {reason(error)}") from error


def _as_code(column: Column, frame: Any) -> Column:
    """Return a column for exchange only: numbers unscaled, categories by the index of their value, with the original type."""
    if isinstance(column, Number):
        return Number(column.name)
    originals = {str(value).strip(): value for value in frame[column.name].dropna().unique()}
    values = [originals.get(text, text) for text in column.texts]
    if all(isinstance(value, str) for value in values):
        numbers = import_extra("pandas", "table", "explaining an estimator").to_numeric(values, errors="coerce")
        values = values if np.isnan(numbers).any() else numbers.tolist()  # codes of a CSV file, which is read as text
    return Code(column.name, tuple(values))


def _name(estimator: Any) -> str:
    """Return the name of an estimator's class; for a pipeline, that of its last step."""
    steps = getattr(estimator, "steps", None)
    return type(steps[-1][1] if steps else estimator).__name__
