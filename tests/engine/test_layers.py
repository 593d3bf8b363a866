"""Attributions to a layer: those of the rest of the network by hand, from what the layer makes of x and the references."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2 import metrics, targets
from ig2.errors import InputError, ModelError
from networks import data, made, randn, refuses, seeded

X, REFERENCES = data(3, 2, 13, 13), data(2, 2, 13, 13, seed=1)


def cnn() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, 2), nn.ReLU(inplace=True), nn.Conv2d(4, 3, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(48, 6), nn.Tanh(), nn.Linear(6, 5)),
    )


NET: Any = seeded(cnn, 0)
METHODS = {
    "gradient": ig2.Gradient(),
    "input times gradient": ig2.InputXGradient(),
    "integrated gradients": ig2.IntegratedGradients(7),
    "expected": ig2.ExpectedIG(5),
    "guided": ig2.GuidedIG(20),
    "ig2": ig2.IG2(steps=9),
    "ig2, secants": ig2.IG2(steps=3, rule=ig2.rules.secant),
    "ig2, finished": ig2.IG2(steps=3, fallback="straight"),
    "smooth": ig2.SmoothGrad(ig2.Gradient(), samples=4),
    "deepshap": ig2.DeepSHAP(),
    "kernelshap": ig2.KernelSHAP(ig2.Grid(2, 3)),
    "occlusion": ig2.Occlusion(2),
    "random": ig2.Random(),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize(("at", "cut"), [("0", 1), ("1", 2), (NET[2], 3), ("2:input", 2)], ids=str)
def test_a_layer_is_the_rest_of_the_network_by_hand(method: ig2.Method, at: Any, cut: int):
    lower, upper = NET[:cut], NET[cut:]
    a = method(NET, X, 1, REFERENCES, at=at)
    h, far = lower(X).detach(), lower(REFERENCES).detach()
    b = method(upper, h, 1, far)
    assert torch.allclose(a.values, b.values, atol=1e-12) and torch.equal(a.explicand, h)
    assert torch.allclose(a.output, NET(X)[:, 1]) and a.values.shape == h.shape
    if b.residual is not None:
        assert torch.allclose(a.residual, b.residual, atol=1e-12)
        assert torch.allclose(a.baseline_outputs, b.baseline_outputs)


def test_default_references_are_those_of_the_input():
    a = ig2.IntegratedGradients(60, rule=ig2.rules.blended)(NET, X, 1, at="1")
    assert torch.allclose(a.baseline_output, NET(torch.zeros_like(X))[:, 1]) and float(a.residual.abs().max()) < 1e-12
    own = ig2.PathMethod(ig2.paths.Straight(5), REFERENCES, ig2.rules.trapezoid)
    assert torch.allclose(own(NET, X, 1, at="1").values, own(NET, X, 1, REFERENCES, at="1").values)


def test_a_wrong_layer_gives_other_values():
    one, other = (ig2.IntegratedGradients(7)(NET, X, 1, REFERENCES, at=at) for at in ("0", "1"))
    assert not torch.allclose(one.values, other.values)


@pytest.mark.parametrize("index", [2, [0, 3], (1, 4, 5), (slice(None), 0)], ids=str)
def test_some_channels_or_neurons(index: Any):
    a = ig2.IntegratedGradients(40, rule=ig2.rules.blended)(NET, X, 1, REFERENCES, at=ig2.At("1", index))
    moves = torch.zeros(4, 6, 6, dtype=torch.bool)
    moves[index] = True
    assert (a.values[:, ~moves] == 0).all() and (a.values[:, moves] != 0).any()
    h, far = NET[:2](X), NET[:2](REFERENCES)
    ends = torch.stack([NET[2:](torch.where(moves, far[r], h))[:, 1] for r in range(2)], dim=1)
    assert torch.allclose(a.baseline_outputs, ends) and float(a.residual.abs().max()) < 1e-12


class Residual(nn.Module):
    """A block with a way around it, and a layer that returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.block, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(8, 2)
        self.memory = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        return self.last(torch.cat([h + self.block(h).tanh(), self.memory(h[:, None])[0][:, 0]], dim=1))


def test_the_way_around_a_layer_stays_at_x():
    net, x, far = seeded(Residual, 0), randn(2, 4), randn(1, 4, seed=1)
    a = ig2.IntegratedGradients(50, rule=ig2.rules.blended)(net, x, 1, far, at="block")
    h, end = net.first(x).tanh(), net.block(net.first(far).tanh()).expand(2, -1)
    by_hand = net.last(torch.cat([h + end.tanh(), net.memory(h[:, None])[0][:, 0]], dim=1))[:, 1]
    assert torch.allclose(a.baseline_output, by_hand)
    b = ig2.IntegratedGradients(50, rule=ig2.rules.blended)(net, x, 1, far, at="memory")
    assert b.values.shape == (2, 1, 4) and float(b.residual.abs().max()) < 1e-12
    halved = ig2.IntegratedGradients(50, rule=ig2.rules.blended)(
        ig2.wrap(net, preprocess=lambda x: x / 2), 2 * x, 1, 2 * far, at="block"
    )
    assert torch.allclose(halved.values, a.values, atol=1e-12)


