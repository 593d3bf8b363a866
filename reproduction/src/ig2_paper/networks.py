"""The networks that the paper explains, untrained: for wafer maps, digits, questions and faces.

Each takes samples in the space in which they are explained, pictures from 0 to 1 and texts as embeddings, and knows with
`inputs` how the samples of a data set get there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from os import PathLike
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor, nn

from ig2._utils.checks import is_count, is_number
from ig2._utils.files import check_regular
from ig2.demo import questions
from ig2.demo.questions import PAD, UNKNOWN
from ig2.errors import InputError, describe, reason
from ig2_paper.datasets.wafer.drawn import one_hot

FilePath = str | PathLike[str]


class Network(nn.Module):
    """A network that knows what to make of a data set's samples."""

    def inputs(self, x: Tensor | tuple[str, ...]) -> Tensor:
        """What the network is called with for these samples of a data set."""
        raise NotImplementedError


class OfPictures(Network):
    """Takes pictures (B, C, H, W) from 0 to 1. Bytes become that; floats are taken to be in that space already."""

    channels: int
    size: tuple[int, int] | None = None
    """Height and width; None where any will do."""

    def inputs(self, x: Tensor | tuple[str, ...]) -> Tensor:
        x = self._checked(x, self.channels)
        return x if x.is_floating_point() else x.float() / 255

    def _checked(self, x: Tensor | tuple[str, ...], channels: int) -> Tensor:
        fits = isinstance(x, Tensor) and x.ndim == 4 and x.shape[1] == channels and self.size in (None, tuple(x.shape[2:]))
        if not isinstance(x, Tensor) or not fits or not (x.dtype == torch.uint8 or x.is_floating_point()):
            height, width = self.size or ("H", "W")
            wanted = f"expected pictures (N, {channels}, {height}, {width}) as bytes or floats"
            raise InputError(f"{type(self).__name__} cannot take {describe(x)}: {wanted}")
        return x


class Convolutional(OfPictures):
    """Layers conv1, conv2, … one after the other, then fc1 and fc2."""

    def forward(self, x: Tensor) -> Tensor:
        """Scores from pictures (B, C, H, W)."""
        for layer in self.children():
            x = layer(x)
        return x


# -- wafer maps and digits ---------------------------------------------------------------------------------------------


class WaferCNN(Convolutional):
    """Convolutions 3-32-64-128, each with ReLU and pooling, then 8192-1250-9, as the paper's appendix has it.

    Args:
        classes: how many.
        size: pixels a side; the paper's 56 lead to its 8192 features.
    """

    channels = 3

    def __init__(self, classes: int = 9, size: int = 56) -> None:
        super().__init__()
        if not is_count(size):
            raise InputError(f"size must be a whole number of pixels, got {describe(size)}")
        self.size = (size, size)
        for number, (inside, outside) in enumerate(((3, 32), (32, 64), (64, 128)), start=1):
            # padding 2 is what leads from 56 pixels to the 8192 features of the table
            layer = nn.Sequential(nn.Conv2d(inside, outside, 3, padding=2), nn.ReLU(), nn.MaxPool2d(2))
            self.add_module(f"conv{number}", layer)
            size = (size + 2) // 2
        self.fc1 = nn.Sequential(nn.Flatten(), nn.Linear(128 * size**2, 1250), nn.ReLU())
        self.fc2 = nn.Linear(1250, classes)

    def inputs(self, x: Tensor | tuple[str, ...]) -> Tensor:
        """One-hot maps from codes (N, 1, H, W): outside, passing and failing dies. Floats (N, 3, H, W) stay as they are."""
        if isinstance(x, Tensor) and x.is_floating_point():
            return self._checked(x, 3)
        return one_hot(self._checked(x, 1))


class DigitCNN(Convolutional):
    """For digits of 28 × 28: two convolutions of 5 × 5, 1-32-64, each with ReLU and pooling, then 3136-128-10.

    Args:
        classes: how many.
    """

    channels = 1
    size = (28, 28)

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        self.conv2 = nn.Sequential(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        self.fc1 = nn.Sequential(nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.5))
        self.fc2 = nn.Linear(128, classes)


# -- faces -------------------------------------------------------------------------------------------------------------


