"""The on-device log: what is stored comes back, and nothing else is stored."""

from __future__ import annotations

import io
import json
import os
import random
import sqlite3
import stat
import struct
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import plain
import pytest
from help.device_logs import PAGE, files_of, opened, raw_bytes
from help.training import updates
from hypothesis import given, settings
from hypothesis import strategies as st

from fultr import DeviceLog, FultrError
from fultr.clicks.log import Records
from fultr.clicks.models.position_based import PositionBased, examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import Sessions
from fultr.device import sqlite as device_file
from fultr.device.retention import Retention
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.settings import Estimator, LocalTraining
from fultr.study.policy import display

# What is stored comes back


def test_impressions_and_clicks_come_back_in_order_of_time(path):
    with opened(path) as log:
        late = log.log_impression("b", PAGE, time=20, version="v2")
        early = log.log_impression("a", [PAGE[1]], time=10, version="v1")
        again = log.log_impression("b", PAGE, time=30, version="v2")
        other = log.log_impression("b", PAGE[::-1], time=40)
        assert log.log_click(late, 2)
        assert log.log_click(again, 1)
        found = log.records()
    assert found.impressions.tolist() == [early, late, again, other]
    assert found.versions == ("v1", "v2", "v2", "")
    assert found.log.queries.tolist() == [0, 1, 1, 2]
    assert found.log.clicks.tolist() == [[0, 0], [0, 1], [1, 0], [0, 0]]
    assert found.log.offsets.tolist() == [0, 4]
    assert found.log.clients == 1
    assert found.display.offsets.tolist() == [0, 1, 3, 5]
    assert found.display.shown.tolist() == [[0, -1], [1, 2], [3, 4]]
    np.testing.assert_array_equal(found.display.features[:, :3], [PAGE[1], *PAGE, *PAGE[::-1]])
    assert not found.display.features[:, 3:].any()
    assert found.display.features.ctypes.data % 64 == 0
    assert found.display.recorded_ranks is None


def test_a_part_of_the_log_by_time_and_version(path):
    with opened(path) as log:
        ids = [log.log_impression(i, PAGE, time=i, version="ab"[i % 2]) for i in range(6)]
        assert log.records(since=2, until=4).impressions.tolist() == ids[2:4]
        assert log.records(version="b").impressions.tolist() == ids[1::2]
        assert log.records(since=5.5).impressions.tolist() == []


def test_the_first_documents_of_longer_impressions(path):
    with opened(path) as log:
        shown = log.log_impression("q", [*PAGE, [1, 1, 1]])
        log.log_click(shown, 1)
        log.log_click(shown, 3)
        two, five = log.records(displayed=2), log.records(displayed=5)
    assert two.log.clicks.tolist() == [[1, 0]]
    assert two.display.offsets.tolist() == [0, 2]
    assert five.log.clicks.tolist() == [[1, 0, 1, 0, 0]]
    assert five.display.shown.tolist() == [[0, 1, 2, -1, -1]]


def test_training_on_an_empty_log_changes_nothing(path):
    with opened(path) as log:
        found = log.records(displayed=4)
    [total], [trained] = updates(found.log, found.display, np.ones((1, 4)), np.zeros(3, np.float32), LocalTraining())
    assert trained == 0
    assert not total.any()
    for kind, code in ESTIMATORS.items():
        estimator = Estimator(kind)
        sent = code.broadcast(estimator, code.init(estimator, 3, 4))
        code.client(estimator, sent, found, code.nothing(estimator, 3, 4, 1))


