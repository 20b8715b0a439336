"""Chunks on threads."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  # its library is limited too
from threadpoolctl import threadpool_info, threadpool_limits

from fultr.core.errors import FultrError
from fultr.core.threads import chunk_bounds, default_threads, one_blas_thread, run_chunks


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_chunk_is_done_once(threads):
    done = [0] * 100
    run_chunks(lambda i: done.__setitem__(i, done[i] + 1), 100, threads)
    assert done == [1] * 100


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_any_chunk_reaches_the_caller(threads):
    for bad in (0, 7, 19):
        with pytest.raises(ZeroDivisionError):
            run_chunks(lambda i, bad=bad: 1 / (i - bad), 20, threads)


def test_chunks_may_use_threads_themselves():
    inner = [0] * 16

    def work(i):
        run_chunks(lambda j: inner.__setitem__(4 * i + j, 1), 4, threads=2)

    run_chunks(work, 4, threads=2)
    assert inner == [1] * 16


def test_bounds_cover_everything():
    for items in (1, 5, 256, 1000):
        bounds = chunk_bounds(items, 256)
        assert [i for a, b in bounds for i in range(a, b)] == list(range(items))


def test_a_bad_setting_is_named(monkeypatch):
    monkeypatch.setenv("FULTR_THREADS", "many")
    with pytest.raises(FultrError, match="FULTR_THREADS: expected a whole number, at least 1, found 'many'"):
        default_threads()


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_linear_algebra_on_one_thread_gives_the_same_bits_whatever_the_machine():
    x, y = np.random.default_rng(0).random((2, 100_000))

    @one_blas_thread()
    def dot() -> float:
        assert blas_threads() == {1}
        return float(x @ y)

    found = []
    for threads in (1, 2, 3):
        with threadpool_limits(threads, "blas"):
            found.append(dot())
            assert blas_threads() == {threads}
    assert len(set(found)) == 1
