"""Suites, the runner and its tables: nothing is scored twice, nothing is mixed, and everything is said."""

from __future__ import annotations

import functools
import html.parser
import importlib
import json
import math
import os
import random
import re
import subprocess
import sys
import warnings
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
import toysuite
from torch import nn
from toysuite import Off, Toy, broken, global_dice, honest, undecided, warned

import ig2
from ig2._utils.digests import code_digest, fingerprint
from ig2.comparison import WithoutReferences
from ig2.errors import IG2Error, IG2Warning, InputError
from ig2.table import Gap, Row, number, spread
from ig2_bench import SUITES, BenchOptions, Column, Step, Suite, Table, run, runner, store
from ig2_bench.suite import ChoiceError, find_suite
from ig2_bench.table import Fact, Failure

PLAIN = Toy()  # as a source of names; runs have their own
CELLS = 3 * 3  # seeds × methods


def scored(suite: Toy) -> Counter:
    """How often each pair of part and method was scored."""
    return Counter({where: times for where, times in suite.done.items() if isinstance(where, tuple)})


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# -- the numbers -------------------------------------------------------------------------------------------------------


def test_a_row_is_the_mean_and_spread_over_the_values_of_all_parts():
    table = run(Toy())
    row = table.row("Guided IG", "distance")
    values = [2.0, 2.2, 2.4]
    assert row.values == pytest.approx(values) and (row.n, row.undefined) == (3, 0)
    assert row.mean == pytest.approx(fmean(values)) and row.sd == pytest.approx(stdev(values))
    assert [(row.method, row.metric) for row in table.rows] == [
        (method, metric) for method in PLAIN.methods() for metric in PLAIN.metrics()
    ]
    (fact,) = table.facts
    assert (fact.name, fact.n) == ("accuracy", 3) and fact.mean == pytest.approx(0.91)


def test_a_part_may_have_any_number_of_values():
    class Samples(Toy):
        def score(self, part, prepared, method):
            return {"distance": torch.arange(float(part.split()[1]) + 1.0)}

    table = run(Samples())
    row = table.row("IG", "distance")
    assert row.values == (0.0, 0.0, 1.0, 0.0, 1.0, 2.0) and row.n == 6
    assert table.row("IG", "closeness").n == 0 and math.isnan(table.row("IG", "closeness").mean)  # it scored nothing there


@pytest.mark.parametrize(
    ("values", "mean", "sd", "n", "undefined"),
    [
        ([], math.nan, math.nan, 0, 0),
        ([2.0], 2.0, math.nan, 1, 0),
        ([1.0, 3.0, math.nan], 2.0, math.sqrt(2), 2, 1),
        ([math.inf, -math.inf, 1.0], 1.0, math.nan, 1, 2),
        ([math.nan], math.nan, math.nan, 0, 1),
    ],
)
def test_values_in_four_numbers(values, mean, sd, n, undefined):
    assert spread(values) == pytest.approx({"mean": mean, "sd": sd, "n": n, "undefined": undefined}, nan_ok=True)


def test_the_best_is_by_the_metrics_direction_and_by_what_is_shown():
    table = run(Toy(size=3.0), {"as good": Off(0.2504), "worse": Off(0.2514)})  # by 0.275, 0.27544, 0.27654
    assert table.best("closeness") == {"IG²", "as good"}
    assert run(Toy()).best("closeness") == run(Toy()).best("distance") == {"IG²"}
    assert run(Toy(), ["IG"]).best("distance") == set()  # alone it is no best


def test_a_column_that_only_describes_has_no_best_and_no_arrow(tmp_path):
    table = run(Toy(), out=tmp_path)
    described = replace(table, metrics={**table.metrics, "distance": replace(table.metrics["distance"], ranked=False)})
    (tmp_path / "described.json").write_text(described.to_json(), encoding="utf-8")
    for found in (described, Table.load(tmp_path / "described.json")):
        assert not found.best("distance") and found.heading("distance") == "distance"
        assert found.best("closeness") == {"IG²"} and found.heading("closeness") == "closeness ↑"


def test_units_have_their_plural(monkeypatch):
    for unit, said in (("seed", "over 2 seeds;"), ("batch", "over 2 batches;")):
        monkeypatch.setattr(Toy, "unit", unit)
        assert said in run(Toy(seeds=2)).caption()[0]


def test_rows_of_different_samples_have_no_best(tmp_path, monkeypatch):
    assert "the best mean is bold" in run(Toy()).caption()[0]
    monkeypatch.setattr(Toy, "ranked", False)
    table = run(Toy(), out=tmp_path)
    for found in (table, Table.load(tmp_path / "toy.json")):
        assert not found.best("distance") and "**" not in found.to_markdown() and "bold" not in found.caption()[0]


# -- going on ----------------------------------------------------------------------------------------------------------


class Stop:
    """Ends a run in the middle, as Ctrl-C would, when the step of this number begins."""

    def __init__(self, at: int) -> None:
        self.at, self.steps = at, []

    def __call__(self, step: Step) -> None:
        self.steps.append(step)
        if len(self.steps) > self.at:
            raise KeyboardInterrupt


def test_a_run_that_is_stopped_anywhere_goes_on_and_ends_as_if_it_had_not_been(tmp_path):
    run(Toy(), out=tmp_path / "whole")
    whole = files(tmp_path / "whole")
    steps = 3 * (1 + 1 + 3)  # of each seed it prepares, tells facts, and scores three
    for at in range(steps):
        folder, done = tmp_path / str(at), Counter()
        with pytest.raises(KeyboardInterrupt):
            run(Toy(done=done), out=folder, progress=Stop(at))
        kept = scored(Toy(done=done))
        run(Toy(done=done), out=folder)
        assert set(scored(Toy(done=done)).values()) == {1} and len(scored(Toy(done=done))) == CELLS
        assert len(kept) < CELLS  # it had been stopped
        found = files(folder)
        assert {name: found[name] for name in ("toy.json", "toy.md")} == {name: whole[name] for name in ("toy.json", "toy.md")}


