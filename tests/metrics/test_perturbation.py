"""Faithfulness, monotonicity, infidelity and max-sensitivity: slow replicas, closed forms, ends, and Captum."""

import math

import captum.metrics
import numpy as np
import pytest
import torch

import ig2
from ig2.errors import IG2Warning, InputError, ModelError
from ig2.methods.gradient import Gradient, InputXGradient
from ig2.methods.random import Random
from ig2.metrics import conditional as conditional_module
from ig2.metrics.conditional import Conditional, ConstantFill, Marginal, average_outputs
from ig2.metrics.correlation import order_features
from ig2.metrics.faithfulness import Faithfulness, Monotonicity
from ig2.metrics.gaussian import Gaussian
from ig2.metrics.infidelity import Infidelity, NearZero, Noise
from ig2.metrics.sensitivity import MaxSensitivity
from ig2.references import RandomSamples
from ig2_bench.metrics.monotonicity import PublishedMonotonicity
from networks import Polynomial, data, relu_cnn, tanh_mlp

NET = tanh_mlp(5, classes=2)
X = data(7, 5, seed=1, low=-2, high=2)
DATA = data(9, 5, seed=2)
VALUES = data(7, 5, seed=3)
BACKGROUND = Marginal(DATA)  # nine draws of it are all of it
WEIGHTS = torch.tensor([3.0, -1.0, 0.5, 2.0, -0.25], dtype=torch.float64)
MEANS = torch.tensor([0.3, -0.2, 0.1, 0.0, 0.5], dtype=torch.float64)


def linear(x):
    return x @ WEIGHTS


def total(x):
    return x.sum(dim=1)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def masks(*shape, seed=0):
    return torch.rand(*shape, generator=generator(seed)) < 0.5


@pytest.mark.parametrize("distribution", [BACKGROUND, ConstantFill(0.7), ConstantFill(MEANS), Gaussian.correlated(5, 0.4)])
def test_known_features_are_kept_and_the_noise_of_a_row_does_not_depend_on_the_others(distribution):
    known = masks(7, 5)
    drawn = distribution.draw(X, known, 6, generator())
    assert drawn.shape == (7, 6, 5)
    assert torch.equal(drawn == X[:, None], known[:, None].expand_as(drawn))
    assert torch.allclose(distribution.draw(X[4:5], known[4:5], 6, generator()), drawn[4:5], atol=1e-14)


def test_marginal_takes_whole_rows_of_the_data_each_as_often_and_a_constant_its_value():
    nothing, known = torch.zeros(1, 5, dtype=torch.bool), masks(7, 5)
    drawn = BACKGROUND.draw(X[:1], nothing, 18, generator())[0]
    assert (drawn[:, None] == DATA).all(dim=-1).sum(dim=0).tolist() == [2] * 9
    assert not torch.equal(drawn, BACKGROUND.draw(X[:1], nothing, 18, generator(1))[0])
    for value in (0.7, MEANS):
        drawn = ConstantFill(value).draw(X, known, 3, generator())
        assert torch.equal(drawn, torch.where(known, X, torch.as_tensor(value, dtype=X.dtype))[:, None].expand(7, 3, 5))


def test_expected_output_of_a_linear_model_is_its_output_at_the_conditional_mean(monkeypatch):
    distribution, known = Gaussian.correlated(5, 0.6), masks(4, 5)
    found = average_outputs(lambda points, rows: linear(points), X, known, distribution, 20000, 0)
    rows = X[:, None].expand(7, 4, 5).reshape(-1, 5)
    assert torch.allclose(found, linear(distribution.expect(rows, known.repeat(7, 1))).view(7, 4), atol=0.05)
    # and is not, had the others been drawn as if nothing were known
    assert not torch.allclose(found, linear(torch.where(known, X[:, None], 0.0)), atol=0.05)
    # whatever is drawn at once
    arguments = lambda points, rows: linear(points) * (rows + 1), X, known, distribution, 10, 3
    whole = average_outputs(*arguments)
    monkeypatch.setattr(conditional_module, "MOST_NUMBERS", 120)
    assert torch.allclose(average_outputs(*arguments), whole, atol=1e-14)


