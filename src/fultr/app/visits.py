"""What the person on the page does with results: what was shown, opened, and left again at once.

The dwell rule: opening a result counts as a click, unless within 5 seconds it is closed, another one is opened, or
something else is searched for: then it was not what was wanted. Time is that since the machine was started, so a clock
that jumps changes nothing.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fultr.app.ranking import DISPLAYED, PAUSED, Finder, Found, normal

QUICK = 5.0
"""Seconds within which a return means that a result was not what was wanted."""

_MOST = 40  # results that are remembered


@dataclass(frozen=True)
class _Open:
    """A document that was opened and may still be left at once."""

    results: Found
    index: int
    since: float


class Visits:
    """What happens on the page, and which part of it the log is told. Threads may share one."""

    def __init__(self, finder: Finder, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without any."""
        self._finder, self._clock = finder, clock
        self._results: OrderedDict[str, tuple[str, Found]] = OrderedDict()
        self._open: _Open | None = None
        self._lock = threading.RLock()

    @property
    def paused(self) -> bool:
        """Is nothing logged at present?"""
        return self._finder.index.catalogue.setting(PAUSED, "") == "yes"

    def pause(self, paused: bool) -> None:
        """Log nothing until further notice, or log again. What is open and undecided is dropped."""
        with self._lock:
            self._open = None
            self._finder.index.catalogue.set(PAUSED, "yes" if paused else "")

    def searched(self, text: str, results: Found) -> str:
        """Remember results; returns the name by which the page refers to them."""
        with self._lock:
            if self._open is not None and normal(text) != self._query_of(self._open.results):
                self._leave()
            name = secrets.token_hex(8)
            self._results[name] = (normal(text), results)
            while len(self._results) > _MOST:
                self._results.popitem(last=False)
            return name

    def results(self, name: str) -> Found | None:
        """Results by their name; None if they are too long ago."""
        found = self._results.get(name)
        return None if found is None else found[1]

    def shown(self, name: str) -> None:
        """Results have been on display long enough to be seen: log the impression."""
        with self._lock:
            results = self.results(name)
            if results is not None and not self.paused:
                results.shown()

    def opened(self, name: str, index: int) -> None:
        """A result was opened."""
        with self._lock:
            results = self.results(name)
            if results is None or self.paused:
                return
            if self._open is not None and self._open.results is results and self._open.index == index:
                return
            self._leave()
            self._open = _Open(results, index, self._clock())

    def closed(self) -> None:
        """What was open was closed."""
        with self._lock:
            self._leave()

    def settle(self) -> None:
        """Log what has been open for long enough."""
        with self._lock:
            if self._open is not None and self._clock() - self._open.since >= QUICK:
                self._count(self._open)

    def finish(self) -> None:
        """The page's server ends: what is open stays open elsewhere, and counts."""
        with self._lock:
            if self._open is not None:
                self._count(self._open)

    def forget(self, query: str | None = None) -> int:
        """Delete what was logged of a query, or everything."""
        with self._lock:
            self._open = None
            self._results.clear()
            return self._finder.forget(query)

    def _query_of(self, results: Found) -> str:
        return next((text for text, found in self._results.values() if found is results), "")

    def _leave(self) -> None:
        """What is open is left: it counts if it was open for long enough."""
        if self._open is not None and self._clock() - self._open.since >= QUICK:
            self._count(self._open)
        self._open = None

    def _count(self, opened: _Open) -> None:
        """Log the click, once; openings below what an impression holds are only remembered as such."""
        self._open = None
        results, index = opened.results, opened.index
        if index < DISPLAYED:
            results.clicked(index)
        impression = results.shown()
        document = results[index].document.id
        self._finder.index.catalogue.put_open(document, time.time(), impression or 0, self._query_of(results))
