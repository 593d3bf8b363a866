"""Words with a colour behind them, as a figure and as HTML."""

from __future__ import annotations

import itertools
import re
import warnings

import matplotlib
import numpy as np
import pytest
import torch

from drawing import HOSTILE, SENTENCES, Tags, drawn, made, sample, texts
from ig2 import InputError, plots
from ig2.plots.labels import choose_ink
from ig2.plots.texts import shade


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


def test_ink_has_the_greater_contrast_on_any_colour() -> None:
    def contrast(one: float, other: float) -> float:
        return (max(one, other) + 0.05) / (min(one, other) + 0.05)

    for colour in itertools.product([0.0, 0.02, 0.04, 0.05, 0.3, 0.5, 0.7, 1.0], repeat=3):
        # WCAG 2.2, relative luminance
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
        luminance = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
        assert choose_ink(colour) == ("white" if contrast(luminance, 1) > contrast(luminance, 0) else "black"), colour


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


def test_html_of_words_is_escaped() -> None:
    page = Tags(plots.text_html(made(sample(1, 5)), HOSTILE, titles=["<b>$title</b>"]))
    assert {tag for tag, _ in page.tags} == {"p", "span", "br"}
    assert all(set(attributes) <= {"style", "title", "class"} for _, attributes in page.tags)
    for word in (*HOSTILE[:4], "a b", "<b>$title</b>"):
        assert word in page.text


@pytest.mark.parametrize(
    ("options", "shares"),
    [({}, [1, 0.5, 1, -0.5]), ({"scale": "shared"}, [0.1, 0.05, 1, -0.5]), ({"kind": "magnitude"}, [1, 0.5, 1, 0.5])],
    ids=lambda value: str(value),
)
def test_colours_of_words_in_html_end_where_the_scale_does(options, shares) -> None:
    result = made(torch.tensor([[1.0, 0.5], [10.0, -5.0]]))
    page = plots.text_html(result, [["a", "b"], ["c", "d"]], **options)
    kind = options.get("kind", "signed")
    assert re.findall(r"background-color:(rgba\(.*?\))", page) == [shade(share, kind) for share in shares]


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
