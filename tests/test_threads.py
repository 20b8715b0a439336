"""Chunks on threads."""

from __future__ import annotations

import pytest

from fultr.errors import FultrError
from fultr.threads import chunk_bounds, default_threads, run_chunks


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
    with pytest.raises(FultrError, match="FULTR_THREADS: expected a whole number from 1, found 'many'"):
        default_threads()
