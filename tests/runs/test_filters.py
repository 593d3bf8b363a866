"""Conditions are read, and nothing in them is executed."""

from __future__ import annotations

import pyarrow
import pytest

from ig2.errors import InputError
from ig2.runs.filters import parse_condition
from networks import refuses

TABLE = pyarrow.table(
    {"id": ["a", "b", "c", "d"], "trust": [0.1, 0.5, None, 0.9], "target": [0, 1, 1, 2], "label": [0, 2, 1, None]}
)


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("trust < 0.2", ["a"]),
        ("trust < 0.6 and target != label", ["b"]),
        ("target == label or trust > .8", ["a", "c", "d"]),
        ("not target == 1", ["a", "d"]),
        ("0.2 < trust <= 0.9", ["b", "d"]),
        ("0.05 < trust < 0.9", ["a", "b"]),
        ("0.95 > trust > 0.2 < 1", ["b", "d"]),
        ("label == target == 1", ["c"]),
        ("trust is None", ["c"]),
        ("label is not None and trust is not None", ["a", "b"]),
        ("id in ('a', 'd')", ["a", "d"]),
        ("target not in [0, 2]", ["b", "c"]),
        ("label not in (0, 1)", ["b"]),  # as label != 0 and label != 1
        ("not (label in (0, 1))", ["b"]),
        ("label in (None, 0)", ["a", "d"]),
        ("label not in (None, 0)", ["b", "c"]),
        ("label in ()", []),
        ("label in (1.5, 2.0)", ["b"]),
        ("id == 'b'", ["b"]),
        ("-trust < -0.4", ["b", "d"]),
        ("abs(target - label) >= 1", ["b"]),
        ("2 * trust + 1 > 1.5", ["b", "d"]),
        ("trust / 2 < 0.1", ["a"]),
        ("target / 2 == 0.5", ["b", "c"]),
        ("target / 0 > 1 or 5 / target > 3", ["a", "b", "c", "d"]),
        ("target * 9000000000000000000 > 1", ["b", "c", "d"]),
    ],
)
def test_conditions_choose_rows(condition: str, ids: list[str]) -> None:
    assert TABLE.filter(parse_condition(condition, TABLE.schema))["id"].to_pylist() == ids


@pytest.mark.parametrize(
    "condition",
    [
        "__import__('os').system('true')", "trust.__class__", "trust[0]", "(lambda: 1)()", "[x for x in id]", "f'{id}'",
        "open('/etc/passwd')", "trust < 0.2; id", "id == b'a'", "trust if target else label", "trust ** 9", "abs(trust, 2)",
        "abs(x=trust)", "trust < ...", "target in id", "target in [label]", "id @ id", "trust := 1", "", " ", "trust <",
    ],
)  # fmt: skip
def test_anything_else_is_refused(condition: str) -> None:
    refuses(InputError, "condition", lambda: parse_condition(condition, TABLE.schema))


@pytest.mark.parametrize(
    "condition",
    [
        "trust > 'x'", "id < 3", "id == 'a' or 1", "not id", "-id < 3", "abs(id) > 3", "'a' * 1000000000 == id",
        "target == True", "id in ((1, 2),)", "id in (1, 2)", "target in (True,)", "trust", "1", "id", "trust + target",
    ],
)  # fmt: skip
def test_a_condition_of_the_wrong_types_is_refused_before_any_row_is_read(condition: str) -> None:
    """Met with rows, it was taken for a damaged part, to be deleted; `trust` alone had 10¹⁸ rows."""
    refuses(InputError, "condition", lambda: parse_condition(condition, TABLE.schema))


def test_deep_nests_and_long_texts_are_refused() -> None:
    for condition in ("(" * 1500 + "trust" + ")" * 1500, "-" * 3000 + "trust < 1", "trust < 1 or " * 400 + "trust < 1"):
        refuses(InputError, "condition", lambda condition=condition: parse_condition(condition, TABLE.schema))
    refuses(InputError, "condition", lambda: parse_condition(3, TABLE.schema))  # type: ignore[arg-type]


def test_an_unknown_column_is_named_with_what_was_meant() -> None:
    refuses(InputError, "did you mean trust", lambda: parse_condition("thrust < 1", TABLE.schema))
