"""The options of every command, each declared once: from these dataclasses come what can be typed and what a command gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from ig2.adapters.models import MODELS
from ig2.benchmarks.datasets import DATASETS
from ig2.benchmarks.figures import FIGURES, Options, PictureFormat
from ig2.benchmarks.options import DEVICES, Completion, RunOptions, option
from ig2.benchmarks.suite import SUITES, BenchOptions
from ig2.cli.methods import METHODS, RULES

FIGURES_OF_COLUMNS = ("beeswarm", "importance", "waterfall", "dependence")
LANGUAGE = "Language models"  # the panel of the help for --lm


def argument(help: str, metavar: str, default: Any = MISSING, complete: Completion = ()) -> Any:
    """Declare a field that is typed without a dash, as `option` declares the others."""
    return field(default=default, metadata={"help": help, "metavar": metavar, "complete": complete, "argument": True})


def out_option(folder: str) -> Any:
    """Declare `--out` with its default."""
    return option(Path(folder), "The folder for the files.", "--out", "-o", panel=None)


def list_option(what: str) -> Any:
    """Declare `--list`."""
    return option(False, f"Print the names of the {what} and exit.", "--list", panel=None)


def dataset_argument() -> Any:
    """Declare the name of a data set."""
    return argument("The data set; [bold]ig2 data list[/bold] names them.", "NAME", complete=DATASETS)


def _complete_methods(incomplete: str) -> list[str]:
    """Complete the last name of a list between commas."""
    before, comma, last = incomplete.rpartition(",")
    chosen = before.split(",")
    return [before + comma + name for name in METHODS if name.startswith(last) and name not in chosen]


def _complete_suites(incomplete: str) -> list[str]:
    return [name for name in sorted([*SUITES, "leaderboard"]) if name.startswith(incomplete)]


# -- shared ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DebugOptions:
    """The option of every command."""

    debug: bool = option(False, "Print a traceback if something fails.", panel=None)


@dataclass(frozen=True, kw_only=True)
class TerminalOptions(DebugOptions):
    """The options of every command that takes a while."""

    quiet: bool = option(False, "Show no progress bar.", "--quiet", "-q", panel=None)


@dataclass(frozen=True, kw_only=True)
class StoreOptions(TerminalOptions):
    """The options of every command that stores results and goes on from them."""

    fresh: bool = option(False, "Compute again what the folder has from earlier runs.", panel=None)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of every command that explains a model: which one, and which of its classes."""

    target: str = option(
        "auto",
        "The class to explain: a number, a name, or [bold]auto[/bold] for the predicted one.",
        metavar="CLASS",
        panel=None,
    )
    against: str | None = option(
        None,
        "Rather than which: a class, several with commas between them, [bold]next[/bold] for the most likely of the others, or "
        "[bold]others[/bold] for any. Default: next for a classifier.",
        metavar="CLASS",
        panel=None,
    )
    model: str | None = option(
        None,
        f"A name ({', '.join(MODELS)}, torchvision:NAME, timm:NAME, transformers:NAME), a module:function that returns a "
        "network or an estimator (with weights: module:function@FILE), or a file. Default: an ImageNet classifier for photos, "
        "a classifier of questions for text, of tumours for tables.",
        "--model",
        "-m",
        complete=MODELS,
    )
    trust: bool = option(
        False, "Open a model file that is a program (torch.export, TorchScript, some of skops). It can do whatever you can do."
    )
    size: str | None = option(
        None, "Pixels that a network alone (module:function, a file) takes: 224, or height x width. Default: 224.", metavar="N"
    )
    bounds: str | None = option(
        None, "What it takes black and white to be: 0,255 or [bold]--bounds=-1,1[/bold]. Default: 0,1.", metavar="LOW,HIGH"
    )
    mean: str | None = option(
        None, "What it wants subtracted from these values: 0.5, or one for each channel. Default: 0.", metavar="NUMBERS"
    )
    std: str | None = option(None, "What it wants them divided by, likewise. Default: 1.", metavar="NUMBERS")
    classes: str | None = option(
        None, "Names of its outputs: between commas, in a .txt file, or [bold]imagenet[/bold].", metavar="NAMES"
    )


