"""`ig2 explain --lm`: why a language model says one word rather than another."""

from __future__ import annotations

import json
import shlex
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import ig2
from ig2 import modalities
from ig2._utils.devices import find_device
from ig2._utils.suggestions import ChoiceError
from ig2.cli import files
from ig2.cli.inputs import check_exists
from ig2.cli.methods import TypedMethod, find_methods, find_rule, rule_for
from ig2.cli.options import ExplainOptions
from ig2.cli.output import INDENT, open_console, print_heading, print_line, print_path, print_verdict, show_progress
from ig2.cli.pages import list_versions
from ig2.cli.results import FINER, announce_cost
from ig2.cli.streams import one_line
from ig2.methods.catalogue import METHODS, Entry, Facts
from ig2.modalities.text.modality import TEXTS, read_lines
from ig2.report import build_language
from ig2.report import write as write_report
from ig2.rules import Rule
from ig2.verdict import judge

PICTURE = "prompt.png"
LIKELY = 3  # next tokens that are printed


def run(options: ExplainOptions) -> None:
    """Explain one prompt; the files appear in the folder once all of them are complete."""
    _check(options)
    assert options.lm is not None and options.prompt is not None
    (named,) = find_methods([options.method or type(modalities.language.LanguageModel.default_method).__name__.lower()], TEXTS)
    rule = find_rule(options.rule, [named])
    prepare = ig2.Preparation(precision=options.precision)
    listed = None if options.references is None else Path(options.references)
    if listed is not None:
        check_exists(listed)
    with files.draft_folder(options.out) as draft, show_progress(options.quiet, keep=True) as watch:
        watch("model")
        model = modalities.language.load(options.lm, prepare=prepare).to(find_device(options.device))
        prompt: Any = [{"role": "user", "content": options.prompt}] if options.chat else options.prompt
        pair: Any = options.rather_than
        if pair is not None and options.chat:
            pair = [{"role": "user", "content": pair}]
        rather_than = modalities.language.OtherPrompts(*read_lines(listed)) if listed is not None else pair
        method = _make_method(named, options.steps, rule, model.read(prompt).word)
        numbers = f"{named.name}.safetensors"
        files.check_replaceable(options.out, [files.REPORT, files.SUMMARY, PICTURE, numbers])
        generated = None if options.generate is None else model.generate_tokens(prompt, options.generate)
        arguments = (
            prompt,
            generated if generated is not None else None if options.target == "auto" else options.target,
            {None: "auto", "others": None}.get(options.against, options.against),
            rather_than,
            method,
        )
        asking = modalities.language.Asking(each=generated is not None)
        call = model.pose(*arguments, asking=asking, seed=options.seed)
        if isinstance(method, ig2.PathMethod) and not options.quiet:
            announce_cost(call.estimate(), 0)
        explanation = call.explain(
            progress=watch(named.title),
            curves=method.follows_paths,
            per_reference=method.follows_paths and method.needs_references,
        )
        likely = model.predict(prompt, LIKELY) if model.predicts_tokens else []
        watch("pictures")
        explanation.plot(draft / PICTURE)
        explanation.attribution.save(draft / numbers)
        prediction = "" if options.generate else _format_likely(likely)
        title = f"What {explanation.attribution.settings['lm']} went by"
        content = build_language(title, explanation, prediction, list_versions(options.seed), named.title)
        write_report(content, draft / files.REPORT)
        _write_summary(draft, explanation, [PICTURE, numbers, files.REPORT])
    _print_result(explanation, likely, options, named)
    if options.open_report:
        webbrowser.open((options.out / files.REPORT).absolute().as_uri())


@dataclass(frozen=True)
class TypedPromptMethod(TypedMethod):
    """A method as it was typed, made for each prompt of a run."""

    def __call__(self, subject: modalities.language.LanguageModel, batch: modalities.language.Prompt) -> ig2.Method:
        entry = METHODS[self.name]
        return _make_method(entry, self.steps, find_rule(self.rule, [entry]), batch.word)


