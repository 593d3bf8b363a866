"""The leaderboard: every method of the roster on every data set, at the scale chosen for it, in a run that can be resumed."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from ig2._utils.devices import find_device
from ig2._utils.files import make_subfolder, refuse_link, write_file
from ig2._utils.suggestions import ChoiceError, suggest
from ig2.errors import InputError, describe
from ig2.methods import Grid
from ig2_bench.board.factors import FACTORS, Effects, analyse_table
from ig2_bench.board.rendering import FOLDER, WORK, find_worthwhile, render_pages
from ig2_bench.board.roster import ROSTER, Conditions, build_roster
from ig2_bench.board.standings import LACKS, Board, Leaderboard
from ig2_bench.runner import Step, run, select_methods
from ig2_bench.scales import choose_scales
from ig2_bench.suite import BenchOptions, MethodLike, Split, Suite, find_suite
from ig2_bench.suites.xai_tris import XAITris
from ig2_bench.table import Failure, Table

NAME = "leaderboard"
FILE = f"{NAME}.json"
TABLES: dict[Split, str] = {"test": "tables", "validation": "tables/validation"}  # folders of scores
TEST, VALIDATION, QUICK = 100, 40, 3  # samples of a data set
LARGE, SMALL = (2.0, 4.0, 8.0), (1.0, 2.0, 4.0)  # pixels that maps are blurred by, on photos and on small pictures
PAPER = "ig2_bench.suites"  # by its modules: they are then found in a source tree as well as installed


@dataclass(frozen=True)
class Contest:
    """A data set of the leaderboard."""

    name: str
    """The name of the data set and of its folder."""
    suite: str
    """The suite, as `find_suite` takes it."""
    scales: tuple[float, ...] = ()
    embedded: bool = True
    """Whether the suite has its own data if no folder is given."""
    samples: int = TEST
    factors: bool = False
    """Whether path × rule × references × scale are studied on it."""

    @property
    def makes_data(self) -> bool:
        """Whether the suite generates its data, without a folder."""
        return ":" not in self.suite


CONTESTS = {
    contest.name: contest
    for contest in (
        Contest("pets", f"{PAPER}.imagenet:ImageNet", LARGE, embedded=False, factors=True),
        Contest("imagenet-val", f"{PAPER}.imagenet:ImageNet", LARGE),
        Contest("celeba", f"{PAPER}.celeba:CelebA", LARGE),
        Contest("wafer", f"{PAPER}.wafer:Wafer", SMALL, samples=120, factors=True),  # of 120 a hundred have something to mark
        Contest("trec", f"{PAPER}.trec:TREC"),
        Contest("mnist", f"{PAPER}.mnist:MNIST", SMALL),
        Contest("xai-tris", "xai-tris", SMALL, samples=30),
        Contest("xai-units", "xai-units"),
    )
}


def run_leaderboard(
    names: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    own: Mapping[str, MethodLike] | None = None,
    data: str | PathLike[str] | None = None,
    samples: int | None = None,
    quick: bool = False,
    seed: int = 0,
    device: str = "auto",
    out: str | PathLike[str] | None = None,
    fresh: bool = False,
    progress: Callable[[Step], object] | bool = False,
) -> Leaderboard:
    """Score every method of `ig2_bench.board.roster.ROSTER` on every data set.

    The scale of each method is chosen on the validation split, by the lowest mean rank over the metrics among its own scales,
    and reported on the test split beside the raw maps. With a folder, every score is stored as soon as it is computed, and the
    boards are added to the leaderboard.json in it. If that file has fewer samples of a data set than requested, its rows keep
    their scales and only the missing samples are scored; for data that a suite generates, all samples are scored again. If a
    stored row fails on the new samples, the board stays as it was.

    Args:
        names: data sets of `CONTESTS`; by default all.
        methods: methods of the roster, by their labels or the first words of them; by default all.
        own: your own methods by label, called as `method(model, x, target, references, seed=...)`.
        data: a folder that holds the data sets by name; missing ones are listed in `skipped`. By default the suites' own data.
        samples: the number of samples to explain of each data set; by default 100, or that of stored rows whose methods are
            not chosen. Scales are chosen on the same number, but at most 40.
        quick: whether to do a small run, to test that everything works.
        seed: the random seed.
        device: the device of the networks.
        out: a folder for leaderboard.json and the scores.
        fresh: whether to compute stored scores again.
        progress: True for progress bars, or a function called with a `Step`.

    Returns:
        The boards of this run, added to those already in the folder.

    Raises:
        ChoiceError: for a data set or method that does not exist.
        InputError: if the folder has rows for other samples of the same data set.
    """
    folder = _find_folder(out)
    own = own or {}
    chosen = _choose_contests(names)
    everything = {label: build(Conditions()) for label, build in ROSTER.items()}
    labels = list(select_methods(everything, methods, own))
    board, failures = Leaderboard(), list[Failure]()
    if folder is not None and (folder / FILE).exists():
        board = Leaderboard.load(folder / FILE)
    for contest in chosen:
        place = _find_data(contest, data)
        if isinstance(place, str):
            board = board.add(Leaderboard(skipped={contest.name: place}))
            continue
        stored = None if fresh else board.boards.get(contest.name)
        count = samples
        if stored is not None and not quick:
            count = _choose_samples(stored, contest, samples, {*labels, *own})
        options = {"samples": count, "quick": quick, "seed": seed, "device": find_device(device)}
        try:
            further, scored = _score(contest, place, options, labels, own, stored, folder, fresh, progress, failures)
        except InputError as error:
            board = board.add(Leaderboard(skipped={contest.name: str(error)}))
            continue
        if stored is not None and further is not None:
            grown = stored.extend(further)
            rows = {standing.method for standing in (*grown.standings, *(scored.standings if scored is not None else ()))}
            if any(standing.method not in rows for standing in stored.standings):
                continue  # one failed: what is stored of it is not given up, and the same command tries again
            scored = grown if scored is None else grown.add(scored)
        board = board.add(Leaderboard({} if scored is None else {contest.name: scored}), fresh)
        if folder is not None:
            write_file(folder / FILE, board.to_json().encode())
    return replace(board, failures=tuple(failures))


def run_factors(
    names: Sequence[str] | None = None,
    *,
    data: str | PathLike[str] | None = None,
    samples: int | None = None,
    quick: bool = False,
    seed: int = 0,
    device: str = "auto",
    out: str | PathLike[str] | None = None,
    fresh: bool = False,
    progress: Callable[[Step], object] | bool = False,
) -> dict[str, Effects]:
    """Score every combination of path, rule, references and scale, and separate their contributions.

    The scales are the two widest of the data set, beside raw maps. The arguments are those of `run_leaderboard`.

    Returns:
        The effects by data set, for the data sets that are available.
    """
    effects, folder = {}, _find_folder(out)
    for contest in _choose_contests(names or [contest.name for contest in CONTESTS.values() if contest.factors]):
        place = _find_data(contest, data)
        if not contest.factors or isinstance(place, str):
            continue
        common: dict[str, Any] = {"quick": quick, "seed": seed, "device": find_device(device)}
        count = samples or (None if quick or place is None else contest.samples)
        options = BenchOptions(data=place, samples=count, study="factors", scales=contest.scales[-2:], **common)
        tables = None if folder is None else folder / TABLES["test"]
        table = run(find_suite(contest.suite, options), out=tables, fresh=fresh, progress=progress)
        effects[contest.name] = analyse_table(table)
        if folder is not None:
            write_file(folder / f"{FACTORS}-{contest.name}.json", effects[contest.name].to_json().encode())
    return effects


def _find_folder(out: str | PathLike[str] | None) -> Path | None:
    """Return the folder of a board, whose folders of scores are no links to somebody else's."""
    if out is None:
        return None
    for name in TABLES.values():
        refuse_link(Path(out) / name)
    return Path(out)


