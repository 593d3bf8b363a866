"""Torchvision, timm and transformers models, with random weights and no network: a line a check, an error if one fails.

Classifiers go through the adapters, detectors and segmentation networks through `ig2.targets`.

`python -m performance.adapters_gpu_check [device]`
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image

import ig2
from ig2 import modalities, targets

TORCHVISION = ("resnet18", "mobilenet_v3_small", "convnext_tiny", "vit_b_16", "inception_v3", "densenet121", "swin_t")
TIMM = (
    "resnet18",
    "vit_tiny_patch16_224",
    "convnext_atto",
    "tf_efficientnet_lite0",
    "mobilenetv3_small_050",
    "beit_base_patch16_224",
)
SIZE = 96  # of the images that detectors and segmentation networks get
# random weights score low, and a detector with fewer proposals is quick without its kernels too
FEW = {"min_size": SIZE, "max_size": SIZE}
PROPOSALS = {"box_score_thresh": 0.0, "rpn_pre_nms_top_n_test": 50, "rpn_post_nms_top_n_test": 20, "box_detections_per_img": 10}
CANDIDATES = {"score_thresh": 0.0, "topk_candidates": 30, "detections_per_img": 10}
DETECTORS: dict[str, dict[str, Any]] = {
    "fasterrcnn_resnet50_fpn": FEW | PROPOSALS,
    "fasterrcnn_mobilenet_v3_large_320_fpn": FEW | PROPOSALS,
    "maskrcnn_resnet50_fpn": FEW | PROPOSALS,
    "retinanet_resnet50_fpn": FEW | CANDIDATES,
    "fcos_resnet50_fpn": FEW | CANDIDATES,
    "ssdlite320_mobilenet_v3_large": CANDIDATES,
}
SEGMENTATION = ("fcn_resnet50", "deeplabv3_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")
DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
failures = 0


def photo(width: int, height: int, seed: int) -> Image.Image:
    """A smooth picture with a disc in it."""
    rows, columns = np.mgrid[0:height, 0:width]
    waves = [128 + 100 * np.sin(columns / (9 + 7 * seed + 5 * k) + rows / (13 + 3 * k)) for k in range(3)]
    pixels = np.stack(waves, axis=2)
    pixels[(rows - height / 2) ** 2 + (columns - width / 2) ** 2 < (height / 4) ** 2] = (230, 40 * seed, 60)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def check(name: str, work: Callable[[], str]) -> None:
    global failures
    start = time.perf_counter()
    try:
        message = work()
    except Exception:
        failures += 1
        traceback.print_exc()
        print(f"FAILED {name}", flush=True)
    else:
        print(f"OK {name}: {message} ({time.perf_counter() - start:.1f} s)", flush=True)


def explain(name: str, theirs: Callable[[Image.Image], torch.Tensor]) -> str:
    """Read as the library itself would, then explain on the device."""
    subject = modalities.image.load(name, pretrained=False)
    picture = photo(500, 333, seed=1)
    batch = subject.read([picture, photo(320, 480, seed=2)])
    normalised = batch.x if subject.model.preprocess is None else subject.model.preprocess(batch.x)
    apart = float((normalised[0] - theirs(picture)).abs().max())
    assert apart < 1e-4, f"preprocessing differs by {apart}"
    with torch.no_grad():
        for weight in subject.model.net.parameters():
            if weight.ndim > 1 and not weight.any():  # a head that starts at zero would say nothing
                weight.normal_(std=0.02)
    subject.to(DEVICE)
    references = subject.read([photo(400, 400, seed=seed) for seed in (3, 4)]).x
    with np.errstate(all="raise"):
        a = ig2.IG2(steps=5, rule=ig2.rules.shared)(subject.model, batch.x, references=references)
        ig2.ExpectedIG(steps=4)(subject.model, batch.x, references=references)
    maps = subject.scores(batch, a)
    assert len(maps) == 2 and maps[0].shape == subject.size and np.isfinite(maps).all() and np.abs(maps).max() > 0
    assert subject.picture(batch.x[0]).shape == (*subject.size, 3)
    assert subject.classes is not None and len(subject.classes) == subject.predict(batch).shape[1]
    assert a.residual is not None and a.baseline_output is not None
    assert bool((a.residual.abs() <= 1e-2 * (a.output - a.baseline_output).abs() + 1e-4).all()), a.residual
    return f"{subject.size[0]} px, preprocessing off by {apart:.0e}, first class {subject.label(0)!r}, {a.verdict}"


def torchvision_transform(name: str) -> Callable[[Image.Image], torch.Tensor]:
    import torchvision

    return torchvision.models.get_model_weights(name).DEFAULT.transforms()


def timm_transform(name: str) -> Callable[[Image.Image], torch.Tensor]:
    import timm.data

    config = timm.data.resolve_model_data_config(timm.create_model(name, pretrained=False))
    return timm.data.create_transform(**config, is_training=False)


def random_net(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """A network of random weights whose scores differ from image to image: normalised by the statistics of some."""
    torch.manual_seed(0)
    net = make().eval().to(DEVICE)
    norms = [module for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.train()
        norm.momentum = None
    with torch.no_grad():
        net(torch.rand(4, 3, SIZE, SIZE, device=DEVICE))
    return net.eval()


def explain_target(net: torch.nn.Module, find: Callable[[Any], targets.Target], by_hand: Callable[[Any], torch.Tensor]) -> str:
    """A target with the network as it is, beside the number it should be; complete; and IG², where told which layer."""
    torch.manual_seed(1)
    x, references = torch.rand(2, 3, SIZE, SIZE, device=DEVICE), torch.rand(2, 3, SIZE, SIZE, device=DEVICE)
    with torch.no_grad():
        result = net(x)
    target, wanted = find(result), by_hand(result)
    a = ig2.IntegratedGradients(4, rule=ig2.rules.blended)(net, x, target, references)
    assert torch.allclose(a.output, wanted.to(a.output), rtol=1e-2, atol=1e-4), f"{a.output} in place of {wanted}"
    change = (a.output - a.baseline_output).abs()
    assert a.residual is not None and bool((a.residual.abs() <= 1e-2 * change + 1e-4).all()), a.residual
    assert bool(torch.isfinite(a.values).all()) and bool(a.values.any()), "all values are zero"
    layer = None
    try:
        walk = ig2.IG2(steps=3)(net, x, target, references)
    except ig2.ModelError as error:  # it names a layer that fits
        layer = str(error).split("representation='")[1].split("'")[0]
        walk = ig2.IG2(steps=3)(ig2.wrap(net, layer), x, target, references)
    assert bool(torch.isfinite(walk.values).all())
    return f"{a.explained[0]}, {a.output.tolist()}, IG² at {layer or walk.settings['representation']}: {walk.verdict}"


def detect(name: str) -> str:
    """The first box that one of torchvision's detectors returns for each image, of some size."""
    import torchvision

    make = getattr(torchvision.models.detection, name)
    net = random_net(lambda: make(weights=None, weights_backbone=None, num_classes=5, **DETECTORS[name]))
    if name.startswith("fcos"):  # boxes of random weights are a pixel wide
        torch.nn.init.ones_(net.head.regression_head.bbox_reg.bias)

    def first(result: Any) -> list[int]:
        sides = [(one["boxes"][:, 2:] - one["boxes"][:, :2]).amin(dim=1) for one in result]
        return [int((side > 2).nonzero()[0]) for side in sides]

    def find(result: Any) -> targets.Target:
        boxes, labels = (
            torch.stack([one[key][i].detach() for one, i in zip(result, first(result), strict=True)])
            for key in ("boxes", "labels")
        )
        return targets.Box(boxes, labels)

    def by_hand(
        result: Any,
    ) -> torch.Tensor:  # it overlaps itself by 1, and what comes before it is empty or of a lower product
        return torch.stack([one["scores"][i] for one, i in zip(result, first(result), strict=True)])

    return explain_target(net, find, by_hand)