def _make_method(entry: Entry, steps: int, rule: Rule | None, words: Sequence[int]) -> ig2.Method:
    """Make a method with each word as one feature; IG² with the distance of language models."""
    groups = torch.tensor(words)[:, None]
    facts = Facts(images=False, steps=steps, straight=steps, guided=steps, groups=groups)
    distance = {"distance": ig2.paths.cosine} if entry.type is ig2.IG2 else {}
    return entry.make(facts, **distance, **rule_for(entry, rule))


def _check(options: ExplainOptions) -> None:
    """Refuse what does not go with a language model."""
    if options.prompt is None:
        raise ChoiceError("--lm needs a prompt: add --prompt '…', the text for the model to continue")
    others = {
        "FILE": options.files, "--text": options.texts, "--model": options.model, "--compare": options.compare,
        "--rows": options.rows, "--scale": options.scale,
    }  # fmt: skip
    for name, value in others.items():
        if value:
            raise ChoiceError(f"{name} does not apply to a language model, which explains its --prompt: omit it")
    if options.generate is not None and options.target != "auto":
        raise ChoiceError(f"--generate makes the target, and --target {options.target} is one: omit one of the two")
    if options.references is not None and options.rather_than is not None:
        raise ChoiceError("--rather-than is one reference prompt, and --references a file of them: omit one of the two")


def _write_summary(draft: Path, explanation: modalities.language.Explanation, names: list[str]) -> None:
    attribution = explanation.attribution
    content = {
        "made_by": f"ig2 {ig2.__version__}",
        "files": [*names, files.SUMMARY],
        "prompt": explanation.prompt.text,
        "targets": [
            {
                "explained": explained,
                "output": float(output),
                "sentence": sentence,
                "words": [
                    {"word": word, "score": float(score)} for word, score in zip(explanation.prompt.words, scores, strict=True)
                ],
            }
            for explained, output, sentence, scores in zip(
                explanation.explained, attribution.output, explanation.sentences, explanation.word_scores, strict=True
            )
        ],
        "spans": {name: scores.tolist() for name, scores in explanation.span_scores.items()},
        "verdict": attribution.verdict,
        "settings": attribution.settings,
    }
    (draft / files.SUMMARY).write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")


def _format_likely(likely: list[tuple[str, float]]) -> str:
    return ", ".join(f"{text!r} {files.format_share(share)}" for text, share in likely)


def _print_result(
    explanation: modalities.language.Explanation, likely: list[tuple[str, float]], options: ExplainOptions, named: Entry
) -> None:
    console, attribution = open_console(), explanation.attribution
    width = INDENT + len("prediction")
    print_heading(console, shlex.quote(one_line(options.prompt)))
    if likely:
        print_line(console, "prediction", _format_likely(likely), width)
    for number, sentence in enumerate(explanation.sentences):
        print_line(console, "" if number else "explained", sentence, width)
    references = attribution.settings["rather_than"]
    note = f" ({attribution.note})" if attribution.note else ""
    if references:
        print_line(console, "references", "; ".join(map(repr, references)) + note, width)
    for number, (name, scores) in enumerate(explanation.span_scores.items()):
        label = "" if number else "spans"
        print_line(console, label, f"{name}: {', '.join(f'{score:+.2f}' for score in scores)}", width)
    if console.is_terminal and not console.no_color and console.color_system in ("256", "truecolor"):
        for line in explanation.to_ansi().splitlines():
            console.file.write(" " * INDENT + line + "\n")
    console.print()
    print_heading(console, "how far to believe it")
    finer = FINER * options.steps if named.takes_rule else None
    print_verdict(console, attribution.settings["method"], judge(attribution), width, finer, "target")
    console.print()
    numbers = f"{named.name}.safetensors"
    for label, name in (("picture", PICTURE), ("numbers", numbers), ("", files.SUMMARY), ("report", files.REPORT)):
        print_path(console, label, options.out / name, INDENT + width)
