"""Quantised weights: layers of 8 and 4 bits with a gradient by their input alone, made by hand and by the packages."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

import ig2
from ig2 import modalities
from ig2._engine.isolation import isolate
from ig2._utils.digests import fingerprint
from ig2.errors import IG2Warning, ModelError
from ig2.modalities.text.transformers import from_transformers
from language import MARKS, SIZE, build, make_tokenizer
from networks import refuses

LONG = "The capital of France is old and many people speak Italian"
MIDDLE = "The capital of France is old and many women speak French"
PAIRS = [MIDDLE, "The city of France is old and many people speak French"]
METHODS = {
    "DeepSHAP": ig2.DeepSHAP(),
    "IG²": ig2.IG2(steps=4, distance=ig2.paths.cosine),
    "IG², secant": ig2.IG2(steps=4, distance=ig2.paths.cosine, rule=ig2.rules.secant),
    "Expected IG": ig2.ExpectedIG(steps=6),
}


class EightBits(nn.Module):
    """A linear layer as such packages have them: whole numbers, a scale, and a gradient by its input alone."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scale = linear.weight.detach().abs().amax(dim=1, keepdim=True) / 127
        self.weight = nn.Parameter((linear.weight.detach() / scale).round().to(torch.int8), requires_grad=False)
        self.register_buffer("scale", scale)

    def unpack(self) -> Tensor:
        return self.weight * self.scale

    def forward(self, x: Tensor) -> Tensor:
        return Product.apply(x, self.weight, self.unpack())


class FourBits(EightBits):
    """The same with two whole numbers from −8 to 7 in each byte, and a scale for each 8 of them."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        blocks = linear.weight.detach().reshape(-1, 8)
        scale = blocks.abs().amax(dim=1, keepdim=True) / 7
        whole = ((blocks / scale).round().clamp(-8, 7) + 8).to(torch.uint8).reshape(-1)
        self.weight = nn.Parameter(whole[::2] << 4 | whole[1::2], requires_grad=False)
        self.register_buffer("scale", scale)
        self.shape = linear.weight.shape

    def unpack(self) -> Tensor:
        whole = torch.stack([self.weight >> 4, self.weight & 15], dim=1).reshape(-1, 8).to(self.scale.dtype) - 8
        return (whole * self.scale).reshape(self.shape)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return x @ weight.T.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        assert not any(ctx.needs_input_grad[1:]), "a gradient of quantised weights was asked for"
        return gradient @ ctx.saved_tensors[0].to(gradient.dtype), None, None


def quantise(net: Any, kind: type[nn.Module]) -> Any:
    for layer in net.model.layers:
        for part, names in ((layer.self_attn, ("q_proj", "k_proj", "v_proj", "o_proj")), (layer.mlp, ("up_proj", "down_proj"))):
            for each in names:
                setattr(part, each, kind(getattr(part, each)))
    return net


@pytest.mark.parametrize("kind", [EightBits, FourBits])
@pytest.mark.parametrize("name", METHODS)
def test_quantised_layers_need_a_gradient_by_their_input_alone(kind: Any, name: str) -> None:
    net, plain = quantise(build("llama"), kind), build("llama")
    for layer, other in zip(
        net.model.layers, plain.model.layers, strict=True
    ):  # the same weights, as they come out of the bits
        for part in (
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
            "self_attn.o_proj",
            "mlp.up_proj",
            "mlp.down_proj",
        ):
            other.get_submodule(part).weight.data = layer.get_submodule(part).unpack()
    call = (LONG, " Rome", None, PAIRS, METHODS[name])
    packed, unpacked = (modalities.language.load(each, make_tokenizer()).explain(*call) for each in (net, plain))
    np.testing.assert_allclose(packed.token_scores, unpacked.token_scores, rtol=1e-6, atol=1e-9)
    if name != "Expected IG":
        assert float(packed.attribution.relative_residual.max()) < 1e-5
    model = modalities.language.load(net, make_tokenizer())
    assert model.pose(*call).estimate() > 0
    single = model.explain(*call, batch_size=1)
    np.testing.assert_allclose(single.token_scores, packed.token_scores, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", [EightBits, FourBits])
def test_copies_of_a_network_share_quantised_weights(kind: Any) -> None:
    net = quantise(build("llama"), kind)
    copied: Any = isolate(ig2.wrap(net)).net
    assert copied is not net
    assert copied.model.layers[0].mlp.up_proj.weight.data_ptr() == net.model.layers[0].mlp.up_proj.weight.data_ptr()


class Doubled(nn.Linear):
    """Holds its weights a second time in an object of its own, as the 8 bits of bitsandbytes do."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.state = type("State", (), {})()
        self.state.weights, self.state.counts = self.weight.data, torch.zeros(1)


def test_weights_that_an_object_holds_are_shared_and_what_else_it_holds_is_not() -> None:
    net = Doubled()
    copied: Any = isolate(ig2.wrap(net)).net
    assert copied.state is not net.state
    assert copied.state.weights.data_ptr() == net.weight.data_ptr()
    assert copied.state.counts.data_ptr() != net.state.counts.data_ptr()


