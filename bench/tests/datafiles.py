"""Data sets written in the layouts in which they are published, and quick suites that read them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ig2.errors import InputError
from ig2_bench.suite import BenchOptions, find_suite


def quick(name: str) -> Callable[..., Any]:
    """What makes a quick suite of this name, from options."""
    return lambda **options: find_suite(name, BenchOptions(quick=True, device="cpu", **options))


def error(call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """The message of the InputError that a call raises."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    return str(caught.value)


def idx(array: np.ndarray) -> bytes:
    """An array of bytes in the format idx."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_digits(folder: Path, prefix: str, x: np.ndarray, y: np.ndarray) -> None:
    """Pictures and labels of one part of MNIST."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{prefix}-images-idx3-ubyte").write_bytes(idx(x))
    (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(y))


def write_questions(path: Path, samples: Any) -> None:
    """A label file of TREC."""
    lines = [f"{samples.classes[label]}:x {text}\n" for text, label in zip(samples.x, samples.y.tolist(), strict=True)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="latin-1")


def write_wafers(folder: Path, maps: Any) -> None:
    """wm811k.npz."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "wm811k.npz", x=maps.x[:, 0].numpy(), y=maps.y.numpy(), classes=np.array(maps.classes))


def write_faces(folder: Path, faces: Any, parsed: int) -> None:
    """Faces in CelebA's layout, the last ones with components."""
    for name in ("img_align_celeba", "masks"):
        (folder / name).mkdir(parents=True)
    lines = [str(len(faces)), " ".join(faces.classes)]
    for number, (picture, labels) in enumerate(zip(faces.x, faces.y.tolist(), strict=True)):
        Image.fromarray(picture.permute(1, 2, 0).numpy()).save(folder / "img_align_celeba" / f"{number:06d}.jpg", quality=95)
        lines.append(f"{number:06d}.jpg " + " ".join("1" if label else "-1" for label in labels))
        if number >= len(faces) - parsed:
            Image.fromarray(faces.components[number].numpy()).save(folder / "masks" / f"{number:06d}.png")
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
