"""One question, put through every door, has one answer; and its words name no class that its references are not of."""

from __future__ import annotations

import base64
import inspect
import json
import wave
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command
from numpy.typing import NDArray
from torch import Tensor, nn

import ig2 as library
from ig2 import modalities
from ig2.cli.methods import TypedMethod
from ig2.explorer import Collection, WhatIf
from ig2.question import COUNT, Inquiry
from networks import data, refuses, seeded
from whatifs import encode, make_bright, make_patients, make_photos, make_reader

METHODS = ("ig", "expected-ig", "ig2", "deepshap", "kernelshap", "turns")
STEPS, SEED = 4, 3


def make_heart() -> modalities.signal.SignalSubject:
    """A network on short sounds of one channel, and sounds for it."""
    net = seeded(lambda: nn.Sequential(nn.Conv1d(1, 4, 5), nn.Tanh(), nn.Flatten(), nn.Linear(144, 3)), 4).float()
    clips = list(data(12, 1, 40, seed=6).float().clamp(-1, 1))
    return modalities.signal.subject(net.eval(), 40, classes=["calm", "fast", "slow"], window=10, clips=clips)


def write_inputs(kind: str) -> list[str]:
    """Write three inputs into the current folder, and return what is typed for them."""
    if kind == "image":
        Path("inputs").mkdir()
        for number, photo in enumerate(make_photos(3, seed=5)):
            Path(f"inputs/{number}.png").write_bytes(encode(photo.source))
        return ["inputs"]
    if kind == "text":
        Path("inputs.txt").write_text("a bad film\na good book\nsad film good\n")
        return ["inputs.txt"]
    if kind == "table":
        make_patients()[1].head(3).to_csv("inputs.csv", index=False)
        return ["inputs.csv"]
    Path("inputs").mkdir()
    for number, clip in enumerate(data(3, 40, seed=9).clamp(-1, 1)):
        with wave.open(f"inputs/{number}.wav", "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes((clip * 32767).short().numpy().tobytes())
    return [f"inputs/{number}.wav" for number in range(3)]


def make_subject(kind: str) -> modalities.base.Subject:
    makers = {"image": make_bright, "text": make_reader, "signal": make_heart}
    return make_patients()[0] if kind == "table" else makers[kind]()


def list_inputs(kind: str) -> Any:
    """The same inputs, as `Subject.explain` takes them."""
    if kind == "image":
        return sorted(Path("inputs").iterdir())
    if kind == "text":
        return Path("inputs.txt").read_text().splitlines()
    return "inputs.csv" if kind == "table" else [f"inputs/{number}.wav" for number in range(3)]


def flatten(attribution: library.Attribution, kind: str) -> list[NDArray[Any]]:
    """The values of each input, as a store has them."""
    if kind in ("text", "table"):
        return list(attribution.sum_units())
    return [values.numpy() for values in attribution.values]


def ask_what_if(whatif: WhatIf, kind: str, content: Any) -> NDArray[Any]:
    sent = {"input": content}
    *_, last = whatif.ask(whatif.parse(json.dumps(sent).encode()), lambda *_: None)
    return np.asarray(whatif.trials[last["trial"]][0]["values"])


def edit(kind: str, inputs: Any) -> Iterator[Any]:
    """The inputs as a page sends them."""
    if kind == "table":
        yield from make_patients()[1].head(3).astype(str).to_dict("records")
    elif kind == "text":
        yield from inputs
    else:
        yield from (base64.b64encode(path.read_bytes()).decode() for path in inputs)


@pytest.mark.parametrize("kind", ["image", "text", "table", "signal"])
def test_a_question_has_one_answer_through_every_door(ig2: Command, kind: str) -> None:
    subject, typed = make_subject(kind), write_inputs(kind)
    inputs = list_inputs(kind)
    batch = subject.read(inputs)
    found: dict[str, dict[str, list[NDArray[Any]]]] = {}
    for name in METHODS:
        choice = TypedMethod(name, STEPS)
        method = choice(subject, batch)
        doors = found.setdefault(name, {})
        doors["Subject.explain"] = flatten(subject.explain(inputs, method, seed=SEED), kind)
        call = library.Question(seed=SEED).pose(subject, method, batch)
        direct = call.method(subject.model, batch.x, call.target, call.references, against=call.against, seed=SEED)
        doors["pose"] = flatten(subject.add_names(batch, direct), kind)
        source = inputs if kind in ("image", "signal") else typed[0]
        store = library.run(
            source,
            subject,
            choice,
            f"store-{name}",
            question=library.Question(seed=SEED),
            reading=library.Reading(batch=2),
            device="cpu",
        )
        doors["ig2.run"] = [np.asarray(row["values"]) for row in store]
        if kind != "signal":
            whatif = WhatIf(Collection([f"store-{name}"]), subject, choice)
            doors["what-if"] = [ask_what_if(whatif, kind, content) for content in edit(kind, inputs)]
    ig2.module(f"from {__name__} import make_subject\ndef made(): return make_subject({kind!r})")
    options = ("--method", METHODS[0], "--compare", ",".join(METHODS[1:]), "--steps", STEPS, "--seed", SEED, "-o", "out")
    said = ig2("explain", *typed, "-m", "mine:made", *options)
    assert said.code == 0, said
    for name in METHODS:
        found[name]["ig2 explain"] = flatten(library.Attribution.load(f"out/{name}.safetensors"), kind)
        expected = found[name]["pose"]
        for door, values in found[name].items():
            for row, (one, other) in enumerate(zip(values, expected, strict=True)):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6, err_msg=f"{name} {door} {row}")


