"""Reports as one HTML file that opens from disk without network access."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from os import PathLike
from typing import Any

from ig2._utils.files import write_file
from ig2.errors import import_extra
from ig2.report.content import Content, Index, IndexEntry, InputView
from ig2.report.encoding import MAP_BITS, REFERENCE_BITS, PictureStore, block_side, encode_input
from ig2.verdict import LITTLE_ARRIVAL, LITTLE_TRUST, advise, mark, say
from ig2.views import Picture

SCRIPTS = ("drawing.js", "item.js", "page.js")
FILTER_FROM = 12  # inputs: fewer are seen at a glance
# NumPy's numbers are none of JSON's
JSON: dict[str, Any] = {"allow_nan": False, "separators": (",", ":"), "default": float}
LONG_NAME = 26  # characters that fit into two lines of the sidebar


def write(content: Content, path: str | PathLike[str]) -> None:
    """Write a report to `path` atomically: on an error, an earlier file is kept.

    Args:
        content: the content of the report.
        path: the path of the HTML file.

    Raises:
        InputError: if the page cannot show the content.
        OSError: if the file cannot be written.
    """
    # names of files may hold bytes that are no text, and UTF-8 refuses those
    page = render(content).encode("utf-8", errors="replace")
    write_file(path, page)


def render(content: Content) -> str:
    """Render a report as the text of an HTML page.

    Args:
        content: the content of the report.

    Returns:
        The page, with pictures, numbers, style and script inlined.

    Raises:
        InputError: if the page cannot show the content.
        MissingExtraError: if Jinja, or for pictures Pillow, is not installed.
    """
    environment = _open_templates()
    content.check()
    pictures = PictureStore()
    inputs = [encode_input(view, pictures) for view in content.inputs]
    views = list(zip(content.inputs, inputs, strict=True))
    entries = [IndexEntry(view.name, view.view.name, view.target, data["view"].get("pixels")) for view, data in views]
    return _render_page(
        environment,
        content,
        entries,
        {"inputs": inputs, "pictures": pictures.urls, "scale": content.scale},
        inputs=content.inputs,
        is_crossed=content.is_crossed,
        sections=[_word_input(view, data) for view, data in views],
    )


def render_index(index: Index) -> str:
    """Render a report of many inputs: a page with all names, which loads the details of an input when it is opened."""
    files = [entry.file for entry in index.entries]
    data = {"inputs": [], "pictures": [], "scale": index.scale, "files": files}
    folder = str(files[0]).partition("/")[0]
    return _render_page(_open_templates(), index, index.entries, data, inputs=(), sections=(), files=folder)


def encode_details(view: InputView, key: str, scale: float = 0.0) -> dict[str, Any]:
    """Return what a page needs to show one input: its fields as JSON, and its section in HTML.

    Args:
        view: the input.
        key: what distinguishes it from others on the same page.
        scale: the initial blur of maps in pixels.

    Raises:
        InputError: if the page cannot show the input.
    """
    Content("", "", (view,), scale=scale).check()
    pictures = PictureStore()
    data = encode_input(view, pictures)
    section = _open_templates().get_template("input")
    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:12]
    html = section.render(input=view, words=_word_input(view, data), i=digest, scale=scale)
    return {"input": {**data, "pictures": pictures.urls}, "html": html}


def render_details(view: InputView, file: str, scale: float = 0.0) -> str:
    """Render the details of one input of many as a script, for its file in the index."""
    return render_script(file, encode_details(view, file, scale))


def render_script(file: str, content: Any) -> str:
    """Return a script that hands its content to the page: from disk, it can load nothing else."""
    return f"receive({json.dumps(file)}, {json.dumps(content, **JSON)});\n"


@cache
def _open_templates() -> Any:
    jinja2 = import_extra("jinja2", "report", "a report")
    templates = {name: _read_file(f"{name}.html.j2") for name in ("page", "input", "meanings")}
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.DictLoader(templates),
    )
    environment.filters.update(percent=_format_percent, short=shorten_name)
    environment.globals.update(little_trust=LITTLE_TRUST, little_arrival=LITTLE_ARRIVAL)
    environment.policies["json.dumps_kwargs"] = JSON
    return environment


def _read_file(name: str) -> str:
    return resources.files("ig2.report").joinpath(name).read_text("utf-8")


def _render_page(
    environment: Any,
    content: Content | Index,
    entries: Sequence[IndexEntry],
    data: dict[str, Any],
    files: str | None = None,
    is_crossed: bool = False,
    **sections: Any,
) -> str:
    markup = import_extra("markupsafe", "report", "a report").Markup
    script, style = "\n".join(map(_read_file, SCRIPTS)), _read_file("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # of a page from the disk, 'self' is nothing: its scripts are of the scheme file
    beside = "" if files is None else " 'self' file:"
    page: str = environment.get_template("page").render(
        content=content,
        entries=entries,
        verdicts=_word_verdicts(content),
        data=data,
        files=files,
        scale=content.scale,
        filter_from=FILTER_FROM,
        script=markup(script),
        style=markup(style),
        is_crossed=is_crossed,
        policy=(
            f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'{beside}; "
            "base-uri 'none'; form-action 'none'"
        ),
        **sections,
    )
    return page


def _word_input(view: InputView, data: dict[str, Any]) -> dict[str, Any]:
    """Return the template's fields for an input; `data` is read by the script."""
    settings = [list(list_settings(method["settings"])) for method in data["methods"]]
    precision = ""
    if view.methods[0].scores.ndim == 2:
        precision = (
            f"They are kept in {MAP_BITS} bits a {view.view.part}, within {_format_error(MAP_BITS)} of the map’s largest."
        )
        several = [reference for method in view.methods if len(method.references) > 1 for reference in method.references]
        blocks = [block_side(reference.scores) for reference in several if reference.scores is not None]
        if blocks:
            side = max(blocks)
            blocked = f"{side} × {side} pixels" if isinstance(view.view, Picture) else f"{side} moments"
            pooled = f", as means over {blocked}" if side > 1 else ""
            error = _format_error(REFERENCE_BITS)
            precision += f" Those for each reference are kept in {REFERENCE_BITS} bits{pooled}: within {error}."
    return {"settings": settings, "precision": precision, "verdicts": _word_methods(view)}


