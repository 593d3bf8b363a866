"""The runner of suites: it scores every method on every part, can be resumed, and builds a table."""

from __future__ import annotations

import json
import os
import platform
import random
import re
import time
import unicodedata
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

import ig2
from ig2._utils.digests import code_digest, fingerprint, key_of, place
from ig2._utils.files import check_regular, write_file
from ig2._utils.progress import Progress
from ig2._utils.suggestions import ChoiceError, find_close, suggest
from ig2.errors import IG2Warning, InputError, describe, format_count, reason
from ig2.methods.base import summary
from ig2.table import Row, spread
from ig2_bench.store import Cell, Cells, no_empty_folder
from ig2_bench.suite import BenchOptions, MethodLike, Suite, add_scales, find_suite
from ig2_bench.table import MADE_BY, Fact, Failure, Table, merge_environments

PREPARING, FACTS = "preparing", "facts"  # kinds of work beside the methods


@dataclass(frozen=True)
class Step:
    """The progress of a run."""

    done: int
    """The number of pairs of part and method that are scored or failed."""
    total: int
    """The number of all pairs."""
    now: str
    """A description of the current work."""
    left: float | None
    """The estimated seconds left, from the time each method took before; None until one has finished."""
    stored: int = 0
    """The number of pairs whose scores are known; with a folder, they are stored there."""


ProgressOption = bool | Callable[[Step], object]


def run(
    suite: Suite | str,
    methods: Sequence[str] | Mapping[str, MethodLike] | None = None,
    *,
    own: Mapping[str, MethodLike] | None = None,
    out: str | PathLike[str] | None = None,
    fresh: bool = False,
    progress: ProgressOption = False,
    **options: Any,
) -> Table:
    """Score methods on a suite.

    A method that fails on a part is listed in the table's `failures`; the others continue. With a folder, every score is
    stored as soon as it is computed, so that the same call resumes an interrupted run.

    Args:
        suite: a name in `ig2_bench.SUITES`, or your own suite.
        methods: the suite's methods to run, by their labels or the first words of them, by default all; or a dict of your own
            methods, to run beside all of the suite's.
        own: your own methods by label, to run beside those chosen; one with the label of a suite's method replaces it. Each
            is called as `method(model, x, target, references, seed=...)` and returns an `Attribution` or a tensor like x.
        out: a folder for NAME.json, NAME.md and NAME.cells.jsonl; by default nothing is written.
        fresh: whether to compute scores in the folder again. Your own method is always scored again when its settings or its
            source file change, but not when other code that it calls does.
        progress: True for a progress bar, or a function called with a `Step`.
        options: for a suite given by name, any fields of `BenchOptions`: `quick=True`, `data="folder"`, `device="cuda"`, ...

    Returns:
        The table.

    Raises:
        ChoiceError: for a suite, a method or an option that does not exist.
        InputError: for data that cannot be read, or a folder that cannot be written to.
    """
    if isinstance(suite, str):
        suite = find_suite(suite, BenchOptions.parse(**options))
    elif not isinstance(suite, Suite):
        raise InputError(f"suite must be a name or a Suite, got {describe(suite)}")
    elif options:
        raise InputError(f"options are for suites with a name, yours has its own settings: omit {', '.join(options)}")
    if isinstance(methods, Mapping):
        own, methods = {**methods, **(own or {})}, None
    chosen = add_scales(choose_methods(suite, methods, own or {}), suite.scales)
    folder = None if out is None else Path(out)
    if folder is not None:
        _check_free(folder, suite.name)
    with _report_progress(progress, suite.name) as report, no_empty_folder(folder):
        work = _Run(suite, chosen, Cells(folder, suite.name), fresh, report)
        work.score_all()
        table = work.build_table()
    if folder is not None:
        write_file(folder / f"{suite.name}.json", table.to_json().encode("utf-8", "replace"))
        write_file(folder / f"{suite.name}.md", table.to_markdown().encode("utf-8", "replace"))
    return table


