"""GT-AUC, GT-SUM and the pointing game: against slow replicas, scikit-learn and Quantus, and at their ends."""

import numpy as np
import pytest
import quantus
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from torch import nn

import ig2
from ig2.errors import IG2Warning, InputError
from ig2.metrics.localisation import GTAUC, GTSum, PointingGame
from networks import data, relu_cnn, uniform

QUIET = {"disable_warnings": True, "display_progressbar": False}
EVERY = [GTAUC(sign="keep"), GTSum(), PointingGame()]
every = pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)


def some_masks(*shape, seed=0, share=0.3):
    mask = uniform(*shape, seed=seed) < share
    mask.view(shape[0], -1)[:, :2] = torch.tensor([True, False])  # never empty, never everything
    return mask


def slow_auc(values, mask):
    """Every pair of a feature on the mask and one beside it."""
    pairs = [(on, beside) for on in values[mask].tolist() for beside in values[~mask].tolist()]
    return sum((on > beside) + 0.5 * (on == beside) for on, beside in pairs) / len(pairs)


@pytest.mark.parametrize("sign", ["keep", "positive", "absolute"])
def test_scores_are_those_of_slow_replicas_for_every_sign(sign):
    values, mask = (data(4, 3, 5, 6, seed=2) * 3).round(), some_masks(4, 5, 6)  # rounded: many are equal
    heats = values.sum(dim=1)
    heats = {"keep": heats, "positive": heats.clamp(min=0), "absolute": heats.abs()}[sign]
    assert heats.unique().numel() < 30
    auc, share, hit = (metric(sign=sign)(None, values, truth=mask) for metric in (GTAUC, GTSum, PointingGame))
    for i, (heat, on) in enumerate(zip(heats, mask, strict=True)):
        assert float(auc.values[i]) == pytest.approx(float(slow_auc(heat, on)), abs=1e-12)
        assert float(share.values[i]) == pytest.approx(float(heat[on].sum() / heat.sum()))
        assert float(hit.values[i]) == pytest.approx(float(on[heat == heat.max()].double().mean()))
    assert auc.better == share.better == hit.better == "higher"
    assert auc.settings == {"type": "GTAUC", "features": "auto", "sign": sign, "seed": 0}


def test_the_sign_matters():
    values, mask = data(4, 1, 5, 6), some_masks(4, 5, 6)
    assert len({round(GTAUC(sign=sign)(None, values, truth=mask).mean, 6) for sign in ("keep", "positive", "absolute")}) == 3


@every
def test_a_perfect_attribution_scores_one_and_its_reverse_zero(metric):
    mask = some_masks(5, 1, 8, 8)
    assert metric(None, mask.double(), truth=mask).values.tolist() == [1.0] * 5
    assert metric(None, (~mask).double(), truth=mask).values.tolist() == [0.0] * 5


def test_a_random_attribution_scores_by_chance():
    mask, noise = some_masks(64, 1, 16, 16), data(64, 1, 16, 16, seed=3)
    auc = GTAUC(sign="keep")(None, noise, truth=mask)
    assert abs(auc.mean - 0.5) < 3 * auc.standard_error < 0.05
    assert GTSum(sign="absolute")(None, noise, truth=mask).mean == pytest.approx(0.3, abs=0.02)
    assert PointingGame(sign="keep")(None, noise, truth=mask).mean == pytest.approx(0.3, abs=0.15)


@pytest.mark.parametrize("constant", [0.0, 2.5, -1.0])
def test_a_constant_attribution_is_one_half_exactly_and_hits_by_the_size_of_the_mask(constant):
    mask = some_masks(3, 1, 7, 9)
    values = torch.full((3, 1, 7, 9), constant)
    assert GTAUC(sign="keep")(None, values, truth=mask).values.tolist() == [0.5] * 3
    hits = PointingGame(sign="keep")(None, values, truth=mask).values
    torch.testing.assert_close(hits, mask.flatten(1).float().mean(dim=1))


def test_single_precision_of_a_large_image_is_exact_at_the_ends():
    mask = some_masks(2, 1, 300, 300)
    for values, score in ((mask.float(), 1.0), (torch.ones(2, 1, 300, 300), 0.5)):
        assert GTAUC()(None, values, truth=mask).values.tolist() == [score, score]


@given(
    st.lists(st.tuples(st.integers(-6, 6), st.booleans()), min_size=2, max_size=30).filter(
        lambda pairs: len({on for _, on in pairs}) == 2
    )
)
def test_auc_depends_on_the_order_alone_and_turns_round_with_it(pairs):
    values = torch.tensor([[float(value) for value, _ in pairs]], dtype=torch.float64)
    mask = torch.tensor([[on for _, on in pairs]])
    auc = GTAUC(sign="keep")
    score = float(auc(None, values, truth=mask).values)
    for increasing in (values.exp(), values**3 - 5, 3 * values + 1, values.sigmoid()):
        assert float(auc(None, increasing, truth=mask).values) == score
    assert float(auc(None, -values, truth=mask).values) == pytest.approx(1 - score, abs=1e-12)
    assert float(auc(None, values, truth=~mask).values) == pytest.approx(1 - score, abs=1e-12)


