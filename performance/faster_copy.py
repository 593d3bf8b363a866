"""Whether the faster copy of a rough network is accepted on a GPU, and what the call then takes.

`python -m performance.faster_copy [FILE]` writes JSON after every row, by default to
$OUT/faster_copy.json. With `--device cpu --quick`, small sizes on any machine.
"""

from __future__ import annotations

import argparse
import copy
import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import ig2
from performance.overhead import bare_step, repeated
from performance.store import Row, save, seconds

STEPS, REFERENCES = 50, 10
PREPARATIONS: dict[str, ig2.Preparation | bool] = {"default": True, "as it is": False}
PRECISIONS: dict[str, ig2.Preparation | bool] = {
    "default": True,
    "float32": ig2.Preparation(precision="float32"),
    "tf32": ig2.Preparation(precision="tf32"),
    "bfloat16": ig2.Preparation(precision="bfloat16"),
}


def network(name: str, device: str) -> nn.Module:
    """A torchvision network with random weights of a sensible scale, or a small one."""
    torch.manual_seed(0)
    if name == "small":
        block = (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        net: nn.Module = nn.Sequential(
            nn.Conv2d(3, 8, 3), *block, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
        ).eval()
    else:
        import torchvision

        options = {"init_weights": False} if name == "inception_v3" else {}
        net = torchvision.models.get_model(name, weights=None, **options).eval()
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)
    return net.to(device).requires_grad_(False)


def samples(size: int, device: str) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    x, references = torch.rand(1, 3, size, size), torch.rand(REFERENCES, 3, size, size)
    return x.to(device), references.to(device)


def gradient_of(net: nn.Module, x: Tensor) -> Tensor:
    """Of the first output at each point."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        output = net(x)
        return torch.autograd.grad(output[:, 0].sum(), x)[0].double()


def roughness(name: str, net: nn.Module, size: int, device: str) -> Row:
    """How far gradients in float32 are from those in float64, as a share of their length."""
    x, references = samples(size, device)
    points = torch.cat([x, references[:1], x + 0.01 * (references[:1] - x)])
    exact = gradient_of(copy.deepcopy(net).double(), points.double())
    laid_out = copy.deepcopy(net).to(memory_format=torch.channels_last)  # type: ignore

    def off(other: nn.Module, like: Tensor) -> str:
        errors = (gradient_of(other, like) - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)
        return " ".join(f"{float(error):.2g}" for error in errors)

    row: Row = {"work": f"{name}: gradients against float64", "as it is": off(net, points)}
    row["one ulp away"] = off(net, points * (1 + 2.0**-23))
    row["channels last"] = off(laid_out, points.contiguous(memory_format=torch.channels_last))
    if device == "cuda":
        before = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = not before
        row[f"as it is, cudnn.allow_tf32={not before}"] = off(net, points)
        torch.backends.cudnn.allow_tf32 = before
    row["cudnn.allow_tf32"] = torch.backends.cudnn.allow_tf32
    return row


def call(model: ig2.Model, size: int, steps: int, device: str) -> ig2.Attribution:
    x, references = samples(size, device)
    return ig2.IG2(steps, 1.0)(model, x, 0, references)


def measure(
    name: str,
    size: int,
    steps: int,
    device: str,
    preparations: dict[str, ig2.Preparation | bool],
    note: Callable[[Row], None],
) -> None:
    """Seconds of a whole call by preparation, the better of two, beside as many bare steps."""
    net = network(name, device)
    x, references = samples(size, device)
    points = x.repeat_interleave(len(references), dim=0)
    bare_step(net, points)
    bare = min(seconds(partial(repeated, partial(bare_step, net), points, steps)) for _ in range(2))
    note({"work": name, "prepared": "bare loop", "s": bare, "to bare": 1.0})
    plain: Tensor | None = None
    for label, prepare in preparations.items():
        model = ig2.wrap(net, bounds=(0, 1), prepare=prepare)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            first = seconds(partial(call, model, size, 3, device))  # kernels are chosen
            times = [seconds(partial(call, model, size, steps, device)) for _ in range(2)]
            found = call(model, size, steps, device)
        values = found.values
        assert isinstance(values, Tensor)
        plain = values if plain is None else plain
        done = found.settings["preparation"]
        row: Row = {
            "work": name,
            "prepared": label,
            "s": min(times),
            "to bare": min(times) / bare,
            "first call of 3 steps, s": first,
        }
        row |= {
            "accepted": "left as it is" not in done,
            "what was done": {key: str(value) for key, value in done.items()},
            "cosine with the default": float(nn.functional.cosine_similarity(values.flatten(), plain.flatten(), dim=0)),
            "warned": sorted({str(each.message) for each in caught}),
        }
        note(row)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m performance.faster_copy", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=Path(os.environ.get("OUT", ".")) / "faster_copy.json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="a small network, two steps")
    options = parser.parse_args()
    rows: list[Row] = []

    def note(row: Row) -> None:
        rows.append(row)
        print(row, flush=True)
        save({"faster copy": rows}, options.file.parent, options.file.name)

    works = [("inception_v3", 299, STEPS, PREPARATIONS), ("vit_b_16", 224, STEPS, PRECISIONS)]
    for name, size, steps, preparations in [("small", 16, 2, PREPARATIONS)] if options.quick else works:
        note(roughness(name, network(name, options.device), size, options.device))
        measure(name, size, steps, options.device, preparations, note)


if __name__ == "__main__":
    main()
