"""Digests: whatever a result depends on changes them, and nothing else does."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ig2._utils.digests import fingerprint, key_of


def make(default: Any = 1, named: Any = 2, closed: Any = 3) -> Any:
    def function(x: Any, scale: Any = default, *, shift: Any = named) -> Any:
        return x * scale + shift + closed

    return function


@dataclass
class Setting:
    number: Any = 0
    text: str = ""


class Plain:
    def __init__(self, number: Any) -> None:
        self.number = number

    def scale(self, x: Any) -> Any:
        return x * self.number


def net(weight: float = 1.0, buffer: float = 0.0) -> nn.Module:
    made = nn.Sequential(nn.Linear(2, 1))
    made.register_buffer("mean", torch.full((2,), buffer))
    for parameter in made.parameters():
        nn.init.constant_(parameter, weight)
    return made


ZEROS = torch.zeros(2, 3)
# things that differ from the one before in what is named, and in nothing else
DIFFERENT: dict[str, list[Any]] = {
    "a default": [lambda: make(default=1), lambda: make(default=5)],
    "a named default": [lambda: make(named=1), lambda: make(named=5)],
    "a variable of the place": [lambda: make(closed=1), lambda: make(closed=5)],
    "an argument of a partial": [lambda: functools.partial(make(), 1), lambda: functools.partial(make(), 5)],
    "a name of a partial": [
        lambda: functools.partial(make(), shift=1), lambda: functools.partial(make(), shift=5),
        lambda: functools.partial(make(), scale=5),
    ],
    "an object of a method": [lambda: Plain(1).scale, lambda: Plain(2).scale],
    "a field": [lambda: Setting(1), lambda: Setting(2), lambda: Setting(2, "a")],
    "an attribute": [lambda: Plain(1), lambda: Plain(2)],
    "a number": [lambda: ZEROS.clone(), lambda: ZEROS + 1, lambda: torch.eye(3)[:2]],
    "a type": [lambda: ZEROS, lambda: ZEROS.double(), lambda: ZEROS.half()],
    "a shape": [lambda: ZEROS, lambda: ZEROS.mT, lambda: ZEROS.flatten()],
    "an array": [lambda: np.zeros(3), lambda: np.zeros((3, 1)), lambda: np.zeros(3, int), lambda: np.ones(3)],
    "a weight or a buffer": [lambda: net(), lambda: net(weight=2.0), lambda: net(buffer=2.0)],
    "a key or a value": [lambda: {"a": 1}, lambda: {"b": 1}, lambda: {"a": 2}, lambda: {"a": 1, "b": 1}],
    "an order": [lambda: [1, 2], lambda: [2, 1], lambda: [[1], 2]],
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_differs_has_another_digest_and_what_is_made_again_the_same(what: str) -> None:
    keys = [key_of(fingerprint(build())) for build in DIFFERENT[what]]
    assert len(set(keys)) == len(keys)
    assert [key_of(fingerprint(build())) for build in DIFFERENT[what]] == keys


def test_what_holds_itself_has_an_end() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert fingerprint(loop) == [1, "itself"]


def typed(text: str, number: int = 1) -> type:
    """A class as it is typed into a notebook, whose source is in no file."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, f"<cell {number}>", "exec"), names)
    return names["Typed"]  # type: ignore[no-any-return]


CELL = "class Typed:\n    scale = 2.0\n    kind = 'soft'\n    def run(self, x):\n        return self.scale * x\n"


@pytest.mark.parametrize("edit", [("2.0", "3.0"), ("'soft'", "'hard'"), ("* x", "+ x"), ("    kind = 'soft'\n", "")])
def test_a_class_of_a_notebook_is_known_by_its_code_and_constants(edit: tuple[str, str]) -> None:
    before = fingerprint(typed(CELL))
    assert fingerprint(typed(CELL)) == before != fingerprint(typed(CELL.replace(*edit)))


@pytest.mark.parametrize("edit", [("class", "\n\nclass"), ("    scale", "    '''Says more.'''\n    scale")])
def test_what_is_said_of_a_class_of_a_notebook_and_where_it_stands_is_not_part_of_it(edit: tuple[str, str]) -> None:
    assert fingerprint(typed(CELL)) == fingerprint(typed(CELL.replace(*edit)))
