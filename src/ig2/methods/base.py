"""The base class of all methods: its call checks the arguments and opens the network; subclasses implement `run`."""

from __future__ import annotations

import time
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar, final

import numpy as np
import torch
from torch import Tensor, nn

import ig2
from ig2._engine.activations import ACTIVATION, cut, join_inputs
from ig2._engine.memory import peak_bytes
from ig2._utils.progress import ProgressOption
from ig2._utils.settings import Settings
from ig2.attribution import Attribution
from ig2.errors import IG2Error, InputError, ModelError, describe, format_count, warn
from ig2.inputs import At, take_rows, value_of
from ig2.model import Model, as_model
from ig2.references.base import References, as_references, draw_weighted
from ig2.references.weighted import Weighted
from ig2.result import Cost, Keep
from ig2.result import Result as Result
from ig2.targets import AnyTarget, Target
from ig2.task import Against, Task, open_task

AnyType = TypeVar("AnyType")


class _MethodType(ABCMeta):
    """Constructs methods, and explains the error when a network is passed in place of the settings, as other libraries do."""

    def __call__(cls: type[AnyType], *settings: Any, **named: Any) -> AnyType:
        try:
            return super().__call__(*settings, **named)  # type: ignore[misc, no-any-return]
        except (TypeError, InputError) as error:
            network = settings[0] if settings else None
            if not callable(network) or isinstance(network, (type, Method)):
                raise
            raise InputError(
                f"{cls.__name__} is made from its settings, got {describe(network)}: a network goes into the method's call, "
                f"{cls.__name__}(...)(net, x)"
            ) from error


