"""PAIR's call and the authors' on our engine, beside the real `saliency` package and the authors' algorithm."""

import importlib

import numpy as np
import pytest
import saliency.core as saliency
import torch

import ig2
from ig2 import rules
from ig2.compat import pair
from ig2.compat.pair import INPUT_OUTPUT_GRADIENTS, OUTPUT_LAYER_VALUES, REP_DISTANCE_GRADIENTS, REP_LAYER_VALUES
from networks import data, relu_cnn, tanh_mlp
from replicas import authors_ig2

ARGS = {"class_idx": 1}
IMAGE, REFERENCES = data(8, 8, 2, seed=5, low=0).numpy(), data(3, 8, 8, 2, seed=6, low=0).numpy()
PLANES = [torch.from_numpy(array).movedim(-1, -3) for array in (IMAGE[None], REFERENCES)]  # as the network takes them


def image_function(net, calls=None):
    """Images with channels last, as in PAIR's examples and the authors' notebooks; the representation is read by a hook."""
    seen, weights = {}, next(net.parameters())
    net[-1].register_forward_hook(lambda module, given, result: seen.update({REP_LAYER_VALUES: given[0]}))

    def call_model_function(images, call_model_args=None, expected_keys=None):
        if calls is not None:
            calls.append((expected_keys[0], images))
        batch = torch.tensor(images, dtype=torch.float64, device=weights.device).movedim(-1, 1).requires_grad_()
        scores = net(batch)[:, call_model_args["class_idx"]]
        if INPUT_OUTPUT_GRADIENTS in expected_keys:
            (slope,) = torch.autograd.grad(scores, batch, torch.ones_like(scores))
            return {INPUT_OUTPUT_GRADIENTS: slope.movedim(1, -1).cpu().numpy()}
        if REP_LAYER_VALUES in expected_keys:
            return seen
        if REP_DISTANCE_GRADIENTS in expected_keys:
            loss = -torch.nn.MSELoss()(seen[REP_LAYER_VALUES], call_model_args["layer_baseline"])
            loss.backward()  # as the authors do it: also into the parameters
            return {REP_DISTANCE_GRADIENTS: batch.grad.movedim(1, -1).cpu().numpy(), "loss": loss}
        return {OUTPUT_LAYER_VALUES: scores.detach().numpy()}

    return call_model_function


@pytest.fixture
def net():
    network = relu_cnn(channels=2, size=8, seed=3)
    with torch.no_grad():
        for weights in network.parameters():
            weights *= 3  # as it comes, its gradients are about 1e-4, and all masks alike
    return network


@pytest.fixture
def calls():
    """What `function` was asked for, and the samples."""
    return []


@pytest.fixture
def function(net, calls):
    return image_function(net, calls)


def count(calls, key):
    return sum(asked == key for asked, _ in calls)


def close(ours, theirs, within=1e-6):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=within * np.abs(theirs).max())


def apart(one, other):
    return np.abs(one - other).max() / np.abs(other).max()


# -- beside the real package -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "batch_size"), [(25, 1), (25, 7), (8, 100), (2, 1), (1, 1)])
@pytest.mark.parametrize("baseline", [None, np.full_like(IMAGE, 0.3)], ids=["zero", "grey"])
def test_integrated_gradients_are_those_of_pair(function, steps, batch_size, baseline):
    ours, theirs = (
        home.IntegratedGradients().GetMask(IMAGE, function, ARGS, x_baseline=baseline, x_steps=steps, batch_size=batch_size)
        for home in (pair, saliency)
    )
    close(ours, theirs)


