"""Torchvision and timm models through the adapters, with random weights and no network: a line a check, an error if one fails.

`python -m performance.adapters_gpu_check [device]`
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image

import ig2
from ig2.adapters import vision

TORCHVISION = ("resnet18", "mobilenet_v3_small", "convnext_tiny", "vit_b_16", "inception_v3", "densenet121", "swin_t")
TIMM = (
    "resnet18",
    "vit_tiny_patch16_224",
    "convnext_atto",
    "tf_efficientnet_lite0",
    "mobilenetv3_small_050",
    "beit_base_patch16_224",
)
DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
failures = 0


def photo(width: int, height: int, seed: int) -> Image.Image:
    """A smooth picture with a disc in it."""
    rows, columns = np.mgrid[0:height, 0:width]
    waves = [128 + 100 * np.sin(columns / (9 + 7 * seed + 5 * k) + rows / (13 + 3 * k)) for k in range(3)]
    pixels = np.stack(waves, axis=2)
    pixels[(rows - height / 2) ** 2 + (columns - width / 2) ** 2 < (height / 4) ** 2] = (230, 40 * seed, 60)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def check(name: str, work: Callable[[], str]) -> None:
    global failures
    start = time.perf_counter()
    try:
        message = work()
    except Exception:
        failures += 1
        traceback.print_exc()
        print(f"FAILED {name}", flush=True)
    else:
        print(f"OK {name}: {message} ({time.perf_counter() - start:.1f} s)", flush=True)


def explain(name: str, theirs: Callable[[Image.Image], torch.Tensor]) -> str:
    """Read as the library itself would, then explain on the device."""
    subject = vision.load(name, pretrained=False)
    picture = photo(500, 333, seed=1)
    batch = subject.read([picture, photo(320, 480, seed=2)])
    normalised = batch.x if subject.model.preprocess is None else subject.model.preprocess(batch.x)
    apart = float((normalised[0] - theirs(picture)).abs().max())
    assert apart < 1e-4, f"preprocessing differs by {apart}"
    with torch.no_grad():
        for weight in subject.model.net.parameters():
            if weight.ndim > 1 and not weight.any():  # a head that starts at zero would say nothing
                weight.normal_(std=0.02)
    subject.to(DEVICE)
    references = subject.read([photo(400, 400, seed=seed) for seed in (3, 4)]).x
    with np.errstate(all="raise"):
        a = ig2.IG2(steps=5, rule=ig2.rules.shared)(subject.model, batch.x, references=references)
        ig2.ExpectedIG(steps=4)(subject.model, batch.x, references=references)
    maps = subject.scores(batch, a)
    assert len(maps) == 2 and maps[0].shape == subject.size and np.isfinite(maps).all() and np.abs(maps).max() > 0
    assert subject.picture(batch.x[0]).shape == (*subject.size, 3)
    assert subject.classes is not None and len(subject.classes) == subject.predict(batch).shape[1]
    assert a.residual is not None and a.baseline_output is not None
    assert bool((a.residual.abs() <= 1e-2 * (a.output - a.baseline_output).abs() + 1e-4).all()), a.residual
    return f"{subject.size[0]} px, preprocessing off by {apart:.0e}, first class {subject.label(0)!r}, {a.verdict}"


def torchvision_transform(name: str) -> Callable[[Image.Image], torch.Tensor]:
    import torchvision

    return torchvision.models.get_model_weights(name).DEFAULT.transforms()


def timm_transform(name: str) -> Callable[[Image.Image], torch.Tensor]:
    import timm.data

    config = timm.data.resolve_model_data_config(timm.create_model(name, pretrained=False))
    return timm.data.create_transform(**config, is_training=False)


def fail_to_load(name: str, pretrained: bool) -> str:
    """Something that is not available must be an error of one line."""
    message = "it is available after all"
    try:
        vision.load(name, pretrained=pretrained)
    except ig2.InputError as error:
        message = str(error)
    assert "\n" not in message
    return message


def main() -> int:
    print(f"torch {torch.__version__} on {DEVICE}")
    for library in ("torchvision", "timm"):
        print(f"{library} {__import__(library).__version__}")
    for name in TORCHVISION:
        check(f"torchvision:{name}", lambda name=name: explain(f"torchvision:{name}", torchvision_transform(name)))
    for name in TIMM:
        check(f"timm:{name}", lambda name=name: explain(f"timm:{name}", timm_transform(name)))
    check("bare name of both", lambda: vision.load("resnet18", pretrained=False).name)
    check("bare name of timm", lambda: vision.load("convnext_atto.d2_in1k", pretrained=False).name)
    check("a strip", lambda: str(vision.load("timm:resnet18", pretrained=False).read(photo(30000, 3, seed=1)).x.shape))
    check("unknown torchvision", lambda: fail_to_load("torchvision:resnet19", pretrained=False))
    check("unknown timm", lambda: fail_to_load("timm:resnet19", pretrained=False))
    check("unknown bare", lambda: fail_to_load("resnet19", pretrained=False))
    check("no classifier", lambda: fail_to_load("torchvision:fasterrcnn_resnet50_fpn", pretrained=False))
    check("torchvision weights without a network", lambda: fail_to_load("torchvision:resnet18", pretrained=True))
    check("timm weights without a network", lambda: fail_to_load("timm:convnext_atto", pretrained=True))
    print("all OK" if not failures else f"{failures} FAILED")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
