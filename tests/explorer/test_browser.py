"""The explorer in a real browser, as a person uses it."""

from __future__ import annotations

import re

import numpy as np
import pyarrow
import pytest

from browsing import check_screens
from ig2.explorer import Collection
from reports import HOSTILE
from stores import running, write_store

pytestmark = pytest.mark.slow


@pytest.fixture
def visit(screens, addresses):
    """Open the explorer; in the end, check that nothing was complained of, and nothing asked of anyone else."""
    visited = []

    def visit(name="photos", at="", **options):
        visited.append(screens(**options))
        page, visit.trouble, _ = visited[-1]
        page.goto("about:blank")
        page.goto(addresses[name] + at)
        page.wait_for_selector("body[data-ready]")
        return page

    yield visit
    check_screens(visited, *map(re.escape, addresses.values()))


def counted(page, words):
    page.wait_for_function("words => document.getElementById('count').textContent === words", arg=words)


def listed(page):
    page.wait_for_selector(".row[data-filled]")
    page.wait_for_selector(".row:not([data-filled])", state="detached")
    return page.locator(".row .identity").all_inner_texts()


def report(page):
    shown = page.locator("#item section[data-ready]:not([hidden])")
    shown.wait_for()
    return shown


def test_it_opens_with_counts_pictures_and_maps(visit):
    page = visit()
    counted(page, "61 items")
    assert listed(page)[0] == "dark/00.png"
    assert page.locator("#row-0 img.thumb").evaluate("image => image.naturalWidth") == 8
    colours = page.locator("#row-0 canvas").evaluate("c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]")
    assert len({tuple(colours[i : i + 3]) for i in range(0, len(colours), 4)}) > 10
    assert page.locator("#counts").inner_text().split() == ["Items", "61", "Right", "100", "%", "Wrong", "0", "Failed", "1"]


def test_filters_narrow_the_list_and_the_link_brings_them_back(visit, photos):
    page = visit()
    page.locator("#where").fill("label == 1")
    page.locator("#where").press("Enter")
    counted(page, "31 of 61 items")
    page.locator("#text").fill("light/5")
    counted(page, "5 of 61 items")
    page.locator("#sort").select_option("output")
    page.locator("#down").check()
    page.wait_for_selector("body[data-ready*='sort=-output']")
    ordered = listed(page)
    outputs = {row["id"]: row["output"] for row in photos.stores[0].iterate(["id", "output"])}
    assert ordered == sorted(ordered, key=outputs.__getitem__, reverse=True) != sorted(ordered)
    again = visit(at=page.evaluate("location.hash"))
    counted(again, "5 of 61 items")
    assert listed(again) == ordered and again.locator("#where").input_value() == "label == 1"


def test_a_question_that_was_given_up_on_its_way_is_no_answer(visit):
    page = visit()
    outcome = page.evaluate(
        """async () => {
          const [stop, fetched] = [new AbortController(), window.fetch];
          stop.abort();
          window.fetch = async () => ({ ok: true, json: async () => { throw new DOMException("", "AbortError"); } });
          try {
            await ask("/api/rows", stop.signal);
            return "answered";
          } catch (error) {
            return error.name;
          } finally {
            window.fetch = fetched;
          }
        }"""
    )
    assert outcome == "AbortError"


def test_a_condition_that_cannot_be_read_is_explained(visit):
    page = visit()
    page.locator("#where").fill("nonsense <")
    page.locator("#where").press("Enter")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "nonsense" in page.locator("#trouble").inner_text()
    page.locator("#where").fill("")
    page.locator("#where").press("Enter")
    page.wait_for_selector("#trouble", state="hidden")
    assert all("400 (Bad Request)" in text for text in visit.trouble)  # the browser's own note
    visit.trouble.clear()