def test_conditionals_refuse_what_they_cannot_use():
    calls = [("data", lambda wrong=wrong: Marginal(wrong)) for wrong in (X[0], X[:0], X * math.nan, [[1.0]])]
    calls += [("value", lambda wrong=wrong: ConstantFill(wrong)) for wrong in (math.inf, "black", X, True)]
    for narrow in (Marginal(DATA[:, :3]), ConstantFill(torch.zeros(3))):
        calls.append((r"5 features and .* 3", lambda narrow=narrow: Faithfulness(narrow)(NET, VALUES, X)))
    for message, call in calls:
        with pytest.raises(InputError, match=message):
            call()


def test_ties_in_an_order_are_broken_by_the_seed():
    assert order_features(torch.tensor([[3.0, 1.0, 2.0, 4.0]]), generator()).tolist() == [[1, 2, 0, 3]]
    tied = torch.tensor([[1.0, 1.0, 1.0, 0.0, 1.0, 2.0]])
    orders = [tuple(order_features(tied, generator(seed))[0].tolist()) for seed in (*range(60), 0)]
    assert all(order[0] == 3 and order[-1] == 5 for order in orders)
    assert len(set(orders)) > 12  # of 24
    assert orders[0] == orders[-1]


def output(row, target):
    return float(NET(torch.from_numpy(row)[None])[0, target].detach())


def slow_faithfulness(x, values, background, target):
    scores = []
    for row, phi, k in zip(x.numpy(), values.numpy(), target, strict=True):
        change = np.zeros(5)
        for j in range(5):
            for other in background.numpy():
                moved = row.copy()
                moved[j] = other[j]
                change[j] += output(moved, k) / len(background)
        scores.append(np.corrcoef(np.abs(phi), np.abs(output(row, k) - change))[0, 1])
    return torch.tensor(scores)


def test_faithfulness_is_its_definition():
    scores, other = (Faithfulness(BACKGROUND, draws=9)(NET, VALUES, X, target) for target in (None, 0))
    assert torch.allclose(scores.values, slow_faithfulness(X, VALUES, DATA, NET(X).argmax(dim=1)), atol=1e-12)
    assert torch.allclose(other.values, slow_faithfulness(X, VALUES, DATA, [0] * 7), atol=1e-12)
    assert not torch.allclose(other.values, scores.values)
    assert scores.better == "higher" and scores.settings["draws"] == 9 and scores.settings["conditional"]["type"] == "Marginal"


def test_faithfulness_of_a_linear_models_contributions_is_one_and_of_their_reverse_negative():
    exact = WEIGHTS * (X - MEANS)
    faithfulness, ones = Faithfulness(ConstantFill(MEANS), draws=1), torch.ones(7, dtype=torch.float64)
    assert torch.allclose(faithfulness(linear, exact, X).values, ones)
    assert torch.allclose(faithfulness(linear, -2 * exact, X).values, ones)  # of |φ|
    reverse = exact.abs().amax(dim=1, keepdim=True) - exact.abs()
    assert torch.allclose(faithfulness(linear, reverse, X).values, -ones)
    # with correlated features, what is lost is what the others do not tell
    distribution, but_one = Gaussian.correlated(5, 0.5), ~torch.eye(5, dtype=torch.bool)
    lost = torch.stack([WEIGHTS[j] * (X - distribution.expect(X, but_one[j].expand(7, 5)))[:, j] for j in range(5)], dim=1)
    assert Faithfulness(distribution, draws=2000)(linear, lost, X).mean > 0.995
    assert Faithfulness(distribution, draws=2000)(linear, WEIGHTS * X, X).mean < 0.95
    x = torch.randn(400, 5, generator=generator(), dtype=torch.float64)
    chance = Faithfulness(ConstantFill(0.0), draws=1)(linear, Random()(linear, x))
    assert abs(chance.mean) < 4 * chance.standard_error < 0.15


def test_faithfulness_of_what_is_constant_is_left_out_or_counted_as_published():
    values = VALUES.clone()
    values[2] = 0.3
    values[3] = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0]) / 3  # constant once the sign is gone
    whole = Faithfulness(BACKGROUND, draws=9)(NET, VALUES, X)
    with pytest.warns(IG2Warning, match="2 because the attribution is the same for all features"):
        scores = Faithfulness(BACKGROUND, draws=9)(NET, values, X)
    assert scores.values.isnan().tolist() == [False, False, True, True, False, False, False]
    assert scores.n == 5 and sum(scores.undefined.values()) == 2
    published = Faithfulness(BACKGROUND, draws=9, if_constant=0.0)(NET, values, X)
    assert published.values[2:4].tolist() == [0, 0] and not published.undefined
    assert torch.equal(published.values[4:], whole.values[4:])
    with pytest.warns(IG2Warning, match="7 because no feature's loss changes more than others"):
        assert Faithfulness(ConstantFill(0.5), draws=3)(lambda x: x.sum(dim=1) * 0 + 0.1, VALUES, X).n == 0


