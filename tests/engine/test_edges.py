"""The network is left exactly as it was, whatever happens; what cannot be explained is refused; nothing becomes NaN."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ig2
from ig2._engine.inspection import RandomState
from ig2.errors import InputError, ModelError
from networks import made, refuses, uniform
from networks import small_mlp as mlp

X, REFERENCES = uniform(3, 4, seed=1), uniform(2, 4, seed=2)
IMAGES = uniform(2, 1, 6, 6, seed=3)
METHODS = {
    "IntegratedGradients": ig2.IntegratedGradients(6),
    "IG trapezoid": ig2.IntegratedGradients(6, rule=ig2.rules.trapezoid),
    "ExpectedIG": ig2.ExpectedIG(4),
    "GuidedIG": ig2.GuidedIG(steps=5, max_dist=0.1),
    "IG2": ig2.IG2(steps=5, step_size=0.1),
    "IG2 sparse cosine": ig2.IG2(steps=5, norm=ig2.paths.SparseL1(50), distance=ig2.paths.cosine),
    "IG2 shared": ig2.IG2(steps=5, rule=ig2.rules.shared),
    "IG2 direct": ig2.IG2(steps=5, rule=ig2.rules.direct),
    "IG2 tempered": ig2.IG2(steps=5, rule=ig2.rules.tempered),
    "IG2 scaled": ig2.IG2(steps=5, rule=ig2.rules.scaled(ig2.rules.left)),
    "GradCFE": ig2.GradCFE(steps=5),
    "to GradCF": ig2.PathMethod(
        ig2.paths.Straight(5), ig2.references.GradCF(REFERENCES, ig2.paths.GradPath(3)), ig2.rules.trapezoid
    ),
}


# -- left exactly as it was --------------------------------------------------------------------------------------------


class Everything(nn.Module):
    """Batch norm, frozen and trained parameters, gradients from a training step, a user's own hooks, caches."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("counter", torch.zeros(1))
        self.register_buffer("cache", None)
        self.norm.running_mean += 0.3

    def forward(self, x: Tensor) -> Tensor:
        self.counter += 1
        self.cache = x.detach().mean(0)
        return self.last(self.drop(torch.relu_(self.norm(self.first(x)))))


def everything() -> Any:
    network = made(Everything)
    network.first.weight.requires_grad_(False)
    network.last.weight.grad = torch.full_like(network.last.weight, 7.0)
    network.norm.weight.grad = torch.zeros_like(network.norm.weight)
    network.drop.train()
    network.drop.p = 0.0  # a train flag that does no harm must be kept too
    network.first.register_forward_hook(lambda *_: None)
    network.last.register_forward_pre_hook(lambda *_: None)
    return network


def hooks(network: nn.Module) -> list[int]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_forward_hooks_with_kwargs")
    kinds += ("_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called")
    return [len(getattr(module, kind)) for module in network.modules() for kind in kinds]


@contextlib.contextmanager
def untouched(network: nn.Module) -> Iterator[None]:
    """Everything about the network and the process is afterwards as it was before."""

    def state() -> dict[str, Any]:
        parameters = dict(network.named_parameters())
        return {
            "training": [module.training for module in network.modules()],
            "requires_grad": {name: p.requires_grad for name, p in parameters.items()},
            "grad": {name: None if p.grad is None else p.grad.clone() for name, p in parameters.items()},
            "identity": {name: id(p) for name, p in parameters.items()},
            "buffers": {name: (id(b), None if b is None else b.clone()) for name, b in every_buffer(network).items()},
            "weights": {name: value.clone() for name, value in network.state_dict().items()},
            "hooks": hooks(network),
            "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.backends.mha.get_fastpath_enabled()),
            "random": (torch.get_rng_state(), str(np.random.get_state(legacy=False)), random.getstate()),  # noqa: NPY002
        }

    before = state()
    yield
    assert_same(before, state())


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    state = RandomState(torch.device("cpu"))
    try:
        yield
    finally:
        state.restore()


