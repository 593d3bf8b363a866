"""Each axiom holds for a method that was built on it, and each check fails for one that breaks it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2.errors import IG2Warning, InputError, ModelError
from ig2.metrics.axioms import Completeness, Dummy, ImplementationInvariance, Symmetry, is_satisfied
from ig2.metrics.base import Scores
from networks import data, made, multi_label, relu_mlp, tanh_mlp, uniform

X, REFERENCES = data(5, 6, seed=1), data(3, 6, seed=2)


def noise(model: Any, x: Any, target: Any = None, references: Any = None, *, seed: int = 0) -> Tensor:
    """Attributions that owe the network nothing."""
    return data(*x.shape, seed=seed + 7)


def test_the_integral_is_complete_without_running_the_network_and_noise_is_not():
    net = tanh_mlp()
    scores = Completeness()(None, ig2.IntegratedGradients(rule=ig2.rules.gauss(20))(net, X))
    assert scores.values.max() < 1e-6 and scores.better == "lower" and is_satisfied(scores) is True
    scores = Completeness(baseline=0)(net, noise(net, X), X)
    assert scores.values.min() > 0.1 and is_satisfied(scores) is False


@pytest.mark.parametrize("baseline", [REFERENCES, REFERENCES.expand(5, 3, 6), ig2.references.Given(REFERENCES)])
def test_a_plain_tensor_is_compared_with_the_mean_over_its_baselines(baseline: Any):
    net = tanh_mlp()
    values, target = data(5, 6, seed=3), torch.tensor([0, 1, 2, 0, 1])
    with torch.no_grad():
        change = net(X)[range(5), target] - net(REFERENCES)[:, target].mean(dim=0)
    truth = (values.sum(dim=1) - change).abs() / change.abs()
    torch.testing.assert_close(Completeness(baseline=baseline)(net, values, X, target).values, truth)


def test_an_attribution_scores_as_its_values_and_by_its_own_residual():
    net = tanh_mlp()
    whole = ig2.ExpectedIG(3)(net, X, references=REFERENCES)
    alone = Completeness(baseline=REFERENCES)(net, whole.values, X, whole.target)
    torch.testing.assert_close(Completeness()(None, whole).values, alone.values)
    left = ig2.IG2(steps=200, step_size=0.1, rule=ig2.rules.left)(net, X, references=REFERENCES)
    assert is_satisfied(Completeness()(None, left), tolerance=1e-3) is False
    with pytest.warns(IG2Warning, match="5 because the method has no baseline"):
        scores = Completeness()(None, ig2.Gradient()(net, X))
    assert scores.values.isnan().all() and is_satisfied(scores) is None


def test_where_the_output_does_not_change_the_sum_is_compared_with_the_attribution():
    values = torch.tensor([[2.0, -2.0], [3.0, -1.0], [1.0, 1.0], [0.0, 0.0]])
    scores = Completeness(baseline=0)(lambda x: x.sum(dim=1), values, torch.tensor([[1.0, -1.0]] * 4))
    torch.testing.assert_close(scores.values, torch.tensor([0.0, 0.5, 1.0, 0.0]))


def test_a_plain_tensor_needs_a_baseline_and_the_network_a_finite_one():
    with pytest.raises(InputError, match=r"Completeness\(baseline"):
        Completeness()(None, X)
    with pytest.raises(ModelError, match="-inf at its baseline"):
        Completeness(baseline=0)(lambda x: x.log().sum(dim=1), uniform(2, 3), uniform(2, 3))


def ignoring(*features: int) -> Any:
    """A network that does not look at some of its six features."""
    net: Any = tanh_mlp()
    with torch.no_grad():
        net[0].weight[:, list(features)] = 0
    return net


@pytest.mark.parametrize(
    "method",
    [ig2.Gradient(), ig2.IntegratedGradients(), ig2.GuidedIG(), ig2.IG2(steps=20, step_size=0.05), ig2.ExpectedIG(5)],
    ids=lambda method: type(method).__name__,
)
def test_gradients_give_nothing_to_features_the_network_ignores(method: ig2.Method):
    net = ignoring(2, 4)
    scores = Dummy()(net, method(net, X, references=REFERENCES))
    assert scores.settings["dummies"] == 2
    assert (scores.values == 0).all() and is_satisfied(scores) is True


@pytest.mark.parametrize("truth", [None, torch.arange(6) == 2, (torch.arange(6) == 2).expand(5, 6)])
def test_what_falls_on_ignored_features_is_counted(truth: Tensor | None):
    net = ignoring(2)
    scores = Dummy()(net, X, X, truth=truth)
    torch.testing.assert_close(scores.values, X[:, 2].abs() / X.abs().sum(dim=1))
    assert is_satisfied(scores) is False


def test_the_truth_may_differ_between_explicands_and_every_feature_may_be_a_dummy():
    truth, ones = torch.zeros(5, 6, dtype=torch.bool), torch.ones(5, 6)
    truth[0, :2] = truth[1:, 5] = True
    scores = Dummy()(tanh_mlp(), ones, X, truth=truth)
    torch.testing.assert_close(scores.values, torch.tensor([2 / 6, *[1 / 6] * 4]).double())
    assert (Dummy()(lambda x: 1 + 0 * x.sum(dim=1), ones, X).values == 1).all()
    assert (Dummy()(ignoring(1), 0 * ones, X).values == 0).all()


def test_a_feature_that_matters_without_a_gradient_or_beside_another_is_no_dummy():
    def steps(x: Tensor) -> Tensor:
        return x[:, 0] + 3 * x[:, 1].round() + 3 * x[:, 4].round()

    def product(x: Tensor) -> Tensor:
        return x[:, 0] * x[:, 1] + x[:, 2:].sum(dim=1)

    scores = Dummy()(steps, torch.ones(8, 6), data(8, 6, seed=4, low=-3, high=3))
    assert scores.settings["dummies"] == 3
    torch.testing.assert_close(scores.values, torch.full((8,), 0.5, dtype=torch.float64))
    x = X.clone()
    x[:, 1] = 0
    assert Dummy()(product, torch.ones(5, 6), x).settings["dummies"] == 1
    with pytest.warns(IG2Warning, match="every feature matters"):  # with data that show it
        scores = Dummy(data=REFERENCES)(product, torch.ones(5, 6), x)
    assert scores.settings["dummies"] == 0 and is_satisfied(scores) is None


@pytest.mark.parametrize("among", ["explicands", "data"])
def test_a_feature_that_matters_anywhere_is_no_dummy(among: str):
    """Σ relu(aₖ)·bₖ + aₖ, all b equal: only gradients show that bₖ matters, and where aₖ > 0."""

    def net(x: Tensor) -> Tensor:
        a, b = x.unflatten(1, (2, 4)).unbind(dim=1)
        return (a.clamp(min=0) * b + a).sum(dim=1)

    threes = torch.full((4, 4), 3.0).double()
    awake = torch.cat([2 * torch.eye(4).double() - 1, threes], dim=1)  # aₖ > 0 in sample k alone
    asleep = torch.cat([torch.full((1, 4), -1e-3).double(), threes[:1]], dim=1)
    x, metric = (awake, Dummy(draws=1)) if among == "explicands" else (asleep, Dummy(data=awake))
    with pytest.warns(IG2Warning, match="every feature matters"):
        assert metric(net, x, x).settings["dummies"] == 0


def test_dummies_are_found_and_given_among_several_inputs():
    x, ones = (data(4, 2, seed=5), data(4, 2, 2, seed=6)), (torch.ones(4, 2), torch.ones(4, 2, 2))
    given = (torch.tensor([False, True]), torch.tensor([[False, True], [True, False]]))
    for truth in (None, given):
        scores = Dummy()(lambda a, b: a[:, 0] + b[:, 0, 0] * b[:, 1, 1], ones, x, truth=truth)
        assert scores.settings["dummies"] == 3
        torch.testing.assert_close(scores.values, torch.full((4,), 0.5, dtype=torch.float64))


def test_draws_follow_the_seed():
    # the step lies where only some of the others reach
    x = torch.linspace(0, 1, 12, dtype=torch.float64)[:, None].repeat(1, 3)

    def count(seed: int) -> int:
        metric = Dummy(data=x, draws=1)
        return metric(lambda x: x[:, 0] + (x[:, 1] > 0.95).double(), x[:2], x[:2], seed=seed).settings["dummies"]

    assert {count(seed) for seed in range(30)} == {1, 2}
    assert len({count(3) for _ in range(3)}) == 1


def test_dummies_need_other_samples_or_a_mask():
    with pytest.raises(InputError, match=r"Dummy\(data"):
        Dummy()(tanh_mlp(), X[:1], X[:1])
    assert Dummy(data=REFERENCES)(ignoring(0), X[:1], X[:1]).n == 1
    for truth in (torch.arange(6), torch.ones(5, dtype=torch.bool), [True] * 6, "first"):
        with pytest.raises(InputError, match=r"truth must be booleans \(6,\) or \(5, 6\)"):
            Dummy()(tanh_mlp(), X, X, truth=truth)


@pytest.mark.parametrize("settings", [{"draws": 0}, {"draws": 2.5}, {"tolerance": -1}, {"tolerance": float("nan")}])
def test_settings_that_cannot_be_are_refused(settings: Any):
    for build in (Dummy, lambda **settings: Symmetry([(0, 1)], **settings)):
        with pytest.raises(InputError, match=next(iter(settings))):
            build(**settings)


class Alike(nn.Module):
    """Features 0 and 1, and 2 and 5, may change places."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = tanh_mlp(features=6)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c, d, e, f = x.unbind(dim=1)
        return self.inner(torch.stack([a + b, a * b, c + f, c * f, d, e], dim=1))


