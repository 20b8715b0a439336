"""A device's reply to a task, made from its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fultr.core.errors import FultrError
from fultr.device.log import DeviceLog
from fultr.federated.federation import Replay
from fultr.federated.messages import Reply, Task, reply_to

_HELD_OUT = 0.2


@dataclass(frozen=True, eq=False)
class LocalDevices:
    """Devices whose logs are files on this machine: to rehearse a federation, or to train where logs are gathered.

    Attributes:
        logs: by the devices' numbers.
        replay: rounds that take one period of the logs each; None: every round takes all impressions.
    """

    logs: Mapping[int, Path]
    replay: Replay | None = None

    def connected(self) -> list[int]:
        """All of them."""
        return sorted(self.logs)

    def ask(self, task: Task, clients: list[int], timeout: float) -> dict[int, Reply | str]:
        """Each in turn."""
        return {client: reply_from(self.logs[client], task, self.replay) for client in clients}


def reply_from(path: Path, task: Task, replay: Replay | None = None) -> Reply:
    """A device's reply from its log. What the log keeps, and how long, is for the application to say."""
    since, until = (None, None) if replay is None else replay.span(task.round)
    with DeviceLog.open(path, retention=None) as log:
        width = next(schema.count for schema in log.schemas() if schema.current)
        if width != task.features:
            raise FultrError(f"{path}: its documents have {width} features, and the ranker {task.features}")
        records = log.records(since=since, until=until, displayed=task.displayed)
    if not task.judge:
        return reply_to(task, records, None)
    return reply_to(task, *records.split(_HELD_OUT))
