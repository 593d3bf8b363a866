"""Stores of photos, texts and rows, and the server over them, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from PIL import Image
from torch import nn

import ig2
from browsing import open_browser, share_screens
from ig2 import modalities
from ig2.explorer import Collection
from networks import seeded
from reports import HOSTILE
from stores import running, write_store

SIDE = 8
CLASSES = ["dark", "light"]


@pytest.fixture(scope="package")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    numbers = np.random.default_rng(0)
    for i in range(60):
        name = CLASSES[i % 2]
        (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
        pixels = numbers.integers(0, 90, (SIDE, SIDE, 3)) + (0 if i % 2 == 0 else 160)
        if i % 2 == 1 and i % 4 == 1:
            pixels[:3, :3] = 0  # half of the light ones have a dark corner
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / name / f"{i:02d}.png")
    net: Any = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), 0).float()
    with torch.no_grad():
        net[1].weight[:] = torch.tensor([-1.0, 1.0])[:, None] / 192
        net[1].bias[:] = torch.tensor([0.4, -0.4])
    subject = modalities.image.subject(net, (SIDE, SIDE), classes=CLASSES, name="bright")
    (folder / "photos" / "light" / "broken.png").write_bytes(b"no image")
    for name, method in (("photos-ig", ig2.IntegratedGradients(4)), ("photos-gradient", ig2.Gradient())):
        ig2.run(str(folder / "photos"), subject, method, folder / name, saving=ig2.Saving(values="float32"))

    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(numbers.normal(size=(12, 3)).round(2), columns=["age", "dose", "weight"])
    frame["patient"] = [f"p{i}" for i in range(12)]
    frame.to_csv(folder / "patients.csv", index=False)
    columns = modalities.table.infer_columns(frame, leave_out=["patient"])
    table = modalities.table.subject(seeded(lambda: nn.Linear(3, 2), 1).float(), columns, ["well", "ill"], rows=frame)
    ig2.run(str(folder / "patients.csv"), table, ig2.IntegratedGradients(4), folder / "rows", reading=ig2.Reading(id="patient"))

    texts = [("a", "bad", "film"), ("a", "good", "film"), HOSTILE, ("good", "enough")]
    write_store(
        folder / "texts",
        {
            "id": [*HOSTILE[:3], "=1+1"],
            "units": [list(words) for words in texts],
            "values": pyarrow.array([numbers.normal(size=len(words)).astype(np.float32) for words in texts]),
            "target": [0, 1, 1, 0],
            "target_name": [HOSTILE[0], "good", "good", "bad"],
            "prediction_name": [HOSTILE[1], "good", "good", "bad"],
            "output": [1.0, 2.0, float("nan"), 4.0],
            "trust": [0.9, 0.2, 0.8, 0.7],
        },
        kind="text",
    )
    return folder


@pytest.fixture(scope="package")
def photos(folder) -> Collection:
    return Collection([folder / "photos-ig"], folder / "photos")


@pytest.fixture(scope="package")
def both(folder) -> Collection:
    return Collection([folder / "photos-ig", folder / "photos-gradient"], folder / "photos")


@pytest.fixture(scope="package")
def addresses(folder, photos, both):
    """Where each collection is served."""
    rows, texts = Collection([folder / "rows"]), Collection([folder / "texts"])
    with running(photos) as first, running(both) as second, running(rows) as third, running(texts) as fourth:
        yield {"photos": first, "both": second, "rows": third, "texts": fourth}


@pytest.fixture(scope="package")  # not the session: while it is open, a loop of events is running
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="package")
def screens(browser):
    return share_screens(browser)
