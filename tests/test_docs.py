"""The documentation is true: its scripts and snippets run, its links lead somewhere, and every public name is described."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import pytest
import torch
from limits import HANGS

matplotlib.use("Agg")

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), DOCS / "results" / "synthetic.md"]
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))
MODULES = (
    "ig2",
    "ig2.paths",
    "ig2.rules",
    "ig2.references",
    "ig2.methods",
    "ig2.metrics",
    "ig2_bench",
    "ig2_bench.figures",
    "ig2_bench.datasets",
    "ig2.plots",
    "ig2.modalities",
    "ig2.modalities.base",
    "ig2.modalities.image.photos",
    "ig2.modalities.image.libraries",
    "ig2.modalities.text.sentences",
    "ig2.modalities.text.transformers",
    "ig2.modalities.language",
    "ig2.modalities.table.rows",
    "ig2.modalities.table.columns",
    "ig2.modalities.loading",
    "ig2.report",
    "ig2.runs",
    "ig2.compat",
    "ig2.compat.captum",
    "ig2.compat.quantus",
    "ig2.compat.shap",
)
# modules that carry a subject's preprocessing: nobody calls them by name
INTERNAL = {
    "ig2.modalities.image.photos.Normalise",
    "ig2.modalities.text.sentences.FromEmbeddings",
}


def extension() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS / "_ext")
        return importlib.import_module("tutorials")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Networks that are trained when first used are trained once, and not into the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]):
        patch.setenv("IG2_CACHE", str(folder))
        yield folder


# -- scripts and snippets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "compat"], ids=lambda page: page.stem)
def test_the_snippets_of_a_page_run_one_after_the_other(
    page: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks marked `python` run, in one namespace; those marked `py` are sketches. compat.md has a test of its own."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in re.finditer(r"^( *)```python\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        code = re.sub(f"(?m)^{block[1]}", "", block[2])
        lines = page.read_text(encoding="utf-8")[: block.start()].count("\n") + 1
        exec(compile("\n" * lines + code, str(page), "exec", dont_inherit=True), names)


def test_every_sketch_is_at_least_python() -> None:
    for page in PAGES:
        for block in re.findall(r"^```(?:\{code-block\} )?py\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            ast.parse(block)


def test_a_script_is_cut_into_prose_and_code_and_errors_name_its_lines(tmp_path: Path) -> None:
    script = tmp_path / "some.py"
    script.write_text(
        '"""Title.\n\nIntro.\n"""\n\nx = 1\n\n\n# stays with the code\ny = 2\n\n# Prose\n# *here*\n\nprint(x + y)\n'
    )
    cells = extension().cells(script.read_text())
    assert [cell.prose for cell in cells] == [True, False, True, False]
    assert cells[0].text == "# Title\n\nIntro." and cells[2].text == "Prose\n*here*"
    assert cells[1].text == "x = 1\n\n\n# stays with the code\ny = 2" and cells[1].line == 6
    assert [result["printed"] for result in extension().run(script, tmp_path / "made")] == ["", "", "", "3\n"]
    script.write_text('"""T."""\n\n# prose\n\nx = 1\n1 / 0\n')
    with pytest.raises(ZeroDivisionError) as caught:
        extension().run(script, tmp_path / "made")
    assert caught.traceback[-1].lineno == 5  # counted from 0


# -- the site ----------------------------------------------------------------------------------------------------------


def test_the_tutorials_run_and_the_site_builds_without_a_warning(cache: Path, tmp_path: Path) -> None:
    """One test, so that no script runs twice where tests are spread over processes."""
    made, site = tmp_path / "made", tmp_path / "site"
    for script in TUTORIALS:
        results = extension().run(script, made / script.stem)
        assert any(result["printed"] for result in results), script
        assert all((made / script.stem / name).stat().st_size > 1000 for result in results for name in result["pictures"])
    environment = {**os.environ, "IG2_TUTORIALS_MADE": str(made), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(site)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANGS)
    assert done.returncode == 0, done.stderr
    check_pictures(site)
    check_nothing_is_fetched(site)
    check_every_public_name_is_in_the_reference(site)
    check_formulas_and_copy_buttons(site)
    check_the_words_people_search_for(site)


def check_pictures(site: Path) -> None:
    shown = [
        picture
        for script in TUTORIALS
        for picture in re.findall(
            r'<img class="made" src="\.\./([^"]*)"', (site / "tutorials" / f"{script.stem}.html").read_text(encoding="utf-8")
        )
    ]
    assert len(shown) >= 6
    assert [picture for picture in shown if not (site / picture).is_file()] == []


def check_nothing_is_fetched(site: Path) -> None:
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="(?:https?:)?//', html), page


def check_formulas_and_copy_buttons(site: Path) -> None:
    for page in ("engine", "residuals", "semantics", "metrics", "api/rules"):
        html = (site / f"{page}.html").read_text(encoding="utf-8")
        assert "<math" in html and "$" not in re.sub(r"<(script|style|pre).*?</\1>", "", html, flags=re.DOTALL), page
    assert "copybutton.js" in (site / "quickstart.html").read_text(encoding="utf-8")


def check_the_words_people_search_for(site: Path) -> None:
    """Titles count most in the site's search: each word is in one, on the page that has the answer."""
    index = json.loads((site / "searchindex.js").read_text(encoding="utf-8").removeprefix("Search.setIndex(").removesuffix(")"))
    found = {(title, index["docnames"][page]) for title, places in index["alltitles"].items() for page, _ in places}
    recipes = ("Hugging Face", "regression", "multi-label", "time series", "GPU", "batch", "200 images", "save", "insertion")
    wanted = {**dict.fromkeys(recipes, "howto"), "install": "quickstart", "Captum": "comparison", "SHAP": "comparison"}
    missing = {word for word, page in wanted.items() if not any(word.lower() in t.lower() and page == p for t, p in found)}
    assert not missing


