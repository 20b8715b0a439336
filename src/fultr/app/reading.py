"""Files read by some processes at once, which are replaced when a file kills them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import NamedTuple

from fultr.app.crawl import Stamp
from fultr.app.readers import Part
from fultr.app.worker import SECONDS, parts_of, receive, send, stamp_in


class Reading(NamedTuple):
    """What became known of a file.

    Attributes:
        path: of the file.
        parts: its next documents.
        done: was this the last of it?
        stamp: as it was when it was opened; None if it was not read.
        problem: why it was not read; empty if it was.
    """

    path: str
    parts: list[Part]
    done: bool
    stamp: Stamp | None = None
    problem: str = ""


class _Process:
    """A process that reads one file at a time, and a thread that waits for its answers, which works on every system."""

    def __init__(self, said: SimpleQueue[tuple[_Process, bytes | None]]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fultr.app.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._said = said
        self._taken = threading.Semaphore()  # the next answer is read when this one has been used
        self._thread = threading.Thread(target=self._listen, name="fultr-reading", daemon=True)
        self._thread.start()
        self.path = ""  # what it is reading
        self.until = 0.0

    def _listen(self) -> None:
        assert self._process.stdout is not None
        answer: bytes | None = b""
        while answer is not None:
            self._taken.acquire()
            answer = receive(self._process.stdout)
            self._said.put((self, answer))

    def ask(self, path: str) -> None:
        self.path, self.until = path, monotonic() + SECONDS
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended, which its thread tells
            send(self._process.stdin, os.fsencode(path))

    def go_on(self) -> None:
        self._taken.release()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._taken.release()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # a question that it did not take
                    pipe.close()


def read_files(paths: Iterable[str], processes: int) -> Iterator[Reading]:
    """Read files in separate processes, in any order.

    Args:
        paths: of the files.
        processes: how many read at once.
    """
    waiting = deque(paths)
    said: SimpleQueue[tuple[_Process, bytes | None]] = SimpleQueue()
    at_work: list[_Process] = []
    try:
        while waiting or at_work:
            while waiting and len(at_work) < processes:
                at_work.append(_Process(said))
                at_work[-1].ask(waiting.popleft())
            first = min(at_work, key=lambda one: one.until)
            try:
                process, answer = said.get(timeout=max(0.0, first.until - monotonic()))
            except Empty:
                process, reading = first, _given_up(first)
            else:
                if process not in at_work:
                    continue  # what one that was given up on said at last
                reading = _next(process, answer)
            yield reading
            process.until = monotonic() + SECONDS
            lost = reading.problem and process.path == ""
            if not reading.done or (waiting and not lost):
                if reading.done:
                    process.ask(waiting.popleft())
                process.go_on()
            else:
                at_work.remove(process)
                process.end()
    finally:
        for process in at_work:
            process.end()


def _given_up(process: _Process) -> Reading:
    path, process.path = process.path, ""
    return Reading(path, [], True, None, f"is not read: took longer than {SECONDS:.0f} s")


def _next(process: _Process, said: bytes | None) -> Reading:
    """What a process has to say of its file; its path is taken from it if it ended."""
    if said is None:
        path, process.path = process.path, ""
        return Reading(path, [], True, None, "is damaged: the process that read it ended")
    answer = json.loads(said)
    done = "parts" not in answer
    return Reading(process.path, parts_of(answer), done, stamp_in(answer), answer.get("problem", ""))
