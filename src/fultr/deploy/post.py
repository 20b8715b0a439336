"""The post office of the SuperLink: a task or a reply in one request, where Flower's own APIs take four or five.

It is part of the shell around the SuperLink (`fultr.deploy.superlink`), which knows who asks. It uses the functions
that Flower itself answers with, in one transaction each, and without the ten layers that its requests pass through.
A node that asks while there is no task is kept waiting for one: it need not ask again and again.

All four kinds of request and their answers are lists of byte strings (Flower's `BytesList`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from starlette.types import Receive

QUESTION, REPLY = "/v1/fultr/question", "/v1/fultr/reply"
"""For nodes: is there a task; and what is answered."""

TASKS, REPLIES = "/v1/fultr/tasks", "/v1/fultr/replies"
"""For the server app: tasks to be sent; and what has been answered."""

OBJECTS = 3
"""Flower's objects that a message of ours consists of, see `fultr.deploy.flower.internals`."""

HOLD_SECONDS = 15.0
"""How long a question waits for a task, at most."""

_WHOLE_SECONDS = 20.0  # that the rest of a message is waited for: another program's may be announced first
_MOST_BYTES = 50_000_000  # of replies that are handed over at a time; the objects of the others are fetched one by one

T = TypeVar("T")


class PostError(Exception):
    """A request that is not answered: why not."""


class Turns:
    """Who uses Flower's state: one at a time, as others would only wait for the lock of its database.

    Attributes:
        lock: the turn.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._nodes = asyncio.Lock()

    @asynccontextmanager
    async def node(self) -> AsyncIterator[None]:
        """The turn of a node: only the first of them competes with the server app, which so does not queue."""
        async with self._nodes, self.lock:
            yield


class Post:
    """Hands tasks to nodes and replies to the server app.

    Attributes:
        turns: who uses Flower's state.
        held: by node, the question that waits for a task.
    """

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.held: dict[int, asyncio.Future[None]] = {}

    async def question(self, state: Any, node: int, patience: float, receive: Receive) -> list[bytes]:
        """The next task of a node, as soon as there is one; nothing if there is none for so many seconds."""
        mail: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if node in self.held:
            self.held[node].cancel()  # the connection may be dead
        self.held[node] = mail
        try:
            found = await self._for_node(_next_task, state, node)
            if found is None and await _comes(mail, min(patience, HOLD_SECONDS), receive):
                found = await self._for_node(_next_task, state, node)
        finally:
            if self.held.get(node) is mail:
                del self.held[node]
        if found is None:
            return []
        contents = await self._for_node(_rest_of_task, state, found)
        deadline = asyncio.get_running_loop().time() + _WHOLE_SECONDS
        while contents is None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.2)
            contents = await self._for_node(_rest_of_task, state, found)
        return [found.SerializeToString(), *(contents or [])]

    async def reply(self, state: Any, parts: list[bytes]) -> list[bytes]:
        """Take a node's reply: a PushMessagesRequest, and the objects."""
        await self._for_node(_take_reply, state, parts)
        return []

    async def tasks(self, state: Any, token: str, parts: list[bytes]) -> list[bytes]:
        """Take tasks: a PushAppMessagesRequest, and the objects; the answer is a PushAppMessagesResponse."""
        answer, nodes = await self._for_app(_take_tasks, state, token, parts)
        self.wake(nodes)
        return [answer]

    def wake(self, nodes: set[int]) -> None:
        """Have nodes that wait look for a task."""
        for node in nodes & self.held.keys():
            if not self.held[node].done():
                self.held[node].set_result(None)

    async def replies(self, state: Any, token: str, parts: list[bytes]) -> list[bytes]:
        """What has been replied to some messages: a PullAppMessagesResponse, and a list of the objects of each."""
        return await self._for_app(_replies_now, state, token, parts)

    async def _for_node(self, work: Callable[..., T], *given: Any) -> T:
        async with self.turns.node():
            return await asyncio.to_thread(work, *given)

    async def _for_app(self, work: Callable[..., T], *given: Any) -> T:
        async with self.turns.lock:
            return await asyncio.to_thread(work, *given)


