"""A run explains every item once, whatever happens on the way."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
import torch
from limits import HANGS
from torch import nn

import ig2
from ig2 import metrics, modalities, targets
from ig2._utils.digests import fingerprint
from ig2._utils.files import FileError, write_file
from ig2._utils.suggestions import ChoiceError
from ig2.errors import InputError
from ig2.explorer import Collection
from ig2.groups import Groups
from ig2.runs import Store, execution, planning, pooling
from ig2.runs import plan as plans
from ig2.runs import rows as rows_of
from ig2.runs.files import lock_store
from ig2.runs.manifest import _fingerprint_weights
from ig2.runs.planning import check_saving, make_plan
from ig2.runs.sources import find_source, group_items
from networks import Record, data, refuses, seeded
from whatifs import make_patients

SOURCE = Path(__file__).parent.parent.parent / "src"


def content(store: Store) -> list[str]:
    """Every row of a store to the last bit, in order."""
    rows = []
    for row in ig2.open(store.folder):
        cells = {key: cell.tobytes().hex() if isinstance(cell, np.ndarray) else cell for key, cell in row.items()}
        rows.append(json.dumps(cells, sort_keys=True))
    return rows


class Listed(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that note when they are read; some cannot be."""

    def __init__(self, samples: torch.Tensor, broken: tuple[int, ...] = ()) -> None:
        self.samples, self.broken, self.read = samples, set(broken), list[int]()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.read.append(index)
        if index in self.broken:
            raise OSError(5, "Input/output error")
        return self.samples[index]


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_photos_with_references_metrics_and_classes(
    photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path
) -> None:
    metric = ig2.metrics.Insertion(thresholds=4)
    method = ig2.IG2(3)
    store = ig2.run(
        photos,
        subject,
        method,
        tmp_path / "store",
        question=ig2.Question(count=3),
        saving=ig2.Saving(metrics=[metric], gradcf=True),
        reading=ig2.Reading(batch=5),
    )
    names = [item.id for item in find_source(photos)][:5]
    attribution = subject.explain([photos / name for name in names], method, count=3)
    scores = metric(subject.model, attribution)
    assert attribution.against is not None and attribution.trust is not None and attribution.gradcf is not None
    for i, name in enumerate(names):
        row = store[name]
        assert row["label_name"] == name.split("/")[0] and row["label"] == ["red", "green"].index(row["label_name"])
        assert row["target_name"] == subject.label(row["target"]) == subject.label(int(attribution.target[i]))
        assert row["against"] == [int(attribution.against[i])]
        assert row["trust"] == pytest.approx(float(attribution.trust[i].median()), abs=1e-6)
        assert row["insertion"] == pytest.approx(float(scores.values[i]), abs=1e-6)
        assert len(row["insertion_curve"]) == 5
        np.testing.assert_allclose(row["values"], attribution.values[i].numpy(), atol=1e-6)
        np.testing.assert_allclose(row["gradcf"], attribution.gradcf[i].numpy(), atol=1e-6)
    assert len(store.aggregates.curve("insertion")) == 5


@pytest.mark.parametrize("values", ["float16", ig2.Grid(4, 2), ig2.Superpixels(6), "none"])
def test_values_are_pooled_and_keep_their_sum(
    photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path, values: Any
) -> None:
    full = ig2.run(photos, subject, ig2.Gradient(), tmp_path / "full")
    store = ig2.run(photos, subject, ig2.Gradient(), tmp_path / "store", saving=ig2.Saving(values=values))
    expected, row = full["red/3.png"]["values"], store["red/3.png"]
    if values == "none":
        assert "values" not in row
    elif values == "float16":
        assert row["values"].dtype == np.float16
        np.testing.assert_allclose(row["values"], expected, rtol=1e-3, atol=1e-6)
    elif isinstance(values, ig2.Grid):
        blocks = expected.sum(axis=0).reshape(4, 2, 2, 4).sum(axis=(1, 3))
        np.testing.assert_allclose(row["values"], blocks, atol=1e-6)
    else:
        plane, regions = expected.sum(axis=0), row["regions"]
        assert regions.shape == (8, 8)
        sums = [plane[regions == region].sum() for region in range(len(row["values"]))]
        np.testing.assert_allclose(row["values"], sums, atol=1e-6)


@pytest.mark.parametrize("values", ["float32", ig2.Grid(4, 2), ig2.Superpixels(6), "none"])
def test_aggregates_are_those_of_the_rows(
    photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path, values: Any
) -> None:
    metric = ig2.metrics.Insertion(thresholds=4)
    store = ig2.run(
        photos,
        subject,
        ig2.IG2(2),
        tmp_path / "store",
        question=ig2.Question(count=3),
        saving=ig2.Saving(values=values, metrics=[metric]),
        reading=ig2.Reading(batch=5),
    )
    aggregates = store.aggregates
    assert aggregates.rows == len(store) and len(aggregates.curve("insertion")) == 5
    assert (len(aggregates.feature_means()) > 0) == (values == "float32" or isinstance(values, ig2.Grid))


def test_words_of_texts(tmp_path: Path) -> None:
    embedding = seeded(lambda: nn.Embedding(50, 4), 0).float()
    net = seeded(lambda: nn.Linear(4, 3), 1).float()

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = net

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            weights = mask[..., None].to(x)
            return self.head((x * weights).sum(1) / weights.sum(1))

    def cut(line: str) -> list[tuple[int, int, int]]:
        places = [line.index(word) for word in line.split()]
        return [(1 + sum(map(ord, word)) % 49, at, at + len(word)) for word, at in zip(line.split(), places, strict=True)]

    subject = modalities.text.from_parts(embedding, Mean().eval(), cut, texts=["yes no", "hot cold warm", "red"])
    (tmp_path / "lines.txt").write_text("one two three\nfour\nfive six\n", encoding="utf-8")
    store = ig2.run(tmp_path / "lines.txt", subject, ig2.IntegratedGradients(3), tmp_path / "words")
    assert store["lines.txt:1"]["units"] == ["one", "two", "three"] and store["lines.txt:2"]["values"].shape == (1,)
    assert set(store.aggregates.words) == {"one", "two", "three", "four", "five", "six"}
    raw = ig2.run(
        tmp_path / "lines.txt", subject, ig2.IntegratedGradients(3), tmp_path / "raw", saving=ig2.Saving(values="float32")
    )
    assert raw["lines.txt:3"]["values"].shape == (2, 4)
    np.testing.assert_allclose(raw["lines.txt:1"]["values"].sum(axis=1), store["lines.txt:1"]["values"], atol=1e-6)
    metric = ig2.metrics.Deletion(thresholds=3, features="word")
    scores = raw.score(metric, tmp_path / "lines.txt", subject)
    lines = (tmp_path / "lines.txt").read_text().splitlines()
    batch = subject.read(lines)
    attribution = ig2.IntegratedGradients(3)(subject.model, batch.x, references=subject.baseline(batch), against="next")
    torch.testing.assert_close(scores.values, metric(subject.model, attribution).values.double(), atol=1e-5, rtol=1e-5)


