"""Layers of quantised networks that have no gradient, and what keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ig2.errors import ModelError


def check_network(net: nn.Module) -> None:
    """Check that a network of transformers can be explained as it is, and keep its layers differentiable.

    Raises:
        ModelError: if it is in train mode, its weights are elsewhere, or they are packed for a kernel without gradients.
    """
    if net.training:
        raise ModelError("the model is in train mode: call model.eval() first")
    if any(tensor.is_meta for tensor in [*net.parameters(), *net.buffers()]):
        raise ModelError("weights of the model are on the meta device (offloaded?): load the whole model onto one device")
    _keep_gradients(net)


def _keep_gradients(net: nn.Module) -> None:
    """Keep bitsandbytes layers differentiable.

    On a CPU that computes in bfloat16, they repack their 4 bits in the first pass without gradients, for a kernel that has no
    gradient. PyTorch then treats the gradient of every layer as zero: secants on a Llama were off by 150 % of the change.

    Raises:
        ModelError: if they are already repacked, which loses digits and cannot be undone.
    """
    for name, module in net.named_modules():
        if getattr(getattr(getattr(module, "weight", None), "quant_state", None), "packing_format_for_cpu", False):
            raise ModelError(
                f"the model was run before, and bitsandbytes then packed the 4 bits of {name} for a kernel without gradients: "
                "load it once more, and pass it on before it is run"
            )
        if getattr(module, "support_avx512bf16_for_cpu", False):
            module.support_avx512bf16_for_cpu = False


@torch.enable_grad()
def check_gradients(net: nn.Module, run: Callable[[Tensor], object], embeddings: Tensor) -> None:
    """Check that each layer with weights propagates gradients: a quantised layer may support only inference.

    Gradients bypass such layers through the residual connections, and attributions then ignore the layers' effect.

    Args:
        net: the network to check.
        run: runs the network from embeddings.
        embeddings: the embeddings to run it on, (n, L, E).

    Raises:
        ModelError: if a layer does not.
    """
    blocked: list[str] = []

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
            takes = any(isinstance(arg, Tensor) and arg.requires_grad for arg in args)
            if takes and isinstance(result, Tensor) and not result.requires_grad:
                blocked.append(name)

        return hook

    layers = [
        (name, module) for name, module in net.named_modules() if next(module.parameters(recurse=False), None) is not None
    ]
    handles = [module.register_forward_hook(note(name)) for name, module in layers]
    try:
        run(embeddings.detach().requires_grad_())
    finally:
        for handle in handles:
            handle.remove()
    if blocked:
        kind = type(net.get_submodule(blocked[0])).__name__
        raise ModelError(
            f"{len(blocked)} layers have no gradient, the first is {blocked[0]} ({kind}): layers that round what goes into "
            "them, or are for inference alone, cannot be explained by gradients. Quantise the weights only"
        )
