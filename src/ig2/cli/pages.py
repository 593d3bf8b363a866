"""What `ig2 explain` makes of its run besides rows: a picture of each input, and its part of the report."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import torch
from torch import Tensor

import ig2
from ig2._utils.files import write_file
from ig2.attribution import Attribution
from ig2.cli import files
from ig2.cli.output import Watch, ignore_progress
from ig2.methods.catalogue import Entry
from ig2.modalities.base import Batch, Subject
from ig2.question import Call
from ig2.references.contrast import Contrast, check_finite
from ig2.report import Content, build
from ig2.report.encoding import encode_thumbnail
from ig2.report.page import render_details
from ig2.runs.plan import Showing
from ig2.runs.rows import Cells

JSON_COLUMNS = ("summary", "entry", "settings")  # of a row, for the report


@dataclass(frozen=True, eq=False)
class Explained:
    """A batch, and the calls and attributions of the methods by their titles."""

    subject: Subject
    batch: Batch
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

    def build(self, seed: int, scale: float = 0.0) -> Content:
        """Return the content of the report."""
        title = f"What {self.subject.name} went by"
        details = list_versions(seed)
        return build(title, self.subject, self.batch, self.attributions, self.contrasts, details, scale, self.scores)


def says_where(attribution: Attribution) -> bool:
    """Return whether an attribution has the output at each reference; that of Occlusion has none."""
    return attribution.baseline_outputs is not None or attribution.output_curve is not None


def list_versions(seed: int) -> dict[str, str]:
    """Return what the foot of a report says."""
    now = f"{datetime.now():%Y-%m-%d %H:%M}"
    return {"made": now, "ig2": ig2.__version__, "torch": torch.__version__, "seed": str(seed)}


def answer(
    calls: Mapping[str, Call],
    watch: Watch = ignore_progress,
    at: str | None = None,
    announce: Callable[[float, int], None] | None = None,
) -> Explained:
    """Make the calls of a batch.

    Args:
        calls: a call of each method, by its title.
        watch: reports the progress of each.
        at: the layer they attribute to, shown on the input; by default they attribute to the input.
        announce: called with the seconds that the path methods and Turns will take, before they
            begin, and with the number of references.

    Raises:
        ModelError: if the model's answer to an input is not finite.
    """
    first = next(iter(calls.values()))
    assert first.inquiry is not None and first.batch is not None
    subject, batch, scores = first.inquiry.subject, first.batch, first.inquiry.scores(first.batch)
    check_finite(subject, batch.names, scores)
    if announce is not None:
        counts = [len(row) for call in calls.values() if call.contrast for row in call.contrast.names]
        announce(sum(call.estimate() for call in calls.values()), max(counts, default=1))
    attributions = {}
    for title, call in calls.items():
        follows = call.method.follows_paths
        attribution = call.run(
            progress=watch(title),
            curves=follows,
            per_reference=follows and call.contrast is not None and not isinstance(call.method, ig2.GradCFE),
            at=at,
        )
        attribution = attribution if at is None else attribution.on_input()
        attributions[title] = call.name(attribution.to("cpu"))
    return Explained(subject, batch, scores, dict(calls), attributions)


@dataclass(eq=False)
class Pages(Showing):
    """Draws the inputs of a run, and collects what the report says of them.

    Args:
        methods: the methods, in the order of the run's.
        pictures: the file of each input's picture, by its name.
        folder: where the pictures are.
        seed: of the question.
        scale: the pixels that maps are blurred by.
        keeps: whether all that is explained is kept for the report; otherwise each input's part is
            in a file, and numbers are in the store alone.
        watch: reports the progress of each method.
        at: the layer attributed to.
        announce: as for `answer`, called once, with the share of the inputs in the first batch.
    """

    methods: Sequence[Entry]
    pictures: Mapping[str, str]
    folder: Path
    seed: int
    scale: float
    keeps: bool
    watch: Watch = ignore_progress
    at: str | None = None
    announce: Callable[[float, int], None] | None = None
    parts: list[tuple[Explained, Content]] = field(default_factory=list)
    """What was explained, batch by batch, if it is kept."""
    _part: Explained | None = None

    def explain(self, batch: Batch, calls: Mapping[str, Call]) -> dict[str, Attribution]:
        titled = {entry.title: call for entry, call in zip(self.methods, calls.values(), strict=True)}
        announce, self.announce = self.announce, None
        share, watch = len(batch) / len(self.pictures), self.watch if self.keeps else ignore_progress
        self._part = answer(
            titled,
            watch,
            self.at,
            None if announce is None else lambda seconds, paths: announce(seconds / share, paths),
        )
        return dict(zip(calls, self._part.attributions.values(), strict=True))

    def describe(self, batch: Batch, calls: Mapping[str, Call], attributions: Mapping[str, Attribution]) -> dict[str, Cells]:
        part = self._part
        assert part is not None
        if self.keeps:
            self.watch("pictures")
        content, before = part.build(self.seed, self.scale), sum(len(each.batch) for each, _ in self.parts)
        settings = {title: attribution.settings for title, attribution in part.attributions.items()}
        texts: dict[str, list[bytes]] = {name: [] for name in JSON_COLUMNS}
        for i, view in enumerate(content.inputs):
            picture = self.pictures[view.name]
            details = f"{files.DETAILS}/{Path(picture).stem}.js"
            entry = {
                "view": view.view.name,
                "target": view.target,
                "thumbnail": encode_thumbnail(view.view),
                "file": details,
            }
            summary = files.summarise_methods(
                view, int(next(iter(part.attributions.values())).target[i]),
                picture if self.keeps else f"{files.PICTURES}/{picture}", self._find_numbers(calls, before + i),
            )  # fmt: skip
            drawing = io.BytesIO()
            files.draw_input(view, self.scale, part.subject.scale).savefig(drawing, bbox_inches="tight", dpi=150)
            if self.keeps:
                write_file(self.folder / picture, drawing.getvalue())
            else:
                write_file(self.folder / files.PICTURES / picture, drawing.getvalue())
                script = render_details(view, details, self.scale).encode("utf-8", "replace")
                write_file(self.folder / details, script)
            for name, cell in zip(JSON_COLUMNS, (summary, entry, settings), strict=True):
                texts[name].append(json.dumps(cell, default=str).encode())
        if self.keeps:
            self.parts.append((part, content))
        return dict(texts)

    def _find_numbers(self, calls: Mapping[str, Call], row: int) -> dict[str, dict[str, object]]:
        """Return where the numbers of an input are, by the title of each method."""
        if self.keeps:
            return {title: {"file": file, "row": row} for title, file in files.name_numbers(self.methods).items()}
        columns = [f"values_{name}" if name else "values" for name in calls]
        return {
            entry.title: {"file": files.STORE, "column": column} for entry, column in zip(self.methods, columns, strict=True)
        }

    def join(self) -> Content:
        """Return the content of the whole report, of what was kept."""
        contents = [content for _, content in self.parts]
        return replace(contents[0], inputs=tuple(view for content in contents for view in content.inputs))

    def save(self, folder: Path) -> None:
        """Write the numbers of what was kept, a file for each method."""
        for title, name in files.name_numbers(self.methods).items():
            found = [part.attributions[title] for part, _ in self.parts]
            (found[0] if len(found) == 1 else Attribution.join(found)).save(folder / name)
