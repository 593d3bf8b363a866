"""What `ig2 explain` explains: the kinds of data, the methods, the classes, the references."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from commands import explained, page_data, summary

from browsing import open_browser, open_screen
from ig2 import Attribution, plots, rules
from ig2.cli import inputs
from ig2.cli.methods import find_rule
from ig2.demo import photos as demo_photos
from ig2.demo import tables
from ig2.explorer import Collection
from ig2.methods.catalogue import METHODS
from ig2.modalities.table import modality
from ig2.runs import planning

FOR_ALL = [name for name, entry in METHODS.items() if not entry.for_images]


# -- the kinds of data and the methods ---------------------------------------------------------------------------------


def methods_run(said, out, names):
    """Every method is there, with finite numbers, and a page to look at."""
    assert (said.code, said.err) == (0, "")
    titles = [METHODS[name].title for name in names]
    files = {METHODS[name].title: out / f"{name}.safetensors" for name in names}
    residuals = {title: Attribution.load(path).residual for title, path in files.items()}
    for entry in summary(out)["inputs"]:
        assert list(entry["methods"]) == titles
        for title, found in entry["methods"].items():
            assert (found["residual"] is None) == (residuals[title] is None)
            assert found["row"] == summary(out)["inputs"].index(entry)
    for name in names:
        attribution = Attribution.load(out / f"{name}.safetensors")
        tensors = attribution.values.values() if isinstance(attribution.values, dict) else [attribution.values]
        assert all(tensor.isfinite().all() and tensor.abs().sum() > 0 for tensor in tensors), name
    for shown in page_data(out)["inputs"]:
        assert [method["name"] for method in shown["methods"]] == titles
        for method, name in zip(shown["methods"], names, strict=True):
            assert bool(method["references"]) == METHODS[name].example.needs_references


def test_every_method_runs_on_images(ig2, digit):
    said = ig2("explain", digit, "-m", "digits", "--compare", ",".join(METHODS), "--steps", 3, "--count", 2, "-o", "out")
    methods_run(said, Path("out"), list(METHODS))
    assert re.search("prediction +7, >99%", said.out)


def test_every_method_that_is_not_for_images_alone_runs_on_text(ig2):
    sentences = ("Where did guinea pigs originate?", "Who wrote it?")
    options = ["--compare", ",".join(FOR_ALL), "--steps", 5, "--count", 2, "-o", "out"]
    said = ig2("explain", "--text", sentences[0], "-t", sentences[1], *options)
    methods_run(said, Path("out"), FOR_ALL)
    first, second = summary(Path("out"))["inputs"]
    assert (first["name"], first["picture"]) == (sentences[0], "text-1.png")
    assert first["parts"] == ["Where", "did", "guinea", "pigs", "originate?"]
    assert first["prediction"] == "place (LOC)" and second["prediction"] == "person (HUM)"
    for found in first["methods"].values():
        assert len(found["scores"]) == 5
    # a word is present or absent as a whole, so KernelSHAP's words sum to the change in the output
    kernel = first["methods"]["KernelSHAP"]
    assert sum(kernel["scores"]) == pytest.approx(kernel["output"] - kernel["baseline_output"], abs=1e-4)
    assert first["methods"]["IG"]["baseline_output"] == pytest.approx(kernel["baseline_output"], abs=1e-5)


def test_every_method_that_is_not_for_images_alone_runs_on_tables(ig2):
    tables.example_rows("wine").to_csv("rows.csv", index=False)
    options = ["--compare", ",".join(FOR_ALL), "--steps", 5, "--count", 2, "-o", "out"]
    said = ig2("explain", "rows.csv", "--model", "wine", "--rows", "2,4", *options)
    methods_run(said, Path("out"), FOR_ALL)
    first, second = summary(Path("out"))["inputs"]
    assert (first["name"], second["name"]) == ("row 2", "row 4") and first["picture"] == "row-2.png"
    assert first["parts"][0] == "alcohol" and float(first["cells"][0]) > 10


def test_kernelshap_takes_a_column_of_several_features_as_one(ig2):
    ig2.module("""
