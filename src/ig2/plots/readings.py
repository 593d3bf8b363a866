"""What is drawn of an attribution: one of its tensors, checked, as maps, pictures or rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ig2._engine.inputs import Structured
from ig2.attribution import Attribution
from ig2.errors import InputError, describe
from ig2.plots.canvas import number, printable

Array = NDArray[np.float64]
Which = int | str | None


def check_attribution(result: object, name: str = "result") -> Attribution:
    if not isinstance(result, Attribution):
        raise InputError(f"{name} must be an Attribution, what a method returned; got {describe(result)}")
    if not len(result):
        raise InputError(f"{name} is an empty Attribution: there is nothing to draw")
    return result


def check_count(count: object, name: str = "count") -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(f"{name} must be a positive integer, got {describe(count)}")
    return count


def check_index(index: object, total: int, name: str) -> None:
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < total:
        raise InputError(f"{name} must be a number from 0 to {total - 1}, got {describe(index)}")


def chosen(value: Structured, which: Which) -> Tensor:
    """The tensor to draw: the only one, or the one `which` names where the network takes several."""
    if isinstance(value, Tensor):
        if which is not None:
            raise InputError(f"which={which!r} chooses among several inputs, and this attribution is of a single tensor")
        return _finite(value)
    parts: dict[Any, Tensor] = value if isinstance(value, dict) else dict(enumerate(value))
    if which is None and len(parts) == 1:
        which = next(iter(parts))
    if which not in parts:
        names = ", ".join(repr(key) for key in parts)
        raise InputError(f"this attribution is of several inputs, and a figure shows one: which={which!r} is none of {names}")
    return _finite(parts[which])


def check_no_embeddings(values: Structured, which: Which) -> None:
    """Embeddings have the axes of grey images, and would be drawn as noise."""
    if which is None and isinstance(values, dict) and len(values) == 1:
        which = next(iter(values))
    if "embed" in str(which):
        raise InputError(
            "the embeddings of words make no image: ig2.plots.text(attribution, batch.units, scores=...) shows words"
        )


def _finite(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().to(device="cpu", dtype=torch.float64)
    if not torch.isfinite(tensor).all():
        row = int((~torch.isfinite(tensor)).nonzero()[0][0])
        raise InputError(f"NaN or infinite values (first in row {row}) cannot be drawn")
    return tensor


def _channels_first(images: Tensor) -> Tensor:
    """(N, H, W), (N, C, H, W) or (N, H, W, C) as (N, C, H, W)."""
    if images.ndim == 3:
        return images[:, None]
    if images.ndim != 4:
        raise InputError(
            f"samples {tuple(images.shape[1:])} are no images: expected (H, W), (C, H, W) or (H, W, C). "
            "ig2.plots.bars and ig2.plots.text show other data"
        )
    last = images.shape[-1] <= 4 < images.shape[1]
    return images.movedim(-1, 1) if last else images


def maps(images: Tensor) -> Array:
    """Attributions of images with their channels summed, (N, H, W)."""
    found: Array = _channels_first(images).sum(dim=1).numpy()
    return found


def pictures(images: Tensor, bounds: tuple[float, float] | None, like: Tensor | None = None) -> Array:
    """Images as they are shown: (N, H, W) grey or (N, H, W, 3) in colour, in [0, 1].

    `like` is what the range is read from, so that an image and its counterfactual are shown in the same way.
    """
    low, high = bounds or _range(images if like is None else like)
    shown = ((_channels_first(images) - low) / (high - low)).clamp(0, 1)
    # a fourth channel is rarely opacity in what a network is given: depth or infrared more often
    shown = shown[:, :3].movedim(1, -1) if shown.shape[1] in (3, 4) else shown.mean(dim=1)
    found: Array = shown.numpy()
    return found


def _range(images: Tensor) -> tuple[float, float]:
    low, high = float(images.min()), float(images.max())
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    if low >= 0 and 128 < high <= 255:
        return 0.0, 255.0
    return low, high if high > low else low + 1.0


def rows(values: Tensor) -> Array:
    """Attributions as one number for each position: what lies beyond the first two axes, such as an embedding, is summed."""
    found: Array = (values.flatten(2).sum(dim=2) if values.ndim > 2 else values).numpy()
    return found


def given_scores(result: Attribution, scores: Sequence[Any], shown: int) -> list[Array]:
    """Numbers to show instead of the attribution's values, checked: for each explicand a row."""
    if len(scores) != len(result):
        raise InputError(f"scores are of {len(scores)} explicands, the attribution is of {len(result)}")
    found = []
    for i, item in enumerate(scores[:shown]):
        array = np.asarray(item, dtype=np.float64)
        if array.ndim != 1 or not np.isfinite(array).all():
            raise InputError(f"scores[{i}] is {describe(array)}: expected finite numbers, one for each feature")
        found.append(array)
    return found


def titles_of(result: Attribution, titles: Sequence[str] | None, count: int) -> list[str]:
    """A line for each explicand shown: as given, or the class and its output."""
    if titles is None:
        return [
            f"class {int(target)}, output {number(float(output))}"
            for target, output in zip(result.target[:count], result.output[:count], strict=True)
        ]
    if isinstance(titles, str) or len(titles) != len(result):
        raise InputError(f"titles are {describe(titles)}: expected one for each of {len(result)} explicands")
    return [printable(title) for title in titles[:count]]


def method_name(result: Attribution) -> str:
    return printable(result.settings.get("method", "attribution"), 40)
