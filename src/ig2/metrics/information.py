"""Published performance information curves: the output over the information in the image as pixels are restored."""

from __future__ import annotations

import io
import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ig2._utils.checks import is_number, require
from ig2._utils.settings import BELOW_ONE, COUNT, NUMBER, one_of, setting
from ig2.errors import InputError, ModelError, import_extra
from ig2.metrics.base import Case, Metric, Scores
from ig2.metrics.curves import select_output
from ig2.metrics.features import Features, Sign, apply_sign
from ig2.model import Model
from ig2.task import Task

# Shares of the pixels at which the curves are usually taken: dense at the start, where they rise.
SHARES = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.10, 0.13, 0.21, 0.34, 0.5, 0.75)
# Lossless, and as small as the format gets: the size stands for the entropy.
COMPRESSIONS: dict[str, dict[str, Any]] = {
    "webp": {"format": "webp", "lossless": True, "quality": 100},
    "png": {"format": "png", "optimize": True},
}
Compression = Literal["webp", "png"]
Images = NDArray[np.uint8]  # (..., H, W, C), 8 bits a channel
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]  # of pixels, (H, W)


@dataclass(frozen=True, eq=False)
class InformationCurve(Metric):
    """The area under the output over the information in the image, as pixels are restored by attribution [Kapishnikov 2019].

    The image starts blurred: a few of its pixels, drawn at random, with a linear interpolation between them. At each share, the
    pixels with the largest attributions are restored (with all that tie with the smallest of these), and the rest is
    interpolated again. Both axes are scaled from the blurred image, 0, to the original, 1; information is the size of the
    losslessly compressed image. A score is not defined if the output of the original is below `least`, or if the blurred image
    has no less information, or no less output, than the original. `median_curve` summarises a batch, as published.

    Images are (C, H, W) with one or three channels, and the model must declare their bounds: information is measured at 8 bits
    per channel, and the network is run on these 8-bit images. The random pixels are the same for each explicand.

    Args:
        shares: the increasing shares of restored pixels at which the curve is evaluated.
        sign: "keep" ranks negative attributions last, "positive" treats them as zero, "absolute" ranks by |φ|.
        known: the share of the pixels that the blurred image keeps, besides its corners.
        least: the minimum output of the original.
        monotone: whether the curve shows the largest output so far instead of the current one.
        points: the number of steps of information at which the curve is returned.
        compression: "webp", as published, or "png", about five times faster.
    """

    shares: Sequence[float] = SHARES
    sign: Sign = "keep"
    known: float = setting(0.01, BELOW_ONE)
    least: float = setting(0.8, NUMBER)
    monotone: bool = True
    points: int = setting(1000, COUNT)
    compression: Compression = setting("webp", one_of(Compression))
    better = "higher"

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = isinstance(self.shares, (tuple, list)) and len(self.shares) > 0 and all(map(is_number, self.shares))
        increase = numbers and all(low < high for low, high in itertools.pairwise([0.0, *self.shares, 1.0]))
        require(increase, "shares", self.shares, "numbers that increase, between 0 and 1")

    @abstractmethod
    def measure(self, scores: Tensor, target: Tensor, model: Model) -> Tensor:
        """Return the value shown by the curve, (n,), from the probabilities of all classes (n, classes)."""

    def adapt_model(self, model: Model) -> Model:
        return select_output(model, "auto")

    def run(self, case: Case) -> Scores:
        task = case.task
        film = _Film.of(task)
        start = self._blur_mask(film.images.shape[1:3], task.generator())
        ends, rows = (start, np.ones_like(start)), np.arange(len(task))
        sizes, outputs = self._evaluate(task, film, np.repeat(rows, 2), lambda number: ends[number % 2])
        (blurred_size, size), (blurred_output, output) = sizes.reshape(-1, 2).T, outputs.reshape(-1, 2).T
        reasons = {
            f"the output of the original is below {self.least:g}": output < self.least,
            "the blurred image has no less information than the original": blurred_size >= size,
            "the blurred image has no less output than the original": blurred_output >= output,
        }
        kept, shares = rows[~np.any(list(reasons.values()), axis=0)], len(self.shares)
        values = apply_sign(Features.of("pixel", task.x.shape[1:]).pool(case.values), self.sign).cpu().numpy()[kept]
        smallest = np.quantile(values, 1 - np.array(self.shares), axis=1)

        def mask_of(number: int) -> Mask:
            index, share = divmod(number, shares)
            mask: Mask = (values[index] >= smallest[share, index]).reshape(start.shape) | start
            return mask

        sizes, outputs = self._evaluate(task, film, np.repeat(kept, shares), mask_of)
        information = _rescale(sizes.reshape(-1, shares), blurred_size[kept], size[kept])
        gained = _rescale(outputs.reshape(-1, shares), blurred_output[kept], output[kept])
        at = np.arange(self.points + 1) / self.points
        curves = np.full((len(task), len(at)), np.nan)
        curves[kept] = self._interpolate_curves(at, information, gained)
        drawn, where = (torch.from_numpy(array).to(task.x) for array in (curves, at))
        masks = {reason: torch.from_numpy(mask).to(task.x.device) for reason, mask in reasons.items()}
        return Scores.where_defined(torch.trapezoid(drawn, where), masks, curves=drawn, at=where)

    def _blur_mask(self, shape: tuple[int, ...], generator: torch.Generator) -> Mask:
        """Return the mask of the pixels that the blurred image keeps."""
        mask = np.zeros(shape, dtype=bool)
        mask.flat[torch.randperm(mask.size, generator=generator, device="cpu")[: int(mask.size * self.known)].numpy()] = True
        mask[[0, 0, -1, -1], [0, -1, 0, -1]] = True
        return mask

    def _interpolate_curves(self, at: Floats, information: Floats, gained: Floats) -> Floats:
        """Return curves (n, K) through the gain in output at each amount of information, (n, shares), and both ends."""
        if self.monotone:
            gained = np.maximum.accumulate(gained, axis=1)
        curves = np.empty((len(gained), len(at)))
        for i, (x, y) in enumerate(zip(information, gained, strict=True)):
            x, y = np.append(x, [0.0, 1.0]), np.append(y, [0.0, 1.0])
            order = x.argsort(kind="stable")  # more pixels need not be more information; of equal ones the end comes last
            curves[i] = np.interp(at, x[order], y[order])
        return curves

    def _evaluate(
        self, task: Task, film: _Film, rows: NDArray[np.intp], mask_of: Callable[[int], Mask]
    ) -> tuple[Floats, Floats]:
        """Return size and output of the explicands `rows` (n,), each interpolated between the pixels of its mask."""
        sizes, outputs = np.empty(len(rows)), np.empty(len(rows))
        task.progress.expect(len(rows))

        def make(number: int) -> tuple[Images, int]:
            image = interpolate(film.images[rows[number]], mask_of(number))
            return image, compressed_size(image, self.compression)

        def work(piece: range) -> None:
            part = slice(piece.start, piece.stop)
            images, sizes[part] = zip(*threads.map(make, piece), strict=True)
            row = torch.from_numpy(rows[part]).to(task.x.device)
            scores = task.session.scores(film.to_data(np.stack(images)), task.rows[row])
            outputs[part] = self.measure(scores, task.target[row], task.session.model).double().cpu().numpy()
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
    """The softmax information curve: the output is the probability of the explained class [Kapishnikov 2019].

    The arguments are those of `InformationCurve`.
    """

    name = "SIC"

    def measure(self, scores: Tensor, target: Tensor, model: Model) -> Tensor:
        return scores.gather(1, target[:, None])[:, 0]


