"""The report in a real browser, opened from disk as a person opens it."""

import base64
import csv
import io
import json
import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import sync_playwright

import reports
from ig2.report import write
from ig2.report.page import shorten_name

FLAGS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"
PHOTO, DIGIT, SENTENCE, ROW = range(4)


@pytest.fixture(scope="module")
def browser():
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        reason = f"no browser: install Chromium (apt install chromium), so that one of {', '.join(names)} is on the PATH"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for content in (reports.everything, reports.hostile, reports.alike, reports.rough, reports.many, reports.columns):
        write(content(), folder / f"{content.__name__}.html")
    return folder


@pytest.fixture(scope="module")
def pages(browser):
    """Pages by the options of their screens, each with what was heard of it."""
    pages = {}

    def page(**options):
        if repr(options) not in pages:
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
            context.set_default_timeout(10_000)
            page, trouble, requests = context.new_page(), [], []
            page.on("console", lambda message: trouble.append(message.text))
            page.on("pageerror", lambda error: trouble.append(str(error)))
            page.on("dialog", lambda dialog: (trouble.append(f"dialog {dialog.message}"), dialog.dismiss()))
            context.on("request", lambda request: requests.append(request.url))
            pages[repr(options)] = page, trouble, requests
        return pages[repr(options)]

    return page


@pytest.fixture
def open_page(pages, folder):
    """Open a report; in the end, check that nothing was complained of, said aloud or asked of anyone."""
    heard = []

    def open_page(name="everything", at="", **options):
        page, open_page.trouble, open_page.requests = pages(**options)
        heard.append((open_page.trouble, open_page.requests))
        page.goto("about:blank")  # or a link to another part of the same file would not load it again
        page.goto((folder / f"{name}.html").as_uri() + at)
        ready(page)
        return page

    yield open_page
    for trouble, requests in heard:
        found, asked = trouble[:], requests[:]
        trouble.clear()
        requests.clear()
        assert not found
        own = rf"(data:|blob:|about:blank|{re.escape(folder.as_uri())}/\w+\.html)"
        assert all(re.match(own, url) for url in asked), asked


def ready(page):
    page.wait_for_selector("section[data-input]:not([hidden])[data-ready]")


def shown(page, selector):
    return page.locator(f"section[data-input]:not([hidden]) {selector}")


def go(page, index):
    page.evaluate("hash => { location.hash = hash }", f"#input-{index + 1}")
    page.wait_for_selector(f'section[data-input="{index}"]:not([hidden])[data-ready]')


def open_tab(page, index):
    shown(page, "[role=tab]").nth(index).click()


def differ(first, second):
    """The share of pixels in which two pictures differ."""
    return (first != second).any(axis=2).mean()


def slide(page, control, value):
    shown(page, f'[data-control="{control}"]').fill(str(value))


