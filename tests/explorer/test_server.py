"""What the server answers, and what it refuses: hostile requests get an error, and the next person an answer."""

from __future__ import annotations

import asyncio
import csv
import http.client
import io
import json
import re
import shutil
import socket
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from urllib.parse import quote, urlencode, urlsplit

import numpy as np
import pyarrow.parquet
import pytest
from limits import HANGS, wait_for
from PIL import Image
from uvicorn import Config
from uvicorn.server import ServerState

import ig2
from ig2.errors import InputError
from ig2.explorer import Collection, Query, connections
from ig2.explorer.exports import write_csv
from ig2.explorer.guard import MOST_AT_ONCE, Guard
from ig2.explorer.server import is_loopback, listen, parse_query
from networks import refuses
from reports import HOSTILE
from stores import running, tiny


def get(address, path="/", method="GET", **headers):
    """The status, the headers and the body of an answer; the path is sent as it is."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=HANGS)
    connection.request(method, path, None, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


def ask(address, path, **query):
    status, _, content = get(address, f"{path}?{urlencode(query)}")
    assert status == 200, content
    return json.loads(content)


def test_pages_come_with_a_strict_policy_and_ask_for_nothing_else(addresses):
    for path in ("/", "/static/explorer.js", "/static/drawing.js", "/static/page.css", "/static/explorer.css"):
        status, headers, content = get(addresses["photos"], path)
        assert status == 200 and len(content) > 500
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        links = set(re.findall(rb"https?://[^\s\"'`]+", content))
        assert links <= {b"http://www.w3.org/2000/svg"}


def test_rows_have_small_maps_and_what_is_known(addresses, photos):
    answer = ask(addresses["photos"], "/api/rows", sort="-output", start=2, count=3)
    store = ig2.open(photos.folders[0])
    numbers = {row["id"]: row["output"] for row in store.iterate(["id", "output"]) if row["output"] is not None}
    assert [row["id"] for row in answer["rows"]] == sorted(numbers, key=lambda identity: -numbers[identity])[2:5]
    assert answer["total"] == 61
    row = answer["rows"][0]
    assert row["maps"][0]["scores"]["shape"] == [8, 8] and row["picture"] and row["right"] in (0, 1)


def test_pictures_are_those_of_the_source(addresses, folder):
    _, headers, content = get(addresses["photos"], "/picture?id=dark%2F00.png")
    assert headers["content-type"] == "image/png"
    with Image.open(io.BytesIO(content)) as sent, Image.open(folder / "photos" / "dark" / "00.png") as kept:
        np.testing.assert_array_equal(np.asarray(sent), np.asarray(kept))


def test_an_item_is_the_report_of_all_stores_and_their_difference(addresses):
    (item,) = ask(addresses["both"], "/api/item", id="dark/00.png")["inputs"]
    assert [method["name"] for method in item["input"]["methods"]] == ["photos-ig", "photos-gradient", "Difference"]
    assert item["input"]["label"] == item["input"]["prediction"] == "dark" and "<dt>Label</dt>" in item["html"]


def test_an_item_that_failed_says_why(addresses):
    item = ask(addresses["both"], "/api/item", id="light/broken.png")
    assert item["inputs"] == [] and "not an image" in item["why"]


# -- what is refused ---------------------------------------------------------------------------------------------------

TRAVERSALS = (
    "/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e/server.py", "/static//etc/passwd", "/../../etc/passwd",
    "/static/explorer.html", "/static/..\\server.py", "/manifest.json", "/openapi.json", "/docs", "/static/", "/%00",
)  # fmt: skip


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leads_to_another_file(addresses, path):
    status, _, content = get(addresses["photos"], path)
    assert status == 404
    assert b"root:" not in content and b"import" not in content


@pytest.mark.parametrize(
    "identity", ["../photos/dark/00.png", "/etc/passwd", "dark/../dark/00.png", "..", "", "\0", "dark/00.png\0", "x" * 5000]
)
@pytest.mark.parametrize("path", ["/picture", "/api/item"])
def test_an_id_is_no_path(addresses, path, identity):
    status, _, content = get(addresses["photos"], f"{path}?id={quote(identity, safe='')}")
    assert status == 400 and b"no item" in content


def test_a_source_is_only_what_the_command_names(folder):
    """The manifest of a store names a folder too, which may be anyone's."""
    collection = Collection([folder / "photos-ig"])
    assert collection.originals is None
    refuses(InputError, "--source", lambda: collection.read_picture("dark/00.png"))


