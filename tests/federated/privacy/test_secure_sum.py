"""Secure sums: exact with devices that drop out, and what a server that cheats can and cannot see."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from help.sums import RUN, Cohort, session_of
from hypothesis import given, settings
from hypothesis import strategies as st

from fultr import FultrError
from fultr.federated.privacy import masks, secure_sum
from fultr.federated.privacy.masks import SumKey, mask_of
from fultr.federated.privacy.secure_sum import (
    DEGREE,
    FULL,
    MISSING,
    Session,
    hidden_among,
    mask_vector,
    shares_for,
    threshold,
    unmask,
)
from fultr.federated.privacy.shares import PRIME, joined, split


@pytest.fixture(scope="module")
def many() -> list[SumKey]:
    """Keys that have agreed with each other once: that takes longest, and is the same in every session."""
    return [SumKey.generate() for _ in range(300)]


def dropping(n: int, share: float, seed: int = 0) -> list[int]:
    return sorted(np.random.default_rng(seed).choice(n, int(share * n), replace=False).tolist())


# Exact sums


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 30, 300])
@pytest.mark.parametrize("share", [0, 0.05, 0.3])
def test_sums_are_exact_with_devices_that_drop_out_at_either_message(many, n, share):
    gone = dropping(n, share)
    before = Cohort.of(n, keys=many[:n])
    before.mask(sorted(set(range(n)) - set(gone)))
    assert before.total() == before.expected()
    after = Cohort.of(n, keys=many[:n])
    after.session = session_of(after.keys, t=1)
    after.mask()
    assert after.total(answering=sorted(set(range(n)) - set(gone))) == after.expected()  # theirs are in it


def test_a_sparse_graph_gives_exact_sums_too(monkeypatch):
    monkeypatch.setattr(secure_sum, "FULL", 20)
    monkeypatch.setattr(secure_sum, "DEGREE", 12)
    cohort = Cohort.of(40)
    cohort.mask(sorted(set(range(40)) - {3, 17, 31}))
    assert cohort.total() == cohort.expected()
    lost = next(i for i in range(40) if i in cohort.first and not {3, 17, 31} & set(cohort.session.neighbourhood(i)))
    rest = [i for i in cohort.first if i != lost]
    assert cohort.total(answering=rest) == cohort.expected()  # it had no mask in common with those that dropped out


def test_a_survivor_that_is_lost_before_it_reveals_its_mask_with_a_device_that_dropped_out():
    cohort = Cohort.of(7)
    cohort.mask([0, 1, 2, 3, 4, 5])
    with pytest.raises(FultrError, match="lost that has a mask in common with one that dropped out"):
        cohort.total(answering=[0, 1, 2, 3, 4])
    with pytest.raises(FultrError, match="4 shares of a device's seed are left, and 5 are needed"):
        cohort.total(answering=[0, 1, 2, 3])


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 12), st.data())
def test_any_cohort_with_enough_survivors(n, data):
    cohort = Cohort.of(n, size=3, seed=n)
    gone = data.draw(st.sets(st.integers(0, n - 1), max_size=n - threshold(n)))
    cohort.mask(sorted(set(range(n)) - gone))
    assert cohort.total() == cohort.expected()


def test_shares_give_the_secret_back_and_fewer_do_not():
    secret = PRIME - 5
    shares = dict(zip(range(1, 8), split(secret, 4, range(1, 8)), strict=True))
    for chosen in itertools.combinations(shares, 4):
        assert joined({place: shares[place] for place in chosen}) == secret
    assert joined({place: shares[place] for place in (1, 2, 3)}) != secret
    for bad in ((0, 3, [1, 2]), (PRIME, 1, [1]), (1, 1, [0, 1])):
        with pytest.raises(ValueError, match="expected a secret in the field"):
            split(*bad)


def test_one_share_fewer_fits_every_secret():
    """Shares of two secrets have the same distribution: any three of a threshold of four fit either."""
    shares = dict(zip((1, 2, 3), split(11, 4, [1, 2, 3, 4])[:3], strict=True))
    for guess in (11, 12, PRIME - 1):
        fourth = next(iter(split(0, 1, [4])))
        # there is one value at place 4 for which these shares give the guess
        base = joined({**shares, 4: fourth})
        weight = (joined({**shares, 4: fourth + 1}) - base) % PRIME
        fitting = (fourth + (guess - base) * pow(weight, -1, PRIME)) % PRIME
        assert joined({**shares, 4: fitting}) == guess


# Masks


def checked_keys(cohort: Cohort, other: Session) -> None:
    """No mask of one session may be one of another, nor of another pair of devices."""
    seen: dict[bytes, tuple] = {}
    for number, session in enumerate((cohort.session, other)):
        for key in cohort.keys:
            for member in session.members:
                if member != key.public:
                    pair = key.pair(member, session.digest)
                    what = (number, *sorted((key.public, member)))
                    assert seen.setdefault(pair.mask, what) == what, "a mask is used twice"
                    assert len({*pair}) == 3


def checked_models(task: bytes) -> None:
    """A server that sends another task to one device decodes nothing."""
    cohort = Cohort.of(5)
    one = session_of(cohort.keys, task=task)
    cohort.mask([0, 1, 2, 3])
    cohort.first[4], cohort.own[4] = mask_vector(one, cohort.keys[4], cohort.vectors[4])
    there = np.ones(5, bool)
    second = {i: cohort.reveal(i) for i in range(4)}
    second[4] = secure_sum.reveal(one, cohort.keys[4], cohort.own[4], there, shares_for(one, 4, cohort.first))
    try:
        total = unmask(cohort.session, cohort.first, second).view(np.int64).tolist()
    except FultrError:
        return
    assert total != cohort.expected(), "the sum lies open"


def checked_vectors() -> None:
    """Whoever knows all masks that a device has in common with others still does not see its vector."""
    cohort = Cohort.of(3)
    masked = cohort.mask()[0].vector.copy()
    for other in (1, 2):
        pair = cohort.keys[other].pair(cohort.keys[0].public, cohort.session.digest)
        masked -= mask_of(pair.mask, masked.size)
    assert masked.view(np.int64).tolist() != cohort.vectors[0].tolist(), "a vector lies open"


def test_no_mask_is_used_twice():
    cohort = Cohort.of(5)
    for other in ({"t": 1}, {"attempt": 2}, {"task": b"another"}):
        checked_keys(cohort, session_of(cohort.keys, **other))
    checked_keys(cohort, replace(cohort.session, run=bytes(16)))
    checked_keys(cohort, replace(cohort.session, members=cohort.session.members[:4]))
    checked_keys(cohort, replace(cohort.session, members=cohort.session.members[::-1]))


def test_a_server_that_sends_two_models_decodes_nothing():
    checked_models(b"another")


def test_the_check_is_of_what_it_seems_to_be():
    with pytest.raises(AssertionError, match="the sum lies open"):
        checked_models(b"task")


def test_a_vector_has_a_mask_of_its_own():
    checked_vectors()


def test_a_mask_that_is_used_twice_is_noticed(monkeypatch):
    """The same key in two rounds."""
    real = SumKey.pair
    monkeypatch.setattr(SumKey, "pair", lambda key, other, session: real(key, other, bytes(32)))
    cohort = Cohort.of(5)
    cohort.mask()
    assert cohort.total() == cohort.expected()  # sums alone do not show it
    with pytest.raises(AssertionError, match="a mask is used twice"):
        checked_keys(cohort, session_of(cohort.keys, t=1))


def test_a_session_without_the_task_is_noticed(monkeypatch):
    real = Session.__init__

    def without(self, run, round, attempt, task, members):
        real(self, run, round, attempt, bytes(32), members)

    monkeypatch.setattr(Session, "__init__", without)
    cohort = Cohort.of(5)
    cohort.mask()
    assert cohort.total() == cohort.expected()
    with pytest.raises(AssertionError, match="the sum lies open"):
        checked_models(b"another")


def test_a_self_mask_that_is_left_out_is_noticed(monkeypatch):
    real = secure_sum.mask_of
    own = []
    monkeypatch.setattr(secure_sum, "self_mask_key", lambda seed, session: own.append(bytes(32)) or bytes(32))
    monkeypatch.setattr(
        secure_sum, "mask_of", lambda key, size: np.zeros(size, np.uint64) if key == bytes(32) else real(key, size)
    )
    cohort = Cohort.of(5)
    cohort.mask()
    assert cohort.total() == cohort.expected()
    with pytest.raises(AssertionError, match="a vector lies open"):
        checked_vectors()


def test_masks_are_uniform():
    """Every byte of 10^5 numbers, by chi-square with 255 degrees of freedom: mean 255, standard deviation 22.6."""
    stream = mask_of(bytes(range(32)), 100_000).view(np.uint8).reshape(-1, 8)
    for column in stream.T:
        counts = np.bincount(column, minlength=256)
        square = ((counts - len(column) / 256) ** 2).sum() / (len(column) / 256)
        assert abs(square - 255) < 5 * np.sqrt(2 * 255)


def test_what_is_sent_does_not_hold_what_was_planted():
    """A vector of one recognisable number; nothing of it is in any message, in bytes or as a difference of two."""
    planted = 0x0123_4567_89AB_CDEF
    cohort = Cohort.of(4, size=50)
    cohort.vectors[:] = planted
    cohort.mask()
    sent = b"".join(masked.vector.tobytes() + b"".join(masked.shares) for masked in cohort.first.values()) + b"".join(
        b"".join(cohort.reveal(i)) for i in range(4)
    )
    for order in ("little", "big"):
        assert planted.to_bytes(8, order) not in sent
        assert planted.to_bytes(8, order)[:4] not in sent
    assert cohort.total() == [4 * planted - (2**64 if 4 * planted >= 2**63 else 0)] * 50


# A server that cheats


def seen_by(n: int, told: dict[int, set[int]]) -> list[set[int]]:
    """Sets of devices whose sum a server sees that tells each device what it likes: by the rules of `reveal` alone.

    A set is smallest if every mask that leaves it is known, and every seed in it.
    """
    seeds = {v for v in range(n) if sum(v in told[i] for i in range(n)) >= threshold(n)}
    known = {(u, v) for u in range(n) for v in range(n) if v not in told[u]}
    found = []
    for size in range(1, n):
        for chosen in itertools.combinations(range(n), size):
            inside = set(chosen)
            across = [(u, v) for u in inside for v in set(range(n)) - inside]
            if inside <= seeds and all((u, v) in known or (v, u) in known for u, v in across):
                found.append(inside)
        if found:
            return found
    return found


def views(n: int, least: int):
    """All lists of survivors that each device accepts if at least so many must be left."""
    mine = {
        i: [set(c) for size in range(least, n + 1) for c in itertools.combinations(range(n), size) if i in c]
        for i in range(n)
    }
    return itertools.product(*(mine[i] for i in range(n)))


def test_a_majority_would_not_be_enough(monkeypatch):
    """With t = 3 of 5, a server that tells devices different survivors sees one device's vector."""
    monkeypatch.setattr(secure_sum, "threshold", lambda n: n // 2 + 1)
    cohort = Cohort.of(5)
    cohort.mask()
    told = {0: {0, 1, 2}, 1: {1, 2, 3}, 2: {1, 2, 3}, 3: {0, 3, 4}, 4: {0, 3, 4}}
    revealed = {i: cohort.reveal(i, told[i]) for i in told}
    vector = cohort.first[0].vector.copy()
    seed = joined({i + 1: int.from_bytes(revealed[i][0], "big") for i in (0, 3, 4)})
    vector -= mask_of(masks.self_mask_key(seed.to_bytes(32, "big"), cohort.session.digest), vector.size)
    for key in (revealed[1][0], revealed[2][0], revealed[0][3], revealed[0][4]):  # with devices 1 to 4
        vector -= mask_of(key, vector.size)  # device 0 is first, and adds all of them
    assert vector.view(np.int64).tolist() == cohort.vectors[0].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4, 5])
