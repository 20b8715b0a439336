"""Answers to tasks: from whole batches alone, within the policy, and one refusal for every reason."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from contextlib import closing
from dataclasses import asdict, replace

import numpy as np
import pytest
from help.commands import fultr
from help.device_logs import opened
from help.tasks import DISPLAYED, FEATURES, SMALL, a_task, at, use
from hypothesis import given, settings
from hypothesis import strategies as st

from fultr import Estimator, FultrError
from fultr.device import answer as answering
from fultr.device.answer import REFUSAL, Refusal, answer, note_nonsense
from fultr.device.batches import held_out_seed
from fultr.device.ledger import read_history
from fultr.device.local import LocalDevices
from fultr.device.policy import DevicePolicy
from fultr.device.sqlite import connect
from fultr.federated.credit import policy_aware
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.messages import Reply, reply_to

SMALL_PARTS = replace(SMALL, held_out=0.5)


@pytest.fixture
def behind(monkeypatch):
    """The records behind each answer: what was trained on, and what was judged by."""
    seen = []

    def watched(task, records, held_out, **more):
        seen.append((records, held_out))
        return reply_to(task, records, held_out, **more)

    monkeypatch.setattr(answering, "reply_to", watched)
    return seen


def events(records) -> set[tuple[int, int]]:
    """What an answer is made from: (impression, 0), and (impression, rank) for clicks."""
    clicks = zip(*np.nonzero(records.log.clicks), strict=True)
    return {(int(i), 0) for i in records.impressions} | {(int(records.impressions[i]), int(r) + 1) for i, r in clicks}


def history(path):
    with closing(connect(path, write=False)) as connection:
        return read_history(connection, at(0))


def last_reason(path) -> str:
    return history(path).entries[-1].reason


# Batches


def test_single_clicks_never_show_between_two_answers(path):
    """The server asks after every click: its answers change when a batch has closed, and at no other time."""
    with opened(path) as log:
        ids = use(log, impressions=40, clicks=4)
        replies = [answer(path, a_task(), SMALL)]
        for id_ in ids[10:30]:
            assert log.log_click(id_, 1)
            if id_ % 3 == 0:
                use(log, impressions=1, clicks=0, seed=id_)
            replies.append(answer(path, a_task(), SMALL))
    updates = [reply.sums["update"].tobytes() for reply in replies]
    closed = [i for i in range(1, 21) if updates[i] != updates[i - 1]]
    # 20 clicks; an impression with every third, so 6 new impressions, which a batch needs, take 16 to 18 clicks
    assert len(closed) == 1
    assert 15 <= closed[0] <= 18
    assert history(path).answered == 21


def test_nothing_is_answered_before_a_batch_is_full(path):
    task = a_task()
    with opened(path) as log:
        ids = use(log, impressions=20, clicks=3)
        assert answer(path, task, SMALL) == REFUSAL
        assert "the training part has 3 of 4 clicks and 20 of 6 impressions" in last_reason(path)
        log.log_click(ids[5], 1)
        assert isinstance(answer(path, task, SMALL), Reply)
    assert answer(path, task, replace(SMALL, least_clicks=5)) == REFUSAL  # the owner wants more than was closed


def test_late_clicks_count_with_the_batch_in_which_they_come(path, behind):
    latest = replace(SMALL, window="latest")
    with opened(path) as log:
        old = use(log, impressions=6, clicks=4)
        answer(path, a_task(), latest)
        log.log_click(old[5], 2)  # late
        answer(path, a_task(), latest)
        new = use(log, impressions=6, clicks=3, seed=1)
        answer(path, a_task(), latest)
        answer(path, a_task(), SMALL)  # all: the window is another, and no batch has closed
        use(log, impressions=6, clicks=4, seed=2)
        answer(path, a_task(), SMALL)
    first, second, third, whole = (events(records) for records, _ in behind)
    assert first == second
    assert {(id_, 0) for id_ in old} < first
    assert (old[5], 2) not in first
    assert {id_ for id_, _ in third} == {*new, old[5]}
    assert (old[5], 2) in third
    assert whole > first | third
    assert [entry.outcome for entry in history(path).entries] == ["answered"] * 3 + ["refused", "answered"]


@pytest.mark.parametrize(
    ("forget", "said"),
    [({"query": 0}, "something was deleted, or the policy changed, since"), ({"all": True}, "the log has no impr")],
)
def test_after_a_deletion_there_is_no_answer_until_a_batch_has_closed(path, forget, said):
    with opened(path) as log:
        use(log, impressions=10, clicks=8)
        assert isinstance(answer(path, a_task(), SMALL), Reply)
        log.forget(**forget)
        assert answer(path, a_task(), SMALL) == REFUSAL
        assert last_reason(path).startswith(said)
        use(log, impressions=5, clicks=4)
        assert answer(path, a_task(), SMALL) == REFUSAL
        use(log, impressions=1, clicks=0)
        assert isinstance(answer(path, a_task(), SMALL), Reply)


def test_another_share_of_held_out_impressions_waits_too(path):
    with opened(path) as log:
        use(log, impressions=60, clicks=60)
        assert isinstance(answer(path, a_task(), SMALL), Reply)
        assert answer(path, a_task(), replace(SMALL, held_out=0.1)) == REFUSAL


def test_what_is_deleted_while_the_answer_is_made_keeps_it_back(path, monkeypatch):
    read = answering.read_chosen
    with opened(path) as log:
        use(log, impressions=10, clicks=8)

        def disturbed(*given):
            log.forget(query=3)
            return read(*given)

        monkeypatch.setattr(answering, "read_chosen", disturbed)
        assert answer(path, a_task(), SMALL) == REFUSAL
        assert "something was deleted from it while" in last_reason(path)
        monkeypatch.undo()
        assert answer(path, a_task(), SMALL) == REFUSAL  # the batch without what was deleted is no batch
        assert [entry.sent for entry in history(path).entries] == [(), ()]
        assert history(path).answered == 1  # it counts: that an answer could not be made is one too


def test_a_judgement_has_batches_of_its_own(path, behind):
    task = a_task(judge=True)
    with opened(path) as log:
        use(log, impressions=200, clicks=200)
        answer(path, task, SMALL_PARTS)
        with closing(connect(path, write=False)) as connection:
            seed = held_out_seed(connection)
        train, held_out = log.records().split(0.5, seed)
        assert [events(records) for records in behind[0]] == [events(train), events(held_out)]
        before = answer(path, task, SMALL_PARTS)
        mine = np.zeros(0, np.int64)
        while mine.size < 6:  # until the training part has enough, and the other almost never
            (id_,) = use(log, impressions=1, clicks=0)
            if id_ in log.records().split(0.5, seed)[0].impressions:
                log.log_click(id_, 1)
                mine = np.append(mine, id_)
        after = answer(path, task, SMALL_PARTS)
    assert after.sums["update"].tobytes() != before.sums["update"].tobytes()
    assert after.sums["judged"].tobytes() == before.sums["judged"].tobytes()
    assert events(behind[-1][0]) == events(train) | {(int(i), k) for i in mine for k in (0, 1)}
    assert events(behind[-1][1]) == events(held_out)


def test_without_enough_held_out_clicks_the_judgement_is_zero_or_refused(path):
    with opened(path) as log:
        use(log, impressions=40, clicks=8)
    few = replace(SMALL, held_out=0.01, least_clicks=4)
    reply = answer(path, a_task(judge=True), few)
    assert reply.sums["judged"].tolist() == [0, 0, 0]
    assert reply.sums["update"].any()
    assert last_reason(path) == "without a judgement: too few held-out clicks"
    assert answer(path, replace(a_task(judge=True), train=False), few) == REFUSAL


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_two_answers_differ_by_a_batch_or_not_at_all(data):
    """Whatever is logged, clicked late, forgotten, asked and set meanwhile."""
    import tempfile
    from pathlib import Path

    seen: list[tuple[set, set | None]] = []

    def watched(task, records, held_out, **more):
        seen.append((events(records), None if held_out is None else events(held_out)))
        return reply_to(task, records, held_out, **more)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(answering, "reply_to", watched)
        file = Path(folder) / "log.db"
        policy = DevicePolicy(least_clicks=2, least_impressions=3, held_out=0.4, seconds_apart=0)
        with opened(file) as log:
            ids = use(log, impressions=6, clicks=3)
            for seed in range(data.draw(st.integers(5, 30))):
                match data.draw(st.sampled_from(["show", "click", "click", "ask", "ask", "forget", "policy"])):
                    case "show":
                        ids += use(log, impressions=data.draw(st.integers(1, 4)), clicks=0, seed=seed)
                    case "click":
                        log.log_click(data.draw(st.sampled_from(ids)), data.draw(st.integers(1, DISPLAYED)))
                    case "forget":
                        log.forget(query=data.draw(st.integers(0, 3)))
                    case "policy":
                        window = data.draw(st.sampled_from(["all", "latest"]))
                        policy = replace(policy, window=window, held_out=data.draw(st.sampled_from([0.2, 0.4])))
                    case "ask":
                        answer(file, a_task(judge=data.draw(st.booleans())), policy)
    for part in zip(*seen, strict=True):
        sets = [found for found in part if found is not None]
        for i, one in enumerate(sets):
            for other in sets[:i]:
                apart = one ^ other
                shown, clicked = sum(rank == 0 for _, rank in apart), sum(rank > 0 for _, rank in apart)
                assert not apart or (clicked >= 2 and shown >= 3)


def test_the_server_cannot_know_the_split(tmp_path):
    seeds = set()
    for name in "abc":
        with opened(tmp_path / f"{name}.db"), closing(connect(tmp_path / f"{name}.db", write=False)) as connection:
            seeds.add(held_out_seed(connection))
    assert len(seeds) == 3
    assert all(0 <= seed < 2**40 for seed in seeds)


# What is refused, and how


def test_every_reason_gives_the_same_refusal_and_is_in_the_ledger(path):
    with opened(path) as log:
        use(log, impressions=40, clicks=20)
    estimating = a_task(propensity="shrunk")
    cases = [
        (a_task(features=4), SMALL, "features: the task's are not the log's"),
        (a_task(feature_names="a,b,c"), SMALL, "features: the task's are not the log's"),
        (a_task(normalised=False), SMALL, "features: the task's are not the log's"),
        (a_task(displayed=3), SMALL, "displayed: the task counts 3 ranks, and the device 2"),
        (a_task(), replace(SMALL, displayed=1), "displayed: the task counts 2 ranks, and the device 1"),
        (a_task(), replace(SMALL, sends=["examination"]), "update: is not sent, by the policy"),
        (a_task(epochs=11), SMALL, "epochs: the task asks for 11, the policy allows 10"),
        (estimating, replace(SMALL, sends=["update"]), "examination: is not sent, by the policy"),
        (estimating, replace(SMALL, estimators=["pooled"]), "estimator shrunk: is not used, by the policy"),
        (a_task(judge=True), replace(SMALL, sends=["update"]), "judgement: is not sent"),
        (a_task(clip_rule="effective"), replace(SMALL, sends=["update"]), "weights: is not sent, by the policy"),
        (a_task(), replace(SMALL, least_clicks=21), "waiting for more"),
        (a_task(), replace(SMALL, least_impressions=41), "waiting for more"),
        (a_task(), replace(SMALL, answers_in_all=0), "0 answers in all, and the limit is 0"),
        (a_task(), replace(SMALL, answers_a_day=0), "0 answers in 24 hours, and the limit is 0"),
        (replace(a_task(), train=False), SMALL, "the task asks for nothing"),
        (replace(a_task(), round=-1), SMALL, "round: expected a whole number, at least 0"),
    ]
    told: list[str] = []
    for task, policy, reason in cases:
        assert answer(path, task, policy, run=2**64 - 1, tell=told.append) == REFUSAL == Refusal()
        assert last_reason(path).startswith(reason)
        assert told[-1] == last_reason(path)
    outcomes = [entry.outcome for entry in history(path).entries]
    assert outcomes == ["refused"] * 15 + ["not a task"] * 2
    assert {entry.asked.run for entry in history(path).entries} == {2**64 - 1}
    assert history(path).answered == 0


def test_a_damaged_or_missing_log_is_the_same_refusal(path):
    told: list[str] = []
    assert answer(path, a_task(), SMALL, tell=told.append) == REFUSAL
    assert not path.exists()
    with opened(path) as log:
        use(log, impressions=40, clicks=20)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE clicks SET rank = 3 - rank WHERE impression = 2")
        connection.commit()
    assert answer(path, a_task(), SMALL, tell=told.append) == REFUSAL
    assert "a click on impression 2 is not as it was written" in last_reason(path)
    assert all(entry.sent == () for entry in history(path).entries)  # nothing left the device
    content = path.read_bytes()
    path.write_bytes(content[:4096] + bytes(len(content) - 4096))
    assert answer(path, a_task(), SMALL, tell=told.append) == REFUSAL
    assert "there is no such file" in told[0]
    assert "is damaged" in told[2]


def test_nonsense_is_entered_as_it_can_be_shown(path):
    with opened(path) as log:
        use(log, impressions=1, clicks=0)
    note_nonsense(path, "its head is not whole\x1b[2J\n" + "x" * 9999, run=7)
    (entry,) = history(path).entries
    assert entry.outcome == "not a task"
    assert entry.asked.run == 7
    assert entry.reason.startswith("its head is not whole [2J x")
    assert len(entry.reason) == 500


# What is sent


def test_answers_are_those_of_the_records(path):
    task = a_task(propensity="shrunk", judge=True)
    with opened(path) as log:
        use(log, impressions=100, clicks=60)
        found = answer(path, task, SMALL_PARTS, run=3)
        with closing(connect(path, write=False)) as connection:
            parts = log.records().split(0.5, held_out_seed(connection))
    expected = reply_to(task, *parts)
    assert found.sums.keys() == expected.sums.keys()
    for name, array in expected.sums.items():
        assert found.sums[name].tobytes() == array.tobytes(), name
    (entry,) = history(path).entries
    assert (entry.asked.run, entry.asked.kinds, entry.asked.estimator) == (
        3,
        ("update", "examination", "judgement"),
        "shrunk",
    )
    assert (entry.impressions, entry.clicks, entry.batch) == (100, 60, 1)
    assert {sent.name: sent.size for sent in entry.sent} == {name: a.size for name, a in found.sums.items()}
    norm = next(sent.norm for sent in entry.sent if sent.name == "update")
    assert norm == pytest.approx(float(np.linalg.norm(found.sums["update"])), rel=1e-6)


def test_norms_are_bounded_on_the_device(path):
    task = a_task(propensity=[1.0, 1e-9], judge=True, client_rate=1000.0)
    with opened(path) as log:
        use(log, impressions=100, clicks=60)
    policy = replace(SMALL_PARTS, least_propensity=1e-12)
    bound = replace(policy, largest_norm=2.0)
    free = answer(path, task, replace(policy, largest_norm=1e30)).sums
    found = answer(path, task, bound).sums
    for name, limit in (("update", 2.0), ("judged", 2.0 * 50)):
        norm = np.linalg.norm(found[name].astype(np.float64))
        assert np.linalg.norm(free[name]) > limit
        assert norm <= limit * 1.3  # about half of the impressions are held out
        np.testing.assert_allclose(found[name] / norm, free[name] / np.linalg.norm(free[name]), rtol=1e-5)
    estimating = a_task(propensity=Estimator("shrunk").kind)
    one, other = (answer(path, estimating, replace(SMALL_PARTS, largest_norm=most)).sums for most in (1e9, 1e-3))
    assert "impressions" in one
    shares = [
        np.linalg.norm(other[name]) / np.linalg.norm(one[name]) for name in ("impressions", "examined", "gradient")
    ]
    assert shares == pytest.approx([shares[0]] * 3)
    assert shares[0] < 0.01


def test_what_is_not_finite_is_zero_and_counts(path):
    """A refusal would tell for which rates and weights that is so, and cost nothing."""
    with opened(path) as log:
        use(log, impressions=40, clicks=20)
    found = answer(path, a_task(client_rate=1e300), SMALL)
    assert not found.sums["update"].any()
    assert history(path).answered == 1


def test_one_click_cannot_outweigh_all_others(path):
    """Propensities of the server's choice would make the update the one of a single click at a rank of its choice."""
    with opened(path) as log:
        use(log, impressions=40, clicks=20)
    assert answer(path, a_task(propensity=[1.0, 1e-30]), SMALL) == REFUSAL
    assert last_reason(path) == "propensity: 1e-30 may occur, and 0.01 is the least"
    assert answer(path, a_task(propensity="shrunk", estimate_floor=1e-9), SMALL) == REFUSAL
    assert isinstance(answer(path, a_task(propensity=[1.0, 0.01]), SMALL), Reply)


