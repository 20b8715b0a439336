"""Deleting from a device's log: by age, number and size, and on request."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass

from fultr.core.checks import check_number
from fultr.device.sqlite import transaction

_DAY = 86_400.0
_OLDEST = "SELECT id FROM impressions ORDER BY time, id LIMIT ?"


@dataclass(frozen=True)
class Retention:
    """How much a log keeps; the oldest impressions go first. None: no limit.

    Attributes:
        days: maximum age of an impression.
        impressions: maximum number of impressions.
        megabytes: maximum size of the file, in 10**6 bytes. The -wal file next to it takes up to about 8 more.
    """

    days: float | None = 90.0
    impressions: int | None = 10_000
    megabytes: float | None = 100.0

    def __post_init__(self) -> None:
        if self.days is not None:
            check_number("days", self.days, above=0)
        if self.impressions is not None:
            check_number("impressions", self.impressions, least=1, whole=True)
        if self.megabytes is not None:
            check_number("megabytes", self.megabytes, least=0.1)


def apply_retention(connection: sqlite3.Connection, retention: Retention, now: float) -> int:
    """Remove what exceeds the limits; returns how many impressions were removed."""
    with transaction(connection):
        before = _count(connection)
        if retention.days is not None:
            connection.execute("DELETE FROM impressions WHERE time < ?", (now - retention.days * _DAY,))
        if retention.impressions is not None:
            surplus = _count(connection) - retention.impressions
            connection.execute(f"DELETE FROM impressions WHERE id IN ({_OLDEST})", (max(surplus, 0),))
        if retention.megabytes is not None:
            limit = retention.megabytes * 1e6
            while (used := _used(connection)) > limit and (left := _count(connection)):
                surplus = math.ceil(left * (used - limit) / used)  # as if all had the same size
                connection.execute(f"DELETE FROM impressions WHERE id IN ({_OLDEST})", (surplus,))
        gone = before - _count(connection)
    if gone:
        connection.executescript("PRAGMA incremental_vacuum")  # a script: `execute` would free only one page
    return gone


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM impressions").fetchone()[0])


def _used(connection: sqlite3.Connection) -> int:
    """Bytes of the file, without free pages."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def forget_impressions(connection: sqlite3.Connection, condition: str, value: object) -> int:
    """Delete the impressions that meet a condition, and record that the file must be wiped."""
    with transaction(connection):
        gone = connection.execute(f"DELETE FROM impressions WHERE {condition}", (value,)).rowcount
        if gone:
            connection.execute("UPDATE settings SET value = value + 1 WHERE name = 'wipes'")
    return gone


def wipe(connection: sqlite3.Connection) -> bool:
    """Rewrite the file so that nothing forgotten is left in it or in the -wal file; False if others are reading.

    Does nothing if nothing was forgotten since the last time. `secure_delete` alone is not enough: when SQLite moves
    rows between pages, it leaves copies in the space between them.
    """
    wanted = connection.execute("SELECT value FROM settings WHERE name = 'wipes'").fetchone()[0]
    if not wanted:
        return True
    connection.execute("VACUUM")
    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    if busy:
        return False
    # Unless another process has forgotten something meanwhile. This comes last: if the process is killed before, the
    # mark stays, and the next one to open the file wipes it.
    connection.execute("UPDATE settings SET value = 0 WHERE name = 'wipes' AND value = ?", (wanted,))
    return True
