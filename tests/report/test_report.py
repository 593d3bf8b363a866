import base64
import errno
import hashlib
import json
import os
import re
import stat
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import ig2
import reports
from ig2 import InputError, modalities
from ig2.names import list_some
from ig2.report import Content, ReferenceView, build, encoding, page, render, write
from ig2.verdict import NUMBERS, judge
from ig2.views import Bars, Curve, Picture, Words


class Page(HTMLParser):
    """What a browser would make of the page: the tags with their attributes, and the text between them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.text, self.inside = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self.inside.append(tag)

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self.inside.pop()

    def handle_data(self, data):
        (self.text if not self.inside else []).append(data)

    def all(self, tag, **wanted):
        return [found for name, found in self.tags if name == tag and all(found.get(k) == v for k, v in wanted.items())]


def data(text):
    """What the page's script reads."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def page_of(*views):
    """A page with these inputs, as text."""
    return render(Content("t", "m", views))


def changed(view, **changes):
    """An input with one method, changed so: its numbers too."""
    method, own = view.methods[0], {name: changes.pop(name) for name in NUMBERS if name in changes}
    numbers = {name: number for name, number in {**method.numbers, **own}.items() if number is not None}
    return replace(view, methods=(replace(method, numbers=numbers, **changes),))


def words(text):
    """What a reader sees, with single spaces."""
    return " ".join("".join(Page(text).text).split())


def unpacked(packed):
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8)
    wide = packed["bits"] > 8
    whole = planes.reshape(2, -1).T.copy().view("<i2") if wide else planes.view(np.int8)
    return whole.reshape(packed["shape"]) * packed["scale"]


# -- the file ----------------------------------------------------------------------------------------------------------


def test_write_leaves_one_file_that_everyone_may_read(tmp_path):
    before = os.umask(0o022)
    try:
        write(reports.everything(), tmp_path / "report.html")
    finally:
        os.umask(before)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert stat.S_IMODE((tmp_path / "report.html").stat().st_mode) == 0o644
    assert (tmp_path / "report.html").read_text("utf-8") == render(reports.everything())


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_report_and_nothing_else(tmp_path, monkeypatch, step):
    target = tmp_path / "report.html"
    target.write_text("the old one")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "a name nobody knows")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left") as caught:
        write(reports.everything(), target)
    assert caught.value.filename == str(target)
    assert target.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(OSError, match=r"nowhere.*report\.html"):
        write(reports.everything(), tmp_path / "nowhere" / "report.html")


def test_a_content_that_cannot_be_shown_writes_nothing(tmp_path):
    with pytest.raises(InputError):
        write(Content("t", "m", ()), tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_six_photos_by_five_methods_with_eight_references_stay_below_six_megabytes():
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (7, 7, 3), dtype=np.uint8).repeat(32, 0).repeat(32, 1) for _ in range(6 + 8)]

    def method(name):
        # attributions have long tails: most pixels are a hundredth of the strongest or less
        cubes = rng.normal(size=(9, 224, 224)) ** 3
        references = [ReferenceView("abcdefgh"[r], 0.5, Picture(pictures[6 + r]), scores=cubes[1 + r]) for r in range(8)]
        return reports.method(name, cubes[0], references)

    photo = reports.photo(size=(2, 2))
    views = [replace(photo, methods=tuple(map(method, "vwxyz")), view=Picture(picture)) for picture in pictures[:6]]
    assert len(page_of(*views)) < 6e6


# -- what stands in it -------------------------------------------------------------------------------------------------


def test_every_input_has_a_question_tabs_for_its_methods_and_a_link():
    found, text = Page(render(reports.everything())), words(render(reports.everything()))
    for said in ("Why tiger cat rather than espresso, zebra or pizza?", "Why seven rather than one?", "Why over 50K?"):
        assert said in text
    assert "not the class predicted" in text
    assert len(found.all("section", **{"data-input": "0"})) == 1
    assert len(found.all("button", role="tab")) == 2 + 1 + 2 + 1 + 1
    assert [link["href"] for link in found.all("a")] == ["#content", "#input-1", "#input-2", "#input-3", "#input-4", "#input-5"]


