"""A report on everyone's screen: narrow, dark, by keyboard, on paper."""

import pytest

from browsing import PHOTO, ROW, SENTENCE, go, shown, slide
from ig2.report.page import shorten_name


@pytest.mark.parametrize("width", [320, 390, 820, 1440])
@pytest.mark.parametrize("name", ["everything", "hostile", "rough", "many", "crossed"])
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
@pytest.mark.parametrize("name", ["everything", "rough", "crossed"])
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
