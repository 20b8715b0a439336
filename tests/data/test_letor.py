"""The LETOR reader and writer against a plain Python parser."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fultr.core.errors import FultrError
from fultr.data.letor import reader as letor
from fultr.data.letor.reader import LetorFile, read_letor, read_letor_files
from fultr.data.letor.writer import write_letor
from fultr.data.ranking import RankingData

NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MAGIC = (b"\x1f\x8b", b"\xfd7zXZ", b"BZh", b"\x28\xb5\x2f\xfd")
COMPRESS = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FULTR_CACHE", str(tmp_path / "cache"))


def plain_read(text: bytes, merge: bool = False) -> int | list[tuple[int, int, dict[int, np.float32]]]:
    """The documents (grade, query, values by feature id) of a LETOR text, or the number of its first bad line."""
    documents: list[tuple[int, int, dict[int, np.float32]]] = []
    for number, raw in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        line, hash_sign, _ = raw.partition(b"#")
        tokens = re.split(rb"[ \t\r]+", line.strip(b" \t\r"))
        if tokens == [b""]:
            continue
        if hash_sign and line.endswith(b"."):
            return number
        if not re.fullmatch(rb"\d+", tokens[0]) or int(tokens[0]) > 30:
            return number
        query = re.fullmatch(rb"qid:(-?\d+)", tokens[1]) if len(tokens) > 1 else None
        if not query or not -(2**63) <= int(query[1]) < 2**63:
            return number
        if not merge and documents and documents[-1][1] != int(query[1]) in {document[1] for document in documents}:
            return number
        values: dict[int, np.float32] = {}
        for token in tokens[2:]:
            feature, _, value = token.partition(b":")
            if not re.fullmatch(rb"\d+", feature) or int(feature) >= 2**63 or int(feature) in values:
                return number
            if not NUMBER.fullmatch(value) or abs(float(value)) >= (2 - 2**-24) * 2.0**127:
                return number
            values[int(feature)] = np.float32(float(value))
        documents.append((int(tokens[0]), int(query[1]), values))
    first = {query: -i for i, query in reversed(list(enumerate(document[1] for document in documents)))}
    return sorted(documents, key=lambda document: -first[document[1]])


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def same(a: RankingData, b: RankingData) -> bool:
    names = ("features", "labels", "offsets", "query_ids", "feature_ids")
    return all(same_bits(getattr(a, name), getattr(b, name)) for name in names)


def assert_reads_like_plain(path: Path, text: bytes, merge: bool = False, threads: int = 1) -> None:
    path.write_bytes(text)
    expected = plain_read(text, merge)
    if isinstance(expected, int):
        with pytest.raises(FultrError) as caught:
            read_letor(path, merge=merge, threads=threads)
        assert str(caught.value).startswith(f"{path}, line {expected}: expected ")
        assert "\n" not in str(caught.value)
        return
    ids = sorted({feature for _, _, values in expected for feature in values})
    if not ids:
        with pytest.raises(FultrError, match=r": expected (documents|feature:value in some line), found "):
            read_letor(path, merge=merge, threads=threads)
        return
    data = read_letor(path, merge=merge, threads=threads)
    features = np.array([[values.get(feature, 0) for feature in ids] for _, _, values in expected], np.float32)
    assert same_bits(data.features, features)
    assert data.feature_ids.tolist() == ids
    assert data.labels.tolist() == [grade for grade, _, _ in expected]
    assert np.repeat(data.query_ids, np.diff(data.offsets)).tolist() == [query for _, query, _ in expected]
    assert data.queries == len({query for _, query, _ in expected})


GOOD = b"""# a comment
2 qid:10 1:0.5 3:-2e-3 # doc 1
0 qid:10 3:7 1:.5

\t1 \tqid:-4\t2:5.   7:+1E2 \t
  # another