@pytest.mark.parametrize("name", METHODS)
def test_tensors_have_one_answer_too(tmp_path: Path, name: str) -> None:
    net = seeded(lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), 0).eval()
    x, references, method = data(3, 5, seed=1), data(4, 5, seed=2), TypedMethod(name, STEPS)(None, None)
    for given in (references, None):
        asked: dict[str, Any] = {"references": given, "seed": SEED}
        call = library.Question(**asked).pose(net, method, x)
        if given is None and method.needs_references:
            refuses(library.InputError, "needs references", call)
            refuses(
                library.InputError,
                "needs references",
                partial(library.run, x, net, method, tmp_path / "none", library.Question(**asked)),
            )
            continue
        direct = method(net, x, references=given, seed=SEED)
        store = library.run(x, net, method, tmp_path / f"{given is None}", library.Question(**asked))
        np.testing.assert_allclose(call().values, direct.values, rtol=1e-6)
        np.testing.assert_allclose(np.stack([row["values"] for row in store]), direct.values, rtol=1e-5, atol=1e-7)


def test_defaults_are_those_of_the_question() -> None:
    """What is typed as a keyword has the default that the question states."""
    stated = {part.name: part.default for part in fields(library.Question)}
    typed = inspect.signature(modalities.base.Subject.explain).parameters
    assert {name: typed[name].default for name in stated} == stated
    chosen = library.Question().contrast(make_bright(), make_bright().read(make_photos(1, seed=5)))
    assert [len(names) for names in chosen.names] == [COUNT] == [library.Question().describe()["count"]]


# -- what methods are given --------------------------------------------------------------------------------------------


def make_letters(labels: str) -> modalities.table.TableSubject:
    """A subject whose outputs are its columns, so that a row is of the class of its largest; one row of each of `labels`."""
    rows = [{letter: 9.0 * (letter == label) + 0.1 * place for letter in "abcd"} for place, label in enumerate(labels)]
    columns = [modalities.table.Number(letter) for letter in "abcd"]
    return modalities.table.subject(library.wrap(nn.Identity(), "output"), columns, classes=list("abcd"), rows=rows)


A_THEN_B_C_D = [{"a": 9, "b": 5, "c": 4, "d": 3}]


@pytest.mark.parametrize(
    ("pool", "classes", "words"),
    [
        ("aabbbbccdd", "bbbb", "a rather than b"),
        ("abcd", "bcd", "a rather than b"),
        ("ccccddab", "bccc", "a rather than b"),
        ("ddddcc", "ccdd", "a rather than c"),
        ("dda", "dd", "a rather than d"),
    ],
)
def test_what_is_explained_is_what_references_can_show(pool: str, classes: str, words: str) -> None:
    """The most likely of the other classes that there are references of, and references of the next likely beside them."""
    found = make_letters(pool).explain(A_THEN_B_C_D, library.ExpectedIG(2))
    assert "".join(found.names.reference_classes[0]) == classes
    assert found.explained == [words] and "abcd"[int(found.against[0])] == words[-1]
    assert ("none of the" in found.names.why[0]) == (words[-1] != "b")


@pytest.mark.parametrize(
    ("asked", "pool", "words"),
    [
        ({}, "ccdd", "a rather than c"),
        ({"against": "next"}, "bbcc", "a rather than b"),
        ({"against": "next"}, "ccdd", "a rather than b, beside references of c or d"),
        ({"against": "d"}, "ccdd", "a rather than d"),
        ({"against": "b"}, "cccc", "a rather than b, beside references of c"),
        ({"against": [["b", "c"]]}, "ccdd", "a rather than b or c"),
        ({"against": None}, "ccdd", "a, beside references of c or d"),
        ({"target": "b"}, "aadd", "b rather than a"),
        ({"target": library.targets.Magnitude()}, "ccdd", "the norm of the output"),
    ],
)
def test_words_name_no_class_that_references_are_not_of(asked: dict[str, Any], pool: str, words: str, tmp_path: Path) -> None:
    """In an attribution, its file, a store and a page alike."""
    subject, method = make_letters(pool), library.ExpectedIG(2)
    found = subject.explain(A_THEN_B_C_D, method, **asked)
    assert found.explained == [words] and f"explains  {words}\n" in repr(found)
    found.save(tmp_path / "a.safetensors")
    loaded = library.Attribution.load(tmp_path / "a.safetensors")
    assert loaded.explained == [words] and loaded.settings["question"] == found.settings["question"]
    subject.read(A_THEN_B_C_D)
    Path(tmp_path / "rows.csv").write_text("a,b,c,d\n9,5,4,3\n")
    store = library.run(str(tmp_path / "rows.csv"), subject, method, tmp_path / "store", library.Question(**asked))
    assert [row["question"] for row in store] == [words]
    (view,), _ = Collection([store.folder]).view("rows.csv:1")
    assert view.asked == words


