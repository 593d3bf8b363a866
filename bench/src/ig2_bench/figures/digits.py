"""Digits: ones at several places against sevens, and fives against threes, sixes and nines."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure as Drawing
from torch import Tensor

import ig2
from ig2_bench.figure import Array, Figure, Options, Stored
from ig2_bench.figures.panels import caption, describe_scale, heat, key, outline, picture, row_labels, sheet, sum_channels
from ig2_bench.figures.sources import Pictures, load_digits

SHIFTS = (-4, -2, 0, 2, 4)
METHODS = ("GradCFE", "IG²", "IG", "Expected IG")
INK = 0.3  # a pixel with more belongs to the digit
STEP = 0.15
AREA = 50  # pixels that are painted or wiped out


def _explain(options: Options, digits: Pictures, x: Tensor, target: int, references: Tensor, what: str) -> Array:
    """The maps of the methods, (M, B, H, W)."""
    steps = 10 if options.quick else 100
    ours = ig2.IG2(steps, STEP)(digits.model, x, target, references, seed=options.seed, progress=options.watch(what))
    zero = ig2.IntegratedGradients(steps // 2)(digits.model, x, target)
    expected = ig2.ExpectedIG(steps // 2)(digits.model, x, target, references, progress=options.watch(what))
    assert ours.gradcfe is not None
    return np.stack([sum_channels(_tensor(values)) for values in (ours.gradcfe, ours.values, zero.values, expected.values)])


def _tensor(values: Any) -> Tensor:
    assert isinstance(values, Tensor)
    return values


def _predict(digits: Pictures, x: Tensor) -> list[str]:
    """The predicted class of each, with its softmax."""
    likely = ig2.scores(digits.model, x).softmax(dim=1).cpu()
    return [f"{digits.classes[int(row.argmax())]} ({float(row.max()):.2f})" for row in likely]


# -- shifted ones ------------------------------------------------------------------------------------------------------


def shifted(options: Options) -> Stored:
    """A one moved sideways, against sevens: does what is marked move with it?"""
    digits = load_digits(options)
    one, seven = digits.x[digits.first("1")], digits.classes.index("7")
    x = torch.stack([_move(one, shift) for shift in SHIFTS])
    boxes = torch.stack([_top_left(image[0]) for image in x])
    filled = torch.where(boxes[:, None], 1.0, x)
    references = digits.pool[digits.others(1, 2 if options.quick else 10, options.seed, only=seven)]
    maps = _explain(options, digits, x, 1, references, "mnist-shifted")
    arrays = {"digits": x[:, 0].cpu().numpy(), "boxes": boxes.cpu().numpy(), "maps": maps, "filled": filled[:, 0].cpu().numpy()}
    return Stored(
        arrays,
        {"said": _predict(digits, x), "filled": _predict(digits, filled), "count": len(references), "quick": options.quick},
        digits.source,
    )


def _move(image: Tensor, right: int) -> Tensor:
    """A picture moved to the right, with nothing coming in."""
    moved = torch.zeros_like(image)
    width = image.shape[-1]
    moved[..., max(right, 0) : width + min(right, 0)] = image[..., max(-right, 0) : width - max(right, 0)]
    return moved


def _top_left(image: Tensor) -> Tensor:
    """Where a one lacks the bar of a seven: left of its top, three rows high."""
    ink = image > INK
    top = int(ink.any(dim=1).nonzero()[0])
    rows = slice(top, top + 3)
    left = int(ink[rows].any(dim=0).nonzero()[0])
    box = torch.zeros_like(ink)
    box[rows, max(left - 8, 0) : left + 1] = True
    return box


def draw_shifted(stored: Stored) -> Drawing:
    arrays = stored.arrays
    figure, axes = sheet(2 + len(METHODS), len(SHIFTS), (1, 1), 1.05, 1.0)
    rows = ("explicand", *METHODS, "box painted")
    row_labels(axes, rows, 12)
    for column, shift in enumerate(SHIFTS):
        picture(axes[0, column], arrays["digits"][column])
        move = "where it was" if not shift else f"{abs(shift)} px to the {'left' if shift < 0 else 'right'}"
        axes[0, column].set_title(f"{move}\n{stored.texts['said'][column]}", fontsize="x-small")
        for row in range(len(METHODS)):
            heat(axes[1 + row, column], arrays["maps"][row, column])
        picture(axes[-1, column], arrays["filled"][column])
        axes[-1, column].set_xlabel(stored.texts["filled"][column], fontsize="x-small")
        for each in axes[:, column]:
            outline(each, arrays["boxes"][column])
    key(figure, axes)
    caption(
        figure,
        f"a one against {stored.texts['count']} sevens. The box is where a seven has its bar; above and below, the "
        "predicted class of the digit and of the digit with the box painted, with its softmax. Red and blue in "
        "GradCFE: more, less ink than in GradCF",
        describe_scale(),
        _settings(stored),
        stored.source,
    )
    return figure


def _settings(stored: Stored) -> str:
    return f"steps of {STEP:g}, {10 if stored.texts['quick'] else 100} of them"


# -- fives -------------------------------------------------------------------------------------------------------------

AGAINST = ("3", "6", "9")
# which method's area, and whether it is painted where there is no ink, or wiped out where there is
CHANGES = (("GradCFE", True), ("IG²", True), ("Expected IG", True), ("Expected IG", False))


def fives(options: Options) -> Stored:
    """Fives against three other digits; and what becomes of them when what is marked is painted or wiped out."""
    digits = load_digits(options)
    digits.first("5")  # raises where there is none
    numbers = (digits.y == 5).nonzero()[:, 0][: 2 if options.quick else 12]
    x, shown = digits.x[numbers], 2 if options.quick else 3
    maps, areas, changed, said, became = [], [], [], [], []
    for name in AGAINST:
        label = digits.classes.index(name)
        references = digits.pool[digits.others(5, 2 if options.quick else 10, options.seed, only=label)]
        explained = _explain(options, digits, x, 5, references, f"mnist-fives: against {name}")
        # GradCF has more ink where GradCFE is negative
        marks = {"GradCFE": -explained[0], "IG²": explained[1], "Expected IG": explained[3]}
        ink = x[:, 0].cpu().numpy() > INK
        chosen = [_find_strongest(marks[method], ~ink if paints else ink) for method, paints in CHANGES]
        forms = [
            torch.where(torch.from_numpy(area)[:, None], float(paints), x.cpu())
            for area, (_, paints) in zip(chosen, CHANGES, strict=True)
        ]
        maps.append(explained[:, :shown])
        areas.append(np.stack(chosen)[:, :shown])
        changed.append(np.stack([form[:shown, 0].numpy() for form in forms]))
        said.append([_predict(digits, form[:shown]) for form in forms])
        became.append([int((ig2.scores(digits.model, form).argmax(dim=1) == label).sum()) for form in forms])
    arrays = {
        "digits": x[:shown, 0].cpu().numpy(),
        "maps": np.stack(maps),
        "areas": np.stack(areas),
        "changed": np.stack(changed),
    }
    texts = {"said": said, "became": became, "of": len(x), "count": len(references), "quick": options.quick}
    return Stored(arrays, texts, digits.source)


def _find_strongest(values: Array, inside: Array) -> Array:
    """The pixels inside an area that have the highest values, of each map (N, H, W)."""
    scores = np.where(inside, values, -np.inf)
    least = np.sort(scores.reshape(len(scores), -1), axis=1)[:, -AREA]
    strongest: Array = (scores >= least[:, None, None]) & inside
    return strongest


def draw_fives(stored: Stored) -> Drawing:
    arrays, texts = stored.arrays, stored.texts
    many = len(arrays["digits"])
    figure, axes = sheet(1 + len(METHODS) + len(CHANGES), many * len(AGAINST), (1, 1), 0.85, 0.9)
    changes = [f"{method} area {'painted' if paints else 'wiped'}" for method, paints in CHANGES]
    row_labels(axes, ("explicand", *METHODS, *changes), 13, "x-small")
    for block, name in enumerate(AGAINST):
        axes[0, block * many + many // 2].set_title(f"against {name}", fontsize="small")
        for i in range(many):
            column = axes[:, block * many + i]
            picture(column[0], arrays["digits"][i])
            for row in range(len(METHODS)):
                heat(column[1 + row], arrays["maps"][block, row, i])
            for row in range(len(CHANGES)):
                each = column[1 + len(METHODS) + row]
                picture(each, arrays["changed"][block, row, i])
                outline(each, arrays["areas"][block, row, i])
                each.set_xlabel(texts["said"][block][row][i], fontsize="x-small", labelpad=2)
    key(figure, axes)
    counted = [f"{change}: {' / '.join(str(row[i]) for row in texts['became'])}" for i, change in enumerate(changes)]
    caption(
        figure,
        f"fives against {texts['count']} digits of another class. Below, the {AREA} pixels beside its ink painted that a "
        f"method marks most (of GradCFE: where GradCF has most ink), or the {AREA} of its ink wiped out; under each "
        "the predicted class, with its softmax",
        f"of {texts['of']} fives so many become a {' / '.join(AGAINST)}: {'; '.join(counted)}",
        describe_scale(),
        _settings(stored),
        stored.source,
    )
    return figure


MNIST_SHIFTED = Figure("a one at several places, against sevens", shifted, draw_shifted, ("mnist",))
MNIST_FIVES = Figure("fives against threes, sixes and nines, with what is marked painted", fives, draw_fives, ("mnist",))