def every_buffer(network: nn.Module) -> dict[str, Tensor | None]:
    return {f"{name}.{key}": b for name, module in network.named_modules() for key, b in module._buffers.items()}


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif isinstance(one, Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize(
    "harm",
    [
        lambda n: n.train(),
        lambda n: n.last.bias.requires_grad_(False),
        lambda n: n.last.weight.grad.mul_(2),
        lambda n: setattr(n.last.bias, "grad", torch.zeros(3, dtype=torch.float64)),
        lambda n: n.norm.running_mean.add_(1),
        lambda n: n.register_forward_hook(lambda *_: None),
        lambda n: setattr(n, "counter", n.counter.clone()),
        lambda n: setattr(n, "cache", torch.ones(1)),
        lambda n: torch.rand(1),
        lambda n: np.random.rand(),  # noqa: NPY002
        lambda n: random.random(),
    ],
)
def test_the_check_that_nothing_changed_can_fail(harm: Callable[[Any], Any]):
    with random_state_kept(), pytest.raises(AssertionError), untouched(network := everything()):
        harm(network)


CONTEXTS = {
    "plainly": contextlib.nullcontext,
    "in no_grad": torch.no_grad,
    "in inference_mode": torch.inference_mode,
    "in enable_grad": torch.enable_grad,
}


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", METHODS)
def test_a_call_leaves_the_network_as_it_was(name: str, context: str):
    network = everything()
    expected = METHODS[name](network, X, references=REFERENCES)
    with CONTEXTS[context](), untouched(network):
        result = METHODS[name](network, X, references=REFERENCES)
    assert torch.equal(result.values, expected.values)
    assert not result.values.is_inference() and not result.values.requires_grad


def test_tensors_made_in_inference_mode_can_be_explained():
    network = everything()
    expected = METHODS["IG2"](network, X, references=REFERENCES, target=[0, 1, 2])
    with torch.inference_mode():
        x, references, target = X + 0, REFERENCES + 0, torch.tensor([0, 1, 2])
        bounds = torch.zeros(4) - 9, torch.zeros(4) + 9
        mask = torch.ones(3, 4)
    assert x.is_inference() and mask.is_inference()
    with untouched(network):
        result = METHODS["IG2"](ig2.wrap(network, bounds=bounds), x, references=references, target=target)
    assert torch.equal(result.values, expected.values)
    masked = METHODS["IG2"](lambda a, m: network(a * m), (x, ig2.Fixed(mask)), references=(references,), target=target)
    assert torch.allclose(masked.values[0], expected.values, rtol=1e-9)  # a function cannot be prepared, a network can


class Failing(nn.Module):
    """Raises in its forward pass after a while, or at once."""

    def __init__(self, network: nn.Module, passes: int, error: BaseException) -> None:
        super().__init__()
        self.network, self.passes, self.error = network, passes, error

    def forward(self, x: Tensor) -> Tensor:
        scores = self.network(x)
        self.passes -= 1
        if self.passes < 0:
            raise self.error
        return scores


@pytest.mark.parametrize("error", [LookupError("mine"), KeyboardInterrupt()])
@pytest.mark.parametrize("passes", range(9))
def test_an_exception_in_the_forward_pass_leaves_the_network_as_it_was(passes: int, error: BaseException):
    network = Failing(everything(), passes, error)
    # in the first pass, and in the first of two samples, the library says what that may mean
    translated = passes in (0, 2) and isinstance(error, Exception)
    with untouched(network), pytest.raises(ModelError if translated else type(error)):
        ig2.IG2(steps=9)(network, X, references=REFERENCES)


@pytest.mark.parametrize("context", CONTEXTS)
def test_ctrl_c_in_the_middle_leaves_the_network_as_it_was(context: str):
    network, calls = everything(), []

    def stop(done: int, total: int) -> None:
        calls.append((done, total))
        if done >= total // 2:
            raise KeyboardInterrupt

    with CONTEXTS[context](), untouched(network):
        with pytest.raises(KeyboardInterrupt):
            ig2.IG2(steps=10)(network, X, references=REFERENCES, progress=stop)
        assert len(calls) == 5  # it stopped there, and was not called again on the way out
    ig2.IG2(steps=3)(network, X, references=REFERENCES)


def test_a_refused_network_is_left_as_it_was():
    network = everything()
    network.drop.p = 0.5
    with untouched(network), pytest.raises(ModelError, match="train mode"):
        ig2.IG2()(network, X, references=REFERENCES)
    network.drop.eval()
    with untouched(network), pytest.raises(ModelError, match="fails on the first explicand"):
        ig2.IG2()(network, uniform(2, 5), references=uniform(2, 5))
    random_network = made(lambda: Sometimes(0.5))
    with untouched(random_network), pytest.raises(ModelError, match="draws random numbers"):
        ig2.IG2()(random_network, X, references=REFERENCES)


# -- random state ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*METHODS, "BlurIG", "noise"])
def test_results_depend_on_the_seed_of_the_call_alone(name: str):
    images = name == "BlurIG"
    network = made(lambda: nn.Sequential(nn.Flatten(), nn.Linear(36 if images else 4, 6), nn.Tanh(), nn.Linear(6, 3)))
    x = IMAGES if images else X
    noise = ig2.references.UniformNoise(2, 0, 1)
    method = {**METHODS, "BlurIG": ig2.BlurIG(4, sigma=2), "noise": ig2.IG2(steps=3)}[name]
    references = noise if name == "noise" else None if images else REFERENCES
    results = []
    for seed in (1, 2):
        with random_state_kept():
            torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)  # noqa: NPY002
            with untouched(network):
                results.append(method(network, x, references=references, seed=3).values)
    assert torch.equal(*results)
    if name == "noise":
        assert not torch.equal(results[0], method(network, x, references=noise, seed=4).values)


