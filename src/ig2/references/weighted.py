"""References with weights in the mean: those given by the user, and the density weights of Local Path Integration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ig2._utils.settings import COUNT, setting
from ig2.errors import InputError
from ig2.paths.base import distances
from ig2.references.base import References, WeightedSamples, as_references, draw_references
from ig2.references.pool import OpenPool
from ig2.task import Task

ROUNDS = 100  # of k-means at most; on outputs it settles within some twenty


@dataclass(frozen=True, eq=False)
class Weighted(References):
    """References with weights in the mean over them: φ = Σᵣ wᵣ φᵣ, where Σᵣ wᵣ = 1.

    The attributions of a complete rule then sum to f(x) − Σᵣ wᵣ f(baselineᵣ), which `Attribution.residual` compares them with.
    Path methods accept weights; KernelSHAP raises an error.

    Args:
        references: samples (R, ...) or (B, R, ...), a number, or another strategy.
        weights: non-negative numbers, (R,) for all explicands or (B, R) for each; or a function of the task and the references
            drawn, (B, R, ...), that returns them. They are scaled to sum to one.

    Raises:
        InputError: if the weights do not fit the references, are negative, or are all zero.

    >>> import ig2
    >>> references = ig2.references.Weighted(torch.tensor([[0.0], [2.0]]), torch.tensor([3.0, 1.0]))
    >>> ig2.ExpectedIG()(lambda x: 2 * x, torch.tensor([[1.0]]), references=references).values.round(decimals=4)
    tensor([[1.]])
    """

    references: Any
    weights: Any

    def __post_init__(self) -> None:
        as_references(self.references)

    def draw(self, task: Task) -> WeightedSamples:
        samples = draw_references(as_references(self.references), task)
        if callable(self.weights):
            return WeightedSamples(samples, self.weights(task, samples))
        weights = torch.as_tensor(self.weights)
        if weights.ndim == 2 and len(weights) == len(task.session.inputs):
            weights = weights[task.rows.to(weights.device)]
        return WeightedSamples(samples, weights)


@dataclass(frozen=True, eq=False)
class LocalClusters(References):
    """Samples from the explicand's cluster of outputs, weighted by density: the references of LPI [Yang 2023b].

    k-means divides the network's outputs on the pool into `clusters`. Within the explicand's cluster, a second k-means finds
    `count` centres; the sample nearest to each centre is a reference, weighted by the share of the cluster's samples nearest to
    that centre. The published code clusters the training set once and stores images; this one clusters the pool in each call.

    Args:
        pool: samples (N, ...), as for `RandomSamples`; the network is run on all of them.
        clusters: the number of clusters of outputs.
        count: the number of references for each explicand; every cluster needs at least as many samples.

    Raises:
        InputError: if the pool has fewer samples than clusters, or an explicand's cluster fewer than references.
    """

    pool: Any = field(repr=False)
    clusters: int = setting(9, COUNT)
    count: int = setting(10, COUNT)

    def draw(self, task: Task) -> WeightedSamples:
        pool = OpenPool(self.pool, task)
        if len(pool) < self.clusters:
            raise InputError(f"the pool has {len(pool)} samples, too few for {self.clusters} clusters: ask for fewer")
        samples = torch.stack([pool[index] for index in range(len(pool))])
        # beside fixed inputs, or against another class, the pool's outputs are each explicand's own
        is_shared = not task.session.inputs.fixed and task.against is None
        chosen: list[list[int]] = []
        weights: list[Tensor] = []
        for place, row in enumerate(task.rows.tolist()):
            of = torch.full((len(samples),), place, device=task.x.device)
            if place == 0 or not is_shared:
                outputs = task.scores(samples, of)
                centres, labels = cluster(outputs, self.clusters, task.generator())
            output = task.scores(task.x[place : place + 1], of[:1])
            candidates = (labels == distances(output, centres).argmin()).nonzero()[:, 0].tolist()
            others = [index for index in candidates if not pool.is_explicand(index, row)]
            members = torch.tensor(others, dtype=torch.long, device="cpu")
            if len(members) < self.count:
                raise InputError(
                    f"explicand {row} falls into a cluster of {len(members)} samples, too few for {self.count} references: ask "
                    "for fewer references or clusters, or give a larger pool"
                )
            inner = outputs[members.to(outputs.device)]
            local, nearest = cluster(inner, self.count, task.generator())
            chosen.append(members[distances(local, inner).argmin(dim=1).cpu()].tolist())
            weights.append(torch.bincount(nearest, minlength=self.count).to(task.x))
        return WeightedSamples(samples[torch.tensor(chosen, device=samples.device)], torch.stack(weights))


def cluster(points: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Run k-means [Lloyd 1982] from centres far apart.

    Returns:
        The centres (count, features), and the index of the centre nearest to each point, (n,).
    """
    first = int(torch.randint(len(points), (), generator=generator, device="cpu"))
    chosen = [first]
    for _ in range(count - 1):  # the point farthest from the centres so far: no chance, so that equal pools have equal clusters
        chosen.append(int(distances(points, points[chosen]).amin(dim=1).argmax()))
    centres = points[chosen].clone()
    labels = distances(points, centres).argmin(dim=1)
    for _ in range(ROUNDS):
        for index in range(count):
            if (labels == index).any():
                centres[index] = points[labels == index].mean(dim=0)
        before, labels = labels, distances(points, centres).argmin(dim=1)
        if torch.equal(before, labels):
            break
    return centres, labels
