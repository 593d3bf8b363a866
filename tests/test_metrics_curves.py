"""Insertion and deletion: against a slow replica and Quantus, at their ends, and however the work is batched."""

import itertools

import numpy as np
import pytest
import quantus
import torch
from torch import nn

import ig2
from ig2.errors import IG2Warning, InputError, ModelError
from ig2.metrics.curves import Deletion, Insertion
from ig2.paths.blur import blur
from ig2.references import Samples, Union, White, Zeros
from networks import Record, data, multi_label, relu_cnn, seeded, tanh_mlp, uniform

QUIET = {"disable_warnings": True, "display_progressbar": False}
both = pytest.mark.parametrize("kind", [Insertion, Deletion])


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


# -- the replica -------------------------------------------------------------------------------------------------------


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
    net, x, values = relu_cnn(), uniform(3, 2, 8, 8), data(3, 2, 8, 8, seed=1)
    model = ig2.wrap(net, bounds=(-0.5, 2.0))
    scores = kind(background, thresholds=7)(model, values, x, target=[0, 3, 1])
    for i, target in enumerate([0, 3, 1]):
        curve, area = slow_curve(
            kind, lambda p, t=target: net(p).softmax(1)[0, t], x[i], made(x[i]), values[i].sum(dim=0), thresholds=7
        )
        np.testing.assert_allclose(scores.curves[i].numpy(), curve, atol=1e-12)
        assert float(scores.values[i]) == pytest.approx(area, abs=1e-12)
    torch.testing.assert_close(scores.at, torch.linspace(0, 1, 8, dtype=torch.float64))


@both
@pytest.mark.parametrize("thresholds", [1, 4, 6, 50])
def test_curves_of_tables_are_those_of_a_slow_replica_for_few_and_many_thresholds(kind, thresholds):
    net, x, values = tanh_mlp(), data(2, 6), data(2, 6, seed=1)
    spy = Spy(net)
    scores = kind(thresholds=thresholds)(spy, values, x, target=2)
    passed = sum(spy.sizes)
    for i in range(2):
        curve, area = slow_curve(kind, lambda p: net(p).softmax(1)[0, 2], x[i], torch.zeros(6).double(), values[i], thresholds)
        np.testing.assert_allclose(scores.curves[i].numpy(), curve, atol=1e-12)
        assert float(scores.values[i]) == pytest.approx(area, abs=1e-12)
    spy.sizes.clear()
    Insertion(thresholds=1)(spy, values, x, target=2)
    # opening the network costs the same; beyond that each count of features is shown once
    assert passed - (sum(spy.sizes) - 2 * 2) == 2 * (min(thresholds, 6) + 1)


def test_black_and_white_without_bounds_are_zero_and_one():
    net, x, values = relu_cnn(), uniform(2, 2, 8, 8), data(2, 2, 8, 8, seed=1)
    assert torch.equal(Insertion("black")(net, values, x).curves, Insertion(Zeros())(net, values, x).curves)
    assert torch.equal(Insertion("white")(net, values, x).curves, Insertion(1.0)(net, values, x).curves)


def test_the_curves_run_between_the_background_and_the_explicand():
    net, x, values = relu_cnn(), uniform(2, 2, 8, 8), data(2, 2, 8, 8, seed=1)
    ends = torch.stack([net(torch.zeros_like(x)).softmax(1)[:, 1], net(x).softmax(1)[:, 1]], dim=1).detach()
    torch.testing.assert_close(Insertion()(net, values, x, target=1).curves[:, [0, -1]], ends)
    torch.testing.assert_close(Deletion()(net, values, x, target=1).curves[:, [-1, 0]], ends)


def test_adding_by_one_order_is_deleting_by_the_reverse():
    net, x, values = relu_cnn(), uniform(2, 2, 8, 8), data(2, 2, 8, 8, seed=1)
    added = Insertion(thresholds=64)(net, values, x)
    torch.testing.assert_close(added.curves, Deletion(thresholds=64)(net, -values, x).curves.flip(1))
    assert not torch.allclose(added.curves, Deletion(thresholds=64)(net, values, x).curves.flip(1))


