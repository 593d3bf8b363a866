"""Models: a network with the score to explain and the representation to follow, both as functions of the user's data."""

from __future__ import annotations

import functools
import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from ig2._engine.kept import Kept
from ig2._engine.private import uncompiled_network
from ig2._utils.suggestions import suggest
from ig2.errors import WITHOUT_GRADIENTS, InputError, ModelError, describe
from ig2.inputs import Fixed, value_of
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
# Above this an output of each kind says yes to a label.
YES_ABOVE = {"logit": 0.0, "sigmoid": 0.5, "probability": 0.5, "log-probability": math.log(0.5)}


SCRIPTED = (
    "the layers of a scripted or traced network cannot be read; wrap the network it was made from, or measure distances at "
    "its output, ig2.wrap(net, representation='output')"
)

ESTIMATOR = (
    ": explain its predict_proba, which ig2.KernelSHAP()(estimator.predict_proba, x) does without gradients; for other methods "
    "build it anew of torch layers with its weights, if it is linear or a perceptron, or train a network on what it predicts"
)


class Function(nn.Module):
    """A plain function as a module, so that all other code handles only modules. Modules that it uses become submodules.

    Args:
        function: a function of tensors, or of arrays.
        numpy: whether to call it with NumPy arrays.
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
    """Return whether a function is a method of a scikit-learn estimator, or of another library's subclass of one."""
    kinds = type(getattr(function, "__self__", None)).__mro__ if isinstance(function, types.MethodType) else ()
    return any(kind.__module__.partition(".")[0] == "sklearn" for kind in kinds)


def _holds_numbers(value: Any) -> bool:
    """Return whether a value holds numbers without being a tensor: a Python number, an array, or lists of Python numbers."""
    if isinstance(value, (list, tuple)):
        return len(value) > 0 and all(not hasattr(item, "__array__") and _holds_numbers(item) for item in value)
    if isinstance(value, Tensor):
        return False
    return isinstance(value, Real) or (hasattr(value, "__array__") and np.asarray(value).dtype.kind in "biuf")


def modules_used(function: Callable[..., Any]) -> dict[str, nn.Module]:
    """Return the modules visible in a function such as `lambda x: net(x)[0]`, `net.encode` or `partial(net, mask=None)`.

    Returns:
        The modules by the names that the function uses for them.
    """
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
    """Return the network inside replicas and compiled copies, which would hide the layers to read."""
    while True:
        compiled_from = uncompiled_network(module)
        if compiled_from is None and not isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            return module
        module = cast(nn.Module, module.module if compiled_from is None else compiled_from)


@dataclass(frozen=True)
class Preparation:
    """Optimisations of the network for the duration of a call. They change a copy, never the user's network.

    An optimisation that a network does not allow is skipped and listed in `Attribution.settings["preparation"]`. The copy is
    used only if it reproduces the network's scores.

    Args:
        fold: fold batch normalisation into the convolution or linear layer in front of it.
        channels_last: give two-dimensional convolutions the memory layout in which they are fastest. "auto" skips networks
            with depthwise convolutions on an NVIDIA GPU, where kernels are compiled for every new batch size, which takes
            seconds; True is faster for long runs with one batch size.
        precision: the precision of the network's arithmetic, "float32", "tf32", "bfloat16" or "float16"; by default that of
            its weights. Paths, gradients and sums stay in float32. "tf32" is float32 with the factors of matrix products
            rounded to 11 bits, on an NVIDIA GPU, for the duration of the call; PyTorch's default computes them in full,
            several times slower.
        compile: compile a whole step, the forward pass and its input gradients, with `torch.compile`. This takes a minute
            or two for each batch size, and pays off on a GPU for long runs.
        graphs: on a GPU, record the kernels of a step on small batches once and replay them.
        checkpoint: store only the input of each block, and run the block again for its gradient: less memory, more time,
            the same values. Blocks are modules of several layers, such as the layers of a transformer. Not available with
            `at=`, DeepSHAP and the rule `secant`.
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
    """The place where a representation is read: the input or output of a module."""

    name: str
    module: nn.Module
    side: Literal["input", "output"]


@dataclass(frozen=True, eq=False)
class Model:
    """A network and the score to explain, made by `wrap`. Only calling the model runs the network."""

    net: nn.Module
    representation: Layer | Literal["output"] | None
    output: str | Callable[[Any], Tensor]
    bounds: Bounds | None
    preprocess: Callable[..., Any] | None
    preparation: Preparation | None = Preparation()
    target: Target | None = None  # what of the result is explained, if not a class: set for the length of a call
    # what calls found out about the network, for the next one: as long as it is what it was
    kept: Kept = field(default_factory=Kept, repr=False)

    def exchange(self, **parts: Any) -> Model:
        """Return the model with other parts, and without what calls found out about its network."""
        return replace(self, **parts, kept=Kept())

    @property
    def modules(self) -> list[tuple[str, nn.Module]]:
        """Every module that runs, with its name in the user's code; preprocessing and output included if they are modules."""
        modules = list(self.net.named_modules())
        for prefix, part in (("preprocess", self.preprocess), ("output", self.output)):
            if isinstance(part, nn.Module):
                modules += [(f"{prefix}.{name}".rstrip("."), module) for name, module in part.named_modules()]
        return modules

    @property
    def device(self) -> torch.device | None:
        """The device of the weights, or None if there are no weights."""
        for _, module in self.modules:
            for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
                if not tensor.is_meta:  # those are errors when the network is opened
                    return tensor.device
        return None

    @property
    def returns_probabilities(self) -> bool:
        """Whether the network is scikit-learn's `predict_proba`, which needs no softmax."""
        return isinstance(self.net, Function) and getattr(self.net.function, "__name__", "") == "predict_proba"

    def __call__(self, x: Any) -> Tensor:
        """Return the explained outputs (B, classes) of x, with the autograd graph, to compute your own gradients.

        The network runs unchanged on its device, on all samples at once. `ig2.scores` checks x and splits it to fit memory.

        Args:
            x: the input, as methods take it.
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
        """Return the model that explains a target, with the class and the classes it is explained against.

        Returns:
            The model, target and against, as `open_task` takes them.

        Raises:
            InputError: if a target that is not a class is explained against one.
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
        """Return the arguments of the network for arguments in the data space."""
        return preprocess_arguments(self.preprocess, args, kwargs)

    def check_inside(self, samples: Tensor, name: str, precision: float | None = None) -> None:
        """Check that samples (n, ...) are within the bounds.

        Args:
            samples: the samples in the data space.
            name: their name in errors, such as `x` or `references`.
            precision: the relative rounding error of their original type; by default that of their present type.

        Raises:
            InputError: if a sample is outside the bounds.
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
        """Return the tensor of scores in the result of the network."""
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
        """Compute the explained outputs (rows, classes) from the result of the network.

        Args:
            raw: the result of the network.
            rows: the number of samples it was run on.
            which: the explicand that each sample is, or is a variant of, (rows,); by default the first ones.
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
        """Return the values of a target for the network's result, (n, 1)."""
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
    """Return the arguments of a network for arguments in the data space, with a function from one to the other."""
    if preprocess is None:
        return args, kwargs
    result = preprocess(*args, **kwargs)
    if kwargs and isinstance(result, Mapping):
        return (), dict(result)
    return (result if isinstance(result, tuple) else (result,)), {}