def test_another_rule_is_another_sum_and_closer_to_the_integral():
    net, x = tanh_mlp(), data(6, seed=1)

    def function(batch, call_model_args=None, expected_keys=None):
        points = torch.from_numpy(batch).requires_grad_()
        (slope,) = torch.autograd.grad(net(points)[:, 2].sum(), points)
        return {INPUT_OUTPUT_GRADIENTS: slope}  # a tensor will do

    exact = ig2.IntegratedGradients(40)(net, x[None], target=2).values[0].numpy()
    gauss, trapezoid, published = (
        pair.IntegratedGradients(rule).GetMask(x.numpy(), function, x_steps=10)
        for rule in (rules.gauss(4), rules.trapezoid, None)
    )
    close(gauss, exact, 1e-9)
    assert apart(trapezoid, exact) < 0.2 * apart(published, exact)


@pytest.mark.parametrize("options", [{}, {"fraction": 0.6, "max_dist": 0.3}, {"max_dist": 1.0}], ids=str)
def test_guided_ig_is_that_of_pair(function, options, monkeypatch):
    # the package calls np.quantile by an argument that NumPy 2.4 no longer knows
    real = np.quantile
    monkeypatch.setattr(np, "quantile", lambda a, q, interpolation: real(a, q, method=interpolation))
    line = {"x_baseline": np.full_like(IMAGE, 0.1), "x_steps": 30}
    ours, theirs = (home.GuidedIG().GetMask(IMAGE, function, ARGS, **line, **options) for home in (pair, saliency))
    close(ours, theirs)
    assert apart(ours, pair.IntegratedGradients(rules.right).GetMask(IMAGE, function, ARGS, **line)) > 0.01


def test_blur_ig_approaches_that_of_pair_as_steps_grow(function):
    distances = []
    for steps in (20, 80, 320):
        options = {"max_sigma": 4, "steps": steps, "batch_size": 50}
        theirs = saliency.BlurIG().GetMask(IMAGE, function, ARGS, grad_step=1e-4, **options)
        distances.append(apart(pair.BlurIG().GetMask(IMAGE, function, ARGS, **options), theirs))
    assert distances[2] < distances[1] < distances[0] and distances[2] < 0.01


def test_blur_ig_takes_images_without_channels():
    weights, image = data(8, 8, seed=1).numpy(), data(8, 8, seed=2).numpy()

    def linear(images, call_model_args=None, expected_keys=None):
        return {INPUT_OUTPUT_GRADIENTS: np.broadcast_to(weights, images.shape)}

    mask = pair.BlurIG().GetMask(image, linear, max_sigma=50, steps=10)
    blurred = ig2.paths.blur.blur(torch.from_numpy(image), 50, "zero").numpy()
    np.testing.assert_allclose(mask, weights * (image - blurred), atol=1e-12)


@pytest.mark.parametrize("magnitude", [True, False])
def test_smoothed_masks_are_those_of_pair_for_the_same_noise(function, magnitude, monkeypatch):
    options = {"nsamples": 4, "magnitude": magnitude, "x_steps": 5}
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    ours, other = (pair.IntegratedGradients().GetSmoothedMask(IMAGE, function, ARGS, seed=seed, **options) for seed in (9, 10))
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    assert apart(other, ours) > 0.01
    monkeypatch.setattr(np.random, "normal", np.random.default_rng(9).normal)
    close(ours, saliency.IntegratedGradients().GetSmoothedMask(IMAGE, function, ARGS, **options))


# -- the authors' IG² --------------------------------------------------------------------------------------------------

BOUNDED = {"step_size": 0.1, "clip_min_max": (0, 1)}


def test_ig2_is_the_authors_algorithm(net, function):
    planes = [reference.transpose(2, 0, 1) for reference in REFERENCES]
    theirs, difference = authors_ig2(net, IMAGE.transpose(2, 0, 1), planes, target=1, steps=12, step_size=0.05)
    options = {"steps": 12, "step_size": 0.05, "clip_min_max": None, "return_path": True}
    ours, path = pair.IG2().GetMask(IMAGE, REFERENCES, function, dict(ARGS), **options)
    close(ours, theirs.transpose(1, 2, 0), 1e-10)
    # the notebooks take GradCFE from the path
    close(np.mean(path[0] - path[-1], axis=0), difference.transpose(1, 2, 0), 1e-10)
    assert len(path) == 13 and path[0].shape == REFERENCES.shape


