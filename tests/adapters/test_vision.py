"""Photos in, heat maps out: reading whatever people have, models by name, references that are something else."""

from __future__ import annotations

import io
import os
import struct
import sys
import zlib
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import ig2
from ig2._utils import training
from ig2.adapters import images, vision
from ig2.adapters.images import Framing, read_image
from ig2.demo import digits
from ig2.demo import photos as demo_photos
from ig2.errors import IG2Warning, InputError, MissingExtraError

RED, WHITE = (255, 0, 0), (255, 255, 255)


@pytest.fixture(scope="module")
def lite0() -> vision.VisionSubject:
    return vision.load()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def kept_here(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IG2_CACHE", str(cache))
    return cache


@pytest.fixture
def handwriting(kept_here: Path) -> vision.VisionSubject:
    return vision.load("digits")


def linear_net(size: int = 8, channels: int = 3, classes: int = 3, seed: int = 0) -> nn.Module:
    """It tells pictures by their colours; what it says of a dark grey one is near zero."""
    with training.local_seed(seed):
        net = nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, 5), nn.Tanh(), nn.Linear(5, classes)).eval()
    with torch.no_grad():
        first = net[1].weight.view(5, channels, -1)
        first += torch.randn(5, channels, 1, generator=torch.Generator().manual_seed(seed)) / 10
        net[1].bias.copy_(-0.25 * net[1].weight.sum(dim=1))
        net[3].bias.zero_()
    return net


