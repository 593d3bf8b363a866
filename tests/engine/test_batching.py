"""Results do not depend on how the work is cut, memory does not grow with the path, and running out of it is no end."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import ig2
from ig2._engine.memory import BatchSize, free_bytes, is_out_of_memory
from ig2.errors import InputError, ModelError, OutOfMemoryError
from ig2.methods import masking
from networks import Record, made, refuses, uniform

pytestmark = pytest.mark.slow  # all of it together takes half a minute


def cnn() -> Any:
    return made(
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 3))
    )


X, REFERENCES = uniform(5, 2, 6, 6, seed=1), uniform(3, 2, 6, 6, seed=2)
METHODS = {
    "IG gauss": ig2.IntegratedGradients(7),
    "IG left": ig2.IntegratedGradients(7, rule=ig2.rules.left),
    "ExpectedIG trapezoid": ig2.ExpectedIG(7, rule=ig2.rules.trapezoid),
    "ExpectedIG shared": ig2.ExpectedIG(7, rule=ig2.rules.shared),
    "straight gauss": ig2.PathMethod(ig2.paths.Straight(3), rule=ig2.rules.gauss(3)),
    "GuidedIG": ig2.GuidedIG(steps=5, max_dist=0.1),
    "BlurIG": ig2.BlurIG(steps=5, sigma=2),
    "IG2": ig2.IG2(steps=5, step_size=0.5),
    "IG2 gauss": ig2.IG2(steps=5, rule=ig2.rules.gauss(3)),
    "IG2 tempered": ig2.IG2(steps=5, rule=ig2.rules.tempered),
    "IG2 secant": ig2.IG2(steps=4, rule=ig2.rules.secant),
    "straight secant": ig2.PathMethod(ig2.paths.Straight(4), rule=ig2.rules.secant),
    "GradCFE": ig2.GradCFE(steps=5),
    "to GradCF": ig2.PathMethod(
        ig2.paths.Straight(5), ig2.references.GradCF(REFERENCES, ig2.paths.GradPath(3)), ig2.rules.midpoint
    ),
}
FIELDS = ("values", "spread", "gradcf", "gradcfe", "baseline_outputs", "output_curve", "distance_curve", "paths")


def run(name: str, network: Any, **options: Any) -> ig2.Attribution:
    return METHODS[name](network, X, references=None if name == "to GradCF" else REFERENCES, **options)


def assert_alike(one: ig2.Attribution, other: ig2.Attribution) -> None:
    for field in FIELDS:
        left, right = getattr(one, field), getattr(other, field)
        assert (left is None) == (right is None), field
        if left is not None:
            assert torch.allclose(left, right, rtol=1e-10, atol=1e-12), field


@pytest.mark.parametrize("name", METHODS)
def test_results_do_not_depend_on_the_batch_size(name: str):
    network = cnn()
    whole = run(name, network, curves=True, paths=True)
    for batch_size in (1, 2, 4, 7, 100):
        assert_alike(run(name, network, curves=True, paths=True, batch_size=batch_size), whole)


@pytest.mark.parametrize("name", METHODS)
def test_no_batch_is_larger_than_asked_for(name: str):
    network, sizes = cnn(), []

    def spy(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return network(x)

    run(name, ig2.wrap(spy), curves=True, batch_size=4)
    assert max(sizes) == 4


def test_references_shared_by_all_equal_the_same_ones_for_each():
    network = cnn()
    shared = METHODS["IG2"](network, X, references=REFERENCES)
    each = METHODS["IG2"](network, X, references=REFERENCES.expand(5, -1, -1, -1, -1))
    assert_alike(shared, each)
    turned = REFERENCES.expand(5, -1, -1, -1, -1).clone()
    turned[1] = turned[1].flip(0)
    assert torch.allclose(METHODS["IG2"](network, X, references=turned, per_reference=True).values, shared.values)


# -- memory that does not grow -----------------------------------------------------------------------------------------


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of every tensor that is alive, those kept for a backward pass too, and remembers the most.

    Tensors that were there before are not counted.
    """

    def __init__(self, *before: Tensor) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.known: dict[int, Any] = {tensor.untyped_storage()._cdata: None for tensor in before}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        for result in results if isinstance(results, (tuple, list)) else (results,):
            if isinstance(result, Tensor):
                self.track(result.untyped_storage())
        return results

    def track(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:

            def release(_: Any) -> None:
                self.live -= size
                del self.known[key]

            self.known[key] = weakref.ref(storage, release)
            self.live += size
            self.peak = max(self.peak, self.live)


def peak(work: Callable[[], object]) -> int:
    with LiveBytes() as counter:
        work()
    return counter.peak


def test_the_count_of_live_bytes_is_right():
    keep = []
    assert peak(lambda: torch.zeros(1000, dtype=torch.float64)) == 8000
    assert peak(lambda: [torch.zeros(1000, dtype=torch.float64) for _ in range(3)]) == 24000
    assert peak(lambda: [torch.zeros(1000, dtype=torch.float64).sum() for _ in range(9)]) == 8000 + 9 * 8
    x = torch.ones(1000, dtype=torch.float64, requires_grad=True)
    assert peak(lambda: keep.append(x.exp().exp().sum())) == 16000 + 8  # both results stay for the backward pass


WALKS: dict[str, tuple[int, Callable[[int], ig2.Method]]] = {
    "GradPath": (2000, lambda steps: ig2.IG2(steps=steps, step_size=0.01)),
    "GradPath gauss": (200, lambda steps: ig2.IG2(steps=steps, step_size=0.01, rule=ig2.rules.gauss(2))),
    "straight": (500, lambda steps: ig2.ExpectedIG(steps, rule=ig2.rules.trapezoid)),
    "straight gauss": (200, lambda steps: ig2.PathMethod(ig2.paths.Straight(steps), rule=ig2.rules.gauss(2))),
    "guided": (200, lambda steps: ig2.GuidedIG(steps=steps)),
}


@pytest.mark.parametrize("walk", WALKS)
def test_many_steps_need_the_memory_of_fifty(walk: str):
    network = made(lambda: nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 3)))
    x, references = uniform(2, 40), uniform(2, 40, seed=1)
    many, method = WALKS[walk]

    def needed(steps: int, **options: Any) -> int:
        return peak(lambda: method(steps)(network, x, references=references, batch_size=4, **options))

    assert needed(many) <= 1.01 * needed(50)
    # of a point on a curve its two numbers are kept, and nothing that they were made of
    more = needed(200, curves=True) - needed(50, curves=True)
    assert more <= 4 * 150 * len(references) * len(x) * 2 * 8
    # the measure can fail: paths that are kept grow it by every point of them
    assert needed(100, paths=True) - needed(50, paths=True) >= 50 * references.numel() * len(x) * 8


