"""The time and the memory of each metric, beside Quantus, Captum and PAIR's saliency on the same work where they run."""

from __future__ import annotations

import contextlib
import ctypes
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import ig2
from ig2.compat.captum import CaptumMethod
from ig2.compat.quantus import explain_func
from ig2.metrics.axioms import Completeness, Dummy, ImplementationInvariance, Symmetry
from ig2.metrics.curves import Deletion, Insertion
from ig2.metrics.faithfulness import Faithfulness, Monotonicity
from ig2.metrics.gaussian import Gaussian
from ig2.metrics.infidelity import Infidelity, Noise
from ig2.metrics.information import AIC, SHARES, SIC
from ig2.metrics.localisation import GTAUC, GTSum, PointingGame
from ig2.metrics.sanity import ParameterRandomisation
from ig2.metrics.sensitivity import MaxSensitivity
from ig2.metrics.shapley import GTShapley
from ig2_bench.metrics.roar import ROAR
from performance import wafer
from performance.store import Row, ratio, side_by_side, table

Work = Callable[[], object]


@dataclass(frozen=True)
class Match:
    """The same work, done by a metric of ours and, where there is one, by a peer."""

    metric: str
    work: str
    ours: Work
    peer: str = "–"
    theirs: Work | None = None
    network: Work | None = None  # the passes of the network that both need, and nothing else


class Watched:
    """Work whose peak of memory is kept from its first run."""

    def __init__(self, work: Work) -> None:
        self.work, self.megabytes = work, float("nan")
        self.first = True

    def __call__(self) -> None:
        if self.first:
            self.first, self.megabytes = False, peak_megabytes(self.work)
        else:
            self.work()


# -- measuring ---------------------------------------------------------------------------------------------------------


def run(quick: bool = False) -> list[Row]:
    """Every metric, beside its peers."""
    with warnings.catch_warnings(), _restore_trapz():
        warnings.simplefilter("ignore")
        groups = (localisation, curves, information, perturbation, axioms, tables, many)
        rows = [_measure(match, rounds=1 if quick else 2) for group in groups for match in group(quick)]
    print(table(rows, f"metrics, {torch.get_num_threads()} threads; network: its own share of the time, the same for all"))
    return rows


def _measure(match: Match, rounds: int) -> Row:
    works = {"ours": match.ours, "theirs": match.theirs, "network": match.network}
    contestants = {name: Watched(work) for name, work in works.items() if work is not None}
    times = side_by_side(dict(contestants), rounds)
    seconds = {name: f"{min(found):.3g}" for name, found in times.items()}
    megabytes = {name: f"{watched.megabytes:.0f}" for name, watched in contestants.items()}
    return {
        "metric": match.metric,
        "work": match.work,
        "s": seconds["ours"],
        "MB": megabytes["ours"],
        "network s": seconds.get("network", "–"),
        "beside": match.peer,
        "its s": seconds.get("theirs", "–"),
        "its MB": megabytes.get("theirs", "–"),
        "times faster": ratio(times["theirs"], times["ours"]) if "theirs" in times else "–",
    }


def peak_megabytes(work: Work) -> float:
    """How much more memory the process held at its peak than before, as Linux counts it."""
    status, peak = Path("/proc/self/status"), Path("/proc/self/clear_refs")

    def kilobytes(field: str) -> int:
        return int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith(field)))

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what an earlier work left to be used again would not be counted
    try:
        peak.write_text("5")  # resets the peak
        before = kilobytes("VmRSS:")
    except (OSError, StopIteration):
        return float("nan")
    work()
    return (kilobytes("VmHWM:") - before) / 1024


@contextlib.contextmanager
def _restore_trapz() -> Iterator[None]:
    """Give NumPy 2.4 back `trapz`, which PAIR's curves and Quantus's areas end with."""
    numpy: Any = np
    if hasattr(numpy, "trapz"):
        yield
        return
    numpy.trapz = numpy.trapezoid
    try:
        yield
    finally:
        del numpy.trapz


def _quantus(name: str, **settings: Any) -> Any:
    import quantus

    return getattr(quantus, name)(disable_warnings=True, display_progressbar=False, **settings)