def test_one_version_of_many_makes_no_click_count_more_than_the_policy_allows(path, monkeypatch):
    """Policy-aware credit divides by a mean over versions, which is a twentieth of a propensity here."""
    worth, rng = [], np.random.default_rng(0)
    credit = policy_aware.credit
    monkeypatch.setattr(policy_aware, "credit", lambda *given: worth.append(credit(*given)) or worth[-1])
    everywhere = np.tile([[1], [2]], 20)
    rare = everywhere.copy()
    rare[1, 1:] = 0  # the other 19 versions do not display it
    with opened(path) as log:
        for i in range(20):
            ranks = rare if i == 7 else everywhere
            assert log.log_click(log.log_impression(i, rng.random((2, FEATURES)), other_ranks=ranks), 2)
    task = a_task(propensity=[0.5, 0.5], credit="policy-aware")
    for least, heaviest in ((0.2, 5.0), (0.01, 40.0)):
        assert isinstance(answer(path, task, replace(SMALL, least_propensity=least)), Reply)
        np.testing.assert_allclose(worth.pop().max(), heaviest)


@pytest.mark.parametrize(
    ("kind", "sent", "said"),
    [
        ("pooled", {"pooled": [1.0, 6.0]}, "pooled: expected numbers from 0 to 1"),
        ("personal", {"pooled": [1.0, -1e-9]}, "pooled: expected numbers from 0 to 1"),
        ("power-law", {"grid": 1.1}, "grid: expected numbers from 0 to 1"),
        ("shrunk", {"priors": -0.1}, "priors: expected numbers from 0 to 1"),
        ("shrunk", {"chosen": 3e38}, "chosen: expected numbers from 0 to 1"),
        ("trust", {"constants": 1.5}, "constants: expected numbers from 0 to 1"),
        ("trust", {"constants": [[0.5, 0.1], [0.4, 0.2]]}, "constants: expected clicks on relevant documents to be"),
        ("clip", {"clip": -1.0}, "credit clip: expected numbers from 0 to inf"),
    ],
)
def test_probabilities_that_are_none_are_refused(path, kind, sent, said):
    """With them a server could have one impression outweigh all others in what an estimator sends."""
    with opened(path) as log:
        use(log, impressions=40, clicks=20)
    task = a_task(clip_rule="effective") if kind == "clip" else a_task(propensity=kind)
    part = "credit" if kind == "clip" else "estimation"
    there = getattr(task.sent, part)
    forged = {name: np.broadcast_to(np.array(a, there[name].dtype), there[name].shape) for name, a in sent.items()}
    assert isinstance(answer(path, task, SMALL), Reply)
    assert answer(path, replace(task, sent=replace(task.sent, **{part: there | forged})), SMALL) == REFUSAL
    assert last_reason(path).startswith(said)