def test_nothing_is_left_in_memory_after_a_call():
    network = cnn()
    with LiveBytes(X, REFERENCES, *network.parameters()) as counter:
        for method in METHODS.values():
            method(network, X, references=REFERENCES)
            with pytest.raises(ModelError):
                method(network, X[:, :1], references=REFERENCES)
    gc.collect()
    assert counter.live == 0


def test_gauss_over_a_whole_line_needs_no_more_for_more_nodes():
    network = made(lambda: nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 3)))
    x = uniform(2, 40)
    few, many = (peak(lambda n=n: ig2.IntegratedGradients(n)(network, x, batch_size=8)) for n in (50, 500))
    assert many <= 1.01 * few


def net_of(axes: int) -> nn.Module:
    conv, pool = (nn.Conv2d, nn.AdaptiveAvgPool2d) if axes == 2 else (nn.Conv3d, nn.AdaptiveAvgPool3d)
    return made(lambda: nn.Sequential(conv(1, 4, 3, 2), nn.ReLU(), pool(2), nn.Flatten(), nn.Linear(4 * 2**axes, 3)))


LARGE: dict[str, Callable[[int, Any], ig2.Method]] = {
    "IG2": lambda work, parts: ig2.IG2(steps=work),
    "IG": lambda work, parts: ig2.IntegratedGradients(work),
    "Smoothed": lambda work, parts: ig2.Smoothed(ig2.IntegratedGradients(work), 2.0),
    "KernelSHAP": lambda work, parts: ig2.KernelSHAP(parts, samples=160),
    "Occlusion": lambda work, parts: ig2.Occlusion(groups=parts),
    "Strata": lambda work, parts: ig2.Strata(),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("size", [(96, 96), (20, 20, 20)], ids=str)
def test_large_inputs_need_memory_for_a_few_points_alone(name: str, size: tuple[int, ...]):
    """For as many samples as a batch holds, and those of the references; not for the work done on them."""
    net, x, references = net_of(len(size)), uniform(1, 1, *size), uniform(4, 1, *size, seed=1)
    cells = torch.meshgrid(*(torch.arange(length) * 4 // length for length in size), indexing="ij")
    parts = torch.stack([cell * 4**axis for axis, cell in enumerate(cells)]).sum(dim=0)

    def needed(work: int, batch_size: int) -> tuple[int, Tensor]:
        kept: list[Tensor] = []
        method = LARGE[name](work, parts)
        run = lambda: kept.append(method(net, x, references=references, batch_size=batch_size).values)  # noqa: E731
        return peak(run), kept[0]

    (few, one), (wide, same), (long, _) = needed(4, 1), needed(4, 4), needed(40, 1)
    assert long <= 1.05 * few and few < 90 * x.nbytes, (few / x.nbytes, long / x.nbytes, wide / x.nbytes)
    assert wide - few < 60 * x.nbytes
    assert torch.allclose(one, same, atol=1e-12)


@pytest.mark.parametrize("method", [ig2.Occlusion(4), ig2.RISE(masks=64)], ids=["Occlusion", "RISE"])
def test_masks_of_large_inputs_are_summed_in_pieces(method: ig2.Method, monkeypatch: pytest.MonkeyPatch):
    net, x, results = net_of(2), uniform(1, 1, 32, 32), list[Tensor]()
    run = lambda: results.append(method(net, x, batch_size=1).values)  # noqa: E731
    at_once = peak(run)
    monkeypatch.setattr(masking, "MOST_NUMBERS", 4 * x.numel())
    assert peak(run) < 0.6 * at_once and torch.allclose(*results, atol=1e-12)


# -- running out of memory ---------------------------------------------------------------------------------------------


class Cramped(nn.Module):
    """Runs out of memory above a number of points, as a GPU would, or as a CPU's allocator says it."""

    def __init__(self, network: nn.Module, most: int, error: BaseException, backward: bool = False) -> None:
        super().__init__()
        self.network, self.most, self.error, self.backward = network, most, error, backward
        self.sizes = Record()

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        if len(x) > self.most and not self.backward:
            raise self.error
        scores = self.network(x)
        if len(x) > self.most and scores.requires_grad:
            scores.register_hook(self.fail)
        return scores

    def fail(self, gradient: Tensor) -> None:
        raise self.error


ERRORS = {
    "CUDA": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "CPU on Windows": RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    "CPU on Linux": RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
    "cuBLAS": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "MPS": RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"),
    "Python": MemoryError(),
}


@pytest.mark.parametrize("error", ERRORS)
def test_memory_that_runs_out_is_recognised(error: str):
    assert is_out_of_memory(ERRORS[error])
    assert not is_out_of_memory(RuntimeError("some elements refer to a single memory location"))


def test_the_allocator_of_this_machine_is_understood():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.float64)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(("error", "backward"), [("CUDA", False), ("CPU on Linux", True)], ids=["forward", "backward"])
@pytest.mark.parametrize("most", [1, 3, 9])
@pytest.mark.parametrize("name", METHODS)
def test_batches_are_halved_until_they_fit(name: str, most: int, error: str, backward: bool):
    network = cnn()
    expected = run(name, network, curves=True)
    cramped = Cramped(network, most, ERRORS[error], backward)
    told: list[tuple[int, int]] = []
    for batch_size in ("auto", 8):
        told.clear()
        result = run(name, cramped, curves=True, batch_size=batch_size, progress=lambda *done: told.append(done))
        assert_alike(result, expected)
        assert [done for done, _ in told] == sorted({done for done, _ in told})  # it only ever grows
        assert all(done <= total for done, total in told)
        assert told[-1][0] == told[-1][1]


class Sudden(nn.Module):
    """Runs out of memory at one of its passes, as a GPU does that others use too."""

    def __init__(self, network: nn.Module, fails: int) -> None:
        super().__init__()
        self.network, self.fails, self.passes = network, fails, Record()

    def forward(self, x: Tensor) -> Tensor:
        self.passes.append(len(x))
        if len(self.passes) == self.fails:
            raise ERRORS["CUDA"]
        return self.network(x)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("name", METHODS)
def test_memory_may_run_out_in_the_middle_of_a_path(name: str, share: float):
    whole = Sudden(cnn(), 0)
    expected, told = run(name, whole, curves=True, batch_size=4), list[tuple[int, int]]()
    sudden = Sudden(cnn(), round(share * len(whole.passes)))
    result = run(name, sudden, curves=True, batch_size=4, progress=lambda *now: told.append(now))
    assert len(sudden.passes) > len(whole.passes)
    assert_alike(result, expected)
    done = [points for points, _ in told]
    assert done == sorted(set(done)) and all(points <= total for points, total in told)
    assert told[-1][0] == told[-1][1]


def test_the_batch_is_halved_and_not_given_up_for_a_single_pair():
    # one explicand, one reference: the batch is made of the points of one path
    cramped = Cramped(cnn(), 3, ERRORS["CUDA"])
    result = ig2.IntegratedGradients(50)(cramped, X[:1], batch_size=64)
    assert torch.allclose(result.values, ig2.IntegratedGradients(50)(cnn(), X[:1]).values)
    fitting = [size for size in cramped.sizes if size <= 3]
    assert max(fitting) == 2 and len(fitting) >= 25  # 64, 32, 16, 8, 4, and then 2 at a time


def test_a_single_sample_that_does_not_fit_is_said_clearly():
    cramped = Cramped(cnn(), 0, ERRORS["CUDA"], backward=True)
    with pytest.raises(OutOfMemoryError, match=r"no memory for a single sample.*CUDA out of memory") as caught:
        run("IG2", cramped)
    assert isinstance(caught.value, ig2.IG2Error) and isinstance(caught.value, MemoryError)
    refuses(OutOfMemoryError, "no memory for a single sample", lambda: run("IG2", Cramped(cnn(), 0, ERRORS["CPU on Linux"])))

    class Later(Cramped):
        def forward(self, x: Tensor) -> Tensor:
            if len(self.sizes) > 6:
                self.most = 0
            return super().forward(x)

    refuses(OutOfMemoryError, "runs out of memory on a single sample:", lambda: run("IG2", Later(cnn(), 99, ERRORS["CUDA"])))
    assert all(p.requires_grad for p in cramped.parameters())


def test_results_that_do_not_fit_are_said_clearly():
    refuses(OutOfMemoryError, r"for the results of", lambda: ig2.IG2(steps=2**45)(cnn(), X, references=REFERENCES, paths=True))


def test_other_errors_are_not_taken_for_memory():
    class Wrong(Cramped):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if len(x) < 5 else torch.zeros(1, 2) @ torch.zeros(1, 2)

    refuses(RuntimeError, "shapes cannot be multiplied", lambda: run("IG2", Wrong(cnn(), 99, ERRORS["CUDA"])))


def test_the_automatic_batch_goes_by_what_a_point_needs():
    cpu = torch.device("cpu")
    assert BatchSize("auto", 1, cpu).points == 4096
    assert BatchSize("auto", 1 << 60, cpu).points == 1
    assert BatchSize("auto", 10 << 20, cpu).points == min(1 << 27, free_bytes(cpu) // 2) // (10 << 20)
    assert BatchSize("auto", 100 << 20, cpu).points == max(4, torch.get_num_threads())  # some, though they need more than that
    with pytest.raises(InputError):
        BatchSize(0, 1, cpu)


@pytest.mark.parametrize(("points", "sizes"), [(10, [3, 3, 1]), (2, [1] * 7), (100, [7])])
def test_work_that_takes_the_memory_of_several_points_is_cut_accordingly(points: int, sizes: list[int]):
    pieces: list[range] = []
    BatchSize(points, 1, torch.device("cpu")).over(7, pieces.append, points_each=3)
    assert [len(piece) for piece in pieces] == sizes
    assert [number for piece in pieces for number in piece] == list(range(7))


def test_what_a_point_needs_is_measured():
    from ig2._engine.explicands import Explicands
    from ig2._engine.session import Session

    def needed(width: int) -> int:
        network = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2)).double()
        with Session(ig2.wrap(network), Explicands.of(uniform(2, 4))) as session:
            return session.bytes_per_point

    # a tanh keeps its result: 8 bytes a unit, and half as much again for the backward pass
    assert needed(2000) - needed(1000) == pytest.approx(12 * 1000, rel=0.05)
