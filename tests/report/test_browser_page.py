"""The whole page of a report, and what can be downloaded from it."""

import csv
import json
import re

import numpy as np
import pytest

import reports
from browsing import PHOTO, ROW, SENTENCE, differ, downloaded, go, open_tab, pixels, ready, shown, slide

# -- the whole page ----------------------------------------------------------------------------------------------------


def test_every_method_of_every_input_opens_in_silence(open_page):
    page = open_page()
    for index, view in enumerate(reports.everything().inputs):
        go(page, index)
        for tab in range(len(view.methods)):
            open_tab(page, tab)
            assert shown(page, "[role=tab]").nth(tab).get_attribute("aria-selected") == "true"
    assert any(url.startswith("file://") for url in open_page.requests)


def test_shares_and_numbers_are_rounded_and_never_to_what_they_are_not(open_page):
    page = open_page()
    shares = {
        0: "0 %", 0.0004: "below 0.1 %", 0.051: "5.1 %", 0.345: "35 %", 0.994: "99 %",
        0.995: ">99 %", 0.99999: ">99 %", 1: "100 %", 1.7: "170 %", 12.4: "12 times",
        3e7: "millions of times", -0.0004: "−below 0.1 %", -0.997: "−100 %", -25: "−25 times",
    }  # fmt: skip
    said = page.evaluate("shares => shares.map(percent)", [*shares])
    assert [text.replace("\xa0", " ") for text in said] == [*shares.values()]
    numbers = {0: "0", 1234.5: "1235", -0.01234: "−0.0123", 5e6: "5.00 × 10⁶", 1e-7: "1.00 × 10⁻⁷"}
    said = page.evaluate("numbers => numbers.map(number)", [*numbers])
    assert [text.replace("\xa0", " ") for text in said] == [*numbers.values()]


def test_the_policy_stops_other_scripts_and_requests(open_page):
    """That nothing leaves the page is the browser's word too, and not only this page's good behaviour."""
    page = open_page()
    stopped = page.evaluate(
        """() => new Promise(resolve => {
          const stopped = [];
          document.addEventListener('securitypolicyviolation', event => {
            stopped.push(event.effectiveDirective);
            if (stopped.length === 3) resolve(stopped);
          });
          const script = document.createElement('script');
          script.textContent = 'document.title = "taken over"';
          const image = document.createElement('img');
          image.src = 'https://example.org/x.png';
          document.body.append(script, image);
          fetch('https://example.org/').catch(() => {});
        })"""
    )
    assert sorted(stopped) == ["connect-src", "img-src", "script-src-elem"]
    assert page.title() == "A report"
    # the console said so and the image was asked for: the tests of silence would have heard both
    assert open_page.trouble and open_page.requests.pop() == "https://example.org/x.png"
    open_page.trouble.clear()


def test_hostile_names_are_shown_as_text_and_run_nothing(open_page):
    page = open_page("hostile")
    assert page.title() == reports.SCRIPT
    for index, view in enumerate(reports.hostile().inputs):
        go(page, index)
        assert shown(page, ".target").inner_text() == view.target
        assert shown(page, "[role=tab]").first.text_content().strip() == view.methods[0].name
        shown(page, "summary").first.click()
    for index, text in enumerate(reports.HOSTILE):
        go(page, 0)
        assert shown(page, ".references .name").nth(index + 1).text_content() == text
        shown(page, ".references button").nth(index + 1).click()
        assert text in shown(page, ".shown").text_content()
        go(page, 1)
        word = text if len(text) <= 100 else text[:99] + "…"  # all of it is in the readout
        assert shown(page, ".words > span").nth(index).text_content() == word
        shown(page, ".words > span").nth(index).hover()
        assert text in shown(page, ".readout").text_content()
        go(page, 2)
        assert text in shown(page, "tbody th").all_text_contents()
        assert text in shown(page, "tbody .cell").all_text_contents()
    assert page.locator("script").count() == 2
    assert page.locator("img[src=x], [onerror]").count() == 0
    page.wait_for_timeout(50)  # for whatever might still want to run


def test_a_link_leads_to_an_input_and_its_method(open_page):
    page = open_page(at="#input-3-method-2")
    assert shown(page, ".target").inner_text() == "location"
    assert shown(page, "[aria-selected=true]").inner_text() == "Gradient"
    page.locator("nav a").nth(ROW).click()
    ready(page)
    assert page.url.endswith("#input-4-method-1")
    assert shown(page, ".target").inner_text() == "over 50K"
    assert page.locator("nav [aria-current]").get_attribute("href") == "#input-4"
    page.go_back()
    page.wait_for_selector('section[data-input="2"]:not([hidden])')
    assert page.url.endswith("#input-3-method-2")
    open_tab(page, 0)
    assert page.url.endswith("#input-3-method-1")


