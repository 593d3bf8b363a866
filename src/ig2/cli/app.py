"""What can be typed: commands, their options and help, and how errors are told."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import ig2
from ig2.adapters.models import MODELS
from ig2.benchmarks.datasets import DATASETS
from ig2.benchmarks.figures import FIGURES
from ig2.benchmarks.suite import SUITES
from ig2.cli.messages import lasting_streams, own_warnings, say
from ig2.cli.recipes import RECIPES, RULES, Misuse


def _without_types(params: list[Any]) -> list[Any]:
    """In the help no <bool> beside a flag and no <list[Path]> beside an argument, whose names say enough."""
    for param in params:
        if param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: None
        elif param.is_flag and param.metavar is None:
            param.metavar = ""
    return params


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


app = typer.Typer(
    name="ig2",
    cls=_Group,
    help="Which parts of an input made the model say A rather than B?",
    epilog="Start with [bold]ig2 demo[/bold], or [bold]ig2 explain photo.jpg[/bold].",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

METHODS_HELP = "\n".join(f"  [bold]{name:<18}[/bold]{recipe.about}" for name, recipe in RECIPES.items())
EXAMPLES = "\n".join(
    f"  [bold]{line}[/bold]"
    for line in (
        "ig2 explain photo.jpg --compare ig,expected-ig,guided-ig",
        'ig2 explain --text "Where did guinea pigs originate?"',
        "ig2 explain patients.csv --rows 1:3 --model mypackage.models:build",
    )
)
BENCH_EXAMPLES = "\n".join(
    f"  [bold]{line}[/bold]"
    for line in (
        "ig2 bench wafer --quick",
        "ig2 bench imagenet --data path/to/pets --study rules",
        "ig2 bench xai-bench --own mine=mymodule:attribute --methods ig,ig2",
    )
)

FIGURES_EXAMPLES = "\n".join(f"  [bold]{line}[/bold]" for line in ("ig2 figures toy", "ig2 figures imagenet --data my-data"))


def _starting_with(names: Sequence[str]) -> Callable[[str], list[str]]:
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def _after_commas(incomplete: str) -> list[str]:
    """The last name of a list, with the ones before it."""
    before, comma, last = incomplete.rpartition(",")
    chosen = before.split(",")
    return [before + comma + name for name in RECIPES if name.startswith(last) and name not in chosen]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ig2 {ig2.__version__}")
        raise typer.Exit


def _between(low: int, high: int) -> Callable[[Any], Any]:
    """Refuse other numbers. As the parser's own limits they would fill the help with digits."""

    def check(value: int | None) -> int | None:
        if value is not None and not low <= value <= high:
            raise typer.BadParameter(f"{value} is not between {low} and {high}")
        return value

    return check


HOW = "How"
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback where something fails.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress bar.")]


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Debug = False,  # which `main` looks for, since it acts when everything else has ended
) -> None:
    pass


