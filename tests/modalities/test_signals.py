"""Signals of every layout: read, named, divided into windows, explained, shown."""

from __future__ import annotations

import wave
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ig2
from ig2._utils.blur import smooth as blur_series
from ig2.errors import IG2Warning, InputError
from ig2.metrics import Deletion
from ig2.modalities.samples import Sample
from ig2.modalities.signal import sound
from ig2.modalities.signal.modality import SIGNALS
from ig2.modalities.signal.recordings import SignalSubject, subject
from ig2.modalities.signal.sound import read_sound
from ig2.report import build
from ig2.views import MOST_BINS, Curve, sum_bins
from networks import data, made, refuses

SHAPES = {"CT": (2, 30), "TC": (30, 2), "T": (30,)}


def network(layout: str) -> nn.Module:
    size = 30 if layout == "T" else 60
    return made(lambda: nn.Sequential(nn.Flatten(), nn.Linear(size, 8), nn.Tanh(), nn.Linear(8, 3)))


def subject_of(layout: str, **options: Any) -> SignalSubject:
    count = 1 if layout == "T" else 2
    settings = {"rate": 10, "window": 0.4, "channels": count, "classes": ["a", "b", "c"], **options}
    return subject(network(layout), 30, layout, **settings)  # type: ignore[arg-type]


def write_wav(path: Path, samples: np.ndarray, rate: int = 10, width: int = 2) -> Path:
    """A WAV file of whole numbers: samples (T, channels) from −1 to 1."""
    numbers = np.round(samples * (2 ** (8 * width - 1) - 1)).astype("<i8")
    numbers = numbers + 128 if width == 1 else numbers
    content = numbers.reshape(-1).view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(content)
    return path


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_files_of_every_width_are_read(tmp_path: Path, width: int, channels: int):
    samples = data(40, channels).numpy()
    found, rate = read_sound(write_wav(tmp_path / "a.wav", samples, 8000, width))
    assert rate == 8000 and found.dtype == np.float32
    np.testing.assert_allclose(found, samples, atol=2 / 2 ** (8 * width - 1) + 1e-6)


def test_other_formats_need_soundfile_and_are_the_same(tmp_path: Path):
    soundfile = pytest.importorskip("soundfile")
    samples = data(40, 2).numpy().astype(np.float32)
    soundfile.write(tmp_path / "a.flac", samples, 8000)
    soundfile.write(tmp_path / "a.wav", samples, 8000, subtype="FLOAT")
    np.testing.assert_allclose(read_sound(tmp_path / "a.flac")[0], samples, atol=1e-4)
    np.testing.assert_allclose(read_sound(tmp_path / "a.wav")[0], samples)
    (tmp_path / "b.flac").write_bytes(b"fLaC" + bytes(40))
    refuses(InputError, "as sound", lambda: read_sound(tmp_path / "b.flac"))


