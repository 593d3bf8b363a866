"""Curves along the path."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from drawing import drawn, made, sample, texts
from ig2 import InputError, plots


def test_the_output_curve_is_the_mean_over_all_paths_with_their_spread(walked) -> None:
    straight = replace(walked, output_curve=walked.output_curve[:, :2, ::2] + 1)
    figure = plots.output_curve({"IG²": walked, "$straight$": straight})
    (axes,) = figure.axes
    curves = walked.output_curve.flatten(0, 1).numpy()
    first, second = axes.lines
    np.testing.assert_allclose(first.get_xdata(), np.linspace(0, 1, 7))
    np.testing.assert_allclose(first.get_ydata(), curves.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(second.get_xdata(), np.linspace(0, 1, 4))
    band = axes.collections[0].get_paths()[0].vertices
    high = np.minimum(curves.mean(axis=0) + curves.std(axis=0), curves.max(axis=0))
    assert band[:, 1].max() == pytest.approx(high.max(), rel=1e-6)
    assert first.get_ydata()[0] == pytest.approx(float(walked.output.mean()), rel=1e-6)
    assert "12 or 6 paths" in texts(figure) or "6 or 12 paths" in texts(figure)
    drawn(figure)


def test_the_curve_of_one_explicand_is_its_own(walked) -> None:
    (axes,) = plots.output_curve(walked, explicand=1).axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), walked.output_curve[1].mean(dim=0), rtol=1e-6)
    with pytest.raises(InputError, match="explicand must be a number from 0 to 2"):
        plots.output_curve(walked, explicand=3)


def test_a_path_of_two_points_is_not_drawn_as_a_line(walked) -> None:
    ends = replace(walked, output_curve=walked.output_curve[:, :, [0, -1]])
    (axes,) = plots.output_curve(ends).axes
    assert axes.lines[0].get_linestyle() == "None"
    assert "ends only" in axes.get_legend().get_texts()[0].get_text()


def test_a_single_path_has_no_band(walked) -> None:
    single = replace(walked[0], output_curve=walked.output_curve[:1, :1])
    figure = plots.output_curve(single)
    assert not figure.axes[0].collections
    assert "deviation" not in texts(figure)


def test_paths_that_agree_have_no_band(walked) -> None:
    alike = replace(walked, output_curve=walked.output_curve[:1, :1].expand(3, 4, -1) * torch.tensor([1, 1.001, 1, 1])[:, None])
    figure = plots.output_curve(alike)
    assert not figure.axes[0].collections
    assert "mean of 12 paths" in texts(figure) and "deviation" not in texts(figure)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_the_distance_curve_counts_steps(walked, scale) -> None:
    figure = plots.distance_curve(walked, scale=scale)
    (axes,) = figure.axes
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), np.arange(7))
    np.testing.assert_allclose(axes.lines[0].get_ydata(), walked.distance_curve.flatten(0, 1).mean(dim=0), rtol=1e-6)
    assert axes.get_yscale() == scale
    drawn(figure)


def test_distances_of_zero_are_drawn_on_a_log_scale_too(walked) -> None:
    distances = torch.zeros(3, 4, 7)
    drawn(plots.distance_curve(replace(walked, distance_curve=distances), scale="log"))
    distances[..., :3] = 1.0
    drawn(plots.distance_curve(replace(walked, distance_curve=distances), scale="log"))


def test_missing_curves_say_how_to_get_them() -> None:
    result = made(sample(2, 8, 8))
    with pytest.raises(InputError, match="'IG2' has no output_curve: call the method with curves=True"):
        plots.output_curve(result)
    with pytest.raises(InputError, match="only methods on GradPath"):
        plots.distance_curve({"IG": result})
    with pytest.raises(InputError, match="dict of names"):
        plots.output_curve([result])