def test_what_is_there_needs_no_data(tmp_path):
    first = Toy()
    run(first, out=tmp_path)
    assert [first.done[part] for part in first.parts()] == [1, 1, 1]  # prepared once for all methods
    again = Toy()
    table = run(again, out=tmp_path)
    assert not again.done and table.to_json() == (tmp_path / "toy.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("cut", [1, 2, 40, 200])
def test_a_line_cut_short_is_scored_again_and_the_next_one_is_not_lost(tmp_path, cut):
    run(Toy(), out=tmp_path)
    path = tmp_path / "toy.cells.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    again = Toy()
    with nullcontext() if cut == 1 else pytest.warns(IG2Warning, match="damaged"):
        run(again, out=tmp_path)
    # with its end alone missing, the line is whole
    assert len(scored(again)) == (0 if cut == 1 else 1)
    run(again := Toy(seeds=4), out=tmp_path)
    assert {part for part, _ in scored(again)} == {"seed 3"}
    run(again := Toy(seeds=4), out=tmp_path)
    assert not again.done


def test_lines_that_are_no_cells_are_passed_over(tmp_path):
    run(Toy(), out=tmp_path)
    path = tmp_path / "toy.cells.jsonl"
    good = path.read_bytes()
    record = json.loads(good.splitlines()[1])
    bad = [{**record, "values": 3}, {**record, "values": {"a": ["x"]}}, {**record, "seconds": None}, [], None, {"key": 1}]
    path.write_bytes(
        b"\xff\xfe\n[[[\n" + b"[" * 100_000 + b"\n" + b"\n".join(json.dumps(line).encode() for line in bad) + b"\n" + good
    )
    again = Toy()
    with pytest.warns(IG2Warning, match="9 of 21 lines damaged"):
        run(again, out=tmp_path)
    assert not again.done
    run(Toy(), out=tmp_path)  # once is enough
    assert path.read_bytes() == good


def test_a_score_that_was_changed_on_the_disk_is_computed_again(tmp_path):
    before = run(Toy(), out=tmp_path).to_json()
    path = tmp_path / "toy.cells.jsonl"
    lines = path.read_bytes().splitlines()
    record = json.loads(lines[1])
    name = next(iter(record["values"]))
    record["values"][name] = [value + 1 for value in record["values"][name]]
    path.write_bytes(b"\n".join([lines[0], json.dumps(record).encode(), *lines[2:], b""]))
    again = Toy()
    with pytest.warns(IG2Warning, match="1 of 12 lines damaged"):
        after = run(again, out=tmp_path).to_json()
    assert len(scored(again)) == 1 and json.loads(after)["rows"] == json.loads(before)["rows"]


def test_cells_of_other_settings_are_kept_and_never_mixed(tmp_path):
    first = run(Toy(), out=tmp_path)
    changed = Toy(size=2.0)
    run(changed, out=tmp_path)
    assert len(scored(changed)) == CELLS
    back = Toy()
    assert run(back, out=tmp_path).to_json() == first.to_json() and not back.done


def other(**members):
    return type("Other", (Toy,), members)


@pytest.mark.parametrize(
    "changed",
    [
        Toy(quick=True),
        other(version=2)(),
        other(describe_data=lambda self: "other numbers")(),
        other(methods=lambda self: {"IG": Off(1.001), "Guided IG": Off(2.001), "IG²": Off(0.2501)})(),
        other(methods=lambda self: {"A": Off(1.0), "B": Off(2.0), "C": Off(0.25)})(),
        None,
    ],
    ids=["a setting", "the version", "the data", "the methods' settings", "the labels", "the package"],
)
def test_whatever_else_changes_is_scored_again(tmp_path, changed, monkeypatch):
    run(Toy(), out=tmp_path)
    if changed is None:
        changed = Toy()
        monkeypatch.setattr(ig2, "__version__", "99")
    changed.done.clear()
    run(changed, out=tmp_path)
    assert len(scored(changed)) == CELLS


def test_more_seeds_are_added_to_those_there_are(tmp_path):
    run(Toy(seeds=2), out=tmp_path)
    more = Toy(seeds=4)
    assert run(more, out=tmp_path).row("IG", "distance").n == 4
    assert {part for part, _ in scored(more)} == {"seed 2", "seed 3"}
    shifted = Toy(seed=1, seeds=2)
    assert run(shifted, out=tmp_path).row("IG", "distance").values == pytest.approx((1.1, 1.2)) and not shifted.done


def test_fresh_scores_again_what_was_chosen_and_nothing_else(tmp_path):
    run(Toy(), out=tmp_path)
    again = Toy()
    with pytest.raises(KeyboardInterrupt):
        run(again, ["IG"], out=tmp_path, fresh=True, progress=Stop(4))
    rest = Toy()
    run(rest, out=tmp_path)  # goes on with what fresh had begun
    assert scored(again) + scored(rest) == Counter({(f"seed {i}", "off by 1.0"): 1 for i in range(3)})


def test_what_was_scored_elsewhere_says_so(tmp_path, monkeypatch):
    run(Toy(seeds=1), out=tmp_path)
    there = runner.describe_environment("cpu")
    monkeypatch.setattr(runner, "describe_environment", lambda device: {**there, "device": "NVIDIA H200"})
    assert run(Toy(seeds=1), out=tmp_path).environment == there  # nothing was scored here
    assert run(Toy(seeds=2), out=tmp_path).environment == {**there, "device": "cpu, NVIDIA H200"}


def test_scores_of_different_states_of_our_code_are_pointed_out(tmp_path, monkeypatch):
    assert run(Toy(seeds=1), out=tmp_path).notes == ()
    monkeypatch.setattr(runner, "code_digest", lambda *others: "changed")
    table = run(Toy(seeds=2), out=tmp_path)
    assert table.notes == ("these scores are of 2 states of ig2's code: fresh (--fresh) scores all again",)
    assert table.environment["code"] == f"{code_digest('ig2_bench')}, changed"
    assert run(Toy(seeds=2), out=tmp_path, fresh=True).notes == ()


def test_time_tells_what_each_method_took_before(tmp_path):
    stop = Stop(99)
    run(Toy(), out=tmp_path, progress=stop)
    assert [step.done for step in stop.steps] == sorted(step.done for step in stop.steps)
    assert (stop.steps[0].done, stop.steps[-1].done) == (0, 12) and {step.total for step in stop.steps} == {12}
    assert [step.now for step in stop.steps[:3]] == ["seed 0: preparing", "seed 0: facts", "seed 0: IG"]
    assert stop.steps[0].left is None and stop.steps[-1].left == 0 and stop.steps[-1].now == ""
    assert all(step.left > 0 for step in stop.steps[2:-1])
    stored = store.Cells(tmp_path, "toy")
    for key, cell in list(stored.known.items()):
        stored.add(key, replace(cell, seconds=100.0))
    stop = Stop(99)
    run(Toy(seeds=5), out=tmp_path, progress=stop)
    assert stop.steps[0].left == pytest.approx(2 * 4 * 100)


def test_progress_may_be_a_bar(capfd):
    run(Toy(), progress=True)
    assert "12/12" in capfd.readouterr().err
    with pytest.raises(InputError, match="progress must be True, False or a function of a Step, got 3"):
        run(Toy(), progress=3)  # type: ignore[arg-type]


# -- methods of one's own ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "own", "there"),
    [
        (None, {"mine": honest}, ["IG", "Guided IG", "IG²", "mine"]),
        ({"mine": honest}, None, ["IG", "Guided IG", "IG²", "mine"]),
        (["ig2"], {"mine": honest}, ["IG²", "mine"]),
        ([], {"mine": honest}, ["mine"]),
        (["IG²", "guided-ig"], None, ["Guided IG", "IG²"]),
        (["GUIDED_IG", "Guided IG"], None, ["Guided IG"]),
        ({"mine": honest}, {"other": Off(3.0)}, ["IG", "Guided IG", "IG²", "mine", "other"]),
        (["ig"], {"ig": honest}, ["IG", "ig"]),  # a name is looked for among the suite's before one's own
        (["mine"], {"mine": honest}, ["mine"]),
    ],
)
def test_methods_are_chosen_by_label_and_ones_own_stand_beside_them(names, own, there):
    table = run(Toy(), names, own=own)
    assert list(table.methods) == there
    assert table.row(there[-1], "distance").n == 3


