"""Locks between processes, on files; the system releases them however a process ends."""

from __future__ import annotations

import time
from typing import IO, Any

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PAUSE = 0.05  # seconds between two attempts where the system cannot wait


def lock(file: IO[Any], *, wait: bool = False) -> bool:
    """Lock an open file until it is closed: was nobody else holding it?

    Args:
        file: opened for writing.
        wait: until nobody else does, and return True.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as one, open(one.name, "w") as other:
    ...     lock(one), lock(other)
    (True, False)
    """
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True
    import msvcrt  # type: ignore[import-not-found,unused-ignore]

    while True:
        try:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            if not wait:
                return False
            time.sleep(_PAUSE)
        else:
            return True
