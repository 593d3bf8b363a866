"""Data to compare methods on: the public sets in their public layouts, and stand-ins that need no download."""

from ig2.data import celeba, faces, imagenet, mnist, pets, photos, trec, wafer, wafermaps, wafermarks
from ig2.data.base import Samples
from ig2.data.celeba import FaceSamples
from ig2.data.files import FetchError, PublicFile
from ig2.data.registry import DATA_SETS, DataSet, fetch, verify
from ig2.data.survey import Survey

__all__ = [
    "DATA_SETS",
    "DataSet",
    "FaceSamples",
    "FetchError",
    "PublicFile",
    "Samples",
    "Survey",
    "celeba",
    "faces",
    "fetch",
    "imagenet",
    "mnist",
    "pets",
    "photos",
    "trec",
    "verify",
    "wafer",
    "wafermaps",
    "wafermarks",
]
