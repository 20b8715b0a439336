"""`fultr train`: a click log file in, a ranker's file out."""

from __future__ import annotations

import json
import os
import threading

import numpy as np
import pytest
from click.testing import CliRunner

import fultr
from fultr.cli.main import cli


@pytest.fixture(scope="module")
def clicklog(tmp_path_factory):
    """1,000 pages of 3 documents; feature 1 is relevance, rank k has examination 1 / k."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("log") / "clicks.tsv"
    lines = ["query\tdocuments\tclicks\tfeatures"]
    for page in range(1000):
        x = rng.random((3, 2)).round(3)
        clicks = (rng.random(3) < x[:, 0] / [1, 2, 3]).astype(int)
        features = ",".join(" ".join(map(str, row)) for row in x)
        lines.append(f"q{page}\t{page}a,{page}b,{page}c\t{','.join(map(str, clicks))}\t{features}")
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*arguments):
    return CliRunner().invoke(cli, ["train", *map(str, arguments)])


def test_a_ranker_that_other_commands_take(clicklog, tmp_path):
    out, figure = tmp_path / "ranker.json", tmp_path / "train.svg"
    found = run(clicklog, "--model", "linear", "-o", out, "--figure", figure, "--json")
    told = json.loads(found.stdout)
    assert told["propensity"] == "regression"
    np.testing.assert_allclose(told["examination"], [1, 1 / 2, 1 / 3], atol=0.1)
    assert figure.read_text().startswith("<?xml")
    ranker = fultr.Ranker.load(out)
    weights = ranker.weights
    assert weights[0] > 5 * abs(weights[1])
    assert ranker.training["estimator"] == "UnbiasedRanker"
    judged = tmp_path / "judged.txt"
    judged.write_text("1 qid:1 1:.9 2:.5\n0 qid:1 1:.1 2:.5\n")
    assert "NDCG@5" in CliRunner().invoke(cli, ["evaluate", str(out), str(judged)]).output


def test_numbers_by_rank_and_words(clicklog, tmp_path):
    found = run(clicklog, "--model", "linear", "--propensity", "1,.5,.25", "-o", tmp_path / "r.json")
    assert "Examination by rank: 1.000 0.500 0.250" in found.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--propensity", "1,x2"], "--propensity: expected a method, none, or numbers"),
        (["--propensity", "1,.5"], "propensity: expected 3 numbers, one per rank"),
        (["--propensity", "guess"], "propensity: expected one of auto"),
        (["--propensity", "1,0,0", "--model", "linear"], "clicks.tsv: propensity: Rank 2 has clicks, but its examina"),
        (["--figure", "a.txt"], "--figure: expected a file that ends with .png"),
    ],
)
def test_bad_options_are_one_line(clicklog, tmp_path, options, says):
    found = run(clicklog, "-o", tmp_path / "r.json", *options)
    assert says in str(found.exception)
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "mine.png", "-o", "mine.png"], "--out: expected another file than CLICKLOG, found mine.png"),
        (["train", "mine.png", "-o", "link.png"], "--out: expected another file than CLICKLOG, found link.png"),
        (
            ["train", "mine.png", "-o", "a.png", "--figure", "a.png"],
            "--figure: expected another file than --out, found",
        ),
        (["train", "mine.png", "-o", "a.json", "--figure", "no/a.png"], "no/a.png: cannot be written: No such file"),
        (["train", "mine.png", "-o", "no/a.json"], "no/a.json: cannot be written: No such file or directory"),
        (["train", "mine.png", "-o", "folder"], "folder: cannot be written: Is a directory"),
        (["estimate", "mine.png", "--figure", "mine.png"], "--figure: expected another file than CLICKLOG, found mine"),
        (["estimate", "mine.png", "--figure", "no/a.png"], "no/a.png: cannot be written: No such file or directory"),
        (
            ["compare", "mine.png", "logged", "a.png", "--figure", "a.png"],
            "--figure: expected another file than SECOND",
        ),
        (["compare", "mine.png", "logged", "a.png", "--figure", "no/a.png"], "no/a.png: cannot be written: No such"),
        (["data", "clicks", "taken.tsv"], "taken.truth.json: cannot be written: Is a directory"),
        (["data", "clicks", "no/a.tsv", "--data", "mine.tsv"], "no/a.tsv: cannot be written: No such file"),
        (
            ["data", "clicks", "mine.tsv", "--data", "mine.tsv"],
            "OUT: expected another file than --data, found mine.tsv",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_read(tmp_path, monkeypatch, arguments, says):
    """Nothing here could be read, so nothing else may be complained about, and all files stay as they were."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "taken.truth.json").mkdir()
    (tmp_path / "link.png").symlink_to("mine.png")
    kept = {name: tmp_path / name for name in ("mine.png", "mine.tsv", "a.png", "a.json")}
    for path in kept.values():
        path.write_text("as it was")
    found = CliRunner().invoke(cli, arguments)
    assert str(found.exception).startswith(says)
    assert isinstance(found.exception, fultr.FultrError)
    assert {path.read_text() for path in kept.values()} == {"as it was"}