30 qid:9223372036854775807 9223372036854775807:1 0:0.1
0 qid:-9223372036854775808
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("piece", [1, 40, 4 << 20])
@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        GOOD.rstrip(b"\n"),
        b"\xef\xbb\xbf" + GOOD,
        b"\xef\xbb\xbf1 qid:1 1:1",
        b"1 qid:1 1:2#glued comment\n",
        b"1 qid:1 1:1 \xff",
        b"1 qid:1 1:1 # \xff\x00\n",
        b"\n\n\n",
        b"\xef\xbb\xbf",
        b"1 qid:1\n",
    ],
)
def test_reads_like_the_plain_parser(tmp_path, monkeypatch, text, piece, threads):
    monkeypatch.setattr(letor, "_PIECE_BYTES", piece)
    assert_reads_like_plain(tmp_path / "data.txt", text, threads=threads)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x qid:1 1:1", "expected a whole grade 0 to 30, found 'x'"),
        ("31 qid:1 1:1", "expected a whole grade 0 to 30, found '31'"),
        ("-1 qid:1 1:1", "expected a whole grade 0 to 30, found '-1'"),
        ("1.5 qid:1 1:1", "expected a whole grade 0 to 30, found '1.5'"),
        ("99999999999999999999999 qid:1", "expected a whole grade 0 to 30, found '99999999999999999999999'"),
        ("1 1:1", "expected qid:N with a 64-bit whole number N, found '1:1'"),
        ("1", "expected qid:N with a 64-bit whole number N, found the end of the line"),
        ("1 # qid:1", "expected qid:N with a 64-bit whole number N, found the end of the line"),
        ("1 qid:", "expected qid:N with a 64-bit whole number N, found 'qid:'"),
        ("1 qid:x7", "expected qid:N with a 64-bit whole number N, found 'qid:x7'"),
        (f"1 qid:{2**63}", f"expected qid:N with a 64-bit whole number N, found 'qid:{2**63}'"),
        (f"1 qid:{-(2**63) - 1}", f"expected qid:N with a 64-bit whole number N, found 'qid:{-(2**63) - 1}'"),
        ("1 qid:5 3:x", "expected feature:value, found '3:x'"),
        ("1 qid:5 3:", "expected feature:value, found '3:'"),
        ("1 qid:5 3", "expected feature:value, found '3'"),
        ("1 qid:5 :3", "expected feature:value, found ':3'"),
        ("1 qid:5 -3:1", "expected feature:value, found '-3:1'"),
        ("1 qid:5 3:1:2", "expected feature:value, found '3:1:2'"),
        ("1 qid:5 3: 1", "expected feature:value, found '3:'"),
        ("1 qid:5 3:nan 4 1:2 1:3", "expected feature:value, found '3:nan' (not a number)"),
        ("1 qid:5 3:1_0", "expected feature:value, found '3:1_0'"),
        ("1 qid:5 3:0x1p3", "expected feature:value, found '3:0x1p3'"),
        ("1 qid:5 3:1e", "expected feature:value, found '3:1e'"),
        ("1 qid:5 3:.", "expected feature:value, found '3:.'"),
        ("1 qid:5 3:ä", "expected feature:value, found '3:ä'"),
        (f"1 qid:5 {2**63}:1", f"expected feature:value, found '{2**63}:1'"),
        ("1 qid:5 3:" + "y" * 99, "expected feature:value, found '3:" + "y" * 58 + "...'"),
        ("1 qid:5 3:nan", "expected feature:value, found '3:nan' (not a number)"),
        ("1 qid:5 3:-NaN", "expected feature:value, found '3:-NaN' (not a number)"),
        ("1 qid:5 3:-1.#IND", "expected feature:value, found '3:-1.#IND' (not a number)"),
        ("1 qid:5 3:1.#QNAN", "expected feature:value, found '3:1.#QNAN' (not a number)"),
        ("1 qid:5 3:inf", "expected feature:value, found '3:inf' (infinite)"),
        ("1 qid:5 3:-Infinity", "expected feature:value, found '3:-Infinity' (infinite)"),
        ("1 qid:5 3:1.#INF", "expected feature:value, found '3:1.#INF' (infinite)"),
        ("1 qid:5 3:1e39", "expected feature:value, found '3:1e39' (beyond float32)"),
        ("1 qid:5 3:-3.4028236e38", "expected feature:value, found '3:-3.4028236e38' (beyond float32)"),
        ("1 qid:5 3:1e999999999999999999999", "found '3:1e999999999999999999999' (beyond float32)"),
        ("1 qid:5 3:1.79769313486232e+308", "found '3:1.79769313486232e+308' (beyond float32)"),
        ("1 qid:5 1:1 3:1 1:2", "expected each feature once, found '1:2'"),
        ("1 qid:5 5000:1 1:1 5000:2", "expected each feature once, found '5000:2'"),
        ("1 qid:1 1:1", "expected the documents of a query to be adjacent, found query 1 of line 2 again"),
        ("1 qid:5 3:1\x00", "expected text, found bytes b'3:1\\x00'"),
        ("\x00\x01", "expected text, found bytes b'\\x00\\x01'"),
    ],
)
@pytest.mark.parametrize("piece", [1, 4 << 20])
def test_malformed_line(tmp_path, monkeypatch, line, message, piece):
    monkeypatch.setattr(letor, "_PIECE_BYTES", piece)
    path = tmp_path / "data.txt"
    # Line 6 is bad; so are later ones, which must not be reported.
    path.write_text(f"# c\n1 qid:1 1:1\n\n0 qid:2 1:5 2:6\n0 qid:5 2:1\n{line}\n0 qid:8 1:z\n7 q\n0 qid:2 1:1", "utf-8")
    with pytest.raises(FultrError) as caught:
        read_letor(path)
    text = str(caught.value)
    assert text.startswith(f"{path}, line 6: expected ")
    assert message in text
    assert "\n" not in text


