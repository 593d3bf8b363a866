"""Targets, the part of a network's result to explain: a class, a region, a detected box, a similarity, a forecast, a sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor
from torch.nn import functional

from ig2._utils.checks import check_choice
from ig2.errors import InputError, ModelError, describe
from ig2.names import name_output

Name = Callable[[int], str]
Measure = Literal["cosine", "dot", "distance"]
Activation = Literal["softmax", "sigmoid"]
# What networks with two ends call the embedding they return.
EMBEDDINGS = ("image_embeds", "text_embeds", "sentence_embedding")
# What MaskFormer and its relatives call the classes and the masks of their queries.
QUERIES = ("class_queries_logits", "masks_queries_logits")


def _each(axes: int, **default: Any) -> Any:
    """Return a setting with this many axes, or one more if each explicand has its own."""
    return field(metadata={"axes": axes}, **default)


@dataclass(frozen=True, eq=False)
class Target(ABC):
    """The base class of targets: a number for each sample, computed from the result of the network.

    Subclasses are frozen dataclasses of their settings. Every method and metric takes one as `target`. To write your own:

    >>> import ig2
    >>> @dataclass(frozen=True, eq=False)
    ... class Entropy(Target):
    ...     def read(self, result, rows):
    ...         return -(result.softmax(dim=1) * result.log_softmax(dim=1)).sum(dim=1)
    ...
    ...     def describe(self, row, name=name_output):
    ...         return "how unsure the network is"
    >>> ig2.Gradient()(torch.nn.Linear(3, 2), torch.zeros(1, 3), Entropy()).explained
    ['how unsure the network is']
    """

    of_classes: ClassVar[bool] = False
    """Whether it reads classes. If the model explains their probabilities, `read` is called with these."""

    @abstractmethod
    def read(self, result: Any, rows: Tensor) -> Tensor:
        """Return the number to explain for each of n samples, (n,).

        Args:
            result: the result of the network, or of the model's `output` function.
            rows: the explicand that each sample is, or is a variant of, (n,); for settings with one value per explicand.
        """

    @abstractmethod
    def describe(self, row: int, name: Name = name_output) -> str:
        """Describe in words what is explained for an explicand.

        Args:
            row: the index of the explicand.
            name: a function from the number of a class to its name.
        """

    def check(self, outputs: Tensor) -> None:  # noqa: B027 - most have nothing to check
        """Check that there is something to explain, given the outputs of the explicands, (B,); by default there always is.

        Raises:
            InputError: if there is nothing to explain.
        """

    def take(self, rows: Sequence[int] | Tensor) -> Self:
        """Return the target for some of the explicands."""
        taken: dict[str, Any] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, Target):
                taken[part.name] = value.take(rows)
            elif self._has_each(part.name):
                taken[part.name] = torch.as_tensor(value)[torch.as_tensor(rows, device="cpu")]
        return replace(self, **taken)

    @property
    def has_each(self) -> bool:
        """Whether any setting has one value per explicand."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        return any(part.has_each if isinstance(part, Target) else self._has_each(name) for name, part in parts.items())

    def _has_each(self, name: str) -> bool:
        """Return whether a setting has one value per explicand."""
        axes = next(part.metadata.get("axes") for part in fields(self) if part.name == name)
        value = getattr(self, name)
        return axes is not None and value is not None and torch.as_tensor(value).ndim == axes + 1

    def _of(self, name: str, rows: Tensor) -> Tensor:
        """Return the value of a setting for each of n samples, (n, ...)."""
        value = torch.as_tensor(getattr(self, name), device=rows.device)
        if not self._has_each(name):
            return value.expand(len(rows), *value.shape)
        if int(rows.max()) >= len(value):
            kind = type(self).__name__
            raise InputError(f"{kind} has {name} for {len(value)} explicands, and there are more: give one for each")
        return value[rows]

    def _read_setting(self, name: str, row: int) -> Any:
        """Return the value of a setting for an explicand, as Python numbers."""
        return self._of(name, torch.tensor([row]))[0].tolist()

    # -- files ---------------------------------------------------------------------------------------------------------

    def pack(self, prefix: str = "question") -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Split the target into content for JSON and tensors by name. A function becomes None."""
        content: dict[str, Any] = {"type": type(self).__name__}
        tensors: dict[str, Tensor] = {}
        for part in fields(self):
            name, value = f"{prefix}/{part.name}", getattr(self, part.name)
            if isinstance(value, Target):
                content[part.name], inner = value.pack(name)
                tensors |= inner
            elif isinstance(value, Tensor):
                content[part.name], tensors[name] = {"tensor": name}, value
            else:
                content[part.name] = None if callable(value) else value
        return content, tensors

    @staticmethod
    def unpack(content: Mapping[str, Any], tensors: dict[str, Tensor]) -> Target:
        """Rebuild a target that `pack` split; for a class from outside this module, or a function, only its description."""
        kind = globals().get(str(content["type"]))
        if not (isinstance(kind, type) and issubclass(kind, Target) and is_dataclass(kind)):
            return Apply(None, f"{content['type']}, a target that is not in the file")
        settings = {}
        for name, value in content.items():
            if isinstance(value, dict):
                value = tensors.pop(value["tensor"]) if "tensor" in value else Target.unpack(value, tensors)
            if name != "type":
                settings[name] = tuple(value) if isinstance(value, list) else value
        target: Target = kind(**settings)
        return target

    @staticmethod
    def join(parts: Sequence[tuple[Target | None, int]]) -> Target:
        """Join targets into one for the explicands of all.

        Args:
            parts: the targets, each with the number of its explicands.

        Raises:
            InputError: if the targets differ.
        """
        first = parts[0][0]
        if first is None or any(type(target) is not type(first) for target, _ in parts):
            raise InputError(f"cannot join: they explain {', '.join(type(target).__name__ for target, _ in parts)}")
        joined: dict[str, Any] = {}
        for part in fields(first):
            values = [getattr(target, part.name) for target, _ in parts]
            if isinstance(values[0], Target):
                counts = [count for _, count in parts]
                joined[part.name] = Target.join(list(zip(values, counts, strict=True)))
            elif all(_is_same(value, values[0]) for value in values) and not first._has_each(part.name):
                joined[part.name] = values[0]
            elif ("axes" in part.metadata and not any(value is None for value in values)) or first._has_each(part.name):
                rows = [target._of(part.name, torch.arange(count)) for target, count in parts if target is not None]
                joined[part.name] = torch.cat(rows)
            else:
                raise InputError(f"cannot join: the {part.name} of their targets differ, {describe(values)}")
        return replace(first, **joined)


def find_tensor(result: Any) -> Tensor:
    """Find the tensor of scores in the result of a network: the result itself, its "logits" or "out", or its only tensor.

    Raises:
        ModelError: if there is no tensor, or several.
    """
    if isinstance(result, Mapping):
        result = next((result[key] for key in ("logits", "out") if key in result), result)
        if isinstance(result, Mapping) and len(result) == 1:
            result = next(iter(result.values()))
    elif not isinstance(result, Tensor) and isinstance(getattr(result, "logits", None), Tensor):
        result = result.logits
    if isinstance(result, (tuple, list)) and len(result) == 1:
        result = result[0]
    if not isinstance(result, Tensor):
        keys = f" with keys {list(result)}" if isinstance(result, Mapping) else ""
        raise ModelError(
            f"the network returned {describe(result)}{keys}, not one tensor: choose one, "
            "ig2.wrap(net, output=lambda result: result[...])"
        )
    return result


@dataclass(frozen=True, eq=False)
class Class(Target):
    """The output of a class, f_c; equivalent to passing its number. By default the class predicted for each explicand.

    Args:
        index: the number of the class, or one for each explicand; None for the predicted class.

    >>> import ig2
    >>> ig2.Gradient()(torch.nn.Linear(3, 2), torch.zeros(1, 3), Class(1)).explained
    ['class 1']
    """

    index: int | Sequence[int] | Tensor | None = _each(0, default=None)
    of_classes = True

    def read(self, result: Any, rows: Tensor) -> Tensor:
        if self.index is None:
            raise InputError("Class() is the class predicted, which changes on a path: name it here, Class(3)")
        scores = find_tensor(result)
        if scores.ndim != 2:
            raise ModelError(f"the network returned {describe(scores)}: Class needs (B, classes). Of a map, use Region")
        index = self._of("index", rows.to(scores.device))
        _check_index(index, scores.shape[1], "class")
        return scores.gather(1, index[:, None])[:, 0]

    def describe(self, row: int, name: Name = name_output) -> str:
        return "the class predicted" if self.index is None else name(self._read_setting("index", row))


@dataclass(frozen=True, eq=False)
class Difference(Target):
    """The difference of two targets, f_a − f_b: why a rather than b?

    Args:
        first: the number of a class, or a target.
        second: the number of a class, or a target; for classes, equivalent to `against=`.

    >>> import ig2
    >>> ig2.Gradient()(torch.nn.Linear(3, 3), torch.zeros(1, 3), Difference(1, 2)).explained
    ['class 1 rather than class 2']
    """

    first: Any
    second: Any

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            object.__setattr__(self, name, as_target(getattr(self, name)))

    def read(self, result: Any, rows: Tensor) -> Tensor:
        return self.first.read(result, rows) - self.second.read(result, rows)  # type: ignore[no-any-return]

    def describe(self, row: int, name: Name = name_output) -> str:
        return f"{self.first.describe(row, name)} rather than {self.second.describe(row, name)}"


@dataclass(frozen=True, eq=False)
class Region(Target):
    """The mean output of a class over a region of a map, such as those of segmentation and other dense networks.

    f = Σ_p m_p · f_{c,p} / Σ_p m_p over the positions p of a result (B, classes, *positions), with m the mask. A mask of
    another size, such as that of the input, is resized to the result by averaging over each position. A result
    (B, *positions), such as a depth map, is read without a class. For MaskFormer and related networks, whose queries have
    masks and classes, the map is f_{c,p} = Σ_q softmax(classes)_{q,c} · σ(masks)_{q,p}, as transformers combines them.

    Args:
        where: a boolean mask (*positions), or the corners of a box: (x0, y0, x1, y1) in an image, (start, end) in sound,
            (x0, y0, z0, x1, y1, z1) in a volume; or boxes (B, corners), one for each explicand.
        index: the class, or one for each explicand; None for the sum over classes.
        size: the size (height, width) of the image that the box refers to; by default that of the result.
        each: whether the mask is (B, *positions), one for each explicand.

    Raises:
        InputError: if the region is empty.

    >>> import ig2
    >>> net = torch.nn.Conv2d(1, 5, 3, padding=1).eval()
    >>> attribution = ig2.IntegratedGradients()(net, torch.rand(1, 1, 8, 8), Region((2, 2, 4, 4), 3))
    >>> attribution.explained, attribution.verdict
    (['class 3 in the box (2, 2, 4, 4)'], 'sums to the change in the output')
    """

    where: Tensor | Sequence[float]
    index: int | Sequence[int] | Tensor | None = _each(0, default=None)
    size: Sequence[int] | None = None
    each: bool = False

    def __post_init__(self) -> None:
        where = torch.as_tensor(self.where)
        if where.ndim == 0 or not where.numel():
            raise InputError(f"where must be a mask or the corners of a box, got {describe(self.where)}")
        if where.dtype != torch.bool:
            if where.ndim > 2 or where.shape[-1] not in (2, 4, 6):
                raise InputError(f"where is {describe(self.where)}: a mask is of booleans, a box has 2, 4 or 6 corners")
            object.__setattr__(self, "each", where.ndim == 2)

    @property
    def _is_mask(self) -> bool:
        return torch.as_tensor(self.where).dtype == torch.bool

    @property
    def of_classes(self) -> bool:  # type: ignore[override]
        """Whether a class is given: without one, the sum of the probabilities would be 1."""
        return self.index is not None

    @property
    def _axes(self) -> int:
        """The number of spatial axes."""
        where = torch.as_tensor(self.where)
        return where.ndim - self.each if self._is_mask else where.shape[-1] // 2

    def _has_each(self, name: str) -> bool:
        return self.each if name == "where" else super()._has_each(name)

    def read(self, result: Any, rows: Tensor) -> Tensor:
        scores = _find_map(result)
        if scores.ndim == self._axes + 1 and self.index is None:
            scores = scores[:, None]
        if scores.ndim < 3:
            raise ModelError(f"the network returned {describe(scores)}: a Region is of a map (B, classes, places …)")
        chosen = scores.sum(dim=1)
        if self.index is not None:
            index = self._of("index", rows)
            _check_index(index, scores.shape[1], "class")
            chosen = scores[torch.arange(len(scores), device=scores.device), index.to(scores.device)]
        mask = self._make_mask(scores, rows)
        weights = mask / mask.flatten(1).sum(dim=1).reshape(-1, *[1] * (mask.ndim - 1))
        return (chosen * weights).flatten(1).sum(dim=1)

    def _make_mask(self, scores: Tensor, rows: Tensor) -> Tensor:
        """Return the weight of each position, (n, *positions)."""
        places = scores.shape[2:]
        chosen = self._of("where", rows.to(scores.device)).to(scores.dtype)
        if chosen.ndim != (len(places) + 1 if self._is_mask else 2) or (
            not self._is_mask and chosen.shape[1] != 2 * len(places)
        ):
            raise InputError(
                f"where is {describe(self.where)} for a map {tuple(scores.shape)}: expected a mask of {len(places)} axes, with "
                f"each=True of one more, or {2 * len(places)} corners"
            )
        mask = chosen if self._is_mask else self._draw_box(chosen, places)
        if mask.shape[1:] != places:
            mask = functional.interpolate(mask[:, None], places, mode="area")[:, 0]
        empty = mask.flatten(1).sum(dim=1) == 0
        if empty.any():
            row = int(rows[empty][0])
            raise InputError(f"the region of explicand {row}, {describe(self.where)}, holds no place of a map {tuple(places)}")
        return mask

    def _draw_box(self, corners: Tensor, places: torch.Size) -> Tensor:
        """Return the share of each position that lies in a box, (n, *positions)."""
        mask, count = corners.new_ones(len(corners), *places), len(places)
        sizes = places if self.size is None else tuple(self.size)
        for axis, (cells, size) in enumerate(zip(places, sizes, strict=True)):
            # x, the first corner, lies along the last axis
            low, high = (corners[:, side * count + count - 1 - axis, None] * cells / size for side in (0, 1))
            cell = torch.arange(cells, device=corners.device, dtype=corners.dtype)
            inside = (torch.minimum(high, cell + 1) - torch.maximum(low, cell)).clamp(min=0)
            mask = mask * inside.reshape(len(corners), *[-1 if i == axis else 1 for i in range(count)])
        return mask

    def describe(self, row: int, name: Name = name_output) -> str:
        what = "the whole output" if self.index is None else name(self._read_setting("index", row))
        if self._is_mask:
            return f"{what} in a mask"
        return f"{what} in the box ({', '.join(f'{number:g}' for number in self._read_setting('where', row))})"


def has_queries(result: Any) -> bool:
    """Return whether the result of a network holds queries with masks and classes, which combine to a probability map."""
    return all(isinstance(getattr(result, name, None), Tensor) for name in QUERIES) or (
        isinstance(result, Mapping) and all(name in result for name in QUERIES)
    )


def _find_map(result: Any) -> Tensor:
    """Return the map in the result of a network; queries with masks and classes are combined to one."""
    if not has_queries(result):
        return find_tensor(result)
    classes, masks = (result[name] if isinstance(result, Mapping) else getattr(result, name) for name in QUERIES)
    return torch.einsum("bqc,bqhw->bchw", classes.softmax(dim=2)[..., :-1], masks.sigmoid())  # the last is no object


@dataclass(frozen=True, eq=False)
class Box(Target):
    """A detection: the score of a detector's best match for a box, times their overlap.

    f = max_j s_j · IoU(b_j, b) over the predictions j of the class whose overlap, intersection over union, is at least `iou`;
    zero if there are none [Petsiuk 2021]. The result may be torchvision's list of dicts (boxes, labels, scores), with boxes in
    pixels, or a set as DETR returns it (logits, pred_boxes), with s the softmax over classes and boxes as fractions of width
    and height. The scores of Conditional and Deformable DETR, RT-DETR and others without a "no object" class are sigmoids:
    `activation="sigmoid"`. A detector that drops predictions with low scores drops them along a path too: set its threshold
    low, or use a complete rule.

    Args:
        box: (x0, y0, x1, y1), or one for each explicand, (B, 4).
        index: the class, or one for each explicand.
        iou: the smallest overlap of a match.
        activation: the function from a set's logits to scores, "softmax" or "sigmoid".

    Raises:
        InputError: if an explicand has no matching prediction.

    >>> import ig2
    >>> boxes = torch.tensor([[[0.5, 0.5, 0.4, 0.4]]])
    >>> detect = lambda x: {"logits": x[:, None, :], "pred_boxes": boxes.expand(len(x), -1, -1)}
    >>> ig2.Gradient()(detect, torch.tensor([[0.0, 0.0]]), Box((0.3, 0.3, 0.7, 0.7), 1)).output
    tensor([0.5000])
    """

    box: Sequence[float] | Tensor = _each(1)
    index: int | Sequence[int] | Tensor = _each(0)
    iou: float = 0.5
    activation: Activation = "softmax"

    def __post_init__(self) -> None:
        box = torch.as_tensor(self.box)
        if box.ndim not in (1, 2) or box.shape[-1] != 4:
            raise InputError(f"box must be (x0, y0, x1, y1), or one for each explicand, (B, 4), got {describe(self.box)}")
        empty = ~(box[..., 2:] > box[..., :2]).all(dim=-1).reshape(-1)
        if empty.any():
            row = int(empty.nonzero()[0])
            corners = ", ".join(f"{number:g}" for number in box.reshape(-1, 4)[row].tolist())
            of = f" for explicand {row}" if box.ndim == 2 else ""
            raise InputError(f"box must be (x0, y0, x1, y1) with x0 < x1 and y0 < y1, got ({corners}){of}")
        check_choice(self.activation, Activation, "activation")
        if not 0 < self.iou <= 1:
            raise InputError(f"iou must be in (0, 1], got {describe(self.iou)}")

    def read(self, result: Any, rows: Tensor) -> Tensor:
        box, index = self._of("box", rows), self._of("index", rows)
        predictions = list(_list_predictions(result, len(rows), index, self.activation))
        outputs = []
        for (boxes, scores), wanted in zip(predictions, box, strict=True):
            overlap = _overlap(boxes, wanted.to(boxes))
            match = torch.where(overlap >= self.iou, scores * overlap, 0.0)
            # beside a zero: where nothing matches there is nothing to take the largest of
            outputs.append(torch.cat([match, match.new_zeros(1)]).max() + 0 * (scores.sum() + boxes.sum()))
        return torch.stack(outputs)

    def check(self, outputs: Tensor) -> None:
        nothing = (outputs == 0).nonzero()
        if len(nothing):
            row = int(nothing[0])
            raise InputError(
                f"the detector predicts no {self.describe(row)} for explicand {row} that overlaps by {self.iou:g} or more: "
                "look at what it returns, and give a box and class of it, or a smaller iou="
            )

    def describe(self, row: int, name: Name = name_output) -> str:
        corners = ", ".join(f"{number:g}" for number in self._read_setting("box", row))
        return f"{name(self._read_setting('index', row))} at the box ({corners})"


def _list_predictions(result: Any, count: int, index: Tensor, activation: str) -> list[tuple[Tensor, Tensor]]:
    """Return, for each sample, the boxes (k, 4) and scores (k,) of a detector's predictions of a class."""
    if (
        isinstance(result, (list, tuple))
        and len(result) == count
        and all(isinstance(prediction, Mapping) for prediction in result)
    ):
        chosen = [(prediction, prediction["labels"] == int(number)) for prediction, number in zip(result, index, strict=True)]
        return [(prediction["boxes"][which], prediction["scores"][which]) for prediction, which in chosen]
    logits, boxes = (
        result.get(name) if isinstance(result, Mapping) else getattr(result, name, None) for name in ("logits", "pred_boxes")
    )
    if not isinstance(logits, Tensor) or not isinstance(boxes, Tensor):
        raise ModelError(
            f"the network returned {describe(result)}: a Box is of a list of dicts with boxes, labels and scores, one for each "
            "image, or of a set with logits and pred_boxes. Bring it to one of these with ig2.wrap(net, output=...)"
        )
    _check_index(index, logits.shape[2], "class")
    scores = logits.softmax(dim=2) if activation == "softmax" else logits.sigmoid()
    scores = scores.gather(2, index.to(logits.device)[:, None, None].expand(-1, logits.shape[1], 1))[..., 0]
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return list(zip(torch.cat([centre - half, centre + half], dim=2), scores, strict=True))


