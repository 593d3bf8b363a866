"""Occlusion against loops, Captum, and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2.errors import InputError
from networks import data, refuses, relu_cnn, relu_mlp


def replica(net: nn.Module, x: Tensor, reference: Tensor, target: int, window: tuple, stride: tuple) -> np.ndarray:
    """Window by window, pixel by pixel."""
    channels, height, width = x.shape
    total, times = np.zeros((height, width)), np.zeros((height, width))
    top = 0
    while True:
        left = 0
        while True:
            pixels = [
                (i, j) for i in range(top, min(top + window[0], height)) for j in range(left, min(left + window[1], width))
            ]
            hidden = x.clone()
            for i, j in pixels:
                hidden[:, i, j] = reference[:, i, j]
            fall = (net(x[None])[0, target] - net(hidden[None])[0, target]).item()
            for i, j in pixels:
                total[i, j] += fall / (len(pixels) * channels)
                times[i, j] += 1
            if left + window[1] >= width:
                break
            left += stride[1]
        if top + window[0] >= height:
            break
        top += stride[0]
    return total / times


@pytest.mark.parametrize(("window", "stride"), [((3, 3), None), ((4, 2), (2, 2)), ((3, 8), (1, 8)), ((5, 5), (3, 2))])
def test_values_are_falls_of_the_output_divided_among_the_window(window, stride):
    net, x, references = relu_cnn(channels=3), data(2, 3, 8, 8), data(2, 3, 8, 8, seed=3)
    found = ig2.Occlusion(window, stride)(net, x, 1, references).values
    for i in range(2):
        expected = np.mean([replica(net, x[i], r, 1, window, stride or window) for r in references], axis=0)
        assert np.allclose(found[i], expected, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("window", "stride"), [(4, 4), (4, 2), (2, 1)])
def test_times_the_size_of_the_window_it_is_captums(window, stride):
    captum = pytest.importorskip("captum.attr")
    net, x = relu_cnn(channels=3), data(2, 3, 8, 8)
    theirs = captum.Occlusion(net).attribute(x, (3, window, window), (3, stride, stride), baselines=0.25, target=1)
    ours = ig2.Occlusion(window, stride)(net, x, 1, 0.25).values * 3 * window**2
    assert torch.allclose(ours, theirs.double(), atol=1e-7)  # Captum's are float32


def test_windows_without_overlap_sum_to_the_falls_and_a_sum_of_features_is_divided_exactly():
    x = data(3, 6)
    found = ig2.Occlusion()(lambda x: x.sum(dim=1), x)
    assert torch.allclose(found.values, x, atol=1e-12) and found.residual is None
    wide = ig2.Occlusion(4)(lambda x: x.sum(dim=1), x).values  # 4 features, then the 2 that are left
    assert torch.allclose(wide, torch.cat([x[:, :4].mean(1, True).expand(-1, 4), x[:, 4:].mean(1, True).expand(-1, 2)], 1))
    image = data(2, 3, 16, 16)
    assert torch.allclose(ig2.Occlusion()(lambda x: x.flatten(1).sum(dim=1), image).total, image.flatten(1).sum(dim=1))


def test_groups_are_parts_and_a_grid_is_a_window():
    net, x = relu_cnn(), data(2, 2, 8, 8)
    grid = ig2.Occlusion(groups=ig2.Grid(2, 4))(net, x, 0).values
    assert torch.allclose(grid, ig2.Occlusion((4, 2))(net, x, 0).values, atol=1e-12)
    table, rows = relu_mlp(), data(3, 6)
    found = ig2.Occlusion(groups=torch.tensor([7, 7, 2, 2, 2, 5]))(table, rows, 0).values
    for group in ([0, 1], [2, 3, 4], [5]):
        hidden = rows.clone()
        hidden[:, group] = 0
        fall = (table(rows) - table(hidden))[:, 0]
        assert torch.allclose(found[:, group], (fall / len(group))[:, None].expand(-1, len(group)), atol=1e-12)
    # explicands may have different numbers of groups
    own = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 1]])
    each = ig2.Occlusion(groups=own)(table, rows, 0).values
    for row in range(3):
        alone = ig2.Occlusion(groups=own[row])(table, rows[row : row + 1], 0).values
        assert torch.allclose(each[row : row + 1], alone, atol=1e-12)


@pytest.mark.parametrize("each_channel", [False, True])
@pytest.mark.parametrize("sizes", [(6, 3, 2), (7, 3, 2), (5, 4, 1), (4, 9, 2)])
def test_windows_that_overlap_end_with_the_signal(sizes, each_channel):
    """The last may be shorter, and none reaches into the next channel."""
    steps, length, stride = sizes
    net, x = relu_mlp(features=2 * steps), data(2, 2, steps)
    model = ig2.wrap(lambda x: net(x.flatten(1)))
    found = ig2.Occlusion(groups=ig2.Windows(length, -1, each_channel, stride))(model, x, 0).values
    starts = [start for start in range(steps) if not start or start - stride + length < steps]
    starts = [start for start in starts if start % stride == 0]
    total, times = torch.zeros_like(x), torch.zeros(2, steps).double()
    for channels in [slice(0, 1), slice(1, 2)] if each_channel else [slice(0, 2)]:
        for start in starts:
            hidden, window = x.clone(), (channels, slice(start, start + length))
            hidden[:, *window] = 0
            fall = (model.net.function(x) - model.net.function(hidden))[:, 0]
            total[:, *window] += fall[:, None, None] / times[window].numel()
            times[window] += 1
    assert torch.allclose(found, total / times, atol=1e-12)


def test_blur_is_a_reference_and_functions_without_gradients_do():
    net, x = relu_cnn(), data(2, 2, 8, 8)
    blurred = ig2.references.BlurredExplicand(sigma=2.0)
    found = ig2.Occlusion(4)(net, x, 0, blurred).values
    from ig2._utils.blur import blur

    expected = replica(net, x[0], blur(x, 2.0, "reflect")[0], 0, (4, 4), (4, 4))
    assert np.allclose(found[0], expected, atol=1e-12)
    counts = torch.tensor([[1, 2, 0, 3]])
    steps = ig2.Occlusion()(ig2.wrap(lambda a: (a > 1).sum(axis=1, keepdims=True).astype(float), numpy=True), counts)
    assert steps.values.tolist() == [[0, 1, 0, 1]]


def test_batches_the_class_against_and_the_cost():
    net, x, method = relu_cnn(), data(3, 2, 8, 8), ig2.Occlusion(3, 2)
    found = method(net, x)
    assert torch.allclose(method(net, x, batch_size=5).values, found.values, atol=1e-12)
    assert torch.allclose(method(net, x[1:2]).values, found.values[1:2], atol=1e-12)
    difference = method(net, x, 0).values - method(net, x, 1).values
    assert torch.allclose(method(net, x, 0, against=1).values, difference, atol=1e-12)
    assert found.cost.gradients == 0 and found.cost.forwards == 3 + 3 * 16


def test_settings_that_do_not_fit_are_refused():
    net, x = relu_cnn(), data(2, 2, 8, 8)
    refuses(InputError, "window", lambda: ig2.Occlusion(0))
    refuses(InputError, "stride", lambda: ig2.Occlusion(2, (1, -1)))
    refuses(InputError, "omit window", lambda: ig2.Occlusion(2, groups=ig2.Grid(2, 2)))
    refuses(InputError, "groups", lambda: ig2.Occlusion(groups="superpixels"))
    refuses(InputError, "3 sizes", lambda: ig2.Occlusion((2, 2, 2))(net, x))
    refuses(InputError, "groups=", lambda: ig2.Occlusion()(lambda x: x.sum(dim=(1, 2)), data(2, 5, 4)))