def test_local_devices_keep_to_their_policy(path):
    with opened(path) as log:
        use(log, impressions=40, clicks=20)
    devices = LocalDevices({4: path}, replace(SMALL, answers_in_all=1))
    first, second = (devices.ask(a_task(), [4], 1.0)[4] for _ in range(2))
    assert isinstance(first, Reply)
    assert second == "it refused"
    assert LocalDevices({}).policy.seconds_apart == 0


# Limits


def test_limits_in_all_and_a_day_and_apart(path):
    with opened(path) as log:
        use(log, impressions=40, clicks=20)
    policy = replace(SMALL, answers_a_day=2, answers_in_all=3, seconds_apart=10.0)

    def asked(seconds: float) -> bool:
        return isinstance(answer(path, a_task(), policy, now=at(seconds)), Reply)

    day = 86_400
    assert [asked(s) for s in (0, 9.9, 10, 30, day - 1, day + 1, day + 20, 9 * day)] == [
        True, False, True, False, False, True, False, False,
    ]  # fmt: skip
    assert [entry.reason for entry in history(path).entries if entry.reason] == [
        "9.9 s after the last answer, and the limit is 10 s",
        *["2 answers in 24 hours, and the limit is 2"] * 2,
        *["3 answers in all, and the limit is 3"] * 2,
    ]


