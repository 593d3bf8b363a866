"""Quantus's `explain_func` [Hedström 2023]: arrays in, arrays out, for its metrics and `quantus.evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ig2.compat import as_method, as_references, as_tensor
from ig2.errors import InputError
from ig2.methods import Method
from ig2.model import wrap

ExplainFunc = Callable[..., NDArray[Any]]


def explain_func(
    method: Method,
    references: Any = None,
    *,
    reduce_axes: Sequence[int] = (1,),
    keepdims: bool = True,
    seed: int = 0,
    batch_size: int | Literal["auto"] = "auto",
    **options: Any,
) -> ExplainFunc:
    """Return a function `explain(model, inputs, targets, **kwargs)` that replaces `quantus.explain`.

    Quantus passes the network on every call, so the options of `ig2.wrap` are passed here once.

    >>> import numpy as np, torch, ig2
    >>> explain = explain_func(ig2.IntegratedGradients())
    >>> explain(torch.nn.Linear(3, 2), np.ones((4, 3)), np.array([0, 1, 1, 0])).shape
    (4, 3)

    Args:
        method: an ig2 method, for example `ig2.IG2(steps=200)`.
        references: an array of samples (R, ...), a number, or a strategy of `ig2.references`. Quantus chooses the batches,
            so references (B, R, ...) for each input are not supported.
        reduce_axes: axes of images and sequences (three axes and more) to sum over; by default the channels, as in Quantus.
            () keeps them.
        keepdims: whether to keep the summed axes, with length one.
        seed: the seed of all random draws.
        batch_size: the number of points per batch of the network.
        options: options of `ig2.wrap`, such as `bounds=(0, 1)`. Quantus perturbs inputs; values
            beyond the bounds are clipped to them.

    Returns:
        A function from a network, inputs (B, ...) and classes (B,) to attributions.

    Raises:
        InputError: if `method` is not an ig2 method.
    """
    as_method(method)
    defaults = {"reduce_axes": reduce_axes, "keepdims": keepdims, "references": references, "seed": seed}

    def explain(
        model: nn.Module, inputs: ArrayLike, targets: ArrayLike, device: str | None = None, **kwargs: Any
    ) -> NDArray[Any]:
        """Attribute the classes `targets` (B,) to `inputs` (B, ...).

        `device` moves the network there first, as Quantus does; `references`, `reduce_axes`, `keepdims` and `seed` replace
        the defaults. `method`, the name of the entry in `quantus.evaluate`, has no effect.
        """
        kwargs.pop("method", None)
        if unknown := sorted(set(kwargs) - set(defaults)):
            raise InputError(f"explain_func_kwargs {unknown} are unknown: use device, {', '.join(defaults)}")
        settings = defaults | kwargs
        wrapped = wrap(model if device is None else model.to(device), **options)
        x = as_tensor(inputs, wrapped, "inputs")
        if wrapped.bounds is not None:
            x = x.clamp(*(torch.as_tensor(bound, dtype=x.dtype, device=x.device) for bound in wrapped.bounds))
        target = torch.as_tensor(np.array(targets)).reshape(-1)
        chosen = as_references(settings["references"], wrapped)
        values = method(wrapped, x, target, chosen, seed=settings["seed"], batch_size=batch_size).values
        assert isinstance(values, Tensor)
        axes = tuple(settings["reduce_axes"])
        if axes and x.ndim > 2:
            values = values.sum(dim=axes, keepdim=settings["keepdims"])
        return values.cpu().numpy()

    return explain
