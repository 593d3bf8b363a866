"""The heat map of a report."""

import json
import re

import numpy as np
import pytest
import torch

import reports
from browsing import DIGIT, PHOTO, centres, differ, downloaded, exactly, hover_pixel, number, open_tab, pixels, shown, slide
from ig2._utils.blur import smooth


def test_each_control_changes_the_picture(open_page):
    page = open_page()
    before = pixels(page)
    for control, value in [("opacity", 30), ("scale", 4), ("threshold", 80)]:
        slide(page, control, value)
        after = pixels(page)
        assert differ(after, before) > 0.3, control
        before = after
    shown(page, "input[value=magnitude]").check()
    assert differ(pixels(page), before) > 0.05


def test_methods_are_switched_by_pointer_and_by_keys(open_page):
    page = open_page()
    first = pixels(page)
    open_tab(page, 1)
    second = pixels(page)
    assert differ(second, first) > 0.5
    page.keyboard.press("ArrowRight")  # from the last to the first
    assert differ(pixels(page), first) == 0
    page.keyboard.press("End")
    assert differ(pixels(page), second) == 0
    tab = shown(page, "[role=tab]:focus")
    assert tab.inner_text().strip() == "Integrated Gradients"
    assert shown(page, "[role=tabpanel]").get_attribute("aria-labelledby") == tab.get_attribute("id")


