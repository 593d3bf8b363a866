"""Files and models that are broken, huge, empty or meant to do harm: a line of error or a right result, and nothing left."""

import errno
import html
import json
import os
import pickle
import re
import resource
import struct
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ig2 import Attribution
from ig2.cli import files as cli_files
from ig2.cli import pages
from ig2.demo import tables


@pytest.fixture
def refused(ig2):
    """A file that the small network is not shown, and why."""
    ig2.module()
    return lambda path, *options: ig2.refused("explain", path, "-m", "mine:small", "--steps", 1, "--count", 1, *options)


@pytest.fixture
def explained(ig2):
    """A file that the small network is shown, as it sees it: (3, 8, 8)."""
    ig2.module()

    def run(path):
        said = ig2("explain", path, "-m", "mine:small", "--steps", 1, "--count", 1, "-o", "out")
        assert (said.code, said.err) == (0, "")
        json.loads(Path("out/summary.json").read_text())
        assert Path("out/report.html").stat().st_size > 10_000
        return Attribution.load("out/ig2.safetensors").explicand[0]

    return run


def png(width, height, data=b""):
    """A PNG file that says it has this size."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


# -- photos that are none ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.jpg", b"", "empty.jpg is empty (0 bytes)"),
        ("bomb.png", png(60_000, 60_000), "bomb.png has more pixels than 100,000,000: make it smaller"),
        ("large.png", png(11_000, 11_000), "large.png has 11000 × 11000 pixels, more than 100,000,000: make it smaller"),
        ("liar.png", png(1_000, 1_000, b"\0" * 100), "liar.png is a broken image: "),
        ("text.jpg", b"This is not a photo.\n" * 100, "text.jpg is not an image of a known format"),
        ("page.png", b"<html><script>alert(1)</script></html>", "page.png is not an image of a known format"),
        ("noise.webp", bytes(range(256)) * 9, "noise.webp is not an image of a known format"),
        ("program.jpg", b"%!PS-Adobe-3.0\n(x) run", "program.jpg is not an image of a known format"),
        ("archive.png", b"PK\x03\x04" + b"\0" * 200, "archive.png is not an image of a known format"),
        ("truncated.jpg", None, "truncated.jpg is a broken image"),
    ],
)
def test_a_file_that_is_no_photo(ig2, refused, name, content, said):
    if content is None:
        whole = ig2.photo(name, (200, 200)).read_bytes()
        content = whole[: len(whole) // 2]
    (ig2.folder / name).write_bytes(content)
    assert said in refused(name)


def test_places_where_there_is_no_photo(ig2, refused):
    ig2.photo("folder/photo.png")
    assert refused("nowhere.jpg") == "nowhere.jpg does not exist"
    assert refused("folder/photo.png/inside.jpg") == "folder/photo.png/inside.jpg does not exist"
    assert "File name too long" in refused("x" * 5000 + ".jpg")
    os.mkfifo("pipe.png")  # would wait for ever
    assert "pipe.png is not a file" in refused("pipe.png")
    Path("loop.png").symlink_to("loop.png")
    assert "loop.png" in refused("loop.png")
    assert "/dev/null is not a file" in refused("/dev/null")


def test_a_photo_that_may_not_be_read(ig2, refused, monkeypatch):
    path, open_it = ig2.photo("secret.png"), Path.open

    def locked(self, *args, **options):
        if self.name == "secret.png" and "w" not in "".join(map(str, args)):
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return open_it(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", locked)
        patch.setattr(Path, "read_bytes", lambda self: b"")  # by which the test looks at the folder
        assert refused(path) == f"{path} cannot be read: Permission denied"


def test_one_bad_photo_among_good_ones_is_named(ig2, refused):
    ig2.photo("good.png")
    Path("bad.png").write_bytes(b"")
    line = ig2.refused("explain", "good.png", "bad.png", "-m", "mine:small")
    assert "bad.png is empty (0 bytes)" in line and "--skip-bad" in line
    assert "--skip-bad" not in ig2.refused("explain", "bad.png", "-m", "mine:small")
    Path("pool").mkdir()
    Path("pool/bad.png").write_bytes(png(60_000, 60_000))
    assert "pool/bad.png has more pixels than" in refused("good.png", "--references", "pool")


def skipped(ig2, *arguments):
    """Run with --skip-bad: the names of what was explained, and the reason for each that was skipped."""
    said = ig2("explain", *arguments, "--skip-bad", "-o", "out", "--steps", 1, "--count", 1)
    assert (said.code, said.err) == (0, "")
    summary = json.loads(Path("out/summary.json").read_text())
    reasons = {entry["name"]: entry["reason"] for entry in summary["skipped"]}
    page = html.unescape(Path("out/report.html").read_text())
    for reason in reasons.values():
        assert reason in said.out and reason in page
    assert ("skipped" in said.out) == ("Skipped:" in page) == bool(reasons)
    return [view["name"] for view in summary["inputs"]], reasons


def test_bad_photos_are_skipped_and_listed(ig2):
    ig2.module()
    for i, name in enumerate(("one.png", "two.png")):
        ig2.photo(name, seed=i)
    Path("empty.png").write_bytes(b"")
    Path("text.jpg").write_text("This is not a photo.")
    Path("folder").mkdir()
    names, reasons = skipped(ig2, "empty.png", "one.png", "text.jpg", "folder", "two.png", "nowhere.png", "-m", "mine:small")
    assert names == ["one.png", "two.png"]
    assert list(reasons) == ["empty.png", "text.jpg", "folder", "nowhere.png"]
    assert "0 bytes" in reasons["empty.png"] and "nowhere.png" in reasons["nowhere.png"]
    assert skipped(ig2, "one.png", "two.png", "-m", "mine:small") == (["one.png", "two.png"], {})


def test_bad_references_are_skipped_and_listed(ig2):
    ig2.module()
    ig2.photo("photo.png")
    for i in range(8):
        ig2.photo(f"pool/{i}.png", seed=i + 1)
    Path("pool/bad.png").write_bytes(b"")
    names, reasons = skipped(ig2, "photo.png", "--references", "pool", "-m", "mine:small")
    assert names == ["photo.png"] and list(reasons) == ["reference bad.png"]


def test_where_nothing_good_is_left_the_first_reason_is_given(ig2):
    ig2.module()
    Path("empty.png").write_bytes(b"")
    assert "none of 2 items" in ig2.refused("explain", "empty.png", "nowhere.png", "-m", "mine:small", "--skip-bad")
    assert "0 bytes" in ig2.refused("explain", "empty.png", "-m", "mine:small", "--skip-bad")


def test_a_photo_without_an_answer_is_skipped(ig2):
    ig2.module("""
