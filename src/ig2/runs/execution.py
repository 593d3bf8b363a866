"""`ig2.run`: explain every item of a source once, into a store that survives any interruption."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from ig2._utils.checks import check_count
from ig2._utils.devices import find_device
from ig2._utils.files import FileError
from ig2._utils.progress import Progress, ProgressOption
from ig2._utils.suggestions import ChoiceError
from ig2.errors import InputError, format_count
from ig2.groups import Groups
from ig2.methods import Grid, Method
from ig2.modalities.base import Subject
from ig2.modalities.language import LanguageModel, Prompt
from ig2.model import Model
from ig2.question import Question
from ig2.runs import store as stores
from ig2.runs.files import (
    PROGRESS,
    Writer,
    drop_failed,
    list_parts,
    lock_store,
    open_part,
    read_json,
    read_part,
    write_json,
)
from ig2.runs.ids import contains, count_items, hash_ids, list_stored_ids
from ig2.runs.language import plan_prompts
from ig2.runs.manifest import check_manifest, make_fingerprint, make_folder
from ig2.runs.plan import Finish, Loaded, MakeMethod, Plan, Saving
from ig2.runs.planning import check_saving, find_model, make_plan
from ig2.runs.readers import can_fork, open_readers, pin
from ig2.runs.rows import Row, make_table
from ig2.runs.sources import Item, Reading, find_source, group_items
from ig2.runs.store import Store

Read = Callable[[list[Item]], Loaded]
READERS = 2  # threads or processes that read ahead
GPU_READERS = 8  # the same for a GPU: one decodes some 300 photos a second
FIRST_FAILURES = 100  # after so many failed items and not one success, the run is at fault and not the items
SWITCH_SECONDS = 0.0005  # between two threads that want Python's lock
IN_FLIGHT = 4  # batches that wait for the writer, besides the one being explained, while a part goes to the disk


@dataclass(frozen=True)
class Cluster:
    """The workers of a run with Ray.

    Args:
        workers: the number of processes that explain, each with its own copy of the model.
        gpus_per_worker: the number of Ray's GPUs for each worker; 0 to run on CPUs.
        address: the address of a Ray cluster; by default one is started on this machine.
    """

    workers: int = 1
    gpus_per_worker: float = 0.0
    address: str | None = None


def run(
    source: Any,
    model: Subject | LanguageModel | Model | nn.Module | str,
    method: Method | MakeMethod | Callable[[LanguageModel, Prompt], Method] | None = None,
    out: str | PathLike[str] = "ig2-run",
    question: Question = Question(),
    saving: Saving = Saving(),
    reading: Reading = Reading(),
    *,
    device: str = "auto",
    cluster: Cluster | None = None,
    progress: ProgressOption = False,
) -> Store:
    """Explain every item of a source, and store a row for each.

    The same call resumes an interrupted run: items on disk are not explained again, and the rows are those of a run without
    interruption. An item that cannot be explained becomes a row with its error.

    Args:
        source: a folder, file or pattern of images, tables (Parquet, CSV, TSV, JSON lines) or texts; `module:function`; a
            Hugging Face or PyTorch data set; or a `Source`. It may have grown since the last run.
        model: a subject of `ig2.modalities`, which knows its data; a language model of `ig2.modalities.language`, for
            sources of prompts, whose rows may have columns "target", "against" and "rather_than"; a network or the result of
            `ig2.wrap`, for sources of tensors; or a name, as `ig2.modalities.loading.load_network` takes it.
        method: a method, or a function of (subject, batch) that returns one, for a language model of (model, prompt). By
            default `IG2()`, or the default method of the language model.
        out: the folder of the store.
        question: what is asked of every item. Its references may also be a source to choose them from,
            of which 200 evenly spaced items are looked at.
        saving: what the store keeps.
        reading: how the items are read.
        device: the device of the network; "auto" takes a GPU if there is one. With Ray, `cluster` decides.
        cluster: the workers of a run with Ray; by default all is explained in this process.
        progress: True for a progress bar, or a function called with (done, total).

    Returns:
        The store, opened.

    Raises:
        InputError: if an argument is invalid; if the store belongs to another run, with the differences; if another process
            is writing to it; if none of the first items can be explained.
        FileError: if the store cannot be written. Rows already written stay, and the same call resumes the run.

    >>> import tempfile, torch, ig2
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = run(torch.eye(4), torch.nn.Linear(4, 3), ig2.IntegratedGradients(), folder)
    ...     len(store), store["2"]["values"].shape
    (4, (4,))
    """
    folder = Path(out)
    if cluster is not None:
        check_count(cluster.workers, "workers")
    if reading.processes and (cluster is not None or not can_fork()):
        raise ChoiceError(
            "processes=True is for Linux, not for Ray, whose workers read by threads, and not for a daemonic process, "
            "which may have no others: omit it"
        )
    items = find_source(source, id=reading.id, label=reading.label, skip=folder)
    plan: Plan
    if isinstance(model, LanguageModel):
        if cluster is not None:
            raise ChoiceError("a language model does not run with Ray: omit cluster")
        where = find_device(device)
        plan = plan_prompts(items, model.to(where), method, question, saving, reading.column)
    else:
        found = find_model(model, items)
        where = "cpu" if cluster is not None else find_device(device)  # Ray's actors have the GPUs
        if isinstance(found, Subject):
            found.to(where)
        elif found.device is not None:
            found.net.to(where)
        saving = check_saving(saving, found if isinstance(found, Subject) else None)
        plan = make_plan(items, found, method, question, saving, reading.column)
    known = make_fingerprint(plan, question.references)
    return run_plan(plan, known, folder, reading, device=where, cluster=cluster, progress=progress)


def run_plan(
    plan: Plan,
    fingerprint: dict[str, Any],
    folder: Path,
    reading: Reading = Reading(),
    *,
    device: str,
    cluster: Cluster | None = None,
    progress: ProgressOption = False,
) -> Store:
    """Explain the items of a plan that are missing from a store. The other arguments are those of `run`.

    Args:
        plan: everything that determines the rows.
        fingerprint: the plan in words and digests, by which the store recognises its run.
        folder: the folder of the store.
        device: the device of the network.

    Returns:
        The store, opened.
    """
    items = plan.source
    with ExitStack() as stack:
        make_folder(folder)
        stack.enter_context(lock_store(folder))
        check_manifest(folder, plan, fingerprint)
        if reading.retry_failed:
            drop_failed(folder)
        known = hash_ids(list_stored_ids(folder))
        total, pending = count_items(items, known)
        state = _State(folder, total, total - pending, len(known) - (total - pending))
        writer = Writer(folder, state.save, plan.saving.part_bytes, plan.saving.flush_seconds)
        state.catch_up()
        bar = stack.enter_context(Progress(progress, "explain", "item"))
        bar.expect(total)
        bar.advance(total - pending)
        waiting = (item for item in items if not contains(known, item.id)) if len(known) else iter(items)
        batches = group_items(waiting, reading.batch or plan.modality.batch)
        if cluster is not None:
            from ig2.runs.cluster import explain_on_cluster

            explained = explain_on_cluster(plan, batches, cluster)
        else:
            explained = explain_locally(plan, batches, reading.readers or count_readers(device), device, reading.processes)
        with closing(explained):  # ends its threads or actors, whatever ends the writing
            _write_rows(plan, explained, writer, state, bar)
    return stores.open(folder)


def explain_locally(
    plan: Plan, batches: Iterator[list[Item]], readers: int, device: str, processes: bool | None = None
) -> Generator[Finish, None, None]:
    """Explain batches in this process, in order, while later ones are read and earlier ones are finished.

    Args:
        plan: everything that determines the rows.
        batches: the items of each batch.
        readers: the number of threads or processes that read.
        device: the device of the network.
        processes: whether to read in processes; by default for images and signals on a GPU, on Linux.

    Yields:
        A function that waits for the rows of a batch. It can still be called after the end, so that no result is lost.
    """
    # Finding regions in each image takes long enough to have threads of its own; other rows are made by who writes them.
    finds_regions = isinstance(plan.saving.values, Groups) and not isinstance(plan.saving.values, Grid)
    # Beside a GPU, threads that decode take Python's lock from the one that launches kernels, hundreds for each batch.
    if processes is None:
        processes = can_fork() and device.startswith("cuda") and plan.subject is not None and plan.modality.reads_ahead
    first = list(itertools.islice(batches, readers)) if processes else []
    batches = itertools.chain(first, batches)
    in_threads = nullcontext((plan.read, lambda: None))
    with (
        nullcontext() if device == "cpu" else _switch_often(),
        open_readers(plan, readers, device.startswith("cuda"), first) if processes else in_threads as (read, stop),
        ThreadPoolExecutor(readers, "ig2-read") as reading,
        ThreadPoolExecutor(readers, "ig2-rows") as finishing,
        closing(_read_in_order(read, batches, readers, device, reading)) as batches_read,
        ExitStack() as at_once,
    ):
        at_once.push(lambda error, *_: stop() if error is not None else None)
        for number, loaded in enumerate(batches_read):
            finish = plan.explain(loaded, quiet=number > 0)
            yield finishing.submit(finish).result if finds_regions else finish


@contextmanager
def _switch_often() -> Iterator[None]:
    """Keep threads from holding Python's lock for long while another waits for it.

    The thread that launches kernels releases the lock at many of them, and by default waits up to 5 ms to get it back. With a
    network of 60 tiny layers, this made runs 7 % faster.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _read_in_order(
    read: Read, batches: Iterator[list[Item]], readers: int, device: str, pool: ThreadPoolExecutor
) -> Generator[Loaded, None, None]:
    loads: deque[Future[Loaded]] = deque()
    try:
        for items in batches:
            loads.append(pool.submit(_read_ahead, read, items, device))
            if len(loads) > readers:
                yield loads.popleft().result()
        while loads:
            yield loads.popleft().result()
    finally:
        for load in loads:
            load.cancel()


