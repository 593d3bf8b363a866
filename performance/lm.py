"""Language models on a GPU: seconds and GiB by size, length and precision, with the bare passes beside ours.

`python -m performance.lm [--out FOLDER] [--seconds 450] [--precision NAME …] [--tokens N …] [--quick]`

Llama configurations with random weights. *Ours* is a whole call of IG² with 20 steps and all it does besides, *bare* as many
steps without it: a forward pass and two gradients by embeddings, of the output and of the distance between states. TF32 is
`ig2.Preparation(precision="tf32")`, compiled is `compile=True` on top of bfloat16. *Prefix* is the same call where the first
three quarters of the prompt do not move and are run once. *Predicted* is by `estimate`. Every row is written as it
comes, as JSON and in Markdown, and no row begins after the seconds given.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ig2
from ig2.inputs import Fixed
from ig2.modalities.language.outcomes import Continuations, Scorer
from ig2.modalities.language.prefix import run_prefix
from ig2.paths import cosine
from performance.store import Row, save, seconds, side_by_side

SIZES: dict[str, dict[str, int]] = {
    "125 M": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 2048},
    "350 M": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 2816},
    "1 B": {"hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 16, "intermediate_size": 5632},
}
LENGTHS = (128, 512, 2048)
PRECISIONS = ("bfloat16", "TF32", "bfloat16, compiled", "float32")
REFERENCES = 4
STEPS = 20
SLOW = 0.15  # seconds of a bare step from which one round is enough
GIB = 2**30


def build(size: dict[str, int], dtype: torch.dtype, device: str) -> Any:
    """A Llama of this size, its weights drawn on the device."""
    import transformers

    config = transformers.LlamaConfig(vocab_size=32_000, max_position_embeddings=4096, tie_word_embeddings=True, **size)
    with torch.device(device):
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(config).to(dtype).eval().requires_grad_(False)


def bare_step(scorer: Scorer, points: Tensor, mask: Tensor, step: Tensor, reference: Tensor) -> None:
    """A forward pass and two input gradients, and nothing else."""
    points = points.detach().requires_grad_()
    states: list[Tensor] = []
    hook = scorer.state.register_forward_hook(lambda _, __, output: states.append(output))
    scores = scorer(points, mask, step)
    hook.remove()
    output = (scores[:, 0] - scores[:, 1]).sum()
    distance = cosine(states[0].flatten(1).float(), reference).sum()
    torch.autograd.grad(output, points, retain_graph=True)
    torch.autograd.grad(distance, points)


def repeat(work: Any, times: int) -> None:
    for _ in range(times):
        work()


def measure(net: Any, length: int, rounds: int, prepare: ig2.Preparation) -> Row:
    """Milliseconds of a bare step and of ours, and the GiB each takes at its peak."""
    device = next(net.parameters()).device
    ids = torch.randint(net.config.vocab_size, (1 + REFERENCES, length), generator=torch.Generator().manual_seed(0)).to(device)
    embeddings = net.get_input_embeddings()(ids).detach()
    still = 3 * length // 4
    near = torch.cat([embeddings[:1, :still].expand(REFERENCES, -1, -1), embeddings[1:, still:]], dim=1)
    outcomes = Continuations("causal", ((5,), (6,)))
    ones = torch.ones(REFERENCES, length, dtype=torch.long, device=device)
    step = torch.zeros(REFERENCES, dtype=torch.long, device=device)
    reference = torch.randn(REFERENCES, net.config.hidden_size, device=device)
    scorer = Scorer(net, outcomes)
    bare = partial(bare_step, scorer, embeddings[:1].expand(REFERENCES, -1, -1), ones, step, reference)
    x = {"embeddings": embeddings[:1], "mask": Fixed(ones[:1]), "step": Fixed(step[:1])}
    corners = torch.cat([embeddings[:1], near]).float()
    bounds = (corners.amin(dim=0), corners.amax(dim=0))
    model = ig2.wrap(scorer, "state", prepare=prepare)
    prefixed = ig2.wrap(Scorer(net, outcomes, run_prefix(net, embeddings[0, :still])), "state", bounds=bounds, prepare=prepare)

    def explain(model: ig2.Model, references: Tensor, steps: int) -> ig2.Attribution:
        method = ig2.IG2(steps, distance=cosine, rule=ig2.rules.left)
        return method(model, x, 0, {"embeddings": references}, against=1, batch_size=REFERENCES)

    works: dict[str, Any] = {
        "bare": partial(repeat, bare, STEPS),
        "ours": partial(explain, model, embeddings[1:], STEPS),
        "prefix": partial(explain, prefixed, near, STEPS),
    }
    if prepare.precision == "tf32" and device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # the bare step rounds as ours does
    peaks = {name: find_peak(work, device) for name, work in works.items()}
    times = side_by_side(works, 1 if seconds(bare) > SLOW else rounds)
    method = ig2.IG2(STEPS, distance=cosine, rule=ig2.rules.left)
    predicted = method.estimate(model, x, {"embeddings": embeddings[1:]}, target=0, against=1, batch_size=REFERENCES)
    deepshap = ig2.DeepSHAP()(model, x, 0, {"embeddings": embeddings[1:]}, against=1, batch_size=REFERENCES)
    torch.set_float32_matmul_precision("highest")
    residual = deepshap.relative_residual
    assert residual is not None and deepshap.cost is not None and predicted.peak_bytes is not None
    return {
        **{f"{name} s": round(min(times[name]), 3) for name in works},
        "predicted s": round(predicted.seconds, 3),
        **{f"{name} GiB": peaks[name] for name in works},
        "predicted GiB, without weights": round(predicted.peak_bytes / GIB, 2),
        "DeepSHAP s": round(deepshap.cost.seconds, 3),
        "its residual": float(f"{float(residual.max()):.1e}"),
    }


def find_peak(work: Any, device: torch.device) -> float | None:
    """The GiB that a GPU holds at the peak of some work, the weights among them; of a CPU None."""
    if device.type != "cuda":
        work()
        return None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    work()
    return round(torch.cuda.max_memory_allocated() / GIB, 2)


def choose_preparation(precision: str) -> ig2.Preparation:
    """Weights are in the precision already; float32 is asked for by name, so that no warning comes of it."""
    if precision == "bfloat16, compiled":
        return ig2.Preparation(compile=True)
    return ig2.Preparation(precision="tf32" if precision == "TF32" else "float32" if precision == "float32" else None)


def render(rows: list[Row], device: str) -> str:
    """A table in Markdown, a line for each row that was measured, and the reason for each that was not."""
    columns = list(dict.fromkeys(name for row in rows for name in row if name != "skipped"))
    lines = [
        f"{STEPS} steps with {REFERENCES} references at once, on {device}",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for row in rows:
        cells = ["" if row.get(name) is None else str(row[name]) for name in columns]
        if "skipped" in row:
            cells[3] = row["skipped"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def store(rows: list[Row], out: Path, device: str) -> Path:
    path = save({"lm": rows}, out)
    (out / "lm.md").write_text(render(rows, device), encoding="utf-8")
    return path


def run(
    quick: bool = False,
    out: Path = Path("out/performance"),
    limit: float = 450.0,
    precisions: Sequence[str] = PRECISIONS,
    lengths: Sequence[int] = LENGTHS,
) -> list[Row]:
    """All sizes, lengths and precisions; what does not fit, or does not begin in time, says so."""
    began, device = time.monotonic(), "cuda" if torch.cuda.is_available() else "cpu"
    shown = torch.cuda.get_device_name() if device == "cuda" else "a CPU"
    rows: list[Row] = []
    tiny = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    sizes = {"tiny": tiny} if quick else SIZES
    for precision in precisions:
        for name, size in sizes.items():
            if precision == "bfloat16, compiled" and (quick or name != "125 M"):
                continue  # a minute or two for each length
            dtype = torch.bfloat16 if precision.startswith("bfloat16") else torch.float32
            net = build(size, dtype, device)
            for length in (16,) if quick else lengths:
                row: Row = {"size": name, "precision": precision, "tokens": length}
                if time.monotonic() - began > limit:
                    row["skipped"] = "no time"
                else:
                    try:
                        row |= measure(net, length, 1 if quick else 2, choose_preparation(precision))
                    except (torch.OutOfMemoryError, ig2.OutOfMemoryError):
                        row["skipped"] = "out of memory"
                rows.append(row)
                store(rows, out, shown)
                print(json.dumps(row), flush=True)
            del net
            if device == "cuda":
                torch.cuda.empty_cache()
    print(render(rows, shown))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m performance.lm", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tiny network, to see that everything runs")
    parser.add_argument("--out", type=Path, default=Path("out/performance"))
    parser.add_argument("--seconds", type=float, default=450.0, help="after which no row begins")
    parser.add_argument("--precision", nargs="+", default=PRECISIONS, choices=PRECISIONS)
    parser.add_argument("--tokens", nargs="+", type=int, default=LENGTHS)
    options = parser.parse_args()
    run(options.quick, options.out, options.seconds, options.precision, options.tokens)
    print("stored in", options.out / "performance.json", "and", options.out / "lm.md")
