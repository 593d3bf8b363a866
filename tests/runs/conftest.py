"""A small network, its data, and runs of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import ig2
from ig2 import modalities
from networks import data, seeded


@pytest.fixture
def net() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), 0).eval()


@pytest.fixture
def samples() -> torch.Tensor:
    return data(20, 5, seed=1)


@pytest.fixture
def method() -> ig2.Method:
    return ig2.IntegratedGradients(4)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve photos in two classes."""
    numbers = np.random.default_rng(0)
    for name in ("red", "green"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(6):
            Image.fromarray(numbers.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


@pytest.fixture
def subject() -> modalities.image.ImageSubject:
    """A classifier of photos of 8 × 8 pixels."""
    net: Any = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 3)), 0).eval().float()
    net[1].bias.data = -0.5 * net[1].weight.data.sum(dim=1)  # about grey, so that it sees all classes in noise
    net[3].bias.data.zero_()
    noise = np.random.default_rng(1).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    pool = [modalities.Sample(pixels, f"noise {i}") for i, pixels in enumerate(noise)]
    return modalities.image.subject(net, (8, 8), classes=["red", "green", "blue"], photos=lambda: pool)
