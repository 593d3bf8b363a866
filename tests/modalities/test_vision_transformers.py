"""Vision transformers of transformers with random weights: their tokens as maps, and the likeness of an image to a text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import ig2
from ig2._utils.patches import arrange_tokens
from networks import data, refuses, spread_weights

SMALL = {
    "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
LAYERS = {"vit": "vit.layers.0", "deit": "deit.layers.0", "swin": "swin.encoder.layers.0"}


def build(kind: str) -> nn.Module:
    if kind == "vit":
        net: Any = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=3, **SMALL))
    elif kind == "deit":
        net = transformers.DeiTForImageClassification(transformers.DeiTConfig(num_labels=3, **SMALL))
    else:
        config = transformers.SwinConfig(
            num_labels=3, image_size=32, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4
        )
        net = transformers.SwinForImageClassification(config)
    return spread_weights(net)


def test_tokens_are_laid_out_row_by_row_without_those_in_front() -> None:
    grid = torch.arange(2 * 5 * 3.0).view(2, 5, 3)  # (channels, rows, columns)
    patches = grid.flatten(1).T[None]
    marks = torch.full((1, 2, 2), -1.0)
    for tokens in (patches, torch.cat([marks, patches], dim=1), torch.cat([marks, marks, patches], dim=1)):
        laid_out = arrange_tokens(tokens, (40, 24))
        assert laid_out is not None and torch.equal(laid_out[0], grid)
    assert arrange_tokens(patches[:, :14], (40, 24)) is None  # one too few
    assert arrange_tokens(torch.zeros(1, 15 + 9, 2), (40, 24)) is None  # more in front than any network has
    assert arrange_tokens(torch.zeros(1, 1, 2), (8, 8)) is None
    assert arrange_tokens(torch.zeros(1, 15, 2), (40,)) is None and arrange_tokens(torch.zeros(1, 2, 5, 3), (40, 24)) is None


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_of_patches_are_maps_of_the_image(kind: str) -> None:
    net, x, references = build(kind), data(2, 3, 32, 32), data(1, 3, 32, 32, seed=1)
    inside = ig2.ExpectedIG(3)(net, x, 0, references, at=LAYERS[kind])
    marks = {"vit": 1, "deit": 2, "swin": 0}[kind]
    side = int((inside.values.shape[1] - marks) ** 0.5)
    assert inside.values.shape[1] == side * side + marks
    shown = inside.on_input()
    torch.testing.assert_close(shown.total, inside.values[:, marks:].sum(dim=(1, 2)))
    assert inside.plot().axes[0].images  # a picture and no bars
    cells = shown.values.sum(dim=1).unflatten(2, (side, -1)).unflatten(1, (side, -1))  # (B, rows, side, columns, side)
    strongest = inside.values[:, marks:].sum(dim=2).argmax(dim=1)
    assert torch.equal(cells.sum(dim=(2, 4)).flatten(1).argmax(dim=1), strongest)
    cam = ig2.GradCAM(LAYERS[kind])(net, x, 0)
    assert cam.values.shape == x.shape
    strata = ig2.Strata([LAYERS[kind]])(net, x, 0, references)
    torch.testing.assert_close(strata.total, strata.output - strata.baseline_outputs[:, 0])
    assert ig2.Strata()(net, x, 0, references).values.shape == x.shape


class Pictures(nn.Module):
    """CLIP from pixels to the embedding of an image."""

    def __init__(self, clip: Any) -> None:
        super().__init__()
        self.clip = clip

    def forward(self, pixels: Tensor) -> Tensor:
        return self.clip.visual_projection(self.clip.vision_model(pixels).pooler_output)


class Texts(nn.Module):
    """CLIP from token ids to the embedding of a text."""

    def __init__(self, clip: Any) -> None:
        super().__init__()
        self.clip = clip

    def forward(self, ids: Tensor) -> Tensor:
        return self.clip.text_projection(self.clip.text_model(ids).pooler_output)


def test_either_side_of_an_image_and_a_text_is_attributed() -> None:
    text = {key: SMALL[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}
    config = transformers.CLIPConfig(
        text_config={**text, "vocab_size": 20, "max_position_embeddings": 8, "eos_token_id": 19},
        vision_config=SMALL,
        projection_dim=6,
    )
    clip = spread_weights(transformers.CLIPModel(config))
    pictures, texts = Pictures(clip).eval(), Texts(clip).eval()
    photo, ids = data(1, 3, 32, 32), torch.tensor([[3, 7, 5, 19]])
    picture_side = ig2.DeepSHAP()(pictures, photo, ig2.targets.Similarity(texts(ids)[0]), data(1, 3, 32, 32, seed=1))
    text_side = ig2.DeepSHAP()(
        texts, ids, ig2.targets.Similarity(pictures(photo)[0]), torch.tensor([[3, 2, 5, 19]]), at="clip.text_model.embeddings"
    )
    cosine = torch.nn.functional.cosine_similarity(pictures(photo), texts(ids))
    for attribution in (picture_side, text_side):
        torch.testing.assert_close(attribution.output, cosine.detach())
        assert float(attribution.relative_residual.max()) < 1e-8
    scores = text_side.values.sum(dim=2)[0]
    assert scores[1] != 0 and (scores[[0, 2, 3]].abs() < 1e-12).all()  # the one word that differs
    tower = ig2.ExpectedIG(3)(
        pictures, photo, ig2.targets.Similarity(texts(ids)[0]), 0, at="clip.vision_model.encoder.layers.0"
    )
    assert tower.on_input().values.shape == photo.shape
    refuses(ig2.InputError, "no map", text_side.on_input)
