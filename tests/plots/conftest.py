"""An attribution that several figures show."""

from __future__ import annotations

import pytest

import ig2
import networks
from ig2 import Attribution


@pytest.fixture(scope="session")
def walked() -> Attribution:
    """IG² of three images with four references, everything kept."""
    net = networks.relu_cnn(channels=3)
    x, references = networks.data(3, 3, 8, 8, low=0), networks.data(4, 3, 8, 8, seed=1, low=0)
    model = ig2.wrap(net, bounds=(0, 1))
    return ig2.IG2(steps=6, rule=ig2.rules.shared)(model, x, references=references, curves=True, per_reference=True)
