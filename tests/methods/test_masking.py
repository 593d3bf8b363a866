"""Outputs at mixtures of explicands and references, against the same by hand."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from ig2.methods.masking import FEW_NUMBERS, run_masked
from ig2.model import wrap
from ig2.task import open_task
from networks import data


@pytest.mark.parametrize("batch_size", ["auto", 1, 7])
@pytest.mark.parametrize("mixes", [False, True], ids=["replaced", "mixed"])
@pytest.mark.parametrize("size", [8, FEW_NUMBERS + 8], ids=["small", "large"])
def test_mixtures_are_those_by_hand(size: int, mixes: bool, batch_size: int | str) -> None:
    x, references, weights = data(3, size), data(3, 2, size, seed=1), data(size, 3, seed=2)
    masks = data(5, size, seed=3, low=0) if mixes else data(5, size, seed=3) > 0
    rows = torch.tensor([2, 0])

    def net(points: Tensor) -> Tensor:
        return torch.tanh(points / size**0.5) @ weights

    options = {"label": "a test", "batch_size": batch_size, "needs_gradient": False}
    with open_task(wrap(net), x, [0, 1, 2], **options) as task, torch.no_grad():
        found = run_masked(task, rows, references, lambda _, numbers: masks[numbers], len(masks))
    for (i, row), j, k in product(enumerate(rows.tolist()), range(2), range(5)):
        kept = masks[k].double()
        point = kept * x[row] + (1 - kept) * references[row, j]
        torch.testing.assert_close(found[i, j, k], net(point[None])[0, row], rtol=0, atol=1e-10)
