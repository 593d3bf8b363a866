"""The result of a method: the attribution, what it explains, and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ig2 import saving
from ig2._engine.activations import ACTIVATION, join_inputs
from ig2._engine.private import tree_iter
from ig2._utils.blur import check_free, check_sigma, find_space, smooth, spread_places
from ig2._utils.patches import arrange_tokens
from ig2.errors import InputError, MissingExtraError, describe, format_count, import_extra
from ig2.inputs import Fixed, Structured
from ig2.names import ColumnValues, Names, ask_why, name_output
from ig2.result import OF_CALL, PASSED_ON, UNROWED, Cost, Fields
from ig2.targets import Target
from ig2.verdict import judge, put_in_words

# Letters of a name that `print` shows.
LONGEST_TEXT = 60

Median = Literal["trust", "arrival", "stuck", "finished", "steps_taken"]
# What is known of each path, and given for each explicand by its median over references.
MEDIANS: tuple[Median, ...] = ("trust", "arrival", "stuck", "finished", "steps_taken")


@dataclass(frozen=True, eq=False, kw_only=True)
class Attribution(Fields[Structured]):
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
    fixed: dict[int | str, Any] | None = field(default=None, metadata=PASSED_ON)
    """The inputs that were `ig2.Fixed`, by position or name; saved only if all of them are tensors."""
    held: dict[int | str, Tensor] | None = None
    """Masks (B, ...) of the features of attributed inputs that were `ig2.Fixed`, by position or name."""
    settings: dict[str, Any] = field(default_factory=dict, metadata=UNROWED)
    """How it was computed: the method and its parts, the seed, the versions."""
    names: Names | None = field(default=None, metadata=UNROWED)
    """Names of the explicands, their words or columns, and the outputs; from `Subject.explain`."""
    cost: Cost | None = field(default=None, metadata=OF_CALL)
    """The cost of the call. Not kept in files, nor when attributions are joined."""

    def __post_init__(self) -> None:
        if self.names is not None and len(self.names) != len(self):
            raise InputError(f"the names are of {len(self.names)} explicands, the attribution is of {len(self)}")
        for name, column in self.extra.items():
            kinds = {type(cell) for cell in column} if isinstance(column, list) else {type(column)}
            has_rows = kinds <= {str} or kinds <= {int, float, bool} or (isinstance(column, Tensor) and column.ndim > 0)
            if not (has_rows and isinstance(column, (list, Tensor)) and len(column) == len(self) and str(name).isidentifier()):
                raise InputError(
                    f"extra[{name!r}] is {describe(column)}: expected a name, and a tensor, a list of texts or one of numbers "
                    f"with a row for each of {format_count(len(self), 'explicand')}"
                )

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
        """What is explained of each explicand in words, such as "class 3 rather than class 7"."""
        if self.names is not None and self.names.questions is not None:
            return list(self.names.questions)
        name = name_output if self.names is None else self.names.name_output
        if self.question is not None:
            return [self.question.describe(row, name) for row in range(len(self))]
        others = [()] * len(self) if self.against is None else self.against.reshape(len(self), -1).tolist()
        pairs = zip(self.target.tolist(), others, strict=True)
        return [ask_why(name(target), [name(other) for other in row]) for target, row in pairs]

    @property
    def baseline_output(self) -> Tensor | None:
        """f(baseline), the weighted mean over references, (B,). None for methods without a baseline."""
        return None if self.baseline_outputs is None else self._average(self.baseline_outputs)

    def _average(self, outputs: Tensor) -> Tensor:
        """Return the weighted mean over references of numbers (B, R)."""
        return outputs.mean(dim=1) if self.weights is None else (self.weights * outputs).sum(dim=1)

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
        return self._sum(lambda values: values).to(self.output.dtype)

    def _sum(self, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the sum over each explicand's values, (B,), each changed before."""
        rows = (tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) for tensor in _tensors(self.values))
        return torch.stack([change(row).sum(dim=1) for row in rows]).sum(dim=0)

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
            name: "trust", "arrival", "stuck", "finished" or "steps_taken".

        Returns:
            The medians, or None if the method does not compute the field.
        """
        values: Tensor | None = getattr(self, name)
        if values is None or not values.numel():
            return None
        values = values if values.is_floating_point() else values.to(self.output.dtype)
        return (values if self.weights is None else values.where(self.weights > 0, torch.nan)).nanmedian(dim=1).values

    @property
    def numbers(self) -> dict[str, Tensor]:
        """Numbers of each explicand, (B,), by name: those of `ig2.verdict.Columns`, as far as they are known."""
        # once: residuals are made of the sums
        summed = replace(self, values=self.total[:, None])
        outputs, wide = self.reference_outputs, torch.promote_types(self.output.dtype, torch.float32)
        known = {name: getattr(summed, name) for name in ("output", "baseline_output", "residual", "relative_residual")}
        known["reference_output"] = None if outputs is None else self._average(outputs)
        known["strength"] = self._sum(lambda values: values.abs().to(wide)).to(wide)
        known["complete"] = torch.full_like(self.output, self.settings.get("complete") is True)
        known["margin"] = torch.full_like(self.output, self.against is not None)
        known |= {name: self.median(name) for name in MEDIANS}
        return {name: numbers for name, numbers in known.items() if numbers is not None}

    @property
    def verdict(self) -> str:
        """How far the attribution can be believed, and what to do if not far: `ig2.verdict.judge` in words."""
        return put_in_words(judge(self))

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

    def __getitem__(self, which: int | slice | Sequence[int] | Sequence[bool] | Tensor) -> Self:
        """Select explicands by an index, a slice, several indices or a mask. A single index keeps the batch axis."""
        rows = torch.arange(len(self), device="cpu")
        if isinstance(which, slice):
            return self.take(rows[which])
        wanted = torch.as_tensor(which, device="cpu")
        if wanted.numel() == 0:
            wanted = wanted.long()
        if wanted.ndim > 1 or wanted.is_floating_point() or (wanted.ndim == 0 and wanted.dtype == torch.bool):
            raise InputError(f"index an Attribution by a number, a slice, numbers or a mask; got {describe(which)}")
        try:
            return self.take(rows[wanted].reshape(-1))
        except IndexError as error:
            raise IndexError(f"explicand {describe(which)} of {len(self)}") from error

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
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
        return cls(**cls.join_rows(parts))

    def to(self, device: torch.device | str) -> Self:
        """Return the attribution on another device."""
        return self.map(lambda tensor: tensor.to(device=device))

    # -- files ---------------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything except the cost to a safetensors file; settings and names go into its header."""
        saving.write(path, self)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a file that `save` wrote.

        Raises:
            InputError: if the file holds no attribution.
        """
        return saving.read(path, cls)

    # -- names ---------------------------------------------------------------------------------------------------------

    def with_names(self, names: Names) -> Self:
        """Return the attribution with the names of its explicands.

        Raises:
            InputError: if the names are for a different number of explicands.
        """
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
            `input`, `explained`, `prediction` if it is known, the numbers, as far as the method computes them, the total,
            and those fields of `extra` that have one cell for each explicand.

        Raises:
            InputError: if several tensors are attributed, or `per` has another value.

        >>> import ig2, torch
        >>> frame = ig2.Gradient()(torch.nn.Linear(4, 3), torch.eye(4)[:2], target=1).to_frame(per="input")
        >>> list(frame.columns), len(frame)
        (['input', 'explained', 'output', 'strength', 'complete', 'margin', 'total'], 2)
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
        numbers = {**self.numbers, "total": self.total, **self.extra}
        known = {
            name: values.detach().cpu().numpy() if isinstance(values, Tensor) else values
            for name, values in numbers.items()
            if isinstance(values, list) or values.ndim == 1
        }
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
        for name, column in self.extra.items():
            shown = _join_few(column) if isinstance(column, list) else _few(column) if column.ndim == 1 else describe(column)
            lines.append(f"  {name:9s} {shown}")
        if self.note:
            lines.append(f"  note      {self.note}")
        lines.append(f"  {self.verdict}")
        return "\n".join(lines)


def _few(values: Tensor) -> str:
    shown = ", ".join(str(v) if isinstance(v, int) else f"{v:.4g}" for v in values[:4].tolist())
    return shown + (", …" if len(values) > 4 else "")


def _join_few(cells: Sequence[object]) -> str:
    texts = [str(cell) for cell in cells[:5]]
    shown = [text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…" for text in texts[:4]]
    return "; ".join(shown) + ("; …" if len(texts) > 4 else "")


def name_positions(shape: Sequence[int]) -> list[str]:
    """Return a name for each feature of a sample of this shape, by its position."""
    if len(shape) == 1:
        return [f"feature {i}" for i in range(shape[0])]
    return ["(" + ", ".join(map(str, position)) + ")" for position in np.ndindex(*shape)]


def _tensors(value: Structured) -> list[Tensor]:
    return list(tree_iter(value))
