"""The command `ig2`: its commands, and how errors are reported. PyTorch is imported when a command runs, not for its help."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import Annotated, Any

import typer

import ig2
from ig2._utils.registry import INSTALL_BENCH, Registry
from ig2._utils.suggestions import ChoiceError
from ig2.cli.options import (
    DebugOptions,
    DemoOptions,
    ExplainOptions,
    ExportOptions,
    FetchOptions,
    Group,
    PlotOptions,
    RunCommandOptions,
    ServeOptions,
    StatusOptions,
    VerifyOptions,
    add_command,
    format_examples,
)
from ig2.cli.streams import print_error, show_own_warnings, survive_closed_streams
from ig2.errors import IG2Error
from ig2.methods.catalogue import METHODS

COMMANDS = Registry("ig2.commands", "command")
"""The commands of installed packages, each a `typer.Typer` with one command, by name."""
BENCH = ("bench", "figures")


class Main(Group):
    """The command `ig2`: its own commands, and those of `COMMANDS`, which are imported when they are typed or listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *COMMANDS]

    def get_command(self, ctx: Any, name: str) -> Any:
        command = super().get_command(ctx, name)
        if command is None and name in COMMANDS:
            command = typer.main.get_command(COMMANDS[name])
            command.name = name
        if command is None and name in BENCH and not ctx.resilient_parsing:  # which is a shell that completes
            raise ChoiceError(f"ig2 {name} comes {INSTALL_BENCH}")
        return command