async def _comes(mail: asyncio.Future[None], patience: float, receive: Receive) -> bool:
    """Wait for a task, while the node does."""
    gone = asyncio.ensure_future(receive())
    first: set[asyncio.Future[Any]] = {mail, gone}
    try:
        await asyncio.wait(first, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
    return mail.done() and not mail.cancelled()


def _next_task(state: Any, node: int) -> Any | None:
    """What Flower answers a node that asks for messages, if there is one. That it asks shows that it is there."""
    from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, Status
    from flwr.proto.fleet_pb2 import PullMessagesRequest
    from flwr.proto.node_pb2 import Node
    from flwr.server.superlink.utils import check_abort
    from flwr.superlink.servicer.fleet import fleet_handlers

    with state.session():
        if not state.acknowledge_node_heartbeat(node, HEARTBEAT_DEFAULT_INTERVAL):
            raise PostError("the node is not registered")
        request = PullMessagesRequest(node=Node(node_id=node))
        answer = fleet_handlers.pull_messages(request, state, state.object_store)
        over = [Status.PENDING, Status.STARTING, Status.FINISHED]
        if not answer.messages_list or check_abort(answer.messages_list[0].metadata.run_id, over, state):
            return None  # nobody waits for a reply to it
    return answer


def _rest_of_task(state: Any, found: Any) -> list[bytes] | None:
    """The objects of a message, which are then deleted; None if they are not all there. None of another program's."""
    tree, run = found.message_object_trees[0], found.messages_list[0].metadata.run_id
    with state.session():
        contents = _contents(state, run, tree)
        if contents is not None:
            state.object_store.delete(tree.object_id)
    return contents


def _take_reply(state: Any, parts: list[bytes]) -> None:
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from flwr.superlink.servicer.fleet import fleet_handlers

    request, objects = PushMessagesRequest.FromString(parts[0]), _by_id(parts[1:])
    run = request.messages_list[0].metadata.run_id
    with state.session():
        answer = fleet_handlers.push_messages(request, state)
        for id_ in answer.objects_to_push:
            state.store_object(run, answer.session_id, id_, _object(objects, id_))


def _take_tasks(state: Any, token: str, parts: list[bytes]) -> tuple[bytes, set[int]]:
    from flwr.proto.runtime_pb2 import PushAppMessagesRequest
    from flwr.superlink.servicer.runtime import runtime_handlers

    request, objects = PushAppMessagesRequest.FromString(parts[0]), _by_id(parts[1:])
    with state.session():
        task = _task_of(state, token)
        answer = runtime_handlers.push_messages(request, state, task)
        for id_ in answer.objects_to_push:
            state.store_object(task.run_id, answer.session_id, id_, _object(objects, id_))
    return answer.SerializeToString(), {message.metadata.dst_node_id for message in request.messages_list}


def _replies_now(state: Any, token: str, parts: list[bytes]) -> list[bytes]:
    from flwr.proto.recorddict_pb2 import BytesList
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest
    from flwr.superlink.servicer.runtime import runtime_handlers

    found: list[bytes] = []
    with state.session():
        task = _task_of(state, token)
        answer = runtime_handlers.pull_messages(PullAppMessagesRequest.FromString(parts[0]), state, task)
        size = 0
        for tree in answer.message_object_trees:
            contents = _contents(state, task.run_id, tree) if size < _MOST_BYTES else None
            if contents is not None:
                size += sum(map(len, contents))
                state.object_store.delete(tree.object_id)
            found.append(BytesList(vals=contents or []).SerializeToString())
    return [answer.SerializeToString(), *found]


def _task_of(state: Any, token: str) -> Any:
    """The server app that a token was given to."""
    task = state.get_task_by_token(token) if token else None
    if task is None:
        raise PostError("the token is nobody's")
    return task


def _contents(state: Any, run: int, tree: Any) -> list[bytes] | None:
    """The objects of a message; None if some have not arrived, and none of a message with too many."""
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

    ids = list({each.object_id: None for each in iterate_object_tree(tree)})
    contents = [state.get_object(run, id_) for id_ in ids] if len(ids) <= OBJECTS else []
    return contents if all(contents) else None


def _by_id(contents: list[bytes]) -> dict[str, bytes]:
    from flwr.supercore.inflatable.inflatable_object import get_object_id

    return {get_object_id(content): content for content in contents}


def _object(objects: dict[str, bytes], id_: str) -> bytes:
    if id_ not in objects:
        raise PostError("the message is not whole")
    return objects[id_]
