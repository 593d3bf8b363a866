"""Figures carry the data they show, on scales that do not mislead, whatever comes."""

from __future__ import annotations

import base64
import importlib
import io
import itertools
import re
import sys
import warnings
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

import ig2
import networks
from ig2 import Attribution, InputError, plots
from ig2.names import Names
from ig2.plots.colours import MapStyle


def sample(*shape: int, seed: int = 0) -> Tensor:
    return networks.data(*shape, seed=seed)


def made(values: Tensor, explicand: Tensor | None = None, method: str = "IG2", **fields) -> Attribution:
    count = len(values)
    return Attribution(
        values=values,
        explicand=(values.abs() if explicand is None else explicand),
        target=fields.pop("target", torch.arange(count)),
        output=torch.linspace(1, 2, count, dtype=torch.float64),
        settings={"method": method},
        **fields,
    )


@pytest.fixture(scope="module")
def walked() -> Attribution:
    """IG² of three images with four references, everything kept."""
    net = networks.relu_cnn(channels=3)
    x, references = networks.data(3, 3, 8, 8, low=0), networks.data(4, 3, 8, 8, seed=1, low=0)
    model = ig2.wrap(net, bounds=(0, 1))
    return ig2.IG2(steps=6, rule=ig2.rules.shared)(model, x, references=references, curves=True, per_reference=True)


