"""`ig2 plot`, and estimators by name on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

MODULE = """
import pandas
from sklearn.tree import DecisionTreeClassifier

ROWS = pandas.DataFrame({"age": [20, 30, 50, 60, 45, 25], "debt": [1, 5, 2, 9, 4, 3]})

def tree():
    return DecisionTreeClassifier(random_state=0).fit(ROWS, ["no", "no", "yes", "yes", "yes", "no"])
"""


@pytest.fixture
def table(ig2) -> None:
    Path("fitted.py").write_text(MODULE)
    Path("rows.csv").write_text("age,debt\n22,4\n55,3\n48,8\n31,1\n")


def test_an_estimator_is_explained_and_drawn(ig2, table):
    explained = ig2("explain", "rows.csv", "--model", "fitted:tree", "--method", "kernelshap", "--compare", "occlusion", "-q")
    assert explained.code == 0, explained.err
    assert "assumed: 2 columns, 'age', 'debt'" in explained.err and "sums to the change" in explained.out
    for figure, options in {"beeswarm": (), "dependence": ("--column", "age", "--colour", "debt")}.items():
        drawn = ig2("plot", "ig2-out/kernelshap.safetensors", "--figure", figure, *options)
        assert drawn.code == 0 and f"{figure}.png" in drawn.out
        assert Path(f"{figure}.png").read_bytes().startswith(b"\x89PNG")


def test_a_store_is_drawn(ig2, table):
    assert ig2("run", "rows.csv", "--model", "fitted:tree", "--method", "kernelshap", "-q", "--out", "store").code == 0
    for figure in ("importance", "waterfall"):
        assert ig2("plot", "store", "--figure", figure, "--out", f"{figure}.pdf").code == 0
        assert Path(f"{figure}.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "keyword"),
    [
        (("explain", "rows.csv", "--model", "fitted:tree", "-q"), "needs gradients"),
        (("run", "rows.csv", "--model", "fitted:tree", "-q", "--method", "ig"), "needs gradients"),
        (("explain", "rows.csv", "--model", "fitted:tree", "-q", "--method", "occlusion", "--size", "3"), "omit"),
        (("plot", "nothing"), "does not exist"),
        (("plot", "rows.csv", "--figure", "beswarm"), "did you mean beeswarm"),
        (("plot", "rows.csv", "--figure", "dependence"), "--column"),
        (("plot", "rows.csv", "--column", "age"), "--column"),
        (("plot", "rows.csv", "--out", "x.exe"), "x.exe"),
        (("plot", "rows.csv"), "safetensors"),
    ],
)
def test_what_does_not_fit_is_one_line(ig2, table, arguments, keyword):
    result = ig2(*arguments)
    assert result.code in (1, 2) and keyword in result.err.splitlines()[-1]