def table_subject(classes: int = 3) -> modalities.table.TableSubject:
    net = seeded(lambda: nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, classes)), 0).eval().float()
    frame = pandas.DataFrame({"age": [20, 40, 60, 80], "town": ["a", "b", "a", "b"]})
    return modalities.table.subject(net, modalities.table.infer_columns(frame), ["x", "y", "z"][:classes], rows=frame)


def test_rows_of_a_table_and_those_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("key,age,town\np,30,a\nq,old,b\nr,50,c\ns,70,b\n", encoding="utf-8")
    store = ig2.run(
        tmp_path / "t.csv", table_subject(), ig2.IntegratedGradients(3), tmp_path / "store", reading=ig2.Reading(id="key")
    )
    assert store.manifest["units"] == ["age", "town"] and store["p"]["values"].shape == (2,)
    assert store["p"]["cells"] == ["30", "a"]
    assert store.failures == {"BadRowsError": 2}
    assert "old" in store["q"]["error"] and "'c'" in store["r"]["error"]
    assert "row 1" not in store["r"]["error"]  # which it is in no table of the user's
    explanation = store.to_shap()
    assert explanation.values.shape == (2, 2) and list(explanation.feature_names) == ["age", "town"]


def test_a_pool_that_is_a_source(photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path) -> None:
    (photos / "red" / "broken.png").write_bytes(b"nothing")
    with pytest.warns(ig2.IG2Warning, match=r"red/broken\.png"):
        store = ig2.run(
            photos / "green", subject, ig2.ExpectedIG(3), tmp_path / "store", question=ig2.Question(references=photos, count=2)
        )
    assert store.manifest["fingerprint"]["question"]["references"]["place"] == str(photos)
    items = [item for item in find_source(photos) if "broken" not in item.id]
    pool = [modalities.Sample(item.content, item.id, item.label) for item in items]
    attribution = subject.explain([photos / "green/0.png"], ig2.ExpectedIG(3), references=pool, count=2)
    np.testing.assert_allclose(store["0.png"]["values"], attribution.values[0].numpy(), atol=1e-6)


def test_any_strategy_gives_the_references(net: nn.Module, samples: torch.Tensor, tmp_path: Path) -> None:
    strategy = ig2.references.RandomSamples(data(6, 5, seed=9), 3)
    store = ig2.run(
        samples,
        net,
        ig2.ExpectedIG(3),
        tmp_path / "store",
        question=ig2.Question(references=strategy),
        reading=ig2.Reading(batch=7),
    )
    attribution = ig2.ExpectedIG(3)(net, samples, references=strategy)
    np.testing.assert_allclose(np.stack([row["values"] for row in store]), attribution.values.numpy(), atol=1e-6)
    assert all(row["spread"] > 0 for row in store)
    other = ig2.references.RandomSamples(data(6, 5, seed=8), 3)
    refuses(
        InputError,
        "digest",
        lambda: ig2.run(samples, net, ig2.ExpectedIG(3), tmp_path / "store", question=ig2.Question(references=other)),
    )


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_walks_that_failed_are_told_apart(tmp_path: Path) -> None:
    flat = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).double().eval()
    with torch.no_grad():
        flat[0].weight.fill_(1.0), flat[0].bias.fill_(-1.0), flat[2].weight.fill_(1.0)
    samples = torch.tensor([[0.0, 0.0], [3.0, 3.0]]).double()  # asleep, awake
    references = torch.full((1, 2), 4.0).double()
    stores = [
        ig2.run(
            samples,
            flat,
            ig2.IG2(10, fallback=fallback),
            tmp_path / str(fallback),
            question=ig2.Question(references=references),
        )
        for fallback in (None, "straight")
    ]
    columns = [store.to_pandas(["arrival", "stuck", "finished"]) for store in stores]
    assert columns[0]["stuck"].tolist() == [1.0, 0.0] and columns[0]["finished"].isna().all()
    assert columns[1]["finished"].tolist() == [1.0, 0.0] and (columns[1]["arrival"] > 0.99).all()
    assert stores[0].aggregates.mean("stuck") == 0.5 and stores[1].where("finished > 0").ids == ["0"]


def test_targets_that_are_no_class(net: nn.Module, samples: torch.Tensor, tmp_path: Path) -> None:
    dense = nn.Sequential(nn.Conv1d(1, 3, 3, padding=1), nn.Tanh()).double().eval()
    signals, region, deletion = samples[:, None], targets.Region((1, 4), 2), metrics.Deletion(features="element")
    store = ig2.run(
        signals,
        dense,
        ig2.IntegratedGradients(4),
        tmp_path / "a",
        question=ig2.Question(target=region),
        saving=ig2.Saving(metrics=[deletion]),
    )
    alone = ig2.IntegratedGradients(4)(dense, signals, region)
    assert np.allclose([row["values"] for row in store], alone.values, atol=1e-6)
    assert store[3]["target_name"] == alone.explained[3]
    assert store[3]["prediction"] is None and store[3]["output"] == pytest.approx(float(alone.output[3]))
    scores = deletion(dense, alone).values
    assert np.allclose([row["deletion"] for row in store], scores, atol=1e-6)

    def again(target: Any) -> Any:
        question = ig2.Question(target=target)
        return ig2.run(signals, dense, ig2.IntegratedGradients(4), tmp_path / "a", question)

    refuses(InputError, "another run", lambda: again(targets.Region((1, 4), 1)))
    refuses(InputError, "metrics=", lambda: store.score(deletion, signals, dense))
    refuses(InputError, "same for every item", lambda: again(targets.Region(torch.tensor([[1.0, 4.0], [0.0, 2.0]]), 2)))
    by_number, by_object = (
        ig2.run(samples, net, ig2.IntegratedGradients(4), tmp_path / name, question=ig2.Question(target=target))
        for name, target in (("b", 1), ("c", targets.Class(1)))
    )
    assert [row["output"] for row in by_number] == [row["output"] for row in by_object]


