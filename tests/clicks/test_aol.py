"""AOL4FOLTR, on files made after its description and the code that writes it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import fultr
from fultr.cli.main import cli
from fultr.clicks.files import read_click_log
from fultr.clicks.impressions import ImpressionLog
from fultr.core.errors import FultrError
from fultr.device.conversion import click_log_of, fill_from_click_log
from fultr.device.log import DeviceLog

LETOR = """\
0 qid:3 1:1.0 2:0.5
1 qid:3 1:2.0 2:nan
1 qid:0 1:3.0 2:0.25
0 qid:0 1:4.0 2:0.0
0 qid:7 1:5.0 2:1.5
"""
METADATA = """\
qid,user_id,timestamp,query,target_doc_id,candidate_doc_ids
0,88,2006-03-01 00:00:20,"cats, dogs",d1,"['d1', 'd2']"
3,7,1970-01-01 00:01:00,pizza,d4,"['d3', 'd4']"
7,88,2006-03-01 00:00:10,"cats, dogs",d9,"{'d2'}"
9,5,2006-03-02 00:00:00,elsewhere,d5,"['d5']"
"""
MARCH = 1141171200  # 2006-03-01 in seconds since 1970: 13,208 days

pytestmark = pytest.mark.filterwarnings("ignore:.*results are in the order of the file")


def write(folder: Path, letor: str = LETOR, metadata: str = METADATA) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "letor.txt").write_text(letor)
    (folder / "metadata.csv").write_text(metadata)
    return folder


def told(log: ImpressionLog) -> list[tuple[str, str, float | None, list[str], list[int]]]:
    times = [None] * log.impressions if log.times is None else log.times.tolist()
    return [
        (log.query_names[q], log.user_names[u], t, log.document_names[d[d >= 0]].tolist(), c[d >= 0].tolist())
        for q, u, t, d, c in zip(log.queries, log.users, times, log.documents, log.clicks, strict=True)
    ]


PAGES = [
    ("pizza", "7", 60.0, ["d3", "d4"], [0, 1]),
    ("cats, dogs", "88", MARCH + 10.0, ["7:1"], [0]),  # a set has no order, so that its documents have no ids
    ("cats, dogs", "88", MARCH + 20.0, ["d1", "d2"], [1, 0]),
]


def test_pages_are_in_order_of_time_with_users_documents_and_features(tmp_path):
    with pytest.warns(UserWarning, match="1 of 3 pages have no click; kept"):
        log = read_click_log(write(tmp_path))
    assert told(log) == PAGES
    assert [log.features[d[d >= 0]].tolist() for d in log.documents] == [
        [[1.0, 0.5], [2.0, 0.0]],  # what is no number is 0
        [[5.0, 1.5]],
        [[3.0, 0.25], [4.0, 0.0]],
    ]
    assert log.feature_names == ("f1", "f2")


@pytest.mark.filterwarnings("ignore:.*no click")
def test_it_is_said_that_ranks_are_not_those_that_users_saw(tmp_path):
    with pytest.warns(UserWarning, match="letor.txt: results are in the order of the file, not the one that users saw"):
        read_click_log(write(tmp_path))


@pytest.mark.filterwarnings("ignore:.*no click")
def test_compressed_files_parts_and_other_names_of_columns(tmp_path):
    folder = write(tmp_path)
    (folder / "letor.txt").rename(folder / "letor_100.txt")
    assert told(read_click_log(folder / "letor_100.txt")) == PAGES
    (folder / "letor_100.txt").unlink()
    (folder / "letor.txt.gz").write_bytes(gzip.compress(LETOR.encode()))
    assert told(read_click_log(folder)) == PAGES
    rest = METADATA.partition("\n")[2]
    other = "\ufeffQuery_ID,AnonID,QueryTime,raw_query,target,candidates"
    assert told(read_click_log(write(folder, metadata=f"{other}\n{rest}"))) == PAGES
    tabs = "user\tqid\n" + "".join(f"u{qid}\t{qid}\n" for qid in (0, 3, 7))
    assert told(read_click_log(write(folder, metadata=tabs))) == [
        ("qid 3", "u3", None, ["3:1", "3:2"], [0, 1]),
        ("qid 0", "u0", None, ["0:1", "0:2"], [1, 0]),
        ("qid 7", "u7", None, ["7:1"], [0]),
    ]


@pytest.mark.filterwarnings("ignore:.*no click")
def test_ids_behind_lines_and_a_query_that_reappears(tmp_path):
    letor = "# made\n0 qid:3 1:1 # x\n1 qid:0 2:1 #docid = y z\n\n1 qid:3 1:2\n0 qid:0 2:3#z\n"  # the third has no id
    log = read_click_log(write(tmp_path, letor))
    assert [each[3:] for each in told(log)] == [(["x", "d4"], [0, 1]), (["y", "z"], [1, 0])]
    assert log.features[log.documents[0]].tolist() == [[1, 0], [2, 0]]


def test_a_repeated_document_counts_as_another_with_a_note(tmp_path):
    letor = "1 qid:0 1:1 # a\n0 qid:0 1:2 # a\n1 qid:3 1:3 # b\n"
    with pytest.warns(UserWarning, match="1 page displays a document twice; its second place counts as another"):
        log = read_click_log(write(tmp_path, letor))
    assert [each[3:] for each in told(log)] == [(["b"], [1]), (["a", "a"], [1, 0])]
    assert log.features.ravel().tolist() == [1, 2, 3]
    with pytest.warns(UserWarning, match="left out"):
        assert len(told(read_click_log(tmp_path, repeated="drop"))) == 1
    with pytest.raises(FultrError, match=r"letor\.txt, qid 0: expected different documents on a page, found one twice"):
        read_click_log(tmp_path, repeated="refuse")


@pytest.mark.filterwarnings("ignore:.*no click")
def test_searches_without_metadata_or_user_are_left_out_and_counted(tmp_path):
    rest = METADATA.replace("3,7,", "4,7,").replace("7,88,", "7,,") + "0,5,2006-03-02,again,d1,[]\n"
    said = (
        "left out: 1 pages whose qid metadata.csv does not have, 1 pages without a user, 1 lines of metadata.csv whose "
        "qid an earlier one has"
    )
    with pytest.warns(UserWarning, match=said):
        log = read_click_log(write(tmp_path, metadata=rest))
    assert told(log) == PAGES[2:]
    assert log.features.tolist() == [[3.0, 0.25], [4.0, 0.0]]


@pytest.mark.parametrize(
    ("letor", "metadata", "message"),
    [
        (LETOR, "qid,who\n0,1\n", "metadata.csv, line 1: expected a column user_id or user or .*, found 'qid, who'"),
        (LETOR, "user_id\n0\n", "metadata.csv, line 1: expected a column qid or query_id, found 'user_id'"),
        (LETOR, "qid,qid,user\n", "metadata.csv, line 1: expected one column qid, found 2"),
        (LETOR, "qid,user\n0,1\n3\n", r"metadata.csv, line 3: expected 2 columns as in the first line, found 1: '3'"),
        (LETOR, "qid,user\n0,1\nx,2\n", "metadata.csv, line 3: expected a whole number as qid, found 'x'"),
        (LETOR, "qid,user,time\n0,1,noon\n", "line 2: expected a time such as .*, as time; found 'noon'"),
        (LETOR, "qid,user,time\n0,1,inf\n", "line 2: expected a time such as .*, as time; found 'inf'"),
        (LETOR, 'qid,user\n0,"1\n', "metadata.csv, line 2: expected cells with commas between them: unexpected end"),
        (LETOR, "qid,user\n5,1\n", "expected searches that .*metadata.csv has, with users; found 3 pages whose qid"),
        (LETOR, "qid,user\n", "expected searches that .*metadata.csv has, with users; found 3 pages whose qid"),
        ("0 qid:0 1:x\n", METADATA, "letor.txt, line 1: expected feature:value, found '1:x'"),
        ("0 qid:0\n", METADATA, "letor.txt: expected feature:value in some line, found none"),
        ("yes qid:0 1:1\n", METADATA, "letor.txt, line 1: expected a whole grade 0 to 30, found 'yes'"),
        ("0 qid:0 1:1\n" * 10_001, METADATA, "letor.txt, qid 0: expected at most 10,000 results, found 10,001"),
    ],
)
def test_damaged_files_are_refused_in_a_line(tmp_path, letor, metadata, message):
    with pytest.raises(FultrError, match=message):
        read_click_log(write(tmp_path, letor, metadata))


def test_bytes_that_are_no_text(tmp_path):
    folder = write(tmp_path)
    (folder / "metadata.csv").write_bytes(b"qid,user\n0,\xff\n")
    with pytest.raises(FultrError, match=r"metadata\.csv, line 2: expected UTF-8 text, found the bytes"):
        read_click_log(folder)
    (folder / "metadata.csv").unlink()
    with pytest.raises(FultrError, match=r"with letor\.txt and metadata\.csv; it is a folder, and has no metadata"):
        read_click_log(folder)


def test_more_than_fits_into_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("fultr.data.aol.available_memory", lambda: 800.0)
    with pytest.raises(FultrError, match=r"letor.txt: 5 documents with 2 features would take .* GB of memory"):
        read_click_log(write(tmp_path))  # 5 x (3 x 4 x 2 + 150) = 870 bytes


@pytest.fixture(scope="module")
def searched(tmp_path_factory) -> Path:
    """100 users who search 6 times each, and mostly click what has the largest first feature."""
    rng = np.random.default_rng(0)
    letor, metadata = [], ["qid,user_id,timestamp,query,target_doc_id,candidate_doc_ids"]
    for qid in range(600):
        x = rng.random((8, 3)) * [100, 1, 5]
        clicked = int(np.argmax(x[:, 0] + rng.normal(0, 10, 8)))
        letor += [f"{int(k == clicked)} qid:{qid} 1:{a:.3f} 2:{b:.3f} 3:{c:.3f}" for k, (a, b, c) in enumerate(x)]
        ids = [f"d{qid}_{k}" for k in range(8)]
        metadata.append(f'{qid},{qid % 100},2006-03-{1 + qid // 100:02} 10:00:00,q{qid},{ids[clicked]},"{ids}"')
    return write(tmp_path_factory.mktemp("aol"), "\n".join(letor), "\n".join(metadata))


def test_users_become_devices_with_times(searched, tmp_path):
    log = read_click_log(searched)
    paths = fill_from_click_log(log, tmp_path / "devices", normalised=False)
    assert len(paths) == 100
    with DeviceLog.open(paths[3], retention=None) as device:
        found = click_log_of(device)
    own = log.take(log.users == 3)
    assert found.times.tolist() == own.times.tolist()
    assert found.clicks.tolist() == own.clicks.tolist()
    assert np.array_equal(found.features[found.documents], own.features[own.documents])


def test_unbiased_ranker_learns_from_it_as_a_federation(searched):
    log = read_click_log(searched)
    rows = fultr.table_of(log).to_pandas()
    given = {"query": rows["query"], "rank": rows["rank"], "user": rows.user, "session": rows.session}
    ranker = fultr.UnbiasedRanker("linear", federated=True, propensity="none").fit(
        rows[["f1", "f2", "f3"]], rows.click, **given
    )
    assert ranker.report_.users == 100
    assert np.argmax(np.abs(ranker.ranker_.weights)) == 0
    assert ranker.ranker_.weights[0] > 0


def test_commands_take_the_folder(searched, tmp_path):
    """Users clicked the document with the largest first feature most of the time: its mean rank is near 1."""
    out = tmp_path / "ranker.json"
    run = CliRunner().invoke
    done = run(cli, ["train", str(searched), "-o", str(out), "--model", "linear", "--propensity", "none", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["users"] == 100
    assert fultr.Ranker.load(out).weights.argmax() == 0
    done = run(cli, ["estimate", str(searched), "--bootstrap", "0", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["log"]["impressions"] == 600
    done = run(cli, ["device", "import", str(searched), "--dir", str(tmp_path / "devices"), "--raw"])
    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "devices").glob("*.db"))) == 100
