"""The running mean over references: what it is on the way, and that it ends in the library's own call."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from torch import nn

import ig2
from ig2.explorer import stream
from ig2.explorer.queueing import Stopped
from ig2.methods import Result
from networks import seeded
from whatifs import make_patients, make_reader

NET = seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), 0).double().eval()
METHODS = [
    ig2.IG2(12),
    ig2.IG2(6, rule=ig2.rules.gauss(2)),
    ig2.ExpectedIG(5),
    ig2.GuidedIG(8),
    ig2.IG2(2, fallback="straight"),
]


@pytest.fixture
def samples():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, 6, generator=generator).double(), torch.randn(1, 7, 6, generator=generator).double()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_the_last_is_the_call_of_the_method(samples, method, at_once):
    x, references = samples
    parts = list(stream(method, ig2.wrap(NET), x, 1, references, against=2, seed=3, at_once=at_once))
    assert [part.done for part in parts] == [*range(at_once, 7, at_once), 7] and {part.total for part in parts} == {7}
    whole, last = method(NET, x, 1, references, against=2, seed=3), parts[-1].attribution
    for name in {field.name for field in fields(Result)} - {"gradcfe", "per_reference"} | {"residual"}:
        expected = getattr(whole, name)
        if not isinstance(expected, torch.Tensor):
            assert getattr(last, name) == expected
        else:
            torch.testing.assert_close(getattr(last, name), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_where_the_network_sees_the_same_batches_not_one_bit_differs(samples, at_once):
    x, references = samples
    *_, last = stream(ig2.IG2(12), ig2.wrap(NET), x, 1, references, at_once=at_once)
    whole = ig2.IG2(12)(NET, x, 1, references, batch_size=at_once)
    for name in ("values", "spread", "baseline_outputs", "trust", "arrival", "gradcf", "steps_taken"):
        assert torch.equal(getattr(last.attribution, name), getattr(whole, name)), name


def test_on_the_way_it_is_the_mean_so_far(samples):
    x, references = samples
    each = ig2.IG2(12)(NET, x, 0, references, per_reference=True).per_reference
    for part in stream(ig2.IG2(12), ig2.wrap(NET), x, 0, references):
        expected = torch.stack([each[:, number] for number in range(part.done)]).sum(dim=0) / part.done
        torch.testing.assert_close(part.attribution.values, expected, rtol=1e-12, atol=1e-14)


def test_references_in_the_structure_of_x_are_taken_apart():
    subject, frame = make_patients()
    reader = make_reader()
    for model, batch in ((subject, subject.read(frame.head(1))), (reader, reader.read(["a good film"]))):
        references = ig2.Question(against=None, count=3).contrast(model, batch).samples
        parts = list(stream(ig2.IG2(8), model.model, batch.x, None, references))
        whole = ig2.IG2(8)(model.model, batch.x, None, references, batch_size=2)
        tensors = [part.values for part in (parts[-1].attribution, whole)]
        first, second = (next(iter(value.values())) if isinstance(value, dict) else value for value in tensors)
        first, second = (value[0] if isinstance(value, tuple) else value for value in (first, second))
        assert len(parts) == 2 and torch.equal(first, second)


@pytest.mark.parametrize("method", [ig2.Gradient(), ig2.GradCFE(5), ig2.IntegratedGradients(4), ig2.KernelSHAP()])
def test_what_is_no_mean_over_samples_comes_in_one_piece(samples, method):
    x, references = samples
    given = None if isinstance(method, ig2.IntegratedGradients) else references
    (part,) = stream(method, ig2.wrap(NET), x, 0, given)
    torch.testing.assert_close(part.attribution.values, method(NET, x, 0, given).values, rtol=1e-12, atol=1e-12)


def test_whatever_progress_raises_ends_the_work(samples):
    x, references = samples
    counts = []

    def stop(done, total):
        counts.append(done)
        if len(counts) == 3:
            raise Stopped

    with pytest.raises(Stopped):
        list(stream(ig2.IG2(50), ig2.wrap(NET), x, 0, references, progress=stop))
    assert len(counts) == 3
