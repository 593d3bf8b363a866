"""`ig2 explain`: read the inputs, attribute, write the files, print the result."""

from __future__ import annotations

import math
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

import ig2
from ig2._engine.task import choose_against
from ig2._utils.devices import find_device
from ig2._utils.suggestions import ChoiceError
from ig2.attribution import Attribution
from ig2.cli import files
from ig2.cli.answer import print_answer
from ig2.cli.inputs import check_exists, find_modality, list_files, open_inputs, read_all, read_references
from ig2.cli.many import MANY, count_words, explain_many, first_lines, list_least_trusted
from ig2.cli.methods import (
    check_gradients,
    find_methods,
    find_rule,
    make_method,
)
from ig2.cli.models import load_model
from ig2.cli.options import ExplainOptions
from ig2.cli.output import (
    INDENT,
    Watch,
    ignore_progress,
    open_console,
    print_heading,
    print_line,
    print_path,
    print_verdict,
    show_progress,
)
from ig2.cli.streams import print_error
from ig2.demo import pool
from ig2.errors import InputError, quote_names
from ig2.methods.catalogue import Entry
from ig2.modalities.base import Batch, Subject
from ig2.modalities.models import default_photos
from ig2.modalities.samples import MismatchError, SampleList
from ig2.question import COUNT, Call, Inquiry, Question
from ig2.references.contrast import Contrast, check_finite
from ig2.report import Content, SkippedView, build
from ig2.report.content import Index, InputView, MethodView
from ig2.rules import Rule
from ig2.views import Picture

LONG = 20.0  # seconds, from which on a run's length is printed before it begins
# References for a quick look, not fewer steps: with 4, 3 and 2 of 6 the map of a photo has a rank correlation of 0.92 to 0.97,
# 0.84 to 0.94 and 0.80 to 0.88 with that of all; with half the steps, at the cost of 3, 0.79 to 0.83.
QUICK = 2
FINER = 2  # times as many steps and references
SHOWN_CLASSES = 3  # of references, in a line
SHOWN_INPUTS, SHOWN_SKIPPED = 5, 20  # of many


def run(options: ExplainOptions) -> None:
    """Explain the inputs; the files appear in the folder once all of them are complete."""
    language = {
        "prompt": options.prompt,
        "rather-than": options.rather_than,
        "generate": options.generate,
        "chat": options.chat,
        "precision": options.precision,
    }
    for name, value in language.items():
        if value:
            raise ChoiceError(f"--{name} is for a language model: name one with --lm, for example --lm smollm2")
    sources = list_files(options.files, options.out, options.skip_bad)
    modality = find_modality(sources, options.texts, options.rows)
    others = [name.strip() for name in (options.compare or "").split(",") if name.strip()]
    methods = find_methods([options.method or "ig2", *others], modality)
    rule = find_rule(options.rule, methods)
    # a missing file is one more that cannot be read
    skips_files = not modality.has_many and (options.skip_bad or len(sources) > MANY)
    for name in ("scale", "at"):
        if getattr(options, name) is not None and not modality.has_places:
            raise ChoiceError(f"--{name} {getattr(options, name)} is for photos, and these are {modality.nouns}: omit it")
    for path in (*(() if skips_files else sources), *filter(None, [options.references])):
        check_exists(path)
    with files.draft_folder(options.out) as draft, show_progress(options.quiet, keep=True) as watch:
        watch("model")
        device = find_device(options.device)
        described_by = [] if options.references is None else [options.references]
        subject = load_model(options, modality, [*described_by, *sources]).to(device).keep()
        if options.method is None and options.rule is None and options.at is None:
            methods = find_methods([*subject.default_methods, *others], modality)
        check_gradients(methods, subject)
        question = parse_question(subject, options.target, options.against, options.count, options.seed)
        try:
            inputs, skipped = open_inputs(subject, sources, options.texts, options.rows)
            is_many = len(inputs.chosen) > MANY
            if is_many:
                check_fit(inputs)
            batch, bad = (None, ()) if is_many else read_all(subject, inputs, options.skip_bad)
        except MismatchError as error:
            if options.model is not None:
                raise
            raise InputError(f"{error}. The default model is {subject.name}: name your own model with --model") from error
        names = () if batch is None else batch.names
        pictures, numbers = files.name_pictures(names, modality), list(files.name_numbers(methods).values())
        files.check_replaceable(
            options.out, [files.REPORT, files.SUMMARY, *(files.FOLDERS if is_many else (*pictures, *numbers))]
        )
        skipped = (*skipped, *bad)
        if options.references is not None:
            references, bad_references = read_references(subject, options.references, options.seed, options.skip_bad)
            question, skipped = replace(question, references=references), (*skipped, *bad_references)
        inquiry, announced = Inquiry(question, subject), options.quiet

        def explain_batch(batch: Batch, watch: Watch = ignore_progress) -> tuple[Explanation, Content]:
            nonlocal announced
            share = len(batch) / len(inputs.chosen)
            announce = None if announced else lambda seconds, paths: announce_cost(seconds / share, paths)
            announced = True
            explanation = attribute(inquiry, batch, methods, watch, options.steps, rule, options.at, announce)
            title = f"What {subject.name} went by"
            scale = subject.scale if options.scale is None else options.scale
            return explanation, build_content(explanation, title, options.seed, skipped, scale)

        if batch is None:
            index, store = explain_many(
                options, subject, methods, inputs, question, explain_batch, list_versions(options.seed), skipped, draft,
                device, watch,
            )  # fmt: skip
            least = list_least_trusted(store, methods, SHOWN_INPUTS)
        else:
            explanation, content = explain_batch(batch, watch)
            watch("pictures")
            summaries = files.write_pictures_and_numbers(draft, options.out, explanation, content, pictures)
            settings = {title: attribution.settings for title, attribution in explanation.attributions.items()}
            files.write_report_and_summary(draft, options.out, content, summaries, settings)
    if batch is None:
        print_index(index, least, methods, options)
    else:
        print_result(explanation, content, question, options, pictures, numbers)
    if options.open_report:
        webbrowser.open((options.out / files.REPORT).absolute().as_uri())


