"""What axe-core finds in every view of the explorer, on light and on dark paper."""

from __future__ import annotations

import pytest

from browsing import find_barriers

pytestmark = pytest.mark.slow

VIEWS = {
    "list": ("both", "#sort=-output&ranges=output:0:1", "#row-0[data-filled]"),
    "map": ("photos", "#view=map&colour=class", "#cloud[data-drawn]"),
    "clusters": ("photos", "#view=clusters", "#clusters li canvas.mean"),
    "item": ("both", "#item=dark%2F00.png", "#detail[data-loaded]"),
    "words": ("texts", "#view=clusters&item=%3D1%2B1", "#detail[data-loaded]"),
    "columns": ("rows", "#item=p3", "#detail[data-loaded]"),
    "failure": ("photos", "#item=light%2Fbroken.png", "#detail[data-loaded]"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_in_anyones_way(screens, addresses, view):
    page = screens()[0]
    name, state, shown = VIEWS[view]
    page.emulate_media(color_scheme="light")
    page.goto("about:blank")
    page.goto(addresses[name] + state)
    page.wait_for_selector(shown)
    page.wait_for_selector("body[data-ready]")
    assert find_barriers(page) == {}
    page.emulate_media(color_scheme="dark")  # where nothing but the colours differs
    assert find_barriers(page, "color-contrast") == {}
