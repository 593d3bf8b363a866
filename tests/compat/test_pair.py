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

CLASS = "class_idx"


def image_function(net, calls=None, dtype=torch.float64):
    """Images with channels last, as in PAIR's examples and the authors' notebooks; the representation is read by a hook."""
    seen = {}
    net[-1].register_forward_hook(lambda module, given, result: seen.update({REP_LAYER_VALUES: given[0]}))

    def call_model_function(images, call_model_args=None, expected_keys=None):
        if calls is not None:
            calls.append((expected_keys, images.dtype, len(images)))
        batch = torch.tensor(images, dtype=dtype).movedim(-1, 1).requires_grad_()
        scores = net(batch)[:, call_model_args[CLASS]]
        if INPUT_OUTPUT_GRADIENTS in expected_keys:
            (slope,) = torch.autograd.grad(scores, batch, torch.ones_like(scores))
            return {INPUT_OUTPUT_GRADIENTS: slope.movedim(1, -1).numpy()}
        if REP_LAYER_VALUES in expected_keys:
            return seen
        if REP_DISTANCE_GRADIENTS in expected_keys:
            loss = -torch.nn.MSELoss()(seen[REP_LAYER_VALUES], call_model_args["layer_baseline"])
            loss.backward()  # as the authors do it: also into the parameters
            return {REP_DISTANCE_GRADIENTS: batch.grad.movedim(1, -1).numpy(), "loss": loss}
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
def image():
    return data(8, 8, 2, seed=5, low=0).numpy()


@pytest.fixture
def references():
    return data(3, 8, 8, 2, seed=6, low=0).numpy()


ARGS = {CLASS: 1}


def close(ours, theirs, within=1e-6):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=within * np.abs(theirs).max())


def apart(one, other):
    return np.abs(one - other).max() / np.abs(other).max()


# -- beside the real package -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "batch_size"), [(25, 1), (25, 7), (8, 100), (2, 1), (1, 1)])
@pytest.mark.parametrize("baseline", [None, 0.3])
def test_integrated_gradients_are_those_of_pair(net, image, steps, batch_size, baseline):
    function = image_function(net)
    options = {"x_baseline": None if baseline is None else np.full_like(image, baseline), "x_steps": steps}
    theirs = saliency.IntegratedGradients().GetMask(image, function, ARGS, **options, batch_size=batch_size)
    ours = pair.IntegratedGradients().GetMask(image, function, ARGS, **options, batch_size=batch_size)
    close(ours, theirs)


def vector_function(net):
    def call_model_function(batch, call_model_args=None, expected_keys=None):
        x = torch.from_numpy(batch).requires_grad_()
        (slope,) = torch.autograd.grad(net(x)[:, 2].sum(), x)
        return {INPUT_OUTPUT_GRADIENTS: slope}  # a tensor will do

    return call_model_function


def test_another_rule_is_another_sum_and_closer_to_the_integral():
    net, x = tanh_mlp(), data(6, seed=1)
    function = vector_function(net)
    exact = ig2.IntegratedGradients(40)(net, x[None], target=2).values[0].numpy()
    gauss, trapezoid, published = (
        pair.IntegratedGradients(rule).GetMask(x.numpy(), function, x_steps=10)
        for rule in (rules.gauss(4), rules.trapezoid, None)
    )
    close(gauss, exact, 1e-9)
    assert apart(trapezoid, exact) < 0.2 * apart(published, exact)


@pytest.mark.parametrize("options", [{}, {"fraction": 0.6, "max_dist": 0.3}, {"max_dist": 1.0}], ids=str)
def test_guided_ig_is_that_of_pair(net, image, options, monkeypatch):
    # the package calls np.quantile by an argument that NumPy 2.4 no longer knows
    real = np.quantile
    monkeypatch.setattr(np, "quantile", lambda a, q, interpolation: real(a, q, method=interpolation))
    function = image_function(net)
    baseline = np.full_like(image, 0.1)
    theirs = saliency.GuidedIG().GetMask(image, function, ARGS, x_baseline=baseline, x_steps=30, **options)
    ours = pair.GuidedIG().GetMask(image, function, ARGS, x_baseline=baseline, x_steps=30, **options)
    close(ours, theirs)
    straight = pair.IntegratedGradients(rules.right).GetMask(image, function, ARGS, x_baseline=baseline, x_steps=30)
    assert apart(ours, straight) > 0.01


def test_blur_ig_approaches_that_of_pair_as_steps_grow(net, image):
    function = image_function(net)
    distances = []
    for steps in (20, 80, 320):
        theirs = saliency.BlurIG().GetMask(image, function, ARGS, max_sigma=4, steps=steps, grad_step=1e-4, batch_size=50)
        ours = pair.BlurIG().GetMask(image, function, ARGS, max_sigma=4, steps=steps, batch_size=50)
        distances.append(apart(ours, theirs))
    assert distances[2] < distances[1] < distances[0] and distances[2] < 0.01


