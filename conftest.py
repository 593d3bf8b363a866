import os
import re
import signal
from collections import Counter
from pathlib import Path

import commands
import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
# Networks that tests train are kept beside what pytest keeps, and the user's own cache is left alone.
os.environ.setdefault("IG2_CACHE", str(Path(__file__).parent / ".pytest_cache" / "ig2"))
# How long an example takes depends on the machine, and says nothing about the mathematics; the examples are the same every run.
settings.register_profile("ig2", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ig2")


def pytest_terminal_summary(terminalreporter):
    """Print what was not tested, and how to have it: a line for each reason."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(explain_skip(report.longrepr[2]) for report in reports)
    if reasons:
        terminalreporter.section("not tested")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} {'test' if count == 1 else 'tests'}: {reason}")


def explain_skip(reason):
    """The reason of a skip, with the remedy where pytest gives none."""
    reason = reason.removeprefix("Skipped: ")
    missing = re.match(r"could not import '(\w+)", reason)
    return f"{missing[1]} is not installed: pip install {missing[1]}" if missing else reason


@pytest.fixture
def ig2(tmp_path_factory, tmp_path, monkeypatch, capfd):
    """The command, run in this process from an empty folder."""
    return commands.Command(tmp_path_factory, tmp_path, monkeypatch, capfd)


@pytest.fixture
def _signals_as_in_a_terminal():
    """Whatever runs the tests may ignore signals, as nohup does, or a shell that puts them into the background."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