def load_effects(folder: str | PathLike[str]) -> dict[str, Effects]:
    """Return the effects that `run_factors` stored in a folder, by data set."""
    paths = {name: Path(folder) / f"{FACTORS}-{name}.json" for name in CONTESTS}
    return {name: Effects.load(path) for name, path in paths.items() if path.exists()}


def write_pages(
    leaderboard: Leaderboard, effects: Mapping[str, Effects], folder: str | PathLike[str], ending: str = ""
) -> list[Path]:
    """Write leaderboard.md, the picture of quality against cost beside it, and a page for each data set in leaderboard/.

    Args:
        leaderboard: the standings.
        effects: the effects of the factors, by data set.
        folder: the folder for the pages.
        ending: text to end the first page with.

    Returns:
        The pages, leaderboard.md first.
    """
    from ig2_bench.board.trade_off import trade_off  # matplotlib is an extra

    folder, points = Path(folder), leaderboard.trade_off()
    picture = folder / f"{NAME}.png"
    folder.mkdir(parents=True, exist_ok=True)
    make_subfolder(folder / FOLDER)
    if points:
        percent = {label: (cost, 100 * won) for label, (cost, won) in points.items()}
        figure = trade_off(
            percent, find_worthwhile(leaderboard), cost=WORK, quality="comparisons won, %; a level one counts half"
        )
        file = io.BytesIO()
        figure.savefig(file, dpi=110, metadata={"Software": None})
        write_file(picture, file.getvalue())
    pages = {
        folder / FOLDER / f"{name}.md" if name else folder / f"{NAME}.md": text
        for name, text in render_pages(leaderboard, effects, picture.name if points else None, ending).items()
    }
    for page, text in pages.items():
        write_file(page, text.encode())
    return list(pages)


def _choose_contests(names: Sequence[str] | None) -> list[Contest]:
    for name in names or ():
        if name not in CONTESTS:
            raise ChoiceError(f"the leaderboard has no data set {describe(name)}{suggest(name, [*CONTESTS, FACTORS])}")
    return [contest for contest in CONTESTS.values() if names is None or contest.name in names]


