"""The leaderboard: its roster, ranks, paired differences, file, and what each of four parts contributes."""

import json
import math
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from toysuite import Maps

import ig2
from ig2.errors import InputError
from ig2.methods.base import summary
from ig2.methods.catalogue import ENTRIES
from ig2_bench import Column, Suite, runner
from ig2_bench.board import leaderboard, roster
from ig2_bench.board.factors import NAMES, Effect, Effects, analyse, analyse_table
from ig2_bench.board.intervals import bootstrap, bootstrap_rows
from ig2_bench.board.leaderboard import FILE, run_leaderboard
from ig2_bench.board.rendering import SHORT, find_worthwhile, render_overview, render_pages
from ig2_bench.board.roster import ROSTER, VARIANTS, Conditions, build_roster
from ig2_bench.board.standings import LACKS, Board, Leaderboard, Record, Standing, find_front
from ig2_bench.runner import run
from ig2_bench.suite import AtScale, ChoiceError
from networks import data, refuses, relu_cnn

WITHOUT_GRADIENTS = {"Random", "KernelSHAP", "RISE", "Occlusion"}
SPLITS = ("tables", "tables/validation")
QUICK = {"samples": 3, "device": "cpu"}


def wrong(model, x, target=None, references=None, *, seed=0):
    """The opposite of a good attribution."""
    return -ig2.IntegratedGradients()(model, x, target, references).values


def board(scores, better=("higher", "lower"), costs=None):
    """Methods by their scores of two metrics, sample by sample, at one scale."""
    metrics = {"ADD": Column(better[0]), "DEL": Column(better[1]), "DiffID": Column("higher", ranked=False)}
    standings = []
    for method, (add, delete) in scores.items():
        values = {"ADD": tuple(map(float, add)), "DEL": tuple(map(float, delete)), "DiffID": tuple(map(float, add))}
        cost = {"forwards": None, "gradients": None, "seconds": 0.1} if costs is None else costs[method]
        standings.append(Standing(method, "a method", 0.0, values, values, cost))
    return Board("toy", "Toys", "toys", 3, False, (), {}, {}, metrics, tuple(standings))


# -- roster ------------------------------------------------------------------------------------------------------------


def test_what_a_data_set_lacks_leaves_out_the_methods_that_need_it():
    everything, texts, units = (
        set(build_roster(Conditions(images=images, classes=classes)))
        for images, classes in ((True, True), (False, True), (False, False))
    )
    assert everything == set(ROSTER)
    assert everything - texts == {"AttEXplore", "RISE", "Grad-CAM", "LayerCAM", "HiResCAM", "XRAI", "Strata"}
    assert texts - units == {"MFABA", "AGI", "BIG"}


def test_one_name_is_one_method_in_the_catalogue_the_roster_and_the_stored_board():
    titles = {entry.title: entry for entry in ENTRIES}
    assert {title for title, entry in titles.items() if entry.ranked} <= set(ROSTER)
    # LPI chooses from the references of a call, and is made when it has them
    assert VARIANTS.keys() & titles.keys() == {"LPI"} and not titles["LPI"].ranked
    roster = {label: find_parts(summary(method)) for label, method in build_roster(Conditions()).items()}
    for board in Leaderboard.load(Path(__file__).parents[1] / "leaderboard" / FILE).boards.values():
        for standing in board.standings:
            assert find_parts(standing.about) == roster[standing.method], (board.name, standing.method)


def find_parts(about):
    """The class of a method and its rule, without what changes its references."""
    while about["type"] in ("WithoutReferences", "WithPadding"):
        about = about["method"]
    return about["type"], (about.get("rule") or {}).get("type")


def test_one_line_adds_a_method(monkeypatch):
    monkeypatch.setitem(ROSTER, "Ones", lambda c: lambda model, x, *_, **__: torch.ones_like(x))
    boards = run_leaderboard(["xai-units"], ["ones", "ig"], **QUICK).boards
    assert list(boards["xai-units"].mean_ranks()) == ["IG", "Ones"]


def test_methods_with_a_baseline_of_their_own_get_no_references_unless_the_truth_is_against_them():
    x, references = data(2, 3), data(2, 1, 3, seed=1)
    net = lambda x: (x**3).sum(dim=1)  # noqa: E731
    methods = {one: build_roster(Conditions(images=False, one_reference=one))["IG"] for one in (True, False)}
    values = {one: method(net, x, None, references, seed=0).values for one, method in methods.items()}
    torch.testing.assert_close(values[True], x**3 - references[:, 0] ** 3)
    torch.testing.assert_close(values[False], x**3)