def test_the_address_is_a_link_to_all_that_was_chosen(open_page):
    page = open_page()
    shown(page, "input[value=magnitude]").check()
    slide(page, "opacity", 30)
    slide(page, "scale", 2.5)
    slide(page, "threshold", 40)
    shown(page, ".references button").nth(2).click()
    link = page.url.partition("#")[2]
    assert link == "input-1-method-1-reference-2-mode-magnitude-opacity-30-threshold-40-scale-2.5"
    before = pixels(page)
    again = open_page(at=f"#{link}")
    assert differ(pixels(again), before) == 0
    assert shown(again, "[aria-pressed=true] .name").inner_text() == "zebra"
    # the next input keeps the settings; the way back leads to this very state
    again.locator("nav a").nth(1).click()
    ready(again)
    again.wait_for_url(re.compile("#input-2-method-1-mode-magnitude-opacity-30"))
    again.go_back()
    again.wait_for_selector('section[data-input="0"]:not([hidden])')
    again.wait_for_url(re.compile(f"#{re.escape(link)}$"))
    assert differ(pixels(again), before) == 0


def test_the_method_stays_in_the_address_from_one_input_to_the_next(open_page):
    page = open_page("many", at="#input-1-method-2")
    page.locator("nav a").nth(7).click()
    page.wait_for_url(re.compile("#input-8-method-2$"))
    assert shown(page, "[aria-selected=true]").inner_text().strip() == "Integrated Gradients"


@pytest.mark.parametrize("at", ["#input-1-method-1-reference-9", "#input-2-method-1-reference-1-mode-x-opacity-1.2.3-scale-99"])
def test_a_link_that_asks_for_what_is_not_there_is_followed_as_far_as_it_goes(open_page, at):
    page = open_page(at=at)
    assert shown(page, ".references [aria-pressed=true] .name").all_inner_texts() in (["All together"], [])
    assert "reference" not in page.url and "NaN" not in page.url


def test_a_link_to_nowhere_leads_to_the_nearest(open_page):
    assert shown(open_page(at="#input-99-method-99"), ".target").inner_text() == "racing"
    assert shown(open_page(at="#nothing"), ".target").inner_text() == "tiger cat"


# -- downloads ---------------------------------------------------------------------------------------------------------


def test_the_numbers_can_be_taken_away_as_json(open_page):
    page = open_page()
    view = reports.photo()
    name, text = downloaded(page, "json")
    assert name == "photo-jpg.json"
    found = json.loads(text)
    assert (found["name"], found["target"], found["contrasted"]) == (view.name, view.target, list(view.contrasted))
    for entry, method in zip(found["methods"], view.methods, strict=True):
        assert entry["name"] == method.name and entry["settings"] == method.settings
        assert entry["residual"] == method.numbers.get("residual")
        largest = np.abs(method.scores).max()
        assert np.array(entry["scores"]) == pytest.approx(method.scores, rel=1e-5, abs=largest / (2**14 - 3) * 1.02)
        assert np.array(entry["output_curve"]["values"]) == pytest.approx(method.output_curve, rel=1e-4)
    own = found["methods"][0]["references"][1]
    assert own["label"] == "zebra" and np.shape(own["scores"]) == (70, 80)


@pytest.mark.parametrize("index", [PHOTO, SENTENCE, ROW])
def test_the_numbers_can_be_taken_away_as_csv(open_page, index):
    page = open_page(at=f"#input-{index + 1}")
    view = reports.everything().inputs[index]
    header, *lines = csv.reader(downloaded(page, "csv")[1].splitlines())
    assert header[2:] == [method.name for method in view.methods]
    expected = np.stack([method.scores.flatten() for method in view.methods], axis=1)
    assert np.array([line[2:] for line in lines], float) == pytest.approx(expected, rel=1e-5, abs=np.abs(expected).max() / 1e4)
    if index == PHOTO:
        assert lines[161][:2] == ["1", "1"]
    else:
        cells = [line[:2] for line in lines]
        # a spreadsheet would run the last cell, so it is marked as text; a number below zero is none of that
        table = [["age", "39"], ["hours", "-40"], ["capital gain", "'=1+1"]]
        assert cells == (table if index == ROW else [[str(i), word] for i, word in enumerate(view.view.name_parts())])
