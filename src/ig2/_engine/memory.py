"""How many points to evaluate at once, and what to do when that was too many."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import torch
from torch import Tensor

from ig2._engine.private import TorchDispatchMode, version_of
from ig2._utils.checks import is_count
from ig2.errors import InputError, OutOfMemoryError, describe

# Of the memory that is free, what one batch may plan for: the estimate knows the saved activations, not the
# workspaces of convolutions.
SHARE_OF_FREE = 0.5
# More than this much in flight loses on a CPU: the activations have long left its caches, and memory asked for in larger
# pieces is given back and faulted in again at every step. Curves of 100 photos took 3.3 s with this, 7.4 s with 1 GiB.
CPU_BYTES = 1 << 27
# But some points at least, and one for each thread.
CPU_POINTS = 4
MOST_POINTS = 4096


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out.

    CUDA has a type for it, the allocators of the CPU, of cuBLAS and of MPS each only a sentence.
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    sentences = ("not enough memory", "allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "out of memory")
    return isinstance(error, RuntimeError) and any(sentence in str(error) for sentence in sentences)


@contextmanager
def explain_memory_errors() -> Iterator[None]:
    """Raise an `OutOfMemoryError` with advice where memory runs out and there is no batch to halve."""
    try:
        yield
    except OutOfMemoryError:
        raise
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"there is no memory for a single sample, or for the results of all: explain fewer samples in a call, or keep "
            f"less of them (paths, per_reference). {error}"
        ) from error


def is_dense(tensor: Tensor) -> bool:
    """Return whether its values are one block of memory."""
    return tensor.layout == torch.strided and not tensor.is_nested


class Saved(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that the graphs made inside keep, beside weights."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        super().__init__(self._keep, _take)
        self._weights = {weight.data_ptr() for weight in weights if is_dense(weight)}
        self._storages: dict[int, int] = {}

    def __enter__(self) -> Saved:  # type: ignore[override]
        super().__enter__()
        return self

    @property
    def bytes(self) -> int:
        return sum(self._storages.values())

    def note(self, tensor: Tensor) -> None:
        """Count a tensor that is kept. It has to stay: memory used twice would be counted once."""
        with suppress(RuntimeError):  # inside torch.func tensors have no storage
            if is_dense(tensor) and tensor.data_ptr() not in self._weights:
                self._storages[tensor.data_ptr()] = tensor.untyped_storage().nbytes()

    def _keep(self, tensor: Tensor) -> tuple[Tensor, int]:
        self.note(tensor)
        kept = tensor.detach()  # a node that keeps its own output would never be let go
        return kept, version_of(kept)


def _take(kept: tuple[Tensor, int]) -> Tensor:
    """Return what a graph kept, as it was: autograd leaves this check to hooks where there are
    any."""
    tensor, version = kept
    if version_of(tensor) != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor "
            f"{tuple(tensor.shape)}"
        )
    return tensor


class Written(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes that all operations write: no less than what a graph keeps of them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        parts = result if isinstance(result, (tuple, list)) else [result]
        self.bytes += sum(part.nbytes for part in parts if isinstance(part, Tensor))
        return result


def free_bytes(device: torch.device) -> int:
    """Return how much memory could be allocated now on the device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    try:
        with open("/proc/meminfo") as info:
            for line in info:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 4 << 30


def peak_bytes(device: torch.device) -> int | None:
    """Return the most memory ever held: of a GPU by this process, else by the process itself."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class BatchSize:
    """The number of points evaluated at once: given, or from what one point needs; halved when memory runs out."""

    def __init__(self, wanted: int | Literal["auto"], bytes_per_point: int, device: torch.device) -> None:
        if wanted == "auto":
            budget = int(free_bytes(device) * SHARE_OF_FREE)
            if device.type == "cpu":
                enough = max(CPU_POINTS, torch.get_num_threads()) * bytes_per_point
                budget = min(budget, max(CPU_BYTES, enough))
            self.points = max(1, min(MOST_POINTS, budget // max(1, bytes_per_point)))
        elif is_count(wanted):
            self.points = int(wanted)
        else:
            raise InputError(f"batch_size must be a positive integer or 'auto', got {describe(wanted)}")

    def halve(self) -> None:
        """Plan for half; with one point there is nothing left to halve."""
        if self.points == 1:
            raise OutOfMemoryError("the network runs out of memory on a single sample: free memory or use smaller inputs")
        self.points //= 2

    def over(self, total: int, work: Callable[[range], None], points_each: int = 1) -> None:
        """Do `work` on consecutive ranges of 0..total, each again in smaller pieces when memory ran out.

        `points_each` is how many points one of the total takes the memory of.
        """
        start = 0
        while start < total:
            piece = range(start, min(start + max(1, self.points // points_each), total))
            try:
                work(piece)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or isinstance(error, OutOfMemoryError):
                    raise
                del error  # its traceback holds the tensors that did not fit
            else:
                start = piece.stop
                continue
            # not from the piece's length: of a single known path, a whole batch of points is evaluated at once
            self.halve()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