def noise(height: int = 8, width: int = 8, seed: int = 0) -> np.ndarray:
    """Noise of a colour that depends on the seed."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 256, (height, width, 3)) * rng.random(3)).astype(np.uint8)


# -- reading -----------------------------------------------------------------------------------------------------------


def test_black_means_black_and_white_means_white(lite0: vision.VisionSubject) -> None:
    black, white = np.zeros((300, 400, 3), np.uint8), np.full((300, 400, 3), 255, np.uint8)
    batch = lite0.read([black, white])
    assert batch.x.shape == (2, 3, 224, 224)
    assert batch.x.dtype == torch.float32
    assert (batch.x[0] == 0).all()
    assert (batch.x[1] == 1).all()
    assert lite0.model.bounds == (0.0, 1.0)
    # what the network itself gets: (pixel − 127) / 128
    seen = lite0.model.preprocess(batch.x)
    assert torch.allclose(seen[0], torch.tensor(-127 / 128))
    assert torch.allclose(seen[1], torch.tensor(1.0))


def test_the_default_model_knows_real_photos_and_prints_nothing(
    lite0: vision.VisionSubject, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = {path.stem: path for path in demo_photos.paths()}
    batch = lite0.read([paths["coffee"], paths["camera"], paths["chelsea"]])
    probabilities = lite0.probabilities(lite0.predict(batch))
    best, index = probabilities.max(dim=1)
    assert batch.names == ("coffee.png", "camera.png", "chelsea.png")
    assert [lite0.label(i) for i in index.tolist()] == ["espresso", "tripod", "tiger cat"]
    assert best.tolist() == pytest.approx([0.95, 0.94, 0.39], abs=0.02)
    assert capfd.readouterr() == ("", "")


def test_imagenet_names_are_a_thousand_different_ones_in_the_usual_order() -> None:
    names = vision.imagenet_classes()
    assert len(names) == len({name.lower() for name in names}) == 1000
    known = {
        0: "tench",
        134: "crane (bird)",
        281: "tabby",
        517: "crane (machine)",
        872: "tripod",
        967: "espresso",
        999: "toilet tissue",
    }
    assert {i: names[i] for i in known} == known


def make(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


def test_every_mode_becomes_rgb(tmp_path: Path) -> None:
    red = Image.new("RGB", (6, 4), RED)
    half = Image.new("RGBA", (6, 4), (255, 0, 0, 128))
    palette = red.quantize(4)
    clear = Image.new("P", (6, 4), 0)
    clear.putpalette([255, 0, 0, 0, 255, 0])
    cases = {
        "grey.png": (Image.new("L", (6, 4), 77), {}, (77, 77, 77)),
        "bits.png": (Image.new("1", (6, 4), 1), {}, WHITE),
        "palette.png": (palette, {}, RED),
        "clear.gif": (clear, {"transparency": 0}, WHITE),  # what is transparent shows the page
        "half.png": (half, {}, (255, 127, 127)),
        "greyhalf.png": (Image.new("LA", (6, 4), (0, 128)), {}, (127, 127, 127)),
        "print.jpg": (Image.new("CMYK", (6, 4), (0, 255, 255, 0)), {"quality": 100}, RED),
        "print.tif": (Image.new("CMYK", (6, 4), (0, 255, 255, 0)), {}, RED),
        "deep.png": (Image.fromarray(np.full((4, 6), 32896, np.uint16)), {}, (128, 128, 128)),
        "deep.tif": (Image.fromarray(np.full((4, 6), 65535, np.uint16)), {}, WHITE),
        "wide.tif": (Image.fromarray(np.full((4, 6), 32896, np.int32)), {}, (128, 128, 128)),
        "lab.tif": (Image.new("LAB", (6, 4), (255, 128, 128)), {}, WHITE),
    }
    for name, (image, options, expected) in cases.items():
        read = read_image(make(tmp_path / name, image, **options))
        assert read.mode == "RGB", name
        assert read.size == (6, 4), name
        assert np.abs(np.asarray(read, int)[0, 0] - expected).max() <= 3, (name, read.getpixel((0, 0)))


def test_the_cameras_orientation_is_applied(tmp_path: Path) -> None:
    image = Image.new("RGB", (6, 4), WHITE)
    image.putpixel((0, 0), (0, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    turned = read_image(make(tmp_path / "turned.png", image, exif=exif))
    assert turned.size == (4, 6)
    assert turned.getpixel((3, 0)) == (0, 0, 0)
    assert read_image(make(tmp_path / "straight.png", image)).getpixel((0, 0)) == (0, 0, 0)


def test_of_an_animation_the_first_frame_is_taken(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (5, 5), color) for color in (RED, (0, 255, 0), (0, 0, 255))]
    for name in ("moving.gif", "moving.png", "moving.webp"):
        path = make(tmp_path / name, frames[0], save_all=True, append_images=frames[1:], duration=100)
        pixel = np.asarray(read_image(path), int)[2, 2]
        assert np.abs(pixel - RED).max() <= 3, name


def png_that_claims(width: int, height: int) -> bytes:
    """A small file with a large size in its header."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(9999))) + chunk(b"IEND", b"")