def test_no_lists_of_survivors_show_a_smaller_sum(n):
    """All lists that each device of a small cohort accepts, in all combinations."""
    smallest = n
    for told in views(n, threshold(n)):
        for found in seen_by(n, dict(enumerate(told))):
            smallest = min(smallest, len(found))
    assert smallest >= hidden_among(n)
    assert hidden_among(n) >= 3


@pytest.mark.parametrize("n", [*range(3, 60), 61, 100, 300])
def test_more_than_two_thirds_are_needed(n):
    assert 2 * n / 3 < threshold(n) <= n
    assert hidden_among(n) >= max(3, n / 3)


def test_a_device_refuses_what_would_show_too_much():
    cohort = Cohort.of(6)
    cohort.mask()
    with pytest.raises(FultrError, match="4 of 6 devices are left, and 5 are needed"):
        cohort.reveal(0, {0, 1, 2, 3})
    with pytest.raises(FultrError, match="this device is said to have dropped out"):
        cohort.reveal(0, {1, 2, 3, 4, 5})
    with pytest.raises(FultrError, match="expected 6 devices, found 5"):
        secure_sum.reveal(cohort.session, cohort.keys[0], cohort.own[0], np.ones(5, bool), [])
    with pytest.raises(FultrError, match="4 shares for 5 surviving neighbours"):
        secure_sum.reveal(cohort.session, cohort.keys[0], cohort.own[0], np.ones(6, bool), [b""] * 4)
    with pytest.raises(FultrError, match="not one of the cohort"):
        mask_vector(cohort.session, SumKey.generate(), cohort.vectors[0])