def slow_curves(x, values, background, target):
    """The features in order, and E f(X | the k first known) from k = 0."""
    orders = np.argsort(np.abs(values.numpy()), axis=1)
    curves = np.zeros((len(x), 6))
    for i, (row, order, k) in enumerate(zip(x.numpy(), orders, target, strict=True)):
        for count in range(6):
            for other in background.numpy():
                moved = other.copy()
                moved[order[:count]] = row[order[:count]]
                curves[i, count] += output(moved, k) / len(background)
    return orders, curves


def slow_share(curve):
    increments = [abs(curve[k + 1] - curve[k]) for k in range(5)]
    return sum(increments[k + 1] >= increments[k] for k in range(4)) / 4


def test_monotonicity_is_its_definition():
    scores = Monotonicity(BACKGROUND, draws=9)(NET, VALUES, X)
    _, curves = slow_curves(X, VALUES, DATA, NET(X).argmax(dim=1))
    assert np.allclose(scores.curves, curves, atol=1e-12)
    assert scores.values.tolist() == [slow_share(curve) for curve in curves]
    assert len(set(scores.values.tolist())) > 2  # the cases differ


def test_published_monotonicity_is_its_definition():
    target = NET(X).argmax(dim=1)
    scores = PublishedMonotonicity(BACKGROUND, draws=9)(NET, VALUES, X)
    orders, curves = slow_curves(X, VALUES, DATA, target)
    stored = np.zeros((7, 6))
    stored[:, 0] = np.mean([output(row, k) for row, k in zip(X.numpy(), target, strict=True)])
    for row, (order, curve) in enumerate(zip(orders, curves, strict=True)):
        for rank, j in enumerate(order):
            stored[row, j + 1] = curve[rank + 1]
    assert scores.values.tolist() == [slow_share(curve) for curve in stored]
    corrected = Monotonicity(BACKGROUND, draws=9)(NET, VALUES, X)
    assert scores.values.tolist() != corrected.values.tolist()
    assert scores.metric == "monotonicity (as published)" and corrected.metric == "monotonicity"


def test_published_monotonicity_depends_on_the_batch_and_the_corrected_one_does_not():
    x = torch.tensor([[1.0, 5.0, -6.0, 7.0, -8.0], [9.0, 9.1, 9.2, 9.3, 9.4]], dtype=torch.float64)
    for metric, same in ((Monotonicity, True), (PublishedMonotonicity, False)):
        # alone, the first starts at −1, near its next point, 1; beside the second at 22.5
        scores = [metric(ConstantFill(0.0), draws=1)(total, some, some) for some in (x, x[:1])]
        assert torch.equal(scores[0].values[:1], scores[1].values) == same


def test_monotonicity_of_a_linear_models_contributions_is_one_and_of_their_reverse_zero():
    exact = WEIGHTS * (X - MEANS)
    monotonicity = Monotonicity(ConstantFill(MEANS), draws=1)
    assert monotonicity(linear, exact, X).values.tolist() == [1.0] * 7
    assert monotonicity(linear, 1 / exact, X).values.tolist() == [0.0] * 7


def test_monotonicity_separates_chance_from_the_truth_where_the_published_one_does_not():
    x = torch.randn(300, 5, generator=generator(), dtype=torch.float64)
    exact, chance = WEIGHTS * x, Random()(linear, x).values
    means = {
        metric: [metric(Gaussian.correlated(5), draws=200)(linear, values, x).mean for values in (exact, chance)]
        for metric in (Monotonicity, PublishedMonotonicity)
    }
    assert means[Monotonicity][0] > 0.9 and 0.3 < means[Monotonicity][1] < 0.6
    assert abs(means[PublishedMonotonicity][0] - means[PublishedMonotonicity][1]) < 0.15


