"""What a method returns: its numbers, its parts, its files, and the way it speaks."""

import json
import pickle
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2 import Attribution
from ig2.errors import InputError, MissingExtraError
from ig2.methods import Result
from ig2.names import Names
from networks import data, made, refuses, tanh_mlp, uniform


def network() -> Any:
    return made(lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))


X, REFERENCES = uniform(5, 4, seed=1), uniform(2, 4, seed=2)


def full(**options: Any) -> Attribution:
    """An attribution with every field there is."""
    keep = {"curves": True, "per_reference": True, "paths": True, **options}
    return ig2.IG2(steps=3, step_size=0.1)(network(), X, references=REFERENCES, **keep)


def structured(named: bool = False) -> Attribution:
    whole = network()
    method = ig2.IG2(steps=3, step_size=0.1)
    if named:
        x, references = ({"a": t[:, :1], "b/c": t[:, 1:]} for t in (X, REFERENCES))
        forward = lambda **parts: whole(torch.cat([parts["a"], parts["b/c"]], dim=1))  # noqa: E731
        return method(forward, x, references=references, paths=True)
    return method(
        lambda a, b: whole(torch.cat([a, b], 1)), (X[:, :1], X[:, 1:]), references=(REFERENCES[:, :1], REFERENCES[:, 1:])
    )


def by_hand(values: Any, output: Any, baseline: Any = None) -> Attribution:
    values, output = torch.as_tensor(values), torch.as_tensor(output)
    target = torch.zeros(len(output), dtype=torch.long)
    baseline = None if baseline is None else torch.as_tensor(baseline)
    outputs = None if baseline is None else baseline[:, None]
    return Attribution(values, outputs, explicand=values, target=target, output=output, settings={"method": "Hand"})


def tensors(result: Attribution) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for item in fields(result):
        value = getattr(result, item.name)
        if isinstance(value, Tensor):
            found[item.name] = value
        elif isinstance(value, (tuple, dict)) and item.name != "settings":
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            found.update({f"{item.name}/{key}": part for key, part in parts if isinstance(part, Tensor)})
    return found


def assert_equal(one: Attribution, other: Attribution) -> None:
    left, right = tensors(one), tensors(other)
    assert list(left) == list(right)
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype
        assert torch.equal(tensor, right[name]), name


# -- fields --------------------------------------------------------------------------------------------------------------


def test_the_fields_that_say_they_are_of_references_are_and_are_joined():
    references, options = torch.cat([REFERENCES] * 3)[:5], {"curves": True, "per_reference": True, "paths": True}
    method = ig2.IG2(3, fallback="straight")
    everything = method(tanh_mlp(4), X, 1, references, **options)
    of_references = {f.name for f in fields(Result) if f.metadata.get("of_references")}
    for item in fields(Result):
        value = getattr(everything, item.name)
        assert value is not None or item.name == "weights", item.name  # those are None where all count alike
        if isinstance(value, Tensor):
            assert (value.ndim > 1 and value.shape[1] == 5) == (item.name in of_references), item.name
    parts = [method(tanh_mlp(4), X, 1, references[i : i + 2], **options) for i in (0, 2, 4)]
    joined = Attribution.join_references(parts)
    assert set(joined) == of_references - {"weights"}
    for name, value in joined.items():
        torch.testing.assert_close(value, getattr(everything, name), rtol=1e-12, atol=1e-12)