def test_an_own_method_wins_if_it_is_best_and_is_known_by_its_place():
    table = run(Toy(), {"mine": honest})
    assert table.best("distance") == {"mine"} and table.methods["mine"] == "toysuite.honest"
    assert re.search(r"\| mine .*\*\*0\.00 ± 0\.00\*\*", table.to_markdown())


def test_an_own_method_of_the_same_label_takes_the_place_and_keeps_the_papers_figure():
    row = run(Toy(), {"IG": honest}).row("IG", "distance")
    assert row.mean == 0.0 and row.paper == 1.2


def test_an_instance_of_ours_and_an_object_of_anyones_can_be_own():
    class Mine:
        def __call__(self, model, x, target, references, *, seed):
            return x

    table = run(Toy(), own={"one": Mine(), "two": functools.partial(honest)})
    assert table.row("one", "distance").mean == 0.0
    assert "Mine" in table.methods["one"] and table.methods["two"] == "functools.partial"


def test_scores_of_a_network_that_was_trained_elsewhere_are_made_again(tmp_path):
    def of(network, methods):
        stop = Stop(99)
        table = run(other(digest_network=lambda self: network)(), methods, out=tmp_path, progress=stop)
        return [step.now for step in stop.steps], table

    of("one", ["IG"])
    told, table = of("one", ["IG", "Guided IG"])
    assert "seed 0: Guided IG" in told and "seed 0: IG" not in told and table.environment["network"] == "one"
    told, table = of("two", ["IG", "Guided IG", "IG²"])
    assert {f"seed {i}: {label}" for i in range(3) for label in ("IG", "Guided IG", "IG²")} <= set(told)
    assert table.environment["network"] == "two"


