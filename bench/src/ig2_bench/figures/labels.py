"""What the labels of the references do to the attribution of a face's attribute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing
from torch import Tensor

import ig2
from ig2.plots.canvas import LINE_COLOURS, Canvas, remove_frame
from ig2_bench import run
from ig2_bench.figure import Figure, Options, Stored
from ig2_bench.figures.grids import FACE_LOOK
from ig2_bench.figures.panels import (
    caption,
    column_titles,
    describe_scale,
    heat,
    key,
    outline,
    picture,
    row_labels,
    sum_channels,
)
from ig2_bench.figures.sources import find_experiment
from ig2_bench.suites.celeba import LABEL_DISTANCE, NEARNESS, SAME, CelebA
from ig2_bench.suites.studies import WithReferences

SHOWN = {"nearest": "nearest labels", "median": "median", "farthest": "farthest", "same label, nearest": "same label"}
WANTED = "Wearing_Earrings"  # the paper's example


def label_distance(options: Options) -> Stored:
    """The metrics of IG² by how far the references' other labels are, and one face explained with references of each kind."""
    suite = find_experiment("celeba", options, "label-distance")
    assert isinstance(suite, CelebA)
    if not options.quick:
        # a path as long as in the benchmark, in fewer steps
        suite = replace(suite, samples=24 if suite.data is None else 100, references=5, steps=50, step_size=0.02)
        if suite.samples > len(suite.explicands):
            suite = replace(suite, samples=len(suite.explicands))
    watch = options.watch("label-distance")
    table = run(suite, progress=(lambda step: watch(step.done, step.total)) if callable(watch) else False)
    if table.failures:
        raise table.failures[0].error or RuntimeError(table.failures[0].said)
    metrics = [metric for metric in table.metrics if metric != LABEL_DISTANCE]
    rows = [[table.row(name, metric) for metric in (LABEL_DISTANCE, *metrics)] for name in (*NEARNESS, *SAME)]
    explicands = suite.explicands
    assert explicands.truth is not None
    attributes = [name.rpartition(", ")[2] for name in explicands.names]
    chosen = attributes.index(WANTED) if WANTED in attributes else 0
    only = slice(chosen, chosen + 1)
    faces, maps = [explicands.x[chosen]], []
    for name in SHOWN:
        attribution = suite.attribute(only, WithReferences(name, suite.ig2()))
        assert isinstance(attribution, ig2.Attribution) and isinstance(attribution.values, Tensor)
        maps.append(sum_channels(attribution.values)[0])
        faces.append(explicands.references[name].select(only)[0, 0])
    arrays = {
        "mean": np.array([[row.mean for row in each] for each in rows]),
        "error": np.array([[row.se for row in each] for each in rows]),
        "faces": np.stack([face.cpu().permute(1, 2, 0).numpy() for face in faces]),
        "maps": np.stack(maps),
        "mask": explicands.truth[chosen].cpu().numpy(),
    }
    texts: dict[str, Any] = {
        "metrics": [table.heading(metric) for metric in metrics],
        "attribute": attributes[chosen],
        "samples": suite.samples,
        "count": suite.references,
        "steps": suite.steps,
        "size": suite.step_size,
    }
    return Stored(arrays, texts, suite.source())


def draw_label_distance(stored: Stored) -> Drawing:
    arrays, texts = stored.arrays, stored.texts
    figure = Canvas(8.4, 5.6, layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=[1, 1.25])
    above, below = halves
    kinds = {"without the attribute": slice(len(NEARNESS)), "with it": slice(len(NEARNESS), None)}
    for column, (metric, axes) in enumerate(zip(texts["metrics"], above.subplots(1, len(texts["metrics"])), strict=True), 1):
        for (name, kind), colour in zip(kinds.items(), LINE_COLOURS, strict=False):
            at, mean = arrays["mean"][kind, 0], arrays["mean"][kind, column]
            error = 2 * np.nan_to_num(arrays["error"][kind, column])
            axes.errorbar(at, mean, error, color=colour, marker="o", markersize=3, linewidth=1.2, elinewidth=0.8, label=name)
        axes.set_title(metric, fontsize="small")
        axes.set_xlabel("label distance", fontsize="x-small")
        axes.tick_params(labelsize="x-small")
        axes.spines[["top", "right"]].set_visible(False)
        if column == len(texts["metrics"]):
            axes.legend(fontsize="xx-small", frameon=False, loc="upper right", title="references", title_fontsize="xx-small")
    above.suptitle("(a) metrics by the distance of the references' labels", fontsize="small")
    axes = below.subplots(2, 1 + len(SHOWN))
    for each in axes.flat:
        remove_frame(each)
    column_titles(axes, ("explicand", *SHOWN.values()))
    row_labels(axes[:, 1:], ("a reference", "IG²"))
    for column, face in enumerate(arrays["faces"]):
        picture(axes[0, column], face)
    outline(axes[0, 0], arrays["mask"], style="dashed")
    axes[1, 0].set_visible(False)
    for column, values in enumerate(arrays["maps"], start=1):
        heat(axes[1, column], values, FACE_LOOK)
        outline(axes[1, column], arrays["mask"], "white", "dotted")
    below.suptitle(f"(b) one face, [{texts['attribute']}]".replace("_", " "), fontsize="small")
    key(below, axes, FACE_LOOK)
    caption(
        figure,
        f"(a) over {texts['samples']} explicands, bars two standard errors to either side; distance: in how many labels the "
        f"{texts['count']} references differ. IG² takes {texts['steps']} steps of {texts['size']:g}",
        describe_scale(FACE_LOOK),
        stored.source,
    )
    return figure


FACES_REFERENCES = Figure("faces by how far the labels of the references are", label_distance, draw_label_distance, ("celeba",))