def check_fit(inputs: SampleList) -> None:
    """Check by the first of many inputs that they are what the model takes; one that cannot be read is skipped later.

    Raises:
        MismatchError: if they are not, such as a table that lacks columns.
    """
    try:
        inputs.read(inputs.chosen[:1])
    except MismatchError:
        raise
    except InputError:
        pass


def parse_question(subject: Subject, target: str, against: str | None, count: int | None, seed: int) -> Question:
    """Return the question of a command line.

    Raises:
        InputError: if a class does not exist, or is to be explained against itself.
    """
    wanted, others = None if target == "auto" else subject.index(target), parse_against(subject, against)
    if isinstance(others, list) and wanted in others[0]:
        raise InputError(f"--against {against} names {subject.label(wanted)!r}, the class of --target: choose another")
    return Question(wanted, others, None, count, seed)


def parse_against(subject: Subject, wanted: str | None) -> list[list[int]] | str | None:
    """Return the classes that are explained against, as a question takes them.

    Raises:
        ChoiceError: if the model's outputs are no classes of which one is right.
    """
    if wanted is None or wanted == "others":
        return "auto" if wanted is None else None
    if subject.outputs != "classes":
        what = "predicts plain numbers" if subject.outputs == "numbers" else "has independent labels"
        raise ChoiceError(f"--against {wanted}: {subject.name} {what}, so no class excludes another: omit it")
    if len(subject.classes or ("", "")) == 1:
        raise InputError(f"--against {wanted}: {subject.name} has a single output, and so no other class: omit it")
    if wanted == "next":
        return "next"
    names = [wanted] if wanted in (subject.classes or ()) else wanted.split(",")
    return [list(dict.fromkeys(subject.index(name) for name in names))]


@dataclass(frozen=True, eq=False)
class Explanation:
    """A batch, and the calls and attributions of the methods by their titles."""

    subject: Subject
    batch: Batch
    methods: tuple[Entry, ...]
    scores: Tensor
    calls: dict[str, Call]
    attributions: dict[str, Attribution]

    @property
    def contrasts(self) -> dict[str, Contrast]:
        """The references of the methods that say what the output is at each."""
        return {
            title: call.contrast
            for title, call in self.calls.items()
            if call.contrast is not None and says_where(self.attributions[title])
        }


def says_where(attribution: Attribution) -> bool:
    """Return whether an attribution has the output at each reference; that of Occlusion has none."""
    return attribution.baseline_outputs is not None or attribution.output_curve is not None


