"""Paths and baselines compared: what happens to the output on the way, and what a difference to a baseline shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure as Drawing
from torch import Tensor

import ig2
from ig2.errors import InputError
from ig2.plots.canvas import QUIET, Canvas, remove_frame
from ig2.plots.colours import MapStyle
from ig2.plots.labels import format_number, text_options
from ig2_bench.figure import Array, Figure, Options, Stored
from ig2_bench.figures.illustrations import GRADPATH, GUIDED, STRAIGHT
from ig2_bench.figures.panels import (
    SIGNED,
    caption,
    describe_scale,
    dies,
    heat,
    key,
    picture,
    row_labels,
    sum_channels,
    wrap_text,
)
from ig2_bench.figures.sources import PHOTO_FOLDERS, Pictures, load_digits, load_photos, load_wafers

AT = (0.02, 0.5, 1.0)
PATH_NAMES = ("straight line", "guided path", "GradPath")
LINES = (STRAIGHT, GUIDED, GRADPATH)


def _along(model: ig2.Model, points: Tensor, target: int, watch: Any) -> tuple[Array, Tensor]:
    """The logit of a class and its gradient at points (n, ...)."""
    attribution = ig2.Gradient()(model, points, target, progress=watch)
    assert isinstance(attribution.values, Tensor)
    return attribution.output.cpu().numpy(), attribution.values


# -- the three paths of one photo --------------------------------------------------------------------------------------


def paths(options: Options) -> Stored:
    """Integrated Gradients from black, Guided IG from a sample, IG²: output, and what is attributed where."""
    photos = load_photos(options)
    x, target = photos.x[:1], int(photos.y[0])
    steps, count = (6, 2) if options.quick else (50, 4)
    references = photos.pool[photos.others(target, count, options.seed)]
    methods: dict[str, tuple[ig2.PathMethod, Any]] = {
        "IG": (ig2.PathMethod(ig2.paths.Straight(steps)), 0),
        "Guided IG": (ig2.GuidedIG(steps), references),
        "IG²": (ig2.IG2(steps, step_size=photo_step(options)), references),
    }
    curves, moments, directions = [], [], []
    gradient: Any = None
    for name, (method, baselines) in methods.items():
        attribution = method(
            photos.model, x, target, baselines, paths=True, curves=True, progress=options.watch(f"paths: {name}")
        )
        assert isinstance(attribution.paths, Tensor) and attribution.output_curve is not None
        lines = attribution.paths[0]  # (R, k + 1, ...)
        curves.append(attribution.output_curve[0].mean(dim=0).cpu().numpy()[::-1])
        shown = []
        for alpha in AT:
            vertex = min(round((1 - alpha) * steps), steps - 1)
            _, slope = _along(photos.model, lines[:, vertex], target, options.watch(f"paths: {name} at α = {alpha:g}"))
            direction = lines[:, vertex] - lines[:, vertex + 1]
            shown.append(sum_channels((slope * direction).mean(dim=0)))
            if alpha == 1:
                gradient = sum_channels(slope[0])
                directions.append(sum_channels(direction.mean(dim=0)))
        moments.append(np.stack(shown))
    return Stored(
        {
            "curves": np.stack(curves),
            "moments": np.stack(moments),
            "directions": np.stack(directions),
            "gradient": gradient,
            "photo": x[0].cpu().numpy().transpose(1, 2, 0),
        },
        {"methods": list(methods), "class": photos.classes[target], "count": len(references)},
        photos.source,
    )


def photo_steps(options: Options) -> int:
    """How many steps GradPath takes on photos."""
    return 3 if options.quick else 50


def photo_step(options: Options) -> float:
    """The step of GradPath on photos from 0 to 1: 1.5 at 224 × 224."""
    return 0.5 if options.quick else 1.5


def draw_paths(stored: Stored) -> Drawing:
    arrays, texts = stored.arrays, stored.texts
    look = MapStyle(kind="magnitude", cmap="inferno")
    figure = Canvas(9.2, 5.6, layout="constrained")
    columns = (1.0, 1.45, 1.0, 1.0, 1.0, 1.0, 1.0)
    axes = figure.subplots(3, len(columns), width_ratios=columns)
    titles = (
        "",
        "logit along the path",
        *(f"α = {alpha:g}" for alpha in AT),
        "gradient of the explicand",
        "direction of the path",
    )
    for each, title in zip(axes[0], titles, strict=True):
        each.set_title(wrap_text(title, 16), fontsize="small")
    low, high = arrays["curves"].min(), arrays["curves"].max()
    for row, name in enumerate(texts["methods"]):
        for each in axes[row, [0, 2, 3, 4, 5, 6]]:
            remove_frame(each)
        picture(axes[row, 0], arrays["photo"]) if row == 0 else axes[row, 0].set_axis_off()
        curve = axes[row, 1]
        values = arrays["curves"][row]
        at = np.linspace(0, 1, len(values))
        curve.plot(at, values, color=LINES[row], linewidth=1.6)
        curve.plot(AT, np.interp(AT, at, values), "o", color=LINES[row], markersize=4, clip_on=False)
        curve.set(xlim=(0, 1), ylim=(low - 0.05 * (high - low), high + 0.08 * (high - low)))
        curve.tick_params(labelsize="x-small")
        curve.spines[["top", "right"]].set_visible(False)
        curve.set_ylabel(name, fontsize="medium", fontweight="bold")
        if row == 2:
            curve.set_xlabel("α, 0 at the baseline, 1 at the explicand", fontsize="x-small")
        for column, values in enumerate(arrays["moments"][row], start=2):
            heat(axes[row, column], values, look)
        heat(axes[row, 5], arrays["gradient"], look)
        heat(axes[row, 6], arrays["directions"][row], look)
        for column, colour in ((5, GUIDED), (6, GRADPATH)):
            axes[row, column].spines[:].set(visible=True, color=colour, linewidth=1.2)
        axes[row, 4].set_ylabel("")
    axes[0, 0].set_xlabel(wrap_text(f"[{texts['class']}]", 18), fontsize="small", **text_options())
    key(figure, axes[:, 2:], look)
    caption(
        figure,
        "at each α the gradient times the path's direction there; at α = 1 their two factors in the framed columns. IG starts "
        f"from black, Guided IG from each of {texts['count']} photos of other classes, IG² goes towards the same ones; "
        "their means are shown",
        describe_scale(look),
        stored.source,
    )
    return figure


# -- the difference to three baselines ---------------------------------------------------------------------------------


def baselines(options: Options) -> Stored:
    """Explicand minus baseline, for a photo, a five and a wafer."""
    photos, digits, wafers = load_photos(options), load_digits(options), load_wafers(options)
    count = 2 if options.quick else 8
    photo, digit, wafer = (
        (few if options.quick else many, size)
        for few, many, size in ((3, 50, photo_step(options)), (5, 100, 0.15), (5, 100, 0.1))
    )
    rows: list[tuple[str, Pictures, int, int | None, tuple[int, float]]] = [
        ("photo", photos, 0, None, photo),
        ("digit", digits, digits.first("5"), digits.classes.index("6"), digit),
        ("wafer", wafers, wafers.first("Center"), wafers.classes.index("None"), wafer),
    ]
    arrays: dict[str, Array] = {}
    texts: dict[str, Any] = {"names": [], "against": []}
    for name, pictures, which, only, settings in rows:
        x, target = pictures.x[which : which + 1], int(pictures.y[which])
        references = pictures.pool[pictures.others(target, count, options.seed, only)]
        attribution = ig2.GradCFE(*settings)(
            pictures.model, x, target, references, progress=options.watch(f"baselines: {name}")
        )
        assert isinstance(attribution.gradcfe, Tensor)
        differences = (x, (x - references).mean(dim=0, keepdim=True), attribution.gradcfe.to(x))
        # of a wafer the channel of failing dies, for all three always sum to one; of a photo the size, for its GradCF
        # differs in colours more than in brightness
        shown = [part[0, -1:] if name == "wafer" else part[0].abs() if name == "photo" else part[0] for part in differences]
        maps = [sum_channels(part) for part in shown]
        arrays[f"{name} maps"] = np.stack(maps)
        arrays[name] = x[0].argmax(dim=0).cpu().numpy() if name == "wafer" else x[0].cpu().numpy()
        texts["names"].append(pictures.classes[target])
        texts["against"].append("others" if only is None else pictures.classes[only])
    source = f"photo: {photos.source}; digit: {digits.source}; wafer: {wafers.source}"
    return Stored(arrays, {**texts, "count": count}, source)


def draw_baselines(stored: Stored) -> Drawing:
    figure = Canvas(5.6, 4.9, layout="compressed")
    axes = figure.subplots(3, 4)
    for each in axes.flat:
        remove_frame(each)
    for each, title in zip(axes[0], ("explicand", "− black", "− samples of another class", "− GradCF"), strict=True):
        each.set_title(wrap_text(title, 15), fontsize="small")
    labels = []
    for row, kind in enumerate(("photo", "digit", "wafer")):
        image = stored.arrays[kind]
        picture(axes[row, 0], dies(image) if kind == "wafer" else image)
        for column, values in enumerate(stored.arrays[f"{kind} maps"], start=1):
            heat(axes[row, column], values, SIGNED)
        labels.append(f"[{stored.texts['names'][row]}] against {stored.texts['against'][row]}")
    row_labels(axes, labels, 15)
    key(figure, axes, SIGNED, ("more in the baseline", "more in the explicand"))
    caption(
        figure,
        f"differences are means over {stored.texts['count']} samples. Of the photo their size is shown, summed over channels; "
        "of the wafer the channel of failing dies",
        "each map has its own scale, which ends at percentile 99 of its values",
        stored.source,
    )
    return figure


# -- saturation --------------------------------------------------------------------------------------------------------

ENOUGH = 0.1  # how far the softmax falls on a path that can be brought to one scale with others


def saturation(options: Options) -> Stored:
    """The softmax of the explained class, and how far the gradient points along the path, over many samples."""
    wanted = 2 if options.quick else 100
    # photos of a folder are many, and the network is right about three of four
    sets = {
        "photos": (
            load_photos(options, max(24, 3 * wanted // 2) if options.data is not None else 24),
            photo_step(options),
            None,
        ),
        "digits": (load_digits(options), 0.15, None),
        "wafers": (load_wafers(options), 0.1, "None"),
    }
    arrays: dict[str, Array] = {}
    texts: dict[str, Any] = {"kinds": list(sets)}
    for kind, (pictures, size, normal) in sets.items():
        usual, steps = (50, 20) if kind == "photos" else (100, 50)
        size *= usual / steps  # a path as long as in the other figures, in fewer steps
        steps = 4 if options.quick else steps
        only = None if normal is None else pictures.classes.index(normal)
        indices = [i for i in range(len(pictures.x)) if only is None or int(pictures.y[i]) != only]
        outputs: list[Array] = []
        angles: list[Array] = []
        watch = options.watch(f"saturation: {kind}")
        fine: list[bool] = []
        for i in [i for i in indices if i < pictures.correct] or indices:
            curves = _curves(pictures, i, only, steps, size, options.seed + i)
            outputs.append(np.stack([output for output, _ in curves]))
            angles.append(np.stack([angle for _, angle in curves]))
            # of a network that is hardly trained, at least the layout can be seen
            fine.append(options.quick or bool((outputs[-1][:, 0] - outputs[-1][:, -1] > ENOUGH).all()))
            if callable(watch):
                watch(sum(fine), wanted)
            if sum(fine) == wanted:
                break
        output, angle = np.stack(outputs)[fine], np.stack(angles)[fine]  # (n, 3, k + 1), (n, 3, k)
        if not len(output):
            raise InputError(f"{pictures.source}: the softmax of no sample falls by {ENOUGH} on all three paths")
        fall = output[:, :, :1] - output[:, :, -1:]
        arrays[f"{kind} output"] = (output - output[:, :, -1:]) / np.where(np.abs(fall) > 1e-9, fall, 1)
        arrays[f"{kind} angle"] = angle
        texts[kind] = {"used": len(output), "of": len(fine)}
    source = "; ".join(f"{kind}: {pictures.source}" for kind, (pictures, _, _) in sets.items())
    return Stored(arrays, texts, source)


def _curves(pictures: Pictures, i: int, only: int | None, steps: int, size: float, seed: int) -> list[tuple[Array, Array]]:
    """For each path of one sample the softmax at its vertices, and the cosine of gradient and direction on its segments."""
    x, target = pictures.x[i : i + 1], int(pictures.y[i])
    reference = pictures.pool[pictures.others(target, 1, seed, only)]
    paths = (ig2.paths.Straight(steps), ig2.paths.Guided(steps), ig2.paths.GradPath(steps, size))
    curves = []
    for path in paths:
        attribution = ig2.PathMethod(path, rule=None)(pictures.model, x, target, reference, paths=True)
        assert isinstance(attribution.paths, Tensor)
        points = attribution.paths[0, 0]
        scores = ig2.scores(pictures.model, points).softmax(dim=1)[:, target].cpu().double().numpy()
        _, slope = _along(pictures.model, points[:-1], target, False)
        move = (points[:-1] - points[1:]).flatten(1).to(slope)
        slope = slope.flatten(1)
        lengths = slope.norm(dim=1) * move.norm(dim=1)
        cosine = (slope * move).sum(dim=1) / torch.where(lengths > 0, lengths, 1.0)
        curves.append((scores, cosine.cpu().double().numpy()))
    return curves


def draw_saturation(stored: Stored) -> Drawing:
    figure = Canvas(8.4, 4.6, layout="constrained")
    kinds = stored.texts["kinds"]
    axes = figure.subplots(2, len(kinds), sharex=True, sharey="row")
    for column, kind in enumerate(kinds):
        used = stored.texts[kind]["used"]
        axes[0, column].set_title(f"{kind}, {used} {'sample' if used == 1 else 'samples'}", fontsize="small")
        for row, what in enumerate(("output", "angle")):
            values = stored.arrays[f"{kind} {what}"]
            count = values.shape[2]
            # at a segment's end nearer the explicand the last vertex has none
            at = np.linspace(1, 0, count) if what == "output" else 1 - np.arange(count) / count
            for line, (name, colour) in enumerate(zip(PATH_NAMES, LINES, strict=True)):
                mean = values[:, line].mean(axis=0)
                error = values[:, line].std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0 * mean
                axes[row, column].plot(at, mean, color=colour, linewidth=1.6, label=name)
                axes[row, column].fill_between(at, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.18, linewidth=0)
            axes[row, column].spines[["top", "right"]].set_visible(False)
            axes[row, column].tick_params(labelsize="x-small")
        axes[1, column].set_xticks([0, 0.25, 0.5, 0.75, 1], ["0\nbaseline", "0.25", "0.5", "0.75", "1\nexplicand"])
        axes[1, column].set_xlim(0, 1)
        axes[1, column].axhline(0, color=QUIET, linewidth=0.6)
    axes[0, 0].set_ylabel("output, brought to 0 … 1", fontsize="small")
    axes[1, 0].set_ylabel("cosine of gradient\nand path", fontsize="small")
    axes[0, 0].legend(fontsize="x-small", frameon=False)
    skipped = [
        f"{stored.texts[kind]['of'] - stored.texts[kind]['used']} of {stored.texts[kind]['of']} {kind}"
        for kind in kinds
        if stored.texts[kind]["used"] < stored.texts[kind]["of"]
    ]
    caption(
        figure,
        "above the softmax of the explained class, 1 at the explicand and 0 at the baseline; below, how far the gradient of "
        "its logit points along the path. Bands are two standard errors to either side",
        "the straight line and the guided path end at a sample of another class, GradPath at GradCF for that sample",
        f"skipped: {', '.join(skipped)}, whose softmax falls by less than {format_number(ENOUGH)} on some path"
        if skipped
        else "",
        stored.source,
    )
    return figure


PATHS = Figure("a photo on three paths: output, and snapshots along α", paths, draw_paths, PHOTO_FOLDERS)
BASELINES = Figure(
    "the difference to three baselines: a photo, a digit, a wafer",
    baselines,
    draw_baselines,
    (*PHOTO_FOLDERS, "mnist", "wafer"),
)
SATURATION = Figure(
    "output and gradient along three paths, over 100 samples of three data sets",
    saturation,
    draw_saturation,
    (*PHOTO_FOLDERS, "mnist", "wafer"),
)