def encoded(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(noise(64, 64)).save(stream, kind)
    return stream.getvalue()


HOSTILE = {
    "empty.jpg": (b"", "is empty"),
    "text.jpg": (b"this is not a picture at all\n" * 30, "not an image of a known format"),
    "cut.png": (encoded("PNG")[:900], "broken"),
    "cut.jpg": (encoded("JPEG")[:900], "broken"),
    "header.jpg": (encoded("JPEG")[:12], "broken"),
    "bomb.png": (png_that_claims(60_000, 60_000), "pixels"),
    "large.png": (png_that_claims(10_001, 10_000), "pixels"),
    "liar.png": (png_that_claims(3000, 3000), "broken"),
    "program.eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n", "not an image of a known format"),
    "noise.bin": (np.random.default_rng(0).bytes(4000), "not an image of a known format"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_picture_is_an_error_of_one_line(name: str, tmp_path: Path) -> None:
    content, expected = HOSTILE[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=expected) as caught:
        read_image(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_things_that_are_no_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    floats = make(tmp_path / "floats.tif", Image.fromarray(np.ones((4, 4), np.float32)))
    large = make(tmp_path / "large.tif", Image.fromarray(np.full((4, 4), 70_000, np.int32)))
    cases: list[tuple[Any, str]] = [
        (tmp_path / "nowhere.jpg", "cannot be read: No such file"),
        (tmp_path, "is a folder"),
        ("/dev/null", "not a file"),
        ("a\0b.jpg", "cannot be read"),
        (floats, "floating-point"),
        (large, "32 bits"),
        (3, "must be a path"),
        (np.zeros((4, 4, 3), np.float32), "must be uint8"),
        (np.zeros((4, 4, 2), np.uint8), "must be uint8"),
        (np.zeros((0, 4, 3), np.uint8), "must be uint8"),
    ]
    for source, expected in cases:
        with pytest.raises(InputError, match=expected) as caught:
            read_image(source)
        assert "\n" not in str(caught.value)

    (tmp_path / "cut.png").write_bytes(encoded("PNG")[:900])
    with Image.open(tmp_path / "cut.png") as opened, pytest.raises(InputError, match="the image RGB 64 × 64 is broken"):
        read_image(opened)

    def locked(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", locked)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        read_image(floats)


def test_a_picture_of_the_largest_size_allowed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "fits.png", Image.new("L", (20, 10)))
    monkeypatch.setattr(images, "MOST_PIXELS", 200)
    assert read_image(path).size == (20, 10)
    monkeypatch.setattr(images, "MOST_PIXELS", 199)
    with pytest.raises(InputError, match="20 × 10 pixels, more than 199"):
        read_image(path)


def test_framing_keeps_the_middle_of_what_covers() -> None:
    picture = np.zeros((100, 300, 3), np.uint8)
    picture[:, 100:200] = 255  # the middle third
    framed = np.asarray(Framing((50, 50))(Image.fromarray(picture)))
    assert framed.shape == (50, 50, 3)
    assert (framed[:, 1:-1] == 255).all()
    # with a margin the picture is larger before it is cut: the white third is 80 wide, of which 50 are seen
    assert (np.asarray(Framing((50, 50), cover=(80, 80))(Image.fromarray(picture))) == 255).all()


@pytest.mark.parametrize(("size", "scaled"), [((500, 333), (384, 256)), ((333, 500), (256, 384)), ((256, 256), (256, 256))])
def test_framing_is_resize_then_centre_crop(size: tuple[int, int], scaled: tuple[int, int]) -> None:
    picture = Image.fromarray(noise(size[1], size[0]))
    small = picture.resize(scaled, Image.Resampling.BICUBIC)
    left, top = round((scaled[0] - 224) / 2), round((scaled[1] - 224) / 2)
    expected = small.crop((left, top, left + 224, top + 224))
    framed = Framing((224, 224), (256, 256), "bicubic")(picture)
    assert np.array_equal(np.asarray(framed), np.asarray(expected))


def test_a_strip_does_not_fill_the_memory() -> None:
    strip = Image.new("RGB", (60_000, 1), RED)  # covering 224 rows it would have 3 · 10⁹ pixels
    assert np.asarray(Framing((224, 224))(strip)).shape == (224, 224, 3)
    assert np.asarray(Framing((224, 224))(Image.new("RGB", (1, 60_000), RED))).shape == (224, 224, 3)


def test_framing_refuses_what_makes_no_sense() -> None:
    for wrong in ({"size": (0, 5)}, {"size": (5, 5), "cover": (4, 9)}, {"size": (5, 5), "interpolation": "magic"}):
        with pytest.raises(InputError):
            Framing(**wrong)  # type: ignore[arg-type]


# -- any network -------------------------------------------------------------------------------------------------------


def test_any_network_in_a_few_words() -> None:
    mine = vision.subject(linear_net(), size=(8, 8), mean=0.5, std=(0.2, 0.2, 0.4), classes=["cat", "dog", "<script>"])
    batch = mine.read([noise(20, 30), Image.fromarray(noise(9, 9, seed=1))])
    assert batch.names == ("image 1", "image 2")
    a = ig2.IntegratedGradients(steps=20)(mine.model, batch.x)
    maps = mine.scores(batch, a)
    assert [m.shape for m in maps] == [(8, 8)] * 2
    assert np.allclose(maps[0], a.values[0].sum(dim=0))
    assert maps[1].sum() == pytest.approx(float(a.output[1] - a.baseline_output[1]), rel=1e-3)
    assert mine.index("dog") == mine.index(1) == 1
    assert mine.label(2) == "<script>"


def test_the_data_space_changes_units_and_nothing_else() -> None:
    net, picture = linear_net(), noise(12, 10)
    one = vision.subject(net, size=(8, 8), mean=0.4, std=0.3)
    full = vision.subject(net, size=(8, 8), mean=0.4 * 255, std=0.3 * 255, value_range=255)
    x, y = one.read(picture), full.read(picture)
    assert torch.allclose(x.x * 255, y.x)
    assert full.model.bounds == (0.0, 255.0)
    assert np.array_equal(one.picture(x.x[0]), full.picture(y.x[0]))
    a, b = (ig2.IntegratedGradients(steps=9)(s.model, batch.x) for s, batch in ((one, x), (full, y)))
    assert torch.allclose(a.values, b.values, atol=1e-6)


def test_a_picture_is_what_was_read() -> None:
    mine, picture = vision.subject(linear_net(), size=(8, 8)), noise()
    batch = mine.read(picture)
    assert np.array_equal(mine.picture(batch.x[0]), picture)
    grey = vision.subject(linear_net(channels=1), size=(8, 8), channels=1)
    shown = grey.picture(grey.read(picture[:, :, 0]).x[0])
    assert np.array_equal(shown, np.repeat(picture[:, :, :1], 3, axis=2))
    assert mine.picture(torch.full((3, 8, 8), 7.0)).max() == 255  # a path may leave the range a little
    with pytest.raises(InputError, match="one sample"):
        mine.picture(batch.x)


@pytest.mark.parametrize("size", [8, np.int64(8), [8, 8], torch.Size([8, 8]), np.array([8, 8])])
def test_one_number_is_the_side_of_a_square(size: Any) -> None:
    mine = vision.subject(linear_net(), size=size, cover=9)
    assert mine.size == (8, 8)
    assert mine.read(np.zeros((20, 30, 3), dtype=np.uint8)).x.shape == (1, 3, 8, 8)


@pytest.mark.parametrize("size", [0, -1, 2.5, "8", None, (8,), (8, 8, 8), True, (8.5, 8), ("8", "8"), (0, 8), {8: 8}])
def test_a_size_that_is_none_is_quoted(size: Any) -> None:
    with pytest.raises(InputError, match="size must be"):
        vision.subject(linear_net(), size=size)
    with pytest.raises(InputError, match="cover must be"):
        vision.subject(linear_net(), size=(8, 8), cover=0 if size is None else size)


@pytest.mark.parametrize(
    ("name", "value"),
    [("value_range", "1"), ("value_range", None), ("value_range", [1]), ("frame", "x"), ("photos", [1]), ("classes", 5)],
)
def test_an_option_of_the_wrong_kind_is_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        vision.subject(linear_net(), (8, 8), **{name: value})


def test_wrong_words_for_a_network_are_named() -> None:
    net = linear_net()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"mean": (0.1, 0.2)}, "one number for each of 3"),
        ({"std": 0.0}, "std must be positive"),
        ({"channels": 4}, "channels"),
        ({"value_range": 0}, "value_range"),
        ({"mean": "red"}, "mean must be a number"),
    ]
    for options, expected in wrong:
        with pytest.raises(InputError, match=expected):
            vision.subject(net, size=(8, 8), **options)
    with pytest.raises(InputError, match="torch module"):
        vision.subject("resnet")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no images"):
        vision.subject(net, size=(8, 8)).read([])


