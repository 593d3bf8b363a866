"""CelebA in its public layout, which part of a face shows which attribute, and faces drawn in its place."""

import numpy as np
import pytest
import torch
from PIL import Image

from ig2.errors import InputError
from ig2.metrics.localisation import GTAUC
from ig2_bench.datasets.celeba import files
from ig2_bench.datasets.celeba.drawn import CHANCES, DRAWN, HAIR, _attributes, draw_faces
from ig2_bench.datasets.celeba.files import ATTRIBUTE_COMPONENTS, ATTRIBUTES, COMPONENTS, UNPARSED, FaceSamples

# -- the files ---------------------------------------------------------------------------------------------------------


def save_faces(folder, count=6, parsed=(4, 5), shape=(20, 16)):
    """Faces of one colour each; face n has attribute n, and where it is parsed its left half is hair."""
    (folder / "img_align_celeba").mkdir()
    (folder / "masks").mkdir()
    lines = [str(count), " ".join(ATTRIBUTES) + " "]
    for number in range(count):
        name = f"{number + 1:06d}"
        # PNG under the name of a JPEG, so that every pixel is what was written
        picture = np.full((*shape, 3), 10 * number % 256, dtype=np.uint8)
        Image.fromarray(picture).save(folder / "img_align_celeba" / f"{name}.jpg", format="PNG")
        if number in parsed:
            mask = np.zeros(shape, dtype=np.uint8)
            mask[:, : shape[1] // 2] = COMPONENTS.index("hair")
            mask[0, 0] = COMPONENTS.index("hat")
            Image.fromarray(mask).save(folder / "masks" / f"{name}.png")
        lines.append(f"{name}.jpg " + " ".join(" 1" if place == number else "-1" for place in range(40)))
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path):
    save_faces(tmp_path)
    return tmp_path


def edit_list(folder, edit):
    path = folder / "list_attr_celeba.txt"
    path.write_text("\n".join(edit(path.read_text().splitlines())))


def test_faces_come_with_all_their_attributes(folder):
    found = files.load(folder)
    assert found.x.shape == (6, 3, 20, 16) and found.x.dtype == torch.uint8 and found.classes == ATTRIBUTES
    assert torch.equal(found.y, torch.eye(40, dtype=torch.long)[:6])
    assert found.x[:, 0, 0, 0].tolist() == [0, 10, 20, 30, 40, 50]
    assert found.names[0] == "000001.jpg" and found.source == "CelebA, aligned, 6 of 6 faces"
    assert found.counts()["Bald"] == 1 and found.counts()["Young"] == 0


def test_components_keep_their_numbers_and_faces_without_are_unparsed(folder):
    found = files.load(folder)
    assert found.components.dtype == torch.uint8 and (found.components[:4] == UNPARSED).all()
    assert (found.components[4:, 1:, :8] == 17).all() and (found.components[4:, :, 8:] == 0).all()
    parsed = files.load(folder, parsed=True)
    assert parsed.names == ("000005.jpg", "000006.jpg") and "skipped: 4 without components" in parsed.source
    hair = found.truth("Black_Hair")
    assert hair.dtype == torch.int8 and (hair[:4] == -1).all()
    assert (hair[4:, 1:, :8] == 1).all() and (hair[4:, :, 8:] == 0).all() and (hair[4:, 0, 0] == 0).all()
    assert (found.truth("Wearing_Hat")[4:] == 1).sum() == 2
    both = found.truth("Wearing_Hat", ("hat", "hair"))
    assert (both[4:] == 1).sum() == 2 * 20 * 8


def test_some_faces_keep_their_components(folder):
    found = files.load(folder)
    some = found[[5, 0]]
    assert isinstance(some, FaceSamples) and torch.equal(some.components, found.components[[5, 0]])
    first, second = found.split(0.5)
    assert isinstance(first, FaceSamples) and len(first.components) == len(first) == len(second) == 3


def test_faces_and_components_are_scaled_together(tmp_path):
    save_faces(tmp_path, parsed=range(6))
    small = files.load(tmp_path, (10, 8))
    assert small.x.shape == (6, 3, 10, 8) and small.components.shape == (6, 10, 8)
    assert (small.components[:, 1:, :4] == 17).all() and (small.components[:, :, 4:] == 0).all()
    assert files.load(tmp_path, 32).x.shape == (6, 3, 32, 32)
    # masks of another size than the pictures, as parsers make them, come to theirs
    for path in (tmp_path / "masks").iterdir():
        with Image.open(path) as mask:
            mask.resize((64, 80), Image.Resampling.NEAREST).save(path)
    assert files.load(tmp_path).components.shape == (6, 20, 16)


