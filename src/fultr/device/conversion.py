"""A device's log as a click log, and a click log as the logs of its users' devices.

The first is for a device's owner: nothing here sends anything. The second fills devices from a log that exists already,
such as that of a server, so that the federation trains on what a server would have trained on.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import time as current_time
from typing import Any

import numpy as np

from fultr.clicks.frames import pages_of
from fultr.clicks.impressions import ImpressionLog
from fultr.core.errors import FultrError
from fultr.core.files import make_folder
from fultr.device.log import DeviceLog


def click_log_of(device: DeviceLog) -> ImpressionLog:
    """What a device's log holds, as a click log: impressions in order of time, with features and times.

    Queries are called by their keyed hash: the log does not have their words. It does not name documents either: those
    of a query with the same features are the same. Impressions with other features than those that the log was opened
    with are left out.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "search.db"
    >>> with DeviceLog.open(path, features=["title match"]) as device:
    ...     _ = device.log_click(device.log_impression("best pizza", [[0.9], [0.4]], time=7.0), rank=2)
    ...     log = click_log_of(device)
    >>> log.clicks.tolist(), log.features.tolist(), log.feature_names, log.times.tolist()
    ([[0, 1]], [[0.8999999761581421], [0.4000000059604645]], ('title match',), [7.0])
    """
    stream = io.StringIO()
    device.export(stream)
    lines = stream.getvalue().splitlines()
    current = next(schema for schema in device.schemas() if schema.current)
    columns: dict[str, list[Any]] = {name: [] for name in ("features", "click", "query", "rank", "session")}
    times: list[float] = []
    for line in lines[1:]:
        found = json.loads(line)
        if found["schema"] != current.id:
            continue
        documents = len(found["features"])
        clicked = {click["rank"] for click in found["clicks"]}
        columns["features"] += found["features"]
        columns["click"] += [int(rank in clicked) for rank in range(1, documents + 1)]
        columns["query"] += [found["query"]] * documents
        columns["rank"] += range(1, documents + 1)
        columns["session"] += [len(times)] * documents
        times.append(float(found["time"]))
    if not times:
        raise FultrError(f"{device.path}: expected impressions, found none")
    made = pages_of(
        np.array(columns["features"], np.float32),
        columns["click"],
        query=columns["query"],
        rank=columns["rank"],
        session=columns["session"],
    )
    return replace(made.log, times=np.array(times), feature_names=tuple(current.names) if current.names else None)


def fill_from_click_log(
    log: ImpressionLog,
    folder: str | Path,
    *,
    normalised: bool = True,
    version: str = "",
    on_device: Callable[[object], object] = lambda path: None,
) -> list[Path]:
    """Write the logs of a click log's users, one file each; none may be there already.

    A log without users is that of one device. Impressions without times are a second apart, the last one now.

    Args:
        log: the click log, with features.
        folder: for the files: user-1.db, user-2.db, ..., in the order of the users' numbers.
        normalised: are the features scaled to [0, 1] within each query?
        version: of the ranker that made the impressions.
        on_device: called after each device.

    Returns:
        The files.
    """
    if log.features is None:
        raise FultrError("click log: expected features of the documents, which a device's log holds; found none")
    folder = Path(folder)
    users = np.zeros(log.impressions, np.int64) if log.users is None else log.users
    names: int | tuple[str, ...] = log.feature_names or log.features.shape[1]
    paths = {int(user): folder / f"user-{int(user) + 1}.db" for user in np.unique(users)}
    for path in paths.values():
        if path.exists():
            raise FultrError(f"{path}: there is a log already; give another folder")
    make_folder(folder)
    times = np.arange(log.impressions) - log.impressions + current_time() if log.times is None else log.times
    order = np.argsort(users, kind="stable")
    begins = np.searchsorted(users[order], list(paths))
    for (_, path), rows in zip(paths.items(), np.split(order, begins[1:]), strict=True):
        with DeviceLog.open(path, features=names, normalised=normalised, retention=None) as device:
            for row in rows.tolist():
                pairs = log.documents[row][log.shown[row]]
                query, when = log.query_names[log.queries[row]], float(times[row])
                asked = query if isinstance(query, str | bytes) else str(query)
                impression = device.log_impression(asked, log.features[pairs], version=version, time=when)
                for rank in np.flatnonzero(log.clicks[row]) + 1:
                    device.log_click(impression, int(rank), time=when)
        on_device(path)
    return list(paths.values())
