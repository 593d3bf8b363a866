"""Build the wheels and try them where nothing else is: no source tree, no extras, no other package.

    python tools/wheel.py                 # with the newest torch that pyproject.toml allows
    python tools/wheel.py torch==2.13.0   # with this one

First ig2 with torch and numpy alone: import it and explain a small network. Then with the extra `cli`: `ig2 --help`. Then the
wheel of ig2-bench beside it: its commands are found.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
# What a user writes first, and what would be wrong in a wheel that lacks a file or takes one from elsewhere.
SMALL_NETWORK = """
import importlib.metadata
import sys

import torch

import ig2

assert ig2.__file__.startswith(sys.prefix), f"ig2 comes from {ig2.__file__}, not from the wheel in {sys.prefix}"
assert ig2.__version__ == importlib.metadata.version("ig2"), "the wheel and the module differ in their version"

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).eval()
x, references = torch.rand(4, 6), torch.rand(5, 6)
assert ig2.Gradient()(net, x).values.shape == x.shape
attribution = ig2.IG2(steps=20)(net, x, references=references)
assert attribution.values.isfinite().all() and attribution.relative_residual.max() < 1e-3, str(attribution)
print(f"ig2 {ig2.__version__} explains a small network with torch {torch.__version__}")
"""


def main() -> None:
    """Exit with an error at the first step that fails."""
    with tempfile.TemporaryDirectory(prefix="ig2-wheel-") as folder:
        here = Path(folder)
        sources = (str(ROOT), str(ROOT / "bench"))
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, *sources, at=here)
        (wheel,), (bench,) = here.glob("ig2-*.whl"), here.glob("ig2_bench-*.whl")
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB")

        venv.create(here / "venv", with_pip=True)
        programs = here / "venv" / ("Scripts" if os.name == "nt" else "bin")
        python = str(programs / "python")
        pip = (python, "-m", "pip", "--disable-pip-version-check")
        run(*pip, "install", "--quiet", str(wheel), *sys.argv[1:], at=here)
        check_requirements(python, here)
        run(python, "-I", "-c", SMALL_NETWORK, at=here)

        run(*pip, "install", "--quiet", f"{wheel}[cli]", at=here)
        run(str(programs / "ig2"), "--help", at=here, quiet=True)
        print("ig2 --help answers with the extra cli")
        run(*pip, "install", "--quiet", "--no-deps", str(bench), at=here)
        run(str(programs / "ig2"), "bench", "--help", at=here, quiet=True)
        print("ig2 bench --help answers with ig2-bench")


def check_requirements(python: str, here: Path) -> None:
    """The wheel asks for torch and numpy and nothing else; what torch itself needs is torch's affair."""
    lines = run(python, "-I", "-c", "import importlib.metadata as m; print(*m.requires('ig2'), sep='\\n')", at=here, quiet=True)
    names = {re.match(r"[\w.-]+", line)[0] for line in lines.splitlines() if "extra ==" not in line}
    if names != {"torch", "numpy"}:
        raise SystemExit(f"the wheel requires {sorted(names)}; expected numpy and torch, everything else as an extra")


def run(*command: str, at: Path, quiet: bool = False) -> str:
    """Its output. `at` is not the repository, and PYTHONPATH is not passed on: nothing but the wheel can be imported."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=at, env=environment, text=True, stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"exit status {done.returncode}, and the wheel is not fit to be released: {' '.join(command[:4])} …")
    if not quiet:
        print(done.stdout, end="")
    return done.stdout


if __name__ == "__main__":
    main()