@dataclass(frozen=True, eq=False)
class Method(Settings, metaclass=_MethodType):
    """Base class of attribution methods: a subclass is a frozen dataclass of its settings and implements `run`.

    >>> class Ones(Method):
    ...     def run(self, task, references, keep):
    ...         return Result(torch.ones_like(task.x))
    >>> Ones()(lambda x: x.sum(dim=1), torch.zeros(1, 2)).values
    tensor([[1., 1.]])
    """

    # what the method needs: the rest of the library reads it here and decides nothing itself
    default_references: ClassVar[References | None] = None  # its baseline by convention; a kind of data may have a better one
    needs_references: ClassVar[bool] = False  # whether a call has to pass references, since it has none by default
    takes_weights: ClassVar[bool] = True  # whether references may have weights in the mean over them
    explains_probability: ClassVar[bool] = False  # whether as published it explains probabilities where a model has logits
    needs_gradient: ClassVar[bool] = True  # if False, integer inputs and functions without gradients are accepted
    needs_places: ClassVar[bool] = False  # whether features must lie on a grid, as those of images do
    needs_classes: ClassVar[bool] = False  # whether the network must choose one of several classes
    follows_paths: ClassVar[bool] = False
    runs_once: ClassVar[bool] = False  # whether the network sees each explicand once
    takes_own_gradients: ClassVar[bool] = False  # whether it differentiates by itself, so that no faster copy can be verified

    @property
    def takes_references(self) -> bool:
        """Whether references passed to a call are used."""
        return self.needs_references or self.default_references is not None

    @property
    def complete(self) -> bool:
        """Whether attributions sum to f(x) − f(baseline) by construction."""
        return False

    @abstractmethod
    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        """Compute attributions of the task's explicands relative to `references`.

        Args:
            task: the explicands, the class explained for each, and the opened network.
            references: the references passed to the call, or else the method's `default_references`.
            keep: which intermediate results to return besides the values.

        Returns:
            The values, in the shape of `task.x`, and optional results such as the outputs at the baselines.
        """

    @final
    def __call__(
        self,
        model: Model | nn.Module | Callable[..., Any],
        x: Any,
        target: AnyTarget = None,
        references: Any = None,
        *,
        against: Against = None,
        seed: int = 0,
        batch_size: int | Literal["auto"] = "auto",
        progress: ProgressOption = False,
        curves: bool = False,
        per_reference: bool = False,
        paths: bool = False,
        skip_bad: bool = False,
        at: str | nn.Module | At | None = None,
    ) -> Attribution:
        """Explain a batch of inputs.

        Args:
            model: the model returned by `ig2.wrap`, or a network, which is then wrapped with default options.
            x: explicands (B, ...); or a tuple or dict of tensors to call the network with, in which `ig2.Fixed` marks those
                that are not attributed.
            target: the class to explain, either one for all explicands or one for each; by default the predicted class.
                Alternatively a target of `ig2.targets`, such as a region of a map or a box of a detector, or a function that
                maps the network's return value to (B,).
            references: samples (R, ...) shared by all explicands or (B, R, ...) with a set for each, a number, or a strategy
                of `ig2.references`. Ignored by methods without references.
            against: the class to contrast the target with ("why the target rather than this class?"): the output explained is
                f_target − f_against, where several classes are averaged. One class for all explicands, one for each, several
                as a row [[3, 5]] for all or as a row for each, or "next", the most likely class other than the target. By
                default f_target alone. The references do not change; `ig2.references.OfClasses` draws them from the same
                classes.
            seed: random seed. Global random state is neither read nor changed.
            batch_size: how many points the network evaluates at once; "auto" chooses by the free memory. Either is halved when
                memory runs out. Results do not depend on it.
            progress: True for a progress bar, or a function called with (done, total).
            curves: keep the output, and GradPath's distance, along every path.
            per_reference: keep the attribution of each reference.
            paths: keep every point of every path; this needs memory for all of them.
            skip_bad: skip explicands that contain NaN or at which the network returns non-finite numbers. They are listed in a
                warning and in `settings["skipped"]`.
            at: a layer to attribute to instead of the input: a module or its name, or `ig2.At(layer, index)` for some of its
                channels, heads or neurons. With h the layer, the values have the shape of h(x) and explain the rest of the
                network as a function of h, from h(x) to h(references); the network's input remains x.

        Returns:
            One attribution for each explicand, on x's device.

        Raises:
            InputError: if an argument is invalid; the message names the remedy.
            ModelError: if the network cannot be explained as given, or returns non-finite numbers.
            OutOfMemoryError: if not even a single point fits into memory.
        """
        kept: dict[str, bool] = {"per_reference": per_reference, "curves": curves, "paths": paths}
        options: dict[str, Any] = {"against": against, "seed": seed, "batch_size": batch_size, "progress": progress}
        if skip_bad:
            return self._skip_bad(model, x, target, references, at=at, **options, **kept)
        if at is not None:
            layer = at if isinstance(at, At) else At(at)
            return self._attribute_to_layer(model, x, target, references, layer, options, kept)
        if any(kept.values()) and not self.follows_paths:
            raise InputError(f"{type(self).__name__} follows no path: curves, per_reference and paths are for path methods")
        strategy = self._choose_references(references)
        began, model = time.perf_counter(), self._read(model)
        with self._open(model, x, target, **options) as task:
            session, inputs, output = task.session, task.session.inputs, task.output
            before = peak_bytes(session.device)
            result = self.run_checked(task, strategy, Keep(**kept))
            peak = peak_bytes(session.device)
        return Attribution(
            **{"output": output, **result.unpack(inputs.unpack)},
            explicand=inputs.explicand,
            target=task.target,
            question=session.model.target,
            against=None if task.against is None else task.against.squeeze(1),  # (B,) of one class
            fixed=inputs.fixed or None,
            held=inputs.held or None,
            settings={
                "method": type(self).__name__,
                "parts": summary(self),
                "references": summary(strategy),
                "against": summary(against),
                **({} if session.model.target is None else {"target": summary(session.model.target)}),
                "model": repr(model),
                "seed": int(seed),
                "complete": self.complete and session.adds_up,
                "versions": {"ig2": ig2.__version__, "torch": torch.__version__},
                "representation": session.where,
                "preparation": session.preparation,
            },
            cost=Cost(
                time.perf_counter() - began, task.batch.points, peak, peak != before, session.forwards, session.gradients
            ),
        ).to(inputs.home)

    @final
    def run_checked(self, task: Task, references: References | None, keep: Keep) -> Result:
        """Run the method, and check that what it found is finite.

        Raises:
            ModelError: if it is not.
        """
        result = self.run(task, references, keep)
        _check_finite(task, result)
        return result

    def _attribute_to_layer(
        self,
        model: Any,
        x: Any,
        target: Any,
        references: Any,
        at: At,
        options: Mapping[str, Any],
        kept: Mapping[str, Any],
    ) -> Attribution:
        """Explain the network from a layer on, with the layer's activations at x and at the references as inputs."""
        began, model = time.perf_counter(), as_model(model)
        upper = cut(model, at.layer)
        samples: Any = None
        strategy = self._choose_references(references)
        # without gradients with respect to the input, which may be token ids with the layer as their embedding
        with open_task(
            *(model, x, target),
            **{**options, "progress": False},
            label="activations",
            needs_gradient=False,
            within_bounds=True,
            prepares=False,
        ) as task:
            layer, call = task.session.find_places(at.layer)
            if layer.name != upper.net.name:  # in place of a layer that never runs, another with its weights
                upper = cut(model, f"{layer.name}:{layer.side}")

            def read(points: Tensor, of: Tensor) -> Tensor:
                pieces: list[Tensor] = []

                def work(piece: range) -> None:
                    part = slice(piece.start, piece.stop)
                    pieces.append(task.session.read_layer(layer, call, points[part], task.rows[of[part]]))

                task.batch.over(len(points), work)
                return torch.cat(pieces)

            rows = torch.arange(len(task), device=task.x.device)
            activation = read(task.x, rows)
            if strategy is not None:
                drawn, weights = draw_weighted(strategy, task)
                count = drawn.shape[1]
                far = read(drawn.flatten(0, 1).to(task.x), rows.repeat_interleave(count))
                samples = {ACTIVATION: far.reshape(len(task), count, *far.shape[1:])}
                samples = samples if weights is None else Weighted(samples, weights.cpu())
        attribution = self(upper, join_inputs(at.hold(activation), x), target, samples, **options, **kept)
        name = layer.name if layer.side == "output" else f"{layer.name}:input"
        where = {"at": name} if at.index is None else {"at": name, "index": repr(at.index)}
        settings = {"references": summary(strategy), "model": repr(model), **where}
        cost = attribution.cost
        assert cost is not None and cost.forwards is not None
        cost = replace(cost, seconds=time.perf_counter() - began, forwards=cost.forwards + task.session.forwards)
        return replace(attribution.unwrap(ACTIVATION, settings), cost=cost).to(task.session.inputs.home)

    def _choose_references(self, references: Any) -> References | None:
        """Return the references passed to the call, or else the method's default."""
        return as_references(references) if references is not None else self.default_references

    def _skip_bad(self, model: Any, x: Any, target: Any, references: Any, against: Any, **options: Any) -> Attribution:
        """Explain, retrying without the explicands that raised an error until the rest succeed."""
        parts: Mapping[Any, Any]
        parts = x if isinstance(x, Mapping) else dict(enumerate(x)) if isinstance(x, (tuple, list)) else {None: x}
        axes = {key: value_of(part).ndim for key, part in parts.items() if isinstance(value_of(part), Tensor)}
        count = next((len(value_of(parts[key])) for key, ndim in axes.items() if ndim), 0)
        rows, skipped = list(range(count)), dict[int, str]()

        def take_classes(classes: Any) -> Any:
            if isinstance(classes, Target):
                return classes.take(rows)
            if callable(classes) or np.ndim(classes) == 0 or len(classes) != count:
                return classes
            return torch.as_tensor(classes)[rows]

        while True:
            try:
                attribution = self(
                    model,
                    take_rows(x, rows),
                    take_classes(target),
                    take_rows(references, rows, lambda part, key: part.ndim == axes.get(key, -1) + 1),
                    against=take_classes(against),
                    **options,
                )
            except IG2Error as error:
                bad = [rows[i] for i in error.rows if i < len(rows)]
                if not bad or len(bad) == len(rows):
                    raise
                is_input = isinstance(error, InputError)
                reason = "holds NaN or infinite values" if is_input else "the network's numbers are not finite there"
                skipped.update(dict.fromkeys(bad, reason))
                rows = [row for row in rows if row not in skipped]
                continue
            attribution.settings["skipped"] = [{"row": row, "reason": reason} for row, reason in sorted(skipped.items())]
            if skipped:
                named = ", ".join(f"{row} ({reason})" for row, reason in sorted(skipped.items())[:5])
                warn(
                    f"{format_count(len(skipped), 'explicand')} of {count} skipped: {named}{', …' if len(skipped) > 5 else ''}"
                )
            return attribution

    def _read(self, model: Model | nn.Module | Callable[..., Any]) -> Model:
        """Return the model with the output that this method explains."""
        model = as_model(model)
        if not self.explains_probability or model.output != "logit":
            return model
        return replace(model, output="probability")

    @contextmanager
    def _open(self, model: Model, x: Any, target: Any = None, **options: Any) -> Iterator[Task]:
        """Open the network on x as this method requires, and check that the explained outputs are finite."""
        wants_preparation = model.preparation is not None and (
            model.preparation.precision is not None or model.preparation.checkpoint
        )
        with open_task(
            *(model, x, target),
            **options,
            label=type(self).__name__,
            needs_gradient=self.needs_gradient,
            within_bounds=True,
            # a single pass is not worth a faster copy, which takes a second pass to verify
            prepares=wants_preparation or not (self.runs_once or self.takes_own_gradients),
            runs_once=self.runs_once,
        ) as task:
            if not task.output.isfinite().all():
                bad = (~task.output.isfinite()).nonzero()[:, 0].tolist()
                raise ModelError(
                    f"the output of explicand {bad[0]} is {float(task.output[bad[0]])}: the network fails on it. Remove it, or "
                    "pass skip_bad=True to go on without such explicands",
                    rows=bad,
                )
            yield task

    def require_references(self, references: References | None) -> References:
        """Return the references.

        Raises:
            InputError: if they are None; the message shows how to pass them.
        """
        if references is None:
            raise InputError(
                f"{type(self).__name__} needs references to contrast with: pass references=samples (R, ...), or a strategy "
                "such as ig2.references.OtherClasses(pool, labels)"
            )
        return references


