"""Files that are either there in full or not there at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fultr.errors import FultrError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; what is written there takes the name `path` when the block ends well.

    Killing the process at any moment leaves the old file, or the new one; an error removes the temporary file.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with written_whole(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text(), len(list(target.parent.iterdir()))
    ('whole', 1)
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise FultrError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder and those above it; one clear line if that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FultrError(f"{path}: cannot be made a folder: {error.strerror or error}") from None
