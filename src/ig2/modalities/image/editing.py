"""Images that are painted on in a page."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ig2.errors import InputError, describe, import_extra
from ig2.modalities.base import Batch
from ig2.modalities.editing import Editor
from ig2.modalities.image.photos import ImageSubject
from ig2.modalities.image.reading import read_image
from ig2.modalities.samples import Sample
from ig2.views import View

READING_SECONDS = 10.0  # that an image waits for others
START = "data:image/png;base64,"


class ImageEditor(Editor):
    """Images as the network sees them; a page sends back what has their size."""

    subject: ImageSubject

    def __init__(self, subject: ImageSubject) -> None:
        super().__init__(subject)
        self._reading = threading.Lock()

    def describe(self) -> dict[str, Any]:
        return {"size": list(self.subject.size)}

    def show(self, row: Mapping[str, Any], view: View | None, original: Any) -> dict[str, Any]:
        try:
            return {"picture": None if original is None else self._encode(original)}
        except InputError:  # a broken file
            return {"picture": None}

    def read_upload(self, content: bytes, name: str) -> dict[str, Any]:
        return {"picture": self._encode(content)}

    def parse(self, content: Any) -> bytes:
        """Return the PNG file in a text, after a look at its size, which takes none of its pixels."""
        try:
            file = base64.b64decode(content.removeprefix(START), validate=True)
            image = import_extra("PIL.Image", "image", "pictures").open(io.BytesIO(file), formats=["PNG"])
        except Exception as error:  # whatever a broken file makes Pillow raise
            raise InputError(f"the image must be a PNG file in base64, got {describe(content)}") from error
        (width, height), size = image.size, self.subject.size
        if (height, width) != size:
            raise InputError(f"the image is {width} × {height}, expected {size[1]} × {size[0]}")
        return file

    def read(self, content: Any) -> Batch:
        return self._read(content, replace(self.subject, frame=lambda image: image))

    def draw(self, batch: Batch) -> bytes:
        stream = io.BytesIO()
        pixels = self.subject.picture(batch.attributed[0])
        import_extra("PIL.Image", "image", "pictures").fromarray(pixels).save(stream, "png")
        return stream.getvalue()

    def _encode(self, content: Any) -> str:
        return START + base64.b64encode(self.draw(self._read(content, self.subject))).decode()

    def _read(self, content: Any, reader: ImageSubject) -> Batch:
        # one at a time: a small file can have a hundred million pixels
        if not self._reading.acquire(timeout=READING_SECONDS):
            raise InputError("too many images are read at once: try again in a while")
        try:
            image = read_image(content, grey=reader.channels == 1)
            return reader.read([Sample(image, "the image")])
        finally:
            self._reading.release()
