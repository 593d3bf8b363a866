"""The result of a method: the attribution, what it explains, and how far it can be trusted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ig2._engine.activations import ACTIVATION, join_inputs
from ig2._engine.inputs import Fixed, Structured
from ig2._engine.private import tree_iter, tree_map_only
from ig2._utils.blur import check_free, check_sigma, find_space, smooth, spread_places
from ig2._utils.files import check_regular
from ig2._utils.patches import arrange_tokens
from ig2.errors import InputError, MissingExtraError, describe, format_count, import_extra
from ig2.names import ColumnValues, Names, name_output
from ig2.targets import Target

FORMAT = "ig2.attribution/1"
# Above this share of f(x) − f(baseline), a residual is worth a word.
LARGE_RESIDUAL = 0.1
# Below this, it is rounding.
EXACT = 1e-3
# Below this the gradient predicts so little that the verdict says so.
LITTLE_TRUST = 0.5
# Below this share of the distance to their references, paths have not arrived, and the verdict says so.
# Distances are squared by default: with a quarter of D left, half of the way between the representations is.
LITTLE_ARRIVAL = 0.75
# Below this share of the distance, a path that moved got no nearer.
HARDLY_NEARER = 0.005
# From here on a path that stands still has arrived.
ARRIVED = 0.99
# Letters of a name that `print` shows.
LONGEST_TEXT = 60

Median = Literal["trust", "arrival", "stuck", "finished"]
# What is known of each path, and told of each explicand by its median over references.
MEDIANS: tuple[Median, ...] = ("trust", "arrival", "stuck", "finished")

Values = TypeVar("Values", Tensor, Structured)
# Of the fields with x's shape: tensors of the engine's layout in a `Result`, in x's structure in an `Attribution`.
LIKE_X = {"like_x": True}
# Of the fields with something for each reference, (B, R, ...).
OF_REFERENCES = {"of_references": True}
# Of the fields that do not have a row for each explicand.
UNROWED = {"unrowed": True}


@dataclass(frozen=True)
class Cost:
    """The cost of a call, measured or estimated."""

    seconds: float
    """Wall-clock time in seconds."""
    points: int
    """The number of points the network saw at once."""
    peak_bytes: int | None
    """Peak memory of the device, or of the process on a CPU. None if unknown."""
    peak_is_own: bool
    """Whether this call reached that peak. Otherwise the peak is from before, and this call needed no more."""
    forwards: int | None = None
    """The number of points the network was run at, over all explicands. The checks of the network before the call, and those
    of a faster copy, are not counted. None in an estimate."""
    gradients: int | None = None
    """The number of gradients with respect to a point: of the output, of a distance, or with other slopes. None in an
    estimate."""

    def __str__(self) -> str:
        text = f"{self.seconds:.3g} s, {self.points} points at once"
        if self.gradients is not None:
            text = f"{text}, {format_count(self.gradients, 'gradient')}"
        if self.peak_bytes is not None:
            text += f", {'' if self.peak_is_own else 'at most '}{self.peak_bytes / 2**20:,.0f} MiB"
        return text


@dataclass(frozen=True, eq=False)
class _Fields(Generic[Values]):
    """The fields a method computes. Each is passed on, moved, sliced, joined, saved and loaded without further code."""

    values: Values = field(metadata=LIKE_X)
    """The contribution of each feature, in x's shape; the mean over references."""
    baseline_outputs: Tensor | None = field(default=None, metadata=OF_REFERENCES)
    """f(baseline) for each reference, (B, R). None for methods without a baseline."""
    spread: Values | None = field(default=None, metadata=LIKE_X)
    """Standard deviation of the values over references, in x's shape. None with a single reference."""
    gradcf: Values | None = field(default=None, metadata=LIKE_X | OF_REFERENCES)
    """The end of GradPath for each reference, (B, R, ...)."""
    gradcfe: Values | None = field(default=None, metadata=LIKE_X)
    """x − GradCF, the mean over references, in x's shape."""
    per_reference: Values | None = field(default=None, metadata=LIKE_X | OF_REFERENCES)
    """The attribution for each reference, (B, R, ...), with `per_reference=True`."""
    output_curve: Tensor | None = field(default=None, metadata=OF_REFERENCES)
    """f along each path from the explicand to the baseline, (B, R, k + 1), with `curves=True`."""
    distance_curve: Tensor | None = field(default=None, metadata=OF_REFERENCES)
    """The distance to the reference's representation along each GradPath, (B, R, k + 1), with `curves=True`."""
    steps_taken: Tensor | None = field(default=None, metadata=OF_REFERENCES)
    """The number of steps each GradPath took, (B, R): fewer than requested if it converged, or if it stayed in place because
    the distance had no gradient."""
    trust: Tensor | None = field(default=None, metadata=OF_REFERENCES)
    """How well the gradient predicted the output along each path, 0 to 1, (B, R); with the rule `blended`, the default of
    `IG2`. Near 1, values are signed amounts; at 0 they are shares, and the sign of a single feature means nothing."""
    arrival: Tensor | None = field(default=None, metadata=OF_REFERENCES)
    """1 − D(end of the path) / D(explicand), (B, R), with D the distance to the reference's representation that GradPath
    descends: 1 if the path arrived, 0 if it got no nearer, negative if it ended farther away. Values explain the change up to
    the end of the path, so read `trust` together with `arrival`."""
    stuck: Tensor | None = field(default=None, metadata=OF_REFERENCES)
    """Whether each GradPath got stuck before its end because the distance had no gradient there, (B, R)."""
    finished: Tensor | None = field(default=None, metadata=OF_REFERENCES)
    """The share of the distance that a straight line covered at the end of each path, (B, R), with `IG2(fallback="straight")`;
    0 if GradPath arrived by itself."""
    reference_outputs: Tensor | None = field(default=None, metadata=OF_REFERENCES)
    """f(reference) for each reference of a GradPath, (B, R). If a path arrived, its f(baseline) is close to it."""
    paths: Values | None = field(default=None, metadata=LIKE_X | OF_REFERENCES)
    """Every vertex of every path, (B, R, k + 1, ...), with `paths=True`."""
    weights: Tensor | None = field(default=None, metadata=OF_REFERENCES)
    """The weight of each reference in the mean, (B, R); each row sums to one. None if all are equal."""

    @classmethod
    def join_references(cls, parts: Sequence[Self]) -> dict[str, Any]:
        """Return the fields with something for each reference, joined from attributions to different references; by name."""
        names = [f.name for f in fields(cls) if f.metadata.get("of_references")]
        pieces = {name: [getattr(part, name) for part in parts] for name in names}
        return {name: _concatenate(each, dim=1) for name, each in pieces.items() if all(piece is not None for piece in each)}

    def redistribute(self, move: Callable[[Tensor], Tensor]) -> Self:
        """Move the values, and those of each reference, between features by a linear map.

        The spread cannot be moved: it is computed again from `per_reference` if that was kept, and otherwise dropped.

        Args:
            move: a linear function from values in x's shape to the moved values.

        Returns:
            A copy with the moved values.
        """
        each = None
        if self.per_reference is not None:
            each = tree_map_only(
                Tensor, lambda t: torch.stack([move(values) for values in t.unbind(1)], dim=1), self.per_reference
            )
        spread = None
        if self.spread is not None and each is not None:
            from ig2._engine.integrate import average_references  # which imports this module

            spread = tree_map_only(Tensor, lambda t: average_references(t, self.weights)[1], each)
        return replace(self, values=tree_map_only(Tensor, move, self.values), per_reference=each, spread=spread)


