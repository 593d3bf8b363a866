"""XAI-TRIS: what the pictures hold, that networks learn it, and that right methods score well and wrong ones badly."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from torch import Tensor

import ig2
from ig2.errors import InputError
from ig2_bench import BenchOptions, run
from ig2_bench.suite import ChoiceError, find_suite
from ig2_bench.suites.xai_tris import NOISES, SIGNAL, SIZE, XAITris, draw_pictures
from networks import refuses

SMALL = XAITris(samples=8, train=600, epochs=6, references=3)


def draw(scenario: str, noise: str = "white", count: int = 3000, seed: int = 0):
    return draw_pictures(scenario, noise, count, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("scenario", SIGNAL)
def test_classes_differ_on_the_truth_and_nowhere_else(scenario, noise):
    """In the mean of pixels, of their squares, or of their products with the first shape's sign."""
    pictures = draw(scenario, noise)
    x, labels = pictures.x[:, 0].double(), pictures.labels
    assert x.shape == (3000, SIZE, SIZE) and labels[:4].tolist() == [0, 1, 0, 1]
    if scenario == "moved":
        assert set(pictures.truth.sum(dim=(1, 2)).tolist()) == {16}  # four cells of 2 × 2
        assert x[pictures.truth].mean() > 1.5 and abs(float(x[~pictures.truth].mean())) < 0.1
        assert (pictures.truth.double().mean(dim=0) > 0).all()  # every pixel is covered now and then
        return
    feature = {"linear": x, "multiplicative": x.square(), "xor": x * x[:, 1:3, 1:7].mean(dim=(1, 2), keepdim=True).sign()}
    values = feature[scenario]
    means = [values[labels == label].mean(dim=0) for label in (0, 1)]
    error = (sum(values[labels == label].var(dim=0) / (labels == label).sum() for label in (0, 1))).sqrt()
    differ = (means[0] - means[1]).abs() / error > 5
    mask = pictures.truth[0].clone()
    assert mask.sum() == 32
    if scenario == "xor":  # the sign is the first shape's, beside which the second tells
        mask[: SIZE // 2] = False
        differ[: SIZE // 2] = False
    assert torch.equal(differ, mask)


def test_xor_tells_nothing_at_one_place_and_correlated_noise_is_smooth():
    pictures = draw("xor")
    x = pictures.x[:, 0].double()
    assert (x[pictures.labels == 0].mean(dim=0) - x[pictures.labels == 1].mean(dim=0)).abs().max() < 0.15
    white, smooth = (draw("multiplicative", noise).x[:, 0, :, 15] for noise in NOISES)
    assert abs(float((white[:, 1:] * white[:, :-1]).mean())) < 0.05 and float((smooth[:, 1:] * smooth[:, :-1]).mean()) > 0.5
    assert float(draw("multiplicative", "correlated").x[:, 0, :, 15].std()) == pytest.approx(1, abs=0.05)
    assert torch.equal(draw("moved", count=6).x, draw("moved", count=6).x)
    assert not torch.equal(draw("moved", count=6).x, draw("moved", count=6, seed=1).x)


@functools.cache
def prepared(part: str):
    return SMALL.prepare(part)


@pytest.mark.slow
def test_a_network_is_right_about_what_is_explained_and_its_references_are_of_the_other_class():
    ready = prepared("linear, white")
    assert ready.accuracy > 0.85 and ready.x.shape == (8, 1, SIZE, SIZE) and ready.references.shape == (8, 3, 1, SIZE, SIZE)
    assert torch.equal(ig2.scores(ready.model, ready.x).argmax(dim=1), ready.labels)
    told = torch.stack([ig2.scores(ready.model, ready.references[:, r]).argmax(dim=1) for r in range(3)], dim=1)
    assert torch.equal(told, (1 - ready.labels)[:, None].expand(-1, 3))


class Painted:
    """Attributes to the truth of a part, or to everything but it."""

    def __init__(self, truth: Tensor, right: bool) -> None:
        self.truth, self.right = truth, right

    def __call__(self, model, x, target=None, references=None, *, seed=0) -> Tensor:
        mask = self.truth if self.right else ~self.truth
        return mask[:, None].to(x) * (1 + torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.slow
def test_the_right_method_scores_one_the_background_zero_and_chance_one_half():
    part, scenario = "linear, white", "linear"
    ready = prepared(part)
    scores = {right: SMALL.score(part, ready, Painted(ready.truth, right)) for right in (True, False)}
    assert scores[True][scenario] == pytest.approx([1.0] * 8) and scores[True]["on truth"] == pytest.approx([1.0] * 8)
    assert scores[False][scenario] == pytest.approx([0.0] * 8) and scores[False]["on truth"] == pytest.approx([0.0] * 8)
    chance = torch.tensor(SMALL.score(part, ready, ig2.Random())[scenario])
    methods = SMALL.methods()
    good = torch.tensor(SMALL.score(part, ready, methods["SmoothGrad²"])[scenario])
    assert abs(float(chance.mean()) - 0.5) < 0.1 and float(good.mean()) > 0.85
    cost = SMALL.score(part, ready, methods["SmoothGrad²"])
    assert cost["gradients"] == [50.0] and cost["forwards"] == [51.0] and cost["seconds"][0] > 0


@pytest.mark.slow
def test_every_method_runs_on_a_part():
    ready = prepared("linear, white")
    few = dataclasses.replace(
        ready, x=ready.x[:2], labels=ready.labels[:2], truth=ready.truth[:2], references=ready.references[:2]
    )
    for label, method in SMALL.methods().items():
        assert set(SMALL.score("linear, white", few, method)) <= set(SMALL.metrics()), label


@pytest.mark.slow
def test_a_run_that_was_stopped_gives_the_same_table(tmp_path, monkeypatch):
    monkeypatch.setattr(XAITris, "parts", lambda self: ["linear, white", "linear, correlated"])
    suite, chosen = XAITris(samples=2, train=200, epochs=2, references=1), ["gradient", "hirescam"]
    whole = run(suite, chosen, out=tmp_path / "whole")

    class StopError(BaseException):
        pass

    def stop(step) -> None:
        if step.done == 4:
            raise StopError

    with pytest.raises(StopError):
        run(suite, chosen, out=tmp_path / "parts", progress=stop)
    resumed = run(suite, chosen, out=tmp_path / "parts")
    assert not resumed.failures and resumed.facts == whole.facts
    for row in whole.rows:
        if row.metric != "seconds":
            assert resumed.row(row.method, row.metric).values == pytest.approx(row.values, nan_ok=True)


def test_options_and_a_network_that_did_not_learn():
    quick = find_suite("xai-tris", BenchOptions(quick=True))
    assert quick.samples == 4 and quick.train < SMALL.train and find_suite("xai-tris", BenchOptions(samples=9)).samples == 9
    refuses(ChoiceError, "seeds", lambda: find_suite("xai-tris", BenchOptions(seeds=2)))
    refuses(InputError, "epochs", lambda: XAITris(epochs=0))
    refuses(InputError, "train it longer", lambda: XAITris(samples=2, train=4, epochs=1, references=10).prepare("moved, white"))
