"""`ig2 bench imagenet`: photos that are read, chosen, contrasted with others and put beside them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import datafiles
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from ig2 import modalities, rules
from ig2.errors import InputError
from ig2.model import wrap
from ig2_bench import Table, run
from ig2_bench.datasets.base import LabelledSamples
from ig2_bench.suite import BenchOptions, find_suite
from ig2_bench.suites import imagenet
from ig2_bench.suites.experiment import COUNTERFACTUAL, DATA
from ig2_bench.suites.imagenet import (
    BOTH,
    INCEPTION,
    IRRELEVANT,
    LAYERS,
    MANY,
    RELEVANT,
    TOP,
    ImageNet,
    has_inception,
    split_photos,
)

SIDE = 16
# classes that the network below knows, by their colour; there are eight corners of the cube
COLOURS = torch.tensor([[r, g, b] for r in (0, 1) for g in (0, 1) for b in (0, 1)]).float()
GREY = 128
BREEDS = {"beagle": 162, "pug": 254, "boxer": 242}


quick = datafiles.quick("imagenet")


@pytest.fixture(scope="module")
def table() -> Table:
    return run("imagenet", quick=True, device="cpu")


@pytest.fixture(scope="module")
def suite() -> ImageNet:
    return quick()


# -- the photos that come with packages --------------------------------------------------------------------------------


def test_the_table_says_which_photos_and_what_they_are_explained_as(table):
    assert "8 photos that come with packages" in table.data and "explained as its predicted class" in table.data
    assert [fact.name for fact in table.facts] == ["accuracy over 4 photos"]


def test_of_a_few_photos_each_is_explained_as_the_class_predicted_against_the_others(suite):
    found, pool = suite.loaded
    explicands = suite.explicands
    assert pool is None and len(explicands) == 3 and set(explicands.names) <= set(found.names)
    pixels = found.x.float() / 255
    for number, name in enumerate(explicands.names):
        mine = found.names.index(name)
        assert torch.equal(explicands.x[number], pixels[mine]) and torch.equal(explicands.truth[number], found.masks[mine])
        for reference in explicands.references[COUNTERFACTUAL].select(slice(number, number + 1))[0]:
            assert not torch.equal(reference, pixels[mine])


def test_interfering_objects_are_put_beside_and_their_sets_stand_in_columns_of_their_own():
    table = run("imagenet", quick=True, device="cpu", study="references")
    assert table.failures == () and list(table.methods) == [RELEVANT, IRRELEVANT, MANY, BOTH]
    assert len(table.metrics) == 12 and "put side by side" in table.data
    for row in table.rows:
        assert row.n == {"interference": 1, "plain": 2, "whole": 3}[row.metric.partition(", ")[2]], row
    by_set = [table.row(RELEVANT, f"ADD, {name}").values for name in ("interference", "plain", "whole")]
    assert sorted(by_set[0] + by_set[1]) == sorted(by_set[2])
    assert table.row(RELEVANT, "GT-AUC, interference").paper == 0.905 and table.row(MANY, "DEL, whole").paper == 0.115


def test_the_layers_are_those_of_the_network(suite):
    assert suite.layers == LAYERS["efficientnet-lite0"]
    for layer in suite.layers:
        wrap(suite.subject.model.net, representation=layer)


def test_the_pictures_are_the_network_s_own_unless_the_run_is_quick():
    plain = find_suite("imagenet", BenchOptions(device="cpu"))
    assert (plain.samples, plain.references, plain.subject.size) == (4, 4, (224, 224))
    with pytest.raises(InputError, match="pixels must be"):
        ImageNet(pixels=0)


# -- a folder, and a network that knows colours ------------------------------------------------------------------------


class Colours(nn.Module):
    """Finds eight classes by the share of pixels that have their colour."""

    def __init__(self) -> None:
        super().__init__()
        self.see, self.say = nn.Conv2d(3, 8, 1), nn.Linear(8, 1000)
        with torch.no_grad():
            self.see.weight.copy_((2 * COLOURS - 1)[:, :, None, None] * 2)
            self.see.bias.copy_(-2 - (2 * COLOURS - 1).sum(dim=1))
            self.say.weight.zero_()
            self.say.weight[:8] = torch.diag(torch.linspace(10, 11, 8))  # no ties where two have a half each
            self.say.bias.copy_(-torch.arange(1000) / 1000)

    def forward(self, x):
        return self.say(torch.relu(self.see(x)).mean(dim=(2, 3)))


@pytest.fixture
def colours(monkeypatch):
    """The small network in place of the large one, on pictures as they are."""
    monkeypatch.setattr(
        modalities.image, "load", lambda name: modalities.image.subject(Colours().eval(), (SIDE, SIDE), classes="imagenet")
    )


def photo(path: Path, colour: int, box: tuple[int, int, int, int] = (1, 2, 13, 12)) -> None:
    """An object of a class's colour on grey."""
    pixels = np.full((SIDE, SIDE, 3), GREY, dtype=np.uint8)
    x0, y0, x1, y1 = box
    pixels[y0:y1, x0:x1] = 255 * COLOURS[colour].numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def boxes(folder: Path, per_class: int = 4, classes: int = 6) -> Path:
    lines = ["file,class_index,x0,y0,x1,y1"]
    for label in range(classes):
        for number in range(per_class):
            name, x = f"{label}-{number}.png", 1 + number % 3
            photo(folder / "images" / name, label, (x, 2, x + 12, 12))
            lines.append(f"{name},{label},{x},2,{x + 12},12")
    (folder / "boxes.csv").write_text("\n".join(lines) + "\n")
    return folder


