"""What axe-core finds in reports, on light and on dark paper."""

import pytest

from browsing import PHOTO, ROW, SENTENCE, find_barriers, go

pytestmark = pytest.mark.slow


def test_nothing_is_in_anyones_way(open_page):
    page = open_page("everything")
    for kind in (PHOTO, SENTENCE, ROW):
        go(page, kind)
        assert find_barriers(page) == {}, kind
    page.emulate_media(color_scheme="dark")  # where nothing but the colours differs
    try:
        assert find_barriers(page, "color-contrast") == {}
    finally:
        page.emulate_media(color_scheme="light")
    for name in ("many", "crossed"):
        assert find_barriers(open_page(name)) == {}, name


def test_a_barrier_would_be_found(open_page):
    page = open_page("everything")
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert list(find_barriers(page)) == ["button-name"]