# -- which methods -----------------------------------------------------------------------------------------------------


def choose_methods(suite: Suite, names: Sequence[str] | None, own_methods: Mapping[str, MethodLike]) -> dict[str, MethodLike]:
    """Return the suite's methods with these names (None for all) in its order, then the user's own."""
    return select_methods(suite.methods(), names, own_methods)


def select_methods(
    suites: Mapping[str, MethodLike], names: Sequence[str] | None, own_methods: Mapping[str, MethodLike]
) -> dict[str, MethodLike]:
    """Return the methods of a suite with these names (None for all), then the user's own."""
    if isinstance(names, str):
        raise ChoiceError(f"methods must be a list of labels, got the text {describe(names)}")
    for label, method in own_methods.items():
        if not isinstance(label, str) or not label.strip() or not callable(method):
            raise ChoiceError(f"own methods must be callables by their labels, got {describe(label)}: {describe(method)}")
    known = {**suites, **own_methods}
    if names is None:
        return known
    chosen: set[str] = set()
    for name in names:
        # the suite's come first: the user's own run anyway
        labels = _find_labels(name, list(suites)) or _find_labels(name, list(known))
        if not labels:
            raise ChoiceError(f"there is no method {describe(name)}{_suggest_label(name, list(suites))}")
        chosen.update(labels)
    if not chosen and not own_methods:
        raise ChoiceError(f"no method is chosen{suggest('', known)}")
    return {label: method for label, method in known.items() if label in chosen or label in own_methods}


def _find_labels(name: str, labels: Sequence[str]) -> list[str]:
    """Return the label with this name, or those that begin with it: ig2 is IG², or else IG² (left) and IG² (shared)."""
    typed = "".join(_words(name))
    exact = [label for label in labels if label == name] or [label for label in labels if "".join(_words(label)) == typed]
    return exact[:1] or [label for label in labels if typed in _beginnings(label)]


def _suggest_label(name: str, labels: Sequence[str]) -> str:
    beginnings = {beginning: label for label in labels for beginning in _beginnings(label)}
    close = find_close("".join(_words(name)), beginnings)
    return suggest(beginnings[close[0]] if close else name, labels)


def _beginnings(label: str) -> list[str]:
    words = _words(label)
    return ["".join(words[:count]) for count in range(1, len(words) + 1)]


def _words(label: object) -> list[str]:
    """Return the words of a label without characters that are hard to type: IG² (left) is ig2 left."""
    return re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", str(label)).lower())


def _check_free(folder: Path, name: str) -> None:
    """Check that only files of an earlier run would be replaced."""
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        check_regular(folder / f"{name}.json")
        content = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        if str(content.get("made_by", "")).startswith(MADE_BY):
            return
    for path in (folder / f"{name}.json", folder / f"{name}.md"):
        if os.path.lexists(path):
            raise InputError(f"{path} exists already, and is not from an earlier run: choose another folder")


# -- the work ----------------------------------------------------------------------------------------------------------


