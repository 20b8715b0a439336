"""Which files of a folder are indexed: a walk that follows no links and respects what is to be ignored."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

RULES = (".gitignore", ".ignore")
"""Files with patterns of what is not indexed, in gitignore's syntax, for their folder and below."""

ALWAYS = ("node_modules/", "__pycache__/", "*.pyc", "*.o", "*.so", "*.a", "*~", "lost+found/", "venv/", "*.egg-info/")
"""What is never indexed."""

_MOST_RULES = 1_000_000  # bytes of such a file


class Stamp(NamedTuple):
    """What changes when a file does."""

    size: int
    mtime: int
    inode: int


def stamp_of(found: os.stat_result) -> Stamp:
    """From what the system says of a file."""
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)


class _Rules(NamedTuple):
    """Patterns, and the folder that they are relative to."""

    folder: str
    patterns: GitIgnoreSpec

    def verdict(self, path: str, folder: bool) -> bool | None:
        """True: ignored; False: expressly not; None: nothing is said."""
        inside = path[len(self.folder.rstrip(os.sep)) + 1 :] + ("/" if folder else "")
        return self.patterns.check_file(inside).include


def crawl(
    root: str,
    excludes: Sequence[str] = (),
    under: str | None = None,
    on_problem: Callable[[str, str], None] = lambda path, why: None,
) -> Iterator[tuple[str, Stamp]]:
    """The files of a folder that are to be indexed, with their stamps.

    Links are not followed, neither to files nor to folders. Hidden files and folders are left out (but for the
    folders of a Maildir), and what the user's patterns and the files `RULES` name.

    Args:
        root: the folder, absolute and without links.
        excludes: patterns of the user, in gitignore's syntax, relative to the folder.
        under: a file or folder within it to which the walk is restricted.
        on_problem: told of a folder that cannot be read, and why.
    """
    rules = [_Rules(root, GitIgnoreSpec.from_lines([*ALWAYS, *excludes]))]
    inside = [] if under is None or under == root else list(Path(under).relative_to(root).parts)
    yield from _walk(root, rules, inside, on_problem)


def _walk(
    folder: str, rules: list[_Rules], inside: list[str], on_problem: Callable[[str, str], None]
) -> Iterator[tuple[str, Stamp]]:
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            on_problem(folder, f"cannot be read: {error.strerror}")
        return
    names = {entry.name for entry in entries}
    maildir = {"cur", "new"} <= names
    own = [_Rules(folder, patterns) for name in RULES if name in names and (patterns := _patterns(folder, name))]
    below = rules + own
    for entry in entries:
        if inside and entry.name != inside[0]:
            continue
        try:
            found = entry.stat(follow_symlinks=False) if os.name == "posix" else os.lstat(entry.path)  # with the inode
        except OSError:
            continue  # gone meanwhile
        is_folder = stat.S_ISDIR(found.st_mode)
        if not is_folder and not stat.S_ISREG(found.st_mode):
            continue  # a link, a pipe, a device
        if entry.name.startswith(".") and not (maildir and is_folder):
            continue
        if _ignored(entry.path, is_folder, below):
            continue
        if is_folder:
            yield from _walk(entry.path, below, inside[1:], on_problem)
        else:
            yield entry.path, stamp_of(found)


def _ignored(path: str, folder: bool, rules: list[_Rules]) -> bool:
    """The innermost file that says something decides, as in git; the first are the user's own, which always count."""
    if rules[0].verdict(path, folder):
        return True
    verdicts = (rule.verdict(path, folder) for rule in reversed(rules[1:]))
    return next((verdict for verdict in verdicts if verdict is not None), False)


def _patterns(folder: str, name: str) -> GitIgnoreSpec | None:
    """The patterns of a file; what is no pattern is left out."""
    try:
        file = Path(folder, name)
        if file.is_symlink():
            return None
        with file.open("rb") as stream:
            lines = stream.read(_MOST_RULES).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    good = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
            good.append(line)
        except ValueError:
            continue
    return GitIgnoreSpec.from_lines(good)
