"""A network as the methods see it: a score to explain and a representation to walk in, both in the user's data space."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from ig2._engine.inputs import Fixed, value_of
from ig2._engine.private import uncompiled_network
from ig2._utils.suggestions import suggest
from ig2.errors import WITHOUT_GRADIENTS, InputError, ModelError, describe
from ig2.targets import AnyTarget, Class, Difference, Target, as_target, find_tensor, has_queries

OutputName = Literal["logit", "probability", "log-probability", "sigmoid"]
Bounds = tuple[float | Tensor, float | Tensor]
Precision = Literal["float32", "tf32", "bfloat16", "float16"]
# By this share of their range values may leave the bounds: what rounding does to a blurred, scaled or mean sample.
ROUNDING = 1e-5
PRECISIONS: dict[str, torch.dtype] = {
    "float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16,
}  # fmt: skip


def _softmax(logits: Tensor) -> Tensor:
    return logits.sigmoid() if logits.shape[1] == 1 else logits.softmax(dim=1)


def _log_softmax(logits: Tensor) -> Tensor:
    return nn.functional.logsigmoid(logits) if logits.shape[1] == 1 else logits.log_softmax(dim=1)


OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "logit": lambda logits: logits,
    "probability": _softmax,
    "log-probability": _log_softmax,
    "sigmoid": torch.sigmoid,
}


SCRIPTED = (
    "the layers of a scripted or traced network cannot be read; wrap the network it was made from, or measure distances at "
    "its output, ig2.wrap(net, representation='output')"
)

ESTIMATOR = (
    ": explain its predict_proba, which ig2.KernelSHAP()(estimator.predict_proba, x) does without gradients; for other methods "
    "build it anew of torch layers with its weights, if it is linear or a perceptron, or train a network on what it predicts"
)


class Function(nn.Module):
    """A plain function as a module, so that everything below handles modules only; those it uses become its parts.

    Args:
        function: of tensors, or of arrays.
        numpy: whether it is called with NumPy arrays.
    """

    def __init__(self, function: Callable[..., Any], numpy: bool = False) -> None:
        super().__init__()
        self.function, self.numpy = function, numpy
        for name, module in modules_used(function).items():
            self.add_module(f"{name}_" if hasattr(self, name) else name, _original(module))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.numpy:
            return self.function(*map(_as_array, args), **{name: _as_array(value) for name, value in kwargs.items()})
        return self.function(*args, **kwargs)


def _as_array(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _is_of_estimator(function: Any) -> bool:
    """Whether a function is a method of an estimator of scikit-learn, or of a library that derives its own from it."""
    kinds = type(getattr(function, "__self__", None)).__mro__ if isinstance(function, types.MethodType) else ()
    return any(kind.__module__.partition(".")[0] == "sklearn" for kind in kinds)


def _holds_numbers(value: Any) -> bool:
    """Whether a value is numbers that are no tensor: Python's, an array, or lists of Python's."""
    if isinstance(value, (list, tuple)):
        return len(value) > 0 and all(not hasattr(item, "__array__") and _holds_numbers(item) for item in value)
    if isinstance(value, Tensor):
        return False
    return isinstance(value, Real) or (hasattr(value, "__array__") and np.asarray(value).dtype.kind in "biuf")


def modules_used(function: Callable[..., Any]) -> dict[str, nn.Module]:
    """The modules that `lambda x: net(x)[0]`, `net.encode` or `partial(net, mask=None)` let see, by the names they use."""
    if isinstance(function, nn.Module):
        return {"net": function}
    if isinstance(function, functools.partial):
        return modules_used(function.func)
    inner = {}
    if isinstance(function, types.FunctionType):
        if hasattr(function, "__wrapped__"):  # by `torch.compile` or another decorator
            inner = modules_used(function.__wrapped__)
        variables = inspect.getclosurevars(function)
        seen = {**variables.globals, **variables.nonlocals}
    elif isinstance(function, types.MethodType):
        seen = {"self": function.__self__, **getattr(function.__self__, "__dict__", {})}
    else:
        seen = dict(getattr(function, "__dict__", {}))
    seen = {name: value.net if isinstance(value, Model) else value for name, value in seen.items()}
    return inner | {name: value for name, value in seen.items() if isinstance(value, nn.Module)}


def _original(module: nn.Module) -> nn.Module:
    """The network inside replicas and compiled copies, which would hide the layers that are read."""
    while True:
        compiled_from = uncompiled_network(module)
        if compiled_from is None and not isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            return module
        module = cast(nn.Module, module.module if compiled_from is None else compiled_from)


@dataclass(frozen=True)
class Preparation:
    """How the network is made fast for the length of a call. The user's own is never touched: a copy is.

    What cannot be done to a network is left out, and `Attribution.settings["preparation"]` says so. The copy has to give the
    network's own scores, or it is not used.

    Args:
        fold: batch normalisation becomes part of the convolution or linear layer in front of it.
        channels_last: two-dimensional convolutions get the memory layout in which they are fastest. "auto" leaves out networks
            with depthwise convolutions on an NVIDIA GPU: there kernels are compiled for every new size of batch, which takes
            seconds; for long work in batches of one size True is faster.
        precision: of the network's arithmetic, "float32", "tf32", "bfloat16" or "float16"; by default that of its weights.
            Paths, gradients and sums stay in float32. "tf32" is float32 whose matrix products round their factors to 11
            bits, on an NVIDIA GPU, for the length of the call: PyTorch's default computes them in full, several times
            slower.
        compile: compile a whole step, the forward pass and its input gradients, with `torch.compile`. That takes a minute
            or two for each size of batch, and pays on a GPU for long work.
        graphs: on a GPU, record the kernels of a step on small batches once and replay them.
        checkpoint: keep the input of each block alone, and run the block once more for its gradient: less memory, more time,
            the same values. Blocks are modules of several layers, such as the layers of a transformer. Not with `at=`, and
            not for DeepSHAP and the rule `secant`.
    """

    fold: bool = True
    channels_last: bool | Literal["auto"] = "auto"
    precision: Precision | None = None
    compile: bool = False
    graphs: bool = True
    checkpoint: bool = False

    def __post_init__(self) -> None:
        if self.channels_last not in (True, False, "auto"):
            raise InputError(f"channels_last must be True, False or 'auto', got {describe(self.channels_last)}")
        if self.precision is not None and self.precision not in PRECISIONS:
            known = ", ".join(map(repr, PRECISIONS))
            raise InputError(f"precision must be one of {known} or None, got {describe(self.precision)}")


@dataclass(frozen=True)
class Layer:
    """Where a representation is read: a module, at its input or its output."""

    name: str
    module: nn.Module
    side: Literal["input", "output"]


@dataclass(frozen=True, eq=False)
class Model:
    """What `wrap` returns: the network, and what of it is explained. Only a call of the model runs the network."""

    net: nn.Module
    representation: Layer | Literal["output"] | None
    output: str | Callable[[Any], Tensor]
    bounds: Bounds | None
    preprocess: Callable[..., Any] | None
    preparation: Preparation | None = Preparation()
    target: Target | None = None  # what of the result is explained, if not a class: set for the length of a call
    # code compiled in earlier calls, with the weights it was made for
    compiled: dict[Any, tuple[list[Tensor], Callable[..., tuple[Tensor, ...]]]] = field(default_factory=dict, repr=False)
    # what one call finds out for the next, set by a caller that knows that nothing changes the network between them
    kept: Any = field(default=None, repr=False)

    def exchange(self, **parts: Any) -> Model:
        """The model with other parts, and without what is known of the network it had."""
        return replace(self, **parts, compiled={}, kept=None)

    @property
    def modules(self) -> list[tuple[str, nn.Module]]:
        """Every module that runs, with the name the user knows it by; the preprocessing and the output too if they are."""
        modules = list(self.net.named_modules())
        for prefix, part in (("preprocess", self.preprocess), ("output", self.output)):
            if isinstance(part, nn.Module):
                modules += [(f"{prefix}.{name}".rstrip("."), module) for name, module in part.named_modules()]
        return modules

    @property
    def device(self) -> torch.device | None:
        """Where the weights are, or nothing where there are none."""
        for _, module in self.modules:
            for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
                if not tensor.is_meta:  # those are refused when the network is opened
                    return tensor.device
        return None

    @property
    def returns_probabilities(self) -> bool:
        """Whether it is scikit-learn's `predict_proba`, of which no softmax is to be taken."""
        return isinstance(self.net, Function) and getattr(self.net.function, "__name__", "") == "predict_proba"

    def __call__(self, x: Any) -> Tensor:
        """The explained outputs (B, classes) of x, as methods take it, with autograd's graph: for gradients of your own.

        The network runs as it is and where it is, on all samples at once. `ig2.scores` checks, and goes by the memory.
        """
        named = x if isinstance(x, Mapping) else dict(enumerate(x if isinstance(x, (tuple, list)) else (x,)))
        values = {key: _detach_held(item) for key, item in named.items()}
        rows = [len(value) for value in values.values() if isinstance(value, Tensor) and value.ndim]
        if not rows:
            raise InputError(f"x must be a torch tensor, or a tuple or dict of them, got {describe(x)}")
        args, kwargs = self.preprocessed(
            tuple(value for key, value in values.items() if isinstance(key, int)),
            {key: value for key, value in values.items() if isinstance(key, str)},
        )
        return self.scores(self.net(*args, **kwargs), rows[0])

    def ask(self, target: AnyTarget, against: Any = None) -> tuple[Model, Any, Any]:
        """The model that explains a target, and the class and what it is explained against, as `open_task` takes them.

        Raises:
            InputError: if a target that is no class is explained against one.
        """
        target = as_target(target)
        if isinstance(target, Class):
            return self, target.index, against
        if against is not None:
            raise InputError(
                f"against={describe(against)} is for classes, and this explains {target.describe(0)}: subtract another target, "
                "ig2.targets.Difference(one, other)"
            )
        if isinstance(target, Difference) and isinstance(target.first, Class) and isinstance(target.second, Class):
            return self, target.first.index, target.second.index
        return replace(self, target=target), None, None

    def preprocessed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the network is called with, from arguments in the data space."""
        return preprocess_arguments(self.preprocess, args, kwargs)

    def check_inside(self, samples: Tensor, name: str, precision: float | None = None) -> None:
        """Refuse samples (n, ...) that leave the bounds.

        Args:
            samples: in the data space.
            name: what the user calls them, such as `x` or `references`.
            precision: how far numbers of their first type may be off, as a share; by default those of their present type.
        """
        if self.bounds is None:
            return
        relative = 4 * (torch.finfo(samples.dtype).eps if precision is None else precision)
        low, high = (torch.as_tensor(bound, dtype=samples.dtype, device=samples.device) for bound in self.bounds)
        shown = f"({describe(self.bounds[0])}, {describe(self.bounds[1])})"
        least, most = samples.amin(dim=0), samples.amax(dim=0)
        slack = ((high - low) * ROUNDING).nan_to_num(posinf=0.0)
        low_enough, high_enough = low - slack - relative * low.abs(), high + slack + relative * high.abs()
        try:
            outside = ~((least >= low_enough.expand_as(least)) & (most <= high_enough.expand_as(most)))
            low, high = low.expand_as(least), high.expand_as(least)
        except RuntimeError as error:
            raise InputError(f"the bounds {shown} do not fit samples {tuple(samples.shape[1:])}") from error
        if outside.any():
            if not all(isinstance(bound, (int, float)) for bound in self.bounds):  # then they differ from feature to feature
                place = _first(outside)
                least, most, low, high = least[place], most[place], low[place], high[place]
                name, shown = f"{_feature(place)} of {name}", f"({float(low):.6g}, {float(high):.6g})"
            smallest, largest = float(least.min()), float(most.max())
            are_bytes = float(low.min()) == 0 and float(high.max()) == 1 and smallest >= 0 and 16 < largest <= 255
            reach = "reach" if name == "references" else "reaches"
            raise InputError(
                f"{name} {reach} from {smallest:.6g} to {largest:.6g}, outside the model's "
                f"bounds {shown}: {'take' if are_bytes else 'scale'} {name}{' / 255' * are_bytes}, or give wrap() the bounds "
                "of the space your data is in"
            )

    def logits(self, raw: Any) -> Tensor:
        """The tensor of scores in whatever the network returned."""
        if isinstance(raw, Mapping) and "logits" in raw:
            raw = raw["logits"]
        elif not isinstance(raw, Tensor) and isinstance(getattr(raw, "logits", None), Tensor):
            raw = raw.logits
        elif isinstance(raw, (tuple, list)) and len(raw) == 1:
            raw = raw[0]
        if _holds_numbers(raw):
            return _as_tensor(raw, "the network returned")
        if not isinstance(raw, Tensor):
            is_mapping = isinstance(raw, Mapping) and len(raw) > 0
            got = f"{type(raw).__name__} with keys {list(raw)}" if is_mapping else describe(raw)
            choice = repr(next(iter(raw))) if is_mapping else "0"
            raise ModelError(
                f"the network returned {got}, not one tensor of scores: choose one, for example "
                f"ig2.wrap(net, output=lambda result: result[{choice}])"
            )
        return raw

    def scores(self, raw: Any, rows: int, which: Tensor | None = None) -> Tensor:
        """The explained outputs (rows, classes) from what the network returned for that many samples.

        Args:
            raw: what it returned.
            rows: how many samples.
            which: explicand each of them is, or is a variant of, (rows,); by default the first ones.
        """
        if self.target is not None:
            return self._read_target(self.target, raw, torch.arange(rows) if which is None else which)
        if callable(self.output):
            scores = self.output(raw)
            source = "the output function returned"
            if _holds_numbers(scores):
                scores = _as_tensor(scores, source)
            if not isinstance(scores, Tensor):
                raise ModelError(f"{source} {describe(scores)}: expected a tensor (B, classes) or (B,)")
        else:
            scores = self.logits(raw)
            source = "the network returned"
        if scores.is_complex() or (torch.is_grad_enabled() and not scores.is_floating_point()):
            raise ModelError(
                f"{source} {describe(scores)}: integers have no gradient; return scores, not labels. {WITHOUT_GRADIENTS}"
            )
        got = describe(scores)
        if rows == 1 and scores.ndim < 2:
            scores = scores.reshape(1, -1)  # a network that ends with squeeze() loses the batch axis of a single sample
        elif scores.ndim == 1:
            scores = scores[:, None]
        if scores.ndim != 2 or scores.shape[0] != rows:
            raise ModelError(
                f"{source} {got} for {rows} sample{'s' * (rows != 1)}: expected (B, classes) or (B,). Say what of it is "
                "explained with target=, for example ig2.targets.Region(mask, 3) of a map, ig2.targets.Horizon(-1) of a "
                "forecast, or a function from it to (B,)"
            )
        if scores.shape[1] == 0:
            raise ModelError(f"{source} {got}, without a single class: there is nothing to explain")
        if scores.dtype not in (torch.float32, torch.float64):
            scores = scores.float() if scores.is_floating_point() else scores.double()
        return scores if callable(self.output) else OUTPUTS[self.output](scores)

    def _read_target(self, target: Target, raw: Any, rows: Tensor) -> Tensor:
        """What a target makes of the network's result, (n, 1)."""
        if isinstance(target, Difference):  # each of the two gets what it reads, logits or probabilities
            return self._read_target(target.first, raw, rows) - self._read_target(target.second, raw, rows)
        result = raw
        if callable(self.output):
            result = self.output(raw)
        elif target.of_classes and self.output != "logit" and not has_queries(raw):
            result = OUTPUTS[self.output](find_tensor(raw))
        output = target.read(result, rows)
        if not isinstance(output, Tensor) or output.shape != (len(rows),) or not output.is_floating_point():
            raise ModelError(
                f"{type(target).__name__} made {describe(output)} of {len(rows)} sample{'s' * (len(rows) != 1)}: expected a "
                "number for each, floating-point, (B,)"
            )
        return (output if output.dtype in (torch.float32, torch.float64) else output.float())[:, None]

    def __repr__(self) -> str:
        layer = self.representation
        where = f"{layer.side} of {layer.name!r}" if isinstance(layer, Layer) else layer or "input of the last linear layer"
        output = self.output if isinstance(self.output, str) else getattr(self.output, "__name__", "a function")
        net = self.net.function if isinstance(self.net, Function) else self.net
        name = getattr(net, "__name__", type(net).__name__)
        bounds = "" if self.bounds is None else f", bounds {describe(self.bounds[0])} to {describe(self.bounds[1])}"
        return f"Model({name}: output {output}, representation {where}{bounds})"


