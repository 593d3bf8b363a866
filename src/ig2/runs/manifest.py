"""The manifest of a store, which identifies its run and prevents another run from writing to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

import ig2
from ig2._utils.digests import code_digest, describe_code, fingerprint, key_of, place
from ig2._utils.files import FileError
from ig2.errors import InputError, describe, reason
from ig2.methods.base import summary
from ig2.modalities.base import Batch, Subject
from ig2.model import Function, Model, modules_used
from ig2.question import Question
from ig2.runs.files import FORMAT, MANIFEST, find_differences, list_parts, read_manifest, write_json
from ig2.runs.language import PromptPlan
from ig2.runs.plan import Plan
from ig2.runs.sources import find_source
from ig2.targets import Target

ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")  # in the text of an object, another in every process
NOT_SETTINGS = ("name", "model", "classes", "samples")  # of a subject: said elsewhere, or references


def make_fingerprint(plan: Plan, references: Any) -> dict[str, Any]:
    """Return everything that determines the rows, in words and digests, which identifies the run of a store."""
    question, saving = plan.question, plan.saving
    given = question.references
    pool = find_source(references).describe() if isinstance(given, Batch) and references is not given else None
    return {
        "code": f"ig2 {ig2.__version__} ({code_digest()})",
        "model": describe_model(plan),
        "method": {**_describe_part(plan.method), "digest": key_of(fingerprint(plan.method))},
        "question": {
            **question.describe(),
            **({"target_digest": key_of(fingerprint(question.target))} if isinstance(question.target, Target) else {}),
            **({} if pool is None else {"references": pool}),
            "references_digest": None if given is None or pool is not None else key_of(_fingerprint_references(given)),
        },
        "settings": {
            "values": summary(saving.values),
            "gradcf": saving.gradcf,
            "per_reference": saving.per_reference,
            "metrics": {name: summary(metric) for name, metric in saving.scored.items()},
            "column": plan.column,
            **({"prepare": summary(plan.prepare)} if isinstance(plan, PromptPlan) and plan.prepare is not True else {}),
        },
        "source": plan.source.describe(),
    }


def read_question(manifest: Mapping[str, Any]) -> Question:
    """Return the question of a store, with the references that come with the model.

    A target that is no class is only described in it, by a mapping.
    """
    asked = manifest["fingerprint"].get("question", {})
    return Question(**{name: asked[name] for name in ("target", "against", "count", "seed") if name in asked})


def _fingerprint_references(references: Any) -> Any:
    return fingerprint(references.attributed if isinstance(references, Batch) else references)


def _describe_part(part: Any) -> Any:
    content = summary(part)
    return content if isinstance(content, dict) or part is None else {"type": content}


def describe_model(plan: Plan) -> dict[str, Any]:
    """Return the model of a plan, with a digest of its weights, as in a fingerprint."""
    net = plan.model.net
    lm = plan.lm if isinstance(plan, PromptPlan) else None
    name = lm.name if lm is not None else type(net).__name__ if plan.subject is None else plan.subject.name
    if isinstance(net, Function):  # of what it holds that is no module, numbers cannot be read
        function = net.function
        owner = ADDRESS.sub("", repr(getattr(function, "__self__", None)))
        named = place(function) if hasattr(function, "__qualname__") else type(function).__name__
        code = _describe_function(function) if isinstance(function, FunctionType) else None
        digest = key_of(named, owner, code, _fingerprint_weights(net))
    else:
        digest = key_of(repr(net), _fingerprint_weights(net))
    preprocess = plan.model.preprocess
    if isinstance(preprocess, nn.Module):
        digest = key_of(digest, repr(preprocess), _fingerprint_weights(preprocess))
    kind = {} if lm is None else {"lm": lm.kind}
    description = {"name": name, "weights": digest, "settings": repr(plan.model), **kind, **_describe_parts(plan.model)}
    return description if plan.subject is None else {**description, **_describe_subject(plan.subject)}


def _describe_parts(model: Model) -> dict[str, Any]:
    """Return the other properties that determine a model's scores, and are not part of its text."""
    parts = {
        "preprocess": None if isinstance(model.preprocess, nn.Module) else model.preprocess,
        "output": None if isinstance(model.output, str) else model.output,
        "bounds": model.bounds if any(isinstance(bound, Tensor) for bound in model.bounds or ()) else None,
    }
    digests = {f"{name}_digest": key_of(_describe_function(part)) for name, part in parts.items() if part is not None}
    precision = None if model.preparation is None else model.preparation.precision
    return digests if precision is None else {**digests, "precision": precision}


def _describe_function(part: Any) -> Any:
    """Describe a function by its code, not its file, which may change elsewhere between runs; other values by content."""
    if not isinstance(part, FunctionType):
        return fingerprint(part)
    held = [cell.cell_contents for cell in part.__closure__ or ()]
    content = (held, part.__defaults__, part.__kwdefaults__, modules_used(part))
    return [place(part), describe_code(part.__code__), *map(fingerprint, content)]


def _describe_subject(subject: Subject) -> dict[str, Any]:
    """Return the preprocessing of items: size and framing of images, columns of tables, length of texts, rate of signals."""
    settings = {part.name: getattr(subject, part.name) for part in fields(subject) if part.name not in NOT_SETTINGS}
    plain = {
        name: summary(setting)
        for name, setting in settings.items()
        if isinstance(setting, (str, int, float, tuple)) or is_dataclass(setting)
    }
    return {**plain, "classes_digest": key_of(subject.classes)}


def _fingerprint_weights(net: nn.Module) -> Any:
    """Return the fingerprint of a state dict, by threads: 100 MB take a tenth of a second, the start of a run on one core."""
    state = net.state_dict()
    with ThreadPoolExecutor(thread_name_prefix="ig2-digest") as pool:
        return [[name, content] for name, content in zip(state, pool.map(fingerprint, state.values()), strict=True)]


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = [
            path.name for path in folder.iterdir() if path.name not in ("lock", "journal", "parts") and path.suffix != ".part"
        ]
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{folder} is a file, or in one: choose a folder") from error
    except OSError as error:
        raise FileError(error.errno, reason(error), str(folder)) from error
    if others and not (folder / MANIFEST).exists():
        raise InputError(f"{folder} holds something else ({describe(others[0])}): choose an empty or new folder for the store")


def check_manifest(folder: Path, plan: Plan, run_fingerprint: dict[str, Any]) -> None:
    """Check that the store belongs to this run; write its manifest, or what was typed if it lacks it."""
    command = plan.saving.command
    typed = {} if command is None else {"command": dict(command)}
    if (folder / MANIFEST).exists():
        manifest = read_manifest(folder)
        differences = find_differences(manifest["fingerprint"], run_fingerprint)
        if not differences:
            if typed and "command" not in manifest:
                write_json(folder / MANIFEST, {**manifest, **typed})
            return
        if list_parts(folder):  # a run that could not begin, with a name typed wrong for example, has none
            more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
            raise InputError(
                f"{folder} is of another run: {differences[0]}{more}; use the same settings, or choose another folder"
            )
    subject = plan.subject
    write_json(
        folder / MANIFEST,
        {
            "format": FORMAT,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "digest": key_of(run_fingerprint),
            "fingerprint": run_fingerprint,
            "kind": plan.modality.name,
            "view": None if subject is None else subject.describe_view(),
            "classes": None if subject is None else subject.classes,
            "units": subject.units if plan.saving.values == "units" and subject is not None else None,
            "metrics": list(plan.saving.scored),
            "versions": {"ig2": ig2.__version__, "torch": torch.__version__},
            **typed,
        },
    )
