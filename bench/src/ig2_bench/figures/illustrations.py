"""The two illustrations in the plane: the toy, whose numbers are exact, and the two Gaussians."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure as Drawing
from torch import Tensor, nn

import ig2
from ig2._utils.training import local_seed, minimise
from ig2.plots.canvas import LINE_COLOURS, QUIET, Canvas, remove_frame
from ig2.plots.labels import format_number
from ig2_bench.figure import Array, Figure, Options, Stored
from ig2_bench.figures.panels import MARK, caption, picture
from ig2_bench.figures.sources import load_digits

STRAIGHT, GUIDED, GRADPATH = LINE_COLOURS[1], LINE_COLOURS[2], LINE_COLOURS[0]
BEHIND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}


# -- the toy -----------------------------------------------------------------------------------------------------------


def toy(options: Options) -> Stored:
    """y = max(x₁, x₂ − 1) at (3, 3) with the reference (0, 0)."""
    model = ig2.wrap(_higher, representation="output")
    x, reference = torch.tensor([[3.0, 3.0]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)

    def walk(rule: ig2.rules.Rule) -> ig2.Attribution:
        return ig2.IG2(steps=200, step_size=1 / 32, rule=rule)(model, x, references=reference, paths=True)

    published, complete = walk(ig2.rules.left), walk(ig2.rules.trapezoid)
    values = {
        "Gradient": ig2.Gradient()(model, x),
        "Integrated Gradients": ig2.IntegratedGradients()(model, x),
        "IG², rule left": published,
        "IG², rule trapezoid": complete,
    }
    assert isinstance(published.paths, Tensor)
    return Stored(
        {
            "values": np.array([_plain(attribution.values)[0] for attribution in values.values()]),
            "path": _plain(published.paths)[0, 0],
        },
        {"methods": list(values)},
        "no data: the function is given",
    )


def _higher(x: Tensor) -> Tensor:
    # where both are equal this has the gradient of one of them, and the path keeps to the axes
    return torch.stack([x[:, 0], x[:, 1] - 1]).max(dim=0).values


def _plain(tensor: Any) -> Array:
    array: Array = tensor.detach().cpu().double().numpy()
    return array


def draw_toy(stored: Stored) -> Drawing:
    path, values = stored.arrays["path"], stored.arrays["values"]
    figure = Canvas(7.2, 3.3, layout="constrained")
    plane, bars = figure.subplots(1, 2, width_ratios=[1, 1.15])
    at = np.linspace(-0.3, 3.5, 200)
    height = np.maximum(at[None], at[:, None] - 1)
    surface = plane.contourf(at, at, height, levels=np.arange(-0.5, 4, 0.5), cmap="Greys", alpha=0.45)
    bar = figure.colorbar(surface, ax=plane, fraction=0.05, pad=0.02, ticks=[0, 1, 2, 3])
    bar.set_label("y", fontsize="small", rotation=0)
    bar.ax.tick_params(labelsize="x-small", length=2)
    bar.outline.set_linewidth(0.5)
    plane.plot([3, 0], [3, 0], color=STRAIGHT, linewidth=1.6, linestyle="--", label="straight line")
    plane.plot(path[:, 0], path[:, 1], color=GRADPATH, linewidth=2, label="GradPath")
    marks: list[tuple[str, Any, tuple[int, int], str]] = [
        ("explicand (3, 3)", (3, 3), (2, 7), "right"),
        ("reference (0, 0)", (0, 0), (8, -3), "left"),
        ("GradCF (0, 1)", path[-1], (0, -12), "left"),
    ]
    for name, point, shift, side in marks:
        plane.plot(*point, "o", color="black", markersize=4, zorder=3)
        plane.annotate(name, point, shift, textcoords="offset points", fontsize="x-small", ha=side, zorder=4, bbox=BEHIND)
    plane.set(xlim=(-0.3, 3.5), ylim=(-0.3, 3.5), aspect="equal")
    plane.set_xlabel("$x_1$")
    plane.set_ylabel("$x_2$")
    plane.legend(fontsize="x-small", loc="lower right", frameon=True, framealpha=0.9, edgecolor="none")
    plane.set_title("(a) y = max($x_1$, $x_2$ − 1), and two paths", fontsize="small")

    places = np.arange(len(values))
    for feature, (colour, beside) in enumerate(((LINE_COLOURS[0], -0.19), (LINE_COLOURS[4], 0.19))):
        drawn = bars.barh(places + beside, values[:, feature], 0.36, color=colour, label=f"$x_{feature + 1}$")
        bars.bar_label(
            drawn, [format_number(value) for value in values[:, feature]], padding=3, fontsize="x-small", color=QUIET
        )
    bars.set_yticks(places, stored.texts["methods"], fontsize="small")
    bars.invert_yaxis()
    bars.set_xlabel("attribution", fontsize="small")
    bars.margins(x=0.12)
    bars.spines[["top", "right"]].set_visible(False)
    bars.legend(fontsize="small", frameon=False, loc="lower right")
    bars.set_title("(b) attributions of the two features", fontsize="small")
    caption(
        figure,
        "the output falls from 3 to 0 on both paths. On the straight line only x₁ ever matters, on GradPath both do",
        "IG² by the published rule sums to 5, by the trapezoid rule to the 3 that there is to explain",
        stored.source,
    )
    return figure


# -- two Gaussians -----------------------------------------------------------------------------------------------------


def gaussians(options: Options) -> Stored:
    """Three counterfactuals and three paths between two classes in the plane; and the same counterfactuals of a digit."""
    net, points, labels = _train_planar_network(options)
    model = ig2.wrap(net)
    x, sampled = torch.tensor([[-2.2, -1.7]]), torch.tensor([[2.4, 1.5]])
    steps = 60
    grad = ig2.IG2(steps, 0.12, schedule=ig2.paths.Decaying())(model, x, references=sampled, paths=True)
    straight = ig2.PathMethod(ig2.paths.Straight(steps))(model, x, references=sampled, paths=True)
    guided = ig2.GuidedIG(steps, max_dist=0.3)(model, x, references=sampled, paths=True)
    attack = _attack(model, x, 0, 0.05, None)
    at = torch.linspace(-4.5, 4.5, 91)
    plane = torch.stack(torch.meshgrid(at, at, indexing="xy"), dim=-1).reshape(-1, 2)
    lines = torch.cat([_first(attribution.paths) for attribution in (straight, guided, grad)])

    digits = load_digits(options)
    five, six = digits.first("5"), digits.classes.index("6")
    image = digits.x[five : five + 1]
    reference = digits.pool[digits.others(5, 1, options.seed, only=six)]
    walk = ig2.GradCFE(10 if options.quick else 100, 0.15)
    attribution = walk(digits.model, image, references=reference, progress=options.watch("gaussians: GradCF of a digit"))
    assert isinstance(attribution.gradcf, Tensor)
    forms = torch.cat([image, reference, _attack(digits.model, image, 5, 0.1, (0, 1)), attribution.gradcf[:, 0]])
    likely = ig2.scores(digits.model, forms).softmax(dim=1).cpu()
    return Stored(
        {
            "points": points.numpy(),
            "labels": labels.numpy(),
            "surface": _likely(net, plane).reshape(len(at), len(at)),
            "at": at.numpy(),
            "lines": lines.numpy(),
            "curves": _likely(net, lines.reshape(-1, 2)).reshape(3, -1),
            "attack": attack.numpy()[0],
            "digits": forms.cpu().numpy()[:, 0],
        },
        {"said": [f"{int(row.argmax())} ({float(row.max()):.2f})" for row in likely]},
        f"(a) 400 points drawn with seed {options.seed}, a network of 2-16-16-2; (c) {digits.source}",
    )


def _first(paths: Any) -> Tensor:
    """The path of the only explicand to its only reference, (1, k + 1, ...)."""
    assert isinstance(paths, Tensor)
    return paths[:, 0].detach().cpu()


def _likely(net: nn.Module, points: Tensor) -> Array:
    with torch.no_grad():
        likely: Array = net(points).softmax(dim=1)[:, 0].numpy()
    return likely


def _train_planar_network(options: Options) -> tuple[nn.Module, Tensor, Tensor]:
    """Two classes of points in the plane, and a network that distinguishes them."""
    generator = torch.Generator().manual_seed(options.seed)
    spread = torch.tensor([[[1.5, 0.1], [0.0, 0.45]], [[1.5, -0.1], [0.0, 0.45]]])
    middle = torch.tensor([[-0.4, -1.5], [0.4, 1.5]])
    draws = torch.randn(2, 200, 2, generator=generator)
    points = (draws @ spread + middle[:, None]).reshape(-1, 2)
    labels = torch.arange(2).repeat_interleave(200)
    with local_seed(options.seed), torch.inference_mode(False):
        net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
    minimise(
        lambda *_: nn.functional.cross_entropy(net(points), labels),
        lambda _: [torch.arange(len(points))],
        torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=0.01),
        epochs=80,
    )
    return net.eval().requires_grad_(False), points, labels


def _attack(model: ig2.Model, x: Tensor, label: int, step: float, bounds: tuple[float, float] | None) -> Tensor:
    """The explicand after small steps down the gradient of its own class, until the network predicts another."""
    point = x
    for _ in range(200):
        if int(ig2.scores(model, point).argmax()) != label:
            break
        slope = ig2.Gradient()(model, point, label).values
        assert isinstance(slope, Tensor)
        point = point - step * slope / slope.norm().clamp(min=1e-12)
        point = point if bounds is None else point.clamp(*bounds)
    return point.detach().cpu()


def draw_gaussians(stored: Stored) -> Drawing:
    arrays = stored.arrays
    figure = Canvas(8.6, 4.6, layout="constrained")
    halves: Any = figure.subfigures(1, 2, width_ratios=[1.25, 1])
    plane = halves[0].subplots()
    at, surface = arrays["at"], arrays["surface"]
    plane.contourf(at, at, surface, levels=np.linspace(0, 1, 11), cmap="Greys", alpha=0.35)
    plane.contour(at, at, surface, levels=[0.5], colors=QUIET, linewidths=0.8, linestyles=":")
    for label, (mark, colour) in enumerate((("o", "0.45"), ("^", "0.7"))):
        points = arrays["points"][arrays["labels"] == label]
        plane.plot(points[:, 0], points[:, 1], mark, color=colour, markersize=2.2, alpha=0.7)
    straight, guided, grad = arrays["lines"]
    flat = _find_saturated(arrays["curves"][0])
    plane.plot(*straight[flat].T, color=MARK, linewidth=6, alpha=0.4, solid_capstyle="butt", label="saturated")
    for line, colour, name in ((straight, STRAIGHT, "straight"), (guided, GUIDED, "guided"), (grad, GRADPATH, "GradPath")):
        plane.plot(line[:, 0], line[:, 1], color=colour, linewidth=1.8, label=name)
    marks: list[tuple[str, Array, tuple[int, int], str]] = [
        ("explicand", straight[0], (-6, -10), "right"),
        ("CF1: a sample", straight[-1], (6, 6), "left"),
        ("CF2: an attack", arrays["attack"], (-7, 3), "right"),
        ("GradCF", grad[-1], (-6, 6), "right"),
    ]
    for name, point, shift, side in marks:
        plane.plot(*point, "o", color="black", markersize=4.5, zorder=4)
        plane.annotate(name, point, shift, textcoords="offset points", fontsize="x-small", ha=side, zorder=5, bbox=BEHIND)
    plane.set(xlim=(-4.5, 4.5), ylim=(-4.5, 4.5), aspect="equal")
    plane.tick_params(labelsize="x-small")
    plane.legend(fontsize="x-small", loc="upper left", framealpha=0.9, edgecolor="none")
    plane.set_title("(a) two classes, three counterfactuals, three paths", fontsize="small")

    upper, lower = halves[1].subfigures(2, 1, height_ratios=[1.5, 1])
    curve = upper.subplots()
    for values, colour, name in zip(
        arrays["curves"], (STRAIGHT, GUIDED, GRADPATH), ("straight", "guided", "GradPath"), strict=True
    ):
        curve.plot(np.linspace(1, 0, len(values)), values, color=colour, linewidth=1.6, label=name)
    curve.set(xlim=(0, 1), ylim=(-0.02, 1.05))
    curve.set_xticks([0, 0.5, 1], ["0\nbaseline", "0.5", "1\nexplicand"], fontsize="x-small")
    curve.tick_params(axis="y", labelsize="x-small")
    curve.set_ylabel("softmax of its class", fontsize="x-small")
    curve.set_title("(b) the output along the paths, by α", fontsize="small")
    curve.spines[["top", "right"]].set_visible(False)
    axes = lower.subplots(1, 4)
    names = ("explicand", "CF1:\na sample", "CF2:\nan attack", "GradCF")
    for each, image, name, said in zip(axes, arrays["digits"], names, stored.texts["said"], strict=True):
        picture(each, image)
        remove_frame(each)
        each.set_title(name, fontsize="x-small")
        each.set_xlabel(said, fontsize="x-small", color=QUIET)
    lower.suptitle("(c) a digit: the predicted class, with its softmax", fontsize="small")
    caption(
        figure,
        "in (a) the grey is the softmax of the explicand's class, the dotted line its border; "
        "where the straight path is marked, the softmax has hardly changed",
        stored.source,
    )
    return figure


def _find_saturated(curve: Array) -> Array:
    """Where a curve from the explicand is hardly lower than it began."""
    flat: Array = np.cumprod(curve > curve[0] - 0.05).astype(bool)
    return flat


TOY = Figure("max(x₁, x₂ − 1): GradPath and three methods, exactly", toy, draw_toy)
GAUSSIANS = Figure(
    "three counterfactuals and three paths between two Gaussians, and of a digit", gaussians, draw_gaussians, ("mnist",)
)