def test_blur_ig_takes_images_without_channels():
    weights = data(8, 8, seed=1).numpy()

    def linear(images, call_model_args=None, expected_keys=None):
        return {INPUT_OUTPUT_GRADIENTS: np.broadcast_to(weights, images.shape)}

    image = data(8, 8, seed=2).numpy()
    mask = pair.BlurIG().GetMask(image, linear, max_sigma=50, steps=10)
    blurred = ig2.paths.blur.blur(torch.from_numpy(image), 50, "zero").numpy()
    np.testing.assert_allclose(mask, weights * (image - blurred), atol=1e-12)


@pytest.mark.parametrize("magnitude", [True, False])
def test_smoothed_masks_are_those_of_pair_for_the_same_noise(net, image, magnitude, monkeypatch):
    function = image_function(net)
    options = {"nsamples": 4, "magnitude": magnitude, "x_steps": 5}
    ours = pair.IntegratedGradients().GetSmoothedMask(image, function, ARGS, seed=9, **options)
    monkeypatch.setattr(np.random, "normal", np.random.default_rng(9).normal)
    theirs = saliency.IntegratedGradients().GetSmoothedMask(image, function, ARGS, **options)
    close(ours, theirs)
    other = pair.IntegratedGradients().GetSmoothedMask(image, function, ARGS, seed=10, **options)
    assert apart(other, ours) > 0.01


def test_smoothing_leaves_the_global_random_state_alone(net, image):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    pair.IntegratedGradients().GetSmoothedMask(image, image_function(net), ARGS, nsamples=2, x_steps=2)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


# -- the authors' IG² --------------------------------------------------------------------------------------------------


def test_ig2_is_the_authors_algorithm(net, image, references):
    planes = [reference.transpose(2, 0, 1) for reference in references]
    theirs, difference = authors_ig2(net, image.transpose(2, 0, 1), planes, target=1, steps=12, step_size=0.05)
    ours, path = pair.IG2().GetMask(
        image, references, image_function(net), dict(ARGS), steps=12, step_size=0.05, clip_min_max=None, return_path=True
    )
    close(ours, theirs.transpose(1, 2, 0), 1e-10)
    # the notebooks take GradCFE from the path
    close(np.mean(path[0] - path[-1], axis=0), difference.transpose(1, 2, 0), 1e-10)
    assert len(path) == 13 and path[0].shape == references.shape


@pytest.mark.parametrize("batch_size", [None, 1, 2])
def test_ig2_is_ours_on_the_network_itself_bounds_and_batches_and_all(net, image, references, batch_size):
    options = {"steps": 20, "step_size": 0.4}
    published = ig2.IG2(**options, rule=ig2.rules.left)
    calls = []
    found = pair.IG2().GetMask(
        image, references, image_function(net, calls), ARGS, **options, clip_min_max=[0, 1], batch_size=batch_size
    )
    tensors = [torch.from_numpy(array).movedim(-1, -3) for array in (image[None], references)]
    own = published(ig2.wrap(net, bounds=(0, 1)), tensors[0], target=1, references=tensors[1])
    close(found, own.values[0].movedim(0, -1).numpy(), 1e-10)
    free = published(net, tensors[0], target=1, references=tensors[1])
    assert apart(free.values.numpy(), own.values.numpy()) > 0.01
    assert max(size for _, _, size in calls) == (batch_size or 3)


def test_ig2_asks_for_both_gradients_once_a_step_and_for_the_references_once(net, image, references):
    calls = []
    pair.IG2().GetMask(image, references, image_function(net, calls), ARGS, steps=7, step_size=0.1, clip_min_max=(0, 1))
    counts = {key: sum(keys == [key] for keys, _, _ in calls) for key in (REP_DISTANCE_GRADIENTS, REP_LAYER_VALUES)}
    assert counts == {REP_DISTANCE_GRADIENTS: 7, REP_LAYER_VALUES: 1}
    # and once more on opening, to see that the sample reaches the output
    assert sum(keys == [INPUT_OUTPUT_GRADIENTS] for keys, _, _ in calls) == 7 + 1


