"""Files that commands write: what cannot be written, or is read too, is refused before any work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from errno import EACCES, EISDIR, ENOENT
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fultr.core.errors import FultrError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE = "--figure"
_KINDS = ("png", "svg", "pdf")


def check_written(written: Mapping[str, Path | None], read: Mapping[str, str | Path | None]) -> None:
    """Refuse a file to be written that is read, too, or written twice; or whose folder takes no files.

    Args:
        written: files by the names of their options; None: not asked for. One called --figure must be a picture.
        read: likewise.

    >>> check_written({"--out": Path("log.tsv")}, {"CLICKLOG": "./log.tsv"})
    Traceback (most recent call last):
    fultr.core.errors.FultrError: --out: expected another file than CLICKLOG, found log.tsv
    """
    taken = {Path(path).resolve(): name for name, path in read.items() if path is not None}
    for name, path in written.items():
        if path is None:
            continue
        if name == FIGURE and _kind(path) not in _KINDS:
            raise FultrError(f"{name}: expected a file that ends with .png, .svg or .pdf, found {str(path)!r}")
        if path.exists() and not path.is_file() and not path.is_dir():
            continue  # a device or a pipe
        target = path.resolve()
        if target in taken:
            raise FultrError(f"{name}: expected another file than {taken[target]}, found {path}")
        taken[target] = name
        wrong = 0 if os.access(target.parent, os.W_OK) else EACCES
        wrong = EISDIR if target.is_dir() else wrong if target.parent.is_dir() else ENOENT
        if wrong:
            raise FultrError(f"{path}: cannot be written: {os.strerror(wrong)}")


def save_figure(path: Path, drawn: Figure) -> None:
    """Write a figure to a file, of the kind that its name ends with."""
    from fultr.core.drawing import rendered
    from fultr.core.files import written_whole

    kind: Any = _kind(path)
    with written_whole(path) as temporary:
        temporary.write_bytes(rendered(drawn, kind))


def _kind(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()
