"""The paper's experiments on the real data, and the pages of the docs that show them.

`python -m ig2_bench.results --data ROOT` makes the tables that are not stored with the present settings, and goes on where it
was stopped; ROOT holds the data sets by name: imagenet-val, imagenet-pool, pets, mnist, trec, wafer, celeba.
`python -m ig2_bench.results --page` writes the pages from the stored tables alone.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import ig2
import ig2_bench
from ig2.errors import IG2Error
from ig2.methods.base import summary
from ig2.table import settings_line
from ig2_bench import Leaderboard, Table
from ig2_bench.board.factors import FACTORS
from ig2_bench.board.leaderboard import FILE, load_effects, write_pages
from ig2_bench.markdown import format_rows, join, shrink
from ig2_bench.suite import BenchOptions, Split, Suite, find_suite
from ig2_bench.suites.celeba import PAPER_ACCURACY
from ig2_bench.table import EACH

STORE = Path("bench/results")
BOARD = Path("bench/leaderboard")
DOCS = Path("docs")
HOW = (
    "How it is made, and how to add a method of your own: [the leaderboard](benchmarks.md#the-leaderboard). On pets, "
    "imagenet-val, celeba, wafer and mnist the rows of HiResCAM, and but for pets those of Grad-CAM and LayerCAM, are of "
    "maps read before the activation, and those of AGI of the logit: as these methods were until they followed their papers."
)
OURS = "IG² ("  # how the rows of IG² begin


@dataclass(frozen=True)
class Run:
    """A table on real data."""

    folder: str
    suite: str
    study: str | None = None
    split: Split = "test"
    samples: int | None = None

    @property
    def name(self) -> str:
        """Of its files: photos of pets have a name of their own."""
        parts = ["pets" if self.folder == "pets" else self.suite, self.study, "choose" if self.split == "validation" else None]
        return "-".join(part for part in parts if part)


def _runs(folder: str, suite: str, *studies: str | None, samples: int | None = None) -> list[Run]:
    return [Run(folder, suite, study, samples=samples) for study in studies]


# Photos first, then in the order of the paper's table. Validation splits are small where gradients are expensive.
RUNS = [
    *_runs("pets", "imagenet", None, "rules"),
    Run("pets", "imagenet", "rules", "validation", 60),
    Run("pets", "imagenet", "steps", "validation", 60),
    *_runs("imagenet-val", "imagenet", None, "distances", "cost"),
    Run("imagenet-val", "imagenet", "references", samples=200),  # half of them with an object that interferes
    *_runs("trec", "trec", None, "rules", "one-by-one", "distances", "layers", "ablation", "cost"),
    Run("trec", "trec", "rules", "validation", 60),
    Run("trec", "trec", "steps", "validation", 60),
    # of 120 maps a hundred have something to mark
    *_runs("wafer", "wafer", None, "rules", "ablation", "distances", "norms", "layers", "cost", samples=120),
    Run("wafer", "wafer", "rules", "validation", 60),
    Run("wafer", "wafer", "steps", "validation", 60),
    *_runs("celeba", "celeba", None, "rules", "label-distance", "distances", "attributes", "cost"),
    Run("celeba", "celeba", "steps", "validation", 50),
    *_runs("mnist", "mnist", None, "rules", "distances", "ablation"),
    Run("mnist", "mnist", "rules", "validation", 40),
    Run("mnist", "mnist", "steps", "validation", 40),
]


def make_tables(runs: list[Run], root: Path, out: Path, device: str, again: bool) -> bool:
    """Make the tables that are not stored.

    Args:
        runs: which tables.
        root: the folder that holds the data sets by name; those that are not available are skipped.
        out: the folder for the tables.
        device: where networks run.
        again: make also the tables that are stored.

    Returns:
        Whether all of them could be made.
    """
    digests: dict[str, str] = {}
    complete = True
    for table_run in runs:
        name, folder = table_run.name, root / table_run.folder
        if not folder.is_dir():
            print(f"{name}: {folder} is not available, skipped", flush=True)
            continue
        began = time.perf_counter()
        try:
            options = BenchOptions(
                data=folder, samples=table_run.samples, study=table_run.study, split=table_run.split, device=device
            )
            suite = find_suite(table_run.suite, options)
            if table_run.folder not in digests:
                digests[table_run.folder] = suite.digest_data()
            if not again and is_stored(suite, out / f"{name}.json", digests[table_run.folder]):
                print(f"{name}: stored", flush=True)
                continue
            table = ig2_bench.run(suite, out=out)
        except IG2Error as error:
            print(f"{name}: {error}", flush=True)
            complete = False
            continue
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
        for failure in table.failures:
            print("  failed:", failure.part, failure.method, failure.said, flush=True)
        complete = complete and not table.failures
    return complete


# -- stored tables -----------------------------------------------------------------------------------------------------


def is_stored(suite: Suite, path: Path, data: str) -> bool:
    """Whether the table is stored, complete, and of this suite's settings and methods and of the data of this digest."""
    if not path.exists():
        return False
    table = Table.load(path)
    methods = {label: summary(method) for label, method in suite.methods().items()}
    stored = (table.settings, table.methods, table.environment.get("data"))
    return not table.failures and stored == (suite.settings(), methods, data)