def attribute(
    inquiry: Inquiry,
    batch: Batch,
    methods: Sequence[Entry],
    watch: Watch,
    steps: int = 50,
    rule: Rule | None = None,
    at: str | None = None,
    announce: Callable[[float, int], None] | None = None,
) -> Explanation:
    """Run every method on the batch.

    Args:
        inquiry: the question, put to the model.
        batch: the inputs.
        methods: the methods.
        watch: reports the progress of each.
        steps: steps of each path.
        rule: for the methods that take one; by default each has its own.
        at: the layer they attribute to, shown on the input; by default they attribute to the input.
        announce: called with the seconds that the path methods and Turns will take, before they
            begin, and with the number of references.

    Raises:
        ModelError: if the model's answer to an input is not finite.
    """
    subject = inquiry.subject
    watch("references")
    calls = {named.title: inquiry.pose(make_method(named, subject, batch, steps, rule), batch) for named in methods}
    scores = inquiry.scores(batch)
    check_finite(subject, batch.names, scores)
    if announce is not None:
        counts = [len(row) for call in calls.values() if call.contrast for row in call.contrast.names]
        announce(sum(call.estimate() for call in calls.values()), max(counts, default=1))
    attributions: dict[str, Attribution] = {}
    for title, call in calls.items():
        method = call.method
        attribution = call.run(
            progress=watch(title),
            curves=method.follows_paths,
            per_reference=method.follows_paths and call.contrast is not None and not isinstance(method, ig2.GradCFE),
            at=at,
        )
        attribution = attribution if at is None else attribution.on_input()
        attributions[title] = call.name(attribution.to("cpu"))
    return Explanation(subject, batch, tuple(methods), scores, calls, attributions)


def _takes_pool(subject: Subject) -> bool:
    """Whether references come from the photos of the demo, which can be fetched, and the model knows their classes."""
    return subject.samples is default_photos and len(pool.list_classes().intersection(subject.classes or ())) > 1


def build_content(
    explanation: Explanation, title: str, seed: int, skipped: Sequence[SkippedView] = (), scale: float = 0.0
) -> Content:
    """Return the content of the report, with the inputs that were skipped."""
    content = build(
        title, explanation.subject, explanation.batch, explanation.attributions,
        explanation.contrasts, list_versions(seed), scale, explanation.scores,
    )  # fmt: skip
    return replace(content, skipped=tuple(skipped))


def list_versions(seed: int) -> dict[str, str]:
    now = f"{datetime.now():%Y-%m-%d %H:%M}"
    return {"made": now, "ig2": ig2.__version__, "torch": torch.__version__, "seed": str(seed)}


def announce_cost(seconds: float, count: int) -> None:
    """Print how long a run will take, if it is long, and what is quicker."""
    if seconds < LONG:
        return
    unit, size = next((unit, size) for unit, size in (("s", 1), ("min", 60), ("h", 3600)) if seconds < 90 * size or unit == "h")
    print_error(f"about {seconds / size:.0f} {unit}" + (f"; --count {QUICK} for a quick look" if count > QUICK else ""))


def print_result(
    explanation: Explanation,
    content: Content,
    question: Question,
    options: ExplainOptions,
    pictures: Sequence[str],
    numbers: Sequence[str],
) -> None:
    """Print each input's prediction, how far the methods account for them, and where the files are."""
    console, out = open_console(), options.out
    width = INDENT + max(len(label) for label in ("prediction", *explanation.attributions))
    for i, (view, picture) in enumerate(zip(content.inputs, pictures, strict=True)):
        print_heading(console, view.name)
        print_line(console, "prediction", files.format_class(view.prediction, view.probability), width)
        print_line(console, "explained", view.asked, width)
        for shown in view.methods:
            if shown.question:  # of its own
                print_line(console, shown.name, f"explains {shown.question}", width)
        if explanation.contrasts:
            print_line(console, "references", describe_references(explanation, i, options.references), width)
        print_answer(console, view, width, content.scale)
        for shown in view.methods:
            if isinstance(view.view, Picture) and shown.is_against:  # which a picture of strength alone does not show
                print_line(console, shown.name, explain_opposition(view, shown), width)
        print_path(console, "  picture", out / picture, INDENT + width)
        console.print()
    _print_verdicts(console, content, explanation.methods, options, width)
    if any(method.takes_rule for method in explanation.methods):
        print_line(console, "finer", suggest_finer(explanation, options), width)
    console.print()
    _print_skipped(console, content)
    for number, name in enumerate((files.SUMMARY, *numbers)):
        print_path(console, "" if number else "numbers", out / name, INDENT + width)
    print_path(console, "report", out / files.REPORT, INDENT + width)
    offer_pool(explanation, question)