@dataclass(frozen=True, eq=False)
class Result(_Fields[Tensor]):
    """The return value of a method's `run`, in the engine's layout: one tensor, whatever the structure of x.

    Only `values` is required.
    """

    output: Tensor | None = None
    """f(x) as computed along the paths, (B,); by default the output of the forward pass before them. In half precision f(x)
    depends on the batch, and a complete sum is complete for the batch in which its path was followed."""

    def unpack(self, structure: Callable[[Tensor], Structured]) -> dict[str, Any]:
        """Return the fields that are not None, by name; those with x's shape are in x's structure."""
        present = [(f, value) for f in fields(self) if (value := getattr(self, f.name)) is not None]
        return {f.name: structure(value) if f.metadata.get("like_x") else value for f, value in present}


@dataclass(frozen=True, eq=False, kw_only=True)
class Attribution(_Fields[Structured]):
    """Attributions of B explicands. Every tensor has one row per explicand.

    If x was a tuple or dict of tensors, so are the fields with x's shape.

    >>> import ig2, torch
    >>> net = lambda x: x @ torch.tensor([[2.0], [-1.0]])
    >>> attribution = ig2.IntegratedGradients()(net, torch.tensor([[3.0, 4.0]]))
    >>> attribution.values.round(decimals=3), attribution.verdict
    (tensor([[ 6., -4.]]), 'sums to the change in the output')
    """

    explicand: Structured
    """The explicands, as they were passed."""
    target: Tensor
    """The class explained, (B,)."""
    output: Tensor
    """f(x): the score of that class, (B,), minus that of the classes it is explained against, if any."""
    against: Tensor | None = None
    """The class explained against, (B,), or several, (B, K); None if the output is that of the target alone."""
    question: Target | None = field(default=None, metadata=UNROWED)
    """The target of `ig2.targets` that is explained, if it is not a class; `target` is then 0."""
    fixed: dict[int | str, Any] | None = None
    """The inputs that were `ig2.Fixed`, by position or name; saved only if all of them are tensors."""
    held: dict[int | str, Tensor] | None = None
    """Masks (B, ...) of the features of attributed inputs that were `ig2.Fixed`, by position or name."""
    settings: dict[str, Any] = field(default_factory=dict, metadata=UNROWED)
    """How it was computed: the method and its parts, the seed, the versions."""
    names: Names | None = field(default=None, metadata=UNROWED)
    """Names of the explicands, their words or columns, and the outputs; from `Subject.explain`."""
    cost: Cost | None = field(default=None, metadata=UNROWED)
    """The cost of the call. Not kept in files, nor when attributions are joined."""

    def __len__(self) -> int:
        return len(self.target)

    @property
    def x(self) -> Any:
        """The x that the method was called with: the explicands and the fixed inputs."""
        fixed, held = self.fixed or {}, self.held or {}

        def mark(key: int | str, tensor: Tensor) -> Tensor | Fixed:
            return Fixed(tensor, held[key]) if key in held else tensor

        if isinstance(self.explicand, Tensor):
            if "at" in self.settings:
                return join_inputs(mark(ACTIVATION, self.explicand), fixed)
            return mark(0, self.explicand)
        kept = {key: Fixed(value) for key, value in fixed.items()}
        if isinstance(self.explicand, dict):
            return {**{key: mark(key, tensor) for key, tensor in self.explicand.items()}, **kept}
        others = iter(self.explicand)
        places = range(len(self.explicand) + len(fixed))
        return tuple(kept[place] if place in kept else mark(place, next(others)) for place in places)

    def unwrap(self, key: str, settings: dict[str, Any]) -> Attribution:
        """Return a copy with the tensor `key` in place of the dict that holds only it, and with settings added.

        Args:
            key: the name of the tensor.
            settings: settings to add or replace.
        """
        shaped = ["explicand", *(f.name for f in fields(self) if f.metadata.get("like_x"))]
        tensors = {name: value[key] for name in shaped if isinstance(value := getattr(self, name), dict)}
        return replace(self, **tensors, settings=self.settings | settings)

    def on_input(self, arrange: Callable[[Tensor], Tensor] | None = None) -> Attribution:
        """Turn an attribution to a layer into a map over the positions of the input, which can be drawn on it.

        The values of a layer's activation (B, channels, *positions) are summed over its channels. The sum at each position is
        spread over the surrounding pixels by linear interpolation, and divided equally among x's channels, so sums, residual
        and verdict are unchanged. With `ig2.InputXGradient` this is HiResCAM [Draelos 2020], up to the way a map is enlarged.

        Args:
            arrange: a function that brings values in another order to (B, channels, *positions), such as
                `lambda t: t[:, 1:].unflatten(1, (14, 14)).movedim(-1, 1)`. By default the tokens (B, tokens, channels) of a
                vision transformer are laid out as its patches, without the tokens in front of them, such as the class token.
                Values that it drops are missing from the sum.

        Returns:
            An attribution of x, in its shape.

        Raises:
            InputError: if this is not an attribution to a layer, or the layer has no positions of x.

        >>> import ig2, torch
        >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(36, 2))
        >>> attribution = ig2.IntegratedGradients()(net.eval(), torch.rand(1, 1, 8, 8), at="1")
        >>> attribution.values.shape, attribution.on_input().values.shape
        (torch.Size([1, 4, 3, 3]), torch.Size([1, 1, 8, 8]))
        """
        inputs = [value for value in (self.fixed or {}).values() if isinstance(value, Tensor)]
        if "at" not in self.settings or len(inputs) != 1:
            raise InputError("this is no attribution to a layer of a network of one input: pass at= to the method's call")
        (x,) = inputs

        def move(values: Tensor) -> Tensor:
            places = arrange_tokens(values, x.shape[2:]) if arrange is None else arrange(values)
            places = values if places is None else places
            if places.ndim != x.ndim or places.ndim < 3 or any(map(int.__gt__, places.shape[2:], x.shape[2:])):
                raise InputError(
                    f"the values are {describe(places)}, which is no map of the places of {describe(x)}: name a layer with "
                    "places, or arrange= them"
                )
            return spread_places(places.sum(dim=1, keepdim=True), x.shape[2:]).expand(-1, x.shape[1], *x.shape[2:]) / x.shape[1]

        settings = {name: value for name, value in self.settings.items() if name != "at"} | {"mapped_from": self.settings["at"]}
        bare = replace(self, gradcf=None, gradcfe=None, paths=None, fixed=None, held=None, explicand=x, settings=settings)
        return bare.redistribute(move)

    @property
    def explained(self) -> list[str]:
        """A description of what is explained for each explicand, such as "class 3 rather than class 7"."""
        name = name_output if self.names is None else self.names.name_output
        if self.question is not None:
            return [self.question.describe(row, name) for row in range(len(self))]
        names = [name(label) for label in self.target.tolist()]
        if self.against is None:
            return names
        plain = self.names is None or self.names.classes is None
        texts = []
        for target_name, labels in zip(names, self.against.reshape(len(self), -1).tolist(), strict=True):
            several = f"classes {', '.join(map(str, labels))}" if plain else ", ".join(map(name, labels))
            texts.append(f"{target_name} rather than {name(labels[0]) if len(set(labels)) == 1 else f'the mean of {several}'}")
        return texts

    @property
    def baseline_output(self) -> Tensor | None:
        """f(baseline), the weighted mean over references, (B,). None for methods without a baseline."""
        if self.baseline_outputs is None or self.weights is None:
            return None if self.baseline_outputs is None else self.baseline_outputs.mean(dim=1)
        return (self.weights * self.baseline_outputs).sum(dim=1)

    @property
    def residual(self) -> Tensor | None:
        """Σφ − (f(x) − f(baseline)), (B,): the difference between the sum of the attribution and the change in the output.

        None for methods that make no claim about that sum, such as a plain gradient.
        """
        if self.baseline_output is None:
            return None
        return self.total - (self.output - self.baseline_output)

    @property
    def total(self) -> Tensor:
        """The sum of each explicand's values, (B,)."""
        return torch.stack([row.sum(dim=1) for row in _flatten(self.values)]).sum(dim=0).to(self.output.dtype)

    @property
    def relative_residual(self) -> Tensor | None:
        """|residual| / |f(x) − f(baseline)|, (B,); 0 if the residual is within rounding error."""
        residual = self.residual  # once: it sums all values
        if residual is None or self.baseline_output is None:
            return None
        change = (self.output - self.baseline_output).abs()
        missing = residual.abs()
        # two outputs that differ in their last digits only have not changed: what is missing then is rounding
        rounding = 8 * torch.finfo(self.output.dtype).eps * (self.output.abs() + self.baseline_output.abs())
        return torch.where(missing <= rounding, 0.0, missing / change)

    def median(self, name: Median) -> Tensor | None:
        """Return the median of a field over the references of positive weight, (B,); for `stuck`, 1 if most are stuck.

        Args:
            name: "trust", "arrival", "stuck" or "finished".

        Returns:
            The medians, or None if the method does not compute the field.
        """
        values: Tensor | None = getattr(self, name)
        if values is None or not values.numel():
            return None
        values = values.to(self.output.dtype) if values.dtype == torch.bool else values
        return (values if self.weights is None else values.where(self.weights > 0, torch.nan)).nanmedian(dim=1).values

    @property
    def verdict(self) -> str:
        """The meaning of the residual, the trust and the arrival, in a sentence."""
        relative = self.relative_residual
        if relative is None:
            if len(self) and all(bool((row == 0).all()) for row in _flatten(self.values)):
                if self._arrival_verdict:
                    return "explains nothing" + self._arrival_verdict
                return (
                    "is zero everywhere, since the gradient at x is (units asleep, or saturated?), or x itself: try a method "
                    "with references (ig2.ExpectedIG)"
                )
            return "has no baseline, so its sum stands for nothing" + self._arrival_verdict
        if not len(self):
            return "explains nothing: it is empty"
        zero = (relative == 0) & torch.stack([(row == 0).all(dim=1) for row in _flatten(self.values)]).all(dim=0)
        if zero.all():
            if self._arrival_verdict:
                return "explains nothing" + self._arrival_verdict
            return f"has nothing to explain, since {self._sameness_verdict}"
        # NaN counts as wrong
        wrong, exact = ~(relative < LARGE_RESIDUAL), relative < EXACT
        if 2 * int(wrong.sum()) > len(self):
            advice = (
                "the network gave other scores for the same points, so look for state or randomness in its forward pass"
                if self.settings.get("complete")
                else "read it as a ranking, or use a complete rule (ig2.rules.blended, scaled) or more gradients a segment "
                "(ig2.rules.gauss)"
            )
            of = "" if wrong.all() else f" for {int(wrong.sum())} of {len(self)} explicands"
            off = _describe_worst(relative)
            return f"does NOT sum to the change in the output{of} ({off}): {advice}{self._arrival_verdict}"
        if exact.all():
            but = " by construction" if self.settings.get("complete") else ""
        else:
            but = "" if exact[~wrong].all() else f" within {float(relative[~wrong].max()):.1%}"
            if not wrong.any() and exact.any():
                count = int((~exact).sum())
                but += f" ({count} of {len(self)} explicands {'is' if count == 1 else 'are'} off by {EXACT:.1%} or more)"
        if wrong.any():
            but += f", but for {int(wrong.sum())} of {len(self)} explicands, {_describe_worst(relative[wrong])}"
        if zero.any():
            but += f"; has nothing to explain for {int(zero.sum())} of {len(self)}, whose output is that at their baselines"
        return f"sums to the change in the output{but}{self._trust_verdict}{self._arrival_verdict}"

    @property
    def _trust_verdict(self) -> str:
        """Whether to believe the signs; empty if the rule computes no trust."""
        trust = self.median("trust")
        if trust is None:
            return ""
        little = trust < LITTLE_TRUST
        if not little.any():
            return "; its signs can be believed too, since the gradient predicts the output"
        of = f" for {int(little.sum())} of {len(self)} explicands" if not little.all() else ""
        return f"; believe its strength, not its signs{of}, since the gradient does not predict the output"

    @property
    def _arrival_verdict(self) -> str:
        """A note on paths that did not arrive at their references; empty if they did."""
        typical = self.median("arrival")
        if typical is None or self.steps_taken is None:
            return ""
        stuck = self.median("stuck")
        stopped = torch.zeros_like(typical, dtype=torch.bool) if stuck is None else (stuck > 0) & (typical < ARRIVED)
        short = (typical < LITTLE_ARRIVAL) | stopped
        if not short.any():
            return self._finish_verdict
        of = f" for {int(short.sum())} of {len(self)} explicands" if len(self) > 1 and not short.all() else ""
        advice = (
            'ig2.IG2(fallback="straight"), another layer (ig2.wrap(net, representation=...)), or a straight line '
            "(ig2.ExpectedIG)"
        )
        left = f"{1 - float(typical[short].median()):.0%} of the distance to the reference left"
        if (self.steps_taken[short] == 0).double().mean() > 0.5:
            return (
                f"; paths did not move{of}, since the distance to the reference has no gradient at x (units asleep there?): "
                f"try {advice}"
            )
        if (typical[short] < 0).double().mean() > 0.5:
            return (
                f"; paths ended beyond the reference, farther from it than they began{of}, so the values do not explain the "
                f"contrast: try more and shorter steps, ig2.paths.LineSearch(), {advice}"
            )
        if stopped[short].double().mean() > 0.5:
            return (
                f"; paths got stuck where the distance has no gradient{of}, with {left}, so the values do not explain the "
                f"whole contrast: try {advice}"
            )
        if float(typical[short].median()) < HARDLY_NEARER:
            return (
                f"; paths got no nearer to the reference{of}, so the values do not explain the contrast: try more or longer "
                f"steps, ig2.paths.LineSearch(), {advice}"
            )
        return (
            f"; paths ended on the way{of}, with {left}, so the values do not explain the whole contrast: try more or longer "
            f"steps, ig2.paths.LineSearch(), {advice}"
        )

    @property
    def _finish_verdict(self) -> str:
        """How much of the paths was a straight line; empty if GradPath arrived by itself."""
        if self.finished is None or not (self.finished > 0).any():
            return ""
        lines = self.finished > 0
        left = f"{float(self.finished[lines].median()):.0%} of the distance left"
        return f"; a straight line finished {int(lines.sum())} of {lines.numel()} paths, which had {left}"

    @property
    def _sameness_verdict(self) -> str:
        """Why the output at the baselines equals that at x, if no path is the cause."""
        if self.reference_outputs is None:
            return "the output at x is that at its baselines: contrast it with others (references=), or explain another output"
        where = self.settings.get("representation") or "representation"
        if torch.allclose(self.reference_outputs, self.output[:, None].expand_as(self.reference_outputs)):
            return (
                f"the output at x is that at its references, and no path leads from one to the other, since the {where} is "
                "the same too (are the references x itself, or is it asleep at both?)"
            )
        return (
            f"the {where}, in which paths are found, is the same at x and its references while the output is not: name another "
            "layer (ig2.wrap(net, representation=...)), or use a straight line (ig2.ExpectedIG)"
        )

    # -- scale ---------------------------------------------------------------------------------------------------------

    def smooth(self, sigma: float, axes: Sequence[int] | None = None) -> Attribution:
        """Blur the values and keep their sum: the same attribution on a larger scale.

        φ′ = G(σ) ∗ φ along each spatial axis, where G(σ) is a Gaussian cut off at four σ. The values are mirrored at the edges
        (… b a | a b …), so each is shared among its neighbours and none is lost: sums, residual and verdict are unchanged.
        The attribution for each reference is blurred too. If those were kept, the spread is computed from them; otherwise it
        is dropped.

        Args:
            sigma: the standard deviation in pixels; 0 changes nothing, and one larger than the image leaves only its mean.
            axes: the spatial axes of x; by default the last two of images (B, C, H, W), the last three of volumes, and the
                time axis of signals with names.

        Returns:
            An attribution with `settings["smoothed"]`, the σ of all blurs so far.

        Raises:
            InputError: if x has no spatial axes, such as texts and tables, or has features that are `ig2.Fixed`.

        >>> import ig2, torch
        >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)).eval()
        >>> attribution = ig2.IntegratedGradients()(net, torch.rand(1, 1, 8, 8))
        >>> torch.allclose(attribution.smooth(2.0).total, attribution.total, atol=1e-6)
        True
        """
        check_sigma(sigma)
        time = None if self.names is None else self.names.time_axis
        if self.names is not None and self.names.units is not None and time is None:
            raise InputError(
                "this is an attribution of words or columns, which have no neighbours to blur over: sum_units() "
                "has a number for each word or column"
            )
        if axes is None and time is not None:
            axes = (time,)
        elif axes is None and self.names is not None and self._one_tensor(self.values).ndim == 3:
            axes = (-2, -1)  # of a grey image
        check_free(self.held)
        if sigma == 0:
            return self
        blurred = self.redistribute(lambda values: smooth(values, sigma, find_space(values, axes)))
        total = math.hypot(sigma, self.settings.get("smoothed", 0.0))
        return replace(blurred, settings={**self.settings, "smoothed": total})

    # -- parts and wholes ----------------------------------------------------------------------------------------------

    @classmethod
    def _list_row_fields(cls) -> list[str]:
        """Return the names of the fields with a row for each explicand."""
        return [f.name for f in fields(cls) if not f.metadata.get("unrowed")]

    def _map(self, change: Callable[[Tensor], Tensor]) -> Attribution:
        return replace(self, **{name: tree_map_only(Tensor, change, getattr(self, name)) for name in self._list_row_fields()})

    def __getitem__(self, which: int | slice | Sequence[int] | Sequence[bool] | Tensor) -> Attribution:
        """Select explicands by an index, a slice, several indices or a mask. A single index keeps the batch axis."""
        rows = torch.arange(len(self), device="cpu")
        if isinstance(which, slice):
            rows = rows[which]
        else:
            wanted = torch.as_tensor(which, device="cpu")
            if wanted.numel() == 0:
                wanted = wanted.long()
            if wanted.ndim > 1 or wanted.is_floating_point() or (wanted.ndim == 0 and wanted.dtype == torch.bool):
                raise InputError(f"index an Attribution by a number, a slice, numbers or a mask; got {describe(which)}")
            try:
                rows = rows[wanted].reshape(-1)
            except IndexError as error:
                raise IndexError(f"explicand {describe(which)} of {len(self)}") from error
        part = self._map(lambda tensor: tensor[rows.to(tensor.device)])
        if self.question is not None:
            part = replace(part, question=self.question.take(rows))
        return part if self.names is None else replace(part, names=self.names[rows.tolist()])

    @classmethod
    def join(cls, parts: Sequence[Attribution]) -> Attribution:
        """Join several attributions into one of all their explicands.

        Raises:
            InputError: if they are not from the same method on the same model.
        """
        if not parts:
            raise InputError("nothing to join: give at least one Attribution")
        first = parts[0]
        for other in parts[1:]:
            for key in ("method", "parts", "model"):
                value, other_value = first.settings.get(key), other.settings.get(key)
                if value != other_value:
                    raise InputError(f"cannot join attributions that were not made alike: {key} {value} and {other_value}")
        settings = dict(first.settings)
        for key in settings:  # such as the seed of each: what differs is listed
            values = [part.settings.get(key) for part in parts]
            if any(value != values[0] for value in values):
                settings[key] = values
        joined: dict[str, Any] = {}
        for name in (*cls._list_row_fields(), "names"):
            pieces = [getattr(part, name) for part in parts]
            if all(piece is None for piece in pieces):
                continue
            if any(piece is None for piece in pieces):
                raise InputError(f"cannot join: some have {name} and others do not")
            try:
                joined[name] = Names.join(pieces) if name == "names" else _concatenate(pieces)
            except InputError:
                raise
            except (RuntimeError, TypeError, KeyError, ValueError) as error:
                raise InputError(f"cannot join: {name} differ in shape: {describe(pieces)}") from error
        questions = [part.question for part in parts]
        if any(question is not None for question in questions):
            joined["question"] = Target.join([(question, len(part)) for question, part in zip(questions, parts, strict=True)])
        return cls(**joined, settings=settings)

    def to(self, device: torch.device | str) -> Attribution:
        """Return the attribution on another device."""
        return self._map(lambda tensor: tensor.to(device=device))

    # -- files ---------------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything except the cost to a safetensors file; settings and names go into its header."""
        safetensors = import_extra("safetensors.torch", "io", "saving an attribution")
        if not Path(path).absolute().parent.is_dir():
            raise FileNotFoundError(f"no folder {Path(path).parent} to save in")
        tensors: dict[str, Tensor] = {}
        structure: dict[str, Any] = {}
        for name in self._list_row_fields():
            value = getattr(self, name)
            if value is None or (name == "fixed" and not all(isinstance(item, Tensor) for item in value.values())):
                continue
            if isinstance(value, Tensor):
                tensors[name] = value
            else:
                structure[name] = list(value) if isinstance(value, dict) else list(range(len(value)))
                tensors.update({f"{name}/{key}": value[key] for key in structure[name]})
        # clone: safetensors refuses tensors that share memory, as an explicand and a view of it do
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        settings = json.dumps(self.settings, default=str)
        header = {"format": FORMAT, "settings": settings, "structure": json.dumps(structure)}
        if self.question is not None:
            content, held = self.question.pack()
            header["question"] = json.dumps(content, default=str)
            tensors |= {name: tensor.detach().cpu().contiguous().clone() for name, tensor in held.items()}
        if self.names is not None:
            header["names"] = json.dumps(self.names.to_json())
        # by hand: `save_file` makes files nobody but their owner may read, and hides why a write failed
        Path(path).write_bytes(safetensors.save(tensors, metadata=header))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Attribution:
        """Read a file that `save` wrote.

        Raises:
            InputError: if the file holds no attribution.
        """
        safe_open = import_extra("safetensors", "io", "loading an attribution").safe_open
        check_regular(path)
        try:
            with safe_open(path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        except OSError:
            raise
        except Exception as error:  # safetensors has one exception for every way a file can be broken
            raise InputError(f"{path} is not a safetensors file: {error}") from error
        if header.get("format") != FORMAT:
            raise InputError(f"{path} holds no attribution: its format is {header.get('format')!r}, expected {FORMAT!r}")
        try:
            for name, keys in json.loads(header["structure"]).items():
                pieces = [tensors.pop(f"{name}/{key}") for key in keys]
                is_tuple = isinstance(keys[0], int) and name not in ("fixed", "held")
                tensors[name] = tuple(pieces) if is_tuple else dict(zip(keys, pieces, strict=True))
            question = Target.unpack(json.loads(header["question"]), tensors) if "question" in header else None
            attribution = cls(**tensors, settings=json.loads(header["settings"]), question=question)
            return attribution.with_names(Names.from_json(json.loads(header["names"]))) if "names" in header else attribution
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{path} says it holds an attribution, and does not: {error}") from error

    # -- names ---------------------------------------------------------------------------------------------------------

    def with_names(self, names: Names) -> Attribution:
        """Return the attribution with the names of its explicands.

        Raises:
            InputError: if the names are for a different number of explicands.
        """
        if len(names) != len(self):
            raise InputError(f"the names are of {len(names)} explicands, the attribution is of {len(self)}")
        return replace(self, names=names)

    @property
    def units(self) -> list[tuple[str, ...]]:
        """The units that `sum_units` sums over: each explicand's words or columns, or its features by position."""
        if self.names is not None and self.names.units is not None:
            return list(self.names.units)
        return [tuple(name_positions(self._one_tensor(self.values).shape[1:]))] * len(self)

    def sum_units(self, values: Structured | None = None) -> list[NDArray[np.float64]]:
        """Sum the values of each explicand over each of its `units`; the sums add up to `total`.

        Args:
            values: other values to sum, in the shape of the attribution's; by default its own.

        Returns:
            For each explicand, one number per unit.

        Raises:
            InputError: if several tensors are attributed.
        """
        tensor = self._one_tensor(self.values if values is None else values)
        if self.names is not None and self.names.units is not None:
            return self.names.sum_units(tensor)
        return list(tensor.detach().cpu().double().flatten(1).numpy())

    def tabulate(self) -> ColumnValues:
        """Return a number for each row and column, with the contents of its cell, as `ig2.plots.beeswarm` and others draw them.

        Returns:
            Columns by name if the table has names, by position for other rows of features (B, F).

        Raises:
            InputError: if the explicands are not rows of one table, such as images and texts.

        >>> import ig2, torch
        >>> columns = ig2.Gradient()(torch.nn.Linear(2, 3), torch.eye(2), target=1).tabulate()
        >>> columns.names, columns.cells
        (('feature 0', 'feature 1'), [['1', '0'], ['0', '1']])
        """
        names, values = self.names, self._one_tensor(self.values)
        if (names is not None and names.view != "bars") or (names is None and values.ndim != 2):
            what = f"inputs shown as {names.view}" if names is not None else f"samples {tuple(values.shape[1:])}"
            raise InputError(f"columns are those of rows of a table (B, F), and this attribution is of {what}")
        cells: Sequence[Sequence[str]] = () if names is None or names.cells is None else names.cells
        if not cells:
            rows = self._one_tensor(self.explicand).detach().cpu().double().tolist()
            cells = [[f"{number:.6g}" for number in row] for row in rows]
        outputs = [None if t is None else t.detach().cpu().double().numpy() for t in (self.output, self.baseline_output)]
        samples = tuple(f"row {i}" for i in range(len(self))) if names is None else names.samples
        columns = self.units[0] if len(self) else ()
        numbers = np.stack(self.sum_units()) if len(self) else np.zeros((0, 0))
        return ColumnValues(columns, samples, numbers, cells, tuple(self.explained), tuple(self.target.tolist()), *outputs)

    def _one_tensor(self, values: Structured) -> Tensor:
        tensors = _tensors(values)
        if len(tensors) != 1:
            raise InputError(f"expected attributions of a single tensor, this one is of {len(tensors)}")
        return tensors[0]

    def to_frame(self, per: Literal["unit", "input"] = "unit") -> Any:
        """Return a pandas DataFrame with a row for each word, column or feature of an explicand, or for each explicand.

        Args:
            per: "unit" for a row per word, column or feature; "input" for a row per explicand, useful for many images.

        Returns:
            Per unit, the columns are `input`, `explained`, `unit` and `value`; for tables also `cell`, the contents of the
            column, and `would_become`, its contents in the counterfactual, both in the user's units. Per input, they are
            `input`, `explained`, `prediction` if it is known, and, as far as the method computes them, `output`,
            `baseline_output`, `total`, `residual`, `relative_residual`, and the medians over references of `trust`,
            `arrival`, `stuck` and `finished`.

        Raises:
            InputError: if several tensors are attributed, or `per` has another value.

        >>> import ig2, torch
        >>> frame = ig2.Gradient()(torch.nn.Linear(4, 3), torch.eye(4)[:2], target=1).to_frame(per="input")
        >>> list(frame.columns), len(frame)
        (['input', 'explained', 'output', 'total'], 2)
        """
        if per not in ("unit", "input"):
            raise InputError(f"per must be 'unit' or 'input', got {describe(per)}")
        pandas = import_extra("pandas", "table", "to_frame()")
        names = self.names
        if per == "input":
            return pandas.DataFrame(self._describe_inputs())
        inputs: Sequence[Any] = range(len(self)) if names is None else names.samples
        columns: dict[str, list[Any]] = {"input": [], "explained": [], "unit": [], "value": []}
        for name, explained, units, values in zip(inputs, self.explained, self.units, self.sum_units(), strict=True):
            columns["input"] += [name] * len(units)
            columns["explained"] += [explained] * len(units)
            columns["unit"] += units
            columns["value"] += values.tolist()
        for column, field_name in (("cell", "cells"), ("would_become", "becomes")):
            if (rows := getattr(names, field_name, None)) is not None:
                columns[column] = [text for row in rows for text in row]
        return pandas.DataFrame(columns)

    def _describe_inputs(self) -> dict[str, Any]:
        """Return the columns of `to_frame(per="input")`."""
        names = self.names
        texts = {
            "input": list(range(len(self))) if names is None else names.samples,
            "explained": self.explained,
            "prediction": None if names is None else names.predictions,
        }
        numbers = {
            name: getattr(self, name) for name in ("output", "baseline_output", "total", "residual", "relative_residual")
        }
        numbers |= {name: self.median(name) for name in MEDIANS}
        known = {name: values.detach().cpu().numpy() for name, values in numbers.items() if values is not None}
        return {name: values for name, values in texts.items() if values is not None} | known

    # -- other eyes ----------------------------------------------------------------------------------------------------

    def to_shap(self, feature_names: Sequence[str] | None = None) -> Any:
        """Return a `shap.Explanation` for SHAP's plots, with a number for each word or column if these have names.

        Args:
            feature_names: names for the features of x, which are then explained as they are.
        """
        shap = import_extra("shap", "shap", "to_shap()")
        values, explicand = self._one_tensor(self.values), self._one_tensor(self.explicand)
        base = torch.zeros_like(self.output) if self.baseline_output is None else self.baseline_output
        content: dict[str, Any] = {"values": values.detach().cpu().numpy(), "data": explicand.detach().cpu().numpy()}
        units = None if self.names is None or feature_names is not None else self.names.units
        if units is not None and self.names is not None:
            content = {"values": self.sum_units(), "data": [np.array(row, dtype=object) for row in units]}
            if self.names.cells is not None:  # of a table; texts have each their own words
                columns = self.tabulate()
                content = {"values": columns.values, "data": columns.data, "display_data": np.array(columns.cells)}
                feature_names = columns.names
        return shap.Explanation(
            **content,
            base_values=base.detach().cpu().numpy(),
            feature_names=None if feature_names is None else list(feature_names),
        )

    def plot(self, path: str | PathLike[str] | None = None, **options: Any) -> Any:
        """Draw the attribution as a matplotlib figure, and save it if a path is given. See `ig2.plots.attribution`."""
        from ig2 import plots

        figure = plots.attribution(self._to_draw(), **options)
        if path is not None:
            figure.savefig(path, bbox_inches="tight")
        return figure

    def _to_draw(self) -> Attribution:
        """Return the attribution to draw: for a layer with positions of the input, the map over these."""
        x = list((self.fixed or {}).values())
        has_places = (
            "at" in self.settings and len(x) == 1 and isinstance(x[0], Tensor) and isinstance(self.values, Tensor)
            and (x[0].ndim == self.values.ndim > 3 or arrange_tokens(self.values, x[0].shape[2:]) is not None)
        )  # fmt: skip
        return self.on_input() if has_places else self

    def _repr_html_(self) -> str | None:
        """Return HTML for a notebook, or None without matplotlib; the notebook then shows the same as `print`."""
        try:
            from ig2 import plots
        except MissingExtraError:
            return None
        return plots.html(self._to_draw())

    def __repr__(self) -> str:
        shapes = [tuple(value.shape) for value in _tensors(self.values)]
        lines = [
            f"Attribution of {format_count(len(self), 'explicand')} by {self.settings.get('method', '?')}",
            f"  values    {', '.join(map(str, shapes))}",
            f"  target    {_few(self.target)}",
            f"  output    {_few(self.output)}",
        ]
        if "at" in self.settings:
            lines.insert(1, f"  at        {self.settings['at']}")
        if self.against is not None or self.names is not None or self.question is not None:
            texts = self.explained if len(set(self.explained)) > 1 else self.explained[:1]
            lines[2 + ("at" in self.settings)] = f"  explains  {_join_few(texts)}"
        if self.names is not None:
            lines.insert(1, f"  inputs    {_join_few(self.names.samples)}")
        if self.baseline_output is not None and self.residual is not None:
            lines.append(f"  baseline  {_few(self.baseline_output)}")
            if self.reference_outputs is not None:
                lines.append(f"  reference {_few(self.reference_outputs.mean(dim=1))}")
            lines.append(f"  residual  {_few(self.residual)}")
        for name, values in (("trust", self.trust), ("arrival", self.arrival)):
            if values is not None and values.numel():
                lines.append(f"  {name:9s} {_few(values.median(dim=1).values)}")
        lines.append(f"  {self.verdict}")
        return "\n".join(lines)


def _describe_worst(relative: Tensor) -> str:
    """Return by how much the worst of these relative residuals is off; one is infinite where the output did not change."""
    finite = relative[relative.isfinite()]
    if not len(finite):
        return "which is zero"
    off = f"off by {'up to ' if len(relative) > 1 else ''}{float(finite.max()):.0%}"
    return off if len(finite) == len(relative) else f"{off}, or with no change to sum to"


def _few(values: Tensor) -> str:
    shown = ", ".join(str(v) if isinstance(v, int) else f"{v:.4g}" for v in values[:4].tolist())
    return shown + (", …" if len(values) > 4 else "")


def _join_few(texts: Sequence[str]) -> str:
    shown = [text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…" for text in texts[:4]]
    return "; ".join(shown) + ("; …" if len(texts) > 4 else "")


def name_positions(shape: Sequence[int]) -> list[str]:
    """Return a name for each feature of a sample of this shape, by its position."""
    if len(shape) == 1:
        return [f"feature {i}" for i in range(shape[0])]
    return ["(" + ", ".join(map(str, position)) + ")" for position in np.ndindex(*shape)]


def _tensors(value: Structured) -> list[Tensor]:
    return list(tree_iter(value))


def _flatten(value: Structured) -> list[Tensor]:
    """Return each tensor with one row of features per explicand, (B, features)."""
    return [tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) for tensor in _tensors(value)]


def _concatenate(pieces: Sequence[Any], dim: int = 0) -> Any:
    """Concatenate tensors, or tuples or dicts of them element by element."""
    first = pieces[0]
    if isinstance(first, tuple):
        return tuple(torch.cat(column, dim) for column in zip(*pieces, strict=True))
    if isinstance(first, dict):
        columns = {key: [piece[key] for piece in pieces] for key in first}
        return {key: torch.cat(column, dim) if isinstance(column[0], Tensor) else column[0] for key, column in columns.items()}
    return torch.cat(list(pieces), dim)
