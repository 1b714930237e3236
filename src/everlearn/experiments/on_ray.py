"""Run jobs on a Ray cluster: each is a task, which Ray runs again if its node is lost.

A task writes nothing: its outcome is sent to the driver, so it is stored once even if a task ran twice.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from everlearn.experiments.job import Job
from everlearn.experiments.runner import Outcome, Progress, attempt, failure

__all__ = ["on_ray"]

# How often a task is run again if its node or process is lost.
RETRIES = 5
# The number of runs that share a GPU.
ON_ONE_GPU = 5


def on_ray(jobs: Sequence[Job], address: str | None, progress: Progress) -> Iterator[tuple[int, Outcome]]:
    """Run all jobs; yields the index and the outcome of each as soon as it ends.

    Jobs that must run alone come last, one after the other, each with a node of its own.
    address: of the cluster; by default `$RAY_ADDRESS`, else the cluster on this machine, else a new one.
    """
    ray = _ray()
    ours = not ray.is_initialized()
    if ours:
        _check_answers(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    try:
        alone = [place for place, job in enumerate(jobs) if job.alone]
        together = [place for place, job in enumerate(jobs) if not job.alone]
        for group in (together, *([place] for place in alone)):
            tasks = {_submit(ray, jobs[place]): place for place in group}
            for place, outcome in _arriving(ray, tasks, jobs):
                progress(jobs[place].passes())
                yield place, outcome
    finally:
        if ours:
            ray.shutdown()


def _arriving(ray: Any, places: dict[Any, int], jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
    """The index and the outcome of each task as soon as it ends."""
    while places:
        ended, _ = ray.wait(list(places))
        for task in ended:
            place = places.pop(task)
            try:
                outcome: Outcome = ray.get(task)
            except ray.exceptions.RayError as error:
                outcome = failure(jobs[place], RuntimeError(" ".join(str(error).split())))
            yield place, outcome


def _ray() -> Any:
    # No usage statistics are sent unless the user turns them on.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ImportError("runs on many machines need Ray: pip install 'everlearn[ray]'") from None
    return ray


def _check_answers(address: str | None) -> None:
    """Raise a ConnectionError if nothing answers at the address: Ray itself retries for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise ConnectionError(
            f"no Ray cluster answers at {address} ({error}); start one there with `ray start --head`, or leave out "
            "the address"
        ) from None


def _submit(ray: Any, job: Job) -> Any:
    # Ray hides a machine's GPUs from tasks that ask for none.
    gpus = (1 if job.alone else 1 / ON_ONE_GPU) if job.device.startswith("cuda") else 0
    cpus = _whole_node(ray) if job.alone else 1
    options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": RETRIES}
    return ray.remote(**options)(attempt).remote(job)


def _whole_node(ray: Any) -> float:
    """The cores of the largest node: a task that requests all of them waits until the node is free."""
    return max((node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]), default=1.0)
