"""A walk that failed is said to have failed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2.paths import Converged
from networks import seeded, tanh_mlp, uniform

X, REFERENCES = uniform(3, 6), uniform(2, 6, seed=1)


class Largest(nn.Module):
    """Sees the largest feature alone: a path lowers one after the other, and has 64 to lower."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.amax(dim=1, keepdim=True))


def asleep() -> nn.Module:
    """Units that sleep at zero and wake on the way to one."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).double().eval()
    with torch.no_grad():
        net[0].weight.fill_(1.0), net[0].bias.fill_(-1.0), net[2].weight.fill_(1.0)
    return net


def test_a_path_that_arrives_says_so():
    a = ig2.IG2(50)(tanh_mlp(), X, references=REFERENCES)
    assert (a.arrival > 0.9).all() and "distance" not in a.verdict
    assert torch.allclose(a.reference_outputs[0], tanh_mlp()(REFERENCES)[:, a.target[0]])


def test_arrival_is_what_the_distance_curve_shows():
    for stop in (None, Converged(0.2, 2)):
        a = ig2.IG2(12, stop=stop)(tanh_mlp(), X, references=REFERENCES, curves=True)
        assert torch.allclose(a.arrival, 1 - a.distance_curve[:, :, -1] / a.distance_curve[:, :, 0])


def test_a_path_that_is_stuck_has_not_arrived():
    x, references = 1 - 0.01 * uniform(2, 64), torch.zeros(1, 64).double()
    a = ig2.IG2()(seeded(Largest, 0), x, references=references)
    assert (a.arrival < 0.3).all() and float(a.relative_residual.max()) < 1e-6
    assert "sums to the change" in a.verdict and "distance to the reference left" in a.verdict and "ExpectedIG" in a.verdict
    assert "arrival" in repr(a)


def test_a_path_that_overshoots_is_not_told_to_take_longer_steps():
    a = ig2.IG2(3, step_size=20.0)(tanh_mlp(), X, references=REFERENCES)
    assert (a.arrival < 0).all() and "beyond the reference" in a.verdict and "shorter steps" in a.verdict


def test_a_path_that_does_not_start_has_taken_no_step():
    a = ig2.IG2(5)(asleep(), torch.zeros(1, 4).double(), references=torch.ones(1, 4).double())
    assert (a.values == 0).all() and a.steps_taken.tolist() == [[0]] and a.arrival.tolist() == [[0.0]]
    assert "did not move" in a.verdict and "x itself" not in a.verdict


@pytest.mark.parametrize("norm", [ig2.paths.L2(), ig2.paths.SparseL1()], ids=repr)
def test_steps_that_moved_are_counted(norm: object):
    taken = ig2.IG2(7, norm=norm)(tanh_mlp(), X, references=REFERENCES).steps_taken
    assert (taken == 7).all()


def test_references_that_are_x_itself_leave_nothing_to_cover():
    a = ig2.IG2(5)(tanh_mlp(), X, references=X[:, None])
    assert (a.arrival == 1).all() and "x itself" in a.verdict


def test_how_many_explicands_fell_short_is_said():
    a = ig2.IG2(50)(tanh_mlp(), X, references=REFERENCES)
    short = replace(a, arrival=torch.tensor([[0.9, 0.95], [0.1, 0.2], [0.99, 0.8]]))
    assert "for 1 of 3 explicands" in short.verdict and "90%" in short.verdict


def test_a_complete_rule_is_not_told_to_become_complete():
    a = ig2.IG2(5)(tanh_mlp(), X, references=REFERENCES)
    off = replace(a, output=a.output * 3 + 1)
    assert "NOT" in off.verdict and "blended" not in off.verdict and "state" in off.verdict
    published = ig2.IG2(5, rule=ig2.rules.left)(tanh_mlp(), X, references=REFERENCES)
    assert "blended" in replace(published, output=a.output * 3 + 1).verdict


def test_arrival_is_saved_sliced_and_joined(tmp_path: object):
    a = ig2.IG2(5)(tanh_mlp(), X, references=REFERENCES)
    a.save(tmp_path / "a.safetensors")
    again = ig2.Attribution.join([a[:1], a[1:]])
    for one in (ig2.Attribution.load(tmp_path / "a.safetensors"), again):
        assert torch.equal(one.arrival, a.arrival) and torch.equal(one.reference_outputs, a.reference_outputs)