class _Run:
    """One run: the scores so far, the failures, and the time each method takes."""

    def __init__(
        self, suite: Suite, methods: Mapping[str, MethodLike], cells: Cells, fresh: bool, report: Callable[[Step], object]
    ) -> None:
        self.suite, self.methods, self.cells, self.report = suite, methods, cells, report
        self.data, digest = suite.describe_data(), suite.digest_data()
        self.environment = {**describe_environment(suite.device), **({"data": digest} if digest else {})}
        self.failures: list[Failure] = []
        common = self.common = ig2.__version__, suite.name, suite.version, fingerprint(suite.identity()), self.data, digest
        prints: dict[str | None, Any] = {label: fingerprint(method) for label, method in methods.items()}
        if type(suite).facts is not Suite.facts:
            prints = {None: None, **prints}
        # the key of each pair of part and method; None is no method but the facts about the part
        self.keys = {(part, label): key_of(common, part, label, prints[label]) for part in suite.parts() for label in prints}
        if fresh:
            cells.forget(self.keys.values())
        self.reported: tuple[int, str] | None = None
        self.seconds: dict[str, list[float]] = {}  # of each kind of work
        for (_, label), key in self.keys.items():
            if key in cells.known:
                self.seconds.setdefault(_kind(label), []).append(cells.known[key].seconds)

    def score_all(self) -> None:
        unscored = [part for (part, _), key in self.keys.items() if key not in self.cells.known]
        if unscored:
            self._report(unscored[0], PREPARING)
            with _seed_globally(key_of(self.common)):
                self.suite.check()
            self._forget_other_networks()
        for part in self.suite.parts():
            missing = [label for (where, label), key in self.keys.items() if where == part and key not in self.cells.known]
            if not missing:
                continue
            self._report(part, PREPARING)
            start = time.perf_counter()
            try:
                with _seed_globally(key_of(self.common, part)):
                    prepared = self.suite.prepare(part)
            except Exception as error:
                self.failures.append(Failure(part, None, reason(error), error))
                continue
            self.seconds.setdefault(PREPARING, []).append(time.perf_counter() - start)
            for label in missing:
                self._score(part, label, prepared)
        self._report("", "")

    def _forget_other_networks(self) -> None:
        """Drop the scores of a network trained elsewhere, which are not comparable with those of this one."""
        network, known = self.suite.digest_network(), self.cells.known
        if network:
            self.environment["network"] = network
            stored = [key for key in self.keys.values() if key in known]
            self.cells.forget([key for key in stored if known[key].environment.get("network") != network])

    def _score(self, part: str, label: str | None, prepared: Any) -> None:
        kind = _kind(label)
        self._report(part, kind)
        start = time.perf_counter()
        try:
            with _seed_globally(key_of(self.common, part)), _record_warnings() as warned:
                if label is None:
                    scores = self.suite.facts(part, prepared)
                else:
                    scores = self.suite.score(part, prepared, self.methods[label])
                    _check_known(scores, self.suite)
                values = {name: [float(value) for value in numbers] for name, numbers in scores.items()}
        except Exception as error:
            self.failures.append(Failure(part, kind, reason(error), error))
            return
        seconds = time.perf_counter() - start
        self.seconds.setdefault(kind, []).append(seconds)
        self.cells.add(self.keys[part, label], Cell(part, label, values, seconds, self.environment, warned))

    def _report(self, part: str, kind: str) -> None:
        failed = {(failure.part, failure.method) for failure in self.failures}
        missing = [
            (where, _kind(label))
            for (where, label), key in self.keys.items()
            if key not in self.cells.known and not failed & {(where, None), (where, _kind(label))}
        ]
        done, now = len(self.keys) - len(missing), f"{part}: {kind}" if part else ""
        if (done, now) != self.reported:
            self.reported = done, now
            stored = sum(key in self.cells.known for key in self.keys.values())
            self.report(Step(done, len(self.keys), now, self._seconds_left(missing, part, kind), stored))

    def _seconds_left(self, missing: Sequence[tuple[str, str]], part: str, now: str) -> float | None:
        means = {kind: fmean(seconds) for kind, seconds in self.seconds.items()}
        preparing = means.pop(PREPARING, 0.0)
        if not means:
            return None
        unprepared = {where for where, _ in missing} - (set() if now == PREPARING else {part})
        return sum(means.get(kind, fmean(means.values())) for _, kind in missing) + len(unprepared) * preparing

    def build_table(self) -> Table:
        cells = {where: self.cells.known[key] for where, key in self.keys.items() if key in self.cells.known}
        by_label = {label: [cell for (_, whose), cell in cells.items() if whose == label] for label in (None, *self.methods)}
        paper, metrics = self.suite.paper(), self.suite.metrics()
        rows = []
        for label in self.methods:
            for metric, column in metrics.items():
                values = tuple(value for cell in by_label[label] for value in cell.values.get(metric, ()))
                figure = paper.get(label, {}).get(metric)
                rows.append(Row(label, metric, **spread(values), better=column.better, paper=figure, values=values))
        facts: dict[str, list[float]] = {}
        for cell in by_label[None]:
            for name, numbers in cell.values.items():
                facts.setdefault(name, []).extend(numbers)
        environments = [cell.environment for cell in cells.values()]
        codes = len({environment.get("code", "") for environment in environments})
        mixed = [f"these scores are of {codes} states of ig2's code: fresh (--fresh) scores all again"] if codes > 1 else []
        return Table(
            **{name: getattr(self.suite, name) for name in ("title", "unit", "shows", "ranked", "quick")},
            suite=self.suite.name,
            data=self.data,
            settings=self.suite.settings(),
            environment=merge_environments(*environments) or self.environment,
            methods={label: _describe_method(method) for label, method in self.methods.items()},
            metrics=dict(metrics),
            rows=tuple(rows),
            facts=tuple(Fact(name, **spread(numbers)) for name, numbers in facts.items()),
            failures=tuple(self.failures),
            notes=(
                *mixed,
                *(_first_warning(label, group) for label, group in by_label.items() if any(c.warnings for c in group)),
            ),
        )


