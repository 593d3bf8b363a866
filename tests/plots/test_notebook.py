"""What a notebook shows, and what holds for every figure."""

from __future__ import annotations

import base64
import importlib
import io
import re
import sys
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
import torch

import ig2
from drawing import HOSTILE, SENTENCES, Tags, drawn, made, pictures, sample
from ig2 import Attribution, plots
from ig2.plots.colours import MapStyle

# -- the notebook ------------------------------------------------------------------------------------------------------


def test_the_notebook_shows_images_with_numbers_and_verdict(walked) -> None:
    source = plots.html(walked, count=2)
    page = Tags(source)
    (image,) = [attributes for tag, attributes in page.tags if tag == "img"]
    png = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"))
    assert matplotlib.image.imread(io.BytesIO(png)).ndim == 3
    assert walked.verdict in page.text
    assert "the first 2 shown" in page.text
    for number in (walked.output[1], walked.baseline_output[1]):
        assert f"{float(number):.3g}".replace("-", "−") in page.text
    assert "http" not in source


def test_the_notebook_shows_trust(walked) -> None:
    page = Tags(plots.html(replace(walked, trust=torch.full((3, 4), 0.125))))
    assert "trust" in page.text and "0.125" in page.text and "not its signs" in page.text


def test_the_notebook_shows_bars_of_other_samples() -> None:
    page = Tags(plots.html(made(torch.tensor([[1.0, -2.0, 0.5]]))))
    bars = [attributes["style"] for tag, attributes in page.tags if "background" in (attributes.get("style") or "")]
    assert [re.search(r"width:([\d.]+)%", style)[1] for style in bars] == ["50.0", "25.0", "12.5"]
    assert "feature 1" in page.text and "−2" in page.text and "no baseline" in page.text
    page = Tags(plots.html(made(sample(1, 5000).abs())))
    assert "4992 other features" in page.text and any("#b3b3b3" in (found.get("style") or "") for _, found in page.tags)


def test_the_notebook_escapes_everything() -> None:
    hostile = HOSTILE[0]
    parts = {hostile: sample(1, 4), "image": sample(1, 3, 8, 8)}
    result = Attribution(parts, explicand=parts, target=torch.tensor([0]), output=torch.ones(1), settings={"method": hostile})
    page = Tags(plots.html(result))
    assert {tag for tag, _ in page.tags} == {"div", "strong", "img", "table", "tr", "td"}
    assert page.text.count(hostile) == 2


def test_the_notebook_shows_the_numbers_of_what_cannot_be_drawn() -> None:
    page = Tags(plots.html(made(torch.full((1, 4), float("nan")))))
    assert "NaN" in page.text and "class" in page.text


# -- figures as such ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_every_figure_can_be_saved(walked, tmp_path, suffix) -> None:
    words = made(sample(2, 6))
    figures = [
        plots.heat_map(walked, overlay=0.5),
        plots.grid({"a": walked}, scale="shared"),
        plots.counterfactual(walked),
        plots.per_reference(walked),
        plots.output_curve(walked),
        plots.distance_curve(walked),
        plots.bars(words),
        plots.text(words, SENTENCES),
    ]
    for i, figure in enumerate(figures):
        file = tmp_path / f"{i}.{suffix}"
        figure.savefig(file, bbox_inches="tight", dpi=60)
        assert file.read_bytes()[:5] == {"png": b"\x89PNG\r", "svg": b"<?xml", "pdf": b"%PDF-"}[suffix]


def test_a_figure_shows_itself_in_a_notebook(walked) -> None:
    assert plots.output_curve(walked)._repr_png_().startswith(b"\x89PNG")


def test_pyplot_knows_of_no_figure(walked) -> None:
    from matplotlib import pyplot

    before = dict(matplotlib.rcParams)
    for figure in (plots.heat_map(walked), plots.bars(made(sample(1, 4))), plots.output_curve(walked)):
        drawn(figure)
    plots.html(walked)
    assert pyplot.get_fignums() == []
    assert dict(matplotlib.rcParams) == before


def test_attributions_plot_themselves(walked, tmp_path) -> None:
    figure = walked.plot(tmp_path / "map.png", kind="magnitude", count=1)
    assert (tmp_path / "map.png").stat().st_size > 0
    assert len(pictures(figure)) == 2 and pictures(figure)[1].get_cmap().name == "inferno"
    assert len(made(sample(2, 5)).plot(top=3).axes[0].patches) == 4  # with that of the others


def test_figures_take_the_users_style(walked) -> None:
    with matplotlib.rc_context({"font.size": 20, "figure.facecolor": "black"}):
        figure = plots.output_curve(walked)
        assert figure.get_facecolor()[:3] == (0, 0, 0)
        assert figure.axes[0].xaxis.label.get_size() == 20


def test_formulas_and_control_characters_from_outside_are_plain_text(walked) -> None:
    broken = "$\\frac{$ a\nb\x07"
    result = made(sample(3, 4), method=broken)
    drawn(plots.bars(result, [broken] * 4, titles=[broken] * 3))
    drawn(plots.grid({broken: walked}, titles=[broken] * 3))
    drawn(plots.heat_map(replace(walked, settings={"method": broken}), titles=[broken * 30] * 3))
    drawn(plots.per_reference(walked, labels=[broken] * 4))
    drawn(plots.text(result, [[broken]] * 3, titles=[broken] * 3))
    drawn(plots.output_curve({broken: walked}))


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith("ig2.plots")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ig2.MissingExtraError, match=r"pip install 'ig2\[plots\]'"):
        importlib.import_module("ig2.plots")


def test_strength_is_taken_before_the_blur_so_that_signs_do_not_cancel() -> None:
    signs = (-1.0) ** np.add.outer(np.arange(12), np.arange(12))[None]  # a checkerboard
    assert np.allclose(MapStyle(kind="magnitude", smooth=2).transform(signs), 1)
    assert np.allclose(MapStyle(kind="positive", smooth=2).transform(signs), 0.5, atol=0.05)
    assert np.abs(MapStyle(smooth=2).transform(signs)[0, 4:8, 4:8]).max() < 0.1  # with signs they do
