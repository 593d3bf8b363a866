"""What a person does and sees on a page of a report, for tests in a browser."""

import base64
import io
import os
import re
import shutil
from contextlib import ExitStack, contextmanager
from importlib import resources

import numpy as np
import pytest
from limits import HANGS
from PIL import Image

FLAGS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"


class _Browser:
    """The browser of this process, while someone uses it."""

    browser = None
    users = 0
    closing = ExitStack()


@contextmanager
def open_browser():
    """The system's Chromium; without one the test is skipped, in CI it fails.

    One for all: while it is open, Playwright's loop of events is running, and a second one cannot be begun.
    """
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        reason = f"no browser: apt install chromium, or have one of {', '.join(names)} on the PATH"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    if not _Browser.users:
        playwright = _Browser.closing.enter_context(sync_playwright())
        _Browser.browser = playwright.chromium.launch(executable_path=executable, args=FLAGS.split(), timeout=HANGS * 1000)
        _Browser.closing.callback(_Browser.browser.close)
    _Browser.users += 1
    try:
        yield _Browser.browser
    finally:
        _Browser.users -= 1
        if not _Browser.users:
            _Browser.closing.close()


def open_screen(browser, **options):
    """A page on a screen of its own, with what it complains of and what it asks for, in lists that grow."""
    context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
    context.set_default_timeout(HANGS * 1000)
    page, trouble, requests = context.new_page(), [], []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: (trouble.append(f"dialog {dialog.message}"), dialog.dismiss()))
    context.on("request", lambda request: requests.append(request.url))
    return page, trouble, requests


def share_screens(browser):
    """A function like `open_screen`, whose screens are opened once for the same options."""
    screens = {}

    def screen(**options):
        if repr(options) not in screens:
            screens[repr(options)] = open_screen(browser, **options)
        return screens[repr(options)]

    return screen


def check_screens(screens, *own):
    """Check that nothing was complained of, and nothing asked of anyone but addresses that match `own`; then forget it."""
    for _, trouble, requests in screens:
        complaints, asked = trouble[:], requests[:]
        trouble.clear()
        requests.clear()
        assert not complaints
        assert all(re.match("|".join(["data:", "blob:", "about:blank", *own]), url) for url in asked), asked


PHOTO, DIGIT, SENTENCE, ROW = range(4)


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


def facts(page):
    """What stands below "Does it add up?", by name: the mark and the text."""
    rows = shown(page, ".sums dl > div").all()
    return {row.locator("dt").inner_text(): (row.get_attribute("class"), row.locator("dd").first.inner_text()) for row in rows}


def downloaded(page, kind):
    """The name and the text of a download."""
    with page.expect_download() as download:
        shown(page, f'[data-download="{kind}"]').click()
    return download.value.suggested_filename, download.value.path().read_text("utf-8")


def find_barriers(frame, *rules):
    """What axe-core finds in a page or frame that keeps someone from using it: rules with the elements that break them."""
    frame.evaluate(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    frame.evaluate("Promise.all(document.getAnimations().map((animation) => animation.finished))")  # colours on their way
    options = {"iframes": False, "resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    violations = frame.evaluate("options => axe.run(document, options).then(({ violations }) => violations)", options)
    return {violation["id"]: [node["html"][:200] for node in violation["nodes"]] for violation in violations}
