"""What the tests of several kinds of images share."""

import pytest

from ig2 import modalities


@pytest.fixture(scope="module")
def lite0() -> modalities.image.ImageSubject:
    return modalities.image.load()
