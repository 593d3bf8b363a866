"""Grad-CAM, LayerCAM and HiResCAM against loops from the papers, Captum, and what they must refuse."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2.errors import InputError, ModelError
from ig2.methods import ActivationMap
from networks import data, made, randn, refuses, relu_cnn, relu_mlp, tanh_mlp
from replicas import resize


def replica(kind: str, activation: np.ndarray, gradient: np.ndarray, relu: bool) -> np.ndarray:
    channels, height, width = activation.shape
    grid = np.zeros((height, width))
    for k in range(channels):
        for i in range(height):
            for j in range(width):
                weight = {"GradCAM": gradient[k].mean(), "LayerCAM": max(gradient[k, i, j], 0), "HiResCAM": gradient[k, i, j]}
                grid[i, j] += weight[kind] * activation[k, i, j]
    return np.maximum(grid, 0) if relu else grid


def split(net: nn.Sequential, after: int, x: Tensor, target: int) -> tuple[np.ndarray, np.ndarray]:
    """The output of a layer of a sequential network, and the gradient of a logit by it."""
    activation = net[: after + 1](x).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(net[after + 1 :](activation)[:, target].sum(), activation)
    return activation.detach().numpy(), gradient.numpy()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("layer", [0, 3, 4])
@pytest.mark.parametrize("method", [ig2.GradCAM, ig2.LayerCAM, ig2.HiResCAM])
def test_maps_are_those_of_the_papers(method, layer, relu):
    net, x = relu_cnn(channels=3, size=8), data(2, 3, 8, 8)
    found = method(str(layer), relu=relu)(net, x, 1).values
    activation, gradient = split(net, layer, x, 1)
    for i in range(2):
        expected = resize(replica(method.__name__, activation[i], gradient[i], relu), 8, 8)
        assert np.allclose(found[i].sum(dim=0), expected, atol=1e-12) and np.abs(expected).max() > 1e-5
        assert torch.equal(found[i, 0], found[i, 2])


def test_by_default_hirescam_keeps_signs_and_the_others_do_not():
    net, x = relu_cnn(), data(4, 2, 8, 8)
    assert (ig2.HiResCAM()(net, x).values < 0).any()
    assert (ig2.GradCAM()(net, x).values >= 0).all() and (ig2.LayerCAM()(net, x).values >= 0).all()


@pytest.mark.slow
def test_gradcam_is_captums():
    captum = pytest.importorskip("captum.attr")
    net, x = relu_cnn(channels=3), data(3, 3, 8, 8)
    theirs = captum.LayerGradCam(net, net[3]).attribute(x, target=2)
    theirs = captum.LayerAttribution.interpolate(theirs, (8, 8), "bilinear")
    assert torch.allclose(ig2.GradCAM("3", relu=False)(net, x, 2).values.sum(dim=1, keepdim=True), theirs, atol=1e-12)


def test_hirescam_at_a_last_convolution_is_each_places_contribution():
    net = made(lambda: nn.Sequential(nn.Conv2d(2, 5, 3, padding=1), nn.Flatten(), nn.Linear(5 * 36, 3)))
    x = data(4, 2, 6, 6)
    found = ig2.HiResCAM()(net, x, 0)
    assert torch.allclose(found.total, net(x)[:, 0] - net[2].bias[0], atol=1e-12)


class Twice(nn.Module):
    """A convolution that runs twice, a head of convolutions without places, and one that nothing comes of."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Conv2d(3, 3, 3, padding=1)
        self.head = nn.Conv2d(3, 4, 1)
        self.unused = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.shared(self.shared(x).relu())
        scores = self.head(hidden.relu().mean(dim=(2, 3), keepdim=True))
        self.unused(hidden[:, :1].expand(-1, 4, -1, -1))
        return scores.flatten(1)


