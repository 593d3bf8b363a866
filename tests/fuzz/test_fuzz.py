"""A short run of the fuzzer, and that each of its oracles can fail. `make fuzz` is the long one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import ig2
from fuzz.calls import Call, calls
from fuzz.networks import Case, build, tensors
from fuzz.oracles import Outcome, ask, check_call, check_deep
from fuzz.runner import run
from ig2.methods.catalogue import ENTRIES, Entry

AT_ONCE = 10


@pytest.mark.parametrize("first", range(0, 80, AT_ONCE))
def test_random_networks_hold_every_oracle(first: int):
    _, findings, done = run(first, AT_ONCE, seconds=600)
    assert done == AT_ONCE
    assert not findings, "\n".join(map(str, findings))


def test_a_seed_is_one_network():
    one, other = build(3), build(3)
    assert str(one) == str(other)
    assert all(torch.equal(a, b) for a, b in zip(tensors(one.x), tensors(other.x), strict=True))
    states = one.module.state_dict(), other.module.state_dict()
    assert all(torch.equal(a, b) for a, b in zip(*(state.values() for state in states), strict=True))


def find_called(wanted: set[str]) -> set[str]:
    """Those of these methods that a network of the long run meets."""
    called: set[str] = set()
    for seed in range(1000):
        if wanted <= called:
            break
        called |= {call.name for call in calls(build(seed), 3)}
    return called & wanted


def test_every_method_of_the_catalogue_is_called(monkeypatch: pytest.MonkeyPatch):
    wanted = {entry.class_name for entry in ENTRIES} | {"PathMethod"}
    assert find_called(wanted) == wanted
    # a new one is in without further code
    monkeypatch.setattr("ig2.methods.gradient.New", type("New", (ig2.Gradient,), {}), raising=False)
    new = Entry("gradient.New", "new", "New", "a new method", lambda facts: {})
    monkeypatch.setattr("fuzz.calls.ENTRIES", (*ENTRIES, new))
    assert find_called({"New"}) == {"New"}


@dataclass(frozen=True, eq=False)
class Broken(ig2.Method):
    """A method that does what no method may."""

    fault: Callable[[Any, Case], torch.Tensor]
    case: Case

    def run(self, task: Any, references: Any, keep: Any) -> Any:
        return ig2.methods.Result(self.fault(task, self.case))


def _raise(task: Any, case: Case) -> torch.Tensor:
    raise KeyError("lost")


def _train(task: Any, case: Case) -> torch.Tensor:
    case.module.train()
    return torch.ones_like(task.x)


def _draw(task: Any, case: Case) -> torch.Tensor:
    torch.rand(1)
    return torch.ones_like(task.x)


CALLS: list[int] = []


def _count(task: Any, case: Case) -> torch.Tensor:
    CALLS.append(1)
    return torch.full_like(task.x, float(len(CALLS)))


def _folds(case: Case) -> bool:
    if case.kind != "v" or case.rows < 3 or case.traits != {"float32", "scale 1", "range 1"} or "Checkpointed" in str(case):
        return False
    answer = ask(case, Call("IntegratedGradients", ig2.IntegratedGradients(2)))
    return answer.attribution is not None and bool(answer.attribution.settings["preparation"].get("folded"))


# a plain network whose batch norm is folded, so that a prepared copy differs from it
CASE = next(filter(_folds, map(build, range(5000))))


@pytest.mark.parametrize(
    ("fault", "oracle"),
    [
        (_raise, "foreign exception"),
        (_train, "network changed"),
        (_draw, "network changed"),
        (lambda task, case: torch.full_like(task.x, torch.nan), "error"),  # one that no trait of the network explains
        (_count, "not deterministic"),
        (lambda task, case: task.x - task.x.mean(dim=0), "alone and in a batch"),
        (lambda task, case: torch.ones_like(task.x) * bool(task.session.preparation.get("folded")), "prepared and unprepared"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_oracle_can_fail(fault: Callable[[Any, Case], torch.Tensor], oracle: str):
    case, outcome = build(CASE.seed), Outcome()
    call = Call("Broken", Broken(fault, case))
    answer = check_call(case, call, outcome, set())
    case.module.eval()
    if answer.attribution is not None:
        check_deep(case, call, answer.attribution, outcome)
    assert oracle in {finding.oracle for finding in outcome.findings}
