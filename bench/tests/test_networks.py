"""The paper's networks, how they are trained and cached, and how their accuracy is measured."""

from __future__ import annotations

import dataclasses
import math
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ig2
from ig2 import modalities
from ig2._utils.training import local_seed
from ig2.errors import IG2Warning, InputError, ModelError
from ig2_bench.datasets.base import LabelledSamples
from ig2_bench.networks import checkpoint, faces, training
from ig2_bench.networks.base import SampleNetwork, TrainingSettings, mirror, shift
from ig2_bench.networks.digits import DigitCNN
from ig2_bench.networks.faces import FaceCNN, MobileNetV2, mirror_and_shift
from ig2_bench.networks.questions import QuestionCNN, drop_words, read_vectors
from ig2_bench.networks.training import NETWORKS, measure_accuracy, train_network
from ig2_bench.networks.wafer import WaferCNN, turn

NAMES = tuple(NETWORKS)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IG2_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def three_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings too short to learn from, and long enough to see what they depend on."""
    for name, spec in NETWORKS.items():
        change_quick(monkeypatch, name, least=3, batch=8, augmentation=spec.settings.augmentation)


def change_quick(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> None:
    """Change the settings of a network's quick training."""
    spec = NETWORKS[name]
    monkeypatch.setitem(NETWORKS, name, dataclasses.replace(spec, quick=dataclasses.replace(spec.quick, **changes)))


def samples(x: Any, y: Any, classes: int) -> LabelledSamples:
    names = tuple(map(str, range(len(x))))
    return LabelledSamples(x, torch.as_tensor(y), tuple(f"class {i}" for i in range(classes)), names, "made for a test")


def some(kind: str, count: int = 24, seed: int = 0) -> LabelledSamples:
    """Samples that are told apart by a bright spot, a code or a word."""
    chance = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    if kind == "trec":
        words = [["who", "where", "when"][label] for label in y.tolist()]
        fill = torch.randint(5, (count,), generator=chance).tolist()
        return samples(tuple(f"{word} is{' it' * more}?" for word, more in zip(words, fill, strict=True)), y, 3)
    if kind == "wafer":
        x = torch.randint(1, 3, (count, 1, 12, 12), generator=chance, dtype=torch.uint8)
        for row, label in enumerate(y.tolist()):
            x[row, :, :, 4 * label : 4 * label + 4] = 2
        return samples(x, y, 3)
    size, channels = ((28, 28), 1) if kind == "mnist" else ((40, 32), 3)
    x = torch.randint(100, (count, channels, *size), generator=chance, dtype=torch.uint8)
    for row, label in enumerate(y.tolist()):
        x[row, :, :, 10 * label : 10 * label + 10] += 150
    return samples(x, y, 3) if kind == "mnist" else samples(x, nn.functional.one_hot(y, 3), 3)


def weights(net: nn.Module) -> Tensor:
    return torch.cat([tensor.double().flatten() for tensor in net.state_dict().values()])


# -- the networks ------------------------------------------------------------------------------------------------------


def linears(net: nn.Module) -> list[tuple[int, int]]:
    return [(m.in_features, m.out_features) for m in net.modules() if isinstance(m, nn.Linear)]


def convolutions(net: nn.Module) -> list[tuple[int, int, int]]:
    return [(m.in_channels, m.out_channels, m.kernel_size[0]) for m in net.modules() if isinstance(m, (nn.Conv1d, nn.Conv2d))]


def test_the_wafer_network_is_that_of_the_papers_table() -> None:
    net = WaferCNN().eval()
    assert convolutions(net) == [(3, 32, 3), (32, 64, 3), (64, 128, 3)]
    assert linears(net) == [(8192, 1250), (1250, 9)]
    assert [type(m) for m in net.modules() if not list(m.children())].count(nn.MaxPool2d) == 3
    codes = torch.randint(3, (2, 1, 56, 56), dtype=torch.uint8)
    assert net.inputs(codes).shape == (2, 3, 56, 56) and bool((net.inputs(codes).argmax(dim=1) == codes[:, 0]).all())
    assert net(net.inputs(codes)).shape == (2, 9)
    assert torch.equal(net.inputs(net.inputs(codes)), net.inputs(codes))  # what is in its space already stays
    assert WaferCNN(4, size=25)(torch.rand(2, 3, 25, 25)).shape == (2, 4)


