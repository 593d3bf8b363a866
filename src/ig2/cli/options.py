"""The options of every command, each declared once: from these dataclasses come what can be typed and what a command gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from ig2._utils.datasets import DATASETS
from ig2._utils.options import DEVICES, Completion, RunOptions, option
from ig2.methods.catalogue import METHODS, RULES
from ig2.modalities.models import MODELS

FIGURES_OF_COLUMNS = ("beeswarm", "importance", "waterfall", "dependence")
LANGUAGE = "Language models"  # the panel of the help for --lm
# of the options, what `ig2 serve --what-if` finds the model by
TYPED = ("model", "method", "steps", "rule", "references")


def argument(help: str, metavar: str, default: Any = MISSING, complete: Completion = ()) -> Any:
    """Declare a field that is typed without a dash, as `option` declares the others."""
    return field(default=default, metadata={"help": help, "metavar": metavar, "complete": complete, "argument": True})


def out_option(folder: str) -> Any:
    """Declare `--out` with its default."""
    return option(Path(folder), "The folder to write to.", "--out", "-o", panel=None)


def list_option(what: str) -> Any:
    """Declare `--list`."""
    return option(False, f"List the {what} and exit.", "--list", panel=None)


def dataset_argument() -> Any:
    """Declare the name of a data set."""
    return argument("The data set; see [bold]ig2 data list[/bold].", "NAME", complete=DATASETS)


def _complete_methods(incomplete: str) -> list[str]:
    """Complete the last name of a list between commas."""
    before, comma, last = incomplete.rpartition(",")
    chosen = before.split(",")
    return [before + comma + name for name in METHODS if name.startswith(last) and name not in chosen]


# -- shared ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DebugOptions:
    """The option of every command."""

    debug: bool = option(False, "Print a traceback if something fails.", panel=None)


@dataclass(frozen=True, kw_only=True)
class TerminalOptions(DebugOptions):
    """The options of every command that takes a while."""

    quiet: bool = option(False, "Hide the progress.", "--quiet", "-q", panel=None)


@dataclass(frozen=True, kw_only=True)
class StoreOptions(TerminalOptions):
    """The options of every command that stores results and goes on from them."""

    fresh: bool = option(False, "Recompute the results that earlier runs stored in the folder.", panel=None)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of every command that explains a model: which one, and which of its classes."""

    target: str = option(
        "auto",
        "The class to explain: a name, a number, or [bold]auto[/bold] for the predicted class.",
        metavar="CLASS",
        panel=None,
    )
    against: str | None = option(
        None,
        "The class to explain it against: a name or number, several separated by commas, [bold]next[/bold] for the most likely "
        "other class, or [bold]others[/bold] for any other class. Default: for a classifier, the most likely other class that "
        "references can be of.",
        metavar="CLASS",
        panel=None,
    )
    model: str | None = option(
        None,
        f"The model: a name ({', '.join(MODELS)}, torchvision:NAME, timm:NAME, transformers:NAME), a module:function that "
        "returns a network or an estimator (module:function@FILE to load weights), or a file. Default: an ImageNet classifier "
        "for photos, a question classifier for text, a tumour classifier for tables.",
        "--model",
        "-m",
        complete=MODELS,
    )
    trust: bool = option(
        False, "Open a model file that can run code (torch.export, TorchScript, some skops files), with all your permissions."
    )
    size: str | None = option(
        None,
        "The pixels that a bare network (module:function or a file) takes: 224, or height x width, 224x320. Default: 224, or "
        "the size it was exported for.",
        metavar="N",
    )
    bounds: str | None = option(
        None, "The values it takes for black and white: 0,255 or [bold]--bounds=-1,1[/bold]. Default: 0,1.", metavar="LOW,HIGH"
    )
    mean: str | None = option(
        None, "The mean to subtract from these values: one number, or one per channel. Default: 0.", metavar="NUMBERS"
    )
    std: str | None = option(
        None, "The standard deviation to divide them by: one number, or one per channel. Default: 1.", metavar="NUMBERS"
    )
    classes: str | None = option(
        None,
        "The names of its classes: separated by commas, in a .txt file, or [bold]imagenet[/bold]. Default: their numbers.",
        metavar="NAMES",
    )


@dataclass(frozen=True, kw_only=True)
class AskingOptions(ModelOptions, RunOptions, TerminalOptions):
    """The options of every command that asks a method why a model says what it says."""

    lm: str | None = option(
        None,
        "A language model: a Hugging Face name or folder, a .gguf file, or [bold]smollm2[/bold] from the lm-demo extra. "
        "--target and --against are then continuations of the prompt, such as ' Paris'; of a source of prompts, columns "
        "target, against and rather_than set these for each prompt.",
        metavar="NAME",
        panel=LANGUAGE,
        complete=("smollm2",),
    )
    precision: Literal["float32", "tf32", "bfloat16", "float16"] | None = option(
        None,
        "The precision of the model's arithmetic: float32, tf32, bfloat16 or float16; paths and sums are not affected. "
        "Default: that of its weights.",
        panel=LANGUAGE,
    )
    method: str | None = option(
        None,
        "The method; see below. Default: ig2, and strata before it where photos of 96 pixels or more are explained one by "
        "one; deepshap for a language model.",
        complete=METHODS,
    )
    rule: str | None = option(
        None,
        f"The rule that turns gradients along a path into attributions: {', '.join(RULES)}. Default: the method's own.",
        complete=RULES,
    )
    references: str | None = option(
        None,
        "The references: a source to choose them from, such as a folder of photos, a .txt file of sentences or a table; zeros, "
        "white, blurred or farthest; or a module:function that returns a strategy. Default: those that come with the model.",
        metavar="SOURCE",
    )
    count: int | None = option(
        None, "The number of references per input. Default: 4, or all if there are fewer.", bounds=(1, 1000)
    )
    steps: int = option(50, "The number of steps along each path.", bounds=(1, 10_000))


