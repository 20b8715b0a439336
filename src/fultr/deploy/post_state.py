"""What the post office does with Flower's state: with its own functions, each in one transaction."""

from __future__ import annotations

from typing import Any, NamedTuple

from fultr.deploy.parcels import OBJECTS, PostError, packed

MOST_AT_A_TIME = 50_000_000
"""Bytes of replies that are handed over at a time; the others come next, or are fetched one by one."""


class Handed(NamedTuple):
    """A task that a node was handed, and has not said to have.

    Attributes:
        found: what Flower answers a node that asks for messages, with one.
        again: it is not handed out once more: it may be what makes the node fail.
    """

    found: Any
    again: bool = False

    @property
    def id(self) -> str:
        """The message's."""
        return str(self.found.message_object_trees[0].object_id)


class Kept(NamedTuple):
    """A reply that waits for the server app.

    Attributes:
        run: whose server app.
        until: when nobody waits for it any more, in seconds since 1970.
        objects: what it consists of.
    """

    run: int
    until: float
    objects: list[bytes]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self.objects))


def next_task(state: Any, node: int, last: Handed | None, had: str) -> tuple[Any, list[bytes] | None] | None:
    """What Flower answers a node that asks for messages, if there is one, and the objects, if they are all there.

    That a node asks shows that it is there. If it does not know of the last task, that one is meant for it still.
    """
    from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
    from flwr.proto.fleet_pb2 import PullMessagesRequest
    from flwr.proto.node_pb2 import Node
    from flwr.superlink.servicer.fleet import fleet_handlers

    request = PullMessagesRequest(node=Node(node_id=node))
    with state.session():
        if not state.acknowledge_node_heartbeat(node, HEARTBEAT_DEFAULT_INTERVAL):
            raise PostError("the node is not registered")
        if last is not None and had != last.id and not last.again and state.get_valid_message_ins(last.id) is not None:
            found = last.found
        else:
            if last is not None:
                state.object_store.delete(last.id)
            found = fleet_handlers.pull_messages(request, state, state.object_store)
        while found.messages_list and _is_over(state, found.messages_list[0].metadata.run_id):
            found = fleet_handlers.pull_messages(request, state, state.object_store)
        return (found, rest_of_task(state, found)) if found.messages_list else None


def _is_over(state: Any, run: int) -> bool:
    """Does nobody wait for replies to a run's messages?"""
    from flwr.common.constant import Status
    from flwr.server.superlink.utils import check_abort

    return check_abort(run, [Status.PENDING, Status.STARTING, Status.FINISHED], state) is not None


def rest_of_task(state: Any, found: Any) -> list[bytes] | None:
    """The objects of a message; None if they are not all there yet."""
    return _contents(state, found.messages_list[0].metadata.run_id, found.message_object_trees[0])


def reply_to(about: bytes) -> str:
    """The message that a reply is to."""
    from flwr.proto.fleet_pb2 import PushMessagesRequest

    return str(PushMessagesRequest.FromString(about).messages_list[0].metadata.reply_to_message_id)


def take_reply(state: Any, parts: list[bytes]) -> None:
    """Take a reply into Flower's database, whole or not at all."""
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from flwr.superlink.servicer.fleet import fleet_handlers

    request, objects = PushMessagesRequest.FromString(parts[0]), _by_id(parts[1:])
    run = request.messages_list[0].metadata.run_id
    with state.session():
        answer = fleet_handlers.push_messages(request, state)
        for id_ in answer.objects_to_push:
            state.store_object(run, answer.session_id, id_, _object(objects, id_))


def take_tasks(state: Any, token: str, parts: list[bytes]) -> tuple[bytes, set[int]]:
    """Take the server app's messages; what Flower answers, and which nodes they are for."""
    from flwr.proto.runtime_pb2 import PushAppMessagesRequest
    from flwr.superlink.servicer.runtime import runtime_handlers

    request, objects = PushAppMessagesRequest.FromString(parts[0]), _by_id(parts[1:])
    with state.session():
        task = task_of(state, token)
        answer = runtime_handlers.push_messages(request, state, task)
        for id_ in answer.objects_to_push:
            state.store_object(task.run_id, answer.session_id, id_, _object(objects, id_))
    return answer.SerializeToString(), {message.metadata.dst_node_id for message in request.messages_list}


def asked_for(request: bytes) -> list[str]:
    """The messages that the server app asks for replies to."""
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest

    return list(PullAppMessagesRequest.FromString(request).message_ids)


def replies_now(state: Any, token: str, kept: dict[str, Kept], others: list[str]) -> list[bytes]:
    """Replies that were kept, whose messages Flower then forgets, and what it has been replied to others."""
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse
    from flwr.superlink.servicer.runtime import runtime_handlers

    rest, size = PullAppMessagesResponse(), 0
    whole = [packed([id_.encode(), *reply.objects]) for id_, reply in kept.items()]
    with state.session():
        task = task_of(state, token)
        if any(reply.run != task.run_id for reply in kept.values()):
            raise PostError("the messages are another run's")
        state.delete_messages(set(kept))
        for id_ in kept:
            state.object_store.delete(id_)
        if not others:
            return [b"", *whole]
        found = runtime_handlers.pull_messages(PullAppMessagesRequest(message_ids=others), state, task)
        for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            contents = _contents(state, task.run_id, tree) if size < MOST_AT_A_TIME else None
            if contents:
                size += sum(map(len, contents))
                state.object_store.delete(tree.object_id)
                whole.append(packed([message.metadata.reply_to_message_id.encode(), *contents]))
            else:
                rest.messages_list.append(message)
                rest.message_object_trees.append(tree)
    return [rest.SerializeToString(), *whole]


def task_of(state: Any, token: str) -> Any:
    """The server app that a token was given to."""
    task = state.get_task_by_token(token) if token else None
    if task is None:
        raise PostError("the token is nobody's")
    return task


def _contents(state: Any, run: int, tree: Any) -> list[bytes] | None:
    """The objects of a message; None if some have not arrived yet; [] if there are too many, or it is gone."""
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

    ids = list({each.object_id: None for each in iterate_object_tree(tree)})
    contents = [state.get_object(run, id_) for id_ in ids] if len(ids) <= OBJECTS else []
    if None in contents:
        return []
    return contents if all(contents) else None


def _by_id(contents: list[bytes]) -> dict[str, bytes]:
    from flwr.supercore.inflatable.inflatable_object import get_object_id

    return {get_object_id(content): content for content in contents}


def _object(objects: dict[str, bytes], id_: str) -> bytes:
    if id_ not in objects:
        raise PostError("the message is not whole")
    return objects[id_]
