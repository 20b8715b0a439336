"""The messages of a secure sum as bytes, and back, in the way of `fultr.federated.wire`.

What the server sends begins with four bytes that no task begins with. What devices send is compared with what was asked
for before a single number of it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fultr.core.arrays import Arrays, Bools, UInt8s
from fultr.core.errors import FultrError
from fultr.federated.messages import Task
from fultr.federated.privacy.distributed import least_survivors
from fultr.federated.privacy.enrolment import Enrolment
from fultr.federated.privacy.masks import KEY_BYTES, SEALED_BYTES
from fultr.federated.privacy.secure_sum import MOST_DEVICES, Masked, Session
from fultr.federated.wire import MOST_BYTES, REFUSAL, packed, unpacked

INVITATION, QUESTION = b"sum1", b"sum2"
"""How the first and the second message of the server begin."""

_RUN_BYTES, _DIGEST_BYTES = 16, 32


@dataclass(frozen=True)
class Invitation:
    """What the server sends first, the same to every device of a cohort.

    Attributes:
        run: 16 bytes that the server drew when it started.
        attempt: at the task's round, from 1.
        cohort: numbers of the devices, ascending.
        task: its bytes, see `fultr.federated.wire.task_bytes`.
        enrolment: the signed list of devices' keys, see `fultr.federated.privacy.enrolment`.
    """

    run: bytes
    attempt: int
    cohort: tuple[int, ...]
    task: bytes
    enrolment: bytes

    def session(self, task: Task, enrolled: Enrolment) -> Session:
        """The session that it is about, its bytes being those of this task, with the keys of these devices."""
        members = tuple(enrolled.key_of(device) for device in self.cohort)
        digest, least = hashlib.sha256(self.task).digest(), least_survivors(task.algorithm.privacy)
        return Session(self.run, task.round, self.attempt, digest, members, least)


@dataclass(frozen=True, eq=False)
class Question:
    """What the server sends then, to each of the survivors.

    Attributes:
        session: digest of the session.
        survivors: whose first message arrived, by place in the cohort.
        shares: what the device's surviving neighbours sealed for it, in the order of places.
    """

    session: bytes
    survivors: Bools
    shares: tuple[bytes, ...]


def invitation_bytes(invitation: Invitation) -> bytes:
    """What the server sends first."""
    head = {"run": invitation.run.hex(), "attempt": invitation.attempt}
    arrays: Arrays = {
        "cohort": np.array(invitation.cohort, np.int64),
        "task": np.frombuffer(invitation.task, np.uint8),
        "enrolment": np.frombuffer(invitation.enrolment, np.uint8),
    }
    return INVITATION + packed(head, arrays)


def read_invitation(content: bytes) -> Invitation:
    """What a device was sent first; a `FultrError` says what is wrong with it. The task in it was not looked at."""
    head, arrays = _read(content, INVITATION, {"run", "attempt"}, {"cohort": "i8", "task": "u1", "enrolment": "u1"})
    if any(array.ndim != 1 for array in arrays.values()):
        raise FultrError("the invitation has arrays of other shapes than lists")
    cohort = arrays["cohort"]
    if cohort.size > MOST_DEVICES:
        raise FultrError(f"the invitation is for {cohort.size:,} devices, and {MOST_DEVICES:,} is the limit")
    if (cohort < 0).any() or (np.diff(cohort) <= 0).any():
        raise FultrError("the invitation's devices are not in ascending order")
    attempt = head["attempt"]
    if type(attempt) is not int or not 1 <= attempt <= 10**6:
        raise FultrError("the invitation names no attempt")
    return Invitation(
        _digits(head["run"], _RUN_BYTES),
        attempt,
        tuple(cohort.tolist()),
        arrays["task"].tobytes(),
        arrays["enrolment"].tobytes(),
    )


def question_bytes(question: Question) -> bytes:
    """What the server sends then."""
    arrays = {"survivors": question.survivors.astype(np.uint8), "shares": _rows(question.shares, SEALED_BYTES)}
    return QUESTION + packed({"session": question.session.hex()}, arrays)


def read_question(content: bytes) -> Question:
    """What a device was sent then; a `FultrError` says what is wrong with it."""
    head, arrays = _read(content, QUESTION, {"session"}, {"survivors": "u1", "shares": "u1"})
    survivors, shares = arrays["survivors"], arrays["shares"]
    if survivors.ndim != 1 or survivors.size > MOST_DEVICES or (survivors > 1).any():
        raise FultrError("the question has no list of survivors")
    if shares.ndim != 2 or shares.shape[0] > MOST_DEVICES or shares.shape[1] != SEALED_BYTES:
        raise FultrError("the question has no list of shares")
    return Question(_digits(head["session"], _DIGEST_BYTES), survivors.astype(bool), _cut(shares))


def masked_bytes(session: Session, masked: Masked) -> bytes:
    """What a device replies to an invitation."""
    arrays: Arrays = {"vector": masked.vector, "shares": _rows(masked.shares, SEALED_BYTES)}
    return packed({"session": session.digest.hex()}, arrays)


def read_masked(session: Session, place: int, size: int, content: object) -> Masked | str:
    """What a device replied to an invitation, or in words why it is of no use; anything may have arrived.

    Args:
        session: that it was invited to.
        place: of the device in the cohort.
        size: numbers of a vector.
        content: what arrived.
    """
    neighbours = len(session.neighbourhood(place)) - 1
    wanted = {"vector": ((size,), np.uint64), "shares": ((neighbours, SEALED_BYTES), np.uint8)}
    arrays = _reply(session, content, wanted)
    return arrays if isinstance(arrays, str) else Masked(arrays["vector"], _cut(arrays["shares"]))


def revealed_bytes(session: Session, revealed: Sequence[bytes]) -> bytes:
    """What a device replies to a question."""
    return packed({"session": session.digest.hex()}, {"revealed": _rows(revealed, KEY_BYTES)})


def read_revealed(session: Session, place: int, content: object) -> tuple[bytes, ...] | str:
    """What a device replied to a question, or in words why it is of no use; anything may have arrived."""
    wanted = {"revealed": ((len(session.neighbourhood(place)), KEY_BYTES), np.uint8)}
    arrays = _reply(session, content, wanted)
    return arrays if isinstance(arrays, str) else _cut(arrays["revealed"])


def _reply(session: Session, content: object, wanted: dict[str, Any]) -> dict[str, Any] | str:
    if type(content) is not bytes:
        return "its reply is no byte string"
    if content == REFUSAL:
        return "it refused"
    try:
        head, arrays = unpacked(content, wanted)
    except FultrError as error:
        return f"its reply cannot be read: {error}"
    if head != {"session": session.digest.hex()}:
        return "its reply is about another session"
    return arrays


def _read(
    content: bytes, begin: bytes, named: set[str], kinds: dict[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    if not content.startswith(begin):
        raise FultrError("it is another message")
    if len(content) > MOST_BYTES:
        raise FultrError(f"it has {len(content):,} bytes, and {MOST_BYTES:,} is the limit")
    head, arrays = unpacked(content[len(begin) :])
    if set(head) != named or {name: array.dtype.str[1:] for name, array in arrays.items()} != kinds:
        raise FultrError(f"expected {', '.join(sorted(named))} and {', '.join(kinds)} in it, and nothing else")
    return head, arrays


def _digits(value: object, size: int) -> bytes:
    if isinstance(value, str) and len(value) == 2 * size:
        try:
            return bytes.fromhex(value)
        except ValueError:
            pass
    raise FultrError(f"expected {2 * size} hexadecimal digits")


def _rows(parts: Sequence[bytes], width: int) -> UInt8s:
    return np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), width)


def _cut(rows: UInt8s) -> tuple[bytes, ...]:
    return tuple(row.tobytes() for row in rows)
