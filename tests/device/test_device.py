"""The on-device log: what is stored comes back, whatever happens to the process, the file and the application."""

from __future__ import annotations

import io
import json
import os
import random
import resource
import signal
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import plain
import pytest
from help.training import updates
from hypothesis import given, settings
from hypothesis import strategies as st

from fultr import DeviceLog, FultrError
from fultr.clicks.log import Records, packed
from fultr.clicks.models.position_based import PositionBased, examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import Sessions
from fultr.device import sqlite as device_file
from fultr.device.retention import Retention
from fultr.device.values import checksum
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.settings import Estimator, LocalTraining
from fultr.study.policy import display

PAGE = [[0.5, 1.0, -2.0], [0.25, 0.0, 4.0]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "search.db"


def opened(path: Path, **options) -> DeviceLog:
    return DeviceLog.open(path, **{"features": 3, "retention": None, **options})


def files_of(path: Path) -> list[Path]:
    return [file for ending in ("", "-wal", "-shm", "-journal") if (file := Path(f"{path}{ending}")).exists()]


def raw_bytes(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in files_of(path))


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
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.db"
        log, model, last = opened(file), {}, 0
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
        log.close()


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


def test_retention_by_number_age_and_size(path):
    now = time.time()
    with opened(path, features=500) as log:
        for i in range(120):
            log.log_impression(i, np.full((10, 500), i), time=now - (120 - i) * 3600)
    kept = opened(path, features=500, retention=Retention(None, 100, None))
    assert kept.records().display.features[::10, 0].tolist() == list(range(20, 120))
    for i in range(120, 220):  # looked after every 100 impressions, without being opened again
        kept.log_impression(i, np.full((10, 500), i), time=now)
    assert kept.stats().impressions == 100
    kept.log_impression(0, np.zeros((10, 500)), time=now - 10 * 86400)
    kept.close()
    with opened(path, features=500, retention=Retention(9.0, None, None)) as log:
        assert log.stats().impressions == 100
    with opened(path, features=500, retention=Retention(None, None, 1.0)) as log:
        assert 0.9e6 < log.stats().impressions * 10 * 500 * 4 < 1e6
    assert path.stat().st_size <= 1e6


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


# Threads and processes

WRITER = """
import sys
from fultr.device.log import DeviceLog
with DeviceLog.open(sys.argv[1], features=519, retention=None) as log:
    page = [[float(i)] * 519 for i in range(10)]
    for i in range(150):
        shown = log.log_impression(i, page, version=sys.argv[2])
        print(shown, flush=True)
        if i % 2:
            log.log_click(shown, 1 + i % 10)
            print(-shown, flush=True)
"""


def writer(path: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE, text=True)


def killed_writer(path: Path, seconds: float, version: str = "", forgets: bool = False) -> list[int]:
    """Fork a process that logs until it is killed.

    Returns the ids that it acknowledged, those of clicks negative, with a 0 before and after it forgets something.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with opened(path, features=519) as log:
                page = np.ones((10 if forgets else 1, 519))
                for i in range(10**6):
                    shown = log.log_impression(i, page, version=version)
                    os.write(write, struct.pack("<q", shown))
                    if i % 2:
                        log.log_click(shown, 1 + i % len(page))
                        os.write(write, struct.pack("<q", -shown))
                    if forgets and i % 10 == 9:
                        os.write(write, struct.pack("<q", 0))
                        log.log_impression("to be forgotten", page)
                        log.forget(query="to be forgotten")  # which writes the file anew
                        os.write(write, struct.pack("<q", 0))
        finally:
            os._exit(1)
    os.close(write)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    return [event for (event,) in struct.iter_unpack("<q", said[: len(said) // 8 * 8])]


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("forgets", [False, True])
def test_a_killed_process_loses_nothing_that_was_acknowledged(path, forgets):
    """Killed at 12 moments while it logs, and at 12 while it writes the file anew; and while it opens the file."""
    rng, kills, hits = random.Random(0), 0, 0
    shown, clicked = set(), set()  # with who says so, as the id of an impression that was lost is given again
    while hits < 12 and kills < 400:
        said = killed_writer(path, rng.random() ** 2 * 0.2, str(kills), forgets)
        shown |= {(event, str(kills)) for event in said if event > 0}
        clicked |= {(-event, str(kills)) for event in said if event < 0}
        hits += said.count(0) % 2 if forgets else bool(said)
        kills += 1
        if kills % 2 and path.exists():  # at every other kill the next process finds the file as it was left
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with opened(path, features=519) as log:
        log.check()
        found = log.records()
        last = log.log_impression("q", np.ones((1, 519)))
    kept = list(zip(found.impressions.tolist(), found.versions, strict=True))
    assert len(shown) > 100
    assert hits == 12
    assert shown <= set(kept)
    assert clicked <= {event for event, row in zip(kept, found.log.clicks, strict=True) if row.any()}
    assert len(set(kept) - shown) <= kills  # at most one each that was stored, and not acknowledged or forgotten yet
    assert last > max(shown)[0]


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_killed_while_it_begins_the_file_leaves_one_that_opens(tmp_path):
    for i in range(40):
        path = tmp_path / f"{i}.db"
        events = killed_writer(path, i * 0.001)
        with opened(path, features=519) as log:
            assert {event for event in events if event > 0} <= set(log.records().impressions.tolist())
            log.check()


def test_an_empty_file_and_one_without_write_ahead_logging_open(tmp_path):
    """What a process leaves that is killed while it begins the file."""
    (tmp_path / "empty.db").touch(mode=0o644)
    with opened(tmp_path / "empty.db") as log:
        log.log_impression("q", PAGE)
    assert stat.S_IMODE((tmp_path / "empty.db").stat().st_mode) == 0o600
    (tmp_path / "tables.db").touch()
    with closing(device_file.connect(tmp_path / "tables.db", write=True)) as connection:
        device_file.upgrade(tmp_path / "tables.db", connection)
    with opened(tmp_path / "tables.db") as log:
        log.log_impression("q", PAGE)
        assert log._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert log._connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)


@pytest.mark.process
def test_two_processes_at_once_lose_nothing(path):
    processes = [writer(path, name) for name in "ab"]  # both begin the file
    said = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    with opened(path, features=519) as log:
        found = log.records()
        log.check()
    assert sorted(found.versions) == ["a"] * 150 + ["b"] * 150
    assert sorted(int(line) for lines in said for line in lines if int(line) > 0) == sorted(found.impressions)
    assert found.log.clicks.sum() == 150


def test_many_threads_lose_nothing(path):
    with opened(path) as log:

        def work(number: int) -> None:
            for i in range(40):
                shown = log.log_impression(number, PAGE, version=str(number))
                assert log.log_click(shown, 1 + i % 2)
                if i % 20 == 0:
                    log.records()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = log.records()
    assert sorted(found.versions) == sorted(str(i) for i in range(8) for _ in range(40))
    assert (found.log.clicks.sum(axis=1) == 1).all()


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_goes_on_with_the_log(path):
    """The parent closes the file while the child is writing: nothing that the child wrote is lost."""
    log = opened(path)
    log.log_impression("q", PAGE, version="parent")
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            log.log_impression("q", PAGE, version="child")
            os.write(ready[1], b"1")
            os.read(go[0], 1)
            for _ in range(20):
                log.log_impression("q", PAGE, version="child")
            log.close()
            code = 0
        finally:
            os._exit(code)
    os.read(ready[0], 1)
    log.log_impression("q", PAGE, version="parent")
    log.close()
    os.write(go[1], b"1")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for end in (*ready, *go):
        os.close(end)
    with opened(path) as log:
        log.check()
        assert sorted(log.records().versions) == ["child"] * 21 + ["parent"] * 2


# Files that are not as they should be


def full(path: Path) -> bytes:
    """A closed log with some impressions, as bytes."""
    with opened(path, features=40) as log:
        for i in range(60):
            shown = log.log_impression(i % 9, np.full((4, 40), i), time=i)
            log.log_click(shown, 1 + i % 4)
    assert [file.name for file in files_of(path)] == [path.name]
    return path.read_bytes()


def other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE impressions (id)")


def newer(path: Path) -> None:
    full(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 7")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.write_text("my diary\n" * 100), "is not a device log, nor an SQLite database"),
        (other_database, "is an SQLite database of another application"),
        (newer, r"was written by a newer fultr \(its tables have version 7, this one knows 2\): update fultr"),
        (lambda path: path.write_bytes(full(path)[:50]), r"is damaged \(only 50 bytes are left\)"),
        (lambda path: path.write_bytes(full(path)[:9000]), "is damaged"),
        (lambda path: path.write_bytes(full(path)[:4096] + bytes(60_000)), "is damaged"),
    ],
)
def test_a_file_that_is_not_a_log_stays_as_it_is(path, make, said):
    make(path)
    path.chmod(0o640)
    before = path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns
    for features in (3, None):
        with pytest.raises(FultrError, match=said) as error:
            opened(path, features=features)
        assert "\n" not in str(error.value)
        assert str(error.value).startswith(f"{path}: ")
    assert (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns) == before


def test_flipped_bytes_are_one_clear_error_or_do_no_harm(path):
    """Wherever a byte is flipped: an error of one line, or the same log, or at worst another small value."""
    good, rng, said = full(path), random.Random(0), []
    with opened(path, features=40) as log:
        expected = log.records()
    for _ in range(60):
        at = rng.randrange(len(good))
        path.write_bytes(good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1 :])
        for file in files_of(path)[1:]:
            file.unlink()
        try:
            with opened(path, features=40) as log:
                log.check()
                found = log.records()
                log.log_impression("q", np.ones((1, 40)))
        except FultrError as error:
            said.append(str(error))
        else:
            assert found.display.features.tobytes() == expected.display.features.tobytes()
            assert found.impressions.tolist() == expected.impressions.tolist()
    assert len(said) > 20  # most of the file is features
    assert all(line.startswith(f"{path}: ") and "\n" not in line for line in said)


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "file" / "log.db", tmp_path / "nowhere" / "log.db", tmp_path):
        with pytest.raises(FultrError, match=f"^{wrong}: (cannot be opened|is not a file)"):
            opened(wrong)
    with pytest.raises(FultrError, match="there is no such file"):
        DeviceLog.open(tmp_path / "log.db")
    assert not (tmp_path / "log.db").exists()


@pytest.mark.skipif(os.name != "posix", reason="modes are those of Unix")
def test_a_read_only_folder():
    """As another user if the tests run as root, whom modes do not stop."""
    with tempfile.TemporaryDirectory() as name:
        folder, user = Path(name), os.geteuid()
        full(folder / "log.db")
        good = (folder / "log.db").read_bytes()
        (folder / "log.db").chmod(0o444)
        folder.chmod(0o555)
        try:
            if user == 0:
                os.seteuid(65534)
            for file in ("log.db", "new.db"):
                with pytest.raises(FultrError, match=f"{file}: cannot be (written|opened).*") as error:
                    opened(folder / file)
                assert "\n" not in str(error.value)
        finally:
            os.seteuid(user)
            folder.chmod(0o755)
        assert (folder / "log.db").read_bytes() == good
        assert [file.name for file in folder.iterdir()] == ["log.db"]


def test_a_full_disk_stores_nothing_of_the_call_and_all_before_it(path):
    with opened(path) as log:
        pages = log._connection.execute("PRAGMA page_count").fetchone()[0]
        log._connection.execute(f"PRAGMA max_page_count = {pages + 20}")  # SQLite then says SQLITE_FULL
        stored = []

        def fill() -> None:
            for i in range(1000):
                stored.append(log.log_impression(i, np.ones((100, 3))))

        with pytest.raises(FultrError, match="the disk is full: this call stored nothing; free some space"):
            fill()
        assert log.records().impressions.tolist() == stored
        assert log.forget(query=stored[0] - 1) == 1  # there is a way out
        assert log.log_impression("q", PAGE) > stored[-1]
        log.check()


LIMITED = """
import resource, sys
from fultr.device.log import DeviceLog
from fultr.core.errors import FultrError
with DeviceLog.open(sys.argv[1], features=519, retention=None) as log:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    stored = 0
    try:
        for i in range(1000):
            log.log_impression(i, [[1.0] * 519] * 10)
            stored += 1
    except FultrError as error:
        print(stored, error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.log_impression("q", [[1.0] * 519])  # there is room again
"""


@pytest.mark.process
def test_files_that_may_not_grow(path):
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    said = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True)
    stored, message = said.stdout.strip().split(" ", 1)
    assert message.startswith(f"{path}: cannot be read or written (disk I/O error)")
    assert int(stored) > 10
    with opened(path, features=519) as log:
        log.check()
        assert log.stats().impressions == int(stored) + 1


def test_a_locked_file_is_one_clear_error(path, monkeypatch):
    monkeypatch.setattr(device_file, "WAIT", 0.1)
    with opened(path) as log, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(FultrError, match="another process has kept it locked"):
            log.log_impression("q", PAGE)
        other.execute("ROLLBACK")
        assert log.log_impression("q", PAGE) == 1


def test_an_older_file_is_brought_up_to_date_whole_or_not_at_all(path, monkeypatch):
    good = full(path)
    assert struct.unpack_from(">i4xi", good, 60) == (2, int.from_bytes(b"fult", "big"))
    more = "ALTER TABLE impressions ADD COLUMN note TEXT"
    monkeypatch.setattr(device_file, "STEPS", (*device_file.STEPS, f"{more};\nINSERT INTO nowhere VALUES (1)"))
    with pytest.raises(FultrError, match="no such table: nowhere"):
        opened(path, features=40)
    assert path.read_bytes() == good
    monkeypatch.setattr(device_file, "STEPS", (*device_file.STEPS[:2], more))
    with opened(path, features=40) as log:
        assert log.records().impressions.size == 60
        assert log._connection.execute("SELECT count(note) FROM impressions").fetchone() == (0,)
        assert struct.unpack_from(">i", path.read_bytes(), 60) == (3,)  # an older program sees it at once
    monkeypatch.undo()
    with pytest.raises(FultrError, match="newer fultr"):
        opened(path, features=40)


def test_a_log_of_the_first_version_keeps_all_that_it_holds(path, monkeypatch):
    """Its clicks get checksums; all that it holds waits for the first batch to close."""
    monkeypatch.setattr(device_file, "STEPS", device_file.STEPS[:1])
    path.touch()
    stored = np.float32(PAGE).tobytes()
    check = checksum(5.0, b"q", 32, 2, None, stored)
    with closing(device_file.connect(path, write=True)) as connection:
        device_file.upgrade(path, connection)
        connection.execute("INSERT INTO schemas VALUES (1, 3, '3')")
        for id_ in (1, 2):
            connection.execute(
                "INSERT INTO impressions VALUES (?, 5.0, CAST('q' AS BLOB), '', 1, 32, 2, ?, NULL, NULL, ?)",
                (id_, check, stored),
            )
        connection.execute("INSERT INTO clicks VALUES (1, 2, 6.0), (2, 1, 7.5)")
    monkeypatch.undo()
    with opened(path) as log:
        log.check()
        assert log.records().log.clicks.tolist() == [[0, 1], [1, 0]]
        assert log.log_click(2, 2)
        assert [row[0] for row in log._connection.execute("SELECT batch FROM clicks")] == [0, 0, 0]
        assert log._connection.execute("SELECT count(*) FROM ledger").fetchone() == (0,)
        log.check()


@pytest.mark.parametrize("change", ["rank = 3 - rank", "time = time + 1", "batch = batch + 1", "checksum = 1"])
def test_a_changed_click_is_found(path, change):
    with opened(path) as log:
        shown = log.log_impression("q", PAGE)
        log.log_click(shown, 1)
        log.check()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"UPDATE clicks SET {change}")
            connection.commit()
        for look in (log.check, log.records):
            with pytest.raises(FultrError, match=r"is damaged \(a click on impression 1 is not as it was written"):
                look()


def test_packing_pads_rows_to_cache_lines():
    rows = packed(np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 0]))
    assert rows.shape == (2, 16)
    assert rows[:, :3].tolist() == [[3, 4, 5], [0, 1, 2]]


@pytest.mark.parametrize("retention", [30, "30 days", float("nan"), Retention])
def test_retention_of_another_type_creates_no_log(tmp_path, retention):
    with pytest.raises(FultrError, match="retention: expected a value of type Retention, or None; found"):
        DeviceLog.open(tmp_path / "device.db", features=4, retention=retention)
    assert not list(tmp_path.iterdir())
