"""What if in a real browser: edit, upload, explain, cancel, keep."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from limits import wait_for
from PIL import Image

import ig2
from browsing import check_screens, find_barriers, open_screen
from stores import running
from whatifs import Slow, encode, make_bright, make_whatif

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Models and addresses, by the kind of data."""
    folder = tmp_path_factory.mktemp("whatif")
    models = {kind: make_whatif(folder / kind, kind) for kind in ("image", "text", "table")}
    subject = make_bright(slow=True)
    make_whatif(folder / "slow", subject=subject, method=ig2.ExpectedIG(4))
    models["slow"] = make_whatif(folder / "slow", subject=subject, method=ig2.IG2(300))
    image, text, table, slow = (running(model.collection, whatif=model) for model in models.values())
    with image as first, text as second, table as third, slow as fourth:
        yield models, dict(zip(models, (first, second, third, fourth), strict=True))


@pytest.fixture
def visit(browser, served):
    """Open the explorer as a new person; in the end, check that nothing was complained of, and nothing asked of anyone else."""
    visited = []

    def visit(kind="image", at="#item=photo1.png&try=1", state="predicted", **options):
        visited.append(open_screen(browser, **{"viewport": {"width": 1400, "height": 1000}, **options}))
        page, visit.trouble, _ = visited[-1]
        page.goto(served[1][kind] + at)
        page.wait_for_selector("body[data-ready]")
        if state:
            page.wait_for_selector(f"#whatif[data-state={state}]")
        return page

    yield visit
    for page, _, _ in visited:
        page.context.close()
    check_screens(visited, *map(re.escape, served[1].values()))


def explain(page):
    page.locator("#whatif .main").click()
    page.wait_for_selector("#whatif[data-state=done]")


def look(page, selector=".easel canvas"):
    """A canvas, (H, W, 3)."""
    url = page.locator(selector).first.evaluate("canvas => canvas.toDataURL('image/png')")
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def drag(page, start, end):
    box = page.locator(".easel canvas").bounding_box()
    at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*at[0])
    page.mouse.down()
    page.mouse.move(*at[1], steps=4)
    page.mouse.up()


def test_a_brush_changes_the_image_the_prediction_and_the_explanation(visit, served):
    page = visit(at="#item=photo1.png", state=None)
    page.locator("#try").click()
    page.wait_for_selector("#whatif[data-state=predicted]")
    assert "try=1" in page.url
    original = look(page)
    with Image.open(served[0]["image"].collection.folders[0].parent / "photos" / "photo1.png") as file:
        np.testing.assert_array_equal(original, np.asarray(file).astype(int))
    page.set_viewport_size({"width": 1400, "height": 800})
    explain(page)
    assert page.locator(".maps figcaption").all_inner_texts() == ["Before", "After", "Difference"]
    assert page.locator(".maps").evaluate("maps => maps.getBoundingClientRect().top < innerHeight - 100")  # scrolled to
    same = look(page, ".maps figure:nth-child(1) canvas") - look(page, ".maps figure:nth-child(2) canvas")
    assert np.abs(same).max() <= 2  # nothing was changed yet, but for rounding
    assert np.ptp(look(page, ".maps figure:nth-child(3) canvas")) <= 4
    assert page.locator("#whatif .prediction b").inner_text() == "light"
    page.locator(".tool", has_text="Colour").click()
    page.locator(".tools input[type=range]").fill("4")
    for row in (0.1, 0.4, 0.7, 0.95):
        drag(page, (0.02, row), (0.98, row))
    page.wait_for_selector("#whatif .prediction[data-prediction=dark]")
    assert (look(page) == 0).mean() > 0.8
    assert "before: light" in page.locator("#whatif .prediction").inner_text()
    explain(page)
    assert "5 references" in page.locator("#whatif .status").inner_text()
    changed = np.abs(look(page, ".maps figure:nth-child(1) canvas") - look(page, ".maps figure:nth-child(2) canvas"))
    assert changed.mean() > 5 and np.ptp(look(page, ".maps figure:nth-child(3) canvas")) > 50
    rows = page.locator("#whatif .numbers tbody tr").all_inner_texts()
    before, after = (float(text.replace("−", "-")) for text in rows[0].split()[1:])
    assert before > 0 > after  # still why light rather than dark
    for _ in range(4):
        page.locator(".tools button", has_text="Undo").click()
    np.testing.assert_array_equal(look(page), original)
    assert page.locator(".tools button", has_text="Undo").is_disabled()
    page.locator("#fresh").click()
    page.wait_for_selector("#whatif[data-opened='']")
    assert page.locator("#whatif").evaluate("panel => panel.scrollTop") == 0


def test_scripts_may_come_later_than_answers(visit):
    page = visit(state=None)
    page.route("**/whatif.js", lambda route: (page.wait_for_timeout(400), route.continue_()))
    page.reload()
    page.wait_for_selector("#whatif[data-state=predicted]")


