"""A kind of data without a model: its files, its rows in data sets, and how what a store keeps of it is shown.

One package holds all that is different about a kind of data. Everything else asks its `Modality` and its `Subject`, or knows
views, and never the name of a kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ig2._utils.fields import Field
from ig2._utils.registry import Registry
from ig2._utils.suggestions import suggest
from ig2.errors import InputError, describe
from ig2.views import Bars, Numbers, Picture, View, Words


@dataclass(frozen=True, eq=False)
class Sample:
    """Something to read, with its name, and its class if known.

    Args:
        source: whatever the kind of data is read from: a file, an array, a tensor.
        name: the name to show; by default the file's name.
        label: the class of the sample.
    """

    source: Any
    name: str | None = None
    label: str | None = None


class Modality:
    """A kind of data. Subclasses set the class variables, and override what is different.

    A package registers an instance with one line in its `pyproject.toml`, a script by `MODALITIES["cloud"] = CLOUDS`:

        [project.entry-points."ig2.modalities"]
        cloud = "mypackage.clouds:CLOUDS"
    """

    name: ClassVar[str]
    """What a store records, such as "cloud"."""
    nouns: ClassVar[str]
    """What messages call several of them, such as "point clouds"."""
    shows: ClassVar[type[View]]
    """How samples are shown."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """The endings of its files, in small letters."""
    has_many: ClassVar[bool] = False
    """Whether a file holds many samples, in its rows or lines; otherwise it is one."""
    in_rows: ClassVar[bool] = False
    """Whether a cell of a data set's row, or the row itself, can be a sample."""
    has_places: ClassVar[bool] = False
    """Whether its last two axes are those of a picture, for grids, superpixels and blurred maps."""
    reads_ahead: ClassVar[bool] = True
    """Whether it is read without the network, in processes of its own beside a GPU."""
    batch: ClassVar[int] = 16
    """The number of items in one call of the method in a run."""
    keeps: ClassVar[str] = "float32"
    """What a store keeps of the values by default, as `ig2.run` takes it."""
    originals: ClassVar[str | None] = None
    """The kind of data that a page reads from the source, as an image; None if a store has all that is shown."""
    fields: ClassVar[tuple[Field, ...]] = ()
    """What a store's manifest holds of it under "view", with checks."""

    # -- rows of data sets ---------------------------------------------------------------------------------------------

    def extract(self, content: Any, column: str | None = None) -> Any:
        """Return what a subject reads from the content that a source loaded: a path, a row, a text, a sample with its label.

        Args:
            content: the content.
            column: the column of a row; by default the only one with a cell that can be a sample.

        Raises:
            InputError: if the content holds no sample of this kind.
        """
        if isinstance(content, (tuple, list)) and content:
            content = content[0]  # a data set's (sample, label)
        return content[self.find_column(content, column)] if isinstance(content, Mapping) else content

    def find_column(self, row: Mapping[str, Any], column: str | None) -> str:
        """Return the column of a row that holds the sample."""
        if column is not None:
            if column not in row:
                raise InputError(f"there is no column {column!r}{suggest(column, map(str, row), choice='it has')}")
            return column
        columns = [name for name, cell in row.items() if self.is_cell(cell)]
        if len(columns) != 1:
            raise InputError(
                f"the row has {len(columns)} columns that may be the {self.name}, {describe(list(row))}: name one as column"
            )
        return str(columns[0])

    def is_cell(self, cell: Any) -> bool:
        """Return whether a cell of a row can be a sample."""
        return False

    # -- rows of stores ------------------------------------------------------------------------------------------------

    def show_row(self, row: Mapping[str, Any], manifest: Mapping[str, Any]) -> tuple[View, Numbers] | None:
        """Return how a row is shown by what the store has of it, and its values as that view takes them.

        By default they are summed over channels for a picture, otherwise over all but the first
        axis. The sum of a superpixel is spread evenly over its pixels, which preserves sums.

        Args:
            row: the row, with "values", and as stored "regions", "units" and "cells".
            manifest: the manifest of the store, with "view" as the subject describes it.

        Returns:
            The view and its scores; None if values in this form cannot be shown.
        """
        values = clean(row["values"])
        if row.get("regions") is not None:
            regions = np.asarray(row["regions"], dtype=np.int64)
            sizes = np.bincount(regions.reshape(-1), minlength=len(values))
            return Picture(), (values / np.maximum(sizes, 1))[regions]
        if self.shows is Picture and values.ndim >= 2:
            return Picture(), values.reshape(-1, *values.shape[-2:]).sum(axis=0)
        scores = values.reshape(len(values), -1).sum(axis=1)
        names = manifest.get("units") if row.get("units") is None else row["units"]
        fits = names is not None and len(names) == len(scores)
        units = tuple(map(str, names if fits else range(1, len(scores) + 1)))  # type: ignore[arg-type]
        if self.shows is Words:
            return Words(units), scores
        cells = tuple(map(str, row.get("cells") or ()))
        return Bars(units, cells if len(cells) == len(units) else ()), scores

    def show_original(self, content: Any, view: View, scores: Numbers | None, about: Mapping[str, Any]) -> View:
        """Return how a row is shown by its original, which a store does not have: the image, the curve.

        Args:
            content: what `extract` returned of the source's item.
            view: how the row is shown without it.
            scores: the values that are shown on it; None where the store has none.
            about: what the subject describes of its views.

        Raises:
            InputError: if the content cannot be read.
        """
        return view


