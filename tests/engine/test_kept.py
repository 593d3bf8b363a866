"""What one call on a network finds out serves the next, as long as the network is what it was."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2._engine import session as sessions
from ig2._engine.kept import MOST_OPENED
from ig2.errors import ModelError
from ig2.metrics import Insertion, ParameterRandomisation
from networks import Record, seeded, uniform

X, MORE = uniform(3, 2, 8, 8, seed=1).float(), uniform(2, 2, 8, 8, seed=2).float()
REFERENCES = uniform(2, 2, 8, 8, seed=3).float()


class Seen(nn.Module):
    """Passes on what it gets, and notes how many samples these were."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = Record()

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        return x


def build() -> nn.Module:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3),
        )  # fmt: skip

    net = seeded(make, 0).float()
    net[1].running_mean.fill_(0.3)  # statistics that are not those of a new layer
    net[1].running_var.fill_(4.0)
    return net


METHODS = {
    "gradient": (ig2.Gradient(), {}),
    "ig": (ig2.IntegratedGradients(5), {}),
    "ig2": (ig2.IG2(4), {"references": REFERENCES}),
    "deepshap": (ig2.DeepSHAP(), {"references": REFERENCES}),
    "strata": (ig2.Strata(layers=["0", "3"]), {"references": REFERENCES}),
    "noisegrad": (ig2.NoiseGrad(ig2.Gradient(), 3), {}),
    "kernelshap": (ig2.KernelSHAP(ig2.Grid(2, 2), 40), {}),
}


@pytest.mark.parametrize(("method", "options"), METHODS.values(), ids=METHODS)
def test_calls_in_a_row_give_what_each_gives_alone(method: ig2.Method, options: dict[str, Any]):
    net = build()
    model = ig2.wrap(net)
    for x in (X, MORE, X):
        kept, alone = (method(m, x, against="next", **options) for m in (model, net))
        assert torch.equal(kept.values, alone.values) and torch.equal(kept.output, alone.output)
        assert kept.settings["preparation"] == alone.settings["preparation"] and kept.cost.gradients == alone.cost.gradients


def test_methods_and_metrics_share_what_was_found_out():
    net = build()
    model = ig2.wrap(net)
    for x in (X, MORE, X):
        results = []
        for m in (model, net):
            ig2.IntegratedGradients(5)(m, x)
            attribution = ig2.IG2(4)(m, x, references=REFERENCES)
            results.append([attribution.values, Insertion("black", 5)(m, attribution).values, ig2.scores(m, x)])
        assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    assert len(model.kept.opened) == 2  # logits, and the probabilities of the metric


@pytest.mark.parametrize("order", ["cascading", "independent"])
def test_a_network_whose_weights_are_drawn_anew_is_another(order: str):
    net, method = build(), ig2.IntegratedGradients(3)
    metric = ParameterRandomisation(method, order=order)
    kept, alone = (metric(model, method(model, X)).curves for model in (ig2.wrap(net), ig2.wrap(net)))
    assert torch.equal(kept, alone)


def test_nothing_is_kept_of_the_network_from_a_layer_on():
    model = ig2.wrap(build())
    for _ in range(3):
        ig2.Gradient()(model, X, at="3")
    assert len(model.kept.opened) <= 1  # each call cuts the network anew


def test_the_network_is_looked_at_once_for_inputs_of_a_shape():
    seen = Seen()
    net = nn.Sequential(seen, nn.Flatten(), nn.Linear(128, 3)).eval()
    model, wide = ig2.wrap(net), ig2.wrap(nn.Sequential(seen, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32, 3)).eval())
    gradient = ig2.Gradient()
    for m, batches, looks in ((model, (X, MORE, X), (True, False, False)), (wide, (X, X[..., :4], X), (True, True, False))):
        for x, look in zip(batches, looks, strict=True):
            seen.sizes.clear()
            gradient(m, x)
            assert (seen.sizes != [len(x)]) is look


def test_a_copy_is_made_once(monkeypatch: pytest.MonkeyPatch):
    made: list[str] = []
    for name in ("prepare", "find_representation"):
        original = getattr(sessions, name)
        monkeypatch.setattr(sessions, name, lambda *args, name=name, original=original: (made.append(name), original(*args))[1])
    model = ig2.wrap(build())
    for x in (X, MORE, X):
        ig2.IG2(4)(model, x, references=REFERENCES)
        ig2.Gradient()(model, x)  # which does without a faster copy
    assert sorted(made) == ["find_representation", "prepare"]