def test_a_table_is_a_source_without_pictures(folder):
    """Its cells are in the store; what if reads the columns of a model from it."""
    collection = Collection([folder / "rows"], str(folder / "patients.csv"))
    assert collection.originals is None and collection.list_rows(Query(), 0, 1)["rows"][0]["maps"][0]["cells"]
    refuses(InputError, "nowhere", lambda: Collection([folder / "rows"], str(folder / "nowhere.csv")))


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ({"where": "__import__('os').system('true')"}, "not allowed"),
        ({"where": "trust" * 1000}, "condition"),
        ({"where": "(" * 900 + ")" * 900}, "condition"),
        ({"ranges": "output:a:b"}, "numbers"),
        ({"ranges": "output:1"}, "ranges"),
        ({"brush": "1,2,3"}, "four"),
        ({"cluster": "-1"}, "number"),
        ({"cell": "[" * 900}, "cell"),
        ({"cell": '["a", 1]'}, "cell"),
        ({"sort": "nothing"}, "column"),
    ],
)
def test_a_query_that_cannot_be_understood_is_an_error(addresses, query, word):
    for path in ("/api/overview", "/api/rows", "/api/selection", "/export"):
        extra = {"format": "csv"} if path == "/export" else {}
        status, _, content = get(addresses["photos"], f"{path}?{urlencode({**query, **extra})}")
        assert status == 400 and word in json.loads(content)["error"]


@pytest.mark.parametrize("query", ["start=-1", "count=0", "count=101", "start=1e9", "count=a"])
def test_rows_are_read_a_few_at_a_time(addresses, query):
    assert get(addresses["photos"], f"/api/rows?{query}")[0] in (400, 422)


def test_other_hosts_bodies_methods_and_pages_are_refused(addresses):
    address = addresses["photos"]
    port = urlsplit(address).port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "[::1].evil", "127.0.0.2"):
        assert get(address, "/api/stores", host=host)[0] in (400, 421), host
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "LOCALHOST"):
        assert get(address, "/api/stores", host=host)[0] == 200, host
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert get(address, "/api/stores", method)[0] == 405
    assert get(address, "/api/stores", content_length="1000000000")[0] == 413
    assert get(address, "/api/overview?text=" + "x" * 9000)[0] == 414
    assert get(address, "/api/overview", x="y" * 100_000)[0] == 431
    assert get(address, "/api/stores", sec_fetch_site="cross-site", sec_fetch_mode="no-cors")[0] == 403
    assert get(address, "/", sec_fetch_site="cross-site", sec_fetch_mode="navigate")[0] == 200
    assert get(address, "/", sec_fetch_site="same-origin")[0] == 200


def test_bytes_that_are_no_request_leave_the_server_alive(addresses):
    place = urlsplit(addresses["photos"])
    for content in (
        b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"x" * 70_000,
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ):
        with socket.create_connection((place.hostname, place.port), HANGS) as connection:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            assert b" 200 " not in connection.recv(200)
    assert ask(addresses["photos"], "/api/stores")["stores"][0]["items"] == 61


@pytest.mark.slow
def test_a_thousand_requests_at_once_are_answered_or_told_to_wait(addresses, folder):
    place = urlsplit(addresses["rows"])
    questions = [
        "/api/rows?count=20",
        "/api/overview",
        "/api/item?id=p3",
        "/api/rows?count=9999",
        "/static/../../x",
        "/export?format=csv",
    ]

    def one(number):
        with socket.create_connection((place.hostname, place.port), HANGS) as connection:
            request = f"GET {questions[number % len(questions)]} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            line = b""
            while not line.endswith(b"\r\n") and (more := connection.recv(1)):
                line += more
            return int(line.split()[1])

    before = sorted(path.name for path in (folder / "rows").rglob("*.parquet"))
    with ThreadPoolExecutor(90) as pool:  # more than are answered at once, and twice as many connections fit
        statuses = list(pool.map(one, range(1000)))
    assert len(statuses) == 1000 and set(statuses) <= {200, 400, 404, 503} and statuses.count(200) > 50
    wait_for_quiet(addresses["rows"])
    assert ask(addresses["rows"], "/api/overview")["selected"] == 12
    assert sorted(path.name for path in (folder / "rows").rglob("*.parquet")) == before


def wait_for_quiet(address):
    """The allowance of the rate comes back within seconds."""
    wait_for(lambda: get(address, "/api/stores")[0] == 200)


@pytest.mark.slow
def test_people_who_leave_or_never_finish_keep_no_one_waiting(addresses):
    place = urlsplit(addresses["photos"])
    with ExitStack() as stack:
        for number in range(100):  # a request that is begun and not ended, and one whose answer nobody reads
            connection = stack.enter_context(socket.create_connection((place.hostname, place.port), HANGS))
            begun = b"GET /api/rows HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            connection.sendall(begun if number % 2 else begun + b"\r\n")
        wait_for_quiet(addresses["photos"])
        assert ask(addresses["photos"], "/api/overview")["total"] == 61