@pytest.mark.parametrize("versions", [1, 2])
def test_training_on_the_log_is_training_on_the_simulation(path, versions):
    """Bit for bit: the same updates, propensities and sums as from the simulator's own click log."""
    rng = np.random.default_rng(1)
    data = plain.random_data(rng, queries=20, features=21, most=9)
    shown = display(data, rng.standard_normal((versions, 21)).astype(np.float32), displayed=5)
    chance = np.where(shown.shown >= 0, rng.uniform(0.1, 0.9, shown.shown.shape), 0)
    clients, sessions = np.array([7]), Sessions(queries=10, clicks=60)
    base = examination(np.array([0.7]), 5)
    clicks = simulate_clicks(
        PositionBased(), chance, base, clients, sessions=sessions, seed=3, round_=2, versions=versions
    )
    with opened(path, features=21) as log:
        for i, (q, clicked) in enumerate(zip(clicks.queries.tolist(), clicks.clicks, strict=True)):
            rows = shown.shown[q][shown.shown[q] >= 0]
            ranks = shown.other_ranks[q][: rows.size] + 1
            made = log.log_impression(q % data.queries, shown.features[rows, :21], other_ranks=ranks, time=i)
            for rank in np.flatnonzero(clicked) + 1:
                assert log.log_click(made, rank)
        found = log.records(displayed=5)
    assert found.log.clicks.tolist() == clicks.clicks.tolist()
    np.testing.assert_array_equal(found.display.other_ranks[found.log.queries], shown.other_ranks[clicks.queries])
    weights = rng.standard_normal(21).astype(np.float32)
    propensities = rng.uniform(0.2, 1, (1, 5))
    theirs, ours = (
        updates(log_, display_, propensities, weights, LocalTraining(0.02))[0]
        for log_, display_ in ((clicks, shown), (found.log, found.display))
    )
    assert theirs.any()
    assert ours.tobytes() == theirs.tobytes()
    for kind, code in ESTIMATORS.items():
        estimator = Estimator(kind, cross_fit=kind == "shrunk")
        sent = code.broadcast(estimator, code.init(estimator, 21, 5))
        results = []
        for records in (Records(clicks, shown), found):
            sums = code.nothing(estimator, 21, 5, 1)
            results.append([code.client(estimator, sent, records, sums), *sums.values()])
        for theirs, ours in zip(*results, strict=True):
            if versions == 1 or kind == "harvested":
                assert ours.tobytes() == theirs.tobytes(), kind
            else:  # what two versions display alike is one entry of the log: the same sums, added in another order
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_ranks_of_other_versions(path):
    with opened(path) as log:
        log.log_impression("q", PAGE, other_ranks=[[1, 2], [2, 0]], time=1)
        log.log_impression("q", PAGE, time=2)  # recorded none: not the same entry
        found = log.records()
        assert found.display.other_ranks.tolist() == [[[0, 1], [1, -1]], [[-1, -1], [-1, -1]]]
        for wrong in ([[1, 2]], [[0, 1], [1, 0]], [[1], [-2]], [[1.0], [2.0]], [[], []]):
            with pytest.raises(FultrError, match=r"^other_ranks: "):
                log.log_impression("q", PAGE, other_ranks=wrong)


