"""Runs on several processes of one machine or a cluster, by Ray Data, which schedules, restarts and retries.

Batches of items are sent to a pool of actors that hold the model; their rows return in the order of the batches, and this
process writes them, as it does without Ray. So the store is the same, row for row.
"""

from __future__ import annotations

import itertools
import logging
import pickle
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ig2._utils.checks import check_count
from ig2.errors import InputError, describe, import_extra
from ig2.runs.plan import Finish, Plan
from ig2.runs.sources import Item

if TYPE_CHECKING:
    from ig2.runs.execution import Cluster

WAVE = 1024  # tasks handed to Ray at a time, so that the list of a long run is never in memory as a whole
TASK = 4  # batches of a task: while one is explained, the next is read
IN_FLIGHT = 2  # tasks that an actor has, so that it need not wait for the next
FETCHING = "iter_threaded"  # the name of Ray Data's threads that fetch blocks
FETCH_SECONDS = 10.0  # that one of them takes at most to end


class Worker:
    """An actor that holds the model and explains lists of batches of items."""

    def __init__(self, plan: bytes, device: str, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.plan: Plan = pickle.loads(plan)  # written by our own driver, as are the items
        self.device = device
        if self.plan.subject is not None:
            self.plan.subject.to(device)
        elif self.plan.model.device is not None:
            self.plan.model.net.to(device)

    def __call__(self, block: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        from ig2.runs.execution import count_readers, explain_locally

        readers = 1 if self.device == "cpu" else min(TASK, count_readers(self.device))
        tasks = [
            # threads: processes would start and end with each of these tasks
            list(explain_locally(self.plan, iter(pickle.loads(content)), readers, self.device, processes=False))
            for content in block["batches"]
        ]
        rows = [[finish() for finish in task] for task in tasks]
        return {"rows": np.array([pickle.dumps(part, protocol=5) for part in rows], dtype=object)}


def explain_on_cluster(plan: Plan, batches: Iterator[list[Item]], cluster: Cluster) -> Generator[Finish, None, None]:
    """Explain batches by Ray's actors, and yield functions that unpack their rows, in order.

    Raises:
        InputError: if Ray cannot be reached or has fewer GPUs than requested.
    """
    import torch

    ray = import_extra("ray", "ray", "cluster=Cluster(…)")
    data = import_extra("ray.data", "ray", "cluster=Cluster(…)")
    check_count(cluster.workers, "workers")
    with _connect(ray, cluster):
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        context = data.DataContext.get_current()
        context.execution_options.preserve_order, context.enable_progress_bars = True, False
        # as bytes: an actor that Ray restarts gets them again, where a reference to them may be lost
        content = import_extra("ray.cloudpickle", "ray", "cluster=Cluster(…)").dumps(plan)
        threads = torch.get_num_threads() if cluster.gpus_per_worker else max(1, torch.get_num_threads() // cluster.workers)
        tasks = iter(lambda: list(itertools.islice(batches, TASK)), [])
        while wave := [{"batches": pickle.dumps(task, protocol=5)} for task in itertools.islice(tasks, WAVE)]:
            dataset = data.from_items(wave, override_num_blocks=len(wave)).map_batches(
                Worker,
                fn_constructor_args=(content, "cuda" if cluster.gpus_per_worker else "cpu", threads),
                batch_size=1,
                batch_format="numpy",
                compute=data.ActorPoolStrategy(size=min(cluster.workers, len(wave)), max_tasks_in_flight_per_actor=IN_FLIGHT),
                num_gpus=cluster.gpus_per_worker or None,
                num_cpus=None if cluster.gpus_per_worker else 1,
            )
            with closing(iter(dataset.iter_batches(batch_size=1, prefetch_batches=1))) as blocks:
                for block in blocks:
                    for rows in block["rows"]:
                        yield from (partial(list, part) for part in pickle.loads(rows))


@contextmanager
def _connect(ray: Any, cluster: Cluster) -> Iterator[None]:
    """Start or join Ray, unless the caller has, and leave it at the end, so that a stopped run leaves no actors behind."""
    starts_ray = not ray.is_initialized()
    if starts_ray:
        try:
            options = {} if cluster.address is not None else {"num_cpus": cluster.workers + 1, "include_dashboard": False}
            ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.WARNING, **options)
        except Exception as error:  # whatever Ray meets
            raise InputError(f"Ray cannot be started or reached at {describe(cluster.address)}: {error}") from error
    try:
        gpus = ray.cluster_resources().get("GPU", 0)
        if cluster.gpus_per_worker * cluster.workers > gpus:
            raise InputError(
                f"{cluster.workers} workers with {cluster.gpus_per_worker:g} GPUs each need more than the {gpus:g} that Ray has"
            )
        yield
    finally:
        if starts_ray and _end_fetching():
            ray.shutdown()


def _end_fetching() -> bool:
    """Wait for the threads of an iterator that was closed, and return whether they ended.

    A thread that requests a block after Ray's shutdown makes Ray end this process. If one remains, Ray ends with the process.
    """
    threads = [thread for thread in threading.enumerate() if thread.name == FETCHING]
    for thread in threads:
        thread.join(FETCH_SECONDS)
    return not any(thread.is_alive() for thread in threads)
