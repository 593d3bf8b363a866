"""The published information curves: against PAIR's code, a slow replica, and where they are not defined."""

import io
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from saliency.metrics import pic
from scipy.interpolate import griddata
from torch import nn

import ig2
from ig2.errors import IG2Warning, InputError, MissingExtraError, ModelError
from ig2.metrics.base import Scores
from ig2.metrics.curves import Insertion
from ig2.metrics.information import AIC, SHARES, SIC, median_curve
from networks import data, uniform

SIZE = 24
BOARD = 1 - 2.0 * (torch.arange(SIZE)[:, None] // 2 % 2 == torch.arange(SIZE) // 2 % 2).double()


class Board(nn.Module):
    """Class 1 where there is a chessboard, whose squares a blur wipes out."""

    def __init__(self, scale=1.0, bias=-3.0, single=False):
        super().__init__()
        self.scale, self.bias, self.single = scale, bias, single

    def forward(self, x):
        logit = 40 * (x / self.scale * BOARD).mean(dim=(1, 2, 3)) + self.bias
        return logit[:, None] if self.single else torch.stack([0 * logit, logit], dim=1)


def boards(count, channels=3, seed=0):
    """Slopes with a chessboard somewhere on them, in 8 bits: (count, channels, SIZE, SIZE) from 0 to 255, and where it is."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.linspace(60, 120, SIZE, dtype=torch.float64).expand(count, channels, SIZE, SIZE).clone()
    mask = torch.zeros(count, SIZE, SIZE, dtype=torch.bool)
    for i, (row, column) in enumerate(torch.randint(0, SIZE - 15, (count, 2), generator=generator).tolist()):
        mask[i, row : row + 15, column : column + 15] = True
    x += torch.where(mask[:, None], 75 * BOARD, 0.0)
    x += torch.randint(0, 30, x.shape, generator=generator)
    return x.round().clamp(0, 255), mask


X, MASK = boards(5)
MODEL = ig2.wrap(Board(255.0), bounds=(0, 255))
VALUES = MASK[:, None].double() * uniform(5, 3, SIZE, SIZE, seed=1) + 0.3 * data(5, 3, SIZE, SIZE, seed=2)


@pytest.mark.filterwarnings("ignore::ig2.errors.IG2Warning")
def test_a_channel_with_equal_bounds_is_black():
    blue = torch.tensor([0.0, 0, 7])[:, None, None]  # the value it always has
    black, board = X.clone(), Board(255.0, bias=0.0)
    black[:, 2] = 0
    expected = SIC()(ig2.wrap(lambda x: board(x + blue), bounds=(0, 255)), VALUES, black, target=1)
    model = ig2.wrap(board, bounds=(blue, torch.tensor([255.0, 255, 7])[:, None, None]))
    found = SIC()(model, VALUES, black + blue, target=1)
    torch.testing.assert_close(found.curves, expected.curves, equal_nan=True)


def start_mask(seed=0, known=0.01):
    mask = np.zeros(SIZE * SIZE, dtype=bool)
    mask[torch.randperm(SIZE * SIZE, generator=torch.Generator().manual_seed(seed))[: int(SIZE * SIZE * known)].numpy()] = True
    return mask.reshape(SIZE, SIZE)


def probability(images):
    """What PAIR calls: images (n, H, W, C) or (n, H, W) of 8 bits."""
    images = images if images.ndim == 4 else images[..., None]
    return Board(255.0)(torch.from_numpy(images).double().movedim(-1, 1)).softmax(dim=1)[:, 1].tolist()


def correct(images):
    return [float(value > 0.5) for value in probability(images)]


def as_image(x):
    image = x.movedim(0, -1).numpy().astype(np.uint8)
    return image if image.shape[2] == 3 else image[..., 0]


@pytest.mark.parametrize(("metric", "predict"), [(SIC, probability), (AIC, correct)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("monotone", [True, False])
def test_curves_are_those_of_pair(metric, predict, channels, monotone, monkeypatch):
    monkeypatch.setattr(np, "trapz", np.trapezoid, raising=False)  # which their code asks for and NumPy no longer has
    x, values = X[:, :channels], VALUES[:, :channels]
    ours = metric(monotone=monotone)(MODEL, values, x, target=1)
    maps = values.sum(dim=1).numpy()
    theirs = [
        pic.compute_pic_metric(as_image(image), heat, start_mask(), predict, SHARES, keep_monotonous=monotone)
        for image, heat in zip(x, maps, strict=True)
    ]
    whole, (curve, area) = pic.aggregate_individual_pic_results(theirs), median_curve(ours)
    np.testing.assert_allclose(ours.curves.numpy(), [result.curve_y for result in theirs], atol=1e-9)
    np.testing.assert_allclose(ours.values.numpy(), [result.auc for result in theirs], atol=1e-9)
    np.testing.assert_allclose(ours.at.numpy(), theirs[0].curve_x)
    np.testing.assert_allclose(curve.numpy(), whole.curve_y, atol=1e-9)
    assert area == pytest.approx(whole.auc, abs=1e-9)
    assert ours.values.unique().numel() > 1 and abs(area - ours.mean) > 1e-4


def test_a_curve_is_that_of_a_slow_replica():
    x, mask = boards(1, seed=4)
    values = mask[:, None].double() + 0.1 * data(1, 3, SIZE, SIZE, seed=3)
    shares = (0.1, 0.3, 0.6)
    found = SIC(shares, points=20, known=0.05, compression="png")(MODEL, values, x, target=1, seed=9)
    image, importance = as_image(x[0]), values[0].sum(dim=0).flatten().numpy()

    def seen(known):
        grid = np.stack(np.meshgrid(range(SIZE), range(SIZE), indexing="ij"), axis=-1)
        filled = np.stack([griddata(grid[known], image[known][:, c], grid[~known]) for c in range(3)], axis=-1)
        result = image.copy()
        result[~known] = np.round(filled.astype(np.float32))
        file = io.BytesIO()
        Image.fromarray(result).save(file, format="png", optimize=True)
        return len(file.getvalue()), probability(result[None])[0]

    start = start_mask(9, 0.05)
    start[0, 0] = start[0, -1] = start[-1, 0] = start[-1, -1] = True
    none, everything = seen(start), seen(start | (np.arange(SIZE * SIZE) > 0).reshape(SIZE, SIZE))
    points, best = [], 0.0
    for share in shares:
        threshold = np.quantile(importance, 1 - share)
        size, output = seen(start | (importance >= threshold).reshape(SIZE, SIZE))
        best = max(best, min(1.0, (output - none[1]) / (everything[1] - none[1])))
        points.append((min(1.0, max(0.0, (size - none[0]) / (everything[0] - none[0]))), best))
    points = sorted([*points, (0.0, 0.0), (1.0, 1.0)], key=lambda point: point[0])
    expected = np.interp(np.linspace(0, 1, 21), *zip(*points, strict=True))
    np.testing.assert_allclose(found.curves[0].numpy(), expected, atol=1e-9)
    assert float(found.values[0]) == pytest.approx(float(np.trapezoid(expected, np.linspace(0, 1, 21))))


@pytest.mark.parametrize("metric", [SIC, AIC])
def test_finding_the_board_scores_better_than_missing_it(metric):
    maps = (MASK.double(), uniform(5, SIZE, SIZE), -MASK.double())
    good, *others = [metric()(MODEL, values[:, None].expand_as(X), X, target=1).mean for values in maps]
    assert good > max(others) + 0.1
    assert metric.better == "higher" and metric.name == metric.__name__


def test_of_single_and_independent_outputs_more_than_one_half_is_yes():
    expected, single = AIC()(MODEL, VALUES, X, target=1).curves, Board(255.0, single=True)

    def labels(x):
        return torch.cat([single(x), x.mean(dim=(1, 2, 3))[:, None]], dim=1)

    assert (labels(X).argmax(dim=1) == 1).all()  # by the largest, label 0 would never be there
    for net, output in ((single, "logit"), (labels, "sigmoid")):
        model = ig2.wrap(net, output=output, bounds=(0, 255))
        assert torch.equal(AIC()(model, VALUES, X, target=0).curves, expected)


def test_any_range_of_the_data_gives_the_same_images():
    expected = SIC()(MODEL, VALUES, X, target=1).curves
    low, high = (torch.tensor(bound).view(3, 1, 1).double() for bound in ([-2.0, -1.0, 0.0], [2.0, 3.0, 1.0]))
    model = ig2.wrap(Board(255.0), bounds=(low, high), preprocess=lambda x: (x - low) / (high - low) * 255)
    torch.testing.assert_close(SIC()(model, VALUES, low + X / 255 * (high - low), target=1).curves, expected)


def test_scores_depend_on_the_seed_but_not_on_batches_or_neighbours():
    told = []
    whole = SIC()(MODEL, VALUES, X, target=1, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (5 * (2 + len(SHARES)),) * 2
    for size in (1, 3, 11):
        torch.testing.assert_close(SIC()(MODEL, VALUES, X, target=1, batch_size=size).curves, whole.curves)
    torch.testing.assert_close(SIC()(MODEL, VALUES[3:4], X[3:4], target=1).curves, whole.curves[3:4])
    assert not torch.allclose(SIC()(MODEL, VALUES, X, target=1, seed=1).curves, whole.curves)


def test_settings_are_repeated():
    scores = SIC(sign="absolute", compression="png")(MODEL, VALUES, X, target=1)
    numbers = {"known": 0.01, "least": 0.8, "monotone": True, "points": 1000, "seed": 0}
    assert scores.settings == {"type": "SIC", "shares": list(SHARES), "sign": "absolute", "compression": "png", **numbers}
    assert not torch.equal(scores.curves, SIC(sign="absolute")(MODEL, VALUES, X, target=1).curves)


def test_images_the_published_curves_leave_out_are_counted_and_left_out():
    x = X.clone()
    x[0] = 128.0  # nothing to blur
    with pytest.warns(IG2Warning, match="not defined for 2 of 5"):
        scores = SIC(least=0)(MODEL, VALUES, x, target=[1, 0, 1, 1, 1])  # the more is blurred, the more is it class 0
    assert scores.undefined == {
        "the blurred image has no less information than the original": 1,
        "the blurred image has no less output than the original": 1,
    }
    assert scores.values.isnan().tolist() == scores.curves.isnan().all(dim=1).tolist() == [True, True, False, False, False]
    torch.testing.assert_close(scores.curves[2:], SIC()(MODEL, VALUES[2:], X[2:], target=1).curves)
    curve, _ = median_curve(scores)
    torch.testing.assert_close(curve, scores.curves[2:].median(dim=0).values)


@pytest.mark.parametrize(("metric", "target"), [(SIC(), 0), (SIC(least=0.9999), 1), (AIC(), 0)])
def test_an_output_that_is_low_on_the_original_leaves_it_out(metric, target):
    with pytest.warns(IG2Warning, match=f"5 because the output of the original is below {metric.least}"):
        scores = metric(MODEL, VALUES, X, target=target)
    assert scores.n == 0 and np.isnan(scores.mean)
    with pytest.raises(InputError, match="not defined for any of the 5 explicands"):
        median_curve(scores)


def test_the_median_curve_of_an_even_number_lies_between_the_two_in_the_middle():
    curves = torch.tensor([[0.0, 1.0], [0.2, 1.0], [0.6, 1.0], [0.9, 1.0]])
    curve, area = median_curve(Scores(curves.mean(dim=1), "SIC", "higher", curves=curves, at=torch.tensor([0.0, 1.0])))
    torch.testing.assert_close(curve, torch.tensor([0.4, 1.0]))
    assert area == pytest.approx(0.7)
    added = Insertion()(MODEL, VALUES, X, target=1)  # any curves have a median
    torch.testing.assert_close(median_curve(added)[0], added.curves.median(dim=0).values)
    with pytest.raises(InputError, match="GT-AUC draws no curves"):
        median_curve(Scores(torch.ones(2), "GT-AUC", "higher"))


def test_what_cannot_be_is_said(monkeypatch):
    function = ig2.wrap(Board(255.0), output=lambda result: result, bounds=(0, 255))
    for message, model, values, x in [
        (r"the data's range must be known: ig2.wrap\(net, bounds=\(0, 1\)\)", Board(255.0), VALUES, X),
        (r"one or three channels, these samples are \(2, 24, 24\)", MODEL, VALUES[:, :2], X[:, :2]),
        ("outside the model's bounds", MODEL, VALUES, 2 * X),
        ("a function of what the network returns", function, VALUES, X),
        ("holds NaN", MODEL, VALUES * torch.nan, X),
    ]:
        with pytest.raises(InputError, match=message):
            SIC()(model, values, x)
    shares = [{"shares": shares} for shares in ((0.5, 0.2), (0.0, 0.5), (0.5, 1.0), (), "half", (0.2, float("nan")))]
    for wrong in (*shares, {"known": 1.0}, {"least": "high"}, {"points": 0}, {"compression": "jpeg"}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            SIC(**wrong)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ig2\[image\]'"):
        SIC()(MODEL, VALUES, X)


def test_a_network_that_fails_on_blurred_images_is_named():
    def fails(x):
        rough = x.diff(dim=-1).abs().mean(dim=(1, 2, 3))
        return Board(255.0)(x) + 0 * (rough - 30).sqrt()[:, None]  # of less than nothing where it is blurred

    with pytest.raises(ModelError, match="with some of its pixels blurred is not a finite number"):
        SIC()(ig2.wrap(fails, bounds=(0, 255)), VALUES, X, target=1)
