"""Click logs in files: every layout reads to the same log, and bad files get one clear line."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from fultr.clicks.files import read_click_log
from fultr.clicks.impressions import ImpressionLog
from fultr.core.errors import FultrError

PAGES = [
    ("cats", "ann", ["d17", "d4", "d23"], [0, 1, 0]),
    ("dogs", "bob", ["d4", "d17"], [1, 0]),
    ("cats", "ann", ["d4", "d9", "d17"], [0, 0, 1]),
]
TSV = "cats\td17,d4,d23\t0,1,0\ndogs\td4,d17\t1,0\ncats\td4,d9,d17\t0,0,1\n"


def write(folder: Path, text: str | bytes, name: str = "log.tsv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def pages_of(log: ImpressionLog) -> list[tuple[str, list[str], list[int]]]:
    """What a log says, in the file's words."""
    return [
        (
            log.query_names[query],
            [log.document_names[pair] for pair in pairs if pair >= 0],
            clicks[: (pairs >= 0).sum()].tolist(),
        )
        for query, pairs, clicks in zip(log.queries, log.documents, log.clicks, strict=True)
    ]


def expected() -> list[tuple[str, list[str], list[int]]]:
    return [(query, documents, clicks) for query, _, documents, clicks in PAGES]


def test_a_tab_separated_file(tmp_path):
    log = read_click_log(write(tmp_path, TSV))
    assert pages_of(log) == expected()
    assert log.users is None
    assert (log.impressions, log.ranks, log.pairs) == (3, 3, 6)
    assert log.documents[1].tolist()[2] == -1
    assert log.clicks.dtype == np.uint8
    assert [log.query_names[q] for q in log.query_of_pair] == ["cats"] * 4 + ["dogs"] * 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", TSV.replace("\n", "\r\n")),
        ("a.tsv", "\ufeff" + TSV),
        ("a.tsv", "\n" + TSV.replace("dogs", "\ndogs") + "\n\n"),
        ("a.tsv", TSV.removesuffix("\n")),
        ("a.txt", TSV.replace(",", " ")),
        ("a.txt", TSV.replace(",", ", ")),
        ("a.txt", TSV.replace(",", ";")),
        ("a.txt", TSV.replace(",", "|")),
        ("a.csv", TSV.replace(",", " ").replace("\t", ",")),
        ("a.csv", 'cats,"d17,d4,d23","0,1,0"\ndogs,"d4,d17","1,0"\ncats,"d4,d9,d17","0,0,1"\n'),
        ("a.csv", 'Query,Documents,Clicks\ncats,"d17,d4,d23","0,1,0"\ndogs,"d4,d17","1,0"\ncats,"d4,d9,d17","0,0,1"'),
        (
            "a.tsv",
            "clicks\tday\tquery\tdocuments\n0,1,0\t5\tcats\td17,d4,d23\n1,0\t5\tdogs\td4,d17\n"
            "0,0,1\t6\tcats\td4,d9,d17\n",
        ),
    ],
)
def test_layouts_of_text(tmp_path, name, text):
    assert pages_of(read_click_log(write(tmp_path, text, name))) == expected()


def test_any_separator_can_be_given(tmp_path):
    path = write(tmp_path, TSV.replace(",", "~"))
    assert pages_of(read_click_log(path, separator="~")) == expected()


def test_users(tmp_path):
    rows = "".join(f"{q}\t{u}\t{','.join(d)}\t{','.join(map(str, c))}\n" for q, u, d, c in PAGES)
    for text in (rows, "query\tuser\tdocuments\tclicks\n" + rows):
        log = read_click_log(write(tmp_path, text))
        assert pages_of(log) == expected()
        assert log.users is not None
        assert log.users.tolist() == [0, 1, 0]


def test_compressed(tmp_path):
    packers = {
        "gz": gzip.compress,
        "xz": lzma.compress,
        "bz2": bz2.compress,
        "zst": zstandard.ZstdCompressor().compress,
    }
    for suffix, pack in packers.items():
        assert pages_of(read_click_log(write(tmp_path, pack(TSV.encode()), f"log.tsv.{suffix}"))) == expected()


