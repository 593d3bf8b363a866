"""`Attribution.plot` from end to end: a file a person can open, for each kind of data."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ig2

matplotlib_image = pytest.importorskip("matplotlib.image")


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def network(features: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, 3)).eval()


@pytest.fixture
def small() -> ig2.Attribution:
    return ig2.IntegratedGradients(3)(network(5), uniform(2, 5))


@pytest.mark.parametrize("shape", [(12,), (1, 12, 14), (3, 12, 14), (12, 14), (5,), (1,), (60,)], ids=str)
@pytest.mark.parametrize("rows", [1, 3])
def test_a_picture_is_written(shape: tuple[int, ...], rows: int, tmp_path: Path):
    x, references = uniform(rows, *shape), uniform(2, *shape, seed=1)
    result = ig2.IG2(steps=5)(network(x[0].numel()), x, references=references)
    before = {name: value.clone() for name, value in vars(result).items() if isinstance(value, Tensor)}
    file = tmp_path / "picture.png"
    figure = result.plot(file)
    assert file.read_bytes().startswith(b"\x89PNG")
    pixels = matplotlib_image.imread(file)
    assert min(pixels.shape[:2]) > 100 and np.ptp(pixels[..., :3]) > 0.9  # something was drawn, from dark to light
    assert all(torch.equal(getattr(result, name), value) for name, value in before.items())
    assert result.plot() is not figure


def test_one_attributed_tensor_among_fixed_ones_is_shown(tmp_path: Path):
    x = (uniform(2, 1, 12, 14), ig2.Fixed(uniform(2, 1)))
    result = ig2.IntegratedGradients(3)(lambda x, scale: (x * scale[:, None, None]).sum((1, 2, 3)), x)
    result.plot(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_embeddings_are_no_image():
    x = {"embeddings": uniform(2, 7, 5)}
    result = ig2.IntegratedGradients(3)(lambda embeddings: embeddings.sum((1, 2))[:, None], x)
    with pytest.raises(ig2.InputError, match=r"ig2\.plots\.text"):
        result.plot()
    assert "make no image" in result._repr_html_() and "<img" not in result._repr_html_()
    assert ig2.plots.text(result, [["a", "b"], ["c"]])


def test_pyplot_and_its_state_are_left_alone(small: ig2.Attribution):
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    settings, open_figures = dict(mpl.rcParams), plt.get_fignums()
    small.plot(io.BytesIO())
    assert dict(mpl.rcParams) == settings and plt.get_fignums() == open_figures


def test_an_empty_attribution_is_refused(small: ig2.Attribution):
    with pytest.raises(ig2.InputError, match="empty"):
        small[[]].plot()
