"""The messages of a secure sum as bytes: what comes back is what was sent, whatever else arrives becomes words."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from help.sums import RUN, Cohort
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fultr.core.errors import FultrError
from fultr.federated.privacy.masks import SEALED_BYTES
from fultr.federated.privacy.secure_sum import Masked, shares_for
from fultr.federated.sum_wire import (
    INVITATION,
    QUESTION,
    Invitation,
    Question,
    invitation_bytes,
    masked_bytes,
    question_bytes,
    read_invitation,
    read_masked,
    read_question,
    read_revealed,
    revealed_bytes,
)
from fultr.federated.wire import MOST_BYTES, REFUSAL, read_task

COHORT = Cohort.of(4)
COHORT.mask()
SESSION = COHORT.session
INVITED = Invitation(RUN, 2, (0, 3, 5), b"a task", b"a list")
ASKED = Question(SESSION.digest, np.array([True, False, True, True]), shares_for(SESSION, 0, COHORT.first))
FIRST, SECOND = invitation_bytes(INVITED), question_bytes(ASKED)
MASKED, REVEALED = masked_bytes(SESSION, COHORT.first[1]), revealed_bytes(SESSION, COHORT.reveal(1))
SIZE = COHORT.vectors.shape[1]


def test_messages_come_back_the_same():
    assert read_invitation(FIRST) == INVITED
    asked = read_question(SECOND)
    assert (asked.session, asked.survivors.tolist(), asked.shares) == (
        ASKED.session,
        ASKED.survivors.tolist(),
        ASKED.shares,
    )
    masked = read_masked(SESSION, 1, SIZE, MASKED)
    assert isinstance(masked, Masked)
    assert masked.vector.tobytes() == COHORT.first[1].vector.tobytes()
    assert masked.shares == COHORT.first[1].shares
    assert len(read_revealed(SESSION, 1, REVEALED)) == 4


def test_none_of_them_can_be_taken_for_a_task_or_for_another():
    for content in (FIRST, SECOND):
        with pytest.raises(FultrError):
            read_task(content)
    with pytest.raises(FultrError, match="another message"):
        read_question(FIRST)
    with pytest.raises(FultrError, match="another message"):
        read_invitation(SECOND)


def changed(content: bytes, begin: bytes, rest: bytes | None = None, **entries) -> bytes:
    size = int.from_bytes(content[len(begin) : len(begin) + 4], "big")
    head = json.loads(content[len(begin) + 4 : len(begin) + 4 + size])
    text = json.dumps({**head, **entries}).encode()
    body = content[len(begin) + 4 + size :] if rest is None else rest
    return begin + len(text).to_bytes(4, "big") + text + body


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: changed(FIRST, INVITATION, attempt=0), "names no attempt"),
        (lambda: changed(FIRST, INVITATION, attempt=True), "names no attempt"),
        (lambda: changed(FIRST, INVITATION, attempt=10**30), "names no attempt"),
        (lambda: changed(FIRST, INVITATION, run="00"), "expected 32 hexadecimal digits"),
        (lambda: changed(FIRST, INVITATION, run="zz" * 16), "expected 32 hexadecimal digits"),
        (lambda: changed(FIRST, INVITATION, more=1), "and nothing else"),
        (lambda: invitation_bytes(replace(INVITED, cohort=(0, 5, 3))), "not in ascending order"),
        (lambda: invitation_bytes(replace(INVITED, cohort=(0, 0, 3))), "not in ascending order"),
        (lambda: invitation_bytes(replace(INVITED, cohort=(-1, 0, 3))), "not in ascending order"),
        (lambda: invitation_bytes(replace(INVITED, cohort=tuple(range(10_001)))), "10,000 is the limit"),
        (lambda: INVITATION + bytes(MOST_BYTES), "16,000,000 is the limit"),
        (lambda: FIRST[:-1], "bytes where its head says"),
        (lambda: b"", "another message"),
    ],
)
def test_an_invitation_that_is_none(content, message):
    with pytest.raises(FultrError, match=message):
        read_invitation(content())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: changed(SECOND, QUESTION, session="00"), "expected 64 hexadecimal digits"),
        (
            lambda: changed(SECOND, QUESTION, b"\2" * 4, arrays=[["survivors", "u1", [4]], ["shares", "u1", [0, 60]]]),
            "surv",
        ),
        (
            lambda: changed(SECOND, QUESTION, b"\1" * 5, arrays=[["survivors", "u1", [4]], ["shares", "u1", [1]]]),
            "shares",
        ),
        (
            lambda: changed(SECOND, QUESTION, bytes(32), arrays=[["survivors", "f8", [4]], ["shares", "u1", [0, 60]]]),
            "exp",
        ),
    ],
)
def test_a_question_that_is_none(content, message):
    with pytest.raises(FultrError, match=message):
        read_question(content())


def test_replies_about_something_else_are_words():
    other = replace(SESSION, attempt=2)
    assert read_masked(other, 1, SIZE, MASKED) == "its reply is about another session"
    assert "expected uint64 (8,)" in read_masked(SESSION, 1, SIZE + 1, MASKED)
    assert read_masked(SESSION, 1, SIZE, REFUSAL) == read_revealed(SESSION, 1, REFUSAL) == "it refused"
    assert read_revealed(SESSION, 1, None) == "its reply is no byte string"
    assert "not asked for" in read_revealed(SESSION, 1, MASKED)


def test_shares_take_the_same_room_whatever_they_hold():
    assert {len(share) for masked in COHORT.first.values() for share in masked.shares} == {SEALED_BYTES}
    assert len({len(masked_bytes(SESSION, masked)) for masked in COHORT.first.values()}) == 1


MESSAGES = {"first": FIRST, "second": SECOND, "masked": MASKED, "revealed": REVEALED}


@settings(max_examples=4000, deadline=None)
@given(
    st.sampled_from(sorted(MESSAGES)),
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), max_size=6),
    st.integers(0, 900),
)
def test_changed_messages_are_refused_or_read_within_their_limits(which, changes, end):
    content = bytearray(MESSAGES[which])
    for place, value in changes:
        if place < len(content):
            content[place] = value
    read_all(bytes(content[: end or None]))


@settings(max_examples=4000, deadline=None)
@given(
    st.sampled_from([b"", INVITATION, QUESTION]),
    st.dictionaries(
        st.sampled_from(["run", "attempt", "session", "more"]), st.one_of(st.integers(), st.text(max_size=70))
    ),
    st.lists(
        st.tuples(
            st.sampled_from(["cohort", "task", "enrolment", "survivors", "shares", "vector", "revealed"]),
            st.sampled_from(["u1", "u8", "i8", "f4", "O"]),
            st.lists(st.integers(-1, 2**70), max_size=3),
        ),
        max_size=4,
    ),
    st.binary(max_size=300),
)
@example(INVITATION, {}, [("cohort", "u1", [0, 2**63])], b"")
def test_invented_messages_are_refused_or_read_within_their_limits(begin, head, described, rest):
    text = json.dumps({**head, "arrays": described}).encode()
    read_all(begin + len(text).to_bytes(4, "big") + text + rest)


def read_all(content: bytes) -> None:
    """A device gets values of the right kinds or an error of one line; the server gets them or words."""
    for read in (read_invitation, read_question):
        try:
            found = read(content)
        except FultrError as error:
            found = str(error)
        if isinstance(found, str):
            assert "\n" not in found
            assert len(found) < 300
            continue
        if isinstance(found, Invitation):
            assert len(found.run) == 16
            assert list(found.cohort) == sorted(set(found.cohort))
        else:
            assert found.survivors.dtype == bool
            assert all(len(share) == SEALED_BYTES for share in found.shares)
    masked = read_masked(SESSION, 1, SIZE, content)
    assert isinstance(masked, str) or masked.vector.shape == (SIZE,)
    revealed = read_revealed(SESSION, 1, content)
    assert isinstance(revealed, str) or [len(row) for row in revealed] == [32] * 4
