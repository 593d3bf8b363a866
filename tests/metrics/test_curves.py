"""Insertion and deletion: against a slow replica and Quantus, at their ends, and however the work is batched."""

import itertools

import numpy as np
import pytest
import quantus
import torch
from torch import nn

import ig2
from ig2._utils.blur import blur
from ig2.errors import IG2Warning, InputError, ModelError
from ig2.metrics.curves import Deletion, Insertion
from ig2.references import RandomSamples, Union, White, Zeros
from networks import Record, data, multi_label, relu_cnn, seeded, tanh_mlp, uniform

QUIET = {"disable_warnings": True, "display_progressbar": False}
both = pytest.mark.parametrize("kind", [Insertion, Deletion])
CNN, X, VALUES = relu_cnn(), uniform(3, 2, 8, 8), data(3, 2, 8, 8, seed=1)


class Spy(nn.Module):
    """Counts the points that pass, and the most at once."""

    def __init__(self, net):
        super().__init__()
        self.net, self.sizes = net, Record()

    def forward(self, x):
        self.sizes.append(len(x))
        return self.net(x)


class Additive(nn.Module):
    """The logit of class 0 is the sum of the features, that of class 1 is zero."""

    def forward(self, x):
        total = x.flatten(1).sum(dim=1)
        return torch.stack([total, 0 * total], dim=1)


def slow_curve(kind, score, x, background, importance, thresholds):
    """One sample (d,) or (C, H, W), feature by feature, straight from the definition. No two importances are equal."""
    features = importance.numel()
    order = sorted(range(features), key=lambda i: -float(importance.flatten()[i]))
    curve = []
    for step in range(thresholds + 1):
        count = int(step / thresholds * features + 0.5)
        start, other = (background, x) if kind is Insertion else (x, background)
        point = start.clone().reshape(-1, features)
        for i in order[:count]:
            point[:, i] = other.reshape(-1, features)[:, i]
        curve.append(float(score(point.reshape(x.shape)[None]).detach()))
    area = sum((curve[i] + curve[i + 1]) / 2 / thresholds for i in range(thresholds))
    return curve, area


@both
@pytest.mark.parametrize(
    ("background", "made"),
    [
        ("black", lambda x: torch.full_like(x, -0.5)),
        ("white", lambda x: torch.full_like(x, 2.0)),
        ("mean", lambda x: torch.stack([torch.full_like(channel, float(channel.mean())) for channel in x])),
        ("blurred", lambda x: blur(x, 10.0)),
        (0.25, lambda x: torch.full_like(x, 0.25)),
        (data(1, 2, 8, 8, seed=5, low=0), lambda x: data(2, 8, 8, seed=5, low=0)),
        (White(), lambda x: torch.full_like(x, 2.0)),
    ],
    ids=["black", "white", "mean", "blurred", "number", "sample", "strategy"],
)
def test_curves_of_pixels_are_those_of_a_slow_replica(kind, background, made):
    scores = kind(background, thresholds=7)(ig2.wrap(CNN, bounds=(-0.5, 2.0)), VALUES, X, target=[0, 3, 1])
    for x, values, target, curve, area in zip(X, VALUES, [0, 3, 1], scores.curves, scores.values, strict=True):
        output = lambda p, t=target: CNN(p).softmax(1)[0, t]  # noqa: E731
        expected, expected_area = slow_curve(kind, output, x, made(x), values.sum(dim=0), thresholds=7)
        np.testing.assert_allclose(curve.numpy(), expected, atol=1e-12)
        assert float(area) == pytest.approx(expected_area, abs=1e-12)
    torch.testing.assert_close(scores.at, torch.linspace(0, 1, 8, dtype=torch.float64))


@both
@pytest.mark.parametrize("thresholds", [1, 4, 6, 50])
def test_curves_of_tables_are_those_of_a_slow_replica_for_few_and_many_thresholds(kind, thresholds):
    net, x, values, nothing = tanh_mlp(), data(2, 6), data(2, 6, seed=1), torch.zeros(6).double()
    spy, least = Spy(net), Spy(net)
    scores = kind(thresholds=thresholds)(spy, values, x, target=2)
    for i in range(2):
        curve, area = slow_curve(kind, lambda p: net(p).softmax(1)[0, 2], x[i], nothing, values[i], thresholds)
        np.testing.assert_allclose(scores.curves[i].numpy(), curve, atol=1e-12)
        assert float(scores.values[i]) == pytest.approx(area, abs=1e-12)
    Insertion(thresholds=1)(least, values, x, target=2)
    # opening the network costs the same; beyond that each count of features is shown once
    assert sum(spy.sizes) - (sum(least.sizes) - 2 * 2) == 2 * (min(thresholds, 6) + 1)


