"""How far the work is: a bar, a function, and an end in the middle."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor, nn

import ig2
from ig2._utils.progress import Progress
from ig2.errors import InputError, MissingExtraError
from networks import made, refuses, uniform


def network() -> Any:
    return made(lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))


X, REFERENCES = uniform(3, 4, seed=1), uniform(2, 4, seed=2)
GRADCF = ig2.references.GradCF(REFERENCES, ig2.paths.GradPath(3))
METHODS = {
    "IntegratedGradients": (ig2.IntegratedGradients(6), REFERENCES),
    "IG left": (ig2.IntegratedGradients(6, rule=ig2.rules.left), REFERENCES),
    "GuidedIG": (ig2.GuidedIG(steps=5), REFERENCES),
    "IG2": (ig2.IG2(steps=5), REFERENCES),
    "IG2 gauss": (ig2.IG2(steps=5, rule=ig2.rules.gauss(3)), REFERENCES),
    "GradCFE": (ig2.GradCFE(steps=5), REFERENCES),
    "two walks": (ig2.ExpectedIG(6, rule=ig2.rules.trapezoid), GRADCF),
}


class Bar:
    """Stands in for tqdm and remembers what was done to it."""

    made: "list[Bar]"

    def __init__(self, total: int, **_: Any) -> None:
        self.total, self.n, self.closed, self.steps = total, 0, False, []
        Bar.made.append(self)

    def update(self, points: int) -> None:
        assert not self.closed
        self.steps.append(points)
        self.n += points

    def refresh(self) -> None:
        assert not self.closed

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    Bar.made = []
    monkeypatch.setattr("tqdm.auto.tqdm", Bar)
    return Bar.made


@pytest.mark.parametrize("batch_size", [1, 2, "auto"])
@pytest.mark.parametrize("name", METHODS)
def test_the_bar_reaches_its_total_and_is_closed(name: str, batch_size: Any, bars: list[Bar]):
    method, references = METHODS[name]
    method(network(), X, references=references, batch_size=batch_size, progress=True)
    (bar,) = bars
    assert bar.n == bar.total > 0 and bar.closed
    assert min(bar.steps) > 0


@pytest.mark.parametrize("batch_size", [1, 2, "auto"])
@pytest.mark.parametrize("name", METHODS)
def test_a_function_is_told_how_far_the_work_is(name: str, batch_size: Any):
    method, references = METHODS[name]
    told: list[tuple[int, int]] = []
    method(network(), X, references=references, batch_size=batch_size, progress=lambda *now: told.append(now))
    done = [points for points, _ in told]
    assert done == sorted(set(done)) and done[0] > 0
    assert all(points <= total for points, total in told)
    assert told[-1][0] == told[-1][1]


def test_the_total_is_pairs_times_segments():
    told: list[tuple[int, int]] = []
    ig2.IG2(steps=7)(network(), X, references=REFERENCES, progress=lambda *now: told.append(now))
    assert told == [(6 * step, 3 * 2 * 7) for step in range(1, 8)]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, LookupError])
def test_an_end_in_the_middle_closes_the_bar(kind: type[BaseException], bars: list[Bar]):
    passes = 0

    def failing(x: Tensor) -> Tensor:
        nonlocal passes
        passes += 1
        if passes > 12:
            raise kind
        return inner(x)

    inner = network()
    with pytest.raises(kind):
        ig2.IG2(steps=50)(ig2.wrap(failing, representation="output"), X, references=REFERENCES, progress=True)
    (bar,) = bars
    assert bar.closed and 0 < bar.n < bar.total


def test_the_real_bar(capsys: pytest.CaptureFixture[str]):
    ig2.IG2(steps=5)(network(), X, references=REFERENCES, progress=True)
    shown = capsys.readouterr().err
    assert "IG2" in shown and "/30.0" in shown  # 3 explicands, 2 references, 5 steps


def test_silence_by_default(capsys: pytest.CaptureFixture[str]):
    ig2.IG2(steps=5)(network(), X, references=REFERENCES)
    assert capsys.readouterr() == ("", "")


def test_work_done_again_is_not_told_twice():
    told: list[tuple[int, int]] = []
    with Progress(lambda *now: told.append(now), "x") as progress:
        progress.expect(10)
        for points in (4, 3, -7, 2, 2, 2, 2, 2):
            progress.advance(points)
    assert told == [(4, 10), (7, 10), (8, 10), (10, 10)]


@pytest.mark.parametrize("option", ["yes", 1, None])
def test_other_options_are_refused(option: Any):
    refuses(InputError, "progress must be True, False or a function", lambda: Progress(option, "x"))


def test_a_bar_without_tqdm_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    refuses(MissingExtraError, r"progress=True", lambda: ig2.IG2(steps=5)(network(), X, references=REFERENCES, progress=True))
    calls: list[Callable[..., Any]] = []
    ig2.IG2(steps=2)(network(), X, references=REFERENCES, progress=lambda *now: calls.append(now))
    assert calls
