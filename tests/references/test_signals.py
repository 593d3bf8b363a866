"""References made from a series itself: fills, shifts and surrogates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import ig2
from ig2.errors import InputError
from ig2.model import wrap
from ig2.references import Interpolated, PhaseRandomised, Shifted, TimeMean, TimeNoise
from ig2.references.base import draw_references
from ig2.task import open_task
from networks import data, refuses

ALL = [TimeMean(), TimeNoise(3), Interpolated(4), Shifted(3), PhaseRandomised(3)]


def draw(strategy: ig2.references.References, x: Tensor, seed: int = 0, **options) -> Tensor:
    with open_task(
        wrap(lambda x: x.flatten(1).sum(dim=1), **options), x, label="test", needs_gradient=False, seed=seed
    ) as task:
        return draw_references(strategy, task)


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: type(strategy).__name__)
def test_layouts_batches_and_seeds(strategy):
    x = data(2, 3, 11)
    found = draw(strategy, x)
    assert torch.allclose(draw(replace(strategy, time_axis=1), x.mT).mT, found, atol=1e-12)
    assert torch.allclose(draw(strategy, x[1:]), found[1:], atol=1e-12)
    assert draw(strategy, x.float()).dtype == torch.float32
    if found.shape[1] > 1:
        assert not torch.allclose(draw(strategy, x, seed=7), found)
        assert torch.equal(draw(strategy, x), found)
    assert torch.allclose(draw(strategy, x[:, 0]), draw(strategy, x[:, :1])[:, :, 0], atol=1e-12)


def test_a_mean_is_each_channels_own():
    x = data(2, 3, 11)
    assert torch.allclose(draw(TimeMean(), x)[:, 0], x.mean(dim=2, keepdim=True).expand_as(x))


def test_noise_has_the_channels_mean_and_deviation():
    x = data(1, 2, 50) * torch.tensor([[[1.0], [10.0]]]) + 5
    noise = draw(TimeNoise(2000), x)[0]
    assert torch.allclose(noise.mean(dim=(0, 2)), x[0].mean(dim=1), atol=0.05)
    assert torch.allclose(noise.std(dim=(0, 2)), x[0].std(dim=1, correction=0), rtol=0.02)
    assert draw(TimeNoise(50), data(1, 2, 20), bounds=(-1, 1)).abs().max() <= 1


def test_a_shift_keeps_everything_but_when():
    x = data(1, 2, 11)
    for shifted in draw(Shifted(20, least=3), x)[0]:
        shifts = [k for k in range(11) if torch.equal(x[0].roll(k, dims=1), shifted)]
        assert len(shifts) == 1 and 3 <= shifts[0] <= 8
    both = torch.cat([x, 10 - x])
    first, second = draw(Shifted(20, least=3), both)
    assert torch.equal(second, 10 - first)  # all by the same amounts
    refuses(InputError, "least", lambda: draw(Shifted(least=6), x))


@pytest.mark.parametrize("steps", [16, 17])
def test_a_surrogate_has_the_spectrum_and_the_cross_spectrum(steps: int):
    x = data(1, 2, steps, seed=2)
    original = np.fft.rfft(x[0].numpy())
    for surrogate in draw(PhaseRandomised(4), x)[0]:
        spectrum = np.fft.rfft(surrogate.numpy())
        np.testing.assert_allclose(np.abs(spectrum), np.abs(original), atol=1e-10)
        np.testing.assert_allclose(spectrum[0] * spectrum[1].conj(), original[0] * original[1].conj(), atol=1e-9)
        assert surrogate.mean(dim=1).allclose(x[0].mean(dim=1))
        assert not torch.allclose(surrogate, x[0], atol=0.05)


def test_one_window_over_all_is_the_mean():
    x = data(1, 2, 5)
    assert torch.equal(draw(Interpolated(5), x), draw(TimeMean(), x))


def test_a_line_is_filled_by_itself():
    line = torch.arange(12.0).view(1, 1, 12)
    filled = draw(Interpolated(3), line)[0, 0, 0]
    assert torch.allclose(filled[3:9], line[0, 0, 3:9])
    assert filled[:3].tolist() == [3.0] * 3 and filled[9:].tolist() == [8.0] * 3


@pytest.mark.parametrize("axis", [1, 2])
def test_a_window_is_filled_between_its_neighbours_also_where_the_last_is_shorter(axis: int):
    series = torch.tensor([[3.0, 9, 9, 7, 1, 9, 9, 2], [0.0, 1, 4, -5, 2, 2, 3, 8]])[None].double()
    filled = draw(Interpolated(3, axis), series if axis == 2 else series.mT)[:, 0]
    expected = torch.tensor([[7.0] * 3 + [9.0, 9.0, 9.0] + [9.0] * 2, [-5.0] * 3 + [3.75, 3.5, 3.25] + [2.0] * 2]).double()
    torch.testing.assert_close(filled if axis == 2 else filled.mT, expected[None])


@pytest.mark.parametrize("make", [TimeNoise, Shifted, PhaseRandomised, Interpolated])
def test_counts_are_positive(make):
    refuses(InputError, "positive|integer|1 or more", lambda: make(0))
