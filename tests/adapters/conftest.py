"""What the tests of several kinds of images share."""

import pytest

from ig2.adapters import vision


@pytest.fixture(scope="module")
def lite0() -> vision.VisionSubject:
    return vision.load()