@dataclass(frozen=True, eq=False)
class AIC(InformationCurve):
    """The accuracy information curve: the output is 1 if the explained class is predicted, otherwise 0 [Kapishnikov 2019].

    For independent labels or a single output, a probability above one half predicts the class. The arguments are those of
    `InformationCurve`.
    """

    name = "AIC"

    def measure(self, scores: Tensor, target: Tensor, model: Model) -> Tensor:
        chosen = scores.gather(1, target[:, None])[:, 0]
        single = model.output == "sigmoid" or scores.shape[1] == 1
        predicted = chosen > 0.5 if single else scores.argmax(dim=1) == target
        return torch.where(chosen.isfinite(), predicted.to(chosen.dtype), chosen)


def median_curve(scores: Scores) -> tuple[Tensor, float]:
    """Summarise the curves of many images as published, by the median at each of `scores.at` [Kapishnikov 2019].

    >>> curves = torch.tensor([[0.0, 1.0], [0.2, 1.0], [0.6, 1.0]])
    >>> median_curve(Scores(curves.mean(dim=1), "SIC", curves=curves, at=torch.tensor([0.0, 1.0])))[0]
    tensor([0.2000, 1.0000])

    Args:
        scores: the result of `SIC`, `AIC`, `Insertion` or `Deletion`. Explicands with undefined scores are skipped.

    Returns:
        The median curve, (K,), and the area under it.

    Raises:
        InputError: if the metric has no curves, or no score is defined.
    """
    if scores.curves is None or scores.at is None:
        raise InputError(f"{scores.metric} draws no curves; Insertion, Deletion, SIC and AIC do")
    if not scores.n:
        raise InputError(f"{scores.metric} is not defined for any of the {len(scores)} explicands, so there is no curve")
    curve = scores.curves[~scores.values.isnan()].quantile(0.5, dim=0)
    return curve, float(torch.trapezoid(curve, scores.at))


