"""The command as a whole: help, completion, what is imported, and errors in one line."""

import os
import re
import runpy
import signal
import subprocess
import sys
import warnings
from dataclasses import fields
from importlib.metadata import entry_points

import commands
import pytest

import ig2 as library
import ig2_bench
from ig2 import IG2Warning, InputError, __version__
from ig2._utils import registry
from ig2._utils.registry import Registry
from ig2.cli import app, demo, main
from ig2.methods.catalogue import METHODS, RULES
from ig2_bench import BenchOptions
from ig2_bench.figure import Options

ESCAPE = "\x1b"
HELP = {
    "": "--version --debug --install-completion --show-completion explain demo bench figures data",
    "explain": "FILE --text --rows --target --model --trust --method --compare --rule --references --count --steps --seed "
    "--device --out --skip-bad --quiet --debug --help",
    "demo": "--out --steps --quiet --debug --help",
    "export": "STORE --source --where --limit --out --quiet --debug --help",
    "bench": "NAME --list --methods --own --seeds --quick --data --study --samples --seed --device --out --fresh --quiet "
    "--debug --help",
    "figures": "NAME --list --data --quick --seed --device --out --format --fresh --quiet --debug",
    "data": "list verify fetch",
    "data list": "--debug --help",
    "data verify": "NAME FOLDER --quiet --debug",
    "data fetch": "NAME --to --quiet --debug",
}
COMPLETED = {
    "ex": ["explain", "export"],
    "ben": ["bench"],
    "data fe": ["fetch"],
    "explain --method gui": ["guided-ig"],
    "explain --compare ig,exp": ["ig,expected-ig"],
    "explain --compare ig,i": ["ig,idg", "ig,idgi", "ig,ig2", "ig,ig2-free", "ig,ig2-straight", "ig,input-x-gradient"],
    "explain --rule s": ["scaled", "secant", "shared"],
    "explain --model dig": ["digits"],
    "explain --device c": ["cpu", "cuda"],
    "bench xai": ["xai-bench", "xai-tris", "xai-units"],
    "bench wafer --device m": ["mps"],
    "figures to": ["toy"],
    "data verify mn": ["mnist"],
    "data fetch cel": ["celeba"],
}


# -- help and completion -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", HELP)
def test_help_fits_the_terminal_and_names_every_option(ig2, monkeypatch, command, width):
    monkeypatch.setenv("COLUMNS", str(width))
    result = ig2(*command.split(), "--help")
    assert result.code == 0 and result.err == "" and ESCAPE not in result.out
    assert max(map(len, result.out.splitlines())) <= width
    for name in HELP[command].split():
        assert re.search(rf"^[│\s*]*{name}\b", result.out, re.MULTILINE), name
    assert not re.search(r"<\w+", result.out)  # names of types


def test_every_option_of_suites_and_figures_can_be_typed(ig2):
    for command, options in (("bench", BenchOptions), ("figures", Options)):
        shown = ig2(command, "--help").out
        assert [part.name for part in fields(options) if part.name != "watch" and f"--{part.name} " not in shown] == []


def test_help_lists_every_method_with_a_line_of_its_own_and_every_rule(ig2):
    shown = ig2("explain", "-h").out
    for method in METHODS.values():
        assert re.search(rf"^ +{method.name} +{re.escape(method.about)} *$", shown, re.MULTILINE), method.name
    assert all(rule in shown for rule in RULES)


@pytest.mark.parametrize("command", ["", "data"])
def test_without_a_command_there_is_help_and_a_code_that_says_something_is_missing(ig2, command):
    result = ig2(*command.split())
    assert result.code == 2 and f"Usage: ig2 {command}" in result.out and result.err == ""


@pytest.mark.parametrize("typed", COMPLETED)
def test_the_shell_completes_names(ig2, typed):
    assert sorted(ig2.complete(typed)) == COMPLETED[typed]


