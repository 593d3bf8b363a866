"""Bars of the strongest columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import networks
from drawing import Tags, drawn, made, sample, texts
from ig2 import InputError, plots
from ig2.names import Names


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
    "bars", ("row <1>", "row 2"), ("<i>ill", "well"), units=(("age", "<town>"),) * 2, groups=((0, 1, 1, -1),) * 2,
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
    words = Names("words", ("a b",), units=(("good", "<b>"),), groups=((-1, 0, 1, 1),))
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