# -- networks that cannot be explained ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (lambda: nn.Dropout(0.5), "Dropout"),
        (lambda: nn.AlphaDropout(0.5), "AlphaDropout"),
        (lambda: nn.BatchNorm1d(6), "BatchNorm1d"),
        (lambda: nn.BatchNorm1d(6, track_running_stats=False), "BatchNorm1d"),
        (lambda: nn.RReLU(), "RReLU"),
        (lambda: nn.MultiheadAttention(6, 2, dropout=0.5), "MultiheadAttention"),
        (lambda: nn.GRU(6, 6, 2, dropout=0.5), "GRU"),
        (lambda: nn.InstanceNorm1d(6, track_running_stats=True), "InstanceNorm1d"),
    ],
)
def test_layers_that_behave_differently_in_train_mode_are_refused_there(layer: Callable[[], nn.Module], kind: str):
    network = made(lambda: nn.Sequential(nn.Linear(4, 6), layer(), nn.Linear(6, 3))).train()
    with untouched(network), pytest.raises(ModelError, match=rf"train mode: 1 \({kind}\) .* Call net\.eval\(\) first"):
        ig2.IntegratedGradients()(network, X)


@pytest.mark.parametrize("old", [False, True])
def test_layers_that_write_their_buffers_in_train_mode_are_refused_there(old: bool):
    norm = nn.utils.spectral_norm if old else nn.utils.parametrizations.spectral_norm
    network = made(lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), norm(nn.Linear(6, 3))))
    ig2.IG2(steps=2)(network, X, references=REFERENCES)
    network.train()
    with untouched(network), pytest.raises(ModelError, match=r"train mode, where a pass changes its 2.*_u"):
        ig2.IntegratedGradients()(network, X)


