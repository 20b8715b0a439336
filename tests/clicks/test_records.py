"""Records from a click log: what is trained on is what was simulated, to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plain
import pytest
from help.training import updates

from fultr.clicks.files import read_click_log
from fultr.clicks.impressions import ImpressionLog
from fultr.clicks.log import ClickLog, Display, Records
from fultr.clicks.models.cascade import Cascade
from fultr.clicks.models.position_based import examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import Sessions
from fultr.core.errors import FultrError
from fultr.federated.settings import LocalTraining
from fultr.study.policy import display

FEATURES, RANKS = 21, 5


def simulated(clients: int) -> Records:
    """Queries of 1 to 9 documents, so that some pages are short."""
    rng = np.random.default_rng(1)
    data = plain.random_data(rng, queries=20, features=FEATURES, most=9)
    shown = display(data, rng.standard_normal(FEATURES).astype(np.float32), displayed=RANKS)
    chance = np.where(shown.shown >= 0, rng.uniform(0.1, 0.9, shown.shown.shape), 0)
    base = examination(rng.uniform(0, 1, clients), RANKS)
    log = simulate_clicks(
        Cascade(0.7), chance, base, np.arange(clients), sessions=Sessions(queries=5, clicks=6), seed=3, round_=2
    )
    return Records(log, shown)


def interleaved(log: ClickLog, rng: np.random.Generator) -> np.ndarray:
    """Impressions as they would reach one file: users take turns, each one's own stay in order."""
    client = np.repeat(np.arange(log.clients), np.diff(log.offsets))
    times = np.concatenate([np.sort(rng.random(n)) for n in np.diff(log.offsets)])
    times[log.offsets[:-1]] = np.arange(log.clients) - log.clients  # the first of each come first, in order
    order = np.argsort(times, kind="stable")
    assert (np.diff(client[order]) < 0).any()
    return order


def write(path: Path, records: Records, order: np.ndarray, *, users: bool = True, features: bool = True) -> None:
    """A click-log file, a line an impression; documents are named by their rows of the data set."""
    log, shown = records.log, records.display
    client = np.repeat(np.arange(log.clients), np.diff(log.offsets))
    lines = ["\t".join(["query", *["user"] * users, "documents", "clicks", *["features"] * features])]
    for i in order:
        query = log.queries[i]
        rows = shown.shown[query][shown.shown[query] >= 0]
        cells = [f"q{query}", *[f"u{client[i]}"] * users]
        cells.append(",".join(f"d{document}" for document in shown.documents[query][: rows.size]))
        cells.append(",".join(str(click) for click in log.clicks[i][: rows.size]))
        if features:
            matrix = shown.features[rows, :FEATURES].tolist()
            cells.append(",".join(" ".join(repr(value) for value in row) for row in matrix))
        lines.append("\t".join(cells))
    path.write_text("\n".join(lines) + "\n")


def update(log: ClickLog, shown: Display, propensities: np.ndarray, weights: np.ndarray) -> np.ndarray:
    [total], [trained] = updates(log, shown, propensities, weights, LocalTraining(0.02))
    assert trained == log.clients
    return total


def test_a_file_gives_back_what_was_simulated(tmp_path):
    records = simulated(clients=12)
    rng = np.random.default_rng(0)
    write(tmp_path / "log.tsv", records, interleaved(records.log, rng))
    found = read_click_log(tmp_path / "log.tsv").records()
    assert found.clients == 12
    np.testing.assert_array_equal(found.log.offsets, records.log.offsets)
    np.testing.assert_array_equal(found.log.clicks, records.log.clicks)
    assert found.log.queries.dtype == np.int32
    assert found.display.queries == np.unique(records.log.queries).size
    assert (found.display.shown < 0).any()  # shorter pages
    assert found.display.features.shape[1] == records.display.features.shape[1]  # padded alike
    assert found.display.features.ctypes.data % 64 == 0
    theirs, ours = (part.display.shown[part.log.queries] for part in (records, found))
    np.testing.assert_array_equal(ours >= 0, theirs >= 0)
    np.testing.assert_array_equal(
        found.display.features[ours[ours >= 0]], records.display.features[theirs[theirs >= 0]]
    )
    weights, propensities = rng.standard_normal(FEATURES).astype(np.float32), rng.uniform(0.2, 1, (12, RANKS))
    expected = update(records.log, records.display, propensities, weights)
    assert expected.any()
    np.testing.assert_array_equal(update(found.log, found.display, propensities, weights), expected)


def test_without_users_there_is_one_client(tmp_path):
    records = simulated(clients=1)
    write(tmp_path / "log.tsv", records, np.arange(records.log.queries.size), users=False)
    found = read_click_log(tmp_path / "log.tsv").records()
    assert found.log.offsets.tolist() == [0, records.log.queries.size]
    weights = np.ones(FEATURES, np.float32)
    np.testing.assert_array_equal(
        update(found.log, found.display, np.full((1, found.display.ranks), 0.5), weights),
        update(records.log, records.display, np.full((1, RANKS), 0.5), weights),
    )


def test_a_log_without_features_is_refused(tmp_path):
    records = simulated(clients=1)
    write(tmp_path / "log.tsv", records, np.arange(records.log.queries.size), features=False)
    with pytest.raises(FultrError, match=r"^click log: expected features of the documents, to train on; found none$"):
        read_click_log(tmp_path / "log.tsv").records()


def test_pages_by_hand():
    """Same documents in another order, or of another query, are displayed apart; differing features are averaged."""
    log = ImpressionLog.from_arrays(
        queries=["b", "a", "a", "a", "b"],
        documents=[[7, 8], [7, 8], [8, 7], [7, 8], [7, -1]],
        clicks=[[1, 0], [0, 1], [0, 0], [1, 1], [1, 0]],
        users=["y", "x", "y", "x", "x"],
        features=[[[5], [6]], [[1], [2]], [[2], [1]], [[4], [2]], [[5], [99]]],
    )
    found = log.records()
    assert found.log.offsets.tolist() == [0, 3, 5]  # x, y
    assert found.log.clicks.tolist() == [[0, 1], [1, 1], [1, 0], [1, 0], [0, 0]]
    shown = found.display.shown[found.log.queries]
    features = np.where(shown >= 0, found.display.features[shown, 0], -1)
    seven = (1 + 1 + 4) / 3  # in query a
    assert features.tolist() == [[seven, 2], [seven, 2], [5, -1], [5, 6], [2, seven]]
    assert found.log.queries[0] == found.log.queries[1]
    assert found.display.queries == 4
    assert np.diff(found.display.offsets)[found.log.queries].tolist() == [2, 2, 1, 2, 2]


def test_users_without_impressions_are_no_clients():
    log = ImpressionLog.from_arrays(
        [1, 2, 3], [[1], [1], [1]], [[1], [0], [1]], users=[0, 1, 2], features=np.ones((3, 1, 2))
    )
    assert log.take(np.array([2, 0])).records().log.offsets.tolist() == [0, 1, 2]