@app.command(cls=_Command, epilog=f"For example:\n{EXAMPLES}\n\nThe methods:\n{METHODS_HELP}")
def explain(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Photos, a .txt file of sentences, or a table (.csv, .tsv, .parquet).",
            show_default=False,
        ),
    ] = None,
    texts: Annotated[
        list[str] | None, typer.Option("--text", "-t", metavar="TEXT", help="A sentence; may be given several times.")
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="ROWS",
            help="Rows of the table or lines of the .txt file, from 1 on: 1,4 or 2:5. Left out: five rows, all lines.",
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="CLASS",
            help="The class to explain: a number, a name, or [bold]auto[/bold] for the one predicted.",
        ),
    ] = "auto",
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help=f"A name ({', '.join(MODELS)}, torchvision:NAME, timm:NAME, transformers:NAME), a module:function that "
            "returns a network (with weights: module:function@FILE), or a file. Left out: an ImageNet classifier for photos, "
            "a classifier of questions for text, of tumours for tables.",
            show_default=False,
            autocompletion=_starting_with(list(MODELS)),
            rich_help_panel=HOW,
        ),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Open a model file that is a program (torch.export, TorchScript). It can do whatever you can do.",
            rich_help_panel=HOW,
        ),
    ] = False,
    method: Annotated[
        str,
        typer.Option(
            metavar="METHOD",
            help="The method; see below.",
            autocompletion=_starting_with(list(RECIPES)),
            rich_help_panel=HOW,
        ),
    ] = "ig2",
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="METHODS",
            help="Methods to show beside it, with commas: ig,expected-ig,guided-ig.",
            autocompletion=_after_commas,
            rich_help_panel=HOW,
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help=f"How gradients on a path become attribution: {', '.join(RULES)}. Left out: each method's own.",
            autocompletion=_starting_with(list(RULES)),
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None,
    references: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Whom to contrast with: a folder of photos, a .txt file of sentences, a table. Left out: samples that come "
            "with the model.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(metavar="N", help="References for each input.", callback=_between(1, 1000), rich_help_panel=HOW),
    ] = 6,
    steps: Annotated[
        int, typer.Option(metavar="N", help="Steps of a path.", callback=_between(1, 10_000), rich_help_panel=HOW)
    ] = 50,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Of everything random.", callback=_between(0, 2**63 - 1), rich_help_panel=HOW)
    ] = 0,
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help="cpu, cuda, cuda:1, mps; [bold]auto[/bold] takes a GPU if there is one.",
            autocompletion=_starting_with(["auto", "cpu", "cuda", "mps"]),
            rich_help_panel=HOW,
        ),
    ] = "auto",
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where files are written.")] = Path("ig2-out"),
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Go on without files, rows and sentences that cannot be explained, and list them."),
    ] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Explain photos, sentences or rows of a table.

    Writes a picture for each input, the attributions (safetensors) with a summary (JSON), and a report to open in a browser.
    """
    from ig2.cli.explain import Request, run

    run(
        Request(
            files=tuple(files or ()),
            texts=tuple(texts or ()),
            model=model,
            trust=trust,
            methods=(method, *(name.strip() for name in (compare or "").split(",") if name.strip())),
            target=target,
            references=references,
            count=count,
            steps=steps,
            rule=rule,
            rows=rows,
            out=out,
            seed=seed,
            device=device,
            quiet=quiet,
            skip_bad=skip_bad,
        )
    )


@app.command(cls=_Command)
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where files are written.")] = Path("ig2-demo"),
    steps: Annotated[int, typer.Option(metavar="N", help="Steps of a path on photos.", callback=_between(1, 2000))] = 20,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Explain photos and digits that come with the packages, by five methods side by side.

    Takes a minute or two, needs no network, and ends with a report to open in a browser.
    """
    from ig2.cli.demo import run

    run(out, steps=steps, quiet=quiet)


@app.command(cls=_Command, epilog=f"For example:\n{BENCH_EXAMPLES}")
def bench(
    suite: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="The suite; [bold]--list[/bold] names them.",
            show_default=False,
            autocompletion=_starting_with(list(SUITES)),
        ),
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Name the suites and exit.")] = False,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="METHODS",
            help="Which of the suite's methods, or how their names begin, with commas: ig,guided,ig2. Left out: all.",
            show_default=False,
        ),
    ] = None,
    own: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FUNCTION",
            help="A method of your own to stand in the table: module:function or LABEL=module:function, called with "
            "(model, x, target, references, seed=...). May be given several times.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How many seeds. Left out: the suite's own number.",
            callback=_between(1, 10_000),
            rich_help_panel=HOW,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small run, to see that everything runs.", rich_help_panel=HOW)
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where the data lie. Left out: what comes with the suite.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="STUDY",
            help="One of the suite's studies instead of its methods: rules, ablation, ...; [bold]--list[/bold] names them.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How many samples are explained. Left out: the suite's own number.",
            callback=_between(1, 1_000_000),
            rich_help_panel=HOW,
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="SPLIT",
            help="Of the samples: [bold]test[/bold], or [bold]validation[/bold] to choose settings on. Default: test.",
            show_default=False,
            autocompletion=_starting_with(["test", "validation"]),
            rich_help_panel=HOW,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Of everything random; of several, the first.",
            callback=_between(0, 2**63 - 1),
            rich_help_panel=HOW,
        ),
    ] = 0,
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help="cpu, cuda, cuda:1, mps; [bold]auto[/bold] takes a GPU if there is one.",
            autocompletion=_starting_with(["auto", "cpu", "cuda", "mps"]),
            rich_help_panel=HOW,
        ),
    ] = "auto",
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where files are written.")] = Path("ig2-bench"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Score again what the folder has from earlier runs.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare methods by the paper's metrics, in a table beside the paper's figures.

    Every score is kept as soon as it is there: a run that was stopped goes on when the same command is given again.
    """
    if list_them:
        width = max(map(len, SUITES), default=0) + 2
        for name, listed in SUITES.items():
            typer.echo(f"{name:<{width}}{listed.about}")
            if listed.studies:
                indent = " " * width
                words = f"studies: {', '.join(listed.studies)}"
                typer.echo(textwrap.fill(words, 80, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False))
        return
    if suite is None:
        raise Misuse(f"name a suite: {', '.join(SUITES)}")
    from ig2.cli.bench import Request, run

    run(
        Request(
            suite=suite,
            methods=methods,
            own=tuple(own or ()),
            seeds=seeds,
            quick=quick,
            data=data,
            samples=samples,
            study=study,
            split=split,
            seed=seed,
            device=device,
            out=out,
            fresh=fresh,
            quiet=quiet,
            debug=debug,
        )
    )


@app.command(cls=_Command, epilog=f"For example:\n{FIGURES_EXAMPLES}")
def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Which figures; [bold]--list[/bold] names them. Left out: all.",
            show_default=False,
            autocompletion=_starting_with(list(FIGURES)),
        ),
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Name the figures and exit.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The folder that holds the data sets, each in a folder of its name (ig2 figures --list). For one that is "
            "missing, and by default: what comes with the package.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A few samples and steps, to see that everything runs.", rich_help_panel=HOW),
    ] = False,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Of everything random.", callback=_between(0, 2**63 - 1), rich_help_panel=HOW)
    ] = 0,
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help="cpu, cuda, cuda:1; [bold]auto[/bold] takes a GPU if there is one.",
            autocompletion=_starting_with(["auto", "cpu", "cuda"]),
            rich_help_panel=HOW,
        ),
    ] = "auto",
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where files are written.")] = Path("ig2-figures"),
    file_format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Of the pictures: png, pdf or svg.",
            autocompletion=_starting_with(["png", "pdf", "svg"]),
        ),
    ] = "png",
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute again what the folder has stored.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Make the paper's figures.

    The numbers of each are stored beside it: drawing it again, in another format for one, takes a second.
    """
    from ig2.cli.figures import Request, run, show_list

    if list_them:
        show_list()
        return
    run(
        Request(
            names=tuple(names or ()),
            data=data,
            out=out,
            quick=quick,
            fresh=fresh,
            seed=seed,
            device=device,
            file_format=file_format,
            quiet=quiet,
            debug=debug,
        )
    )