def test_classes_by_number_name_and_part(lite0: vision.VisionSubject) -> None:
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


def test_references_are_never_the_photo_itself_nor_of_its_class(lite0: vision.VisionSubject) -> None:
    paths = {path.stem: path for path in demo_photos.paths()}
    batch = lite0.read([paths["coffee"], paths["chelsea"]])
    with pytest.warns(ig2.IG2Warning, match="and not 20: of the 7 looked at, no more can be contrasted with"):
        chosen = lite0.contrast(batch, count=20)
    assert chosen.samples.shape[0] == 2
    assert chosen.samples.shape[1] == 6
    assert "coffee" not in chosen.names[0]
    assert "espresso" not in chosen.labels[0]
    assert "chelsea" not in chosen.names[1]
    assert "coffee" in chosen.names[1]  # and would have been chosen otherwise
    flat = chosen.samples[0].flatten(1)
    assert not (flat == batch.x[0].flatten()).all(dim=1).any()
    predicted = lite0.predict(ig2.adapters.base.Batch(chosen.names[1], chosen.samples[1])).argmax(dim=1)
    assert [lite0.label(i) for i in predicted.tolist()] == list(chosen.labels[1])


def test_the_choice_depends_on_the_seed_and_not_on_the_neighbours() -> None:
    mine = vision.subject(linear_net(), size=(8, 8), classes=["a", "b", "c"])
    pool = mine.read([noise(seed=seed) for seed in range(40)])
    batch = mine.read([noise(seed=100), noise(seed=101), noise(seed=102)])
    together, again = mine.contrast(batch, 0, pool, count=4), mine.contrast(batch, 0, pool, count=4)
    alone = mine.contrast(mine.read([noise(seed=101)]), 0, pool, count=4)
    other = mine.contrast(batch, 0, pool, count=4, seed=1)
    assert torch.equal(together.samples, again.samples)
    assert torch.equal(together.samples[1], alone.samples[0])
    assert not torch.equal(together.samples, other.samples)
    assert {label for row in together.labels for label in row} == {"b", "c"}
    assert together.labels[0].count("b") == 2  # each class gives one before any gives two


