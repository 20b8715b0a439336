"""The shell around the SuperLink: who reaches what, and how much is read of it."""

from __future__ import annotations

import asyncio
import importlib.util
import tracemalloc
from types import SimpleNamespace

import pytest

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree

from fultr.deploy import superlink
from fultr.deploy.parcels import packed
from fultr.deploy.superlink import MOST_BYTES, MOST_WITHOUT_KEY, Gate, objection_to_push


class Said:
    """What the shell did with a request."""

    def __init__(self, path: str, client: str = "192.0.2.9", server: str = "192.0.2.7", size: int | None = 0,
                 parts: tuple[bytes, ...] = (b"",), method: str = "POST", pause: float = 0.0,
                 state: object = None) -> None:  # fmt: skip
        self.status: int | None = None
        self.body: bytes | None = None
        self.read = 0
        waiting = list(parts)
        headers = [] if size is None else [(b"content-length", str(size).encode())]
        scope = {"type": "http", "path": path, "client": (client, 5), "server": (server, 9092), "headers": headers,
                 "method": method, "app": SimpleNamespace(state=SimpleNamespace(
                     linkstate_factory=SimpleNamespace(state=lambda: state)))}  # fmt: skip

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
    ("/v1/fleet/pull-messages", "192.0.2.9", "192.0.2.7", None),  # strangers do not even reach Flower
    ("/v1/fleet/activate-node", "127.0.0.1", "127.0.0.1", None),
    ("/v1/control/start-run", "not an address", "192.0.2.7", False),
    ("/v1/fultr/release.json", "127.0.0.1", "127.0.0.1", None),  # for nodes, with their keys
    ("/v1/fultr/question", "127.0.0.1", "127.0.0.1", None),
    ("/v1/fultr/reply", "127.0.0.1", "127.0.0.1", None),
    ("/v1/fultr/tasks", "192.0.2.9", "192.0.2.7", False),  # for the server app, with its token
    ("/v1/fultr/replies", "192.0.2.9", "192.0.2.7", False),
    ("/v1/fultr/tasks", "127.0.0.1", "127.0.0.1", None),
    ("/v1/fultr/replies", "127.0.0.1", "127.0.0.1", None),
])  # fmt: skip
def test_who_reaches_what_without_a_key(path, client, server, passes):
    said = Said(path, client, server)
    assert (said.body is not None) == bool(passes)
    assert said.status == (401 if passes is None else None if passes else 403)


def test_nothing_is_read_of_a_program_without_a_token():
    for path in ("/v1/fultr/tasks", "/v1/fultr/replies"):
        said = Said(path, "127.0.0.1", "127.0.0.1", size=None, parts=(bytes(1000),) * 1000)
        assert (said.status, said.read) == (401, 0)


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


def test_a_short_body_is_passed_on_whole(monkeypatch):
    monkeypatch.setattr(superlink, "_node_of", lambda scope: 5)
    said = Said("/v1/fleet/pull-messages", size=3000, parts=(b"a" * 1000, b"b" * 1000, b"c" * 1000))
    assert said.body == b"a" * 1000 + b"b" * 1000 + b"c" * 1000
    assert MOST_WITHOUT_KEY < MOST_BYTES


@pytest.mark.parametrize("path", ["/v1/fultr/release.json", "/v1/fleet/pull-object"])
def test_a_node_that_takes_no_answer_is_sent_one_at_a_time(path, monkeypatch, tmp_path):
    """In parts, so that no more than one waits in memory; and not for ever."""
    monkeypatch.setenv("FULTR_RELEASES", str(tmp_path))
    monkeypatch.setattr(superlink, "_node_of", lambda scope: scope["client"][1])
    monkeypatch.setattr(superlink, "_SECONDS", 0.2)
    monkeypatch.setattr(superlink, "_SLOWEST", 1e9)
    content = bytes(range(256)) * 2000
    (tmp_path / "release.json").write_bytes(content)
    made, sent = [], {}

    async def flower(scope, receive, send):
        made.append(scope["client"][1])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": content})

    async def ask(gate, node, number, takes):
        parts = sent.setdefault((node, number), [])

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            parts.append(message.get("body", b""))
            if not takes and parts[-1]:
                await asyncio.sleep(60)

        scope = {"type": "http", "path": path, "client": ("192.0.2.9", node), "server": ("192.0.2.7", 9092),
                 "headers": [(b"content-length", b"0")], "method": "GET"}  # fmt: skip
        await gate(scope, receive, send)

    async def all_at_once():
        gate = Gate(flower)
        slow = [asyncio.create_task(ask(gate, 5, i, takes=False)) for i in range(3)]
        await asyncio.sleep(0.1)
        await ask(gate, 6, 0, takes=True)  # another node does not wait
        assert [len(sent.get((5, i), ())) for i in range(3)] == [2, 0, 0]  # the head, and the first part
        assert made in ([], [5, 6])
        await asyncio.gather(*slow)  # each is given up in its turn

    asyncio.run(all_at_once())
    assert b"".join(sent[6, 0]) == content
    assert max(map(len, sent[6, 0])) == 65_536
    assert [len(b"".join(sent[5, i])) for i in range(3)] == [65_536] * 3


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


def test_a_node_replies_in_its_own_name_only(monkeypatch):
    assert objection_to_push(push(), 7) is None
    assert objection_to_push(push(), 8) == "a node replies in its own name only"
    assert objection_to_push(push(source=8), 7) == "a node replies in its own name only"
    assert objection_to_push(push(sender=8), 7) == "a node replies in its own name only"
    assert objection_to_push(push(reply_to=""), 7) == "a node only replies"
    assert objection_to_push(push(objects=4), 7) == "expected at most 3 objects"
    assert objection_to_push(push(messages=2), 7) == "expected one message"
    assert objection_to_push(b"", 7) == "expected one message"
    assert objection_to_push(b"\xff" * 9, 7) == "expected a message"
    monkeypatch.setattr(superlink, "_node_of", lambda scope: 5)
    assert Said("/v1/fleet/push-messages", size=len(push()), parts=(push(),)).status == 403
    body = packed([push(), b"object"])
    assert Said("/v1/fultr/reply", size=len(body), parts=(body,)).status == 403


@pytest.mark.parametrize("body", [
    b"", b"\0", b"\0\0\0\5abcd", bytes(4_000_000), packed([b""] * 5),
    packed([b"\x12\0" * 40_000]),  # forty thousand messages
])  # fmt: skip
def test_millions_of_small_parts_are_not_even_counted(body, monkeypatch):
    """Objects of Python take twenty times what an empty part of a request does."""
    monkeypatch.setattr(superlink, "_node_of", lambda scope: 5)
    tracemalloc.start()
    try:
        assert Said("/v1/fultr/reply", size=len(body), parts=(body,)).status == 403
        assert tracemalloc.get_traced_memory()[1] < 2 * len(body) + 2_000_000
    finally:
        tracemalloc.stop()
