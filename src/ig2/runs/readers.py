"""Processes that read ahead, so that reading does not hold the lock of the process that launches the network's kernels.

They are forked: only the items are pickled, not the plan, and they never touch a GPU. Each has a pipe, and a file in memory
that returns its tensors. Items that cannot be sent are read in this process.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from ig2.errors import IG2Error
from ig2.runs.files import close_locks
from ig2.runs.plan import Loaded, Plan
from ig2.runs.sources import Item

CAN_FORK = sys.platform == "linux"  # elsewhere a fork beside threads may hang
PARENT_SECONDS = 1.0  # between two looks whether the parent lives
NO_GPU_HERE = "forked subprocess"  # of what PyTorch raises where a fork uses the GPU of its parent


def can_fork() -> bool:
    """Return whether this process may fork readers: one of a pool of `multiprocessing`, or of a `DataLoader`, may not."""
    return CAN_FORK and not multiprocessing.current_process().daemon


@dataclass(frozen=True)
class _Reader:
    """The parent's handle of a process that reads."""

    pipe: Connection
    memory: int
    """The descriptor of the file with its tensors, which the next batch overwrites."""


@contextmanager
def open_readers(
    plan: Plan, count: int, pins: bool = False, first: Sequence[list[Item]] = ()
) -> Iterator[tuple[Callable[[list[Item]], Loaded], Callable[[], None]]]:
    """Start processes that read for a plan; they end with the context, and with this process, whatever ends it.

    Args:
        plan: the plan whose `read` they run.
        count: the number of processes.
        pins: whether to place items in memory that a GPU copies from without waiting.
        first: the first requests: each process begins to read one of these while the next is forked.

    Yields:
        A function that reads items in one of them, and may be called in several threads; and one that ends them at once, for a
        run that is stopped: one of them may hang, and would block any thread that waits for it.
    """
    idle: SimpleQueue[_Reader] = SimpleQueue()
    begun: dict[str, _Reader] = {}  # by the id of the first item
    with ExitStack() as joining, ExitStack() as ending:  # all are ended before the first is waited for
        for number in range(count):  # they start here, and not when more threads run
            reader = _start(plan, joining, ending)
            request = _pack(first[number]) if number < len(first) else None
            if request is None:
                idle.put(reader)
            else:
                reader.pipe.send_bytes(request)
                begun[first[number][0].id] = reader

        def read(items: list[Item]) -> Loaded:
            request = _pack(items)
            if request is None:
                return plan.read(items)
            reader = begun.pop(items[0].id, None)
            has_begun = reader is not None
            reader = reader or idle.get()
            try:
                if not has_begun:
                    reader.pipe.send_bytes(request)
                loaded = _unpack(reader.pipe.recv_bytes(), reader.memory, pins)
            except (EOFError, ConnectionError) as error:
                raise IG2Error(
                    "a process that reads ahead was killed, by the system if memory ran out: what is explained is kept, and "
                    f"the same call goes on; fewer than ig2.Reading(readers={count}) need less memory"
                ) from error
            finally:
                idle.put(reader)
            return plan.read(items) if loaded is None else replace(loaded, items=items)

        yield read, ending.close


def _pack(items: list[Item]) -> bytes | None:
    """Pickle items; None if they cannot be pickled."""
    try:
        return pickle.dumps(items)
    except Exception:  # whatever a handle of the user's source raises
        return None


def _unpack(content: bytes, memory: int, pins: bool) -> Loaded | None:
    """Return the items that a process read; None if they must be read here."""
    try:
        loaded: Loaded | None = _Unpickler(content, memory, pins).load() if content else None
    except Exception:  # whatever a thing of the user's source raises that can be pickled, and not made again
        return None
    return loaded


def _start(plan: Plan, joining: ExitStack, ending: ExitStack) -> _Reader:
    """Fork a process that reads."""
    memory = os.memfd_create("ig2-read")
    joining.callback(os.close, memory)
    pipe, end = multiprocessing.Pipe()
    joining.enter_context(pipe)
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(plan, end, memory, os.getpid()))
    with end, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: these use nothing that they hold
        process.start()
    joining.callback(process.join)
    ending.callback(process.kill)
    return _Reader(pipe, memory)


def pin(loaded: Loaded) -> Loaded:
    """Copy items to memory that a GPU copies from without waiting, unless they are already there."""
    batches = []
    for places, batch in loaded.batches or ():
        x = batch.x
        if isinstance(x, Tensor) and not x.is_cuda:
            batch = replace(batch, x=x.pin_memory())
        batches.append((places, batch))
    return loaded if loaded.batches is None else replace(loaded, batches=batches)


class _Pickler(pickle.Pickler):
    """A pickler that writes tensors to a file in memory, one after another, and records their positions.

    The pages of the file are reused for every batch. In the shared memory of PyTorch each batch has new ones, and a descriptor
    to request, which took five times as long under Python's lock.
    """

    def __init__(self, file: io.BytesIO, memory: int) -> None:
        super().__init__(file, protocol=5)
        self.memory, self.place = memory, 0

    def persistent_id(self, thing: Any) -> Any:
        if type(thing) is not Tensor or thing.layout != torch.strided or thing.device.type != "cpu" or thing.requires_grad:
            return None
        place, content = self.place, memoryview(_as_bytes(thing.contiguous()))
        while content:
            written = os.pwrite(self.memory, content, self.place)
            content, self.place = content[written:], self.place + written
        return place, thing.dtype, tuple(thing.shape)


class _Unpickler(pickle.Unpickler):
    """The unpickler of `_Pickler`; the bytes come from a fork of this process."""

    def __init__(self, content: bytes, memory: int, pins: bool) -> None:
        super().__init__(io.BytesIO(content))
        self.memory, self.pins = memory, pins and torch.cuda.is_available()

    def persistent_load(self, identity: Any) -> Tensor:
        place, dtype, shape = identity
        tensor = torch.empty(shape, dtype=dtype, pin_memory=self.pins)
        content = memoryview(_as_bytes(tensor))
        while content:
            read = os.preadv(self.memory, [content], place)
            content, place = content[read:], place + read
        return tensor


def _as_bytes(tensor: Tensor) -> Any:
    return tensor.reshape(-1).view(torch.uint8).numpy()


def _serve(plan: Plan, pipe: Connection, memory: int, parent: int) -> None:
    """Read the items that the parent requests, until it ends this process."""
    # Ctrl-C is for the parent, which ends this; its lock is not ours; one thread does the work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    close_locks()
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    while True:
        content = _read(plan, pipe.recv_bytes(), memory)
        for stream in (sys.stdout, sys.stderr):  # what the source printed, which a killed process would take along
            with suppress(Exception):  # there is none, or it is closed
                stream.flush()
        pipe.send_bytes(content)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def _read(plan: Plan, request: bytes, memory: int) -> bytes:
    """Read items; empty bytes if they must be read in the parent."""
    try:
        loaded = plan.read(pickle.loads(request))
        if any(NO_GPU_HERE in failure["error"] for failure in loaded.failures.values()):
            return b""
        file = io.BytesIO()
        _Pickler(file, memory).dump(replace(loaded, items=[]))
        return file.getvalue()
    except Exception:  # items or inputs that cannot be pickled
        return b""
