"""Smoothed and Pooled: slow replicas, sums kept, the same from a finished attribution, and what they refuse."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import ig2
from ig2._utils.blur import smooth
from ig2.errors import InputError
from ig2.names import Names
from networks import data, randn, refuses, relu_cnn, seeded, tanh_mlp

X, NET = data(3, 2, 8, 8, seed=1, low=0), relu_cnn()
REFERENCES = data(4, 2, 8, 8, seed=2, low=0)
METHODS = [
    (ig2.Gradient(), None), (ig2.IntegratedGradients(4), None), (ig2.IG2(3), REFERENCES), (ig2.DeepSHAP(), REFERENCES),
    (ig2.KernelSHAP(ig2.Grid(2, 2)), None), (ig2.SmoothGrad(ig2.Gradient(), 3), None), (ig2.Random(), None),
]  # fmt: skip


def blur_line(line, sigma):
    """A line blurred pixel by pixel: the Gaussian's weights over the mirrored line, cut at four sigma."""
    radius, size = int(4 * sigma + 0.5), len(line)
    weights = [math.exp(-0.5 * (d / sigma) ** 2) for d in range(-radius, radius + 1)]
    blurred = np.zeros(size)
    for i in range(size):
        for d, weight in zip(range(-radius, radius + 1), weights, strict=True):
            place = (i + d) % (2 * size)
            blurred[i] += weight / sum(weights) * line[place if place < size else 2 * size - 1 - place]
    return blurred


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.5, 40.0])
def test_it_is_the_blur_of_the_mirrored_map(sigma):
    values = randn(2, 5, 7).numpy()
    expected = np.apply_along_axis(blur_line, 2, np.apply_along_axis(blur_line, 1, values, sigma), sigma)
    assert np.allclose(smooth(torch.from_numpy(values), sigma, (-2, -1)).numpy(), expected, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [0.0, 0.4, 3.0, 20.0, 1e9])
def test_sums_are_kept_to_rounding_and_an_endless_blur_leaves_the_mean(dtype, sigma):
    values = randn(2, 3, 6, 9, dtype=dtype) * torch.tensor([1.0, 1e6], dtype=dtype)[:, None, None, None]
    blurred = smooth(values, sigma, (-2, -1))
    assert blurred.dtype == dtype and blurred.shape == values.shape
    off = (blurred.sum(dim=(-2, -1)) - values.sum(dim=(-2, -1))).abs() / values.abs().sum(dim=(-2, -1))
    assert off.max() < 4 * torch.finfo(dtype).eps
    if sigma == 0:
        assert torch.equal(blurred, values)
    if sigma == 1e9:
        mean = values.double().mean(dim=(-2, -1), keepdim=True)
        assert (blurred.double() - mean).abs().max() < 1e-3 * values.abs().max()
    # what is constant stays so, up to the edges
    assert torch.allclose(smooth(torch.ones_like(values), sigma, (-2, -1)), torch.ones_like(values), atol=1e-6)


@pytest.mark.parametrize(("method", "references"), METHODS)
def test_a_blurred_method_is_the_methods_attribution_blurred(method, references):
    raw = method(NET, X, references=references, seed=3)
    wrapped = ig2.Smoothed(method, 1.5)(NET, X, references=references, seed=3)
    finished = raw.smooth(1.5)
    expected = np.apply_along_axis(blur_line, 3, np.apply_along_axis(blur_line, 2, raw.values.numpy(), 1.5), 1.5)
    assert np.allclose(wrapped.values.numpy(), expected, atol=1e-12)
    assert torch.equal(finished.values, wrapped.values) and not torch.allclose(wrapped.values, raw.values, atol=1e-6)
    assert torch.allclose(wrapped.total, raw.total, atol=1e-12) and torch.allclose(finished.total, raw.total, atol=1e-12)
    for name in ("baseline_outputs", "trust", "arrival", "steps_taken", "gradcf"):
        one, two = getattr(raw, name), getattr(wrapped, name)
        assert (one is None and two is None) or torch.equal(one, two), name
    if raw.residual is not None:
        assert torch.allclose(wrapped.residual, raw.residual, atol=1e-12)
    assert wrapped.settings["complete"] == raw.settings["complete"]
    assert torch.equal(ig2.Smoothed(method, 0)(NET, X, references=references, seed=3).values, raw.values)
    assert raw.smooth(0) is raw


