"""Models as a person names them on a command line, and what may be trusted in a file.

What loading a file can do:

- *safetensors* holds numbers and nothing else.
- *A state dict* (`torch.save(net.state_dict(), ...)`) is a pickle. It is read with PyTorch's restricted unpickler, which makes
  tensors and plain containers and calls nothing else.
- *A pickled network* (`torch.save(net, ...)`) can run any code when it is opened. It is refused.
- *TorchScript* and *torch.export* files are programs. TorchScript has its own interpreter and its own reader, and no Python
  runs; but its programs may read and write files, so one that names such an operation is refused. `torch.export.load` would
  unpickle parts of its file, evaluate expressions in it and load compiled code from it; a file that asks for any of this, or
  for an operation that is not one of PyTorch's own on tensors, is refused before it is opened.

No file is run through Python's unpickler. Even so a program from a stranger can take all memory or all time: treat it like
one. A function named as `module:function` is your own code, and it is imported and called.
"""

from __future__ import annotations

import difflib
import importlib
import json
import logging
import os
import pickle
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ig2.adapters import tabular, text, vision
from ig2.adapters.base import Kind, Subject
from ig2.adapters.trust import weights_only
from ig2.errors import IG2Error, InputError, describe, import_extra, reason

HOW_TO_SAVE = "save the weights alone, torch.save(net.state_dict(), 'weights.pt'), and give module:function@weights.pt"
# What expressions for sizes are made of: names, numbers and arithmetic; the functions are those torch.export writes.
SIZE_EXPRESSION = re.compile(r"[\w\s+\-*/%(),<>=!&|~.]*")
SIZE_FUNCTION = re.compile(
    r"(Python)?Mod|(Floor|Ceil|Clean|IntTrue|FloatTrue|True)Div|Max|Min|Eq|Ne|Lt|Le|Gt|Ge|And|Or|Not|ceiling|floor|Abs|Where|"
    r"ToFloat|TruncToInt|FloorToInt|Integer|Rational|Float|Symbol|Add|Mul|Pow|PowByNatural|FloatPow|Identity"
)
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # module:function
SUFFIXES = (".pt", ".pth", ".pt2", ".bin", ".ckpt", ".safetensors", ".ts", ".onnx", ".h5", ".keras", ".pkl", ".joblib", ".zip")
LARGEST_TEXT = 200_000_000  # bytes; the program of a large network takes some ten million
TENSOR_OPERATION = re.compile(r"torch\.ops\.(aten|higher_order|prims)\.\w+(\.\w+)?|_operator\.\w+|math\.\w+|torch\.sym_\w+")
TOUCHES_FILES = re.compile(
    r"\b(torch|ops\s*\.\s*aten)\s*\.\s*(save|load|from_file)\b|\bops\s*\.\s*(?!(aten|prims?|quantized)\b)\w+"
)


def load_subject(spec: str | None, kind: Kind) -> Subject:
    """The model for a kind of data: the built-in one without a name, otherwise what `load_network` finds.

    A bare network is taken to want images of 224 × 224, or of the size it was exported for, with values from 0 to 1. For
    anything else name a function that returns a subject.

    Args:
        spec: as for `load_network`.
        kind: `"image"`, `"text"` or `"table"`.
    """
    if spec is None:
        return vision.load() if kind == "image" else text.load() if kind == "text" else tabular.load()
    found = load_network(spec)
    if isinstance(found, nn.Module):
        if kind != "image":
            what, where = ("words", "text") if kind == "text" else ("columns", "tabular")
            raise InputError(
                f"{spec} is a network, and nothing says how {what} reach it: name a function that returns a subject, made "
                f"with ig2.adapters.{where}"
            )
        found = _with_images(found, spec)
    if found.kind != kind:
        raise InputError(f"{spec} explains {found.kind}s, and this is {'an image' if kind == 'image' else f'a {kind}'}")
    return found


