"""Our methods as SHAP explainers, in SHAP's own plots."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest
import shap
import torch

import ig2
from ig2.compat.shap import Explainer
from ig2.methods.gradient import Gradient
from networks import data, relu_cnn, relu_mlp, seeded, tanh_mlp

NET = tanh_mlp()
X = data(5, 6, seed=1)
POOL = data(4, 6, seed=2)
NAMES = ["age", "income", "rooms", "height", "width", "depth"]


@pytest.fixture
def axes():
    """The figure that a plot left behind, closed afterwards."""
    plt.close("all")
    yield lambda: plt.gcf().axes
    plt.close("all")


def test_an_explanation_holds_the_attribution_of_the_class_predicted():
    found = Explainer(ig2.ExpectedIG(), NET, POOL.numpy(), feature_names=NAMES)(X.numpy())
    own = ig2.ExpectedIG()(NET, X, references=POOL)
    assert isinstance(found, shap.Explanation) and found.feature_names == NAMES
    np.testing.assert_array_equal(found.values, own.values)
    np.testing.assert_array_equal(found.base_values, own.baseline_output)
    np.testing.assert_array_equal(found.data, X)
    predicted = NET(X).max(dim=1).values.detach().numpy()
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, predicted, atol=1e-6)


def test_several_outputs_are_the_last_axis():
    explainer = Explainer(ig2.ExpectedIG(), NET, POOL, outputs=[2, 0], output_names=["a", "b", "c"])
    found = explainer(X)
    assert found.values.shape == (5, 6, 2) and found.base_values.shape == (5, 2) and list(found.output_names) == ["c", "a"]
    for column, output in enumerate((2, 0)):
        alone = Explainer(ig2.ExpectedIG(), NET, POOL, outputs=output)
        np.testing.assert_array_equal(found.values[..., column], alone.shap_values(X))
        np.testing.assert_array_equal(found[..., column].base_values, alone(X).base_values)
    np.testing.assert_array_equal(explainer.shap_values(X), found.values)


def test_on_a_linear_network_they_are_the_shapley_values_of_shap():
    linear = seeded(lambda: torch.nn.Linear(6, 1), 0)
    ours = Explainer(ig2.ExpectedIG(), linear, POOL)(X)
    weights, bias = linear.weight[0].detach().numpy(), linear.bias.item()
    theirs = shap.LinearExplainer((weights, bias), POOL.numpy())(X.numpy())
    np.testing.assert_allclose(ours.values, theirs.values, atol=1e-12)
    np.testing.assert_allclose(ours.base_values, theirs.base_values, atol=1e-12)


def test_a_data_frame_names_its_columns_and_its_numbers_take_the_networks_precision():
    frame = pandas.DataFrame(X.numpy().astype(np.float32), columns=NAMES)
    found = Explainer(ig2.IntegratedGradients(), NET)(frame)
    assert found.feature_names == NAMES and found.values.dtype == np.float64
    counts = pandas.DataFrame(np.arange(6).reshape(1, 6), columns=NAMES)
    assert Explainer(ig2.IntegratedGradients(), relu_mlp().float())(counts).values.dtype == np.float32


def test_a_method_without_a_baseline_has_base_values_of_zero():
    np.testing.assert_array_equal(Explainer(Gradient(), NET, outputs=1)(X).base_values, 0)


# -- in SHAP's plots ---------------------------------------------------------------------------------------------------


def labels(axis):
    return [text.get_text() for text in axis.get_yticklabels()]


def test_bar_plot(axes):
    found = Explainer(ig2.IG2(steps=20), NET, POOL, outputs=1, feature_names=NAMES)(X)
    shap.plots.bar(found, show=False)
    (axis,) = axes()
    widths = sorted((bar.get_width() for bar in axis.patches), reverse=True)
    np.testing.assert_allclose(widths, sorted(np.abs(found.values).mean(axis=0), reverse=True))
    assert set(NAMES) <= set(labels(axis))


def test_waterfall_plot_of_one_sample(axes):
    found = Explainer(ig2.IntegratedGradients(), NET, 0.0, outputs=1, feature_names=NAMES)(X)
    shap.plots.waterfall(found[0], show=False)
    shown = " ".join(labels(axes()[0]))
    assert all(name in shown for name in NAMES)
    reached = f"{NET(X)[0, 1].item():.3f}".removeprefix("-")  # SHAP writes a typographic minus
    assert any(reached in text.get_text() for axis in axes() for text in axis.get_xticklabels())


@pytest.mark.parametrize("outputs", [None, [0, 3]], ids=["predicted", "several"])
def test_image_plot_takes_images_with_channels_last(axes, outputs):
    net, images = relu_cnn(channels=3), data(2, 3, 8, 8, low=0)
    names = ["cat", "dog", "car", "sea"]
    found = Explainer(ig2.IG2(steps=10), net, 0.0, outputs=outputs, output_names=names, channels_last=True)(images)
    assert found.data.shape == (2, 8, 8, 3) and found.values.shape[:4] == (2, 8, 8, 3)
    first = ig2.IG2(steps=10)(net, images, target=outputs and outputs[0], references=0.0).values
    np.testing.assert_array_equal(found.values if outputs is None else found.values[..., 0], first.movedim(1, -1))
    shap.plots.image(found, show=False)
    pictures = [axis for axis in axes() if axis.images]
    assert len(pictures) == 2 * (1 + len(outputs or [0]))
    np.testing.assert_allclose(pictures[0].images[0].get_array(), images[0].movedim(0, -1))
    titles = {axis.get_title() for axis in axes()} - {""}
    assert titles == ({"cat", "sea"} if outputs else set())


# -- errors ------------------------------------------------------------------------------------------------------------

IG = ig2.IntegratedGradients()


@pytest.mark.parametrize(
    ("call", "keyword"),
    [
        (lambda: Explainer(NET, NET), "method"),
        (lambda: Explainer(IG, NET, outputs=[]), "outputs"),
        (lambda: Explainer(IG, NET, channels_last=True)(X), "channels_last"),
        (lambda: Explainer(IG, NET)(pandas.DataFrame({"name": ["a", "b"]})), "array of numbers"),
        (lambda: Explainer(IG, NET, outputs=[7])(X), "class"),
        (lambda: Explainer(ig2.IG2(), NET)(X), "references"),
    ],
)
def test_arguments_that_do_not_fit_are_quoted(call, keyword):
    with pytest.raises(ig2.InputError, match=keyword):
        call()
