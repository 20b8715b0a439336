"""What differs between Linux, macOS and Windows, and goes without where a system does not have it.

Together with `locks` the only place that names what some system lacks; a test holds that.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]


def peak_memory(*, children: bool = False) -> int:
    """The most memory that this process has had, in bytes, or the largest of its children that ended; 0 if unknown.

    >>> peak_memory() >= 0
    True
    """
    if resource is None:
        return 0
    most = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def available_memory() -> float:
    """How many bytes of memory are available; infinity if the system does not say, and the allocation decides."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return float("inf")


def installed_memory() -> int:
    """Bytes of memory that the machine has; 0 if unknown.

    >>> installed_memory() >= 0
    True
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def processor_name() -> str:
    """What the processor is called; empty if the system does not say."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return ""


def boot_id() -> str:
    """A name for the time since the machine was started; empty if the system has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return ""


def limit_this_process(memory: int, niceness: int) -> None:
    """Give this process this many bytes of memory and no core file, and let others go first, as far as possible."""
    if resource is None:
        return
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # macOS refuses some limits
            resource.setrlimit(what, (most, most))
    os.nice(niceness)


def allow_open_files() -> None:
    """Let this process have as many files and connections open as it may."""
    if resource is not None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with suppress(ValueError, OSError):  # macOS has a lower limit than it states
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


PLAIN_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
"""Flags for opening what should be a plain file, without following a link or waiting for the other end of a pipe."""

KILL: signal.Signals = getattr(signal, "SIGKILL", signal.SIGTERM)
"""The signal that no process can refuse. On Windows every signal but Ctrl-C ends a process at once."""


def signal_main_thread(number: signal.Signals) -> None:
    """Deliver a signal to the main thread, from another thread; it ends a wait there, but not on Windows."""
    if hasattr(signal, "pthread_kill") and (main := threading.main_thread().ident) is not None:
        signal.pthread_kill(main, number)
    else:
        _thread.interrupt_main(number)