def test_left_ig_up_to_the_end_of_the_line_has_all_that_its_path_and_rule_have():
    options = {"curves": True, "per_reference": True, "paths": True}
    linear = nn.Linear(X.shape[1], 3).double()
    method = ig2.methods.PathMethod(ig2.paths.Straight(4), ig2.references.Zeros(), ig2.rules.blended)
    expected = tensors(method(linear, X, 1, references=REFERENCES, **options))
    found = tensors(ig2.LeftIG(4, 1.0, ig2.rules.blended)(linear, X, 1, REFERENCES, **options))
    assert {"trust", "output_curve", "paths", "per_reference"} <= set(found) == set(expected)


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_the_numbers_fit_together():
    result = full()
    assert torch.allclose(result.total, result.values.sum(1))
    assert torch.allclose(result.residual, result.values.sum(1) - (result.output - result.baseline_output))
    assert torch.allclose(result.baseline_output, result.baseline_outputs.mean(1))
    assert torch.allclose(result.values, result.per_reference.mean(1))
    assert torch.allclose(result.spread, result.per_reference.std(1))
    assert torch.allclose(result.gradcfe, X - result.gradcf.mean(1))
    assert torch.equal(result.explicand, X)
    assert torch.equal(result.paths[:, :, 0], X[:, None].expand(-1, 2, -1))
    assert torch.equal(result.paths[:, :, -1], result.gradcf)
    assert result.paths.shape == (5, 2, 4, 4) and result.output_curve.shape == result.distance_curve.shape == (5, 2, 4)
    assert torch.allclose(result.output_curve[:, :, 0], result.output[:, None].expand(-1, 2))
    assert torch.allclose(result.output_curve[:, :, -1], result.baseline_outputs)
    assert torch.equal(result.target, network()(X).argmax(1))
    assert (result.distance_curve[..., -1] < result.distance_curve[..., 0]).all()
    assert result.trust.shape == (5, 2) and ((result.trust >= 0) & (result.trust <= 1)).all()


def test_the_settings_say_what_made_it():
    settings = full(seed=3).settings
    assert settings["method"] == "IG2" and settings["seed"] == 3
    assert settings["parts"]["path"]["steps"] == 3 and settings["parts"]["rule"]["name"] == "blended"
    assert settings["references"] == {"type": "Given", "samples": "Tensor float64 (2, 4)"}
    assert "Sequential" in settings["model"]
    assert settings["versions"] == {"ig2": ig2.__version__, "torch": torch.__version__}
    json.dumps(settings)


@pytest.mark.parametrize(
    ("values", "output", "baseline", "sentence"),
    [
        ([[1.0, 2.0]], [4.0], [1.0], "sums to the change in the output"),
        ([[1.0, 2.0]], [4.0], [1.1], "sums to the change in the output within 3.4%"),
        ([[1.0, 2.0]], [4.0], [3.0], "does NOT sum to the change in the output (off by 200%): try a complete rule"),
        ([[1.0, 2.0]], [4.0], [4.0], "does NOT sum to the change in the output (which is zero): try a complete rule"),
        ([[1.0, -1.0]], [4.0], [4.0], "sums to the change in the output, which is zero"),
        ([[0.0, 0.0]], [4.0], [4.0], "has nothing to explain, since the output at x is that at its baselines"),
        (
            [[1.0, 2.0], [0.0, 0.0], [0.0, 3.0]],
            [4.0, 4.0, 4.0],
            [1.0, 4.0, 1.0],
            "sums to the change in the output for 2 of 3 explicands; has nothing to explain for 1 of 3 explicands, since",
        ),
        (
            [[3.0], [3.0]],
            [4.0, 4.0],
            [1.0, 3.0],
            "sums to the change in the output for 1 of 2 explicands; does NOT sum to the change in the output for 1 of 2 "
            "explicands (off by 200%)",
        ),
        (
            [[3.0], [3.171]],
            [4.0, 4.0],
            [1.0, 1.0],
            "sums to the change in the output within 5.7% (1 is off by 0.1% or more)",
        ),
        (
            [[3.0], [3.06], [3.171], [6.0], [1.5]],
            [4.0] * 5,
            [1.0] * 5,
            "sums to the change in the output within 5.7% for 3 of 5 explicands (2 are off by 0.1% or more); does NOT sum to "
            "the change in the output for 2 of 5 explicands (off by up to 100%): try a complete rule",
        ),
        (
            [[3.0], [6.0], [9.0]],
            [4.0] * 3,
            [1.0, 1.0, 4.0],
            "does NOT sum to the change in the output for 2 of 3 explicands (off by up to 100%, or with no change to sum to); "
            "sums to the change in the output for 1 of 3 explicands: try a complete rule",
        ),
        ([[1.0, 2.0]], [4.0], None, "has no baseline, so its sum stands for nothing"),
        ([[0.0, 0.0]], [4.0], None, "is zero everywhere, since the gradient at x is"),
    ],
)
def test_the_verdict(values: Any, output: Any, baseline: Any, sentence: str):
    result = by_hand(values, output, baseline)
    assert result.verdict.startswith(sentence)
    assert result.verdict in repr(result)


