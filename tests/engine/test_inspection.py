"""What opening a network finds out about it: state, randomness, mixing, and what is rounding alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ig2
from networks import refuses, seeded, uniform

X, REFERENCES = uniform(3, 6), uniform(2, 6, seed=1)


class Remembering(nn.Module):
    """Keeps its state between calls, as a voice-activity model does, and resets it when the batch has another size."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.state = nn.Linear(6, 3), None

    def forward(self, x: Tensor) -> Tensor:
        if self.state is None or len(self.state) != len(x):
            self.state = torch.zeros_like(x)
        self.state = (0.5 * self.state + x).detach()
        return self.head(x + self.state)


@pytest.mark.parametrize(
    "method", [ig2.IG2(3), ig2.IntegratedGradients(3), ig2.Gradient(), ig2.KernelSHAP()], ids=lambda m: repr(m)[:9]
)
@pytest.mark.parametrize("batch_size", ["auto", 1])
def test_a_network_that_keeps_state_is_refused(method: ig2.methods.Method, batch_size: Any):
    net = seeded(Remembering, 0)
    refuses(ig2.ModelError, "state", lambda: method(net, X, references=REFERENCES, batch_size=batch_size))
    assert net.state is None


@pytest.mark.parametrize("draw", [np.random.rand, random.random, torch.rand], ids=["numpy", "python", "torch"])
def test_random_numbers_are_found_wherever_they_come_from(draw: Any):
    size = (1,) if draw is torch.rand else ()
    refuses(ig2.ModelError, "random", lambda: ig2.IntegratedGradients(3)(lambda x: (x * float(draw(*size))).sum(dim=1), X))


@pytest.mark.parametrize("draw", [np.random.rand, random.random, lambda: torch.rand(1)], ids=["numpy", "python", "torch"])
def test_numbers_that_are_drawn_and_not_used_leave_the_generators_as_they_were(draw: Any):
    def network(x: Tensor) -> Tensor:
        draw()
        return x.sum(dim=1)

    before = torch.get_rng_state(), np.random.get_state()[1].copy(), np.random.get_state()[2], random.getstate()  # noqa: NPY002
    ig2.IntegratedGradients(3)(network, X)
    after = torch.get_rng_state(), np.random.get_state()[1], np.random.get_state()[2], random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0]) and np.array_equal(before[1], after[1]) and before[2:] == after[2:]


def test_what_cancels_in_float32_is_not_taken_for_mixing():
    """Scores are differences of numbers around 1e6, summed in two orders; another batch is rounded differently."""

    def network(x: Tensor) -> Tensor:
        order = x if len(x) == 1 else x.flip(1)  # as a kernel for another size of batch would
        large = 1e5 * sum(order.unbind(dim=1))[:, None] - 1e5 * x.sum(dim=1, keepdim=True)
        return torch.cat([large + 0.1 * x[:, :1], 0.1 * x[:, 1:2]], dim=1)

    x = uniform(3, 64, seed=2).float()
    alone, beside = network(x[:1]), network(x)[:1]
    assert not torch.allclose(alone, beside, rtol=1e-2, atol=1e-2 * float(alone.abs().max()))  # it would be an alarm
    ig2.IntegratedGradients(3)(network, x)


def test_what_depends_on_the_size_of_the_batch_is_still_refused():
    refuses(ig2.ModelError, "mix", lambda: ig2.IntegratedGradients(3)(lambda x: x.sum(dim=1) / len(x), X))


def test_a_representation_is_reached_by_every_input_that_is_attributed():
    """Of two towers the last linear layer belongs to one, and the other input would get exactly zero."""
    encode = seeded(lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)), 0)

    def similarity(a: Tensor, b: Tensor) -> Tensor:
        return torch.cosine_similarity(encode(a), encode(b))

    one, two = ig2.IG2(10)(similarity, (X, X.flip(0)), references=(REFERENCES, REFERENCES.flip(0))).values
    assert one.abs().sum() > 0 and two.abs().sum() > 0


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head, self.aside = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(8, 3), nn.Linear(6, 3)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        joined = torch.cat([self.left(a), self.right(b)], dim=1).tanh()
        return self.head(joined) + self.aside(b)  # the last linear map, and it sees b alone


def test_settings_say_which_representation_was_read():
    joined = ig2.IG2(3)(seeded(Joined, 0), (X, X), references=(REFERENCES, REFERENCES))
    assert joined.settings["representation"] == "input of 'head'"
    convolutions = seeded(lambda: nn.Sequential(nn.Conv1d(1, 2, 3), nn.Tanh(), nn.Conv1d(2, 3, 4), nn.Flatten()), 0)
    without = ig2.IG2(3)(convolutions, X[:, None], references=REFERENCES[:, None])
    assert without.settings["representation"] == "output of the network"
    assert ig2.IntegratedGradients(3)(convolutions, X[:, None]).settings["representation"] is None


class Blocks(nn.Module):
    """N-BEATS: a forecast of which each block explains a part, by a product with a basis of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)) for _ in range(2))
        self.basis = nn.Parameter(torch.ones(3, 8))

    def forward(self, x: Tensor) -> Tensor:
        forecast = torch.zeros_like(x[:, :2])
        for block in self.blocks:
            backcast, part = (block(x) @ self.basis).split([6, 2], dim=1)
            x, forecast = x - backcast, forecast + part
        return forecast


def test_where_the_last_linear_map_is_no_layer_those_that_would_do_are_named():
    net, x, references = seeded(Blocks, 0), uniform(2, 6), uniform(2, 6, seed=1)
    with pytest.raises(ig2.ModelError, match=r"is a call of .*representation='blocks\.1\.2:input'\), or 'blocks\.1\.0:input'"):
        ig2.IG2(2)(net, x, references=references)
    assert ig2.IG2(2)(ig2.wrap(net, representation="blocks.1.2:input"), x, references=references).values.isfinite().all()