def test_methods_that_failed_on_different_parts_are_not_compared_one_by_one():
    def fails_on(number):
        def method(model, x, target=None, references=None, *, seed=0):
            if seed == number:
                raise ValueError("no")
            return x

        return method

    own = {"first": fails_on(0), "last": fails_on(2), "last too": fails_on(2)}
    table = run(Toy(), ["IG"], own=own)
    with pytest.raises(InputError, match=r"'first' or 'last' failed on seed 0, seed 2: run the suite again"):
        table.gap("first", "last", "distance")
    assert table.gap("last", "last too", "distance").n == 2


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("ig", ["IG"]),
        ("ig2", ["IG² (left, as published)", "IG² (shared)", "IG² (shared) + more"]),
        ("IG2-left", ["IG² (left, as published)"]),
        ("ig2 shared", ["IG² (shared)"]),  # not what begins so, if one is called so
        ("IG² (left, as published)", ["IG² (left, as published)"]),
        ("guided", ["Guided IG"]),
        ("guid", None),
        ("i", None),
        ("", None),
    ],
)
def test_a_name_is_a_label_or_how_some_begin(name, chosen):
    labels = ["IG", "Guided IG", "IG² (left, as published)", "IG² (shared)", "IG² (shared) + more"]
    suite = other(methods=lambda self: dict.fromkeys(labels, honest))(seeds=1)
    if chosen is None:
        with pytest.raises(ChoiceError, match="there is no method"):
            run(suite, [name])
    else:
        assert list(run(suite, [name]).methods) == chosen


@pytest.mark.parametrize(
    ("names", "own", "said"),
    [
        (["guidde"], None, "there is no method 'guidde'; did you mean Guided IG?"),
        (["zzz"], None, "there is no method 'zzz': choose from IG, Guided IG, IG²"),
        ([], None, "no method is chosen: choose from IG, Guided IG, IG²"),
        ("IG", None, "methods must be a list of labels, got the text 'IG'"),
        (None, {"mine": 3}, "'mine': 3"),
        (None, {" ": honest}, "' '"),
    ],
)
def test_choices_that_there_are_not(tmp_path, names, own, said):
    with pytest.raises(ChoiceError) as caught:
        run(Toy(), names, own=own, out=tmp_path / "new")
    assert said in str(caught.value)
    assert not (tmp_path / "new").exists()


def off_by(amount):
    def method(model, x, target=None, references=None, *, seed=0):
        return x + amount

    return method


def test_an_own_method_is_scored_again_when_what_it_closes_over_changes(tmp_path):
    assert run(Toy(), own={"mine": off_by(1.0)}, out=tmp_path).row("mine", "distance").mean == pytest.approx(1.1)
    assert run(Toy(), own={"mine": off_by(2.0)}, out=tmp_path).row("mine", "distance").mean == pytest.approx(2.2)
    again = Toy()
    run(again, own={"mine": off_by(1.0)}, out=tmp_path)
    assert not again.done


def typed(source):
    """A function as a notebook has it: in no file."""
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(source, "<cell>", "exec"), names)
    return names["thing"]


class Loop:
    def __init__(self) -> None:
        self.self, self.size = self, 3


@dataclass(frozen=True)
class Parts:
    pool: object


SAME_AND_OTHER = {
    "a number": (lambda: 1, lambda: 2),
    "a tensor": (lambda: torch.ones(3), lambda: torch.tensor([1.0, 1.0, 1.0001])),
    "the shape of a tensor": (lambda: torch.ones(2, 3), lambda: torch.ones(3, 2)),
    "the kind of a tensor": (lambda: torch.zeros(2), lambda: torch.zeros(2, dtype=torch.int32)),
    "half precision": (lambda: torch.ones(2).bfloat16(), lambda: 2 * torch.ones(2).bfloat16()),
    "a tensor of one number": (lambda: torch.tensor(True), lambda: torch.tensor(False)),
    "an array": (lambda: np.ones(3), lambda: np.zeros(3)),
    "many in a list": (lambda: list(range(50)), lambda: [*range(49), 0]),
    "a dict": (lambda: {"a": 1, "b": {2: 3}}, lambda: {"a": 1, "b": {2: 4}}),
    "a method of ours": (lambda: ig2.IG2(20), lambda: ig2.IG2(21)),
    "a rule": (lambda: ig2.IG2(20, rule=ig2.rules.left), lambda: ig2.IG2(20, rule=ig2.rules.gauss(2))),
    "references deep inside": (lambda: Parts((torch.ones(2, 3),)), lambda: Parts((torch.zeros(2, 3),))),
    "a wrapped method": (lambda: WithoutReferences(Off(1.0)), lambda: WithoutReferences(Off(2.0))),
    "a closure": (lambda: off_by(1.0), lambda: off_by(2.0)),
    "a partial": (lambda: functools.partial(honest, seed=1), lambda: functools.partial(honest, seed=2)),
    "a bound method": (lambda: Off(1.0).__call__, lambda: Off(2.0).__call__),
    "a network": (lambda: filled(nn.Linear(2, 2), 1.0), lambda: filled(nn.Linear(2, 2), 2.0)),
    "what holds itself": (lambda: Loop(), lambda: Parts(Loop())),
    "a function typed": (lambda: typed("def thing(x): return x + 1"), lambda: typed("def thing(x): return x + 2")),
    "one that calls another": (lambda: typed("def thing(x): return x.a()"), lambda: typed("def thing(x): return x.b()")),
    "one inside another": (
        lambda: typed("def thing(x): return [y + 1 for y in (lambda: x)()]"),
        lambda: typed("def thing(x): return [y + 2 for y in (lambda: x)()]"),
    ),
    "a constant of a class typed": (
        lambda: typed("class thing:\n size = 1\n def run(self): return self.size"),
        lambda: typed("class thing:\n size = 2\n def run(self): return self.size"),
    ),
    "a class typed": (
        lambda: typed("class thing:\n def run(self): return 1"),
        lambda: typed("class thing:\n def run(self): return 2"),
    ),
}


def filled(net, value):
    for parameter in net.parameters():
        nn.init.constant_(parameter, value)
    return net