PAIRS = [(0, 1), (2, 5)]
EQUAL = X.clone()
EQUAL[:, 1], EQUAL[:, 5] = EQUAL[:, 0], EQUAL[:, 2]


@pytest.mark.parametrize("method", [ig2.Gradient(), ig2.IntegratedGradients(), ig2.IG2(steps=20, step_size=0.05)])
def test_gradients_are_alike_for_features_that_are(method: ig2.Method):
    net = made(Alike)
    scores = Symmetry(PAIRS)(net, method(net, EQUAL, references=EQUAL[:2] / 3))
    assert scores.values.max() < 1e-8 and is_satisfied(scores) is True


def test_the_worst_pair_is_counted_beside_the_largest_attribution():
    net, values = made(Alike), torch.tensor([[1.0, 2.0, 3.0, -10.0, 0.0, 8.0]]).expand(5, 6)
    scores = Symmetry(PAIRS)(net, values, EQUAL)
    torch.testing.assert_close(scores.values, torch.full((5,), 0.5, dtype=torch.float64))
    assert is_satisfied(scores) is False
    # a reference that tells the features apart may be why attributions differ
    assert is_satisfied(Symmetry(PAIRS)(net, ig2.IntegratedGradients()(net, EQUAL, references=REFERENCES))) is False