def drawn(figure: Figure) -> np.ndarray:
    """The figure's pixels."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba()).copy()


def pictures(figure: Figure) -> list[AxesImage]:
    """The uppermost image of every panel, without colour bars."""
    return [axes.images[-1] for axes in figure.axes if axes.images and axes.get_label() != "<colorbar>"]


def colour_bars(figure: Figure) -> list:
    return [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]


def shown(image: AxesImage) -> np.ndarray:
    return np.asarray(image.get_array())


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


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


def test_more_explicands_than_asked_for_are_left_out_and_counted() -> None:
    figure = plots.heat_map(made(sample(30, 4, 4)), count=3)
    assert len(pictures(figure)) == 6
    assert "the first 3 of 30 explicands" in texts(figure)


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


# -- grids -------------------------------------------------------------------------------------------------------------


def test_a_grid_has_a_row_an_explicand_and_a_column_a_method(walked) -> None:
    other = replace(walked, values=walked.values * 2)
    figure = plots.grid({"IG²": walked, "twice": other}, titles=["cat", "dog", "$5"])
    images = pictures(figure)
    assert len(images) == 3 * 3
    for row in range(3):
        np.testing.assert_allclose(shown(images[3 * row]), walked.explicand[row].movedim(0, -1), rtol=1e-12)
        np.testing.assert_allclose(shown(images[3 * row + 1]), walked.values[row].sum(dim=0), rtol=1e-6)
        np.testing.assert_allclose(shown(images[3 * row + 2]), other.values[row].sum(dim=0), rtol=1e-6)
    assert [axes.get_title() for axes in figure.axes[:3]] == ["explicand", "IG²", "twice"]
    assert figure.axes[6].get_xlabel() == "$5"
    drawn(figure)


def test_a_shared_scale_in_a_grid_is_shared_within_a_method(walked) -> None:
    results = {"one": walked, "ten": replace(walked, values=walked.values * 10)}
    shared = pictures(plots.grid(results, scale="shared"))
    own = pictures(plots.grid(results))
    for column in (1, 2):
        assert len({image.get_clim() for image in shared[column::3]}) == 1
        assert len({image.get_clim() for image in own[column::3]}) == 3
    assert shared[2].get_clim()[1] == pytest.approx(10 * shared[1].get_clim()[1])
    assert len(colour_bars(plots.grid(results, scale="shared"))) == 2


def test_a_grid_says_the_rule_of_its_scales_once_and_no_number_below_each_map(walked) -> None:
    figure = plots.grid({"IG²": walked, "ten": replace(walked, values=walked.values * 10)})
    assert "each map's own colours end at percentile 99 of |values|" in texts(figure).replace("\n", " ")
    assert not any(axes.get_xlabel() for axes in figure.axes if axes.get_subplotspec().colspan.start)
    assert "±" not in texts(figure)
    for row in range(3):
        first, second = (np.array(image.get_clim()) for image in pictures(figure)[3 * row + 1 : 3 * row + 3])
        np.testing.assert_allclose(second, 10 * first)
    assert "each method's colours" in texts(plots.grid({"IG²": walked}, scale="shared")).replace("\n", " ")
    assert "the largest |value|" in texts(plots.grid({"IG²": walked}, percentile=100)).replace("\n", " ")


def test_methods_are_compared_without_signs_where_those_of_one_are_not_to_be_believed(walked) -> None:
    assert walked.trust is None
    rough, smooth = (replace(walked, trust=torch.full((3, 4), trust)) for trust in (0.1, 0.9))
    figure = plots.grid({"IG²": rough, "IG": walked})
    assert {image.get_cmap().name for i, image in enumerate(pictures(figure)) if i % 3} == {"inferno"}
    assert "strength without signs, since trust is low (IG²)" in texts(figure).replace("\n", " ")
    for result, kind, name in ((smooth, {}, "RdBu_r"), (rough, {"kind": "signed"}, "RdBu_r"), (rough, {}, "inferno")):
        for drawing in (plots.grid({"IG²": result}, **kind), plots.heat_map(result, **kind)):
            assert pictures(drawing)[1].get_cmap().name == name
            assert ("without signs" in texts(drawing)) == (name == "inferno")
        assert pictures(plots.per_reference(result, **kind))[-1].get_cmap().name == name
    assert pictures(plots.counterfactual(rough))[2].get_cmap().name == "RdBu_r"  # a difference has its signs


def test_only_the_explicands_shown_decide_about_signs(walked) -> None:
    last = replace(walked, trust=torch.tensor([[0.9], [0.9], [0.1]]).expand(3, 4))
    assert pictures(plots.heat_map(last, count=2))[1].get_cmap().name == "RdBu_r"
    assert pictures(plots.per_reference(last, explicand=2))[-1].get_cmap().name == "inferno"


def test_a_grid_of_different_classes_names_each(walked) -> None:
    figure = plots.grid({"a": walked, "b": replace(walked, target=(walked.target + 1) % 4)})
    assert figure.axes[1].get_xlabel() == f"class {int(walked.target[0])}"
    assert figure.axes[2].get_xlabel() == f"class {int((walked.target[0] + 1) % 4)}"
    assert figure.axes[0].get_xlabel() == ""


def test_a_grid_refuses_methods_that_explain_different_samples(walked) -> None:
    with pytest.raises(InputError, match="'b' and 'a' explain different samples"):
        plots.grid({"a": walked, "b": replace(walked, explicand=walked.explicand + 0.1)})
    with pytest.raises(InputError, match="dict of names and Attributions"):
        plots.grid({})
    with pytest.raises(InputError, match=r"results\['a'\] must be an Attribution"):
        plots.grid({"a": walked.values})


# -- counterfactuals and references ------------------------------------------------------------------------------------


def test_a_counterfactual_stands_beside_its_explicand_with_their_difference(walked) -> None:
    figure = plots.counterfactual(walked, reference=2, count=2)
    images = pictures(figure)
    assert len(images) == 6
    np.testing.assert_allclose(shown(images[1]), walked.gradcf[0, 2].movedim(0, -1), rtol=1e-6)
    np.testing.assert_allclose(shown(images[2]), (walked.explicand[0] - walked.gradcf[0, 2]).sum(dim=0), atol=1e-12)
    assert f"output {float(walked.baseline_outputs[0, 2]):.3g}".replace("-", "−") in texts(figure)


def test_without_a_reference_the_mean_counterfactual_and_gradcfe_are_shown(walked) -> None:
    images = pictures(plots.counterfactual(walked, reference=None))
    np.testing.assert_allclose(shown(images[1]), walked.gradcf[0].mean(dim=0).movedim(0, -1), rtol=1e-6)
    np.testing.assert_allclose(shown(images[2]), walked.gradcfe[0].sum(dim=0), atol=1e-6)


def test_both_images_of_a_counterfactual_have_the_same_range() -> None:
    x = torch.tensor([[[-1.0, 1.0]]])
    result = made(torch.zeros_like(x), x, gradcf=torch.tensor([[[[0.0, 0.5]]]]))
    images = pictures(plots.counterfactual(result))
    np.testing.assert_allclose(shown(images[0]), [[0, 1]])
    np.testing.assert_allclose(shown(images[1]), [[0.5, 0.75]])


def test_counterfactuals_need_gradpath_and_an_existing_reference(walked) -> None:
    with pytest.raises(InputError, match="no GradCF"):
        plots.counterfactual(made(sample(2, 8, 8)))
    with pytest.raises(InputError, match="reference must be a number from 0 to 3"):
        plots.counterfactual(walked, reference=4)


def test_each_reference_stands_above_its_own_attribution_on_a_shared_scale(walked) -> None:
    references = networks.data(4, 3, 8, 8, seed=1, low=0)
    figure = plots.per_reference(walked, references, explicand=1, labels=["a", "b", "<c>", "$d$"])
    images = pictures(figure)
    top, below = images[:5], images[5:]
    np.testing.assert_allclose(shown(top[0]), walked.explicand[1].movedim(0, -1))
    np.testing.assert_allclose(shown(top[3]), references[2].movedim(0, -1))
    np.testing.assert_allclose(shown(below[0]), walked.values[1].sum(dim=0), rtol=1e-6)
    np.testing.assert_allclose(shown(below[3]), walked.per_reference[1, 2].sum(dim=0), rtol=1e-6)
    np.testing.assert_allclose(np.mean([shown(image) for image in below[1:]], axis=0), shown(below[0]), atol=1e-6)
    assert len({image.get_clim() for image in below}) == 1
    assert len({image.get_clim() for image in pictures(plots.per_reference(walked, scale="each"))[5:]}) > 1
    drawn(figure)


def test_references_may_differ_for_each_explicand_or_be_left_to_gradcf(walked) -> None:
    own = networks.data(3, 4, 3, 8, 8, seed=5, low=0)
    np.testing.assert_allclose(shown(pictures(plots.per_reference(walked, own, explicand=2))[4]), own[2, 3].movedim(0, -1))
    figure = plots.per_reference(walked, count=2)
    np.testing.assert_allclose(shown(pictures(figure)[2]), walked.gradcf[0, 1].movedim(0, -1), rtol=1e-6)
    assert "GradCF" in texts(figure) and "the first 2 of 4 references" in texts(figure)
    with pytest.raises(InputError, match="references are"):
        plots.per_reference(walked, own[:, :2])
    with pytest.raises(InputError, match="per_reference=True"):
        plots.per_reference(replace(walked, per_reference=None))


def test_without_any_picture_of_a_reference_the_attributions_are_still_shown(walked) -> None:
    figure = plots.per_reference(replace(walked, gradcf=None))
    assert len(pictures(figure)) == 1 + 5
    drawn(figure)


def test_references_of_words_are_a_table_of_the_strongest() -> None:
    own = sample(1, 3, 30, 4)
    result = made(own.mean(dim=1), per_reference=own)
    figure = plots.per_reference(result, names=[f"word{i}" for i in range(30)])
    table = shown(pictures(figure)[0])
    assert table.shape == (1 + 3, 20)
    names = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    columns = [int(name.removeprefix("word")) for name in names]
    np.testing.assert_allclose(table[1:], own[0].sum(dim=-1)[:, columns].numpy())
    strengths = torch.cat([result.values, own[0]]).sum(dim=-1).abs().amax(dim=0)
    assert strengths[columns].min() >= np.delete(strengths.numpy(), columns).max()
    assert "the 20 strongest of 30 features" in texts(figure)


# -- bars --------------------------------------------------------------------------------------------------------------


def test_bars_are_the_strongest_features_and_the_rest_is_summed() -> None:
    values = torch.tensor([[0.1, -3.0, 2.0, 0.5, -0.2]], dtype=torch.float64)
    figure = plots.bars(made(values, explicand=torch.arange(5.0)[None]), ["a", "b", "c", "d", "$e$"], top=2)
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([-3.0, 2.0, 0.4])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b = 1", "c = 2", "3 other features"]
    assert "0.4" in [text.get_text() for text in axes.texts]
    red, blue = axes.patches[1].get_facecolor(), axes.patches[0].get_facecolor()
    assert red[0] > red[2] and blue[2] > blue[0]


def test_bars_of_thousands_of_features_are_as_many_as_asked_for() -> None:
    figure = plots.bars(made(sample(2, 5000).abs()), top=7)
    assert [len(axes.patches) for axes in figure.axes] == [8, 8]
    *strongest, rest = (bar.get_width() for bar in figure.axes[0].patches)
    assert rest == pytest.approx(4 * strongest[0]) and "(bar cut)" in figure.axes[0].texts[-1].get_text()
    assert figure.get_size_inches()[1] < 8
    drawn(figure)


def test_bars_name_positions_of_many_axes() -> None:
    values = torch.zeros(1, 2, 3)
    values[0, 1, 2] = 4.0
    assert "(1, 2)" in plots.bars(made(values)).axes[0].get_yticklabels()[0].get_text()


def test_bars_show_cells_scores_and_spread_where_given() -> None:
    result = made(sample(2, 4), spread=torch.full((2, 4), 0.25))
    figure = plots.bars(result, ["a", "b"], scores=[[1, -2], [3, 4]], cells=[["red", "<b>"], ["blue", "x"]])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["b = <b>", "a = red"]
    whiskers = plots.bars(result, spread=True)
    (lines,) = whiskers.axes[0].collections
    strongest = float(result.values[0][result.values[0].abs().argmax()])
    assert lines.get_segments()[0][:, 0].tolist() == pytest.approx([strongest - 0.25, strongest + 0.25])
    with pytest.raises(InputError, match="no spread"):
        plots.bars(made(sample(1, 4)), spread=True)


def test_a_spread_that_is_tiny_beside_its_value_is_not_shown() -> None:
    values = torch.tensor([[4.0, -3.0, 2.0]], dtype=torch.float64)
    spread = torch.tensor([[0.039, 0.031, 0.02]], dtype=torch.float64)
    kept = spread.clone()
    (lines,) = plots.bars(made(values, spread=spread), spread=True).axes[0].collections
    assert [len(segment) for segment in lines.get_segments()] == [0, 2, 0]
    assert torch.equal(spread, kept)


@pytest.mark.parametrize("values", [torch.zeros(1, 4), -torch.ones(1, 4), torch.ones(1, 1)])
def test_bars_of_odd_values_are_drawn(values) -> None:
    drawn(plots.bars(made(values, explicand=torch.zeros_like(values))))


TABLE = Names(
    "table", ("row <1>", "row 2"), ("<i>ill", "well"), units=(("age", "<town>"),) * 2, groups=((0, 1, 1, -1),) * 2,
    cells=(("47", "Ely"), ("52", "Bath")), becomes=(("39", "Ely"), ("52", "York")),
)  # fmt: skip


def test_columns_are_shown_in_the_users_units_beside_the_counterfactuals() -> None:
    result = made(torch.tensor([[1.0, 2.0, 3.0, 9.0], [-4.0, 1.0, 1.0, 9.0]])).with_names(TABLE)
    figure = result.plot()
    ticks = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert ticks == [["<town> = Ely", "age = 47 → 39"], ["age = 52", "<town> = Bath → York"]]
    assert [bar.get_width() for bar in figure.axes[1].patches] == [-4.0, 2.0]
    assert figure.axes[0].get_title(loc="left").startswith("row <1>: <i>ill, output")
    assert "the counterfactual's value" in texts(figure)
    page = Tags(plots.html(result))
    assert "age = 47 → 39" in page.text and "row <1>: <i>ill" in page.text and "feature 0" not in page.text
    assert not {"town", "i"} & {tag for tag, _ in page.tags}  # escaped
    own = result.plot(names=list("abcd")).axes[0].get_yticklabels()[0].get_text()
    assert own.startswith("d = ")  # names given by hand are of the features
    drawn(figure)


def test_words_are_known() -> None:
    words = Names("text", ("a b",), units=(("good", "<b>"),), groups=((-1, 0, 1, 1),))
    result = replace(made(torch.ones(1, 4, 3)), explicand={"embeddings": torch.ones(1, 4, 3)}).with_names(words)
    assert "good" in texts(result.plot()) and "good" in texts(plots.text(result))
    page = Tags(plots.html(result))
    assert "good" in page.text and "<b>" in page.text and "b" not in {tag for tag, _ in page.tags}
    assert [attributes["title"] for _, attributes in page.tags if "title" in attributes] == ["3", "6"]
    with pytest.raises(InputError, match="knows no words"):
        plots.text(made(torch.ones(1, 4)))


def test_bars_refuse_names_that_do_not_fit() -> None:
    for names in (["a"], "abcd"):
        with pytest.raises(InputError, match="names"):
            plots.bars(made(sample(1, 4)), names)
    with pytest.raises(InputError, match="cells must be"):
        plots.bars(made(sample(1, 4)), cells=[["a"]])
    with pytest.raises(InputError, match="scores are of 2"):
        plots.bars(made(sample(1, 4)), scores=[[1], [2]])


def test_bars_of_low_trust_show_strength_alone_and_say_so() -> None:
    values = torch.tensor([[0.1, -3.0, 2.0]], dtype=torch.float64)
    rough, smooth = (made(values, trust=torch.full((1, 2), trust)) for trust in (0.1, 0.9))
    (axes,) = (figure := plots.bars(rough, ["a", "b", "c"])).axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([3.0, 2.0, 0.1])
    assert len({bar.get_facecolor() for bar in axes.patches}) == 1 and axes.get_xlabel() == "|attribution|"
    assert "strength without signs, since trust is low" in texts(figure).replace("\n", " ")
    for signed in (plots.bars(smooth), plots.bars(rough, kind="signed")):
        assert signed.axes[0].patches[0].get_width() == -3.0 and "without signs" not in texts(signed)
    assert plots.bars(smooth, kind="magnitude").axes[0].patches[0].get_width() == 3.0
    networks.refuses(InputError, "kind", lambda: plots.bars(rough, kind="positive"))
    page = Tags(plots.html(rough))
    assert "−3" not in page.text and "strength without signs" in page.text and "−3" in Tags(plots.html(smooth)).text


# -- text --------------------------------------------------------------------------------------------------------------

SENTENCES = [["Where", "did", "guinea", "pigs", "originate", "?"], ["Straße", "naïve", "Ελλάδα", "$x_1$", "a\tb", ""]]


def test_words_of_a_text_have_the_colour_of_their_score() -> None:
    values = sample(2, 6, 3)
    figure = plots.text(made(values), SENTENCES)
    assert len(figure.axes) == 3  # two texts and the key
    scores = values.sum(dim=-1)
    for row in range(2):
        boxes = figure.axes[row].patches
        assert len(boxes) == 6
        end = scores[row].abs().max()
        for box, score in zip(boxes, scores[row], strict=True):
            assert box.get_facecolor()[:3] == pytest.approx(matplotlib.colormaps["RdBu_r"](0.5 + 0.5 * float(score / end))[:3])
    words = [text.get_text() for text in figure.axes[0].texts][1:]
    assert words == SENTENCES[0]
    drawn(figure)


def test_words_of_low_trust_show_strength_alone_and_say_so() -> None:
    values = torch.tensor([[4.0, -4.0, 0.0]], dtype=torch.float64)
    rough, words = made(values, trust=torch.full((1, 2), 0.1)), ["not", "good", "."]
    figure = plots.text(rough, words)
    first, second, third = (box.get_facecolor() for box in figure.axes[0].patches)
    assert first == second != third and "strength without signs, since trust is low" in texts(figure).replace("\n", " ")
    drawn(figure)
    note, key = figure.texts[-1].get_window_extent(), figure.axes[-1].get_tightbbox()
    assert not note.overlaps(key)
    assert "against the class" not in texts(figure) and "against the class" in texts(plots.text(rough, words, kind="signed"))
    page = plots.text_html(rough, words)
    assert "strength without signs" in page and 'title="−4"' not in page
    assert 'title="−4"' in plots.text_html(rough, words, kind="signed")


def test_words_stay_inside_the_figure_and_long_ones_are_broken() -> None:
    words = ["x" * 90, *["word"] * 60, "short"]
    figure = plots.text(made(sample(1, len(words))), words)
    axes = figure.axes[0]
    assert "".join(text.get_text() for text in axes.texts[1:]).startswith("x" * 90 + "word")
    assert len(axes.patches) == len(words) + 1
    figure.canvas.draw()
    frame = figure.bbox
    for text in axes.texts:
        box = text.get_window_extent()
        assert frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
    boxes = [(patch.get_x(), patch.get_y(), patch.get_width()) for patch in axes.patches]
    for (x, y, width), (after, line, _) in itertools.pairwise(boxes):
        assert line > y or after >= x + width


def test_a_word_of_ten_thousand_letters_is_cut() -> None:
    words = ["x" * 10_000, "short"]
    figure = plots.text(made(sample(1, 2)), words)
    assert "".join(text.get_text() for text in figure.axes[0].texts[1:]) == "x" * 99 + "…short"
    assert "x" * 100 not in plots.text_html(made(sample(1, 2)), words)


def test_positions_beyond_the_words_are_padding() -> None:
    values = torch.tensor([[1.0, 2.0, 100.0]])
    figure = plots.text(made(values), ["two", "words"])
    assert len(figure.axes[0].patches) == 2
    assert figure.axes[0].patches[1].get_facecolor() == matplotlib.colormaps["RdBu_r"](1.0)
    assert "±" not in texts(figure) and "its strongest word" in texts(figure)


def test_a_shared_scale_of_texts_is_the_strongest_word_of_all() -> None:
    result = made(torch.tensor([[1.0, 0.5], [10.0, 5.0]]))
    words = [["a", "b"], ["c", "d"]]
    own, shared = plots.text(result, words), plots.text(result, words, scale="shared")
    assert own.axes[0].patches[0].get_facecolor() == own.axes[1].patches[0].get_facecolor()
    assert shared.axes[0].patches[0].get_facecolor() != shared.axes[1].patches[0].get_facecolor()
    assert "10" in texts(shared)


def test_a_text_of_thousands_of_words_is_cut_and_says_so() -> None:
    figure = plots.text(made(sample(1, 3000)), ["w"] * 3000)
    assert len(figure.axes[0].patches) == 500
    assert "the first 500 of up to 3000 words" in texts(figure).replace("\n", " ")


def test_writing_without_a_font_is_still_drawn() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        drawn(plots.text(made(sample(1, 2)), ["日本語", "한국어"]))


def test_words_that_do_not_fit_the_attribution_are_refused() -> None:
    result = made(sample(2, 3))
    for words in ("text", ["a", "b"], [["a"]], [["a", "b", "c", "d"], ["a"]]):
        with pytest.raises(InputError, match="words"):
            plots.text(result, words)
        with pytest.raises(InputError, match="words"):
            plots.text_html(result, words)
    with pytest.raises(InputError, match="too narrow"):
        plots.text(result, [["a"], ["b"]], width=0.2)
    with pytest.raises(InputError, match="scale must be"):
        plots.text(result, [["a"], ["b"]], scale="mine")


class Tags(HTMLParser):
    """What a browser would see: the tags and the text between them."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