def test_lpi_chooses_among_the_references_of_all_explicands():
    x, references = data(3, 4), data(3, 5, 4, seed=1)
    net = torch.nn.Linear(4, 3).double()
    values = roster.FromPool(4, 5)(net, x, 0, references, seed=0)
    pool = references.flatten(0, 1)
    same = ig2.LPI(torch.unique(pool, dim=0), 1, 5, 4)(net, x, 0)
    torch.testing.assert_close(values.values, same.values)


# -- ranks and differences ---------------------------------------------------------------------------------------------


def test_ranks_are_means_over_the_metrics_that_count_and_ties_share_theirs():
    toys = board({"a": ([1, 2, 3], [5, 5, 5]), "b": ([2, 2, 2], [4, 4, 4]), "c": ([0, 0, math.nan], [9, 9, 9])})
    assert toys.ranks("ADD") == {"a": 1.5, "b": 1.5, "c": 3} and toys.ranks("DEL") == {"a": 2, "b": 1, "c": 3}
    assert toys.mean_ranks() == {"b": 1.25, "a": 1.75, "c": 3} and list(toys.mean_ranks()) == ["b", "a", "c"]
    assert toys.places() == {"b": 1, "a": 2, "c": 3}


def test_means_that_are_equal_as_shown_share_their_rank():
    toys = board({"a": ([1, 1], [3e-16, 1e-16]), "b": ([1, 1.0004], [5e-17, 0]), "c": ([1, 1.002], [0, 0.002])})
    assert toys.ranks("ADD") == {"a": 2.5, "b": 2.5, "c": 1} and toys.ranks("DEL") == {"a": 1.5, "b": 1.5, "c": 3}
    assert toys.places() == {"a": 1, "b": 1, "c": 1}  # mean ranks of 2 each


def test_differences_are_paired_and_positive_where_better():
    toys = board({"a": ([1, 5, 9], [1, 2, 3]), "b": ([0.5, 4.5, 8.5], [2, 3, math.nan])})
    gap = toys.difference("a", "b", "ADD")
    assert (gap.mean, gap.low, gap.high) == (0.5, 0.5, 0.5) and gap.is_clear  # whatever the spread between samples
    assert toys.difference("a", "b", "DEL").mean == 1.0 and toys.difference("b", "a", "DEL").mean == -1.0
    refuses(InputError, "no method", lambda: toys.difference("a", "z", "ADD"))


def test_the_bootstrap_is_near_the_normal_interval_of_many_samples():
    values = np.random.default_rng(3).normal(0.2, 1, 500)
    mean, low, high = bootstrap([*values, math.nan])
    half = 1.96 * values.std(ddof=1) / math.sqrt(500)
    assert mean == pytest.approx(values.mean()) and (low, high) == pytest.approx((mean - half, mean + half), abs=0.1 * half)
    assert bootstrap(values) == bootstrap(values) and math.isnan(bootstrap([1.0])[1]) and math.isnan(bootstrap([])[0])


def test_the_interval_covers_the_true_difference_about_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(0.5, 1, (100, 60))
    covered = sum(low <= 0.5 <= high for _, low, high in (bootstrap(row) for row in draws))
    assert 86 <= covered <= 100


def test_the_front_holds_what_none_beats_in_both():
    assert find_front({"a": (1, 5), "b": (2, 4), "c": (3, 6), "d": (3, 1), "e": (9, 6)}) == ["a", "c"]


def test_rows_are_bootstrapped_as_one_at_a_time_with_gaps_and_without():
    rows = np.random.default_rng(0).normal(size=(4, 20))
    for gap in (False, True):
        rows[2, 3:5] = math.nan if gap else 0.5
        np.testing.assert_allclose(np.array(bootstrap_rows(rows)).T, [bootstrap(row) for row in rows], rtol=1e-12)


# -- comparisons over several data sets --------------------------------------------------------------------------------

STEADY = [0.0, 0.1, 0.2, 0.3]  # differences of these are the same on every sample: clear, however small


def add(by, base=STEADY):
    return [value + by for value in base]