def test_the_verdict_says_whether_to_believe_the_signs():
    whole = by_hand([[1.0, 2.0], [1.0, 2.0]], [4.0, 4.0], [1.0, 1.0])
    whole = replace(whole, settings={**whole.settings, "complete": True})
    assert whole.verdict == "sums to the change in the output by construction"
    off = replace(whole, values=torch.tensor([[1.0, 2.0], [1.0, 2.171]]))
    assert off.verdict.startswith("sums to the change in the output by construction for 1 of 2 explicands; sums to the change "
                                  "in the output within 5.7% for 1 of 2 explicands")  # fmt: skip
    trusted, mixed, rough = (replace(whole, trust=torch.tensor(trust)) for trust in ([[0.9]] * 2, [[0.9], [0.1]], [[0.1]] * 2))
    assert "signs can be believed" in trusted.verdict
    assert "not its signs for 1 of 2 explicands, since" in mixed.verdict and "believed too for 1 of 2" in mixed.verdict
    assert "believe its strength, not its signs, since the gradient does not predict the output" in rough.verdict
    assert "trust     0.9, 0.1\n" in repr(mixed)


def test_rounding_is_not_held_against_an_attribution():
    output = torch.tensor([1000.0])
    rounded = by_hand([[0.0, 0.0]], output, output * (1 + 1e-7))
    assert float(rounded.output - rounded.baseline_output) != 0
    assert rounded.verdict.startswith("has nothing to explain")
    assert by_hand([[0.0, 0.0]], output, output * (1 + 1e-5)).verdict.startswith("does NOT")


@pytest.mark.parametrize("ends", [(1000.0, 0.0), (0.0, 1000.0), (500.0, -500.0)])
def test_the_rounding_is_that_of_both_outputs(ends: tuple[float, float]):
    output, baseline = torch.tensor([ends[0]]), torch.tensor([ends[1]])
    change = output - baseline  # of 1000 in float32, whose rounding is a little below 1e-3
    within, beyond = (by_hand((change * (1 + share))[:, None], output, baseline).relative_residual for share in (5e-7, 2e-6))
    assert float(within) == 0.0 and float(beyond) == pytest.approx(2e-6, rel=0.05)


def test_the_repr_is_readable():
    assert repr(by_hand([[1.0, 2.0], [3.0, 4.0]], [4.0, 0.5], [1.0, -6.5])) == (
        "Attribution of 2 explicands by Hand\n"
        "  values    (2, 2)\n"
        "  target    0, 0\n"
        "  output    4, 0.5\n"
        "  baseline  1, -6.5\n"
        "  residual  0, 0\n"
        "  sums to the change in the output"
    )
    assert "target    " in repr(full()) and ", …" in repr(full())
    assert "by IG2" in repr(full()[0]) and "1 explicand by" in repr(full()[0])
    assert "(5, 1), (5, 3)" in repr(structured())


