"""The samples of a run, from the source named in the command: never from a path in a request or a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ig2.errors import InputError, describe
from ig2.explorer.maps import Map
from ig2.modalities.modality import find, find_stored
from ig2.runs.sources import Rows, find_source
from ig2.views import Picture, View


class Originals:
    """Samples by the ids of their items, as the network saw them.

    The source is listed once. A request can access only the ids in that list.

    Args:
        source: a folder or pattern of files, a data set, or a `Source`.
        manifest: the manifest of the store, with its kind of data, its view and the column.

    Raises:
        InputError: if the source has no samples of this kind by id.
    """

    def __init__(self, source: Any, manifest: Mapping[str, Any]) -> None:
        name = find_stored(manifest).originals
        assert name is not None
        self.source, self.modality = find_source(source), find(name)
        if isinstance(self.source, Rows) or self.modality.name not in self.source.kinds:
            nouns = self.modality.nouns
            raise InputError(
                f"--source {describe(source)} has no {nouns} that can be read one by one: name the folder of {nouns}, or "
                "module:function that returns the data set"
            )
        self.about = manifest.get("view") or {}
        self.handles = {item.id: item.content for item in self.source.items()}
        self.column = manifest["fingerprint"].get("settings", {}).get("column")

    def __contains__(self, identity: str) -> bool:
        return identity in self.handles

    def load(self, identity: str) -> Any:
        """Return what a subject reads of an item.

        Raises:
            InputError: if there is no item with that id, or it holds nothing of this kind.
        """
        if identity not in self.handles:
            raise InputError(f"there is no item {describe(identity)} in the source")
        return self.modality.extract(self.source.load(self.handles[identity]), self.column)

    def view(self, identity: str, shown: Map | None) -> View | None:
        """Return how an item itself is shown under its map, if any; None if it is missing or broken."""
        view, scores = (Picture(), None) if shown is None else (shown.view, shown.scores)
        try:
            return self.modality.show_original(self.load(identity), view, scores, self.about)
        except InputError:  # a broken file: the map alone is shown
            return None