def test_methods_are_ahead_where_the_interval_excludes_zero_and_the_difference_can_be_seen():
    noisy = [5.0, -5.0, 5.1, -4.9]
    toys = board({"a": (add(0.1), add(-0.1)), "b": (STEADY, STEADY), "c": (noisy, add(1e-5)), "d": ([math.nan] * 4, STEADY)})
    outcomes = toys.outcomes()
    assert outcomes["a", "b"] == [1, 1] and outcomes["b", "a"] == [-1, -1]
    assert outcomes["b", "c"] == [0, 0]  # by chance; by less than is shown
    assert outcomes["b", "d"] == [1, 0] and len(outcomes) == 12
    assert board({"a": ([1], [1])}).outcomes() == {}


def boards(**rows):
    """Boards of one metric that counts, by name: methods by how good they are, and others by why they are left out."""
    made = {}
    for name, methods in rows.items():
        scored = {method: (add(worth), STEADY) for method, worth in methods.items() if not isinstance(worth, str)}
        left_out = {method: why for method, why in methods.items() if isinstance(why, str)}
        toys = board(scored)
        made[name] = replace(
            toys, name=name, samples=4, left_out=left_out, metrics={**toys.metrics, "DEL": Column("lower", ranked=False)}
        )
    return Leaderboard(made)


def test_two_methods_are_compared_where_both_stand():
    both = boards(one={"a": 3, "b": 2, "c": 1}, two={"a": 1, "b": 2}, three={"b": 3, "c": 2, "a": LACKS + "pictures"})
    # a beats b once of twice and c once of once; b beats a once of twice and c always
    assert both.records == {"a": Record(0.75, 0.0, 0.25), "b": Record(0.75, 0.0, 0.25), "c": Record(0.0, 0.0, 1.0)}


def test_a_method_on_one_of_three_data_sets_is_not_ranked_before_those_on_all():
    every = {"a": 2, "b": 1}
    lucky = boards(one={**every, "lucky": 9}, two=every, three={**every, "pictures only": 5})
    assert lucky.ranked == ["a", "b"] and list(lucky.records) == ["a", "b"] and set(lucky.trade_off()) == set()
    page = render_pages(lucky, {})[""]
    first, _, rest = page.partition("## By data set")
    assert "| lucky |" not in first and "|  | lucky | – | – | **1** | – | – |" in rest
    applies = {"lucky": LACKS + "pictures"}
    assert "lucky" in boards(one={**every, "lucky": 9}, two={**every, **applies}, three={**every, **applies}).ranked
    assert "lucky" not in boards(one={**every, "lucky": 9}, two={**every, "lucky": "failed: it broke"}).ranked


def test_records_and_places_are_those_of_the_scores_whatever_the_order_of_rows_and_boards():
    every = {"one": {"a": 3, "b": 2, "c": 2}, "two": {"c": 5, "b": 4, "a": 1}}
    turned = {name: dict(reversed(rows.items())) for name, rows in reversed(every.items())}
    assert boards(**every).records == boards(**turned).records
    assert sum(one.ahead for one in boards(**every).records.values()) == pytest.approx(
        sum(one.behind for one in boards(**every).records.values())
    )
    assert boards(one={"alone": 1}).records == {"alone": Record(0.0, 1.0, 0.0)} and Leaderboard().records == {}


def test_the_first_table_fits_a_screen_and_has_the_best_of_ig2_and_random():
    others = [label for label in ROSTER if label != "Random" and not label.startswith("IG²")]
    labels = [*others, "IG² (left, as published)", "IG² (blended)", "Random", "mine"]  # from the best on
    many = {label: float(-i) for i, label in enumerate(labels)}
    both = boards(pets=many, wafer=many)
    rows = render_overview(both, SHORT).splitlines()[2:]
    assert [row.split(" | ")[1] for row in rows] == [*others[:SHORT], "IG² (left, as published)", "Random", "mine"]
    assert rows[0].startswith(f"| 1 | {others[0]} | 100 | 0 | **1** | **1** |")
    assert len(render_overview(both).splitlines()) == 2 + len(labels)
    pages = render_pages(both, {}, "a.png", "The end.")
    assert set(pages) == {"", "pets", "wafer"} and pages[""].endswith("The end.\n")
    assert "(leaderboard/pets.md)" in pages[""] and "added with `--own`: mine." in pages[""]
    words = pages[""].split("\n\n")[1]
    assert (
        words.count(". ") == 1
        and f"**{others[0]}**, on 2 of 2 data sets, is ahead in 100 %" in words
        and "*IG² (left, as published)* is number" in words
    )
    assert ":::" not in pages[""] and render_pages(boards(**dict.fromkeys("abcde", many)), {})[""].count("} wide") == 2
    assert pages["pets"].count("## Compared with") == 2 and "(../leaderboard.md)" in pages["pets"]


