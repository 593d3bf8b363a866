"""How fast rules converge on a smooth network, and what is left of the residual on a trained one with kinks."""

import numpy as np
import pytest
import torch

import ig2
from ig2 import paths, rules
from networks import data, tanh_mlp, trained_on_patterns


def order(rule, counts):
    """The slope of log error on log steps, on the straight line through a tanh network."""
    net, x, references = tanh_mlp(hidden=12), data(3, 6, seed=1, low=-3, high=3), data(2, 6, seed=2, low=-3, high=3)
    exact = ig2.PathMethod(paths.Straight(8), rule=rules.gauss(20))(net, x, 1, references)
    assert exact.residual.abs().max() < 1e-13
    methods = [ig2.PathMethod(paths.Straight(n), rule=rule) for n in counts]
    errors = [float((method(net, x, 1, references).values - exact.values).norm()) for method in methods]
    slope, _ = np.polyfit(np.log(counts), np.log(errors), 1)
    return -slope


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        *((rules.left, 1), (rules.right, 1), (rules.midpoint, 2), (rules.trapezoid, 2), (rules.secant, 2)),
        *((rules.gauss(1), 2), (rules.gauss(2), 4)),
    ],
    ids=repr,
)
def test_order_of_convergence(rule, expected):
    counts = [16, 32, 64, 128, 256] if expected < 4 else [8, 16, 32, 64]
    assert order(rule, counts) == pytest.approx(expected, abs=0.1)


def test_the_measure_of_an_order_can_fail():
    # nodes that lean to one side converge as slowly as an end, though the weights sum to one
    leaning = rules.Quadrature("leaning", (0.0, 1.0), (0.4, 0.6))
    assert order(leaning, [16, 32, 64, 128, 256]) == pytest.approx(1, abs=0.1)
    assert order(rules.left, [16, 32, 64, 128, 256]) != pytest.approx(2, abs=0.5)


def test_rules_that_share_do_not_converge_to_the_integral():
    # their sum is exact at every step size; the way it is shared is their own
    assert abs(order(rules.direct, [16, 32, 64, 128])) < 0.2


@pytest.mark.slow
def test_residuals_on_a_trained_cnn():
    """The residual, relative to f(x) − f(GradCF), at the wafer settings: every pattern against normal samples."""
    net, samples, labels = trained_on_patterns()
    normal, others = samples[labels == 0][:3], [samples[labels == c][:1] for c in range(1, 4)]
    x = torch.cat(others)
    model = ig2.wrap(net, bounds=(0, 1))
    target = torch.arange(1, 4)
    with torch.no_grad():
        assert (net(x).argmax(dim=1) == target).all()
    sharing = [rules.direct, rules.shared, rules.aligned, rules.blended, rules.tempered]
    every = [rules.left, rules.trapezoid, rules.gauss(4), *sharing, rules.scaled(rules.left)]
    measured = {}
    for rule in every:
        found = ig2.IG2(steps=100, step_size=0.1, rule=rule)(model, x, target, normal)
        change = found.output - found.baseline_output
        assert (change > 1).all()  # GradPath does lower the output
        measured[rule.name] = float((found.residual / change).abs().mean())
        assert measured[rule.name] < 1e-13 or not rule.complete
    assert 1e-13 < measured["gauss(4)"] < measured["trapezoid"] < measured["left"] < 1
