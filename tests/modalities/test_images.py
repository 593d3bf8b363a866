"""Image files as people have them: what is read, and what is refused."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import noise
from PIL import Image

from ig2 import modalities
from ig2.demo import photos as demo_photos
from ig2.errors import InputError
from ig2.modalities.image import imagenet
from ig2.modalities.image.reading import Framing, read_image

RED, WHITE = (255, 0, 0), (255, 255, 255)


def test_black_means_black_and_white_means_white(lite0: modalities.image.ImageSubject) -> None:
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
    lite0: modalities.image.ImageSubject, capfd: pytest.CaptureFixture[str]
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
    names = imagenet.names()
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
    monkeypatch.setattr(modalities.image.reading, "MOST_PIXELS", 200)
    assert read_image(path).size == (20, 10)
    monkeypatch.setattr(modalities.image.reading, "MOST_PIXELS", 199)
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


@pytest.mark.parametrize("more", range(8))
def test_a_margin_is_cropped_as_torchvision_does(more: int) -> None:
    """Of 3 pixels, two lie above; of 5, two as well: torchvision rounds halves to even."""
    down, across = np.meshgrid(np.arange(10 + more), np.arange(12 + 7 - more), indexing="ij")
    picture = Image.fromarray(np.stack([down, across, 0 * down], axis=2).astype(np.uint8))
    framed = np.asarray(Framing((10, 12), (10 + more, 12 + 7 - more))(picture))
    top, left = round(more / 2.0), round((7 - more) / 2.0)  # CenterCrop's own line
    assert framed[0, 0].tolist() == [top, left, 0] and framed.shape == (10, 12, 3)
    assert framed[-1, -1].tolist() == [top + 9, left + 11, 0]


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


def test_sixteen_bits_become_eight_without_losing_white():
    """Each eighth of the range is as large, and white stays white."""
    deep = np.array([[0, 256, 257, 32767, 32768, 65278, 65279, 65535]], np.uint16)
    found = np.asarray(read_image(Image.fromarray(deep), grey=True))
    assert found.tolist() == [[0, 0, 1, 127, 127, 254, 254, 255]]
    assert found[0].tolist() == [int(value) * 255 // 65535 for value in deep[0]]
