"""Guided IG and Blur IG beside PAIR's `saliency` package [Kapishnikov 2021, Xu 2020]."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import saliency.core as saliency
import torch

import ig2
from ig2 import rules
from networks import data, relu_cnn

IMAGE = data(1, 2, 8, 8, seed=5, low=0)
BASELINE = torch.full_like(IMAGE, 0.1)


@pytest.fixture
def net() -> torch.nn.Module:
    network = relu_cnn(channels=2, size=8, seed=3)
    with torch.no_grad():
        for weights in network.parameters():
            weights *= 3  # as it comes, its gradients are about 1e-4, and all maps alike
    return network


def last(planes: torch.Tensor) -> Any:
    """One image with its channels last, as PAIR has it."""
    return planes[0].movedim(0, -1).numpy()


def gradients(net: torch.nn.Module) -> Any:
    def call_model_function(images: Any, call_model_args: Any = None, expected_keys: Any = None) -> Any:
        batch = torch.tensor(images, dtype=torch.float64).movedim(-1, 1).requires_grad_()
        (slope,) = torch.autograd.grad(net(batch)[:, 1].sum(), batch)
        return {saliency.INPUT_OUTPUT_GRADIENTS: slope.movedim(1, -1).numpy()}

    return call_model_function


def apart(one: Any, other: Any) -> float:
    return float(np.abs(one - other).max() / np.abs(other).max())


@pytest.mark.parametrize("options", [{}, {"fraction": 0.6, "max_dist": 0.3}, {"max_dist": 1.0}], ids=str)
def test_guided_ig_is_that_of_pair(net: torch.nn.Module, options: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    # the package calls np.quantile by an argument that NumPy 2.4 no longer knows
    real = np.quantile
    monkeypatch.setattr(np, "quantile", lambda a, q, interpolation: real(a, q, method=interpolation))
    line = {"x_baseline": last(BASELINE), "x_steps": 30}
    theirs = saliency.GuidedIG().GetMask(last(IMAGE), gradients(net), **line, **options)
    own = ig2.GuidedIG(30, **options)(net, IMAGE, 1, BASELINE).values
    assert apart(last(own), theirs) < 1e-6
    straight = ig2.IntegratedGradients(30, rules.right)(net, IMAGE, 1, BASELINE).values
    assert apart(last(own), last(straight)) > 0.01


def test_blur_ig_approaches_that_of_pair_as_steps_grow(net: torch.nn.Module) -> None:
    """PAIR multiplies the gradient by the derivative of the blur; ours has straight segments between blurred images."""
    distances = []
    for steps in (20, 80, 320):
        options = {"max_sigma": 4, "steps": steps, "batch_size": 50, "grad_step": 1e-4}
        theirs = saliency.BlurIG().GetMask(last(IMAGE), gradients(net), **options)
        distances.append(apart(last(ig2.BlurIG(steps, 4, "zero", rules.left)(net, IMAGE, 1).values), theirs))
    assert distances[2] < distances[1] < distances[0] and distances[2] < 0.02
