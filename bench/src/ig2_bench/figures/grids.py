"""Samples × methods: photos, wafer maps and faces, and references one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure as Drawing
from torch import Tensor

import ig2
from ig2.errors import InputError
from ig2.plots.colours import MapStyle
from ig2.plots.labels import text_options
from ig2_bench.figure import Array, Figure, Options, Stored
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
from ig2_bench.figures.sources import PHOTO_FOLDERS, Pictures, load_faces, load_photos, load_wafers, shorten

# photos: a little smoother than pixels, so that small prints can be read
PHOTO_LOOK = MapStyle(kind="positive", cmap="inferno", smooth=1.0)

Maps = dict[str, Array]


def _sum_values(attribution: ig2.Attribution) -> Array:
    assert isinstance(attribution.values, Tensor)
    return sum_channels(attribution.values)


def _explain_by_all(
    options: Options, figure: str, model: ig2.Model, x: Tensor, target: Tensor, references: Tensor, ours: ig2.IG2, groups: int
) -> Maps:
    """The maps of all methods, (B, H, W) each, in the order in which they are shown."""
    steps, coalitions = (4, 10) if options.quick else (50, 1000)
    methods: dict[str, tuple[ig2.Method, Tensor | None]] = {
        "Gradient": (ig2.Gradient(), None),
        "IG": (ig2.IntegratedGradients(steps), None),
        "Guided IG": (ig2.GuidedIG(2 * steps), None),
        "Expected IG": (ig2.ExpectedIG(max(2, steps // 5)), references),
        "DeepSHAP": (ig2.DeepSHAP(), references),
        "KernelSHAP": (ig2.KernelSHAP(ig2.Grid(groups, groups), samples=2 * groups**2 + coalitions), None),
        "IG²": (ours, references),
    }
    maps: Maps = {}
    for name, (method, samples) in methods.items():
        watch = options.watch(f"{figure}: {name}")
        attribution = method(model, x, target, samples, seed=options.seed, progress=watch)
        if method is ours:
            assert isinstance(attribution.gradcfe, Tensor)
            # the last channel of a wafer distinguishes failing dies from others; all three always sum to one
            effect = attribution.gradcfe[:, -1:] if figure == "wafers" else attribution.gradcfe.abs()
            maps["GradCFE"] = sum_channels(effect)
        maps[name] = _sum_values(attribution)
    return maps


# -- photos ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _photo_maps(options: Options) -> tuple[Pictures, Tensor, Maps, int]:
    """The photos of two figures, explained once."""
    photos = load_photos(options)
    x, target = photos.x[: 2 if options.quick else 5], photos.y[: 2 if options.quick else 5]
    references = photos.references(target, 2 if options.quick else 6, options.seed)
    ours = ig2.IG2(photo_steps(options), photo_step(options))
    maps = _explain_by_all(options, "imagenet", photos.model, x, target, references, ours, 4 if options.quick else 10)
    return photos, target, maps, references.shape[1]


def _store_photos(options: Options, *names: str) -> Stored:
    """The photos, and the maps of these names; of all but GradCFE without."""
    photos, target, maps, count = _photo_maps(options)
    shown = {name: maps[name] for name in names or maps if names or name != "GradCFE"}
    arrays = {"photos": to_bytes(photos.x[: len(target)]), "maps": np.stack(list(shown.values()))}
    classes = [photos.classes[int(label)] for label in target]
    return Stored(arrays, {"methods": list(shown), "names": classes, "count": count, **_step_settings(options)}, photos.source)


def photo_grid(options: Options) -> Stored:
    """Photos explained by all methods."""
    return _store_photos(options)


def _step_settings(options: Options) -> dict[str, Any]:
    """The steps of GradPath on photos."""
    return {"steps": photo_steps(options), "step_size": photo_step(options)}


def describe_steps(texts: Mapping[str, Any]) -> str:
    """The same in words."""
    return f"{texts['steps']} steps of {texts['step_size']:g}"


def draw_photo_rows(stored: Stored, size: float, *sentences: str) -> Drawing:
    """A row for each photo: the photo, then its map by each method."""
    arrays, texts = stored.arrays, stored.texts
    figure, axes = sheet(len(texts["names"]), 1 + len(texts["methods"]), (1, 1), size, 0.5)
    column_titles(axes, ("explicand", *texts["methods"]))
    row_labels(axes, [f"[{name}]" for name in texts["names"]], 14)
    for row, photo in enumerate(arrays["photos"]):
        picture(axes[row, 0], photo / 255)
        for column, values in enumerate(arrays["maps"], start=1):
            heat(axes[row, column], values[row], PHOTO_LOOK)
    key(figure, axes, PHOTO_LOOK)
    caption(figure, *sentences, describe_scale(PHOTO_LOOK), stored.source)
    return figure


def draw_photo_grid(stored: Stored) -> Drawing:
    return draw_photo_rows(
        stored,
        1.1,
        f"references of Expected IG, DeepSHAP and IG² are {stored.texts['count']} photos of other classes; IG, Guided IG and "
        f"KernelSHAP start from black. IG² takes {describe_steps(stored.texts)}",
    )


def photo_gradcfe(options: Options) -> Stored:
    """What GradCF takes away from the same photos, beside IG²."""
    return _store_photos(options, "GradCFE", "IG²")


def draw_photo_gradcfe(stored: Stored) -> Drawing:
    arrays, texts = stored.arrays, stored.texts
    figure, axes = sheet(3, len(texts["names"]), (1, 1), 1.25, 0.6)
    row_labels(axes, ("explicand", *texts["methods"]))
    column_titles(axes, [f"[{name}]" for name in texts["names"]])
    look = MapStyle(kind="magnitude", cmap="inferno", smooth=1.0)
    for column, photo in enumerate(arrays["photos"]):
        picture(axes[0, column], photo / 255)
        heat(axes[1, column], arrays["maps"][0, column], look)
        heat(axes[2, column], arrays["maps"][1, column], PHOTO_LOOK)
    key(figure, axes, look)
    caption(
        figure,
        f"GradCFE is explicand − GradCF, the mean over {texts['count']} references; its size is shown. {describe_steps(texts)}",
        describe_scale(PHOTO_LOOK),
        stored.source,
    )
    return figure


# -- references one by one ---------------------------------------------------------------------------------------------


def photo_references(options: Options) -> Stored:
    """Two photos against single references: of classes near to theirs, and of any."""
    photos = load_photos(options)
    chosen = range(min(len(photos.x), 1 if options.quick else 2))
    count = 2 if options.quick else 3
    arrays: dict[str, Array] = {"photos": to_bytes(photos.x[: len(chosen)])}
    names, labels = [], []
    maps, pictures = [], []
    for i in chosen:
        x = photos.x[i : i + 1]
        scores = ig2.scores(photos.model, x)[0].cpu()
        target = int(photos.y[i])
        others = photos.others(target, len(photos.pool), options.seed)
        # of the classes there are, those that the network finds likeliest for the photo are nearest to it
        near = others[scores[photos.pool_y[others]].argsort(descending=True)][:count]
        far = torch.tensor([int(n) for n in others if int(n) not in near.tolist()][:count], dtype=torch.long)
        numbers = torch.cat([near, far])
        attribution = ig2.IG2(photo_steps(options), photo_step(options))(
            photos.model, x, target, photos.pool[numbers], per_reference=True, progress=options.watch("imagenet-references")
        )
        assert isinstance(attribution.per_reference, Tensor)
        maps.append(np.concatenate([_sum_values(attribution), sum_channels(attribution.per_reference[0])]))
        pictures.append(to_bytes(photos.pool[numbers]))
        names.append(photos.classes[target])
        labels.append([photos.classes[int(photos.pool_y[n])] for n in numbers])
    arrays |= {"maps": np.stack(maps), "references": np.stack(pictures)}
    return Stored(arrays, {"names": names, "labels": labels, "near": count, **_step_settings(options)}, photos.source)


def draw_photo_references(stored: Stored) -> Drawing:
    arrays, texts = stored.arrays, stored.texts
    count = arrays["references"].shape[1]
    figure, axes = sheet(2 * len(texts["names"]), 1 + count, (1, 1), 1.2, 0.3)
    for block, name in enumerate(texts["names"]):
        above, below = axes[2 * block], axes[2 * block + 1]
        picture(above[0], arrays["photos"][block] / 255)
        above[0].set_title(f"explicand\n[{name}]", fontsize="x-small", **text_options())
        below[0].set_xlabel("mean", fontsize="x-small")
        heat(below[0], arrays["maps"][block, 0], PHOTO_LOOK)
        for column, label in enumerate(texts["labels"][block]):
            kind = "relevant" if column < texts["near"] else "irrelevant"
            picture(above[1 + column], arrays["references"][block, column] / 255)
            above[1 + column].set_title(f"{kind}\n{wrap_text(f'[{label}]', 17)}", fontsize="x-small", **text_options())
            heat(below[1 + column], arrays["maps"][block, 1 + column], PHOTO_LOOK)
    key(figure, axes, PHOTO_LOOK)
    caption(
        figure,
        "above the references, below the attribution that IG² makes with each. Relevant are those whose class the network "
        "finds likeliest for the explicand among the photos there are, irrelevant are any others",
        describe_steps(texts),
        describe_scale(PHOTO_LOOK),
        stored.source,
    )
    return figure


# -- wafer maps --------------------------------------------------------------------------------------------------------

PATTERNS = ("Center", "Donut", "Edge-Loc", "Edge-Ring", "Loc", "Near-full", "Random", "Scratch")


def choose_wafers(options: Options, patterns: Sequence[str]) -> tuple[Pictures, Tensor, Tensor, Tensor, dict[str, Array]]:
    """A wafer of each of these patterns, their classes, normal maps as references; and what there is to store of them."""
    wafers = load_wafers(options)
    indices = [wafers.first(name) for name in patterns]
    x, target = wafers.x[indices], wafers.y[indices]
    references = wafers.references(target, 2 if options.quick else 5, options.seed, wafers.classes.index("None"))
    return wafers, x, target, references, _store_wafers(wafers, indices)


def _store_wafers(wafers: Pictures, indices: Sequence[int]) -> dict[str, Array]:
    samples = wafers.samples[indices]
    assert samples.masks is not None and isinstance(samples.x, Tensor)
    return {"codes": samples.x[:, 0].numpy(), "masks": samples.masks.numpy()}


def wafer_grid(options: Options) -> Stored:
    """A wafer of each pattern, and the attributions of all methods against wafers without one."""
    wafers, x, target, references, arrays = choose_wafers(options, PATTERNS)
    ours = ig2.IG2(4 if options.quick else 100, 0.1)
    maps = _explain_by_all(options, "wafers", wafers.model, x, target, references, ours, 4 if options.quick else 28)
    texts = {"methods": list(maps), "count": references.shape[1], "steps": ours.path.segments}
    return Stored({**arrays, "maps": np.stack(list(maps.values()))}, texts, wafers.source)


def draw_wafer_grid(stored: Stored) -> Drawing:
    texts = stored.texts
    return draw_wafer_rows(
        stored,
        f"references are {texts['count']} maps of class [None]; IG, Guided IG and KernelSHAP start from zero. IG² takes "
        f"{texts['steps']} steps of 0.1 in one-hot space; of GradCFE the channel of failing dies is shown",
    )


def draw_wafer_rows(stored: Stored, *sentences: str) -> Drawing:
    """A column for each pattern: the wafer above, then its map by each method."""
    arrays, texts = stored.arrays, stored.texts
    figure, axes = sheet(1 + len(texts["methods"]), len(PATTERNS), (1, 1), 0.95, 0.6)
    column_titles(axes, [f"[{name}]" for name in PATTERNS])
    row_labels(axes, ("explicand", *texts["methods"]), 12)
    for column, codes in enumerate(arrays["codes"]):
        picture(axes[0, column], dies(codes))
        outline(axes[0, column], arrays["masks"][column])
        for row, values in enumerate(arrays["maps"], start=1):
            heat(axes[row, column], values[column])
    key(figure, axes)
    above = "above the maps, failing dies dark, the pattern outlined ([Random] has no place to outline)"
    caption(figure, above, *sentences, describe_scale(), stored.source)
    return figure


def wafer_patterns(options: Options) -> Stored:
    """Three wafers of each class."""
    wafers = load_wafers(options)
    names = (*PATTERNS, "None")
    indices = [(wafers.y == wafers.classes.index(name)).nonzero()[:, 0][:3].tolist() for name in names]
    if min(map(len, indices)) < 3:
        raise InputError(f"{wafers.source}: there are classes with fewer than three maps, and this figure shows three of each")
    stored = [_store_wafers(wafers, three) for three in indices]
    arrays = {name: np.stack([wafer[name] for wafer in stored]) for name in ("codes", "masks")}
    return Stored(arrays, {"names": list(names)}, shorten(wafers.source))


def draw_wafer_patterns(stored: Stored) -> Drawing:
    codes, masks = stored.arrays["codes"], stored.arrays["masks"]
    figure, axes = sheet(codes.shape[1], codes.shape[0], (1, 1), 0.9, 0.1)
    column_titles(axes, [f"[{name}]" for name in stored.texts["names"]])
    for column in range(codes.shape[0]):
        for row, (wafer, mask) in enumerate(zip(codes[column], masks[column], strict=True)):
            picture(axes[row, column], dies(wafer))
            outline(axes[row, column], mask)
    caption(figure, "failing dies dark, the pattern outlined; [Random] and [None] have no place to outline", stored.source)
    return figure


# -- faces -------------------------------------------------------------------------------------------------------------

FACE_LOOK = MapStyle(kind="positive", cmap="inferno", smooth=1.0)
SHOWN = ("Eyeglasses", "Black_Hair", "Smiling", "Wearing_Hat", "Wearing_Lipstick", "Wearing_Earrings", "Bangs", "Blond_Hair")


def face_grid(options: Options) -> Stored:
    """Faces and one attribute of each, explained against the nearest faces without it."""
    faces = load_faces(options)
    numbers: list[int] = []
    targets, masks = [], []
    for name in SHOWN:
        if name not in faces.samples.classes or len(numbers) == (2 if options.quick else 6):
            continue
        label = faces.samples.classes.index(name)
        truth = faces.samples.truth(name)
        fits = (faces.samples.y[:, label] == 1) & (truth == 1).flatten(1).any(dim=1)
        fits[numbers] = False
        candidates = fits.nonzero()[:, 0]
        if not len(candidates):
            continue
        best = int(candidates[faces.scores[candidates, label].argmax()])
        numbers.append(best)
        targets.append(label)
        masks.append(truth[best].numpy())
    if not numbers:
        raise InputError(f"{faces.source}: no face shows any of {', '.join(SHOWN)} on a component that is marked")
    x, target = faces.x[numbers], torch.tensor(targets)
    count = 2 if options.quick else 5
    nearest = ig2.references.NearestLabels(faces.pool, faces.pool_y, count, faces.samples.y[numbers])
    ours = ig2.IG2(4 if options.quick else 50, 0.1)
    maps: Maps = {}
    few = 4 if options.quick else 50
    methods: dict[str, tuple[ig2.Method, Any]] = {
        "Gradient": (ig2.Gradient(), None),
        "IG": (ig2.IntegratedGradients(few), None),
        "Guided IG": (ig2.GuidedIG(2 * few), None),
        "Expected IG": (ig2.ExpectedIG(few), nearest),
        "IG²": (ours, nearest),
    }
    for name, (method, references) in methods.items():
        watch = options.watch(f"faces: {name}")
        maps[name] = _sum_values(method(faces.model, x, target, references, seed=options.seed, progress=watch))
    arrays = {"faces": to_bytes(x), "masks": np.stack(masks), "maps": np.stack(list(maps.values()))}
    labels = [faces.samples.classes[label] for label in targets]
    texts = {"methods": list(maps), "labels": labels, "count": count, "steps": ours.path.segments}
    return Stored(arrays, texts, faces.source)


def draw_face_grid(stored: Stored) -> Drawing:
    arrays, texts = stored.arrays, stored.texts
    shape = arrays["faces"].shape[1:3]
    figure, axes = sheet(1 + len(texts["methods"]), len(texts["labels"]), shape, 1.0, 0.6)
    column_titles(axes, [f"[{label}]".replace("_", " ") for label in texts["labels"]], "small", 13)
    row_labels(axes, ("explicand", *texts["methods"]))
    for column, face in enumerate(arrays["faces"]):
        picture(axes[0, column], face / 255)
        outline(axes[0, column], arrays["masks"][column], style="dashed")
        for row, values in enumerate(arrays["maps"], start=1):
            heat(axes[row, column], values[column], FACE_LOOK)
            outline(axes[row, column], arrays["masks"][column], "white", "dotted")
    key(figure, axes, FACE_LOOK)
    caption(
        figure,
        f"outlined is the component that shows the attribute. References are the {texts['count']} faces that lack it and are "
        f"most alike in the other attributes. IG² takes {texts['steps']} steps of 0.1",
        describe_scale(FACE_LOOK),
        stored.source,
    )
    return figure


IMAGENET = Figure("photos by all methods", photo_grid, draw_photo_grid, PHOTO_FOLDERS)
IMAGENET_GRADCFE = Figure("what GradCF takes away from the same photos", photo_gradcfe, draw_photo_gradcfe, PHOTO_FOLDERS)
IMAGENET_REFERENCES = Figure(
    "photos against single references, relevant and not", photo_references, draw_photo_references, PHOTO_FOLDERS
)
FACES = Figure("attributes of faces by five methods", face_grid, draw_face_grid, ("celeba",))
WAFERS = Figure("the eight wafer patterns by all methods", wafer_grid, draw_wafer_grid, ("wafer",))
WAFER_PATTERNS = Figure("three wafers of each class, patterns outlined", wafer_patterns, draw_wafer_patterns, ("wafer",))
