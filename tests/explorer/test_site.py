"""The explorer as files: what is written, what is refused, and that the page answers as the server does."""

from __future__ import annotations

import json
import os
import re
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlencode

import numpy as np
import pyarrow
import pytest

from browsing import check_screens, find_barriers, open_screen
from ig2.errors import IG2Error, InputError
from ig2.explorer import Collection, export_site
from networks import refuses
from reports import HOSTILE
from stores import read_script, tiny, write_store


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@contextmanager
def plain_server(folder):
    """Python's own web server, which knows nothing of us."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def small(tmp_path):
    return Collection([tiny(tmp_path / "store", ["a", "b", "c"], [1.0, 2.0, 3.0])])


def test_progress_counts_the_items_that_are_written(tmp_path):
    names = [f"item {i:02}" for i in range(20)]
    collection = Collection([tiny(tmp_path / "store", names, [float(i) for i in range(20)])])
    seen = []

    def watch(done, of):
        (draft,) = (path for path in tmp_path.rglob("items") if path.is_dir())
        assert len(list(draft.iterdir())) == done
        seen.append((done, of))

    export_site(collection, tmp_path / "site", progress=watch)
    assert seen == [(8, 20), (16, 20), (20, 20)]


def test_a_site_is_written_completely_and_replaces_an_earlier_one_alone(small, tmp_path):
    site = tmp_path / "deep" / "site"
    assert export_site(small, site) == 3
    assert sorted(path.name for path in site.iterdir()) == ["data", "export.json", "index.html", "items", "static"]
    assert sorted(path.name for path in (site / "items").iterdir()) == ["0.js", "1.js", "2.js"]
    assert export_site(small, site, where="output > 1", limit=1) == 1
    assert [path.name for path in (site / "items").iterdir()] == ["0.js"]
    assert read_script(site / "data/columns.js")["columns"]["id"]["cells"] == ["b"]
    assert [path.name for path in site.parent.iterdir()] == ["site"]  # no draft is left
    (site / "CNAME").write_text("mine")
    refuses(InputError, "CNAME", lambda: export_site(small, site))
    (site / "CNAME").unlink()
    (site / "export.json").write_text("{}")
    refuses(InputError, "earlier export", lambda: export_site(small, site))
    assert (site / "items/0.js").exists()


def test_what_is_no_folder_for_a_site_is_refused(small, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "store")
    for name, word in (("file", "file"), ("link", "link"), ("store", "something else")):
        refuses(InputError, word, lambda name=name: export_site(small, tmp_path / name))
    for limit in (0, 10_001):
        refuses(InputError, "limit", lambda limit=limit: export_site(small, tmp_path / "site", limit=limit))
    refuses(InputError, "fulfils", lambda: export_site(small, tmp_path / "site", where="output > 9"))
    refuses(InputError, "condition", lambda: export_site(small, tmp_path / "site", where="output >"))
    assert not (tmp_path / "site").exists()


def test_after_a_failure_the_earlier_site_is_there(small, tmp_path, monkeypatch):
    site = tmp_path / "site"
    export_site(small, site)
    before = (site / "data/columns.js").read_bytes()

    def fail(self, *arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Collection, "show_item", fail)
    refuses(Exception, "No space left", lambda: export_site(small, site))
    assert (site / "data/columns.js").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site", "store"]


def test_an_earlier_site_comes_back_if_the_new_one_cannot_be_moved(small, tmp_path, monkeypatch):
    export_site(small, tmp_path / "site")
    replace, moves = os.replace, []

    def fail_second(source, target):
        moves.append(source)
        if len(moves) == 2:
            raise OSError("no more room")
        replace(source, target)

    monkeypatch.setattr("os.replace", fail_second)
    refuses(IG2Error, "no more room", lambda: export_site(small, tmp_path / "site"))
    assert (tmp_path / "site" / "index.html").is_file() and [path.name for path in tmp_path.glob(".site-*")] == []


# -- in the browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """A store with everything that numbers and texts can be: empty, NaN, infinite, equal, of any letters."""
    numbers = np.random.default_rng(0)
    count = 300
    outputs = [float(number) for number in numbers.normal(size=count).round(1)]
    outputs[:4] = [float("nan"), float("inf"), float("-inf"), 0.0]
    names = [["zeta", "Äther", "\U0001f600", "ﬀ", "a'b\"c\\", "<b>"][i % 6] for i in range(count)]
    names += [f"class {i}" for i in range(14)] * 2
    classes = [names[i] for i in numbers.integers(0, len(names), count)]
    columns = {
        "id": [f"item {i}" for i in range(count)],
        "output": outputs,
        "trust": [None if i % 7 == 0 else float(i % 11) / 10 for i in range(count)],
        "label": pyarrow.array([None if i % 5 == 0 else int(i % 3) for i in range(count)], "int64"),
        "target": [int(i % 4) for i in range(count)],
        "label_name": classes,
        "prediction_name": [names[i % 6] if i % 3 else classes[i] for i in range(count)],
        "values": pyarrow.array([numbers.normal(size=3).astype(np.float32) for _ in range(count)]),
    }
    return write_store(tmp_path_factory.mktemp("edges") / "store", columns, kind="table", units=["a", "b", "c"])


CONDITIONS = [
    "trust < 0.5 and target != label",
    "not trust < 0.5",
    "trust is None or output > 1",
    "trust != None and label == 1",
    "label in (0, 2) and target not in [1]",
    "not label in (1, None)",
    "0 <= output < 1.5 and abs(output - 0.5) * 2 <= 1e0",
    "target / 2 == 1",
    "target / 2.0 == 0.5",
    "label / 2 > 0.4 and label / 2 < 0.6",
    "1 / label > 99",
    "-output >= -0.5",
    "output == output",
    "output != 0.3",
    "label_name == 'zeta' or prediction_name == \"Äther\"",
    "label_name > prediction_name",
    "label_name in ('a\\'b\"c\\\\', '<b>')",
    "trust + target * 2 - label > 3 or not (label == 1 or trust > 0.4)",
]
SORTS = ["output", "-output", "trust", "-trust", "label_name", "-prediction_name", "-label", "id"]
REFUSED = [
    "output >",
    "nothing < 1",
    "output < 'a'",
    "label_name + 1 == 2",
    "output",
    "import os",
    "a.b",
    "(1",
    "1 is 2",
]


@pytest.fixture(scope="module")
def pages(edges, browser, tmp_path_factory):
    """The page of the server and that of the site, over one store."""
    from stores import running

    collection = Collection([edges])
    site = tmp_path_factory.mktemp("site") / "site"
    export_site(collection, site)
    with running(collection) as address, plain_server(site) as other:
        pages = [open_screen(browser)[0] for _ in range(2)]
        for page, where in zip(pages, (address, other), strict=True):
            page.goto(where)
            page.wait_for_selector("body[data-ready]")
        yield pages
        for page in pages:
            page.context.close()


@pytest.mark.slow
def test_the_site_answers_as_the_server_does(pages):
    def ask(page, path, **query):
        return page.evaluate("path => ask(path)", f"{path}?{urlencode(query)}")

    questions = [("/api/overview", {"where": condition}) for condition in CONDITIONS]
    questions += [("/api/rows", {"sort": sort, "count": 100}) for sort in SORTS]
    questions += [("/api/rows", {"sort": sort, "where": "trust > 0.3", "start": 7, "count": 5}) for sort in SORTS]
    questions += [
        ("/api/overview", {}),
        ("/api/overview", {"text": "ITEM 12"}),
        ("/api/overview", {"ranges": "output:-0.5:0.5,trust:0.2:0.9"}),
        ("/api/overview", {"cell": json.dumps(["zeta", "zeta"])}),
        ("/api/overview", {"cluster": 2}),
        ("/api/overview", {"where": "output > 99"}),
        ("/api/place", {"id": "item 17", "sort": "-trust"}),
        ("/api/place", {"id": "item 17", "where": "target == 0"}),
        ("/api/selection", {"text": "item 2"}),
        ("/api/selection", {"brush": "0,0.2,0.5,0.9"}),
        ("/api/clusters", {}),
    ]
    for path, query in questions:
        assert ask(pages[1], path, **query) == ask(pages[0], path, **query), (path, query)


@pytest.mark.slow
@pytest.mark.parametrize("condition", REFUSED)
def test_the_site_refuses_what_the_server_refuses(pages, condition):
    for page in pages:
        outcome = page.evaluate(
            "path => ask(path).then(() => '', (error) => error.message)", f"/api/overview?{urlencode({'where': condition})}"
        )
        assert outcome, page.url


@pytest.mark.slow
def test_the_same_csv_comes_from_both(pages):
    texts = [
        page.evaluate("fetchExport('csv', new URLSearchParams({ sort: '-output' })).then(([, file]) => file.text())")
        for page in pages
    ]
    server, site = (text.splitlines() for text in texts)
    assert len(server) == len(site) == 301 and server[0] == site[0]
    assert [line.split(",")[0] for line in server] == [line.split(",")[0] for line in site]


@pytest.fixture
def watched(browser):
    screen = open_screen(browser)
    yield screen
    screen[0].context.close()


@pytest.mark.slow
def test_a_site_of_photos_is_used_like_the_explorer(both, tmp_path, watched):
    page = watched[0]
    export_site(both, tmp_path / "site", limit=40)
    with plain_server(tmp_path / "site") as address:
        page.goto(address + "#sort=-output")
        page.wait_for_selector("#row-0[data-filled] img.thumb")  # rows are filled in no order
        assert page.locator("#row-0 canvas").count() == 3
        assert "first 40 of 61" in page.locator("#list-hint").inner_text()
        page.locator("#where").fill("label == 1 and output > output_2")
        page.locator("#where").press("Enter")
        page.wait_for_selector("body[data-ready*='where']")
        assert page.locator("#count").inner_text().endswith("of 40 items")
        page.locator("#chips button, #where").first.fill("")
        page.locator("#where").press("Enter")
        page.locator("#row-1").click()
        frame = page.locator("#item")
        frame.locator("section[data-ready]").wait_for()
        assert frame.locator("[role=tab]").all_inner_texts() == ["photos-ig", "photos-gradient", "Difference"]
        assert find_barriers(page) == {}
        frame.locator("[data-control=threshold]").fill("50")
        frame.locator("[data-control=threshold]").press("ArrowRight")
        page.wait_for_function("() => decodeURIComponent(location.hash).includes('threshold-51')")
        page.goto(address + "#item=light%2F59.png")  # one of the others
        page.wait_for_selector("#trouble:not([hidden])")
        assert "light/59.png" in page.locator("#trouble").inner_text() and page.locator("#detail").is_hidden()
        page.locator("#tab-map").click()
        page.wait_for_selector("#cloud[data-drawn='40']")
        page.locator("#tab-clusters").click()
        page.wait_for_selector("#clusters li canvas.mean")
        assert page.locator("#exports button:visible").all_inner_texts() == ["CSV"]
        with page.expect_download() as download:
            page.locator("[data-format=csv]").click()
        assert download.value.path().read_text().count("\n") == 41
    check_screens([watched], re.escape(address))


@pytest.mark.slow
def test_nothing_in_a_text_runs_in_a_site(folder, tmp_path, watched):
    page, trouble, _ = watched
    export_site(Collection([folder / "texts"]), tmp_path / "site")
    with plain_server(tmp_path / "site") as address:
        page.goto(address)
        page.wait_for_selector("#row-2[data-filled]")
        assert page.locator("#row-2 .line bdi").all_inner_texts() == [word[:80] for word in HOSTILE]
        page.locator("#row-2").click()
        page.locator("#item").locator("section[data-ready]").wait_for()
    assert not trouble


@pytest.mark.slow
def test_a_site_is_used_from_the_disk_as_from_a_server(both, tmp_path, watched):
    page = watched[0]
    export_site(both, tmp_path / "site", limit=20)
    page.goto((tmp_path / "site" / "index.html").as_uri() + "#view=map")
    page.wait_for_selector("#cloud[data-drawn='20']")
    page.locator("#tab-list").click()
    page.wait_for_selector("#row-1[data-filled] img.thumb")
    page.locator("#row-1").click()
    page.locator("#item section[data-ready]").wait_for()
    # refused, if anything drawn on it were another's
    colours = "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
    assert page.locator("#item .stage canvas").evaluate(colours) > 10
    check_screens([watched], re.escape((tmp_path / "site").as_uri()))
    assert find_barriers(page) == {}  # for which axe asks for the style sheets, which the policy forbids


@pytest.mark.slow
def test_a_file_that_is_missing_is_named(small, tmp_path, watched):
    page = watched[0]
    export_site(small, tmp_path / "site")
    (tmp_path / "site" / "items" / "1.js").unlink()
    page.goto((tmp_path / "site" / "index.html").as_uri() + "#item=b")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "items/1.js is missing" in page.locator("#trouble").inner_text()