class Taking(nn.Parameter):
    """A weight with its scale, which the first pass of a layer takes away from it."""


class Taker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Taking(torch.eye(3), requires_grad=False)
        self.weight.scale = torch.tensor(2.0)
        self.scale: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.scale is not None:
            self.scale, self.weight.scale = self.weight.scale, None
        return x @ self.weight.T * (1.0 if self.scale is None else self.scale)


def test_what_a_copy_takes_from_a_weight_is_put_back() -> None:
    net, x = Taker().eval(), torch.rand(2, 3)
    ig2.IntegratedGradients(2)(ig2.wrap(net, "output"), x, 0)
    torch.testing.assert_close(net(x), 2 * x)


# -- layers without a gradient -----------------------------------------------------------------------------------------


class Detached(EightBits):
    """Rounds what goes into it as well, as layers for inference do, and has no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.detach() * 127).round() / 127 @ self.unpack().T.to(x.dtype)


def test_layers_that_pass_no_gradient_on_are_rejected_when_loaded() -> None:
    # around them a gradient goes on through the residual connections, and IG² would add up by construction
    refuses(ModelError, "gradient", lambda: modalities.language.load(quantise(build("llama"), Detached), make_tokenizer()))
    pairs = build("pairs")
    pairs.bert.encoder.layer[0].output.dense = Detached(pairs.bert.encoder.layer[0].output.dense)
    refuses(ModelError, "gradient", lambda: from_transformers(pairs, make_tokenizer(marks=True)))


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + torch.ops.ig2tests_bare.half(x))


def test_an_operation_without_a_gradient_is_rejected() -> None:
    # a kernel without an autograd formula: PyTorch warns, and takes its gradient for zero
    library = torch.library.Library("ig2tests_bare", "DEF")
    library.define("half(Tensor x) -> Tensor")
    library.impl("half", lambda x: torch.from_numpy(x.detach().numpy() / 2), "CPU")  # as one in C++ does
    x = torch.rand(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refuses(ModelError, "no gradient", lambda: ig2.IntegratedGradients(2)(ig2.wrap(Halves().eval()), x, 0))


class Packed(nn.Linear):
    """As a layer of bitsandbytes on a CPU that computes in bfloat16, before or after it was run."""

    def __init__(self, linear: nn.Linear, is_packed: bool) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=False, dtype=linear.weight.dtype)
        self.support_avx512bf16_for_cpu = True
        self.weight.quant_state = type("State", (), {"packing_format_for_cpu": is_packed})()


@pytest.mark.parametrize("is_packed", [False, True])
def test_bitsandbytes_may_not_pack_its_bits_for_a_kernel_without_gradients(is_packed: bool) -> None:
    net = build("llama")
    net.model.layers[0].mlp.up_proj = layer = Packed(net.model.layers[0].mlp.up_proj, is_packed)
    if is_packed:
        refuses(ModelError, "bitsandbytes", lambda: modalities.language.load(net, make_tokenizer()))
    else:
        modalities.language.load(net, make_tokenizer())
        assert not layer.support_avx512bf16_for_cpu


# -- what a run and a cast make of them ----------------------------------------------------------------------------------


class Wrapping(Tensor):
    """A tensor made of others, as torchao's weights are; of what a network needs it has linear() alone."""

    @staticmethod
    def __new__(cls, whole: Tensor, scale: Tensor) -> Any:
        return Tensor._make_wrapper_subclass(cls, whole.shape, dtype=scale.dtype)  # type: ignore[attr-defined]

    def __init__(self, whole: Tensor, scale: Tensor) -> None:
        self.whole, self.scale = whole, scale

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, Any]]:
        return ["whole", "scale"], {"dtype": self.dtype}

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            x, weight, *bias = args
            return nn.functional.linear(x, (weight.whole * weight.scale).to(x.dtype), *bias)
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].whole, args[0].scale)
        raise NotImplementedError(f"{func} of quantised weights")


def wrap_weights(net: Any) -> Any:
    for layer in net.model.layers:
        packed = EightBits(layer.mlp.up_proj)
        layer.mlp.up_proj.weight = nn.Parameter(Wrapping(packed.weight.data, packed.scale), requires_grad=False)
    return net


def test_weights_made_of_several_tensors_have_a_fingerprint() -> None:
    states = [fingerprint(wrap_weights(build("llama")).state_dict()) for _ in range(2)]
    assert states[0] == states[1]
    for name in ("whole", "scale"):
        net = wrap_weights(build("llama"))
        getattr(net.model.layers[1].mlp.up_proj.weight, name)[0, 0] += 1
        assert fingerprint(net.state_dict()) != states[0]


def test_quantised_weights_are_not_cast() -> None:
    net = wrap_weights(build("llama").float())
    model = modalities.language.load(net, make_tokenizer(), prepare=ig2.Preparation(precision="bfloat16"))
    explanation = model.explain(LONG, " Rome", None, MIDDLE)
    assert "quantised" in explanation.attribution.settings["preparation"]["left as it is"]
    assert net.model.layers[0].mlp.up_proj.weight.dtype == torch.float32
    assert float(explanation.attribution.relative_residual.max()) < 1e-5


