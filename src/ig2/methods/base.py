"""The call every method shares: it checks, opens the network, and leaves the mathematics to `run`."""

from __future__ import annotations

import time
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Literal, TypeVar, final

import numpy as np
import torch
from torch import Tensor, nn

import ig2
from ig2._engine.inputs import Inputs, take_rows, value_of
from ig2._engine.integrate import Keep
from ig2._engine.memory import BatchSize, peak_bytes, said_clearly
from ig2._engine.session import Session
from ig2._engine.task import Task, check_seed
from ig2._utils.progress import Progress, ProgressOption
from ig2.attribution import Attribution, Cost
from ig2.errors import IG2Error, InputError, ModelError, counted, describe, warn
from ig2.model import Model, wrap
from ig2.references.base import References, as_references

AnyType = TypeVar("AnyType")


@dataclass
class Result:
    """What `run` returns, in the engine's layout; the names are those of `Attribution`."""

    values: Tensor
    baseline_outputs: Tensor | None = None
    spread: Tensor | None = None
    gradcf: Tensor | None = None
    gradcfe: Tensor | None = None
    per_reference: Tensor | None = None
    output_curve: Tensor | None = None
    distance_curve: Tensor | None = None
    steps_taken: Tensor | None = None
    trust: Tensor | None = None
    arrival: Tensor | None = None
    reference_outputs: Tensor | None = None
    paths: Tensor | None = None
    outputs: Tensor | None = None  # f at the explicands as it was in each walk, (B, R)