def test_a_link_that_was_mangled_is_explained_and_its_filter_can_be_removed(visit):
    page = visit(at="#item=nothing")
    assert "'nothing'" in page.locator("#trouble").inner_text() and page.locator("#detail").is_hidden()
    page = visit(at="#cell=foo")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "'foo'" in page.locator("#trouble").inner_text()
    page.locator("#chips button").click()
    counted(page, "61 items")
    assert all("400 (Bad Request)" in text for text in visit.trouble)
    visit.trouble.clear()


def test_a_histogram_and_the_confusion_are_filters(visit, photos):
    page = visit()
    chart = page.locator(".distribution svg").first
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.up()
    page.wait_for_selector("body[data-ready*='ranges']")
    few = int(page.locator("#count").inner_text().split()[0])
    assert 0 < few < 61
    page.locator("#chips button").click()
    counted(page, "61 items")
    middle = float(np.nanmedian(photos.catalogue.read_numbers("output")))
    page.locator("[data-limit='output:0']").fill(str(middle))  # by keyboard
    page.locator("[data-limit='output:0']").press("Tab")
    counted(page, "30 of 61 items")
    page.locator("#chips button").click()
    counted(page, "61 items")
    page.locator("#confusion button", has_text="30").first.click()
    counted(page, "30 of 61 items")
    assert page.locator("#confusion [aria-pressed=true]").count() == 1


def test_the_keyboard_goes_through_items_and_back(visit):
    page = visit()
    listed(page)
    page.locator("#list").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("#detail[data-loaded='dark/04.png']")
    assert report(page).locator("h2").inner_text() == "Why dark rather than light?"
    page.keyboard.press("j")
    page.wait_for_selector("#detail[data-loaded='dark/06.png']")
    report(page).locator("[data-control=threshold]").fill("50")
    report(page).locator("[data-control=threshold]").press("ArrowRight")
    page.wait_for_function("() => decodeURIComponent(location.hash).includes('threshold-51')")
    report(page).locator("h2").click()
    page.keyboard.press("k")  # from inside the report
    page.wait_for_selector("#detail[data-loaded='dark/04.png']")
    page.keyboard.press("Escape")
    page.wait_for_selector("#detail", state="hidden")
    page.keyboard.press("End")
    page.wait_for_selector("#row-60[aria-selected=true][data-filled]")
    assert "broken" in page.locator("#row-60").inner_text()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"


def test_going_on_keeps_the_place_on_the_page_and_what_was_chosen(visit):
    page = visit("both", at="#item=dark%2F00.png")
    report(page).locator("[data-control=threshold]").fill("40")
    report(page).locator("[role=tab]").nth(1).click()
    page.locator("#item").evaluate("place => place.scrollTo(0, 300)")
    page.locator("#list").focus()
    page.keyboard.press("j")
    page.wait_for_selector("#detail[data-loaded='dark/02.png']")
    assert page.locator("#item").evaluate("place => place.scrollTop") == 300
    assert report(page).locator("[data-control=threshold]").input_value() == "40"
    assert report(page).locator("[aria-selected=true]").inner_text() == "photos-gradient"


def test_an_item_that_does_not_come_is_tried_again(visit):
    page = visit(at="#item=dark%2F00.png")
    report(page)
    page.route("**/api/item*", lambda route: route.abort())
    page.locator("#row-1").click()
    page.wait_for_selector("#trouble:not([hidden])")
    assert "still running" in page.locator("#trouble").inner_text() and page.locator("#input").is_hidden()
    page.unroute("**/api/item*")
    page.locator("#row-1").click()
    page.wait_for_selector("#detail[data-loaded='dark/02.png']")
    assert report(page).locator(".file").inner_text() == "dark/02.png" and page.locator("#trouble").is_hidden()
    assert all("ERR_FAILED" in text for text in visit.trouble)  # the browser's own note
    visit.trouble.clear()


def test_a_link_leads_to_an_item_and_what_was_chosen_in_it(visit):
    page = visit(at="#item=light%2F31.png&at=input-1-method-1-threshold-70&text=light")
    assert report(page).locator("[data-control=threshold]").input_value() == "70"
    assert page.locator(".row[aria-selected=true] .identity").inner_text() == "light/31.png"
    page.go_back()