HOSTILE = ['<script>alert("1")</script>', "'\"><img src=x onerror=y>", "&amp;", "</p>", "a\x00b"]


def test_html_of_words_is_escaped() -> None:
    page = Tags(plots.text_html(made(sample(1, 5)), HOSTILE, titles=["<b>$title</b>"]))
    assert {tag for tag, _ in page.tags} == {"p", "span", "br"}
    assert all(set(attributes) <= {"style", "title", "class"} for _, attributes in page.tags)
    for word in (*HOSTILE[:4], "a b", "<b>$title</b>"):
        assert word in page.text


def test_html_of_words_is_readable_on_light_and_dark_pages() -> None:
    page = Tags(plots.text_html(made(torch.tensor([[1.0, -1.0, 0.3, -0.3, 0.0]])), list("abcde")))
    styles = [attributes["style"] for tag, attributes in page.tags if tag == "span" and "title" in attributes]
    colours = [[float(part) for part in re.search(r"rgba\((.*?)\)", style)[1].split(",")] for style in styles]
    alphas = [colour[3] for colour in colours]
    assert alphas == pytest.approx([0.5, 0.5, 0.15, 0.15, 0.0])
    assert colours[0][0] > colours[0][2] and colours[1][2] > colours[1][0]

    def luminance(colour) -> float:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    for paper, ink in [(1.0, 0.13), (0.07, 0.9)]:  # #fff with #212121, #121212 with #e6e6e6
        for *colour, alpha in colours:
            behind = [alpha * part / 255 + (1 - alpha) * paper for part in colour]
            bright, dim = sorted([luminance(behind), luminance([ink] * 3)], reverse=True)
            assert (bright + 0.05) / (dim + 0.05) > 4.5