def test_an_increment_as_large_as_the_last_does_not_shrink_and_rounding_makes_no_difference():
    monotonicity, published = (kind(ConstantFill(0.0), draws=3) for kind in (Monotonicity, PublishedMonotonicity))
    x = torch.tensor([[0.1] * 5, [1 / 3] * 5], dtype=torch.float64)  # sums of 0.1 differ by 0.1, but for the last digits
    assert len(set(x[0].cumsum(dim=0).diff().tolist())) > 1
    assert monotonicity(total, x, x).values.tolist() == [1.0, 1.0]
    less = x * torch.tensor([1, 1 - 1e-9, 1 - 2e-9, 1 - 3e-9, 1 - 4e-9], dtype=torch.float64)  # but this is no rounding
    assert monotonicity(total, 1 / less, less).values.tolist() == [0.0, 0.0]
    ones, by_index = torch.ones(1, 5, dtype=torch.float64), torch.arange(1.0, 6.0, dtype=torch.float64)[None]
    assert published(total, by_index, ones).values.tolist() == [0.75]
    for metric in (monotonicity, published):
        with pytest.warns(IG2Warning, match="single feature"):
            assert metric(lambda x: x[:, 0], X[:, :1], X[:, :1]).n == 0


def given_noise(noise):
    """A perturbation that hands out this noise (draws, ...), once to each sample."""
    return lambda x, draws, generator: noise.expand(len(x), *noise.shape)


def test_infidelity_as_published_is_its_definition():
    target = NET(X).argmax(dim=1)
    scores = Infidelity(draws=300)(NET, VALUES, X)
    seed = int(torch.randint(2**62, (), generator=generator(0)))
    normal = torch.randn(300, 5, generator=generator(seed), dtype=torch.float64).numpy()
    for row, phi, k, score in zip(X.numpy(), VALUES.numpy(), target, scores.values, strict=True):
        changes, predicted = [], []
        for noise in normal:
            r = np.clip(row + 0.2 * noise, row - 1, row)
            predicted.append(float(np.sum(r * phi)))
            changes.append(output(row, k) - output(row - r, k))
        changes, predicted = np.array(changes), np.array(predicted)
        beta = np.mean(changes * predicted) / np.mean(predicted**2)
        assert float(score) == pytest.approx(np.mean((changes - beta * predicted) ** 2), rel=1e-10)
        assert float(score) != pytest.approx(np.mean((changes - predicted) ** 2), rel=1e-3)


def test_published_perturbation_leaves_a_little_of_zero():
    left, far = (X[:, None] - NearZero(scale)(X, 500, generator()) for scale in (0.2, 3.0))
    assert left.min() >= 0 and left.max() < 1 and float(far.max()) == pytest.approx(1.0)
    assert 0.45 < float((left == 0).double().mean()) < 0.55


@pytest.mark.parametrize("fit", [False, True])
@pytest.mark.parametrize("scale", [0.05, 0.5])
def test_infidelity_agrees_with_captum(fit, scale):
    noise = scale * torch.randn(40, 5, generator=generator(7), dtype=torch.float64)

    def perturb(inputs):
        spread = noise.repeat(len(inputs) // len(noise), 1)
        return spread, inputs - spread

    options = {"target": NET(X).argmax(dim=1), "n_perturb_samples": 40, "normalize": fit}
    theirs = captum.metrics.infidelity(NET, perturb, X, VALUES, **options)
    ours, other = (Infidelity(given_noise(noise), draws=40, fit=f)(NET, VALUES, X).values for f in (fit, not fit))
    assert torch.allclose(ours, theirs, rtol=1e-8) and not torch.allclose(other, theirs, rtol=1e-2)


def test_infidelity_of_a_linear_models_gradient_is_zero_and_of_zero_the_mean_square_of_the_change():
    slope = WEIGHTS.expand(7, 5)
    for perturbation in (NearZero(), Noise()):
        assert Infidelity(perturbation, 50, fit=False)(linear, slope, X).values.max() < 1e-25
        assert Infidelity(perturbation, 50)(linear, -3 * slope, X).values.max() < 1e-25
        assert Infidelity(perturbation, 50, fit=False)(linear, -3 * slope, X).values.min() > 1e-3
        assert Infidelity(perturbation, 50)(linear, slope + VALUES, X).values.min() > 1e-4
    noise = Noise(0.3)(X, 60, generator())[0]
    change = linear(X)[:, None] - linear(X[:, None] - noise)
    for fit in (True, False):
        scores = Infidelity(given_noise(noise), 60, fit)(linear, torch.zeros_like(X), X)
        assert torch.allclose(scores.values, change.square().mean(dim=1), rtol=1e-10)


def test_infidelity_of_images_in_pieces(monkeypatch):
    net, x, values, metric = relu_cnn(), data(3, 2, 8, 8, seed=1), data(3, 2, 8, 8, seed=2), Infidelity(Noise(0.1), draws=12)
    whole = metric(net, values, x)
    assert whole.values.shape == (3,)
    monkeypatch.setattr("ig2.metrics.infidelity.MOST_NUMBERS", 12 * 128)  # one sample at a time
    assert torch.allclose(metric(net, values, x).values, whole.values, rtol=1e-10)
    monkeypatch.setattr("ig2.metrics.infidelity.MOST_NUMBERS", 5 * 128)  # and five draws: other ones, as many
    pieces = metric(net, values, x)
    assert torch.allclose(pieces.values[:1], metric(net, values[:1], x[:1]).values, rtol=1e-10)
    assert 0.3 < pieces.mean / whole.mean < 3


class Seen(ig2.Method):
    """Another method's attributions, and every task it was run on."""

    def __init__(self, method):
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "tasks", [])

    def run(self, task, references, keep):
        self.tasks.append(task)
        return self.method.run(task, references, keep)


