"""What a call costs, in points run and gradients taken, against closed forms."""

from __future__ import annotations

import pytest
import torch

import ig2
from ig2 import rules
from networks import data, relu_cnn, tanh_mlp

B, R, K = 3, 4, 7
NETWORK, X, REFERENCES = tanh_mlp(), data(B, 6), data(R, 6, seed=2)
# methods, and how many points they run and gradients they take for each pair of explicand and reference
PAIRS = {
    "IG, Gauss's nodes inside": (ig2.IntegratedGradients(K), K + 2, K),
    "IG, left": (ig2.IntegratedGradients(K, rule=rules.left), K + 1, K + 1),
    "IG, trapezoid": (ig2.IntegratedGradients(K, rule=rules.trapezoid), K + 1, K + 1),
    "IG² left: the output's and the distance's at each vertex but the last": (ig2.IG2(K, 0.1, rules.left), K + 2, 2 * K),
    "IG² blended: the output's at the last too": (ig2.IG2(K, 0.1, rules.blended), K + 2, 2 * K + 1),
    "IG² gauss: the distance's at vertices, the output's between": (ig2.IG2(K, 0.1, rules.gauss(3)), K + 2 + 3 * K, 4 * K),
    "GradCFE": (ig2.GradCFE(K, 0.1), K + 2, K),
    "DeepSHAP": (ig2.DeepSHAP(), 2, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_path_methods_cost_what_their_steps_and_references_make(name):
    method, forwards, gradients = PAIRS[name]
    cost = method(NETWORK, X, references=REFERENCES).cost
    assert (cost.gradients, cost.forwards) == (B * R * gradients, B + B * R * forwards)


def test_methods_without_references_and_wrappers():
    for method, forwards, gradients in (
        (ig2.Gradient(), 1, 1),
        (ig2.InputXGradient(), 1, 1),
        (ig2.SmoothGrad(ig2.Gradient(), samples=5), 6, 5),
        (ig2.Random(), 1, 0),
        (ig2.KernelSHAP(), 1 + 2**6, 0),
    ):
        cost = method(NETWORK, X).cost
        assert (cost.forwards, cost.gradients) == (B * forwards, B * gradients), method
    cost = ig2.GradCAM()(relu_cnn(), data(B, 2, 8, 8)).cost
    assert (cost.forwards, cost.gradients) == (2 * B, B)


def test_counts_do_not_depend_on_batches_nor_on_a_faster_copy():
    costs = {ig2.IG2(K, 0.1)(NETWORK, X, references=REFERENCES, batch_size=size).cost.gradients for size in (1, 5, "auto")}
    costs |= {ig2.IG2(K, 0.1)(ig2.wrap(NETWORK, prepare=False), X, references=REFERENCES).cost.gradients}
    assert costs == {B * R * (2 * K + 1)}


def test_paths_that_end_early_cost_less():
    stopped = ig2.IG2(200, 0.1, stop=ig2.paths.Converged())(NETWORK, X, references=REFERENCES)
    assert stopped.steps_taken.max() < 200 and stopped.cost.gradients < B * R * 401


def test_an_estimate_counts_nothing_and_the_text_names_gradients():
    assert ig2.IG2(K).estimate(NETWORK, X, REFERENCES).gradients is None
    assert f"{B} gradients" in str(ig2.Gradient()(NETWORK, X).cost)
    assert "gradient" not in str(ig2.IG2(K).estimate(NETWORK, X, REFERENCES))


def test_compare_shows_gradients_for_each_explicand():
    comparison = ig2.compare(
        NETWORK, X, [ig2.IG2(K, 0.1), ig2.Random()], [ig2.metrics.Insertion(thresholds=2)], references=REFERENCES
    )
    assert comparison.scores.row("IG2", "gradients").mean == R * (2 * K + 1)
    assert comparison.scores.row("Random", "gradients").mean == 0
    assert torch.isfinite(torch.tensor(comparison.scores.row("Random", "seconds").mean))