def test_data_sets_with_the_same_leader_are_named_together():
    same, other = {"IG": 2, "Gradient": 1}, {"IG": 1, "Gradient": 2}
    page = render_pages(boards(a=same, b=same, c=other), {})[""]
    assert "first are *IG* on a and b; *Gradient* on c." in page


def test_noise_is_not_worth_its_cost():
    costs = {name: {"forwards": one, "gradients": one, "seconds": 1.0} for name, one in (("Random", 1.0), ("IG", 50.0))}
    both = Leaderboard({"toy": board({"Random": ([1, 1], [2, 2]), "IG": ([2, 2], [1, 1])}, costs=costs)})
    assert find_front(both.trade_off()) == ["Random", "IG"] and find_worthwhile(both) == ["IG"]


def test_the_work_counts_a_forward_pass_as_a_third_of_a_gradient():
    costs = {
        "a": {"forwards": 6.0, "gradients": 6.0, "seconds": 1.0},
        "b": {"forwards": 30.0, "gradients": 0.0, "seconds": 1.0},
    }
    toys = board({"a": ([1], [1]), "b": ([2], [2])}, costs=costs)
    assert [one.work for one in toys.standings] == [6, 10] and toys.cost_ranks() == {"a": 1, "b": 2}


def test_each_method_is_reported_at_the_scale_chosen_on_the_validation_split():
    test = run(Maps(scales=(1.0, 2.5)))
    # validation prefers the raw maps of one method and the most blurred of the other
    rows = []
    for row in test.rows:
        order = 2.0 * ("blurred" in row.method) + ("2.5" in row.method)
        worth = -order if row.method.startswith("Gradient") else order
        rows.append(replace(row, mean=worth if row.better == "higher" else -worth))
    maps = Board.from_tables("maps", test, replace(test, rows=tuple(rows)))
    assert {one.method: one.scale for one in maps.standings} == {"Gradient": 0.0, "IG": 2.5} and maps.scales == (1.0, 2.5)
    one = maps.standing("IG")
    assert one.scaled["peak"] == pytest.approx(test.row("IG, blurred by 2.5 px", "peak").values, rel=1e-3)
    assert one.raw["peak"] == pytest.approx(test.row("IG", "peak").values, rel=1e-3) and one.cost["seconds"] == 1.0


# -- runs and files ----------------------------------------------------------------------------------------------------


def test_a_wrong_method_ranks_last():
    units = run_leaderboard(["xai-units"], ["random", "gradient", "ig", "deepshap"], own={"wrong": wrong}, **QUICK)
    assert list(units.boards["xai-units"].mean_ranks())[-1] == "wrong"
    assert units.boards["xai-units"].difference("wrong", "IG", "linear").high < 0


CALLS = []  # not in a closure: what a function closes over is part of it, and another one is scored again


def stops(model, x, target=None, references=None, *, seed=0):
    CALLS.append(1)
    if len(CALLS) == 3:
        raise KeyboardInterrupt
    return x * 2


def test_the_test_split_scores_raw_maps_and_the_scale_chosen(tmp_path):
    scores = run_leaderboard(["xai-tris"], ["gradient", "random"], out=tmp_path, quick=True, device="cpu").boards["xai-tris"]
    lines = {split: next(tmp_path.glob(f"{split}/*.jsonl")).read_text().splitlines() for split in SPLITS}
    rows = {split: {json.loads(line)["method"] for line in each} - {None} for split, each in lines.items()}
    chosen = {f"{one.method}, blurred by {one.scale:g} px" for one in scores.standings if one.scale}
    assert chosen  # a gradient is better off blurred
    assert rows["tables"] == {"Gradient", "Random"} | chosen
    assert rows["tables/validation"] == {"Gradient", "Random"} | {
        f"{method}, blurred by {sigma} px" for method in ("Gradient", "Random") for sigma in (1, 2, 4)
    }
    assert scores.scales == (1.0, 2.0, 4.0)
    order = [json.loads(line)["method"] for line in lines["tables"]]
    assert all(order[order.index(row) - 1] == row.partition(",")[0] for row in chosen)  # so that it is computed once


