"""What every method of the list keeps to.

An explicand without a finite gradient is named or skipped, rows do not depend on each other, no
graph is left, memory may run out in the middle, and a picture may be turned.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2 import methods
from networks import Record, made, refuses, relu_cnn, uniform

METHODS = {
    name: kind
    for name in methods.__all__
    if isinstance(kind := getattr(methods, name), type) and issubclass(kind, ig2.Method) and not inspect.isabstract(kind)
}
WORDS = uniform(9, 4, seed=3)
# What is made with other settings than the defaults: settings it cannot be without, or that take less time.
SETTINGS: dict[str, dict[str, Any]] = {
    "AttEXplore": {"steps": 2, "copies": 2},
    "BIG": {"steps": 3},
    "BlurIG": {"steps": 3, "sigma": 2.0},
    "DIG": {"embeddings": WORDS, "steps": 3, "neighbours": 3},
    "GeodesicIG": {"pool": uniform(6, 2, 8, 8, seed=4), "neighbours": 2},
    "GuidedIG": {"steps": 4},
    "KernelSHAP": {"groups": ig2.Grid(2, 2)},
    "LA": {"steps": 2},
    "LPI": {"pool": uniform(6, 2, 8, 8, seed=4), "clusters": 2, "count": 2},
    "MFABA": {"steps": 4},
    "NoiseGrad": {"method": ig2.Gradient(), "samples": 2},
    "Occlusion": {"window": 4},
    "PathMethod": {"path": ig2.paths.Straight(3)},
    "PathWeightedIG": {"weight": lambda place: 2 * place},
    "Pooled": {"method": ig2.Gradient(), "regions": ig2.Grid(2, 2)},
    "RISE": {"masks": 20, "cells": 2},
    "RevealIG": {"steps": 2, "samples": 2},
    "SAMP": {"steps": 4},
    "SmoothGrad": {"method": ig2.Gradient(), "samples": 2},
    "Smoothed": {"method": ig2.Gradient(), "sigma": 1.0},
    "Strata": {"layers": ["net.0", "net.3"]},
    "Turns": {"turns": 2, "orders": 2},
    "UDIG": {"embeddings": WORDS, "steps": 3, "neighbours": 3},
    "VarGrad": {"method": ig2.Gradient(), "samples": 2},
    "WG": {"method": ig2.ExpectedIG(3)},
    "XRAI": {"method": ig2.IntegratedGradients(3), "scales": (10,)},
}
OF_WORDS = {"DIG", "UDIG", "SIG"}
BROKEN = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)


def spoil(scores: Tensor, broken: Tensor) -> Tensor:
    """The scores, with a gradient of NaN where the other is 1."""
    scores = scores.clone()
    if scores.requires_grad:
        scores.register_hook(lambda grad: torch.where(broken.view(-1, *[1] * (grad.ndim - 1)) == 1, torch.nan, grad))
    return scores


class Broken(nn.Module):
    """A network whose scores are sound, and whose gradients, by a layer too, are NaN where `broken` is 1."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, broken: Tensor) -> Tensor:
        return spoil(self.net(spoil(x, broken)), broken)


def reads_words() -> nn.Module:
    return made(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Flatten(), nn.Linear(15, 3)))


def sample(name: str) -> tuple[ig2.Method, nn.Module, Tensor, Tensor]:
    """A method, a network for it, three explicands and two references."""
    method = METHODS[name](**SETTINGS.get(name, {}))
    if name in OF_WORDS:
        return method, reads_words(), WORDS.unflatten(0, (3, 3)), uniform(2, 3, 4, seed=2)
    return method, relu_cnn(), uniform(3, 2, 8, 8), uniform(2, 2, 8, 8, seed=2)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_names_or_skips_an_explicand_whose_gradient_is_not_finite(name: str):
    method, net, x, references = sample(name)
    args = ig2.wrap(Broken(net), bounds=(0, 1)), (x, ig2.Fixed(BROKEN)), 0, (references,)
    if not method.needs_gradient:
        assert method(*args).values[0].isfinite().all()
        return
    with pytest.raises(ig2.ModelError, match=r"the gradient is not finite for explicand 1\b.*: .*skip_bad") as raised:
        method(*args)
    assert raised.value.rows == (1,)
    with pytest.warns(ig2.IG2Warning, match=r"1 explicand of 3 skipped: 1 \(the network's numbers are not finite there\)"):
        rest = method(*args, skip_bad=True)
    assert rest.values[0].isfinite().all() and rest.values[0].any() and len(rest) == 2
    assert [item["row"] for item in rest.settings["skipped"]] == [1]


