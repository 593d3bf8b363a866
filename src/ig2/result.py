"""What a method returns: the fields it computes, and the cost of the call.

A field says by its metadata what it is, so that each is passed on, moved, sliced, joined, saved and
loaded without further code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from ig2._engine.moments import average_references
from ig2._engine.private import tree_map_only
from ig2.errors import InputError, describe, format_count
from ig2.inputs import Structured
from ig2.names import Names
from ig2.targets import Target

Values = TypeVar("Values", Tensor, Structured)
# Of the fields with x's shape: tensors of the engine's layout in a `Result`, in x's structure in an `Attribution`.
LIKE_X = {"like_x": True}
# Of the fields with something for each reference, (B, R, ...).
OF_REFERENCES = {"of_references": True}
# Of the fields that do not have a row for each explicand.
UNROWED = {"unrowed": True}
# Of those that are of one call, and neither saved nor joined.
OF_CALL = UNROWED | {"of_call": True}
# Of the fields with rows in their tensors alone; lists have rows in others.
PASSED_ON = {"passed_on": True}


@dataclass(frozen=True)
class Keep:
    """What to return besides the attribution, for each explicand and reference."""

    baselines: bool = False  # where the paths end, and after how many steps
    per_reference: bool = False  # each reference's own attribution
    curves: bool = False  # the output, and the distance if one is measured, at every vertex
    paths: bool = False  # every vertex


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
class Fields(Generic[Values]):
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
    extra: dict[str, Tensor | list[Any]] = field(default_factory=dict)
    """Fields of your own, by name: tensors (B, ...), or lists of B texts or numbers."""
    note: str = field(default="", metadata=UNROWED)
    """A remark of your own, or of the method."""

    @classmethod
    def join_references(cls, parts: Sequence[Self]) -> dict[str, Any]:
        """Return the fields with something for each reference, joined from attributions to different references; by name."""
        names = [f.name for f in fields(cls) if f.metadata.get("of_references")]
        pieces = {name: [getattr(part, name) for part in parts] for name in names}
        return {name: concatenate(each, dim=1) for name, each in pieces.items() if all(piece is not None for piece in each)}

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
            spread = tree_map_only(Tensor, lambda values: average_references(values, self.weights)[1], each)
        return replace(self, values=tree_map_only(Tensor, move, self.values), per_reference=each, spread=spread)

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return a copy with every tensor of the fields with rows changed, such as moved to a device."""
        rowed = {f.name: getattr(self, f.name) for f in fields(self) if not f.metadata.get("unrowed")}
        changed = {name: tree_map_only(Tensor, change, part) for name, part in rowed.items() if part is not None}
        return replace(self, **changed)

    def take(self, rows: Tensor) -> Self:
        """Return a copy with some of the explicands."""
        return replace(self, **{f.name: _take(f, getattr(self, f.name), rows) for f in fields(self)})

    @classmethod
    def join_rows(cls, parts: Sequence[Self]) -> dict[str, Any]:
        """Return the fields of attributions of different explicands, joined; by name.

        Raises:
            InputError: if a field is missing in some, or of another form.
        """
        joined: dict[str, Any] = {}
        for f in fields(cls):
            pieces = [getattr(part, f.name) for part in parts]
            if f.metadata.get("of_call") or all(piece is None for piece in pieces):
                continue
            if any(piece is None for piece in pieces):
                raise InputError(f"cannot join: some have {f.name} and others do not")
            try:
                joined[f.name] = _join(f, pieces, parts)
            except InputError:
                raise
            except (RuntimeError, TypeError, KeyError, ValueError) as error:
                raise InputError(f"cannot join: {f.name} differ in shape: {describe(pieces)}") from error
        return joined


@dataclass(frozen=True, eq=False)
class Result(Fields[Tensor]):
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


def _take(f: Field[Any], value: Any, rows: Tensor) -> Any:
    """Return a field of some of the explicands."""
    if isinstance(value, Target):
        return value.take(rows)
    if isinstance(value, Names):
        return value[rows.tolist()]
    if f.metadata.get("unrowed"):
        return value
    if isinstance(value, list):
        return [value[row] for row in rows.tolist()]
    if isinstance(value, dict) and not f.metadata.get("passed_on"):
        return {name: _take(f, part, rows) for name, part in value.items()}
    return tree_map_only(Tensor, lambda tensor: tensor[rows.to(tensor.device)], value)


def _join(f: Field[Any], pieces: Sequence[Any], parts: Sequence[Any]) -> Any:
    """Return a field of all explicands."""
    first = pieces[0]
    if isinstance(first, Target):
        return Target.join([(piece, len(part)) for piece, part in zip(pieces, parts, strict=True)])
    if isinstance(first, Names):
        return Names.join(pieces)
    if not f.metadata.get("unrowed"):
        return concatenate(pieces, has_lists=not f.metadata.get("passed_on"))
    if isinstance(first, dict):  # such as the settings, with the seed of each: what differs is listed
        values = {key: [piece.get(key) for piece in pieces] for key in first}
        return {key: each[0] if all(one == each[0] for one in each) else each for key, each in values.items()}
    if isinstance(first, str):
        return "; ".join(dict.fromkeys(filter(None, pieces)))
    if any(piece != first for piece in pieces):
        raise InputError(f"cannot join: {f.name} differ: {describe(pieces)}")
    return first


def concatenate(pieces: Sequence[Any], dim: int = 0, has_lists: bool = False) -> Any:
    """Concatenate tensors, lists if they have rows, or tuples or dicts of them element by element."""
    first = pieces[0]
    if isinstance(first, Tensor):
        return torch.cat(list(pieces), dim)
    if isinstance(first, tuple):
        return tuple(concatenate(column, dim, has_lists) for column in zip(*pieces, strict=True))
    if isinstance(first, dict):
        if any(not isinstance(piece, dict) or piece.keys() != first.keys() for piece in pieces):
            raise KeyError(*first)
        return {key: concatenate([piece[key] for piece in pieces], dim, has_lists) for key in first}
    return [row for piece in pieces for row in piece] if has_lists and isinstance(first, list) else first
