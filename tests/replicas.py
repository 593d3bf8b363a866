"""Slow replicas, straight from the formulas: float64, one sample and one gradient at a time, NumPy in between.

Nothing here is shared with the library, so that the two can only agree by both being right.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.ndimage
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[np.float64]
Measure = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Network:
    """A network seen by one class: f, the representation f̃, and their gradients at a single point."""

    score: Callable[[Tensor], Tensor]
    represent: Callable[[Tensor], Tensor]
    target: int

    def f(self, point: Array) -> float:
        with torch.no_grad():
            return float(self.score(torch.from_numpy(point)[None])[0, self.target])

    def gradient(self, point: Array) -> Array:
        x = torch.from_numpy(point.copy())[None].requires_grad_()
        (found,) = torch.autograd.grad(self.score(x)[0, self.target], x)
        return found[0].numpy()

    def distance(self, point: Array, reference: Array, measure: Measure) -> float:
        with torch.no_grad():
            here, there = (self.represent(torch.from_numpy(p)[None]).flatten() for p in (point, reference))
            return float(measure(here, there))

    def distance_gradient(self, point: Array, reference: Array, measure: Measure) -> Array:
        with torch.no_grad():
            there = self.represent(torch.from_numpy(reference)[None]).flatten()
        x = torch.from_numpy(point.copy())[None].requires_grad_()
        (found,) = torch.autograd.grad(measure(self.represent(x).flatten(), there), x, allow_unused=True)
        return np.zeros_like(point) if found is None else found[0].numpy()


def sequential(net: nn.Module, target: int, cut: int = -1) -> Network:
    """A Sequential, whose representation is what module number `cut` takes: by default, the last."""
    assert isinstance(net, nn.Sequential)
    return Network(net, net[:cut], target)


# -- distances ---------------------------------------------------------------------------------------------------------


def squared_norm(here: Tensor, there: Tensor) -> Tensor:
    return ((here - there) ** 2).sum()


def plain_norm(here: Tensor, there: Tensor) -> Tensor:
    """Not squared, as in the paper's algorithm 1."""
    return ((here - there) ** 2).sum().sqrt()


def one_minus_cosine(here: Tensor, there: Tensor) -> Tensor:
    return 1 - (here * there).sum() / ((here * here).sum().sqrt() * (there * there).sum().sqrt())


def sum_of_absolutes(here: Tensor, there: Tensor) -> Tensor:
    return (here - there).abs().sum()


# -- paths: each a list of points, from the explicand to the baseline --------------------------------------------------


def straight(x: Array, baseline: Array, steps: int) -> list[Array]:
    return [x + (baseline - x) * (t / steps) for t in range(steps + 1)]


def euclidean_step(gradient: Array) -> Array:
    norm = math.sqrt(float((gradient**2).sum()))
    return np.zeros_like(gradient) if norm == 0 else -gradient / norm


def sparse_step(percentile: float) -> Callable[[Array], Array]:
    def step(gradient: Array) -> Array:
        size = np.abs(gradient)
        chosen = size >= np.percentile(size, percentile)
        return np.where(chosen, -np.sign(gradient), 0.0) / chosen.sum()

    return step


def gradpath(
    network: Network,
    x: Array,
    reference: Array,
    steps: int,
    step_size: float,
    measure: Measure = squared_norm,
    step: Callable[[Array], Array] = euclidean_step,
    bounds: tuple[float, float] | None = None,
) -> list[Array]:
    points = [x]
    for _ in range(steps):
        here = points[-1]
        there = here + step_size * step(network.distance_gradient(here, reference, measure))
        points.append(there if bounds is None else np.clip(there, *bounds))
    return points


