"""Your own path.

A path is a small object: it says where the points are. References, rules, batching, residuals and pictures come from the
engine. You write two paths here and check both on functions whose answers are known.
"""

from dataclasses import dataclass

import torch

import ig2
from ig2.paths import GrownPath, KnownPath, Pairs

# ## Points known in advance
#
# A bow: it leaves the straight line sideways, and is furthest from it in the middle. The engine asks for some of the vertices
# of n pairs at once, and gets them as (number of vertices, n, …). Vertex 0 must be the explicand. The last one is the baseline.


@dataclass(frozen=True)
class Bow(KnownPath):
    """From the explicand to the reference on an arc."""

    steps: int = 50
    height: float = 0.5

    @property
    def segments(self):
        return self.steps

    def vertices(self, pairs: Pairs, numbers: range):
        way = pairs.reference - pairs.explicand
        sideways = 4 * self.height * torch.roll(way, 1, dims=-1)
        shares = [t / self.steps for t in numbers]
        return torch.stack([pairs.explicand + s * way + s * (1 - s) * sideways for s in shares])


# Of a smooth function, the integral of the gradient along *any* path is the change in the function. So with a good rule the
# residual is zero, and only the attribution depends on the way:


def product(x):
    return x[:, :1] * x[:, 1:2]


x = torch.tensor([[2.0, 3.0]])
for path in (ig2.paths.Straight(50), Bow(50, 0.5)):
    found = ig2.PathMethod(path, rule=ig2.rules.gauss(2))(product, x, references=0.0)
    one, two = found.values[0].tolist()
    print(f"{type(path).__name__:9} {one:.2f} {two:.2f}  residual {float(found.residual):.1e}")

# ## A path that looks at the network
#
# IG²'s GradPath takes steps of a fixed Euclidean length. This one moves every feature by the same amount, toward the
# reference's representation. `measures` says which distance's gradient is wanted, and `at.ascent` is that gradient. Inside
# bounds the path must stay, so it clips.


@dataclass(frozen=True)
class SignPath(GrownPath):
    """Down the sign of the gradient of the distance: steps of one length in every feature."""

    steps: int = 50
    step_size: float = 0.05

    @property
    def segments(self):
        return self.steps

    @property
    def measures(self):
        return ig2.paths.euclidean

    def start(self, pairs: Pairs):
        return pairs.explicand

    def advance(self, pairs: Pairs, step: int, point, at, memory):
        reached = point - self.step_size * at.ascent.sign()
        return reached if pairs.bounds is None else reached.clamp(*pairs.bounds)


# A network, some samples, and IG² beside the same method on the new path:

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).eval()
model = ig2.wrap(net, bounds=(-3, 3))
x, references = torch.randn(4, 6).clamp(-3, 3), torch.randn(5, 6).clamp(-3, 3)
for path in (ig2.paths.GradPath(50), SignPath(50)):
    method = ig2.PathMethod(path, references, ig2.rules.trapezoid)
    found = method(model, x, curves=True)
    print(f"{type(path).__name__:9} {found.verdict}")
    first, last = found.distance_curve.mean(dim=(0, 1))[[0, -1]].tolist()
    print(f"          distance to the reference {first:.2f} -> {last:.2f}")

# Both come near the references. A step of one length for all cannot come nearer than that length, so the sign path stops
# a little short: make its steps smaller and their number larger.
#
# Next: [extending](../extending.md) has a rule, a reference strategy and a method of your own.
