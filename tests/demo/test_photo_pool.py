"""The pool of ImageNet photos: what is listed, what is chosen of it, and what the command makes of it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from torch import nn

from ig2 import Question, modalities
from ig2._utils.downloads import PublicFile
from ig2.demo import photos, pool
from ig2.modalities.image import imagenet

COLOURS = {"tabby": (255, 0, 0), "lynx": (0, 255, 0), "tench": (0, 0, 255)}


class Colours(nn.Module):
    """Scores that are the mean of each channel: a red picture is the first class."""

    def forward(self, x):
        return 9 * x.mean(dim=(2, 3))


def subject():
    return modalities.image.subject(Colours(), (8, 8), classes=list(COLOURS))


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """A pool of three photos in the cache."""
    monkeypatch.setenv("IG2_CACHE", str(tmp_path))
    files = []
    for name, colour in COLOURS.items():
        path = tmp_path / f"{imagenet.wnids()[imagenet.names().index(name)]}_{name}.png"
        Image.new("RGB", (8, 8), colour).save(path)
        content = path.read_bytes()
        files.append(PublicFile(path.name, (path.as_uri(),), len(content), hashlib.sha256(content).hexdigest()))
    small = replace(pool.DATASET, files=tuple(files))
    monkeypatch.setattr(pool, "DATASET", small)
    monkeypatch.setattr(pool, "OTHERS", 1)
    pool.list_classes.cache_clear()
    small.fetch()
    yield small.folder
    pool.list_classes.cache_clear()


def test_the_listing_has_one_photo_a_class_at_a_fixed_address():
    files = pool.DATASET.files
    assert len(files) == len(pool.list_classes()) == len({file.name for file in files}) > 950
    assert pool.list_classes() <= set(imagenet.names()) and {"tabby", "tiger cat", "Egyptian cat"} <= pool.list_classes()
    for file in files:
        (url,) = file.urls
        assert re.fullmatch(r"https://raw\.githubusercontent\.com/[\w-]+/[\w-]+/[0-9a-f]{40}/\S+\.JPEG", url)
        assert re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size > 1000
    assert pool.name_class(files[0]) == "tench"


def test_without_the_pool_there_are_the_photos_of_packages(tmp_path, monkeypatch):
    monkeypatch.setenv("IG2_CACHE", str(tmp_path))
    assert pool.choose([["tabby"]]) is None
    assert [photo.source for photo in photos.photos()] == list(photos.paths())


def test_the_pool_gives_the_wanted_classes_and_a_few_others(fetched):
    assert [photo.label for photo in pool.choose([["lynx", "tench"]])] == [
        "tabby",
        "lynx",
    ]  # of others, OTHERS = 1, here the first
    assert [photo.label for photo in photos.photos()] == ["tabby"]
    mine = subject()
    blue = np.zeros((8, 8, 3), np.uint8) + np.array(COLOURS["tench"], np.uint8)
    blue[:, :, 1] = 40  # the runner-up is the second class
    batch = mine.read(blue)
    assert Question(against="next").contrast(mine, batch).labels == (("lynx",),)
    assert Question(against=[0]).contrast(mine, batch).labels == (("tabby",),)
    assert Question(against=None).contrast(mine, batch).labels == (("tabby",),)


def test_references_are_of_the_most_likely_others_that_have_a_photo(fetched):
    mine = subject()
    tench = np.zeros((8, 8, 3), np.uint8) + np.array(COLOURS["tench"], np.uint8)
    tench[:, :, 1] = 40  # the runner-up is the second class
    batch = mine.read([tench, tench[:, :, ::-1]])
    both, one = (Question(count=count).contrast(mine, batch) for count in (2, 1))
    assert both.labels == (("lynx", "tabby"), ("lynx", "tench"))
    assert one.labels == (("lynx",), ("lynx",)) and one.against.tolist() == [1, 1]
    other = modalities.image.subject(Colours(), (8, 8), classes=["a", "b", "c"])  # none of these is of ImageNet
    assert Question().contrast(other, other.read(tench)).names == (("n02123045_tabby.png",),)


def test_the_survey_finds_what_is_missing_and_what_is_wrong(fetched):
    assert pool.survey(fetched).problems == () and pool.survey(fetched).counts == dict.fromkeys(COLOURS, 1)
    first, second, _ = sorted(fetched.iterdir())
    first.unlink()
    second.write_bytes(b"something else")
    survey = pool.survey(fetched, lambda done, total: None)
    assert len(survey.problems) == 2 and len(survey.counts) == 1
    assert any(problem.endswith("is missing") for problem in survey.problems)
    assert any("instead of" in problem for problem in survey.problems)