def segment(name: str) -> str:
    """A box of the map of one of torchvision's segmentation networks."""
    import torchvision

    make = getattr(torchvision.models.segmentation, name)
    net = random_net(lambda: make(weights=None, weights_backbone=None, num_classes=5))
    box = (8, 16, 56, 64)
    return explain_target(
        net, lambda _: targets.Region(box, 2), lambda result: result["out"][:, 2, 16:64, 8:56].mean(dim=(1, 2))
    )


def transformer(name: str) -> str:
    """A detector or a segmentation network of transformers, from a small configuration."""
    import transformers as t

    few = {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "num_queries": 8,
        "d_model": 32,
    }
    few |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    resnet = t.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, layer_type="basic", out_features=["stage4"]
    )
    swin = t.SwinConfig(
        image_size=SIZE,
        embed_dim=12,
        depths=[1] * 4,
        num_heads=[1, 1, 2, 2],
        window_size=3,
        out_features=[f"stage{i}" for i in range(1, 5)],
    )
    detr = few | {"use_timm_backbone": False, "backbone_config": resnet, "num_labels": 4}
    makes: dict[str, Callable[[], torch.nn.Module]] = {
        "detr": lambda: t.DetrForObjectDetection(t.DetrConfig(**detr)),
        "conditional-detr": lambda: t.ConditionalDetrForObjectDetection(t.ConditionalDetrConfig(**detr)),
        "segformer": lambda: t.SegformerForSemanticSegmentation(
            t.SegformerConfig(depths=[1] * 4, hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2], num_labels=4)
        ),
        "maskformer": lambda: t.MaskFormerForInstanceSegmentation(
            t.MaskFormerConfig(
                fpn_feature_size=32, mask_feature_size=32, backbone_config=swin, decoder_config=t.DetrConfig(**few),
                num_labels=4,
            )
        ),
        "mask2former": lambda: t.Mask2FormerForUniversalSegmentation(
            t.Mask2FormerConfig(
                feature_size=32, mask_feature_size=32, hidden_dim=32, encoder_feedforward_dim=32, encoder_layers=1,
                decoder_layers=2, num_attention_heads=2, dim_feedforward=32, num_queries=8, backbone_config=swin, num_labels=4,
            )
        ),
    }  # fmt: skip
    net = random_net(makes[name])
    sigmoid = name == "conditional-detr"

    def corners(boxes: torch.Tensor) -> torch.Tensor:
        return torch.cat([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], dim=-1)

    def best(result: Any) -> torch.Tensor:
        scores = (result.logits.sigmoid() if sigmoid else result.logits.softmax(dim=2))[..., 1]
        overlaps = [[overlap(one, boxes[0]) for one in boxes] for boxes in corners(result.pred_boxes)]
        overlap_tensor = torch.tensor(overlaps, device=scores.device)
        return torch.where(overlap_tensor >= 0.5, scores * overlap_tensor, 0.0).amax(dim=1)

    if "detr" in name:
        activation: Any = "sigmoid" if sigmoid else "softmax"
        return explain_target(net, lambda r: targets.Box(corners(r.pred_boxes)[:, 0], 1, activation=activation), best)
    cells, step = slice(SIZE // 16, SIZE // 8), 4  # of a map a quarter as wide as the image
    box = tuple(step * side for side in (cells.start, cells.start, cells.stop, cells.stop))

    def by_hand(result: Any) -> torch.Tensor:
        if name == "segformer":
            return result.logits[:, 1, cells, cells].mean(dim=(1, 2))
        likely, masks = result.class_queries_logits.softmax(dim=2)[..., 1], result.masks_queries_logits.sigmoid()
        return (likely * masks[:, :, cells, cells].mean(dim=(2, 3))).sum(dim=1)

    return explain_target(net, lambda _: targets.Region(box, 1, size=(SIZE, SIZE)), by_hand)


def overlap(one: torch.Tensor, other: torch.Tensor) -> float:
    """Intersection over union of two boxes."""
    shared = (torch.minimum(one[2:], other[2:]) - torch.maximum(one[:2], other[:2])).clamp(min=0).prod()
    return float(shared / ((one[2:] - one[:2]).prod() + (other[2:] - other[:2]).prod() - shared))


def fail_to_load(name: str, pretrained: bool) -> str:
    """Something that is not available must be an error of one line."""
    message = "it is available after all"
    try:
        modalities.image.load(name, pretrained=pretrained)
    except ig2.InputError as error:
        message = str(error)
    assert "\n" not in message
    return message


def main() -> int:
    print(f"torch {torch.__version__} on {DEVICE}")
    for library in ("torchvision", "timm"):
        print(f"{library} {__import__(library).__version__}")
    for name in TORCHVISION:
        check(f"torchvision:{name}", lambda name=name: explain(f"torchvision:{name}", torchvision_transform(name)))
    for name in TIMM:
        check(f"timm:{name}", lambda name=name: explain(f"timm:{name}", timm_transform(name)))
    # what a network of random weights finds hangs on the last digits, and with 11 bits another size of batch has others
    torch.backends.cudnn.allow_tf32 = False
    for name in DETECTORS:
        check(f"detector {name}", lambda name=name: detect(name))
    for name in SEGMENTATION:
        check(f"segmentation {name}", lambda name=name: segment(name))
    for name in ("detr", "conditional-detr", "segformer", "maskformer", "mask2former"):
        check(f"transformers {name}", lambda name=name: transformer(name))
    check("bare name of both", lambda: modalities.image.load("resnet18", pretrained=False).name)
    check("bare name of timm", lambda: modalities.image.load("convnext_atto.d2_in1k", pretrained=False).name)
    check(
        "a strip", lambda: str(modalities.image.load("timm:resnet18", pretrained=False).read(photo(30000, 3, seed=1)).x.shape)
    )
    check("unknown torchvision", lambda: fail_to_load("torchvision:resnet19", pretrained=False))
    check("unknown timm", lambda: fail_to_load("timm:resnet19", pretrained=False))
    check("unknown bare", lambda: fail_to_load("resnet19", pretrained=False))
    check("no classifier", lambda: fail_to_load("torchvision:fasterrcnn_resnet50_fpn", pretrained=False))
    check("torchvision weights without a network", lambda: fail_to_load("torchvision:resnet18", pretrained=True))
    check("timm weights without a network", lambda: fail_to_load("timm:convnext_atto", pretrained=True))
    print("all OK" if not failures else f"{failures} FAILED")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