def test_the_path_alone_takes_one_sample_or_one_for_each_reference_and_explains_nothing(net, image, references):
    calls = []
    function = image_function(net, calls)
    options = {"steps": 6, "step_size": 0.1, "clip_min_max": [0, 1]}
    path = pair.IG2().Get_GradPath(image, references, function, ARGS, **options)
    repeated = pair.IG2().Get_GradPath(np.repeat(image[None], 3, axis=0), references, function, ARGS, **options)
    _, with_mask = pair.IG2().GetMask(image, references, function, ARGS, **options, return_path=True)
    assert sum(keys == [INPUT_OUTPUT_GRADIENTS] for keys, _, _ in calls) == 6 + 3
    for one, two, three in zip(path, repeated, with_mask, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def test_the_users_arguments_are_not_written_to(net, image, references):
    args = dict(ARGS)
    pair.IG2().GetMask(image, references, image_function(net), args, steps=2, step_size=0.1, clip_min_max=(0, 1))
    assert args == ARGS


def test_rules_that_share_out_the_output_ask_for_it(net, image, references):
    calls = []
    options = {"steps": 10, "step_size": 0.2}
    mask = pair.IG2(rules.shared).GetMask(image, references, image_function(net, calls), ARGS, **options, clip_min_max=None)
    assert any(keys == [OUTPUT_LAYER_VALUES] for keys, _, _ in calls)
    tensors = [torch.from_numpy(array).movedim(-1, -3) for array in (image[None], references)]
    own = ig2.IG2(**options, rule=rules.shared)(net, tensors[0], target=1, references=tensors[1])
    close(mask, own.values[0].movedim(0, -1).numpy(), 1e-10)


def test_a_sample_equal_to_its_reference_gives_zeros_and_no_nan(net, image):
    found = pair.IG2().GetMask(image, image[None], image_function(net), ARGS, steps=4, step_size=0.1, clip_min_max=(0, 1))
    np.testing.assert_array_equal(found, 0)


def test_smoothed_ig2_stays_inside_the_bounds(net, image, references):
    low, high = [], []
    inner = image_function(net)

    def watching(images, call_model_args=None, expected_keys=None):
        low.append(images.min())
        high.append(images.max())
        return inner(images, call_model_args, expected_keys)

    found = pair.IG2().GetSmoothedMask(
        image, references, watching, ARGS, nsamples=2, steps=3, step_size=0.1, clip_min_max=(0, 1), magnitude=False
    )
    assert found.shape == image.shape and min(low) == 0 and max(high) == 1


def test_integers_reach_the_function_in_single_precision_and_floats_in_their_own(net):
    picture = (data(8, 8, 2, low=0).numpy() * 255).astype(np.uint8)
    for value, dtype in ((picture, np.float32), (picture.astype(np.float32), np.float32), (picture / 255, np.float64)):
        calls = []
        mask = pair.IntegratedGradients().GetMask(value, image_function(net, calls), ARGS, x_steps=3)
        assert mask.dtype == dtype and {seen for _, seen, _ in calls} == {np.dtype(dtype)}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_function_whose_network_is_on_a_gpu(image, references):
    net = relu_cnn(channels=2, size=8, seed=3).cuda()
    seen = {}
    net[-1].register_forward_hook(lambda module, given, result: seen.update({REP_LAYER_VALUES: given[0]}))

    def function(images, call_model_args=None, expected_keys=None):
        batch = torch.tensor(images).movedim(-1, 1).cuda().requires_grad_()
        score = net(batch)[:, 1].sum()
        if REP_LAYER_VALUES in expected_keys:
            return seen
        if REP_DISTANCE_GRADIENTS in expected_keys:
            score = -torch.nn.MSELoss()(seen[REP_LAYER_VALUES], call_model_args["layer_baseline"])
        score.backward()
        return {expected_keys[0]: batch.grad.movedim(1, -1).cpu().numpy()}

    options = {"steps": 10, "step_size": 0.1, "clip_min_max": (0, 1)}
    found = pair.IG2().GetMask(image, references, function, **options)
    close(found, pair.IG2().GetMask(image, references, image_function(net.cpu()), ARGS, **options))


# -- what the user hears -----------------------------------------------------------------------------------------------


def gives(**found):
    return lambda samples, call_model_args=None, expected_keys=None: found


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (gives(), ig2.ModelError, "INPUT_OUTPUT_GRADIENTS"),
        (gives(INPUT_OUTPUT_GRADIENTS=np.zeros((1, 3))), ig2.ModelError, "expected the samples'"),
        (gives(INPUT_OUTPUT_GRADIENTS="none"), ig2.ModelError, "array of numbers"),
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
        (lambda f: pair.IG2().GetMask(np.zeros(4), np.zeros(4), f), "expected \\(R"),
        (lambda f: pair.IG2().GetMask(np.zeros(4), np.zeros((2, 4)), f, 3), "must be a dict"),
        (lambda f: pair.IG2().GetMask(np.zeros(4), np.zeros((2, 4)), f, clip_min_max=[1]), "clip_min_max"),
        (lambda f: pair.IG2().GetMask(np.full(4, -1.0), np.zeros((2, 4)), f), "outside"),
        (lambda f: pair.IG2().Get_GradPath(np.zeros((3, 4)), np.zeros((2, 4)), f), "shapes equal"),
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


def test_the_words_are_those_of_the_package():
    base = importlib.import_module("saliency.core.base")
    assert base.INPUT_OUTPUT_GRADIENTS == INPUT_OUTPUT_GRADIENTS and base.OUTPUT_LAYER_VALUES == OUTPUT_LAYER_VALUES