def _with_images(net: nn.Module, name: str) -> Subject:
    # the layers of a program cannot be read, so distances are measured at its output
    closed = isinstance(net, (torch.jit.ScriptModule, torch.fx.GraphModule))
    where = "output" if closed else None
    if isinstance(net, torch.fx.GraphModule):
        first = next(node for node in net.graph.nodes if node.op == "placeholder")
        shape: tuple[Any, ...] = tuple(getattr(first.meta.get("val"), "shape", ()))
        if len(shape) == 4 and all(isinstance(side, int) for side in shape[1:]):  # what it was exported for
            return vision.subject(net, (shape[2], shape[3]), channels=shape[1], name=name, representation=where)
    return vision.subject(net, name=name, representation=where)


def load_network(spec: str) -> nn.Module | Subject:
    """A network, or a subject that knows its data too.

    Args:
        spec: a known name (see `vision.load`, `text.load`, `tabular.load`); `module:function`, called without arguments, of
            an installed module or one in the current folder, to get a network or a subject; the same with `@file`, weights to
            fill it with; or a file of TorchScript or `torch.export`. See the module's text for what a file may do.
    """
    if not isinstance(spec, str) or not spec.strip():
        raise InputError(f"a model is named by a string, got {describe(spec)}")
    source = spec.partition(":")[0]
    if spec in vision.BUILT_IN or source in vision.SOURCES:
        return vision.load(spec)
    if spec in text.BUILT_IN or source in text.SOURCES:
        return text.load(spec)
    if spec in tabular.BUILT_IN:
        return tabular.load(spec)
    if _exists(spec):
        return _from_file(Path(spec))
    called, _, weights = spec.partition("@")
    if FUNCTION.fullmatch(called):
        if weights and not _exists(weights):
            raise InputError(f"{weights} does not exist")
        found = _call(called)
        if weights and isinstance(found, text.TextSubject):
            raise InputError(f"{called} returns a text subject, whose padding depends on its weights: let it load them itself")
        if weights:
            _fill(found.model.net if isinstance(found, Subject) else found, Path(weights))
        return found
    if os.sep in spec or "/" in spec or Path(spec).suffix.lower() in SUFFIXES:
        raise InputError(f"{spec} does not exist; a model is a file, a known name, or module:function")
    return vision.load(spec)  # a bare name of torchvision or timm, or the sentence that says it is none


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long for a name, or no rights to look
        return False


# -- functions ---------------------------------------------------------------------------------------------------------


def load_function(spec: str) -> Any:
    """What a `module:name` stands for, of an installed module or one in the current folder."""
    if not isinstance(spec, str) or not FUNCTION.fullmatch(spec):
        raise InputError(f"a function is named as module:function, got {describe(spec)}")
    module, _, function = spec.partition(":")
    with importable_from_here():
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
                raise InputError(f"{spec}: there is no module {module!r}, installed or in {Path.cwd()}") from error
            raise InputError(f"{spec}: importing {module!r} failed: {reason(error)}") from error
        except (Exception, SystemExit) as error:
            raise InputError(f"{spec}: importing {module!r} failed: {reason(error)}") from error
    for name in function.split("."):
        if not hasattr(found, name):
            close = difflib.get_close_matches(name, [known for known in dir(found) if not known.startswith("_")], n=3)
            hint = f"; did you mean {', '.join(map(repr, close))}?" if close else ""
            raise InputError(f"{spec}: {module!r} has no {name!r}{hint}")
        found = getattr(found, name)
    return found


def _call(spec: str) -> nn.Module | Subject:
    with importable_from_here():
        found = load_function(spec)
        if not isinstance(found, (nn.Module, Subject)):
            if not callable(found):
                raise InputError(f"{spec} is {describe(found)}: expected a function that returns a network or a subject")
            try:
                found = found()
            except IG2Error:
                raise
            except (Exception, SystemExit) as error:
                raise InputError(f"{spec}() failed: {reason(error)}") from error
    if isinstance(found, nn.Module):
        return found.eval()
    if not isinstance(found, Subject):
        raise InputError(f"{spec}() returned {describe(found)}: expected a network (torch.nn.Module) or a subject")
    return found


