"""A walk that failed is said to have failed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2.errors import InputError
from ig2.evaluation import Evaluation
from ig2.paths import Converged
from ig2.paths.base import Memory, Pairs
from ig2_bench.suites import xai_units
from networks import refuses, seeded, tanh_mlp, uniform

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
    assert (a.arrival == 1).all() and "x itself" in a.verdict and not a.stuck.any()


class Recurrent(nn.Module):
    """A bidirectional LSTM with max pooling: few time steps have a gradient at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(2, 8, bidirectional=True, batch_first=True), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0].amax(dim=1))


def recurrent() -> nn.Module:
    net = seeded(Recurrent, 0)
    with torch.no_grad():
        for weight in net.lstm.parameters():
            weight.mul_(15.0)
    return net


def saturated() -> nn.Module:
    """At ones the logistic units are at their end, and their gradient rounds to zero."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 1)).double().eval()
    with torch.no_grad():
        net[0].weight.fill_(1000.0), net[0].bias.fill_(-2000.0), net[2].weight.fill_(1.0)
    return net


class Plateau(nn.Module):
    """Falls from four to three, is flat to one, and falls from there."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        total = x.sum(dim=1, keepdim=True)
        return self.head((total - 3).relu() - (1 - total).relu())


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


ONES, ZEROS = torch.ones(1, 4).double(), torch.zeros(1, 4).double()
FAILED = {
    "a recurrent network with max pooling": (recurrent, normal(2, 60, 2), torch.zeros(3, 60, 2).double(), "on the way"),
    "units asleep at x": (asleep, ZEROS, ONES, "did not move"),
    "saturated": (saturated, ONES, ZEROS, "did not move"),
    "a plateau": (lambda: seeded(Plateau, 0), ONES, ZEROS, "got stuck"),
}


@pytest.mark.parametrize("case", FAILED)
def test_a_walk_that_failed_says_so_and_a_straight_line_finishes_it(case: str):
    make, x, references, words = FAILED[case]
    net = make()
    a = ig2.IG2(20)(net, x, references=references)
    assert words in a.verdict and 'fallback="straight"' in a.verdict and a.finished is None
    finished = ig2.IG2(20, fallback="straight")(net, x, references=references, curves=True)
    short = (a.arrival < 0.75) | a.stuck
    assert short.any() and torch.equal(finished.finished > 0, short)
    assert torch.allclose(finished.finished[short], 1 - a.arrival[short]) and (finished.arrival[short] == 1).all()
    assert torch.allclose(finished.baseline_outputs[short], finished.reference_outputs[short])
    assert float(finished.residual.abs().max()) < 1e-12 and "straight line finished" in finished.verdict
    assert torch.equal(finished.output_curve[:, :, :21], ig2.IG2(20)(net, x, references=references, curves=True).output_curve)
    assert words not in finished.verdict


@dataclass(frozen=True)
class Uncounted(ig2.paths.GradPath):
    """A path that measures a distance and does not count its moves."""

    def advance(self, pairs: Pairs, step: int, point: Tensor, at: Evaluation, memory: Memory) -> Tensor:
        counted = {**memory, "moves": torch.zeros(len(pairs)).long()}
        reached = super().advance(pairs, step, point, at, counted)
        memory["first"] = counted["first"]
        return reached


def test_a_path_that_counts_no_moves_is_not_taken_to_have_stood_still():
    counted, uncounted = (
        ig2.PathMethod(ig2.paths.Finished(path), REFERENCES, ig2.rules.blended)(tanh_mlp(), X)
        for path in (ig2.paths.GradPath(6), Uncounted(6))
    )
    assert (counted.finished == 0).all() and torch.equal(uncounted.finished, counted.finished)
    assert not uncounted.stuck.any() and (uncounted.steps_taken == 6).all()


