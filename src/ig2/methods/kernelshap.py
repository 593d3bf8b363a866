"""KernelSHAP: Shapley values of groups of features, by a weighted regression on the values of coalitions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import torch
from torch import Tensor

from ig2._utils.settings import COUNT, setting
from ig2.errors import InputError
from ig2.groups import GROUPS, Groups, number_groups
from ig2.methods.base import Method, Result
from ig2.methods.masking import run_masked
from ig2.references.base import References, draw_references
from ig2.references.constant import Zeros
from ig2.result import Keep
from ig2.task import Task

# The maximum size of the dense system that the regression solves.
MOST_GROUPS = 4096
# The maximum number of coalition outputs in memory.
MOST_OUTPUTS = 1 << 22


@dataclass(frozen=True, eq=False)
class KernelSHAP(Method):
    """Shapley values of groups of features, where the features of an absent group are the reference's [Lundberg 2017].

    φ minimises Σ_S π(S)·(v(S) − v(∅) − Σ_{i∈S} φᵢ)² over coalitions S of M groups, with the Shapley kernel
    π(S) = (M − 1) / (C(M, |S|)·|S|·(M − |S|)) and v(S) the mean of the output over the references. The regression is
    constrained so that the values sum to f(x) − mean f(references). A group's value is divided equally among its features.
    No gradients are needed: x may hold integers or booleans, and the model may be any function, such as an estimator's
    `predict_proba`.

    Args:
        groups: the features that are present or absent together: `Grid(rows, columns)`, `Superpixels(count)`,
            `Windows(length)`, another `Groups`, or an integer tensor of group numbers that broadcasts to a sample, such as
            (H, W) for an image, or to the batch, such as (B, 1, H, W); a shape that fits both is read as a sample's. Several
            inputs count as one row, with their features concatenated. By default each feature is a group.
        samples: the maximum number of coalitions evaluated for each explicand and reference. The values are exact if it
            covers all 2ᴹ − 2 coalitions of M groups. By default 2·M + 2048.

    Raises:
        InputError: on a call with more than 4096 groups, or with too few samples to distinguish the groups.

    >>> import torch
    >>> KernelSHAP()(lambda x: x[:, 0] * x[:, 1] + x[:, 2], torch.tensor([[2.0, 3.0, 4.0]])).values
    tensor([[3., 3., 4.]])
    """

    groups: Groups | Tensor | None = setting(None, GROUPS)
    samples: int | None = setting(None, COUNT)
    default_references = Zeros()
    takes_weights = False
    needs_gradient = False

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        backgrounds = draw_references(self.require_references(references), task)
        count = backgrounds.shape[1]
        numbered = number_groups(self.groups, task)
        partitions = [
            _Partition.of(numbered[i].flatten(), (task.x[i] != backgrounds[i].to(task.x)).any(dim=0).flatten())
            for i in range(len(task))
        ]
        labels = torch.stack([partition.labels for partition in partitions])
        values, spread = torch.zeros_like(task.x), torch.zeros_like(task.x)
        baseline_outputs = torch.zeros(len(task), count, dtype=task.x.dtype, device=task.x.device)
        # explicands with the same number of groups share their coalitions
        for groups in sorted({partition.groups for partition in partitions}):
            same = [i for i, partition in enumerate(partitions) if partition.groups == groups]
            with torch.device("cpu"):  # where the generator is, whatever the user's default
                design = _Design.of(groups, self._samples(groups, int(task.rows[same[0]])), task.generator())
            task.progress.expect(len(same) * count * len(design.coalitions))
            block = max(1, MOST_OUTPUTS // (count * len(design.coalitions)))
            for start in range(0, len(same), block):
                indices = torch.tensor(same[start : start + block], device=task.x.device)
                worth = _worth(task, indices, backgrounds, labels, design.coalitions)
                baseline_outputs[indices] = worth[:, :, 0].to(baseline_outputs)
                for i, shares in zip(indices.tolist(), design.solve(worth), strict=True):
                    values[i] = partitions[i].divide(shares.mean(dim=0)).to(values).view_as(values[i])
                    if count > 1:
                        spread[i] = partitions[i].divide(shares.std(dim=0)).to(values).view_as(values[i])
        return Result(values=values, baseline_outputs=baseline_outputs, spread=spread if count > 1 else None)

    def _samples(self, groups: int, explicand: int) -> int:
        """Return the number of coalitions to evaluate, checked to suffice to distinguish the groups."""
        if groups > MOST_GROUPS:
            raise InputError(
                f"explicand {explicand} has {groups} groups, and KernelSHAP can solve for {MOST_GROUPS} at most. Make them "
                "larger: Grid(rows, columns), Superpixels(count), Windows(length) or a tensor of group numbers"
            )
        samples = 2 * groups + 2048 if self.samples is None else self.samples
        needed = min(2 * groups, 2**groups - 2)
        if samples < needed:
            raise InputError(
                f"samples={samples} cannot distinguish the {groups} groups of explicand {explicand}: that takes {needed} at "
                "least, and some thousands more to be accurate. Raise samples, or use fewer groups"
            )
        return samples


@dataclass(frozen=True)
class _Partition:
    """The groups of one explicand. Those equal to every reference have a value of zero and share the last number."""

    labels: Tensor  # from 0 to `groups`, (features,)
    groups: int  # the number of groups that differ from a reference

    @classmethod
    def of(cls, numbered: Tensor, differs: Tensor) -> _Partition:
        names, index = torch.unique(numbered, return_inverse=True)
        matters = torch.zeros(len(names), dtype=torch.bool, device=numbered.device)
        matters[index[differs]] = True
        groups = int(matters.sum())
        return cls(torch.where(matters, matters.cumsum(0) - 1, groups)[index], groups)

    def divide(self, shares: Tensor) -> Tensor:
        """Divide the shares of the groups (M,) equally among their features, (features,)."""
        labels = self.labels.to(shares.device)
        sizes = labels.bincount(minlength=self.groups + 1)[:-1]
        return torch.cat([shares / sizes, shares.new_zeros(1)])[labels]


@dataclass(frozen=True)
class _Design:
    """The coalitions of M groups that are evaluated: the empty one, the full one, and others with their weights."""

    coalitions: Tensor  # (S, M), booleans
    weights: Tensor  # (S − 2,)

    @classmethod
    def of(cls, groups: int, samples: int, generator: torch.Generator) -> _Design:
        """Enumerate the coalitions of each size with their complements (1 and M − 1, 2 and M − 2, …), from the outside in, as
        long as the kernel would assign a size at least as many draws as it has coalitions; draw the rest at random.

        The first size is always enumerated, so that the regression cannot be singular.
        """
        sizes = range(1, groups // 2 + 1)
        sides = {size: 1 if 2 * size == groups else 2 for size in sizes}
        mass = {size: sides[size] / (size * (groups - size)) for size in sizes}  # of the kernel, on all coalitions of a size
        members = [torch.zeros(1, groups, dtype=torch.bool), torch.ones(1, groups, dtype=torch.bool)]
        weights = [torch.zeros(0, dtype=torch.float64)]
        left = samples
        for size in sizes:
            inward = torch.tensor([mass[later] for later in sizes[size - 1 :]], dtype=torch.float64)
            number = comb(groups, size) * sides[size]
            if size > 1 and number > left * float(inward[0] / inward.sum()):
                coalitions, times = _draw(groups, size, inward, left // 2, generator)
                members.append(coalitions)
                weights.append(times / times.sum() * inward.sum())
                break
            chosen = torch.tensor(list(combinations(range(groups), size)))
            coalitions = torch.zeros(len(chosen), groups, dtype=torch.bool).scatter_(1, chosen, True)
            members += [coalitions, ~coalitions][: sides[size]]
            weights.append(torch.full((number,), mass[size] / number, dtype=torch.float64))
            left -= number
        return cls(torch.cat(members), torch.cat(weights))

    def solve(self, worth: Tensor) -> Tensor:
        """Return the shares of the groups (n, R, M) from the values of the coalitions, (n, R, S).

        The last share is the total minus the others, so the sum is exact whatever was drawn.
        """
        groups = self.coalitions.shape[1]
        empty, full, tried = worth[..., :1], worth[..., 1:2], worth[..., 2:]
        if groups < 2:
            return (full - empty).expand(*worth.shape[:2], groups)
        members = self.coalitions[2:].double()
        others, last = members[:, :-1] - members[:, -1:], members[:, -1]
        weighted = others * self.weights[:, None]
        right = (tried - empty - (full - empty) * last).flatten(0, 1) @ weighted
        shares = torch.cholesky_solve(right.T, torch.linalg.cholesky(others.T @ weighted)).T.reshape(*worth.shape[:2], -1)
        return torch.cat([shares, full - empty - shares.sum(dim=-1, keepdim=True)], dim=-1)


def _draw(groups: int, smallest: int, mass: Tensor, pairs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw random coalitions and their complements; return the distinct ones and how often each was drawn.

    Sizes from `smallest` up are drawn in proportion to their mass, by stratified rather than independent sampling.
    """
    places = (torch.arange(pairs) + torch.rand(pairs, dtype=torch.float64, generator=generator)) / max(1, pairs)
    edges = mass.cumsum(0)
    sizes = smallest + torch.searchsorted(edges[:-1].contiguous(), places * edges[-1], right=True)
    ranks = torch.rand(pairs, groups, dtype=torch.float64, generator=generator).argsort(dim=1).argsort(dim=1)
    coalitions = ranks < sizes[:, None]
    distinct, times = torch.unique(torch.cat([coalitions, ~coalitions]), dim=0, return_counts=True)
    return distinct, times.double()


def _worth(task: Task, indices: Tensor, backgrounds: Tensor, labels: Tensor, coalitions: Tensor) -> Tensor:
    """Return the outputs of explicands `indices` (n,) with each reference, for each coalition, (n, R, S), in float64."""
    # groups equal to every reference may count as present
    members = torch.cat([coalitions, coalitions.new_ones(len(coalitions), 1)], dim=1).to(task.x.device)

    def present(rows: Tensor, numbers: Tensor) -> Tensor:
        return members[numbers].gather(1, labels[rows]).view(len(rows), *task.x.shape[1:])

    return run_masked(task, indices, backgrounds, present, len(members))
