"""Tasks and replies as bytes: what comes back is what was sent, and whatever else arrives becomes words."""

from __future__ import annotations

import io
import json
import pickle
import resource
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fultr.clicks.log import ClickLog, Display, Records
from fultr.core.errors import FultrError
from fultr.federated.budget import model_of
from fultr.federated.credit.given import Given
from fultr.federated.credit.ips import credit
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.federate import task_of
from fultr.federated.federation import FederationSettings
from fultr.federated.fedips import Server
from fultr.federated.messages import Reply, Task, check_task, objection, reply_to
from fultr.federated.wire import MOST_BYTES, REFUSAL, read_reply, read_task, reply_bytes, task_bytes

FEATURES, RANKS = 6, 4


def task_with(**others) -> Task:
    chosen = FederationSettings.of({"features": FEATURES, "displayed": RANKS, "clip": 3.0, **others})
    weights = np.linspace(-1, 1, FEATURES, dtype=np.float32)
    return task_of(chosen, 3, Server.initial(chosen.algorithm(), model_of(chosen), weights, RANKS))


def records() -> Records:
    rng = np.random.default_rng(0)
    display = Display.of_rows(rng.random((20, FEATURES), np.float32), np.arange(20).reshape(5, RANKS))
    clicks = (rng.random((30, RANKS)) < 0.4).astype(np.uint8)
    return Records(ClickLog(rng.integers(0, 5, 30, dtype=np.int32), clicks, np.array([0, 30])), display)


@pytest.mark.parametrize("propensity", ["none", "1,0.5,0.33,0.25", *(k for k in ESTIMATORS if k != "harvested")])
@pytest.mark.parametrize("rival", [False, True])
def test_tasks_and_replies_come_back_the_same(propensity, rival):
    task = task_with(propensity=propensity)
    if rival:
        task = replace(task, rival=-task.sent.weights)
    read = read_task(task_bytes(task))
    assert read.algorithm.training == task.algorithm.training
    one, other = reply_to(task, records(), records()), reply_to(read, records(), records())
    back = read_reply(task, reply_bytes(other))
    assert isinstance(back, Reply)
    assert objection(task, back) is None
    assert back.sums.keys() == one.sums.keys() == task.arrays().keys()
    assert one.sums["judged"].shape == (4 if rival else 3,)
    for name, value in one.sums.items():
        assert back.sums[name].tobytes() == value.tobytes(), name
        assert back.sums[name].flags.writeable  # compiled code is made for such arrays


def test_only_a_judgement():
    """A device that is only to judge sends nothing of what it trains on."""
    task = replace(task_with(propensity="shrunk"), train=False)
    reply = reply_to(read_task(task_bytes(task)), records(), records())
    whole = reply_to(replace(task, train=True), records(), records())
    assert reply.sums.keys() == {"judged"}
    assert reply.sums["judged"].tobytes() == whole.sums["judged"].tobytes()
    assert reply_to(task, records(), None).sums["judged"].tolist() == [0, 0, 0]


def packed(head: dict, *arrays: np.ndarray) -> bytes:
    text = json.dumps(head).encode()
    return b"".join([len(text).to_bytes(4, "big"), text, *(array.tobytes() for array in arrays)])


def changed(given: Task, **others) -> bytes:
    """A task's bytes, with other entries of its head."""
    content = task_bytes(given)
    size = int.from_bytes(content[:4], "big")
    head = json.loads(content[4 : 4 + size])
    for place, values in others.items():
        head[place] = {**head[place], **values} if isinstance(values, dict) else values
    text = json.dumps(head).encode()
    return len(text).to_bytes(4, "big") + text + content[4 + size :]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda task: task_bytes(replace(task, features=1)), r"weights: expected float32 \(1,\), found float32 \(6,\)"),
        (lambda task: changed(task, task={"displayed": 10**9}), "displayed: expected a whole number"),
        (lambda task: changed(task, task={"displayed": 5}), "pooled: expected float64 .5,., found float64 .4,."),
        (lambda task: changed(task, task={"since": 0.0}), "the task has displayed, features, judge, round, schema, si"),
        (lambda task: changed(task, algorithm={"loss": "mine"}), "loss: expected one of"),
        (lambda task: changed(task, algorithm={"server_rate": 1.0}), "server_rate: is not for devices to know"),
        (lambda task: changed(task, algorithm={"clip": [[[]]]}), "clip: expected"),
        (lambda task: changed(task, algorithm=[1]), "is no task"),
        (lambda task: changed(task, task={"train": 1}), "train: expected true or false"),
        (lambda task: changed(task, task={"train": False, "judge": False}), "the task asks for nothing"),
        (lambda task: changed(task, more=1), "the task has .*more"),
        (lambda task: changed(task, task={"round": 2**53 + 1}), "round: expected a whole number"),
        (lambda task: changed(task, arrays=[["weights", "f4", [0, 10**30]]]), "its head is not one"),
        (lambda task: changed(task, arrays=[["weights", "f4", [1] * 100]]), "its head is not one"),
        (lambda task: changed(task, task={"\x1b[2J\n": 1}), r"the task has \?\[2J , displayed"),
        (lambda task: task_bytes(task) + b"1", "bytes where its head says"),
        (lambda task: task_bytes(task)[:-1], "bytes where its head says"),
        (lambda task: bytes(MOST_BYTES + 1), "16,000,000 is the limit"),
        (lambda task: packed({"arrays": [["weights", "f4", [0, 2**63]]]}), "its head is not"),
        (lambda task: b"", "is no task|its head is not"),
        (lambda task: pickle.dumps({"task": 1}), "its head is not"),
    ],
)
def test_a_device_refuses_a_task_that_does_not_fit(content, message):
    """Compiled code would read beyond the end of what is too short; and nobody narrows what a device trains on."""
    with pytest.raises(FultrError, match=message):
        check_task(read_task(content(task_with(propensity="shrunk"))))


