"""The leaderboard in Markdown: three sentences of findings, one table, and links to a page for each data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ig2.errors import format_count
from ig2.table import ARROWS, escape_cell, number
from ig2_bench.board.factors import FACTORS, NAMES, Effect, Effects
from ig2_bench.board.roster import ROSTER
from ig2_bench.board.standings import Board, Leaderboard, Standing, find_front
from ig2_bench.markdown import format_rows, join, shrink

SHORT = 12  # rows of the first table, beside the best of IG² and Random: a screen
BOARDS = 4  # more columns need smaller letters
OURS = "IG²"  # how the rows of IG² begin
PATH = "path: GradPath"  # as the factors name the level
NOISE = "Random"  # the row that shows what chance achieves
NONE = "–"
WORK = "gradients an input; a forward pass alone counts a third"
FOLDER = "leaderboard"  # of the pages that the first one links to, beside it


def render_pages(
    leaderboard: Leaderboard, effects: Mapping[str, Effects], picture: str | None = None, ending: str = ""
) -> dict[str, str]:
    """Render the first page, whose name is empty, and the pages below `FOLDER`.

    Args:
        leaderboard: the standings.
        effects: the effects of path, rule, references and scale, by data set.
        picture: the file of the picture of quality against cost, beside the first page.
        ending: text to end the first page with.

    Returns:
        The pages by name, the first page first.
    """
    pages = {"": join([*_render_first(leaderboard, effects, picture), ending])}
    pages |= {name: join(render_board(board)) for name, board in leaderboard.boards.items()}
    return pages | ({FACTORS: join(_render_effects(effects))} if effects else {})


def _render_first(leaderboard: Leaderboard, effects: Mapping[str, Effects], picture: str | None) -> list[str]:
    boards, ranked = leaderboard.boards, leaderboard.ranked
    lines = ["# Leaderboard", render_findings(leaderboard), *_note_effects(effects), *_note_source(leaderboard)]
    widen = shrink if len(boards) > BOARDS else str
    lines += [widen(render_overview(leaderboard, SHORT)), _explain_overview(leaderboard)]
    if picture:
        front = ", ".join(f"*{label}*" for label in find_worthwhile(leaderboard))
        lines += ["## Quality against cost", f"![How often each method wins, against its cost]({picture})"]
        lines.append(f"The methods that none beats in both, from the cheapest to the best: {front}.")
    if boards:
        lines += ["## By data set", _render_links(leaderboard), *_note_scales(leaderboard)]
    rows = {standing.method for board in boards.values() for standing in board.standings}
    if len(rows) > len(ranked) or len(ranked) > SHORT:
        lines += ["## All methods", widen(render_overview(leaderboard))]
    if len(rows) > len(ranked):
        lines.append("Without a number: scored on half or fewer of the data sets that they apply to, and so not compared.")
    notes = [f"- Not measured: {name}, {why}." for name, why in leaderboard.skipped.items()]
    strangers = sorted(rows - ROSTER.keys())
    notes += [f"- Not of the roster, added with `--own`: {', '.join(strangers)}."] if strangers else []
    return [*lines, "\n".join(notes)]


def _explain_overview(leaderboard: Leaderboard) -> str:
    several = "on every data set that has both and " if len(leaderboard.boards) > 1 else ""
    return (
        f"*Ahead* and *behind*: each method is compared with every other {several}by every metric that counts, each at its own "
        "scale. It is ahead or behind where the 95 % interval of the paired difference excludes zero, and level otherwise; the "
        "order is by wins, a level comparison counting half. By data set, the place by mean rank among the methods there; a "
        f"dash where there is no score. *Cost*: the median over data sets, in {WORK}."
    )


def _note_source(leaderboard: Leaderboard) -> list[str]:
    boards = leaderboard.boards.values()
    if any(board.quick for board in boards):
        return ["**A quick run: it shows that everything runs, and no more.**"]
    embedded = [board.name for board in boards if board.embedded]
    if not embedded:
        return []
    return [f"**Not yet on the public data sets: the data of {_list(embedded)} are small ones that come with the suites.**"]


def render_findings(leaderboard: Leaderboard) -> str:
    """Return the findings in three sentences, computed from the numbers alone."""
    boards = [board for board in leaderboard.boards.values() if board.standings]
    records = leaderboard.records
    if not records:
        return ""
    leader, *others = records
    stands = [board for board in boards if leader in board.places()]
    on = f"on {stands[0].name}" if len(boards) == 1 else f"on {len(stands)} of {len(boards)} data sets"
    first = (
        f"**{leader}**, {on}, is ahead in {_percent(records[leader].ahead)} of its comparisons with "
        f"{format_count(len(others), 'other method')} and behind in {_percent(records[leader].behind)}"
    )

    def tell(method: str) -> str:
        return f"({_percent(records[method].ahead)}, {_percent(records[method].behind)})"

    if others:
        first += f", followed by {_list(f'*{method}* {tell(method)}' for method in others[:2])}"
    ours = next((place for place, method in enumerate(records, 1) if method.startswith(OURS)), None)
    if ours is not None and ours > 3:
        method = list(records)[ours - 1]
        first += f"; *{method}* is number {ours} {tell(method)}"
    lines = [f"{first}."]
    if len(boards) > 1:
        firsts: dict[str, list[str]] = {}  # the data sets that the same methods lead
        for board in boards:
            led_by = _list(f"*{method}*" for method, place in board.places().items() if place == 1)
            firsts.setdefault(led_by, []).append(board.name)
        lines.append(f"By data set, first are {'; '.join(f'{led_by} on {_list(names)}' for led_by, names in firsts.items())}.")
    if front := find_worthwhile(leaderboard):
        points = leaderboard.trade_off()
        cheapest, best = (f"*{label}* ({_count(points[label][0])})" for label in (front[0], front[-1]))
        lines.append(
            f"Of the methods that none beats in both wins and cost (gradients an input), the cheapest is {cheapest} and the "
            f"best {best}."
        )
    return " ".join(lines)


def find_worthwhile(leaderboard: Leaderboard) -> list[str]:
    """Return the methods that no other beats in both wins and cost, cheapest first. Noise, which costs nothing, is excluded."""
    return find_front({label: point for label, point in leaderboard.trade_off().items() if label != NOISE})


def _note_effects(effects: Mapping[str, Effects]) -> list[str]:
    """Return the contributions of a method's parts in three sentences: their shares, GradPath, and the widest blur."""
    studied = {name: study for name, study in effects.items() if not study.quick}
    if not studied:
        return []
    first, *others = (
        _list(_range(each.shares, i) + (f" on {name}" if not i else "") for name, each in studied.items())
        for i in range(len(NAMES))
    )
    rest = "; ".join(f"the {factor} {share}" for factor, share in zip(NAMES[1:], others, strict=True))
    sentences = [f"The {NAMES[0]} explains {first} of the differences between combinations, by metric; {rest}."]
    paths = dict.fromkeys(studied, PATH)
    blurs = {name: next(iter(study.levels.values()))[-1].what for name, study in studied.items()}  # scales come last
    for levels, what in ((paths, "GradPath in place of the straight line"), (blurs, "The widest blur")):
        if parts := list(_tell_level(studied, levels)):
            sentences.append(f"{what} brings, positive where better, {'; '.join(parts)}.")
    return [f"**What a method is made of** ([the factors]({FOLDER}/{FACTORS}.md)): {' '.join(sentences)}"]