def test_a_run_that_was_stopped_ends_in_the_same_table(tmp_path):
    CALLS.clear()

    def again():
        return run_leaderboard(["xai-units"], ["ig"], own={"mine": stops}, out=tmp_path, **QUICK)

    with pytest.raises(KeyboardInterrupt):
        again()
    resumed = again()
    assert len(CALLS) == 8 + 1  # each of the eight parts once, and the one that was stopped twice
    whole = run_leaderboard(["xai-units"], ["ig"], own={"mine": stops}, **QUICK)
    for one, other in zip(resumed.boards["xai-units"].standings, whole.boards["xai-units"].standings, strict=True):
        assert (one.method, one.scaled) == (other.method, other.scaled)
    count = len(CALLS)
    assert again().to_json() == resumed.to_json() and len(CALLS) == count


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows(Suite):
    """Samples in an order, two in a part; a method scores the number of the sample, and what it is blurred by."""

    about = name = title = "rows"
    samples: int = 4
    skip: int = field(default=0, repr=False)
    done: ClassVar[Counter] = Counter()

    def parts(self):
        return [f"rows {first}" for first in range(self.skip, self.samples, 2)]

    def methods(self):
        return {"IG": ig2.IntegratedGradients(), "Gradient": ig2.Gradient()}

    def metrics(self):
        return {"ADD": Column("higher"), "forwards": Column("lower", ranked=False)}

    def describe_data(self):
        return "numbers"

    def identity(self):
        return None

    def skip_samples(self, count):
        return replace(self, skip=count) if count < self.samples else None

    def prepare(self, part):
        return int(part.split()[1])

    def score(self, part, first, method):
        sigma = method.sigma if isinstance(method, AtScale) else 0.0
        raw = method.method if isinstance(method, AtScale) else method
        self.done[part, type(raw).__name__] += 1
        # the validation split, of two samples, prefers 2 px
        return {"ADD": [first + i + sigma / 10 for i in range(2)], "forwards": [float(first)] * 2}


@pytest.fixture
def rows(monkeypatch, tmp_path):
    """Runs the leaderboard of `Rows`, and returns its board."""
    contest = leaderboard.Contest("rows", "rows:Rows", (1.0, 2.0), samples=6)
    monkeypatch.setattr(leaderboard, "CONTESTS", {"rows": contest})
    monkeypatch.setattr(leaderboard, "VALIDATION", 2)
    monkeypatch.setattr(
        leaderboard, "find_suite", lambda name, options: Rows(samples=options.samples or 2, scales=options.scales)
    )
    Rows.done.clear()

    def score(samples, methods=None, own=None, folder="a"):
        return run_leaderboard(["rows"], methods, own=own, samples=samples, device="cpu", out=tmp_path / folder).boards["rows"]

    score.folder = tmp_path
    return score


def test_a_board_is_extended_by_further_samples(rows):
    few, whole = rows(4, ["ig"]), rows(6, ["ig", "gradient"], folder="b")
    shutil.rmtree(rows.folder / "a" / "tables")  # what is in the board is enough
    Rows.done.clear()
    extended = rows(6, ["ig", "gradient"])
    assert few.samples == 4 and extended.samples == 6 == extended.settings["samples"]
    assert [one.scale for one in extended.standings] == [2.0, 2.0]
    for one, other in zip(extended.standings, whole.standings, strict=True):
        assert (one.method, one.raw, one.scaled, one.cost) == (other.method, other.raw, other.scaled, other.cost)
    assert {part for part, method in Rows.done if method == "IntegratedGradients"} == {"rows 4"}
    assert {part for part, method in Rows.done if method == "Gradient"} == {"rows 0", "rows 2", "rows 4"}
    assert Leaderboard.load(rows.folder / "a" / "leaderboard.json").boards["rows"].samples == 6


@pytest.mark.parametrize(("changed", "forwards"), [({}, 2.0), ({"device": "another"}, 4.0), ({"code": "new"}, 4.0)], ids=str)
def test_costs_are_averaged_over_one_machine_and_one_state_of_the_code(rows, monkeypatch, changed, forwards):
    rows(4, ["ig"])  # two samples of 0 forward passes, and two of 2; then two of 4
    environment = runner.describe_environment("cpu")
    monkeypatch.setattr(runner, "describe_environment", lambda device: {**environment, **changed})
    assert rows(6, ["ig"]).standings[0].cost["forwards"] == forwards


