"""The index is kept up to date while the page is open: once at the start, and whenever something changes."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from watchfiles import watch

from fultr.app.home import Home
from fultr.app.index import Index, Progress
from fultr.core.errors import FultrError

_logger = logging.getLogger("fultr.app")
_AT_MOST = 50  # changed folders that are looked at one by one; with more, everything is
_PAUSE = 600.0  # seconds between two looks where watching is not possible


class Background:
    """A thread that updates the index.

    Attributes:
        progress: of the update under way; None if there is none.
        problem: why the last update failed; empty if it did not.
    """

    def __init__(self, home: Home) -> None:
        """Prepare; `start` starts."""
        self.progress: Progress | None = None
        self.problem = ""
        self._home = home
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="fultr index")

    def start(self) -> None:
        """Start."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; what has been read is kept."""
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        try:
            with Index(self._home) as index:
                self._update(index, None)
                while not self._stop.is_set():
                    for changed in self._changes(index.catalogue.folders()):
                        for path in changed:
                            self._update(index, path)
        except Exception as error:  # of any kind: the page says so
            self._failed(error)

    def _update(self, index: Index, under: str | None) -> None:
        def tell(progress: Progress) -> None:
            self.progress = progress

        try:
            index.update(
                under, processes=max(1, (os.cpu_count() or 2) - 1), on_progress=tell, stopping=self._stop.is_set
            )
            self.problem = ""
        except Exception as error:  # a full disk, or what nobody thought of: try again with the next change
            self._failed(error)
        finally:
            self.progress = None

    def _failed(self, error: Exception) -> None:
        self.problem = str(error) if isinstance(error, FultrError) else f"{type(error).__name__}: {error}"
        _logger.warning("the index was not updated: %s", self.problem)

    def _changes(self, folders: list[str]) -> Iterator[list[str | None]]:
        """What has changed, again and again, until it is time to stop or the folders cannot be watched."""
        there = [folder for folder in folders if Path(folder).is_dir()]
        if not there:
            self._stop.wait(_PAUSE)
            yield [None]
            return
        try:
            for events in watch(*there, stop_event=self._stop, debounce=1600, step=200, recursive=True):
                yield nearest(path for _, path in events)
        except (OSError, RuntimeError) as error:  # more folders than the system lets one watch
            _logger.warning("folders cannot be watched, and are looked at every %d minutes: %s", _PAUSE // 60, error)
            self._stop.wait(_PAUSE)
            yield [None]


def nearest(paths: Iterable[str]) -> list[str | None]:
    """The folders to look at when paths have changed, none within another; [None]: everything.

    >>> nearest(["/a/b/c.txt", "/a/b/d/e.txt", "/x/y.txt"])
    ['/a/b', '/x']
    """
    found: list[str] = []
    for folder in sorted({str(Path(path).parent) for path in paths}):
        if not found or not (folder + "/").startswith(found[-1] + "/"):
            found.append(folder)
    return [*found] if len(found) <= _AT_MOST else [None]
