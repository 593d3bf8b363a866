"""Contents of reports to test with: small, with every kind of input, and with names that try to break out of the page."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ig2.report import Content, InputView, MethodView, ReferenceView
from ig2.views import Bars, Curve, Picture, Words

SCRIPT = "<script>alert(1)</script>"
IMAGE = "\"><img src=x onerror=alert('2')>"
CLOSING = "</script><script>alert(3)</script><!--<script>"
TEMPLATE = "{{ 7 * 7 }} ${alert(4)} {% raise %}\u2028\u2029'"
LONG = "W" * 200  # without a place to break it
HOSTILE = (SCRIPT, IMAGE, CLOSING, TEMPLATE, LONG)


def method(name, scores, references=(), *, residual=0.0, curves=True, settings=None, points=13):
    """A method's answer whose sum and residual belong together."""
    output, total = 7.5, float(scores.sum())
    rng = np.random.default_rng(len(name))
    steps = np.linspace(output, output - total, points)
    count = len(references) or 1
    return MethodView(
        name=name,
        scores=scores,
        numbers={"output": output, "baseline_output": output - total + residual, "residual": residual},
        settings=settings or {"method": name, "seed": 0, "parts": {"path": {"type": "GradPath", "steps": 12}}},
        output_curve=steps + rng.normal(size=(count, points)) if curves else None,
        distance_curve=np.exp(-steps / 9) + rng.random((count, points)) if curves else None,
        references=tuple(references),
    )


def picture(rng, size):
    return rng.integers(0, 256, (*size, 3), dtype=np.uint8)


def references(rng, shape, labels):
    def reference(label):
        shown = (Picture(picture(rng, (40, 40))), None) if len(shape) == 2 else (None, f"the text of {label}")
        return ReferenceView(label, float(rng.normal()), *shown, rng.normal(size=shape))

    return [reference(label) for label in labels]


def photo(name="photo.jpg", target="tiger cat", size=(140, 160), labels=("espresso", "zebra", "pizza")):
    """Larger than a reference's map may be, so that those are shrunk."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=size) ** 3 * 0.001, rng.normal(size=size) * 3
    shown = [method("IG²", first, references(rng, size, labels)), method("Integrated Gradients", second, residual=3.0)]
    return InputView(name, Picture(picture(rng, size)), target, 0.39, target, labels, tuple(shown))


def digit(name="digit.png", target="seven"):
    """Small enough for its picture to be kept exactly."""
    rng = np.random.default_rng(1)
    shown = method("IG²", rng.normal(size=(12, 10)))
    return InputView(name, Picture(picture(rng, (12, 10))), target, 0.99, target, ("one",), (shown,))


def sentence(name="Where did guinea pigs originate ?", target="location", words=None):
    words = tuple(words or name.split())
    rng = np.random.default_rng(2)
    plain = MethodView("Gradient", rng.normal(size=len(words)), {"output": 7.5}, {})
    shown = (method("IG²", rng.normal(size=len(words)), references(rng, (len(words),), ("entity", "human"))), plain)
    return InputView(name, Words(words), target, 0.93, target, ("entity", "human"), shown)


def row(name="row 17", target="over 50K", columns=("age", "hours", "capital gain"), cells=("39", "-40", "=1+1")):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=len(columns))
    return InputView(name, Bars(columns, cells), "up to 50K", None, target, (), (method("IG²", scores),))


def signal(name="beat.wav", target="racing", channels=("lead I", "lead II")):
    rng = np.random.default_rng(5)
    series = np.cumsum(rng.normal(size=(len(channels), 300)), axis=1)
    shown = method("IG²", rng.normal(size=series.shape), references(rng, (3,), ("calm", "<b>still</b>")))
    calm = [
        replace(each, view=Curve.bin(series[::-1], channels, 50.0), scores=rng.normal(size=series.shape))
        for each in shown.references
    ]
    shown = replace(shown, references=tuple(calm), gradcf=Curve.bin(-series, channels, 50.0))
    return InputView(name, Curve.bin(series, channels, 50.0), target, 0.8, target, ("calm",), (shown,))


def everything():
    return Content("A report", "a small network", (photo(), digit(), sentence(), row(), signal()), {"ig2": "1.0", "seed": "0"})


def crossed():
    """A prompt and what a language model says after it, with sums over spans."""
    views = []
    for number, token in enumerate(("' The'", "' capital'", "' is'", "' Paris'", "'<b>'", "' \\n'") * 3):
        view = sentence(target=token)
        scores = view.methods[0].scores * np.cos(number + np.arange(len(view.view.words)))
        spans = {"user": float(scores[:3].sum()), "system": float(scores[3:].sum())}
        shown = replace(view.methods[0], scores=scores, spans=spans, question="Why this, rather than that prompt?")
        shown = replace(shown, references=tuple(replace(each, spans=spans) for each in shown.references))
        words = {"sentence": f"{token}, because of 'pigs' (+1.23)", "measure": "log-probability"}
        views.append(replace(view, methods=(shown,), contrasted=(), prediction="", probability=None, **words))
    return Content("What it said", "a model", tuple(views), is_crossed=True)


def scaled():
    """Opens with its maps blurred."""
    return replace(everything(), scale=3.0)


def alike():
    """A method that keeps no attribution of each reference."""
    shown = sentence().methods[0]
    kept = tuple(replace(reference, scores=None) for reference in shown.references)
    return Content("A report", "a small network", (replace(sentence(), methods=(replace(shown, references=kept),)),))


def pathless():
    """Methods that compare the input with references, without a path: all of the first's map speaks against the class."""
    rng, size = np.random.default_rng(6), (12, 10)

    def compare(name, scores, labels):
        found = [replace(reference, scores=None) for reference in references(rng, size, labels)]
        return method(name, scores, found, curves=False, settings={"method": name})

    shown = compare("Strata", -rng.random(size), ("zebra", "pizza")), compare("DeepSHAP", rng.normal(size=size), ("zebra",))
    own = {"note": "drawn <i>twice</i>", "extra": {"fur": 3.0, "hue": "<b>red</b>"}}
    shown = replace(shown[0], **own, numbers={**shown[0].numbers, "strength": 0.0, "residual": 0.0}), shown[1]
    return Content("A report", "a small network", (replace(digit(target="tiger cat"), methods=shown),))