import ig2
from ig2 import modalities
def table():
    columns = (modalities.table.Number("size"), modalities.table.Category("colour", ("red", "green", "blue")))
    rows = [{"size": i / 9, "colour": ("red", "green", "blue")[i % 3]} for i in range(12)]
    class Net(nn.Module):
        def forward(self, x):
            score = x @ torch.tensor([1.0, 2.0, -1.0, 0.0])
            return torch.stack([score, -score], dim=1)
    return modalities.table.subject(ig2.wrap(Net(), "output"), columns, ("yes", "no"), rows=rows)
""")
    Path("rows.csv").write_text("colour,size,other\nred,0.5,x\n")
    options = ("--method", "kernelshap", "--against", "others", "-o", "out")
    assert ig2("explain", "rows.csv", "-m", "mine:table", *options).code == 0
    (entry,) = summary(Path("out"))["inputs"]
    assert entry["parts"] == ["size", "colour"] and entry["cells"] == ["0.5", "red"]
    assert entry["methods"]["KernelSHAP"]["scores"] == pytest.approx([0.5, 2.0])
    # each of the three features of a colour carries a third
    assert Attribution.load("out/kernelshap.safetensors").values.tolist() == [pytest.approx([0.5, 2 / 3, 2 / 3, 2 / 3])]


def shown_methods(out="ig2-out"):
    (titles,) = {tuple(entry["methods"]) for entry in summary(Path(out))["inputs"]}
    return titles


def test_photos_are_shown_by_strata_and_ig2_unless_something_is_named(conv):
    assert conv("--compare", "ig,ig2").code == 0
    assert shown_methods() == ("Strata", "IG²", "IG")
    strata, _, _ = page_data(Path("ig2-out"))["inputs"][0]["methods"]
    assert strata["trust"] is None and strata["gradcf"] is None and strata["output_curve"] is None
    for options, titles in (
        (["--method", "ig2"], ("IG²",)),
        (["--method", "ig"], ("IG",)),
        (["--rule", "blended"], ("IG²",)),
        (["--at", "0"], ("IG²",)),
        (["--method", "ig2", "--compare", "strata"], ("IG²", "Strata")),
    ):
        assert conv(*options).code == 0
        assert shown_methods() == titles, options


@pytest.mark.parametrize("model", ["places_of_small_pictures", "no_places", "patches"])
def test_what_strata_is_not_for_is_shown_by_ig2(conv, model):
    said = conv(model=model)
    assert (said.code, said.err) == (0, "") and shown_methods() == ("IG²",)
    named = conv("--method", "ig2", "-o", "named", model=model)
    assert said.out == named.out.replace("named", "ig2-out")


def test_beside_strata_ig2_has_the_numbers_that_it_has_alone(conv):
    assert conv().code == 0 and conv("--method", "ig2", "-o", "alone").code == 0
    beside, alone = (Attribution.load(Path(out, "ig2.safetensors")) for out in ("ig2-out", "alone"))
    assert torch.equal(beside.values, alone.values)


def test_a_map_that_speaks_against_the_class_says_so(ig2, conv, monkeypatch):
    drawn, draw = [], plots.grid
    monkeypatch.setattr(plots, "grid", lambda maps, **more: drawn.append(list(maps)) or draw(maps, **more))
    photos = [ig2.photo(f"{seed}.png", size=(2, 2), seed=seed) for seed in range(4)]
    said = conv("--target", "red", "--method", "strata", photos=photos)
    fell = []
    for shown, printed in zip(page_data(Path("ig2-out"))["inputs"], re.split(r"(?m)^\d\.png\n", said.out)[1:], strict=True):
        (method,) = shown["methods"]
        fell.append(method["output"] < method["baseline_output"])
        assert method["is_against"] == fell[-1] == ("Strata      all of it speaks against red" in printed)
    assert set(fell) == {True, False}
    assert drawn == [["Strata, all against" if down else "Strata"] for down in fell]


def test_the_default_model_knows_a_cup_of_coffee(ig2):
    (coffee,) = [path for path in demo_photos.paths() if path.stem == "coffee"]
    said = ig2("explain", coffee, "--steps", 1, "--count", 1)
    assert said.code == 0
    assert re.search(r"coffee\.png\n  prediction  espresso, 9\d%\n  explained   espresso rather than \w+", said.out)
    assert Path("ig2-out/coffee.png").is_file() and shown_methods() == ("Strata", "IG²")


def test_a_model_of_numbers_and_one_of_labels_say_what_they_predict(ig2):
    tables.example_rows("diabetes").to_csv("rows.csv", index=False)
    said = ig2("explain", "rows.csv", "--rows", "1", "-m", "diabetes", "--steps", 2, "--out", "numbers")
    number = re.search(r"prediction  disease progression = ([\d.]+)\n  explained   disease progression = ([\d.]+)\n", said.out)
    assert number and number[1] == number[2]
    ig2.module("""
