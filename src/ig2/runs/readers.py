"""Processes that read ahead, so that reading does not hold the lock of the process that launches the network's kernels.

They are forked: nothing of the plan is pickled but the items, and they never touch a GPU. What they read comes back in shared
memory. Whatever cannot travel is read in this process.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing  # tensors then go to other processes in shared memory
from torch import Tensor

from ig2.errors import IG2Error
from ig2.runs.files import close_locks
from ig2.runs.plan import Loaded, Plan
from ig2.runs.sources import Item

CAN_FORK = sys.platform == "linux"  # elsewhere a fork beside threads may hang
PARENT_SECONDS = 1.0  # between two looks whether the parent lives
NO_GPU_HERE = "forked subprocess"  # of what PyTorch raises where a fork uses the GPU of its parent

MADV_REMOVE = 9  # on Linux

_plan: Plan  # of a process that reads


@contextmanager
def open_readers(plan: Plan, count: int, pins: bool = False) -> Iterator[Callable[[list[Item]], Loaded]]:
    """Start processes that read for a plan; they end with the context, and with this process, whatever ends it.

    Args:
        plan: whose `read` they run.
        count: how many.
        pins: whether what they read goes on to memory that a GPU copies from.

    Yields:
        A function that reads items in one of them, and may be called in several threads.
    """
    with ProcessPoolExecutor(count, multiprocessing.get_context("fork"), _begin, (plan, os.getpid())) as pool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: these use nothing that they hold
            pool.submit(os.getpid).result()  # they start here, and not when more threads run

        def read(items: list[Item]) -> Loaded:
            try:
                content = pool.submit(_read, items).result()
            except BrokenProcessPool as error:
                raise IG2Error(
                    "a process that reads ahead was killed, by the system if memory ran out: what is explained is kept, and "
                    f"the same call goes on; fewer than readers={count} need less memory"
                ) from error
            except Exception:  # of items that cannot be pickled
                content = None
            if content is None:
                return plan.read(items)
            loaded: Loaded = replace(pickle.loads(content), items=items)
            return pin(loaded, discards=True) if pins else loaded

        yield read


def pin(loaded: Loaded, discards: bool = False) -> Loaded:
    """Copy items to memory that a GPU copies from without waiting.

    Args:
        loaded: the items.
        discards: whether the memory they were in, shared with a process, is used no more.
    """
    batches = []
    for places, batch in loaded.batches or ():
        x = batch.x
        if isinstance(x, Tensor) and not x.is_cuda:
            batch = replace(batch, x=x.pin_memory())
            if discards and batch.x.data_ptr() != x.data_ptr():
                discard(x)
        batches.append((places, batch))
    return loaded if loaded.batches is None else replace(loaded, batches=batches)


def discard(tensor: Tensor) -> None:
    """Give back the pages of shared memory, which are zero from here on.

    With the tensor they would be freed under Python's lock: of 64 photos, 38 MB, for 7 ms. A call by ctypes does not hold it.
    """
    libc = ctypes.CDLL(None)
    size = tensor.untyped_storage().nbytes()
    libc.madvise(ctypes.c_void_p(tensor.untyped_storage().data_ptr()), ctypes.c_size_t(size), MADV_REMOVE)


def _begin(plan: Plan, parent: int) -> None:
    """Make a process ready: Ctrl-C is for the parent, which ends it; its lock is not ours; one thread does the work."""
    global _plan
    _plan = plan
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    close_locks()
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def _read(items: list[Item]) -> bytes | None:
    """Read items; None where they must be read in the parent."""
    loaded = _plan.read(items)
    if any(NO_GPU_HERE in failure["error"] for failure in loaded.failures.values()):
        return None
    try:
        return bytes(ForkingPickler.dumps(replace(loaded, items=[])))
    except Exception:  # inputs that cannot be pickled, or no room in shared memory
        return None
