"""Paths that lead to pipes and devices, and damaged caches: nothing waits, and what can be made again is."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import ig2
from ig2 import modalities
from ig2._utils import downloads, training
from ig2._utils.files import FileError, check_regular, write_file
from ig2.errors import IG2Warning, InputError
from ig2.modalities.loading import load_network
from ig2.modalities.text.modality import read_lines
from ig2_bench.datasets import listing, mnist
from ig2_bench.datasets.wafer import frames, wm811k
from ig2_bench.networks import faces, questions
from ig2_bench.store import Cells
from ig2_bench.table import Table

READERS: dict[str, Callable[[Path], object]] = {
    "a photo.png": modalities.image.read_image,
    "a table.csv": lambda path: modalities.table.load("iris").read(path),
    "a table.parquet": lambda path: modalities.table.load("iris").read(path),
    "sentences.txt": read_lines,
    "weights.pt": lambda path: load_network(str(path)),
    "maps.npz": wm811k.load,
    "frame.pkl": frames.read_frame,
    "labels.txt": listing.read_lines,
    "digits-ubyte": mnist.read_idx,
    "vectors.txt": questions.read_vectors,
    "mobilenet.pth": faces.MobileNetV2(2, width=0.1).start_from,
    "performance.json": Table.load,
    "toy.cells.jsonl": lambda path: Cells(path.parent, "toy"),
    "a.safetensors": ig2.Attribution.load,
    "an archive.tar": lambda path: downloads.unpack(path, path.parent, "data"),
    "fetched.bin": lambda path: downloads.fetch(downloads.PublicFile(path.name, ()), path.parent),
}


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A test that waits for a pipe fails instead of waiting for ever."""

    def fail(*_: object) -> None:
        raise AssertionError("it waited for a pipe")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_refused_before_it_is_opened(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(InputError, match="pipe"):
        READERS[name](path)


@pytest.mark.parametrize("name", READERS)
def test_a_device_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.symlink_to("/dev/zero")  # would fill the memory
    with pytest.raises(InputError, match="device"):
        READERS[name](path)


def test_what_is_regular(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("file", "link", "nowhere", "a\0b", "x" * 5000):
        check_regular(tmp_path / name)
    with pytest.raises(InputError, match="folder"):
        check_regular(tmp_path)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.bind(str(tmp_path / "socket"))
        with pytest.raises(InputError, match="socket"):
            check_regular(tmp_path / "socket")


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.png"])
def test_the_command_does_not_wait(ig2, name: str) -> None:  # type: ignore[no-untyped-def] # a fixture
    os.mkfifo(name)
    assert "pipe" in ig2.refused("explain", name)
    os.mkfifo("references.txt")
    assert "pipe" in ig2.refused("explain", "--text", "Why?", "--references", "references.txt")


# -- the cache ---------------------------------------------------------------------------------------------------------


def flip_a_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit": lambda path: path.write_bytes(flip_a_bit(path.read_bytes())),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-4]),
    "a name": lambda path: path.write_bytes(path.read_bytes().replace(b'"weight"', b'"thgiew"')),
    "a shape": lambda path: path.write_bytes(path.read_bytes().replace(b"[2,3]", b"[3,2]")),
    "empty": lambda path: path.write_bytes(b""),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_weights_are_made_again_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setenv("IG2_CACHE", str(tmp_path))
    net = nn.Linear(3, 2)
    count = 0

    def make() -> dict[str, Tensor]:
        nonlocal count
        count += 1
        return {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.zeros(2)}

    training.load_or_train("thing-1", make)  # without a network, so that the checksum alone can tell
    assert torch.equal(training.load_or_train("thing-1", make, net)["weight"], torch.arange(6.0).reshape(2, 3))
    assert count == 1
    DAMAGES[damage](tmp_path / "thing-1.safetensors")
    with pytest.warns(IG2Warning, match="damaged") as caught:
        tensors = training.load_or_train("thing-1", make)
    assert len(caught) == 1 and "\n" not in str(caught[0].message)
    assert torch.equal(tensors["weight"], torch.arange(6.0).reshape(2, 3)) and count == 2
    training.load_or_train("thing-1", make, net)
    assert count == 2  # it is sound again
    assert [path.name for path in tmp_path.iterdir()] == ["thing-1.safetensors"]


def test_weights_without_a_checksum_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IG2_CACHE", str(tmp_path))
    safetensors.torch.save_file({"weight": torch.zeros(2)}, tmp_path / "thing-1.safetensors")  # as earlier versions did
    assert torch.equal(training.load_or_train("thing-1", lambda: {"weight": torch.ones(2)})["weight"], torch.ones(2))


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_file(path, b"first")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(FileError, match="file cannot be written: No space left"):
            write_file(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
