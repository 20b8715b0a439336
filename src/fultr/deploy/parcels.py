"""What nodes and the server app exchange with the post office of the SuperLink (`fultr.deploy.post`).

All four kinds of request and their answers are a few byte strings, see `packed`.
"""

from __future__ import annotations

from collections.abc import Iterable

QUESTION, REPLY = "/v1/fultr/question", "/v1/fultr/reply"
"""For nodes: is there a task; and what is answered."""

TASKS, REPLIES = "/v1/fultr/tasks", "/v1/fultr/replies"
"""For the server app: tasks to be sent; and what has been answered."""

OBJECTS = 3
"""Flower's objects that a message of ours consists of, see `fultr.deploy.flower.internals`."""

MOST_ABOUT = 64_000
"""Bytes of what is said about a message beside its objects: more is not parsed."""


class PostError(Exception):
    """A request that is not answered: why not."""


def packed(parts: Iterable[bytes]) -> bytes:
    """Byte strings as one, each after its length.

    >>> unpacked(packed([b"task", b""]))
    [b'task', b'']
    """
    return b"".join(piece for part in parts for piece in (len(part).to_bytes(4, "big"), part))


def unpacked(body: bytes, most: int | None = None) -> list[bytes]:
    """The byte strings in one; more than this many are not looked at."""
    parts: list[bytes] = []
    at = 0
    while at < len(body):
        end = at + 4 + int.from_bytes(body[at : at + 4], "big")
        if end > len(body) or len(parts) == most:
            raise PostError("expected a few byte strings, each after its length")
        parts.append(body[at + 4 : end])
        at = end
    return parts
