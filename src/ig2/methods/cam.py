"""Class activation maps, the activations of a spatial layer weighted by their gradient: Grad-CAM, LayerCAM, HiResCAM."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from ig2._engine.finding import NAME_PLACES
from ig2._utils.patches import arrange_tokens
from ig2._utils.settings import instance_of, setting
from ig2.errors import InputError, describe
from ig2.methods.base import Method, Result
from ig2.references.base import References
from ig2.result import Keep
from ig2.task import Task

MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}  # of the interpolation, by the number of axes


@dataclass(frozen=True, eq=False)
class ActivationMap(Method):
    """Base class of Grad-CAM, LayerCAM and HiResCAM: a map of a layer's positions, enlarged to the size of the input.

    With A the output of the layer, (channels, positions …), and G = ∂f/∂A, the map is Σₖ wₖ ⊙ Aₖ with weights that each method
    computes from G. It is interpolated linearly to the size of x and divided equally among x's channels, so that their sum is
    the map. It has no baseline, and its sum has no meaning.

    Args:
        layer: a module of the network or its name, such as "features.7"; "name:input" is the module's input. By default what
            the last convolution with more than one position comes to before its positions are pooled or flattened, after its
            normalisation, its activation and the residual sum, by modules or by functions: the end of `layer4` of a ResNet.
        relu: whether negative sums, evidence against the class, are set to zero.
        arrange: a function that rearranges the layer's output to (n, channels, positions …), for layers with another layout,
            such as `lambda t: t[:, 1:].unflatten(1, (14, 14)).movedim(-1, 1)`. It is also applied to the gradient, so it may
            move or drop entries but must not change them. By default the tokens of a vision transformer are laid out as its
            patches, without leading tokens such as the class token.
    """

    layer: str | nn.Module | None = setting(None, instance_of((str, nn.Module), "a module or its name"))
    relu: bool = True
    arrange: Callable[[Tensor], Tensor] | None = None
    needs_places = True
    takes_own_gradients = True

    @abstractmethod
    def weigh(self, gradient: Tensor) -> Tensor:
        """Return the weights of the activations, which broadcast to the shape of the gradient, (n, channels, positions …)."""

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        if task.x.ndim < 3 or len(task.session.inputs.attributed) > 1:
            raise InputError(
                f"{type(self).__name__} needs inputs with places, one tensor such as images (B, C, H, W), got "
                f"{describe(task.session.inputs.explicand)}. Features without places are for ig2.InputXGradient or "
                "ig2.IntegratedGradients"
            )
        session = task.session
        layer, call = (session.find_activation(), 1) if self.layer is None else session.find_places(self.layer)
        values = torch.empty_like(task.x)
        task.progress.expect(len(task))

        def work(piece: range) -> None:
            rows = slice(piece.start, piece.stop)
            tensors = session.differentiate_layer(layer, call, task.x[rows], task.rows[rows], task.target[rows])
            activation, gradient = (self._places(tensor, task.x) for tensor in tensors[:2])
            maps = (self.weigh(gradient) * activation).sum(dim=1, keepdim=True)
            maps = maps.clamp(min=0) if self.relu else maps
            axes = maps.ndim - 2
            maps = functional.interpolate(maps, task.x.shape[-axes:], mode=MODES[axes], align_corners=False)
            channels = task.x[0].numel() // maps[0].numel()
            maps = maps.to(task.x) / channels
            values[rows] = (maps if task.x.ndim == maps.ndim else maps[:, 0]).expand_as(task.x[rows])
            task.progress.advance(len(piece))

        task.batch.over(len(task), work)
        return Result(values)

    def _places(self, tensor: Tensor, x: Tensor) -> Tensor:
        """Arrange a layer's output, or its gradient, for samples x as (n, channels, positions …)."""
        arranged = arrange_tokens(tensor, x.shape[2:]) if self.arrange is None else self.arrange(tensor)
        arranged = tensor if arranged is None else arranged
        places = arranged.ndim - 2 if isinstance(arranged, Tensor) else 0
        if places not in MODES or places not in (x.ndim - 2, x.ndim - 1):
            what = "the layer returns" if self.arrange is None else "arrange made"
            raise InputError(f"{what} {describe(arranged)}, which is no map of the input's places: {NAME_PLACES}")
        return arranged


class GradCAM(ActivationMap):
    """Grad-CAM: each channel of a layer, weighted by the spatial mean of its gradient [Selvaraju 2017].

    relu(Σₖ αₖ Aₖ) with αₖ = mean over positions of ∂f/∂Aₖ. The arguments are those of `ActivationMap`.

    >>> net = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Flatten(), nn.Linear(4, 1, bias=False)).eval()
    >>> net.load_state_dict({"0.weight": torch.ones(1, 1, 1, 1), "2.weight": torch.tensor([[4.0, 0.0, 0.0, 0.0]])})
    <All keys matched successfully>
    >>> GradCAM()(net, torch.tensor([[[[1.0, 2.0], [3.0, -4.0]]]])).values
    tensor([[[[1., 2.],
              [3., 0.]]]])
    """

    def weigh(self, gradient: Tensor) -> Tensor:
        return gradient.mean(dim=tuple(range(2, gradient.ndim)), keepdim=True)


class LayerCAM(ActivationMap):
    """LayerCAM: the positive part of the gradient times the activation at each position [Jiang 2021].

    relu(Σₖ relu(∂f/∂Aₖ) ⊙ Aₖ). As positions are not averaged, early layers yield fine maps. The arguments are those of
    `ActivationMap`.
    """

    def weigh(self, gradient: Tensor) -> Tensor:
        return gradient.clamp(min=0)


@dataclass(frozen=True, eq=False)
class HiResCAM(ActivationMap):
    """HiResCAM: the signed product of gradient and activation at each position [Draelos 2020].

    Σₖ ∂f/∂Aₖ ⊙ Aₖ. At the last convolution of a network that is linear from there on, this is each position's contribution to
    the output. The arguments are those of `ActivationMap`, with relu=False by default.
    """

    relu: bool = False

    def weigh(self, gradient: Tensor) -> Tensor:
        return gradient