@pytest.mark.parametrize("batch_size", [None, 1, 2])
def test_ig2_is_ours_on_the_network_itself_with_bounds_and_batches(net, function, calls, batch_size):
    options = {"steps": 20, "step_size": 0.4}
    mask = pair.IG2().GetMask(IMAGE, REFERENCES, function, ARGS, **options, clip_min_max=[0, 1], batch_size=batch_size)
    bounded, free = (
        ig2.IG2(**options, rule=rules.left)(ig2.wrap(net, bounds=bounds), PLANES[0], target=1, references=PLANES[1]).values
        for bounds in ((0, 1), None)
    )
    close(mask, bounded[0].movedim(0, -1).numpy(), 1e-10)
    assert apart(free.numpy(), bounded.numpy()) > 0.01
    assert max(len(images) for _, images in calls) == (batch_size or 3)


def test_ig2_asks_for_both_gradients_once_a_step_and_for_the_references_once(function, calls):
    pair.IG2().GetMask(IMAGE, REFERENCES, function, ARGS, steps=7, **BOUNDED)
    assert count(calls, REP_DISTANCE_GRADIENTS) == 7 and count(calls, REP_LAYER_VALUES) == 1
    # and once more on opening, to see that the sample reaches the output
    assert count(calls, INPUT_OUTPUT_GRADIENTS) == 7 + 1


def test_the_path_alone_takes_one_sample_or_one_for_each_reference_and_explains_nothing(function, calls):
    path = pair.IG2().Get_GradPath(IMAGE, REFERENCES, function, ARGS, steps=6, **BOUNDED)
    repeated = pair.IG2().Get_GradPath(np.repeat(IMAGE[None], 3, axis=0), REFERENCES, function, ARGS, steps=6, **BOUNDED)
    _, with_mask = pair.IG2().GetMask(IMAGE, REFERENCES, function, ARGS, steps=6, **BOUNDED, return_path=True)
    assert count(calls, INPUT_OUTPUT_GRADIENTS) == 6 + 3
    np.testing.assert_array_equal(path, repeated)
    np.testing.assert_array_equal(path, with_mask)


def test_the_users_arguments_are_not_written_to(function):
    args = dict(ARGS)
    pair.IG2().GetMask(IMAGE, REFERENCES, function, args, steps=2, **BOUNDED)
    assert args == ARGS


def test_rules_that_share_out_the_output_ask_for_it(net, function, calls):
    options = {"steps": 10, "step_size": 0.2}
    mask = pair.IG2(rules.shared).GetMask(IMAGE, REFERENCES, function, ARGS, **options, clip_min_max=None)
    assert count(calls, OUTPUT_LAYER_VALUES) > 0
    expected = ig2.IG2(**options, rule=rules.shared)(net, PLANES[0], target=1, references=PLANES[1]).values
    close(mask, expected[0].movedim(0, -1).numpy(), 1e-10)


def test_a_sample_equal_to_its_reference_gives_zeros_and_no_nan(function):
    np.testing.assert_array_equal(pair.IG2().GetMask(IMAGE, IMAGE[None], function, ARGS, steps=4, **BOUNDED), 0)


def test_smoothed_ig2_stays_inside_the_bounds(function, calls):
    mask = pair.IG2().GetSmoothedMask(IMAGE, REFERENCES, function, ARGS, nsamples=2, steps=3, **BOUNDED, magnitude=False)
    assert mask.shape == IMAGE.shape
    assert min(images.min() for _, images in calls) == 0 and max(images.max() for _, images in calls) == 1
    by_place = pair.IG2().GetSmoothedMask(IMAGE, REFERENCES, function, ARGS, 0.15, 2, False, steps=3, **BOUNDED)
    np.testing.assert_array_equal(mask, by_place)