def test_what_someone_calls_the_explained_class_is_no_reference_either() -> None:
    mine = vision.subject(linear_net(), size=(8, 8), classes=["a", "b", "c"])
    photos = [vision.Photo(noise(seed=seed), f"photo {seed}", label="A" if seed % 2 else "x") for seed in range(30)]
    chosen = mine.contrast(mine.read([noise(seed=100)]), 0, mine.read(photos))
    assert all(int(name.split()[1]) % 2 == 0 for name in chosen.names[0])


def test_a_pool_of_nothing_else_is_an_error() -> None:
    mine = vision.subject(linear_net(), size=(8, 8), classes=["a", "b", "c"])
    batch = mine.read([noise(seed=1)])
    explained = int(mine.predict(batch).argmax())
    with pytest.raises(InputError, match="nothing to contrast 'image 1' with: each reference there is"):
        mine.contrast(batch, explained, mine.read([noise(seed=1)]))


def test_fewer_references_than_asked_for_are_counted_in_a_warning() -> None:
    mine = vision.subject(linear_net(classes=1), size=(8, 8), outputs="numbers", classes=["age"])
    pool = mine.read([noise(seed=seed) for seed in range(5)])
    with pytest.warns(ig2.IG2Warning, match="4 references for each sample, and not 9: of the 5 looked at") as told:
        mine.contrast(mine.read([noise(seed=3)]), 0, pool, count=9)
    assert told[0].filename == __file__
    assert len(mine.contrast(mine.read([noise(seed=3)]), 0, pool).names[0]) == 4  # without a number nothing was asked for
    assert len(mine.contrast(mine.read([noise(seed=3)]), 0, pool, count=4).names[0]) == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "b"}, "target must be a class index or one for each explicand, got 'b'"),
        ({"target": 1.0}, r"target must hold class indices \(integers\), got 1.0"),
        ({"target": True}, r"target must hold class indices \(integers\), got True"),
        ({"target": torch.tensor([0, 1, 2])}, "expected one class, or one for each of 2 explicands"),
        ({"target": [0, 1, 2]}, "expected one class, or one for each of 2 explicands"),
        ({"target": 99}, "target 99 is not a class: the model has 3, 0 to 2"),
        ({"target": -1}, "target -1 is not a class"),
        ({"pool": [noise(seed=1)]}, "pool must be samples as this subject's read or pool gives them, got list of 1"),
        ({"count": 0}, "count must be a positive integer, got 0"),
        ({"count": "all"}, "count must be a positive integer, got 'all'"),
        ({"seed": 0.5}, "seed must be an integer of 64 bits, got 0.5"),
    ],
    ids=str,
)
def test_contrast_checks_what_it_is_given(options: dict[str, Any], said: str) -> None:
    mine = vision.subject(linear_net(), size=(8, 8), classes=["a", "b", "c"])
    batch, pool = mine.read([noise(seed=100), noise(seed=101)]), mine.read([noise(seed=seed) for seed in range(20)])
    with pytest.raises(InputError, match=said):
        mine.contrast(batch, **{"pool": pool, **options})