def test_a_network_that_is_not_symmetric_is_an_error_and_explicands_whose_features_differ_are_not_judged():
    with pytest.raises(InputError, match="not symmetric in features 2 and 3"):
        Symmetry([(0, 1), (2, 3)])(made(Alike), EQUAL, EQUAL)
    # even where the explicand has them equal, and changing places would change nothing
    with pytest.raises(InputError, match="not symmetric in features 0 and 1"):
        Symmetry([(0, 1)])(tanh_mlp(), torch.zeros(1, 6).double(), torch.zeros(1, 6).double())
    x = EQUAL.clone()
    x[1] = X[1]
    with pytest.warns(IG2Warning, match="1 because no two features of a pair are equal"):
        scores = Symmetry(PAIRS)(made(Alike), torch.zeros(5, 6), x)
    assert scores.values.isnan().tolist() == [False, True, False, False, False] and is_satisfied(scores) is True


def test_pixels_are_named_by_their_place_or_their_number():
    x = uniform(2, 1, 3, 4)
    x[:, 0, 1, 2] = x[:, 0, 0, 0]
    values = torch.zeros(2, 1, 3, 4)
    values[:, 0, 1, 2] = 1

    def score(*pairs: Any) -> Tensor:
        return Symmetry(list(pairs))(lambda x: x.sum(dim=(1, 2, 3)) ** 2, values, x).values

    for pair in (((0, 0, 0), (0, 1, 2)), (0, 6), (-12, (0, -2, -2))):
        assert (score(pair) == 1).all()
    for pair in ((0, 12), (0, (1, 0, 0)), (0, (0, 0)), (0, 1.5), (0, "a")):
        with pytest.raises(InputError, match=r"no position in a sample \(1, 3, 4\)"):
            score(pair)
    for pairs in ([], 3, [0, 1], [(0, 1, 2)], "ab"):
        with pytest.raises(InputError, match="pairs"):
            Symmetry(pairs)
    assert Symmetry([(0, 6)])(lambda x: x.sum(dim=(1, 2, 3)), values, x).settings["pairs"] == [[0, 6]]


