"""The command, run as a user runs it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fultr.console import round_bar
from fultr.data import RankingData
from fultr.letor import read_letor
from fultr.letor_write import write_letor
from fultr.rankers import LinearRanker
from fultr.store import Source

SMALL = ["--clients", "60", "--rounds", "6"]


def fultr(*arguments: object, cwd: Path | None = None, env: dict[str, str] | None = None):
    command = [str(Path(sys.executable).parent / "fultr"), *(str(a) for a in arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, timeout=300, env={**os.environ, **(env or {})}, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A small data set in LETOR files, with document names in half of the comments."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for i, (name, queries) in enumerate((("train", 120), ("vali", 40), ("test", 40))):
        x = rng.random((queries * 8, 6)).astype(np.float32)
        grades = np.clip((x[:, 0] + x[:, 2] + 0.4 * rng.standard_normal(queries * 8)) * 2, 0, 4).astype(int)
        data = RankingData.from_arrays(x, grades, np.repeat(np.arange(queries) + 1000 * i, 8))
        write_letor(data, root / f"{name}.txt")
    lines = (root / "test.txt").read_text().splitlines()
    lines = [f"{line} #docid = D{i} inc = 1" if i % 2 else line for i, line in enumerate(lines)]
    (root / "test.txt").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("sim") / "run"
    done = fultr("simulate", "--data", folder, *SMALL, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_simulate_tells_what_clicks_were_divided_by(folder):
    done = fultr("simulate", "--data", folder, *SMALL, "--propensity", "pooled")
    assert done.returncode == 0, done.stderr
    assert "weight, of its due" in done.stdout
    told = json.loads(fultr("simulate", "--data", folder, *SMALL, "--propensity", "known", "--json").stdout)["weighing"]
    assert told["used"] == told["true"]
    assert told["mass"] == [1.0] * 5


def test_simulate_writes_ranker_curve_and_settings(folder, trained):
    assert sorted(p.name for p in trained.iterdir()) == ["checkpoint.npz", "curve.csv", "ranker.json", "settings.json"]
    settings = json.loads((trained / "settings.json").read_text())
    assert (settings["clients"], settings["rounds"], settings["seed"]) == (60, 6, 0)
    assert settings["versions"]["fultr"]
    assert (trained / "curve.csv").read_text().startswith("round,ndcg@5 valid,ndcg@5 test\n0,")
    assert LinearRanker.load(trained / "ranker.json").weights.size == 6
    again = fultr("simulate", "--data", folder, *SMALL, "--out", trained)
    assert again.returncode == 0
    other = fultr("simulate", "--data", folder, *SMALL, "--out", trained, "--gamma", "2")
    assert other.returncode == 2
    assert "they differ in click_model" in other.stderr
    assert other.stderr.count("\n") == 1


def test_json_is_one_object_and_nothing_else(folder):
    done = fultr("simulate", "--data", folder, *SMALL, "--json", "--propensity", "none", "--threads", "1")
    result = json.loads(done.stdout)
    assert result["settings"]["algorithm"]["propensity"] == "none"
    assert result["ndcg@5"]["round"] == [0, 6]
    assert done.stderr == ""


def test_evaluate_on_a_data_set_and_on_a_file(folder, trained):
    by_set = json.loads(fultr("evaluate", trained / "ranker.json", folder, "--json", "--k", "5").stdout)
    by_file = json.loads(fultr("evaluate", trained / "ranker.json", folder / "test.txt", "--json", "--k", "5").stdout)
    curve = (trained / "curve.csv").read_text().splitlines()[-1].split(",")
    assert by_set["metrics"]["NDCG@5"]["mean"] == pytest.approx(float(curve[2]), abs=1e-12)
    assert by_file["metrics"]["MRR"]["queries"] >= by_set["metrics"]["MRR"]["queries"]
    table = fultr("evaluate", trained / "ranker.json", folder)
    assert "NDCG@10" in table.stdout
    assert "average relevant position" in table.stdout


def test_rank_scores_and_trec_run(folder, trained, tmp_path):
    scores = [float(x) for x in fultr("rank", trained / "ranker.json", folder / "test.txt").stdout.split()]
    data = read_letor(folder / "test.txt").normalise()
    ranker = LinearRanker.load(trained / "ranker.json")
    np.testing.assert_array_equal(np.float32(scores), ranker.score(data))
    done = fultr("rank", trained / "ranker.json", folder / "test.txt", "--format", "trec", "-o", tmp_path / "run.trec")
    assert done.returncode == 0
    rows = [line.split() for line in (tmp_path / "run.trec").read_text().splitlines()]
    assert len(rows) == data.documents
    assert {row[1] for row in rows} == {"Q0"}
    assert {row[5] for row in rows} == {"fultr"}
    for first in range(0, len(rows), 8):
        block = rows[first : first + 8]
        assert [row[3] for row in block] == [str(rank) for rank in range(1, 9)]
        assert len({row[0] for row in block}) == 1
        values = [float(row[4]) for row in block]
        assert values == sorted(values, reverse=True)
        for row in block:
            line = int(row[2][1:]) if row[2].startswith("D") else first + int(row[2].split(".")[1]) - 1
            assert np.float32(row[4]) == np.float32(scores[line])


def test_ranking_a_compressed_file_gives_the_same(folder, trained, tmp_path):
    for suffix in ("gz", "xz", "bz2", "zst"):
        write_letor(read_letor(folder / "test.txt"), tmp_path / f"test.txt.{suffix}")
        done = fultr("rank", trained / "ranker.json", tmp_path / f"test.txt.{suffix}")
        assert done.stdout == fultr("rank", trained / "ranker.json", folder / "test.txt").stdout


def test_run_writes_a_report_and_the_same_one_again(folder, tmp_path):
    small = ["--data", folder, "--gamma", "0.5,2", "--repeats", "2", *SMALL]
    first = fultr("run", *small, "--out", tmp_path / "a")
    second = fultr("run", *small, "--out", tmp_path / "b", "--workers", "1")
    assert first.returncode == 0, first.stderr
    assert "At γ = 2, FedIPS outperforms FedAvg" in first.stdout
    assert first.stdout == second.stdout
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [
        "curves.csv",
        "curves.parquet",
        "figures",
        "progress.json",
        "report.html",
        "results.json",
        "runs",
        "tuning.csv",
    ]
    for name in ("curves.csv", "curves.parquet", "figures/run.png", "results.json", "tuning.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    page = (tmp_path / "a" / "report.html").read_text()
    assert "FedIPS outperforms FedAvg" in page
    other = fultr("run", *small, "--out", tmp_path / "a", "--seed", "1")
    assert other.returncode == 2
    assert "holds results of another configuration (they differ in their settings); give another --out" in other.stderr
    assert fultr("run", *small, "--out", tmp_path / "a", "--seed", "1", "--overwrite", "--json").returncode == 0
    assert json.loads((tmp_path / "a" / "results.json").read_text())["asked"][0]["seed"] == 1


def test_results_of_other_data_are_not_replaced(folder, tmp_path):
    """Folders of the same name are told apart by what they hold."""
    small = ["--gamma", "1", "--repeats", "1", "--clients", "20", "--rounds", "1", "--out", tmp_path / "out"]
    for place in ("a", "b"):
        (tmp_path / place / "set").mkdir(parents=True)
        for name in ("train", "vali", "test"):
            text = (folder / f"{name}.txt").read_text()
            (tmp_path / place / "set" / f"{name}.txt").write_text(
                text if place == "a" else text.replace("0 qid", "1 qid", 9)
            )
    assert fultr("run", "--data", tmp_path / "a" / "set", *small).returncode == 0
    assert fultr("run", "--data", tmp_path / "a" / "set", *small).returncode == 0
    done = fultr("run", "--data", tmp_path / "b" / "set", *small)
    assert done.returncode == 2
    assert "they differ in their data" in done.stderr


def test_features_that_a_file_lacks_are_told(folder, trained, tmp_path):
    (tmp_path / "some.txt").write_text("1 qid:1 1:0.5 3:1\n0 qid:1 1:0.1 3:2\n")
    (tmp_path / "none.txt").write_text("1 qid:1 1000:0.5\n0 qid:1 1001:0.1\n")
    done = fultr("rank", trained / "ranker.json", tmp_path / "some.txt")
    assert done.returncode == 0
    assert "4 of the ranker's 6 features do not occur; they count as 0" in done.stderr
    done = fultr("rank", trained / "ranker.json", tmp_path / "none.txt")
    assert done.returncode == 2
    assert "has none of the 6 features that the ranker was trained on" in done.stderr


def test_pipes(folder, trained):
    """Standard input can be scored; a reader that goes away ends the command quietly."""
    binary = str(Path(sys.executable).parent / "fultr")
    with (folder / "test.txt").open() as text:
        scored = subprocess.run(
            [binary, "rank", trained / "ranker.json", "/dev/stdin"],
            stdin=text,
            capture_output=True,
            text=True,
            check=True,
        )
    assert scored.stdout == fultr("rank", trained / "ranker.json", folder / "test.txt").stdout
    trec = f"cat {folder / 'test.txt'} | {binary} rank {trained / 'ranker.json'} /dev/stdin --format trec"
    done = subprocess.run(trec, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "which a pipe does not allow" in done.stderr
    gone = f"{binary} rank {trained / 'ranker.json'} {folder / 'test.txt'} | true"
    assert subprocess.run(gone, shell=True, capture_output=True, text=True, check=True).stderr == ""


def test_writing_to_a_device_leaves_it_in_place(folder, trained, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True)
    done = fultr("rank", trained / "ranker.json", folder / "test.txt", "-o", tmp_path / "pipe")
    assert done.returncode == 0, done.stderr
    assert reader.communicate()[0] == fultr("rank", trained / "ranker.json", folder / "test.txt").stdout
    assert (tmp_path / "pipe").is_fifo()
    for bad in (".", "x" * 300, "some.txt/x"):
        (tmp_path / "some.txt").write_text("")
        done = fultr("rank", trained / "ranker.json", folder / "test.txt", "-o", bad, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1


def test_data_make_reads_back_identically(tmp_path):
    done = fultr("data", "make", "synthetic", "--out", tmp_path / "made", "--compress", "zst")
    assert done.returncode == 0, done.stderr
    from fultr.synthetic import generate

    for part, name in zip(generate("synthetic"), ("train", "vali", "test"), strict=True):
        again = read_letor(tmp_path / "made" / f"{name}.txt.zst")
        for array in ("features", "labels", "offsets", "query_ids", "feature_ids"):
            np.testing.assert_array_equal(getattr(again, array), getattr(part, array))


def test_data_inspect(folder):
    shown = fultr("data", "inspect", folder)
    assert "train" in shown.stdout
    assert "No published figures to compare with" in shown.stdout
    result = json.loads(fultr("data", "inspect", folder, "--json").stdout)
    assert [row["queries"] for row in result["counts"]] == [120, 40, 40, 200]


def test_inspect_real_mq2008_agrees_with_its_page(real_data):
    result = json.loads(fultr("data", "inspect", real_data("mq2008"), "--json").stdout)
    assert result["compared_with"] == "MQ2008"
    assert all(row["agrees"] for row in result["comparisons"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["simulate", "--gama", "2"], "No such option"),
        (["simulate", "--gamma", "two"], "'two' is not a valid float"),
        (["simulate", "--gamma", "-1"], "gamma: expected a number, at least 0, found -1"),
        (["simulate", "--propensity", "1,2"], "propensity: expected"),
        (["simulate", "--propensity", "guess"], "propensity: expected one of known, none, personal, pooled,"),
        (["simulate", "--data", "nowhere"], "nowhere"),
        (["simulate", "--data", "synthetic-yaho"], "no data set is called 'synthetic-yaho'; there are synthetic,"),
        (["simulate", "--users", "10"], "clients: expected a number, at most 10, found 2000"),
        (["run", "--gamma", "1;2"], "expected numbers with commas between them"),
        (["run", "--gamma", "1,1"], "gamma: expected one or more different numbers"),
        (["run", "--gamma", "1,-1"], "gamma: expected a number, at least 0, found -1"),
        (["run", "--seed", "1" + "0" * 30], "seed: expected a whole number, at least 0, at most 500,000"),
        (["simulate", "--seed", "1" + "0" * 30], "seed: expected a whole number"),
        (["simulate", "--rounds", "1" + "0" * 400], "rounds"),
        (["simulate", "--displayed", "10000000000"], "displayed: expected a whole number, at least 1, at most 1,000"),
        (["simulate", "--poisson"], "give --users too"),
        (["simulate", "--fold", "4"], "fold: generated data sets have no folds, found 4"),
        (["run", "--repeats", "0"], "repeats: expected a whole number, at least 1"),
        (["reproduce"], "Name experiments, such as all, or a --figure; --list shows what there is."),
        (["reproduce", "figure-3"], "no experiment is called 'figure-3'; there are all, figure-1,"),
        (["reproduce", "mine.toml"], "mine.toml: cannot be read: No such file"),
        (["reproduce", "--figure", "3"], "'3' is not one of '1', '2'"),
        (["reproduce", "all", "--data", "yahoo="], "--data: expected NAME=FOLDER, found 'yahoo='"),
        (["reproduce", "all", "--data", "yahoo=nowhere"], "nowhere"),
        (["reproduce", "--status"], "out/paper: no work of fultr reproduce was begun there"),
        (["rank", "none.json", "x"], "none.json: cannot be read: No such file"),
        (["evaluate", "none.json", "synthetic"], "none.json: cannot be read"),
        (["data", "inspect", "nowhere"], "nowhere"),
        (["data", "make", "real"], "'real' is not one of"),
        (["nothing"], "No such command 'nothing'"),
    ],
)
def test_bad_usage_gets_one_line_and_code_2(arguments, text, tmp_path):
    done = fultr(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_malformed_file_is_named_with_its_line(folder, tmp_path):
    for name in ("train", "vali", "test"):
        (tmp_path / f"{name}.txt").write_text((folder / f"{name}.txt").read_text())
    with (tmp_path / "vali.txt").open("a") as file:
        file.write("2 qid:7 1:x\n")
    done = fultr("simulate", "--data", tmp_path)
    assert done.returncode == 2
    assert "vali.txt, line 321: " in done.stderr
    assert "'1:x'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_teaches():
    for command in ([], ["run"], ["simulate"], ["evaluate"], ["rank"], ["data"], ["data", "make"], ["bench"]):
        done = fultr(*command, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith("Usage: fultr")
    assert "fultr simulate --propensity none" in fultr("simulate", "-h").stdout
    assert fultr("--version").stdout.startswith("fultr ")
    assert fultr().returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    assert "_FULTR_COMPLETE" in fultr("completion", shell).stdout
    words = {"COMP_WORDS": "fultr sim", "COMP_CWORD": "1", "_FULTR_COMPLETE": "bash_complete"}
    assert "simulate" in fultr(env=words).stdout


def test_progress_is_for_terminals_only(folder):
    done = fultr("simulate", "--data", folder, *SMALL)
    assert done.stderr == ""
    assert "NDCG@5 test" in done.stdout


MINE = """\
title = "Mine"
data = ["synthetic"]
repeats = 2

