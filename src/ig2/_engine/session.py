"""The one place that runs the network: scores, representations, and the two gradients of a step from one forward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Literal
from weakref import WeakSet

import torch
from torch import Tensor, nn

from ig2._engine.acceleration import (
    TIMED_POINTS,
    FasterCopy,
    Program,
    Recorder,
    StepRequest,
    first_line,
    is_slow_in_float32,
    offer_precision,
    prepare,
    round_to_tf32,
)
from ig2._engine.checkpoints import checkpoint_blocks
from ig2._engine.explicands import Explicands
from ig2._engine.finding import find_activation, find_cuts, find_representation, find_running
from ig2._engine.inspection import Inspection, RandomState, inspect
from ig2._engine.isolation import CopyError, open_model
from ig2._engine.kept import Contents
from ig2._engine.layers import Intermediate
from ig2._engine.memory import explain_memory_errors, is_out_of_memory
from ig2._engine.network import Network
from ig2._engine.rounding import is_close, tolerance
from ig2._engine.secants import find_contributions, find_misses, find_multipliers
from ig2.errors import InputError, ModelError, describe, format_count, warn
from ig2.evaluation import Distance, Evaluation, OfOutputs
from ig2.model import Layer, Model, Preparation, find_layer

TIMED_NETWORKS: WeakSet[nn.Module] = WeakSet()  # whose steps were timed in other precisions
WIDEST = {"mps": torch.float32}  # the types of devices without float64


@dataclass
class Opened:
    """A network as a call left it."""

    # what makes the model: it is kept by their addresses, which no others must get meanwhile. Not the
    # model itself, which keeps this: it would be let go by the garbage collector alone
    parts: tuple[object, ...]
    contents: Contents | None = None  # of its modules; None where it is not kept
    isolated: Model | None = None  # that on modules of our own, where it can be copied
    contents_isolated: Contents | None = None
    faster: FasterCopy | None = None  # a faster copy of that
    refused: str | None = None  # why there is none
    # by what the network was called with
    inspections: dict[object, Inspection] = field(default_factory=dict)
    layers: dict[object, tuple[Layer | Literal["output"], int]] = field(default_factory=dict)  # of the representation
    compiled: dict[object, Program] = field(default_factory=dict)

    def hold(self, isolated: Model) -> None:
        """Keep the model on modules of our own."""
        self.isolated = isolated
        self.contents_isolated = None if self.contents is None else Contents.of(isolated)

    def is_reusable(self) -> bool:
        """Return whether the next call may use it: its modules hold what they held, and no state of
        a pass."""
        if self.contents is None or self.isolated is None:
            return self.contents is not None
        return self.contents_isolated is not None and self.contents_isolated.is_same()

    def refresh(self) -> bool:
        """Take over the numbers in the network's buffers; False if it is not what was opened any more.

        Weights are shared with it.
        """
        if self.contents is None or not self.contents.is_same():
            return False
        if self.contents_isolated is not None:
            self.contents_isolated.copy_buffers(self.contents)
        return True


def _list_parts(model: Model) -> tuple[object, ...]:
    """Return what makes a model, since metrics read another output of it; and what is explained."""
    parts = (model.net, model.representation, model.output, model.bounds, model.preprocess, model.preparation)
    return *parts, model.target


def _identify(parts: tuple[object, ...]) -> tuple[int, ...]:
    return tuple(map(id, parts))


class Session:
    """A network opened for the length of one call, and left exactly as it was.

    Inside, the work is done on modules of our own wherever the network can be copied (see `isolation`), and on a faster copy
    of it with the same scores (`acceleration`). Opening runs the first sample three times through what is run from
    then on, the last time beside another, to see that it can be explained and that its gradient is the slope (`inspection`).
    """

    def __init__(
        self, model: Model, inputs: Explicands, check_mixing: bool = True, prepares: bool = True, runs_once: bool = False
    ) -> None:
        self.inputs = inputs
        self.check_mixing = check_mixing
        self.in_batches = len(inputs) > 1 or not runs_once  # whether gradients are taken of several points at once
        self.bytes_per_point = 0
        self.forwards = 0  # points that were run, checks not counted
        self.gradients = 0  # gradients by a point
        # of all gradients taken for each explicand: one that is not finite leaves a sum that is not, whatever is made of it
        # later, and no step has to wait until the device has looked
        data = inputs.data
        self.sums = torch.zeros(len(data), dtype=WIDEST.get(data.device.type, torch.float64), device=data.device)
        self.preparation: dict[str, Any] = {}  # what was done to make the network fast, and what could not be
        self._lasting: dict[str, Any] = {}  # what of it holds for the network as it is, too
        self._wish = model.preparation if prepares else None  # it does not pay for a few passes
        self.adds_up = True  # whether no sum that should match the change in the output was seen to be off
        # not where a call changes its copy of the network
        self._keeps = self._wish is None or not self._wish.checkpoint
        self._undo = ExitStack()
        self._is_copy = False  # whether the network runs on modules of our own
        self._wrapped = model  # as the user wrapped it
        self._plain = Network(model, inputs)  # the network itself
        self._network = self._plain  # what is run: that, or a faster copy
        self._expected: Tensor | None = None  # scores of the first explicand, where a copy was just made
        self._copies: Mapping[str, nn.Module] = {}  # the faster copy's modules by the names of the network's own

    @property
    def model(self) -> Model:
        """The model that is run."""
        return self._network.model

    @property
    def precisions(self) -> set[torch.dtype]:
        """The floating types of the weights and of what is attributed."""
        return self._plain.precisions

    @property
    def device(self) -> torch.device:
        return self.inputs.data.device

    @property
    def where(self) -> str | None:
        """What the representation is, in words, if it was read."""
        return None if self._plain.layer is None else self._plain.where

    @property
    def against(self) -> Tensor | None:
        """The classes each explicand is explained against, (explicands, K), if there are any."""
        return self._plain.against

    @against.setter
    def against(self, classes: Tensor | None) -> None:
        self._plain.against = self._network.against = classes

    @property
    def runs_singly(self) -> bool:
        """Whether points must be run one at a time, for gradients that are right."""
        return self._plain.habits.singly

    @property
    def is_prepared(self) -> bool:
        """Whether a faster copy is run."""
        return self._network is not self._plain

    # -- opening and closing -------------------------------------------------------------------------------------------

    def __enter__(self) -> Session:
        try:
            original = self._plain.model
            self._opened = self._take(original)
            self._plain.model = self._undo.enter_context(open_model(original, self.device, self._opened.isolated))
            self._is_copy = self._plain.model is not original
            if self._is_copy and self._opened.isolated is None:
                self._opened.hold(self._plain.model)
            self._undo.callback(self._plain.close)
            self._choose_rounding(original)
            if self._wish is not None:
                self._prepare(self._wish)
            self._checkpoint()
            inspection = self._inspect()
            self.preparation.update(self._lasting)
            self.bytes_per_point = inspection.bytes_per_point
            if inspection.draws:  # numbers it does not use: what it drew is put back
                self._undo.callback(RandomState(self.device).restore)
            if self._wish is not None:
                self._offer(self._wish)
            self._record()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._undo.close()
        self._recorder.clear()
        if kind is None and self._keeps and self._opened.is_reusable():
            self._wrapped.kept.put(_identify(self._opened.parts), self._opened)

    def _take(self, model: Model) -> Opened:
        """Return what an earlier call opened of this model, if it is still that; or something
        new."""
        parts = _list_parts(model)
        if not self._keeps:
            return Opened(parts)
        opened: Opened | None = model.kept.take(_identify(parts))
        if opened is not None and opened.refresh():
            return opened
        return Opened(parts, Contents.of(model))

    def _inspect(self) -> Inspection:
        """Look at the network, unless an earlier call did that was like this one."""
        opened = self._opened
        self._known = inspection = opened.inspections.get(self._call)
        if inspection is None:
            try:
                inspection = self._look()
            except Exception as error:
                if not self.is_prepared or is_out_of_memory(error):
                    raise
                self._fall_back(_reason(error))
                self._checkpoint()
                inspection = self._look()
            opened.inspections[self._call] = inspection
            if inspection.advice is not None and not inspection.is_meant:
                warn(inspection.advice)
        self._plain.habits = self._network.habits = inspection.habits
        if inspection.advice is not None:
            self._lasting["gradients"] = inspection.advice
        return inspection

    def _look(self) -> Inspection:
        """Look at the network that is run, which has to return the scores of the network itself there."""
        inspection = inspect(self._network, self.check_mixing, self.in_batches)
        expected = self._expected
        if self.is_prepared and expected is not None and not is_close(expected, inspection.scores, tolerance(self._network)):
            raise CopyError("the copy gave other scores")
        if self.is_prepared and not inspection.is_finite:
            raise CopyError("the copy gave other gradients")
        if self.is_prepared and inspection.advice is not None:  # is that the network's own?
            own = inspect(self._plain, self.check_mixing, self.in_batches)
            if own.advice is None or own.is_meant is not inspection.is_meant:
                raise CopyError("the copy gave other gradients")
        return inspection

    def look_again(self) -> None:
        """Look at the network once more where only an earlier call did: an error says what is wrong."""
        if self._opened.inspections.get(self._call) is self._known:
            inspect(self._network, self.check_mixing, self.in_batches)

    @cached_property
    def _call(self) -> object:
        """What the network is called with, but for the numbers, and what for."""
        inputs = self.inputs
        fixed = tuple((key, value.shape[1:], value.dtype) for key, value in inputs.fixed.items() if isinstance(value, Tensor))
        checked = inputs.needs_gradient, self.check_mixing, self.in_batches, self._wish is None
        kind = self.device.type
        cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        return inputs.keys, inputs.attributed, fixed, tuple(inputs.held), checked, cast

    def _choose_rounding(self, model: Model) -> None:
        """Round float32 products to TF32 where that was wished for."""
        if model.preparation and model.preparation.precision == "tf32":
            self._undo.enter_context(round_to_tf32(self.device, self._lasting))

    def _offer(self, wish: Preparation) -> None:
        """Warn, once for a network, that another precision is faster, where none was chosen and it is seen to be."""
        net = self._wrapped.net
        if wish.precision is not None or net in TIMED_NETWORKS or not is_slow_in_float32(self._plain.model, self.device):
            return
        TIMED_NETWORKS.add(net)
        count = 1 if self.runs_singly else TIMED_POINTS
        data, first = self.inputs.data, self._plain.first
        points, rows = data[:1].expand(count, *data.shape[1:]), first.expand(count)

        def step(network: Network) -> None:
            start = points.detach().clone().requires_grad_()
            with torch.enable_grad():
                output = network.scores(start, rows)[:, 0]
            network.differentiate(output, [start])

        offer = offer_precision(self._plain, step, format_count(count, "point"))
        if offer is not None:
            warn(offer)

    def _checkpoint(self) -> None:
        """Let blocks of the network run twice, where that was wished for."""
        if self._wish is None or not self._wish.checkpoint or not self.inputs.needs_gradient:
            return
        blocks = checkpoint_blocks(self._network.model.net) if self._is_copy else 0
        why = "it has no module of several layers" if self._is_copy else "its modules cannot be copied"
        self._lasting["checkpointed"] = blocks or f"no: {why}"

    def _record(self) -> None:
        """Record steps of the network that is run from here on."""
        self._recorder = Recorder(self._network, self._wish, self.bytes_per_point, self.preparation, self._opened.compiled)

    def _prepare(self, wish: Preparation) -> None:
        """Go on with a copy of the network that runs faster, if there is one."""
        opened = self._opened
        if opened.faster is not None:
            opened.faster.refresh()
        elif opened.refused is None:
            random_state = RandomState(self.device)
            try:
                opened.faster = prepare(self._plain.model, wish, self.inputs)
                self._expected = None if opened.faster is None else opened.faster.first_scores
            except Exception as error:
                opened.refused = _reason(error)
            random_state.restore()
        if opened.refused is not None:
            self.preparation["left as it is"] = opened.refused
        if opened.faster is None:
            return
        self._network = Network(opened.faster.model, self.inputs)
        self._undo.callback(self._network.close)
        self._network.channels_last = "channels_last" in opened.faster.done
        self._copies = opened.faster.modules
        self.preparation.update(opened.faster.done)

    def _fall_back(self, reason: str) -> None:
        """Go on with the network as it is."""
        self._network = self._plain
        self._opened.faster, self._opened.refused = None, reason
        self._opened.compiled.clear()
        self.preparation.clear()
        self.preparation.update({"left as it is": reason} | self._lasting)

    @contextmanager
    def own_weights(self) -> Iterator[list[Tensor]]:
        """Yield the parameters of the network, each in memory of its own, to be written into; at
        the end they are what they were.

        The network itself is run from here on, not a faster copy.

        Raises:
            ModelError: if it has no weights, or not on modules of our own.
        """
        weights = [parameter for parameter in self._plain.model.net.parameters() if parameter.is_floating_point()]
        if not self._is_copy or not weights or any(type(weight) is not nn.Parameter for weight in weights):
            why = "has no weights" if self._is_copy and not weights else "is a function, or has modules that cannot be copied"
            raise ModelError(
                f"the network {why}, so its weights cannot be noised: pass the module itself, ig2.wrap(net), or put noise on "
                "the explicand instead with ig2.SmoothGrad(method)"
            )
        if self.is_prepared:
            self._keeps = False
            self._fall_back("its weights are noised")
            self._record()
        storages = [weight.data for weight in weights]
        try:
            for weight in weights:
                weight.data = weight.data.clone()  # what the user's network has is shared with it until here
            # as `data`: written into under their own names, the user's parameters would count a new version
            yield [weight.data for weight in weights]
        finally:
            for weight, storage in zip(weights, storages, strict=True):
                weight.data = storage

    # -- running -------------------------------------------------------------------------------------------------------

    def lay_out(self, samples: Tensor) -> Tensor:
        """Return samples (n, ...) in the memory layout the network takes: points that are so need
        no copy at every step."""
        last = self.preparation.get("channels_last") and samples.ndim == 4
        return samples.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)

    def scores(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return the explained outputs of all classes at the points, (n, classes)."""
        self.forwards += len(points)
        return self._network.scores_alone(points, rows)

    def score_explicands(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return the same in the network's own precision."""
        self.forwards += len(points)
        return (self._plain if "precision" in self.preparation else self._network).scores_alone(points, rows)

    def scores_with_graph(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return the same with autograd's graph back to the points, for a method that makes its own
        gradient of it."""
        self.forwards += len(points)
        with torch.enable_grad():
            return self._network.scores(points, rows)

    def differentiate(self, output: Tensor, points: Tensor, rows: Tensor) -> Tensor:
        """Return the gradient of the sum of what `scores_with_graph` returned, or was made of it,
        by its points."""
        gradient = self._network.gradient(output, points)
        self._watch(rows, gradient)
        return gradient

    def _watch(self, rows: Tensor, *gradients: Tensor) -> None:
        """Count the gradients taken at points of these explicands, one tensor or several (n, ...), and add them up."""
        self.gradients += len(rows) * len(gradients)
        self._add_up(rows, *gradients)

    def _add_up(self, rows: Tensor, *gradients: Tensor) -> None:
        for gradient in gradients:
            axes = tuple(range(1, gradient.ndim))  # not flattened: where channels lie last that would be a copy
            # in its own type, which takes a twentieth of float64's time on a CPU, but for half precision, which overflows
            wide = torch.float32 if gradient.dtype in (torch.float16, torch.bfloat16) else gradient.dtype
            total = gradient.detach().sum(dim=axes, dtype=wide) if axes else gradient.detach()
            self.sums.index_add_(0, rows, total.to(self.sums))

    def find_secants(self, near: Tensor, far: Tensor, rows: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return multipliers m with Σ m·(near − far) = f(near) − f(far), (n, ...), and f at the
        near and at the far points, (n,)."""
        self.forwards += 2 * len(near)
        multipliers, output, far_output = find_multipliers(self._network, near, far, rows, target)
        self._watch(rows, multipliers)
        return self.lay_out(multipliers), output, far_output

    def find_contributions(
        self, near: Tensor, far: Tensor, rows: Tensor, target: Tensor, layers: Sequence[Layer]
    ) -> tuple[list[Tensor], Tensor]:
        """Return what each layer contributes to f(near) − f(far), element by element, (n, ...), by
        its secants; and f(far), (n,).

        In the network itself: a faster copy has other layers.
        """
        self.forwards += 2 * len(near)
        contributions, _, far_output = find_contributions(
            self._plain, near, far, rows, target, [layer.module for layer in layers]
        )
        self.gradients += len(near)  # one backward pass serves all layers
        self._add_up(rows, *contributions)
        return contributions, far_output

    def find_misses(self, near: Tensor, far: Tensor, rows: Tensor) -> Counter[str]:
        """Return the operations of the network whose secants do not account for their change, and
        how often they occur."""
        return find_misses(self._network, near, far, rows)

    def representation(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return the representation at the points, (n, features)."""
        return self.represent(points, rows)[0]

    def represent(self, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the representation at the points, (n, features), and the explained outputs of all
        classes, (n, classes)."""
        self._open_layer()
        self.forwards += len(points)
        scores = self._network.scores_alone(points, rows)
        return self._network.representation(len(rows)).detach(), scores

    def evaluate(
        self,
        points: Tensor,
        rows: Tensor,
        target: Tensor,
        *,
        gradient: bool = True,
        distance: Distance | None = None,
        ascent: bool = True,
        reference: Tensor | None = None,
    ) -> Evaluation:
        """One forward pass at the points, and the gradients asked for.

        Args:
            points: (n, ...), in the data space.
            rows: the explicand each point belongs to, (n,), for inputs that are fixed.
            target: the class explained at each point, (n,).
            gradient: whether the gradient of the output is wanted.
            distance: a function of two representations (n, features) to (n,), if it is wanted.
            ascent: whether the distance's gradient is wanted too.
            reference: the representation of each point's reference, (n, features), or what a distance of
                outputs takes in its place, (n, m).
        """
        if not gradient and distance is None:
            return Evaluation(self.scores(points, rows).gather(1, target[:, None])[:, 0])
        request, args = StepRequest(gradient, distance, ascent and distance is not None), [points, rows, target]
        if distance is not None:
            if not isinstance(distance, OfOutputs):
                self._open_layer()
            assert reference is not None
            args.append(reference)
        self.forwards += len(points)
        values = self._recorder.replay(request, args)
        if values is None:
            values = self._step(request, self._network, *args)
            self._recorder.observe(request, partial(self._step, request), args, values)
        self._watch(rows, *values[1 : 1 + request.gradient], *values[len(values) - request.ascent :])
        output, *others = values
        return Evaluation(output, *others) if gradient else Evaluation(output, None, *others)

    def find_activation(self) -> Intermediate:
        """Return what the last convolution with places comes to; see
        `inspection.find_activation`."""
        return find_activation(self._plain)

    def find_places(self, layer: str | nn.Module) -> tuple[Layer, int]:
        """Return the layer of this name, in the network that is run; and which of its calls."""
        named = find_layer(self._wrapped.net, layer, "layer")
        if not isinstance(named, Layer):
            raise InputError("layer='output': the network's output has no places. Name a module of it")
        module = dict(self._plain.model.net.named_modules(remove_duplicate=False)).get(named.name, named.module)
        return find_running(self._plain, replace(named, module=module), "layer"), 1

    def find_cuts(self, axes: int) -> list[tuple[tuple[int, ...], Layer]]:
        """Return the layers with places that all of the input passes through, by grid; see
        `inspection.find_cuts`."""
        return find_cuts(self._plain, axes)

    def differentiate_layer(
        self, layer: Layer | Intermediate, call: int, points: Tensor, rows: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return what a layer makes of the points, (n, ...), the gradient of the output by it, and
        the output, (n,).

        In the network itself: a faster copy has other layers.
        """
        with self._reading(layer, call) as network:
            with torch.enable_grad():
                output = network.scores(points.detach().requires_grad_(), rows).gather(1, target[:, None])[:, 0]
            activation = network.activation(len(rows), "name another layer")
            (gradient,) = network.differentiate(output, [activation]) if activation.requires_grad else [None]
        if gradient is None:
            raise ModelError(
                f"the {network.where} has no part in a gradient of the output by the input: name a layer between the two, "
                "outside of torch.utils.checkpoint with use_reentrant=True"
            )
        self.forwards += len(points)
        activation, gradient = (each[: len(rows)] for each in (activation.detach(), gradient))
        self._watch(rows, gradient)
        return activation, gradient, output.detach()

    def read_layer(self, layer: Layer, call: int, points: Tensor, rows: Tensor) -> Tensor:
        """Return what a layer makes of the points, (n, ...), in the network itself."""
        with self._reading(layer, call) as network:
            network.scores_alone(points, rows)
            activation = network.activation(len(rows), "name another layer").detach()[: len(rows)]
        self.forwards += len(points)
        return activation

    @contextmanager
    def _reading(self, layer: Layer | Intermediate, call: int) -> Iterator[Network]:
        """Yield the network itself, reading this layer and not that of the representation."""
        network = copy(self._plain)
        network.read(layer, call)
        try:
            yield network
        finally:
            network.close()

    def _step(
        self,
        request: StepRequest,
        network: Network,
        points: Tensor,
        rows: Tensor,
        target: Tensor,
        reference: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Return the output; its gradient, if requested; the distance, if requested; the gradient
        of that, if requested."""
        points = points.detach().requires_grad_()
        distance = None
        with torch.set_grad_enabled(request.gradient or request.ascent or network.habits.differentiates):
            outputs = network.scores(points, rows)
            output = outputs.gather(1, target[:, None])[:, 0]
            if request.distance is not None:
                assert reference is not None
                of_outputs = isinstance(request.distance, OfOutputs)
                here = outputs if of_outputs else network.representation(len(rows))
                distance = request.distance(here, reference)
                self._check_distance(distance, len(rows), request.ascent)
        # Each pair's gradient is its own: samples do not mix, so the gradient of the sum is the rows' gradients.
        values = [output.detach()]
        if request.gradient:
            values.append(self.lay_out(network.gradient(output, points, retain=request.ascent)))
        if distance is not None:
            values.append(distance.detach())
            if request.ascent:
                values.append(self.lay_out(network.gradient(distance, points)))
        network.forget()
        return tuple(values)

    def _check_distance(self, distance: object, rows: int, ascent: bool) -> None:
        if not isinstance(distance, Tensor) or distance.shape != (rows,):
            raise ModelError(
                f"the distance between {rows} pairs of representations is {describe(distance)}: expected ({rows},)"
            )
        if ascent and not distance.requires_grad:
            raise ModelError(
                f"the distance at the {self.where} has no gradient by the input: that layer does not see the input, or "
                "something on the way (.detach(), numpy) cuts it off. Name another one: ig2.wrap(net, representation=...)"
            )

    def _open_layer(self) -> None:
        """Find the layer of the representation on first use, and read it from then on."""
        if self._plain.layer is None:
            known = self._opened.layers
            if self._call not in known:
                known[self._call] = find_representation(self._plain)
            self._plain.read(*known[self._call])
        if self._network.layer is None:
            self._network.read_as(self._plain, self._copies)


def _reason(error: Exception) -> str:
    """Return why there is no faster copy."""
    if is_out_of_memory(error):
        return "no memory for a copy"
    return str(error) if isinstance(error, CopyError) else first_line(error)


@contextmanager
def open_session(
    model: Model,
    x: Any,
    *,
    batch_size: int | Literal["auto"] = "auto",
    needs_gradient: bool = True,
    prepares: bool = True,
    runs_once: bool = False,
    within_bounds: bool = False,
) -> Iterator[Session]:
    """Check x and open the network on it; the only place where a session begins.

    Args:
        model: whose network is opened.
        x: as a method is called with, or `Explicands` made of it.
        batch_size: with 1, samples of a batch may influence each other.
        needs_gradient: False allows integers and booleans, and a network without gradients.
        prepares: whether a faster copy of the network is worth making.
        runs_once: whether one pass of the explicands is all that is asked for.
        within_bounds: whether x must lie inside the model's bounds.
    """
    with torch.inference_mode(False), torch.no_grad(), explain_memory_errors():
        inputs = x if isinstance(x, Explicands) else Explicands.of(x, model.device, needs_gradient=needs_gradient)
        if within_bounds:
            precisions = [torch.finfo(dtype).eps for _, _, dtype in inputs.attributed if dtype.is_floating_point]
            model.check_inside(inputs.data, "x", max(precisions, default=0.0))
        with Session(model, inputs, batch_size != 1, prepares, runs_once) as session:
            yield session