def test_the_other_picture_networks() -> None:
    net = DigitCNN().eval()
    assert convolutions(net) == [(1, 32, 5), (32, 64, 5)] and linears(net) == [(3136, 128), (128, 10)]
    white = torch.full((2, 1, 28, 28), 255, dtype=torch.uint8)
    assert torch.equal(net.inputs(white), torch.ones(2, 1, 28, 28)) and net(net.inputs(white)).shape == (2, 10)
    assert FaceCNN(7, (109, 89)).eval()(torch.rand(2, 3, 109, 89)).shape == (2, 7)


def test_layers_of_the_papers_table_can_be_named_as_representations() -> None:
    x = torch.rand(2, 3, 56, 56)
    for layer in ("conv1", "conv3", "fc1"):
        found = ig2.IG2(steps=2)(ig2.wrap(WaferCNN().eval(), layer), x, references=x.flip(0))
        assert bool(found.values.isfinite().all())


@pytest.mark.parametrize(
    ("net", "x"),
    [
        (DigitCNN(), torch.zeros(2, 1, 32, 32, dtype=torch.uint8)),
        (DigitCNN(), torch.zeros(2, 3, 28, 28, dtype=torch.uint8)),
        (DigitCNN(), torch.zeros(2, 1, 28, 28, dtype=torch.int64)),
        (WaferCNN(9, 30), torch.zeros(2, 1, 56, 56, dtype=torch.uint8)),
        (WaferCNN(9, 30), torch.zeros(2, 1, 30, 30)),
        (MobileNetV2(2), ("a text",)),
        (FaceCNN(2, (32, 32)), torch.zeros(3, 32, 32)),
        (QuestionCNN(["a"]), torch.zeros(2, 3)),
    ],
)
def test_samples_that_do_not_fit_are_refused(net: SampleNetwork, x: Any) -> None:
    with pytest.raises(InputError, match=type(net).__name__):
        net.inputs(x)


def test_codes_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="codes 0, 1 and 2"):
        WaferCNN(9, 30).inputs(torch.full((1, 1, 30, 30), 3, dtype=torch.uint8))


# -- MobileNet-v2 ------------------------------------------------------------------------------------------------------


def test_mobilenet_has_the_parameters_of_torchvisions() -> None:
    net = MobileNetV2()
    assert sum(p.numel() for p in net.parameters()) == 3_504_872
    shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    assert len(shapes) == 314
    expected = {
        "features.0.0.weight": (32, 3, 3, 3),
        "features.0.1.running_var": (32,),
        "features.1.conv.0.0.weight": (32, 1, 3, 3),
        "features.1.conv.1.weight": (16, 32, 1, 1),
        "features.1.conv.2.bias": (16,),
        "features.2.conv.0.0.weight": (96, 16, 1, 1),
        "features.2.conv.1.0.weight": (96, 1, 3, 3),
        "features.2.conv.2.weight": (24, 96, 1, 1),
        "features.2.conv.3.num_batches_tracked": (),
        "features.14.conv.1.0.weight": (576, 1, 3, 3),
        "features.17.conv.2.weight": (320, 960, 1, 1),
        "features.18.0.weight": (1280, 320, 1, 1),
        "features.18.1.weight": (1280,),
        "classifier.1.weight": (1000, 1280),
        "classifier.1.bias": (1000,),
    }
    assert {name: shapes.get(name) for name in expected} == expected


def test_mobilenets_of_other_widths_have_channels_in_eights() -> None:
    net = MobileNetV2(40, width=0.35).eval()
    channels = {m.out_channels for m in net.modules() if isinstance(m, nn.Conv2d)}
    assert all(count % 8 == 0 for count in channels) and net.classifier[1].in_features == 1280
    narrow = [block.conv[-2].out_channels for block in net.features[1:-1]]
    assert [net.features[0][0].out_channels, *dict.fromkeys(narrow)] == [16, 8, 16, 24, 32, 56, 112]
    assert net(torch.rand(2, 3, 40, 32)).shape == (2, 40)
    assert MobileNetV2(2, width=1.4).classifier[1].in_features == 1792
    with pytest.raises(InputError, match="width"):
        MobileNetV2(2, width=0)


