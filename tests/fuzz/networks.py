"""Random networks: a seed gives one, with its inputs, references and the way it is wrapped, the same every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

import ig2

from .layers import (
    LAYERS,
    Autocast,
    Checkpointed,
    Fork,
    Gate,
    Hooked,
    Op,
    Residual,
    Shape,
    Side,
    Twice,
)

# The kinds of samples, and how large they are: small enough for thousands of networks in minutes.
SAMPLES: dict[str, Callable[[Random], Shape]] = {
    "v": lambda rng: (rng.randint(1, 8),),
    "s": lambda rng: (rng.randint(1, 3), rng.randint(4, 8)),
    "t": lambda rng: (rng.randint(1, 5), rng.choice([3, 4, 6])),
    "i": lambda rng: (rng.randint(1, 3), rng.randint(4, 8), rng.randint(4, 8)),
    "w": lambda rng: (rng.randint(1, 2), 4, 4, rng.randint(4, 5)),
}
# How often each choice is made, in shares.
KINDS = {"v": 3, "s": 2, "t": 3, "i": 5, "w": 1}
INPUTS = {1: 8, 2: 1, 3: 0.3}
ENDINGS = {
    "plain": 20, "functional": 1, "none": 0.5, "saturated": 1, "dead": 1, "sigmoid": 1, "softmax": 1, "cancelling": 0.5,
}  # fmt: skip
FORMS = {"plain": 12, "dict": 2, "tuple": 1, "squeeze": 2, "column": 1}
RANGES = {(-1.0, 1.0): 2, (0.0, 1.0): 1, (0.0, 255.0): 1, (-1e3, 1e3): 1, (-1e-3, 1e-3): 1}
DTYPES = {torch.float32: 12, torch.float64: 4, torch.float16: 2, torch.bfloat16: 2}
# What the last linear layer's weights are multiplied by.
SCALES = {1.0: 40, 1e-3: 2, 1e3: 2, 1e5: 2, 1e-20: 1, 1e-8: 1, 1e10: 1, 1e20: 1, 0.0: 1}
WRAPPERS = {
    "none": 10, "residual": 1, "gate": 1, "twice": 0.6, "side": 1, "fork": 0.6, "checkpoint": 0.4, "autocast": 0.3, "hook": 0.4,
}  # fmt: skip
HALF = (torch.float16, torch.bfloat16)


class Network(nn.Module):
    """A body for each input, a head on all of them, and a form of what is returned."""

    def __init__(self, bodies: list[nn.Module], head: nn.Module, form: str, keys: list[str] | None) -> None:
        super().__init__()
        self.bodies, self.head = nn.ModuleList(bodies), head
        self.form, self.keys = form, keys

    def forward(self, *args: Any, weight: Any = 1.0, **named: Any) -> Any:
        inputs = [named[key] for key in self.keys] if self.keys else args[: len(self.bodies)]
        if not self.keys and len(args) > len(self.bodies):
            weight = args[len(self.bodies)]
        parts = [body(x) for body, x in zip(self.bodies, inputs, strict=True)]
        logits = self.head(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))
        logits = logits * (weight.to(logits.dtype) if isinstance(weight, Tensor) else weight)
        if self.form == "dict":
            return {"logits": logits, "hidden": parts[0]}
        if self.form == "tuple":
            return (logits,)
        if self.form == "squeeze":
            return logits.squeeze()
        if self.form == "column":
            return logits[:, 0]
        return logits

    def extra_repr(self) -> str:
        return f"returns {self.form}"


@dataclass
class Case:
    """One network with all that a call needs."""

    seed: int
    module: Network
    call: Callable[..., Any]  # the module, or a function around it
    x: Any  # as methods take it
    references: Any
    wrapping: dict[str, Any]
    kind: str  # of the first input
    dtype: torch.dtype
    around: torch.dtype | None  # autocast around the whole call
    traits: frozenset[str]

    @property
    def model(self) -> ig2.Model:
        return ig2.wrap(self.call, **self.wrapping)

    @property
    def rows(self) -> int:
        return len(tensors(self.x)[0])

    @contextmanager
    def surroundings(self) -> Iterator[None]:
        with torch.autocast("cpu", dtype=self.around or torch.bfloat16, enabled=self.around is not None):
            yield

    def __str__(self) -> str:
        wrapping = ", ".join(f"{key}={value!r}" for key, value in self.wrapping.items())
        around = f", autocast {self.around}" if self.around else ""
        inputs = ", ".join(f"{tuple(t.shape)} {t.dtype}" for t in tensors(self.x))
        head = f"seed {self.seed}: {type(self.x).__name__} {inputs}{around}, wrap({wrapping}), {sorted(self.traits)}"
        return f"{head}\n{self.module}"


def tensors(x: Any) -> list[Tensor]:
    """The tensors that are attributed."""
    values = list(x.values()) if isinstance(x, dict) else list(x) if isinstance(x, tuple) else [x]
    return [value for value in values if isinstance(value, Tensor)]


def mapped(x: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """x with each tensor changed, those that are fixed too."""
    if isinstance(x, Tensor):
        return change(x)
    if isinstance(x, ig2.Fixed):
        return ig2.Fixed(mapped(x.value, change))
    if isinstance(x, tuple):
        return tuple(mapped(item, change) for item in x)
    if isinstance(x, dict):
        return {key: mapped(item, change) for key, item in x.items()}
    return x


# -- building ------------------------------------------------------------------------------------------------------------------


def build(seed: int, exact: bool = False) -> Case:
    """The network of a seed. `exact`: its float64 twin, with the same weights and inputs, and no autocast."""
    rng = Random(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _build(rng, seed, exact)


def pick(rng: Random, table: dict[Any, float]) -> Any:
    return rng.choices(list(table), list(table.values()))[0]


def _build(rng: Random, seed: int, exact: bool) -> Case:
    traits: set[str] = set()
    kinds = [pick(rng, KINDS) for _ in range(pick(rng, INPUTS))]
    shapes = [SAMPLES[kind](rng) for kind in kinds]
    bodies, features = [], 0
    for kind, shape in zip(kinds, shapes, strict=True):
        body, size = _body(rng, kind, shape)
        bodies.append(body)
        features += size
    classes = rng.randint(1, 4)
    head: nn.Module = nn.Linear(features, classes, bias=rng.random() < 0.8)
    scale = pick(rng, SCALES)
    with torch.no_grad():
        head.weight.mul_(scale)
    traits.add(f"scale {scale:g}")
    head = _ending(pick(rng, ENDINGS), head, traits)
    form = pick(rng, FORMS)
    keys = [f"input_{i}" for i in range(len(kinds))] if rng.random() < (0.5 if len(kinds) > 1 else 0.05) else None
    net = Network(bodies, head, form, keys).eval()
    dtype = pick(rng, DTYPES)
    around = rng.choice([torch.bfloat16, torch.float16]) if dtype == torch.float32 and rng.random() < 0.04 else None
    rows = rng.randint(1, 5)
    low, high = pick(rng, RANGES)
    traits.add(f"range {high:g}")

    def draw(count: int, shape: Shape) -> Tensor:
        return (torch.rand(count, *shape) * (high - low) + low).to(dtype)

    parts = [draw(rows, shape) for shape in shapes]
    count = rng.choice([1, 1, 2, 3])
    others = [draw(count, shape) for shape in shapes]
    x, references = _structured(rng, parts, keys), _plain(others, keys)
    if rng.random() < 0.04:
        references = mapped(references, lambda t: t * 0)
    wrapping = _wrapping(rng, low, high, len(kinds), traits)
    net = net.to(dtype)
    if exact:
        net, around = net.double(), None
        for module in net.modules():
            if isinstance(module, Autocast):
                module.off = True
        x, references = (mapped(item, lambda t: t.double()) for item in (x, references))
    if rng.random() < 0.01:
        net.train()
        traits.add("train")
    function = rng.random() < 0.12
    if function and wrapping.get("representation") == "head":
        wrapping["representation"] = net.head
    call = (lambda *args, **named: net(*args, **named)) if function else net
    if function:
        traits.add("function")
    traits.add({torch.float64: "float64", torch.float32: "float32"}.get(dtype, "half"))
    if around or any(isinstance(module, Autocast) for module in net.modules()):
        traits.add("autocast")
    return Case(
        seed, net, call, x, references, wrapping, kinds[0] if len(kinds) == 1 else "several", dtype, around, frozenset(traits)
    )


def _structured(rng: Random, parts: list[Tensor], keys: list[str] | None) -> Any:
    """The inputs as the network is called: alone, as a tuple or as a dict, now and then with one that is fixed."""
    fixed = [torch.rand(len(parts[0]), 1) + 0.5, 2.0, None][rng.choice([0, 1, 2, 2, 2])]
    if keys:
        return dict(zip(keys, parts, strict=True)) | ({} if fixed is None else {"weight": ig2.Fixed(fixed)})
    if len(parts) == 1 and (fixed is None or rng.random() < 0.8):
        return parts[0]
    return (*parts, *([] if fixed is None else [ig2.Fixed(fixed)]))


def _plain(parts: list[Tensor], keys: list[str] | None) -> Any:
    if keys:
        return dict(zip(keys, parts, strict=True))
    return parts[0] if len(parts) == 1 else tuple(parts)


def _wrapping(rng: Random, low: float, high: float, inputs: int, traits: set[str]) -> dict[str, Any]:
    wrapping: dict[str, Any] = {}
    if rng.random() < 0.3:
        wrapping["bounds"] = (low, high)
        traits.add("bounds")
    if inputs == 1 and rng.random() < 0.2:
        wrapping["preprocess"] = rng.choice([_standardise, Op("y / 2", lambda y: y / 2), nn.Identity()])
    if rng.random() < 0.25:
        wrapping["output"] = rng.choice(["probability", "log-probability", "sigmoid"])
        traits.add("output " + wrapping["output"])
    if rng.random() < 0.1:
        wrapping["representation"] = rng.choice(["output", "head"])
    return wrapping


def _standardise(x: Tensor, *others: Any, **named: Any) -> Any:
    result = (x - 0.4) / 0.3
    return (result, *others) if others else result


def _ending(name: str, head: nn.Module, traits: set[str]) -> nn.Module:
    if name == "plain":
        return head
    traits.add(name)
    return {
        "functional": lambda: Functional(head),
        "none": lambda: Op("sum", lambda y: y.flatten(1)[:, :3]),
        "saturated": lambda: nn.Sequential(head, Op("1e4 y", lambda y: y * 1e4), nn.Sigmoid(), nn.Linear(_classes(head), 2)),
        "dead": lambda: nn.Sequential(head, Op("-|y| - 1", lambda y: -y.abs() - 1), nn.ReLU(), nn.Linear(_classes(head), 2)),
        "cancelling": lambda: nn.Sequential(head, Op("(y + 1e4 Σy) - 1e4 Σy", _cancel)),
        "sigmoid": lambda: nn.Sequential(head, nn.Sigmoid()),
        "softmax": lambda: nn.Sequential(head, nn.Softmax(dim=1)),
    }[name]()


def _cancel(y: Tensor) -> Tensor:
    large = 1e4 * y.sum(dim=1, keepdim=True)
    return (y + large) - large


def _classes(head: nn.Module) -> int:
    assert isinstance(head, nn.Linear)
    return head.out_features


class Functional(nn.Module):
    """A head that is a call of `linear`, or a product, and no layer."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        assert isinstance(head, nn.Linear)
        self.weight = nn.Parameter(head.weight.detach().clone())

    def forward(self, y: Tensor) -> Tensor:
        return y @ self.weight.T


