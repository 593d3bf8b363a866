"""The same store through Ray, row for row, also when a worker is killed in the middle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from limits import HANGS

import ig2
from ig2.errors import InputError

pytest.importorskip("ray")
SOURCE = Path(__file__).parent.parent.parent / "src"
PROGRAM = """
import os, sys
from pathlib import Path
import torch, ig2
from ig2.runs import Cluster
from torch import nn

folder = Path(sys.argv[1])

class Deadly(torch.utils.data.Dataset):
    '''Samples, one of which kills the process that reads it, the first time.'''
    def __init__(self, kills):
        self.samples, self.kills = torch.randn(100, 6, generator=torch.Generator().manual_seed(0)), kills
    def __len__(self):
        return 100
    def __getitem__(self, index):
        if index == 13:
            raise OSError(5, "Input/output error")
        if self.kills and index == 31 and not (folder / "killed").exists():
            (folder / "killed").write_text(str(os.getpid()))
            os.kill(os.getpid(), 9)
        return self.samples[index]

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).eval()
    def run(name, kills=False, **options):
        return ig2.run(Deadly(kills), net, ig2.IntegratedGradients(3), folder / name, reading=ig2.Reading(batch=4), **options)
    run("local")
    ray = dict(cluster=Cluster(workers=2))
    def stop(done, total):
        if done >= 44:
            raise KeyboardInterrupt
    try:
        run("ray", kills=True, progress=stop, **ray)
    except KeyboardInterrupt:
        print(len(ig2.open(folder / "ray")))
    run("ray", **ray)
    try:
        run("gpus", cluster=Cluster(workers=2, gpus_per_worker=4))
    except ig2.InputError as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif("IG2_TEST_RAY" not in os.environ, reason="starts Ray three times, a minute: make test-ray")
def test_ray_writes_the_same_store_row_for_row(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}:{tmp_path}", "OMP_NUM_THREADS": "1", "RAY_TMPDIR": "/tmp"}
    arguments = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    result = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False, timeout=HANGS)
    assert result.returncode == 0, result.stderr[-3000:]
    assert (tmp_path / "killed").exists()
    local = ig2.open(tmp_path / "local")
    assert local.failures == {"OSError": 1}
    other = ig2.open(tmp_path / "ray")
    assert other.ids == local.ids
    assert other.failures == local.failures
    for one, two in zip(local, other, strict=True):
        if one["error"] is None:
            np.testing.assert_array_equal(one.pop("values"), two.pop("values"))
        assert json.dumps(one, default=str) == json.dumps(two, default=str)
    lines = [line for line in result.stdout.splitlines() if "raylet" not in line]
    assert 44 <= int(lines[0]) < 100 and "GPUs" in lines[-1]


def test_ray_at_an_address_where_nobody_is_says_so() -> None:
    from ig2.runs.cluster import _connect
    from ig2.runs.execution import Cluster

    class Nobody:
        def is_initialized(self) -> bool:
            return False

        def init(self, **options: object) -> None:
            assert options["address"] == "ray://nowhere:1"
            raise ConnectionError("no answer")

    with pytest.raises(InputError, match="nowhere"), _connect(Nobody(), Cluster(2, address="ray://nowhere:1")):
        pass