def _overlap(boxes: Tensor, box: Tensor) -> Tensor:
    """Return the intersection over union of boxes (k, 4) with one box, (k,)."""
    low, high = torch.maximum(boxes[:, :2], box[:2]), torch.minimum(boxes[:, 2:], box[2:])
    shared = (high - low).clamp(min=0).prod(dim=1)
    areas = (boxes[:, 2:] - boxes[:, :2]).clamp(min=0).prod(dim=1) + (box[2:] - box[:2]).prod()
    return shared / (areas - shared)


@dataclass(frozen=True, eq=False)
class Similarity(Target):
    """The similarity of the embedding that a network returns, (B, features), to another embedding.

    The cosine a·b / (‖a‖ ‖b‖), the product a·b, or minus the distance, −‖a − b‖. For towers of transformers with a projection,
    such as CLIP's, `image_embeds` or `text_embeds` is read.

    Args:
        other: the other embedding (features,), or one for each explicand, (B, features).
        measure: "cosine", "dot" or "distance".

    >>> import ig2
    >>> net = torch.nn.Linear(3, 4, bias=False).eval()
    >>> other = net(torch.ones(1, 3))[0].detach()
    >>> ig2.Gradient()(net, torch.full((1, 3), 2.0), Similarity(other)).output.round(decimals=4)
    tensor([1.])
    """

    other: Tensor = _each(1)
    measure: Measure = "cosine"

    def __post_init__(self) -> None:
        if not isinstance(self.other, Tensor) or self.other.ndim not in (1, 2):
            raise InputError(f"other must be an embedding (features,), or one for each explicand, got {describe(self.other)}")
        object.__setattr__(self, "other", self.other.detach())
        check_choice(self.measure, Measure, "measure")

    def read(self, result: Any, rows: Tensor) -> Tensor:
        named = [result[key] for key in EMBEDDINGS if key in result] if isinstance(result, Mapping) else []
        embedding = named[0] if len(named) == 1 else find_tensor(result)
        other = self._of("other", rows).to(embedding)
        if embedding.shape != other.shape:
            raise InputError(
                f"the network returned an embedding {tuple(embedding.shape)} and other is {tuple(other.shape)}: give one that "
                "the same network returned"
            )
        if self.measure == "cosine":
            return functional.cosine_similarity(embedding, other, dim=1)
        if self.measure == "dot":
            return (embedding * other).sum(dim=1)
        return -(embedding - other).norm(dim=1)  # type: ignore[no-any-return]

    def describe(self, row: int, name: Name = name_output) -> str:
        words = {"cosine": "the cosine with", "dot": "the product with", "distance": "minus the distance from"}
        return f"{words[self.measure]} another embedding"