def test_several_backgrounds_make_the_mean_of_their_curves():
    net, x, values = relu_cnn(), uniform(2, 2, 8, 8), data(2, 2, 8, 8, seed=1)
    own = uniform(2, 3, 2, 8, 8, seed=7)  # for each explicand its own three
    together = Deletion(own)(net, values, x)
    one_by_one = [Deletion(own[:, i : i + 1])(net, values, x).curves for i in range(3)]
    torch.testing.assert_close(together.curves, torch.stack(one_by_one).mean(dim=0))
    pair = Deletion(Union(Zeros(), White()))(net, values, x).curves
    torch.testing.assert_close(pair, (Deletion("black")(net, values, x).curves + Deletion("white")(net, values, x).curves) / 2)
    assert Deletion(Samples(uniform(9, 2, 8, 8), 4))(net, values, x).n == 2


# -- orders ------------------------------------------------------------------------------------------------------------


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
    x = torch.tensor([[3.0, -2.0, 1.0]])
    curves = {
        sign: Insertion(sign=sign, thresholds=3, output="model")(Additive(), x, x, 0).curves[0].tolist()
        for sign in ("keep", "positive", "absolute")
    }
    assert curves == {"keep": [0, 3, 4, 2], "positive": [0, 3, 4, 2], "absolute": [0, 3, 1, 2]}
    negative = torch.tensor([[-3.0, -2.0, -1.0]])  # as zeros these are in no order
    areas = {float(Insertion(sign="positive")(Additive(), negative, negative, 0, seed=seed).values) for seed in range(20)}
    assert len(areas) == 6
    assert len({float(Insertion()(Additive(), negative, negative, 0, seed=seed).values) for seed in range(20)}) == 1


def test_ties_are_broken_by_the_seed_alike_for_each_explicand():
    x = data(1, 12).expand(3, 12)
    constant = torch.ones(3, 12).double()
    scores = Insertion(thresholds=12)(Additive(), constant, x, 0, seed=3)
    assert scores.curves.unique(dim=0).shape[0] == 1
    assert torch.equal(scores.curves, Insertion(thresholds=12)(Additive(), constant, x, 0, seed=3).curves)
    alone = Insertion(thresholds=12)(Additive(), constant[:1], x[:1], 0, seed=3)
    assert torch.equal(scores.curves[:1], alone.curves)
    assert not torch.equal(scores.curves, Insertion(thresholds=12)(Additive(), constant, x, 0, seed=4).curves)
    # random orders, so that over seeds a constant is worth what noise is
    areas = [Insertion(thresholds=12)(Additive(), constant[:1], x[:1], 0, seed=seed).mean for seed in range(200)]
    noise = Insertion(thresholds=12)(Additive(), data(200, 12, seed=1), x[:1].expand(200, 12), 0)
    assert abs(np.mean(areas) - noise.mean) < 4 * noise.standard_error


def test_features_that_are_in_an_order_do_not_see_the_seed():
    values, x = data(2, 12, seed=1), data(2, 12)
    found = [Insertion()(Additive(), values, x, 0, seed=seed).curves for seed in (0, 1)]
    assert torch.equal(*found)


# -- outputs -----------------------------------------------------------------------------------------------------------


def test_the_output_shown():
    x, values = data(2, 6), data(2, 6, seed=1)
    net = tanh_mlp()
    raw = net(x).detach()

    def last(model, output):
        return Insertion(output=output)(model, values, x, target=1).curves[:, -1]

    torch.testing.assert_close(last(net, "auto"), raw.softmax(1)[:, 1])
    torch.testing.assert_close(last(ig2.wrap(net, output="log-probability"), "auto"), raw.softmax(1)[:, 1])
    torch.testing.assert_close(last(ig2.wrap(net, output="sigmoid"), "auto"), raw.sigmoid()[:, 1])
    torch.testing.assert_close(last(ig2.wrap(net, output="sigmoid"), "probability"), raw.softmax(1)[:, 1])
    torch.testing.assert_close(last(net, "model"), raw[:, 1])
    torch.testing.assert_close(last(ig2.wrap(net, output=lambda result: 2 * result), "model"), 2 * raw[:, 1])
    single = tanh_mlp(classes=1)
    found = Insertion()(single, values, x).curves[:, -1]
    torch.testing.assert_close(found, single(x).detach().sigmoid()[:, 0])
    found = Insertion(output="model")(single, values, x).curves[:, -1]
    torch.testing.assert_close(found, single(x).detach()[:, 0])


