"""What the tests of the bench share. That this file is here lets them import `datafiles`, too."""

import pytest


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Networks are trained once for a module of tests, and not into the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IG2_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
