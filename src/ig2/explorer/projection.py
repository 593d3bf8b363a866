"""A map of all items by their explanations, and clusters: computed once, stored beside the rows."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ig2._utils.files import FileError, check_regular, make_subfolder, write_file
from ig2.errors import import_extra
from ig2.explorer.maps import read_map
from ig2.runs.store import SHAPE, Store
from ig2.views import Bars, Words, pool

FOLDER, FILE, UMAP_FILE = "explorer", "projection.npz", "umap.npz"
VERSION = 2
SIDE = 14  # fields of an image, each way
WORDS = 256  # of texts: the most frequent ones
DIRECTIONS = 16  # of the principal components that clusters are found in
CLUSTERS = 8
TYPICAL = 6  # items shown of a cluster
ROUNDS = 50
NEIGHBOURS = 15  # of each item, in UMAP
LARGEST = 2**31  # bytes of a file

ARRAYS = ("points", "clusters", "means", "typical")
Matrix = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Projection:
    """The position of each item, and the clusters of explanations.

    Args:
        points: (N, 2), from 0 to 1 each way; NaN for items without values.
        clusters: (N,), the number of each item's cluster, -1 for items without values.
        means: (K, F), the mean shares of each cluster.
        typical: (K, T), the positions of the items nearest to each mean; -1 where a cluster has fewer.
        names: the names of the F fields; none for images.
        shape: the shape of the fields of an image.
        explained: the share of the variance along the two directions.
    """

    points: Matrix
    clusters: NDArray[np.int16]
    means: Matrix
    typical: NDArray[np.int64]
    names: tuple[str, ...]
    shape: tuple[int, int] | None
    explained: float


def open_projection(store: Store, progress: Callable[[float], None] = lambda share: None) -> Projection | None:
    """Return the projection of a store: the one in its folder if its rows are the same, otherwise a new one, which is stored.

    A store that cannot be written to is not an error: the projection is computed again next time.

    Returns:
        None if fewer than three items have values.
    """
    key = _digest(store)
    projection = _read(store.folder / FOLDER / FILE, key, len(store))
    if projection is None:
        projection = make_projection(store, progress)
        if projection is not None:
            about = {name: getattr(projection, name) for name in ("names", "shape", "explained")}
            _store(store, FILE, {"key": key, **about}, {name: getattr(projection, name) for name in ARRAYS})
    return projection


def make_projection(store: Store, progress: Callable[[float], None] = lambda share: None, seed: int = 0) -> Projection | None:
    """Project all items on the two directions in which their explanations differ most, and cluster them.

    An item is described by its strengths, s = |v| / Σ|v|, of an image pooled to 14 × 14 fields, of a text those of the 256 most
    frequent words. So it matters where the model looks, and not how large its output is, nor which sign each value has. The
    points are the first two principal components; the clusters are k-means on the first sixteen, from the centres of k-means++
    [Arthur 2007].

    Args:
        store: the store of the rows.
        progress: called with the completed share.
        seed: the seed of the first centres.

    Returns:
        None if fewer than three items have values.
    """
    features, kept, names, shape = _describe_items(store, progress)
    if len(kept) < 3:
        return None
    scores, explained = reduce_dimensions(features, DIRECTIONS)
    count = max(2, min(CLUSTERS, len(kept) // 10))
    members, _ = find_clusters(scores, count, seed)
    points = _place(scores[:, :2], kept, len(store))
    clusters = np.full(len(store), -1, np.int16)
    clusters[kept] = members
    means, typical = [], np.full((count, TYPICAL), -1, np.int64)
    for number in range(count):
        inside = np.flatnonzero(members == number)
        means.append(features[inside].mean(axis=0) if len(inside) else np.zeros(features.shape[1], np.float32))
        distances = ((features[inside] - means[-1]) ** 2).sum(axis=1)
        nearest = inside[np.argsort(distances, kind="stable")[:TYPICAL]]
        typical[number, : len(nearest)] = kept[nearest]
    return Projection(points, clusters, np.stack(means).astype(np.float32), typical, names, shape, explained)


def _place(scores: NDArray[Any], kept: NDArray[np.int64], length: int) -> Matrix:
    """Return points from 0 to 1 each way, NaN for items that have none."""
    points = np.full((length, 2), np.nan, np.float32)
    low, high = scores.min(axis=0), scores.max(axis=0)
    points[kept] = (scores - low) / np.where(high > low, high - low, 1.0)
    return points


# -- UMAP --------------------------------------------------------------------------------------------------------------


def has_umap(store: Store) -> bool:
    """Return whether a store has, or could get, a map by UMAP."""
    return find_spec("umap") is not None or read_umap(store) is not None


def read_umap(store: Store) -> Matrix | None:
    """Return the map by UMAP in the store's folder; None if there is none of its rows."""
    arrays = _read_arrays(store.folder / FOLDER / UMAP_FILE, ("points",))
    fits = arrays is not None and arrays[0].get("key") == _digest(store) and arrays[1]["points"].shape == (len(store), 2)
    return arrays[1]["points"] if fits and arrays is not None else None


