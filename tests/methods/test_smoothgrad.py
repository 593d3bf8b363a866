"""SmoothGrad: closed forms, a slow replica, and that it goes around every method."""

import pytest
import torch

import ig2
from ig2 import rules
from ig2.errors import InputError
from ig2.methods.gradient import Gradient, InputXGradient
from ig2.methods.random import Random
from ig2.methods.smoothgrad import SmoothGrad
from ig2.paths import Straight
from ig2.references import GradCF, NoisedExplicand, OtherClasses, RandomSamples, Zeros
from networks import Polynomial, data, relu_cnn, tanh_mlp

X = data(3, 6, seed=1)
NET = tanh_mlp()
POOL, LABELS = data(12, 6, seed=5), torch.arange(12) % 3


class Seen(ig2.Method):
    """Attributes the sample itself, and remembers every task."""

    def __init__(self):
        object.__setattr__(self, "tasks", [])

    def run(self, task, references, keep):
        self.tasks.append(task)
        return ig2.methods.base.Result(task.x.clone())


def copies_of(x, model=None, **settings):
    """The noised copies, (B, samples, ...), in order."""
    seen = Seen()
    SmoothGrad(seen, **settings)(model or tanh_mlp(x[0].numel()), x)
    return torch.cat([task.x for task in seen.tasks]).reshape(len(x), -1, *x.shape[1:])


def test_the_mean_over_copies_one_at_a_time():
    copies = copies_of(X, samples=7, sigma=0.3)
    assert copies.shape == (3, 7, 6)
    target = NET(X).argmax(dim=1)
    for method in (Gradient(), InputXGradient(), ig2.IntegratedGradients(8)):
        each = [method(NET, some, int(mine)).values for some, mine in zip(copies, target, strict=True)]
        expected, squares = (torch.stack([v.pow(power).mean(dim=0) for v in each]) for power in (1, 2))
        assert torch.allclose(SmoothGrad(method, 7, 0.3)(NET, X).values, expected, atol=1e-14)
        assert torch.allclose(SmoothGrad(method, 7, 0.3, squared=True)(NET, X).values, squares, atol=1e-14)
        assert not torch.allclose(expected, method(NET, X).values, atol=1e-4)


@pytest.mark.parametrize("degree", [1, 2])
def test_of_a_line_or_a_parabola_it_is_the_gradient_at_the_mean_copy(degree):
    net = Polynomial(torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0, 1.5], dtype=torch.float64), degree)
    mean = copies_of(X, samples=5).mean(dim=1)
    found = SmoothGrad(Gradient(), samples=5)(net, X).values
    assert torch.allclose(found, degree * net.coefficients.detach() * mean ** (degree - 1), atol=1e-14)


def test_noise_is_a_share_of_each_samples_range_or_absolute():
    x = torch.stack([X[0], 10 * X[0], torch.full((6,), 2.0, dtype=torch.float64)])
    noise = copies_of(x, samples=4000, sigma=0.2) - x[:, None]
    wide = float(X[0].max() - X[0].min())
    assert noise[0].std() == pytest.approx(0.2 * wide, rel=0.02)
    assert torch.allclose(noise[1], 10 * noise[0], atol=1e-12)
    assert (noise[2] == 0).all()
    absolute = copies_of(x, samples=4000, sigma=0.2, relative=False) - x[:, None]
    assert absolute[0].std() == pytest.approx(0.2, rel=0.02)
    assert torch.allclose(absolute[0], absolute[2], atol=1e-12)
    assert abs(float(absolute.mean())) < 0.01


def test_of_several_inputs_each_has_noise_of_its_own_size():
    small, large = data(2, 3), 100 * data(2, 2, 2, seed=2)
    seen = Seen()
    SmoothGrad(seen, samples=2000, sigma=0.1)(ig2.wrap(lambda a, b: a.sum(1) + b.sum((1, 2))), (small, large))
    noise = torch.cat([task.x for task in seen.tasks]).reshape(2, 2000, 7)
    deviation = noise.std(dim=1)
    for row in range(2):
        near = 0.1 * float(small[row].max() - small[row].min()), 0.1 * float(large[row].max() - large[row].min())
        assert deviation[row, :3].mean() == pytest.approx(near[0], rel=0.05)
        assert deviation[row, 3:].mean() == pytest.approx(near[1], rel=0.05)