def test_mobilenet_is_scaled_by_thirty_two_and_adds_ten_times() -> None:
    net = MobileNetV2(2, 0.35).eval()
    assert net.features(torch.rand(1, 3, 64, 96)).shape == (1, 1280, 2, 3)
    assert sum(bool(getattr(block, "adds", False)) for block in net.features) == 10


def test_mobilenet_normalises_pictures_itself() -> None:
    net = MobileNetV2(2, 0.35).eval()
    grey = torch.tensor([0.485, 0.456, 0.406])[:, None, None].expand(1, 3, 32, 32)
    seen = []
    net.features.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    net(grey)
    assert float(seen[0].abs().max()) < 1e-6


def test_weights_of_torchvisions_fit_and_keep_the_last_layer_only_if_it_fits(tmp_path: Path) -> None:
    one = MobileNetV2(1000)
    torch.save(one.state_dict(), tmp_path / "weights.pth")
    same, other = MobileNetV2(1000), MobileNetV2(40)
    last = other.classifier[1].weight.clone()
    same.start_from(tmp_path / "weights.pth")
    other.start_from(tmp_path / "weights.pth")
    assert torch.equal(weights(same), weights(one))
    assert torch.equal(weights(other.features), weights(one.features)) and torch.equal(other.classifier[1].weight, last)
    with pytest.raises(InputError, match="in a network of this width"):
        MobileNetV2(1000, 0.35).start_from(tmp_path / "weights.pth")


class Harmful:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_files_that_are_no_weights_are_refused_and_nothing_in_them_is_run(tmp_path: Path) -> None:
    (tmp_path / "harmful.pth").write_bytes(pickle.dumps(Harmful(tmp_path / "harm")))
    torch.save({"features.0.0.weight": Harmful(tmp_path / "harm")}, tmp_path / "archive.pth")
    torch.save({"a": torch.zeros(1)}, tmp_path / "other.pth")
    torch.save(dict.fromkeys(MobileNetV2(2).state_dict(), 1), tmp_path / "numbers.pth")
    (tmp_path / "broken.pth").write_text("no weights")
    names = ("harmful.pth", "archive.pth", "other.pth", "numbers.pth", "broken.pth", "missing.pth")
    for name in names:
        with pytest.raises(InputError, match=name):
            MobileNetV2(2).start_from(tmp_path / name)
    assert not (tmp_path / "harm").exists()


# -- the network for texts ---------------------------------------------------------------------------------------------


def text_network() -> QuestionCNN:
    with local_seed(1):
        return QuestionCNN(["where", "is", "the", "river", "who", "?"], classes=6, embedding=12).eval()


def test_the_text_network_has_a_hundred_filters_of_each_width() -> None:
    net = text_network()
    assert convolutions(net) == [(12, 100, 3), (12, 100, 4), (12, 100, 5)] and linears(net) == [(300, 6)]
    assert [m.p for m in net.modules() if isinstance(m, nn.Dropout)] == [0.5]
    assert net.inputs(("Where is IT?", "who")).tolist() == [[2, 3, 1, 7], [6, 0, 0, 0]]
    assert net.cut("the river") == [(4, 0, 3), (5, 4, 9)]
    with pytest.raises(InputError, match="duplicates"):
        QuestionCNN(["a", "b", "a"])


def test_padding_does_not_change_a_texts_scores() -> None:
    net = text_network()
    alone, beside = net.inputs(("who",)), net.inputs(("who", "where is the river? where is the river?"))
    torch.testing.assert_close(net(beside)[:1], net(alone))
    long = nn.functional.pad(alone, (0, 30))
    torch.testing.assert_close(net(long), net(alone))
    # from embeddings the mask tells what is padding, whatever stands there
    embedded, mask = net.embedding(beside), beside != 0
    torch.testing.assert_close(net(embedded, mask), net(beside))
    moved = torch.where(mask[..., None], embedded, 5.0)
    torch.testing.assert_close(net(moved, mask), net(beside))
    assert not torch.allclose(net(moved)[:1], net(alone))  # without the mask it would count
    torch.testing.assert_close(net(net.embedding(alone)), net(alone))


def test_the_text_network_can_be_explained() -> None:
    net = text_network().requires_grad_(False)
    subject = modalities.text.from_parts(net.embedding, net, net.cut)
    batch = subject.read(["who is the river?", "where?"])
    found = ig2.IG2(steps=5, step_size=0.1)(subject.model, batch.x, references=subject.references(["is it?"], batch))
    shares = subject.scores(batch, found)
    assert [len(share) for share in shares] == [4, 1] and all(abs(share).sum() > 0 for share in shares)


