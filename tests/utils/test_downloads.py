"""Fetching public files from a server on this machine: fresh, cut off and resumed, wrong, missing; and unpacking safely."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import socket
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ig2._utils import datasets, downloads
from ig2._utils.downloads import FetchError, PublicFile, unpack
from ig2.errors import InputError
from links import check_links

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """A server that can do less than others, and remembers what it was asked."""

    url: str = ""
    content: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    says_length: bool = True
    cuts: list[int] = field(default_factory=list)  # after so many bytes, one for each answer
    asked: list[str | None] = field(default_factory=list)  # the Range of each request
    wrong_piece: bool = False

    def file(self, name: str = "digits.gz", **options) -> PublicFile:
        return PublicFile(name, (f"{self.url}/{name}",), **{"size": len(CONTENT), "sha256": SHA256, **options})


class Handler(http.server.BaseHTTPRequestHandler):
    ours: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.ours.asked.append(asked)
        content = self.ours.content.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.ours.ranges else 0
        if start >= len(content):
            self.send_error(416)
            return
        body = content[start:]
        self.send_response(206 if asked and self.ours.ranges else 200)
        if self.ours.says_length:
            self.send_header("Content-Length", str(len(body)))
        if asked and self.ours.ranges:
            first = 0 if self.ours.wrong_piece else start
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(body[: self.ours.cuts.pop(0)] if self.ours.cuts else body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    ours = Server(content={"digits.gz": CONTENT})
    handler = type("Ours", (Handler,), {"ours": ours})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as http_server:
        ours.url = f"http://127.0.0.1:{http_server.server_address[1]}"
        thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield ours
        http_server.shutdown()
        thread.join()


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def failure(file: PublicFile, folder: Path) -> str:
    with pytest.raises(FetchError) as caught:
        downloads.fetch(file, folder)
    return str(caught.value)


# -- fetching ----------------------------------------------------------------------------------------------------------


def test_a_file_is_fetched_once_and_told_how_far_it_is(server, tmp_path):
    told = []
    path = downloads.fetch(server.file(), tmp_path / "new" / "folder", lambda done, total: told.append((done, total)))
    assert path == tmp_path / "new" / "folder" / "digits.gz" and path.read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT)) and [done for done, _ in told] == sorted({done for done, _ in told})
    assert downloads.fetch(server.file(), path.parent) == path and server.asked == [None]
    assert names(path.parent) == ["digits.gz"]


@pytest.mark.parametrize("has_sum", [True, False])
@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", b"", CONTENT[:-1] + b"x"])
def test_a_file_that_is_there_and_is_another_is_left_alone(server, tmp_path, content, has_sum):
    file = server.file() if has_sum else replace(server.file(), sha256=None)
    (tmp_path / file.name).write_bytes(content)
    if len(content) == len(CONTENT) and not has_sum:  # nothing shows it
        assert downloads.fetch(file, tmp_path).read_bytes() == content
    else:
        assert "exists already" in failure(file, tmp_path)
    assert (tmp_path / file.name).read_bytes() == content and not server.asked


@pytest.mark.parametrize("sum_known", [True, False])
def test_half_a_file_is_not_continued_in_somebody_elses(server, tmp_path, sum_known):
    def fetch(folder):
        server.cuts = [1000, 1000, 1000]
        with suppress(FetchError):
            downloads.fetch(server.file(sha256=SHA256 if sum_known else None), folder)

    check_links(fetch, tmp_path)


def test_a_connection_that_is_cut_goes_on_where_it_was(server, tmp_path):
    server.cuts = [100_000, 50_000]
    told = []
    path = downloads.fetch(server.file(), tmp_path, lambda done, total: told.append((done, total)))
    assert path.read_bytes() == CONTENT and server.asked == [None, "bytes=100000-", "bytes=150000-"]
    assert {total for _, total in told} == {len(CONTENT)} and [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_came_before_it_failed_is_kept_for_the_next_time(server, tmp_path):
    server.cuts = [100_000, 0]
    said = failure(server.file(), tmp_path)
    assert "100,000 of 256,000 bytes" in said
    assert "100,000 bytes are kept" in said
    assert names(tmp_path) == ["digits.gz.part"]
    assert downloads.fetch(server.file(), tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=100000-" and names(tmp_path) == ["digits.gz"]


def test_a_server_that_always_starts_anew_is_read_from_the_start(server, tmp_path):
    server.ranges = False
    (tmp_path / "digits.gz.part").write_bytes(CONTENT[:1000])
    assert downloads.fetch(server.file(), tmp_path).read_bytes() == CONTENT and server.asked == ["bytes=1000-"]


def test_a_server_that_says_no_length_and_is_cut_is_noticed_by_the_size_that_is_known(server, tmp_path):
    server.says_length, server.cuts = False, [1000]
    assert downloads.fetch(server.file(), tmp_path).read_bytes() == CONTENT and server.asked == [None, "bytes=1000-"]


def test_without_a_checksum_pieces_are_never_put_together(server, tmp_path):
    (tmp_path / "digits.gz.part").write_bytes(b"of another version")
    path = downloads.fetch(server.file(sha256=None, size=None), tmp_path)
    assert path.read_bytes() == CONTENT and server.asked == [None]


def test_a_piece_that_was_not_asked_for_is_not_put_in_and_the_file_is_started_anew(server, tmp_path):
    server.wrong_piece = True
    (tmp_path / "digits.gz.part").write_bytes(CONTENT[:1000])
    assert downloads.fetch(server.file(), tmp_path).read_bytes() == CONTENT and server.asked == ["bytes=1000-", None]


def test_a_part_that_is_longer_than_the_file_is_started_anew(server, tmp_path):
    (tmp_path / "digits.gz.part").write_bytes(b"x" * 300_000)
    assert downloads.fetch(server.file(size=None), tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=300000-", None]


def test_a_wrong_file_is_deleted_and_said(server, tmp_path):
    server.content["digits.gz"] = bytes(len(CONTENT))
    said = failure(server.file(), tmp_path)
    assert SHA256 in said and "deleted" in said and said.endswith(str(tmp_path / "digits.gz"))
    assert names(tmp_path) == []


def test_a_file_that_is_too_short_or_too_long_is_refused(server, tmp_path):
    assert "it has 256,000 bytes instead of 300,000" in failure(server.file(size=300_000), tmp_path)
    assert "more than 100,000 bytes came" in failure(server.file(size=100_000), tmp_path / "other")


def test_of_several_addresses_the_first_with_the_right_file_is_taken(server, tmp_path):
    server.content["wrong.gz"] = bytes(len(CONTENT))
    urls = tuple(f"{server.url}/{name}" for name in ("missing.gz", "wrong.gz", "digits.gz"))
    path = downloads.fetch(PublicFile("digits.gz", urls, len(CONTENT), SHA256), tmp_path)
    assert path.read_bytes() == CONTENT and len(server.asked) == 3


def test_a_file_that_is_not_there_is_named_with_its_address(server, tmp_path):
    said = failure(server.file("missing.gz"), tmp_path)
    assert f"{server.url}/missing.gz" in said and "404" in said
    assert names(tmp_path) == []


def test_without_a_network_it_says_what_to_do(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/digits.gz"
        said = failure(PublicFile("digits.gz", (url,), 3, SHA256), tmp_path)
    assert f"{url}: Connection refused" in said and said.endswith(str(tmp_path / "digits.gz"))


def test_a_file_put_there_by_hand_is_taken_if_it_is_the_right_one(tmp_path):
    file = PublicFile("digits.gz", ("http://127.0.0.1:1/digits.gz",), len(CONTENT), SHA256)
    (tmp_path / "digits.gz").write_bytes(CONTENT)
    assert downloads.fetch(file, tmp_path) == tmp_path / "digits.gz"
    (tmp_path / "digits.gz").write_bytes(CONTENT[:-1])
    said = failure(file, tmp_path)
    assert "exists already" in said and "255,999 bytes instead of 256,000" in said
    assert (tmp_path / "digits.gz").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_named(server, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        downloads.fetch(server.file(), tmp_path)
    assert server.asked == [None]


# -- archives ----------------------------------------------------------------------------------------------------------


def tar(path: Path, *members: tuple[str, bytes | None]) -> bytes:
    """An archive of files, or of links where there is no content."""
    with tarfile.open(path, "w:gz") as opened:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                opened.addfile(info)
            else:
                info.size = len(content)
                opened.addfile(info, io.BytesIO(content))
    return path.read_bytes()


def test_an_archive_is_unpacked_and_deleted(server, tmp_path):
    content = tar(tmp_path / "a.tar.gz", ("images/a.jpg", b"a"), ("images/b.jpg", b"b"), ("README", b"c"))
    server.content["images.tar.gz"] = content
    sum256 = hashlib.sha256(content).hexdigest()
    file = server.file("images.tar.gz", size=len(content), sha256=sum256, unpacks_to="images")
    assert downloads.fetch(file, tmp_path / "pets") == tmp_path / "pets" / "images"
    assert names(tmp_path / "pets") == ["images", "images/a.jpg", "images/b.jpg"]
    downloads.fetch(file, tmp_path / "pets")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "members",
    [
        (("images/a.jpg", b"a"), ("../evil", b"x")),
        (("images/a.jpg", b"a"), ("/tmp/ig2-evil", b"x"), ("images/link", None)),
        (("images/link", None),),
    ],
)
def test_a_tar_that_leads_out_of_the_folder_is_refused(tmp_path, members):
    tar(tmp_path / "a.tar.gz", *members)
    (tmp_path / "to").mkdir()
    with pytest.raises(InputError, match=r"a.tar.gz cannot be unpacked"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "to", "images")
    assert names(tmp_path) == ["a.tar.gz", "to"] and not Path("/tmp/ig2-evil").exists()


@pytest.mark.parametrize("name", ["../evil", "/tmp/ig2-evil", "images/../../evil", "..\\evil", "C:/evil"])
def test_a_zip_that_leads_out_of_the_folder_is_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        opened.writestr("images/a.jpg", "a")
        opened.writestr(name, "x")
    (tmp_path / "to").mkdir()
    with pytest.raises(InputError, match="leads out of the folder"):
        unpack(tmp_path / "a.zip", tmp_path / "to", "images")
    assert names(tmp_path) == ["a.zip", "to"]


def test_a_zip_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        opened.writestr("images/a.jpg", "a")
    assert (unpack(tmp_path / "a.zip", tmp_path, "images") / "a.jpg").read_text() == "a"
    assert names(tmp_path) == ["a.zip", "images", "images/a.jpg"]


def test_an_archive_that_is_broken_or_another_leaves_nothing(tmp_path):
    content = tar(tmp_path / "a.tar.gz", ("images/a.jpg", os.urandom(5000)))
    with pytest.raises(InputError, match="holds images: expected a folder annotations"):
        unpack(tmp_path / "a.tar.gz", tmp_path, "annotations")
    for broken in (content[:2000], b"<html>"):
        (tmp_path / "a.tar.gz").write_bytes(broken)
        with pytest.raises(InputError, match="cannot be unpacked"):
            unpack(tmp_path / "a.tar.gz", tmp_path, "images")
    assert names(tmp_path) == ["a.tar.gz"]


# -- the registry ------------------------------------------------------------------------------------------------------


def test_every_public_file_has_an_address_a_size_and_a_checksum():
    for known in datasets.DATASETS.values():
        assert known.about and known.terms and known.default and known.layout
        assert known.suites or "ig2 explain" in known.about
        for file in known.files:
            assert all(url.startswith("https://") and Path(url).suffix == Path(file.name).suffix for url in file.urls)
            assert len(bytes.fromhex(file.sha256)) == 32 and file.size > 0


def test_data_that_needs_an_agreement_is_not_fetched(tmp_path):
    with pytest.raises(InputError, match="https://mmlab"):
        datasets.DATASETS["celeba"].fetch(tmp_path)


def test_a_data_set_is_fetched_into_the_cache_or_where_it_is_told(server, tmp_path, monkeypatch):
    monkeypatch.setenv("IG2_CACHE", str(tmp_path / "cache"))
    known = datasets.DataSet("toy", "toy", ("toy",), "", "", "", "", None, (server.file(),))
    assert not known.is_fetched
    told = []
    assert known.fetch(progress=lambda *words: told.append(words)) == tmp_path / "cache" / "data" / "toy"
    assert known.is_fetched and told[-1] == ("digits.gz", len(CONTENT), len(CONTENT))
    assert known.fetch(tmp_path / "mine") == tmp_path / "mine" and names(tmp_path / "mine") == ["digits.gz"]