@pytest.mark.parametrize(("one", "another"), SAME_AND_OTHER.values(), ids=SAME_AND_OTHER)
def test_things_are_told_apart_by_what_they_are_made_of(one, another):
    def said(thing):
        return json.dumps(fingerprint(thing), sort_keys=True, default=repr)

    assert said(one()) == said(one()) != said(another())


def test_what_cannot_be_told_apart_is_never_the_same_twice():
    one, another = torch.Generator(), torch.Generator()
    assert fingerprint(one) != fingerprint(another)


def test_a_dataclass_of_a_file_is_known_by_the_file_alone(tmp_path, monkeypatch):
    """The code made for it is another in each version of Python, and scores are stored on one and resumed on another."""
    kept = "@dataclass(frozen=True)\nclass Fields:\n sigma: float = 1.0\n"
    (tmp_path / "kept_in_a_file.py").write_text(
        f"from dataclasses import dataclass\n{kept}class Mine(Fields):\n def run(self): return 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("Mine", "Fields"):
        kind = getattr(importlib.import_module("kept_in_a_file"), name)
        before = fingerprint(kind(2.0))
        monkeypatch.setattr(kind, "__repr__", eval(compile("lambda self: 'other'", "<string>", "eval")))
        assert fingerprint(kind(2.0)) == before != fingerprint(kind(3.0))


SET_TYPED = """
from ig2._utils.digests import fingerprint, key_of
exec(compile("def thing(name):\\n return name in {'baseline', 'method', 'path', 'rule'}", "<typed>", "exec"))
print(key_of(fingerprint(thing)))
"""


def test_a_function_with_a_set_is_the_same_in_every_process():
    """Python writes sets in another order in each; from 3.12 on frozen dataclasses have one in the code made for them."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", SET_TYPED], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


def test_global_random_numbers_are_the_parts_own_and_left_as_they_were(tmp_path):
    def state():
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    before = state()
    whole = run(Toy(), own={"dice": global_dice}).row("dice", "distance").values
    assert state() == before
    assert len(set(whole)) == 3
    with pytest.raises(KeyboardInterrupt):
        run(Toy(), own={"dice": global_dice}, out=tmp_path, progress=Stop(9))
    torch.rand(1)
    assert run(Toy(), own={"dice": global_dice}, out=tmp_path).row("dice", "distance").values == pytest.approx(whole, abs=1e-6)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_method_that_fails_is_named_and_the_others_go_on(tmp_path):
    suite = Toy()
    table = run(suite, own={"bad": broken}, out=tmp_path)
    assert [(failure.part, failure.method) for failure in table.failures] == [(f"seed {i}", "bad") for i in range(3)]
    assert table.failures[0].said == "ValueError: cannot do this | <b>" and isinstance(table.failures[0].error, ValueError)
    assert table.row("bad", "distance").n == 0 and table.shown("bad", "distance").ours == "failed"
    assert table.row("IG²", "distance").n == 3
    remark = "bad failed on seed 0, seed 1, seed 2: ValueError: cannot do this | <b>"
    assert remark in table.remarks()
    assert (
        r"- bad failed on seed 0, seed 1, seed 2: ValueError: cannot do this | &lt;b&gt;" in (tmp_path / "toy.md").read_text()
    )
    again = Toy()
    run(again, own={"bad": broken}, out=tmp_path)
    assert set(scored(again)) == {(f"seed {i}", "broken") for i in range(3)}  # tried again, and nothing else


def test_a_part_that_cannot_be_prepared_is_named_once_and_the_others_go_on():
    class Missing(Toy):
        def prepare(self, part):
            if part == "seed 1":
                raise OSError("no such photo")
            return super().prepare(part)

    table = run(Missing())
    assert table.remarks()[0] == "seed 1 could not be prepared: no such photo"
    assert table.row("IG", "distance").n == 2 and len(table.failures) == 1


def test_what_cannot_be_run_as_it_was_asked_for_is_said_before_anything_is_prepared(tmp_path):
    class Short(Toy):
        def check(self):
            if self.seeds > 3:
                raise InputError("there are 3 seeds")

    short = Short(seeds=4)
    with pytest.raises(InputError, match="there are 3 seeds"):
        run(short, out=tmp_path)
    assert not short.done and not files(tmp_path)
    assert run(Short(), out=tmp_path).failures == ()


def test_a_run_that_fails_leaves_the_folder_as_it_was(tmp_path):
    (tmp_path / "there").mkdir()

    class Unreadable(Toy):
        def describe_data(self):
            raise InputError("nowhere does not exist")

    with pytest.raises(InputError, match="does not exist"):
        run(Unreadable(), out=tmp_path / "new" / "folder")
    with pytest.raises(InputError, match="does not exist"):
        run(Unreadable(), out=tmp_path / "there")
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_facts_of_single_classes_stand_together():
    names = ["accuracy", "accuracy of the commonest answers", "accuracy of Donut", "loss", "accuracy of Loc"]
    facts = tuple(Fact(name, 0.5 + 0.1 * i, math.nan, 1, 0) for i, name in enumerate(names))
    told = "accuracy 0.500; accuracy of the commonest answers 0.600; loss 0.800; by class: Donut 0.700, Loc 0.900"
    assert replace(run(Toy()), facts=facts).caption()[-1] == told


def test_many_failures_are_one_line():
    table = replace(run(Toy()), failures=tuple(Failure(f"seed {i}", "IG", "E: no") for i in range(9)))
    assert table.remarks() == ["IG failed on seed 0, seed 1, seed 2 and 6 more: E: no"]
    both = replace(table, failures=(*table.failures, *(Failure(f"seed {i}", "IG²", "E: no") for i in range(9))))
    assert both.remarks() == ["IG, IG² failed on seed 0, seed 1, seed 2 and 6 more: E: no"]
    two = replace(table, failures=(Failure("seed 0", None, "E: no"), Failure("seed 0", "IG", "E: other")))
    assert two.remarks() == ["seed 0 could not be prepared: E: no", "IG failed on seed 0: E: other"]


def test_scores_of_a_metric_nobody_knows_are_a_failure():
    class Odd(Toy):
        def score(self, part, prepared, method):
            return {"elegance": [1.0]}

    table = run(Odd(seeds=1))
    assert "'elegance'" in table.failures[0].said


def test_values_that_are_not_defined_are_left_out_counted_and_said(tmp_path):
    table = run(Toy(), own={"mine": undecided}, out=tmp_path)
    row = table.row("mine", "distance")
    assert (row.n, row.undefined, row.mean) == (2, 1, 0.0)
    assert "mine: n = 2, 1 not defined and skipped (closeness, distance)" in table.remarks()
    assert "- mine: n = 2, 1 not defined and skipped (closeness, distance)" in (tmp_path / "toy.md").read_text()
    again = Toy()
    assert run(again, own={"mine": undecided}, out=tmp_path).row("mine", "distance").undefined == 1  # read from the file
    assert not again.done
    assert "NaN" not in (tmp_path / "toy.json").read_text() + (tmp_path / "toy.cells.jsonl").read_text()


def test_where_nothing_is_defined_there_is_a_dash():
    table = run(Toy(seeds=1), own={"never": lambda model, x, *_, seed: x * math.nan, "mine": honest})
    assert table.shown("never", "distance").ours == "–" and "never" not in table.best("distance")


def test_warnings_of_ours_are_kept_with_the_score_and_those_of_others_are_not_held_back(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(Toy(), own={"mine": warned}, out=tmp_path)
        table = run(Toy(), own={"mine": warned}, out=tmp_path)
    assert table.notes == ("mine, seed 0: of seed 0 (and 2 more warnings)",)

    def loud(model, x, target, references, *, seed):
        warnings.warn("by someone else", RuntimeWarning, stacklevel=1)
        return x

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert run(Toy(seeds=1), own={"loud": loud}).notes == ()
    assert [str(warning.message) for warning in caught] == ["by someone else"]
    assert not any(issubclass(warning.category, IG2Warning) for warning in caught)


# -- files -------------------------------------------------------------------------------------------------------------


def test_the_files_say_what_was_compared_on_what_and_how(tmp_path):
    run(Toy(), out=tmp_path / "a" / "new folder")
    folder = tmp_path / "a" / "new folder"
    assert sorted(files(folder)) == ["toy.cells.jsonl", "toy.json", "toy.md"]
    found = json.loads((folder / "toy.json").read_text(encoding="utf-8"))
    assert found["suite"] == "toy" and found["data"] == "four numbers made up here"
    assert found["settings"] == {"seed": 0, "quick": False, "seeds": 3, "size": 1.0}
    assert {"ig2", "torch", "python", "machine", "device", "threads"} <= set(found["environment"])
    assert found["environment"]["torch"] == torch.__version__ and found["environment"]["device"] == "cpu"
    assert found["methods"]["IG²"] == {"type": "Off", "by": 0.25}
    assert len(found["rows"]) == 6
    assert found["rows"][0] == {
        "method": "IG", "metric": "closeness", "mean": pytest.approx(-1.1), "sd": pytest.approx(0.1), "n": 3, "undefined": 0,
        "better": "higher", "paper": -1.2, "values": [-1.0, -1.1, -1.2],
    }  # fmt: skip
    page = (folder / "toy.md").read_text(encoding="utf-8")
    for text in (
        "# A toy", "closeness ↑", "distance ↓", "Data: four numbers made up here", "over 3 seeds", "accuracy 0.910 ± 0.010",
        "seed 0, quick false, seeds 3, size 1.0", f"torch {torch.__version__}", "- closeness: minus the distance to the truth",
    ):  # fmt: skip
        assert text in page
    assert "| IG²       | **-0.275 ± 0.025** | -0.300 | **0.28 ± 0.02** |       |" in page.replace("0.27 ±", "0.28 ±")


def test_settings_that_json_does_not_know_do_not_cost_the_table(tmp_path):
    class Odd(Toy):
        def settings(self):
            return {**super().settings(), "most": math.inf, 3: {torch.float32}, "none": [math.nan, None]}

    found = run(Odd(), own={"far": Off(math.inf), "\ud800": honest}, out=tmp_path)
    settings = json.loads((tmp_path / "toy.json").read_text(encoding="utf-8"))["settings"]
    assert settings["most"] == "inf" and settings["3"] == "{torch.float32}" and settings["none"] == ["nan", None]
    assert Table.load(tmp_path / "toy.json").methods["far"] == {"type": "Off", "by": "inf"}
    assert found.row("far", "distance").undefined == 3


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(Toy())
    assert not files(tmp_path)


def test_a_table_is_read_back_as_it_was(tmp_path):
    table = run(Toy(), own={"bad": broken, "mine": undecided, "loud": warned}, out=tmp_path)
    back = Table.load(tmp_path / "toy.json")
    assert back.to_json() == table.to_json() and back.to_markdown() == table.to_markdown()
    assert math.isnan(back.row("bad", "distance").mean)
    assert isinstance(back.rows[0], Row) and back.rows[0].values == pytest.approx(table.rows[0].values)
    assert all(map(math.isnan, back.row("mine", "distance").values)) == all(
        map(math.isnan, table.row("mine", "distance").values)
    )


def test_a_gap_is_over_the_samples_that_both_methods_score(tmp_path):
    columns = {"hits": Column("higher"), "error": Column("lower")}
    values = {"a": (1.0, 2.0, 4.0, math.nan), "b": (0.5, 2.0, math.nan, 3.0)}
    rows = [
        Row(method, metric, **spread(some), better=column.better, paper=None, values=some)
        for method, some in values.items()
        for metric, column in columns.items()
    ]
    words = {"suite": "t", "title": "T", "unit": "sample", "quick": False, "data": "d", "settings": {}, "environment": {}}
    table = Table(**words, methods={"a": 1, "b": 1}, metrics=columns, rows=tuple(rows), shows="se")
    assert table.gap("a", "b", "hits") == Gap(pytest.approx(0.25), pytest.approx(0.25), 2)
    assert table.gap("a", "b", "error").mean == pytest.approx(-0.25)
    assert str(table.gap("a", "b", "hits")) == "+0.250 [-0.240, +0.740]"
    assert math.isnan(table.gap("a", "a", "hits").mean) is False and table.gap("a", "a", "hits").se == 0
    assert table.row("a", "hits").se == pytest.approx(stdev([1, 2, 4]) / math.sqrt(3))
    assert "0.882" in table.to_markdown() and "± standard error" in table.to_markdown()
    short = replace(table, rows=(replace(rows[0], values=(1.0,)), *rows[1:]))
    with pytest.raises(InputError, match="'a' has 1 values of hits and 'b' 4: only scores of the same samples"):
        short.gap("a", "b", "hits")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"made_by": "ig2 1"}', '{"made_by": "you"}', '{"made_by": "ig2 1", "metrics": {"a": 3}}']
)
def test_what_is_no_table_is_not_read_as_one(tmp_path, content):
    path = tmp_path / "toy.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"toy\.json (holds no table of ig2 bench|was not made by ig2 bench)"):
        Table.load(path)


def test_a_table_appears_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    run(Toy(), out=tmp_path)
    before = files(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(IG2Error, match=r"toy\.json cannot be written: No space left on device"):
        run(Toy(), own={"mine": honest}, out=tmp_path)
    after = files(tmp_path)
    assert sorted(after) == sorted(before) and after["toy.json"] == before["toy.json"]
    assert after["toy.cells.jsonl"].startswith(before["toy.cells.jsonl"])  # the scores are kept
    monkeypatch.undo()
    again = Toy()
    assert "mine" in run(again, own={"mine": honest}, out=tmp_path).methods and not again.done


def test_every_score_is_on_the_disk_before_the_next_begins(tmp_path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (synced.append(os.readlink(f"/proc/self/fd/{number}")), real(number)))
    counts = []
    path = tmp_path / "toy.cells.jsonl"

    def watch(step):
        counts.append((step.done, path.read_bytes().count(b"\n") if path.exists() else 0))

    run(Toy(), out=tmp_path, progress=watch)
    assert all(done == lines for done, lines in counts) and counts[-1] == (12, 12)
    assert synced.count(str(path)) == 12


def test_the_files_have_the_usual_rights(tmp_path):
    mask = os.umask(0o022)
    try:
        run(Toy(), out=tmp_path)
        run(Toy(), out=tmp_path, fresh=True)
    finally:
        os.umask(mask)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "taken" / "toy.cells.jsonl").mkdir(parents=True)
    for name in ("toy.json", "toy.md"):
        (tmp_path / name[4:]).mkdir()
        (tmp_path / name[4:] / name).write_text('{"made_by": "me"}')
    for out, said in (
        (tmp_path / "json", "exists already"),
        (tmp_path / "md", "exists already"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "deeper", "is a file"),
        ("/proc/nowhere", "/proc/nowhere cannot be written to: No such file or directory"),
        (tmp_path / "taken", "is a folder"),
        (tmp_path / ("x" * 300), "cannot be written to: File name too long"),
    ):
        suite = Toy()
        with pytest.raises(InputError, match=said):
            run(suite, out=out)
        assert not suite.done


def test_a_folder_without_rights_says_so(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store.Path, "open", refuse)
    with pytest.raises(InputError, match="cannot be written to: Permission denied"):
        run(Toy(), out=tmp_path)


# -- how it is shown ---------------------------------------------------------------------------------------------------

HOSTILE = (
    "a | b",
    "<script>alert(1)</script>",
    "**bold** _it_ `code`",
    "[x](javascript:alert(1))",
    "two\nlines\x1b[31m",
    "&lt;",
    "\\",
)


class Words(html.parser.HTMLParser):
    """The elements and words of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.words = Counter(), []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1

    def handle_data(self, data):
        self.words.append(data)


def plain(label: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in label).split())


