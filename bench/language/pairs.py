"""Minimal pairs with known answers: which references, position, distance, path and rule find the word that decides?

A grammar makes prompts in pairs that differ in one word that decides the answer and in one or two that do not: "In Germany most
people speak" and "In France many women speak". A pair is kept if the model gives each of the two its own answer. What is
explained is log p(answer) − log p(the other answer). Columns:

- share: of the sum of |φ| over words, what is on the word that decides;
- first: how often that word has the largest |φ|;
- deletion: the mean of f, from 1 at the prompt to 0 at its pair, as the words that differ are exchanged in the order of φ;
- off: Σ |φ − Shapley value| over the words that differ, as a share of f(x) − f(pair), where the reference is the pair.

Usage: python bench/language/pairs.py --pairs 34 --steps 8 --out bench/language/pairs.json [--device cuda]
What the file has is kept, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ig2
from ig2 import modalities
from ig2.inputs import Fixed
from ig2.modalities.language.outcomes import Continuations, Scorer
from ig2.modalities.language.prompts import Prompt
from ig2.paths import GradPath, cosine, euclidean
from ig2_bench.language import Column, render

LANGUAGES = {
    "Germany": " German", "France": " French", "Spain": " Spanish", "Italy": " Italian", "Japan": " Japanese",
    "China": " Chinese", "Russia": " Russian", "Portugal": " Portuguese", "England": " English", "Greece": " Greek",
    "Poland": " Polish", "Turkey": " Turkish", "Korea": " Korean",
}  # fmt: skip
CAPITALS = {
    "France": " Paris", "Germany": " Berlin", "Italy": " Rome", "Spain": " Madrid", "Japan": " Tokyo", "England": " London",
    "Russia": " Moscow", "China": " Beijing", "Egypt": " Cairo", "Greece": " Athens", "Austria": " Vienna",
    "Ireland": " Dublin", "Cuba": " Havana", "Peru": " Lima", "Norway": " Oslo",
}  # fmt: skip
NOUNS = {"key": "keys", "car": "cars", "book": "books", "boy": "boys", "teacher": "teachers", "road": "roads", "song": "songs",
         "door": "doors", "child": "children", "picture": "pictures"}  # fmt: skip
OF_HOUSES = ("old", "small", "new", "large", "white", "green"), ("house", "garden", "school", "church", "farm", "city")
WHO = ("most", "many", "some", "all"), ("people", "women", "men", "families")

COLUMNS = (
    Column("share", "share", True),
    Column("first", "first", True),
    Column("deletion", "deletion", False),
    Column("off", "off Shapley", False),
)
DIGITS = 2
OTHERS = ("likely", "filler", "neighbours", "others")
LONG = 30  # the steps of the rows that say so in their names


@dataclass(frozen=True)
class Case:
    """A prompt and its pair."""

    family: str
    prompt: str
    pair: str
    word: int  # the one that decides
    answer: str
    other: str


def make_cases(generator: random.Random) -> Iterator[Case]:
    """Cases without end, round-robin over the three families."""
    while True:
        (one, first), (two, second) = generator.sample(sorted(LANGUAGES.items()), 2)
        texts = [f"In {name} {generator.choice(WHO[0])} {generator.choice(WHO[1])} speak" for name in (one, two)]
        yield Case("languages", *texts, 1, first, second)
        (one, first), (two, second) = generator.sample(sorted(CAPITALS.items()), 2)
        texts = [
            f"The {kind} capital of {name} is called"
            for name, kind in zip((one, two), generator.sample(("old", "great", "famous", "present"), 2), strict=True)
        ]
        yield Case("capitals", *texts, 4, first, second)
        single, plural = generator.choice(sorted(NOUNS.items()))
        nouns = [plural, single] if generator.random() < 0.5 else [single, plural]
        places = [f"{generator.choice(OF_HOUSES[0])} {generator.choice(OF_HOUSES[1])}" for _ in nouns]
        texts = [f"The {noun} of the {place}" for noun, place in zip(nouns, places, strict=True)]
        verbs = (" are", " is") if nouns[0] == plural else (" is", " are")
        yield Case("agreement", *texts, 1, *verbs)


class Confined(GradPath):
    """GradPath in the box between the explicand and its reference: what `confine=True` does for one reference."""

    def advance(self, pairs: Any, step: int, point: Tensor, at: Any, memory: Any) -> Tensor:
        low, high = torch.minimum(pairs.explicand, pairs.reference), torch.maximum(pairs.explicand, pairs.reference)
        free = replace(at, ascent=at.ascent.masked_fill(low == high, 0.0))
        return super().advance(pairs, step, point, free, memory).clamp(low, high)


class Study:
    """The cases that passed, by family, and what is the same for all methods."""

    def __init__(self, model: modalities.language.LanguageModel, pairs: int, seed: int = 0) -> None:
        self.model = model
        self.families: dict[str, list[Case]] = {}
        generator, seen = random.Random(seed), set()
        for case in make_cases(generator):
            cases = self.families.setdefault(case.family, [])
            if len(self.families) == 3 and all(len(each) >= pairs for each in self.families.values()):
                break
            if len(cases) < pairs and (case.prompt, case.pair) not in seen and self._passes(case):
                cases.append(case)
            seen.add((case.prompt, case.pair))
            if len(seen) > 300 * pairs:
                raise SystemExit(f"the model knows too few of these: {[(k, len(v)) for k, v in self.families.items()]}")

    def _passes(self, case: Case) -> bool:
        """Whether a distractor differs too, all words are single tokens, and the model gives each prompt its own answer."""
        one, two = self.model.read(case.prompt), self.model.read(case.pair)
        differ = [a != b for a, b in zip(one.words, two.words, strict=True)]
        if len(one) != len(one.words) or len(two) != len(one) or sum(differ) < 2:
            return False
        if any(len(self.model.tokenizer(text)["input_ids"]) != 1 for text in (case.answer, case.other)):
            return False
        outcomes = Continuations("causal", tuple(self.ids(text) for text in (case.answer, case.other)))
        gaps = [self.model._score(prompt, outcomes) for prompt in (one, two)]
        return float(gaps[0][0] - gaps[0][1]) > 0.5 and float(gaps[1][1] - gaps[1][0]) > 0.5

    def ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.model.tokenizer(text)["input_ids"])

    def open(self, family: str, position: str = "last") -> Family:
        return Family(self.model, self.families[family], position)


class Family:
    """The cases of one family as a batch."""

    def __init__(self, model: modalities.language.LanguageModel, cases: list[Case], position: str) -> None:
        self.lm, self.cases = model, cases
        self.prompts = [model.read(case.prompt) for case in cases]
        self.pairs = [model.read(case.pair) for case in cases]
        answers = sorted({answer for case in cases for answer in (case.answer, case.other)})
        ids = tuple(tuple(model.tokenizer(answer)["input_ids"]) for answer in answers)
        self.target = torch.tensor([answers.index(case.answer) for case in cases])
        self.against = torch.tensor([answers.index(case.other) for case in cases])
        self.model = ig2.wrap(Scorer(model.net, Continuations("causal", ids, position=position)), "state")
        self.x = self._inputs(torch.stack([model.embed(prompt.ids) for prompt in self.prompts]))
        self.words = torch.tensor([case.word for case in cases])

    def _inputs(self, embeddings: Tensor) -> dict[str, Any]:
        mask = torch.ones(embeddings.shape[:2], dtype=torch.long)
        return {"embeddings": embeddings, "mask": Fixed(mask), "step": Fixed(torch.zeros(len(mask), dtype=torch.long))}

    def draw(self, strategy: Callable[[Prompt, Case], modalities.language.TextReferences]) -> dict[str, Tensor]:
        drawn = [strategy(p, c).draw(self.lm, p).embeddings for p, c in zip(self.prompts, self.cases, strict=True)]
        return {"embeddings": torch.stack(drawn)}

    def subsets(self) -> tuple[list[list[int]], list[dict[tuple[int, ...], float]]]:
        """The words that differ in each case, and f with each subset of them exchanged for the pair's."""
        differ = [
            [i for i, (a, b) in enumerate(zip(one.words, two.words, strict=True)) if a != b]
            for one, two in zip(self.prompts, self.pairs, strict=True)
        ]
        keys = [(row, chosen) for row, words in enumerate(differ) for r in range(len(words) + 1)
                for chosen in itertools.combinations(words, r)]  # fmt: skip
        texts = [
            [self.pairs[row].ids[i] if i in chosen else token for i, token in enumerate(self.prompts[row].ids)]
            for row, chosen in keys
        ]
        rows = torch.tensor([row for row, _ in keys])
        scores = ig2.scores(self.model, self._inputs(torch.stack([self.lm.embed(ids) for ids in texts])))
        gap = scores.gather(1, self.target[rows][:, None]) - scores.gather(1, self.against[rows][:, None])
        table: list[dict[tuple[int, ...], float]] = [{} for _ in self.cases]
        for (row, chosen), value in zip(keys, gap[:, 0].tolist(), strict=True):
            table[row][chosen] = value
        return differ, table


