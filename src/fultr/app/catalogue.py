"""The catalogue: which files and documents are indexed, their text, and which were opened. One SQLite file."""

from __future__ import annotations

import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fultr.app.crawl import Stamp
from fultr.app.readers import Part
from fultr.app.text import fold
from fultr.core.errors import FultrError
from fultr.device.sqlite import transaction

_APPLICATION = int.from_bytes(b"fuls", "big")
_VERSION = 1
_TABLES = """
CREATE TABLE folders (path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE excludes (pattern TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE settings (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE files (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    path BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    mtime INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    problem TEXT NOT NULL
);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file INTEGER NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    part INTEGER NOT NULL,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    time REAL NOT NULL,
    length INTEGER NOT NULL,
    lead BLOB,
    text BLOB NOT NULL,
    UNIQUE (file, part)
);
CREATE TABLE opens (
    document INTEGER NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    time REAL NOT NULL,
    impression INTEGER NOT NULL,
    query TEXT NOT NULL
);
CREATE INDEX opens_by_document ON opens (document);
CREATE INDEX opens_by_query ON opens (query)
"""
LEAD = 10_000
"""Characters of a text that features look at."""

_READ_AGAIN = -1  # the time of change of a file that is to be read again


class Known(NamedTuple):
    """A file of the catalogue."""

    id: int
    stamp: Stamp
    problem: str


@dataclass(frozen=True)
class Stored:
    """A document of the catalogue, without its text.

    Attributes:
        id: of the document.
        path: of its file.
        part: its number within the file, from 0.
        kind: one of `fultr.app.readers.KINDS`.
        title: empty if it has none.
        time: when it was changed or sent, in seconds since 1970.
        length: characters of its text.
    """

    id: int
    path: str
    part: int
    kind: str
    title: str
    time: float
    length: int