def test_without_masks_there_are_no_components(tmp_path):
    save_faces(tmp_path, parsed=())
    found = files.load(tmp_path)
    assert found.components is None
    with pytest.raises(InputError, match="not parsed"):
        found.truth("Bald")
    with pytest.raises(InputError, match="no face with components"):
        files.load(tmp_path, parsed=True)


def test_the_choice_is_seeded(tmp_path):
    save_faces(tmp_path, count=30)
    some = files.load(tmp_path, limit=8)
    assert len(some) == 8 and some.names == files.load(tmp_path, limit=8).names == tuple(sorted(some.names))
    assert some.names != files.load(tmp_path, limit=8, seed=1).names
    assert set(some.names) < set(files.load(tmp_path, limit=9).names)
    assert "8 of 30 faces" in some.source


def test_faces_without_a_picture_are_skipped_and_counted(folder):
    (folder / "img_align_celeba" / "000002.jpg").unlink()
    found = files.load(folder)
    assert len(found) == 5 and "skipped: 1 without a picture" in found.source
    assert found.y[1, 2] == 1  # the third face is the second now, and has its own attributes


def test_a_survey_counts_and_names_what_is_broken(folder):
    (folder / "img_align_celeba" / "000002.jpg").unlink()
    (folder / "img_align_celeba" / "000003.jpg").write_bytes((folder / "img_align_celeba" / "000001.jpg").read_bytes())
    (folder / "img_align_celeba" / "000004.jpg").write_bytes(b"no picture")
    Image.fromarray(np.full((20, 16), 19, dtype=np.uint8)).save(folder / "masks" / "000005.png")
    seen = []
    survey = files.survey(folder, lambda done, total: seen.append((done, total)))
    assert survey.counts[ATTRIBUTES[3]] == 1 and survey.counts[ATTRIBUTES[1]] == 0
    assert survey.duplicates == (("000001.jpg", "000003.jpg"),) and seen[-1] == (5, 5)
    lost, picture, mask = survey.problems
    assert lost == f"{folder / 'list_attr_celeba.txt'} names 1 face without a picture: 000002.jpg (line 4)"
    assert "000004.jpg" in picture and "value 19" in mask


def test_a_survey_names_pictures_and_masks_that_belong_to_no_face(tmp_path):
    save_faces(tmp_path, count=12)
    for number in range(6, 12):
        (tmp_path / "img_align_celeba" / f"{number + 1:06d}.jpg").rename(tmp_path / "img_align_celeba" / f"{number + 90}.jpg")
    (tmp_path / "masks" / "000005.png").rename(tmp_path / "masks" / "000007.png")  # of a face without picture
    (tmp_path / "masks" / "000006.png").rename(tmp_path / "masks" / "nobody.png")
    survey = files.survey(tmp_path)
    assert survey.problems == (
        f"{tmp_path / 'list_attr_celeba.txt'} names 6 faces without a picture: 000007.jpg (line 9), 000008.jpg (line 10), "
        "000009.jpg (line 11), 000010.jpg (line 12), 000011.jpg (line 13) and 1 more",
        f"{tmp_path / 'img_align_celeba'} has 6 pictures that list_attr_celeba.txt does not name: 100.jpg, 101.jpg, 96.jpg, "
        "97.jpg, 98.jpg and 1 more",
        f"{tmp_path / 'masks'} has 2 masks without a face: 000007.png, nobody.png",
    )
    assert survey.source == "CelebA, aligned, 6 faces, 0 of them parsed" and survey.total == 6
    assert files.load(tmp_path).source.endswith(
        "skipped: 6 without a picture, 6 pictures that list_attr_celeba.txt does not name"
    )


