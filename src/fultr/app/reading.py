"""Files read by some processes at once, which are replaced when a file kills them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import NamedTuple

from fultr.app.crawl import Stamp
from fultr.app.readers import Part
from fultr.app.worker import SECONDS, parts_of, stamp_in


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
    """A process that reads one file at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fultr.app.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.questions = Connection(os.dup(self._process.stdin.fileno()), readable=False)
        self.answers = Connection(os.dup(self._process.stdout.fileno()), writable=False)
        self._process.stdin.close()
        self._process.stdout.close()
        self.path = ""  # what it is reading
        self.until = 0.0

    def ask(self, path: str) -> None:
        self.path, self.until = path, monotonic() + SECONDS
        self.questions.send_bytes(os.fsencode(path))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.questions.close()
        self.answers.close()


def read_files(paths: Iterable[str], processes: int) -> Iterator[Reading]:
    """Read files in separate processes, in any order.

    Args:
        paths: of the files.
        processes: how many read at once.
    """
    waiting = deque(paths)
    at_work: dict[Connection, _Process] = {}
    try:
        while waiting or at_work:
            while waiting and len(at_work) < processes:
                process = _Process()
                at_work[process.answers] = process
                process.ask(waiting.popleft())
            ready = wait(list(at_work), timeout=max(0.0, min(one.until for one in at_work.values()) - monotonic()))
            late = [one for one in at_work.values() if one.answers not in ready and one.until <= monotonic()]
            for process in [at_work[connection] for connection in ready if isinstance(connection, Connection)] + late:
                reading = _given_up(process) if process in late else _next(process)
                yield reading
                process.until = monotonic() + SECONDS
                if not reading.done:
                    continue
                lost = reading.problem and process.path == ""
                if waiting and not lost:
                    process.ask(waiting.popleft())
                else:
                    del at_work[process.answers]
                    process.end()
    finally:
        for process in at_work.values():
            process.end()


def _given_up(process: _Process) -> Reading:
    path, process.path = process.path, ""
    return Reading(path, [], True, None, f"is not read: took longer than {SECONDS:.0f} s")


def _next(process: _Process) -> Reading:
    """What a process has to say of its file; its path is taken from it if it ended."""
    try:
        answer = json.loads(process.answers.recv_bytes())
    except (EOFError, OSError):
        path, process.path = process.path, ""
        return Reading(path, [], True, None, "is damaged: the process that read it ended")
    done = "parts" not in answer
    return Reading(process.path, parts_of(answer), done, stamp_in(answer), answer.get("problem", ""))