def labels():
    return subject(net(), ("round", "sweet", "red"), outputs="labels")
""")
    said = ig2("explain", ig2.photo(), "-m", "mine:labels", "--method", "ig", "--target", "sweet", "--out", "labels")
    assert re.search(r"prediction  (not )?sweet, \d\d%\n  explained   sweet\n", said.out)
    probability = torch.sigmoid(Attribution.load("labels/ig.safetensors").output)
    expected = ("not " if probability < 0.5 else "") + f"sweet, {max(probability, 1 - probability).item():.0%}"
    assert f"prediction  {expected}\n" in said.out


# -- what to explain ---------------------------------------------------------------------------------------------------


def test_the_class_explained_by_number_name_and_part_of_a_name(small):
    for typed, index in (("0", 0), ("2", 2), ("green", 1), ("GREEN", 1), ("blu", 2)):
        said = small("--target", typed)
        assert said.code == 0 and explained() == [(("red", "green", "blue")[index], index)]
        name, other = re.search(r"  explained   (\w+) rather than (\w+)\n", said.out).groups()
        assert name == explained()[0][0] != other


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("re", "class 're' could be 'red', 'green': say which"),
        ("gren", "the model has no class 'gren'; did you mean green?"),
        ("7", "class 7 does not exist: the model's classes are numbered from 0 to 2"),
        ("-1", "class -1 does not exist: the model's classes are numbered from 0 to 2"),
        ("", "the model has no class '': it has red, green, blue"),
        ("location", "the model has no class 'location': it has red, green, blue"),
    ],
)
def test_a_class_that_is_none_or_several(ig2, typed, said):
    ig2.module()
    assert ig2.refused("explain", ig2.photo(), "-m", "mine:small", "--target", typed) == said


def test_a_class_of_a_model_without_names_goes_by_its_number(ig2):
    ig2.module("def nameless(): return subject(net(), None)")
    photo = ig2.photo()
    assert "no names, give a number" in ig2.refused("explain", photo, "-m", "mine:nameless", "--target", "cat")
    assert "target 9 is not a class" in ig2.refused("explain", photo, "-m", "mine:nameless", "--target", "9", "--method", "ig")
    assert ig2("explain", photo, "-m", "mine:nameless", "--target", "1", "--method", "ig").code == 0
    assert explained() == [("class 1", 1)]


def contrast_lines(said):
    assert said.code == 0, said
    return [re.search(rf"\n  {label} +(.*)", said.out)[1] for label in ("explained", "references")]


def test_the_default_is_to_contrast_with_the_runner_up(ig2):
    """References of its class where there are some; the output explained is the difference of the two."""
    ig2.module()
    photo = ig2.photo()
    said = ig2("explain", photo, "-m", "mine:small", "--compare", "ig,gradient", "--steps", 2, "--count", 2, "-o", "out")
    subject = sys.modules["mine"].small()
    scores = subject.predict(subject.read([photo]))[0]
    first, second, third = scores.argsort(descending=True).tolist()
    names = [subject.label(i) for i in (first, second, third)]
    why = f"2 from the samples of Sequential ({names[1]}): samples the model calls {names[1]!r}"
    assert contrast_lines(said) == [f"{names[0]} rather than {names[1]}", why]
    for name in ("ig2", "ig", "gradient"):
        attribution = Attribution.load(f"out/{name}.safetensors")
        assert attribution.against.tolist() == [second]
        torch.testing.assert_close(attribution.output, scores[[first]] - scores[[second]])
    assert summary(Path("out"))["inputs"][0]["contrasted_with"] == [names[1]]
    assert all(reference["label"] == names[1] for reference in page_data(Path("out"))["inputs"][0]["methods"][0]["references"])
    # what is not predicted is contrasted with what is
    said = ig2("explain", photo, "-m", "mine:small", "--target", names[2], "--steps", 2)
    assert contrast_lines(said)[0] == f"{names[2]} rather than {names[0]}"
    said = ig2("explain", photo, "-m", "mine:small", "--against", f"{names[2]}, {names[1]}", "--steps", 2, "--count", 2)
    assert contrast_lines(said)[0] == f"{names[0]} rather than {names[2]} or {names[1]}"
    assert f"samples the model calls {names[2]!r} or {names[1]!r}" in contrast_lines(said)[1]
    assert Attribution.load("ig2-out/ig2.safetensors").against.tolist() == [[third, second]]


def test_without_references_of_the_runner_up_the_question_is_one_that_can_be_answered(ig2):
    ig2.module()
    photo = ig2.photo()
    subject = runpy.run_path("mine.py")["small"]()
    scores = subject.predict(subject.read([photo]))[0]
    first, second, third = (subject.label(i) for i in scores.argsort(descending=True).tolist())
    for seed in range(1, 40):
        path = ig2.photo(f"pool/{seed}.png", seed=seed)
        if subject.describe_output(subject.predict(subject.read([path]))[0]) != third:
            path.unlink()
    said = ig2("explain", photo, "-m", "mine:small", "--references", "pool", "--steps", 2, "--count", 2, "-o", "out")
    question, line = contrast_lines(said)
    assert line.startswith(f"2 from pool ({third}): ") and f"none of the {len(list(Path('pool').iterdir()))} looked at" in line
    assert line.endswith(repr(second)) and question == f"{first} rather than {third}"
    assert subject.label(int(Attribution.load("out/ig2.safetensors").against)) == third
    named = ig2("explain", photo, "-m", "mine:small", "--references", "pool", "--against", second, "--steps", 2)
    assert contrast_lines(named)[0] == f"{first} rather than {second}, beside references of {third}"


def test_against_what_makes_no_sense(ig2):
    tables.example_rows("diabetes").to_csv("rows.csv", index=False)
    said = ig2.refused("explain", "rows.csv", "-m", "diabetes", "--against", "next", code=2)
    assert "plain numbers" in said and "omit it" in said
    ig2.module("""
