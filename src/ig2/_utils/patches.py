"""The tokens of a vision transformer as the patches of an image that they stand for."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

MOST_MARKS = 8  # tokens in front that stand for no patch: a class token, one of distillation, registers


def arrange_tokens(tokens: Tensor, sizes: Sequence[int]) -> Tensor | None:
    """Return tokens (n, tokens, channels) as a map (n, channels, rows, columns) of the patches of
    an image of H × W.

    Patches are square and divide the image; tokens in front of them, such as that of the class, are dropped.

    Args:
        tokens: of each sample, row by row.
        sizes: (H, W) of the image.

    Returns:
        The map; None where the tokens fit no grid.

    >>> import torch
    >>> arrange_tokens(torch.zeros(2, 197, 8), (224, 224)).shape
    torch.Size([2, 8, 14, 14])
    """
    if tokens.ndim != 3 or len(sizes) != 2:
        return None
    height, width = sizes
    for side in range(1, max(height, width)):
        rows, columns = height // side, width // side
        marks = tokens.shape[1] - rows * columns
        if height % side == 0 and width % side == 0 and rows * columns > 1 and 0 <= marks <= MOST_MARKS:
            return tokens[:, marks:].mT.reshape(len(tokens), -1, rows, columns)
    return None