def test_contrast_takes_samples_that_were_read_and_of_one_shape() -> None:
    mine, larger = (vision.subject(linear_net(size=side), size=(side, side)) for side in (8, 9))
    with pytest.raises(InputError, match="batch must be samples as this subject's read or pool gives them"):
        mine.contrast([noise(seed=1)])
    with pytest.raises(InputError, match=r"the pool's samples are \(3, 9, 9\), the batch's \(3, 8, 8\)"):
        mine.contrast(mine.read([noise(seed=1)]), pool=larger.read([noise(seed=2)]))


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "c", "d"]], ids=len)
def test_there_is_a_name_for_each_output_or_an_error(names: list[str]) -> None:
    mine = vision.subject(linear_net(), size=(8, 8), classes=names)
    batch = mine.read([noise(seed=100)])
    said = f"Sequential has 3 outputs and {len(names)} names for them, 'a', 'b'.*: give classes one name for each output"
    with pytest.raises(InputError, match=said):
        mine.predict(batch)
    with pytest.raises(InputError, match=said):
        mine.contrast(batch, pool=mine.read([noise(seed=1)]))


def test_a_subject_is_shown_in_a_line(lite0: vision.VisionSubject) -> None:
    assert repr(vision.subject(linear_net(), size=(8, 8), classes=["a", "b", "c"], name="mine")) == (
        "VisionSubject('mine', classes=tuple of 3 ('a', 'b', 'c'), outputs='classes')"
    )
    assert len(repr(lite0)) < 200


def test_of_independent_labels_references_have_the_opposite_one() -> None:
    mine = vision.subject(linear_net(), size=(8, 8), outputs="labels", classes=["a", "b", "c"])
    batch, pool = mine.read([noise(seed=100)]), mine.read([noise(seed=seed) for seed in range(40)])
    for label in range(3):
        chosen = mine.contrast(batch, label, pool)
        said = mine.predict(ig2.adapters.base.Batch(chosen.names[0], chosen.samples[0]))[:, label] > 0
        assert (said != (mine.predict(batch)[0, label] > 0)).all()
    probabilities = mine.probabilities(mine.predict(pool))
    assert probabilities is not None
    assert float(probabilities.sum(dim=1).std()) > 0  # they need not sum to one


