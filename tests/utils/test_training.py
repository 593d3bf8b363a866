"""The loop of training: its losses are those of the samples, however batches are cut."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ig2._utils.training import fit, minimise
from networks import data, seeded

LOSSES = data(10, seed=3, low=0.0)


@pytest.mark.parametrize("sizes", [[10], [4, 4, 2], [9, 1], [3, 3]])
def test_a_loss_is_the_mean_over_samples_and_not_over_batches(sizes: list[int]) -> None:
    still = nn.Parameter(torch.zeros((), dtype=torch.float64))
    told: list[int] = []

    class Told:
        advance = staticmethod(told.append)

    found = minimise(
        lambda indices, _: LOSSES[indices].mean() + 0 * still,
        lambda generator: torch.randperm(10, generator=generator)[: sum(sizes)].split(sizes),
        torch.optim.SGD([still], lr=1.0),
        epochs=3,
        progress=Told(),  # type: ignore[arg-type]
    )
    drawn = torch.Generator().manual_seed(0)
    chosen = [torch.randperm(10, generator=drawn)[: sum(sizes)] for _ in range(3)]
    assert found == pytest.approx([float(LOSSES[each].mean()) for each in chosen], rel=1e-12)
    assert told == sizes * 3


def test_training_depends_on_its_seed_alone_and_leaves_the_global_one() -> None:
    x, y = data(10, 3).float(), (data(10, seed=1) > 0).long()

    def train(seed: int) -> Tensor:
        net: Any = seeded(lambda: nn.Linear(3, 2), 0).float()
        options: dict[str, int] = {"epochs": 2, "batch": 4, "seed": seed}
        return fit(net, [x], y, nn.functional.cross_entropy, **options).weight

    state = torch.get_rng_state()
    first = train(0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert torch.equal(train(0), first) and not torch.equal(train(1), first)
