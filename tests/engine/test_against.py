"""Why A rather than B: the output explained is the difference of two classes, or of one and the mean of several."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2 import metrics
from ig2.errors import InputError
from ig2.references import NearestLabels, OfClasses
from networks import data, multi_label, randn, refuses, relu_cnn, small_mlp, tanh_mlp

NET, X, POOL = relu_cnn(), data(3, 2, 8, 8), data(12, 2, 8, 8, seed=1)
LABELS = torch.arange(12) % 4
METHODS = {
    "gradient": ig2.Gradient(),
    "input times gradient": ig2.InputXGradient(),
    "integrated gradients": ig2.IntegratedGradients(7),
    "expected": ig2.ExpectedIG(5),
    "guided": ig2.GuidedIG(20),
    "blur": ig2.BlurIG(9, sigma=2.0),
    "ig2": ig2.IG2(steps=9),
    "ig2, published": ig2.IG2(steps=9, rule=ig2.rules.left),
    "ig2, secants": ig2.IG2(steps=3, rule=ig2.rules.secant),
    "gradcfe": ig2.GradCFE(steps=9),
    "smooth": ig2.SmoothGrad(ig2.Gradient(), samples=4),
    "smooth ig2": ig2.SmoothGrad(ig2.IG2(steps=5), samples=3),
    "xrai": ig2.XRAI(ig2.IntegratedGradients(5), scales=(100,)),
    "deepshap": ig2.DeepSHAP(),
    "kernelshap": ig2.KernelSHAP(ig2.Grid(2, 3)),
    "random": ig2.Random(),
}


class Difference(nn.Module):
    """A network whose only output is that of one class less the mean of that of others."""

    def __init__(self, net: nn.Module, target: int, against: list[int]) -> None:
        super().__init__()
        self.net, self.target, self.against = net, target, against

    def forward(self, x: Tensor) -> Tensor:
        scores = self.net(x)
        return scores[:, [self.target]] - scores[:, self.against].mean(dim=1, keepdim=True)


def explicit(target: int, against: list[int]) -> ig2.model.Model:
    return ig2.wrap(Difference(NET, target, against), representation="net.8:input")


@pytest.mark.parametrize(("target", "against"), [(1, 3), (2, [[0, 3]])])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_method_explains_the_difference_itself(method: ig2.methods.Method, target: int, against: object):
    found = method(NET, X, target, POOL[:2], against=against)
    others = torch.as_tensor(against).reshape(-1).tolist()
    wanted = method(explicit(target, others), X, references=POOL[:2])
    for name in ("values", "output", "baseline_outputs", "reference_outputs", "residual"):
        one, other = getattr(found, name), getattr(wanted, name)
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(found.output, method(NET, X, target, POOL[:2]).output)


def test_a_linear_network_has_a_closed_form():
    net, x, baseline = nn.Linear(5, 4).double(), randn(3, 5), randn(1, 5, seed=1)
    weight = net.weight.detach()
    found = ig2.IntegratedGradients()(net, x, 2, baseline, against=[0, 1, 3])
    assert found.against.tolist() == [0, 1, 3]
    torch.testing.assert_close(found.values, (weight[2] - weight[[0, 1, 3]]) * (x - baseline), rtol=1e-12, atol=1e-12)
    # less the mean of several, which is the mean of what each gives
    several = ig2.IntegratedGradients()(net, x, 2, baseline, against=[[0, 1]])
    each = [ig2.IntegratedGradients()(net, x, 2, baseline, against=label).values for label in (0, 1)]
    torch.testing.assert_close(several.values, (each[0] + each[1]) / 2, rtol=1e-12, atol=1e-12)
    assert several.against.tolist() == [[0, 1]] * 3
    rows = ig2.IntegratedGradients()(net, x, 2, baseline, against=[[0, 1], [1, 3], [3, 3]]).values
    torch.testing.assert_close(rows[2], (weight[2] - weight[3]) * (x[2] - baseline[0]), rtol=1e-12, atol=1e-12)


def test_what_is_a_probability_is_contrasted_as_one():
    net, x = small_mlp(), data(3, 4)
    likely = net(x).softmax(dim=1)
    found = ig2.IntegratedGradients()(ig2.wrap(net, output="probability"), x, 0, against=1)
    torch.testing.assert_close(found.output, (likely[:, 0] - likely[:, 1]).detach())
    # of logarithms the normalisation cancels
    logs, logits = (ig2.Gradient()(ig2.wrap(net, output=name), x, 0, against=1) for name in ("log-probability", "logit"))
    torch.testing.assert_close(logs.values, logits.values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", [ig2.Gradient(), ig2.IG2(steps=4), ig2.DeepSHAP()])
def test_next_is_the_runner_up_of_each_row_in_any_batch(method: ig2.methods.Method):
    net, x, references = tanh_mlp(classes=5), data(9, 6), data(2, 6, seed=1)
    order = net(x).argsort(dim=1, descending=True)
    assert len(set(order[:, 1].tolist())) > 1
    found = method(net, x, references=references, against="next")
    assert torch.equal(found.target, order[:, 0]) and torch.equal(found.against, order[:, 1])
    one_by_one = [method(net, x[[row]], references=references, against="next", batch_size=1) for row in range(len(x))]
    torch.testing.assert_close(found.values, torch.cat([each.values for each in one_by_one]), rtol=1e-12, atol=1e-12)
    # of a class that is not predicted, the runner-up is the one that is
    assert torch.equal(method(net, x, order[:, 2], references, against="next").against, order[:, 0])


def test_next_of_scores_that_are_minus_infinity_is_another_class():
    masked = lambda x: torch.stack([x.sum(dim=1), *[x.sum(dim=1) - torch.inf] * 2], dim=1)  # noqa: E731
    refuses(ig2.errors.ModelError, "output of explicand 0 is inf", lambda: ig2.Random()(masked, data(2, 4), against="next"))


@pytest.mark.parametrize(
    ("target", "against", "keyword"),
    [
        (1, 1, "explicand 0 is explained as class 1"),
        ([0, 1, 2], 2, "explicand 2 is explained as class 2"),
        (1, [[0, 1]], "names that class too"),
        (1, 4, "the model has 4"),
        (1, -1, "not a class"),
        (1, 0.5, "integers"),
        (1, [True, False, True], "integers"),
        (1, "last", "'next'"),
        (1, [], "integers"),
        (1, [0, 2], r"\[\[3, 5\]\]"),
        (1, [[0], [2]], "one for each of 3"),
        (1, torch.zeros(3, 1, 1, dtype=torch.long), "one for each of 3"),
    ],
)
def test_what_cannot_be_explained_against_is_refused(target: object, against: object, keyword: str):
    refuses(InputError, keyword, lambda: ig2.Gradient()(NET, X, target, against=against))
    refuses(InputError, "class", lambda: ig2.ExpectedIG()(NET, X, target, OfClasses(POOL, LABELS, against)))


def test_a_single_output_has_no_other_class():
    refuses(InputError, "single output", lambda: ig2.Gradient()(lambda x: x.sum(dim=1), data(2, 4), against=0))
    refuses(InputError, "single output", lambda: ig2.Gradient()(lambda x: x.sum(dim=1), data(2, 4), against="next"))


def test_the_path_of_ig2_does_not_depend_on_it():
    model = ig2.wrap(NET, representation="output")
    alone, against = (ig2.IG2(steps=6)(model, X, 0, POOL[:2], paths=True, against=label) for label in (None, 2))
    assert torch.equal(alone.paths, against.paths) and not torch.allclose(alone.values, against.values)


def test_an_attribution_against_a_class_is_kept_whole(tmp_path):
    found = ig2.IG2(steps=5)(NET, X, [0, 1, 2], POOL[:2], against=[3, 3, 1])
    assert "class 0 rather than class 3; class 1 rather than class 3; class 2 rather than class 1" in repr(found)
    assert found.explained[2] == "class 2 rather than class 1" and found[1:].against.tolist() == [3, 1]
    assert found.settings["against"] == [3, 3, 1]
    found.save(tmp_path / "a.safetensors")
    loaded = ig2.Attribution.load(tmp_path / "a.safetensors")
    assert torch.equal(loaded.against, found.against) and loaded.settings["against"] == [3, 3, 1]
    joined = ig2.Attribution.join([found[:1], found[1:]])
    assert torch.equal(joined.against, found.against)
    alone = ig2.IG2(steps=5)(NET, X, 0, POOL[:2])
    assert alone.against is None and alone.explained == ["class 0"] * 3 and "rather" not in repr(alone)
    refuses(InputError, "some have against", lambda: ig2.Attribution.join([found, alone]))
    several = ig2.Gradient()(NET, X, 0, against=[[1, 2]])
    assert "explains  class 0 rather than class 1 or class 2\n" in repr(several)


@pytest.mark.parametrize("against", [[2, 3, 2], [[2, 3]], [[2, 3], [3, 3], [2, 2]], "next"])
def test_bad_rows_take_their_classes_with_them(against: object):
    x = X.clone()
    x[1, 0, 0, 0] = torch.nan
    with pytest.warns(ig2.errors.IG2Warning, match="skipped"):
        found = ig2.Gradient()(NET, x, [0, 1, 1], against=against, skip_bad=True)
    whole = ig2.Gradient()(NET, X, [0, 1, 1], against=against)
    assert torch.equal(found.against, whole.against[[0, 2]])
    torch.testing.assert_close(found.values, whole.values[[0, 2]], rtol=1e-12, atol=1e-12)


# -- references ----------------------------------------------------------------------------------------------------------


def numbers(references: object, **call: object) -> list[list[int]]:
    """Which samples of the pool a method got for each explicand."""
    ends = ig2.PathMethod(ig2.paths.Straight(1), None, None)(NET, X, references=references, paths=True, **call).paths[:, :, -1]
    return [[int((sample == POOL).flatten(1).all(dim=1).nonzero()) for sample in row] for row in ends]


@pytest.mark.parametrize(
    ("classes", "wanted"),
    [
        (3, [{3}, {3}, {3}]),
        ([1, 2, 3], [{1}, {2}, {3}]),
        ([[1, 3]], [{1, 3}] * 3),
        ([[1, 3], [2, 2], [1, 2]], [{1, 3}, {2}, {1, 2}]),
    ],
)
def test_references_of_the_classes_asked_for(classes: object, wanted: list[set[int]]):
    drawn = numbers(OfClasses(POOL, LABELS, classes, count=1), target=0)
    assert [set(LABELS[row].tolist()) for row in drawn] == wanted
    assert len({len(row) for row in drawn}) == 1 and all(len(set(row)) == len(row) for row in drawn)
    # those of the call's own by default
    assert numbers(OfClasses(POOL, LABELS, count=1), target=0, against=classes) == drawn


def test_references_of_the_runner_up():
    runner_up = NET(X).argsort(dim=1, descending=True)[:, 1]
    for references, call in ((OfClasses(POOL, LABELS, "next", 2), {}), (OfClasses(POOL, LABELS, count=2), {"against": "next"})):
        assert [LABELS[row].tolist() for row in numbers(references, **call)] == [[label] * 2 for label in runner_up.tolist()]


def test_noised_copies_keep_the_references_of_their_explicand():
    references = OfClasses(POOL, LABELS, [1, 2, 3], count=2)
    found = ig2.SmoothGrad(ig2.IG2(steps=3), samples=3)(NET, X, 0, references, batch_size=2)
    alone = ig2.SmoothGrad(ig2.IG2(steps=3), samples=3)(NET, X[2:], 0, OfClasses(POOL, LABELS, 3, count=2))
    torch.testing.assert_close(found.values[2:], alone.values, rtol=1e-12, atol=1e-12)


def test_references_of_no_class_are_refused():
    refuses(InputError, "got no classes", lambda: ig2.IG2()(NET, X, references=OfClasses(POOL, LABELS)))
    refuses(InputError, "needs 5 references of class 3", lambda: ig2.IG2()(NET, X, 0, OfClasses(POOL, LABELS, 3)))
    refuses(InputError, "count", lambda: OfClasses(POOL, LABELS, 3, count=0))


def test_predicted_labels_are_those_of_the_network_itself():
    net, x, pool = multi_label(), data(3, 6), data(30, 6, seed=1)
    strategy = NearestLabels(pool, (torch.rand(30, 4, generator=torch.Generator().manual_seed(0)) > 0.5).long(), count=2)
    model = ig2.wrap(net, output="sigmoid")
    alone, against = (
        ig2.PathMethod(ig2.paths.Straight(1), strategy, None)(model, x, 0, paths=True, against=label) for label in (None, 1)
    )
    assert torch.equal(alone.paths, against.paths)


def test_an_estimate_takes_the_same_references():
    cost = ig2.IG2(steps=5).estimate(NET, X, OfClasses(POOL, LABELS, count=2), target=0, against=2)
    assert cost.points == 6


# -- metrics -------------------------------------------------------------------------------------------------------------


def test_metrics_look_at_the_difference():
    method, references = ig2.IntegratedGradients(10, rule=ig2.rules.shared), POOL[:2]
    found = method(NET, X, 1, references, against=[0, 2, 3])
    difference = [explicit(1, [label]) for label in (0, 2, 3)]
    alone = replace(found, against=None)
    for metric in (
        metrics.Completeness(baseline=references),
        metrics.Infidelity(draws=20),
        metrics.Insertion(output="model", thresholds=5),
        metrics.MaxSensitivity(method, references, draws=2),
    ):
        scores = metric(NET, found)
        wanted = torch.cat([metric(net, found.values[[i]], X[[i]]).values for i, net in enumerate(difference)])
        torch.testing.assert_close(scores.values, wanted, rtol=1e-9, atol=1e-12)
        plain = metric(NET, found.values, X, 1, against=[0, 2, 3])
        torch.testing.assert_close(scores.values, plain.values)
        if not isinstance(metric, metrics.MaxSensitivity):
            assert not torch.allclose(scores.values, metric(NET, alone).values)
    assert metrics.is_satisfied(metrics.Completeness()(None, found))
    assert metrics.is_satisfied(metrics.Completeness(baseline=references)(NET, found))
    # another target is another question
    other = metrics.Infidelity(draws=20)(NET, found, target=2).values
    torch.testing.assert_close(other, metrics.Infidelity(draws=20)(NET, found.values, X, 2).values)


def test_metrics_that_attribute_again_ask_the_same_question():
    method = ig2.IG2(steps=5)
    found = method(NET, X, references=POOL[:2], against="next")
    twin = nn.Sequential(NET, nn.Identity())
    invariance = metrics.ImplementationInvariance(method, ig2.wrap(twin, representation="0.8:input"), POOL[:2])
    assert float(invariance(NET, found).values.max()) < 1e-9
    metrics.ParameterRandomisation(method, POOL[:2], layers=["8"])(NET, found)  # refuses what the method does not give again
    asked = []

    def by_hand(model, x, target=None, references=None, *, seed=0, **options):
        asked.append(options)
        return method(model, x, target, references, seed=seed, **options)

    metrics.ParameterRandomisation(by_hand, POOL[:2], layers=["8"])(NET, found)
    assert asked and all(torch.equal(each["against"][:, 0], found.against) for each in asked)
    asked.clear()
    metrics.ParameterRandomisation(by_hand, POOL[:2], layers=["8"])(NET, method(NET, X, references=POOL[:2]))
    assert asked and not any(asked)


def test_shapley_values_of_the_difference():
    net, x = small_mlp(), data(2, 4)
    fill = metrics.ConstantFill(0.0)
    one, two = (metrics.conditional_shapley(net, x, fill, label, draws=1) for label in (0, 2))
    both = metrics.conditional_shapley(net, x, fill, 0, against=2, draws=1)
    torch.testing.assert_close(both, one - two, rtol=1e-12, atol=1e-12)


def test_figures_say_what_is_explained():
    plots = pytest.importorskip("ig2.plots")
    found = ig2.Gradient()(NET, X, 1, against=[0, 2, 3])
    assert "class 1 rather than class 2" in plots.html(found)
    figure = plots.grid({"a": found, "b": ig2.Gradient()(NET, X, 1, against=[0, 2, 2])})
    assert any("class 1 rather than class 3" in axes.get_xlabel() for axes in figure.axes)


def test_clusters_of_a_pool_are_each_explicands_own_against_its_class():
    """Outputs of the pool against one class say nothing of those against another."""
    net, x, pool = tanh_mlp(), data(4, 6, seed=21, low=-2, high=2), data(40, 6, seed=22, low=-2, high=2)
    method, against = ig2.LPI(pool, 3, 2, steps=3), [[1], [2], [1], [2]]
    together = method(net, x, 0, against=against)
    for row, classes in enumerate(against):
        alone = method(net, x[row : row + 1], 0, against=[classes])
        torch.testing.assert_close(together[row].values, alone.values, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(together[row].weights, alone.weights, rtol=1e-9, atol=1e-12)