def test_the_version_of_the_script_and_of_the_module(ig2, monkeypatch):
    assert ig2("--version") == commands.Result(0, f"ig2 {__version__}\n", "")
    (script,) = entry_points(group="console_scripts", name="ig2")
    assert script.load() is main
    monkeypatch.setattr(sys, "argv", ["ig2", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("ig2", run_name="__main__")
    assert not ended.value.code


# -- what is imported --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "import ig2, ig2_bench; dir(ig2)",
        *(f"run({[*command.split(), '--help']})" for command in HELP),
        "run(['--version'])",
        *(f"complete({typed!r})" for typed in ("ben", "bench xa", "figures to", "data fetch m", "explain --method gui")),
    ],
)
def test_torch_is_imported_when_it_is_needed_and_not_before(code):
    script = f"""
import os, sys
def run(typed):
    sys.argv = ["ig2", *typed]
    from ig2.cli import main
    try:
        main()
    except SystemExit as end:
        assert not end.code
def complete(typed):
    words = "ig2 " + typed
    os.environ.update(_IG2_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    run([])
{code}
assert not {{"torch", "numpy", "matplotlib", "pandas"}} & set(sys.modules), sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("package", [library, ig2_bench])
def test_public_names_are_there_though_nothing_is_imported_yet(package):
    code = f"import sys, {package.__name__} as package; print(sorted(set(package.__all__) - set(dir(package))))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        package.nothing  # noqa: B018


def test_without_the_packages_of_the_command_one_line_says_what_to_install(ig2, monkeypatch):
    monkeypatch.delitem(sys.modules, "ig2.cli.app")
    monkeypatch.setitem(sys.modules, "typer", None)
    assert re.search(r"pip install 'ig2\[cli,demo\]'$", ig2.refused("--version"))


@pytest.fixture
def _without_bench(monkeypatch):
    """What installed packages register is not there."""
    monkeypatch.setattr(registry, "entry_points", lambda **_: ())


@pytest.mark.usefixtures("_without_bench")
@pytest.mark.parametrize(
    "typed",
    ["bench", "bench --list", "bench --help", "bench wafer", "figures", "figures toy", "data fetch pets", "data verify pets x"],
)
def test_without_the_bench_one_line_says_what_to_install(ig2, typed):
    line = ig2.refused(*typed.split(), code=2)
    assert line.endswith("with the package ig2-bench: pip install ig2-bench (in a checkout: pip install ./bench)")


@pytest.mark.usefixtures("_without_bench")
def test_without_the_bench_the_rest_is_as_it_was(ig2):
    shown = ig2("--help")
    assert shown.code == 0 and "explain" in shown.out and "figures" not in shown.out
    listed = ig2("data", "list").out.split("\n\n")
    assert len(listed) == 2 and listed[0].startswith("imagenet-photos")
    assert listed[1].startswith("The data sets of ig2 bench come with the package ig2-bench: pip install ig2-bench")
    assert "did you mean imagenet-photos?" in ig2.refused("data", "fetch", "imagenet-photo", code=2)
    assert ig2.complete("ben") == ig2.complete("bench wa") == []


def test_a_registry_says_what_there_is():
    things = Registry("ig2.nothing", "thing", {"one": "math:pi", "two": "nowhere:x"})
    assert things["one"] > 3 and things["math:tau"] > 6 and "three" not in things and len(things) == 2
    with pytest.raises(KeyError, match="did you mean one"):
        things["ome"]
    with pytest.raises(InputError, match="nowhere"):
        things["two"]
    things["three"] = 3
    assert things["three"] == 3 and list(things) == ["one", "two", "three"]
    del things["three"]
    assert things.get("three") is None and Registry("ig2.nothing", "thing").get("three") is None


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "keyword"),
    [
        ("--nonsense", "No such option"),
        ("nonsense", "No such command"),
        ("explain --steps many a.png", "--steps"),
        ("explain --steps 0 a.png", "between 1 and 10000"),
        ("explain --count -1 a.png", "between 1 and 1000"),
        ("explain --seed 99999999999999999999 a.png", "between 0 and"),
        ("explain --text", "--text"),
        ("explain", "nothing to explain"),
        ("explain a.png b.csv", "image and table"),
        ("explain a.png --text hello", "image and text"),
        ("explain a.csv b.parquet", "expected 1 table, got 2"),
        ("explain a.png --rows 1", "--rows"),
        ("explain a.txt b.txt --rows 1", "--rows"),
        ("explain a.png --method guidedig", "did you mean guided-ig?"),
        ("explain a.png --compare ig,zzz", "'zzz': choose from ig2, ig,"),
        ("explain a.png --rule sharde", "did you mean shared?"),
        ("explain a.png --method gradient --rule left", "takes a rule (ig2, ig,"),
        ("explain --text hello --method xrai", "xrai is for images"),
        ("explain a.csv --compare blur-ig", "blur-ig is for images"),
        ("explain a.png --device gpu", "'gpu' is not available here, only cpu"),
        ("explain a.png --device meta", "'meta' is not available"),
        ("figures toyy", "did you mean toy?"),
        ("figures toy --format gif", "--format"),
        ("figures toy --device toaster", "'toaster' is not available"),
        ("data verify terc trec", "did you mean trec?"),
        ("data fetch nothing", "'nothing': choose from"),
        ("data verify mnist", "Missing argument"),
    ],
)
def test_what_makes_no_sense_is_a_line_and_exit_code_2(ig2, typed, keyword):
    assert keyword in ig2.refused(*typed.split(), code=2)


@pytest.mark.parametrize("typed", ["--debug explain nowhere.png", "explain nowhere.png --debug", "bench zzz --debug"])
def test_a_traceback_only_with_debug_wherever_it_is_typed(ig2, typed, monkeypatch):
    assert ig2.refused("explain", "nowhere.png") == "nowhere.png does not exist"
    monkeypatch.setattr(sys, "argv", ["ig2", *typed.split()])
    with pytest.raises(InputError, match=r"nowhere\.png|zzz"):
        app.main()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ZeroDivisionError("division\nby zero"), "ZeroDivisionError: division by zero (--debug shows where)"),
        (MemoryError(), "MemoryError (--debug shows where)"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError(5, "Input/output error", "a.bin"), "a.bin: Input/output error"),
        (ValueError(f"{ESCAPE}[31mred{ESCAPE}[0m\a"), "ValueError: [31mred [0m (--debug shows where)"),
    ],
)
def test_an_unexpected_error_is_a_line_too(ig2, monkeypatch, error, line):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(demo, "run", fail)
    assert ig2.refused("demo") == line


def test_warnings_of_ours_are_a_line_and_those_of_others_are_not_shown(ig2, monkeypatch):
    def run(*_, **__):
        warnings.warn("deep below", RuntimeWarning, stacklevel=1)
        warnings.warn("two\nlines", IG2Warning, stacklevel=1)

    monkeypatch.setattr(demo, "run", run)
    assert ig2("demo") == commands.Result(0, "", "ig2: warning: two lines\n")


def test_a_signal_that_is_ignored_stays_so(ig2, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does
    try:
        monkeypatch.setattr(demo, "run", lambda *_, **__: os.kill(os.getpid(), signal.SIGHUP))
        assert ig2("demo").code == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_output_that_is_full_is_no_traceback(tmp_path):
    command = [sys.executable, "-m", "ig2", "--version"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (1, "ig2: No space left on device\n")