def test_outputs_that_cannot_be_known_are_asked_for():
    x, values = data(2, 6), data(2, 6, seed=1)
    with pytest.raises(InputError, match=r"a function of what the network returns.*output='model'"):
        Insertion()(ig2.wrap(tanh_mlp(), output=lambda result: result), values, x)
    with pytest.raises(InputError, match="output='softmax' is unknown: use one of 'auto', 'model', 'logit'"):
        Insertion(output="softmax")(tanh_mlp(), values, x)
    probabilities = nn.Sequential(tanh_mlp(), nn.Softmax(dim=1))
    with pytest.warns(IG2Warning, match="returns probabilities already"):
        Insertion()(probabilities, values, x)
    labels = multi_label()
    found = Insertion(output="model")(labels, values, x, target=2).curves[:, -1]
    torch.testing.assert_close(found, labels(x).detach()[:, 2])


# -- peers -------------------------------------------------------------------------------------------------------------


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


# -- how the work is done ----------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("batch_size", [1, 2, 7, 11, 12, 100])
def test_scores_do_not_depend_on_the_batch_size(kind, batch_size):
    net, x, values = relu_cnn(), uniform(3, 2, 8, 8), data(3, 2, 8, 8, seed=1)
    metric = kind(uniform(2, 2, 8, 8, seed=3), thresholds=10)
    whole = metric(net, values, x)
    spy = Spy(net)
    found = metric(spy, values, x, batch_size=batch_size)
    torch.testing.assert_close(found.curves, whole.curves, atol=1e-12, rtol=0)
    assert max(spy.sizes) <= max(2, batch_size)  # two, when the network is opened


def test_scores_do_not_depend_on_the_neighbours():
    net, x, values = relu_cnn(), uniform(4, 2, 8, 8), data(4, 2, 8, 8, seed=1)
    whole = Insertion("blurred")(net, values, x).curves
    torch.testing.assert_close(Insertion("blurred")(net, values[2:3], x[2:3]).curves, whole[2:3])


def test_memory_that_runs_out_is_no_end():
    class Small(Spy):
        def forward(self, x):
            if len(x) > 5:
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(x)

    net, x, values = relu_cnn(), uniform(3, 2, 8, 8), data(3, 2, 8, 8, seed=1)
    told = []
    found = Insertion()(Small(net), values, x, progress=lambda done, total: told.append((done, total)))
    torch.testing.assert_close(found.curves, Insertion()(net, values, x).curves)
    assert told[-1] == (153, 153) and told == sorted(told)


def test_backgrounds_of_another_precision():
    net, x, values = relu_cnn(), uniform(2, 2, 8, 8), data(2, 2, 8, 8, seed=1)
    found = Insertion(torch.zeros(1, 2, 8, 8))(net, values, x)
    assert torch.equal(found.curves, Insertion("black")(net, values, x).curves)


def test_a_network_that_fails_on_the_background_is_named():
    class Logarithm(nn.Module):
        def forward(self, x):
            return x.log()

    x = uniform(2, 3) + 0.1
    with pytest.raises(ModelError, match="explicand 0 is not a finite number when 0 of its 3 features have gone over"):
        Insertion()(Logarithm(), x, x)
    assert Insertion(0.5)(Logarithm(), x, x).n == 2


# -- words and several tensors -----------------------------------------------------------------------------------------


