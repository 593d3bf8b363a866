"""Answers known in closed form."""

import math

import captum.attr
import numpy as np
import pytest
import torch

import ig2
from ig2 import paths, rules
from ig2.references import Zeros
from networks import Polynomial, Toy, data, relu_cnn, tanh_mlp, two_layer_linear

QUADRATURES = [rules.left, rules.right, rules.midpoint, rules.trapezoid, *(rules.gauss(n) for n in (1, 2, 3, 8, 50))]
SHARING = [rules.direct, rules.shared, rules.aligned, rules.tempered, rules.blended]
COMPLETE = [*SHARING, *map(rules.scaled, (rules.left, rules.gauss(2)))]


def close(found, expected, atol=1e-12):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype).expand_as(found), rtol=0, atol=atol)


# -- the paper's toy: y = max(x₁, x₂ − 1), explicand (3, 3), reference (0, 0) ------------------------------------------

EXPLICAND = torch.tensor([[3.0, 3.0]], dtype=torch.float64)
REFERENCE = torch.zeros(1, 2, dtype=torch.float64)
STEP_SIZES = [0.3, 0.1, 0.03, 0.01]


def toy(rule, step_size):
    steps = math.ceil(6 / step_size)  # the way is 5 long: 1 along x₁, then 2 along each, alternating
    return ig2.IG2(steps=steps, step_size=step_size, rule=rule)(ig2.wrap(Toy()), EXPLICAND, references=REFERENCE, curves=True)


@pytest.mark.parametrize("step_size", STEP_SIZES)
def test_toy_trapezoid_gives_2_1_and_left_3_2_which_is_off_by_2(step_size):
    found = toy(rules.trapezoid, step_size)
    close(found.values[0], [2.0, 1.0], atol=step_size)
    assert abs(float(found.residual)) < step_size
    found = toy(rules.left, step_size)
    close(found.values[0], [3.0, 2.0], atol=step_size)
    assert float(found.residual) == pytest.approx(2.0, abs=2 * step_size)
    assert "NOT" in found.verdict
    # GradCF is (0, 1) with either
    close(found.gradcf[0, 0], [0.0, 1.0], atol=step_size)
    close(found.gradcfe[0], [3.0, 2.0], atol=step_size)
    close(found.baseline_output, 0.0, atol=step_size)
    assert found.distance_curve[0, 0, 0] == 9.0


@pytest.mark.slow
@pytest.mark.parametrize("rule", COMPLETE, ids=repr)
def test_toy_complete_rules_sum_to_3(rule):
    found = toy(rule, 0.01)
    assert abs(float(found.residual)) < 1e-12
    assert float(found.total) == pytest.approx(3.0, abs=0.01)


@pytest.mark.parametrize("rule", [None, *QUADRATURES, *COMPLETE], ids=repr)
def test_toy_integrated_gradients_see_the_first_feature_alone(rule):
    # at the baseline x₁ = 0 > x₂ − 1 = −1, so that the second feature is never the larger one
    found = ig2.IntegratedGradients(steps=20, rule=rule)(ig2.wrap(Toy()), EXPLICAND)
    close(found.values[0], [3.0, 0.0])


def test_toy_bounds_end_the_path_early():
    model = ig2.wrap(Toy(), bounds=(1.5, 4.0))
    found = ig2.IG2(steps=600, step_size=0.01, rule=rules.trapezoid)(model, EXPLICAND, references=Zeros())
    close(found.gradcf[0, 0], [1.5, 2.5], atol=0.01)
    close(found.values[0], [1.25, 0.25], atol=0.01)


# -- linear networks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [paths.Straight(1), paths.Straight(7), paths.Guided(9)], ids=repr)
@pytest.mark.parametrize("rule", QUADRATURES, ids=repr)
def test_every_quadrature_rule_is_exact_on_a_linear_network(path, rule):
    first, second = data(4, 5, seed=1), data(3, 4, seed=2)
    weight = second @ first
    x, references = data(2, 5, seed=3), data(3, 5, seed=4)
    target = torch.tensor([2, 0])
    found = ig2.PathMethod(path, rule=rule)(two_layer_linear(first, second), x, target, references, per_reference=True)
    close(found.per_reference, weight[target][:, None] * (x[:, None] - references))
    close(found.values, weight[target] * (x - references.mean(dim=0)))
    close(found.residual, 0.0)