def _forward(net: nn.Module, x: Tensor, times: int) -> Work:
    """The network on the samples, some at a time, so many times."""

    @torch.no_grad()
    def work() -> None:
        for _ in range(times):
            for batch in x.split(16):
                net(batch)

    return work


def _backward(net: nn.Module, x: Tensor, times: int) -> Work:
    """The network's gradient by the samples, so many times."""
    points = x.clone().requires_grad_()

    def work() -> None:
        for _ in range(times):
            torch.autograd.grad(net(points)[:, 0].sum(), points)

    return work


# -- the work ----------------------------------------------------------------------------------------------------------


def localisation(quick: bool) -> list[Match]:
    """Heat maps and masks; nobody runs a network, though Quantus needs one."""
    count, size = (4, 64) if quick else (30, 224)
    generator = torch.Generator().manual_seed(0)
    heat = torch.rand(count, 1, size, size, generator=generator)
    mask = torch.zeros(count, 1, size, size, dtype=torch.bool)
    for row, (top, left) in enumerate(torch.randint(size // 2, (count, 2), generator=generator).tolist()):
        mask[row, :, top : top + size // 2, left : left + size // 2] = True
    net = nn.Sequential(nn.Flatten(), nn.Linear(size * size, 2))
    inputs = {
        "model": net,
        "x_batch": heat.numpy(),
        "y_batch": np.zeros(count, dtype=int),
        "a_batch": heat.numpy(),
        "s_batch": mask.numpy(),
        "device": "cpu",
    }
    work = f"{count} heat maps of {size}²"
    matches = []
    for ours, name in ((GTAUC(), "AUC"), (GTSum(), "RelevanceMassAccuracy"), (PointingGame(), "PointingGame")):
        theirs = _quantus(name, abs=False, normalise=False)
        matches.append(
            Match(
                ours.name,
                work,
                lambda ours=ours: ours(None, heat, truth=mask),  # type: ignore[misc]
                f"Quantus {name}",
                lambda theirs=theirs: theirs(**inputs),  # type: ignore[misc]
            )
        )
    return matches


def _wafers(count: int) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """The paper's wafer CNN, some maps, the classes explained and their gradients."""
    net, (maps, _) = wafer.network(), wafer.maps(-(-count // 9))
    found = ig2.Gradient()(net, maps[:count])
    assert isinstance(found.values, Tensor)
    return net, maps[:count], found.target, found.values


def curves(quick: bool) -> list[Match]:
    """Numbers are flipped to black one by one, as Quantus does; the pixels of ours are all channels of a place."""
    count, thresholds = (2, 6) if quick else (12, 48)  # Quantus needs steps that divide a channel
    net, x, target, values = _wafers(count)
    size = x[0].numel()
    flipping = _quantus(
        "PixelFlipping", features_in_step=size // thresholds, normalise=False, abs=False, return_auc_per_sample=True
    )
    inputs = {"model": net, "x_batch": x.numpy(), "y_batch": target.numpy(), "a_batch": values.numpy(), "device": "cpu"}
    work = f"{count} wafer maps, {thresholds} thresholds"
    model = ig2.wrap(net)
    return [
        Match(
            "Deletion",
            work + " of numbers",
            lambda: Deletion(thresholds=thresholds, features="element")(model, values, x, target),
            "Quantus PixelFlipping",
            lambda: flipping(**inputs),
            _forward(net, x, thresholds),
        ),
        Match(
            "Insertion",
            work + " of pixels",
            lambda: Insertion(thresholds=thresholds)(model, values, x, target),
            network=_forward(net, x, thresholds),
        ),
    ]


class Sharpness(nn.Module):
    """Class 1 is an image at least half as sharp as these, so that a blurred one is never taken for it."""

    def __init__(self, images: Tensor) -> None:
        super().__init__()
        self.least = float(self.sharpness(images).min()) / 2

    @staticmethod
    def sharpness(x: Tensor) -> Tensor:
        return (x[..., 2:-2, 2:-2] - nn.functional.avg_pool2d(x, 5, stride=1)).abs().mean(dim=(1, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        sharper = 5 * (self.sharpness(x) / self.least - 1)
        return torch.stack([-sharper, sharper], dim=1)


def information(quick: bool) -> list[Match]:
    """PAIR's curves, an image at a time, and ours, on noisy shapes in 8 bits."""
    from saliency.metrics import pic

    count, size = (1, 48) if quick else (1, 224)
    rng = np.random.default_rng(0)
    down, across = np.mgrid[:size, :size] / size
    shapes = np.sin(12 * down)[..., None] * np.cos(9 * across)[..., None] * rng.uniform(40, 90, (count, 1, 1, 3))
    images = np.clip(shapes + 128 + rng.normal(0, 12, (count, size, size, 3)), 0, 255).astype(np.uint8)
    heat = rng.random((count, size, size))
    random_pixels = rng.random((size, size)) < 0.01
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    values = torch.from_numpy(heat).float()[:, None].expand_as(x)
    net = Sharpness(x)

    def probability(batch: Any) -> Any:
        with torch.no_grad():
            return net(torch.from_numpy(batch).permute(0, 3, 1, 2).float() / 255).softmax(dim=1)[:, 1].numpy()

    def theirs() -> None:
        for image, map_ in zip(images, heat, strict=True):
            pic.compute_pic_metric(image, map_, random_pixels, probability, list(SHARES))

    model = ig2.wrap(net, bounds=(0, 1))
    work = f"{count} photo{'s' * (count != 1)} of {size}², {len(SHARES)} shares"
    return [
        Match("SIC", work, lambda: SIC()(model, values, x, 1), "PAIR pic", theirs),
        Match("AIC", work, lambda: AIC()(model, values, x, 1)),
        Match("SIC, png", work, lambda: SIC(compression="png")(model, values, x, 1)),
    ]


def perturbation(quick: bool) -> list[Match]:
    """Captum draws its own noise, of the same size; the method explained again is the same for all."""
    from captum.metrics import infidelity, sensitivity_max

    net, x, target, values = _wafers(2 if quick else 8)
    model, gradient, draws, radius = ig2.wrap(net), ig2.Gradient(), 5 if quick else 30, 0.02

    def noise(inputs: Tensor) -> tuple[Tensor, Tensor]:
        r = 0.2 * torch.randn_like(inputs)
        return r, inputs - r

    integrated = ig2.IntegratedGradients(10, rule=ig2.rules.left)
    whole = integrated(model, x, target)
    explain = CaptumMethod(gradient, net).attribute
    robust = _quantus("MaxSensitivity", nr_samples=draws, lower_bound=radius, abs=False, normalise=False)
    inputs = {"model": net, "x_batch": x.numpy(), "y_batch": target.numpy(), "device": "cpu"}
    explaining = {"explain_func": explain_func(gradient, reduce_axes=()), "explain_func_kwargs": {}}
    work = f"{len(x)} wafer maps × {draws} draws"
    ours = Infidelity(Noise(0.2), draws, fit=False)
    sensitivity = MaxSensitivity(gradient, radius=radius, draws=draws)
    return [
        Match(
            "infidelity",
            work,
            lambda: ours(model, values, x, target),
            "Captum",
            lambda: infidelity(net, noise, x, values, target=target, n_perturb_samples=draws),
            _forward(net, x, draws),
        ),
        Match(
            "max-sensitivity",
            work + ", gradient",
            lambda: sensitivity(model, values, x, target),
            "Captum",
            lambda: sensitivity_max(explain, x, perturb_radius=radius, n_perturb_samples=draws, target=target),
            _backward(net, x, draws),
        ),
        Match(
            "max-sensitivity",
            work + ", gradient",
            lambda: sensitivity(model, values, x, target),
            "Quantus",
            lambda: robust(**inputs, a_batch=values.numpy(), **explaining),
            _backward(net, x, draws),
        ),
        Match(
            "parameter randomisation",
            f"{len(x)} wafer maps, 5 layers, IG of 10 steps",
            lambda: ParameterRandomisation(integrated)(model, whole),
            "Quantus MPRT",
            lambda: _quantus("MPRT")(**inputs, explain_func=explain_func(integrated), explain_func_kwargs={}),
            _backward(net, x, 6 * 10),
        ),
    ]


def axioms(quick: bool) -> list[Match]:
    net, x, target, _ = _wafers(2 if quick else 16)
    model, method = ig2.wrap(net), ig2.IntegratedGradients(8)
    found = method(model, x, target)
    assert isinstance(found.values, Tensor)
    complete = _quantus("Completeness", abs=False, normalise=False)
    inputs = {"model": net, "x_batch": x.numpy(), "y_batch": target.numpy(), "a_batch": found.values.numpy(), "device": "cpu"}

    class Even(nn.Module):
        """Sees the mean of two pixels, so that they may change places."""

        def forward(self, x: Tensor) -> Tensor:
            left, *rest = x.flatten(1).split([1, 1, x[0].numel() - 2], dim=1)
            return net(torch.cat([(left + rest[0]) / 2] * 2 + rest[1:], dim=1).view_as(x))

    work = f"{len(x)} wafer maps"
    return [
        Match(
            "completeness",
            work,
            lambda: Completeness(baseline=0)(model, found.values, x, target),
            "Quantus Completeness",
            lambda: complete(**inputs),
            _forward(net, x, 2),
        ),
        Match("dummy", work, lambda: Dummy()(model, found)),
        Match("symmetry", work + ", a pair", lambda: Symmetry([(0, 1)])(Even().eval(), found)),
        Match("implementation invariance", work + ", IG", lambda: ImplementationInvariance(method, net)(model, found)),
    ]


def tables(quick: bool) -> list[Match]:
    """XAI-BENCH's metrics at its sizes; no peer of ours has them."""
    count, draws = (5, 20) if quick else (100, 100)
    generator, normal = torch.Generator().manual_seed(0), Gaussian.correlated(5, 0.5)
    x, training = normal.sample(count, generator).float(), normal.sample(1000, generator).float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(5, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 1)
        ).eval()
    model, gradient = ig2.wrap(net), ig2.Gradient()
    found, of_training = gradient(model, x), gradient(model, training)

    def least_squares(x: Tensor, y: Tensor, seed: int) -> Callable[[Tensor], Tensor]:
        weights = torch.linalg.lstsq(x, y[..., None]).solution
        return lambda rows: (rows @ weights)[..., 0]

    labels = training.sum(dim=1), x.sum(dim=1)
    work = f"{count} rows of 5"
    return [
        Match("faithfulness", f"{work}, {draws} draws", lambda: Faithfulness(normal, draws)(model, found)),
        Match("monotonicity", f"{work}, {draws} draws", lambda: Monotonicity(normal, draws)(model, found)),
        Match("GT-Shapley", f"{work}, {20 * draws} draws", lambda: GTShapley(normal, 20 * draws)(model, found)),
        Match("infidelity, β fitted", f"{work}, {10 * draws} draws", lambda: Infidelity(draws=10 * draws)(model, found)),
        Match(
            "ROAR",
            f"1000 rows and {work}, least squares",
            lambda: ROAR(least_squares, normal)((training, labels[0], of_training), (x, labels[1], found)),
        ),
    ]


def many(quick: bool) -> list[Match]:
    """The curves of a whole set of images in one call, with a network that takes hardly any of the time."""
    count, few, size, thresholds = (4, 2, 64, 10) if quick else (100, 20, 224, 50)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10)
        ).eval()
    x = torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(1))
    found = ig2.Gradient()(net, x)
    assert isinstance(found.values, Tensor)
    values, target = found.values, found.target
    flipping = _quantus("PixelFlipping", features_in_step=size * size // 16, normalise=False, return_auc_per_sample=True)
    inputs = {"x_batch": x[:few].numpy(), "y_batch": target[:few].numpy(), "a_batch": values[:few].numpy(), "device": "cpu"}
    return [
        Match(
            "Deletion",
            f"{few} images of {size}², 48 thresholds of numbers",
            lambda: Deletion(thresholds=48, features="element")(net, values[:few], x[:few], target[:few]),
            "Quantus PixelFlipping",
            lambda: flipping(model=net, **inputs),
            _forward(net, x[:few], 48),
        ),
        Match(
            "Insertion",
            f"{count} images of {size}², {thresholds} thresholds of pixels",
            lambda: Insertion(thresholds=thresholds)(net, values, x, target),
            network=_forward(net, x, thresholds),
        ),
    ]


if __name__ == "__main__":
    run()