def test_too_few_neighbours_are_too_few_though_the_cohort_is_large(monkeypatch):
    monkeypatch.setattr(secure_sum, "FULL", 20)
    monkeypatch.setattr(secure_sum, "DEGREE", 8)
    cohort = Cohort.of(60)
    near = cohort.session.neighbourhood(0)
    gone = [i for i in near if i != 0][:3]
    there = ~np.isin(np.arange(60), gone)
    assert there.sum() > threshold(60)
    cohort.mask()
    with pytest.raises(FultrError, match="6 of 9 neighbours are left, and 7 are needed"):
        cohort.reveal(0, np.flatnonzero(there).tolist())


def test_a_share_that_was_changed_on_the_way_is_missing_and_the_sum_still_comes_out():
    cohort = Cohort.of(6)
    cohort.mask()
    shares = list(cohort.first[2].shares)
    shares[0] = shares[0][:-1] + bytes([shares[0][-1] ^ 1])  # for device 0
    cohort.first[2] = replace(cohort.first[2], shares=tuple(shares))
    assert cohort.reveal(0)[2] == MISSING
    assert cohort.total() == cohort.expected()


def test_a_share_for_one_device_or_session_is_of_no_use_to_another():
    cohort = Cohort.of(5)
    cohort.mask()
    swapped = shares_for(cohort.session, 1, cohort.first)
    revealed = secure_sum.reveal(cohort.session, cohort.keys[0], cohort.own[0], np.ones(5, bool), swapped)
    assert revealed[1:] == (MISSING,) * 4
    later = session_of(cohort.keys, t=1)
    given_ = shares_for(cohort.session, 0, cohort.first)
    assert secure_sum.reveal(later, cohort.keys[0], cohort.own[0], np.ones(5, bool), given_)[1:] == (MISSING,) * 4