def test_photos_are_explained_by_a_target(photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path) -> None:
    norm = targets.Magnitude()
    store = ig2.run(photos, subject, ig2.IG2(4), tmp_path / "store", question=ig2.Question(target=norm, count=2))
    assert len(store) == 12 and {row["target_name"] for row in store} == {"the norm of the output"}
    a = subject.explain(sorted(photos.rglob("*.png"))[:2], ig2.IG2(4), norm, count=2)
    assert a.explained == ["the norm of the output"] * 2 and a.baseline_outputs.shape == (2, 2) and a.question is norm
    assert "numbers" in a.names.why[0]
    named = subject.explain(sorted(photos.rglob("*.png"))[:1], ig2.IG2(4), targets.Difference(0, 1), count=2)
    assert named.explained == ["red rather than green"]


def test_another_run_is_refused_with_what_differs(net: nn.Module, samples: torch.Tensor, tmp_path: Path) -> None:
    out = tmp_path / "store"
    ig2.run(samples, net, ig2.IntegratedGradients(4), out)
    changed = seeded(lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), 1).eval()
    refuses(InputError, "method.rule", lambda: ig2.run(samples, net, ig2.IntegratedGradients(5), out))
    refuses(InputError, "model.weights", lambda: ig2.run(samples, changed, ig2.IntegratedGradients(4), out))
    refuses(
        InputError,
        "question.seed is 0 there and 1 here",
        lambda: ig2.run(samples, net, ig2.IntegratedGradients(4), out, question=ig2.Question(seed=1)),
    )
    refuses(InputError, "source.name", lambda: ig2.run(Listed(samples), net, ig2.IntegratedGradients(4), out))
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["fingerprint"]["code"] = "ig2 0.0.1"
    (out / "manifest.json").write_text(json.dumps(manifest))
    refuses(InputError, "code is 'ig2 0.0.1'", lambda: ig2.run(samples, net, ig2.IntegratedGradients(4), out))