class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()
    def forward(self, x):
        return torch.where(x.flatten(1).amax(dim=1, keepdim=True) < 0.1, torch.nan, self.net(x))
def picky():
    return subject(Picky())
""")
    ig2.photo("photo.png")
    Image.new("RGB", (20, 20)).save("black.png")
    assert "black.png" in ig2.refused("explain", "photo.png", "black.png", "-m", "mine:picky", "--steps", 1, "--count", 1)
    names, reasons = skipped(ig2, "photo.png", "black.png", "-m", "mine:picky")
    assert names == ["photo.png"] and "finite" in reasons["black.png"]


def test_bad_rows_are_skipped_and_listed(ig2, iris):
    rows = [*iris().splitlines(), "nan,1,1,1", "1,1,much,inf", "5,3,1.5,0.2"]
    Path("rows.csv").write_text("\n".join(rows))
    line = ig2.refused("explain", "rows.csv", "-m", "iris")
    assert "row 4, column 'sepal length (cm)': nothing there" in line and "--skip-bad" in line
    names, reasons = skipped(ig2, "rows.csv", "-m", "iris", "--rows", "2:6")
    assert names == ["row 2", "row 3", "row 6"]
    assert reasons["row 4"] == "row 4, column 'sepal length (cm)': nothing there"
    assert reasons["row 5"] == "row 5, column 'petal length (cm)': 'much' is not a finite number"
    pool = tables.example_rows("iris", 30).to_csv(index=False)
    Path("pool.csv").write_text(pool + "1,2,,4\n")
    assert "pool.csv:31" in ig2.refused("explain", "rows.csv", "-m", "iris", "--rows", 1, "--references", "pool.csv")
    assert list(skipped(ig2, "rows.csv", "-m", "iris", "--rows", "1", "--references", "pool.csv")[1]) == [
        "reference pool.csv:31"
    ]
    Path("other.csv").write_text("a,b\n1,2\n")
    assert "lacks 4 of 4 columns" in ig2.refused("explain", "other.csv", "-m", "iris", "--skip-bad")


def test_bad_sentences_are_skipped_and_listed(ig2):
    names, reasons = skipped(ig2, "-t", "Who was Ada?", "-t", " ", "-t", "Where is Rome?")
    assert names == ["Who was Ada?", "Where is Rome?"] and "empty" in reasons[" "]


# -- photos of every kind ----------------------------------------------------------------------------------------------


def save_palette(path):
    image = Image.new("P", (20, 20), 0)
    image.putpalette([0, 0, 0, 255, 0, 0])
    image.save(path, transparency=0)


def save_animation(path):
    first, *others = (Image.new("RGB", (20, 20), colour) for colour in ("red", "blue", "green"))
    first.save(path, save_all=True, append_images=others)


@pytest.mark.parametrize(
    ("name", "save", "colour"),
    [
        ("cmyk.jpg", Image.new("CMYK", (20, 20), (0, 255, 255, 0)).save, (1, 0, 0)),
        ("sixteen-bits.png", Image.fromarray(np.full((20, 20), 65535 // 4, dtype=np.uint16)).save, (0.25, 0.25, 0.25)),
        ("animation.gif", save_animation, (1, 0, 0)),  # its first frame
        ("transparent.png", save_palette, (1, 1, 1)),  # on white
        ("pixel.png", Image.new("RGB", (1, 1), (0, 0, 255)).save, (0, 0, 1)),
        ("wide.png", Image.new("RGB", (20_000, 1), (0, 255, 0)).save, (0, 1, 0)),
        ("high.png", Image.new("RGB", (1, 20_000), (0, 255, 0)).save, (0, 1, 0)),
        ("megapixels.png", lambda path: Image.new("RGB", (5000, 4000), (255, 0, 0)).save(path), (1, 0, 0)),
    ],
)
def test_photos_of_every_kind_are_read(explained, name, save, colour):
    save(name)
    tolerance = 0.2 if name == "cmyk.jpg" else 1 / 255 if name == "sixteen-bits.png" else 0
    expected = torch.tensor(colour, dtype=torch.float32)[:, None, None].expand(3, 8, 8)
    torch.testing.assert_close(explained(name), expected, atol=tolerance, rtol=0)


def test_a_photo_of_one_colour_is_shown_though_nothing_stands_out(ig2):
    ig2.module()
    Image.new("RGB", (20, 20)).save("black.png")
    compare = "ig,guided-ig,blur-ig,smoothgrad,kernelshap,xrai,deepshap,gradcfe"
    said = ig2("explain", "black.png", "-m", "mine:small", "--steps", 2, "--compare", compare)
    assert (said.code, said.err) == (0, "")


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "lines.txt has no sentences"),
        (b" \n\t\n", "lines.txt has no sentences"),
        (bytes(range(256)), "lines.txt is not UTF-8 text"),
        (b"\xff\xfe" + "Why?".encode("utf-16-le"), "lines.txt is not UTF-8 text"),
        (b"Why?\0\0\0", "null characters"),
        (b"a" * 10_000_001, "lines.txt has more than 10,000,000 bytes"),
    ],
)
def test_a_file_that_holds_no_sentences(ig2, content, said):
    Path("lines.txt").write_bytes(content)
    assert said in ig2.refused("explain", "lines.txt")


def test_sentences_that_are_none(ig2):
    assert ig2.refused("explain", "--text", "") == "the text '' is empty"
    assert "is empty" in ig2.refused("explain", "--text", "Why?", "--text", " \n ")
    Path("folder.txt").mkdir()
    assert "no images" in ig2.refused("explain", "folder.txt")


def test_sentences_in_any_writing_and_of_any_length(ig2):
    texts = [
        "为什么?",
        "👩‍🚀 ¿dónde?",
        "ﷺ" * 30,
        "$x^2$ \\frac{1}{2} {{7*7}}",
        "a" * 500,
        "why " * 100,
        "\u202ereversed",
        "line\nbreak",
    ]
    options = [option for text in texts for option in ("--text", text)]
    said = ig2("explain", *options, "--method", "ig", "--steps", 1, "-o", "out")
    assert (said.code, said.err) == (0, "")
    assert len(json.loads(Path("out/summary.json").read_text())["inputs"]) == len(texts)
    assert "line break\n" in said.out and "\u202e" not in said.out  # which would turn the terminal around


# -- tables ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def iris(ig2):
    """The text of a table with its second row changed."""
    lines = tables.example_rows("iris", 3).to_csv(index=False).splitlines()

    def table(row=None, header=None):
        return "\n".join([header or lines[0], lines[1], lines[2] if row is None else row, lines[3]]) + "\n"

    return table


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("nan,1,1,1", "row 2, column 'sepal length (cm)': nothing there"),
        (",1,1,1", "row 2, column 'sepal length (cm)': nothing there"),
        ("1,inf,1,1", "row 2, column 'sepal width (cm)': 'inf' is not a finite number"),
        ("1,1,much,1", "row 2, column 'petal length (cm)': 'much' is not a finite number"),
        ("1,1,1,<script>", "row 2, column 'petal width (cm)': '<script>' is not a finite number"),
        ("1,1,1,1,1,1", "cannot be read as a table"),
        ("1,1", "row 2, column 'petal length (cm)': nothing there"),
    ],
)
def test_a_row_that_is_broken_is_named(ig2, iris, row, said):
    Path("rows.csv").write_text(iris(row))
    assert said in ig2.refused("explain", "rows.csv", "-m", "iris")


def test_a_broken_row_does_not_matter_where_others_are_chosen(ig2, iris):
    Path("rows.csv").write_text(iris("nan,1,1,1"))
    said = ig2("explain", "rows.csv", "-m", "iris", "--rows", "1,3", "--method", "gradient", "-o", "out")
    assert said.code == 0
    assert [view["name"] for view in json.loads(Path("out/summary.json").read_text())["inputs"]] == ["row 1", "row 3"]
    assert "row 2" in ig2.refused("explain", "rows.csv", "-m", "iris", "--rows", "2:3")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.csv", b"", "rows.csv is empty (0 bytes)"),
        ("rows.csv", b"\n\n", "rows.csv cannot be read as a table"),
        ("rows.csv", b"a,b\n1,2\n", "the table lacks 4 of 4 columns, such as 'sepal length (cm)'"),
        ("rows.csv", bytes(range(256)), "rows.csv cannot be read as a table"),
        ("rows.csv", "größe,a\n1,2\n".encode("latin-1"), "UTF-8"),
        ("rows.csv", b"a,b\n1,2,3\n", "more cells than its header"),
        ("rows.csv", b"a;b;c;d\n1;2;3;4\n", "separated by commas"),
        ("rows.tsv", b"a,b,c,d\n1,2,3,4\n", "separated by commas"),
        ("rows.parquet", b"PAR1 and then nothing", "rows.parquet cannot be read as a table"),
        ("rows.parquet", b"a,b\n1,2\n", "rows.parquet cannot be read as a table"),
    ],
)
def test_a_file_that_is_no_table(ig2, name, content, said):
    Path(name).write_bytes(content)
    assert said in ig2.refused("explain", name, "-m", "iris")


@pytest.mark.parametrize("target", ["²", "--1", "1" * 5000])
def test_a_class_that_looks_like_a_number_and_is_none(ig2, iris, target):
    Path("rows.csv").write_text(iris())
    assert "has no class" in ig2.refused("explain", "rows.csv", "-m", "iris", "--target", target)


def test_a_table_without_rows_and_a_folder_called_like_one(ig2, iris):
    Path("rows.csv").write_text(iris().splitlines()[0] + "\n")
    assert ig2.refused("explain", "rows.csv", "-m", "iris") == "the table has no rows"
    Path("folder.csv").mkdir()
    assert "folder.csv has no images" in ig2.refused("explain", "folder.csv", "-m", "iris")


def test_numbers_that_are_huge_are_a_line_or_a_right_result(ig2, iris):
    Path("rows.csv").write_text(iris("1e300,1,1,1"))
    line = ig2.refused("explain", "rows.csv", "-m", "iris")
    assert "row 2, column 'sepal length (cm)': '1e300' is too large for the network" in line


# -- names that try to break out of the page ---------------------------------------------------------------------------

SCRIPT = "<script>alert(1)</script>"
EVIL = f"""
from ig2 import modalities
def evil():
    return subject(net(), ({SCRIPT!r}, '"><img src=x onerror=alert(2)>', "{{{{ 7 * 7 }}}}"), name="{SCRIPT}")
