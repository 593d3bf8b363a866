"""Runs a suite: every method on every part, resumed where it was stopped, and made into a table."""

from __future__ import annotations

import difflib
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
from ig2._utils.files import check_regular, write_whole
from ig2.benchmarks.store import Cell, Cells, code_digest, fingerprint, key_of, no_empty_folder, place
from ig2.benchmarks.suite import BenchOptions, ChoiceError, MethodLike, Split, Suite, find_suite
from ig2.benchmarks.table import MADE_BY, Fact, Failure, Row, Table, spread
from ig2.errors import IG2Warning, InputError, describe, import_extra, reason
from ig2.methods.base import summary

PREPARING, FACTS = "preparing", "facts"  # kinds of work beside the methods


@dataclass(frozen=True)
class Step:
    """How far a run is."""

    done: int
    """How many pairs of part and method are scored, or failed."""
    total: int
    """How many there are."""
    now: str
    """What is being done."""
    left: float | None
    """Seconds that are probably left, by what each method took before; None until one has ended."""


ProgressOption = bool | Callable[[Step], None]


def run(
    suite: Suite | str,
    methods: Sequence[str] | Mapping[str, MethodLike] | None = None,
    *,
    own: Mapping[str, MethodLike] | None = None,
    out: str | PathLike[str] | None = None,
    fresh: bool = False,
    progress: ProgressOption = False,
    seeds: int | None = None,
    quick: bool = False,
    data: str | PathLike[str] | None = None,
    samples: int | None = None,
    study: str | None = None,
    split: Split | None = None,
    seed: int = 0,
    device: str = "auto",
) -> Table:
    """Score methods on a suite.

    A method that fails on a part is named in the table's `failures`; the others go on. With a folder, every score is kept
    there as soon as it is made, so that the same call goes on where an earlier one was stopped.

    Args:
        suite: a name of `ig2.benchmarks.SUITES`, or a suite of your own.
        methods: labels of the suite's methods to run, or how they begin, by default all; or, in a dict, methods of your own to
            run beside all.
        own: methods of your own by their labels, to run beside those chosen; one with a label of the suite's replaces it. Each
            is called as `method(model, x, target, references, seed=...)` and gives an `Attribution` or a tensor like x.
        out: a folder for NAME.json, NAME.md and NAME.cells.jsonl; by default nothing is written.
        fresh: score again what the folder already has. An own method is scored again by itself when its settings or the file
            it stands in change, and not when something else does that it calls.
        progress: True for a bar, or a function called with a `Step`.
        seeds: how many seeds, for suites that have some.
        quick: a small run, to see that it runs.
        data: a folder with the data, for suites that read some.
        samples: how many are explained, for suites of samples.
        study: one of the suite's studies, instead of the comparison of methods.
        split: which split of the samples, "test" by default, "validation" to choose settings on.
        seed: of everything random.
        device: where networks run.
    """
    options = BenchOptions(
        seeds=seeds,
        quick=quick,
        data=None if data is None else Path(data),
        samples=samples,
        study=study,
        split=split,
        seed=seed,
        device=device,
    )
    if isinstance(suite, str):
        suite = find_suite(suite, options)
    elif not isinstance(suite, Suite):
        raise InputError(f"a suite is given by its name or as a Suite, got {describe(suite)}")
    elif options != BenchOptions():
        raise InputError(
            "options choose among the suites that have names, yours has its settings: leave out seeds, quick, data, …"
        )
    if isinstance(methods, Mapping):
        own, methods = {**methods, **(own or {})}, None
    chosen = choose(suite, methods, own or {})
    folder = None if out is None else Path(out)
    if folder is not None:
        _check_free(folder, suite.name)
    with _told(progress, suite.name) as tell, no_empty_folder(folder):
        work = _Run(suite, chosen, Cells(folder, suite.name), fresh, tell)
        work.go()
        table = work.table()
    if folder is not None:
        write_whole(folder / f"{suite.name}.json", table.to_json().encode("utf-8", "replace"))
        write_whole(folder / f"{suite.name}.md", table.to_markdown().encode("utf-8", "replace"))
    return table


# -- what was chosen ---------------------------------------------------------------------------------------------------


def choose(suite: Suite, names: Sequence[str] | None, own: Mapping[str, MethodLike]) -> dict[str, MethodLike]:
    """The suite's methods of these names, all without any, in the suite's order; then one's own."""
    if isinstance(names, str):
        raise ChoiceError(f"methods must be a list of labels, got the text {describe(names)}")
    for label, method in own.items():
        if not isinstance(label, str) or not label.strip() or not callable(method):
            raise ChoiceError(f"own methods are callables by their labels, got {describe(label)}: {describe(method)}")
    theirs = suite.methods()
    known = {**theirs, **own}
    if names is None:
        return known
    wanted: set[str] = set()
    for name in names:
        try:
            wanted.update(_named(name, list(theirs)))
        except ChoiceError:  # one's own, which run anyway
            wanted.update(_named(name, list(known)))
    if not wanted and not own:
        raise ChoiceError(f"no method is chosen: choose from {', '.join(known)}")
    return {label: method for label, method in known.items() if label in wanted or label in own}