def test_every_line_of_the_list_that_is_broken_is_named(folder):
    def broken(lines):
        second, third = lines[3].split(), lines[4].split()
        return [*lines[:3], " ".join([*second[:30], "2", *second[31:]]), "", " ".join(third[:-1]), *lines[5:-1], lines[-2]]

    edit_list(folder, broken)
    said = (
        f"{folder / 'list_attr_celeba.txt'} line 4: 000002.jpg has '2' for Rosy_Cheeks; line 6: 000003.jpg has 39 values, "
        "expected 1 or -1 for each of 40 attributes"
    )
    survey = files.survey(folder)
    assert survey.problems == (
        said,
        f"{folder / 'list_attr_celeba.txt'} names a face twice: 000005.jpg (lines 8 and 9)",
        f"{folder / 'img_align_celeba'} has 1 picture that list_attr_celeba.txt does not name: 000006.jpg",
        f"{folder / 'masks'} has 1 mask without a face: 000006.png",
    )
    assert survey.total == 3 and survey.counts[ATTRIBUTES[1]] == 0
    with pytest.raises(InputError) as caught:
        files.load(folder)
    assert str(caught.value) == said
    edit_list(folder, lambda lines: [line.replace("-1", "0") for line in lines])  # another format: no line is sound
    with pytest.raises(InputError, match=r"line 3: 000001\.jpg has '0' for Arched_Eyebrows; .* and 1 more, expected 1 or -1"):
        files.survey(folder)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda lines: lines[:2], "2 lines: expected"),
        (lambda lines: lines[1:], "expected the number of faces"),
        (lambda lines: [lines[0], *lines[2:]], "names the attribute '000001.jpg'"),
        (lambda lines: lines[:-1], "says 6 faces and has 5"),
        (lambda lines: [*lines[:-1], lines[-2]], "names a face twice"),
        (lambda lines: [*lines[:-1], lines[-1] + " 1"], "expected 1 or -1 for each of 40"),
        (lambda lines: [*lines[:-1], lines[-1].replace("-1", "0")], "expected 1 or -1 for each of 40"),
        (lambda lines: [lines[0], lines[1].replace("Bald", "Bold"), *lines[2:]], "attribute 'Bold'"),
        (lambda lines: [lines[0], lines[1].replace("Bald", "Young"), *lines[2:]], "an attribute twice"),
        (lambda lines: [line.replace("0000", "0009") for line in lines], "no picture that list_attr"),
    ],
)
def test_what_is_wrong_with_the_list_is_reported(folder, edit, message):
    edit_list(folder, edit)
    with pytest.raises(InputError, match=message):
        files.load(folder)


