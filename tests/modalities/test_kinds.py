"""What every kind of data has in common."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

import ig2
from ig2 import modalities
from ig2.errors import InputError
from ig2.inputs import Fixed
from ig2.modalities import MODALITIES, Batch, Modality, Sample, Subject
from ig2.modalities.modality import find_by_suffix, find_stored, guess, list_modalities
from ig2.modalities.samples import BadRowsError, MismatchError, SampleList
from ig2.modalities.text.sentences import TextBatch
from ig2.views import Bars
from networks import refuses


def test_every_kind_is_registered_under_its_name_and_no_two_share_a_file() -> None:
    kinds = list_modalities()
    assert [kind.name for kind in kinds] == list(MODALITIES) == ["image", "text", "table", "signal", "tensor"]
    suffixes = [suffix for kind in kinds for suffix in kind.suffixes]
    assert len(set(suffixes)) == len(suffixes) and all(suffix == suffix.lower() for suffix in suffixes)
    assert find_by_suffix("A/b.WAV") is MODALITIES["signal"] and find_by_suffix("a.xyz") is None
    assert guess("photo without an ending") is MODALITIES["image"]


def test_what_a_store_holds_is_known_without_pytorch() -> None:
    code = (
        "import sys; from ig2.modalities.modality import list_modalities; list_modalities(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_store_of_an_unknown_kind_leads_to_no_code() -> None:
    """The registry takes `module:object` from a command line; a store may be anyone's."""
    assert find_stored({"kind": "text"}) is MODALITIES["text"]
    for name in ("cloud", "os:system"):
        refuses(InputError, "nothing here can show", lambda name=name: find_stored({"kind": name}))


def test_some_samples_of_a_batch() -> None:
    x = torch.arange(12.0).reshape(3, 2, 2)
    ids = torch.arange(6).reshape(3, 2)
    batch = TextBatch(
        ("a", "b", "c"), {"embeddings": x, "mask": Fixed(ids)}, (("a",), ("b",), ("c",)), ids=ids, mask=ids, word=ids
    )
    some = batch.take([2, 0])
    assert isinstance(some, TextBatch) and some.names == ("c", "a") and some.units == (("c",), ("a",))
    assert some.labels is None and torch.equal(some.ids, ids[[2, 0]])
    assert torch.equal(some.attributed, x[[2, 0]]) and torch.equal(some.x["mask"].value, ids[[2, 0]])


class Points(Modality):
    name = "point"
    nouns = "points"
    shows = Bars


@dataclass(frozen=True, eq=False, repr=False)
class PointSubject(Subject):
    """Pairs of numbers, the least that a kind of data can be."""

    modality: ClassVar[Modality] = Points()

    def read_sample(self, sample: Sample) -> torch.Tensor:
        return torch.as_tensor(sample.source, dtype=torch.float32)

    def view(self, batch: Batch, row: int) -> Bars:
        return Bars(("x", "y"))

    def fold(self, batch: Batch, values: torch.Tensor) -> list[Any]:
        return list(values.numpy())


def test_a_kind_of_data_is_read_and_contrasted_by_a_few_lines(tmp_path) -> None:
    net = nn.Linear(2, 2, bias=False)
    net.weight.data = torch.eye(2)
    pool = [[0.0, 1.0], Sample([1.0, 0.0], "right", "1")]
    mine = PointSubject("points", ig2.wrap(net.eval()), ("left", "right"), samples=lambda: pool)
    batch = mine.read([np.array([2.0, 1.0]), Sample([0.0, 3.0], "up", "b")])
    assert batch.names == ("point 1", "up") and batch.labels == (None, "b")
    assert mine.pool().names == ("point 1", "right")
    assert mine.explain(batch, ig2.IntegratedGradients(4), against=None).values.tolist() == [[2.0, 0.0], [0.0, 3.0]]
    refuses(InputError, "no points were given", lambda: mine.read([]))
    bare = PointSubject("points", mine.model, None)
    refuses(InputError, "points comes with no points to contrast with", bare.pool)
    refuses(InputError, "points have no units", lambda: bare.number_units(batch))


def test_whatever_a_broken_file_raises_names_the_sample(tmp_path: Path) -> None:
    mine = PointSubject("points", ig2.wrap(nn.Linear(2, 2).eval()), None)
    refuses(InputError, "bad cannot be read: ValueError", lambda: mine.read([Sample(["x"], "bad")]))


def test_rows_are_read_from_samples_of_a_source_too() -> None:
    table = modalities.table.subject(nn.Linear(1, 2), ["age"], ["old", "young"])
    assert table.read([Sample({"age": 3}, "p7", "old")]).cells == (("3",),)


def test_what_is_wrong_with_one_sample_is_told_from_what_is_wrong_with_all() -> None:
    def read(numbers: list[int]) -> Any:
        bad = [number for number in numbers if number in (2, 3)]
        if bad:
            raise InputError(f"{bad[0]} is broken")
        return numbers

    samples = SampleList.of([1, 2, 3, 4], ["a", "b", "c", "d"], read)
    assert samples.read([0, 3]) == [1, 4]
    assert samples.find_bad(InputError("2 is broken"), [0, 1, 2, 3]) == {1: "2 is broken", 2: "3 is broken"}
    assert samples.find_bad(MismatchError("columns are missing"), [0, 1]) == {}
    assert samples.find_bad(BadRowsError({2: "no number"}, "fill it in"), [0, 1]) == {1: "no number"}
    double = SampleList.of([2, 2], ["a", "b"], read)
    assert double.find_bad(InputError("2 is broken"), [0, 1]) == {}  # one reason for each of them
    assert double.find_bad(InputError("2 is broken"), [0]) == {0: "2 is broken"}


def test_some_files_of_a_folder_are_chosen_from_all_sub_folders(tmp_path: Path) -> None:
    for name in ("a/1.wav", "a/2.wav", "a/3.wav", "b/4.WAV", ".c/5.wav", "d/e.wav/6.wav", "a/7.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    signals = MODALITIES["signal"]
    samples = signals.list_samples(tmp_path)
    assert [sample.name for sample in samples] == ["a/1.wav", "a/2.wav", "a/3.wav", "b/4.WAV", "d/e.wav/6.wav"]
    assert [sample.label for sample in samples] == ["a", "a", "a", "b", "e.wav"]
    for seed in range(4):
        assert {sample.label for sample in signals.list_samples(tmp_path, 3, seed)} == {"a", "b", "e.wav"}
    assert len({signals.list_samples(tmp_path, 1, seed)[0].name for seed in range(20)}) > 2
    refuses(InputError, "no rows of a table", lambda: MODALITIES["table"].list_samples(tmp_path))
    refuses(InputError, "nowhere does not exist", lambda: signals.list_samples(tmp_path / "nowhere"))
