"""The devices behind a Flower grid, as the rounds of a federation ask them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import Message, MessageType
from flwr.proto.message_pb2 import ObjectTree
from flwr.serverapp import Grid

from fultr.core.errors import FultrError
from fultr.deploy.flower.internals import fetch_replies, fetched, push, record_of
from fultr.federated.events import Event
from fultr.federated.messages import Reply, Task
from fultr.federated.wire import read_reply, task_bytes

_PAUSE = 0.125  # seconds between two looks for replies, at least


@dataclass(eq=False)
class FlowerDevices:
    """The devices behind a Flower grid. Which number a node has was settled when its key was registered.

    Attributes:
        grid: Flower's.
        directory: the file that says so, see `fultr.deploy.control.register_nodes`.
        enrolled: the signed list of keys for secure sums, see `fultr.deploy.enrolment`.
        tell: called with trouble on the way.
        answered: seconds that each device of the last question took.
    """

    grid: Grid
    directory: Path
    enrolled: Path
    tell: Callable[[Event], object] = lambda event: None
    answered: dict[int, float] = field(default_factory=dict)

    def connected(self) -> list[int]:
        """The numbers of the connected nodes."""
        return sorted(self._nodes())

    def _nodes(self) -> dict[int, int]:
        """Connected nodes by their devices' numbers; one that was registered by other means has none."""
        numbers = read_directory(self.directory)
        return {numbers[node]: node for node in self.grid.get_node_ids() if node in numbers}

    def ask(self, task: Task, clients: list[int], timeout: float) -> dict[int, Reply | str]:
        """Send the task to these devices and collect their replies until all have arrived, or time is up."""
        replies = self.post(dict.fromkeys(clients, task_bytes(task)), task.round, timeout)
        return {client: r if isinstance(r, str) else read_reply(task, r) for client, r in replies.items()}

    def post(self, contents: Mapping[int, bytes], t: int, timeout: float) -> dict[int, bytes | str]:
        """Send each of some devices its message, and collect what they answer until all have, or time is up."""
        begun = time.monotonic()
        deadline, nodes = begun + timeout, self._nodes()
        devices = {nodes[client]: client for client in contents if client in nodes}
        records = {content: record_of(content) for content in set(contents.values())}
        messages = [
            Message(records[contents[client]], node, MessageType.TRAIN, ttl=timeout, group_id=str(t))
            for node, client in devices.items()
        ]
        sent = dict(zip(push(self.grid, messages), devices.values(), strict=True))
        sent.pop("", None)
        self.answered.clear()
        found: dict[int, bytes | str] = {}
        for client, answer in self._answers(sent, deadline):
            self.answered[client] = round(time.monotonic() - begun, 3)
            found[client] = answer
        return found

    def enrolment(self) -> bytes:
        """The signed list of the devices' keys for secure sums."""
        try:
            return self.enrolled.read_bytes()
        except OSError as error:
            raise FultrError(
                f"{self.enrolled}: cannot be read: {error.strerror}; fultr deploy init writes it"
            ) from None

    def _answers(self, waiting: dict[str, int], deadline: float) -> Iterator[tuple[int, bytes | str]]:
        """The answers to messages as they come, until the deadline: a device, and its reply or why there is none."""
        unfinished: dict[str, ObjectTree] = {}
        pause = _PAUSE
        while waiting and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            begun, complete = time.monotonic(), dict[str, bytes | str]()
            try:
                for id_, reply in fetch_replies(self.grid, [id_ for id_ in waiting if id_ not in unfinished]):
                    if isinstance(reply, ObjectTree):
                        unfinished[id_] = reply
                    else:
                        complete[id_] = reply
                for id_, tree in [*unfinished.items()]:
                    content = fetched(self.grid, tree)
                    if content is not None:
                        del unfinished[id_]
                        complete[id_] = content
            except Exception as error:  # of the connection: the SuperLink may come back
                self.tell(Event("lost", f"no replies can be fetched now ({type(error).__name__})"))
            pause = max(_PAUSE, 2 * (time.monotonic() - begun))
            for id_, content in complete.items():
                if id_ in waiting:
                    yield waiting.pop(id_), content


def read_directory(path: Path) -> dict[int, int]:
    """The devices' numbers by the SuperLink's numbers of their nodes."""
    try:
        return {int(node): int(entry["device"]) for node, entry in json.loads(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise FultrError(f"{path}: cannot be read; fultr deploy register writes it") from None