# -- parts and wholes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "rows"),
    [
        (0, [0]),
        (-1, [4]),
        (np.int64(2), [2]),
        (torch.tensor(2), [2]),
        (slice(1, 3), [1, 2]),
        (slice(None, None, 2), [0, 2, 4]),
        (slice(4, 1), []),
        ([3, 1], [3, 1]),
        ([-1, 0, 0], [4, 0, 0]),
        ((2, 0), [2, 0]),
        ([], []),
        ([True, False, False, True, False], [0, 3]),
        (np.array([1, 2]), [1, 2]),
        (torch.tensor([False, True, False, False, False]), [1]),
        (torch.tensor([], dtype=torch.long), []),
    ],
)
@pytest.mark.parametrize("make", [full, structured, lambda: structured(named=True)])
def test_indexing(make: Callable[[], Attribution], which: Any, rows: list[int]):
    result = make()
    part = result[which]
    assert len(part) == len(rows)
    for name, tensor in tensors(part).items():
        assert torch.equal(tensor, tensors(result)[name][rows]), name
    assert part.settings == result.settings
    repr(part)


def test_indexing_beyond_the_end():
    result = full()
    for which in (5, -6, [0, 5], torch.tensor(7), [True, False]):
        with pytest.raises(IndexError, match="of 5"):
            result[which]
    for which in ([0.5], torch.zeros(1, 1, dtype=torch.long), True):
        with pytest.raises(InputError, match="index an Attribution by"):
            result[which]
    assert [int(one.target) for one in result] == result.target.tolist()


@pytest.mark.parametrize("make", [full, structured, lambda: structured(named=True)])
def test_joining_undoes_indexing(make: Callable[[], Attribution]):
    result = make()
    joined = Attribution.join([result[:2], result[2], result[3:]])
    assert_equal(joined, result)
    assert joined.settings == result.settings
    assert_equal(Attribution.join([result]), result)


def test_joining_lists_what_differs():
    one, two = full(seed=1), full(seed=2)
    assert Attribution.join([one, two]).settings["seed"] == [1, 2]
    assert one.settings["seed"] == 1  # and leaves the parts as they are


def test_joining_what_does_not_belong_together_is_refused():
    result = full()
    refuses(InputError, "nothing to join", lambda: Attribution.join([]))
    with pytest.raises(InputError, match="method IG2 and ExpectedIG"):
        Attribution.join([result, ig2.ExpectedIG(3)(network(), X, references=REFERENCES)])
    other_steps = ig2.IG2(steps=4, step_size=0.1)(network(), X, references=REFERENCES)
    refuses(InputError, r"not made alike: parts .*'steps': 3.*'steps': 4", lambda: Attribution.join([result, other_steps]))
    refuses(InputError, "some have per_reference and others do", lambda: Attribution.join([result, full(per_reference=False)]))
    wide = replace(result, values=torch.zeros(5, 9))
    refuses(InputError, r"values differ in shape: list of 2 \(Tensor float64 \(5,", lambda: Attribution.join([result, wide]))
    for other in (structured(), structured(named=True)):
        for pair in ([result, other], [other, result]):
            alike = [
                replace(part, settings={}, paths=None, per_reference=None, output_curve=None, distance_curve=None)
                for part in pair
            ]
            with pytest.raises(InputError, match="values differ in shape"):
                Attribution.join(alike)


def test_moving_to_a_device_keeps_the_types():
    result = full()
    assert_equal(result.to("cpu"), result)
    assert_equal(result.to(torch.device("cpu")), result)
    assert next(iter(result.to("meta").values)).device.type == "meta"


# -- fields of one's own -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured(Attribution):
    """An attribution with more fields."""

    depth: Tensor | None = None
    places: list[str] | None = None
    unit: str = field(default="", metadata={"unrowed": True})
    version: int = field(default=0, metadata={"unrowed": True})


def measured() -> Measured:
    result = full()
    own = {name.name: getattr(result, name.name) for name in fields(result)}
    own |= {"extra": {"age": torch.arange(5.0), "hue": ["red", "blue", "grey", "red", ""], "box": torch.rand(5, 4)}}
    own |= {"note": "drawn twice", "depth": torch.rand(5, 2), "places": list("abcde"), "unit": "mm"}
    return Measured(**own)