def test_erasing_and_blurring_paint_with_the_picture(visit):
    page = visit()
    original = look(page)
    page.locator(".tools input[type=range]").fill("3")
    drag(page, (0.5, 0.5), (0.5, 0.5))
    erased = look(page)
    middle = np.rint(original.reshape(-1, 3).mean(axis=0)).astype(int)
    assert (np.abs(erased[4, 4] - middle) <= 1).all() and (erased[0] == original[0]).all()
    page.keyboard.press("Control+z")
    np.testing.assert_array_equal(look(page), original)
    page.locator(".tool", has_text="Blur").click()
    page.locator(".tools input[type=range]").fill("4")
    for column in (0.1, 0.3, 0.5, 0.7, 0.9):
        drag(page, (column, 0.02), (column, 0.98))
    assert look(page).std() < 0.8 * original.std()
    page.locator(".tools button", has_text="Reset").click()
    np.testing.assert_array_equal(look(page), original)
    page.wait_for_selector("#whatif[data-state=predicted]")


def test_an_upload_is_explained_and_kept(visit, served):
    page = visit(at="", state=None)
    page.locator("#fresh").click()
    page.wait_for_selector("#whatif[data-state=open]")
    page.locator("#whatif .main").click()
    assert "Upload" in page.locator("#whatif .status").inner_text()
    page.locator("#whatif-file").set_input_files(
        {"name": "night.jpg", "mimeType": "image/jpeg", "buffer": encode(np.full((30, 40, 3), 20), "jpeg")}
    )
    page.wait_for_selector("#whatif .prediction[data-prediction=dark]")
    assert np.abs(look(page) - 20).max() <= 2
    explain(page)
    assert page.locator(".maps figcaption").all_inner_texts() == ["After"]
    page.locator("#whatif .keeping input").fill("my night")
    page.locator("#whatif .keeping button").click()
    page.wait_for_selector("#whatif a")
    panel, link = (page.locator(selector).last.bounding_box() for selector in ("#whatif", "#whatif a"))
    assert link["y"] + link["height"] <= panel["y"] + panel["height"]  # in sight
    assert "my-night.png" in ig2.open(served[0]["image"].keeper.folder).ids
    with page.context.expect_page() as opened:
        page.locator("#whatif a").last.click()
    opened.value.wait_for_selector("section[data-ready]")
    assert opened.value.locator("h2").first.inner_text() == "Why dark rather than light?"
    opened.value.close()
    page.locator("#whatif-file").set_input_files(
        {"name": "x.png", "mimeType": "image/png", "buffer": b"<script>alert(1)</script>"}
    )
    page.wait_for_selector("#whatif[data-state=error]")
    assert "known format" in page.locator("#whatif .status").inner_text()
    assert all("400" in text for text in visit.trouble)  # the browser's own note
    visit.trouble.clear()


DROP = """([selector, kind, content, name, type]) => {
  const data = new DataTransfer();
  if (name) data.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], name, { type }));
  else data.setData("text/plain", content);
  const event = kind === "drop" ? new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })
                                : new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
  document.querySelector(selector).dispatchEvent(event);
}"""


def test_inputs_are_dropped_and_pasted(visit):
    page = visit()
    light = base64.b64encode(encode(np.full((9, 9, 3), 240))).decode()
    for kind in ("drop", "paste"):
        page.evaluate(DROP, ["#whatif", kind, light, "a.png", "image/png"])
        page.wait_for_function(
            "() => document.querySelector('.easel canvas').getContext('2d').getImageData(4, 4, 1, 1).data[0] === 240"
        )
        page.locator(".tools input[type=range]").fill("8")
        page.locator(".tool", has_text="Colour").click()
        drag(page, (0.5, 0.5), (0.5, 0.5))
        assert look(page)[4, 4].tolist() == [0, 0, 0]
    page.wait_for_selector("#whatif[data-state=predicted]")
    page = visit("table", "#try=1", "open")
    page.evaluate(DROP, ["#whatif", "paste", "ward\tage\tdose\nsouth\t1.25\t-2\n", "", ""])
    page.wait_for_selector("#whatif[data-state=predicted]")
    assert [cell.input_value() for cell in page.locator(".cells input, .cells select").all()] == ["1.25", "-2", "south"]


def test_a_word_is_changed(visit):
    page = visit("text", "#item=texts.txt%3A1&try=1")
    box = page.locator("#whatif textarea")
    assert box.input_value() == "a bad film"
    box.fill("a good <img src=x onerror=alert(1)>")
    page.wait_for_selector("#whatif .prediction[data-prediction=better]")
    explain(page)
    difference = page.locator(".maps figure").last
    assert difference.locator(".gone").all_inner_texts() == ["bad", "film"]
    assert difference.locator(".new").all_inner_texts() == ["good", "<img", "src=x", "onerror=alert(1)>"]
    assert page.locator(".maps img").count() == 0
    page.locator("#whatif select").nth(1).select_option("none")
    explain(page)
    assert "Before explains worse rather than better" in page.locator(".other").inner_text()
    page.locator(".other button").click()
    page.wait_for_selector(".other", state="hidden")
    page.wait_for_selector("#whatif[data-state=done]")