class _MethodType(ABCMeta):
    """Makes methods from their settings. Elsewhere the network comes first, so here it is often given in place of them."""

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
class Method(metaclass=_MethodType):
    """Something that attributes. Subclasses are dataclasses of their settings and write `run`."""

    default_references: ClassVar[References | None] = None
    follows_paths: ClassVar[bool] = False
    runs_once: ClassVar[bool] = False  # whether the network sees each explicand once
    takes_own_gradients: ClassVar[bool] = False  # whether it differentiates by itself, where no faster copy could be confirmed
    needs_gradient: ClassVar[bool] = True  # or takes integers, and functions that PyTorch cannot differentiate

    @property
    def complete(self) -> bool:
        """Whether attributions sum to f(x) − f(baseline) by construction."""
        return False

    @abstractmethod
    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        """Attribute the task's samples, contrasting them with `references`."""

    @final
    def __call__(
        self,
        model: Model | nn.Module | Callable[..., Any],
        x: Any,
        target: int | Sequence[int] | Tensor | None = None,
        references: Any = None,
        *,
        seed: int = 0,
        batch_size: int | Literal["auto"] = "auto",
        progress: ProgressOption = False,
        curves: bool = False,
        per_reference: bool = False,
        paths: bool = False,
        skip_bad: bool = False,
    ) -> Attribution:
        """Explain a batch.

        Args:
            model: what `ig2.wrap` returned, or a network, which is then wrapped with the defaults.
            x: explicands (B, ...); or a tuple or dict of tensors the network is called with, where `ig2.Fixed` marks those
                that are not attributed.
            target: the class to explain: one for all or one for each explicand. By default the class predicted.
            references: whom to contrast with: samples (R, ...) for all or (B, R, ...) for each explicand its own, a number,
                or a strategy of `ig2.references`. Methods without references ignore them.
            seed: of everything random. Global random state is neither read nor changed.
            batch_size: how many points the network sees at once. "auto" goes by the memory that is free. Either is halved
                when memory runs out. Results do not depend on it.
            progress: True for a bar, or a function called with (done, total).
            curves: keep the output, and GradPath's distance, along every path.
            per_reference: keep each reference's own attribution.
            paths: keep every point of every path; this needs memory for all of them.
            skip_bad: go on without explicands that hold NaN, or at which the network's numbers are not finite. A warning and
                `settings["skipped"]` name them.
        """
        if skip_bad:
            return self._skip_bad(
                *(model, x, target, references), seed=seed, batch_size=batch_size, progress=progress, curves=curves,
                per_reference=per_reference, paths=paths,
            )  # fmt: skip
        if not isinstance(model, Model):
            model = wrap(model)
        check_seed(seed)
        if (curves or paths or per_reference) and not self.follows_paths:
            raise InputError(f"{type(self).__name__} follows no path: curves, per_reference and paths are for path methods")
        keep = Keep(per_reference=per_reference, curves=curves, paths=paths)
        chosen = as_references(references) if references is not None else None
        began = time.perf_counter()
        with self._opened(model, x, target, int(seed), batch_size, progress) as (task, output):
            session, inputs = task.session, task.session.inputs
            before = peak_bytes(session.device)
            result = self.run(task, chosen or self.default_references, keep)
            peak = peak_bytes(session.device)
        home = inputs.home
        mean = None if result.baseline_outputs is None else result.baseline_outputs.mean(dim=1)
        return Attribution(
            explicand=inputs.explicand,
            target=task.target,
            # in half precision f(x) depends on its batch, and a sum that is complete is so for the one it was walked in
            output=output if result.outputs is None else result.outputs.mean(dim=1),
            baseline_output=mean,
            baseline_outputs=result.baseline_outputs,
            output_curve=result.output_curve,
            distance_curve=result.distance_curve,
            steps_taken=result.steps_taken,
            trust=result.trust,
            fixed=inputs.fixed or None,
            held=inputs.held or None,
            arrival=result.arrival,
            reference_outputs=result.reference_outputs,
            settings={
                **self._settings(chosen, model, int(seed)),
                "representation": session.where,
                "preparation": session.preparation,
            },
            cost=Cost(time.perf_counter() - began, task.batch.points, peak, peak != before),
            **{
                name: inputs.unpack(tensor)
                for name in ("values", "spread", "gradcf", "gradcfe", "per_reference", "paths")
                if (tensor := getattr(result, name)) is not None
            },
        ).to(home)

    def _skip_bad(self, model: Any, x: Any, target: Any, references: Any, **options: Any) -> Attribution:
        """Explain, again and again without those that cannot be explained."""
        parts: Mapping[Any, Any]
        parts = x if isinstance(x, Mapping) else dict(enumerate(x)) if isinstance(x, (tuple, list)) else {None: x}
        axes = {key: value_of(part).ndim for key, part in parts.items() if isinstance(value_of(part), Tensor)}
        count = next((len(value_of(parts[key])) for key, ndim in axes.items() if ndim), 0)
        rows, skipped = list(range(count)), dict[int, str]()
        while True:
            try:
                attribution = self(
                    model,
                    take_rows(x, rows),
                    target if np.ndim(target) == 0 else take_rows(torch.as_tensor(target), rows),
                    take_rows(references, rows, lambda part, key: part.ndim == axes.get(key, -1) + 1),
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
                warn(f"{counted(len(skipped), 'explicand')} of {count} skipped: {named}{', …' if len(skipped) > 5 else ''}")
            return attribution

    @contextmanager
    def _opened(
        self,
        model: Model,
        x: Any,
        target: Any,
        seed: int,
        batch_size: int | Literal["auto"],
        progress: ProgressOption,
    ) -> Iterator[tuple[Task, Tensor]]:
        """The explicands and the network, opened, and the output of the class explained."""
        with torch.inference_mode(False), torch.no_grad(), said_clearly():
            inputs = Inputs.of(x, model.device, needs_gradient=self.needs_gradient)
            precisions = [torch.finfo(dtype).eps for _, _, dtype in inputs.attributed if dtype.is_floating_point]
            model.check_inside(inputs.data, "x", max(precisions, default=0.0))
            asked = model.preparation is not None and model.preparation.precision is not None
            # one pass is not worth a copy, which a second one has to confirm
            prepares = asked or not (self.runs_once or self.takes_own_gradients)
            with (
                Session(model, inputs, check_mixing=batch_size != 1, prepares=prepares) as session,
                Progress(progress, type(self).__name__) as bar,
            ):
                batch = BatchSize(batch_size, session.bytes_per_point, session.device)
                task, output = Task.of(session, target, seed, batch, bar, keep_graph=self.runs_once)
                if not output.isfinite().all():
                    bad = (~output.isfinite()).nonzero()[:, 0].tolist()
                    raise ModelError(
                        f"the output of explicand {bad[0]} is {float(output[bad[0]])}: the network fails on it. Remove it, or "
                        "pass skip_bad=True to go on without such explicands",
                        rows=bad,
                    )
                yield task, output

    def needed(self, references: References | None) -> References:
        """The references, or an error that says how to give them."""
        if references is None:
            raise InputError(
                f"{type(self).__name__} needs references to contrast with: pass references=samples (R, ...), or a strategy "
                "such as ig2.references.OtherClasses(pool, labels)"
            )
        return references

    def _settings(self, references: References | None, model: Model, seed: int) -> dict[str, Any]:
        return {
            "method": type(self).__name__,
            "parts": summary(self),
            "references": summary(references or self.default_references),
            "model": repr(model),
            "seed": seed,
            "complete": self.complete,
            "versions": {"ig2": ig2.__version__, "torch": torch.__version__},
        }


def summary(part: Any) -> Any:
    """A part of a method in words and numbers, for the settings."""
    if is_dataclass(part) and not isinstance(part, type):
        return {"type": type(part).__name__, **{f.name: summary(getattr(part, f.name)) for f in fields(part)}}
    if part is None or isinstance(part, (str, int, float, bool)):
        return part
    if isinstance(part, (tuple, list)):
        return [summary(item) for item in part]
    if callable(part) and hasattr(part, "__name__"):
        return part.__name__
    return describe(part)