class Words(nn.Module):
    """Token ids to classes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 3), nn.Linear(3, 2)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        vectors = self.embedding(ids).tanh()
        return self.head(vectors.mean(dim=1) if mask is None else (vectors * mask[..., None]).sum(dim=1))


def test_token_ids_are_explained_at_their_embedding():
    net, ids = seeded(Words, 0), torch.tensor([[1, 2, 3], [4, 5, 6]])
    a = ig2.IG2(20)(net, ids, 1, torch.tensor([[0, 0, 0], [8, 7, 0]]), at="embedding")
    assert a.values.shape == (2, 3, 3) and float(a.residual.abs().max()) < 1e-12
    mask = torch.tensor([[1.0, 1, 0], [1, 1, 1]]).double()
    x = {"ids": ids, "mask": ig2.Fixed(mask)}
    b = ig2.IntegratedGradients(20, rule=ig2.rules.blended)(net, x, 1, {"ids": torch.zeros(1, 3).long()}, at="embedding")
    assert torch.allclose(b.baseline_output, net(torch.zeros(2, 3).long(), mask)[:, 1]) and (b.values[0, 2] == 0).all()


class Product(nn.Module):
    """A layer of two tensors."""

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return one * other


class Gated(nn.Module):
    """Values times their gates."""

    def __init__(self) -> None:
        super().__init__()
        self.values, self.gates, self.product, self.head = nn.Linear(4, 4), nn.Linear(4, 4), Product(), nn.Linear(4, 2)

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        values = self.values(x) if shift is None else self.values(x + shift)
        return self.head(self.product(values, self.gates(x).sigmoid()))


def test_the_input_of_a_layer_is_its_first_tensor_alone():
    net, x, far = seeded(Gated, 0), randn(2, 4), randn(1, 4, seed=1)
    a = ig2.IntegratedGradients(9)(net, x, 1, far, at="product:input")
    b = ig2.IntegratedGradients(9)(net, x, 1, far, at="values")
    assert torch.allclose(a.values, b.values, atol=1e-12) and torch.equal(a.explicand, net.values(x))


def test_each_reference_goes_with_the_fixed_inputs_of_its_explicand():
    net, x, shift, far = seeded(Gated, 0), randn(2, 4), randn(2, 4, seed=2), randn(3, 4, seed=1)
    a = ig2.IntegratedGradients(9)(net, (x, ig2.Fixed(shift)), 1, (far,), at="values")
    ends = torch.stack(
        [net.head(net.values(far + s) * net.gates(one[None]).sigmoid())[:, 1] for one, s in zip(x, shift, strict=True)]
    )
    assert torch.allclose(a.baseline_outputs, ends)


def test_weighted_references_keep_their_weights():
    weighted = ig2.references.Weighted(REFERENCES, torch.tensor([[0.9, 0.1]]).double().expand(3, -1))
    a = ig2.ExpectedIG(5)(NET, X, 1, weighted, at="1", per_reference=True)
    weights = torch.tensor([0.9, 0.1]).double()
    assert torch.allclose(a.values, torch.einsum("r,br...->b...", weights, a.per_reference), atol=1e-12)


def test_the_representation_and_the_bounds_are_those_of_the_network():
    model = ig2.wrap(NET, representation="5", bounds=(X.min() - 1, X.max() + 1))
    a = ig2.IG2(9)(model, X, 1, REFERENCES, at="1")
    b = ig2.IG2(9)(ig2.wrap(NET[2:], representation="5"), NET[:2](X).detach(), 1, NET[:2](REFERENCES).detach())
    assert torch.allclose(a.values, b.values, atol=1e-12) and a.settings["representation"] == "output of 'net.5'"
    large = ig2.wrap(nn.Sequential(nn.Conv2d(2, 2, 1), NET).double().eval(), bounds=(X.min() - 1, X.max() + 1))
    with torch.no_grad():
        large.net[0].weight.mul_(100)
    assert ig2.Gradient()(large, X, 1, at="0").values.abs().sum() > 0  # activations may leave the bounds of x


def test_a_layer_before_its_normalisation_is_not_folded_into_it():
    net: Any = seeded(
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(484, 3)), 0
    )
    net[1].running_mean.fill_(0.3), net[1].running_var.fill_(4.0)
    a = ig2.IntegratedGradients(9)(net, X, 1, REFERENCES, at="0")
    b = ig2.IntegratedGradients(9)(ig2.wrap(net[1:], prepare=False), net[0](X).detach(), 1, net[0](REFERENCES).detach())
    assert torch.allclose(a.values, b.values, atol=1e-12) and "left as it is" not in a.settings["preparation"]


def test_the_passes_that_read_the_layer_are_counted():
    a = ig2.IntegratedGradients(9)(NET, X, 1, REFERENCES, at="1")
    b = ig2.IntegratedGradients(9)(NET[2:], NET[:2](X).detach(), 1, NET[:2](REFERENCES).detach())
    # each explicand once for its class and once for its activation, and two references of each
    assert a.cost.forwards - b.cost.forwards == 3 * (1 + 1 + 2)


def test_metrics_measure_at_the_layer(tmp_path: Any):
    a = ig2.IntegratedGradients(7)(NET, X, 1, REFERENCES, at="1")
    wanted = metrics.Deletion()(NET[2:], a.values, NET[:2](X).detach(), 1).values
    a.save(tmp_path / "a.safetensors")
    for one in (a, ig2.Attribution.load(tmp_path / "a.safetensors"), ig2.Attribution.join([a[:1], a[1:]])):
        assert torch.allclose(metrics.Deletion()(NET, one).values, wanted) and "at        1" in repr(one)
    assert torch.allclose(metrics.Deletion()(NET, a[1:]).values, wanted[1:])
    held = ig2.IntegratedGradients(7)(NET, X, 1, REFERENCES, at=ig2.At("1", 2))
    assert torch.isfinite(metrics.Deletion()(NET, held).values).all()


def test_targets_preprocessing_outputs_and_functions_go_with_layers():
    model = ig2.wrap(NET, output="probability", preprocess=lambda x: x / 2, bounds=(-1, 1))
    a = ig2.IntegratedGradients(9)(model, X, 1, REFERENCES, at="3")
    b = ig2.IntegratedGradients(9)(
        ig2.wrap(NET[4:], output="probability"), NET[:4](X / 2).detach(), 1, NET[:4](REFERENCES / 2).detach()
    )
    assert torch.allclose(a.values, b.values, atol=1e-12)
    c = ig2.Gradient()(lambda x: NET(x) * 2, X, targets.Magnitude(), at=NET[3])
    d = ig2.Gradient()(NET[4:], NET[:4](X).detach(), lambda r: (2 * r).norm(dim=1))
    assert torch.allclose(c.values, d.values, atol=1e-12)


def test_maps_on_the_input_keep_their_sums():
    a = ig2.IntegratedGradients(30, rule=ig2.rules.blended)(NET, X, 1, REFERENCES, at="1", per_reference=True)
    shown = a.on_input()
    assert shown.values.shape == X.shape and torch.allclose(shown.total, a.total) and torch.equal(shown.explicand, X)
    assert torch.allclose(shown.residual, a.residual, atol=1e-12) and torch.allclose(shown.values[:, 0], shown.values[:, 1])
    assert shown.per_reference.shape == (3, 2, *X.shape[1:]) and shown.spread.shape == X.shape
    tokens = ig2.InputXGradient()(NET, X, 1, at="1")
    cam = ig2.HiResCAM("1")(NET, X, 1)
    fine = tokens.on_input().values.sum(dim=1).flatten(1)
    assert torch.corrcoef(torch.stack([fine[0], cam.values.sum(dim=1).flatten(1)[0]]))[0, 1] > 0.95
    coarse = ig2.Gradient()(NET, X, 1, at="5")
    refuses(InputError, "no map", coarse.on_input)
    refuses(InputError, "at=", lambda: shown.on_input())


def test_an_attribution_to_a_layer_is_drawn():
    a = ig2.IntegratedGradients(4)(ig2.wrap(lambda x: NET(x[:, :2])), data(1, 3, 13, 13), 1, at=NET[1])
    for one in (a, ig2.Gradient()(NET, X, 1, at="5")):
        assert "<" in one._repr_html_()
    assert len(a.plot().axes) > 0


def test_one_place_is_spread_where_it_lies():
    from ig2._utils.blur import spread_places

    values = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    values[0, 0, 3, 1] = 5.0
    fine = spread_places(values, (8, 12))
    assert torch.isclose(fine.sum(), values.sum()) and fine[0, 0, -2:, 3:6].sum() > 0.5 * fine.sum()


def test_bad_explicands_are_skipped_at_a_layer():
    x = X.clone()
    x[1, 0, 0, 0] = torch.nan
    with pytest.warns(ig2.IG2Warning):
        a = ig2.Gradient()(NET, x, 1, skip_bad=True, at="1")
    assert torch.allclose(a.values, ig2.Gradient()(NET, X, 1, at="1").values[[0, 2]])


REFUSED = {
    "no such layer": (InputError, "at=", lambda: ig2.Gradient()(NET, X, at="9")),
    "the output": (InputError, "output", lambda: ig2.Gradient()(NET, X, at="output")),
    "an index beyond it": (InputError, "index", lambda: ig2.Gradient()(NET, X, at=ig2.At("1", 9))),
    "an index of nothing": (InputError, "nothing", lambda: ig2.Gradient()(NET, X, at=ig2.At("1", []))),
    "a layer that runs twice": (ModelError, "2 times", lambda: ig2.Gradient()(lambda x: NET(NET[1](x)), X, at=NET[1])),
    "neither name nor module": (InputError, "module", lambda: ig2.Gradient()(NET, X, at=3)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused(case: str):
    refuses(*REFUSED[case])


def test_modes_of_the_network_are_left_as_they_were():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5).eval(), nn.Linear(4, 2)).double()  # all but the dropout train
    ig2.Gradient()(net, randn(2, 4), 1, at="0")
    assert [module.training for module in net.modules()] == [True, True, False, True]


def test_the_network_is_left_as_it_was():
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in NET.modules()]
    before = NET(X)
    ig2.IG2(4)(NET, X, 1, REFERENCES, at="1")
    assert torch.equal(NET(X), before) and not any(hooks)
    assert hooks == [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in NET.modules()]


# -- layers that never run, whose weights others have ------------------------------------------------------------------


class Tied(nn.Module):
    """Embeddings that never run themselves: encoders with the same weights do, as in BART and T5."""

    def __init__(self, encoders: int) -> None:
        super().__init__()
        self.shared = nn.Embedding(7, 4)
        self.encoders = nn.ModuleList(nn.Embedding(7, 4) for _ in range(encoders))
        for encoder in self.encoders:
            encoder.weight = self.shared.weight
        self.head = nn.Linear(4, 7)
        self.head.weight = self.shared.weight

    def forward(self, ids: Tensor) -> Tensor:
        hidden = torch.stack([encoder(ids) for encoder in self.encoders]).sum(dim=0)
        return self.head(hidden.tanh().mean(dim=1))


IDS = torch.tensor([[1, 2, 3], [4, 5, 6]])


def test_in_place_of_a_layer_that_never_runs_the_only_one_with_its_weights_is_explained():
    net = made(lambda: Tied(1))
    found = ig2.IntegratedGradients(4)(net, IDS, 0, references=0, at=net.shared)
    expected = ig2.IntegratedGradients(4)(net, IDS, 0, references=0, at="encoders.0")
    assert torch.equal(found.values, expected.values) and found.values.any()
    assert found.settings["at"] == "encoders.0"
    several = made(lambda: Tied(2))
    with pytest.raises(ModelError, match=r"'encoders\.0' and 'encoders\.1' have its weights"):
        ig2.IntegratedGradients(4)(several, IDS, 0, references=0, at=several.shared)
    with pytest.raises(ModelError, match="never computed; name a module that runs once"):
        ig2.IntegratedGradients(4)(made(lambda: Untied()), IDS, 0, references=0, at="unused")


class Untied(Tied):
    def __init__(self) -> None:
        super().__init__(1)
        self.unused = nn.Embedding(7, 4)


@pytest.mark.slow
def test_the_input_embeddings_of_transformers_are_found_or_named():
    transformers = pytest.importorskip("transformers")
    small = {"vocab_size": 30, "d_model": 8, "decoder_start_token_id": 2}
    t5 = {**small, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    encoder = made(lambda: transformers.T5EncoderModel(transformers.T5Config(**t5)))
    model = ig2.wrap(encoder, output=lambda result: result.last_hidden_state.mean(dim=1))
    found = ig2.IntegratedGradients(2)(model, {"input_ids": IDS}, 0, references=0, at=encoder.get_input_embeddings())
    assert found.settings["at"] == "encoder.embed_tokens" and found.values.shape == (2, 3, 8)
    heads = {f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("layers", "attention_heads", "ffn_dim")}
    whole = made(lambda: transformers.BartModel(transformers.BartConfig(**small, **heads)))
    model = ig2.wrap(whole, output=lambda result: result.last_hidden_state[:, -1])
    with pytest.raises(ModelError, match=r"'encoder\.embed_tokens' and 'decoder\.embed_tokens'"):
        ig2.IntegratedGradients(2)(model, {"input_ids": IDS}, 0, references=0, at=whole.get_input_embeddings())
    named = ig2.IntegratedGradients(2)(model, {"input_ids": IDS}, 0, references=0, at="encoder.embed_tokens")
    assert named.values.any()
