"""What secure sums cost: a device, and the server, in cohorts of 10, 100 and 1,000 devices."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace
from time import process_time

import numpy as np

from fultr.federated.privacy.fixed_point import Block, Layout, added
from fultr.federated.privacy.masks import SumKey
from fultr.federated.privacy.secure_sum import FULL, Session, mask_vector, reveal, shares_for, unmask

_NUMBERS, _BOUND = 1100, 100.0
_WANTED = {1000: ("below 5 ms", "below 1 s")}


def secure_sums(cohorts: tuple[int, ...] = (10, 100, 1000)) -> list[tuple[str, float, str, str]]:
    """Processor time of a device and of the server; vectors of 1,100 numbers, and one device in 20 drops out.

    Returns:
        What was measured, its value, its unit, and what is wanted.
    """
    rows = []
    for devices in cohorts:
        rows += _cohort(devices, *_WANTED.get(devices, ("", "")))
    return rows


def _cohort(devices: int, device_wanted: str, server_wanted: str) -> list[tuple[str, float, str, str]]:
    layout = Layout((Block(_BOUND, (("update", (_NUMBERS,)),)),))
    values = np.random.default_rng(0).normal(size=(devices, _NUMBERS))
    keys = [SumKey.generate() for _ in range(devices)]
    task = hashlib.sha256(b"task").digest()
    session = Session(secrets.token_bytes(16), 0, 1, task, tuple(key.public for key in keys))
    near = len(session.neighbourhood(0)) - 1

    begun = process_time()
    vectors = [layout.encoded({"update": row}) for row in values]
    encoding = process_time() - begun

    mask_vector(session, keys[0], vectors[0])  # loads the library
    keys[0].agreed.clear()
    begun = process_time()
    made = [mask_vector(replace(session), key, vector) for key, vector in zip(keys, vectors, strict=True)]
    masking = process_time() - begun

    gone = set(range(0, devices, 20)) if devices >= 20 else set()
    first = {i: masked for i, (masked, _) in enumerate(made) if i not in gone}
    survivors = np.isin(np.arange(devices), list(first))
    begun = process_time()
    shares = {i: shares_for(session, i, first) for i in first}
    serving = process_time() - begun

    begun = process_time()
    second = {i: reveal(replace(session), keys[i], made[i][1], survivors, shares[i]) for i in first}
    revealing = process_time() - begun

    begun = process_time()
    total = unmask(session, first, second)
    serving += process_time() - begun
    assert (total == added(vectors[i] for i in first)).all()

    begun = process_time()
    for key, vector in zip(keys, vectors, strict=True):
        mask_vector(replace(session, round=1), key, vector)  # of a large cohort, with other neighbours
    later = process_time() - begun

    graph = "all are neighbours" if devices <= FULL else f"{near} neighbours each"
    each = 1e3 / devices
    return [
        (
            f"{devices:,} devices, {graph}: a device",
            (encoding + masking + revealing) * each,
            "ms",
            device_wanted,
        ),
        ("  encoding", encoding * each, "ms", ""),
        ("  first message", masking * each, "ms", ""),
        ("  first message of the next round", later * each, "ms", ""),
        ("  second message", revealing * each, "ms", ""),
        ("  the server", serving, "s", server_wanted),
    ]