def hostile_table() -> Table:
    class Hostile(Toy):
        title = "<img src=x onerror=alert(1)> | *"

        def describe_data(self):
            return "<b>|`*"

    return run(Hostile(), own={**dict.fromkeys(HOSTILE, honest), "<i>|": broken})


def test_hostile_labels_are_text_in_markdown():
    markdown_it = pytest.importorskip("markdown_it")
    page = hostile_table().to_markdown()
    made = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table").render(page)
    found = Words(made)
    assert not set(found.tags) & {"script", "img", "a", "em", "i", "b"}
    assert (
        found.tags["table"] == 1
        and found.tags["tr"] == 1 + 3 + len(HOSTILE) + 1
        and found.tags["td"] == (3 + len(HOSTILE) + 1) * 5
    )
    for label in HOSTILE:
        assert plain(label) in found.words, label
    assert "\x1b" not in page


def test_hostile_labels_are_text_in_a_notebook():
    found = Words(hostile_table()._repr_html_())
    assert not set(found.tags) & {"script", "img", "a", "em", "i"}
    assert found.tags["tr"] == 1 + 3 + len(HOSTILE) + 1
    assert all(plain(label) in found.words for label in HOSTILE)


def test_a_table_shows_itself():
    table = run(Toy())
    assert repr(table) == table.to_markdown()
    found = Words(table._repr_html_())
    assert found.tags["td"] == 3 * 4 and found.tags["b"] == 2 and "closeness ↑" in found.words