def test_each_references_own_map_is_blurred_and_the_spread_is_theirs():
    plain = ig2.ExpectedIG(4)(NET, X, references=REFERENCES, per_reference=True)
    assert torch.allclose(plain.spread, plain.per_reference.std(dim=1), atol=1e-12)  # the definition that is kept to
    for blurred in (
        plain.smooth(2.0),
        ig2.Smoothed(ig2.ExpectedIG(4), 2.0)(NET, X, references=REFERENCES, per_reference=True, curves=True),
    ):
        for r in range(4):
            assert torch.allclose(blurred.per_reference[:, r], smooth(plain.per_reference[:, r], 2.0, (-2, -1)), atol=1e-12)
        assert torch.allclose(blurred.per_reference.mean(dim=1), blurred.values, atol=1e-12)
        assert torch.allclose(blurred.spread, blurred.per_reference.std(dim=1), atol=1e-12)
    assert blurred.output_curve is not None
    without = ig2.ExpectedIG(4)(NET, X, references=REFERENCES)
    assert without.spread is not None and without.smooth(2.0).spread is None
    refuses(InputError, "follows no path", lambda: ig2.Smoothed(ig2.Gradient(), 1.0)(NET, X, curves=True))


@pytest.mark.parametrize("method", [ig2.ExpectedIG(4), ig2.IG2(4)])
def test_moved_by_nothing_all_stays_as_it_was_with_weights_too(method):
    weighted = ig2.references.Weighted(REFERENCES, [1, 5, 0, 2])
    raw = method(NET, X, references=weighted, per_reference=True)
    for moved in (raw.smooth(1e-3), raw.redistribute(lambda values: values)):
        assert torch.allclose(moved.values, raw.values, atol=1e-12)
        assert torch.allclose(moved.spread, raw.spread, atol=1e-12)
        assert torch.allclose(moved.per_reference, raw.per_reference, atol=1e-12)
    blurred = raw.smooth(2.0)
    shares = (torch.tensor([1, 5, 0, 2]) / 8).double().view(-1, 1, 1, 1)
    mean = (shares * blurred.per_reference).sum(dim=1)
    assert torch.allclose(blurred.values, mean, atol=1e-12)
    squares = (shares * (blurred.per_reference - mean[:, None]) ** 2).sum(dim=1)
    assert torch.allclose(blurred.spread**2, squares / (1 - (shares**2).sum()), atol=1e-12)


def test_settings_have_the_scale_and_blurs_add_up():
    raw = ig2.IntegratedGradients(4)(NET, X)
    assert "smoothed" not in raw.settings and raw.smooth(3.0).settings["smoothed"] == 3
    twice = raw.smooth(3.0).smooth(4.0)
    assert twice.settings["smoothed"] == 5
    wide = data(1, 1, 64, 64)
    twice = smooth(smooth(wide, 3.0, (-2, -1)), 4.0, (-2, -1))
    assert torch.allclose(twice, smooth(wide, 5.0, (-2, -1)), atol=1e-3)
    assert ig2.Smoothed(ig2.IG2(3), 2.0)(NET, X, references=REFERENCES).settings["parts"]["sigma"] == 2


def test_signals_and_grey_images_say_which_axes_are_space():
    signals, series = data(2, 3, 20), data(2, 20, 3)
    net = seeded(lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(72, 2)), 0)
    raw = ig2.IntegratedGradients(4)(net, signals)
    for blurred in (raw.smooth(2.0, axes=(-1,)), ig2.Smoothed(ig2.IntegratedGradients(4), 2.0, axes=(2,))(net, signals)):
        assert np.allclose(blurred.values.numpy(), np.apply_along_axis(blur_line, 2, raw.values.numpy(), 2.0), atol=1e-12)
        assert torch.allclose(blurred.values.sum(dim=2), raw.values.sum(dim=2), atol=1e-12)  # channel by channel
    turned = ig2.Smoothed(ig2.IntegratedGradients(4), 2.0, axes=(1,))(ig2.wrap(lambda x: net(x.mT)), series)
    again = ig2.Smoothed(ig2.IntegratedGradients(4), 2.0, axes=(-1,))(net, series.mT.contiguous())
    assert torch.allclose(turned.values.mT, again.values, atol=1e-12)
    refuses(InputError, "axes", lambda: raw.smooth(2.0))
    refuses(InputError, "axes", lambda: ig2.Smoothed(ig2.IntegratedGradients(4), 2.0)(net, signals))
    grey = ig2.Gradient()(ig2.wrap(lambda x: NET(torch.stack([x, x], dim=1))), X[:, 0])
    named = grey.with_names(Names("picture", ("a", "b", "c")))
    assert torch.equal(named.smooth(1.0).values, grey.smooth(1.0, (-2, -1)).values)
    volume = ig2.Gradient()(lambda x: x.square().flatten(1).sum(dim=1), data(1, 2, 5, 6, 7))
    assert torch.equal(volume.smooth(1.0).values, volume.smooth(1.0, (2, 3, 4)).values)


