"""RISE against loops from the paper, and its limit of many masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ig2
from ig2.errors import InputError
from networks import data, refuses, relu_cnn, relu_mlp
from replicas import resize

SETTINGS = {"masks": 12, "cells": 3, "probability": 0.4}


def masks(count: int, cells: int, probability: float, height: int, width: int, seed: int = 0) -> list[np.ndarray]:
    """Drawn as the method draws them, then enlarged and cut one by one."""
    generator = torch.Generator().manual_seed(seed)
    grids = torch.rand(count, cells, cells, generator=generator, dtype=torch.float64).numpy() < probability
    shifts = torch.rand(count, 2, generator=generator, dtype=torch.float64).numpy()
    cell = -(-height // cells), -(-width // cells)
    result = []
    for grid, shift in zip(grids, shifts, strict=True):
        large = resize(grid.astype(float), (cells + 1) * cell[0], (cells + 1) * cell[1])
        top, left = int(shift[0] * cell[0]), int(shift[1] * cell[1])
        result.append(large[top : top + height, left : left + width])
    return result


def test_the_map_is_that_of_the_paper():
    net, x, references = relu_cnn(channels=3), data(2, 3, 8, 8), data(2, 3, 8, 8, seed=3)
    found = ig2.RISE(**SETTINGS)(net, x, 1, references, seed=5).values
    drawn = masks(12, 3, 0.4, 8, 8, seed=5)
    for i in range(2):
        expected = np.zeros((8, 8))
        for mask in drawn:
            for reference in references:
                mixed = x[i] * torch.from_numpy(mask) + reference * torch.from_numpy(1 - mask)
                expected += net(mixed[None])[0, 1].item() * mask / 2
        expected /= 12 * 0.4
        assert np.allclose(found[i].sum(dim=0), expected, atol=1e-12) and torch.equal(found[i, 0], found[i, 2])


@pytest.mark.parametrize(("height", "width"), [(7, 7), (3, 8), (8, 5)])
def test_without_references_the_rest_is_zero_and_sizes_may_be_any(height: int, width: int):
    net, x = relu_cnn(channels=1, size=8), data(2, 1, height, width)
    model = ig2.wrap(lambda x: net(torch.nn.functional.pad(x, (0, 8 - width, 0, 8 - height))))
    found = ig2.RISE(**SETTINGS)(model, x, 0).values
    assert torch.equal(found, ig2.RISE(**SETTINGS)(model, x, 0, 0.0).values)
    drawn = masks(12, 3, 0.4, height, width)
    expected = sum(model(x[:1] * torch.from_numpy(m)[None, None])[0, 0].item() * m for m in drawn)
    assert np.allclose(found[0, 0], expected / 4.8, atol=1e-12)


def test_batches_seeds_and_the_class_against():
    net, x, method = relu_cnn(), data(3, 2, 8, 8), ig2.RISE(**SETTINGS)
    found = method(net, x).values
    assert torch.allclose(method(net, x[1:2]).values, found[1:2], atol=1e-12)
    assert torch.allclose(method(net, x, batch_size=5).values, found, atol=1e-12)
    assert not torch.allclose(method(net, x, seed=1).values, found)
    difference = method(net, x, 0).values - method(net, x, 1).values
    assert torch.allclose(method(net, x, 0, against=1).values, difference, atol=1e-12)
    cost = method(net, x, references=data(2, 2, 8, 8)).cost
    assert cost.gradients == 0 and cost.forwards == 3 + 3 * 2 * 12


def test_many_masks_find_the_only_pixels_that_count():
    x = torch.ones(1, 1, 8, 8, dtype=torch.float64)
    found = ig2.RISE(masks=1000, cells=4)(lambda x: x[:, :, 1, 1], x).values[0, 0]
    assert found.argmax() in (0, 1, 8, 9)  # the pixel or one in its cell
    # far away, M(p) and the pixel are independent, so that φ is the mean output, E[M] = ½
    assert abs(float(found[6:, 6:].mean()) - 0.5) < 0.05


def test_what_has_no_places_is_refused():
    refuses(InputError, "images", lambda: ig2.RISE()(relu_mlp(), data(2, 6)))
    for settings in ({"masks": 0}, {"cells": 1.5}, {"probability": 1.0}, {"probability": "half"}):
        refuses(InputError, next(iter(settings)), lambda settings=settings: ig2.RISE(**settings))