def copies_of(x, model, **settings):
    """The samples explained beside x itself, (B, draws, ...)."""
    seen = Seen(Gradient())
    MaxSensitivity(seen, **settings)(model, Gradient()(model, x))
    return torch.cat([task.x for task in seen.tasks[1:]]).reshape(len(x), -1, *x.shape[1:])


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_max_sensitivity_is_its_definition(norm):
    copies, attribution = copies_of(X, NET, radius=0.1, draws=6), InputXGradient()(NET, X)
    assert copies.shape == (7, 6, 5)
    target = NET(X).argmax(dim=1)[:, None].expand(7, 6).flatten()  # the class stays that of x
    moved = InputXGradient()(NET, copies.flatten(0, 1), target).values.view(7, 6, 5)
    sizes = [np.linalg.norm(part.numpy(), norm, axis=-1) for part in (moved - attribution.values[:, None], attribution.values)]
    scores = MaxSensitivity(InputXGradient(), radius=0.1, draws=6, norm=norm)(NET, attribution)
    assert scores.values.tolist() == pytest.approx(list(sizes[0].max(axis=1) / sizes[1]), rel=1e-10)
    assert scores.better == "lower"


def test_max_sensitivity_agrees_with_captum():
    copies, method = copies_of(X, NET, radius=0.05), InputXGradient()
    theirs = captum.metrics.sensitivity_max(
        lambda inputs, target: (method(NET, inputs[0], target).values,),
        X,
        perturb_func=lambda inputs: (copies.flatten(0, 1),),
        target=NET(X).argmax(dim=1),
    )
    ours, other = (MaxSensitivity(method, radius=radius)(NET, method(NET, X)).values for radius in (0.05, 0.02))
    assert torch.allclose(ours, theirs, rtol=1e-10) and not torch.allclose(other, theirs, rtol=0.1)


def test_samples_stay_in_the_ball_and_inside_the_bounds():
    x = data(4, 5, seed=4, low=0.0)
    noise = copies_of(x, NET, radius=0.3, draws=200) - x[:, None]
    assert 0.29 < float(noise.abs().max()) <= 0.3 + 1e-12
    assert torch.allclose(noise, noise[:1].expand_as(noise), atol=1e-12)  # the same for each
    inside = copies_of(x, ig2.wrap(NET, bounds=(0, 1)), radius=0.3, draws=200)
    assert float(inside.min()) == 0 and float(inside.max()) == 1
    assert torch.allclose(inside, (x[:, None] + noise).clamp(0, 1), atol=1e-12)