def test_of_several_inputs_each_is_blurred():
    pair = (data(2, 1, 6, 6), data(2, 3, 4, 5, seed=4))
    model = ig2.wrap(lambda a, b: a.pow(3).sum((1, 2, 3)) + b.pow(2).sum((1, 2, 3)))
    raw = ig2.IntegratedGradients(4)(model, pair)
    for blurred in (raw.smooth(1.0), ig2.Smoothed(ig2.IntegratedGradients(4), 1.0)(model, pair)):
        for one, two in zip(raw.values, blurred.values, strict=True):
            assert torch.allclose(two, smooth(one, 1.0, (-2, -1)), atol=1e-12)


def test_neither_the_batch_nor_its_size_matters():
    method = ig2.Smoothed(ig2.IG2(3), 1.0)
    together = method(NET, X, references=REFERENCES)
    for size in (1, 5):
        assert torch.allclose(method(NET, X, references=REFERENCES, batch_size=size).values, together.values, atol=1e-12)
    alone = method(NET, X[1:2], references=REFERENCES)
    assert torch.allclose(alone.values[0], together.values[1], atol=1e-12)


def test_what_has_no_space_is_refused_with_what_to_do():
    rows = ig2.IntegratedGradients(4)(tanh_mlp(), data(2, 6))
    refuses(InputError, "Pooled", lambda: rows.smooth(1.0))
    refuses(InputError, "Pooled", lambda: ig2.Smoothed(ig2.Gradient(), 1.0)(tanh_mlp(), data(2, 6)))
    units = {"units": (("a", "b"),) * 2, "groups": ((0, 0, 0, 1, 1, 1),) * 2}
    for view in ("words", "bars"):
        named = rows.with_names(Names(view, ("1", "2"), **units))
        refuses(InputError, "sum_units", lambda named=named: named.smooth(1.0))
    held = torch.zeros(3, 1, 8, 1, dtype=torch.bool)
    fixed = ig2.Fixed(X, where=held)
    refuses(InputError, "Fixed", lambda: ig2.Smoothed(ig2.Gradient(), 1.0)(NET, fixed))
    refuses(InputError, "Fixed", lambda: ig2.Gradient()(NET, fixed).smooth(1.0))
    for sigma in (-1, math.nan, math.inf, "2", None):
        refuses(InputError, "sigma", lambda sigma=sigma: ig2.Smoothed(ig2.Gradient(), sigma))
        refuses(InputError, "sigma", lambda sigma=sigma: rows.smooth(sigma))
    for axes in ((0,), (-4,), (4,), (2, -2), (), (1.0,), (True,)):
        refuses(InputError, "axes", lambda axes=axes: ig2.Smoothed(ig2.Gradient(), 1.0, axes)(NET, X))
    refuses(InputError, "goes around a method", lambda: ig2.Smoothed("IG2", 1.0))


# -- regions -----------------------------------------------------------------------------------------------------------


LABELS = torch.tensor([[0, 0, 1, 1, 2, 2, 2, 9]] * 8)


def pool_slowly(values, labels):
    pooled = np.zeros_like(values)
    for row in range(len(values)):
        for label in np.unique(labels[row]):
            members = np.broadcast_to(labels[row] == label, values[row].shape)
            pooled[row][members] = values[row][members].sum() / members.sum()
    return pooled


