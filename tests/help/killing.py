"""Ending a process by SIGKILL between any two of its file operations."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path


def forked(act: Callable[[], object]) -> int:
    """Do something in a process of its own, which is not waited for; its id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numerical libraries have threads, which are idle here
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        act()
        code = 0
    finally:
        os._exit(code)


def survived(child: int) -> bool:
    """Wait for a process: True if it succeeded, False if it was killed."""
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    assert status == 0, "the process failed"
    return True


def killed_before(operation: int, folder: Path, act: Callable[[], object]) -> bool:
    """Do something in a process that is killed before its n-th operation on a file in a folder, n from 1.

    Returns:
        False if there were fewer operations, and it came to its end.
    """

    def doomed() -> None:
        seen = 0

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal seen
            if any(
                str(folder) in os.fsdecode(part) for part in arguments if isinstance(part, str | bytes | os.PathLike)
            ):
                seen += 1
                if seen == operation:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        act()

    return not survived(forked(doomed))
