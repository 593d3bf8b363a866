"""The engine against the slow replicas of `replicas.py`: every path, distance, step, rule and bound."""

import functools

import numpy as np
import pytest
import torch

import ig2
import replicas
from ig2 import paths, rules
from networks import data, multi_label, relu_cnn, relu_mlp, tanh_mlp

TOLERANCE = 1e-9
RULES = {
    rules.left: replicas.left,
    rules.right: replicas.right,
    rules.midpoint: replicas.midpoint,
    rules.trapezoid: replicas.trapezoid,
    rules.gauss(1): replicas.gauss(1),
    rules.gauss(3): replicas.gauss(3),
    rules.direct: replicas.direct,
    rules.shared: replicas.shared,
    rules.aligned: replicas.aligned,
    rules.blended: replicas.blended,
    rules.tempered: replicas.tempered,
    rules.scaled(rules.left): replicas.scaled(replicas.left),
    rules.scaled(rules.gauss(2)): replicas.scaled(replicas.gauss(2)),
    rules.scaled(rules.shared): replicas.shared,  # complete already, so the factor is one
}
BOUNDS = (-0.9, 0.9)


def gradpath(measure=replicas.squared_norm, step=replicas.euclidean_step, bounds=None, steps=20, step_size=0.12):
    return lambda network, x, reference: replicas.gradpath(network, x, reference, steps, step_size, measure, step, bounds)


def guided(steps, fraction, max_dist):
    return lambda network, x, baseline: replicas.guided(network, x, baseline, steps, fraction, max_dist)[0]


def blur(steps, sigma, mode):
    return lambda network, x, _: replicas.blur(x, steps, sigma, mode)


CORNERS = data(4, 6, seed=11)
IMAGES = data(4, 2, 8, 8, seed=12)
PATHS = {
    "straight": (paths.Straight(7), lambda _, x, reference: replicas.straight(x, reference, 7)),
    "one segment": (paths.Straight(1), lambda _, x, reference: replicas.straight(x, reference, 1)),
    "gradpath": (paths.GradPath(20, 0.12), gradpath()),
    "gradpath, norm not squared": (paths.GradPath(20, 0.12), gradpath(replicas.plain_norm)),
    "gradpath, cosine": (paths.GradPath(20, 0.12, paths.cosine), gradpath(replicas.one_minus_cosine)),
    "gradpath, manhattan": (paths.GradPath(20, 0.12, paths.manhattan), gradpath(replicas.sum_of_absolutes)),
    "gradpath, bounds": (paths.GradPath(20, 0.12), gradpath(bounds=BOUNDS)),
    "gradpath, cosine, bounds": (paths.GradPath(20, 0.12, paths.cosine), gradpath(replicas.one_minus_cosine, bounds=BOUNDS)),
    **{
        f"gradpath, sparse {q}{', bounds' * bool(bounds)}": (
            paths.GradPath(20, 0.12, norm=paths.SparseL1(q)),
            gradpath(step=replicas.sparse_step(q), bounds=bounds),
        )
        for q in (0, 30, 60, 98.5)
        for bounds in (None, BOUNDS)
    },
    "gradpath, sparse, manhattan": (
        paths.GradPath(20, 0.12, paths.manhattan, paths.SparseL1(50)),
        gradpath(replicas.sum_of_absolutes, replicas.sparse_step(50)),
    ),
    "guided": (paths.Guided(20), guided(20, 0.25, 0.02)),
    "guided, wide": (paths.Guided(15, 0.1, 0.3), guided(15, 0.1, 0.3)),
    "guided, half at a time": (paths.Guided(15, 0.5, 0.1), guided(15, 0.5, 0.1)),
    "guided, no window": (paths.Guided(10, 0.25, 1.0), guided(10, 0.25, 1.0)),
    "guided, on the line": (paths.Guided(10, 0.25, 0.0), guided(10, 0.25, 0.0)),
    "polyline": (paths.Polyline(CORNERS), lambda _, x, __: [x, *CORNERS.numpy()]),
    "blur": (paths.Blur(6, 3.0), blur(6, 3.0, "reflect")),
    "blur past the edges": (paths.Blur(5, 50.0), blur(5, 50.0, "reflect")),
    "blur, zero padding": (paths.Blur(6, 3.0, "zero"), blur(6, 3.0, "constant")),
    "blur, zero padding past the edges": (paths.Blur(5, 50.0, "zero"), blur(5, 50.0, "constant")),
}


