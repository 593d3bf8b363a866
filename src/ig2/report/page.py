"""A report as one HTML file that opens from disk and asks nothing of the network."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator, Sequence
from importlib import resources
from os import PathLike
from typing import Any

from ig2._utils.files import write_file
from ig2.attribution import LARGE_RESIDUAL, LITTLE_ARRIVAL
from ig2.errors import import_extra
from ig2.report.content import Content, InputView, MethodView
from ig2.report.encoding import MAP_BITS, REFERENCE_BITS, PictureStore, block_side, encode_input

# Below this share of the change, a residual is what float32 leaves of nothing.
ROUNDING = 1e-5


def write(content: Content, path: str | PathLike[str]) -> None:
    """Write a report to `path`: the whole file, or on an error whatever was there before.

    Args:
        content: what it shows.
        path: of the HTML file.

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
        content: what it shows.

    Returns:
        The page, with its pictures, numbers, style and script inside.

    Raises:
        InputError: if the page cannot show the content.
        MissingExtraError: if Jinja, or for pictures Pillow, is not installed.
    """
    jinja2 = import_extra("jinja2", "report", "a report")
    markup = import_extra("markupsafe", "report", "a report").Markup
    content.check()
    files = resources.files("ig2.report")
    script, style, source = (files.joinpath(name).read_text("utf-8") for name in ("page.js", "page.css", "page.html.j2"))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(number=format_number, percent=_format_percent, listed=lambda names: join_names(names, markup))
    # NumPy's numbers are none of JSON's
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":"), "default": float}
    pictures = PictureStore()
    inputs = [encode_input(view, pictures) for view in content.inputs]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page: str = environment.from_string(source).render(
        content=content,
        data={"inputs": inputs, "pictures": pictures.urls},
        views=[_word_input(view, entry) for view, entry in zip(content.inputs, inputs, strict=True)],
        script=markup(script),
        style=markup(style),
        policy=(
            f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
            "base-uri 'none'; form-action 'none'"
        ),
    )
    return page


def _word_input(view: InputView, data: dict[str, Any]) -> dict[str, Any]:
    """What the template says of an input; `data` is what the script reads of it."""
    methods = [_word_method(method, entry) for method, entry in zip(view.methods, data["methods"], strict=True)]
    precision = ""
    if view.kind == "image":
        precision = f"They are kept in {MAP_BITS} bits a pixel, within {_format_error(MAP_BITS)} of the map’s largest."
        several = [reference for method in view.methods if len(method.references) > 1 for reference in method.references]
        blocks = [block_side(reference.scores) for reference in several if reference.scores is not None]
        if blocks:
            side = max(blocks)
            pooled = f", as means over {side} × {side} pixels" if side > 1 else ""
            error = _format_error(REFERENCE_BITS)
            precision += f" Those for each reference are kept in {REFERENCE_BITS} bits{pooled}: within {error}."
    return {"picture": data["picture"], "methods": methods, "precision": precision}


def _word_method(method: MethodView, data: dict[str, Any]) -> dict[str, Any]:
    verdict = method.verdict.strip()
    shares = (
        ("Trust", method.trust, "how well gradients predicted the output along the paths"),
        ("Arrival", method.arrival, "how much of the distance to the references the paths covered"),
    )
    words: dict[str, Any] = {
        "verdict": verdict[:1].upper() + verdict[1:] + ("" if verdict.endswith((".", "!", "?")) else "."),
        "trust": "none",
        "sums": [],
        "relative": "",
        "residual": "" if method.residual is None else format_number(method.residual),
        "settings": list(list_settings(data["settings"])),
        "gradcf": data["gradcf"],
        "shares": [
            {"name": name, "value": _format_percent(value), "meaning": meaning}
            for name, value, meaning in shares
            if value is not None
        ],
    }
    if method.baseline_output is None or method.residual is None:
        return words
    change = method.output - method.baseline_output
    total = change + method.residual
    low, high = min(change, total, 0.0), max(change, total, 0.0)
    width = (high - low) or 1.0
    for name, value in (("Change in the output", change), ("Sum of the scores", total)):
        left, right = sorted((0.0, value))
        start, length = (f"{100 * part / width:.2f}" for part in (left - low, right - left))
        words["sums"].append({"name": name, "value": value, "left": start, "width": length})
    if change:
        relative = abs(method.residual / change)
        arrived = method.arrival is None or method.arrival >= LITTLE_ARRIVAL
        words["trust"] = "good" if relative < LARGE_RESIDUAL and arrived else "poor"
        words |= {"residual": "none"} if relative < ROUNDING else {"relative": _format_percent(relative)}
    return words


def list_settings(settings: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as rows of one table; a part by its name, then its own settings."""
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


def format_number(value: float) -> str:
    """Three significant digits, and a real minus; the script's `number` does the same."""
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if -3 <= exponent < 5:
        text = f"{value:.{max(0, 2 - exponent)}f}"
    else:
        raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        text = f"{value / 10.0**exponent:.2f} × 10{raised}"
    return text.replace("-", "−")


def _format_percent(share: float) -> str:
    if share < 0:  # as an arrival where the path ended farther away
        return "−" + _format_percent(-share)
    percent = 100 * share
    if percent >= 1000:
        return f"{share:,.0f} times" if share < 1e6 else "millions of times"
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.1f} %" if percent >= 0.1 or percent == 0 else "below 0.1 %"


def _format_error(bits: int) -> str:
    """How far a packed number may be off, as a share of the largest."""
    return f"{50 / (2 ** (bits - 1) - 1):.1g} %"


def join_names(names: Sequence[str], markup: Any) -> Any:
    """Names as a person lists them, escaped: "a, b or c", "a, b, c or 2 others"."""
    most = 4 if len(names) == 4 else 3  # «or 1 others» is no English, and takes no less room than the name
    parts = [markup("<bdi>{}</bdi>").format(name) for name in names[:most]]
    if len(names) > most:
        parts.append(f"{len(names) - most} others")
    return markup(", ").join(parts[:-1]) + markup(" or ") * (len(parts) > 1) + parts[-1]