@contextmanager
def importable_from_here() -> Iterator[None]:
    """The current folder on the path, as it is for a script, but not for an installed command."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


# -- files -------------------------------------------------------------------------------------------------------------


def _from_file(path: Path) -> nn.Module:
    """A network from a file that holds one, and a sentence for every file that does not."""
    if path.is_dir():
        if (path / "config.json").is_file():
            raise InputError(f"{path} is a folder; for a Hugging Face model say transformers:{path}")
        raise InputError(f"{path} is a folder: name a file in it")
    kind = _kind(path)
    if kind == "torch.export":
        return _exported(path)
    if kind == "TorchScript":
        return _torchscript(path)
    count = len(_weights(path))
    raise InputError(
        f"{path} holds {count} tensors and no network: name the function that builds it too, module:function@{path}"
    )


def _kind(path: Path) -> Literal["torch.export", "TorchScript", "archive", "safetensors", "pickle"]:
    """What a file is, by what is in it."""
    try:
        if not path.is_file():
            raise InputError(f"{path} is not a file")
        with path.open("rb") as file:
            start = file.read(9)
        names = zipfile.ZipFile(path).namelist() if zipfile.is_zipfile(path) else []
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    if not start:
        raise InputError(f"{path} is empty (0 bytes)")
    inside = {name.partition("/")[2] for name in names} | set(names)
    if any(name.endswith(".json") and name.startswith(("models/", "serialized_exported_program")) for name in inside):
        return "torch.export"
    if "constants.pkl" in inside or any(name.startswith("code/") for name in inside):
        return "TorchScript"
    if "data.pkl" in inside:
        return "archive"
    if start[8:9] == b"{":  # after the length of its header
        return "safetensors"
    if start[:1] == b"\x80":
        return "pickle"
    raise InputError(f"{path} is no model: expected safetensors, a state dict, TorchScript or torch.export")


def _weights(path: Path) -> dict[str, Tensor]:
    """Named tensors from safetensors or a state dict."""
    kind = _kind(path)
    if kind in ("torch.export", "TorchScript"):
        raise InputError(f"{path} is a program of {kind}, which has its weights in it: give it alone")
    try:
        if kind == "safetensors":
            loaded: Any = import_extra("safetensors.torch", "io", f"reading {path}").load_file(path)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of protocols it may not know; what it does not know it refuses
                loaded = torch.load(path, map_location="cpu", weights_only=True)
    except IG2Error:
        raise
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path} is a pickled object, a whole network perhaps, which could run any code and is not opened; {HOW_TO_SAVE}"
        ) from error
    except Exception as error:  # a broken archive, another format
        raise InputError(f"{path} is a broken file of weights: {reason(error)}") from error
    for key in ("state_dict", "model_state_dict", "model"):  # checkpoints keep the weights beside the optimiser's state
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
    if not isinstance(loaded, Mapping) or not loaded or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise InputError(f"{path} holds {describe(loaded)}: expected named tensors, a state dict")
    if all(name.startswith("module.") for name in loaded):  # written through DataParallel
        loaded = {name.removeprefix("module."): value for name, value in loaded.items()}
    return dict(loaded)


def _fill(net: nn.Module, path: Path) -> None:
    weights = _weights(path)
    own = net.state_dict()
    missing, unknown = [name for name in own if name not in weights], [name for name in weights if name not in own]
    if missing or unknown:
        raise InputError(
            f"the weights of {path} are another network's: {len(missing)} of {len(own)} are missing"
            + (f" ({missing[0]!r})" if missing else "")
            + f", {len(unknown)} are not known"
            + (f" ({unknown[0]!r})" if unknown else "")
        )
    for name, value in weights.items():
        if value.shape != own[name].shape:
            raise InputError(f"{path}: {name!r} is {tuple(value.shape)}, the network's is {tuple(own[name].shape)}")
    net.load_state_dict(weights)


def _torchscript(path: Path) -> nn.Module:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                found = TOUCHES_FILES.search(_text(archive, name))
                if found:
                    raise InputError(f"{path} is a program that uses {found[0]!r}, which is not about tensors: not opened")
    net = cast(
        nn.Module,
        _opened(
            path,
            "TorchScript",
            lambda: torch.jit.load(str(path), "cpu"),  # type: ignore[no-untyped-call]
        ),
    )
    return net.eval()


def _exported(path: Path) -> nn.Module:
    with zipfile.ZipFile(path) as archive:
        if any("aotinductor/" in name for name in archive.namelist()):
            raise InputError(f"{path} holds compiled code, which could do anything: not opened; export it without compiling")
        for name in archive.namelist():
            if name.endswith(".json"):
                try:
                    _check_program(json.loads(_text(archive, name)), path)
                except InputError:
                    raise
                except (ValueError, RecursionError) as error:
                    raise InputError(f"{path} is a broken torch.export file: {name}: {reason(error)}") from error
    program = _opened(path, "torch.export", lambda: torch.export.load(str(path)))
    inputs = [
        node for node in program.graph.nodes if node.op == "placeholder" and node.name in program.graph_signature.user_inputs
    ]
    shape = getattr(inputs[0].meta.get("val"), "shape", None) if inputs else None
    if shape is not None and len(shape) and isinstance(shape[0], int):
        raise InputError(
            f"{path} was exported for batches of exactly {shape[0]}: export it for any, with dynamic_shapes and "
            "torch.export.Dim('batch') for the first axis"
        )
    # without the guards, which are Python source kept in the file; before 2.9 or so there were none to leave out
    options = {"check_guards": False} if "check_guards" in signature(program.module).parameters else {}
    return cast(nn.Module, _opened(path, "torch.export", lambda: program.module(**options)))


def _check_program(content: Any, path: Path) -> None:
    """Refuse what would be unpickled, evaluated or looked up outside PyTorch's operations on tensors."""
    if isinstance(content, list):
        for item in content:
            _check_program(item, path)
    if not isinstance(content, dict):
        return
    if content.get("use_pickle") or str(content.get("path_name", "")).startswith(("custom_obj", "opaque_obj")):
        raise InputError(f"{path} holds pickled parts, which could run any code: not opened; {HOW_TO_SAVE}")
    target = content.get("target")
    known = isinstance(target, str) and TENSOR_OPERATION.fullmatch(target) and "from_file" not in target
    if "inputs" in content and target is not None and not known:
        raise InputError(f"{path} is a program that uses {target!r}, which is not about tensors: not opened")
    name = content.get("name")
    if isinstance(name, str) and not re.fullmatch(r"[\w.]*", name):  # names end up in the source of a function
        raise InputError(f"{path} calls something {describe(name)}, which is no name: not opened")
    expression = content.get("expr_str")
    if isinstance(expression, str) and not _is_arithmetic(expression):
        raise InputError(f"{path} has {describe(expression)} for a size, which is no arithmetic: not opened")
    for item in content.values():
        _check_program(item, path)


