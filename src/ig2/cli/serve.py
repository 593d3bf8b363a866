"""`ig2 serve`: stores of `ig2 run` in the browser."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ig2._utils.devices import find_device
from ig2._utils.suggestions import ChoiceError
from ig2.cli.methods import TypedMethod, find_methods, find_rule
from ig2.cli.options import ServeOptions
from ig2.cli.output import open_console, print_heading, print_line
from ig2.cli.streams import print_error
from ig2.errors import InputError, describe, import_extra
from ig2.methods.catalogue import METHODS
from ig2.modalities.modality import find_stored, list_modalities
from ig2.modalities.models import MODELS
from ig2.runs.files import read_manifest
from ig2.runs.manifest import read_question

if TYPE_CHECKING:
    from ig2.explorer import Collection, WhatIf

WIDTH = 10
# of a store that may be anyone's: names that lead to code or files of this machine are for its user to type
SAFE = re.compile(r"(torchvision|timm):[\w.]+")


def run(options: ServeOptions) -> None:
    """Serve the explorer, print where it is, and open it."""
    if not options.stores:
        raise ChoiceError("no store was named: name a folder written by ig2 run, for example ig2 serve ig2-run")
    for package in ("fastapi", "uvicorn"):
        import_extra(package, "serve", "ig2 serve")
    from ig2.explorer import serve

    whatif = prepare_whatif(options) if options.what_if or options.model is not None else None
    about: list[str] = []

    def make(collection: Collection) -> WhatIf:
        assert whatif is not None
        model = whatif(collection)
        about.append(f"{model.subject.name}, {model.describe()['method']}; saved results go to {model.keeper.folder}")
        return model

    def announce(address: str) -> None:
        console = open_console()
        print_heading(console, "Explorer", address)
        if "token=" in address:
            print_line(console, "token", "anyone with this address can see the stores; the connection is not encrypted", WIDTH)
        for line in about:
            print_line(console, "what if", line, WIDTH)
        print_line(console, "stop", "Ctrl-C", WIDTH)
        if not options.no_open:
            with suppress(webbrowser.Error):
                webbrowser.open(address)

    serve(
        options.stores, source=options.source, whatif=make if whatif is not None else None, host=options.host,
        port=options.port, started=announce,
    )  # fmt: skip


def prepare_whatif(options: ServeOptions) -> Callable[[Collection], WhatIf]:
    """Load the model, by what was typed or else by what the store says of its run; return what makes a `WhatIf` of it.

    Raises:
        ChoiceError: if the store does not say which model or method it was made with, and nothing was typed.
        InputError: if the model cannot be loaded, or does not fit the store.
    """
    from ig2.cli.asking import REFERENCES, find_references, parse_against
    from ig2.cli.models import load_model
    from ig2.explorer import WhatIf

    manifest = read_manifest(options.stores[0])
    modality, command = find_stored(manifest), manifest.get("command") or {}
    if not modality.can_edit:
        nouns = " and ".join(each.nouns for each in list_modalities() if each.can_edit)
        raise InputError(f"{options.stores[0]} is a store of {modality.nouns}: --what-if is for {nouns}, omit it")
    if "lm" in manifest["fingerprint"].get("model", {}):
        raise InputError(f"{options.stores[0]} is of a language model, which --what-if does not support: use ig2 explain --lm")
    name = find_method(options, manifest)
    find_methods([name], modality)
    method = manifest["fingerprint"].get("method") or {}
    is_same = options.method is None or options.method == method.get("name")
    rule = method["rule"] if is_same and isinstance(method.get("rule"), str) else None
    find_rule(rule, [METHODS[name]])
    steps = options.steps or (method.get("steps") if is_same else None)
    steps = steps if isinstance(steps, int) else 50
    choice = TypedMethod(name, steps, rule)
    references = options.references
    if references is None and command.get("references") is not None:
        if command["references"] in REFERENCES:
            references = command["references"]
        else:
            print_error(
                f"the references of the store came from {describe(command['references'])}; using those of the model: add "
                "--references to choose others"
            )
    typed = replace(options, model=find_model(options.model, command))
    sources = [Path(place) for place in (options.references, options.source) if place is not None and Path(place).is_file()]
    subject = load_model(typed, modality, sources).to(find_device(options.device))
    question = replace(read_question(manifest), references=find_references(references))
    if options.count is not None:
        question = replace(question, count=options.count)
    if options.target != "auto":
        question = replace(question, target=subject.index(options.target))
    if options.against is not None:
        question = replace(question, against=parse_against(subject, options.against))
    return lambda collection: WhatIf(collection, subject, choice, question)


def find_method(options: ServeOptions, manifest: Mapping[str, Any]) -> str:
    """Return the name of the method: what was typed, or that of a store made by `ig2 run`."""
    method = manifest["fingerprint"].get("method") or {}
    name = options.method or (method.get("name") if method.get("type") == "TypedMethod" else None)
    if isinstance(name, str):
        return name
    if method.get("type") is None:
        raise ChoiceError("the store does not record its method: name it with --method, and the model with --model")
    raise ChoiceError(
        f"the store was made by {describe(method['type'])} in Python, which the command cannot name: choose one with --method"
    )


def find_model(typed: str | None, command: Mapping[str, Any]) -> str | None:
    """Return the name of the model: what was typed, or what a store says of its own, if that is safe to open."""
    if typed is not None:
        return typed
    if "model" not in command:
        raise ChoiceError("the store does not record its model: name it with --model")
    name: str | None = command["model"]
    if name is None or name in MODELS or SAFE.fullmatch(str(name)):
        return name
    raise ChoiceError(f"the store was made with {describe(name)}, which is code or a file: if you trust it, add --model {name}")