def test_rows_that_would_stay_behind_are_named_before_anything_is_scored(rows):
    rows(4, ["ig", "gradient"])
    Rows.done.clear()
    refuses(ChoiceError, "Gradient", lambda: rows(6, ["ig"]))
    assert not Rows.done
    assert rows(4, ["ig"]).samples == 4


@pytest.mark.parametrize(("stored", "has"), [(None, 2), (4, 4), (8, 8)])  # the suite's own number, fewer and more than asked
def test_a_row_that_is_added_has_the_samples_of_those_stored(rows, stored, has):
    rows(stored, ["ig"])
    both = rows(None, ["gradient"])
    assert both.samples == has and [one.method for one in both.standings] == ["IG", "Gradient"]


def test_a_board_keeps_its_samples_where_they_are_more_than_the_default(rows):
    rows(8, ["ig"])
    assert rows(None, ["ig", "gradient"]).samples == 8


def test_a_row_that_fails_on_further_samples_is_not_lost(rows, monkeypatch):
    few, score = rows(4, ["ig", "gradient"]), Rows.score

    def fail(self, part, first, method):
        if "IntegratedGradients" in repr(method):
            raise RuntimeError("out of memory")
        return score(self, part, first, method)

    monkeypatch.setattr(Rows, "score", fail)
    kept = rows(6, ["ig", "gradient"])
    assert kept.samples == 4 and [one.raw for one in kept.standings] == [one.raw for one in few.standings]
    monkeypatch.setattr(Rows, "score", score)
    assert rows(6, ["ig", "gradient"]).samples == 6


def test_fewer_samples_than_are_stored_are_refused_before_anything_is_scored(rows):
    rows(6, ["ig"])
    Rows.done.clear()
    refuses(ChoiceError, "rows of 6 samples", lambda: rows(4, ["gradient"]))
    assert not Rows.done


def test_data_that_a_suite_makes_are_scored_again_with_more_samples(tmp_path):
    def score(samples, methods):
        return run_leaderboard(["xai-units"], methods, samples=samples, device="cpu", out=tmp_path).boards["xai-units"]

    few = score(2, ["gradient", "random"])
    refuses(ChoiceError, "Random", lambda: score(8, ["gradient"]))
    more = score(8, ["gradient", "random"])
    assert (few.samples, more.samples) == (16, 64) and len(more.standings) == 2
    refuses(ChoiceError, "rows of 8 samples", lambda: score(2, ["gradient"]))


def test_a_board_of_other_data_is_not_extended(rows, monkeypatch):
    rows(4, ["ig"])
    monkeypatch.setattr(Rows, "describe_data", lambda self: "other numbers")
    refuses(InputError, "other data", lambda: rows(6, ["ig"]))


def test_a_method_of_ones_own_is_scored_anew_on_all_samples(rows):
    rows(4, [], own={"mine": ig2.Gradient()})
    assert rows(6, ["ig"], own={"mine": ig2.InputXGradient()}).standing("mine").scaled["ADD"][:2] == (0.2, 1.2)
    assert {part for part, method in Rows.done if method == "InputXGradient"} == {"rows 0", "rows 2", "rows 4"}


def test_the_file_is_read_back_and_checked(tmp_path):
    path = tmp_path / "leaderboard.json"
    toys = board({"a": ([1.25, 2, math.nan], [5, 5, 5]), "b": ([2, 2, 2], [4, 4, 4])})
    first = Leaderboard({"toy": toys}, {"pets": "missing"})
    path.write_text(first.to_json(), encoding="utf-8")
    assert Leaderboard.load(path).to_json() == first.to_json() and '"format": 1,' in path.read_text()
    assert Leaderboard.load(path).boards["toy"].mean_ranks() == toys.mean_ranks()
    content = json.loads(path.read_text())
    for key, change in {
        "format": lambda c: c.update(format=2),
        "values": lambda c: c["boards"]["toy"]["standings"][0]["raw"].update(ADD=[1]),
        "same method": lambda c: c["boards"]["toy"]["standings"].append(c["boards"]["toy"]["standings"][0]),
        "scale": lambda c: c["boards"]["toy"]["standings"][0].update(scale=-1),
        "holds no leaderboard": lambda c: c["boards"]["toy"].pop("metrics"),
    }.items():
        changed = json.loads(json.dumps(content))
        change(changed)
        path.write_text(json.dumps(changed), encoding="utf-8")
        refuses(InputError, key, lambda: Leaderboard.load(path))