class Sentence(nn.Module):
    """The mean of the words that are not padding, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, words, mask):
        return self.head((words * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True))


@both
def test_words_go_over_as_a_whole(kind):
    net = seeded(Sentence, 0)
    words, mask = data(2, 5, 4), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).double()
    x = (words * mask[..., None], ig2.Fixed(mask))
    attribution = ig2.IntegratedGradients(10)(net, x, target=1)
    for background in ("black", data(1, 5, 4, seed=5), Zeros()):
        scores = kind(background, thresholds=5, features="word")(net, attribution, x)
        filler = background[0] if isinstance(background, torch.Tensor) else torch.zeros(5, 4).double()
        curve, area = slow_curve(
            kind,
            lambda p: net(p.mT, mask[:1]).softmax(1)[0, 1],
            words[0].T,  # the replica wants its features last
            filler.T,
            attribution.values[0][0].sum(dim=1),
            thresholds=5,
        )
        np.testing.assert_allclose(scores.curves[0].numpy(), curve, atol=1e-12)
        assert float(scores.values[0]) == pytest.approx(area)
    mean = kind("mean", features="word")(net, attribution, x)
    filled = (words * mask[..., None]).mean(dim=1, keepdim=True).expand(2, 5, 4)
    torch.testing.assert_close(mean.curves, kind(filled[:, None], features="word")(net, attribution, x).curves)
    with pytest.raises(InputError, match="background='blurred' is for images"):
        kind("blurred", features="word")(net, attribution, x)
    with pytest.raises(InputError, match="say features='word' or features='element'"):
        kind()(net, attribution, x)


def test_several_tensors_are_ranked_together():
    class Two(nn.Module):
        def forward(self, one, other):
            return Additive()(torch.cat([one, other.flatten(1)], dim=1))

    one, other = data(2, 3), data(2, 2, 2, seed=1)
    flat = torch.cat([one, other.flatten(1)], dim=1)
    expected = Insertion()(Additive(), flat, flat, target=0)
    found = Insertion(features="element")(Two(), (one, other), (one, other), target=0)
    torch.testing.assert_close(found.curves, expected.curves)
    named = {"one": one, "other": other}
    torch.testing.assert_close(Insertion()(Two(), named, named, target=0).curves, expected.curves)
    given = Insertion((torch.zeros(1, 3), torch.zeros(1, 2, 2)))(Two(), (one, other), (one, other), target=0)
    torch.testing.assert_close(given.curves, expected.curves)


# -- what cannot be --------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_said():
    net, x, values = tanh_mlp(), data(2, 6), data(2, 6, seed=1)
    with pytest.raises(InputError, match=r"of a table it would mix its columns.*background=data.mean"):
        Insertion("mean")(net, values, x)
    with pytest.raises(InputError, match="background='blurred' is for images"):
        Insertion("blurred")(net, values, x)
    with pytest.raises(InputError, match="background='grey': use 'black', 'white', 'mean', 'blurred'"):
        Insertion("grey")(net, values, x)
    image = data(2, 3, 4, 4)
    for values, way in ((image[:, :1], r"values\.expand_as\(x\)"), (image[:, 0], r"values\[:, None\]\.expand_as\(x\)")):
        with pytest.raises(InputError, match=rf"expected \(2, 3, 4, 4\), the shape of x\. A map for all channels .* {way}$"):
            Insertion()(lambda x: x.sum(dim=(1, 2, 3)), values, image)
    with pytest.raises(
        InputError, match=r"SIC AUC-ADD got no attribution: .* Insertion\(\.\.\.\)\(model, attribution, \.\.\.\)"
    ):
        Insertion()(values)
    with pytest.raises(InputError, match="thresholds must be a positive integer, got 0"):
        Deletion(thresholds=0)
    with pytest.raises(InputError, match="x="):
        Insertion()(net, values)
    with pytest.raises(InputError, match="compares with no truth"):
        Insertion()(net, values, x, truth=x)
    values[1, 2] = torch.nan
    with pytest.raises(InputError, match=r"attribution holds NaN or infinite values in row 1"):
        Insertion()(net, values, x)


def test_the_result_repeats_what_was_asked():
    net, x, values = relu_cnn(), uniform(2, 2, 8, 8), data(2, 2, 8, 8, seed=1)
    scores = Insertion("blurred", thresholds=9, sign="absolute")(net, values, x, seed=5)
    assert scores.metric == "SIC AUC-ADD" and Deletion.name == "SIC AUC-DEL"
    assert scores.settings == {
        "type": "Insertion",
        "background": "blurred",
        "thresholds": 9,
        "features": "auto",
        "sign": "absolute",
        "output": "auto",
        "seed": 5,
    }
    bounds = (torch.tensor([-1.0, -2.0])[:, None, None], 3.0)
    for model, black, white in ((net, [0.0], [1.0]), (ig2.wrap(net, bounds=bounds), [-2.0, -1.0], [3.0])):
        assert Insertion("black", thresholds=2)(model, values, x).settings["background_values"] == black
        assert Deletion("white", thresholds=2)(model, values, x).settings["background_values"] == white
