"""Links where files of ours are expected: whatever a folder holds, nothing outside it is written to."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from ig2.errors import IG2Error

LINKS: dict[str, Callable[[Path, Path], None]] = {
    "symbolic": lambda place, to: place.symlink_to(to),
    "hard": lambda place, to: os.link(to, place),
}


def list_content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check_links(write: Callable[[Path], object], tmp_path: Path) -> None:
    """Write a folder; then again, with each file and folder of it in turn a link to a copy that somebody else has."""
    first = tmp_path / "first"
    write(first)
    names = sorted(str(path.relative_to(first)) for path in first.rglob("*"))
    names = list({re.sub(r"\d+", "0", name): name for name in names}.values())  # one of those that differ in a number alone
    assert names
    for number, name in enumerate(names):
        for kind, link in LINKS.items():
            folder, place = tmp_path / f"{number} {kind}", tmp_path / f"{number} {kind}" / name
            if kind == "hard" and (first / name).is_dir():
                continue
            shutil.copytree(first, folder)
            theirs = tmp_path / f"theirs {number} {kind}"
            theirs.mkdir()
            shutil.move(place, theirs / "thing")
            if (theirs / "thing").is_dir():
                (theirs / "thing" / ".download.part").write_text("half of a file")
            link(place, theirs / "thing")
            before = list_content(theirs)
            complaint = name
            try:
                write(folder)
            except IG2Error as error:
                complaint = str(error)
            assert name.split("/")[0] in complaint  # which of them it is
            assert list_content(theirs) == before, (name, kind)