def _named(name: str, labels: Sequence[str]) -> list[str]:
    """The label of this name, or those that begin with it: ig2 is IG², or else IG² (left) and IG² (shared)."""
    typed = "".join(_words(name))
    words = {label: _words(label) for label in labels}
    exact = [label for label in labels if label == name] or [label for label in labels if "".join(words[label]) == typed]
    if exact:
        return exact[:1]
    begun = {"".join(words[label][:count]): label for label in labels for count in range(1, len(words[label]) + 1)}
    if typed in begun:
        return [label for label in labels if typed in ("".join(words[label][:count]) for count in range(len(words[label])))]
    close = difflib.get_close_matches(typed, begun, n=1)
    hint = f"; did you mean {begun[close[0]]}?" if close else f": choose from {', '.join(labels)}"
    raise ChoiceError(f"there is no method {describe(name)}{hint}")


def _words(label: object) -> list[str]:
    """Without what is hard to type: IG² (left) is ig2 left."""
    return re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", str(label)).lower())


def _check_free(folder: Path, name: str) -> None:
    """See that no file is replaced but those of an earlier run."""
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        check_regular(folder / f"{name}.json")
        content = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        if str(content.get("made_by", "")).startswith(MADE_BY):
            return
    for path in (folder / f"{name}.json", folder / f"{name}.md"):
        if os.path.lexists(path):
            raise InputError(f"{path} is there already, and not from an earlier run: give another folder")


# -- the work ----------------------------------------------------------------------------------------------------------


class _Run:
    """One run: what is known, what failed, and how long things take."""

    def __init__(
        self, suite: Suite, methods: Mapping[str, MethodLike], cells: Cells, fresh: bool, tell: Callable[[Step], None]
    ) -> None:
        self.suite, self.methods, self.cells, self.tell = suite, methods, cells, tell
        self.data = suite.describe_data()
        digest = suite.digest_data()
        self.environment = {**environment(suite.device), **({"data": digest} if digest else {})}
        self.failures: list[Failure] = []
        common = self.common = ig2.__version__, suite.name, suite.version, fingerprint(suite.identity()), self.data, digest
        prints: dict[str | None, Any] = {label: fingerprint(method) for label, method in methods.items()}
        if type(suite).facts is not Suite.facts:
            prints = {None: None, **prints}
        self.keys = {
            (part, label): key_of(common, part, label, printed) for part in suite.parts() for label, printed in prints.items()
        }
        if fresh:
            cells.forget(self.keys.values())
        self.told: tuple[int, str] | None = None
        self.took: dict[str, list[float]] = {}  # seconds of each kind of work
        for (_, label), key in self.keys.items():
            if key in cells.known:
                self.took.setdefault(_kind(label), []).append(cells.known[key].seconds)

    def go(self) -> None:
        unscored = [part for (part, _), key in self.keys.items() if key not in self.cells.known]
        if unscored:
            self._tell(unscored[0], PREPARING)
            with _seeded(key_of(self.common)):
                self.suite.check()
            self._forget_other_networks()
        for part in self.suite.parts():
            missing = [label for (of, label), key in self.keys.items() if of == part and key not in self.cells.known]
            if not missing:
                continue
            self._tell(part, PREPARING)
            start = time.perf_counter()
            try:
                with _seeded(key_of(self.common, part)):
                    prepared = self.suite.prepare(part)
            except Exception as error:
                self.failures.append(Failure(part, None, reason(error), error))
                continue
            self._took(PREPARING, start)
            for label in missing:
                self._score(part, label, prepared)
        self._tell("", "")

    def _forget_other_networks(self) -> None:
        """Scores of a network that was trained elsewhere do not stand beside those of this one."""
        network, known = self.suite.digest_network(), self.cells.known
        if network:
            self.environment["network"] = network
            here = [key for key in self.keys.values() if key in known]
            self.cells.forget([key for key in here if known[key].environment.get("network") != network])

    def _score(self, part: str, label: str | None, prepared: Any) -> None:
        self._tell(part, _kind(label))
        start = time.perf_counter()
        try:
            with _seeded(key_of(self.common, part)), _noted() as noted:
                if label is None:
                    found = self.suite.facts(part, prepared)
                else:
                    found = self.suite.score(part, prepared, self.methods[label])
                    _check_known(found, self.suite)
                values = {name: [float(value) for value in some] for name, some in found.items()}
        except Exception as error:
            self.failures.append(Failure(part, _kind(label), reason(error), error))
            return
        seconds = self._took(_kind(label), start)
        self.cells.add(self.keys[part, label], Cell(part, label, values, seconds, self.environment, noted))

    # -- how far it is -------------------------------------------------------------------------------------------------

    def _took(self, kind: str, start: float) -> float:
        seconds = time.perf_counter() - start
        self.took.setdefault(kind, []).append(seconds)
        return seconds

    def _tell(self, part: str, kind: str) -> None:
        failed = {(failure.part, failure.method) for failure in self.failures}
        missing = [
            (of, _kind(label))
            for (of, label), key in self.keys.items()
            if key not in self.cells.known and not failed & {(of, None), (of, _kind(label))}
        ]
        done = len(self.keys) - len(missing)
        now = f"{part}: {kind}" if part else ""
        if (done, now) != self.told:
            self.told = done, now
            self.tell(Step(done, len(self.keys), now, self._left(missing, part, kind)))

    def _left(self, missing: Sequence[tuple[str, str]], part: str, now: str) -> float | None:
        usual = {kind: fmean(some) for kind, some in self.took.items()}
        preparing = usual.pop(PREPARING, 0.0)
        if not usual:
            return None
        unprepared = {of for of, _ in missing} - (set() if now == PREPARING else {part})
        return sum(usual.get(kind, fmean(usual.values())) for _, kind in missing) + len(unprepared) * preparing

    # -- what was found ------------------------------------------------------------------------------------------------

    def table(self) -> Table:
        found = {where: self.cells.known[key] for where, key in self.keys.items() if key in self.cells.known}
        of = {label: [cell for (_, whose), cell in found.items() if whose == label] for label in (None, *self.methods)}
        paper, metrics = self.suite.paper(), self.suite.metrics()
        rows = []
        for label in self.methods:
            for metric, column in metrics.items():
                values = tuple(value for cell in of[label] for value in cell.values.get(metric, ()))
                figure = paper.get(label, {}).get(metric)
                rows.append(Row(label, metric, **spread(values), better=column.better, paper=figure, values=values))
        facts: dict[str, list[float]] = {}
        for cell in of[None]:
            for name, some in cell.values.items():
                facts.setdefault(name, []).extend(some)
        return Table(
            suite=self.suite.name,
            title=self.suite.title,
            unit=self.suite.unit,
            shows=self.suite.shows,
            ranked=self.suite.ranked,
            quick=self.suite.quick,
            data=self.data,
            settings=self.suite.settings(),
            environment=_together([cell.environment for cell in found.values()]) or self.environment,
            methods={label: _made_of(method) for label, method in self.methods.items()},
            metrics=dict(metrics),
            rows=tuple(rows),
            facts=tuple(Fact(name, **spread(some)) for name, some in facts.items()),
            failures=tuple(self.failures),
            notes=(
                *_mixed([cell.environment.get("code", "") for cell in found.values()]),
                *(_warned(label, cells) for label, cells in of.items() if any(cell.warnings for cell in cells)),
            ),
        )