def open_umap(store: Store, progress: Callable[[float], None] = lambda share: None, seed: int = 0) -> Matrix | None:
    """Place all items by UMAP [McInnes 2018], which keeps neighbours together where two directions cannot.

    Its input is that of `make_projection`: the first sixteen principal components of the strengths. It is also computed once
    and kept in the store's folder.

    Args:
        store: the store of the rows.
        progress: called with the completed share.
        seed: the seed of the first positions.

    Returns:
        (N, 2), from 0 to 1 each way, NaN for items without values; None if fewer than three have some.

    Raises:
        MissingExtraError: if umap-learn is not installed, and the store has none.
    """
    points = read_umap(store)
    if points is None:
        umap = import_extra("umap", "umap", "a map by UMAP")
        features, kept, *_ = _describe_items(store, lambda share: progress(share / 4))
        if len(kept) < 3:
            return None
        scores, _ = reduce_dimensions(features, DIRECTIONS)
        # a spectral start needs more items than dimensions, and a seed one thread
        start = "spectral" if len(kept) > NEIGHBOURS else "random"
        neighbours = min(NEIGHBOURS, len(kept) - 1)
        layout = umap.UMAP(n_neighbors=neighbours, init=start, random_state=seed, n_jobs=1).fit_transform(scores)
        points = _place(layout, kept, len(store))
        _store(store, UMAP_FILE, {"key": _digest(store)}, {"points": points})
    return points


def reduce_dimensions(features: Matrix, count: int) -> tuple[NDArray[np.float64], float]:
    """Return the first principal components of rows, and the share of the variance that the first two have.

    Each component's sign makes its largest coefficient positive, so that a map is not mirrored between computations.
    """
    mean = features.mean(axis=0, dtype=np.float64)
    covariance = features.T.astype(np.float64) @ features / len(features) - np.outer(mean, mean)
    variances, directions = np.linalg.eigh(covariance)
    directions = directions[:, ::-1][:, :count]
    directions = directions * np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])])
    scores = features @ directions - mean @ directions
    if scores.shape[1] < 2:
        scores = np.pad(scores, ((0, 0), (0, 2 - scores.shape[1])))
    total = float(np.maximum(variances, 0).sum())
    return scores, float(np.maximum(variances[::-1][:2], 0).sum() / total) if total else 1.0


