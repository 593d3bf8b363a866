"""Heat maps carry the data they show, on scales that do not mislead, whatever comes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import networks
from drawing import colour_bars, drawn, made, pictures, sample, shown, texts
from ig2 import Attribution, InputError, plots

# -- heat maps ---------------------------------------------------------------------------------------------------------


def test_a_heat_map_has_a_picture_a_map_and_a_colour_bar_for_each_explicand() -> None:
    result = made(sample(3, 3, 8, 9), explicand=networks.data(3, 3, 8, 9, low=0))
    figure = plots.heat_map(result)
    images = pictures(figure)
    assert len(images) == 6 and len(colour_bars(figure)) == 3
    for row in range(3):
        np.testing.assert_array_equal(shown(images[2 * row]), result.explicand[row].movedim(0, -1).numpy())
        np.testing.assert_allclose(shown(images[2 * row + 1]), result.values[row].sum(dim=0).numpy(), rtol=1e-12)


def test_a_signed_scale_is_symmetric_and_ends_at_the_percentile() -> None:
    values = sample(2, 8, 8) + 0.3
    for row, image in enumerate(pictures(plots.heat_map(made(values), percentile=90))[1::2]):
        end = np.percentile(values[row].abs().numpy(), 90)
        assert image.get_clim() == pytest.approx((-end, end))


@pytest.mark.parametrize(
    ("kind", "part"), [("magnitude", lambda v: v.abs()), ("positive", lambda v: v.clamp(min=0)), ("signed", lambda v: v)]
)
def test_kinds_of_maps_show_their_part_of_the_channel_sum(kind, part) -> None:
    values = sample(1, 3, 8, 8)
    image = pictures(plots.heat_map(made(values), kind=kind))[1]
    np.testing.assert_allclose(shown(image), part(values.sum(dim=1))[0].numpy(), rtol=1e-12)
    assert (image.get_clim()[0] == 0) == (kind != "signed")


def test_a_shared_scale_is_shared_and_an_own_scale_is_not() -> None:
    values = sample(3, 8, 8) * torch.tensor([1.0, 2.0, 5.0])[:, None, None]
    shared = plots.heat_map(made(values), scale="shared", percentile=100)
    own = plots.heat_map(made(values), percentile=100)
    assert {image.get_clim() for image in pictures(shared)[1::2]} == {(-values.abs().max().item(), values.abs().max().item())}
    assert len({image.get_clim() for image in pictures(own)[1::2]}) == 3
    assert len(colour_bars(shared)) == 1


def test_the_figure_says_that_colours_end_before_the_largest_value_and_only_then() -> None:
    values = sample(1, 8, 8)
    cut, whole = plots.heat_map(made(values)), plots.heat_map(made(values), percentile=100)
    assert "colours end at percentile 99" in texts(cut)
    assert "percentile" not in texts(whole)
    # the pointed ends of the bar
    assert len(colour_bars(cut)[0].patches) == 2 and len(colour_bars(whole)[0].patches) == 0


def test_an_overlay_shows_the_explicand_through_the_map() -> None:
    values, bright, dark = sample(1, 3, 8, 8), torch.ones(1, 3, 8, 8), torch.zeros(1, 3, 8, 8)
    options = {"explicand": False, "titles": [""]}
    over = drawn(plots.heat_map(made(values, bright), overlay=0.5, **options))
    assert not np.array_equal(over, drawn(plots.heat_map(made(values, dark), overlay=0.5, **options)))
    assert not np.array_equal(over, drawn(plots.heat_map(made(values, bright), overlay=1.0, **options)))
    # without an overlay the explicand leaves no trace in the map
    alone = [drawn(plots.heat_map(made(values, x), **options)) for x in (bright, dark)]
    np.testing.assert_array_equal(*alone)


def test_an_overlay_is_as_opaque_as_the_map_is_strong() -> None:
    values = torch.tensor([[[0.0, 1.0], [-2.0, 4.0]]])
    image = pictures(plots.heat_map(made(values), overlay=0.8, percentile=100))[1]
    np.testing.assert_allclose(image.get_alpha(), [[0.0, 0.2], [0.4, 0.8]])


def test_smoothing_keeps_the_sum_and_is_told() -> None:
    values = torch.zeros(1, 21, 21)
    values[0, 10, 10] = 1
    figure = plots.heat_map(made(values), smooth=1.5)
    assert shown(pictures(figure)[1]).max() < 0.1
    assert shown(pictures(figure)[1]).sum() == pytest.approx(1)
    assert "blurred by 1.5 px" in texts(figure)


@pytest.mark.parametrize(
    "shape",
    [
        (2, 1, 28, 28),
        (2, 3, 8, 8),
        (2, 4, 8, 8),
        (2, 13, 8, 8),
        (2, 8, 8),
        (2, 20, 30, 3),
        (1, 3, 4, 200),
        (1, 3, 200, 4),
        (1, 1, 1),
        (1, 1, 500),
        (1, 500, 1),
    ],
)
def test_images_of_every_shape_are_drawn(shape) -> None:
    result = made(sample(*shape))
    drawn(plots.heat_map(result))
    drawn(plots.grid({"a": result}, scale="shared", overlay=0.7))


@pytest.mark.parametrize("factor", [0.0, 1e-300, 1e-30, 1e30, 1e300])
def test_scales_far_from_one_are_drawn(factor) -> None:
    result = made(sample(2, 3, 8, 8) * factor, explicand=networks.data(2, 3, 8, 8, low=0))
    image = pictures(plots.heat_map(result))[1]
    low, high = image.get_clim()
    assert low == -high and np.isfinite(high) and high > 0
    drawn(image.figure)


def test_a_constant_map_and_a_map_of_one_pixel_are_drawn_in_full_colour() -> None:
    single = torch.zeros(1, 40, 40)
    single[0, 3, 3] = 5.0
    for values, end in [(torch.full((1, 8, 8), -2.0), 2.0), (single, 5.0)]:
        image = pictures(plots.heat_map(made(values, explicand=torch.zeros_like(values))))[1]
        assert image.get_clim() == (-end, end)


def test_pictures_keep_the_range_of_images_and_stretch_other_data() -> None:
    def picture(x: Tensor, **options) -> np.ndarray:
        return shown(pictures(plots.heat_map(made(torch.zeros_like(x), x), **options))[0])

    dim = torch.tensor([[[0.2, 0.4]]])
    np.testing.assert_allclose(picture(dim), [[0.2, 0.4]])  # not stretched to black and white
    np.testing.assert_allclose(picture(dim * 400), [[80 / 255, 160 / 255]])
    np.testing.assert_allclose(picture(dim - 1), [[0, 1]])
    np.testing.assert_allclose(picture(dim - 1, bounds=(-1, 1)), [[0.1, 0.2]])
    np.testing.assert_allclose(picture(torch.full((1, 2, 3), -4.0)), np.zeros((2, 3)))
    for low, high in [(0.5, 1.5), (0.0, 2.0), (0.0, 100.0), (0.0, 128.0), (10.0, 256.0)]:  # neither to 1 nor to 255
        np.testing.assert_allclose(picture(torch.tensor([[[low, (low + high) / 2, high]]])), [[0, 0.5, 1]])


def test_the_method_is_named_once_above_the_maps() -> None:
    titles = ["cat", "dog", "owl"]
    result = made(sample(3, 4, 4), method="Gradient")
    figure = plots.heat_map(result, titles=titles)
    heads = [axes.get_title() for axes in figure.axes if axes.get_label() != "<colorbar>"]
    assert heads == ["cat", "Gradient", "dog", "", "owl", ""]
    alone = plots.heat_map(result, titles=titles, explicand=False, overlay=0.8)
    assert [axes.get_title() for axes in alone.axes if axes.get_label() != "<colorbar>"] == titles


def test_more_explicands_than_asked_for_are_left_out_and_counted() -> None:
    figure = plots.heat_map(made(sample(30, 4, 4)), count=3)
    assert len(pictures(figure)) == 6
    assert "the first 3 of 30 inputs" in texts(figure)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinite_values_are_refused(bad) -> None:
    values = sample(2, 3, 8, 8)
    values[1, 0, 0, 0] = bad
    result = made(values, explicand=torch.zeros_like(values))
    calls = [
        lambda: plots.heat_map(result),
        lambda: plots.grid({"a": result}),
        lambda: plots.bars(result),
        lambda: plots.text(made(values[:, 0, 0]), [["a"], ["b"]]),
        lambda: plots.output_curve(replace(result, output_curve=values[:, 0])),
    ]
    for call in calls:
        with pytest.raises(InputError, match="NaN"):
            call()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "sign"}, "kind must be"),
        ({"scale": "same"}, "scale must be"),
        ({"percentile": 0}, "percentile must be"),
        ({"overlay": 2}, "overlay must be"),
        ({"smooth": -1}, "smooth must be"),
        ({"cmap": "nope"}, "no colour map 'nope'"),
        ({"bounds": (1, 0)}, "bounds must be"),
        ({"size": 0}, "size must be"),
        ({"count": 0}, "count must be"),
        ({"titles": ["one"]}, "titles are"),
        ({"input_key": 1}, "single tensor"),
    ],
)
def test_wrong_options_are_named(options, words) -> None:
    with pytest.raises(InputError, match=words):
        plots.heat_map(made(sample(2, 8, 8)), **options)


def test_empty_attributions_are_refused_and_a_notebook_says_so(walked) -> None:
    empty = walked[[]]
    for draw in (plots.heat_map, plots.bars, plots.counterfactual, plots.per_reference, plots.output_curve):
        with pytest.raises(InputError, match="empty"):
            draw(empty)
    assert "0 explicands" in plots.html(empty) and "empty" in plots.html(empty)


def test_other_things_than_attributions_are_refused() -> None:
    with pytest.raises(InputError, match="must be an Attribution"):
        plots.heat_map(sample(2, 8, 8))
    with pytest.raises(InputError, match="are no images"):
        plots.heat_map(made(sample(2, 8)))


# -- several inputs ----------------------------------------------------------------------------------------------------


def test_one_of_several_inputs_is_chosen_by_name_or_position() -> None:
    image, row = sample(2, 3, 8, 8), sample(2, 5)
    target, output = torch.tensor([0, 1]), torch.ones(2)
    named = Attribution({"image": image, "row": row}, explicand={"image": image, "row": row}, target=target, output=output)
    placed = Attribution((image, row), explicand=(image, row), target=target, output=output)
    for result, first, second in [(named, "image", "row"), (placed, 0, 1)]:
        assert len(pictures(plots.attribution(result, input_key=first))) == 4
        assert len(plots.attribution(result, input_key=second).axes) == 2
        for wrong in (None, "other", 7):
            with pytest.raises(InputError, match="several inputs"):
                plots.attribution(result, input_key=wrong)
    alone = Attribution((image,), explicand=(image,), target=target, output=output)
    assert len(pictures(plots.attribution(alone))) == 4
