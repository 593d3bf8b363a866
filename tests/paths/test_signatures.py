"""A path class whose methods take other arguments than those they replace is an error when it is made."""

from __future__ import annotations

import pytest

from ig2.errors import InputError
from ig2.paths import GrownPath, KnownPath

METHODS = {
    KnownPath: ("vertices", "prepare", "lines", "count_segments"),
    GrownPath: ("start", "advance", "keep_going", "prepare", "lines", "count_segments"),
}
CASES = [(base, name) for base, names in METHODS.items() for name in names]


@pytest.mark.parametrize(("base", "name"), CASES, ids=lambda case: getattr(case, "__name__", case))
@pytest.mark.parametrize("method", [lambda self: None, lambda self, *, task: None, lambda: None], ids=["few", "named", "none"])
def test_a_method_that_takes_other_arguments_is_an_error(base: type, name: str, method: object) -> None:
    with pytest.raises(InputError, match=rf"Mine\.{name} takes \(.*\), expected \(self, "):
        type("Mine", (base,), {name: method})


@pytest.mark.parametrize(("base", "name"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_a_method_may_name_its_arguments_otherwise_and_take_more(base: type, name: str) -> None:
    type("Mine", (base,), {name: lambda self, *args, further=0: None, "own": lambda self, a: a})