def test_bad_files(tmp_path):
    def error(path: Path) -> str:
        with pytest.raises(FultrError) as caught:
            read_letor(path)
        assert str(caught.value).startswith(str(path))
        return str(caught.value).removeprefix(f"{path}: ")

    assert error(tmp_path / "missing.txt") == "cannot be read: No such file or directory"
    assert error(tmp_path) == "cannot be read: Is a directory"
    (tmp_path / "empty.txt").touch()
    assert error(tmp_path / "empty.txt") == "expected documents, found an empty file"
    (tmp_path / "utf16.txt").write_text("1 qid:1 1:1", "utf-16")
    assert "line 1: expected text, found bytes" in error(tmp_path / "utf16.txt")
    for suffix, compress in COMPRESS.items():
        packed = compress(GOOD * 100)
        path = tmp_path / f"data{suffix}"
        broken = bytearray(packed)
        broken[len(packed) // 2] ^= 0xFF
        for bad in (packed[:-9], packed[:11], b"junk" * 9, bytes(broken)):
            path.write_bytes(bad)
            if suffix == ".zst" and bad == bytes(broken):
                continue  # written without a checksum: not every change can be noticed
            assert "damaged or truncated" in error(path), (suffix, bad)
        path.write_bytes(compress(b""))
        assert error(path) == "expected documents, found an empty file"


def test_too_many_features(tmp_path, monkeypatch):
    path = tmp_path / "data.txt"
    path.write_text("".join(f"1 qid:1 {i * 10**12}:1\n" for i in range(1000)))
    monkeypatch.setattr(letor, "available_memory", lambda: 1e6)
    with pytest.raises(
        FultrError, match=r"1,000 documents with 1,000 distinct feature ids would take 0\.0 GB of memory"
    ):
        read_letor(path)
    assert read_letor(path, feature_ids=[0, 10**12]).width == 2


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("named", [True, False])
def test_compressed_reads_like_plain(tmp_path, suffix, named):
    (tmp_path / "plain.txt").write_bytes(GOOD)
    packed = tmp_path / ("data.txt" + suffix if named else "data.txt")
    packed.write_bytes(COMPRESS[suffix](GOOD[:50]) + COMPRESS[suffix](GOOD[50:]))  # two members in one file
    assert same(read_letor(packed), read_letor(tmp_path / "plain.txt"))
    assert not list(tmp_path.glob("cache/*"))
    packed.write_bytes(COMPRESS[suffix](GOOD + b"oops\n"))
    with pytest.raises(FultrError, match=r"line 9: expected a whole grade 0 to 30, found 'oops'"):
        read_letor(packed)


def test_merge_gathers_a_query_where_it_came_first(tmp_path, monkeypatch):
    monkeypatch.setattr(letor, "_PIECE_BYTES", 30)
    rng = np.random.default_rng(1)
    lines = [f"{i % 3} qid:{rng.integers(-3, 3)} {rng.integers(1, 5)}:{i}" for i in range(200)]
    for threads in (1, 2):
        assert_reads_like_plain(tmp_path / "data.txt", "\n".join(lines).encode(), merge=True, threads=threads)


def test_given_feature_ids(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("1 qid:1 2:5 4:6 9000:7\n0 qid:1 4:8\n")
    data = read_letor(path, feature_ids=[1, 4, 9000, 9001])
    assert data.features.tolist() == [[0, 6, 7, 0], [0, 8, 0, 0]]
    assert data.feature_ids.tolist() == [1, 4, 9000, 9001]
    with pytest.raises(FultrError, match="feature_ids: expected ascending ids"):
        read_letor(path, feature_ids=[4, 1])
    path.write_text("1 qid:1 2:5 4:6 2:1\n")  # what is ignored is checked all the same
    with pytest.raises(FultrError, match="line 1: expected each feature once"):
        read_letor(path, feature_ids=[4])


def test_several_files_share_their_columns(tmp_path):
    (tmp_path / "a.txt").write_text("1 qid:1 7:1\n")
    (tmp_path / "b.txt").write_text("1 qid:1 5000:2 3:4\n")
    a, b = read_letor_files([tmp_path / "a.txt", tmp_path / "b.txt"])
    assert a.feature_ids.tolist() == b.feature_ids.tolist() == [3, 7, 5000]
    assert a.features.tolist() == [[0, 1, 0]]
    assert b.features.tolist() == [[4, 0, 2]]


def test_sentinels(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text(
        "1 qid:1 1:1.79769313486232e+308 2:NULL 3:-999 4:-999.0 5:-9.99e2 6:-999.0001 7:1.79769313486232E308\n"
    )
    data = read_letor(path, sentinel=["1.79769313486232e+308", "NULL", "-999"])
    assert data.features.tolist() == [[0, 0, 0, 0, 0, float(np.float32(-999.0001)), 0]]
    path.write_text("1 qid:1 1:nan 2:5 3:0.1000000000000000055511151231257827\n")
    assert read_letor(path, sentinel=("nan", "0.1")).features.tolist() == [[0, 5, 0]]
    with pytest.raises(FultrError, match=r"found '1:nan' \(not a number\)"):
        read_letor(path, sentinel="5")
    with pytest.raises(FultrError, match="sentinel: expected text without blanks or #, found ''"):
        read_letor(path, sentinel="")


def write_numbers(path: Path, texts: list[str]) -> np.ndarray:
    path.write_text("".join(f"0 qid:1 1:{text}\n" for text in texts))
    return read_letor(path).features[:, 0]


def test_numbers_round_like_python(tmp_path):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 0x7F7FFFFF, 1500, dtype=np.uint32)
    bits[:6] = 0, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFE, 0x3F800000
    texts = []
    for value in bits.view(np.float32):
        half = (Decimal(float(value)) + Decimal(float(np.nextafter(value, np.float32(np.inf))))) / 2
        texts += [f"{half:f}", f"{half:e}", f"-{half}", f"{half:.17e}", f"{half:.25e}", f"{half:.15e}"]
        texts += [
            f"{half}1" if "." in str(half) and "E" not in str(half) else f"{half}",
            repr(float(value)),
            str(value),
        ]
    texts += [f"{m}e{e}" for m in ("1", "9007199254740993", "0.000", "123456789.123456789") for e in range(-400, 20, 7)]
    texts += ["0" * 400 + "1." + "0" * 400 + "1", "1" + "0" * 38, "0." + "0" * 60 + "1e50", "-0", "-0.0e9", "+.5", "5."]
    texts = [text for text in texts if abs(float(text)) < (2 - 2**-24) * 2.0**127]
    with np.errstate(all="ignore"):
        expected = np.array([np.float32(float(text)) for text in texts])
    assert same_bits(write_numbers(tmp_path / "data.txt", texts).copy(), expected)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.from_regex(rb"\A[+-]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][+-]?[0-9]{1,3})?\Z"), min_size=1)
)
def test_any_number_reads_like_the_plain_parser(tmp_path_factory, values):
    text = b"".join(b"1 qid:1 4:%s\n" % value for value in values)
    assert_reads_like_plain(tmp_path_factory.getbasetemp() / "numbers.txt", text)


