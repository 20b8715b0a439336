"""A node's connection to a SuperLink, made of what is internal to Flower 1.41, as in `internals`.

Flower's own node would run whatever app the SuperLink ships; this one fetches messages and hands them on. It speaks to
the post office in the shell around the SuperLink (`fultr.deploy.post`), and to Flower's Fleet API for the rest. With a
SuperLink that has no such shell, it uses the Fleet API alone, which takes ten requests for a task and its reply.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fultr.core.errors import FultrError, one_line
from fultr.deploy.flower.internals import MOST_BYTES, OBJECTS, called, content_of, ids_of, record_of
from fultr.deploy.parcels import MOST_ABOUT, QUESTION, REPLY

# isort: split
import httpx
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
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

_MOST_SAID = 1_000_000  # bytes of an answer without an object
_AGAIN = (1.0, 4.0, 10.0)  # seconds after which a reply is sent again, if the connection broke
_FIRST_PAUSE, _GROWTH = 0.4, 1.6  # seconds between two questions to a SuperLink that lets nobody wait; then ever longer
_WHOLE_SECONDS = 20.0  # that the rest of a message is waited for there


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
        heard: when it last asked for a message in a way that says that it is there; by the clock of `time.monotonic`.
        plain: has the SuperLink no post office? This shows at the first question.
    """

    def __init__(self, client: FleetHttpClient, number: int) -> None:
        """Use `connected`."""
        self.number = number
        self._client, self._node = client, Node(node_id=number)
        self.heard, self.plain = -math.inf, False
        self._had, self._pause = "", _FIRST_PAUSE

    def alive(self) -> bool:
        """Say that the node is still there; False if the SuperLink does not know it any more."""
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        return bool(self._client.SendNodeHeartbeat(request).success)

    def receive(self, patience: float = 0.0) -> Letter | None:
        """The next message; None if none comes within this many seconds, or while the SuperLink lets a node wait."""
        if self.plain:
            return self._receive_plain(patience)
        try:
            parts = called(self._client, QUESTION, [f"{patience:.3f}".encode(), self._had.encode()], 1 + len(OBJECTS))
        except httpx.HTTPStatusError as error:
            if error.response.status_code != 404:
                raise
            self.plain = True
            return self._receive_plain(patience)
        self.heard = time.monotonic()
        if not parts:
            return None
        if len(parts[0]) > MOST_ABOUT:
            raise ValueError(f"what the SuperLink says about a message has {len(parts[0]):,} bytes")
        letter = _letter(PullMessagesResponse.FromString(parts[0]), parts[1:])
        self._had = letter.message.metadata.message_id
        return letter

    def _receive_plain(self, patience: float) -> Letter | None:
        """The same by Flower's Fleet API alone: asking again, ever less often while nothing comes."""
        deadline = time.monotonic() + patience
        while not (response := self._client.PullMessages(PullMessagesRequest(node=self._node))).messages_list:
            left = deadline - time.monotonic()
            time.sleep(max(0.0, min(self._pause, left)))
            if self._pause >= left:
                return None
            self._pause *= _GROWTH
        self._pause = _FIRST_PAUSE
        tree, run = response.message_object_trees[0], response.messages_list[0].metadata.run_id
        objects = self._objects(run, tree)
        confirm = ConfirmMessageReceivedRequest(node=self._node, run_id=run, message_object_id=tree.object_id)
        self._client.ConfirmMessageReceived(confirm)
        return _letter(response, objects)

    def _objects(self, run: int, tree: ObjectTree) -> list[bytes]:
        """The objects of a message, which may be announced before they are there; none if they are not ours."""
        ids, found, deadline = ids_of(tree), list[bytes](), time.monotonic() + _WHOLE_SECONDS
        while len(found) < len(ids) <= len(OBJECTS):
            request = PullObjectRequest(node=self._node, run_id=run, object_id=ids[len(found)])
            response = self._client.PullObject(request)
            if response.object_found and response.object_available:
                found.append(response.object_content)
            elif not response.object_found or time.monotonic() > deadline:
                return []
            else:
                time.sleep(0.2)
        return found

    def send(self, letter: Letter, content: bytes, seconds: float) -> None:
        """Reply to a message, after this many seconds of work; once more if the connection breaks."""
        reply = Message(record_of(content), reply_to=letter.message)
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            request = PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[seconds],
            )
            objects = {id_: each.deflate() for id_, each in get_all_nested_objects(reply).items()}
        for pause in (*_AGAIN, None):
            try:
                if self.plain:
                    self._send_plain(letter.run, request, objects)
                else:
                    called(self._client, REPLY, [request.SerializeToString(), *objects.values()])
                return
            except httpx.TransportError:  # it may or may not have arrived: a second time it does no harm
                if pause is None:
                    raise
                time.sleep(pause)

    def _send_plain(self, run: int, request: PushMessagesRequest, objects: dict[str, bytes]) -> None:
        response = self._client.PushMessages(request)
        for id_ in response.objects_to_push:
            push = PushObjectRequest(node=self._node, run_id=run, object_id=id_, session_id=response.session_id)
            push.object_content = objects[id_]
            self._client.PushObject(push)

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


def _letter(response: PullMessagesResponse, objects: list[bytes]) -> Letter:
    message = message_from_proto(response.messages_list[0])
    content: bytes | str = ""
    with suppress(KeyError, TypeError, ValueError, AttributeError, ProtobufError):  # anything may be in it
        content = content_of(objects)
    return Letter(message.metadata.run_id, content if isinstance(content, bytes) else None, message)


@dataclass(frozen=True)
class _Signed:
    """What Flower's signature of a request needs to know of it."""

    request: httpx.Request


@contextmanager
def connected(
    address: str,
    authority: bytes,
    key: ec.EllipticCurvePrivateKey,
    before: int | None = None,
    known: int | None = None,
) -> Iterator[Fleet]:
    """Connect a node to the SuperLink at an address. It takes leave at the end, but not if the connection is lost.

    Args:
        address: HOST:PORT.
        authority: the certificate that it must be signed by.
        key: the node's.
        before: its number when it was last connected. Should it have been killed then, it takes leave first; otherwise
            it would not be admitted for a minute.
        known: its number, if only the connection was lost. Where the SuperLink still knows it, it goes on as that and
            was never gone: what it was sent meanwhile waits for it.
    """
    signed = NodeAuthHttpInterceptor(key, key.public_key())
    with FleetHttpClient.from_server_address(address, False, authority, [signed]) as client:
        client._client.follow_redirects = False
        client._client.event_hooks["response"].append(_bounded)
        if known is None or not _is_known(fleet := Fleet(client, known)):
            if before is not None:
                Fleet(client, before).leave()
            public = public_key_to_bytes(key.public_key())
            request = ActivateNodeRequest(public_key=public, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
            fleet = Fleet(client, client.ActivateNode(request).node_id)
        try:
            yield fleet
        except KeyboardInterrupt:  # that is how a node ends
            fleet.leave()
            raise
        fleet.leave()


def _is_known(fleet: Fleet) -> bool:
    """Does the SuperLink know the node by this number?"""
    try:
        return fleet.alive()
    except httpx.HTTPStatusError:  # the key has another number, or none
        return False


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
