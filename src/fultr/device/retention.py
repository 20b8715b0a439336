"""Deleting from a device's log: by age, number and size, and on request.

Age is measured by a clock that can be wrong for a while, so the log remembers how late it has seen it to be. If the
clock is suddenly more than a day ahead of that, it is believed after it has gone on for a day from there.
"""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import dataclass
from typing import NamedTuple

from fultr.core.checks import check_number
from fultr.device.sqlite import is_full, transaction

_DAY = 86_400.0
_LARGEST_STEP = 2**40  # all at once
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
            _expire(connection, retention.days * _DAY, now)
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


class _Clock(NamedTuple):
    """What a log remembers of the clock.

    Attributes:
        latest: the latest time that is believed; None: nothing was seen yet.
        leapt: where the clock leapt to, if it is not believed yet.
        future_seen: when impressions from the future were first seen; None: there are none.
        future_id: the largest id that these had then.
    """

    latest: float | None = None
    leapt: float | None = None
    future_seen: float | None = None
    future_id: int = 0


def _expire(connection: sqlite3.Connection, age: float, now: float) -> None:
    """Delete what is older than an age, and what bears a date that has been in the future for as long."""
    known = _Clock(*json.loads(connection.execute("SELECT value FROM settings WHERE name = 'clock'").fetchone()[0]))
    latest = known.latest
    if latest is None:
        newest = connection.execute("SELECT max(time) FROM impressions WHERE time <= ?", (now,)).fetchone()[0]
        latest = now if newest is None else newest
    leapt: float | None = None
    if now <= latest + _DAY or (known.leapt is not None and now >= known.leapt + _DAY):
        latest = now
    else:
        leapt = now if known.leapt is None else min(known.leapt, now)
    today = min(now, latest)
    connection.execute("DELETE FROM impressions WHERE time < ?", (today - age,))
    connection.execute("DELETE FROM personal WHERE made < ?", (today - age,))
    seen, id_ = known.future_seen, known.future_id
    if seen is not None and today - seen > age:
        connection.execute("DELETE FROM impressions WHERE time > ? AND id <= ?", (today + _DAY, id_))
        seen = None
    if seen is None:
        id_ = connection.execute("SELECT max(id) FROM impressions WHERE time > ?", (today + _DAY,)).fetchone()[0] or 0
        seen = today if id_ else None
    found = _Clock(latest, leapt, seen, id_)
    if found != known:
        connection.execute("UPDATE settings SET value = ? WHERE name = 'clock'", (json.dumps(found),))


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM impressions").fetchone()[0])


def _used(connection: sqlite3.Connection) -> int:
    """Bytes of the file, without free pages."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def forget_impressions(connection: sqlite3.Connection, condition: str, value: object) -> tuple[int, bool]:
    """Delete the impressions that meet a condition and the personal layer, and record that the file must be wiped.

    Returns how many were deleted, and whether that is all.

    On a full disk this goes a few at a time: what is in the -wal file is moved to its place in the log, where pages are
    overwritten, and the -wal file is used again from its beginning.
    """
    gone, step = 0, _LARGEST_STEP
    while True:
        try:
            found = _forget_some(connection, condition, value, step)
        except sqlite3.OperationalError as error:
            if not is_full(error) or (step == 1 and not gone):
                raise
            if step == 1:
                return gone, False
            step = 64 if step == _LARGEST_STEP else step // 4
        else:
            gone += found
            if found < step:
                return gone, True
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()


def _forget_some(connection: sqlite3.Connection, condition: str, value: object, most: int) -> int:
    with transaction(connection):
        gone = connection.execute(
            f"DELETE FROM impressions WHERE id IN (SELECT id FROM impressions WHERE {condition} LIMIT ?)", (value, most)
        ).rowcount
        layers = connection.execute("DELETE FROM personal").rowcount  # fitted to what is forgotten, perhaps
        if gone or layers:
            connection.execute("UPDATE settings SET value = value + 1 WHERE name = 'wipes'")
    return gone


def wipe(connection: sqlite3.Connection) -> bool:
    """Rewrite the file so that nothing forgotten is left in it or in the -wal file; False if others are reading.

    Does nothing if nothing was forgotten since the last time. `secure_delete` alone is not enough: when SQLite moves
    rows between pages, it leaves copies in the space between them. Without space to rewrite the file, that is all there
    is: the mark stays, and the next one to open the file tries again.
    """
    wanted = connection.execute("SELECT value FROM settings WHERE name = 'wipes'").fetchone()[0]
    if not wanted:
        return True
    rewritten = _rewrite(connection)
    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    if not rewritten and not busy and _rewrite(connection):  # now that the -wal file takes no space
        rewritten = True
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    if busy:
        return False
    if rewritten:
        # Unless another process has forgotten something meanwhile. This comes last: if the process is killed before,
        # the mark stays, and the next one to open the file wipes it.
        connection.execute("UPDATE settings SET value = 0 WHERE name = 'wipes' AND value = ?", (wanted,))
    return True


def _rewrite(connection: sqlite3.Connection) -> bool:
    """Copy all rows into new pages; False without the space to do so."""
    try:
        connection.execute("VACUUM")
    except sqlite3.OperationalError as error:
        if not is_full(error):
            raise
        return False
    return True