def test_of_numbers_anything_but_the_sample_itself_is_a_reference() -> None:
    mine = vision.subject(linear_net(classes=1), size=(8, 8), outputs="numbers", classes=["age"])
    pool = mine.read([noise(seed=seed) for seed in range(5)])
    chosen = mine.contrast(mine.read([noise(seed=3)]), 0, pool)
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
    found = vision.read_folder(tmp_path)
    assert [(photo.name, photo.label) for photo in found] == [
        (os.path.join("cat", "1.png"), "cat"),
        (os.path.join("cat", "2.png"), "cat"),
        (os.path.join("cat", "3.png"), "cat"),
        (os.path.join("dog", "1.PNG"), "dog"),
    ]
    assert {photo.label for photo in vision.read_folder(tmp_path, limit=2)} == {"cat", "dog"}
    assert [photo.label for photo in vision.read_folder(tmp_path / "cat")] == [None] * 3
    mine = vision.subject(linear_net(), size=(8, 8))
    assert mine.read(found).labels == ("cat", "cat", "cat", "dog")


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, expected in (
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / "file", "not a folder"),
        (tmp_path, "no images"),
    ):
        with pytest.raises(InputError, match=expected):
            vision.read_folder(path)


# -- digits ------------------------------------------------------------------------------------------------------------


def test_digits_are_learnt_from_real_ones_without_touching_global_randomness(kept_here: Path) -> None:
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 - the global state is what is watched
    before, state = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[union-attr]  # noqa: NPY002
    mine = vision.load("digits")
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(state, np.random.get_state()[1])  # type: ignore[arg-type]  # noqa: NPY002
    pool = mine.pool()
    assert pool.x.shape == (100, 1, 28, 28)
    right = [mine.label(i) == label for i, label in zip(mine.predict(pool).argmax(dim=1).tolist(), pool.labels, strict=True)]
    assert np.mean(right) >= 0.9  # digits that were kept out of the training
    assert [path.name for path in kept_here.iterdir()] == ["digits-1.safetensors"]


def test_a_digit_is_explained_against_other_digits(handwriting: vision.VisionSubject) -> None:
    batch = handwriting.read(handwriting.photos()[35])  # a three
    chosen = handwriting.contrast(batch, 3, count=9)
    assert set(chosen.labels[0]) == set("012456789")
    a = ig2.IG2(steps=30, rule=ig2.rules.shared)(handwriting.model, batch.x, target=3, references=chosen.samples)
    assert float(a.relative_residual.max()) < 1e-3
    shown = handwriting.scores(batch, a)[0]
    assert shown.shape == (28, 28)
    ink = batch.x[0, 0].numpy() > 0.2
    assert np.abs(shown[ink]).mean() > 1.5 * np.abs(shown[~ink]).mean()


def test_the_second_time_nothing_is_trained(handwriting: vision.VisionSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "fit", None)
    again = vision.load("digits")
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


# -- torchvision and timm, by stand-ins with their interface ------------------------------------------------------------


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    for key, value in content.items():
        setattr(module, key, value)
    monkeypatch.setitem(sys.modules, name, module)
    return module


class Preset:
    """What `weights.transforms()` gives in torchvision: sizes are lists, the interpolation an enumeration."""

    crop_size, resize_size = [8], [10]
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    interpolation = SimpleNamespace(value="bilinear")


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    names = {"smallnet": ["tench"] * 1000, "petnet": ["cat", "dog", "cow"]}

    def get_model_weights(name: str) -> Any:
        return SimpleNamespace(DEFAULT=SimpleNamespace(transforms=Preset, meta={"categories": names[name]}, name=name))

    def get_model(name: str, weights: Any = None) -> nn.Module:
        assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "1"
        if weights is not None:
            raise URLError("no route\nto host")
        return linear_net(8, 3, len(names[name])).train()

    models = stand_in(
        monkeypatch,
        "torchvision.models",
        list_models=lambda module: sorted(names),
        get_model_weights=get_model_weights,
        get_model=get_model,
    )
    stand_in(monkeypatch, "torchvision", models=models)
    return models


class ToTensor:
    def __call__(self, image: Any) -> Any:
        raise AssertionError("the picture is made a tensor by the adapter")


