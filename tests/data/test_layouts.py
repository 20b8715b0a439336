"""Known layouts of data sets, what is done to them on loading, and the comparison with published figures."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from fultr.core.errors import FultrError
from fultr.data import layouts
from fultr.data.inspection import PUBLISHED, inspect
from fultr.data.layouts import find_layout, load_path
from fultr.data.letor.reader import read_letor, read_letor_files
from fultr.data.letor.writer import write_letor
from fultr.data.ranking import RankingData
from fultr.rankers.metrics import default_relevant_grade

ARRAYS = ("features", "labels", "offsets", "query_ids", "feature_ids")
PLAIN = ("train.txt", "vali.txt", "test.txt")
YAHOO = ("set1.train.txt", "set1.valid.txt", "set1.test.txt")
REAL = Path(os.environ.get("FULTR_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FULTR_CACHE", str(tmp_path / "cache"))


def some_data(seed: int, queries: int = 12, width: int = 4) -> RankingData:
    rng = np.random.default_rng(seed)
    query_ids = np.repeat(np.arange(queries), rng.integers(2, 6, queries))
    features = rng.normal(size=(query_ids.size, width)) * (rng.random((query_ids.size, width)) < 0.7)
    return RankingData.from_arrays(features, rng.integers(0, 2, query_ids.size), query_ids)


def make_folder(folder: Path, names=PLAIN, width: int = 4) -> Path:
    folder.mkdir(parents=True)
    for seed, name in enumerate(names):
        write_letor(some_data(seed, width=width), folder / name)
    return folder


def same(a: RankingData, b: RankingData) -> bool:
    return all(getattr(a, name).tobytes() == getattr(b, name).tobytes() for name in ARRAYS)


@pytest.mark.parametrize(
    ("inside", "names", "name"),
    [
        ("", YAHOO, "yahoo"),
        ("", [name + ".gz" for name in YAHOO], "yahoo"),
        ("", PLAIN, "some"),
        ("", ("train.txt.xz", "valid.txt", "test.txt.zst"), "some"),
        ("sample", PLAIN, "istella"),
        ("Fold1", PLAIN, "some/Fold1"),
        ("Fold3", PLAIN, "some/Fold3"),
    ],
)
def test_recognised_by_file_names(tmp_path, inside, names, name):
    folder = make_folder(tmp_path / "some" / inside, names)
    layout = find_layout(tmp_path / "some", fold=3 if inside == "Fold3" else 1)
    assert layout.name == name
    assert layout.files == tuple(folder / name for name in names)


@pytest.mark.parametrize(
    ("given", "inside", "names", "name"),
    [
        ("Webscope_C14B", "ltrc_yahoo", YAHOO, "yahoo"),
        ("data", "Learning to Rank Challenge/ltrc_yahoo", [name + ".gz" for name in YAHOO], "yahoo"),
        ("istella-s-letor", "sample", PLAIN, "istella"),
        ("istella-s-letor/sample", "", PLAIN, "istella"),
        ("downloads", "istella-letor/full", ("train.txt", "test.txt"), "istella"),
        ("data", "MSLR-WEB30K/Fold1", PLAIN, "MSLR-WEB30K/Fold1"),
        ("MSLR-WEB10K/Fold4", "", PLAIN, "MSLR-WEB10K/Fold4"),
        ("LETOR4.0", "MQ2007/Fold1", PLAIN, "MQ2007/Fold1"),
        ("aol4foltr", "dataset", ("letor.txt.gz", "metadata.csv"), "aol"),
        ("aol4foltr", "", ("letor.txt", "metadata.csv"), "aol"),
    ],
)
def test_recognised_from_the_folder_above_and_from_the_one_below(tmp_path, given, inside, names, name):
    folder = tmp_path / given / inside
    folder.mkdir(parents=True)
    for file in names:
        (folder / file).touch()
    layout = find_layout(tmp_path / given)
    assert layout.name == name
    assert [*layout.files, *([layout.searches] if layout.searches else [])] == [folder / file for file in names]


def test_a_file_of_aol_with_its_metadata_beside_it(tmp_path):
    for name in ("letor_100.txt", "metadata.csv"):
        (tmp_path / name).touch()
    layout = find_layout(tmp_path / "letor_100.txt")
    assert (layout.name, layout.files, layout.searches) == (
        "aol",
        (tmp_path / "letor_100.txt",),
        tmp_path / "metadata.csv",
    )


def test_istella_is_recognised_by_its_features_too(tmp_path):
    assert find_layout(make_folder(tmp_path / "a", width=220)).name == "istella"
    assert find_layout(make_folder(tmp_path / "b", ["train.txt.bz2", *PLAIN[1:]], width=220)).name == "istella"
    assert find_layout(make_folder(tmp_path / "c", width=221)).name == "c"


def test_what_is_not_recognised(tmp_path):
    with pytest.raises(FultrError, match="no such file or folder"):
        load_path(tmp_path / "nowhere")
    make_folder(tmp_path / "a", PLAIN[:2])
    with pytest.raises(FultrError, match=r"a: expected set1\.train\.txt, .*, or train\.txt, vali\.txt") as caught:
        load_path(tmp_path / "a")
    assert "\n" not in str(caught.value)
    make_folder(tmp_path / "b" / "Fold1")
    with pytest.raises(FultrError, match=r"Fold2: expected train\.txt"):
        load_path(tmp_path / "b", fold=2)
    with pytest.raises(FultrError, match="expected a folder Fold2, found no folds"):
        load_path(make_folder(tmp_path / "c"), fold=2)


def test_several_data_sets_part_of_one_and_archives_are_refused_in_words(tmp_path):
    for name in ("MSLR-WEB10K/Fold1", "MQ2007/Fold1"):
        make_folder(tmp_path / "many" / name)
    with pytest.raises(FultrError, match=r"many: expected the folder of one data set, found 2 in it: MQ2007, MSLR"):
        find_layout(tmp_path / "many")
    make_folder(tmp_path / "part", PLAIN[:2])
    make_folder(tmp_path / "part" / "old")  # whole, but not what was meant
    with pytest.raises(FultrError, match=r"found only train\.txt, vali\.txt$"):
        find_layout(tmp_path / "part")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "ltrc_yahoo.tgz").touch()
    with pytest.raises(FultrError, match=r"found no such files; unpack ltrc_yahoo\.tgz first"):
        find_layout(tmp_path / "packed")
    with pytest.raises(FultrError, match=r"ltrc_yahoo\.tgz: .* found an archive: unpack it, and give its folder"):
        load_path(tmp_path / "packed" / "ltrc_yahoo.tgz")


@pytest.mark.parametrize(("top", "relevant"), [(4, 3), (2, 1), (1, 1)])
def test_which_grades_count_as_relevant(tmp_path, top, relevant):
    """3 and 4 of five grades, 1 and 2 of three, a click of AOL4FOLTR."""
    lines = [f"{grade} qid:{q} 1:{grade}\n" for q in range(9) for grade in range(top + 1)]
    (tmp_path / "some.txt").write_text("".join(lines))
    assert default_relevant_grade(load_path(tmp_path / "some.txt").train) == relevant


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_cached_and_uncached_are_what_the_steps_give(tmp_path, monkeypatch, normalise, keep):
    folder = make_folder(tmp_path / "some")
    expected = read_letor_files([folder / name for name in PLAIN])
    expected = [data.filter() if keep else data for data in expected]
    expected = [data.normalise() if normalise else data for data in expected]
    uncached = load_path(folder, normalise=normalise, filter=keep, cache=False)
    first = load_path(folder, normalise=normalise, filter=keep, threads=1)
    monkeypatch.setattr(layouts, "read_letor_files", None)  # the second load must not read
    second = load_path(folder, normalise=normalise, filter=keep, threads=2)
    for found in (uncached, first, second):
        assert all(same(a, b) for a, b in zip(found, expected, strict=True))
        assert found.name == "some"


def test_a_changed_file_is_read_again(tmp_path):
    folder = make_folder(tmp_path / "some")
    load_path(folder)
    write_letor(some_data(9), folder / "train.txt")
    assert same(load_path(folder).train, load_path(folder, cache=False).train)


def test_plain_and_compressed_are_the_same(tmp_path):
    plain, packed = make_folder(tmp_path / "a"), tmp_path / "b"
    packed.mkdir()
    for name in PLAIN:
        (packed / f"{name}.gz").write_bytes(gzip.compress((plain / name).read_bytes()))
    assert all(same(a, b) for a, b in zip(load_path(plain), load_path(packed), strict=True))


def test_a_single_file_is_split_by_query(tmp_path):
    file = tmp_path / "all.txt.gz"
    write_letor(some_data(0, queries=50), file)
    parts = load_path(file, filter=False, normalise=False)
    assert [part.queries for part in parts] == [30, 10, 10]
    assert sorted(query for part in parts for query in part.query_ids.tolist()) == list(range(50))
    assert all(same(a, b) for a, b in zip(parts, read_letor(file).split((0.6, 0.2, 0.2), 0), strict=True))
    assert not same(load_path(file, filter=False, normalise=False, seed=1).train, parts.train)
    (tmp_path / "tiny.txt").write_text("0 qid:1 1:1\n1 qid:1 1:2\n")
    with pytest.raises(FultrError, match=r"tiny\.txt: 1 queries are too few to split"):
        load_path(tmp_path / "tiny.txt")
    (tmp_path / "flat.txt").write_text("1 qid:1 1:1\n1 qid:1 1:2\n")
    with pytest.raises(FultrError, match=r"flat\.txt: every query has documents of only one grade"):
        load_path(tmp_path / "flat.txt")


def test_sentinel_of_istella_and_of_others(tmp_path):
    for folder in ("istella-s", "other"):
        make_folder(tmp_path / folder)
        (tmp_path / folder / "test.txt").write_text("0 qid:1 1:1.79769313486232e+308 2:1\n1 qid:1 1:-1\n")
    test = load_path(tmp_path / "istella-s", normalise=False).test
    assert test.features[:, :2].tolist() == [[0, 1], [-1, 0]]
    with pytest.raises(FultrError, match=r"test\.txt, line 1: expected .* \(beyond float32\)"):
        load_path(tmp_path / "other")
    with pytest.raises(FultrError, match="beyond float32"):
        load_path(tmp_path / "istella-s", sentinel=None)
    assert load_path(tmp_path / "other", sentinel="1.79769313486232e+308").name == "other"


def test_inspection_counts(tmp_path):
    folder = make_folder(tmp_path / "some")
    found = inspect(folder)
    parts = read_letor_files([folder / name for name in PLAIN])
    for row, data in zip(found.counts[:3], parts, strict=True):
        kept = data.filter()
        assert (row.queries, row.documents, row.features) == (data.queries, data.documents, 4)
        assert (row.kept_queries, row.kept_documents) == (kept.queries, kept.documents)
        assert row.grades == data.describe().grades
    total = found.counts[3]
    assert (total.part, total.queries) == ("all", 36)
    assert total.documents == sum(data.documents for data in parts)
    assert total.documents_per_query == total.documents / 36
    assert sum(total.grades) == total.documents
    assert found.compared_with is None
    assert found.verdict().startswith("No published counts")
    assert {len(row) for row in found.counts_table()} == {9}
    json.dumps(found.as_dict())


def test_inspection_of_a_single_file_and_of_a_bad_one(tmp_path):
    write_letor(some_data(0), tmp_path / "all.txt")
    assert [row.part for row in inspect(tmp_path / "all.txt").counts] == ["all"]
    (tmp_path / "all.txt").write_text("0 qid:1 1:nan\n")
    with pytest.raises(FultrError, match=r"line 1: .*not a number"):
        inspect(tmp_path / "all.txt")


def write_counts(folder: Path, names, features: int, queries, kept: int | None = None) -> Path:
    """Files with the given numbers of queries and two documents each; `kept` of the first file's differ in grade."""
    folder.mkdir(parents=True)
    last = f"{features}:1"
    for part, (name, count) in enumerate(zip(names, queries, strict=True)):
        lines = [f"0 qid:{q}\n{int(part == 0 and q < (kept or 0))} qid:{q} 1:1" for q in range(count)]
        ids = " ".join(f"{i}:1" for i in range(2, features))
        (folder / name).write_text("\n".join([*lines, f"0 qid:{count - 1} 1:1 {ids} {last}"]))
    return folder