def test_rows_of_the_same_samples_are_added_and_of_others_refused():
    first = Leaderboard({"toy": board({"a": ([1], [1]), "b": ([2], [2])})}, {"pets": "missing"})
    second = Leaderboard({"toy": board({"b": ([9], [9]), "c": ([3], [3])})})
    both = first.add(second)
    assert {one.method: one.scaled["ADD"] for one in both.boards["toy"].standings} == {"a": (1,), "b": (9,), "c": (3,)}
    assert both.skipped == {"pets": "missing"}
    other = Leaderboard({"toy": replace(second.boards["toy"], data="other toys")})
    refuses(InputError, "other samples", lambda: first.add(other))
    assert first.add(other, fresh=True).boards == other.boards


def test_data_that_are_missing_are_named_and_skipped(tmp_path):
    (tmp_path / "wafer").mkdir()  # empty
    units = run_leaderboard(["pets", "wafer", "xai-units"], ["ig"], data=tmp_path, **QUICK)
    assert list(units.boards) == ["xai-units"] and set(units.skipped) == {"pets", "wafer"}
    assert str(tmp_path / "pets") in units.skipped["pets"] and "wm811k.npz" in units.skipped["wafer"]
    assert "Not measured: pets, " in render_pages(units, {})[""]
    refuses(ChoiceError, "no data set", lambda: run_leaderboard(["nowhere"]))
    refuses(ChoiceError, "no method", lambda: run_leaderboard(["xai-units"], ["nothing"]))


