"""A device's part in secure sums: its answer to a task leaves masked, and it helps once to take the masks away.

Which sessions a device has taken part in stays in a table of its log for good: it answers no invitation and no question
twice. Until the question comes, the table also has the cohort's keys and the device's share of its own seed.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from fultr.core.errors import FultrError, one_line
from fultr.device.answer import REFUSAL, Refusal, answer, note_nonsense, open_log, refuse
from fultr.device.ledger import Asked, Entry, Moment, Sent, enter, move_clock
from fultr.device.policy import DevicePolicy
from fultr.device.sqlite import clear_errors, transaction
from fultr.federated.messages import Reply
from fultr.federated.privacy.enrolment import Enrolment, SumIdentity, open_enrolment
from fultr.federated.privacy.masks import KEY_BYTES
from fultr.federated.privacy.secure_sum import Session, hidden_among, mask_vector, reveal
from fultr.federated.sum_wire import Question, masked_bytes, read_invitation, read_question, revealed_bytes
from fultr.federated.summing import layout_of
from fultr.federated.wire import read_task
from fultr.rankers.release import ReleaseKey

_MOST_SIGNERS = 100  # keys of federations that a device has been enrolled with, the latest


def join_sum(
    path: str | Path,
    content: bytes,
    policy: DevicePolicy,
    identity: SumIdentity,
    *,
    run: int = 0,
    now: Moment | None = None,
    tell: Callable[[str], object] = lambda reason: None,
) -> bytes | Refusal:
    """A device's reply to an invitation: its answer to the task in it, masked. It counts as an answer.

    Args:
        path: of the log.
        content: the invitation's bytes.
        policy: what the device's owner lets it answer.
        identity: what it takes part with.
        run: the number of the run, as the server tells it: only entered in the ledger.
        now: what the clocks say; None: ask them.
        tell: called with what happened, in words for the owner.
    """
    try:
        invitation = read_invitation(content)
        task = read_task(invitation.task)
    except Exception as error:  # of any kind: whatever it is, it is no invitation
        words = _words(error)
        with suppress(FultrError):  # of the log
            note_nonsense(path, words, run=run, now=now)
        tell(words)
        return REFUSAL
    begun: list[Session] = []
    opened: list[Enrolment] = []

    def pin(connection: sqlite3.Connection) -> None:
        opened.append(open_enrolment(invitation.enrolment, identity.federation))
        _pin(connection, identity.federation, opened[0], invitation.enrolment)

    def admit(connection: sqlite3.Connection) -> str:
        session = invitation.session(task, opened[0])
        near = session.neighbourhood(session.place_of(identity.key.public))
        if (hidden := hidden_among(len(near))) < policy.least_summed:
            raise FultrError(
                f"a server that cheats could see a sum of {hidden} devices; least_summed is {policy.least_summed}"
            )
        _begin(connection, session)
        begun.append(session)
        return f"in a secure sum of {len(session.members)} devices"

    reply = answer(path, task, policy, run=run, now=now, tell=tell, admit=admit, first=pin)
    if not isinstance(reply, Reply):
        return REFUSAL
    try:
        masked, share = mask_vector(begun[0], identity.key, layout_of(task).encoded(reply.sums))
        with closing(open_log(path)) as connection, clear_errors(Path(path)):
            _keep(connection, begun[0], share)
    except Exception as error:  # of any kind: a server must not learn of it
        tell(_words(error))
        return REFUSAL
    return masked_bytes(begun[0], masked)


def reveal_sum(
    path: str | Path,
    content: bytes,
    identity: SumIdentity,
    *,
    run: int = 0,
    now: Moment | None = None,
    tell: Callable[[str], object] = lambda reason: None,
) -> bytes | Refusal:
    """A device's reply to the question that follows an invitation; once, and only if enough devices are left.

    Args are those of `join_sum`.
    """
    try:
        with closing(open_log(path)) as connection, clear_errors(Path(path)):
            try:
                question = read_question(content)
                with transaction(connection):
                    session, share = _kept(connection, question)
                    revealed = reveal(session, identity.key, share, question.survivors, question.shares)
                    _forget(connection, session)
                    _enter_revealed(connection, session, len(revealed), now or Moment.now(), run)
            except Exception as error:
                refuse(connection, now or Moment.now(), "refused", f"secure sum: {_words(error)}", Asked(run))
                raise
    except Exception as error:  # of any kind: a server must not learn of it
        tell(_words(error))
        return REFUSAL
    return revealed_bytes(session, revealed)


def _words(error: Exception) -> str:
    return one_line(str(error) if isinstance(error, FultrError) else f"{type(error).__name__}: {error}")


def _enter_revealed(connection: sqlite3.Connection, session: Session, keys: int, now: Moment, run: int) -> None:
    """Enter what is about to leave in the second message; it belongs to an answer, and is none of its own."""
    why = f"sent for the secure sum of an answer: {keys} shares or keys that take masks away"
    sent = (Sent("revealed", keys * KEY_BYTES, 0.0),)
    enter(connection, Entry(now.time, "revealed", why, Asked(run, session.round), sent), move_clock(connection, now))


def _pin(connection: sqlite3.Connection, federation: ReleaseKey, enrolled: Enrolment, signed: bytes) -> None:
    """Refuse a list that is older than one that was seen, or another of the same number; note a newer one.

    Each key of a federation that the device's owner has enrolled it with has numbers of its own.
    """
    stored = json.loads(connection.execute("SELECT value FROM settings WHERE name = 'enrolment'").fetchone()[0])
    seen = stored if isinstance(stored, dict) else {stored[0]: stored[1:]}  # of one key: as it was once written
    signer = federation.public.hex()
    serial, digest = seen.pop(signer, (0, ""))
    found = hashlib.sha256(signed).hexdigest()
    if enrolled.serial < serial:
        raise FultrError(f"enrolment: its serial number is {enrolled.serial}, and {serial} was seen before")
    if enrolled.serial == serial and found != digest:
        raise FultrError(f"enrolment: another list with the serial number {serial} was seen before")
    latest = dict([*seen.items(), (signer, [enrolled.serial, found])][-_MOST_SIGNERS:])
    connection.execute("UPDATE settings SET value = ? WHERE name = 'enrolment'", (json.dumps(latest),))


def _begin(connection: sqlite3.Connection, session: Session) -> None:
    """Note that the device takes part in a session; whatever was kept for others is given up."""
    key = (session.run, session.round, session.attempt)
    if connection.execute("SELECT 1 FROM sums WHERE (run, round, attempt) = (?, ?, ?)", key).fetchone():
        raise FultrError("an invitation of this run, round and attempt was answered before")
    connection.execute("UPDATE sums SET task = NULL, members = NULL, share = NULL WHERE members IS NOT NULL")
    connection.execute("INSERT INTO sums (run, round, attempt, session) VALUES (?, ?, ?, ?)", (*key, session.digest))


def _keep(connection: sqlite3.Connection, session: Session, share: bytes) -> None:
    """Store what the question will need, before the masked vector leaves."""
    connection.execute(
        "UPDATE sums SET task = ?, members = ?, least = ?, share = ? WHERE (run, round, attempt) = (?, ?, ?)",
        (session.task, b"".join(session.members), session.least, share, session.run, session.round, session.attempt),
    )


def _kept(connection: sqlite3.Connection, question: Question) -> tuple[Session, bytes]:
    """The session that a question is about, and the device's own share."""
    row = connection.execute(
        "SELECT run, round, attempt, task, members, least, share FROM sums WHERE session = ? AND share IS NOT NULL",
        (question.session,),
    ).fetchone()
    if row is None:
        raise FultrError("the question is about a session that this device is not in, or it was answered before")
    run, t, attempt, task, members, least, share = row
    keys = tuple(members[i : i + KEY_BYTES] for i in range(0, len(members), KEY_BYTES))
    return Session(run, t, attempt, task, keys, least), share


def _forget(connection: sqlite3.Connection, session: Session) -> None:
    connection.execute("UPDATE sums SET task = NULL, members = NULL, share = NULL WHERE session = ?", (session.digest,))
