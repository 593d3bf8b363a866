"""The network made fast for a call: the same function, the user's own untouched, and no harm where it cannot be done."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2._engine import acceleration
from ig2._engine.acceleration import FasterCopy, is_slow_in_float32, round_to_tf32
from ig2._engine.explicands import Explicands
from ig2._engine.session import Session
from ig2.errors import InputError
from ig2.paths import Converged
from networks import Record, refuses, seeded, uniform

pytestmark = pytest.mark.slow  # all of it together takes half a minute

X = uniform(3, 2, 8, 8).float()
REFERENCES = uniform(4, 2, 8, 8, seed=1).float()


def shaken(net: nn.Module) -> nn.Module:
    """With statistics and scales that are not those of a fresh batch normalisation, which would be as good as none."""
    generator = torch.Generator().manual_seed(3)
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            tensors = {module.running_mean: 0, module.running_var: 1, module.weight: 1, module.bias: 0}
            for tensor, middle in tensors.items():
                if tensor is not None:
                    tensor.data.uniform_(middle - 0.4, middle + 0.4, generator=generator)
    return net


def normalised_cnn() -> nn.Module:
    def build() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(inplace=True),
            nn.Conv2d(6, 6, 3, padding=1, groups=2),
            nn.BatchNorm2d(6, affine=False),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(384, 12),
            nn.BatchNorm1d(12),
            nn.Tanh(),
            nn.Linear(12, 4),
        )

    return shaken(seeded(build, 0).float())


def opened(net: nn.Module, prepare: bool | ig2.Preparation = True, x: Tensor = X, **options: object) -> Session:
    return Session(ig2.wrap(net, prepare=prepare, **options), Explicands.of(x))  # type: ignore[arg-type]


def test_batch_normalisation_goes_into_what_is_in_front_of_it_and_the_scores_stay():
    net = normalised_cnn()
    with opened(net) as session:
        assert session.preparation == {"folded": 3, "channels_last": True}
        kinds = [type(module) for module in session.model.net.modules()]
        assert nn.BatchNorm2d not in kinds and nn.BatchNorm1d not in kinds
        scores = session.scores(X, torch.arange(3))
    with torch.no_grad():
        assert torch.allclose(scores, net(X), atol=1e-5)


@pytest.mark.parametrize(("wish", "arranged"), [("auto", False), (True, True), (False, False)], ids=str)
def test_depthwise_convolutions_stay_contiguous_where_another_layout_is_compiled(monkeypatch, wish, arranged):
    monkeypatch.setattr(acceleration, "COMPILING", {"cpu"})
    channels = X.shape[1]
    whole, apart = (nn.Sequential(nn.Conv2d(channels, 6, 3, groups=groups), nn.Flatten()) for groups in (1, channels))
    for net, expected in ((whole, wish is not False), (apart, arranged)):
        with opened(net, ig2.Preparation(channels_last=wish)) as session:
            assert session.preparation.get("channels_last", False) is expected


def test_another_layout_is_asked_for_by_what_there_is():
    with pytest.raises(InputError, match="True, False or 'auto', got 'last'"):
        ig2.Preparation(channels_last="last")  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", [ig2.rules.left, ig2.rules.shared, ig2.rules.gauss(2), ig2.rules.blended], ids=str)
@pytest.mark.parametrize("method", [ig2.IG2, ig2.GuidedIG, ig2.IntegratedGradients], ids=lambda kind: kind.__name__)
def test_attributions_stay_what_they_were(method: type, rule: ig2.rules.Rule):
    net = normalised_cnn()
    made = method(steps=8, rule=rule)
    fast, plain = (made(ig2.wrap(net, prepare=wish), X, references=REFERENCES[:1]) for wish in (True, False))
    assert fast.settings["preparation"]["folded"] == 3 and plain.settings["preparation"] == {}
    assert torch.allclose(fast.values, plain.values, atol=1e-4 * float(plain.values.abs().max()))
    assert fast.values.is_contiguous()


@pytest.mark.parametrize("method", [ig2.Gradient(), ig2.InputXGradient()], ids=lambda method: type(method).__name__)
def test_one_pass_is_not_worth_a_copy_unless_it_was_asked_for(method: ig2.methods.Method):
    net = normalised_cnn()
    assert method(net, X).settings["preparation"] == {}
    half = method(ig2.wrap(net, prepare=ig2.Preparation(precision="bfloat16")), X)
    assert half.settings["preparation"]["precision"] == "bfloat16"


def test_a_folded_copy_explains_against_the_same_classes():
    net, method = normalised_cnn(), ig2.IG2(steps=10)
    models = (ig2.wrap(net, prepare=prepare) for prepare in (True, False))
    fast, plain = (method(model, X, references=REFERENCES, against="next") for model in models)
    assert fast.settings["preparation"]["folded"] and torch.equal(fast.against, plain.against)
    assert torch.allclose(fast.values, plain.values, atol=1e-5) and torch.allclose(fast.output, plain.output, atol=1e-5)


def test_the_users_network_is_left_as_it_was():
    net = normalised_cnn()
    before, modules = copy.deepcopy(net.state_dict()), list(net.modules())
    ig2.IG2(steps=3)(ig2.wrap(net, prepare=ig2.Preparation(precision="bfloat16")), X, references=REFERENCES)
    assert list(net.modules()) == modules
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert net[0].weight.is_contiguous() and net[0].weight.requires_grad


def test_what_lies_between_the_two_is_not_folded_where_it_is_read():
    net = normalised_cnn()
    for where, folded in (("0", 2), ("1:input", 2), ("1", 3), ("3:input", 3)):
        with opened(net, representation=where) as session, opened(net, prepare=False, representation=where) as plain:
            assert session.preparation["folded"] == folded, where
            rows = torch.arange(3)
            assert torch.allclose(session.representation(X, rows), plain.representation(X, rows), atol=1e-4), where


class TwiceUsed(nn.Module):
    """The convolution's output is also used without its normalisation: folding would change that use."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        made = self.conv(x)
        return self.head((self.norm(made).relu() + made).mean(dim=(2, 3)))