def test_yahoo_is_compared_with_the_paper(tmp_path):
    found = inspect(write_counts(tmp_path / "some", YAHOO, 519, (19_944, 2_994, 6_983), kept=14_377))
    assert found.compared_with == "Yahoo LTRC set 1"
    verdicts = {(row.part, row.figure): row.agrees for row in found.comparisons}
    assert verdicts[("train", "queries")]
    assert verdicts[("all", "features")]
    assert verdicts[("train", "queries kept")]
    assert not verdicts[("train", "documents")]
    assert not verdicts[("train", "documents per query kept")]
    assert ("all", "queries kept") not in verdicts
    assert found.verdict() == (
        "5 of 11 counts differ from those published for Yahoo LTRC set 1, the most similar known data set."
    )


@pytest.mark.parametrize(("fold", "figures"), [(1, 9), (2, 3)])
def test_the_nearest_known_data_set_and_its_folds(tmp_path, fold, figures):
    for name, features, queries, expected in (
        ("a", 46, (900, 300, 300), "MQ2007"),
        ("b", 46, (500, 200, 200), "MQ2008"),
        ("c", 136, (600, 200, 200), "MSLR-WEB10K"),
        ("d", 220, (60, 20, 20), "Istella-S"),
        ("e", 45, (60, 20, 20), None),
    ):
        write_counts(tmp_path / name / f"Fold{fold}", PLAIN, features, queries)
        for source, chosen in ((tmp_path / name, fold), (tmp_path / name / f"Fold{fold}", 1)):
            found = inspect(source, fold=chosen)
            assert found.compared_with == expected
            if expected in ("MQ2007", "MQ2008", "MSLR-WEB10K"):
                assert len(found.comparisons) == figures


