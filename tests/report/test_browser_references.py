"""The references of a report, its curves, and how far to believe it."""

import re

import numpy as np
import pytest

import reports
from browsing import differ, exactly, facts, go, hover_pixel, number, open_tab, pixels, shown
from ig2.verdict import mark_row

# -- references and curves ---------------------------------------------------------------------------------------------


def test_a_reference_shows_its_own_attribution(open_page):
    page = open_page()
    method = reports.photo().methods[0]
    whole = pixels(page)
    buttons = shown(page, ".references button")
    assert shown(page, ".references .name").all_inner_texts() == ["All together", "espresso", "zebra", "pizza"]
    buttons.nth(2).focus()
    page.keyboard.press("Enter")
    assert buttons.nth(2).get_attribute("aria-pressed") == "true"
    assert "Contrasted with zebra alone." in shown(page, ".shown").inner_text()
    assert differ(pixels(page), whole) > 0.5
    blocks = method.references[1].scores.reshape(70, 2, 80, 2).mean(axis=(1, 3))
    value, place = hover_pixel(page, 21, 41, method.scores.shape)
    assert value == exactly(blocks[20, 10], np.abs(blocks).max(), 8)
    assert place == "x 20, y 40, mean of 2 × 2"
    assert shown(page, ".chart .chosen").count() == 2
    buttons.nth(0).click()
    assert differ(pixels(page), whole) == 0


def test_references_without_attributions_of_their_own_are_not_offered(open_page):
    page = open_page("alike")
    assert shown(page, ".references .meaning").inner_text() == "A path leads from the input to each."
    assert shown(page, ".references button:disabled").count() == 2


def test_a_method_without_a_path_is_said_to_compare_and_to_speak_against_if_it_does(open_page):
    page = open_page("pathless")
    for tab, lead in enumerate(("The input is compared with each.", "The input is compared with it.")):
        open_tab(page, tab)
        assert shown(page, ".references .meaning").inner_text() == lead
    assert shown(page, ".caution").is_hidden()
    open_tab(page, 0)
    assert shown(page, ".references button").first.inner_text().split("\n")[-1] == "from all 2"
    assert shown(page, ".caution").inner_text().startswith("All of this speaks against tiger cat, since the output")
    assert "path" not in shown(page, ".panel").inner_text()


def test_curves_have_a_line_for_each_reference_and_read_the_mean(open_page):
    page = open_page()
    curve = reports.photo().methods[0].output_curve
    chart = shown(page, ".chart").first
    assert chart.locator(".single").count() == 3 and chart.locator(".mean").count() == 1
    assert {"steps from the input", "output"} <= set(chart.locator("text").all_text_contents())
    svg = chart.locator("svg")
    svg.focus()
    for step in range(3):
        page.keyboard.press("ArrowRight")
        said, value = chart.locator("output").inner_text().split(":")
        assert said == f"step {step}"
        assert number(value.split("(")[0].strip()) == pytest.approx(curve[:, step].mean(), rel=0.0051)
    box = svg.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 6, box["y"] + 50)
    assert chart.locator("output").inner_text().startswith("step 12:")


def test_two_points_are_not_drawn_as_a_line(open_page):
    page = open_page("rough", at="#input-1-method-3")
    chart = shown(page, ".chart").first
    assert chart.locator("path").count() == 0 and chart.locator(".dot:not([visibility=hidden])").count() == 2
    assert chart.locator("circle.single").count() == 4
    assert chart.locator("output").inner_text() == "ends only"
    open_tab(page, 0)
    assert shown(page, ".chart").first.locator("path").count() > 0


# -- how far to believe it ---------------------------------------------------------------------------------------------


def test_a_map_whose_signs_are_not_to_be_believed_opens_as_strength(open_page):
    page = open_page("rough")
    for tab in range(3):  # and those it is compared with, too
        open_tab(page, tab)
        assert shown(page, "input[value=magnitude]").is_checked()
        assert shown(page, ".ticks span").first.inner_text() == "0"
    told = shown(page, ".caution")
    assert told.inner_text() == "Strength without signs, as in the map it is compared with: IG²."
    open_tab(page, 0)
    assert told.inner_text().startswith("Strength without signs: trust is 2.0\u00a0%")
    page.mouse.move(0, 0)
    shown(page, ".stage canvas").hover()
    assert shown(page, ".tip strong").inner_text()[0] not in "+−"
    shown(page, "input[value=signed]").check()
    assert told.inner_text().startswith("Do not believe the signs")
    assert "against" in shown(page, ".ticks span").first.inner_text()
    go(page, 1)  # trusted; but the choice stays
    assert shown(page, "input[value=signed]").is_checked() and not told.is_visible()


