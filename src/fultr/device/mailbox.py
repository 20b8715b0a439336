"""What a node does with a message: a byte string in, a byte string out. Nothing in it is ever executed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fultr.core.errors import FultrError, one_line
from fultr.device.answer import answer, note_nonsense
from fultr.device.policy import DevicePolicy
from fultr.device.summing import join_sum, reveal_sum
from fultr.federated.messages import Reply
from fultr.federated.privacy.enrolment import SumIdentity
from fultr.federated.sum_wire import INVITATION, QUESTION
from fultr.federated.wire import REFUSAL, read_task, reply_bytes


def answer_message(
    log: Path, content: bytes | None, policy: DevicePolicy, run: int, identity: SumIdentity | None = None
) -> tuple[bytes, str]:
    """Answer a message, or refuse it.

    Args:
        log: the device's.
        content: what came; None: another program's message.
        policy: what the device's owner lets it answer.
        run: the number of the run, as the server tells it.
        identity: what it takes part in secure sums with; None: it does not.

    Returns:
        What to send, and in words what happened: these are for the owner.
    """
    if content is not None and identity is not None and content.startswith((INVITATION, QUESTION)):
        return _answer_sum(log, content, policy, run, identity)
    try:
        if content is None:
            raise FultrError("it is another program's message")
        task = read_task(content)
    except Exception as error:  # of any kind: whatever it is, it is no task
        words = one_line(str(error) if isinstance(error, FultrError) else f"{type(error).__name__}: {error}")
        with suppress(FultrError):  # of the log
            note_nonsense(log, words, run=run)
        return REFUSAL, f"refused a message of run {run} that is no task: {words}"
    reasons: list[str] = []
    reply = answer(log, task, policy, run=run, tell=reasons.append)
    if isinstance(reply, Reply):
        return reply_bytes(reply), f"answered round {task.round + 1} of run {run}: sent {', '.join(reply.sums)}"
    return REFUSAL, f"refused round {task.round + 1} of run {run}: {'; '.join(reasons)}"


def _answer_sum(log: Path, content: bytes, policy: DevicePolicy, run: int, identity: SumIdentity) -> tuple[bytes, str]:
    """Answer one of the two messages of a secure sum, or refuse it."""
    reasons: list[str] = []
    if content.startswith(INVITATION):
        reply, words = join_sum(log, content, policy, identity, run=run, tell=reasons.append), "an invitation to"
    else:
        reply, words = reveal_sum(log, content, identity, run=run, tell=reasons.append), "the question of"
    if isinstance(reply, bytes):
        return reply, f"answered {words} a secure sum of run {run}"
    return REFUSAL, f"refused {words} a secure sum of run {run}: {'; '.join(reasons)}"
