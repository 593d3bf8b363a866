"""DeepSHAP: the secant rule on one segment, from the explicand to each reference."""

from __future__ import annotations

from ig2 import rules
from ig2.methods.path import PathMethod
from ig2.paths.straight import Straight


class DeepSHAP(PathMethod):
    """DeepLIFT's rescale rule [Shrikumar 2017], averaged over the references [Lundberg 2017].

    φᵢ = E[mᵢ·(xᵢ − xʳᵢ)] with the multiplier m = Δf/Δx, the gradient of f when every non-linearity y(z) is given the slope
    (y(z) − y(zʳ)) / (z − zʳ): the rule `ig2.rules.secant` on `Straight(1)`. The values sum to f(x) − mean f(references) on
    networks built from linear maps, functions of one variable, products of activations and maxima, which includes softmax,
    normalisations, attention and recurrent layers. On networks with other operations they do not, and a warning reports the
    difference.

    >>> import torch
    >>> DeepSHAP()(lambda x: x.relu().sum(dim=1), torch.tensor([[3.0, -1.0]]), references=torch.tensor([[-1.0, 1.0]])).values
    tensor([[ 3., -1.]])
    """

    takes_own_gradients = True  # two passes per pair are not worth a faster copy

    def __init__(self) -> None:
        super().__init__(Straight(1), None, rules.secant)