def test_a_map_whose_signs_hold_opens_with_them_and_a_rough_reference_without(open_page):
    page = open_page("rough", at="#input-2")
    assert shown(page, "input[value=signed]").is_checked() and not shown(page, ".caution").is_visible()
    tabs = "canvas => canvas.toDataURL()"
    before = shown(page, "[role=tab] canvas").first.evaluate(tabs)
    shown(page, ".references button").nth(3).click()
    assert shown(page, "input[value=magnitude]").is_checked()
    assert "trust is 10" in shown(page, ".caution").inner_text()
    assert shown(page, "[role=tab] canvas").first.evaluate(tabs) != before  # like beside like
    shown(page, ".references button").nth(1).click()
    assert shown(page, "input[value=signed]").is_checked()
    assert shown(page, "[role=tab] canvas").first.evaluate(tabs) == before


def test_words_and_columns_without_signs_have_one_colour(open_page):
    page = open_page("rough", at="#input-3")
    assert all("magnitude" in word.get_attribute("class") for word in shown(page, ".words > span").all())
    assert not re.search("[+−]", shown(page, ".words > span").first.get_attribute("aria-label"))
    go(page, 3)
    assert shown(page, ".track .magnitude").count() == 3 and shown(page, ".track .for, .track .against").count() == 0
    assert not re.search("[+−]", "".join(shown(page, "tbody .value").all_inner_texts()))
    shown(page, "input[value=signed]").check()
    assert shown(page, ".track .magnitude").count() == 0


def test_every_reference_shows_its_trust(open_page):
    page = open_page("rough")
    said = shown(page, ".references .said").all_inner_texts()
    assert [text for text in said if "trust" in text] == ["trust 0\u00a0%", "trust 2.0\u00a0%", "trust 90\u00a0%"]


def test_the_sum_and_the_end_of_the_path_follow_the_reference(open_page):
    page = open_page("rough")
    first = reports.rough().inputs[0].methods[0]
    assert facts(page)["Residual"] == ("none", "none · by construction")
    assert facts(page)["Trust"] == ("poor", "2.0\u00a0% · strength only")
    assert "towards espresso, the first reference" in shown(page, ".counterfactual").inner_text()
    end = shown(page, ".counterfactual img").get_attribute("src")
    shown(page, ".references button").nth(3).click()
    third = first.references[2]
    told = facts(page)
    assert told["Trust"] == ("good", "90\u00a0%") and told["Arrival"] == ("poor", "60\u00a0% · paths ended on the way")
    change = first.numbers["output"] - third.output
    assert number(told["Change in the output"][1]) == pytest.approx(change, rel=0.0051)
    assert number(told["Sum of the scores"][1]) == pytest.approx(change + third.residual, rel=0.0051)
    assert told["Residual"] == ("poor", f"1.00 · {100 / abs(change):.0f}\u00a0% of the change")
    assert "Contrasted with pizza alone." in shown(page, ".sums").inner_text()
    assert "towards pizza, as the network" in shown(page, ".counterfactual").inner_text()
    assert shown(page, ".counterfactual img").get_attribute("src") != end
    shown(page, ".references button").nth(0).click()
    assert shown(page, ".counterfactual img").get_attribute("src") == end and "none" in facts(page)["Residual"][1]


def test_a_path_that_overshot_is_said_to_have(open_page):
    page = open_page("rough")
    mark = mark_row({"output": 1.0, "arrival": -2.5})["arrival"]
    change = "mark => { const view = viewer.method(); view.arrival = -2.5; view.marks.arrival = mark; viewer.drawSums(); }"
    page.evaluate(change, mark)
    assert facts(page)["Arrival"] == ("poor", "−250\u00a0% · paths ended beyond the reference")


def test_a_method_without_a_baseline_has_no_sum(open_page):
    page = open_page(at="#input-3-method-2")
    assert facts(page) == {} and "Output: 7.50 for the input." in shown(page, ".sums").inner_text()


@pytest.mark.parametrize(
    ("value", "text"),
    [("0", "0"), ("7.5", "7.50"), ("-0.0123", "−0.0123"), ("1234.5", "1235"), ("-1.5e-7", "−1.50\u00a0×\u00a010⁻⁷")],
)
def test_numbers_have_three_digits_a_real_minus_and_no_place_to_break(open_page, value, text):
    assert open_page().evaluate(f"number({value})") == text


def test_shares_are_percent_or_times(open_page):
    shares = open_page().evaluate("[0, 0.0004, 0.0512, 0.93, -0.3, 51.2, 2e9].map(percent)")
    assert shares == ["0\u00a0%", "below 0.1\u00a0%", "5.1\u00a0%", "93\u00a0%", "−30\u00a0%", "51 times", "millions of times"]


def test_fields_of_the_user_and_what_makes_a_method_doubtful_are_beside_its_numbers(open_page):
    page = open_page("pathless")
    told = facts(page)
    assert told["Fur"] == ("", "3.00") and told["Hue"] == ("", "<b>red</b>")
    assert "drawn <i>twice</i>" in shown(page, ".sums").inner_text()
    change = "mark => { viewer.method().marks = { contrast: mark }; viewer.drawSums(); }"
    page.evaluate(change, {"mark": "poor", "badge": "none"})
    assert facts(page)["Contrast"] == ("poor", "none")  # a finding that is about none of these numbers