def test_no_opacity_leaves_the_picture_itself(open_page):
    page = open_page(at="#input-2")
    slide(page, "opacity", 0)
    drawn, picture = pixels(page), reports.digit().view.pixels
    assert (drawn == np.kron(picture, np.ones((drawn.shape[0] // 12,) * 2 + (1,), int))).all()


def test_full_opacity_leaves_the_map_in_red_for_and_blue_against(open_page):
    page = open_page(at="#input-2")
    slide(page, "opacity", 100)
    scores = reports.digit().methods[0].scores
    red, _, blue = np.moveaxis(centres(pixels(page)), 2, 0)
    weak = np.abs(scores) < 0.02 * np.abs(scores).max()
    assert (np.sign(red - blue) == np.sign(scores))[~weak].all()
    order = np.argsort(scores[scores > 0])
    assert (np.diff((red - blue)[scores > 0][order]) >= -80).all()  # the darkest red has less of it, and never much less


@pytest.mark.parametrize("threshold", [0, 50, 90])
def test_the_threshold_leaves_the_strongest(open_page, threshold):
    page = open_page(at="#input-2")
    slide(page, "opacity", 60)
    slide(page, "threshold", threshold)
    coloured = np.ptp(centres(pixels(page)), axis=2) > 60  # below the map the picture is all but grey
    strength = np.abs(reports.digit().methods[0].scores)
    hidden = strength < np.sort(strength.flatten())[int(strength.size * threshold / 100)]
    assert not coloured[hidden & (strength > 0.3)].any() or threshold == 0
    assert coloured[~hidden & (strength > 1)].mean() > 0.9
    said = shown(page, ".slider output").last.inner_text()
    assert said.startswith(f"strongest {100 - threshold}\u00a0%" if threshold else "everything")


def test_hover_reads_the_value_of_the_pixel(open_page):
    page = open_page()
    rng = np.random.default_rng(0)
    for tab, method in enumerate(reports.photo().methods):
        open_tab(page, tab)
        for y, x in [(0, 0), (139, 159), *rng.integers(0, 140, (6, 2))]:
            value, place = hover_pixel(page, x, y, method.scores.shape)
            assert value == exactly(method.scores[y, x], np.abs(method.scores).max(), 14)
            assert place == f"x {x}, y {y}"
    page.mouse.move(0, 0)
    assert not shown(page, ".tip").is_visible()


@pytest.mark.slow
@pytest.mark.parametrize(("index", "sigma"), [(PHOTO, 4), (DIGIT, 0.5), (DIGIT, 16)])
def test_the_scale_blurs_the_values_as_python_does_and_keeps_their_sum(open_page, index, sigma):
    page = open_page(at=f"#input-{index + 1}")
    slide(page, "scale", sigma)
    assert page.url.endswith(f"-scale-{sigma}")
    view = reports.everything().inputs[index]
    again = open_page(at=page.url[page.url.index("#") :])
    name, text = downloaded(again, "json")
    content = json.loads(text)
    assert name.endswith(f"-{sigma}px.json") and content["blurred_by_pixels"] == sigma
    for tab, (entry, method) in enumerate(zip(content["methods"], view.methods, strict=True)):
        blurred = smooth(torch.from_numpy(method.scores), sigma, (-2, -1)).numpy()
        largest = np.abs(blurred).max()
        assert np.abs(np.array(entry["scores"]) - blurred).max() < 1e-3 * largest
        packed = np.abs(method.scores).max() / (2**14 - 3) * method.scores.size**0.5  # errors of packing add up by chance
        assert np.sum(entry["scores"]) == pytest.approx(method.scores.sum(), abs=3 * packed)
        open_tab(again, tab)
        for y, x in [(0, 0), (7, 3), np.unravel_index(np.abs(blurred).argmax(), blurred.shape)]:
            assert hover_pixel(again, x, y, blurred.shape)[0] == pytest.approx(blurred[y, x], rel=0.0051, abs=1e-3 * largest)
        assert number(re.search(r"has (.*?)\. ", shown(again, ".shown").inner_text())[1]) == pytest.approx(largest, rel=0.006)
        slide(again, "threshold", 60)
        cutoff = number(shown(again, ".slider output").last.inner_text().partition("from ")[2])
        assert cutoff == pytest.approx(
            np.sort(np.abs(blurred).flatten())[int(blurred.size * 0.6)], rel=0.01, abs=1e-3 * largest
        )
        slide(again, "threshold", 0)


def test_strength_is_that_of_the_blurred_values(open_page):
    page = open_page(at="#input-2-method-1-mode-magnitude-scale-2")
    blurred = smooth(torch.from_numpy(reports.digit().methods[0].scores), 2, (-2, -1)).numpy()
    assert hover_pixel(page, 4, 5, blurred.shape)[0] == pytest.approx(abs(blurred[5, 4]), abs=1e-3 * np.abs(blurred).max())


def test_a_report_opens_at_the_scale_it_was_written_with(open_page):
    page = open_page("scaled")
    assert page.url.endswith("#input-1-method-1")
    scores = reports.photo().methods[0].scores
    blurred = smooth(torch.from_numpy(scores), 3, (-2, -1)).numpy()
    value, _ = hover_pixel(page, 30, 20, scores.shape)
    assert value == pytest.approx(blurred[20, 30], rel=0.0051, abs=1e-3 * np.abs(blurred).max())
    slide(page, "scale", 0)
    assert page.url.endswith("-scale-0")
    value, _ = hover_pixel(page, 30, 20, scores.shape)
    assert value == exactly(scores[20, 30], np.abs(scores).max(), 14)


def test_the_keyboard_reads_pixels_aloud(open_page):
    page = open_page(at="#input-2")
    scores = reports.digit().methods[0].scores
    shown(page, ".stage canvas").focus()
    for key, (y, x) in [("ArrowRight", (6, 5)), ("ArrowRight", (6, 6)), ("ArrowDown", (7, 6)), ("Shift+ArrowLeft", (7, 0))]:
        page.keyboard.press(key)
        place, _, value = shown(page, ".readout").text_content().partition(": ")
        assert place == f"x {x}, y {y}"
        assert number(value) == exactly(scores[y, x], np.abs(scores).max(), 14)
    page.keyboard.press("Escape")
    assert not shown(page, ".cross").is_visible()


def test_a_finger_reads_pixels(open_page):
    page = open_page(at="#input-2", has_touch=True, viewport={"width": 390, "height": 844})
    scores = reports.digit().methods[0].scores
    canvas = shown(page, ".stage canvas")
    box = canvas.bounding_box()
    canvas.tap(position={"x": 3.5 * box["width"] / 10, "y": 2.5 * box["height"] / 12})
    assert number(shown(page, ".tip strong").inner_text()) == exactly(scores[2, 3], np.abs(scores).max(), 14)


def test_the_colour_bar_has_numbers_and_marks_the_value(open_page):
    page = open_page(at="#input-2")
    scores = reports.digit().methods[0].scores
    low, zero, high = shown(page, ".ticks span").all_inner_texts()
    limit = np.sort(np.abs(scores).flatten())[int(scores.size * 0.99)]
    assert number(low.removesuffix(", against")) == exactly(-limit, limit, 14)
    assert (zero, number(high.removeprefix("for, "))) == ("0", exactly(limit, limit, 14))
    y, x = np.unravel_index(np.abs(scores - limit / 2).argmin(), scores.shape)
    hover_pixel(page, x, y, scores.shape)
    assert float(shown(page, ".marker").evaluate("m => parseFloat(m.style.left)")) == pytest.approx(75, abs=2)