def test_a_log_without_features_is_refused(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("cats\td1,d2\t1,0\ncats\td2,d1\t1,0\n")
    found = run(path, "-o", tmp_path / "r.json")
    assert "expected features of the documents" in str(found.exception)


def test_features_of_any_name_in_every_command(clicklog, tmp_path):
    """A ranker whose features have names finds them in the log; estimation and devices are told which they are."""
    rows = fultr.table_of(fultr.read_click_log(clicklog)).to_pandas()
    log, out = tmp_path / "named.csv", tmp_path / "named.json"
    rows.rename(columns={"f1": "match", "f2": "age"}).drop(columns="document").to_csv(log, index=False)
    assert run(log, "--features", "match, age", "--model", "linear", "-o", out).exit_code == 0

    def done(*arguments):
        return CliRunner().invoke(cli, list(map(str, arguments)))

    compared = json.loads(done("compare", log, "logged", out, "--bootstrap", 20, "--most-unseen", 1, "--json").stdout)
    assert compared["rankers"][str(out)]["trained_on_this_log"] is True
    estimated = json.loads(done("estimate", log, "--features", "match,age", "--bootstrap", 20, "--json").stdout)
    assert estimated["method"] == "regression"
    assert done("device", "import", log, "--dir", tmp_path / "logs", "--features", "match,age").exit_code == 0
    other = done("train", clicklog, "--features", "match", "-o", tmp_path / "r.json")
    assert "expected a row for each displayed document, to take columns of features from" in str(other.exception)


def test_compare_has_nothing_to_say_of_rankers_that_agree(clicklog, tmp_path):
    same = [str(tmp_path / f"{name}.json") for name in "ab"]
    for i, path in enumerate(same):
        fultr.Ranker(np.float32([1 + i, 0]), np.array([1, 2]), normalised=False).save(path)
    found = CliRunner().invoke(cli, ["compare", str(clicklog), *same, "--bootstrap", "20"])
    assert "by this metric they cannot be told apart" in found.stdout
    assert "a longer log" not in found.stdout
    refused = CliRunner().invoke(cli, ["compare", str(clicklog), *same, "--metric", "precision"])
    assert "--cutoff: expected one with --metric precision" in str(refused.exception)


def test_compare_says_that_a_ranker_was_trained_on_this_log(clicklog, tmp_path):
    """Whatever the layout and the order of the log; not on other clicks, and not of rankers from elsewhere."""
    out, other = str(tmp_path / "mine.json"), str(tmp_path / "other.json")
    assert run(clicklog, "--model", "linear", "-o", out).exit_code == 0
    fultr.Ranker(np.float32([1, 0]), np.array([1, 2]), normalised=False).save(other)
    log = fultr.read_click_log(clicklog)
    again, half = tmp_path / "again.csv", tmp_path / "half.tsv"
    fultr.write_click_log(log.take(np.arange(log.impressions)[::-1]), again, "rows")
    fultr.write_click_log(log.take(np.arange(500)), half)

    def said(path, *rankers):
        found = CliRunner().invoke(cli, ["compare", str(path), *rankers, "--bootstrap", "20", "--most-unseen", "1"])
        assert found.exit_code == 0, found.output
        return found.stdout

    line = (
        f"{out} was trained on this log, so it looks better here than it would on new clicks; compare on clicks that "
        "came after.\n"
    )
    assert said(clicklog, "logged", out).endswith(line)
    assert said(again, out, other).endswith(line)
    assert "trained on" not in said(half, "logged", out)
    assert "trained on" not in said(clicklog, "logged", other)
    copy = str(tmp_path / "copy.json")
    fultr.Ranker.load(out).save(copy)
    assert f"{out} and {copy} were trained on this log, so they look better" in said(clicklog, out, copy)
    found = json.loads(said(clicklog, out, other, "--json"))
    assert {name: ranker["trained_on_this_log"] for name, ranker in found["rankers"].items()} == {
        out: True,
        other: None,
    }
    assert json.loads(said(clicklog, "logged", out, "--json"))["rankers"]["logged"]["trained_on_this_log"] is False


@pytest.mark.parametrize("federated", [False, True])
def test_an_estimator_keeps_the_fingerprint_of_its_log(clicklog, federated):
    log = fultr.read_click_log(clicklog)
    rows = fultr.table_of(log).to_pandas()
    fitted = fultr.UnbiasedRanker("linear", federated=federated).fit(
        rows[["f1", "f2"]], rows.click, query=rows["query"], rank=rows["rank"]
    )
    assert fultr.trained_on(fitted.ranker_, log) is True
    assert fultr.trained_on(fitted.ranker_, log.take(np.arange(999))) is False


def with_gaps(folder, names, seed=0):
    """A log in rows of features with these names, of which the last is relevance, and judged documents, f1 to f5."""
    rng = np.random.default_rng(seed)
    log, judged = folder / "gaps.csv", folder / "judged.txt"
    lines = [f"query,rank,click,{','.join(names)}"]
    for page in range(400):
        x = rng.random((3, len(names))).round(3)
        clicks = (rng.random(3) < x[:, -1] / [1, 2, 3]).astype(int)
        lines += [f"q{page},{k + 1},{clicks[k]},{','.join(map(str, x[k]))}" for k in range(3)]
    log.write_text("\n".join(lines) + "\n")
    rows = [(query, rng.random(5).round(3)) for query in range(40) for _ in range(4)]
    judged.write_text(
        "".join(f"{int(3 * x[4])} qid:{q} {' '.join(f'{i + 1}:{v}' for i, v in enumerate(x))}\n" for q, x in rows)
    )
    return log, judged


@pytest.mark.parametrize("names", [["f2", "f3", "f5"], ["feature_3", "feature_2", "feature_5"]])
@pytest.mark.parametrize("layout", ["rows", "pages"])
def test_features_have_the_ids_that_their_names_say(tmp_path, names, layout):
    log, judged = with_gaps(tmp_path, names)
    if layout == "pages":
        fultr.write_click_log(fultr.read_click_log(log), log, "pages")
        assert fultr.read_click_log(log).feature_names == tuple(names)
    out = tmp_path / "r.json"
    assert run(log, "--model", "linear", "--propensity", "1,.5,.333", "-o", out).exit_code == 0
    ranker = fultr.Ranker.load(out)
    assert ranker.feature_ids.tolist() == [2, 3, 5]
    assert [int(name[-1]) for name in ranker.feature_names] == [2, 3, 5]
    assert np.argmax(np.abs(ranker.weights)) == 2
    measured = json.loads(CliRunner().invoke(cli, ["evaluate", str(out), str(judged), "--json"]).stdout)
    assert measured["metrics"]["NDCG@1"]["mean"] > 0.9


def test_features_without_ids_are_not_looked_for_in_letor_data(tmp_path):
    log, judged = with_gaps(tmp_path, ["age", "words", "match"])
    out = tmp_path / "r.json"
    assert run(log, "--features", "age,words,match", "--model", "linear", "-o", out).exit_code == 0
    for arguments in (["evaluate", out, judged], ["rank", out, judged], ["evaluate", out, "synthetic"]):
        found = CliRunner().invoke(cli, list(map(str, arguments)))
        assert "the ranker knows its features by the names in its click log ('age', ...)" in str(found.exception)


def test_a_log_is_compared_though_it_can_be_read_once_only(tmp_path):
    """Rankers with named features ask for the log's columns first, and a pipe has no second reading."""
    log, _ = with_gaps(tmp_path, ["age", "words", "match"])
    out, pipe = tmp_path / "r.json", tmp_path / "pipe"
    assert run(log, "--features", "age,words,match", "--model", "linear", "-o", out).exit_code == 0
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(log.read_bytes()))
    writer.start()
    arguments = ["--bootstrap", "20", "--most-unseen", "1", "--json"]
    read, piped = (
        CliRunner().invoke(cli, ["compare", str(path), "logged", str(out), *arguments]) for path in (log, pipe)
    )
    writer.join()
    assert {**json.loads(piped.stdout), "log": str(log)} == json.loads(read.stdout)


