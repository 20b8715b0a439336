"""Flower's SuperLink, open to other machines only for nodes. Run as a file, by `start.sh`.

Flower serves three APIs on one port: the Fleet API for nodes, which requires a registered key; the Control API, for
submitting runs, registering nodes and reading logs; and the Runtime API for its own helper processes. The last two
require nothing. So requests from other machines may reach only the Fleet API, and what they may send there is limited
before it is read: a little without a valid key, a task's worth with one, and replies only in the sender's own name.

Under /v1/fultr/ the shell answers itself: it hands out tasks and takes replies (`fultr.deploy.post`), and nodes fetch
the current ranker: the files in the folder that FULTR_RELEASES names. Arguments are those of `flower-superlink`.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import os
import re
from base64 import b64decode
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fultr.core.system import allow_open_files
from fultr.deploy.parcels import (
    MOST_ABOUT,
    OBJECTS,
    QUESTION,
    REPLIES,
    REPLY,
    TASKS,
    PostError,
    packed,
    unpacked,
)
from fultr.deploy.post import Post, Turns
from fultr.deploy.post_state import task_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from typing import TypeAlias

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    Use: TypeAlias = Callable[[Scope, bytes, Receive, Send], Awaitable[None]]

FLEET, FILES = "/v1/fleet/", "/v1/fultr/"
_PUSH = "/v1/runtime/push-messages"
_LOCAL, _ENDLESS = ("/v1/runtime/", "/v1/control/"), "/v1/control/stream-"
MOST_WITHOUT_KEY = 64_000
"""Bytes of a request's body without the signature of a registered node."""

MOST_BYTES = 17_000_000
"""Bytes of a node's request: a reply, and what Flower adds."""

MOST_LOCAL = 64_000_000
"""Bytes of a request of the server app: a task, and what Flower adds for each node."""

_LARGE = (f"{FLEET}push-object", REPLY)  # the only requests with a large body
_BODIES, _BODIES_OF_ONE = 16, 2  # large bodies that are held at a time, and of one node
_SECONDS, _SLOWEST = 10.0, 100_000.0  # for a request to arrive, and bytes a second of the rest of it
_PART = 65_536  # bytes of an answer that are sent at once
_FILE = re.compile(r"release\.json|versions/v\d{4,12}-[0-9a-f]{6}\.json")


