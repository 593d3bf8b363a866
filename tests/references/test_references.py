"""Whom an explicand is contrasted with: every strategy, what it draws and what it refuses."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import ig2
from ig2.errors import InputError
from ig2.methods.base import Result
from ig2.model import YES_ABOVE
from ig2.paths import L2, Descent, GradPath, Sign, Straight
from ig2.references import (
    BlurredExplicand,
    Boundary,
    Constant,
    Given,
    GradCF,
    MaximalDistance,
    NearestLabels,
    NoisedExplicand,
    NormalClass,
    OtherClasses,
    RandomSamples,
    Relevant,
    UniformNoise,
    Union,
    White,
    Zeros,
    interleave,
    round_robin,
)  # fmt: skip
from networks import data, multi_label, relu_cnn, seeded, tanh_mlp
from replicas import blur as slow_blur


def drawn(strategy, model, x, target=None, **options):
    """References (B, R, ...) as a method got them: the last points of straight paths to them."""
    paths = ig2.PathMethod(Straight(1), strategy, None)(model, x, target, paths=True, **options).paths
    return tuple(path[:, :, -1] for path in paths) if isinstance(paths, tuple) else paths[:, :, -1]


class Watched:
    """A pool that is no tensor, hands out (sample, label) and remembers who was asked for."""

    def __init__(self, samples):
        self.samples = samples
        self.asked = []

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        self.asked.append(number)
        return self.samples[number], number % 3


def numbers_of(found, pool):
    """Which samples of the pool the references are, as lists of numbers."""
    same = (found.flatten(2)[:, :, None] == pool.flatten(1)).all(dim=-1)
    assert (same.sum(dim=-1) == 1).all()
    return same.long().argmax(dim=-1).tolist()


POOL = data(24, 6, seed=5)
LABELS = torch.arange(24) % 3
NET = tanh_mlp()
X = data(4, 6, seed=1)


# -- without data ------------------------------------------------------------------------------------------------------


def test_constants_fill_the_sample():
    bounded, row = ig2.wrap(NET, bounds=(-2, 3)), data(6)
    for strategy, model, value in ((Zeros(), NET, 0), (White(), NET, 1), (White(), bounded, 3), (0.25, NET, 0.25)):
        assert torch.equal(drawn(strategy, model, X), torch.full((4, 1, 6), value, dtype=torch.float64))
    assert torch.equal(drawn(Constant(row), NET, X), row.expand(4, 1, 6))
    # white is each channel's upper bound
    upper = torch.tensor([1.0, 2.0], dtype=torch.float64).reshape(2, 1, 1)
    white = drawn(White(), ig2.wrap(relu_cnn(), bounds=(0.0, upper)), data(2, 2, 8, 8, low=0))
    assert torch.equal(white, upper.expand(2, 1, 2, 8, 8))


@pytest.mark.slow
def test_uniform_noise_stays_in_its_range_and_fills_it():
    noise = drawn(UniformNoise(2000, low=-1, high=3), NET, X)
    assert noise.shape == (4, 2000, 6)
    assert -1 <= noise.min() < -0.99 and 2.99 < noise.max() <= 3
    assert abs(float(noise.mean()) - 1) < 0.05
    bounded = drawn(UniformNoise(50), ig2.wrap(NET, bounds=(-1, 1)), X)
    assert bounded.abs().max() <= 1 and bounded.abs().max() > 0.9


def test_noised_explicand_has_the_deviation_asked_for_and_stays_inside_the_bounds():
    noised = drawn(NoisedExplicand(0.5, count=3000), NET, X) - X[:, None]
    assert noised.std() == pytest.approx(0.5, rel=0.03)
    assert torch.allclose(noised[0], noised[1], atol=1e-12)  # the same noise for each explicand
    inside = drawn(NoisedExplicand(5.0, count=20), ig2.wrap(NET, bounds=(-1, 1)), X)
    assert inside.abs().max() == 1


def test_maximal_distance_is_the_farther_end_of_the_range():
    x = torch.tensor([[0.1, 0.9, 0.5, 0.4, 0.6, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[[1.0, 0.0, 1.0, 1.0, 0.0, 1.0]]], dtype=torch.float64)
    assert torch.equal(drawn(MaximalDistance(), ig2.wrap(NET, bounds=(0, 1)), x), expected)
    assert torch.equal(drawn(MaximalDistance(low=0, high=1), NET, x), expected)


def test_blurred_explicand_is_the_blurred_image():
    net, x = relu_cnn(), data(2, 2, 8, 8)
    found = drawn(BlurredExplicand(1.5), net, x)
    for sample, blurred in zip(x, found[:, 0], strict=True):
        assert torch.allclose(blurred, torch.from_numpy(slow_blur(sample.numpy(), 1, 1.5, "reflect")[-1]), atol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda: UniformNoise(0),
        lambda: NoisedExplicand(0.1, count=1.5),
        lambda: RandomSamples(POOL, count=True),
        lambda: OtherClasses(POOL, LABELS, per_class=0),
        lambda: NormalClass(POOL, LABELS, 0, count=-1),
        lambda: NearestLabels(POOL, torch.zeros(24, 4), count=0),
        lambda: Relevant(POOL, LABELS, per_class=None),
        lambda: Relevant(POOL, LABELS, top_k=0),
    ],
)
def test_how_many_must_be_a_positive_number(make):
    with pytest.raises(InputError, match="must be a positive integer"):
        make()


# -- given by the user -------------------------------------------------------------------------------------------------


def test_given_samples_are_shared_or_each_explicands_own():
    shared, own = data(3, 6, seed=2), data(4, 3, 6, seed=3)
    assert torch.equal(drawn(shared, NET, X), shared.expand(4, 3, 6))
    assert torch.equal(drawn(Given(own), NET, X), own)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (torch.zeros(6), "unsqueeze"),
        (torch.zeros(2, 5), r"\(2, 5\)"),
        (torch.zeros(3, 2, 6), r"\(3, 2, 6\)"),
        (torch.zeros(0, 6), "empty"),
        (torch.zeros(2, 6, dtype=torch.long), "floating-point"),
        (torch.full((2, 6), torch.nan), "NaN"),
        ("black", "got 'black'"),
        (True, "got True"),
        (Constant(torch.zeros(5)), r"does not fit a sample \(6,\)"),
        *((strategy, "data's range") for strategy in (UniformNoise(), MaximalDistance(), UniformNoise(low=0))),
        (BlurredExplicand(), "needs images"),
        (GradCF("black"), "references must be samples"),
        *((RandomSamples(pool, 2), "a pool must be samples") for pool in (3.0, iter(POOL))),
        *((RandomSamples(pool, 2), "the pool is empty") for pool in (POOL[:0], [])),
        (RandomSamples(POOL[:, :5], 2), r"of the pool is Tensor float64 \(5,\), x has \(6,\)"),
        (RandomSamples(POOL.long(), 2), "floating-point"),
        (RandomSamples(POOL.numpy(), 2), "torch.as_tensor converts arrays"),
        (RandomSamples([{"image": sample} for sample in POOL], 2), "must be a torch tensor"),
        (RandomSamples(POOL * torch.nan, 2), "NaN"),
    ],
)
def test_references_and_pools_that_cannot_be_used_are_refused(wrong, said):
    with pytest.raises(InputError, match=said):
        drawn(wrong, NET, X)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: NoisedExplicand(0), "sigma"),
        (lambda: Union(), "at least one strategy"),
        (lambda: Union(Zeros(), "white"), "got 'white'"),
        (lambda: GradCF(POOL, Straight()), "counterfactual"),
        (lambda: GradCF(POOL, "grad"), "counterfactual"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, said):
    with pytest.raises(InputError, match=said):
        make()


BRIGHT, INSIDE = data(24, 6, seed=5, low=0), data(4, 6, seed=1, low=0)


@pytest.mark.parametrize(
    "strategy",
    [
        BRIGHT * 255,
        (BRIGHT * 255).expand(4, 24, 6),
        255.0,
        Constant(torch.full((6,), 255.0)),
        RandomSamples(BRIGHT * 255, 24),
        OtherClasses(BRIGHT * 255, LABELS, 8),
        Union(Zeros(), BRIGHT * 255),
        GradCF(BRIGHT * 255),
        UniformNoise(9, 0, 255),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
@pytest.mark.parametrize("method", [ig2.IG2(2), ig2.ExpectedIG(2), ig2.KernelSHAP(), ig2.DeepSHAP(), ig2.GuidedIG(2)])
def test_references_outside_the_bounds_are_refused_as_x_is(strategy, method):
    model = ig2.wrap(NET, bounds=(0, 1))
    with pytest.raises(InputError, match=r"references reach from .* to 2.*bounds \(0, 1\): take references / 255, or"):
        method(model, INSIDE, target=0, references=strategy)


def test_references_inside_the_bounds_by_all_but_rounding_are_taken():
    model = ig2.wrap(NET, bounds=(0, 1))
    assert torch.equal(drawn(BRIGHT / BRIGHT.max() + 1e-7, model, INSIDE), (BRIGHT / BRIGHT.max() + 1e-7).expand(4, 24, 6))
    drawn((BRIGHT / BRIGHT.max()).float(), model, INSIDE)
    drawn((BRIGHT / BRIGHT.max()).half(), model, INSIDE)
    with pytest.raises(InputError, match=r"references reach .*bounds \(0, 1\): scale references, or"):
        drawn(BRIGHT - 0.5, model, INSIDE)


def test_numbers_of_little_precision_that_lie_on_a_bound_are_inside():
    """0.3 is 0.3008 in bfloat16; and where one bound is infinite there is no range to take a share of."""

    def summed(x):
        return x.float().cumsum(dim=1)

    coarse, x = torch.full((1, 6), 0.3).bfloat16(), torch.zeros(2, 6)
    model = ig2.wrap(summed, bounds=(-0.3, 0.3))
    assert ig2.ExpectedIG(4)(model, x, references=coarse).values.isfinite().all()
    assert ig2.Gradient()(model, coarse).values.isfinite().all()
    with pytest.raises(InputError, match="references reach"):
        ig2.ExpectedIG(4)(model, x, references=1.05 * coarse)
    hardly_above = torch.full((2, 6), 0.1) * (1 + 2e-7)
    below = ig2.wrap(summed, bounds=(-torch.inf, 0.1))
    assert ig2.ExpectedIG(4)(below, x, references=hardly_above).values.isfinite().all()


def test_zero_is_zeros_wherever_the_bounds_are():
    model = ig2.wrap(NET, bounds=(0.5, 1))
    assert drawn(0, model, INSIDE / 2 + 0.5).eq(0).all() and drawn(0.0, model, INSIDE / 2 + 0.5).eq(0).all()
    with pytest.raises(InputError, match=r"references reach from 0\.25"):
        drawn(0.25, model, INSIDE / 2 + 0.5)


def test_baselines_that_methods_make_themselves_may_lie_outside_the_bounds():
    x = 0.5 + INSIDE / 2
    model = ig2.wrap(NET, bounds=(0.5, 1))
    smooth = ig2.SmoothGrad(ig2.IntegratedGradients(2), 2)
    for method in (ig2.IntegratedGradients(2), ig2.GuidedIG(2), ig2.KernelSHAP(), smooth):
        assert method(model, x).values.isfinite().all()
    assert (drawn(Union(Zeros(), White()), model, x)[:, 0] == 0).all()
    image = data(2, 2, 8, 8, low=0.5)
    network = ig2.wrap(relu_cnn(), bounds=(0.5, 1))
    blurred = BlurredExplicand(2), BlurredExplicand(2, "zero")
    for strategy in (*blurred, UniformNoise(2), NoisedExplicand(0.5), MaximalDistance()):
        assert drawn(strategy, network, image).isfinite().all()
    assert ig2.BlurIG(2)(network, image).values.isfinite().all()


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = tanh_mlp(10)

    def forward(self, first, second):
        return self.net(torch.cat([first, second.flatten(1)], dim=1))


def two_inputs(count, seed):
    return data(count, 4, seed=seed), data(count, 2, 3, seed=seed + 1)


def test_several_inputs_get_references_for_each():
    net, x, pool = TwoInputs(), two_inputs(3, 1), two_inputs(5, 7)
    for strategy in (Given(pool), Given(dict(enumerate(pool)))):
        first, second = drawn(strategy, net, x)
        assert torch.equal(first, pool[0].expand(3, 5, 4)) and torch.equal(second, pool[1].expand(3, 5, 2, 3))
    own = data(3, 2, 4), data(3, 2, 2, 3)
    first, second = drawn(own, net, x)
    assert torch.equal(first, own[0]) and torch.equal(second, own[1])
    assert all((part == 0).all() for part in drawn(Zeros(), net, x))
    first, second = drawn(GradCF(pool, GradPath(2, 0.1)), net, x)
    assert first.shape == (3, 5, 4) and second.shape == (3, 5, 2, 3)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (torch.zeros(2, 10), "must have a tensor for input 0"),
        ((torch.zeros(2, 4),), "must have a tensor for input 1"),
        ((torch.zeros(2, 4), torch.zeros(2, 6)), r"references\[1\]"),
        ((torch.zeros(2, 4), torch.zeros(3, 2, 3)), "differ in how many"),
    ],
)
def test_references_of_several_inputs_that_do_not_fit_are_refused(wrong, said):
    with pytest.raises(InputError, match=said):
        drawn(wrong, TwoInputs(), two_inputs(3, 1))


def test_a_sample_that_shares_one_of_several_inputs_with_the_explicand_is_not_the_explicand():
    """Guards against dropping a sample for one equal tensor: a constant column would leave no pool at all."""
    one, two = data(4, 3, seed=1), torch.ones(4, 2, dtype=torch.float64)
    x = (one[:1].clone(), two[:1].clone())
    found = drawn(RandomSamples((one, two), 3), lambda a, b: (a.sum(dim=1) + b.sum(dim=1))[:, None], x)
    assert sorted(found[0][0, :, 0].tolist()) == sorted(one[1:, 0].tolist())


def test_a_pool_of_several_inputs_has_a_tensor_for_each():
    net, x, pool = TwoInputs(), two_inputs(3, 1), two_inputs(6, 7)
    labels = torch.arange(6) % 3
    for strategy in (RandomSamples(pool, 4), OtherClasses(dict(enumerate(pool)), labels, per_class=2)):
        first, second = drawn(strategy, net, x)
        assert numbers_of(first, pool[0]) == numbers_of(second, pool[1])
    x = tuple(part[:3].clone() for part in pool)
    for row, numbers in enumerate(numbers_of(drawn(RandomSamples(pool, 5), net, x)[0], pool[0])):
        assert sorted([*numbers, row]) == list(range(6))
    with pytest.raises(InputError, match="must have a tensor for input 0"):
        drawn(RandomSamples(POOL, 2), net, x)


# -- GradCF ------------------------------------------------------------------------------------------------------------


def test_gradcf_is_where_gradpath_ends_and_leads_another_path_there():
    path = GradPath(steps=6, step_size=0.1)
    made = ig2.PathMethod(path)(NET, X, references=POOL[:3]).gradcf
    assert torch.allclose(drawn(GradCF(POOL[:3], path), NET, X), made, atol=1e-14)
    nested = drawn(GradCF(OtherClasses(POOL, LABELS), path), NET, X)
    assert nested.shape == (4, 2, 6)
    assert torch.allclose(nested, ig2.PathMethod(path)(NET, X, references=OtherClasses(POOL, LABELS)).gradcf, atol=1e-14)


class _Further(Straight):
    """A path that says it ends in a counterfactual: as far beyond the reference as the reference is away."""

    ends_in_counterfactual = True

    def vertices(self, pairs, numbers):
        return 2 * super().vertices(pairs, numbers) - pairs.explicand


def test_any_path_that_ends_in_a_counterfactual_makes_gradcf():
    ends = 2 * POOL[:3] - X[:, None]
    found = ig2.PathMethod(_Further(3))(NET, X, references=POOL[:3])
    torch.testing.assert_close(found.gradcf, ends)
    torch.testing.assert_close(found.gradcfe, X - ends.mean(dim=1))
    assert (found.steps_taken == 3).all() and ig2.PathMethod(Straight(3))(NET, X, references=POOL[:3]).gradcf is None
    torch.testing.assert_close(drawn(GradCF(POOL[:3], _Further(3)), NET, X), ends)


def test_the_boundary_is_the_nearest_point_of_all_attacks_in_whatever_order_they_come():
    sign, unit = Sign(), L2()
    sizes = ((0.1, sign), (0.4, unit), (0.15, unit), (0.7, sign))
    attacks = [Descent(20, size, norm) for size, norm in sizes]
    alone = torch.stack([drawn(Boundary((attack,)), NET, X)[:, 0] for attack in attacks])
    distances = (alone - X).norm(dim=2)
    assert len(distances.argsort(dim=0).unique(dim=1).T) > 1  # not in the same order for all
    for order in itertools.permutations(range(4), 3):
        nearest = alone[list(order)][distances[list(order)].argmin(dim=0), torch.arange(len(X))]
        found = drawn(Boundary(tuple(attacks[number] for number in order)), NET, X)[:, 0]
        torch.testing.assert_close(found, nearest, rtol=0, atol=1e-12)


# -- pools -------------------------------------------------------------------------------------------------------------

SEEDED = {
    "samples": RandomSamples(POOL, 5),
    "other classes": OtherClasses(POOL, LABELS, per_class=2),
    "normal class": NormalClass(POOL, LABELS, 0, count=4),
    "relevant": Relevant(POOL, LABELS, top_k=2, per_class=2),
    "nearest labels": NearestLabels(POOL, LABELS[:, None] == torch.arange(3), count=4),
    "uniform noise": UniformNoise(3, -1, 1),
    "noised explicand": NoisedExplicand(0.3, 3),
    "union": Union(Zeros(), RandomSamples(POOL, 3)),
}


@pytest.mark.parametrize("name", SEEDED)
def test_draws_depend_on_the_seed_and_the_explicand_alone(name):
    strategy, target = SEEDED[name], torch.tensor([1, 2, 1, 2])
    before = torch.get_rng_state()
    together = drawn(strategy, NET, X, target, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        assert torch.equal(drawn(strategy, NET, X, target, seed=3), together)
    assert torch.equal(together, drawn(strategy, NET, X, target, seed=3, batch_size=1))
    for row in range(4):
        alone = drawn(strategy, NET, X[row : row + 1], target[row : row + 1], seed=3)
        assert torch.equal(alone[0], together[row])
    shuffled = torch.tensor([2, 0, 3, 1])
    assert torch.equal(drawn(strategy, NET, X[shuffled], target[shuffled], seed=3), together[shuffled])
    assert not torch.equal(together, drawn(strategy, NET, X, target, seed=4))


def test_samples_are_drawn_without_replacement_and_never_the_explicand():
    x = torch.cat([POOL[[3, 17]], X[:1]])
    for seed in range(5):
        numbers = numbers_of(drawn(RandomSamples(POOL, 23), NET, x, seed=seed), POOL)
        assert sorted([*numbers[0], 3]) == list(range(24))
        assert sorted([*numbers[1], 17]) == list(range(24))
        assert len(set(numbers[2])) == 23
    with pytest.raises(InputError, match="explicand 0 needs 24 references; the pool has 23"):
        drawn(RandomSamples(POOL, 24), NET, x)


def test_every_sample_is_drawn_as_often_as_any_other():
    counts = torch.zeros(24)
    for seed in range(200):
        counts[numbers_of(drawn(RandomSamples(POOL, 6), NET, X[:1], seed=seed), POOL)[0]] += 1
    # 50 expected, standard deviation 6.1
    assert counts.min() > 25 and counts.max() < 75


def test_the_explicand_is_known_again_in_lower_precision():
    net = tanh_mlp().bfloat16()
    pool = POOL[:3].float()
    for seed in range(5):
        found = drawn(RandomSamples(pool, 2), net, pool[:1].bfloat16(), seed=seed)
        assert sorted(numbers_of(found, pool)[0]) == [1, 2]


def test_variants_of_an_explicand_are_not_contrasted_with_it():
    found = []

    class Moved(ig2.Method):
        def run(self, task, references, keep):
            found.append(references.draw(replace(task, x=task.x + 0.1)))
            return Result(task.x)

    Moved()(NET, POOL[:2], 0, RandomSamples(POOL, 23))
    numbers = numbers_of(found[0], POOL)
    assert 0 not in numbers[0] and 1 not in numbers[1]


def test_only_drawn_samples_are_read_and_each_once():
    pool = Watched(POOL)
    found = drawn(RandomSamples(pool, 5), NET, X)
    assert sorted(pool.asked) == sorted(set(pool.asked)) == sorted(numbers_of(found, POOL)[0])
    pool = Watched(POOL)
    found = drawn(OtherClasses(pool, LABELS, per_class=2), NET, X)
    assert len(pool.asked) == len(set(pool.asked)) <= 6
    assert torch.equal(found, drawn(OtherClasses(POOL, LABELS, per_class=2), NET, X))


def test_a_pool_may_be_a_list_or_a_dataset():
    expected = drawn(RandomSamples(POOL, 5), NET, X)
    for pool in (list(POOL), torch.utils.data.TensorDataset(POOL, LABELS), tuple(POOL)):
        assert torch.equal(drawn(RandomSamples(pool, 5), NET, X), expected)


def test_a_pool_goes_with_inputs_that_are_fixed():
    net = ig2.wrap(lambda x, scale: NET(x) * scale)
    x = (X, ig2.Fixed(torch.ones(4, 1, dtype=torch.float64)))
    (found,) = drawn(RandomSamples(POOL, 5), net, x)
    assert torch.equal(found, drawn(RandomSamples(POOL, 5), NET, X))


# -- unions ------------------------------------------------------------------------------------------------------------


def test_a_union_puts_references_side_by_side():
    own = data(4, 2, 6, seed=3)
    found = drawn(Union(Zeros(), White(), own, 0.5, RandomSamples(POOL, 3)), NET, X)
    assert found.shape == (4, 8, 6)
    assert torch.equal(found[:, 0], torch.zeros_like(X)) and torch.equal(found[:, 1], torch.ones_like(X))
    assert torch.equal(found[:, 2:4], own) and torch.equal(found[:, 4], torch.full_like(X, 0.5))
    assert torch.equal(found[:, 5:], drawn(RandomSamples(POOL, 3), NET, X))
    settings = ig2.IntegratedGradients()(NET, X, references=Union(Zeros(), White())).settings
    assert settings["references"]["strategies"] == [{"type": "Zeros"}, {"type": "White"}]


def test_settings_name_strategies_without_printing_their_pools():
    class Silent(list):
        def __repr__(self):
            raise AssertionError("a pool may be as large as a data set")

    strategies = RandomSamples(Silent(POOL), 2), OtherClasses(Silent(POOL), LABELS), NormalClass(Silent(POOL), LABELS, 2, 3)
    settings = ig2.IntegratedGradients(2)(NET, X, 1, references=Union(*strategies)).settings
    first = settings["references"]["strategies"][0]
    assert first["type"] == "RandomSamples" and first["count"] == 2
    assert repr(strategies[2]) == "NormalClass(normal=2, count=3, explicand_labels=None)"


# -- counterfactual ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_other_classes_gives_so_many_of_each_other_class(seed):
    target = torch.tensor([0, 1, 2, 1])
    numbers = numbers_of(drawn(OtherClasses(POOL, LABELS.tolist(), per_class=3), NET, X, target, seed=seed), POOL)
    for mine, found in zip(target.tolist(), numbers, strict=True):
        others = [name for name in range(3) if name != mine]
        assert sorted(LABELS[found].tolist()) == sorted(others * 3)
        assert len(set(found)) == 6


@pytest.mark.parametrize(
    "strategy", [OtherClasses(POOL, LABELS, per_class=8), NormalClass(POOL, LABELS, 2, 8), Relevant(POOL, LABELS, 1, 8)]
)
def test_the_explicand_itself_is_left_out_and_missed_where_there_are_no_more(strategy):
    assert drawn(strategy, NET, X[:1], 1).shape[1] in (8, 16)
    # sample 2 is of class 2, explained as class 1: then class 2 has seven others
    scores = ig2.wrap(lambda x: torch.tensor([0.0, 2.0, 1.0], dtype=torch.float64) + 0 * NET(x))
    with pytest.raises(InputError, match="needs 8 references of class 2; the pool has 7"):
        drawn(strategy, scores, POOL[2:3], 1)


def test_other_classes_may_be_some_of_them():
    target = torch.tensor([0, 1, 2, 0])
    strategy = OtherClasses(POOL, LABELS, per_class=2, classes=1)
    seen = set()
    for seed in range(8):
        numbers = numbers_of(drawn(strategy, NET, X, target, seed=seed), POOL)
        for mine, row in zip(target.tolist(), numbers, strict=True):
            classes = {int(LABELS[number]) for number in row}
            assert len(row) == 2 and len(classes) == 1 and mine not in classes
            seen |= classes
    assert seen == {0, 1, 2}  # which classes is drawn, too


TWO, ONES = torch.arange(24) % 2, torch.ones(24, dtype=torch.long)
FEW = torch.tensor([0] * 12 + [1] * 11 + [2])


def test_other_classes_of_pools_that_are_short_of_one():
    assert drawn(OtherClasses(POOL, FEW, per_class=5), NET, X, 2).shape == (4, 10, 6)
    assert drawn(OtherClasses(POOL, TWO), NET, X, 2).shape == (4, 2, 6)


@pytest.mark.parametrize(
    ("strategy", "target", "said"),
    [
        (OtherClasses(POOL, FEW, per_class=2), 0, "explicand 0 needs 2 references of class 2; the pool has 1"),
        (OtherClasses(POOL, TWO), [2, 0, 1, 2], "no sample of class 2, so explicands of that class would get references of 2"),
        (OtherClasses(POOL, ONES), 1, "samples of class 1 alone"),
        (OtherClasses(POOL, LABELS, classes=3), 0, "3 other classes were asked for and the pool has 2"),
        (NormalClass(POOL, LABELS, normal=0), [1, 2, 0, 1], "explicand 2 is explained as class 0, the normal class itself"),
        (NormalClass(POOL, LABELS, normal=7), 1, "needs 5 references of class 7; the pool has 0"),
        (Relevant(POOL, LABELS, top_k=3), None, "top_k is 3, the model has 2 classes besides"),
        (Relevant(POOL, LABELS, top_k=2, per_class=9), None, "needs 9 references of class"),
        (OtherClasses(POOL, LABELS, explicand_labels=[0, 1, 1, 0]), None, "explicand_labels is for"),
        (OtherClasses(POOL, LABELS[:7]), 1, "the pool has 24 samples and 7 labels"),
        (NearestLabels(POOL, torch.zeros(7, 3)), 1, "the pool has 24 samples and 7 labels"),
        (NearestLabels(POOL, torch.zeros(24, 4)), None, r"labels are \(N, 4\), those of the explicands \(B, 3\)"),
        (NearestLabels(POOL, torch.zeros(24, 2), explicand_labels=torch.zeros(4, 2)), 2, r"labels are \(N, 2\)"),
    ],
)
def test_pools_that_have_not_what_is_asked_for_are_refused(strategy, target, said):
    with pytest.raises(InputError, match=said):
        drawn(strategy, NET, X, target)


def test_normal_class_gives_samples_of_it_alone():
    labels = LABELS - 1  # some call the normal class −1
    numbers = numbers_of(drawn(NormalClass(POOL, labels, normal=-1, count=6), NET, X, 1), POOL)
    assert all((labels[found] == -1).all() and len(set(found)) == 6 for found in numbers)


def test_relevant_classes_are_the_models_next_ones():
    net, pool, labels = tanh_mlp(classes=8), data(40, 6, seed=5), torch.arange(40) % 8
    for target in (None, 3):
        numbers = numbers_of(drawn(Relevant(pool, labels, top_k=3, per_class=2), net, X, target), pool)
        for x, found in zip(X, numbers, strict=True):
            ranking = net(x[None])[0].argsort(descending=True).tolist()
            ranking.remove(ranking[0] if target is None else target)
            assert labels[found].tolist() == [ranking[0]] * 2 + [ranking[1]] * 2 + [ranking[2]] * 2


def test_a_single_output_names_no_class_so_the_user_must():
    net, own = tanh_mlp(classes=1), torch.tensor([0, 1, 1, 0])
    numbers = numbers_of(drawn(OtherClasses(POOL, TWO, per_class=3, explicand_labels=own), net, X), POOL)
    assert TWO[torch.tensor(numbers)].tolist() == [[1] * 3, [0] * 3, [0] * 3, [1] * 3]
    numbers = numbers_of(drawn(NormalClass(POOL, TWO, 0, explicand_labels=[1, 1, 1, 1]), net, X), POOL)
    assert (TWO[torch.tensor(numbers)] == 0).all()
    for strategy, said in (
        (OtherClasses(POOL, TWO), "single output, which names no class"),
        (NormalClass(POOL, TWO, 0), "single output, which names no class"),
        (NormalClass(POOL, TWO, 0, explicand_labels=own), "explicand 0 is explained as class 0"),
        (OtherClasses(POOL, TWO, explicand_labels=[0, 1]), "explicand_labels has 2 rows"),
        (Relevant(POOL, TWO), "top_k is 3, the model has 0 classes"),
    ):
        with pytest.raises(InputError, match=said):
            drawn(strategy, net, X)


@pytest.mark.parametrize("seed", [0, 5, 2**62 - 1])
def test_classes_take_turns_in_a_seeded_order(seed):
    labels = torch.tensor([4, 4, 4, 4, 4, 1, 1, 7])
    order = round_robin(labels, seed)
    assert sorted(order) == list(range(8)) and order == round_robin(labels, seed) != round_robin(labels, seed + 1)
    assert [sorted(labels[order[a:b]].tolist()) for a, b in ((0, 3), (3, 5), (5, 8))] == [[1, 4, 7], [1, 4], [4, 4, 4]]
    eligible = labels != 4
    assert sorted(round_robin(labels, seed, eligible)) == [5, 6, 7]
    assert sorted(round_robin(torch.zeros(5, 2), seed)) == list(range(5))  # of several labels, shuffled alone
    assert interleave([9, 3, 5, 1], "abab") == [9, 3, 5, 1] and interleave([9, 3, 5, 1], "aaba") == [9, 5, 3, 1]


@pytest.mark.parametrize("wrong", [LABELS.double(), LABELS[:, None], ["cat", "dog"], None])
def test_labels_must_be_class_numbers(wrong):
    for make in (OtherClasses, Relevant, lambda samples, labels: NormalClass(samples, labels, 0)):
        with pytest.raises(InputError, match="labels must be class numbers"):
            make(POOL, wrong)


# -- independent labels ------------------------------------------------------------------------------------------------

TABLE = (data(24, 4, seed=11) > 0).long()


def slow_nearest(own, label, count):
    """Distances of the nearest counterfactuals, by the definition."""
    distances = [
        sum(abs(int(theirs[other]) - int(own[other])) for other in range(4) if other != label)
        for theirs in TABLE
        if theirs[label] != own[label]
    ]
    return sorted(distances)[:count]


@pytest.mark.parametrize("label", range(4))
def test_nearest_labels_are_opposite_on_the_explained_one_and_nearest_on_the_rest(label):
    logits, x = tanh_mlp(classes=4, seed=3), data(4, 6, seed=1, low=-9, high=9)
    own = (logits(x) > 0).long()
    assert len(own.unique(dim=0)) > 1
    numbers = numbers_of(drawn(NearestLabels(POOL, TABLE, count=6), logits, x, label), POOL)
    for mine, found in zip(own, numbers, strict=True):
        assert (TABLE[found, label] != mine[label]).all()
        assert len(set(found)) == 6
        others = torch.arange(4) != label
        distances = (TABLE[found][:, others] - mine[others]).abs().sum(dim=1).tolist()
        assert distances == slow_nearest(mine, label, 6)


@pytest.mark.parametrize(
    ("output", "threshold"), [("logit", 0.0), ("sigmoid", 0.5), ("probability", 0.5), ("log-probability", math.log(0.5))]
)
def test_what_the_model_says_of_a_label_depends_on_the_output_explained(output, threshold):
    logits = tanh_mlp(classes=4, seed=3)
    model = ig2.wrap(logits, output=output)
    scores = model.scores(logits(X), 4)
    assert YES_ABOVE[output] == threshold
    said = drawn(NearestLabels(POOL, TABLE, count=6), model, X, 2)
    assert torch.equal(said, drawn(NearestLabels(POOL, TABLE, 6, explicand_labels=scores > threshold), logits, X, 2))


def test_the_labels_of_the_explicands_can_be_given():
    net = multi_label()
    own = torch.tensor([[1, 0, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1], [0, 1, 0, 0]])
    numbers = numbers_of(drawn(NearestLabels(POOL, TABLE, count=3, explicand_labels=own), net, X, 1), POOL)
    for mine, found in zip(own, numbers, strict=True):
        assert (TABLE[found, 1] != mine[1]).all()
    function = ig2.wrap(net, output=lambda scores: scores * 2)
    with pytest.raises(InputError, match="give the explicands' labels"):
        drawn(NearestLabels(POOL, TABLE), function, X, 1)
    assert numbers_of(drawn(NearestLabels(POOL, TABLE, count=3, explicand_labels=own), function, X, 1), POOL) == numbers


def test_nearest_labels_never_gives_the_explicand_and_says_when_there_are_too_few():
    table = torch.zeros(24, 4)
    table[:3, 1] = 1
    own = torch.zeros(1, 4)
    net = multi_label()
    assert sorted(numbers_of(drawn(NearestLabels(POOL, table, 3, own), net, X[:1], 1), POOL)[0]) == [0, 1, 2]
    assert sorted(numbers_of(drawn(NearestLabels(POOL, table, 2, own), net, POOL[1:2], 1), POOL)[0]) == [0, 2]
    with pytest.raises(InputError, match="needs 3 references with label 1 equal to 1; the pool has 2"):
        drawn(NearestLabels(POOL, table, 3, own), net, POOL[1:2], 1)


@pytest.mark.parametrize("wrong", [torch.zeros(24), torch.full((24, 4), 2), "labels"])
def test_independent_labels_must_be_zeros_and_ones(wrong):
    with pytest.raises(InputError, match="must be zeros and ones"):
        NearestLabels(POOL, wrong)


# -- as methods use them -----------------------------------------------------------------------------------------------


def test_ig2_takes_a_strategy_and_says_which():
    found = ig2.IG2(steps=5)(NET, X, references=OtherClasses(POOL, LABELS, per_class=2))
    assert found.baseline_outputs.shape == (4, 4)
    assert found.settings["references"]["type"] == "OtherClasses"
    assert found.settings["references"]["samples"] == "Tensor float64 (24, 6)"
    with pytest.raises(InputError, match="IG2 needs references"):
        ig2.IG2()(NET, X)


@pytest.mark.parametrize("axis", [0, 1])
def test_one_position_at_a_time_keeps_the_weights_of_its_references(axis):
    x, others = data(2, 3, 4, seed=1), data(2, 3, 4, seed=2)
    net = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 2)), 0)
    weights = torch.tensor([[0.9, 0.1], [0.25, 0.75]], dtype=torch.float64)

    def explain(references):
        method = ig2.PathMethod(ig2.paths.Straight(3), rule=ig2.rules.blended)
        return method(net, x, 0, ig2.references.OneAtATime(references, axis))

    found = explain(ig2.references.Weighted(others, weights))
    each = torch.stack([explain(other[None]).values for other in others], dim=1)
    torch.testing.assert_close(found.values, (weights[:, :, None, None] * each).sum(dim=1), rtol=1e-10, atol=1e-12)
