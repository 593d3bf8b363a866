"""The rivals against the slow replicas of `rivals.py`, and by how much each is complete."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rivals
import torch
from torch import Tensor, nn

import ig2
import replicas
from ig2 import InputError, paths, references, rules
from ig2.paths import words
from networks import data, refuses, relu_cnn, seeded, tanh_mlp

NET: Any = tanh_mlp(classes=4)
X, REFERENCES, POOL = data(3, 6), data(2, 6, seed=1), data(12, 6, seed=2)
TARGET = [0, 2, 3]
BOUNDS = (-1.1, 1.1)
MODEL = ig2.wrap(NET, bounds=BOUNDS)
PROBABILITY: Any = lambda x: NET(x).softmax(dim=1)  # noqa: E731
PHOTOS: Any = relu_cnn()
IMAGES = data(2, 2, 8, 8, seed=3)


def networks() -> list[replicas.Network]:
    return [rivals.seen_by(NET, target) for target in TARGET]


def check(values: Any, expected: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(values, torch.from_numpy(np.array(expected)), rtol=0, atol=tolerance)


def mean_over_references(attribute: Any) -> list[Any]:
    """The mean over references of a replica of (network, x, reference), for each explicand."""
    return [
        np.mean([attribute(one, x.numpy(), reference.numpy()) for reference in REFERENCES], axis=0)
        for one, x in zip(networks(), X, strict=True)
    ]


# -- on the straight line ----------------------------------------------------------------------------------------------


def test_idgi_is_the_direct_rule_on_the_line_and_complete():
    attribution = ig2.IDGI(7)(NET, X, TARGET, REFERENCES)
    check(attribution.values, mean_over_references(lambda n, x, r: replicas.direct(n, replicas.straight(x, r, 7))))
    assert attribution.settings["complete"] and float(attribution.relative_residual.max()) < 1e-12


def test_idg_is_its_replica():
    def attribute(one, x, reference):
        return rivals.decision(one, x, reference, rivals.adaptive_places(one, x, reference, 9))

    attribution = ig2.IDG(9)(NET, X, TARGET, REFERENCES)
    check(attribution.values, mean_over_references(attribute))
    assert attribution.residual is None


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_adaptive_places_are_quantiles_of_the_slope(batch_size: int):
    method = ig2.PathMethod(paths.Adaptive(9), rule=None)
    found = method(NET, X, TARGET, REFERENCES, paths=True, batch_size=batch_size).paths
    for row, (one, x) in enumerate(zip(networks(), X, strict=True)):
        for column, reference in enumerate(REFERENCES):
            places = rivals.adaptive_places(one, x.numpy(), reference.numpy(), 9)[::-1].copy()
            line = reference + (x - reference) * torch.from_numpy(places)[:, None]
            torch.testing.assert_close(found[row, column], line, rtol=0, atol=1e-12)
            assert (np.diff(places) < 0).all()
    assert (places[1:-1] - np.linspace(1, 0, 10)[1:-1]).max() > 0.01, "the places are equally spaced, so this tests nothing"


def test_a_line_of_equal_slopes_is_cut_equally_beside_one_that_bends():
    x = torch.tensor([[2.0, 0.0], [2.0, 3.0]], dtype=torch.float64)
    net = lambda x: x[:, 0] + x[:, 1].square()  # noqa: E731
    found = ig2.PathMethod(paths.Adaptive(4), rule=None)(net, x, references=0.0, paths=True).paths[:, 0]
    torch.testing.assert_close(found[0, :, 0], torch.linspace(2, 0, 5, dtype=torch.float64))
    # 2t + 9t² has the slopes 4.25, 8.75, 13.25, 17.75 on the quarters; without the least of them their shares are 0, ⅙, ⅓, ½
    places = torch.tensor([1, 0.875, 0.75, 0.5625, 0], dtype=torch.float64)
    torch.testing.assert_close(found[1], places[:, None] * x[1])


def test_idg_of_a_linear_output_sums_to_the_square_of_the_change():
    weight = data(6, seed=5)
    attribution = ig2.IDG(5)(lambda x: x @ weight[:, None], X, references=REFERENCES[:1])
    change = (X - REFERENCES[0]) @ weight
    torch.testing.assert_close(attribution.values, change[:, None] * weight * (X - REFERENCES[0]), rtol=0, atol=1e-12)
    torch.testing.assert_close(attribution.total, change**2, rtol=0, atol=1e-12)


def test_left_ig_is_its_replica_and_leaves_out_what_follows_the_cut():
    attribution = ig2.LeftIG(8, 0.6)(NET, X, TARGET, REFERENCES, per_reference=True)
    each = [
        [rivals.left_ig(one, x.numpy(), r.numpy(), 8, 0.6) for r in REFERENCES] for one, x in zip(networks(), X, strict=True)
    ]
    check(attribution.per_reference, [[values for values, _ in row] for row in each])
    check(attribution.values, [np.mean([values for values, _ in row], axis=0) for row in each])
    ends = [np.mean([one.f(end) for _, end in row]) for one, row in zip(networks(), each, strict=True)]
    assert any((end != x.numpy()).any() for row, x in zip(each, X, strict=True) for _, end in row)
    check(attribution.residual, np.array(ends) - attribution.output.numpy(), 1e-4)  # as good as eight nodes are
    check(ig2.LeftIG(8, 1.0)(nn.Linear(6, 1).double(), X, references=0).residual, np.zeros(3))


def test_path_weighted_ig_is_its_replica_and_with_weight_one_integrated_gradients():
    attribution = ig2.PathWeightedIG(lambda place: place**2, 6)(NET, X, TARGET, REFERENCES)
    check(attribution.values, mean_over_references(lambda n, x, r: rivals.integral(n, x, r, 6, lambda place: place**2)))
    plain = ig2.PathWeightedIG(lambda place: 1.0, 6)(NET, X, TARGET, REFERENCES)
    torch.testing.assert_close(plain.values, ig2.ExpectedIG(6)(NET, X, TARGET, REFERENCES).values, rtol=0, atol=1e-12)


# -- attacks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("norm", "direction"), [(paths.L2(), rivals.unit), (paths.Sign(), np.sign)])
@pytest.mark.parametrize("bounds", [None, BOUNDS])
def test_mfaba_is_its_replica(norm: Any, direction: Any, bounds: Any):
    target = NET(X).argmax(dim=1)
    attribution = ig2.MFABA(30, 0.09, norm)(ig2.wrap(NET, bounds=bounds), X)
    each = [rivals.mfaba(NET, int(c), x.numpy(), 30, 0.09, direction, bounds) for c, x in zip(target, X, strict=True)]
    check(attribution.values, [values for values, _, _ in each])
    check(attribution.gradcf[:, 0], [end for _, end, _ in each])
    assert attribution.steps_taken[:, 0].tolist() == [steps for _, _, steps in each]
    assert attribution.steps_taken.min() < 30, "no label flipped, so this tests nothing"


def test_mfabas_residual_falls_with_the_step_and_is_zero_with_a_complete_rule():
    coarse, fine = (ig2.MFABA(20 * n, 0.1 / n)(NET, X).residual.abs().max() for n in (1, 10))
    assert float(fine) < 0.2 * float(coarse)
    assert float(ig2.MFABA(20, 0.1, rule=rules.shared)(NET, X).relative_residual.max()) < 1e-12


@pytest.mark.parametrize("bounds", [None, BOUNDS])
def test_agi_is_its_replica_as_written(bounds: Any):
    attribution = ig2.AGI(6, 0.2, 9)(ig2.wrap(NET, bounds=bounds), X, TARGET)
    others = [[c for c in range(4) if c != own] for own in TARGET]
    samples = zip(TARGET, X.numpy(), others, strict=True)
    expected = [rivals.agi(PROBABILITY, target, x, classes, 6, 0.2, bounds) for target, x, classes in samples]
    check(attribution.values, expected)
    assert attribution.residual is not None


@pytest.mark.parametrize("method", [ig2.AGI(6, 0.2), ig2.LA(4, 0.3)])
def test_agi_and_la_explain_the_probability_whatever_the_model_has_and_wherever_they_stand(method: ig2.Method):
    chosen = method(ig2.wrap(NET, output="probability"), X, TARGET)
    for one in (method, ig2.Pooled(method, torch.arange(6))):
        found = one(NET, X, TARGET)
        assert torch.equal(found.values, chosen.values) and "probability" in found.settings["model"]
        torch.testing.assert_close(found.output, PROBABILITY(X).gather(1, torch.tensor(TARGET)[:, None])[:, 0])
    logarithm = method(ig2.wrap(NET, output="log-probability"), X, TARGET)  # what was chosen stays
    assert (logarithm.output < 0).all()


def test_agi_climbs_the_other_classes_alone_whatever_it_explains_against():
    ends = [ig2.AGI(6, 0.2)(NET, X, TARGET, against=against).gradcf for against in (None, [1, 1, 1])]
    assert torch.equal(*ends)


def test_agi_draws_its_classes_by_the_seed():
    values = [ig2.AGI(6, 0.2, classes=1)(NET, X, TARGET, seed=seed).values for seed in range(6)]
    assert torch.equal(values[0], ig2.AGI(6, 0.2, classes=1)(NET, X, TARGET, seed=0).values)
    assert any(not torch.equal(values[0], other) for other in values[1:])


def test_la_is_its_replica():
    attribution = ig2.LA(4, 0.3, 9)(MODEL, X, TARGET)
    others = [[c for c in range(4) if c != own] for own in TARGET]
    samples = zip(TARGET, X.numpy(), others, strict=True)
    expected = [rivals.la(PROBABILITY, target, x, classes, 4, 0.3, BOUNDS) for target, x, classes in samples]
    check(attribution.values, expected)


def test_big_integrates_from_the_nearest_of_the_boundary_points():
    attacks = (paths.Descent(40, 0.1, paths.Sign()), paths.Descent(40, 0.15))
    attribution = ig2.BIG(8, attacks)(NET, X)
    target, expected, chosen = NET(X).argmax(dim=1), [], set()
    for own, x in zip(target.tolist(), X.numpy(), strict=True):
        ends = []
        for size, direction in ((0.1, np.sign), (0.15, rivals.unit)):
            end = rivals.mfaba(NET, own, x, 40, size, direction, None)[1]
            ends.append(rivals.to_boundary(NET, x, end, 10))
        chosen.add(int(np.argmin([np.linalg.norm(end - x) for end in ends])))
        baseline = min(ends, key=lambda end: np.linalg.norm(end - x))
        assert rivals.predicted(NET, baseline) != own
        expected.append(rivals.integral(rivals.seen_by(NET, own), x, baseline, 8))
    check(attribution.values, expected)
    assert float(attribution.relative_residual.max()) < 1e-3


def test_a_boundary_that_no_attack_reaches_is_said():
    with pytest.warns(ig2.IG2Warning, match="boundary"):
        attribution = ig2.BIG(attacks=(paths.Descent(1, 1e-6),))(NET, X)
    assert attribution.values.abs().max() < 1e-5


@pytest.mark.parametrize("images", [False, True])
def test_attexplore_is_its_replica(images: bool):
    net, x = (PHOTOS, IMAGES) if images else (NET, X)
    attribution = ig2.AttEXplore(3, 0.05, 4, 0.1, 0.4)(ig2.wrap(net, bounds=BOUNDS), x, 1, seed=7)
    one = rivals.seen_by(net, 1)
    check(attribution.values, [rivals.attexplore(one, s.numpy(), 3, 0.05, 4, 0.1, 0.4, 7, BOUNDS) for s in x], 1e-9)


# -- references --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("each_its_own", [False, True])
@pytest.mark.parametrize("rule", [rules.left, rules.blended], ids=str)
def test_weights_enter_the_mean_the_spread_and_the_residual(each_its_own: bool, rule: Any):
    weights = data(3, 4, seed=6, low=0.1) if each_its_own else data(4, seed=6, low=0.1)
    pool = data(4, 6, seed=8)
    plain = ig2.IG2(10, rule=rule)(NET, X, TARGET, pool, per_reference=True)
    attribution = ig2.IG2(10, rule=rule)(NET, X, TARGET, references.Weighted(pool, weights), per_reference=True)
    shares = (weights / weights.sum(dim=-1, keepdim=True)).expand(3, 4)
    torch.testing.assert_close(attribution.per_reference, plain.per_reference, rtol=0, atol=0)
    torch.testing.assert_close(attribution.weights, shares, rtol=0, atol=1e-15)
    mean = (shares[:, :, None] * plain.per_reference).sum(dim=1)
    torch.testing.assert_close(attribution.values, mean, rtol=0, atol=1e-14)
    variance = (shares[:, :, None] * (plain.per_reference - mean[:, None]) ** 2).sum(dim=1) / (1 - (shares**2).sum(dim=1))[
        :, None
    ]
    torch.testing.assert_close(attribution.spread, variance.sqrt(), rtol=0, atol=1e-13)
    torch.testing.assert_close(
        attribution.gradcfe, (shares[:, :, None] * (X[:, None] - plain.gradcf)).sum(dim=1), rtol=0, atol=1e-14
    )
    torch.testing.assert_close(attribution.baseline_output, (shares * plain.baseline_outputs).sum(dim=1), rtol=0, atol=1e-14)
    if rule is rules.blended:
        assert float(attribution.relative_residual.max()) < 1e-12
        assert float((attribution.total - (attribution.output - plain.baseline_output)).abs().max()) > 1e-3


def test_equal_weights_change_nothing_and_a_weight_of_zero_drops_its_reference():
    pool = data(4, 6, seed=8)
    plain = ig2.ExpectedIG(5)(NET, X, TARGET, pool)
    equal = ig2.ExpectedIG(5)(NET, X, TARGET, references.Weighted(pool, [1, 1, 1, 1]))
    torch.testing.assert_close(equal.values, plain.values, rtol=0, atol=1e-14)
    torch.testing.assert_close(equal.spread, plain.spread, rtol=0, atol=1e-14)
    shap = ig2.DeepSHAP()(NET, X, TARGET, references.Weighted(pool, [0, 1, 1, 0]))
    torch.testing.assert_close(shap.values, ig2.DeepSHAP()(NET, X, TARGET, pool[1:3]).values, rtol=0, atol=1e-14)
    without = ig2.ExpectedIG(5)(NET, X, TARGET, references.Weighted(pool, [0, 1, 1, 0]))
    torch.testing.assert_close(without.values, ig2.ExpectedIG(5)(NET, X, TARGET, pool[1:3]).values, rtol=0, atol=1e-14)


def test_weights_pass_through_wrappers_files_and_counterfactuals(tmp_path: Any):
    pool, weights = data(3, 6, seed=8), torch.tensor([1.0, 2.0, 5.0])
    chosen = references.Weighted(pool, weights)
    smooth = ig2.SmoothGrad(ig2.ExpectedIG(20), 3, 1e-9)(NET, X, TARGET, chosen)
    torch.testing.assert_close(smooth.values, ig2.ExpectedIG(20)(NET, X, TARGET, chosen).values, rtol=0, atol=1e-7)
    assert float(smooth.relative_residual.max()) < 1e-5
    attribution = ig2.ExpectedIG(20)(NET, X, TARGET, references.GradCF(chosen, paths.GradPath(4)))
    assert (
        torch.equal(attribution.weights, (weights / 8).double().expand(3, 3))
        and float(attribution.relative_residual.max()) < 1e-5
    )
    attribution.save(tmp_path / "a.safetensors")
    assert torch.equal(ig2.Attribution.load(tmp_path / "a.safetensors").weights, attribution.weights)
    assert torch.equal(attribution[1:].weights, attribution.weights[1:])
    function = references.Weighted(pool, lambda task, samples: torch.ones(len(task), samples.shape[1]))
    torch.testing.assert_close(
        ig2.GradCFE(4)(NET, X, TARGET, function).spread, ig2.GradCFE(4)(NET, X, TARGET, pool).spread, rtol=0, atol=1e-14
    )


def test_lpi_weighs_samples_of_the_explicands_cluster():
    attribution = ig2.LPI(POOL, 2, 3, steps=5)(NET, X, TARGET, seed=4)
    outputs = NET(POOL).detach().numpy()
    for row, (one, x) in enumerate(zip(networks(), X, strict=True)):
        chosen, weights = rivals.local_clusters(outputs, NET(x[None])[0].detach().numpy(), 2, 3, 4)
        each = [rivals.integral(one, x.numpy(), POOL[i].numpy(), 5) for i in chosen]
        check(attribution.weights[row], weights)
        check(attribution.values[row], np.tensordot(weights, each, axes=1))
    assert len({tuple(row.tolist()) for row in attribution.weights}) > 1, "all explicands have the same weights"
    assert float(attribution.relative_residual.max()) < 1e-3


def test_wg_weighs_references_by_their_own_deletion():
    attribution = ig2.WG(ig2.ExpectedIG(5), 3)(NET, X, TARGET, POOL[:4])
    plain = ig2.ExpectedIG(5)(NET, X, TARGET, POOL[:4], per_reference=True).per_reference
    for row, (one, x) in enumerate(zip(networks(), X, strict=True)):
        weights = rivals.deletion_weights(one, x.numpy(), POOL[:4].numpy(), plain[row].numpy(), 3)
        check(attribution.weights[row], weights)
        check(attribution.values[row], np.tensordot(weights, plain[row].numpy(), axes=1))
    assert float(attribution.relative_residual.max()) < 1e-3
    assert float(attribution.weights.std()) > 0.01
    assert ig2.WG(ig2.IG2(5)).complete and not ig2.WG(ig2.ExpectedIG()).complete


# -- texts, greed, geodesics, distributions, codes ---------------------------------------------------------------------

WORDS, TABLE = 5, data(30, 4, seed=21)
TEXTS = TABLE[torch.tensor([[3, 8, 1, 0, 9], [4, 4, 7, 20, 11]])]
MASKED = TABLE[29].expand(2, WORDS, 4).clone()
MASKED[1] = TABLE[28]
READER: Any = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(WORDS * 4, 8), nn.Tanh(), nn.Linear(8, 3)), 1)
RULE = {rules.left: replicas.left, rules.right: replicas.right}


@pytest.mark.parametrize("axis", [0, 1])
def test_sig_moves_one_position_at_a_time(axis: int):
    attribution = ig2.SIG(4, axis)(READER, TEXTS, 1, MASKED)
    positions = TEXTS.shape[1 + axis]
    one = rivals.seen_by(READER, 1)
    for row, x in enumerate(TEXTS.numpy()):
        expected, falls = np.zeros_like(x), []
        for baseline in MASKED.numpy():
            for position in range(positions):
                swapped = x.copy()
                where = (slice(None),) * axis + (position,)
                swapped[where] = baseline[where]
                expected[where] += rivals.integral(one, x, swapped, 4)[where] / positions / len(MASKED)
                falls.append(one.f(x) - one.f(swapped))
        check(attribution.values[row], expected)
        assert float(attribution.total[row]) == pytest.approx(np.mean(falls), abs=1e-3)


def walk(method: ig2.PathMethod, net: Any, x: Tensor, target: int, chosen: Any, draw: Any, rule: Any = rules.left) -> None:
    """Compare a path method with its path's replica, a function of (network, x, reference), and with its rule's."""
    attribution = method(net, x, target, chosen, paths=True)
    one, count = rivals.seen_by(net, target), 1 if chosen is None else len(chosen)
    for row, sample in enumerate(x.numpy()):
        lines = [draw(one, sample, None if chosen is None else chosen[i].numpy()) for i in range(count)]
        for column, line in enumerate(lines):
            check(attribution.paths[row, column, : len(line)], line)
        check(attribution.values[row], np.mean([RULE[rule](one, line) for line in lines], axis=0))


@pytest.mark.parametrize(("steps", "neighbours"), [(1, 3), (2, 3), (6, 3), (6, 100), (12, 2)])
def test_udig_goes_by_words_near_the_straight_line(steps: int, neighbours: int):
    method = ig2.UDIG(TABLE, steps, neighbours)
    walk(method, READER, TEXTS, 2, MASKED, lambda _, x, r: rivals.uniform_words(TABLE.numpy(), x, r, steps, neighbours))


def test_udig_moves_by_words_where_the_ends_are_nearest_to_every_point_between():
    table = data(40, 64, seed=22)  # in many dimensions words are far apart, as in the vocabulary of a language model
    text, mask = table[None, :2], table[None, 38:]
    path = ig2.UDIG(table, 8)(
        seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 2)), 1), text, 0, mask, paths=True
    ).paths
    nearest = [words.find_word(torch.lerp(text[0], mask[0], t / 8), table).tolist() for t in range(1, 8)]
    assert {word for row in nearest for word in row} <= {0, 1, 38, 39}
    assert int(path[0, 0].diff(dim=0).abs().amax(dim=(1, 2)).count_nonzero()) == 8  # and not a single jump


@pytest.mark.parametrize(("steps", "neighbours"), [(1, 3), (6, 3), (6, 100), (12, 2)])
def test_dig_goes_from_word_to_word(steps: int, neighbours: int):
    method = ig2.DIG(TABLE, steps, neighbours)
    draw = lambda _, x, r: rivals.neighbouring_words(TABLE.numpy(), x, r, steps, neighbours)  # noqa: E731
    walk(method, READER, TEXTS, 2, MASKED, draw, rules.right)


@pytest.mark.parametrize("path", [paths.UniformWords(TABLE, 7), paths.NeighbouringWords(TABLE, 7, 5)], ids=["UDIG", "DIG"])
def test_paths_near_words_are_monotone_and_complete_to_the_accuracy_of_the_rule(path: Any):
    attribution = ig2.PathMethod(path, rule=rules.gauss(4))(READER, TEXTS, references=MASKED, paths=True)
    steps = attribution.paths.diff(dim=2) * (MASKED[None] - TEXTS[:, None])[:, :, None].sign()
    assert float(steps.min()) >= -1e-12
    assert float(attribution.relative_residual.max()) < 1e-4


def test_the_vocabulary_is_searched_once_however_the_path_is_cut_into_pieces(monkeypatch: pytest.MonkeyPatch):
    searched, measure = [], words.distances
    monkeypatch.setattr(words, "distances", lambda points, table: [searched.append(len(points)), measure(points, table)][1])
    pair = torch.cat([TEXTS[:1, :1], MASKED[:1, 1:]], dim=1)  # the first word is equal
    one, all_at_once = (ig2.UDIG(TABLE, 6)(READER, TEXTS[:1], 2, pair, batch_size=size).values for size in (1, 64))
    assert searched == [TEXTS.shape[1] - 1] * (2 + 5) * 2  # both ends and 5 points, of both calls, of the words that move alone
    check(one, all_at_once.numpy())


@pytest.mark.parametrize(("steps", "momentum"), [(6, 0.5), (4, 0.0), (9, 0.9), (1, 0.5)])
def test_samp_is_its_replica(steps: int, momentum: float):
    walk(ig2.SAMP(steps, momentum), NET, X, 1, REFERENCES, lambda n, x, r: rivals.greedy(n, x, r, steps, momentum))


def test_samp_lowers_the_output_faster_than_the_line():
    curves = [
        method(NET, X, references=REFERENCES, curves=True).output_curve
        for method in (ig2.SAMP(6), ig2.ExpectedIG(6, rules.left))
    ]
    assert float(curves[0].mean()) < float(curves[1].mean())


@pytest.mark.parametrize("neighbours", [2, 4])
def test_geodesics_are_shortest_paths(neighbours: int):
    method = ig2.GeodesicIG(POOL, neighbours, rules.left)
    walk(method, NET, X, 1, REFERENCES, lambda n, x, r: rivals.geodesic(n, x, r, POOL.numpy(), neighbours, 3))
    exact = ig2.GeodesicIG(POOL, neighbours)(NET, X, references=REFERENCES)
    assert float(exact.relative_residual.max()) < 1e-3


def test_a_geodesic_goes_round_where_the_output_is_steep():
    def net(x: Tensor) -> Tensor:
        return x[:, 0] * (1 - x[:, 1]).clamp(min=0)  # flat from 1 on

    straight, flat = ([[float(i), level] for i in range(5)] for level in (0.0, 1.5))
    ends, pool = (torch.tensor(points, dtype=torch.float64) for points in ([straight[0], straight[4]], straight[1:4] + flat))
    attribution = ig2.GeodesicIG(pool, 3)(net, ends[:1], references=ends[1:], paths=True)
    between = attribution.paths[0, 0, 1:-1]
    assert len(between) and bool((between[:, 1] == 1.5).all())  # the straight way is shorter, and twice as dear


@pytest.mark.parametrize("option", ["target", "against"])
def test_each_row_of_a_batch_has_the_geodesic_of_its_own_classes(option: str):
    def net(x: Tensor) -> Tensor:  # class 1 is flat above, class 2 below
        above, below = ((1 + sign * x[:, 1]).clamp(min=0) * x[:, 0] for sign in (-1, 1))
        return torch.stack([0 * above, above, below], dim=1)

    places = [[float(i), level] for i in range(5) for level in (-1.5, 0.0, 1.5)]
    pool, classes = torch.tensor(places, dtype=torch.float64), {"target": 0, option: [2, 1, 2, 1]}
    x, reference = pool[1].expand(4, 2), pool[13:14]
    found = ig2.GeodesicIG(pool, 5)(net, x, references=reference, paths=True, **classes)
    levels = found.paths[:, 0, 1:-1, 1].mean(dim=1)
    assert levels[0] == levels[2] < -0.5 and levels[1] == levels[3] > 0.5


def test_a_geodesic_through_a_pool_in_two_parts_is_the_line():
    pool = torch.cat([X[0] + 0.01 * data(3, 6), 50 + 0.01 * data(3, 6)])
    attribution = ig2.GeodesicIG(pool, 2)(NET, X[:1], 1, torch.full((1, 6), 50.0, dtype=torch.float64), paths=True)
    assert attribution.paths.shape[2] == 2


@pytest.mark.parametrize("blur", [0.0, 1.5])
def test_reveal_ig_is_its_replica(blur: float):
    attribution = ig2.RevealIG(4, 3, 0.4, blur, rules.left)(ig2.wrap(PHOTOS, bounds=BOUNDS), IMAGES, 1, seed=5, paths=True)
    noise = torch.randn(3, 2, 8, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64).numpy()
    one = rivals.seen_by(PHOTOS, 1)
    for row, x in enumerate(IMAGES.numpy()):
        lines = [rivals.revealed(x, each, 4, 0.4, blur, BOUNDS) for each in noise]
        check(attribution.paths[row], lines)
        check(attribution.values[row], np.mean([replicas.left(one, line) for line in lines], axis=0))


def test_reveal_ig_accounts_for_the_mean_output_over_the_widest_probe():
    attribution = ig2.RevealIG(3, 50, 0.5, rule=rules.gauss(3))(NET, X)
    noise = torch.randn(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wide = NET(X[:, None] + 0.5 * noise).gather(2, attribution.target[:, None, None].expand(3, 50, 1)).mean(dim=(1, 2))
    torch.testing.assert_close(attribution.total, attribution.output - wide.detach(), rtol=0, atol=1e-5)


# -- what all of them share --------------------------------------------------------------------------------------------

ALL = {
    "IDGI": ig2.IDGI(4),
    "IDG": ig2.IDG(4),
    "LeftIG": ig2.LeftIG(4),
    "PathWeightedIG": ig2.PathWeightedIG(lambda place: place, 4),
    "MFABA": ig2.MFABA(5),
    "FreeIG2": ig2.FreeIG2(ig2.paths.Rivals(2)),
    "AGI": ig2.AGI(3),
    "LA": ig2.LA(3),
    "AttEXplore": ig2.AttEXplore(2, copies=2),
    "SAMP": ig2.SAMP(3),
    "GeodesicIG": ig2.GeodesicIG(POOL, 3),
    "RevealIG": ig2.RevealIG(3, 2),
    "WG": ig2.WG(ig2.ExpectedIG(3), 2),
    "SIG": ig2.SIG(2),
    "Weighted": ig2.ExpectedIG(3),
}
WITHOUT_REFERENCES = {"FreeIG2", "MFABA", "AGI", "LA", "AttEXplore", "RevealIG"}
GIVEN = {"Weighted": references.Weighted(REFERENCES, [1, 3])}


@pytest.mark.parametrize("name", ALL)
def test_samples_do_not_depend_on_their_batch_nor_on_how_work_is_split(name: str):
    # two rows explain the same class, two are against the same one
    method, chosen, target, against = ALL[name], GIVEN.get(name, REFERENCES), [0, 2, 2], [1, 1, 0]
    whole = method(MODEL, X, target, chosen, against=against)
    split = method(MODEL, X, target, chosen, against=against, batch_size=2)
    torch.testing.assert_close(split.values, whole.values, rtol=0, atol=1e-12)
    for row in range(3):
        alone = method(MODEL, X[row : row + 1], target[row], chosen, against=against[row])
        torch.testing.assert_close(alone.values, whole.values[row : row + 1], rtol=0, atol=1e-12)
    assert whole.values.isfinite().all() and float(whole.values.abs().max()) > 0


@pytest.mark.parametrize("name", ALL)
def test_inside_smoothgrad_with_next_to_no_noise_nothing_changes(name: str):
    method, chosen = ALL[name], GIVEN.get(name, REFERENCES)
    smooth = ig2.SmoothGrad(method, 2, 1e-10)(NET, X, TARGET, chosen)
    torch.testing.assert_close(smooth.values, method(NET, X, TARGET, chosen).values, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_float32_and_two_inputs(name: str):
    method, chosen = ALL[name], GIVEN.get(name, REFERENCES)
    values = method(NET, X, TARGET, chosen).values
    if name != "GeodesicIG":  # whose pool is one tensor
        two: Any = lambda a, b: NET(torch.cat([a, b], dim=1))  # noqa: E731
        parts = (REFERENCES[:, :2], REFERENCES[:, 2:])
        split = references.Weighted(parts, [1, 3]) if name == "Weighted" else parts
        pieces = method(two, (X[:, :2], X[:, 2:]), TARGET, split).values
        torch.testing.assert_close(torch.cat(pieces, dim=1), values, rtol=0, atol=1e-10)
    single = tanh_mlp(classes=4).float()
    chosen = references.Weighted(REFERENCES.float(), [1, 3]) if name == "Weighted" else REFERENCES.float()
    assert method(single, X.float(), TARGET, chosen).values.dtype == torch.float32


@pytest.mark.parametrize("name", ALL)
def test_features_that_are_fixed_earn_nothing(name: str):
    held = torch.zeros(3, 6, dtype=torch.bool)
    held[:, 1] = held[0, 4] = True
    values = ALL[name](NET, ig2.Fixed(X, held), TARGET, GIVEN.get(name, REFERENCES)).values
    assert (values[held] == 0).all() and (values[~held] != 0).any()


@pytest.mark.parametrize("name", ALL)
def test_a_constant_output_earns_nothing_and_settings_can_be_saved(name: str, tmp_path: Any):
    attribution = ALL[name](lambda x: 0 * x[:, :4] + 3, X, TARGET, GIVEN.get(name, REFERENCES))
    assert float(attribution.values.abs().max()) == 0
    attribution.save(tmp_path / "a.safetensors")
    assert ig2.Attribution.load(tmp_path / "a.safetensors").settings["parts"] == attribution.settings["parts"]


@pytest.mark.parametrize("name", sorted(WITHOUT_REFERENCES))
def test_methods_without_references_need_none_and_ignore_them(name: str):
    assert torch.equal(ALL[name](NET, X).values, ALL[name](NET, X, references=REFERENCES).values)
    if isinstance(ALL[name], ig2.PathMethod):
        assert not ALL[name].path.uses_reference


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("share", lambda: ig2.LeftIG(share=0.0)),
        ("steps", lambda: ig2.IDG(0)),
        ("weight", lambda: ig2.PathWeightedIG(3)),
        ("step_size", lambda: ig2.MFABA(step_size=-1)),
        ("norm", lambda: ig2.MFABA(norm=2)),
        ("classes", lambda: ig2.AGI(classes=0)),
        ("single output", lambda: ig2.AGI()(nn.Linear(6, 1).double(), X)),
        ("single output", lambda: ig2.LA()(nn.Linear(6, 1).double(), X)),
        ("single output", lambda: ig2.BIG()(nn.Linear(6, 1).double(), X)),
        ("attacks", lambda: ig2.BIG(attacks=(paths.Straight(),))),
        ("sigma", lambda: ig2.AttEXplore(sigma=-1)),
        ("cluster", lambda: ig2.LPI(POOL, 2, 11)(NET, X)),
        ("clusters", lambda: ig2.LPI(POOL, 20)(NET, X)),
        ("path method", lambda: ig2.WG(ig2.Gradient())),
        ("path method", lambda: ig2.WG(ig2.MFABA())),
        ("axis", lambda: ig2.SIG(axis=1)(NET, X)),
        ("embeddings", lambda: ig2.UDIG(POOL[0])),
        ("word vectors", lambda: ig2.UDIG(TABLE)(NET, X)),
        ("neighbours", lambda: ig2.DIG(TABLE, neighbours=0)),
        ("momentum", lambda: ig2.SAMP(momentum=1)),
        ("pool", lambda: ig2.GeodesicIG(POOL[:, :3])(NET, X)),
        ("both 0", lambda: ig2.RevealIG(sigma=0)),
        ("images", lambda: ig2.RevealIG(blur=2.0)(NET, X)),
        ("weights", lambda: ig2.IG2()(NET, X, references=references.Weighted(REFERENCES, [1, 2, 3]))),
        ("negative", lambda: ig2.IG2()(NET, X, references=references.Weighted(REFERENCES, [1, -1]))),
        ("weights", lambda: ig2.KernelSHAP()(NET, X, references=references.Weighted(REFERENCES, [1, 2]))),
    ],
)
def test_errors_say_what_is_wrong(word: str, call: Any):
    refuses(InputError, word, call)
