"""The published performance information curves: the output as pixels come back, over the information they bring."""

from __future__ import annotations

import io
import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ig2._engine.task import Task
from ig2._utils.checks import is_count, is_number
from ig2.errors import InputError, ModelError, describe, import_extra
from ig2.metrics.base import Better, Case, Metric, Result, Scores
from ig2.metrics.curves import with_output
from ig2.metrics.features import Features, Sign, signed
from ig2.model import Model

# Shares of the pixels at which the curves are usually taken: dense at the start, where they rise.
SHARES = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.10, 0.13, 0.21, 0.34, 0.5, 0.75)
# Lossless, and as small as the format gets: the size stands for the entropy.
COMPRESSIONS: dict[str, dict[str, Any]] = {
    "webp": {"format": "webp", "lossless": True, "quality": 100},
    "png": {"format": "png", "optimize": True},
}


@dataclass(frozen=True, eq=False)
class InformationCurve(Metric):
    """The area under the output over the information in the image, as pixels come back by decreasing attribution.

    The image starts blurred: a few of its pixels, drawn at random, and between them a linear interpolation. At each share the
    pixels with the largest attributions come back (all that are equal to the smallest of them, too), and the rest is
    interpolated again. Both axes go from the blurred image, 0, to the original, 1: information is the size of the losslessly
    compressed image. A score is not defined where the original's output is below `least`, or where the blurred image has no
    less information, or no less output, than the original. `median_curve` sums up a batch, as published.

    Images are (C, H, W) with one or three channels, and the model declares their bounds: information is counted in 8 bits a
    channel, and it is these images that the network is shown. The random pixels are the same for each explicand.

    Args:
        shares: of the pixels that have come back where the curve is taken, increasing.
        sign: "keep", so that negative attributions come last; "positive", so that they are like zero; or "absolute".
        known: the share of the pixels that the blurred image keeps, beside its corners.
        least: the output that the original must have.
        monotone: whether the curve shows the largest output so far instead of the present one.
        points: in how many steps of information the curve is given.
        compression: "webp", as published, or "png", about five times faster.
    """

    shares: Sequence[float] = SHARES
    sign: Sign = "keep"
    known: float = 0.01
    least: float = 0.8
    monotone: bool = True
    points: int = 1000
    compression: Literal["webp", "png"] = "webp"
    better: ClassVar[Better] = "higher"

    def __post_init__(self) -> None:
        ends = [0.0, *self.shares, 1.0] if isinstance(self.shares, (tuple, list)) and all(map(is_number, self.shares)) else []
        if len(ends) < 3 or any(before >= after for before, after in itertools.pairwise(ends)):
            raise InputError(f"shares must be numbers that increase, between 0 and 1, got {describe(self.shares)}")
        if not (is_number(self.known) and 0 <= self.known < 1):
            raise InputError(f"known must be a share of the pixels, from 0 to below 1, got {describe(self.known)}")
        if not is_number(self.least):
            raise InputError(f"least must be a number, got {describe(self.least)}")
        if not is_count(self.points):
            raise InputError(f"points must be a positive integer, got {describe(self.points)}")
        if self.compression not in COMPRESSIONS:
            raise InputError(f"compression={describe(self.compression)}: use 'webp' or 'png'")

    @abstractmethod
    def measure(self, scores: Tensor, target: Tensor, model: Model) -> Tensor:
        """What the curve shows, (n,), of the probabilities of all classes (n, classes)."""

    def asked(self, model: Model) -> Model:
        return with_output(model, "auto")

    def run(self, case: Case) -> Result:
        task = case.task
        film = _Film.of(task)
        start = self._start(film.images.shape[1:3], task.generator())
        whole = np.ones_like(start)
        rows = np.arange(len(task))
        sizes, outputs = self._measured(task, film, np.repeat(rows, 2), lambda number: whole if number % 2 else start)
        (blurred_size, size), (blurred_output, output) = sizes.reshape(-1, 2).T, outputs.reshape(-1, 2).T
        unsure = output < self.least
        no_information = (blurred_size >= size) & ~unsure
        no_change = (blurred_output >= output) & ~unsure & ~no_information
        reasons = {
            f"the output of the original is below {self.least:g}": unsure,
            "the blurred image has no less information than the original": no_information,
            "the blurred image has no less output than the original": no_change,
        }

        kept, shares = rows[~(unsure | no_information | no_change)], len(self.shares)
        values = signed(Features.of("pixel", task.x.shape[1:]).pool(case.values), self.sign).cpu().numpy()[kept]
        smallest = np.quantile(values, 1 - np.array(self.shares), axis=1)

        def back(number: int) -> NDArray[np.bool_]:
            which, share = divmod(number, shares)
            mask: NDArray[np.bool_] = (values[which] >= smallest[share, which]).reshape(start.shape) | start
            return mask

        sizes, outputs = (found.reshape(-1, shares) for found in self._measured(task, film, np.repeat(kept, shares), back))
        at = np.arange(self.points + 1) / self.points
        curves = np.full((len(task), len(at)), np.nan)
        curves[kept] = self._curves(
            at,
            _between(sizes, blurred_size[kept], size[kept]),
            _between(outputs, blurred_output[kept], output[kept]),
        )
        drawn, where = (torch.from_numpy(found).to(task.x) for found in (curves, at))
        counted = {why: int(found.sum()) for why, found in reasons.items() if found.any()}
        return Result(torch.trapezoid(drawn, where), counted, drawn, where)

    def _start(self, shape: tuple[int, ...], generator: torch.Generator) -> NDArray[np.bool_]:
        """The pixels (H, W) that the blurred image keeps."""
        mask = np.zeros(shape, dtype=bool)
        mask.flat[torch.randperm(mask.size, generator=generator, device="cpu")[: int(mask.size * self.known)].numpy()] = True
        mask[[0, 0, -1, -1], [0, -1, 0, -1]] = True
        return mask

    def _curves(
        self, at: NDArray[np.float64], information: NDArray[np.float64], gained: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Curves (n, K) through what was gained for which information, (n, shares), and through both ends."""
        if self.monotone:
            gained = np.maximum.accumulate(gained, axis=1)
        curves = np.empty((len(gained), len(at)))
        for i, (x, y) in enumerate(zip(information, gained, strict=True)):
            x, y = np.append(x, [0.0, 1.0]), np.append(y, [0.0, 1.0])
            order = x.argsort(kind="stable")  # more pixels need not be more information; of equal ones the end comes last
            curves[i] = np.interp(at, x[order], y[order])
        return curves

    def _measured(
        self, task: Task, film: _Film, rows: NDArray[np.intp], known: Callable[[int], NDArray[np.bool_]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Size and output of the explicands `rows` (n,), each interpolated between the pixels that `known` gives its number."""
        sizes, outputs = np.empty(len(rows)), np.empty(len(rows))
        task.progress.expect(len(rows))

        def developed(number: int) -> tuple[NDArray[np.uint8], int]:
            image = interpolated(film.images[rows[number]], known(number))
            return image, compressed_size(image, self.compression)

        def work(piece: range) -> None:
            images, found = zip(*threads.map(developed, piece), strict=True)
            of = torch.from_numpy(rows[piece.start : piece.stop]).to(task.x.device)
            scores = task.session.scores(film.shown(np.stack(images)), task.rows[of])
            sizes[piece.start : piece.stop] = found
            outputs[piece.start : piece.stop] = self.measure(scores, task.target[of], task.session.model).double().cpu().numpy()
            task.progress.advance(len(piece))

        # both the interpolation and the compression let other threads run
        with ThreadPoolExecutor() as threads:
            task.batch.over(len(rows), work)
        if not np.isfinite(outputs).all():
            row = int(rows[~np.isfinite(outputs)][0])
            raise ModelError(f"the output of explicand {row} with some of its pixels blurred is not a finite number")
        return sizes, outputs


@dataclass(frozen=True, eq=False)
class SIC(InformationCurve):
    """The softmax information curve: the output is the probability of the explained class.

    The arguments are those of `InformationCurve`.
    """

    name: ClassVar[str] = "SIC"

    def measure(self, scores: Tensor, target: Tensor, model: Model) -> Tensor:
        return scores.gather(1, target[:, None])[:, 0]


@dataclass(frozen=True, eq=False)
class AIC(InformationCurve):
    """The accuracy information curve: the output is 1 where the explained class is the one predicted, and 0 elsewhere.

    Of independent labels and of a single output, a probability above one half predicts the class. The arguments are those of
    `InformationCurve`.
    """

    name: ClassVar[str] = "AIC"

    def measure(self, scores: Tensor, target: Tensor, model: Model) -> Tensor:
        chosen = scores.gather(1, target[:, None])[:, 0]
        single = model.output == "sigmoid" or scores.shape[1] == 1
        predicted = chosen > 0.5 if single else scores.argmax(dim=1) == target
        return torch.where(chosen.isfinite(), predicted.to(chosen.dtype), chosen)


def median_curve(scores: Scores) -> tuple[Tensor, float]:
    """The median over explicands of the curves at each of `scores.at`, (K,), and the area under it.

    This is how information curves of many images are summed up as published; explicands without a score are left out.
    """
    if scores.curves is None or scores.at is None:
        raise InputError(f"{scores.metric} draws no curves; Insertion, Deletion, SIC and AIC do")
    defined = scores.curves[~scores.values.isnan()]
    if not len(defined):
        raise InputError(f"{scores.metric} is not defined for any of the {len(scores)} explicands, so there is no curve")
    curve = defined.quantile(0.5, dim=0)
    return curve, float(torch.trapezoid(curve, scores.at))


@dataclass(frozen=True)
class _Film:
    """The explicands as images of 8 bits a channel, and the way back to the data space."""

    images: NDArray[np.uint8]  # (B, H, W, C)
    low: Tensor  # in the shape of a sample
    high: Tensor

    @classmethod
    def of(cls, task: Task) -> _Film:
        shape = tuple(task.x.shape[1:])
        if len(shape) != 3 or shape[0] not in (1, 3) or min(shape[1:]) < 2:
            raise InputError(
                f"information is counted in images (B, C, H, W) of one or three channels, these samples are {shape}"
            )
        bounds = task.session.model.bounds
        if bounds is None:
            raise InputError(
                "information is counted in images of 8 bits, so the data's range must be known: ig2.wrap(net, bounds=(0, 1))"
            )
        task.session.model.check_inside(task.x, "x")
        low, high = (torch.as_tensor(bound, dtype=task.x.dtype, device=task.x.device).expand(shape) for bound in bounds)
        span = high - low
        levels = ((task.x - low) / span.where(span > 0, 1.0) * 255).round().to(torch.uint8)
        return cls(levels.permute(0, 2, 3, 1).contiguous().cpu().numpy(), low, high)

    def shown(self, images: NDArray[np.uint8]) -> Tensor:
        """Images (n, H, W, C) as the network takes them."""
        levels = torch.from_numpy(images).to(self.low.device).permute(0, 3, 1, 2).to(self.low.dtype)
        return self.low + levels * (self.high - self.low) / 255


def interpolated(image: NDArray[np.uint8], known: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """An image (H, W, C) of which some pixels, among them its corners, are known; the others lie on planes between them."""
    if known.all():
        return image
    spatial = import_extra("scipy.spatial", "image", "an information curve")
    points = np.argwhere(known)
    triangles = points[spatial.Delaunay(points).simplices]  # (T, corners, row and column)
    # The pixels of each triangle are looked for in the box around it, in whole numbers: twice the area across from each corner
    # is its weight. `scipy.interpolate` has the same weights from a call of LAPACK for each triangle; in several threads at
    # once, each of which LAPACK spread over all cores, it took six times as long as in one.
    triangles = triangles[np.abs(_areas(triangles, triangles[:, 0]).sum(axis=1)) > 1]  # smaller ones have corners alone
    low = triangles.min(axis=1)
    height, width = (triangles.max(axis=1) - low + 1).T
    owner = np.repeat(np.arange(len(triangles)), height * width)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(height * width) - height * width, height * width)
    pixels = low[owner] + np.stack(np.divmod(place, width[owner]), axis=1)
    unknown = ~known[tuple(pixels.T)]
    owner, pixels = owner[unknown], pixels[unknown]
    areas = _areas(triangles[owner], pixels)
    inside = (areas >= 0).all(axis=1) | (areas <= 0).all(axis=1)
    areas, corners = areas[inside], triangles[owner[inside]]
    filled = image.copy()
    mean = (areas[..., None] * image[tuple(corners.T)].swapaxes(0, 1)).sum(axis=1) / areas.sum(axis=1)[:, None]
    filled[tuple(pixels[inside].T)] = np.rint(mean)
    return filled


def _areas(triangles: NDArray[np.intp], points: NDArray[np.intp]) -> NDArray[np.intp]:
    """Twice the areas, signed, between a point (n, 2) and the side across from each corner of a triangle (n, 3, 2)."""
    first, second = (np.roll(triangles - points[:, None], turn, axis=1) for turn in (-1, -2))
    areas: NDArray[np.intp] = first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]
    return areas


def compressed_size(image: NDArray[np.uint8], compression: str) -> int:
    """Bytes of the losslessly compressed image (H, W, C)."""
    pillow = import_extra("PIL.Image", "image", "an information curve")
    file = io.BytesIO()
    pillow.fromarray(image if image.shape[2] == 3 else image[:, :, 0]).save(file, **COMPRESSIONS[compression])
    return file.tell()


def _between(found: NDArray[np.float64], start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far values (n, K) have come from start to end (n,), from 0 to 1."""
    return np.clip((found - start[:, None]) / (end - start)[:, None], 0.0, 1.0)
