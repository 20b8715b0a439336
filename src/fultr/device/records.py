"""From a device's log to records: the type that simulation and click-log files yield too."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.clicks.log import ClickLog, Display, Records
from fultr.core.arrays import Float32s, Int64s
from fultr.device.sqlite import damaged
from fultr.device.values import DTYPES, RANKS, checksum, click_checksum

COLUMNS = "id, time, query, bits, documents, checksum, other_ranks, features"
CLICK_COLUMNS = "clicks.impression, clicks.rank, clicks.time, clicks.batch, clicks.checksum"


class Stored(NamedTuple):
    """What an impression displayed, as it is stored."""

    id: int
    time: float
    query: bytes
    bits: int
    documents: int
    checksum: int
    other_ranks: bytes | None
    features: bytes

    def matrix(self, path: Path, width: int) -> NDArray[np.floating[Any]]:
        """Features [K, features] in the type that they were stored in; refuses what is not what was written."""
        try:
            if self.checksum == checksum(*self[1:5], *self[6:]):
                return np.frombuffer(self.features, DTYPES[f"float{self.bits}"]).reshape(self.documents, width)
        except (TypeError, ValueError, KeyError, struct.error):  # not even of the right kind
            pass
        raise damaged(path, f"impression {self.id} is not as it was written")

    def ranks(self) -> Int64s | None:
        """[K, versions] from 1; 0: nowhere."""
        if self.other_ranks is None:
            return None
        return np.frombuffer(self.other_ranks, RANKS).reshape(self.documents, -1).astype(np.int64)


def checked_click(
    path: Path, impression: int, rank: int, time: float, batch: int, checksum: int
) -> tuple[int, int, float]:
    """A click's impression, rank and time; refuses what is not what was written."""
    if checksum != click_checksum(impression, rank, time, batch):
        raise damaged(path, f"a click on impression {impression} is not as it was written")
    return impression, rank, time


class Window(NamedTuple):
    """Some batches of the log, each from one number to before another: of clicks, and of the ids of impressions."""

    first_batch: int = 0
    end_batch: int = 2**62
    first_impression: int = 0
    end_impression: int = 2**62


def read_records(
    connection: sqlite3.Connection,
    path: Path,
    *,
    schema: int,
    width: int,
    since: float,
    until: float,
    version: str | None,
    displayed: int | None,
) -> Records:
    """The impressions of a time, with all their clicks up to now; see `DeviceLog.records`."""
    which = "impressions.time >= ? AND impressions.time < ? AND (? IS NULL OR version = ?)"
    values = (since, until, version, version)
    return _records(connection, path, schema, width, displayed, which, values, Window())


def read_window(
    connection: sqlite3.Connection, path: Path, *, schema: int, width: int, displayed: int, window: Window
) -> Records:
    """What was logged in some batches: their clicks, their impressions, and the impressions of late clicks."""
    which = IN_WINDOW.format(*"????")
    values = (*window[2:], *window[:2])
    return _records(connection, path, schema, width, displayed, which, values, window)


IN_WINDOW = (
    "(id >= {} AND id < {} OR id IN (SELECT impression FROM clicks WHERE clicks.batch >= {} AND clicks.batch < {}))"
)


def _records(
    connection: sqlite3.Connection,
    path: Path,
    schema: int,
    width: int,
    displayed: int | None,
    which: str,
    values: tuple[object, ...],
    window: Window,
) -> Records:
    """The impressions that meet a condition, with their clicks in a window."""
    connection.execute("BEGIN")  # one state of the log for all that follows
    rows = connection.execute(
        f"SELECT version, {COLUMNS} FROM impressions WHERE {which} AND schema = ? ORDER BY time, id", (*values, schema)
    )
    versions: list[str] = []
    ids: list[int] = []
    lengths: list[int] = []
    queries: list[int] = []
    found: dict[tuple[bytes, bytes, bytes | None], int] = {}
    shown: list[Float32s] = []
    recorded: list[Int64s | None] = []
    for made_by, *row in rows:
        stored = Stored(*row)
        matrix = stored.matrix(path, width)[:displayed].astype(np.float32)
        ranks = stored.ranks()
        ranks = None if ranks is None else ranks[:displayed] - 1
        key = (stored.query, matrix.tobytes(), None if ranks is None else ranks.tobytes())
        if key not in found:
            found[key] = len(shown)
            shown.append(matrix)
            recorded.append(ranks)
        queries.append(found[key])
        ids.append(stored.id)
        lengths.append(stored.documents)
        versions.append(made_by)
    clicked = connection.execute(
        f"SELECT {CLICK_COLUMNS} FROM clicks JOIN impressions ON id = impression "
        f"WHERE {which} AND schema = ? AND clicks.batch >= ? AND clicks.batch < ?",
        (*values, schema, *window[:2]),
    ).fetchall()
    left_out = connection.execute(f"SELECT count(*) FROM impressions WHERE {which} AND schema != ?", (*values, schema))
    others = left_out.fetchone()[0]
    connection.execute("COMMIT")
    size = max((len(matrix) for matrix in shown), default=1) if displayed is None else displayed
    place = {id_: i for i, id_ in enumerate(ids)}
    clicks = np.zeros((len(ids), size), np.uint8)
    for row in clicked:
        impression, rank, _ = checked_click(path, *row)
        i = place[impression]
        if not 1 <= rank <= lengths[i]:
            raise damaged(path, f"impression {impression} has a click at rank {rank}")
        if rank <= size:
            clicks[i, rank - 1] = 1
    log = ClickLog(np.array(queries, np.int32), clicks, np.array([0, len(ids)]))
    return Records(log, _display(shown, recorded, size, width), np.array(ids, np.int64), tuple(versions), others)


def _display(shown: Sequence[Float32s], recorded: Sequence[Int64s | None], size: int, width: int) -> Display:
    """What some queries displayed: a matrix of features each, and at which rank other versions have each document."""
    lengths = np.array([len(matrix) for matrix in shown], np.int64)
    offsets = np.r_[0, np.cumsum(lengths)]
    ranks = np.arange(size)
    rows = np.where(ranks < lengths[:, np.newaxis], offsets[:-1, np.newaxis] + ranks, -1)
    features = np.concatenate([np.empty((0, width), np.float32), *shown])
    versions = max((known.shape[1] for known in recorded if known is not None), default=0)
    other_ranks = None
    if versions:
        other_ranks = np.full((len(shown), size, versions), -1)
        for q, known in enumerate(recorded):
            if known is not None:
                other_ranks[q, : known.shape[0], : known.shape[1]] = known
    return Display.of_rows(features, rows, recorded_ranks=other_ranks)
