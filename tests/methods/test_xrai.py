"""XRAI: the greedy choice against a slow replica and the published code, segments, dilation and images of all sizes."""

import sys
import time

import numpy as np
import pytest
import torch
from skimage.morphology import dilation, disk
from skimage.segmentation import felzenszwalb

import ig2
from ig2.errors import InputError, MissingExtraError
from ig2.methods.gradient import Gradient, InputXGradient
from ig2.methods.smoothgrad import SmoothGrad
from ig2.methods.xrai import SIDE, XRAI, _cell_of, _scale, grow, rank_pixels, take_regions
from ig2.references import Union, White, Zeros
from networks import data

TWO_SCALES = (50, 500)  # for tests that are not about the segments, to save their time


def picture(height=SIDE, width=SIDE, channels=3, seed=0):
    """Blobs of several colours on a slope, (channels, height, width) in [0, 1]."""
    random = np.random.default_rng(seed)
    down, right = np.meshgrid(np.linspace(0, 1, height), np.linspace(0, 1, width), indexing="ij")
    image = np.stack([0.2 + 0.2 * down] * channels)
    for _ in range(25):
        row, column, radius = random.uniform([0, 0, 0.03], [1, 1, 0.15])
        inside = (down - row) ** 2 + (right - column) ** 2 < radius**2
        image[:, inside] = random.uniform(0, 1, (channels, 1))
    return torch.from_numpy(image + random.normal(0, 0.01, image.shape)).clamp(0, 1)


def output(x):
    """A score that likes bright pixels in the middle of the image."""
    down, right = torch.meshgrid(torch.linspace(-1, 1, x.shape[-2]), torch.linspace(-1, 1, x.shape[-1]), indexing="ij")
    weight = torch.exp(-3 * (down**2 + right**2)).to(x)
    return (weight * x.square()).flatten(1).sum(dim=1)[:, None]


def members(masks):
    return np.stack(np.nonzero(masks))


def slow_greedy(attribution, masks, least):
    """Every mean again from the start at every choice."""
    taken = np.zeros(attribution.size, dtype=bool)
    ranked = np.zeros(attribution.size)
    while True:
        best, highest = None, -np.inf
        for mask in masks:
            new = mask & ~taken
            if new.sum() >= least and attribution[new].mean() > highest:
                best, highest = new, attribution[new].mean()
        if best is None:
            break
        ranked[best] = highest
        taken |= best
    if not taken.all():
        ranked[~taken] = attribution[~taken].mean()
    return ranked


def fast_greedy(attribution, masks, least):
    region = take_regions(attribution, np.arange(attribution.size), members(masks), least)
    return np.array([attribution[region == mine].mean() for mine in region]), region


# -- the greedy choice -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("least", [1, 5, 20])
@pytest.mark.parametrize("seed", range(6))
def test_greedy_equals_the_slow_one(seed, least):
    random = np.random.default_rng(seed)
    masks = random.random((60, 400)) < random.uniform(0.01, 0.3, (60, 1))
    masks[-1] |= ~masks.any(axis=0)
    attribution = random.normal(size=400) * 10.0 ** random.integers(-6, 6)
    found, _ = fast_greedy(attribution, masks, least)
    assert np.allclose(found, slow_greedy(attribution, masks, least), rtol=1e-9, atol=0)


def test_ties_go_to_the_first_mask_and_not_to_rounding():
    """Sums of tenths leave different crumbs in different orders; all that is left of two masks here is equal."""
    attribution = np.array([0.7, 0.1, 0.1, 0.3, 0.1, 0.1, 0.2, 0.1, 0.1])
    masks = np.zeros((4, 9), dtype=bool)
    masks[0, [0, 3, 1, 2]] = True
    masks[1, [3, 0, 6, 4, 5]] = True
    masks[2, [0, 3, 6]] = True
    masks[3, [7, 8]] = True
    # plain floats, as masks 0 and 1 are left after mask 2: equal in truth
    assert sum(attribution[[0, 3, 1, 2]]) - 0.7 - 0.3 != sum(attribution[[3, 0, 6, 4, 5]]) - 0.7 - 0.3 - 0.2
    _, region = fast_greedy(attribution, masks, 1)
    assert region.tolist() == [0, 1, 1, 0, 2, 2, 0, 3, 3]


def test_a_map_of_zeros_a_single_pixel_and_masks_that_do_not_overlap():
    masks = np.ones((2, 4), dtype=bool)
    assert (fast_greedy(np.zeros(4), masks, 1)[0] == 0).all()
    assert fast_greedy(np.array([2.5]), masks[:, :1], 1)[0] == [2.5]
    _, region = fast_greedy(np.repeat([1.0, 5.0, -2.0, 3.0], 4), np.repeat(np.eye(4, dtype=bool), 4, axis=1), 1)
    assert region[::4].tolist() == [2, 0, 3, 1]  # by decreasing mean