class Gate:
    """Middleware that turns away what no node of this federation would send, and hands nodes their ranker."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.large = asyncio.Semaphore(_BODIES)
        self.held: dict[int, int] = {}  # large bodies by node
        self.answers: dict[int, asyncio.Lock] = {}  # by node: one large answer at a time is on its way
        self.turns = Turns()
        self.post = Post(self.turns)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or say why not."""
        path = scope.get("path", "")
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            return  # the server closes the connection
        elif path in (QUESTION, REPLY):
            await self._limited(scope, receive, send, self._deliver)
        elif path.startswith(FLEET):
            await self._limited(scope, receive, send, self._fleet)
        elif path.startswith(FILES) and path not in (TASKS, REPLIES):
            await self._serve(scope, path.removeprefix(FILES), send)
        elif not is_local(scope):
            await _say(send, 403, "only for programs on the server")
        elif path in (TASKS, REPLIES):
            await self._dispatch(scope, receive, send)
        elif path.startswith(_LOCAL) and not path.startswith(_ENDLESS):
            await self._local(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _limited(self, scope: Scope, receive: Receive, send: Send, use: Use) -> None:
        """Read what a node sends, under a limit, and use it."""
        announced = _headers(scope).get("content-length", "")
        size = int(announced) if announced.isdecimal() and len(announced) < 12 else None
        if size is not None and size <= MOST_WITHOUT_KEY:
            await _use(scope, receive, send, size, use)
        elif (node := await asyncio.to_thread(_node_of, scope)) is None:
            await _say(send, 413, f"more than {MOST_WITHOUT_KEY} bytes, or of unknown length, need a registered key")
        elif size is None or size > MOST_BYTES or scope["path"] not in _LARGE:
            await _say(send, 413, f"expected at most {MOST_BYTES} bytes of an object, and a content-length")
        elif self.held.get(node, 0) >= _BODIES_OF_ONE:
            await _say(send, 429, "expected one object after the other")
        else:
            self.held[node] = self.held.get(node, 0) + 1
            try:
                async with self.large:
                    await _use(scope, receive, send, size, use)
            finally:
                self.held[node] -= 1

    async def _fleet(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Look at what a node says, and pass it on to Flower; strangers take nobody's turn."""
        node = await asyncio.to_thread(_node_of, scope)
        if node is None:
            await _say(send, 401, "needs a registered key")
            return
        if scope["path"] == f"{FLEET}push-messages" and (found := objection_to_push(body, node)):
            await _say(send, 403, found)
            return
        large = scope["path"] == f"{FLEET}pull-object"
        async with self._one_answer(node) if large else nullcontext():
            await self._in_turn(scope, body, receive, send, self.turns.node())
        self.post.others |= "/push-" in scope["path"]

    async def _local(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what a program on the server asks of Flower."""
        body = await _read(receive, MOST_LOCAL)
        if body is None:
            await _say(send, 413, f"expected at most {MOST_LOCAL} bytes")
            return
        await self._in_turn(scope, body, receive, send, self.turns.lock)
        if scope["path"] == _PUSH:  # another program's messages: for whom is not known here
            self.post.wake(set(self.post.held))

    async def _in_turn(
        self, scope: Scope, body: bytes, receive: Receive, send: Send, turn: AbstractAsyncContextManager[object]
    ) -> None:
        """Have Flower answer a request that was read, once others are done.

        Who is slow to send or to take the answer keeps nobody waiting. Nobody finds the database locked: Flower gives
        up after five seconds, which hundreds of nodes can take.
        """
        told = False
        answer: list[Message] = []

        async def again() -> Message:
            nonlocal told
            if told:
                return await receive()
            told = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def keep(part: Message) -> None:
            answer.append(part)

        async with turn:
            await self.app(scope, again, keep)
        await _send_slowly(send, answer)

    async def _deliver(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Hand a node its next task, or take its reply."""
        node = await asyncio.to_thread(_node_of, scope)
        parts = _parts(body, 1 + OBJECTS)
        if node is None:
            await _say(send, 401, "needs a registered key")
        elif scope["path"] == QUESTION:
            had, patience = _had(parts)
            await _answer(send, self.post.question(_state(scope), node, had, patience, receive), self._one_answer(node))
        elif found := objection_to_push(parts[0], node) if parts else "expected a message":
            await _say(send, 403, found)
        else:
            await _answer(send, self.post.reply(_state(scope), node, parts))

    def _one_answer(self, node: int) -> asyncio.Lock:
        """Held while a large answer to a node is made and sent: what it does not take is in memory once."""
        return self.answers.setdefault(node, asyncio.Lock())

    async def _serve(self, scope: Scope, name: str, send: Send) -> None:
        """A file of the current release, to a node with a registered key."""
        folder = os.environ.get("FULTR_RELEASES", "")
        if (node := await asyncio.to_thread(_node_of, scope)) is None:
            await _say(send, 401, "needs a registered key")
            return
        async with self._one_answer(node):
            try:
                if not folder or scope.get("method") != "GET" or not _FILE.fullmatch(name):
                    raise FileNotFoundError
                content = await asyncio.to_thread((Path(folder) / name).read_bytes)
            except OSError:
                await _say(send, 404, "there is no such file")
                return
            await _respond(send, 200, content, b"application/json")

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take tasks from the server app, or hand it replies."""
        from flwr.supercore.constant import TASK_TOKEN_HEADER

        token = _headers(scope).get(TASK_TOKEN_HEADER.lower(), "")
        try:
            await asyncio.to_thread(task_of, _state(scope), token)
        except PostError as error:  # before anything is read
            await _say(send, 401, str(error))
            return
        body = await _read(receive, MOST_LOCAL)
        parts = _parts(body) if body is not None else []
        work = self.post.tasks if scope["path"] == TASKS else self.post.replies
        if parts:
            await _answer(send, work(_state(scope), token, parts))
        else:
            await _say(send, 413, f"expected at most {MOST_LOCAL} bytes, and messages in them")


async def _use(scope: Scope, receive: Receive, send: Send, size: int, use: Use) -> None:
    try:
        async with asyncio.timeout(_SECONDS + size / _SLOWEST):
            body = await _read(receive, size)
    except TimeoutError:
        await _say(send, 408, f"expected the whole request within {_SECONDS + size / _SLOWEST:.0f} s")
        return
    if body is None:
        await _say(send, 413, "more bytes than announced")
    else:
        await use(scope, body, receive, send)


async def _answer(
    send: Send, work: Awaitable[list[bytes]], hold: AbstractAsyncContextManager[object] | None = None
) -> None:
    """Send what the post office answers, or why it does not; `hold` is held meanwhile."""
    from flwr.supercore.error import FlowerError
    from google.protobuf.message import DecodeError

    try:
        parts = await work
        async with hold or nullcontext():
            await _respond(send, 200, packed(parts), b"application/octet-stream")
    except (PostError, FlowerError, ValueError, DecodeError) as error:
        await _say(send, 409, str(error)[:200])


def _parts(body: bytes, most: int | None = None) -> list[bytes]:
    """The byte strings that a request consists of; none of one with too many."""
    try:
        return unpacked(body, most)
    except PostError:
        return []


def _had(parts: list[bytes]) -> tuple[str, float]:
    """The last task that a node knows of, and seconds that it is willing to wait for the next."""
    try:
        return parts[1].decode(), max(0.0, float(parts[0]))
    except (IndexError, ValueError):
        return "", 0.0


def _state(scope: Scope) -> Any:
    return scope["app"].state.linkstate_factory.state()


async def _read(receive: Receive, most: int) -> bytes | None:
    """A request's body; None if it is longer."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(parts)  # gone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def objection_to_push(body: bytes, node: int) -> str | None:
    """Why what a node announces is refused: Flower itself does not compare its sender with the key that signed.

    Args:
        body: a PushMessagesRequest.
        node: whose key signed it.
    """
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
    from google.protobuf.message import DecodeError

    if len(body) > MOST_ABOUT:
        return f"expected at most {MOST_ABOUT} bytes beside the objects"
    request = PushMessagesRequest()
    try:
        request.ParseFromString(body)
    except DecodeError:
        return "expected a message"
    if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
        return "expected one message"
    said = request.messages_list[0].metadata
    if not said.src_node_id == request.node.node_id == node:
        return "a node replies in its own name only"
    if not said.reply_to_message_id:
        return "a node only replies"
    if sum(1 for _ in iterate_object_tree(request.message_object_trees[0])) > OBJECTS:
        return f"expected at most {OBJECTS} objects"
    return None


def _node_of(scope: Scope) -> int | None:
    """The node whose registered key signed a request; None if there is none. As Flower itself sees it."""
    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

    headers = _headers(scope)
    try:
        key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER.lower()], validate=True)
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER.lower()], validate=True)
        when = headers[TIMESTAMP_HEADER.lower()]
        age = (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(when)).total_seconds()
        if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
            return None
        if not verify_signature(bytes_to_public_key(key), when.encode("ascii"), signature):
            return None
        known: int | None = _state(scope).get_node_id_by_public_key(key)
    except Exception:  # anything may be in the headers
        return None
    return known


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


