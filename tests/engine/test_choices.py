"""Networks that pick and order by value: mixtures of experts, sparse attention, detectors that keep their best proposals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ig2
from ig2 import paths, rules
from ig2._engine.session import open_session
from ig2.model import Layer
from networks import randn, spread_weights

METHODS = {
    "DeepSHAP": ig2.DeepSHAP(),
    "on a line": ig2.PathMethod(paths.Straight(3), rule=rules.secant),
    "IG2": ig2.IG2(2, rule=rules.secant),
}


def one_expert(x: Tensor, gates: Tensor, experts: Tensor) -> Tensor:
    """A linear expert for each sample, that with the largest gate."""
    return (experts[(x @ gates.T).argmax(dim=1)] * x).sum(dim=1)


def test_what_a_choice_does_goes_to_the_values_it_was_made_by():
    """By hand: from x′ = (0, 1) to x = (3, 1) the first expert, 2·x₀, takes over from the second, 5·x₁.

    With the first expert at both ends x₀ has 2 · 3; the choice did 0 − 5, and only x₀ moved the gates.
    """
    gates, experts = torch.eye(2).double(), torch.tensor([[2.0, 0.0], [0.0, 5.0]]).double()
    x, reference = torch.tensor([[3.0, 1.0]]).double(), torch.tensor([[0.0, 1.0]]).double()
    found = ig2.DeepSHAP()(lambda z: one_expert(z, gates, experts), x, references=reference)
    torch.testing.assert_close(found.values, torch.tensor([[6.0 - 5.0, 0.0]]).double())


def test_a_choice_of_linear_experts_equals_its_closed_form():
    """m = e + c · jump / (c·Δx), with e the near end's expert, jump = e·x′ − f(x′) and c the gate taken less the gate left."""
    gates, experts, x, references = randn(4, 5), randn(4, 5, seed=1), randn(8, 5, seed=2), randn(8, 1, 5, seed=3)
    found = ig2.DeepSHAP()(lambda z: one_expert(z, gates, experts), x, references=references)
    other = references[:, 0]
    near, far = ((ends @ gates.T).argmax(dim=1) for ends in (x, other))
    step = x - other
    turned = gates[near] - gates[far]
    jump = ((experts[near] - experts[far]) * other).sum(dim=1)
    share = torch.where(near == far, 0.0, jump / (turned * step).sum(dim=1))
    assert 0 < int((near != far).sum()) < 8
    torch.testing.assert_close(found.values, (experts[near] + turned * share.nan_to_num()[:, None]) * step)
    assert found.residual.abs().max() < 1e-12 and found.settings["complete"]


class Experts(nn.Module):
    """Tokens (B, T, 4) through two of four experts each, in one of the ways that networks write it."""

    def __init__(self, way: Callable[..., Tensor], route: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.router, self.up, self.down = (
            nn.Linear(4, 4),
            nn.Parameter(torch.empty(4, 4, 6)),
            nn.Parameter(torch.empty(4, 6, 4)),
        )
        self.out, self.way, self.route = nn.Linear(4, 3), way, route

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, 4)
        weights, places = self.route(self.router(tokens))
        mixed = self.way(tokens, weights, places, self.up, self.down)
        return self.out((x + mixed.view(x.shape)).tanh().mean(dim=1))