def test_a_task_with_numbers_that_are_none_is_refused():
    task = task_with()
    task.sent.weights[2] = np.nan
    with pytest.raises(FultrError, match="weights: not finite"):
        check_task(read_task(task_bytes(task)))


@pytest.mark.parametrize("given", ["0.9", "0.9,0.8,0.7", "1,1,1,1,1"])
def test_given_propensities_are_one_per_rank(given):
    """Compiled code would read what lies beyond them in memory."""
    task = task_with(propensity="1,0.5,0.33,0.25")
    check_task(read_task(task_bytes(task)))
    with pytest.raises(FultrError, match="propensity: expected 4 numbers, one per displayed rank"):
        check_task(read_task(changed(task, algorithm={"propensity": given})))
    with pytest.raises(ValueError, match="examination: expected shape"):
        credit(records(), np.ones((30, RANKS - 1)), Given())


ARRAYS = {
    "archive": lambda: (out := io.BytesIO(), np.savez(out, update=np.zeros(6)), out.getvalue())[2],
    "pickle": lambda: pickle.dumps(np.zeros(6)),
    "nothing": lambda: b"",
    "nested": lambda: len(b"[" * 50_000).to_bytes(4, "big") + b"[" * 50_000,
    "huge": lambda: packed({"round": 3, "arrays": [["update", "f4", [10**15]]]}),
    "many": lambda: packed({"round": 3, "arrays": [["update", "f4", [6]]] * 900}),
    "nothing of much": lambda: packed({"round": 3, "arrays": [["update", "f4", [0, 2**63]]]}),
    "negative": lambda: packed({"round": 3, "arrays": [["update", "f4", [-6]]]}),
    "fraction": lambda: packed({"round": 3, "arrays": [["update", "f4", [6.0]]]}),
    "object": lambda: packed({"round": 3, "arrays": [["update", "O", [6]]]}),
    "digits": lambda: (b"\0\0\xff\xff" + b'{"round": ' + b"9" * 65_515 + b', "arrays": []}')[: 4 + 65_535],
    "no round": lambda: packed({"arrays": []}),
    "true": lambda: packed({"round": True, "arrays": []}),
    "words": lambda: "refused",
    "none": lambda: None,
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_whatever_a_device_sends_becomes_words(kind):
    """None is an error, nothing is executed, nothing is allocated because a head says so."""
    found = read_reply(task_with(propensity="none", judge=False), ARRAYS[kind]())
    assert isinstance(found, str)
    assert len(found) < 200
    assert "\n" not in found


def test_every_refusal_is_the_same():
    assert read_reply(task_with(), REFUSAL) == "it refused"
    assert read_reply(task_with(), REFUSAL + b" because") != "it refused"


TASK = task_with(propensity="shrunk")
GOOD = reply_bytes(reply_to(TASK, records(), records()))


@settings(max_examples=10_000, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=8), st.integers(0, len(GOOD)))
def test_changed_replies_are_refused_or_harmless(changes, end):
    """Bytes of a real reply changed, and its end cut off: words, or numbers within their limits."""
    content = bytearray(GOOD)
    for place, value in changes:
        content[place] = value
    judged(bytes(content[: end or None]))


@settings(max_examples=10_000, deadline=None)
@given(
    st.one_of(st.integers(), st.booleans(), st.none(), st.text(max_size=9)),
    st.lists(
        st.tuples(
            st.sampled_from([*TASK.arrays(), "other"]),
            st.sampled_from(["f4", "f8", "<f8", "O", 4]),
            st.lists(st.integers(-1, 2**70), max_size=3),
        ),
        max_size=9,
    ),
    st.binary(max_size=900),
)
@example(3, [("update", "f4", [FEATURES])], b"")
def test_invented_replies_are_refused_or_harmless(number, described, rest):
    judged(packed({"round": number, "arrays": described}) + rest)


def judged(content: bytes) -> None:
    reply = read_reply(TASK, content)
    if isinstance(reply, str):
        assert len(reply) < 300
        return
    why = objection(TASK, reply)
    assert why is None or len(why) < 300
    if why is None:
        assert all(np.isfinite(array).all() for array in reply.sums.values())
        assert np.linalg.norm(reply.sums["update"]) <= 100


@pytest.mark.process
def test_a_head_that_promises_much_takes_no_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for size in (10**9, 10**12, 10**18):
        for kind in ("f4", "f8"):
            assert isinstance(read_reply(TASK, packed({"round": 3, "arrays": [["update", kind, [size]]]})), str)
            with pytest.raises(FultrError):
                read_task(packed({"arrays": [["weights", kind, [size]]]}))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000  # kB