class Scaled(nn.Module):
    """An output with a weight of its own."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return scores * self.factor


def wrap_function(factor: float) -> Any:
    layer = seeded(lambda: nn.Linear(5, 3), 0).eval()
    layer.weight.data.mul_(factor)
    return lambda x: layer(x)


@pytest.mark.parametrize(
    ("makes", "named"),
    [
        (lambda net, factor: ig2.wrap(net, output=lambda scores: scores * factor), "model.output"),
        (lambda net, factor: ig2.wrap(net, output=Scaled(factor)), "model.output"),
        (lambda net, factor: ig2.wrap(net, preprocess=lambda x: x * factor), "model.preprocess"),
        (lambda net, factor: ig2.wrap(net, bounds=(torch.full((5,), -9.0 * factor), torch.full((5,), 9.0))), "model.bounds"),
        (
            lambda net, factor: ig2.wrap(net, prepare=ig2.Preparation(precision=None if factor == 1 else "bfloat16")),
            "model.precision is None there and 'bfloat16' here",
        ),
        (lambda net, factor: wrap_function(factor), "model.weights"),
    ],
)
def test_rows_of_two_models_are_never_in_one_store(makes: Any, named: str, net: nn.Module, tmp_path: Path) -> None:
    samples, method, out = data(4, 5), ig2.IntegratedGradients(2), tmp_path / "store"
    ig2.run(Listed(samples[:2]), makes(net, 1.0), method, out)
    assert len(ig2.run(Listed(samples[:3]), makes(net, 1.0), method, out)) == 3  # made anew, it is the same
    refuses(InputError, named, lambda: ig2.run(Listed(samples), makes(net, 2.0), method, out))


def test_photos_of_another_size_or_other_classes_are_refused(photos: Path, tmp_path: Path) -> None:
    net = seeded(lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)), 0).eval().float()

    def run(size: int, classes: list[str], **options: Any) -> Any:
        subject = modalities.image.subject(net, size, classes=classes, **options)
        return lambda: ig2.run(photos, subject, ig2.Gradient(), tmp_path / "store", saving=ig2.Saving(values=ig2.Grid(2, 2)))

    run(8, ["a", "b"])()
    assert len(run(8, ["a", "b"])()) == 12
    refuses(InputError, "model.size is list of 2", run(6, ["a", "b"]))
    refuses(
        InputError, "model.frame.interpolation", run(8, ["a", "b"], frame=modalities.image.Framing(8, interpolation="nearest"))
    )
    refuses(InputError, "model.classes", run(8, ["b", "a"]))


def test_a_method_of_an_object_is_the_same_in_another_process(tmp_path: Path) -> None:
    class Scorer:
        def score(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :2]

    for scorer in [Scorer(), Scorer()]:  # the text of each has its address
        assert len(ig2.run(data(2, 3), scorer.score, ig2.Gradient(), tmp_path / "store")) == 2


def test_a_run_that_could_not_begin_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("key,age,town\np,30,a\nq,40,b\n", encoding="utf-8")

    def run(id: str) -> Any:
        return lambda: ig2.run(
            tmp_path / "t.csv", table_subject(), ig2.Gradient(), tmp_path / "store", reading=ig2.Reading(id=id)
        )

    refuses(InputError, "no column 'kye'", run("kye"))
    assert run("key")().ids == ["p", "q"]
    refuses(InputError, "source.id is 'key' there and 'age' here", run("age"))


def test_a_folder_of_something_else_is_refused(
    net: nn.Module, samples: torch.Tensor, method: ig2.Method, tmp_path: Path
) -> None:
    (tmp_path / "thesis.doc").write_text("x")
    refuses(InputError, "thesis.doc", lambda: ig2.run(samples, net, method, tmp_path))
    refuses(InputError, "file", lambda: ig2.run(samples, net, method, tmp_path / "thesis.doc"))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.doc"]


def test_a_store_keeps_what_a_view_shows(tmp_path: Path) -> None:
    flat = nn.Sequential(nn.Flatten(), seeded(lambda: nn.Linear(24, 2), 0).float()).eval()
    picture = modalities.image.subject(flat, (2, 4), classes=["a", "b"])
    heart = modalities.signal.subject(flat, 12, "TC", channels=["left", "right"])
    pixels = np.random.default_rng(0).integers(0, 256, (3, 2, 4, 3), dtype=np.uint8)
    for subject, samples in ((picture, list(pixels)), (heart, list(data(3, 12, 2).float()))):
        out = tmp_path / subject.modality.name
        store = ig2.run(
            samples,
            subject,
            ig2.Gradient(),
            out,
            question=ig2.Question(against=None),
            saving=ig2.Saving(values="view"),
            reading=ig2.Reading(batch=2),
        )
        batch = subject.read(samples)
        expected = subject.scores(batch, ig2.Gradient()(subject.model, batch.x))
        for row, scores in zip(store, expected, strict=True):
            assert row["values"].shape == scores.shape
            np.testing.assert_allclose(row["values"], scores, rtol=1e-5, atol=1e-7)
        view = Collection([out]).view("1")[0][0]
        assert isinstance(view.view, subject.modality.shows)
        np.testing.assert_allclose(view.methods[0].scores, expected[1], rtol=1e-5, atol=1e-7)
    refuses(ChoiceError, "bare network", lambda: ig2.run(samples, flat, None, tmp_path / "x", saving=ig2.Saving(values="view")))


def test_arguments_that_do_not_fit(
    photos: Path, subject: modalities.image.ImageSubject, net: nn.Module, tmp_path: Path
) -> None:
    def run(*arguments: Any, **options: Any) -> Any:
        return lambda: ig2.run(*arguments, out=tmp_path / "store", **options)

    def saving(**parts: Any) -> Any:
        return run(photos, subject, saving=ig2.Saving(**parts))

    refuses(ChoiceError, "units", saving(values="units"))
    refuses(ChoiceError, "float8", saving(values="float8"))
    refuses(InputError, "truth", saving(metrics=[ig2.metrics.GTAUC()]))
    refuses(InputError, "metrics", saving(metrics=["insertion"]))
    few, many = ig2.metrics.Insertion(thresholds=4), ig2.metrics.Insertion(thresholds=8)
    refuses(InputError, "two metrics would be named 'insertion'", saving(metrics=[few, many]))
    deletion = ig2.metrics.Deletion(thresholds=4)
    refuses(InputError, "two metrics would be named 'insertion'", saving(metrics=[few, many, deletion]))
    for name in ("id", "output", "values", "gradcf", 3):
        refuses(InputError, f"a metric would be named {name!r}", saving(metrics={name: few}))
    refuses(InputError, "tensors", run(photos, ig2.wrap(net)))
    (tmp_path / "lines.txt").write_text("one\n")
    refuses(InputError, "reads images", run(tmp_path / "lines.txt", subject))
    refuses(InputError, "strategy", run(data(3, 5), net, ig2.ExpectedIG(2), question=ig2.Question(references=photos)))
    refuses(InputError, "no items", run(torch.zeros(0, 5), net))
    assert not (tmp_path / "store" / "manifest.json").exists() or not ig2.open(tmp_path / "store").files


@pytest.mark.parametrize("total", [3, 10, 15, 19, 27])
def test_references_are_evenly_spaced_items_of_a_source(total: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "POOL", 10)
    rows = "".join(f"{20 + number},a\n" for number in range(total))
    (tmp_path / "rows.csv").write_text(f"age,town\n{rows}")
    pool, skipped, there = planning.read_pool(table_subject(), tmp_path / "rows.csv")
    assert pool.cells is not None
    numbers = [int(age) - 19 for age, _ in pool.cells]
    gaps = np.diff([*numbers, total + 1])
    assert (len(pool), skipped, there, numbers[0]) == (min(10, total), {}, total, 1)
    assert gaps.max() - gaps.min() <= 1


def test_two_items_of_one_id_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("key,age,town\np,30,a\nq,40,b\np,50,a\n", encoding="utf-8")
    refuses(
        InputError,
        "'p' is a duplicate",
        lambda: ig2.run(tmp_path / "t.csv", table_subject(), None, tmp_path / "s", reading=ig2.Reading(id="key")),
    )


def test_a_run_in_which_nothing_works_says_so(net: nn.Module, tmp_path: Path) -> None:
    refuses(InputError, "none of 4 items", lambda: ig2.run(data(4, 6), net, ig2.Gradient(), tmp_path / "a"))
    refuses(
        InputError,
        "at fault",
        lambda: ig2.run(data(500, 6), net, ig2.Gradient(), tmp_path / "b", reading=ig2.Reading(batch=50)),
    )
    assert not ig2.open(tmp_path / "a").files


# -- bad items ---------------------------------------------------------------------------------------------------------


def test_a_bad_item_is_a_row_with_its_error_and_the_rest_goes_on(net: nn.Module, tmp_path: Path) -> None:
    samples = data(12, 5)
    samples[4] = torch.nan
    source: Any = Listed(samples, (2,))
    whole = ig2.run(Listed(data(12, 5)), net, ig2.IntegratedGradients(3), tmp_path / "whole", reading=ig2.Reading(batch=5))
    store = ig2.run(source, net, ig2.IntegratedGradients(3), tmp_path / "store", reading=ig2.Reading(batch=5))
    assert len(store) == 12 and store.failures == {"InputError": 1, "OSError": 1}
    assert store["2"]["error"] == "Input/output error" and "NaN" in store["4"]["error"]
    for i in (0, 1, 3, 5, 11):
        np.testing.assert_allclose(store[str(i)]["values"], whole[str(i)]["values"], atol=1e-6)
    assert store.progress["failed"] == 2 and store.aggregates.rows == 10


class Moody(nn.Module):
    """A network that refuses what is too bright, and counts its passes in a list that stays when it is copied."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.passes = net, Record()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.append(len(x))
        if (x > 50).any():
            raise ValueError("too bright")
        return self.net(x)


@pytest.mark.parametrize("batch", [1, 3, 12])
def test_what_a_network_says_of_an_item_does_not_depend_on_those_before(
    net: nn.Module, samples: torch.Tensor, tmp_path: Path, batch: int
) -> None:
    samples = samples[:12].clone()
    samples[[0, 7]] += 99
    store = ig2.run(samples, Moody(net).eval(), ig2.Gradient(), tmp_path, reading=ig2.Reading(batch=batch))
    errors = {row["id"]: row["error"] for row in store if row["error"]}
    assert list(errors) == ["0", "7"] and len(set(errors.values())) == 1
    assert "the network fails on the first explicand" in errors["7"] and "too bright" in errors["7"]


