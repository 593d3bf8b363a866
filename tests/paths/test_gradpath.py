"""How long GradPath's steps are, and when a pair has arrived."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2 import InputError, paths
from ig2._engine import integrate
from ig2._engine.session import Session
from ig2.paths import Converged, Decaying, GradPath, LineSearch, Norm, Schedule, SparseL1, Steady, Stop, cosine, manhattan
from networks import data, relu_mlp, tanh_mlp

X, REFERENCES = data(3, 6), data(4, 6, seed=1)
RULES = [ig2.rules.left, ig2.rules.shared, ig2.rules.gauss(2), ig2.rules.blended]


def lengths(found: ig2.Attribution) -> Tensor:
    """How long each step was, (B, R, k)."""
    paths = found.paths
    assert isinstance(paths, Tensor)
    return (paths[:, :, 1:] - paths[:, :, :-1]).norm(dim=-1)


def test_steady_steps_are_all_as_long_as_asked():
    found = ig2.IG2(12, 0.05)(tanh_mlp(), X, references=REFERENCES, paths=True)
    assert torch.allclose(lengths(found), torch.tensor(0.05, dtype=torch.float64))
    assert (found.steps_taken == 12).all()


def test_features_that_cannot_move_take_no_share_of_a_step():
    low, high = torch.full((6,), -9.0, dtype=torch.float64), torch.full((6,), 9.0, dtype=torch.float64)
    x, references = X[:1].clone(), REFERENCES.clone()
    low[:4] = high[:4] = x[0, :4]
    references[:, :4] = x[0, :4]
    found = ig2.IG2(12, 0.05)(ig2.wrap(tanh_mlp(), bounds=(low, high)), x, references=references, paths=True)
    assert torch.allclose(lengths(found), torch.tensor(0.05, dtype=torch.float64))
    assert (found.values[:, :4] == 0).all() and (found.values[:, 4:] != 0).all()


def test_decaying_steps_follow_half_a_cosine_down_to_the_last():
    found = ig2.IG2(9, 0.05, schedule=Decaying(0.2))(tanh_mlp(), X, references=REFERENCES, paths=True)
    expected = [0.05 * (0.2 + 0.8 * (1 + math.cos(math.pi * t / 8)) / 2) for t in range(9)]
    assert torch.allclose(lengths(found), torch.tensor(expected, dtype=torch.float64))
    single = ig2.IG2(1, 0.05, schedule=Decaying())(tanh_mlp(), X, references=REFERENCES, paths=True)
    assert torch.allclose(lengths(single), torch.tensor(0.05, dtype=torch.float64))


def searched(step: float, steps: int = 30, growth: float = 1.5) -> tuple[list[float], list[float]]:
    """A slow replica on the quadratic bowl f̃ = x, reference 0, from 1: lengths and distances."""
    point, length, sizes, distances = 1.0, step, [], [1.0]
    for _ in range(steps):
        slope = 2 * point
        sizes.append(length)
        point -= length * math.copysign(1.0, slope)
        distances.append(point**2)
        kept = (distances[-2] - distances[-1]) / (length * abs(slope))
        length *= 0.5 if kept < 0.25 else growth if kept > 0.75 else 1.0
    return sizes, distances


@pytest.mark.parametrize("step", [0.01, 0.3, 3.7])
def test_a_line_search_lengthens_good_steps_and_halves_bad_ones(step: float):
    net = nn.Linear(1, 1, bias=False).double().eval()
    x, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    found = ig2.IG2(30, step, schedule=LineSearch())(ig2.wrap(net), x, references=zero, paths=True, curves=True)
    sizes, distances = searched(step)
    assert torch.allclose(lengths(found)[0, 0], torch.tensor(sizes, dtype=torch.float64))
    assert torch.allclose(found.distance_curve[0, 0], torch.tensor(distances, dtype=torch.float64))
    assert distances[-1] < 1e-4 or step == 0.01


def test_a_line_search_arrives_where_steady_steps_go_to_and_fro():
    net, options = tanh_mlp(), {"references": REFERENCES, "curves": True}
    steady, search = (ig2.IG2(60, 0.3, schedule=way)(net, X, **options) for way in (Steady(), LineSearch()))
    assert (search.distance_curve[..., -1] < steady.distance_curve[..., -1]).double().mean() > 0.9


def stopped_by_hand(net: nn.Module, x: Tensor, reference: Tensor, steps: int, size: float, rule: Converged) -> int:
    """A slow replica of the stop, from the distances of a walk that takes all its steps."""
    curve = ig2.IG2(steps, size)(net, x[None], references=reference[None], curves=True).distance_curve[0, 0].tolist()
    for step in range(rule.window, steps, rule.window):
        before = min(curve[: step - rule.window + 1])
        if before - min(curve[: step + 1]) <= rule.tolerance * curve[0]:
            return step
    return steps


@pytest.mark.parametrize("window", [1, 4])
def test_each_pair_stops_when_it_gets_no_nearer(window: int):
    net, rule = relu_mlp(), Converged(0.05, window)
    found = ig2.IG2(60, 0.1, stop=rule)(net, X, references=REFERENCES)
    expected = [[stopped_by_hand(net, x, r, 60, 0.1, rule) for r in REFERENCES] for x in X]
    assert found.steps_taken.tolist() == expected
    assert len({step for row in expected for step in row}) > 2, "all pairs stop together: the case shows nothing"


@pytest.mark.parametrize("rule", [*RULES, ig2.rules.trapezoid], ids=str)
def test_a_stopped_pair_is_what_a_walk_of_so_many_steps_gives(rule: ig2.rules.Rule):
    net = relu_mlp()
    found = ig2.IG2(60, 0.1, rule, stop=Converged(0.05, 4))(net, X, references=REFERENCES, per_reference=True)
    for i, j in ((0, 0), (1, 2), (2, 3)):
        steps = int(found.steps_taken[i, j])
        alone = ig2.IG2(steps, 0.1, rule)(net, X[i : i + 1], references=REFERENCES[j : j + 1], target=int(found.target[i]))
        assert torch.allclose(found.per_reference[i, j], alone.values[0], atol=1e-12)
        assert torch.allclose(found.gradcf[i, j], alone.gradcf[0, 0], atol=1e-12)
        assert torch.allclose(found.baseline_outputs[i, j], alone.baseline_output[0], atol=1e-12)


def test_stopping_does_not_depend_on_how_pairs_are_batched():
    method = ig2.IG2(60, 0.1, stop=Converged(0.05, 4), schedule=LineSearch())
    one, two = (method(relu_mlp(), X, references=REFERENCES, batch_size=size) for size in (1, 12))
    assert torch.equal(one.steps_taken, two.steps_taken)
    assert torch.allclose(one.values, two.values, atol=1e-12)


def test_what_is_kept_along_a_path_stays_at_its_end_once_it_has_stopped():
    found = ig2.IG2(60, 0.1, stop=Converged(0.05, 4))(relu_mlp(), X, references=REFERENCES, curves=True, paths=True)
    assert found.output_curve.shape == found.distance_curve.shape == (3, 4, 61) and found.paths.shape == (3, 4, 61, 6)
    for i in range(3):
        for j in range(4):
            last = int(found.steps_taken[i, j])
            for record in (found.output_curve, found.distance_curve, found.paths):
                assert torch.equal(record[i, j, last:], record[i, j, last].expand_as(record[i, j, last:]))
            assert not torch.equal(found.paths[i, j, last - 1], found.paths[i, j, last])
            assert torch.equal(found.paths[i, j, last], found.gradcf[i, j])
    assert torch.allclose(found.output_curve[..., -1], found.baseline_outputs)


def test_no_pair_takes_more_than_window_by_tolerance_steps_and_none_where_it_has_arrived():
    found = ig2.IG2(500, 0.5, stop=Converged(0.1, 3))(relu_mlp(), X, references=REFERENCES)
    assert int(found.steps_taken.max()) <= 30
    found = ig2.IG2(20, 0.1, stop=Converged())(tanh_mlp(), X, references=X[:1])
    assert int(found.steps_taken[0, 0]) == 0 and torch.equal(found.gradcf[0, 0], X[0])


def test_progress_counts_every_step_once_though_pairs_stop():
    told: list[tuple[int, int]] = []
    method = ig2.IG2(60, 0.1, stop=Converged(0.05, 4))
    method(relu_mlp(), X, references=REFERENCES, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (720, 720) and [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Decaying(0), r"last must be in \(0, 1\], got 0"),
        (lambda: LineSearch(0.5), "growth must be at least 1, got 0.5"),
        (lambda: Converged(0), "tolerance must be between 0 and 1, got 0"),
        (lambda: Converged(0.1, 0), "window must be a positive integer, got 0"),
        (lambda: GradPath(schedule="fast"), "schedule must be a Schedule"),
        (lambda: GradPath(stop=0.01), "stop must be a Stop"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: object, words: str):
    with pytest.raises(ig2.InputError, match=words):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_batch_that_shrinks_by_halves_finds_the_same(rule: ig2.rules.Rule, monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []
    evaluate = Session.evaluate

    def watched(self: Session, points: Tensor, *args: Any, **options: Any) -> Any:
        sizes.append(len(points))
        return evaluate(self, points, *args, **options)

    monkeypatch.setattr(Session, "evaluate", watched)
    method = ig2.IG2(60, 0.1, rule, stop=Converged(0.05, 4))
    packed = method(relu_mlp(), X, references=REFERENCES, curves=True, batch_size=12)
    assert set(sizes) - {1, 3, 6, 12}, "all pairs stop by halves: the case shows nothing"
    sizes.clear()
    monkeypatch.setattr(integrate, "FEW_SIZES", {"cpu"})
    halved = method(relu_mlp(), X, references=REFERENCES, curves=True, batch_size=12)
    assert set(sizes) <= {1, 2, 3, 6, 12} and torch.equal(halved.steps_taken, packed.steps_taken)
    assert torch.allclose(halved.values, packed.values, atol=1e-12)
    assert torch.allclose(halved.output_curve, packed.output_curve, atol=1e-12)


class _Arrived(GradPath):
    """Some pairs are there before the first step: the first so many, or all."""

    def keep_going(self, step: int, at: Any, memory: Any) -> Tensor:
        return torch.arange(len(at.output)) >= (self.steps if step == 0 else 0)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_path_that_ends_where_it_begins_attributes_nothing(rule: ig2.rules.Rule):
    every, some = _Arrived(20), _Arrived(3)
    none = ig2.PathMethod(every, rule=rule)(relu_mlp(), X, references=REFERENCES)
    assert (none.values == 0).all() and (none.steps_taken == 0).all() and (none.residual.abs() < 1e-15).all()
    found = ig2.PathMethod(some, rule=rule)(relu_mlp(), X, references=REFERENCES, per_reference=True)
    own = found.per_reference.flatten(0, 1)
    assert (own[:3] == 0).all() and (own[3:].abs().sum(dim=1) > 0).all()


def test_a_gradient_too_small_for_its_step_stays_where_it_is():
    # found by the fuzzer: 1000 / 4e-38 is infinite in float32, and times the zero gradient of the second feature NaN
    x, reference = torch.zeros(1, 2), torch.tensor([[2000.0, 0.0]])
    found = ig2.IG2(2, 1000.0)(lambda p: p[:, :1] * 3e-21, x, references=reference)
    assert (found.values == 0).all()


def test_a_pair_that_goes_to_and_fro_is_as_near_as_it_ever_was():
    """Guards against a stop by the last distance instead of the nearest."""
    # steps of 0.7 from 1: 1, 0.3, −0.4, 0.3, −0.4, with the squares for distances. The nearest after two steps is 0.91 nearer
    # than the start, the last one 0.84.
    model, one = ig2.wrap(lambda x: x.sum(dim=1), representation="output"), torch.ones(1, 1).double()
    found = ig2.IG2(10, 0.7, stop=Converged(0.88, 2))(model, one, references=0 * one, curves=True)
    torch.testing.assert_close(found.distance_curve[0, 0, :5], torch.tensor([1, 0.09, 0.16, 0.09, 0.16]).double())
    assert found.steps_taken.tolist() == [[4]]


class LInf(Norm):
    def step(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient.sign(), gradient.flatten(1).any(dim=1).to(gradient.dtype)

    def length(self, displacement: Tensor) -> Tensor:
        return displacement.flatten(1).abs().amax(dim=1)


class Halving(Schedule):
    """Halves a step unless the whole of what the gradient predicted came true."""

    needs_prediction = True

    def length(self, first: Tensor, step: int, steps: int, at: Any, memory: dict[str, Tensor]) -> Tensor:
        if step:
            exact = (memory["distance"] - at.distance - memory["predicted"]).abs() < 1e-12
            first = torch.where(exact, memory["length"], memory["length"] / 2)
        memory["distance"], memory["length"] = at.distance, first
        return first


class Near(Stop):
    def keep_going(self, step: int, at: Any, memory: dict[str, Tensor]) -> Tensor:
        return at.distance > 0.5


def test_norms_schedules_and_stops_of_ones_own():
    # |x₁ + x₂| falls by exactly what its gradient (1, 1) predicts, so no step is halved: lengths are the farther feature's
    model, x = ig2.wrap(lambda x: x.sum(dim=1), representation="output"), torch.tensor([[2.0, 1.0]]).double()
    path = GradPath(8, None, manhattan, LInf(), Halving(), Near())
    found = ig2.PathMethod(path)(model, x, references=0, paths=True)
    assert found.steps_taken.tolist() == [[5]]  # by 0.25 in each feature: 3, 2.5, … 0.5
    torch.testing.assert_close(found.paths[0, 0, :6], x - torch.arange(6.0)[:, None] / 4, check_dtype=False)
    # of a square the gradient predicts more than comes true
    found = ig2.IG2(4, 0.25, norm=LInf(), schedule=Halving())(model, x, references=0, paths=True)
    torch.testing.assert_close(found.paths[0, 0, :, 0], 2 - torch.tensor([0, 0.25, 0.375, 0.4375, 0.46875]).double())


def test_a_sparse_step_of_no_length_is_no_step():
    # where the reference is the explicand, by default every step has length zero; the cosine still has a gradient
    found = ig2.IG2(3, distance=cosine, norm=SparseL1(0))(tanh_mlp(), X[:1], references=X[:1])
    assert found.steps_taken.tolist() == [[0]]


# -- paths of the user's own -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line(paths.KnownPath):
    """A straight line with a mistake."""

    mistake: str = ""
    steps: int = 4

    def vertices(self, pairs, numbers):
        share = torch.tensor([number / self.steps for number in numbers], dtype=pairs.explicand.dtype)[:, None, None]
        share = 1 - share if self.mistake == "wrong end" else share
        line = torch.lerp(pairs.explicand, pairs.reference, share)
        return line[:, :1] if self.mistake == "one pair" else line[0] if self.mistake == "one vertex" else line


@pytest.mark.parametrize(
    ("mistake", "keyword"), [("wrong end", "from_explicand"), ("one pair", "vertices"), ("one vertex", "vertices")]
)
def test_a_path_with_a_wrong_end_or_shape_is_refused_in_a_sentence(mistake, keyword):
    net, x = tanh_mlp(5), data(3, 5)
    assert ig2.PathMethod(Line())(net, x, 0, data(2, 5) + 1).values.shape == x.shape
    with pytest.raises(InputError, match=keyword):
        ig2.PathMethod(Line(mistake))(net, x, 0, data(2, 5) + 1)


ATTACKS = {
    "descent": paths.Descent(1, 0.5),
    "ascent": paths.TowardClasses(1, 0.5, paths.L2(), 1),
}


@pytest.mark.parametrize("path", ATTACKS.values(), ids=ATTACKS)
def test_no_step_of_an_attack_is_spent_on_features_that_cannot_move(path: paths.Path):
    low = torch.tensor([0.1] * 4 + [-9.0] * 2, dtype=torch.float64)
    high = torch.tensor([0.1] * 4 + [9.0] * 2, dtype=torch.float64)
    x = X.clone()
    x[:, :4] = 0.1
    found = ig2.PathMethod(path)(ig2.wrap(tanh_mlp(), bounds=(low, high)), x, paths=True)
    assert torch.allclose(lengths(found), torch.tensor(0.5, dtype=torch.float64))


@pytest.mark.parametrize("norm", [paths.L2(), SparseL1(0), SparseL1(50), SparseL1(95), paths.Sign()], ids=repr)
def test_a_unit_step_has_length_one_in_its_norm_and_none_without_a_gradient(norm: Norm):
    gradients = data(5, 2, 10, seed=1)
    gradients[1, :, 3:] = 0  # fewer than half are left
    gradients[2] = 0
    gradients[2, 0, 0] = -1e-3
    gradients[3] = 0
    direction, scale = norm.step(gradients)
    lengths = norm.length(norm.direction(gradients))
    expected = torch.tensor([1.0, 1, 1, 0, 1], dtype=torch.float64)
    torch.testing.assert_close(lengths, expected)
    assert (scale > 0).tolist() == [True, True, True, False, True]
    assert (direction * gradients >= 0).all()
    assert (norm.direction(gradients) == 0)[gradients == 0].all()