def test_the_curves_run_between_the_background_and_the_explicand():
    ends = torch.stack([CNN(torch.zeros_like(X)).softmax(1)[:, 1], CNN(X).softmax(1)[:, 1]], dim=1).detach()
    torch.testing.assert_close(Insertion()(CNN, VALUES, X, target=1).curves[:, [0, -1]], ends)
    torch.testing.assert_close(Deletion()(CNN, VALUES, X, target=1).curves[:, [-1, 0]], ends)
    # without bounds, black and white are zero and one
    for name, same in (("black", Zeros()), ("white", 1.0), ("black", torch.zeros(1, 2, 8, 8))):  # the last in float32
        assert torch.equal(Insertion(name)(CNN, VALUES, X).curves, Insertion(same)(CNN, VALUES, X).curves)
    # adding by one order is deleting by the reverse
    added = Insertion(thresholds=64)(CNN, VALUES, X)
    torch.testing.assert_close(added.curves, Deletion(thresholds=64)(CNN, -VALUES, X).curves.flip(1))
    assert not torch.allclose(added.curves, Deletion(thresholds=64)(CNN, VALUES, X).curves.flip(1))


def test_several_backgrounds_make_the_mean_of_their_curves():
    def delete(background):
        return Deletion(background)(CNN, VALUES, X).curves

    own = uniform(3, 3, 2, 8, 8, seed=7)  # for each explicand its own three
    torch.testing.assert_close(delete(own), torch.stack([delete(own[:, i : i + 1]) for i in range(3)]).mean(dim=0))
    torch.testing.assert_close(delete(Union(Zeros(), White())), (delete("black") + delete("white")) / 2)
    assert len(delete(RandomSamples(uniform(9, 2, 8, 8), 4))) == 3


@pytest.mark.parametrize("thresholds", [5, 50])
def test_of_all_orders_the_oracle_adds_fastest_and_deletes_fastest(thresholds):
    contributions = torch.tensor([0.7, -0.4, 1.9, 0.2, -1.1], dtype=torch.float64)
    orders = torch.tensor(list(itertools.permutations(range(5))), dtype=torch.float64)
    x = contributions.expand(len(orders), 5)
    added = Insertion(thresholds=thresholds)(Additive(), orders, x, target=0).values
    deleted = Deletion(thresholds=thresholds)(Additive(), orders, x, target=0).values
    oracle = contributions.argsort().argsort().double()
    assert orders[added.argmax()].equal(oracle) and orders[deleted.argmin()].equal(oracle)
    assert orders[added.argmin()].equal(4 - oracle) and orders[deleted.argmax()].equal(4 - oracle)
    assert (added == added.max()).sum() == 1  # no other order is as good
    assert float(Insertion(thresholds=thresholds)(Additive(), x[:1], x[:1], target=0).values) == float(added.max())


def test_better_attributions_score_better_on_a_network():
    net, x = tanh_mlp(8, 16), data(40, 8)
    good, noise = ig2.IntegratedGradients(30)(net, x), data(40, 8, seed=9)
    assert Insertion()(net, good).mean > Insertion()(net, noise, x).mean + 0.02
    assert Deletion()(net, good).mean < Deletion()(net, noise, x).mean - 0.02
    assert Insertion.better == "higher" and Deletion.better == "lower"


def test_signs():
    x, negative = torch.tensor([[3.0, -2.0, 1.0]]), torch.tensor([[-3.0, -2.0, -1.0]])
    for sign, curve in (("keep", [0, 3, 4, 2]), ("positive", [0, 3, 4, 2]), ("absolute", [0, 3, 1, 2])):
        assert Insertion(sign=sign, thresholds=3, output="model")(Additive(), x, x, 0).curves[0].tolist() == curve
    for sign, orders in (("positive", 6), ("keep", 1)):  # as zeros the negative ones are in no order
        areas = {float(Insertion(sign=sign)(Additive(), negative, negative, 0, seed=seed).values) for seed in range(20)}
        assert len(areas) == orders


def test_ties_are_broken_by_the_seed_alike_for_each_explicand():
    x, constant = data(1, 12).expand(3, 12), torch.ones(3, 12).double()

    def insert(values, x, seed=3):
        return Insertion(thresholds=12)(Additive(), values, x, 0, seed=seed)

    curves = insert(constant, x).curves
    assert curves.unique(dim=0).shape[0] == 1
    assert torch.equal(curves, insert(constant, x).curves) and torch.equal(curves[:1], insert(constant[:1], x[:1]).curves)
    assert not torch.equal(curves, insert(constant, x, seed=4).curves)
    # random orders, so that over seeds a constant is worth what noise is
    areas = [insert(constant[:1], x[:1], seed).mean for seed in range(200)]
    noise = insert(data(200, 12, seed=1), x[:1].expand(200, 12), 0)
    assert abs(np.mean(areas) - noise.mean) < 4 * noise.standard_error
    # features that are in an order do not see the seed
    assert torch.equal(*(insert(data(2, 12, seed=1), data(2, 12), seed).curves for seed in (0, 1)))