def test_train_mode_is_fine_where_it_changes_nothing():
    network = made(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GroupNorm(2, 6), nn.Dropout(0.0), nn.Tanh(), nn.Linear(6, 3))
    )
    expected = ig2.IG2(steps=4)(network, X, references=REFERENCES).values
    with untouched(network.train()):
        assert torch.equal(ig2.IG2(steps=4)(network, X, references=REFERENCES).values, expected)


class Sometimes(nn.Module):
    """Dropout that stays on, beside a large constant: its noise is a thousandth of the score."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.first, self.last, self.p = nn.Linear(4, 6), nn.Linear(6, 3), p

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.dropout(torch.tanh(self.first(x)), self.p, training=True)) + 1000


def test_a_network_that_draws_random_numbers_is_refused_however_small_their_effect():
    network = made(lambda: Sometimes(0.5))
    for batch_size in ("auto", 1):
        with pytest.raises(ModelError, match=r"two passes of the same sample gave different scores.*Call net\.eval\(\)"):
            ig2.IntegratedGradients()(network, X, batch_size=batch_size)
    ig2.IntegratedGradients()(made(lambda: Sometimes(0.0)), X)


def test_randomness_from_elsewhere_is_seen_by_its_effect():
    generator = np.random.default_rng(0)
    for batch_size in ("auto", 1):
        with pytest.raises(ModelError, match="two equal calls"):
            ig2.IntegratedGradients()(lambda x: x.sum(1) * generator.normal(), X, batch_size=batch_size)


def test_a_network_that_draws_numbers_without_using_them_is_fine():
    ig2.IntegratedGradients()(lambda x: x.sum(1) + 0 * torch.rand(1), X)


class Standardised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        return self.last(torch.tanh((hidden - hidden.mean(0)) / (hidden.std(0, correction=0) + 0.1)))


@pytest.mark.parametrize("size", [1e-7, 1.0, 1e4])
def test_what_is_not_one_function_is_refused_however_small_or_large_its_scores(size: float):
    generator, mixes = np.random.default_rng(0), made(Standardised)
    for network, said in (
        (lambda x: size * x.sum(1) * generator.normal(), "two equal calls"),
        (lambda x: size * mixes(x), "samples of a batch mix"),
    ):
        refuses(ModelError, said, lambda network=network: ig2.IntegratedGradients()(network, X))


@pytest.mark.parametrize("rows", [1, 3])
def test_a_network_that_mixes_its_samples_is_refused(rows: int):
    # beside a copy of itself a sample keeps its statistics: the check needs another sample, and makes one if there is none
    images = uniform(rows, 2, 5, 5)
    batch_norm = made(
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, track_running_stats=False), nn.Tanh(), nn.Flatten(), nn.Linear(27, 3)
        )
    )
    for network, x in ((made(Standardised), X[:rows]), (batch_norm, images)):
        with pytest.raises(ModelError, match=r"samples of a batch mix .* Use batch_size=1"):
            ig2.IntegratedGradients()(network, x)
    alone = ig2.IntegratedGradients(4)(batch_norm, images, batch_size=1)
    assert torch.equal(alone.output, torch.cat([batch_norm(image[None]) for image in images]).max(1).values.detach())


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x.detach(),
        lambda x: x.data,
        lambda x: torch.round(x).long().double(),
        lambda x: torch.zeros(len(x), 4, dtype=torch.float64),
    ],
    ids=["detach", "data", "long", "constant"],
)
def test_an_input_that_does_not_reach_the_output_is_an_error(cut: Callable[[Tensor], Tensor]):
    network = mlp()
    refuses(ModelError, r"input does not reach the output", lambda: ig2.IntegratedGradients()(lambda x: network(cut(x)), X))


def test_a_network_that_turns_gradients_off_is_an_error():
    refuses(ModelError, "does not reach the output", lambda: ig2.IntegratedGradients()(torch.no_grad()(mlp().forward), X))


# -- degenerate cases --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in METHODS if name != "to GradCF"])  # which has its own references
def test_a_reference_equal_to_the_explicand_counts_as_zero(name: str):
    network = mlp()
    method = METHODS[name]
    alone = method(network, X[:1], references=X[:1])
    assert torch.equal(alone.values, torch.zeros_like(alone.values))
    assert alone.residual is None or alone.residual.abs().max() < 1e-15
    assert alone.residual is None or alone.verdict.startswith("has nothing to explain, since the output at x is that at its")
    both = method(network, X[:1], references=torch.stack([X[0], REFERENCES[0]]))
    other = method(network, X[:1], references=REFERENCES[:1])
    assert torch.allclose(both.values, other.values / 2)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "network",
    [lambda x: x.sum(1, keepdim=True) * 0 + 1, lambda x: torch.relu(x.sum(1, keepdim=True) - 100)],
    ids=["constant", "dead"],
)
def test_a_network_without_slope_gives_zeros(name: str, network: Callable[[Tensor], Tensor]):
    result = METHODS[name](network, X, references=REFERENCES)
    assert torch.equal(result.values, torch.zeros_like(X))
    if result.residual is not None:
        assert (result.residual == 0).all() and (result.relative_residual == 0).all()
        assert "nothing" in result.verdict


@pytest.mark.parametrize("name", METHODS)
def test_a_batch_is_the_sum_of_its_samples(name: str):
    network = mlp()
    whole = METHODS[name](network, X, references=REFERENCES)
    for row in range(3):
        alone = METHODS[name](network, X[row : row + 1], references=REFERENCES)
        assert torch.allclose(whole.values[row], alone.values[0], rtol=1e-12, atol=1e-14)


def test_a_nan_on_the_path_names_the_explicand_and_the_reference():
    network = lambda x: (x - 0.2).sqrt().sum(1)  # noqa: E731
    x = torch.full((2, 3), 0.9, dtype=torch.float64)
    references = torch.full((2, 2, 3), 0.5, dtype=torch.float64)
    ig2.ExpectedIG(4)(network, x, references=references)
    references[1, 1] = 0.0
    for method in (ig2.ExpectedIG(4), ig2.ExpectedIG(4, rule=ig2.rules.trapezoid), ig2.ExpectedIG(4, rule=ig2.rules.shared)):
        with pytest.raises(ModelError, match="not finite for explicand 1 and reference 1"):
            method(network, x, references=references)
        for batch_size in (1, 2):
            with pytest.raises(ModelError, match="explicand 1 and reference 1"):
                method(network, x, references=references, batch_size=batch_size)
    refuses(ModelError, r"not finite .* explicand 1", lambda: ig2.GuidedIG(5)(network, x, references=references))
    with pytest.raises(ModelError, match="not finite for explicand 0 and reference 0"):
        ig2.IG2(steps=5, step_size=5.0)(ig2.wrap(network, representation="output"), x, references=references)


def test_numbers_that_are_too_large_are_named():
    x, references = X.float(), REFERENCES.float()
    for method, one, other in ((ig2.IG2(4), x * 1e30, references), (ig2.IG2(4), x, references * 1e30)):
        with pytest.raises(ModelError, match="rescale x"):
            method(made(lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))).float(), one, 0, other)
    with pytest.raises(ModelError, match=r"reference 0: .* steps"):
        ig2.ExpectedIG(4)(lambda x: (x - 0.2).sqrt().sum(1), torch.full((1, 3), 0.9), references=0.0)


def test_blurring_is_not_autocast():
    network = made(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))).float()
    x = IMAGES.float()
    high = ig2.BlurIG(4, sigma=2)(network, x, 0)
    black = ig2.IntegratedGradients(4)(network, x, 0, references=ig2.references.BlurredExplicand(2), paths=True).paths[:, :, -1]
    with torch.autocast("cpu", torch.bfloat16):
        low = ig2.BlurIG(4, sigma=2)(network, x, 0)
        blurred = ig2.IntegratedGradients(4)(network, x, 0, references=ig2.references.BlurredExplicand(2), paths=True)
    assert low.values.dtype == torch.float32
    assert torch.allclose(low.values, high.values, atol=0.05 * float(high.values.abs().max()))
    assert torch.equal(blurred.paths[:, :, -1], black)


@pytest.mark.parametrize("method", [ig2.BlurIG(4), ig2.XRAI(), ig2.IG2(4)], ids=["BlurIG", "XRAI", "BlurredExplicand"])
def test_a_series_is_not_taken_for_an_image(method: ig2.Method):
    network = made(lambda: nn.Sequential(nn.Flatten(), nn.Linear(20, 3)))
    with pytest.raises(InputError, match=r"series \(T, C\)"):
        method(network, uniform(2, 10, 2, seed=1), 0, ig2.references.BlurredExplicand())


def test_an_output_that_is_not_finite_at_the_explicand_names_it():
    x = torch.tensor([[1.0], [-1.0]])
    refuses(ModelError, "the output of explicand 1 is nan: the", lambda: ig2.IntegratedGradients()(lambda x: x.sqrt(), x))
    refuses(ModelError, "the output of explicand 1 is inf", lambda: ig2.IntegratedGradients()(lambda x: 1 / (x + 1), x))


def test_half_precision_that_overflows_is_an_error_and_no_nan():
    network = nn.Linear(2, 1, bias=False).half()
    nn.init.constant_(network.weight, 6e4)
    refuses(ModelError, "explicand 0 is inf", lambda: ig2.IntegratedGradients()(network, torch.full((1, 2), 3.0).half()))


@pytest.mark.parametrize(
    "error",
    [
        KeyError("k"),
        AttributeError("a"),
        AssertionError(),
        ZeroDivisionError("z"),
        StopIteration(),
        OSError(2, "no such"),
        Exception(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_the_forward_pass_raises_is_an_error_of_the_model(error: Exception):
    def fails(x: Tensor) -> Tensor:
        raise error

    for call in (lambda: ig2.IntegratedGradients(3)(fails, X, 0), lambda: ig2.scores(fails, X)):
        with pytest.raises(ModelError, match=type(error).__name__ if not isinstance(error, OSError) else "no such"):
            call()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, InputError])
def test_what_is_no_failure_of_the_network_passes_through(error: type[BaseException]):
    def fails(x: Tensor) -> Tensor:
        raise error

    with pytest.raises(error):
        ig2.IntegratedGradients(3)(fails, X, 0)


@pytest.mark.parametrize("output", ["logit", "probability", lambda raw: raw])
@pytest.mark.parametrize("rows", [1, 3])
def test_an_output_without_classes_is_refused(output: Any, rows: int):
    model = ig2.wrap(lambda x: x[:, :0], output=output)
    for method in (ig2.Gradient(), ig2.IntegratedGradients(3), ig2.KernelSHAP()):
        for target in (None, 0):
            with pytest.raises(ModelError, match="class"):
                method(model, X[:rows], target)


class Force(nn.Module):
    """The force of an energy: a gradient by the positions, taken in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return -torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]