def test_two_stores_are_side_by_side_with_their_difference(visit):
    page = visit("both", at="#item=dark%2F00.png")
    listed(page)
    assert page.locator("#row-0 canvas").count() == 3
    assert page.locator("#heads span").all_inner_texts() == ["", "photos-ig", "photos-gradient", "difference"]
    assert report(page).locator("[role=tab]").all_inner_texts() == ["photos-ig", "photos-gradient", "Difference"]
    assert page.locator("#sort option[value=output_2]").inner_text() == "output · photos-gradient"


def test_the_map_is_brushed_by_pointer_and_by_keys(visit, photos):
    page = visit(at="#view=map")
    page.wait_for_selector("#cloud[data-drawn='61']")
    box = page.locator("#cloud").bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + 3)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 3)
    page.mouse.up()
    page.wait_for_function("() => location.hash.includes('brush=')")
    inside = int((photos.projection.points[:, 0] <= 0.5).sum())
    page.wait_for_function(f"() => Math.abs(parseInt(document.getElementById('count').textContent) - {inside}) <= 2")
    page.locator("#chips button").click()
    counted(page, "61 items")
    page.locator("#cloud").focus()
    page.keyboard.press("ArrowUp")
    for _ in range(15):
        page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#chips button")
    page.locator("#colour").select_option("class")
    assert "dark" in page.locator("#key").inner_text()


def test_a_point_of_the_map_opens_its_item_and_is_marked(visit, photos):
    page = visit(at="#view=map")
    page.wait_for_selector("#cloud[data-drawn='61']")
    box = page.locator("#cloud").bounding_box()
    x, y = photos.projection.points[7].tolist()
    across, down = 14 + x * (box["width"] - 28), 14 + y * (box["height"] - 28)
    page.mouse.click(box["x"] + across, box["y"] + down)
    page.wait_for_selector(f"#detail[data-loaded='{photos.catalogue.ids[7]}']")
    page.wait_for_function("() => spot.at === 7")
    before = page.locator("#cloud").evaluate("canvas => canvas.toDataURL()")
    page.evaluate("() => { spot.at = null; paintCloud(); }")
    assert page.locator("#cloud").evaluate("canvas => canvas.toDataURL()") != before


def test_the_map_is_laid_out_by_umap_where_it_is_installed(visit, photos, monkeypatch):
    points = np.random.default_rng(0).random((61, 2)).astype(np.float32)
    monkeypatch.setattr("ig2.explorer.collection.open_umap", lambda store, progress: points)  # itself it compiles for long
    monkeypatch.setattr("ig2.explorer.collection.has_umap", lambda store: True)
    page = visit(at="#view=map")
    page.wait_for_selector("#cloud[data-drawn='61']")
    page.locator("#layout").select_option("umap")
    page.wait_for_function("() => document.getElementById('map-hint').textContent.includes('between groups')")
    box = page.locator("#cloud").bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + 3)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 3)
    page.mouse.up()
    page.wait_for_selector("body[data-ready*='brush']")
    inside = int((points[:, 0] <= 0.5).sum())
    assert abs(int(page.locator("#count").inner_text().split()[0]) - inside) <= 1
    assert "layout=umap" in page.evaluate("location.hash")


def test_clusters_show_what_they_have_in_common(visit, photos):
    page = visit(at="#view=clusters")
    page.wait_for_selector("#clusters li canvas.mean")
    cards = page.locator("#clusters > li")
    sizes = np.bincount(photos.project().clusters[photos.project().clusters >= 0])
    assert cards.count() == (sizes > 0).sum()
    cards.first.get_by_role("button", name="Show these").click()
    counted(page, f"{sizes[0]} of 61 items")
    cards.first.locator(".typical button").first.click()
    report(page)