def test_scaling_changes_nothing_where_the_sum_was_right():
    first, second, x, references = data(4, 5, seed=1), data(3, 4, seed=2), data(2, 5, seed=3), data(3, 5, seed=4)
    plain = ig2.PathMethod(paths.Straight(5), rule=rules.left)(two_layer_linear(first, second), x, 1, references)
    scaled = ig2.PathMethod(paths.Straight(5), rule=rules.scaled(rules.left))(two_layer_linear(first, second), x, 1, references)
    close(scaled.values, plain.values)


def test_scaling_turns_no_signs_and_blows_up_no_sum_that_cancels():
    """Guards against a factor below zero, or one through a sum of next to nothing: `complete` hands out what is missing."""
    values, moved = torch.tensor([[3.0, -1.0], [1000.5, -1000.0]]).double(), torch.ones(2, 2).double()
    found = rules.scaled(rules.left).finish(values, torch.tensor([-2.0, 1.0]).double(), moved)
    close(found[0], torch.tensor([0.0, -2.0]).double())  # not −3 and 1
    close(found[1], torch.tensor([1000.5, -1000.0]).double() + 0.5 * torch.tensor([1000.5, 1000.0]).double() / 2000.5)
    close(found.sum(dim=1), torch.tensor([-2.0, 1.0]).double())


def test_sharing_rules_on_a_linear_network():
    weight = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
    x, references = torch.tensor([[2.0, 1.0, 1.0]], dtype=torch.float64), torch.zeros(1, 3, dtype=torch.float64)
    # c = w ⊙ (x − x') = (2, −2, 3), Δf = 3, w² = (1, 4, 9)
    expected = {
        rules.direct: [3 / 14, 12 / 14, 27 / 14],
        rules.shared: [6 / 5, 0.0, 9 / 5],
        rules.aligned: [6 / 5, 0.0, 9 / 5],
        rules.tempered: [2.0, -2.0, 3.0],  # the linear prediction is right, so it is trusted wholly
        rules.blended: [2.0, -2.0, 3.0],
    }
    for rule, values in expected.items():
        found = ig2.PathMethod(paths.Straight(4), rule=rule)(
            two_layer_linear(torch.eye(3, dtype=torch.float64), weight), x, references=references
        )
        close(found.values[0], values)


def test_where_the_output_rises_on_the_way_aligned_pays_those_that_made_it_rise():
    # f = 3a − b at (−1, −1): −2, and 0 at the baseline. a took 3 away, b gave 1 back.
    x, zero = -torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    for rule, values in (
        (rules.aligned, [-2.0, 0.0]),
        (rules.shared, [0.0, -2.0]),
        (rules.tempered, [-3.0, 1.0]),
        (rules.blended, [-3.0, 1.0]),
    ):
        found = ig2.PathMethod(paths.Straight(3), rule=rule)(lambda x: 3 * x[:, :1] - x[:, 1:], x, references=zero)
        close(found.values[0], values)


def test_blended_goes_from_the_published_sum_to_shared_as_the_gradient_predicts_less():
    # f = 3a − b + k·a²b² loses 2 + k on the way from (1, 1) to zero, in one step; there its gradient is (3 + 2k, −1 + 2k)
    x, zero = torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    for k in (0.0, 0.1, -0.2, -0.3, -0.5, -4.0):
        change, product = 2 + k, torch.tensor([3 + 2 * k, -1 + 2 * k], dtype=torch.float64)
        trust = max(0.0, 1 - (change - float(product.sum())) ** 2 / change**2)
        agreeing = product.clamp(min=0) if k > -1.5 else product.abs()  # where nothing agrees, all count alike
        expected = trust * product + (change - trust * product.sum()) * agreeing / agreeing.sum()
        found = ig2.PathMethod(paths.Straight(1), rule=rules.blended)(
            lambda x, k=k: 3 * x[:, :1] - x[:, 1:] + k * (x[:, :1] * x[:, 1:]) ** 2, x, references=zero
        )
        close(found.values[0], expected)
        close(found.values.sum(), change)
        close(found.trust, [[trust]])


def test_blended_trusts_the_gradient_as_far_as_the_whole_path_bears_it_out():
    """One segment on which it is right by chance does not bring the signs back."""
    x, references = data(4, 6, seed=3), data(3, 6, seed=4)
    rough = lambda x: (40 * x).sin().sum(dim=1, keepdim=True)  # noqa: E731
    each = {
        rule: ig2.PathMethod(paths.Straight(11), rule=rule)(rough, x, references=references)
        for rule in (rules.blended, rules.shared)
    }
    close(each[rules.blended].values, each[rules.shared].values)
    assert (each[rules.blended].trust == 0).all() and each[rules.shared].trust is None


