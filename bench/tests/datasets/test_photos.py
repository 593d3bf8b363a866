"""ImageNet, Pets and the photos that come with packages: layouts, masks that move with their picture, and what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from datafiles import error
from PIL import Image

from ig2.errors import InputError, MissingExtraError
from ig2.modalities.image import imagenet as classes
from ig2.modalities.image.reading import Framing
from ig2_bench.datasets import imagenet, pets, photos
from ig2_bench.datasets.listing import frame_mask

TENCH, GOLDFISH = classes.wnids()[:2]
BACKGROUND, OBJECT = (20, 30, 40), (220, 230, 240)


def picture(path: Path, size: tuple[int, int] = (40, 30), box: tuple[int, int, int, int] | None = None, **options) -> Path:
    """A dark picture of this width and height, bright within the box."""
    pixels = np.full((size[1], size[0], 3), BACKGROUND, dtype=np.uint8)
    if box is not None:
        x0, y0, x1, y1 = box
        pixels[y0:y1, x0:x1] = OBJECT
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def sits_on_the_object(samples) -> bool:
    return bool(((samples.x[:, 0] > 120) == (samples.masks == 1)).all())


def boxes_layout(folder: Path, rows: str) -> Path:
    picture(folder / "images" / "a.png", box=(4, 6, 20, 18))
    picture(folder / "images" / "b.png", (30, 50), (10, 10, 22, 40))
    (folder / "boxes.csv").write_text("file,class_index,x0,y0,x1,y1\n" + rows)
    return folder


A, B = "a.png,0,4,6,20,18\n", "b.png,1,10,10,22,40\n"


def annotation(path: Path, name: str, *boxes: tuple[int, int, int, int], size: tuple[int, int] | None = (40, 30)) -> None:
    """An XML annotation as in Pascal VOC."""
    corners = ("xmin", "ymin", "xmax", "ymax")
    objects = "".join(
        f"<object><name>{name}</name><bndbox>"
        + "".join(f"<{corner}>{number}</{corner}>" for corner, number in zip(corners, box, strict=True))
        + "</bndbox></object>"
        for box in boxes
    )
    sides = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>" if size else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<annotation>{sides}{objects}</annotation>")


# -- masks move with their picture -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        Framing((24, 24)),
        Framing((24, 24), cover=(32, 32), interpolation="bicubic"),
        Framing((60, 50), interpolation="nearest"),
        lambda image: image.resize((24, 24)).transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    ],
    ids=["bilinear", "bicubic with a margin", "larger", "mirrored"],
)
def test_a_mask_goes_exactly_where_its_object_goes(tmp_path, frame):
    samples = imagenet.load(boxes_layout(tmp_path, A + B), frame=frame)
    assert samples.x.dtype == torch.uint8 and samples.masks.dtype == torch.int8
    assert sits_on_the_object(samples) and samples.masks.flatten(1).sum(dim=1).min() > 0


def test_a_mask_that_stays_behind_would_be_noticed(tmp_path):
    samples = imagenet.load(boxes_layout(tmp_path, A.replace("4,6", "4,8") + B), 24)
    assert not sits_on_the_object(samples)


def test_what_is_undecided_stays_so_and_nothing_else():
    mask = np.zeros((20, 20), dtype=np.int8)
    mask[:, 8:12], mask[:, 12:] = -1, 1
    small = frame_mask(mask, Framing((10, 10)))
    assert (small == np.repeat([[0] * 4 + [-1] * 2 + [1] * 4], 10, axis=0)).all()
    mask[mask == -1] = 0
    assert set(np.unique(frame_mask(mask, Framing((7, 7), interpolation="bicubic")))) == {0, 1}


def test_the_camera_s_orientation_is_not_applied_since_boxes_are_of_the_pixels_as_stored(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter turn
    boxes_layout(tmp_path, A + B)
    picture(tmp_path / "images" / "a.png", box=(4, 6, 20, 18), exif=turned)
    assert sits_on_the_object(imagenet.load(tmp_path, 24))


def test_a_picture_whose_object_is_cut_off_is_skipped_and_counted_and_another_takes_its_place(tmp_path):
    boxes_layout(tmp_path, A + "b.png,1,0,0,30,6\n")
    samples = imagenet.load(tmp_path, 24)
    assert samples.names == ("a.png",)
    assert samples.source == (
        "ImageNet (ILSVRC 2012) photos, object boxes; skipped: 1 with nothing marked after they were cut to size"
    )
    assert len(imagenet.load(tmp_path, 24, limit=1)) == 1
    boxes_layout(tmp_path, "a.png,0,0,0,3,30\nb.png,1,0,0,30,6\n")
    assert "no picture has anything marked after it was cut to size" in error(imagenet.load, tmp_path, 24)


# -- ImageNet ----------------------------------------------------------------------------------------------------------


def test_of_several_boxes_the_mask_is_the_union(tmp_path):
    boxes_layout(tmp_path, A + B + "a.png,0,10,10,30,24\n")
    (mask,) = (entry.mask(30, 40) for entry in imagenet.find(tmp_path).entries if entry.name == "a.png")
    expected = np.zeros((30, 40), dtype=bool)
    expected[6:18, 4:20] = expected[10:24, 10:30] = True
    assert (mask == expected).all()


def test_classes_are_imagenets_and_have_their_usual_names(tmp_path):
    samples = imagenet.load(boxes_layout(tmp_path, A + B), 24)
    assert samples.y.tolist() == [0, 1] and len(samples.classes) == 1000
    assert [samples.classes[index] for index in samples.y] == ["tench", "goldfish"]
    assert len(set(classes.wnids())) == 1000 and list(classes.wnids()) == sorted(classes.wnids())


def test_labels_without_boxes_make_samples_without_masks(tmp_path):
    picture(tmp_path / "images" / f"{TENCH}.jpg")
    picture(tmp_path / "images" / f"{GOLDFISH}.jpg", (60, 30))
    (tmp_path / "labels.csv").write_text(f"file,class_index\n{TENCH}.jpg,0\n{GOLDFISH}.jpg,1\n")
    samples = imagenet.load(tmp_path, (20, 24))
    assert samples.x.shape == (2, 3, 20, 24) and samples.masks is None and samples.y.tolist() == [0, 1]
    assert samples.source == "ImageNet (ILSVRC 2012) photos, nothing marked"


@pytest.mark.parametrize("place", [".", "val", "images", "ILSVRC/Data/CLS-LOC/val"])
def test_the_validation_set_with_its_solution_file(tmp_path, place):
    picture(tmp_path / place / "ILSVRC2012_val_1.JPEG", box=(4, 6, 20, 18), quality=100)
    (tmp_path / "LOC_val_solution.csv").write_text(
        f"ImageId,PredictionString\nILSVRC2012_val_1,{GOLDFISH} 4 6 20 12 {GOLDFISH} 4 12 20 18 \nelsewhere,{TENCH} 0 0 5 5\n"
    )
    samples = imagenet.load(tmp_path, frame=Framing((30, 30)))
    assert samples.y.tolist() == [1] and sits_on_the_object(samples)
    assert samples.source.endswith("object boxes; skipped: 1 annotations without a photo")


@pytest.mark.parametrize("place", [".", "Annotations", "ILSVRC/Annotations/CLS-LOC/val"])
def test_the_validation_set_with_annotations(tmp_path, place):
    picture(tmp_path / "1.JPEG", box=(4, 6, 20, 18), quality=100)
    annotation(tmp_path / place / "1.xml", GOLDFISH, (4, 6, 20, 18))
    samples = imagenet.load(tmp_path, 24)
    assert samples.y.tolist() == [1] and sits_on_the_object(samples)


def test_annotations_of_the_original_fit_a_picture_that_was_made_smaller(tmp_path):
    picture(tmp_path / "1.JPEG", box=(4, 6, 20, 18), quality=100)
    annotation(tmp_path / "1.xml", TENCH, (40, 60, 200, 180), size=(400, 300))
    assert sits_on_the_object(imagenet.load(tmp_path, 24))
    annotation(tmp_path / "1.xml", TENCH, (40, 60, 200, 180), size=None)
    assert "the box 40 60 200 180 ends outside the picture of 40 × 30 pixels" in error(imagenet.load, tmp_path, 24)


def test_a_folder_for_each_class_with_or_without_annotations(tmp_path):
    picture(tmp_path / TENCH / "t1.JPEG", box=(4, 6, 20, 18), quality=100)
    picture(tmp_path / TENCH / "t2.JPEG")
    picture(tmp_path / GOLDFISH / "g1.JPEG")
    samples = imagenet.load(tmp_path, 24)
    assert samples.names == ("t1.JPEG", "t2.JPEG", "g1.JPEG") and samples.y.tolist() == [0, 0, 1] and samples.masks is None
    annotation(tmp_path / "boxes" / TENCH / "t1.xml", TENCH, (4, 6, 20, 18))
    samples = imagenet.load(tmp_path, 24, boxes=tmp_path / "boxes")
    assert samples.names == ("t1.JPEG",) and sits_on_the_object(samples)
    assert samples.source.endswith("skipped: 2 photos with nothing marked")
    annotation(tmp_path / "boxes" / TENCH / "t1.xml", GOLDFISH, (4, 6, 20, 18))
    assert "lies in the folder of class 0, and" in error(imagenet.load, tmp_path, 24, boxes=tmp_path / "boxes")


def test_masks_take_the_place_of_boxes(tmp_path):
    boxes_layout(tmp_path, A.replace("4,6", "0,0") + B)
    for name, size, box in (("a", (40, 30), (4, 6, 20, 18)), ("b", (30, 50), (10, 10, 22, 40))):
        shape = np.zeros((size[1], size[0]), dtype=np.uint8)
        shape[box[1] : box[3], box[0] : box[2]] = 1
        (tmp_path / "masks").mkdir(exist_ok=True)
        Image.fromarray(shape).save(tmp_path / "masks" / f"{name}.png")
    samples = imagenet.load(tmp_path, 24)
    assert sits_on_the_object(samples) and samples.source.endswith("object masks")
    Image.fromarray(shape[:20]).save(tmp_path / "masks" / "a.png")
    assert "is 30 × 20 and the picture 40 × 30: they must fit" in error(imagenet.load, tmp_path, 24)
    (tmp_path / "masks" / "a.png").rename(tmp_path / "masks" / "c.png")
    assert "c.png is the mask of no photo" in error(imagenet.load, tmp_path, 24)


def test_a_limit_is_the_same_choice_each_time_and_even_over_classes(tmp_path):
    for number in range(6):
        picture(tmp_path / TENCH / f"t{number}.png", (10, 10))
    picture(tmp_path / GOLDFISH / "g.png", (10, 10))
    samples = imagenet.load(tmp_path, 8, limit=3, seed=2)
    assert samples.counts()["tench"] == 2 and samples.counts()["goldfish"] == 1
    assert samples.names == imagenet.load(tmp_path, 8, limit=3, seed=2).names
    assert len({imagenet.load(tmp_path, 8, limit=3, seed=seed).names for seed in range(6)}) > 1
    with pytest.raises(InputError, match="limit must be"):
        imagenet.load(tmp_path, 8, limit=0)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (A, "b.png has no label: name its class"),
        (A + B + "c.png,0,1,1,2,2\n", "line 4 names c, and there is no such picture: put it there, or take the line out"),
        (A + B + "a.png,3,1,1,2,2\n", "line 4: a.png is of class 3 here and of class 0 in"),
        (A + "b.png,1000,1,1,2,2\n", "line 3: class_index is '1000', expected a whole number from 0 to 999"),
        (A + "b.png,tench,1,1,2,2\n", "class_index is 'tench'"),
        (A + "b.png,1,1,1,x,2\n", "line 3: a box is list of 4 ('1', '1', 'x', '2'), expected four numbers"),
        (A + "b.png,1,5,1,5,2\n", "the box 5 1 5 2 has no inside"),
        (A + "b.png,1,nan,1,5,2\n", "the box nan 1 5 2 has no inside"),
        (A + "b.png,1\n", "a box is list of 4 (None, None, None, None)"),
        (A + "b.png,1,5,1,80,20\n", "line 3: the box 5 1 80 20 ends outside the picture of 30 × 50 pixels"),
        (A + "../b.png,1,5,1,80,20\nb.png,1,1,1,2,2\n", "the box 5 1 80 20 ends outside"),
    ],
)
def test_labels_and_boxes_that_make_no_sense_are_named(tmp_path, rows, said):
    assert said in error(imagenet.load, boxes_layout(tmp_path, rows), 24)


@pytest.mark.parametrize(
    ("name", "table", "said"),
    [
        ("labels.csv", "class_index,file\n6\n", "labels.csv line 2: file is None, expected the name of a photo"),
        ("labels.csv", "class_index,file\n6,\n", "labels.csv line 2: file is '', expected the name of a photo"),
        (
            "LOC_val_solution.csv",
            f"PredictionString,ImageId\n{TENCH} 0 0 5 5\n",
            "line 2: ImageId is None, expected the name of a photo",
        ),
    ],
)
def test_a_line_without_the_name_of_a_photo_is_named(tmp_path, name, table, said):
    picture(tmp_path / "images" / "a.png")
    (tmp_path / name).write_text(table)
    assert said in error(imagenet.load, tmp_path)
    assert any(said in problem for problem in imagenet.survey(tmp_path).problems)


@pytest.mark.parametrize(
    ("name", "head", "read"),
    [
        ("labels.csv", "file,class_index", imagenet.find),
        ("LOC_val_solution.csv", "ImageId,PredictionString", imagenet.find),
        ("labels.csv", "name,class_index", pets.find),
    ],
)
def test_a_quote_that_is_never_closed_is_named_by_the_line_it_may_be_in(tmp_path, name, head, read):
    picture(tmp_path / "images" / "a.png")
    (tmp_path / name).write_text(f'{head}\na.png,0\n"b.png,0\n' + "c.png,0\n" * 20_000)
    said = error(read, tmp_path)
    assert f"{name} line 3: field larger than field limit" in said and "close every quote" in said


def test_a_table_without_its_columns_is_named(tmp_path):
    boxes_layout(tmp_path, A + B)
    (tmp_path / "boxes.csv").write_text("file,label\na.png,0\n")
    assert error(imagenet.load, tmp_path).endswith("boxes.csv has the columns file, label: class_index is missing")
    (tmp_path / "boxes.csv").write_text("")
    assert "has the columns nothing: file is missing" in error(imagenet.load, tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<annotation>", "1.xml: it is no XML"),
        ("<annotation/>", "1.xml: there is no object in it"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><annotation/>', "annotations with a document type are not read"),
        ("<annotation>" + " " * 1_000_001 + "</annotation>", "an annotation of 1,000,026 bytes is none"),
    ],
)
def test_broken_annotations_are_named(tmp_path, text, said):
    picture(tmp_path / "1.JPEG")
    (tmp_path / "1.xml").write_text(text)
    assert said in error(imagenet.load, tmp_path)


def test_unknown_classes_are_named(tmp_path):
    picture(tmp_path / "1.JPEG")
    annotation(tmp_path / "1.xml", "n99999999", (1, 1, 9, 9))
    assert "'n99999999' is none of the thousand classes of ILSVRC 2012" in error(imagenet.load, tmp_path)
    (tmp_path / "1.xml").unlink()
    picture(tmp_path / "n99999999" / "2.JPEG")
    assert "n99999999 is called by none of the thousand classes" in error(imagenet.load, tmp_path)


def test_indices_of_another_order_are_refused(tmp_path):
    boxes_layout(tmp_path, A + B)
    lines = [f"{wnid} something" for wnid in classes.wnids()]
    (tmp_path / "synset_words.txt").write_text("\n".join(lines) + "\n")
    imagenet.load(tmp_path, 24)
    (tmp_path / "synset_words.txt").write_text("\n".join([lines[0], lines[2], lines[1], *lines[3:]]))
    assert "synset_words.txt line 2: the classes are not those of ILSVRC 2012" in error(imagenet.load, tmp_path)


def test_a_broken_picture_is_named_and_a_survey_names_all_that_is_wrong(tmp_path):
    boxes_layout(tmp_path, A + B + "c.png,0,1,1,2,2\n" + "d.png,0,1,1,50,2\n")
    (tmp_path / "images" / "b.png").write_bytes((tmp_path / "images" / "a.png").read_bytes()[:60])
    picture(tmp_path / "images" / "d.png")
    picture(tmp_path / "images" / "e.png")
    survey = imagenet.survey(tmp_path)
    assert survey.counts == {"tench": 2, "goldfish": 1}
    assert survey.duplicates == ()
    (missing, unnamed, broken, outside) = survey.problems
    assert "names c" in missing and "e.png has no label" in unnamed
    assert "b.png is a broken image" in broken and "ends outside the picture" in outside
    assert error(imagenet.load, tmp_path).endswith("(and 1 more: see ig2 data verify)")
    boxes_layout(tmp_path, A + B + "d.png,0,1,1,2,2\ne.png,0,1,1,2,2\n")
    assert imagenet.survey(tmp_path).duplicates == (("d.png", "e.png"),)
    (tmp_path / "images" / "b.png").write_bytes(b"no picture")
    assert "b.png is not an image of a known format" in error(imagenet.load, tmp_path)


def test_folders_without_anything_say_so(tmp_path):
    assert error(imagenet.load, tmp_path / "nowhere") == f"{tmp_path / 'nowhere'} does not exist"
    assert "has no pictures: expected some in it, in folders called n01440764" in error(imagenet.load, tmp_path)
    path = picture(tmp_path / "a.png")
    assert error(imagenet.load, path) == f"{path} is a file: name the folder it lies in"
    picture(tmp_path / "a.jpg")
    assert "has both a.jpg and a.png: remove one of them" in error(imagenet.load, tmp_path)
    (tmp_path / "a.jpg").unlink()
    (tmp_path / TENCH).mkdir()
    assert f"{TENCH} has no pictures" in error(imagenet.load, tmp_path)


def test_a_frame_that_makes_several_sizes_is_refused(tmp_path):
    assert "frame made pictures of several sizes" in error(
        imagenet.load, boxes_layout(tmp_path, A + B), frame=lambda image: image
    )


# -- Pets --------------------------------------------------------------------------------------------------------------


def pet(folder: Path, name: str, trimap: np.ndarray | None = None, public: bool = False) -> None:
    """A photo with an animal of 10 × 10 in its middle, and its trimap."""
    picture(folder / "images" / f"{name}.jpg", (30, 30), (10, 10, 20, 20), quality=100)
    if trimap is None:
        trimap = np.full((30, 30), 2, dtype=np.uint8)
        trimap[9:21, 9:21], trimap[11:19, 11:19] = 3, 1
    path = folder / ("annotations/trimaps" if public else "trimaps") / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(trimap).save(path)


PETS = "name,class_index\npug_1,254\nSiamese_20,284\n"


@pytest.fixture
def shared_pets(tmp_path):
    pet(tmp_path, "pug_1")
    pet(tmp_path, "Siamese_20")
    (tmp_path / "labels.csv").write_text(PETS)
    return tmp_path


def test_pets_with_a_table_of_labels(shared_pets):
    samples = pets.load(shared_pets, 30)
    assert samples.names == ("pug_1", "Siamese_20") and samples.y.tolist() == [254, 284]
    assert [samples.classes[index] for index in samples.y] == ["pug", "Siamese cat"]
    assert samples.x.shape == (2, 3, 30, 30)
    for mask in samples.masks:
        assert (mask[11:19, 11:19] == 1).all() and (mask == 1).sum() == 64
        assert (mask == -1).sum() == 12 * 12 - 64 and (mask[:9] == 0).all()
    assert samples.source == "Oxford-IIIT Pets, breeds that are ImageNet classes, true segmentations"


def test_pets_in_their_public_layout(tmp_path):
    for name in ("pug_1", "Bengal_3", "Bengal_7"):
        pet(tmp_path, name, public=True)
    (tmp_path / "annotations" / "list.txt").write_text("#Image CLASS-ID SPECIES BREED ID\npug_1 27 2 20\nBengal_3 6 1 2\n")
    (tmp_path / "annotations" / "trimaps" / "._pug_1.png").write_bytes(b"what a Mac leaves behind")
    (tmp_path / "images" / "pug_1.mat").write_bytes(b"what else lies there")
    samples = pets.load(tmp_path, 30)
    assert samples.names == ("pug_1",)
    assert samples.source.endswith("; skipped: 1 photos that list.txt does not name, 1 photos of breeds that ImageNet has not")
    samples = pets.load(tmp_path, 30, classes="breeds")
    assert [samples.classes[index] for index in samples.y] == ["pug", "Bengal"] and len(samples.classes) == 37
    survey = pets.survey(tmp_path)
    assert survey.counts == {"Bengal": 1, "pug": 1} and survey.problems == () and survey.duplicates == (("pug_1", "Bengal_3"),)


def test_pets_of_which_imagenet_has_none_are_not_said_to_be_cut_off(tmp_path):
    pet(tmp_path, "Bengal_3", public=True)
    pet(tmp_path, "Sphynx_1", public=True)
    (tmp_path / "annotations" / "list.txt").write_text("Bengal_3 6 1 2\nSphynx_1 34 1 12\n")
    said = error(pets.load, tmp_path)
    assert said.startswith("no picture remains to be read (Oxford-IIIT Pets, ")
    assert said.endswith("skipped: 2 photos of breeds that ImageNet has not): add some")


def test_the_breeds_are_37_of_which_imagenet_has_25():
    assert len(pets.BREEDS) == 37 and len(pets.IMAGENET) == 25 == len(set(pets.IMAGENET.values()))
    names = classes.names()
    assert {names[index] for index in pets.IMAGENET.values()} >= {"pug", "beagle", "boxer", "Persian cat", "Chihuahua"}


def test_a_pet_that_is_cut_off_is_skipped_and_counted(shared_pets):
    trimap = np.full((30, 30), 2, dtype=np.uint8)
    trimap[:4, :4] = 1
    pet(shared_pets, "pug_1", trimap)
    samples = pets.load(shared_pets, frame=Framing((20, 20), cover=(30, 30)))
    assert samples.names == ("Siamese_20",)
    assert samples.source.endswith("; skipped: 1 with nothing marked after they were cut to size")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("name,class_index\npug_1,254\n", "Siamese_20.jpg has no label: name it in"),
        (PETS + "pug_2,254\n", "line 4 names pug_2, and there is no such photo in"),
        ("name,class_index\npug_1,255\nSiamese_20,284\n", "line 2: 'pug_1' with class_index '255', expected 254"),
        ("class_index,name\n254,pug_1\n284,Siamese_20\n5\n", "line 4: None, expected a breed that ImageNet has and a number"),
        ("name\npug_1\n", "has the columns name: expected name, class_index"),
    ],
)
def test_labels_of_pets_that_do_not_fit_are_named(shared_pets, table, message):
    (shared_pets / "labels.csv").write_text(table)
    assert message in error(pets.load, shared_pets)
    if "columns" not in message:
        assert message in pets.survey(shared_pets).problems[0]


def test_pets_that_do_not_fit_are_named(shared_pets):
    pet(shared_pets, "pug_1", np.full((30, 30), 7, dtype=np.uint8))
    assert "pug_1.png has the value 7: a trimap has 1 (subject)" in error(pets.load, shared_pets)
    pet(shared_pets, "pug_1", np.ones((30, 20), dtype=np.uint8))
    assert "pug_1.jpg is 20 × 30 and the picture 30 × 30: they must fit" in error(pets.load, shared_pets)
    (shared_pets / "trimaps" / "pug_1.png").unlink()
    assert "pug_1.jpg has no trimap: expected pug_1.png beside the others" in error(pets.load, shared_pets)
    (shared_pets / "labels.csv").unlink()
    assert "has neither annotations/list.txt nor labels.csv" in error(pets.load, shared_pets)
    assert "classes must be 'imagenet' or 'breeds', got 'cats'" in error(pets.load, shared_pets, classes="cats")


def test_a_list_that_is_not_theirs_is_named(tmp_path):
    pet(tmp_path, "pug_1", public=True)
    (tmp_path / "annotations" / "list.txt").write_text("pug_1 27 2 20\nwolf_1 38 2 26\n")
    assert "list.txt line 2: 'wolf_1 38 2 26', expected a name such as Abyssinian_100" in error(pets.load, tmp_path)


# -- photos that come with packages ------------------------------------------------------------------------------------


def test_every_packaged_photo_has_a_class_of_imagenet_and_an_outline_within_it():
    for photo in photos.PHOTOS:
        path = photo.path()
        assert path is not None and photo.label in classes.names()
        with Image.open(path) as image:
            width, height = image.size
        assert all(0 <= x <= width and 0 <= y <= height for outline in photo.outlines for x, y in outline), path
        share = photo.mask(height, width).mean()
        assert 0.01 < share < 0.8, path


def test_packaged_photos_are_samples_with_masks():
    samples = photos.load_packaged(64)
    assert samples.x.shape == (8, 3, 64, 64) and samples.masks.shape == (8, 64, 64) and len(set(samples.y.tolist())) == 8
    assert samples.source == "8 photos that come with packages, objects outlined by hand"
    assert set(photos.load_packaged(32, limit=3).names) < set(samples.names)


def test_a_mask_lies_on_its_object():
    """The cup's inside is bright, the dahlia orange, the rocket white: what is outlined looks unlike what is not."""
    samples = photos.load_packaged(96)
    for name, channel in (("coffee.png", 1), ("flower.jpg", 0), ("rocket.jpg", 0)):
        number = samples.names.index(name)
        pixels, mask = samples.x[number, channel].float(), samples.masks[number] == 1
        shifted = mask.roll(24, dims=1)
        on = pixels[mask].mean() - pixels[~mask].mean()
        assert on > 40 and on > 1.5 * (pixels[shifted].mean() - pixels[~shifted].mean()), name


def test_without_the_packages_it_says_which_to_install(monkeypatch):
    monkeypatch.setattr(photos, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="scikit-image: pip install 'ig2\\[image\\]'"):
        photos.load_packaged()