def _kind(label: str | None) -> str:
    """What kind of work a cell is."""
    return FACTS if label is None else label


def _check_known(found: Any, suite: Suite) -> None:
    known = suite.metrics()
    for label in found:
        if label not in known:
            raise InputError(f"{suite.name} scored {describe(label)}, which is none of its metrics: {', '.join(known)}")


def _made_of(method: MethodLike) -> Any:
    """A method in words and numbers; a function by where it is defined."""
    return summary(method) if is_dataclass(method) else place(method if hasattr(method, "__qualname__") else type(method))


def _warned(label: str | None, cells: Sequence[Cell]) -> str:
    """The first warning, and how many there were: those of other parts tend to say the same of other numbers."""
    texts = [f"{cell.part}: {text}" for cell in cells for text in cell.warnings]
    more = f" (and {len(texts) - 1} more warnings)" if len(texts) > 2 else " (and one more warning)" if len(texts) > 1 else ""
    return f"{_kind(label)}, {texts[0]}{more}"


def _mixed(codes: Sequence[str]) -> list[str]:
    different = len(set(codes))
    return [f"these scores are of {different} states of ig2's code: fresh (--fresh) scores all again"] if different > 1 else []


def environment(device: str) -> dict[str, str]:
    """What a result may depend on beside its settings."""
    return {
        "ig2": ig2.__version__,
        "code": code_digest(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "threads": str(torch.get_num_threads()),
    }


def _together(environments: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """All the values each entry has."""
    names = dict.fromkeys(name for one in environments for name in one)
    return {name: ", ".join(dict.fromkeys(one[name] for one in environments if name in one)) for name in names}


@contextmanager
def _seeded(key: str) -> Iterator[None]:
    """Global random numbers that depend on the key alone, and are as before afterwards.

    Ours do not use them; an own method may, and must score the same whether or not the run was stopped before it.
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
def _noted() -> Iterator[list[str]]:
    """Our warnings, as a list that is filled at the end; they belong to a score and are kept with it."""
    noted: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IG2Warning)
        yield noted
    for warning in caught:
        if issubclass(warning.category, IG2Warning):
            noted.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


@contextmanager
def _told(progress: ProgressOption, label: str) -> Iterator[Callable[[Step], None]]:
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool):
        raise InputError(f"progress must be True, False or a function of a Step, got {describe(progress)}")
    elif not progress:
        yield lambda step: None
    else:
        tqdm = import_extra("tqdm.auto", "progress", "progress=True").tqdm
        with tqdm(total=0, desc=label, leave=False) as bar:

            def show(step: Step) -> None:
                bar.total = step.total
                bar.update(step.done - bar.n)
                bar.set_postfix_str(step.now)

            yield show
