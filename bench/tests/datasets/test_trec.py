"""TREC: the label files without duplicates, and questions from a grammar."""

import pytest

from ig2.errors import InputError
from ig2_bench.datasets import trec

TRAIN = (
    "HUM:ind Who wrote it ?\n"
    "LOC:city Where is Rome ?\n"
    "HUM:ind Who wrote it ?\n"
    "HUM:gr WHO  wrote it ?\n"
    "NUM:count How many ?\n"
    "ABBR:exp What is NASA ?\n"
    "DESC:def What is NASA ?\n"
    "ENTY:food What is a sister\xf0city ?\n"
)
TEST = "NUM:count how many ?\r\n\r\nLOC:city Where is Paris ?\r\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train_5500.label").write_bytes(TRAIN.encode("latin-1"))
    (tmp_path / "TREC_10.label").write_bytes(TEST.encode("latin-1"))
    return tmp_path


def test_no_question_is_there_twice_or_in_both_parts(folder):
    train, test = trec.load(folder, "train"), trec.load(folder)
    assert train.x == ("Who wrote it ?", "Where is Rome ?", "What is a sisterðcity ?")
    assert train.y.tolist() == [3, 4, 2] and train.names == ("train line 1", "train line 2", "train line 8")
    assert test.x == ("how many ?", "Where is Paris ?") and test.names == ("test line 1", "test line 3")
    assert train.source == ("TREC questions, train; skipped: 3 duplicates, 1 that are in the test file too, 1 with two classes")
    assert test.source == "TREC questions, test"
    assert train.classes == ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")


@pytest.mark.parametrize(("train", "test"), zip(trec.FILES["train"], trec.FILES["test"], strict=True))
def test_the_names_that_people_give_the_files(folder, train, test):
    (folder / "train_5500.label").rename(folder / train)
    (folder / "TREC_10.label").rename(folder / test)
    assert len(trec.load(folder, "train")) == 3 and len(trec.load(folder, limit=1)) == 1


@pytest.mark.parametrize("line", ["What is this ?", "XXX:y What ?", "HUM:ind", "HUM What ?", "hum:ind Who ?"])
def test_a_line_without_its_class_is_named(folder, line):
    with (folder / "TREC_10.label").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError) as caught:
        trec.load(folder)
    assert f"TREC_10.label line 4: {line!r}, expected CLASS:kind and a question" in str(caught.value)
    assert len(trec.survey(folder).problems) == 1


def test_what_is_missing_is_named(folder, tmp_path):
    with pytest.raises(InputError, match="part must be 'train' or 'test', got 'dev'"):
        trec.load(folder, "dev")
    (folder / "TREC_10.label").write_text("\n")
    with pytest.raises(InputError, match=r"TREC_10.label has no questions"):
        trec.load(folder)
    (folder / "TREC_10.label").unlink()
    with pytest.raises(InputError, match=r"has no TREC_10.label or TREC_test.txt: ig2 data fetch trec gets it"):
        trec.load(folder)


def test_a_survey_names_duplicates(folder):
    found = trec.survey(folder)
    # every line is counted, those that loading skips too
    assert found.counts == {"ABBR": 1, "DESC": 1, "ENTY": 1, "HUM": 3, "LOC": 2, "NUM": 2} and found.problems == ()
    assert found.source == (
        "TREC questions, train; loading skips 3 duplicates, 1 that are in the test file too, 1 with two classes"
        " · TREC questions, test"
    )
    assert found.duplicates == (
        ("train line 1", "train line 3", "train line 4"),
        ("train line 5", "test line 1"),
        ("train line 6", "train line 7"),
    )


def test_made_up_questions_are_even_and_none_is_there_twice():
    samples = trec.make_questions(90, seed=2)
    assert set(samples.counts().values()) == {15} and len(set(samples.x)) == 90
    assert samples.x == trec.make_questions(90, seed=2).x != trec.make_questions(90, seed=3).x
    assert sum(trec.make_questions(8).counts().values()) == 8
    with pytest.raises(InputError, match="count must be"):
        trec.make_questions(0)
    with pytest.raises(InputError, match=r"the grammar makes .* different questions, asked for are 10000"):
        trec.make_questions(10_000)
