"""Labelled samples: choosing some of them, the same for the same seed."""

from dataclasses import replace

import pytest
import torch

from ig2.errors import InputError
from ig2.references import round_robin
from ig2_bench.datasets.base import LabelledSamples
from ig2_bench.datasets.survey import survey_samples

UNEVEN = torch.tensor([0] * 50 + [1] * 5 + [2])


def samples(y: torch.Tensor) -> LabelledSamples:
    names = tuple(f"sample {number}" for number in range(len(y)))
    return LabelledSamples(torch.arange(len(y)).reshape(-1, 1, 1, 1), y, ("a", "b", "c"), names, "some")


def test_a_limit_takes_as_many_of_each_class_as_there_are():
    some = samples(UNEVEN)
    assert some.take(3).counts() == {"a": 1, "b": 1, "c": 1}
    assert some.take(9).counts() == {"a": 4, "b": 4, "c": 1}
    assert some.take(20).counts() == {"a": 14, "b": 5, "c": 1}
    assert len(some.take(None)) == len(some.take(1000)) == 56


def test_names_labels_and_masks_stay_with_their_sample():
    taken = replace(samples(UNEVEN), masks=torch.arange(56).reshape(-1, 1, 1)).take(12, seed=3)
    numbers = taken.x.flatten()
    assert numbers.tolist() == sorted(numbers.tolist())
    assert taken.names == tuple(f"sample {number}" for number in numbers)
    assert taken.y.equal(UNEVEN[numbers]) and taken.masks.flatten().equal(numbers)


def test_the_choice_is_the_seeds_and_a_smaller_one_lies_within_a_larger():
    some = samples(UNEVEN)
    assert some.take(12).names == some.take(12).names != some.take(12, seed=1).names
    assert set(some.take(5).names) < set(some.take(12).names)
    before = torch.random.get_rng_state()
    some.take(5)
    assert torch.random.get_rng_state().equal(before)


def test_samples_with_several_labels_are_chosen_by_chance():
    y = torch.tensor([[1, 0], [0, 1], [1, 1]])
    assert sorted(round_robin(y)) == [0, 1, 2] and round_robin(y, 1) != round_robin(y, 2)


@pytest.mark.parametrize("limit", [0, -1, 2.5, True, "3"])
def test_a_limit_that_is_no_count_is_refused(limit):
    with pytest.raises(InputError, match="limit"):
        samples(UNEVEN).take(limit)


def test_a_survey_counts_and_names_what_is_the_same():
    one = LabelledSamples(("who?", "what?", "who?"), torch.tensor([0, 1, 0]), ("x", "y"), ("1", "2", "3"), "first")
    two = LabelledSamples(("what?",), torch.tensor([1]), ("x", "y"), ("4",), "second")
    found = survey_samples(one, two)
    assert found.counts == {"x": 2, "y": 2} and found.source == "first · second" and found.total is None
    assert found.duplicates == (("1", "3"), ("2", "4")) and found.problems == ()


def test_of_samples_with_several_labels_the_counts_are_not_the_total():
    several = LabelledSamples(torch.zeros(2, 1, 1, 1), torch.tensor([[1, 1], [1, 0]]), ("x", "y"), ("1", "2"), "both")
    found = survey_samples(several)
    assert found.counts == {"x": 2, "y": 1} and found.total == 2 and found.duplicates == (("1", "2"),)


def test_a_seed_that_is_none_is_refused():
    for call in (lambda: samples(UNEVEN).take(3, seed="x"), lambda: samples(UNEVEN).split(0.5, seed=1.5)):
        with pytest.raises(InputError, match="seed must be an integer"):
            call()


def test_a_digest_is_of_everything_that_samples_hold_and_of_nothing_else():
    some = samples(UNEVEN)
    masks = torch.zeros(56, 1, 1)
    others = [
        some[1:],
        replace(some, x=some.x + 1),
        replace(some, y=some.y.flip(0)),
        replace(some, classes=("a", "b", "d")),
        replace(some, masks=masks),
        replace(some, masks=masks + 1),
    ]
    assert len({one.digest() for one in (some, *others)}) == 7
    assert some.digest() == samples(UNEVEN).digest() == replace(some, source="elsewhere").digest()
