"""Docstrings as they are written in the code, made ready for Sphinx.

- A dataclass's fields are documented in the docstring (`Args:`), by a string below the field, or by a comment on its line.
  Sphinx knows the first two; this adds the third to the first.
- What stands outside backticks is plain text: |x| and *args are no markup.
- `[Sundararajan 2017]` is a link to that entry of the bibliography.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import textwrap
import tokenize
from typing import Any

from sphinx.application import Sphinx


def commented_fields(cls: type) -> dict[str, str]:
    """What the comments beside the fields of a dataclass say, those it inherits included."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        source = textwrap.dedent(inspect.getsource(base))
        comments = {
            token.start[0]: token.string.lstrip("# ")
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT and not token.line.lstrip().startswith("#")
        }
        for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno in comments:
                found[node.target.id] = comments[node.end_lineno]
    return found


def described_fields(lines: list[str]) -> list[str]:
    """The names in the `Args:` of a docstring."""
    if "Args:" not in lines:
        return []
    after = lines[lines.index("Args:") + 1 :]
    return [match[1] for line in after if (match := re.match(r"    (\w+): ", line))]


def _add_fields(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what != "class" or not dataclasses.is_dataclass(obj):
        return
    if obj.__doc__ and obj.__doc__.startswith(f"{obj.__name__}("):
        lines.clear()  # the one that dataclasses make up
    described = described_fields(lines)
    fields = {field.name for field in dataclasses.fields(obj)}
    more = [
        f"    {field}: {text}"
        for field, text in commented_fields(obj).items()
        if field in fields and field not in described and not field.startswith("_")
    ]
    if not more:
        return
    if "Args:" in lines:
        at = lines.index("Args:") + 1
        lines[at:at] = more
    else:
        while lines and not lines[-1].strip():
            lines.pop()
        lines += ["", "Args:", *more, ""]


def _escape(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what in ("attribute", "property", "data"):
        lines.insert(0, "")  # "f(x): the score" is a sentence, and napoleon takes what is before a colon for a type
    in_code = False
    for number, line in enumerate(lines):
        in_code = line.lstrip().startswith(">>>") or (in_code and bool(line.strip()))
        if not in_code:
            parts = re.split(r"(`[^`]*`)", line)
            parts[::2] = [re.sub(r"(\||(?<![*\w])\*(?=\w)(?!\w[^*]*\*))", r"\\\1", part) for part in parts[::2]]
            # `Photo`s: markup ends where a word ends, unless an escaped blank says so
            lines[number] = re.sub(r"(`[^`]+`)(?=\w)", r"\1\\ ", "".join(parts))


CITATION = re.compile(r"\[([A-Z][\w-]+ \d{4}[a-z]?)\]")


def _cite(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    for number, line in enumerate(lines):
        lines[number] = CITATION.sub(lambda key: f":ref:`[{key[1]}] <{key[1].replace(' ', '-').lower()}>`", line)


def _no_signature(app: Sphinx, what: str, name: str, obj: Any, *_: Any) -> tuple[str, str] | None:
    """Nobody makes a result by hand, and its fields are listed below it."""
    return (
        ("", "") if name in ("ig2.Attribution", "ig2.metrics.Scores", "ig2.table.ScoreTable", "ig2_bench.table.Table") else None
    )


def setup(app: Sphinx) -> dict[str, Any]:
    # before napoleon, which turns the sections into fields
    app.connect("autodoc-process-docstring", _add_fields, priority=300)
    app.connect("autodoc-process-docstring", _escape, priority=400)
    app.connect("autodoc-process-docstring", _cite, priority=450)
    app.connect("autodoc-process-signature", _no_signature)
    return {"parallel_read_safe": True}