def test_fields_of_ones_own_go_wherever_the_others_go(tmp_path: Path):
    result = measured()
    result.save(tmp_path / "a")
    loaded = Measured.load(tmp_path / "a")
    joined = Measured.join([result[:2], result[[2]], result[3:]])
    for same in (loaded, joined, result.to("cpu"), result[:]):
        assert type(same) is Measured and list(same.extra) == ["age", "hue", "box"]
        assert_equal(same, result)
        assert (same.extra["hue"], same.places, same.unit, same.note) == (
            result.extra["hue"], list("abcde"), "mm", "drawn twice",
        )  # fmt: skip
    part = result[[3, 1]]
    assert part.extra["age"].tolist() == [3, 1] and part.extra["hue"] == ["red", "blue"] and part.places == ["d", "b"]
    assert torch.equal(part.extra["box"], result.extra["box"][[3, 1]]) and torch.equal(part.depth, result.depth[[3, 1]])
    assert result.to("meta").extra["age"].device.type == "meta"
    assert result.smooth(0).extra is result.extra and result.unit == "mm"


def test_notes_that_differ_are_joined_and_other_differences_are_refused():
    one, two = full()[:1], full()[1:]
    assert Attribution.join([one, two]).note == ""
    assert Attribution.join([replace(one, note="a"), two, replace(two, note="b"), replace(one, note="a")]).note == "a; b"
    for extra in ({}, {"b": [1]}, {"a": [1], "b": [1]}):
        parts = [replace(one, extra={"a": [1]}), replace(one, extra=extra)]
        for pair in (parts, parts[::-1]):
            refuses(InputError, "cannot join: extra differ", lambda pair=pair: Attribution.join(pair))
    own = measured()
    refuses(InputError, "version differ.*1.*2", lambda: Measured.join([replace(own, version=1), replace(own, version=2)]))


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"age": torch.zeros(4)}, r"extra\['age'\] is Tensor float32 \(4,\): .* a row for each of 5 explicands"),
        ({"age": [1, 2]}, "is list of 2"),
        ({"age": torch.tensor(1.0)}, "a row for each"),
        ({"age": "young"}, "is 'young'"),
        ({"an age": [1] * 5}, "expected a name"),
        ({"age": [1, 2, 3, 4, [5]]}, "a list of texts or one of numbers"),
        ({"age": [1, 2, 3, 4, "5"]}, "a list of texts or one of numbers"),
        ({"age": [None] * 5}, "a list of texts or one of numbers"),
    ],
)
def test_fields_of_ones_own_that_have_no_rows_are_refused(extra: Any, words: str):
    refuses(InputError, words, lambda: replace(full(), extra=extra))


@dataclass(frozen=True)
class Remarking(ig2.Gradient):
    """A method with fields of its own."""

    def run(self, task: Any, references: Any, keep: Any) -> Result:
        found = super().run(task, references, keep)
        return replace(found, note="made once", extra={"slope": found.values.norm(dim=1), "kind": ["steep"] * len(task)})


def test_a_method_returns_fields_of_its_own():
    found = Remarking()(network(), X)
    assert found.note == "made once" and found.extra["kind"] == ["steep"] * 5
    assert torch.allclose(found.extra["slope"], found.values.norm(dim=1))
    assert "  note      made once\n" in repr(found) and "  kind      steep; steep; steep; steep; …\n" in repr(found)


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [full, structured, lambda: structured(named=True), lambda: full()[[]]])
def test_saving_and_loading(make: Callable[[], Attribution], tmp_path: Path):
    result, file = make(), tmp_path / "a.safetensors"
    result.save(file)
    loaded = Attribution.load(file)
    assert_equal(loaded, result)
    assert loaded.settings == result.settings
    assert repr(loaded) == repr(result)
    result[:1].save(str(file))  # over the old one, by a plain name
    assert_equal(Attribution.load(str(file)), result[:1])


