"""Photos in, heat maps out: reading whatever people have, models by name, references that are something else."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import linear_net, noise
from PIL import Image
from torch import nn

import ig2
from ig2 import modalities
from ig2._utils import training
from ig2.demo import digits
from ig2.demo import photos as demo_photos
from ig2.errors import IG2Warning, InputError, MissingExtraError
from ig2.modalities.image.modality import IMAGES
from ig2.modalities.image.reading import Framing

RED, WHITE = (255, 0, 0), (255, 255, 255)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def kept_here(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IG2_CACHE", str(cache))
    return cache


@pytest.fixture
def handwriting(kept_here: Path) -> modalities.image.ImageSubject:
    return modalities.image.load("digits")


# -- any network -------------------------------------------------------------------------------------------------------


def test_any_network_in_a_few_words() -> None:
    mine = modalities.image.subject(
        linear_net(), size=(8, 8), mean=0.5, std=(0.2, 0.2, 0.4), classes=["cat", "dog", "<script>"]
    )
    batch = mine.read([noise(20, 30), Image.fromarray(noise(9, 9, seed=1))])
    assert batch.names == ("image 1", "image 2")
    a = ig2.IntegratedGradients(steps=20)(mine.model, batch.x)
    maps = mine.scores(batch, a)
    assert [m.shape for m in maps] == [(8, 8)] * 2
    assert np.allclose(maps[0], a.values[0].sum(dim=0))
    assert maps[1].sum() == pytest.approx(float(a.output[1] - a.baseline_output[1]), rel=1e-3)
    assert mine.index("dog") == mine.index(1) == 1
    assert mine.label(2) == "<script>"


def test_a_layer_is_explained_with_the_names_of_the_photos() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3))
    subject = modalities.image.subject(net.eval(), size=(8, 8), classes=["a", "b", "c"])
    photos = [noise(8, 8, seed=seed) for seed in (0, 1)]
    inside = subject.explain(photos, ig2.IntegratedGradients(4), "b", None, references=0.0, at="2")
    assert inside.values.shape == (2, 4, 2, 2) and inside.explained == ["b", "b"]
    assert inside.names.predictions == subject.explain(photos, ig2.Gradient()).names.predictions


def test_a_picture_is_what_was_read() -> None:
    mine, picture = modalities.image.subject(linear_net(), size=(8, 8)), noise()
    batch = mine.read(picture)
    assert np.array_equal(mine.picture(batch.x[0]), picture)
    grey = modalities.image.subject(linear_net(channels=1), size=(8, 8), channels=1)
    shown = grey.picture(grey.read(picture[:, :, 0]).x[0])
    assert np.array_equal(shown, np.repeat(picture[:, :, :1], 3, axis=2))
    assert mine.picture(torch.full((3, 8, 8), 7.0)).max() == 255  # a path may leave the range a little
    with pytest.raises(InputError, match="one sample"):
        mine.picture(batch.x)


@pytest.mark.parametrize("size", [8, np.int64(8), [8, 8], torch.Size([8, 8]), np.array([8, 8])])
def test_one_number_is_the_side_of_a_square(size: Any) -> None:
    mine = modalities.image.subject(linear_net(), size=size, frame=Framing(size, 9))
    assert mine.size == (8, 8)
    assert mine.read(np.zeros((20, 30, 3), dtype=np.uint8)).x.shape == (1, 3, 8, 8)


@pytest.mark.parametrize("size", [0, -1, 2.5, "8", None, (8,), (8, 8, 8), True, (8.5, 8), ("8", "8"), (0, 8), {8: 8}])
def test_a_size_that_is_none_is_quoted(size: Any) -> None:
    with pytest.raises(InputError, match="size must be"):
        modalities.image.subject(linear_net(), size=size)
    with pytest.raises(InputError, match="cover must be"):
        Framing(8, 0 if size is None else size)


@pytest.mark.parametrize(
    ("name", "value"),
    [("frame", "x"), ("photos", [1]), ("classes", 5)],
)
def test_an_option_of_the_wrong_kind_is_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        modalities.image.subject(linear_net(), (8, 8), **{name: value})


def test_wrong_words_for_a_network_are_named() -> None:
    net = linear_net()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"mean": (0.1, 0.2)}, "one number for each of 3"),
        ({"std": 0.0}, "std must be positive"),
        ({"channels": 4}, "channels"),
        ({"mean": "red"}, "mean must be a number"),
    ]
    for options, expected in wrong:
        with pytest.raises(InputError, match=expected):
            modalities.image.subject(net, size=(8, 8), **options)
    with pytest.raises(InputError, match="torch module"):
        modalities.image.subject("resnet")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no images"):
        modalities.image.subject(net, size=(8, 8)).read([])


def test_classes_by_number_name_and_part(lite0: modalities.image.ImageSubject) -> None:
    assert lite0.index("espresso") == lite0.index("967") == lite0.index("ESPRESSO ") == 967
    assert lite0.index("toilet tis") == 999
    for wrong, expected in (
        ("crane", "could be"),
        ("hound", r"could be '[^']+', '[^']+', '[^']+', '[^']+', '[^']+' and \d+ more: say which"),
        ("espreso", "did you mean espresso"),
        ("1000", "class 1000 does not exist: the model's classes are numbered from 0 to 999"),
        ("-1", "numbered from 0 to 999"),
    ):
        with pytest.raises(InputError, match=expected):
            lite0.index(wrong)


# -- references --------------------------------------------------------------------------------------------------------


def test_references_are_never_the_photo_itself_nor_of_its_class(lite0: modalities.image.ImageSubject) -> None:
    paths = {path.stem: path for path in demo_photos.paths()}
    batch = lite0.read([paths["coffee"], paths["chelsea"]])
    with pytest.warns(ig2.IG2Warning, match="and not 20: of the 7 looked at, no more can be contrasted with"):
        chosen = ig2.Question(against=None, count=20).contrast(lite0, batch)
    assert chosen.samples.shape[0] == 2
    assert chosen.samples.shape[1] == 6
    assert "coffee" not in chosen.names[0]
    assert "espresso" not in chosen.labels[0]
    assert "chelsea" not in chosen.names[1]
    assert "coffee" in chosen.names[1]  # and would have been chosen otherwise
    flat = chosen.samples[0].flatten(1)
    assert not (flat == batch.x[0].flatten()).all(dim=1).any()
    predicted = lite0.predict(ig2.modalities.base.Batch(chosen.names[1], chosen.samples[1])).argmax(dim=1)
    assert [lite0.label(i) for i in predicted.tolist()] == list(chosen.labels[1])


def test_the_choice_depends_on_the_seed_and_not_on_the_neighbours() -> None:
    mine = modalities.image.subject(linear_net(), size=(8, 8), classes=["a", "b", "c"])
    pool = mine.read([noise(seed=seed) for seed in range(40)])
    batch = mine.read([noise(seed=100), noise(seed=101), noise(seed=102)])
    together, again = (
        ig2.Question(0, None, references=pool, count=4).contrast(mine, batch),
        ig2.Question(0, None, references=pool, count=4).contrast(mine, batch),
    )
    alone = ig2.Question(0, None, references=pool, count=4).contrast(mine, mine.read([noise(seed=101)]))
    other = ig2.Question(0, None, references=pool, count=4, seed=1).contrast(mine, batch)
    assert torch.equal(together.samples, again.samples)
    assert torch.equal(together.samples[1], alone.samples[0])
    assert not torch.equal(together.samples, other.samples)
    assert {label for row in together.labels for label in row} == {"b", "c"}
    assert together.labels[0].count("b") == 2  # each class gives one before any gives two


def ragged() -> tuple[modalities.image.ImageSubject, ig2.modalities.base.Batch, ig2.modalities.base.Batch]:
    """A subject, three photos and a pool of which each of them has another number of references."""
    mine = modalities.image.subject(linear_net(), size=(8, 8), classes=["a", "b", "c"])
    photos = mine.read([noise(seed=seed) for seed in range(60)])
    classes = mine.predict(photos).argmax(dim=1)
    numbers = {label: (classes == label).nonzero()[:, 0].tolist() for label in range(3)}
    pool = [number for label, count in ((0, 4), (1, 2), (2, 1)) for number in numbers[label][:count]]
    batch = [numbers[label][-1] for label in range(3)]
    return mine, *(mine.read([noise(seed=seed) for seed in chosen]) for chosen in (batch, pool))


@pytest.mark.parametrize(
    "method", [ig2.IG2(steps=6), ig2.ExpectedIG(steps=6), ig2.DeepSHAP(), ig2.GradCFE(steps=6)], ids=lambda m: type(m).__name__
)
def test_an_attribution_does_not_depend_on_the_references_of_its_neighbours(method: ig2.Method) -> None:
    mine, batch, pool = ragged()
    asked = {"against": None, "references": pool, "count": 10}
    with pytest.warns(ig2.IG2Warning, match="3 references, and not 10"):
        together = mine.explain(batch, method, **asked)
    assert [len(names) for names in together.names.references] == [3, 5, 6]
    for row in range(3):
        one = ig2.modalities.base.Batch((batch.names[row],), batch.x[row : row + 1])
        with pytest.warns(ig2.IG2Warning, match="and not 10"):
            alone = mine.explain(one, method, **asked)
        assert alone.weights is None
        for name in ("values", "output", "baseline_output", "residual", "spread"):
            if getattr(alone, name) is not None:
                assert torch.allclose(getattr(together[row], name), getattr(alone, name), atol=1e-5), name
        for name in ("trust", "arrival"):
            if getattr(alone, name) is not None:
                assert torch.allclose(together[row].median(name), alone.median(name), atol=1e-5), name
        assert together[row].verdict == alone.verdict


@pytest.mark.parametrize("method", [ig2.Occlusion(4), ig2.Smoothed(ig2.Occlusion(4), 1.0)], ids=["bare", "wrapped"])
def test_a_method_without_weights_gets_as_many_references_for_each(method: ig2.Method) -> None:
    mine, batch, pool = ragged()
    attribution = mine.explain(batch, method, against=None, references=pool)
    fewest = ig2.Question(against=None, references=pool).contrast(mine, batch).tensors[:, :3]
    assert torch.equal(attribution.values, method(mine.model, batch.x, references=fewest).values)


def test_what_someone_calls_the_explained_class_is_no_reference_either() -> None:
    mine = modalities.image.subject(linear_net(), size=(8, 8), classes=["a", "b", "c"])
    photos = [modalities.Sample(noise(seed=seed), f"photo {seed}", label="A" if seed % 2 else "x") for seed in range(30)]
    chosen = ig2.Question(0, None, references=mine.read(photos)).contrast(mine, mine.read([noise(seed=100)]))
    assert all(int(name.split()[1]) % 2 == 0 for name in chosen.names[0])


def test_a_pool_of_nothing_else_is_an_error() -> None:
    mine = modalities.image.subject(linear_net(), size=(8, 8), classes=["a", "b", "c"])
    batch = mine.read([noise(seed=1)])
    explained = int(mine.predict(batch).argmax())
    with pytest.raises(InputError, match="nothing to contrast 'image 1' with: each reference there is"):
        ig2.Question(explained, None, references=mine.read([noise(seed=1)])).contrast(mine, batch)


def test_fewer_references_than_asked_for_are_counted_in_a_warning() -> None:
    mine = modalities.image.subject(linear_net(classes=1), size=(8, 8), outputs="numbers", classes=["age"])
    pool = mine.read([noise(seed=seed) for seed in range(5)])
    with pytest.warns(ig2.IG2Warning, match="4 references, and not 9: of the 5 looked at") as told:
        ig2.Question(0, None, references=pool, count=9).contrast(mine, mine.read([noise(seed=3)]))
    assert told[0].filename == __file__
    assert (
        len(ig2.Question(0, None, references=pool).contrast(mine, mine.read([noise(seed=3)])).names[0]) == 4
    )  # without a number nothing was asked for
    assert len(ig2.Question(0, None, references=pool, count=4).contrast(mine, mine.read([noise(seed=3)])).names[0]) == 4
    assert len(ig2.Question(0, None, references=pool, count=2).contrast(mine, mine.read([noise(seed=3)])).names[0]) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "q"}, "the model has no class 'q'"),
        ({"target": 1.0}, r"target must hold class indices \(integers\), got 1.0"),
        ({"target": True}, r"target must hold class indices \(integers\), got True"),
        ({"target": torch.tensor([0, 1, 2])}, "expected one class, or one for each of 2 explicands"),
        ({"target": [0, 1, 2]}, "expected one class, or one for each of 2 explicands"),
        ({"target": 99}, "target 99 is not a class: the model has 3, 0 to 2"),
        ({"target": -1}, "target -1 is not a class"),
        ({"count": 0}, "count must be a positive integer, got 0"),
        ({"count": "all"}, "count must be a positive integer, got 'all'"),
        ({"seed": 0.5}, "seed must be an integer of 64 bits, got 0.5"),
    ],
    ids=str,
)
def test_contrast_checks_what_it_is_given(options: dict[str, Any], said: str) -> None:
    mine = modalities.image.subject(linear_net(), size=(8, 8), classes=["a", "b", "c"])
    batch, pool = mine.read([noise(seed=100), noise(seed=101)]), mine.read([noise(seed=seed) for seed in range(20)])
    with pytest.raises(InputError, match=said):
        ig2.Question(**{"against": None, "references": pool, **options}).contrast(mine, batch)


def test_contrast_takes_samples_that_were_read_and_of_one_shape() -> None:
    mine, larger = (modalities.image.subject(linear_net(size=side), size=(side, side)) for side in (8, 9))
    with pytest.raises(InputError, match="batch must be samples as this subject's read or pool returns them"):
        ig2.Question(against=None).contrast(mine, [noise(seed=1)])
    with pytest.raises(InputError, match=r"the pool's samples are \(3, 9, 9\), the batch's \(3, 8, 8\)"):
        ig2.Question(against=None, references=larger.read([noise(seed=2)])).contrast(mine, mine.read([noise(seed=1)]))


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "c", "d"]], ids=len)
def test_there_is_a_name_for_each_output_or_an_error(names: list[str]) -> None:
    mine = modalities.image.subject(linear_net(), size=(8, 8), classes=names)
    batch = mine.read([noise(seed=100)])
    said = f"Sequential has 3 outputs and {len(names)} names for them, 'a', 'b'.*: give classes one name for each output"
    with pytest.raises(InputError, match=said):
        mine.predict(batch)
    with pytest.raises(InputError, match=said):
        ig2.Question(against=None, references=mine.read([noise(seed=1)])).contrast(mine, batch)


def test_a_subject_is_shown_in_a_line(lite0: modalities.image.ImageSubject) -> None:
    assert repr(modalities.image.subject(linear_net(), size=(8, 8), classes=["a", "b", "c"], name="mine")) == (
        "ImageSubject('mine', classes=tuple of 3 ('a', 'b', 'c'), outputs='classes')"
    )
    assert len(repr(lite0)) < 200


def test_of_independent_labels_references_have_the_opposite_one() -> None:
    mine = modalities.image.subject(linear_net(), size=(8, 8), outputs="labels", classes=["a", "b", "c"])
    batch, pool = mine.read([noise(seed=100)]), mine.read([noise(seed=seed) for seed in range(40)])
    for label in range(3):
        chosen = ig2.Question(label, None, references=pool).contrast(mine, batch)
        said = mine.predict(ig2.modalities.base.Batch(chosen.names[0], chosen.samples[0]))[:, label] > 0
        assert (said != (mine.predict(batch)[0, label] > 0)).all()
    probabilities = mine.probabilities(mine.predict(pool))
    assert probabilities is not None
    assert float(probabilities.sum(dim=1).std()) > 0  # they need not sum to one


def test_of_numbers_anything_but_the_sample_itself_is_a_reference() -> None:
    mine = modalities.image.subject(linear_net(classes=1), size=(8, 8), outputs="numbers", classes=["age"])
    pool = mine.read([noise(seed=seed) for seed in range(5)])
    chosen = ig2.Question(0, None, references=pool).contrast(mine, mine.read([noise(seed=3)]))
    assert sorted(chosen.names[0]) == ["image 1", "image 2", "image 3", "image 5"]
    assert float(chosen.labels[0][0]) == pytest.approx(float(mine.predict(pool)[int(chosen.names[0][0][6:]) - 1]), rel=1e-3)
    assert mine.probabilities(mine.predict(pool)) is None


def test_default_references_are_inside_installed_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = demo_photos.paths()
    assert len(paths) == 7
    assert {path.parent.name for path in paths} == {"data", "images"}
    monkeypatch.setattr(demo_photos, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="scikit-image"):
        demo_photos.paths()


def test_a_folder_of_photos_flat_or_by_class(tmp_path: Path) -> None:
    for name in ("cat/1.png", "cat/2.png", "cat/3.png", "dog/1.PNG", ".hidden/4.png", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name, "png")
    found = IMAGES.list_samples(tmp_path)  # all of them
    assert [(photo.name, photo.label) for photo in found] == [
        (os.path.join("cat", "1.png"), "cat"),
        (os.path.join("cat", "2.png"), "cat"),
        (os.path.join("cat", "3.png"), "cat"),
        (os.path.join("dog", "1.PNG"), "dog"),
    ]
    assert {photo.label for photo in IMAGES.list_samples(tmp_path, limit=2)} == {"cat", "dog"}
    assert [photo.label for photo in IMAGES.list_samples(tmp_path / "cat")] == [None] * 3
    mine = modalities.image.subject(linear_net(), size=(8, 8))
    assert mine.read(found).labels == ("cat", "cat", "cat", "dog")


def test_no_photo_of_a_folder_is_dropped_in_silence(tmp_path: Path) -> None:
    for number in range(70):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{number}.png")
    assert len(IMAGES.list_samples(tmp_path)) == 70
    assert len(IMAGES.list_samples(tmp_path, limit=3)) == 3


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, expected in (
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path, "no images"),
    ):
        with pytest.raises(InputError, match=expected):
            IMAGES.list_samples(path)
    assert [photo.name for photo in IMAGES.list_samples(tmp_path / "file")] == ["file"]


# -- digits ------------------------------------------------------------------------------------------------------------


def test_digits_are_learnt_from_real_ones_without_touching_global_randomness(kept_here: Path) -> None:
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 - the global state is what is watched
    before, state = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[union-attr]  # noqa: NPY002
    mine = modalities.image.load("digits")
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(state, np.random.get_state()[1])  # type: ignore[arg-type]  # noqa: NPY002
    pool = mine.pool()
    assert pool.x.shape == (100, 1, 28, 28)
    right = [mine.label(i) == label for i, label in zip(mine.predict(pool).argmax(dim=1).tolist(), pool.labels, strict=True)]
    assert np.mean(right) >= 0.9  # digits that were kept out of the training
    assert [path.name for path in kept_here.iterdir()] == ["digits-1.safetensors"]


def test_a_digit_is_explained_against_other_digits(handwriting: modalities.image.ImageSubject) -> None:
    batch = handwriting.read(handwriting.samples()[35])  # a three
    chosen = ig2.Question(3, None, count=9).contrast(handwriting, batch)
    assert set(chosen.labels[0]) == set("012456789")
    a = ig2.IG2(steps=30, rule=ig2.rules.shared)(handwriting.model, batch.x, target=3, references=chosen.samples)
    assert float(a.relative_residual.max()) < 1e-3
    shown = handwriting.scores(batch, a)[0]
    assert shown.shape == (28, 28)
    ink = batch.x[0, 0].numpy() > 0.2
    assert np.abs(shown[ink]).mean() > 1.5 * np.abs(shown[~ink]).mean()


def test_the_second_time_nothing_is_trained(
    handwriting: modalities.image.ImageSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digits, "fit", None)
    again = modalities.image.load("digits")
    for one, other in zip(handwriting.model.net.parameters(), again.model.net.parameters(), strict=True):
        assert torch.equal(one, other)


def test_whatever_is_wrong_with_the_cache_the_tensors_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make_tensors() -> dict[str, torch.Tensor]:
        made.append(1)
        return {"a": torch.ones(3)}

    monkeypatch.setenv("IG2_CACHE", str(tmp_path))
    (tmp_path / "thing-1.safetensors").write_bytes(b"broken")
    with pytest.warns(IG2Warning, match="damaged"):
        assert torch.equal(training.load_or_train("thing-1", make_tensors)["a"], torch.ones(3))
    assert torch.equal(training.load_or_train("thing-1", make_tensors)["a"], torch.ones(3))
    assert len(made) == 1  # the broken file was replaced
    with pytest.warns(IG2Warning, match="another network"):
        training.load_or_train("thing-1", make_tensors, nn.Linear(3, 3))
    assert len(made) == 2  # it held another network
    monkeypatch.setenv("IG2_CACHE", str(tmp_path / "thing-1.safetensors" / "no folder"))
    training.load_or_train("thing-1", make_tensors)
    assert len(made) == 3
    monkeypatch.setenv("IG2_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    training.load_or_train("thing-1", make_tensors)
    assert len(made) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["thing-1.safetensors"]
