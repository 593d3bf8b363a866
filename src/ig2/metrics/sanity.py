"""Whether an attribution is about the network at all: what is left of it when the weights are drawn anew."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ig2._engine.task import Task
from ig2._engine.task import scores as scores_of
from ig2.errors import InputError, ModelError, describe
from ig2.metrics.again import MethodLike, as_given, check_method, check_repeats, explained
from ig2.metrics.base import Better, Case, Metric, Result
from ig2.metrics.features import FeatureOption, Features, Sign, signed
from ig2.model import Model

Order = Literal["cascading", "independent"]
Layers = dict[str, list[str]]  # by name, the modules whose parameters are drawn anew together

ITSELF = "(the network itself)"  # parameters that belong to no layer, such as a class token


@dataclass(frozen=True, eq=False)
class ParameterRandomisation(Metric):
    """The rank correlation that is left between an attribution and those of the same network with weights drawn anew.

    An attribution that does not change then shows the input, as an edge detector does, and not what the network learned.
    Layer by layer, from the output back, a copy of the network gets new weights and the explicands are explained again, for
    the same class. The curve holds Spearman's correlation with the original attribution after each layer, the score is its
    mean absolute value: 1 for a method that does not look at the weights, about √(2 / (π M)) with M features for one of which
    nothing is left. Methods that multiply by the input keep what the input brings.

    Equal attributions share their mean rank. A constant attribution has no ranks: where the original one is constant, or that
    of some randomised network, the score is not defined.

    Weights are drawn by a layer's own `reset_parameters`, which also resets the running statistics of a normalisation; of
    layers without one, each parameter from the normal distribution with its own mean and standard deviation. All of it comes
    from the seed, on the CPU; the network itself is not touched. `settings["randomised"]` of the scores names the layers.

    Args:
        method: what made the attribution: a method, or a function called as `method(model, x, target, references, seed=...)`.
        references: those the attribution was made with.
        order: "cascading", where layers already drawn anew stay so, or "independent", where only one is at a time.
        layers: names of the modules to randomise, in this order; all that is inside a module is randomised at once, so that
            a few blocks stand for a hundred layers. By default each module with weights of its own, from the output back in
            the order they run.
        features: what is ranked: "pixel" (channels are summed), "word", "element", or "auto", by the number of axes.
        sign: "absolute" ranks features by |φ|, "keep" by φ, "positive" with negative ones at zero.
    """

    name: ClassVar[str] = "parameter randomisation"
    better: ClassVar[Better] = "lower"

    method: MethodLike
    references: Any = None
    order: Order = "cascading"
    layers: Sequence[str] | None = None
    features: FeatureOption = "auto"
    sign: Sign = "absolute"

    def __post_init__(self) -> None:
        check_method(self.method)
        if self.order not in ("cascading", "independent"):
            raise InputError(f"order={describe(self.order)}: use 'cascading' or 'independent'")
        if self.layers is not None:
            if isinstance(self.layers, str) or not self.layers or not all(isinstance(name, str) for name in self.layers):
                raise InputError(f"layers must be names of modules, for example ['fc', 'layer4']; got {describe(self.layers)}")
            object.__setattr__(self, "layers", tuple(self.layers))

    def run(self, case: Case) -> Result:
        features = Features.of(self.features, case.values.shape[1:])
        layers = self._layers(case)
        self._check_effect(layers, case)
        check_repeats(self.method, self.references, case)
        case.task.progress.expect(len(layers))
        ours = signed(features.pool(case.values), self.sign)
        groups = list(features.moving(case.task.session.inputs.moves, ours))
        curve = []
        model = _copied(case.model)
        for stage in range(len(layers)):
            if self.order == "independent":
                model = _copied(case.model)
            _randomise(model, case.task, layers, [stage])
            theirs = signed(features.pool(explained(self.method, self.references, model, case)), self.sign)
            curve.append(_rank_correlation(ours, theirs, groups))
            case.task.progress.advance(1)
        curves = torch.stack(curve, dim=1)
        flat = _rank_correlation(ours, ours, groups).isnan()
        lost = curves.isnan().any(dim=1) & ~flat
        reasons = {
            "the attribution is constant, and has no ranks": int(flat.sum()),
            "the attribution of a randomised network is constant, and has no ranks": int(lost.sum()),
        }
        return Result(
            curves.abs().mean(dim=1),  # NaN where one of them is
            {why: count for why, count in reasons.items() if count},
            curves,
            torch.arange(1, len(layers) + 1, device=curves.device),
            {"randomised": list(layers)},
        )

    def _layers(self, case: Case) -> Layers:
        """The layers in the order in which they are randomised."""
        if self.layers is None:
            layers = _from_output_back(case)
            if not layers:
                raise ModelError("the network has no parameters to draw anew")
            return layers
        modules = dict(case.model.modules)
        for name in self.layers:
            if name not in modules:
                known = [known for known in modules if known]
                close = difflib.get_close_matches(name, known, n=3) or known[-3:]
                raise InputError(f"layers: {name!r} names no module of this network; there are {', '.join(map(repr, close))}")
            if next(modules[name].parameters(), None) is None:
                raise InputError(f"layers: {name!r} ({type(modules[name]).__name__}) has no parameters to draw anew")
        return {name: [part for part in modules if part == name or part.startswith(f"{name}.")] for name in self.layers}

    def _check_effect(self, layers: Layers, case: Case) -> None:
        """That new weights reach the output: those of a copied `lambda x: net(x)` do not, it calls the net it always did."""
        x = as_given(case.task.session.inputs, case.task.x)
        changed = _copied(case.model)
        _randomise(changed, case.task, layers, range(len(layers)))
        if torch.equal(scores_of(changed, x), scores_of(case.model, x)):
            raise ModelError(
                "new weights change no output: the layers are not used, or a function calls a network that is not copied with "
                "it. Wrap the network itself, ig2.wrap(net, output=..., preprocess=...)"
            )


def _randomise(model: Model, task: Task, layers: Layers, which: Sequence[int]) -> None:
    """Draw the layers with these numbers anew; what a layer gets does not depend on the others."""
    modules = dict(model.modules)
    # a seed for each module: two of the same shape must not get the same weights
    seeds = torch.randint(2**62, (len(layers), len(modules)), generator=task.generator(), device="cpu")
    for number, parts in enumerate(layers.values()):
        if number in which:
            for seed, part in zip(seeds[number].tolist(), parts, strict=False):
                redraw(modules[part], seed)


def _copied(model: Model) -> Model:
    try:
        return copy.deepcopy(replace(model, compiled={}))
    except Exception as error:  # whatever a module holds may refuse, in its own way
        raise ModelError(f"weights are drawn anew in a copy of the network, and it cannot be copied: {error}") from error


def _from_output_back(case: Case) -> Layers:
    """The modules that run and have parameters; with each, the parts it uses without calling them."""
    model = replace(_copied(case.model), preparation=None)  # the layers are those of the network as it is
    modules = dict(model.modules)
    started: dict[str, None] = {}

    def note(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            started.pop(name, None)  # what runs several times stands where it ran last
            started[name] = None

        return hook

    for name, module in modules.items():
        module.register_forward_pre_hook(note(name))
    scores_of(model, as_given(case.task.session.inputs, case.task.x))
    found: Layers = {name: [] for name in reversed(started)}
    for name, module in modules.items():
        if next(module.parameters(recurse=False), None) is None:
            continue
        user = name
        while user not in started and user:
            user = user.rpartition(".")[0]
        found.setdefault(user, []).append(name)
    return {name or ITSELF: parts for name, parts in found.items() if parts}


@torch.no_grad()
def redraw(module: nn.Module, seed: int) -> None:
    """Draw a module's own parameters anew, on the CPU, from a seed; global random state is left as it was."""
    own = [parameter for parameter in module.parameters(recurse=False) if parameter.is_floating_point()]
    if not own:
        return
    devices = [parameter.device for parameter in own]
    reset = getattr(module, "reset_parameters", None)
    with torch.random.fork_rng(devices=[]):
        # not torch.manual_seed, which also seeds every GPU
        torch.default_generator.manual_seed(seed % 2**63)
        if callable(reset):
            module.to("cpu")
            reset()
            module.to(devices[0])
        else:
            for parameter in own:
                noise = torch.randn(parameter.shape, dtype=torch.float64, device="cpu").to(parameter)
                parameter.copy_(parameter.mean() + parameter.std(correction=0) * noise)


def _rank_correlation(one: Tensor, other: Tensor, groups: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Spearman's correlation of the rows, (B,), over the features that move."""
    found = torch.empty(len(one), dtype=torch.float64, device=one.device)
    for rows, which in groups:
        found[rows] = correlation(*(midranks(values[rows].gather(1, which)) for values in (one, other)))
    return found


def midranks(values: Tensor) -> Tensor:
    """Twice the rank of each value in its row, (B, M): equal values share their mean rank."""
    ordered = values.sort(dim=1).values
    return torch.searchsorted(ordered, values, right=True) + torch.searchsorted(ordered, values) + 1


def correlation(one: Tensor, other: Tensor) -> Tensor:
    """Pearson's correlation of the rows, (B,); NaN where a row is constant."""
    one, other = (each.double() - each.double().mean(dim=1, keepdim=True) for each in (one, other))
    sizes = torch.linalg.vector_norm(one, dim=1) * torch.linalg.vector_norm(other, dim=1)
    together: Tensor = (one * other).sum(dim=1) / sizes
    return together
