"""The log that a search application keeps on the device: what was displayed, and what was clicked.

Clicks never leave the device; training on it starts from `DeviceLog.training_log`, which is the same `ClickLog` that
simulation makes. docs/device-log.md has the answers to what can happen to a log.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic
from time import time as current_time
from typing import Literal, TextIO

import numpy as np
from numpy.typing import ArrayLike

from fultr.checks import check_choice, check_number
from fultr.device_file import WAIT, clear_errors, connect, damaged, open_file, transaction
from fultr.device_training import DTYPES, RANKS, TrainingLog, checksum, read_training
from fultr.device_upkeep import Retention, apply_retention, forget_impressions, wipe
from fultr.device_view import DeviceStats, FeatureSchema, export_lines, read_schemas, read_stats
from fultr.errors import FultrError
from fultr.files import written_whole

_EVERY, _PAUSE = 100, 3600.0  # retention is applied after so many impressions, and so many seconds, of this process
_LARGEST_ID = 2**63 - 1
_open_logs: weakref.WeakSet[DeviceLog] = weakref.WeakSet()


class DeviceLog:
    """A log in one file. Any number of threads and processes may use it at once.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "search.db"
    >>> with DeviceLog.open(path, features=["title match", "freshness"]) as log:
    ...     shown = log.log_impression("best pizza", [[0.9, 0.2], [0.4, 0.7]], version="ranker 7")
    ...     log.log_click(shown, rank=2)
    ...     log.training_log().log.clicks.tolist()
    True
    [[0, 1]]
    """

    # One connection for what is short, under a lock: SQLite lets one writer in at a time anyway, and what is open is
    # known, to be closed. Long reads have a connection of their own, so that nobody waits for them to log a click.

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        schema: int,
        width: int,
        dtype: Literal["float32", "float16"],
        retention: Retention | None,
        hold_text: bool,
    ) -> None:
        """Use `DeviceLog.open`."""
        self.path = path
        self._connection: sqlite3.Connection | None = connection
        self._closed = False
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._schema, self._width = schema, width
        self._dtype, self._retention, self._hold_text = dtype, retention, hold_text
        self._key = connection.execute("SELECT value FROM settings WHERE name = 'query key'").fetchone()[0]
        self._since_upkeep, self._last_upkeep = 0, monotonic()
        _open_logs.add(self)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        features: Sequence[str] | int | None = None,
        dtype: Literal["float32", "float16"] = "float32",
        retention: Retention | None = Retention(),
        hold_text: bool = False,
    ) -> DeviceLog:
        """Open a log, or begin one.

        Args:
            path: of the file; its folder must exist. SQLite keeps two more files beside it, -wal and -shm.
            features: the names of the documents' features, in order, or how many there are. Impressions with other
                features stay in the file, but are not trained on. None: those of the last impression, for looking at
                a log that exists.
            dtype: how features are stored. "float16" takes half the space, and costs precision: values are rounded to
                11 bits (a relative error of up to 2**-11, or 2**-25 if they are below 2**-14), and none may be above
                65,504.
            retention: how much is kept. None: everything.
            hold_text: store the `text` of impressions. Otherwise it is dropped.
        """
        check_choice("dtype", dtype, tuple(DTYPES))
        described = None if features is None else _described(features)
        file = Path(path).resolve()
        connection = open_file(file, create=features is not None)
        try:
            with clear_errors(file):
                schema, width = _schema(file, connection, described)
                log = cls(file, connection, schema, width, dtype, retention, hold_text)
                log._upkeep(connection)
                with suppress(sqlite3.OperationalError):
                    wipe(connection)  # what a killed process has left
        except BaseException:
            connection.close()
            raise
        return log

    def __enter__(self) -> DeviceLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the log cannot be used any more. Closing twice is fine."""
        with self._lock, clear_errors(self.path):
            self._closed = True
            self._disconnect()

    def log_impression(
        self,
        query: str | bytes | int,
        features: ArrayLike,
        *,
        version: str = "",
        time: float | None = None,
        other_ranks: ArrayLike | None = None,
        text: str | None = None,
    ) -> int:
        """Store what a query displayed; returns the id by which its clicks are logged.

        Args:
            query: by which equal queries are recognised. A keyed hash of it is stored, not the query.
            features: [K, features], of the displayed documents, from rank 1.
            version: of the ranker.
            time: seconds since 1970; now if None.
            other_ranks: [K, versions] where several versions of the ranker are in use at random: the rank, from 1, at
                which each has each displayed document; 0 if it does not display it.
            text: whatever the user should find in an export; stored only in a log that was opened with `hold_text`.
        """
        key = self._hashed(query)
        when = _time(time)
        matrix = self._matrix(features)
        ranks = None if other_ranks is None else _other_ranks(other_ranks, len(matrix))
        bits, documents = matrix.itemsize * 8, len(matrix)
        stored = matrix.tobytes()
        check = checksum(when, key, bits, documents, ranks, stored)
        kept = _text("text", text) if self._hold_text and text is not None else None
        values = (when, key, _text("version", version), self._schema, bits, documents, check, kept, ranks, stored)
        with self._connected() as connection:
            id_ = connection.execute(
                "INSERT INTO impressions (time, query, version, schema, bits, documents, checksum, text, other_ranks, "
                "features) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            ).lastrowid
            assert id_ is not None
            self._since_upkeep += 1
            if self._since_upkeep >= _EVERY or monotonic() - self._last_upkeep > _PAUSE:
                with suppress(sqlite3.OperationalError):  # a full disk, a busy file: the impression is stored
                    self._upkeep(connection)
        return id_

    def log_click(self, impression: int, rank: int, *, time: float | None = None) -> bool:
        """Store a click on the document that an impression displayed at a rank, from 1.

        Returns:
            Whether the log has it. False: the impression was forgotten, or never was; nothing is stored. A second click
            on the same document changes nothing.
        """
        check_number("rank", rank, least=1, whole=True)
        check_number("impression", impression, whole=True)
        when, id_, at = _time(time), int(impression), int(rank)
        if not 1 <= id_ <= _LARGEST_ID:
            return False
        with self._connected() as connection:
            added = connection.execute(
                "INSERT OR IGNORE INTO clicks SELECT id, ?, ? FROM impressions WHERE id = ? AND documents >= ?",
                (min(at, _LARGEST_ID), when, id_, min(at, _LARGEST_ID)),
            ).rowcount
            if added:
                return True
            found = connection.execute("SELECT documents FROM impressions WHERE id = ?", (id_,)).fetchone()
        if found is not None and at > found[0]:
            raise FultrError(f"rank: impression {id_} displayed {found[0]} documents, found a click at rank {at}")
        return found is not None

    def training_log(
        self,
        since: float | None = None,
        until: float | None = None,
        *,
        version: str | None = None,
        displayed: int | None = None,
    ) -> TrainingLog:
        """The impressions of a time, and all their clicks up to now, as training takes them.

        Nothing is marked as trained on: what is read twice comes twice, with the clicks that came meanwhile.

        Args:
            since: seconds since 1970, of the first impression; None: the oldest.
            until: later impressions, and one of exactly this time, are left out.
            version: only impressions of this version of the ranker.
            displayed: K; of longer impressions the first K documents are taken, and the clicks on them. None: the
                length of the longest.
        """
        if displayed is not None:
            check_number("displayed", displayed, least=1, most=1000, whole=True)
        with self._connected() as connection:
            self._upkeep(connection)
        with self._reader() as connection:
            return read_training(
                connection,
                self.path,
                schema=self._schema,
                width=self._width,
                since=-math.inf if since is None else _time(since),
                until=math.inf if until is None else _time(until),
                version=version,
                displayed=displayed,
            )

    def forget(self, *, query: str | bytes | int | None = None, before: float | None = None, all: bool = False) -> int:
        """Delete impressions and their clicks for good: no trace of them is left in the files.

        Takes time, as the file is written anew.

        Args:
            query: those of this query.
            before: those before this time, in seconds since 1970.
            all: all of them.

        Returns:
            How many impressions it were.
        """
        if (query is not None) + (before is not None) + bool(all) != 1:
            raise FultrError("forget: expected exactly one of query, before and all")
        condition, value = (
            ("query = ?", self._hashed(query)) if query is not None else
            ("time < ?", _time(before)) if before is not None else
            ("id >= ?", 0)
        )  # fmt: skip
        with self._connected() as connection:
            gone = forget_impressions(connection, condition, value)
            try:
                wiped, cause = wipe(connection), f"another process has been reading it for {WAIT:.0f} s"
            except sqlite3.OperationalError as error:
                wiped, cause = False, str(error)
        if not wiped:
            raise FultrError(
                f"{self.path}: {gone} impressions are forgotten, but traces of them are still in the file ({cause}): "
                "they go when forget is called again, or the log is opened"
            )
        return gone

    def export(self, target: str | os.PathLike[str] | TextIO) -> int:
        """Write all that is stored as lines of JSON, to a file that only its owner may read, or to a text stream.

        Returns:
            How many impressions it were.
        """
        if not isinstance(target, str | os.PathLike):
            return self._export(target)
        path = Path(target)
        if path.resolve().name.startswith(self.path.name) and path.resolve().parent == self.path.parent:
            raise FultrError(f"{path}: is the log itself, or beside it by its name: export to another path")
        with (
            written_whole(path) as temporary,
            open(temporary, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file,
        ):
            return self._export(file)

    def _export(self, stream: TextIO) -> int:
        written = -1  # the first line is not an impression
        with self._reader() as connection:
            for line in export_lines(connection, self.path, self._schema):
                stream.write(line + "\n")
                written += 1
        return written

    def stats(self) -> DeviceStats:
        """How much the log holds."""
        with self._reader() as connection:
            return read_stats(connection, self.path, self._schema)

    def schemas(self) -> list[FeatureSchema]:
        """The features that the log has been opened with so far, and how many impressions have them."""
        with self._reader() as connection:
            return read_schemas(connection, self._schema)

    def check(self) -> None:
        """Read everything, and refuse a damaged file; opening looks at a little only."""
        with self._reader() as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                raise damaged(self.path, found.splitlines()[-1])
            for _ in export_lines(connection, self.path, self._schema):
                pass

    def _upkeep(self, connection: sqlite3.Connection) -> None:
        self._since_upkeep, self._last_upkeep = 0, monotonic()
        if self._retention is not None:
            apply_retention(connection, self._retention, current_time())

    def _hashed(self, query: str | bytes | int) -> bytes:
        """The query's keyed hash; a text, bytes and a number are never the same query."""
        if isinstance(query, str):
            data = b"s" + query.encode("utf-8", "surrogatepass")
        elif isinstance(query, bytes):
            data = b"b" + query
        elif isinstance(query, int | np.integer) and not isinstance(query, bool):
            data = b"i%d" % int(query)
        else:
            raise FultrError(f"query: expected a text, bytes or a whole number, found {type(query).__name__}")
        return hashlib.blake2b(data, key=self._key, digest_size=16).digest()

    def _matrix(self, features: ArrayLike) -> np.ndarray:
        """[K, features] in the type that they are stored in."""
        dtype = DTYPES[self._dtype]
        try:
            with np.errstate(over="ignore"):
                matrix = np.ascontiguousarray(np.asarray(features), dtype)
        except (TypeError, ValueError):
            raise FultrError("features: expected numbers, a row for each displayed document") from None
        if matrix.ndim != 2 or matrix.shape[1] != self._width or not len(matrix):
            raise FultrError(
                f"features: expected a row of {self._width} for each displayed document, at least one; "
                f"found shape {np.shape(features)}"
            )
        if not np.isfinite(matrix).all():
            row, column = np.argwhere(~np.isfinite(matrix))[0]
            raise FultrError(
                f"features: expected finite numbers that a {self._dtype} can hold, "
                f"found {np.asarray(features)[row, column]} at rank {row + 1}, feature {column + 1}"
            )
        return matrix

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """The connection, for as long as the block lasts."""
        with self._lock, clear_errors(self.path):
            self._check_open()
            if self._connection is None:  # closed when the process forked
                self._connection = connect(self.path, write=True)
            yield self._connection

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own, that cannot write."""
        with self._reading, clear_errors(self.path):
            self._check_open()
            with closing(connect(self.path, write=False)) as connection:
                yield connection

    def _check_open(self) -> None:
        if self._closed:
            raise FultrError(f"{self.path}: the log was closed: open it again")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _described(features: Sequence[str] | int) -> tuple[int, str]:
    """How many features there are, and how their schema is stored."""
    if isinstance(features, int | np.integer):
        check_number("features", features, least=1, most=100_000, whole=True)
        return int(features), json.dumps(int(features))
    names = list(features)
    if isinstance(features, str) or not names or not all(isinstance(name, str) for name in names):
        raise FultrError("features: expected their number, or a list of their names")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FultrError(f"features: expected different names, found {twice!r} twice")
    return len(names), json.dumps(names)


def _schema(path: Path, connection: sqlite3.Connection, described: tuple[int, str] | None) -> tuple[int, int]:
    """Id and number of features of the schema that a log is opened with; a new one is noted."""
    if described is not None:
        find = "SELECT id, width FROM schemas WHERE names = ?", described[1:]
        if connection.execute(*find).fetchone() is None:
            with transaction(connection):
                connection.execute("INSERT OR IGNORE INTO schemas (width, names) VALUES (?, ?)", described)
        found = connection.execute(*find).fetchone()
    else:
        found = connection.execute(
            "SELECT id, width FROM schemas ORDER BY "
            "id = (SELECT schema FROM impressions ORDER BY id DESC LIMIT 1) DESC, id DESC LIMIT 1"
        ).fetchone()
    if found is None:
        raise FultrError(f"{path}: is an empty log: open it with the names or the number of its features")
    return int(found[0]), int(found[1])


def _time(time: float | None) -> float:
    if time is None:
        return current_time()
    check_number("time", time)
    return float(time)


def _text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise FultrError(f"{name}: expected a text, found {type(value).__name__}")
    return value.encode("utf-8", "replace").decode()  # a lone surrogate is no text that could be stored


def _other_ranks(given: ArrayLike, documents: int) -> bytes:
    ranks = np.asarray(given)
    if ranks.ndim != 2 or len(ranks) != documents or not ranks.size or ranks.dtype.kind not in "iu":
        raise FultrError(
            f"other_ranks: expected whole numbers, a row for each of the {documents} documents and a column for each "
            f"version; found shape {ranks.shape} of {ranks.dtype}"
        )
    if ranks.min() < 0 or ranks.max() > np.iinfo(RANKS).max:
        raise FultrError(f"other_ranks: expected ranks from 1, or 0 for none; found {ranks.min()} to {ranks.max()}")
    if not (ranks == np.arange(1, documents + 1)[:, np.newaxis]).all(axis=0).any():
        raise FultrError("other_ranks: expected one version to have the documents at ranks 1, 2, ... as displayed")
    return ranks.astype(RANKS).tobytes()


def _before_fork() -> None:
    """Close all connections: SQLite in the child would believe that it holds the parent's locks."""
    for log in list(_open_logs):
        log._lock.acquire()
        log._reading.acquire()
        with suppress(sqlite3.Error):
            log._disconnect()
        _forking.append(log)


def _after_fork() -> None:
    while _forking:
        log = _forking.pop()
        log._reading.release()
        log._lock.release()


_forking: list[DeviceLog] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
