"""Comparison of methods on a batch of explicands: each method runs once and is scored by every metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import ig2
from ig2.attribution import Attribution
from ig2.errors import InputError, describe, import_extra
from ig2.methods.base import summary
from ig2.metrics.base import Metric
from ig2.model import as_model
from ig2.table import Column, Row, ScoreTable, spread

SECONDS, GRADIENTS = "seconds", "gradients"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The scores of methods × metrics. `print` and notebooks show means ± standard errors, and the cost of each method."""

    scores: ScoreTable
    """The scores as a table: `scores.gap(method, other, metric)` compares two methods by explicand."""
    attributions: dict[str, Attribution]
    """The attribution by each method."""

    @property
    def table(self) -> Any:
        """A pandas DataFrame with a row for each method and metric; without pandas, see `scores.rows`."""
        names = ("method", "metric", "mean", "se", "n", "better")
        rows = [[getattr(row, name) for name in names] for row in self.scores.rows]
        return import_extra("pandas", "table", "the table of a comparison").DataFrame(rows, columns=names)

    def figure(self) -> Any:
        """Draw a panel for each metric with a bar for each method, whiskers for standard errors, and the best in red."""
        from ig2.plots.canvas import FOR, QUIET, Canvas
        from ig2.plots.labels import clean_text, text_options

        metrics, methods = list(self.scores.metrics), list(self.scores.methods)
        figure = Canvas(1.6 + 1.9 * len(metrics), 0.9 + 0.32 * len(methods), layout="constrained")
        panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        for axes, metric in zip(panels, metrics, strict=True):
            rows, best = [self.scores.row(method, metric) for method in methods], self.scores.best(metric)
            colours = [FOR if method in best else "0.6" for method in methods]
            whiskers = {"xerr": [row.se for row in rows], "error_kw": {"ecolor": QUIET, "elinewidth": 0.8}}
            axes.barh(range(len(rows)), [row.mean for row in rows], height=0.7, color=colours, **whiskers)
            axes.set_title(clean_text(self.scores.heading(metric), 30), fontsize="medium", **text_options())
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_yticks(range(len(methods)), [clean_text(method, 40) for method in methods], **text_options())
        panels[0].invert_yaxis()
        return figure

    def __repr__(self) -> str:
        return repr(self.scores)

    def _repr_html_(self) -> str:
        return self.scores._repr_html_()


@dataclass(frozen=True)
class WithoutReferences:
    """A method that uses its own baseline, such as the zero of Integrated Gradients, instead of the references of others."""

    method: Callable[..., Any]

    def __call__(self, model: Any, x: Any, target: Any = None, references: Any = None, **options: Any) -> Any:
        return self.method(model, x, target, None, **options)


def compare(
    model: Any,
    x: Any,
    methods: Mapping[str, Callable[..., Any]] | Sequence[Callable[..., Any]],
    metrics: Mapping[str, Metric] | Sequence[Metric],
    *,
    truth: Any = None,
    seed: int = 0,
    **options: Any,
) -> Comparison:
    """Explain x by each method, and score each attribution by each metric.

    Args:
        model: the network, as for every method.
        x: the explicands.
        methods: methods by name, or a list, in which each is named by its class. Wrap a method that should keep its default
            baseline beside others with references in `WithoutReferences`.
        metrics: metrics by name, or a list, in which each is named by itself.
        truth: the ground truth, for metrics that compare with one.
        seed: the random seed.
        options: options of every method's call, such as `references`, `target` and `against`.

    Returns:
        The scores and the attributions. Scores that are not defined are counted, but excluded from the mean.

    Raises:
        InputError: if two methods or metrics share a name, or a call raises it.

    >>> net, x = torch.nn.Linear(3, 2).eval(), torch.eye(3)
    >>> comparison = compare(net, x, {"IG": ig2.IntegratedGradients(), "noise": ig2.Random()}, [ig2.metrics.Deletion()])
    >>> comparison.scores.row("IG", "seconds").n
    1
    """
    named, measures = _name_parts(methods), _name_parts(metrics)
    columns = {name: Column(metric.better) for name, metric in measures.items()} | {
        SECONDS: Column("lower", about="of the whole call", ranked=False),
        GRADIENTS: Column("lower", digits=0, about="taken for each explicand", ranked=False),
    }
    attributions, rows = {}, []
    model = as_model(model)
    for label, method in named.items():
        attribution = attributions[label] = method(model.exchange(), x, seed=seed, **options)  # timed with opening
        if not isinstance(attribution, Attribution) or attribution.cost is None:
            raise InputError(f"{label} returned {describe(attribution)}: expected what a method of ig2 returns, an Attribution")
        cost = attribution.cost
        gradients = (cost.gradients or 0) / max(1, len(attribution))
        numbers = {SECONDS: [cost.seconds], GRADIENTS: [gradients]}
        for name, metric in measures.items():
            numbers[name] = metric(model, attribution, truth=truth if metric.truth else None, seed=seed).values.tolist()
        for name, values in numbers.items():
            rows.append(Row(label, name, **spread(values), better=columns[name].better, paper=None, values=tuple(values)))
    settings = {"seed": seed, **{name: summary(option) for name, option in options.items()}}
    versions, parts = {"ig2": ig2.__version__, "torch": torch.__version__}, {name: summary(m) for name, m in named.items()}
    scores = ScoreTable(
        title="Methods compared",
        unit="explicand",
        data=describe(x),
        settings=settings,
        environment=versions,
        methods=parts,
        metrics=columns,
        rows=tuple(rows),
        shows="se",
    )
    return Comparison(scores, attributions)


def _name_parts(parts: Any) -> dict[str, Any]:
    """Return methods or metrics by name."""
    named = list(parts.items() if isinstance(parts, Mapping) else ((getattr(p, "name", type(p).__name__), p) for p in parts))
    if not named or any(not callable(part) or isinstance(part, type) for _, part in named):
        raise InputError(f"expected methods and metrics, each in a list or in a dict by name; got {describe(parts)}")
    names = [SECONDS, GRADIENTS, *(name for name, _ in named)]  # the cost has columns of its own
    duplicates = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if duplicates:
        raise InputError(f"the name {duplicates[0]!r} is a duplicate: give them in a dict, each by a name of its own")
    return dict(named)