def test_many_classes_are_counted_in_the_question_and_named_below():
    names = tuple(f"class {i}" for i in range(8))
    text = words(page_of(replace(reports.digit(), contrasted=names)))
    assert "rather than class 0, class 1, class 2 or 5 others?" in text
    assert ", ".join(names) in text


def test_a_single_input_needs_no_navigation():
    assert not Page(page_of(reports.digit())).all("nav")


def test_a_verdict_is_at_the_top_once_and_beside_each_input_in_a_line():
    top = words(render(reports.everything()).partition("<main")[0])
    assert top.count("IG² sums to the change in the output.") == 1
    assert top.count("Integrated Gradients sums to the change in the output within 1.8%.") == 1
    assert top.count("Gradient has no baseline, so its sum stands for nothing.") == 1
    top = words(render(reports.rough()).partition("<main")[0])
    assert top.count("IG² sums to the change in the output by construction; believe its strength, not its signs for 3") == 1
    off = words(page_of(changed(reports.digit(), residual=99.0)))
    assert re.search(r"IG² does NOT sum to the change in the output \(off by .*\)\. .*What to do try a complete rule", off)
    alike = [replace(reports.digit(), methods=(reports.method(name, np.ones((12, 10))),)) for name in ("IG²", "IG")]
    top, _, main = page_of(*alike).partition("<main")
    assert "Each of IG² and IG sums to the change in the output." in words(top)
    assert "IG² sums to the change in the output." in words(main)
    assert "IG sums to the change in the output." in words(main)


def test_a_single_input_has_its_verdict_beside_it_alone():
    assert words(page_of(reports.digit())).count("IG² sums to the change in the output.") == 1


def test_the_true_class_is_beside_the_prediction():
    right, wrong = (page_of(replace(reports.digit(), label=label)) for label in ("seven", "one"))
    assert '<dd class=""><bdi>seven</bdi>' in right and '<dd class="wrong"><bdi>one</bdi>' in wrong
    assert "Label" not in words(page_of(reports.digit()))


@pytest.mark.parametrize(
    ("changes", "marks", "worst"),
    [
        ({"residual": 0.05}, {"residual": "good"}, "good"),
        ({"residual": -0.2}, {"residual": "poor"}, "poor"),
        ({"residual": None, "baseline_output": None}, {"residual": "none"}, "none"),
        ({"residual": 0.0, "baseline_output": 7.5}, {"residual": "none"}, "none"),
        ({"residual": 0.4, "baseline_output": 7.5}, {"residual": "poor"}, "poor"),
        ({"residual": 0.0, "baseline_output": 7.5, "strength": 0.0}, {"residual": "poor"}, "poor"),
        # what adds up by construction has no tick for it
        ({"residual": 0.0, "complete": 1.0}, {"residual": "none"}, "none"),
        ({"residual": 0.057, "complete": 1.0}, {"residual": "good"}, "good"),
        ({"residual": 0.9, "complete": 1.0}, {"residual": "poor"}, "poor"),
        ({"residual": 0.0, "complete": 1.0, "trust": 0.5}, {"residual": "none", "trust": "good"}, "good"),
        ({"residual": 0.0, "complete": 1.0, "trust": 0.0}, {"residual": "none", "trust": "poor"}, "poor"),
        ({"residual": 0.0, "arrival": 0.4}, {"residual": "good", "arrival": "poor"}, "poor"),
    ],
)
def test_residual_trust_and_arrival_are_marked(changes, marks, worst):
    text = page_of(changed(reports.sentence("a b"), **{"baseline_output": 6.5, **changes}))
    found = data(text)["inputs"][0]["methods"][0]["marks"]
    assert {topic: each["mark"] for topic, each in found.items()} == marks
    assert f'<span class="{worst}" data-method="0"' in text


def test_a_method_has_one_verdict_on_all_inputs_with_one_mark():
    views = [changed(replace(reports.sentence("a b"), name=str(i)), trust=trust) for i, trust in enumerate((0.9, 0.1, 0.8))]
    top = page_of(*views).partition("<main")[0]
    found, text = Page(top), words(top)
    marks = [item["class"] for item in found.all("li") if item.get("class") in ("good", "poor", "none")]
    assert marks == ["poor"] and text.count("IG² sums to the change in the output;") == 1
    assert "believed too for 2 of 3 inputs" in text and "not its signs for 1 of 3 inputs" in text


