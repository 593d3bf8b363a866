"""Many seeds, in one process or several, within a time; and what came of them."""

from __future__ import annotations

import multiprocessing
import re
import time
import traceback
import warnings
from collections import Counter

import torch

from .oracles import Finding, Outcome, check

# What was looked into and is no fault of ours, by seed and oracle; it is counted, and no finding.
EXPLAINED: dict[tuple[int, str], str] = {
    (2663, "not complete"): "bfloat16, values around 1e3 that sum to nothing: 0.0002 is one rounding of their sum in float32",
    (2951, "false alarm"): "float16: 1e4 y overflows, and the sigmoid's slope between infinities is nothing",
    (20962, "prepared and unprepared"): "a step of 10 from a distance of 4e-15, which is zero but for rounding",
    (20962, "alone and in a batch"): "a step of 10 from a distance of 4e-15, which is zero but for rounding",
}


def explained(finding: Finding) -> str | None:
    reasons = (why for (seed, oracle), why in EXPLAINED.items() if seed == finding.seed and finding.oracle.startswith(oracle))
    return next(reasons, None)


def run_one(seed: int) -> Outcome:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch, about the twins; calls have an oracle for theirs
            return check(seed)
    except Exception as error:  # the fuzzer's own fault
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {str(error)[:200]} at {where.filename}:{where.lineno}"
        return Outcome({"broken": 1}, [Finding("the fuzzer itself", seed, "", text)])


def _start() -> None:
    torch.set_num_threads(1)


def run(first: int, count: int, seconds: float, processes: int = 1) -> tuple[Counter[str], list[Finding], int]:
    """Seeds from `first` on, until `count` are done or the time is up; how many were done."""
    counts: Counter[str] = Counter()
    findings: list[Finding] = []
    began, done = time.monotonic(), 0
    seeds = range(first, first + count)
    if processes == 1:
        source = map(run_one, seeds)
        pool = None
    else:
        pool = multiprocessing.get_context("spawn").Pool(processes, _start)
        source = pool.imap(run_one, seeds, chunksize=4)
    try:
        for outcome in source:
            done += 1
            counts.update(outcome.counts)
            for finding in outcome.findings:
                reason = explained(finding)
                if reason is None:
                    findings.append(finding)
                    print(finding, flush=True)
                else:
                    counts[f"explained: {reason}"] += 1
            if time.monotonic() - began > seconds:
                break
    except KeyboardInterrupt:
        pass  # what was done is summed up all the same
    finally:
        if pool is not None:
            pool.terminate()
    return counts, findings, done


def summary(counts: Counter[str], findings: list[Finding], done: int, first: int, seconds: float) -> str:
    lines = [f"seeds {first} to {first + done - 1} in {seconds:.0f} s"]
    lines += [f"{number:8,}  {key}" for key, number in sorted(counts.items())]
    lines.append("findings:")
    groups: dict[str, list[int]] = {}
    for finding in findings:
        groups.setdefault(f"[{finding.oracle}] {re.sub(r'[0-9][0-9.e+-]*', '#', finding.text)[:110]}", []).append(finding.seed)
    for key, seeds in sorted(groups.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(seeds):8,}  {key}  seeds {', '.join(map(str, seeds[:5]))}")
    return "\n".join(lines)
