"""torchvision and timm, by stand-ins with their interface."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from pictures import linear_net, noise
from torch import nn

import ig2
from ig2 import modalities
from ig2.errors import InputError, MissingExtraError
from ig2.modalities.image import imagenet, libraries
from ig2.modalities.image.reading import Framing

RED, WHITE = (255, 0, 0), (255, 255, 255)


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    for key, value in content.items():
        setattr(module, key, value)
    monkeypatch.setitem(sys.modules, name, module)
    return module


class Preset:
    """What `weights.transforms()` gives in torchvision: sizes are lists, the interpolation an enumeration."""

    crop_size, resize_size = [8], [10]
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    interpolation = SimpleNamespace(value="bilinear")


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    names = {"smallnet": ["tench"] * 1000, "petnet": ["cat", "dog", "cow"]}

    def get_model_weights(name: str) -> Any:
        return SimpleNamespace(DEFAULT=SimpleNamespace(transforms=Preset, meta={"categories": names[name]}, name=name))

    def get_model(name: str, weights: Any = None) -> nn.Module:
        assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "1"
        if weights is not None:
            raise URLError("no route\nto host")
        return linear_net(8, 3, len(names[name])).train()

    models = stand_in(
        monkeypatch,
        "torchvision.models",
        list_models=lambda module: sorted(names),
        get_model_weights=get_model_weights,
        get_model=get_model,
    )
    stand_in(monkeypatch, "torchvision", models=models)
    return models


class ToTensor:
    def __call__(self, image: Any) -> Any:
        raise AssertionError("the picture is made a tensor by the adapter")


class MaybeToTensor(ToTensor):
    pass


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    def create_model(name: str, pretrained: bool) -> nn.Module:
        assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "1"
        if pretrained:
            raise RuntimeError("offline")
        torch.rand(1)  # libraries draw their weights from the global generator
        net = linear_net(8, 3, 7).train()
        net.num_classes = 0 if name == "features" else 7  # type: ignore[assignment]
        net.pretrained_cfg = {}  # type: ignore[assignment]
        return net

    def create_transform(input_size: Any, is_training: bool, **config: Any) -> Any:
        assert not is_training
        steps = [lambda image: image.resize((12, 12)), lambda image: image.crop((2, 2, 10, 10)), MaybeToTensor(), None]
        return SimpleNamespace(transforms=steps)

    data = stand_in(
        monkeypatch,
        "timm.data",
        resolve_model_data_config=lambda net: {
            "input_size": (3, 8, 8), "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "crop_pct": 0.9, "crop_mode": "center",
            "interpolation": "bicubic",
        },
        create_transform=create_transform,
        infer_imagenet_subset=lambda net: "imagenet-7",
        ImageNetInfo=lambda subset: SimpleNamespace(label_descriptions=lambda: [f"thing {i}, other name" for i in range(7)]),
    )  # fmt: skip
    return stand_in(
        monkeypatch, "timm", create_model=create_model, data=data, list_models=lambda: ["tinynet", "features"], __path__=[]
    )


def test_a_torchvision_model_comes_with_its_preprocessing_and_names(torchvision: ModuleType) -> None:
    state = torch.get_rng_state()
    mine = modalities.image.load("torchvision:petnet", pretrained=False)
    assert torch.equal(state, torch.get_rng_state())
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
    assert mine.classes == ("cat", "dog", "cow")
    assert mine.size == (8, 8)
    assert mine.frame == Framing((8, 8), (10, 10), "bilinear")
    assert not mine.model.net.training
    assert mine.model.preprocess(torch.zeros(1, 3, 8, 8))[0, :, 0, 0].tolist() == pytest.approx(
        [-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]
    )
    assert modalities.image.load("torchvision:smallnet", pretrained=False).classes == imagenet.names()


def test_a_timm_model_comes_with_its_preprocessing_and_names(timm: ModuleType) -> None:
    state = torch.get_rng_state()
    mine = modalities.image.load("timm:tinynet.some_tag", pretrained=False)
    assert torch.equal(state, torch.get_rng_state())
    assert mine.classes[:2] == ("thing 0", "thing 1")
    picture = noise(12, 12)
    assert np.array_equal(mine.picture(mine.read(picture).x[0]), picture[2:10, 2:10])  # the library's own steps
    a = ig2.IntegratedGradients(steps=3)(mine.model, mine.read(picture).x)
    assert a.values.shape == (1, 3, 8, 8)
    with pytest.raises(InputError, match="no classifier on top"):
        modalities.image.load("timm:features", pretrained=False)


def test_a_bare_name_is_looked_for_in_both(torchvision: ModuleType, timm: ModuleType) -> None:
    assert modalities.image.load("petnet", pretrained=False).name == "torchvision petnet"
    assert modalities.image.load("tinynet", pretrained=False).name == "timm tinynet"
    with pytest.raises(InputError, match="did you mean petnet"):
        modalities.image.load("petnat", pretrained=False)
    with pytest.raises(InputError, match="torchvision has no classifier called 'petnat'; did you mean petnet"):
        modalities.image.load("torchvision:petnat", pretrained=False)


@pytest.mark.parametrize("name", ["torchvision:petnet", "timm:tinynet"])
def test_weights_that_cannot_be_fetched_are_an_error_of_one_line(name: str, torchvision: ModuleType, timm: ModuleType) -> None:
    with pytest.raises(InputError, match=f"the weights of {name} are not available") as caught:
        modalities.image.load(name)
    assert "\n" not in str(caught.value)
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_without_the_libraries_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchvision", "torchvision.models", "timm"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match="timm"):
        modalities.image.load("timm:resnet18")
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="and more with pip install torchvision timm"):
        modalities.image.load("resnet18")
    with pytest.raises(InputError, match="must be a name"):
        modalities.image.load(7)  # type: ignore[arg-type]