def find_shapley(words: list[int], values: dict[tuple[int, ...], float]) -> dict[int, float]:
    """The Shapley value of each word that differs, of the game that exchanges words."""
    shares = {}
    for word in words:
        others = [i for i in words if i != word]
        shares[word] = sum(
            (values[chosen] - values[tuple(sorted((*chosen, word)))]) / (len(words) * math.comb(len(others), len(chosen)))
            for r in range(len(others) + 1)
            for chosen in itertools.combinations(others, r)
        )
    return shares


def measure(phi: Tensor, family: Family, differ: Any, table: Any, is_pair: bool) -> list[dict[str, float]]:
    """The columns for each case, from a number for each word, (B, words)."""
    results = []
    for row, (scores, words, values) in enumerate(zip(phi.tolist(), differ, table, strict=True)):
        decisive = family.cases[row].word
        total = sum(map(abs, scores)) or 1.0
        start, end = values[()], values[tuple(words)]
        order, curve, gone = sorted(words, key=lambda i: -scores[i]), [1.0], []
        for word in order:
            gone.append(word)
            curve.append((values[tuple(sorted(gone))] - end) / (start - end))
        shapley = find_shapley(words, values)
        results.append(
            {
                "share": abs(scores[decisive]) / total,
                "first": float(max(range(len(scores)), key=lambda i: abs(scores[i])) == decisive),
                "deletion": sum(curve) / len(curve),
                **({"off": sum(abs(scores[i] - shapley[i]) for i in words) / abs(start - end)} if is_pair else {}),
            }
        )
    return results