def drip(connection):
    """Send one more byte of a header; return whether the server still listens."""
    try:
        connection.sendall(b"x")
        return connection.recv(1) != b""  # it never answers what has no end
    except BlockingIOError:
        return True
    except OSError:
        return False


def begin_slowly(stack, address, count):
    """Connections whose headers have no end."""
    place, slow = urlsplit(address), []
    for _ in range(count):
        slow.append(stack.enter_context(socket.create_connection((place.hostname, place.port), HANGS)))
        slow[-1].sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        slow[-1].setblocking(False)
    return slow


@pytest.mark.slow
def test_three_hundred_who_send_a_byte_now_and_then_hold_no_one(folder, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_SECONDS", HANGS)  # no time makes room: that there are too many does
    with ExitStack() as stack:
        address = stack.enter_context(running(Collection([folder / "rows"])))
        slow = []
        for _ in range(6):
            slow += begin_slowly(stack, address, 50)
            assert ask(address, "/api/overview")["total"] == 12  # which is accepted after them
            slow = [connection for connection in slow if drip(connection)]
        assert 150 < len(slow) <= connections.MOST_CONNECTIONS


@pytest.mark.slow
def test_those_who_send_slowly_are_closed_in_the_end(folder, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.5)
    with ExitStack() as stack:
        slow = begin_slowly(stack, stack.enter_context(running(Collection([folder / "rows"]))), 20)
        wait_for(lambda: sum(drip(connection) for connection in slow) == 0)


class Wire(asyncio.Transport):
    """A connection that goes nowhere."""

    def write(self, data):
        pass

    def is_closing(self):
        return False

    def resume_reading(self):
        pass

    def close(self):
        pass


def test_the_clock_runs_while_a_request_is_awaited_and_at_no_other_time():
    async def answer(scope, receive, send):
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def follow():
        state = ServerState()
        protocol = connections.make_protocol()(Config(answer, log_config=None), state, {}, asyncio.get_running_loop())
        protocol.connection_made(Wire())
        first = protocol.timer
        assert protocol.awaited[1] == connections.HEADER_SECONDS
        protocol.data_received(b"GET / HTTP/1.1\r\n")
        protocol.data_received(b"Host: here\r\n")
        assert protocol.timer is first and not first.cancelled()  # a byte now and then gains no time
        protocol.data_received(b"\r\n")
        assert protocol.timer is None and first.cancelled()  # an answer may take its time
        await asyncio.gather(*state.tasks)
        second = protocol.timer
        assert protocol.awaited[1] == connections.HEADER_SECONDS and second is not None
        protocol.data_received(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\n")
        third = protocol.timer
        assert protocol.awaited[1] == connections.BODY_SECONDS and second.cancelled()
        protocol.data_received(b"a")
        await asyncio.sleep(0)
        assert protocol.timer is third and not third.cancelled()
        protocol.data_received(b"bc")
        assert protocol.timer is None
        await asyncio.gather(*state.tasks)
        assert protocol.awaited[1] == connections.HEADER_SECONDS and protocol.timer is not None
        protocol.connection_lost(None)
        assert protocol.timer is None

    with ThreadPoolExecutor(1) as thread:  # in this one a loop is running while a browser is open
        thread.submit(asyncio.run, follow()).result()


@pytest.mark.parametrize("kind", ["chunked", "length", "late"])
def test_a_huge_body_is_not_read(addresses, kind):
    place = urlsplit(addresses["photos"])
    head = {"chunked": "Transfer-Encoding: chunked", "length": "Content-Length: 10000000000", "late": "Content-Length: 5"}[kind]
    with socket.create_connection((place.hostname, place.port), HANGS) as connection:
        connection.sendall(f"POST /api/stores HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n\r\n".encode())
        assert re.match(rb"HTTP/1.1 (405|413) ", connection.recv(100))
        sent = 0
        with suppress(OSError):
            for _ in range(300):
                sent += connection.send(b"x" * 65536)
        assert sent < 300 * 65536  # it closed the connection and did not take 20 MB
    assert ask(addresses["photos"], "/api/stores")["stores"][0]["items"] == 61


def test_tokens_are_of_one_server_and_are_not_guessed_by_their_parts(folder):
    collection = Collection([folder / "rows"])
    with running(collection, "0.0.0.0") as first, running(collection, "0.0.0.0") as second:
        tokens = [urlsplit(address).query.removeprefix("token=") for address in (first, second)]
        local = f"http://127.0.0.1:{urlsplit(first).port}"
        wrong = [tokens[1], tokens[0][:-1], tokens[0].swapcase(), tokens[0] * 2, "%00" + tokens[0], "é" * 32]
        for token in wrong:
            assert get(local, f"/?token={quote(token, safe='%')}")[0] == 403, token
            assert get(local, "/api/stores", cookie=f"ig2-token={quote(token)}")[0] == 403, token
        assert get(local, "/api/stores", authorization=f"Bearer {tokens[0]}")[0] == 403
        assert get(local, f"/?token={tokens[0]}")[0] == 303


@pytest.mark.slow
def test_broken_images_of_the_source_leave_the_maps(folder, tmp_path):
    """A file that is cut off, one with a bomb's size, one that is no image: the item is shown with its map alone."""
    source = tmp_path / "photos"
    shutil.copytree(folder / "photos", source)
    whole = (source / "dark" / "00.png").read_bytes()
    (source / "dark" / "00.png").write_bytes(whole[:60])
    bomb = whole[:16] + (60_000).to_bytes(4, "big") * 2 + whole[24:]
    (source / "dark" / "02.png").write_bytes(bomb)
    (source / "dark" / "04.png").write_bytes(b"<svg onload=alert(1)>")
    with running(Collection([folder / "photos-ig"], source)) as address:
        for number in ("00", "02", "04"):
            name = quote(f"dark/{number}.png", safe="")
            assert get(address, f"/picture?id={name}")[0] == 400
            assert "Why" in ask(address, "/api/item", id=f"dark/{number}.png")["inputs"][0]["html"]
        assert get(address, "/picture?id=dark%2F06.png")[0] == 200


def test_what_is_answered_at_once_is_limited():
    statuses = []

    async def answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def note(message):
        statuses.extend([message["status"]] if "status" in message else [])

    guard = Guard(answer, frozenset({"localhost"}))
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [(b"host", b"localhost")]}
    for busy in (0, MOST_AT_ONCE - 1, MOST_AT_ONCE):
        guard.busy = busy
        with suppress(StopIteration):  # without a loop of events: nothing in it waits
            guard(scope, None, note).send(None)
    assert statuses == [200, 200, 503]


def test_any_other_address_asks_for_the_token(folder):
    with running(Collection([folder / "rows"]), "0.0.0.0") as address:
        place = urlsplit(address)
        token = place.query.removeprefix("token=")
        local = f"http://127.0.0.1:{place.port}"
        assert len(token) >= 32
        for path in (
            "/",
            "/api/stores",
            "/static/explorer.js",
            "/?token=",
            "/?token=wrong",
            f"/?token={token}x",
            "/?token=%ff",
        ):
            assert get(local, path)[0] == 403, path
        assert get(local, "/api/stores", cookie="ig2-token=wrong")[0] == 403
        assert get(local, "/api/stores", cookie="\x01;;==")[0] == 403
        status, headers, content = get(local, f"/?token={token}")
        assert (status, headers["location"], content) == (303, "/", b"")
        assert "HttpOnly" in headers["set-cookie"] and "SameSite=Strict" in headers["set-cookie"]
        cookie = headers["set-cookie"].split(";")[0]
        assert get(local, "/api/stores", cookie=cookie)[0] == 200
        assert get(local, "/api/stores", cookie=cookie, host="evil.example")[0] == 421


def test_loopback_addresses_are_known():
    assert [is_loopback(host) for host in ("127.0.0.5", "::1", "192.168.0.1", "::", "example.org")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_port_that_is_taken_is_an_error_unless_it_was_not_asked_for():
    with listen("127.0.0.1", None) as first, listen("127.0.0.1", None) as second:
        taken = first.getsockname()[1]
        assert second.getsockname()[1] != taken
        refuses(InputError, "--port", lambda: listen("127.0.0.1", taken))


def test_text_from_a_store_is_escaped(addresses):
    for identity in HOSTILE[:3]:
        (item,) = ask(addresses["texts"], "/api/item", id=identity)["inputs"]
        assert "<script>alert" not in item["html"] and "<img src=x" not in item["html"] and "&lt;" in item["html"]


# -- to take along -----------------------------------------------------------------------------------------------------


def test_a_selection_is_exported_as_csv(addresses):
    _, headers, content = get(addresses["texts"], "/export?format=csv&sort=-output")
    assert headers["content-disposition"] == "attachment; filename*=utf-8''texts-selection.csv"
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert [row["output"] for row in rows] == ["4.0", "2.0", "1.0", "nan"]
    assert rows[0]["id"] == "'=1+1"  # a spreadsheet would run it


def test_no_cell_of_a_csv_is_run_by_a_spreadsheet(tmp_path):
    ids = [f"{first}1+1" for first in ("=", "+", "-", "@", "\t", "\r")]
    collection = Collection([tiny(tmp_path / "store", [*ids, "1=1", "-"], [-1.0] * 8)])
    (text,) = write_csv(collection, collection.find(Query()))
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["id"] for row in rows] == [*(f"'{name}" for name in ids), "1=1", "'-"]
    assert {row["output"] for row in rows} == {"-1.0"}  # a number stays one


def test_a_selection_is_exported_as_parquet_with_its_values(addresses, photos):
    _, _, content = get(addresses["photos"], "/export?" + urlencode({"format": "parquet", "text": "dark", "sort": "-output"}))
    table = pyarrow.parquet.read_table(io.BytesIO(content))
    store = photos.stores[0]
    assert len(table) == 30 and table.schema.names == store.columns
    outputs = table["output"].to_pylist()
    assert outputs == sorted(outputs, reverse=True)
    first = store[table["id"][0].as_py()]
    np.testing.assert_array_equal(table["values"][0].as_py(), first["values"].reshape(-1))


def test_a_selection_is_exported_as_the_report(addresses):
    status, headers, content = get(addresses["both"], "/export?format=html&text=light")
    assert status == 200 and headers["content-disposition"].endswith(".html")
    data = json.loads(re.search(rb'id="data">(.*?)</script>', content, re.DOTALL)[1])
    assert len(data["inputs"]) == 30 and b"light/broken.png" in content  # skipped, with the reason


@pytest.mark.slow
@pytest.mark.parametrize(("name", "query"), [("both", {"text": "dark/0"}), ("texts", {}), ("rows", {"text": "p1"})])
def test_a_selection_is_exported_as_figures(addresses, name, query):
    _, headers, content = get(addresses[name], "/export?" + urlencode({"format": "zip", **query}))
    assert headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names)) == ask(addresses[name], "/api/overview", **query)["selected"]
        assert all(re.fullmatch(r"[\w.-]+\.png", file) and not file.startswith(".") for file in names), names
        assert (names[0] == "dark-00.png") == (name == "both")
        with Image.open(archive.open(names[0])) as figure:
            pixels = np.asarray(figure.convert("RGB")).reshape(-1, 3)
    assert len(np.unique(pixels, axis=0)) > 20


