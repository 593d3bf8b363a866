"""Images as a kind of data: their files, and their cells in data sets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ig2._utils.fields import is_object, is_size, is_text, or_null
from ig2.modalities.image.reading import SUFFIXES, Framing, read_image
from ig2.modalities.modality import Modality
from ig2.views import Numbers, Picture, View

if TYPE_CHECKING:
    from ig2.modalities.base import Subject
    from ig2.modalities.editing import Editor
    from ig2.modalities.image.photos import ImageSubject


class Images(Modality):
    """Photos and other images."""

    name = "image"
    nouns = "images"
    shows = Picture
    suffixes = SUFFIXES
    in_rows = True
    can_edit = True
    maker = "ig2.modalities.image.subject"
    built_in = "efficientnet-lite0"
    libraries = ("torchvision", "timm")
    settings = ("size", "bounds", "mean", "std", "classes")
    has_places = True
    originals = "image"
    fields = (
        ("view.framing", or_null(is_object), "an object or null"),
        ("view.framing.size", is_size, "a positive integer or two"),
        ("view.framing.cover", or_null(is_size), "a positive integer, two or null"),
        ("view.framing.interpolation", is_text, "a text"),
    )

    def load(self, name: str | None = None) -> Subject:
        from ig2.modalities.image.libraries import load

        return super().load() if name is None else load(name)

    def wrap(self, net: Any, name: str, settings: Mapping[str, Any], source: Path | None = None) -> tuple[ImageSubject, str]:
        import torch

        from ig2.modalities.image.photos import subject
        from ig2.model import wrap

        low, high = settings.get("bounds", (0.0, 1.0))
        # images are from 0 to 1: (low + x·(high − low) − mean) / std, which the network takes, is (x − mean′) / std′
        scaled = {"mean": [(value - low) / (high - low) for value in settings.get("mean", [0.0])]}
        scaled["std"] = [value / (high - low) for value in settings.get("std", [1.0])]
        arguments: dict[str, Any] = {part: values[0] if len(values) == 1 else values for part, values in scaled.items()}
        if isinstance(net, torch.fx.GraphModule):
            first = next(node for node in net.graph.nodes if node.op == "placeholder")
            shape: tuple[Any, ...] = tuple(getattr(first.meta.get("val"), "shape", ()))
            if len(shape) == 4 and all(isinstance(side, int) for side in shape[1:]):  # what it was exported for
                arguments |= {"size": (shape[2], shape[3]), "channels": shape[1]}
        # the layers of a program cannot be read, so distances are measured at its output
        is_closed = isinstance(net, (torch.jit.ScriptModule, torch.fx.GraphModule))
        arguments |= {part: settings[part] for part in ("size", "classes") if part in settings}
        made = subject(wrap(net, "output" if is_closed else None), name=name, **arguments)
        given = [(part, settings[part]) for part in ("mean", "std") if part in settings]
        typed = (f"{part} {', '.join(f'{value:g}' for value in values)}" for part, values in given)
        height, width = made.size
        return made, (
            f"{'grey' if made.channels == 1 else 'RGB'} photos of {height} × {width}, values from {low:g} to {high:g}, "
            f"{', '.join(typed) or 'no normalisation'}, {made.describe_classes()}"
        )

    def edit(self, subject: Subject) -> Editor:
        from ig2.modalities.image.editing import ImageEditor
        from ig2.modalities.image.photos import ImageSubject

        assert isinstance(subject, ImageSubject)
        return ImageEditor(subject)

    def is_cell(self, cell: Any) -> bool:
        return isinstance(cell, (bytes, Mapping)) or hasattr(cell, "convert")

    def extract(self, content: Any, column: str | None = None) -> Any:
        content = super().extract(content, column)
        if isinstance(content, Mapping):  # an encoded image, as Hugging Face stores it
            content = content.get("bytes") or content.get("path")
        return content

    def show_original(self, content: Any, view: View, scores: Numbers | None, about: Mapping[str, Any]) -> Picture:
        """Return the image as the network saw it; without a known framing, its middle in the proportions of the map."""
        image, framing = read_image(content), about.get("framing")
        if framing is not None:
            size, cover = (tuple(side) if isinstance(side := framing.get(name), list) else side for name in ("size", "cover"))
            image = Framing(size, cover, str(framing.get("interpolation", "bilinear")))(image)
        elif scores is not None:
            times = max(1, round(224 / max(scores.shape)))
            image = Framing((scores.shape[0] * times, scores.shape[1] * times))(image)
        return Picture(np.asarray(image, dtype=np.uint8))


IMAGES = Images()
