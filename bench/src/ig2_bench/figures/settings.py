"""What the settings of IG² do: steps and their size, norm, layer of the representation, distance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing
from torch import Tensor

import ig2
from ig2.paths import L2, SparseL1
from ig2.paths.distances import cosine, euclidean, manhattan
from ig2.plots.canvas import LINE_COLOURS, Canvas, remove_frame
from ig2.plots.labels import text_options
from ig2_bench.figure import Array, Figure, Options, Stored
from ig2_bench.figures.grids import PATTERNS, PHOTO_LOOK, choose_wafers, draw_photo_rows, draw_wafer_rows
from ig2_bench.figures.panels import (
    caption,
    column_titles,
    describe_scale,
    dies,
    heat,
    key,
    outline,
    picture,
    row_labels,
    sheet,
    sum_channels,
    to_bytes,
    wrap_text,
)
from ig2_bench.figures.paths import photo_step, photo_steps
from ig2_bench.figures.sources import PHOTO_FOLDERS, Pictures, load_photos
from ig2_bench.suites.studies import PERCENTILES


def _maps(
    method: ig2.IG2, pictures: Pictures, x: Tensor, target: Tensor, references: Tensor, options: Options, what: str
) -> Array:
    attribution = method(pictures.model, x, target, references, seed=options.seed, progress=options.watch(what))
    assert isinstance(attribution.values, Tensor)
    return sum_channels(attribution.values)


def _choose_photos(options: Options, count: int, references: int) -> tuple[Pictures, Tensor, Tensor, Tensor, dict[str, object]]:
    """Photos, the classes explained, references of each; and what there is to store of them."""
    photos = load_photos(options)
    x, target = photos.x[:count], photos.y[:count]
    samples = photos.references(target, references, options.seed)
    stored = {"photos": to_bytes(x), "names": [photos.classes[int(label)] for label in target], "count": samples.shape[1]}
    return photos, x, target, samples, stored


# -- steps -------------------------------------------------------------------------------------------------------------


def steps(options: Options) -> Stored:
    """The distance to the reference by step size, and the attributions by step size and number of steps."""
    photos, x, target, samples, stored = _choose_photos(options, 1, 1)
    sizes = (0.5, 1.5) if options.quick else (0.375, 1.5, 6.0)
    numbers = (2, 4) if options.quick else (10, 25, 50, 100)
    maps, curves = [], []
    for size in sizes:
        row = []
        for count in numbers:
            method = ig2.IG2(count, size)
            watch = options.watch(f"steps: {count} of {size:g}")
            attribution = method(photos.model, x, target, samples, curves=count == numbers[-1], progress=watch)
            assert isinstance(attribution.values, Tensor)
            row.append(sum_channels(attribution.values)[0])
        assert attribution.distance_curve is not None
        curves.append(attribution.distance_curve[0, 0].cpu().numpy())
        maps.append(np.stack(row))
    arrays = {"photos": np.asarray(stored["photos"]), "maps": np.stack(maps), "curves": np.stack(curves)}
    texts = {"names": stored["names"], "sizes": list(sizes), "numbers": list(numbers)}
    return Stored(arrays, texts, photos.source)


def draw_steps(stored: Stored) -> Drawing:
    arrays, texts = stored.arrays, stored.texts
    sizes, numbers = texts["sizes"], texts["numbers"]
    figure = Canvas(8.6, 4.4, layout="constrained")
    halves: Any = figure.subfigures(1, 2, width_ratios=[1, 1.45])
    left, right = halves
    curve, photo = left.subplots(2, 1, height_ratios=[1.4, 1])
    for line, (values, size) in enumerate(zip(arrays["curves"], sizes, strict=True)):
        curve.plot(values / values[0], color=LINE_COLOURS[line], linewidth=1.5, label=f"step size {size:g}")
    curve.set_xlabel("step", fontsize="small")
    curve.set_ylabel("distance, 1 at the explicand", fontsize="small")
    curve.set_ylim(bottom=0)
    curve.margins(x=0)
    curve.tick_params(labelsize="x-small")
    curve.spines[["top", "right"]].set_visible(False)
    curve.legend(fontsize="x-small", frameon=False)
    curve.set_title("(a) squared distance to the reference", fontsize="small")
    picture(photo, arrays["photos"][0] / 255)
    remove_frame(photo)
    photo.set_xlabel(wrap_text(f"[{texts['names'][0]}]", 24), fontsize="small", **text_options())
    axes = right.subplots(len(sizes), len(numbers))
    for each in axes.flat:
        remove_frame(each)
    column_titles(axes, [f"{count} steps" for count in numbers])
    row_labels(axes, [f"size {size:g}" for size in sizes])
    for row, each in enumerate(arrays["maps"]):
        for column, values in enumerate(each):
            heat(axes[row, column], values, PHOTO_LOOK)
    right.suptitle("(b) IG² by the size and number of steps", fontsize="small")
    key(right, axes, PHOTO_LOOK)
    caption(
        figure,
        "a single reference of another class. Step sizes are in the space from 0 to 1",
        describe_scale(PHOTO_LOOK),
        stored.source,
    )
    return figure


# -- norms -------------------------------------------------------------------------------------------------------------


def norms(options: Options) -> Stored:
    """ℓ2 steps against sparse ℓ1 steps of the same Euclidean length, on a wafer of each pattern."""
    wafers, x, target, references, arrays = choose_wafers(options, PATTERNS)
    count, length = 4 if options.quick else 100, 0.1
    methods = {"ℓ2": ig2.IG2(count, length, norm=L2())}
    for percentile in PERCENTILES:
        # a step of ℓ1 length s on n features has the Euclidean length s / √n
        moved = x[0].numel() * (1 - percentile / 100)
        methods[f"ℓ1, {percentile:g} %"] = ig2.IG2(count, length * math.sqrt(moved), norm=SparseL1(percentile))
    maps = [_maps(method, wafers, x, target, references, options, f"norms: {name}") for name, method in methods.items()]
    texts = {"methods": list(methods), "count": references.shape[1], "steps": count, "size": length}
    return Stored({**arrays, "maps": np.stack(maps)}, texts, wafers.source)


def draw_norms(stored: Stored) -> Drawing:
    texts = stored.texts
    return draw_wafer_rows(
        stored,
        "ℓ1 steps move only the features whose gradient is above that percentile, all by the same amount, and are as long as "
        f"the {texts['steps']} ℓ2 steps of {texts['size']:g}. References are {texts['count']} maps of class [None]",
    )


# -- distances ---------------------------------------------------------------------------------------------------------


def distances(options: Options) -> Stored:
    """Three measures of the distance between representations."""
    photos, x, target, samples, stored = _choose_photos(options, 1 if options.quick else 3, 1 if options.quick else 4)
    count, length = photo_steps(options), photo_step(options)
    named = {"Euclidean": euclidean, "cosine": cosine, "ℓ1": manhattan}
    maps = [
        _maps(ig2.IG2(count, length, distance=distance), photos, x, target, samples, options, f"distances: {name}")
        for name, distance in named.items()
    ]
    texts = {"methods": list(named), "names": stored["names"], "count": stored["count"]}
    return Stored({"photos": np.asarray(stored["photos"]), "maps": np.stack(maps)}, texts, photos.source)


def draw_distances(stored: Stored) -> Drawing:
    sentence = f"IG² by the distance that GradPath descends; {stored.texts['count']} references of other classes"
    return draw_photo_rows(stored, 1.2, sentence)


# -- layers ------------------------------------------------------------------------------------------------------------

LAYER_NAMES = ("conv1", "conv2", "conv3", "fc1", "fc2")
LAYER_PATTERNS = ("Center", "Edge-Loc", "Scratch")


def layers(options: Options) -> Stored:
    """GradCFE and IG² of wafers, by the layer in which GradPath measures distances."""
    wafers, x, target, references, arrays = choose_wafers(options, LAYER_PATTERNS)
    effects, values = [], []
    for layer in LAYER_NAMES:
        model = ig2.wrap(wafers.model.net, representation=layer, bounds=(0, 1))
        method = ig2.IG2(4 if options.quick else 100, 0.1)
        attribution = method(model, x, target, references, progress=options.watch(f"layers: {layer}"))
        assert isinstance(attribution.values, Tensor) and isinstance(attribution.gradcfe, Tensor)
        effects.append(attribution.gradcfe[:, 2].cpu().numpy())
        values.append(sum_channels(attribution.values))
    arrays |= {"gradcfe": np.stack(effects), "values": np.stack(values)}
    return Stored(arrays, {"count": references.shape[1], "steps": method.path.segments}, wafers.source)


def draw_layers(stored: Stored) -> Drawing:
    arrays = stored.arrays
    figure, axes = sheet(2 * len(LAYER_PATTERNS), 1 + len(LAYER_NAMES), (1, 1), 1.05, 0.6)
    column_titles(axes, ("", *(f"{layer}{' (the paper’s)' if layer == 'fc1' else ''}" for layer in LAYER_NAMES)), width=10)
    for block, name in enumerate(LAYER_PATTERNS):
        picture(axes[2 * block, 0], dies(arrays["codes"][block]))
        outline(axes[2 * block, 0], arrays["masks"][block])
        axes[2 * block, 0].set_title(f"[{name}]", fontsize="small")
        axes[2 * block + 1, 0].set_axis_off()
        for row, what in enumerate(("gradcfe", "values")):
            axes[2 * block + row, 1].set_ylabel(("GradCFE", "IG²")[row], fontsize="small")
            for column in range(len(LAYER_NAMES)):
                heat(axes[2 * block + row, 1 + column], arrays[what][column, block])
    key(figure, axes)
    caption(
        figure,
        f"GradPath descends the distance in the output of the layer named. GradCFE is shown for the channel of failing dies. "
        f"{stored.texts['count']} references of class [None], steps of 0.1, {stored.texts['steps']} of them",
        describe_scale(),
        stored.source,
    )
    return figure


STEPS = Figure("loss curves and attributions by size and number of steps", steps, draw_steps, PHOTO_FOLDERS)
NORMS = Figure("wafers by ℓ2 steps and by sparse ℓ1 steps", norms, draw_norms, ("wafer",))
LAYERS = Figure("wafers by the layer of the representation", layers, draw_layers, ("wafer",))
DISTANCES = Figure("Euclidean, cosine and ℓ1 distances", distances, draw_distances, PHOTO_FOLDERS)