def _detach_held(item: Any) -> Any:
    """Return an input without its `Fixed` mark; the fixed part has no gradient."""
    value = value_of(item)
    if not isinstance(item, Fixed) or item.where is None:
        return value
    where = item.where.reshape(*item.where.shape, *[1] * (value.ndim - item.where.ndim))
    return torch.where(where.to(value.device), value.detach(), value)


def _as_tensor(numbers: Any, source: str) -> Tensor:
    """Return scores that are not a tensor as one, provided that no gradient of them is needed."""
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
    """Wrap a network as a model: choose its score to explain, its representation and its data space.

    The network is not run, copied or changed.

    Args:
        net: a module or any function of tensors that PyTorch can differentiate. `ig2.KernelSHAP`, `ig2.scores` and the metrics
            that only compare scores also take a function without gradients, which may return arrays or plain numbers.
        representation: where GradPath measures distances; by default the input of the last linear layer, found when the
            network first runs. A module or its name stands for that module's output, `"name:input"` for its input, and
            `"output"` for the output of the network (the default for a network without a linear layer).
        output: the score to explain: `"logit"`, `"probability"`, `"log-probability"` (over the classes, or the logistic
            function if there is a single output), `"sigmoid"` (independent labels), or a function from the result of the
            network to scores (B, classes) or (B,).
        bounds: the smallest and the largest value of the data, numbers or tensors that broadcast to a sample. GradPath
            stays within them; a feature whose two bounds are equal never moves.
        preprocess: a function from the user's data space to the input of the network, called as the network would be. For
            several inputs it returns a tuple, or a dict if x is one. It belongs to the model: points, steps and
            attributions are all in the data space, where black means black.
        prepare: how to speed up the network for the duration of a call: True for optimisations that change only the rounding,
            False for none, or a `Preparation`.
        numpy: whether to call a function with NumPy arrays instead of tensors; by default only methods of scikit-learn's
            estimators, such as `forest.predict_proba`.

    Returns:
        The model that methods and metrics take.

    Raises:
        InputError: if an argument is invalid, for example a representation that names no module.

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
    """Return a model unchanged, or a network wrapped with the defaults."""
    return model if isinstance(model, Model) else wrap(model)


def _find_representation(net: nn.Module, wanted: str | nn.Module | None) -> Layer | Literal["output"] | None:
    return None if wanted is None else find_layer(net, wanted, "representation")


def find_layer(net: nn.Module, wanted: str | nn.Module, option: str) -> Layer | Literal["output"]:
    """Find the layer of a network that a user named.

    Args:
        net: the network.
        wanted: a module, its name, "name:input", or "output".
        option: the name of the argument, for errors.

    Raises:
        InputError: if there is no such layer, or it cannot be read.
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
    """Return the bounds if they are valid: a feature may have a single value, and then never moves, but not all features."""
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
    """Return the index of the first True."""
    return tuple(which.nonzero()[0].tolist())


def _feature(place: tuple[int, ...]) -> str:
    return f"feature {place[0] if len(place) == 1 else place}"