def test_max_sensitivity_of_gradients_in_closed_form():
    assert MaxSensitivity(Gradient())(linear, Gradient()(linear, X)).values.max() < 1e-14
    assert MaxSensitivity(Random())(NET, Random()(NET, X)).values.min() > 1  # chance is the most sensitive
    square = Polynomial(WEIGHTS, 2)
    noise = copies_of(X, square)[0] - X[0]
    expected = (WEIGHTS * noise).norm(dim=1).max() / (WEIGHTS * X).norm(dim=1)
    assert torch.allclose(MaxSensitivity(Gradient())(square, Gradient()(square, X)).values, expected, rtol=1e-8)
    x = X.clone()
    x[2] = 0
    with pytest.warns(IG2Warning, match="1 because the attribution is zero"):
        scores = MaxSensitivity(Gradient())(square, Gradient()(square, x))
    assert scores.values.isnan().tolist() == [False, False, True, False, False, False, False]


def test_a_function_with_the_common_call_scores_as_the_method_it_calls():
    method = ig2.IntegratedGradients(8)
    for references in (None, data(3, 5, seed=8), data(7, 2, 5, seed=9)):
        attribution = method(NET, X, references=references)

        def tensors(model, x, target=None, references=None, *, seed):
            return method(model, x, target, references, seed=seed).values

        ours, *others = (
            MaxSensitivity(called, references, draws=3)(NET, attribution).values
            for called in (method, lambda *args, **options: method(*args, **options), tensors)
        )
        assert all(torch.allclose(other, ours, rtol=1e-10) for other in others)


def test_a_function_may_take_gradients_itself_and_the_network_is_left_as_it_was():
    def saliency(model, x, target=None, references=None, *, seed):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(model.net(x).gather(1, target[:, None]).sum(), x)[0]

    attribution = Gradient()(NET, X)
    ours, theirs = (MaxSensitivity(method)(NET, attribution).values for method in (Gradient(), saliency))
    assert torch.allclose(theirs, ours, rtol=1e-10)
    assert all(parameter.requires_grad for parameter in NET.parameters())


def test_several_inputs_and_inputs_that_only_come_along():
    x = (X[:, :3].contiguous(), X[:, 3:].contiguous(), ig2.Fixed(torch.arange(7)))
    net = lambda a, b, scale: NET(torch.cat([a, b], dim=1)) * (1 + scale)[:, None]  # noqa: E731
    attribution, alone = Gradient()(net, x), Gradient()(NET, X)
    function = MaxSensitivity(lambda model, x, target, references, seed: Gradient()(model, x, target).values, draws=4)
    ours = MaxSensitivity(Gradient(), draws=4)(net, attribution, x).values
    assert torch.allclose(function(net, attribution, x).values, ours, rtol=1e-10)
    for metric in (MaxSensitivity(Gradient(), draws=4), Faithfulness(BACKGROUND, draws=9)):
        # a factor for all of a sample changes nothing
        assert torch.allclose(metric(net, attribution, x).values, metric(NET, alone).values, rtol=1e-8)


def test_references_are_those_of_the_explicand_also_where_it_is_in_the_pool():
    drawn, method = [], ig2.IntegratedGradients(4)

    class Spied(RandomSamples):
        def draw(self, task):
            drawn.append(super().draw(task))
            return drawn[-1]

    pool = Spied(X, count=6)
    MaxSensitivity(Seen(method), pool, draws=2)(NET, method(NET, X, references=pool))
    _, again, copies = drawn
    assert torch.equal(copies, again.repeat_interleave(2, dim=0))


def test_an_attribution_that_the_method_did_not_make_is_an_error():
    with pytest.raises(InputError, match="does not return this attribution again"):
        MaxSensitivity(Gradient())(NET, InputXGradient()(NET, X))
    chance = Random()(NET, X, seed=5)
    assert MaxSensitivity(Random())(NET, chance, seed=1).n == 7  # it knows its seed
    with pytest.raises(InputError, match="seed"):
        MaxSensitivity(Random())(NET, chance.values, X, seed=1)
    assert MaxSensitivity(Random())(NET, chance.values, X, seed=5).n == 7
    # and samples are explained with that seed
    method, pool = ig2.IntegratedGradients(8), RandomSamples(data(30, 5, seed=6, low=-3, high=3), count=1)
    one, other = (method(NET, X, references=pool, seed=seed) for seed in (5, 1))
    assert MaxSensitivity(method, pool, radius=1e-4)(NET, one, seed=1).values.max() < 1e-2
    assert ((other.values - one.values).norm(dim=1) / one.values.norm(dim=1)).min() > 1e-2