def table():
    columns = [modalities.table.Number("{SCRIPT}"), modalities.table.Number("=cmd|' /C calc'!A0")]
    rows = [{{column.name: float(i % 3) for column in columns}} for i in range(6)]
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    return modalities.table.subject(net.eval(), columns, ("yes", "{SCRIPT}"), rows=rows)
"""


def no_script_but_our_own(path):
    page = Path(path).read_text(encoding="utf-8")
    assert "alert(1)" in page  # it is shown, as text
    assert not re.search(r"<script>alert|<img src=x", page)
    assert len(re.findall(r"<script\b", page)) == len(re.findall(r"</script>", page)) == 2


def test_a_class_called_like_a_script_is_shown_as_text(ig2):
    ig2.module(EVIL)
    photo = ig2.photo(f"{SCRIPT.replace('/', '')}.png")
    said = ig2("explain", photo, "-m", "mine:evil", "--steps", 1, "--target", "0", "-o", "out")
    assert said.code == 0 and f"  explained   {SCRIPT} rather than " in said.out
    no_script_but_our_own("out/report.html")
    assert json.loads(Path("out/summary.json").read_text())["model"] == SCRIPT
    assert all(re.fullmatch(r"[\w.-]+", name) for name in os.listdir("out"))


def test_a_column_called_like_a_script_is_shown_as_text(ig2):
    ig2.module(EVIL)
    Path("rows.csv").write_text(f"\"{SCRIPT}\",=cmd|' /C calc'!A0\n1,2\n")
    said = ig2("explain", "rows.csv", "-m", "mine:table", "--method", "ig", "-o", "out")
    assert said.code == 0
    no_script_but_our_own("out/report.html")


def test_a_name_with_commands_for_the_terminal_commands_nothing(ig2):
    ig2.module("def loud(): return subject(net(), ('\\x1b[31mred\\x1b]0;title\\x07', 'b', 'c'))")
    photo = ig2.photo("\x1b[2Jwiped\a.png")
    said = ig2("explain", photo, "-m", "mine:loud", "--steps", 1, "--target", "0")
    assert said.code == 0 and "\x1b" not in said.out + said.err and "\a" not in said.out + said.err
    said = ig2("explain", "\x1b[2Jnowhere\r\n.png")
    assert said.code == 1 and said.error == "[2Jnowhere .png does not exist"


# -- models ------------------------------------------------------------------------------------------------------------

BROKEN = """
def text(): return "a network"
def nothing(): return None
def argument(needed): return net()
def raises(): raise ValueError("two\\nlines")
def leaves(): raise SystemExit(0)
variable = 7
def training(): return subject(net(dropout=0.5).train())
class Nan(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()
    def forward(self, x):
        return self.net(x) * float("nan")
def nan(): return subject(Nan())
def images(): return nn.Conv2d(3, 4, 3)
def wide(): return nn.Sequential(nn.Flatten(), nn.Linear(10, 2))
class Scalar(nn.Module):
    def forward(self, x):
        return x.mean()
def scalar(): return subject(Scalar())
class Raises(nn.Module):
    def forward(self, x):
        raise RuntimeError("not today")
def failing(): return subject(Raises())
def constant(): return subject(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).requires_grad_(False).apply(zero))
def zero(layer):
    if isinstance(layer, nn.Linear):
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("text", "mine:text() returned 'a network': expected a network"),
        ("nothing", "mine:nothing() returned None: expected a network"),
        ("argument", "mine:argument() failed: TypeError: "),
        ("raises", "mine:raises() failed: ValueError: two lines"),
        ("leaves", "mine:leaves() failed: SystemExit"),
        ("variable", "mine:variable is 7: expected a function"),
        ("missing", "'mine' has no 'missing'"),
        ("training", "the network is in train mode: 3 (Dropout) behaves differently there"),
        ("nan", "finite"),
        ("images", "expected"),
        ("wide", "mat1 and mat2 shapes cannot be multiplied"),
        ("scalar", "the network returned Tensor float32 () for 2 samples"),
        ("failing", "not today"),
        ("constant", "nothing to contrast 'photo.png' with"),
    ],
)
def test_a_function_that_gives_no_sound_network(ig2, name, said):
    ig2.module(BROKEN)
    photo = ig2.photo()
    before = ig2.files()
    result = ig2("explain", photo, "-m", f"mine:{name}")
    *assumed, error = result.err.splitlines()
    assert (result.code, result.out) == (1, "") and said in error
    assert all("bare network; assumed" in line for line in assumed) and len(assumed) <= 1
    assert ig2.files() == before