def test_views_and_half_precision_can_be_saved(tmp_path: Path):
    values = uniform(3, 4).t()[:3]
    result = replace(by_hand(values, torch.zeros(3)), explicand=values.bfloat16())
    result.save(tmp_path / "a")
    assert_equal(Attribution.load(tmp_path / "a"), result)


class Trap:
    """Unpickling it leaves a trace."""

    sprung = False

    def __reduce__(self) -> Any:
        return setattr, (Trap, "sprung", True)


def test_files_that_hold_no_attribution_are_refused(tmp_path: Path):
    from safetensors.torch import save_file

    file = tmp_path / "a.safetensors"
    full().save(file)
    whole = file.read_bytes()
    header = json.loads(whole[8 : 8 + struct.unpack("<Q", whole[:8])[0]])

    def attempt(content: bytes, text: str) -> None:
        other = tmp_path / "other"
        other.write_bytes(content)
        refuses(InputError, text, lambda: Attribution.load(other))

    attempt(b"", "other is not a safetensors file")
    attempt(whole[:7], "is not a safetensors file")
    attempt(whole[:100], "is not a safetensors file")
    attempt(whole[:-1], "is not a safetensors file")
    attempt(b"\xff" * 400, "is not a safetensors file")
    attempt(pickle.dumps(Trap()), "is not a safetensors file")
    torch.save(Trap(), tmp_path / "torch.pt")
    attempt((tmp_path / "torch.pt").read_bytes(), "is not a safetensors file")
    assert not Trap.sprung
    pickle.loads(pickle.dumps(Trap()))
    assert Trap.sprung  # the trap works

    save_file({"values": torch.zeros(3)}, tmp_path / "foreign")
    attempt((tmp_path / "foreign").read_bytes(), "holds no attribution: its format is None, expected 'ig2.attribution/1'")
    metadata = header["__metadata__"]
    for change, text in (
        ({"settings": "{"}, "says it holds an attribution, and does not"),
        ({"structure": '{"values": ["a"]}'}, "says it holds an attribution, and does not: 'values/a'"),
    ):
        save_file({"values": torch.zeros(3)}, tmp_path / "foreign", metadata={**metadata, **change})
        attempt((tmp_path / "foreign").read_bytes(), text)
    for names in (["values"], ["values", "explicand", "target", "output", "surprise"]):
        save_file({name: torch.zeros(3) for name in names}, tmp_path / "foreign", metadata=metadata)
        attempt((tmp_path / "foreign").read_bytes(), "says it holds an attribution, and does not")
    with pytest.raises(FileNotFoundError):
        Attribution.load(tmp_path / "nowhere")
    refuses(FileNotFoundError, r"no folder .*nowhere to save in", lambda: full().save(tmp_path / "nowhere" / "a"))


def test_files_without_safetensors_say_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    refuses(MissingExtraError, r"pip install 'ig2\[io\]'", lambda: full().save(tmp_path / "a"))


# -- SHAP --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_shap_explanation():
    shap = pytest.importorskip("shap")
    result = ig2.IG2(steps=20, rule=ig2.rules.shared)(network(), X, references=REFERENCES)
    explanation = result.to_shap(feature_names=["a", "b", "c", "d"])
    assert isinstance(explanation, shap.Explanation)
    assert np.array_equal(explanation.values, result.values.numpy())
    assert np.allclose(explanation.base_values + explanation.values.sum(1), result.output.numpy())
    row = explanation[2]
    assert np.array_equal(row.data, X[2].numpy()) and row.feature_names == ["a", "b", "c", "d"]
    assert row.base_values == pytest.approx(float(result.baseline_output[2]))
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    shap.plots.waterfall(row, show=False)
    shap.plots.bar(explanation, show=False)
    plt.close("all")


