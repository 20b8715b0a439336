"""Processes that outlive the command that began them: told apart from others of the same number, and ended for sure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from fultr.files import written_whole

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process: its number, and when it began. Numbers are used again; the two together are not."""

    number: int
    began: str


def process_now(number: int) -> Process | None:
    """The process that has a number now; none if it has ended."""
    began = _began(number)
    return None if began is None else Process(number, began)


def is_running(process: Process) -> bool:
    """Is it this one that has its number, and not another one since?

    >>> import os
    >>> me = process_now(os.getpid())
    >>> is_running(me), is_running(Process(me.number, "another time"))
    (True, False)
    """
    return _began(process.number) == process.began


def write_record(path: Path, process: Process) -> None:
    """Note a process in a file."""
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(asdict(process)) + "\n")


def read_record(path: Path) -> Process | None:
    """The process that a file notes, running or not; none if there is no such file or it is spoilt."""
    try:
        noted = json.loads(path.read_text())
        return Process(int(noted["number"]), str(noted["began"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def send(process: Process, number: signal.Signals) -> None:
    """Signal a process, if it still runs; never another one that has got its number."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "linux":
            handle = os.pidfd_open(process.number)  # stays with the process, whatever becomes of its number
            try:
                if is_running(process):
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)
        elif is_running(process):
            os.kill(process.number, number)


def end(processes: Iterable[Process], patience: float) -> bool:
    """Ask processes to end, and end those that have not after `patience` seconds; says whether any had to be."""
    left = [process for process in processes if is_running(process)]
    for process in left:
        send(process, signal.SIGTERM)
    left = _await_end(left, patience)
    for process in left:
        send(process, signal.SIGKILL)
    _await_end(left, 5.0)
    return bool(left)


def marked(marks: list[str]) -> list[Process]:
    """This user's processes in whose environment all of `marks` (KEY=VALUE) stand; none where that cannot be told."""
    found, wanted = [], {mark.encode() for mark in marks}
    for entry in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                process = process_now(int(entry.name))
                if process is not None:
                    found.append(process)
    return found


def memory(process: Process) -> int:
    """Bytes of memory that are a process's own share; 0 where that cannot be told."""
    with suppress(OSError, ValueError, IndexError):
        for line in (_PROC / str(process.number) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _await_end(processes: list[Process], patience: float) -> list[Process]:
    """Wait for processes to end; returns those that have not."""
    deadline = time.monotonic() + patience
    while left := [process for process in processes if is_running(process)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


def _began(number: int) -> str | None:
    """When the process with a number began, in a form that does not repeat; none if it has ended."""
    if sys.platform == "linux":
        try:
            state, *fields = (_PROC / str(number) / "stat").read_text().rpartition(")")[2].split()
            boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        if state in "ZX":
            with suppress(ChildProcessError):  # one that this process began: its helpers wait for its number to go
                os.waitpid(number, os.WNOHANG)
            return None
        return f"{boot} {fields[18]}"
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(number)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return None if len(shown) < 2 or shown[0].startswith("Z") else shown[1].strip()
