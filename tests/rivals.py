"""Slow replicas of the rivals, straight from the formulas: one sample and one gradient at a time, NumPy in between.

As in `replicas.py`, nothing is shared with the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy.fft
import scipy.ndimage
import scipy.sparse.csgraph
import torch
from torch import Tensor

from replicas import Array, Network

Score = Callable[[Tensor], Tensor]


def seen_by(score: Score, target: int) -> Network:
    """The network seen by a class."""
    return Network(score, score, target)


def predicted(score: Score, point: Array) -> int:
    with torch.no_grad():
        return int(score(torch.from_numpy(point)[None])[0].argmax())


def clip(point: Array, bounds: tuple[float, float] | None) -> Array:
    return point if bounds is None else np.clip(point, *bounds)


def integral(
    network: Network, x: Array, baseline: Array, nodes: int, weight: Callable[[float], float] = lambda _: 1.0
) -> Array:
    """(x − x′) ⊙ ∫ u(α) ∇f(x′ + α (x − x′)) dα."""
    places, weights = np.polynomial.legendre.leggauss(nodes)
    total = np.zeros_like(x)
    for place, share in zip((places + 1) / 2, weights / 2, strict=True):
        total += share * weight(place) * network.gradient(baseline + place * (x - baseline))
    return total * (x - baseline)


# -- on the straight line ----------------------------------------------------------------------------------------------


def adaptive_places(network: Network, x: Array, baseline: Array, steps: int) -> Array:
    """From 0 at the baseline to 1: the quantiles of the density of slopes."""
    outputs = np.array([network.f(baseline + (x - baseline) * i / steps) for i in range(steps + 1)])
    slopes = np.diff(outputs)
    density = slopes - slopes.min()
    if density.max() == 0:
        density = np.ones(steps)
    share, places = [0.0], [0.0]
    for piece in density:
        share.append(share[-1] + piece / density.sum())
    for j in range(1, steps):
        i = next(i for i in range(steps) if share[i] <= j / steps < share[i + 1])
        places.append((i + (j / steps - share[i]) / (share[i + 1] - share[i])) / steps)
    return np.array([*places, 1.0])


def decision(network: Network, x: Array, baseline: Array, places: Array) -> Array:
    total = np.zeros_like(x)
    for here, there in zip(places[1:], places[:-1], strict=True):
        near, far = baseline + here * (x - baseline), baseline + there * (x - baseline)
        slope = (network.f(near) - network.f(far)) / (here - there)
        total += network.gradient(near) * slope * (here - there)
    return total * (x - baseline)


def left_ig(network: Network, x: Array, baseline: Array, steps: int, share: float) -> tuple[Array, Array]:
    """The attribution, and where the line was cut."""
    outputs = [network.f(baseline + (x - baseline) * i / steps) for i in range(steps + 1)]
    top = max(outputs) - outputs[0]
    cut = next((i for i in range(steps + 1) if outputs[i] > outputs[0] and outputs[i] - outputs[0] >= share * top), steps)
    end = baseline + (x - baseline) * cut / steps
    return integral(network, end, baseline, steps), end


# -- attacks -----------------------------------------------------------------------------------------------------------


def unit(gradient: Array) -> Array:
    return gradient / math.sqrt((gradient**2).sum())


def mfaba(
    score: Score,
    target: int,
    x: Array,
    steps: int,
    size: float,
    direction: Callable[[Array], Array],
    bounds: tuple[float, float] | None,
) -> tuple[Array, Array, int]:
    """The attribution, the end of the path, and the number of steps."""
    network, own = seen_by(score, target), predicted(score, x)
    point, total = x, np.zeros_like(x)
    for step in range(steps):
        gradient = network.gradient(point)
        reached = clip(point - size * direction(gradient), bounds)
        total += gradient * (point - reached)
        point = reached
        if predicted(score, point) != own:
            return total, point, step + 1
    return total, point, steps


def agi(
    score: Score,
    target: int,
    x: Array,
    classes: Sequence[int],
    steps: int,
    size: float,
    bounds: tuple[float, float] | None,
) -> Array:
    total = np.zeros_like(x)
    for goal in classes:
        point = x
        for _ in range(steps):
            if predicted(score, point) == goal:
                break
            moved = size * np.sign(seen_by(score, goal).gradient(point))
            reached = clip(point + moved, bounds)
            total += seen_by(score, target).gradient(point) * (point - reached)
            point = reached
    return total / len(classes)


def la(
    score: Score, target: int, x: Array, classes: Sequence[int], steps: int, share: float, bounds: tuple[float, float] | None
) -> Array:
    total = np.zeros_like(x)
    for goal in [*classes, None]:
        point = x
        for _ in range(steps):
            own = seen_by(score, target).gradient(point)
            climbed = -own if goal is None else seen_by(score, goal).gradient(point)
            reached = clip(x + share * x * np.sign(climbed), bounds)
            total += own * (x - reached)
            point = reached
    return total / (len(classes) + 1)


def to_boundary(score: Score, x: Array, end: Array, bisections: int) -> Array:
    """From the end of an attack back to just before the boundary."""
    inside, outside = 0.0, 1.0
    for _ in range(bisections):
        middle = (inside + outside) / 2
        if predicted(score, x + middle * (end - x)) != predicted(score, x):
            outside = middle
        else:
            inside = middle
    return x + outside * (end - x)


def attexplore(
    network: Network,
    x: Array,
    steps: int,
    size: float,
    copies: int,
    sigma: float,
    rho: float,
    seed: int,
    bounds: tuple[float, float] | None,
) -> Array:
    generator = torch.Generator().manual_seed(seed)
    axes = tuple(range(max(0, x.ndim - 2), x.ndim))
    point, total, momentum = x, np.zeros_like(x), np.zeros_like(x)
    for _ in range(steps):
        mean = np.zeros_like(x)
        for _ in range(copies):
            noise = torch.randn(x.shape, generator=generator, dtype=torch.float64).numpy()
            mask = torch.rand(x.shape, generator=generator, dtype=torch.float64).numpy() * 2 * rho + 1 - rho
            frequencies = scipy.fft.dctn(point + sigma * noise, axes=axes, norm="ortho")
            mean += network.gradient(scipy.fft.idctn(frequencies * mask, axes=axes, norm="ortho")) / copies
        momentum = momentum + mean / np.abs(mean).mean()
        reached = clip(point - size * np.sign(momentum), bounds)
        total += momentum * (point - reached)
        point = reached
    return total


# -- references --------------------------------------------------------------------------------------------------------


def k_means(points: Array, count: int, first: int) -> tuple[Array, Array]:
    centres = [points[first]]
    while len(centres) < count:
        centres.append(points[int(np.argmax([min(((p - c) ** 2).sum() for c in centres) for p in points]))])
    table = np.array(centres)
    labels = np.array([int(np.argmin(((table - p) ** 2).sum(axis=1))) for p in points])
    while True:
        table = np.array([points[labels == i].mean(axis=0) if (labels == i).any() else table[i] for i in range(count)])
        again = np.array([int(np.argmin(((table - p) ** 2).sum(axis=1))) for p in points])
        if (again == labels).all():
            return table, labels
        labels = again


def local_clusters(outputs: Array, own: Array, clusters: int, count: int, seed: int) -> tuple[list[int], Array]:
    """The numbers of the references in the pool, and their weights."""

    def first(points: int) -> int:
        return int(torch.randint(points, (), generator=torch.Generator().manual_seed(seed)))

    centres, labels = k_means(outputs, clusters, first(len(outputs)))
    members = np.flatnonzero(labels == np.argmin(((centres - own) ** 2).sum(axis=1)))
    centres, labels = k_means(outputs[members], count, first(len(members)))
    chosen = [int(members[np.argmin(((outputs[members] - centre) ** 2).sum(axis=1))]) for centre in centres]
    sizes = np.array([(labels == i).sum() for i in range(count)], dtype=float)
    return chosen, sizes / sizes.sum()


def deletion_weights(network: Network, x: Array, references: Sequence[Array], each: Sequence[Array], shares: int) -> Array:
    falls = []
    for reference, values in zip(references, each, strict=True):
        order = np.argsort(-values.ravel(), kind="stable")
        outputs = []
        for part in range(1, shares + 1):
            point = x.ravel().copy()
            deleted = [i for rank, i in enumerate(order) if rank < x.size * part / shares]
            point[deleted] = reference.ravel()[deleted]
            outputs.append(network.f(point.reshape(x.shape)))
        falls.append(max(0.0, network.f(x) - float(np.mean(outputs))))
    return np.array(falls) / sum(falls) if sum(falls) > 0 else np.full(len(falls), 1 / len(falls))


# -- paths: each a list of points, from the explicand to the baseline --------------------------------------------------


def between(last: float, end: float, anchor: float, steps: int) -> float:
    return anchor if min(last, end) <= anchor <= max(last, end) else last + (end - last) / steps


def uniform_words(table: Array, x: Array, baseline: Array, steps: int, neighbours: int) -> list[Array]:
    return _through_words(table, x, baseline, steps, neighbours, True)


def neighbouring_words(table: Array, x: Array, baseline: Array, steps: int, neighbours: int) -> list[Array]:
    return _through_words(table, x, baseline, steps, neighbours, False)


def _through_words(table: Array, x: Array, baseline: Array, steps: int, neighbours: int, on_line: bool) -> list[Array]:
    points = [x.copy()] + [np.empty_like(x) for _ in range(steps - 1)] + [baseline]
    for position in range(len(x)):
        word = int(np.argmin(((table - x[position]) ** 2).sum(axis=1)))
        goal = int(np.argmin(((table - baseline[position]) ** 2).sum(axis=1)))
        visited = {word}
        for t in range(1, steps):
            centre = x[position] + (baseline[position] - x[position]) * t / steps if on_line else table[word]
            order = np.argsort(((table - centre) ** 2).sum(axis=1), kind="stable")
            near = [i for i in order if on_line or i != word][:neighbours]
            bends = {}
            for i in near:
                if i in visited or i == goal:
                    continue
                bent = [between(a, b, c, steps) for a, b, c in zip(table[word], table[goal], table[i], strict=True)]
                bends[i] = math.sqrt(((table[i] - bent) ** 2).sum())
            stuck = not bends or word == goal
            word = goal if stuck else min(bends, key=lambda i: bends[i])
            visited.add(word)
            anchor = baseline[position] if stuck else table[word]
            for i in range(x.shape[1]):
                points[t][position, i] = between(points[t - 1][position, i], baseline[position, i], anchor[i], steps)
    return points


def greedy(network: Network, x: Array, baseline: Array, steps: int, momentum: float) -> list[Array]:
    points, moved = [x], np.zeros(x.size, dtype=bool)
    slope = None
    for step in range(steps):
        gradient = network.gradient(points[-1]).ravel()
        slope = gradient if slope is None else momentum * slope + (1 - momentum) * gradient
        fall = slope * (points[-1] - baseline).ravel()
        count = round(x.size * (step + 1) / steps) - round(x.size * step / steps)
        left = sorted((i for i in range(x.size) if not moved[i]), key=lambda i: -fall[i])
        moved[left[:count]] = True
        points.append(np.where(moved, baseline.ravel(), x.ravel()).reshape(x.shape))
    return points


def geodesic(network: Network, x: Array, baseline: Array, pool: Array, neighbours: int, gradients: int) -> list[Array]:
    nodes = np.concatenate([pool, x[None], baseline[None]])
    size = len(nodes)
    costs = np.zeros((size, size))
    places, weights = np.polynomial.legendre.leggauss(gradients)

    def cost(a: Array, b: Array) -> float:
        norms = [np.linalg.norm(network.gradient(a + (b - a) * (p + 1) / 2)) for p in places]
        return float(np.linalg.norm(a - b) * (np.array(norms) * weights / 2).sum())

    for i in range(size):
        distance = np.linalg.norm((pool - nodes[i]).reshape(len(pool), -1), axis=1)
        order = [j for j in np.argsort(distance, kind="stable") if j != i]
        for j in order[:neighbours]:
            costs[i, j] = costs[j, i] = cost(nodes[i], nodes[j])
    _, before = scipy.sparse.csgraph.dijkstra(costs, directed=False, indices=size - 2, return_predecessors=True)
    route = [size - 1]
    while route[-1] != size - 2:
        route.append(before[route[-1]])
    return [nodes[i] for i in route[::-1]]


def revealed(x: Array, noise: Array, steps: int, sigma: float, blur: float, bounds: tuple[float, float] | None) -> list[Array]:
    points = [x]
    for t in range(1, steps + 1):
        mean = x
        if blur:
            mean = np.stack([scipy.ndimage.gaussian_filter(plane, blur * t / steps, mode="reflect") for plane in x])
        points.append(clip(mean + sigma * noise * t / steps, bounds))
    return points
