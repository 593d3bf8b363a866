"""The part of an attribution to draw: its first explicands and one of its tensors, checked, as maps, images or rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ig2._utils.checks import check_choice, check_count
from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.inputs import Structured
from ig2.plots.labels import clean_text, format_number
from ig2.verdict import find_rows, judge

Array = NDArray[np.float64]
# A spread below this share of its value is not shown: it could not be seen, and would be read as a finding.
TINY = 0.01
FEW_CHANNELS = 12  # of a signal; an ECG has so many leads
InputKey = int | str | None
Signs = Literal["signed", "magnitude"]
Titles = Sequence[str] | None


def check_attribution(result: object, name: str = "result") -> Attribution:
    if not isinstance(result, Attribution):
        raise InputError(f"{name} must be an Attribution, as a method returns it; got {describe(result)}")
    if not len(result):
        raise InputError(f"{name} is an empty Attribution: there is nothing to draw")
    return result


def check_index(index: object, total: int, name: str) -> None:
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < total:
        raise InputError(f"{name} must be a number from 0 to {total - 1}, got {describe(index)}")


def clean_labels(labels: Sequence[str], total: int, name: str, longest: int | None = None) -> list[str]:
    """Return a cleaned label for each of `total` items."""
    if isinstance(labels, str) or len(labels) != total:
        raise InputError(f"{name} are {describe(labels)}: expected a list of {total}, one for each")
    return [clean_text(label, longest) for label in labels]


def take_first(result: Attribution, count: int, titles: Titles) -> tuple[Attribution, list[str], str]:
    """Return the explicands to show, a title for each (by default name, class and output), and a note if there are others."""
    first = check_attribution(result)[: check_count(count)]
    note = "" if len(first) == len(result) else f"the first {len(first)} of {len(result)} inputs"
    if titles is None:
        # the words of a text are shown anyway
        known = first.names if first.names is not None and first.names.view != "words" else None
        heads = [""] * len(first) if known is None else [f"{clean_text(name, 40)}: " for name in known.samples]
        scored = zip(heads, first.explained, first.output.tolist(), strict=True)
        return first, [f"{head}{explained}, output {format_number(output)}" for head, explained, output in scored], note
    return first, clean_labels(titles, len(result), "titles")[: len(first)], note


def method_name(result: Attribution) -> str:
    return clean_text(result.settings.get("method", "attribution"), 40)


def is_tiny(spread: Array, value: Array) -> NDArray[np.bool_]:
    """Return where a spread is too small, relative to its value, to be shown."""
    return spread <= TINY * np.abs(value)


def lacks_signs(result: Attribution) -> bool:
    """Return whether the signs of any explicand's map are unreliable."""
    return bool(find_rows(judge(result), "signless"))


def choose_kind(result: Attribution, kind: Signs | None) -> tuple[Signs, str]:
    """Return whether numbers are shown with signs, by default if the signs are reliable, and the reason if not."""
    if kind is not None:
        check_choice(kind, Signs, "kind")
        return kind, ""
    return ("magnitude", "strength without signs, since trust is low") if lacks_signs(result) else ("signed", "")


def split_inputs(value: Structured) -> dict[Any, Tensor]:
    """Return the tensors by position or name; a single one by None."""
    if isinstance(value, Tensor):
        return {None: value}
    return dict(value) if isinstance(value, dict) else dict(enumerate(value))


def select_tensor(value: Structured, key: InputKey) -> Tensor:
    """Return the tensor to draw, in float64: the only one, or the one named if the network takes several. Raises on NaN."""
    tensors = split_inputs(value)
    if isinstance(value, Tensor) and key is not None:
        raise InputError(f"input_key={key!r} chooses among several inputs, and this attribution is of a single tensor")
    if key is None and len(tensors) == 1:
        key = next(iter(tensors))
    if key not in tensors:
        keys = ", ".join(map(repr, tensors))
        raise InputError(f"this attribution is of several inputs, and a figure shows one: input_key={key!r} is none of {keys}")
    tensor = tensors[key].detach().to(device="cpu", dtype=torch.float64)
    if not torch.isfinite(tensor).all():
        row = int((~torch.isfinite(tensor)).nonzero()[0][0])
        raise InputError(f"NaN or infinite values (first in row {row}) cannot be drawn")
    return tensor


def check_no_embeddings(value: Structured, key: InputKey) -> None:
    """Check that samples are not embeddings, which have the axes of grey images and would be drawn as noise."""
    keys = list(split_inputs(value)) if key is None else [key]
    if len(keys) == 1 and "embed" in str(keys[0]):
        raise InputError(
            "the embeddings of words make no image: ig2.plots.text(attribution, batch.units, scores=...) shows words"
        )


def is_image(values: Tensor) -> bool:
    """Return whether samples have the axes of images: (H, W), (C, H, W) or (H, W, C)."""
    return values.ndim in (3, 4)


def is_series(values: Tensor) -> bool:
    """Return whether samples of two axes are signals (C, T) or (T, C), not images: few channels, and more time steps."""
    short, long = sorted(values.shape[1:]) if values.ndim == 3 else (1, 1)
    return short <= FEW_CHANNELS and long >= 2 * short


def _move_channels_first(images: Tensor) -> Tensor:
    """Convert (N, H, W), (N, C, H, W) or (N, H, W, C) to (N, C, H, W)."""
    if not is_image(images):
        raise InputError(
            f"samples {tuple(images.shape[1:])} are no images: expected (H, W), (C, H, W) or (H, W, C). "
            "ig2.plots.bars and ig2.plots.text show other data"
        )
    if images.ndim == 3:
        return images[:, None]
    return images.movedim(-1, 1) if images.shape[-1] <= 4 < images.shape[1] else images


def to_maps(values: Tensor) -> Array:
    """Return attributions of images with their channels summed, (N, H, W)."""
    maps: Array = _move_channels_first(values).sum(dim=1).numpy()
    return maps


def to_images(samples: Tensor, bounds: tuple[float, float] | None, like: Tensor | None = None) -> Array:
    """Convert images for display: (N, H, W) in grey or (N, H, W, 3), in [0, 1].

    The range is that of `like`, if given, so that an image and its counterfactual are shown in the same way.
    """
    low, high = bounds or _guess_bounds(samples if like is None else like)
    scaled = ((_move_channels_first(samples) - low) / (high - low)).clamp(0, 1)
    # a fourth channel is rarely opacity in what a network is given: depth or infrared more often
    images: Array = (scaled[:, :3].movedim(1, -1) if scaled.shape[1] in (3, 4) else scaled.mean(dim=1)).numpy()
    return images


def _guess_bounds(samples: Tensor) -> tuple[float, float]:
    low, high = float(samples.min()), float(samples.max())
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    if low >= 0 and 128 < high <= 255:
        return 0.0, 255.0
    return low, high if high > low else low + 1.0


def to_rows(values: Tensor) -> Array:
    """Return one attribution for each position: axes beyond the first two, such as an embedding, are summed."""
    rows: Array = (values.flatten(2).sum(dim=2) if values.ndim > 2 else values).numpy()
    return rows


def check_scores(scores: Sequence[Any], total: int) -> list[Array]:
    """Return a row of numbers for each explicand, to show instead of the attribution's values."""
    if len(scores) != total:
        raise InputError(f"scores are of {len(scores)} explicands, the attribution is of {total}")
    rows = [np.asarray(row, dtype=np.float64) for row in scores]
    for i, row in enumerate(rows):
        if row.ndim != 1 or not np.isfinite(row).all():
            raise InputError(f"scores[{i}] is {describe(row)}: expected finite numbers, one for each feature")
    return rows