METRICS = [
    Faithfulness(Gaussian.correlated(5, 0.3), draws=20),
    Monotonicity(Gaussian.correlated(5, 0.3), draws=20),
    Infidelity(draws=30),
    MaxSensitivity(ig2.IntegratedGradients(4), draws=4),
]
BOUNDED = ig2.wrap(NET, bounds=(-2, 2))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_score_depends_neither_on_the_batch_nor_on_its_size_nor_on_the_default_device_but_on_the_seed(metric):
    attribution = ig2.IntegratedGradients(4)(NET, X)
    state, told = torch.get_rng_state(), []
    scores = metric(NET, attribution, progress=lambda done, total: told.append((done, total))).values
    assert told and told[-1][0] == told[-1][1]
    assert torch.equal(state, torch.get_rng_state())
    assert torch.allclose(metric(NET, attribution[2:4]).values, scores[2:4], rtol=1e-9)
    assert torch.allclose(metric(NET, attribution, batch_size=3).values, scores, rtol=1e-9)
    assert torch.equal(metric(NET, attribution).values, scores)
    bounded = metric(BOUNDED, attribution).values
    with torch.device("meta"):  # tensors made without saying where would have no data
        assert torch.equal(metric(NET, attribution).values, scores)
        assert torch.equal(metric(BOUNDED, attribution).values, bounded)
    if metric.name != "monotonicity":
        assert not torch.allclose(metric(NET, attribution, seed=1).values, scores, rtol=1e-6)
    net = tanh_mlp(5, classes=2).float()
    single = metric(net, ig2.IntegratedGradients(4)(net, X.float())).values
    assert torch.allclose(single.double(), scores, rtol=0.02, atol=1e-4)


@pytest.mark.parametrize("metric", [Faithfulness, Monotonicity, PublishedMonotonicity])
def test_images_and_outputs_that_are_not_finite_are_errors(metric):
    with pytest.raises(InputError, match="tabular samples"):
        metric(ConstantFill())(relu_cnn(), data(3, 2, 8, 8), data(3, 2, 8, 8))
    with pytest.raises(ModelError, match="not finite where features of explicand 0"):
        metric(ConstantFill(0.5), draws=2)(lambda x: total(x) / (x[:, 0] - 0.5), VALUES, X)


def test_infidelity_of_outputs_that_are_not_finite_is_an_error():
    with pytest.raises(ModelError, match="explicand 0 perturbed"):
        Infidelity(lambda x, draws, generator: x[:, None].expand(-1, draws, -1))(lambda x: 1 / total(x), VALUES, X)
    with pytest.raises(ModelError, match="explicand 3 is inf"):
        Infidelity()(lambda x: 1 / (x - X[3]).square().sum(dim=1), VALUES, X)


class Narrow(Conditional):
    def draw(self, x, known, count, generator):
        return x


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("draws", lambda: Infidelity(draws=1.5)),
        ("perturbation", lambda: Infidelity(NearZero)),
        ("perturbation", lambda: Infidelity(0.2)),
        ("the perturbation returned", lambda: Infidelity(lambda x, draws, _: x, draws=3)(NET, VALUES, X)),
        ("the perturbation returned", lambda: Infidelity(given_noise(torch.full((3, 5), math.nan)), draws=3)(NET, VALUES, X)),
        ("scale", lambda: NearZero(0)),
        ("scale", lambda: Noise(0)),
        ("if_constant", lambda: Faithfulness(BACKGROUND, if_constant=math.nan)),
        ("method must be", lambda: MaxSensitivity(Gradient)),
        ("radius", lambda: MaxSensitivity(Gradient(), radius=-1)),
        ("draws", lambda: MaxSensitivity(Gradient(), draws=True)),
        ("norm", lambda: MaxSensitivity(Gradient(), norm=0)),
        ("norm", lambda: MaxSensitivity(Gradient(), norm="fro")),
    ],
)
def test_settings_that_cannot_be_used_are_refused(message, call):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("metric", [Faithfulness, Monotonicity, PublishedMonotonicity])
def test_conditionals_that_cannot_be_used_are_refused(metric):
    for message, call in (
        ("conditional", lambda: metric(DATA)),
        ("draws", lambda: metric(BACKGROUND, draws=0)),
        (r"drew .* expected", lambda: metric(Narrow(), draws=2)(NET, VALUES, X)),
    ):
        with pytest.raises(InputError, match=message):
            call()