# -- the pages ---------------------------------------------------------------------------------------------------------

INDEX = "results.md"
# Each page of tables, by its file: its title and the folders of data on it. A page on synthetic tables is written by hand.
PAGES = {
    "photos": ("Photos", ("pets", "imagenet-val")),
    "questions": ("Questions", ("trec",)),
    "wafers": ("Wafer maps", ("wafer",)),
    "faces": ("Faces", ("celeba",)),
    "digits": ("Digits", ("mnist",)),
}
OTHER_PAGES = (
    ("[Synthetic tables](results/synthetic.md)", "methods, training, settings"),
    ("[Which rule](results/rules.md)", "the rules of IG², on all of these"),
)


def render_pages(store: Path) -> dict[str, str]:
    """The pages of the docs by their path: the findings, which rule, and the tables of each data set with their notes."""
    notes = _read_notes(store / "notes.md")
    tables = {run: Table.load(path) for run in RUNS if (path := store / f"{run.name}.json").exists()}
    pages = {INDEX: _render_index(tables, notes), "results/rules.md": _render_rules(tables, notes)}
    for page, (title, folders) in PAGES.items():
        on_page = {run.name: table for run, table in tables.items() if run.folder in folders}
        if on_page:
            pages[f"results/{page}.md"] = _render_data_set(title, on_page, notes)
    if notes:
        raise SystemExit(f"notes.md has notes for tables that are not stored: {', '.join(notes)}")
    return pages