class Shared(nn.Module):
    """One convolution, two normalisations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 2, 3, padding=1), nn.Linear(2, 3)
        self.norms = nn.ModuleList([nn.BatchNorm2d(2), nn.BatchNorm2d(2)])

    def forward(self, x: Tensor) -> Tensor:
        for norm in self.norms:
            x = norm(self.conv(x)).tanh()
        return self.head(x.mean(dim=(2, 3)))


def test_an_output_that_goes_elsewhere_too_is_not_folded():
    net = shaken(seeded(TwiceUsed, 0).float())
    with opened(net) as session:
        assert session.preparation["folded"] == 0
        assert torch.allclose(session.scores(X, torch.arange(3)), net(X), atol=1e-6)


class Clipped(nn.Module):
    """Something is done in place to what the linear map made, before it is normalised."""

    def __init__(self, clip: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.clip, self.first, self.norm, self.last = clip, nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        self.clip(hidden)
        return self.last(self.norm(hidden).relu())


@pytest.mark.parametrize(
    "clip",
    [nn.Hardtanh(-3, 3, inplace=True), nn.ReLU(inplace=True), lambda h: h[:, :4].zero_(), lambda h: h.data.clamp_(-3, 3)],
    ids=["hardtanh", "relu", "view", "data"],
)
def test_nothing_is_folded_across_an_operation_in_place(clip: Callable[[Tensor], object]):
    net, x = shaken(seeded(lambda: Clipped(clip), 0).float()), 20 * (uniform(3, 4).float() - 0.5)
    a = ig2.IG2(steps=4)(net, x, references=-x)
    assert torch.allclose(a.output, net(x).gather(1, a.target[:, None])[:, 0], atol=1e-4)
    assert a.settings["preparation"].get("folded") in (0, None)


class Gated(nn.Module):
    """Where the gate is shut, what was not normalised goes on."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.detached, self.first, self.norm, self.last = detached, nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        if self.detached:
            return self.last(torch.where(hidden.detach() > 1, self.norm(hidden), 0.0))
        return self.last(torch.where(x[:, :1] > 0.9, self.norm(hidden), hidden))