def test_a_note_and_fields_of_the_user_are_kept_for_the_page():
    view = changed(reports.sentence("a b"), note="<i>drawn twice</i>", extra={"age": 3.0, "hue": "<b>red</b>"})
    kept = data(page_of(view))["inputs"][0]["methods"][0]
    assert kept["note"] == "<i>drawn twice</i>" and kept["extra"] == {"age": 3.0, "hue": "<b>red</b>"}


def test_each_reference_has_marks_of_its_own():
    first = data(render(reports.rough()))["inputs"][0]["methods"][0]
    for topic, marks in {"trust": ["poor", "poor", "good"], "arrival": ["good", "good", "poor"]}.items():
        assert [each["marks"][topic]["mark"] for each in first["references"]] == marks


def test_settings_inside_settings_become_rows():
    parts = {"type": "IG2", "rule": {"type": "_S", "name": "shared"}, "path": {"steps": 5}}
    assert dict(page.list_settings({"seed": 0, "parts": parts})) == {
        "seed": "0",
        "parts": "IG2",
        "parts › rule": "shared",
        "parts › path › steps": "5",
    }


# -- the scores --------------------------------------------------------------------------------------------------------


def test_maps_are_kept_within_the_precision_the_page_states():
    view = reports.photo()
    text = page_of(view)
    kept = data(text)["inputs"][0]["methods"]
    for method, entry in zip(view.methods, kept, strict=True):
        error = np.abs(unpacked(entry["scores"]) - method.scores).max() / np.abs(method.scores).max()
        assert 1e-5 < error < 0.5 / (2**13 - 1) * 1.001
    assert "14 bits a pixel, within 0.006 % of the map’s largest" in text


def test_a_references_map_is_the_mean_of_blocks():
    view = reports.photo()
    text = page_of(view)
    for reference, entry in zip(view.methods[0].references, data(text)["inputs"][0]["methods"][0]["references"], strict=True):
        blocks = reference.scores.reshape(70, 2, 80, 2).mean(axis=(1, 3))
        assert unpacked(entry["scores"]) == pytest.approx(blocks, abs=np.abs(blocks).max() / 253)
    assert "8 bits, as means over 2 × 2 pixels: within 0.4 %" in text


@pytest.mark.parametrize("labels", [("zebra",), ("zebra", "pizza")])
def test_a_map_stands_in_the_page_once(labels):
    """Of the only reference it is the method's own."""
    (shown, _) = data(page_of(reports.photo(labels=labels)))["inputs"][0]["methods"]
    assert [entry["scores"] is not None for entry in shown["references"]] == [len(labels) > 1] * len(labels)
    assert shown["scores"] is not None


def test_channels_of_a_curve_are_not_averaged():
    pooled = encoding.pool_map(np.arange(600.0).reshape(2, 300), Curve())
    assert pooled.shape == (2, 100) and pooled[1, 0] == pytest.approx(301.0)


def test_blocks_at_the_edge_are_means_of_what_is_there():
    scores = np.arange(130.0 * 3).reshape(130, 3)
    pooled = encoding.pool_map(scores, Picture())
    assert pooled.shape == (65, 2)
    assert pooled[0] == pytest.approx([2.0, 3.5])
    assert encoding.pool_map(scores[:128], Picture()) is not scores
    assert encoding.pool_map(scores[:128], Picture()) == pytest.approx(scores[:128])


@pytest.mark.parametrize("value", [0.0, 5e-324, 1e-300, 1e300])
def test_maps_of_any_size_can_be_kept(value):
    kept = unpacked(encoding.pack_map(np.array([[value, -value]]), 14))
    assert kept == pytest.approx(np.array([[value, -value]]), rel=1e-3, abs=1e-320)


def test_words_and_columns_are_kept_exactly():
    view = reports.sentence()
    kept = data(page_of(view))["inputs"][0]["methods"]
    assert [entry["scores"] for entry in kept] == [method.scores.tolist() for method in view.methods]


