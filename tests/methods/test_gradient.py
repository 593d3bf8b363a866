"""The gradient, the gradient times the input, and chance."""

import pytest
import torch

import ig2
from ig2.errors import InputError, ModelError
from ig2.methods.gradient import Gradient, InputXGradient
from ig2.methods.random import Random
from networks import Polynomial, Record, data, relu_cnn, tanh_mlp

X = data(5, 6, seed=1)
CUBIC = Polynomial(torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0, 1.5], dtype=torch.float64), 3)


def test_gradient_and_input_times_gradient_of_a_cubic():
    slope = 3 * CUBIC.coefficients.detach() * X**2
    gradient, product = Gradient()(CUBIC, X), InputXGradient()(CUBIC, X)
    assert torch.allclose(gradient.values, slope, atol=1e-14)
    assert torch.allclose(product.values, X * slope, atol=1e-14)
    # Euler: of a form of degree 3 the products sum to three times its value, and not to its value
    assert torch.allclose(product.total, 3 * product.output, atol=1e-13)
    for found in (gradient, product):
        assert found.residual is None and found.baseline_output is None and found.spread is None
        assert "no baseline" in found.verdict


def test_gradient_is_of_the_class_explained():
    net = tanh_mlp()
    target = torch.tensor([0, 1, 2, 1, 0])
    x = X.clone().requires_grad_()
    (expected,) = torch.autograd.grad(net(x)[range(5), target].sum(), x)
    assert torch.allclose(Gradient()(net, X, target).values, expected, atol=1e-15)
    assert not torch.allclose(Gradient()(net, X, 0).values, expected)


@pytest.mark.parametrize("method", [Gradient(), InputXGradient(), Random()])
def test_a_batch_is_its_samples_alone(method):
    net, x = relu_cnn(), data(5, 2, 8, 8, seed=1)
    together = method(net, x)
    for size in (1, 2, 5):
        assert torch.allclose(method(net, x, batch_size=size).values, together.values, atol=1e-14)
    for row in range(5):
        assert torch.allclose(method(net, x[row : row + 1]).values, together.values[row : row + 1], atol=1e-14)


def test_gradients_of_several_inputs_come_back_in_their_shapes():
    first, second = data(3, 4), data(3, 2, 5, seed=2)
    mask = torch.tensor([[1.0], [0.0], [2.0]], dtype=torch.float64)
    model = ig2.wrap(lambda a, b, m: (a.sum(1, keepdim=True) ** 2 + b.flatten(1).sum(1, keepdim=True)) * m)
    found = InputXGradient()(model, (first, second, ig2.Fixed(mask)))
    assert torch.allclose(found.values[0], first * 2 * first.sum(1, keepdim=True) * mask)
    assert torch.allclose(found.values[1], second * mask[:, :, None])
    assert [part.shape for part in Random()(model, (first, second, ig2.Fixed(mask))).values] == [(3, 4), (3, 2, 5)]


def test_a_gradient_that_is_not_finite_is_said_and_located_and_progress_counts_every_sample():
    x = torch.ones(3, 2)
    x[1, 0] = 0
    with pytest.raises(ModelError, match="gradient is not finite for explicand 1"):
        Gradient()(lambda x: x.sqrt().sum(dim=1, keepdim=True), x)
    seen = []
    Gradient()(CUBIC, X, batch_size=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 5), (4, 5), (5, 5)]


def test_random_values_are_standard_normal_and_differ_from_sample_to_sample():
    x = data(4, 50, 100, seed=3)
    values = Random()(ig2.wrap(lambda x: x.mean(dim=(1, 2))), x).values
    assert abs(float(values.mean())) < 0.03 and abs(float(values.std()) - 1) < 0.03
    correlation = torch.corrcoef(values.flatten(1)) - torch.eye(4)
    assert correlation.abs().max() < 0.08  # 0.014 expected


def test_random_values_depend_on_the_seed_and_the_content_alone():
    net, state = tanh_mlp(), torch.get_rng_state()
    values = Random()(net, X).values
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(values, Random()(net, X).values)
    assert torch.equal(values, Random()(tanh_mlp(seed=4), X).values)
    assert torch.equal(values[[3, 1]], Random()(net, X[[3, 1]]).values)
    assert not torch.equal(values, Random()(net, X, seed=1).values)
    assert torch.equal(values.float(), Random()(net, X.T.contiguous().T).values.float())
    again = Random()(net, X[[2, 2]]).values
    assert torch.equal(again[0], again[1])


@pytest.mark.parametrize("method", [Gradient(), Random()])
def test_what_belongs_to_paths_is_refused(method):
    with pytest.raises(InputError, match="follows no path"):
        method(CUBIC, X, paths=True)


class _Counted(torch.nn.Module):
    """How many samples each pass had, and how many fit into one with a graph."""

    def __init__(self, most: int = 100) -> None:
        super().__init__()
        self.net, self.most, self.sizes = tanh_mlp(), most, Record()

    def forward(self, x):
        self.sizes.append(len(x))
        if len(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.net(x)


@pytest.mark.parametrize("method", [ig2.Gradient(), ig2.InputXGradient()], ids=repr)
def test_the_pass_that_finds_the_class_is_the_one_the_gradient_is_taken_from(method):
    net, x = _Counted(), data(16, 6)
    found = method(net, x)
    assert net.sizes == [1, 1, 2, 16]  # three to look at the network, and one for the rest
    small = method(net, x, batch_size=5)
    assert net.sizes[4:] == [1, 1, 2, 5, 5, 5, 1, 5, 5, 5, 1]
    assert torch.allclose(found.values, small.values, atol=1e-12) and torch.equal(found.target, small.target)
    tight = _Counted(most=6)  # where that pass does not fit, it is done in pieces
    assert torch.allclose(method(tight, x).values, found.values, atol=1e-12)
    assert max(tight.sizes) == 16 and tight.sizes[-1] <= 6
