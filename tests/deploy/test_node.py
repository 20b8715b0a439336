"""A node by itself: what it asks and says, and what a server can send it."""

from __future__ import annotations

import importlib.util
import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from help.deployments import fill_log

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

import httpx
from flwr.app.message import make_message, remove_content_from_message
from flwr.app.metadata import Metadata
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supernode.fleet_http_client import FleetHttpClient

from fultr.core.errors import FultrError
from fultr.deploy.flower import fleet as connection
from fultr.deploy.flower import node as module
from fultr.deploy.flower.fleet import Fleet, Letter
from fultr.deploy.flower.internals import record_of
from fultr.deploy.flower.node import Told, run_node
from fultr.deploy.folder import init_deployment, load_deployment
from fultr.deploy.parcels import QUESTION, PostError, packed, unpacked
from fultr.federated.wire import REFUSAL


def fleet(*answers: httpx.Response | Exception) -> tuple[Fleet, list[httpx.Request]]:
    """A connection on which these are answered, and what is asked on it."""
    asked, left = list[httpx.Request](), list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        given = left.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    client = FleetHttpClient("https://server")
    client._client = httpx.Client(transport=httpx.MockTransport(answer))
    return Fleet(client, 7), asked


def letter() -> tuple[Letter, list[bytes]]:
    """A message, and the parts that it comes in."""
    about = Metadata(run_id=1, message_id="", src_node_id=1, dst_node_id=7, reply_to_message_id="", group_id="",
                     created_at=time.time(), ttl=60.0, message_type="train")  # fmt: skip
    message = make_message(about, record_of(b"task"))
    message.metadata.__dict__["_message_id"] = message.object_id
    objects = [each.deflate() for each in get_all_nested_objects(message).values()]
    said = message_to_proto(remove_content_from_message(message))
    found = PullMessagesResponse(messages_list=[said], message_object_trees=[get_object_tree(message)])
    return Letter(1, b"task", message), [found.SerializeToString(), *objects]


def test_a_node_says_which_task_it_had_last():
    sent, parts = letter()
    made, asked = fleet(httpx.Response(200, content=packed(parts)), httpx.Response(200))
    assert made.receive(3.0).content == b"task"
    assert made.receive(0.0) is None
    assert [unpacked(request.content) for request in asked] == [
        [b"3.000", b""],
        [b"0.000", sent.message.metadata.message_id.encode()],
    ]
    assert time.monotonic() - made.heard < 5.0  # asking says that it is there
    assert not made.plain


@pytest.mark.parametrize("content", [packed([bytes(64_001)]), packed([b""] * 5), b"\0\0\0\5abcd", b"\0"])
def test_an_answer_that_is_no_message_is_not_looked_into(content):
    made, _ = fleet(httpx.Response(200, content=content))
    with pytest.raises((ValueError, PostError)):
        made.receive()


def test_a_reply_is_sent_again_if_the_connection_breaks(monkeypatch):
    """Flower takes the same reply twice, as one: it has the same id."""
    waits = list[float]()
    monkeypatch.setattr(connection.time, "sleep", waits.append)
    made, asked = fleet(httpx.ReadError("broken"), httpx.ConnectError("refused"), httpx.Response(200))
    made.send(letter()[0], b"reply", 0.5)
    assert len({request.content for request in asked}) == 1
    assert waits == [1.0, 4.0]
    made, asked = fleet(*[httpx.ReadError("broken")] * 4)
    with pytest.raises(httpx.ReadError):
        made.send(letter()[0], b"reply", 0.5)
    made, asked = fleet(httpx.Response(409))  # the run is over: no use in trying again
    with pytest.raises(httpx.HTTPStatusError):
        made.send(letter()[0], b"reply", 0.5)


def test_a_superlink_without_a_post_office_is_asked_ever_less_often(monkeypatch):
    waits = list[float]()
    monkeypatch.setattr(connection.time, "sleep", waits.append)
    monkeypatch.setattr(connection.time, "monotonic", lambda: sum(waits))
    made, asked = fleet(httpx.Response(404), *[httpx.Response(200) for _ in range(40)])
    while sum(waits) < 120.0:
        assert made.receive(15.0) is None
    paths = [request.url.path for request in asked]
    assert paths[0] == QUESTION
    assert set(paths[1:]) == {"/v1/fleet/pull-messages"}
    assert waits[:3] == [0.4, 0.4 * 1.6, 0.4 * 1.6**2]
    assert waits[-3:] == [15.0] * 3
    assert made.heard == -math.inf  # such a question does not say that it is there: heartbeats do


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
        self.sent, self.stop, self.replies, self.heard = sent, stop, list[bytes](), -math.inf

    def receive(self, patience: float) -> Letter | None:
        if not self.sent:
            self.stop.set()
            return None
        each = self.sent.pop(0)
        if isinstance(each, Exception):
            raise each
        return Letter(1, each, None)  # type: ignore[arg-type]

    def send(self, letter: Letter, content: bytes, seconds: float) -> None:
        self.replies.append(content)

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


@pytest.mark.process  # a node compiles in a process of its own, unless that was done before
def test_nothing_that_a_server_sends_ends_a_node(folder, monkeypatch):
    """Errors of every kind, nonsense, other programs' messages: it goes on, and answers nothing but the refusal."""
    errors = [ValueError("half"), KeyError("x"), RuntimeError("odd"), AttributeError("y"), RecursionError("deep")]
    sent = [*errors, None, b"", b"\x00\x00\x00\x02{}", b"\xff" * 1000, b"refused", *errors]
    server, said = served(folder, sent, monkeypatch)
    assert server.replies == [REFUSAL] * 5
    assert [told.what for told in said].count("lost") == len(errors) * 2
    assert said[-1].what == "stopped"
    assert all("\n" not in told.words for told in said)


@pytest.mark.process
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
    assert server.replies == [REFUSAL]
    assert any("until the policy is mended" in told.words for told in said)
