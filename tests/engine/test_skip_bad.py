"""One bad explicand among many: it is named, and `skip_bad=True` goes on without it."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

import ig2
from networks import refuses, tanh_mlp, uniform

X, REFERENCES = uniform(6, 6), uniform(6, 2, 6, seed=1)


def broken(x: Tensor, *rows: int) -> Tensor:
    x = x.clone()
    for row in rows:
        x[row, 1] = torch.nan
    return x


def test_bad_rows_are_named():
    with pytest.raises(ig2.InputError, match=r"row 3\b.*skip_bad") as raised:
        ig2.IG2(3)(tanh_mlp(), broken(X, 3), references=REFERENCES)
    assert raised.value.rows == (3,)
    refuses(ig2.InputError, "2 rows, the first is 1", lambda: ig2.IG2(3)(tanh_mlp(), broken(X, 4, 1), references=REFERENCES))


@pytest.mark.parametrize(
    "method", [ig2.IG2(3), ig2.Gradient(), ig2.DeepSHAP(), ig2.KernelSHAP()], ids=lambda m: type(m).__name__
)
def test_the_others_are_explained_as_without_them(method: ig2.methods.Method):
    keep, target = [0, 2, 4, 5], [0, 1, 2, 0, 1, 2]
    expected = method(tanh_mlp(), X[keep], [target[row] for row in keep], REFERENCES[keep])
    with pytest.warns(ig2.IG2Warning, match=r"2 explicands of 6 skipped: 1 .*, 3 "):
        a = method(tanh_mlp(), broken(X, 1, 3), target, REFERENCES, skip_bad=True)
    assert torch.equal(a.values, expected.values) and a.target.tolist() == [0, 2, 1, 2]
    assert [item["row"] for item in a.settings["skipped"]] == [1, 3]


def test_what_the_network_fails_on_is_skipped_as_well():
    def network(x: Tensor) -> Tensor:
        return tanh_mlp()(x) / (x[:, :1] != 0)  # not finite where the first feature is zero

    x = broken(X, 2)
    x[4, 0] = 0
    with pytest.warns(ig2.IG2Warning, match="2 explicands of 6"):
        a = ig2.Gradient()(network, x, skip_bad=True)
    assert [item["row"] for item in a.settings["skipped"]] == [2, 4] and len(a) == 4


def test_several_inputs_and_fixed_ones_go_along():
    net = tanh_mlp()

    def network(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        return net(a * mask + b)

    mask = torch.ones(6, 6)
    mask[2] = 0
    x = (broken(X, 0), X, ig2.Fixed(mask))
    with pytest.warns(ig2.IG2Warning):
        a = ig2.IG2(3)(network, x, references=(REFERENCES, REFERENCES), skip_bad=True)
    rest = (X[1:], X[1:], ig2.Fixed(mask[1:]))
    expected = ig2.IG2(3)(network, rest, references=(REFERENCES[1:], REFERENCES[1:]))
    assert all(torch.equal(one, other) for one, other in zip(a.values, expected.values, strict=True))


def test_features_that_are_fixed_in_each_row_go_along():
    held = torch.eye(6, dtype=torch.bool)
    x = ig2.Fixed(broken(X, 1), held)
    with pytest.warns(ig2.IG2Warning):
        a = ig2.IG2(3)(tanh_mlp(), x, references=REFERENCES, skip_bad=True)
    rest = [0, 2, 3, 4, 5]
    expected = ig2.IG2(3)(tanh_mlp(), ig2.Fixed(X[rest], held[rest]), references=REFERENCES[rest])
    assert torch.equal(a.values, expected.values) and (a.values[held[rest]] == 0).all()


def test_nothing_bad_is_nothing_said_and_nothing_good_is_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a = ig2.IG2(3)(tanh_mlp(), X, references=REFERENCES, skip_bad=True)
    assert len(a) == 6 and a.settings["skipped"] == []
    with pytest.raises(ig2.InputError, match="6 rows"):
        ig2.IG2(3)(tanh_mlp(), broken(X, *range(6)), references=REFERENCES, skip_bad=True)