@dataclass(frozen=True)
class _Film:
    """The explicands as images of 8 bits per channel, and the conversion back to the data space."""

    images: Images  # (B, H, W, C)
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

    def to_data(self, images: Images) -> Tensor:
        """Convert images (n, H, W, C) to the network's data space."""
        levels = torch.from_numpy(images).to(self.low.device).permute(0, 3, 1, 2).to(self.low.dtype)
        return self.low + levels * (self.high - self.low) / 255


def interpolate(image: Images, known: Mask) -> Images:
    """Fill in the unknown pixels of an image (H, W, C) linearly between the known ones, which include its corners."""
    if known.all():
        return image
    spatial = import_extra("scipy.spatial", "image", "an information curve")
    points = np.argwhere(known)
    triangles = points[spatial.Delaunay(points).simplices]  # (T, corners, row and column)
    # The pixels of each triangle are looked for in the box around it, in whole numbers: twice the area across from each corner
    # is its weight. `scipy.interpolate` has the same weights from a call of LAPACK for each triangle; in several threads at
    # once, each of which LAPACK spread over all cores, it took six times as long as in one.
    triangles = triangles[np.abs(_double_areas(triangles, triangles[:, 0]).sum(axis=1)) > 1]  # smaller ones have corners alone
    low = triangles.min(axis=1)
    height, width = (triangles.max(axis=1) - low + 1).T
    owner = np.repeat(np.arange(len(triangles)), height * width)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(height * width) - height * width, height * width)
    pixels = low[owner] + np.stack(np.divmod(place, width[owner]), axis=1)
    unknown = ~known[tuple(pixels.T)]
    owner, pixels = owner[unknown], pixels[unknown]
    areas = _double_areas(triangles[owner], pixels)
    inside = (areas >= 0).all(axis=1) | (areas <= 0).all(axis=1)
    areas, corners = areas[inside], triangles[owner[inside]]
    filled = image.copy()
    mean = (areas[..., None] * image[tuple(corners.T)].swapaxes(0, 1)).sum(axis=1) / areas.sum(axis=1)[:, None]
    filled[tuple(pixels[inside].T)] = np.rint(mean)
    return filled


def _double_areas(triangles: NDArray[np.intp], points: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return twice the signed areas between a point (n, 2) and the side opposite each corner of a triangle (n, 3, 2)."""
    first, second = (np.roll(triangles - points[:, None], turn, axis=1) for turn in (-1, -2))
    areas: NDArray[np.intp] = first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]
    return areas


def compressed_size(image: Images, compression: str) -> int:
    """Return the number of bytes of the losslessly compressed image (H, W, C)."""
    pillow = import_extra("PIL.Image", "image", "an information curve")
    file = io.BytesIO()
    pillow.fromarray(image if image.shape[2] == 3 else image[:, :, 0]).save(file, **COMPRESSIONS[compression])
    return file.tell()


def _rescale(values: Floats, start: Floats, end: Floats) -> Floats:
    """Rescale values (n, K) from 0 at the start to 1 at the end (n,), and clip them to this range."""
    return np.clip((values - start[:, None]) / (end - start)[:, None], 0.0, 1.0)
