"""AOL4FOLTR as judged data, on made files: what was clicked is relevant, parts follow in time, users stay."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from help.commands import fultr

from fultr.core.errors import FultrError
from fultr.data.inspection import inspect
from fultr.data.layouts import load_path
from fultr.study.settings import FiniteUsers
from fultr.study.users import _own_pools

SEARCHES, USERS = 60, 6


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FULTR_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path) -> Path:
    """Search q is by user q % 6, of minute 59 - q, has 8 results and a click on number q % 8; feature 1 tells it."""
    rng = np.random.default_rng(0)
    letor, metadata = [], ["qid,user_id,timestamp,query,target_doc_id,candidate_doc_ids"]
    for q in range(SEARCHES):
        for d in range(8):
            clicked = d == q % 8
            letor.append(f"{clicked:d} qid:{q} 1:{rng.random() + clicked:.4f} 2:{rng.random():.4f} 3:nan")
        metadata.append(f"{q},u{q % USERS},2006-03-01 10:{SEARCHES - 1 - q:02}:00,some words,d{q % 8},[]")
    made = tmp_path / "aol"
    made.mkdir()
    (made / "letor.txt").write_text("\n".join(letor) + "\n")
    (made / "metadata.csv").write_text("\n".join(metadata) + "\n")
    return made


def test_searches_are_split_by_time_and_keep_their_users(folder):
    """60% of 60 searches are the 36 earliest, which have the largest numbers here."""
    for splits in (load_path(folder, cache=False), load_path(folder), load_path(folder)):  # made, stored, found
        assert splits.name == "aol"
        ids = [part.query_ids.tolist() for part in splits]
        assert ids == [[*range(24, 60)], [*range(12, 24)], [*range(12)]]
        for part in splits:
            assert part.users.tolist() == [q % USERS for q in part.query_ids]
            assert part.labels.reshape(-1, 8).argmax(axis=1).tolist() == [q % 8 for q in part.query_ids]
            assert part.labels.sum() == part.queries
            assert part.features.min() == 0  # normalised within each query
            assert part.features.max() == 1
            assert not part.features[:, 2].any()  # what is no number is 0


def test_queries_without_a_click_are_dropped_with_their_users(folder):
    text = (folder / "letor.txt").read_text()
    (folder / "letor.txt").write_text(text.replace("1 qid:59 ", "0 qid:59 "))
    train = load_path(folder).train
    assert train.query_ids.tolist() == [*range(24, 59)]
    assert train.users.tolist() == [q % USERS for q in range(24, 59)]
    assert load_path(folder, filter=False).train.queries == 36


def test_other_users_are_other_data(folder):
    first = load_path(folder).train
    metadata = folder / "metadata.csv"
    metadata.write_text(metadata.read_text().replace(",u1,", ",u2,"))
    second = load_path(folder).train
    assert np.array_equal(first.features, second.features)
    assert first.fingerprint() != second.fingerprint()


def test_searches_that_metadata_does_not_have_are_left_out(folder):
    lines = (folder / "metadata.csv").read_text().splitlines()
    (folder / "metadata.csv").write_text("\n".join(lines[:-10]))
    with pytest.warns(UserWarning, match=r"letor\.txt: left out: 10 pages whose qid metadata\.csv does not have"):
        splits = load_path(folder)
    assert [part.queries for part in splits] == [30, 10, 10]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "metadata.csv",
            "timestamp",
            "when",
            r"metadata\.csv, line 1: expected a column timestamp or time or .* by time",
        ),
        ("metadata.csv", "2006-03-01 10:58:00", "noon", r"metadata\.csv, line 3: expected a time such as .*'noon'"),
        ("metadata.csv", "\n1,", "\none,", r"metadata\.csv, line 3: expected a whole number as qid, found 'one'"),
        ("letor.txt", "0 qid:0 ", "no qid:0 ", r"letor\.txt, line 2: expected a whole grade 0 to 30, found 'no'"),
        ("letor.txt", "3:nan", "3:inf", r"letor\.txt, line 1: expected feature:value, found '3:inf' \(infinite\)"),
    ],
)
def test_bad_files_are_refused_in_a_line(folder, file, old, new, message):
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    with pytest.raises(FultrError, match=message) as caught:
        load_path(folder)
    assert "\n" not in str(caught.value)


def test_too_few_searches_and_too_little_memory(folder, monkeypatch):
    lines = (folder / "letor.txt").read_text().splitlines()
    (folder / "letor.txt").write_text("\n".join(lines[:16]))
    with pytest.raises(FultrError, match=r"letor\.txt: 2 queries are too few to split"):
        load_path(folder)
    monkeypatch.setattr("fultr.data.aol.available_memory", lambda: 300.0)  # 16 documents x 2 copies x 4 bytes x 3
    with pytest.raises(FultrError, match=r"letor\.txt: 16 documents with 3 features would take .* GB of memory"):
        load_path(folder)


def test_inspection_counts_the_parts(folder):
    found = inspect(folder)
    counts = found.counts
    assert found.verdict().startswith("6 users. AOL4FOLTR is published as 2.6 million queries of 10,000 users")
    assert [(row.part, row.queries, row.documents) for row in counts] == [
        ("train", 36, 288),
        ("valid", 12, 96),
        ("test", 12, 96),
        ("all", 60, 480),
    ]
    assert counts[-1].grades == (420, 60)


def test_clients_of_a_fixed_population_are_the_users_and_ask_their_own_queries():
    asked_by = np.repeat([7, 3, 9], [30, 20, 2])
    for users, pool in ((2, 10), (3, 20), (7, 5)):
        pools = _own_pools(FiniteUsers(users=users, pool=pool), asked_by, 0)
        assert pools.shape == (users, pool)
        owners = [set(asked_by[queries].tolist()) for queries in pools]
        assert all(len(owner) == 1 for owner in owners)  # a client's queries are all of one user
        times = np.unique([owner.pop() for owner in owners], return_counts=True)[1]
        assert times.max() - (times.min() if users >= 3 else 0) <= 1  # all of them before anyone again
        for queries in pools:
            own = np.flatnonzero(asked_by == asked_by[queries[0]]).size
            assert np.unique(queries).size == min(pool, own)  # different ones, as far as there are


def test_simulate_with_its_users(folder):
    common = ("simulate", "--data", folder, "--rounds", "2", "--clients", "4", "--json")
    done = fultr(*common, "--users", "6", "--pool", "5")
    assert done.code == 0, done.err
    assert json.loads(done.out)["settings"]["data"] == "aol"
    assert done.err == "The 6 users are drawn from the 6 of the data; each has its own queries\n"
    assert "from the 6 of the data, some or all of them more than once" in fultr(*common, "--users", "9").err
    assert fultr(*common).err == ""


def test_an_experiment_takes_the_folder_above(folder, tmp_path):
    """`--data aol=FOLDER`, with its expected time first."""
    options = ("--rounds", "2", "--repeats", "1", "--lines", "FedIPS, 10,000 users, concentration 0.1")
    done = fultr("reproduce", "population", "--list", *options, "--data", f"aol={folder.parent}", "--json")
    assert done.code == 0, done.err
    [listed] = json.loads(done.out)
    assert listed["data"] == ["aol"]
    assert listed["runs"] == 21  # 20 pairs of rates, and the repeat


def test_bad_input_ends_a_command_with_one_line_and_code_2(folder):
    (folder / "letor.txt").write_text("0 qid:1 1:1\n1 qid:1 1:x\n")
    for command in (("simulate",), ("run",), ("reproduce", "figure-1"), ("data", "clicks")):
        done = fultr(*command, "--data", folder)
        assert done.code == 2
        assert done.err == f"fultr: {folder}/letor.txt, line 2: expected feature:value, found '1:x'\n"