# -- of each command ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(ModelOptions, RunOptions, TerminalOptions):
    """The options of `ig2 explain`."""

    files: tuple[Path, ...] = argument(
        "Photos or folders of photos, sounds (.wav), a .txt file of sentences, or a table (.csv, .tsv, .parquet).", "FILE", ()
    )
    texts: tuple[str, ...] = option((), "A sentence; may be given several times.", "--text", "-t", panel=None)
    rows: str | None = option(
        None,
        "Rows of the table or lines of the .txt file, from 1 on: 1,4 or 2:5. Default: the first 100 rows, all lines.",
        panel=None,
    )
    lm: str | None = option(
        None,
        "A language model: a name or folder of Hugging Face, a .gguf file, or [bold]smollm2[/bold] of the extra lm-demo. "
        "--target and --against are then what comes next, such as ' Paris'.",
        metavar="NAME",
        panel=LANGUAGE,
        complete=("smollm2",),
    )
    prompt: str | None = option(None, "The text that the language model continues.", metavar="TEXT", panel=LANGUAGE)
    rather_than: str | None = option(
        None, "Another prompt to contrast with, aligned word by word.", "--rather-than", metavar="TEXT", panel=LANGUAGE
    )
    generate: int | None = option(None, "Explain each of so many generated tokens.", panel=LANGUAGE, bounds=(1, 1000))
    chat: bool = option(False, "Put the prompt into the model's chat template, as a user's message.", panel=LANGUAGE)
    precision: Literal["float32", "tf32", "bfloat16", "float16"] | None = option(
        None, "Of the language model's arithmetic; paths and sums keep theirs. Default: that of its weights.", panel=LANGUAGE
    )
    method: str | None = option(
        None,
        "The method; see below. Default: ig2, for photos of 96 pixels or more strata and ig2, of a language model deepshap.",
        complete=METHODS,
    )
    compare: str | None = option(
        None,
        "Methods to show beside it, separated by commas: ig,expected-ig,guided-ig.",
        metavar="METHODS",
        complete=_complete_methods,
    )
    rule: str | None = option(
        None, f"How gradients on a path become attribution: {', '.join(RULES)}. Default: each method's own.", complete=RULES
    )
    at: str | None = option(
        None,
        "Attribute to a layer of a photo's model in place of the pixels, and show it on them: the name of a module, such as "
        "layer4. Maps by layers of their own, such as gradcam, take none.",
        metavar="LAYER",
    )
    scale: float | None = option(
        None,
        "Blur the maps of photos by this many pixels, their sums kept; the report's slider changes it. The numbers in the "
        "files are not blurred. Default: 2 for photos of 224 pixels, 0 for small ones.",
        metavar="PIXELS",
        bounds=(0, 1000),
    )
    references: Path | None = option(
        None,
        "What to contrast with: a folder of photos or sounds, a .txt file of sentences, a table. Default: samples that come "
        "with the model.",
        metavar="PATH",
    )
    count: int | None = option(None, "References for each input. Default: 4, or as many as there are.", bounds=(1, 1000))
    steps: int = option(50, "Steps of a path.", bounds=(1, 10_000))
    out: Path = out_option("ig2-out")
    open_report: bool = option(False, "Open the report in the browser.", "--open", panel=None)
    skip_bad: bool = option(False, "Skip files, rows and sentences that cannot be explained, and list them.", panel=None)


