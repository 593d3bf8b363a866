"""Strata beside a replica, its layers, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import ig2
from ig2.errors import InputError, ModelError
from networks import data, refuses


class Small(nn.Module):
    """Two convolutions on grids of 8 × 8 and 4 × 4 places."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(2, 3, 3, padding=1)
        self.act = nn.ReLU(inplace=inplace)
        self.second = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.head = nn.Linear(4 * 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(self.act(self.first(x)))).flatten(1))


def small(**options: bool) -> Small:
    return Small(**options).double().eval()


X, REFERENCES, TARGET = data(3, 2, 8, 8), data(4, 2, 8, 8, seed=1), [1, 2, 0]


def replicate(net: Small, x: Tensor, target: int, references: Tensor, signed: bool = False) -> np.ndarray:
    """The formula for one explicand, layer by layer with slopes written out."""
    fine, coarse, changes = [], [], []
    with torch.no_grad():
        for reference in references:
            ends = []
            for point in (x, reference):
                first = net.first(point[None])
                acted = first.clamp(min=0)
                second = net.second(acted)
                ends.append((first, acted, second, second.tanh()))
            near, far = ends
            weight = net.head.weight[target].view(1, 4, 4, 4)
            slope = (near[3] - far[3]) / (near[2] - far[2])
            at_second = weight * slope
            at_acted = functional.conv_transpose2d(at_second, net.second.weight, stride=2, padding=1, output_padding=1)
            coarse.append((at_second * (near[2] - far[2])).sum(dim=1))
            fine.append((at_acted * (near[1] - far[1])).sum(dim=1))
            changes.append(float((weight * (near[3] - far[3])).sum()))
    change = np.mean(changes)
    maps, sides = [], []
    for places in (fine, coarse):
        each = torch.stack(places)
        assert float(each.mean(dim=0).sum()) == pytest.approx(change)  # complete at either depth
        for group, mean in ((maps, each.mean(dim=0)), (sides, (each * np.sign(change)).clamp(min=0).mean(dim=0))):
            large = functional.interpolate(mean[None], (8, 8), mode="bilinear", align_corners=False)[0, 0].numpy()
            group.append(large / np.abs(large).sum())
    if signed:
        mean = (maps[0] + maps[1]) / 2
        values = mean / np.abs(mean).sum() * abs(change)
        values += (change - values.sum()) * np.abs(values) / np.abs(values).sum()
        return values
    weight = np.prod(sides, axis=0)
    return change * weight / weight.sum()


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("inplace", [False, True])
def test_it_is_its_replica(signed: bool, inplace: bool):
    attribution = ig2.Strata(["act", "second"], signed)(small(inplace=inplace), X, TARGET, REFERENCES)
    change = attribution.output - attribution.baseline_output
    assert (change > 0).any() and (change < 0).any()
    for i, target in enumerate(TARGET):
        values = replicate(small(), X[i], target, REFERENCES, signed)
        np.testing.assert_allclose(attribution.values[i].sum(dim=0).numpy(), values, rtol=0, atol=1e-12)
    assert torch.equal(attribution.values[:, 0], attribution.values[:, 1])  # channels share alike
    assert float(attribution.residual.abs().max()) < 1e-12


def test_values_have_the_sign_of_the_change_and_sum_to_it():
    attribution = ig2.Strata(["act", "second"])(small(), data(20, 2, 8, 8, seed=5), 0, REFERENCES)
    change = attribution.output - attribution.baseline_output
    assert (change > 0).any() and (change < 0).any()
    assert (attribution.values * change.sign()[:, None, None, None] >= 0).all()
    torch.testing.assert_close(attribution.values.flatten(1).sum(dim=1), change, rtol=0, atol=1e-12)
    assert attribution.settings["complete"]


@pytest.mark.parametrize("batch_size", [1, 5])
def test_batches_change_nothing(batch_size: int):
    method = ig2.Strata(["act", "second"])
    whole = method(small(), X, TARGET, REFERENCES)
    torch.testing.assert_close(
        method(small(), X, TARGET, REFERENCES, batch_size=batch_size).values, whole.values, rtol=0, atol=1e-13
    )
    alone = method(small(), X[1:2], TARGET[1], REFERENCES)
    torch.testing.assert_close(alone.values[0], whole.values[1], rtol=0, atol=1e-13)


