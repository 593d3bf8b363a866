"""Models as people name them: whatever the file, no hidden code runs, and every failure is a sentence."""

from __future__ import annotations

import logging
import os
import pickle
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import ig2
from ig2._utils import training
from ig2.errors import InputError, MissingExtraError
from ig2.modalities.loading import load_network, load_subject
from ig2.modalities.modality import find
from networks import refuses, seeded

SOURCE = """
import torch
from torch import nn
from ig2 import modalities

made = nn.Flatten()
number = 3

def build():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))

def subject():
    return modalities.image.subject(build().eval(), size=(16, 16), classes=list("abcde"))

def table():
    return modalities.table.subject(nn.Linear(2, 2), ["a", "b"])

def nothing():
    return None

def fails():
    raise KeyError("two\\nlines")

def leaves():
    raise SystemExit(3)

class Holder:
    build = staticmethod(build)
"""


def built() -> nn.Module:
    with training.local_seed(0):
        return nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
        ).eval()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module in it, as the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_models.py").write_text(SOURCE)
    (tmp_path / "broken_module.py").write_text("import no_such_thing_at_all\n")
    (tmp_path / "odd_module.py").write_text("def (")
    for name in ("my_models", "broken_module", "odd_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield tmp_path
    sys.modules.pop("my_models", None)


class Booby:
    """Unpickling this leaves a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "net.pt2"
    batch = torch.export.Dim("batch")
    torch.export.save(torch.export.export(built(), (torch.rand(2, 3, 16, 16),), dynamic_shapes=({0: batch},)), path)
    return path


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script") / "net.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(built(), torch.rand(2, 3, 16, 16)).save(str(path))
    return path


# -- functions ---------------------------------------------------------------------------------------------------------


def test_a_function_of_a_module_in_the_current_folder_is_called(here: Path) -> None:
    before = list(sys.path)
    net = load_network("my_models:build")
    assert isinstance(net, nn.Sequential)
    assert not net.training
    assert sys.path == before
    assert isinstance(load_network("my_models:Holder.build"), nn.Sequential)
    assert isinstance(load_network("my_models:made"), nn.Flatten)
    assert load_subject("my_models:subject", find("image")).classes == tuple("abcde")
    assert load_subject("my_models:table", find("table")).modality.name == "table"


@pytest.mark.parametrize("ending", ["safetensors", "pt", "checkpoint", "parallel", "old"])
def test_a_function_with_weights_is_filled(here: Path, ending: str) -> None:
    state = built().state_dict()
    path = here / f"weights.{ending}"
    if ending == "safetensors":
        safetensors.torch.save_file(state, path)
    elif ending == "checkpoint":
        torch.save({"state_dict": state, "epoch": 3, "optimizer": {"lr": 0.1}}, path)
    elif ending == "parallel":
        torch.save({f"module.{name}": value for name, value in state.items()}, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=ending != "old")
    net = load_network(f"my_models:build@{path.name}")
    assert isinstance(net, nn.Module)
    for name, value in net.state_dict().items():
        assert torch.equal(value, state[name])
    subject = load_subject(f"my_models:subject@{path.name}", find("image"))
    assert torch.equal(subject.model.net.state_dict()["5.bias"], state["5.bias"])


WRONG = {
    "my_models:bild": "'my_models' has no 'bild'; did you mean build",
    "my_models:number": "is 3: expected a function",
    "my_models:nothing": "returned None: expected a network",
    "my_models:fails": "failed: KeyError",
    "my_models:leaves": "failed: SystemExit",
    "my_models:build@nowhere.pt": "nowhere.pt does not exist",
    "my_models:build@other.pt": "2 of 4 are missing \\('0.weight'\\), 2 are not known \\('x.weight'\\)",
    "my_models:build@shape.pt": "'5.bias' is \\(7,\\), the network's is \\(5,\\)",
    "my_models:build@tensor.pt": "expected named tensors",
    "broken_module:build": "importing 'broken_module' failed: ModuleNotFoundError: No module named 'no_such_thing_at_all'",
    "odd_module:build": "importing 'odd_module' failed: SyntaxError",
    "no_module:build": "there is no module 'no_module', installed or in ",
    "no.such.module:build": "there is no module 'no.such.module'",
    "weights.pt": "holds 4 tensors and no network: name the function that builds it too, module:function@weights.pt",
    "weights.safetensors": "holds 4 tensors and no network",
    "text.pt": "is no model: expected safetensors, a state dict, TorchScript or torch.export",
    "zip.pt": "is no model",
    "empty.pt": "is empty",
    "cut.pt": "no model|broken",
    "cut.safetensors": "broken file of weights",
    "nowhere.pt": "nowhere.pt does not exist; a model is a file, a known name, or module:function",
    "folder/nowhere": "does not exist",
    "folder": "is a folder: name a file in it",
    "hugging": "for a Hugging Face model say transformers:hugging",
    "efficientnet-lit0": "did you mean efficientnet-lite0",
    "no_such_net.a1_in1k": "no image classifier is called 'no_such_net.a1_in1k'",  # a name of timm may have a dot in it
    "x" * 5000: "no image classifier is called",
    "a\0b": "no image classifier is called",
    "": "named by a string",
}


@pytest.mark.parametrize("spec", WRONG)
def test_every_failure_is_one_line(here: Path, spec: str) -> None:
    state = built().state_dict()
    torch.save(state, "weights.pt")
    safetensors.torch.save_file(state, "weights.safetensors")
    torch.save({name.replace("0.", "x."): value for name, value in state.items()}, "other.pt")
    torch.save({**state, "5.bias": torch.zeros(7)}, "shape.pt")
    torch.save(torch.zeros(3), "tensor.pt")
    Path("text.pt").write_text("just a text\n" * 20)
    Path("cut.pt").write_bytes(Path("weights.pt").read_bytes()[:700])
    Path("cut.safetensors").write_bytes(Path("weights.safetensors").read_bytes()[:-40])
    Path("empty.pt").touch()
    with zipfile.ZipFile("zip.pt", "w") as archive:
        archive.writestr("hello.txt", "hello")
    for folder in ("folder", "hugging"):
        Path(folder).mkdir()
    Path("hugging/config.json").write_text("{}")
    with pytest.raises(InputError, match=WRONG[spec]) as caught:
        load_network(spec)
    assert "\n" not in str(caught.value)


def test_known_names_come_before_everything(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IG2_CACHE", str(here))
    (here / "iris").mkdir()
    assert load_subject("iris", find("table")).name == "iris MLP"
    assert load_subject(None, find("table")).name == "breast-cancer MLP"
    refuses(InputError, "iris explains rows of a table, and these are images", lambda: load_subject("iris", find("image")))
    for name in ("torchvision", "torchvision.models", "timm"):
        monkeypatch.setitem(sys.modules, name, None)
    refuses(MissingExtraError, "timm", lambda: load_network("timm:resnet18"))


def test_a_network_says_nothing_about_words_or_columns(here: Path) -> None:
    for kind, where in (("text", "ig2.modalities.text"), ("table", "ig2.modalities.table")):
        with pytest.raises(InputError, match=f"name a function that returns a subject, made with {where}"):
            load_subject("my_models:build", find(kind))


# -- programs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0), (10.0, 255.0)])
@pytest.mark.parametrize("settings", [{}, {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.5, 2.0]}, {"mean": [0.3], "std": [0.5]}])
def test_a_network_gets_values_in_its_own_range_and_normalisation(
    bounds: tuple[float, float], settings: dict[str, list[float]]
) -> None:
    net = seeded(lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3)), 0).float().eval()
    x = torch.rand(2, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    mine, said = find("image").wrap(net, "mine", {"bounds": bounds, "size": (2, 2), **settings})
    low, high = bounds
    mean, std = (torch.tensor(settings.get(part, [usual])).view(-1, 1, 1) for part, usual in (("mean", 0.0), ("std", 1.0)))
    with torch.no_grad():
        expected = net((low + x * (high - low) - mean) / std)
    found = torch.stack([ig2.Gradient()(mine.model, x, target=target).output for target in range(3)], dim=1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert f"values from {low:g} to {high:g}" in said and ("no normalisation" in said) == (not settings)


def test_torch_export_and_torchscript_are_explained(exported: Path, scripted: Path) -> None:
    torch.manual_seed(0)
    net = built()
    x, far = torch.rand(3, 3, 16, 16), torch.rand(2, 3, 16, 16)
    expected = ig2.IG2(steps=5)(ig2.wrap(net, representation="output"), x, references=far)
    for path in (exported, scripted):
        found = load_network(str(path), trust=True)
        assert isinstance(found, nn.Module)
        a = ig2.IG2(steps=5)(ig2.wrap(found, representation="output"), x, references=far)
        assert torch.allclose(a.values, expected.values, atol=1e-5)
        alone = ig2.IG2(steps=5)(ig2.wrap(found, representation="output"), x[:1], references=far[:1])
        assert alone.values.isfinite().all()
    subject = load_subject(str(exported), find("image"), trust=True)
    assert subject.read(np.zeros((30, 40, 3), np.uint8)).x.shape == (1, 3, 16, 16)  # the size it was exported for
    batch = load_subject(str(scripted), find("image"), trust=True).read(np.full((30, 40, 3), 9, np.uint8))
    assert batch.x.shape == (1, 3, 224, 224)
    a = ig2.IG2(steps=2)(load_subject(str(scripted), find("image"), trust=True).model, batch.x, references=batch.x / 2)
    assert a.values.shape == batch.x.shape


def test_a_program_for_one_size_of_batch_is_refused(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(built(), (torch.rand(2, 3, 16, 16),)), tmp_path / "two.pt2")
    refuses(InputError, "for batches of exactly 2: export it for", lambda: load_network(str(tmp_path / "two.pt2"), trust=True))


def test_a_program_is_not_weights(here: Path, exported: Path, scripted: Path) -> None:
    for path in (exported, scripted):
        with pytest.raises(InputError, match="which has its weights in it: give it alone"):
            load_network(f"my_models:build@{path}")


# -- pickles, and broken files -----------------------------------------------------------------------------------------


def refused(path: Path, mark: Path, expected: str, spec: str = "{}", trust: bool = False) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        load_network(spec.format(path), trust=trust)
    assert not mark.exists()
    assert "\n" not in str(caught.value)


def test_a_pickled_network_is_refused_and_its_code_does_not_run(here: Path) -> None:
    mark = here / "mark"
    trap = Booby(mark)
    pickle.loads(pickle.dumps(trap))
    assert mark.exists()  # the trap works
    mark.rmdir()
    Path("plain.pkl").write_bytes(pickle.dumps(trap))
    torch.save(trap, "trap.pt")
    torch.save(trap, "old.pt", _use_new_zipfile_serialization=False)
    torch.save({"0.weight": torch.zeros(1), "trap": trap}, "mixed.pt")
    torch.save(built(), "whole.pt")
    for name in ("plain.pkl", "trap.pt", "old.pt", "mixed.pt", "whole.pt"):
        refused(Path(name), mark, "could run any code and is not opened; save the weights alone")
        refused(Path(name), mark, "could run any code and is not opened", "my_models:build@{}")
        refused(Path(name), mark, "could run any code and is not opened", trust=True)


def test_a_broken_program_is_a_sentence(exported: Path, scripted: Path, tmp_path: Path) -> None:
    for source, name in ((exported, "net.pt2"), (scripted, "net.pt")):
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(tmp_path / name, "w") as new:
            for entry in old.namelist():
                new.writestr(entry, b"{" if entry.endswith((".json", ".py")) else old.read(entry))
        with pytest.raises(InputError, match="cannot be opened") as caught:
            load_network(str(tmp_path / name), trust=True)
        assert "\n" not in str(caught.value)
    assert logging.root.manager.disable == 0
