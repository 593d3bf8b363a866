"""Processes that read ahead: the same rows as by threads, and none of them left behind."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from limits import HANGS, wait_for
from torch import nn

import ig2
from ig2 import modalities
from ig2._utils.suggestions import ChoiceError
from ig2.errors import IG2Error
from ig2.runs import Cluster, Source, execution, readers
from ig2.runs.files import lock_store
from ig2.runs.plan import Saving
from ig2.runs.planning import find_model, make_plan
from ig2.runs.sources import Item, find_source, group_items
from networks import data, refuses

pytestmark = pytest.mark.skipif(not readers.CAN_FORK, reason="processes read on Linux alone")
PARENT = os.getpid()


def explain(source: Any, model: Any, processes: bool) -> list[dict[str, Any]]:
    items = find_source(source)
    found = find_model(model, items)
    plan = make_plan(items, found, ig2.Gradient())
    batches = group_items(iter(items), 2)
    return [row for finish in execution.explain_locally(plan, batches, 2, "cpu", processes) for row in finish()]


def check_same(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    for row, other in zip(rows, others, strict=True):
        assert row.keys() == other.keys()
        for name in row:
            np.testing.assert_array_equal(row[name], other[name])


def test_processes_read_the_same_rows_as_threads(photos: Path, subject: modalities.image.ImageSubject) -> None:
    (photos / "red" / "1.png").write_bytes(b"broken")
    places: list[int] = []
    framing = subject.frame
    subject = replace(subject, frame=lambda image: places.append(os.getpid()) or framing(image))
    rows = explain(photos, subject, processes=True)
    assert not places  # nothing was read here
    assert [row.get("error_kind") for row in rows].count("InputError") == 1
    check_same(rows, explain(photos, subject, processes=False))
    assert set(places) == {PARENT}
    assert not multiprocessing.active_children()


def test_a_batch_stays_as_it_is_when_the_next_one_is_read(photos: Path, subject: modalities.image.ImageSubject) -> None:
    items = find_source(photos)
    plan = make_plan(items, subject, ig2.Gradient())
    groups = [list(items)[:3], list(items)[3:5], list(items)[5:9]]
    with readers.open_readers(plan, 1) as (read, _):  # one process, whose memory is used again
        loaded = [read(group) for group in groups]
    for group, found in zip(groups, loaded, strict=True):
        assert found.batches is not None and found.items == group
        assert torch.equal(found.batches[0][1].x, subject.read([item.content for item in group]).x)


def test_the_first_batches_are_read_before_they_are_asked_for(
    photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    framing = subject.frame
    noting = replace(subject, frame=lambda image: (begun / str(os.getpid())).touch() or framing(image))
    items = find_source(photos)
    plan = make_plan(items, noting, ig2.Gradient())
    groups = list(group_items(iter(items), 2))
    with readers.open_readers(plan, 3, first=groups[:2]) as (read, _):
        wait_for(lambda: len(list(begun.iterdir())) == 2)  # nothing was asked for
        found = [read(group) for group in reversed(groups)]  # in any order
    for group, loaded in zip(reversed(groups), found, strict=True):
        assert loaded.batches is not None and loaded.items == group
        assert torch.equal(loaded.batches[0][1].x, subject.read([item.content for item in group]).x)


def test_tensors_of_all_kinds_come_back() -> None:
    torch.manual_seed(0)
    learnt = torch.rand(3, requires_grad=True)
    sent = [
        torch.rand(4, 5).T, torch.rand(2, 3, 4)[:, 1:], torch.tensor(7), torch.zeros(0, 3), torch.tensor([True, False]),
        torch.rand(3).bfloat16(), torch.rand(3).to(torch.complex64), torch.eye(3).to_sparse(), learnt, nn.Parameter(learnt),
    ]  # fmt: skip
    memory, file = os.memfd_create("test"), io.BytesIO()
    try:
        readers._Pickler(file, memory).dump(sent)
        found = readers._Unpickler(file.getvalue(), memory, pins=False).load()
        assert os.fstat(memory).st_size >= sum(tensor.numel() * tensor.element_size() for tensor in sent[:7])
    finally:
        os.close(memory)
    for here, there in zip(sent, found, strict=True):
        assert type(here) is type(there) and here.dtype == there.dtype and here.requires_grad == there.requires_grad
        assert torch.equal(here.to_dense(), there.to_dense())


@pytest.mark.parametrize(
    ("asked", "daemonic", "expected"),
    [(None, False, True), (True, False, True), (False, False, False), (None, True, False)],
)
def test_for_a_gpu_processes_read_images_unless_asked_not_to(
    photos: Path,
    subject: modalities.image.ImageSubject,
    monkeypatch: pytest.MonkeyPatch,
    asked: bool | None,
    daemonic: bool,
    expected: bool,
) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", daemonic)  # True in a worker of a DataLoader
    opened: list[int] = []
    open_readers = readers.open_readers
    monkeypatch.setattr(execution, "open_readers", lambda *args: opened.append(1) or open_readers(*args))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.clone())
    items = find_source(photos)
    plan = make_plan(items, subject, ig2.Gradient(), saving=Saving("none"))
    batches = group_items(iter(items), 4)
    rows = [row for finish in execution.explain_locally(plan, batches, 1, "cuda", asked) for row in finish()]
    assert len(rows) == 12 and bool(opened) is expected


@pytest.mark.parametrize("asked", [None, True, False])
def test_a_run_reads_as_it_was_asked_to(net: nn.Module, tmp_path: Path, asked: bool | None) -> None:
    source = Odd("nothing")
    ig2.run(source, net, ig2.Gradient(), tmp_path, reading=ig2.Reading(batch=2, processes=asked))
    assert bool(source.read) is not asked  # what it notes stays in the processes


def test_processes_are_refused_where_there_are_none(net: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"reading": ig2.Reading(processes=True)}
    ray = options | {"cluster": Cluster()}
    refuses(ChoiceError, "Ray", lambda: ig2.run(data(4, 5), net, ig2.Gradient(), tmp_path, **ray))
    with monkeypatch.context() as patch:
        patch.setitem(multiprocessing.current_process()._config, "daemon", True)  # as in a worker of a DataLoader
        refuses(ChoiceError, "daemonic", lambda: ig2.run(data(4, 5), net, ig2.Gradient(), tmp_path, **options))
    monkeypatch.setattr(readers, "CAN_FORK", False)
    refuses(ChoiceError, "Linux", lambda: ig2.run(data(4, 5), net, ig2.Gradient(), tmp_path, **options))


class Refusing(Exception):
    """It can be pickled, and not made again: its arguments are not those of its class."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)