@pytest.mark.parametrize(
    ("method", "copies"),
    [
        (ig2.IG2(2), 1),
        (ig2.IntegratedGradients(2), 1),
        (ig2.Pooled(ig2.IntegratedGradients(2), torch.arange(64).view(8, 8)), 1),
        (ig2.Gradient(), 0),
        (ig2.DeepSHAP(), 0),
        (ig2.Strata(["1"]), 0),
        (ig2.GradCAM("1"), 0),
        (ig2.LayerCAM("1"), 0),
        (ig2.LA(1), 0),
        (ig2.NoiseGrad(ig2.Gradient(), 2), 0),
        (ig2.Pooled(ig2.DeepSHAP(), torch.arange(64).view(8, 8)), 0),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_copy_is_made_for_methods_whose_gradients_it_gives(method: ig2.Method, copies: int, monkeypatch: pytest.MonkeyPatch):
    made: list[Any] = []
    original = sessions.prepare
    monkeypatch.setattr(sessions, "prepare", lambda *args: (made.append(args), original(*args))[1])
    method(ig2.wrap(build()), X, target=0, **({"references": REFERENCES} if method.needs_references else {}))
    assert len(made) == copies


def test_a_point_takes_the_memory_of_its_own_size():
    net = nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    sizes = {}
    for model in (ig2.wrap(net), ig2.wrap(net)):
        for x in (X, X.repeat(1, 1, 4, 4), X):
            with sessions.open_session(model, x) as session:
                assert session.is_prepared
                sizes.setdefault(model, []).append(session.bytes_per_point)
    kept, alone = sizes.values()
    assert kept == alone and kept[1] > 8 * kept[0]


def test_a_call_inside_another_opens_the_network_for_itself():
    net = build()
    model = ig2.wrap(net)
    pool = uniform(12, 2, 8, 8, seed=4).float()

    class Nested(ig2.references.References):
        def draw(self, task: Any) -> Tensor:
            values = ig2.IG2(2)(model, task.x, references=REFERENCES).values
            return (pool[:2] + values.mean()).expand(len(task.x), -1, -1, -1, -1)

    method = ig2.IG2(4)
    for _ in range(3):
        nested = method(model, X, references=Nested()).values
    drawn = pool[:2] + ig2.IG2(2)(net, X, references=REFERENCES).values.mean()
    assert torch.equal(nested, method(net, X, references=drawn).values)


def test_a_copy_that_turned_out_wrong_is_not_made_again(monkeypatch: pytest.MonkeyPatch):
    model, tried = ig2.wrap(build()), []

    def fail(*_: object) -> None:
        tried.append(1)
        raise RuntimeError("no copy today")

    monkeypatch.setattr(sessions, "prepare", fail)
    for _ in range(3):
        found = ig2.IntegratedGradients(5)(model, X)
        assert found.settings["preparation"] == {"left as it is": "RuntimeError: no copy today"}
    assert len(tried) == 1


def test_what_a_failed_call_opened_is_not_kept():
    class Moody(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if (x > 5).any():
                raise RuntimeError("too bright")
            return x

    model = ig2.wrap(nn.Sequential(Moody(), build()).eval())
    good = ig2.Gradient()(model, X).values
    with pytest.raises(ModelError, match=r"first explicand.* too bright"):  # as a first call says
        ig2.Gradient()(model, X + 9)
    assert not model.kept.opened
    assert torch.equal(ig2.Gradient()(model, X).values, good)


def test_what_a_call_does_to_its_copy_is_not_kept():
    checkpointed = ig2.wrap(build(), prepare=ig2.Preparation(checkpoint=True))
    for _ in range(2):
        ig2.IntegratedGradients(3)(checkpointed, X)
    assert not checkpointed.kept.opened


def test_a_model_keeps_a_few_and_hands_none_on():
    model = ig2.wrap(build())
    for _ in range(9):
        ig2.Gradient()(model, X, ig2.targets.Apply(lambda scores: scores[:, 0]))
    assert len(model.kept.opened) == MOST_OPENED
    assert not copy.deepcopy(model).kept.opened and not model.exchange().kept.opened


def slow(model: ig2.Model, x: Tensor) -> Tensor:
    """What a model that nobody called before gives."""
    return ig2.IntegratedGradients(3)(model.exchange(), x).values


def scale(net: nn.Module) -> None:
    with torch.no_grad():
        net[0].weight.mul_(1.5)


def scale_data(net: nn.Module) -> None:
    net[0].weight.data.mul_(1.5)  # counts no version


def exchange_data(net: nn.Module) -> None:
    net[0].weight.data = net[0].weight.data * 1.5


def exchange_weight(net: nn.Module) -> None:
    net[0].weight = nn.Parameter(net[0].weight.detach() * 1.5)


def set_statistics(net: nn.Module) -> None:
    net[1].running_mean.data.add_(0.3)


def exchange_layer(net: nn.Module) -> None:
    net[2] = nn.Tanh()


def hook(net: nn.Module) -> None:
    net[2].register_forward_hook(lambda *args: args[-1] * 0.5)


def set_attribute(net: nn.Module) -> None:
    net[3].stride = (1, 1)
    net[6] = nn.Linear(144, 8)


def set_inside(net: nn.Module) -> None:
    net[2].settings["slope"] = 0.5


def set_in_place(net: nn.Module) -> None:
    net[2].factors.data[0] = 0.5


class Leaky(nn.Module):
    """With settings that are no weights."""

    def __init__(self) -> None:
        super().__init__()
        self.settings, self.factors = {"slope": 0.1}, torch.ones(2)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.leaky_relu(x, self.settings["slope"]) * self.factors[0]


@pytest.mark.parametrize(
    "change",
    [
        *(scale, scale_data, exchange_data, exchange_weight, set_statistics, exchange_layer),
        *(hook, set_attribute, set_inside, set_in_place),
    ],
)
def test_whatever_changes_the_network_between_two_calls_is_seen(change: Callable[[nn.Module], None]):
    net = build()
    net[2] = Leaky()
    model, method = ig2.wrap(net), ig2.IntegratedGradients(3)
    before = method(model, X).values
    assert model.kept.opened and torch.equal(method(model, X).values, before)
    change(net)
    after = method(model, X).values
    assert not torch.allclose(after, before, rtol=1e-3) and torch.equal(after, slow(model, X))


def test_train_mode_is_refused_in_a_later_call_too():
    net = nn.Sequential(nn.Flatten(), nn.Linear(128, 3), nn.Dropout()).eval()
    model = ig2.wrap(net)
    ig2.Gradient()(model, X)
    net.train()
    with pytest.raises(ModelError, match="train mode"):
        ig2.Gradient()(model, X)


def test_a_network_that_stores_what_it_saw_is_opened_anew():
    class Storing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.seen = x
            return x

    model = ig2.wrap(nn.Sequential(Storing(), *build()).eval())
    ig2.Gradient()(model, X)
    assert not model.kept.opened


def test_functions_are_explained_as_they_are():
    net = build()
    model = ig2.wrap(lambda x: net(x))
    for x in (X, MORE):
        assert torch.equal(ig2.Gradient()(model, x).values, ig2.Gradient()(lambda x: net(x), x).values)


def test_a_network_that_cannot_be_explained_is_refused_every_time():
    model = ig2.wrap(nn.Sequential(nn.Flatten(), nn.Linear(128, 3), nn.Dropout()).train())
    for _ in range(2):
        with pytest.raises(ModelError, match="train mode"):
            ig2.Gradient()(model, X)


@pytest.mark.parametrize("method", [ig2.Gradient(), ig2.IntegratedGradients(2)], ids=["as it is", "prepared"])
def test_a_model_that_is_dropped_takes_along_what_it_kept(method: ig2.Method):
    """At once: copies of weights that wait for the garbage collector fill the memory of a GPU."""
    gc.collect()
    gc.disable()
    try:
        model = ig2.wrap(build())
        method(model, X)
        kept = weakref.ref(model.kept)
        assert model.kept.opened
        del model
        assert kept() is None
    finally:
        gc.enable()