def test_a_cell_is_changed(visit):
    page = visit("table", "#item=rows.csv%3A2&try=1")
    age = page.locator(".cells input").first
    old = age.input_value()
    age.fill("nan")
    page.wait_for_selector("#whatif[data-state=error]")
    assert "age" in page.locator("#whatif .status").inner_text()
    age.fill("3.5")
    page.locator(".cells select").select_option("north")
    page.wait_for_selector("#whatif[data-state=predicted]")
    explain(page)
    words = page.locator(".maps figure").last.locator("span").all_inner_texts()
    assert words[0] == f"age {old} → 3.5" and words[2] == "ward south → north"
    references = page.locator(".results details li")
    assert references.count() == 5


def test_the_map_gets_finer_until_it_is_cancelled(visit, served):
    whatif = served[0]["slow"]
    page = visit("slow")
    Slow.seconds = 0.02
    try:
        page.locator("#whatif .main").click()
        page.wait_for_selector("#whatif[data-state=explaining]")
        wait_for(lambda: whatif.queue.jobs)
        other = visit("slow", state=None)
        other.wait_for_function("() => document.querySelector('#whatif .status')?.textContent === '1 ahead of you'")
        before = Slow.calls
        page.locator("#whatif button", has_text="Cancel").click()
        page.wait_for_selector("#whatif[data-state=cancelled]")
        assert page.evaluate("document.activeElement.textContent") == "Explain"
        other.wait_for_selector("#whatif[data-state=predicted]")  # whose turn it is now
        wait_for(lambda: not whatif.queue.jobs)
        assert Slow.calls - before < 200  # of 300 for each of three batches
    finally:
        Slow.seconds = 0.0
    page.evaluate(
        """() => {
          const results = document.querySelector(".results");
          window.seen = [];
          new MutationObserver(() => seen.push(results.dataset.done)).observe(results, { attributes: true });
        }"""
    )
    page.locator("#whatif .main").click()
    page.wait_for_selector("#whatif[data-state=done]")
    assert page.evaluate("[...new Set(seen)]") == ["2", "4", "5"]


def test_the_keyboard_is_enough(visit):
    page = visit(at="#item=photo1.png", state=None)
    page.wait_for_selector("#detail[data-loaded]")
    page.locator("#next").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "try"
    page.keyboard.press("Enter")
    page.wait_for_selector("#whatif[data-state=predicted]")
    original = look(page)

    def tab_to(selector):
        for _ in range(25):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(selector)

    tab_to("#whatif-file")
    tab_to(".easel canvas")
    for key in ("ArrowLeft", "ArrowUp", "Shift+ArrowUp", " "):
        page.keyboard.press(key)
    assert page.locator(".ring").is_visible()
    painted = (look(page) != original).any(axis=2)
    assert 1 <= painted.sum() <= 4
    tab_to("input[type=radio]")
    page.keyboard.press("ArrowRight")
    assert page.locator(".tools input:checked").get_attribute("value") == "blur"
    page.keyboard.press("Control+z")
    np.testing.assert_array_equal(look(page), original)
    tab_to("#whatif .main")
    page.keyboard.press("Enter")
    page.wait_for_selector("#whatif[data-state=done]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#detail", state="hidden")


@pytest.mark.parametrize(
    ("kind", "item", "scheme"),
    [("image", "photo1.png", "dark"), ("text", "texts.txt%3A1", "light"), ("table", "rows.csv%3A1", "dark")],
)
def test_a_phone_has_room_for_it_and_nothing_is_in_anyones_way(visit, kind, item, scheme):
    page = visit(kind, f"#item={item}&try=1", viewport={"width": 390, "height": 844}, color_scheme=scheme)
    explain(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#whatif").evaluate("panel => panel.scrollWidth <= panel.clientWidth")
    for selector in (".settings", ".results", ".keeping"):
        page.locator(f"#whatif {selector}").scroll_into_view_if_needed()
        box = page.locator(f"#whatif {selector}").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    brightness = page.locator("#whatif").evaluate(
        "e => getComputedStyle(e).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b)"
    )
    assert (brightness < 200) == (scheme == "dark")
    for summary in page.locator("#whatif summary:visible").all():
        summary.click()
    assert find_barriers(page) == {}
    page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")  # where nothing but the colours differs
    assert find_barriers(page, "color-contrast") == {}


def test_going_on_to_the_next_item_stays_in_what_if(visit):
    page = visit()
    page.locator("#next").click()
    page.wait_for_selector("#whatif[data-opened='photo2.png'][data-state=predicted]")
    page.locator("#close").click()
    page.wait_for_selector("#detail", state="hidden")
    assert "try" not in page.url
