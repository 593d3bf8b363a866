"""Scales in suites: rows from one attribution, and the choice of a scale for each method."""

import math
from dataclasses import replace

import pytest
import torch
from toysuite import NET, Maps, X

import ig2
from ig2.errors import InputError
from ig2_bench import AtScale, BenchOptions, Table, choose_scales, run, select_scales
from ig2_bench.suite import ChoiceError
from networks import refuses


def test_each_scale_is_a_row_after_its_method_and_the_others_stay(tmp_path):
    raw = run(Maps(), out=tmp_path)
    table = run(Maps(scales=(1.0, 2.5)), own={"mine": lambda model, x, *_, **__: x.clone()}, out=tmp_path)
    assert list(table.methods)[:3] == ["Gradient", "Gradient, blurred by 1 px", "Gradient, blurred by 2.5 px"]
    assert list(table.methods)[-1] == "mine, blurred by 2.5 px"  # a tensor can be blurred too
    blurred = ig2.IntegratedGradients(4)(NET, X, 1).smooth(2.5).values
    assert table.row("IG, blurred by 2.5 px", "peak").values == pytest.approx(blurred.flatten(1).abs().amax(dim=1).tolist())
    for label in ("Gradient", "IG"):
        assert table.row(label, "peak").values == raw.row(label, "peak").values
        at_scale = table.row(f"{label}, blurred by 1 px", "total").values
        assert at_scale == pytest.approx(raw.row(label, "total").values, abs=1e-12)
    assert table.settings == raw.settings and not table.failures
    chosen = run(Maps(scales=(4.0,)), ["ig"])
    assert list(chosen.methods) == ["IG", "IG, blurred by 4 px"]


def test_scores_of_raw_maps_are_not_computed_again(tmp_path):
    run(Maps(), out=tmp_path)
    steps = []
    run(Maps(scales=(1.0,)), out=tmp_path, progress=steps.append)
    assert not [step for step in steps if step.now.endswith(": IG") or step.now.endswith(": Gradient")]


def with_means(means, better=("lower", "higher")):
    """The table of one method "IG" at scales 0, 1 and 2.5 with these means by metric."""
    table = run(Maps(scales=(1.0, 2.5)), ["ig"])
    numbers = iter(zip(*means, strict=True))
    rows = []
    for label in table.methods:
        values = next(numbers)
        for metric, value, direction in zip(("peak", "total"), values, better, strict=True):
            rows.append(replace(table.row(label, metric), mean=value, better=direction))
        rows.append(table.row(label, "seconds"))
    return replace(table, rows=tuple(rows))


@pytest.mark.parametrize(
    ("peak", "total", "by_rank"),
    [
        ((3, 2, 1), (1, 2, 3), 2.5),
        ((1, 2, 3), (3, 2, 1), 0.0),
        ((2, 1, 3), (2, 3, 1), 1.0),
        ((3, 2, 1), (3, 2, 1), 0.0),  # level: ranks 3, 2, 1 and 1, 2, 3
        ((1, 1, 1), (1, 1, 1), 0.0),
        ((math.nan, 2, 3), (math.nan, 1, 2), 1.0),  # 3, 1, 2 and 3, 2, 1
        ((5, 5, 1), (1, 1, 0), 0.0),  # 2.5, 2.5, 1 and 1.5, 1.5, 3: level with the third
    ],
)
def test_the_scale_with_the_best_mean_rank_is_chosen(peak, total, by_rank):
    table = with_means((peak, total))
    assert choose_scales(table) == {"IG": by_rank}
    best = min((value, sigma) for value, sigma in zip(peak, (0.0, 1.0, 2.5), strict=True) if not math.isnan(value))[1]
    assert choose_scales(table, "peak") == {"IG": best}


def test_the_choice_is_reported_beside_the_raw_maps(tmp_path):
    table = run(Maps(scales=(1.0, 2.5)), out=tmp_path)
    chosen = {"Gradient": 0.0, "IG": 2.5}
    for whole in (table, Table.load(tmp_path / "maps.json")):
        assert choose_scales(whole, "peak") == {"Gradient": 2.5, "IG": 2.5}
        report = select_scales(whole, chosen)
        assert list(report.methods) == ["Gradient", "IG", "IG, blurred by 2.5 px"]
        assert [row.method for row in report.rows] == [label for label in report.methods for _ in range(3)]
        assert "IG 2.5 px" in report.notes[-1] and "Gradient raw" in report.notes[-1]
        one, two = (shown.row("IG, blurred by 2.5 px", "peak").mean for shown in (report, table))
        assert one == pytest.approx(two)
    refuses(InputError, "4 px", lambda: select_scales(table, {"IG": 4.0}))
    refuses(InputError, "XRAI", lambda: select_scales(table, {"XRAI": 1.0}))
    refuses(InputError, "criterion", lambda: choose_scales(table, "seconds"))
    refuses(InputError, "criterion", lambda: choose_scales(table, "area"))
    refuses(InputError, "scales", lambda: choose_scales(run(Maps())))


def test_options_that_do_not_fit_are_refused():
    assert BenchOptions.parse(scales=[2, 8]).scales == (2, 8)
    for wrong in ((0,), (-1.0,), (2, 2), ("2",), (math.inf,)):
        refuses(ChoiceError, "scales", lambda wrong=wrong: BenchOptions.parse(scales=wrong))
    refuses(ChoiceError, "scales", lambda: BenchOptions.parse(scales=2.0))
    refuses(ChoiceError, "--scales", lambda: BenchOptions.parse(scales=[2]).check("toy", "seeds"))
    BenchOptions.parse(scales=[2]).check("toy", "scales")


def test_a_method_at_a_scale_is_a_method():
    assert torch.equal(AtScale(ig2.Gradient(), 2.0)(NET, X, 1).values, ig2.Gradient()(NET, X, 1).smooth(2.0).values)