# -- curves ------------------------------------------------------------------------------------------------------------


def test_the_output_curve_is_the_mean_over_all_paths_with_their_spread(walked) -> None:
    straight = replace(walked, output_curve=walked.output_curve[:, :2, ::2] + 1)
    figure = plots.output_curve({"IG²": walked, "$straight$": straight})
    (axes,) = figure.axes
    curves = walked.output_curve.flatten(0, 1).numpy()
    first, second = axes.lines
    np.testing.assert_allclose(first.get_xdata(), np.linspace(0, 1, 7))
    np.testing.assert_allclose(first.get_ydata(), curves.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(second.get_xdata(), np.linspace(0, 1, 4))
    band = axes.collections[0].get_paths()[0].vertices
    high = np.minimum(curves.mean(axis=0) + curves.std(axis=0), curves.max(axis=0))
    assert band[:, 1].max() == pytest.approx(high.max(), rel=1e-6)
    assert first.get_ydata()[0] == pytest.approx(float(walked.output.mean()), rel=1e-6)
    assert "12 or 6 paths" in texts(figure) or "6 or 12 paths" in texts(figure)
    drawn(figure)


def test_the_curve_of_one_explicand_is_its_own(walked) -> None:
    (axes,) = plots.output_curve(walked, explicand=1).axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), walked.output_curve[1].mean(dim=0), rtol=1e-6)
    with pytest.raises(InputError, match="explicand must be a number from 0 to 2"):
        plots.output_curve(walked, explicand=3)