class Remembering(replicas.Network):
    """Most rules ask for the same gradients: compute each once."""

    def __init__(self, network):
        super().__init__(network.score, network.represent, network.target)
        self.known = {}

    def gradient(self, point):
        key = point.tobytes()
        if key not in self.known:
            self.known[key] = super().gradient(point)
        return self.known[key]


@functools.cache
def setting(name, network):
    """A network, explicands and references far enough to meet the bounds, and the classes explained."""
    x, references = data(3, 6, seed=1, low=-0.9, high=0.9), data(2, 6, seed=2, low=-2.0, high=2.0)
    if name.startswith("blur") or network == "cnn":
        net, x, references = relu_cnn(), data(2, 2, 8, 8, seed=1, low=-0.9, high=0.9), data(2, 2, 8, 8, seed=2)
    else:
        net = {"tanh": tanh_mlp, "relu": relu_mlp}[network]()
    if not PATHS[name][0].uses_reference:
        references = references[:1]
    if name.endswith("bounds"):
        references = references.clamp(*BOUNDS)
    target = [2, 0, 1][: len(x)]
    return net, x, references, target


@functools.cache
def drawn(name, network):
    """The replica of each explicand's network, and its paths to the references."""
    net, x, references, target = setting(name, network)
    networks = [Remembering(replicas.sequential(net, t)) for t in target]
    draw = PATHS[name][1]
    return [
        (one, [draw(one, sample.numpy(), reference.numpy()) for reference in references])
        for one, sample in zip(networks, x, strict=True)
    ]