@dataclass(frozen=True, kw_only=True)
class RunCommandOptions(ModelOptions, RunOptions, TerminalOptions):
    """The options of `ig2 run`."""

    source: str = argument(
        "A folder, file or pattern of images, of sounds, of tables (.parquet, .csv, .tsv, .jsonl) or of .txt files with a "
        "text on each line; a folder of Hugging Face's save_to_disk; or module:function that returns a data set.",
        "SOURCE",
    )
    out: Path = out_option("ig2-run")
    retry_failed: bool = option(False, "Explain again the items that failed.", panel=None)
    id: str | None = option(None, "The column with the ids. Default: file name and row number.", metavar="COLUMN", panel=None)
    label: str | None = option(None, "The column with the classes.", metavar="COLUMN", panel=None)
    column: str | None = option(None, "The column with the text or image, of rows that have several.", panel=None)
    values: str | None = option(
        None,
        "What to keep of the values: float32, float16, units (words, columns), grid:14, superpixels:50 or none. Default: "
        "units, of images float32.",
        panel=None,
        complete=("float32", "float16", "units", "grid:14", "superpixels:50", "none"),
    )
    gradcf: bool = option(False, "Keep the counterfactuals too.", panel=None)
    per_reference: bool = option(False, "Keep each reference's own values too; the store grows with their number.", panel=None)
    metrics: str | None = option(
        None, "Scores for every item, separated by commas: insertion,deletion.", metavar="METRICS", panel=None
    )
    lm: str | None = option(
        None,
        "A language model, for a source of prompts: a name or folder of Hugging Face, a .gguf file, or [bold]smollm2[/bold]. "
        "Columns target, against and rather_than say what is asked of each prompt.",
        metavar="NAME",
        panel=LANGUAGE,
        complete=("smollm2",),
    )
    precision: Literal["float32", "tf32", "bfloat16", "float16"] | None = option(
        None, "Of the language model's arithmetic; paths and sums keep theirs. Default: that of its weights.", panel=LANGUAGE
    )
    method: str | None = option(
        None,
        "The method; [bold]ig2 explain --help[/bold] lists them. Default: ig2, of a language model deepshap.",
        complete=METHODS,
    )
    rule: str | None = option(None, "How gradients on a path become attribution.", complete=RULES)
    references: str | None = option(
        None,
        "The pool to choose references from, a source; zeros, white, blurred or farthest; or module:function that returns a "
        "strategy. Default: samples that come with the model.",
        metavar="SOURCE",
    )
    count: int | None = option(None, "References for each item. Default: 10.", bounds=(1, 1000))
    steps: int = option(50, "Steps of a path.", bounds=(1, 10_000))
    batch: int | None = option(None, "Items explained at once. Default: by the kind of data.", bounds=(1, 100_000))
    readers: int | None = option(
        None,
        "Threads that read ahead, processes for images on a GPU. Default: 2, for a GPU as many as cores, 8 at most.",
        bounds=(1, 256),
    )
    read_by_threads: bool = option(
        False, "Read by threads on a GPU, too, for a source that keeps something in this process.", "--read-by-threads"
    )
    engine: str = option("local", "local for this process, ray for several processes or machines.", complete=("local", "ray"))
    workers: int = option(2, "Processes that explain, with Ray.", bounds=(1, 100_000))
    gpus_per_worker: float = option(0.0, "GPUs of each of them.", metavar="N")
    address: str | None = option(None, "Of a Ray cluster. Default: one on this machine.")


@dataclass(frozen=True, kw_only=True)
class StatusOptions(DebugOptions):
    """The options of `ig2 status`."""

    store: Path = argument("The folder of the store.", "STORE")


@dataclass(frozen=True, kw_only=True)
class PlotOptions(DebugOptions):
    """The options of `ig2 plot`."""

    place: Path = argument(
        "A table's attributions: the folder of a store, or a .safetensors file of [bold]ig2 explain[/bold].", "PLACE"
    )
    figure: str = option(
        "beeswarm",
        f"What to draw: {', '.join(FIGURES_OF_COLUMNS)}.",
        complete=FIGURES_OF_COLUMNS,
        panel=None,
    )
    target: str | None = option(None, "Only rows that explain this class, a name or a number.", metavar="CLASS", panel=None)
    column: str | None = option(None, "The column, of a dependence.", panel=None)
    colour: str | None = option(None, "Another column, whose cells colour the points of a dependence.", panel=None)
    row: int = option(1, "The row, of a waterfall, from 1 on.", bounds=(1, 2**31), panel=None)
    top: int = option(15, "How many columns are shown.", bounds=(1, 1000), panel=None)
    out: Path | None = option(
        None, "The file: .png, .pdf or .svg. Default: the figure's name in this folder.", metavar="FILE", panel=None
    )


