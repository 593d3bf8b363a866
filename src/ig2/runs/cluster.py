"""A run on several processes, of one machine or of a cluster, by Ray Data. Ray schedules, restarts and retries; we do not.

Batches of items go to a pool of actors that hold the model; their rows come back in the order of the batches, and this process
writes them, as it does without Ray. So the store is the same, row for row.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ig2._utils.checks import check_count
from ig2.errors import InputError, describe, import_extra
from ig2.runs.plan import Plan, Row
from ig2.runs.sources import Item

if TYPE_CHECKING:
    from ig2.runs.execution import Cluster

WAVE = 4096  # batches handed to Ray at a time, so that the list of a long run is never in memory as a whole
AT_ONCE = 2  # batches in an actor: one is read while the other is explained


class Worker:
    """An actor: the model, and what is done with a batch of items."""

    def __init__(self, plan: Plan, device: str, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.plan = plan
        self.lock = threading.Lock()  # one batch is explained at a time, while others are read
        self.device = device
        if plan.subject is not None:
            plan.subject.to(device)
        elif plan.model.device is not None:
            plan.model.net.to(device)

    def __call__(self, block: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        rows = []
        for content in block["items"]:
            loaded = self.plan.read(pickle.loads(content))  # written by our own driver
            with self.lock:
                rows.append(pickle.dumps(self.plan.explain(loaded), protocol=5))
        return {"rows": np.array(rows, dtype=object)}


def explain_on_cluster(plan: Plan, batches: Iterator[list[Item]], cluster: Cluster, device: str) -> Iterator[list[Row]]:
    """Explain batches by Ray's actors, and yield their rows in order.

    Raises:
        InputError: if Ray cannot be reached or has fewer GPUs than asked for.
    """
    import torch

    ray = import_extra("ray", "ray", "engine='ray'")
    data = import_extra("ray.data", "ray", "engine='ray'")
    check_count(cluster.workers, "workers")
    _connect(ray, cluster)
    context = data.DataContext.get_current()
    before = context.execution_options.preserve_order, context.enable_progress_bars
    context.execution_options.preserve_order, context.enable_progress_bars = True, False
    shared = ray.put(plan)  # once for all actors of a machine
    threads = max(1, torch.get_num_threads() // cluster.workers) if not cluster.gpus_per_worker else torch.get_num_threads()
    options = {"num_gpus": cluster.gpus_per_worker} if cluster.gpus_per_worker else {}
    try:
        while wave := [pickle.dumps(items, protocol=5) for items, _ in zip(batches, range(WAVE), strict=False)]:
            dataset = data.from_items([{"items": content} for content in wave], override_num_blocks=len(wave)).map_batches(
                _Remote,
                fn_constructor_args=(shared, "cuda" if cluster.gpus_per_worker else "cpu", threads),
                batch_size=1,
                batch_format="numpy",
                compute=data.ActorPoolStrategy(size=min(cluster.workers, len(wave)), max_tasks_in_flight_per_actor=AT_ONCE),
                **options,
            )
            for block in dataset.iter_batches(batch_size=1, prefetch_batches=1):
                yield from (pickle.loads(content) for content in block["rows"])
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars = before


class _Remote(Worker):
    """A worker whose plan comes from Ray's object store."""

    def __init__(self, shared: Any, device: str, threads: int) -> None:
        super().__init__(import_extra("ray", "ray", "engine='ray'").get(shared), device, threads)


def _connect(ray: Any, cluster: Cluster) -> None:
    if ray.is_initialized():
        return
    try:
        options = {} if cluster.address is not None else {"num_cpus": cluster.workers + 1, "include_dashboard": False}
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False, **options)
    except Exception as error:  # whatever Ray meets
        raise InputError(f"Ray cannot be started or reached at {describe(cluster.address)}: {error}") from error
    gpus = ray.cluster_resources().get("GPU", 0)
    if cluster.gpus_per_worker * cluster.workers > gpus:
        raise InputError(
            f"{cluster.workers} workers with {cluster.gpus_per_worker:g} GPUs each need more than the {gpus:g} that Ray has"
        )
