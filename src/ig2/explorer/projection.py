"""A map of all items by what the model looks at, and clusters of it: made once, stored beside the rows."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ig2._utils.files import FileError, check_regular, write_file
from ig2.explorer.maps import Shown, pool, read_map
from ig2.runs.store import SHAPE, Store

FOLDER, FILE = "explorer", "projection.npz"
VERSION = 1
SIDE = 14  # fields of an image, each way
WORDS = 256  # of texts: the most frequent ones
DIRECTIONS = 16  # of the principal components that clusters are found in
CLUSTERS = 8
TYPICAL = 6  # items shown of a cluster
ROUNDS = 50
LARGEST = 2**31  # bytes of the file

Matrix = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Projection:
    """Where each item is, and the clusters of explanations.

    Args:
        kind: of the maps.
        points: (N, 2), from 0 to 1 each way; NaN for items without values.
        clusters: (N,), the number of each item's cluster, -1 for items without values.
        means: (K, F), the mean shares of each cluster.
        typical: (K, T), the positions of the items nearest to each mean; -1 where a cluster has fewer.
        names: of the F fields; of images none.
        shape: of the fields of an image.
        explained: the share of the variance that the two directions have.
    """

    kind: Shown
    points: Matrix
    clusters: NDArray[np.int16]
    means: Matrix
    typical: NDArray[np.int64]
    names: tuple[str, ...]
    shape: tuple[int, int] | None
    explained: float


def open_projection(store: Store, progress: Callable[[float], None] = lambda share: None) -> Projection | None:
    """Return the projection of a store: that in its folder if its rows are the same, otherwise one that is made and stored.

    A store that cannot be written to is no error: the projection is made again next time.

    Returns:
        None if fewer than three items have values.
    """
    path, key = store.folder / FOLDER / FILE, _digest(store)
    projection = _read(path, key, len(store))
    if projection is None:
        projection = make_projection(store, progress)
        if projection is not None:
            with suppress(FileError, OSError):
                path.parent.mkdir(exist_ok=True)
                write_file(path, _encode(projection, key))
    return projection


def make_projection(store: Store, progress: Callable[[float], None] = lambda share: None, seed: int = 0) -> Projection | None:
    """Project all items on the two directions in which their explanations differ most, and cluster them.

    An item is described by its strengths, s = |v| / Σ|v|, of an image pooled to 14 × 14 fields, of a text those of the 256 most
    frequent words. So it matters where the model looks, and not how large its output is, nor which sign each value has. The
    points are the first two principal components; the clusters are k-means on the first sixteen, from the centres of k-means++
    [Arthur 2007].

    Args:
        store: whose rows.
        progress: called with the share that is done.
        seed: of the first centres.

    Returns:
        None if fewer than three items have values.
    """
    features, kept, kind, names, shape = _describe_items(store, progress)
    if len(kept) < 3:
        return None
    scores, explained = reduce_dimensions(features, DIRECTIONS)
    count = max(2, min(CLUSTERS, len(kept) // 10))
    members, _ = find_clusters(scores, count, seed)
    points = np.full((len(store), 2), np.nan, np.float32)
    low, high = scores[:, :2].min(axis=0), scores[:, :2].max(axis=0)
    points[kept] = (scores[:, :2] - low) / np.where(high > low, high - low, 1.0)
    clusters = np.full(len(store), -1, np.int16)
    clusters[kept] = members
    means, typical = [], np.full((count, TYPICAL), -1, np.int64)
    for number in range(count):
        inside = np.flatnonzero(members == number)
        means.append(features[inside].mean(axis=0) if len(inside) else np.zeros(features.shape[1], np.float32))
        distances = ((features[inside] - means[-1]) ** 2).sum(axis=1)
        nearest = inside[np.argsort(distances, kind="stable")[:TYPICAL]]
        typical[number, : len(nearest)] = kept[nearest]
    return Projection(kind, points, clusters, np.stack(means).astype(np.float32), typical, names, shape, explained)


def reduce_dimensions(features: Matrix, count: int) -> tuple[NDArray[np.float64], float]:
    """Return the first principal components of rows, and the share of the variance that the first two have.

    Each component's sign makes its largest coefficient positive, so that a map is not mirrored from one time to the next.
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
) -> tuple[Matrix, NDArray[np.int64], Shown, tuple[str, ...], tuple[int, int] | None]:
    columns = [name for name in ("values", "regions", "units", SHAPE) if name in store.columns]
    total, kept = max(1, len(store)), list[int]()
    rows: list[NDArray[np.float32]] = []
    words: list[tuple[str, ...]] = []
    kind: Shown = "table"
    names: tuple[str, ...] = ()
    shape: tuple[int, int] | None = None
    for position, row in enumerate(store.iterate(columns) if "values" in columns else ()):
        if position % 256 == 0:
            progress(position / total)
        shown = read_map(row, store.manifest)
        strengths = None if shown is None else np.abs(shown.scores)
        if shown is None or strengths is None or not strengths.sum() > 0:
            continue
        if shown.kind == "image":
            strengths = pool(strengths, SIDE, SIDE)
            shape = shape or strengths.shape
            if strengths.shape != shape:
                continue  # another number of fields than the first has
        elif shown.kind == "table":
            names = names or shown.units
            if len(shown.units) != len(names):
                continue
        kind = shown.kind
        kept.append(position)
        rows.append((strengths.reshape(-1) / strengths.sum()).astype(np.float32))
        words.append(tuple(unit.lower() for unit in shown.units) if shown.kind == "text" else ())
    if kind == "text":
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
    return matrix, np.array(kept, dtype=np.int64), kind, names, shape


# -- the file ----------------------------------------------------------------------------------------------------------


def _digest(store: Store) -> str:
    files = [(path.name, path.stat().st_size) for path in store.files]
    return hashlib.sha256(json.dumps([VERSION, store.manifest.get("digest"), files]).encode()).hexdigest()


def _encode(projection: Projection, key: str) -> bytes:
    stream = io.BytesIO()
    about = {"key": key, "kind": projection.kind, "names": projection.names, "shape": projection.shape}
    text = np.frombuffer(json.dumps({**about, "explained": projection.explained}).encode(), np.uint8)
    arrays = {name: getattr(projection, name) for name in ("points", "clusters", "means", "typical")}
    np.savez_compressed(stream, about=text, **arrays)
    return stream.getvalue()


def _read(path: Path, key: str, length: int) -> Projection | None:
    """Return the projection in a file; None if there is none, it is of other rows, or not one of ours."""
    try:
        check_regular(path)
        if path.stat().st_size > LARGEST:
            return None
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            about: dict[str, Any] = json.loads(file["about"].tobytes())
            arrays = {name: file[name] for name in ("points", "clusters", "means", "typical")}
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
        return Projection(about["kind"], **arrays, names=names, shape=shape, explained=about["explained"]) if fits else None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
