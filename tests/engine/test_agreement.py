"""Whether the faster copy is right: decided early, by float64 where rounding hides it, and at the price of the work alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2._engine import acceleration
from ig2._engine.acceleration import FasterCopy
from networks import Record, randn, seeded

STEPS, X, REFERENCES = 20, randn(3, 6).float(), randn(4, 6, seed=1).float()


class Waves(nn.Module):
    """Steep and low: the last digit of what it gets turns its slope about, and leaves what it returns as it is."""

    def __init__(self, steepness: float) -> None:
        super().__init__()
        self.steepness = steepness

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.steepness * x).sin() / self.steepness


class Counted(nn.Module):
    """Notes how many points it gets, in float64 apart."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.sizes, self.exact = net, Record(), Record()

    def forward(self, x: Tensor) -> Tensor:
        (self.exact if x.dtype == torch.float64 else self.sizes).append(len(x))
        return self.net(x)


def rough(steepness: float = 1e7) -> Counted:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), Waves(steepness), nn.Tanh(), nn.Linear(16, 3))

    net = seeded(build, 0)
    net[1].running_mean.copy_(randn(16, seed=2))
    net[1].running_var.copy_(randn(16, seed=3).square() + 0.5)
    return Counted(net.float().eval())


def spoil(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[nn.Module, Tensor], Tensor]) -> None:
    """Let copies be another function than the network: what is wrong, of the copy and its input."""

    class Other(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor) -> Tensor:
            return wrong(self.net, x)

    original = acceleration.prepare

    def prepare(*args: Any) -> FasterCopy | None:
        made = original(*args)
        return None if made is None else replace(made, model=replace(made.model, net=Other(made.model.net)))

    monkeypatch.setattr("ig2._engine.session.prepare", prepare)
    monkeypatch.setattr("ig2._engine.agreement.prepare", prepare)


def turned(share: float) -> Callable[[nn.Module, Tensor], Tensor]:
    """The network's own scores, with gradients that are so much longer."""
    return lambda net, x: net(x + (x - x.detach()) * share)


METHODS = {
    "IG2": ig2.IG2(STEPS, 0.05, ig2.rules.left),
    "ExpectedIG": ig2.ExpectedIG(STEPS, ig2.rules.left),
    "secant": ig2.PathMethod(ig2.paths.Straight(STEPS), rule=ig2.rules.secant),
}


def test_rounding_alone_puts_the_gradients_of_a_rough_network_apart():
    """As far as would be taken for another function: the case is what it is meant to be."""
    net, x = rough(), X.requires_grad_()
    folded = acceleration.prepare(ig2.wrap(net), ig2.Preparation(), ig2._engine.explicands.Explicands.of(X.detach()))
    assert folded is not None and folded.done == {"folded": 1}
    one, other = (torch.autograd.grad(model(x)[:, 0].sum(), x)[0] for model in (net, folded.model.net))
    assert (one - other).norm() > 0.25 * one.norm()
    assert torch.allclose(net(x), folded.model.net(x), atol=1e-5)
    X.requires_grad_(False)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_copy_of_a_rough_network_is_used(method: ig2.Method):
    found = method(rough(), X, 0, REFERENCES)
    assert found.settings["preparation"]["folded"] == 1
    assert found.settings["preparation"]["rounding"].startswith("the network's own numbers are off by up to ")
    smooth = method(rough(1.0), X, 0, REFERENCES)
    assert smooth.settings["preparation"] == {"folded": 1}  # nothing is computed in float64 without need


@pytest.mark.parametrize("share", [-2.0, 0.3, 0.01])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_another_function_is_refused_however_rough_the_network(
    method: ig2.Method, share: float, monkeypatch: pytest.MonkeyPatch
):
    spoil(monkeypatch, turned(share))
    for net, refused in ((rough(), True), (rough(1.0), abs(share) > 0.2)):
        found = method(net, X, 0, REFERENCES)
        assert ("left as it is" in found.settings["preparation"]) is refused
        if refused:
            assert found.settings["preparation"] == {"left as it is": "the copy gave other gradients"}
            plain = method(ig2.wrap(net, prepare=False), X, 0, REFERENCES)
            assert torch.equal(found.values, plain.values)


def points(net: Counted, method: ig2.Method, prepare: bool) -> int:
    net.sizes.clear()
    method(ig2.wrap(net, prepare=prepare), X, 0, REFERENCES)
    return sum(net.sizes)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_no_work_is_paid_for_twice(method: ig2.Method, monkeypatch: pytest.MonkeyPatch):
    """Whether a copy is right or wrong, and when it is found out: a call runs as many points as without one, and the few by
    which it is compared."""
    plain = points(rough(), method, prepare=False)
    pairs, work = len(X) * len(REFERENCES), plain
    assert work > STEPS * pairs
    # the explicands, the references and the ends of the paths, and two points for each request and size of batch
    few = len(X) + 2 * pairs + 20
    assert few < 0.2 * work
    assert points(rough(), method, prepare=True) <= work + few
    wrongs = {
        "from the start": turned(-2.0),
        # at the size of the whole walk alone, which opening does not come by
        "in the walk": lambda net, x: turned(-2.0)(net, x) if len(x) >= pairs else net(x),
    }
    for wrong in wrongs.values():
        with monkeypatch.context() as patch:
            spoil(patch, wrong)
            net = rough()
            assert points(net, method, prepare=True) <= work + few + 2 * max(net.sizes)  # that batch is run once more
            assert sum(net.exact) <= 40


def test_what_was_refused_on_the_way_is_what_the_network_gives(monkeypatch: pytest.MonkeyPatch):
    """Pairs that stop make batches smaller: the copy is wrong at one of these sizes, and right at those before."""
    method = ig2.IG2(30, 0.05, ig2.rules.left, stop=ig2.paths.Converged(0.02, window=3))
    net = rough(1.0)
    references = torch.cat([X[:, None] + 0.01, REFERENCES[:1].expand(3, 1, 6)], dim=1)  # three are nearly there
    expected = method(ig2.wrap(net, prepare=False), X, 0, references)
    assert expected.steps_taken.min() < 30
    spoil(monkeypatch, lambda copied, x: turned(-2.0)(copied, x) if len(x) == 3 else copied(x))
    found = method(net, X, 0, references)
    assert found.settings["preparation"] == {"left as it is": "the copy gave other gradients"}
    torch.testing.assert_close(found.values, expected.values, rtol=1e-4, atol=1e-6)


def test_a_network_that_float64_does_not_fit_is_left_as_it_is():
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ torch.eye(6)  # in float32, whatever the network is in

    net = nn.Sequential(Own(), *rough().net).eval()
    found = ig2.IG2(STEPS, 0.05)(net, X, 0, REFERENCES)
    assert found.settings["preparation"] == {"left as it is": "the copy gave other gradients"}
