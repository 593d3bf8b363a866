"""The catalogue of methods, and everything that is made from it or named in it."""

import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

import ig2
from ig2 import methods, rules
from ig2.errors import InputError
from ig2.methods.catalogue import CLASSES, ENTRIES, METHODS, RULES, Facts

ROOT = Path(__file__).parents[2]
BASES = {"ActivationMap", "Method", "PathMethod"}  # public, to write one's own


@pytest.fixture(scope="module")
def tool():
    """The script that writes the docs."""
    spec = importlib.util.spec_from_file_location("catalogue_tool", ROOT / "tools" / "catalogue.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def public_classes():
    """The methods of the modules of `ig2.methods`, except base classes that have `run` or a part of it to be written."""
    found = set()
    for module in pkgutil.iter_modules(methods.__path__):
        members = vars(importlib.import_module(f"ig2.methods.{module.name}")).values()
        found |= {each for each in members if inspect.isclass(each) and issubclass(each, ig2.Method)}
    used_as_base = {"Wrapper", "NoisedCopies", "Redistributed"}
    return {cls.__name__ for cls in found if not cls.__name__.startswith("_")} - BASES - used_as_base


def test_every_method_has_an_entry_and_every_entry_a_class():
    assert {entry.type.__name__ for entry in ENTRIES} == public_classes() == {n for names in CLASSES.values() for n in names}


@pytest.mark.parametrize("attribute", ["name", "title"])
def test_no_two_entries_are_called_the_same(attribute):
    assert [text for text, count in Counter(getattr(entry, attribute) for entry in ENTRIES).items() if count > 1] == []


def test_the_package_and_the_front_door_export_them(tool):
    listed = {entry.class_name for entry in ENTRIES} | BASES
    helpers = {"Grid", "Groups", "Keep", "Result", "Superpixels", "Task", "Windows"}
    path = ROOT / tool.EXPORTS
    assert set(methods.__all__) == listed | helpers, "run: make catalogue"
    typed = path.read_text(encoding="utf-8").partition("if TYPE_CHECKING:")[2].partition("\nelse:")[0]
    assert {name for names in re.findall(r" import ([^\n(]+)$", typed, re.M) for name in names.split(", ")} == {
        *listed,
        *helpers,
    }, "run: make catalogue"
    assert all(getattr(methods, name) is getattr(ig2, name) for name in methods.__all__)
    assert set(methods.__all__) < set(ig2.__all__) and set(ig2.__all__) <= set(dir(ig2))


@pytest.mark.parametrize("package", ["metrics", "references"])
def test_packages_of_parts_export_all_of_theirs(tool, package):
    exported = set(importlib.import_module(f"ig2.{package}").__all__)
    found = {name for names in tool.find_parts(package).values() for name in names}
    assert found and found <= exported, "run: make catalogue"


PAGES = ["methods.md", "metrics.md", "references.md", "../command.md", "../engine.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_docs_are_those_of_the_catalogue(tool, page):
    path = (ROOT / "docs" / "api" / page).resolve().relative_to(ROOT)
    text = (ROOT / path).read_text(encoding="utf-8")
    assert tool.PAGES[path](text) == text, "run: make catalogue"


def test_a_part_that_no_page_names_is_listed(tool):
    path = Path("docs/api/references.md")
    text = (ROOT / path).read_text(encoding="utf-8")
    without = text.replace(".. autoclass:: Zeros\n", "")
    assert tool.PAGES[path](without).count("## Others\n\n```{eval-rst}\n.. autoclass:: ig2.references.Zeros\n") == 1


def test_the_help_says_what_is_for_images_only():
    said = {name for name, entry in METHODS.items() if entry.about.endswith("; images only")}
    assert said == {name for name, entry in METHODS.items() if entry.for_images}


@pytest.mark.parametrize("entry", METHODS.values(), ids=METHODS)
def test_it_can_be_made_and_needs_what_it_says(entry):
    method = entry.make(Facts(straight=2, steps=2, guided=2, coalitions=8))
    assert type(method) is entry.type and method.needs_references == entry.example.needs_references
    if entry.takes_rule:
        assert entry.make(Facts(), rule=rules.shared).rule is rules.shared
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)).eval()
    if method.needs_references:
        with pytest.raises(InputError, match="needs references"):
            method(net, torch.rand(1, 1, 8, 8))
    elif not method.takes_references:  # what is passed makes no difference
        pass_on = {"references": torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))}
        x = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        assert torch.equal(method(net, x).values, method(net, x, **pass_on).values)


FREE = [entry for entry in METHODS.values() if not entry.example.needs_gradient]
PLACED = [entry for entry in METHODS.values() if entry.example.needs_places]


@pytest.mark.parametrize("entry", FREE, ids=lambda entry: entry.name)
def test_one_that_needs_no_gradient_takes_a_function_without(entry):
    method = entry.make(Facts(coalitions=8, groups=ig2.Grid(2, 2)))
    found = method(lambda x: x.detach().flatten(1)[:, :2], torch.rand(1, 1, 8, 8))
    assert found.values.isfinite().all()


# AttEXplore runs, on frequencies of columns, which mean nothing
@pytest.mark.parametrize("entry", [e for e in PLACED if e.name != "attexplore"], ids=lambda e: e.name)
def test_one_that_needs_places_takes_no_row(entry):
    with pytest.raises(InputError):
        entry.make(Facts(straight=2))(nn.Linear(4, 2), torch.rand(1, 4), references=torch.zeros(1, 4))


def test_the_rules_are_those_of_the_module():
    objects = {name for name, value in vars(rules).items() if isinstance(value, rules.Rule)}
    makers = {"gauss", "scaled"}  # which are called
    of_methods = {"decision"}  # IDG's own
    assert set(RULES) == objects - of_methods | makers


def test_the_names_are_known_before_pytorch_is_imported():
    code = "import sys; from ig2.methods.catalogue import METHODS; import ig2.cli.app; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