def test_gradpath_on_a_linear_representation_runs_straight_to_the_projection():
    # Where the rows of A are orthonormal, ∇‖A(p − xʳ)‖² = 2 AᵀA(p − xʳ): the part of x − xʳ that A sees, whose direction
    # never changes on the way.
    rows = torch.linalg.qr(data(6, 3, seed=5))[0].T.contiguous()
    second = data(2, 3, seed=6)
    x, reference = data(1, 6, seed=7), data(1, 6, seed=8)
    seen = (x - reference) @ rows.T @ rows
    length = float(seen.norm())
    for share in (0.1, 0.5, 1.0):
        path = paths.GradPath(10, share * length / 10)
        found = ig2.PathMethod(path, rule=rules.left)(two_layer_linear(rows, second), x, 0, reference)
        close(found.gradcf[0], x - share * seen, atol=1e-9)
        close(found.values, share * seen * (second @ rows)[0], atol=1e-9)
    # a representation with one feature: straight along its weights, to and fro once the distance is below a step
    direction = data(1, 6, seed=9)
    gap = float((x - reference) @ direction.T)
    unit = direction / direction.norm()
    found = ig2.GradCFE(steps=3, step_size=0.01)(two_layer_linear(direction, second[:, :1]), x, 0, reference)
    close(found.values, 0.03 * math.copysign(1, gap) * unit)


@pytest.mark.parametrize("activation", [lambda z: z, torch.relu, torch.exp])
@pytest.mark.parametrize("rule", [rules.left, rules.blended, rules.gauss(3)], ids=repr)
def test_behind_a_single_number_shares_go_as_the_squared_weights_and_not_as_baseline_semantics(activation, rule):
    """GradPath moves along w, so that ∂ᵢf Δᵢ goes as wᵢ²; docs/semantics.md says so."""
    w, x, baseline = (
        torch.tensor([3.0, 1.0, -2.0, 0.0]).double(),
        data(3, 4, seed=1, low=0.5),
        data(1, 4, seed=2, low=-0.1, high=0.1),
    )
    x[:, 0] += 2  # above the kink of a ReLU
    model = ig2.wrap(lambda x: activation(x @ w), representation="output")
    values = ig2.IG2(steps=40, rule=rule)(model, x, references=baseline).values
    shares = values / values.sum(dim=1, keepdim=True)
    torch.testing.assert_close(shares, (w.square() / w.square().sum()).expand(3, 4), rtol=0, atol=1e-9)
    contributions = ig2.IntegratedGradients()(lambda x: x @ w, x, references=baseline).values
    torch.testing.assert_close(contributions, w * (x - baseline))


def test_where_the_representation_is_the_input_ig2_is_integrated_gradients_on_a_linear_network():
    net, x, baseline = two_layer_linear(torch.eye(4).double(), data(2, 4, seed=3)), data(3, 4, seed=1), data(1, 4, seed=2)
    values = ig2.IG2(steps=40)(net, x, target=1, references=baseline).values
    torch.testing.assert_close(values, ig2.IntegratedGradients()(net, x, target=1, references=baseline).values)


