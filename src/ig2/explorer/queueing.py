"""The queue of jobs: many users ask, one network answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ig2.errors import IG2Error, InputError, reason

MOST_WAITING = 16
Event = dict[str, Any]


class Stopped(Exception):
    """Raised if a job is cancelled while it runs."""


@dataclass(eq=False)
class Job:
    """Work in steps, each of which ends in an event.

    Args:
        key: the owner; a new job of the same owner replaces the earlier one.
        steps: a function that returns the steps, from a check that raises `Stopped` once the job is cancelled.
        report: called with each event, from any thread.
    """

    key: str
    steps: Callable[[Callable[..., None]], Iterator[Event]]
    report: Callable[[Event], None]
    is_cancelled: threading.Event = field(default_factory=threading.Event)
    has_begun: bool = False

    def __post_init__(self) -> None:
        self.work = self.steps(self.check)

    def check(self, *progress: int) -> None:
        """Raise `Stopped` if the job was cancelled; a function for `progress` of a method too."""
        if self.is_cancelled.is_set():
            raise Stopped


class FairQueue:
    """A queue of jobs in one thread. The first step of each, the prediction, precedes later steps of others.

    Args:
        most: the maximum number of waiting jobs.
    """

    def __init__(self, most: int = MOST_WAITING) -> None:
        self.most = most
        self.jobs: list[Job] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._current: Job | None = None

    def add(self, job: Job) -> None:
        """Add a job. Its events are those of its steps; `{"event": "waiting", "ahead": n}` whenever its place changes; and
        in the end one of `end`, `cancelled` and `error`. An event with `is_last` ends the job at once.

        Raises:
            InputError: if too many are already waiting.
        """
        with self._lock:
            earlier = [other for other in self.jobs if other.key == job.key]
            if len(self.jobs) - len(earlier) >= self.most:
                raise InputError(f"{self.most} people wait for the model already: try again in a while")
            self.jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ig2-whatif", daemon=True)
                self._thread.start()
        for other in earlier:
            self.cancel(other)
        self._announce()

    def cancel(self, job: Job) -> None:
        """Stop a job: at once if it waits, otherwise at its next step or call of `check`."""
        job.is_cancelled.set()
        with self._lock:
            waits = job in self.jobs and job is not self._current
            if waits:
                self.jobs.remove(job)
        if waits:
            _tell(job, {"event": "cancelled"})
            self._announce()

    def stop(self) -> None:
        """Cancel every job."""
        for job in list(self.jobs):
            self.cancel(job)

    def _run(self) -> None:
        while True:
            with self._lock:
                job = next((job for job in self.jobs if not job.has_begun), None) or next(iter(self.jobs), None)
                self._current = job
                if job is None:
                    self._thread = None
                    return
                job.has_begun = True
            last = _step(job)
            with self._lock:
                self._current = None
                if last is not None:
                    self.jobs.remove(job)
            if last is not None:
                _tell(job, last)
                self._announce()

    def _announce(self) -> None:
        with self._lock:
            places = list(enumerate(self.jobs))
        for ahead, job in places:
            _tell(job, {"event": "waiting", "ahead": ahead})


def _step(job: Job) -> Event | None:
    """Do a step of a job; return its last event if there is no further one."""
    try:
        job.check()
        event = next(job.work)
        _tell(job, event)
        return {"event": "end"} if event.get("is_last") else None  # and not after the next step of someone else
    except StopIteration:
        return {"event": "end"}
    except Stopped:
        with suppress(Exception):  # of generators that clean up
            job.work.close()  # type: ignore[attr-defined]
        return {"event": "cancelled"}
    except IG2Error as error:
        return {"event": "error", "error": str(error)}
    except Exception as error:  # whatever a network raises
        return {"event": "error", "error": f"the model failed: {reason(error)}"}


def _tell(job: Job, event: Event) -> None:
    try:
        job.report(event)
    except Exception:  # whoever asked is gone
        job.is_cancelled.set()
