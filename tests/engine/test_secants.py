"""The secant rule against a slow replica, and its promise: sums match the change in the output on any path."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import ig2
import replicas
from ig2 import paths, rules
from ig2.rules import Needs, Rule, Segments
from ig2.task import open_task
from networks import Record, data, randn, refuses, relu_cnn, seeded, small_mlp, spread_weights, tanh_mlp

# -- against a replica -----------------------------------------------------------------------------------------------------


def mlp(*activations: nn.Module) -> nn.Sequential:
    layers = [layer for kind in activations for layer in (nn.Linear(4, 4), kind)]
    return spread_weights(nn.Sequential(*layers, nn.Linear(4, 2)))  # type: ignore[return-value]


def cnn() -> nn.Sequential:
    return spread_weights(  # type: ignore[return-value]
        nn.Sequential(nn.Conv2d(1, 2, 2), nn.Sigmoid(), nn.Conv2d(2, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    )


@pytest.mark.parametrize("segments", [1, 2, 5])
@pytest.mark.parametrize(("net", "shape"), [(mlp(nn.Tanh(), nn.ReLU()), (4,)), (cnn(), (1, 4, 4))], ids=["mlp", "cnn"])
def test_equals_the_replica_on_both_kinds_of_path(net: nn.Sequential, shape: tuple[int, ...], segments: int):
    x, references = randn(2, *shape), randn(3, *shape, seed=1)
    line = ig2.PathMethod(paths.Straight(segments), rule=rules.secant)(net, x, 1, references)
    grown = ig2.IG2(segments, 0.7, rules.secant)(net, x, 1, references)
    network = replicas.sequential(net, 1)
    for i, explicand in enumerate(x.numpy()):
        straight = [replicas.straight(explicand, reference, segments) for reference in references.numpy()]
        walked = [replicas.gradpath(network, explicand, reference, segments, 0.7) for reference in references.numpy()]
        for found, lines in ((line, straight), (grown, walked)):
            expected = sum(replicas.secant(net, 1, points) for points in lines) / len(lines)
            torch.testing.assert_close(found.values[i], torch.from_numpy(expected), rtol=0, atol=1e-12)


def test_one_segment_on_a_line_is_deepshap():
    net, x, references = relu_cnn(), data(3, 2, 8, 8), data(2, 2, 8, 8, seed=1)
    found = ig2.PathMethod(paths.Straight(1), rule=rules.secant)(net, x, references=references)
    assert torch.equal(found.values, ig2.DeepSHAP()(net, x, references=references).values)
    assert not torch.allclose(found.values, ig2.ExpectedIG(1, rules.secant)(net, x, references=references * 0.9).values)


# -- on every path ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bent(paths.KnownPath):
    """Over a point beside the line; drawn from the baseline."""

    from_explicand = False
    segments = 2  # type: ignore[assignment]

    def vertices(self, pairs: paths.Pairs, numbers: range) -> Tensor:
        middle = (pairs.explicand + pairs.reference) / 2 + 0.3
        return torch.stack([(pairs.reference, middle, pairs.explicand)[number] for number in numbers])


PATHS = {
    "straight": paths.Straight(4),
    "grown": paths.GradPath(4, 0.8),
    "ending early": paths.GradPath(9, stop=paths.Converged(0.2, 2)),
    "guided": paths.Guided(4, max_dist=0.2),
    "blur": paths.Blur(4, 2.0),
    "from the baseline": Bent(),
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_sums_match_on_every_path_in_any_batch(path: paths.Path):
    net, x, references = relu_cnn(), data(3, 2, 8, 8), data(2, 2, 8, 8, seed=1)
    method = ig2.PathMethod(path, rule=rules.secant)
    keep = {"curves": True, "per_reference": True, "paths": True, "against": "next"}
    found = method(ig2.wrap(net, bounds=(-2, 2)), x, references=references, **keep)
    assert found.residual is not None and found.residual.abs().max() < 1e-13
    assert found.settings["complete"] and "by construction" in found.verdict
    changes = found.output[:, None] - found.baseline_outputs
    torch.testing.assert_close(found.per_reference.flatten(2).sum(dim=2), changes, rtol=0, atol=1e-13)
    torch.testing.assert_close(found.output_curve[:, :, 0], found.output[:, None].expand_as(changes), rtol=0, atol=1e-13)
    torch.testing.assert_close(found.output_curve[:, :, -1], found.baseline_outputs, rtol=0, atol=1e-13)
    torch.testing.assert_close(found.paths[:, :, 0], x[:, None].expand_as(found.paths[:, :, 0]), rtol=0, atol=1e-13)
    for size in (1, 7):
        part = method(ig2.wrap(net, bounds=(-2, 2)), x, references=references, batch_size=size, **keep)
        for name in ("values", "spread", "output_curve", "per_reference"):
            torch.testing.assert_close(getattr(part, name), getattr(found, name), rtol=0, atol=1e-12)


def test_several_inputs_and_fixed_ones():
    def net(a: Tensor, b: Tensor, factor: Tensor) -> Tensor:
        return (a.flatten(1).sum(dim=1) * factor).tanh() * b.square().sum(dim=1)

    x = (randn(2, 2, 2), randn(2, 3, seed=1), ig2.Fixed(torch.tensor([1.0, 2.0]).double()))
    found = ig2.PathMethod(paths.Straight(3), rule=rules.secant)(
        net, x, references=(randn(4, 2, 2, seed=2), randn(4, 3, seed=3))
    )
    assert [value.shape for value in found.values] == [(2, 2, 2), (2, 3)]
    assert found.residual.abs().max() < 1e-13 and all((value != 0).any() for value in found.values)


def test_a_faster_copy_finds_the_same():
    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU6(), nn.Flatten(), nn.Linear(216, 3))

    net, x, references = seeded(build, 0).float(), data(2, 2, 8, 8).float(), data(2, 2, 8, 8, seed=1).float()
    method = ig2.IG2(3, rule=rules.secant)
    fast, plain = (method(ig2.wrap(net, prepare=wish), x, references=references) for wish in (True, False))
    assert fast.settings["preparation"] == {"folded": 1, "channels_last": True}
    torch.testing.assert_close(fast.values, plain.values, rtol=1e-4, atol=1e-6)
    assert fast.relative_residual.max() < 1e-5


def test_each_segment_takes_two_passes_and_a_known_path_no_others():
    seen: Record = Record()

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            return (x @ torch.arange(8.0).double().view(4, 2)).tanh()

    call: dict[str, Any] = {"target": 0, "references": randn(1, 4, seed=1), "batch_size": 6}
    ig2.PathMethod(paths.Straight(1), rule=None)(Spy(), randn(1, 4), **call)
    before = len(seen) - 2  # without the two ends
    seen.clear()
    ig2.PathMethod(paths.Straight(5), rule=rules.secant)(Spy(), randn(1, 4), **call)
    assert seen[before:] == [2, 2, 2, 2, 1, 1]  # a pair takes the memory of three points
    seen.clear()
    ig2.DeepSHAP()(Spy(), randn(1, 4), **{**call, "references": randn(4, 4, seed=1)})
    assert seen[before:] == [2, 2, 2, 2]


@dataclass(frozen=True, repr=False)
class Own(Rule):
    """A rule that sees secants beside the gradients at both ends, or in place of them."""

    ends: bool

    @property
    def needs(self) -> Needs:
        return Needs(ends=self.ends, secants=True)

    def terms(self, segments: Segments) -> tuple[Tensor, ...]:
        assert segments.average is not None
        assert torch.equal(segments.near, segments.average) != self.ends
        return ((segments.near + segments.far - segments.average) * segments.step,)


@pytest.mark.parametrize("path", [paths.Straight(3), paths.GradPath(3), paths.Guided(3)], ids=lambda path: type(path).__name__)
def test_a_rule_of_ones_own_gets_secants(path: paths.Path):
    net, x, references = tanh_mlp(), data(2, 6), data(2, 6, seed=1)

    def values(rule: Rule) -> Tensor:
        return ig2.PathMethod(path, rule=rule)(net, x, references=references).values  # type: ignore[return-value]

    torch.testing.assert_close(values(Own("alone", ends=False)), values(rules.secant))
    expected = values(rules.left) + values(rules.right) - values(rules.secant)
    torch.testing.assert_close(values(Own("beside gradients", ends=True)), expected)
    refuses(ig2.InputError, "secants or from nodes", lambda: Needs((0.5,), (1.0,), secants=True))


# -- operations ------------------------------------------------------------------------------------------------------------

ONES = torch.ones(2, 3, 3, dtype=torch.float64)


def square(z: Tensor) -> Tensor:
    return F.pad(z, (0, 3)).view(-1, 3, 3)


def in_place(z: Tensor) -> Tensor:
    y = z[:, :3] * 1
    y *= z[:, 3:]
    y /= z[:, 3:].exp()
    return y


def attend(z: Tensor, **options: Any) -> Tensor:
    return F.scaled_dot_product_attention(z.view(-1, 1, 3, 2), z.view(-1, 1, 3, 2).tanh(), z.view(-1, 1, 3, 2), **options)


def triangular(z: Tensor, **options: Any) -> Tensor:
    left = options.get("left", True)
    b = z[:, :3, None] if left else z[:, None, :3]
    return torch.linalg.solve_triangular(3 * torch.eye(3) + square(z.tanh()) + square(z.tanh()).mT, b, **options)


def read_places(z: Tensor, **options: Any) -> Tensor:
    """A picture of 6 × 2 at two places that go beyond its edges."""
    picture = (z[:, None, :, None] * torch.linspace(-1, 2, 24).double().view(1, 2, 6, 2)).view(-1, 2, 6, 2)
    return F.grid_sample(picture, z[:, :4].view(-1, 1, 2, 2) / 2, align_corners=False, **options)


def read_places_of_a_volume(z: Tensor) -> Tensor:
    volume = z[:, None, :, None, None] * torch.linspace(-1, 2, 24).double().view(1, 1, 6, 2, 2)
    return F.grid_sample(volume, z.view(-1, 1, 1, 2, 3) / 2, align_corners=True)


class Cube(torch.autograd.Function):
    """With a gradient that is not its own, as of a straight-through estimator."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.mark_non_differentiable()
        return z * z * z * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad, None


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(z: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return z.exp() / 2, z.tanh()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


def halved(z: Tensor) -> Tensor:
    """Of the first row and of everything, in place and through views, as long attentions do."""
    z[:, :1] *= 0.5
    return z.transpose(1, 2).div_(2)


OPERATIONS = {
    "product over an axis": lambda z: torch.stack([z.prod(1), torch.stack([row.prod() for row in z]), z[:, :5].prod(dim=1)], 1),
    "cumulated product": lambda z: z.cumprod(1),
    "einsum of three": lambda z: torch.einsum("bi,bj,bi->bij", z[:, :2], z[:, 2:4], z[:, 4:]),
    "einsum of four": lambda z: torch.einsum("bi,bi,bi,bj->bi", z[:, :2], z[:, 2:4], z[:, 4:], z),
    "power of a matrix": lambda z: torch.linalg.matrix_power(square(z), 3),
    "triangular equations": lambda z: triangular(z, upper=False),
    "upper and from the right": lambda z: triangular(z, upper=True, left=False),
    "with ones on the diagonal": lambda z: triangular(z, upper=False, unitriangular=True),
    "linear equations": lambda z: torch.linalg.solve(4 * torch.eye(3) + square(z.tanh()), z[:, :3, None]),
    "linear equations of a vector": lambda z: torch.linalg.solve(4 * torch.eye(3) + square(z.tanh()), z[:, :3]),
    "inverse": lambda z: torch.linalg.inv(4 * torch.eye(3) + square(z.tanh())),
    "functions of two": lambda z: torch.cat(
        [torch.atan2(z[:, :3], z[:, 3:]), torch.hypot(z[:, :3], z[:, 3:4]), torch.logaddexp(z[:, :1], z[:, 3:])], 1
    ),
    "power of both": lambda z: z[:, :3].exp() ** z[:, 3:],
    "distances": lambda z: torch.cdist(z.view(-1, 2, 3), z.view(-1, 3, 2).mT.tanh()),
    "other distances": lambda z: torch.stack(
        [
            F.pairwise_distance(z[:, :3], z[:, 3:]),
            F.l1_loss(z[:, :3], z[:, 3:], reduction="none").sum(1),
            torch.stack([torch.dist(row[:3], row[3:], 1) for row in z]),
        ],
        1,
    ),
    "largest of all": lambda z: torch.stack([torch.stack([row.max(), row.min(), row.amax(), row.exp().amin()]) for row in z]),
    "bounds from the input": lambda z: torch.cat([z[:, :3].clamp(z[:, 3:], 2 * ONES[0, 0]), z[:, :3].clip(max=z[:, 3:])], 1),
    "where": lambda z: torch.cat(
        [torch.where(z > 0, z, 0.1 * z), torch.where(z > 0, z, -z), torch.where(z < 0.2, 0.0, z), z.where(z > 0, z.exp() - 1)],
        1,
    ),
    "where of two": lambda z: torch.where(z[:, :3] > z[:, 3:], z[:, :3], z[:, 3:]),
    "masked by value": lambda z: z.masked_fill(z < 0.3, 0.3) + z.clone().masked_fill_(z > 1, 1.0),
    "detached": lambda z: z * z.detach().exp(),
    "function of one's own": lambda z: torch.cat([Cube.apply(z, 2.0), *Halved.apply(z)], 1),
    "places": read_places,
    "bicubic places": lambda z: read_places(z, mode="bicubic", padding_mode="border"),
    "places of a volume": read_places_of_a_volume,
    "product": lambda z: z[:, :3] * z[:, 3:],
    "division": lambda z: z[:, :3] / z[:, 3:].exp(),
    "in place": in_place,
    "matrix product": lambda z: z.view(-1, 3, 2) @ z.view(-1, 2, 3),
    "matrix squared": lambda z: torch.matmul(square(z), square(z)),
    "the same matrix twice": lambda z: torch.bmm(*[square(z)] * 2),
    "einsum": lambda z: torch.einsum("bi,bj->bij", z[:, :3], z[:, 3:]),
    "einsum of a list": lambda z: torch.einsum("bi,bj->bij", [z[:, :3], z[:, 3:]]),
    "einsum, a view of it written into": lambda z: halved(
        torch.einsum("...qd,...kd->...kq", z.view(-1, 2, 3), z.view(-1, 2, 3))
    ),
    "baddbmm": lambda z: torch.baddbmm(z[:, :1, None], z[:, :3, None], z[:, None, 3:]),
    "addcmul": lambda z: torch.addcmul(z[:, :3], z[:, :3], z[:, 3:], value=2),
    "addcdiv": lambda z: torch.addcdiv(z[:, :3], z[:, :3], z[:, 3:].exp(), value=2),
    "lerp": lambda z: torch.lerp(z[:, :2], z[:, 2:4], z[:, 4:].sigmoid()),
    "bilinear": lambda z: F.bilinear(z[:, :3], z[:, 3:], ONES.cumsum(0)),
    "weights from the input": lambda z: torch.stack([F.linear(row[:2], row[2:].view(2, 2), row[:2]) for row in z]),
    "three factors": lambda z: z[:, :2] * z[:, 2:4] * z[:, 4:],
    "variance": lambda z: z.var(1, keepdim=True),
    "deviation": lambda z: z.std(1, keepdim=True),
    "variance and mean": lambda z: torch.cat(torch.var_mean(z, 1, keepdim=True), 1),
    "deviation and mean": lambda z: torch.cat(torch.std_mean(z, dim=1, correction=0, keepdim=True), 1),
    "squared error": lambda z: F.mse_loss(z[:, :3], z[:, 3:], reduction="none"),
    "normalize": lambda z: F.normalize(z, dim=1),
    "norm": lambda z: torch.stack([z.norm(dim=1), z.norm(1, dim=1), torch.linalg.norm(z.exp(), dim=1)], 1),
    "other norms": lambda z: torch.stack([torch.linalg.vector_norm(z, p, dim=1) for p in (3, math.inf)], 1),
    "norms with their axes": lambda z: (
        z
        / torch.cat(
            [torch.linalg.vector_norm(z[:, i : i + 2], p, dim=1, keepdim=True) for i, p in ((0, math.inf), (2, 3), (4, 2))], 1
        ).repeat(1, 2)
    ),
    "cosine": lambda z: F.cosine_similarity(z[:, :3], z[:, 3:])[:, None],
    "glu": lambda z: F.glu(z, 1),
    "layer norm": lambda z: F.layer_norm(z.view(-1, 2, 3), (2, 3), ONES[:, 0], ONES[:, 1]),
    "rms norm": lambda z: F.rms_norm(z, (6,), torch.arange(6.0).double()),
    "group norm": lambda z: F.group_norm(z, 2, torch.arange(6.0).double(), torch.ones(6).double()),
    "instance norm": lambda z: F.instance_norm(z.view(-1, 2, 3), weight=torch.arange(2.0).double()),
    "local response": lambda z: F.local_response_norm(z.abs()[:, :, None], 2),
    "softmin": lambda z: F.softmin(z, dim=1),
    "gelu by tanh": lambda z: F.gelu(z, approximate="tanh"),
    "attention": attend,
    "causal": lambda z: attend(z, is_causal=True, scale=0.7),
    "masked": lambda z: attend(z, attn_mask=torch.tensor([[0.0, -1.0, -torch.inf]]).double()),
    "who may see nothing": lambda z: attend(z, attn_mask=torch.tensor([[True, False, True], [False] * 3, [True] * 3])),
    "grouped queries": lambda z: F.scaled_dot_product_attention(
        z.view(-1, 2, 3, 1), z[:, None, :3, None], z[:, None, 3:, None], enable_gqa=True
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_operations_of_several_activations_add_up(operation: Any):
    """Between two linear maps, so that a slope that is wrong in one place cannot hide in another."""
    x, references = randn(3, 6), randn(2, 6, seed=1)
    spread = spread_weights(nn.Linear(6, 6))
    widths = operation(x).flatten(1).shape[1]
    joined = torch.linspace(-1, 1, widths).double()

    def net(z: Tensor) -> Tensor:
        return operation(spread(z)).flatten(1) @ joined

    for method in (ig2.DeepSHAP(), ig2.IG2(2, rule=rules.secant)):
        found = method(net, x, references=references)
        size = found.values.abs().sum(dim=1) + found.output.abs() + 1
        assert (found.residual.abs() <= 1e-13 * size).all() and found.settings["complete"]
        assert (found.output - found.baseline_output).abs().max() > 0.01
        torch.testing.assert_close(found.output, net(x))


def values(net: Any, x: list[float], reference: list[float]) -> list[float]:
    found = ig2.DeepSHAP()(net, torch.tensor([x]).double(), references=torch.tensor([reference]).double())
    return found.values[0].tolist()  # type: ignore[no-any-return, union-attr]


def test_closed_forms_of_several_variables():
    """Of one pair each, (a, b) = (4, 3) and (a′, b′) = (2, −1), or with c from 5 to 1."""
    a, b, c, a_, b_, c_ = 4.0, 3.0, 5.0, 2.0, -1.0, 1.0
    # by Aumann and Shapley, ∫ (b′ + t·Δb)(c′ + t·Δc) dt
    ahead = [
        (2 * p * q + p * q_ + p_ * q + 2 * p_ * q_) / 6 for p, q, p_, q_ in ((b, c, b_, c_), (a, c, a_, c_), (a, b, a_, b_))
    ]
    found = values(lambda z: torch.einsum("b,b,b->b", *z.unbind(1)), [a, b, c], [a_, b_, c_])
    assert found == pytest.approx([m * step for m, step in zip(ahead, (a - a_, b - b_, c - c_), strict=True)])
    # x = b / a as the solution of a·x = b: ā·Δx + Δa·x̄ = Δb
    mean_a, mean_x = (a + a_) / 2, (b / a + b_ / a_) / 2
    found = values(lambda z: torch.linalg.solve(z[:, :1, None], z[:, 1:, None]).flatten(), [a, b], [a_, b_])
    assert found == pytest.approx([-(a - a_) * mean_x / mean_a, (b - b_) / mean_a])
    found = values(lambda z: torch.atan2(z[:, 0], z[:, 1]), [a, b], [a_, b_])
    first = (math.atan2(a, b) - math.atan2(a_, b) + math.atan2(a, b_) - math.atan2(a_, b_)) / 2
    assert found == pytest.approx([first, math.atan2(a, b) - math.atan2(a_, b_) - first])


@pytest.mark.parametrize("x", [2.0, 0.5, -3.0])
def test_a_function_written_by_a_condition_has_its_own_secant(x: float):
    for function in (
        lambda z: torch.where(z > 0, z, 0.1 * z),
        lambda z: torch.where(z > 0, z, -z),
        lambda z: torch.where(z > 0, z, z.exp() - 1),
        lambda z: z.masked_fill(z < 0, 0.0),
        Cube.apply,
    ):
        arguments = (1.0,) if function == Cube.apply else ()
        ends = torch.tensor([x, -1.0]).double()
        y, y_ = function(ends, *arguments).tolist()  # type: ignore[operator]
        # shared with a variable that cancels in part
        found = values(lambda z, f=function, a=arguments: f(z.sum(dim=1), *a), [x - 3, 3.0], [-2.0, 1.0])
        assert found == pytest.approx([(y - y_) / (x + 1) * step for step in (x - 1, 2.0)])


def test_a_picture_read_between_two_pixels():
    """y = p·(1 − u)/2 + q·(1 + u)/2, a product of pixels and a place."""
    found = values(
        lambda z: F.grid_sample(
            z[:, None, None, :2], torch.stack([z[:, 2], 0 * z[:, 2]], 1).view(-1, 1, 1, 2), align_corners=True
        ).flatten(),
        [3.0, 5.0, 0.5], [1.0, 2.0, -0.5],
    )  # fmt: skip
    assert found == pytest.approx([2 * 0.5, 3 * 0.5, (3.5 - 2) / 2 * 1])


def test_places_share_the_change_as_a_replica_does():
    """Each coordinate alone, first or last; every output by itself."""
    picture, places, others = randn(1, 2, 4, 5), randn(1, 3, 1, 2, seed=1) / 2, randn(1, 3, 1, 2, seed=2) / 2
    weights = randn(1, 2, 3, 1, seed=3)

    def read(x: Tensor, y: Tensor) -> Tensor:
        return F.grid_sample(picture, torch.stack([x, y], -1), align_corners=False)[0] * weights[0]

    found = ig2.DeepSHAP()(
        lambda g: (F.grid_sample(picture.expand(len(g), -1, -1, -1), g, align_corners=False) * weights).sum((1, 2, 3)),
        places, references=others,
    )  # fmt: skip
    (x, y), (x_, y_) = (grid.unbind(-1) for grid in (places, others))
    across = (read(x, y) - read(x_, y) + read(x, y_) - read(x_, y_)).sum(0) / 2
    down = (read(x, y) - read(x, y_) + read(x_, y) - read(x_, y_)).sum(0) / 2
    torch.testing.assert_close(found.values, torch.stack([across, down], -1)[None])


def test_a_product_is_halved_between_its_factors():
    x, reference = torch.tensor([[4.0, 3.0]]).double(), torch.tensor([[2.0, -1.0]]).double()
    found = ig2.DeepSHAP()(lambda z: z[:, 0] * z[:, 1], x, references=reference)
    torch.testing.assert_close(found.values, torch.tensor([[(3 - 1) / 2 * 2, (4 + 2) / 2 * 4]]).double())


class Recurrent(nn.Module):
    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.cells, self.out = getattr(nn, kind)(3, 4, **options), nn.LazyLinear(2)

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(self.cells, nn.RNNCellBase):
            return self.out(torch.cat([self.cells(x)[0].mean(dim=1), x.flatten(1)], dim=1))
        state: Any = None
        for t in range(x.shape[1]):
            state = self.cells(x[:, t], state)
        return self.out(state[0] if isinstance(state, tuple) else state)


STACKED = {"num_layers": 2, "bidirectional": True, "batch_first": True}


class Both(nn.Module):
    """A recurrent layer, and the larger of two activations: each is taken apart, and stacked again."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.out = nn.LSTM(3, 4, batch_first=True, bidirectional=True), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        # what autocast leaves in float16 too
        states = self.cells(torch.maximum(x, x.flip(1)))[0]
        return self.out(torch.maximum(states, states.tanh().flip(1)).unbind(1)[-1])


@pytest.mark.parametrize(
    "method",
    [ig2.DeepSHAP(), ig2.IG2(2, rule=rules.secant), ig2.Turns(2, 2, torch.arange(12).view(4, 3) // 3)],
    ids=lambda method: type(method).__name__,
)
def test_half_precision_in_the_autocast_of_another(method: ig2.Method):
    """Autocast in bfloat16 refuses to stack what is in float16, forward and backward."""
    exact, x, references = seeded(Both, 0).double(), randn(2, 4, 3), randn(2, 4, 3, seed=1)
    expected = method(exact, x, 0, references).values
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = method(seeded(Both, 0).half(), x.half(), 0, references.half()).values
    torch.testing.assert_close(found.double(), expected, rtol=0.1, atol=0.05 * float(expected.abs().max()))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *[(kind, STACKED) for kind in ("LSTM", "GRU", "RNN")],
        ("RNN", {"nonlinearity": "relu", "bias": False, "batch_first": True}),
        *[(f"{kind}Cell", {}) for kind in ("LSTM", "GRU", "RNN")],
    ],
)
def test_recurrent_networks_add_up(kind: str, options: dict[str, Any]):
    net, x, references = Recurrent(kind, **options).double(), randn(2, 4, 3), randn(2, 4, 3, seed=1)
    net(x)  # sets the width of its last layer
    found = ig2.DeepSHAP()(spread_weights(net), x, references=references)
    assert found.residual.abs().max() < 1e-13 and found.settings["complete"]
    torch.testing.assert_close(found.output, net(x).amax(dim=1))


# -- transformers ----------------------------------------------------------------------------------------------------------


class Llama(nn.Module):
    """RMSNorm, rotary positions, grouped queries, a causal mask and a gated unit, by hand."""

    def __init__(self, width: int = 8, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups = heads, groups
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.q, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = (nn.Linear(width, width * groups // heads) for _ in range(2))
        self.gate, self.up, self.down = nn.Linear(width, 12), nn.Linear(width, 12), nn.Linear(12, width)
        self.head = nn.Linear(width, 3)

    def rotate(self, z: Tensor) -> Tensor:
        angle = torch.arange(z.shape[-2], dtype=z.dtype)[:, None]
        first, second = z.chunk(2, dim=-1)
        return z * angle.cos() + torch.cat([-second, first], dim=-1) * angle.sin()

    def forward(self, x: Tensor) -> Tensor:
        z = self.norms[0](x)
        parts = ((self.q, self.heads), (self.k, self.groups), (self.v, self.groups))
        q, k, v = (layer(z).unflatten(-1, (count, -1)).transpose(1, 2) for layer, count in parts)
        seen = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        z = self.norms[1](x)
        return self.head((x + self.down(F.silu(self.gate(z)) * self.up(z)))[:, -1])


def bert(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, activation="gelu", batch_first=True, **options)
    return nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(), nn.Linear(32, 3))


class Vision(nn.Module):
    """Patches, a class token, and attention whose weights are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(2, 8, 4, stride=4), nn.Parameter(torch.zeros(1, 1, 8))
        self.norm, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.patches(x).flatten(2).mT
        z = self.norm(torch.cat([self.token.expand(len(z), 1, 8), z], dim=1))
        return self.head((z + self.attention(z, z, z, need_weights=True)[0])[:, 0])


TRANSFORMERS = {
    "bert": (bert(), (4, 8)),
    "norm first": (bert(norm_first=True), (4, 8)),
    "llama": (Llama(), (4, 8)),
    "vit": (Vision(), (2, 8, 8)),
}


@pytest.mark.parametrize(("net", "shape"), TRANSFORMERS.values(), ids=TRANSFORMERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_transformers_add_up(net: nn.Module, shape: tuple[int, ...], dtype: torch.dtype):
    net = spread_weights(net).to(dtype)
    x, references = randn(2, *shape, dtype=dtype), randn(2, *shape, seed=1, dtype=dtype)
    for method in (ig2.DeepSHAP(), ig2.PathMethod(paths.Straight(3), rule=rules.secant), ig2.IG2(3, rule=rules.secant)):
        found = method(net, x, 1, references)
        size = found.values.abs().flatten(1).sum(dim=1) + found.output.abs()
        assert (found.residual.abs() <= 100 * torch.finfo(dtype).eps * size).all()
        assert found.settings["complete"]


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["Bert", "Llama", "GPT2", "ViT"])
def test_models_of_transformers_add_up(name: str, attention: str):
    transformers = pytest.importorskip("transformers")
    width = {"n_embd": 16, "n_head": 4, "n_layer": 2} if name == "GPT2" else {"hidden_size": 16, "num_attention_heads": 4}
    more = {"Llama": {"num_key_value_heads": 2}, "ViT": {"image_size": 8, "patch_size": 4}}.get(name, {})
    tokens = {} if name == "ViT" else {"vocab_size": 30, "bos_token_id": 0, "eos_token_id": 0}
    layers = {} if name == "GPT2" else {"num_hidden_layers": 2, "intermediate_size": 24}
    config = getattr(transformers, f"{name}Config")(**width, **more, **tokens, **layers, attn_implementation=attention)
    inner = spread_weights(getattr(transformers, f"{name}Model")(config))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            states = (self.inner(x) if name == "ViT" else self.inner(inputs_embeds=x)).last_hidden_state
            return states[:, -1, :3]  # type: ignore[no-any-return]

    shape = (3, 8, 8) if name == "ViT" else (5, 16)
    x, references = randn(2, *shape), randn(2, *shape, seed=1)
    for method in (ig2.DeepSHAP(), ig2.IG2(2, rule=rules.secant)):
        found = method(ig2.wrap(Net().eval(), representation="output"), x, 1, references)
        # these normalise, and take softmax, in float32 whatever the network's type is
        assert found.relative_residual.max() < (1e-4 if name == "Llama" or attention == "eager" else 1e-10)
        assert found.settings["complete"]


# -- what has no secant ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [paths.Straight(3), paths.GradPath(3, 1.0), paths.Guided(3), Bent()], ids=lambda path: type(path).__name__
)
def test_an_operation_without_a_secant_is_named_and_nothing_is_claimed(path: paths.Path):
    first, last = spread_weights(nn.Linear(4, 4)), spread_weights(nn.Linear(4, 2))
    net = nn.Sequential(first, Cumulated(), last)
    x, references = randn(3, 4) + 1, randn(2, 4, seed=1) - 1
    with pytest.warns(ig2.IG2Warning, match="without a secant: logcumsumexp") as caught:
        found = ig2.PathMethod(path, rule=rules.secant)(net, x, 0, references)
    worst = int(str(caught[0].message).partition("explicand ")[2][0])
    assert f"off by {float(found.residual[worst].abs()):.3g}" in str(caught[0].message)
    assert worst == int(found.relative_residual.argmax())
    assert caught[0].filename == __file__
    assert not found.settings["complete"] and "by construction" not in found.verdict
    # scaled, the sum is exact all the same
    scaled = ig2.PathMethod(path, rule=rules.scaled(rules.secant))(net, x, 0, references)
    assert scaled.residual.abs().max() < 1e-12 and "by construction" in scaled.verdict


class Cumulated(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return z.logcumsumexp(dim=1)


class Written(nn.Module):
    """Writes into a part of what the network has itself."""

    def forward(self, z: Tensor) -> Tensor:
        written = z.clone()
        written[:, :1] = z[:, :1].tanh()
        return written


class Twice(nn.Module):
    """Layers that are computed again in the backward pass."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, z: Tensor) -> Tensor:
        return checkpoint(self.layers, z, use_reentrant=False)


CONVOLVED = nn.Sequential(
    nn.Unflatten(1, (1, 4)), nn.BatchNorm1d(1), nn.Conv1d(1, 1, 3, padding=1, padding_mode="reflect"), nn.Flatten()
)


@pytest.mark.parametrize("layer", [Written(), Twice(spread_weights(CONVOLVED).eval())])
def test_what_has_no_secant_is_named_beside_what_is_written_or_computed_twice(layer: nn.Module):
    net = nn.Sequential(layer, spread_weights(nn.Linear(4, 4)), Cumulated(), spread_weights(nn.Linear(4, 2)))
    x, references = randn(3, 4) + 1, randn(2, 4, seed=1) - 1
    with pytest.warns(ig2.IG2Warning, match="without a secant: logcumsumexp"):
        ig2.DeepSHAP()(net, x, 0, references)


def test_networks_that_cannot_be_followed_are_refused():
    def turns(x: Tensor) -> Tensor:
        return (x.relu() if x.sum() > 0 else x.tanh()).sum(dim=1)

    x = torch.ones(1, 3).double()
    refuses(
        ig2.ModelError,
        "other operations",
        lambda: ig2.PathMethod(paths.Straight(2), rule=rules.secant)(turns, x, references=-x),
    )


@pytest.mark.parametrize("many", [1, 50])
def test_float32_keeps_the_sums_on_deep_networks(many: int):
    def build() -> nn.Sequential:
        layers = [layer for _ in range(12) for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU6())]
        for layer in layers[::3]:
            nn.init.kaiming_normal_(layer.weight)  # so that what x changes is not lost on the way
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 3))

    net = seeded(build, 1).float()
    x, references = randn(2, 4, 8, 8, dtype=torch.float32), randn(2, 4, 8, 8, seed=1, dtype=torch.float32)
    found = ig2.PathMethod(paths.Straight(many), rule=rules.secant)(net, x, references=references)
    assert (found.output - found.baseline_output).abs().min() > 1e-3
    assert found.relative_residual.max() < 3e-3 and found.settings["complete"]


def test_what_a_call_takes_is_counted():
    from ig2._engine.integrate import count_evaluations

    assert count_evaluations(paths.Straight(5), rules.secant, 5) == 15
    assert count_evaluations(paths.GradPath(5), rules.secant, 5) == 21
    cost = ig2.PathMethod(paths.Straight(5), rule=rules.secant).estimate(small_mlp(), data(2, 4), data(3, 4))
    assert cost.seconds > 0


def test_what_a_session_returns_keeps_no_graph():
    net, x, far = relu_cnn(), randn(2, 2, 8, 8), randn(2, 2, 8, 8, seed=1)
    with open_task(ig2.wrap(net), x, [0, 1], label="secants") as task:
        session, rows = task.session, task.rows
        returned = [*session.find_secants(x, far, rows, task.target)]
        contributions, far_output = session.find_contributions(x, far, rows, task.target, [session.find_places("0")[0]])
        at = session.evaluate(x, rows, task.target)
        returned += [*contributions, far_output, at.output, at.gradient, session.scores(x, rows)]
        assert [tensor.grad_fn for tensor in returned] == [None] * len(returned)


def test_vertices_of_replicas_are_segments():
    """What the replica sums is each segment's own: on two halves of a line it is not that on the whole."""
    net, x, reference = mlp(nn.Tanh(), nn.ReLU()), randn(4).numpy(), randn(4, seed=1).numpy()
    whole, halves = (replicas.secant(net, 1, replicas.straight(x, reference, steps)) for steps in (1, 2))
    assert abs(whole - halves).max() > 1e-3 and whole.sum() == pytest.approx(halves.sum(), abs=1e-13)
    assert len(list(pairwise(replicas.straight(x, reference, 2)))) == 2