@pytest.mark.filterwarnings("ignore")
def test_a_shap_explanation_of_structures():
    pytest.importorskip("shap")
    one_of_two = ig2.IntegratedGradients(3)(lambda x, m: (x * m).sum(1), (X, ig2.Fixed(X)))
    assert np.array_equal(one_of_two.to_shap().values, one_of_two.values[0].numpy())
    refuses(InputError, "a single tensor, this one is of 2", lambda: structured().to_shap())
    gradcfe = ig2.GradCFE(steps=2)(network(), X, references=REFERENCES)
    assert (gradcfe.to_shap().base_values == 0).all()


def test_a_saved_file_has_the_usual_rights_and_a_failed_write_says_why(tmp_path):
    path = tmp_path / "a.safetensors"
    full().save(path)
    (tmp_path / "plain").write_bytes(b"")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    if Path("/dev/full").exists():
        refuses(OSError, "No space left", lambda: full().save("/dev/full"))


def test_an_attribution_says_what_it_took():
    net = tanh_mlp()
    found = ig2.IG2(steps=5)(net, data(3, 6), references=data(4, 6, seed=1), batch_size=7)
    assert found.cost.points == 7 and found.cost.seconds > 0 and found.cost.peak_bytes > 2**20
    assert str(found.cost).endswith("MiB") and "7 points at once" in str(found.cost)
    assert found[:2].cost == found.cost and ig2.Attribution.join([found[:1], found[1:]]).cost is None


def test_an_estimate_counts_every_step_before_any_is_taken(monkeypatch: pytest.MonkeyPatch):
    net, x, references = tanh_mlp(), data(3, 6), data(4, 6, seed=1)
    clock = iter(range(100))
    monkeypatch.setattr("ig2.methods.path.time.perf_counter", lambda: float(next(clock)))  # a pass takes a second
    short, long = (ig2.IG2(steps=steps).estimate(net, x, references) for steps in (20, 20_000))
    assert short.points == long.points == 12 and short.peak_bytes == long.peak_bytes > 0
    assert (short.seconds, long.seconds) == (21, 20_001)  # all 12 pairs at once, at every vertex
    assert ig2.IntegratedGradients(50).estimate(net, x).points == 3
    assert ig2.IG2(steps=5).estimate(net, x, references, batch_size=2).points == 2


# -- names -------------------------------------------------------------------------------------------------------------


def named(count: int = 5) -> Attribution:
    rows = range(count)
    names = Names(
        "bars", tuple(f"row {i}" for i in rows), ("cat", "dog", "eel"), units=(("a", "b", "c"),) * count,
        groups=((0, 1, -1, 1),) * count, cells=tuple((str(i), "x", "y") for i in rows), becomes=(("9", "x", "y"),) * count,
    )  # fmt: skip
    return full()[:count].with_names(names)


def test_names_are_kept_in_parts_wholes_and_files(tmp_path: Path):
    result = named()
    assert result[[3, 1]].names.cells == (("3", "x", "y"), ("1", "x", "y")) and result[[]].names.samples == ()
    assert result.to("cpu").names == result.names
    assert Attribution.join([result[:2], result[2:]]).names == result.names
    for part in (result, result[:1], result[[]]):
        part.save(tmp_path / "a")
        assert Attribution.load(tmp_path / "a").names == part.names and repr(Attribution.load(tmp_path / "a")) == repr(part)
    refuses(InputError, "some have names", lambda: Attribution.join([result, full()]))
    other = replace(result, names=replace(result.names, classes=("x", "y", "z")))
    refuses(InputError, "classes of their names differ", lambda: Attribution.join([result, other]))
    refuses(InputError, "of 5 explicands, the attribution is of 2", lambda: full()[:2].with_names(result.names))
    refuses(InputError, "rows of units", lambda: replace(result.names, units=(("a",),) * 2))
    refuses(InputError, "belong together", lambda: replace(result.names, groups=None))
    from safetensors.torch import load_file, save_file

    result.save(tmp_path / "a")
    header = {"format": "ig2.attribution/1", "settings": "{}", "structure": "{}"}
    for content in ("{", "[]", "{}", '{"samples": ["a"], "kind": "table"}', '{"samples": [], "surprise": 1}'):
        save_file(load_file(tmp_path / "a"), tmp_path / "b", metadata={**header, "names": content})
        refuses(InputError, "says it holds an attribution, and does not", lambda: Attribution.load(tmp_path / "b"))


