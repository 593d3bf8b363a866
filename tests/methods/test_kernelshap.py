"""KernelSHAP against Shapley values by their definition, and its groups."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import ig2
from ig2.groups import Grid, Superpixels
from ig2.methods.kernelshap import KernelSHAP, _Design
from networks import randn, spread_weights


def network(features, outputs=1):
    return spread_weights(
        nn.Sequential(nn.Linear(features, 12), nn.Tanh(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, outputs))
    )


@torch.no_grad()
def shapley(f, x, references, groups=None):
    """Shapley values of one sample's groups: the mean of a group's marginal worth over all orders in which groups come."""
    groups = torch.arange(x.numel()).view(x.shape) if groups is None else groups
    names = groups.unique().tolist()

    def worth(coalition):
        present = torch.isin(groups, torch.tensor(coalition, dtype=torch.long)).expand(x.shape)
        return float(f(torch.where(present, x, references)).mean())

    known = {c: worth(c) for size in range(len(names) + 1) for c in itertools.combinations(names, size)}
    values = dict.fromkeys(names, 0.0)
    orders = list(itertools.permutations(names))
    for order in orders:
        for i, name in enumerate(order):
            with_it, without = tuple(sorted(order[: i + 1])), tuple(sorted(order[:i]))
            values[name] += (known[with_it] - known[without]) / len(orders)
    return torch.tensor([values[name] for name in names], dtype=torch.float64)


@pytest.mark.parametrize("features", [1, 2, 3, 4, 5, 6])
def test_equals_exact_shapley_values(features):
    net = network(features, 2)
    x, references = 2 * randn(2, features), 2 * randn(3, features, seed=1)
    found = KernelSHAP()(net, x, target=1, references=references)
    for row in range(2):
        expected = shapley(lambda z: net(z)[:, 1], x[row], references)
        torch.testing.assert_close(found.values[row], expected, rtol=0, atol=1e-9)
    assert found.residual.abs().max() < 1e-12
    if features > 1:  # the check can fail: the values are not those of a straight line
        gradients = ig2.IntegratedGradients()(net, x, target=1, references=references[:1]).values
        assert (found.values - gradients).abs().max() > 1e-3


@pytest.mark.slow
def test_equals_shap_on_a_small_model():
    shap = pytest.importorskip("shap")
    net = network(6, 3)
    x, references = randn(3, 6), randn(4, 6, seed=1)
    found = KernelSHAP()(net, x, target=2, references=references)

    def score(rows):
        with torch.no_grad():
            return net(torch.as_tensor(rows))[:, 2].numpy()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = shap.KernelExplainer(score, references.numpy()).shap_values(x.numpy(), silent=True, l1_reg=0)
    np.testing.assert_allclose(found.values.numpy(), theirs, atol=1e-6)


def test_a_linear_network_is_exact_however_few_the_coalitions():
    weights = randn(20)
    x, references = randn(3, 20, seed=1), randn(2, 20, seed=2)
    found = KernelSHAP(samples=40)(lambda z: z @ weights, x, references=references)  # as few as can be
    torch.testing.assert_close(found.values, (x - references.mean(dim=0)) * weights)


@pytest.mark.parametrize("samples", [28, 29, 50, 500, 5000])
def test_sampled_values_sum_exactly(samples):
    net = network(14)
    found = KernelSHAP(samples=samples)(net, 2 * randn(3, 14), references=randn(2, 14, seed=1))
    assert found.residual.abs().max() < 1e-12
    assert (found.output - found.baseline_output).abs().max() > 0.1


def test_sampled_values_converge_to_the_exact_ones_and_reach_them():
    net, x = network(12), 2 * randn(2, 12)
    exact = KernelSHAP(samples=2**12 - 2)(net, x).values
    everything = shapley_by_subsets(net, x[0])
    torch.testing.assert_close(exact[0], everything, rtol=0, atol=1e-9)
    errors = [
        sum(float((KernelSHAP(samples=n)(net, x, seed=seed).values - exact).square().mean()) for seed in range(4)) ** 0.5
        for n in (32, 128, 512, 2048)
    ]
    for few, many in itertools.pairwise(errors):
        assert many < 0.75 * few  # 0.5 where errors fall as one over the root of the number
    assert errors[-1] < 0.1 * errors[0]


@torch.no_grad()
def shapley_by_subsets(net, x):
    """The same by the formula over subsets, for more features than there is time for orders. The reference is zero."""
    count = len(x)
    masks = torch.tensor(list(itertools.product([False, True], repeat=count)))
    worth = net(torch.where(masks, x, 0.0))[:, 0]
    place = 2 ** torch.arange(count - 1, -1, -1)
    sizes = masks.sum(dim=1)
    values = torch.zeros(count, dtype=x.dtype)
    for i in range(count):
        without = ~masks[:, i]
        weight = torch.tensor([1 / (count * math.comb(count - 1, k)) for k in range(count)], dtype=torch.float64)
        index = (masks[without] * place).sum(dim=1)
        values[i] = (weight[sizes[without]] * (worth[index + place[i]] - worth[index])).sum()
    return values


def test_the_design_takes_every_coalition_once_when_it_can():
    for groups in range(2, 9):
        design = _Design.of(groups, 2**groups - 2, torch.Generator().manual_seed(0))
        assert len(design.coalitions.unique(dim=0)) == len(design.coalitions) == 2**groups
        sizes = design.coalitions[2:].sum(dim=1).double()
        kernel = 1 / (torch.tensor([math.comb(groups, int(s)) for s in sizes]).double() * sizes * (groups - sizes))
        torch.testing.assert_close(design.weights, kernel)


@pytest.mark.parametrize(("groups", "samples"), [(10, 20), (10, 21), (10, 200), (11, 300), (30, 1000), (100, 600)])
def test_a_sampled_design_is_distinct_paired_and_within_its_budget(groups, samples):
    design = _Design.of(groups, samples, torch.Generator().manual_seed(0))
    tried = design.coalitions[2:]
    assert len(tried) == len(design.weights) <= samples
    rows = {tuple(row): float(weight) for row, weight in zip(tried.tolist(), design.weights, strict=True)}
    assert len(rows) == len(tried)
    for row, weight in rows.items():
        assert rows[tuple(not member for member in row)] == pytest.approx(weight)
    sizes = tried.sum(dim=1)
    assert (sizes == 1).sum() == groups  # the first size is whole
    if samples >= 200:  # every size weighs what the kernel gives it
        for size in range(1, groups):
            expected = 1 / (size * (groups - size))
            assert float(design.weights[sizes == size].sum()) == pytest.approx(expected, abs=2 / samples)


@pytest.mark.parametrize(("samples", "whole"), [(150, False), (260, False), (280, True)])
def test_a_size_is_taken_whole_once_as_many_draws_would_fall_on_it(samples, whole):
    """Guards against whole sizes as long as they fit, which leaves few draws to the many coalitions in the middle."""
    # of 10 groups, pairs and their complements are 90 coalitions with 4/11 of what the kernel leaves for sizes 2 to 8
    sizes = _Design.of(10, samples, torch.Generator().manual_seed(0)).coalitions[2:].sum(dim=1)
    assert (int(((sizes == 2) | (sizes == 8)).sum()) == 90) == whole


# -- groups --------------------------------------------------------------------------------------------------------------


def curved(images):
    """Every pixel beside its neighbour, in a function that is not additive."""
    return (images[..., 1:] * images[..., :-1]).flatten(1).sum(dim=1).tanh() + images.flatten(1).square().mean(dim=1)


def divided(values, groups, shape):
    """Values of groups, equally on the features of each."""
    wide = groups.expand(shape)
    _, index, sizes = wide.unique(return_inverse=True, return_counts=True)
    return (values / sizes)[index]


def test_a_mask_in_each_of_its_shapes():
    x, references = randn(3, 2, 3, 4), randn(2, 2, 3, 4, seed=1)
    mask = torch.tensor([[7, 7, 3, 3], [7, 5, 5, 3], [1, 1, 1, 1]])
    found = KernelSHAP(mask)(curved, x, references=references)
    for row in range(3):
        expected = divided(shapley(curved, x[row], references, mask.expand(2, 3, 4)), mask, (2, 3, 4))
        torch.testing.assert_close(found.values[row], expected, rtol=0, atol=1e-9)
    assert found.residual.abs().max() < 1e-12
    for same in (mask.expand(2, 3, 4), mask.expand(3, 1, 3, 4), mask.expand(3, 2, 3, 4), mask.expand(3, 3, 4), mask.int()):
        other = KernelSHAP(same)(curved, x, references=references)
        torch.testing.assert_close(other.values, found.values)


def test_each_explicand_may_have_its_own_mask():
    x = randn(2, 1, 2, 4)
    masks = torch.tensor([[[0, 0, 1, 1], [2, 2, 2, 2]], [[0, 1, 2, 3], [3, 3, 4, 4]]])[:, None]
    found = KernelSHAP(masks)(curved, x)
    for row in range(2):
        expected = divided(shapley(curved, x[row], torch.zeros_like(x[:1]), masks[row]), masks[row], (1, 2, 4))
        torch.testing.assert_close(found.values[row], expected, rtol=0, atol=1e-9)


def test_a_grid_divides_the_image():
    x = randn(2, 3, 6, 5)
    labels = Grid(3, 2).labels(x)
    assert labels.expand(x.shape).unique().tolist() == [0, 1, 2, 3, 4, 5]
    assert labels[0, 0, :, 0].tolist() == [0, 0, 2, 2, 4, 4]
    assert labels[0, 0, 0].tolist() == [0, 0, 0, 1, 1]
    found = KernelSHAP(Grid(3, 2))(curved, x)
    same = KernelSHAP(labels[0, 0])(curved, x)
    torch.testing.assert_close(found.values, same.values)
    assert KernelSHAP(Grid(2, 2))(curved, x[:, 0]).values.shape == (2, 6, 5)  # without channels
    assert KernelSHAP(Grid(6, 5))(curved, x).residual.abs().max() < 1e-12


@pytest.mark.parametrize("channels", [1, 3])
def test_superpixels_follow_the_image(channels):
    pytest.importorskip("skimage")
    x = torch.full((2, channels, 24, 24), 0.1)
    x[0, :, :, 9:] = 0.9
    x[1, :, 15:] = 0.9
    labels = Superpixels(8).labels(x)
    for i, part in enumerate((x[0, 0] > 0.5, x[1, 0] > 0.5)):
        inside, outside = labels[i, 0][part].unique(), labels[i, 0][~part].unique()
        assert not torch.isin(inside, outside).any()  # none crosses the edge
        assert len(inside) + len(outside) > 3
    found = KernelSHAP(Superpixels(8))(curved, x)
    assert found.residual.abs().max() < 1e-5
    for i in range(2):
        for label in labels[i, 0].unique():
            assert found.values[i][:, labels[i, 0] == label].std() < 1e-6
    assert Superpixels(8).labels(x[:, 0]).shape == (2, 24, 24)
    assert Superpixels(4).labels(torch.zeros(1, channels, 8, 8)).shape == (1, 1, 8, 8)  # a constant image


def test_groups_equal_to_the_references_are_left_out_and_get_zero():
    net = network(24)
    x = randn(2, 24)
    x[0, 4:] = 0  # 4 features are left: few enough to be exact
    found = KernelSHAP(samples=48)(net, x)
    expected = shapley(
        lambda z: net(torch.cat([z, z.new_zeros(len(z), 20)], dim=1))[:, 0], x[0, :4], torch.zeros(1, 4).double()
    )
    torch.testing.assert_close(found.values[0, :4], expected, rtol=0, atol=1e-9)
    assert (found.values[0, 4:] == 0).all()
    assert (found.values[1] != 0).all()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        *(
            (lambda groups=groups: KernelSHAP(groups), "groups must be")
            for groups in ("grid", 3, torch.zeros(3, 3), torch.tensor(1))
        ),
        *((lambda samples=samples: KernelSHAP(samples=samples), "samples must be") for samples in (0, -3, 2.5, True)),
        (lambda: Grid(0, 2), "positive"),
        (lambda: Grid(2, 2.0), "positive"),
        (lambda: Superpixels(0), "positive"),
        (lambda: Superpixels(3, 0), "positive"),
        (lambda: KernelSHAP(Grid(7, 5))(curved, randn(2, 3, 6, 5)), "more cells"),
        (lambda: KernelSHAP(Grid(2, 2))(network(4), randn(1, 4)), "images"),
        (lambda: KernelSHAP(torch.tensor([0, 1, 2]))(network(4), randn(2, 4)), r"fit neither a sample \(4,\)"),
        (lambda: KernelSHAP(samples=19)(network(10), randn(1, 10)), r"samples=19 cannot distinguish the 10 groups .* takes 20"),
        (lambda: KernelSHAP()(lambda x: x.sum(dim=1), torch.ones(1, 5000)), "Grid"),
    ],
)
def test_settings_and_groups_that_cannot_be_used_are_refused(make, said):
    with pytest.raises(ig2.InputError, match=said):
        make()


# -- what users bring ----------------------------------------------------------------------------------------------------


def test_the_seed_decides_and_neither_the_batch_nor_global_state():
    net, x, references = network(14), 2 * randn(3, 14), randn(2, 14, seed=1)
    state = torch.get_rng_state()
    whole, other = (KernelSHAP(samples=100)(net, x, references=references, seed=seed).values for seed in (1, 2))
    assert (whole != other).any() and (torch.get_rng_state() == state).all()
    for rows, size in ((slice(None), 1), (slice(None), 7), (slice(1, 2), "auto")):
        part = KernelSHAP(samples=100)(net, x[rows], references=references, seed=1, batch_size=size)
        torch.testing.assert_close(part.values, whole[rows], rtol=0, atol=1e-12)


def test_outputs_held_at_once_are_bounded(monkeypatch):
    net, x, references = network(6), 2 * randn(5, 6), randn(2, 6, seed=1)
    whole = KernelSHAP()(net, x, references=references)
    monkeypatch.setattr("ig2.methods.kernelshap.MOST_OUTPUTS", 2 * 2 * 64)
    torch.testing.assert_close(KernelSHAP()(net, x, references=references).values, whole.values, rtol=0, atol=1e-12)


def test_several_references_give_mean_and_spread():
    net, x, references = network(5, 2), randn(2, 5), randn(2, 3, 5, seed=1)
    found = KernelSHAP()(net, x, references=references)
    alone = torch.stack(
        [KernelSHAP()(net, x, target=found.target, references=references[:, r : r + 1]).values for r in range(3)], dim=1
    )
    torch.testing.assert_close(found.values, alone.mean(dim=1))
    torch.testing.assert_close(found.spread, alone.std(dim=1))
    torch.testing.assert_close(found.baseline_outputs[0], net(references[0])[:, found.target[0]].detach())


def test_a_reference_equal_to_the_explicand_and_a_constant_network_give_zeros():
    x = randn(1, 5)
    assert (KernelSHAP()(network(5), x, references=x).values == 0).all()
    found = KernelSHAP()(lambda z: z.sum(dim=1) * 0 + 3, x)
    assert found.values.abs().max() < 1e-12
    assert float(found.baseline_output) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_comes_close(dtype):
    net, x = network(6, 3), randn(3, 6)
    exact = KernelSHAP()(net, x, target=1).values
    found = KernelSHAP()(net.to(dtype), x.to(dtype), target=1).values
    assert found.dtype == torch.float32
    assert (found - exact).abs().max() < 16 * torch.finfo(dtype).eps * exact.abs().max()


def test_several_inputs_and_fixed_ones():
    def net(a, b, factor):
        return a.flatten(1).prod(dim=1) * factor + b.square().sum(dim=1)

    x = (randn(2, 2, 1), randn(2, 3, seed=1), ig2.Fixed(torch.tensor([1.0, 2.0]).double()))
    found = KernelSHAP()(net, x)
    product = x[0].flatten(1).prod(dim=1) * x[2].value
    torch.testing.assert_close(found.values[0], (product / 2)[:, None, None].expand(2, 2, 1))
    torch.testing.assert_close(found.values[1], x[1].square())
    whole = KernelSHAP(torch.tensor([0, 0, 1, 1, 1]))(net, x)
    torch.testing.assert_close(whole.values[0], (product / 2)[:, None, None].expand(2, 2, 1))
    torch.testing.assert_close(whole.values[1], x[1].square().mean(dim=1, keepdim=True).expand(2, 3))


def test_an_output_that_is_not_finite_is_an_error():
    with pytest.raises(ig2.ModelError, match="reference 0 replaces a part of explicand 0"):
        KernelSHAP()(lambda x: 1 / x.sum(dim=1), torch.tensor([[1.0, -1.0, 1.0]]))


def test_progress_reaches_its_end_and_settings_say_what_ran():
    told = []
    found = KernelSHAP(Grid(2, 2), samples=30)(curved, randn(2, 1, 4, 4), batch_size=5, progress=lambda *at: told.append(at))
    assert told[-1] == (2 * 16, 2 * 16)
    assert found.settings["parts"]["groups"] == {"type": "Grid", "rows": 2, "columns": 2}
    assert found.settings["references"] == {"type": "Zeros"}