def _find_data(contest: Contest, root: str | PathLike[str] | None) -> Path | str | None:
    """Return the folder of the data, None for the suite's own data, or the reason why there is neither."""
    if contest.makes_data:
        return None
    if root is None:
        return None if contest.embedded else "needs a folder of data (--data)"
    folder = Path(root) / contest.name
    return folder if folder.is_dir() else f"{folder} is not available"


def _score(
    contest: Contest,
    place: Path | None,
    options: Mapping[str, Any],
    labels: Sequence[str],
    own_methods: Mapping[str, MethodLike],
    stored: Board | None,
    folder: Path | None,
    fresh: bool,
    progress: Callable[[Step], object] | bool,
    failures: list[Failure],
) -> tuple[Board | None, Board | None]:
    """Return a board of the samples that stored rows lack, and one of all samples of the other methods.

    Failures are added to the list.
    """
    suite, roster = _build_suite(contest, place, "test", options)
    left_out = {label: _explain_absence(label) for label in labels if label not in roster and label not in own_methods}
    methods = {label: roster[label] for label in labels if label in roster and label not in own_methods} | dict(own_methods)
    if not methods:
        raise InputError(f"none of the methods chosen applies: {'; '.join(f'{a}: {b}' for a, b in left_out.items())}")

    def score(suite: Suite, methods: Mapping[str, MethodLike], split: Split = "test") -> Table:
        out = None if folder is None else folder / TABLES[split]
        table = run(suite, [], own=methods, out=out, fresh=fresh, progress=progress)
        failures.extend(table.failures)
        return table

    further: Board | None = None
    if stored is not None and (rest := suite.skip_samples(stored.samples)) is not None:
        chosen = {
            standing.method: standing.scale
            for standing in stored.standings
            if standing.method in methods and standing.method not in own_methods
        }
        if chosen:
            later = score(replace(rest, scales=chosen), {label: methods[label] for label in chosen})
            further = Board.from_tables(contest.name, later, None, left_out, chosen=chosen)
        methods = {label: method for label, method in methods.items() if label not in chosen}
        if not methods:
            return further, None
    validation: Table | None = None
    if contest.scales:
        validation = score(_build_suite(contest, place, "validation", options)[0], methods, "validation")
        suite = replace(suite, scales=choose_scales(validation))
    embedded = place is None and not contest.makes_data
    return further, Board.from_tables(contest.name, score(suite, methods), validation, left_out, embedded)


def _choose_samples(stored: Board, contest: Contest, samples: int | None, labels: set[str]) -> int | None:
    """Return the number of samples for new rows to match the stored ones; None for the data set's default.

    Raises:
        ChoiceError: if the requested number does not match, before anything is scored.
    """
    has = int(stored.settings.get("samples", stored.samples))
    behind = [standing.method for standing in stored.standings if standing.method not in labels]
    if samples is None:
        return has if behind or has > contest.samples else None
    if behind and has < samples:
        raise ChoiceError(
            f"{contest.name} has rows of {has} samples that were not chosen, {describe(behind)}, and they would not "
            f"fit beside rows of {samples}: choose them too, or omit samples (--samples)"
        )
    if samples < has:
        raise ChoiceError(
            f"{contest.name} has rows of {has} samples, and rows of {samples} would not fit beside them: omit samples "
            "(--samples), choose another folder, or compute all again with fresh=True (--fresh)"
        )
    return samples


def _explain_absence(label: str) -> str:
    nothing = Conditions(images=False, classes=False)
    return LACKS + " and ".join(nothing.find_lacks(ROSTER[label](nothing)))


def _build_suite(
    contest: Contest, place: Path | None, split: Split, options: Mapping[str, Any]
) -> tuple[Suite, Mapping[str, MethodLike]]:
    """Return the suite with the leaderboard's columns, and its methods."""
    common = {name: options[name] for name in ("quick", "seed", "device")}
    test = options["samples"] or (QUICK if options["quick"] else contest.samples)
    count = test if split == "test" else min(test, VALIDATION)
    if contest.makes_data:
        suite = find_suite(contest.suite, BenchOptions(samples=count, **common))
        # another seed draws other samples, and trains another network on them
        suite = replace(suite, scales=contest.scales, seed=suite.seed + (split == "validation"))
        return suite, build_roster(_describe_conditions(suite))
    # of a suite's own data, as many as it chooses
    samples = None if place is None and not options["samples"] and not options["quick"] else count
    suite = find_suite(
        contest.suite, BenchOptions(data=place, samples=samples, study=NAME, split=split, scales=contest.scales, **common)
    )
    return suite, suite.methods()


def _describe_conditions(suite: Suite) -> Conditions:
    if isinstance(suite, XAITris):
        conditions = Conditions(references=suite.references, groups=Grid(8, 8), coalitions=512, guided=50)
    else:  # a unit has one output, and its truth is against its reference
        conditions = Conditions(images=False, classes=False, one_reference=True, references=1, coalitions=512)
    return replace(conditions, steps=3, straight=3, guided=3, coalitions=200) if suite.quick else conditions
