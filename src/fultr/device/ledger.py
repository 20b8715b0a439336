"""The ledger: every task that came, what was answered or why not, and how much may still be answered.

It is a table of the log's own file, for the owner to read (`fultr device history`). An answer is entered before it is
handed out, so a crash costs an answer and never gives one away. Limits count from it, by a clock of its own: while the
device is switched on, that goes by the time since it was started, which nobody sets.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fultr.core.system import boot_id

if TYPE_CHECKING:  # an application that logs has no use for it
    from fultr.device.policy import DevicePolicy

Outcome = Literal["answered", "revealed", "refused", "not a task"]
_REFUSED = "outcome IN ('refused', 'not a task')"
_DAY = 86_400.0
_KEPT = 10_000  # refusals that are listed one by one
_DIGITS = 20  # of numbers that a server tells: any that fit 64 bits


class Moment(NamedTuple):
    """What the device's clocks say.

    Attributes:
        time: seconds since 1970, by the clock that can be set.
        boot: what is different after every start of the device; where there is none, of this process.
        running: seconds since that start.
    """

    time: float
    boot: str
    running: float

    @classmethod
    def now(cls) -> Moment:
        """As of now."""
        clock = getattr(time, "CLOCK_BOOTTIME", None)  # it goes on while the device sleeps
        boot = boot_id()
        if clock is None or not boot:
            return cls(time.time(), boot or _process(), time.monotonic())
        return cls(time.time(), boot, time.clock_gettime(clock))


@cache
def _process() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Asked:
    """What a task asked for, as the server told it.

    Attributes:
        run: number of the run.
        round: t, from 0.
        kinds: "update", "examination", "judgement".
        estimator: of examination; empty if there is none.
    """

    run: int = 0
    round: int = 0
    kinds: tuple[str, ...] = ()
    estimator: str = ""


@dataclass(frozen=True)
class Sent:
    """An array that was sent: its name, how many numbers it has, and their norm."""

    name: str
    size: int
    norm: float


@dataclass(frozen=True)
class Entry:
    """What became of a task.

    Attributes:
        time: by the device's clock, in seconds since 1970.
        outcome: "answered"; "revealed", the second message of a secure sum; "refused" or "not a task".
        reason: why not, in words that never leave the device.
        asked: what the task asked for.
        sent: what was sent. Nothing, though it was answered: the device stopped before the answer was complete.
        impressions: from which the answer was made.
        clicks: from which the answer was made.
        batch: the latest of these, counted from 1.
    """

    time: float
    outcome: Outcome
    reason: str = ""
    asked: Asked = Asked()
    sent: tuple[Sent, ...] = ()
    impressions: int = 0
    clicks: int = 0
    batch: int = 0


@dataclass(frozen=True)
class History:
    """All that the ledger knows.

    Attributes:
        entries: the oldest first.
        earlier_refusals: that are older than the first 10,000, and only counted.
        answered: answers in all.
        answered_today: answers in the last 24 hours, by the ledger's clock.
    """

    entries: tuple[Entry, ...]
    earlier_refusals: int
    answered: int
    answered_today: int


def passed(connection: sqlite3.Connection, now: Moment) -> float:
    """What the ledger's clock shows: seconds since its first entry. It never goes back, nor faster than the device's.

    Only if the device was switched off since the last entry does the clock count that can be set.
    """
    stored = connection.execute("SELECT value FROM settings WHERE name = 'ledger clock'").fetchone()[0]
    ticks, *last = json.loads(stored)
    before = Moment(*last)
    if before.boot == now.boot:
        return float(ticks + max(0.0, now.running - before.running))
    return float(ticks + (max(0.0, now.time - before.time) if before.boot else 0.0))


def move_clock(connection: sqlite3.Connection, now: Moment) -> float:
    """Note that it is now; returns what the ledger's clock shows."""
    ticks = passed(connection, now)
    connection.execute("UPDATE settings SET value = ? WHERE name = 'ledger clock'", (json.dumps([ticks, *now]),))
    return ticks


def over_limit(connection: sqlite3.Connection, policy: DevicePolicy, ticks: float) -> str | None:
    """Why there may be no answer now, in words; None if there may be one."""
    answered, today = _counts(connection, ticks)
    if answered >= policy.answers_in_all:
        return f"{answered} answers in all, and the limit is {policy.answers_in_all}"
    if today >= policy.answers_a_day:
        return f"{today} answers in 24 hours, and the limit is {policy.answers_a_day}"
    last = connection.execute("SELECT max(ticks) FROM ledger WHERE outcome = 'answered'").fetchone()[0]
    if last is not None and ticks - last < policy.seconds_apart:
        return f"{ticks - last:.3g} s after the last answer, and the limit is {policy.seconds_apart:g} s"
    return None