@functools.cache
def replica(name, network, rule):
    """Attributions (B, R, ...) by the replica."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = [[RULES[rule](one, points) for points in lines] for one, lines in drawn(name, network)]
    return torch.from_numpy(np.array(rows))


def engine(name, network, rule, **options):
    net, x, references, target = setting(name, network)
    model = ig2.wrap(net, bounds=BOUNDS if name.endswith("bounds") else None)
    return ig2.PathMethod(PATHS[name][0], rule=rule)(model, x, target, references, **options)


CASES = [(name, "tanh") for name in PATHS] + [
    (name, network)
    for network in ("relu", "cnn")
    for name in ("straight", "gradpath", "gradpath, cosine, bounds", "gradpath, sparse 60", "guided", "guided, wide")
]


# `make check` leaves out the convolutional network and the sparse steps
QUICK_CASES = [
    case if case[1] != "cnn" and "sparse" not in case[0] else pytest.param(*case, marks=pytest.mark.slow) for case in CASES
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize(("name", "network"), QUICK_CASES, ids=map(", ".join, CASES))
def test_attributions_equal_the_replica(name, network, rule):
    expected = replica(name, network, rule)
    found = engine(name, network, rule, per_reference=True)
    defined = expected.flatten(2).isfinite().all(dim=2)
    torch.testing.assert_close(found.per_reference[defined], expected[defined], rtol=0, atol=TOLERANCE)
    if not defined.all():
        assert rule.complete  # the others have no denominator
        return
    torch.testing.assert_close(found.values, expected.mean(dim=1), rtol=0, atol=TOLERANCE)
    if expected.shape[1] > 1:
        torch.testing.assert_close(found.spread, torch.from_numpy(np.std(expected.numpy(), axis=1, ddof=1)), rtol=0, atol=1e-9)
    else:
        assert found.spread is None


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.complete], ids=repr)
def test_the_replica_decides_most_cases(rule):
    defined = [replica(name, network, rule).flatten(2).isfinite().all(dim=2).flatten() for name, network in CASES]
    assert torch.cat(defined).double().mean() > 0.5


@pytest.mark.parametrize(("name", "network"), CASES, ids=map(", ".join, CASES))
def test_points_outputs_and_baselines_equal_the_replica(name, network):
    x = setting(name, network)[1]
    points = torch.from_numpy(np.array([lines for _, lines in drawn(name, network)]))
    outputs = torch.from_numpy(np.array([[[one.f(p) for p in line] for line in lines] for one, lines in drawn(name, network)]))
    found = engine(name, network, rules.left, paths=True, curves=True)
    torch.testing.assert_close(found.paths, points, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(found.output_curve, outputs, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(found.output, outputs[:, 0, 0], rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(found.baseline_outputs, outputs[:, :, -1], rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(found.baseline_output, outputs[:, :, -1].mean(dim=1), rtol=0, atol=TOLERANCE)
    if "gradpath" in name:
        torch.testing.assert_close(found.gradcf, points[:, :, -1], rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(found.gradcfe, x - points[:, :, -1].mean(dim=1), rtol=0, atol=TOLERANCE)
    if "bounds" in name:
        low, high = BOUNDS
        assert ((points == low) | (points == high)).any(), "the bounds were never met, so this case tests nothing"


@pytest.mark.parametrize(
    ("distance", "measure"),
    [
        (paths.euclidean, replicas.squared_norm),
        (paths.cosine, replicas.one_minus_cosine),
        (paths.manhattan, replicas.sum_of_absolutes),
    ],
)
def test_distances_along_the_path_equal_the_replica(distance, measure):
    net, x, reference = tanh_mlp(), data(1, 6, seed=1), data(1, 6, seed=2)
    network = replicas.sequential(net, 0)
    points = replicas.gradpath(network, x[0].numpy(), reference[0].numpy(), 20, 0.12, measure)
    expected = torch.tensor([network.distance(p, reference[0].numpy(), measure) for p in points], dtype=torch.float64)
    found = ig2.IG2(20, 0.12, distance=distance)(net, x, 0, reference, curves=True)
    torch.testing.assert_close(found.distance_curve[0, 0], expected, rtol=0, atol=TOLERANCE)
    assert expected[-1] < 0.5 * expected[0]


@pytest.mark.parametrize("size", [2, 5, 9, 65])
@pytest.mark.parametrize("percentile", [0, 12.5, 25, 50, 62.5, 75, 87.5, 93.75, 99, 99.9])
def test_the_sparse_set_is_that_of_the_percentile(size, percentile):
    # among them percentiles that fall on an entry exactly
    gradient = data(4, size, seed=3)
    expected = np.stack([-replicas.sparse_step(percentile)(row) for row in gradient.numpy()])
    found = paths.SparseL1(percentile).direction(gradient)
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=0, atol=1e-15)


def test_references_of_each_explicand_its_own():
    net, x, references = tanh_mlp(), data(3, 6, seed=1), data(3, 4, 6, seed=2)
    found = ig2.IG2(10, 0.1, rules.left)(net, x, 1, references, per_reference=True)
    network = replicas.sequential(net, 1)
    for i in range(3):
        for j in range(4):
            points = replicas.gradpath(network, x[i].numpy(), references[i, j].numpy(), 10, 0.1)
            expected = torch.from_numpy(replicas.left(network, points))
            torch.testing.assert_close(found.per_reference[i, j], expected, rtol=0, atol=TOLERANCE)


def test_multi_label_network_and_a_representation_by_name():
    net, x, references = multi_label(), data(3, 6, seed=1), data(2, 6, seed=2)
    for where, cut in [(None, 2), ("2:input", 2), ("0", 1), ("1", 2), ("output", 4)]:
        network = replicas.sequential(net, 3, cut)
        found = ig2.IG2(10, 0.1, rules.left)(ig2.wrap(net, representation=where), x, 3, references)
        for i in range(3):
            rows = [
                replicas.left(network, replicas.gradpath(network, x[i].numpy(), reference.numpy(), 10, 0.1))
                for reference in references
            ]
            torch.testing.assert_close(found.values[i], torch.from_numpy(np.mean(rows, axis=0)), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("output", ["probability", "log-probability", "sigmoid"])
def test_other_outputs_and_preprocessing(output):
    # steps and attributions are in the space of x, not in the one the network sees
    net, x, references = tanh_mlp(), data(2, 6, seed=1, low=0, high=255), data(2, 6, seed=2, low=0, high=255)
    scores = {"probability": lambda z: z.softmax(1), "log-probability": lambda z: z.log_softmax(1), "sigmoid": torch.sigmoid}

    def normalise(pixels):
        return (pixels / 255 - 0.5) / 0.25

    network = replicas.Network(
        lambda pixels: scores[output](net(normalise(pixels))), lambda pixels: net[:-1](normalise(pixels)), 1
    )
    model = ig2.wrap(net, output=output, preprocess=normalise, bounds=(0, 255))
    found = ig2.IG2(12, 20.0, rules.left)(model, x, 1, references, per_reference=True)
    for i in range(2):
        for j in range(2):
            points = replicas.gradpath(network, x[i].numpy(), references[j].numpy(), 12, 20.0, bounds=(0, 255))
            expected = torch.from_numpy(replicas.left(network, points))
            torch.testing.assert_close(found.per_reference[i, j], expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["straight", "guided"])
def test_gradcf_as_the_baseline_of_another_path(name):
    net, x, references, target = setting(name, "tanh")
    path, draw = PATHS[name]
    method = ig2.PathMethod(path, ig2.references.GradCF(references, paths.GradPath(20, 0.12)), rules.trapezoid)
    found = method(net, x, target, per_reference=True)
    for i, (network, lines) in enumerate(drawn("gradpath", "tanh")):
        for j, line in enumerate(lines):
            expected = replicas.trapezoid(network, draw(network, x[i].numpy(), line[-1]))
            torch.testing.assert_close(found.per_reference[i, j], torch.from_numpy(expected), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("network", ["tanh", "cnn"])
def test_polyline_of_each_explicand_its_own(network):
    net, x, _, target = setting("straight", network)
    lines = torch.stack([data(3, *x.shape[1:], seed=20 + i) for i in range(len(x))])
    found = ig2.PathMethod(paths.Polyline(lines, per_explicand=True), rule=rules.trapezoid)(net, x, target)
    for i in range(len(x)):
        points = [x[i].numpy(), *lines[i].numpy()]
        expected = replicas.trapezoid(replicas.sequential(net, target[i]), points)
        torch.testing.assert_close(found.values[i], torch.from_numpy(expected), rtol=0, atol=TOLERANCE)


# -- Guided IG ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_dist", [0.0, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("network", ["tanh", "relu", "cnn"])
def test_guided_ig_is_the_published_sum(network, max_dist):
    """A batch equals the replica one by one, with features that do not differ from their baseline among them."""
    net, x, references, target = setting("straight", network)
    x = x.clone()
    x.view(len(x), -1)[1, :2] = references[0].flatten()[:2]
    found = ig2.GuidedIG(steps=15, max_dist=max_dist)(net, x, target, references, per_reference=True)
    for i in range(len(x)):
        for j in range(2):
            _, expected = replicas.guided(
                replicas.sequential(net, target[i]), x[i].numpy(), references[j].numpy(), 15, 0.25, max_dist
            )
            torch.testing.assert_close(found.per_reference[i, j], torch.from_numpy(expected), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("network", ["tanh", "relu", "cnn"])
def test_guided_ig_without_a_window_is_the_straight_sum_counted_from_the_baseline(network):
    net, x, references, target = setting("straight", network)
    guided = ig2.GuidedIG(steps=15, max_dist=0.0)(net, x, target, references)
    straight = ig2.PathMethod(paths.Straight(15), rule=rules.right)(net, x, target, references)
    torch.testing.assert_close(guided.values, straight.values, rtol=0, atol=TOLERANCE)
    other = ig2.PathMethod(paths.Straight(15), rule=rules.left)(net, x, target, references)
    assert (guided.values - other.values).abs().max() > 1e-4


def test_guided_ig_does_not_depend_on_the_unit_of_the_data():
    net, x, references = tanh_mlp(), data(2, 6, seed=1), data(1, 6, seed=2)
    expected = ig2.GuidedIG(steps=10, max_dist=0.2)(net, x, 1, references).values
    for unit in (1e3, 1e-6, 1e-9):
        model = ig2.wrap(lambda scaled, unit=unit: net(scaled / unit), representation="output")
        found = ig2.GuidedIG(steps=10, max_dist=0.2)(model, x * unit, 1, references * unit).values
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


# -- the authors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["tanh", "relu", "cnn"])
def test_left_rule_equals_the_authors_algorithm(network):
    net, x, references, target = setting("straight", network)
    found = ig2.IG2(steps=25, step_size=0.1, rule=rules.left)(net, x, target, references)
    before = [(p.requires_grad, p.grad) for p in net.parameters()]
    for i in range(len(x)):
        attribution, difference = replicas.authors_ig2(net, x[i].numpy(), references.numpy(), target[i], 25, 0.1)
        torch.testing.assert_close(found.values[i], torch.from_numpy(attribution), rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(found.gradcfe[i], torch.from_numpy(difference), rtol=0, atol=TOLERANCE)
    assert before == [(p.requires_grad, p.grad) for p in net.parameters()]


def test_the_authors_algorithm_fails_where_ours_stays():
    # one reference equal to the explicand: 0/0 in theirs, a pair that has arrived in ours
    net, x = tanh_mlp(), data(1, 6, seed=1)
    with np.errstate(invalid="ignore"):
        attribution, _ = replicas.authors_ig2(net, x[0].numpy(), x.numpy(), 0, 5, 0.1)
    assert np.isnan(attribution).all()
    found = ig2.IG2(5, 0.1)(net, x, 0, x)
    assert (found.values == 0).all() and (found.residual == 0).all()


# -- the replicas themselves -------------------------------------------------------------------------------------------


def test_the_replicas_gradients_are_those_of_finite_differences():
    network = replicas.sequential(tanh_mlp(), 1)
    x, reference = data(6, seed=1).numpy(), data(6, seed=2).numpy()
    for value, gradient in [
        (network.f, network.gradient(x)),
        *(
            (lambda p, m=m: network.distance(p, reference, m), network.distance_gradient(x, reference, m))
            for m in (replicas.squared_norm, replicas.plain_norm, replicas.one_minus_cosine, replicas.sum_of_absolutes)
        ),
    ]:
        nudges = np.eye(6) * 1e-6
        slopes = [(value(x + nudge) - value(x - nudge)) / 2e-6 for nudge in nudges]
        np.testing.assert_allclose(gradient, slopes, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("fraction", "moving"), [(0.0, 1), (0.2, 1), (0.25, 2), (0.49, 2), (0.5, 3), (0.74, 3), (0.75, 4), (1.0, 5)]
)
def test_a_guided_step_moves_the_features_up_to_the_lower_quantile(fraction, moving):
    """Guards against a rank of the next entry, or of a share of all five features instead of the four places between them."""
    weight = torch.tensor([[3.0, 1.0, 5.0, 2.0, 4.0]], dtype=torch.float64)
    x, path = torch.ones(1, 5, dtype=torch.float64), paths.Guided(10, fraction, 1.0)
    found = ig2.PathMethod(path, rule=rules.right)(lambda z: z @ weight.T, x, references=0, paths=True)
    first = found.paths[0, 0, -2]  # the baseline is the last vertex
    torch.testing.assert_close(first, (weight[0] <= moving) * (0.5 / moving), check_dtype=False)