def test_a_network_in_train_mode_is_put_in_eval_mode_and_gives_one_answer(ig2):
    ig2.module("""
def dropping():
    torch.manual_seed(0)
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.5), nn.Linear(48, 4)).train()
""")
    photo = ig2.photo()
    found = []
    for out in ("a", "b"):
        said = ig2("explain", photo, "-m", "mine:dropping", "--method", "ig", "--steps", 2, "-o", out)
        assert said.code == 0 and re.search(r"IG +sums to the change in the output\b", said.out)
        found.append(Attribution.load(Path(out, "ig.safetensors")).values)
    assert torch.equal(*found)


def test_modules_that_cannot_be_imported(ig2):
    photo = ig2.photo()
    Path("raising.py").write_text("1 / 0")
    Path("leaving.py").write_text("import sys; sys.exit(0)")
    Path("broken.py").write_text("def net(:")
    Path("lacking.py").write_text("import no_such_package_anywhere")
    for model, said in (
        ("raising:net", "raising:net: importing 'raising' failed: ZeroDivisionError: division by zero"),
        ("leaving:net", "leaving:net: importing 'leaving' failed: SystemExit"),
        ("broken:net", "broken:net: importing 'broken' failed: SyntaxError"),
        ("lacking:net", "ModuleNotFoundError: No module named 'no_such_package_anywhere'"),
        ("nowhere:net", "there is no module 'nowhere'"),
        ("nowhere.pt", "nowhere.pt does not exist"),
        ("", "a model is named by a string"),
        ("raising.py", "raising.py is no model"),
        (".", ". is a folder: name a file in it"),
    ):
        assert said in ig2.refused("explain", photo, "-m", model)


