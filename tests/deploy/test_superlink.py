"""The shell around the SuperLink: who reaches what, and how much is read of it."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree

from fultr.deploy import superlink
from fultr.deploy.superlink import MOST_BYTES, MOST_WITHOUT_KEY, Gate, objection_to_push


class Said:
    """What the shell did with a request."""

    def __init__(self, path: str, client: str = "192.0.2.9", server: str = "192.0.2.7", size: int | None = 0,
                 parts: tuple[bytes, ...] = (b"",), method: str = "POST", pause: float = 0.0) -> None:  # fmt: skip
        self.status: int | None = None
        self.body: bytes | None = None
        self.read = 0
        waiting = list(parts)
        headers = [] if size is None else [(b"content-length", str(size).encode())]
        scope = {"type": "http", "path": path, "client": (client, 5), "server": (server, 9092), "headers": headers,
                 "method": method}  # fmt: skip

        async def receive() -> dict[str, object]:
            await asyncio.sleep(pause)
            part = waiting.pop(0)
            self.read += len(part)
            return {"type": "http.request", "body": part, "more_body": bool(waiting)}

        async def send(message: dict[str, object]) -> None:
            self.status = message.get("status", self.status)  # type: ignore[assignment]

        async def app(scope: object, receive: object, send: object) -> None:
            self.body = (await receive())["body"]  # type: ignore[operator]

        asyncio.run(Gate(app)(scope, receive, send))  # type: ignore[arg-type]


@pytest.mark.parametrize(("path", "client", "server", "passes"), [
    ("/v1/control/start-run", "127.0.0.1", "127.0.0.1", True),
    ("/v1/control/start-run", "::1", "::1", True),
    ("/v1/control/start-run", "192.0.2.7", "192.0.2.7", True),  # this machine, by its own address
    ("/v1/control/start-run", "192.0.2.9", "192.0.2.7", False),
    ("/v1/runtime/acquire-task", "192.0.2.9", "192.0.2.7", False),
    ("/docs", "192.0.2.9", "192.0.2.7", False),
    ("/v1/fleet", "192.0.2.9", "192.0.2.7", False),
    ("/v1/fleet/pull-messages", "192.0.2.9", "192.0.2.7", True),
    ("/v1/control/start-run", "not an address", "192.0.2.7", False),
    ("/v1/fultr/release.json", "127.0.0.1", "127.0.0.1", None),  # for nodes, with their keys
    ("/v1/fultr/question", "127.0.0.1", "127.0.0.1", None),
    ("/v1/fultr/reply", "127.0.0.1", "127.0.0.1", None),
    ("/v1/fultr/tasks", "192.0.2.9", "192.0.2.7", False),  # for the server app, with its token
    ("/v1/fultr/replies", "192.0.2.9", "192.0.2.7", False),
])  # fmt: skip
def test_other_machines_reach_the_fleet_api_alone(path, client, server, passes):
    said = Said(path, client, server)
    assert (said.body is not None) == bool(passes)
    assert said.status == (401 if passes is None else None if passes else 403)


def test_a_long_body_without_a_key_is_not_read():
    said = Said("/v1/fleet/push-object", size=1_500_000_000, parts=(bytes(1000),) * 1000)
    assert (said.status, said.read, said.body) == (413, 0, None)
    said = Said("/v1/fleet/push-object", size=None, parts=(bytes(1000),) * 1000)  # in chunks, of unknown length
    assert (said.status, said.read, said.body) == (413, 0, None)


def test_only_an_object_may_be_long(monkeypatch):
    """With a registered key: an object, at most two at a time of one node; nothing else."""
    monkeypatch.setattr(superlink, "_node_of", lambda scope: 5)
    body = bytes(100_000)
    assert Said("/v1/fleet/push-object", size=len(body), parts=(body,)).body == body
    assert Said("/v1/fleet/push-messages", size=len(body), parts=(body,)).status == 413
    assert Said("/v1/fleet/push-object", size=MOST_BYTES + 1, parts=(body,)).status == 413


def test_whoever_is_slow_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(superlink, "_node_of", lambda scope: 5)
    monkeypatch.setattr(superlink, "_SECONDS", 0.05)
    monkeypatch.setattr(superlink, "_SLOWEST", 1e9)
    assert Said("/v1/fleet/push-object", size=100_000, parts=(b"a", b"b"), pause=0.5).status == 408


def test_any_header_is_no_more_than_no_key():
    """A key of another kind, a time that is none, text that is not base64."""
    for value in (b"x", b"", b"LS0t", bytes(300)):
        names = (b"flwr-public-key", b"x-flwr-public-key", b"flwr-signature", b"flwr-timestamp", b"timestamp")
        scope = {"headers": [(name, value) for name in names], "app": None}
        assert superlink._node_of(scope) is None


def test_a_body_that_is_longer_than_it_says_is_not_read_on():
    said = Said("/v1/fleet/push-object", size=1000, parts=(bytes(1000),) * 1000)
    assert (said.status, said.body) == (413, None)
    assert said.read == 2000


def test_a_short_body_is_passed_on_whole():
    said = Said("/v1/fleet/pull-messages", size=3000, parts=(b"a" * 1000, b"b" * 1000, b"c" * 1000))
    assert said.body == b"a" * 1000 + b"b" * 1000 + b"c" * 1000
    assert MOST_WITHOUT_KEY < MOST_BYTES


@pytest.mark.parametrize("name", ["../superlink/server.key", "versions/../../ca/ca.key", "checkpoint.npz", ""])
def test_only_files_of_a_release_are_there(name, monkeypatch, tmp_path):
    monkeypatch.setenv("FULTR_RELEASES", str(tmp_path))
    monkeypatch.setattr(superlink, "_node_of", lambda scope: 5)
    for path in (tmp_path / "checkpoint.npz", tmp_path / "release.json"):
        path.write_text("{}")
    assert Said(f"/v1/fultr/{name}", method="GET").status == 404
    assert Said("/v1/fultr/release.json", method="GET").status == 200
    assert Said("/v1/fultr/release.json", method="POST").status == 404


def push(sender: int = 7, source: int = 7, reply_to: str = "a", objects: int = 3, messages: int = 1) -> bytes:
    request = PushMessagesRequest()
    request.node.node_id = sender
    for _ in range(messages):
        message = request.messages_list.add()
        message.metadata.src_node_id, message.metadata.reply_to_message_id = source, reply_to
        tree: ObjectTree = request.message_object_trees.add()
        for i in range(objects):
            tree.object_id = str(i)
            tree = tree.children.add() if i + 1 < objects else tree
    return request.SerializeToString()


def test_a_node_replies_in_its_own_name_only():
    assert objection_to_push(push()) is None
    assert objection_to_push(push(source=8)) == "a node replies in its own name only"
    assert objection_to_push(push(reply_to="")) == "a node only replies"
    assert objection_to_push(push(objects=4)) == "expected at most 3 objects"
    assert objection_to_push(push(messages=2)) == "expected one message"
    assert objection_to_push(b"") == "expected one message"
    assert objection_to_push(b"\xff" * 9) is None  # which Flower refuses
    assert objection_to_push(push(), signed=7) is None
    assert objection_to_push(push(), signed=8) == "a node replies in its own name only"
    assert objection_to_push(b"\xff" * 9, signed=7) == "expected a message"
    assert Said("/v1/fleet/push-messages", size=len(push(8)), parts=(push(8),)).status == 403