def pool(folder: Path, classes: int = 8) -> Path:
    for label in range(classes):
        photo(folder / "images" / f"{label}.png", label, (0, 0, 16, 16))
    rows = "".join(f"{label}.png,{label}\n" for label in range(classes))
    (folder / "labels.csv").write_text("file,class_index\n" + rows)
    return folder


def of_folder(folder: Path, **settings) -> ImageNet:
    return ImageNet(
        **{"data": folder, "samples": 6, "references": 4, "steps": 3, "step_size": 1.0, "network": "tiny", **settings}
    )


def classes_of(explicands, name: str) -> list[list[int]]:
    """The class of each reference, by its colour in the middle."""
    rows = explicands.references[name].select(slice(0, len(explicands)))[..., SIDE // 2, SIDE // 2]
    return [[(one.round() == COLOURS).all(dim=1).nonzero().item() for one in some] for some in rows]


def test_the_network_of_these_tests_tells_colours(tmp_path, colours):
    found = of_folder(boxes(tmp_path))
    (accuracy,) = found.explicands.facts["accuracy over 12 photos"]
    assert accuracy == 1 and found.explicands.facts.keys() == {"accuracy over 12 photos"}


def test_splits_do_not_overlap_and_hold_a_half_of_each_class_of_one_photo_too(tmp_path, colours):
    found, _ = of_folder(boxes(tmp_path)).loaded
    for seed in (0, 1):
        validation, test = (split_photos(found, split, seed) for split in ("validation", "test"))
        assert not set(validation.names) & set(test.names) and len(validation) + len(test) == len(found) == 24
        assert set(validation.y.bincount().tolist()) == {2}
    names = tuple(f"class {n}" for n in range(41))
    single = LabelledSamples(torch.zeros(41, 1), torch.arange(41), names, names, "")
    assert [len(split_photos(single, split, 0)) for split in ("validation", "test")] == [21, 20]
    explained = [set(of_folder(tmp_path, split=split).explicands.names) for split in ("validation", "test")]
    assert not explained[0] & explained[1] and explained[0] <= set(split_photos(found, "validation", 0).names)


def test_references_come_from_the_pool_beside_or_within_and_never_of_the_explained_class(tmp_path, colours):
    boxes(tmp_path / "data")
    without = of_folder(tmp_path / "data")
    assert "from the other split" in without.describe_data()
    other = {tuple(x.flatten().tolist()) for x in split_photos(without.loaded[0], "validation", 0).x}
    assert all(
        tuple((x * 255).round().byte().flatten().tolist()) in other
        for x in without.explicands.references[COUNTERFACTUAL].samples
    )
    for place in (tmp_path / "imagenet-pool", tmp_path / "data" / "pool"):
        pool(place)
        beside = of_folder(tmp_path / "data")
        assert "from a pool of 8 photos of 8 classes" in beside.describe_data()
    assert set(beside.explicands.names) == set(without.explicands.names)
    for explicands in (without.explicands, beside.explicands):
        for mine, theirs in zip(explicands.target.tolist(), classes_of(explicands, COUNTERFACTUAL), strict=True):
            assert mine not in theirs and len(set(theirs)) == 4
        assert {len(some) for some in classes_of(explicands, DATA)} == {4}
    data = zip(beside.explicands.target.tolist(), classes_of(beside.explicands, DATA), strict=True)
    assert any(mine in theirs for mine, theirs in data)


def test_a_reference_that_the_network_takes_for_the_explained_class_is_none(tmp_path, colours):
    boxes(tmp_path / "data", classes=2)
    pool(tmp_path / "pool", classes=4)
    photo(tmp_path / "pool" / "images" / "2.png", 0, (0, 0, 16, 16))  # labelled 2, and looks like 0
    explicands = of_folder(tmp_path / "data", samples=4, references=2).explicands
    for mine, theirs in zip(explicands.target.tolist(), classes_of(explicands, COUNTERFACTUAL), strict=True):
        assert mine not in theirs
    with pytest.raises(InputError, match="has 2 photos of other classes for references, needed are 3"):
        _ = of_folder(tmp_path / "data", samples=4, references=3).explicands


def test_photos_the_network_is_wrong_about_and_photos_that_are_all_object_are_not_explained(tmp_path, colours):
    boxes(tmp_path)
    photo(tmp_path / "images" / "0-0.png", 7)
    everything = (tmp_path / "boxes.csv").read_text().replace("1-1.png,1,2,2,14,12", "1-1.png,1,0,0,16,16")
    (tmp_path / "boxes.csv").write_text(everything)
    splits = [of_folder(tmp_path, split=split, samples=12) for split in ("validation", "test")]
    names = [name for split in splits for name in split.explicands.names]
    assert len(names) == 22 and not {"0-0.png", "1-1.png"} & set(names)
    assert [list(split.explicands.facts) for split in splits].count(["accuracy over 11 photos"]) == 1


def test_a_larger_number_of_samples_goes_on_where_a_smaller_one_ends(tmp_path, colours):
    boxes(tmp_path / "data")
    pool(tmp_path / "pool")
    for study in (None, "references"):
        few, more = (of_folder(tmp_path / "data", study=study, samples=samples, relevant=2, references=2) for samples in (4, 8))
        assert more.explicands.names[:4] == few.explicands.names
        for name in few.explicands.references:
            mine, theirs = (suite.explicands.references[name].select(slice(0, 4)) for suite in (few, more))
            assert torch.equal(mine, theirs), name


def test_relevant_references_are_of_the_classes_predicted_next_and_irrelevant_ones_are_not(tmp_path, colours):
    boxes(tmp_path / "data")
    pool(tmp_path / "pool")
    found = of_folder(tmp_path / "data", study="references", relevant=1, references=3)
    explicands = found.explicands
    outputs = Colours()(explicands.x)
    few, many = classes_of(explicands, IRRELEVANT), classes_of(explicands, MANY)
    for number, mine in enumerate(explicands.target.tolist()):
        first = outputs[number].argsort(descending=True).tolist()
        assert first[0] == mine
        (relevant,) = classes_of(explicands, RELEVANT)[number]
        if number % 2:  # the two halves of a picture: the class beside is the next
            own, other = explicands.names[number].split(" beside ")
            assert (int(own[0]), int(other[0])) == (mine, relevant) and int(other[0]) == first[1]
        assert relevant == next(name for name in first if name < 8 and name != mine)
        assert not {mine, relevant, *first[:TOP]} & set(many[number]) and many[number][:1] == few[number]
        assert classes_of(explicands, BOTH)[number] == [relevant, *few[number]]


def test_what_is_marked_of_two_halves_is_the_explained_object_alone(tmp_path, colours):
    boxes(tmp_path / "data")
    explicands = of_folder(tmp_path / "data", study="references", relevant=1, references=1).explicands
    sides = set()
    for number in range(1, 6, 2):
        colour = COLOURS[explicands.target[number]][:, None, None]
        assert torch.equal((explicands.x[number] == colour).all(dim=0), explicands.truth[number] == 1)
        columns = (explicands.truth[number] == 1).any(dim=0).nonzero().flatten()
        assert len(columns) == SIDE // 2  # the object is wider than a half, so it fills it
        sides.add(int(columns[0]))
    assert sides == {0, SIDE // 2}


@pytest.mark.parametrize("study", [None, *ImageNet.studies])
def test_every_study_scores_on_a_folder(tmp_path, colours, study):
    boxes(tmp_path / "data")
    pool(tmp_path / "pool")
    small = {"straight": 3, "guided": 3, "coalitions": 40, "thresholds": 4, "references": 2, "relevant": 1, "quick": True}
    table = run(of_folder(tmp_path / "data", study=study, samples=4, **small))
    assert table.failures == () and "object boxes" in table.data
    for row in table.rows:
        assert row.n + row.undefined == len(row.values) > 0, row
        # on a network that sees a colour or not there are paths without any attribution, which have no share and no ranks
        assert row.n or row.metric in ("GT-SUM", "residual", "IDSDS"), row


def test_on_photos_of_a_folder_ig2_takes_the_paper_s_own_steps_too(tmp_path, colours):
    """Not on the few that come with packages, nor in a small run: they cost ten times as much."""
    folder = boxes(tmp_path)
    suite = of_folder(folder)
    compared = suite.compared_methods()
    extra = [label for label in compared if "published steps" in label]
    assert [compared[label].rule for label in extra] == [rules.left, rules.blended]
    assert (
        {(compared[label].path.steps, compared[label].path.step_size) for label in extra} == {suite.published} == {(500, 3.0)}
    )
    assert suite.paper()[extra[0]] == suite.paper()["IG² (left, as published)"] and extra[1] not in suite.paper()
    bare = [find_suite("imagenet", BenchOptions(device="cpu")), of_folder(folder, quick=True), of_folder(folder, study="cost")]
    assert not any("published steps" in label for suite in bare for label in suite.methods())


def test_pets_are_recognised_by_their_trimaps(tmp_path, colours):
    for label, (breed, index) in enumerate(BREEDS.items()):
        for number in range(4):
            name = f"{breed}_{number}"
            photo(tmp_path / "images" / f"{name}.png", label)
            trimap = np.full((SIDE, SIDE), 2, dtype=np.uint8)
            trimap[2:12, 1:13], trimap[2:12, 12] = 1, 3
            (tmp_path / "trimaps").mkdir(exist_ok=True)
            Image.fromarray(trimap).save(tmp_path / "trimaps" / f"{name}.png")
            with (tmp_path / "labels.csv").open("a") as file:
                file.write(("" if file.tell() else "name,class_index\n") + f"{name},{index}\n")
    suite = of_folder(tmp_path)
    assert suite.name == "pets" and suite.title == "Pets" and suite.paper() == {}
    assert "settings were chosen on the validation split" in suite.describe_data()
    for others in ({"seed": 5}, {"quick": True}):  # other splits, and other settings
        assert "chosen" not in of_folder(tmp_path, **others).describe_data()
    found, _ = suite.loaded
    assert found.source.startswith("Oxford-IIIT Pets") and len(found) == 12 and -1 in found.masks
    with pytest.raises(InputError, match="the network is right about none of the 6 photos"):
        _ = of_folder(tmp_path).explicands  # it knows no breeds


def test_photos_without_marks_are_scored_without_them(tmp_path, colours):
    boxes(tmp_path)
    labels = "".join(f"{label}-{number}.png,{label}\n" for label in range(6) for number in range(4))
    (tmp_path / "boxes.csv").unlink()
    (tmp_path / "labels.csv").write_text("file,class_index\n" + labels)
    suite = of_folder(tmp_path, study="references", relevant=1, references=1)
    assert suite.explicands.truth is None and list(suite.metrics())[:3] == ["ADD, interference", "ADD, plain", "ADD, whole"]


def test_a_folder_of_neither_is_refused(tmp_path, colours):
    with pytest.raises(InputError, match=r"has no pictures.*read as ImageNet: it has no trimaps"):
        _ = of_folder(tmp_path).loaded
    with pytest.raises(InputError, match="does not exist"):
        _ = of_folder(tmp_path / "nowhere").loaded


def test_the_paper_s_network_is_taken_where_its_weights_are(tmp_path, monkeypatch):
    models = SimpleNamespace(
        get_model_weights=lambda name: SimpleNamespace(DEFAULT=SimpleNamespace(url=f"https://a/{name}.pth"))
    )
    monkeypatch.setattr(imagenet, "find_spec", lambda name: None)
    assert not has_inception()
    monkeypatch.setattr(imagenet, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=models))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    options = BenchOptions(device="cpu", data=tmp_path)
    assert not has_inception() and find_suite("imagenet", options).network == "efficientnet-lite0"
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "inception_v3.pth").write_bytes(b"")
    paper = find_suite("imagenet", options)
    assert has_inception() and paper.network == INCEPTION and paper.layers == LAYERS[INCEPTION]