def preprocess_arguments(
    preprocess: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a network is called with, from arguments in the data space and a function between the two."""
    if preprocess is None:
        return args, kwargs
    result = preprocess(*args, **kwargs)
    if kwargs and isinstance(result, Mapping):
        return (), dict(result)
    return (result if isinstance(result, tuple) else (result,)), {}


def _detach_held(item: Any) -> Any:
    """An input without its mark; what of it is fixed has no gradient."""
    value = value_of(item)
    if not isinstance(item, Fixed) or item.where is None:
        return value
    where = item.where.reshape(*item.where.shape, *[1] * (value.ndim - item.where.ndim))
    return torch.where(where.to(value.device), value.detach(), value)


def _as_tensor(numbers: Any, source: str) -> Tensor:
    """Scores that are no tensor, where no gradient is going to be taken of them."""
    if torch.is_grad_enabled():  # as it is wherever a gradient is needed, and only there
        raise ModelError(
            f"{source} {describe(numbers)}, through which PyTorch has no gradients: return a tensor made by torch operations. "
            f"{WITHOUT_GRADIENTS}"
        )
    return torch.as_tensor(np.array(numbers, order="C"))


def wrap(
    net: nn.Module | Callable[..., Any],
    representation: str | nn.Module | None = None,
    output: OutputName | Callable[[Any], Tensor] = "logit",
    bounds: Bounds | None = None,
    preprocess: Callable[..., Any] | None = None,
    prepare: bool | Preparation = True,
    numpy: bool | None = None,
) -> Model:
    """Say what of a network is explained. The network is not run, copied or changed.

    Args:
        net: a module or any function of tensors that PyTorch can differentiate. `ig2.KernelSHAP`, `ig2.scores` and the metrics
            that only compare scores also take a function without gradients, which may return arrays or plain numbers.
        representation: where GradPath measures distances. By default the input of the last linear layer, found when the
            network first runs. A module or its name means that module's output, `"name:input"` its input, and
            `"output"` the network's own output (also what a network without a linear layer gets).
        output: the score to explain: `"logit"`, `"probability"`, `"log-probability"` (over the classes, or the logistic
            function where there is a single output), `"sigmoid"` (independent labels), or a function from whatever the
            network returns to scores (B, classes) or (B,).
        bounds: the smallest and the largest value of the data, numbers or tensors that broadcast to a sample. GradPath
            stays inside; a feature whose two bounds are equal never moves.
        preprocess: from the user's data space to what the network takes, called as the network would be; where that is
            several inputs, it returns a tuple, or a dict where x is one. It belongs to the model: points, steps and
            attributions are all in the data space, where black means black.
        prepare: how the network is made fast for the length of a call: True for what changes nothing but the rounding, False
            to run it as it is, or a `Preparation` that says what.
        numpy: whether a function is called with NumPy arrays in place of tensors. By default methods of scikit-learn's
            estimators are, such as `forest.predict_proba`.

    Returns:
        The model that methods and metrics take.

    Raises:
        InputError: if an argument cannot be used, for example a representation that names no module.

    >>> import torch
    >>> model = wrap(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)), bounds=(0, 1))
    >>> model
    Model(Sequential: output logit, representation input of the last linear layer, bounds 0 to 1)
    """
    if isinstance(net, Model):
        raise InputError(f"this is wrapped already: {net!r}")
    if isinstance(net, type):
        raise InputError(f"net is the class {net.__name__}, not a network of it: call it first")
    if not callable(net):
        raise InputError(
            f"net must be a torch module or a function of tensors, got {describe(net)}"
            + (ESTIMATOR if hasattr(net, "predict") else "")
        )
    if numpy and isinstance(net, nn.Module):
        raise InputError(f"numpy=True is for functions of arrays, got the module {type(net).__name__}")
    if not isinstance(net, nn.Module):
        net = Function(net, _is_of_estimator(net) if numpy is None else numpy)
    module = _original(net)
    if not callable(output) and output not in OUTPUTS:
        raise InputError(f"output={output!r} is unknown: use one of {', '.join(map(repr, OUTPUTS))}, or a function")
    if preprocess is not None and not callable(preprocess):
        raise InputError(f"preprocess must be a function or a module, got {describe(preprocess)}")
    if not isinstance(prepare, (bool, Preparation)):
        raise InputError(f"prepare must be True, False or an ig2.Preparation, got {describe(prepare)}")
    preparation = Preparation() if prepare is True else prepare or None
    return Model(module, _find_representation(module, representation), output, _check_bounds(bounds), preprocess, preparation)


def as_model(model: Model | nn.Module | Callable[..., Any]) -> Model:
    """A model as it is, or a network wrapped with the defaults."""
    return model if isinstance(model, Model) else wrap(model)


def _find_representation(net: nn.Module, wanted: str | nn.Module | None) -> Layer | Literal["output"] | None:
    return None if wanted is None else find_layer(net, wanted, "representation")


def find_layer(net: nn.Module, wanted: str | nn.Module, option: str) -> Layer | Literal["output"]:
    """The layer of a network that a user means.

    Args:
        net: the network.
        wanted: a module, its name, "name:input", or "output".
        option: what the user calls it.

    Raises:
        InputError: if there is none, or it cannot be read.
    """
    layer = _find_layer(net, wanted, option)
    if isinstance(layer, Layer) and isinstance(layer.module, torch.jit.ScriptModule):
        raise InputError(f"{option} {layer.name!r}: {SCRIPTED}")
    return layer


def _find_layer(net: nn.Module, wanted: str | nn.Module, option: str) -> Layer | Literal["output"]:
    modules = dict(net.named_modules(remove_duplicate=False))  # a shared module goes by each of its names
    if isinstance(wanted, nn.Module):
        for name, module in modules.items():
            if module is wanted:
                return Layer(name, module, "output")
        if isinstance(net, Function):  # what a function calls need not show; whether this runs is seen when it runs
            return Layer(type(wanted).__name__, wanted, "output")
        raise InputError(f"{option} {type(wanted).__name__} is not a module of this network")
    if not isinstance(wanted, str):
        raise InputError(f"{option} must be a module or its name, got {describe(wanted)}")
    if wanted == "output":
        return "output"
    name, _, side = wanted.partition(":")
    if name in modules and name and side in ("", "input", "output"):
        return Layer(name, modules[name], "input" if side == "input" else "output")
    if name in modules and name:
        raise InputError(f"{option}={wanted!r}: after the colon goes 'input' or 'output', not {side!r}")
    hint = suggest(name, list(filter(None, modules))[::-1]) or "; it has none; 'output' is the network's own output"
    raise InputError(f"{option}={wanted!r} names no module of this network{hint}")


def _check_bounds(bounds: Bounds | None) -> Bounds | None:
    """The bounds, if they can be: a feature may have one value alone, and then never moves; not all of them may."""
    if bounds is None:
        return None
    try:
        low, high = bounds
        wrong = ~(torch.as_tensor(low) <= torch.as_tensor(high))  # and so is what is NaN
        constant = bool((torch.as_tensor(low) == torch.as_tensor(high)).all())
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"bounds must be (low, high), got {describe(bounds)}") from error
    if wrong.any():
        place = _first(wrong)
        pair = ", ".join(f"{float(torch.as_tensor(bound).expand_as(wrong)[place]):.6g}" for bound in (low, high))
        got = f"({pair}) at {_feature(place)}" if place else f"({pair})"
        raise InputError(f"bounds must be (low, high) with low not above high, got {got}")
    if constant:
        raise InputError(f"bounds must be (low, high) with low below high for some feature, got {describe(bounds)}")
    return low, high


def _first(which: Tensor) -> tuple[int, ...]:
    """Where the first True is."""
    return tuple(which.nonzero()[0].tolist())


def _feature(place: tuple[int, ...]) -> str:
    return f"feature {place[0] if len(place) == 1 else place}"