[settings]
clients = 50
rounds = 4
evaluate_every = 2

[[line]]
name = "FedIPS"

[[line]]
name = "FedAvg"
propensity = "none"

[[claim]]
says = "FedIPS is better"
kind = "ends-above"
lines = ["FedIPS"]
than = ["FedAvg"]
"""


def test_reproduce_an_experiment_of_ones_own(folder, tmp_path):
    (tmp_path / "mine.toml").write_text(MINE, encoding="utf-8")
    done = fultr("reproduce", "mine.toml", "--data", f"toy={folder}", "--out", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)["results"]
    assert (result["experiment"], result["data"]) == ("mine", "toy")
    [verdict] = result["verdicts"]
    assert verdict["answer"] in ("holds", "does not hold", "not enough repeats to tell")
    again = fultr("reproduce", "mine.toml", "--data", f"toy={folder}", "--out", "out", cwd=tmp_path)
    assert "FedIPS is better" in again.stdout
    assert "\x1b" not in again.stdout
    assert "All 4 runs were in the store" in (tmp_path / "out" / "report.html").read_text()
    status = fultr("reproduce", "--status", "--out", "out", cwd=tmp_path)
    assert "4 of 4 runs done" in status.stdout
    assert json.loads(fultr("reproduce", "--status", "--out", "out", "--json", cwd=tmp_path).stdout)["runs"] == 4


def test_an_unknown_colour_is_refused_before_any_work(folder, tmp_path):
    (tmp_path / "mine.toml").write_text(MINE.replace('propensity = "none"', 'colour = "beige"'), encoding="utf-8")
    done = fultr("reproduce", "mine.toml", "--data", folder, cwd=tmp_path)
    assert done.returncode == 2
    assert "beige" in done.stderr
    assert not (tmp_path / "out" / "paper" / "runs").exists()


def test_the_list_names_every_experiment_and_its_cost(tmp_path):
    done = fultr("reproduce", "--list", "--quick", "--json", cwd=tmp_path)
    listed = json.loads(done.stdout)
    assert [entry["name"] for entry in listed][:3] == ["figure-1", "figure-2-left", "figure-2-right"]
    assert all(entry["runs"] > 0 and entry["seconds"] >= 0 and entry["repeats"] == 3 for entry in listed)


def test_two_different_experiments_of_one_name_are_refused(tmp_path):
    for place, repeats in (("a", "2"), ("b", "3")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "mine.toml").write_text(MINE.replace("repeats = 2", f"repeats = {repeats}"), "utf-8")
    done = fultr("reproduce", "a/mine.toml", "b/mine.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "two different experiments are called 'mine'" in done.stderr


def test_folders_of_data_are_found_from_anywhere(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    source = Source(folder.name)
    assert source.where == str(folder)
    assert str(source) == folder.name
    assert Source("synthetic").where == "synthetic"


class Terminal(io.StringIO):
    """Text that is shown to somebody."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("shown", [io.StringIO, Terminal])
def test_rounds_are_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch, shown):
    stderr = shown()
    monkeypatch.setattr(sys, "stderr", stderr)
    for name, value in {"TERM": "xterm", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    with round_bar() as tell:
        tell(3, 10, None)  # some were done before anybody looked
        tell(4, 10, 72.0)
    if shown is io.StringIO:
        assert stderr.getvalue() == "round 3 of 10\nround 4 of 10, 72 s left\n"
    else:
        last = stderr.getvalue().rpartition("Training")[2]
        assert "4/10" in last
        assert "left 72 s" in last