def guided(
    network: Network, x: Array, baseline: Array, steps: int, fraction: float, max_dist: float
) -> tuple[list[Array], Array]:
    """The path, and the attribution as published: each move times the gradient where the step began."""
    shape = x.shape
    x, baseline = x.ravel(), baseline.ravel()
    way = x - baseline
    total = np.abs(way).sum()
    point, attribution = baseline.copy(), np.zeros_like(x)
    points = [point.reshape(shape).copy()]
    for s in range(steps):
        gradient = network.gradient(point.reshape(shape)).ravel()
        alpha = (s + 1) / steps
        behind, ahead = max(alpha - max_dist, 0.0), min(alpha + max_dist, 1.0)
        smallest, largest = baseline + behind * way, baseline + ahead * way
        goal = total * (1 - alpha)
        while True:
            old = point.copy()
            for i in range(len(point)):  # a feature that does not differ from its baseline has nowhere to go
                if way[i] != 0 and (point[i] - baseline[i]) / way[i] < behind:
                    point[i] = smallest[i]
            current = np.abs(x - point).sum()
            unfinished = (way != 0) & ~np.isclose(point, largest, rtol=0, atol=1e-14)
            done = math.isclose(current, goal, rel_tol=1e-11, abs_tol=1e-11 * total) or not unfinished.any()
            if not done:
                size = np.where(unfinished, np.abs(gradient), np.inf)
                chosen = unfinished & (size <= np.quantile(size, fraction, method="lower"))
                gamma = max((current - goal) / np.abs(point - largest)[chosen].sum(), 0.0)
                done = gamma <= 1
                point[chosen] += min(gamma, 1.0) * (largest - point)[chosen]
            attribution += (point - old) * gradient
            if done:
                break
        points.append(point.reshape(shape).copy())
    return points[::-1], attribution.reshape(shape)


def blur(x: Array, steps: int, sigma: float, mode: str) -> list[Array]:
    points = [x]
    for t in range(1, steps + 1):
        points.append(np.stack([scipy.ndimage.gaussian_filter(plane, sigma * t / steps, mode=mode) for plane in x]))
    return points


# -- rules -------------------------------------------------------------------------------------------------------------

Rule = Callable[[Network, Sequence[Array]], Array]


def quadrature(nodes: Sequence[float], weights: Sequence[float]) -> Rule:
    """`nodes` from 0, the end nearer the explicand, to 1."""

    def attribute(network: Network, points: Sequence[Array]) -> Array:
        total = np.zeros_like(points[0])
        for here, there in itertools.pairwise(points):
            for node, weight in zip(nodes, weights, strict=True):
                total += weight * network.gradient(here + node * (there - here)) * (here - there)
        return total

    return attribute


left = quadrature([0.0], [1.0])
right = quadrature([1.0], [1.0])
midpoint = quadrature([0.5], [1.0])
trapezoid = quadrature([0.0, 1.0], [0.5, 0.5])


def gauss(n: int) -> Rule:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return quadrature(list((nodes + 1) / 2), list(weights / 2))


# The formulas below say nothing where they divide by next to nothing or by a number of the wrong sign. There the replicas
# answer NaN, and what the library does instead is tested on its own.


def sharing(portions: Callable[[Array, Array, float], Array]) -> Rule:
    """Δf handed out in proportion to `portions` of (g, c, Δf)."""

    def attribute(network: Network, points: Sequence[Array]) -> Array:
        total = np.zeros_like(points[0])
        for here, there in itertools.pairwise(points):
            gradient = network.gradient(here)
            change = network.f(here) - network.f(there)
            portion = portions(gradient, gradient * (here - there), change)
            defined = abs(portion.sum()) > 0.01 * np.abs(portion).sum()
            total += change * portion / portion.sum() if defined else np.nan
        return total

    return attribute


direct = sharing(lambda g, c, change: g**2)
shared = sharing(lambda g, c, change: np.maximum(c, 0))
aligned = sharing(lambda g, c, change: np.maximum(np.copysign(1.0, change) * c, 0))


def _tempered(g: Array, c: Array, change: float) -> Array:
    tau = min(max(change / c.sum(), 0.0), 1.0)
    return np.maximum(c, 0) - tau * np.maximum(-c, 0)