def test_a_path_of_two_points_is_not_drawn_as_a_line(walked) -> None:
    ends = replace(walked, output_curve=walked.output_curve[:, :, [0, -1]])
    (axes,) = plots.output_curve(ends).axes
    assert axes.lines[0].get_linestyle() == "None"
    assert "ends only" in axes.get_legend().get_texts()[0].get_text()


def test_a_single_path_has_no_band(walked) -> None:
    single = replace(walked[0], output_curve=walked.output_curve[:1, :1])
    figure = plots.output_curve(single)
    assert not figure.axes[0].collections
    assert "deviation" not in texts(figure)


def test_paths_that_agree_have_no_band(walked) -> None:
    alike = replace(walked, output_curve=walked.output_curve[:1, :1].expand(3, 4, -1) * torch.tensor([1, 1.001, 1, 1])[:, None])
    figure = plots.output_curve(alike)
    assert not figure.axes[0].collections
    assert "mean of 12 paths" in texts(figure) and "deviation" not in texts(figure)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_the_distance_curve_counts_steps(walked, scale) -> None:
    figure = plots.distance_curve(walked, scale=scale)
    (axes,) = figure.axes
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), np.arange(7))
    np.testing.assert_allclose(axes.lines[0].get_ydata(), walked.distance_curve.flatten(0, 1).mean(dim=0), rtol=1e-6)
    assert axes.get_yscale() == scale
    drawn(figure)