def test_a_clock_that_is_set_gains_nothing(path):
    with opened(path) as log:
        use(log, impressions=40, clicks=20)
    policy, year = replace(SMALL, answers_a_day=1), 365 * 86_400.0

    def asked(**moment) -> bool:
        return isinstance(answer(path, a_task(), policy, now=at(**moment)), Reply)

    assert asked(seconds=100)
    assert not asked(seconds=200, clock=year)  # ahead, while it is switched on
    assert not asked(seconds=300, clock=-year)  # back
    assert not asked(seconds=10, boot="b", clock=-year)  # back, and started again
    assert not asked(seconds=20, boot="b", clock=year)  # ahead, after that
    assert asked(seconds=86_400 + 10, boot="b", clock=0)  # a day has passed since, whatever the clock says
    assert not asked(seconds=10, boot="c", clock=3600)
    assert asked(seconds=10, boot="d", clock=2 * 86_400)  # switched off: nobody else knows how long


def test_two_at_once_cannot_both_take_the_last_answer(path):
    with opened(path) as log:
        use(log, impressions=40, clicks=20)
    policy, found = replace(SMALL, answers_in_all=3), []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        found.append(answer(path, a_task(), policy))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(reply, Reply) for reply in found) == 3
    assert history(path).answered == 3


def test_a_crash_costs_an_answer(path, monkeypatch):
    with opened(path) as log:
        use(log, impressions=40, clicks=20)

    def stopped(*given, **more):
        raise KeyboardInterrupt

    for at_the_end in ("reply_to", "complete"):
        monkeypatch.setattr(answering, at_the_end, stopped)
        with pytest.raises(KeyboardInterrupt):
            answer(path, a_task(), replace(SMALL, answers_in_all=2))
        monkeypatch.undo()
    assert answer(path, a_task(), replace(SMALL, answers_in_all=2)) == REFUSAL
    assert last_reason(path) == "2 answers in all, and the limit is 2"
    assert [entry.sent for entry in history(path).entries] == [(), (), ()]


