"""The path of Geodesic IG: the shortest path through samples of the data, in the metric of the output's gradient."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ig2._engine.explicands import check_numeric
from ig2._utils.settings import COUNT, setting
from ig2.errors import InputError, describe
from ig2.paths.base import KnownPath, Pairs, Path, PreparedPath, distances
from ig2.task import Task

Edges = dict[tuple[int, int], float]  # of node numbers, the smaller first, to costs
START, END = -2, -1  # the explicand's and the reference's numbers among the nodes; samples of the pool count from 0


@dataclass(frozen=True, eq=False)
class Geodesic(Path):
    """The shortest path from sample to sample of a pool, in the metric of the output's gradient [Salek 2025].

    The nodes are the pool, the explicand and the reference, each connected to its `neighbours` nearest. An edge from a to b
    costs ‖a − b‖ · ∫₀¹ ‖∇f(a + t·(b − a))‖ dt, by Gauss–Legendre with `gradients` nodes, and the path is the cheapest route
    from x to x′, or the straight line if there is none. The paper's other variant, which moves points by variational
    inference, is not implemented; the published code connects separate components of the graph by further edges.

    Args:
        pool: samples (N, ...); a few hundred, since each explained class needs `gradients` gradients on each of some N ·
            `neighbours` edges.
        neighbours: the number of nearest nodes each node is connected to.
        gradients: the number of gradients that determine the cost of an edge.

    Raises:
        InputError: if the pool is not a tensor of samples like x.
    """

    pool: Tensor = field(repr=False)
    neighbours: int = setting(5, COUNT)
    gradients: int = setting(3, COUNT)

    def __post_init__(self) -> None:
        check_numeric(self.pool, "the pool")
        super().__post_init__()

    @property
    def segments(self) -> int:
        """The maximum number of segments, before the shortest paths are known."""
        return len(self.pool) + 1

    def prepare(self, task: Task, references: Tensor) -> KnownPath:
        pool = self.pool.to(task.x)
        if pool.shape[1:] != task.x.shape[1:]:
            raise InputError(f"the pool is {describe(self.pool)}, a sample is {tuple(task.x.shape[1:])}: make them equal")
        among = _nearest(pool, pool, self.neighbours + 1)  # itself included
        # beside fixed inputs, or against another class, costs are each explicand's own
        is_shared = not task.session.inputs.fixed and not task.session.inputs.held and task.against is None
        known: dict[Any, Edges] = {}
        routes: list[list[int]] = []
        for place in range(len(task)):
            key = int(task.target[place]) if is_shared else place
            if key not in known:
                pairs = {(min(a, b), max(a, b)) for a, row in enumerate(among) for b in row if a != b}
                known[key] = self._costs(task, place, pool, sorted(pairs))
            for reference in references[place].to(task.x):
                ends = torch.stack([task.x[place], reference])
                near = _nearest(ends, pool, self.neighbours)
                pairs = {(end, node) for end, row in zip((START, END), near, strict=True) for node in row}
                edges = known[key] | self._costs(task, place, torch.cat([pool, ends]), sorted(pairs))
                routes.append(shortest(edges, START, END))

        def draw(pairs: Pairs, numbers: range) -> Tensor:
            """Pass each pair's samples of the pool in order; a path that is shorter than the longest waits at its end."""
            assert pairs.numbers is not None
            lines = []
            for route, explicand, reference in zip(pairs.numbers.tolist(), pairs.explicand, pairs.reference, strict=True):
                line = [explicand, *pool[routes[route]]]
                lines.append(torch.stack([line[t] if t < len(line) else reference for t in numbers]))
            return torch.stack(lines, dim=1)

        return PreparedPath(max(map(len, routes)) + 1, draw)

    def _costs(self, task: Task, place: int, nodes: Tensor, pairs: Iterable[tuple[int, int]]) -> Edges:
        """Return what each edge costs to the explicand with this place in the task."""
        ends = torch.tensor(list(pairs), device=nodes.device)
        length = (nodes[ends[:, 0]] - nodes[ends[:, 1]]).flatten(1).norm(dim=1)
        places, weights = np.polynomial.legendre.leggauss(self.gradients)
        cost = torch.zeros_like(length)

        def work(piece: range) -> None:
            start, end = (nodes[side[piece.start : piece.stop]] for side in ends.T)
            rows = task.rows[place].expand(len(start))
            for place_on_edge, weight in zip((places + 1) / 2, weights / 2, strict=True):
                at = task.session.evaluate(
                    torch.lerp(start, end, float(place_on_edge)), rows, task.target[place].expand(len(start))
                )
                assert at.gradient is not None
                cost[piece.start : piece.stop] += float(weight) * at.gradient.flatten(1).norm(dim=1)

        task.batch.over(len(ends), work)
        return {(a, b): value for (a, b), value in zip(ends.tolist(), (cost * length).tolist(), strict=True)}


def shortest(edges: Edges, start: int, end: int) -> list[int]:
    """Return the nodes between start and end on the cheapest way through undirected edges
    (Dijkstra); none where there is no way."""
    neighbours: dict[int, list[tuple[int, float]]] = {}
    for (node, other), cost in edges.items():
        neighbours.setdefault(node, []).append((other, cost))
        neighbours.setdefault(other, []).append((node, cost))
    queue, before, done = [(0.0, start, start)], dict[int, int](), set[int]()
    while queue:
        distance, node, previous = heapq.heappop(queue)
        if node in done:
            continue
        done.add(node)
        before[node] = previous
        if node == end:
            break
        for other, cost in neighbours.get(node, []):
            heapq.heappush(queue, (distance + cost, other, node))
    route: list[int] = []
    node = before.get(end, start)
    while node != start:
        route.append(node)
        node = before[node]
    return route[::-1]


def _nearest(points: Tensor, pool: Tensor, count: int) -> list[list[int]]:
    """Return the numbers of the samples of the pool nearest to each point."""
    return distances(points, pool).topk(min(count, len(pool)), largest=False).indices.tolist()
