"""Questions: the words that methods mark, and what each reference makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Drawing
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch

import ig2
from ig2.errors import InputError
from ig2.modalities.text.sentences import TextBatch, TextSubject
from ig2.plots.canvas import QUIET, Canvas, align_end_labels
from ig2.plots.labels import choose_ink, clean_text, text_options
from ig2.plots.texts import POINTS, lay_out_words
from ig2.references import round_robin
from ig2_bench.datasets.base import LabelledSamples
from ig2_bench.figure import Figure, Options, Stored
from ig2_bench.figures.panels import wrap_caption
from ig2_bench.figures.sources import Questions, load_questions

# how long a question is that fits on a line or two, in words and signs
SHORTEST, LONGEST = 6, 13
WIDEST = 7.4  # inches
METHODS = ("Input × gradient", "IG", "Guided IG", "Expected IG", "DeepSHAP", "KernelSHAP", "IG²")


def _scores(subject: TextSubject, batch: TextBatch, attribution: ig2.Attribution, values: Any = None) -> list[list[float]]:
    return [row.tolist() for row in subject.scores(batch, attribution, values)]


def _suitable(questions: Questions) -> list[int]:
    """Questions of fitting length that the network gets right, every class in turn; all where there are none."""
    texts = cast(tuple[str, ...], questions.samples.x)
    order = round_robin(questions.samples.y)
    right = [i for i in order if questions.predicted[i] == questions.samples.y[i]]
    return [i for i in right if SHORTEST <= len(texts[i].split()) <= LONGEST] or right or order


def _texts(samples: LabelledSamples, numbers: Sequence[int]) -> list[str]:
    return [cast(tuple[str, ...], samples.x)[i] for i in numbers]


# -- all methods -------------------------------------------------------------------------------------------------------


def trec_words(options: Options) -> Stored:
    """Questions explained by all methods."""
    questions = load_questions(options)
    subject = questions.subject
    numbers = _one_a_class(questions, _suitable(questions))[: 2 if options.quick else 5]
    batch = subject.read(_texts(questions.samples, numbers))
    target = questions.predicted[numbers]
    pool = subject.pool(_texts(questions.pool, round_robin(questions.pool.y, options.seed)[: 12 if options.quick else 60]))
    count = 2 if options.quick else 8
    contrast = ig2.Question(target, None, references=pool, count=count, seed=options.seed).contrast(subject, batch)
    zero = subject.baseline(batch, "zero")
    steps = 10 if options.quick else 200
    methods: dict[str, tuple[ig2.Method, Any]] = {
        "Input × gradient": (ig2.InputXGradient(), None),
        "IG": (ig2.IntegratedGradients(steps // 4 + 1), zero),
        "Guided IG": (ig2.GuidedIG(steps), zero),
        "Expected IG": (ig2.ExpectedIG(steps // 4 + 1), contrast.samples),
        "DeepSHAP": (ig2.DeepSHAP(), contrast.samples),
        "KernelSHAP": (ig2.KernelSHAP(batch.word[:, :, None]), zero),
        "IG²": (ig2.IG2(steps), contrast.samples),
    }
    scores: list[list[list[float]]] = []
    for name, (method, references) in methods.items():
        watch = options.watch(f"trec-words: {name}")
        attribution = method(subject.model, batch.x, target, references, seed=options.seed, progress=watch)
        scores.append(_scores(subject, batch, attribution))
    assert batch.units is not None
    texts = {
        "words": [list(units) for units in batch.units],
        "labels": [subject.label(int(label)) for label in target],
        "scores": scores,
        "count": len(contrast.names[0]),
        "steps": steps,
    }
    return Stored({}, texts, questions.source)


def _one_a_class(questions: Questions, numbers: list[int]) -> list[int]:
    seen: dict[int, int] = {}
    for i in numbers:
        seen.setdefault(int(questions.predicted[i]), i)
    return list(seen.values())


def draw_trec_words(stored: Stored) -> Drawing:
    texts = stored.texts
    rows: list[TextRow] = []
    for i, words in enumerate(texts["words"]):
        rows.append(TextRow(f"[{texts['labels'][i]}]", None, (), heading=True))
        rows += [TextRow(name, texts["scores"][m][i], words) for m, name in enumerate(METHODS)]
    return _page(
        rows,
        f"each line's colours end at its strongest word. References of Expected IG, DeepSHAP and IG² are {texts['count']} "
        f"questions of other classes; the other methods start from zero vectors. IG² takes {texts['steps']} steps, each as "
        "long as the path to the reference divided by that",
        stored.source,
    )


# -- references one by one ---------------------------------------------------------------------------------------------


def trec_references(options: Options) -> Stored:
    """One question against single references of other classes, and two of its own."""
    questions = load_questions(options)
    subject = questions.subject
    suitable = _suitable(questions)
    entities = [i for i in suitable if subject.label(int(questions.predicted[i])) == "ENTY"] or suitable
    lengths = {i: len(text.split()) for i, text in zip(entities, _texts(questions.samples, entities), strict=True)}
    chosen = max(entities, key=lambda i: lengths[i])
    batch = subject.read(_texts(questions.samples, [chosen]))
    target = int(questions.predicted[chosen])
    # first those that are long enough to fill the places of most words
    order = sorted(round_robin(questions.pool.y, options.seed), key=lambda i: len(_text(questions, i).split()) < 5)
    others = [i for i in order if int(questions.pool.y[i]) != target][: 3 if options.quick else 8]
    if not others:
        raise InputError(
            f"{questions.source}: there is no question of another class as a reference for {subject.label(target)!r}"
        )
    same = [i for i in order if int(questions.pool.y[i]) == target and _text(questions, i) != batch.names[0]][:2]
    references = _texts(questions.pool, [*others, *same])
    steps = 10 if options.quick else 200
    attribution = ig2.IG2(steps)(
        subject.model, batch.x, target, subject.references(references, batch), per_reference=True,
        progress=options.watch("trec-references"),
    )  # fmt: skip
    zero = ig2.IntegratedGradients(50)(subject.model, batch.x, target, subject.baseline(batch, "zero"))
    per_reference: Any = attribution.per_reference
    if isinstance(per_reference, (dict, tuple)):
        per_reference = next(iter(per_reference.values() if isinstance(per_reference, dict) else per_reference))
    rows = [_scores(subject, batch, attribution, per_reference[:, r])[0] for r in range(len(references))]
    mean = np.mean(rows[: len(others)], axis=0).tolist()
    assert batch.units is not None
    texts = {
        "words": list(batch.units[0]),
        "label": subject.label(target),
        "references": references,
        "labels": [subject.label(int(questions.pool.y[i])) for i in (*others, *same)],
        "scores": rows,
        "zero": _scores(subject, batch, zero)[0],
        "mean": mean,
        "others": len(others),
        "steps": steps,
    }
    return Stored({}, texts, questions.source)


def _text(questions: Questions, i: int) -> str:
    return cast(tuple[str, ...], questions.pool.x)[i]


def draw_trec_references(stored: Stored) -> Drawing:
    texts = stored.texts
    words = texts["words"]
    rows = [
        TextRow("IG, from zero", texts["zero"], words),
        TextRow(f"IG², mean of 1 to {texts['others']}", texts["mean"], words),
        TextRow("IG², of other classes", None, (), heading=True),
    ]
    for r, reference in enumerate(texts["references"]):
        if r == texts["others"]:
            rows.append(TextRow(f"IG², of its own class [{texts['label']}]", None, (), heading=True))
        rows.append(TextRow(f"{r + 1} [{texts['labels'][r]}]", texts["scores"][r], words, reference))
    return _page(
        rows,
        f"the question is of class [{texts['label']}]; each line is what a single reference, in grey below it, makes of it. "
        f"Each line's colours end at its strongest word; {texts['steps']} steps, each as long as the path to the reference "
        "divided by that",
        stored.source,
    )


# -- the page ----------------------------------------------------------------------------------------------------------


class TextRow(NamedTuple):
    """A line of words with their numbers, or a heading."""

    label: str
    scores: list[float] | None
    words: Sequence[str]
    below: str = ""
    heading: bool = False


def _page(rows: Sequence[TextRow], *sentences: str) -> Drawing:
    """Labels to the left, coloured words to the right, one key and the caption below."""
    size = FontProperties(size="small").get_size_in_points()
    label, margin, line = 1.45 * POINTS, 0.6 * size, 1.75 * size
    placed = [lay_out_words([str(word) for word in row.words], WIDEST * POINTS - label - 2 * margin, size) for row in rows]
    longest = max(piece.x + piece.width for pieces in placed for piece in pieces)
    width = max(label + longest + 2 * margin, 0.75 * WIDEST * POINTS)
    heights = [
        1.9 * size if row.heading else line * ((pieces[-1].line if pieces else 0) + 1) + (1.35 * size if row.below else 0)
        for row, pieces in zip(rows, placed, strict=True)
    ]
    small_print = wrap_caption(sentences, width / POINTS)
    foot = 3.2 * size + 1.15 * size * (small_print.count("\n") + 1)
    total = sum(heights) + foot + size
    figure = Canvas(width / POINTS, total / POINTS)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(total, 0))
    axes.set_axis_off()
    y = 0.5 * size
    for row, pieces, height in zip(rows, placed, heights, strict=True):
        weight = "bold" if row.heading else "normal"
        axes.text(margin, y + 1.25 * size, clean_text(row.label, 60), fontsize=size, fontweight=weight, **text_options())
        if row.scores is not None:
            _draw_words(axes, pieces, row.scores, label + margin, y, line, size)
        if row.below:
            axes.text(
                label + margin,
                y + height - 0.35 * size,
                clean_text(row.below, 95),
                fontsize=0.85 * size,
                color=QUIET,
                **text_options(),
            )
        y += height
    colours = matplotlib.colormaps["RdBu_r"]
    place = (label + margin) / width, 1 - (y + 1.2 * size) / total, 18 * size / width, 0.55 * size / total
    bar = figure.colorbar(ScalarMappable(Normalize(-1, 1), colours), cax=figure.add_axes(place), orientation="horizontal")
    bar.set_ticks([-1, 1], labels=["against the class", "for the class"])
    align_end_labels(bar.ax)
    bar.ax.tick_params(labelsize="x-small", length=2)
    bar.outline.set_linewidth(0.5)
    figure.text(margin / width, 0.3 * size / total, small_print, fontsize="x-small", color=QUIET, va="bottom", **text_options())
    return figure


def _draw_words(axes: Axes, pieces: Any, scores: list[float], left: float, top: float, line: float, size: float) -> None:
    colours = matplotlib.colormaps["RdBu_r"]
    end = max((abs(score) for score in scores), default=0.0) or 1.0
    for piece in pieces:
        base = top + piece.line * line + 1.25 * size
        red, green, blue, _ = colours(0.5 + 0.5 * scores[piece.word] / end)
        axes.add_patch(
            FancyBboxPatch(
                (left + piece.x, base - 1.05 * size), piece.width, 1.45 * size,
                boxstyle="round,pad=0,rounding_size=2", facecolor=(red, green, blue), linewidth=0,
            )
        )  # fmt: skip
        ink = choose_ink((red, green, blue))
        axes.text(left + piece.x + 0.25 * size, base, piece.text, fontsize=size, color=ink, **text_options())


TREC_WORDS = Figure("words of questions by all methods", trec_words, draw_trec_words, ("trec",))
TREC_REFERENCES = Figure("a question against single references", trec_references, draw_trec_references, ("trec",))
