"""Targets: each beside a network that returns the same number by hand; words, rows, files; and what makes no sense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import ig2
from ig2 import metrics, targets
from ig2.errors import InputError, ModelError
from networks import data, refuses, relu_cnn, seeded

X, POOL = data(3, 2, 8, 8), data(4, 2, 8, 8, seed=1)
MASK = torch.zeros(8, 8, dtype=torch.bool)
MASK[1:4, 2:7] = True
MASKS = torch.stack([MASK, MASK.T, ~MASK])
METHODS = {
    "gradient": ig2.Gradient(),
    "integrated gradients": ig2.IntegratedGradients(7),
    "expected": ig2.ExpectedIG(5, rule=ig2.rules.blended),
    "ig2": ig2.IG2(6),
    "smooth": ig2.SmoothGrad(ig2.Gradient(), samples=3),
    "kernelshap": ig2.KernelSHAP(ig2.Grid(2, 3)),
    "occlusion": ig2.Occlusion(4),
    "gradcam": ig2.GradCAM("0"),
    "deepshap": ig2.DeepSHAP(),
}


def dense() -> nn.Module:
    """(B, 2, 8, 8) to (B, 5, 8, 8)."""
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 3, padding=1))


class Forecaster(nn.Module):
    """Eight steps of two channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(128, 10), nn.Linear(10, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x.flatten(1)).tanh()).unflatten(1, (8, 2))


class Detector(nn.Module):
    """Three boxes of a picture; their places move with the pixels, and so do the scores of two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.classes = nn.Linear(128, 12), nn.Linear(128, 9)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        centre = torch.tensor([[0.3, 0.3, 0.4, 0.4], [0.7, 0.7, 0.4, 0.4], [0.5, 0.5, 0.6, 0.6]]).to(x)
        places = self.places(x.flatten(1)).unflatten(1, (3, 4)).tanh() * 0.05
        return {"logits": self.classes(x.flatten(1)).unflatten(1, (3, 3)), "pred_boxes": centre + places}


class ListDetector(Detector):
    """The same as torchvision's detectors return it, in pixels of an image of 100, with classes from 1 on."""

    def forward(self, x: Tensor) -> list[dict[str, Tensor]]:  # type: ignore[override]
        raw = super().forward(x)
        scores, labels = raw["logits"].softmax(dim=2)[..., :2].max(dim=2)
        centre, half = raw["pred_boxes"][..., :2], raw["pred_boxes"][..., 2:] / 2
        boxes = 100 * torch.cat([centre - half, centre + half], dim=2)
        return [{"boxes": b, "labels": n + 1, "scores": s} for b, n, s in zip(boxes, labels, scores, strict=True)]


DENSE, FLAT, FORECASTER, DETECTOR = seeded(dense, 0), relu_cnn(), seeded(Forecaster, 0), seeded(Detector, 0)
OTHER = FLAT(POOL)[0].detach()


def iou(box: list[float], other: list[float]) -> float:
    sides = [max(0.0, min(box[i + 2], other[i + 2]) - max(box[i], other[i])) for i in (0, 1)]
    area = sum((b[2] - b[0]) * (b[3] - b[1]) for b in (box, other))
    return sides[0] * sides[1] / (area - sides[0] * sides[1])


def detect_by_hand(raw: dict[str, Tensor], box: list[float], index: int, least: float) -> Tensor:
    outputs = []
    for logits, boxes in zip(raw["logits"], raw["pred_boxes"], strict=True):
        best = 0 * logits.sum()
        for scores, (x, y, w, h) in zip(logits.softmax(dim=1), boxes, strict=True):
            low, high = torch.stack([x - w / 2, y - h / 2]), torch.stack([x + w / 2, y + h / 2])
            wanted = torch.tensor(box).to(low)
            shared = (torch.minimum(high, wanted[2:]) - torch.maximum(low, wanted[:2])).clamp(min=0).prod()
            overlap = shared / ((high - low).prod() + (wanted[2:] - wanted[:2]).prod() - shared)
            if overlap >= least and scores[index] * overlap > best:
                best = scores[index] * overlap
        outputs.append(best)
    return torch.stack(outputs)