def list_methods(model: modalities.language.LanguageModel, steps: int) -> list[tuple[str, str, str, Any]]:
    """(name, reference, position, method), those that decide the defaults first."""

    def ig2_on(path: type[GradPath], distance: Any, rule: Any = ig2.rules.blended, steps: int = steps) -> ig2.PathMethod:
        return ig2.PathMethod(path(steps, distance=distance), None, rule)

    def name(path: type[GradPath], distance: Any, position: str) -> str:
        return f"IG², {distance.__name__}, {position}, {'confined' if path is Confined else 'free'}"

    default = name(Confined, cosine, "last")
    table: list[tuple[str, str, str, Any]] = [
        ("Input×Gradient", "", "last", ig2.InputXGradient()),
        ("DeepSHAP", "pair", "last", ig2.DeepSHAP()),
        ("Expected IG", "pair", "last", ig2.ExpectedIG(steps=steps)),
    ]
    for variant in ((Confined, cosine, "last"), (GradPath, cosine, "last"), (GradPath, euclidean, "all")):
        table.append((name(*variant), "pair", variant[2], ig2_on(*variant[:2])))
    table += [("DeepSHAP", reference, "last", ig2.DeepSHAP()) for reference in OTHERS]
    table += [
        ("Integrated Gradients", "zero", "last", ig2.IntegratedGradients(steps=steps)),
        ("KernelSHAP", "pair", "last", None),  # its groups are the words of each family
        ("SIG", "filler", "last", ig2.SIG(steps=2)),
        (f"{default}, secant", "pair", "last", ig2_on(Confined, cosine, ig2.rules.secant)),
        (f"{default}, gauss(2)", "pair", "last", ig2_on(Confined, cosine, ig2.rules.gauss(2))),
    ]
    for variant in ((Confined, cosine, "all"), (Confined, euclidean, "last"), (Confined, euclidean, "all")):
        table.append((name(*variant), "pair", variant[2], ig2_on(*variant[:2])))
    table += [("Expected IG", reference, "last", ig2.ExpectedIG(steps=steps)) for reference in OTHERS]
    table += [(default, reference, "last", ig2_on(Confined, cosine)) for reference in OTHERS]
    table += [
        ("UDIG", "filler", "last", ig2.UDIG(model.table, steps=steps)),
        (f"{default}, {LONG} steps", "pair", "last", ig2_on(Confined, cosine, steps=LONG)),
    ]
    return table