def test_a_transform_that_is_not_monotone_changes_the_auc():
    auc, values, mask = GTAUC(sign="keep"), data(1, 20), some_masks(1, 20)
    assert abs(auc(None, values, truth=mask).mean - auc(None, values**2, truth=mask).mean) > 0.01


@pytest.mark.parametrize("rounded", [False, True])
def test_auc_is_that_of_scikit_learn(rounded):
    values, mask = data(6, 40, seed=4), some_masks(6, 40, seed=5)
    values = (values * 4).round() if rounded else values
    ours = GTAUC(sign="keep")(None, values, truth=mask).values
    theirs = [roc_auc_score(mask[i].numpy(), values[i].numpy()) for i in range(6)]
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-12)


def test_scores_are_those_of_quantus():
    heat, mask = uniform(6, 1, 9, 9, seed=6), some_masks(6, 1, 9, 9, seed=8, share=0.6)
    case = {"model": nn.Flatten(), "x_batch": np.zeros((6, 3, 9, 9)), "y_batch": np.zeros(6, dtype=int)}
    case |= {"a_batch": heat.numpy(), "s_batch": mask.numpy()}
    peers = (quantus.AUC, quantus.RelevanceMassAccuracy, quantus.PointingGame)
    for ours, theirs in zip((GTAUC(), GTSum(), PointingGame()), peers, strict=True):
        found = ours(None, heat, truth=mask).values
        assert found.unique().numel() > 1
        np.testing.assert_allclose(found.numpy(), np.array(theirs(**QUIET)(**case), dtype=float), atol=1e-12)


@pytest.mark.parametrize("tolerance", [1, 2, 5])
def test_tolerance_is_the_distance_to_the_mask(tolerance):
    mask, values = some_masks(40, 1, 12, 15, share=0.02), uniform(40, 1, 12, 15, seed=8)
    mask[:, 0, 3, 4] = True
    values[:4] = 1.0  # all tied
    found, without = (PointingGame(tolerance=t)(None, values, truth=mask).values for t in (tolerance, 0))
    for heat, on, score in zip(values[:, 0], mask[:, 0], found, strict=True):
        squared = (on.nonzero() - (heat == heat.max()).nonzero()[:, None]).square().sum(dim=-1)  # (maxima, marked)
        assert float(score) == pytest.approx(float((squared <= tolerance**2).any(dim=1).double().mean()))
    assert (found >= without).all() and (found > without).any()


def test_tolerance_is_for_pixels():
    with pytest.raises(InputError, match=r"counts pixels.*heat maps as \(B, 1, H, W\)"):
        PointingGame(tolerance=15)(None, data(2, 6), truth=some_masks(2, 6))
    with pytest.raises(InputError, match="0 or more, got -1"):
        PointingGame(tolerance=-1)


@every
def test_masks_of_any_layout_and_type_say_the_same(metric):
    values, mask = data(3, 2, 4, 5), some_masks(3, 4, 5)
    expected = metric(None, values, truth=mask).values
    for same in (mask[:, None], mask.long(), mask.float(), mask.to(torch.uint8), mask.numpy(), mask.tolist()):
        assert torch.equal(metric(None, values, truth=same).values, expected)


@every
def test_features_marked_minus_one_are_as_if_they_were_not_there(metric):
    values, mask = data(1, 30), some_masks(1, 30)
    values[0, 25:] = 9.0  # the largest would be among them
    truth = mask.long()
    truth[0, 25:] = -1
    kept = metric(None, values[:, :25], truth=mask[:, :25]).values
    assert torch.equal(metric(None, values, truth=truth).values, kept)
    assert not torch.equal(metric(None, values, truth=mask).values, kept)


@every
def test_a_score_does_not_depend_on_its_neighbours(metric):
    values, mask = data(5, 2, 6, 6), some_masks(5, 6, 6)
    together = metric(None, values, truth=mask).values
    alone = torch.cat([metric(None, values[i : i + 1], truth=mask[i : i + 1]).values for i in range(5)])
    assert torch.equal(together, alone)


def test_words_elements_and_several_tensors():
    values, mask = data(2, 6, 8), some_masks(2, 6)
    by_word = GTAUC("word", "keep")(None, values, truth=mask).values.tolist()
    assert by_word == pytest.approx([slow_auc(words.sum(dim=1), on) for words, on in zip(values, mask, strict=True)])
    with pytest.raises(InputError, match="say features='word' or features='element'"):
        GTAUC()(None, values, truth=mask)
    values, mask = data(2, 3, 4, 4), some_masks(2, 3, 4, 4)
    assert GTAUC("element", "keep")(None, values, truth=mask).values[1] == pytest.approx(slow_auc(values[1], mask[1]))
    parts, marks = (data(2, 3), data(2, 2, 2, seed=1)), (some_masks(2, 3), some_masks(2, 2, 2, seed=1))
    flat, flat_mask = (torch.cat([part.flatten(1) for part in both], dim=1) for both in (parts, marks))
    expected = GTAUC(sign="keep")(None, flat, truth=flat_mask).values
    for truth in (marks, flat_mask):
        assert torch.equal(GTAUC("element", "keep")(None, parts, truth=truth).values, expected)


