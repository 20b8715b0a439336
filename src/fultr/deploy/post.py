"""The post office of the SuperLink: a task or a reply in one request, where Flower's own APIs take four or five.

It is part of the shell around the SuperLink (`fultr.deploy.superlink`), which knows who asks. It uses the functions
that Flower itself answers with (`fultr.deploy.post_state`), without the ten layers that its requests pass through. Only
replies are kept in memory until the server app fetches them: Flower ends a run whose SuperLink is started again.

A node that asks while there is no task is kept waiting for one: it need not ask again and again. A connection that dies
meanwhile costs no task: a node says which task it had last, and one that it does not know of is handed out once more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from fultr.deploy.parcels import PostError
from fultr.deploy.post_state import (
    MOST_AT_A_TIME,
    Handed,
    Kept,
    asked_for,
    next_task,
    replies_now,
    reply_to,
    rest_of_task,
    take_reply,
    take_tasks,
)

if TYPE_CHECKING:
    from starlette.types import Receive

HOLD_SECONDS = 15.0
"""How long a question waits for a task, at most."""

_WHOLE_SECONDS = 20.0  # that the rest of a message is waited for: another program's may be announced first
_MOST_KEPT = 200_000_000  # bytes of replies in memory; further ones go into Flower's database
_LOOK_SECONDS = 5.0  # after which the server app's next question is answered from Flower's database too

T = TypeVar("T")


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
        held: by node, the question that waits for a task; the latest alone.
        handed: by node, the task that may not have arrived. A SuperLink that is started again has forgotten these.
        kept: by the id of the message that they are for, replies.
        others: has anything been replied by Flower's own API?
    """

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.held: dict[int, asyncio.Future[None]] = {}
        self.handed: dict[int, Handed] = {}
        self.kept: dict[str, Kept] = {}
        self.others = True
        self._replying: set[int] = set()
        self._looked = 0.0

    async def question(self, state: Any, node: int, had: str, patience: float, receive: Receive) -> list[bytes]:
        """The next task of a node, as soon as there is one; nothing if there is none for this many seconds.

        Args:
            state: Flower's.
            node: who asks.
            had: the last task that it knows of.
            patience: how long it waits, in seconds.
            receive: tells when it is gone.
        """
        mail: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if node in self.held:
            self.held[node].cancel()  # the connection may be dead
        self.held[node] = mail
        try:
            taken = await self._take(state, node, had, mail)
            if taken is None and await _comes(mail, min(patience, HOLD_SECONDS), receive):
                taken = await self._take(state, node, had, mail)
        finally:
            if self.held.get(node) is mail:
                del self.held[node]
        if taken is None:
            return []
        found, contents = taken
        deadline = asyncio.get_running_loop().time() + _WHOLE_SECONDS
        while contents is None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.2)
            contents = await self._for_node(rest_of_task, state, found)
        return [found.SerializeToString(), *(contents or [])]

    async def _take(
        self, state: Any, node: int, had: str, mail: asyncio.Future[None]
    ) -> tuple[Any, list[bytes] | None] | None:
        """Take the next task for a node, or the last one again."""
        async with self.turns.node():
            if mail.cancelled():  # it has asked again since: who asks a hundred times at once has two turns
                return None
            last = self.handed.get(node)
            taken = await asyncio.to_thread(next_task, state, node, last, had)
            self.handed.pop(node, None)
            if taken is not None:
                self.handed[node] = Handed(taken[0], again=last is not None and taken[0] is last.found)
            return taken

    async def reply(self, state: Any, node: int, parts: list[bytes]) -> list[bytes]:
        """Take a node's reply: a PushMessagesRequest, and the objects."""
        handed, asked = self.handed.get(node), reply_to(parts[0])
        size = sum(map(len, parts)) + sum(kept.size for kept in self.kept.values())
        if handed is not None and handed.id == asked and size <= _MOST_KEPT:
            about = handed.found.messages_list[0].metadata
            self.kept[asked] = Kept(about.run_id, about.created_at + about.ttl, parts[1:])
            del self.handed[node]
            return []
        if node in self._replying:
            raise PostError("expected one reply after the other")
        self._replying.add(node)
        try:
            await self._for_node(take_reply, state, parts)
        finally:
            self._replying.discard(node)
        self.others = True
        return []

    async def tasks(self, state: Any, token: str, parts: list[bytes]) -> list[bytes]:
        """Take tasks: a PushAppMessagesRequest, and the objects; the answer is a PushAppMessagesResponse."""
        async with self.turns.lock:
            answer, nodes = await asyncio.to_thread(take_tasks, state, token, parts)
        self.wake(nodes)
        now = time.time()
        self.kept = {id_: kept for id_, kept in self.kept.items() if kept.until > now}
        return [answer]

    def wake(self, nodes: set[int]) -> None:
        """Have nodes that wait look for a task."""
        for node in nodes & self.held.keys():
            if not self.held[node].done():
                self.held[node].set_result(None)

    async def replies(self, state: Any, token: str, parts: list[bytes]) -> list[bytes]:
        """What has been replied to the messages of a PullAppMessagesRequest.

        Returns:
            A PullAppMessagesResponse with what has been announced and is not there; then for each reply that is, the id
            of the message and its objects, packed.
        """
        ids = asked_for(parts[0])
        async with self.turns.lock:
            now, kept, size = time.monotonic(), dict[str, Kept](), 0
            for id_ in ids:
                if id_ in self.kept and size < MOST_AT_A_TIME:
                    kept[id_] = self.kept[id_]
                    size += kept[id_].size
            look = self.others or now - self._looked > _LOOK_SECONDS
            if not kept and not look:
                return [b""]
            others = [id_ for id_ in ids if id_ not in self.kept] if look else []
            if look:
                self.others, self._looked = False, now  # before it is done: another may come meanwhile
            try:
                answer = await asyncio.to_thread(replies_now, state, token, kept, others)
            except BaseException:
                self.others = True
                raise
            for id_ in kept:
                self.kept.pop(id_, None)
        return answer

    async def _for_node(self, work: Callable[..., T], *given: Any) -> T:
        async with self.turns.node():
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
