"""`ig2.run` beside the bare call on the same batches: items a second, and memory against the number of items."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

import ig2
from ig2.adapters import vision
from performance.store import Row, clock_and_cpu, table

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


def run(quick: bool) -> list[Row]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    count, batch = (32, 8) if quick else (256, 16)
    net, source = network().to(device), Photos(count)
    rows = []
    for name, method in {
        "IntegratedGradients(10)": ig2.IntegratedGradients(10),
        "IntegratedGradients(50)": ig2.IntegratedGradients(50),
    }.items():
        bare, whole = [], []
        for _ in range(1 if quick else 5):
            bare.append(_time_bare(net, method, source, batch))
            with tempfile.TemporaryDirectory() as folder:
                whole.append(clock_and_cpu(partial(ig2.run, source, net, method, folder, batch=batch)))
        # the quickest of each: what else a machine does only ever adds
        (wall, cpu), (run_wall, run_cpu) = (tuple(map(min, zip(*times, strict=True))) for times in (bare, whole))
        rows.append(
            {
                "what": name,
                "items/s alone": round(count / wall, 1),
                "items/s of ig2.run": round(count / run_wall, 1),
                "share": round(wall / run_wall, 3),
                "share of CPU time": round(cpu / run_cpu, 3),
            }
        )
    print(table(rows, f"ig2.run beside the bare call, {count} photos of {IMAGE} × {IMAGE} pixels on {device}"))
    memory: list[Row] = []
    for items in (500, 1000) if quick else (1000, 10_000, 100_000):
        command = [sys.executable, "-c", MEMORY, str(items)]
        peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
        memory.append({"what": "peak memory", "items": items, "MiB": round(peak)})
    print(table(memory, "memory against the number of items, values of 1,000 float32 each"))
    return [*rows, *memory, *photos_from_disk(20 if quick else 500 if device == "cpu" else 5000)]


def photos_from_disk(count: int) -> list[Row]:
    """JPEG files of 256 × 256 pixels end to end, beside the bare call on photos that are already decoded."""
    from PIL import Image

    try:
        subject = vision.load("efficientnet-lite0")
    except ImportError:
        subject = vision.load("torchvision:resnet50", pretrained=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    subject = subject.to(device)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        noise = np.random.default_rng(0)
        for index in range(count):
            pixels = noise.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((256, 256)).save(f"{folder}/{index:05}.jpg", quality=90)
        files = sorted(Path(folder).iterdir())
        batch = 64 if device == "cuda" else 8
        for name, method in {"Gradient()": ig2.Gradient(), "IntegratedGradients(20)": ig2.IntegratedGradients(20)}.items():
            ready = subject.read(files[: 4 * batch]).x.to(device)  # the same few batches again and again
            batches = ready.split(batch)
            method(subject.model, batches[0])  # the first call of all is slow

            def work(method: ig2.Method = method, batches: tuple[torch.Tensor, ...] = batches) -> None:
                for first in range(0, count, batch):
                    method(subject.model, batches[first // batch % len(batches)][: count - first])

            wall, _ = clock_and_cpu(work)
            store = f"{folder}-store"
            with _Busy() as busy:
                run_wall, _ = clock_and_cpu(
                    partial(ig2.run, folder, subject, method, store, values=ig2.Grid(14, 14), batch=batch, device=device)
                )
            shutil.rmtree(store)
            rows.append(
                {
                    "what": name,
                    "photos": count,
                    "photos/s alone": round(count / wall, 1),
                    "photos/s of ig2.run": round(count / run_wall, 1),
                    "share": round(wall / run_wall, 3),
                    "GPU busy": busy.share,
                }
            )
    print(table(rows, f"{count} JPEG files end to end, {subject.name} on {device}"))
    return rows


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


def _time_bare(net: nn.Module, method: ig2.Method, source: Photos, batch: int) -> tuple[float, float]:
    """Read, stack and explain the same batches; nothing is kept."""

    def work() -> None:
        for first in range(0, len(source), batch):
            method(net, torch.stack([source[i] for i in range(first, min(first + batch, len(source)))]))

    return clock_and_cpu(work)


if __name__ == "__main__":
    print(json.dumps(run("--quick" in sys.argv), indent=1))