def _word_methods(view: InputView) -> list[dict[str, Any]]:
    """Return the verdict on each method's attribution of one input, in words."""
    verdicts = []
    for number, method in enumerate(view.methods):
        findings = method.findings
        words = {"sentence": say(findings, "input") or method.note, "advice": advise(findings), "mark": mark(findings)}
        verdicts.append({"number": number, "name": method.name, **words})
    return verdicts


def _word_verdicts(content: Content | Index) -> list[dict[str, Any]]:
    """Return each verdict once, in words, with the methods it is on and its mark."""
    noun, notes = "input", dict[str, str]()
    if isinstance(content, Content):
        noun = "target" if content.is_crossed else noun
        notes = {method.name: method.note for input in content.inputs for method in input.methods}
    joined: dict[tuple[str, ...], list[str]] = {}
    for name, findings in content.verdicts.items():
        sentence = say(findings, noun) or notes.get(name, "")
        joined.setdefault((sentence, advise(findings), mark(findings)), []).append(name)
    return [
        {"sentence": sentence, "advice": advice, "mark": worst, "names": names}
        for (sentence, advice, worst), names in joined.items()
    ]


def list_settings(settings: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Return nested settings as rows of one table: the name of a part, then its settings."""
    if isinstance(settings, dict):
        part = name and (settings.get("name") or settings.get("type"))
        if part:
            yield name, str(part)
        for key, value in settings.items():
            if not (part and key in ("name", "type")):
                yield from list_settings(value, f"{name} › {key}" if name else key)
    elif isinstance(settings, list):
        yield name, ", ".join(map(str, settings))
    else:
        yield name, "none" if settings is None else str(settings)


def _format_percent(share: float) -> str:
    percent = 100 * share
    if 99.5 <= percent < 100:  # what is not quite certain is not shown as such, here and on the terminal
        return ">99\u00a0%"
    return f"{percent:.0f}\u00a0%" if percent >= 10 else f"{percent:.1f}\u00a0%" if percent >= 0.1 else "below 0.1\u00a0%"


def _format_error(bits: int) -> str:
    """Format the maximum error of a packed number, as a share of the largest."""
    return f"{50 / (2 ** (bits - 1) - 1):.1g} %"


def shorten_name(name: str) -> str:
    """Return the name of a file, shortened in the middle: camera file names differ at the end. The page truncates sentences."""
    return name if " " in name or len(name) <= LONG_NAME else f"{name[: LONG_NAME // 2]}…{name[-LONG_NAME // 2 + 1 :]}"