def test_the_ledger_survives_forgetting_and_sums_up_old_refusals(path, monkeypatch):
    from fultr.device import ledger

    monkeypatch.setattr(ledger, "_KEPT", 5)
    with opened(path) as log:
        use(log, impressions=40, clicks=20)
        assert isinstance(answer(path, a_task(), SMALL), Reply)
        for t in range(8):
            answer(path, a_task(t, displayed=3), SMALL)
        log.forget(all=True)
    found = history(path)
    assert (found.answered, found.earlier_refusals) == (1, 3)
    assert [entry.asked.round for entry in found.entries] == [0, 3, 4, 5, 6, 7]


def test_features_that_are_not_normalised_are_others(path, tmp_path):
    with opened(path, normalised=False) as log:
        use(log, impressions=40, clicks=20)
        (schema,) = log.schemas()
        assert (schema.names, schema.count, schema.normalised, schema.current) == (None, 3, False, True)
        log.export(tmp_path / "out.jsonl")
    about = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert about["schemas"] == [{"schema": 1, "features": 3, "normalised": False, "impressions": 40}]
    assert answer(path, a_task(), SMALL) == REFUSAL
    assert isinstance(answer(path, a_task(normalised=False), SMALL), Reply)
    with opened(path) as log:
        assert [schema.normalised for schema in log.schemas()] == [False, True]
        assert log.records().left_out == 40
    assert "not normalised" in fultr("device", "show", path).out
    with pytest.raises(FultrError, match="normalised: expected true or false, found 1"):
        opened(path, normalised=1)