def labels():
    return subject(net(), outputs="labels")
def single():
    return subject(net(1), ("yes",))
""")
    photo = ig2.photo()
    assert "independent" in ig2.refused("explain", photo, "-m", "mine:labels", "--against", "red", code=2)
    assert "did you mean green" in ig2.refused("explain", photo, "-m", "mine:small", "--against", "red,gren")
    assert "--against" in ig2.refused("explain", photo, "-m", "mine:small", "--target", "red", "--against", "red")
    assert "--against" in ig2.refused("explain", photo, "-m", "mine:single", "--against", "yes", "--method", "ig")
    assert ig2("explain", photo, "-m", "mine:single", "--method", "ig").code == 0


def test_references_from_a_folder_flat_or_by_class(ig2, small):
    """They are chosen by what the network says of them, and never of the class explained."""
    for seed in range(12):
        ig2.photo(f"flat/{seed}.png", seed=seed)
        ig2.photo(f"classes/{'ab'[seed % 2]}/{seed}.jpg", seed=seed)
    for folder in ("flat", "classes"):
        said = small("--references", folder, "--out", f"out-{folder}")
        assert said.code == 0
        references = page_data(Path(f"out-{folder}"))["inputs"][0]["methods"][0]["references"]
        assert len(references) == 2
        assert all(reference["label"] != explained(f"out-{folder}")[0][0] for reference in references)


def test_references_that_are_none(ig2):
    ig2.module()
    photo = ig2.photo()
    Path("empty").mkdir()
    Path("notes").mkdir()
    Path("notes/a.txt").write_text("not a picture")
    ig2.photo("same/again.png")
    for references, said in (
        ("nowhere", "nowhere does not exist"),
        ("photo.png/x", "photo.png/x does not exist"),
        (photo, "nothing to contrast 'photo.png' with: each reference there is (1)"),
        ("empty", "empty has no items"),
        ("notes", "reads images, and the source has"),
        ("same", "nothing to contrast 'photo.png' with: each reference there is"),
    ):
        assert said in ig2.refused("explain", photo, "-m", "mine:small", "--references", references)


def test_references_of_text_and_of_tables_are_files(ig2):
    Path("others.txt").write_text("How many people live there?\n\nWho painted it?\n")
    said = ig2("explain", "--text", "Where is Rome?", "--references", "others.txt", "--against", "others", "--steps", 2)
    assert re.search(r"references of (number \(NUM\) or person \(HUM\)|person \(HUM\) or number \(NUM\))\n", said.out)
    rows = tables.example_rows("iris", 30)
    rows[:10].to_csv("rows.csv", index=False)
    rows[10:].to_parquet("others.parquet")
    said = ig2("explain", "rows.csv", "-m", "iris", "--rows", "1", "--references", "others.parquet", "--steps", 2, "-o", "t")
    assert said.code == 0 and re.search(r"rather than (setosa|versicolor|virginica)\n", said.out)
    refusal = ig2.refused("explain", "--text", "Why?", "--references", ".")
    assert "no references can be chosen" in refusal and "may be the text" in refusal


def test_texts_that_come_again_or_are_not_utf_8_are_told_apart(ig2):
    texts = ("Why?", "Why? (2)", "Why?", "Where is \udcff?")
    said = ig2("explain", *(part for text in texts for part in ("--text", text)), "--method", "gradient")
    assert said.code == 0
    names = [entry["name"] for entry in summary(Path("ig2-out"))["inputs"]]
    assert names[:3] == ["Why?", "Why? (2)", "Why? (3)"] and len({*names}) == 4


def test_a_strategy_of_references_is_a_line_and_the_store_is_known_by_its_output(ig2):
    ig2.module()
    said = ig2("explain", ig2.photo(), "-m", "mine:small", "--references", "zeros", "--steps", 2)
    assert re.search(r"(?m)^  references +zeros$", said.out)
    status = ig2("status", "ig2-out/store").out
    assert re.search(r"(?m)^  source +inputs 1$", status)
    assert Collection([Path("ig2-out/store")]).names == ["ig2-out"]


def test_fewer_references_than_asked_for_are_a_line(ig2):
    ig2.module()
    said = ig2("explain", ig2.photo(), "-m", "mine:small", "--steps", 1, "--count", 500)
    assert said.code == 0
    used = len(page_data(Path("ig2-out"))["inputs"][0]["methods"][0]["references"])
    line = f"{used} references, and not 500: of the 24 looked at, no more can be contrasted with 'photo.png'"
    assert used < 24 and said.err == f"ig2: warning: {line}\n"
    subject = runpy.run_path("mine.py")["small"]()
    photos = [Path("photo.png"), *(ig2.photo(f"pool/{seed}.png", seed=seed) for seed in range(1, 9))]
    first, *others = subject.predict(subject.read(photos)).argmax(dim=1).tolist()
    fitting = [path for path, label in zip(photos[1:], others, strict=True) if label != first][:2]  # of 4 by default
    for path in set(photos[1:]) - set(fitting):
        path.unlink()
    said = ig2("explain", "photo.png", "-m", "mine:small", "--steps", 1, "--references", "pool")
    assert "2 from pool" in said.out
    assert said.code == 0 and said.err == ""


def test_a_table_for_another_network_says_which_was_taken(ig2):
    Path("mine.csv").write_text("a,b\n1,2\n")
    said = ig2.refused("explain", "mine.csv")
    assert "lacks 30 of 30 columns" in said and "breast-cancer MLP" in said and said.endswith("--model")
    assert "--model" not in ig2.refused("explain", "mine.csv", "-m", "iris")


def test_sentences_from_a_file(ig2):
    Path("questions.txt").write_bytes("\ufeffWhere is Rome?\r\n\r\n  Who wrote Hamlet?  \nWhat is bismuth?\n".encode())
    assert ig2("explain", "questions.txt", "--steps", 1, "--count", 1, "-o", "all").code == 0
    names = [entry["name"] for entry in summary(Path("all"))["inputs"]]
    assert names == ["Where is Rome?", "Who wrote Hamlet?", "What is bismuth?"]
    assert ig2("explain", "questions.txt", "--rows", "3,1", "--steps", 1, "--count", 1, "-o", "some").code == 0
    assert [entry["name"] for entry in summary(Path("some"))["inputs"]] == ["What is bismuth?", "Where is Rome?"]
    both = ig2("explain", "questions.txt", "-t", "How far is it?", "--method", "ig", "--steps", 1, "-o", "both")
    assert both.out.startswith("How far is it?\n") and len(summary(Path("both"))["inputs"]) == 4


@pytest.mark.parametrize(
    ("wanted", "rows"), [("3", [2]), ("1,4", [0, 3]), ("2:5", [1, 2, 3, 4]), (" 2 : 3 , 1 ", [1, 2, 0]), ("1,1:2", [0, 1])]
)
def test_rows_are_counted_from_one_with_both_ends(wanted, rows):
    assert inputs.parse_rows(wanted, 5) == rows


def test_rows_that_are_not_there(ig2):
    tables.example_rows("iris", 5).to_csv("rows.csv", index=False)
    for wanted in ("0", "6", "2:9", "3:2"):
        line = ig2.refused("explain", "rows.csv", "-m", "iris", "--rows", wanted)
        assert "rows 1 to 5" in line
    for wanted in ("a", "1:2:3", "-1", "1.5", "", "1,,2", "²"):
        assert "--rows" in ig2.refused("explain", "rows.csv", "-m", "iris", "--rows", wanted, code=2)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "PQ"])
def test_tables_of_every_kind_and_by_default_all_rows(ig2, suffix):
    rows = tables.example_rows("iris", 7)
    path = Path(f"rows.{suffix}")
    if suffix in ("csv", "tsv"):
        rows.to_csv(path, index=False, sep="," if suffix == "csv" else "\t")
    else:
        rows.to_parquet(path)
    assert ig2("explain", path, "-m", "iris", "--steps", 1, "--count", 1).code == 0
    assert [entry["name"] for entry in summary(Path("ig2-out"))["inputs"]] == [f"row {i}" for i in range(1, 8)]


def test_rows_beyond_the_limit_are_listed_as_skipped(ig2, monkeypatch):
    monkeypatch.setattr(modality, "FIRST_ROWS", 3)
    tables.example_rows("iris", 7).to_csv("rows.csv", index=False)
    said = ig2("explain", "rows.csv", "-m", "iris", "--method", "gradient")
    assert re.search(r"skipped\n  rows 4 to 7: only the first 3 rows .* --rows 4:7\n", said.out)
    assert len(summary(Path("ig2-out"))["inputs"]) == 3
    said = ig2("explain", "rows.csv", "-m", "iris", "--method", "gradient", "--rows", "4:7")
    assert "skipped" not in said.out and len(summary(Path("ig2-out"))["inputs"]) == 4


def test_a_folder_is_explained_without_the_pictures_of_an_earlier_run(ig2):
    ig2.module()
    ig2.photo("a.png")
    ig2.photo("deep/er/b.png", seed=1)
    for _ in range(2):
        assert ig2("explain", ".", "-m", "mine:small", "--method", "gradient").code == 0
        assert [entry["name"] for entry in summary(Path("ig2-out"))["inputs"]] == ["a.png", "b.png"]
    Path("empty").mkdir()
    assert "has no images" in ig2.refused("explain", "empty", "-m", "mine:small")
    assert "one kind" in ig2.refused("explain", "deep", "--text", "Why?", code=2)


def test_the_limit_of_a_folder_of_references_is_printed(ig2, monkeypatch):
    ig2.module()
    monkeypatch.setattr(planning, "POOL", 10)
    for seed in range(15):
        ig2.photo(f"pool/{seed}.png", seed=seed + 1)
    said = ig2("explain", ig2.photo(), "-m", "mine:small", "--references", "pool", "--steps", 1)
    assert "\n  5 images of the references: references are chosen from 10 of 15, evenly spaced" in said.out


# -- in a browser ------------------------------------------------------------------------------------------------------


def test_the_reports_open_in_a_browser_in_silence(ig2, digit):
    tables.example_rows("iris").to_csv("rows.csv", index=False)
    quick = ("--steps", 2, "--count", 2, "--compare", "ig,gradient,gradcfe")
    assert ig2("explain", digit, "-m", "digits", *quick, "-o", "image").code == 0
    assert ig2("explain", "-t", "Where is Rome?", *quick, "-o", "text").code == 0
    assert ig2("explain", "rows.csv", "-m", "iris", *quick, "-o", "table").code == 0
    with open_browser() as browser:
        page, trouble, _ = open_screen(browser)
        for kind, heading in (
            ("image", "Why 7 rather than"),
            ("text", "Why place (LOC) rather than"),
            ("table", "rather than"),
        ):
            page.goto((ig2.folder / kind / "report.html").as_uri())
            page.wait_for_selector("section[data-input]:not([hidden])[data-ready]")
            assert heading in page.inner_text("h2")
            assert page.locator("[role=tab]:visible").all_inner_texts()[-4:] == ["IG²", "IG", "Gradient", "GradCFE"]
        page.close()
    assert trouble == []


def test_text_is_never_taken_for_markup_of_the_terminal(ig2):
    said = ig2("explain", "-t", "Where is [bold]Rome[/bold] :smile: [/]?", "--method", "gradient")
    assert said.out.startswith("Where is [bold]Rome[/bold] :smile: [/]?\n")


def test_a_rule_answers_to_the_name_its_paper_gave_it():
    assert find_rule("idgi", METHODS.values()) is rules.direct
    assert find_rule("secant", METHODS.values()) is rules.secant


CONVOLUTIONS = """
import torch
from torch import nn
from ig2 import modalities

def build():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2)).eval()
    pictures = torch.randint(0, 256, (6, 8, 8, 3), dtype=torch.uint8).numpy()
    photos = [modalities.Sample(one, str(i)) for i, one in enumerate(pictures)]
    return modalities.image.subject(net, (8, 8), photos=lambda: photos)
"""


def test_a_layer_is_shown_on_the_pixels(ig2):
    Path("convolutions.py").write_text(CONVOLUTIONS)
    typed = ("explain", ig2.photo(), "--model", "convolutions:build", "--steps", 2, "--count", 2)
    for folder, options in (("layer", ("--at", "1")), ("pixels", ())):
        assert ig2(*typed, "--out", folder, *options).code == 0
    layer, pixels = (Attribution.load(f"{folder}/ig2.safetensors") for folder in ("layer", "pixels"))
    assert layer.settings["mapped_from"] == "1" and layer.values.shape == pixels.values.shape
    assert not torch.allclose(layer.values, pixels.values)
    assert "--at 1 is for photos" in ig2.refused("explain", "--text", "why?", "--at", "1", code=2)