def explain_opposition(view: InputView, shown: MethodView) -> str:
    """Return that all of a map speaks against the class, why it does, and what explains that class by itself."""
    words = f"all of it speaks against {view.target}"
    if not shown.numbers["output"] < shown.numbers.get("baseline_output", -math.inf):
        return words
    there = "references" if shown.references else "baseline"
    words += f", since the explained output is lower at the input than at the {there}"
    return f"{words}; --against others explains {view.target} by itself" if view.contrasted else words


def print_index(index: Index, least: Sequence[str], methods: Sequence[Entry], options: ExplainOptions) -> None:
    """Print how many inputs were explained, how far the methods account for them, and where the files are."""
    console, out = open_console(), options.out
    width = INDENT + max(len(label) for label in ("least trusted", *(method.title for method in methods)))
    print_heading(console, count_words(index))
    if least:
        print_line(console, "least trusted", ", ".join(least), width)
    console.print()
    _print_verdicts(console, index, methods, options, width)
    console.print()
    _print_skipped(console, index)
    for label, name in (("numbers", files.STORE), ("", files.SUMMARY), ("pictures", files.PICTURES), ("report", files.REPORT)):
        print_path(console, label, out / name, INDENT + width)


def _print_verdicts(
    console: Console, page: Content | Index, methods: Sequence[Entry], options: ExplainOptions, width: int
) -> None:
    print_heading(console, "how far to believe it")
    verdicts = page.verdicts
    for method in methods:
        finer = FINER * options.steps if method.takes_rule else None
        print_verdict(console, method.title, verdicts[method.title], width, finer)


def _print_skipped(console: Console, page: Content | Index) -> None:
    if page.skipped:
        print_heading(console, "skipped")
        for line in first_lines(page.skipped, SHOWN_SKIPPED):
            print_line(console, "", line, 0)
        console.print()


def describe_references(explanation: Explanation, i: int, source: Path | None) -> str:
    """Return which references an input had, and why, in a line."""
    contrast = next(iter(explanation.contrasts.values()))
    origin = f"the samples of {explanation.subject.name}" if source is None else str(source)
    if source is None and _takes_pool(explanation.subject):
        fetched, there = "the ImageNet photos", "photos that come with packages"
        origin = fetched if pool.DATASET.is_fetched else there
    shown = list(dict.fromkeys(contrast.labels[i]))
    classes = ", ".join(shown[:SHOWN_CLASSES]) + ", …" * (len(shown) > SHOWN_CLASSES)
    return f"{len(contrast.labels[i])} from {origin} ({classes}): {contrast.why[i]}"


def offer_pool(explanation: Explanation, question: Question) -> None:
    """Print how to get photos of classes that no reference is of, and that some can be fetched of."""
    subject, found = explanation.subject, explanation.attributions.values()
    if question.references is not None or not _takes_pool(subject) or pool.DATASET.is_fetched:
        return
    contrast = next(iter(explanation.contrasts.values()), None)
    if contrast is None or question.against is None:
        return
    target, wanted = next(iter(found)).target, question.against
    wanted = "next" if isinstance(wanted, str) else wanted
    rows = torch.arange(len(target))
    against = choose_against(wanted, target, explanation.scores, rows).tolist()
    lacking = [
        name
        for row, labels in zip(against, contrast.labels, strict=True)
        for name in map(subject.label, row)
        if name not in labels and name in pool.list_classes()
    ]
    if lacking:
        data = pool.DATASET
        size = sum(file.size or 0 for file in data.files) / 1e6
        print_error(
            f"for references of {quote_names(list(dict.fromkeys(lacking)), 3)}, run "
            f"ig2 data fetch {data.name} once ({len(data.files)} photos, {size:.0f} MB)"
        )


def suggest_finer(explanation: Explanation, options: ExplainOptions) -> str:
    """Return the options for a finer map: more references, unless there are no more, and more steps."""
    had = [len(labels) for contrast in explanation.contrasts.values() for labels in contrast.labels]
    wanted = options.count or COUNT
    count = f" --count {FINER * wanted}" if had and max(had) == wanted else ""
    return f"--steps {FINER * options.steps}{count}, for {FINER ** (2 if count else 1)} times as long"