@pytest.mark.parametrize("detached", [True, False])
def test_nothing_is_folded_whose_input_decides_something_else(detached: bool):
    net, x = shaken(seeded(lambda: Gated(detached), 0).float()), uniform(40, 4).float()
    a = ig2.IntegratedGradients(steps=4)(net, x)
    assert torch.allclose(a.output, net(x).gather(1, a.target[:, None])[:, 0], atol=1e-5)
    assert a.settings["preparation"]["folded"] == 0


def test_gradients_of_the_copy_are_those_of_the_network_at_every_size_of_batch():
    # PyTorch's own gradient of instance normalisation is wrong in a batch of one: see `layouts`
    net = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.InstanceNorm2d(8), nn.Conv2d(8, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(196, 3)
        ),
        0,
    ).float()
    x, references = uniform(2, 3, 9, 9).float(), uniform(1, 3, 9, 9, seed=1).float()
    for batch_size in (1, 2):
        for method in (ig2.IG2(6, rule=ig2.rules.left), ig2.IntegratedGradients(6, rule=ig2.rules.left)):
            fast, plain = (
                method(ig2.wrap(net, prepare=wish), x, references=references, batch_size=batch_size) for wish in (True, False)
            )
            assert torch.allclose(fast.values, plain.values, atol=1e-3 * float(plain.values.abs().max()))


def spoil(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[nn.Module, Tensor], Tensor]) -> None:
    """Let copies be another function than the network: what is wrong, of the copy and its input."""

    class Other(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor) -> Tensor:
            return wrong(self.net, x)

    def prepare(model: ig2.Model, *args: object) -> FasterCopy:
        with torch.no_grad():
            scores = model.net(args[1].data[:1])  # type: ignore[attr-defined]
        return FasterCopy(replace(model, net=Other(model.net)), {}, {"spoilt": True}, scores)

    monkeypatch.setattr("ig2._engine.session.prepare", prepare)


WRONG = {
    "scores": lambda net, x: net(x) * 1.1,
    "gradients": lambda net, x: net(x + (x.detach() - x) * 2),
    "gradients that overflow": lambda net, x: net(x) + 0 * (x - x.detach()).abs().sqrt().sum(dim=1, keepdim=True),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_copy_that_is_another_function_is_not_used(wrong: str, monkeypatch: pytest.MonkeyPatch):
    net, x = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), 0), uniform(9, 6) * 0.8
    methods = ig2.IG2(8), ig2.IntegratedGradients(8), ig2.PathMethod(ig2.paths.Straight(2), rule=ig2.rules.secant)
    expected = [method(net, x, references=1 - x[:2]) for method in methods]
    spoil(monkeypatch, WRONG[wrong])
    for method, right in zip(methods, expected, strict=True):
        found = method(net, x, references=1 - x[:2])
        assert torch.equal(found.values, right.values)
        assert found.settings["preparation"] == {"left as it is": f"the copy gave other {wrong.split()[0]}"}


class Waves(nn.Module):
    """Steep and low: the last digit of what it gets turns its slope about, and leaves what it returns as it is."""

    def __init__(self, steepness: float) -> None:
        super().__init__()
        self.steepness = steepness

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.steepness * x).sin() / self.steepness


class Counted(nn.Module):
    """Notes how many points it gets."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.sizes = net, Record()

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        return self.net(x)


def rough() -> Counted:
    build = lambda: nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), Waves(1e7), nn.Tanh(), nn.Linear(16, 3))  # noqa: E731
    return Counted(shaken(seeded(build, 0).float()))


@pytest.mark.parametrize("method", [ig2.IG2(20, 0.05), ig2.ExpectedIG(20)], ids=lambda method: type(method).__name__)
def test_the_copy_of_a_rough_network_is_used_and_no_work_is_paid_for_twice(method: ig2.Method):
    """Rounding alone turns its gradients about; the copy is found right before any work is done with it."""
    net, x, references, points = rough(), uniform(3, 6).float(), uniform(4, 6, seed=1).float(), []
    for prepare in (False, True):
        net.sizes.clear()
        found = method(ig2.wrap(net, prepare=prepare), x, 0, references)
        points.append(sum(net.sizes))
    assert found.settings["preparation"]["folded"] == 1 and "left as it is" not in found.settings["preparation"]
    assert points[1] <= points[0] + 12  # what follows what is seen in one pass, and that it is rough in a few


class Gate(nn.Module):
    """Goes another way where its input is dark, in which nothing is normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        return self.last(self.norm(hidden) if float(x.detach().sum()) > 0.5 else hidden)


