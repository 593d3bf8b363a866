"""Every method on a network without a finite gradient at one of three explicands: it is named, or skipped, by all alike."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2 import methods
from networks import made, refuses, relu_cnn, uniform

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
    "FusionGrad": {"method": ig2.Gradient(), "samples": 2, "networks": 2},
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


class Break(torch.autograd.Function):
    """Its first input, with a gradient of NaN where the second is 1."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, broken: Tensor) -> Tensor:
        ctx.save_for_backward(broken)
        return scores.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (broken,) = ctx.saved_tensors
        return torch.where(broken.view(-1, *[1] * (gradient.ndim - 1)) == 1, torch.nan, gradient), None


class Broken(nn.Module):
    """A network whose scores are sound, and whose gradients, by a layer too, are NaN where `broken` is 1."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, broken: Tensor) -> Tensor:
        return Break.apply(self.net(Break.apply(x, broken)), broken)


def reads_words() -> nn.Module:
    return made(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Flatten(), nn.Linear(15, 3)))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_names_or_skips_an_explicand_whose_gradient_is_not_finite(name: str):
    method = METHODS[name](**SETTINGS.get(name, {}))
    words = name in OF_WORDS
    model = ig2.wrap(Broken(reads_words() if words else relu_cnn()), bounds=(0, 1))
    x, references = (WORDS[torch.tensor([[0, 1, 2], [3, 4, 5], [6, 7, 8]])], uniform(2, 3, 4, seed=2))
    if not words:
        x, references = uniform(3, 2, 8, 8), uniform(2, 2, 8, 8, seed=2)
    args = model, (x, ig2.Fixed(BROKEN)), 0, (references,)
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


def test_what_an_output_with_a_part_replaced_fails_on_is_skipped_as_well():
    x = torch.ones(3, 4, dtype=torch.float64)
    x[1] = 2
    network = lambda x: (x.sum(dim=1) - 4.5).abs().log() + 0 * x.sum(dim=1)  # noqa: E731 - NaN or not, by the sum
    halves = lambda x: torch.where(x.sum(dim=1) == 6, torch.nan, network(x))  # noqa: E731
    for method in (ig2.Occlusion(groups=torch.arange(4)), ig2.KernelSHAP()):
        refuses(ig2.ModelError, "explicand 1", lambda method=method: method(halves, x))
        with pytest.warns(ig2.IG2Warning, match="1 explicand of 3 skipped"):
            assert len(method(halves, x, skip_bad=True)) == 2