def test_a_comparison_without_a_single_draw_has_no_interval(tmp_path):
    """Examination is estimable from the whole log alone: each two ranks are linked by one query."""
    rng, lines, session = np.random.default_rng(0), ["query,session,rank,click,document,f1"], 0
    for i in range(11):
        for turn in range(20):
            shown = list(range(12))
            if turn % 2:
                shown[i], shown[i + 1] = shown[i + 1], shown[i]
            session += 1
            clicks = [int(k in (i, i + 1) and rng.random() < 0.6) for k in range(12)]
            lines += [f"q{i},{session},{k + 1},{clicks[k]},d{d},{d}" for k, d in enumerate(shown)]
    log, out = tmp_path / "chain.csv", tmp_path / "r.json"
    log.write_text("\n".join(lines) + "\n")
    fultr.Ranker(np.float32([-1]), np.array([1]), normalised=False).save(out)
    asked = ["compare", str(log), "logged", str(out), "--bootstrap", "20"]
    told = json.loads(CliRunner().invoke(cli, [*asked, "--json"]).stdout)
    assert told["rankers"][str(out)]["low"] is told["difference"]["high"] is told["relative"]["low"] is None
    assert told["answer"] == "inconclusive"
    said = CliRunner().invoke(cli, asked).stdout
    assert "no interval" in said
    assert "nan" not in said


def test_compare_names_the_log_that_it_cannot_use(tmp_path):
    log, out = tmp_path / "zero.csv", tmp_path / "r.json"
    log.write_text("query,rank,click,f1\na,1,0,1\na,2,0,2\n")
    fultr.Ranker(np.float32([1]), np.array([1]), normalised=False).save(out)
    found = CliRunner().invoke(cli, ["compare", str(log), "logged", str(out), "--bootstrap", "20"])
    assert str(found.exception).startswith(f"{log}: click log: no document was clicked")
