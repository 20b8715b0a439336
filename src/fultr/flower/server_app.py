"""The ServerApp: the rounds of `fultr.federation`, with devices behind a Flower grid.

Its configuration holds the federation's settings by their names, and `state-dir`: the folder where the server keeps its
checkpoint, its progress and the versions of the ranker. Submitted again, it goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from fultr.errors import FultrError
from fultr.federation import Trained, federate
from fultr.federation_settings import FederationSettings
from fultr.flower.messages import read_reply, task_record
from fultr.rankers import LinearRanker
from fultr.replies import Reply, Task
from fultr.versions import Version, Versions

app = ServerApp()
_POLL = 0.25  # seconds between two looks for replies
_ERRORS = {
    1: "its app cannot be loaded",
    2: "its app failed",
    3: "no answer in time",
    4: "no answer in time",
    5: "it cannot be reached",
    7: "it got another app",
    8: "its app crashed",
}  # Flower's codes, in words
_AGAIN = 10.0  # seconds until a node that did not is asked again


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and write the ranker."""
    config = dict(context.run_config)
    folder = Path(str(config.pop("state-dir", "state")))
    settings = FederationSettings.of(config)
    try:
        trained = federate(FlowerDevices(grid, settings.timeout), settings, folder, tell=_tell)
    except FultrError as error:
        _tell(str(error))
        raise
    version = write_version(trained, settings, folder)
    if trained.judged is not None:
        _tell(f"held-out clicks: {trained.judged.ranked:.4f} (as displayed {trained.judged.displayed:.4f})")
    _tell(f"done: {trained.rounds} rounds; the ranker is version {version.name} in {folder.name}/versions")


def write_version(trained: Trained, settings: FederationSettings, folder: Path) -> Version:
    """Write the ranker as the next version, unless the last one is the same."""
    versions = Versions(folder / "versions")
    names = versions.list()
    parent = versions.read("latest") if names else None
    if parent is not None and parent.ranker.weights.tobytes() == trained.weights.tobytes():
        return parent
    training = {"federation": settings.as_mapping(), "rounds": trained.rounds}
    ranker = LinearRanker(trained.weights, np.arange(1, settings.features + 1), settings.normalised, training)
    metrics = {}
    if trained.judged is not None:
        judged = trained.judged
        metrics["held-out clicks"] = {"mean": judged.ranked, "standard_error": judged.ranked_error}
        metrics["held-out clicks, as displayed"] = {"mean": judged.displayed, "standard_error": judged.displayed_error}
    return versions.write(
        ranker,
        parent=None if parent is None else parent.name,
        configuration=settings.as_mapping(),
        metrics=metrics,
    )


def _tell(line: str) -> None:
    print(f"fultr: {line}", flush=True)


@dataclass(eq=False)
class FlowerDevices:
    """The devices behind a Flower grid: each is a node, and has told its number."""

    grid: Grid
    timeout: float  # seconds that a node has to tell its number
    numbers: dict[int, int] = field(default_factory=dict)  # of nodes
    unwilling: dict[int, float] = field(default_factory=dict)  # nodes that did not tell, and when to ask again

    def connected(self) -> list[int]:
        """The numbers of the nodes that are there."""
        nodes = set(self.grid.get_node_ids())
        asked = [n for n in nodes if n not in self.numbers and self.unwilling.get(n, 0) <= time.monotonic()]
        if asked:
            self._introduce(asked)
        return sorted(number for node, number in self.numbers.items() if node in nodes)

    def _introduce(self, nodes: list[int]) -> None:
        messages = [Message(RecordDict(), node, MessageType.QUERY, ttl=self.timeout) for node in nodes]
        for node, reply in self._exchange(messages, self.timeout):
            number: object = None
            if isinstance(reply, RecordDict) and "device" in reply:
                number = reply.config_records["device"].get("client")
            if type(number) is not int or number < 0:
                _tell(f"node {node} is left out: it tells no client-id")
                continue
            holder = {held: other for other, held in self.numbers.items()}.get(number)
            if holder is not None and holder in set(self.grid.get_node_ids()):
                _tell(f"node {node} is left out: its client-id {number} is that of node {holder}")
            else:
                if holder is not None:
                    del self.numbers[holder]
                self.numbers[node] = number
        for node in nodes:
            if node not in self.numbers:
                self.unwilling[node] = time.monotonic() + _AGAIN

    def ask(self, task: Task, clients: list[int], timeout: float) -> dict[int, Reply | str]:
        """Send the task to these devices and gather their replies until all are there, or time is up."""
        content = task_record(task)
        nodes = {number: node for node, number in self.numbers.items()}
        messages = [
            Message(content, nodes[client], MessageType.TRAIN, ttl=timeout, group_id=str(task.round))
            for client in clients
        ]
        found: dict[int, Reply | str] = {}
        for node, reply in self._exchange(messages, timeout):
            number = self.numbers.get(node)
            if number is not None:
                found[number] = reply if isinstance(reply, str) else read_reply(task, reply)
        return found

    def _exchange(self, messages: list[Message], timeout: float) -> Iterable[tuple[int, RecordDict | str]]:
        """Send messages; for each node that answers in time its content, or in words what came instead."""
        deadline = time.monotonic() + timeout
        destinations = [message.metadata.dst_node_id for message in messages]
        waiting = dict(zip(self.grid.push_messages(messages), destinations, strict=True))
        waiting.pop(None, None)  # type: ignore[call-overload]
        while waiting and time.monotonic() < deadline:
            time.sleep(_POLL)
            for identity, node in list(waiting.items()):
                try:
                    replies = list(self.grid.pull_messages([identity]))
                except Exception as error:
                    del waiting[identity]
                    yield node, f"its reply cannot be read ({type(error).__name__})"
                    continue
                for reply in replies:
                    del waiting[identity]
                    yield node, reply.content if reply.has_content() else _in_words(reply.error.code)


def _in_words(code: int) -> str:
    return _ERRORS.get(code, f"Flower's error {code}")
