"""Secure sums in a simulation: the same whole numbers as devices send, added up without their masks.

Masks cancel in a sum modulo 2^64 and leave no trace in it, which tests show where there are masks: on devices. So a
simulation adds up what devices would put under them, and ends with the bits of a federation with secure sums.
"""

from __future__ import annotations

import numpy as np

from fultr.core.arrays import Bools, Int64s
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, uniforms
from fultr.core.threads import run_chunks
from fultr.federated.aggregate import parts_of
from fultr.federated.combining import StageSettings
from fultr.federated.privacy.distributed import least_survivors
from fultr.federated.privacy.fixed_point import added
from fultr.federated.privacy.secure_sum import LEAST_DEVICES, threshold
from fultr.federated.privacy.settings import Privacy
from fultr.federated.privacy.stage import Sums
from fultr.federated.summing import layout_for

ATTEMPTS = 3
"""At a round, before a run is given up; one with privacy, as nobody may send twice."""


def arrives(share: float, seed: int, t: int, attempt: int, clients: Int64s) -> Bools:
    """Whose first message of an attempt at a round arrives: it follows from the seed and the client's number.

    >>> int(arrives(0.1, 0, 0, 1, np.arange(1000)).sum())
    899
    """
    there: Bools = uniforms(seed, int(Purpose.DROPOUTS), (attempt << 40) + t, clients) >= share
    return there


def survivors(share: float, seed: int, t: int, cohort: Int64s, privacy: Privacy | None = None) -> Bools:
    """Whose first message of a round arrives, in an attempt that comes to a sum.

    Those that are lost at the second message make no difference to a sum, or there is none and the round is repeated.
    So it is with too few survivors: of the whole cohort, as nobody has neighbours here.

    Args:
        share: of clients whose message is lost.
        seed: of the run.
        t: the round, from 0.
        cohort: the clients, by number.
        privacy: if devices add shares of noise, this many of those are needed.
    """
    n, needed = cohort.size, max(threshold(cohort.size), LEAST_DEVICES, least_survivors(privacy))
    attempts = ATTEMPTS if privacy is None else 1
    for attempt in range(1, attempts + 1):
        there = arrives(share, seed, t, attempt, cohort)
        if (left := int(there.sum())) >= needed:
            return there
    raise FultrError(
        f"round {t + 1}: no secure sum ({left} of {n} clients are left, and {needed} are needed) in {attempts} attempts"
    )


def secure_total(settings: StageSettings, replies: Sums, there: Bools, threads: int | None = None) -> Sums:
    """The sum of what the survivors send, as a server decodes it: a single row.

    Args:
        settings: of the stage that replies have been through.
        replies: one row per client.
        there: who survived.
        threads: how many threads to use; all cores if None.

    >>> replies = {"update": np.float32([[0.5, 1.0], [0.25, 0.0], [9.0, 9.0]]), "trained": np.ones((3, 1))}
    >>> secure_total(StageSettings(), replies, np.array([True, True, False]))["update"].tolist()
    [[0.75, 1.0]]
    """
    layout = layout_for(settings, {name: rows.shape[1:] for name, rows in replies.items()})
    clients, parts = np.flatnonzero(there), parts_of(int(there.sum()))
    sums = np.zeros((len(parts), layout.size), np.uint64)

    def work(i: int) -> None:
        own = clients[slice(*parts[i])]
        sums[i] = added(layout.encoded({name: rows[client] for name, rows in replies.items()}) for client in own)

    run_chunks(work, len(parts), threads)
    return {name: array[np.newaxis] for name, array in layout.decoded(added(sums), len(clients)).items()}