def split(net: Any, layer: int, turn: Tensor | None = None) -> nn.Module:
    """The same function, with one linear layer done as two, of which the first by default only turns its input."""
    whole, size = net[layer], net[layer].in_features
    turn = torch.linalg.qr(data(size, size, seed=8)).Q if turn is None else turn
    first, second = (nn.Linear(size, features).double() for features in (size, whole.out_features))
    with torch.no_grad():
        first.weight.copy_(turn)
        first.bias.zero_()
        second.weight.copy_(whole.weight @ turn.inverse())
        second.bias.copy_(whole.bias)
    return nn.Sequential(*net[:layer], first, second, *net[layer + 1 :]).eval()


def folded() -> tuple[nn.Module, nn.Module]:
    """A network with batch norm, and the same with its statistics folded into the layer before."""
    net: Any = made(lambda: nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 3)))
    net[1].running_mean += data(9, seed=9)
    net[1].running_var += uniform(9, seed=10)
    first: Any = nn.utils.fuse_linear_bn_eval(net[0], net[1])
    return net, nn.Sequential(first, net[2], net[3]).eval()


def weights_times_input(model: Any, x: Any, target: Any = None, references: Any = None, *, seed: int = 0) -> Tensor:
    """Looks at how the network is built."""
    return x * next(model.net.parameters()).detach().sum(dim=0)


@pytest.mark.parametrize("method", [ig2.Gradient(), ig2.IntegratedGradients(), ig2.GuidedIG(steps=10), ig2.ExpectedIG(5)])
def test_gradients_do_not_see_how_a_function_is_implemented(method: ig2.Method):
    for net, twin in (folded(), (tanh_mlp(), split(tanh_mlp(), 2))):
        scores = ImplementationInvariance(method, twin, REFERENCES)(net, method(net, X, references=REFERENCES))
        assert scores.values.max() < 1e-9 and is_satisfied(scores) is True


def test_a_method_that_looks_at_the_weights_is_found_out():
    net, twin = map(ig2.wrap, folded())
    one, other = weights_times_input(net, X), weights_times_input(twin, X)
    scores = ImplementationInvariance(weights_times_input, twin)(net, one, X)
    expected = (one - other).norm(dim=1) / torch.maximum(one.norm(dim=1), other.norm(dim=1))
    torch.testing.assert_close(scores.values, expected)
    assert scores.values.min() > 0.1 and is_satisfied(scores) is False


class Early(nn.Module):
    """max(max(x₁, 0) − 1 − max(x₂, 0), 0), or the same function with the 1 taken off inside."""

    def __init__(self, inside: float = 0.0) -> None:
        super().__init__()
        self.inside, self.one, self.two, self.three = inside, nn.ReLU(), nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.three(self.one(x[:, :1] - self.inside) - (1 - self.inside) - self.two(x[:, 1:]))