def loop_over_experts(x: Tensor, weights: Tensor, places: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """As many tokens in each product as want the expert: the shapes differ between the ends."""
    total = torch.zeros_like(x)
    with torch.no_grad():
        wanted = F.one_hot(places, len(up)).permute(2, 1, 0)
        some = wanted.sum(dim=(-1, -2)).nonzero()
    for (expert,) in some:
        slot, token = torch.where(wanted[expert])
        total.index_add_(0, token, F.silu(x[token] @ up[expert]) @ down[expert] * weights[token, slot, None])
    return total


def weights_of_each(x: Tensor, weights: Tensor, places: Tensor, up: Tensor, down: Tensor) -> Tensor:
    hidden = F.silu(torch.einsum("ti,tkij->tkj", x, up[places]))
    return (torch.einsum("tkj,tkji->tki", hidden, down[places]) * weights[..., None]).sum(dim=1)


def sorted_by_expert(x: Tensor, weights: Tensor, places: Tensor, up: Tensor, down: Tensor) -> Tensor:
    experts, order = places.flatten().sort()
    rows, back = x[order // places.shape[1]], order.argsort()
    groups = experts.bincount(minlength=len(up)).tolist()
    pieces = [F.silu(rows @ up[e]) @ down[e] for e, rows in enumerate(rows.split(groups))]
    mixed = torch.cat(pieces) * weights.flatten()[order, None]
    return mixed[back].view(*places.shape, -1).sum(dim=1)


def masked(x: Tensor, weights: Tensor, places: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Every expert sees every token, and most count zero."""
    gates = torch.zeros(len(x), len(up), dtype=x.dtype).scatter(1, places, weights)
    return torch.einsum("etj,eji,te->ti", F.silu(torch.einsum("ti,eij->etj", x, up)), down, gates)


def softmax_first(logits: Tensor) -> tuple[Tensor, Tensor]:
    weights, places = logits.softmax(dim=1).topk(2, dim=1)
    return weights / weights.sum(dim=1, keepdim=True), places


def softmax_last(logits: Tensor) -> tuple[Tensor, Tensor]:
    best = logits.topk(2)
    return best.values.softmax(dim=1), best.indices


def without_gradient(logits: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        places = torch.argsort(logits, dim=-1, descending=True)[:, :2]
    return logits.sigmoid().gather(1, places), places


def best_of_best_group(logits: Tensor) -> tuple[Tensor, Tensor]:
    """DeepSeek's: of two groups of experts that with the larger sum, then the best in it."""
    scores = logits.sigmoid()
    group = scores.view(-1, 2, 2).topk(2, dim=-1)[0].sum(dim=-1).topk(1, sorted=False)[1]
    left_out = torch.ones(len(scores), 2, dtype=torch.bool).scatter(1, group, False).repeat_interleave(2, dim=1)
    places = scores.masked_fill(left_out, -torch.inf).topk(2, sorted=False)[1]
    return scores.gather(1, places), places


def one_by_one(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Two maxima, each read for its place."""
    first, place = logits.max(dim=1, keepdim=True)
    second, next_place = logits.scatter(1, place, -torch.inf).max(dim=1, keepdim=True)
    return torch.cat([first, second], dim=1).sigmoid(), torch.cat([place, next_place], dim=1)


WAYS = [loop_over_experts, weights_of_each, sorted_by_expert, masked]
ROUTES = [softmax_first, softmax_last, without_gradient, best_of_best_group, one_by_one]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.__name__)
def test_experts_add_up_however_they_are_written(way: Any, route: Any):
    net = spread_weights(Experts(way, route))
    x, references = randn(3, 5, 4), randn(2, 5, 4, seed=1)
    ends = [route(net.router(points.reshape(-1, 4)))[1].sort().values for points in (x[:2], references)]
    assert (ends[0] != ends[1]).any()
    plain = spread_weights(Experts(weights_of_each, route))
    for name, method in METHODS.items():
        found = method(net, x, 1, references)
        assert found.residual.abs().max() < 1e-12 and found.settings["complete"], name
        torch.testing.assert_close(found.output, net(x)[:, 1])
        torch.testing.assert_close(found.values, method(plain, x, 1, references).values)


def test_layers_with_places_add_up_where_choices_differ():
    """`Strata` reads what a layer contributes, in the passes whose choices agree."""

    class Best(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.out = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1), nn.Linear(12, 2)

        def forward(self, x: Tensor) -> Tensor:
            places = self.two(self.one(x).tanh()).tanh()
            return self.out(places.flatten(2).topk(4).values.flatten(1))

    net, x, other = spread_weights(Best()), randn(2, 1, 6, 6), randn(2, 1, 6, 6, seed=1)
    rows, target = torch.arange(2), torch.zeros(2, dtype=torch.long)
    with open_session(ig2.wrap(net), x) as session:
        parts, far = session.find_contributions(x, other, rows, target, [Layer("one", session.model.net.one, "output")])
    torch.testing.assert_close(far, net(other)[:, 0])
    torch.testing.assert_close(parts[0].flatten(1).sum(dim=1), net(x)[:, 0] - far)


def test_maxima_whose_place_nobody_reads_take_two_passes():
    passes = []

    def net(x: Tensor) -> Tensor:
        passes.append(len(x))
        return x.max(dim=1).values

    def count(places: bool) -> int:
        passes.clear()
        chosen = (lambda x: x.gather(1, net(x)[:, None].long() * 0 + x.max(dim=1, keepdim=True)[1])[:, 0]) if places else net
        ig2.DeepSHAP()(chosen, torch.tensor([[1.0, 2.0]]).double(), references=torch.tensor([[2.0, 1.0]]).double())
        return len(passes)

    assert count(places=True) == count(places=False) + 2


LANGUAGE = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "num_experts_per_tok": 2,
}  # fmt: skip
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4}
MIXTURES = {
    "Mixtral": {"num_local_experts": 4},
    "Qwen3Moe": {"num_experts": 4, "moe_intermediate_size": 12, "head_dim": 4},
    "DeepseekV3": {
        "n_routed_experts": 8, "num_local_experts": 8, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 12,
        "first_k_dense_replace": 0, "num_key_value_heads": 4, **LATENT,
    },
    "Olmoe": {"num_experts": 4},
    "Qwen3Next": {
        "num_experts": 4, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 12, "head_dim": 4,
        "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "GptOss": {"num_local_experts": 4, "head_dim": 4},
    "Llama4Text": {"num_local_experts": 4, "head_dim": 4, "intermediate_size_mlp": 24, "interleave_moe_layer_step": 1},
    "Glm4Moe": {
        "n_routed_experts": 4, "num_local_experts": 4, "moe_intermediate_size": 12, "first_k_dense_replace": 0, "head_dim": 4,
        "n_group": 1, "topk_group": 1,
    },
    "Jamba": {
        "num_experts": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        "mamba_d_state": 4, "mamba_dt_rank": 4, "use_mamba_kernels": False,
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("way", ["grouped_mm", "batched_mm", "eager"])
def test_mixtures_of_transformers_add_up(name: str, way: str):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(**{**LANGUAGE, **MIXTURES[name]})
    inner = getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")(config)
    if name != "Llama4Text":  # all of its experts see all tokens
        inner.set_experts_implementation(way)
    inner = spread_weights(inner)

    def net(x: Tensor) -> Tensor:
        return inner(inputs_embeds=x, use_cache=False).logits[:, -1]  # type: ignore[no-any-return]

    dtype = torch.float32 if way == "grouped_mm" else torch.float64  # which has no product of groups
    inner.to(dtype)
    x, references = randn(3, 6, 16, dtype=dtype), randn(2, 6, 16, seed=1, dtype=dtype)
    found = ig2.DeepSHAP()(ig2.wrap(net, representation="output"), x, 1, references)
    # routers take softmax in float32 whatever the network's type is
    assert found.relative_residual.max() < 1e-3 and found.settings["complete"]


@pytest.mark.slow
def test_a_detector_that_keeps_its_best_proposals_adds_up():
    """RT-DETR: top-k of proposals, reading at places that move, detached places, and the target of a box."""
    transformers = pytest.importorskip("transformers")
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = transformers.RTDetrConfig(
        backbone_config=backbone, encoder_hidden_dim=16, encoder_in_channels=[8, 16, 16], encoder_ffn_dim=16, d_model=16,
        encoder_attention_heads=2, num_queries=8, decoder_in_channels=[16] * 3, decoder_ffn_dim=16, decoder_layers=2,
        decoder_attention_heads=2, num_denoising=0, num_labels=3,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        detector = transformers.RTDetrForObjectDetection(config).double().eval()
    net = ig2.wrap(lambda x: detector(pixel_values=x), representation="output")
    x, references = randn(2, 3, 64, 64), randn(2, 3, 64, 64, seed=1)
    with torch.no_grad():
        centre, half = detector(pixel_values=x).pred_boxes[:, 2].chunk(2, dim=1)
    target = ig2.targets.Box(torch.cat([centre - half / 2, centre + half / 2], dim=1), 1, 0.1, activation="sigmoid")
    found = ig2.DeepSHAP()(net, x, target, references)
    assert found.relative_residual.max() < 1e-6 and found.settings["complete"]