def _render_toctree(pages: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", "", *pages, "```"])


def _render_index(tables: dict[Run, Table], notes: dict[str, str]) -> str:
    """The findings, links to the pages, the methods at a glance, and how the tables were made."""
    links = []
    for page, (title, folders) in PAGES.items():
        studies = {run.study or "methods": None for run in tables if run.folder in folders}
        links.append([f"[{title}](results/{page}.md)", ", ".join(studies)])
    names = ["rules", *PAGES, "synthetic"]
    return join(
        [
            "# Results on real data",
            notes.pop("", "").strip(),
            format_rows(["page", "tables of"], [*links, *OTHER_PAGES]),
            "## At a glance",
            _render_overview(list(tables.values())),
            "## How they were made",
            notes.pop("method", "").strip(),
            _render_toctree([f"results/{name}" for name in names]),
        ]
    )


def _render_rules(tables: dict[Run, Table], notes: dict[str, str]) -> str:
    """Every rule beside the published one."""
    mark = "▲ ahead of `left` by more than two standard errors of the difference, ▼ behind by more, = neither, for each metric."
    stored = list(tables.values())
    return join(
        [
            "# Which rule",
            notes.pop("which-rule", "").strip(),
            mark,
            *("On the validation split:", _compare_rules(stored, "validation")),
            *("On the test split:", _compare_rules(stored, "test")),
        ]
    )


def _render_data_set(title: str, tables: dict[str, Table], notes: dict[str, str]) -> str:
    """Of each table what it shows, then its numbers; data and settings of all at the end."""
    made = ["## Data and settings", "What holds for all pages: [how they were made](../results.md#how-they-were-made)."]
    lines = [f"# {title}"]
    for name, table in tables.items():
        split = " (validation split)" if table.settings["split"] == "validation" else ""
        lines += [f"## {table.title}{split}", notes.pop(name, "").strip(), *_render_numbers(table)]
        made += [f"### {table.title}{split}", *_render_settings(table)]
    return join([*lines, *made])


def _render_numbers(table: Table) -> list[str]:
    """The rows, how to read them, and by how much one is ahead."""
    about, *_ = table.caption()
    lines = [shrink(table.to_markdown().split("\n\n")[1]), about, *(f"{remark}." for remark in table.remarks())]
    if {"rules", "distances"} & set(table.suite.split("-")):
        lines.append(_render_gaps(table, next(iter(table.methods)), reverse=True))
    elif any(label.startswith(OURS) for label in table.methods) and "seconds" not in table.metrics:
        lines.append(_render_gaps(table, default_label(table)))
    return lines


def _render_settings(table: Table) -> list[str]:
    """The data, the network's accuracy and the settings; where methods are compared, what each metric is."""
    facts = tuple(fact for fact in table.facts if not fact.name.startswith(EACH))
    lines = replace(table, facts=facts).caption()[1:]
    if "-" not in table.suite:
        lines += [f"{label}: {column.about}." for label, column in table.metrics.items() if column.about]
    lines.append(f"Settings: `{settings_line(table.settings)}`. Made on: {table.environment['device']}.")
    if "-" not in table.suite and len(facts) < len(table.facts):
        lines.append(_render_accuracies(table))
    return lines


def _read_notes(path: Path) -> dict[str, str]:
    """The notes on each table, by its name; the findings under ''."""
    if not path.exists():
        return {}
    parts = re.split(r"^<!-- (\S+) -->$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def default_label(table: Table) -> str:
    """The row of IG² with the library's default rule."""
    return next(label for label in table.methods if label.startswith(f"{OURS}{ig2.IG2().rule}"))


def _render_accuracies(table: Table) -> str:
    """How often the network is right, of each class or label; beside the paper's where it has some."""
    facts = {fact.name.removeprefix(EACH): fact.mean for fact in table.facts if fact.name.startswith(EACH)}
    paper = PAPER_ACCURACY if table.suite == "celeba" else {}
    known = {name: [f"{paper[name]:.3f}" if name in paper else "–"] if paper else [] for name in facts}
    lines = [[name, f"{value:.3f}", *known[name]] for name, value in facts.items()]
    return "How often the network is right:\n\n" + format_rows(["", "accuracy", *(["paper"] if paper else [])], lines)


def _render_gaps(table: Table, first: str, reverse: bool = False) -> str:
    """By how much one row is ahead of the others, sample by sample."""
    who = f"each row is ahead of *{first}*" if reverse else f"*{first}* is ahead of the others"
    about = f"How far {who}, sample by sample, with 95 % intervals; bold where that is more than two standard errors:"
    lines = []
    for label in table.methods:
        if label == first:
            continue
        cells = []
        for metric in table.metrics:
            ahead, behind = (label, first) if reverse else (first, label)
            gap = str(table.gap(ahead, behind, metric))
            cells.append(gap if _mark(table, ahead, behind, metric) == "=" else f"**{gap}**")
        lines.append([label, *cells])
    return f"{about}\n\n{format_rows(['row' if reverse else 'than', *table.metrics], lines)}"


def _render_overview(tables: list[Table]) -> str:
    """For each data set and metric: the best other method, and IG² with each rule, ahead or behind by two standard errors."""
    compared = [table for table in tables if "-" not in table.suite]
    rules = list(dict.fromkeys(label for table in compared for label in table.methods if label.startswith(OURS)))
    names = [label.removeprefix(OURS).removesuffix(")").removesuffix(", as published") for label in rules]
    about = "▲ ahead of the best other method by more than two standard errors of the difference, ▼ behind by more, = neither."
    lines = []
    for table in compared:
        others = [label for label in table.methods if not label.startswith(OURS) and label != "Random"]
        for metric, column in table.metrics.items():
            sign = 1 if column.better == "higher" else -1
            scores = {label: sign * table.row(label, metric).mean for label in others}
            rival = max(scores, key=scores.__getitem__)
            cells = [
                f"{table.row(label, metric).mean:.3f} {_mark(table, label, rival, metric)}" if label in table.methods else "–"
                for label in rules
            ]
            best = f"{table.row(rival, metric).mean:.3f}, {rival}"
            lines.append([table.title, table.heading(metric), best, *cells])
    heads = ["data", "metric", "the best of the others", *(f"IG², {name}" for name in names)]
    return f"{about}\n\n{shrink(format_rows(heads, lines))}"


def _compare_rules(tables: list[Table], split: Split) -> str:
    """Every rule beside `left`, on every data set: a sign for each metric."""
    studied = [table for table in tables if (table.settings["study"], table.settings["split"]) == ("rules", split)]
    first = "left, as published"
    heads = [f"{table.title.partition(':')[0]}: {', '.join(_metrics(table))}" for table in studied]
    lines = []
    for rule in dict.fromkeys(label for table in studied for label in table.methods if label != first):
        cells = [
            " ".join(_mark(table, rule, first, metric) for metric in _metrics(table)) if rule in table.methods else "–"
            for table in studied
        ]
        lines.append([rule, *cells])
    return format_rows(["rule", *heads], lines)


def _metrics(table: Table) -> list[str]:
    return [metric for metric in table.metrics if metric != "residual"]


def _mark(table: Table, method: str, other: str, metric: str) -> str:
    gap = table.gap(method, other, metric)
    return "▲" if gap.mean > 2 * gap.se else "▼" if gap.mean < -2 * gap.se else "="


def write_leaderboard(folder: Path) -> None:
    """Write the pages of the leaderboard from what is stored."""
    board, effects = Leaderboard.load(BOARD / FILE), load_effects(BOARD)
    names = [*board.boards, *([FACTORS] if effects else [])]
    write_pages(board, effects, folder, f"{HOW}\n\n{_render_toctree([f'leaderboard/{name}' for name in names])}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ig2_bench.results", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables, such as wafer-rules or pets; all without")
    parser.add_argument("--data", type=Path, help="the folder that holds the data sets")
    parser.add_argument("--out", type=Path, default=STORE, help="where the tables are kept")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--again", action="store_true", help="make also what is stored")
    parser.add_argument("--page", action="store_true", help="only write the pages of the docs")
    options = parser.parse_args()
    known = {run.name: run for run in RUNS}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no table {unknown[0]!r}; there are {', '.join(known)}")
    complete = True
    if not options.page:
        if options.data is None:
            parser.error("--data: name the folder that holds imagenet-val, imagenet-pool, pets, mnist, trec, wafer and celeba")
        if not any((options.data / run.folder).is_dir() for run in RUNS):
            parser.error(
                f"--data: {options.data} has none of the folders {', '.join(dict.fromkeys(run.folder for run in RUNS))}"
            )
        runs = [known[name] for name in options.names or known]
        complete = make_tables(runs, options.data, options.out, options.device, options.again)
    if options.out == STORE and complete:
        for page, text in render_pages(STORE).items():
            (DOCS / page).parent.mkdir(exist_ok=True)
            (DOCS / page).write_text(text, encoding="utf-8")
        if (BOARD / FILE).exists():
            write_leaderboard(DOCS)
        print("the first page is", DOCS / INDEX, file=sys.stderr)
    if not complete:
        sys.exit(1)


if __name__ == "__main__":
    main()