class MaybeToTensor(ToTensor):
    pass


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    def create_model(name: str, pretrained: bool) -> nn.Module:
        assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "1"
        if pretrained:
            raise RuntimeError("offline")
        torch.rand(1)  # libraries draw their weights from the global generator
        net = linear_net(8, 3, 7).train()
        net.num_classes = 0 if name == "features" else 7  # type: ignore[assignment]
        net.pretrained_cfg = {}  # type: ignore[assignment]
        return net

    def create_transform(input_size: Any, is_training: bool, **config: Any) -> Any:
        assert not is_training
        steps = [lambda image: image.resize((12, 12)), lambda image: image.crop((2, 2, 10, 10)), MaybeToTensor(), None]
        return SimpleNamespace(transforms=steps)

    data = stand_in(
        monkeypatch,
        "timm.data",
        resolve_model_data_config=lambda net: {
            "input_size": (3, 8, 8), "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "crop_pct": 0.9, "crop_mode": "center",
            "interpolation": "bicubic",
        },
        create_transform=create_transform,
        infer_imagenet_subset=lambda net: "imagenet-7",
        ImageNetInfo=lambda subset: SimpleNamespace(label_descriptions=lambda: [f"thing {i}, other name" for i in range(7)]),
    )  # fmt: skip
    return stand_in(
        monkeypatch, "timm", create_model=create_model, data=data, list_models=lambda: ["tinynet", "features"], __path__=[]
    )


def test_a_torchvision_model_comes_with_its_preprocessing_and_names(torchvision: ModuleType) -> None:
    state = torch.get_rng_state()
    mine = vision.load("torchvision:petnet", pretrained=False)
    assert torch.equal(state, torch.get_rng_state())
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
    assert mine.classes == ("cat", "dog", "cow")
    assert mine.size == (8, 8)
    assert mine.frame == Framing((8, 8), (10, 10), "bilinear")
    assert not mine.model.net.training
    assert mine.model.preprocess(torch.zeros(1, 3, 8, 8))[0, :, 0, 0].tolist() == pytest.approx(
        [-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]
    )
    assert vision.load("torchvision:smallnet", pretrained=False).classes == vision.imagenet_classes()


def test_a_timm_model_comes_with_its_preprocessing_and_names(timm: ModuleType) -> None:
    state = torch.get_rng_state()
    mine = vision.load("timm:tinynet.some_tag", pretrained=False)
    assert torch.equal(state, torch.get_rng_state())
    assert mine.classes[:2] == ("thing 0", "thing 1")
    picture = noise(12, 12)
    assert np.array_equal(mine.picture(mine.read(picture).x[0]), picture[2:10, 2:10])  # the library's own steps
    a = ig2.IntegratedGradients(steps=3)(mine.model, mine.read(picture).x)
    assert a.values.shape == (1, 3, 8, 8)
    with pytest.raises(InputError, match="no classifier on top"):
        vision.load("timm:features", pretrained=False)


def test_a_bare_name_is_looked_for_in_both(torchvision: ModuleType, timm: ModuleType) -> None:
    assert vision.load("petnet", pretrained=False).name == "torchvision petnet"
    assert vision.load("tinynet", pretrained=False).name == "timm tinynet"
    with pytest.raises(InputError, match="did you mean petnet"):
        vision.load("petnat", pretrained=False)
    with pytest.raises(InputError, match="torchvision has no classifier called 'petnat'; did you mean petnet"):
        vision.load("torchvision:petnat", pretrained=False)


@pytest.mark.parametrize("name", ["torchvision:petnet", "timm:tinynet"])
def test_weights_that_cannot_be_fetched_are_an_error_of_one_line(name: str, torchvision: ModuleType, timm: ModuleType) -> None:
    with pytest.raises(InputError, match=f"the weights of {name} are not available") as caught:
        vision.load(name)
    assert "\n" not in str(caught.value)
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_without_the_libraries_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchvision", "torchvision.models", "timm"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match="timm"):
        vision.load("timm:resnet18")
    monkeypatch.setattr(vision, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="and more with pip install torchvision timm"):
        vision.load("resnet18")
    with pytest.raises(InputError, match="must be a name"):
        vision.load(7)  # type: ignore[arg-type]
