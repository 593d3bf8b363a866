"""`ig2 serve`: stores of `ig2 run` in the browser."""

from __future__ import annotations

import webbrowser
from contextlib import suppress

from ig2._utils.suggestions import ChoiceError
from ig2.cli.options import ServeOptions
from ig2.cli.output import open_console, print_heading, print_line
from ig2.errors import import_extra

WIDTH = 10


def run(options: ServeOptions) -> None:
    """Serve the explorer, print where it is, and open it."""
    if not options.stores:
        raise ChoiceError("name a store: the folder that ig2 run wrote, such as ig2 serve ig2-run")
    for package in ("fastapi", "uvicorn"):
        import_extra(package, "serve", "ig2 serve")
    from ig2.explorer import serve

    def announce(address: str) -> None:
        console = open_console()
        print_heading(console, "Explorer", address)
        if "token=" in address:
            print_line(console, "token", "whoever has this address sees the stores; there is no encryption", WIDTH)
        print_line(console, "stop", "Ctrl-C", WIDTH)
        if not options.no_open:
            with suppress(webbrowser.Error):
                webbrowser.open(address)

    serve(options.stores, source=options.source, host=options.host, port=options.port, started=announce)
