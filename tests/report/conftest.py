"""Reports opened in a real browser from disk, as a person opens them."""

import re

import pytest

import reports
from browsing import open_browser, ready
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
        reports.rough,
        reports.many,
        reports.columns,
        reports.scaled,
    ):
        write(content(), folder / f"{content.__name__}.html")
    return folder


@pytest.fixture(scope="package")
def pages(browser):
    """Pages by the options of their screens, each with what was heard of it."""
    pages = {}

    def page(**options):
        if repr(options) not in pages:
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
            context.set_default_timeout(10_000)
            page, trouble, requests = context.new_page(), [], []
            page.on("console", lambda message: trouble.append(message.text))
            page.on("pageerror", lambda error: trouble.append(str(error)))
            page.on("dialog", lambda dialog: (trouble.append(f"dialog {dialog.message}"), dialog.dismiss()))
            context.on("request", lambda request: requests.append(request.url))
            pages[repr(options)] = page, trouble, requests
        return pages[repr(options)]

    return page


@pytest.fixture
def open_page(pages, folder):
    """Open a report; in the end, check that nothing was complained of, said aloud or asked of anyone."""
    heard = []

    def open_page(name="everything", at="", **options):
        page, open_page.trouble, open_page.requests = pages(**options)
        heard.append((open_page.trouble, open_page.requests))
        page.goto("about:blank")  # or a link to another part of the same file would not load it again
        page.goto((folder / f"{name}.html").as_uri() + at)
        ready(page)
        return page

    yield open_page
    for trouble, requests in heard:
        found, asked = trouble[:], requests[:]
        trouble.clear()
        requests.clear()
        assert not found
        own = rf"(data:|blob:|about:blank|{re.escape(folder.as_uri())}/\w+\.html)"
        assert all(re.match(own, url) for url in asked), asked