@pytest.mark.parametrize("kind", ["lists", "strings", "booleans", "numbers", "dictionary"])
def test_parquet(tmp_path, kind):
    queries, users, documents, clicks = (list(column) for column in zip(*PAGES, strict=True))
    columns = {"query": pa.array(queries), "user": pa.array(users)}
    if kind == "strings":
        columns["documents"] = pa.array([",".join(d) for d in documents])
        columns["clicks"] = pa.array([",".join(map(str, c)) for c in clicks])
    elif kind == "booleans":
        columns["documents"] = pa.array(documents)
        columns["clicks"] = pa.array([[bool(x) for x in c] for c in clicks])
    elif kind == "numbers":
        columns["documents"] = pa.array(documents)
        columns["clicks"] = pa.array([[float(x) for x in c] for c in clicks])
    else:
        columns["documents"], columns["clicks"] = pa.array(documents), pa.array(clicks)
    if kind == "dictionary":
        columns["query"] = columns["query"].dictionary_encode()
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    log = read_click_log(tmp_path / "log.parquet")
    assert pages_of(log) == expected()
    assert log.users is not None


def test_parquet_with_numbers_for_names(tmp_path):
    table = pa.table({"query": [7, 7], "documents": [[1, 2], [2]], "clicks": [[0, 1], [1]]})
    pq.write_table(table, tmp_path / "log.parquet")
    assert pages_of(read_click_log(tmp_path / "log.parquet")) == [("7", ["1", "2"], [0, 1]), ("7", ["2"], [1])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", ": expected documents, found an empty file"),
        (b"\n  \n", ": expected impressions, found blank lines only"),
        (b"query\tdocuments\tclicks\n", ": expected impressions, found none"),
        (b"a\tx,y\t0,1\na\tx,y\t0\n", ", line 2: expected one click (0 or 1) for each document, "
                                       "found '1 for 2 documents'"),
        (b"a\tx,y\t0,1\n\na\tx,y\t0,2\n", ", line 3: expected clicks of 0 or 1, found '0,2'"),
        (b"a\tx,y\t0,1\na\tx,y\t0,yes\n", ", line 2: expected clicks of 0 or 1, found '0,yes'"),
        (b"query,documents\rclicks\na,x,1\n", ", line 1: expected one line, found a carriage return in the middle"),
        (b'query,"documents"x,clicks\na,x,1\n', ", line 1: expected cells with commas between them: "),
        (b"query,rank\na,1\n", ", line 1: expected columns query, rank and click; there is no click in 'query, rank'"),
        (b"query,rank,click\na,1,0\n", ", line 1: expected a column document, or features that tell documents apart"),
        (b"query,rank,click,f1,f1\na,1,0,1,2\n", ", line 1: expected one column f1 of features, found 2"),
        (b"query,rank,click,f1\na,1,0,1\na,1,1,x\n", ", line 3: expected a finite number in column f1, found 'x'"),
        (b"query,rank,click,f1\na,1,0,1\na,b,1,2\n", ", line 3: expected a number in column rank, found 'b'"),
        (b"query,rank,click,f1\na,1,0,1\na,3,1,2\n", ", rank, line 3: expected rank 2 next on this page, found 3; "),
        (b"query,rank,click,document,session\na,1,0,x,7\na,2,0,y,7\n\na,2,1,z,7\n",
         ", rank, line 5: rank 2 occurs twice on this page, first in line 3"),
        (b"query,rank,click,f1\na,1,2,1\n", ", clicks, line 2: expected 0 or 1, found 2.0"),
        (b'query,rank,click,f1\n"a\nb",1,1,.5\n\n"a\r\nb",2,0,.5\nc,1,x,.5\n', ", line 7: expected a number in column "
                                                                          "click, found 'x'"),
        (b'query,rank,click,f1,no\na,1,1,.5,"\n\n"\nb,1\n\nb,2\n', ", line 5: expected 5 columns as in the first line, "
                                                              "found 2: 'b,1'"),
        (b"query,rank,click,f1\n ,1,1,1\n", ", line 2: expected a query, found ''"),
        (b"a\tx,y\t0,1\na\tx,,y\t0,1,0\n", ", line 2: expected documents with non-empty names, found 'x,,y'"),
        (b"a\tx,y\t0,1\na\t\t\n", ", line 2: expected a list of documents, found ''"),
        (b"a\tx,y\t0,1\na\tx\t\n", ", line 2: expected a list of clicks, found ''"),
        (b"a\tx,y\t0,1\n \tx\t1\n", ", line 2: expected a query, found ''"),
        (b"a\tx,y\t0,1\na\tx,y\n", ", line 2: expected 3 columns as in the first line, found 2: 'a\\tx,y'"),
        (b"a\tb\tx\t1\t7\n", ", line 1: expected 3 columns (query, documents, clicks) or 4 (query, user, documents, "
                             "clicks), found 5"),
        (b"a,x,y,0,1\n", ", line 1: expected 3 columns (query, documents, clicks) or 4 (query, user, documents, "
                         "clicks), found 5; in a comma-separated file, quote lists or join them by another separator"),
        (b"just words\n", ", line 1: expected 3 columns (query, documents, clicks) or 4 (query, user, documents, "
                          "clicks), found 1; in a comma-separated file, quote lists or join them by another separator"),
        (b"a\tx,y\t0,1\nb\tx,\xff\t0,1\n", ", line 2: expected UTF-8 text, found the bytes b'\\xff\\t0,'"),
        (b"a,x,1\nb,y,0\nc,\xff,1,1\n", ", line 3: expected UTF-8 text, found the bytes b'\\xff,1,'"),
        (b"\xff\tx,y\t0,1\n", ", line 1: expected UTF-8 text, found the bytes b'\\xff\\tx,'"),
        (b"query\tdocuments\tclick\na\tx\t1\n", ", line 1: expected columns query, documents and clicks; there is no "
                                                "clicks in 'query, documents, click'"),
        (b"query\tdocuments\tclicks\tclicks\na\tx\t1\t1\n", ", line 1: expected one column clicks, found 2"),
        (b"PAR1 but no more", ": expected a complete Parquet file: "),
    ],
)  # fmt: skip
def test_bad_files(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(FultrError) as caught:
        read_click_log(path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)


def test_where_text_is_none_is_found_across_blocks(tmp_path, monkeypatch):
    """A letter that two blocks share is whole; a bad byte after many blocks is in the right line."""
    monkeypatch.setattr("fultr.clicks.file_tables._CHECKED_BYTES", 3)
    good = "é€é\tx\t1\n" * 5
    assert read_click_log(write(tmp_path, good)).impressions == 5
    with pytest.raises(FultrError, match="line 6: expected UTF-8 text, found the bytes"):
        read_click_log(write(tmp_path, good.encode() + b"\xe2\x82\tx\t1\n"))


def test_line_breaks_within_cells_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("fultr.clicks.file_tables.BLOCK_BYTES", 40)
    rows = "".join(f'"{"z" * (i % 9)}\nb",1,1,.5\n' for i in range(40))
    assert read_click_log(write(tmp_path, f"query,rank,click,f1\n{rows}", "log.csv")).impressions == 40
    with pytest.raises(FultrError, match="line 82: expected a number in column rank, found 'x'"):
        read_click_log(write(tmp_path, f"query,rank,click,f1\n{rows}a,x,1,1\n", "log.csv"))


def test_documents_that_a_page_repeats(tmp_path):
    """One page of two has z twice: at first another document, then no page, then no file."""
    pages = write(tmp_path, "a\tx,y\t0,1\na\tz,x,z\t0,1,1\n")
    rows = write(
        tmp_path,
        "query,session,document,rank,click\na,1,x,1,0\na,1,y,2,1\na,2,z,1,0\na,2,x,2,1\na,2,z,3,1\n",
        "log.csv",
    )
    for path in (pages, rows):
        with pytest.warns(UserWarning, match="log.*: 1 page displays a document twice; its second place counts as ano"):
            log = read_click_log(path)
        assert pages_of(log) == [("a", ["x", "y"], [0, 1]), ("a", ["z", "x", "z"], [0, 1, 1])]
        assert len(set(log.documents[1])) == 3
        with pytest.warns(UserWarning, match="left out"):
            assert read_click_log(path, repeated="drop").impressions == 1
    with pytest.raises(FultrError, match="line 2: expected different documents on a page, found 'z twice'"):
        read_click_log(pages, repeated="refuse")
    with pytest.raises(FultrError, match="document, line 4: expected different documents on a page, found one twice"):
        read_click_log(rows, repeated="refuse")


def test_columns_that_float32_cuts_are_noted(tmp_path):
    rows = "".join(f"q,{i % 2 + 1},1,d{i},{1.7e9 + i:.0f},{2000 + i}\n" for i in range(100))
    path = write(tmp_path, f"query,rank,click,document,f1,f2\n{rows}", "log.csv")
    with pytest.warns(UserWarning, match=r"log.csv, column f1: float32 leaves 2 of 100 different values") as noted:
        read_click_log(path)
    assert len(noted) == 1
    pages = "".join(f"q\td{i}\t1\t{i} {1.7e9 + i:.0f}\n" for i in range(100))
    path = write(tmp_path, f"query\tdocuments\tclicks\tfeatures\n{pages}")
    with pytest.warns(UserWarning, match=r"log.tsv, features: Column 1: float32 leaves 2 of 100 different values"):
        read_click_log(path)


def test_text_in_parquet_that_is_none(tmp_path):
    """Arrow does not look; nobody may find out later."""
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.int32([0, 2]).tobytes()), pa.py_buffer(b"\xff\xfe")]
    )
    table = pa.table({"query": broken, "documents": [["x"]], "clicks": [[1]]})
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(FultrError, match=r"log.parquet: expected a complete Parquet file: .*[uU][tT][fF]-?8"):
        read_click_log(tmp_path / "log.parquet")


