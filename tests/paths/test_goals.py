"""Paths to a goal: another class wins, a label no longer applies, a number changes by so much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2 import paths, rules
from ig2.errors import InputError
from ig2.paths import Change, Rivals, SparseL1, ToGoal
from ig2.references import GradCF
from networks import data, multi_label, refuses, tanh_mlp

NET, X = tanh_mlp(classes=4), data(3, 6)
WEIGHT = data(4, 6, seed=3)


def linear() -> nn.Linear:
    net = nn.Linear(6, 4, bias=False).double()
    net.weight.data = WEIGHT.clone()
    return net.eval()


class Bowls(nn.Module):
    """f_c = −‖x − m_c‖² / 2 about a centre for each class."""

    def __init__(self, centres: Tensor) -> None:
        super().__init__()
        self.centres = nn.Parameter(centres)

    def forward(self, x: Tensor) -> Tensor:
        return -(x[:, None] - self.centres).square().sum(dim=2) / 2


NETWORKS = {"linear": linear(), "quadratic": Bowls(data(4, 6, seed=5)).eval()}


@pytest.mark.parametrize("net", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("margin", [None, 0.7])
def test_linear_margins_are_met_exactly_at_the_nearest_point(net: nn.Module, margin: float):
    found = ig2.FreeIG2(Rivals(3, margin))(net, X, per_reference=True)
    scores = net(X).detach()
    for i, x in enumerate(X):
        a = int(scores[i].argmax())
        others = [b for b in scores[i].argsort(descending=True).tolist() if b != a]
        for k, b in enumerate(others):
            rows = WEIGHT if isinstance(net, nn.Linear) else net.centres.detach()
            w = rows[a] - rows[b]
            lead = float(scores[i, a] - scores[i, b])
            asked = lead if margin is None else margin
            end = x - (lead + asked) * w / w.square().sum()
            torch.testing.assert_close(found.gradcf[i, k], end, rtol=0, atol=1e-12)
            reached = net(end[None])[0].detach()
            assert float(reached[b] - reached[a]) == pytest.approx(asked)
            assert found.arrival[i, k] == pytest.approx(1) and found.steps_taken[i, k] == 5
    change = scores.amax(dim=1) - found.baseline_outputs.mean(dim=1)
    torch.testing.assert_close(found.values.sum(dim=1), change, rtol=0, atol=1e-12)
    if isinstance(net, nn.Linear):  # every gradient is the same, and so is the rule's
        target = WEIGHT[scores.argmax(dim=1)]
        expected = target * (X - found.gradcf.mean(dim=1))
        torch.testing.assert_close(found.values, expected, rtol=0, atol=1e-12)


def replica(x: Tensor, weights: Tensor, steps: int, size: float | None, bounds: Any) -> Tensor:
    """The path to a margin of 0.2 from its formula, (vertices, features)."""
    point, vertices, first = x.clone(), [x], None
    for _ in range(steps):
        at = point.clone().requires_grad_()
        value = (NET(at[None])[0] * weights).sum() + 0.2
        (g,) = torch.autograd.grad(value, at)
        excess = float(value.detach())
        first = excess if first is None else first
        if excess <= 0.01 * first:
            break
        length = min(excess, 0.3 * first) / float(g.norm()) if size is None else size
        point = point - length * g / g.norm()
        point = point if bounds is None else point.clamp(*bounds)
        vertices.append(point)
    return torch.stack(vertices)


@pytest.mark.parametrize("bounds", [None, (-0.9, 1.0)])
@pytest.mark.parametrize("size", [None, 1.0])
def test_the_path_is_its_replica(bounds: Any, size: float | None):
    target = NET(X).argmax(dim=1)
    found = ig2.FreeIG2(Rivals(2, 0.2), 7, size, 0.3)(ig2.wrap(NET, bounds=bounds), X, paths=True)
    ends = set()
    for i, x in enumerate(X):
        scores = NET(x[None])[0].detach()
        others = [b for b in scores.argsort(descending=True).tolist() if b != int(target[i])]
        for k, b in enumerate(others[:2]):
            weights = torch.zeros(4).double()
            weights[target[i]], weights[b] = 1, -1
            expected = replica(x, weights, 7, size, bounds)
            taken = len(expected) - 1
            assert int(found.steps_taken[i, k]) == taken
            torch.testing.assert_close(found.paths[i, k, : taken + 1], expected, rtol=0, atol=1e-12)
            first, last = (NET(expected[[0, -1]]).detach() @ weights + 0.2).clamp(min=0).tolist()
            assert float(found.arrival[i, k]) == pytest.approx(1 - last / first, abs=1e-12)
            ends.add(taken)
    assert size is None or bounds or len(ends) > 1, "all paths take all steps: none ends early"


def test_values_sum_to_the_change_and_do_not_depend_on_the_batch():
    method = ig2.FreeIG2(Rivals(2), 6, 0.2)
    whole = method(NET, X, per_reference=True)
    assert float(whole.relative_residual.max()) < 1e-12
    split = method(NET, X, batch_size=1)
    torch.testing.assert_close(split.values, whole.values, rtol=0, atol=1e-12)
    for i in range(3):
        alone = method(NET, X[i : i + 1])
        torch.testing.assert_close(alone.values[0], whole.values[i], rtol=0, atol=1e-12)
        assert torch.equal(alone.steps_taken[0], whole.steps_taken[i])


@pytest.mark.parametrize("rule", [rules.secant, rules.gauss(3), rules.left], ids=str)
def test_any_rule_integrates_the_same_paths(rule: rules.Rule):
    found = ig2.FreeIG2(Rivals(2), rule=rule)(NET, X)
    ends = ig2.FreeIG2(Rivals(2))(NET, X).gradcf
    torch.testing.assert_close(found.gradcf, ends, rtol=0, atol=1e-12)
    if rule is rules.secant:
        assert float(found.relative_residual.max()) < 1e-9


def test_against_names_the_rivals_and_their_outputs_are_subtracted():
    found = ig2.FreeIG2(Rivals(9))(linear(), X, 0, against=[[2, 3]])
    ends = found.gradcf
    for k, b in enumerate((2, 3)):
        scores = linear()(ends[:, k]).detach()
        first = linear()(X).detach()
        lead = first[:, 0] - first[:, b]
        torch.testing.assert_close(scores[:, 0] - scores[:, b], lead - 2 * lead.abs())
    assert float(found.relative_residual.max()) < 1e-12


def test_several_rivals_can_win_together_on_average():
    found = ig2.FreeIG2(Rivals(2, 0.5, together=True))(linear(), X)
    assert found.gradcf.shape == (3, 1, 6)
    for i, x in enumerate(X):
        scores, end = linear()(x[None])[0].detach(), linear()(found.gradcf[i])[0].detach()
        a, *others = scores.argsort(descending=True).tolist()[:3]
        assert float(end[others].mean() - end[a]) == pytest.approx(0.5)


@pytest.mark.parametrize("by", [-1.5, 2.0])
def test_a_number_is_changed_by_as_much_as_asked(by: float):
    net = nn.Linear(6, 1).double().eval()
    found = ig2.FreeIG2(Change(by))(net, X)
    torch.testing.assert_close(net(found.gradcf[:, 0])[:, 0], net(X)[:, 0] + by)
    torch.testing.assert_close(found.total, torch.full((3,), -by).double())
    curved = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double().eval()
    found = ig2.FreeIG2(Change(by / 10))(curved, X)
    gained = (curved(found.gradcf[:, 0]) - curved(X))[:, 0] / (by / 10)
    assert float(gained.detach().min()) > 0.99 and float(found.arrival.min()) > 0.99


def test_labels_end_on_the_other_side_of_what_says_yes():
    net = multi_label()
    model = ig2.wrap(net, output="sigmoid")
    found = ig2.FreeIG2()(model, X, target=[0, 1, 2])
    ends = model(found.gradcf[:, 0]).detach()
    starts = model(X).detach()
    for i in range(3):
        assert (starts[i, i] > 0.5) != (ends[i, i] > 0.5)
    assert torch.equal(ig2.FreeIG2(Change())(model, X, target=[0, 1, 2]).values, found.values)
    single = nn.Linear(6, 1).double().eval()  # a logit
    torch.testing.assert_close(single(ig2.FreeIG2()(single, X).gradcf[:, 0]), -single(X))


def test_bounds_hold_and_what_cannot_move_takes_no_share_of_a_step():
    low, high = torch.full((6,), -1.0).double(), torch.full((6,), 1.0).double()
    low[1] = high[1] = 0.25
    x = X.clamp(-1, 1)
    x[:, 1] = 0.25
    ends = ig2.FreeIG2(Rivals(2, 50.0), 40)(ig2.wrap(linear(), bounds=(low, high)), x).gradcf
    assert bool((ends >= low).all() and (ends <= high).all()) and bool((ends[..., 1] == 0.25).all())
    low, high = (torch.where(low == high, low, 99 * bound) for bound in (low, high))
    found = ig2.FreeIG2(Rivals(2, 0.1))(ig2.wrap(linear(), bounds=(low, high)), x)
    assert float(found.arrival.min()) == pytest.approx(1)
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[:, 4] = True
    found = ig2.FreeIG2(Rivals(2, 0.1))(linear(), ig2.Fixed(X, mask))
    assert torch.equal(found.gradcf[..., 4], X[:, 4, None].expand(-1, 2))
    assert float(found.arrival.min()) == pytest.approx(1)


def test_the_share_of_the_margin_is_reported_where_no_rival_can_win():
    # inside these bounds f_0 − f_1 falls from 2 to 1 at most
    model = ig2.wrap(lambda x: torch.cat([x + 1, 0 * x], dim=1), bounds=(0, 1))
    found = ig2.FreeIG2(Rivals(1))(model, torch.ones(1, 1).double())
    assert float(found.arrival) == pytest.approx(0.25) and int(found.gradcf) == 0
    flat = ig2.FreeIG2()(lambda x: 0 * x[:, :3] + torch.tensor([2.0, 1.0, 0.0]), torch.rand(2, 4))
    assert bool((flat.arrival == 0).all() and (flat.steps_taken == 0).all() and flat.stuck.all())


def test_steps_of_other_norms_arrive_too():
    found = ig2.FreeIG2(Rivals(2, 0.5), norm=SparseL1(60))(linear(), X)
    assert float(found.arrival.min()) == pytest.approx(1)
    assert ((found.gradcf != X[:, None]).sum(dim=2) == 3).all()


def test_its_ends_are_references_of_any_method_without_data():
    ends = ig2.FreeIG2(Rivals(2))(NET, X).gradcf
    path = ToGoal(Rivals(2))
    straight = ig2.ExpectedIG(4)(NET, X, references=GradCF(path=path), paths=True)
    torch.testing.assert_close(straight.paths[:, :, -1], ends, rtol=0, atol=1e-12)
    nearest = ig2.BIG(attacks=(path,))(NET, X)
    assert float(nearest.relative_residual.max()) < 0.01
    refuses(InputError, "uses no references", lambda: GradCF(X, path))
    refuses(InputError, "needs references", lambda: GradCF())


def test_the_same_in_a_wrapper_and_its_cost_is_estimated():
    method = ig2.FreeIG2(Rivals(2))
    smooth = ig2.SmoothGrad(method, 2, 1e-10)(NET, X)
    torch.testing.assert_close(smooth.values, method(NET, X).values, rtol=0, atol=1e-6)
    found = method(NET, X)
    assert found.cost.gradients == 2 * int((found.steps_taken + 1).sum())  # of two functions
    assert method.estimate(NET, X).seconds > 0
    assert not method.needs_references and not method.takes_references


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("classes", lambda: Rivals(0)),
        ("margin", lambda: Rivals(margin=-1)),
        ("by", lambda: Change(0)),
        ("goal", lambda: ToGoal(3)),
        ("step_size", lambda: ToGoal(step_size=0)),
        ("norm", lambda: ToGoal(norm=2)),
        ("share", lambda: ToGoal(share=0)),
        ("steps", lambda: ToGoal(steps=0)),
        ("single output", lambda: ig2.FreeIG2(Rivals())(nn.Linear(6, 1).double(), X)),
        ("Change", lambda: ig2.FreeIG2()(NET, X, target=lambda result: result.sum(dim=1))),
        ("distance", lambda: paths.Finished(ToGoal())),
    ],
)
def test_mistakes_are_named(word: str, call: Any):
    refuses(InputError, word, call)


def test_it_is_of_use_in_settings(tmp_path: Any):
    found = ig2.FreeIG2(Rivals(2, 0.5))(NET, X)
    path = found.settings["parts"]["path"]
    assert path["goal"] == {"type": "Rivals", "classes": 2, "margin": 0.5, "together": False}
    assert "goals" not in path
    found.save(tmp_path / "a.safetensors")
    assert np.allclose(ig2.Attribution.load(tmp_path / "a.safetensors").arrival, found.arrival)


@pytest.mark.parametrize("count", [1, 3, 4, 99])
def test_rivals_are_the_best_other_classes_and_no_more_than_there_are(count: int):
    x = data(5, 6, seed=3)
    found = ig2.FreeIG2(Rivals(count), 4)(NET, x)
    scores = NET(x).detach()
    rivals = min(count, scores.shape[1] - 1)
    assert found.gradcf.shape[:2] == (5, rivals)
    for row, (ends, explained) in enumerate(zip(found.gradcf, found.target.tolist(), strict=True)):
        others = [c for c in scores[row].argsort(descending=True).tolist() if c != explained]
        before = scores[row, others[:rivals]] - scores[row, explained]
        after = NET(ends).detach()
        gained = after.gather(1, torch.tensor(others[:rivals])[:, None])[:, 0] - after[:, explained]
        assert (gained > before).all()