def test_features_are_those_of_the_last_impression(path):
    """Impressions of other features do not count, and after a change a batch must fill with the new ones."""
    with opened(path, features=["a", "b", "c"]) as log:
        use(log, impressions=10, clicks=8)
        assert isinstance(answer(path, a_task(feature_names="a,b,c"), SMALL), Reply)
    with opened(path) as log:
        use(log, impressions=6, clicks=3)
        assert answer(path, a_task(), SMALL) == REFUSAL
        assert answer(path, a_task(feature_names="a,b,c"), SMALL) == REFUSAL
        log.log_click(15, 1)
        assert isinstance(answer(path, a_task(), SMALL), Reply)
    assert FEATURES == 3


# What the owner sees


def test_the_owner_sees_every_task(path, tmp_path):
    with opened(path) as log:
        use(log, impressions=80, clicks=60)
    answer(path, a_task(propensity="shrunk", judge=True), SMALL_PARTS, run=2**30)
    answer(path, a_task(4, displayed=3), SMALL_PARTS, run=7)
    note_nonsense(path, "its head is not whole")
    done = fultr("device", "history", path)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert max(map(len, lines)) < 80
    assert "  answered: update, examination, judgement (shrunk)" in lines[0]
    assert lines[1] == f"    run {2**30}, round 1; from 60 clicks in 80 impressions, up to batch 1"
    assert "update, 3 numbers, norm 0." in lines[2]
    assert "    run 7, round 5" in lines
    assert "    displayed: the task counts 3 ranks, and the device 2" in lines
    assert lines[-4].endswith("  not a task")
    assert lines[-3:] == [
        "    its head is not whole",
        "1 answer, 1 of them in the last 24 hours;",
        "49 left today, 1,999 in all.",
    ]
    told = json.loads(fultr("device", "history", path, "--json").out)
    assert [entry["outcome"] for entry in told["entries"]] == ["answered", "refused", "not a task"]
    assert (told["answered"], told["left_today"], told["left_in_all"]) == (1, 49, 1999)
    (tmp_path / "node.toml").write_text("[policy]\nanswers_in_all = 1\n")
    limited = json.loads(fultr("device", "history", path, "--policy", tmp_path / "node.toml", "--json").out)
    assert (limited["left_today"], limited["left_in_all"]) == (0, 0)


def test_the_owner_sees_the_policy(tmp_path):
    assert json.loads(fultr("device", "policy", "--json").out) == {
        "file": None,
        **asdict(DevicePolicy()),
        "estimators": [*ESTIMATORS],
        "sends": ["update", "examination", "weights", "judgement"],
    }
    (tmp_path / "node.toml").write_text("[policy]\nleast_clicks = 77\nsends = []\n")
    for where in (tmp_path, tmp_path / "node.toml"):
        done = fultr("device", "policy", where)
        assert re.search(r"least_clicks +77 +Two answers differ by at least this many clicks", done.out)
        assert re.search(r"sends +nothing ", done.out)
    (tmp_path / "node.toml").write_text("[policy]\nleast_click = 77\n")
    done = fultr("device", "policy", tmp_path)
    assert done.code == 2
    assert done.err == (
        f"fultr: {tmp_path / 'node.toml'}:2: unknown setting 'least_click'; did you mean least_clicks?\n"
    )
