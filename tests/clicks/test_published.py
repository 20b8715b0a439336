"""Published click logs, on files made after their descriptions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from fultr.clicks.files import read_click_log
from fultr.clicks.impressions import ImpressionLog
from fultr.core.errors import FultrError

YANDEX = """\
0\t0\tQ\t8\t0\t7\t103\t51\t92
0\t103\tC\t51
0\t120\tC\t7
0\t155\tQ\t9\t0\t103\t7
0\t160\tC\t7
0\t170\tC\t92
0\t190\tC\t5
1\t0\tQ\t8\t1\t7\t103
"""

TIANGONG = """\
<?xml version="1.0" encoding="utf-8"?>
<tiangong2020>
<session num="4">
 <interaction num="1"><query>a &amp; b</query><query_id>q1</query_id>
  <results>
   <result rank="1"><docid>d5</docid><title>x</title><relevance><TACM>0.5</TACM></relevance></result>
   <result rank="2"><docid>d6</docid></result>
   <result rank="3"><docid>d5</docid></result>
  </results>
  <clicked><click num="1"><rank>3</rank><docid>d5</docid></click><click num="2"><rank>12</rank></click></clicked>
 </interaction>
 <interaction num="2"><query_id>q2</query_id>
  <results><result rank="2"><docid>d8</docid></result><result rank="1"><docid>d7</docid></result>
   <result rank="4"><docid>d9</docid></result></results>
 </interaction>
 <interaction num="3"><query_id>q3</query_id><results></results></interaction>
</session>
</tiangong2020>
"""


def told(log: ImpressionLog) -> list[tuple[str, str | None, list[str], list[int]]]:
    users = [None] * log.impressions if log.users is None else log.user_names[log.users]
    return [
        (log.query_names[q], u, log.document_names[d[d >= 0]].tolist(), c[d >= 0].tolist())
        for q, u, d, c in zip(log.queries, users, log.documents, log.clicks, strict=True)
    ]


def write(folder: Path, text: str, name: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_yandex(tmp_path):
    """A click belongs to the latest page of the session that showed the result; 5 was on none."""
    with pytest.warns(UserWarning, match="left out: 1 clicks on what the session's pages did not show"):
        log = read_click_log(write(tmp_path, YANDEX, "log.txt"))
    assert told(log) == [
        ("8_0", "0", ["7", "103", "51", "92"], [1, 0, 1, 1]),
        ("9_0", "0", ["103", "7"], [0, 1]),
        ("8_1", "1", ["7", "103"], [0, 0]),
    ]
    with pytest.raises(FultrError, match="line 2: expected session, time, Q, query, region and results, or session"):
        read_click_log(write(tmp_path, YANDEX.replace("\tC\t51", "\tX\t51"), "bad.txt"))


def test_tiangong(tmp_path):
    """A repeated document, results out of order, a rank that is missing, a page without clicks, one without results."""
    path = write(tmp_path, TIANGONG, "sogousessiontrack2020.xml")
    with pytest.warns(UserWarning, match="left out|twice") as said:
        log = read_click_log(path)
    assert told(log) == [("q1", "4", ["d5", "d6", "d5"], [0, 0, 1]), ("q2", "4", ["d7", "d8"], [0, 0])]
    words = " ".join(str(each.message) for each in said)
    assert "1 page displays a document twice" in words
    assert "1 pages' results after a rank that is missing" in words
    assert "1 interactions without a query or a first result" in words
    assert "1 clicks on ranks that the page did not show" in words
    for text, message in (
        (TIANGONG[:300], r", line \d+: expected XML of TianGong-ST: unclosed token"),
        (
            '<!DOCTYPE x [<!ENTITY a "b">]><x/>',
            "line 1: expected XML of TianGong-ST: a document type",
        ),
        ("<a>" * 100, "elements nested too deeply"),
        ("<a/>", ": expected impressions, found none"),
    ):
        with pytest.raises(FultrError, match=message):
            read_click_log(write(tmp_path, text, "bad.xml"))


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_baidu(tmp_path, kind):
    """The second page's positions are out of order and have a gap; the third begins below position 1."""
    vectors = [[[1.0, 0.5], [2.0, 0.25]], [[3.0, 1.0], [4.0, 2.0], [5.0, 4.0]], [[6.0, 8.0]]]
    table = pa.table(
        {
            "query_id": ["1", "2", "3"],
            "query_md5": ["a", "b", "a"],
            "n": [2, 3, 1],
            "url_md5": [["x", "y"], ["u", "v", "w"], ["x"]],
            "click": pa.array([[0, 1], [1, 0, 0], [1]], pa.list_(pa.int32())),
            "position": pa.array([[1, 2], [2, 4, 1], [3]], pa.list_(pa.int32())),
            "query_document_embedding": pa.array(
                [[np.array(v, np.float16) for v in page] for page in vectors], pa.list_(pa.list_(pa.float16()))
            ),
        }
    )
    path = tmp_path / f"part-0.{kind}"
    (pq.write_table if kind == "parquet" else feather.write_feather)(table, path)
    with pytest.warns(UserWarning, match="left out: 2 of 6 documents, at or after a position that is missing"):
        log = read_click_log(path)
    assert told(log) == [("a", None, ["x", "y"], [0, 1]), ("b", None, ["w", "u"], [0, 1])]
    assert log.features[log.documents[1]].tolist() == [[5.0, 4.0], [3.0, 1.0]]


@pytest.mark.filterwarnings("ignore:.*left out")
def test_bad_baidu(tmp_path):
    path = tmp_path / "part.parquet"
    for columns, message in (
        ({"url_md5": [["x"]], "click": [[1, 0]]}, "row 1: expected as many values in click as in url_md5, found '2'"),
        ({"url_md5": ["x"], "click": [[1]]}, "expected lists in column url_md5, found 'string'"),
        ({"url_md5": [["x"]], "click": [[1]], "position": [[0]]}, "expected pages from position 1, found none"),
        ({"url_md5": [["x"]], "click": [["a"]]}, "expected text or numbers in column click"),
    ):
        pq.write_table(pa.table({"query_id": ["1"], **columns}), path)
        with pytest.raises(FultrError, match=message):
            read_click_log(path)
