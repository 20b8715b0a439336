"""The file of a device's log: an SQLite database that is recognised before anything is written to it.

A foreign, damaged or newer file is recognised by its header and through a connection that cannot write, and stays as it
is.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from fultr.core.errors import FultrError, one_line
from fultr.device.values import click_checksum

APPLICATION = int.from_bytes(b"fult", "big")
"""`application_id` of the file, which distinguishes a log from other SQLite databases."""

WAIT = 10.0  # seconds that a call waits for other processes that are writing
_CHECKPOINT = 2000  # pages in the -wal file after which it is moved into the database: 8 MB
_NO_SPACE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
_ALONGSIDE = ("-wal", "-shm", "-journal")

STEPS = (
    """
    CREATE TABLE settings (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
    CREATE TABLE schemas (
        id INTEGER PRIMARY KEY,
        width INTEGER NOT NULL,
        names TEXT NOT NULL UNIQUE
    );
    CREATE TABLE impressions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        time REAL NOT NULL,
        query BLOB NOT NULL,
        version TEXT NOT NULL,
        schema INTEGER NOT NULL REFERENCES schemas (id),
        bits INTEGER NOT NULL,
        documents INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        text TEXT,
        other_ranks BLOB,
        features BLOB NOT NULL
    );
    CREATE INDEX impressions_by_time ON impressions (time);
    CREATE TABLE clicks (
        impression INTEGER NOT NULL REFERENCES impressions (id) ON DELETE CASCADE,
        rank INTEGER NOT NULL,
        time REAL NOT NULL,
        PRIMARY KEY (impression, rank)
    ) WITHOUT ROWID;
    INSERT INTO settings VALUES ('query key', randomblob(32)), ('wipes', 0)
    """,
    """
    ALTER TABLE clicks ADD COLUMN batch INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE clicks ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
    UPDATE clicks SET checksum = click_checksum(impression, rank, time, batch);
    CREATE TABLE parts (
        name TEXT PRIMARY KEY,
        first_batch INTEGER NOT NULL,
        end_batch INTEGER NOT NULL,
        first_impression INTEGER NOT NULL,
        end_impression INTEGER NOT NULL,
        fingerprint BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE ledger (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        ticks REAL NOT NULL,
        time REAL NOT NULL,
        outcome TEXT NOT NULL,
        reason TEXT NOT NULL,
        run TEXT NOT NULL,
        round TEXT NOT NULL,
        kinds TEXT NOT NULL,
        estimator TEXT NOT NULL,
        sent TEXT NOT NULL,
        impressions INTEGER NOT NULL,
        clicks INTEGER NOT NULL,
        batch INTEGER NOT NULL
    );
    CREATE INDEX ledger_by_outcome ON ledger (outcome, ticks);
    INSERT INTO parts VALUES ('training', 0, 0, 0, 0, x''), ('held out', 0, 0, 0, 0, x'');
    INSERT INTO settings VALUES ('batch', 0), ('ledger clock', '[0, 0, "", 0]'), ('earlier refusals', 0);
    INSERT INTO settings VALUES ('clock', '[]')
    """,
    """
    CREATE TABLE sums (
        run BLOB NOT NULL,
        round INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        session BLOB NOT NULL,
        task BLOB,
        members BLOB,
        share BLOB,
        PRIMARY KEY (run, round, attempt)
    ) WITHOUT ROWID;
    INSERT INTO settings VALUES ('enrolment', '["", 0, ""]')
    """,
    "ALTER TABLE sums ADD COLUMN least INTEGER NOT NULL DEFAULT 0",
    "CREATE TABLE personal (one INTEGER PRIMARY KEY CHECK (one = 1), made REAL NOT NULL, layer TEXT NOT NULL)",
)
"""The steps from each version of the tables to the next, starting from an empty file; `user_version` counts them.

AUTOINCREMENT: an id is never reused, so a late click on a forgotten impression is not taken for another's. The large
columns come last, so that reading the others does not touch the pages that they fill. For the same reason impressions
have no column for their batch: as ids only grow, a batch is a range of them.
"""


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the system into one clear line."""
    try:
        yield
    except sqlite3.Error as error:
        raise FultrError(_explained(path, error)) from None
    except UnicodeDecodeError:
        raise damaged(path, "text that is not UTF-8") from None
    except OSError as error:
        raise FultrError(f"{path}: cannot be opened: {error.strerror or error}") from None


def _explained(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"{path}: another process has kept it locked for {WAIT:.0f} s: try again, or end that process"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return str(damaged(path, str(error)))
    if code == sqlite3.SQLITE_FULL:
        return f"{path}: the disk is full: this call stored nothing; free some space, or forget old impressions"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return f"{path}: cannot be written ({error}): the file and its folder must be writable"
    if code == sqlite3.SQLITE_IOERR:
        return f"{path}: cannot be read or written ({error}): this call stored nothing; is the disk full?"
    return f"{path}: {error}"


def is_full(error: sqlite3.Error) -> bool:
    """Was there no space left, or may files not grow?"""
    return getattr(error, "sqlite_errorcode", 0) in _NO_SPACE


def damaged(path: Path, cause: str) -> FultrError:
    """The error for a damaged log."""
    said = one_line(cause)
    return FultrError(f"{path}: is damaged ({said}): restore it from a backup, or delete it and start a new log")


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection on which every statement is its own transaction unless one is begun."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={'rw' if write else 'ro'}",
        uri=True,
        timeout=WAIT,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        if write:
            connection.create_function("click_checksum", 4, click_checksum, deterministic=True)
            connection.execute("PRAGMA secure_delete = ON")
            # In WAL mode, NORMAL never loses a finished transaction when the process is killed, and never corrupts. A
            # power cut may cost the events since the last checkpoint; FULL would wait for the disk at every event.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")
            connection.execute(f"PRAGMA journal_size_limit = {_CHECKPOINT * 4096}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of the block's writes, or none; the write lock is held from the start."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # after some errors SQLite has rolled back already
            connection.execute("ROLLBACK")
        raise


def open_file(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open a log, or create one where there is no file or an empty one; upgrades an older one.

    Args:
        path: of the file, absolute.
        create: create it if there is none.
    """
    with clear_errors(path):
        if create:
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        elif not path.exists():
            raise FultrError(f"{path}: there is no such file")
        if not path.is_file():
            raise FultrError(f"{path}: is not a file")
        _check_header(path)
        _check_tables(path)
        _make_private(path)
        connection = connect(path, write=True)
        try:
            upgrade(path, connection)
            _use_wal(path, connection)
            _make_private(path)
        except BaseException:
            connection.close()
            raise
        return connection


def _check_header(path: Path) -> None:
    """Refuse a file that is not a log that this version can read, by its first 100 bytes; opens nothing for writing."""
    with path.open("rb") as file:
        header = file.read(100)
    if not header:
        return
    if not header.startswith(b"SQLite format 3\0"):
        raise FultrError(f"{path}: is not a device log, nor an SQLite database at all: choose another path")
    if len(header) < 100:
        raise damaged(path, f"only {len(header)} bytes are left")
    version, application = struct.unpack_from(">i4xi", header, 60)
    if application != APPLICATION and (application or version):
        raise _foreign(path)
    _check_version(path, version)  # without both, it may be a file that a killed process had just created


def _foreign(path: Path) -> FultrError:
    return FultrError(f"{path}: is an SQLite database of another application: choose another path")


def _check_version(path: Path, version: int) -> None:
    if version > len(STEPS):
        raise FultrError(
            f"{path}: was written by a newer fultr (its tables have version {version}, this one knows {len(STEPS)}): "
            "update fultr"
        )


def _check_content(path: Path, connection: sqlite3.Connection) -> int:
    """Refuse tables that are another application's or newer; returns the version of the log's, 0 if there are none."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    _check_version(path, version)
    if not version and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise _foreign(path)
    return version


def _check_tables(path: Path) -> None:
    """Read a little of every table through a connection that cannot write; damage shows as an SQLite error."""
    if not path.stat().st_size:
        return
    try:
        with closing(connect(path, write=False)) as connection:
            _check_content(path, connection)
            for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
                connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        # Either a process was killed while it created the file, or the folder is not writable: a connection that may
        # write repairs the former and reports the latter.
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise


def files_of(path: Path) -> list[Path]:
    """The log's file and those that SQLite may keep next to it."""
    return [path, *(path.with_name(path.name + ending) for ending in _ALONGSIDE)]


def _make_private(path: Path) -> None:
    """Nobody but the owner may read the log; SQLite gives the files next to it the same mode."""
    if os.name != "posix":
        return
    for file in files_of(path):
        with suppress(FileNotFoundError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def upgrade(path: Path, connection: sqlite3.Connection) -> None:
    """Apply the steps from the file's version of the tables to the current one: all of them, or none."""
    if not _check_content(path, connection):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # possible only before there are tables
    with transaction(connection):
        version = _check_content(path, connection)
        for step in STEPS[version:]:
            for statement in step.split(";\n"):
                connection.execute(statement)
        if version < len(STEPS):
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {len(STEPS)}")
    if 0 < version < len(STEPS):
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # older programs look only at the header


def _use_wal(path: Path, connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging for good; here SQLite itself does not wait while others use the file."""
    until = monotonic() + WAIT
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > until:
                raise
            sleep(0.01)
    if mode != "wal":
        raise FultrError(f"{path}: its file system has no shared memory, which the log needs: use a local folder")


def size_of(path: Path) -> int:
    """Bytes on disk of the file and those next to it."""
    total = 0
    for file in files_of(path):
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total
