"""Models that explain what people send, over stores of photos, texts and rows."""

from __future__ import annotations

import io
import json
import socket
import time
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np
import pandas
import torch
from limits import HANGS
from PIL import Image
from torch import nn

import ig2
from ig2 import modalities
from ig2.explorer import Collection, WhatIf
from ig2.modalities.samples import Sample
from networks import seeded

SIDE = 8
WORDS = ["bad", "good", "film", "a", "book", "sad"]
SESSION = "x-ig2-session"


class Slow(nn.Module):
    """A network that can be made to take its time, and counts how often it ran; its copies count too."""

    seconds: ClassVar[float] = 0.0
    calls: ClassVar[int] = 0

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any) -> Any:
        Slow.calls += 1
        time.sleep(Slow.seconds)
        return self.net(x)


def make_photos(count: int = 12, seed: int = 0) -> list[Sample]:
    """Noise, dark and light in turn."""
    numbers = np.random.default_rng(seed)
    pixels = [(numbers.integers(0, 90, (SIDE, SIDE, 3)) + 160 * (i % 2)).astype(np.uint8) for i in range(count)]
    return [Sample(picture, f"photo {i}", ["dark", "light"][i % 2]) for i, picture in enumerate(pixels)]


def make_bright(slow: bool = False) -> modalities.image.ImageSubject:
    """A network that tells light from dark, and has photos to contrast with."""
    net: Any = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.Tanh(), nn.Linear(6, 2)), 0).float()
    with torch.no_grad():
        net[1].weight[:] = net[1].weight.abs() * 0.5
        net[3].weight[:] = torch.tensor([-1.0, 1.0])[:, None]
        net[1].bias[:] = -float(net[1].weight.sum(dim=1).mean()) / 2
        net[3].bias[:] = 0.0
    net = net.eval()
    photos = make_photos()
    model = ig2.wrap(Slow(net).eval(), "net.2") if slow else net
    return modalities.image.subject(model, (SIDE, SIDE), classes=["dark", "light"], name="bright", photos=lambda: photos)


def make_reader() -> modalities.text.TextSubject:
    """A network that counts good and bad words."""
    table = seeded(lambda: nn.Embedding(len(WORDS) + 2, 4), 1).float()
    head = seeded(lambda: nn.Linear(4, 2), 2).float()
    with torch.no_grad():
        table.weight[:, 0] = torch.tensor([0.0, -1.5, 1.5, 0.1, 0.0, -0.1, -1.5, 0.0])
        table.weight[:, 1:] *= 0.1
        head.weight[:, 0], head.bias[:] = torch.tensor([-3.0, 3.0]), 0.0

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = head

        def forward(self, x: Any, mask: Any) -> Any:
            return self.head(torch.tanh((x * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)))

    def cut(sentence: str) -> list[tuple[int, int, int]]:
        tokens, start = [], 0
        for word in sentence.split():
            start = sentence.index(word, start)
            tokens.append((WORDS.index(word) + 1 if word in WORDS else len(WORDS) + 1, start, start + len(word)))
            start += len(word)
        return tokens

    return modalities.text.from_parts(
        table, ig2.wrap(Mean().eval(), "output"), cut, classes=["worse", "better"], name="reader",
        texts=["a bad film", "a good book", "sad bad book", "good good film", "a film", "bad", "good book"],
    )  # fmt: skip


def make_patients() -> tuple[modalities.table.TableSubject, pandas.DataFrame]:
    """A network on rows, one column of which is a category, and rows for it."""
    numbers = np.random.default_rng(0)
    frame = pandas.DataFrame(numbers.normal(size=(14, 2)).round(2), columns=["age", "dose"])
    frame["ward"] = ["north", "south"] * 7
    columns = modalities.table.infer_columns(frame)
    net = seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), 3).float().eval()
    return modalities.table.subject(net, columns, ["well", "ill"], name="patients", rows=frame), frame


def make_whatif(folder: Path, kind: str = "image", method: Any = None, **options: Any) -> WhatIf:
    """A small store of a kind, and the model over it."""
    method = method or ig2.IG2(6)
    if kind == "image":
        subject: Any = options.pop("subject", None) or make_bright()
        (folder / "photos").mkdir(parents=True, exist_ok=True)
        for photo in make_photos(6, seed=5):
            Image.fromarray(photo.source).save(folder / "photos" / f"{photo.name.replace(' ', '')}.png")
        source: Any = str(folder / "photos")
    elif kind == "text":
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "texts.txt").write_text("a bad film\na good book\nsad film\n")
        subject, source = make_reader(), str(folder / "texts.txt")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        subject, frame = make_patients()
        frame.head(5).to_csv(folder / "rows.csv", index=False)
        source = str(folder / "rows.csv")
    if not (folder / "store").exists():
        ig2.run(
            source,
            subject,
            method,
            folder / "store",
            question=ig2.Question(count=3 if kind == "text" else 5),
            reading=ig2.Reading(batch=1),
            device="cpu",
        )
    collection = Collection([folder / "store"], source if kind == "image" else None)
    return WhatIf(collection, subject, method, **options)


def encode(picture: Any, format: str = "png") -> bytes:
    """A picture as a file."""
    stream = io.BytesIO()
    Image.fromarray(np.asarray(picture, dtype=np.uint8)).save(stream, format)
    return stream.getvalue()


class Stream:
    """An answer that comes line by line, and can be given up."""

    def __init__(self, address: str, question: dict[str, Any], session: str = "someone") -> None:
        place = urlsplit(address)
        body = json.dumps(question).encode()
        head = f"POST /whatif/explain HTTP/1.1\r\nHost: {place.netloc}\r\n{SESSION}: {session}\r\nContent-Length: {len(body)}"
        self.socket = socket.create_connection((place.hostname, place.port), HANGS)
        self.socket.sendall(f"{head}\r\n\r\n".encode() + body)
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        while self.file.readline().strip():
            pass

    def events(self, until: str | None = None) -> list[dict[str, Any]]:
        """Read events up to the first of this kind, or to the end."""
        events = []
        for line in self.file:
            if line.startswith(b"{"):
                events.append(json.loads(line))
                if events[-1]["event"] == until or (until is None and events[-1]["event"] in ("end", "cancelled", "error")):
                    break
        return events

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
