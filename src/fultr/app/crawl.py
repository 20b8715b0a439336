"""Which files of a folder are indexed: a walk that follows no links and respects what is to be ignored."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pathspec import GitIgnoreSpec

from fultr.app.readers import Unreadable
from fultr.core.system import PLAIN_FILE

RULES = (".gitignore", ".ignore")
"""Files with patterns of what is not indexed, in gitignore's syntax, for their folder and below."""

ALWAYS = ("node_modules/", "__pycache__/", "*.pyc", "*.o", "*.so", "*.a", "*~", "lost+found/", "venv/", "*.egg-info/")
"""What is never indexed."""

_MOST_RULES, _MOST_LINES = 100_000, 1000  # bytes and lines of such a file
_DEEPEST = 200  # folders within folders
_MOST_ANY = 3  # times that a rule says "any folders": what matching takes grows with the depth to that power


_STAR = "[^/]*"  # what the library makes of a star


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
    rules = [_Rules(root, _spec([*ALWAYS, *excludes]))]
    inside = [] if under is None or under == root else list(Path(under).relative_to(root).parts)
    stack = [_entries(root, rules, inside, on_problem)]
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
        elif isinstance(found, _Folder):
            if len(stack) > _DEEPEST:
                on_problem(found.path, f"is within {_DEEPEST} folders: what is in it is not looked at")
            else:
                stack.append(_entries(found.path, found.rules, inside[len(stack) :], on_problem))
        else:
            yield found


class _Folder(NamedTuple):
    """A folder that is looked into next, and the rules that hold there."""

    path: str
    rules: list[_Rules]


def _entries(
    folder: str, rules: list[_Rules], inside: list[str], on_problem: Callable[[str, str], None]
) -> Iterator[tuple[str, Stamp] | _Folder]:
    """What a folder holds that is indexed or looked into."""
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
        yield _Folder(entry.path, below) if is_folder else (entry.path, stamp_of(found))


def _ignored(path: str, folder: bool, rules: list[_Rules]) -> bool:
    """The innermost file that says something decides, as in git; the first are the user's own, which always count."""
    if rules[0].verdict(path, folder):
        return True
    verdicts = (rule.verdict(path, folder) for rule in reversed(rules[1:]))
    return next((verdict for verdict in verdicts if verdict is not None), False)


def open_plain(path: str) -> BinaryIO:
    """A regular file that is where it says: no link, neither the file nor a folder above it; no pipe or device."""
    descriptor = os.open(path, PLAIN_FILE)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode) or os.path.realpath(path) != path:
        file.close()
        raise Unreadable("is not a plain file")
    return file


def _patterns(folder: str, name: str) -> GitIgnoreSpec | None:
    """The patterns of a file."""
    try:
        with open_plain(os.path.join(folder, name)) as stream:  # noqa: PTH118
            lines = stream.read(_MOST_RULES).decode("utf-8", "replace").splitlines()
    except (OSError, Unreadable):
        return None
    return _spec(lines[:_MOST_LINES])


def _spec(lines: Sequence[str]) -> GitIgnoreSpec:
    """Patterns; what is none, or one that would take long, is left out."""
    patterns: list[Any] = []
    for line in lines:
        try:
            for found in GitIgnoreSpec.from_lines([line]).patterns:
                text = "" if found.regex is None else found.regex.pattern
                if text and text.count(".+") <= _MOST_ANY:
                    patterns.append(type(found)(re.compile(_quick(text)), found.include))
        except (ValueError, re.error):
            continue
    return GitIgnoreSpec(patterns, backend="simple")  # others know no atomic groups


def _quick(regex: str) -> str:
    """The same, with a time that is at most a line's length times a name's.

    Of several stars in a name, all but the last match as little as they can: if any way of matching what is between
    them will do, the leftmost does, so that no other need be tried (`(?>`).

    >>> _quick("^[^/]*a[^/]*b[^/]*c$")
    '^(?>[^/]*?a)(?>[^/]*?b)[^/]*c$'
    """
    first, *after = regex.split(_STAR)
    found = [first]
    for i, text in enumerate(after, start=1):
        if i == len(after) or "/" in text.replace("[^/]", ""):
            found.append(_STAR + text)
        elif text:
            found.append(f"(?>{_STAR}?{text})")
    return "".join(found)
