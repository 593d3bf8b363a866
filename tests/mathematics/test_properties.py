"""Axioms over random networks, independence of batching, and what rules do where their formulas break down.

Each axiom comes with a case that violates it, to show that the check can fail.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import ig2
from ig2 import paths, rules
from networks import Toy, data, relu_cnn, relu_mlp, seeded, tanh_mlp

SHARING = [rules.direct, rules.shared, rules.aligned, rules.blended, rules.tempered]
COMPLETE = [*SHARING, *map(rules.scaled, (rules.left, rules.gauss(2), rules.direct))]
RULES = [rules.left, rules.right, rules.midpoint, rules.trapezoid, rules.gauss(3), rules.secant, *COMPLETE]
seeds = st.integers(0, 10_000)
nets = st.builds(
    lambda family, features, seed: family(features=features, seed=seed),
    st.sampled_from([tanh_mlp, relu_mlp]),
    st.integers(2, 6),
    seeds,
)
distances = st.sampled_from([paths.euclidean, paths.cosine, paths.manhattan])
step_sizes = st.sampled_from([1e-3, 0.03, 0.3, 1.0, 10.0])


def features_of(net):
    return net[0].in_features


def every_path(steps, step_size):
    return [
        paths.Straight(steps),
        paths.Guided(steps, 0.3, 0.1),
        paths.GradPath(steps, step_size),
        paths.GradPath(steps, step_size, paths.cosine),
        paths.GradPath(steps, step_size, paths.manhattan, paths.SparseL1(60)),
    ]


some_path = st.builds(lambda number, step_size: every_path(6, step_size)[number], st.integers(0, 4), step_sizes)


def residual(method, net, x, references, **options):
    """The residual beside the size of what was summed."""
    found = method(net, x, 0, references, **options)
    assert found.values.isfinite().all()
    return float(found.residual.abs().max()) / (1 + float(found.values.abs().sum()))


# -- completeness ------------------------------------------------------------------------------------------------------


@given(nets, some_path, st.sampled_from([*COMPLETE, rules.secant]), seeds, st.booleans())
def test_complete_rules_are_complete_on_any_path_at_any_step_size(net, path, rule, seed, bounded):
    low = -1 if bounded else -2
    x, references = data(2, features_of(net), seed=seed, low=low, high=-low), data(2, features_of(net), seed=seed + 1)
    model = ig2.wrap(net, bounds=(-1, 1) if bounded else None)
    assert residual(ig2.PathMethod(path, rule=rule), model, x, references) < 1e-13


@given(st.integers(2, 6), seeds, st.sampled_from(every_path(6, 0.3)))
def test_gauss_is_complete_on_smooth_networks(features, seed, path):
    net, x, references = tanh_mlp(features, seed=seed), data(2, features, seed=seed), data(2, features, seed=seed + 1)
    assert residual(ig2.PathMethod(path, rule=rules.gauss(12)), net, x, references) < 1e-10


class Unchecked(rules.Quadrature):
    """A table taken as it is."""

    def __post_init__(self):
        pass


def test_completeness_can_fail():
    net, x, references = tanh_mlp(), data(2, 6, seed=1), data(2, 6, seed=2)
    assert residual(ig2.IG2(20, 0.3, rules.left), net, x, references) > 1e-3
    wrong = Unchecked("weights that sum to 5/6", (0.0, 0.5, 1.0), (1 / 6, 1 / 3, 1 / 3))
    assert residual(ig2.PathMethod(paths.Straight(200), rule=wrong), net, x, references) > 1e-3
    right = rules.Quadrature("Simpson's", (0.0, 0.5, 1.0), (1 / 6, 2 / 3, 1 / 6))
    assert residual(ig2.PathMethod(paths.Straight(200), rule=right), net, x, references) < 1e-10


# -- dummy -------------------------------------------------------------------------------------------------------------


def blind(net, feature):
    """The network without sight of a feature, from its first layer on."""
    with torch.no_grad():
        net[0].weight[:, feature] = 0
    return net


def indifferent(features, feature, seed):
    """A network in whose representation a feature shows, though its output makes no use of that."""

    def build():
        return nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, 3))

    net = seeded(build, seed)
    with torch.no_grad():
        net[0].weight[:7, feature] = 0
        net[2].weight[:, 7] = 0
    return net


@given(nets, some_path, st.sampled_from(RULES), seeds)
def test_a_feature_the_network_does_not_see_gets_nothing(net, path, rule, seed):
    features = features_of(net)
    feature = seed % features
    x, references = data(2, features, seed=seed, low=-2, high=2), data(2, features, seed=seed + 1)
    found = ig2.PathMethod(path, rule=rule)(blind(net, feature), x, 0, references)
    assert (found.values[:, feature] == 0).all()
    if isinstance(path, paths.GradPath):
        assert (found.gradcfe[:, feature] == 0).all()
        assert (found.gradcf[:, :, feature] == x[:, None, feature]).all()


@given(st.integers(2, 6), some_path, st.sampled_from(RULES), seeds)
def test_a_feature_only_the_representation_sees_gets_nothing(features, path, rule, seed):
    feature = seed % features
    net, x, references = indifferent(features, feature, seed), data(2, features, seed=seed), data(2, features, seed=seed + 1)
    found = ig2.PathMethod(path, rule=rule)(net, x, 0, references)
    assert (found.values[:, feature] == 0).all()


@pytest.mark.parametrize("rule", COMPLETE[:3], ids=repr)
def test_a_feature_the_network_does_not_see_gets_nothing_where_the_explicand_has_no_gradient(rule):
    # asleep at the explicand, awake at the reference, whose gradient (1, 0) says what mattered
    x, reference = torch.tensor([[0.0, 0.0]], dtype=torch.float64), torch.tensor([[3.0, 5.0]], dtype=torch.float64)
    found = ig2.PathMethod(paths.Straight(1), rule=rule)(ig2.wrap(lambda p: (p[:, 0] - 1).relu()), x, 0, reference)
    torch.testing.assert_close(found.values, torch.tensor([[-2.0, 0.0]], dtype=torch.float64))


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_feature_the_network_does_not_see_changes_nothing_of_the_others(rule):
    net = seeded(lambda: nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), 0)
    x, references = data(2, 4, seed=1, low=-2, high=2), data(2, 4, seed=2)
    method = ig2.PathMethod(paths.Straight(4), rule=rule)
    found = method(lambda p: net(p[:, 1:]), x, 0, references)
    expected = method(net, x[:, 1:], 0, references[:, 1:])
    torch.testing.assert_close(found.values[:, 1:], expected.values, rtol=1e-9, atol=1e-12)
    assert (found.values[:, 0] == 0).all()


def test_dummy_can_fail():
    net, x, references = indifferent(4, 1, seed=3), data(2, 4, seed=1), data(2, 4, seed=2)
    # GradCFE explains the representation, which does see it
    assert (ig2.GradCFE(10, 0.1)(net, x, 0, references).values[:, 1].abs() > 1e-3).all()
    # and without the feature's last trace gone, it counts
    with torch.no_grad():
        net[2].weight[:, 7] = 0.5
    assert (ig2.IG2(10, 0.1)(net, x, 0, references).values[:, 1].abs() > 1e-4).all()


# -- implementation invariance -----------------------------------------------------------------------------------------


class Other(nn.Module):
    """The activation of a family, written in another way."""

    def __init__(self, family):
        super().__init__()
        self.smooth = family is tanh_mlp

    def forward(self, z):
        return 2 * torch.sigmoid(2 * z) - 1 if self.smooth else (z + z.abs()) / 2


def twice(family, features, seed):
    """The same function, with the same representation, written twice: the second with its first layer in two."""
    net = family(features=features, seed=seed)
    turn = torch.linalg.qr(data(features, features, seed=seed))[0]
    first = nn.Linear(features, features, bias=False).double()
    second = nn.Linear(features, net[0].out_features).double()
    with torch.no_grad():
        first.weight.copy_(turn)
        second.weight.copy_(net[0].weight @ turn.T)
        second.bias.copy_(net[0].bias)
    return net, nn.Sequential(first, second, Other(family), net[2], Other(family), net[4]).eval()


@pytest.mark.slow
@given(st.sampled_from([tanh_mlp, relu_mlp]), st.integers(2, 6), seeds, st.integers(0, 4), st.sampled_from(RULES))
def test_the_same_function_written_twice_gets_the_same_attributions(family, features, seed, number, rule):
    one, other = twice(family, features, seed)
    x, references = data(2, features, seed=seed), data(2, features, seed=seed + 1)
    with torch.no_grad():
        torch.testing.assert_close(one(x), other(x), rtol=0, atol=1e-12)
        torch.testing.assert_close(one[:-1](x), other[:-1](x), rtol=0, atol=1e-12)
    method = ig2.PathMethod(every_path(6, 0.1)[number], rule=rule)
    here, there = method(one, x, 0, references), method(other, x, 0, references)
    torch.testing.assert_close(here.values, there.values, rtol=0, atol=1e-8)
    if number >= 2:
        torch.testing.assert_close(here.gradcfe, there.gradcfe, rtol=0, atol=1e-8)


def test_implementation_invariance_can_fail():
    # Equal outputs are not enough for GradPath: the head in two layers moves the representation to another place.
    net, x, references = tanh_mlp(), data(2, 6, seed=1), data(2, 6, seed=2)
    inner, outer = nn.Linear(9, 9).double(), nn.Linear(9, 3, bias=False).double()
    with torch.no_grad():
        inner.weight.copy_(torch.diag(torch.linspace(0.1, 3, 9, dtype=torch.float64)))
        inner.bias.copy_(torch.linalg.lstsq(net[4].weight / inner.weight.diag(), net[4].bias[:, None]).solution[:, 0])
        outer.weight.copy_(net[4].weight / inner.weight.diag())
    other = nn.Sequential(*net[:-1], inner, outer).eval()
    with torch.no_grad():
        torch.testing.assert_close(net(x), other(x), rtol=0, atol=1e-12)
    method = ig2.IG2(10, 0.1)
    assert (method(net, x, 0, references).values - method(other, x, 0, references).values).abs().max() > 1e-3
    named = ig2.wrap(other, representation="3")  # where the first network has it
    torch.testing.assert_close(method(net, x, 0, references).values, method(named, x, 0, references).values, rtol=0, atol=1e-9)


# -- symmetry ----------------------------------------------------------------------------------------------------------


def symmetric(net):
    """The network made symmetric in its first two features."""
    with torch.no_grad():
        net[0].weight[:, 1] = net[0].weight[:, 0]
    return net


def alike(count, features, seed):
    x = data(count, features, seed=seed)
    x[:, 1] = x[:, 0]
    return x


@pytest.mark.slow
@given(nets, distances, st.sampled_from(RULES), seeds)
def test_symmetric_features_get_equal_attributions_on_gradpath_whatever_the_reference(net, distance, rule, seed):
    x, references = alike(2, features_of(net), seed), data(2, features_of(net), seed=seed + 1)
    assert (references[:, 0] != references[:, 1]).all()
    found = ig2.IG2(6, 0.3, rule, distance)(symmetric(net), x, 0, references)
    for values in (found.values, found.gradcfe):
        torch.testing.assert_close(values[:, 0], values[:, 1], rtol=0, atol=1e-11)


@given(nets, st.sampled_from(RULES), seeds)
def test_symmetric_features_get_equal_attributions_on_the_line_to_a_symmetric_reference(net, rule, seed):
    x, references = alike(2, features_of(net), seed), alike(2, features_of(net), seed + 1)
    found = ig2.PathMethod(paths.Straight(6), rule=rule)(symmetric(net), x, 0, references)
    torch.testing.assert_close(found.values[:, 0], found.values[:, 1], rtol=0, atol=1e-11)


@pytest.mark.parametrize("path", [paths.Straight(20), paths.Guided(20)], ids=repr)
def test_symmetry_can_fail(path):
    # a path that ends at the reference is as lopsided as it
    net, x, references = symmetric(tanh_mlp()), alike(2, 6, 1), data(2, 6, seed=2)
    found = ig2.PathMethod(path, rule=rules.gauss(4))(net, x, 0, references)
    assert ((found.values[:, 0] - found.values[:, 1]).abs() > 1e-3).all()


def test_sparse_steps_keep_symmetric_features_together():
    # gradients of symmetric features, as a matrix product returns them: equal but for a rounding
    gradient = torch.tensor([[0.5, 1.0, 1.0 + 2**-52, 0.25]], dtype=torch.float64)
    for percentile in (50, 75, 90):
        direction = paths.SparseL1(percentile).direction(gradient)[0]
        assert direction[1] == direction[2]


# -- batches -----------------------------------------------------------------------------------------------------------

IMAGES = data(3, 2, 2, 8, 8, seed=5)
BATCHED = {
    **{f"{type(path).__name__} {i}": (path, "mlp") for i, path in enumerate(every_path(4, 0.1))},
    **{
        f"{type(path).__name__} on images": (path, "cnn")
        for path in [paths.Straight(4), paths.GradPath(4, 0.1), paths.Guided(3)]
    },
    "polyline on images": (paths.Polyline(IMAGES[0]), "cnn"),
    "blur": (paths.Blur(3, 4.0), "cnn"),
}
KEPT = ["baseline_outputs", "gradcf", "gradcfe", "per_reference", "output_curve", "distance_curve", "paths"]


def assert_same(found, expected):
    for field in ["values", "spread", *KEPT]:
        one, other = getattr(found, field), getattr(expected, field)
        assert (one is None) == (other is None), field
        if one is not None:
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12, msg=lambda text, field=field: f"{field}: {text}")


# one rule of each kind: gradients at either end, at both, inside, and those that share or scale
KINDS = [rules.left, rules.right, rules.trapezoid, rules.gauss(3), *COMPLETE[:3], rules.scaled(rules.gauss(2))]


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True], ids=["shared references", "own references"])
@pytest.mark.parametrize("rule", KINDS, ids=repr)
@pytest.mark.parametrize("name", BATCHED)
def test_results_do_not_depend_on_batching(name, rule, own):
    path, kind = BATCHED[name]
    if own and not path.uses_reference:
        return
    net, shape = (tanh_mlp(), (6,)) if kind == "mlp" else (relu_cnn(), (2, 8, 8))
    x, references = data(3, *shape, seed=1), data(*([3, 2] if own else [2]), *shape, seed=2)
    target = [0, 2, 1]
    method, keep = ig2.PathMethod(path, rule=rule), {"per_reference": True, "curves": True, "paths": True}
    together = method(net, x, target, references, **keep)
    for i in (0, 2):
        alone = method(net, x[i : i + 1], target[i], references[i : i + 1] if own else references, **keep)
        assert_same(together[i], alone)
    for size in (1, 3) if own else (1, 2, 7):
        assert_same(method(net, x, target, references, batch_size=size, **keep), together)


def test_polylines_of_each_explicand_do_not_depend_on_batching():
    method = ig2.PathMethod(paths.Polyline(IMAGES, per_explicand=True), rule=rules.gauss(3))
    x = data(3, 2, 8, 8, seed=1)
    together = method(relu_cnn(), x, 1)
    for size in (1, 2, 7):
        assert_same(method(relu_cnn(), x, 1, batch_size=size), together)


# -- where formulas break down -----------------------------------------------------------------------------------------


def explain(function, x, reference, rule, steps=1):
    x, reference = (torch.tensor([p], dtype=torch.float64) for p in (x, reference))
    found = ig2.PathMethod(paths.Straight(steps), rule=rule)(ig2.wrap(function), x, 0, reference)
    assert found.values.isfinite().all()
    return found


@pytest.mark.parametrize("rule", COMPLETE, ids=repr)
@pytest.mark.parametrize(
    ("function", "x", "reference"),
    [
        # the gradient is zero at the explicand, and at both ends, and the output changes all the same
        pytest.param(lambda p: (p.sum(1) - 1).relu(), (0.0, 0.0), (3.0, 5.0), id="asleep at the explicand"),
        pytest.param(lambda p: (1 - (p.sum(1) - 4).abs()).relu() + (p.sum(1) > 6), (0.0, 0.0), (3.0, 5.0), id="a jump"),
        # the slope points the other way than the change
        pytest.param(lambda p: p.sum(1) ** 2, (1.0, 1.0), (-2.0, -1.0), id="opposite signs"),
        pytest.param(lambda p: p[:, 0] ** 2 - p[:, 1], (1.0, 1.0), (-2.0, 3.0), id="opposite signs, mixed"),
        # c sums to zero, but the output changes
        pytest.param(lambda p: p[:, 0] - p[:, 1] + p[:, 0] ** 4, (0.0, 0.0), (1.0, 1.0), id="cancelling"),
        pytest.param(lambda p: p[:, 0] - p[:, 1] - p[:, 0] ** 4, (0.0, 0.0), (1.0, 1.0), id="cancelling, downward"),
        pytest.param(
            lambda p: p[:, 0] - p[:, 1] + 1e-9 * p[:, 0] + p[:, 0] ** 4, (0.0, 0.0), (1.0, 1.0), id="all but cancelling"
        ),
        # every feature opposes
        pytest.param(lambda p: -p.sum(1) + p.sum(1) ** 2, (0.1, 0.1), (-3.0, -1.0), id="all oppose"),
        # gradients whose squares are zero, and whose squares are infinite
        pytest.param(lambda p: 1e-200 * p.sum(1), (1.0, 2.0), (0.0, 0.0), id="tiny"),
        pytest.param(lambda p: 1e200 * p.sum(1), (1.0, 2.0), (0.0, 0.0), id="huge"),
        pytest.param(lambda p: p.sum(1), (1.0, 2.0), (1.0 - 1e-15, 2.0), id="a step of one rounding"),
        # found by the fuzzer: a change over a product of 1e-310 is infinite, and times the other feature's zero NaN
        pytest.param(lambda p: 1e-310 * p[:, 0] + (p.sum(1) > 6), (0.0, 0.0), (3.0, 5.0), id="next to no gradient, opposing"),
        pytest.param(lambda p: -1e-310 * p[:, 0] + (p.sum(1) > 6), (0.0, 0.0), (3.0, 5.0), id="next to no gradient"),
    ],
)
def test_complete_rules_fall_back_and_stay_complete(function, x, reference, rule):
    for steps in (1, 2, 5):
        found = explain(function, x, reference, rule, steps)
        size = float(found.output.abs() + found.baseline_output.abs())
        assert float(found.residual.abs()) <= 1e-12 * size


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize(
    ("function", "x", "reference"),
    [
        pytest.param(lambda p: 0 * p.sum(1) + 2, (1.0, 2.0), (0.0, 0.0), id="constant"),
        pytest.param(lambda p: p.sum(1), (1.0, 2.0), (1.0, 2.0), id="reference equal to the explicand"),
        pytest.param(lambda p: torch.sigmoid(p.sum(1)), (900.0, 900.0), (800.0, 800.0), id="saturated"),
        pytest.param(lambda p: p.sum(1).relu(), (-1.0, -2.0), (-3.0, -1.0), id="dead"),
    ],
)
def test_nothing_happened_nothing_is_attributed(function, x, reference, rule):
    found = explain(function, x, reference, rule, steps=3)
    assert (found.values == 0).all() and (found.residual == 0).all()


@given(seeds, st.sampled_from(COMPLETE), st.floats(0.01, 100), st.booleans())
def test_complete_rules_survive_rough_networks(seed, rule, step_size, bounded):
    # few units, large weights: most of the path runs where every gradient is zero
    net = relu_mlp(3, hidden=3, seed=seed)
    with torch.no_grad():
        for layer in (net[0], net[2]):
            layer.weight *= 5
            layer.bias -= 1
    x, references = data(2, 3, seed=seed), data(2, 3, seed=seed + 1)
    model = ig2.wrap(net, bounds=(-1, 1) if bounded else None)
    assert residual(ig2.IG2(10, step_size, rule=rule), model, x, references) < 1e-12


def test_a_pair_that_has_arrived_stays():
    # the toy's output reaches that of the reference exactly: no gradient of the distance, no further step, no NaN
    x, reference = torch.tensor([[2.0, 0.0]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    for distance in (paths.euclidean, paths.manhattan):
        for norm in (paths.L2(), paths.SparseL1(50)):
            path = paths.GradPath(20, 0.25, distance, norm)
            found = ig2.PathMethod(path, rule=rules.trapezoid)(Toy(), x, 0, reference, paths=True)
            assert (found.paths[0, 0, 8:] == 0).all()
            assert found.values[0].tolist() == [2.0, 0.0]
