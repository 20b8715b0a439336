"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from fultr.core.errors import FultrError
from fultr.core.locks import lock


def writer_tag() -> str:
    """A name for something unfinished that says which process is writing it."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"


def is_abandoned(tag: str) -> bool:
    """Was the process that `writer_tag` named one of this machine's that has ended?

    >>> is_abandoned(writer_tag())
    False
    """
    named = re.match(rf"{re.escape(socket.gethostname())}-(\d+)-", tag)
    if named is None or os.name != "posix":
        return False  # another machine's, or there is no safe way to ask
    try:
        os.kill(int(named[1]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary path next to `path`; the file written there is renamed to `path` if the block succeeds.

    Killing the process at any moment leaves the old file or the new one, and perhaps a temporary file that the next
    writer removes.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with written_whole(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text(), len(list(target.parent.iterdir()))
    ('whole', 1)
    """
    try:
        if path.exists() and not path.is_file():
            yield path  # a device or a pipe: there is nothing to replace
            return
        target = path.resolve()  # a link stays a link
        short = target.name[:40]
        for left in target.parent.glob(f".{escape(short)}.*"):
            if is_abandoned(left.name.removeprefix(f".{short}.")):
                left.unlink(missing_ok=True)
        temporary = target.with_name(f".{short}.{writer_tag()}")
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            with suppress(OSError):
                temporary.unlink()
    except OSError as error:
        raise FultrError(f"{path}: cannot be written: {error.strerror or error}") from None


@contextmanager
def locked(path: Path, busy: str = "") -> Iterator[None]:
    """One process at a time; the system releases the lock however that process ends.

    Args:
        path: the lock's file, which stays.
        busy: what is said if another process has it; empty: wait until that is done.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lock"
    >>> with locked(path), locked(path, "somebody else is at work"):
    ...     pass
    Traceback (most recent call last):
    fultr.core.errors.FultrError: somebody else is at work
    """
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise FultrError(f"{path}: cannot be locked: {error.strerror}") from None
    with file:
        try:
            alone = lock(file, wait=not busy)
        except OSError as error:
            raise FultrError(f"{path}: cannot be locked: {error.strerror}") from None
        if not alone:
            raise FultrError(busy)
        yield


def make_folder(path: Path) -> None:
    """Create a folder and its parents; a one-line error if that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FultrError(f"{path}: cannot create this folder: {error.strerror or error}") from None


def cache_folder() -> Path | None:
    """Where the cache is (it need not exist yet), or None if it is off.

    >>> folder = cache_folder()
    """
    setting = os.environ.get("FULTR_CACHE", "")
    if setting == "off":
        return None
    if setting:
        try:
            return Path(setting).expanduser()
        except RuntimeError as error:
            raise FultrError(f"FULTR_CACHE: {error}: found {setting!r}") from None
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "fultr"
