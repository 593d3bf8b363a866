"""Figures of whole tables: which columns, in which order, with which numbers and colours."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import drawing
import ig2
import networks
from ig2 import modalities, plots
from ig2.errors import InputError
from ig2.plots import columns as module

COLUMNS = (
    modalities.table.Number("age", 40, 10),
    modalities.table.Number("debt"),
    modalities.table.Category("town", ("Bath", "York")),
)


def rows(count: int = 12) -> pd.DataFrame:
    numbers = networks.data(count, 2, seed=1).numpy()
    return pd.DataFrame(
        {"age": 40 + 10 * numbers[:, 0], "debt": numbers[:, 1], "town": ["Bath", "York", "York"] * (count // 3)}
    )


@pytest.fixture(scope="module")
def subject() -> modalities.table.TableSubject:
    """f = age′ + 3·age′·debt − 2·[town is York]: every number on a figure can be said beforehand."""

    def linear(x: torch.Tensor) -> torch.Tensor:
        score = x[:, 0] + 3 * x[:, 0] * x[:, 1] - 2 * x[:, 3]
        return torch.stack([score, -score], dim=1)

    return modalities.table.TableSubject("closed", ig2.wrap(linear), ("up", "down"), COLUMNS)


@pytest.fixture(scope="module")
def result(subject: modalities.table.TableSubject) -> ig2.Attribution:
    return subject.explain(rows(), ig2.IntegratedGradients(rule=ig2.rules.gauss(2)), target="up", against=None, references=0.0)


class WithTowns:
    """A table in which there are so many towns."""

    def __init__(self, result: ig2.Attribution, count: int) -> None:
        self.table, self.count = result.tabulate(), count

    def tabulate(self) -> ig2.names.ColumnValues:
        cells = [[*row[:2], f"town {number % self.count}"] for number, row in enumerate(self.table.cells)]
        return dataclasses.replace(self.table, cells=cells)


def test_tabulate_has_a_number_and_a_cell_for_each_column(result):
    table = result.tabulate()
    assert table.names == ("age", "debt", "town")
    np.testing.assert_allclose(table.values.sum(axis=1), result.total.double(), atol=1e-6)
    np.testing.assert_allclose(table.values[:, 2], np.where(rows()["town"] == "York", -2, 0), atol=1e-6)
    assert table.data[0, 2] == "Bath" and table.data[0, 0] == pytest.approx(rows()["age"][0], rel=1e-5)
    assert table[[3, 1]].samples == ("row 4", "row 2") and table[[3, 1]].values.shape == (2, 3)
    np.testing.assert_allclose(table.outputs - table.baselines, result.total.double(), atol=1e-6)


def test_a_column_of_numbers_with_one_text_is_a_column_of_texts(result):
    table = result.tabulate()
    mixed = [["?" if row == 5 else cell for cell in cells] for row, cells in enumerate(table.cells)]
    data = ig2.names.ColumnValues(table.names, table.samples, table.values, mixed, table.explained, table.targets).data
    assert all(isinstance(cell, str) for cell in data[:, 0])


def test_plain_rows_of_features_have_columns_too():
    x = networks.data(5, 4)
    table = ig2.Gradient()(networks.small_mlp(), x, target=1).tabulate()
    assert table.names == tuple(f"feature {i}" for i in range(4)) and table.baselines is None
    np.testing.assert_allclose(table.data.astype(float), x.numpy(), rtol=1e-5)


def test_a_swarm_orders_columns_and_places_each_row_at_its_value(result):
    table, figure = result.tabulate(), plots.beeswarm(result)
    strengths = np.abs(table.values).mean(axis=0)
    order = np.argsort(-strengths)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [table.names[i] for i in order]
    for line, column in enumerate(order):
        points = figure.axes[0].collections[line].get_offsets()
        np.testing.assert_allclose(points[:, 0], table.values[:, column])
        assert (np.abs(points[:, 1] - line) <= 0.4 + 1e-9).all()
    assert "grey: categories" in drawing.texts(figure)
    assert "the 2 strongest of 3" in drawing.texts(plots.beeswarm(result, top=2))
    assert drawing.drawn(figure).std() > 0


def test_colours_follow_the_cells_and_not_the_attributions():
    values = torch.zeros(4, 1, dtype=torch.float64)
    figure = plots.beeswarm(drawing.made(values, torch.tensor([[3.0], [1.0], [9.0], [1.0]]), target=torch.zeros(4).long()))
    np.testing.assert_allclose(figure.axes[0].collections[0].get_array(), [0.5, 0, 1, 0])


def test_points_at_one_value_stand_beside_each_other():
    aside = module._stack(np.zeros(5), 1.0)
    assert len(set(aside.tolist())) == 5 and np.abs(aside).max() <= 0.4
    assert np.abs(module._stack(np.zeros(5000), 1.0)).max() <= 0.4 + 1e-12
    assert (module._stack(np.linspace(0, 1, 5), 1.0) == 0).all()


def test_a_swarm_of_many_rows_shows_some_and_says_so():
    many = drawing.made(networks.data(7000, 2), target=torch.zeros(7000).long())
    figure = plots.beeswarm(many)
    shown = len(figure.axes[0].collections[0].get_offsets())
    assert shown <= module.MOST_POINTS and f"{shown} of 7000 rows" in drawing.texts(figure)


def test_importance_is_the_mean_of_sizes_and_marks_the_mean(result):
    table, figure = result.tabulate(), plots.importance(result, top=2)
    strengths = np.sort(np.abs(table.values).mean(axis=0))[::-1]
    lengths = [bar.get_width() for bar in figure.axes[0].patches]
    np.testing.assert_allclose(lengths, strengths)  # the last bar is the sum of the one other column
    marks = [line.get_xdata()[0] for line in figure.axes[0].lines[-2:]]
    order = np.argsort(-np.abs(table.values).mean(axis=0))[:2]
    np.testing.assert_allclose(marks, table.values.mean(axis=0)[order])
    assert "1 other column, together" in drawing.texts(figure)


def test_a_waterfall_leads_from_the_baseline_to_the_output(result):
    table = result.tabulate()
    figure = plots.waterfall(result, row=1, top=2)
    bars = figure.axes[0].patches
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]
    assert ends[0][0] == pytest.approx(table.baselines[1])
    assert ends[-1][1] == pytest.approx(table.outputs[1], abs=1e-5)
    assert all(one[1] == pytest.approx(two[0]) for one, two in pairwise(ends))
    assert "row 2: up" in drawing.texts(figure) and "not accounted for" not in drawing.texts(figure)
    short = ig2.IntegratedGradients(1, rule=ig2.rules.left)(
        lambda x: x.prod(dim=1), torch.tensor([[1.0, 2.0, 3.0]]), references=0.5
    )  # fmt: skip
    figure = plots.waterfall(short)
    last = figure.axes[0].patches[-1]
    assert last.get_x() + last.get_width() == pytest.approx(6.0) and "not accounted for" in drawing.texts(figure)


def test_a_dependence_is_of_one_column(result):
    table = result.tabulate()
    figure = plots.dependence(result, "age", colour="debt")
    assert drawing.colour_bars(figure)[0].get_ylabel() == "debt"
    points = figure.axes[0].collections[0]
    np.testing.assert_allclose(points.get_offsets()[:, 0], table.data[:, 0].astype(float))
    np.testing.assert_allclose(points.get_offsets()[:, 1], table.values[:, 0])
    np.testing.assert_allclose(np.argsort(points.get_array()), np.argsort(table.data[:, 1].astype(float)))
    town = plots.dependence(result, 2).axes[0]
    assert [label.get_text() for label in town.get_xticklabels()] == ["Bath", "York"]
    assert set(np.round(town.collections[0].get_offsets()[:, 0])) == {0, 1}


def test_categories_colour_a_dependence_each_by_its_own(result):
    figure = plots.dependence(result, "age", colour="town")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Bath", "York"]
    assert figure.legends[0].get_title().get_text() == "town" and not drawing.colour_bars(figure)
    colours = [tuple(colour) for colour in figure.axes[0].collections[0].get_facecolors()]
    towns = result.tabulate().data[:, 2]
    assert len({*zip(colours, towns, strict=True)}) == len(set(colours)) == 2


def test_true_is_above_false_though_they_are_text():
    columns = (modalities.table.Number("age"), modalities.table.Category("owner", ("False", "True")))
    subject = modalities.table.TableSubject("owners", ig2.wrap(lambda x: x[:, :2]), ("one", "two"), columns)
    table = pd.DataFrame({"age": [1.0, 2.0, 3.0], "owner": ["True", "False", "True"]})
    attribution = subject.explain(table, ig2.InputXGradient(), target="two", against=None)
    figure = plots.beeswarm(attribution)
    assert "grey" not in drawing.texts(figure)
    np.testing.assert_allclose(figure.axes[0].collections[0].get_array(), [1, 0, 1])  # the stronger one
    places = plots.dependence(attribution, "owner").axes[0]
    assert [label.get_text() for label in places.get_xticklabels()] == ["False", "True"]


def test_rows_of_one_class_are_chosen_by_name_or_number(subject):
    mixed = subject.explain(rows(), ig2.InputXGradient(), against=None)
    assert len(set(mixed.explained)) == 2
    assert "choose one with target=" in drawing.texts(plots.beeswarm(mixed))
    count = mixed.explained.count("down")
    for wanted in ("down", 1, "1"):
        assert f"down: {count} row" in drawing.texts(plots.beeswarm(mixed, target=wanted))


@pytest.mark.parametrize(
    ("call", "keyword"),
    [
        (lambda result: plots.beeswarm("no"), "Attribution"),
        (lambda result: plots.beeswarm(result, target="upp"), "did you mean up"),
        (lambda result: plots.dependence(result, "aje"), "did you mean age"),
        (lambda result: plots.dependence(WithTowns(result, 8), "age", colour="town"), "8 values"),
        (lambda result: plots.waterfall(result, row=99), "row"),
        (lambda result: plots.waterfall(ig2.Gradient()(networks.small_mlp(), networks.data(1, 4))), "baseline"),
        (lambda result: plots.beeswarm(drawing.made(networks.data(2, 1, 4, 4))), "rows of a table"),
        (lambda result: plots.beeswarm(result[:0]), "no rows"),
    ],
)
def test_what_cannot_be_drawn_is_refused(result, call, keyword):
    networks.refuses(InputError, keyword, lambda: call(result))


def test_a_store_is_drawn_as_the_attribution_is(subject, result, tmp_path: Path):
    rows().to_csv(tmp_path / "people.csv", index=False)
    method = ig2.IntegratedGradients(rule=ig2.rules.gauss(2))
    store = ig2.run(
        tmp_path / "people.csv",
        subject,
        method,
        tmp_path / "store",
        question=ig2.Question(target=0, against=None, references=0.0),
    )
    ours, theirs = store.tabulate(), result.tabulate()
    assert ours.names == theirs.names and ours.explained == theirs.explained
    np.testing.assert_allclose(ours.values, theirs.values, atol=1e-5)
    np.testing.assert_allclose(ours.baselines, theirs.baselines, atol=1e-5)
    assert ours.data[:, 2].tolist() == theirs.data[:, 2].tolist()
    for draw in (plots.beeswarm, plots.importance, plots.waterfall):
        assert drawing.drawn(draw(store)).std() > 0
    other = ig2.run(
        tmp_path / "people.csv",
        subject,
        method,
        tmp_path / "flat",
        question=ig2.Question(target=0, against=None, references=0.0),
        saving=ig2.Saving(values="float32"),
    )
    networks.refuses(InputError, "units", other.tabulate)


@pytest.mark.slow
def test_shaps_own_plots_take_a_table_with_categories(result):
    shap = pytest.importorskip("shap")
    import matplotlib.pyplot as plt

    with plt.rc_context({"backend": "agg"}):
        explanation = result.to_shap()
        calls = [
            lambda: shap.plots.beeswarm(explanation, show=False),
            lambda: shap.plots.bar(explanation, show=False),
            lambda: shap.plots.waterfall(explanation[0], show=False),
            lambda: shap.plots.scatter(explanation[:, "age"], color=explanation[:, "debt"], show=False),
            lambda: shap.plots.scatter(explanation[:, "town"], show=False),
        ]
        for call in calls:
            call()
            texts = " ".join(label.get_text() for axes in plt.gcf().axes for label in axes.get_yticklabels())
            names = " ".join(axes.get_xlabel() for axes in plt.gcf().axes)
            assert any(name in texts + names for name in ("age", "debt", "town"))
            plt.close("all")
