"""The words and columns of a report."""

import numpy as np
import pytest

import reports
from browsing import number, shown, slide


def test_words_are_coloured_and_read(open_page):
    page = open_page(at="#input-3")
    view = reports.sentence()
    scores = view.methods[0].scores
    words = shown(page, ".words > span")
    assert words.all_inner_texts() == list(view.view.name_parts())
    for word, value in zip(words.all(), scores, strict=True):
        assert ("for" if value > 0 else "against") in word.get_attribute("class")
    words.nth(2).hover()
    assert shown(page, ".readout strong").inner_text() == f"{scores[2]:+.3g}".replace("-", "−")
    words.nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert shown(page, ".words > :focus").inner_text() == view.view.name_parts()[1]
    assert shown(page, ".readout bdi").inner_text() == view.view.name_parts()[1]
    colours = "words => words.map(word => getComputedStyle(word).backgroundColor)"
    before = words.evaluate_all(colours)
    slide(page, "threshold", 50)
    weak = [("weak" in word.get_attribute("class")) for word in words.all()]
    assert weak == (np.abs(scores) < np.sort(np.abs(scores))[3]).tolist()
    slide(page, "opacity", 20)
    assert before != words.evaluate_all(colours)


def test_columns_are_bars_in_order_of_strength(open_page):
    page = open_page(at="#input-4")
    view = reports.row()
    scores = view.methods[0].scores
    order = np.argsort(-np.abs(scores))
    assert shown(page, "tbody th").all_inner_texts() == [view.view.name_parts()[i] for i in order]
    assert shown(page, "tbody .cell").all_inner_texts() == [view.view.cells[i] for i in order]
    assert [number(text) for text in shown(page, "tbody .value").all_inner_texts()] == pytest.approx(scores[order], rel=0.0051)
    lengths = shown(page, ".track span").evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().width)")
    assert np.array(lengths) / lengths[0] == pytest.approx(np.abs(scores[order]) / np.abs(scores).max(), abs=0.02)
    slide(page, "threshold", 40)
    assert shown(page, "tbody .weak").count() == 1


def test_a_number_in_a_cell_is_not_broken(open_page):
    """Beside the sidebar there is room for eight characters, and names may wrap."""
    page = open_page("columns", viewport={"width": 1400, "height": 900})
    lines = shown(page, "tbody .cell bdi").evaluate_all("cells => cells.map(c => [c.innerText, c.getClientRects().length])")
    assert lines == [["0.00619312", 1]] * 6
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