def _check_finite(task: Task, result: Result) -> None:
    """Check that all gradients taken, and all that was made of them, are finite: the one place that does, for every method.

    Raises:
        ModelError: if they are not; it names the first explicand, and has the rows of all.
    """
    checks = (  # from the cause to what follows from it
        (
            "the gradient",
            task.session.sums[task.rows],
            "explain a logit or log-probability instead of a probability, use float32 instead of half precision, other "
            "references or smaller steps, or rescale x to about unit size",
        ),
        (
            f"the distance between representations, the {task.session.where}"
            if task.session.where
            else "the distance to the goal",
            result.arrival,
            "rescale x and the references to about unit size, name another layer, ig2.wrap(net, representation=...), or use "
            "distance=ig2.paths.cosine",
        ),
        ("the output at the baseline", result.baseline_outputs, "use other references, or smaller steps"),
        ("the attribution", result.values, "it is too large for its type. Explain an output that is scaled down"),
    )
    wrong = [
        (what, (~numbers.isfinite()).reshape(len(task), -1), remedy)
        for what, numbers, remedy in checks
        if numbers is not None and not numbers.isfinite().all()
    ]
    if not wrong:
        return
    rows = torch.cat([where for _, where, _ in wrong], dim=1).any(dim=1).nonzero()[:, 0]
    what, _, remedy = wrong[0]
    each = [numbers[rows[0]] for numbers in (result.arrival, result.baseline_outputs) if numbers is not None]
    reference = next((f" and reference {int((~row.isfinite()).nonzero()[0])}" for row in each if not row.isfinite().all()), "")
    raise ModelError(
        f"{what} is not finite for explicand {int(task.rows[rows[0]])}{reference}: {remedy}; skip_bad=True goes on without it",
        rows=sorted(set(task.rows[rows].tolist())),
    )


def summary(part: Any) -> Any:
    """Describe a part of a method in JSON-like values, for `Attribution.settings`."""
    if is_dataclass(part) and not isinstance(part, type):
        return {"type": type(part).__name__, **{f.name: summary(getattr(part, f.name)) for f in fields(part)}}
    if part is None or isinstance(part, (str, int, float, bool)):
        return part
    if isinstance(part, (tuple, list)):
        return [summary(item) for item in part]
    if callable(part) and hasattr(part, "__name__"):
        return part.__name__
    return describe(part)
