"""What methods declare that they need."""

import pytest
import torch
from torch import nn

import ig2
from ig2 import paths, references, rules
from ig2.errors import InputError


@pytest.mark.parametrize(
    ("method", "takes", "needs"),
    [
        (ig2.Gradient(), False, False),
        (ig2.GradCAM(), False, False),
        (ig2.BlurIG(), False, False),
        (ig2.MFABA(), False, False),
        (ig2.IntegratedGradients(), True, False),
        (ig2.KernelSHAP(), True, False),
        (ig2.Turns(), True, False),
        (ig2.ExpectedIG(), True, True),
        (ig2.IG2(), True, True),
        (ig2.DeepSHAP(), True, True),
        (ig2.Strata(), True, True),
        (ig2.BIG(), True, False),  # finds its own
        (ig2.PathMethod(paths.Straight(2)), True, True),
        (ig2.PathMethod(paths.Straight(2), references.Zeros()), True, False),
        (ig2.PathMethod(paths.Descent(2), None, rules.left), False, False),
        (ig2.SmoothGrad(ig2.IG2()), True, True),
        (ig2.NoiseGrad(ig2.Gradient()), False, False),
        (ig2.XRAI(), True, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ig2.Method) else "",
)
def test_references(method: ig2.Method, takes: bool, needs: bool):
    assert (method.takes_references, method.needs_references) == (takes, needs)


@pytest.mark.parametrize("method", [ig2.ExpectedIG(2), ig2.IG2(2), ig2.DeepSHAP(), ig2.SmoothGrad(ig2.ExpectedIG(2), 2)])
def test_a_method_that_needs_references_raises_without(method: ig2.Method):
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).eval()
    assert method.needs_references
    with pytest.raises(InputError, match="needs references"):
        method(net, torch.ones(1, 4))
    assert method(net, torch.ones(1, 4), references=torch.zeros(1, 4)).values.isfinite().all()


def test_a_wrapper_needs_what_is_inside():
    inside = ig2.AGI()
    assert ig2.SmoothGrad(inside).needs_classes and not ig2.SmoothGrad(inside).needs_places
    assert ig2.SmoothGrad(ig2.RISE()).needs_places and not ig2.SmoothGrad(ig2.RISE()).needs_gradient
    assert ig2.XRAI().needs_places
