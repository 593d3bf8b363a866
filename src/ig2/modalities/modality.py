"""A kind of data without a model: its files, its rows in data sets, and how what a store keeps of it is shown.

One package holds all that is different about a kind of data. Everything else asks its `Modality` and its `Subject`, or knows
views, and never the name of a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ig2._utils.fields import Field
from ig2._utils.files import list_folder
from ig2._utils.registry import Registry
from ig2._utils.suggestions import suggest
from ig2.errors import InputError, describe
from ig2.modalities.models import MODELS
from ig2.modalities.samples import Sample, SampleList, name_files
from ig2.views import Bars, Numbers, Picture, View, Words

Values = Literal["float32", "float16", "units", "view", "none"]
"""What a store can keep of the values of any kind of data, besides groups."""

if TYPE_CHECKING:
    from ig2.modalities.base import Subject
    from ig2.modalities.editing import Editor


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
    maker: ClassVar[str]
    """The function that makes a subject of a network, such as "mypackage.clouds.subject"."""
    built_in: ClassVar[str | None] = None
    """The name of the model that `load` returns by default."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """The packages whose models `load` takes by name, as in "timm:resnet50"."""
    settings: ClassVar[tuple[str, ...]] = ()
    """What `wrap` takes about the data of a bare network, by the names of the command's options."""
    takes_estimators: ClassVar[bool] = False
    """Whether `wrap` takes estimators of scikit-learn."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """The endings of its files, in small letters."""
    has_many: ClassVar[bool] = False
    """Whether a file holds many samples, in its rows or lines; otherwise it is one."""
    most_files: ClassVar[int | None] = None
    """The most files that a command explains at once."""
    in_rows: ClassVar[bool] = False
    """Whether a cell of a data set's row, or the row itself, can be a sample."""
    has_places: ClassVar[bool] = False
    """Whether its last two axes are those of a picture, for grids, superpixels and blurred maps."""
    reads_ahead: ClassVar[bool] = True
    """Whether it is read without the network, in processes of its own beside a GPU."""
    batch: ClassVar[int] = 16
    """The number of items in one call of the method in a run."""
    keeps: ClassVar[Values] = "float32"
    """What a store keeps of the values by default, as `ig2.run` takes it."""
    can_edit: ClassVar[bool] = False
    """Whether its samples can be changed on a page, and explained again."""
    originals: ClassVar[str | None] = None
    """The kind of data that a page reads from the source, as an image; None if a store has all that is shown."""
    fields: ClassVar[tuple[Field, ...]] = ()
    """What a store's manifest holds of it under "view", with checks."""

    # -- models --------------------------------------------------------------------------------------------------------

    def load(self, name: str | None = None) -> Subject:
        """Load a model by name, by default the one that is built in.

        Args:
            name: a registered name, such as "questions", or one of its `libraries`, such as "timm:resnet50".

        Raises:
            InputError: if there is none, or it is of another kind of data.
        """
        name = self.built_in if name is None else name
        if name is None:
            raise InputError(
                f"no model for {self.nouns} is built in: name a function that returns a subject, made with {self.maker}(...), "
                "as --model module:function"
            )
        if name in MODELS:
            subject: Subject = MODELS[name]()
            if subject.modality.name != self.name:
                raise InputError(f"{name} explains {subject.modality.nouns}, and these are {self.nouns}: name another model")
            return subject
        source, _, inside = name.partition(":")
        if inside and source in self.libraries:
            return self.load_from(source, inside)
        others = "".join(f", or {library}:NAME" for library in self.libraries)
        raise InputError(f"no model for {self.nouns} is called {describe(name)}{suggest(name, MODELS, 3)}{others}")

    def load_from(self, library: str, name: str) -> Subject:
        """Load a model of one of its `libraries`.

        Raises:
            InputError: if there is none of this name.
        """
        raise NotImplementedError

    def wrap(self, net: Any, name: str, settings: Mapping[str, Any], source: Path | None = None) -> tuple[Subject, str]:
        """Make a subject of a bare network.

        Args:
            net: the network, or an estimator if this `takes_estimators`.
            name: what to call it.
            settings: those of its `settings` that are known of its data.
            source: a file of samples like those that it takes.

        Returns:
            The subject, and what is assumed of its data, in words.

        Raises:
            InputError: if nothing can be assumed, or the network does not take the data.
        """
        raise InputError(
            f"{name} is a network, and nothing says how {self.nouns} reach it: name a function that returns a subject, made "
            f"with {self.maker}(...)"
        )

    def edit(self, subject: Subject) -> Editor:
        """Return what changes samples on a page, if this `can_edit`.

        Raises:
            InputError: if they cannot be changed.
        """
        raise InputError(f"{self.nouns} cannot be changed on a page")

    # -- files ---------------------------------------------------------------------------------------------------------

    def list_samples(self, place: str | PathLike[str], limit: int | None = None, seed: int = 0) -> list[Sample]:
        """List the files of a folder; the name of a sub-folder is the class of its files.

        Args:
            place: the folder, or a single file.
            limit: the maximum number of files, chosen round-robin over sub-folders; by default all.
            seed: the seed of the choice if there are more.

        Raises:
            InputError: if there are none.
        """
        root = Path(place)
        if not root.exists():
            raise InputError(f"{root} does not exist")
        if not root.is_dir():
            return [Sample(root, root.name)]
        paths = [Path(path) for path in list_folder(root, self.suffixes)]
        if not paths:
            raise InputError(f"{root} has no {self.nouns} ({', '.join(suffix[1:] for suffix in self.suffixes)})")
        if limit is not None and limit < len(paths):
            import torch

            from ig2.references.choice import round_robin

            folders = {folder: number for number, folder in enumerate(dict.fromkeys(path.parent for path in paths))}
            order = round_robin(torch.tensor([folders[path.parent] for path in paths]), seed)
            paths = [paths[i] for i in sorted(order[:limit])]
        return [Sample(path, str(path.relative_to(root)), None if path.parent == root else path.parent.name) for path in paths]

    def open(
        self,
        subject: Subject,
        files: Sequence[Path],
        texts: Sequence[str] = (),
        choose: Callable[[int], Sequence[int]] | None = None,
    ) -> SampleList:
        """Return the samples that a command names, to be read by a subject.

        Args:
            subject: the model.
            files: their files.
            texts: samples that are typed instead, for kinds of data that can be.
            choose: a function from the number of rows or lines of a file to the indices of those to read.
        """
        names = name_files(files)
        samples = [Sample(path, name) for path, name in zip(files, names, strict=True)]
        return replace(SampleList.of(samples, names, subject.read), files=files)

    def name_file(self, name: str, number: int) -> str:
        """Return what a picture of a sample is called, without the ending.

        Args:
            name: the name of the sample.
            number: its number among the others, from 1.
        """
        return Path(name).stem

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
    maker = "ig2.modalities"
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