# -- the packages --------------------------------------------------------------------------------------------------------


def real(test: Any) -> Any:
    reason = "loads packages that quantise: make test-lm"
    return pytest.mark.lm(pytest.mark.slow(pytest.mark.skipif("IG2_TEST_LM" not in os.environ, reason=reason)(test)))


def build_larger() -> Any:
    """A Llama wide enough for blocks of 32 or 64 weights, in float32."""
    size = {**SIZE, "hidden_size": 64, "intermediate_size": 128}
    net = transformers.LlamaForCausalLM(transformers.LlamaConfig(**size, **MARKS, max_position_embeddings=32)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.15 + ("norm" in name))
    return net


def by_bitsandbytes(net: Any, folder: Path, **options: Any) -> modalities.language.LanguageModel:
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("accelerate")
    net.save_pretrained(folder)
    config = transformers.BitsAndBytesConfig(**options)
    return modalities.language.load(str(folder), make_tokenizer(), quantization_config=config)


def by_torchao(net: Any, folder: Path, bits: int) -> modalities.language.LanguageModel:
    torchao = pytest.importorskip("torchao.quantization")
    dtype = {8: torch.int8, 4: torch.int4}[bits]
    torchao.quantize_(net, torchao.IntxWeightOnlyConfig(weight_dtype=dtype, granularity=torchao.PerGroup(32)))
    return modalities.language.load(net, make_tokenizer())


def by_quanto(net: Any, folder: Path, bits: int) -> modalities.language.LanguageModel:
    quanto = pytest.importorskip("optimum.quanto")
    quanto.quantize(net, weights={8: quanto.qint8, 4: quanto.qint4}[bits])
    quanto.freeze(net)
    return modalities.language.load(net, make_tokenizer())


PACKAGES: dict[str, Callable[[Any, Path], modalities.language.LanguageModel]] = {
    "bitsandbytes, nf4": lambda net, folder: by_bitsandbytes(net, folder, load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "bitsandbytes, fp4": lambda net, folder: by_bitsandbytes(net, folder, load_in_4bit=True, bnb_4bit_quant_type="fp4"),
    "bitsandbytes, nf4 twice": lambda net, folder: by_bitsandbytes(
        net, folder, load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True
    ),
    "bitsandbytes, 8 bits": lambda net, folder: by_bitsandbytes(net, folder, load_in_8bit=True),
    "torchao, 4 bits": lambda net, folder: by_torchao(net, folder, 4),
    "torchao, 8 bits": lambda net, folder: by_torchao(net, folder, 8),
    "quanto, 4 bits": lambda net, folder: by_quanto(net, folder, 4),
    "quanto, 8 bits": lambda net, folder: by_quanto(net, folder, 8),
}


@real
@pytest.mark.parametrize("package", PACKAGES)
def test_models_quantised_by_the_packages(package: str, tmp_path: Path) -> None:
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    model = PACKAGES[package](build_larger(), tmp_path)
    rounds = package == "bitsandbytes, 8 bits"  # what goes into a layer too, so that secants are off by that
    before = fingerprint(model.net.state_dict())
    if rounds:
        warnings.simplefilter("ignore", IG2Warning)
    for name, method in METHODS.items():
        call = (LONG, " Rome", None, PAIRS, method)
        explanation = model.explain(*call)
        if name != "Expected IG":
            assert float(explanation.attribution.relative_residual.max()) < (0.1 if rounds else 1e-3)
        assert model.pose(*call).estimate() > 0
        single = model.explain(*call, batch_size=1)
        largest = np.abs(explanation.token_scores).max()
        if not rounds:
            np.testing.assert_allclose(single.token_scores, explanation.token_scores, atol=1e-3 * largest)
    assert all(parameter.grad is None for parameter in model.net.parameters())
    assert fingerprint(model.net.state_dict()) == before
    # numerically, by words that are exchanged: a gradient that misses layers would not account for the change
    change = explanation.attribution.output - explanation.attribution.baseline_output
    exact = model.explain(LONG, " Rome", None, PAIRS, ig2.ExpectedIG(steps=60))
    if not rounds:
        torch.testing.assert_close(exact.attribution.total.to(change), change, rtol=0.02, atol=2e-3)


@real
def test_smollm2_in_four_bits_of_bitsandbytes(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    whole = modalities.language.load("smollm2")
    settings = {key: value for key, value in whole.net.config.to_dict().items() if key != "quantization_config"}
    plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))  # one that was read from GGUF is not written
    plain.load_state_dict(whole.net.state_dict())
    plain.to(torch.bfloat16).save_pretrained(tmp_path)
    config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    model = modalities.language.load(str(tmp_path), whole.tokenizer, quantization_config=config, dtype=torch.float32)
    explanation = model.explain("In Germany people speak", rather_than="In France people speak")
    assert explanation.sentences[0].startswith("' German' rather than ' French', because of 'Germany'")
    assert float(explanation.attribution.relative_residual.max()) < 1e-3