def count_readers(device: str) -> int:
    """Return the number of readers: on a CPU they take time from the network, on a GPU they must keep up with it."""
    return min(GPU_READERS, max(READERS, os.cpu_count() or 1)) if device.startswith("cuda") else READERS


def _read_ahead(read: Read, items: list[Item], device: str) -> Loaded:
    """Read items into memory from which a GPU copies asynchronously."""
    loaded = read(items)
    return pin(loaded) if device.startswith("cuda") else loaded


def _write_rows(plan: Plan, explained: Iterator[Finish], writer: Writer, state: _State, bar: Progress) -> None:
    """Write rows in the order they arrive, in a separate thread, a few batches behind the explanation."""
    schema = _stored_schema(state.folder)
    early: list[Row] = []  # failures from before the first success, which shows the shape of the values
    writes: deque[Future[int]] = deque()

    def write(finish: Finish) -> int:
        rows = finish()
        writer.add(make_table(rows, schema))
        return len(rows)

    with ThreadPoolExecutor(1, "ig2-write") as thread:
        try:
            for finish in explained:
                if schema is None:
                    rows = finish()
                    early += rows
                    success = next((row for row in rows if "error" not in row), None)
                    if success is None:
                        _check_hope(early)
                        continue
                    schema, finish = plan.make_schema(success), partial(list, early)
                writes.append(thread.submit(write, finish))
                while len(writes) > IN_FLIGHT:
                    bar.advance(writes.popleft().result())
            while writes:
                bar.advance(writes.popleft().result())
            if schema is None and early:
                raise InputError(f"none of {format_count(len(early), 'item')} can be explained: {early[0]['error']}")
        finally:
            # whatever ended the run, what is explained goes to the disk: an error of the disk comes first
            try:
                while writes:
                    writes.popleft().result()
            except FileError:
                for waiting in writes:
                    waiting.cancel()
                raise
            thread.submit(writer.close).result()
            state.write()


