"""What a message says of a name that does not exist."""

from __future__ import annotations

import pytest

from ig2._utils.suggestions import MOST_LISTED, find_close, suggest

NAMES = [f"{letter * 6}" for letter in "abcdefghijklmnopqrst"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_found_wherever_it_is_in_the_list_and_however_it_is_written(name: str) -> None:
    assert len(NAMES) > MOST_LISTED
    for typed in (name[:-1], name.upper(), f"{name}x"):
        assert find_close(typed, NAMES) == [name]
        assert suggest(typed, NAMES) == f"; did you mean {name}?"
    assert find_close(name[:-1], [other.upper() for other in NAMES]) == [name.upper()]


def test_where_nothing_is_close_the_first_are_listed_and_the_rest_counted() -> None:
    assert suggest("?", NAMES[:3]) == ": choose from aaaaaa, bbbbbb, cccccc"
    assert suggest("?", NAMES, choice="it has").startswith(": it has aaaaaa, ")
    listed = suggest("?", [*NAMES, NAMES[0]])  # one name given twice is one
    assert listed.count("aaaaaa") == 1 and listed.endswith(f" and {len(NAMES) - MOST_LISTED} more")
    assert "more" not in suggest("?", NAMES[:MOST_LISTED]) and suggest("?", []) == ""
    assert suggest("abab", ["abac", "abad", "zz"], count=2) == "; did you mean abad or abac?"