class Odd(Source):
    """Samples that cannot travel: their handles, what comes with them, or a GPU that they need and a fork has not."""

    kinds = ("tensor",)

    def __init__(self, wrong: str) -> None:
        self.wrong, self.samples, self.read = wrong, data(6, 5), list[Any]()

    def items(self) -> Iterator[Item]:
        for number in range(6):
            yield Item(str(number), (lambda number=number: number) if self.wrong == "handle" else number)

    def load(self, content: Any) -> Any:
        self.read.append(content)
        if self.wrong == "gpu" and os.getpid() != PARENT:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. Use the 'spawn' start method")
        sample = self.samples[content() if callable(content) else content]
        return (sample, 1.0, Refusing(3, "no")) if self.wrong == "rest" else sample

    def describe(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("wrong", ["handle", "rest", "gpu", "nothing"])
def test_what_processes_cannot_read_is_read_here(wrong: str, net: nn.Module) -> None:
    rows = explain(Odd(wrong), net, processes=True)
    assert len(rows) == 6 and not any("error" in row for row in rows)
    check_same(rows, explain(Odd("nothing"), net, processes=False))


def test_an_interrupted_run_leaves_no_processes_and_goes_on(
    photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path
) -> None:
    def stop(done: int, total: int) -> None:
        assert multiprocessing.active_children()
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ig2.run(
            photos, subject, ig2.Gradient(), tmp_path / "store", reading=ig2.Reading(batch=1, processes=True), progress=stop
        )
    assert not multiprocessing.active_children()
    assert 4 <= len(ig2.open(tmp_path / "store")) < 12
    store = ig2.run(photos, subject, ig2.Gradient(), tmp_path / "store", reading=ig2.Reading(batch=1))
    whole = ig2.run(photos, subject, ig2.Gradient(), tmp_path / "whole", reading=ig2.Reading(batch=1))
    check_same(list(store), list(whole))


def test_a_process_that_is_killed_ends_the_run_which_goes_on(
    photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path
) -> None:
    calls: list[Any] = []

    def frame(image: Any) -> Any:
        calls.append(image)
        if len(calls) == 8 and os.getpid() != PARENT:
            os.kill(os.getpid(), signal.SIGKILL)
        return subject.frame(image)

    killing, options = replace(subject, frame=frame), {"reading": ig2.Reading(batch=2, readers=1, processes=True)}
    with pytest.raises(IG2Error, match="killed"):
        ig2.run(photos, killing, ig2.Gradient(), tmp_path / "store", **options)
    assert not multiprocessing.active_children()
    assert 0 < len(ig2.open(tmp_path / "store")) < 12
    store = ig2.run(photos, killing, ig2.Gradient(), tmp_path / "store", reading=ig2.Reading(batch=2))
    assert len(store) == 12 and not store.failures


PRINTING = """
import sys
import torch, ig2
class Printing(torch.utils.data.Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, number):
        print("reading", number)
        return torch.eye(6)[number]
ig2.run(Printing(), torch.nn.Linear(6, 3), ig2.Gradient(), sys.argv[1], reading=ig2.Reading(batch=2, processes=True))
"""


@pytest.mark.slow
def test_what_a_source_prints_is_not_lost(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(ig2.__file__).parent.parent)}
    environment.pop("PYTHONUNBUFFERED", None)
    command = [sys.executable, "-c", PRINTING, str(tmp_path / "store")]
    printed = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=HANGS).stdout
    assert sorted(printed.split("\n")[:-1]) == [f"reading {number}" for number in range(6)]


