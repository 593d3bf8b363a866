"""Every method beside the peers that have it: the same work, each peer in the form in which it is fastest."""

from __future__ import annotations

import contextlib
import copy
import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import ig2
from ig2.methods import Grid, Method
from ig2.methods.xrai import SIDE, rank_pixels
from performance import wafer
from performance.metrics import Watched
from performance.store import Row, ratio, seconds, side_by_side, table

Values = Callable[[], Any]  # makes attributions (B, ...)


@dataclass(frozen=True)
class Match:
    """The same work, done by a method of ours and by a peer."""

    method: str
    work: str
    ours: Values
    peer: str
    theirs: Sequence[Values]  # ways to do it, of which the fastest counts
    word: str = ""  # on how the two differ
    truth: Values | None = None  # what both approach, where they sum or draw differently; of the first explicands
    answers: tuple[Values, Values] | None = None  # to compare in place of those timed


# -- measuring ---------------------------------------------------------------------------------------------------------


def run(quick: bool = False) -> list[Row]:
    """Every method, beside its peers."""
    with warnings.catch_warnings(), _restore_quantile():
        warnings.simplefilter("ignore")
        rows = []
        for group in (gradients, straight, bent, shapley, deep, regions):
            for match in group(quick):
                rows.append(_measure(match, quick))
                print(f"{match.method}, {match.work}, beside {match.peer}: {rows[-1]['times faster']}", flush=True)
    print(table(rows, f"methods, {torch.get_num_threads()} threads; differences as shares of the largest value"))
    return rows


def _measure(match: Match, quick: bool) -> Row:
    found: dict[str, Tensor] = {}

    def keeping(name: str, work: Values) -> None:
        found[name] = torch.as_tensor(work()).double()

    works = {"ours": match.ours, "theirs": match.theirs[0] if quick else _find_fastest(match.theirs)}
    contestants = {name: Watched(partial(keeping, name, work)) for name, work in works.items()}
    times = side_by_side(dict(contestants), rounds=1 if quick else 3)
    errors = "–"
    if match.truth is not None and not quick:
        truth = torch.as_tensor(match.truth()).double()
        errors = f"{_differ(found['ours'], truth)}, its {_differ(found['theirs'], truth)}"
    one, other = (torch.as_tensor(work()) for work in match.answers) if match.answers else (found["ours"], found["theirs"])
    return {
        "method": match.method,
        "work": match.work,
        "s": f"{statistics.median(times['ours']):.3g}",
        "MB": f"{contestants['ours'].megabytes:.0f}",
        "beside": match.peer,
        "its s": f"{statistics.median(times['theirs']):.3g}",
        "its MB": f"{contestants['theirs'].megabytes:.0f}",
        "times faster": ratio(times["theirs"], times["ours"]),
        "difference": _differ(one, other),
        "error": errors,
        "": match.word,
    }


def _find_fastest(works: Sequence[Values]) -> Values:
    works[0]()  # the first call of all is slow
    return works[0] if len(works) == 1 else min(works, key=seconds)


def _differ(one: Tensor, other: Tensor) -> str:
    """The largest difference, as a share of the explicand's largest value, over the explicands that both have."""
    count = min(len(one), len(other))
    one, other = one[:count].flatten(1).double(), other[:count].flatten(1).double()
    return f"{float(((one - other).abs().amax(dim=1) / other.abs().amax(dim=1)).max()):.1g}"


def _name(peer: str, package: str | None = None) -> str:
    return f"{peer} {version(package or peer.lower())}"


@contextlib.contextmanager
def _restore_quantile() -> Iterator[None]:
    """Give NumPy 2.4's `quantile` back the argument that PAIR's Guided IG passes."""
    numpy: Any = np
    real = numpy.quantile

    def quantile(a: Any, q: Any, interpolation: str = "linear", **options: Any) -> Any:
        return real(a, q, **{"method": interpolation, **options})

    numpy.quantile = quantile
    try:
        yield
    finally:
        numpy.quantile = real


