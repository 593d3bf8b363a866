"""Less memory: blocks of a network that keep their inputs alone, and run once more for their gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ig2._engine.memory import Saved
from ig2._engine.private import version_of


class Checkpointed(nn.Module):
    """What the class of a block becomes: its own, with this in front."""

    inside: int | None = None  # bytes that its graph keeps of a point while its gradient is taken, once it ran
    writes = False  # whether it writes into its input, and cannot run again on it

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the block as its own class does."""
        if torch.is_grad_enabled() and self.inside is None:
            self._try(args, kwargs)
        if not torch.is_grad_enabled() or self.writes:
            return super().forward(*args, **kwargs)
        # networks whose scores go by random numbers are errors
        return checkpoint(super().forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    def _try(self, args: Any, kwargs: Any) -> None:
        """Run it on copies, and look at what it keeps and whether it writes."""
        copied = [arg.clone() if isinstance(arg, Tensor) else arg for arg in (*args, *kwargs.values())]
        versions = [version_of(arg) for arg in copied if isinstance(arg, Tensor)]
        with Saved([*self.parameters(), *self.buffers()]) as saved:
            super().forward(*copied[: len(args)], **dict(zip(kwargs, copied[len(args) :], strict=True)))
        self.writes = versions != [version_of(arg) for arg in copied if isinstance(arg, Tensor)]
        self.inside = 0 if self.writes else saved.bytes


def checkpoint_blocks(net: nn.Module) -> int:
    """Make every block of a network a checkpointed one; how many there are. The network must be ours."""
    blocks = _find_blocks(net)
    for block in blocks:
        kind = type(block)
        # by its class: a function set on the module would call this very module from a copy of it
        block.__class__ = type(kind.__name__, (Checkpointed, kind), {"__module__": kind.__module__})
    return len(blocks)


def count_bytes(net: nn.Module) -> int:
    """Return how much memory a point takes inside the largest block, beside what is kept between
    blocks."""
    return max((module.inside or 0 for module in net.modules() if isinstance(module, Checkpointed)), default=0)


def _find_blocks(module: nn.Module) -> list[nn.Module]:
    """Return the outermost modules of several layers; of a list of such modules, each of them."""
    blocks = list[nn.Module]()
    for child in module.children():
        if isinstance(child, (nn.ModuleList, nn.ModuleDict)) or any(map(_lists_blocks, child.modules())):
            blocks += _find_blocks(child)
        elif _has_layers(child) and not isinstance(child, torch.jit.ScriptModule):
            blocks.append(child)
    return list(dict.fromkeys(blocks))  # a module may have several names


def _lists_blocks(module: nn.Module) -> bool:
    return isinstance(module, (nn.Sequential, nn.ModuleList)) and sum(map(_has_layers, module.children())) > 1


def _has_layers(module: nn.Module) -> bool:
    return any(not isinstance(child, (nn.ParameterList, nn.ParameterDict)) for child in module.children())