# -- data --------------------------------------------------------------------------------------------------------------

data = typer.Typer(
    cls=_Group,
    help="List, check and fetch the data that [bold]ig2 bench[/bold] reads.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.add_typer(data, name="data")
DataName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help=f"The data set: {', '.join(DATASETS)}.",
        autocompletion=_starting_with(list(DATASETS)),
    ),
]


@data.command("list", cls=_Command)
def list_data(debug: Debug = False) -> None:
    """Say what each data set is, how its folder must look, on which terms it is given out, and what stands in for it."""
    from ig2.cli.data import show_list

    show_list()


@data.command("verify", cls=_Command)
def verify_data(
    name: DataName,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the data lie.")],
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Read everything in a folder: how many samples of each class, duplicates, what is broken.

    The exit code is 1 where something is broken or missing.
    """
    from ig2.cli.data import verify

    verify(name, folder, quiet)


@data.command("fetch", cls=_Command)
def fetch_data(
    name: DataName,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Where to put it. Left out: a folder in the cache, which is shown.", show_default=False
        ),
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Download a data set that may be downloaded, and check it.

    A download that was cut off goes on where it was when the same command is given again.
    """
    from ig2.cli.data import fetch

    fetch(name, to, quiet)


# -- the end of it -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the command; what goes wrong is told in one line on standard error, and in the exit code."""
    with lasting_streams():
        sys.exit(_run())


def _run() -> Any:
    """The exit code."""
    debug = "--debug" in sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a stream of someone else's
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        with _stopping_on_signals(), nullcontext() if debug else own_warnings():
            code = app(prog_name="ig2", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        if debug:
            raise
        code = _told(error)
    if code == 130:
        say("stopped")
    return code


def _told(error: Exception) -> int:
    """Say what went wrong; the exit code."""
    by_parser: Any = getattr(error, "format_message", None)  # a usage error: they have no common public class
    code = int(getattr(error, "exit_code", 1))
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error)
    elif callable(by_parser):
        command = getattr(getattr(error, "ctx", None), "command_path", "ig2")
        say(f"{by_parser()} ({command} --help lists what there is)")
    elif isinstance(error, ig2.IG2Error):
        say(str(error))
    elif isinstance(error, OSError) and error.strerror:
        say(error.strerror if error.filename is None else f"{error.filename}: {error.strerror}")
        if error.filename is None:
            _forget_output()
    else:
        kind, words = type(error).__name__, str(error)
        say(f"{kind}: {words} (--debug shows where)" if words else f"{kind} (--debug shows where)")
    return code


def _forget_output() -> None:
    """Python would try once more, at its end, to write what could not be written."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _stopping_on_signals() -> Iterator[None]:
    """End on a polite signal as on any error, so that nothing half-written is left behind."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    polite = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # one that is ignored stays so: nohup asks for that
    unheard = [number for number in polite if signal.getsignal(number) is signal.SIG_DFL]
    with suppress(ValueError):  # not in the main thread
        for number in unheard:
            signal.signal(number, stop)
    try:
        yield
    finally:
        with suppress(ValueError):
            for number in unheard:
                signal.signal(number, signal.SIG_DFL)
