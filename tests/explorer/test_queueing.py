"""Whose turn it is, who is told what, and who is out of the way."""

from __future__ import annotations

import threading

import pytest
from limits import wait_for

from ig2.errors import InputError
from ig2.explorer.queueing import FairQueue, Job
from networks import refuses


class Person:
    """Someone whose job goes on when they say so."""

    def __init__(self, name, log, steps=2):
        self.name, self.events, self.go, self.log = name, [], threading.Semaphore(0), log
        self.job = Job(name, lambda check: self.work(steps, check), self.events.append)

    def work(self, steps, check):
        for number in range(steps):
            while not self.go.acquire(timeout=0.01):
                check()
            self.log.append(f"{self.name}{number}")
            yield {"event": "step", "number": number}

    def heard(self, name):
        return [event for event in self.events if event["event"] == name]


@pytest.fixture
def people():
    log = []
    return [Person(name, log, 3) for name in "abc"], log


def test_first_steps_come_first_and_the_rest_in_turn(people):
    (a, b, c), log = people
    queue = FairQueue()
    for person in (a, b, c):
        queue.add(person.job)
    for person in (a, b, c):  # once all are there: the first must not be done before the last has come
        person.go.release(3)
    for person in (a, b, c):
        wait_for(lambda person=person: person.heard("end"))
    order = {entry: log.index(entry) for entry in log}
    assert len(log) == 9 and order["a2"] < order["b1"] and order["b2"] < order["c1"]
    assert order["c0"] < order["b1"]
    wait_for(lambda: queue._thread is None)  # and nothing is left behind


def test_everyone_is_told_how_many_are_ahead(people):
    (a, b, c), _ = people
    queue = FairQueue()
    for person in (a, b, c):
        queue.add(person.job)
    assert c.heard("waiting")[-1]["ahead"] == 2
    queue.cancel(b.job)  # who waits is gone at once
    assert b.events[-1] == {"event": "cancelled"} and c.heard("waiting")[-1]["ahead"] == 1
    queue.cancel(a.job)  # who is at work stops when it looks
    wait_for(lambda: a.heard("cancelled"))
    wait_for(lambda: c.heard("waiting")[-1]["ahead"] == 0)
    queue.cancel(c.job)
    wait_for(lambda: not queue.jobs)


def test_who_asks_again_gives_up_what_they_asked(people):
    (a, b, _), _ = people
    queue, again = FairQueue(2), Person("a", [])
    queue.add(a.job)
    queue.add(b.job)
    queue.add(again.job)  # takes no further place
    wait_for(lambda: a.heard("cancelled"))
    refuses(InputError, "wait", lambda: queue.add(Person("d", []).job))
    for person in (b, again):
        queue.cancel(person.job)
    wait_for(lambda: not queue.jobs)


def test_a_last_event_ends_a_job_before_others_go_on(people):
    (a, b, _), log = people
    queue = FairQueue()
    queue.add(a.job)
    a.go.release()  # its first step alone
    short = Job("short", lambda check: iter([{"event": "step", "is_last": True}]), b.events.append)
    wait_for(lambda: log == ["a0"])
    queue.add(short)
    a.go.release()
    wait_for(lambda: b.heard("end"))
    assert "a2" not in log
    queue.stop()
    wait_for(lambda: not queue.jobs)


def test_errors_and_people_who_left_free_the_place(people):
    (a, b, _), log = people

    def fail(check):
        yield {"event": "step"}
        raise ZeroDivisionError("by zero")

    def leave(event):
        raise RuntimeError("the loop is closed")

    queue, events = FairQueue(), []
    queue.add(Job("x", fail, events.append))
    queue.add(Job("gone", lambda check: a.work(3, check), leave))
    queue.add(b.job)
    for _ in range(3):
        a.go.release()
        b.go.release()
    wait_for(lambda: b.heard("end"))
    assert "by zero" in next(event for event in events if event["event"] == "error")["error"]
    assert "a1" not in log
