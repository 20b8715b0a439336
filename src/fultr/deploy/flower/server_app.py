"""The ServerApp: the rounds of `fultr.federated.federate`, with devices behind a Flower grid.

Its configuration holds the federation's settings by their names; `state-dir`, the folder where the server keeps its
checkpoint, its progress and the versions of the ranker; and `nodes-file`, which says what number each node's device
has. Submitted again, it resumes from there.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeAlias

import numpy as np
from flwr.app import Context, Message, MessageType
from flwr.serverapp import Grid, ServerApp

from fultr.core.errors import FultrError
from fultr.core.files import locked, make_folder
from fultr.deploy.flower.internals import fetch_replies, push, record_of
from fultr.federated.federate import Trained, federate
from fultr.federated.federation import FederationSettings
from fultr.federated.messages import Reply, Task
from fultr.federated.wire import read_reply, task_bytes
from fultr.rankers.ranker import Ranker
from fultr.rankers.versions import Version, Versions

app = ServerApp()
no_app = None  # Flower wants every app to name one for nodes; ours run none
_LOOKS = 8.0  # requests for replies per second
_LISTENERS = 16  # threads; with more devices in a round, each listens for several


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and write the ranker."""
    config = dict(context.run_config)
    folder, directory = Path(str(config.pop("state-dir"))), Path(str(config.pop("nodes-file")))
    settings = FederationSettings.of(config)
    make_folder(folder)
    try:
        with locked(folder / ".lock", f"{folder}: another run is training there"):
            trained = federate(FlowerDevices(grid, directory), settings, folder, tell=_tell)
            version = write_version(trained, settings, folder)
    except FultrError as error:
        _tell(str(error))
        raise
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


_Answers: TypeAlias = SimpleQueue[tuple[int, bytes | str, float]]  # a node, its reply or why there is none, when


@dataclass(eq=False)
class FlowerDevices:
    """The devices behind a Flower grid. Which number a node has was settled when its key was registered.

    Attributes:
        grid: Flower's.
        directory: the file that says so, see `fultr.deploy.control.register_nodes`.
        answered: seconds that each device of the last question took.
    """

    grid: Grid
    directory: Path
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
        begun = time.monotonic()
        deadline, nodes, content = begun + timeout, self._nodes(), record_of(task_bytes(task))
        devices = {nodes[client]: client for client in clients if client in nodes}
        messages = [Message(content, n, MessageType.TRAIN, ttl=timeout, group_id=str(task.round)) for n in devices]
        answers: _Answers = SimpleQueue()
        self._send(messages, deadline, answers)
        self.answered.clear()
        found: dict[int, Reply | str] = {}
        with suppress(Empty):
            while len(found) < len(devices):
                node, answer, when = answers.get(timeout=max(deadline - time.monotonic(), 0.0))
                self.answered[devices[node]] = round(when - begun, 3)
                found[devices[node]] = answer if isinstance(answer, str) else read_reply(task, answer)
        return found

    def _send(self, messages: list[Message], deadline: float, answers: _Answers) -> None:
        """Send messages, and put their answers into a queue as they come, until the deadline.

        Each part of them has its own thread: Flower waits until a node that has announced an answer delivers it.
        """
        nodes = [message.metadata.dst_node_id for message in messages]
        ids = zip(push(self.grid, messages), nodes, strict=True) if messages else ()
        sent = [(id_, node) for id_, node in ids if id_ is not None]
        for i in range(min(_LISTENERS, len(sent))):
            part = dict(sent[i::_LISTENERS])
            pause = min(_LISTENERS, len(sent)) / _LOOKS
            threading.Thread(target=self._fetch, args=(part, pause, deadline, answers), daemon=True).start()

    def _fetch(self, waiting: dict[str, int], pause: float, deadline: float, answers: _Answers) -> None:
        while waiting and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            try:
                replies = fetch_replies(self.grid, list(waiting), left)
            except Exception as error:  # of the connection: the SuperLink may come back
                _tell(f"no replies can be fetched now ({type(error).__name__})")
                continue
            for id_, content in replies:
                node = waiting.pop(id_, None)
                if node is not None:
                    answers.put((node, content, time.monotonic()))


def read_directory(path: Path) -> dict[int, int]:
    """The devices' numbers by the SuperLink's numbers of their nodes."""
    try:
        return {int(node): int(entry["device"]) for node, entry in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise FultrError(f"{path}: cannot be read; fultr deploy register writes it") from None
