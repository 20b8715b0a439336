"""The log that a search application keeps on the device: what was displayed, and what was clicked.

Clicks never leave the device; training starts from `DeviceLog.records`, which gives the same kind of `ClickLog` as
simulation. docs/device-log.md says what can happen to a log, and what happens then.
"""

from __future__ import annotations

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

from numpy.typing import ArrayLike

from fultr.clicks.log import Records
from fultr.core.checks import check_choice, check_number
from fultr.core.errors import FultrError
from fultr.core.files import written_whole
from fultr.device.ledger import History, Moment, read_history
from fultr.device.records import read_records
from fultr.device.retention import Retention, apply_retention, forget_impressions, wipe
from fultr.device.sqlite import WAIT, clear_errors, connect, damaged, files_of, open_file, transaction
from fultr.device.values import (
    DTYPES,
    checked_text,
    checked_time,
    checksum,
    described_features,
    feature_matrix,
    query_hash,
    ranks_of_versions,
)
from fultr.device.view import (
    DeviceStats,
    FeatureSchema,
    LoggedSearch,
    current_schema,
    export_lines,
    read_latest,
    read_schemas,
    read_stats,
)

_EVERY, _PAUSE = 100, 3600.0  # retention is applied after this many impressions, or seconds, of this process
_LARGEST_ID = 2**63 - 1
_open_logs: weakref.WeakSet[DeviceLog] = weakref.WeakSet()