@pytest.mark.filterwarnings("ignore::ig2.IG2Warning")
def test_deeplift_is_not_invariant():
    """The counter-example of the paper that introduced integrated gradients: (1.5, −0.5) and (2, −1) at (3, 1)."""
    x, early, late = torch.tensor([[3.0, 1.0]], dtype=torch.float64), Early(), Early(inside=1.0)
    method, integrated = ig2.DeepSHAP(), ig2.IntegratedGradients(rule=ig2.rules.gauss(200))
    found = method(early, x, references=0.0)
    torch.testing.assert_close(found.values, torch.tensor([[1.5, -0.5]]).double())
    scores = ImplementationInvariance(method, late, 0.0)(early, found)
    torch.testing.assert_close(scores.values, torch.tensor([0.5 * 2**0.5 / 5**0.5]).double())
    assert is_satisfied(ImplementationInvariance(integrated, late)(early, integrated(early, x))) is True


def test_gradpath_is_invariant_where_twins_share_the_representation_and_only_there():
    net, method = tanh_mlp(), ig2.IG2(steps=30, step_size=0.05)
    found = method(net, X, references=REFERENCES)
    # a last layer in two parts, of which the first stretches the representation, does not keep distances
    stretched = split(net, 4, torch.linspace(0.2, 5, 9, dtype=torch.float64).diag())
    named = ig2.wrap(stretched, representation="4:input")
    before, after, kept = (
        ImplementationInvariance(method, twin, REFERENCES)(net, found).values for twin in (split(net, 2), stretched, named)
    )
    assert before.max() < 1e-8 and after.min() > 0.01 and kept.max() < 1e-8


def test_a_twin_that_computes_something_else_is_an_error():
    net = tanh_mlp()
    for twin, message in (
        (tanh_mlp(seed=1), "the twin computes another function: 0% of the way from explicand"),
        (tanh_mlp(classes=4), r"scores \(5, 4\), the model \(5, 3\)"),
        # the same at the explicands alone
        (lambda x: net(x) + torch.cdist(x, X).amin(dim=1, keepdim=True), r"another function: (25|50|75|100)% of"),
    ):
        with pytest.raises(InputError, match=message):
            ImplementationInvariance(ig2.Gradient(), twin)(net, ig2.Gradient()(net, X))


def test_a_method_that_did_not_make_the_attribution_is_an_error():
    net: Any = relu_mlp()
    found = ig2.ExpectedIG(5)(net, X, references=REFERENCES)
    assert ImplementationInvariance(ig2.ExpectedIG(5), split(net, 2), REFERENCES)(net, found).n == 5
    for method, references in ((ig2.ExpectedIG(5), X[:2]), (ig2.Gradient(), REFERENCES)):
        with pytest.raises(InputError, match="does not return this attribution again"):
            ImplementationInvariance(method, split(net, 2), references)(net, found)
    with pytest.raises(InputError, match="method must be a method such as"):
        ImplementationInvariance(ig2.Gradient, net)  # the class


def test_the_seed_an_attribution_was_made_with_is_used_again():
    net: Any = tanh_mlp()
    twin, method = split(net, 2), ig2.SmoothGrad(ig2.Gradient(), samples=3)
    assert is_satisfied(ImplementationInvariance(method, twin)(net, method(net, X, seed=5))) is True
    metric, values = ImplementationInvariance(noise, twin), noise(net, X, seed=3)
    assert is_satisfied(metric(net, values, X, seed=3)) is True
    with pytest.raises(InputError, match="does not return this attribution again"):
        metric(net, values, X)


def test_the_twin_gets_the_models_output_and_preprocessing():
    model = ig2.wrap(multi_label(), output="log-probability", preprocess=lambda x: 2 * x)
    assert ImplementationInvariance(ig2.Gradient(), multi_label())(model, ig2.Gradient()(model, X)).values.max() == 0


def test_only_axioms_are_satisfied():
    with pytest.raises(InputError, match="faithfulness is no axiom"):
        is_satisfied(Scores(torch.zeros(1), "faithfulness", "higher"))