def test_the_papers_figures_have_a_column_where_there_are_some():
    table = run(Toy())
    head = table.to_markdown().splitlines()[2]
    assert [cell.strip() for cell in head.strip("|").split("|")] == ["method", "closeness ↑", "paper", "distance ↓", "paper"]
    assert table.shown("IG", "distance").paper == "1.20" and table.shown("Guided IG", "distance").paper == ""
    alone = run(Toy(), ["Guided IG"])
    assert "paper" not in alone.to_markdown() and "paper" not in alone._repr_html_()


def test_metrics_with_another_number_of_values_say_so():
    class Mixed(Toy):
        def score(self, part, prepared, method):
            return {"closeness": [1.0, 2.0], "distance": [1.0]}

    assert run(Mixed()).caption()[0].startswith("Mean ± standard deviation over 6 seeds (distance: 3); ↑")
    assert run(Toy(seeds=1)).caption()[0].startswith("Mean over 1 seed; ↑")


def test_a_quick_run_says_that_it_is_one():
    assert "A quick run" in run(Toy(quick=True)).to_markdown() and "A quick run" not in run(Toy()).to_markdown()


@pytest.mark.parametrize(("value", "shown"), [(-0.0004, "0.000"), (-0.0006, "-0.001"), (0.0, "0.000"), (12.34567, "12.346")])
def test_a_zero_has_no_sign(value, shown):
    assert number(value, 3) == shown


