"""Language models on a GPU: seconds and GiB by size, length and precision, with the bare passes beside ours.

`python -m performance.lm [--out FOLDER] [--quick]`

Llama configurations with random weights. A step is what one step of IG² takes: a forward pass and two gradients by embeddings,
of the output and of the distance between states. TF32 is float32 with `torch.set_float32_matmul_precision("high")`.
"""

from __future__ import annotations

import argparse
import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ig2
from ig2._engine.inputs import Fixed
from ig2.adapters.lm.outcomes import Continuations, Scorer
from ig2.paths import cosine
from performance.store import Row, save, side_by_side, table

SIZES: dict[str, dict[str, int]] = {
    "125 M": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 2048},
    "350 M": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 2816},
    "1 B": {"hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 16, "intermediate_size": 5632},
}
LENGTHS = (128, 512, 2048)
PRECISIONS = ("float32", "TF32", "bfloat16")
REFERENCES = 4
STEPS = 4


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


def measure(net: Any, length: int, rounds: int) -> Row:
    """Milliseconds of a bare step and of ours, and the GiB each takes at its peak."""
    device = next(net.parameters()).device
    ids = torch.randint(32_000, (1 + REFERENCES, length), generator=torch.Generator().manual_seed(0)).to(device)
    embeddings = net.get_input_embeddings()(ids).detach()
    scorer = Scorer(net, Continuations("causal", ((5,), (6,))))
    ones = torch.ones(REFERENCES, length, dtype=torch.long, device=device)
    step = torch.zeros(REFERENCES, dtype=torch.long, device=device)
    reference = torch.randn(REFERENCES, net.config.hidden_size, device=device)
    bare = partial(bare_step, scorer, embeddings[:1].expand(REFERENCES, -1, -1), ones, step, reference)
    x = {"embeddings": embeddings[:1], "mask": Fixed(ones[:1]), "step": Fixed(step[:1])}
    model = ig2.wrap(scorer, "state")

    def explain(steps: int) -> ig2.Attribution:
        method = ig2.IG2(steps, distance=cosine, rule=ig2.rules.left)
        return method(model, x, 0, {"embeddings": embeddings[1:]}, against=1, batch_size=REFERENCES)

    works = {"bare": partial(repeat, bare, STEPS), "begun": partial(explain, 1), "whole": partial(explain, 1 + STEPS)}
    peaks = {}
    for name in ("bare", "whole"):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        works[name]()
        peaks[name] = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else math.nan
    times = side_by_side(works, rounds)  # type: ignore[arg-type]
    # the difference of two lengths: opening the network is not part of a step
    ours = min(a - b for a, b in zip(times["whole"], times["begun"], strict=True)) / STEPS
    deepshap = ig2.DeepSHAP()(model, x, 0, {"embeddings": embeddings[1:]}, against=1, batch_size=REFERENCES)
    residual = deepshap.relative_residual
    assert residual is not None and deepshap.cost is not None
    return {
        "tokens": length,
        "bare ms a step": f"{min(times['bare']) / STEPS * 1000:.1f}",
        "ours": f"{ours * 1000:.1f}",
        "bare GiB": f"{peaks['bare']:.1f}",
        "ours GiB": f"{peaks['whole']:.1f}",
        "DeepSHAP s": f"{deepshap.cost.seconds:.2f}",
        "its residual": f"{float(residual.max()):.0e}",
    }


def run(quick: bool = False) -> list[Row]:
    """All sizes, lengths and precisions; what does not fit says so."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows: list[Row] = []
    tiny = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    sizes = {"tiny": tiny} if quick else SIZES
    for name, size in sizes.items():
        for precision in PRECISIONS[:1] if quick else PRECISIONS:
            torch.set_float32_matmul_precision("high" if precision == "TF32" else "highest")
            net = build(size, torch.bfloat16 if precision == "bfloat16" else torch.float32, device)
            for length in (16,) if quick else LENGTHS:
                try:
                    row = measure(net, length, 1 if quick else 3)
                except (torch.OutOfMemoryError, ig2.OutOfMemoryError):
                    row = {"tokens": length} | dict.fromkeys(list(rows[0])[3:] if rows else [], "out of memory")
                rows.append({"size": name, "precision": precision, **row})
            del net
    print(table(rows, f"language models, {REFERENCES} references at once, on {device}"))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m performance.lm", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tiny network, to see that everything runs")
    parser.add_argument("--out", type=Path, default=Path("out/performance"))
    options = parser.parse_args()
    results = run(options.quick)
    print("stored in", save({"lm": results}, options.out))