class Parts(nn.Module):
    """A network of two parts, of which the first ends where the maps are rectified for the last time."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.stem, self.conv, self.more = nn.Conv2d(2, 6, 3, stride=2), nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 1)
        self.norm, self.relu, self.act = nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.SiLU()
        self.linear, self.last = nn.Linear(6, 6), nn.Linear(6, classes)

    def features(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def head(self, maps: Tensor) -> Tensor:
        return self.last(maps.mean(dim=(2, 3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class ResNet(Parts):
    """One activation in place for all places, and the last after the sum."""

    def features(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x))
        return self.relu(self.norm(self.conv(x)) + x)


class VGG(Parts):
    """The activation comes before the last pooling."""

    def features(self, x: Tensor) -> Tensor:
        return self.relu(self.conv(self.stem(x)))

    def head(self, maps: Tensor) -> Tensor:
        return self.last(nn.functional.max_pool2d(maps, 2).flatten(2).mean(dim=2))


class EfficientNet(Parts):
    def features(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.act(self.norm(self.more(self.stem(x)))), training=self.training)


class DenseNet(Parts):
    """The last activation is a function that writes into what the norm returns."""

    def features(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.cat([x[:, :3], self.conv(nn.functional.relu(x))[:, :3]], dim=1)
        return nn.functional.relu(self.norm(x), inplace=True)

    def head(self, maps: Tensor) -> Tensor:
        return self.last(torch.flatten(nn.functional.adaptive_avg_pool2d(maps, (1, 1)), 1))


class InPlace(Parts):
    """What the last activation returns is not used."""

    def features(self, x: Tensor) -> Tensor:
        x = self.conv(self.stem(x))
        x.relu_()
        return x


class Inception(Parts):
    """The last convolution makes a part of the maps alone."""

    def features(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x))
        return torch.cat([self.conv(x).relu()[:, :4], self.more(x).relu()[:, :2]], dim=1)


class ConvNeXt(Parts):
    """Channels lie last inside a block."""

    def features(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return x + nn.functional.gelu(self.linear(self.conv(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


class Functions(Parts):
    """No module runs."""

    def features(self, x: Tensor) -> Tensor:
        x = nn.functional.conv2d(x, self.stem.weight, stride=2).relu()
        return torch.relu(torch.conv2d(input=x, weight=self.more.weight))

    def head(self, maps: Tensor) -> Tensor:
        return maps.flatten(2).mean(dim=2) @ self.last.weight.T


@pytest.mark.parametrize("kind", Parts.__subclasses__())
@pytest.mark.parametrize("method", [ig2.GradCAM, ig2.LayerCAM, ig2.HiResCAM])
def test_the_default_is_what_the_last_block_returns_after_its_activation(method, kind):
    net, x = made(kind), data(3, 2, 9, 9)
    maps = net.features(x).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(net.head(maps.clone())[:, 1].sum(), maps)
    for batch_size in (1, 3):
        found = method()(net, x, 1, batch_size=batch_size).values
        for row in range(3):
            expected = replica(method.__name__, maps[row].detach().numpy(), gradient[row].numpy(), method().relu)
            assert np.allclose(found[row].sum(dim=0), resize(expected, 9, 9), atol=1e-12)


def test_the_default_is_the_last_convolution_with_places_and_its_last_call():
    net, x = made(Twice), data(2, 3, 6, 6)
    hidden = net.shared(net.shared(x).relu()).detach().requires_grad_()
    output = net.head(hidden.relu().mean(dim=(2, 3), keepdim=True)).flatten(1)[:, 0]
    (gradient,) = torch.autograd.grad(output.sum(), hidden)
    found = ig2.HiResCAM()(net, x, 0).values
    assert torch.allclose(found.sum(dim=1), (gradient * hidden).sum(dim=1), atol=1e-12)
    refuses(ModelError, "2 times", lambda: ig2.GradCAM("shared")(net, x))
    refuses(ModelError, "part in a gradient", lambda: ig2.GradCAM("unused")(net, x))


def test_a_layer_is_named_by_its_module_too_and_an_in_place_layer_after_it_changes_nothing():
    plain, x = relu_cnn(), data(3, 2, 8, 8)
    in_place = relu_cnn()
    in_place[4] = nn.ReLU(inplace=True)
    expected = ig2.GradCAM("3")(plain, x).values
    assert torch.equal(ig2.GradCAM(plain[3])(plain, x).values, expected)
    assert torch.equal(ig2.GradCAM(in_place[3])(in_place, x).values, expected)
    assert torch.equal(ig2.GradCAM("4:input")(in_place, x).values, expected)
    assert torch.equal(ig2.GradCAM(plain[3])(lambda x: plain(x), x).values, expected)


def test_values_do_not_depend_on_the_batch_and_explain_against_a_class():
    net, x = relu_cnn(), data(5, 2, 8, 8)
    found = ig2.LayerCAM()(net, x)
    for row in range(5):
        assert torch.allclose(ig2.LayerCAM()(net, x[row : row + 1]).values, found.values[row : row + 1], atol=1e-12)
    assert torch.allclose(ig2.LayerCAM()(net, x, batch_size=2).values, found.values, atol=1e-12)
    signed = ig2.HiResCAM()
    difference = signed(net, x, 0).values - signed(net, x, 2).values
    assert torch.allclose(signed(net, x, 0, against=2).values, difference, atol=1e-12)
    single = ig2.HiResCAM()(relu_cnn().float(), x.float(), 0).values
    assert single.dtype == torch.float32 and torch.allclose(single.double(), signed(net, x, 0).values, atol=1e-5)
    assert ig2.SmoothGrad(ig2.GradCAM(), samples=3)(net, x).values.shape == x.shape


def test_an_input_beside_the_image_may_be_fixed():
    net, x, shift = relu_cnn(), data(2, 2, 8, 8), data(2, 2, 1, 1, seed=6)
    found = ig2.GradCAM("net.3")(ig2.wrap(lambda image, shift: net(image + shift)), (x, ig2.Fixed(shift)), 1)
    assert torch.equal(found.values[0], ig2.GradCAM("3")(net, x + shift, 1).values)


def test_series_and_samples_without_channels_have_maps():
    series = made(lambda: nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(40, 3)))
    assert ig2.GradCAM()(series, data(2, 2, 10)).values.shape == (2, 2, 10)
    net, x = relu_cnn(channels=1), data(2, 1, 8, 8)
    grey = ig2.wrap(net, preprocess=lambda x: x[:, None])
    assert torch.equal(ig2.GradCAM()(grey, x[:, 0], 1).values, ig2.GradCAM()(net, x, 1).values[:, 0])


class Patches(nn.Module):
    """A transformer's way with images: patches, tokens of which the first is no place, mixed by a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 6, 4, stride=4)
        self.mix = nn.Linear(5, 5)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([torch.ones_like(tokens[:, :1]), tokens], dim=1)
        tokens = self.norm(tokens + self.mix(tokens.transpose(1, 2)).transpose(1, 2))
        return self.head(tokens.tanh()[:, 0] + tokens.mean(dim=1))


