"""Loading of models named on the command line, and the trust that each file format requires.

What opening a file can do:

- *safetensors* contains only numbers.
- *A state dict* (`torch.save(net.state_dict(), ...)`) is a pickle. It is read with PyTorch's restricted unpickler, which
  creates tensors and plain containers and calls nothing else.
- *TorchScript* and *torch.export* files are programs: they can do whatever you can do, some of it as soon as they are opened.
  They are opened only with `trust=True`.
- *A pickled network* (`torch.save(net, ...)`) can run any code too. It is never opened: its weights are enough.
- *An estimator of scikit-learn* is loaded from a skops file, whose types are listed before any is created: types that skops
  cannot vouch for need `trust=True`. Pickles and joblib files of estimators are never opened.

A function named as `module:function` is your own code: it is imported and called.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from ig2._utils.files import check_regular
from ig2._utils.suggestions import ChoiceError, suggest
from ig2.errors import IG2Error, InputError, describe, import_extra, reason
from ig2.modalities.base import Subject
from ig2.modalities.modality import Modality, find, list_modalities
from ig2.modalities.models import MODELS
from ig2.modalities.table import estimators
from ig2.modalities.table.estimators import is_estimator

Opened = TypeVar("Opened")
HOW_TO_SAVE = (
    "save the weights alone, torch.save(net.state_dict(), 'weights.pt'), and give module:function@weights.pt; an estimator of "
    "scikit-learn, skops.io.dump(estimator, 'estimator.skops')"
)
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # module:function
SUFFIXES = (
    ".pt", ".pth", ".pt2", ".bin", ".ckpt", ".safetensors", ".ts", ".onnx", ".h5", ".keras", ".pkl", ".joblib", ".zip",
    ".skops",
)  # fmt: skip


def load_subject(
    spec: str | None,
    modality: Modality,
    *,
    trust: bool = False,
    settings: Mapping[str, Any] | None = None,
    source: Path | None = None,
    assumed: Callable[[str], None] = lambda text: None,
) -> Subject:
    """Load the model for a kind of data: by default the built-in one, otherwise the one that `load_network` finds.

    What a bare network takes is assumed, as the kind of data's `wrap` does: of images, 224 × 224, or the size it was exported
    for, with values from 0 to 1. For anything else, name a function that returns a subject.

    Args:
        spec: as for `load_network`.
        modality: the kind of data.
        trust: as for `load_network`.
        settings: what is known of the data of a bare network, as `modality.wrap` takes it.
        source: a file of samples like those that it takes.
        assumed: called with what is assumed of a bare network.

    Raises:
        ChoiceError: if there are settings, and the model brings its own.
        InputError: if there is no such model, or it is of another kind of data.
    """
    if spec is None:
        return modality.load()
    settings, model = settings or {}, load_network(spec, trust=trust)
    if not isinstance(model, Subject):
        if not isinstance(model, nn.Module) and not modality.takes_estimators:
            raise InputError(f"{spec} is an estimator, which takes rows of a table, not {modality.nouns}: name a network")
        subject, words = modality.wrap(model, spec, settings, source)
        assumed(f"{spec} is {'a bare network' if isinstance(model, nn.Module) else 'an estimator'}; assumed: {words}")
        return subject
    if model.modality.name != modality.name:
        raise InputError(f"{spec} explains {model.modality.nouns}, and these are {modality.nouns}: name another model")
    if settings:
        raise ChoiceError(
            f"{next(iter(settings))} describes the data of a bare network, and {model.name} comes with its own: omit it"
        )
    return model


def load_network(spec: str, *, trust: bool = False) -> Any:
    """Load a network, an estimator of scikit-learn, or a subject.

    Args:
        spec: a known name (see `ig2.modalities.image.load`, `.text.load`, `.table.load`);
            `module:function`, a function without arguments, of an installed module or one in the
            current folder, that returns a network or a subject; the same with `@file`, the weights
            to load into it; or a file of TorchScript, `torch.export` or skops.
        trust: whether to open TorchScript, `torch.export` and untrusted skops files, which can do whatever you can do. Set it
            for files whose origin you trust as you trust code.

    Raises:
        InputError: for an unknown name, a file that is not a model, and a program without `trust`.
    """
    if not isinstance(spec, str) or not spec.strip():
        raise InputError(f"a model is named by a string, got {describe(spec)}")
    source = spec.partition(":")[0]
    if spec in MODELS:
        return MODELS[spec]()
    for modality in list_modalities():
        if source in modality.libraries:
            return modality.load(spec)
    if _exists(spec):
        return _load_file(Path(spec), trust)
    called, _, weights = spec.partition("@")
    if FUNCTION.fullmatch(called):
        if weights and not _exists(weights):
            raise InputError(f"{weights} does not exist")
        model = _call(called)
        if weights and isinstance(model, Subject) and not model.modality.reads_ahead:
            raise InputError(
                f"{called} returns a subject of {model.modality.nouns}, which asks its weights while it reads: let it load "
                "them itself"
            )
        if weights:
            _fill(model.model.net if isinstance(model, Subject) else model, Path(weights))
        return model
    if os.sep in spec or "/" in spec or Path(spec).suffix.lower() in SUFFIXES:
        raise InputError(f"{spec} does not exist; a model is a file, a known name, or module:function")
    return find("image").load(spec)  # a bare name of torchvision or timm, or the sentence that says it is none


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long for a name, or no rights to look
        return False


# -- functions ---------------------------------------------------------------------------------------------------------


def load_function(spec: str) -> Any:
    """Import the object named `module:name` from an installed module or one in the current folder."""
    if not isinstance(spec, str) or not FUNCTION.fullmatch(spec):
        raise InputError(f"a function is named as module:function, got {describe(spec)}")
    module, _, function = spec.partition(":")
    with import_from_here():
        try:
            value: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
                raise InputError(f"{spec}: there is no module {module!r}, installed or in {Path.cwd()}") from error
            raise InputError(f"{spec}: importing {module!r} failed: {reason(error)}") from error
        except (Exception, SystemExit) as error:
            raise InputError(f"{spec}: importing {module!r} failed: {reason(error)}") from error
    for name in function.split("."):
        if not hasattr(value, name):
            names = [known for known in dir(value) if not known.startswith("_")]
            raise InputError(f"{spec}: {module!r} has no {name!r}{suggest(name, names, 3)}")
        value = getattr(value, name)
    return value


def _call(spec: str) -> Any:
    with import_from_here():
        model = load_function(spec)
        if not isinstance(model, (nn.Module, Subject)) and not is_estimator(model):
            if not callable(model):
                raise InputError(f"{spec} is {describe(model)}: expected a function that returns a network or a subject")
            try:
                model = model()
            except IG2Error:
                raise
            except (Exception, SystemExit) as error:
                raise InputError(f"{spec}() failed: {reason(error)}") from error
    if isinstance(model, nn.Module):
        return model.eval()
    if not isinstance(model, Subject) and not is_estimator(model):
        raise InputError(f"{spec}() returned {describe(model)}: expected a network (torch.nn.Module) or a subject")
    return model


@contextmanager
def import_from_here() -> Iterator[None]:
    """Add the current folder to the import path, as Python does for a script, but not for an installed command."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