KILLED = """
import multiprocessing, os, signal, sys
import torch, ig2
def stop(done, total):
    if done >= 4:
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
reading = ig2.Reading(batch=2, processes=True)
ig2.run(torch.eye(40), torch.nn.Linear(40, 3), ig2.Gradient(), sys.argv[1], reading=reading, progress=stop)
"""


@pytest.mark.slow
def test_processes_of_a_killed_run_end_and_hold_no_lock(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(ig2.__file__).parent.parent)}
    with (tmp_path / "pids").open("w") as pids:  # a pipe would stay open as long as one of them lives
        command = [sys.executable, "-c", KILLED, str(tmp_path / "store")]
        assert subprocess.run(command, stdout=pids, env=environment, check=False, timeout=HANGS).returncode == -signal.SIGKILL
    with lock_store(tmp_path / "store"):
        pass
    states = [Path(f"/proc/{pid}/cmdline") for pid in (tmp_path / "pids").read_text().split()]
    assert len(states) == 2
    wait_for(lambda: not any(state.exists() and state.read_bytes() for state in states))  # of one that ended it is empty


def test_threads_switch_often_beside_a_gpu_and_as_before_after_it() -> None:
    before, seen = sys.getswitchinterval(), list[float]()

    class Watched(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(sys.getswitchinterval())
            return x.sum(dim=1)

    items = find_source(data(4, 3))
    bare = find_model(Watched(), items)
    plan = make_plan(items, bare, ig2.Gradient())
    for device, interval in (("cpu", before), ("mps", execution.SWITCH_SECONDS)):
        for finish in execution.explain_locally(plan, group_items(iter(items), 2), 1, device, False):
            finish()
        assert seen[-1] == pytest.approx(interval)
        assert sys.getswitchinterval() == before


class Hanging(torch.utils.data.Dataset[torch.Tensor]):
    """Samples of which all but the first never come."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index > 1 and os.getpid() != PARENT:
            time.sleep(HANGS)
        return torch.full((5,), float(index))


def test_a_run_that_is_stopped_does_not_wait_for_a_process_that_hangs(net: nn.Module) -> None:
    items = find_source(Hanging())
    plan = make_plan(items, find_model(net, items), ig2.Gradient())
    explained = execution.explain_locally(plan, group_items(iter(items), 1), 2, "cpu", True)
    began = time.monotonic()
    assert next(explained)()[0]["id"] == "0"
    explained.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < HANGS and not multiprocessing.active_children()
