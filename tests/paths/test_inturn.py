"""One part at a time to the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import ig2
from ig2.errors import InputError
from ig2.paths import InTurn
from ig2.task import open_task
from networks import data, refuses, small_mlp


def by_hand(net, x: Tensor, reference: Tensor, parts: list[list[int]]) -> list[float]:
    """What the output falls in each part's turn."""
    point, falls = x.clone(), []
    for part in parts:
        before = net(point[None])[0, 0].item()
        point[part] = reference[part]
        falls.append(before - net(point[None])[0, 0].item())
    return falls


def test_each_group_has_what_the_output_fell_in_its_turn():
    net, x, references = small_mlp(6), data(3, 6), data(2, 6, seed=5)
    numbers = torch.tensor([0, 0, 1, 2, 2, 2])
    parts = [[0, 1], [2], [3, 4, 5]]
    for order, turns in (("forward", parts), ("backward", parts[::-1])):
        method = ig2.PathMethod(InTurn(numbers, order=order), rule=ig2.rules.blended)
        found = method(net, x, 0, references, per_reference=True).per_reference
        for row in range(3):
            for r in range(2):
                expected = by_hand(net, x[row], references[r], turns)
                sums = [float(found[row, r, part].sum()) for part in turns]
                assert np.allclose(sums, expected, atol=1e-10)


def test_with_one_step_every_vertex_is_an_exchange():
    x, reference = data(1, 4), data(1, 4, seed=3)
    method = ig2.PathMethod(InTurn(torch.tensor([0, 0, 1, 1])), rule=ig2.rules.blended)
    path = method(small_mlp(4), x, 0, reference, paths=True).paths[0, 0]
    exchanged = torch.stack([x[0], torch.cat([reference[0, :2], x[0, 2:]]), reference[0]])
    assert torch.equal(path, exchanged)


def test_with_many_steps_it_integrates_each_group_as_a_straight_line_does():
    net, x = small_mlp(3), data(2, 3)
    one = ig2.PathMethod(InTurn(torch.tensor([0, 0, 0]), steps=9), rule=ig2.rules.trapezoid)(net, x, 0, references=0.0)
    straight = ig2.PathMethod(ig2.paths.Straight(9), rule=ig2.rules.trapezoid)(net, x, 0, references=0.0)
    assert torch.allclose(one.values, straight.values, atol=1e-13)


def test_the_mean_over_random_orders_nears_the_shapley_values():
    net, x = small_mlp(3), data(1, 3)
    references = torch.zeros(600, 3, dtype=torch.float64)
    method = ig2.PathMethod(InTurn(order="random"), rule=ig2.rules.blended)
    exact = ig2.KernelSHAP()(net, x, 0, references=0.0)
    found = method(net, x, 0, references)
    assert torch.allclose(found.values, exact.values, atol=0.05 * float(exact.values.abs().max()))
    assert torch.allclose(found.total, exact.total)
    assert torch.equal(method(net, x, 0, references[:4], seed=1).values, method(net, x, 0, references[:4], seed=1).values)
    forward = ig2.PathMethod(InTurn(), rule=ig2.rules.blended)(net, x, 0, references[:1])
    assert not torch.allclose(forward.values, exact.values, atol=1e-3)  # one order is not the mean over them


def test_a_batch_is_explained_as_each_alone_where_groups_differ():
    net, x = small_mlp(4), data(2, 4)
    numbers = torch.tensor([[0, 1, 2, 3], [5, 5, 7, 7]])
    references = data(3, 4, seed=2)
    for order in ("forward", "backward", "random"):
        both = ig2.PathMethod(InTurn(numbers, 2, order), rule=ig2.rules.blended)(net, x, 0, references)
        for row in range(2):
            method = ig2.PathMethod(InTurn(numbers[row : row + 1], 2, order), rule=ig2.rules.blended)
            assert torch.allclose(method(net, x[row : row + 1], 0, references).values[0], both.values[row], atol=1e-12)


def test_an_estimate_counts_the_turns_of_all_groups(monkeypatch):
    net, x, references = small_mlp(6), data(3, 6), data(2, 6, seed=5)
    numbers = torch.tensor([[0, 0, 1, 2, 2, 2], [4, 5, 6, 6, 9, 9], [1, 1, 1, 1, 1, 1]])  # four groups at most
    clock = iter(range(100))
    monkeypatch.setattr("ig2.methods.path.time.perf_counter", lambda: float(next(clock)))  # a pass takes a second
    for groups, segments in ((numbers, 4), (numbers[0], 3), (None, 6)):
        method = ig2.PathMethod(InTurn(groups, steps=5), rule=ig2.rules.blended)
        assert method.estimate(net, x, references, target=0).seconds == 5 * segments + 1
        cost = method(net, x, 0, references).cost
        assert cost.gradients == 3 * 2 * (5 * segments + 1)


def test_settings_are_checked():
    refuses(InputError, "order", lambda: InTurn(order="sideways"))
    refuses(InputError, "steps", lambda: InTurn(steps=0))
    refuses(InputError, "groups", lambda: InTurn(groups="windows"))


class WithoutFloat64(TorchFunctionMode):
    """As on Apple's MPS: what leaves the CPU may not be float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        moves = func in (torch.Tensor.to, torch.Tensor.double)
        result = func(*args, **(kwargs or {}))
        if moves and result.dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return result


@pytest.mark.parametrize("order", ["forward", "backward", "random"])
def test_turns_reach_the_device_without_float64(order):
    x = data(2, 4).float()
    with open_task(ig2.wrap(small_mlp(4).float()), x, label="InTurn") as task, WithoutFloat64():
        turns = InTurn(order=order).prepare(task, x[:, None]).turns
    assert turns.dtype == torch.long


def test_padding_changes_no_order():
    net, references = small_mlp(4), torch.zeros(3, 4, dtype=torch.float64)
    x = data(1, 4)
    x[:, 3] = 0
    for order in ("forward", "backward", "random"):
        padded, alone = (
            ig2.PathMethod(InTurn(torch.tensor(numbers), 1, order), rule=ig2.rules.blended)(net, x, 0, references)
            for numbers in ([0, 1, 2, -1], [0, 1, 2, 2])
        )
        assert torch.allclose(padded.values, alone.values, atol=1e-12)