def test_another_way_through_a_folded_network_is_refused():
    net, x = shaken(seeded(Gate, 0).float()), 1 + uniform(3, 4).float()
    plain = ig2.IntegratedGradients(4)(ig2.wrap(net, prepare=False), x, batch_size=1)
    assert torch.allclose(plain.baseline_outputs[:, 0], net(torch.zeros(1, 4))[0, plain.target], atol=1e-6)
    with pytest.raises(ig2.ModelError, match="prepare=False"):
        ig2.IntegratedGradients(4)(net, x, batch_size=1)


def test_a_layer_that_runs_twice_is_not_folded():
    with opened(shaken(seeded(Shared, 0).float())) as session:
        assert session.preparation["folded"] == 0


class Uncopied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.said = normalised_cnn(), ""

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)

    def __deepcopy__(self, memory: object) -> Uncopied:
        raise RuntimeError(self.said)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("there is only one of me", "RuntimeError: there is only one of me"),
        ("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes.", "no memory for a copy"),
    ],
)
def test_a_network_that_cannot_be_copied_runs_as_it_is_and_says_so(said: str, told: str):
    net = Uncopied().eval()
    net.said = said
    found = ig2.IG2(steps=3)(net, X, references=REFERENCES)
    assert found.settings["preparation"] == {"left as it is": told}
    assert torch.equal(found.values, ig2.IG2(steps=3)(ig2.wrap(net, prepare=False), X, references=REFERENCES).values)


@pytest.mark.parametrize(
    "net",
    [
        seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), 0),
        lambda x: x.square() @ torch.ones(6, 2, dtype=torch.float64),
    ],
    ids=["nothing to gain", "a function"],
)
def test_what_cannot_gain_is_not_copied(net: nn.Module):
    with opened(net, x=uniform(2, 6)) as session:
        assert session.preparation == {}


def test_normalisation_in_train_mode_is_refused_before_anything_is_prepared():
    refuses(ig2.ModelError, r"net\.eval\(\)", lambda: ig2.Gradient()(normalised_cnn().train(), X))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_is_the_networks_alone(precision: ig2.model.Precision):
    net = normalised_cnn()
    model = ig2.wrap(net, prepare=ig2.Preparation(precision=precision))
    found, plain = (ig2.IG2(steps=8)(m, X, references=REFERENCES) for m in (model, net))
    assert found.settings["preparation"]["precision"] == precision
    assert found.values.dtype == found.gradcf.dtype == torch.float32
    cosine = nn.functional.cosine_similarity(found.values.flatten(1), plain.values.flatten(1))
    assert (cosine > 0.95).all() and not torch.equal(found.values, plain.values)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_network_in_double_precision_may_run_in_a_lower_one(precision: ig2.model.Precision):
    net = normalised_cnn().double()
    model = ig2.wrap(net, prepare=ig2.Preparation(precision=precision))
    x, references = X.double(), REFERENCES.double()
    lower, plain = (ig2.IG2(steps=8)(m, x, references=references) for m in (model, net))
    assert lower.settings["preparation"]["precision"] == precision
    assert lower.values.dtype == torch.float64 and not torch.equal(lower.values, plain.values)
    cosine = nn.functional.cosine_similarity(lower.values.flatten(1), plain.values.flatten(1))
    assert (1 - cosine < (1e-6 if precision == "float32" else 0.05)).all()


def test_an_unknown_precision_is_refused():
    with pytest.raises(ig2.InputError, match=r"'tf32', 'bfloat16', 'float16' or None, got 'int8'"):
        ig2.Preparation(precision="int8")  # type: ignore[arg-type]
    with pytest.raises(ig2.InputError, match=r"prepare must be True, False or an ig2\.Preparation, got 'fast'"):
        ig2.wrap(normalised_cnn(), prepare="fast")  # type: ignore[arg-type]


