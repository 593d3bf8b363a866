"""`python -m performance [NAME …] [--quick]`: every benchmark, or those named."""

from __future__ import annotations

import argparse
from pathlib import Path

from performance import authors, explorer, metrics, overhead, peers, precision, residuals, runs, scaling
from performance.store import Row, save

SUITES = {
    "authors": authors.run,
    "peers": peers.run,
    "overhead": overhead.run,
    "scaling": scaling.run,
    "residuals": residuals.run,
    "precision": precision.run,
    "metrics": metrics.run,
    "runs": runs.run,
    "explorer": explorer.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m performance", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of: {', '.join(SUITES)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--out", type=Path, default=Path("out/performance"), help="where performance.json goes")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in SUITES]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(SUITES)}")
    results: dict[str, list[Row]] = {}
    for name in options.names or SUITES:
        results[name] = SUITES[name](options.quick)
        path = save(results, options.out)  # after each, since all of them take a while
    print("stored in", path)


if __name__ == "__main__":
    main()