def rough():
    """Each kind of input, with a complete method: its signs not to be believed, but for the second photo's."""
    rng = np.random.default_rng(5)

    def trusted(view, trusts):
        first, *others = view.methods
        ends = [Picture(picture(rng, (8, 8))) if isinstance(view.view, Picture) else None for _ in first.references]
        pairs = zip(first.references, ends, trusts, strict=False)
        found = [
            replace(each, residual=0.5 * r, trust=trust, arrival=1 - 0.2 * r, reference_output=-2.0 + r, gradcf=end)
            for r, (each, end, trust) in enumerate(pairs)
        ]
        told = {**first.numbers, "trust": float(np.median(trusts)), "arrival": 0.8, "complete": 1.0}
        changes = {"numbers": told, "gradcf": ends[0] if ends else None, "references": tuple(found)}
        return replace(view, methods=(replace(first, **changes), *others))

    two = method("Straight", rng.normal(size=(140, 160)), references(rng, (140, 160), ("espresso", "zebra")), points=2)
    low, high = photo("low.jpg"), photo("high.jpg")
    low = replace(trusted(low, (0.0, 0.02, 0.9)), methods=(*trusted(low, (0.0, 0.02, 0.9)).methods, two))
    views = (low, trusted(high, (0.9, 0.8, 0.1)), trusted(sentence(), (0.1, 0.1)), trusted(row(), (0.1,)))
    return Content("A rough network", "a small network", views)


def many():
    """Thirty photos, some with names that are too long for a sidebar."""
    names = [f"{i:02d} {'a_very_long_name_' * (i % 3)}.jpg" for i in range(30)]
    return Content("Many", "a small network", tuple(photo(name, size=(14, 16)) for name in names))


def columns():
    """A table beside a sidebar: long names of columns, and numbers of many digits."""
    names = tuple(f"mean fractal dimension error {i}" for i in range(6))
    rows = [row(f"row {i}", columns=names, cells=("0.00619312",) * 6) for i in range(2)]
    return Content("Columns", "a small network", tuple(rows))


def hostile():
    """Everything from outside, in every place it can be shown in."""
    settings = {key: {"type": value, key: [value]} for key, value in zip(HOSTILE, reversed(HOSTILE), strict=True)}
    rng = np.random.default_rng(4)
    scores = rng.normal(size=(12, 10))
    shown = (method(TEMPLATE, scores, references(rng, (12, 10), HOSTILE), settings=settings), method(LONG, scores))
    seen = InputView(IMAGE, Picture(picture(rng, (12, 10))), SCRIPT, 0.5, CLOSING, HOSTILE, shown)
    said = sentence(CLOSING, IMAGE, words=(*HOSTILE, "=cmd|' /C calc'!A0"))
    listed = row(TEMPLATE, SCRIPT, columns=HOSTILE, cells=tuple(reversed(HOSTILE)))
    return Content(SCRIPT, IMAGE, (seen, said, listed), dict(zip(HOSTILE, HOSTILE, strict=True)))
