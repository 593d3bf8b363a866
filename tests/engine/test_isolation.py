"""The user's network while a call runs: another thread may train it, and nothing of it is written to."""

from __future__ import annotations

import copy
import functools
import threading

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import ig2
from ig2._engine.isolation import CopyError, isolate
from networks import refuses, seeded, uniform

X, REFERENCES = uniform(2, 6), uniform(2, 6, seed=1)


def mlp() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), 0)


@pytest.mark.slow
@pytest.mark.parametrize("as_function", [False, True], ids=["module", "function"])
def test_another_thread_trains_the_network_meanwhile(as_function: bool):
    net, stop, failures = mlp(), threading.Event(), []

    def train() -> None:
        while not stop.is_set():
            try:
                net.zero_grad()
                net(X).square().sum().backward()
                if any(p.grad is None for p in net.parameters()):
                    failures.append("a gradient was lost")
            except RuntimeError as error:
                failures.append(str(error))

    thread = threading.Thread(target=train)
    thread.start()
    try:
        for _ in range(5):
            ig2.IG2(steps=20)((lambda x: net(x)) if as_function else net, X, references=REFERENCES)
    finally:
        stop.set()
        thread.join()
    assert not failures


class Counting(nn.Module):
    """Writes into a buffer, a plain tensor and a Python number at every pass, and does not go by them."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.passes, self.sums = mlp(), 0, torch.zeros(6)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.passes += len(x)
        self.seen += 1
        self.sums = self.sums + x.detach().sum(dim=0)
        return self.net(x)


def test_what_a_forward_pass_writes_is_not_the_users():
    net = Counting().eval()
    a = ig2.IG2(steps=3)(net, X, references=REFERENCES)
    assert (net.passes, float(net.seen), float(net.sums.sum())) == (0, 0, 0)
    assert torch.equal(a.values, ig2.IG2(steps=3)(net.net, X, references=REFERENCES).values)


@pytest.mark.parametrize("method", [ig2.IG2(3), ig2.Gradient(), ig2.KernelSHAP()])
def test_buffers_of_a_network_that_cannot_be_copied_are_put_back(method: ig2.Method):
    net = Counting().eval()
    net.register_buffer("last", torch.full((6,), 7.0))

    def forward(x: Tensor) -> Tensor:
        net.last.copy_(x[-1].detach())
        return net(x)

    buffers = dict(net.named_buffers())
    method(forward, X, references=REFERENCES)
    assert net.passes > 0 and float(net.seen) == 0 and net.last.tolist() == [7.0] * 6
    assert all(buffers[name] is buffer for name, buffer in net.named_buffers())


def test_a_copy_shares_the_weights_and_requires_no_gradient():
    net = mlp()
    copied = isolate(ig2.wrap(net, representation=net[1]))
    assert copied.net is not net and copied.representation.module is copied.net[1]
    for one, other in zip(net.parameters(), copied.net.parameters(), strict=True):
        assert one.data_ptr() == other.data_ptr() and one.requires_grad and not other.requires_grad


def test_tied_weights_stay_tied_in_a_copy():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    copied = isolate(ig2.wrap(net)).net
    assert copied[0].weight is copied[1].weight


@pytest.mark.parametrize("kind", [torch.nn.utils.weight_norm, torch.nn.utils.parametrizations.weight_norm], ids=["old", "new"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weights_that_are_computed_can_be_copied(kind: object):
    net = mlp()
    kind(net[0])
    net(X)
    assert not any(p.requires_grad for p in isolate(ig2.wrap(net)).net.parameters())
    assert torch.allclose(isolate(ig2.wrap(net)).net(X), net(X))


def test_what_refers_to_modules_is_run_as_it_is():
    net = mlp()
    for function in (lambda x: net(x), functools.partial(lambda x, scale: scale * net(x), scale=1)):
        with pytest.raises(CopyError, match="function"):
            isolate(ig2.wrap(function))
    refuses(CopyError, "function", lambda: isolate(ig2.wrap(net[:2], output=lambda hidden: net[2](hidden))))
    changed = copy.deepcopy(net)
    changed.forward = lambda x: changed[2](changed[1](changed[0](x)))
    refuses(CopyError, "function", lambda: isolate(ig2.wrap(changed)))
    assert torch.equal(
        ig2.IG2(steps=3)(changed, X, references=REFERENCES).values, ig2.IG2(steps=3)(net, X, references=REFERENCES).values
    )


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.last, self.reentrant = mlp(), nn.Linear(3, 3).double(), reentrant

    def forward(self, x: Tensor) -> Tensor:
        return self.last(checkpoint(self.first, x, use_reentrant=self.reentrant).relu())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # PyTorch's own, of passes without gradients
@pytest.mark.parametrize("method", [ig2.IG2(5), ig2.IntegratedGradients(5), ig2.Gradient()], ids=lambda m: type(m).__name__)
def test_checkpoints_with_re_entry_give_what_those_without_do(method: ig2.methods.Method):
    net = seeded(lambda: Checkpointed(True), 0)
    values = method(net, X, references=REFERENCES).values
    assert all(p.grad is None for p in net.parameters())
    net.reentrant = False
    assert torch.allclose(values, method(net, X, references=REFERENCES).values) and values.abs().sum() > 0


def test_checkpoints_with_re_entry_inside_a_function_say_what_to_do():
    net = seeded(lambda: Checkpointed(True), 0)
    refuses(ig2.ModelError, "use_reentrant=False", lambda: ig2.IG2(5)(lambda x: net(x), X, references=REFERENCES))
    assert all(p.grad is None for p in net.parameters())


class CheckpointedViews(nn.Module):
    """With views made inside, which require gradients and have no node."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.conv, self.between = nn.Conv2d(1, 4, 2), nn.Sequential(nn.Flatten(2), nn.Linear(4, 4))
        self.head, self.reentrant = nn.Linear(16, 3), reentrant

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.between, self.conv(x).relu(), use_reentrant=self.reentrant).flatten(1))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("method", [ig2.GradCAM(), ig2.IG2(3), ig2.Gradient()], ids=lambda m: type(m).__name__)
def test_checkpoints_with_re_entry_beside_what_is_read(method: ig2.Method):
    x, references = uniform(2, 1, 3, 3), uniform(2, 1, 3, 3, seed=1)
    net = seeded(lambda: CheckpointedViews(True), 0)
    values = method(net, x, 0, references).values
    net.reentrant = False
    torch.testing.assert_close(values, method(net, x, 0, references).values)
