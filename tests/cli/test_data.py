"""`ig2 data`: what is listed, what a folder holds, and what is fetched."""

from __future__ import annotations

import hashlib
import re
import socket
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from commands import plain
from PIL import Image

from ig2._utils.datasets import DATASETS, DataSet
from ig2._utils.downloads import PublicFile

TRAIN = "HUM:ind Who wrote it ?\nHUM:ind Who wrote it ?\nLOC:city Where is Rome ?\n"
TEST = "NUM:count How many ?\n"


@pytest.fixture
def trec(ig2):
    folder = ig2.folder / "trec"
    folder.mkdir()
    (folder / "TREC_train.txt").write_text(TRAIN)
    (folder / "TREC_test.txt").write_text(TEST)
    return folder


# -- list -----------------------------------------------------------------------------------------------------


def test_the_list_names_every_data_set_with_its_terms_and_what_stands_in(ig2, monkeypatch):
    monkeypatch.setenv("IG2_CACHE", "cache")
    (DATASETS["celeba"].folder / "img_align_celeba").mkdir(parents=True)
    said = ig2("data", "list")
    assert said.code == 0 and said.err == "" and "\x1b" not in said.out
    blocks = said.out.split("\n\n")
    assert [block.split()[0] for block in blocks[:-1]] == list(DATASETS)
    for known, block in zip(DATASETS.values(), blocks, strict=False):
        assert known.about in block and known.terms in block and known.page in block and known.default in block
        assert ("yes, in cache/data/celeba" if known.name == "celeba" else f"nothing in cache/data/{known.name}") in block
        assert (f"ig2 data fetch {known.name} (" in block) == bool(known.files)
    assert "ig2 bench NAME --data FOLDER" in blocks[-1]
    assert "LSWMD.pkl, or wm811k.npz with x, y and classes" in said.out  # the only names that are read


@pytest.mark.parametrize("width", [60, 100])
def test_on_a_terminal_the_list_fits(ig2, width):
    ig2.on_a_terminal(width)
    said = plain(ig2("data", "list").out)
    for line in said.splitlines():
        assert len(line.rstrip()) <= width or " " not in line.split(None, 1)[-1].strip(), line  # a path is never folded


# -- verify ------------------------------------------------------------------------------------------------------------


def test_verify_counts_classes_and_duplicates(ig2, trec):
    said = ig2("data", "verify", "trec", "trec")
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "TREC questions, train; loading skips 1 duplicate · TREC questions, test\n"
        "4 samples, 3 classes\n"
        "\n"
        "  2  HUM\n"
        "  1  LOC\n"
        "  1  NUM\n"
        "  none of     ABBR, DESC, ENTY\n"
        "\n"
        "  duplicates  1: train line 1 = train line 2\n"
        "  problems    none\n"
    )


def test_verify_names_what_is_broken_and_ends_with_1(ig2, trec):
    (trec / "TREC_test.txt").write_text(TEST + "nonsense\nmore \x1b[31mnonsense\n")
    said = ig2("data", "verify", "trec", "trec")
    assert said.code == 1 and said.err == "ig2: trec has 2 problems\n"
    assert "problems    2\n    trec/TREC_test.txt line 2: 'nonsense', expected CLASS:kind" in said.out
    assert "line 3" in said.out and "\x1b" not in said.out
    # nothing is cut or folded where nobody is looking
    assert sum(line.endswith("ENTY, HUM, LOC or NUM") and len(line) > 100 for line in said.out.splitlines()) == 2


def test_the_numbers_of_duplicates_add_up(ig2, trec):
    (trec / "TREC_test.txt").write_text("HUM:ind Who else ?\n")
    again = [1, 1, 1, 2, 1, 3, 1]
    lines = [f"HUM:ind Who is number {n} ?\n" * (1 + times) for n, times in enumerate(again)]
    (trec / "TREC_train.txt").write_text("".join(lines))
    said = ig2("data", "verify", "trec", "trec").out
    assert f"\n{len(again) + sum(again) + 1} samples, 1 class\n" in said
    assert f"duplicates  {sum(again)} in {len(again)} groups: train line 1 = " in said
    assert said.count(" = ") == sum(again[:5]) and "; and 2 more groups\n" in said


@pytest.mark.parametrize("most", [1, 3])
def test_of_many_classes_the_fewest_and_the_most_are_told(ig2, most):
    images = ig2.folder / "photos" / "images"
    images.mkdir(parents=True)
    rows = ["file,class_index"]
    for number, (label, copies) in enumerate([(0, most), *((label, 1) for label in range(1, 41))]):
        for copy in range(copies):
            Image.new("RGB", (4, 4), (number, copy, 0)).save(images / f"{number}-{copy}.png")
            rows.append(f"{number}-{copy}.png,{label}")
    (ig2.folder / "photos" / "labels.csv").write_text("\n".join(rows))
    said = ig2("data", "verify", "imagenet", "photos")
    assert said.code == 0 and len(said.out.splitlines()) == 7
    told = "1" if most == 1 else "from 1 (goldfish and 39 more) to 3 (tench)"
    assert f"{40 + most} samples, 41 classes\n\n  of each     {told}\n" in said.out


