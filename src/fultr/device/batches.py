"""Batches: which clicks and impressions an answer is made from.

What a log takes up belongs to the open batch. When an answer is about to be given, and the open batch has enough, it is
closed; answers are made from closed batches alone. So the set behind an answer is that of the last one, or it has a
batch more: nobody who compares two answers sees fewer clicks than a batch has. If something was deleted since the last
answer, there is none until a batch has closed.

The impressions that train and those that only judge are two parts, each with batches of its own.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fultr.clicks.log import Records
from fultr.core.arrays import Bools, Int64s
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, uniforms
from fultr.device.policy import DevicePolicy
from fultr.device.records import IN_WINDOW, Window, read_window

Part = Literal["training", "held out"]


@dataclass(frozen=True)
class Shape:
    """Which impressions count: those of a schema, with its number of features, and of these the first K documents."""

    schema: int
    width: int
    displayed: int


@dataclass(frozen=True, eq=False)
class Chosen:
    """What an answer is made from, of one part.

    Attributes:
        part: which.
        window: its batches.
        closes: is the last of them closed by this answer?
        impressions: how many.
        clicks: how many.
        fingerprint: of all of these.
    """

    part: Part
    window: Window
    closes: bool
    impressions: int
    clicks: int
    fingerprint: bytes


def held_out_seed(connection: sqlite3.Connection) -> int:
    """The seed of the choice of held-out impressions: it follows from the log's secret, so that no server knows it."""
    key = connection.execute("SELECT value FROM settings WHERE name = 'query key'").fetchone()[0]
    return int.from_bytes(hashlib.blake2b(b"held out", key=key, digest_size=5).digest(), "big")


def choose(connection: sqlite3.Connection, part: Part, shape: Shape, policy: DevicePolicy) -> Chosen:
    """What an answer would be made from now; an error says what it must wait for. Within a transaction."""
    seed = held_out_seed(connection)
    before = connection.execute(
        "SELECT first_batch, end_batch, first_impression, end_impression, fingerprint FROM parts WHERE name = ?",
        (part,),
    ).fetchone()
    window, last = Window(*before[:4]), before[4]
    fresh = Window(window.end_batch, 2**62, window.end_impression, 2**62)
    ids, clicked = _logged(connection, part, shape, policy.held_out, seed, fresh)
    shown = int((ids >= fresh.first_impression).sum())  # without those that only had late clicks
    closes = len(clicked) >= policy.least_clicks and shown >= policy.least_impressions
    if closes:
        end = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM impressions").fetchone()[0]
        window = Window(window.end_batch, _open_batch(connection) + 1, window.end_impression, end)
    waiting = (
        f"waiting for more: since the last batch, the {part} part has {len(clicked)} of {policy.least_clicks} clicks "
        f"and {shown} of {policy.least_impressions} impressions"
    )
    if not window.end_batch:
        raise FultrError(waiting)
    if policy.window == "all":
        window = window._replace(first_batch=0, first_impression=0)
    ids, clicked = _logged(connection, part, shape, policy.held_out, seed, window)
    found = fingerprint(shape, ids, clicked)
    if not closes and found != last:
        raise FultrError(f"something was deleted, or the policy changed, since the last answer; {waiting}")
    if not closes and (len(clicked) < policy.least_clicks or ids.size < policy.least_impressions):
        raise FultrError(waiting)  # the policy asks for more than it did
    return Chosen(part, window, closes, ids.size, len(clicked), found)


def _open_batch(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT value FROM settings WHERE name = 'batch'").fetchone()[0])


def _logged(
    connection: sqlite3.Connection, part: Part, shape: Shape, share: float, seed: int, window: Window
) -> tuple[Int64s, Int64s]:
    """A part's impressions in a window, and its clicks [clicks, 2]: impression and rank."""
    which = IN_WINDOW.format(":first_impression", ":end_impression", ":first_batch", ":end_batch")
    values = {**window._asdict(), "schema": shape.schema, "displayed": shape.displayed}
    rows = connection.execute(
        f"SELECT id, :displayed FROM impressions WHERE {which} AND schema = :schema", values
    ).fetchall()
    clicks = connection.execute(
        "SELECT impression, rank FROM clicks JOIN impressions ON id = impression "
        f"WHERE {which} AND clicks.batch >= :first_batch AND clicks.batch < :end_batch "
        "AND schema = :schema AND rank <= :displayed",
        values,
    ).fetchall()
    ids = np.array(rows, np.int64).reshape(-1, 2)[:, 0]
    clicked = np.array(clicks, np.int64).reshape(-1, 2)
    return ids[_of_part(part, ids, share, seed)], clicked[_of_part(part, clicked[:, 0], share, seed)]


def _of_part(part: Part, ids: Int64s, share: float, seed: int) -> Bools:
    """Which of these impressions are of a part: as `Records.split` has it."""
    held_out = uniforms(seed, int(Purpose.HELD_OUT), 0, ids) < share
    return held_out if part == "held out" else ~held_out


def fingerprint(shape: Shape, impressions: Int64s, clicked: Int64s) -> bytes:
    """The same for the same impressions and clicks, in whatever order."""
    order = np.lexsort(clicked.T[::-1])
    told = (np.array([shape.schema, shape.displayed, impressions.size]), np.sort(impressions), clicked[order])
    return hashlib.blake2b(b"".join(part.astype("<i8").tobytes() for part in told), digest_size=16).digest()


def close_batches(connection: sqlite3.Connection, chosen: Chosen) -> None:
    """Note what an answer is made from; what is logged from now on is of a later batch. In the same transaction."""
    if not chosen.closes:
        return
    closing = chosen.window
    connection.execute(
        "UPDATE parts SET first_batch = end_batch, first_impression = end_impression, end_batch = ?, "
        "end_impression = ?, fingerprint = ? WHERE name = ?",
        (closing.end_batch, closing.end_impression, chosen.fingerprint, chosen.part),
    )
    connection.execute("UPDATE settings SET value = max(value, ?) WHERE name = 'batch'", (closing.end_batch,))


def read_chosen(
    connection: sqlite3.Connection, path: Path, chosen: Chosen, shape: Shape, policy: DevicePolicy
) -> Records:
    """The records that were chosen; an error if the log has lost some of them meanwhile."""
    records = read_window(
        connection, path, schema=shape.schema, width=shape.width, displayed=shape.displayed, window=chosen.window
    )
    ids = records.impressions
    assert ids is not None
    mine = records.take(_of_part(chosen.part, ids, policy.held_out, held_out_seed(connection)))
    assert mine.impressions is not None
    rows, ranks = np.nonzero(mine.log.clicks)
    clicked = np.stack([mine.impressions[rows], ranks + 1], axis=1)
    if fingerprint(shape, mine.impressions, clicked) != chosen.fingerprint:
        raise FultrError(f"{path}: something was deleted from it while the answer was made")
    return mine