def test_stuck_paths_of_references_without_weight_do_not_count():
    a = ig2.IG2(20)(seeded(Plateau, 0), ONES, references=torch.cat([ZEROS, ZEROS, ONES * 0.9]))
    assert a.stuck.tolist() == [[True, True, False]] and a.median("stuck").tolist() == [1.0]
    nearly = replace(a, arrival=torch.full_like(a.arrival, 0.995))  # stood still at the end of its way
    assert "stuck" in a.verdict and "stuck" not in nearly.verdict
    weighted = replace(a, weights=torch.tensor([[0.0, 0.0, 1.0]]).double())
    assert weighted.median("stuck").tolist() == [0.0] and "stuck" not in weighted.verdict


def test_a_path_that_stops_since_it_gets_no_nearer_is_not_stuck():
    walked, stopped = (
        ig2.IG2(60, step_size=0.05, stop=stop)(tanh_mlp(), X, references=REFERENCES, paths=True)
        for stop in (None, Converged(0.05, 2))
    )
    taken = stopped.steps_taken
    assert 0 < int(taken.min()) < int(taken.max()) <= 60 and not stopped.stuck.any()
    for pair in torch.cartesian_prod(torch.arange(3), torch.arange(2)).tolist():
        row, column = pair
        line, end = stopped.paths[row, column], int(taken[row, column])
        assert torch.allclose(line[: end + 1], walked.paths[row, column, : end + 1])
        assert torch.equal(stopped.gradcf[row, column], line[end])


def test_a_path_that_arrives_is_not_finished():
    plain, finished = (ig2.IG2(50, fallback=way)(tanh_mlp(), X, references=REFERENCES) for way in (None, "straight"))
    assert (finished.finished == 0).all() and "straight line finished" not in finished.verdict
    assert torch.equal(plain.values, finished.values) and torch.equal(plain.steps_taken, finished.steps_taken)


def test_a_finished_path_that_stops_early_goes_on_from_there_at_once():
    """A replica: GradPath until it stops, then a straight line from its end."""
    net, x, references = recurrent(), FAILED["a recurrent network with max pooling"][1], torch.zeros(1, 60, 2).double()
    method = ig2.IG2(20, stop=Converged(0.9, 3), fallback="straight", rule=ig2.rules.gauss(3))
    a, walk = method(net, x, 0, references), ig2.IG2(20, stop=Converged(0.9, 3), rule=ig2.rules.gauss(3))(net, x, 0, references)
    assert (walk.steps_taken == 3).all() and (a.steps_taken == 23).all()
    line = ig2.PathMethod(ig2.paths.Straight(20), references, ig2.rules.gauss(3))(net, walk.gradcf[:, 0], 0)
    assert torch.allclose(a.values, walk.values + line.values, atol=1e-12)


def test_units_of_or_are_explained_with_the_fallback():
    problem = xai_units.draw_or(8, torch.Generator().manual_seed(0))
    plain, finished = (ig2.IG2(50, fallback=way)(problem.model, problem.x, references=problem.reference)
                       for way in (None, "straight"))  # fmt: skip
    assert (plain.values == 0).all() and "did not move" in plain.verdict
    assert float((finished.values - problem.truth).abs().max()) < 0.1 * float(problem.truth.abs().max())


def test_the_same_representation_is_not_called_the_same_sample():
    asleep_at_both = ig2.IG2(5)(asleep(), ZEROS, references=ONES / 8)
    assert "asleep at both" in asleep_at_both.verdict
    blind = nn.Sequential(nn.Linear(4, 1, bias=False), nn.ReLU(), nn.Linear(1, 1)).double().eval()
    with torch.no_grad():
        blind[0].weight.fill_(-1.0)
    a = ig2.IG2(5)(ig2.wrap(lambda x: blind(x) + x.sum(dim=1, keepdim=True), blind[1]), ONES, references=ONES * 2)
    assert (a.values == 0).all() and "output is not" in a.verdict and "x itself" not in a.verdict


@pytest.mark.parametrize("call", [lambda: ig2.IG2(fallback="curved"), lambda: ig2.paths.Finished(ig2.paths.Straight()),
                                  lambda: ig2.paths.Finished(ig2.paths.GradPath(), arrival=0)])  # fmt: skip
def test_settings_of_the_fallback_are_checked(call: object):
    refuses(InputError, "got", call)


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
