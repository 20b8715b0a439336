"""The index of somebody's folders: what has changed is found and read, the rest stays.

An update compares the folders with the catalogue, and works in batches. Before a batch touches what the index holds of
a file, the file is marked to be read again; after it, catalogue and words agree. So a process may be killed at any
moment: the next update does what is left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time

from fultr.app.catalogue import Catalogue, Known
from fultr.app.crawl import Stamp, crawl
from fultr.app.home import Home
from fultr.app.readers import Part
from fultr.app.reading import Reading, read_files
from fultr.app.text import fold, path_words
from fultr.app.words import Words, Writer
from fultr.core.errors import FultrError
from fultr.core.files import locked

_BATCH_FILES, _BATCH_TEXT, _BATCH_SECONDS = 1000, 16_000_000, 20.0
_MOST_PARTS = 200_000  # documents of one file


@dataclass(frozen=True)
class Progress:
    """How far an update is: files done, and files to read in all."""

    done: int
    total: int


@dataclass
class Changes:
    """What an update did.

    Attributes:
        read: files that were new or had changed.
        moved: files that have another path.
        removed: files that are no longer there, or no longer to be indexed.
        unchanged: files that were left as they are.
        problems: paths that could not be read, and why.
    """

    read: int = 0
    moved: int = 0
    removed: int = 0
    unchanged: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)


class Index:
    """The index in an application's folder: its catalogue and its words. Threads may share one to search."""

    def __init__(self, home: Home) -> None:
        """Open it, or create it."""
        self.home = home
        self.catalogue = Catalogue(home.catalogue)
        self.words = Words(home.words)

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the catalogue."""
        self.catalogue.close()

    def add(self, folders: Iterable[Path], excludes: Iterable[str] = ()) -> None:
        """Remember folders to index, and patterns of what to leave out; `update` reads them."""
        checked = [_checked_folder(folder, self.home.folder) for folder in folders]
        with self.catalogue.writing():
            for folder in checked:
                self.catalogue.add_folder(folder)
            for pattern in excludes:
                self.catalogue.add_exclude(pattern)

    def update(
        self,
        under: str | None = None,
        *,
        processes: int = 2,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Changes:
        """Bring the index up to date with the folders.

        Args:
            under: a file or folder that has changed, to look at no other; None: all folders.
            processes: that read files.
            on_progress: told after every file.
            stopping: asked after every file; what is done is kept.
        """
        with locked(self.home.lock):
            changes = Changes()
            found = self._crawled(under, changes)
            known = self.catalogue.known(under)
            changed = [path for path, stamp in found.items() if path not in known or known[path].stamp != stamp]
            gone = {path: file for path, file in known.items() if path not in found}
            changes.unchanged = len(found) - len(changed)
            if not changed and not gone:
                return changes
            writer = self.words.writer()
            try:
                update = _Update(self.catalogue, writer, changes)
                update.move(changed, gone, found)
                update.remove(gone)
                update.read(changed, found, processes, on_progress, stopping)
            finally:
                writer.close()
            return changes

    def _crawled(self, under: str | None, changes: Changes) -> dict[str, Stamp]:
        """The files that there are, with their stamps. Nothing is taken for gone with a folder that cannot be read."""
        found: dict[str, Stamp] = {}
        excludes = self.catalogue.excludes()

        def keep(folder: str, why: str) -> None:
            changes.problems.append((folder, why))
            found.update({path: file.stamp for path, file in self.catalogue.known(folder).items()})

        for folder in self.catalogue.folders():
            if under is not None and not _within(under, folder):
                continue
            if not Path(folder).is_dir():  # a disk that is not mounted: not the time to forget its files
                keep(folder, "is not there now; its files stay in the index")
                continue
            own = self.home.folder
            for path, stamp in crawl(folder, excludes, under, keep):
                if not _within(path, str(own)):
                    found[path] = stamp
        return found


class _Update:
    """One update: batches of changes to catalogue and words."""

    def __init__(self, catalogue: Catalogue, writer: Writer, changes: Changes) -> None:
        self._catalogue, self._writer, self._changes = catalogue, writer, changes

    def move(self, changed: list[str], gone: dict[str, Known], found: dict[str, Stamp]) -> None:
        """Give files that were moved their new path, without reading them; they leave `changed` and `gone`."""
        by_stamp = {file.stamp: path for path, file in gone.items() if not file.problem}
        moves = [(by_stamp.pop(found[path]), path) for path in changed if found[path] in by_stamp]
        if not moves:
            return
        self._catalogue.mark(gone[old].id for old, _ in moves)
        with self._catalogue.writing():
            for old, new in moves:
                file = gone.pop(old)
                changed.remove(new)
                self._catalogue.put_file(old, file.stamp, file.problem)
                self._catalogue.move_file(file.id, new)
                ids = self._catalogue.documents_of(file.id)
                for start in range(0, len(ids), 100):
                    self._index_again(ids[start : start + 100])
            self._writer.commit()
        self._changes.moved += len(moves)

    def _index_again(self, ids: list[int]) -> None:
        texts = self._catalogue.texts(ids)
        for id_, stored in self._catalogue.documents(ids).items():
            part = Part(stored.kind, stored.title, texts[id_], stored.time)
            self._put_words(id_, stored.path, part, stored.time)

    def remove(self, gone: dict[str, Known]) -> None:
        """Forget files that are no longer there."""
        files = [file.id for file in gone.values()]
        for start in range(0, len(files), _BATCH_FILES):
            batch = files[start : start + _BATCH_FILES]
            self._catalogue.mark(batch)
            with self._catalogue.writing():
                for file in batch:
                    self._writer.drop(self._catalogue.documents_of(file))
                    self._catalogue.drop_file(file)
                self._writer.commit()
        self._changes.removed += len(files)

    def read(
        self,
        changed: list[str],
        found: dict[str, Stamp],
        processes: int,
        on_progress: Callable[[Progress], None],
        stopping: Callable[[], bool],
    ) -> None:
        """Read new and changed files."""
        batch: list[Reading] = []
        numbers: dict[str, int] = {}  # documents so far of files that come in several readings
        size, started, done = 0, monotonic(), 0
        for reading in read_files(changed, processes):
            batch.append(reading)
            size += sum(len(part.text) for part in reading.parts)
            done += reading.done
            full = len(batch) >= _BATCH_FILES or size >= _BATCH_TEXT or monotonic() - started > _BATCH_SECONDS
            stop = stopping()
            if full or stop:
                self._store(batch, found, numbers)
                batch, size, started = [], 0, monotonic()
            on_progress(Progress(done, len(changed)))
            if stop:
                return
        self._store(batch, found, numbers)

    def _store(self, batch: list[Reading], found: dict[str, Stamp], numbers: dict[str, int]) -> None:
        """Enter readings: files that are not complete yet stay marked to be read again."""
        known = {path: file for path in {one.path for one in batch} for file in self._catalogue.known(path).values()}
        self._catalogue.mark(file.id for file in known.values())
        with self._catalogue.writing():
            for reading in batch:
                stamp = (reading.stamp or found[reading.path]) if reading.done else Stamp(0, -1, 0)
                file = self._catalogue.put_file(reading.path, stamp, reading.problem)
                parts = list(reading.parts)
                if reading.done and not parts and not numbers.get(reading.path):
                    parts = [Part("other", "", "")]  # found by its name
                for part in parts:
                    number = numbers.get(reading.path, 0)
                    numbers[reading.path] = number + 1
                    if number < _MOST_PARTS:
                        self._put(file, number, reading.path, part, found[reading.path])
                if reading.done:
                    self._finish(reading, file, numbers.pop(reading.path, 0))
            self._writer.commit()

    def _finish(self, reading: Reading, file: int, documents: int) -> None:
        """Remove what an earlier version of the file held beyond its end, and say what went wrong."""
        surplus = self._catalogue.documents_of(file, documents)
        self._writer.drop(surplus)
        self._catalogue.drop_documents(surplus)
        self._changes.read += not reading.problem
        if reading.problem:
            self._changes.problems.append((reading.path, reading.problem))

    def _put(self, file: int, number: int, path: str, part: Part, stamp: Stamp) -> None:
        written = stamp.mtime / 1e9 if part.time is None else part.time
        when = min(max(written, -(2.0**40)), time() + 86_400)  # not from a time to come
        self._put_words(self._catalogue.put_document(file, number, part, when), path, part, when)

    def _put_words(self, id_: int, path: str, part: Part, when: float) -> None:
        words = path_words(path)
        self._writer.put(id_, words.name, fold(part.title), words.folders, fold(part.text), part.kind, when)


def _checked_folder(folder: Path, home: Path) -> str:
    """A folder to index, absolute and without links."""
    try:
        resolved = folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise FultrError(f"{folder}: cannot be indexed: {getattr(error, 'strerror', None) or error}") from None
    if not resolved.is_dir():
        raise FultrError(f"{folder}: is not a folder")
    if _within(str(resolved), str(home)):
        raise FultrError(f"{folder}: is the folder of the index itself")
    return str(resolved)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