def find_clusters(points: NDArray[np.float64], count: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the number of each point's cluster, and the centres: k-means from the centres of k-means++ [Arthur 2007].

    The clusters are numbered by their size, the largest first.
    """
    generator = np.random.default_rng(seed)
    centres = points[generator.integers(len(points))][None]
    while len(centres) < count:
        nearest = _measure(points, centres).min(axis=1)
        total = nearest.sum()
        chosen = generator.choice(len(points), p=nearest / total) if total > 0 else generator.integers(len(points))
        centres = np.concatenate([centres, points[chosen][None]])
    members = _measure(points, centres).argmin(axis=1)
    for _ in range(ROUNDS):
        centres = np.stack(
            [
                points[members == number].mean(axis=0) if (members == number).any() else centres[number]
                for number in range(count)
            ]
        )
        moved = _measure(points, centres).argmin(axis=1)
        if (moved == members).all():
            break
        members = moved
    order = np.argsort(-np.bincount(members, minlength=count), kind="stable")
    return np.argsort(order)[members], centres[order]


def _measure(points: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared distances, (N, K)."""
    squares = (points**2).sum(axis=1)[:, None] - 2 * points @ centres.T + (centres**2).sum(axis=1)
    distances: NDArray[np.float64] = np.maximum(squares, 0.0)
    return distances


# -- what describes an item --------------------------------------------------------------------------------------------


def _describe_items(
    store: Store, progress: Callable[[float], None]
) -> tuple[Matrix, NDArray[np.int64], tuple[str, ...], tuple[int, int] | None]:
    columns = [name for name in ("values", "regions", "units", SHAPE) if name in store.columns]
    total, kept = max(1, len(store)), list[int]()
    rows: list[NDArray[np.float32]] = []
    words: list[tuple[str, ...]] = []
    names: tuple[str, ...] = ()
    shape: tuple[int, int] | None = None
    for position, row in enumerate(store.iterate(columns) if "values" in columns else ()):
        if position % 256 == 0:
            progress(position / total)
        shown = read_map(row, store.manifest)
        strengths = None if shown is None else np.abs(shown.scores)
        if shown is None or strengths is None or not strengths.sum() > 0:
            continue
        if shown.is_flat:
            strengths = pool(strengths, SIDE, SIDE)
            shape = shape or strengths.shape
            if strengths.shape != shape:
                continue  # another number of fields than the first has
        elif isinstance(shown.view, Bars):
            names = names or shown.view.columns
            if len(shown.view.columns) != len(names):
                continue
        kept.append(position)
        rows.append((strengths.reshape(-1) / strengths.sum()).astype(np.float32))
        words.append(tuple(map(str.lower, shown.view.words)) if isinstance(shown.view, Words) else ())
    if any(words):
        counts = Counter(word for text in words for word in text)
        names = tuple(word for word, _ in counts.most_common(WORDS))
        places = {word: number for number, word in enumerate(names)}
        matrix = np.zeros((len(rows), len(names)), np.float32)
        for number, (text, strengths) in enumerate(zip(words, rows, strict=True)):
            for word, strength in zip(text, strengths, strict=True):
                if word in places:
                    matrix[number, places[word]] += strength
    else:
        matrix = np.stack(rows) if rows else np.zeros((0, 0), np.float32)
    return matrix, np.array(kept, dtype=np.int64), names, shape


# -- the file ----------------------------------------------------------------------------------------------------------


def _digest(store: Store) -> str:
    files = [(path.name, path.stat().st_size) for path in store.files]
    return hashlib.sha256(json.dumps([VERSION, store.manifest.get("digest"), files]).encode()).hexdigest()


def _store(store: Store, name: str, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Keep arrays in a store's folder, if it can be written to."""
    stream = io.BytesIO()
    np.savez_compressed(stream, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    with suppress(FileError):
        make_subfolder(store.folder / FOLDER)
        write_file(store.folder / FOLDER / name, stream.getvalue())


def _read_arrays(path: Path, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """Return what a file is about and its arrays; None if there is none, or it is not one of ours."""
    try:
        check_regular(path)
        if path.stat().st_size > LARGEST:
            return None
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            about: dict[str, Any] = dict(json.loads(file["about"].tobytes()))
            return about, {name: file[name] for name in names}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
        return None


def _read(path: Path, key: str, length: int) -> Projection | None:
    """Return the projection in a file; None if there is none, it is of other rows, or not one of ours."""
    content = _read_arrays(path, ARRAYS)
    if content is None:
        return None
    about, arrays = content
    try:
        count = len(arrays["means"])
        fits = (
            about["key"] == key
            and arrays["points"].shape == (length, 2)
            and arrays["clusters"].shape == (length,)
            and arrays["typical"].shape == (count, TYPICAL)
            and bool((arrays["typical"] < length).all())
        )
        shape = None if about["shape"] is None else (int(about["shape"][0]), int(about["shape"][1]))
        names = tuple(map(str, about["names"]))
        return Projection(**arrays, names=names, shape=shape, explained=about["explained"]) if fits else None
    except (ValueError, KeyError, TypeError, IndexError):
        return None
