"""The command in this process, so that PyTorch is imported once; and small networks to give it by module:function."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from limits import HANGS
from PIL import Image
from rich.console import Console

from ig2.cli import main, output

# networks for pictures of 8 × 8 pixels, in a module that tests write into their folder
NETWORKS = """
import torch
from torch import nn
from ig2 import modalities

def net(width=3, dropout=0.0):
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        made = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, width)).eval()
    made[1].bias.data = -0.5 * made[1].weight.data.sum(dim=1)  # about grey, so that it sees all classes in noise
    made[4].bias.data.zero_()
    return made

def subject(net, classes=("red", "green", "blue"), **options):
    noise = torch.randint(0, 256, (24, 8, 8, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8).numpy()
    photos = [modalities.Sample(pixels, f"noise {i}") for i, pixels in enumerate(noise)]
    return modalities.image.subject(net, (8, 8), classes=classes, photos=lambda: photos, **options)

def small():
    return subject(net())
"""


@dataclass(frozen=True)
class Result:
    """How a run ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of an error, less the name of the command."""
        assert "Traceback" not in self.err
        (line,) = self.err.splitlines()
        assert line.startswith("ig2: ")
        return line.removeprefix("ig2: ")


def plain(text: str) -> str:
    """Return text without the control sequences of a terminal."""
    return re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|\]8;[^\\]*\\)", "", text)


class Command:
    """`ig2` in an empty folder, which is the current one."""

    def __init__(self, factory, folder, patch, captured) -> None:
        self.folder, self.patch, self.captured = folder, patch, captured
        patch.chdir(folder)
        # networks that are trained on first use are kept for all tests, and not in the user's own cache
        patch.setenv("IG2_CACHE", str(factory.getbasetemp().parent / "kept-networks"))
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
            patch.delenv(name, raising=False)
        patch.setenv("COLUMNS", "80")
        patch.setattr(output, "FIRST_LINE", HANGS)  # of a slow command's progress: on a busy machine each is slow

    def __call__(self, *arguments: object) -> Result:
        """Run it."""
        self._forget_modules()
        self.patch.setattr(sys, "argv", ["ig2", *map(str, arguments)])
        self.captured.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Result(ended.value.code or 0, *self.captured.readouterr())

    def refused(self, *arguments: object, code: int = 1) -> str:
        """Run it, check that it ends with one line of error and leaves the folder as it was; return the line."""
        before = self.files()
        result = self(*arguments)
        assert (result.code, result.out) == (code, ""), result
        assert self.files() == before
        return result.error

    def complete(self, typed: str) -> list[str]:
        """Return what a shell offers for the last word typed."""
        words = f"ig2 {typed}"
        with self.patch.context() as patch:
            variables = {"_IG2_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
            for name, value in variables.items():
                patch.setenv(name, value)
            result = self()
        assert result.err == ""
        return result.out.split()

    def on_a_terminal(self, width: int) -> None:
        """Make every console believe that it is a terminal."""
        self.patch.setattr(output, "Console", partial(Console, force_terminal=True, width=width))

    def files(self) -> dict[str, bytes | None]:
        """Everything in the folder: what is in files, None for folders."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes() if path.is_file() else None
            for path in sorted(self.folder.rglob("*"))
            if "__pycache__" not in path.parts
        }

    def _forget_modules(self) -> None:
        """Another test's module of the same name is another module."""
        importlib.invalidate_caches()
        ours = str(self.folder.parent)
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(ours):
                del sys.modules[name]

    def module(self, text: str = "", name: str = "mine") -> None:
        """Write a module with NETWORKS and `text` for --model."""
        (self.folder / f"{name}.py").write_text(NETWORKS + text, encoding="utf-8")

    def photo(self, name: str = "photo.png", size: tuple[int, int] = (20, 20), seed: int = 0, **options) -> Path:
        """A small picture of noise in a file."""
        pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        path = self.folder / name
        os.makedirs(path.parent, exist_ok=True)
        Image.fromarray(pixels).save(path, **options)
        return path


def summary(folder):
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def page_data(folder):
    """What the script of a report is given; the page is checked for sense when it is written."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    return json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])


def explained(out="ig2-out"):
    return [(entry["explained"], entry["class"]) for entry in summary(Path(out))["inputs"]]
