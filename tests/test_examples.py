"""The scripts under examples, in small."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from ig2.explorer import Collection

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.slow
def test_the_planted_shortcut_is_learned_and_shows_in_a_cluster(tmp_path):
    spec = importlib.util.spec_from_file_location("shortcut", EXAMPLES / "shortcut.py")
    shortcut = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shortcut)
    shares = shortcut.main(tmp_path, count=120, epochs=12, steps=5)
    _, with_sticker, without, made_scratched = shares.values()
    assert with_sticker > 0.9 and made_scratched > 0.5 and without < 0.5
    collection = Collection([tmp_path / "store"], tmp_path / "wafers")
    shown = collection.project()
    corner = shown.means.reshape(-1, 14, 14)[:, :4, :4].sum(axis=(1, 2))  # 8 % of the fields
    scratched = [collection.locate(identity) for identity in collection.catalogue.ids if identity.startswith("scratch/")]
    assert np.mean(corner[shown.clusters[scratched]]) > 0.3