def test_bad_parquet(tmp_path):
    path = tmp_path / "log.parquet"
    for columns, message in (
        ({"query": ["a"], "documents": [["x"]]}, ": expected columns query, documents and clicks; there is no clicks"),
        (
            {"query": ["a", None], "documents": [["x"]] * 2, "clicks": [[1]] * 2},
            ", row 2: expected a value in column q",
        ),
        ({"query": ["a"] * 2, "documents": [["x"], ["x", None]], "clicks": [[1], [1, 0]]}, ", row 2: expected docum"),
        ({"query": ["a"] * 2, "documents": [["x"], []], "clicks": [[1], []]}, ", row 2: expected a list of documents"),
        (
            {"query": ["a"] * 2, "documents": [["x"]] * 2, "clicks": [[1], [3]]},
            ", row 2: expected clicks of 0 or",
        ),
        ({"query": ["a"] * 2, "documents": [["x"]] * 2, "clicks": [[1], [0.5]]}, ", row 2: expected clicks of 0"),
        (
            {"query": ["a"], "documents": [[{"b": 1}]], "clicks": [[1]]},
            ": expected text or numbers in column documents",
        ),
        ({"query": [["a"]], "documents": [["x"]], "clicks": [[1]]}, ": expected text or numbers in column query"),
    ):
        pq.write_table(pa.table(columns), path)
        with pytest.raises(FultrError) as caught:
            read_click_log(path)
        assert str(caught.value).startswith(f"{path}{message}"), caught.value


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(FultrError, match="cannot be read: No such file"):
        read_click_log(tmp_path / "none.tsv")
    with pytest.raises(FultrError, match=r"it is a folder, and has no letor\.txt"):
        read_click_log(tmp_path)
    with pytest.raises(FultrError, match=r"expected a complete \.xz file"):
        read_click_log(write(tmp_path, lzma.compress(TSV.encode())[:-20], "log.tsv.xz"))