class ForceOfLeaf(Force):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if x.requires_grad else x.requires_grad_())


class ForceOfOwnGraph(Force):
    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            return super().forward(x.clone().requires_grad_())


class ForceByFunction(Force):
    def forward(self, x: Tensor) -> Tensor:
        return -torch.func.vmap(torch.func.grad(lambda one: self.energy(one).sum()))(x)


@pytest.mark.parametrize("kind", [Force, ForceOfLeaf, ForceOfOwnGraph, ForceByFunction])
@pytest.mark.parametrize("batch_size", ["auto", 1])
def test_a_network_that_takes_gradients_in_its_forward_pass_is_explained(kind: type[Force], batch_size: Any):
    network = kind()
    x = X.clone().requires_grad_()
    force = network(x)
    (slope,) = torch.autograd.grad(force[:, 1].sum(), x)
    assert torch.allclose(ig2.scores(network, X), force)
    assert torch.allclose(ig2.Gradient()(network, X, 1, batch_size=batch_size).values, slope)
    for method in (ig2.IntegratedGradients(20), ig2.ExpectedIG(20), ig2.IG2(5), ig2.GuidedIG(5, rule=ig2.rules.blended)):
        result = method(network, X, 1, REFERENCES, batch_size=batch_size)
        assert result.residual.abs().max() < 1e-6
    assert ig2.KernelSHAP()(network, X, 1, REFERENCES).residual.abs().max() < 1e-6
    refuses(ModelError, "gradient inside", lambda: ig2.DeepSHAP()(network, X, 1, REFERENCES))