def test_equal_to_the_published_code():
    published = pytest.importorskip("saliency.core.xrai")
    image = picture()[:1]
    attribution = np.random.default_rng(3).normal(size=(SIDE, SIDE)) + image[0].numpy()
    masks = XRAI()._masks(felzenszwalb, _scale(image, None))
    dense = np.zeros((masks[0].max() + 1, SIDE**2), dtype=bool)
    dense[tuple(masks)] = True
    segments = [mask.reshape(SIDE, SIDE) for mask in dense]
    expected = published.XRAI().GetMask(image[0].numpy(), None, segments=segments, base_attribution=attribution)
    assert np.allclose(rank_pixels(attribution, masks, 50), expected, atol=1e-12)
    assert not np.allclose(rank_pixels(attribution, masks, 1), expected, atol=1e-3)


def test_some_thousand_masks_take_about_a_second():
    random = np.random.default_rng(0)
    corners = random.integers(0, SIDE - 30, (4000, 2))
    pixels = np.arange(SIDE**2).reshape(SIDE, SIDE)
    held = [pixels[r : r + 30, c : c + 30].ravel() for r, c in corners]
    held[0] = pixels.ravel()
    masks = np.stack([np.repeat(np.arange(4000), [len(cells) for cells in held]), np.concatenate(held)])
    attribution = random.normal(size=(SIDE, SIDE))
    start = time.process_time()
    rank_pixels(attribution, masks, 50)
    assert time.process_time() - start < 4  # 0.5 s where nothing else runs


# -- segments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0, 1, 3, 5])
def test_all_segments_are_grown_as_one_at_a_time(radius):
    labels = felzenszwalb(picture(40, 50).permute(1, 2, 0).numpy(), scale=20, min_size=20)
    assert labels.max() > 5
    dense = np.zeros((labels.max() + 1, labels.size), dtype=bool)
    dense[tuple(grow(labels, radius))] = True
    for label, mask in enumerate(dense):
        assert (mask.reshape(labels.shape) == dilation(labels == label, disk(radius))).all()


def test_cells_that_no_pixel_falls_on_are_left_out_and_do_not_matter():
    image, method = picture(40, 56), XRAI(scales=TWO_SCALES)
    attribution = np.random.default_rng(0).normal(size=(40, 56))
    whole = method._masks(felzenszwalb, _scale(image, None))
    seen = method._masks(felzenszwalb, _scale(image, None), np.unique(_cell_of(40, 56)))
    assert seen.shape[1] < whole.shape[1] / 10
    assert np.array_equal(rank_pixels(attribution, seen, 50), rank_pixels(attribution, whole, 50))


def test_the_image_is_brought_to_one_range_by_its_bounds_or_its_own():
    image = picture(30, 20)
    whole = _scale(image, None)
    assert whole.shape == (SIDE, SIDE, 3)
    assert -1 <= whole.min() < -0.8 and 0.8 < whole.max() <= 1
    assert np.allclose(_scale(image * 255, (0, 255)), _scale(image, (0.0, 1.0)), atol=1e-12)
    assert np.allclose(_scale(image * 7 - 3, None), whole, atol=1e-12)
    assert np.allclose(_scale(image / 2, (0, 1)), (_scale(image, (0, 1)) + 1) / 2 - 1, atol=1e-12)
    assert (_scale(torch.full((3, 8, 8), 4.0), None) == -1).all()


# -- the method --------------------------------------------------------------------------------------------------------


def test_pixels_get_the_mean_of_their_region_and_the_sum_stays():
    x = torch.stack([picture(seed=1), picture(seed=2)])
    base, found = ig2.IntegratedGradients()(output, x), XRAI(ig2.IntegratedGradients())(output, x)
    assert found.values.shape == x.shape
    assert torch.equal(found.values[:, 0], found.values[:, 1]) and torch.equal(found.values[:, 0], found.values[:, 2])
    assert torch.allclose(found.total, base.total, atol=1e-9)
    assert torch.allclose(found.residual, base.residual, atol=1e-9)
    summed, ranked = base.values.sum(dim=1), found.values.sum(dim=1)
    for row in range(2):
        scores = ranked[row].unique()
        assert 5 < len(scores) < 500
        for score in scores:
            assert summed[row][ranked[row] == score].mean() == pytest.approx(float(score), abs=1e-9)


