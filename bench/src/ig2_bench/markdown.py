"""Pieces of the pages in Markdown, those of the leaderboard and those of the results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def format_rows(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table.

    >>> print(format_rows(["", "mean"], [["IG", "0.5"]]))
    | | mean |
    |---|---|
    | IG | 0.5 |
    """
    head = f"| {' | '.join(heads)} |".replace("|  |", "| |")
    return "\n".join([head, "|---" * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in rows)])


def shrink(rows: str) -> str:
    """Return a table of many columns so that it is set in smaller letters."""
    return f":::{{container}} wide\n\n{rows}\n\n:::"


def join(blocks: Iterable[str]) -> str:
    """Return a page of these blocks, without those that are empty."""
    return "\n\n".join(block for block in blocks if block) + "\n"
