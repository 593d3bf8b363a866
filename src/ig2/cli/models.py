"""The model of `ig2 explain`, and what was typed of the data of a network that comes without them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ig2._utils.suggestions import ChoiceError
from ig2.cli.options import ModelOptions
from ig2.cli.streams import print_error
from ig2.modalities.base import Subject
from ig2.modalities.loading import load_subject
from ig2.modalities.modality import Modality
from ig2.modalities.text.modality import read_lines


def load_model(options: ModelOptions, modality: Modality, sources: Sequence[Path]) -> Subject:
    """Load the model; print what is assumed of a bare network.

    Args:
        options: the model, and what was typed of its data.
        modality: the kind of the inputs.
        sources: files like those that a bare network takes; the first one counts.

    Raises:
        ChoiceError: if something was typed of the data of a model that brings its own.
        InputError: if there is no such model, or the network does not take the data.
    """
    settings = _parse_settings(options)
    for name in settings:
        if name not in modality.settings:
            raise ChoiceError(f"--{name} is not for {modality.nouns}: omit it")
    known = ", ".join(f"--{name}" for name in modality.settings)

    def print_assumed(text: str) -> None:
        print_error(f"{text} ({known} can change it; for anything else, return {modality.maker}(...))")

    source = next(iter(sources), None)
    return load_subject(options.model, modality, trust=options.trust, settings=settings, source=source, assumed=print_assumed)


def _parse_settings(options: ModelOptions) -> dict[str, Any]:
    """Return what was typed of the data, by the names of the options."""
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