tempered = sharing(_tempered)


def blended(network: Network, points: Sequence[Array]) -> Array:
    changes, predicted = [], []
    for here, there in itertools.pairwise(points):
        changes.append(network.f(here) - network.f(there))
        predicted.append((network.gradient(here) * (here - there)).sum())
    missed = sum((change - guess) ** 2 for change, guess in zip(changes, predicted, strict=True))
    trust = max(0.0, 1 - missed / sum(change**2 for change in changes))
    total = np.zeros_like(points[0])
    for here, there, change, guess in zip(points, points[1:], changes, predicted, strict=False):
        product = network.gradient(here) * (here - there)
        agreeing = np.maximum(product, 0)
        defined = agreeing.sum() > 0.01 * np.abs(product).sum()
        total += trust * product + (change - trust * guess) * agreeing / agreeing.sum() if defined else np.nan
    return total


def scaled(rule: Rule) -> Rule:
    def attribute(network: Network, points: Sequence[Array]) -> Array:
        found = rule(network, points)
        factor = (network.f(points[0]) - network.f(points[-1])) / found.sum()
        defined = factor > 0 and abs(found.sum()) > 0.001 * np.abs(found).sum()
        return found * factor if defined else np.full_like(found, np.nan)

    return attribute


def secant(net: nn.Module, target: int, points: Sequence[Array]) -> Array:
    """Multipliers between the ends of each segment, layer by layer and number by number, times its step."""
    return np.asarray(sum(_multipliers(net, target, near, far) * (near - far) for near, far in itertools.pairwise(points)))


def _multipliers(net: nn.Module, target: int, near: Array, far: Array) -> Array:
    assert isinstance(net, nn.Sequential)
    activations = [(near, far)]
    for layer in net:
        activations.append(tuple(_run_layer(layer, z) for z in activations[-1]))  # type: ignore[arg-type]
    multiplier = np.zeros_like(activations[-1][0])
    multiplier[target] = 1
    for layer, ends in zip(reversed(net), reversed(activations[:-1]), strict=True):
        multiplier = _run_back(layer, multiplier, *ends)
    return multiplier


FUNCTIONS: dict[type, tuple[Callable[[float], float], Callable[[float], float]]] = {
    nn.ReLU: (lambda z: max(z, 0.0), lambda z: float(z > 0)),
    nn.Tanh: (math.tanh, lambda z: 1 - math.tanh(z) ** 2),
    nn.Sigmoid: (lambda z: 1 / (1 + math.exp(-z)), lambda z: math.exp(-z) / (1 + math.exp(-z)) ** 2),
}


def _taps(layer: nn.Conv2d, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], float]]:
    """Each place of a convolution's output, a place of its input of this shape that it sees, and the weight between."""
    weight = layer.weight.detach().numpy()
    (channels, height, width), side = shape, weight.shape[2]
    for place in itertools.product(range(len(weight)), range(height - side + 1), range(width - side + 1)):
        for c, i, j in itertools.product(range(channels), range(side), range(side)):
            yield place, (c, place[1] + i, place[2] + j), weight[place[0], c, i, j]


def _run_layer(layer: nn.Module, z: Array) -> Array:
    if isinstance(layer, nn.Linear):
        return layer.weight.detach().numpy() @ z + layer.bias.detach().numpy()
    if isinstance(layer, nn.Flatten):
        return z.ravel()
    if isinstance(layer, nn.Conv2d):
        assert layer.bias is not None
        side = layer.kernel_size[0]
        y = np.zeros((layer.out_channels, z.shape[1] - side + 1, z.shape[2] - side + 1))
        for place, seen, weight in _taps(layer, z.shape):
            y[place] += weight * z[seen]
        return y + layer.bias.detach().numpy()[:, None, None]
    return np.vectorize(FUNCTIONS[type(layer)][0])(z)  # type: ignore[no-any-return]