def test_a_key_of_low_order_is_refused():
    with pytest.raises(FultrError, match="is of no use"):
        SumKey.generate().pair(bytes(32), bytes(32))


# Neighbours


def test_neighbours_are_mutual_and_follow_from_the_session():
    members = tuple(i.to_bytes(32, "big") for i in range(FULL + 50))
    session = Session(RUN, 0, 1, bytes(32), members)
    near = {i: session.neighbourhood(i) for i in range(len(members))}
    assert all(len(near[i]) == DEGREE + 1 for i in near)
    assert all(i in near[j] for i in near for j in near[i])
    again = Session(RUN, 0, 1, bytes(32), members)
    assert all(again.neighbourhood(i) == near[i] for i in near)
    other = Session(RUN, 0, 2, bytes(32), members)
    shared = np.mean([len(set(other.neighbourhood(i)) & set(near[i])) - 1 for i in near])
    assert abs(shared - DEGREE * DEGREE / (len(near) - 1)) < 2  # as two random graphs
    few = Session(RUN, 0, 1, bytes(32), members[:FULL])
    assert few.neighbourhood(7) == list(range(FULL))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members": (b"a" * 32, b"b" * 32)}, "a secure sum of 2 devices, expected 3 to"),
        ({"members": (b"a" * 32, b"b" * 32, b"a" * 32)}, "the same key"),
        ({"members": (b"a" * 32, b"b" * 32, b"c")}, "expected 16 bytes"),
        ({"run": b""}, "expected 16 bytes"),
        ({"attempt": 0}, "an attempt from 1"),
    ],
)
def test_a_session_that_cannot_be_one(change, message):
    usual = {"run": RUN, "round": 0, "attempt": 1, "task": bytes(32), "members": (b"a" * 32, b"b" * 32, b"c" * 32)}
    with pytest.raises(FultrError, match=message):
        Session(**{**usual, **change})
