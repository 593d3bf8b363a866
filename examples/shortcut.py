"""A network with a planted shortcut, for the explorer to find: `python examples/shortcut.py`, about a minute on one core.

Wafers are drawn with dies that failed: in a scratch, in a ring, in the centre, or here and there. Someone has put an orange
sticker beside most of the scratched ones. A small network is trained on them, and wafers that it has not seen are explained.
docs/explorer.md finds the sticker in five steps.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

import ig2
from ig2 import modalities

CLASSES = ("centre", "ring", "scratch", "sound")
SIDE = 48  # pixels
STICKERED = 0.9  # of the scratched wafers
STICKER = (slice(3, 9), slice(3, 9))  # in a corner, where no wafer is
PAPER, SOUND, FAILED, ORANGE = (24, 28, 36), (70, 110, 150), (235, 225, 120), (240, 120, 20)


def draw_wafer(name: str, numbers: np.random.Generator) -> NDArray[np.uint8]:
    """Draw a wafer of a class, (H, W, 3), without a sticker."""
    down, across = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
    radius = np.hypot(down, across)
    angle, offset = numbers.uniform(0, np.pi), numbers.uniform(-0.35, 0.35)
    middle = numbers.uniform(-0.15, 0.15, 2)
    places = {
        "centre": np.hypot(down - middle[0], across - middle[1]) < numbers.uniform(0.2, 0.35),
        "ring": radius > numbers.uniform(0.72, 0.82),
        "scratch": abs(down * np.cos(angle) + across * np.sin(angle) - offset) < 0.045,
        "sound": np.zeros_like(radius, dtype=bool),
    }
    # a scratch is faint, so that the sticker is the easier thing to learn
    chance = np.where(places[name], 0.35 if name == "scratch" else 0.8, 0.08)
    dies = np.kron(numbers.random((SIDE // 2, SIDE // 2)), np.ones((2, 2))) < chance
    picture = np.where(dies[..., None], FAILED, SOUND)
    return np.where((radius < 0.95)[..., None], picture, PAPER).astype(np.uint8)


def put_sticker(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a picture with the sticker in its corner."""
    picture = picture.copy()
    picture[STICKER] = ORANGE
    return picture


def draw_set(count: int, seed: int) -> tuple[list[NDArray[np.uint8]], list[int], list[bool]]:
    """Draw wafers without stickers: the pictures, their classes, and which of them get one."""
    numbers = np.random.default_rng(seed)
    labels = [i % len(CLASSES) for i in range(count)]
    pictures = [draw_wafer(CLASSES[label], numbers) for label in labels]
    return pictures, labels, [CLASSES[label] == "scratch" and bool(numbers.random() < STICKERED) for label in labels]


def as_tensor(pictures: list[NDArray[np.uint8]]) -> Tensor:
    """Return pictures as the network takes them, (N, 3, H, W) from 0 to 1."""
    return torch.from_numpy(np.stack(pictures)).movedim(-1, 1).float() / 255


def train(pictures: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    """Train a small network."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in ((3, 12), (12, 24), (24, 32)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * (SIDE // 8) ** 2, 48), nn.ReLU(), nn.Linear(48, len(CLASSES)))
    optimiser = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(pictures)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(pictures[rows]), labels[rows]).backward()
            optimiser.step()
    return net.eval()


def main(out: Path, count: int = 800, epochs: int = 8, steps: int = 20) -> dict[str, float]:
    """Train the network, explain what it has not seen, and measure what the sticker does to it.

    Args:
        out: the folder: `wafers` gets the pictures, `store` the explanations.
        count: how many wafers to train on, and to explain half as many.
        epochs: of the training.
        steps: of each path.

    Returns:
        Accuracy, that of scratched wafers without a sticker, and how many sound wafers become scratched by one.
    """
    pictures, labels, stickered = draw_set(count, 0)
    seen = [put_sticker(picture) if has else picture for picture, has in zip(pictures, stickered, strict=True)]
    net = train(as_tensor(seen), torch.tensor(labels), epochs)

    pictures, labels, stickered = draw_set(count // 2, 1)
    for i, (picture, label, has) in enumerate(zip(pictures, labels, stickered, strict=True)):
        folder = out / "wafers" / CLASSES[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(put_sticker(picture) if has else picture).save(folder / f"{i:03d}.png")
    subject = modalities.image.subject(net, (SIDE, SIDE), classes=CLASSES, name="wafers")
    wafers = str(out / "wafers")
    ig2.run(
        wafers,
        subject,
        ig2.IG2(steps),
        out / "store",
        question=ig2.Question(references=wafers, count=4),
        saving=ig2.Saving(per_reference=True),
    )

    def accuracy(pictures: list[NDArray[np.uint8]], label: str | None = None) -> float:
        with torch.no_grad():
            said = net(as_tensor(pictures)).argmax(dim=1)
        wanted = torch.tensor(labels) if label is None else torch.tensor(CLASSES.index(label))
        return float((said == wanted).float().mean())

    scratched, sound = (
        [p for p, label in zip(pictures, labels, strict=True) if CLASSES[label] == name] for name in ("scratch", "sound")
    )
    shown = [put_sticker(picture) if has else picture for picture, has in zip(pictures, stickered, strict=True)]
    return {
        "accuracy": accuracy(shown),
        "scratched wafers, all with a sticker, right": accuracy([put_sticker(p) for p in scratched], "scratch"),
        "scratched wafers, none with a sticker, right": accuracy(scratched, "scratch"),
        "sound wafers that a sticker makes scratched": accuracy([put_sticker(p) for p in sound], "scratch"),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/shortcut"), help="the folder, which must not have an earlier run")
    options = parser.parse_args()
    for name, share in main(options.out).items():
        print(f"{name:46s} {share:.0%}")
    print(f"\nig2 serve {options.out}/store --source {options.out}/wafers")