def test_long_curves_keep_their_ends_and_no_more_points_than_can_be_seen():
    curve = np.random.default_rng(0).normal(size=(3, 2001))
    kept = encoding.encode_curves(curve)
    assert kept["steps"][0] == 0 and kept["steps"][-1] == 2000 and len(kept["steps"]) == 101
    assert np.array(kept["values"]) == pytest.approx(curve[:, kept["steps"]], rel=1e-4)
    assert encoding.encode_curves(curve[:, :2])["steps"] == [0, 1]


def test_a_picture_shown_twice_is_kept_once():
    view = reports.photo()
    assert len(data(page_of(view))["pictures"]) == len(data(page_of(view, view))["pictures"]) == 1 + 3


# -- what comes from outside -------------------------------------------------------------------------------------------


def test_names_from_outside_make_no_elements():
    found, safe = Page(render(reports.hostile())), Page(render(reports.everything()))
    assert len(found.all("script")) == len(safe.all("script")) == 2
    assert all(set(image) <= {"data-picture", "alt", "width", "height"} for image in found.all("img"))
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]
    for name in reports.HOSTILE:
        assert name in "".join(found.text)


def test_data_from_outside_cannot_end_the_script_they_stand_in():
    text = render(reports.hostile())
    block = re.search(r'<script type="application/json" id="data">(.*)</script>\n<script>', text, re.DOTALL)[1]
    assert not set("<>&\u2028\u2029") & set(block)
    assert [view["name"] for view in json.loads(block)["inputs"]] == [view.name for view in reports.hostile().inputs]


def test_a_file_name_that_is_no_text_can_be_written(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    write(Content(name, "m", (replace(reports.digit(), name=name),)), tmp_path / "report.html")
    assert "caf?.png" in (tmp_path / "report.html").read_text("utf-8")


def test_settings_of_any_type_are_shown():
    settings = {"none": None, "array": np.zeros((2, 3)), "infinite": float("inf"), "list": [1, (2.5, "x")], 3: np.float32(0.5)}
    kept = data(page_of(changed(reports.digit(), settings=settings)))["inputs"][0]["methods"][0]["settings"]
    array = "ndarray float64 (2, 3)"
    assert kept == {"none": None, "array": array, "infinite": "inf", "list": [1, [2.5, "x"]], "3": 0.5}


def test_numbers_of_numpy_are_shown():
    view = changed(replace(reports.digit(), probability=np.float32(0.5)), output=np.float32(7.5))
    assert data(page_of(view))["inputs"][0]["probability"] == 0.5


def test_the_policy_allows_this_script_and_nothing_else():
    text = render(reports.everything())
    policy = Page(text).all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = ["img-src data:", "style-src 'unsafe-inline'", f"script-src 'sha256-{digest}'"]
    assert policy.split("; ") == ["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"]


def test_nothing_in_the_page_points_elsewhere():
    text = render(reports.everything())
    rest = re.sub(r"id=\"data\">.*?</script>", "", text, flags=re.DOTALL)
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", rest))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a namespace, which nobody fetches
    assert "@import" not in text and "url(" not in text


# -- what cannot be shown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (replace(reports.digit(), methods=()), "no method to show"),
        (changed(reports.digit(), scores=np.full((12, 10), np.nan)), "not finite"),
        (changed(reports.digit(), scores=np.zeros((3, 12, 10))), r"float64 \(3, 12, 10\): expected \(H, W\)"),
        (changed(reports.digit(), scores=np.zeros((0, 10))), r"expected \(H, W\)"),
        (replace(reports.sentence(), view=Words()), "no words"),
        (changed(reports.sentence(), scores=np.zeros(4)), r"float64 \(4,\): expected \(6,\)"),
        (changed(reports.digit(), output=float("inf")), "not finite"),
        (changed(reports.digit(), residual=float("nan")), "not finite"),
        (changed(reports.digit(), arrival=float("nan")), "arrival"),
        (changed(reports.digit(), output_curve=np.array([[1.0, np.nan]])), "not finite"),
        (changed(reports.digit(), output_curve=np.zeros(5)), "output_curve of IG² of 'digit.png'"),
        (replace(reports.digit(), view=Picture(np.zeros((12, 10, 3)))), "expected uint8"),
        (replace(reports.digit(), view=Picture(np.zeros((12, 10), np.uint8))), "expected uint8"),
        (replace(reports.digit(), probability=float("nan")), "not finite"),
        (replace(reports.row(), view=Bars(("a", "b", "c"), ("1",))), "1 cells for 3 columns"),
        (replace(reports.signal(), view=Curve(("one",), 300)), r"expected \(1, intervals"),
        (
            replace(reports.digit(), methods=(*reports.digit().methods, reports.method("other", np.zeros((10, 12))))),
            r"other of 'digit.png' are ndarray float64 \(10, 12\): expected \(12, 10\)",
        ),
    ],
)
def test_what_cannot_be_shown_is_refused_in_words(view, message):
    with pytest.raises(InputError, match=message):
        page_of(view)


