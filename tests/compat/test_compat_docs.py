"""The page on other libraries' conventions does what it says."""

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch

PAGE = Path(__file__).parents[2] / "docs" / "compat.md"


def test_the_snippets_run_one_after_the_other():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    names = {}
    with torch.random.fork_rng(devices=[]):
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    plt.close("all")
    assert float(names["attribution"].residual.abs().max()) < 1e-5
    assert set(names["results"]) == {"IG²", "IG"}
    assert names["values"].shape == names["x"].shape and names["delta"].shape == (5,)