@dataclass(frozen=True, kw_only=True)
class ServeOptions(ModelOptions, DebugOptions):
    """The options of `ig2 serve`."""

    stores: tuple[Path, ...] = argument("The folders of runs: the first has the items, the others are compared.", "STORE", ())
    source: str | None = option(
        None, "Where the images of the first store are: the source of its run. Default: maps alone.", panel=None
    )
    host: str = option("127.0.0.1", "The address to listen on; any but a loopback address asks for a token.", panel=None)
    port: int | None = option(None, "The port. Default: 8642, or the next that is free.", bounds=(0, 65535), panel=None)
    no_open: bool = option(False, "Do not open a browser.", "--no-open", panel=None)
    what_if: bool = option(
        False, "Explain new and edited inputs by the model of the store, or by that of [bold]--model[/bold].", "--what-if",
        panel=None,
    )  # fmt: skip
    method: str | None = option(None, "Of what if, likewise the following. Default: that of the store.", complete=METHODS)
    steps: int | None = option(None, "Steps of a path. Default: those of the store.", bounds=(1, 10_000))
    references: str | None = option(
        None,
        "The pool to choose references from, or zeros, white, blurred, farthest. Default: a strategy of the store, otherwise "
        "samples that come with the model.",
        metavar="SOURCE",
    )
    count: int | None = option(None, "References for each input. Default: those of the store.", bounds=(1, 1000))
    device: str = option("auto", "cpu, cuda, cuda:1, mps; [bold]auto[/bold] takes a GPU if there is one.", complete=DEVICES)


@dataclass(frozen=True, kw_only=True)
class ExportOptions(TerminalOptions):
    """The options of `ig2 export`."""

    stores: tuple[Path, ...] = argument("The folders of runs: the first has the items, the others are compared.", "STORE", ())
    source: str | None = option(
        None, "Where the images of the first store are: the source of its run. Default: maps alone.", panel=None
    )
    where: str = option("", 'Which items: a condition such as "trust < 0.5". Default: all.', metavar="CONDITION", panel=None)
    limit: int = option(10_000, "How many items at most, the first ones.", bounds=(1, 10_000), panel=None)
    out: Path = out_option("ig2-site")


@dataclass(frozen=True, kw_only=True)
class DemoOptions(TerminalOptions):
    """The options of `ig2 demo`."""

    out: Path = out_option("ig2-demo")
    steps: int = option(20, "Steps of a path on photos.", bounds=(1, 2000), panel=None)


@dataclass(frozen=True, kw_only=True)
class BenchCommandOptions(BenchOptions, StoreOptions):
    """The options of `ig2 bench`; those that a suite may use are in `BenchOptions`."""

    suite: str | None = argument("The suite, or leaderboard; [bold]--list[/bold] names them.", "NAME", None, _complete_suites)
    show_list: bool = list_option("suites")
    methods: str | None = option(
        None,
        "Which of the suite's methods, by their names or first words, separated by commas: ig,guided,ig2. Default: all.",
        metavar="METHODS",
        panel=None,
    )
    own: tuple[str, ...] = option(
        (),
        "A method of your own to add to the table: module:function or LABEL=module:function, called with (model, x, target, "
        "references, seed=...). May be given several times.",
        metavar="FUNCTION",
        panel=None,
    )
    out: Path = out_option("ig2-bench")


