import os
import signal
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
