"""The paper's wafer CNN, and enough drawn wafer maps to train it on."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from ig2.adapters.training import own_randomness
from ig2.benchmarks.networks import WaferCNN

SIZE = 56
CLASSES = ("none", "centre", "donut", "edge-ring", "edge-loc", "loc", "scratch", "random", "near-full")


def network(seed: int = 0) -> WaferCNN:
    """The network of the paper's appendix, untrained."""
    with own_randomness(seed):
        return WaferCNN().eval()


def maps(per_class: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Drawn wafer maps, one-hot (N, 3, 56, 56) for outside, passing and failing dies, and their classes (N,)."""
    rng = np.random.default_rng(seed)
    axis = (np.arange(SIZE) - (SIZE - 1) / 2) / (SIZE / 2)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    inside = radius <= 1
    samples, labels = [], []
    for label, name in enumerate(CLASSES):
        for _ in range(per_class):
            middle = rng.uniform(-math.pi, math.pi)
            near = np.abs(np.angle(np.exp(1j * (angle - middle)))) < rng.uniform(0.3, 0.7)
            cx, cy = 0.5 * np.cos(middle), 0.5 * np.sin(middle)
            across = np.abs((x - cx / 2) * np.sin(middle) - (y - cy / 2) * np.cos(middle))
            along = np.abs((x - cx / 2) * np.cos(middle) + (y - cy / 2) * np.sin(middle))
            pattern = {
                "none": np.zeros_like(inside),
                "centre": radius < rng.uniform(0.25, 0.4),
                "donut": np.abs(radius - rng.uniform(0.4, 0.5)) < 0.12,
                "edge-ring": radius > rng.uniform(0.82, 0.9),
                "edge-loc": (radius > 0.75) & near,
                "loc": np.hypot(x - cx, y - cy) < rng.uniform(0.15, 0.25),
                "scratch": (across < 0.04) & (along < rng.uniform(0.35, 0.6)),
                "random": inside,
                "near-full": inside,
            }[name]
            density = {"random": 0.35, "near-full": 0.9}.get(name, 0.8)
            fails = (rng.random(x.shape) < np.where(pattern, density, 0.06)) & inside
            samples.append(np.stack([~inside, inside & ~fails, fails]))
            labels.append(label)
    return torch.tensor(np.stack(samples), dtype=torch.float32), torch.tensor(labels)


def trained(seed: int = 0, per_class: int = 100, epochs: int = 4) -> tuple[WaferCNN, float]:
    """The network after a few passes over drawn maps, and its accuracy on others."""
    net = network(seed)
    x, y = maps(per_class, seed)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    order = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=order).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimiser.step()
    unseen, truth = maps(10, seed + 1)
    with torch.no_grad():
        accuracy = float((net(unseen).argmax(dim=1) == truth).float().mean())
    return net, accuracy