def check_every_public_name_is_in_the_reference(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes()
    lines = zlib.decompress(inventory.split(b"\n", 4)[4]).decode().splitlines()
    documented = {line.split()[0] for line in lines if " py:" in line}
    objects = {id(thing) for name in documented if (thing := resolve(name)) is not None}
    assert [name for name, thing in public_names() if name not in documented and id(thing) not in objects] == []


def resolve(name: str) -> Any:
    """What a dotted name stands for, or nothing."""
    module, _, rest = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), rest)
    except (ImportError, AttributeError, ValueError):
        return None


# -- docstrings --------------------------------------------------------------------------------------------------------


def public_names() -> list[tuple[str, Any]]:
    """Names in `__all__`; of a module without one, the classes and functions it defines."""
    found = []
    for name in MODULES:
        module = importlib.import_module(name)
        names = getattr(module, "__all__", None) or [
            key
            for key, thing in vars(module).items()
            if not key.startswith("_") and getattr(thing, "__module__", None) == name and not is_type_variable(thing)
        ]
        found += [(f"{name}.{key}", getattr(module, key)) for key in names]
    # helpers that the conventions share
    return [(name, thing) for name, thing in found if name not in INTERNAL and not name.startswith("ig2.compat.as_")]


def is_type_variable(thing: Any) -> bool:
    return type(thing).__module__ == "typing"


def has_own_docstring(thing: Any) -> bool:
    """Not inherited, and not the signature that dataclasses put where there is none."""
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    made_up = dataclasses.is_dataclass(thing) and inspect.isclass(thing) and (text or "").startswith(f"{thing.__name__}(")
    return bool(text and text.strip()) and not made_up