def clean(values: Any) -> Numbers:
    """Return numbers of a store for display: zeros where they are not finite."""
    return np.nan_to_num(np.asarray(values, dtype=np.float64), posinf=0.0, neginf=0.0)


class Tensors(Modality):
    """Samples of a network that comes without a subject, in the form that it takes."""

    name = "tensor"
    nouns = "tensors"
    shows = Picture
    originals = "image"
    has_places = True
    batch = 64

    def extract(self, content: Any, column: str | None = None) -> Any:
        import torch

        if isinstance(content, (tuple, list)) and content:
            content = content[0]
        if isinstance(content, np.ndarray):
            content = torch.from_numpy(content)
        if not isinstance(content, torch.Tensor):
            raise InputError(f"a sample must be a tensor or an array, got {describe(content)}")
        return content


TENSORS = Tensors()
MODALITIES = Registry(
    "ig2.modalities",
    "kind of data",
    built_in={
        "image": "ig2.modalities.image.modality:IMAGES",
        "text": "ig2.modalities.text.modality:TEXTS",
        "table": "ig2.modalities.table.modality:TABLES",
        "signal": "ig2.modalities.signal.modality:SIGNALS",
        "tensor": "ig2.modalities.modality:TENSORS",
    },
)
"""The kinds of data by name: those of this package, and those that installed packages register under `ig2.modalities`."""


def list_modalities() -> tuple[Modality, ...]:
    """Return every kind of data."""
    return tuple(MODALITIES.values())


def find(name: str) -> Modality:
    """Return the kind of data of this name."""
    found: Modality = MODALITIES[name]
    return found


def find_by_suffix(path: str) -> Modality | None:
    """Return the kind of data that a file's name ends in; None if there is none."""
    lowered = path.lower()
    return next((each for each in list_modalities() if each.suffixes and lowered.endswith(each.suffixes)), None)


def guess(path: str) -> Modality:
    """Return the kind of data of a file: that of its ending, otherwise an image, whose format is known by its content."""
    return find_by_suffix(path) or find("image")


def find_stored(manifest: Mapping[str, Any]) -> Modality:
    """Return the kind of data of a store.

    Raises:
        InputError: if no installed package knows it.
    """
    name = manifest.get("kind", TENSORS.name)
    if name not in MODALITIES:  # nothing in a store leads to code: the registry alone would take a module:object
        raise InputError(f"the store has {name}s, which nothing here can show: install the package that it was made with")
    return find(name)
