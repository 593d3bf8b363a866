"""Questions over HTTP: answered in turn, given up when nobody listens, and refused if they are not from the page."""

from __future__ import annotations

import http.client
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import numpy as np
import pytest
from limits import HANGS, wait_for

import ig2
from ig2.explorer.guard import LARGEST_BODY
from stores import running
from whatifs import SESSION, Slow, Stream, encode, make_bright, make_whatif

ROW = {"age": "0.5", "dose": "1", "ward": "north"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    whatif = make_whatif(tmp_path_factory.mktemp("rows"), "table")
    with running(whatif.collection, whatif=whatif) as address:
        yield address, whatif


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    whatif = make_whatif(tmp_path_factory.mktemp("photos"))
    with running(whatif.collection, whatif=whatif) as address:
        yield address, whatif


@pytest.fixture
def slow(tmp_path):
    """A model that would take minutes, and the question."""
    subject = make_bright(slow=True)
    whatif = make_whatif(tmp_path, subject=subject, method=ig2.ExpectedIG(4))
    whatif = make_whatif(tmp_path, subject=subject, method=ig2.IG2(3000))
    content = whatif.show_item("photo0.png")["picture"]
    with running(whatif.collection, whatif=whatif) as address:
        yield address, whatif, {"input": content}
    Slow.seconds = 0.0


def send(address, path, body=b"", method="POST", **headers):
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=HANGS)
    named = {SESSION: "someone", **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection.request(method, path, body, {name: value for name, value in named.items() if value is not None})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def get(address, path):
    status, content = send(address, path, None, "GET")
    assert status == 200, content
    return json.loads(content)


def explain(address, question):
    with Stream(address, question) as stream:
        return stream.events()


def test_the_answer_comes_line_by_line(rows):
    address, whatif = rows
    events = explain(address, {"input": ROW})
    names = [event["event"] for event in events if event["event"] != "waiting"]
    assert names == ["prediction", "map", "map", "map", "done", "end"]
    expected = whatif.subject.explain(whatif.subject.read([ROW]), ig2.IG2(6), count=5)
    last = [event for event in events if event["event"] == "map"][-1]
    assert last["map"]["scores"] == pytest.approx(whatif.subject.scores(whatif.subject.read([ROW]), expected)[0].tolist(), 1e-5)
    assert last["map"]["units"] == ["age", "dose", "ward"] and sum(last["map"]["scores"]) == pytest.approx(
        last["output"] - last["baseline_output"], 1e-4
    )
    trial = events[-2]["trial"]
    status, content = send(address, "/whatif/keep", json.dumps({"trial": trial, "name": "<b>row</b>"}).encode())
    assert (status, json.loads(content)) == (200, {"id": "b-row-b", "folder": "store-whatif"})
    status, content = send(address, "/whatif/kept?id=b-row-b", None, "GET")
    assert status == 200 and b"b-row-b" in content
    assert send(address, "/whatif/kept?id=..%2Fstore", None, "GET")[0] == 400


def test_the_page_knows_whether_there_is_a_model(rows, addresses):
    assert get(rows[0], "/api/stores")["whatif"] is True and get(addresses["rows"], "/api/stores")["whatif"] is False
    assert send(addresses["rows"], "/whatif/about", None, "GET")[0] == 404
    assert send(addresses["rows"], "/whatif/explain", b"{}")[0] == 405
    about = get(rows[0], "/whatif/about")
    assert about["columns"][2] == {"name": "ward", "values": ["north", "south"]} and about["classes"] == ["well", "ill"]


def test_uploads_are_checked(pictures, rows):
    address, _ = pictures
    status, content = send(address, "/whatif/read?name=a.png", encode(np.zeros((30, 20, 3))))
    assert status == 200 and json.loads(content)["picture"].startswith("data:image/png;base64,")
    for body in (b"", b"no image", b"\x80\x04cos\nsystem\n", encode(np.random.default_rng(0).integers(0, 255, (40, 40)))[:300]):
        status, content = send(address, "/whatif/read", body)
        assert status == 400 and b"error" in content
    huge = b"P6\n60000 60000\n255\n"  # a few bytes that ask for ten gigabytes
    status, content = send(address, "/whatif/read", huge)
    assert status == 400 and b"pixels" in content
    assert send(rows[0], "/whatif/read", b"age,dose,ward\n1,nan,north\n")[0] == 400
    assert explain(rows[0], {"input": {**ROW, "dose": "NaN"}})[-1]["event"] == "error"
    assert "error" in explain(rows[0], {"input": {**ROW, "dose": "1e999"}})[-1]
    assert send(rows[0], "/whatif/explain", b'{"input": {"age": NaN}, "count": NaN}')[0] == 400


def test_only_the_page_itself_may_ask(rows):
    address, _ = rows
    place = urlsplit(address)
    body = json.dumps({"input": ROW, "explain": False}).encode()
    assert send(address, "/whatif/explain", body)[0] == 200
    assert send(address, "/whatif/explain", body, origin=f"http://{place.netloc}")[0] == 200
    refused = [
        {SESSION: None},  # a form of another page can send no such header
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://{place.hostname}:1"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ]
    for headers in refused:
        assert send(address, "/whatif/explain", body, **headers)[0] == 403, headers
    assert send(address, "/whatif/explain", body, host="evil.example")[0] == 421
    for method in ("PUT", "OPTIONS", "DELETE", "PATCH"):
        assert send(address, "/whatif/explain", body, method)[0] == 405
    for path in ("/whatif/about", "/whatif/item", "/api/stores", "/", "/whatif/explain/", "/whatif//explain"):
        assert send(address, path, body)[0] == 405, path
    assert send(address, "/whatif/item?id=..%2F..%2Fetc%2Fpasswd", None, "GET")[0] == 400


def test_bodies_are_limited(rows, monkeypatch):
    address, _ = rows
    place = urlsplit(address)

    def raw(*lines, body=b""):
        with socket.create_connection((place.hostname, place.port), HANGS) as connection:
            head = ["POST /whatif/read HTTP/1.1", f"Host: {place.netloc}", f"{SESSION}: x", *lines]
            connection.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
            return int(connection.recv(200).split()[1])

    assert raw(f"Content-Length: {LARGEST_BODY + 1}") == 413  # before any of it is read
    assert raw("Content-Length: 99999999999999999999") in (400, 413)
    assert raw("Transfer-Encoding: chunked", body=b"5\r\nhello\r\n0\r\n\r\n") == 411
    assert raw() == 411
    assert raw("Content-Length: -5") == 400
    monkeypatch.setattr("ig2.explorer.routes.BODY_SECONDS", 0.1)
    assert raw("Content-Length: 1000", body=b"slow") == 400
    assert get(address, "/api/stores")["whatif"]


def test_bodies_on_their_way_are_limited_together(rows, monkeypatch):
    address, _ = rows
    place = urlsplit(address)
    monkeypatch.setattr("ig2.explorer.guard.LARGEST_BODIES", 1000)
    head = f"POST /whatif/read HTTP/1.1\r\nHost: {place.netloc}\r\n{SESSION}: x\r\nContent-Length: 900\r\n\r\n"
    with socket.create_connection((place.hostname, place.port), HANGS) as first:
        first.sendall(head.encode() + b"x")
        wait_for(lambda: send(address, "/whatif/read", b"y" * 200)[0] == 503)
    wait_for(lambda: send(address, "/whatif/read", b"y" * 200)[0] == 400)  # it left


@pytest.mark.slow
def test_hundreds_at_once_are_answered_or_told_to_wait(rows, pictures):
    bodies = [
        ("/whatif/explain", json.dumps({"input": ROW, "count": 1}).encode()),
        ("/whatif/explain", b"{" * 1000),
        ("/whatif/read", b"\x00" * 100_000),
        ("/whatif/keep", b'{"trial": "x", "name": "y"}'),
        ("/whatif/explain", json.dumps({"input": "x" * 100_000}).encode()),
    ]

    def one(number):
        path, body = bodies[number % len(bodies)]
        return send((rows, pictures)[number % 2][0], path, body, **{SESSION: str(number)})[0]

    with ThreadPoolExecutor(60) as pool:
        statuses = list(pool.map(one, range(300)))
    assert set(statuses) <= {200, 400, 503} and statuses.count(200) > 5
    for address, whatif in (rows, pictures):
        wait_for(lambda whatif=whatif: not whatif.queue.jobs)
        assert get(address, "/api/stores")["whatif"]
    assert explain(rows[0], {"input": ROW})[-1]["event"] == "end"


def test_any_other_address_asks_for_the_token(rows):
    _, whatif = rows
    with running(whatif.collection, "0.0.0.0", whatif) as address:
        place = urlsplit(address)
        local = f"http://127.0.0.1:{place.port}"
        token = place.query.removeprefix("token=")
        body = json.dumps({"input": ROW, "explain": False}).encode()
        for cookie in (None, "ig2-token=wrong", f"ig2-token={token}x"):
            assert send(local, "/whatif/explain", body, cookie=cookie)[0] == 403
            assert send(local, "/whatif/read", b"x", cookie=cookie)[0] == 403
        assert send(local, "/whatif/explain", body, cookie=f"ig2-token={token}")[0] == 200


# -- the queue ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_who_leaves_stops_the_work(slow):
    address, whatif, question = slow
    Slow.seconds = 0.01
    stream = Stream(address, question)
    stream.events("prediction")
    before = Slow.calls
    wait_for(lambda: Slow.calls > before + 5)  # it is at work
    stream.close()
    wait_for(lambda: not whatif.queue.jobs)
    wait_for(lambda: whatif.queue._thread is None)
    stopped = Slow.calls
    assert stopped < 2500  # of 3,000 steps and more of the first reference alone
    Slow.seconds = 0.0
    assert explain(address, {**question, "explain": False})[-1]["event"] == "end"
    assert Slow.calls < stopped + 100  # nothing went on in the dark


@pytest.mark.slow
def test_several_people_are_served_in_turn_and_told_so(slow):
    address, whatif, question = slow
    Slow.seconds = 0.005
    first = Stream(address, question, "first")
    first.events("prediction")
    second, third = Stream(address, question, "second"), Stream(address, question, "third")
    wait_for(lambda: len(whatif.queue.jobs) == 3)
    assert [event["ahead"] for event in second.events("waiting")] == [1]
    assert third.events("waiting")[-1]["ahead"] == 2
    second.close()
    while third.events("waiting")[-1]["ahead"] != 1:
        pass
    again = Stream(address, {**question, "explain": False}, "first")  # gives up what first asked
    assert first.events()[-1]["event"] == "cancelled"
    while third.events("waiting")[-1]["ahead"] != 0:
        pass
    assert again.events()[-1]["event"] == "end"
    for stream in (first, again, third):
        stream.close()
    wait_for(lambda: not whatif.queue.jobs)


@pytest.mark.slow
def test_questions_without_a_name_do_not_replace_each_other(slow):
    address, whatif, question = slow
    Slow.seconds = 0.005
    first = Stream(address, question, "")
    first.events("prediction")
    second = Stream(address, {**question, "explain": False}, "")
    assert second.events()[-1]["event"] == "end"
    (job,) = whatif.queue.jobs
    assert not job.is_cancelled.is_set()
    for stream in (first, second):
        stream.close()
    wait_for(lambda: not whatif.queue.jobs)


@pytest.mark.slow
def test_too_many_who_wait_are_told(slow):
    address, whatif, question = slow
    Slow.seconds, whatif.queue.most = 0.005, 2
    streams = [Stream(address, question, name) for name in "ab"]
    status, content = send(address, "/whatif/explain", json.dumps(question).encode(), **{SESSION: "c"})
    assert status == 400 and b"wait" in content
    for stream in streams:
        stream.close()
    wait_for(lambda: not whatif.queue.jobs)


@pytest.mark.slow
def test_the_end_of_the_server_ends_the_work(tmp_path, capfd):
    subject = make_bright(slow=True)
    make_whatif(tmp_path, subject=subject, method=ig2.ExpectedIG(4))
    whatif = make_whatif(tmp_path, subject=subject, method=ig2.IG2(3000))
    question = {"input": whatif.show_item("photo0.png")["picture"]}
    with running(whatif.collection, whatif=whatif) as address:
        Slow.seconds = 0.005
        stream = Stream(address, question)
        stream.events("prediction")
    assert stream.events()[-1]["event"] == "cancelled"
    stream.close()
    Slow.seconds = 0.0
    wait_for(lambda: not whatif.queue.jobs)
    assert "Traceback" not in capfd.readouterr().err
