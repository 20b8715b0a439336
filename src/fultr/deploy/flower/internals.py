"""What is internal to Flower 1.41: messages, and how the server app sends and fetches them.

Such names are used here, in `fleet` (a node's connection), and in `control`, `post_state` and `superlink`; nowhere
else. The server app fetches replies itself, from the post office in the SuperLink's shell (`fultr.deploy.post`):
Flower's grid would build whatever records a reply describes, of any size.

A message of ours is three of Flower's objects: a Message, a RecordDict and a ConfigRecord with one byte string.
Anything else is not looked into.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from fultr.deploy.parcels import MOST_ABOUT, REPLIES, TASKS, packed, unpacked

os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1")  # read when Flower is imported

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest
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

OBJECTS = ("Message", "RecordDict", "ConfigRecord")
"""The objects of a message of ours, from the outermost."""

MOST_BYTES = 17_000_000
"""Bytes of an answer of the SuperLink: a task, and what Flower adds."""

_AT_A_TIME = 20  # messages that are sent in one request: others want to be served too
_SECONDS = 120.0  # for an answer: a question waits for a task, and among a thousand nodes for its turn
_ERRORS = {
    3: "no answer in time",
    4: "no answer in time",
    5: "it cannot be reached",
    9: "its reply did not arrive whole",
}  # Flower's codes, in words


def record_of(content: bytes) -> RecordDict:
    """A byte string as the only content of a message."""
    return RecordDict({"fultr": ConfigRecord({"content": content})})


def content_of(objects: Iterable[bytes]) -> bytes | str:
    """The byte string in the objects of a message; or in words why it is none of ours."""
    by_type = {get_object_type_from_object_content(content): content for content in objects}
    if set(by_type) == {OBJECTS[0]} and len(by_type[OBJECTS[0]]) <= MOST_ABOUT:
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
        (answer,) = called(grid._runtime_client, TASKS, [request.SerializeToString(), *objects.values()])
        yield from PushAppMessagesResponse.FromString(answer).message_ids


def fetch_replies(grid: Any, ids: list[str]) -> list[tuple[str, bytes | str | ObjectTree]]:
    """The replies to some messages since the last call: the message's id, and the byte string.

    Or in words why there is none; or what `fetched` is to look for, if it was announced and has not arrived whole. Our
    nodes send no such reply, but any program with a node's key can.
    """
    request = PullAppMessagesRequest(message_ids=ids).SerializeToString()
    rest, *whole = called(grid._runtime_client, REPLIES, [request])
    response = PullAppMessagesResponse.FromString(rest)
    found: list[tuple[str, bytes | str | ObjectTree]] = []
    for message, tree in zip(response.messages_list, response.message_object_trees, strict=True):
        found.append((message.metadata.reply_to_message_id, tree))
    for each in whole:
        id_, *objects = unpacked(each)
        found.append((id_.decode(), _read(objects)))
    return found


def fetched(grid: Any, tree: ObjectTree) -> bytes | str | None:
    """The byte string of a reply, or in words why there is none; None if it has not arrived whole yet.

    Nobody waits for it here: a node may announce a reply and never deliver it.
    """
    client, run, ids = grid._runtime_client, grid.run.run_id, ids_of(tree)
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
        return content_of(objects)
    except Exception as error:  # anything may have arrived
        return f"its reply cannot be read ({type(error).__name__})"


class _Packed:
    """Byte strings in the place of one of Flower's messages, for its client to send and to receive."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = content

    def SerializeToString(self, deterministic: bool = False) -> bytes:  # noqa: N802 (Flower's name)
        return self.content

    def ParseFromString(self, content: bytes) -> None:  # noqa: N802
        self.content = content


def called(client: Any, path: str, parts: list[bytes], most: int | None = None) -> list[bytes]:
    """Ask the post office of the SuperLink (`fultr.deploy.post`), which answers with this many byte strings at most."""
    request = _Packed(packed(parts))
    answer = client._unary_unary(path=path, rpc_method=path, request=request, response_type=_Packed, timeout=_SECONDS)
    return unpacked(answer.content, most)


def ids_of(tree: ObjectTree) -> list[str]:
    """The different objects of a message."""
    return list({each.object_id: None for each in iterate_object_tree(tree)})
