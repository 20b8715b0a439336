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
from fultr.device.values import DTYPES, RANKS, checksum

COLUMNS = "id, time, query, bits, documents, checksum, other_ranks, features"


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
    which = "impressions.time >= ? AND impressions.time < ? AND (? IS NULL OR version = ?) AND schema"
    values = (since, until, version, version, schema)
    connection.execute("BEGIN")  # one state of the log for all that follows
    rows = connection.execute(f"SELECT version, {COLUMNS} FROM impressions WHERE {which} = ? ORDER BY time, id", values)
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
        f"SELECT impression, rank FROM clicks JOIN impressions ON id = impression WHERE {which} = ?",
        values,
    ).fetchall()
    left_out = connection.execute(f"SELECT count(*) FROM impressions WHERE {which} != ?", values).fetchone()[0]
    connection.execute("COMMIT")
    size = max((len(matrix) for matrix in shown), default=1) if displayed is None else displayed
    place = {id_: i for i, id_ in enumerate(ids)}
    clicks = np.zeros((len(ids), size), np.uint8)
    for impression, rank in clicked:
        i = place[impression]
        if not isinstance(rank, int) or not 1 <= rank <= lengths[i]:
            raise damaged(path, f"impression {impression} has a click at rank {rank}")
        if rank <= size:
            clicks[i, rank - 1] = 1
    log = ClickLog(np.array(queries, np.int32), clicks, np.array([0, len(ids)]))
    return Records(log, _display(shown, recorded, size, width), np.array(ids, np.int64), tuple(versions), left_out)


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
