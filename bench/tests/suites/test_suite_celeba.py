"""`ig2 bench celeba`: a face and one of its attributes, marked by the component that shows it."""

from __future__ import annotations

import math

import datafiles
import pytest
import torch
from datafiles import write_faces

from ig2.errors import InputError
from ig2.metrics.curves import Insertion
from ig2_bench import Table, run
from ig2_bench.datasets.celeba.drawn import DRAWN, draw_faces
from ig2_bench.datasets.celeba.files import ATTRIBUTE_COMPONENTS, ATTRIBUTES
from ig2_bench.networks.faces import MobileNetV2
from ig2_bench.networks.training import predict, train_network
from ig2_bench.suites import celeba
from ig2_bench.suites.celeba import LABEL_DISTANCE, LEAST, NEARNESS, PAPER_ACCURACY, SAME, CelebA, FaceExplicands, choose_pairs
from ig2_bench.suites.experiment import COUNTERFACTUAL, DATA

quick = datafiles.quick("celeba")
pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(scope="module")
def suite() -> CelebA:
    return quick(samples=12)


@pytest.fixture(scope="module")
def by_distance() -> CelebA:
    return quick(study="label-distance")


@pytest.fixture(scope="module")
def table() -> Table:
    return run("celeba", quick=True, device="cpu")


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_says_which_data_it_is_from_and_how_good_the_network_is(table):
    page = table.to_markdown()
    assert "Data: 200 faces drawn by ig2" in page and "140 trained the network, 60 others" in page and "mean background" in page
    facts = {fact.name: fact.mean for fact in table.facts}
    assert facts["accuracy of the commonest answers"] < facts["accuracy"] <= 1
    assert {f"accuracy of {name}" for name in DRAWN} <= set(facts)
    assert table.row("IG² (left, as published)", "GT-AUC").paper == 0.795


def test_the_papers_accuracies_are_those_of_all_attributes():
    assert tuple(PAPER_ACCURACY) == ATTRIBUTES
    assert sum(PAPER_ACCURACY.values()) / 40 == pytest.approx(0.9113)


# -- what is explained -------------------------------------------------------------------------------------------------


def test_explained_are_attributes_that_are_there_and_seen_and_marked(suite):
    explicands = suite.explicands
    assert len(explicands) == 12 and explicands.truth is not None
    parsed = suite.loaded[2]
    net = explicands.model.net
    for x, target, truth, name in zip(
        explicands.x, explicands.target.tolist(), explicands.truth, explicands.names, strict=True
    ):
        face, _, attribute = name.rpartition(", ")
        row = parsed.names.index(face)
        assert parsed.classes[target] == attribute and parsed.y[row, target] == 1
        assert torch.equal((x * 255).round().byte(), parsed.x[row])
        assert net(x[None])[0, target] > 0
        assert torch.equal(truth, parsed[[row]].truth(attribute)[0]) and (truth == 1).double().mean() >= LEAST


