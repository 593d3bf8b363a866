"""The tests themselves: what they skip is printed, and no busy machine reaches their time limits."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from browsing import open_browser

ROOT = Path(__file__).parent.parent
FILES = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("bench/tests/**/*.py"), ROOT / "conftest.py"]
LIMIT = re.compile(r"(?:timeout(?:_s)?=|(?<!wait_for_)timeout\(|\.(?:wait|join|result)\(|create_connection\(.*\), )([\d_.]+)\b")
PAUSE = 0.05  # seconds, after which a test looks again


def test_what_is_not_tested_is_printed_with_the_remedy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    reasons = ["Skipped: needs a moon"]
    with pytest.raises(pytest.skip.Exception) as skipped, open_browser():
        pass
    reasons += 3 * [f"Skipped: {skipped.value}"]
    with pytest.raises(pytest.skip.Exception) as skipped:
        pytest.importorskip("not_a_package.inside")
    reasons += [f"Skipped: {skipped.value}"]
    lines: list[str] = []
    reporter = SimpleNamespace(
        stats={"skipped": [SimpleNamespace(longrepr=("file.py", 1, reason)) for reason in reasons]},
        section=lines.append,
        write_line=lines.append,
    )
    summarise = request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py")).pytest_terminal_summary
    summarise(reporter)
    assert lines[0] == "not tested" and lines[1].startswith("3 tests: no browser: apt install chromium, or ")
    remedy = "not_a_package is not installed: pip install not_a_package"
    assert sorted(lines[2:]) == ["1 test: needs a moon", f"1 test: {remedy}"]
    lines.clear()
    reporter.stats.clear()
    summarise(reporter)
    assert lines == []


def find_limits(source: str) -> list[float]:
    """The seconds after which something in a test fails, where they are a number."""
    return [float(limit) for limit in LIMIT.findall(source) if float(limit) > PAUSE]


def test_no_limit_of_time_is_within_reach_of_a_busy_machine() -> None:
    """`limits.HANGS` is for what may take long."""
    short = "thread.join(20)", "run(x, timeout=300)", "page.set_default_timeout(15_000)", "create_connection((a, b), 10)"
    assert [find_limits(line) for line in short] == [[20.0], [300.0], [15_000.0], [10.0]]
    assert [find_limits(line) for line in ("event.wait(HANGS)", "get(timeout=0.01)", "pause.wait(0.01)")] == [[], [], []]
    found = {path: find_limits(path.read_text(encoding="utf-8")) for path in FILES if path != Path(__file__)}
    assert {str(path.relative_to(ROOT)): limits for path, limits in found.items() if limits} == {}