def _is_arithmetic(expression: str) -> bool:
    expression = re.sub(r"Symbol\('\w+'(, \w+=(True|False))*\)", "s", expression)
    expression = re.sub(r"Float\('[\d.e+-]+', precision=\d+\)", "1.0", expression)
    calls = re.findall(r"(\w+)\s*\(", expression)
    attribute = re.search(r"([A-Za-z_]\w*|\))\s*\.", expression)
    return (
        SIZE_EXPRESSION.fullmatch(expression) is not None
        and "__" not in expression
        and attribute is None
        and all(SIZE_FUNCTION.fullmatch(call) for call in calls)
    )


def _text(archive: zipfile.ZipFile, name: str) -> str:
    if archive.getinfo(name).file_size > LARGEST_TEXT:
        raise InputError(f"{archive.filename} holds {name} of {archive.getinfo(name).file_size:,} bytes: not opened")
    return archive.read(name).decode("utf-8", errors="replace")


def _opened(path: Path, kind: str, load: Callable[[], Any]) -> Any:
    """Open a program with nothing but weights unpickled, and say in a sentence why it failed."""
    silent = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # torch.export logs its own errors before it raises them
    try:
        with warnings.catch_warnings(), weights_only():
            warnings.simplefilter("ignore")  # that TorchScript is old is no news to who has such a file
            return load()
    except Exception as error:
        raise InputError(f"{path} is a {kind} file that cannot be opened: {reason(error)}") from error
    finally:
        logging.disable(silent)