def test_the_output_shown():
    x, net, single = data(2, 6), tanh_mlp(), tanh_mlp(classes=1)
    raw = net(x).detach()
    for model, output, expected in [
        (net, "auto", raw.softmax(1)[:, 1]),
        (ig2.wrap(net, output="log-probability"), "auto", raw.softmax(1)[:, 1]),
        (ig2.wrap(net, output="sigmoid"), "auto", raw.sigmoid()[:, 1]),
        (ig2.wrap(net, output="sigmoid"), "probability", raw.softmax(1)[:, 1]),
        (net, "model", raw[:, 1]),
        (ig2.wrap(net, output=lambda result: 2 * result), "model", 2 * raw[:, 1]),
        (single, "auto", single(x).detach().sigmoid()[:, 0]),
        (single, "model", single(x).detach()[:, 0]),
        (multi_label(), "model", multi_label()(x).detach()[:, 1]),
    ]:
        curves = Insertion(output=output)(model, data(2, 6, seed=1), x, target=0 if model is single else 1).curves
        torch.testing.assert_close(curves[:, -1], expected)


def test_outputs_that_cannot_be_known_are_asked_for():
    x, values = data(2, 6), data(2, 6, seed=1)
    with pytest.raises(InputError, match=r"a function of what the network returns.*output='model'"):
        Insertion()(ig2.wrap(tanh_mlp(), output=lambda result: result), values, x)
    with pytest.raises(InputError, match="output='softmax' is unknown: use one of 'auto', 'model', 'logit'"):
        Insertion(output="softmax")(tanh_mlp(), values, x)
    with pytest.warns(IG2Warning, match="returns probabilities already"):
        Insertion()(nn.Sequential(tanh_mlp(), nn.Softmax(dim=1)), values, x)


@pytest.mark.parametrize(("softmax", "output"), [(True, "probability"), (False, "model")])
def test_deletion_is_quantus_pixel_flipping(softmax, output):
    net, x, values = relu_cnn(channels=1).float(), uniform(4, 1, 8, 8, seed=2).float(), data(4, 1, 8, 8, seed=3).float()
    darkest = x.amin(dim=(1, 2, 3), keepdim=True).expand_as(x)  # what is black to Quantus
    ours = Deletion(darkest[:, None], thresholds=16, features="element", output=output)(net, values, x, [0, 1, 2, 3]).curves
    theirs = quantus.PixelFlipping(features_in_step=4, perturb_baseline="black", **QUIET)(
        model=net, x_batch=x.numpy(), y_batch=np.arange(4), a_batch=values.numpy(), softmax=softmax
    )
    np.testing.assert_allclose(ours[:, 1:].numpy(), theirs, atol=1e-6)
    torch.testing.assert_close(ours, Deletion(darkest[:, None], 16, output=output)(net, values, x, [0, 1, 2, 3]).curves)


@both
@pytest.mark.parametrize("batch_size", [1, 2, 7, 11, 12, 100])
def test_scores_do_not_depend_on_the_batch_size(kind, batch_size):
    metric, spy = kind(uniform(2, 2, 8, 8, seed=3), thresholds=10), Spy(CNN)
    found = metric(spy, VALUES, X, batch_size=batch_size)
    torch.testing.assert_close(found.curves, metric(CNN, VALUES, X).curves, atol=1e-12, rtol=0)
    assert max(spy.sizes) <= max(2, batch_size)  # two, when the network is opened


def test_scores_do_not_depend_on_the_neighbours_and_memory_that_runs_out_is_no_end():
    class Small(Spy):
        def forward(self, x):
            if len(x) > 5:
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(x)

    whole, told = Insertion("blurred")(CNN, VALUES, X).curves, []
    torch.testing.assert_close(Insertion("blurred")(CNN, VALUES[2:3], X[2:3]).curves, whole[2:3])
    found = Insertion("blurred")(Small(CNN), VALUES, X, progress=lambda done, total: told.append((done, total)))
    torch.testing.assert_close(found.curves, whole)
    assert told[-1] == (153, 153) and told == sorted(told)


def test_a_network_that_fails_on_the_background_is_named():
    x = uniform(2, 3) + 0.1
    with pytest.raises(ModelError, match="where reference 0 replaces a part of explicand 0"):
        Insertion()(torch.log, x, x)
    assert Insertion(0.5)(torch.log, x, x).n == 2


