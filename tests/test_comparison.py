"""Methods side by side: the scores are those of the metrics, and the table says what they are."""

from typing import Any

import pytest
import torch

import ig2
from ig2 import InputError
from ig2.comparison import WithoutReferences
from ig2.metrics import GTAUC, Deletion, Insertion
from networks import data, refuses, relu_cnn, tanh_mlp

X, REFERENCES = data(6, 6), data(3, 6, seed=1)
METHODS = {"IG²": ig2.IG2(steps=5), "IG": WithoutReferences(ig2.IntegratedGradients(5)), "noise": ig2.Random()}


def compared(**options: Any) -> Any:
    metrics = [Deletion(0), Insertion(0), GTAUC()]
    truth = torch.arange(6) < 3
    return ig2.compare(tanh_mlp(), X, METHODS, metrics, references=REFERENCES, truth=truth.expand(6, 6), **options)


def test_scores_are_those_of_each_method_by_each_metric():
    comparison, net = compared(seed=4, against="next"), tanh_mlp()
    for label, own in (("IG²", REFERENCES), ("IG", None)):
        method = METHODS[label].method if label == "IG" else METHODS[label]
        attribution = method(net, X, references=own, against="next", seed=4)
        assert torch.equal(comparison.attributions[label].values, attribution.values)
        scores = Deletion(0)(net, attribution, seed=4)
        row = comparison.scores.row(label, scores.metric)
        assert row.values == tuple(scores.values.tolist()) and row.se == pytest.approx(scores.standard_error)
    assert torch.equal(comparison.attributions["noise"].values, ig2.Random()(net, X, seed=4).values)
    gap = comparison.scores.gap("IG²", "noise", "GT-AUC")
    assert gap.n == 6
    seconds = comparison.scores.row("IG²", "seconds")
    assert seconds.mean == comparison.attributions["IG²"].cost.seconds and seconds.n == 1


def test_a_comparison_is_shown():
    comparison = compared()
    table = comparison.table
    assert list(table.columns) == ["method", "metric", "mean", "se", "n", "better"] and len(table) == 3 * 5
    for text in ("IG²", "noise", "SIC AUC-DEL ↓", "SIC AUC-ADD ↑", "seconds", "standard error over 6 explicands"):
        assert text in repr(comparison) and text in comparison._repr_html_()
    figure = comparison.figure()
    assert [axes.get_title() for axes in figure.axes] == ["SIC AUC-DEL ↓", "SIC AUC-ADD ↑", "GT-AUC ↑", "seconds", "gradients"]
    widths = [bar.get_width() for bar in figure.axes[2].patches]
    assert widths == [comparison.scores.row(method, "GT-AUC").mean for method in METHODS]


def test_methods_and_metrics_need_names_of_their_own():
    net, metric = tanh_mlp(), [Deletion(0)]
    assert list(ig2.compare(net, X, [ig2.Random()], metric).scores.methods) == ["Random"]
    refuses(InputError, "duplicate", lambda: ig2.compare(net, X, [ig2.Random(), ig2.Random()], metric))
    refuses(InputError, "duplicate", lambda: ig2.compare(net, X, [ig2.Random()], {"seconds": Deletion(0)}))
    refuses(InputError, "expected what a method", lambda: ig2.compare(net, X, {"mine": lambda *_, **__: X}, metric))
    for methods in ([], ["IG2"], [ig2.IG2]):
        refuses(InputError, "expected methods and metrics", lambda methods=methods: ig2.compare(net, X, methods, metric))


def test_wrappers_are_methods_like_the_others():
    images, net = data(3, 2, 8, 8, low=0), relu_cnn()
    inner = ig2.Gradient()
    wrappers = [
        ig2.Smoothed(inner, 2.0), ig2.Pooled(inner, ig2.Grid(2, 2)), ig2.SmoothGrad(inner, 2), ig2.VarGrad(inner, 2),
        ig2.NoiseGrad(inner, 2),
    ]  # fmt: skip
    comparison = ig2.compare(net, images, wrappers, [Deletion(0)])
    assert list(comparison.attributions) == ["Smoothed", "Pooled", "SmoothGrad", "VarGrad", "NoiseGrad"]
    assert all(comparison.scores.row(label, Deletion.name).n == 3 for label in comparison.attributions)
