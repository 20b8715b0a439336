"""A device in secure sums: what it refuses, what it keeps, and what leaves it."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from help.device_logs import opened, raw_bytes
from help.tasks import SMALL, a_task, at, use

from fultr import FultrError
from fultr.device.answer import REFUSAL, answer
from fultr.device.ledger import Sent, read_history
from fultr.device.mailbox import answer_message
from fultr.device.sqlite import connect
from fultr.device.summing import join_sum, reveal_sum
from fultr.federated.messages import Reply, Task
from fultr.federated.privacy.enrolment import Enrolment, SumIdentity, sign_enrolment
from fultr.federated.privacy.fixed_point import added
from fultr.federated.privacy.masks import SumKey
from fultr.federated.privacy.secure_sum import MISSING, Masked, shares_for, unmask
from fultr.federated.sum_wire import (
    INVITATION,
    Invitation,
    Question,
    invitation_bytes,
    question_bytes,
    read_masked,
    read_revealed,
)
from fultr.federated.summing import layout_of
from fultr.federated.wire import REFUSAL as REFUSED
from fultr.federated.wire import task_bytes
from fultr.rankers.release import ReleaseKey

SIGNING = Ed25519PrivateKey.generate()
PINNED = ReleaseKey("pilot", SIGNING.public_key().public_bytes_raw())
KEYS = [SumKey.generate() for _ in range(5)]
IDENTITIES = [SumIdentity(key, PINNED) for key in KEYS]
NOISED = {"aggregation": "mean", "noise_multiplier": 0.5, "population": 1000, "cohort": 5, "secure_sums": True}
LIST = Enrolment(4, "pilot", tuple(range(5)), tuple(key.public for key in KEYS))


@pytest.fixture
def logs(tmp_path):
    """Of five devices, each with clicks of its own."""
    paths = [tmp_path / f"device-{i}.db" for i in range(5)]
    for i, path in enumerate(paths):
        with opened(path) as log:
            use(log, impressions=12, clicks=8, seed=i)
    return paths


def invited(
    task: Task, *, attempt: int = 1, run: bytes = bytes(16), listed=LIST, signing=SIGNING, cohort=None
) -> Invitation:
    cohort = tuple(range(5)) if cohort is None else cohort
    return Invitation(run, attempt, cohort, task_bytes(task), sign_enrolment(listed, signing))


class Server:
    """One that asks the devices of five logs, and keeps every byte that they sent."""

    def __init__(self, logs, task, **changes):
        self.logs, self.task, self.invitation = logs, task, invited(task, **changes)
        self.session = self.invitation.session(task, LIST)
        self.first: dict[int, Masked] = {}
        self.sent = b""

    def invite(self, place: int, policy=SMALL):
        found = join_sum(self.logs[place], invitation_bytes(self.invitation), policy, IDENTITIES[place])
        if isinstance(found, bytes):
            self.sent += found
            self.first[place] = read_masked(self.session, place, layout_of(self.task).size, found)
        return found

    def question(self, place: int, survivors=None) -> bytes:
        told = sorted(self.first) if survivors is None else survivors
        there = {i: self.first[i] for i in told}
        shares = shares_for(self.session, place, there)
        return question_bytes(Question(self.session.digest, np.isin(np.arange(5), told), shares))

    def ask(self, place: int, survivors=None):
        found = reveal_sum(self.logs[place], self.question(place, survivors), IDENTITIES[place])
        self.sent += found if isinstance(found, bytes) else b""
        return found


def reason(path) -> str:
    with closing(connect(path, write=False)) as connection:
        return read_history(connection, at(0)).entries[-1].reason


def plain(paths, task) -> list[Reply]:
    """What the devices would answer in the clear."""
    return [answer(path, task, SMALL) for path in paths]


@pytest.mark.parametrize("lost", [[], [3]])
def test_the_server_finds_the_sum_of_what_devices_would_answer(logs, lost):
    task = a_task(propensity="shrunk")
    server = Server(logs, task)
    for place in sorted({*range(5)} - {*lost}):
        assert isinstance(server.invite(place), bytes)
    second = {i: read_revealed(server.session, i, server.ask(i)) for i in server.first}
    total = unmask(server.session, server.first, second)
    layout = layout_of(task)
    assert total.tobytes() == added(layout.encoded(plain([logs[i]], task)[0].sums) for i in server.first).tobytes()
    sums = layout.decoded(total, len(server.first))
    updates = [answer(logs[i], task, SMALL).sums["update"].astype(float) for i in server.first]
    assert np.abs(sums["update"] - sum(updates)).max() < 5 * 2.0**-33
    assert np.linalg.norm(sums["update"]) > 0.01


def test_an_answer_in_a_sum_counts_as_an_answer(logs):
    server = Server(logs, a_task())
    server.invite(0)
    with closing(connect(logs[0], write=False)) as connection:
        history = read_history(connection, at(0))
    assert history.answered == 1
    assert history.entries[-1].reason == "in a secure sum of 5 devices"
    assert [sent.name for sent in history.entries[-1].sent] == ["update", "trained"]
    spent = replace(SMALL, answers_in_all=1)
    assert Server(logs, a_task(t=1)).invite(0, spent) == REFUSAL
    assert "1 answers in all, and the limit is 1" in reason(logs[0])
    unwilling = replace(SMALL, sends=())
    assert Server(logs, a_task(t=1)).invite(0, unwilling) == REFUSAL
    assert reason(logs[0]) == "update: is not sent, by the policy"


def test_only_sums(logs):
    strict = replace(SMALL, only_sums=True)
    assert answer(logs[0], a_task(), strict) == REFUSAL
    assert reason(logs[0]) == "the policy allows no answer in the clear"
    assert isinstance(Server(logs, a_task()).invite(0, strict), bytes)


def test_an_invitation_is_answered_once(logs):
    server = Server(logs, a_task())
    assert isinstance(server.invite(0), bytes)
    assert server.invite(0) == REFUSAL
    assert reason(logs[0]) == "an invitation of this run, round and attempt was answered before"
    other = Server(logs, a_task(client_rate=0.5))  # another task, the same numbers
    assert other.invite(0) == REFUSAL
    for place in range(1, 5):
        server.invite(place)
    assert isinstance(server.ask(0), bytes)
    assert server.invite(0) == REFUSAL  # also when all is done
    assert isinstance(Server(logs, a_task(), attempt=2).invite(0), bytes)


def test_a_question_is_answered_once(logs):
    server = Server(logs, a_task())
    for place in range(5):
        server.invite(place)
    assert isinstance(server.ask(0), bytes)
    assert server.ask(0) == REFUSAL
    assert server.ask(0, [0, 1, 2, 3]) == REFUSAL  # it would now reveal its mask with a device whose seed is known
    assert reason(logs[0]).startswith("secure sum: the question is about a session that this device is not in, or")


def test_nothing_of_a_session_is_kept_when_it_is_over(logs):
    server = Server(logs, a_task())
    for place in range(5):
        server.invite(place)
    rows = "SELECT task, members, share FROM sums"
    with closing(connect(logs[0], write=True)) as connection:
        kept = connection.execute(rows).fetchall()
        assert [len(value) for value in kept[0]] == [32, 5 * 32, 32]
        server.ask(0)
        assert connection.execute(rows).fetchall() == [(None, None, None)]
    later = Server(logs, a_task(t=1))
    later.invite(1)
    with closing(connect(logs[1], write=True)) as connection:
        assert connection.execute("SELECT count(*), count(share) FROM sums").fetchone() == (2, 1)
    assert server.ask(1) == REFUSAL  # given up for the later one


@pytest.mark.parametrize(
    ("survivors", "said"),
    [
        ([0, 1, 2], "3 of 5 devices are left, and 4 are needed"),
        ([1, 2, 3, 4], "this device is said to have dropped out"),
    ],
)
def test_a_question_that_would_show_too_much_is_refused_and_a_good_one_still_answered(logs, survivors, said):
    server = Server(logs, a_task())
    for place in range(5):
        server.invite(place)
    assert server.ask(0, survivors) == REFUSAL
    assert reason(logs[0]) == f"secure sum: {said}"
    assert isinstance(server.ask(0), bytes)


def test_a_sum_with_too_few_shares_of_noise_is_not_revealed(logs):
    """Each device adds a fifth of the variance: four of them would be short of what the budget counts on."""
    task = a_task(**NOISED, privacy="distributed", honest=5)
    server = Server(logs, task)
    for place in range(5):
        assert isinstance(server.invite(place), bytes)
    assert server.ask(0, [0, 1, 2, 3]) == REFUSAL
    assert reason(logs[0]) == "secure sum: 4 of 5 devices are left, and 5 are needed"
    second = {i: read_revealed(server.session, i, server.ask(i)) for i in range(5)}
    found = layout_of(task).decoded(unmask(server.session, server.first, second), 5)
    assert found["trained"].tolist() == [5]
    assert (found["vector"] == np.trunc(found["vector"])).all()


def test_a_server_cannot_spread_the_noise_over_devices_that_are_not_there(logs):
    """With a large `honest`, each device would add next to nothing."""
    task = a_task(**NOISED, privacy="distributed", honest=6)
    found = join_sum(logs[0], invitation_bytes(invited(task)), SMALL, IDENTITIES[0])
    assert found == REFUSAL
    assert reason(logs[0]) == "a secure sum of 5 devices, and 6 must add their share of the noise"


def test_a_device_never_reveals_both_of_one_device(logs):
    """Whatever the server asks afterwards: of every other device a share or a key has left, and not the other."""
    server = Server(logs, a_task())
    for place in range(5):
        server.invite(place)
    pairs = {i: KEYS[0].pair(KEYS[i].public, server.session.digest).mask for i in range(1, 5)}
    for told in ([0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 2, 3, 4]):
        server.ask(0, told)
    assert pairs[4] in server.sent
    assert not any(pairs[i] in server.sent for i in (1, 2, 3))


def test_strangers_are_refused(logs):
    task = a_task()
    forged = replace(LIST, keys=(*LIST.keys[:4], SumKey.generate().public))

    def asked(**changes):
        content = invitation_bytes(invited(task, **changes))
        assert join_sum(logs[0], content, SMALL, IDENTITIES[0]) == REFUSAL
        return reason(logs[0])

    assert asked(signing=Ed25519PrivateKey.generate(), listed=forged).startswith("enrolment: was not signed with")
    assert asked(listed=replace(LIST, federation="other")).startswith("enrolment: is for the federation 'other'")
    assert asked(cohort=(0, 1, 2, 3, 9)) == "device 9 is not enrolled for secure sums"
    assert asked(cohort=(1, 2, 3, 4)) == "this device is not one of the cohort"
    assert asked(cohort=(0, 1)) == "a secure sum of 2 devices, expected 3 to 10,000"
    assert isinstance(Server(logs, task).invite(0), bytes)
    assert (
        asked(attempt=2, listed=replace(LIST, serial=3)) == "enrolment: its serial number is 3, and 4 was seen before"
    )
    assert asked(attempt=2, listed=forged) == "enrolment: another list with the serial number 4 was seen before"
    newer = invitation_bytes(invited(task, attempt=2, listed=replace(LIST, serial=5)))
    assert isinstance(join_sum(logs[0], newer, SMALL, IDENTITIES[0]), bytes)
    assert asked(attempt=3).startswith("enrolment: its serial number is 4, and 5 was seen")
    elsewhere = Ed25519PrivateKey.generate()  # the owner enrols the device with another federation
    moved = SumIdentity(KEYS[0], ReleaseKey("pilot", elsewhere.public_key().public_bytes_raw()))
    assert isinstance(
        join_sum(logs[0], invitation_bytes(invited(task, attempt=4, signing=elsewhere)), SMALL, moved), bytes
    )


def test_a_list_that_was_seen_counts_whatever_becomes_of_the_task(logs):
    """A newer list takes a stolen key away: older ones are refused, also if the task with the newer one was."""

    def asked(attempt, serial, signing=SIGNING, identity=IDENTITIES[0], policy=SMALL):
        content = invitation_bytes(
            invited(a_task(), attempt=attempt, listed=replace(LIST, serial=serial), signing=signing)
        )
        return join_sum(logs[0], content, policy, identity)

    assert isinstance(asked(1, 4), bytes)
    assert asked(2, 5, policy=replace(SMALL, answers_a_day=1)) == REFUSAL
    assert reason(logs[0]).startswith("1 answers in 24 hours")
    assert asked(3, 4) == REFUSAL
    assert reason(logs[0]) == "enrolment: its serial number is 4, and 5 was seen before"
    elsewhere = Ed25519PrivateKey.generate()
    other = SumIdentity(KEYS[0], ReleaseKey("pilot", elsewhere.public_key().public_bytes_raw()))
    assert isinstance(asked(4, 1, elsewhere, other), bytes)  # another federation has numbers of its own
    assert asked(5, 4) == REFUSAL
    assert reason(logs[0]) == "enrolment: its serial number is 4, and 5 was seen before"
    assert isinstance(asked(6, 5), bytes)


def test_a_shape_that_cannot_be_is_refused_like_any_nonsense(logs):
    head = json.dumps({"arrays": [["x", "f4", [0, 16_000_000, 16_000_000, 16_000_000]]]}).encode()
    nonsense = len(head).to_bytes(4, "big") + head
    inner = invitation_bytes(replace(invited(a_task()), task=nonsense))
    for content in (nonsense, INVITATION + nonsense, inner):
        assert answer_message(logs[0], content, SMALL, 7, IDENTITIES[0])[0] == REFUSED
        assert reason(logs[0]) == "its head is not one (ValueError)"


def test_the_second_message_is_in_the_ledger_and_counts_as_no_answer(logs):
    server = Server(logs, a_task())
    for place in range(5):
        server.invite(place)
    assert isinstance(server.ask(0), bytes)
    with closing(connect(logs[0], write=False)) as connection:
        history = read_history(connection, at(0))
    assert [entry.outcome for entry in history.entries] == ["answered", "revealed"]
    assert history.entries[1].sent == (Sent("revealed", 5 * 32, 0.0),)
    assert history.entries[1].reason == "sent for the secure sum of an answer: 5 shares or keys that take masks away"
    assert history.answered == 1


def test_the_owner_says_how_many_devices_a_sum_has(logs):
    server = Server(logs, a_task())
    assert server.invite(0, replace(SMALL, least_summed=4)) == REFUSAL  # 2 x 4 - 5 = 3
    assert reason(logs[0]) == "a server that cheats could see a sum of 3 devices; least_summed is 4"


def test_what_is_refused_leaves_no_trace_in_the_table(logs):
    """A refused invitation may come again when it is allowed."""
    server = Server(logs, a_task())
    assert server.invite(0, replace(SMALL, least_clicks=100)) == REFUSAL
    assert isinstance(server.invite(0), bytes)


def test_messages_go_through_the_mailbox_and_refusals_are_all_the_same(logs):
    server = Server(logs, a_task())
    content = invitation_bytes(server.invitation)
    reply, words = answer_message(logs[0], content, SMALL, 7, IDENTITIES[0])
    assert isinstance(read_masked(server.session, 0, layout_of(server.task).size, reply), Masked)
    assert words == "answered an invitation to a secure sum of run 7"
    found = [
        answer_message(logs[0], content, SMALL, 7, IDENTITIES[0]),
        answer_message(logs[0], content[:-1], SMALL, 7, IDENTITIES[0]),
        answer_message(logs[0], b"sum2" + bytes(9), SMALL, 7, IDENTITIES[0]),
        answer_message(logs[1], content, SMALL, 7, None),
        answer_message(logs[1].with_name("nowhere.db"), content, SMALL, 7, IDENTITIES[1]),
    ]
    assert {reply for reply, _ in found} == {REFUSED}
    assert "was answered before" in found[0][1]
    assert "that is no task" in found[3][1]


@pytest.mark.parametrize("settings", [{}, {"propensity": "shrunk", "judge": True}, NOISED | {"privacy": "gaussian"}])
def test_planted_values_are_in_nothing_that_is_sent(logs, tmp_path, settings):
    """The same clicks answered in the clear show the features' difference; masked, no number of it is to be found.

    With privacy, what is sought is the vector before the server has added noise to the sum.
    """
    path = logs[0]
    task = a_task(**settings)
    server = Server(logs, task)
    for place in range(5):
        server.invite(place)
    for place in range(5):
        server.ask(place)
    reply = answer(path, replace(task, training=2), SMALL)
    own = np.concatenate([array.ravel().astype(np.float64) for name, array in reply.sums.items() if name != "trained"])
    encoded = layout_of(task).encoded(reply.sums)[: own.size]
    planted = [value.tobytes() for value in (*own, *own.astype(np.float32), *encoded) if abs(value) > 1e-6]
    assert len(planted) > 8
    assert not any(value in server.sent for value in planted)
    assert any(value in own.tobytes() for value in planted)  # in the clear they would be found
    secret = KEYS[0].private.private_bytes_raw()
    assert secret not in server.sent
    assert secret not in raw_bytes(path)


def test_two_models_in_one_round_decode_nothing(logs):
    """Device 0 is sent another model than the others, so that it would stand out in the sum."""
    others, alone = Server(logs, a_task()), Server(logs, a_task(client_rate=0.9))
    for place in range(1, 5):
        others.invite(place)
    assert isinstance(alone.invite(0), bytes)
    others.first[0] = alone.first[0]
    second = {i: read_revealed(others.session, i, others.ask(i)) for i in range(1, 5)}
    assert others.ask(0) == REFUSAL  # it is in another session
    there = np.ones(5, bool)
    asked = question_bytes(Question(alone.session.digest, there, shares_for(alone.session, 0, others.first)))
    revealed = read_revealed(alone.session, 0, reveal_sum(logs[0], asked, IDENTITIES[0]))
    assert revealed[1:] == (MISSING,) * 4  # nor can it read the others' shares
    assert {row[0] for row in second.values()} == {MISSING}
    for answers in (second, {**second, 0: revealed}):
        with pytest.raises(FultrError, match="shares of a device's seed are left, and 4 are needed"):
            unmask(others.session, others.first, answers)