def test_a_contrast_of_classes_is_a_difference_of_outputs():
    net = small()
    against = ig2.Strata(["act", "second"])(net, X, 0, REFERENCES, against=2)
    difference = ig2.wrap(net, output=lambda scores: scores[:, 0] - scores[:, 2])
    torch.testing.assert_close(
        against.values, ig2.Strata(["act", "second"])(difference, X, references=REFERENCES).values, rtol=0, atol=1e-13
    )


def test_weights_of_references_enter_the_mean():
    weighted = ig2.references.Weighted(REFERENCES, [0, 1, 3, 0])
    method = ig2.Strata(["act", "second"])
    repeated = method(small(), X, 0, REFERENCES[[1, 2, 2, 2]])
    torch.testing.assert_close(method(small(), X, 0, weighted).values, repeated.values, rtol=0, atol=1e-13)


def test_it_costs_two_passes_and_a_gradient_for_each_pair():
    cost = ig2.Strata(["act", "second"])(small(), X, 0, REFERENCES).cost
    assert (cost.forwards, cost.gradients) == (3 + 2 * 12, 12)


# -- layers ------------------------------------------------------------------------------------------------------------


class Branched(nn.Module):
    """A residual block, a stage at half the size, and one at a quarter."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.stem = nn.Conv2d(1, 3, 3, padding=1)
        self.inside = nn.Conv2d(3, 3, 3, padding=1)  # not all of the input passes through it
        self.join = nn.Identity()
        self.reduce = nn.Conv2d(3, 2, 1)  # beside a shortcut, as where a ResNet goes to half the size
        self.shrink = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.shortcut = nn.Conv2d(3, 4, 1, stride=2)
        self.down = nn.ReLU()
        self.last = nn.Sequential(nn.Conv2d(4, 5, 3, stride=2, padding=1), nn.ReLU())
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = self.join(x + self.inside(x).relu())
        x = self.down(self.shrink(self.reduce(x).relu()) + self.shortcut(x))
        return self.head(self.last(x).mean(dim=(2, 3)))


def cuts_of(net: nn.Module, x: Tensor) -> list[tuple[tuple[int, ...], str]]:
    from ig2._engine.session import open_session
    from ig2.model import as_model

    with open_session(as_model(net), x) as session:
        return [(grid, layer.name) for grid, layer in session.find_cuts(x.ndim)]


def test_cuts_are_what_all_of_the_input_passes_through():
    net = Branched().eval()
    assert cuts_of(net, torch.rand(2, 1, 32, 32)) == [((32, 32), "join"), ((16, 16), "down"), ((8, 8), "last")]


def test_the_default_layers_are_the_finest_two_grids_of_7_to_40_places():
    net, x, references = Branched().eval(), torch.rand(2, 1, 60, 60), torch.rand(3, 1, 60, 60)
    default = ig2.Strata()(net, x, 0, references).values
    torch.testing.assert_close(default, ig2.Strata(["down", "last"])(net, x, 0, references).values)
    assert not torch.allclose(default, ig2.Strata(["join", "down"])(net, x, 0, references).values)
    tiny = ig2.Strata()(net, x[..., :8, :8], 0, references[..., :8, :8]).values  # grids of 8, 4 and 2
    torch.testing.assert_close(tiny, ig2.Strata(["join"])(net, x[..., :8, :8], 0, references[..., :8, :8]).values)


def test_a_grid_with_a_margin_is_no_depth_of_its_own():
    def shrink(before: int, after: int) -> list[nn.Module]:
        return [nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(before, after, 3, stride=2), nn.ReLU()]

    torch.manual_seed(0)
    net = nn.Sequential(*shrink(1, 3), *shrink(3, 4), *shrink(4, 5), nn.Flatten(), nn.Linear(5 * 16, 2)).eval()
    x, references = torch.rand(2, 1, 32, 32), torch.rand(3, 1, 32, 32)
    assert [max(grid) for grid, _ in cuts_of(net, x)] == [33, 17, 16, 9, 8, 4]
    even = ig2.Strata(["2", "5"])(net, x, 0, references).values  # 16 and 8
    torch.testing.assert_close(ig2.Strata()(net, x, 0, references).values, even)


def test_grids_that_do_not_divide_the_picture_serve_where_none_does():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Conv2d(3, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten())
    net.append(nn.Linear(4 * 36, 2)).eval()
    x, references = torch.rand(2, 1, 17, 17), torch.rand(3, 1, 17, 17)
    assert [max(grid) for grid, _ in cuts_of(net, x)] == [15, 13, 6]
    torch.testing.assert_close(ig2.Strata()(net, x, 0, references).values, ig2.Strata(["0"])(net, x, 0, references).values)


def test_a_layer_that_the_next_one_writes_into_is_read_after_it():
    writing, plain = (ig2.Strata(["first"])(small(inplace=inplace), X, 0, REFERENCES).values for inplace in (True, False))
    torch.testing.assert_close(writing, plain, rtol=0, atol=1e-13)  # a place keeps its sum from one to the other


def test_the_network_is_left_as_it_was():
    net = small()
    ig2.Strata()(net, X, 0, REFERENCES)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_no_contribution_at_all_is_shared_equally_over_what_there_is():
    attribution = ig2.Strata(["act", "second"])(small(), X[:1], 0, X[:1])  # the reference is the explicand
    assert float(attribution.values.abs().max()) < 1e-12


class Rolled(nn.Module):
    """Two layers, the second with everything two places further."""

    def __init__(self) -> None:
        super().__init__()
        self.act, self.again = nn.ReLU(), nn.ReLU()
        self.register_buffer("weight", torch.tensor([0.0, 0.0, 1.0, -1.0], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (self.again(self.act(x).roll(2, dims=3)) * self.weight).flatten(1).sum(dim=1, keepdim=True)


@pytest.mark.parametrize("x", [[3.0, 1.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0]])
def test_where_no_place_contributes_at_every_depth_those_do_that_contribute_to_the_mean(x: list[float]):
    # 3 and −1 at the first two places of one layer and at the last two of the other: the larger gives the change its sign
    values = ig2.Strata(["act", "again"])(Rolled(), torch.tensor(x).double().view(1, 1, 1, 4), references=0).values
    expected = [1.0, 0.0, 1.0, 0.0] if x[0] > x[1] else [0.0, -1.0, 0.0, -1.0]
    torch.testing.assert_close(values.flatten(), torch.tensor(expected, dtype=torch.float64))


def test_it_fits_a_network_with_two_depths_or_with_the_layers_named():
    class OwnGradient(nn.Sequential):
        """It takes a gradient itself, which secants would change."""

        def forward(self, x: Tensor) -> Tensor:
            with torch.enable_grad():
                x = x if x.requires_grad else x.detach().requires_grad_()
                scores = super().forward(x)
                (slopes,) = torch.autograd.grad(scores.sum(), x, create_graph=True)
            return scores + slopes.flatten(1).sum(dim=1, keepdim=True)

    def build(*strides: int, kind: type[nn.Sequential] = nn.Sequential) -> nn.Module:
        convolutions = [nn.Conv2d(2 if not i else 3, 3, stride, stride) for i, stride in enumerate(strides)]
        return kind(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)).eval()

    grey = torch.full((1, 2, 64, 64), 0.5)
    assert ig2.Strata().fits(build(2, 2), grey)
    assert not ig2.Strata().fits(build(2), grey)
    assert ig2.Strata(["0"]).fits(build(2), grey)
    assert not ig2.Strata(["none"]).fits(build(2), grey)
    own = build(2, 2, kind=OwnGradient)
    assert not ig2.Strata().fits(own, grey) and ig2.Gradient()(own, grey).values.isfinite().all()


@pytest.mark.parametrize(
    ("error", "word", "call"),
    [
        (InputError, "places|images", lambda: ig2.Strata()(nn.Linear(4, 2), torch.rand(2, 4), references=0)),
        (InputError, "references", lambda: ig2.Strata()(small(), X)),
        (InputError, "layers", lambda: ig2.Strata("act")),
        (InputError, "layers", lambda: ig2.Strata([])),
        (InputError, "layers .* got 3", lambda: ig2.Strata(3)),
        (InputError, "layers", lambda: ig2.Strata([None])),
        (InputError, "layers", lambda: ig2.Strata({"act"})),
        (InputError, "act", lambda: ig2.Strata(["atc"])(small(), X, 0, REFERENCES)),
        (InputError, "map of the places", lambda: ig2.Strata(["head"])(small(), X, 0, REFERENCES)),
        (
            ModelError,
            "layers",
            lambda: ig2.Strata()(nn.Sequential(nn.Flatten(), nn.Linear(128, 2)).double(), X, 0, REFERENCES),
        ),
    ],
)
def test_errors_say_what_is_wrong(error: type[Exception], word: str, call):
    refuses(error, word, call)