def test_a_run_opens_the_network_once(net: nn.Module, samples: torch.Tensor, tmp_path: Path) -> None:
    counted = Moody(net).eval()
    ig2.run(samples[:12], counted, ig2.Gradient(), tmp_path, reading=ig2.Reading(batch=3))
    assert counted.passes[-3:] == [3, 3, 3] and len(counted.passes) < 12


def test_the_rest_of_a_batch_stays_together(net: nn.Module, tmp_path: Path) -> None:
    samples, sizes = data(5, 5), list[int]()
    samples[1] = torch.nan

    def make(subject: Any, batch: Any) -> ig2.Method:
        sizes.append(len(batch))
        return ig2.IntegratedGradients(3)

    assert ig2.run(samples, net, make, tmp_path / "store").failures == {"InputError": 1}
    assert sizes == [5, 4]


@pytest.mark.parametrize("batch", [None, 1])  # the first batch and later ones become tables in two ways
@pytest.mark.parametrize("per_reference", [False, True])
def test_values_that_float16_cannot_hold_are_an_error(tmp_path: Path, per_reference: bool, batch: int | None) -> None:
    net = nn.Linear(2, 1, bias=False).eval()
    net.weight.data.fill_(1.0)
    samples = torch.tensor([[1.0, 2.0], [7e4, 0.0], [3.0, 4.0]])
    references = torch.tensor([[0.0, 0.0], [6e4, 0.0]] if per_reference else [[0.0, 0.0]])  # of two it holds the mean
    pairs = [(sample, number) for number, sample in enumerate(samples)]
    question, saving = ig2.Question(references=references), ig2.Saving("float16", per_reference=per_reference)
    reading = ig2.Reading(batch=batch)
    store = ig2.run(pairs, net, ig2.IntegratedGradients(2), tmp_path / "store", question, saving, reading)
    assert "float16, which ends at 65504: keep float32" in store["1"]["error"] and store["1"]["label"] == 1
    assert store["0"]["error"] is None and store["2"]["values"].tolist()[1] == 4.0


def test_labels_of_any_kind_are_kept_as_they_can_be(net: nn.Module, tmp_path: Path) -> None:
    labels = [1, "a", True, np.uint64(2**64 - 1), -(2**70), "2", "9" * 30, "9" * 5000, None]
    pairs = [(sample, label) for sample, label in zip(data(len(labels), 5), labels, strict=True)]
    store = ig2.run(pairs, net, ig2.Gradient(), tmp_path / "store")
    assert [row["label"] for row in store] == [1, None, 1, None, None, 2, None, None, None]
    names = [None, "a", None, str(2**64 - 1), str(-(2**70)), "2", "9" * 30, "9" * 5000, None]
    assert [row["label_name"] for row in store] == names and not store.failures


def test_an_item_of_another_shape_is_a_row_with_its_error(subject: modalities.image.ImageSubject, tmp_path: Path) -> None:
    samples = [*data(3, 3, 8, 8), data(3, 9, 9), data(8, 8), *data(2, 3, 8, 8)]
    net = seeded(lambda: nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(-3), nn.Linear(12, 2)), 0).eval()
    store = ig2.run(samples, net, ig2.Gradient(), tmp_path / "store", reading=ig2.Reading(batch=6))
    assert [row["error"] is None for row in store] == [True, True, True, False, False, True, True]
    assert "(3, 9, 9)" in store["3"]["error"]


def test_failed_items_are_tried_again_when_asked(net: nn.Module, tmp_path: Path) -> None:
    source = Listed(data(12, 5), (2, 7))
    method, out = ig2.IntegratedGradients(3), tmp_path / "store"
    ig2.run(source, net, method, out, reading=ig2.Reading(batch=5))
    source.broken, source.read = {7}, []
    assert ig2.run(source, net, method, out, reading=ig2.Reading(batch=5)).failures == {"OSError": 2}
    assert source.read == []
    store = ig2.run(source, net, method, out, reading=ig2.Reading(batch=5, retry_failed=True))
    assert sorted(source.read) == [2, 7]
    assert store.failures == {"OSError": 1} and len(store) == 12 and store["2"]["error"] is None
    assert store.aggregates.rows == 11


def test_a_source_that_has_grown_goes_on(net: nn.Module, tmp_path: Path) -> None:
    samples = data(15, 5)
    method, out = ig2.IntegratedGradients(3), tmp_path / "store"
    ig2.run(Listed(samples[:10]), net, method, out, reading=ig2.Reading(batch=5))
    source = Listed(samples)
    store = ig2.run(source, net, method, out, reading=ig2.Reading(batch=5))
    assert sorted(source.read) == [10, 11, 12, 13, 14]
    whole = ig2.run(Listed(samples), net, method, tmp_path / "whole", reading=ig2.Reading(batch=5))
    assert content(store) == content(whole)


def test_arrays_grow_and_others_are_refused(net: nn.Module, tmp_path: Path) -> None:
    samples, method, out = data(15, 5), ig2.IntegratedGradients(3), tmp_path / "store"
    ig2.run(samples[:10], net, method, out)
    assert len(ig2.run(samples, net, method, out)) == 15
    refuses(InputError, "another run", lambda: ig2.run(data(15, 5, seed=3), net, method, out))


def test_a_list_of_files_grows(photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path) -> None:
    files, out = sorted(map(str, photos.rglob("*.png"))), tmp_path / "store"
    ig2.run(files[:2], subject, ig2.Gradient(), out)
    store = ig2.run(files, subject, ig2.Gradient(), out)
    assert store.ids == files


@pytest.mark.parametrize("seconds", [math.nan, -1.0, "ten"])
def test_seconds_that_are_none_are_refused(seconds: Any, net: nn.Module, tmp_path: Path) -> None:
    refuses(
        InputError,
        "flush_seconds",
        lambda: ig2.run(data(4, 5), net, ig2.Gradient(), tmp_path, saving=ig2.Saving(flush_seconds=seconds)),
    )


