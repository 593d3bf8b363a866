"""Links where files of ours are expected: scores, tables and boards are written to nothing outside their folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from toysuite import Toy

from ig2_bench import run
from ig2_bench.board import leaderboard
from links import check_links


def score_toys(folder: Path) -> None:
    """Scores of which one more is missing each time."""
    seeds = 1 + len((folder / "toy.cells.jsonl").read_text().splitlines()) if (folder / "toy.cells.jsonl").exists() else 1
    run(Toy(seeds=seeds), out=folder)


def rank(folder: Path) -> None:
    board = leaderboard.run_leaderboard(["xai-units"], ["gradient", "random"], samples=3, device="cpu", out=folder, fresh=True)
    leaderboard.write_pages(board, {}, folder)


@pytest.mark.slow
@pytest.mark.parametrize("write", [score_toys, rank])
def test_nothing_is_written_through_a_link(tmp_path: Path, write) -> None:
    check_links(write, tmp_path)
