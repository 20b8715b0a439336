"""Independent tasks in parallel: in processes on this machine (joblib), or on a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from joblib import Parallel, delayed

from fultr.core.errors import FultrError
from fultr.core.threads import default_threads

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
Finished = Iterator[tuple[int, _Result, float]]
"""As tasks end, in any order: the task's index, its result, and the seconds it took."""


def each_finished(
    function: Callable[[_Task], _Result],
    tasks: Sequence[_Task],
    *,
    workers: int,
    ray: str | None = None,
) -> Finished[_Result]:
    """Do all tasks, each on one core, and yield each result as soon as it is available.

    Args:
        function: does one task; other processes must be able to import it and its arguments.
        tasks: started in this order.
        workers: number of processes, without a cluster.
        ray: address of a Ray cluster, such as "auto" or "10.0.0.1:6379", whose cores do the work instead.

    >>> sorted(result for _, result, _ in each_finished(abs, [-1, 2, -3], workers=1))
    [1, 2, 3]
    """
    if not tasks:
        return iter(())
    return _on_ray(function, tasks, ray) if ray else _in_processes(function, tasks, workers)


def cores(workers: int | None = None, ray: str | None = None) -> int:
    """How many tasks are done at a time: by this many workers, on all cores of this machine, or of a cluster.

    >>> cores(workers=3)
    3
    """
    if ray is None:
        return default_threads() if workers is None else workers
    with _cluster(ray) as there:
        return max(1, int(there.cluster_resources().get("CPU", 1)))


def _timed(function: Callable[[Any], Any], i: int, task: Any) -> tuple[int, Any, float]:
    begun = time.perf_counter()
    result = function(task)
    return i, result, time.perf_counter() - begun


def _in_processes(function: Callable[[Any], Any], tasks: Sequence[Any], workers: int) -> Finished[Any]:
    # Data that a worker maps look like a leak of memory to joblib, which then starts another in its place.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given to the executor", UserWarning)
    parallel = Parallel(min(workers, len(tasks)), return_as="generator_unordered", batch_size=1)
    finished = parallel(delayed(_timed)(function, i, task) for i, task in enumerate(tasks))
    try:
        for result in finished:  # noqa: UP028  `yield from` would close it before the lines below are reached
            yield result
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib's, of tasks that are cancelled: whoever stops the work knows
            finished.close()


def _on_ray(function: Callable[[Any], Any], tasks: Sequence[Any], address: str) -> Finished[Any]:
    with _cluster(address) as ray:
        remote = ray.remote(num_cpus=1)(_timed)
        pending = [remote.remote(function, i, task) for i, task in enumerate(tasks)]
        while pending:
            ended, pending = ray.wait(pending)
            try:
                yield ray.get(ended[0])
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns about GPUs, which are not used
    try:
        import ray
    except ImportError:
        raise FultrError("ray: not installed; pip install 'fultr[ray]'") from None
    host, colon, port = address.rpartition(":")
    try:
        if colon and "://" not in address:  # Ray itself would keep trying for minutes, then end the process
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        raise FultrError(f"ray: cannot reach a cluster at {address}: {str(error).splitlines()[0]}") from None
    try:
        yield ray
    finally:
        ray.shutdown()