def _run_back(layer: nn.Module, multiplier: Array, near: Array, far: Array) -> Array:
    """From the multipliers of a layer's output to those of its input."""
    if isinstance(layer, nn.Linear):
        return layer.weight.detach().numpy().T @ multiplier
    if isinstance(layer, nn.Flatten):
        return multiplier.reshape(near.shape)
    back = np.zeros_like(near)
    if isinstance(layer, nn.Conv2d):
        for place, seen, weight in _taps(layer, near.shape):
            back[seen] += weight * multiplier[place]
        return back
    function, derivative = FUNCTIONS[type(layer)]
    for place in np.ndindex(near.shape):
        a, b = near[place], far[place]
        slope = derivative(a) if a == b else (function(a) - function(b)) / (a - b)
        back[place] = slope * multiplier[place]
    return back


# -- the authors' algorithm --------------------------------------------------------------------------------------------


def authors_ig2(
    net: nn.Module,
    x: Array,
    references: Sequence[Array],
    target: int,
    steps: int,
    step_size: float,
    layer: nn.Module | None = None,
) -> tuple[Array, Array]:
    """IG² in the shape of the published code: the whole path is drawn first and kept, then gradients are summed on it.

    All references of one explicand go through the network in one batch. Each step takes two forward passes of the whole
    network and two backward passes, the one of the distance to the weights as well; steps and sums are NumPy's. Only the
    clipping to bounds is left out. Also the plain side of the speed benchmark. The representation is the input of `layer`, by
    default a Sequential's last. Returns the attribution and GradCF's, averaged.
    """
    weight = next(net.parameters())
    last = net[-1] if layer is None and isinstance(net, nn.Sequential) else layer
    assert last is not None
    representations: list[Tensor] = []
    hook = last.register_forward_hook(lambda _, inputs, __: representations.append(inputs[0]))

    def forward(points: Array) -> tuple[Tensor, Tensor, Tensor]:
        leaf = torch.as_tensor(points, dtype=weight.dtype, device=weight.device).requires_grad_()
        scores = net(leaf)
        return leaf, scores, representations.pop()

    starts = np.repeat(x[None], len(references), axis=0)
    aim = forward(np.stack(references))[2].detach()
    path, delta = [starts], np.zeros_like(starts)
    for _ in range(steps):
        leaf, _, representation = forward(starts + delta)
        nn.functional.mse_loss(representation, aim).backward()
        assert leaf.grad is not None
        gradient = leaf.grad.cpu().numpy()
        length = np.sqrt((gradient**2).reshape(len(starts), -1).sum(axis=1)).reshape(-1, *[1] * x.ndim)
        delta = delta - step_size * gradient / length
        path.append(starts + delta)
    attribution = np.zeros_like(starts)
    for near, far in itertools.pairwise(path):
        leaf, scores, _ = forward(near)
        score = scores[:, target]
        (slope,) = torch.autograd.grad(score, leaf, torch.ones_like(score))
        attribution += (near - far) * slope.cpu().numpy()
    hook.remove()
    net.zero_grad(set_to_none=True)
    return attribution.mean(axis=0), (starts - path[-1]).mean(axis=0)


def resize(grid: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear interpolation between the centres of the cells, place by place; beyond the outer centres it is constant."""
    result = np.zeros((height, width))
    for i in range(height):
        for j in range(width):
            y, x = (
                min(max((k + 0.5) * n / size - 0.5, 0), n - 1)
                for k, n, size in ((i, grid.shape[0], height), (j, grid.shape[1], width))
            )
            top, left = int(y), int(x)
            bottom, right = min(top + 1, grid.shape[0] - 1), min(left + 1, grid.shape[1] - 1)
            down, across = y - top, x - left
            result[i, j] = (1 - down) * ((1 - across) * grid[top, left] + across * grid[top, right]) + down * (
                (1 - across) * grid[bottom, left] + across * grid[bottom, right]
            )
    return result
