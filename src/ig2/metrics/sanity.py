"""The parameter randomisation test: how much an attribution depends on the weights of the network."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ig2._utils.checks import require
from ig2._utils.settings import one_of, setting
from ig2.errors import InputError, ModelError
from ig2.metrics.base import Case, Scores
from ig2.metrics.correlation import midranks, pearson
from ig2.metrics.features import FeatureOption, Features, Sign, apply_sign
from ig2.metrics.reattribution import Reattribution, rebuild_x
from ig2.model import Model
from ig2.task import Task
from ig2.task import scores as scores_of

Order = Literal["cascading", "independent"]
Layers = dict[str, list[str]]  # by name, the modules whose parameters are drawn anew together
ITSELF = "(the network itself)"  # parameters that belong to no layer, such as a class token


@dataclass(frozen=True, eq=False)
class ParameterRandomisation(Reattribution):
    """The rank correlation of an attribution with those of the same network after randomising its weights [Adebayo 2018].

    An attribution that does not change shows the input, as an edge detector does, and not what the network learned. Layer by
    layer, from the output back, a copy of the network gets new weights, and the explicands are explained again for the same
    class. The curve is Spearman's correlation with the original attribution after each layer, and the score its mean absolute
    value: 1 for a method that ignores the weights, and about √(2 / (π M)) with M features if nothing of the original remains.
    Methods that multiply by the input retain its contribution.

    Equal attributions share their mean rank. A constant attribution has no ranks: if the original one is constant, or that of a
    randomised network, the score is not defined.

    Weights are drawn by a layer's own `reset_parameters`, which also resets the running statistics of a normalisation; in
    layers without one, each parameter is drawn from the normal distribution with its mean and standard deviation. All draws
    come from the seed, on the CPU; the network itself is not changed. `settings["randomised"]` of the scores lists the layers.

    Args:
        method: the method that computed the attribution, or a function called as
            `method(model, x, target, references, seed=...)`.
        references: the references of the attribution.
        order: "cascading", where randomised layers stay randomised, or "independent", where only one is at a time.
        layers: the names of the modules to randomise, in this order. A module is randomised with everything inside it, so that
            a few blocks can cover a hundred layers. By default each module with weights of its own, from the output back in the
            order of execution.
        features: the unit that is ranked: "pixel" (channels are summed), "word", "element", or "auto", by the number of axes.
        sign: "absolute" ranks features by |φ|, "keep" by φ, "positive" by φ with negative values set to zero.

    Raises:
        InputError: if `layers` names no module, or the method does not reproduce the attribution.
        ModelError: if the network has no parameters, cannot be copied, or new weights do not change its output.
    """

    references: Any = None
    order: Order = setting("cascading", one_of(Order))
    layers: Sequence[str] | None = None
    features: FeatureOption = "auto"
    sign: Sign = "absolute"

    name = "parameter randomisation"
    better = "lower"

    def __post_init__(self) -> None:
        super().__post_init__()
        names = isinstance(self.layers, (tuple, list)) and len(self.layers) > 0 and all(isinstance(n, str) for n in self.layers)
        require(names or self.layers is None, "layers", self.layers, "names of modules, for example ['fc', 'layer4']")

    def run(self, case: Case) -> Scores:
        features = Features.of(self.features, case.values.shape[1:])
        layers = self._select_layers(case)
        self._check_effect(layers, case)
        self.check_reproduces(case)
        case.task.progress.expect(len(layers))
        ours = apply_sign(features.pool(case.values), self.sign)
        groups = list(features.group_movable(case.task.session.inputs.moves, ours))
        stages = []
        model = _copy(case.model)
        for stage in range(len(layers)):
            if self.order == "independent":
                model = _copy(case.model)
            _randomise(model, case.task, layers, [stage])
            again = self.attribute_again(model, case)
            stages.append(_spearman(ours, apply_sign(features.pool(again), self.sign), groups))
            case.task.progress.advance(1)
        curves = torch.stack(stages, dim=1)
        return Scores.where_defined(
            curves.abs().mean(dim=1),
            {
                "the attribution is constant, and has no ranks": _spearman(ours, ours, groups).isnan(),
                "the attribution of a randomised network is constant, and has no ranks": curves.isnan().any(dim=1),
            },
            curves=curves,
            at=torch.arange(1, len(layers) + 1, device=curves.device),
            settings={"randomised": list(layers)},
        )

    def _select_layers(self, case: Case) -> Layers:
        """Return the layers in the order in which they are randomised."""
        if self.layers is None:
            layers = _find_layers(case)
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
        """Raise a `ModelError` unless new weights change the output: a copied `lambda x: net(x)` still calls the old net."""
        x = rebuild_x(case.task.session.inputs, case.task.x)
        changed = _copy(case.model)
        _randomise(changed, case.task, layers, range(len(layers)))
        if torch.equal(scores_of(changed, x), scores_of(case.model, x)):
            raise ModelError(
                "new weights change no output: the layers are not used, or a function calls a network that is not copied with "
                "it. Wrap the network itself, ig2.wrap(net, output=..., preprocess=...)"
            )


def _randomise(model: Model, task: Task, layers: Layers, numbers: Sequence[int]) -> None:
    """Randomise the layers with these numbers; the new weights of a layer do not depend on the other layers."""
    modules = dict(model.modules)
    # a seed for each module: two of the same shape must not get the same weights
    seeds = torch.randint(2**62, (len(layers), len(modules)), generator=task.generator(), device="cpu").tolist()
    for number, parts in enumerate(layers.values()):
        if number in numbers:
            for seed, part in zip(seeds[number], parts, strict=False):
                redraw(modules[part], seed)


def _copy(model: Model) -> Model:
    try:
        return copy.deepcopy(model.exchange())
    except Exception as error:  # whatever a module holds may fail in its own way
        raise ModelError(f"weights are drawn anew in a copy of the network, and it cannot be copied: {error}") from error


def _find_layers(case: Case) -> Layers:
    """Return the modules that run and have parameters, from the output back, each with the parts it uses without a call."""
    model = replace(_copy(case.model), preparation=None)  # the layers are those of the network as it is
    modules = dict(model.modules)
    started: dict[str, None] = {}

    def record(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            started.pop(name, None)  # what runs several times stands where it ran last
            started[name] = None

        return hook

    for name, module in modules.items():
        module.register_forward_pre_hook(record(name))
    scores_of(model, rebuild_x(case.task.session.inputs, case.task.x))
    layers: Layers = {name: [] for name in reversed(started)}
    for name, module in modules.items():
        if next(module.parameters(recurse=False), None) is None:
            continue
        user = name
        while user not in started and user:
            user = user.rpartition(".")[0]
        layers.setdefault(user, []).append(name)
    return {name or ITSELF: parts for name, parts in layers.items() if parts}


@torch.no_grad()
def redraw(module: nn.Module, seed: int) -> None:
    """Draw a module's own parameters anew, on the CPU, from a seed; global random state is not changed."""
    parameters = [parameter for parameter in module.parameters(recurse=False) if parameter.is_floating_point()]
    if not parameters:
        return
    device, reset = parameters[0].device, getattr(module, "reset_parameters", None)
    with torch.random.fork_rng(devices=[]):
        # not torch.manual_seed, which also seeds every GPU
        torch.default_generator.manual_seed(seed % 2**63)
        if callable(reset):
            module.to("cpu")
            reset()
            module.to(device)
        else:
            for parameter in parameters:
                noise = torch.randn(parameter.shape, dtype=torch.float64, device="cpu").to(parameter)
                parameter.copy_(parameter.mean() + parameter.std(correction=0) * noise)


def _spearman(first: Tensor, second: Tensor, groups: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return Spearman's correlation of the rows, (B,), over the features that may change."""
    correlations = torch.empty(len(first), dtype=torch.float64, device=first.device)
    for rows, movable in groups:
        correlations[rows] = pearson(*(midranks(values[rows].gather(1, movable)) for values in (first, second)))
    return correlations