@dataclass(frozen=True, eq=False)
class Horizon(Target):
    """The mean over time steps of the forecast that a network returns, (B, steps) or (B, steps, channels).

    Args:
        steps: a time step, several, or None for all; −1 is the last.
        channel: the channel, if there are several; None for the sum over them.

    >>> import ig2
    >>> net = torch.nn.Linear(3, 4, bias=False).eval()
    >>> ig2.Gradient()(net, torch.ones(1, 3), Horizon((2, 3))).explained
    ['the forecast of steps 2, 3']
    """

    steps: int | Sequence[int] | None = None
    channel: int | None = None

    def read(self, result: Any, rows: Tensor) -> Tensor:
        forecast = find_tensor(result)
        if forecast.ndim not in (2, 3) or (forecast.ndim == 2 and self.channel is not None):
            raise ModelError(
                f"the network returned {describe(forecast)}: a Horizon is of (B, steps), or of (B, steps, channels), where a "
                "channel can be chosen"
            )
        if forecast.ndim == 3:
            if self.channel is not None:
                _check_index(torch.tensor(self.channel), forecast.shape[2], "channel")
            forecast = forecast.sum(dim=2) if self.channel is None else forecast[..., self.channel]
        if self.steps is None:
            return forecast.mean(dim=1)
        steps = torch.as_tensor(self.steps, device=forecast.device).reshape(-1)
        steps = torch.where(steps < 0, steps + forecast.shape[1], steps)
        _check_index(steps, forecast.shape[1], "step")
        return forecast[:, steps].mean(dim=1)

    def describe(self, row: int, name: Name = name_output) -> str:
        steps = [] if self.steps is None else torch.as_tensor(self.steps).reshape(-1).tolist()
        when = f" of step{'s' * (len(steps) > 1)} {', '.join(map(str, steps))}" if steps else ""
        return f"the forecast{when}" + ("" if self.channel is None else f" in channel {self.channel}")


