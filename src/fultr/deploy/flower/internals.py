"""What is internal to Flower 1.41: the only module that uses such names, besides `control` and `superlink`.

A node calls the SuperLink itself: Flower's own node would run whatever app the SuperLink ships. The server app fetches
replies itself: Flower's grid would build whatever records a reply describes, of any size. Both speak to the post office
in the SuperLink's shell (`fultr.deploy.post`), and to Flower's Fleet API for what happens less often.

A message of ours is three of Flower's objects: a Message, a RecordDict and a ConfigRecord with one byte string.
Anything else is not looked into.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fultr.core.errors import FultrError, one_line
from fultr.deploy.post import QUESTION, REPLIES, REPLY, TASKS

os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1")  # read when Flower is imported

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, PullMessagesResponse, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.recorddict_pb2 import BytesList
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullAppMessagesResponse,
    PushAppMessagesRequest,
    PushAppMessagesResponse,
)
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_body,
    get_object_tree,
    get_object_type_from_object_content,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from google.protobuf.message import Error as ProtobufError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

HEARTBEAT_SECONDS = 0.6 * HEARTBEAT_DEFAULT_INTERVAL
"""How often a node must say that it is there, with room for one that gets lost."""

OBJECTS = ("Message", "RecordDict", "ConfigRecord")
"""The objects of a message of ours, from the outermost."""

_MOST_SAID = 1_000_000  # bytes of an answer without an object
_AT_A_TIME = 50  # messages that are sent in one request: others want to be served too
_SECONDS = 120.0  # for an answer: a question waits for a task, and among a thousand nodes for its turn
MOST_BYTES = 17_000_000  # of an answer of the SuperLink: a task, and what Flower adds
_ERRORS = {
    3: "no answer in time",
    4: "no answer in time",
    5: "it cannot be reached",
    9: "its reply did not arrive whole",
}  # Flower's codes, in words


def record_of(content: bytes) -> RecordDict:
    """A byte string as the only content of a message."""
    return RecordDict({"fultr": ConfigRecord({"content": content})})


def _content_of(objects: Iterable[bytes]) -> bytes | str:
    """The byte string in the objects of a message; or in words why it is none of ours."""
    by_type = {get_object_type_from_object_content(content): content for content in objects}
    if set(by_type) == {OBJECTS[0]}:
        message = Message.inflate(by_type[OBJECTS[0]], children={})
        if message.has_error():
            return _ERRORS.get(message.error.code, f"Flower's error {message.error.code}")
    if set(by_type) != set(OBJECTS):
        return "it is another program's message"
    content = _only_bytes(get_object_body(by_type[OBJECTS[2]], ConfigRecord))
    return "it is another program's message" if content is None else content


def _only_bytes(record: bytes) -> bytes | None:
    """The byte string of a ConfigRecord that holds nothing else; None if it does.

    Read by hand: Flower would first make objects of all that is in it, millions from some megabytes. The message is a
    map with one entry, of the key "content" (field 1) and a value (field 2) whose field 6 is the byte string.
    """
    entry = _only(record, 1)
    key = None if entry is None else _field(entry)
    if key is None or key[:2] != (1, b"content"):
        return None
    value = _only(key[2], 2)
    return None if value is None else _only(value, 6)


def _only(data: bytes, number: int) -> bytes | None:
    """The content of the field of a number, if it is all there is."""
    found = _field(data)
    return found[1] if found is not None and found[0] == number and not found[2] else None


def _field(data: bytes) -> tuple[int, bytes, bytes] | None:
    """The number and content of the first field of a message, if it has a length; and what follows it."""
    if not data or data[0] & 7 != 2 or data[0] >= 128:
        return None
    size, at = 0, 1
    for shift in range(0, 35, 7):
        if at >= len(data):
            return None
        size |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            break
    return (data[0] >> 3, data[at : at + size], data[at + size :]) if at + size <= len(data) else None


# The node's side.


@dataclass(frozen=True, eq=False)
class Letter:
    """A message that a node was sent.

    Attributes:
        run: the number of the run that sent it.
        content: the byte string in it; None: it is another program's.
        message: what a reply refers to.
    """

    run: int
    content: bytes | None
    message: Message


class Fleet:
    """A node's connection to a SuperLink; it only ever calls, and listens on no port.

    Attributes:
        number: the node's, as the SuperLink knows it.
        heard: when it last asked for a message; by the clock of `time.monotonic`.
    """

    def __init__(self, client: FleetHttpClient, number: int) -> None:
        """Use `connected`."""
        self.number = number
        self._client, self._node = client, Node(node_id=number)
        self.heard = -math.inf

    def alive(self) -> bool:
        """Say that the node is still there; False if the SuperLink does not know it any more."""
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        return bool(self._client.SendNodeHeartbeat(request).success)

    def receive(self, patience: float = 0.0) -> Letter | None:
        """The next message; None if none comes within so many seconds, or as long as the SuperLink lets a node wait."""
        parts = _called(self._client, QUESTION, [f"{patience:.3f}".encode()])
        self.heard = time.monotonic()
        if not parts:
            return None
        message = message_from_proto(PullMessagesResponse.FromString(parts[0]).messages_list[0])
        content: bytes | str = "it is another program's message"
        with suppress(KeyError, TypeError, ValueError, AttributeError, ProtobufError):  # anything may be in it
            content = _content_of(parts[1:])
        return Letter(message.metadata.run_id, content if isinstance(content, bytes) else None, message)

    def send(self, letter: Letter, content: bytes, seconds: float) -> None:
        """Reply to a message, after so many seconds of work."""
        reply = Message(record_of(content), reply_to=letter.message)
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            request = PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[seconds],
            )
            objects = [each.deflate() for each in get_all_nested_objects(reply).values()]
        _called(self._client, REPLY, [request.SerializeToString(), *objects])

    def fetch(self, path: str) -> bytes:
        """A file that the shell around the SuperLink has for nodes, see `fultr.deploy.superlink`."""
        client = self._client._client
        request = client.build_request("GET", f"{self._client._base_url}{path}")
        response = self._client._send(_Signed(request))  # type: ignore[arg-type]
        response.raise_for_status()
        return bytes(response.content)

    def leave(self) -> None:
        """Say that the node is gone, so that nobody waits for it."""
        with suppress(httpx.HTTPError):
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=self.number))


@dataclass(frozen=True)
class _Signed:
    """What Flower's signature of a request needs to know of it."""

    request: httpx.Request