@pytest.mark.parametrize(
    "regions", [LABELS, LABELS.expand(3, 1, 8, 8), lambda x: LABELS, lambda x: LABELS.numpy() + 0 * len(x), ig2.Grid(3, 2)]
)
def test_regions_share_their_sum_equally(regions):
    raw = ig2.ExpectedIG(4)(NET, X, references=REFERENCES, per_reference=True)
    pooled = ig2.Pooled(ig2.ExpectedIG(4), regions)(NET, X, references=REFERENCES, per_reference=True)
    labels = regions.labels(X).expand(3, 1, 8, 8) if isinstance(regions, ig2.Grid) else LABELS.expand(3, 1, 8, 8)
    assert np.allclose(pooled.values.numpy(), pool_slowly(raw.values.numpy(), labels.numpy()), atol=1e-12)
    for r in range(4):
        own = pool_slowly(raw.per_reference[:, r].numpy(), labels.numpy())
        assert np.allclose(pooled.per_reference[:, r].numpy(), own, atol=1e-12)
    assert torch.allclose(pooled.total, raw.total, atol=1e-12) and torch.allclose(pooled.residual, raw.residual, atol=1e-12)
    assert torch.allclose(pooled.spread, pooled.per_reference.std(dim=1), atol=1e-12)


def test_superpixels_are_those_of_each_image():
    pytest.importorskip("skimage")
    regions = ig2.Superpixels(5)
    raw, pooled = ig2.Gradient()(NET, X), ig2.Pooled(ig2.Gradient(), regions)(NET, X)
    assert np.allclose(pooled.values.numpy(), pool_slowly(raw.values.numpy(), regions.labels(X).numpy()), atol=1e-12)
    alone = ig2.Pooled(ig2.Gradient(), regions)(NET, X[2:])
    assert torch.allclose(alone.values[0], pooled.values[2], atol=1e-12)


def test_columns_of_a_table_and_features_that_are_fixed():
    net, rows = tanh_mlp(), data(2, 6)
    groups = torch.tensor([0, 0, 1, 1, 1, 2])
    raw, pooled = ig2.InputXGradient()(net, rows), ig2.Pooled(ig2.InputXGradient(), groups)(net, rows)
    assert np.allclose(pooled.values.numpy(), pool_slowly(raw.values.numpy(), groups.expand(2, 6).numpy()), atol=1e-12)
    held = torch.tensor([[True, False, False, False, False, True]] * 2)
    fixed = ig2.Fixed(rows, where=held)
    raw = ig2.IntegratedGradients(5)(net, fixed)
    pooled = ig2.Pooled(ig2.IntegratedGradients(5), groups)(net, fixed)
    assert (pooled.values[held] == 0).all() and torch.allclose(pooled.total, raw.total, atol=1e-12)
    assert torch.allclose(pooled.values[:, 1], raw.values[:, 1], atol=1e-12)  # alone in its region
    pair = (data(2, 3), data(2, 2, 2))
    model = ig2.wrap(lambda a, b: a.pow(3).sum(1) + b.pow(2).sum((1, 2)))
    pooled = ig2.Pooled(ig2.InputXGradient(), torch.tensor([0, 0, 0, 1, 1, 1, 1]))(model, pair)
    assert all((part.flatten(1) == part.flatten(1)[:, :1]).all() for part in pooled.values)


def test_regions_go_with_the_copies_of_their_explicand():
    each = torch.stack([LABELS, LABELS.mT, LABELS + LABELS.mT])[:, None]
    nested = ig2.SmoothGrad(ig2.Pooled(ig2.Gradient(), each), samples=3)(NET, X).values
    outside = ig2.Pooled(ig2.SmoothGrad(ig2.Gradient(), samples=3), each)(NET, X).values
    assert torch.allclose(nested, outside, atol=1e-12)  # both are linear


def test_regions_that_do_not_fit_are_refused():
    for wrong in (torch.rand(8, 8), 5, None, ig2.Grid, torch.tensor(1)):
        refuses(InputError, "regions", lambda wrong=wrong: ig2.Pooled(ig2.Gradient(), wrong))
    refuses(InputError, "regions", lambda: ig2.Pooled(ig2.Gradient(), LABELS[:, :5])(NET, X))
    refuses(InputError, "regions", lambda: ig2.Pooled(ig2.Gradient(), lambda x: LABELS[:, :5])(NET, X))
    refuses(InputError, "regions", lambda: ig2.Pooled(ig2.Gradient(), lambda x: x)(NET, X))
    refuses(InputError, "grid", lambda: ig2.Pooled(ig2.Gradient(), ig2.Grid(9, 1))(NET, X))