# -- files -------------------------------------------------------------------------------------------------------------


def _load_file(path: Path, trust: bool) -> Any:
    """Load a network from a file, or raise an error that states what else the file is."""
    if path.is_dir():
        if (path / "config.json").is_file():
            raise InputError(f"{path} is a folder; for a Hugging Face model say transformers:{path}")
        raise InputError(f"{path} is a folder: name a file in it")
    kind = _detect_kind(path)
    if kind in ("torch.export", "TorchScript"):
        if not trust:
            raise InputError(
                f"{path} is a program ({kind}), which can run anything on this machine: if you trust where it comes from, open "
                "it with --trust (trust=True in Python); otherwise give weights alone, module:function@weights.safetensors"
            )
        return _open_exported(path) if kind == "torch.export" else _open_torchscript(path)
    if kind == "skops":
        return estimators.load(path, trust=trust)
    count = len(_read_weights(path))
    raise InputError(
        f"{path} holds {count} tensors and no network: name the function that builds it too, module:function@{path}"
    )


def _detect_kind(path: Path) -> Literal["torch.export", "TorchScript", "archive", "safetensors", "pickle", "skops"]:
    """Detect a file's format from its content. Safety does not rest on it: programs need trust, the rest runs no code."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            start = file.read(9)
        names = zipfile.ZipFile(path).namelist() if zipfile.is_zipfile(path) else []
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    if not start:
        raise InputError(f"{path} is empty (0 bytes)")
    inside = {name.rpartition("/")[2].lower() for name in names}
    if "schema.json" in names:
        return "skops"
    if any(name.endswith(".json") for name in inside):
        return "torch.export"
    if "constants.pkl" in inside:
        return "TorchScript"
    if "data.pkl" in inside:
        return "archive"
    if start[8:9] == b"{":  # after the length of its header
        return "safetensors"
    if start[:1] == b"\x80":
        return "pickle"
    raise InputError(f"{path} is no model: expected safetensors, a state dict, TorchScript or torch.export")


def _read_weights(path: Path) -> dict[str, Tensor]:
    """Read named tensors from safetensors or a state dict."""
    kind = _detect_kind(path)
    if kind in ("torch.export", "TorchScript", "skops"):
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
    weights = _read_weights(path)
    expected = net.state_dict()
    missing, unknown = [name for name in expected if name not in weights], [name for name in weights if name not in expected]
    if missing or unknown:
        raise InputError(
            f"the weights of {path} are another network's: {len(missing)} of {len(expected)} are missing"
            + (f" ({missing[0]!r})" if missing else "")
            + f", {len(unknown)} are not known"
            + (f" ({unknown[0]!r})" if unknown else "")
        )
    for name, value in weights.items():
        if value.shape != expected[name].shape:
            raise InputError(f"{path}: {name!r} is {tuple(value.shape)}, the network's is {tuple(expected[name].shape)}")
    net.load_state_dict(weights)


def _open_torchscript(path: Path) -> nn.Module:
    load = cast(Callable[[str, str], nn.Module], torch.jit.load)
    return _open_program(path, "TorchScript", lambda: load(str(path), "cpu")).eval()


def _open_exported(path: Path) -> nn.Module:
    program = _open_program(path, "torch.export", lambda: torch.export.load(str(path)))
    inputs = [
        node for node in program.graph.nodes if node.op == "placeholder" and node.name in program.graph_signature.user_inputs
    ]
    shape = getattr(inputs[0].meta.get("val"), "shape", None) if inputs else None
    if shape is not None and len(shape) and isinstance(shape[0], int):
        raise InputError(
            f"{path} was exported for batches of exactly {shape[0]}: export it for any, with dynamic_shapes and "
            "torch.export.Dim('batch') for the first axis"
        )
    return _open_program(path, "torch.export", program.module)


def _open_program(path: Path, kind: str, load: Callable[[], Opened]) -> Opened:
    """Open a program without its log output, and report why it failed."""
    silent = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # torch.export logs its own errors before it raises them
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that TorchScript is old is no news to who has such a file
            return load()
    except Exception as error:
        raise InputError(f"{path} is a {kind} file that cannot be opened: {reason(error)}") from error
    finally:
        logging.disable(silent)