@pytest.mark.parametrize("groups", [ig2.Grid(3, 4), ig2.Superpixels(5)])
def test_images_are_pooled_alike_alone_and_together(groups: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    images, values = data(7, 3, 13, 17).float().sigmoid(), data(7, 3, 13, 17, seed=2).float()
    monkeypatch.setattr("ig2.runs.pooling.POOLED_AT_ONCE", 3 * values[0].numel())
    labels = pooling.label_planes(groups, images)

    def pool(chosen: slice) -> list[list[float]]:
        if isinstance(groups, ig2.Grid):
            return pooling.pool(pooling.list_members(labels[0]), values[chosen]).tolist()
        return [row.tolist() for row in pooling.pool_each(groups, images[chosen], values[chosen])["values"]]

    pooled = pool(slice(None))
    for i, (label, row) in enumerate(zip(labels.flatten(1), values, strict=True)):
        plane = row.double().sum(dim=0).reshape(-1)
        expected = torch.zeros(int(label.max()) + 1, dtype=torch.float64).index_add(0, label, plane)
        np.testing.assert_allclose(pooled[i], expected, rtol=1e-6, atol=1e-12)
        assert pool(slice(i, i + 1)) == [pooled[i]]


@pytest.mark.parametrize("shapes", [[(6, 8), (10, 8), (6, 12)], [(3, 6, 8), (3, 10, 8), (3, 6, 12)]])
def test_each_size_of_images_in_a_run_has_its_own_fields(shapes: list[tuple[int, ...]], tmp_path: Path) -> None:
    class Squares(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([x.square().flatten(1).sum(dim=1), x.flatten(1).sum(dim=1)], dim=1)

    samples = [data(*shapes[i % 3], seed=i).float() for i in range(6)]
    kept = {"saving": ig2.Saving(values=ig2.Grid(2, 2)), "reading": ig2.Reading(batch=1)}
    store = ig2.run(samples, Squares(), ig2.InputXGradient(), tmp_path, question=ig2.Question(0), **kept)
    for row, sample in zip(store, samples, strict=True):
        plane = (2 * sample.square()).reshape(-1, *sample.shape[-2:]).sum(dim=0)
        quarters = [part.sum() for half in plane.tensor_split(2, dim=0) for part in half.tensor_split(2, dim=1)]
        np.testing.assert_allclose(row["values"].ravel(), quarters, rtol=1e-5)


def test_the_columns_with_ids_and_classes_are_those_named(tmp_path: Path) -> None:
    subject, frame = make_patients()
    frame = frame.head(4).assign(key=list("wxyz"), truth=["ill", "well", "well", "ill"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    named = {"key": list("wxyz"), "truth": [1, 0, 0, 1]}  # classes by their numbers
    for options in ({"id": "key"}, {"label": "truth"}, {"id": "key", "label": "truth"}):
        out = tmp_path / "-".join(options)
        store = ig2.run(str(tmp_path / "rows.csv"), subject, ig2.Gradient(), out, reading=ig2.Reading(**options))
        for column, name in options.items():
            assert [row[column] for row in store] == named[name]


def test_a_field_that_is_not_finite_leaves_the_others_as_they_are() -> None:
    values = data(1, 3, 8, 8).float()
    members = pooling.list_members(ig2.Grid(2, 2).labels(values)[0, 0])
    before = pooling.pool(members, values)[0].tolist()
    values[0, 1, 7, 0] = torch.inf
    assert pooling.pool(members, values)[0].tolist() == [*before[:2], torch.inf, before[3]]


def test_of_a_grid_its_fields_are_copied_and_nothing_larger(
    photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, sizes = plans._begin_copy, list[int]()

    def watch(tensors: Any) -> Any:
        sizes.append(max(tensor[0].numel() for tensor in tensors.values()))
        return begin(tensors)

    monkeypatch.setattr(plans, "_begin_copy", watch)
    ig2.run(
        photos,
        subject,
        ig2.IG2(2),
        tmp_path / "store",
        question=ig2.Question(count=3),
        saving=ig2.Saving(values=ig2.Grid(2, 3)),
        reading=ig2.Reading(batch=4),
    )
    assert sizes == [6] * 3


def test_a_table_is_the_same_of_columns_and_of_rows(photos: Path, subject: modalities.image.ImageSubject) -> None:
    items = find_source(photos)
    strategy = ig2.references.RandomSamples(subject.read(sorted((photos / "red").iterdir())).x, 2)
    scored = [metrics.Insertion(thresholds=4)]
    plan = make_plan(
        items,
        subject,
        ig2.IG2(3),
        ig2.Question(references=strategy),
        check_saving(ig2.Saving("float32", gradcf=True, metrics=scored), subject),
    )
    rows = plan.explain(plan.read(list(items)))()
    assert isinstance(rows, rows_of.Columns) and len(rows) == 12
    schema = plan.make_schema(rows[0])
    table = rows_of.make_table(rows, schema)
    assert table.equals(rows_of.make_table(list(rows), schema))
    other = rows_of.Columns(12, {**rows.columns, "values": rows.columns["values"][:, :, 1:]})
    assert rows_of.make_table(other, schema)["error_kind"].to_pylist() == ["InputError"] * 12
    refuses(InputError, "expected 11", lambda: rows_of.Columns(11, rows.columns))


def test_weights_are_digested_by_threads_as_by_one(net: nn.Module) -> None:
    assert _fingerprint_weights(net) == fingerprint(net.state_dict())


def test_numbers_are_copied_together_and_values_stay_where_they_are() -> None:
    tensors = {
        "target": torch.tensor([2**40 + 1, 3]), "prediction": torch.tensor([1, 2]), "output": data(2).float(),
        "spread": data(2, seed=3), "against": torch.tensor([[4, 5], [6, 7]]), "values": data(2, 3, 4).float(),
    }  # fmt: skip
    copies = plans._begin_copy(tensors)()
    assert copies.keys() == tensors.keys()
    assert all(copies[name].double().tolist() == tensors[name].double().tolist() for name in tensors)
    assert copies["target"].tolist() == [2**40 + 1, 3]
    assert copies["values"].data_ptr() == tensors["values"].data_ptr()


def test_what_cannot_be_kept_is_not_explained_again_one_by_one(
    photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path
) -> None:
    calls: list[int] = []

    def make(subject: Any, batch: Any) -> ig2.Method:
        calls.append(len(batch))
        return ig2.Gradient()

    kept: dict[str, Any] = {"saving": ig2.Saving(values=ig2.Grid(9, 9)), "reading": ig2.Reading(batch=6)}
    refuses(InputError, "more cells", lambda: ig2.run(photos, subject, make, tmp_path / "store", **kept))
    assert calls == [6, 6]


# -- what happens at once ----------------------------------------------------------------------------------------------


def test_rows_are_finished_while_the_next_items_are_explained(
    photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path
) -> None:
    third, waited = threading.Event(), list[bool]()

    class Patient(Groups):
        def labels(self, samples: torch.Tensor) -> torch.Tensor:
            waited.append(third.wait(HANGS) if len(waited) == 1 else True)  # the first batch shows the shape of the values
            return ig2.Grid(2, 2).labels(samples)

    calls: list[int] = []

    def make(subject: Any, batch: Any) -> ig2.Method:
        calls.append(len(batch))
        if len(calls) == 3:
            third.set()
        return ig2.Gradient()

    store = ig2.run(
        photos, subject, make, tmp_path / "store", saving=ig2.Saving(values=Patient()), reading=ig2.Reading(batch=2, readers=1)
    )
    assert waited == [True] * 6 and len(store) == 12
    plain = ig2.run(
        photos,
        subject,
        ig2.Gradient(),
        tmp_path / "plain",
        saving=ig2.Saving(values=ig2.Grid(2, 2)),
        reading=ig2.Reading(batch=2),
    )
    for one, two in zip(store, plain, strict=True):
        np.testing.assert_allclose(one["values"], two["values"].ravel(), rtol=1e-6)


def test_for_a_gpu_more_threads_read_into_pinned_memory(
    net: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert execution.count_readers("cpu") == 2
    assert 2 <= execution.count_readers("cuda:1") <= 8
    pinned: list[torch.Tensor] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    items = find_source(data(4, 5))
    plan = make_plan(items, ig2.wrap(net), ig2.Gradient())
    for device, times in (("cpu", 0), ("cuda", 2)):
        batches = group_items(iter(items), 2)
        rows = [row for finish in execution.explain_locally(plan, batches, 1, device) for row in finish()]
        assert [row["id"] for row in rows] == ["0", "1", "2", "3"] and len(pinned) == times


# -- what stops a run --------------------------------------------------------------------------------------------------


def test_an_interrupted_run_keeps_what_it_has(net: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method, out = ig2.IntegratedGradients(3), tmp_path / "store"
    seen: list[int] = []

    def stop(done: int, total: int) -> None:
        seen.append(done)
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ig2.run(Listed(data(60, 5)), net, method, out, reading=ig2.Reading(batch=5), progress=stop)
    kept = ig2.open(out)
    assert 10 <= len(kept) < 60 and kept.aggregates.rows == kept.progress["done"] == len(kept)
    assert seen[:2] == [5, 10]
    store = ig2.run(Listed(data(60, 5)), net, method, out, reading=ig2.Reading(batch=5))
    whole = ig2.run(Listed(data(60, 5)), net, method, tmp_path / "whole", reading=ig2.Reading(batch=5))
    assert content(store) == content(whole)


def test_what_a_run_did_before_it_was_resumed_is_counted(net: nn.Module, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done >= 10:
            raise KeyboardInterrupt

    source, out = Listed(data(60, 5), broken=(1, 2, 57)), tmp_path / "store"
    with pytest.raises(KeyboardInterrupt):
        ig2.run(source, net, ig2.Gradient(), out, reading=ig2.Reading(batch=5), progress=stop)
    before = ig2.open(out).progress
    assert before["failed"] == 2 and before["items"] == before["done"] < 60 == before["total"]
    after = ig2.run(source, net, ig2.Gradient(), out, reading=ig2.Reading(batch=5)).progress
    assert (after["failed"], after["done"], after["items"], after["gone"]) == (3, 60, 60, 0)
    assert after["seconds"] > before["seconds"] and after["rate"] > 0
    fewer = Listed(data(58, 5), broken=(1, 2, 57))
    again = ig2.run(fewer, net, ig2.Gradient(), out, reading=ig2.Reading(batch=5, retry_failed=True)).progress
    assert (again["failed"], again["done"], again["items"], again["gone"]) == (3, 58, 63, 2)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of this size, where this user may mount one."""
    folder.mkdir()
    mounted = shutil.which("mount") is not None and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    ).returncode  # fmt: skip
    if not mounted:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_the_run_and_a_larger_one_resumes_it(tmp_path: Path) -> None:
    samples = torch.randn(60, 3000, generator=torch.Generator().manual_seed(0))
    net = seeded(lambda: nn.Linear(3000, 3), 0).eval().float()
    method = ig2.Gradient()
    with small_disk(tmp_path / "disk", "400k") as disk:

        def run(out: Path) -> Any:
            saving, reading = ig2.Saving(flush_seconds=0.0), ig2.Reading(batch=4)
            return ig2.run(Listed(samples), net, method, out, saving=saving, reading=reading)

        refuses(FileError, "No space left", lambda: run(disk / "store"))
        half = ig2.open(disk / "store")
        assert 0 < len(half) < 60 and len(list(half)) == len(half)
        shutil.copytree(disk / "store", tmp_path / "store")
    source = Listed(samples)
    done = {int(name) for name in ig2.open(tmp_path / "store").ids}
    store = ig2.run(source, net, method, tmp_path / "store", reading=ig2.Reading(batch=4))
    assert done.isdisjoint(source.read) and len(store) == 60
    assert content(store) == content(run(tmp_path / "whole"))


def test_a_write_that_fails_ends_the_run_and_keeps_the_rest(
    net: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, where none can be mounted."""
    method, writes = ig2.IntegratedGradients(3), list[str]()

    def fail(path: Path, file: bytes) -> None:
        writes.extend([path.name] if path.suffix == ".parquet" else [])
        if len(writes) > 3:
            raise FileError(28, "No space left on device", str(path))
        write_file(path, file)

    with monkeypatch.context() as patch:
        patch.setattr("ig2.runs.files.write_file", fail)
        refuses(
            FileError,
            "No space",
            lambda: ig2.run(
                Listed(data(40, 5)),
                net,
                method,
                tmp_path / "s",
                saving=ig2.Saving(flush_seconds=0.0),
                reading=ig2.Reading(batch=5),
            ),
        )
    assert len(ig2.open(tmp_path / "s")) == 15
    store = ig2.run(Listed(data(40, 5)), net, method, tmp_path / "s", reading=ig2.Reading(batch=5))
    assert content(store) == content(ig2.run(Listed(data(40, 5)), net, method, tmp_path / "w", reading=ig2.Reading(batch=5)))


def test_a_second_run_into_one_store_is_refused(
    net: nn.Module, samples: torch.Tensor, method: ig2.Method, tmp_path: Path
) -> None:
    out = tmp_path / "store"
    out.mkdir()
    with lock_store(out):
        refuses(InputError, f"process {os.getpid()}", lambda: ig2.run(samples, net, method, out))
    (out / "lock").write_text("process 4194305 on nowhere")  # one that died
    assert len(ig2.run(samples, net, method, out)) == 20


PROGRAM = """
import os, sys, time
import torch, ig2
from torch import nn
torch.set_num_threads(1)

class Logged(torch.utils.data.Dataset):
    def __init__(self, log):
        self.samples, self.log = torch.randn(400, 6, generator=torch.Generator().manual_seed(0)), log
    def __len__(self):
        return 400
    def __getitem__(self, index):
        with open(self.log, "a") as file:
            file.write(f"{index}\\n")
        time.sleep(0.002)
        return self.samples[index]

def run(out, log, slow):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).eval()
    before = len(ig2.open(out)) if os.path.exists(f"{out}/manifest.json") else 0
    def pause(done, total):
        print(done, flush=True)
        if slow == "slow":  # and goes on no further than ten such runs can, however late it is killed
            time.sleep(0.01 if done < before + 16 else 3600)
    saving, reading = ig2.Saving(flush_seconds=0.0, part_bytes=6000), ig2.Reading(batch=4)
    ig2.run(Logged(log), net, ig2.IntegratedGradients(3), out, saving=saving, reading=reading, progress=pause)

# imports once, and what the first call of everything does; every line of its input is a run in a process of its own
import tempfile
with tempfile.TemporaryDirectory() as folder:
    ig2.run(torch.eye(6), nn.Linear(6, 3), ig2.IntegratedGradients(3), folder)
for line in sys.stdin:
    child = os.fork()
    if not child:
        run(*line.rstrip("\\n").split("\\t"))
        os._exit(0)
    print("started", child, flush=True)
    print("ended", os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.slow
def test_killed_ten_times_it_ends_as_if_nothing_had_been(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, "-c", PROGRAM]
    moments, log, out = np.random.default_rng(0), tmp_path / "log", tmp_path / "store"
    with subprocess.Popen(arguments, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None

        def run(folder: Path, speed: str, kill_after: float | None) -> None:
            """Start a run; kill it so long after its first batch."""
            assert server.stdin is not None and server.stdout is not None
            server.stdin.write(f"{folder}\t{log}\t{speed}\n")
            server.stdin.flush()
            process = int(server.stdout.readline().split()[1])
            if kill_after is not None:
                server.stdout.readline()
                time.sleep(kill_after)
                os.kill(process, signal.SIGKILL)
            line = next(line for line in server.stdout if line.startswith("ended"))
            assert int(line.split()[1]) == (0 if kill_after is None else signal.SIGKILL)

        run(tmp_path / "whole", "fast", None)
        for _ in range(10):
            before = set(ig2.open(out).ids) if (out / "manifest.json").exists() else set()
            log.write_text("")
            run(out, "slow", moments.uniform(0, 0.06))
            assert before.isdisjoint(log.read_text().split())
            on_disk = ig2.open(out).ids
            assert len(set(on_disk)) == len(on_disk) and before <= set(on_disk)
        assert 0 < len(ig2.open(out)) < 400
        run(out, "fast", None)
        server.stdin.close()
    one, other = ig2.open(out), ig2.open(tmp_path / "whole")
    assert content(one) == content(other)
    assert not list((out / "journal").iterdir()) and not list(out.rglob(".*"))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_items(tmp_path: Path) -> None:
    class Noise(torch.utils.data.Dataset[torch.Tensor]):
        def __init__(self, count: int) -> None:
            self.count = count

        def __len__(self) -> int:
            return self.count

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.full((200,), float(index % 7))

    net = seeded(lambda: nn.Linear(200, 3), 0).eval().float()

    def measure(count: int, again: int = 0) -> tuple[int, int]:
        arrays: list[int] = []
        tracemalloc.start()
        ig2.run(
            Noise(count),
            net,
            ig2.Gradient(),
            tmp_path / f"{count} {again}",
            saving=ig2.Saving(part_bytes=2**16),
            reading=ig2.Reading(batch=100),
            progress=lambda done, total: arrays.append(pyarrow.total_allocated_bytes()),
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak, max(arrays)

    measure(100)
    objects, arrays = measure(1500)
    # twice: once in a while Python's table of interned names grows, by megabytes, and stays
    more_objects, more_arrays = map(min, zip(measure(3500), measure(3500, again=1), strict=True))
    assert more_objects < objects + 8 * 2000 + 200_000  # eight bytes for each id; the values of 2,000 items have 1.6 MB
    assert more_arrays < arrays + 600_000  # some parts more or fewer are being written when it is looked at


# -- the front door ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_importing_the_library_imports_neither_torch_nor_pyarrow() -> None:
    heavy = "{'torch', 'pyarrow', 'pandas', 'ray'} & set(sys.modules)"
    check = f"import ig2, sys; assert not {heavy}; ig2.open; assert not {heavy}"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", check], env=environment, check=True)


def test_a_named_model_reads_photos(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_nets.py").write_text(
        "import torch\nfrom torch import nn\ndef build():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3)).eval()\n"
    )
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        store = ig2.run(photos, "my_nets:build", ig2.Gradient(), tmp_path / "store", saving=ig2.Saving(values=ig2.Grid(2, 2)))
    assert len(store) == 12 and store[0]["values"].shape == (2, 2) and store[0]["target_name"].startswith("class ")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are texts")
def test_names_that_are_no_utf8_do_not_end_a_run(photos: Path, subject: modalities.image.ImageSubject, tmp_path: Path) -> None:
    for old, new in ((b"/green/1.png", b"/green/gr\xfcn.png"), (b"/red", b"/gr\xfcn")):
        os.rename(os.fsencode(photos) + old, os.fsencode(photos) + new)
    Path(os.fsdecode(os.fsencode(photos) + b"/gr\xfcn/0.png")).write_bytes(b"broken")  # its error has the name, too
    store = ig2.run(photos, subject, ig2.Gradient(), tmp_path / "store", reading=ig2.Reading(batch=4))
    assert len(store) == 12 and len(store.where("error is None").ids) == 11
    assert store["green/gr\\udcfcn.png"]["label_name"] == "green"
    assert store["gr\\udcfcn/1.png"]["label_name"] == "gr\\udcfcn"
    again = ig2.run(
        photos, subject, ig2.Gradient(), tmp_path / "store", reading=ig2.Reading(batch=4, retry_failed=True)
    )  # knows them by their ids
    assert len(again) == 12
    scores = again.score(metrics.Deletion(thresholds=2), photos, subject)
    assert not any("source does not have" in why for why in scores.undefined)