def test_a_split_keeps_every_impression_on_its_side(path):
    with opened(path) as log:
        ids = [log.log_impression(i % 7, PAGE, time=i) for i in range(200)]
        for id_ in ids[::3]:
            log.log_click(id_, 1)
        whole = log.records()
        train, held_out = whole.split(0.25, seed=4)
        for id_ in range(200):
            log.log_impression(id_, PAGE, time=1000 + id_)
        later = log.records().split(0.25, seed=4)[1]
    assert sorted([*train.impressions, *held_out.impressions]) == ids
    assert set(held_out.impressions) == set(later.impressions) & set(ids)
    assert abs(len(held_out.impressions) - 50) < 4 * (200 * 0.25 * 0.75) ** 0.5
    for part in (train, held_out):
        clicked = {id_ for id_, row in zip(part.impressions, part.log.clicks, strict=True) if row.any()}
        assert clicked == set(part.impressions) & set(ids[::3])
        assert part.log.offsets.tolist() == [0, len(part.impressions)] == [0, len(part.versions)]
    assert whole.split(0)[1].impressions.size == whole.split(1)[0].impressions.size == 0


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_sequence_of_calls_leaves_what_a_plain_list_would(data):
    """Against a dictionary: impressions, clicks (double, late, wrong), forgetting, reopening."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        file = Path(folder) / "log.db"
        log, model, last = opened(file), {}, 0
        ending.callback(lambda: log.close())  # the last one, also where Hypothesis gives an example up
        for _ in range(data.draw(st.integers(1, 25))):
            match data.draw(st.sampled_from(["show", "show", "click", "click", "forget", "before", "reopen"])):
                case "show":
                    query = data.draw(st.one_of(st.integers(0, 2), st.sampled_from(["0", "1", b"0"])))
                    documents, when = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 9))
                    page = np.float32(data.draw(st.lists(st.integers(-3, 3), min_size=3, max_size=3)) * documents)
                    id_ = log.log_impression(query, page.reshape(documents, 3), time=when)
                    assert id_ > last  # never used twice, not even after forgetting
                    last, model[id_] = id_, (when, query, documents, set())
                case "click":
                    id_, rank = data.draw(st.integers(-1, last + 1)), data.draw(st.integers(1, 4))
                    if id_ in model and rank > model[id_][2]:
                        with pytest.raises(
                            FultrError, match=f"^rank: expected 1 to .* that impression {id_} displayed"
                        ):
                            log.log_click(id_, rank)
                    else:
                        assert log.log_click(id_, rank) == (id_ in model)
                        if id_ in model:
                            model[id_][3].add(rank)
                case "forget":
                    query = data.draw(st.sampled_from([0, 1, "0"]))
                    gone = [id_ for id_, (_, q, *_) in model.items() if q == query and type(q) is type(query)]
                    assert log.forget(query=query) == len(gone)
                    model = {id_: kept for id_, kept in model.items() if id_ not in gone}
                case "before":
                    when = data.draw(st.integers(0, 5))
                    assert log.forget(before=when) == sum(kept[0] < when for kept in model.values())
                    model = {id_: kept for id_, kept in model.items() if kept[0] >= when}
                case "reopen":
                    log.close()
                    log = opened(file)
        found = log.records(displayed=3)
        order = sorted(model, key=lambda id_: (model[id_][0], id_))
        assert found.impressions.tolist() == order
        assert found.log.clicks.tolist() == [[rank in model[id_][3] for rank in (1, 2, 3)] for id_ in order]
        held = log.stats()
        assert (held.impressions, held.clicks) == (len(model), sum(len(kept[3]) for kept in model.values()))
        log.check()


# What applications do


def test_late_double_and_lost_clicks(path):
    with opened(path) as log:
        shown = log.log_impression("q", PAGE)
        assert log.records().log.clicks.tolist() == [[0, 0]]
        assert log.log_click(shown, 1)  # after it was trained on: the next training has it
        assert log.log_click(shown, 1)  # twice
        assert log.records().log.clicks.tolist() == [[1, 0]]
        assert log.stats().clicks == 1
        with pytest.raises(
            FultrError, match=f"rank: expected 1 to 2, the documents that impression {shown} displayed; found 3"
        ):
            log.log_click(shown, 3)
        with pytest.raises(FultrError, match="rank: expected a whole number, at least 1, found 0"):
            log.log_click(shown, 0)
        assert log.forget(all=True) == 1
        assert not log.log_click(shown, 1)
        assert not log.log_click(2**70, 1)
        assert log.stats().clicks == 0


def test_impressions_of_other_features_wait_until_these_come_back(path):
    with opened(path, features=["a", "b", "c"]) as log:
        old = log.log_impression("q", PAGE)
    with opened(path, features=["b", "a", "c"]) as log:  # another order
        new = log.log_impression("q", PAGE)
        found = log.records()
        assert (found.impressions.tolist(), found.left_out) == ([new], 1)
        assert log.log_click(old, 1)
        assert [(s.names, s.count, s.impressions, s.current) for s in log.schemas()] == [
            (("a", "b", "c"), 3, 1, False),
            (("b", "a", "c"), 3, 1, True),
        ]
        assert log.stats().other_schema == 1
        with pytest.raises(FultrError, match=r"features: expected one row of 3 .* found shape \(2, 4\)"):
            log.log_impression("q", np.ones((2, 4)))
    with opened(path, features=["a", "b", "c"]) as log:
        found = log.records()
        assert (found.impressions.tolist(), found.log.clicks.tolist()) == ([old], [[1, 0]])
    with DeviceLog.open(path, retention=None) as log:  # for looking: the features of the last impression
        assert [s.current for s in log.schemas()] == [False, True]


def test_wrong_values_are_one_clear_line(path):
    with opened(path) as log:
        for features in ([[1, 2, np.nan]], [[1, 2, 1e300]], [], [1, 2, 3], [["x", "y", "z"]], [[1, 2, 3], [1, 2]]):
            with pytest.raises(FultrError, match=r"^features: expected"):
                log.log_impression("q", features)
        for query in (None, 1.5, True, ["q"]):
            with pytest.raises(FultrError, match=r"^query: expected text, bytes or a whole number, found "):
                log.log_impression(query, PAGE)
        with pytest.raises(FultrError, match=r"^time: expected a number, found nan"):
            log.log_impression("q", PAGE, time=float("nan"))
        with pytest.raises(FultrError, match=r"^version: expected text"):
            log.log_impression("q", PAGE, version=7)
        with pytest.raises(FultrError, match="exactly one of query, before and all"):
            log.forget()
        with pytest.raises(FultrError, match="exactly one"):
            log.forget(query="q", all=True)
        assert log.stats().impressions == 0
    with pytest.raises(FultrError, match="the log was closed"):
        log.log_impression("q", PAGE)
    for features in ("abc", [], ["a", "a"], 0, [1, 2]):
        with pytest.raises(FultrError, match=r"^features: expected"):
            opened(path, features=features)
    with pytest.raises(FultrError, match=r"^dtype: expected one of float32, float16"):
        opened(path, dtype="int8")
    for retention in ({"days": 0}, {"impressions": 0}, {"megabytes": 0}):
        with pytest.raises(FultrError, match="expected"):
            Retention(**retention)


def test_float16_is_within_its_bound_and_mixes_with_float32(path):
    rng = np.random.default_rng(0)
    page = (rng.standard_normal((40, 3)) * 10.0 ** rng.uniform(-8, 4, (40, 3))).astype(np.float32)
    with opened(path) as log:
        log.log_impression("q", page, time=1)
    with opened(path, dtype="float16") as log:
        log.log_impression("q", page, time=2)
        with pytest.raises(FultrError, match=r"that a float16 can hold, found 70000.0 at rank 1, feature 2"):
            log.log_impression("q", [[0, 70000.0, 0]])
        features = log.records().display.features
    exact, rounded = features[:40, :3], features[40:, :3]
    assert exact.tobytes() == page.tobytes()
    assert (exact != rounded).any()
    assert (np.abs(rounded - exact) <= np.maximum(np.abs(exact) * 2.0**-11, 2.0**-25)).all()


def test_an_export_has_everything_and_only_its_owner_may_read_it(path, tmp_path):
    with opened(path, hold_text=True, features=["a", "b", "c"]) as log:
        first = log.log_impression("q", [[0.1, 2, 3]], time=0, version="v", text="Grüße", other_ranks=[[1, 0]])
        log.log_click(first, 1, time=5)
    with opened(path, features=3, dtype="float16") as log:
        log.log_impression("q", [[0.1, 2, 3]], time=1e300, text="dropped")
        target = tmp_path / "search.db.jsonl"
        assert log.export(target) == 2
        stream = io.StringIO()
        assert log.export(stream) == 2
        for own in (path, Path(f"{path}-wal")):
            with pytest.raises(FultrError, match="is the log itself"):
                log.export(own)
        with pytest.raises(FultrError, match="cannot be written"):
            log.export(tmp_path / "nowhere" / "out.jsonl")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.read_text() == stream.getvalue()
    about, one, two = map(json.loads, stream.getvalue().splitlines())
    assert [schema["features"] for schema in about["schemas"]] == [["a", "b", "c"], 3]
    assert one["query"] == two["query"]
    assert (one["text"], two["text"]) == ("Grüße", None)
    assert one["clicks"] == [{"rank": 1, "time": 5.0, "date": "1970-01-01T00:00:05+00:00"}]
    assert one["features"] == [[0.1, 2.0, 3.0]]
    assert (one["stored_as"], two["stored_as"]) == ("float32", "float16")
    assert (one["other_ranks"], one["version"], two["date"]) == ([[1, 0]], "v", None)


# Privacy


def test_neither_query_nor_text_is_stored_unless_asked(path):
    with opened(path) as log:
        log.log_impression("planted query", PAGE, text="planted text")
        assert b"planted" not in raw_bytes(path)
    assert b"planted" not in raw_bytes(path)
    with opened(path, hold_text=True) as log:
        log.log_impression("planted query", PAGE, text="planted text")
        assert b"planted text" in raw_bytes(path)
        assert b"planted query" not in raw_bytes(path)
        assert log.stats().with_text == 1


def test_equal_queries_have_other_keys_in_another_file(tmp_path):
    keys = []
    for name in ("a.db", "b.db"):
        stream = io.StringIO()
        with opened(tmp_path / name) as log:
            log.log_impression("q", PAGE)
            log.export(stream)
        keys.append(json.loads(stream.getvalue().splitlines()[1])["query"])
    assert keys[0] != keys[1]


@pytest.mark.parametrize("seed", range(6))
def test_forgetting_leaves_no_trace_in_any_file(path, seed):
    """Random pages, clicks in random order so that index pages split; then every stored value is searched for."""
    rng = random.Random(seed)
    width = rng.choice([3, 60, 250, 900])
    with opened(path, features=width, hold_text=True) as log:
        planted = {}
        for i in range(200):
            when, page = 1e9 + rng.random() * 1e6, np.frombuffer(rng.randbytes(width * 2), np.uint16).astype(np.float32)
            text = f"planted {i} {rng.random()}"
            id_ = log.log_impression(f"query {i % 20}", [page], time=when, text=text)
            planted[id_] = [i % 20, struct.pack(">d", when), page[:3].tobytes(), page[-3:].tobytes(), text.encode()]
        for id_ in rng.sample(sorted(planted), 200):
            when = 1e9 + rng.random() * 1e6
            log.log_click(id_, 1, time=when)
            planted[id_].append(struct.pack(">d", when))
        before = raw_bytes(path)
        assert all(value in before for values in planted.values() for value in values[1:])
        size = sum(file.stat().st_size for file in files_of(path))
        assert sum(log.forget(query=f"query {i}") for i in range(5)) == 50
        after = raw_bytes(path)
        assert len(after) < size
        for query, *values in planted.values():
            assert all((value in after) == (query >= 5) for value in values)
        assert log.forget(all=True) == 150
        after = raw_bytes(path)
        assert not any(value in after for values in planted.values() for value in values[1:])
        log.check()


def test_what_a_killed_process_forgot_is_wiped_by_the_next(path, monkeypatch):
    from fultr.device import log as device

    with opened(path, hold_text=True) as log:
        log.log_impression("q", PAGE, text="planted")
        monkeypatch.setattr(device, "wipe", lambda connection: True)  # killed before it got there
        log.forget(all=True)
        assert b"planted" in raw_bytes(path)
        monkeypatch.undo()
    opened(path).close()
    assert b"planted" not in raw_bytes(path)


def test_forgetting_says_so_if_a_reader_keeps_the_traces(path, monkeypatch):
    monkeypatch.setattr(device_file, "WAIT", 0.1)
    with opened(path) as log, closing(sqlite3.connect(path)) as reader:
        log.log_impression("q", PAGE)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM impressions").fetchall()
        with pytest.raises(FultrError, match=r"1 impressions are deleted, but traces .* when forget is called again"):
            log.forget(all=True)
        assert log.stats().impressions == 0
        reader.execute("COMMIT")
        assert log.forget(all=True) == 0


def test_only_the_owner_may_read_the_files(path):
    previous = os.umask(0)
    try:
        with opened(path) as log:
            log.log_impression("q", PAGE)
            assert [stat.S_IMODE(file.stat().st_mode) for file in files_of(path)] == [0o600] * 3
        path.chmod(0o644)  # restored from a copy, say
        with opened(path) as log:
            log.log_impression("q", PAGE)
            assert [stat.S_IMODE(file.stat().st_mode) for file in files_of(path)] == [0o600] * 3
    finally:
        os.umask(previous)
