"""`ig2 explain`: read, attribute, draw, write, tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ig2.adapters.loading import load_subject
from ig2.adapters.tabular import MissingColumnsError
from ig2.benchmarks.suite import no_such_device
from ig2.cli.attributing import attribute, content_of
from ig2.cli.reading import check_there, kind_of, read, read_pool
from ig2.cli.recipes import Misuse, chosen_rule, recipes
from ig2.cli.telling import bars, tell
from ig2.cli.writing import REPORT, SUMMARY, check_free, drafts, pictures_of, write
from ig2.errors import InputError


@dataclass(frozen=True)
class Request:
    """What was asked for, as it was typed."""

    files: tuple[Path, ...]
    texts: tuple[str, ...]
    model: str | None
    trust: bool
    methods: tuple[str, ...]
    target: str
    references: Path | None
    count: int
    steps: int
    rule: str | None
    rows: str | None
    out: Path
    seed: int
    device: str
    quiet: bool
    skip_bad: bool = False


def run(request: Request) -> None:
    """Do what was asked; files appear in the folder once all of them are there."""
    kind = kind_of(request.files, request.texts, request.rows)
    methods = recipes(request.methods, kind)
    rule = chosen_rule(request.rule, methods)
    device = _device(request.device)
    skips_files = request.skip_bad and kind == "image"  # one that is missing is one more that cannot be read
    for path in (*(() if skips_files else request.files), *([] if request.references is None else [request.references])):
        check_there(path)
    with drafts(request.out) as draft, bars(request.quiet) as watch:
        watch("model")
        subject = load_subject(request.model, kind, trust=request.trust).to(device)
        target = None if request.target == "auto" else subject.index(request.target)
        try:
            batch, skipped = read(subject, request.files, request.texts, request.rows, request.skip_bad)
        except MissingColumnsError as error:
            if request.model is not None:
                raise
            raise InputError(
                f"{error}. Without --model the built-in {subject.name} was taken, which tells tumours apart: name your own "
                "network with --model"
            ) from error
        check_free(
            request.out,
            [REPORT, SUMMARY, *pictures_of(batch.names, kind), *(f"{method.name}.safetensors" for method in methods)],
        )
        pool = None
        if request.references is not None:
            pool, skipped_references = read_pool(subject, request.references, request.seed, request.skip_bad)
            skipped += skipped_references
        explained = attribute(
            subject,
            batch,
            methods,
            watch,
            target=target,
            pool=pool,
            count=request.count,
            steps=request.steps,
            rule=rule,
            seed=request.seed,
        )
        watch("pictures")
        content = content_of(explained, f"What {subject.name} went by", request.seed, skipped)
        write(draft, request.out, explained, content)
    tell(explained, content, request.out)


def _device(wanted: str) -> torch.device:
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise Misuse(f"--device {wanted}: {no_such_device()}") from error
    return device