def _range(shares: Mapping[str, list[Effect]], factor: int) -> str:
    """Return the range over metrics of the share that a factor explains alone."""
    means = [each[factor].mean for each in shares.values()]
    return f"{100 * min(means):.0f} to {_percent(max(means))}"


def _tell_level(studied: Mapping[str, Effects], levels: Mapping[str, str]) -> Iterator[str]:
    """Yield the clear effects of a level, by data set; positive is better."""
    for name, study in studied.items():
        changes = [
            f"{metric} {change.mean:+.3f}"
            for metric, each in study.levels.items()
            for change in each
            if change.what == levels[name] and change.is_clear
        ]
        if changes:
            size = "" if levels[name] == PATH else f" ({levels[name].partition(': ')[2]})"
            yield f"on {name}{size} {_list(changes)}"


def _note_scales(leaderboard: Leaderboard) -> list[str]:
    scaled = [(board, standing) for board in leaderboard.boards.values() if board.scales for standing in board.standings]
    if not scaled:
        return []
    gains = [_gain(board, standing) for board, standing in scaled if standing.scale]
    better, worse = (sum(sign * gain > 0 for gain in gains) for sign in (1, -1))
    return [
        f"On the validation split a blurred map was chosen over the raw one in {len(gains)} of {len(scaled)} cases; on the "
        f"test split it is better in {better} of these and worse in {worse}, by the sum of the metrics."
    ]


def _gain(board: Board, standing: Standing) -> float:
    """Return the improvement of the scaled maps over the raw ones, summed over the metrics that count."""
    signs = {metric: 1 if board.metrics[metric].better == "higher" else -1 for metric in board.counted}
    return sum(sign * (standing.mean(metric) - standing.mean(metric, raw=True)) for metric, sign in signs.items())


def render_overview(leaderboard: Leaderboard, rows: int | None = None) -> str:
    """Return a table of how often each method wins, and its place on each data set.

    Args:
        leaderboard: the standings.
        rows: show only this many, and the best of IG², Random and methods outside the roster; by default all, with unranked
            methods at the end.
    """
    records, boards = leaderboard.records, leaderboard.boards
    places = {name: board.places() for name, board in boards.items()}
    labels = list(records)
    if rows is None:
        labels += [m for each in places.values() for m in each if m not in records]
    else:
        best = next((label for label in labels if label.startswith(OURS)), None)
        labels = [label for i, label in enumerate(labels) if i < rows or label in (best, NOISE) or label not in ROSTER]
    heads = [f"{name} /{len(each)}" for name, each in places.items()]
    lines = []
    numbers = {label: place for place, label in enumerate(records, 1)}
    for label in dict.fromkeys(labels):
        record = records.get(label)
        shares = [NONE] * 2 if record is None else [f"{100 * share:.0f}" for share in (record.ahead, record.behind)]
        cells = [
            NONE if label not in each else f"**{each[label]}**" if each[label] == 1 else str(each[label])
            for each in places.values()
        ]
        lines.append([str(numbers.get(label, "")), escape_cell(label), *shares, *cells, _count(leaderboard.work(label))])
    return format_rows(["", "method", "ahead, %", "behind, %", *heads, "cost"], lines)


