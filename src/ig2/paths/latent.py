"""Paths in the latent space of a decoder, for methods that keep to the data's manifold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ig2._utils.settings import Accepted, instance_of, required, setting
from ig2.errors import InputError, describe
from ig2.paths.base import KnownPath, Pairs, clamp_
from ig2.paths.straight import Straight


@dataclass(frozen=True)
class Latent(KnownPath):
    """A path between latent codes, decoded vertex by vertex; gradients are computed in the data space.

    p₀ = x, pₜ₊₁ = decode(γ(t)) with γ the path from encode(x) to encode(x′), as in manifold variants of IG [Jha 2020]. The
    first segment leads from x to its reconstruction, so that attributions still account for f(x); the baseline is the
    reconstruction of x′. Decoded points are clamped to the bounds.

    Args:
        encode: a function from samples (n, ...) to codes (n, ...).
        decode: a function from codes to samples.
        path: the path between codes, a `KnownPath`.

    Raises:
        InputError: if path is not a `KnownPath`, or encode or decode is not callable.

    >>> import ig2
    >>> double, halve = (lambda x: 2 * x), (lambda z: z / 2)
    >>> method = ig2.PathMethod(Latent(double, halve, Straight(4)), rule=ig2.rules.midpoint)
    >>> method(lambda x: (x**2).sum(dim=1), torch.tensor([[2.0, 1.0]]), references=0).values
    tensor([[4., 1.]])
    """

    encode: Callable[[Tensor], Tensor] = required(Accepted(callable, "a function of tensors"))
    decode: Callable[[Tensor], Tensor] = required(Accepted(callable, "a function of tensors"))
    path: KnownPath = setting(Straight(), instance_of(KnownPath, "a path with vertices known beforehand, as Straight() has"))

    @property
    def segments(self) -> int:
        return self.path.segments + 1

    def vertices(self, pairs: Pairs, numbers: range) -> Tensor:
        decoded: list[Tensor] = [pairs.explicand] if numbers.start == 0 else []
        inner = range(max(numbers.start - 1, 0), numbers.stop - 1)
        if inner:
            with torch.no_grad():
                codes = self.path.vertices(self._encode(pairs), inner)
                points = self.decode(codes.flatten(0, 1)).to(pairs.explicand)
            if points.shape != (len(inner) * len(pairs), *pairs.explicand.shape[1:]):
                raise InputError(
                    f"decode returned {describe(points)} for {len(codes) * len(pairs)} codes: expected samples like x"
                )
            decoded += clamp_(points.clone(), pairs.bounds).reshape(len(inner), *pairs.explicand.shape).unbind()
        return torch.stack(decoded)

    def _encode(self, pairs: Pairs) -> Pairs:
        return replace(pairs, explicand=self.encode(pairs.explicand), reference=self.encode(pairs.reference), bounds=None)
