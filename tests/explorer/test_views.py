"""What the item shows of what a run kept: scores, curves, references with their own maps, counterfactuals."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import ig2
import reports
from browsing import open_screen
from ig2 import modalities
from ig2.errors import InputError
from ig2.explorer import Collection
from ig2.metrics import Deletion, Insertion
from ig2.report.figures import draw_figure
from ig2.views import Curve
from networks import refuses, seeded

SIDE = 6


@pytest.fixture(scope="module")
def subject():
    """Red, green or blue, whichever there is most of."""
    net = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE * 3, 3), nn.Tanh(), nn.Linear(3, 3)), 0).float()
    with torch.no_grad():
        net[1].weight += 4 * torch.eye(3).repeat_interleave(SIDE * SIDE, dim=1) / SIDE**2
        net[3].weight += 4 * torch.eye(3)
    return modalities.image.subject(net, (SIDE, SIDE), classes=["red", "green", "blue"], name="small")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder, numbers = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for i in range(9):
        pixels = numbers.integers(0, 120, (SIDE, SIDE, 3))
        pixels[:, :, i % 3] += 130
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def store(subject, source, tmp_path_factory):
    question = ig2.Question(references=str(source), count=3)
    saving = ig2.Saving(gradcf=True, per_reference=True, metrics=[Insertion(), Deletion()])
    return ig2.run(str(source), subject, ig2.IG2(6), tmp_path_factory.mktemp("runs") / "full", question, saving)


def test_each_references_own_values_are_kept(subject, source, store):
    batch = subject.read([modalities.Sample(source / "1.png", "1.png")])
    pool = subject.pool([modalities.Sample(source / f"{i}.png", f"{i}.png", None) for i in range(9)])
    chosen = ig2.Question(against="next", references=pool, count=3, seed=0).contrast(subject, batch)
    result = ig2.IG2(6)(subject.model, batch.x, None, chosen.samples, against="next", seed=0, per_reference=True)
    row = store["1.png"]
    kept = np.reshape(row["reference_values"], result.per_reference[0].shape)
    np.testing.assert_allclose(kept, result.per_reference[0].numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(kept.mean(axis=0), row["values"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(row["reference_outputs"], result.baseline_outputs[0].numpy(), rtol=1e-4)
    assert row["reference_labels"] == list(chosen.labels[0])


@pytest.mark.parametrize("values", [ig2.Grid(2, 2), ig2.Superpixels(4), "float16"])
def test_references_are_reduced_as_the_values_are(subject, source, tmp_path, values):
    store = ig2.run(
        str(source),
        subject,
        ig2.IG2(4),
        tmp_path / "run",
        question=ig2.Question(references=str(source), count=2),
        saving=ig2.Saving(per_reference=True, values=values),
    )
    for row in store:
        parts = np.reshape(row["reference_values"], (len(row["reference_labels"]), *row["values"].shape)).astype(float)
        np.testing.assert_allclose(parts.mean(axis=0), row["values"], rtol=2e-2, atol=2e-3)
    view = Collection([tmp_path / "run"]).view("0.png")[0][0]
    assert len(view.methods[0].references) == 2
    total = sum(reference.scores for reference in view.methods[0].references) / 2
    np.testing.assert_allclose(total, view.methods[0].scores, rtol=2e-2, atol=2e-3)


def test_texts_and_rows_keep_their_references_too(tmp_path):
    from ig2 import modalities

    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(8, 3)), columns=["x", "y", "z"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    net = seeded(lambda: nn.Linear(3, 2), 1).float()
    net.bias.data.zero_()
    subject = modalities.table.subject(net, modalities.table.infer_columns(frame), ["well", "ill"], rows=frame)
    question = ig2.Question(references=str(tmp_path / "rows.csv"), count=2)
    rows = str(tmp_path / "rows.csv")
    ig2.run(rows, subject, ig2.IG2(4), tmp_path / "run", question, ig2.Saving(per_reference=True))
    collection = Collection([tmp_path / "run"])
    method = collection.view(collection.catalogue.ids[0])[0][0].methods[0]
    assert [reference.scores.shape for reference in method.references] == [(3,), (3,)]


def test_what_cannot_be_kept_is_an_error(subject, source, tmp_path):
    question, saving = ig2.Question(references=str(source)), ig2.Saving("none", per_reference=True)
    refuses(
        InputError,
        "values",
        lambda: ig2.run(str(source), subject, ig2.IG2(4), tmp_path / "a", question, saving),
    )
    refuses(
        InputError,
        "per_reference",
        lambda: ig2.run(str(source), subject, ig2.Gradient(), tmp_path / "b", saving=ig2.Saving(per_reference=True)),
    )


def test_the_item_has_scores_curves_references_and_the_counterfactual(subject, source, store):
    collection = Collection([store.folder], source)
    row = store["2.png"]
    (method,) = collection.view("2.png")[0][0].methods
    assert method.extra == {"insertion": row["insertion"], "deletion": row["deletion"], "spread": row["spread"]}
    np.testing.assert_allclose(method.metric_curves["deletion"], row["deletion_curve"])
    own = np.reshape(row["reference_values"], (-1, 3, SIDE, SIDE))
    assert len(method.references) == len(own)
    for reference, part, output in zip(method.references, own, row["reference_outputs"], strict=True):
        np.testing.assert_allclose(reference.scores, part.sum(axis=0), atol=1e-6)
        assert reference.residual == pytest.approx(part.sum() - (row["output"] - output), abs=1e-5)
    expected = subject.picture(torch.from_numpy(np.array(row["gradcf"][0])))
    assert np.abs(method.gradcf.pixels.astype(int) - expected).max() <= 1
    (item,) = collection.show_item("2.png")["inputs"]
    assert list(item["input"]["methods"][0]["metric_curves"]) == ["insertion", "deletion"]


@pytest.mark.parametrize(("layout", "values"), [("CT", "float32"), ("TC", "float32"), ("T", "float32"), ("CT", "units")])
def test_a_signal_is_a_curve_with_its_channels_and_times(tmp_path, layout, values):
    channels = ["left", "right"] if layout != "T" else ["mono"]
    shape = {"CT": (2, 40), "TC": (40, 2), "T": (40,)}[layout]
    x = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    net = nn.Sequential(nn.Flatten(), nn.Linear(x[0].size, 2))
    subject = modalities.signal.subject(net.eval(), 40, layout, rate=8.0, channels=channels)
    samples = [(sample, None) for sample in x]
    store = ig2.run(samples, subject, ig2.Gradient(), tmp_path / "store", saving=ig2.Saving(values=values))
    shown = Collection([store.folder], samples if values == "float32" else None).view("1")[0][0]
    assert isinstance(shown.view, Curve) and shown.view.rate == 8.0 and shown.view.steps == 40
    total = subject.explain(x[1:2], ig2.Gradient()).values.sum().item()
    assert shown.methods[0].scores.sum() == pytest.approx(total, rel=1e-5, abs=1e-5)
    if values == "units":
        assert shown.view.channels == ("all channels",) and shown.view.lowest is None
        return
    assert shown.view.channels == tuple(channels) and shown.methods[0].scores.shape == (len(channels), 40)
    expected = x[1].reshape(1, 40) if layout == "T" else x[1] if layout == "CT" else x[1].T
    np.testing.assert_array_equal(shown.view.lowest, expected)
    assert draw_figure(shown, "a signal").axes


@pytest.mark.parametrize("make", [reports.row, reports.signal])
def test_a_figure_has_a_panel_for_each_method_however_many(make):
    shown = make()
    panels = [
        sum(bool(axes.get_title(loc="left") or axes.get_title()) for axes in draw_figure(few, "a title").axes)
        for few in (replace(shown, methods=shown.methods[:1] * count) for count in (2, 11))
    ]
    assert panels == [2, 11]


def test_a_store_without_them_shows_none(photos):
    (method,) = photos.view("dark/00.png")[0][0].methods
    assert (method.references, method.gradcf, method.extra, method.metric_curves) == ((), None, {}, {})


@pytest.mark.slow
def test_curves_and_references_are_drawn(store, source, browser):
    from stores import running

    with running(Collection([store.folder], source)) as address:
        page, trouble, _ = open_screen(browser)
        page.goto(f"{address}#item=2.png")
        page.wait_for_selector("section[data-ready]")
        assert page.locator(".chart h3").all_inner_texts() == ["Insertion", "Deletion"]
        assert page.locator(".references li").count() == 1 + len(store["2.png"]["reference_labels"])
        assert "Insertion" in page.locator(".sums dl").inner_text()
        page.locator(".references button").nth(1).click()
        assert "alone" in page.locator(".shown").inner_text()
        page.locator(".chart svg").first.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert re.match(r"\d+\s%: ", page.locator(".chart output").first.inner_text())
        assert page.locator(".counterfactual img").count() == 1
        page.close()
    assert not trouble