@pytest.mark.parametrize(
    ("weight", "percentile", "moved"),
    [
        ([1.0, -4.0, 2.0, 3.0, -5.0], 0, [1, -1, 1, 1, -1]),
        ([1.0, -4.0, 2.0, 3.0, -5.0], 50, [0, -1, 0, 1, -1]),
        ([1.0, -4.0, 2.0, 3.0, -5.0], 60, [0, -1, 0, 0, -1]),
        ([1.0, -4.0, 2.0, 3.0, -5.0], 75, [0, -1, 0, 0, -1]),
        ([1.0, -4.0, 2.0, 3.0, -5.0], 76, [0, 0, 0, 0, -1]),
        ([1.0, -4.0, 2.0, 3.0, -5.0], 99, [0, 0, 0, 0, -1]),
        # in the paper |S| is the ℓ1 norm of the signed vector: features without a gradient do not count
        ([0.0, 0.0, 0.0, 2.0, -1.0], 25, [0, 0, 0, -1, 1]),
    ],
)
def test_one_sparse_step_moves_the_top_features_alike(weight, percentile, moved):
    # ∇ = 2·(w·(p − xʳ))·w: the order of |w| decides, and the sign of w·(x − xʳ), −3 and 1
    x, reference = torch.ones(1, 5, dtype=torch.float64), torch.zeros(1, 5, dtype=torch.float64)
    net = two_layer_linear(torch.tensor([weight], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
    step = torch.tensor(moved, dtype=torch.float64)
    found = ig2.GradCFE(steps=1, step_size=0.6, norm=paths.SparseL1(percentile))(net, x, 0, reference)
    close(found.gradcf[0, 0], x[0] + 0.6 * step / step.abs().sum())


def test_the_default_steps_together_are_as_long_as_the_straight_line():
    x, reference = data(1, 6, seed=7), data(1, 6, seed=8)
    for norm, order in [(paths.L2(), 2), (paths.SparseL1(50), 1)]:
        path = ig2.GradCFE(steps=25, norm=norm)(tanh_mlp(), x, 0, reference, paths=True).paths[0, 0]
        lengths = (path[1:] - path[:-1]).norm(p=order, dim=1)
        close(lengths, float((x - reference).norm(p=order)) / 25)


# -- rules -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_gauss_is_exact_up_to_its_degree_and_not_one_degree_later(n):
    coefficients = data(4, seed=1)
    x, reference = data(2, 4, seed=2), data(1, 4, seed=3)

    def error(degree):
        # the gradient of a polynomial of one degree more has `degree`, on the single segment too
        net = Polynomial(coefficients, degree + 1)
        found = ig2.PathMethod(paths.Straight(1), rule=rules.gauss(n))(net, x, references=reference)
        return float((found.values - coefficients * (x ** (degree + 1) - reference ** (degree + 1))).abs().max())

    assert max(error(degree) for degree in range(2 * n)) < 1e-14
    assert error(2 * n) > 1e-5


def test_the_other_rules_are_exact_up_to_their_degree_and_not_one_degree_later():
    coefficients, x, reference = data(4, seed=1), data(2, 4, seed=2), data(1, 4, seed=3)
    for rule, degree in [(rules.left, 0), (rules.right, 0), (rules.midpoint, 1), (rules.trapezoid, 1)]:
        for power in (degree + 1, degree + 2):
            net = Polynomial(coefficients, power)
            found = ig2.PathMethod(paths.Straight(3), rule=rule)(net, x, references=reference)
            error = float((found.values - coefficients * (x**power - reference**power)).abs().max())
            assert (error < 1e-14) == (power == degree + 1), (rule, power, error)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [*QUADRATURES, rules.gauss(500)], ids=repr)
def test_weights_sum_to_one_and_the_tables_are_those_of_the_books(rule):
    assert math.fsum(rule.weights) == pytest.approx(1.0, abs=1e-15)
    n = len(rule.nodes)
    if rule.name.startswith("gauss"):
        nodes, weights = np.polynomial.legendre.leggauss(n)
        np.testing.assert_allclose(sorted(rule.nodes), (nodes + 1) / 2, rtol=0, atol=1e-15)
        np.testing.assert_allclose(rule.weights, weights / 2, rtol=0, atol=1e-15)
        # Σ wᵢ tᵢᵐ is the integral of tᵐ over [0, 1], 1/(m + 1), to degree 2n − 1 and no further
        for m in range(min(2 * n, 20)):
            assert math.fsum(w * t**m for t, w in zip(rule.nodes, rule.weights, strict=True)) == pytest.approx(1 / (m + 1))


def test_a_table_whose_weights_do_not_sum_to_one_is_refused():
    # captum's trapezoid weights sum to (n − 1)/n
    with pytest.raises(ig2.InputError, match="sum to one"):
        rules.Quadrature("captum", (0.0, 0.5, 1.0), (1 / 6, 1 / 3, 1 / 6))


# -- other libraries ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("net", "x"), [(tanh_mlp(), data(4, 6, seed=1)), (relu_cnn(), data(4, 2, 8, 8, seed=1))], ids=["mlp", "cnn"]
)
def test_equal_to_captum(net, x):
    target = torch.tensor([0, 1, 2, 0])
    expected = captum.attr.IntegratedGradients(net).attribute(x, 0, target, n_steps=50, method="gausslegendre")
    found = ig2.IntegratedGradients(steps=50)(net, x, target)
    close(found.values, expected, atol=1e-7)
    baselines = data(*x.shape, seed=2)
    expected = captum.attr.IntegratedGradients(net).attribute(x, baselines, target, n_steps=50, method="gausslegendre")
    found = ig2.IntegratedGradients(steps=50)(net, x, target, baselines[:, None])
    close(found.values, expected, atol=1e-7)
    other = ig2.IntegratedGradients(steps=50, rule=rules.midpoint)(net, x, target, baselines[:, None])
    assert (other.values - expected).abs().max() > 1e-7  # close is not equal