def _check_hope(early: Sequence[Row]) -> None:
    if len(early) >= FIRST_FAILURES:
        raise InputError(
            f"none of the first {len(early)} items can be explained, so the run is at fault and not they: {early[0]['error']}"
        )


def _stored_schema(folder: Path) -> Any:
    parts = list_parts(folder)
    if not parts:
        return None
    with open_part(parts[0]) as part:
        return part.schema_arrow


@dataclass
class _State:
    """The progress of a run, stored beside its rows."""

    folder: Path
    total: int
    done: int
    gone: int  # rows of items that the source does not have any more
    failed: int = 0
    began: float = field(default_factory=time.monotonic)
    before: dict[str, Any] = field(default_factory=dict)
    items: int = 0

    def catch_up(self) -> None:
        """Count the failures on disk, and go on where an earlier run ended."""
        path = self.folder / PROGRESS
        self.before = read_json(path) if path.exists() else {}
        for part in list_parts(self.folder):
            errors = read_part(part, ["error"])["error"]
            self.failed += len(errors) - errors.null_count
        self.write()

    def save(self, rows: int, failed: int) -> None:
        """Record that rows are on disk."""
        self.done += rows
        self.items += rows
        self.failed += failed
        self.write()

    def write(self) -> None:
        """Write the progress."""
        seconds = time.monotonic() - self.began
        write_json(
            self.folder / PROGRESS,
            {
                "total": self.total,
                "done": self.done,
                "failed": self.failed,
                "gone": self.gone,
                "items": int(self.before.get("items", 0)) + self.items,
                "seconds": float(self.before.get("seconds", 0.0)) + seconds,
                "rate": self.items / seconds if self.items and seconds else float(self.before.get("rate", 0.0)),
            },
        )