# -- building ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def built():
    """A subject, a batch it read, a contrast, and an attribution by it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).eval()
    rows = [{"age": age, "size": -age} for age in range(5)]
    subject = modalities.table.subject(net, ["age", "size"], ["price"], outputs="numbers", rows=rows)
    batch = subject.read(rows[:2])
    contrast = ig2.Question(against=None, count=2).contrast(subject, batch)
    return subject, batch, contrast, ig2.IG2(steps=2)(subject.model, batch.x, references=contrast.samples)


def test_a_report_is_built_from_attributions_by_name(built):
    subject, batch, contrast, found = built
    content = build("t", subject, batch, {"IG²": found}, {"IG²": contrast})
    assert len(content.inputs) == 2 and content.verdicts == {"IG²": judge(found)}
    for attributions, contrasts, said in (
        (found, None, r"attributions must be .* got Attribution"),
        ({"IG²": found.values}, None, "attributions must be"),
        ({}, None, "at least one"),
        ({"IG²": found}, contrast, "contrasts must go by"),
        ({"IG²": found}, {"IG2": contrast}, "contrasts are for 'IG2'.* 'IG²'"),
    ):
        with pytest.raises(InputError, match=said):
            build("t", subject, batch, attributions, contrasts)


def test_every_reference_brings_its_own_trust_arrival_and_residual(built):
    subject, batch, contrast, _ = built
    found = ig2.IG2(steps=2)(subject.model, batch.x, references=contrast.samples, per_reference=True)
    for i, view in enumerate(build("t", subject, batch, {"IG²": found}, {"IG²": contrast}).inputs):
        (method,) = view.methods
        assert method.numbers["trust"] == pytest.approx(float(found.trust[i].median()))
        for name, values in (
            ("trust", found.trust),
            ("arrival", found.arrival),
            ("reference_output", found.reference_outputs),
            ("output", found.baseline_outputs),
        ):
            assert [getattr(each, name) for each in method.references] == pytest.approx(values[i].tolist())
        residuals = found.per_reference[i].sum(dim=1) - (found.output[i] - found.baseline_outputs[i])
        assert [each.residual for each in method.references] == pytest.approx(residuals.tolist(), abs=1e-9)


def test_curves_and_the_end_of_a_path_are_each_inputs_own(built):
    """Curves of references without a weight are not drawn."""
    subject, batch, contrast, _ = built
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    references = ig2.references.Weighted(contrast.samples, weights)
    found = ig2.IG2(steps=2)(subject.model, batch.x, references=references, curves=True)
    for i, view in enumerate(build("t", subject, batch, {"IG²": found}).inputs):
        (method,) = view.methods
        for name in ("output_curve", "distance_curve"):
            expected = getattr(found, name)[i][weights[i] > 0].double()
            assert getattr(method, name).tolist() == expected.tolist()
        assert method.gradcf.cells == subject.cells(found.gradcf[i, 0])
    assert found.gradcf[:, 0].ne(found.gradcf[:, 1]).any(dim=1).all()


@pytest.mark.parametrize(
    ("count", "said"), [(1, "a"), (2, "a or b"), (3, "a, b or c"), (4, "a, b, c or d"), (5, "a, b, c or 2 others")]
)
def test_contrasted_classes_are_named_as_a_person_would(count, said):
    assert list_some("abcde"[:count]) == said


@pytest.mark.parametrize(("share", "words"), [(1.0, "100"), (0.999, "&gt;99"), (0.994, "99"), (0.05, "5.0")])
def test_what_is_nearly_certain_is_not_shown_as_certain(share, words):
    assert f'<span class="share">{words}\u00a0%</span>' in page_of(replace(reports.digit(), probability=share))
