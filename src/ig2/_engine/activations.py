"""A network from one of its layers on: what methods attribute to where they attribute to a layer and not to the input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor, nn

from ig2._engine.layers import in_this_thread
from ig2.errors import InputError, ModelError, describe
from ig2.inputs import Fixed, value_of
from ig2.model import Layer, Model, find_layer, preprocess_arguments

# What the activation is called among the inputs of such a network.
ACTIVATION = "ig2_activation"


class Hooked(nn.Module):
    """A network with a hook at one of its layers.

    Args:
        net: the network.
        layer: of it.
    """

    def __init__(self, net: nn.Module, layer: Layer) -> None:
        super().__init__()
        self.net, self.name = net, layer.name
        self.side: Literal["input", "output"] = layer.side
        # one that a function calls and does not show; not a part of this module
        registered = dict(net.named_modules(remove_duplicate=False)).get(layer.name) is layer.module
        self.unregistered = None if registered else (layer.module,)

    def run(self, args: Any, kwargs: Any, before: Callable[..., Any], after: Callable[..., Any]) -> Any:
        """Run the network with a hook on what the layer gets, or on what it returns."""
        # by name in each pass: a copy of this module has its own
        layer = self.net.get_submodule(self.name) if self.unregistered is None else self.unregistered[0]
        if self.side == "input":
            handle = layer.register_forward_pre_hook(in_this_thread(before), with_kwargs=True)
        else:
            handle = layer.register_forward_hook(in_this_thread(after))
        try:
            return self.net(*args, **kwargs)
        finally:
            handle.remove()


class Upper(Hooked):
    """A network in which a layer returns what it is given, or gets it, whatever its own inputs are.

    Args:
        net: the network.
        layer: of it.
        preprocess: that of its model.
    """

    def __init__(self, net: nn.Module, layer: Layer, preprocess: Callable[..., Any] | None) -> None:
        super().__init__(net, layer)
        self.preprocess = preprocess

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        activation = kwargs.pop(ACTIVATION)
        args, kwargs = preprocess_arguments(self.preprocess, args, kwargs)
        before = lambda _, args, kwargs: put_first(args, kwargs, activation)  # noqa: E731
        return self.run(args, kwargs, before, lambda _, args, result: put(result, activation))


def put(result: Any, activation: Tensor) -> Any:
    """Return what a layer returned, with an activation in the place of its first tensor."""
    return activation if first_result(result) is result else type(result)([activation, *result[1:]])


def first_result(result: Any) -> Tensor:
    """Return the tensor that a layer returned, or the first of several.

    Raises:
        ModelError: if there is none.
    """
    first = result[0] if type(result) in (tuple, list) and result else result
    if not isinstance(first, Tensor):
        raise ModelError(f"the layer returns {describe(result)}: name one that returns a tensor")
    return first


def put_first(args: tuple[Any, ...], kwargs: dict[str, Any], activation: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a layer's arguments, with an activation in the place of the first tensor."""
    first = first_tensor(args, kwargs)
    positional = tuple(activation if value is first else value for value in args)
    return positional, {name: activation if value is first else value for name, value in kwargs.items()}


def first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return the first tensor of a layer's arguments.

    Raises:
        ModelError: if there is none.
    """
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            return value
    raise ModelError(f"the layer gets {describe(args)}: name one that takes a tensor")


def cut(model: Model, layer: str | nn.Module) -> Model:
    """Return the model from a layer on: it is called with the layer's activation, by the name
    `ACTIVATION`, and with its own inputs.

    Raises:
        InputError: if the network has no such layer.
    """
    chosen = find_layer(model.net, layer, "at")
    if not isinstance(chosen, Layer):
        raise InputError("at='output': the network's output is what is explained. Name a module before it")
    representation = model.representation
    if isinstance(representation, Layer):
        representation = replace(representation, name=f"net.{representation.name}")
    # a layer that is folded into another one has no activation of its own, and one that runs again is given none
    preparation = None if model.preparation is None else replace(model.preparation, fold=False, checkpoint=False)
    upper = Upper(model.net, chosen, model.preprocess)
    upper.training = False  # by itself: train() would reach the user's modules
    return model.exchange(net=upper, preprocess=None, representation=representation, bounds=None, preparation=preparation)


def join_inputs(activation: Tensor | Fixed, x: Any) -> dict[int | str, Any]:
    """Return what such a model is called with: the activation, and its own inputs, which are
    fixed."""
    parts = x if isinstance(x, Mapping) else dict(enumerate(x if isinstance(x, (tuple, list)) else (x,)))
    return {ACTIVATION: activation, **{key: Fixed(value_of(part)) for key, part in parts.items()}}
