"""A map of one text's words × several targets."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import torch

import ig2
from ig2 import plots
from ig2.errors import InputError
from ig2.names import Names
from ig2.plots.texts import shade
from networks import refuses

WORDS = ("why", "<b>", "$x$")


def attribute(rows: int = 2, words: tuple[tuple[str, ...], ...] | None = None) -> ig2.Attribution:
    """Values that are the weights themselves, (rows, three words, one number each)."""
    weights = torch.tensor([[1.0, -2.0], [0.0, 3.0], [0.5, 0.0]])
    result = ig2.Gradient()(lambda x: x[..., 0] @ weights, torch.ones(rows, 3, 1), target=list(range(rows)))
    names = Names("words", ("why",) * rows, ("' a'", "' b'"), units=words or (WORDS,) * rows, groups=((0, 1, 2),) * rows)
    result.settings["lm"] = "toy"
    return result.with_names(names)


def test_rows_are_targets_and_columns_are_words() -> None:
    figure = plots.token_map(attribute())
    axes = figure.axes[0]
    np.testing.assert_allclose(axes.images[0].get_array() * 3, [[1, 0, 0.5], [-2, 3, 0]], atol=1e-6)
    assert [label.get_text() for label in axes.get_xticklabels()] == list(WORDS)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["' a'", "' b'"]
    each = plots.token_map(attribute(), scale="each").axes[0].images[0].get_array()
    np.testing.assert_allclose(each[0], [1, 0, 0.5], atol=1e-6)
    figure.savefig(io.BytesIO(), format="png")  # dollar signs start no formula


def test_the_same_in_html_with_everything_escaped() -> None:
    page = plots.token_map_html(attribute())
    assert page.count("<tr>") == 3 and 'title="−2"' in page
    assert "<b>" not in page and "&lt;b&gt;" in page


@pytest.mark.parametrize("scale", ["shared", "each"])
def test_colours_of_cells_in_html_end_where_the_scale_does(scale) -> None:
    result = attribute()
    scores = np.stack(result.sum_units())
    largest = np.abs(scores).max(axis=None if scale == "shared" else 1, keepdims=True)
    expected = [shade(share, "signed") for share in (scores / largest).ravel()]
    page = plots.token_map_html(result, scale=scale, kind="signed")
    assert re.findall(r"background-color:(rgba\(.*?\))", page) == expected


def test_an_attribution_of_several_targets_shows_itself_as_a_map() -> None:
    assert "ig2-map" in plots.html(attribute())
    assert len(plots.attribution(attribute()).axes[0].images) == 1
    alone = attribute(1)
    assert "ig2-map" not in plots.html(alone)


def test_several_texts_are_no_map() -> None:
    different = attribute(words=(WORDS, ("who", "are", "you")))
    refuses(InputError, "one text", lambda: plots.token_map(different))
    refuses(InputError, "one text", lambda: plots.token_map(ig2.Gradient()(lambda x: x.sum(1), torch.ones(1, 3))))
