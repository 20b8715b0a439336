"""A node by itself: its pace, what it says, and what a server can send it."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from help.deployments import fill_log

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

from fultr.core.errors import FultrError
from fultr.deploy.flower import node as module
from fultr.deploy.flower.fleet import Letter
from fultr.deploy.flower.node import Pace, Told, run_node
from fultr.deploy.folder import init_deployment, load_deployment
from fultr.federated.wire import REFUSAL


def test_a_node_asks_ever_less_often_while_nothing_comes():
    pace = Pace(slowest=15.0)
    waits = [pace.next() for _ in range(30)]
    assert waits[0] <= 0.4 * 1.2
    assert all(0.8 * 15 <= wait <= 1.2 * 15 for wait in waits[10:])
    pace.busy()
    assert pace.next() <= 0.4 * 1.2


def test_what_a_node_says_can_be_read_by_programs():
    told = Told("task", "answered round 1", 0.25)
    assert json.loads(told.line(as_json=True))["seconds"] == 0.25
    assert told.line(as_json=False).endswith("answered round 1 (0.25 s)")
    injected = Told("task", "refused\n2026-01-01 answered \x1b[2J").line(as_json=False)
    assert injected.endswith("refused 2026-01-01 answered ?[2J")


class Server:
    """A server that sends some messages, or raises some errors, and then tells the node to stop."""

    number = 7

    def __init__(self, sent: list[object], stop: threading.Event) -> None:
        self.sent, self.stop, self.heard = sent, stop, list[bytes]()

    def receive(self) -> Letter | None:
        if not self.sent:
            self.stop.set()
            return None
        each = self.sent.pop(0)
        if isinstance(each, Exception):
            raise each
        return Letter(1, each, None)  # type: ignore[arg-type]

    def send(self, letter: Letter, content: bytes, seconds: float) -> None:
        self.heard.append(content)

    def alive(self) -> bool:
        return True

    def fetch(self, path: str) -> bytes:
        raise RuntimeError("nothing here")


@pytest.fixture
def folder(tmp_path) -> Path:
    init_deployment(tmp_path / "fed", 1)
    place = load_deployment(tmp_path / "fed").nodes[0].folder
    fill_log(place / "device.db", 0)
    return place


def served(folder: Path, sent: list[object], monkeypatch: pytest.MonkeyPatch) -> tuple[Server, list[Told]]:
    """What a node says to a server, and of it."""
    stop, said = threading.Event(), list[Told]()
    server = Server(sent, stop)

    @contextmanager
    def connected(*_: object) -> Iterator[Server]:
        yield server

    monkeypatch.setattr(module, "connected", connected)
    monkeypatch.setattr(module, "_look_for_ranker", lambda *_: "")
    monkeypatch.setattr(module.random, "uniform", lambda *_: 0.001)  # no waiting
    monkeypatch.setattr(module, "_AFTER_REFUSAL", 0.0)
    run_node(folder, stop, said.append)
    return server, said


def test_nothing_that_a_server_sends_ends_a_node(folder, monkeypatch):
    """Errors of every kind, nonsense, other programs' messages: it goes on, and answers nothing but the refusal."""
    errors = [ValueError("half"), KeyError("x"), RuntimeError("odd"), AttributeError("y"), RecursionError("deep")]
    sent = [*errors, None, b"", b"\x00\x00\x00\x02{}", b"\xff" * 1000, b"refused", *errors]
    server, said = served(folder, sent, monkeypatch)
    assert server.heard == [REFUSAL] * 5
    assert [told.what for told in said].count("lost") == len(errors) * 2
    assert said[-1].what == "stopped"
    assert all("\n" not in told.words for told in said)


def test_a_policy_that_cannot_be_read_refuses_everything(folder, monkeypatch):
    """Its owner made a mistake while the node was running: nothing leaves until that is mended."""
    reads = module.DevicePolicy.read
    calls = []

    def read(path):
        calls.append(path)
        if len(calls) > 1:
            raise FultrError("node.toml:9: unknown setting 'least_click'")
        return reads(path)

    monkeypatch.setattr(module.DevicePolicy, "read", read)
    server, said = served(folder, [b"a task"], monkeypatch)
    assert server.heard == [REFUSAL]
    assert any("until the policy is mended" in told.words for told in said)
