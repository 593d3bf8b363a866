"""Windows of time as groups: of every layout, for one channel or all, in methods and in metrics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import ig2
from ig2.errors import InputError
from ig2.groups import count_groups
from ig2.metrics import Deletion, DiffID, Insertion, SensitivityN
from networks import data, refuses


def energies(x: Tensor) -> Tensor:
    """Σ over time of the first channel squared plus twice the second, of series (B, T, 2)."""
    return (x[:, :, 0].square() + 2 * x[:, :, 1]).sum(dim=1)


@pytest.mark.parametrize(("shape", "axis"), [((7,), -1), ((7,), 1), ((7, 2), 1), ((7, 2), -2), ((2, 7), -1), ((3, 2, 7), 3)])
def test_windows_are_numbered_along_time_in_every_layout(shape: tuple[int, ...], axis: int):
    samples = data(2, *shape)
    labels = ig2.Windows(3, axis).labels(samples).expand(samples.shape).movedim(axis, -1)
    assert (labels == torch.tensor([0, 0, 0, 1, 1, 1, 2])).all()
    own = ig2.Windows(3, axis, each_channel=True).labels(samples).expand(samples.shape).movedim(axis, -1)
    channels = samples[0].numel() // 7
    assert len(own.unique()) == 3 * channels
    for number in own.unique():
        where = (own[0] == number).nonzero()
        assert len({tuple(place[:-1]) for place in where.tolist()}) == 1  # of one channel


@pytest.mark.parametrize("axis", [0, 3, -3, True, "time"])
def test_another_axis_is_refused(axis):
    refuses(InputError, "time_axis", lambda: ig2.Windows(3, axis).labels(data(2, 4, 5)))


def test_a_length_is_positive():
    refuses(InputError, "length", lambda: ig2.Windows(0))


def test_occlusion_and_kernelshap_of_windows_are_what_leaving_them_out_does():
    x = data(2, 6, 2)
    for method in (ig2.Occlusion(groups=ig2.Windows(2, 1)), ig2.KernelSHAP(ig2.Windows(2, 1))):
        found = method(energies, x, references=0.0).values.view(2, 3, 4).sum(dim=2)
        own = (x[:, :, 0].square() + 2 * x[:, :, 1]).view(2, 3, 2).sum(dim=2)
        assert torch.allclose(found, own), method


@pytest.mark.parametrize("each_channel", [False, True])
@pytest.mark.parametrize(("length", "stride"), [(3, 1), (3, 2), (5, 4), (9, 2)])
def test_occlusion_slides_windows_that_overlap(length: int, stride: int, each_channel: bool):
    x, net = data(2, 7, 2), lambda x: (x[:, :, 0] * x[:, :, 1]).cumsum(dim=1).tanh().sum(dim=1)
    windows = ig2.Windows(length, 1, each_channel, stride)
    values = ig2.Occlusion(groups=windows)(net, x, references=0.0).values
    starts = [start for start in range(7) if start % stride == 0 and (start == 0 or start - stride + length < 7)]
    for row in range(2):
        sums, times = np.zeros((7, 2)), np.zeros((7, 2))
        for channels in [slice(0, 1), slice(1, 2)] if each_channel else [slice(0, 2)]:
            for start in starts:
                point = x[row].clone()
                point[start : start + length, channels] = 0
                fall = float(net(x[row : row + 1]) - net(point[None]))
                sums[start : start + length, channels] += fall / sums[start : start + length, channels].size
                times[start : start + length, channels] += 1
        np.testing.assert_allclose(values[row], sums / times, atol=1e-12)


def test_windows_that_overlap_are_refused_where_groups_divide():
    sliding, x = ig2.Windows(3, 1, stride=2), data(1, 6, 2)
    paths = [ig2.PathMethod(ig2.paths.InTurn(sliding)), ig2.Pooled(ig2.IntegratedGradients(), sliding)]
    for method in (ig2.KernelSHAP(sliding), *paths):
        refuses(InputError, "overlap", lambda method=method: method(energies, x, references=0.0))
    refuses(InputError, "overlap", lambda: Deletion("mean", features=sliding)(energies, x, x))
    refuses(InputError, "gaps", lambda: ig2.Windows(3, stride=4))
    refuses(InputError, "stride", lambda: ig2.Windows(3, stride=0))
    assert torch.equal(ig2.Windows(3, 1, stride=3).labels(x), ig2.Windows(3, 1).labels(x))


def test_pooled_sums_a_paths_values_over_windows():
    x = data(2, 2, 6)
    pooled = ig2.Pooled(ig2.IntegratedGradients(rule=ig2.rules.gauss(2)), ig2.Windows(3))(lambda x: energies(x.mT), x)
    windows = pooled.values.view(2, 2, 2, 3)
    assert torch.allclose(windows, windows.mean(dim=(1, 3), keepdim=True).expand_as(windows))
    assert torch.allclose(pooled.total, energies(x.mT))


def test_groups_are_counted_in_their_order_and_what_is_in_none_comes_last():
    numbers = torch.tensor([[7, -1, 2, 7, -1], [0, 1, 2, 3, 4], [-1, -1, 5, 5, 9]])
    expected = torch.tensor([[1, 2, 0, 1, 2], [0, 1, 2, 3, 4], [2, 2, 0, 0, 1]])
    assert torch.equal(count_groups(numbers), expected)
    assert torch.equal(count_groups(numbers.view(3, 1, 5)), expected)


# -- metrics -----------------------------------------------------------------------------------------------------------


def by_hand(x: Tensor, order: list[int], fill: Tensor, length: int, adds: bool) -> list[float]:
    """The curve of one series (T, C) whose windows go over one by one, in NumPy."""
    series, background = x.numpy(), fill.numpy()
    point, goal = (background.copy(), series) if adds else (series.copy(), background)
    outputs = [float((point[:, 0] ** 2 + 2 * point[:, 1]).sum())]
    for window in order:
        part = slice(window * length, (window + 1) * length)
        point[part] = goal[part]
        outputs.append(float((point[:, 0] ** 2 + 2 * point[:, 1]).sum()))
    return outputs


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("background", ["black", "mean", "interpolated"])
def test_curves_move_whole_windows(adds: bool, background: str):
    x = data(3, 8, 2, seed=4)
    attribution = ig2.IntegratedGradients(rule=ig2.rules.gauss(2))(energies, x)
    metric = (Insertion if adds else Deletion)(background, thresholds=4, features=ig2.Windows(2, 1), output="model")
    scores = metric(energies, attribution)
    for row in range(3):
        sums = attribution.values[row].view(4, 4).sum(dim=1)
        fill = {
            "black": torch.zeros_like(x[row]),
            "mean": x[row].mean(dim=0).expand(8, 2),
            "interpolated": interpolate(x[row], 2),
        }[background]
        expected = by_hand(x[row], sums.argsort(descending=True).tolist(), fill, 2, adds)
        np.testing.assert_allclose(scores.curves[row], expected, atol=1e-12)


def interpolate(x: Tensor, length: int) -> Tensor:
    filled = x.clone()
    for start in range(0, len(x), length):
        stop = min(start + length, len(x))
        for t in range(start, stop):
            if start == 0:
                filled[t] = x[stop]
            elif stop == len(x):
                filled[t] = x[start - 1]
            else:
                filled[t] = x[start - 1] + (t - start + 1) / (stop - start + 1) * (x[stop] - x[start - 1])
    return filled


def test_groups_by_numbers_are_features_too_and_may_differ_between_explicands():
    x = data(2, 1, 4, 4)
    numbers = torch.stack([torch.arange(4).repeat_interleave(4), torch.arange(2).repeat_interleave(8)]).view(2, 1, 4, 4)
    net = lambda x: x.sum(dim=(1, 2, 3))  # noqa: E731
    scores = Deletion("black", thresholds=2, features=numbers, output="model")(net, x, x)
    halves = x[1].view(2, 8).sum(dim=1)
    assert torch.allclose(scores.curves[1], torch.stack([halves.sum(), halves.min(), torch.zeros(()).double()]))
    quarters = x[0].view(4, 4).sum(dim=1).sort().values
    assert torch.allclose(scores.curves[0], torch.stack([quarters.sum(), quarters[:2].sum(), torch.zeros(()).double()]))
    alone = Deletion("black", thresholds=2, features=numbers[1:], output="model")(net, x[1:], x[1:])
    assert torch.equal(alone.curves[0], scores.curves[1])


def test_fixed_steps_of_time_stay():
    x = data(1, 4, 1)
    held = torch.tensor([[[False], [False], [True], [True]]])
    attribution = ig2.Random()(lambda x: x.sum(dim=(1, 2)), ig2.Fixed(x, held))
    scores = Deletion("black", thresholds=1, features=ig2.Windows(2, 1), output="model")(
        lambda x: x.sum(dim=(1, 2)), attribution
    )
    assert torch.allclose(scores.curves[0], torch.stack([x.sum(), x[0, 2:].sum()]))


def test_other_metrics_take_windows():
    x = data(2, 6, 2)
    attribution = ig2.Occlusion(groups=ig2.Windows(2, 1))(energies, x)
    assert torch.allclose(
        SensitivityN("black", shares=(0.34, 0.67), features=ig2.Windows(2, 1))(energies, attribution).values,
        torch.ones(2).double(),
    )
    assert (
        DiffID("noise", thresholds=3, features=ig2.Windows(2, 1), measure="output", output="model")(energies, attribution).n
        == 2
    )


def test_a_fill_of_windows_needs_windows():
    refuses(InputError, "Windows", lambda: Deletion("interpolated", features="element")(energies, data(1, 4, 2), data(1, 4, 2)))