def test_long_lines_and_many_pages(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for page in range(3000):
        documents = rng.permutation(400)[: rng.integers(1, 300)]
        clicks = rng.integers(0, 2, documents.size)
        rows.append((f"q{page % 7}", [f"{d}" for d in documents], clicks.tolist()))
    text = "".join(f"{q}\t{' '.join(d)}\t{' '.join(map(str, c))}\n" for q, d, c in rows)
    assert pages_of(read_click_log(write(tmp_path, text))) == rows


def test_real_clicks(real_data):
    log = read_click_log(real_data("yandex-clicks") / "train.tsv.xz")
    assert (log.impressions, log.ranks, log.pairs, np.unique(log.queries).size) == (35_064, 10, 1_024, 20)
    assert (log.cells().ranks_of_pair() > 1).sum() == 538
    assert np.bincount(log.queries).max() / log.impressions == pytest.approx(0.57, abs=0.005)
    shown, clicked = log.cells().by_rank()
    np.testing.assert_allclose((clicked / shown)[[0, 1, 2, 9]], [0.257, 0.249, 0.170, 0.045], atol=0.0005)


@pytest.mark.parametrize(
    "text", ["query,rank,click,f1\na,1,True,1\na,2,FALSE,2\n", "query\tdocuments\tclicks\na\tx,y\ttrue,False\n"]
)
def test_clicks_may_be_true_or_false(tmp_path, text):
    (tmp_path / "log.csv").write_text(text)
    assert read_click_log(tmp_path / "log.csv").clicks.tolist() == [[1, 0]]


def test_a_column_of_features_is_named_once(tmp_path):
    (tmp_path / "log.csv").write_text("query,rank,click,f1\na,1,1,1\n")
    with pytest.raises(FultrError, match="line 1: expected different columns of features, found f1 twice"):
        read_click_log(tmp_path / "log.csv", features=["f1", "f1"])
