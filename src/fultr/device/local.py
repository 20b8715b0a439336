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
from fultr.federated.privacy.enrolment import Enrolment, SumIdentity, sign_enrolment
from fultr.federated.privacy.masks import SumKey
from fultr.federated.privacy.randomness import SYSTEM, Randomness, Words, system_words
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
        if self.replay is not None:
            raise FultrError("secure_sums: expected devices that answer within a policy; these replay their logs")
        found: dict[int, bytes | str] = {}
        self.answered.clear()
        for client, content in contents.items():
            begun = time.monotonic()
            found[client], _ = answer_message(self.logs[client], content, self.policy, 0, self._identities[client])
            self.answered[client] = round(time.monotonic() - begun, 3)
        return found

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