def test_what_a_method_returns_is_scored_as_its_values_and_the_network_is_not_run():
    def fails(x):
        raise AssertionError

    attribution, mask = ig2.IntegratedGradients(10)(relu_cnn(), uniform(2, 2, 8, 8)), some_masks(2, 8, 8)
    expected = GTAUC()(None, attribution.values, truth=mask).values
    for network in (relu_cnn(), fails):
        assert torch.equal(GTAUC()(network, attribution, truth=mask).values, expected)


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        (torch.ones(2, 3, 4, 4), r"truth is Tensor float32 \(2, 3, 4, 4\): expected \(2, 1, 4, 4\) or \(2, 4, 4\)"),
        (torch.ones(4, 4), "expected"),
        (torch.tensor(1), "expected"),
        (uniform(2, 4, 4), r"truth=mask > 0.5"),
        (torch.full((2, 4, 4), 255), "from 255 to 255"),
        (torch.full((2, 4, 4), torch.nan), "from nan to nan"),
        ("mask", "must be a mask"),
        (None, "GT-AUC needs truth=the mask"),
    ],
)
def test_what_is_no_mask_is_quoted(truth, message):
    with pytest.raises(InputError, match=message):
        GTAUC()(None, data(2, 3, 4, 4), truth=truth)


@every
def test_masks_that_are_empty_or_hold_everything_are_left_out(metric):
    values, truth = data(4, 1, 5, 5), some_masks(4, 5, 5).long()
    truth[0], truth[1] = 0, 1
    truth[2] = torch.where(truth[2] == 0, -1, 1)  # beside the mask nothing is counted
    with pytest.warns(IG2Warning, match="not defined for 3 of 4 .*1 because the mask is empty; 2 because the mask holds"):
        scores = metric(None, values, truth=truth)
    assert scores.values.isnan().tolist() == [True, True, True, False]
    assert scores.undefined == {"the mask is empty": 1, "the mask holds everything": 2}
    assert scores.mean == float(metric(None, values[3:], truth=truth[3:]).values[0])


def test_nothing_has_a_share_of_a_sum_of_zero():
    values = torch.tensor([[1.0, -1.0, 0.0], [-1.0, -2.0, -3.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    mask = torch.tensor([[1, 0, 0]] * 4)
    with pytest.warns(IG2Warning, match="2 because the attribution sums to zero"):
        assert GTSum()(None, values, truth=mask).values.isnan().tolist() == [False, True, True, False]
    with pytest.warns(IG2Warning, match="2 because the attribution sums to zero"):
        kept = GTSum(sign="keep")(None, values, truth=mask)
    assert kept.values.isnan().tolist() == [True, False, True, False]
    assert kept.defined.tolist() == [pytest.approx(1 / 6)] * 2
    cancelling = torch.tensor([[0.1, 0.2, -0.3]], dtype=torch.float64)
    assert float(cancelling.sum()) != 0
    with pytest.warns(IG2Warning, match="sums to zero"):
        GTSum(sign="keep")(None, cancelling, truth=mask[:1])
    for scale in (1e38, 1e-38):  # huge and tiny ones keep their share
        values = scale * torch.tensor([[1.0, 2.0, 2.0, 3.0]])
        assert GTSum()(None, values, truth=torch.tensor([[1, 0, 1, 0]])).mean == pytest.approx(3 / 8)


@every
def test_attributions_that_are_not_numbers_are_refused(metric):
    values = data(2, 6)
    values[1, 3] = torch.nan
    with pytest.raises(InputError, match=r"attribution holds NaN or infinite values in row 1"):
        metric(None, values, truth=some_masks(2, 6))
    with pytest.raises(InputError, match="sign"):
        type(metric)(sign="plus")(None, data(2, 6), truth=some_masks(2, 6))


def test_what_rounding_leaves_of_a_sum_of_many_is_no_total():
    values = torch.tensor([[1.0, -1.0]], dtype=torch.float64).repeat(1, 500)
    values[0, 0] += 1e-13
    mask = torch.zeros(1, 1000)
    mask[:, :3] = 1
    with pytest.warns(ig2.errors.IG2Warning, match="sums to zero"):
        assert GTSum(sign="keep")(None, values, truth=mask).n == 0
    values[0, 0] += 1e-9
    assert GTSum(sign="keep")(None, values, truth=mask).n == 1