def undescribed(name: str, thing: Any) -> list[str]:
    """The name, or those of its methods, that say nothing of themselves."""
    if not (inspect.isclass(thing) or inspect.isfunction(thing) or inspect.ismodule(thing)):
        return []  # a rule such as `left` is data; the reference describes it
    missing = [] if has_own_docstring(thing) else [name]
    if inspect.isclass(thing):
        for key, member in vars(thing).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            # what a base class has described need not be described again
            if not key.startswith("_") and inspect.isfunction(function) and not inspect.getdoc(getattr(thing, key)):
                missing.append(f"{name}.{key}")
    return missing


def test_every_public_name_has_a_docstring() -> None:
    missing = {gap for name, thing in public_names() for gap in undescribed(name, thing)}
    assert not missing


def test_a_missing_docstring_is_noticed() -> None:
    @dataclasses.dataclass
    class Bare:
        size: int

        def grow(self) -> None:
            self.size += 1

    class Heir(dict):  # type: ignore[type-arg]
        pass

    assert undescribed("Bare", Bare) == ["Bare", "Bare.grow"]
    assert undescribed("Heir", Heir) == ["Heir"]


# -- what the pages say of the code ------------------------------------------------------------------------------------


def messages() -> list[str]:
    """Every text in the package, with … where something is filled in."""
    found = []
    for path in (ROOT / "src" / "ig2").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_the_errors_that_are_explained_are_those_of_the_code() -> None:
    quoted = re.findall(r"^### `(.*)`$", (DOCS / "faq.md").read_text(encoding="utf-8"), re.MULTILINE)
    known = messages()
    assert len(quoted) > 20
    for message in quoted:
        pattern = re.compile(".*".join(re.escape(part) for part in message.split("…")), re.DOTALL)
        assert any(pattern.search(text) for text in known), message


def test_the_page_on_the_command_names_its_options_and_no_others() -> None:
    typer = pytest.importorskip("typer")
    from ig2.cli.app import app
    from ig2.methods.catalogue import METHODS, RULES

    page = (DOCS / "command.md").read_text(encoding="utf-8")
    command = typer.main.get_command(app)
    context = command.make_context("ig2", [], resilient_parsing=True)
    commands = [command, *(command.get_command(context, name) for name in command.list_commands(context))]
    commands += command.commands["data"].commands.values()
    parameters = [parameter for each in commands for parameter in each.params]
    options = {name for parameter in parameters for name in parameter.opts if name.startswith("--")}
    options |= {"--install-completion", "--version", "--debug"}
    assert set(re.findall(r"--[a-z][a-z-]*", page)) <= options
    explain = {name for parameter in command.commands["explain"].params for name in parameter.opts if name.startswith("--")}
    assert explain <= set(re.findall(r"`(--[a-z-]+)`", page))
    methods = re.search(r"^Methods: (.*?)\.$", page, re.MULTILINE | re.DOTALL)
    rules = re.search(r"^Rules: (.*?)\.$", page, re.MULTILINE | re.DOTALL)
    assert methods and re.findall(r"`(.*?)`", methods[1]) == list(METHODS)
    assert rules and re.findall(r"`(.*?)`", rules[1]) == list(RULES)


def test_the_page_of_extras_lists_those_of_the_package() -> None:
    tomllib = pytest.importorskip("tomllib")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    table = (DOCS / "quickstart.md").read_text(encoding="utf-8").partition("## Extras")[2]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", row)}
    assert named == set(extras) - {"test", "lint", "docs", "dev"}


def test_every_citation_of_the_code_is_in_the_bibliography_and_every_entry_is_cited():
    page = (DOCS / "bibliography.md").read_text(encoding="utf-8")
    entries = set(re.findall(r"^\*\*\[([\w -]+ \d{4}[a-z]?)\]\*\*", page, flags=re.MULTILINE))
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "bench" / "src").rglob("*.py")]
    cited = {key for path in sources for key in re.findall(r"\[([A-Z][\w-]+ \d{4}[a-z]?)\]", path.read_text(encoding="utf-8"))}
    assert cited and cited == entries