def test_distances_of_zero_are_drawn_on_a_log_scale_too(walked) -> None:
    distances = torch.zeros(3, 4, 7)
    drawn(plots.distance_curve(replace(walked, distance_curve=distances), scale="log"))
    distances[..., :3] = 1.0
    drawn(plots.distance_curve(replace(walked, distance_curve=distances), scale="log"))


def test_missing_curves_say_how_to_get_them() -> None:
    result = made(sample(2, 8, 8))
    with pytest.raises(InputError, match="'IG2' has no output_curve: call the method with curves=True"):
        plots.output_curve(result)
    with pytest.raises(InputError, match="only methods on GradPath"):
        plots.distance_curve({"IG": result})
    with pytest.raises(InputError, match="dict of names"):
        plots.output_curve([result])


# -- the notebook ------------------------------------------------------------------------------------------------------


def test_the_notebook_shows_images_with_numbers_and_verdict(walked) -> None:
    source = plots.html(walked, count=2)
    page = Tags(source)
    (image,) = [attributes for tag, attributes in page.tags if tag == "img"]
    png = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"))
    assert matplotlib.image.imread(io.BytesIO(png)).ndim == 3
    assert walked.verdict in page.text
    assert "the first 2 shown" in page.text
    for number in (walked.output[1], walked.baseline_output[1]):
        assert f"{float(number):.3g}".replace("-", "−") in page.text
    assert "http" not in source