def test_an_export_that_is_too_large_is_refused(addresses, monkeypatch):
    monkeypatch.setattr("ig2.explorer.exports.MOST_INPUTS", 3)
    monkeypatch.setattr("ig2.explorer.exports.MOST_BYTES", 100)
    for kind in ("html", "parquet", "zip"):
        status, _, content = get(addresses["photos"], f"/export?format={kind}")
        assert status == 400 and b"fewer" in content
    assert get(addresses["photos"], "/export?format=exe")[0] == 400


def test_few_rows_of_a_large_store_are_exported(addresses, photos, monkeypatch):
    size = sum(path.stat().st_size for path in photos.stores[0].files)
    monkeypatch.setattr("ig2.explorer.exports.MOST_BYTES", size // 4)
    assert get(addresses["photos"], "/export?format=parquet&text=dark%2F00")[0] == 200
    assert get(addresses["photos"], "/export?format=parquet")[0] == 400


def test_a_brush_and_a_cluster_choose(addresses, photos):
    shown = photos.project()
    inside = (shown.points[:, 0] <= 0.5) & (shown.points[:, 1] <= 0.7)
    assert ask(addresses["photos"], "/api/overview", brush="0,0,0.5,0.7")["selected"] == int(inside.sum()) > 0
    assert ask(addresses["photos"], "/api/overview", cluster=0)["selected"] == int((shown.clusters == 0).sum())
    clusters = ask(addresses["photos"], "/api/clusters")["clusters"]
    assert sum(cluster["items"] for cluster in clusters) == 60
    assert all(photos.catalogue.numbers[row["id"]] in np.flatnonzero(shown.clusters == 0) for row in clusters[0]["typical"])


def test_a_query_is_read_from_an_address():
    query = parse_query("a < 1", "x", "trust:0:0.5,output:-1:2", '["a", "b"]', "0,0.1,1,1", "3", "-trust")
    assert query.ranges == (("trust", 0.0, 0.5), ("output", -1.0, 2.0))
    assert (query.cell, query.brush, query.cluster) == (("a", "b"), (0.0, 0.1, 1.0, 1.0), 3)
