"""Writes what the docs and the package say of methods, metrics, references and secants: `make catalogue`."""

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path

from ig2._engine.choices import CHOICES
from ig2._engine.slopes import FAMILIES
from ig2._engine.slopes.parts import FAMILIES as PARTS
from ig2.methods import Method, PathMethod
from ig2.methods.cam import ActivationMap
from ig2.methods.catalogue import CLASSES, ENTRIES, METHODS, RULES, Entry
from ig2.methods.wrapper import Wrapper
from ig2.metrics import Metric
from ig2.references import References

ROOT = Path(__file__).parents[1]
EXPORTS = Path("src/ig2/methods/__init__.py")
BEGIN, END = "<!-- written by make catalogue -->\n\n", "<!-- end -->\n"
# packages whose parts are found in their modules
PARTS_OF: dict[str, Callable[[type], bool]] = {
    "metrics": lambda cls: issubclass(cls, Metric) and hasattr(cls, "name"),  # base classes have none
    "references": lambda cls: issubclass(cls, References),
}
SECTIONS = {
    "On a path": PathMethod,
    "Maps of a layer": ActivationMap,
    "Around another method": Wrapper,
    "Others": Method,
}


def render_exports(text: str) -> str:
    """Return the package's module with its imports for type checkers, not yet sorted, and its `__all__`."""
    head, rest = text.split("if TYPE_CHECKING:", 1)
    comment, block = rest.split("\n", 1)
    block, rest = block.split("\nelse:", 1)
    tree = ast.parse(textwrap.dedent(block))
    base = {"ig2.methods.base", "ig2.methods.path"}  # and modules of the catalogue
    modules = {node.module: [alias.name for alias in node.names] for node in tree.body if isinstance(node, ast.ImportFrom)}
    kept = {name: names for name, names in modules.items() if not name.startswith("ig2.methods.") or name in base}
    kept |= {f"ig2.methods.{module}": list(names) for module, names in CLASSES.items()}
    kept["ig2.methods.cam"].append("ActivationMap")
    lines = [f"    from {module} import {', '.join(names)}" for module, names in kept.items()]
    body, exported = rest.split("__all__: list[str] = [", 1)
    names = _list_names(name for names in kept.values() for name in names)
    tail = exported.split("]", 1)[1]
    return f"{head}if TYPE_CHECKING:{comment}\n" + "\n".join(lines) + f"\nelse:{body}__all__: list[str] = [{names}]{tail}"


def find_parts(package: str) -> dict[str, list[str]]:
    """Return the classes of a package that can be made, by the module that defines them."""
    found: dict[str, list[str]] = {}
    for module in pkgutil.iter_modules(import_module(f"ig2.{package}").__path__, f"ig2.{package}."):
        for name, part in vars(import_module(module.name)).items():
            is_own = inspect.isclass(part) and part.__module__ == module.name and not name.startswith("_")
            if is_own and not inspect.isabstract(part) and PARTS_OF[package](part):
                found.setdefault(module.name, []).append(name)
    return found


def render_package(package: str, text: str) -> str:
    """Return the `__init__` of a package with all its parts, not yet sorted."""
    tree = ast.parse(text)
    kept = {node.module: [alias.name for alias in node.names] for node in tree.body if isinstance(node, ast.ImportFrom)}
    for module, names in find_parts(package).items():
        kept[module] = list(dict.fromkeys([*kept.get(module, []), *names]))
    imports = "".join(f"from {module} import {', '.join(names)}\n" for module, names in kept.items())
    listed = _list_names(name for names in kept.values() for name in names)
    return f'"""{ast.get_docstring(tree)}"""\n\n{imports}\n__all__ = [{listed}]  # fmt: skip\n'


def _list_names(names: Iterable[str]) -> str:
    """Return the content of `__all__`, sorted as by ruff."""
    quoted = ", ".join(f'"{name}"' for name in sorted(names, key=lambda name: (not name.isupper(), name))) + ","
    return f"\n{textwrap.fill(quoted, 100, initial_indent='    ', subsequent_indent='    ')}\n"