def test_training_gives_padding_no_vector(three_steps: None) -> None:
    net = train_network("trec", some("trec"), quick=True).net
    assert isinstance(net, QuestionCNN) and not net.embedding.weight[0].any() and bool(net.embedding.weight[1].any())


# -- vectors of words --------------------------------------------------------------------------------------------------


def test_vectors_are_read_for_wanted_and_for_frequent_words(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"the 1 -2.5 3e-1\nof 4 5 6\n. . . 7 8 9\ncaf\xc3\xa9 0 1 2 \r\nthe 9 9 9\n")
    found = read_vectors(path, ["café", ". . .", "absent"], most=1)
    assert {word: vector.tolist() for word, vector in found.items()} == {
        "the": [1.0, -2.5, pytest.approx(0.3)],
        ". . .": [7.0, 8.0, 9.0],
        "café": [0.0, 1.0, 2.0],
    }
    assert set(read_vectors(path, most=10)) == {"the", "of", ". . .", "café"}
    assert read_vectors(path, ["the"])["the"].tolist()[0] == 1.0  # the first of two counts


def test_vectors_may_have_their_count_before_them(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("2 3\nthe 1 2 3\nof 4 5 6")
    assert {word: vector.tolist() for word, vector in read_vectors(tmp_path / "vectors.txt", most=5).items()} == {
        "the": [1, 2, 3],
        "of": [4, 5, 6],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not begin with a word and its vector"),
        (b"the\n", "does not begin with a word and its vector"),
        (b"the 1 2 3\nof 4 5\n", "vector 2 has no 3 numbers after its word"),
        (b"the 1 2 3\n\nof 4 5 6\n", "vector 2 has no 3 numbers after its word"),
        (b"the 1 2 3\nof 4 five 6\n", "'of' holds something else than numbers"),
        (b"the 1 2 3\nof 4 nan 6\n", "'of' holds numbers that are not finite"),
        (b"the 1 2 3\nof 4 1e99 6\n", "'of' holds numbers that are not finite"),
        (b"the 1 2 3\n\xff\xfe 4 5 6\n", "no text in UTF-8"),
        (b"the 1 2 3\nof " + b"4 " * 100_000, "vector 2 has no 3 numbers"),
        (b"x" * 200_000, "does not begin with a word and its vector"),
    ],
)
def test_broken_vectors_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "vectors.txt").write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_vectors(tmp_path / "vectors.txt", most=100)
    assert "vectors.txt" in str(error.value) and len(str(error.value)) < 500


def test_vectors_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="folder"):
        read_vectors(tmp_path)
    for path in (tmp_path / "missing.txt", "a\0b"):
        with pytest.raises(InputError, match="cannot be read"):
            read_vectors(path)
    (tmp_path / "vectors.txt").write_text("the 1 2 3\n")
    with pytest.raises(InputError, match="none of 1 words"):
        QuestionCNN(["a"], 2, 3).set_vectors(read_vectors(tmp_path / "vectors.txt", most=1))


