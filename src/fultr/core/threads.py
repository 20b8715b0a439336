"""Work in fixed chunks on a few threads.

The hot loops release the interpreter lock, so plain threads use all cores. How work is cut into chunks never depends
on the number of threads; a caller that keeps one result per chunk and adds them in order gets the same bits for any
number of threads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import count, pairwise
from typing import TYPE_CHECKING

from fultr.core.errors import FultrError

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


def default_threads() -> int:
    """The environment variable FULTR_THREADS, else the cores this process may use."""
    setting = os.environ.get("FULTR_THREADS", "")
    if not setting:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not setting.isdecimal() or int(setting) < 1:
        raise FultrError(f"FULTR_THREADS: expected a whole number, at least 1, found {setting!r}")
    return int(setting)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within it NumPy and SciPy do linear algebra on one thread; a function can be decorated with it.

    Their libraries cut a long dot product into as many sums as there are cores, so its last bits depend on the machine;
    and for the short ones of an estimate, waking threads takes many times longer than the work.
    """
    with _blas("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"):
        yield


@cache
def _blas(with_scipy: bool) -> ThreadpoolController:
    """A controller knows the libraries that are loaded when it is made; SciPy has one of its own."""
    import numpy  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@cache
def _pool(helpers: int, process: int) -> ThreadPoolExecutor:
    """Threads that live as long as the process (a forked process makes its own)."""
    return ThreadPoolExecutor(helpers, thread_name_prefix="fultr")


def run_chunks(work: Callable[[int], object], chunks: int, threads: int | None = None) -> None:
    """Call `work(0)` to `work(chunks - 1)`, each once, on several threads; return when all are done.

    Args:
        work: does one chunk; what it writes must not overlap with another chunk's.
        chunks: how many there are.
        threads: how many threads share them; `default_threads()` if None.

    >>> squares = [0] * 4
    >>> run_chunks(lambda i: squares.__setitem__(i, i * i), 4, threads=2)
    >>> squares
    [0, 1, 4, 9]
    """
    threads = min(default_threads() if threads is None else threads, chunks)
    if threads <= 1:
        for chunk in range(chunks):
            work(chunk)
        return
    ticket = count()
    stop = False

    def share() -> None:
        nonlocal stop
        try:
            while not stop and (chunk := next(ticket)) < chunks:
                work(chunk)
        except BaseException:
            stop = True
            raise

    helpers = [_pool(threads - 1, os.getpid()).submit(share) for _ in range(threads - 1)]
    try:
        share()
    finally:
        # A helper that has not started, because its threads are busy, is no longer needed.
        errors = [helper.exception() for helper in helpers if not helper.cancel()]
    for error in errors:
        if error is not None:
            raise error


def chunk_bounds(items: int, chunks: int) -> list[tuple[int, int]]:
    """Cut `items` into at most `chunks` ranges of nearly equal length.

    >>> chunk_bounds(7, 3)
    [(0, 2), (2, 4), (4, 7)]
    """
    chunks = max(1, min(items, chunks))
    edges = [items * i // chunks for i in range(chunks + 1)]
    return list(pairwise(edges))


def run_ranges(work: Callable[[int, int], object], items: int, threads: int | None = None) -> None:
    """Call `work(begin, end)` on ranges that cover 0 to `items`; what it writes must not overlap between ranges.

    How many ranges there are may depend on the number of threads: one thread gets all in one.

    >>> squares = [0] * 4
    >>> run_ranges(lambda a, b: squares.__setitem__(slice(a, b), [i * i for i in range(a, b)]), 4, threads=2)
    >>> squares
    [0, 1, 4, 9]
    """
    threads = default_threads() if threads is None else threads
    bounds = chunk_bounds(items, 1 if threads == 1 else 256)
    run_chunks(lambda i: work(*bounds[i]), len(bounds), threads)
