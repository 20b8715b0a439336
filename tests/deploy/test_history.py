"""What the files of a server app tell: per round, per device, per reason; damaged files tell less, and no more."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from help.histories import ATTEMPT, DEVICES, LARGE, ROUNDS, rounds, write_lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fultr.deploy.events import EventLog
from fultr.deploy.history import REASONS, History, Round, read_history, read_line, reason_class
from fultr.federated.events import Event
from fultr.federated.judging import Judgement
from fultr.federated.reports import FailedAttempt, RoundReport


@pytest.fixture
def state(tmp_path: Path) -> Path:
    write_lines(tmp_path / "progress.jsonl", rounds())
    write_lines(tmp_path / "attempts.jsonl", [ATTEMPT])
    return tmp_path


def test_every_device_has_its_counts(state):
    history = read_history(state)
    assert (history.done, len(history.rounds), history.damaged) == (ROUNDS, ROUNDS + 1, 0)
    assert history.trouble
    found = {one.device: one for one in history.devices([DEVICES])}
    asked = ROUNDS + 1  # with the attempt that failed
    assert (found[0].asked, found[0].answered, found[0].trouble) == (asked, asked, False)
    refuses = found[3]
    assert (refuses.answered, refuses.refused, refuses.failing, refuses.last_answered) == (0, asked, asked, None)
    assert refuses.reasons == {"it refused": asked}
    large = found[5]
    assert (large.refused, large.silent, large.last_answered, large.failing) == (5, 1, 7, 5)
    assert large.latest_reason == LARGE
    assert (found[6].silent, found[6].failing, found[6].seconds) == (3, 0, 7.0)
    assert found[DEVICES].asked == 0


def test_an_attempt_comes_before_its_round(state):
    history = read_history(state)
    assert [(one.number, one.completed) for one in history.rounds[5:7]] == [(6, False), (6, True)]
    assert history.rounds[5].trouble() == [
        "attempt 1 failed: 1 of 7 devices sent a usable reply, too few",
        "device 3 refused to answer",
        "no answer from devices 1, 2, 4, 5 and 6",
    ]
    assert history.rounds[-1].trouble() == [
        "device 3 refused to answer",
        f"device 5 was refused by the server: {LARGE}",
    ]


def test_quality_is_that_before_the_last_round(state):
    after, judged = read_history(state).quality()
    assert after == ROUNDS - 1
    assert judged == Judgement(0.5 + ROUNDS / 100, 0.5, 0.01, 0.02, 5)


def test_it_reads_what_the_server_writes():
    judged = Judgement(0.6, 0.5, None, None, 1)
    report = RoundReport(2, 9, 3, [0], {1: "it refused"}, [2], {0: 1.5, 1: 0.5}, 0.1, judged, [1.0, 0.5], 2.0, 1)
    one = read_line(json.dumps(asdict(report)).encode(), completed=True)
    expected = Round(2, 1, True, (0,), {1: "it refused"}, (2,), {0: 1.5, 1: 0.5}, 2.0, judged, (1.0, 0.5))
    assert one == expected
    assert one.outcomes() == {0: "answered", 1: "refused", 2: "silent"}
    failed = FailedAttempt(2, 3, 3, 1.8e9, 2, 3, [0], {1: "it refused"}, [2], {}, 2.0)
    assert read_line(json.dumps(asdict(failed)).encode(), completed=False) == Round(
        2, 3, False, (0,), {1: "it refused"}, (2,), {}, 2.0
    )


def test_missing_and_damaged_files_make_it_short(state):
    assert read_history(state / "nowhere") == History()
    with (state / "progress.jsonl").open("ab") as file:
        file.write(b'{"round": 13, "of\n\xff\xfe\n[]\n' + b"[" * 100_000 + b"\n")
    found = read_history(state)
    assert (found.damaged, found.done) == (4, ROUNDS)
    odd = {"round": 14, "accepted": [1, "x", -1, True, 10**30], "refused": {"a": "b", "2": 3, "4": "why"}}
    odd |= {"silent": {}, "answered": {"1": float("nan"), "4": 10**400}, "seconds": "8", "judged": {"ranked": 1}}
    one = read_line(json.dumps(odd).encode(), completed=True)
    assert one == Round(14, accepted=(1,), refused={4: "why"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("round", "attempt", "accepted", "refused", "silent", "answered", "seconds", "judged", "examination")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(NAMES), JSON))
def test_nothing_in_a_line_is_an_error(line):
    one = read_line(json.dumps(line).encode(), completed=True)
    if one is not None:
        assert one.number >= 1
        History((one,)).devices()


def test_every_reason_of_ours_has_a_class():
    """Those of `objection` and `read_reply`, and of what carries replies."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "federated"))
    try:
        from test_federation import FAULTS
    finally:
        sys.path.pop(0)
    words = {name: pattern.replace("\\", "").replace(".*", "1") for name, (_, pattern) in FAULTS.items()}
    words = {name: text.removeprefix("device 1 refused: ") for name, text in words.items() if name != "silent"}
    limit = {"norm": " is the limit", "overflow": "7 is the limit", "type": " (64,), found float64 (64,)"}
    classes = {name: reason_class(text.rstrip("$") + limit.get(name, "")) for name, text in words.items()}
    classes["impressions"] = reason_class("impressions: expected at most 100000 per rank")
    assert "other" not in classes.values(), classes
    assert {classes[name] for name in ("NaN", "infinite", "gradient")} == {"not finite"}
    assert {classes[name] for name in ("norm", "overflow")} == {"too large"}
    assert {classes[name] for name in ("missing", "unasked", "shape", "type", "no array")} == {"wrong content"}
    assert {classes[name] for name in ("examined", "impressions", "marginals", "trained")} == {"impossible"}
    assert reason_class("it cannot be reached") == "undelivered"
    assert reason_class("its reply cannot be read: it has 99 bytes, and 1 is the limit") == "unreadable"
    assert reason_class("\n anything at all") == "other"
    assert set(classes.values()) <= set(REASONS)


def test_events_are_lines_of_json_and_the_file_is_bounded(tmp_path):
    log = EventLog(tmp_path / "events.jsonl", most=2_000)
    threads = [
        threading.Thread(target=lambda u=u: [log.write(Event("silent", "no answer", t, u)) for t in range(20)])
        for u in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sizes = [(tmp_path / name).stat().st_size for name in ("events.jsonl", "events.jsonl.1")]
    assert max(sizes) <= 2_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl", "events.jsonl.1"]
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert all(set(line) == {"time", "what", "words", "round", "device"} for line in lines)
    EventLog(tmp_path / "nowhere" / "events.jsonl").write(Event("done", "it is lost, and nothing happens"))