NAMES = ("Gradient", "InputXGradient", "Random", "DeepSHAP", "KernelSHAP", "IG2", "IntegratedGradients", "ExpectedIG")
NAMES += ("GuidedIG", "BlurIG", "GradCFE", "XRAI", "SmoothGrad", "PathMethod")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("network", [nn.Linear(4, 3), ig2.wrap(nn.Linear(4, 3)), lambda x: x], ids=["net", "model", "function"])
def test_a_network_goes_into_the_call(name: str, network: Any):
    for arguments in ([network], [network, X]):
        with pytest.raises(InputError, match="goes into the method's call"):
            getattr(ig2, name)(*arguments)


def test_a_method_of_ones_own_may_be_made_from_a_network():
    class Learnt(ig2.Gradient):
        def __init__(self, net: nn.Module) -> None:
            self.__dict__["net"] = net

    assert isinstance(Learnt(nn.Linear(4, 3)), ig2.Method)


def test_arguments_in_the_wrong_place_are_named():
    refuses(InputError, "net must be a torch module or a function of tensors, got Tensor", lambda: ig2.IG2()(X, mlp()))
    refuses(InputError, r"rule must be .* here ig2\.rules\.blended and not its name, got", lambda: ig2.IG2(rule="blended"))
    refuses(InputError, r"rule must be .* for example trapezoid or gauss\(4\), got 'gauss'", lambda: ig2.IG2(rule="gauss"))
    refuses(InputError, "progress must be True, False or a", lambda: ig2.IG2()(mlp(), X, references=REFERENCES, progress="bar"))