BOX = [0.1, 0.1, 0.5, 0.5]
# the network, the target, the same number by hand, and a target that is wrong by its index
CASES: dict[str, tuple[nn.Module, Any, Any, Any]] = {
    "class": (FLAT, targets.Class(2), lambda r: r[:, 2], targets.Class(1)),
    "difference": (FLAT, targets.Difference(2, 0), lambda r: r[:, 2] - r[:, 0], targets.Difference(2, 1)),
    "mask": (DENSE, targets.Region(MASK, 3), lambda r: r[:, 3, MASK].mean(dim=1), targets.Region(MASK, 2)),
    "box of a map": (DENSE, targets.Region((2, 1, 7, 4), 3), lambda r: r[:, 3, 1:4, 2:7].mean(dim=(1, 2)),
                     targets.Region((1, 2, 4, 7), 3)),
    "box of a picture": (DENSE, targets.Region((20, 10, 70, 40), 3, size=(80, 80)),
                         lambda r: r[:, 3, 1:4, 2:7].mean(dim=(1, 2)), targets.Region((20, 10, 70, 40), 3, size=(160, 160))),
    "every class": (DENSE, targets.Region(MASK), lambda r: r.sum(dim=1)[:, MASK].mean(dim=1), targets.Region(~MASK)),
    "regions": (DENSE, targets.Difference(targets.Region(MASK, 3), targets.Region(~MASK, 3)),
                lambda r: r[:, 3, MASK].mean(dim=1) - r[:, 3, ~MASK].mean(dim=1), targets.Region(MASK, 3)),
    "detection": (DETECTOR, targets.Box(BOX, 1, 0.3), lambda r: detect_by_hand(r, BOX, 1, 0.3), targets.Box(BOX, 2, 0.3)),
    "cosine": (FLAT, targets.Similarity(OTHER), lambda r: functional.normalize(r) @ functional.normalize(OTHER, dim=0),
               targets.Similarity(OTHER.flip(0))),
    "product": (FLAT, targets.Similarity(OTHER, "dot"), lambda r: r @ OTHER, targets.Similarity(OTHER)),
    "distance": (FLAT, targets.Similarity(OTHER, "distance"), lambda r: -torch.cdist(r, OTHER[None])[:, 0],
                 targets.Similarity(OTHER, "dot")),
    "horizon": (FORECASTER, targets.Horizon((0, -1), 1), lambda r: (r[:, 0, 1] + r[:, 7, 1]) / 2, targets.Horizon((0, -1), 0)),
    "horizon of all": (FORECASTER, targets.Horizon(), lambda r: r.sum(dim=2).mean(dim=1), targets.Horizon(1)),
    "sum": (DENSE, targets.Sum(), lambda r: r.sum(dim=(1, 2, 3)), targets.Magnitude()),
    "norm": (FLAT, targets.Magnitude(3), lambda r: (r.abs() ** 3).sum(dim=1) ** (1 / 3), targets.Magnitude()),
    "a function": (FLAT, lambda r: r.logsumexp(dim=1), lambda r: r.logsumexp(dim=1), targets.Sum()),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_target_is_the_network_by_hand(case: str):
    net, target, by_hand, wrong = CASES[case]
    method = ig2.ExpectedIG(8, rule=ig2.rules.blended)
    a, b = method(net, X, target, POOL[:2]), method(ig2.wrap(net, output=by_hand), X, references=POOL[:2])
    assert torch.allclose(a.values, b.values, atol=1e-12) and torch.allclose(a.output, b.output, atol=1e-12)
    assert float(a.residual.abs().max()) < 1e-12 < float(a.output.abs().min())
    assert not torch.allclose(method(net, X, wrong, POOL[:2]).values, b.values, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_target_is_made_of_operations_with_a_secant(case: str):
    """Whatever it reads, also where other boxes match at the references than at x."""
    net, target, _, _ = CASES[case]
    for method in (ig2.DeepSHAP(), ig2.PathMethod(ig2.paths.Straight(3), rule=ig2.rules.secant)):
        found = method(net, X, target, POOL)
        assert found.residual.abs().max() < 1e-12 and found.settings["complete"]
        assert (found.output[:, None] - found.baseline_outputs).abs().min() > 1e-6


def test_a_list_of_detections_adds_up_where_labels_differ():
    """Labels are a choice of the best class: with those of x at both ends, and what they did."""
    net = seeded(ListDetector, 0)
    labels = [[prediction["labels"] for prediction in net(points)] for points in (X, POOL)]
    assert any(not torch.equal(a, b) for a in labels[0] for b in labels[1])
    label = torch.stack([each[0] for each in labels[0]])  # of the box at the left, whatever it is
    found = ig2.DeepSHAP()(net, X, targets.Box([10, 10, 50, 50], label, 0.3), POOL)
    assert found.residual.abs().max() < 1e-12 and found.settings["complete"]


def test_every_target_has_a_case():
    kinds = {type(targets.as_target(target)) for _, target, _, _ in CASES.values()}
    assert kinds == {kind for kind in vars(targets).values() if isinstance(kind, type) and issubclass(kind, targets.Target)} - {
        targets.Target
    }


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_a_target(name: str):
    a = METHODS[name](ig2.wrap(DENSE, "1"), X, CASES["mask"][1], POOL[:2])
    b = METHODS[name](ig2.wrap(DENSE, "1", output=CASES["mask"][2]), X, references=POOL[:2])
    assert torch.allclose(a.values, b.values, atol=1e-12) and a.explained == ["class 3 in a mask"] * 3


@pytest.mark.parametrize("metric", [metrics.Deletion(), metrics.Insertion()], ids=lambda metric: metric.name)
def test_metrics_measure_the_target(metric: metrics.Metric):
    a = ig2.Gradient()(DENSE, X, targets.Region(MASK, 3))
    by_hand = ig2.wrap(DENSE, output=lambda r: r.softmax(dim=1)[:, 3, MASK].mean(dim=1))
    wanted = type(metric)(output="model")(by_hand, a.values, X).values
    assert torch.allclose(metric(DENSE, a).values, wanted)
    assert torch.allclose(metric(DENSE, a.values, X, targets.Region(MASK, 3)).values, wanted)


def test_a_metric_that_explains_again_asks_the_same():
    a = ig2.IntegratedGradients(4)(DENSE, X, targets.Region(MASK, 3))
    by_hand = ig2.wrap(DENSE, output=lambda r: r[:, 3, MASK].mean(dim=1))
    b = ig2.IntegratedGradients(4)(by_hand, X)
    metric = metrics.MaxSensitivity(ig2.IntegratedGradients(4))
    assert torch.allclose(metric(DENSE, a).values, metric(by_hand, b).values)


def test_the_models_output_is_what_classes_are_read_from():
    a = ig2.Gradient()(ig2.wrap(DENSE, output="probability"), X, targets.Region(MASK, 3))
    assert torch.allclose(a.output, DENSE(X).softmax(dim=1)[:, 3, MASK].mean(dim=1))
    b = ig2.Gradient()(ig2.wrap(FLAT, output="probability"), X, targets.Magnitude())
    assert torch.allclose(b.output, FLAT(X).norm(dim=1))
    c = ig2.Gradient()(ig2.wrap(lambda x: (0, DENSE(x)), output=lambda r: r[1]), X, targets.Region(MASK, 3))
    assert torch.allclose(c.output, DENSE(X)[:, 3, MASK].mean(dim=1))


EACH = {
    "classes": (FLAT, lambda rows: targets.Class(torch.tensor([2, 0, 1])[rows])),
    "masks": (DENSE, lambda rows: targets.Region(MASKS[rows], torch.tensor([3, 1, 2])[rows], each=True)),
    "boxes of a map": (DENSE, lambda rows: targets.Region(torch.tensor([[0, 0, 4, 4], [1, 2, 5, 8], [3, 3, 4, 4]])[rows], 1)),
    "detections": (DETECTOR, lambda rows: targets.Box(torch.tensor([BOX, [0.5, 0.5, 0.9, 0.9], BOX])[rows], 1, 0.2)),
    "others": (FLAT, lambda rows: targets.Similarity(FLAT(POOL[:3]).detach()[rows])),
}


@pytest.mark.parametrize("case", EACH)
def test_each_explicand_has_its_own(case: str, tmp_path: Any):
    net, make = EACH[case]
    method = ig2.ExpectedIG(4, rule=ig2.rules.blended)
    a = method(net, X, make([0, 1, 2]), POOL[:2], batch_size=4)
    for row in range(3):
        alone = method(net, X[row : row + 1], make([row]), POOL[:2])
        assert torch.allclose(a[row].values, alone.values, atol=1e-12) and a[row].explained == alone.explained
    if a.question is None:
        return
    measure = metrics.Deletion()
    again = [ig2.Attribution.join([a[:1], a[1:]]), a[[2, 0, 1]][[1, 2, 0]]]
    a.save(tmp_path / "a.safetensors")
    again.append(ig2.Attribution.load(tmp_path / "a.safetensors"))
    wanted = measure(net, a).values
    for other in again:
        assert other.explained == a.explained and torch.allclose(measure(net, other).values, wanted)
    refuses(InputError, "there are more", lambda: method(net, X, make([0, 1]), POOL[:2]))


def test_a_detector_of_lists_is_read_like_one_of_sets():
    lists, box = seeded(ListDetector, 0), [100 * side for side in BOX]
    label = [int(one["labels"][0]) for one in lists(X)]
    method = ig2.ExpectedIG(4, rule=ig2.rules.blended)
    a = method(lists, X, targets.Box(box, torch.tensor(label), 0.3), POOL[:2])
    b = method(DETECTOR, X, targets.Box(BOX, torch.tensor(label) - 1, 0.3), POOL[:2])
    same = (a.output - b.output).abs() < 1e-6  # the sets also have the boxes in which another class is likelier
    assert (
        same.any()
        and "class 1 at the box (10, 10, 50, 50)" in a.explained[label.index(1)]
        and float(a.residual.abs().max()) < 1e-9
    )


class ImageDetector(nn.Module):
    """What torchvision's detectors do around their network: a list of images in, resized one by one; boxes in pixels of each
    image, of which those with a low score and those that overlap a better one are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(2, 3, 3, 2, 1)

    def forward(self, images: list[Tensor]) -> list[dict[str, Tensor]]:
        assert all(image.ndim == 3 for image in images)
        resized = [functional.interpolate(image[None], (16, 16), mode="bilinear") for image in images]
        results = []
        for image, scores in zip(images, self.body(torch.cat(resized)).sigmoid().flatten(2).mT, strict=True):
            scale = torch.tensor([image.shape[2], image.shape[1]] * 2).to(image) / 16
            y, x = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
            corner = torch.stack([2 * x, 2 * y], dim=2).reshape(64, 2).to(image)
            boxes = torch.cat([corner - 2, corner + 3 + scores[:, :2]], dim=1).clamp(0, 16) * scale
            best, labels = scores.max(dim=1)
            kept: list[int] = []
            for place in best.argsort(descending=True).tolist():
                corners = boxes.detach().tolist()
                if best[place] > 0.05 and all(iou(corners[place], corners[other]) < 0.5 for other in kept):
                    kept.append(place)
            results.append({"boxes": boxes[kept], "labels": labels[kept] + 1, "scores": best[kept]})
        return results


def test_a_detector_of_images_that_drops_predictions_is_read():
    net = seeded(ImageDetector, 0)
    found = net(X)
    boxes, labels = (torch.stack([one[name][0].detach() for one in found]) for name in ("boxes", "labels"))
    target = targets.Box(boxes, labels)
    for method in (ig2.ExpectedIG(4, rule=ig2.rules.blended), ig2.IG2(4)):
        a = method(net, X, target, POOL[:2])
        assert torch.allclose(a.output, torch.stack([one["scores"][0] for one in found]))
        assert float(a.residual.abs().max()) < 1e-12 and a.values.any()
    far = targets.Box(boxes, labels % 3 + 1, 0.9)
    refuses(InputError, "iou", lambda: ig2.Gradient()(net, X, far))


def test_the_scores_of_a_set_without_a_class_for_nothing_are_sigmoids():
    a = ig2.Gradient()(DETECTOR, X, targets.Box(BOX, 1, 0.3, activation="sigmoid"))
    raw = DETECTOR(X)
    likely = raw["logits"][..., 1:2].sigmoid()
    # the softmax of these is the sigmoid, of class 1
    by_hand = detect_by_hand({**raw, "logits": torch.cat([1 - likely, likely], dim=2).log()}, BOX, 1, 0.3)
    assert torch.allclose(a.output, by_hand)
    assert not torch.allclose(a.output, ig2.Gradient()(DETECTOR, X, targets.Box(BOX, 1, 0.3)).output)


def test_a_layer_with_a_row_for_each_proposal_is_no_representation():
    class Proposals(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Sequential(nn.Conv2d(2, 4, 3, 2), nn.ReLU()), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            proposals = self.body(x).flatten(2).mT.flatten(0, 1)  # nine of each image
            return self.head(proposals).unflatten(0, (len(x), 9)).amax(dim=1)

    net = seeded(Proposals, 0)
    refuses(ModelError, "representation='body'", lambda: ig2.IG2(3)(net, X, 1, POOL[:2]))
    assert ig2.IG2(3)(ig2.wrap(net, "body"), X, 1, POOL[:2]).values.any()


def test_the_representation_suggested_has_a_row_for_each_sample_too():
    """In an R-CNN the maps cut out at the proposals are the last ones that all of the input passes."""

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.pool = nn.Sequential(nn.Conv2d(2, 4, 3, 1), nn.ReLU()), nn.Unfold(2, stride=2)
            self.maps, self.head = nn.Identity(), nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            maps = self.maps(self.pool(self.body(x)).mT.reshape(-1, 4, 2, 2))  # nine of each image
            return self.head(maps.flatten(1)).unflatten(0, (len(x), 9)).amax(dim=1)

    refuses(ModelError, "representation='body'", lambda: ig2.IG2(3)(seeded(Pooled, 0), X, 1, POOL[:2]))


def test_queries_with_masks_and_classes_are_a_map():
    torch.manual_seed(0)
    classes, masks = nn.Linear(128, 4 * 6).double(), nn.Conv2d(2, 4, 3, 2, 1).double()

    def net(x: Tensor) -> dict[str, Tensor]:
        queries = classes(x.flatten(1)).unflatten(1, (4, 6))
        return {"class_queries_logits": queries, "masks_queries_logits": masks(x), "other": x}

    def by_hand(result: dict[str, Tensor]) -> Tensor:
        likely, where = result["class_queries_logits"].softmax(dim=2), result["masks_queries_logits"].sigmoid()
        return sum(likely[:, q, 3] * where[:, q, :2, 1:].mean(dim=(1, 2)) for q in range(4))  # type: ignore[return-value]

    target, method = targets.Region((2, 0, 8, 4), 3, size=(8, 8)), ig2.ExpectedIG(4, rule=ig2.rules.blended)
    a, b = method(net, X, target, POOL[:2]), method(ig2.wrap(net, output=by_hand), X, references=POOL[:2])
    assert torch.allclose(a.values, b.values, atol=1e-12) and float(a.residual.abs().max()) < 1e-12
    assert not torch.allclose(method(net, X, targets.Region((2, 0, 8, 4), 2, size=(8, 8)), POOL[:2]).values, a.values)
    wanted = metrics.Deletion(output="model")(ig2.wrap(net, output=by_hand), a.values, X).values
    assert torch.allclose(metrics.Deletion()(net, a).values, wanted)  # they are probabilities already


def test_a_map_without_classes_is_read_in_a_region():
    depth = lambda x: {"predicted_depth": DENSE(x)[:, 2]}  # noqa: E731
    by_hand = ig2.wrap(DENSE, output=lambda r: r[:, 2, MASK].mean(dim=1))
    for target in (targets.Region(MASK), targets.Region(MASK.expand(3, -1, -1), each=True), targets.Region((2, 1, 7, 4))):
        a = ig2.Gradient()(depth, X, target)
        assert torch.allclose(a.values, ig2.Gradient()(by_hand, X).values, atol=1e-14)
        wanted = metrics.Deletion(output="model")(by_hand, a.values, X).values
        assert torch.allclose(metrics.Deletion()(depth, a).values, wanted)


def test_the_embedding_of_a_tower_is_found_by_its_name():
    tower = lambda x: {"image_embeds": FLAT(x), "last_hidden_state": x}  # noqa: E731
    a, b = (ig2.Gradient()(net, X, targets.Similarity(OTHER)) for net in (tower, FLAT))
    assert torch.allclose(a.values, b.values, atol=1e-14)
    both = lambda x: {"image_embeds": FLAT(x), "text_embeds": FLAT(x)}  # noqa: E731
    refuses(ModelError, "keys", lambda: ig2.Gradient()(both, X, targets.Similarity(OTHER)))


def test_a_map_in_a_dict_has_the_representation_of_the_map():
    a, b = (ig2.IG2(5)(net, X, targets.Region(MASK, 3), POOL[:2]) for net in (lambda x: {"out": DENSE(x), "aux": x}, DENSE))
    assert torch.allclose(a.values, b.values, atol=1e-12) and torch.allclose(a.arrival, b.arrival)


def test_a_box_that_nothing_matches_is_refused():
    refuses(InputError, "iou", lambda: ig2.Gradient()(DETECTOR, X, targets.Box((0.9, 0.9, 0.95, 0.95), 1)))
    assert iou([0, 0, 2, 2], [1, 1, 3, 3]) == pytest.approx(1 / 7)
    overlap = targets._overlap(torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([1.0, 1, 3, 3]))
    assert float(overlap) == pytest.approx(1 / 7)


def test_a_mask_of_another_size_counts_the_share_of_each_place():
    large = functional.interpolate(MASK[None, None].double(), (16, 16))[0, 0].bool()
    a, b = (ig2.Gradient()(DENSE, X, targets.Region(mask, 3)) for mask in (MASK, large))
    assert torch.allclose(a.values, b.values)
    volume = nn.Conv3d(1, 2, 1).double().eval()
    x = data(1, 1, 4, 5, 6)
    c = ig2.Gradient()(volume, x, targets.Region((1, 0, 2, 3, 5, 4), 1))  # x0 y0 z0 x1 y1 z1
    assert torch.allclose(c.output, volume(x)[:, 1, 2:4, 0:5, 1:3].mean(dim=(1, 2, 3)))


def test_a_box_is_of_a_picture_that_need_not_be_square():
    a = ig2.Gradient()(DENSE, X, targets.Region((20, 1, 70, 4), 3, size=(8, 80)))
    assert torch.allclose(a.values, ig2.Gradient()(DENSE, X, targets.Region((2, 1, 7, 4), 3)).values)


def test_predictions_that_overlap_too_little_do_not_count():
    boxes = torch.tensor([[[0.5, 0.5, 0.4, 0.4], [0.6, 0.5, 0.4, 0.4]]]).double()  # overlap the box by 1 and by 0.6
    logits = torch.tensor([[[0.0, 0.0], [0.0, 9.0]]]).double()
    detect = lambda x: {"logits": logits * x[:, :1, None], "pred_boxes": boxes}  # noqa: E731
    for least, output in ((0.5, 0.6 / (1 + torch.tensor(-9.0).double().exp())), (0.7, torch.tensor(0.5).double())):
        a = ig2.Gradient()(detect, torch.ones(1, 1).double(), targets.Box((0.3, 0.3, 0.7, 0.7), 1, least), batch_size=1)
        assert torch.allclose(a.output[0], output)


def test_segmentation_results_and_tuples_are_found():
    for wrapped in (lambda x: {"out": DENSE(x), "aux": x}, lambda x: (DENSE(x),)):
        a = ig2.Gradient()(wrapped, X, targets.Region(MASK, 3))
        assert torch.allclose(a.values, ig2.Gradient()(DENSE, X, targets.Region(MASK, 3)).values)
    refuses(ModelError, "keys", lambda: ig2.Gradient()(lambda x: {"a": DENSE(x), "b": x}, X, targets.Sum()))


def test_classes_as_objects_are_classes():
    method = ig2.IG2(5)
    for one, options in (
        (targets.Class(), {}),
        (targets.Class(1), {"target": 1}),
        (targets.Class([1, 0, 2]), {"target": [1, 0, 2]}),
        (targets.Difference(1, 3), {"target": 1, "against": 3}),
    ):
        a, b = method(FLAT, X, one, POOL[:2]), method(FLAT, X, references=POOL[:2], **options)
        assert torch.equal(a.values, b.values) and torch.equal(a.target, b.target) and a.explained == b.explained
        assert a.question is None


def test_a_function_is_not_in_the_file(tmp_path: Any):
    a = ig2.Gradient()(FLAT, X, targets.Apply(lambda r: r.sum(dim=1), "all of it"))
    a.save(tmp_path / "a.safetensors")
    loaded = ig2.Attribution.load(tmp_path / "a.safetensors")
    assert loaded.explained == ["all of it"] * 3 and "all of it" in repr(loaded)
    refuses(InputError, "all of it", lambda: metrics.Deletion()(FLAT, loaded))
    assert torch.equal(loaded[1].values, a[1].values)


def test_targets_are_kept_where_bad_explicands_are_skipped():
    x = X.clone()
    x[1, 0, 0, 0] = torch.nan
    with pytest.warns(ig2.IG2Warning):
        a = ig2.Gradient()(DENSE, x, EACH["masks"][1]([0, 1, 2]), skip_bad=True)
    assert torch.allclose(a.values, ig2.Gradient()(DENSE, X, EACH["masks"][1]([0, 1, 2])).values[[0, 2]])


@dataclass(frozen=True, eq=False)
class Entropy(targets.Target):
    """A target of a user's own."""

    def read(self, result: Tensor, rows: Tensor) -> Tensor:
        return -(result.softmax(dim=1) * result.log_softmax(dim=1)).sum(dim=1)

    def describe(self, row: int, name: targets.Name = ig2.names.name_output) -> str:
        return "how unsure it is"


def test_a_target_of_ones_own(tmp_path: Any):
    a = ig2.Gradient()(FLAT, X, Entropy())
    assert a.explained == ["how unsure it is"] * 3 and "unsure" in repr(a) and a.settings["target"] == {"type": "Entropy"}
    a.save(tmp_path / "a.safetensors")
    assert "Entropy" in ig2.Attribution.load(tmp_path / "a.safetensors").explained[0]


REFUSED = {
    "a class there is not": (InputError, "5", lambda: ig2.Gradient()(DENSE, X, targets.Region(MASK, 5))),
    "a channel there is not": (InputError, "channel", lambda: ig2.Gradient()(FORECASTER, X, targets.Horizon(0, 2))),
    "a step there is not": (InputError, "step", lambda: ig2.Gradient()(FORECASTER, X, targets.Horizon(8))),
    "a map that is none": (ModelError, "places", lambda: ig2.Gradient()(FLAT, X, targets.Region(MASK, 1))),
    "a mask of other axes": (InputError, "axes", lambda: ig2.Gradient()(DENSE, X, targets.Region(MASKS, 1))),
    "an empty region": (InputError, "no place", lambda: ig2.Gradient()(DENSE, X, targets.Region((3, 3, 3, 5), 1))),
    "corners the wrong way": (InputError, "x0 < x1", lambda: targets.Box((3, 3, 1, 5), 1)),
    "one of the boxes is empty": (InputError, "2, 2, 2, 3. for explicand 1", lambda: targets.Box(
        torch.tensor([[0, 0, 1, 1], [2, 2, 2, 3]]), 1)),
    "an unknown activation": (InputError, "activation", lambda: targets.Box(BOX, 1, activation="relu")),
    "numbers as a mask": (InputError, "booleans", lambda: targets.Region(torch.zeros(8, 8), 1)),
    "no overlap": (InputError, "iou", lambda: targets.Box(BOX, 1, 0)),
    "a forecast that is none": (ModelError, "steps", lambda: ig2.Gradient()(DENSE, X, targets.Horizon())),
    "an embedding of another size": (InputError, "embedding", lambda: ig2.Gradient()(FLAT, X, targets.Similarity(OTHER[:2]))),
    "an unknown measure": (InputError, "measure", lambda: targets.Similarity(OTHER, "angle")),
    "no detector": (ModelError, "pred_boxes", lambda: ig2.Gradient()(FLAT, X, targets.Box(BOX, 1))),
    "against a class": (InputError, "Difference", lambda: ig2.Gradient()(DENSE, X, targets.Sum(), against=1)),
    "a function of another shape": (ModelError, "number for each", lambda: ig2.Gradient()(FLAT, X, lambda r: r)),
    "a dense output without a target": (ModelError, "targets", lambda: ig2.Gradient()(DENSE, X)),
    "the class predicted inside a difference": (InputError, "name it", lambda: ig2.Gradient()(
        FLAT, X, targets.Difference(targets.Class(), targets.Sum()))),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused(case: str):
    refuses(*REFUSED[case])


def test_each_side_of_a_difference_reads_what_it_would_alone():
    model, likeness = ig2.wrap(FLAT, output="probability"), targets.Similarity(OTHER)
    for first, second in ((likeness, targets.Sum()), (targets.Class(2), likeness), (targets.Class([1, 0, 2]), likeness)):
        both = ig2.Gradient()(model, X, targets.Difference(first, second))
        one, other = (ig2.Gradient()(model, X, target) for target in (first, second))
        assert torch.allclose(both.output, one.output - other.output)
        assert torch.allclose(both.values, one.values - other.values, atol=1e-12)
        assert torch.allclose(metrics.Deletion()(model, both[1:]).values, metrics.Deletion()(model, both).values[1:])


def test_targets_that_differ_are_not_joined():
    a, b = (ig2.Gradient()(DENSE, X, target) for target in (targets.Sum(), targets.Magnitude()))
    refuses(InputError, "join", lambda: ig2.Attribution.join([a, b]))
    c, d = (ig2.Gradient()(DENSE, X, targets.Region(mask, 1)) for mask in (MASK, ~MASK))
    refuses(InputError, "where", lambda: ig2.Attribution.join([c, d]))