def test_published_totals():
    totals = {row.name: (sum(row.queries), sum(row.documents)) for row in PUBLISHED}
    assert totals["Istella-S"] == (33_018, 3_408_630)
    assert totals["MSLR-WEB10K"] == (10_000, 1_200_192)
    assert totals["MSLR-WEB30K"] == (31_531, 3_771_125)
    assert totals["MQ2007"] == (1_692, 69_623)
    assert totals["MQ2008"] == (784, 15_211)


@pytest.mark.skipif(not (REAL / "mq2008").is_dir(), reason="needs real data: mq2008 in $FULTR_DATA")
def test_mq2008_has_the_published_counts():
    found = inspect(REAL / "mq2008")
    assert found.verdict() == "All 9 counts agree with those published for MQ2008."
    assert [row[-1] for row in found.comparison_table()[1:]] == ["agrees"] * 9
    splits = load_path(REAL / "mq2008")
    assert [part.queries for part in splits] == [row.kept_queries for row in found.counts[:3]]
    assert all(part.features.min() == 0 and part.features.max() == 1 for part in splits)


@pytest.mark.skipif(not (REAL / "mq2007").is_dir(), reason="needs real data: mq2007 in $FULTR_DATA")
def test_mq2007_without_some_documents_is_told_apart():
    found = inspect(REAL / "mq2007")
    verdicts = {(row.part, row.figure): row.agrees for row in found.comparisons}
    assert found.compared_with == "MQ2007"
    assert verdicts[("all", "queries")]
    assert verdicts[("all", "documents")] == (found.counts[-1].documents == 69_623)


def test_a_folder_without_a_file_for_validation(tmp_path):
    """A fifth of the training queries stands in for it, and a warning says so; the same ones every time."""
    for name, queries in (("train.txt", range(10)), ("test.txt", range(10, 14))):
        lines = [f"{grade} qid:{q} 1:{q + grade}\n" for q in queries for grade in (0, 2)]
        (tmp_path / name).write_text("".join(lines))
    with pytest.warns(UserWarning, match=r"there is no vali.txt or valid.txt; 20% of the training queries are taken"):
        found = load_path(tmp_path, cache=False)
    assert [part.queries for part in found] == [8, 2, 4]
    assert sorted(found.train.query_ids.tolist() + found.valid.query_ids.tolist()) == list(range(10))
    assert found.test.query_ids.tolist() == [10, 11, 12, 13]