def test_by_default_it_stands_on_integrated_gradients_over_black_and_white():
    x = picture(32, 32)[None]
    model = ig2.wrap(output, bounds=(0, 1))
    found = XRAI(scales=TWO_SCALES)(model, x)
    base = ig2.IntegratedGradients(50)(model, x, references=Union(Zeros(), White()))
    same = XRAI(ig2.IntegratedGradients(50), TWO_SCALES)(model, x, references=Union(Zeros(), White()))
    assert torch.allclose(found.baseline_outputs, base.baseline_outputs)
    assert torch.allclose(found.values, same.values, atol=1e-14)
    assert not torch.allclose(found.values, XRAI(ig2.IntegratedGradients(50), TWO_SCALES)(model, x).values)
    assert torch.allclose(
        XRAI(scales=TWO_SCALES)(model, x, references=0.5).baseline_output, output(torch.full_like(x, 0.5))[:, 0]
    )


@pytest.mark.parametrize("method", [Gradient(), InputXGradient(), SmoothGrad(Gradient(), 2), ig2.BlurIG(5, 4.0)])
def test_it_goes_around_any_method(method):
    x = picture(32, 32)[None]
    base, found = method(output, x), XRAI(method, TWO_SCALES)(output, x)
    assert torch.allclose(found.total, base.total, atol=1e-9)
    assert (found.residual is None) == (base.residual is None)
    assert found.settings["parts"]["method"]["type"] == type(method).__name__


@pytest.mark.parametrize("shape", [(1, 1), (5, 9), (28, 28), (300, 120)])
@pytest.mark.parametrize("channels", [1, 5])
def test_images_of_any_size_and_any_channels(shape, channels):
    x = picture(*shape, channels)[None]
    base, found = ig2.IntegratedGradients(5)(output, x), XRAI(ig2.IntegratedGradients(5), TWO_SCALES)(output, x)
    assert found.values.shape == x.shape
    assert torch.allclose(found.total, base.total, atol=1e-9)
    if shape == (28, 28):
        assert 5 < len(found.values.unique()) < 28 * 28


def test_pixels_of_a_larger_image_are_weighed_one_by_one():
    """The greedy choice on cells of the segmentation is the choice on the image's own pixels."""
    random = np.random.default_rng(5)
    attribution = random.normal(size=(SIDE + 40, SIDE // 2))
    labels = [np.repeat(np.repeat(random.integers(0, 30, (7, 7)), 32, 0), 32, 1) for _ in range(2)]
    masks = np.concatenate([grow(labels[0], 3), grow(labels[1], 3) + np.array([[30], [0]])], axis=1)
    dense = np.zeros((60, SIDE, SIDE), dtype=bool)
    dense.reshape(60, -1)[tuple(masks)] = True
    down = [int((row + 0.5) * SIDE / (SIDE + 40)) for row in range(SIDE + 40)]
    right = [int((column + 0.5) * SIDE / (SIDE // 2)) for column in range(SIDE // 2)]
    own = dense[:, down][:, :, right].reshape(60, -1)
    expected = slow_greedy(attribution.ravel(), own, 50 * attribution.size / SIDE**2)
    assert np.allclose(rank_pixels(attribution, masks, 50).ravel(), expected, atol=1e-12)


def test_a_batch_is_its_images_alone():
    x = torch.stack([picture(28, 28, seed=seed) for seed in range(3)])
    method = XRAI(scales=TWO_SCALES)
    together = method(output, x)
    for row in range(3):
        assert torch.allclose(method(output, x[row : row + 1]).values[0], together.values[row], atol=1e-12)
    constant = method(output, torch.full_like(x[:1], 0.5)).values  # one region
    assert torch.allclose(constant, constant.mean().expand_as(constant), atol=1e-12)


class Broken(ig2.Method):
    def run(self, task, references, keep):
        return ig2.methods.base.Result(task.x * torch.nan)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: XRAI("ig"), "goes around a method"),
        (lambda: XRAI(scales=()), "scales must be positive"),
        (lambda: XRAI(scales=(50, -1)), "scales must be positive"),
        (lambda: XRAI(sigma=-1.0), "sigma must be a number, 0 or more"),
        (lambda: XRAI(min_size=0), "min_size must be a positive integer"),
        (lambda: XRAI(dilate=-1), "dilate must be a number, 0 or more"),
        (lambda: XRAI(min_new=0), "min_new must be a positive integer"),
        (lambda: XRAI()(lambda x: x.sum(dim=1), data(2, 6)), "XRAI needs images"),
    ],
)
def test_wrong_settings_and_inputs_are_refused(make, said):
    with pytest.raises(InputError, match=said):
        make()


def test_an_attribution_that_is_not_finite_is_not_ranked():
    with pytest.raises(ig2.ModelError, match="attribution is not finite for explicand 0"):
        XRAI(Broken())(output, picture(8, 8)[None])


def test_without_scikit_image_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "skimage.segmentation", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ig2\[image\]'"):
        XRAI()(output, picture(8, 8)[None])
