"""python -m tests.fuzz: random networks against every method."""

from __future__ import annotations

import argparse
import sys
import time

import torch

from .networks import build
from .runner import run, run_one, summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="one network, with a printout")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--count", type=int, default=3900, help="how many seeds (default 3900)")
    parser.add_argument("--minutes", type=float, default=25, help="stop after this long (default 25)")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.seed is not None:
        torch.set_num_threads(1)
        case = build(options.seed)
        print(case)
        outcome = run_one(options.seed)
        print(*outcome.findings, sep="\n")
        return bool(outcome.findings)
    began = time.monotonic()
    counts, findings, done = run(options.first, options.count, options.minutes * 60, options.processes)
    print(summary(counts, findings, done, options.first, time.monotonic() - began))
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