def test_the_tokens_of_a_transformer_are_laid_out_as_patches():
    net, x = made(Patches), data(2, 3, 8, 8)
    refuses(ModelError, "arrange", lambda: ig2.GradCAM()(net, x))
    found = ig2.HiResCAM("norm")(net, x, 0).values
    named = ig2.HiResCAM("norm", arrange=lambda t: t[:, 1:].unflatten(1, (2, 2)).movedim(-1, 1))(net, x, 0).values
    assert torch.equal(found, named)
    refuses(InputError, "arrange", lambda: ig2.GradCAM("head")(net, x))
    tokens = net.patches(x).flatten(2).transpose(1, 2)
    tokens = torch.cat([torch.ones_like(tokens[:, :1]), tokens], dim=1)
    normal = net.norm(tokens + net.mix(tokens.transpose(1, 2)).transpose(1, 2)).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(net.head(normal.tanh()[:, 0] + normal.mean(dim=1))[:, 0].sum(), normal)
    expected = resize((normal * gradient).sum(dim=2)[0, 1:].view(2, 2).detach().numpy(), 8, 8)
    assert np.allclose(found[0].sum(dim=0), expected, atol=1e-12)


def test_what_has_no_map_is_refused():
    net, x = relu_cnn(), data(2, 2, 8, 8)
    refuses(InputError, "places", lambda: ig2.GradCAM()(relu_mlp(), data(2, 6)))
    refuses(ModelError, "no convolution", lambda: ig2.GradCAM()(nn.Sequential(nn.Flatten(), tanh_mlp(8)), data(2, 2, 2, 2)))
    refuses(InputError, "layer='9'", lambda: ig2.GradCAM("9")(net, x))
    refuses(InputError, "output", lambda: ig2.GradCAM("output")(net, x))
    refuses(InputError, "no map", lambda: ig2.GradCAM("6")(net, x))
    refuses(InputError, "arrange made", lambda: ig2.GradCAM("3", arrange=lambda t: t.mean())(net, x))
    refuses(InputError, "layer must", lambda: ig2.GradCAM(7))
    refuses(InputError, "places", lambda: ig2.GradCAM()(lambda a, b: net(a + b), (x, x)))
    rooted = nn.Sequential(nn.Conv2d(2, 1, 1), Root()).double().eval()
    refuses(ModelError, "not finite", lambda: ig2.HiResCAM("0")(rooted, x * 0))


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - x.detach()).abs().sqrt().flatten(1)[:, :1] + 0 * x.flatten(1)[:, :1]


def test_hooks_are_gone_after_a_call_and_after_an_error():
    net, x = Broken(), data(2, 2, 8, 8)
    model = ig2.wrap(lambda x: net(x))  # a function, whose modules cannot be copied: hooks lie on the user's own
    ig2.GradCAM(net.net[3])(model, x)
    ig2.GradCAM()(model, x)
    net.left = 4  # in the pass that is differentiated
    with pytest.raises(Exception, match="on purpose"):
        ig2.GradCAM(net.net[3])(model, x)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


class Broken(nn.Module):
    """Raises after a number of passes."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.left = relu_cnn(), 10**9

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        if self.left < 0:
            raise ValueError("on purpose")
        return self.net(x)


@pytest.mark.slow
def test_threads_do_not_see_each_others_passes():
    net, x = relu_cnn(), data(6, 2, 8, 8)
    model, expected, results = ig2.wrap(lambda x: net(x)), ig2.GradCAM("3")(net, x).values, {}

    def explain(number: int) -> None:
        results[number] = [ig2.GradCAM(net[3])(model, x).values for _ in range(5)]

    threads = [threading.Thread(target=explain, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(values, expected) for found in results.values() for values in found) and len(results) == 3


def test_someones_own_weights_make_a_map():
    class Sizes(ActivationMap):
        def weigh(self, gradient: Tensor) -> Tensor:
            return gradient.abs()

    assert (Sizes(relu=False)(relu_cnn(), randn(2, 2, 8, 8)).values != 0).any()
