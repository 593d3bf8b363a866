"""A rule of a new kind: it says which gradients it takes, on any path, and the engine needs to know nothing else."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import ig2
from ig2.rules import Needs, Rule, Segments
from networks import tanh_mlp, uniform

X, REFERENCES = uniform(3, 6, seed=1), uniform(2, 6, seed=2)
PATHS = {
    "from the explicand": ig2.paths.GradPath(5),
    "from the baseline": ig2.paths.Guided(5),
    "known": ig2.paths.Straight(5),
    "ending early": ig2.paths.GradPath(9, stop=ig2.paths.Converged(0.2, 2)),
}


@dataclass(frozen=True, repr=False)
class ByHand(Rule):
    """A quadrature or a sharing rule written anew, from what every rule gets."""

    kind: str

    @property
    def needs(self) -> Needs:
        return Needs((0.25,), (1.0,), ends=True) if self.kind == "quarter" else Needs(ends=True)

    def terms(self, segments: Segments) -> tuple[Tensor, ...]:
        if self.kind == "quarter":
            return super().terms(segments)
        gradient = {"left": segments.near, "right": segments.far, "trapezoid": (segments.near + segments.far) / 2}
        if self.kind in gradient:
            return (gradient[self.kind] * segments.step,)
        squares = segments.near.square()  # "direct", in two terms
        return squares / squares.flatten(1).sum(dim=1, keepdim=True) * segments.change[:, None], segments.change

    def total(self, *sums: Tensor) -> Tensor:
        if self.kind == "direct":
            assert torch.allclose(sums[0].flatten(1).sum(dim=1), sums[1])
        return sums[0]


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("kind", ["left", "right", "trapezoid", "direct", "quarter"])
@pytest.mark.parametrize("batch_size", ["auto", 1, 4])
def test_a_rule_of_ones_own_sees_each_segment_from_the_explicand(path: ig2.paths.Path, kind: str, batch_size: Any):
    known = ig2.rules.Quadrature("quarter", (0.25,), (1.0,)) if kind == "quarter" else getattr(ig2.rules, kind)
    for one, other in ((ByHand("own", kind), known), (ig2.rules.scaled(ByHand("own", kind)), ig2.rules.scaled(known))):
        results = [
            ig2.PathMethod(path, rule=rule)(tanh_mlp(), X, references=REFERENCES, batch_size=batch_size)
            for rule in (one, other)
        ]
        assert torch.allclose(results[0].values, results[1].values, rtol=1e-10, atol=1e-12)


def test_each_rule_has_a_docstring_of_its_own():
    names = ("left", "right", "midpoint", "trapezoid", "direct", "shared", "aligned", "tempered", "blended", "secant")
    docs = [getattr(ig2.rules, name).__doc__ for name in names]
    assert len(set(docs)) == len(names) and all(doc.startswith(("φ =", "s =")) for doc in docs)
    assert "Yang 2023" in ig2.rules.direct.__doc__ and "Zhuo 2024" in ig2.rules.left.__doc__
    assert "IDGI" in ig2.rules.direct.__doc__


@pytest.mark.parametrize(
    ("bend", "expected"),
    # of the product (2, −½) that falls short of the change, meets it, and exceeds it by half
    [(1.0, (2 / 1.5 * 2.5, -0.5 / 1.5 * 2.5)), (0.0, (2.0, -0.5)), (-0.75, (2 / 1.75 * 0.75, -0.25 / 1.75 * 0.75))],
)
def test_tempered_is_left_where_the_change_is_as_large_as_predicted_or_larger(bend: float, expected: tuple[float, float]):
    x = torch.ones(1, 2, dtype=torch.float64)

    def net(p: Tensor) -> Tensor:
        """A slope of 2 in the first feature at x, and a change of 2 + bend to zero."""
        return 2 * p[:, 0] - bend * (p[:, 0] - 1).square() - p[:, 1] / 2

    found = ig2.IntegratedGradients(1, ig2.rules.tempered)(net, x)
    torch.testing.assert_close(found.values[0], torch.tensor(expected, dtype=torch.float64))
