"""Run the tests of the core on the oldest and the newest torch, on each Python that is declared.

    python tools/versions.py                # all of them
    python tools/versions.py 3.12 2.6       # one Python, one torch

Each pair gets an environment of its own in out/versions, which is kept. Only what the core and these tests need is installed,
in the newest versions there are. pip finds torch where it is configured to: with PIP_EXTRA_INDEX_URL at an index of builds for
CPUs, gigabytes of CUDA libraries stay away.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
TORCHES = ("2.6", "2.15")  # the oldest that pyproject.toml allows, and the newest that was run
EXTRAS = "progress,io,plots,image,table,cli"
TOOLS = ("pytest", "hypothesis", "psutil", "scipy", "scikit-learn")
# what rests on torch, and compares with no other library
TESTS = (
    "attribution", "batching", "convergence", "edges", "gaussian", "gradpath_steps", "hostile_files", "hostile_models",
    "inputs", "metrics_axioms", "metrics_roar", "metrics_sanity", "model", "model_files", "prepare", "progress", "properties",
    "references", "replicas", "simple_methods", "smoothgrad",
)  # fmt: skip


def main() -> None:
    """Run them, and exit with 1 if one failed or could not be run."""
    wanted = sys.argv[1:]
    results = {}
    for python in PYTHONS:
        for torch in TORCHES:
            if all(name in (python, torch) for name in wanted):
                results[f"Python {python}, torch {torch}"] = run(python, torch)
    for pair, outcome in results.items():
        print(f"{pair}: {outcome}")
    sys.exit(any(outcome != "passed" for outcome in results.values()))


def run(python: str, torch: str) -> str:
    """How it went, in a word or two."""
    folder = ROOT / "out" / "versions" / f"{python}-{torch}"
    command = shutil.which(f"python{python}")
    if not (folder / "ready").exists():
        if command is None:
            return f"there is no python{python} on the PATH"
        subprocess.run([command, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "pip", "--quiet", "--disable-pip-version-check", "install"]
        if subprocess.run([*pip, f"torch=={torch}.*", f"{ROOT}[{EXTRAS}]", *TOOLS]).returncode:
            return "could not be installed"
        subprocess.run([folder / "bin" / "pip", "--quiet", "uninstall", "--yes", "ig2"], check=True)  # the tree's own is tested
        (folder / "ready").touch()
    tests = [str(ROOT / "tests" / f"test_{name}.py") for name in TESTS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "IG2_CACHE": str(folder / "cache")}
    command_line = [folder / "bin" / "python", "-m", "pytest", "-p", "no:cacheprovider", *tests]
    return "failed" if subprocess.run(command_line, cwd=ROOT, env=environment).returncode else "passed"


if __name__ == "__main__":
    main()
