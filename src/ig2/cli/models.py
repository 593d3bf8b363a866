"""The model of `ig2 explain`, and what is assumed of a network that comes without its data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ig2 import modalities
from ig2._utils.suggestions import ChoiceError
from ig2.cli.inputs import read_lines
from ig2.cli.options import ModelOptions
from ig2.cli.streams import print_error
from ig2.errors import InputError, format_count, reason
from ig2.modalities.base import Subject, quote_names
from ig2.modalities.image.photos import ImageSubject
from ig2.modalities.loading import as_image_subject, load_subject
from ig2.modalities.table.estimators import is_estimator


def load_model(options: ModelOptions, kind: str, sources: Sequence[Path]) -> Subject:
    """Load the model; print what is assumed of a bare network.

    Args:
        options: the model, and what was typed of its data.
        kind: the kind of the inputs.
        sources: files whose columns describe a table to a bare network; the first one counts.

    Raises:
        ChoiceError: if something was typed of the data of a model that brings its own.
        InputError: if there is no such model, or the network does not take the data.
    """
    settings = _parse_settings(options)
    is_alone = False

    def adapt(net: Any, name: str) -> Subject:
        nonlocal is_alone
        is_alone = True
        if is_estimator(net):
            return _adapt_estimator(net, name, kind, settings, source)
        return _adapt_to_photos(net, name, settings) if kind == "image" else _adapt_to_table(net, name, settings, source)

    source = next(iter(sources), Path())
    subject = load_subject(options.model, kind, trust=options.trust, adapt=None if kind in ("text", "signal") else adapt)
    if settings and not is_alone:
        raise ChoiceError(
            f"--{next(iter(settings))} describes the data of a bare network, and {subject.name} comes with its own: omit it"
        )
    return subject


def _parse_settings(options: ModelOptions) -> dict[str, Any]:
    """Return what was typed, by its name in `vision.subject`."""
    settings: dict[str, Any] = {}
    if options.size is not None:
        sides = options.size.lower().split("x")
        if not all(side.strip().isdecimal() for side in sides) or len(sides) > 2:
            raise ChoiceError(
                f"--size {options.size!r} is not valid: expected pixels such as 224, or height x width, such as 224x320"
            )
        settings["size"] = (int(sides[0]), int(sides[-1]))
    for name, typed in (("mean", options.mean), ("std", options.std)):
        if typed is not None:
            settings[name] = _parse_numbers(f"--{name}", typed, "0.5, or one for each channel: 0.5,0.4,0.3")
    if options.bounds is not None:
        expected = "two finite numbers, the lower one first: 0,255"
        settings["bounds"] = bounds = _parse_numbers("--bounds", options.bounds, expected)
        if len(bounds) != 2 or not -math.inf < bounds[0] < bounds[1] < math.inf:
            raise ChoiceError(f"--bounds {options.bounds!r} is not valid: expected {expected}")
    if options.classes is not None:
        path = Path(options.classes)
        is_file = path.suffix.lower() == ".txt"
        names = read_lines(path) if is_file else [name.strip() for name in options.classes.split(",")]
        settings["classes"] = "imagenet" if names == ["imagenet"] else names
    return settings


def _parse_numbers(option: str, typed: str, expected: str) -> list[float]:
    try:
        return [float(number) for number in typed.split(",")]
    except ValueError as error:
        raise ChoiceError(f"{option} {typed!r} is not valid: expected {expected}") from error


def _adapt_to_photos(net: nn.Module, name: str, settings: dict[str, Any]) -> ImageSubject:
    low, high = settings.get("bounds", (0.0, 1.0))
    # photos are from 0 to 1: (low + x·(high − low) − mean) / std, which the network takes, is (x − mean′) / std′
    scaled = {"mean": [(value - low) / (high - low) for value in settings.get("mean", [0.0])]}
    scaled["std"] = [value / (high - low) for value in settings.get("std", [1.0])]
    normalisation = {part: values[0] if len(values) == 1 else values for part, values in scaled.items()}
    others = {part: value for part, value in settings.items() if part != "bounds"}
    subject = as_image_subject(net, name, **{**others, **normalisation})
    height, width = subject.size
    colours = "grey" if subject.channels == 1 else "RGB"
    typed = (f"{part} {', '.join(f'{value:g}' for value in settings[part])}" for part in ("mean", "std") if part in settings)
    print_error(
        f"{name} is a bare network; assumed: {colours} photos of {height} × {width}, values from {low:g} to {high:g}, "
        f"{', '.join(typed) or 'no normalisation'}, {_describe_classes(subject)} (--size, --bounds, --mean, --std and "
        "--classes change it)"
    )
    return subject


def _adapt_to_table(net: nn.Module, name: str, settings: dict[str, Any], source: Path) -> Subject:
    for option in settings:
        if option != "classes":
            raise ChoiceError(f"--{option} is for images, and this is a table: omit it")
    columns = modalities.table.infer_columns(source)
    features, names = sum(column.width for column in columns), [column.name for column in columns]
    device = next((tensor.device for tensor in [*net.parameters(), *net.buffers()]), None)
    try:
        with torch.no_grad():
            scores = net(torch.zeros(2, features, device=device))
        outputs = 1 if scores.ndim == 1 else scores.shape[1]
    except Exception as error:  # whatever the network raises
        raise InputError(
            f"{name} is a bare network, and does not take the {format_count(features, 'feature')} of {source}, "
            f"{quote_names(names, 5)} ({reason(error)}): let the function return ig2.modalities.table.subject(net, columns, "
            f"classes), where columns = ig2.modalities.table.infer_columns({str(source)!r}, leave_out=[...]) leaves out the "
            "columns that are not inputs"
        ) from error
    subject = modalities.table.subject(
        net, columns, settings.get("classes"), name=name, outputs="classes" if outputs > 1 else "numbers", rows=source
    )
    answer = _describe_classes(subject) if outputs > 1 else "one plain number as output"
    print_error(
        f"{name} is a bare network; assumed: {format_count(len(names), 'column')}, {quote_names(names, 5)}, numbers less "
        f"their mean and divided by their standard deviation in {source}, {answer} (to change it, return "
        "ig2.modalities.table.subject(...))"
    )
    return subject


def _adapt_estimator(estimator: Any, name: str, kind: str, settings: dict[str, Any], source: Path) -> Subject:
    if kind != "table":
        raise InputError(f"{name} is an estimator, which takes rows of a table, not this {kind}: name a network with --model")
    for option in settings:
        if option != "classes":
            raise ChoiceError(f"--{option} is for images, and this is a table: omit it")
    subject = modalities.table.estimators.subject(
        estimator, source, settings.get("classes"), name=f"{name} ({type(estimator).__name__})"
    )
    print_error(
        f"{name} is an estimator; assumed: {format_count(len(subject.columns), 'column')}, "
        f"{quote_names([column.name for column in subject.columns], 5)}, references from {source}, "
        f"{_describe_classes(subject)} (to change it, return ig2.modalities.table.estimators.subject(...))"
    )
    return subject


def _describe_classes(subject: Subject) -> str:
    return (
        "classes by their numbers"
        if subject.classes is None
        else f"{len(subject.classes)} classes, {quote_names(subject.classes, 3)}"
    )
