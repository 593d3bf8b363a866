"""The network for handwritten digits."""

from __future__ import annotations

from torch import nn

from ig2_bench.networks.base import LayeredCNN, NetworkSpec, TrainingSettings, shift


class DigitCNN(LayeredCNN):
    """For digits of 28 × 28: two convolutions of 5 × 5, 1-32-64, each with ReLU and pooling, then 3136-128-10.

    Args:
        classes: how many.
    """

    channels = 1
    size = (28, 28)

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        self.conv2 = nn.Sequential(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        self.fc1 = nn.Sequential(nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.5))
        self.fc2 = nn.Linear(128, classes)


MNIST = NetworkSpec(
    "mnist",
    lambda train, _: DigitCNN(len(train.classes)),
    TrainingSettings(epochs=12, batch=128, rate=2e-3, decay=0.01, least=400, augmentation=shift),
    quick=TrainingSettings(epochs=1, batch=64, rate=2e-3, decay=0.01, least=60),
)
