"""Reports opened in a real browser from disk, as a person opens them."""

import re

import pytest

import reports
from browsing import check_screens, open_browser, ready, share_screens
from ig2.report import write


@pytest.fixture(scope="package")  # not the session: while it is open, a loop of events is running
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for content in (
        reports.everything,
        reports.hostile,
        reports.alike,
        reports.pathless,
        reports.rough,
        reports.many,
        reports.columns,
        reports.scaled,
        reports.crossed,
    ):
        write(content(), folder / f"{content.__name__}.html")
    return folder


@pytest.fixture(scope="package")
def screens(browser):
    return share_screens(browser)


@pytest.fixture
def open_page(screens, folder):
    """Open a report; in the end, check that nothing was complained of, said aloud or asked of anyone."""
    opened = []

    def open_page(name="everything", at="", **options):
        opened.append(screens(**{"viewport": {"width": 1280, "height": 900}, **options}))
        page, open_page.trouble, open_page.requests = opened[-1]
        page.goto("about:blank")  # or a link to another part of the same file would not load it again
        page.goto((folder / f"{name}.html").as_uri() + at)
        ready(page)
        return page

    yield open_page
    check_screens(opened, rf"{re.escape(folder.as_uri())}/\w+\.html")
