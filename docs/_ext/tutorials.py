"""Tutorials are plain scripts. This runs them, and makes a page of each: what it says, what it does, and what came out.

A paragraph of comments that stands alone, at the left edge between blank lines, is prose in Markdown; everything else is code.
The first line of the script's docstring is the page's title. What a piece of code prints, and the pictures it saves, are shown
below it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from myst_parser.sphinx_ import Parser as MystParser
from sphinx.application import Sphinx

# Where the tests have run the scripts already; otherwise the build runs them.
MADE = "IG2_TUTORIALS_MADE"


@dataclass(frozen=True)
class Cell:
    """A piece of a script: prose, or code that begins at this line."""

    prose: bool
    text: str
    line: int


def cells(source: str) -> list[Cell]:
    """A script cut into prose and code; the docstring is the first piece of prose."""
    found = re.match(r'"""(.*?)"""\n', source, re.DOTALL)
    if found is None:
        raise ValueError("a tutorial begins with a docstring, whose first line is its title")
    title, _, rest = found[1].partition("\n")
    pieces = [Cell(True, f"# {title.rstrip('.')}\n{rest}".strip("\n"), 1)]
    lines = source.split("\n")
    start = source[: found.end()].count("\n")
    for prose, first, last in _paragraphs(lines, start):
        if prose:
            pieces.append(Cell(True, "\n".join(line[2:] for line in lines[first:last]), first + 1))
        elif pieces[-1].prose:
            pieces.append(Cell(False, "\n".join(lines[first:last]), first + 1))
        else:  # code goes on after blank lines
            begun = pieces.pop().line
            pieces.append(Cell(False, "\n".join(lines[begun - 1 : last]), begun))
    return pieces


def _paragraphs(lines: list[str], start: int) -> Iterator[tuple[bool, int, int]]:
    """Runs of lines without a blank one: whether all are comments, and where they begin and end."""
    for blank, run in groupby(range(start, len(lines)), key=lambda number: not lines[number].strip()):
        if not blank:
            numbers = list(run)
            yield all(lines[number].startswith("#") for number in numbers), numbers[0], numbers[-1] + 1


def run(script: Path, folder: Path) -> list[dict[str, Any]]:
    """Run a script in a folder, piece by piece, and tell what each printed and which pictures it saved."""
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(script)}
    results = []
    with contextlib.chdir(folder) if hasattr(contextlib, "chdir") else _chdir(folder):
        for cell in cells(script.read_text(encoding="utf-8")):
            printed, before = io.StringIO(), _pictures()
            if not cell.prose:
                # blank lines before it, so that an error names the line of the script
                code = compile("\n" * (cell.line - 1) + cell.text, str(script), "exec")
                with contextlib.redirect_stdout(printed):
                    exec(code, names)
            saved = [name for name, time in _pictures().items() if before.get(name) != time]
            results.append({"printed": printed.getvalue(), "pictures": saved})
    (folder / "outputs.json").write_text(json.dumps(results), encoding="utf-8")
    return results


def _pictures() -> dict[str, int]:
    """The pictures in the current folder and when they were written, oldest first."""
    found = {path.name: path.stat().st_mtime_ns for path in Path().glob("*.png")}
    return dict(sorted(found.items(), key=lambda item: item[1]))


@contextlib.contextmanager
def _chdir(folder: Path) -> Any:  # Python 3.10 has none
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def page(script: Path, results: list[dict[str, Any]]) -> str:
    """The script and its results as Markdown."""
    parts = []
    for cell, result in zip(cells(script.read_text(encoding="utf-8")), results, strict=True):
        parts.append(cell.text if cell.prose else f"```python\n{cell.text}\n```")
        if result["printed"].strip():
            parts.append(f"```{{code-block}} text\n:class: printed\n\n{result['printed'].rstrip()}\n```")
        for picture in result["pictures"]:
            words = Path(picture).stem.replace("-", " ")
            parts.append(f'<img class="made" src="../_static/{script.stem}/{picture}" alt="{words}">')
    parts.insert(1, f"{{download}}`The whole script <{script.name}>` runs on a CPU, without a network.")
    return "\n\n".join(parts) + "\n"


class TutorialParser(MystParser):
    """Python scripts as pages."""

    supported = ("tutorial",)

    def parse(self, inputstring: str, document: Any) -> None:
        env = document.settings.env
        script = Path(env.doc2path(env.docname))
        results = json.loads((made(env.app) / script.stem / "outputs.json").read_text(encoding="utf-8"))
        super().parse(page(script, results), document)


def made(app: Sphinx) -> Path:
    """The folder with what the scripts made."""
    return Path(os.environ.get(MADE) or app.doctreedir / "tutorials")


def _run_all(app: Sphinx) -> None:
    app.config.html_static_path.append(str(made(app)))
    if not os.environ.get(MADE):
        torch.set_num_threads(1)  # two that wait for each other on a busy machine take ten times as long
        for script in sorted((app.srcdir / "tutorials").glob("*.py")):
            run(script, made(app) / script.stem)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_source_suffix(".py", "tutorial")
    app.add_source_parser(TutorialParser)
    app.connect("builder-inited", _run_all)
    return {"parallel_read_safe": True}
