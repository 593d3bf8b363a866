import signal
from pathlib import Path

import pytest
from PIL import Image

from ig2.adapters import vision


@pytest.fixture
def _signals_as_in_a_terminal():
    """Whatever runs the tests may ignore signals, as nohup does, or a shell that puts them into the background."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def small(ig2):
    """`ig2 explain` of a photo by a small network, in two steps."""
    ig2.module()
    photo = ig2.photo()
    return lambda *options: ig2("explain", photo, "--model", "mine:small", "--steps", 2, "--count", 2, *options)


@pytest.fixture
def digit(ig2):
    """A handwritten seven that the network has not seen, in a file."""
    photos = vision.load("digits").photos()
    Image.fromarray(next(photo for photo in photos if photo.label == "7").source).save("seven.png")
    return Path("seven.png")