class FaceCNN(Convolutional):
    """For drawn faces: normalised convolutions 3-16-32-64-64, each with ReLU and pooling, then 128 features.

    Parts of these faces are where they always are, so their places are kept up to the end. Trained alike on 1,200 faces, it was
    right in 92 % of the attributes of 300 others, and MobileNet-v2 of width 0.35, which averages over places, in 76 %.

    Args:
        outputs: how many labels.
        size: height and width of the pictures.
    """

    channels = 3

    def __init__(self, outputs: int, size: tuple[int, int] = (109, 89)) -> None:
        super().__init__()
        if min(size) < 16:
            raise InputError(f"faces must be 16 pixels a side or more, got {describe(size)}")
        self.size = size
        for number, (inside, outside) in enumerate(((3, 16), (16, 32), (32, 64), (64, 64)), start=1):
            layer = nn.Conv2d(inside, outside, 3, padding=1, bias=False)
            self.add_module(f"conv{number}", nn.Sequential(layer, nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2)))
        features = 64 * (size[0] // 16) * (size[1] // 16)
        self.fc1 = nn.Sequential(nn.Flatten(), nn.Linear(features, 128), nn.ReLU(), nn.Dropout(0.3))
        self.fc2 = nn.Linear(128, outputs)


# of each stage: how much wider its blocks are inside, its channels, how many blocks, the stride of the first
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
# ImageNet's, which weights of torchvision were trained with
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class MobileNetV2(OfPictures):
    """MobileNet-v2. Its parameters have the names and shapes of torchvision's, whose weights fit.

    It takes pictures from 0 to 1 of any size and normalises them itself.

    Args:
        outputs: how many scores: classes, or labels that do not exclude each other.
        width: what the channels of every layer are multiplied with.
    """

    channels = 3
    mean: Tensor
    deviation: Tensor

    def __init__(self, outputs: int = 1000, width: float = 1.0) -> None:
        super().__init__()
        if not is_number(width) or width <= 0:
            raise InputError(f"width must be a positive number, got {describe(width)}")
        inside = _in_eights(32 * width)
        blocks: list[nn.Module] = [_convolution(3, inside, 3, stride=2)]
        for expansion, channels, count, stride in STAGES:
            for number in range(count):
                outside = _in_eights(channels * width)
                blocks.append(InvertedResidual(inside, outside, expansion, stride if number == 0 else 1))
                inside = outside
        last = _in_eights(1280 * max(1.0, width))
        self.features = nn.Sequential(*blocks, _convolution(inside, last, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, outputs))
        for name, values in (("mean", MEAN), ("deviation", DEVIATION)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Scores from pictures (B, 3, H, W)."""
        found = self.features((x - self.mean) / self.deviation)
        return self.classifier(found.mean(dim=(2, 3)))  # type: ignore[no-any-return]

    def start_from(self, path: FilePath) -> None:
        """Take the weights of a file written by torchvision; the last layer's only where it has as many outputs.

        Args:
            path: a state dict of a network of the same width. Nothing but tensors is read from it.
        """
        check_regular(path)
        try:
            weights = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # no such file, no archive, something else than tensors in it
            raise InputError(f"{path} cannot be read as a file of weights: {reason(error)}") from error
        own = self.state_dict()
        if not _are_named(weights, own):
            raise InputError(f"{path} holds {describe(weights)}: expected the {len(own)} tensors of a MobileNet-v2")
        last = [name for name in own if name.startswith("classifier.")]
        if any(weights[name].shape != own[name].shape for name in last):
            weights = {**weights, **{name: own[name] for name in last}}
        for name, tensor in weights.items():
            if tensor.shape != own[name].shape:
                raise InputError(
                    f"{path}: {name!r} is {describe(tensor)}, in a network of this width it is {describe(own[name])}"
                )
        self.load_state_dict(weights)


def _are_named(found: object, own: dict[str, Tensor]) -> bool:
    return isinstance(found, dict) and set(found) == set(own) and all(isinstance(item, Tensor) for item in found.values())


class InvertedResidual(nn.Module):
    """Widens, filters each channel by itself, narrows; added to what came in where the shapes agree."""

    def __init__(self, inside: int, outside: int, expansion: int, stride: int) -> None:
        super().__init__()
        middle = inside * expansion
        widen = [_convolution(inside, middle, 1)] if expansion > 1 else []
        narrow = (nn.Conv2d(middle, outside, 1, bias=False), nn.BatchNorm2d(outside))
        self.conv = nn.Sequential(*widen, _convolution(middle, middle, 3, stride, groups=middle), *narrow)
        self.adds = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.conv(x)
        return x + made if self.adds else made


def _convolution(inside: int, outside: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inside, outside, size, stride, padding=size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outside), nn.ReLU6())


def _in_eights(channels: float) -> int:
    """The nearest multiple of eight, or the next one where that would lose more than a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


# -- questions ---------------------------------------------------------------------------------------------------------

EMBEDDING = 100
FILTERS = 100


class TextCNN(Network):
    """An embedding, 100 filters each over three, four and five words, each at its strongest place, and a linear layer.

    Called with token ids (B, L), where 0 is padding; or, to be explained, with embeddings (B, L, E) and a mask (B, L) that is
    1 where there is a word. Padding changes nothing: `ig2.adapters.text.from_parts(net.embedding, net, net.cut)` explains it.

    Args:
        words: those with a vector of their own.
        classes: how many.
        embedding: how many numbers a word's vector has.
    """

    def __init__(self, words: Sequence[str], classes: int = 6, embedding: int = EMBEDDING) -> None:
        super().__init__()
        self.words = {word: number for number, word in enumerate(words, start=UNKNOWN + 1)}
        if len(self.words) != len(words):
            raise InputError(f"{len(words) - len(self.words)} of {len(words)} words stand twice: each has one vector")
        self.embedding = nn.Embedding(len(words) + UNKNOWN + 1, embedding, padding_idx=PAD)
        nn.init.uniform_(self.embedding.weight, -0.25, 0.25)
        self.rest = questions.TextCNN(embedding, FILTERS, classes)
        self.rest.dropout = nn.Dropout(0.5)
        with torch.no_grad():
            self.embedding.weight[PAD] = 0

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Scores from ids (B, L); or from embeddings (B, L, E), every one of them a word's unless a mask (B, L) says so."""
        if not x.is_floating_point():
            x, mask = self.embedding(x), x != PAD
        return self.rest(x, torch.ones_like(x[..., 0]) if mask is None else mask)  # type: ignore[no-any-return]

    def cut(self, text: str) -> list[tuple[int, int, int]]:
        """The id of each word and sign of a text, and where it starts and ends."""
        return [(self.words.get(word, UNKNOWN), start, end) for word, start, end in questions.split(text)]

    def inputs(self, x: Tensor | tuple[str, ...]) -> Tensor:
        """Ids (N, L) of texts, padded to the longest."""
        if isinstance(x, Tensor) or not all(isinstance(text, str) for text in x):
            raise InputError(f"TextCNN takes texts, got {describe(x)}")
        rows = [[number for number, _, _ in self.cut(text)] for text in x]
        ids = torch.full((len(rows), max(map(len, rows), default=1) or 1), PAD, device="cpu")
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row, dtype=torch.long, device="cpu")
        return ids

    def give_vectors(self, vectors: dict[str, Tensor]) -> None:
        """Put given vectors in the place of the first, random ones; the other words' are drawn to their scale."""
        known = [word for word in self.words if word in vectors]
        if not known:
            raise InputError(f"none of {len(self.words)} words is among the {len(vectors)} that come with a vector")
        given = torch.stack([vectors[word] for word in known])
        rows = torch.tensor([self.words[word] for word in known], device="cpu")
        with torch.no_grad():
            weight = self.embedding.weight
            weight *= given.std() / weight[UNKNOWN:].std()
            weight[rows] = given


# -- vectors of words --------------------------------------------------------------------------------------------------

LONGEST_LINE = 100_000  # bytes; three hundred numbers take some three thousand


def read_vectors(path: FilePath, words: Collection[str] = (), most: int = 0) -> dict[str, Tensor]:
    """Vectors of words from a text file in GloVe's format, a word and its numbers on each line.

    Args:
        path: the file, read line by line; the largest there are have no room in memory.
        words: whose vectors are wanted.
        most: how many more, from the beginning of the file, where the most frequent words are.
    """
    wanted, found = set(words), dict[str, Tensor]()
    check_regular(path)
    try:
        with open(path, "rb") as file:
            start, length = _first_line(file, path)
            file.seek(start)
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
                parts = line.rstrip(b"\r\n").rstrip(b" ").split(b" ")
                if len(line) == LONGEST_LINE or len(parts) <= length:
                    raise InputError(f"{path}: vector {number} has no {length} numbers after its word: {describe(line[:60])}")
                # a few words of GloVe's have blanks in them
                word = b" ".join(parts[:-length]).decode("utf-8")
                if (number <= most or word in wanted) and word not in found:
                    found[word] = _vector(parts[-length:], f"{path}: the vector of {word!r}")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8: {reason(error)}") from error
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{os.fspath(path)!r} cannot be read: {reason(error)}") from error
    return found


def _first_line(file: BinaryIO, path: FilePath) -> tuple[int, int]:
    """Where the first vector is, and how many numbers it has; word2vec's text format has their count before it."""
    start, parts = 0, file.readline(LONGEST_LINE).split()
    if len(parts) == 2 and all(part.isdigit() for part in parts):
        start, parts = file.tell(), file.readline(LONGEST_LINE).split()
    if len(parts) < 3:
        raise InputError(f"{path} does not begin with a word and its vector: expected a line such as 'the 0.418 0.24968 …'")
    return start, len(parts) - 1


def _vector(numbers: list[bytes], name: str) -> Tensor:
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
            vector = np.array(numbers).astype(np.float32)
    except ValueError as error:
        raise InputError(f"{name} holds something else than numbers: {reason(error)}") from error
    if not np.isfinite(vector).all():
        raise InputError(f"{name} holds numbers that are not finite")
    return torch.from_numpy(vector)