def test_endings_in_capitals_are_those_of_sounds(tmp_path: Path):
    for name in ("A.WAV", "deep/b.Wav", "c.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_wav(tmp_path / name, data(30, 1).numpy())
    found = SIGNALS.list_samples(tmp_path)
    assert [each.name for each in found] == ["A.WAV", "c.wav", "deep/b.Wav"]
    assert [each.label for each in found] == [None, None, "deep"]
    assert len(subject_of("T").read(found)) == 3
    (tmp_path / "d.MP3").write_bytes(b"")
    assert len(SIGNALS.list_samples(tmp_path)) == 3


def test_files_that_are_no_sound_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.wav").write_bytes(b"")
    refuses(InputError, "WAV", lambda: read_sound(tmp_path / "a.wav"))
    (tmp_path / "a.wav").write_bytes(b"RIFF\x24\x00\x00\x00MP3 junk")
    refuses(InputError, "WAV", lambda: read_sound(tmp_path / "a.wav"))
    write_wav(tmp_path / "a.wav", np.zeros((0, 1)))
    refuses(InputError, "empty", lambda: read_sound(tmp_path / "a.wav"))
    write_wav(tmp_path / "a.wav", np.zeros((50, 1)))
    monkeypatch.setattr(sound, "LONGEST_SOUND", 49)
    refuses(InputError, "more than 49", lambda: read_sound(tmp_path / "a.wav"))


def test_a_file_reaches_the_network_in_its_layout(tmp_path: Path):
    samples = data(30, 2).numpy()
    path = write_wav(tmp_path / "clip.wav", samples, width=4)
    for layout, shape in SHAPES.items():
        x = subject_of(layout).read(path).x
        assert tuple(x.shape) == (1, *shape)
        expected = samples.mean(axis=1) if layout == "T" else samples if layout == "TC" else samples.T
        np.testing.assert_allclose(x[0], expected, atol=1e-6)


def test_arrays_tensors_clips_and_batches_are_read():
    mine, x = subject_of("CT"), data(2, 2, 30)
    assert torch.equal(mine.read(x).x, x)
    assert mine.read([x[0].numpy(), Sample(x[1], "second", "b")]).names == ("signal 1", "second")
    assert mine.read([Sample(x[1], "second", "b")]).labels == ("b",)
    assert mine.read(x[0]).x.shape == (1, 2, 30)
    with pytest.warns(IG2Warning, match="first 3 s"):
        assert torch.equal(mine.read(torch.cat([x, x], dim=2)).x, x)


def test_what_does_not_fit_is_refused(tmp_path: Path):
    mine = subject_of("CT")
    refuses(InputError, "pad", lambda: mine.read(data(2, 29)))
    refuses(InputError, r"\(2, T\)", lambda: mine.read(data(30, 2)))
    refuses(InputError, "NaN", lambda: mine.read(torch.full((2, 30), torch.nan)))
    refuses(InputError, "no signals", lambda: mine.read([]))
    refuses(InputError, "resample", lambda: mine.read(write_wav(tmp_path / "a.wav", np.zeros((40, 2)), 44_100)))
    refuses(InputError, "expected a file", lambda: mine.read([object()]))
    refuses(InputError, "contrast", mine.pool)
    for keyword, options in {"layout": {"layout": "XY"}, "rate": {"rate": -1}, "window": {"window": 99.0}}.items():
        refuses(InputError, keyword, lambda options=options: subject(network("CT"), **{"steps": 30, "layout": "CT", **options}))
    refuses(InputError, "single", lambda: subject(network("T"), 30, "T", channels=["a", "b"]))


# -- windows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", SHAPES)
def test_windows_are_units_and_add_up(layout: str, tmp_path: Path):
    mine = subject_of(layout, clips=data(6, *SHAPES[layout], seed=3))
    x = data(2, *SHAPES[layout])
    attribution = mine.explain(x, ig2.IntegratedGradients(8), references=0.0)
    assert attribution.units[0][:2] == ("0–0.4 s", "0.4–0.8 s") and attribution.units[0][-1] == "2.8–3 s"
    sums = np.stack(attribution.sum_units())
    values = attribution.values.numpy()
    over_time = values if layout == "T" else values.sum(axis=1 if layout == "CT" else 2)
    for window in range(8):
        np.testing.assert_allclose(sums[:, window], over_time[:, 4 * window : 4 * window + 4].sum(axis=1))
    occluded = mine.explain(x, ig2.Occlusion(groups=mine.number_units(mine.read(x))), references=0.0)
    same = mine.explain(x, ig2.Occlusion(groups=mine.windows), references=0.0)
    assert torch.equal(occluded.values, same.values)
    assert Deletion("mean", features=mine.windows)(mine.model, same).n == 2
    attribution.save(tmp_path / "a.safetensors")
    loaded = ig2.Attribution.load(tmp_path / "a.safetensors")
    assert loaded.names == attribution.names and loaded.names.channels == mine.channels
    joined = ig2.Attribution.join([attribution[:1], attribution[1:]])
    assert joined.names == attribution.names


def test_time_without_a_rate_is_in_steps():
    mine = subject(network("CT"), 30, channels=2)
    assert mine.window == 1 and mine.explain(data(1, 2, 30), ig2.Gradient()).units[0][:2] == ("0–1", "1–2")


def test_references_are_signals_of_another_class():
    mine = subject_of("CT", clips=lambda: data(40, 2, 30, seed=5) * 4)
    attribution = mine.explain(data(2, 2, 30), ig2.IG2(steps=5), count=3)
    for classes, prediction in zip(attribution.names.reference_classes, attribution.names.predictions, strict=True):
        assert prediction not in classes and len(classes) == 3


def test_an_attribution_is_smoothed_along_time_alone():
    mine = subject_of("TC")
    attribution = mine.explain(data(1, 30, 2), ig2.Gradient())
    spike = attribution.values.clone().zero_()
    spike[0, 15, 0] = 1.0
    smooth = blur_series(spike, 2.0, [1])
    found = replace(attribution, values=spike).smooth(2.0).values
    assert torch.allclose(found, smooth) and found[0, :, 1].abs().max() == 0


# -- the report --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", SHAPES)
def test_the_report_shows_the_curve_and_a_map_that_adds_up(layout: str):
    mine, x = subject_of(layout), data(2, *SHAPES[layout])
    batch = mine.read(x)
    attribution = mine.explain(batch, ig2.Gradient())
    content = build("title", mine, batch, {"Gradient": attribution})
    content.check()
    view = content.inputs[0]
    assert isinstance(view.view, Curve) and view.view.lowest.shape == view.methods[0].scores.shape
    for scores, total in zip(mine.scores(batch, attribution), attribution.total, strict=True):
        assert scores.sum() == pytest.approx(float(total))


def test_a_long_signal_is_shown_in_intervals_with_its_lowest_and_highest_values():
    series = np.random.default_rng(0).normal(size=(2, 2500))
    curve, sums = Curve.bin(series, ("a", "b"), 100.0), sum_bins(series)
    edges = [i * 2500 // MOST_BINS for i in range(MOST_BINS + 1)]
    for i, (first, last) in enumerate(pairwise(edges)):
        part = series[:, first:last]
        assert (curve.lowest[:, i] == part.min(axis=1)).all() and (curve.highest[:, i] == part.max(axis=1)).all()
        np.testing.assert_allclose(sums[:, i], part.sum(axis=1))
    assert curve.seconds == 25.0 and curve.name_moment(1, 999, 1000) == "b, 24.97–25 s"


@pytest.mark.parametrize(("steps", "most"), [(100, 3), (7, 3), (2500, 1000), (5, 8)])
def test_a_moment_is_in_the_interval_that_has_its_name(steps: int, most: int):
    curve = Curve(("a",), steps)
    for moment in range(0, steps, max(1, steps // 50)):
        impulse = np.arange(steps) == moment
        sums = sum_bins(impulse[None], most)
        first, last = curve.name_moment(0, int(sums.argmax()), sums.shape[1]).split("–")
        assert int(first) <= moment < int(last)


# -- whole data sets ---------------------------------------------------------------------------------------------------


def test_a_folder_of_sounds_is_run(tmp_path: Path):
    (tmp_path / "in").mkdir()
    for number in range(3):
        write_wav(tmp_path / "in" / f"{number}.wav", data(30, 2, seed=number).numpy())
    (tmp_path / "in" / "bad.wav").write_bytes(b"RIFF")
    mine = subject(network("CT").float(), 30, "CT", ["a", "b", "c"], rate=10, channels=2)
    store = ig2.run(tmp_path / "in", mine, ig2.IntegratedGradients(4), tmp_path / "out", question=ig2.Question(references=0.0))
    assert sorted(store.ids) == ["0.wav", "1.wav", "2.wav", "bad.wav"] and store.failures == {"InputError": 1}
    alone = mine.explain(tmp_path / "in" / "1.wav", ig2.IntegratedGradients(4), references=0.0)
    np.testing.assert_allclose(store["1.wav"]["values"], alone.values[0], atol=1e-6)


@pytest.mark.parametrize(("steps", "intervals", "last"), [(100, 5, "8–10 s"), (105, 21, "10–10.5 s")])
def test_stored_windows_are_shown_when_they_were(tmp_path: Path, steps: int, intervals: int, last: str):
    """The last of them is shorter than the others where they do not divide the signal."""
    net = made(lambda: nn.Sequential(nn.Flatten(), nn.Linear(2 * steps, 2))).eval()
    heart = subject(net, steps, "CT", rate=10, channels={"left": "mV", "right": "mV"}, window=2)
    x = data(2, 2, steps)
    store = ig2.run(
        x,
        heart,
        ig2.IntegratedGradients(3),
        tmp_path / "store",
        question=ig2.Question(references=0.0),
        saving=ig2.Saving(values="units"),
    )
    curve, scores = SIGNALS.show_row(store["0"], store.manifest)
    assert (curve.channels, curve.seconds, scores.shape) == (("all channels",), steps / 10, (1, intervals))
    assert heart.units[-1] == last == curve.name_moment(0, intervals - 1, intervals)
    values = store["0"]["values"]
    first = scores[0, : 20 * intervals // steps]
    assert first.sum() == pytest.approx(values[0]) and scores[0, -1] == pytest.approx(values[-1])
