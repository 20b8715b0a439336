"""Python's search for cyclic garbage, between answers instead of within them.

It takes up to 40 ms when it comes upon everything that the application has in memory, and would come in the middle of
an answer, now and then: those were the slowest ones.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_IDLE = 1.0  # seconds without an answer after which there is time
_MOST = 200  # answers after which it is time in any case


class Collector:
    """Collects when nobody waits. Threads may share one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing was answered yet."""
        self._clock = clock
        self._answers, self._latest = 0, 0.0
        self._lock = threading.Lock()

    def answered(self) -> None:
        """There was an answer."""
        with self._lock:
            self._answers += 1
            self._latest = self._clock()
            due = self._answers >= _MOST
        if due:
            self._collect()

    def look(self) -> None:
        """Collect, if there was an answer, and there is time."""
        if self._answers and self._clock() - self._latest >= _IDLE:
            self._collect()

    def _collect(self) -> None:
        with self._lock:
            self._answers = 0
        gc.collect()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """In place of Python's own timing, which is back after the block. What there is before it stays for good."""
        before = gc.isenabled()
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            yield
        finally:
            gc.unfreeze()
            if before:
                gc.enable()
