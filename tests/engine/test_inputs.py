"""What may be explained: one tensor or several, what only comes along, and what is refused."""

from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2._engine.explicands import Explicands
from ig2.errors import InputError, ModelError
from ig2.inputs import Fixed
from networks import Record, made, refuses, uniform


def mlp(features: int = 4, classes: int = 3) -> Any:
    return made(lambda: nn.Sequential(nn.Linear(features, 6), nn.Tanh(), nn.Linear(6, classes)))


X, REFERENCES = uniform(3, 4, seed=1), uniform(2, 4, seed=2)
IG = ig2.IntegratedGradients(6)
METHODS = {
    "IntegratedGradients": IG,
    "ExpectedIG": ig2.ExpectedIG(4),
    "GuidedIG": ig2.GuidedIG(steps=5, max_dist=0.1),
    "IG2": ig2.IG2(steps=5, step_size=0.1),
    "IG2 shared": ig2.IG2(steps=5, rule=ig2.rules.shared),
    "GradCFE": ig2.GradCFE(steps=5, step_size=0.1),
}


# -- several attributed tensors ----------------------------------------------------------------------------------------


class Split(nn.Module):
    """A network of one tensor, called with its columns: two matrices and a number a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = mlp(9)

    def forward(self, image: Tensor, row: Tensor, age: Tensor) -> Tensor:
        return self.whole(torch.cat([image.flatten(1), row, age[:, None]], dim=1))


def cut(whole: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(..., 9) as (..., 2, 3), (..., 2) and (...)."""
    return whole[..., :6].unflatten(-1, (2, 3)), whole[..., 6:8], whole[..., 8]


def laid_out(parts: Any) -> Tensor:
    image, row, age = parts.values() if isinstance(parts, dict) else parts
    return torch.cat([image.flatten(-2), row, age[..., None]], dim=-1)


@pytest.mark.parametrize("named", [False, True], ids=["tuple", "dict"])
@pytest.mark.parametrize("name", METHODS)
def test_several_tensors_are_explained_like_their_concatenation(name: str, named: bool):
    network = made(Split)
    x, references = uniform(3, 9, seed=3), uniform(2, 9, seed=4)
    keys = ("image", "row", "age")
    pack = (lambda parts: dict(zip(keys, parts, strict=True))) if named else tuple
    expected = METHODS[name](network.whole, x, references=references, paths=True, curves=True)
    result = METHODS[name](network, pack(cut(x)), references=pack(cut(references)), paths=True, curves=True)
    for field in ("values", "explicand", "spread", "gradcf", "gradcfe", "paths"):
        one, other = getattr(result, field), getattr(expected, field)
        if other is None:
            assert one is None
            continue
        assert (list(one) == list(keys)) if named else isinstance(one, tuple)
        assert torch.allclose(laid_out(one), other, rtol=1e-12, atol=1e-14)
    for field in ("target", "output", "total", "residual", "output_curve", "distance_curve"):
        one, other = getattr(result, field), getattr(expected, field)
        assert (one is None) == (other is None)
        if one is not None:
            assert torch.allclose(one, other)


def test_references_of_each_explicand_its_own_in_several_tensors():
    network = made(Split)
    x, references = uniform(3, 9, seed=3), uniform(3, 2, 9, seed=4)
    result = METHODS["IG2"](network, cut(x), references=cut(references))
    expected = METHODS["IG2"](network.whole, x, references=references)
    assert torch.allclose(laid_out(result.values), expected.values)


def test_named_inputs_go_by_name_whatever_their_order():
    network = mlp()
    result = IG(lambda left, right: network(torch.cat([left, right], dim=1)), {"right": X[:, 1:], "left": X[:, :1]})
    assert list(result.values) == ["right", "left"]
    assert torch.allclose(torch.cat([result.values["left"], result.values["right"]], dim=1), IG(network, X).values)
    encoding = UserDict(right=X[:, 1:], left=X[:, :1])  # as tokenizers return it
    again = IG(lambda left, right: network(torch.cat([left, right], dim=1)), encoding)
    assert torch.equal(again.values["left"], result.values["left"])