@both
def test_words_go_over_as_a_whole(kind):
    head = seeded(lambda: nn.Linear(4, 3), 0)

    def net(words, mask):
        """The mean of the words that are not padding, and a linear layer."""
        return head((words * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True))

    words, mask = data(2, 5, 4), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).double()
    x = (words * mask[..., None], ig2.Fixed(mask))
    attribution = ig2.IntegratedGradients(10)(net, x, target=1)

    def score(background, **options):
        return kind(background, features="word", **options)(net, attribution, x)

    for background in ("black", data(1, 5, 4, seed=5), Zeros()):
        scores = score(background, thresholds=5)
        filler = background[0] if isinstance(background, torch.Tensor) else torch.zeros(5, 4).double()
        # the replica wants its features last
        output = lambda p: net(p.mT, mask[:1]).softmax(1)[0, 1]  # noqa: E731
        curve, area = slow_curve(kind, output, words[0].T, filler.T, attribution.values[0][0].sum(dim=1), thresholds=5)
        np.testing.assert_allclose(scores.curves[0].numpy(), curve, atol=1e-12)
        assert float(scores.values[0]) == pytest.approx(area)
    filled = (words * mask[..., None]).mean(dim=1, keepdim=True).expand(2, 5, 4)
    torch.testing.assert_close(score("mean").curves, score(filled[:, None]).curves)
    with pytest.raises(InputError, match="background='blurred' is for images"):
        score("blurred")
    with pytest.raises(InputError, match="say features='word' or features='element'"):
        kind()(net, attribution, x)


def test_several_tensors_are_ranked_together():
    def two(one, other):
        return Additive()(torch.cat([one, other.flatten(1)], dim=1))

    one, other = data(2, 3), data(2, 2, 2, seed=1)
    flat, pair, named = torch.cat([one, other.flatten(1)], dim=1), (one, other), {"one": one, "other": other}
    expected = Insertion()(Additive(), flat, flat, target=0).curves
    for metric, x in (
        (Insertion(features="element"), pair),
        (Insertion(), named),
        (Insertion((torch.zeros(1, 3), torch.zeros(1, 2, 2))), pair),
    ):
        torch.testing.assert_close(metric(two, x, x, target=0).curves, expected)


def test_what_cannot_be_is_said():
    net, x, values, image = tanh_mlp(), data(2, 6), data(2, 6, seed=1), data(2, 3, 4, 4)
    bad = values.clone()
    bad[1, 2] = torch.nan
    shape = r"expected \(2, 3, 4, 4\), the shape of x\. A map for all channels .* values"
    for message, call in [
        (r"of a table it would mix its columns.*background=data.mean", lambda: Insertion("mean")(net, values, x)),
        ("background='blurred' is for images", lambda: Insertion("blurred")(net, values, x)),
        ("background='grey': use 'black', 'white', 'mean', 'blurred'", lambda: Insertion("grey")(net, values, x)),
        (rf"{shape}\.expand_as\(x\)$", lambda: Insertion()(lambda x: x.sum(dim=(1, 2, 3)), image[:, :1], image)),
        (rf"{shape}\[:, None\]\.expand_as\(x\)$", lambda: Insertion()(lambda x: x.sum(dim=(1, 2, 3)), image[:, 0], image)),
        (r"SIC AUC-ADD got no attribution: .* Insertion\(\.\.\.\)\(model, attribution", lambda: Insertion()(values)),
        ("thresholds", lambda: Deletion(thresholds=0)),
        ("x=", lambda: Insertion()(net, values)),
        ("compares with no truth", lambda: Insertion()(net, values, x, truth=x)),
        (r"attribution holds NaN or infinite values in row 1", lambda: Insertion()(net, bad, x)),
    ]:
        with pytest.raises(InputError, match=message):
            call()


def test_the_result_repeats_what_was_asked():
    scores = Insertion("blurred", thresholds=9, sign="absolute")(CNN, VALUES, X, seed=5)
    assert scores.metric == "SIC AUC-ADD" and Deletion.name == "SIC AUC-DEL"
    settings = {"background": "blurred", "thresholds": 9, "features": "auto", "sign": "absolute", "output": "auto", "seed": 5}
    assert scores.settings == {"type": "Insertion", **settings}
    bounds = (torch.tensor([-1.0, -2.0])[:, None, None], 3.0)
    for model, black, white in ((CNN, [0.0], [1.0]), (ig2.wrap(CNN, bounds=bounds), [-2.0, -1.0], [3.0])):
        assert Insertion("black", thresholds=2)(model, VALUES, X).settings["background_values"] == black
        assert Deletion("white", thresholds=2)(model, VALUES, X).settings["background_values"] == white