async def _say(send: Send, status: int, words: str) -> None:
    await _respond(send, status, f"{words}\n".encode(), b"text/plain")


async def _respond(send: Send, status: int, content: bytes, kind: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(content)).encode())]
    if status in (408, 413):
        headers.append((b"connection", b"close"))  # what is still on its way is not read
    start: Message = {"type": "http.response.start", "status": status, "headers": headers}
    await _send_slowly(send, [start, {"type": "http.response.body", "body": content}])


async def _send_slowly(send: Send, answer: list[Message]) -> None:
    """Send an answer in small parts, each when those before have left; who takes it too slowly gets no more of it."""
    size = sum(len(part.get("body", b"")) for part in answer)
    with suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS + size / _SLOWEST):
            for part in answer:
                body = part.get("body", b"")
                for begin in range(0, len(body) - _PART, _PART):
                    await send({**part, "body": body[begin : begin + _PART], "more_body": True})
                await send({**part, "body": body[-(len(body) % _PART or _PART) :]} if body else part)


def is_local(scope: Scope) -> bool:
    """Does a request come from this machine: from a loopback address, or from the address that it is sent to?"""
    client, server = scope.get("client"), scope.get("server")
    if not client:
        return False
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback or (server is not None and client[0] == server[0])


def main() -> None:
    """Run the SuperLink."""
    import uvicorn
    from flwr.supercore import http_logging
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    allow_open_files()  # a node that waits for a task is an open connection
    uvicorn.run = partial(uvicorn.run, timeout_graceful_shutdown=2)  # such nodes do not keep it from stopping
    os.environ["FORWARDED_ALLOW_IPS"] = "127.0.0.1"  # nobody else may state on whose behalf a request comes
    http_logging.ROUTINE_ACCESS_PATHS |= {QUESTION, REPLY, TASKS, REPLIES}  # nobody reads that all is well
    own = extensions.get_middleware()
    gate: Any = Gate
    extensions.get_middleware = lambda: (Middleware(gate), *own)
    flower_superlink()


if __name__ == "__main__":
    main()