def test_several_precisions_reach_the_network_as_they_were():
    seen = []

    def network(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        seen.append((a.dtype, b.dtype, c.dtype))
        return a.double().sum(1) + b.double().sum(1) + c.double().sum(1)

    x = (X.half(), X, X.bfloat16())
    result = IG(network, x)
    assert set(seen) == {(torch.float16, torch.float64, torch.bfloat16)}
    assert [v.dtype for v in result.values] == [torch.float64] * 3
    assert all(torch.allclose(v, part.double()) for v, part in zip(result.values, x, strict=True))


def test_one_of_several_inputs_that_does_not_reach_the_output_is_named():
    network = mlp()
    refuses(ModelError, r"input 1 does not reach the output .*ig2\.Fixed", lambda: IG(lambda a, b: network(a), (X, X)))
    with pytest.raises(ModelError, match="input 'b' does not reach the output"):
        IG(lambda a, b: network(a) + b.detach().sum(1, keepdim=True), {"a": X, "b": X})


def test_references_must_have_a_tensor_for_each_input():
    network = made(Split)
    x, references = uniform(3, 9), uniform(2, 9, seed=1)
    image, row, age = cut(references)
    refuses(InputError, r"references must have a tensor for input 2, as", lambda: IG(network, cut(x), references=(image, row)))
    refuses(InputError, r"references\[1\] is Tensor float64 \(2,", lambda: IG(network, cut(x), references=(image, image, age)))
    refuses(InputError, "differ in how many there are", lambda: IG(network, cut(x), references=(image, row[:1], age)))


# -- inputs that only come along ---------------------------------------------------------------------------------------


class Spy(nn.Module):
    """Writes down which mask it saw with which point: explicands and their masks carry the same number in front."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Record()

    def forward(self, x: Tensor, mask: Tensor, scale: float = 1.0) -> Tensor:
        assert scale == 3.0
        self.seen += zip((x[:, 0].detach() / 10).round().tolist(), mask[:, 0].tolist(), strict=True)
        return (x * mask).sum(1, keepdim=True)


@pytest.mark.parametrize("batch_size", [2, 3, 7, "auto"])
@pytest.mark.parametrize("method", [METHODS["IntegratedGradients"], METHODS["GuidedIG"], METHODS["IG2"]])
def test_each_pair_goes_with_the_fixed_inputs_of_its_explicand(method: ig2.Method, batch_size: Any):
    spy = Spy()
    x, mask = uniform(4, 3), uniform(4, 3, seed=1)
    x[:, 0] = mask[:, 0] = torch.arange(4)
    x[:, 0] *= 10  # far apart, and the path of each stays within one of its explicand
    references = x[:, None].repeat(1, 3, 1)
    references[..., 1:] = uniform(4, 3, 2, seed=2)
    model = ig2.wrap(spy, representation="output")
    result = method(
        model, {"mask": Fixed(mask), "x": x, "scale": Fixed(3.0)}, references={"x": references}, batch_size=batch_size
    )
    assert {point for point, _ in spy.seen} == {0.0, 1.0, 2.0, 3.0}
    assert all(point == own for point, own in spy.seen)
    for row in range(4):
        alone = method(
            model,
            {"mask": Fixed(mask[row : row + 1]), "x": x[row : row + 1], "scale": Fixed(3.0)},
            references={"x": references[row]},
        )
        assert torch.allclose(result.values["x"][row], alone.values["x"][0], rtol=1e-12, atol=1e-14)


def test_token_ids_come_along_and_their_embeddings_are_explained():
    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.rest = nn.Embedding(7, 4), mlp()

        def forward(self, embeddings: Tensor, ids: Tensor) -> Tensor:
            return self.rest((embeddings * (ids > 0)[..., None]).sum(1))

    network, ids = made(Text), torch.tensor([[1, 2, 3], [4, 5, 0]])
    result = ig2.IG2(steps=5)(
        network, (network.embedding(ids), Fixed(ids)), references=(network.embedding(ids.flip(0)).detach(),)
    )
    assert result.values[0].shape == (2, 3, 4)
    assert (result.values[0][1, 2] == 0).all() and (result.values[0][0] != 0).all()
    assert network.embedding.weight.grad is None and network.embedding.weight.requires_grad
    refuses(InputError, r"int64 .* For token ids explain the embeddings", lambda: IG(network, (ids, Fixed(ids))))


def test_fixed_inputs_that_cannot_be_matched_to_explicands_are_refused():
    network = lambda x, mask: (x * mask).sum(1)  # noqa: E731
    refuses(InputError, r"x\[1\] is Tensor float64 \(1, 4\), the first tensor has 3", lambda: IG(network, (X, Fixed(X[:1]))))
    refuses(InputError, r"x\[1\] is ndarray float64 \(3, 4\): make it a tensor", lambda: IG(network, (X, Fixed(X.numpy()))))
    refuses(InputError, "no tensor to attribute", lambda: IG(network, (Fixed(X), Fixed(X))))
    refuses(InputError, "the first tensor has 3 rows", lambda: IG(network, (X, X[:2])))


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (X.numpy(), r"x must be a torch tensor, got ndarray float64 \(3, 4\); torch\.as_tensor"),
        ([[1.0, 2.0]], r"x\[0\] must be a torch tensor, got list of 2"),
        (None, "x must be a torch tensor, got None"),
        (X.long(), r"int64 \(3, 4\): only floating-point inputs have gradients.*embeddings.*\.float\(\).*ig2\.Fixed"),
        (X > 0.5, "bool .*only floating-point"),
        (X.to(torch.complex64), "complex64"),
        (X[:0], r"\(0, 4\): expected a batch \(B, \.\.\.\) with at least one sample"),
        (X[:, :0], r"\(3, 0\): expected a batch"),
        (X.sum(), r"\(\): expected a batch"),
        (X[0], r"\(4,\), expected a batch \(B, \.\.\.\): one sample gets its axis by x\[None\]"),
        (torch.where(X > 0.6, torch.nan, X), r"x holds NaN or infinite values in row"),
        (torch.cat([X, -X[:1] / 0]), r"row 3"),
        (X.to_sparse(), "layout torch.sparse_coo: make it dense"),
        ((), "no tensor to attribute"),
        ({}, "no tensor to attribute"),
    ],
)
def test_what_is_no_batch_of_numbers_is_refused(x: Any, text: str):
    refuses(InputError, text, lambda: IG(mlp(), x))


def test_samples_the_network_cannot_take_are_quoted_with_what_the_network_said():
    refuses(ModelError, r"first explicand, given Tensor float64 \(1, 5\): x must be a", lambda: IG(mlp(), uniform(2, 5)))
    refuses(ModelError, r"given Tensor float32 \(1, 4\): its weights are float64: bring x to", lambda: IG(mlp(), X.float()))
    image = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(2 * 36, 2))
    refuses(ModelError, r"given Tensor float32 \(1, 8, 8\): x must be a batch \(B,", lambda: IG(image, torch.rand(3, 8, 8)))
    refuses(ModelError, r"given tuple of 2 .* takes 2 positional arguments but 3 were given", lambda: IG(mlp(), [X, X]))
    refuses(ModelError, r"a list of samples becomes a batch by", lambda: IG(image, list(torch.rand(4, 3, 8, 8))))
    refuses(ModelError, "what leaves PyTorch for NumPy has no gradients", lambda: IG(lambda x: torch.from_numpy(x.numpy()), X))


@pytest.mark.slow
def test_a_text_network_of_transformers_is_shown_its_adapter():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 20}
    network = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes)).eval()
    for net in (network, lambda embeddings: network(embeddings)):
        with pytest.raises(ModelError, match=r"ig2\.modalities\.text\.from_transformers"):
            IG(net, torch.rand(2, 5, 8))


def test_what_is_wrong_with_x_is_said_before_what_is_wrong_with_references():
    refuses(InputError, "x must be a torch tensor, got ndarray", lambda: IG(mlp(), X.numpy(), references=REFERENCES.numpy()))


@pytest.mark.parametrize(
    ("references", "text"),
    [
        (
            uniform(2, 5),
            r"references are Tensor float64 \(2, 5\); for explicands \(3, 4\) expected \(R, 4\), shared by all, or \(3, R, 4\)",
        ),
        (uniform(2, 2, 4), r"\(2, 2, 4\); for explicands \(3, 4\)"),
        (uniform(4), r"add the missing axis with \.unsqueeze\(0\)"),
        (uniform(3, 2, 2, 4), r"\(3, 2, 2, 4\); for explicands \(3, 4\)"),
        (uniform(0, 4), "references are empty: give at least one"),
        (uniform(3, 0, 4), "references are empty: give at least one"),
        (REFERENCES.long(), r"references is Tensor int64.* for images use \.float\(\), and / 255 where"),
        (REFERENCES / 0, "references holds NaN or infinite values"),
        (REFERENCES.numpy(), r"references must be a torch tensor, got ndarray.*torch\.as_tensor"),
        ("normal", "references must be samples.*got 'normal'"),
        (True, "references must be samples.*got True"),
        (None, "IG2 needs references to contrast with"),
    ],
)
def test_references_that_do_not_fit_are_refused(references: Any, text: str):
    refuses(InputError, text, lambda: METHODS["IG2"](mlp(), X, references=references))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (3, "target 3 is not a class: the model has 3, 0 to 2"),
        (-1, "target -1 is not a class"),
        ([0, 1, 5], "is not a class: the model has 3"),
        ([0, 1], r"target is list of 2 \(0, 1\): expected one class, or one for each of 3 explicands"),
        (torch.zeros(3, 1, dtype=torch.long), "expected one class, or one for each of 3"),
        (torch.zeros(3), "must hold class indices"),
        (1.0, "must hold class indices"),
        (True, "must hold class indices"),
        ([], "must hold class indices"),
        ("dog", "got 'dog'"),
        (object(), "target must be a class index"),
    ],
)
def test_targets_that_are_no_classes_are_refused(target: Any, text: str):
    refuses(InputError, text, lambda: IG(mlp(), X, target=target))


@pytest.mark.parametrize(
    "target",
    [1, np.int64(1), torch.tensor(1), [1, 1, 1], (1, 1, 1), np.array([1, 1, 1]), torch.tensor([1, 1, 1], dtype=torch.uint8)],
)
def test_targets_in_any_form(target: Any):
    assert IG(mlp(), X, target=target).target.tolist() == [1, 1, 1]


def test_by_default_the_predicted_class_is_explained():
    network = mlp()
    assert IG(network, X).target.tolist() == network(X).argmax(1).tolist()


@pytest.mark.parametrize("seed", [1.0, "0", None, True, 2**63, torch.tensor(3)])
def test_seeds_that_are_no_integers_are_refused(seed: Any):
    refuses(InputError, "seed must be an integer of 64 bits, got", lambda: IG(mlp(), X, seed=seed))


@pytest.mark.parametrize("seed", [0, -5, 2**63 - 1, np.int64(7)])
def test_seeds_in_any_form(seed: Any):
    result = IG(mlp(), X, references=ig2.references.UniformNoise(2, 0, 1), seed=seed)
    assert result.settings["seed"] == seed and type(result.settings["seed"]) is int


@pytest.mark.parametrize("batch_size", [0, -1, 2.0, "all", None, True])
def test_batch_sizes_that_are_no_counts_are_refused(batch_size: Any):
    refuses(InputError, "batch_size must be a positive integer or 'auto', got", lambda: IG(mlp(), X, batch_size=batch_size))


# -- layouts and precisions --------------------------------------------------------------------------------------------


def images_network() -> Any:
    return made(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)))


@pytest.mark.parametrize("name", [*METHODS, "BlurIG", "IG2 sparse", "IG2 tempered"])
def test_memory_layouts_do_not_matter(name: str):
    extra = {
        "BlurIG": ig2.BlurIG(steps=4, sigma=3),
        "IG2 sparse": ig2.IG2(steps=4, norm=ig2.paths.SparseL1(80)),
        "IG2 tempered": ig2.IG2(steps=4, rule=ig2.rules.tempered),
    }
    method = {**METHODS, **extra}[name]
    network = images_network()
    x, references = uniform(2, 3, 6, 7), uniform(2, 3, 6, 7, seed=1)
    expected = method(network, x, references=references).values
    layouts = {
        "channels last": lambda t: t.to(memory_format=torch.channels_last),
        "transposed": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
        "every second": lambda t: t.repeat_interleave(2, dim=0)[::2],
    }
    for change in layouts.values():
        result = method(network, change(x), references=change(references))
        assert torch.allclose(result.values, expected, rtol=1e-10, atol=1e-13)
    expanded = x[:1].expand(2, -1, -1, -1)
    result = method(network, expanded, references=references)
    assert torch.allclose(result.values[0], result.values[1]) and torch.allclose(result.values[0], expected[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", METHODS)
def test_half_precision_networks_are_explained_in_single_precision(name: str, dtype: torch.dtype):
    network = mlp()
    expected = METHODS[name](network, X.to(dtype).double(), references=REFERENCES.to(dtype).double(), target=0)
    result = METHODS[name](network.to(dtype), X.to(dtype), references=REFERENCES.to(dtype), target=0)
    assert result.values.dtype == result.output.dtype == torch.float32
    assert torch.isfinite(result.values).all()
    size = expected.values.abs().max()
    assert (result.values - expected.values).abs().max() < (0.02 if dtype == torch.float16 else 0.1) * size


def test_small_steps_are_not_lost_in_half_precision():
    # 0.002 vanishes beside a bfloat16 value of 1: the path itself is kept in float32
    network = made(lambda: nn.Sequential(nn.Linear(4, 3))).bfloat16()
    x = torch.ones(1, 4, dtype=torch.bfloat16)
    result = ig2.IG2(steps=100, step_size=0.002)(ig2.wrap(network, representation="output"), x, references=-x)
    assert (result.gradcf - 1).norm() > 0.1


def test_single_precision_agrees_with_double():
    for method in METHODS.values():
        double = method(mlp(), X, references=REFERENCES).values
        single = method(mlp().float(), X.float(), references=REFERENCES.float()).values
        assert single.dtype == torch.float32
        assert torch.allclose(single.double(), double, rtol=1e-3, atol=1e-5)


def test_the_users_tensors_are_left_alone():
    network = mlp()
    x, references = X.clone().requires_grad_(), REFERENCES.clone().requires_grad_()
    derived = x * 1  # with a graph behind it
    for given in (x, derived, nn.Parameter(X.clone())):
        for method in METHODS.values():
            result = method(network, given, references=references)
            tensors = [v for v in vars(result).values() if isinstance(v, Tensor)]
            assert not any(t.requires_grad for t in tensors)
            assert all(type(t) is Tensor for t in tensors)
        assert given.requires_grad and torch.equal(given, X)
    assert x.grad is None and references.grad is None
    result.explicand.zero_()
    assert torch.equal(x, X)  # what comes back is a copy


def test_inputs_keep_the_order_of_arguments():
    inputs = Explicands.of((Fixed("a"), X, Fixed(REFERENCES.repeat(2, 1)[:3]), X[:, :2]))
    args, kwargs = inputs.arguments(inputs.split(inputs.data[[2, 0]]), torch.tensor([2, 0]))
    assert args[0] == "a" and kwargs == {}
    assert torch.equal(args[1], X[[2, 0]]) and torch.equal(args[3], X[[2, 0], :2])
    assert torch.equal(args[2], REFERENCES[[0, 0]])


# -- features that are fixed -------------------------------------------------------------------------------------------

HELD = torch.tensor([[True, False, False, False], [False, True, False, True], [False, False, False, False]])


@pytest.mark.parametrize("name", METHODS)
def test_fixed_features_stay_the_explicands_own_and_get_nothing(name: str):
    network = mlp()
    result = METHODS[name](network, Fixed(X, where=HELD), references=REFERENCES)
    assert (result.values[HELD] == 0).all()
    assert (result.values[~HELD] != 0).all()
    # as if each explicand's references had its own values there
    own = torch.where(HELD[:, None], X[:, None], REFERENCES)
    expected = METHODS[name](network, X, references=own)
    if not name.startswith(("IG2", "GradCFE")):  # on the way GradPath moves what references share with x
        assert torch.allclose(result.values, expected.values)
    assert torch.allclose(result.output, expected.output)
    assert torch.equal(result.x.where, HELD)


def test_features_of_several_inputs_are_fixed_by_their_leading_axes():
    network = made(Split)
    image, row, age = cut(uniform(3, 9, seed=3))
    where = torch.tensor([[True, False], [False, False], [True, True]])
    x = {"image": Fixed(image, where=where), "row": row, "age": Fixed(age)}
    result = IG(network, x)
    assert (result.values["image"][where] == 0).all()
    assert (result.values["image"][~where] != 0).all()
    assert list(result.values) == ["image", "row"]
    again = IG(network, result.x)
    assert all(torch.equal(again.values[key], result.values[key]) for key in again.values)
    positional = IG(network, (Fixed(image, where=where), Fixed(row), age))
    assert isinstance(positional.x[1], Fixed)
    assert torch.equal(IG(network, positional.x).values[1], positional.values[1])
    assert torch.equal(Explicands.of(x).moves[:, :6].view(3, 2, 3).any(dim=2), ~where)


def test_where_features_are_fixed_is_checked():
    for where in (HELD.double(), HELD[:2], HELD[:, :3], HELD[..., None], "all"):
        with pytest.raises(InputError, match="where="):
            IG(mlp(), Fixed(X, where=where))