def _body(rng: Random, kind: str, shape: Shape) -> tuple[nn.Module, int]:
    """Layers that bring samples of a shape to vectors, and how long those are."""
    made: list[nn.Module] = []
    for _ in range(rng.randint(1, 7)):
        layer, kind, shape = _layer(rng, kind, shape, 0)
        made.append(layer)
        if torch.Size(shape).numel() > 600:
            break
    if kind != "v":
        layer, kind, shape = _fitting(rng, kind, shape, "to vector")
        made.append(layer)
    return nn.Sequential(*made), shape[0]


def _layer(rng: Random, kind: str, shape: Shape, depth: int) -> tuple[nn.Module, str, Shape]:
    """One layer, or a wrapper around some."""
    wrapper = pick(rng, WRAPPERS) if depth < 2 else "none"
    if wrapper == "none":
        return _plain_layer(rng, kind, shape)
    inner, inner_kind, inner_shape = _chain(rng, kind, shape, depth + 1)
    if wrapper == "checkpoint":
        return Checkpointed(inner, rng.random() < 0.4), inner_kind, inner_shape
    if wrapper == "autocast":
        return Autocast(inner, rng.choice([torch.bfloat16, torch.float16])), inner_kind, inner_shape
    if wrapper == "hook":
        return Hooked(inner, rng.choice(["output", "input", "look", "backward"])), inner_kind, inner_shape
    if wrapper == "side":
        other, other_kind, other_shape = _chain(rng, inner_kind, inner_shape, depth + 1)
        if other_shape == inner_shape:
            return Side(inner, other), inner_kind, inner_shape
        return nn.Sequential(inner, other), other_kind, other_shape
    if wrapper == "fork":
        other, other_kind, other_shape = _chain(rng, kind, shape, depth + 1)
        if other_kind == inner_kind and other_shape[1:] == inner_shape[1:]:
            return Fork(inner, other), inner_kind, (inner_shape[0] + other_shape[0], *inner_shape[1:])
    if inner_shape == shape and inner_kind == kind:
        made = {
            "residual": lambda: Residual(inner, rng.random() < 0.3),
            "gate": lambda: Gate(inner),
            "twice": lambda: Twice(inner),
        }
        return made.get(wrapper, lambda: inner)(), kind, shape
    return inner, inner_kind, inner_shape


def _chain(rng: Random, kind: str, shape: Shape, depth: int) -> tuple[nn.Module, str, Shape]:
    made = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        layer, kind, shape = _layer(rng, kind, shape, depth)
        made.append(layer)
    return (made[0] if len(made) == 1 else nn.Sequential(*made)), kind, shape


def _plain_layer(rng: Random, kind: str, shape: Shape) -> tuple[nn.Module, str, Shape]:
    fitting = {name: layer.weight for name, layer in LAYERS.items() if kind in layer.kinds}
    for _ in range(20):
        try:
            return _fitting(rng, kind, shape, pick(rng, fitting))
        except (RuntimeError, ValueError):  # too small for the kernel, one value a channel, ...
            continue
    return nn.Identity(), kind, shape


def _fitting(rng: Random, kind: str, shape: Shape, name: str) -> tuple[nn.Module, str, Shape]:
    layer = LAYERS[name]
    module = layer.make(rng, shape).eval()
    with torch.no_grad():
        result = module(torch.linspace(-1, 1, 2 * torch.Size(shape).numel()).view(2, *shape))
    if result.numel() == 0 or len(result) != 2:
        raise ValueError("nothing comes out")
    return module, layer.to or kind, tuple(result.shape[1:])