TOKENS = st.one_of(
    st.sampled_from(
        b"0 1 31 qid:1 qid:2 qid:-3 qid: q qid 1:1 2:0.5 2:-0 3:1e-50 3:1e50 4:nan 9:5. : 1: 5:1.#".split()
    ),
    st.sampled_from([b"#", b"# x", b"\r", b"\t", b"\x00", b".#"]),
    st.builds(lambda f, v: b"%d:%d" % (f, v), st.integers(0, 2**64), st.integers(-9, 9)),
    st.binary(max_size=4),
)
DOCUMENTS = st.builds(
    lambda grade, query, values: b" ".join(
        [b"%d qid:%d" % (grade, query), *(b"%d:%s" % (f, repr(v).encode()) for f, v in values.items())]
    ),
    st.integers(0, 30),
    st.integers(1, 3),
    st.dictionaries(st.integers(0, 9) | st.integers(4090, 2**63 - 1), st.floats(width=32, allow_nan=False), max_size=4),
)
LINES = st.one_of(DOCUMENTS, DOCUMENTS, DOCUMENTS, st.lists(TOKENS, max_size=6).map(b" ".join))


@settings(max_examples=400, deadline=None)
@given(st.lists(LINES, max_size=8).map(b"\n".join), st.booleans(), st.sampled_from([1, 2]))
@example(b"0 qid:1 1:z\n0 qid:2\n0 qid:1", False, 1)
def test_fuzzed_lines(tmp_path_factory, text, merge, threads):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor, "_PIECE_BYTES", 16)
        if text and not text.startswith(MAGIC):
            assert_reads_like_plain(tmp_path_factory.getbasetemp() / "fuzz.txt", text, merge, threads)


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=300), st.sampled_from(["", *COMPRESS]))
def test_fuzzed_bytes(tmp_path_factory, text, suffix):
    path = tmp_path_factory.getbasetemp() / f"bytes.txt{suffix}"
    assume(suffix or not text.startswith(MAGIC))
    if not suffix:
        assert_reads_like_plain(path, text)
        return
    path.write_bytes(text)
    with pytest.raises(FultrError):
        read_letor(path)