def test_what_is_wrong_with_the_folder_or_the_arguments_is_reported(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        files.load(tmp_path / "nothing")
    with pytest.raises(InputError, match="list_attr_celeba"):
        files.load(tmp_path)
    save_faces(tmp_path)
    for wrong, message in [
        ({"limit": 0}, "limit must be"),
        ({"size": 0}, "size must be"),
        ({"size": (3,)}, "size must be"),
        ({"size": 3.5}, "size must be"),
    ]:
        with pytest.raises(InputError, match=message):
            files.load(tmp_path, **wrong)
    found = files.load(tmp_path)
    with pytest.raises(InputError, match="no component of a face shows 'Young'"):
        found.truth("Young")
    with pytest.raises(InputError, match="'moustache'"):
        found.truth("Mustache", ["moustache"])
    with pytest.raises(InputError, match="expected one for each"):
        FaceSamples(found.x, found.y, found.classes, found.names, found.source, components=found.components[:2])


# -- the paper's table -------------------------------------------------------------------------------------------------


def test_attributes_and_components_are_those_of_the_paper():
    assert len(ATTRIBUTES) == 40 and tuple(sorted(ATTRIBUTES)) == ATTRIBUTES and len(COMPONENTS) == 19
    assert set(ATTRIBUTE_COMPONENTS) < set(ATTRIBUTES) and len(ATTRIBUTE_COMPONENTS) == 26
    shown = {part for parts in ATTRIBUTE_COMPONENTS.values() for part in parts}
    assert shown <= set(COMPONENTS)
    by_part = {part: sum(part in parts for parts in ATTRIBUTE_COMPONENTS.values()) for part in shown}
    assert by_part == {
        "hair": 10, "l_brow": 2, "r_brow": 2, "l_eye": 2, "r_eye": 2, "u_lip": 2, "l_lip": 2, "nose": 2, "mouth": 2, "eye_g": 1,
        "skin": 1, "ear_r": 1, "hat": 1, "neck_l": 1, "cloth": 1,
    }  # fmt: skip


# -- drawn faces -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn():
    return draw_faces(150, seed=2)


def column(samples, name):
    return samples.y[:, samples.classes.index(name)] == 1


def test_drawn_faces_have_the_labels_and_numbers_of_celeba(drawn):
    assert drawn.x.shape == (150, 3, 109, 89) and drawn.x.dtype == torch.uint8
    assert drawn.classes == DRAWN == tuple(name for name in ATTRIBUTES if name in DRAWN) and len(DRAWN) == 27
    assert drawn.y.shape == (150, 27) and drawn.y.unique().tolist() == [0, 1]
    assert drawn.components.shape == (150, 109, 89) and drawn.components.dtype == torch.uint8
    assert set(drawn.components.unique().tolist()) == set(range(19))
    assert "drawn" in drawn.source and "seed 2" in drawn.source
    assert all(10 < number < 140 for number in drawn.counts().values())


def test_the_seed_alone_decides_and_more_faces_keep_the_others(drawn):
    again = draw_faces(5, seed=2)
    assert torch.equal(again.x, drawn.x[:5]) and torch.equal(again.components, drawn.components[:5])
    assert torch.equal(again.y, drawn.y[:5]) and not torch.equal(again.x, draw_faces(5, seed=3).x)


def test_what_a_face_has_is_seen_on_it_and_what_it_lacks_is_not(drawn):
    for name in ("Eyeglasses", "Wearing_Hat", "Wearing_Earrings", "Wearing_Necklace"):
        there = (drawn.truth(name) == 1).flatten(1).sum(dim=1)
        assert (there[column(drawn, name)] >= 10).all() and (there[~column(drawn, name)] == 0).all(), name
    mouth = (drawn.truth("Smiling") == 1).flatten(1).sum(dim=1) >= 10
    assert torch.equal(mouth, column(drawn, "Smiling") | column(drawn, "Mouth_Slightly_Open"))
    hair = (drawn.truth("Bald") == 1).flatten(1).any(dim=1)
    assert torch.equal(hair, ~column(drawn, "Bald"))


def test_every_attribute_with_a_component_can_be_scored_where_it_is_drawn(drawn):
    for name in set(DRAWN) & set(ATTRIBUTE_COMPONENTS) - {"Bald"}:
        truth = drawn.truth(name)[column(drawn, name)]
        assert (truth == 1).flatten(1).any(dim=1).all() and (truth == 0).flatten(1).any(dim=1).all(), name


def test_an_attribute_changes_the_picture_where_its_component_is(drawn):
    """The mean of the faces with it and without it differ most on the component, as GT-AUC of the difference says."""
    pictures = drawn.x.float()
    for name in ("Eyeglasses", "Wearing_Hat", "Blond_Hair", "Bushy_Eyebrows", "Wearing_Lipstick"):
        has = column(drawn, name)
        change = (pictures[has].mean(dim=0) - pictures[~has].mean(dim=0)).abs()
        where = (drawn.truth(name)[has] == 1).float().mean(dim=0) > 0.5
        on, elsewhere = (GTAUC()(None, change[None], truth=mask[None]).mean for mask in (where, where.roll(40, 0)))
        assert on > 0.75 and on > elsewhere + 0.1, (name, on, elsewhere)


def test_attributes_that_exclude_each_other_do_and_others_are_independent():
    # labels alone, of more faces than are drawn above
    drawn = [_attributes(np.random.default_rng((5, number))) for number in range(2000)]
    for has in drawn:
        assert ("Bald" in has) == (not has & set(HAIR)) and len(has & set(HAIR)) <= 1
        assert len(has & {"Straight_Hair", "Wavy_Hair"}) == ("Bald" not in has)
        assert ("No_Beard" in has) == (not has & {"Goatee", "Mustache"})
        assert not ("Bangs" in has and has & {"Bald", "Wearing_Hat"})
    table = np.array([[name in has for name in CHANCES if name not in ("Bangs", "Wearing_Hat")] for has in drawn], dtype=float)
    related = np.corrcoef(table.T) - np.eye(table.shape[1])
    assert np.abs(related).max() < 0.1
    smiling = [name for name in CHANCES if name not in ("Bangs", "Wearing_Hat")].index("Smiling")
    assert abs(table[:, smiling].mean() - CHANCES["Smiling"]) < 0.05


def test_what_tells_nothing_varies(drawn):
    corner = drawn.x[:, :, 0, 0].float()
    assert (corner.std(dim=0) > 20).all()  # the background
    skin = drawn.components == COMPONENTS.index("skin")
    rows = torch.arange(109.0)[:, None]
    middle = torch.stack([(rows * face).sum() / face.sum() for face in skin])
    assert 1 < middle.std() < 5  # where the head is
    tone = torch.stack([drawn.x[n, :, skin[n]].float().mean() for n in range(len(drawn))])
    assert tone.std() > 30


@pytest.mark.parametrize("size", [32, 64, (64, 48), (218, 178)])
def test_faces_are_drawn_in_any_size(size):
    some = draw_faces(4, size=size)
    height, width = (size, size) if isinstance(size, int) else size
    assert some.x.shape == (4, 3, height, width) and some.components.shape == (4, height, width)
    # as large a part of the picture as in CelebA's size
    share = (some.components == 1).float().mean()
    assert share == pytest.approx(float((draw_faces(4).components == 1).float().mean()), abs=0.02)


@pytest.mark.parametrize(
    "wrong", [{"count": 0}, {"count": "3"}, {"count": 1, "size": 31}, {"count": 1, "size": (64,)}, {"count": 1, "size": None}]
)
def test_faces_cannot_be_drawn_from_nonsense(wrong):
    with pytest.raises(InputError, match="must be"):
        draw_faces(**wrong)