def test_given_vectors_are_where_training_starts_and_unseen_words_keep_theirs(tmp_path: Path, three_steps: None) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("where 2 0 0 0\nriver 0 3 0 1\nunused 1 1 1 1\n")
    net = train_network("trec", some("trec"), start=path, quick=True).net
    assert isinstance(net, QuestionCNN) and net.embedding.embedding_dim == 4
    assert net.embedding.weight[net.words["river"]].tolist() == [0, 3, 0, 1]
    seen = net.embedding.weight[net.words["where"]] - torch.tensor([2.0, 0, 0, 0])
    assert 0 < float(seen.abs().max()) < 0.1
    assert {"who", "when", "is", "unused"} <= set(net.words)
    assert train_network("trec", some("trec"), quick=True).net.embedding.embedding_dim == 100  # and not what was kept before


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NAMES)
def test_the_same_seed_gives_the_same_network_and_no_random_state_is_touched(
    kind: str, three_steps: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = some(kind)
    before = torch.random.get_rng_state()
    one = train_network(kind, data, quick=True)
    assert torch.equal(torch.random.get_rng_state(), before)
    other = train_network(kind, data, seed=1, quick=True)
    monkeypatch.setenv("IG2_CACHE", str(tmp_path / "another"))
    torch.rand(3)  # another random state outside
    with torch.inference_mode():
        again = train_network(kind, data, quick=True)
    assert torch.equal(weights(again.net), weights(one.net))
    assert not torch.equal(weights(other.net), weights(one.net))
    assert not one.net.training and not any(p.requires_grad for p in one.net.parameters())
    assert math.isfinite(one.facts["loss"]) and one.facts["seconds"] > 0 and one.facts["source"] == "made for a test"


@pytest.mark.parametrize("kind", ["wafer", "trec"])
def test_a_network_is_trained_once_and_anew_when_anything_it_depends_on_is_another(
    kind: str, three_steps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    train = training._train

    def counted(*args: Any) -> dict[str, Tensor]:
        runs.append(kind)
        return train(*args)

    monkeypatch.setattr(training, "_train", counted)
    data = some(kind)
    one = train_network(kind, data, quick=True)
    kept = train_network(kind, data, quick=True)
    assert len(runs) == 1 and torch.equal(weights(kept.net), weights(one.net)) and kept.facts == one.facts
    assert not kept.net.training and not any(p.requires_grad for p in kept.net.parameters())
    renamed = dataclasses.replace(data, names=tuple(f"other {name}" for name in data.names), source="elsewhere")
    assert train_network(kind, renamed, quick=True).facts["source"] == "elsewhere" and len(runs) == 1

    train_network(kind, data, seed=1, quick=True)
    assert len(runs) == 2
    train_network(kind, some(kind, seed=1), quick=True)
    assert len(runs) == 3
    train_network(kind, dataclasses.replace(data, y=data.y.flip(0)), quick=True)
    assert len(runs) == 4
    train_network(kind, dataclasses.replace(data, classes=(*data.classes, "one more")), quick=True)
    assert len(runs) == 5
    change_quick(monkeypatch, kind, rate=1e-4)
    train_network(kind, data, quick=True)
    assert len(runs) == 6


@pytest.mark.parametrize("kind", NAMES)
def test_a_kept_network_says_the_same_to_the_last_digit(kind: str, three_steps: None) -> None:
    data = some(kind)
    fresh, kept = (train_network(kind, data, quick=True).net for _ in range(2))
    assert torch.equal(fresh(fresh.inputs(data.x)), kept(kept.inputs(data.x)))
    assert all(mine.stride() == other.stride() for mine, other in zip(fresh.parameters(), kept.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["trec", "faces"])
def test_a_training_that_is_stopped_goes_on_to_the_same_weights(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_quick(monkeypatch, kind, batch=16)
    monkeypatch.setattr(checkpoint, "BETWEEN_SECONDS", 0.0)
    data, seen = some(kind, 40), list[tuple[int, int]]()
    whole = train_network(kind, data, quick=True)
    monkeypatch.setenv("IG2_CACHE", str(tmp_path / "another"))

    def stop(done: int, total: int) -> None:
        if done > 2.5 * len(data):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_network(kind, data, quick=True, progress=stop)
    (part,) = (tmp_path / "another").iterdir()
    resumed = train_network(kind, data, quick=True, progress=lambda *counts: seen.append(counts))
    assert torch.equal(weights(resumed.net), weights(whole.net)) and resumed.facts["loss"] == whole.facts["loss"]
    assert seen[0][0] == 2 * len(data) and seen[-1][0] == seen[-1][1] > 2.5 * len(data)
    assert not part.exists() and len(list((tmp_path / "another").iterdir())) == 1
    (tmp_path / "third").mkdir()
    monkeypatch.setenv("IG2_CACHE", str(tmp_path / "third"))
    (tmp_path / "third" / part.name).write_bytes(b"broken")
    with pytest.warns(IG2Warning, match="damaged"):
        assert torch.equal(weights(train_network(kind, data, quick=True).net), weights(whole.net))


def test_other_vectors_in_a_file_of_the_same_name_are_not_mistaken_for_the_first(tmp_path: Path, three_steps: None) -> None:
    path = tmp_path / "vectors.txt"
    found = []
    for number in (1, 2):
        path.write_text(f"where {number} 0 0\n")
        found.append(weights(train_network("trec", some("trec"), start=path, quick=True).net))
    assert not torch.equal(*found)


def test_a_broken_file_in_the_cache_does_no_harm(three_steps: None, tmp_path: Path) -> None:
    one = train_network("mnist", some("mnist"), quick=True)
    (file,) = (tmp_path / "cache").iterdir()
    assert file.name.startswith("mnist-")
    file.write_bytes(b"broken")
    with pytest.warns(IG2Warning, match="damaged"):
        assert torch.equal(weights(train_network("mnist", some("mnist"), quick=True).net), weights(one.net))


def test_progress_counts_the_samples_seen(three_steps: None) -> None:
    told: list[tuple[int, int]] = []
    train_network("mnist", some("mnist", 20), quick=True, progress=lambda done, total: told.append((done, total)))
    assert [total for _, total in told] == [20, 20, 20]
    assert [done for done, _ in told] == [7, 14, 20]  # three steps of eight at most, evenly
    train_network("mnist", some("mnist", 20), quick=True, progress=lambda done, total: pytest.fail("it was kept"))


@pytest.mark.parametrize("kind", NAMES)
def test_every_kind_learns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "celeba":  # the whole network takes longer than all the others
        monkeypatch.setattr(faces, "MobileNetV2", lambda outputs: MobileNetV2(outputs, width=0.35))
    change_quick(monkeypatch, kind, batch=16)
    found = train_network(kind, some(kind, 48), quick=True)
    right = measure_accuracy(found.net, some(kind, 30, seed=7))
    assert right["overall"] > 0.9 and set(right["each"]) == {"class 0", "class 1", "class 2"}


def test_a_training_that_diverges_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    change_quick(monkeypatch, "mnist", epochs=3, batch=8, rate=1e30, decay=0.0)
    with pytest.raises(ModelError, match="diverged"):
        train_network("mnist", some("mnist"), quick=True)


@pytest.mark.parametrize(
    ("kind", "data", "options", "message"),
    [
        ("digits", some("mnist"), {}, "no network 'digits'"),
        ("mnist", some("trec"), {}, "DigitCNN cannot take"),
        ("trec", some("mnist"), {}, "QuestionCNN takes texts"),
        ("wafer", some("mnist"), {}, "codes 0, 1 and 2"),
        ("wafer", some("trec"), {}, "expected pictures"),
        ("celeba", some("mnist"), {}, "0 or 1 for each label"),
        ("mnist", some("faces"), {}, "a class for each"),
        ("mnist", some("mnist")[:1], {}, "1 samples: give two or more"),
        ("mnist", dataclasses.replace(some("mnist"), classes=("a", "b")), {}, "whole numbers from 0 to 1"),
        ("faces", dataclasses.replace(some("faces"), y=2 * some("faces").y), {}, "whole numbers from 0 to 1"),
        ("mnist", some("mnist"), {"seed": 1.5}, "seed"),
        ("mnist", some("mnist"), {"device": "nowhere"}, "device 'nowhere' cannot be used"),
        ("mnist", some("mnist"), {"device": "meta"}, "on the CPU or with CUDA"),
        ("mnist", some("mnist"), {"start": "weights.pth"}, "leave start out"),
        ("trec", some("trec"), {"start": "missing.txt"}, "'missing.txt' cannot be read"),
        ("celeba", some("celeba"), {"start": "missing.pth"}, "missing.pth cannot be read"),
        ("mnist", some("mnist"), {"progress": 3}, "progress must be"),
    ],
)
def test_what_cannot_be_trained_is_refused(kind: Any, data: LabelledSamples, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train_network(kind, data, quick=True, **options)


def test_maps_that_are_not_square_are_refused() -> None:
    data = some("wafer")
    assert isinstance(data.x, Tensor)
    with pytest.raises(InputError, match="12, 10"):
        train_network("wafer", dataclasses.replace(data, x=data.x[..., :10]), quick=True)


# -- the order, and what is done to batches ----------------------------------------------------------------------------


def test_rare_classes_are_drawn_as_often_as_the_recipe_says() -> None:
    y = torch.tensor([0] * 900 + [1] * 100)
    for balance, share in ((0.0, 0.1), (0.5, 0.25), (1.0, 0.5)):
        chance = torch.Generator().manual_seed(0)
        drawn = torch.cat([training._draw_order(y, balance, chance) for _ in range(10)])
        assert len(drawn) == 10_000
        assert float(y[drawn].float().mean()) == pytest.approx(share, abs=0.02)
    assert sorted(training._draw_order(y, 0.0, torch.Generator()).tolist()) == list(range(1000))


def test_the_rate_rises_and_falls_to_zero() -> None:
    paces = [training._pace(done / 100) for done in range(101)]
    assert 0 < paces[0] < 0.1 and max(paces) > 0.98 and paces[100] == pytest.approx(0) and paces.index(max(paces)) == 5
    assert paces[5:] == sorted(paces[5:], reverse=True)


def test_turned_maps_are_in_one_of_eight_positions() -> None:
    one = torch.arange(9.0).view(1, 1, 3, 3)
    made = turn(one.expand(800, 1, 3, 3), torch.Generator().manual_seed(0))
    positions = {
        tuple(turn.flatten().tolist()) for k in range(4) for turn in (one.rot90(k, (2, 3)), one.rot90(k, (2, 3)).flip(3))
    }
    count = Counter(tuple(row) for row in made.flatten(1).tolist())
    assert set(count) == positions and len(positions) == 8 and min(count.values()) > 60


def test_pictures_are_mirrored_and_shifted_and_nothing_else() -> None:
    x = torch.rand(200, 1, 6, 5)
    made = mirror(x, torch.Generator().manual_seed(0))
    same, flipped = ((made == other).flatten(1).all(dim=1) for other in (x, x.flip(3)))
    assert bool((same ^ flipped).all()) and 70 < int(same.sum()) < 130
    spot = torch.zeros(1, 1, 9, 9)
    spot[0, 0, 4, 4] = 1
    chance = torch.Generator().manual_seed(0)
    places = {tuple(shift(spot, chance)[0, 0].nonzero()[0].tolist()) for _ in range(400)}
    assert places == {(row, column) for row in range(2, 7) for column in range(2, 7)}
    assert mirror_and_shift(x, chance).shape == x.shape


def test_words_are_forgotten_and_padding_is_not() -> None:
    ids = torch.full((100, 20), 5)
    ids[:, 10:] = 0
    made = drop_words(ids, torch.Generator().manual_seed(0))
    assert not made[:, 10:].any() and set(made[:, :10].unique().tolist()) == {1, 5}
    assert 0.07 < float((made[:, :10] == 1).float().mean()) < 0.13


def test_settings_are_described_in_a_sentence() -> None:
    assert NETWORKS["wafer"].settings.describe(6400) == (
        "AdamW (rate 0.001, decay 0.01, cosine), 12 epochs of 100 steps, classes drawn by count^0.5, augmented by turn"
    )
    assert TrainingSettings(2, 10, 0.1, 0.0, balance=1).describe(20).endswith("classes drawn equally often")


# -- accuracy ----------------------------------------------------------------------------------------------------------


class Says(SampleNetwork):
    """Takes the scores from the samples themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def inputs(self, x: Any) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_accuracy_by_class_leaves_out_classes_without_samples() -> None:
    said = nn.functional.one_hot(torch.tensor([0, 0, 1, 1, 2]), 4).float()
    found = measure_accuracy(Says().eval(), samples(said, [0, 0, 0, 1, 1], 4), batch=2)
    assert found == {
        "overall": pytest.approx(3 / 5),
        "mean": pytest.approx((2 / 3 + 1 / 2) / 2),
        "each": {"class 0": pytest.approx(2 / 3), "class 1": 0.5},
        "commonest": 3 / 5,
    }


def test_accuracy_by_label_counts_absent_ones_too() -> None:
    said = torch.tensor([[1.0, -1.0], [-1.0, -1.0], [2.0, 0.5], [-3.0, 0.1]])
    found = measure_accuracy(Says().eval(), samples(said, [[1, 0], [0, 1], [0, 0], [0, 1]], 2))
    each = {"class 0": 0.75, "class 1": 0.5}
    assert found == {"overall": 0.625, "mean": 0.625, "each": each, "commonest": (0.75 + 0.5) / 2}


def test_accuracy_refuses_what_it_cannot_count() -> None:
    data = samples(torch.zeros(2, 3), [0, 1], 2)
    with pytest.raises(InputError, match="3 outputs and the samples 2 classes"):
        measure_accuracy(Says().eval(), data)
    with pytest.raises(ModelError, match="train mode"):
        measure_accuracy(Says(), data)
    with pytest.raises(InputError, match="one sample or more"):
        measure_accuracy(Says().eval(), data[[]])
