import signal

import pytest


@pytest.fixture
def _signals_as_in_a_terminal():
    """Whatever runs the tests may ignore signals, as nohup does, or a shell that puts them into the background."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