class Malicious:
    """Unpickled, it makes a folder."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("how", ["torch", "pickle", "inside"])
def test_a_pickle_that_would_run_something_does_not(ig2, how):
    ig2.module()
    photo, path = ig2.photo(), Path("evil.pt")
    if how == "torch":
        torch.save(Malicious(), path)
    elif how == "pickle":
        path.write_bytes(pickle.dumps(Malicious()))
    else:
        torch.save({"state_dict": {"1.weight": Malicious()}}, path)
    for model in ("evil.pt", "mine:net@evil.pt"):
        line = ig2.refused("explain", photo, "-m", model)
        assert "evil.pt is a pickled object" in line and "is not opened" in line
    assert not Path("executed").exists()
    pickle.loads(pickle.dumps(Malicious()))  # where it is trusted, it does what it was made for
    assert Path("executed").exists()


def test_weights_that_do_not_fit(ig2):
    ig2.module()
    photo = ig2.photo()
    torch.save({"other.weight": torch.zeros(2, 2)}, "other.pt")
    shapes = {"1.weight": (2, 2), "1.bias": (16,), "4.weight": (3, 16), "4.bias": (3,)}
    torch.save({name: torch.zeros(shape) for name, shape in shapes.items()}, "shape.pt")
    torch.save([1, 2, 3], "list.pt")
    Path("torn.safetensors").write_bytes(b'\x10\0\0\0\0\0\0\0{"a":')
    Path("text.pt").write_text("not weights")
    for weights, said in (
        ("other.pt", "the weights of other.pt are another network's: 4 of 4 are missing ('1.weight'), 1 are not known"),
        ("shape.pt", "shape.pt: '1.weight' is (2, 2), the network's is (16, 192)"),
        ("list.pt", "list.pt holds list of 3 (1, 2, 3): expected named tensors, a state dict"),
        ("torn.safetensors", "torn.safetensors is a broken file of weights"),
        ("text.pt", "text.pt is no model"),
        ("nowhere.pt", "nowhere.pt does not exist"),
    ):
        assert said in ig2.refused("explain", photo, "-m", f"mine:net@{weights}")
    assert "holds 1 tensors and no network" in ig2.refused("explain", photo, "-m", "other.pt")


# -- nowhere to write --------------------------------------------------------------------------------------------------


def test_an_out_folder_that_is_none(ig2, refused):
    photo = ig2.photo()
    Path("file").write_text("here")
    Path("dead").symlink_to("nowhere")
    for out, said in (
        ("file", "--out file is a file"),
        ("file/inside", "--out file/inside is a file"),
        ("dead", "--out dead is a file"),
        ("/proc/nowhere", "--out /proc/nowhere cannot be written to: No such file or directory"),
        ("x" * 300, "cannot be written to: File name too long"),
    ):
        assert said in refused(photo, "--out", out)
    Path("out/report.html").mkdir(parents=True)
    assert "out/report.html exists already" in refused(photo, "--out", "out")


@contextmanager
def small_disk(limit):
    """No file may be larger than this many bytes; what is written beyond fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("full_at", ["picture", "numbers", "report"])
