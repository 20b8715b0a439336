"""A sample click log says what its users did: its truth is that of the clicks, and files hold all of it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from help.commands import fultr as run

import fultr
from fultr.clicks.files import read_click_log
from fultr.core.errors import FultrError
from fultr.study.sample_log import sample_clicks


@pytest.fixture(scope="module")
def data():
    return fultr.load("synthetic", cache=False)


@pytest.fixture(scope="module")
def sample(data):
    return sample_clicks(data, clicks=20_000, users=500, policies=3, displayed=4)


def test_clicks_are_as_the_truth_says(sample):
    """Clicks over what the truth expects of them have mean 1 at every rank, within 4 standard errors."""
    log = sample.log
    base = np.arange(1.0, 5) ** -sample.severities[log.users][:, np.newaxis]
    expected = base * sample.attraction[log.documents]
    spread = np.sqrt((expected * (1 - expected)).sum(axis=0))
    assert np.all(np.abs(log.clicks.sum(axis=0) - expected.sum(axis=0)) < 4 * spread)
    assert sample.examination == pytest.approx(base.mean(axis=0))


def test_truth_is_that_of_the_data(data, sample):
    rows = np.array([int(name.removeprefix("d")) for name in sample.log.document_names])
    assert np.array_equal(sample.grades, data.train.labels[rows])
    assert np.array_equal(sample.log.features, data.train.features[rows])
    assert np.array_equal(sample.attraction, np.where(sample.grades >= 3, 1.0, 0.1))
    owner = np.searchsorted(data.train.offsets, rows, side="right") - 1
    ids = [f"q{i}" for i in data.train.query_ids[owner]]
    assert ids == sample.log.query_names[sample.log.query_of_pair].tolist()


def test_every_user_has_a_share_of_the_clicks(sample):
    made = np.bincount(sample.log.users, sample.log.clicks.sum(axis=1))
    assert made.size == 500
    assert made.min() >= 40
    assert np.all(np.diff(sample.log.users) >= 0)
    assert set(sample.policy) == {1, 2, 3}


def test_the_same_whatever_the_number_of_blocks(data, monkeypatch):
    whole = sample_clicks(data, clicks=300, users=30, seed=5)
    monkeypatch.setattr("fultr.study.sample_log._BLOCK", 7000)
    parts = sample_clicks(data, clicks=300, users=30, seed=5)
    assert np.array_equal(whole.log.clicks, parts.log.clicks)
    assert whole.examination == pytest.approx(parts.examination, rel=1e-12)
    other = sample_clicks(data, clicks=300, users=30, seed=6)
    assert not np.array_equal(whole.log.queries[:20], other.log.queries[:20])


@pytest.mark.parametrize("model", ["cascade", "dependent-click", "trust", "contextual"])
def test_every_click_model(data, model):
    made = sample_clicks(data, clicks=50, users=5, click_model=fultr.ClickModel(click_model=model))
    assert made.log.clicks.sum() >= 50
    assert made.settings["click_model"]["click_model"] == model


def test_table(sample):
    frame = sample.table().to_pandas()
    assert list(frame.columns[:7]) == ["user", "session", "query", "document", "rank", "click", "policy"]
    assert frame.click.sum() == sample.log.clicks.sum()
    made = fultr.pages_of(
        frame.filter(regex=r"^f\d+$"),
        frame.click,
        query=frame["query"],
        rank=frame["rank"],
        user=frame["user"],
        session=frame["session"],
        document=frame["document"],
    )
    assert np.array_equal(made.log.clicks, sample.log.clicks)
    assert np.array_equal(made.log.features[made.log.documents[7, 2]], sample.log.features[sample.log.documents[7, 2]])


def test_the_command(tmp_path):
    out = tmp_path / "clicks.csv.gz"
    code, told, _ = run("data", "clicks", out, "--clicks", 200, "--users", 10, "--gamma", 2, "--json")
    assert code == 0
    found = json.loads(told)
    log, truth = read_click_log(out), json.loads((tmp_path / "clicks.truth.json").read_text())
    assert found["clicks"] == log.clicks.sum() >= 200
    assert truth["examination"] == found["examination"]
    assert truth["settings"]["click_model"]["gamma"] == 2
    graded = pd.DataFrame(truth["relevance"]).set_index(["query", "document"]).grade
    assert len(graded) == log.pairs
    code, _, said = run("data", "clicks", tmp_path / "clicks.xls")
    assert code == 2
    assert said == (
        f"fultr: {tmp_path}/clicks.xls: expected a name that ends with .tsv, .csv or .parquet "
        "(text also with .gz, .xz, .bz2 or .zst)\n"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(clicks=0), "clicks: expected a whole number, at least 1, at most 1,000,000,000, found 0"),
        (dict(data=3), "data: expected the name of a data set, or what fultr.load gives; found int"),
        (dict(policies=0), "policies: expected a whole number, at least 1, at most 1,000, found 0"),
    ],
)
def test_bad_arguments(given, message):
    with pytest.raises(FultrError, match=message):
        sample_clicks(**given)


def test_there_is_no_log_without_its_truth(sample, tmp_path):
    (tmp_path / "log.truth.json").mkdir()
    with pytest.raises((FultrError, OSError)):
        sample.save(tmp_path / "log.tsv")
    assert not (tmp_path / "log.tsv").exists()
