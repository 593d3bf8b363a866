"""Links where files of ours are expected: runs, maps and sites write to nothing outside their folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import ig2
from ig2._utils.files import FileError, open_in_place
from ig2.explorer import Collection, export_site
from ig2.explorer.projection import open_projection
from links import check_links
from networks import data, seeded
from stores import tiny

NET = seeded(lambda: torch.nn.Linear(5, 3), 0)


def explain_samples(folder: Path) -> None:
    """A run that explains more samples each time."""
    count = len(ig2.open(folder)) if (folder / "manifest.json").is_file() else 0
    ig2.run(
        data(count + 4, 5),
        NET,
        ig2.Gradient(),
        folder,
        saving=ig2.Saving(flush_seconds=0),
        reading=ig2.Reading(batch=2, retry_failed=True),
    )


def draw_map(folder: Path) -> None:
    explain_samples(folder)
    open_projection(ig2.open(folder))


def export(folder: Path) -> None:
    store = folder.parent / "store of the site"
    export_site(Collection([store if store.exists() else tiny(store, ["a", "b"], [1.0, 2.0])]), folder)


WRITERS = {"run": explain_samples, "map": draw_map, "site": export}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    check_links(WRITERS[name], tmp_path)


def overwrite(path: Path) -> None:
    with open(path, "wb", opener=open_in_place) as file:
        file.write(b"new")


def test_a_file_is_truncated_only_once_it_is_known_to_be_ours(tmp_path: Path) -> None:
    (tmp_path / "ours").write_bytes(b"first")
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    for name, kind in {"link": "a link to", "nowhere/file": "No such file"}.items():
        with pytest.raises(FileError, match=f"{name} cannot be written: .*{kind}"):
            overwrite(tmp_path / name)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ig2.errors.InputError, match="pipe"):
        overwrite(tmp_path / "pipe")
    os.link(tmp_path / "ours", tmp_path / "theirs")
    with pytest.raises(FileError, match="hard link"):
        overwrite(tmp_path / "ours")
    assert (tmp_path / "theirs").read_bytes() == b"first"
    (tmp_path / "theirs").unlink()
    overwrite(tmp_path / "ours")
    assert (tmp_path / "ours").read_bytes() == b"new"


def test_a_lock_that_is_something_else_is_kept(tmp_path: Path) -> None:
    """A folder with nothing but a file of that name is taken for a new store."""
    (tmp_path / "lock").write_bytes(b"the key of the house")
    with pytest.raises(ig2.errors.InputError, match="no lock of a run"):
        explain_samples(tmp_path)
    assert (tmp_path / "lock").read_bytes() == b"the key of the house"