def _render_links(leaderboard: Leaderboard) -> str:
    """Return a line for each data set: the first three methods, the best of IG², and a link to the rest."""
    lines = []
    for name, board in leaderboard.boards.items():
        places = board.places()
        podium = [escape_cell(method) for method in places][:3]
        ours = [
            f"{escape_cell(method)}, {place} of {len(places)}" for method, place in places.items() if method.startswith(OURS)
        ]
        cells = [*podium, *[NONE] * (3 - len(podium)), *(ours or [NONE])[:1]]
        title = board.title.partition(":")[0]
        lines.append([f"[{title}]({FOLDER}/{name}.md)", str(board.samples), *cells])
    return format_rows(["data set", "values", "first", "second", "third", "best of IG²"], lines)


def render_board(board: Board) -> list[str]:
    """Return the page of a data set: scores, costs, paired differences, and methods without a row."""
    ranks, raw_ranks, cheap = board.mean_ranks(), board.mean_ranks(raw=True), board.cost_ranks()
    metrics = [f"{label} {ARROWS[column.better]}" for label, column in board.metrics.items()]
    heads = ["method", "rank", "px", "raw rank", *metrics, "forwards", "gradients", "s", "cost rank"]
    lines = []
    best = {metric: [m for m, place in board.ranks(metric).items() if place < 2] for metric in board.metrics}
    for method, mean_rank in ranks.items():
        standing = board.standing(method)
        cells = [_cell(board, standing, metric, method in best[metric]) for metric in board.metrics]
        costs = [_count(standing.cost[what]) for what in ("forwards", "gradients")] + [_seconds(standing.cost["seconds"])]
        place = f"{cheap[method]:.0f}" if method in cheap else NONE
        numbers = [f"{mean_rank:.1f}", f"{standing.scale:g}", f"{raw_ranks[method]:.1f}"]
        lines.append([escape_cell(method), *numbers, *cells, *costs, place])
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
        f"# {board.title.partition(':')[0]} ({board.name})",
        f"One data set of [the leaderboard](../{FOLDER}.md). Data: {board.data}.",
        shrink(format_rows(heads, lines)),
        caption,
        *(line for base in bases if len(ranks) > 1 for line in _render_differences(board, base)),
        *_render_left_out(board),
    ]


def _render_differences(board: Board, base: str) -> list[str]:
    about = "How much better each is on the same samples, with 95 % intervals; bold where they exclude zero:"
    lines = []
    for method in board.mean_ranks():
        if method == base:
            continue
        gaps = [board.difference(method, base, metric) for metric in board.metrics]
        cells = [f"**{gap}**" if gap.is_clear else str(gap) for gap in gaps]
        lines.append([escape_cell(method), *cells])
    return [f"## Compared with {base}", about, shrink(format_rows([f"than {escape_cell(base)}", *board.metrics], lines))]


def _render_effects(effects: Mapping[str, Effects]) -> list[str]:
    lines = [
        "# What each part contributes",
        f"Beside [the leaderboard](../{FOLDER}.md): every path with every rule, kind of references and scale, on the same "
        "samples. The first levels are a straight line, `left`, no reference (a blurred photo, an empty map) and raw maps; "
        "differences are positive where that is better. Intervals are 95 %, by the bootstrap over samples.",
    ]
    for name, study in effects.items():
        quick = " A quick run: it shows that everything runs, and no more." if study.quick else ""
        lines += [f"## {study.title} ({name})", f"Over {format_count(study.samples, 'sample')}.{quick} Data: {study.data}."]
        lines.append(shrink(study.to_markdown()))
    return lines


def _render_left_out(board: Board) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for method, why in board.left_out.items():
        reasons.setdefault(why, []).append(method)
    lines = [f"- {_list(methods)}: {why}." for why, methods in reasons.items()]
    return ["## What is left out", "\n".join(lines)] if lines else []


def _cell(board: Board, standing: Standing, metric: str, is_best: bool) -> str:
    digits = board.metrics[metric].digits
    mean = number(standing.mean(metric), digits)
    raw = f" ({number(standing.mean(metric, raw=True), digits)})" if standing.scale else ""
    return f"**{mean}**{raw}" if is_best else f"{mean}{raw}"


def _count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.2g}"


def _list(items: Iterable[object]) -> str:
    texts = [f"{item:g}" if isinstance(item, float) else str(item) for item in items]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
