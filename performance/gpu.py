"""The engine on a GPU: seconds an explicand by how the network is prepared, and what it adds to the bare passes.

`python -m performance.gpu [--out FOLDER]`
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import ig2
from performance.authors import Contest
from performance.overhead import explain, measure
from performance.store import Row, save, seconds, side_by_side, table

PAPER_STEPS, PAPER_REFERENCES = 500, 10
PREPARATIONS: dict[str, ig2.Preparation | None] = {
    "as it is": None,
    "default (folded, channels last)": ig2.Preparation(),
    "bfloat16": ig2.Preparation(precision="bfloat16"),
    "bfloat16, compiled": ig2.Preparation(precision="bfloat16", compile=True),
}


def network(name: str) -> nn.Module:
    """A torchvision network with weights of a sensible scale: speed does not depend on them, overflow would."""
    import torchvision

    options = {"init_weights": False} if name == "inception_v3" else {}
    torch.manual_seed(0)
    net = torchvision.models.get_model(name, weights=None, **options).eval()
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)
    return net.cuda().requires_grad_(False)


def samples(size: int, explicands: int, references: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.rand(explicands, 3, size, size, device="cuda"), torch.rand(references, 3, size, size, device="cuda")


def engine(model: ig2.Model, size: int, steps: int, explicands: int, references: int) -> ig2.Attribution:
    # the rule too is the paper's
    return explain(model, *samples(size, explicands, references), steps, 1.0, ig2.rules.left)


def speed(name: str, size: int, steps: int = 20, explicands: int = 32) -> list[Row]:
    """Seconds an explicand at the paper's setting, from a run with fewer steps; the first run of each is not counted."""
    net = network(name)
    rows: list[Row] = []
    for label, prepare in PREPARATIONS.items():
        work = partial(engine, ig2.wrap(net, bounds=(0, 1), prepare=prepare or False), size)
        torch.cuda.reset_peak_memory_stats()
        done = work(5, explicands, PAPER_REFERENCES)
        memory = torch.cuda.max_memory_allocated() / 2**30
        # the difference of two lengths: opening the network and compiling it are not part of a step
        short, long = (min(seconds(partial(work, n, explicands, PAPER_REFERENCES)) for _ in range(2)) for n in (5, 5 + steps))
        rows.append(
            {
                "network": name,
                "prepared": label,
                "points a batch": explicands * PAPER_REFERENCES,
                "ms a step": f"{(long - short) / steps * 1000:.1f}",
                "s an explicand, 500 × 10": f"{(long - short) / steps * PAPER_STEPS / explicands:.3f}",
                "s to begin": f"{short - 5 * (long - short) / steps:.1f}",
                "peak GiB": f"{memory:.1f}",
                "what was done": done.settings["preparation"],
            }
        )
    print(table(rows, f"{torch.cuda.get_device_name()}: IG² by preparation"), flush=True)
    return rows


def overhead(name: str, size: int, steps: int = 20, explicands: int = 32) -> list[Row]:
    """The engine over the bare passes of the same batch, in turns."""
    net = network(name)
    rows: list[Row] = []
    for label in ("as it is", "bfloat16", "bfloat16, compiled"):
        if label in PREPARATIONS:
            found = measure(net, *samples(size, explicands, PAPER_REFERENCES), PREPARATIONS[label], steps, 3, 1.0)
            rows.append({"network": name, "prepared": label, **found})
    print(table(rows, "what the engine adds to one forward and two input gradients"), flush=True)
    return rows


def small(name: str, size: int, steps: int = 60) -> list[Row]:
    """One explicand: kernels wait for Python, unless they are replayed."""
    net = network(name)
    preparations = {
        "as it is": False,
        "folded": ig2.Preparation(graphs=False),
        "folded, replayed": ig2.Preparation(),
        "bfloat16, replayed": ig2.Preparation(precision="bfloat16"),
    }
    contestants = {
        label: partial(engine, ig2.wrap(net, bounds=(0, 1), prepare=prepare), size, steps, 1, PAPER_REFERENCES)
        for label, prepare in preparations.items()
    }
    times = side_by_side(contestants, rounds=3)
    rows: list[Row] = [
        {"network": name, "prepared": label, "s": f"{min(found):.2f}", "ms a step": f"{min(found) / steps * 1000:.1f}"}
        for label, found in times.items()
    ]
    print(table(rows, f"one explicand, {PAPER_REFERENCES} references, {steps} steps, all of the call included"), flush=True)
    return rows


def memory(name: str, size: int) -> list[Row]:
    """Peak memory against steps, explicands and the batch; and a batch twice too large for the memory there is."""
    net = network(name)
    rows: list[Row] = []
    x, references = samples(size, 32, 10)

    def row(work: str, steps: int, explicands: int, batch: int) -> Tensor:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        found = ig2.IG2(steps, 1.0)(ig2.wrap(net), x[:explicands], references=references, batch_size=batch)
        peak = torch.cuda.max_memory_allocated() / 2**30
        rows.append({"work": work, "steps": steps, "explicands": explicands, "batch": batch, "peak GiB": f"{peak:.2f}"})
        return found.values

    row("as a start", 5, 8, 40)
    row("ten times the steps", 50, 8, 40)
    row("four times the explicands", 5, 32, 40)
    whole = row("twice the batch", 5, 8, 80)
    needed = float(rows[-1]["peak GiB"]) * 2**30
    torch.cuda.set_per_process_memory_fraction(needed / 2 / torch.cuda.get_device_properties(0).total_memory)
    try:
        halved = row("twice too large for the memory", 5, 8, 80)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    rows[-1]["work"] += f" (largest difference {float((halved - whole).abs().max() / whole.abs().max()):.1g})"
    print(table(rows, f"peak memory, {name}"), flush=True)
    return rows


def beside_authors(name: str, size: int) -> list[Row]:
    """Times faster than the published code's shape at equal steps, in float32; the columns of the clock count."""
    net = network(name).requires_grad_()  # as weights come
    assert isinstance(net.fc, nn.Module)
    rows = [Contest(name, net, net.fc, *samples(size, count, PAPER_REFERENCES), 1.0).measure(5, 25, 2) for count in (1, 4)]
    print(table(rows, f"{torch.cuda.get_device_name()}: beside the authors' shape"), flush=True)
    return rows


SIZES = {"inception_v3": 299, "resnet50": 224}
PARTS = {"speed": speed, "overhead": overhead, "small": small, "memory": memory, "authors": beside_authors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/performance-gpu"))
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--networks", nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--prepared", nargs="+", default=list(PREPARATIONS), choices=PREPARATIONS)
    options = parser.parse_args()
    for label in set(PREPARATIONS) - set(options.prepared):
        del PREPARATIONS[label]
    results: dict[str, list[Row]] = {}
    for name in options.networks:
        for part in options.parts:
            results[f"{part} {name}"] = PARTS[part](name, SIZES[name])
            save(results, options.out)


if __name__ == "__main__":
    main()