def over_participation(connection: sqlite3.Connection, asked: Asked, most: int, apart: int) -> str | None:
    """Why a run gets no answer now that already had some, in words; None if it may have one.

    Args:
        connection: to the log.
        asked: the run, and the round.
        most: answers to a run.
        apart: rounds from one answer to the next.
    """
    rounds = [
        int(told)
        for (told,) in connection.execute(
            "SELECT round FROM ledger WHERE outcome = 'answered' AND run = ?", (str(asked.run)[:_DIGITS],)
        )
    ]
    if len(rounds) >= most:
        return f"{len(rounds)} answers to this run, and the limit is {most}"
    nearest = min((abs(asked.round - round_) for round_ in rounds), default=apart)
    if nearest < apart:
        return f"{nearest} rounds from another answer to this run, and the limit is {apart}"
    return None


def _counts(connection: sqlite3.Connection, ticks: float) -> tuple[int, int]:
    """Answers in all, and in the last 24 hours."""
    found = connection.execute(
        "SELECT count(*), coalesce(sum(ticks > ?), 0) FROM ledger WHERE outcome = 'answered'", (ticks - _DAY,)
    ).fetchone()
    return int(found[0]), int(found[1])


def enter(connection: sqlite3.Connection, entry: Entry, ticks: float) -> int:
    """Write an entry; returns its number."""
    asked = entry.asked
    number = connection.execute(
        "INSERT INTO ledger (ticks, time, outcome, reason, run, round, kinds, estimator, sent, impressions, clicks, "
        "batch) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            ticks,
            entry.time,
            entry.outcome,
            _one_line(entry.reason),
            str(asked.run)[:_DIGITS],
            str(asked.round)[:_DIGITS],
            ",".join(asked.kinds),
            asked.estimator,
            json.dumps([[array.name, array.size, array.norm] for array in entry.sent]),
            entry.impressions,
            entry.clicks,
            entry.batch,
        ),
    ).lastrowid
    assert number is not None
    if entry.outcome in ("refused", "not a task"):
        _sum_up(connection)
    return number


def _one_line(reason: str) -> str:
    """Words that may contain what a server sent, as they can be shown."""
    return "".join(sign if sign.isprintable() else " " for sign in reason[:500])


def _sum_up(connection: sqlite3.Connection) -> None:
    """Count the oldest refusals instead of listing them, if there are too many."""
    listed = connection.execute(f"SELECT count(*) FROM ledger WHERE {_REFUSED}").fetchone()[0]
    if listed <= _KEPT:
        return
    gone = connection.execute(
        f"DELETE FROM ledger WHERE id IN (SELECT id FROM ledger WHERE {_REFUSED} ORDER BY id LIMIT ?)",
        (listed - _KEPT,),
    ).rowcount
    connection.execute("UPDATE settings SET value = value + ? WHERE name = 'earlier refusals'", (gone,))


def complete(connection: sqlite3.Connection, number: int, sums: Mapping[str, NDArray[Any]]) -> None:
    """Enter what is about to be sent."""
    sent = [[name, int(array.size), float(np.linalg.norm(array.astype(np.float64)))] for name, array in sums.items()]
    connection.execute("UPDATE ledger SET sent = ? WHERE id = ?", (json.dumps(sent), number))


def spoil(connection: sqlite3.Connection, number: int, reason: str) -> None:
    """Note why an answer could not be made. It counts all the same: that it could not be made is an answer too."""
    connection.execute("UPDATE ledger SET reason = ? WHERE id = ?", (_one_line(reason), number))


def read_history(connection: sqlite3.Connection, now: Moment) -> History:
    """All that the ledger knows."""
    connection.execute("BEGIN")
    rows = connection.execute(
        "SELECT time, outcome, reason, run, round, kinds, estimator, sent, impressions, clicks, batch FROM ledger "
        "ORDER BY id"
    ).fetchall()
    entries = []
    for when, outcome, reason, run, round_, kinds, estimator, sent, impressions, clicks, batch in rows:
        asked = Asked(int(run), int(round_), tuple(kinds.split(",")) if kinds else (), estimator)
        arrays = tuple(Sent(*array) for array in json.loads(sent))
        entries.append(Entry(when, outcome, reason, asked, arrays, impressions, clicks, batch))
    earlier = connection.execute("SELECT value FROM settings WHERE name = 'earlier refusals'").fetchone()[0]
    answered, today = _counts(connection, passed(connection, now))
    connection.execute("COMMIT")
    return History(tuple(entries), earlier, answered, today)