def test_copies_stay_inside_the_bounds():
    copies = copies_of(X, ig2.wrap(NET, bounds=(-1, 1)), samples=50, sigma=1.0)
    assert copies.abs().max() == 1
    assert copies_of(X, samples=50, sigma=1.0).abs().max() > 1
    images, net = data(2, 2, 8, 8, low=0), relu_cnn()
    upper = torch.tensor([1.0, 2.0], dtype=torch.float64).reshape(2, 1, 1)
    copies = copies_of(images, ig2.wrap(net, bounds=(0, upper)), samples=20, sigma=1.0)
    assert copies[:, :, 0].max() == 1 and copies[:, :, 1].max() == 2 and copies.min() == 0


def test_without_noise_to_speak_of_it_is_the_method_with_the_same_references():
    for method, references in [
        (ig2.IG2(steps=4), OtherClasses(POOL, LABELS)),
        (ig2.ExpectedIG(8), RandomSamples(POOL, 4)),
        (ig2.ExpectedIG(8), data(3, 2, 6, seed=8)),
        (ig2.IntegratedGradients(8), None),
        (ig2.PathMethod(Straight(4), GradCF(POOL[:2]), rules.trapezoid), None),
        (ig2.GradCFE(steps=4), POOL[:2]),
    ]:
        plain = method(NET, X, references=references, seed=3)
        smooth = SmoothGrad(method, samples=3, sigma=1e-9)(NET, X, references=references, seed=3)
        assert torch.allclose(smooth.values, plain.values, atol=1e-6)
        if plain.baseline_outputs is None:
            assert smooth.baseline_outputs is None
        else:
            assert torch.allclose(smooth.baseline_outputs, plain.baseline_outputs, atol=1e-6)


def test_the_noise_is_not_that_of_the_references():
    """Where both came from the same numbers, the first copy would lie on the line to its reference."""
    noise = copies_of(X, samples=2, sigma=0.2, relative=False)[0, 0] - X[0]
    paths = ig2.PathMethod(Straight(1), NoisedExplicand(0.2), None)(NET, X, paths=True).paths
    assert not torch.allclose(noise, paths[0, 0, -1] - X[0], atol=1e-3)


def test_the_residual_is_against_the_explicand_without_noise():
    found = SmoothGrad(ig2.IntegratedGradients(20), samples=6)(NET, X)
    assert torch.allclose(found.output, NET(X).amax(dim=1))
    zero = NET(torch.zeros(1, 6, dtype=torch.float64))[0, found.target]
    assert torch.allclose(found.baseline_output, zero)
    # the integral is exact for each copy, so what is missing is what noise did to the output
    copies = copies_of(X, samples=6)
    outputs = torch.stack([NET(some)[:, mine].mean() for some, mine in zip(copies, found.target, strict=True)])
    assert torch.allclose(found.residual, outputs - found.output, atol=1e-9)
    assert found.residual.abs().max() > 1e-4
    each = SmoothGrad(ig2.ExpectedIG(4), samples=3)(NET, X, 1, references=POOL[:5]).baseline_outputs
    assert torch.allclose(each, NET(POOL[:5])[:, 1].expand(3, 5))  # those of each reference
    assert SmoothGrad(Gradient())(NET, X).residual is None
    assert SmoothGrad(ig2.IntegratedGradients(20), squared=True)(NET, X).residual is None


@pytest.mark.parametrize("method", [Gradient(), ig2.IntegratedGradients(6), Random(), SmoothGrad(Gradient(), 2)])
def test_neither_the_batch_nor_its_size_matters(method):
    smooth, state = SmoothGrad(method, samples=4), torch.get_rng_state()
    together = smooth(NET, X, seed=2)
    assert torch.equal(torch.get_rng_state(), state)
    for size in (1, 3, 5, 100):
        assert torch.allclose(smooth(NET, X, seed=2, batch_size=size).values, together.values, atol=1e-13)
    for row in range(3):
        alone = smooth(NET, X[row : row + 1], seed=2)
        assert torch.allclose(alone.values[0], together.values[row], atol=1e-13)
    assert not torch.allclose(smooth(NET, X, seed=3).values, together.values)


