"""Strata: the contribution of each position, combined over several depths of the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ig2._engine.secants import POINTS_A_PAIR
from ig2._utils.patches import arrange_tokens
from ig2.errors import IG2Error, InputError, ModelError, describe
from ig2.methods.base import Method, Result
from ig2.methods.cam import MODES
from ig2.model import Layer, Model, as_model
from ig2.paths.base import per_sample
from ig2.references.base import References, as_references, draw_weighted
from ig2.result import Keep
from ig2.rules import complete
from ig2.task import Task

# Bounds on the longer side of a layer's grid: finer grids are noisy, coarser ones cannot separate an object from its
# surroundings. For photos of 224 pixels these are the strides 8 and 16.
FINEST, COARSEST = 40, 7
DEPTHS = 2
APART = 0.75  # the next grid is at most this share as long: one that only lost or gained a margin adds no information


@dataclass(frozen=True, eq=False)
class Strata(Method):
    """Strata: contributions of positions to the output, computed at several depths of the network and multiplied.

    Between an explicand x and a reference r, the multipliers m of `ig2.rules.secant` account for the change in the output at
    every layer h that the whole input passes through: Σ m ⊙ (h(x) − h(r)) = f(x) − f(r). Summed over channels, this is a
    map c of the layer's positions whose sum is f(x) − f(r). Early layers yield fine and noisy maps, late ones coarse and clean
    ones. A position counts as far as all depths agree that it contributes to the change, whose sign is ±:

        φ = (f(x) − E f(r)) · w / Σw,  w = Πₕ E max(0, ±cₕ),

    with means over the references; each map is interpolated linearly to the size of x and divided equally among x's channels.
    The values sum to the change, and all have its sign. One forward pass at x, one at r and one backward pass serve all
    depths, the same cost as `ig2.DeepSHAP`.

    Args:
        layers: modules of the network or their names, such as ("layer2", "layer3"), each of which runs once in a forward pass.
            By default the last layer on each of two grids, among the layers that the whole input passes through: the two
            finest grids with 7 to 40 positions along the longer side, preferring those that divide x evenly. The tokens of a
            vision transformer are laid out as its patches, without the class token.
        signed: whether to use the mean over depths of the maps E c instead, which keeps evidence against the class.

    Raises:
        InputError: if layers is not a list of modules or names, or on a call with x other than images or volumes.
        ModelError: on a call with a network without a suitable layer.

    >>> net = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1, bias=False)).eval()
    >>> net.load_state_dict({"0.weight": torch.ones(1, 1, 1, 1), "3.weight": torch.tensor([[1.0, 1.0, 1.0, -1.0]])})
    <All keys matched successfully>
    >>> Strata(layers=["1"])(net, torch.tensor([[[[3.0, 1.0], [-2.0, 1.0]]]]), references=0).values.round(decimals=3)
    tensor([[[[2.2500, 0.7500],
              [0.0000, 0.0000]]]])
    """

    layers: Sequence[str | nn.Module] | None = None
    signed: bool = False
    needs_references = True
    needs_places = True
    takes_own_gradients = True

    def __post_init__(self) -> None:
        if self.layers is None:
            return
        listed = isinstance(self.layers, Sequence) and not isinstance(self.layers, str) and len(self.layers) > 0
        if not listed or not all(isinstance(layer, (str, nn.Module)) for layer in self.layers):
            raise InputError(f"layers must be a list of modules or their names, or None, got {describe(self.layers)}")

    @property
    def complete(self) -> bool:
        """True: the values are shares of the change in the output."""
        return True

    def fits(self, model: Model | nn.Module | Callable[..., Any], x: Tensor) -> bool:
        """Return whether Strata works on a network as benchmarked: at two depths, or at the layers named.

        A vision transformer, whose only spatial layer cuts the image into patches, has a single depth.

        Args:
            model: the network, or the model returned by `ig2.wrap`.
            x: any image (1, C, H, W) of the size that the network takes.

        >>> net = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).eval()
        >>> Strata().fits(net, torch.zeros(1, 3, 4, 4))
        False
        """
        try:
            with self._open(as_model(model), x) as task:
                layers = self._find_layers(task)
                self.run_checked(task, as_references(0), Keep())
        except (IG2Error, RuntimeError):  # secants do not work on the network, for any reason
            return False
        return self.layers is not None or len(layers) == DEPTHS

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        if task.x.ndim not in (4, 5) or len(task.session.inputs.attributed) > 1:
            raise InputError(
                f"Strata needs images (B, C, H, W) or volumes, one tensor, got {describe(task.session.inputs.explicand)}. "
                "Features without places are for ig2.DeepSHAP, which has the same contributions at the input"
            )
        samples, weights = draw_weighted(self.require_references(references), task)
        count = samples.shape[1]
        shares = torch.full(samples.shape[:2], 1 / count) if weights is None else weights.cpu()
        layers = self._find_layers(task)
        maps: list[Tensor] = []  # for each layer, the contributions for and against the target, (B, 2, *places)
        baseline_outputs = torch.zeros(len(task), count, dtype=task.x.dtype, device=task.x.device)
        task.progress.expect(len(task) * count)

        def work(piece: range) -> None:
            pair = torch.arange(piece.start, piece.stop, device=task.x.device)
            rows, columns = pair // count, pair % count
            far = samples[rows.to(samples.device), columns.to(samples.device)].to(task.x)
            contributions, far_output = task.session.find_contributions(
                task.x[rows], far, task.rows[rows], task.target[rows], layers
            )
            for i, contribution in enumerate(contributions):
                places = self._check_places(layers[i], contribution, task.x).sum(dim=1)
                sides = torch.stack([places.clamp(min=0), (-places).clamp(min=0)], dim=1)
                if len(maps) == i:
                    maps.append(sides.new_zeros(len(task), *sides.shape[1:]))
                # one pair at a time in a fixed order, so that the mean does not depend on batching
                for row, column, values in zip(rows.tolist(), columns.tolist(), sides, strict=True):
                    maps[i][row] += float(shares[row, column]) * values
            baseline_outputs[rows, columns] = far_output.to(task.x.dtype)
            task.progress.advance(len(piece))

        task.batch.over(len(task) * count, work, POINTS_A_PAIR)
        mean_output = baseline_outputs.mean(dim=1) if weights is None else (weights * baseline_outputs).sum(dim=1)
        values = self._combine([_enlarge(places, task.x) for places in maps], task.output - mean_output)
        return Result(values.expand_as(task.x) / task.x.shape[1], baseline_outputs, weights=weights)

    def _find_layers(self, task: Task) -> list[Layer]:
        if self.layers is not None:
            return [task.session.find_places(layer)[0] for layer in self.layers]
        cuts = task.session.find_cuts(task.x.ndim)
        if not cuts:
            raise ModelError(
                "the network has no layer with places that all of the input passes through: name some that most of it does, "
                "Strata(layers=[...])"
            )
        fitting = [(grid, layer) for grid, layer in cuts if COARSEST <= max(grid) <= FINEST] or cuts[-1:]
        even = [(grid, layer) for grid, layer in fitting if not any(x % n for x, n in zip(task.x.shape[2:], grid, strict=True))]
        layers, longest = list[Layer](), float("inf")
        for grid, layer in even or fitting:  # from the finest on
            if max(grid) <= APART * longest:
                layers.append(layer)
                longest = max(grid)
        return layers[:DEPTHS]

    def _check_places(self, layer: Layer, contribution: Tensor, x: Tensor) -> Tensor:
        places = arrange_tokens(contribution, x.shape[2:])
        contribution = contribution if places is None else places
        if contribution.ndim != x.ndim:
            raise InputError(
                f"layer {layer.name!r} returns {describe(contribution)}, which is no map of the places of {describe(x)}: name "
                "another one, Strata(layers=[...])"
            )
        return contribution

    def _combine(self, maps: Sequence[Tensor], change: Tensor) -> Tensor:
        """Combine the maps of the layers, each (B, 2, *places), into one, (B, 1, *places), that sums to the change (B,)."""
        stack = torch.stack(list(maps))
        signed = stack[:, :, :1] - stack[:, :, 1:]
        mean = torch.stack([_divide(places) for places in signed]).mean(dim=0)
        if not self.signed:
            falls = per_sample(change < 0, mean)
            agreed = torch.stack([_divide(torch.where(falls, pair[:, 1:], pair[:, :1])) for pair in stack]).prod(dim=0)
            # if no position contributes to the change at every depth, the mean decides
            side = torch.where(falls, -1.0, 1.0).to(mean)
            nowhere = per_sample(agreed.flatten(1).sum(dim=1) == 0, agreed)
            mean = side * torch.where(nowhere, (mean * side).clamp(min=0), agreed)
        return complete(_divide(mean) * per_sample(change.abs(), mean), change, torch.ones_like(mean))


def _enlarge(places: Tensor, x: Tensor) -> Tensor:
    """Interpolate maps (B, n, *places) linearly to the size of x, in x's precision."""
    return functional.interpolate(places.to(x), x.shape[2:], mode=MODES[x.ndim - 2], align_corners=False)


def _divide(places: Tensor) -> Tensor:
    """Divide maps (B, ...) by the sum of their absolute values, so that those of several layers can be multiplied."""
    total = places.abs().flatten(1).sum(dim=1)
    return places / per_sample(total.where(total > 0, 1.0), places)