# -- of each command ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(AskingOptions):
    """The options of `ig2 explain`."""

    files: tuple[Path, ...] = argument(
        "Photos or sounds (.wav), folders of them, a .txt file of sentences, or a table (.csv, .tsv, .parquet).", "FILE", ()
    )
    texts: tuple[str, ...] = option((), "A sentence to explain. May be repeated.", "--text", "-t", panel=None)
    rows: str | None = option(
        None,
        "The rows of the table or lines of the .txt file to explain, counted from 1: 1,4 or 2:5. Default: the first 100 rows, "
        "or all lines.",
        panel=None,
    )
    prompt: str | None = option(None, "The text for the language model to continue.", metavar="TEXT", panel=LANGUAGE)
    rather_than: str | None = option(
        None, "A reference prompt to compare with, aligned word by word.", "--rather-than", metavar="TEXT", panel=LANGUAGE
    )
    generate: int | None = option(
        None, "Generate up to this many tokens and explain each of them.", panel=LANGUAGE, bounds=(1, 1000)
    )
    chat: bool = option(False, "Put the prompt into the model's chat template, as a user message.", panel=LANGUAGE)
    compare: str | None = option(
        None,
        "Other methods to show beside it, separated by commas: ig,expected-ig,guided-ig.",
        metavar="METHODS",
        complete=_complete_methods,
    )
    at: str | None = option(
        None,
        "Attribute to a layer of an image model instead of to the pixels, and show the map over the photo: a module name such "
        "as layer4. Not for methods with layers of their own, such as gradcam.",
        metavar="LAYER",
    )
    scale: float | None = option(
        None,
        "Blur the maps of photos by this many pixels, keeping their sums; the report has a slider for it. The stored numbers "
        "are not blurred. Default: 2 for photos of 224 pixels, 0 for small images.",
        metavar="PIXELS",
        bounds=(0, 1000),
    )
    out: Path = out_option("ig2-out")
    open_report: bool = option(False, "Open the report in the browser.", "--open", panel=None)
    skip_bad: bool = option(False, "Skip files, rows and sentences that cannot be explained, and list them.", panel=None)


@dataclass(frozen=True, kw_only=True)
class RunCommandOptions(AskingOptions):
    """The options of `ig2 run`."""

    source: str = argument(
        "A folder, file or pattern of images, sounds, tables (.parquet, .csv, .tsv, .jsonl) or .txt files with one text per "
        "line; a folder written by Hugging Face's save_to_disk; or a module:function that returns a data set.",
        "SOURCE",
    )
    out: Path = out_option("ig2-run")
    retry_failed: bool = option(False, "Retry the items that failed.", panel=None)
    id: str | None = option(
        None, "The column that holds the ids. Default: the file name and row number.", metavar="COLUMN", panel=None
    )
    label: str | None = option(None, "The column that holds the true classes.", metavar="COLUMN", panel=None)
    column: str | None = option(None, "The column that holds the text or image, if rows have several.", panel=None)
    values: str | None = option(
        None,
        "How to store the attributions: float32, float16, units (one number per word, column or "
        "window), view (as they are shown: a photo's summed over its channels), grid:14, "
        "superpixels:50 or none. Default: units for texts and tables, otherwise float32.",
        panel=None,
        complete=("float32", "float16", "units", "view", "grid:14", "superpixels:50", "none"),
    )
    gradcf: bool = option(False, "Store the counterfactuals too.", panel=None)
    per_reference: bool = option(
        False, "Store the values for each reference too; the store grows with their number.", panel=None
    )
    metrics: str | None = option(
        None, "Metrics to compute for every item, separated by commas: insertion,deletion.", metavar="METRICS", panel=None
    )
    method: str | None = option(
        None,
        "The method; see [bold]ig2 explain --help[/bold]. Default: ig2, or deepshap for a language model.",
        complete=METHODS,
    )
    batch: int | None = option(
        None, "The number of items to explain at once. Default: depends on the kind of data.", bounds=(1, 100_000)
    )
    readers: int | None = option(
        None,
        "The number of threads that read ahead; on a GPU, processes for images. Default: 2; on a GPU, one per core, 8 at most.",
        bounds=(1, 256),
    )
    read_by_threads: bool = option(
        False, "Read with threads on a GPU too, for a source that keeps state in this process.", "--read-by-threads"
    )
    engine: str = option(
        "local", "Where to run: local for this process, ray for several processes or machines.", complete=("local", "ray")
    )
    workers: int | None = option(None, "The number of worker processes, with Ray. Default: 2.", bounds=(1, 100_000))
    gpus_per_worker: float | None = option(None, "The number of GPUs per worker, with Ray. Default: 0.", metavar="N")
    address: str | None = option(None, "The address of a Ray cluster. Default: a cluster on this machine.")


