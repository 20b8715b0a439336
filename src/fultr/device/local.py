"""Devices whose logs are files on this machine, as the rounds of a federation ask them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fultr.core.errors import FultrError
from fultr.device.answer import answer
from fultr.device.batches import held_out_seed
from fultr.device.log import DeviceLog
from fultr.device.mailbox import answer_message
from fultr.device.policy import DevicePolicy
from fultr.federated.federation import Replay
from fultr.federated.messages import Reply, Task, reply_to
from fultr.federated.privacy.enrolment import Enrolment, SumIdentity, open_enrolment, sign_enrolment
from fultr.federated.privacy.masks import SumKey
from fultr.federated.privacy.randomness import SYSTEM, Randomness, Words, system_words
from fultr.federated.privacy.secure_sum import Session, mask_vector, reveal
from fultr.federated.sum_wire import INVITATION, masked_bytes, read_invitation, read_question, revealed_bytes
from fultr.federated.summing import layout_of
from fultr.federated.wire import read_task
from fultr.rankers.release import ReleaseKey, require_cryptography

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True, eq=False)
class LocalDevices:
    """Devices whose logs are files on this machine: to rehearse a federation, or to train where logs are gathered.

    Attributes:
        logs: by the devices' numbers.
        policy: of every device. By default rounds may follow one another at once.
        replay: rounds that take one period of the logs each, to compare with a simulation: of the policy only
            `held_out` counts then, and nothing is entered in ledgers. None: devices answer as they would elsewhere.
        random: where the devices' own noise comes from; only a simulation has anything but the operating system.
        answered: seconds that each took for the last question.
    """

    logs: Mapping[int, Path]
    policy: DevicePolicy = DevicePolicy(seconds_apart=0)
    replay: Replay | None = None
    random: Randomness = SYSTEM
    answered: dict[int, float] = field(default_factory=dict)

    def connected(self) -> list[int]:
        """All of them."""
        return sorted(self.logs)

    def ask(self, task: Task, clients: list[int], timeout: float) -> dict[int, Reply | str]:
        """Each in turn."""
        found: dict[int, Reply | str] = {}
        self.answered.clear()
        for client in clients:
            begun = time.monotonic()
            if self.replay is not None:
                words = self.random.client(task.round, client)
                found[client] = replayed(self.logs[client], task, self.replay, self.policy.held_out, words)
            else:
                reply = answer(self.logs[client], task, self.policy)
                found[client] = reply if isinstance(reply, Reply) else "it refused"
            self.answered[client] = round(time.monotonic() - begun, 3)
        return found

    def enrolment(self) -> bytes:
        """A list of the devices, with keys that last as long as this object."""
        keys = tuple(self._identities[client].key.public for client in self.connected())
        return sign_enrolment(Enrolment(1, "local", tuple(self.connected()), keys), self._signing)

    def post(self, contents: Mapping[int, bytes], t: int, timeout: float) -> dict[int, bytes | str]:
        """Each in turn, as a node would answer."""
        found: dict[int, bytes | str] = {}
        self.answered.clear()
        for client, content in contents.items():
            begun = time.monotonic()
            if self.replay is not None:
                found[client] = self._replayed_sum(client, content)
            else:
                found[client], _ = answer_message(self.logs[client], content, self.policy, 0, self._identities[client])
            self.answered[client] = round(time.monotonic() - begun, 3)
        return found

    def _replayed_sum(self, client: int, content: bytes) -> bytes:
        """What a device that replays its log replies in a secure sum: masked as ever, without policy and ledger."""
        assert self.replay is not None
        identity = self._identities[client]
        if not content.startswith(INVITATION):
            session, share = self._kept.pop(client)
            question = read_question(content)
            revealed = reveal(session, identity.key, share, question.survivors, question.shares)
            return revealed_bytes(session, revealed)
        invitation = read_invitation(content)
        task = read_task(invitation.task)
        session = invitation.session(task, open_enrolment(invitation.enrolment, identity.federation))
        words = self.random.client(task.round, client)
        reply = replayed(self.logs[client], task, self.replay, self.policy.held_out, words)
        masked, share = mask_vector(session, identity.key, layout_of(task).encoded(reply.sums))
        self._kept[client] = session, share
        return masked_bytes(session, masked)

    @cached_property
    def _kept(self) -> dict[int, tuple[Session, bytes]]:
        return {}

    @cached_property
    def _signing(self) -> Ed25519PrivateKey:
        require_cryptography("secure_sums")
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.generate()

    @cached_property
    def _identities(self) -> dict[int, SumIdentity]:
        pinned = ReleaseKey("local", self._signing.public_key().public_bytes_raw())
        return {client: SumIdentity(SumKey.generate(), pinned) for client in self.logs}


def replayed(path: Path, task: Task, replay: Replay, held_out: float, words: Words = system_words) -> Reply:
    """What a device replies that trains on a period of its log, without policy and ledger."""
    since, until = replay.span(task.round)
    with DeviceLog.open(path, retention=None) as log:
        width = next(schema.count for schema in log.schemas() if schema.current)
        if width != task.features:
            raise FultrError(f"{path}: its documents have {width} features, and the ranker {task.features}")
        records = log.records(since=since, until=until, displayed=task.displayed)
        with log._reader() as connection:
            seed = held_out_seed(connection)
    return reply_to(task, *records.split(held_out if task.judge else 0.0, seed), words)