def test_a_method_has_its_own_baseline_unless_references_are_named() -> None:
    subject = make_letters("bbbbcc")
    batch = subject.read(A_THEN_B_C_D)
    own, named = (
        library.Question(None, None, references).pose(subject, library.IntegratedGradients(4), batch)
        for references in (None, subject.pool())
    )
    assert own.references is None and own.contrast is None and named.references.shape == (1, 4, 4)
    assert library.Question(None, None).pose(subject, library.Gradient(), batch).references is None
    assert library.Question(None, None, subject.pool()).pose(subject, library.Gradient(), batch).references is None
    zero = library.Question(None, None, 0).pose(subject, library.IG2(4), batch)
    assert zero.references == 0 and zero.contrast is None
    words = make_reader().read("a bad film")
    call = library.Question().pose(make_reader(), library.IntegratedGradients(4), words)
    assert call.contrast is None and call.references["embeddings"].shape == (1, 1, 3, 4)  # no words


class Breaks(nn.Linear):
    """A network that fails on a first feature below −100."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / (x[:, :1] > -100)


@dataclass(frozen=True, eq=False, repr=False)
class Near(modalities.table.TableSubject):
    """A model of so many samples that each batch has some of its own to choose from."""

    pools: list[Any] = field(default_factory=list)

    def pool_near(self, ranked: Any, count: int) -> Any:
        return self.pools.pop(0)


def test_each_batch_has_the_outputs_of_its_own_pool() -> None:
    net = nn.Linear(3, 3, bias=False)
    nn.init.eye_(net.weight)
    known = modalities.table.subject(net, ["a", "b", "c"], ["x", "y", "z"])
    settings = {part.name: getattr(known, part.name) for part in fields(known) if part.init}
    nothing = {"a": 0.0, "b": 0.0, "c": 0.0}
    y, z = (known.read([{**nothing, letter: 1.0}]) for letter in "bc")
    inquiry = Inquiry(library.Question(count=1), Near(**settings, pools=[y, z]))
    chosen = [inquiry.choose(known.read(2 * [{**nothing, "a": size}])) for size in (1.0, 2.0)]
    assert [each.labels for each in chosen] == [(("y",), ("y",)), (("z",), ("z",))]


def test_an_input_that_is_skipped_takes_no_names_from_the_others() -> None:
    rows = [{"a": float(5 * i - 15), "b": float(i % 3)} for i in range(8)]
    asked = [rows[0], {"a": -999.0, "b": 0.0}, rows[7], rows[4]]
    subject = modalities.table.subject(seeded(lambda: Breaks(2, 3), 0).float(), ["a", "b"], ["x", "y", "z"], rows=rows)
    method = library.IG2(2)

    def explain(samples: list[dict[str, float]], **options: Any) -> library.Attribution:
        question = library.Question(count=2)
        return question.pose(subject, method, subject.read(samples))(**options)

    with pytest.warns(library.IG2Warning, match="1 explicand of 4 skipped"):
        found = explain(asked, skip_bad=True)
    alone = [explain([row]) for row in (asked[0], *asked[2:])]
    assert found.names is not None and len(found) == 3
    for name in ("questions", "references", "reference_classes", "why"):
        each = [getattr(one.names, name)[0] for one in alone]
        assert list(getattr(found.names, name)) == each
        assert name == "why" or len({str(one) for one in each}) > 1


def test_a_question_checks_what_it_is_given() -> None:
    for wrong in ({"count": 0}, {"count": 2.5}, {"seed": "x"}):
        refuses(library.InputError, next(iter(wrong)), lambda wrong=wrong: library.Question(**wrong))
    subject = make_letters("bb")
    batch = subject.read(A_THEN_B_C_D)
    refuses(library.InputError, "no class 'q'", lambda: library.Question("q").pose(subject, library.IG2(2), batch))
    refuses(library.InputError, "no class 'q'", lambda: library.Question(against="q").pose(subject, library.IG2(2), batch))
    refuses(library.InputError, "method must be", lambda: library.Question().pose(subject, "ig2", batch))
    refuses(library.InputError, "batch must be", lambda: library.Question().pose(subject, library.IG2(2), batch.x))