@contextmanager
def connected(
    address: str, authority: bytes, key: ec.EllipticCurvePrivateKey, before: int | None = None
) -> Iterator[Fleet]:
    """Connect a node to the SuperLink at an address.

    Args:
        address: HOST:PORT.
        authority: the certificate that it must be signed by.
        key: the node's.
        before: its number when it was last connected. Should it have been killed then, it takes leave first; otherwise
            it would not be admitted for a minute.
    """
    signed = NodeAuthHttpInterceptor(key, key.public_key())
    with FleetHttpClient.from_server_address(address, False, authority, [signed]) as client:
        client._client.follow_redirects = False
        client._client.event_hooks["response"].append(_bounded)
        if before is not None:
            Fleet(client, before).leave()
        public = public_key_to_bytes(key.public_key())
        request = ActivateNodeRequest(public_key=public, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        fleet = Fleet(client, client.ActivateNode(request).node_id)
        try:
            yield fleet
        finally:
            fleet.leave()


def _bounded(response: httpx.Response) -> None:
    """Refuse to read an answer that is too long, or compressed: nobody knows how long it would become."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx.DecodingError("the answer is compressed", request=response.request)
    path = response.request.url.path
    large = path.endswith("/pull-object") or not path.startswith("/v1/fleet/")
    response.stream = _Bounded(response.stream, MOST_BYTES if large else _MOST_SAID)


class _Bounded(httpx.SyncByteStream):
    def __init__(self, stream: Any, most: int) -> None:
        self.stream, self.most = stream, most

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self.stream:
            size += len(part)
            if size > self.most:
                raise httpx.DecodingError(f"the answer has more than {self.most:,} bytes")
            yield part

    def close(self) -> None:
        self.stream.close()


def why(error: Exception, address: str) -> FultrError | None:
    """What is wrong if trying again will not help; None: it might."""
    text = str(error)
    if isinstance(error, httpx.HTTPStatusError):
        code, said = error.response.status_code, one_line(error.response.text)
        if code in (400, 401, 403, 412):
            return FultrError(
                f"{address}: the SuperLink does not admit this node (status {code}: {said}): register its key with "
                "fultr deploy register, let no other device use it, and see to it that the clocks agree"
            )
    if isinstance(error, httpx.ConnectError) and "CERTIFICATE_VERIFY_FAILED" in text:
        expired = "has expired" in text
        return FultrError(
            f"{address}: the SuperLink's certificate {'has expired: renew it there' if expired else 'is not trusted'} "
            f"({text[text.find(':') + 1 :].strip()[:150]})"
        )
    return None


# The server app's side.


def push(grid: Any, messages: list[Message]) -> Iterator[str]:
    """Send messages, a few at a time; yields the ids by which their replies are asked for, "" where one cannot be."""
    for i in range(0, len(messages), _AT_A_TIME):
        part = messages[i : i + _AT_A_TIME]
        objects: dict[str, bytes] = {}
        with no_object_id_recompute():
            for message in part:
                message.metadata.__dict__["_message_id"] = message.object_id
                found = get_all_nested_objects(message)
                objects |= {id_: found[id_].deflate() for id_ in found if id_ not in objects}
            request = PushAppMessagesRequest(
                messages_list=[message_to_proto(remove_content_from_message(message)) for message in part],
                message_object_trees=[get_object_tree(message) for message in part],
            )
        (answer,) = _called(grid._runtime_client, TASKS, [request.SerializeToString(), *objects.values()])
        yield from PushAppMessagesResponse.FromString(answer).message_ids


def fetch_replies(grid: Any, ids: list[str]) -> list[tuple[str, bytes | str | ObjectTree]]:
    """The replies to some messages since the last call: the message's id, and the byte string.

    Or in words why there is none; or what `fetched` is to look for, if it was announced and has not arrived whole. Our
    nodes send no such reply, but any program with a node's key can.
    """
    request = PullAppMessagesRequest(message_ids=ids).SerializeToString()
    answer, *objects = _called(grid._runtime_client, REPLIES, [request])
    response = PullAppMessagesResponse.FromString(answer)
    found: list[tuple[str, bytes | str | ObjectTree]] = []
    for message, tree, parts in zip(response.messages_list, response.message_object_trees, objects, strict=True):
        contents = list(BytesList.FromString(parts).vals)
        found.append((message.metadata.reply_to_message_id, _read(contents) if contents else tree))
    return found


def fetched(grid: Any, tree: ObjectTree) -> bytes | str | None:
    """The byte string of a reply, or in words why there is none; None if it has not arrived whole yet.

    Nobody waits for it here: a node may announce a reply and never deliver it.
    """
    client, run, ids = grid._runtime_client, grid.run.run_id, _ids(tree)
    if len(ids) > len(OBJECTS):
        return f"its reply has {len(ids):,} objects, and {len(OBJECTS)} is the limit"
    objects = []
    for id_ in ids:
        response = client.PullObject(PullObjectRequest(node=grid.node, run_id=run, object_id=id_))
        if not response.object_found:
            return "its reply did not arrive whole"
        if not response.object_available:
            return None
        objects.append(response.object_content)
    confirm = ConfirmMessageReceivedRequest(node=grid.node, run_id=run, message_object_id=tree.object_id)
    client.ConfirmMessageReceived(confirm)
    return _read(objects)


def _read(objects: list[bytes]) -> bytes | str:
    try:
        return _content_of(objects)
    except Exception as error:  # anything may have arrived
        return f"its reply cannot be read ({type(error).__name__})"


def _called(client: Any, path: str, parts: list[bytes]) -> list[bytes]:
    """Ask the post office of the SuperLink, see `fultr.deploy.post`."""
    request = BytesList(vals=parts)
    answer = client._unary_unary(path=path, rpc_method=path, request=request, response_type=BytesList, timeout=_SECONDS)
    return list(answer.vals)


def _ids(tree: ObjectTree) -> list[str]:
    """The different objects of a message."""
    return list({each.object_id: None for each in iterate_object_tree(tree)})