class DeviceLog:
    """A log in one file. Any number of threads and processes may use it at once.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "search.db"
    >>> with DeviceLog.open(path, features=["title match", "freshness"]) as log:
    ...     shown = log.log_impression("best pizza", [[0.9, 0.2], [0.4, 0.7]], version="ranker 7")
    ...     log.log_click(shown, rank=2)
    ...     log.records().log.clicks.tolist()
    True
    [[0, 1]]
    """

    # One connection for short operations, under a lock: SQLite allows one writer at a time anyway, and the log knows
    # what to close. Long reads have their own connection, so that logging a click never waits for them.

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
        normalised: bool = True,
        dtype: Literal["float32", "float16"] = "float32",
        retention: Retention | None = Retention(),
        hold_text: bool = False,
    ) -> DeviceLog:
        """Open a log, or create one.

        Args:
            path: of the file; its folder must exist. SQLite keeps two more files next to it, -wal and -shm.
            features: the names of the documents' features, in order, or how many there are. Impressions with other
                features stay in the file, but are not trained on. None: those of the last impression, for inspecting
                an existing log.
            normalised: are the features scaled to [0, 1] within each query? It is part of what they are: a federation
                trains with logs that say the same. Without `features` it is what the log says.
            dtype: how features are stored. "float16" takes half the space, and costs precision: values are rounded to
                11 bits (a relative error of up to 2**-11, or 2**-25 if they are below 2**-14), and none may be above
                65,504.
            retention: how much is kept. None: everything.
            hold_text: store the `text` of impressions. Otherwise it is dropped.
        """
        check_choice("dtype", dtype, tuple(DTYPES))
        if not isinstance(retention, Retention | None):
            raise FultrError(f"retention: expected a value of type Retention, or None; found {retention!r}")
        described = None if features is None else described_features(features, normalised)
        file = Path(path).resolve()
        connection = open_file(file, create=features is not None)
        try:
            with clear_errors(file):
                schema, width = _schema(file, connection, described)
                log = cls(file, connection, schema, width, dtype, retention, hold_text)
                log._upkeep(connection)
                with suppress(sqlite3.OperationalError):
                    wipe(connection)  # what a killed process left behind
        except BaseException:
            connection.close()
            raise
        return log

    def __enter__(self) -> DeviceLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the log cannot be used afterwards. Closing twice is fine."""
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
        """Store what was displayed for a query; returns the id for logging its clicks.

        Args:
            query: used to recognise equal queries. A keyed hash of it is stored, not the query.
            features: [K, features], of the displayed documents, from rank 1.
            version: of the ranker.
            time: seconds since 1970; now if None.
            other_ranks: [K, versions] where several versions of the ranker are in use at random: the rank, from 1, at
                which each has each displayed document; 0 if it does not display it.
            text: whatever the user should find in an export; stored only if the log was opened with `hold_text`.
        """
        key = query_hash(query, self._key)
        when = checked_time(time)
        matrix = feature_matrix(features, self._width, self._dtype)
        ranks = None if other_ranks is None else ranks_of_versions(other_ranks, len(matrix))
        bits, documents = matrix.itemsize * 8, len(matrix)
        stored = matrix.tobytes()
        check = checksum(when, key, bits, documents, ranks, stored)
        kept = checked_text("text", text) if self._hold_text and text is not None else None
        name = checked_text("version", version)
        values = (when, key, name, self._schema, bits, documents, check, kept, ranks, stored)
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
            Whether the log has it. False: the impression was forgotten, or never existed; nothing is stored. A second
            click on the same document changes nothing.
        """
        check_number("rank", rank, least=1, whole=True)
        check_number("impression", impression, whole=True)
        when, id_, at = checked_time(time), int(impression), int(rank)
        if not 1 <= id_ <= _LARGEST_ID:
            return False
        with self._connected() as connection:
            added = connection.execute(
                "INSERT OR IGNORE INTO clicks SELECT id, :rank, :time, value, click_checksum(id, :rank, :time, value) "
                "FROM impressions, settings WHERE id = :id AND documents >= :rank AND name = 'batch'",
                {"rank": min(at, _LARGEST_ID), "time": when, "id": id_},
            ).rowcount
            if added:
                return True
            found = connection.execute("SELECT documents FROM impressions WHERE id = ?", (id_,)).fetchone()
        if found is not None and at > found[0]:
            raise FultrError(
                f"rank: expected 1 to {found[0]}, the documents that impression {id_} displayed; found {at}"
            )
        return found is not None

    def records(
        self,
        since: float | None = None,
        until: float | None = None,
        *,
        version: str | None = None,
        displayed: int | None = None,
    ) -> Records:
        """The impressions of a period, and all their clicks up to now, in the form that training uses.

        Nothing is marked as used: a second call returns the same impressions, with the clicks that came meanwhile.

        Args:
            since: start of the period, in seconds since 1970; None: the oldest impression.
            until: end of the period; impressions at or after this time are left out.
            version: only impressions of this version of the ranker.
            displayed: K; of longer impressions the first K documents are taken, and the clicks on them. None: the
                length of the longest.
        """
        if displayed is not None:
            check_number("displayed", displayed, least=1, most=1000, whole=True)
        with self._connected() as connection:
            self._upkeep(connection)
        with self._reader() as connection:
            return read_records(
                connection,
                self.path,
                schema=self._schema,
                width=self._width,
                since=-math.inf if since is None else checked_time(since),
                until=math.inf if until is None else checked_time(until),
                version=version,
                displayed=displayed,
            )

    def forget(self, *, query: str | bytes | int | None = None, before: float | None = None, all: bool = False) -> int:
        """Delete impressions and their clicks permanently: no trace of them is left in the files.

        This takes time, as the file is rewritten. On a full disk their rows are overwritten where they are, and the
        file is rewritten when there is space: until then, copies may be left that SQLite made when it moved rows.

        Args:
            query: those of this query.
            before: those before this time, in seconds since 1970.
            all: all of them.

        Returns:
            How many impressions were deleted.
        """
        if (query is not None) + (before is not None) + bool(all) != 1:
            raise FultrError("forget: expected exactly one of query, before and all")
        condition, value = (
            ("query = ?", query_hash(query, self._key)) if query is not None else
            ("time < ?", checked_time(before)) if before is not None else
            ("id >= ?", 0)
        )  # fmt: skip
        with self._connected() as connection:
            gone, complete = forget_impressions(connection, condition, value)
            try:
                wiped, cause = wipe(connection), f"another process has been reading it for {WAIT:.0f} s"
            except sqlite3.OperationalError as error:
                wiped, cause = False, str(error)
        if not complete:
            raise FultrError(
                f"{self.path}: {gone} impressions are deleted, and others are not yet: the disk is full; "
                "free some space, and call forget again"
            )
        if not wiped:
            raise FultrError(
                f"{self.path}: {gone} impressions are deleted, but traces of them are still in the file ({cause}): "
                "they are removed when forget is called again, or the log is opened"
            )
        return gone

    def export(self, target: str | os.PathLike[str] | TextIO) -> int:
        """Write everything stored as lines of JSON, to a file that only its owner may read, or to a text stream.

        Returns:
            How many impressions were written.
        """
        if not isinstance(target, str | os.PathLike):
            return self._export(target)
        path = Path(target)
        if path.resolve() in files_of(self.path):
            raise FultrError(f"{path}: is the log itself: export to another path")
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

    def latest(self, most: int) -> list[LoggedSearch]:
        """The latest impressions with their clicks, the latest first: what a user may want to forget."""
        with self._reader() as connection:
            return read_latest(connection, most)

    def schemas(self) -> list[FeatureSchema]:
        """The features that the log has been opened with so far, and how many impressions have them."""
        with self._reader() as connection:
            return read_schemas(connection, self._schema)

    def history(self) -> History:
        """Every task that came, what was answered or why not: what `fultr device history` shows."""
        with self._reader() as connection:
            return read_history(connection, Moment.now())

    def check(self) -> None:
        """Read everything, and refuse a damaged file; opening checks only a little."""
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

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """The connection, for the duration of the block."""
        with self._lock, clear_errors(self.path):
            self._check_open()
            if self._connection is None:  # closed when the process forked
                self._connection = connect(self.path, write=True)
            yield self._connection

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """A separate connection that cannot write."""
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


def _schema(path: Path, connection: sqlite3.Connection, described: tuple[int, str] | None) -> tuple[int, int]:
    """Id and number of features of the schema that a log is opened with; a new one is stored."""
    if described is not None:
        find = "SELECT id, width FROM schemas WHERE names = ?", described[1:]
        if connection.execute(*find).fetchone() is None:
            with transaction(connection):
                connection.execute("INSERT OR IGNORE INTO schemas (width, names) VALUES (?, ?)", described)
        found = connection.execute(*find).fetchone()
    else:
        found = current_schema(path, connection)
    return int(found[0]), int(found[1])


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
