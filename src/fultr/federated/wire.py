"""Tasks and replies as bytes, and back. What is not named here does not travel.

A message is one byte string: the length of its head, the head in JSON, then the arrays' bytes one after the other. The
head says of each array its name, type and shape. Whoever reads a message knows what it may hold, and compares the head
with that before it looks at a single number: nothing is allocated that was not asked for, nothing is executed, and what
does not fit becomes words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.core.arrays import Arrays
from fultr.core.errors import FultrError, one_line
from fultr.core.settings import build, flatten, leaves
from fultr.federated.combining import Aggregation
from fultr.federated.fedips import Broadcast
from fultr.federated.messages import Reply, Task
from fultr.federated.settings import FedIPS, ServerOptimiser

REFUSAL = b"refused"
"""What a device sends that does not answer, whatever the reason."""

MOST_BYTES = 16_000_000
"""Longer tasks and replies are not read."""

_HEAD_BYTES, _DIMENSIONS = 64_000, 4
_TYPES: dict[str, np.dtype[Any]] = {name: np.dtype(f"<{name}") for name in ("f4", "f8", "u1", "u8", "i8")}
_NAMES = {kind.newbyteorder("="): name for name, kind in _TYPES.items()}
_SCALARS = ("round", "schema", "features", "displayed", "train", "judge", "training")
_KNOWN = leaves(FedIPS)
# Of FedIPS; clients have no use for them.
_SERVERS_OWN = {*leaves(ServerOptimiser), *leaves(Aggregation), "pairs", "initial", "average_over"}


def task_bytes(task: Task) -> bytes:
    """What the server sends to a device."""
    arrays: Arrays = {"weights": task.sent.weights}
    arrays |= {f"estimation {name}": value for name, value in task.sent.estimation.items()}
    arrays |= {f"stage {name}": value for name, value in task.sent.stage.items()}
    arrays |= {f"credit {name}": value for name, value in task.sent.credit.items()}
    if task.rival is not None:
        arrays["rival"] = task.rival
    settings = {n: _KNOWN[n].write(v) for n, v in flatten(task.algorithm).items() if n not in _SERVERS_OWN}
    return packed({"task": {name: getattr(task, name) for name in _SCALARS}, "algorithm": settings}, arrays)


def read_task(content: bytes) -> Task:
    """What a device was sent; a `FultrError` says what is wrong with it. Its arrays are for `check_task` to check."""
    head, arrays = unpacked(content)
    try:
        said, settings = head.pop("task"), head.pop("algorithm")
        if head or set(said) != set(_SCALARS):
            raise FultrError(f"the task has {one_line(', '.join(sorted({*head, *said})))}")
        if unknown := set(settings) & _SERVERS_OWN:
            raise FultrError(f"{min(unknown)}: is not for devices to know")
        algorithm = build(FedIPS, settings)
        named = (_named(arrays, prefix) for prefix in ("estimation ", "stage ", "credit "))
        sent = Broadcast(arrays.pop("weights"), *named)
        task = Task(algorithm=algorithm, sent=sent, rival=arrays.pop("rival", None), **said)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FultrError(f"is no task: {type(error).__name__}") from None
    if arrays:
        raise FultrError(f"the task has {one_line(', '.join(sorted(arrays)))}")
    return task


def reply_bytes(reply: Reply) -> bytes:
    """What a device sends: named arrays, and the round that they belong to."""
    return packed({"round": reply.round}, reply.sums)


def read_reply(task: Task, content: object) -> Reply | str:
    """What a device sent, or in words why it is of no use; anything may have arrived."""
    if type(content) is not bytes:
        return "its reply is no byte string"
    if content == REFUSAL:
        return "it refused"
    try:
        head, arrays = unpacked(content, task.arrays())
    except FultrError as error:
        return f"its reply cannot be read: {error}"
    if set(head) != {"round"} or type(head["round"]) is not int or abs(head["round"]) > 10**18:
        return "its reply names no round"
    return Reply(head["round"], arrays)


def packed(head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A message of a head and arrays."""
    described = [[name, _NAMES[array.dtype], list(array.shape)] for name, array in arrays.items()]
    text = json.dumps({**head, "arrays": described}, separators=(",", ":")).encode()
    parts = (np.ascontiguousarray(array, _TYPES[_NAMES[array.dtype]]).tobytes() for array in arrays.values())
    return b"".join([len(text).to_bytes(4, "big"), text, *parts])


def unpacked(
    content: bytes, wanted: Mapping[str, tuple[tuple[int, ...], type]] | None = None
) -> tuple[dict[str, Any], Arrays]:
    """Head and arrays of a message; if it is known what it must hold, anything else is an error before it is read."""
    if len(content) > MOST_BYTES:
        raise FultrError(f"it has {len(content):,} bytes, and {MOST_BYTES:,} is the limit")
    size = int.from_bytes(content[:4], "big")
    if not 4 + size <= len(content) or size > _HEAD_BYTES:
        raise FultrError("its head is not whole")
    try:
        head = json.loads(content[4 : 4 + size])
        described = head.pop("arrays")
        layout = {str(name): (_TYPES[kind], _shape(shape)) for name, kind, shape in described}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FultrError(f"its head is not one ({type(error).__name__})") from None
    if len(layout) != len(described):
        raise FultrError("it names an array twice")
    if wanted is not None:
        _compare(layout, wanted)
    ends, place = {}, 4 + size
    for name, (kind, shape) in layout.items():
        begin, place = place, place + kind.itemsize * _product(shape)
        ends[name] = (begin, place)
    if place != len(content):
        raise FultrError(f"it has {len(content):,} bytes where its head says {place if place < 10**18 else 'more'}")
    return head, {
        name: np.frombuffer(content[slice(*ends[name])], kind).reshape(shape).copy()  # one that can be written
        for name, (kind, shape) in layout.items()
    }


def _compare(
    layout: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]], wanted: Mapping[str, tuple[tuple[int, ...], type]]
) -> None:
    if unknown := sorted(set(layout) - set(wanted)):
        raise FultrError(f"{one_line(unknown[0], 40)}: not asked for")
    for name, (shape, kind) in wanted.items():
        if name not in layout:
            raise FultrError(f"{name}: missing")
        if layout[name] != (np.dtype(kind), shape):
            found = f"{layout[name][0]} {str(layout[name][1])[:40]}"
            raise FultrError(f"{name}: expected {np.dtype(kind)} {shape}, found {found}")


def _shape(lengths: list[object]) -> tuple[int, ...]:
    found = tuple(length for length in lengths if type(length) is int and 0 <= length <= MOST_BYTES)
    lengthy = _product(tuple(length for length in found if length)) > MOST_BYTES  # NumPy refuses that, empty or not
    if len(found) != len(lengths) or len(found) > _DIMENSIONS or lengthy:
        raise ValueError
    return found


def _product(shape: tuple[int, ...]) -> int:
    size = 1  # in whole numbers of any length: nothing overflows
    for length in shape:
        size *= length
    return size


def _named(arrays: Arrays, prefix: str) -> Arrays:
    """Take out the arrays whose names begin with a word."""
    return {name.removeprefix(prefix): arrays.pop(name) for name in [*arrays] if name.startswith(prefix)}