def test_a_selection_is_downloaded(visit):
    page = visit(at="#text=dark/0")
    counted(page, "5 of 61 items")
    for kind in ("csv", "parquet", "html", "zip"):
        with page.expect_download() as download:
            page.locator(f"[data-format={kind}]").click()
        assert download.value.suggested_filename == f"photos-ig-selection.{kind}"
        assert download.value.path().stat().st_size > 300


def test_words_and_rows_are_coloured_and_nothing_in_them_runs(visit):
    page = visit("texts")
    listed(page)
    assert page.locator("#row-2 .line bdi").all_inner_texts() == [word[:80] for word in HOSTILE]
    assert page.locator("#row-0 .for, #row-0 .against").count() == 3
    assert page.locator("#row-1 .magnitude").count() == 3  # trust is low
    page.locator("#row-2").click()
    report(page)
    page.locator("#tab-clusters").click()
    page.wait_for_selector("#clusters li")
    page = visit("rows", at="#item=p3")
    assert re.search(r"(age|dose|weight) -?\d", page.locator("#row-0 .line").inner_text())
    assert report(page).locator(".bars tbody tr").count() == 3


def test_nothing_is_cut_where_it_cannot_be_seen(visit):
    page = visit("both", at="#item=dark%2F00.png")
    listed(page)
    report(page)
    for view, shown in (("list", "#list"), ("map", "#cloud")):
        page.locator(f"#tab-{view}").click()
        page.wait_for_selector(f"#{view}-panel:not([hidden])")
        for selector in (shown, "#item", ".overview"):
            box = page.locator(selector).bounding_box()
            assert box["y"] + box["height"] <= 900, selector
    page = visit("rows")
    listed(page)
    lines = page.locator("#row-0 .line").evaluate("line => parseFloat(getComputedStyle(line).maxHeight) / line.clientHeight")
    assert lines == pytest.approx(3, abs=0.1)  # whole ones: those of this row need one


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_room_for_everything(visit, scheme):
    page = visit("both", viewport={"width": 390, "height": 844}, color_scheme=scheme)
    listed(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.locator("#overview").evaluate("details => details.open")
    brightness = page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)"
    )
    assert (brightness < 200) == (scheme == "dark")
    page.locator("#row-1").click()
    report(page)
    box = page.locator("#detail").bounding_box()
    assert (box["width"], box["height"]) == (390, 844)
    page.locator("#close").click()
    page.wait_for_selector("#detail", state="hidden")
    for view in ("map", "clusters"):
        page.locator(f"#tab-{view}").click()
        page.wait_for_selector(f"#{view}-panel:not([hidden])")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_what_makes_an_item_doubtful_stands_beside_it(screens, tmp_path):
    numbers = {
        "output": [1.0, 1.0, 1.0], "baseline_output": [1.0, 0.0, 0.0], "residual": [0.0, 0.0, 0.9],
        "strength": [0.0, 1.0, 1.0], "trust": [None, 0.1, 0.9], "arrival": [None, 0.4, 0.9],
    }  # fmt: skip
    values = pyarrow.array([np.array([share, -share], np.float32) for share in (0.0, 1.0, 1.0)])
    columns = {"id": ["dead", "rough", "off"], **numbers, "values": values}
    store = write_store(tmp_path / "store", columns, kind="table", units=["first", "second"])
    with running(Collection([store])) as address:
        page, trouble, asked = screens()
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        assert listed(page) == ["dead", "rough", "off"]
        badges = [page.locator(f"#row-{i} .poor").inner_text() for i in range(3)]
        assert badges == ["nothing to explain", "strength only, paths ended on the way", "does not add up"]
        assert page.locator("#row-1 .units .magnitude").count() == 2 and page.locator("#row-2 .units .magnitude").count() == 0
        page.locator("#where").fill("findings == 'signless, short'")
        page.locator("#where").press("Enter")
        counted(page, "1 of 3 items")
        check_screens([(page, trouble, asked)], re.escape(address))