@dataclass(frozen=True, kw_only=True)
class StatusOptions(DebugOptions):
    """The options of `ig2 status`."""

    store: Path = argument(
        "The store: a folder written by [bold]ig2 run[/bold], or [bold]store[/bold] in one "
        "written by [bold]ig2 explain[/bold].",
        "STORE",
    )


@dataclass(frozen=True, kw_only=True)
class PlotOptions(DebugOptions):
    """The options of `ig2 plot`."""

    place: Path = argument(
        "The attributions of a table: a store, or a .safetensors file written by [bold]ig2 explain[/bold].", "PLACE"
    )
    figure: str = option(
        "beeswarm",
        f"The figure to draw: {', '.join(FIGURES_OF_COLUMNS)}.",
        complete=FIGURES_OF_COLUMNS,
        panel=None,
    )
    target: str | None = option(
        None, "Draw only rows that explain this class: a name or a number.", metavar="CLASS", panel=None
    )
    column: str | None = option(None, "The column to draw in a dependence.", panel=None)
    colour: str | None = option(None, "Another column, whose values colour the points of a dependence.", panel=None)
    row: int = option(1, "The row to draw in a waterfall, counted from 1.", bounds=(1, 2**31), panel=None)
    top: int = option(15, "The number of columns to show.", bounds=(1, 1000), panel=None)
    out: Path | None = option(
        None,
        "The file to write: .png, .pdf or .svg. Default: a .png named after the figure, in the current folder.",
        metavar="FILE",
        panel=None,
    )


@dataclass(frozen=True, kw_only=True)
class ServeOptions(ModelOptions, DebugOptions):
    """The options of `ig2 serve`."""

    stores: tuple[Path, ...] = argument(
        "The stores: the first provides the items, the others are compared with it.", "STORE", ()
    )
    source: str | None = option(
        None, "The images of the first store: the source of its run. Default: show maps without images.", panel=None
    )
    host: str = option("127.0.0.1", "The address to listen on; any but a loopback address requires a token.", panel=None)
    port: int | None = option(
        None, "The port to listen on. Default: 8642, or the next free one.", bounds=(0, 65535), panel=None
    )
    no_open: bool = option(False, "Do not open a browser.", "--no-open", panel=None)
    what_if: bool = option(
        False, "Explain new and edited inputs with the model of the store, or with [bold]--model[/bold].", "--what-if",
        panel=None,
    )  # fmt: skip
    method: str | None = option(None, "The method for [bold]--what-if[/bold]. Default: that of the store.", complete=METHODS)
    steps: int | None = option(None, "The number of steps along each path. Default: as in the store.", bounds=(1, 10_000))
    references: str | None = option(
        None,
        "The references: a source to choose them from, or zeros, white, blurred or farthest. Default: the strategy of the "
        "store, otherwise those that come with the model.",
        metavar="SOURCE",
    )
    count: int | None = option(None, "The number of references per input. Default: as in the store.", bounds=(1, 1000))
    device: str = option("auto", "cpu, cuda, cuda:1, mps; [bold]auto[/bold] takes a GPU if there is one.", complete=DEVICES)


@dataclass(frozen=True, kw_only=True)
class ExportOptions(TerminalOptions):
    """The options of `ig2 export`."""

    stores: tuple[Path, ...] = argument(
        "The stores: the first provides the items, the others are compared with it.", "STORE", ()
    )
    source: str | None = option(
        None, "The images of the first store: the source of its run. Default: show maps without images.", panel=None
    )
    where: str = option(
        "", 'Export only items that meet a condition, such as "trust < 0.5". Default: all.', metavar="CONDITION", panel=None
    )
    limit: int = option(10_000, "Export at most this many items, the first ones.", bounds=(1, 10_000), panel=None)
    out: Path = out_option("ig2-site")


@dataclass(frozen=True, kw_only=True)
class DemoOptions(TerminalOptions):
    """The options of `ig2 demo`."""

    out: Path = out_option("ig2-demo")
    steps: int = option(20, "The number of steps along each path on photos.", bounds=(1, 2000), panel=None)


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(TerminalOptions):
    """The options of `ig2 data verify`."""

    name: str = dataset_argument()
    folder: Path = argument("The folder that holds the data.", "FOLDER")


@dataclass(frozen=True, kw_only=True)
class FetchOptions(TerminalOptions):
    """The options of `ig2 data fetch`."""

    name: str = dataset_argument()
    to: Path | None = option(
        None, "The folder to download to. Default: a folder in the cache, whose path is printed.", panel=None
    )


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