def test_a_call_in_autocast_is_explained_in_autocast():
    network = mlp().float()
    with torch.autocast("cpu", torch.bfloat16):
        low = ig2.IG2(steps=4)(network, X.float(), references=REFERENCES.float())
    high = ig2.IG2(steps=4)(network, X.float(), references=REFERENCES.float())
    assert low.values.dtype == torch.float32
    assert not torch.equal(low.output, high.output)
    assert torch.allclose(low.values, high.values, atol=0.05 * float(high.values.abs().max()))


def test_two_methods_may_run_inside_one_another():
    # a distance or a callback of the user's that explains something itself
    network, inner = mlp(), []

    def progress(done: int, total: int) -> None:
        inner.append(ig2.IntegratedGradients(3)(network, X).values)

    expected = ig2.IG2(steps=3)(network, X, references=REFERENCES).values
    with untouched(network):
        assert torch.equal(ig2.IG2(steps=3)(network, X, references=REFERENCES, progress=progress).values, expected)
    assert len(inner) == 3


def test_threads_may_explain_and_use_one_network_at_once():
    network = mlp()
    batches = [uniform(3, 4, seed=seed) for seed in range(4)]
    expected = [ig2.IG2(steps=20)(network, x, references=REFERENCES).values for x in batches]
    results: dict[int, Tensor] = {}
    done = threading.Event()

    def explain(number: int) -> None:
        for _ in range(3):
            results[number] = ig2.IG2(steps=20)(network, batches[number], references=REFERENCES).values

    def use() -> None:
        while not done.is_set():
            network(uniform(7, 4))

    with untouched(network):
        user = threading.Thread(target=use)
        threads = [threading.Thread(target=explain, args=(number,)) for number in range(4)]
        for thread in (user, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        user.join()
    for number, values in enumerate(expected):
        assert torch.allclose(results[number], values, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rounding_is_not_taken_for_mixing(dtype: torch.dtype):
    deep = [layer for _ in range(12) for layer in (nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU())]
    network = made(lambda: nn.Sequential(nn.Linear(4, 32), *deep, nn.Linear(32, 3))).to(dtype)
    for seed in range(10):
        ig2.IntegratedGradients(2)(network, uniform(3, 4, seed=seed).to(dtype))


@pytest.mark.parametrize("name", METHODS)
def test_the_default_device_does_not_matter(name: str):
    network = mlp()
    expected = METHODS[name](network, X, references=REFERENCES)
    with torch.device("meta"):  # tensors made without saying where would have no data
        result = METHODS[name](network, X, references=REFERENCES)
        part = result[[0, 2]]
    assert torch.equal(result.values, expected.values)
    assert torch.equal(part.values, expected.values[[0, 2]])


@pytest.mark.parametrize(
    "explain",
    [
        lambda net, x: ig2.IntegratedGradients()(net, x, references=ig2.references.UniformNoise(2, 0.0, 1.0)),
        lambda net, x: ig2.ExpectedIG()(net, x, references=ig2.references.NoisedExplicand(0.1, 2)),
        lambda net, x: ig2.ExpectedIG()(net, x, references=ig2.references.RandomSamples(torch.eye(4, device="cpu"), 2)),
        lambda net, x: ig2.IntegratedGradients()(net, x, references=ig2.references.MaximalDistance(0.0, 1.0)),
        lambda net, x: ig2.SmoothGrad(ig2.Gradient())(net, x),
        lambda net, x: ig2.KernelSHAP(samples=40)(net, x),
        lambda net, x: ig2.Random()(net, x),
    ],
)
def test_the_users_default_device_does_not_matter(explain):
    net, x = torch.nn.Sequential(torch.nn.Linear(4, 3)), torch.full((2, 4), 0.5)
    expected = explain(net, x).values
    with torch.device("meta"):  # stands in for a default device that is not the network's
        assert torch.equal(explain(net, x).values, expected)


def test_numbers_are_checked_where_parts_are_made():
    for wrong in (
        lambda: ig2.IG2(step_size="0.1"),
        lambda: ig2.IG2(norm="l2"),
        lambda: ig2.GuidedIG(fraction="a"),
        lambda: ig2.BlurIG(sigma=None),
        lambda: ig2.paths.SparseL1("95"),
        lambda: ig2.paths.Straight(2.5),
    ):
        with pytest.raises(InputError, match="must be"):
            wrong()
    assert ig2.paths.Straight(np.int64(3)).segments == 3


def test_a_constant_reference_keeps_double_precision():
    x = torch.ones(1, 2, dtype=torch.float64)
    found = ig2.IntegratedGradients()(lambda p: p.sum(dim=1), x, references=0.1)
    assert torch.allclose(found.values, torch.full((1, 2), 0.9, dtype=torch.float64), rtol=0, atol=1e-15)


def test_a_network_that_runs_and_cannot_be_differentiated_is_refused():
    def network(x: Tensor) -> Tensor:
        hidden = x.tanh()
        twice = hidden * 2
        return (hidden.mul_(3) + twice).sum(dim=1)  # tanh's gradient needs what was written over

    for method in (ig2.Gradient(), ig2.IG2(3), ig2.IntegratedGradients(3)):
        with pytest.raises(ModelError, match="cannot be differentiated"):
            method(network, X, references=REFERENCES)