def test_the_notebook_shows_trust(walked) -> None:
    page = Tags(plots.html(replace(walked, trust=torch.full((3, 4), 0.125))))
    assert "trust" in page.text and "0.125" in page.text and "not its signs" in page.text


def test_the_notebook_shows_bars_of_other_samples() -> None:
    page = Tags(plots.html(made(torch.tensor([[1.0, -2.0, 0.5]]))))
    bars = [attributes["style"] for tag, attributes in page.tags if "background" in (attributes.get("style") or "")]
    assert [re.search(r"width:([\d.]+)%", style)[1] for style in bars] == ["50.0", "25.0", "12.5"]
    assert "feature 1" in page.text and "−2" in page.text and "no baseline" in page.text
    page = Tags(plots.html(made(sample(1, 5000).abs())))
    assert "4992 other features" in page.text and any("#b3b3b3" in (found.get("style") or "") for _, found in page.tags)


def test_the_notebook_escapes_everything() -> None:
    hostile = HOSTILE[0]
    parts = {hostile: sample(1, 4), "image": sample(1, 3, 8, 8)}
    result = Attribution(parts, explicand=parts, target=torch.tensor([0]), output=torch.ones(1), settings={"method": hostile})
    page = Tags(plots.html(result))
    assert {tag for tag, _ in page.tags} == {"div", "strong", "img", "table", "tr", "td"}
    assert page.text.count(hostile) == 2