def test_on_a_terminal_what_is_verified_fits(ig2, trec):
    ig2.on_a_terminal(60)
    (trec / "TREC_train.txt").write_text("".join(f"HUM:ind Who is number {n} ?\n" * 2 for n in range(40)))
    shown = plain(ig2("data", "verify", "trec", "trec").out)
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 60
    assert "40 in 40 groups" in " ".join(shown.split()) and "and 35 more groups" in " ".join(shown.split())


def test_a_missing_folder_is_one_line(ig2):
    assert ig2.refused("data", "verify", "mnist", "nowhere") == "nowhere does not exist"


# -- fetch -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def toy(tmp_path_factory, monkeypatch):
    """A data set of one file, on a server of our own."""
    content = b"digits"
    folder = tmp_path_factory.mktemp("served")
    (folder / "toy.txt").write_bytes(content)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/toy.txt"
        file = PublicFile("toy.txt", (url,), len(content), hashlib.sha256(content).hexdigest())
        monkeypatch.setitem(DATASETS, "toy", DataSet("toy", "a toy", ("toy",), "", "", "free", "", None, (file,)))
        yield file
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("terminal", [False, True])
def test_fetch_says_where_it_is_and_on_which_terms(ig2, toy, terminal):
    if terminal:
        ig2.on_a_terminal(80)
    said = ig2("data", "fetch", "toy", "--to", "here")
    assert said.code == 0 and (ig2.folder / "here" / "toy.txt").read_text() == "digits"
    lines = [line.split() for line in plain(said.out).splitlines()]
    assert lines == [["toy", "here"], ["terms", "free"], ["check", "ig2", "data", "verify", "toy", "here"]]
    assert terminal or said.err == ""


def test_left_out_the_folder_is_in_the_cache(ig2, toy, monkeypatch):
    monkeypatch.setenv("IG2_CACHE", str(ig2.folder / "cache"))
    assert str(ig2.folder / "cache" / "data" / "toy") in ig2("data", "fetch", "toy", "-q").out


def test_without_a_network_the_line_says_what_to_do(ig2, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        file = PublicFile("toy.txt", (f"http://127.0.0.1:{unused.getsockname()[1]}/toy.txt",))
        monkeypatch.setitem(DATASETS, "toy", DataSet("toy", "a toy", ("toy",), "", "", "free", "", None, (file,)))
        said = ig2("data", "fetch", "toy", "--to", "here")
    assert said.code == 1 and said.out == ""
    assert "http://127.0.0.1:" in said.error and said.error.endswith("here/toy.txt")
    assert "without a checksum" in ig2("data", "list").out


def test_what_needs_an_agreement_is_not_fetched(ig2):
    assert "get it from https://image-net.org/download-images" in ig2.refused("data", "fetch", "imagenet")


# -- photos to contrast with -------------------------------------------------------------------------------------------

CATS = """
class Colours(nn.Module):
    def forward(self, x):
        return nn.functional.pad(9 * x.mean(dim=(2, 3)), (0, 1), value=-9.0)
def cats():
    return modalities.image.subject(Colours(), (8, 8), classes=["tabby", "lynx", "tench", "Egyptian cat"])
"""


def test_explain_offers_the_photos_that_can_be_fetched(ig2, monkeypatch):
    monkeypatch.setenv("IG2_CACHE", "cache")
    ig2.module(CATS)
    photo = ig2.photo()
    said = ig2("explain", photo, "-m", "mine:cats", "--against", "Egyptian cat", "--steps", 2)
    assert said.code == 0 and "photos that come with packages" in said.out
    (line,) = said.err.splitlines()
    assert re.search(r"'Egyptian cat', run ig2 data fetch imagenet-photos once \(\d+ photos, \d+ MB\)", line)
    alone = ig2("explain", photo, "-m", "mine:cats", "--method", "gradient")
    assert alone.code == 0 and alone.err == ""


@pytest.mark.parametrize("names", [["a", "b", "c", "d"], ["a", "tench", "c", "d"], ["a", "tench", "c", "tabby"]])
def test_photos_are_the_pools_where_the_model_knows_several_of_its_classes(ig2, monkeypatch, names):
    monkeypatch.setenv("IG2_CACHE", "cache")
    ig2.module(CATS.replace('["tabby", "lynx", "tench", "Egyptian cat"]', repr(names)))
    said = ig2("explain", ig2.photo(), "-m", "mine:cats", "--against", "others", "--steps", 2)
    assert said.code == 0, said.err
    origin = "photos that come with packages" if "tabby" in names else "the samples of Colours"
    assert re.search(rf"references +\d+ from {origin} \(", said.out), said.out