@dataclass(frozen=True, kw_only=True)
class FiguresOptions(Options, StoreOptions):
    """The options of `ig2 figures`."""

    names: tuple[str, ...] = argument("The figures; [bold]--list[/bold] names them. Default: all.", "NAME", (), FIGURES)
    show_list: bool = list_option("figures")
    out: Path = out_option("ig2-figures")
    file_format: str = option(
        "png", "Of the pictures: png, pdf or svg.", "--format", complete=get_args(PictureFormat), panel=None
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(TerminalOptions):
    """The options of `ig2 data verify`."""

    name: str = dataset_argument()
    folder: Path = argument("The folder of the data.", "FOLDER")


@dataclass(frozen=True, kw_only=True)
class FetchOptions(TerminalOptions):
    """The options of `ig2 data fetch`."""

    name: str = dataset_argument()
    to: Path | None = option(None, "The folder to put it in. Default: one in the cache, which is printed.", panel=None)


# -- from a dataclass to a command -------------------------------------------------------------------------------------


def add_command(app: typer.Typer, name: str | None = None, epilog: str | None = None) -> Callable[[Any], Any]:
    """Make a function of one argument, a dataclass of options, a command with those options.

    Args:
        app: the command it belongs to.
        name: what is typed; by default the name of the function.
        epilog: what follows its help.
    """

    def register(run: Callable[[Any], None]) -> Callable[[Any], None]:
        (options,) = (hint for name, hint in get_type_hints(run).items() if name != "return")
        many = {part.name for part in fields(options) if isinstance(part.default, tuple)}

        def call(**typed: Any) -> None:
            run(options(**{key: tuple(value or ()) if key in many else value for key, value in typed.items()}))

        call.__doc__, call.__name__ = run.__doc__, run.__name__
        call.__annotations__ = {}
        call.__signature__ = inspect.Signature(list(_parameters(options)))  # type: ignore[attr-defined]
        app.command(name, cls=Command, epilog=epilog)(call)
        return run

    return register


def _parameters(options: type) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each field that has help, those of base classes last."""
    declared = {part.name: part for part in fields(options)}
    hints = get_type_hints(options)
    names = dict.fromkeys(name for kind in options.__mro__ for name in inspect.get_annotations(kind))
    for part in (declared[name] for name in names if "help" in getattr(declared.get(name), "metadata", ())):
        kind = hints[part.name]
        if isinstance(part.default, tuple):
            kind = list[get_args(kind)[0]] | None  # type: ignore[misc]
        elif any(get_origin(inner) is Literal for inner in get_args(kind)):
            kind = str | None
        default = inspect.Parameter.empty if part.default is MISSING else None if part.default == () else part.default
        annotation = Annotated[kind, _declare(part, kind)]  # type: ignore[valid-type]
        yield inspect.Parameter(part.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _declare(part: Field[Any], kind: Any) -> Any:
    details = part.metadata
    flags = details.get("flags") or (f"--{part.name.replace('_', '-')}",)
    usual = "N" if kind in (int, int | None) else "FOLDER" if kind in (Path, Path | None) else flags[0].strip("-").upper()
    common = {"help": details["help"], "autocompletion": _completion(details["complete"])}
    if "argument" in details:
        return typer.Argument(**common, metavar=details["metavar"], show_default=False)
    callback = None if details["bounds"] is None else _between(*details["bounds"])
    metavar = None if kind is bool else details["metavar"] or usual
    return typer.Option(*flags, **common, metavar=metavar, callback=callback, rich_help_panel=details["panel"])


def _completion(names: Completion) -> Callable[[str], list[str]] | None:
    if callable(names):
        return names
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def _between(low: int, high: int) -> Callable[[Any], Any]:
    """Check bounds. As the parser's own they would fill the help with digits."""

    def check(value: int | None) -> int | None:
        if value is not None and not low <= value <= high:
            raise typer.BadParameter(f"{value} is not between {low} and {high}")
        return value

    return check


def _hide_types(params: list[Any]) -> list[Any]:
    """Remove <bool> beside a flag and <list[Path]> beside an argument from the help: their names are enough."""
    for param in params:
        if param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: None
        elif param.is_flag and param.metavar is None:
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command whose help shows no types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types(super().get_params(ctx))


class Group(TyperGroup):
    """A command with commands of its own, whose help shows no types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types(super().get_params(ctx))


def format_examples(lines: Iterable[str]) -> str:
    """Format commands as the help shows examples."""
    return "For example:\n" + "\n".join(f"  [bold]{line}[/bold]" for line in lines)
