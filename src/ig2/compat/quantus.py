"""Quantus's `explain_func`: arrays in, arrays out, for its metrics and `quantus.evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ig2.compat import as_given, as_tensor
from ig2.errors import InputError, describe
from ig2.methods.base import Method
from ig2.model import Bounds, OutputName, wrap

ExplainFunc = Callable[..., NDArray[Any]]


def explain_func(
    method: Method,
    references: Any = None,
    *,
    reduce_axes: Sequence[int] = (1,),
    keepdims: bool = True,
    seed: int = 0,
    batch_size: int | Literal["auto"] = "auto",
    representation: str | None = None,
    output: OutputName | Callable[[Any], Tensor] = "logit",
    bounds: Bounds | None = None,
    preprocess: Callable[..., Any] | None = None,
) -> ExplainFunc:
    """A function `explain(model, inputs, targets, **kwargs)` for Quantus, which hands it the network anew each time.

    >>> import numpy as np, torch, ig2
    >>> explain = explain_func(ig2.IntegratedGradients())
    >>> explain(torch.nn.Linear(3, 2), np.ones((4, 3)), np.array([0, 1, 1, 0])).shape
    (4, 3)

    Args:
        method: for example `ig2.IG2(steps=200)`.
        references: whom to contrast with: an array of samples (R, ...), a number, or a strategy of `ig2.references`.
            Quantus explains batches of its own choosing, so samples for each explicand its own do not fit.
        reduce_axes: axes of images and sequences (three axes and more) that are summed over; as in Quantus the channels.
            () keeps them.
        keepdims: whether the axes summed over stay, with length one.
        seed: of everything random in the method.
        batch_size: how many points the network sees at once.
        representation: as for `ig2.wrap`.
        output: as for `ig2.wrap`.
        bounds: as for `ig2.wrap`. Quantus perturbs inputs; what leaves the bounds is brought back to them.
        preprocess: as for `ig2.wrap`.
    """
    if not isinstance(method, Method):
        raise InputError(f"method must be one of ours, for example ig2.IG2(), got {describe(method)}")
    defaults = {"reduce_axes": reduce_axes, "keepdims": keepdims, "references": references, "seed": seed}

    def explain(
        model: nn.Module, inputs: ArrayLike, targets: ArrayLike, device: str | None = None, **kwargs: Any
    ) -> NDArray[Any]:
        """Attributions of `inputs` (B, ...) for the classes `targets` (B,).

        `device` moves the network there first, as Quantus does; `references`, `reduce_axes`, `keepdims` and `seed` stand in
        for what was said before. `method`, in which `quantus.evaluate` sends the name of the entry, changes nothing.
        """
        kwargs.pop("method", None)
        unknown = sorted(set(kwargs) - set(defaults))
        if unknown:
            raise InputError(f"explain_func_kwargs {unknown} are unknown here: there are device, {', '.join(defaults)}")
        wanted = defaults | kwargs
        wrapped = wrap(model if device is None else model.to(device), representation, output, bounds, preprocess)
        x = as_tensor(inputs, wrapped, "inputs")
        if bounds is not None:
            low, high = (torch.as_tensor(bound, dtype=x.dtype, device=x.device) for bound in bounds)
            x = torch.minimum(torch.maximum(x, low), high)
        found = method(
            wrapped,
            x,
            target=torch.as_tensor(np.array(targets)).reshape(-1),
            references=as_given(wanted["references"], wrapped),
            seed=wanted["seed"],
            batch_size=batch_size,
        ).values
        assert isinstance(found, Tensor)
        axes = tuple(wanted["reduce_axes"]) if x.ndim > 2 else ()
        if axes:
            found = found.sum(dim=axes, keepdim=wanted["keepdims"])
        return found.cpu().numpy()

    return explain