def test_letor_file_without_features_needs_no_columns(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(GOOD)
    data = LetorFile(path).read([])
    assert data.features.shape == (5, 0)
    assert data.labels.tolist() == [2, 0, 1, 30, 0]


def random_data(rng: np.random.Generator, documents: int, width: int) -> RankingData:
    bits = rng.integers(0, 2**32, (documents, width), dtype=np.uint32)
    features = bits.view(np.float32)
    features[~np.isfinite(features)] = np.float32(0.1)
    features[rng.random(features.shape) < 0.3] = 0
    features[:: max(1, documents // 3), 0] = np.round(rng.random(features[:: max(1, documents // 3), 0].size), 3)
    queries = rng.permutation(np.arange(documents) // 3 - 5)
    data = RankingData.from_arrays(features, rng.integers(0, 31, documents), np.sort(queries))
    ids = np.sort(rng.choice(10**6, width, replace=False)).astype(np.int64)
    return RankingData(data.features, data.labels, data.offsets, data.query_ids, ids)


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_round_trip_keeps_every_bit(tmp_path, suffix):
    rng = np.random.default_rng(3)
    data = random_data(rng, 400, 37)
    data.features[:, 5] = 0
    data.features[:, 6] = -0.0
    data.features[7] = 0
    special = [
        np.finfo(np.float32).max,
        np.finfo(np.float32).tiny,
        1e-45,
        -1e-45,
        16777216.0,
        123456.789,
        1e9,
        1e15,
        9.9999998e9,
    ]
    data.features[8, : len(special)] = special
    data.query_ids[-1] = 2**63 - 1
    data.query_ids[0] = -(2**63)
    path = tmp_path / f"data.txt{suffix}"
    write_letor(data, path)
    assert same(read_letor(path), data)
    first = path.read_bytes()
    write_letor(data, path, threads=1)
    assert path.read_bytes() == first
    assert [file.name for file in tmp_path.glob("*data*")] == [path.name]


def test_round_trip_of_many_bit_patterns_in_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("fultr.data.letor.writer._BLOCK_BYTES", 100_000)
    data = random_data(np.random.default_rng(4), 5000, 60)
    write_letor(data, tmp_path / "data.txt", threads=2)
    one, two = (read_letor(tmp_path / "data.txt", threads=threads) for threads in (1, 2))
    assert same(one, data)
    assert same(two, data)


def test_written_text_is_short_where_it_can_be(tmp_path):
    features = [[0.25, 0.1, -3, 1e-6, 1.1e-7, 1e20, 0]]
    write_letor(RankingData.from_arrays(features, [1], [12]), tmp_path / "data.txt")
    expected = "1 qid:12 1:0.25 2:0.1 3:-3 4:0.000001 5:1.10000002e-7 6:1.00000002e20 7:0\n"
    assert (tmp_path / "data.txt").read_text() == expected


def test_what_cannot_be_written(tmp_path):
    data = RankingData.from_arrays([[1.0], [2.0]], [1, 0], [1, 2])
    path = tmp_path / "data.txt"
    path.write_text("before")
    data.features[1, 0] = np.nan
    with pytest.raises(FultrError, match="expected finite features"):
        write_letor(data, path)
    data.features[1, 0] = 1
    data.query_ids[:] = 1
    with pytest.raises(FultrError, match="expected distinct query ids"):
        write_letor(data, path)
    data.query_ids[:] = 1, 2
    data.labels[0] = 31
    with pytest.raises(FultrError, match="expected grades 0 to 30"):
        write_letor(data, path)
    data.labels[0] = 0
    with pytest.raises(FultrError, match="cannot be written: No such file or directory"):
        write_letor(data, tmp_path / "nowhere" / "data.txt")
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["data.txt"]


MEASURE = """
import sys
from pathlib import Path
from fultr.data.layouts import load_path

def status(field):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field)) * 1024

load_path(sys.argv[1])  # compile and load everything that is needed
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = status("VmRSS")
splits = load_path(sys.argv[2], cache=len(sys.argv) < 4)
print(status("VmHWM") - before)
"""


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures memory through /proc")
@pytest.mark.parametrize("options", [[], ["no cache"]])
def test_memory_peak_of_reading_filtering_and_normalising(tmp_path, options):
    rng = np.random.default_rng(5)
    features = rng.random((60_000, 220), np.float32)
    data = RankingData.from_arrays(features, rng.integers(0, 2, 60_000), np.arange(60_000) // 6)
    for name, chosen in (("small", data.take(range(10))), ("large", data)):
        folder = tmp_path / name
        folder.mkdir()
        for part in ("train.txt", "vali.txt", "test.txt"):
            write_letor(chosen if part == "train.txt" else chosen.take(range(5)), folder / part)
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "small"), str(tmp_path / "large"), *options]
    growth = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert 0.9 * features.nbytes < growth < 1.5 * features.nbytes