def test_a_method_that_does_not_apply_is_left_out_with_the_reason():
    units = run_leaderboard(["xai-units"], ["ig", "grad-cam"], **QUICK).boards["xai-units"]
    assert [one.method for one in units.standings] == ["IG"] and "pictures" in units.left_out["Grad-CAM"]
    assert "- Grad-CAM: not without pictures." in render_pages(Leaderboard({"xai-units": units}), {})["xai-units"]
    assert "pictures" in run_leaderboard(["xai-units"], ["grad-cam"], **QUICK).skipped["xai-units"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no attack crossed")
def test_every_method_runs_and_counts_its_cost():
    x, references = data(2, 2, 8, 8, low=0), data(2, 3, 2, 8, 8, low=0, seed=1)
    small = Conditions(steps=2, references=3, straight=3, guided=3, coalitions=40, groups=ig2.Grid(4, 4))
    model = ig2.wrap(relu_cnn(), bounds=(0, 1))
    for label, method in build_roster(small).items():
        attribution = method(model, x, 1, references, seed=0)
        assert attribution.values.shape == x.shape and attribution.values.isfinite().all(), label
        assert attribution.cost.forwards > 0 and (attribution.cost.gradients > 0) == (label not in WITHOUT_GRADIENTS), label


def test_every_data_set_of_the_paper_is_in_the_contests():
    assert set(leaderboard.CONTESTS) >= {"pets", "imagenet-val", "celeba", "wafer", "trec", "mnist", "xai-tris", "xai-units"}


# -- factors -----------------------------------------------------------------------------------------------------------

LEVELS = {"path": ["straight", "GradPath"], "rule": ["left", "direct", "secant"]}


def test_effects_are_those_the_scores_were_made_of():
    generator = np.random.default_rng(1)
    truth = np.array([[0.0, 0.3, 0.0], [0.2, 0.5, 0.5]])  # 0.2 of the path, 0.3 of direct, and 0.3 of GradPath × secant alone
    scores = truth + generator.normal(0, 1, (50, 1, 1)) + generator.normal(0, 0.01, (50, 2, 3))
    shares, levels, largest = analyse(scores, LEVELS)
    assert [one.what for one in levels] == ["path: GradPath", "rule: direct", "rule: secant"]
    assert [one.mean for one in levels] == pytest.approx([0.3, 0.3, 0.15], abs=0.01)
    assert all(one.low <= one.mean <= one.high and one.high - one.low < 0.05 for one in levels)  # samples are paired
    centred = truth - truth.mean()
    a, b = centred.mean(axis=1, keepdims=True), centred.mean(axis=0, keepdims=True)
    parts = [3 * (a**2).sum(), 2 * (b**2).sum(), ((centred - a - b) ** 2).sum()]
    assert [one.mean for one in shares] == pytest.approx(np.array(parts) / (centred**2).sum(), abs=0.02)
    assert sum(one.mean for one in shares) == pytest.approx(1, abs=1e-4)
    assert largest[0].what in ("GradPath × secant", "straight × secant") and abs(largest[0].mean) == pytest.approx(
        0.1, abs=0.01
    )


def test_lower_is_better_turns_every_difference():
    scores = np.random.default_rng(0).normal(size=(6, 2, 3))
    for one, other in zip(analyse(scores, LEVELS)[1], analyse(scores, LEVELS, "lower")[1], strict=True):
        assert one.mean == -other.mean and one.low == pytest.approx(-other.high, abs=1e-5)


def test_a_table_of_combinations_is_analysed_by_its_labels(tmp_path):
    names = [
        f"{path} × {rule} × {kind}" for path in ("straight", "GradPath") for rule in ("left", "direct") for kind in ("a", "b")
    ]
    methods = {name: ig2.Smoothed(ig2.Gradient(), 1.0 * ("direct" in name)) for name in names}
    table = run(replace(Maps(), scales=(1.0,)), [], own=methods)
    table = replace(table, metrics={"peak": table.metrics["peak"]})
    effects = analyse_table(table)
    shares = {one.what: one.mean for one in effects.shares["peak"]}
    assert shares["path"] == shares["references"] == 0 and shares["rule"] > 0.1 and shares["scale"] > 0.1
    better = {one.what: one.mean for one in effects.levels["peak"]}
    assert better["rule: direct"] > 0 and better["scale: 1 px"] > 0 and better["path: GradPath"] == 0  # a lower peak is better
    (tmp_path / "f.json").write_text(effects.to_json(), encoding="utf-8")
    assert Effects.load(tmp_path / "f.json") == effects and "rule: direct" in effects.to_markdown()
    missing = replace(table, methods={name: about for name, about in table.methods.items() if name != names[0]})
    refuses(InputError, "lacks", lambda: analyse_table(missing))


def test_factors_are_studied_at_the_two_widest_scales_of_each_data_set(monkeypatch, tmp_path):
    for name in ("pets", "wafer"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(leaderboard, "find_suite", lambda name, options: options)
    monkeypatch.setattr(leaderboard, "run", lambda suite, **_: suite)
    monkeypatch.setattr(leaderboard, "analyse_table", lambda table: table)
    studied = leaderboard.run_factors(["pets", "wafer"], data=tmp_path, device="cpu")
    assert {name: options.scales for name, options in studied.items()} == {"pets": (4.0, 8.0), "wafer": (2.0, 4.0)}


def test_the_first_page_says_what_the_parts_contribute():
    def effect(what: str, mean: float, width: float = 0.01) -> Effect:
        return Effect(mean, mean - width, mean + width, what)

    def made(path: float, blur: float, pixels: int = 8) -> Effects:
        shares = [effect(name, share) for name, share in zip(NAMES, (0.4, 0.3, 0.0, 0.2), strict=True)]
        levels = [effect("path: GradPath", path), effect("rule: direct", 0.5), effect(f"scale: {pixels} px", blur)]
        pairs = [effect("GradPath × direct", 0.1)]
        return Effects("Cats", "cats", 9, False, *({"ADD": each, "DEL": each} for each in (shares, levels, pairs)))

    page = render_pages(boards(a={"IG": 0.1}), {"cats": made(0.1, -0.2, 4), "dogs": made(-0.3, 0.001)})[""]
    assert "explains 40 to 40 % on cats and 40 to 40 % on dogs" in page and "the references 0 to 0 % and 0 to 0 %" in page
    told = "on cats ADD +0.100 and DEL +0.100; on dogs ADD -0.300 and DEL -0.300."
    assert f"GradPath in place of the straight line brings, positive where better, {told}" in page
    told = "on cats (4 px) ADD -0.200 and DEL -0.200."  # on dogs it is not clear
    assert f"The widest blur brings, positive where better, {told}" in page
    quick = replace(made(0.1, 0.1), quick=True)
    assert "made of" not in render_pages(boards(a={"IG": 0.1}), {"cats": quick})[""]