app = typer.Typer(
    name="ig2",
    cls=Main,
    help="Which parts of an input made the model say A rather than B?",
    epilog="Start with [bold]ig2 demo[/bold], or [bold]ig2 explain photo.jpg[/bold].",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(
    cls=Group,
    help="List, check and download the data that [bold]ig2 bench[/bold] and [bold]ig2 explain[/bold] read.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ig2 {ig2.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    # `_run` reads it from sys.argv, before the command line is parsed
    debug: Annotated[bool, typer.Option("--debug", help="Print a traceback if something fails.")] = False,
) -> None:
    pass


METHODS_HELP = "\n".join(f"  [bold]{name:<18}[/bold]{method.about}" for name, method in METHODS.items())
EXPLAIN_EXAMPLES = (
    "ig2 explain photo.jpg --compare ig,expected-ig,guided-ig",
    'ig2 explain --text "Where did guinea pigs originate?"',
    "ig2 explain patients.csv --rows 1:3 --model mypackage.models:build",
    "ig2 explain --lm smollm2 --prompt 'The capital of France is' --target ' Paris' --against ' Rome'",
)


@add_command(app, epilog=f"{format_examples(EXPLAIN_EXAMPLES)}\n\nThe methods:\n{METHODS_HELP}")
def explain(options: ExplainOptions) -> None:
    """Explain photos, sounds, sentences, rows of a table, or what a language model says next.

    Writes a picture of each input, the attributions (safetensors), a summary (JSON), and a report to open in a browser.
    """
    if options.lm is not None:
        from ig2.cli.language import run
    else:
        from ig2.cli.explain import run

    run(options)


RUN_EXAMPLES = (
    "ig2 run photos/ --out photos-ig2 --values grid:14",
    "ig2 run patients.parquet --id patient --label outcome --model mypackage.models:build --metrics insertion,deletion",
    "ig2 run photos/ --engine ray --workers 8 --gpus-per-worker 1",
)


@add_command(app, epilog=format_examples(RUN_EXAMPLES))
def run(options: RunCommandOptions) -> None:
    """Explain a whole data set and write the results to a store of Parquet files.

    A run can be stopped at any time; the same command resumes it, and explains nothing twice.

    An item that cannot be explained is stored as a row with its error.
    """
    from ig2.cli.run import run

    run(options)


@add_command(app)
def status(options: StatusOptions) -> None:
    """Print the progress of a run: items done, items failed and why, and the time remaining."""
    from ig2.cli.run import print_status

    print_status(options)


PLOT_EXAMPLES = ("ig2 plot patients-ig2", "ig2 plot ig2-out/store --figure dependence --column age")


@add_command(app, epilog=format_examples(PLOT_EXAMPLES))
def plot(options: PlotOptions) -> None:
    """Draw which columns of a table matter: a beeswarm, importance, waterfall or dependence plot.

    Reads the output of [bold]ig2 run[/bold] or [bold]ig2 explain[/bold].
    """
    from ig2.cli.plot import run

    run(options)


SERVE_EXAMPLES = (
    "ig2 serve photos-ig2 --source photos/",
    "ig2 serve patients-ig2 patients-ig",
    "ig2 serve patients-ig2 --model mypackage.models:build",
)


@add_command(app, epilog=format_examples(SERVE_EXAMPLES))
def serve(options: ServeOptions) -> None:
    """Open stores in the browser: filter, compare, and find what the model looks at.

    [bold]ig2 run[/bold] writes a store, and [bold]ig2 explain[/bold] one in its folder.

    With --what-if or --model, it also explains inputs that you upload, paste or edit.

    The page is served on this machine only, unless --host is given.
    """
    from ig2.cli.serve import run

    run(options)


EXPORT_EXAMPLES = (
    "ig2 export photos-ig2 --source photos/ --out site/",
    'ig2 export photos-ig2 --where "prediction != label" --out site/',
)


@add_command(app, epilog=format_examples(EXPORT_EXAMPLES))
def export(options: ExportOptions) -> None:
    """Export stores as a static copy of the explorer, which any web server can serve.

    Includes the list, filters, map, clusters and items, of 10,000 items at most, but nothing that needs the model or Python.
    """
    from ig2.cli.export import run

    run(options)


@add_command(app)
def demo(options: DemoOptions) -> None:
    """Explain sample photos and digits with five methods side by side.

    Takes a minute or two, needs no internet connection, and writes a report to open in a browser.
    """
    from ig2.cli.demo import run

    run(options.out, steps=options.steps, quiet=options.quiet)


app.add_typer(data, name="data")


@add_command(data, "list")
def list_data(options: DebugOptions) -> None:
    """List the data sets: contents, folder layout, terms, and the data used without each."""
    from ig2.cli.data import print_list

    print_list()


@add_command(data, "verify")
def verify_data(options: VerifyOptions) -> None:
    """Check a folder of data: count the samples of each class, and find duplicates and broken files.

    The exit code is 1 if something is broken or missing.
    """
    from ig2.cli.data import verify

    verify(options)


@add_command(data, "fetch")
def fetch_data(options: FetchOptions) -> None:
    """Download a data set and check it.

    The same command resumes an interrupted download. [bold]ig2 data list[/bold] shows which data sets can be fetched.
    """
    from ig2.cli.data import fetch

    fetch(options)


# -- running it --------------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the command; an error is one line on standard error, and an exit code."""
    with survive_closed_streams():
        sys.exit(_run())


def _run() -> Any:
    """Run the command and return the exit code."""
    debug = "--debug" in sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a stream of someone else's
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        with _exit_on_signals(), nullcontext() if debug else show_own_warnings():
            code = app(prog_name="ig2", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        if debug:
            raise
        code = _report(error)
    if code == 130:
        print_error("stopped")
    return code


def _report(error: Exception) -> int:
    """Print an error in one line and return the exit code."""
    format_usage: Any = getattr(error, "format_message", None)  # the parser's errors have no common public class
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error)
    elif callable(format_usage):
        command = getattr(getattr(error, "ctx", None), "command_path", "ig2")
        print_error(f"{format_usage()} (see {command} --help)")
    elif isinstance(error, IG2Error):
        print_error(str(error))
    elif isinstance(error, OSError) and error.strerror:
        print_error(error.strerror if error.filename is None else f"{error.filename}: {error.strerror}")
        if error.filename is None:
            _discard_output()
    else:
        kind, words = type(error).__name__, str(error)
        print_error(f"{kind}: {words} (--debug shows where)" if words else f"{kind} (--debug shows where)")
    return 2 if isinstance(error, ChoiceError) else int(getattr(error, "exit_code", 1))


def _discard_output() -> None:
    """Keep Python from trying once more, at its end, to write what could not be written."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit, so that nothing half-written is left behind."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # one that is ignored stays so: nohup asks for that
    unhandled = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    with suppress(ValueError):  # not in the main thread
        for number in unhandled:
            signal.signal(number, stop)
    try:
        yield
    finally:
        with suppress(ValueError):
            for number in unhandled:
                signal.signal(number, signal.SIG_DFL)
