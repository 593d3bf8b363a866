"""Attributions to draw, and what is on a figure or a page, for tests of figures."""

from __future__ import annotations

from html.parser import HTMLParser

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

import networks
from ig2 import Attribution

SENTENCES = [["Where", "did", "guinea", "pigs", "originate", "?"], ["Straße", "naïve", "Ελλάδα", "$x_1$", "a\tb", ""]]
HOSTILE = ['<script>alert("1")</script>', "'\"><img src=x onerror=y>", "&amp;", "</p>", "a\x00b"]


def sample(*shape: int, seed: int = 0) -> Tensor:
    return networks.data(*shape, seed=seed)


def made(values: Tensor, explicand: Tensor | None = None, method: str = "IG2", **fields) -> Attribution:
    count = len(values)
    return Attribution(
        values=values,
        explicand=(values.abs() if explicand is None else explicand),
        target=fields.pop("target", torch.arange(count)),
        output=torch.linspace(1, 2, count, dtype=torch.float64),
        settings={"method": method},
        **fields,
    )


def drawn(figure: Figure) -> np.ndarray:
    """The figure's pixels."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba()).copy()


def pictures(figure: Figure) -> list[AxesImage]:
    """The uppermost image of every panel, without colour bars."""
    return [axes.images[-1] for axes in figure.axes if axes.images and axes.get_label() != "<colorbar>"]


def colour_bars(figure: Figure) -> list:
    return [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]


def shown(image: AxesImage) -> np.ndarray:
    return np.asarray(image.get_array())


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


class Tags(HTMLParser):
    """What a browser would see: the tags and the text between them."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data
