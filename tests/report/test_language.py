"""The report of a language model's explanation."""

import re
from dataclasses import replace

import numpy as np
import pytest

import ig2
from browsing import open_screen, ready, shown
from ig2 import modalities
from ig2.errors import InputError
from ig2.modalities.language import Asking
from ig2.report import Content, build_language, render, write
from language import build, make_tokenizer

EACH = Asking(each=True)

PROMPT = "What is the capital? Where are you?"
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


@pytest.fixture(scope="module")
def model():
    return modalities.language.load(build("llama"), make_tokenizer(), name=EVIL)


def test_a_pair_with_its_sentence_numbers_and_reference(model):
    explanation = model.explain("In France people speak", " Italian", " Rome", "In Madrid people speak")
    content = build_language("Why", explanation, "' women' 12%", method="Rescale")
    (view,) = content.inputs
    (method,) = view.methods
    assert view.target == "' Italian' rather than ' Rome'" and view.sentence == explanation.sentences[0]
    assert view.view.name_parts() == ("In", "France", "people", "speak") and view.measure == "log-probability"
    assert method.name == "Rescale" and not content.is_crossed
    assert method.scores == pytest.approx(explanation.word_scores[0])
    assert method.scores.sum() == pytest.approx(method.numbers["output"] - method.numbers["baseline_output"])
    (reference,) = method.references
    assert (reference.label, reference.text) == ("pair", "In Madrid people speak") and "that prompt" in method.question
    page = render(content)
    assert "&#39; Italian&#39; rather than &#39; Rome&#39;, in spite of" in page and "not the class predicted" not in page


def test_a_generation_is_crossed_and_its_spans_add_up(model):
    explanation = model.explain(PROMPT, model.generate_tokens(PROMPT, 3), asking=EACH, per_reference=True)
    content = build_language("Why", explanation)
    assert content.is_crossed and [view.target for view in content.inputs] == explanation.explained
    for row, view in enumerate(content.inputs):
        (method,) = view.methods
        assert method.spans == {name: pytest.approx(sums[row]) for name, sums in explanation.span_scores.items()}
        assert sum(method.spans.values()) == pytest.approx(method.scores.sum())
        for name, total in method.spans.items():
            assert np.mean([reference.spans[name] for reference in method.references]) == pytest.approx(total)
        assert [reference.text for reference in method.references] == explanation.attribution.settings["rather_than"]
    other = build_language("Why", model.explain("In Germany people speak", " Italian and French", asking=EACH))
    with pytest.raises(InputError, match="is_crossed"):
        render(Content("Why", "", (content.inputs[0], other.inputs[0]), is_crossed=True))


@pytest.mark.parametrize("prompt", [PROMPT, "In France people speak"])
@pytest.mark.parametrize("per_reference", [False, True])
@pytest.mark.parametrize("method", [None, ig2.InputXGradient()])
def test_references_have_spans_where_there_are_both(model, prompt, per_reference, method):
    explanation = model.explain(prompt, " Italian", method=method, per_reference=per_reference and method is None)
    (view,) = build_language("Why", explanation).inputs
    (shown,) = view.methods
    spans = {"sentence 1", "sentence 2"} if prompt == PROMPT else set()
    assert shown.spans.keys() == explanation.span_scores.keys() == spans
    assert (len(shown.references) > 0) == (method is None)
    assert all(reference.spans.keys() == (spans if per_reference else set()) for reference in shown.references)


@pytest.mark.parametrize("method", [ig2.KernelSHAP(), ig2.InputXGradient()])
def test_methods_without_paths(model, method):
    render(build_language("Why", model.explain("In Germany people speak", " Italian and French", asking=EACH, method=method)))


def test_what_has_no_place_is_written_beside_the_reference(model):
    explanation = model.explain("In Germany people", rather_than="In France people speak")
    assert "'speak'" in explanation.attribution.note
    assert "'speak'" in build_language("Why", explanation).inputs[0].methods[0].note


def test_strengths_have_no_signs(model):
    method = ig2.IG2(4, distance=ig2.paths.cosine)
    explanation = model.explain(PROMPT, model.generate_tokens(PROMPT, 2), asking=EACH, method=method)
    assert explanation.attribution.median("trust").min() < 0.5
    sentences = [sentence for sentence in explanation.sentences if "strengths" in sentence]
    assert sentences and not any("(+" in sentence for sentence in sentences)


def test_a_token_is_chosen_in_the_map(model, browser, tmp_path):
    """Everything a user or a tokenizer writes is text: a script among it does not run."""
    explanation = model.explain(
        model.read(PROMPT, {EVIL: "Where are"}), model.generate_tokens(PROMPT, 3), asking=EACH, per_reference=True
    )
    words = (EVIL, *explanation.prompt.words[1:])
    explanation = replace(explanation, prompt=replace(explanation.prompt, words=words))
    explanation.attribution.settings["rather_than"] = [EVIL] * 4
    write(build_language(EVIL, explanation, EVIL, {EVIL: EVIL}), tmp_path / "report.html")
    page, trouble, requests = open_screen(browser, viewport={"width": 390, "height": 844})
    page.goto((tmp_path / "report.html").as_uri())
    ready(page)
    scores = explanation.word_scores
    assert page.locator(".crossed tbody th").all_inner_texts() == list(words)
    cells = page.locator(".crossed tbody tr").first.locator("td")
    texts = [float(text.replace("−", "-")) for text in cells.all_inner_texts()]
    assert texts == pytest.approx(scores[:, 0], abs=0.006)
    page.locator(".crossed thead a").nth(1).click()
    page.locator(".crossed thead a[href='#input-2'][aria-current]", has_text=explanation.explained[1]).wait_for()
    assert shown(page, ".sentence").inner_text() == explanation.sentences[1]
    assert shown(page, ".words > span").all_inner_texts() == list(words)
    assert EVIL in shown(page, ".spans").inner_text() and EVIL in shown(page, ".references").inner_text()
    before = shown(page, ".spans tbody").inner_text()
    shown(page, ".references button").nth(1).click()
    assert shown(page, ".spans tbody").inner_text() != before
    cells.nth(2).click()
    page.wait_for_url("**#input-3*")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not trouble and all(re.match("file:|data:|about:", url) for url in requests)
    page.context.close()
