"""What calls find out about a network, kept with its model for the next one."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Sequence
from io import BytesIO
from types import FunctionType
from typing import Any, Protocol
from weakref import ref

import torch
from torch import Tensor, nn

# Of one model: a method opens its network with its logits, a metric with its probabilities.
MOST_OPENED = 4
# What a module holds beside its weights is compared as bytes; with more it is opened anew.
MOST_BYTES = 1 << 20
COLLECTIONS = (dict, OrderedDict, list, set)
WEIGHTS = ("_parameters", "_buffers")


class HasModules(Protocol):
    """A model."""

    @property
    def modules(self) -> list[tuple[str, nn.Module]]:
        """Every module that runs, with its name."""


class Kept:
    """What is kept with a model. A call takes it, so that a call inside that one opens its own."""

    def __init__(self) -> None:
        self.opened: dict[object, Any] = {}

    def take(self, key: object) -> Any:
        """Return what was put there, or None."""
        return self.opened.pop(key, None)

    def put(self, key: object, opened: Any) -> None:
        """Keep it for the next call; what was not taken for longest goes."""
        self.opened[key] = opened
        while len(self.opened) > MOST_OPENED:
            self.opened.pop(next(iter(self.opened)), None)

    def __reduce__(self) -> Any:
        """Empty in another process, and in a copy of the model."""
        return Kept, ()


class Contents:
    """What modules hold beside the numbers of weights and buffers, to see whether it is still that.

    Raises:
        TypeError: if they hold what cannot be compared.
    """

    def __init__(self, model: HasModules) -> None:
        modules = self.modules = [module for _, module in model.modules]
        if not all(type(weight) is nn.Parameter for module in modules for weight in module.parameters(False)):
            raise TypeError("a pass may change quantised weights")
        self._known = {id(module) for module in modules}
        self._known |= {id(tensor) for module in modules for tensor in module._parameters.values()}
        self._tensors, self._places = _list_tensors(modules)
        self._attributes = list[tuple[type, dict[str, Any]]]()
        # attributes that may change without being another object
        self._others = list[tuple[nn.Module, str, bytes]]()
        for module in modules:
            attributes = dict[str, Any]()
            for name, value in vars(module).items():
                if type(value) in COLLECTIONS and (name in WEIGHTS or all(map(self._is_plain, _list_items(value)))):
                    value = type(value)(value)  # as it is now
                elif not self._is_plain(value):
                    self._others.append((module, name, self._write(value)))
                attributes[name] = value
            self._attributes.append((type(module), attributes))

    @classmethod
    def of(cls, model: HasModules) -> Contents | None:
        """Return that of a model; None where it cannot be compared."""
        try:
            return cls(model)
        except (TypeError, RuntimeError, AttributeError):  # such as sparse tensors, and scripted modules
            return None

    def is_same(self) -> bool:
        """Return whether the model has the same modules, and these hold what they held."""
        try:
            tensors, places = _list_tensors(self.modules)
            if len(tensors) != len(self._tensors) or any(map(_differ, tensors, self._tensors)) or places != self._places:
                return False
            return all(
                type(module) is kind and vars(module) == attributes
                for module, (kind, attributes) in zip(self.modules, self._attributes, strict=True)
            ) and all(self._write(vars(module)[name]) == written for module, name, written in self._others)
        # of tensors or arrays that were exchanged there is no single answer
        except (RuntimeError, TypeError, ValueError):
            return False

    def copy_buffers(self, other: Contents) -> None:
        """Take over the numbers in the buffers of another model of the same modules."""
        for mine, theirs in zip(self.modules, other.modules, strict=True):
            for name, buffer in mine._buffers.items():
                if buffer is not None:
                    buffer.copy_(theirs._buffers[name])  # type: ignore[arg-type]

    def _is_plain(self, value: Any) -> bool:
        """Return whether it changes only by being exchanged for another object, or is followed
        elsewhere."""
        if type(value) is tuple:
            return all(map(self._is_plain, value))
        plain = (bool, int, float, complex, str, type(None), type, FunctionType, ref, torch.dtype, torch.device)
        return isinstance(value, plain) or id(value) in self._known

    def _write(self, value: Any) -> bytes:
        file = _Short()
        try:
            _Writer(file, self._known).dump(value)
        except Exception as error:  # locks, open files, generators
            raise TypeError(str(error)) from error
        return file.getvalue()


class _Short(BytesIO):
    """Takes no more than is compared in every call."""

    def write(self, data: Any) -> int:
        if self.tell() > MOST_BYTES:
            raise ValueError("too much to compare")
        return super().write(data)


class _Writer(pickle.Pickler):
    """Writes what is known by which it is, and everything else with its contents."""

    def __init__(self, file: BytesIO, known: set[int]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.known = known

    def persistent_id(self, value: Any) -> int | None:
        return id(value) if id(value) in self.known else None


def _list_items(value: Any) -> Any:
    return [*value.keys(), *value.values()] if isinstance(value, dict) else value


def _differ(one: object, other: object) -> bool:
    return one is not other


def _list_tensors(modules: Sequence[nn.Module]) -> tuple[list[Tensor], list[Any]]:
    """Return weights and buffers, and where their numbers lie: `weight.data = …` leaves the weight
    itself."""
    tensors = [t for m in modules for each in (m._parameters, m._buffers) for t in each.values() if t is not None]
    return tensors, [(t.data_ptr(), t.dtype, t.shape, t.stride()) for t in tensors]