@dataclass(frozen=True, eq=False)
class Sum(Target):
    """The sum of all numbers that the network returns for a sample.

    >>> import ig2
    >>> ig2.Gradient()(lambda x: x[:, None] * torch.ones(2, 1), torch.zeros(1, 3), Sum()).values
    tensor([[2., 2., 2.]])
    """

    def read(self, result: Any, rows: Tensor) -> Tensor:
        return find_tensor(result).flatten(1).sum(dim=1)

    def describe(self, row: int, name: Name = name_output) -> str:
        return "the sum of the outputs"


@dataclass(frozen=True, eq=False)
class Magnitude(Target):
    """The norm of the network's result for a sample, (Σ|f|ᵖ)^(1/p).

    Args:
        order: the order p of the norm.
    """

    order: float = 2.0

    def read(self, result: Any, rows: Tensor) -> Tensor:
        return torch.linalg.vector_norm(find_tensor(result).flatten(1), ord=self.order, dim=1)  # type: ignore[no-any-return]

    def describe(self, row: int, name: Name = name_output) -> str:
        return f"the norm of the output{'' if self.order == 2 else f' of order {self.order:g}'}"


@dataclass(frozen=True, eq=False)
class Apply(Target):
    """Any function of the network's result. A function passed as `target` is wrapped in this class.

    Args:
        function: a function from the network's result to (B,).
        words: a description of what it explains.

    >>> import ig2
    >>> ig2.Gradient()(torch.nn.Linear(3, 2), torch.zeros(1, 3), lambda result: result.square().mean(dim=1)).explained
    ['a function of the output']
    """

    function: Callable[[Any], Tensor] | None
    words: str = "a function of the output"

    def read(self, result: Any, rows: Tensor) -> Tensor:
        if self.function is None:
            raise InputError(f"the file has {self.words!r} and not the function: pass it, target=...")
        return self.function(result)

    def describe(self, row: int, name: Name = name_output) -> str:
        return self.words

    @staticmethod
    def name(function: Callable[..., Any]) -> str:
        """Return a description of a function: by its name, if it has one."""
        named = getattr(function, "__name__", "<lambda>")
        return "a function of the output" if named == "<lambda>" else f"{named} of the output"


AnyTarget = int | Sequence[int] | Tensor | Target | Callable[[Any], Tensor] | None


def as_target(target: AnyTarget) -> Target:
    """Return a target unchanged, a number or None as a `Class`, and a function as an `Apply`."""
    if isinstance(target, Target):
        return target
    if callable(target) and not isinstance(target, (Tensor, type)):
        return Apply(target, Apply.name(target))
    return Class(target)  # type: ignore[arg-type]  # what it holds is checked beside the number of classes


def _is_same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and bool((a == b).all())
    return bool(a == b)


def _check_index(index: Tensor, count: int, what: str) -> None:
    if int(index.min()) < 0 or int(index.max()) >= count:
        raise InputError(f"{what} {sorted(set(index.reshape(-1).tolist()))} is none: there are {count}, 0 to {count - 1}")