def test_a_disk_that_is_full(ig2, monkeypatch, full_at):
    ig2.module()
    photo = ig2.photo()
    asked = ("explain", photo, "-m", "mine:small", "--steps", 1, "-o", "new/out")
    if full_at == "numbers":  # pictures are the larger files, and come first
        monkeypatch.setattr(cli_files, "draw_input", lambda *_: Image.new("1", (1, 1)))
        monkeypatch.setattr(Image.Image, "savefig", lambda self, path, **_: self.save(path, "png"), raising=False)
    files = ig2.files()
    with small_disk(60_000 if full_at == "report" else 1_000):
        said = ig2(*asked)
    assert said.code == 1 and said.out == ""
    assert re.match(r"new/out cannot be written to: .*File too large", said.error)
    assert ig2.files() == files
    assert ig2(*asked).code == 0  # with room it works


def test_a_disk_that_is_full_when_files_are_moved(ig2, refused, monkeypatch):
    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device", source)

    photo = ig2.photo()
    monkeypatch.setattr(cli_files.os, "replace", full)
    assert refused(photo, "-o", "out") == "out cannot be written to: No space left on device"


def test_the_check_that_nothing_is_left_can_fail(ig2, monkeypatch):
    ig2.module()
    photo = ig2.photo()
    monkeypatch.setattr(cli_files.shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setattr(pages.Pages, "describe", lambda self, *_: (self.folder / "half").write_text("") or 1 / 0)
    with pytest.raises(AssertionError):
        ig2.refused("explain", photo, "-m", "mine:small", "--steps", 1)
