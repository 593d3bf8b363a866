"""Model files made to run code: without trust none of it runs, and the traps do work."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ig2.errors import InputError
from ig2.modalities.loading import load_network, load_subject
from ig2.modalities.modality import find
from networks import refuses

pytestmark = pytest.mark.slow  # all of it together takes half a minute


class Program(nn.Module):
    @torch.jit.export
    def __getstate__(self) -> tuple[Tensor, bool]:
        return torch.ones(1), self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[Tensor, bool]) -> None:
        self.training = state[1]

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=[2, 3]) + 1


def export(path: Path) -> Path:
    batch = torch.export.Dim("batch")
    torch.export.save(torch.export.export(Program(), (torch.rand(2, 3, 4, 4),), dynamic_shapes=({0: batch},)), path)
    return path


def script(path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.script(Program()).save(str(path))
    return path


def rewrite(path: Path, change: Callable[[str, str], list[tuple[str, str]]], endings: str | tuple[str, ...]) -> Path:
    """Replace the entry of an archive that ends so by those that `change` makes of its name and text."""
    with zipfile.ZipFile(path) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")  # of names that stand there twice
        for name, content in entries:
            for new, text in change(name, content.decode()) if name.endswith(endings) else [(name, content)]:
                archive.writestr(new, text)
    return path


# -- torch.export ------------------------------------------------------------------------------------------------------


def model_entry(path: Path) -> str:
    """The entry with the program: torch has called it model.json since 2.8 or so."""
    names = zipfile.ZipFile(path).namelist()
    return next(name for name in names if name.endswith(("models/model.json", "serialized_exported_program.json")))


def with_size(text: str, code: str) -> str:
    program: Any = json.loads(text)

    def replace(part: Any) -> None:
        for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
            if key == "expr_str":
                part[key] = f"{code} or {value}"
            replace(value)

    replace(program)
    return json.dumps(program)


def code_in_an_argument_name(path: Path, mark: Path) -> Path:
    def change(name: str, text: str) -> list[tuple[str, str]]:
        program = json.loads(text)
        program["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = [
            f"x=__import__('os').mkdir('{mark}')):\n    '''#"
        ]
        return [(name, json.dumps(program))]

    return rewrite(export(path), change, model_entry(path))


def code_in_a_size(path: Path, mark: Path) -> Path:
    code = f"__import__('os').mkdir('{mark}')"
    return rewrite(export(path), lambda name, text: [(name, with_size(text, code))], model_entry(path))


def code_in_capitals(path: Path, mark: Path) -> Path:
    entry = model_entry(export(path))
    if not entry.endswith("model.json"):
        pytest.skip("this torch reads the archive with Python, and that tells capitals apart")
    code = f"__import__('os').mkdir('{mark}')"

    def change(name: str, text: str) -> list[tuple[str, str]]:
        if name == entry:
            return [(name, text), (name.replace("model.json", "MODEL.JSON"), with_size(text, code))]
        return [(name, text), (name.replace("/model_", "/MODEL_"), text)]

    # torch takes every file of models/ for a program, and wants weights and constants by the same name
    return rewrite(path, change, (entry, "model_weights_config.json", "model_constants_config.json"))


# -- TorchScript -------------------------------------------------------------------------------------------------------


def torchscript(
    writes: str, keep: Callable[[str, str, str], list[tuple[str, str]]], where: str = "return torch.add"
) -> Callable[[Path, Path], Path]:
    """Put a line before another in the program, and keep the clean and the bad text under some names."""

    def build(path: Path, mark: Path) -> Path:
        def change(name: str, text: str) -> list[tuple[str, str]]:
            at = text.index(where)
            return keep(name, text, f"{text[:at]}{writes.format(mark)}\n    {text[at:]}")

        return rewrite(script(path), change, ".py")

    return build


ATTACKS: dict[str, Callable[[Path, Path], Path]] = {
    "export: argument name": code_in_an_argument_name,
    "export: size": code_in_a_size,
    "export: MODEL.JSON": code_in_capitals,
    "script: plain": torchscript('torch.save(x, "{}")', lambda name, clean, bad: [(name, bad)]),
    "script: parentheses": torchscript('(torch).save(x, "{}")', lambda name, clean, bad: [(name, bad)]),
    "script: getattr": torchscript('getattr(torch, "save")(x, "{}")', lambda name, clean, bad: [(name, bad)]),
    "script: continued line": torchscript('torch.\\\nsave(x, "{}")', lambda name, clean, bad: [(name, bad)]),
    "script: duplicate": torchscript('torch.save(x, "{}")', lambda name, clean, bad: [(name, bad), (name, clean)]),
    "script: on opening": torchscript(
        'torch.save((state)[0], "{}")', lambda name, clean, bad: [(name, bad)], where="self.training = "
    ),
    "script: .PY": torchscript('torch.save(x, "{}")', lambda name, clean, bad: [(name[:-2] + "PY", bad)]),
}


def open_and_run(path: Path, **options: Any) -> None:
    net = load_network(str(path), **options)
    assert isinstance(net, nn.Module)
    with suppress(Exception):  # a program may break once its trap has sprung
        net(torch.rand(2, 3, 4, 4))


@pytest.mark.parametrize("attack", ATTACKS)
def test_without_trust_nothing_runs(tmp_path: Path, attack: str) -> None:
    mark = tmp_path / "mark"
    path = ATTACKS[attack](tmp_path / f"net.{'pt2' if attack.startswith('export') else 'pt'}", mark)
    with pytest.raises(InputError, match="--trust") as caught:
        open_and_run(path)
    assert not mark.exists()
    assert "\n" not in str(caught.value)
    refuses(InputError, "--trust", lambda: load_subject(str(path), find("image")))
    assert not mark.exists()


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_traps_work(tmp_path: Path, attack: str) -> None:
    mark = tmp_path / "mark"
    path = ATTACKS[attack](tmp_path / f"net.{'pt2' if attack.startswith('export') else 'pt'}", mark)
    with suppress(InputError):  # some spring on opening, and the rest of the file is then not needed
        open_and_run(path, trust=True)
    assert mark.exists()


def test_code_that_comes_with_a_model_of_transformers_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # an answer in a pipe is no trust
    mark, code = tmp_path / "mark", {name: f"code.{name}" for name in ("AutoConfig", "AutoModelForSequenceClassification")}
    (tmp_path / "code.py").write_text(f"import os; os.mkdir({str(mark)!r})")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": code}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["code.T", "code.T"]}}))
    refuses(InputError, "custom code", lambda: load_network(f"transformers:{tmp_path}"))
    assert not mark.exists()