def test_the_notebook_shows_the_numbers_of_what_cannot_be_drawn() -> None:
    page = Tags(plots.html(made(torch.full((1, 4), float("nan")))))
    assert "NaN" in page.text and "class" in page.text


# -- figures as such ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_every_figure_can_be_saved(walked, tmp_path, suffix) -> None:
    words = made(sample(2, 6))
    figures = [
        plots.heat_map(walked, overlay=0.5),
        plots.grid({"a": walked}, scale="shared"),
        plots.counterfactual(walked),
        plots.per_reference(walked),
        plots.output_curve(walked),
        plots.distance_curve(walked),
        plots.bars(words),
        plots.text(words, SENTENCES),
    ]
    for i, figure in enumerate(figures):
        file = tmp_path / f"{i}.{suffix}"
        figure.savefig(file, bbox_inches="tight", dpi=60)
        assert file.read_bytes()[:5] == {"png": b"\x89PNG\r", "svg": b"<?xml", "pdf": b"%PDF-"}[suffix]


def test_a_figure_shows_itself_in_a_notebook(walked) -> None:
    assert plots.output_curve(walked)._repr_png_().startswith(b"\x89PNG")


def test_pyplot_knows_of_no_figure(walked) -> None:
    from matplotlib import pyplot

    before = dict(matplotlib.rcParams)
    for figure in (plots.heat_map(walked), plots.bars(made(sample(1, 4))), plots.output_curve(walked)):
        drawn(figure)
    plots.html(walked)
    assert pyplot.get_fignums() == []
    assert dict(matplotlib.rcParams) == before


def test_attributions_plot_themselves(walked, tmp_path) -> None:
    figure = walked.plot(tmp_path / "map.png", kind="magnitude", count=1)
    assert (tmp_path / "map.png").stat().st_size > 0
    assert len(pictures(figure)) == 2 and pictures(figure)[1].get_cmap().name == "inferno"
    assert len(made(sample(2, 5)).plot(top=3).axes[0].patches) == 4  # with that of the others


def test_figures_take_the_users_style(walked) -> None:
    with matplotlib.rc_context({"font.size": 20, "figure.facecolor": "black"}):
        figure = plots.output_curve(walked)
        assert figure.get_facecolor()[:3] == (0, 0, 0)
        assert figure.axes[0].xaxis.label.get_size() == 20


def test_formulas_and_control_characters_from_outside_are_plain_text(walked) -> None:
    broken = "$\\frac{$ a\nb\x07"
    result = made(sample(3, 4), method=broken)
    drawn(plots.bars(result, [broken] * 4, titles=[broken] * 3))
    drawn(plots.grid({broken: walked}, titles=[broken] * 3))
    drawn(plots.heat_map(replace(walked, settings={"method": broken}), titles=[broken * 30] * 3))
    drawn(plots.per_reference(walked, labels=[broken] * 4))
    drawn(plots.text(result, [[broken]] * 3, titles=[broken] * 3))
    drawn(plots.output_curve({broken: walked}))


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith("ig2.plots")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ig2.MissingExtraError, match=r"pip install 'ig2\[plots\]'"):
        importlib.import_module("ig2.plots")


def test_strength_is_taken_before_the_blur_so_that_signs_do_not_cancel() -> None:
    signs = (-1.0) ** np.add.outer(np.arange(12), np.arange(12))[None]  # a checkerboard
    assert np.allclose(MapStyle(kind="magnitude", smooth=2).transform(signs), 1)
    assert np.allclose(MapStyle(kind="positive", smooth=2).transform(signs), 0.5, atol=0.05)
    assert np.abs(MapStyle(smooth=2).transform(signs)[0, 4:8, 4:8]).max() < 0.1  # with signs they do