class Catalogue:
    """An open catalogue. Threads may share one; a process that only reads does not wait for one that writes."""

    def __init__(self, path: Path) -> None:
        """Open it, or create it."""
        self.path = path
        self._lock = threading.RLock()
        with self._errors():
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        connection = self._connection
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 8000000")
        with transaction(connection):
            found = connection.execute("PRAGMA user_version").fetchone()[0]
            if found > _VERSION:
                raise FultrError(f"{self.path}: was written by a newer fultr: update fultr")
            if found == 0:
                if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                    raise FultrError(
                        f"{self.path}: is an SQLite database of another application: choose another folder"
                    )
                for statement in _TABLES.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite into one clear line."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise FultrError(
                    f"{self.path}: is damaged ({error}): delete its folder, and index your folders again"
                ) from None
            if code == sqlite3.SQLITE_FULL:
                raise FultrError(f"{self.path}: the disk is full: free some space, and index again") from None
            raise FultrError(f"{self.path}: {error}") from None
        except OSError as error:
            raise FultrError(f"{self.path}: cannot be opened: {error.strerror or error}") from None

    def close(self) -> None:
        """Close it. Closing twice is fine."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All that the block changes, or nothing."""
        with self._lock, self._errors(), transaction(self._connection):
            yield

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock, self._errors():
            return self._connection.execute(statement, values).fetchall()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        with self._lock, self._errors():
            return self._connection.execute(statement, values)

    # Folders, and what is left out of them

    def folders(self) -> list[str]:
        """The folders that are indexed."""
        return [os.fsdecode(path) for (path,) in self._rows("SELECT path FROM folders ORDER BY path")]

    def excludes(self) -> list[str]:
        """The user's patterns of what is not indexed."""
        return [pattern for (pattern,) in self._rows("SELECT pattern FROM excludes ORDER BY pattern")]

    def add_folder(self, path: str) -> None:
        """Index a folder from now on."""
        self._run("INSERT OR IGNORE INTO folders VALUES (?)", (os.fsencode(path),))

    def remove_folder(self, path: str) -> bool:
        """Index a folder no longer; was it one?"""
        return self._run("DELETE FROM folders WHERE path = ?", (os.fsencode(path),)).rowcount > 0

    def add_exclude(self, pattern: str) -> None:
        """Leave out what a pattern names from now on."""
        self._run("INSERT OR IGNORE INTO excludes VALUES (?)", (pattern,))

    def setting(self, name: str, default: str) -> str:
        """A setting that the user made on the page."""
        rows = self._rows("SELECT value FROM settings WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else default

    def set(self, name: str, value: str) -> None:
        """Remember a setting."""
        self._run("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    # Files and documents

    def known(self, under: str | None = None) -> dict[str, Known]:
        """The files of the catalogue by path; those of a folder, or one file, if it is given."""
        if under is None:
            rows = self._rows("SELECT path, id, size, mtime, inode, problem FROM files")
        else:
            path = os.fsencode(under)
            inside = path.rstrip(b"/") + b"/"
            rows = self._rows(
                "SELECT path, id, size, mtime, inode, problem FROM files WHERE path = ? OR (path >= ? AND path < ?)",
                (path, inside, inside[:-1] + b"0"),  # "0" follows "/"
            )
        return {os.fsdecode(row[0]): Known(row[1], Stamp(*row[2:5]), row[5]) for row in rows}

    def mark(self, files: Iterable[int]) -> None:
        """Have files read again by the next update: what is stored of them is about to change."""
        with self.writing():
            self._connection.executemany(
                "UPDATE files SET mtime = ? WHERE id = ?", [(_READ_AGAIN, file) for file in files]
            )

    def put_file(self, path: str, stamp: Stamp, problem: str) -> int:
        """Enter a file, or what has changed of it; returns its id."""
        name = os.fsencode(path)
        self._run(
            "INSERT INTO files (path, size, mtime, inode, problem) VALUES (?, ?, ?, ?, ?) ON CONFLICT (path) DO UPDATE "
            "SET size = excluded.size, mtime = excluded.mtime, inode = excluded.inode, problem = excluded.problem",
            (name, *stamp, problem),
        )
        return int(self._rows("SELECT id FROM files WHERE path = ?", (name,))[0][0])

    def put_document(self, file: int, number: int, part: Part, time: float) -> int:
        """Enter a document, or what has changed of it; returns its id."""
        text = zlib.compress(part.text.encode(), 3)
        long = len(part.text) > LEAD  # of a short one, the text itself is unpacked and folded when it is needed
        lead = zlib.compress(fold(part.text[:LEAD]).encode(), 3) if long else None
        self._run(
            "INSERT INTO documents (file, part, kind, title, time, length, lead, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (file, part) DO UPDATE SET kind = excluded.kind, title = excluded.title, "
            "time = excluded.time, length = excluded.length, lead = excluded.lead, text = excluded.text",
            (file, number, part.kind, part.title, time, len(part.text), lead, text),
        )
        return int(self._rows("SELECT id FROM documents WHERE file = ? AND part = ?", (file, number))[0][0])

    def move_file(self, file: int, path: str) -> None:
        """Note that a file has another path."""
        self._run("UPDATE files SET path = ? WHERE id = ?", (os.fsencode(path), file))

    def documents_of(self, file: int, least: int = 0) -> list[int]:
        """The documents of a file, from a number on."""
        rows = self._rows("SELECT id FROM documents WHERE file = ? AND part >= ? ORDER BY part", (file, least))
        return [id_ for (id_,) in rows]

    def drop_documents(self, documents: Iterable[int]) -> None:
        """Remove documents."""
        with self._lock, self._errors():
            self._connection.executemany("DELETE FROM documents WHERE id = ?", [(id_,) for id_ in documents])

    def drop_file(self, file: int) -> None:
        """Remove a file and its documents."""
        self._run("DELETE FROM files WHERE id = ?", (file,))

    def all_documents(self) -> list[int]:
        """The ids of all documents."""
        return [id_ for (id_,) in self._rows("SELECT id FROM documents ORDER BY id")]

    def documents(self, ids: Sequence[int]) -> dict[int, Stored]:
        """Documents by id; those that are not there are left out."""
        rows = self._rows(
            "SELECT documents.id, path, part, kind, title, time, length FROM documents JOIN files "
            f"ON files.id = documents.file WHERE documents.id IN ({_marks(ids)})",
            ids,
        )
        return {row[0]: Stored(row[0], os.fsdecode(row[1]), *row[2:]) for row in rows}

    def texts(self, ids: Sequence[int]) -> dict[int, str]:
        """Documents' texts."""
        rows = self._rows(f"SELECT id, text FROM documents WHERE id IN ({_marks(ids)})", ids)
        return {id_: zlib.decompress(packed).decode() for id_, packed in rows}

    def leads(self, ids: Sequence[int]) -> dict[int, str]:
        """The beginnings of documents' texts, folded."""
        rows = self._rows(
            f"SELECT id, lead IS NULL, coalesce(lead, text) FROM documents WHERE id IN ({_marks(ids)})", ids
        )
        unpacked = ((id_, short, zlib.decompress(packed).decode()) for id_, short, packed in rows)
        return {id_: fold(text) if short else text for id_, short, text in unpacked}

    def problems(self) -> list[tuple[str, str]]:
        """Files that were not read, and why."""
        rows = self._rows("SELECT path, problem FROM files WHERE problem != '' ORDER BY path")
        return [(os.fsdecode(path), problem) for path, problem in rows]

    def counts(self) -> dict[str, int]:
        """How many documents there are of each kind."""
        return dict(self._rows("SELECT kind, count(*) FROM documents GROUP BY kind"))

    # What was opened

    def put_open(self, document: int, time: float, impression: int, query: str) -> None:
        """Note that a document was opened from the results of a query."""
        self._run(
            "INSERT INTO opens SELECT id, ?, ?, ? FROM documents WHERE id = ?", (time, impression, query, document)
        )

    def opens(self) -> list[tuple[int, float, str, str, str]]:
        """All openings: the document, when, the query, the document's path and its kind; the latest first."""
        rows = self._rows(
            "SELECT document, opens.time, query, path, kind FROM opens JOIN documents ON documents.id = document "
            "JOIN files ON files.id = documents.file ORDER BY opens.time DESC LIMIT 2000"
        )
        return [(row[0], row[1], row[2], os.fsdecode(row[3]), row[4]) for row in rows]

    def forget_opens(self, query: str | None = None) -> int:
        """Delete what was opened, or what was opened from a query's results."""
        if query is None:
            gone = self._run("DELETE FROM opens").rowcount
        else:
            gone = self._run("DELETE FROM opens WHERE query = ?", (query,)).rowcount
        self._run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return gone


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))
