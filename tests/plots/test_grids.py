"""Methods side by side, counterfactuals and references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import networks
from drawing import colour_bars, drawn, made, pictures, sample, shown, texts
from ig2 import InputError, plots

# -- grids -------------------------------------------------------------------------------------------------------------


def test_a_grid_has_a_row_an_explicand_and_a_column_a_method(walked) -> None:
    other = replace(walked, values=walked.values * 2)
    figure = plots.grid({"IG²": walked, "twice": other}, titles=["cat", "dog", "$5"])
    images = pictures(figure)
    assert len(images) == 3 * 3
    for row in range(3):
        np.testing.assert_allclose(shown(images[3 * row]), walked.explicand[row].movedim(0, -1), rtol=1e-12)
        np.testing.assert_allclose(shown(images[3 * row + 1]), walked.values[row].sum(dim=0), rtol=1e-6)
        np.testing.assert_allclose(shown(images[3 * row + 2]), other.values[row].sum(dim=0), rtol=1e-6)
    assert [axes.get_title() for axes in figure.axes[:3]] == ["input", "IG²", "twice"]
    assert figure.axes[6].get_xlabel() == "$5"
    drawn(figure)


def test_a_shared_scale_in_a_grid_is_shared_within_a_method(walked) -> None:
    results = {"one": walked, "ten": replace(walked, values=walked.values * 10)}
    shared = pictures(plots.grid(results, scale="shared"))
    own = pictures(plots.grid(results))
    for column in (1, 2):
        assert len({image.get_clim() for image in shared[column::3]}) == 1
        assert len({image.get_clim() for image in own[column::3]}) == 3
    assert shared[2].get_clim()[1] == pytest.approx(10 * shared[1].get_clim()[1])
    assert len(colour_bars(plots.grid(results, scale="shared"))) == 2


def test_a_grid_says_the_rule_of_its_scales_once_and_no_number_below_each_map(walked) -> None:
    figure = plots.grid({"IG²": walked, "ten": replace(walked, values=walked.values * 10)})
    assert "each map's own colours end at percentile 99 of |values|" in texts(figure).replace("\n", " ")
    assert not any(axes.get_xlabel() for axes in figure.axes if axes.get_subplotspec().colspan.start)
    assert "±" not in texts(figure)
    for row in range(3):
        first, second = (np.array(image.get_clim()) for image in pictures(figure)[3 * row + 1 : 3 * row + 3])
        np.testing.assert_allclose(second, 10 * first)
    assert "each method's colours" in texts(plots.grid({"IG²": walked}, scale="shared")).replace("\n", " ")
    assert "the largest |value|" in texts(plots.grid({"IG²": walked}, percentile=100)).replace("\n", " ")


def test_methods_are_compared_without_signs_where_those_of_one_are_not_to_be_believed(walked) -> None:
    assert walked.trust is None
    rough, smooth = (replace(walked, trust=torch.full((3, 4), trust)) for trust in (0.1, 0.9))
    figure = plots.grid({"IG²": rough, "IG": walked})
    assert {image.get_cmap().name for i, image in enumerate(pictures(figure)) if i % 3} == {"inferno"}
    assert "strength without signs, since trust is low (IG²)" in texts(figure).replace("\n", " ")
    for result, kind, name in ((smooth, {}, "RdBu_r"), (rough, {"kind": "signed"}, "RdBu_r"), (rough, {}, "inferno")):
        for drawing in (plots.grid({"IG²": result}, **kind), plots.heat_map(result, **kind)):
            assert pictures(drawing)[1].get_cmap().name == name
            assert ("without signs" in texts(drawing)) == (name == "inferno")
        assert pictures(plots.per_reference(result, **kind))[-1].get_cmap().name == name
    assert pictures(plots.counterfactual(rough))[2].get_cmap().name == "RdBu_r"  # a difference has its signs


def test_only_the_explicands_shown_decide_about_signs(walked) -> None:
    last = replace(walked, trust=torch.tensor([[0.9], [0.9], [0.1]]).expand(3, 4))
    assert pictures(plots.heat_map(last, count=2))[1].get_cmap().name == "RdBu_r"
    assert pictures(plots.per_reference(last, explicand=2))[-1].get_cmap().name == "inferno"


def test_a_grid_of_different_classes_names_each(walked) -> None:
    figure = plots.grid({"a": walked, "b": replace(walked, target=(walked.target + 1) % 4)})
    assert figure.axes[1].get_xlabel() == f"class {int(walked.target[0])}"
    assert figure.axes[2].get_xlabel() == f"class {int((walked.target[0] + 1) % 4)}"
    assert figure.axes[0].get_xlabel() == ""


def test_a_grid_refuses_methods_that_explain_different_samples(walked) -> None:
    with pytest.raises(InputError, match="'b' and 'a' explain different samples"):
        plots.grid({"a": walked, "b": replace(walked, explicand=walked.explicand + 0.1)})
    with pytest.raises(InputError, match="dict of names and Attributions"):
        plots.grid({})
    with pytest.raises(InputError, match=r"results\['a'\] must be an Attribution"):
        plots.grid({"a": walked.values})


# -- counterfactuals and references ------------------------------------------------------------------------------------


def test_a_counterfactual_stands_beside_its_explicand_with_their_difference(walked) -> None:
    figure = plots.counterfactual(walked, reference=2, count=2)
    images = pictures(figure)
    assert len(images) == 6
    np.testing.assert_allclose(shown(images[1]), walked.gradcf[0, 2].movedim(0, -1), rtol=1e-6)
    np.testing.assert_allclose(shown(images[2]), (walked.explicand[0] - walked.gradcf[0, 2]).sum(dim=0), atol=1e-12)
    assert f"output {float(walked.baseline_outputs[0, 2]):.3g}".replace("-", "−") in texts(figure)


def test_without_a_reference_the_mean_counterfactual_and_gradcfe_are_shown(walked) -> None:
    images = pictures(plots.counterfactual(walked, reference=None))
    np.testing.assert_allclose(shown(images[1]), walked.gradcf[0].mean(dim=0).movedim(0, -1), rtol=1e-6)
    np.testing.assert_allclose(shown(images[2]), walked.gradcfe[0].sum(dim=0), atol=1e-6)


def test_both_images_of_a_counterfactual_have_the_same_range() -> None:
    x = torch.tensor([[[-1.0, 1.0]]])
    result = made(torch.zeros_like(x), x, gradcf=torch.tensor([[[[0.0, 0.5]]]]))
    images = pictures(plots.counterfactual(result))
    np.testing.assert_allclose(shown(images[0]), [[0, 1]])
    np.testing.assert_allclose(shown(images[1]), [[0.5, 0.75]])


def test_counterfactuals_need_gradpath_and_an_existing_reference(walked) -> None:
    with pytest.raises(InputError, match="no GradCF"):
        plots.counterfactual(made(sample(2, 8, 8)))
    with pytest.raises(InputError, match="reference must be a number from 0 to 3"):
        plots.counterfactual(walked, reference=4)


def test_each_reference_stands_above_its_own_attribution_on_a_shared_scale(walked) -> None:
    references = networks.data(4, 3, 8, 8, seed=1, low=0)
    figure = plots.per_reference(walked, references, explicand=1, labels=["a", "b", "<c>", "$d$"])
    images = pictures(figure)
    top, below = images[:5], images[5:]
    np.testing.assert_allclose(shown(top[0]), walked.explicand[1].movedim(0, -1))
    np.testing.assert_allclose(shown(top[3]), references[2].movedim(0, -1))
    np.testing.assert_allclose(shown(below[0]), walked.values[1].sum(dim=0), rtol=1e-6)
    np.testing.assert_allclose(shown(below[3]), walked.per_reference[1, 2].sum(dim=0), rtol=1e-6)
    np.testing.assert_allclose(np.mean([shown(image) for image in below[1:]], axis=0), shown(below[0]), atol=1e-6)
    assert len({image.get_clim() for image in below}) == 1
    assert len({image.get_clim() for image in pictures(plots.per_reference(walked, scale="each"))[5:]}) > 1
    drawn(figure)


def test_references_may_differ_for_each_explicand_or_be_left_to_gradcf(walked) -> None:
    own = networks.data(3, 4, 3, 8, 8, seed=5, low=0)
    np.testing.assert_allclose(shown(pictures(plots.per_reference(walked, own, explicand=2))[4]), own[2, 3].movedim(0, -1))
    figure = plots.per_reference(walked, count=2)
    np.testing.assert_allclose(shown(pictures(figure)[2]), walked.gradcf[0, 1].movedim(0, -1), rtol=1e-6)
    assert "GradCF" in texts(figure) and "the first 2 of 4 references" in texts(figure)
    with pytest.raises(InputError, match="references are"):
        plots.per_reference(walked, own[:, :2])
    with pytest.raises(InputError, match="per_reference=True"):
        plots.per_reference(replace(walked, per_reference=None))


def test_without_any_picture_of_a_reference_the_attributions_are_still_shown(walked) -> None:
    figure = plots.per_reference(replace(walked, gradcf=None))
    assert len(pictures(figure)) == 1 + 5
    drawn(figure)


def test_references_of_words_are_a_table_of_the_strongest() -> None:
    own = sample(1, 3, 30, 4)
    result = made(own.mean(dim=1), per_reference=own)
    figure = plots.per_reference(result, names=[f"word{i}" for i in range(30)])
    table = shown(pictures(figure)[0])
    assert table.shape == (1 + 3, 20)
    names = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    columns = [int(name.removeprefix("word")) for name in names]
    np.testing.assert_allclose(table[1:], own[0].sum(dim=-1)[:, columns].numpy())
    strengths = torch.cat([result.values, own[0]]).sum(dim=-1).abs().amax(dim=0)
    assert strengths[columns].min() >= np.delete(strengths.numpy(), columns).max()
    assert "the 20 strongest of 30 features" in texts(figure)