def choose_references(name: str, family: Family) -> Any:
    strategies: dict[str, Callable[[Prompt, Case], modalities.language.TextReferences]] = {
        "pair": lambda _, case: modalities.language.MinimalPairs(case.pair),
        "likely": lambda *_: modalities.language.LikelyWords(1),
        "neighbours": lambda *_: modalities.language.Neighbours(1),
        "filler": lambda *_: modalities.language.Filler(),
        "mean": lambda *_: modalities.language.Filler("mean"),
        "zero": lambda *_: modalities.language.Filler("zero"),
        "others": lambda _, case: modalities.language.OtherPrompts(
            next(other.prompt for other in family.cases if other.answer != case.answer)
        ),
    }
    return family.draw(strategies[name]) if name else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--pairs", type=int, default=34, help="of each of the three families")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("bench/language/pairs.json"))
    parser.add_argument("--only", default="", help="run the missing rows whose method begins with this")
    parser.add_argument("--render", action="store_true", help="print the table of what is stored, and end")
    parser.add_argument("--rival", default="DeepSHAP", help="the method that the signs of the table compare with")
    arguments = parser.parse_args()
    if arguments.render:
        print(render(json.loads(arguments.out.read_text())["rows"], COLUMNS, DIGITS, arguments.rival))
        return
    model = modalities.language.load(arguments.model).to(arguments.device)
    study = Study(model, arguments.pairs)
    print({name: len(cases) for name, cases in study.families.items()}, flush=True)
    stored = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"rows": []}
    done = {(row["method"], row["references"]) for row in stored["rows"]}
    games = {name: study.open(name).subsets() for name in study.families}
    for name, reference, position, method in list_methods(model, arguments.steps):
        if (name, reference) in done or not name.startswith(arguments.only):
            continue
        began, cases, residuals = time.perf_counter(), [], []
        for family_name in study.families:
            family = study.open(family_name, position)
            if name == "KernelSHAP":
                length = family.x["embeddings"].shape[1]
                method = ig2.KernelSHAP(samples=24, groups=torch.arange(length)[:, None])
            references = choose_references(reference, family)
            result = method(family.model, family.x, family.target, references, against=family.against)
            phi = result.values["embeddings"].sum(dim=2)
            cases += measure(phi, family, *games[family_name], reference == "pair")
            if result.relative_residual is not None:
                residuals += result.relative_residual.tolist()
        stored["rows"].append(
            {
                "method": name,
                "references": reference,
                "residual": None if not residuals else float(torch.tensor(residuals).median()),
                "seconds": time.perf_counter() - began,
                "steps": LONG if name.endswith(f"{LONG} steps") else arguments.steps,
                "cases": [{key: round(value, 4) for key, value in case.items()} for case in cases],
            }
        )
        stored["settings"] = {"model": arguments.model, "pairs": len(cases), "torch": torch.__version__}
        arguments.out.write_text(json.dumps(stored, indent=None, separators=(",", ":")))
        print(render(stored["rows"], COLUMNS, DIGITS).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