# -- recorded steps ----------------------------------------------------------------------------------------------------


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps traced but run by the interpreter, for a compiler takes half a minute; the sizes that were traced."""
    sizes: list[int] = []

    def compile(graph: torch.fx.GraphModule, **options: object) -> torch.fx.GraphModule:
        sizes.append(graph.graph.find_nodes(op="placeholder")[0].meta["val"].shape[0])
        return graph

    monkeypatch.setattr(torch, "compile", compile)
    return sizes


COMPILED = ig2.Preparation(compile=True)


def test_a_compiled_step_gives_what_the_step_gives(compiler: list[int]):
    net = normalised_cnn()
    model = ig2.wrap(net, prepare=COMPILED)
    plain = ig2.IG2(steps=20)(net, X, references=REFERENCES)
    found = ig2.IG2(steps=20)(model, X, references=REFERENCES, batch_size=12)
    assert found.settings["preparation"]["compiled"] is True and compiler == [12]
    assert torch.allclose(found.values, plain.values, atol=1e-5)


def test_compiled_code_is_kept_for_the_next_call_and_reads_the_weights_of_then(compiler: list[int]):
    net = normalised_cnn()
    model, method = ig2.wrap(net, prepare=COMPILED), ig2.IG2(steps=12)
    one = method(model, X, references=REFERENCES)
    two = method(model, X, references=REFERENCES)
    assert len(compiler) == 1 and torch.allclose(one.values, two.values, atol=1e-6)
    with torch.no_grad():
        net[0].weight *= 1.5
        net[1].running_mean += 0.3
    three = method(model, X, references=REFERENCES)
    assert len(compiler) == 1
    assert torch.allclose(three.values, method(net, X, references=REFERENCES).values, atol=1e-5)
    assert not torch.allclose(three.values, one.values, atol=1e-3)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"target": 0, "against": 1}, {"target": 0, "against": 2}),
        ({"target": ig2.targets.Magnitude()}, {"target": ig2.targets.Sum()}),
    ],
    ids=["against other classes", "for another target"],
)
def test_compiled_code_is_not_used_to_explain_something_else(compiler: list[int], one: dict[str, Any], other: dict[str, Any]):
    net = normalised_cnn().double()
    x, references, method = X.double()[:1], REFERENCES.double()[:1], ig2.IG2(steps=20)
    model, plain = ig2.wrap(net, prepare=COMPILED), ig2.wrap(net, prepare=False)
    for asked, compiled in ((one, 1), (other, 2), (one, 2)):
        found = method(model, x, references=references, **asked)
        assert found.settings["preparation"]["compiled"] is True and len(compiler) == compiled
        assert torch.allclose(found.values, method(plain, x, references=references, **asked).values, rtol=1e-6, atol=1e-9)


def test_batches_that_nearly_fill_a_compiled_one_use_it(compiler: list[int]):
    net = normalised_cnn()
    model = ig2.wrap(net, prepare=COMPILED)
    x, references = uniform(5, 2, 8, 8, seed=5).float(), REFERENCES
    method = ig2.IG2(steps=40, stop=Converged(0.02, window=9))
    found = method(model, x, references=references, batch_size=20)
    assert int(found.steps_taken.min()) < int(found.steps_taken.max()), "the batch never shrank"
    plain = method(net, x, references=references, batch_size=20)
    assert torch.equal(found.steps_taken, plain.steps_taken)
    assert torch.allclose(found.values, plain.values, atol=1e-5)
    assert 20 in compiler and all(size <= 20 for size in compiler)


class Branching(nn.Module):
    """Looks at its numbers to decide what to do: what was traced would be wrong for others."""

    def __init__(self) -> None:
        super().__init__()
        self.net = normalised_cnn()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) if float(x.detach().sum()) > 0 else self.net(2 * x)


def test_a_network_that_cannot_be_compiled_runs_as_it_is_and_says_so(compiler: list[int]):
    net = Branching().eval()
    found = ig2.IG2(steps=12)(ig2.wrap(net, prepare=COMPILED), X, references=REFERENCES)
    assert found.settings["preparation"]["compiled"].startswith("no: ") and not compiler
    assert torch.allclose(found.values, ig2.IG2(steps=12)(net, X, references=REFERENCES).values, atol=1e-6)


def test_compiled_code_that_gives_other_values_is_not_used(monkeypatch: pytest.MonkeyPatch):
    def wrong(graph: torch.fx.GraphModule, **options: object) -> object:
        return lambda *args: [2 * tensor for tensor in graph(*args)]

    monkeypatch.setattr(torch, "compile", wrong)
    net = normalised_cnn()
    found = ig2.IG2(steps=12)(ig2.wrap(net, prepare=COMPILED), X, references=REFERENCES)
    assert found.settings["preparation"]["compiled"] == "no: it gave other values"
    assert torch.allclose(found.values, ig2.IG2(steps=12)(net, X, references=REFERENCES).values, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_replayed_kernels_give_what_the_step_gives():
    net = normalised_cnn().cuda()
    found = ig2.IG2(steps=20)(net, X, references=REFERENCES)
    assert found.settings["preparation"]["replayed"] is True
    plain = ig2.IG2(steps=20)(ig2.wrap(net, prepare=ig2.Preparation(graphs=False)), X, references=REFERENCES)
    assert torch.allclose(found.values, plain.values, atol=1e-5)


# -- inputs that are written into --------------------------------------------------------------------------------------


class Moody(nn.Module):
    """Writes into its input once it was told to."""

    def __init__(self) -> None:
        super().__init__()
        self.orders, self.head = Record(), nn.Linear(6, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.mul_(1.0) if self.orders else x)


def test_a_network_that_writes_into_its_input_gets_a_copy():
    net = seeded(lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3)), 0)
    x, plain = uniform(2, 6) - 0.5, nn.Sequential(nn.ReLU(), net[1])
    kept = x.clone()
    with opened(net, x=x) as session:
        session.scores(x, torch.arange(2))
    assert torch.equal(x, kept)
    assert torch.equal(*(ig2.IntegratedGradients(5)(n, x, references=uniform(2, 6, seed=2)).values for n in (net, plain)))


def test_a_network_that_begins_to_write_later_is_found_out():
    net, points = Moody().eval(), uniform(2, 6)
    with opened(net, x=points) as session:
        session.scores(points, torch.arange(2))
        net.orders.append("write")
        refuses(ig2.ModelError, "did not at first", lambda: session.scores(points, torch.arange(2)))


class Viewed(nn.Module):
    """Runs in the channels-last layout, and its gradient does not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(256, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(Backwards.apply(self.conv(x)).flatten(1))


class Backwards(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.turned = not x.is_contiguous()
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        if ctx.turned:
            raise RuntimeError("view size is not compatible with input tensor's size and stride")
        return gradient


def test_a_copy_that_runs_and_has_no_gradient_is_not_used():
    net = seeded(Viewed, 0).float()
    fast, plain = (ig2.IG2(4)(ig2.wrap(net, prepare=wish), X, references=REFERENCES) for wish in (True, False))
    assert torch.allclose(fast.values, plain.values)
    assert "view size" in fast.settings["preparation"]["left as it is"]


def test_representation_of_a_network_that_squeezes_its_output():
    net = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 3)), 0).float()
    model = ig2.wrap(lambda x: net(x).squeeze(), representation="output")
    alone = ig2.IG2(4)(model, X[:1], references=REFERENCES).values
    assert torch.allclose(alone, ig2.IG2(4)(ig2.wrap(net, representation="output"), X[:1], references=REFERENCES).values)


