"""The devices behind a Flower grid, as the rounds of a federation ask them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeAlias

from flwr.app import Message, MessageType
from flwr.proto.message_pb2 import ObjectTree
from flwr.serverapp import Grid

from fultr.core.errors import FultrError
from fultr.deploy.flower.internals import announced, fetched, push, record_of
from fultr.federated.events import Event
from fultr.federated.messages import Reply, Task
from fultr.federated.wire import read_reply, task_bytes

_LOOKS = 8.0  # requests for replies per second
_LISTENERS = 16  # threads; with more devices in a round, each listens for several

_Answers: TypeAlias = SimpleQueue[tuple[int, bytes | str, float]]  # a node, its reply or why there is none, when


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
        answers: _Answers = SimpleQueue()
        self._send(messages, deadline, answers)
        self.answered.clear()
        found: dict[int, bytes | str] = {}
        with suppress(Empty):
            while len(found) < len(devices):
                node, answer, when = answers.get(timeout=max(deadline - time.monotonic(), 0.0))
                self.answered[devices[node]] = round(when - begun, 3)
                found[devices[node]] = answer
        return found

    def enrolment(self) -> bytes:
        """The signed list of the devices' keys for secure sums."""
        try:
            return self.enrolled.read_bytes()
        except OSError as error:
            raise FultrError(
                f"{self.enrolled}: cannot be read: {error.strerror}; fultr deploy init writes it"
            ) from None

    def _send(self, messages: list[Message], deadline: float, answers: _Answers) -> None:
        """Send messages, and put their answers into a queue as they come, until the deadline.

        Each part of them has its own thread, as every look takes a while.
        """
        nodes = [message.metadata.dst_node_id for message in messages]
        ids = zip(push(self.grid, messages), nodes, strict=True) if messages else ()
        sent = [(id_, node) for id_, node in ids if id_ is not None]
        for i in range(min(_LISTENERS, len(sent))):
            part = dict(sent[i::_LISTENERS])
            pause = min(_LISTENERS, len(sent)) / _LOOKS
            threading.Thread(target=self._fetch, args=(part, pause, deadline, answers), daemon=True).start()

    def _fetch(self, waiting: dict[str, int], pause: float, deadline: float, answers: _Answers) -> None:
        unfinished: dict[str, ObjectTree] = {}
        while waiting and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            try:
                unfinished |= announced(self.grid, [id_ for id_ in waiting if id_ not in unfinished])
                for id_, tree in [*unfinished.items()]:
                    content = fetched(self.grid, tree)
                    if content is not None:
                        del unfinished[id_]
                        answers.put((waiting.pop(id_), content, time.monotonic()))
            except Exception as error:  # of the connection: the SuperLink may come back
                self.tell(Event("lost", f"no replies can be fetched now ({type(error).__name__})"))


def read_directory(path: Path) -> dict[int, int]:
    """The devices' numbers by the SuperLink's numbers of their nodes."""
    try:
        return {int(node): int(entry["device"]) for node, entry in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise FultrError(f"{path}: cannot be read; fultr deploy register writes it") from None
