"""Timing side by side, tables, and files that say what they were measured on."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import ig2

Row = dict[str, Any]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def clock_and_cpu(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock, and of all threads together."""
    cpu = time.process_time()
    clock = seconds(work)
    return clock, time.process_time() - cpu


def side_by_side(contestants: dict[str, Callable[[], object]], rounds: int = 3) -> dict[str, list[float]]:
    """Seconds of each contestant, taken in turns, so that whatever else the machine does hits all of them."""
    for work in contestants.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, work in contestants.items():
            times[name].append(seconds(work))
    return times


def ratio(slow: list[float], fast: list[float]) -> str:
    """How many times faster, median over rounds, with the smallest and the largest."""
    each = [a / b for a, b in zip(slow, fast, strict=True)]
    return f"{statistics.median(each):.1f} ({min(each):.1f}–{max(each):.1f})"


def table(rows: list[Row], title: str) -> str:
    names = list(rows[0])
    widths = [max(len(name), *(len(str(row[name])) for row in rows)) for name in names]
    lines = [
        "  ".join(str(cell).ljust(width) for cell, width in zip(cells, widths, strict=True))
        for cells in [names, ["-" * width for width in widths], *([row[name] for name in names] for row in rows)]
    ]
    return f"\n{title}\n" + "\n".join(lines) + "\n"


def save(results: dict[str, list[Row]], folder: Path, name: str = "performance.json") -> Path:
    """Write results with the environment they hold for."""
    folder.mkdir(parents=True, exist_ok=True)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    environment = {
        "ig2": ig2.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": [round(load, 1) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,  # others' work too
        "gpu": gpu,
    }
    path = folder / name
    path.write_text(json.dumps({"environment": environment, "results": results}, indent=2) + "\n")
    return path