class Sudden(nn.Module):
    """Runs out of memory at one of its passes of more than two points: opening it takes no such."""

    def __init__(self, net: nn.Module, fails: int = 0) -> None:
        super().__init__()
        self.net, self.fails, self.passes = net, fails, Record()

    def forward(self, x: Tensor) -> Tensor:
        if (count := len(x)) > 2:
            self.passes.append(count)
            if len(self.passes) == self.fails:
                raise torch.OutOfMemoryError("out of memory")
        return self.net(x)


def list_tensors(attribution: ig2.Attribution) -> dict[str, Tensor]:
    return {name: value for name, value in vars(attribution).items() if isinstance(value, Tensor)}


@pytest.mark.parametrize("name", METHODS)
def test_a_row_is_that_of_its_explicand_alone_and_no_graph_is_left(name: str):
    method, net, x, references = sample(name)
    model, target, against = ig2.wrap(Sudden(net), bounds=(0, 1)), [0, 1, 1], [2, 2, 0]
    kept = ("curves", "paths", "per_reference") if method.follows_paths else ()
    keep = {option: name != "GradCFE" or option != "per_reference" for option in kept}
    whole = method(model, x, target, references, against=against, **keep)
    assert not any(tensor.requires_grad for tensor in list_tensors(whole).values())
    for row in range(3):
        one = x[row : row + 1]
        alone = method(model, one, target[row], references, against=against[row], **keep)
        for field, tensor in list_tensors(alone).items():
            ours = getattr(whole, field)[row : row + 1]
            if tensor.ndim > 2 and tensor.shape != ours.shape:  # a longer path of another row
                ours = ours[:, :, : tensor.shape[2]]
            assert torch.allclose(tensor, ours, rtol=0, atol=1e-10), field


@pytest.mark.parametrize("name", METHODS)
def test_memory_may_run_out_in_the_middle(name: str):
    method, net, x, references = sample(name)
    whole = Sudden(net)
    expected, told = method(whole, x, 1, references, batch_size=4), list[tuple[int, int]]()
    for share in (0.4, 0.7, 1.0):
        told.clear()
        sudden = Sudden(net, math.ceil(share * len(whole.passes)))
        options = {"batch_size": 4, "progress": lambda *now: told.append(now)}
        found = method(sudden, x, 1, references, **options)
        torch.testing.assert_close(found.values, expected.values, rtol=0, atol=1e-10)
        done = [points for points, _ in told]
        assert done == sorted(set(done)) and all(points <= total for points, total in told)
        assert not told or told[-1][0] == told[-1][1]


# what they draw, or the order in which they go through pixels, is not turned with the picture
DRAWN = {
    "AttEXplore", "NoiseGrad", "RISE", "Random", "RevealIG", "SmoothGrad",
    "Turns", "VarGrad", "XRAI",
}  # fmt: skip


def reads_pictures(turned: bool) -> nn.Module:
    """A network of pictures of 8 × 12 pixels, or the same of those with rows for columns."""
    net: Any = made(
        lambda: nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 4 * 6, 4),
        )
    )  # fmt: skip
    for layer in (net[0], net[3], net[6]) if turned else ():
        weight = layer.weight.data.unflatten(1, (8, 4, 6)) if layer is net[6] else layer.weight.data
        layer.weight.data = weight.mT.reshape(layer.weight.shape).clone()
    return net


@pytest.mark.parametrize("name", sorted(METHODS.keys() - OF_WORDS - DRAWN))
def test_a_picture_that_is_turned_has_the_same_values_turned(name: str):
    """Pictures that are not square show where height and width are confused."""
    samples = [uniform(2, 2, 8, 12), uniform(2, 2, 8, 12, seed=2), uniform(6, 2, 8, 12, seed=4)]
    found = []
    for turned in (False, True):
        x, references, pool = [sample.mT.contiguous() if turned else sample for sample in samples]
        own = {"pool": pool, "layers": ["0", "3"]}
        settings = {key: own.get(key, value) for key, value in SETTINGS.get(name, {}).items()}
        found.append(METHODS[name](**settings)(reads_pictures(turned), x, 1, references).values)
    torch.testing.assert_close(found[1].mT, found[0], rtol=0, atol=1e-10)
    assert found[0].any()


def test_what_an_output_with_a_part_replaced_fails_on_is_skipped_as_well():
    x = torch.ones(3, 4, dtype=torch.float64)
    x[1] = 2
    network = lambda x: (x.sum(dim=1) - 4.5).abs().log() + 0 * x.sum(dim=1)  # noqa: E731 - NaN or not, by the sum
    halves = lambda x: torch.where(x.sum(dim=1) == 6, torch.nan, network(x))  # noqa: E731
    for method in (ig2.Occlusion(groups=torch.arange(4)), ig2.KernelSHAP()):
        refuses(ig2.ModelError, "explicand 1", lambda method=method: method(halves, x))
        with pytest.warns(ig2.IG2Warning, match="1 explicand of 3 skipped"):
            assert len(method(halves, x, skip_bad=True)) == 2
