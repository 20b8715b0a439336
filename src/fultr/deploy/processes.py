"""Processes that outlive the command that started them: identified even if ids are reused, and ended reliably."""

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

from fultr.core.errors import FultrError
from fultr.core.files import written_whole
from fultr.core.system import KILL

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process: its id, and when it began. Ids are reused; the combination of the two is not."""

    number: int
    began: str


def require_processes() -> None:
    """An error where processes cannot be started by scripts and identified: on Windows."""
    if os.name != "posix":
        raise FultrError("a federation's server runs on Linux or macOS; on Windows, run nodes: fultr node DIR")


def process_now(number: int) -> Process | None:
    """The process that currently has an id; None if there is none."""
    began = _began(number)
    return None if began is None else Process(number, began)


def is_running(process: Process) -> bool:
    """Does this very process still run, rather than another with the same id?

    >>> import os
    >>> me = process_now(os.getpid())
    >>> is_running(me), is_running(Process(me.number, "another time"))
    (True, False)
    """
    return _began(process.number) == process.began


def write_record(path: Path, process: Process) -> None:
    """Record a process in a file."""
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(asdict(process)) + "\n")


def read_record(path: Path) -> Process | None:
    """The process that a file records, running or not; None if the file is missing or damaged."""
    try:
        noted = json.loads(path.read_text(encoding="utf-8"))
        return Process(int(noted["number"]), str(noted["began"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def send(process: Process, number: signal.Signals) -> None:
    """Signal a process if it is still running; never another one that has its id by now."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "linux":
            handle = os.pidfd_open(process.number)  # refers to the process, even if its id is reused
            try:
                if is_running(process):
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)
        elif is_running(process):
            os.kill(process.number, number)


def end(processes: Iterable[Process], patience: float) -> bool:
    """Ask processes to end, and kill those that have not after `patience` seconds; returns whether any had to be."""
    left = [process for process in processes if is_running(process)]
    for process in left:
        send(process, signal.SIGTERM)
    left = _await_end(left, patience)
    for process in left:
        send(process, KILL)
    _await_end(left, 5.0)
    return bool(left)


def marked(marks: list[str]) -> list[Process]:
    """This user's processes whose environment contains all of `marks` (KEY=VALUE); none where that is unknown."""
    found, wanted = [], {mark.encode() for mark in marks}
    for entry in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                process = process_now(int(entry.name))
                if process is not None:
                    found.append(process)
    return found


def memory(process: Process) -> int:
    """A process's own share of memory, in bytes; 0 where that is unknown."""
    with suppress(OSError, ValueError, IndexError):
        for line in (_PROC / str(process.number) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def processor_seconds(processes: Iterable[Process]) -> float:
    """Processor time that processes have taken, with that of their children that have ended; 0 where it is unknown."""
    total = 0
    for process in processes:
        with suppress(OSError):
            fields = (_PROC / str(process.number) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])
    return total / os.sysconf("SC_CLK_TCK") if total else 0.0


def machine_seconds() -> float:
    """Processor time that all processes of this machine have taken, but for the one that asks; 0 if unknown."""
    try:
        user, nice, system = (_PROC / "stat").read_text(encoding="utf-8").split()[1:4]
    except OSError:
        return 0.0
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK") - time.process_time()


def _await_end(processes: list[Process], patience: float) -> list[Process]:
    """Wait for processes to end; returns those that have not ended."""
    deadline = time.monotonic() + patience
    while left := [process for process in processes if is_running(process)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


def _began(number: int) -> str | None:
    """When the process with an id began, in a form that never repeats; None if it has ended."""
    if sys.platform == "linux":
        try:
            state, *fields = (_PROC / str(number) / "stat").read_text().rpartition(")")[2].split()
            boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        if state in "ZX":
            with suppress(ChildProcessError):  # a child of this process: its helpers wait for its id to disappear
                os.waitpid(number, os.WNOHANG)
            return None
        return f"{boot} {fields[18]}"
    require_processes()
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(number)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return None if len(shown) < 2 or shown[0].startswith("Z") else shown[1].strip()