def test_integers_reach_the_function_in_single_precision_and_floats_in_their_own(net):
    picture = (IMAGE * 255).astype(np.uint8)
    for value, dtype in ((picture, np.float32), (picture.astype(np.float32), np.float32), (picture / 255, np.float64)):
        calls = []
        mask = pair.IntegratedGradients().GetMask(value, image_function(net, calls), ARGS, x_steps=3)
        assert mask.dtype == dtype and {images.dtype for _, images in calls} == {np.dtype(dtype)}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_function_whose_network_is_on_a_gpu(net, function):
    here = pair.IG2().GetMask(IMAGE, REFERENCES, function, ARGS, steps=10, **BOUNDED)
    close(pair.IG2().GetMask(IMAGE, REFERENCES, image_function(net.cuda()), ARGS, steps=10, **BOUNDED), here)


# -- errors -------------------------------------------------------------------------------------------------------------


def gives(**answer):
    return lambda samples, call_model_args=None, expected_keys=None: answer


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (gives(), ig2.ModelError, "INPUT_OUTPUT_GRADIENTS"),
        (gives(INPUT_OUTPUT_GRADIENTS=np.zeros((1, 3))), ig2.ModelError, "expected the shape"),
        (gives(INPUT_OUTPUT_GRADIENTS="none"), ig2.ModelError, "expected numbers"),
        (gives(INPUT_OUTPUT_GRADIENTS=np.full((1, 4), np.nan)), ig2.ModelError, "not finite"),
        (None, ig2.InputError, "must be a function"),
    ],
)
def test_a_function_that_does_not_answer_is_quoted(function, error, words):
    with pytest.raises(error, match=words):
        pair.IntegratedGradients().GetMask(np.zeros(4), function, x_steps=3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f: pair.IntegratedGradients().GetMask(np.zeros(4), f, x_baseline=np.zeros(3)), "shapes equal"),
        (lambda f: pair.IntegratedGradients().GetMask(np.array(["a"]), f), "array of numbers"),
        (lambda f: pair.IntegratedGradients().GetMask(np.zeros(4), f, x_steps=0), "x_steps"),
        (lambda f: pair.IntegratedGradients().GetMask(np.array([np.nan]), f), "NaN"),
        (lambda f: pair.BlurIG().GetMask(np.zeros(4), f), "image"),
        (lambda f: pair.IG2().GetMask(np.zeros(4), np.zeros(4), f), "expected"),
        (lambda f: pair.IG2().GetMask(np.zeros(4), np.zeros((2, 4)), f, 3), "must be a dict"),
        (lambda f: pair.IG2().GetMask(np.zeros(4), np.zeros((2, 4)), f, clip_min_max=[1]), "clip_min_max"),
        (lambda f: pair.IG2().GetMask(np.full(4, -1.0), np.zeros((2, 4)), f), "outside"),
        (lambda f: pair.IG2().Get_GradPath(np.zeros((3, 4)), np.zeros((2, 4)), f), "expected"),
        (lambda f: pair.IntegratedGradients().GetSmoothedMask(np.zeros(4), f, nsamples=0), "nsamples"),
    ],
)
def test_arguments_that_do_not_fit_are_quoted(call, words):
    function = gives(**{INPUT_OUTPUT_GRADIENTS: np.zeros((1, 4)), REP_LAYER_VALUES: np.zeros((1, 2))})
    with pytest.raises(ig2.InputError, match=words):
        call(function)


def test_an_error_in_the_users_function_comes_through_as_it_is():
    def broken(samples, call_model_args=None, expected_keys=None):
        raise KeyError("class_idx_str")

    with pytest.raises(KeyError, match="class_idx_str"):
        pair.IntegratedGradients().GetMask(np.zeros(4), broken)


def test_the_keys_are_those_of_the_package():
    base = importlib.import_module("saliency.core.base")
    assert base.INPUT_OUTPUT_GRADIENTS == INPUT_OUTPUT_GRADIENTS and base.OUTPUT_LAYER_VALUES == OUTPUT_LAYER_VALUES
