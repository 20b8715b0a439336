"""Cohorts for tests of secure sums."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from fultr.federated.privacy.masks import SumKey
from fultr.federated.privacy.secure_sum import Masked, Session, mask_vector, reveal, shares_for, unmask

RUN = bytes(range(16))


@dataclass
class Cohort:
    """Devices that go through a session as the server says."""

    keys: list[SumKey]
    session: Session
    vectors: np.ndarray
    first: dict[int, Masked] = field(default_factory=dict)
    own: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, n: int, size: int = 7, seed: int = 0, keys: list[SumKey] | None = None) -> Cohort:
        keys = keys or [SumKey.generate() for _ in range(n)]
        vectors = np.random.default_rng(seed).integers(-(2**40), 2**40, (n, size))
        return cls(keys, session_of(keys), vectors)

    def mask(self, places=None) -> dict[int, Masked]:
        for place in range(len(self.keys)) if places is None else places:
            made = mask_vector(self.session, self.keys[place], self.vectors[place])
            self.first[place], self.own[place] = made
        return self.first

    def reveal(self, place: int, survivors=None) -> tuple[bytes, ...]:
        """What a device reveals that is told of these survivors, or of those whose vectors arrived."""
        told = sorted(self.first) if survivors is None else sorted(survivors)
        flags = np.isin(np.arange(len(self.keys)), told)
        there = {i: self.first[i] for i in told if i in self.first}
        given = shares_for(self.session, place, there)
        return reveal(self.session, self.keys[place], self.own[place], flags, given)

    def total(self, answering=None) -> list[int]:
        """The sum that the server finds if these devices answer the second message."""
        second = {i: self.reveal(i) for i in (self.first if answering is None else answering)}
        return unmask(self.session, self.first, second).view(np.int64).tolist()

    def expected(self) -> list[int]:
        return [sum(int(self.vectors[i][k]) for i in self.first) for k in range(self.vectors.shape[1])]


def session_of(keys, t: int = 0, attempt: int = 1, task: bytes = b"task") -> Session:
    return Session(RUN, t, attempt, hashlib.sha256(task).digest(), tuple(key.public for key in keys))