def test_a_row_that_there_is_not_is_named():
    with pytest.raises(InputError, match=r"the table has no 'IG3' × 'distance': its methods are list of 3"):
        run(Toy()).row("IG3", "distance")


# -- suites and options ------------------------------------------------------------------------------------------------


def test_a_suite_is_found_by_name_and_made_with_the_options(monkeypatch):
    monkeypatch.setitem(SUITES, "toy", Toy)
    assert run("toy").row("IG", "distance").n == 3
    assert run("toy", quick=True).quick and run("toy", quick=True).row("IG", "distance").n == 1
    assert run("toy", seeds=2, seed=5).row("IG", "distance").values == pytest.approx((1.5, 1.6))
    with pytest.raises(ChoiceError, match="there is no suite 'toyy'; did you mean toy"):
        run("toyy")
    with pytest.raises(ChoiceError, match="there is no suite 'q': choose from"):
        find_suite("q")


def test_every_suite_that_is_listed_can_be_made():
    for name, listed in SUITES.items():
        suite = find_suite(name, BenchOptions(quick=True))
        assert isinstance(suite, Suite) and suite.name == name and suite.quick and listed.about
        labels = set(suite.metrics())
        assert all(set(figures) <= labels for figures in suite.paper().values()) and suite.parts() and suite.methods()
        json.dumps(suite.settings(), allow_nan=False)


@pytest.mark.parametrize(
    ("options", "keyword"),
    [
        ({"seeds": 0}, "seeds"),
        ({"seeds": 1.5}, "seeds"),
        ({"samples": 0}, "samples"),
        ({"seed": "a"}, "seed"),
        ({"device": "toaster"}, "toaster"),
        ({"device": "meta"}, "meta"),
        ({"half": "left"}, "half"),
        ({"sede": 1}, "did you mean seed"),
        ({"data": "somewhere"}, "--data"),
        ({"samples": 3}, "--samples"),
    ],
)
def test_options_that_make_no_sense(monkeypatch, options, keyword):
    monkeypatch.setitem(SUITES, "toy", Toy)
    with pytest.raises(ChoiceError, match=keyword):
        run("toy", **options)
    with pytest.raises(InputError, match="omit"):
        run(Toy(), **options)  # its settings are its own


def test_options_do_not_change_themselves_and_the_suite_gets_a_device_that_exists(monkeypatch, tmp_path):
    monkeypatch.setitem(SUITES, "toy", Toy)
    monkeypatch.setattr(Toy, "from_options", Suite.from_options.__func__.__get__(Toy))
    options = BenchOptions()
    assert options.device == "auto" and find_suite("toy", options).device in ("cpu", "cuda")
    assert BenchOptions.parse(data=str(tmp_path)).data == tmp_path
    with pytest.raises(ChoiceError, match="--seeds"):
        find_suite("toy", BenchOptions(seeds=3))
    with pytest.raises(InputError, match="suite must be"):
        run(3)  # type: ignore[arg-type]


def test_a_method_without_references_does_not_get_the_suites():
    got = []
    method = WithoutReferences(lambda *arguments, **options: got.append((arguments, options)))
    method("model", "x", "target", "references", seed=3)
    assert got == [(("model", "x", "target", None), {"seed": 3})]


def test_settings_are_the_fields_that_are_shown():
    suite = toysuite.Toy(device="cuda")
    assert set(suite.settings()) == {"seed", "quick", "seeds", "size"}
    assert Column("higher").digits == 3
