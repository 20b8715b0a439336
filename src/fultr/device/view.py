"""What a device's log holds, for users to see: how much, and every value."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fultr.core.errors import FultrError
from fultr.device.personal import read_layer
from fultr.device.records import CLICK_COLUMNS, COLUMNS, Stored, checked_click
from fultr.device.sqlite import STEPS, damaged, size_of


@dataclass(frozen=True)
class FeatureSchema:
    """The features of some impressions.

    Attributes:
        id: within the file.
        names: in order; None if only their number was given.
        count: how many.
        normalised: are they scaled to [0, 1] within each query?
        impressions: how many have them.
        current: was the log opened with these features? Only such impressions are used for training.
    """

    id: int
    names: tuple[str, ...] | None
    count: int
    normalised: bool
    impressions: int
    current: bool


@dataclass(frozen=True)
class DeviceStats:
    """How much a log holds.

    Attributes:
        impressions: how many.
        clicks: how many.
        clicked_impressions: those that have a click.
        queries: how many different ones.
        other_schema: impressions that training leaves out because their features have another schema.
        with_text: impressions with text.
        oldest: time of the first impression, in seconds since 1970; None if there is none.
        newest: time of the last one.
        bytes: on disk, including the files next to the log.
    """

    impressions: int
    clicks: int
    clicked_impressions: int
    queries: int
    other_schema: int
    with_text: int
    oldest: float | None
    newest: float | None
    bytes: int


def current_schema(path: Path, connection: sqlite3.Connection) -> tuple[int, int, str]:
    """Id, number of features and text of the schema of the last impression."""
    found = connection.execute(
        "SELECT id, width, names FROM schemas ORDER BY "
        "id = (SELECT schema FROM impressions ORDER BY id DESC LIMIT 1) DESC, id DESC LIMIT 1"
    ).fetchone()
    if found is None:
        raise FultrError(f"{path}: is an empty log: open it with the names or the number of the features")
    id_, width, names = found
    if not (isinstance(id_, int) and isinstance(width, int) and isinstance(names, str)):
        raise damaged(path, "the description of the features")
    return id_, width, names


def read_schemas(connection: sqlite3.Connection, current: int) -> list[FeatureSchema]:
    """All schemas that the log has been opened with."""
    rows = connection.execute(
        "SELECT schemas.id, names, count(impressions.id) FROM schemas "
        "LEFT JOIN impressions ON impressions.schema = schemas.id GROUP BY schemas.id ORDER BY schemas.id"
    )
    return [
        FeatureSchema(id_, *_described(text), impressions=count, current=id_ == current) for id_, text, count in rows
    ]


def _described(stored: str) -> tuple[tuple[str, ...] | None, int, bool]:
    """Names, if there are any, number, and whether they are normalised: of a schema's text."""
    try:
        said = json.loads(stored)
        features, normalised = (said["features"], said["normalised"]) if isinstance(said, dict) else (said, True)
        if isinstance(features, int):
            return None, features, normalised
        return tuple(features), len(features), normalised
    except (ValueError, TypeError, KeyError, RecursionError):
        raise sqlite3.DatabaseError("is damaged (the description of its features)") from None


def read_stats(connection: sqlite3.Connection, path: Path, current: int) -> DeviceStats:
    """How much the log holds."""
    impressions = connection.execute(
        "SELECT count(*), count(DISTINCT query), coalesce(sum(schema != ?), 0), count(text), min(time), max(time) "
        "FROM impressions",
        (current,),
    ).fetchone()
    clicks, clicked = connection.execute("SELECT count(*), count(DISTINCT impression) FROM clicks").fetchone()
    shown, queries, other, texts, oldest, newest = impressions
    return DeviceStats(shown, clicks, clicked, queries, other, texts, oldest, newest, size_of(path))


@dataclass(frozen=True)
class LoggedSearch:
    """An impression as its user knows it: when, what was searched for (if the text is held), and what was clicked.

    Attributes:
        id: of the impression.
        time: in seconds since 1970.
        text: the query; None if its text is not held.
        version: of the ranker.
        documents: how many were displayed.
        clicks: the ranks that were clicked, from 1.
    """

    id: int
    time: float
    text: str | None
    version: str
    documents: int
    clicks: tuple[int, ...]


def read_latest(connection: sqlite3.Connection, most: int) -> list[LoggedSearch]:
    """The latest impressions, the latest first."""
    rows = connection.execute(
        "SELECT id, time, text, version, documents, (SELECT group_concat(rank) FROM clicks WHERE impression = id) "
        "FROM impressions ORDER BY time DESC, id DESC LIMIT ?",
        (most,),
    )
    return [
        LoggedSearch(id_, time, text, version, documents, tuple(sorted(map(int, clicks.split(",")))) if clicks else ())
        for id_, time, text, version, documents, clicks in rows
    ]


def export_lines(connection: sqlite3.Connection, path: Path, current: int) -> Iterator[str]:
    """The log as lines of JSON: one that describes it, then one for each impression, in order of time."""
    connection.execute("BEGIN")
    schemas = read_schemas(connection, current)
    about = {
        "fultr_device_log": len(STEPS),
        "schemas": [
            {"schema": s.id, "features": s.names or s.count, "normalised": s.normalised, "impressions": s.impressions}
            for s in schemas
        ],
        "personal_layer": None if (layer := read_layer(connection)) is None else vars(layer),
    }
    yield json.dumps(about, ensure_ascii=False)
    widths = {schema.id: schema.count for schema in schemas}
    rows = connection.execute(f"SELECT version, schema, text, {COLUMNS} FROM impressions ORDER BY time, id")
    for version, schema, text, *row in rows:
        stored = Stored(*row)
        found = connection.execute(
            f"SELECT {CLICK_COLUMNS} FROM clicks WHERE impression = ? ORDER BY rank", (stored.id,)
        )
        clicks = [checked_click(path, *row) for row in found]
        ranks = stored.ranks()
        # As text, 16 and 32-bit numbers have no more digits than needed.
        features = [[float(value) for value in line] for line in stored.matrix(path, widths[schema]).astype(str)]
        impression: dict[str, Any] = {
            "impression": stored.id,
            "time": stored.time,
            "date": _date(stored.time),
            "query": stored.query.hex(),
            "version": version,
            "text": text,
            "clicks": [{"rank": rank, "time": when, "date": _date(when)} for _, rank, when in clicks],
            "schema": schema,
            "stored_as": f"float{stored.bits}",
            "other_ranks": None if ranks is None else ranks.tolist(),
            "features": features,
        }
        yield json.dumps(impression, ensure_ascii=False)
    connection.execute("COMMIT")


def _date(time: float) -> str | None:
    try:
        return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return None  # outside the range of dates
