"""The leaderboard in Markdown: what it says in a few sentences, one table for all data sets, and the rest below."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean

from ig2.benchmarks.factors import NAMES, Effects
from ig2.benchmarks.roster import ROSTER
from ig2.benchmarks.standings import Board, Leaderboard, Standing, find_front
from ig2.benchmarks.table import ARROWS, escape_cell, number
from ig2.errors import format_count

SHORT = 16  # rows of the first table, beside those of IG² and Random: a screen
OURS = "IG²"  # how the rows of IG² begin
NONE = "–"
WORK = "gradients an input; a forward pass alone counts a third"


def render_page(leaderboard: Leaderboard, effects: Mapping[str, Effects], picture: str | None = None, how: str = "") -> str:
    """Return the whole page.

    Args:
        leaderboard: the standings.
        effects: of path, rule, references and scale, by data set.
        picture: the file of quality against cost, beside the page.
        how: a sentence on how it is made.
    """
    overall = leaderboard.overall()
    lines = ["# Leaderboard", *render_findings(leaderboard, effects)]
    lines += [*_note_source(leaderboard), render_overview(leaderboard, SHORT)]
    lines.append(
        "Of each data set the mean rank over its metrics among the methods there, each at its own scale: 1 is first. *All* is "
        "the mean over data sets of that rank as a share of the methods: 0 is first everywhere, 1 last. *Cost* is the median "
        f"over data sets, in {WORK}. A dash: [left out](#what-is-left-out)."
    )
    if how:
        lines.append(how)
    if picture:
        front = ", ".join(find_front(leaderboard.trade_off()))
        lines += ["## Quality against cost", f"![Rank of each method against its cost]({picture})"]
        lines.append(f"The methods that none beats in both, from the cheapest to the best: {front}.")
    if len(overall) > SHORT:
        lines += ["## All methods", render_overview(leaderboard)]
    if effects:
        lines += ["## What each part contributes", *_render_effects(effects)]
    for board in leaderboard.boards.values():
        lines += render_board(board)
    lines += ["## What is left out", *_render_left_out(leaderboard)]
    return "\n\n".join(lines) + "\n"


def _note_source(leaderboard: Leaderboard) -> list[str]:
    boards = leaderboard.boards.values()
    if any(board.quick for board in boards):
        return ["**A quick run: it shows that everything runs, and no more.**"]
    embedded = [board.name for board in boards if board.embedded]
    if not embedded:
        return []
    return [f"**Not yet on the public data sets: the data of {_list(embedded)} are small ones that come with the suites.**"]


def render_findings(leaderboard: Leaderboard, effects: Mapping[str, Effects]) -> list[str]:
    """Return what the numbers say, in a few sentences made of nothing else."""
    boards = [board for board in leaderboard.boards.values() if board.standings]
    if not boards:
        return []
    first, ours = [], []
    for board in boards:
        ranks = board.mean_ranks()
        leader = next(iter(ranks))
        first.append(f"{leader} on {board.name} (mean rank {ranks[leader]:.1f} among {format_count(len(ranks), 'method')})")
        ours += [f"number {place} on {board.name}" for place, row in enumerate(ranks, 1) if row.startswith(OURS)][:1]
    lines = [f"First {'is' if len(first) == 1 else 'are'} {_list(first)}."]
    if ours:
        lines.append(f"The best row of {OURS} is {_list(ours)}.")
    scaled = [(board, one) for board in boards if board.scales for one in board.standings]
    if scaled:
        blurred = [(board, one) for board, one in scaled if one.scale]
        gains = [_gain(board, one) for board, one in blurred]
        better, worse = (sum(sign * gain > 0 for gain in gains) for sign in (1, -1))
        lines.append(
            f"On the validation split a blurred map was chosen over the raw one in {len(blurred)} of {len(scaled)} cases; on "
            f"the test split it is better in {better} of these and worse in {worse}, by the sum of the metrics."
        )
    studied = {name: one for name, one in effects.items() if not one.quick}
    if studied:
        shares = [each for one in studied.values() for each in one.shares.values()]
        means = {factor: fmean(each[i].mean for each in shares) for i, factor in enumerate(NAMES)}
        ordered = sorted(means.items(), key=lambda item: -item[1])
        lines.append(
            "Of the variance between combinations of path, rule, references and scale, each alone explains: "
            + ", ".join(f"{factor} {share:.0%}" for factor, share in ordered)
            + f" (the mean over metrics, on {_list(list(studied))})."
        )
    elif front := find_front(leaderboard.trade_off()):
        works = leaderboard.trade_off()
        cheapest, best = (f"{label} with {_count(works[label][0])}" for label in (front[0], front[-1]))
        lines.append(
            f"Of the methods that none beats in both rank and cost, the cheapest is {cheapest} gradients an input, and "
            f"the best {best}."
        )
    return [" ".join(lines)]


def _gain(board: Board, one: Standing) -> float:
    """By how much the scaled maps are better than the raw ones, the sum over the metrics that count."""
    signs = {metric: 1 if board.metrics[metric].better == "higher" else -1 for metric in board.counted}
    return sum(sign * (one.mean(metric) - one.mean(metric, raw=True)) for metric, sign in signs.items())


def render_overview(leaderboard: Leaderboard, rows: int | None = None) -> str:
    """Return the rank of each method on each data set; only the first rows, and those of IG² and Random, if so asked."""
    overall, works = leaderboard.overall(), leaderboard.trade_off()
    ranks = {name: board.mean_ranks() for name, board in leaderboard.boards.items()}
    labels = list(overall)
    if rows is not None:
        labels = [label for i, label in enumerate(labels) if i < rows or label.startswith(OURS) or label == "Random"]
    places = {label: place for place, label in enumerate(overall, 1)}
    first = {name: min(each.values(), default=math.nan) for name, each in ranks.items()}
    lines = [f"| | method | all | {' | '.join(ranks)} | cost |", "|---" * (len(ranks) + 4) + "|"]
    for label in labels:
        cells = [
            NONE if label not in each else f"**{each[label]:.1f}**" if each[label] == first[name] else f"{each[label]:.1f}"
            for name, each in ranks.items()
        ]
        cost = _count(works[label][0]) if label in works else NONE
        lines.append(f"| {places[label]} | {escape_cell(label)} | {overall[label]:.2f} | {' | '.join(cells)} | {cost} |")
    return "\n".join(lines)


def render_board(board: Board) -> list[str]:
    """Return the section of a data set: scores, costs and paired differences."""
    ranks, raw_ranks, cheap = board.mean_ranks(), board.mean_ranks(raw=True), board.cost_ranks()
    heads = [f"{label} {ARROWS[column.better]}" for label, column in board.metrics.items()]
    lines = [f"| method | rank | px | raw rank | {' | '.join(heads)} | forwards | gradients | s | cost rank |"]
    lines.append("|---" * (len(heads) + 8) + "|")
    best = {metric: [m for m, place in board.ranks(metric).items() if place < 2] for metric in board.metrics}
    for method, mean_rank in ranks.items():
        one = board.standing(method)
        cells = [_cell(board, one, metric, method in best[metric]) for metric in board.metrics]
        costs = [_count(one.cost[what]) for what in ("forwards", "gradients")] + [_seconds(one.cost["seconds"])]
        place = f"{cheap[method]:.0f}" if method in cheap else NONE
        lines.append(
            f"| {escape_cell(method)} | {mean_rank:.1f} | {one.scale:g} | {raw_ranks[method]:.1f} | "
            f"{' | '.join([*cells, *costs])} | {place} |"
        )
    scales = (
        f" The scale of each method (*px*) was chosen on the validation split among raw maps and {_list(board.scales)} pixels, "
        "by the lowest mean rank over the metrics among its own scales; in parentheses the score of its raw maps."
        if board.scales
        else ""
    )
    others = [label for label in board.metrics if label not in board.counted]
    ranked = f" The rank is the mean over {_list(board.counted)}" + (f"; {_list(others)} are not counted." if others else ".")
    caption = (
        f"Mean over {format_count(board.samples, 'value')}.{scales}{ranked} Costs are of an input, {WORK} in the cost rank; "
        "seconds are those of the machine that made the table, with whatever else it did."
    )
    bases = list(dict.fromkeys([next(iter(ranks)), *[m for m in ranks if m.startswith(OURS)][:1]])) if ranks else []
    return [
        f"## {board.title.partition(':')[0]} ({board.name})",
        f"Data: {board.data}.",
        _wide("\n".join(lines)),
        caption,
        *(_render_differences(board, base) for base in bases if len(ranks) > 1),
    ]


def _render_differences(board: Board, base: str) -> str:
    about = f"How much better each is than *{base}* on the same samples, with 95 % intervals; bold where they exclude zero:"
    lines = [f"| than {escape_cell(base)} | {' | '.join(board.metrics)} |", "|---" * (len(board.metrics) + 1) + "|"]
    for method in board.mean_ranks():
        if method == base:
            continue
        gaps = [board.difference(method, base, metric) for metric in board.metrics]
        cells = [f"**{gap}**" if gap.is_clear else str(gap) for gap in gaps]
        lines.append(f"| {escape_cell(method)} | {' | '.join(cells)} |")
    return about + "\n\n" + _wide("\n".join(lines))


def _render_effects(effects: Mapping[str, Effects]) -> list[str]:
    lines = [
        "Every path with every rule, kind of references and scale, on the same samples. The first levels are a straight line, "
        "`left`, no reference (a blurred photo, an empty map) and raw maps; differences are positive where that is better."
    ]
    for name, one in effects.items():
        quick = " A quick run: it shows that everything runs, and no more." if one.quick else ""
        lines += [f"### {one.title} ({name})", f"Over {format_count(one.samples, 'sample')}.{quick} Data: {one.data}."]
        lines.append(one.to_markdown())
    return lines


def _render_left_out(leaderboard: Leaderboard) -> list[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, board in leaderboard.boards.items():
        for method, why in board.left_out.items():
            reasons.setdefault((name, why), []).append(method)
    lines = [f"- On {name}, {_list(methods)}: {why}." for (name, why), methods in reasons.items()]
    lines += [f"- Data set {name}: {why}." for name, why in leaderboard.skipped.items()]
    strangers = sorted({one.method for board in leaderboard.boards.values() for one in board.standings} - ROSTER.keys())
    lines += [f"- Not of the roster, added with `--own`: {', '.join(strangers)}."] if strangers else []
    return ["\n".join(lines)] if lines else ["Nothing."]


def _cell(board: Board, one: Standing, metric: str, is_best: bool) -> str:
    digits = board.metrics[metric].digits
    mean = number(one.mean(metric), digits)
    raw = f" ({number(one.mean(metric, raw=True), digits)})" if one.scale else ""
    return f"**{mean}**{raw}" if is_best else f"{mean}{raw}"


def _count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.2g}"


def _list(items: Iterable[object]) -> str:
    texts = [f"{item:g}" if isinstance(item, float) else str(item) for item in items]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _wide(rows: str) -> str:
    return f":::{{container}} wide\n\n{rows}\n\n:::"
