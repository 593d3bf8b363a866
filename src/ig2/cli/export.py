"""`ig2 export`: the explorer as a folder of files."""

from __future__ import annotations

from ig2._utils.suggestions import ChoiceError
from ig2.cli.options import ExportOptions
from ig2.cli.output import INDENT, open_console, print_heading, print_path, show_progress
from ig2.errors import format_count

WIDTH = 10


def run(options: ExportOptions) -> None:
    """Write the site, and print where it is and how to look at it."""
    if not options.stores:
        raise ChoiceError("no store was named: name a folder written by ig2 run, for example ig2 export ig2-run")
    from ig2.explorer import Collection, export_site

    with show_progress(options.quiet) as watch:
        watch("reading")
        collection = Collection(options.stores, options.source)
        report = watch("writing")
        items = export_site(collection, options.out, where=options.where, limit=options.limit, progress=report)
    console, total = open_console(), len(collection.catalogue)
    print_heading(console, format_count(items, "item"), "" if items == total else f"of {total:,}")
    print_path(console, "  open", options.out / "index.html", INDENT + WIDTH)