def _kind(label: str | None) -> str:
    """Return the kind of work of a cell."""
    return FACTS if label is None else label


def _check_known(scores: Any, suite: Suite) -> None:
    known = suite.metrics()
    for label in scores:
        if label not in known:
            raise InputError(f"{suite.name} scored {describe(label)}, which is not among its metrics: {', '.join(known)}")


def _describe_method(method: MethodLike) -> Any:
    """Return a description of a method in words and numbers; for a function, the place of its definition."""
    return summary(method) if is_dataclass(method) else place(method if hasattr(method, "__qualname__") else type(method))


def _first_warning(label: str | None, cells: Sequence[Cell]) -> str:
    """Return the first warning and the number of warnings: those of other parts tend to differ only in their numbers."""
    texts = [f"{cell.part}: {text}" for cell in cells for text in cell.warnings]
    more = f" (and {format_count(len(texts) - 1, 'more warning')})" if len(texts) > 1 else ""
    return f"{_kind(label)}, {texts[0]}{more}"


def describe_environment(device: str) -> dict[str, str]:
    """Return the versions and hardware that a result may depend on besides its settings."""
    return {
        "ig2": ig2.__version__,
        "code": code_digest("ig2_bench"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "threads": str(torch.get_num_threads()),
    }


@contextmanager
def _seed_globally(key: str) -> Iterator[None]:
    """Make global random numbers depend on the key alone, and restore their state afterwards.

    Our methods do not use them. A user's method may, and must score the same whether or not the run was interrupted before.
    """
    number = zlib.crc32(key.encode())
    before_python, before_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(list(range(torch.cuda.device_count()))):
        torch.manual_seed(number)
        random.seed(number)
        np.random.seed(number)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(before_python)
            np.random.set_state(before_numpy)  # noqa: NPY002


@contextmanager
def _record_warnings() -> Iterator[list[str]]:
    """Yield a list that holds our warnings on exit; they belong to a score and are stored with it."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IG2Warning)
        yield texts
    for warning in caught:
        if issubclass(warning.category, IG2Warning):
            texts.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


@contextmanager
def _report_progress(progress: ProgressOption, label: str) -> Iterator[Callable[[Step], object]]:
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool):
        raise InputError(f"progress must be True, False or a function of a Step, got {describe(progress)}")
    elif not progress:
        yield lambda step: None
    else:
        with Progress(True, label, unit="score") as bar:

            def show(step: Step) -> None:
                bar.expect(step.total - bar.total)
                bar.advance(step.done - bar.done)
                bar.bar.set_postfix_str(step.now)

            yield show