@pytest.mark.parametrize(("norm", "arranged"), [(nn.GroupNorm(2, 4), False), (nn.InstanceNorm2d(4), True)], ids=str)
def test_a_norm_that_loses_digits_in_another_layout_keeps_its_own(norm: nn.Module, arranged: bool):
    """PyTorch's gradient of GroupNorm in that layout is off by 43 % where the noise is a thousandth of the mean."""
    net = seeded(lambda: nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(32, 3)), 0).float()
    assert ("channels_last" in ig2.IG2(3)(net, X, references=REFERENCES).settings["preparation"]) is arranged


# -- float32 on a GPU --------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """A GPU as far as questions about it go, and rounding as PyTorch ships."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    before = torch.get_float32_matmul_precision()
    yield torch.device("cuda")
    torch.set_float32_matmul_precision(before)


def test_full_float32_is_told_where_a_large_network_of_matrices_loses_by_it(gpu: torch.device, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ig2._engine.acceleration.LARGE", 1000)
    large, small = (ig2.wrap(nn.Sequential(nn.Linear(40, width), nn.Tanh(), nn.Linear(width, 2))) for width in (40, 4))
    assert is_slow_in_float32(large, gpu)
    assert not is_slow_in_float32(large, torch.device("cpu")) and not is_slow_in_float32(small, gpu)
    assert not is_slow_in_float32(ig2.wrap(nn.Sequential(nn.Linear(40, 40)).double()), gpu)
    assert not is_slow_in_float32(ig2.wrap(nn.Sequential(nn.Embedding(40, 40), nn.Linear(40, 2))), gpu)
    assert not is_slow_in_float32(ig2.wrap(nn.Sequential(*(nn.Conv2d(2, 2, 1) for _ in range(3)), nn.Linear(40, 40))), gpu)
    torch.set_float32_matmul_precision("high")
    assert not is_slow_in_float32(large, gpu)


@dataclass
class Clock:
    """A clock that passes move on by what they take in a precision, in seconds; it notes each, and its points."""

    seconds: dict[torch.dtype, float]
    now: float = 0.0
    passes: list[tuple[torch.dtype, int]] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def __deepcopy__(self, memo: object) -> Clock:
        return self  # that of copies of the network, too


class Clocked(nn.Module):
    """A block of a small ViT that takes as long as the clock says."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.block, self.last = nn.TransformerEncoderLayer(6, 2, 12, 0.0, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.clock.passes.append((x.dtype, len(x)))
        if x.dtype not in self.clock.seconds:
            raise NotImplementedError(f"no kernel for {x.dtype}")
        self.clock.now += self.clock.seconds[x.dtype]
        return self.last(self.block(x)).mean(1)


def clocked(monkeypatch: pytest.MonkeyPatch, seconds: dict[torch.dtype, float]) -> Clocked:
    clock = Clock(seconds)
    monkeypatch.setattr("ig2._engine.session.is_slow_in_float32", lambda model, device: True)
    monkeypatch.setattr("time.perf_counter", clock)
    return seeded(lambda: Clocked(clock), 0).float().eval()


TOKENS = uniform(3, 5, 6).float()


def test_another_precision_is_offered_with_the_gain_that_was_measured(monkeypatch: pytest.MonkeyPatch):
    net = clocked(monkeypatch, {torch.float32: 0.25, torch.bfloat16: 0.03})
    method = ig2.IntegratedGradients(3)
    measured = r"16 points takes 250 ms in float32, 250 ms in tf32, 30 ms in bfloat16\. .*precision='bfloat16'"
    with pytest.warns(ig2.IG2Warning, match=measured):
        first = method(net, TOKENS, 0)
    assert (torch.bfloat16, 16) in net.clock.passes and next(net.parameters()).dtype == torch.float32
    net.clock.passes.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(method(net, TOKENS, 0).values, first.values)
        assert all(dtype == torch.float32 for dtype, _ in net.clock.passes), "it was measured again"


@pytest.mark.parametrize(
    "seconds",
    [{torch.float32: 0.25, torch.bfloat16: 0.2}, {torch.float32: 0.2, torch.bfloat16: 0.25}, {torch.float32: 0.25}],
    ids=["hardly faster", "slower", "not available"],
)
def test_no_precision_is_offered_that_gains_little(seconds: dict[torch.dtype, float], monkeypatch: pytest.MonkeyPatch):
    net = clocked(monkeypatch, seconds)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ig2.IntegratedGradients(3)(net, TOKENS, 0)
    assert (torch.bfloat16, 16) in net.clock.passes


def test_the_offer_is_for_those_who_did_not_choose(monkeypatch: pytest.MonkeyPatch):
    for precision in ("float32", "tf32", "bfloat16", None):
        net = clocked(monkeypatch, {torch.float32: 0.25, torch.bfloat16: 0.03})
        prepare = precision is not None and ig2.Preparation(precision=precision)
        model = ig2.wrap(net, prepare=prepare)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            attribution = ig2.IntegratedGradients(3)(model, TOKENS, 0)
        assert precision == "bfloat16" or all(dtype == torch.float32 for dtype, _ in net.clock.passes)
        if precision == "tf32":
            assert "NVIDIA" in attribution.settings["preparation"]["tf32"]


def test_rounding_to_tf32_ends_with_the_call(gpu: torch.device):
    report: dict[str, Any] = {}
    torch.set_float32_matmul_precision("highest")
    with round_to_tf32(gpu, report):
        assert torch.get_float32_matmul_precision() == "high" and report == {"tf32": True}
    assert torch.get_float32_matmul_precision() == "highest"


class Block(nn.Module):
    """Several layers, and a way around them."""

    def __init__(self, writes: bool = False) -> None:
        super().__init__()
        self.first, self.norm, self.second, self.writes = (
            nn.Conv2d(6, 6, 3, 1, 1),
            nn.BatchNorm2d(6),
            nn.Conv2d(6, 6, 1),
            writes,
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x.relu_() if self.writes else x
        return x + self.second(self.norm(self.first(x)).sigmoid())


def blocks(*kinds: bool) -> nn.Module:
    def build() -> nn.Module:
        body = nn.Sequential(*map(Block, kinds))
        return nn.Sequential(nn.Conv2d(2, 6, 3), body, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 4))

    return shaken(seeded(build, 0))


CHECKPOINT = ig2.Preparation(checkpoint=True)


@pytest.mark.parametrize(
    "method",
    [ig2.Gradient(), ig2.IntegratedGradients(5), ig2.IG2(5), ig2.GradCAM(), ig2.KernelSHAP(ig2.Grid(2, 2))],
    ids=lambda method: type(method).__name__,
)
def test_blocks_that_run_twice_give_the_same_values(method: ig2.Method):
    net, references = blocks(False, False, False), REFERENCES if isinstance(method, ig2.PathMethod) else None
    kinds = [type(module) for module in net.modules()]
    one, two = (method(ig2.wrap(net.double(), prepare=p), X.double(), 1, references) for p in (False, CHECKPOINT))
    assert torch.allclose(one.values, two.values, atol=1e-14)
    assert (two.settings["preparation"].get("checkpointed") == 3) is not isinstance(method, ig2.KernelSHAP)
    assert kinds == [type(module) for module in net.modules()]  # the user's own


def test_blocks_run_again_in_the_backward_pass_and_keep_less():
    net, runs, memory = blocks(*[False] * 6), list[int](), list[int]()
    net[1][0].first.register_forward_hook(lambda *_: runs.append(1))  # type: ignore[index,union-attr]
    for checkpoint in (False, True):
        wish = ig2.Preparation(fold=False, channels_last=False, checkpoint=checkpoint)
        with opened(net, wish, x=X.double()) as session:
            runs.clear()
            points = X.double().requires_grad_()
            rows = torch.arange(3)
            session.differentiate(session.scores_with_graph(points, rows), points, rows)
            assert len(runs) == 1 + checkpoint
            memory.append(session.bytes_per_point)
    assert memory[1] < 0.7 * memory[0]


def test_a_block_that_writes_into_its_input_runs_once():
    net = blocks(False, True, False)
    one, two = (ig2.IG2(5)(ig2.wrap(net, prepare=p), X.double(), 1, REFERENCES) for p in (False, CHECKPOINT))
    assert torch.allclose(one.values, two.values, atol=1e-14)


def test_a_layer_is_explained_without_checkpoints():
    net = blocks(False, False, False)
    one, two = (ig2.IG2(5)(ig2.wrap(net, prepare=p), X.double(), 1, REFERENCES, at="1.1.norm") for p in (False, CHECKPOINT))
    assert torch.allclose(one.values, two.values, atol=1e-14)


def test_what_has_no_blocks_says_so():
    flat = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 3)), 0)
    for net in (flat, lambda x: flat(x)):
        a = ig2.Gradient()(ig2.wrap(net, prepare=CHECKPOINT), X.double(), 1)
        assert a.settings["preparation"]["checkpointed"].startswith("no")
