"""Click logs and devices' logs are two forms of the same: what is trained on is the same to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from help.commands import fultr

from fultr.clicks.files import read_click_log
from fultr.clicks.impressions import ImpressionLog
from fultr.core.errors import FultrError
from fultr.device.conversion import click_log_of, fill_from_click_log
from fultr.device.log import DeviceLog


def some_log(users: bool = True) -> ImpressionLog:
    """Pages of 1 to 3 documents, by three users."""
    rng = np.random.default_rng(7)
    pages = 40
    documents = np.array([rng.permutation(6)[:3] for _ in range(pages)])
    documents[np.arange(3) >= rng.integers(1, 4, pages)[:, np.newaxis]] = -1
    queries = rng.integers(4, size=pages)
    features = rng.random((4, 6, 5)).astype(np.float32)[queries[:, np.newaxis], documents]
    clicks = ((rng.random(documents.shape) < 0.4) & (documents >= 0)).astype(np.uint8)
    who = np.array(["ann", "bob", "cid"])[rng.integers(3, size=pages)] if users else None
    return ImpressionLog.from_arrays(queries, documents, clicks, who, features)


@pytest.mark.parametrize("users", [True, False])
def test_a_click_log_becomes_devices_with_the_same_records(tmp_path, users):
    log = some_log(users)
    paths = fill_from_click_log(log, tmp_path)
    assert [path.name for path in paths] == (["user-1.db", "user-2.db", "user-3.db"] if users else ["user-1.db"])
    records = log.records()
    for u, path in enumerate(paths):
        with DeviceLog.open(path, retention=None) as device:
            found = device.records()
        own = slice(*records.log.offsets[u : u + 2])
        width = found.log.clicks.shape[1]
        assert np.array_equal(found.log.clicks, records.log.clicks[own][:, :width])
        for i, query in enumerate(records.log.queries[own]):
            a = records.display.features[records.display.shown[query][records.display.shown[query] >= 0]]
            q = found.log.queries[i]
            assert np.array_equal(a, found.display.features[found.display.shown[q][found.display.shown[q] >= 0]])
    with pytest.raises(FultrError, match=r"user-1.db: there is a log already; give another folder"):
        fill_from_click_log(log, tmp_path)


def test_there_and_back(tmp_path):
    log = some_log(users=False)
    (path,) = fill_from_click_log(log, tmp_path)
    with DeviceLog.open(path, retention=None) as device:
        back = click_log_of(device)
    assert np.array_equal(back.clicks, log.clicks)
    assert np.array_equal(back.shown, log.shown)
    assert np.array_equal(back.features[back.documents[back.shown]], log.features[log.documents[log.shown]])
    same = lambda q: q[:, np.newaxis] == q  # noqa: E731
    assert np.array_equal(same(back.queries), same(log.queries))
    assert np.all(np.diff(back.times) > 0)


def test_impressions_with_other_features_are_left_out(tmp_path):
    path = tmp_path / "log.db"
    with DeviceLog.open(path, features=["a"]) as device:
        device.log_impression("x", [[1.0]])
        with pytest.raises(FultrError, match="expected features of the documents, which a device's log holds"):
            fill_from_click_log(ImpressionLog.from_arrays([1], [[1]], [[0]]), tmp_path / "other")
    with DeviceLog.open(path, features=["a", "b"]) as device:
        with pytest.raises(FultrError, match=r"log.db: expected impressions, found none"):
            click_log_of(device)
        device.log_impression("x", [[1.0, 2.0]])
        assert click_log_of(device).feature_names == ("a", "b")


def test_the_commands(tmp_path):
    done = fultr("data", "clicks", tmp_path / "log.csv", "--clicks", 30, "--users", 3, "--layout", "rows")
    assert done.code == 0
    done = fultr("device", "import", tmp_path / "log.csv", "--dir", tmp_path / "devices")
    assert done.code == 0, done.err
    assert "3 logs" in done.err
    out = tmp_path / "back.parquet"
    done = fultr("device", "export", tmp_path / "devices" / "user-2.db", "--click-log", "--out", out)
    assert done.code == 0, done.err
    back, log = read_click_log(out), read_click_log(tmp_path / "log.csv")
    assert np.array_equal(back.clicks, log.clicks[log.users == 1])
    done = fultr("device", "export", tmp_path / "devices" / "user-2.db", "--click-log")
    assert done.code == 2


@pytest.mark.parametrize("name", ["log.tsv", "log.parquet"])
def test_an_exported_click_log_is_its_owners_alone(tmp_path, name):
    with DeviceLog.open(tmp_path / "device.db", features=["match"]) as log:
        assert log.log_click(log.log_impression("pizza", [[1.0], [0.5]]), rank=2)
    done = fultr("device", "export", tmp_path / "device.db", "--click-log", "--out", tmp_path / name)
    assert done.code == 0
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
