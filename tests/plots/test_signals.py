"""Signals over time: panels, bands, axes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import drawing
import ig2
from ig2 import modalities, plots
from ig2.errors import InputError
from networks import data, refuses


def panels(figure) -> list:
    return [axes for axes in figure.findobj(lambda item: hasattr(item, "get_lines")) if axes.get_label() != "<colorbar>"]


def bands(axes) -> np.ndarray:
    (mesh,) = [item for item in axes.collections if hasattr(item, "get_coordinates")]
    return np.asarray(mesh.get_array()).ravel()


@pytest.mark.parametrize(("shape", "axis"), [((2, 12), None), ((2, 12), -1), ((12, 2), 1), ((12,), None)])
def test_a_panel_for_each_channel_with_the_curve_on_its_bands(shape, axis):
    values = data(1, *shape)
    figure = plots.signal(drawing.made(values), time_axis=axis, window=3, rate=4.0)
    series = values.view(1, 12)[None] if len(shape) == 1 else values.mT if axis == 1 else values
    series = series.reshape(1, -1, 12)[0].numpy()
    assert len(panels(figure)) == len(series)
    for axes, channel in zip(panels(figure), series, strict=True):
        np.testing.assert_allclose(bands(axes), channel.reshape(4, 3).sum(axis=1))
        np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), np.abs(channel))
        np.testing.assert_allclose(axes.get_lines()[0].get_xdata(), np.arange(12) / 4)
        assert axes.get_xlim() == (0.0, 3.0)
    assert "time in seconds" in drawing.texts(figure) and "0.75 s" in drawing.texts(figure)
    assert drawing.drawn(figure).std() > 0


@pytest.mark.parametrize(("window", "ends"), [(4, [0, 4, 8, 10]), (5, [0, 5, 10]), (99, [0, 10])])
@pytest.mark.parametrize("rate", [None, 5.0])
def test_the_last_band_ends_with_the_signal(window, ends, rate):
    values = data(1, 2, 10)
    for axes, channel in zip(panels(plots.signal(drawing.made(values), window=window, rate=rate)), values[0], strict=True):
        (mesh,) = [item for item in axes.collections if hasattr(item, "get_coordinates")]
        np.testing.assert_allclose(mesh.get_coordinates()[0, :, 0], np.array(ends) / (rate or 1))
        np.testing.assert_allclose(bands(axes), np.add.reduceat(channel.numpy(), ends[:-1]))
        assert axes.get_xlim() == (0.0, 10 / (rate or 1))


@pytest.mark.slow
def test_the_kind_of_an_attribution_decides_and_not_its_shape():
    net = nn.Sequential(nn.Flatten(), nn.Linear(40, 2)).eval()
    mine = modalities.signal.subject(net, 20, "TC", channels=["left", "right"], rate=5, window=0.8)
    known = mine.explain(torch.rand(2, 20, 2), ig2.InputXGradient())
    figure = known.plot()
    assert len(panels(figure)) == 4 and "left" in drawing.texts(figure) and "signal 1" in drawing.texts(figure)
    np.testing.assert_allclose(bands(panels(figure)[0]), known.values[0, :, 0].view(5, 4).sum(dim=1), rtol=1e-5)
    assert "data:image/png" in plots.html(known)


@pytest.mark.parametrize("shape", [(2, 20), (20, 2), (5, 2), (1, 7), (12, 24)])
def test_samples_without_names_that_are_long_and_thin_are_signals(shape):
    values = data(1, *shape)
    unknown = drawing.made(values)
    figure = unknown.plot()
    series = (values if shape[0] < shape[1] else values.mT)[0]
    strongest = series.abs().sum(dim=1).argsort(descending=True)[:6].sort().values
    assert len(panels(figure)) == len(strongest) and not drawing.pictures(figure)
    for axes, channel in zip(panels(figure), series[strongest], strict=True):
        np.testing.assert_allclose(bands(axes), channel)
    assert "data:image/png" in plots.html(unknown)


@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (13, 26), (12, 23), (1, 4, 40), (8, 8, 3)])
def test_samples_without_names_that_are_not_are_images(shape):
    assert drawing.pictures(drawing.made(data(1, *shape)).plot())


def test_names_decide_and_not_the_shape():
    image = drawing.made(data(1, 20, 2), names=ig2.names.Names("picture", ("strip",)))
    assert drawing.pictures(image.plot())
    assert len(panels(plots.signal(image))) == 2  # asked for as a signal, the longer axis is that of time


def test_the_curve_can_be_seen_on_strengths():
    figure = plots.signal(drawing.made(data(1, 1, 8)), kind="magnitude")
    (mesh,) = panels(figure)[0].collections
    assert min(mesh.cmap(0.0)) > 0.9  # nothing is white, not black as in maps of images


@pytest.mark.slow
def test_scales_kinds_and_long_signals():
    values = data(2, 1, 5000) * torch.tensor([1.0, 10.0]).view(2, 1, 1)
    each, shared = (plots.signal(drawing.made(values), scale=scale) for scale in ("each", "shared"))
    ends = [[axes.collections[0].get_clim()[1] for axes in panels(figure)] for figure in (each, shared)]
    assert ends[0][0] < ends[0][1] and ends[1][0] == ends[1][1]
    assert len(bands(panels(each)[0])) <= 240
    strength = plots.signal(drawing.made(values), kind="magnitude")
    assert bands(panels(strength)[0]).min() >= 0 and panels(strength)[0].collections[0].get_clim()[0] == 0
    low = drawing.made(values, trust=torch.zeros(2, 1).double())
    assert "trust is low" in drawing.texts(plots.signal(low))
    flat = plots.signal(drawing.made(torch.zeros(1, 1, 8).double()))
    assert drawing.drawn(flat).std() > 0


def test_windows_too_thin_to_be_seen_share_a_band():
    steps = 500
    numbers = tuple(range(steps))
    names = ig2.names.Names("curve", ("sound",), units=(tuple(map(str, numbers)),), groups=(numbers,), time_axis=1)
    values = data(1, steps)
    figure = plots.signal(drawing.made(values, names=names))
    np.testing.assert_allclose(bands(panels(figure)[0])[:166], values[0, :498].view(166, 3).sum(dim=1))
    assert "a band is the sum over 3 steps" in drawing.texts(figure)


def test_only_the_strongest_channels_are_drawn_and_the_note_says_so():
    values = data(1, 9, 10) * torch.arange(9).view(1, 9, 1)
    figure = plots.signal(drawing.made(values))
    assert len(panels(figure)) == 6 and "the 6 strongest of 9 channels" in drawing.texts(figure)
    assert panels(figure)[0].get_ylabel() == "channel 3"


def test_what_is_no_signal_is_refused():
    refuses(InputError, "signals", lambda: plots.signal(drawing.made(data(1, 1, 4, 4))))
    refuses(InputError, "time_axis", lambda: plots.signal(drawing.made(data(1, 2, 4)), time_axis=0))
    refuses(InputError, "channels", lambda: plots.signal(drawing.made(data(1, 2, 4)), channels=["one"]))
    refuses(InputError, "rate", lambda: plots.signal(drawing.made(data(1, 2, 4)), rate=0))
    refuses(InputError, "window", lambda: plots.signal(drawing.made(data(1, 2, 4)), window=0))
