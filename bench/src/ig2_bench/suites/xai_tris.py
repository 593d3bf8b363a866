"""XAI-TRIS: pictures of two shapes in noise, where what tells the classes apart is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ig2 import rules
from ig2._utils.blur import blur
from ig2._utils.checks import check_count, check_seed
from ig2._utils.training import fit, local_seed
from ig2.comparison import WithoutReferences
from ig2.errors import InputError
from ig2.methods import (
    IG2,
    RISE,
    DeepSHAP,
    ExpectedIG,
    GradCAM,
    Gradient,
    Grid,
    GuidedIG,
    HiResCAM,
    InputXGradient,
    IntegratedGradients,
    KernelSHAP,
    LayerCAM,
    Occlusion,
    Random,
    SmoothGrad,
)
from ig2.metrics import GTAUC, GTSum
from ig2.model import Model, wrap
from ig2.table import Column
from ig2_bench.suite import BenchOptions, MethodLike, Suite
from ig2_bench.suites.synthetic import COSTS, attribute

SIZE = 16  # of a picture
CELL = 2  # pixels of a shape's cell
T = torch.tensor([[1, 1, 1], [0, 1, 0]])
L = torch.tensor([[1, 0, 0], [1, 1, 1]])
SMOOTHING = 1.5  # pixels, of correlated noise
# The share of the shape in a picture, the rest being noise: networks are then right in nine pictures of ten, or more.
SIGNAL = {"linear": 0.15, "multiplicative": 0.5, "moved": 0.5, "xor": 0.2}
BRIGHTNESS = 4  # of a shape, in standard deviations of the noise
NOISES = ("white", "correlated")


@dataclass(frozen=True)
class Pictures:
    """Pictures, their classes, and the pixels that tell the classes apart."""

    x: Tensor  # (n, 1, 16, 16)
    labels: Tensor  # (n,), 0 and 1
    truth: Tensor  # booleans (n, 16, 16)


def draw_pictures(scenario: str, noise: str, count: int, generator: torch.Generator) -> Pictures:
    """Pictures of a T (class 0) or an L (class 1) in noise; as many of each class, in turn.

    - linear: the T is always at the top left, the L at the bottom right, α·4·shape + (1 − α)·noise. The truth is both places:
      that a shape is missing tells as much as that the other one is there.
    - multiplicative: in the same places, the shape dims the noise, (1 − α·shape)·noise. No pixel's mean tells anything.
    - moved: the shape is anywhere, in any of four rotations. The truth is the shape.
    - xor: both shapes are there, bright or dark: class 0 if they are alike, class 1 if not. Neither place alone tells anything;
      the truth is both.

    Args:
        scenario: one of these.
        noise: "white", or "correlated", smoothed by a Gaussian of 1.5 pixels; of variance 1 either way.
        count: how many.
        generator: for all random numbers.
    """
    labels = torch.arange(count) % 2
    margin = round(4 * SMOOTHING)  # cut off again: near an edge, smoothed noise has more variance
    grain = torch.randn(count, 1, SIZE + 2 * margin, SIZE + 2 * margin, generator=generator)
    grain = (blur(grain, SMOOTHING, "reflect") if noise == "correlated" else grain)[..., margin:-margin, margin:-margin]
    grain = grain / grain.std()
    places = torch.stack([_place(T, 1, 1), _place(L, SIZE - 1 - 2 * CELL, SIZE - 1 - 3 * CELL)])
    both, share = places.sum(dim=0), SIGNAL[scenario]
    if scenario == "moved":
        shapes = torch.stack([_draw_moved(T if label == 0 else L, generator) for label in labels.tolist()])
        truth = shapes.bool()
    elif scenario == "xor":
        first = 2 * torch.randint(2, (count,), generator=generator) - 1
        signs = torch.stack([first, torch.where(labels == 0, first, -first)], dim=1)
        shapes, truth = torch.einsum("np,phw->nhw", signs.float(), places), both.bool().expand(count, -1, -1)
    else:
        shapes, truth = places[labels], both.bool().expand(count, -1, -1)
    shapes = shapes[:, None]
    x = (1 - share * shapes) * grain if scenario == "multiplicative" else share * BRIGHTNESS * shapes + (1 - share) * grain
    return Pictures(x, labels, truth)


def _place(shape: Tensor, top: int, left: int) -> Tensor:
    """A shape of cells in an empty picture."""
    pixels = shape.repeat_interleave(CELL, dim=0).repeat_interleave(CELL, dim=1)
    picture = torch.zeros(SIZE, SIZE)
    picture[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return picture


def _draw_moved(shape: Tensor, generator: torch.Generator) -> Tensor:
    turned = torch.rot90(shape, int(torch.randint(4, (), generator=generator)))
    rows, columns = (SIZE + 1 - CELL * cells for cells in turned.shape)
    top, left = (int(torch.randint(count, (), generator=generator)) for count in (rows, columns))
    return _place(turned, top, left)


def train_network(pictures: Pictures, epochs: int, seed: int) -> nn.Sequential:
    """A small convolutional network that tells the two classes apart, by a seeded recipe."""
    with local_seed(seed):
        net = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * (SIZE // 2) ** 2, 32), nn.ReLU(), nn.Linear(32, 2),
        )  # fmt: skip
    return fit(net, [pictures.x], pictures.labels, nn.functional.cross_entropy, epochs=epochs, decay=1e-2, seed=seed)


@dataclass(frozen=True)
class Magnitude:
    """|x|, which knows nothing of the network: what is bright or dark, background or not."""

    def __call__(self, model: Any, x: Tensor, target: Any = None, references: Any = None, *, seed: int = 0) -> Tensor:
        return x.abs()


@dataclass(frozen=True)
class Prepared:
    """A network, pictures it is right about and has not seen, and references of the other class."""

    model: Model
    x: Tensor
    labels: Tensor
    truth: Tensor
    references: Tensor  # (n, R, 1, 16, 16)
    accuracy: float


@dataclass(frozen=True, eq=False, kw_only=True)
class XAITris(Suite):
    """Methods compared on pictures of shapes in noise, beside the pixels that tell the classes apart; after [Clark 2024].

    Four scenarios by two kinds of noise, a network trained for each. Attributions are judged by their size, since what speaks
    against a class is as true as what speaks for it. The truth is of the data: a network may use less of it than there is.

    Args:
        samples: how many pictures are explained for each scenario and noise.
        train: how many the network is trained on.
        epochs: how often it sees them.
        references: how many pictures of the other class IG², Expected IG and DeepSHAP contrast with.
    """

    about: ClassVar[str] = "shapes in noise, so that the pixels that matter are known"
    name: ClassVar[str] = "xai-tris"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "XAI-TRIS"
    shows: ClassVar = "se"

    samples: int = 30
    train: int = 4000
    epochs: int = 12
    references: int = 5

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name in ("samples", "train", "epochs", "references"):
            check_count(getattr(self, name), name)

    @classmethod
    def from_options(cls, options: BenchOptions) -> Self:
        options.check(cls.name, "samples")
        common: dict[str, Any] = {"seed": options.seed, "quick": options.quick, "device": options.device}
        if not options.quick:
            return cls(samples=options.samples or 30, **common)
        return cls(samples=options.samples or 4, train=500, epochs=6, references=2, **common)

    def parts(self) -> Sequence[str]:
        return [f"{scenario}, {noise}" for scenario, noise in product(SIGNAL, NOISES)]

    def methods(self) -> Mapping[str, MethodLike]:
        return {
            "Random": WithoutReferences(Random()),
            "|x|": Magnitude(),
            "Gradient": Gradient(),
            "Input × gradient": InputXGradient(),
            "SmoothGrad": SmoothGrad(Gradient(), samples=50),
            "SmoothGrad²": SmoothGrad(Gradient(), samples=50, squared=True),
            "IG": WithoutReferences(IntegratedGradients()),
            "Guided IG": WithoutReferences(GuidedIG(steps=50)),
            "Expected IG": ExpectedIG(20),
            "DeepSHAP": DeepSHAP(),
            "KernelSHAP": WithoutReferences(KernelSHAP(Grid(8, 8), samples=500)),
            "Grad-CAM": GradCAM(),
            "LayerCAM": LayerCAM(),
            "HiResCAM": HiResCAM(),
            "RISE (centred)": WithoutReferences(RISE(500, 5, centred=True)),
            "Occlusion": WithoutReferences(Occlusion(3, 1)),
            "IG² (left, as published)": IG2(50, rule=rules.left),
            "IG² (blended)": IG2(50),
        }

    def metrics(self) -> Mapping[str, Column]:
        abouts = {
            "linear": "either shape in its own place",
            "multiplicative": "the same, dimming the noise",
            "moved": "the shape anywhere, turned",
            "xor": "both shapes, bright or dark",
        }
        return {
            **{scenario: Column("higher", about=f"GT-AUC of |φ|: {about}") for scenario, about in abouts.items()},
            "on truth": Column("higher", about="the share of Σ|φ| on the pixels that matter, over all scenarios"),
            **COSTS,
        }

    def describe_data(self) -> str:
        return (
            f"{self.samples} pictures of {SIZE}² pixels for each of 4 scenarios and 2 kinds of noise, which a network that was "
            f"trained on {self.train} others is right about; drawn with seed {self.seed}"
        )

    def prepare(self, part: str) -> Prepared:
        scenario, noise = part.split(", ")
        generator = torch.Generator().manual_seed(self.seed)
        seen = draw_pictures(scenario, noise, self.train, generator)
        new = draw_pictures(scenario, noise, 4 * self.samples + 100, generator)
        net = train_network(seen, self.epochs, self.seed)
        with torch.no_grad():
            right = net(new.x).argmax(dim=1) == new.labels
            known = net(seen.x).argmax(dim=1) == seen.labels
        rows = right.nonzero()[: self.samples, 0]
        pools = [seen.x[(known & (seen.labels == label)).nonzero()[: self.references, 0]] for label in (0, 1)]
        if len(rows) < self.samples or min(map(len, pools)) < self.references:
            raise InputError(f"{part}: the network is right about {int(right.sum())} of {len(right)} pictures: train it longer")
        labels = new.labels[rows]
        references = torch.stack(pools)[1 - labels]
        x, references = new.x[rows].to(self.device), references.to(self.device)
        accuracy = float(right.double().mean())
        return Prepared(wrap(net.to(self.device)), x, labels.to(self.device), new.truth[rows], references, accuracy)

    @cached_property
    def _last(self) -> list[Any]:
        return []

    def facts(self, part: str, prepared: Prepared) -> Mapping[str, Sequence[float]]:
        """How often the network is right."""
        return {f"accuracy, {part}": [prepared.accuracy]}

    def score(self, part: str, prepared: Prepared, method: MethodLike) -> Mapping[str, Sequence[float]]:
        x, labels, references = prepared.x, prepared.labels, prepared.references
        values, costs = attribute(method, prepared.model, x, labels, references, self.seed, self._last)
        auc, share = (metric(sign="absolute")(None, values, truth=prepared.truth).values.tolist() for metric in (GTAUC, GTSum))
        return {part.partition(",")[0]: auc, "on truth": share, **costs}