# -- the work ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """A network, explicands, the classes explained, and references."""

    net: nn.Sequential
    x: Tensor
    target: Tensor
    references: Tensor

    @classmethod
    def wafers(cls, explicands: int, references: int = 1) -> Workload:
        net = nn.Sequential(*wafer.network().children()).requires_grad_(False)
        x = wafer.maps(-(-explicands // 9), seed=2)[0][:explicands]
        return cls(net, x, net(x).argmax(dim=1), wafer.maps(2, seed=3)[0][-references:])

    @classmethod
    def rows(cls, explicands: int, features: int, references: int) -> Workload:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
            x, others = torch.randn(explicands, features), torch.randn(references, features)
        return cls(net.eval().requires_grad_(False), x, net(x).argmax(dim=1), others)

    def first(self, explicands: int) -> Workload:
        return Workload(self.net, self.x[:explicands], self.target[:explicands], self.references)

    def exact(self) -> Workload:
        """One in float64 with a little noise: rounding and ties do not send two paths different ways."""
        noise = 0.05 * torch.randn(self.x[:1].shape, generator=torch.Generator().manual_seed(0))
        net = copy.deepcopy(self.net).double()
        return Workload(net, (self.x[:1] + noise).double(), self.target[:1], self.references.double())

    def ours(self, method: Method, references: Tensor | None = None) -> Values:
        return lambda: method(self.net, self.x, self.target, references).values

    def predicted(self) -> Tensor:
        with torch.no_grad():
            return self.net(self.x).argmax(dim=1)

    def one_by_one(self, mask: Callable[..., Any], **options: Any) -> Values:
        """A mask of PAIR's for each image, which it takes with channels last."""

        def gradient(images: Any, call_model_args: Any = None, expected_keys: Any = None) -> dict[str, Any]:
            points = torch.as_tensor(images, dtype=self.x.dtype).movedim(-1, 1).requires_grad_()
            score = self.net(points)[:, call_model_args]
            (slope,) = torch.autograd.grad(score, points, torch.ones_like(score))
            return {"INPUT_OUTPUT_GRADIENTS": slope.movedim(1, -1).numpy()}

        def work() -> Any:
            images = self.x.movedim(1, -1).numpy()
            masks = [mask(image, gradient, int(goal), **options) for image, goal in zip(images, self.target, strict=True)]
            found = np.stack(masks)
            return np.moveaxis(found, -1, 1) if found.ndim == 4 else found

        return work


def gradients(quick: bool) -> list[Match]:
    from captum.attr import InputXGradient, NoiseTunnel, Saliency

    captum, matches = _name("Captum"), []
    for count in (2,) if quick else (16, 128):
        w = Workload.wafers(count)
        saliency, product = Saliency(w.net), InputXGradient(w.net)
        work, finds = f"{count} wafer maps, class found first", "ours also looks at the network first"

        def in_pieces(attribute: Any, size: int, w: Workload = w, **options: Any) -> Any:
            pieces = zip(w.x.split(size), w.predicted().split(size), strict=True)
            return torch.cat([attribute(x, target=target, **options) for x, target in pieces])

        sizes = {min(size, count) for size in (16, 64, count)}
        matches += [
            Match(
                "Gradient", work, lambda w=w: ig2.Gradient()(w.net, w.x).values, captum,
                [partial(in_pieces, saliency.attribute, size, abs=False) for size in sizes], finds,
            ),
            Match(
                "InputXGradient", work, lambda w=w: ig2.InputXGradient()(w.net, w.x).values, captum,
                [partial(in_pieces, product.attribute, size) for size in sizes], finds,
            ),
        ]  # fmt: skip

    w = Workload.wafers(2 if quick else 16)
    samples, sigma = 4 if quick else 50, 0.15
    tunnel = NoiseTunnel(Saliency(w.net))

    def smooth(samples: int) -> Method:
        return ig2.SmoothGrad(ig2.Gradient(), samples, sigma, relative=False)

    def tunnelled(size: int) -> Any:
        torch.manual_seed(0)
        given = {"nt_samples": samples, "nt_samples_batch_size": size, "stdevs": sigma}
        return tunnel.attribute(w.x, **given, target=w.target, abs=False)

    return [
        *matches,
        Match(
            "SmoothGrad", f"{len(w.x)} wafer maps × {samples} copies", w.ours(smooth(samples)), f"{captum} NoiseTunnel",
            [partial(tunnelled, size) for size in (1, 2, 4)], "each draws its noise", w.first(1).ours(smooth(1000)),
        ),
    ]  # fmt: skip


def straight(quick: bool) -> list[Match]:
    import saliency.core as pair
    from captum.attr import IntegratedGradients

    w = Workload.wafers(2 if quick else 16, 2 if quick else 10)
    count, steps, few = len(w.references), 8 if quick else 50, 4 if quick else 10
    captum = IntegratedGradients(w.net)
    t = Workload.rows(32 if quick else 1024, 20, 1)
    captum_rows = IntegratedGradients(t.net)

    def integrated(size: int, w: Workload = w) -> Any:
        return captum.attribute(w.x, target=w.target, n_steps=steps, internal_batch_size=size)

    def integrated_rows(size: int) -> Any:
        return captum_rows.attribute(t.x, target=t.target, n_steps=steps, internal_batch_size=size)

    def all_pairs(size: int) -> Any:
        x, references = w.x.repeat_interleave(count, 0), w.references.repeat(len(w.x), 1, 1, 1)
        target = w.target.repeat_interleave(count)
        found = captum.attribute(x, references, target, n_steps=few, internal_batch_size=size)
        return found.unflatten(0, (-1, count)).mean(dim=1)

    def one_reference_at_a_time(size: int) -> Any:
        found = [captum.attribute(w.x, r[None], w.target, n_steps=few, internal_batch_size=size) for r in w.references]
        return torch.stack(found).mean(dim=0)

    sizes, one = (16, 32, 64, 128), w.first(1)
    expected = [*(partial(one_reference_at_a_time, size) for size in sizes), partial(all_pairs, len(w.x) * count)]
    work, ours = f"{len(w.x)} wafer maps × {steps} steps", w.ours(ig2.IntegratedGradients(steps))
    return [
        Match("IntegratedGradients", work, ours, _name("Captum"), [partial(integrated, size) for size in sizes]),
        Match(
            "IntegratedGradients", f"1 wafer map × {steps} steps", one.ours(ig2.IntegratedGradients(steps)), _name("Captum"),
            [partial(integrated, size, one) for size in sizes], "ours also looks at the network, and prepares it",
        ),
        Match(
            "IntegratedGradients", work, ours, _name("saliency"),
            [w.one_by_one(pair.IntegratedGradients().GetMask, x_steps=steps, batch_size=size) for size in (10, 25, 50)],
            "it sums at equal places", w.first(2).ours(ig2.IntegratedGradients(1000)),
        ),
        Match(
            "IntegratedGradients", f"{len(t.x)} rows of 20 × {steps} steps", t.ours(ig2.IntegratedGradients(steps)),
            _name("Captum"), [partial(integrated_rows, size) for size in (1024, 4096, 16384)],
        ),
        Match(
            "ExpectedIG", f"{len(w.x)} wafer maps × {count} references × {few} steps",
            w.ours(ig2.ExpectedIG(few), w.references), _name("Captum") + " IG", expected,
        ),
    ]  # fmt: skip


def bent(quick: bool) -> list[Match]:
    import saliency.core as pair

    w = Workload.wafers(2 if quick else 16, 2)
    steps, sigma = 8 if quick else 50, 10.0
    exact = w.exact()

    def guided(w: Workload) -> tuple[Values, Values]:
        return w.ours(ig2.GuidedIG(steps)), w.one_by_one(pair.GuidedIG().GetMask, x_steps=steps)

    def blurred(steps: int) -> Method:
        return ig2.BlurIG(steps, sigma, "zero")

    saliency, maps = _name("saliency"), f"{len(w.x)} wafer maps"
    ours, theirs = guided(w)
    return [
        Match(
            "GuidedIG", f"{maps} × {steps} steps", ours, saliency, [theirs], "difference: in float64, without ties",
            answers=guided(exact),
        ),
        Match(
            "BlurIG", f"{maps} × {steps} blurs to σ = {sigma:g}", w.ours(blurred(steps)), saliency,
            [w.one_by_one(pair.BlurIG().GetMask, max_sigma=sigma, steps=steps, batch_size=size) for size in (25, 50)],
            "it sums by the left rule", w.first(2).ours(blurred(20 * steps)),
        ),
    ]  # fmt: skip


def shapley(quick: bool) -> list[Match]:
    import shap
    from captum.attr import KernelShap

    w = Workload.wafers(2 if quick else 8)
    side, samples = 7, 100 if quick else 500
    cells, groups = Grid(side, side).labels(w.x)[0], side**2
    sizes = torch.bincount(cells.flatten())[cells].expand_as(w.x[0]) * w.x.shape[1]  # of each feature's group
    t = Workload.rows(4 if quick else 32, 12, 10)
    kernel, kernel_rows = KernelShap(w.net), KernelShap(t.net)

    def captum(size: int) -> Any:
        torch.manual_seed(0)
        found = kernel.attribute(
            w.x, target=w.target, feature_mask=cells[None], n_samples=samples, perturbations_per_eval=size
        )  # fmt: skip
        return found / sizes  # it gives each feature all of its group

    def explainer(batch: int) -> Any:
        np.random.seed(0)  # noqa: NPY002
        found = []
        for x, goal in zip(w.x, w.target, strict=True):

            @torch.no_grad()
            def score(present: Any, x: Tensor = x, goal: Tensor = goal) -> Any:
                pieces = torch.as_tensor(present, dtype=x.dtype).split(batch)
                return torch.cat([w.net(piece[:, cells] * x)[:, goal] for piece in pieces]).numpy()

            of = shap.KernelExplainer(score, np.zeros((1, groups)))
            shares = of.shap_values(np.ones((1, groups)), nsamples=samples, l1_reg=0, silent=True)[0]
            found.append(torch.as_tensor(shares)[cells].expand_as(x) / sizes)
        return torch.stack(found)

    def captum_rows(size: int) -> Any:
        torch.manual_seed(0)
        return kernel_rows.attribute(t.x, target=t.target, n_samples=samples, perturbations_per_eval=size)

    def explainer_rows() -> Any:
        np.random.seed(0)  # noqa: NPY002

        @torch.no_grad()
        def scores(some: Any) -> Any:
            return t.net(torch.as_tensor(some, dtype=t.x.dtype)).numpy()

        of = shap.KernelExplainer(scores, t.references.numpy())
        found = of.shap_values(t.x.numpy(), nsamples=samples, l1_reg=0, silent=True)
        return found[np.arange(len(t.x)), :, t.target.numpy()]

    def grouped(samples: int) -> Method:
        return ig2.KernelSHAP(Grid(side, side), samples)

    maps = f"{len(w.x)} wafer maps, {groups} groups, {samples} coalitions"
    rows, draws = f"{len(t.x)} rows of 12, {samples} coalitions", "each draws its coalitions"
    ours, truth = w.ours(grouped(samples)), w.first(1).ours(grouped(10_000))
    every = 2**12  # as many coalitions as there are
    method, exact = ig2.KernelSHAP(samples=samples), ig2.KernelSHAP(samples=every)
    return [
        Match("KernelSHAP", maps, ours, _name("Captum"), [partial(captum, size) for size in (16, 64)], draws, truth),
        Match("KernelSHAP", maps, ours, _name("shap"), [partial(explainer, size) for size in (64, 128)], draws, truth),
        Match(
            "KernelSHAP", rows, t.ours(method), _name("Captum"), [partial(captum_rows, size) for size in (100, 500)], draws,
            t.ours(exact),
        ),
        Match(
            "KernelSHAP", f"{rows} × {len(t.references)} references", t.ours(method, t.references), _name("shap"),
            [explainer_rows], draws, t.ours(exact, t.references),
        ),
    ]  # fmt: skip


def deep(quick: bool) -> list[Match]:
    import shap
    from captum.attr import DeepLiftShap

    w = Workload.wafers(2 if quick else 16, 2 if quick else 10)
    captum = DeepLiftShap(w.net)

    def in_pieces(size: int) -> Any:
        pieces = zip(w.x.split(size), w.target.split(size), strict=True)
        return torch.cat([captum.attribute(x, w.references, target=target).detach() for x, target in pieces])

    def explainer(size: int) -> Any:
        of = shap.DeepExplainer(w.net, w.references)
        # the first of the ranked outputs is the class explained
        return np.concatenate([of.shap_values(x, ranked_outputs=1, check_additivity=False)[0] for x in w.x.split(size)])[..., 0]

    work, ours = f"{len(w.x)} wafer maps × {len(w.references)} references", w.ours(ig2.DeepSHAP(), w.references)
    return [
        Match(
            "DeepSHAP", work, ours, _name("Captum"), [partial(in_pieces, size) for size in (1, 2, 4)],
            "its sums are wrong where ReLU meets pooling",
        ),
        Match("DeepSHAP", work, ours, _name("shap"), [partial(explainer, size) for size in (1, len(w.x))]),
    ]  # fmt: skip


def regions(quick: bool) -> list[Match]:
    """The whole of XRAI on small images, and its choice of regions alone on a large one."""
    import saliency.core as pair
    from skimage.segmentation import felzenszwalb

    w = Workload.wafers(1 if quick else 4)
    steps, saliency = 8 if quick else 50, _name("saliency")
    given = pair.XRAIParameters(steps=steps)
    inner = ig2.PathMethod(
        ig2.paths.Straight(1), ig2.references.Union(ig2.references.Zeros(), ig2.references.White()), ig2.rules.gauss(steps)
    )
    whole = [w.one_by_one(pair.XRAI().GetMask, extra_parameters=given, batch_size=size) for size in (25, 50)]

    image = nn.functional.interpolate(w.x[:1], (SIDE, SIDE), mode="bilinear")[0].movedim(0, -1).double().numpy() * 2 - 1
    method = ig2.XRAI(scales=(50, 500) if quick else ig2.XRAI.scales)
    masks = method._masks(felzenszwalb, image)
    dense = np.zeros((masks[0].max() + 1, SIDE**2), dtype=bool)
    dense[tuple(masks)] = True
    segments = list(dense.reshape(-1, SIDE, SIDE))
    attribution = np.random.default_rng(0).normal(size=(SIDE, SIDE)) + image[..., 0]

    return [
        Match(
            "XRAI", f"{len(w.x)} wafer maps, IG of 2 × {steps} steps", lambda: w.ours(ig2.XRAI(inner))().sum(dim=1), saliency,
            whole, "it takes the largest channel, and regions of 56² pixels where ours are of 224²",
        ),
        Match(
            "XRAI", f"{len(segments)} segments of {SIDE}² given", lambda: rank_pixels(attribution, masks, 50)[None], saliency,
            [lambda: pair.XRAI().GetMask(image[..., 0], None, segments=segments, base_attribution=attribution)[None]],
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    run()