def render_parts(package: str, text: str) -> str:
    """Return the API page of a package; parts that no section of it names are listed at its end."""
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    named = set(re.findall(r"autoclass:: (?:ig2\.\w+\.)?(\w+)", head + tail))
    others = [name for names in find_parts(package).values() for name in names if name not in named]
    classes = "".join(f".. autoclass:: ig2.{package}.{name}\n" for name in others)
    block = f"## Others\n\n```{{eval-rst}}\n{classes}```\n\n" if others else ""
    return head + BEGIN + block + END + tail


def render_api(text: str) -> str:
    """Return the API page with a table of all methods and the documentation of each class."""
    blocks = [_render_table()]
    left = {entry.class_name: entry.type for entry in ENTRIES}
    for title, base in SECTIONS.items():
        names = [name for name, cls in left.items() if issubclass(cls, base)]
        left = {name: cls for name, cls in left.items() if name not in names}
        classes = "".join(f".. autoclass:: ig2.{name}\n" for name in names)
        blocks.append(f"## {title}\n\n```{{eval-rst}}\n{classes}```\n\n")
    head, rest = text.split(BEGIN, 1)
    return head + BEGIN + "".join(blocks) + END + rest.split(END, 1)[1]


def _render_table() -> str:
    lines = ["| method | `--method` | what it is | references | needs |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(_describe(entry))} |" for entry in ENTRIES]
    return "\n".join(lines) + "\n\n"


def _describe(entry: Entry) -> tuple[str, ...]:
    about = entry.about.removesuffix("; images only")
    if entry.settings is None:
        return f"`{entry.class_name}`", "", about, "", ""
    method = entry.example
    references = (
        "needed" if method.needs_references
        else "a baseline" if method.default_references is not None
        else "its own" if method.takes_references
        else ""
    )  # fmt: skip
    needs = {
        "images": method.needs_places,
        "several classes": method.needs_classes,
        "no gradient": not method.needs_gradient,
    }
    words = ", ".join(word for word, needed in needs.items() if needed)
    return f"`{entry.class_name}`", f"`{entry.name}`", about, references, words


def render_command(text: str) -> str:
    """Return the page of the command with the names of all methods and rules."""
    for title, names in (("Methods", METHODS), ("Rules", RULES)):
        line = textwrap.fill(f"{title}: {_quote(names)}.", 130, break_on_hyphens=False)
        text = re.sub(rf"^{title}: .*?\.$", line, text, count=1, flags=re.MULTILINE | re.DOTALL)
    return text


def _quote(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def render_slopes(text: str) -> str:
    """Return the page on the engine with a table of the operations that the secant rule knows."""
    lines = ["| operation | its slope | in PyTorch |", "|---|---|---|"]
    lines += [f"| {family.about} | {family.slope} | {_quote(sorted(family.names))} |" for family in FAMILIES]
    choices = "values meet what they were themselves; what another choice did goes to the values it was made by"
    lines.append(f"| choices | {choices} | {_quote(CHOICES)} |")
    lines += [f"| {about} | taken apart into these | {_quote(parts)} |" for about, parts in PARTS.items()]
    lines.append("| functions of your own, `autograd.Function` | taken apart; of NumPy, the secant of each element | |")
    lines.append("| linear maps, and normalisation with stored statistics | themselves | all others |")
    head, rest = text.split(BEGIN, 1)
    return head + BEGIN + "\n".join(lines) + "\n\n" + END + rest.split(END, 1)[1]


PAGES: dict[Path, Callable[[str], str]] = {
    Path("docs/api/methods.md"): render_api,
    Path("docs/command.md"): render_command,
    Path("docs/engine.md"): render_slopes,
    **{Path(f"docs/api/{package}.md"): partial(render_parts, package) for package in PARTS_OF},
}
PACKAGES = {Path(f"src/ig2/{package}/__init__.py"): partial(render_package, package) for package in PARTS_OF}


def main() -> None:
    exports = {EXPORTS: render_exports, **PACKAGES}
    for path, render in {**exports, **PAGES}.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        (ROOT / path).write_text(render(text), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "-q", "--fix", "--select", "I,RUF022", *exports], cwd=ROOT, check=True)
    subprocess.run([*ruff, "format", "-q", *exports], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