def test_attributes_take_turns_and_a_face_is_explained_twice_at_most():
    parsed = draw_faces(60, size=(55, 45))
    able = {name for name in DRAWN if name in ATTRIBUTE_COMPONENTS} - {"Bald"}  # of whose hair nothing is drawn
    pairs = choose_pairs(parsed, torch.ones_like(parsed.y, dtype=torch.bool), seed=0)
    first = pairs[: len(able) // 2, 1].tolist()
    assert len(set(first)) == len(first) and {parsed.classes[label] for label in pairs[:, 1].tolist()} <= able
    assert pairs[:, 0].bincount().max() == 2 and len(pairs) == len(set(map(tuple, pairs.tolist())))
    assert not torch.equal(pairs, choose_pairs(parsed, torch.ones_like(parsed.y, dtype=torch.bool), seed=1))
    assert len(choose_pairs(parsed, torch.zeros_like(parsed.y, dtype=torch.bool), seed=0)) == 0


def test_fewer_samples_are_the_first_of_more(suite):
    few = quick(samples=5).explicands
    assert few.names == suite.explicands.names[:5]
    for name in (COUNTERFACTUAL, DATA):
        assert torch.equal(few.references[name].select(slice(0, 5)), suite.explicands.references[name].select(slice(0, 5)))


def test_the_splits_and_what_the_network_was_trained_on_have_no_face_in_common(suite):
    def shown(name: str) -> str:
        return name.rpartition(", ")[0]

    test, validation = suite.explicands.names, quick(samples=12, split="validation").explicands.names
    assert not {*map(shown, test)} & {*map(shown, validation)}
    assert not {*map(shown, (*test, *validation))} & {*suite.loaded[0].names}


def test_curves_show_the_probability_of_the_label_alone(suite):
    some, explicands = slice(0, 2), suite.explicands
    attribution = explicands.x[some].clone()
    scores = suite.score_attribution(attribution, some)
    curve = Insertion("mean", suite.thresholds, output="sigmoid")(
        explicands.model, attribution, explicands.x[some], explicands.target[some]
    )
    assert torch.equal(scores["ADD"], curve.values) and curve.curves is not None
    logits = explicands.model.net(explicands.x[some]).gather(1, explicands.target[some, None])[:, 0]
    torch.testing.assert_close(curve.curves[:, -1], logits.sigmoid())


# -- references --------------------------------------------------------------------------------------------------------


def numbers_of(suite: CelebA, name: str) -> torch.Tensor:
    """Which training faces the references are, (N, R)."""
    train, references = suite.loaded[0], suite.explicands.references[name]
    found = references.select(slice(0, len(suite.explicands)))
    known = {face.numpy().tobytes(): number for number, face in enumerate(train.x)}
    return torch.tensor([[known[(one * 255).round().byte().numpy().tobytes()] for one in row] for row in found])


def test_references_lack_the_attribute_by_label_and_by_the_network_and_are_the_nearest(suite):
    train, _, parsed = suite.loaded
    explicands = suite.explicands
    said = predict(explicands.model.net, train) > 0
    own = parsed.y[[parsed.names.index(name.rpartition(", ")[0]) for name in explicands.names]]
    for row, label, mine in zip(numbers_of(suite, COUNTERFACTUAL), explicands.target.tolist(), own, strict=True):
        lacks = (train.y[:, label] == 0) & ~said[:, label]
        assert len(set(row.tolist())) == suite.references and bool(lacks[row].all())
        distance = (train.y - mine).abs().sum(dim=1)
        assert distance[row].max() <= distance[lacks].sort().values[suite.references - 1]


def test_references_of_the_data_are_the_same_for_all_and_of_any_label(suite):
    rows = numbers_of(suite, DATA)
    assert bool((rows == rows[0]).all()) and len(set(rows[0].tolist())) == suite.references


def test_attributes_with_too_few_references_are_not_explained(suite):
    train, _, _ = suite.loaded
    said = predict(suite.explicands.model.net, train) > 0
    known = ((train.y == 1) & said).sum(dim=0)
    many = int(known.max()) // 2
    choosy = CelebA(quick=True, samples=50, references=many, steps=2, faces=200, size=(55, 45), coalitions=200)
    targets = set(choosy.explicands.target.tolist())
    assert targets and min(known[label] for label in targets) >= many > min(known[label] for label in suite.explicands.target)
    starved = CelebA(quick=True, samples=1, references=139, steps=2, faces=200, size=(55, 45), coalitions=200)
    assert len(starved.explicands) == 0
    with pytest.raises(InputError, match="there are 0 samples to explain"):
        starved.check()


# -- studies -----------------------------------------------------------------------------------------------------------


def test_references_go_from_the_nearest_labels_to_the_farthest_or_have_the_same(by_distance):
    found = run(by_distance)
    assert found.failures == () and list(found.methods) == [*NEARNESS, *SAME]
    away = [found.row(name, LABEL_DISTANCE) for name in NEARNESS]
    assert all(row.n == 3 for row in away)
    means = [row.mean for row in away]
    assert means == sorted(means) and means[0] < means[-1]
    train, explicands = by_distance.loaded[0], by_distance.explicands
    assert isinstance(explicands, FaceExplicands)
    for name in (*NEARNESS, *SAME):
        rows = numbers_of(by_distance, name)
        labels = train.y[rows].gather(2, explicands.target[:, None, None].expand(*rows.shape, 1))[..., 0]
        assert bool((labels == (name in SAME)).all())
    assert torch.equal(numbers_of(by_distance, "nearest"), numbers_of(by_distance, COUNTERFACTUAL))


def test_each_attribute_has_the_scores_of_its_own_explicands():
    by_attribute = quick(study="attributes", samples=6)
    found = run(by_attribute, ["Smiling", "Wearing Lipstick", "Big Lips", "Bald"])
    assert found.failures == ()
    whole = run(quick(samples=6), ["IG² (blended", "Expected IG"])
    explained_as = [name.rpartition(", ")[2] for name in by_attribute.explicands.names]
    for row in found.rows:
        attribute, method = row.method.partition(" (")[0], row.method.rpartition(", ")[2]
        values = whole.row("IG² (blended)" if method == "IG²" else method, row.metric).values
        own = [value for value, name in zip(values, explained_as, strict=True) if name == attribute]
        assert row.values == pytest.approx(own)
    assert sum(row.n for row in found.rows) > 0
    # each attribute has faces of its own, so the best of all says nothing
    assert not any(found.best(metric) for metric in found.metrics) and "not to be compared" in found.caption()[1]
    assert math.isnan(found.row("Bald (hair), IG²", "ADD").mean)  # nobody's hair to explain it by


def test_attributes_are_those_of_the_data(tmp_path):
    drawn, real = (CelebA(study="attributes", data=data).methods() for data in (None, tmp_path))
    assert len(real) == 2 * len(ATTRIBUTE_COMPONENTS) == 52 and len(drawn) < len(real)


def test_layers_are_those_of_the_network(tmp_path):
    found = run(quick(study="layers", samples=1), ["conv1", "fc1"])
    assert found.failures == () and all(math.isfinite(row.mean) for row in found.rows)
    modules = {name for name, _ in MobileNetV2(3).named_modules()}
    assert set(CelebA(study="layers", data=tmp_path).methods()) - {"output"} <= modules


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_folder_is_read_and_faces_without_components_train(tmp_path, monkeypatch):
    write_faces(tmp_path, draw_faces(160, size=(55, 45)), parsed=40)
    # MobileNet-v2 takes longer than all other tests here
    monkeypatch.setattr(celeba, "train_network", lambda _, *args, **options: train_network("faces", *args, **options))
    folder = quick(data=tmp_path, samples=2)
    train, test, parsed = folder.loaded
    assert (len(train), len(test), len(parsed)) == (114, 6, 40)
    assert {*train.names, *test.names} == {f"{number:06d}.jpg" for number in range(120)}
    found = run(folder, ["Gradient", "IG² (left"])
    assert found.failures == () and all(row.n == 2 for row in found.rows)
    assert "CelebA, aligned, 160 of 160 faces; 114 trained the network, 40 others with components" in found.to_markdown()
    assert str(tmp_path) not in found.to_markdown()


def test_where_all_faces_have_components_some_of_them_train(tmp_path):
    write_faces(tmp_path, draw_faces(20, size=(55, 45)), parsed=20)
    train, test, parsed = quick(data=tmp_path).loaded
    assert (len(train), len(test)) == (14, 6) and test is parsed and not {*train.names} & {*parsed.names}


def test_folders_that_hold_no_faces_are_refused(tmp_path):
    write_faces(tmp_path, draw_faces(3, size=(55, 45)), parsed=0)
    with pytest.raises(InputError, match="has no face with components"):
        run("celeba", quick=True, data=tmp_path)