def pixels(page):
    """The main canvas, (H, W, 3)."""
    url = shown(page, ".stage canvas").evaluate("canvas => canvas.toDataURL('image/png')")
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def centres(drawn):
    """The centre of each of the digit's pixels on the canvas."""
    times = drawn.shape[0] // 12
    return drawn[times // 2 :: times, times // 2 :: times]


def number(text):
    """A number as the page writes it."""
    mantissa, _, power = text.replace("−", "-").replace("+", "").partition("\u00a0×\u00a010")
    return float(mantissa) * 10.0 ** int(power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or 0)


def hover_pixel(page, x, y, shape):
    shown(page, ".stage canvas").scroll_into_view_if_needed()
    box = shown(page, ".stage canvas").bounding_box()
    page.mouse.move(box["x"] + (x + 0.5) * box["width"] / shape[1], box["y"] + (y + 0.5) * box["height"] / shape[0])
    return number(shown(page, ".tip strong").inner_text()), shown(page, ".tip span").inner_text()


def exactly(value, largest, bits):
    """What may be shown for a value: what packing leaves of it, in three digits."""
    return pytest.approx(value, rel=0.0051, abs=largest / (2**bits - 3) * 1.01)


# -- the whole page ----------------------------------------------------------------------------------------------------


def test_every_method_of_every_input_opens_in_silence(open_page):
    page = open_page()
    for index, view in enumerate(reports.everything().inputs):
        go(page, index)
        for tab in range(len(view.methods)):
            open_tab(page, tab)
            assert shown(page, "[role=tab]").nth(tab).get_attribute("aria-selected") == "true"
    assert any(url.startswith("file://") for url in open_page.requests)


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
    assert page.url.endswith("#input-4-method-1") and shown(page, ".target").inner_text() == "over 50K"
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
    slide(page, "smoothing", 2.5)
    slide(page, "threshold", 40)
    shown(page, ".references button").nth(2).click()
    link = page.url.partition("#")[2]
    assert link == "input-1-method-1-reference-2-mode-magnitude-opacity-30-threshold-40-smoothing-2.5"
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


@pytest.mark.parametrize(
    "at", ["#input-1-method-1-reference-9", "#input-2-method-1-reference-1-mode-x-opacity-1.2.3-smoothing-99"]
)
def test_a_link_that_asks_for_what_is_not_there_is_followed_as_far_as_it_goes(open_page, at):
    page = open_page(at=at)
    assert shown(page, ".references [aria-pressed=true] .name").all_inner_texts() in (["All together"], [])
    assert "reference" not in page.url and "NaN" not in page.url


def test_a_link_to_nowhere_leads_to_the_nearest(open_page):
    assert shown(open_page(at="#input-99-method-99"), ".target").inner_text() == "over 50K"
    assert shown(open_page(at="#nothing"), ".target").inner_text() == "tiger cat"


# -- the heat map ------------------------------------------------------------------------------------------------------


def test_each_control_changes_the_picture(open_page):
    page = open_page()
    before = pixels(page)
    for control, value in [("opacity", 30), ("smoothing", 4), ("threshold", 80)]:
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
    drawn, picture = pixels(page), reports.digit().picture
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


def facts(page):
    """What stands below "Does it add up?", by name: the mark and the text."""
    rows = shown(page, ".sums dl > div").all()
    return {row.locator("dt").inner_text(): (row.get_attribute("class"), row.locator("dd").first.inner_text()) for row in rows}


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
    assert told["Trust"] == ("good", "90\u00a0%") and told["Arrival"] == ("poor", "40\u00a0% · ended on the way")
    change = first.output - third.output
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
    page.evaluate("() => { const view = method(); view.arrival = -2.5; view.marks.arrival = 'poor'; drawSums(); }")
    assert facts(page)["Arrival"] == ("poor", "−250\u00a0% · ended beyond it")


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


# -- words and columns -------------------------------------------------------------------------------------------------


def test_words_are_coloured_and_read(open_page):
    page = open_page(at="#input-3")
    view = reports.sentence()
    scores = view.methods[0].scores
    words = shown(page, ".words > span")
    assert words.all_inner_texts() == list(view.units)
    for word, value in zip(words.all(), scores, strict=True):
        assert ("for" if value > 0 else "against") in word.get_attribute("class")
    words.nth(2).hover()
    assert shown(page, ".readout strong").inner_text() == f"{scores[2]:+.3g}".replace("-", "−")
    words.nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert shown(page, ".words > :focus").inner_text() == view.units[1]
    assert shown(page, ".readout bdi").inner_text() == view.units[1]
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
    assert shown(page, "tbody th").all_inner_texts() == [view.units[i] for i in order]
    assert shown(page, "tbody .cell").all_inner_texts() == [view.cells[i] for i in order]
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


# -- downloads ---------------------------------------------------------------------------------------------------------


def downloaded(page, kind):
    with page.expect_download() as download:
        shown(page, f'[data-download="{kind}"]').click()
    return download.value.suggested_filename, download.value.path().read_text("utf-8")


def test_the_numbers_can_be_taken_away_as_json(open_page):
    page = open_page()
    view = reports.photo()
    name, text = downloaded(page, "json")
    assert name == "photo-jpg.json"
    found = json.loads(text)
    assert (found["name"], found["target"], found["contrasted"]) == (view.name, view.target, list(view.contrasted))
    for entry, method in zip(found["methods"], view.methods, strict=True):
        assert entry["name"] == method.name and entry["settings"] == method.settings
        assert entry["residual"] == method.residual
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
        assert cells == (table if index == ROW else [[str(i), word] for i, word in enumerate(view.units)])


# -- everyone's screen -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [320, 390, 820, 1440])
@pytest.mark.parametrize("name", ["everything", "hostile", "rough", "many"])
def test_no_screen_scrolls_sideways(open_page, name, width):
    page = open_page(name, viewport={"width": width, "height": 844})
    for index in range(min(4, page.locator("section[data-input]").count())):
        go(page, index)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_number_never_breaks_however_narrow_its_place(open_page):
    page = open_page("rough", viewport={"width": 320, "height": 844})
    broken = """() => {
      for (const place of document.querySelectorAll(".ticks, .sums dl, .slider, .chart")) place.style.width = "70px";
      const found = [...document.querySelectorAll(".number, .ticks span, .slider output, .chart output, .sums .share")];
      const lines = (each) => each.offsetHeight / parseFloat(getComputedStyle(each).lineHeight);
      return found.filter((each) => each.checkVisibility() && lines(each) > 1.5).map((each) => each.textContent);
    }"""
    assert page.evaluate(broken) == []


CONTRASTS = """() => {
  const read = (colour) => {
    const [red, green, blue, alpha = 1] = colour.match(/[\\d.]+/g).map(Number);
    return { rgb: [red, green, blue], alpha };
  };
  const over = ({ rgb, alpha }, below) => rgb.map((part, i) => part * alpha + below[i] * (1 - alpha));
  const light = (rgb) => rgb.map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest("script, .tip, svg, button:disabled")) continue;
    const above = [];
    for (let at = element; at; at = at.parentElement) above.unshift(at);
    const paper = above.reduce((below, at) => over(read(getComputedStyle(at).backgroundColor), below), [255, 255, 255]);
    const opacity = above.reduce((product, at) => product * Number(getComputedStyle(at).opacity), 1);
    const { rgb, alpha } = read(getComputedStyle(element).color);
    const [low, high] = [light(over({ rgb, alpha: alpha * opacity }, paper)), light(paper)].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) found.push([element.className || element.tagName, element.textContent.slice(0, 20), contrast]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["everything", "rough"])
def test_letters_stand_out_from_what_is_below_them(open_page, name, scheme):
    page = open_page(name, color_scheme=scheme, reduced_motion="reduce")
    for index in range(4):
        go(page, index)
        for opacity, threshold in ((100, 0), (70, 60)):
            if index != ROW:
                slide(page, "opacity", opacity)
            slide(page, "threshold", threshold)
            assert page.evaluate(CONTRASTS) == []


def test_a_link_skips_what_comes_before_the_explanation(open_page):
    page = open_page("many", at="#input-3-method-2")
    page.keyboard.press("Tab")
    skip = page.locator(".skip")
    assert skip.evaluate("link => link === document.activeElement && getComputedStyle(link).clipPath") == "none"
    page.keyboard.press("Enter")
    assert page.url.endswith("#input-3-method-2")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "tab"


@pytest.mark.parametrize("width", [390, 1440])
def test_long_names_keep_to_two_lines_of_the_sidebar(open_page, width):
    page = open_page("many", viewport={"width": width, "height": 844})
    sizes = page.locator(".inputs .name").evaluate_all("names => names.map(n => [n.clientHeight, n.clientWidth])")
    heights, widths = zip(*sizes, strict=True)
    assert max(heights) < 2.2 * min(heights) and max(widths) <= 9 * 16
    assert all(link.get_attribute("title") for link in page.locator(".inputs a").all())


def test_names_of_a_camera_keep_their_end():
    assert shorten_name("IMG_20240817_103455_HDR_0007.jpg") == "IMG_20240817_…HDR_0007.jpg"
    assert shorten_name("cat.png") == "cat.png" and shorten_name("Where did guinea pigs originate?").endswith("originate?")


def test_dark_mode_is_dark(open_page):
    colour = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    light, dark = (open_page(color_scheme=scheme).evaluate(colour) for scheme in ("light", "dark"))
    assert min(light) > 240 and max(dark) < 40


@pytest.mark.parametrize("index", [PHOTO, SENTENCE, ROW])
def test_the_keyboard_reaches_everything_and_shows_where_it_is(open_page, index):
    page = open_page(at=f"#input-{index + 1}")
    page.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => {
              const at = document.activeElement;
              if (at === document.body) return null;
              const ring = at.type === 'radio' ? at.nextElementSibling : at;
              const { outlineStyle, outlineWidth } = getComputedStyle(ring);
              return [at.id || at.dataset.download || at.className || at.tagName, outlineStyle, parseFloat(outlineWidth)];
            }"""
        )
        if found is None:
            break
        reached.append(found)
    assert all(style != "none" and width >= 1 for _, style, width in reached)
    names = [str(name) for name, _, _ in reached]
    assert {f"tab-{index}-0", f"threshold-{index}", "json", "csv", "SUMMARY"} <= set(names)
    assert index == ROW or f"opacity-{index}" in names
    assert len([name for name in names if name.startswith("tab-")]) == 1  # the arrow keys go on from there


def test_nothing_moves_for_those_who_asked_for_stillness(open_page):
    duration = "getComputedStyle(document.querySelector('[role=tab]')).transitionDuration"
    still, moving = (open_page(reduced_motion=motion).evaluate(duration) for motion in ("reduce", "no-preference"))
    assert still == "0s" != moving


def test_paper_shows_the_picture_and_the_settings_and_no_controls(open_page):
    page = open_page()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert not shown(page, ".controls").is_visible() and not page.locator("nav").is_visible()
    assert shown(page, ".stage canvas").is_visible() and shown(page, ".settings").first.is_visible()
    page.emulate_media(media="null")


def test_an_old_browser_is_told_so(open_page):
    page = open_page()
    page.evaluate("() => { delete window.DecompressionStream; location.hash = '#input-2'; }")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "too old" in page.locator("#trouble").inner_text()
