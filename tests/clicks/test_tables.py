"""Click logs as tables and files: whatever is written reads back the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from help.click_logs import random_log

from fultr.clicks.any_log import click_log
from fultr.clicks.files import read_click_log
from fultr.clicks.frames import pages_of
from fultr.clicks.impressions import ImpressionLog
from fultr.clicks.tables import table_of, write_click_log
from fultr.core.errors import FultrError

ENDINGS = (".tsv", ".txt.gz", ".csv", ".csv.xz", ".tsv.bz2", ".csv.zst", ".parquet")


def with_features(seed: int, users: bool = True) -> ImpressionLog:
    """A log with pages of several lengths and features that take all digits."""
    rng = np.random.default_rng(seed)
    log = random_log(seed)
    by_pair = rng.standard_normal((log.pairs, 3)).astype(np.float32) * np.float32([1e-20, 1, 1e20])
    who = [f"u{i}" for i in rng.integers(9, size=log.impressions)] if users else None
    names = log.query_names[log.queries]
    return ImpressionLog.from_arrays(
        names, np.where(log.shown, log.document_names[log.documents], -1), log.clicks, who, by_pair[log.documents]
    )


def told(log: ImpressionLog) -> list[tuple[object, ...]]:
    """What a log says, in words."""
    users = [None] * log.impressions if log.users is None else log.user_names[log.users].tolist()
    return [
        (
            str(log.query_names[query]),
            user,
            [str(name) for name in log.document_names[pairs[pairs >= 0]]],
            clicks[pairs >= 0].tolist(),
            None if log.features is None else log.features[pairs[pairs >= 0]].tolist(),
        )
        for query, user, pairs, clicks in zip(log.queries, users, log.documents, log.clicks, strict=True)
    ]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("users", [False, True])
def test_what_is_written_reads_back(tmp_path, monkeypatch, ending, users):
    monkeypatch.setattr("fultr.clicks.tables._BLOCK_NUMBERS", 100)  # several blocks
    log = with_features(1, users)
    write_click_log(log, tmp_path / f"log{ending}")
    assert told(read_click_log(tmp_path / f"log{ending}")) == told(log)
    write_click_log(log, tmp_path / f"log{ending}", "rows")
    assert told(read_click_log(tmp_path / f"log{ending}")) == told(log)
    assert read_click_log(tmp_path / f"log{ending}", features=["f2", "f3"]).feature_names == ("f2", "f3")
    write_click_log(log, tmp_path / f"log{ending}", features=False)
    assert read_click_log(tmp_path / f"log{ending}").features is None


def test_names_of_features_stay_in_either_layout(tmp_path):
    log = replace(with_features(3), feature_names=("f2", "title match", "f5"))
    for name in ("log.tsv", "log.csv.gz", "log.parquet"):
        write_click_log(log, tmp_path / name, "pages")
        assert read_click_log(tmp_path / name).feature_names == log.feature_names
        assert told(read_click_log(tmp_path / name)) == told(log)
    assert click_log(table_of(log, "pages")).feature_names == log.feature_names
    plain = replace(log, feature_names=("f1", "f2", "f3"))
    assert "features" in table_of(plain, "pages").column_names
    write_click_log(replace(log, feature_names=("a", "b, c", "d")), tmp_path / "log.csv", "pages")
    with pytest.raises(FultrError, match="expected 3 different names in the name of column features, found 4 names"):
        read_click_log(tmp_path / "log.csv")


def test_names_that_need_quotes(tmp_path):
    log = ImpressionLog.from_arrays(['say "hi", now', "tab\there"], [[1], [2]], [[0], [1]])
    for ending in (".csv", ".parquet"):
        write_click_log(log, tmp_path / f"log{ending}")
        assert told(read_click_log(tmp_path / f"log{ending}")) == told(log)
    with pytest.raises(FultrError, match="expected no tab, new line or quotation mark in column query of a tab-sep"):
        write_click_log(log, tmp_path / "log.tsv")
    assert not (tmp_path / "log.tsv").exists()


def test_names_with_commas_are_not_joined_by_commas(tmp_path):
    query, user, rank = ["a, b", "a, b", "c", "c"], ["u,v", "u,v", "w", "w"], [1, 2, 1, 2]
    log = pages_of(None, [0, 1, 0, 0], query=query, rank=rank, user=user, document=["x,y", "z", "z", "x"]).log
    for name in ("log.tsv", "log.csv"):
        with pytest.raises(FultrError, match=rf"{name}: expected no comma in column documents, .*, found 'x,y'"):
            write_click_log(log, tmp_path / name)
        assert not (tmp_path / name).exists()
        write_click_log(log, tmp_path / name, "rows")
        assert told(read_click_log(tmp_path / name)) == told(log)
    write_click_log(log, tmp_path / "log.parquet")
    assert told(read_click_log(tmp_path / "log.parquet")) == told(log)


def test_frames():
    log = with_features(2)
    frame = pl.from_arrow(table_of(log))
    assert frame.columns == ["user", "session", "query", "document", "rank", "click", "f1", "f2", "f3"]
    assert len(frame) == log.shown.sum()
    assert frame["click"].sum() == log.clicks.sum()
    pages = pl.from_arrow(table_of(log, "pages"))
    assert pages["documents"].list.len().to_list() == log.shown.sum(axis=1).tolist()
