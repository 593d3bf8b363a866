"""Paths between texts that stay near word vectors: those of UDIG and DIG."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ig2._engine.explicands import check_numeric
from ig2._utils.settings import COUNT, setting
from ig2.errors import InputError, describe
from ig2.paths.base import KnownPath, Pairs, Path, PreparedPath, distances
from ig2.task import Task

END = -1  # in place of a word's number: the far end of the path


@dataclass(frozen=True, eq=False)
class _NearWords(Path):
    """A path of each position's vector (n, positions, features) near the vectors of words."""

    embeddings: Tensor = field(repr=False)
    steps: int = 30
    neighbours: int = setting(30, COUNT)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numeric(self.embeddings, "embeddings")
        if self.embeddings.ndim != 2 or not len(self.embeddings):
            raise InputError(f"embeddings must be a vector for each word, (words, features), got {describe(self.embeddings)}")

    @abstractmethod
    def measure(self, table: Tensor, word: Tensor, line: Tensor) -> Tensor:
        """Return how far the words of the table are, (m, words), from the last anchor or from the
        point on the straight line."""

    def anchors(self, table: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Return the words near which each position passes, (steps − 1, m), of lines from start to
        end (m, features)."""
        word, goal = find_word(start, table), find_word(end, table)
        visited = torch.zeros(len(start), len(table), dtype=torch.bool, device=table.device)
        neighbours = min(self.neighbours, len(table))
        rows = torch.arange(len(start), device=table.device)
        chosen = []
        for step in range(1, self.steps):
            visited[rows, word] = True
            apart = self.measure(table, word, torch.lerp(start, end, step / self.steps))
            near = apart.topk(neighbours, dim=1, largest=False).indices
            anchors = table[near]  # (m, neighbours, features)
            here, there = table[word][:, None], table[goal][:, None]
            bend = torch.linalg.vector_norm(anchors - stay_between(here, there, anchors, self.steps), dim=2)
            bend = bend.masked_fill(visited.gather(1, near) | (near == goal[:, None]), torch.inf)
            best = near[rows, bend.argmin(dim=1)]
            stuck = bend.amin(dim=1).isinf() | (word == goal)
            word = torch.where(stuck, goal, best)
            chosen.append(torch.where(stuck, END, word))
        return torch.stack(chosen)

    def prepare(self, task: Task, references: Tensor) -> KnownPath:
        table = self.embeddings.to(task.x)
        if task.x.ndim != 3 or task.x.shape[2] != table.shape[1]:
            raise InputError(f"a path near words needs word vectors (B, words, {table.shape[1]}), got {describe(task.x)}")
        # once for each call: the vocabulary is searched for every vertex, and vertices are asked for in pieces
        words = torch.full((*references.shape[:2], self.steps - 1, task.x.shape[1]), END, device=table.device)
        for row, sample in enumerate(task.x if self.steps > 1 else ()):
            for column, reference in enumerate(references[row].to(table)):
                moves = (sample != reference).any(dim=1)  # words that are equal stay
                words[row, column, :, moves] = self.anchors(table, sample[moves], reference[moves])
        passed = words.flatten(0, 1)  # near which each pair's positions pass, (pairs, steps − 1, positions)

        def draw(pairs: Pairs, numbers: range) -> Tensor:
            assert pairs.numbers is not None
            end, points = pairs.reference, [pairs.explicand]
            for near in passed[pairs.numbers.to(passed.device)].unbind(1)[: max(0, numbers.stop - 1)]:
                anchor = torch.where((near == END)[..., None], end, table[near])
                points.append(stay_between(points[-1], end, anchor, self.steps))
            points += [end] * (numbers.stop - len(points))
            return torch.stack(points[numbers.start : numbers.stop])

        return PreparedPath(self.steps, draw)


def find_word(points: Tensor, table: Tensor) -> Tensor:
    """Return the number of the word nearest to each point; of two as near, as half-way between
    words, the first in the table."""
    apart = distances(points, table)
    return (apart <= apart.amin(dim=1, keepdim=True) * (1 + 1e-6)).int().argmax(dim=1)


def stay_between(last: Tensor, end: Tensor, anchor: Tensor, steps: int) -> Tensor:
    """Return the anchor where it lies between the last vertex and the end, feature by feature;
    elsewhere a share of the way there."""
    inside = (torch.minimum(last, end) <= anchor) & (anchor <= torch.maximum(last, end))
    return torch.where(inside, anchor, last + (end - last) / steps)


class UniformWords(_NearWords):
    """A path from word to word near equally spaced points of the straight line, UDIG's strategy "greedy" [Roy 2024].

    The t-th anchor is chosen among the `neighbours` words nearest to x + (t/k)·(x′ − x), excluding visited words and the
    baseline's: it is the one nearest to its monotone version, as in `NeighbouringWords`. The nearest word alone does not
    suffice: in MiniLM's vocabulary it is x up to the middle of the line and x′ after it, which makes the path a single jump.

    The published code has one more segment for the same k.

    Args:
        embeddings: the vector of each word, (words, features); x and references are (B, positions, features).
        steps: the number k of segments.
        neighbours: how many nearest words are considered.

    Raises:
        InputError: if embeddings is not a table of vectors, or x does not fit it.
    """

    def measure(self, table: Tensor, word: Tensor, line: Tensor) -> Tensor:
        return distances(line, table)


@dataclass(frozen=True, eq=False)
class NeighbouringWords(_NearWords):
    """A path from word to neighbouring word towards the reference, DIG's strategy "greedy" [Sanyal 2021].

    The anchor after a word w is chosen among its `neighbours` nearest words, excluding visited words and the baseline's: it is
    the one nearest to its monotone version m(a), with mᵢ = aᵢ if that lies between wᵢ and x′ᵢ, and wᵢ + (x′ᵢ − wᵢ)/k
    otherwise. The path passes through the anchors, each made monotone relative to the previous vertex. If no neighbour is left,
    the next anchor is the baseline.

    The published code has one more segment for the same k, and takes neighbours from a precomputed graph; here x is looked up
    in the table.

    Args:
        embeddings: the vector of each word, (words, features); x and references are (B, positions, features).
        steps: the number k of segments.
        neighbours: how many nearest words are considered.

    Raises:
        InputError: if embeddings is not a table of vectors, or x does not fit it.
    """

    neighbours: int = setting(500, COUNT)

    def measure(self, table: Tensor, word: Tensor, line: Tensor) -> Tensor:
        # a word is not its own neighbour
        return distances(table[word], table).scatter(1, word[:, None], torch.inf)