@pytest.mark.parametrize("batch_size", [1, 2, "auto"])
@pytest.mark.parametrize("kind", ["samples", "weights", "both"])
def test_references_of_each_explicand_and_their_weights_go_to_its_copies(kind, batch_size):
    shared, own = data(2, 6, seed=7), data(3, 2, 6, seed=8)
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)

    def take(rows):
        references = shared if kind == "weights" else own[rows]
        return references if kind == "samples" else ig2.references.Weighted(references, weights[rows])

    method = SmoothGrad(ig2.ExpectedIG(3), samples=3)
    together = method(NET, X, 0, take(slice(None)), batch_size=batch_size)
    for row in range(3):
        alone = method(NET, X[row : row + 1], 0, take(slice(row, row + 1)))
        torch.testing.assert_close(together[row].values, alone.values, rtol=1e-10, atol=1e-12)
        ends = NET(shared if kind == "weights" else own[row])[:, 0]
        output = ends.mean() if kind == "samples" else weights[row] @ ends
        for found in (together[row], alone):
            torch.testing.assert_close(found.baseline_output, output[None], rtol=1e-10, atol=1e-12)


def test_copies_fill_the_batch():
    seen = Seen()
    SmoothGrad(seen, samples=5)(NET, X, batch_size=6)
    assert [len(task) for task in seen.tasks] == [6, 6, 3]
    assert seen.tasks[0].rows.tolist() == [0, 0, 0, 0, 0, 1]
    target = NET(X).argmax(dim=1)
    assert torch.equal(torch.cat([task.target for task in seen.tasks]), target.repeat_interleave(5))


def test_fixed_inputs_go_with_their_copies():
    mask = torch.tensor([[1.0], [0.0], [2.0]], dtype=torch.float64)
    model = ig2.wrap(lambda x, mask: NET(x) * mask)
    found = SmoothGrad(Gradient(), samples=4)(model, (X, ig2.Fixed(mask)), 1)
    assert torch.allclose(found.values[0], SmoothGrad(Gradient(), samples=4)(NET, X, 1).values * mask, atol=1e-14)


def test_settings_say_what_was_smoothed_and_against_what():
    settings = SmoothGrad(ig2.IntegratedGradients(5), samples=3)(NET, X).settings
    assert settings["method"] == "SmoothGrad"
    assert settings["parts"]["method"]["type"] == "IntegratedGradients" and settings["parts"]["samples"] == 3
    assert settings["references"]["type"] == "Zeros"
    assert isinstance(SmoothGrad(SmoothGrad(ig2.IntegratedGradients())).default_references, Zeros)


def test_wrong_settings_are_refused():
    for wrong, said in [
        ({"method": "gradient"}, "goes around a method"),
        ({"method": Gradient(), "samples": 0}, "samples must be a positive integer"),
        ({"method": Gradient(), "sigma": 0.0}, "sigma must be a positive number"),
        ({"method": Gradient(), "sigma": float("inf")}, "sigma must be a positive number"),
    ]:
        with pytest.raises(InputError, match=said):
            SmoothGrad(**wrong)
    with pytest.raises(InputError, match="IG2 needs references"):
        SmoothGrad(ig2.IG2())(NET, X)
    with pytest.raises(InputError, match="follows no path"):
        SmoothGrad(ig2.IG2())(NET, X, references=POOL, curves=True)


def test_squares_that_leave_the_range_of_float32_are_an_error():
    # found by the fuzzer: values of 1e25 are finite, and their squares are not
    x = torch.ones(2, 3)
    with pytest.raises(ig2.ModelError, match="too large"):
        ig2.SmoothGrad(ig2.Gradient(), samples=2, squared=True)(lambda z: 1e25 * z.sum(dim=1), x)
