"""A device's reply to a task, made from its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fultr.core.errors import FultrError
from fultr.device.log import DeviceLog
from fultr.federated.messages import Reply, Task, reply_to


@dataclass(frozen=True, eq=False)
class LocalDevices:
    """Devices whose logs are files on this machine: to rehearse a federation, or to train where logs are gathered."""

    logs: Mapping[int, Path]

    def connected(self) -> list[int]:
        """All of them."""
        return sorted(self.logs)

    def ask(self, task: Task, clients: list[int], timeout: float) -> dict[int, Reply | str]:
        """Each in turn."""
        return {client: reply_from(self.logs[client], task) for client in clients}


def reply_from(path: Path, task: Task) -> Reply:
    """A device's reply from its log. What the log keeps, and how long, is for the application to say."""
    with DeviceLog.open(path, retention=None) as log:
        width = next(schema.count for schema in log.schemas() if schema.current)
        if width != task.features:
            raise FultrError(f"{path}: its documents have {width} features, and the ranker {task.features}")
        records = log.records(since=task.since, until=task.until, displayed=task.displayed)
    if not task.held_out:
        return reply_to(task, records, None)
    return reply_to(task, *records.split(task.held_out, task.seed))