def test_every_row_of_names_is_its_own_in_parts_wholes_and_files():
    count = 3
    rows: dict[str, Any] = {
        name: tuple((f"{name} {row}", f"{name} {9 - row}") for row in range(count))
        for name in ("units", "cells", "becomes", "references", "reference_classes")
    }
    rows |= {name: tuple(f"{name} {row}" for row in range(count)) for name in ("samples", "predictions", "questions", "why")}
    rows["groups"] = ((0, 1), (1, 0), (1, -1))
    shared = {"view": "curve", "classes": ("a", "b"), "outputs": "labels", "time_axis": 2, "rate": 8.0, "channels": ("left",)}
    assert set(rows | shared) == {field.name for field in fields(Names)}
    names = Names(**rows, **shared)
    for part in (names[[2, 0]], Names.join([names[[2]], names[[0]]]), Names.from_json(json.loads(json.dumps(names.to_json())))):
        numbers = [2, 0] if len(part) == 2 else range(count)
        for name, values in rows.items():
            assert getattr(part, name) == tuple(values[row] for row in numbers), name
        assert {name: getattr(part, name) for name in shared} == shared


def test_names_are_shown():
    result = named(2)
    against = replace(result, target=torch.tensor([0, 1]), against=torch.tensor([[1, 2], [2, 2]]))
    assert against.explained == ["cat rather than dog or eel", "dog rather than eel"]
    assert "inputs    row 0; row 1\n" in repr(result)
    values = result.values.double().numpy()
    assert np.allclose(result.sum_units()[1], [values[1, 0], values[1, 1] + values[1, 3], 0])
    frame = result.to_frame()
    assert frame["input"].tolist() == ["row 0"] * 3 + ["row 1"] * 3 and frame["would_become"].tolist()[:3] == ["9", "x", "y"]
    plain = full()[:1].to_frame()
    assert plain["unit"].tolist() == [f"feature {i}" for i in range(4)] and plain["input"].tolist() == [0] * 4
    refuses(InputError, "a single tensor", lambda: structured().to_frame())
    refuses(InputError, "per", lambda: full().to_frame(per="photo"))
    each = full().to_frame(per="input")
    assert len(each) == len(full()) and each["output"].tolist() == full().output.tolist()
    assert each["trust"].tolist() == full().trust.median(dim=1).values.tolist() and "prediction" not in each


@pytest.mark.filterwarnings("ignore")
def test_a_shap_explanation_has_the_names():
    pytest.importorskip("shap")
    explanation = named().to_shap()
    assert explanation.feature_names == ["a", "b", "c"] and explanation.values.shape == (5, 3)
    assert explanation.data[2].tolist() == [2.0, "x", "y"] and explanation.display_data[2].tolist() == ["2", "x", "y"]
    assert named().to_shap(feature_names=list("abcd")).values.shape == (5, 4)
    words = replace(named(2).names, view="words", units=(("a", "b", "c"), ("d", "e")), groups=((0, 1, 2, -1), (0, 1, 1, -1)))
    spoken = full()[:2].with_names(replace(words, cells=None, becomes=None)).to_shap()
    assert spoken[1].data.tolist() == ["d", "e"] and spoken[1].values.shape == (2,)
