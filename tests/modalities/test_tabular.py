"""Rows in, a number a column out: units, categories, and rows that are wrong."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2 import modalities
from ig2._utils import training
from ig2.demo import tables
from ig2.errors import InputError
from ig2.inputs import Fixed
from ig2.modalities.base import Batch
from ig2.modalities.table.columns import Category, Number
from ig2.modalities.table.rows import TableSubject

FRAME = pd.DataFrame(
    {
        "age": [31, 45, 28, 60, 52, 39],
        "income": [32_000.0, 81_000.0, 27_500.0, 64_000.0, 90_000.0, 41_000.0],
        "city": ["Rome", "Oslo", "Rome", "Lima", "Oslo", "Lima"],
        "plan": ["a", "b", "b", "a", "c", "c"],
        "answer": [0, 1, 0, 1, 1, 0],
    }
)


def net_of(features: int, outputs: int = 2, seed: int = 0) -> nn.Sequential:
    with training.local_seed(seed):
        return nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, outputs)).eval()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IG2_CACHE", str(tmp_path / "cache"))
    return tmp_path


def people(**options: Any) -> TableSubject:
    """A network that has learnt the answers of the six rows."""
    columns = modalities.table.infer_columns(FRAME, leave_out=["answer"])
    net = net_of(8)
    features = modalities.table.subject(net, columns).read(FRAME).x
    training.fit(net, [features], torch.tensor(FRAME["answer"]), nn.functional.cross_entropy, epochs=100, rate=2e-2)
    return modalities.table.subject(net, columns, ["no", "yes"], rows=FRAME, **options)


def test_references_are_chosen_in_inference_mode_as_outside() -> None:
    mine = people()
    outside = ig2.Question(against=None, references=mine.read(FRAME), count=2).contrast(mine, mine.read(FRAME))
    with torch.inference_mode():
        batch = mine.read(FRAME)
        within = ig2.Question(against=None, references=batch, count=2).contrast(mine, batch)
    assert within.names == outside.names and torch.equal(within.samples, outside.samples)


def test_a_single_column_may_be_named_without_a_list() -> None:
    named = modalities.table.infer_columns(FRAME, leave_out="answer", fixed="plan")
    assert [column.name for column in named] == ["age", "income", "city", "plan"]
    assert named[-1].fixed
    with pytest.raises(InputError, match=r"no column 'wine': it has 'age', 'income', 'city', 'plan', 'answer'$"):
        modalities.table.infer_columns(FRAME, leave_out="wine")


def test_names_and_outputs_of_a_table_network_have_one_number() -> None:
    mine = modalities.table.subject(net_of(2, outputs=3), ["age", "income"], classes=["a", "b"], rows=FRAME)
    batch = mine.read(FRAME)
    for call in (mine.predict, partial(ig2.Question().contrast, mine)):
        with pytest.raises(InputError, match="Sequential has 3 outputs and 2 names for them, 'a', 'b'"):
            call(batch)


def test_many_columns_and_values_are_counted() -> None:
    mine = modalities.table.subject(net_of(11), ["size", Category("town", tuple("abcdefghij"))])
    with pytest.raises(InputError, match=r"it has c0, c1"):
        mine.read([{f"c{i}": 0 for i in range(9)}])
    with pytest.raises(InputError, match=r"it can be 'a', 'b', 'c', 'd', 'e', 'f' and 4 more$"):
        mine.read([{"size": 1, "town": "z"}])


def test_columns_are_found_with_their_types_and_scales() -> None:
    age, income, city, plan = modalities.table.infer_columns(FRAME, leave_out=["answer"])
    assert isinstance(age, Number)
    assert (age.name, age.mean) == ("age", FRAME["age"].mean())
    assert isinstance(income, Number)
    assert income.std == pytest.approx(FRAME["income"].std(ddof=0))
    assert isinstance(city, Category)
    assert city.values == ("Lima", "Oslo", "Rome")
    assert isinstance(plan, Category)
    held = modalities.table.infer_columns(FRAME, categories=["answer"], fixed=["plan"])
    assert [(column.name, column.fixed, column.width) for column in held] == [
        ("age", False, 1), ("income", False, 1), ("city", False, 3), ("plan", True, 3), ("answer", False, 2),
    ]  # fmt: skip
    constant = modalities.table.infer_columns(pd.DataFrame({"same": [4, 4, 4]}))[0]
    assert isinstance(constant, Number)
    assert constant.std == 1


def test_a_row_is_read_in_its_own_units_and_reaches_the_network_standardised() -> None:
    mine = people()
    batch = mine.read(FRAME)
    assert batch.names == tuple(f"row {i}" for i in range(1, 7))
    assert batch.units is not None
    assert batch.cells is not None
    assert batch.units[0] == ("age", "income", "city", "plan")
    assert batch.cells[0] == ("31", "32000", "Rome", "a")
    assert batch.x.shape == (6, 8)
    assert torch.allclose(batch.x[:, :2].mean(dim=0), torch.zeros(2), atol=1e-6)
    assert torch.allclose(batch.x[:, :2].std(dim=0, correction=0), torch.ones(2), atol=1e-5)
    assert batch.x[0, 2:].tolist() == [0, 0, 1, 1, 0, 0]
    assert mine.cells(batch.x[0]) == ("31", "32000", "Rome", "a")


def test_columns_are_summed_to_one_number_each() -> None:
    mine = people()
    batch = mine.read(FRAME)
    chosen = ig2.Question(against=None, count=2).contrast(mine, batch)
    a = ig2.ExpectedIG(steps=20)(mine.model, batch.x, references=chosen.samples)
    scores = mine.scores(batch, a)
    assert [len(row) for row in scores] == [4] * 6
    values = a.values.double().numpy()
    assert np.allclose(scores[2], [values[2, 0], values[2, 1], values[2, 2:5].sum(), values[2, 5:].sum()])
    for row in range(6):
        assert scores[row].sum() == pytest.approx(float(a.output[row] - a.baseline_output[row]), abs=1e-5)
    with pytest.raises(InputError, match="8 positions"):
        mine.scores(batch, a, torch.zeros(6, 9))


def test_embedded_categories_are_moved_in_the_networks_own_table() -> None:
    with training.local_seed(0):
        table = nn.Embedding(3, 4)
    columns = [Number("age", 40, 10), Category("city", ("Lima", "Oslo", "Rome"), table)]
    mine = modalities.table.subject(net_of(5), columns)
    batch = mine.read(FRAME)
    assert batch.x.shape == (6, 5)
    assert torch.equal(batch.x[0, 1:], table.weight[2].detach())
    assert mine.cells(batch.x[0]) == ("31", "Rome")
    nearly = batch.x[0] + 0.01
    assert mine.cells(nearly)[1] == "Rome"
    a = ig2.IntegratedGradients(steps=20)(mine.model, batch.x, references=batch.x[3:4])
    assert len(mine.scores(batch, a)[0]) == 2
    assert mine.scores(batch, a)[0].sum() == pytest.approx(float(a.output[0] - a.baseline_output[0]), abs=1e-5)


class WithCodes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plan = nn.Embedding(3, 2)
        self.rest = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, features: Tensor, codes: Tensor) -> Tensor:
        return self.rest(torch.cat([features, self.plan(codes[:, 0])], dim=1))


def test_fixed_categories_come_along_and_are_not_attributed() -> None:
    with training.local_seed(0):
        net = WithCodes().eval()
    columns = [Number("age", 40, 10), Category("plan", ("a", "b", "c"), fixed=True), Number("income", 50_000, 20_000)]
    mine = modalities.table.subject(net, columns, ["no", "yes"], rows=FRAME)
    batch = mine.read(FRAME)
    _, codes = batch.x
    assert isinstance(codes, Fixed)
    assert codes.value[:, 0].tolist() == [0, 1, 1, 0, 2, 2]
    assert batch.units is not None
    assert batch.cells is not None
    assert batch.units[0] == ("age", "income")
    assert batch.cells[0] == ("31", "32000")
    chosen = ig2.Question(0, None).contrast(mine, batch)
    a = ig2.ExpectedIG(steps=30)(mine.model, batch.x, target=0, references=chosen.samples)
    for row, scores in enumerate(mine.scores(batch, a)):
        assert scores.sum() == pytest.approx(float(a.output[row] - a.baseline_output[row]), abs=1e-4)
    # beside each row a reference has that row's plan, and is judged with it
    with torch.no_grad():
        for row in range(6):
            samples = chosen.tensors[0][row][: len(chosen.names[row])]
            beside = codes.value[row].expand(len(samples), -1)
            said = net(samples, beside).argmax(dim=1)
            assert [mine.label(i) for i in said.tolist()] == list(chosen.labels[row])
            assert 0 not in said


def test_a_table_is_read_from_every_kind_of_file(tmp_path: Path) -> None:
    mine = people()
    expected = mine.read(FRAME)
    FRAME.to_csv(tmp_path / "a.csv", index=False, encoding="utf-8-sig")
    FRAME.sample(frac=1, axis=1, random_state=0).to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    FRAME.to_parquet(tmp_path / "c.parquet")
    FRAME.astype({"city": "category"}).to_parquet(tmp_path / "d.pq")
    sources: list[Any] = [tmp_path / "a.csv", str(tmp_path / "b.tsv"), tmp_path / "c.parquet", tmp_path / "d.pq"]
    for source in [*sources, FRAME.to_dict("records"), FRAME.set_index("answer")]:
        batch = mine.read(source)
        assert torch.allclose(batch.x, expected.x)
    assert mine.read(FRAME.iloc[0].to_dict()).x.shape == (1, 8)
    assert mine.read(tmp_path / "a.csv").cells[0] == ("31", "32000.0", "Rome", "a")  # as it stands in the file
    assert list(FRAME.columns) == ["age", "income", "city", "plan", "answer"]


def changed(row: int, column: str, value: Any) -> pd.DataFrame:
    frame = FRAME.astype(object)
    frame.loc[row, column] = value
    return frame


WRONG_CELLS: dict[str, tuple[int, str, Any, str]] = {
    "missing number": (2, "income", None, "row 3, column 'income': nothing there"),
    "NaN": (0, "age", float("nan"), "row 1, column 'age': nothing there"),
    "a word for missing": (4, "age", "N/A", "row 5, column 'age': nothing there"),
    "infinite": (1, "income", float("inf"), "row 2, column 'income': inf is not a finite number"),
    "text": (5, "age", "forty", "row 6, column 'age': 'forty' is not a finite number"),
    "missing category": (3, "city", "", "row 4, column 'city': nothing there; it can be 'Lima', 'Oslo', 'Rome'"),
    "unknown category": (3, "city", "<script>", "row 4, column 'city': '<script>' is unknown; it can be 'Lima'"),
}


@pytest.mark.parametrize("case", WRONG_CELLS)
def test_a_wrong_cell_is_named_by_row_and_column(case: str, tmp_path: Path) -> None:
    row, column, value, expected = WRONG_CELLS[case]
    frame = changed(row, column, value)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for source in (frame, tmp_path / "rows.csv"):
        with pytest.raises(InputError) as caught:
            people().read(source)
        assert expected in str(caught.value).replace("'inf'", "inf")
        assert "\n" not in str(caught.value)


def test_a_column_that_is_not_used_may_hold_anything() -> None:
    assert people().read(changed(0, "answer", None)).x.shape == (6, 8)


def test_files_that_are_no_tables_are_errors_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    (tmp_path / "header.csv").write_text("age,income,city,plan\n")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x81" * 40)
    (tmp_path / "ragged.csv").write_text("age,income,city,plan\n1,2,Rome,a,extra\n3,4,Rome,a,extra\n")
    (tmp_path / "other.csv").write_text("Age,Income\n1,2\n")
    (tmp_path / "twice.csv").write_text("age,age,income,city,plan\n1,2,3,Rome,a\n")
    (tmp_path / "text.parquet").write_text("this is no parquet file")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1" + bytes(50))
    (tmp_path / "sheet.xlsx").write_bytes(b"PK\x03\x04")
    cases = {
        "empty.csv": "is empty",
        "header.csv": "no rows",
        "binary.csv": "as a table",
        "ragged.csv": "as a table",
        "other.csv": "lacks 4 of 4 columns, such as 'age'; did you mean Age",
        "text.parquet": "as a table",
        "cut.parquet": "as a table",
        "sheet.xlsx": "a table is a .csv, .tsv or .parquet file, not .xlsx",
        "nowhere.csv": "cannot be read: No such file",
        "": "is a folder",
    }
    for name, expected in cases.items():
        with pytest.raises(InputError, match=expected) as caught:
            people().read(tmp_path / name)
        assert "\n" not in str(caught.value), name
    doubled = pd.concat([FRAME, FRAME[["age"]]], axis=1)
    with pytest.raises(InputError, match="more than one column called 'age'"):
        people().read(doubled)
    with pytest.raises(InputError, match="a table is a file"):
        people().read(3)


def test_a_column_that_stands_twice_in_a_file_is_named(tmp_path: Path) -> None:
    mine, path = modalities.table.subject(net_of(2), ["a", "b"]), tmp_path / "rows.csv"
    path.write_text('note,"a",b,note,a\n,1,2,,3\n')
    with pytest.raises(InputError, match="more than one column called 'a'"):
        mine.read(path)
    with pytest.raises(InputError, match="more than one column called 'note'"):
        modalities.table.infer_columns(path)
    path.write_text("\nnote,a,b,note,\n,1,2,,\n")  # which of them is not used does not matter
    assert torch.equal(mine.read(path).x, torch.tensor([[1.0, 2]]))
    path.write_text("a,a.1,b\n1,2,3\n")
    assert torch.equal(mine.read(path).x, torch.tensor([[1.0, 3]]))
    assert [column.name for column in modalities.table.infer_columns(path)] == ["a", "a.1", "b"]


DATES = pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"]))


@pytest.mark.parametrize(
    "series",
    [DATES, DATES.dt.tz_localize("UTC"), DATES - DATES[0], DATES.dt.to_period("M"), DATES.astype("timestamp[ns][pyarrow]")],
    ids=lambda series: str(series.dtype),
)
def test_dates_are_no_numbers(series: Any, tmp_path: Path) -> None:
    mine, frame = modalities.table.subject(net_of(2), ["a", "b"]), pd.DataFrame({"a": [1.0, 2], "b": series})
    sources = [frame]
    if not isinstance(series.dtype, pd.PeriodDtype):
        frame.to_parquet(tmp_path / "rows.parquet")
        sources.append(tmp_path / "rows.parquet")
    for source in sources:
        for read in (mine.read, modalities.table.infer_columns):
            with pytest.raises(InputError, match="'b' holds dates"):
                read(source)


def test_the_imaginary_part_of_a_number_is_not_dropped() -> None:
    with pytest.raises(InputError, match="'a' holds complex numbers"):
        modalities.table.subject(net_of(1), ["a"]).read(pd.DataFrame({"a": [1 + 2j, 2]}))


def test_wrong_columns_are_named() -> None:
    for make, expected in (
        (lambda: Number("a", std=0), "do not standardise"),
        (lambda: Category("a", ()), "needs different values"),
        (lambda: Category("a", ("x", "x")), "needs different values"),
        (lambda: Category("a", ("x", "y"), nn.Embedding(3, 2)), "2 values and an embedding of 3"),
        (lambda: modalities.table.subject(net_of(1), []), "Number and Category"),
        (lambda: modalities.table.subject(net_of(1), [Category("a", ("x",), fixed=True)]), "every column is fixed"),
        (lambda: modalities.table.infer_columns(FRAME, fixed=["town"]), "no column 'town'"),
        (lambda: modalities.table.load("titanic"), "breast-cancer, wine, iris, diabetes"),
        (lambda: modalities.table.subject(net_of(1), ["a"]).pool(), "comes with no rows"),
    ):
        with pytest.raises(InputError, match=expected):
            make()


def test_several_labels_at_once() -> None:
    mine = modalities.table.subject(
        net_of(2, 3), [Number("age", 40, 10), Number("income", 50_000, 20_000)], list("abc"), outputs="labels"
    )
    batch = mine.read(FRAME)
    scores = mine.predict(batch)
    probabilities = mine.probabilities(scores)
    assert probabilities is not None
    assert torch.allclose(probabilities, scores.sigmoid())
    label = int((((scores > 0).sum(dim=0) > 0) & ((scores < 0).sum(dim=0) > 0)).nonzero()[0])  # one on which rows differ
    a = ig2.ExpectedIG(steps=10)(
        mine.model, batch.x, label, ig2.Question(label, None, references=batch, count=1).contrast(mine, batch).samples
    )
    assert (a.target == label).all()
    assert ((a.output > 0) != (a.baseline_output > 0)).all()
    assert mine.scores(batch, a)[0].shape == (2,)


@pytest.mark.parametrize("name", tables.TABLES)
def test_built_in_tables_are_learnt_and_explained(name: str, here: Path) -> None:
    mine = modalities.table.load(name)
    frame, answers, classes, held_out = tables._table(name)
    batch = mine.read(frame[held_out])
    scores = mine.predict(batch)
    truth = torch.tensor(answers[held_out])
    if mine.outputs == "numbers":
        unexplained = float(((scores[:, 0] - truth) ** 2).mean() / truth.double().var())
        assert unexplained < 0.7
        assert mine.label(0) == "disease progression"
    else:
        assert float((scores.argmax(dim=1) == truth).float().mean()) > 0.9
        assert mine.classes == classes
    few = mine.read(tables.example_rows(name, 3))
    chosen = ig2.Question(against=None, count=5).contrast(mine, few)
    a = ig2.IG2(steps=40)(mine.model, few.x, references=chosen.samples)
    assert float(a.relative_residual.median()) < 0.1
    assert [row.shape for row in mine.scores(few, a)] == [(len(mine.columns),)] * 3
    again = modalities.table.load(name)  # from the cache
    assert torch.equal(again.predict(few), mine.predict(few))


def test_what_made_a_row_malignant_is_what_differs_from_benign_ones(here: Path) -> None:
    mine = modalities.table.load()
    batch = mine.read(tables.example_rows(count=1))
    assert [mine.label(i) for i in mine.predict(batch).argmax(dim=1).tolist()] == ["malignant"]
    chosen = ig2.Question(against=None, count=8).contrast(mine, batch)
    assert set(chosen.labels[0]) == {"benign"}
    a = ig2.IG2(steps=40, rule=ig2.rules.shared)(mine.model, batch.x, references=chosen.samples)
    scores = dict(zip(batch.units[0], mine.scores(batch, a)[0], strict=True))
    assert scores["worst area"] > 0
    counterfactual = dict(zip(batch.units[0], mine.cells(a.gradcf[0, 0]), strict=True))
    own = dict(zip(batch.units[0], batch.cells[0], strict=True))
    assert float(counterfactual["worst area"]) < float(own["worst area"])  # in the row's own units


# -- names -------------------------------------------------------------------------------------------------------------


def test_explain_reads_chooses_explains_and_names() -> None:
    mine = people()
    batch = mine.read(FRAME)
    attribution = mine.explain(FRAME, ig2.IG2(steps=10), count=2, seed=3)
    contrast = ig2.Question(against="next", count=2, seed=3).contrast(mine, batch)
    by_hand = ig2.IG2(steps=10)(mine.model, batch.x, references=contrast.samples, against="next", seed=3)
    assert torch.equal(attribution.values, by_hand.values) and torch.equal(attribution.against, by_hand.against)
    assert all(np.array_equal(*pair) for pair in zip(attribution.sum_units(), mine.scores(batch, by_hand), strict=True))
    names = attribution.names
    assert names is not None and names.samples == batch.names and names.units == batch.units and names.cells == batch.cells
    assert names.becomes is not None and names.becomes[4] == mine.cells(by_hand.gradcf[4].double().mean(dim=0))
    for text in (repr(attribution), attribution.explained[0]):
        assert f"{mine.label(int(by_hand.target[0]))} rather than {mine.label(int(by_hand.against[0]))}" in text
    assert "row 1; row 2" in repr(attribution)
    assert (names.references, names.reference_classes, names.why) == (contrast.names, contrast.labels, contrast.why)
    assert attribution[1:].names.references == contrast.names[1:] and attribution.settings["question"]["count"] == 2


def test_a_frame_has_a_row_for_each_column_in_the_users_units() -> None:
    mine = people()
    attribution = mine.explain(FRAME.iloc[:2], ig2.IG2(steps=10), count=1)
    frame = attribution.to_frame()
    assert list(frame.columns) == ["input", "explained", "unit", "value", "cell", "would_become"]
    assert frame["cell"].tolist()[:4] == ["31", "32000", "Rome", "a"]
    assert frame["unit"].tolist() == ["age", "income", "city", "plan"] * 2
    sums = frame.groupby("input")["value"].sum().to_numpy()
    assert np.allclose(sums, attribution.total.double().numpy(), atol=1e-5)
    straight = mine.explain(FRAME.iloc[:2], ig2.ExpectedIG(steps=5), count=1).to_frame()
    assert "would_become" not in straight and "cell" in straight


def test_cells_are_the_users_own_and_no_longer_than_a_person_writes(tmp_path: Path) -> None:
    mine = modalities.table.subject(nn.Linear(2, 2).eval(), ["a", "b"], rows=[{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n21.961527265845056,0.10\n12345678901,1e-3\n")
    for source in (path, [{"a": 21.961527265845056, "b": "0.10"}, {"a": 12345678901, "b": "1e-3"}]):
        assert mine.read(source).cells == (("21.9615", "0.10"), ("12345678901", "1e-3"))
    frame = mine.explain(path, ig2.ExpectedIG(steps=2), target=0, against=None, references=0.0).to_frame()
    assert frame["cell"].tolist() == ["21.9615", "0.10", "12345678901", "1e-3"]


def test_references_are_of_the_class_explained_against_where_the_pool_has_any() -> None:
    columns = [Number("a"), Number("b"), Number("c")]
    mine = modalities.table.subject(ig2.wrap(nn.Identity(), "output"), columns, classes=["x", "y", "z"])
    rows = [{"a": 9, "b": 2, "c": 1}]
    ys, zs = [{"a": 0, "b": 5 + i, "c": 0} for i in range(3)], [{"a": 0, "b": 1, "c": 6 + i} for i in range(3)]
    pool = mine.read(ys + zs)
    nearest = ig2.Question(against="next", references=pool, count=3).contrast(mine, mine.read(rows))
    assert nearest.labels == (("y", "y", "y"),) and "calls 'y'" in nearest.why[0]
    chosen = mine.explain(rows, ig2.ExpectedIG(), against="z", references=pool, count=3)
    assert chosen.against.tolist() == [2] and chosen.names.reference_classes == (("z",) * 3,)
    lacking = mine.explain(rows, ig2.ExpectedIG(), against="y", references=zs, count=2)
    assert lacking.against.tolist() == [1] and "none of the 3 looked at 'y'" in lacking.names.why[0]
    assert lacking.explained == ["x rather than y, beside references of z"]
    both = ig2.Question(against=[[1, 2]], references=pool, count=4).contrast(mine, mine.read(rows))
    assert sorted(both.labels[0]) == ["y", "y", "z", "z"]
    alone = mine.explain(rows, ig2.ExpectedIG(), against=None, references=pool, count=4)
    assert alone.against is None and sorted(alone.names.reference_classes[0]) == ["y", "y", "z", "z"]
    assert alone.explained in (["x, beside references of y or z"], ["x, beside references of z or y"])
    with pytest.raises(InputError, match="no class 'q'"):
        mine.explain(rows, against="q", references=pool)
    given = mine.explain(rows, ig2.IntegratedGradients(), references=0)
    assert given.names.references is None and given.names.samples == ("row 1",)
    assert mine.explain(rows, ig2.Gradient()).names is not None  # looks at no references, so none are needed


def test_a_number_is_called_by_its_name_and_not_class_0() -> None:
    net = nn.Sequential(nn.Linear(2, 1)).eval()
    rows = [{"a": 1, "b": 2}, {"a": 0, "b": 5}, {"a": 3, "b": 1}]
    mine = modalities.table.subject(net, ["a", "b"], classes=["price"], outputs="numbers", rows=rows)
    attribution = mine.explain(rows[:1], ig2.ExpectedIG())
    assert attribution.against is None and attribution.explained == ["price"]
    assert "explains  price" in repr(attribution) and "class" not in repr(attribution)
    assert "numbers" in attribution.names.why[0]
    unnamed = modalities.table.subject(net, ["a", "b"], outputs="numbers", rows=rows)
    assert unnamed.explain(rows[:1], ig2.ExpectedIG()).explained == ["output 0"]


def test_explicands_that_are_skipped_have_no_names() -> None:
    net = nn.Sequential(nn.Linear(2, 2)).eval()
    rows = [{"a": i, "b": 2.0} for i in range(3)]
    mine = modalities.table.subject(net, ["a", "b"], rows=rows)
    batch = mine.read(rows)
    bad = Batch(batch.names, batch.x.clone(), batch.units, batch.cells)
    bad.x[1] = torch.nan
    with pytest.warns(ig2.IG2Warning, match="skipped"):
        attribution = mine.explain(bad, ig2.IntegratedGradients(), against=None, references=0, skip_bad=True)
    assert attribution.names.samples == ("row 1", "row 3")


def test_what_the_pool_is_does_not_depend_on_what_is_explained_against() -> None:
    mine = modalities.table.subject(
        ig2.wrap(nn.Identity(), "output"), [Number("a"), Number("b"), Number("c")], ["x", "y", "z"], outputs="labels"
    )
    batch = mine.read([{"a": 3, "b": -1, "c": -2}])
    pool = mine.read([{"a": -1, "b": -5, "c": -1}, {"a": 2, "b": -1, "c": 4}])  # neither, and x with z
    contrast = ig2.Question(0, 1, references=pool, count=1).contrast(mine, batch)
    assert contrast.names == (("row 1",),) and contrast.labels == (("none",),)


def test_a_counterfactual_is_the_mean_of_all_references_by_their_weights() -> None:
    mine = modalities.table.subject(net_of(2, 3), [Number("age", 40.0, 10.0), "size"])
    batch = mine.read([{"age": 30.0, "size": 1.0}, {"age": 55.0, "size": -2.0}])
    others = mine.read([{"age": 70.0, "size": 3.0}, {"age": 20.0, "size": 0.5}]).x
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    for shares, references in (
        (torch.full((2, 2), 0.5), others),
        (weights, ig2.references.Weighted(others, weights)),
    ):
        found = ig2.IG2(steps=3)(mine.model, batch.x, references=references)
        means = torch.einsum("br,brf->bf", shares, found.gradcf)
        assert mine.describe_counterfactual(found) == tuple(map(mine.cells, means))
        assert not torch.allclose(found.gradcf[:, 0], found.gradcf[:, 1])
    assert mine.describe_counterfactual(ig2.Gradient()(mine.model, batch.x)) is None
