"""Which version of the ranker a device uses: a text file `current`, beside the versions, that holds its name.

A node adds versions to the folder and replaces `current`; the application notices at its next search.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from fultr.core.errors import FultrError
from fultr.core.files import written_whole
from fultr.rankers.versions import Version, Versions

Stamp: TypeAlias = tuple[int, int, int] | None


def write_current(folder: str | os.PathLike[str], name: str) -> None:
    """Name the version that is used from now on: one of the folder, intact.

    >>> import tempfile, numpy as np
    >>> from fultr.rankers.ranker import Ranker
    >>> folder = tempfile.mkdtemp()
    >>> ranker = Ranker(np.float32([1, 0.25]), np.array([1, 2]))
    >>> version = Versions(folder).write(ranker, parent=None, configuration={}, metrics={})
    >>> read_current(folder)
    >>> write_current(folder, version.name)
    >>> read_current(folder).name == version.name
    True
    """
    version = Versions(Path(folder)).read(name)
    with written_whole(_file(folder)) as temporary:
        temporary.write_text(f"{version.name}\n", encoding="ascii")


def read_current(folder: str | os.PathLike[str]) -> Version | None:
    """The version in use; None if none has been named yet."""
    file = _file(folder)
    try:
        name = file.read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FultrError(f"{file}: cannot be read: {error.strerror}") from None
    version = Versions(Path(folder)).read(name[:40])
    if version.name != name:
        raise FultrError(f"{file}: expected the whole name of a version, such as {version.name}; found {name[:40]!r}")
    return version


def stamp(folder: str | os.PathLike[str]) -> Stamp:
    """What changes when `current` is replaced; None if it is not there. Asking costs some microseconds."""
    try:
        found = _file(folder).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _file(folder: str | os.PathLike[str]) -> Path:
    return Path(folder) / "current"
