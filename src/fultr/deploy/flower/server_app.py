"""The ServerApp: the rounds of `fultr.federated.federate`, with devices behind a Flower grid.

Its configuration holds the federation's settings by their names, and `state-dir`: the folder where the server keeps its
checkpoint, its progress and the versions of the ranker. Submitted again, it resumes from there.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeAlias

import numpy as np
from flwr.app import Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from fultr.core.errors import FultrError
from fultr.deploy.flower.messages import read_reply, task_record
from fultr.federated.federate import Trained, federate
from fultr.federated.federation import FederationSettings
from fultr.federated.messages import Reply, Task
from fultr.rankers.ranker import Ranker
from fultr.rankers.versions import Version, Versions

app = ServerApp()
_LOOKS = 8.0  # requests for replies per second: each costs the SuperLink 20 ms
_LISTENERS = 16  # threads; with more devices in a round, each listens for several
_ERRORS = {
    1: "its app cannot be loaded",
    2: "its app failed",
    3: "no answer in time",
    4: "no answer in time",
    5: "it cannot be reached",
    7: "it received a different app",
    8: "its app crashed",
}  # Flower's codes, in words
_INTRODUCTION = 60.0  # seconds until a node that has not sent its number is asked again


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and write the ranker."""
    config = dict(context.run_config)
    folder = Path(str(config.pop("state-dir", "state")))
    settings = FederationSettings.of(config)
    try:
        trained = federate(FlowerDevices(grid), settings, folder, tell=_tell)
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
    features = np.arange(1, settings.features + 1)
    ranker = Ranker(trained.weights, features, settings.normalised, training, settings.model, settings.names)
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


_Answers: TypeAlias = SimpleQueue[tuple[int, RecordDict | str]]  # of nodes: the content, or in words why there is none


@dataclass(eq=False)
class FlowerDevices:
    """The devices behind a Flower grid: each is a node that has sent its number.

    A new node is asked for its number while the others continue with their rounds; nobody waits for its answer.
    """

    grid: Grid
    numbers: dict[int, int] = field(default_factory=dict)  # of nodes
    again: dict[int, float] = field(default_factory=dict)  # when nodes without a number are asked again
    introductions: _Answers = field(default_factory=SimpleQueue)

    def connected(self) -> list[int]:
        """The numbers of the connected nodes."""
        nodes, now = set(self.grid.get_node_ids()), time.monotonic()
        new = sorted(node for node in nodes if node not in self.numbers and self.again.get(node, 0.0) <= now)
        self.again |= dict.fromkeys(new, now + _INTRODUCTION)
        queries = [Message(RecordDict(), node, MessageType.QUERY, ttl=_INTRODUCTION) for node in new]
        self._send(queries, now + _INTRODUCTION, self.introductions)
        with suppress(Empty):
            while True:
                self._enter(*self.introductions.get_nowait(), nodes)
        return sorted(number for node, number in self.numbers.items() if node in nodes)

    def _enter(self, node: int, answer: RecordDict | str, nodes: set[int]) -> None:
        """Record a node's number, unless it sends none, or that of another connected node."""
        if isinstance(answer, str):
            _tell(f"node {node} is left out: {answer}")
            return
        number = answer.config_records["device"].get("client") if "device" in answer.config_records else None
        if type(number) is not int or number < 0:
            _tell(f"node {node} is left out: it sends no client-id")
            return
        holder = {held: other for other, held in self.numbers.items()}.get(number, node)
        if holder != node and holder in nodes:
            _tell(f"node {node} is left out: its client-id {number} belongs to node {holder}")
            return
        self.numbers.pop(holder, None)
        self.numbers[node] = number

    def ask(self, task: Task, clients: list[int], timeout: float) -> dict[int, Reply | str]:
        """Send the task to these devices and collect their replies until all have arrived, or time is up."""
        content, deadline = task_record(task), time.monotonic() + timeout
        nodes = {number: node for node, number in self.numbers.items()}
        waiting = {nodes[client]: client for client in clients}
        messages = [Message(content, n, MessageType.TRAIN, ttl=timeout, group_id=str(task.round)) for n in waiting]
        answers: _Answers = SimpleQueue()
        self._send(messages, deadline, answers)
        found: dict[int, Reply | str] = {}
        with suppress(Empty):
            while len(found) < len(waiting):
                node, answer = answers.get(timeout=max(deadline - time.monotonic(), 0.0))
                found[waiting[node]] = answer if isinstance(answer, str) else read_reply(task, answer)
        return found

    def _send(self, messages: list[Message], deadline: float, answers: _Answers) -> None:
        """Send messages, and put their answers into a queue as they come, until the deadline."""
        if not messages:
            return
        nodes = [message.metadata.dst_node_id for message in messages]
        sent = zip(self.grid.push_messages(messages), nodes, strict=True)
        waiting = [(message, node) for message, node in sent if message is not None]
        self._listen([dict(waiting[i::_LISTENERS]) for i in range(_LISTENERS)], deadline, answers)

    def _listen(self, parts: list[dict[str, int]], deadline: float, answers: _Answers) -> None:
        """Listen for the answers to each part of the messages in its own thread.

        Flower waits until a node that has announced an answer delivers it, and one unreadable answer spoils those
        fetched with it.
        """
        parts = [part for part in parts if part]
        for part in parts:
            of = (part, len(parts) / _LOOKS, deadline, answers)
            threading.Thread(target=self._fetch, args=of, daemon=True).start()

    def _fetch(self, waiting: dict[str, int], pause: float, deadline: float, answers: _Answers) -> None:
        while waiting and time.monotonic() < deadline:
            time.sleep(pause)
            try:
                replies = list(self.grid.pull_messages(list(waiting)))
            except Exception as error:
                if len(waiting) > 1:  # find out whose it is
                    self._listen([{message: node} for message, node in waiting.items()], deadline, answers)
                else:
                    answers.put((next(iter(waiting.values())), f"its reply cannot be read ({type(error).__name__})"))
                return
            for reply in replies:
                node = waiting.pop(reply.metadata.reply_to_message_id)
                answers.put((node, reply.content if reply.has_content() else _in_words(reply.error.code)))


def _in_words(code: int) -> str:
    return _ERRORS.get(code, f"Flower's error {code}")
