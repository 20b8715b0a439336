"""What the commands say and write, called in this process; tests/cli/test_processes.py runs them as a user does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator

import click
import numpy as np
import pytest
from help.commands import fultr

from fultr.cli import deploy
from fultr.cli.main import cli
from fultr.cli.stopping import Terminated
from fultr.data.letor.reader import read_letor
from fultr.data.letor.writer import write_letor
from fultr.rankers.ranker import Ranker
from fultr.study.store import Source

SMALL = ["--clients", "60", "--rounds", "6"]


def test_simulate_tells_what_clicks_were_divided_by(folder):
    done = fultr("simulate", "--data", folder, *SMALL, "--propensity", "pooled")
    assert done.code == 0, done.err
    assert "weight, of the correct one" in done.out
    told = json.loads(fultr("simulate", "--data", folder, *SMALL, "--propensity", "known", "--json").out)["weighing"]
    assert told["used"] == told["true"]
    assert told["mass"] == [1.0] * 5


def test_simulate_tells_how_long_a_long_run_takes(folder, monkeypatch):
    told = r"^6 rounds: about \d+ s with 1 thread, less what is finished already\n"
    assert not re.search(told, fultr("simulate", "--data", folder, *SMALL, "--threads", "1").err)
    monkeypatch.setattr("fultr.cli.simulate._LONG", 0.1)  # a run of 60 clients and 6 rounds counts as .2 s
    assert re.search(told, fultr("simulate", "--data", folder, *SMALL, "--threads", "1").err)


def test_simulate_tells_what_users_were_shown(folder):
    options = ("simulate", "--data", folder, *SMALL, "--evaluate-every", "2", "--refresh", "2")
    assert "first policy" in fultr(*options).out
    online = json.loads(fultr(*options, "--json").out)["online"]
    assert online["round"] == [2, 4, 6]
    assert online["displayed"][0] == online["first policy"][0]
    assert online["displayed"][1] != online["first policy"][1]
    assert "first policy" not in fultr("simulate", "--data", folder, *SMALL).out


def test_simulate_writes_ranker_curve_and_settings(folder, trained):
    assert sorted(p.name for p in trained.iterdir()) == ["checkpoint.npz", "curve.csv", "ranker.json", "settings.json"]
    settings = json.loads((trained / "settings.json").read_text())
    assert (settings["clients"], settings["rounds"], settings["seed"]) == (60, 6, 0)
    assert settings["versions"]["fultr"]
    assert (
        (trained / "curve.csv")
        .read_text()
        .startswith("round,ndcg@5 valid,ndcg@5 test,ndcg@5 displayed,ndcg@5 first policy\n0,")
    )
    assert Ranker.load(trained / "ranker.json").weights.size == 6
    again = fultr("simulate", "--data", folder, *SMALL, "--out", trained)
    assert again.code == 0
    other = fultr("simulate", "--data", folder, *SMALL, "--out", trained, "--gamma", "2")
    assert other.code == 2
    assert "they differ in click_model" in other.err
    assert other.err.count("\n") == 1


def test_json_is_one_object_and_nothing_else(folder):
    done = fultr("simulate", "--data", folder, *SMALL, "--json", "--propensity", "none", "--threads", "1")
    result = json.loads(done.out)
    assert result["settings"]["algorithm"]["propensity"] == "none"
    assert result["ndcg@5"]["round"] == [0, 6]
    assert done.err == ""


def test_evaluate_on_a_data_set_and_on_a_file(folder, trained):
    by_set = json.loads(fultr("evaluate", trained / "ranker.json", folder, "--json", "--k", "5").out)
    by_file = json.loads(fultr("evaluate", trained / "ranker.json", folder / "test.txt", "--json", "--k", "5").out)
    curve = (trained / "curve.csv").read_text().splitlines()[-1].split(",")
    assert by_set["metrics"]["NDCG@5"]["mean"] == pytest.approx(float(curve[2]), abs=1e-12)
    assert by_file["metrics"]["MRR"]["queries"] >= by_set["metrics"]["MRR"]["queries"]
    table = fultr("evaluate", trained / "ranker.json", folder)
    assert "NDCG@10" in table.out
    assert "average relevant position" in table.out


def test_rank_scores_and_trec_run(folder, trained, tmp_path):
    scores = [float(x) for x in fultr("rank", trained / "ranker.json", folder / "test.txt").out.split()]
    data = read_letor(folder / "test.txt").normalise()
    ranker = Ranker.load(trained / "ranker.json")
    np.testing.assert_array_equal(np.float32(scores), ranker.score(data))
    done = fultr("rank", trained / "ranker.json", folder / "test.txt", "--format", "trec", "-o", tmp_path / "run.trec")
    assert done.code == 0
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
        assert done.out == fultr("rank", trained / "ranker.json", folder / "test.txt").out


@pytest.mark.process
def test_run_writes_a_report_and_the_same_one_again(folder, tmp_path):
    small = ["--data", folder, "--gamma", "0.5,2", "--repeats", "2", *SMALL]
    first = fultr("run", *small, "--out", tmp_path / "a")
    second = fultr("run", *small, "--out", tmp_path / "b", "--workers", "1")
    assert first.code == 0, first.err
    assert "At γ = 2, FedIPS outperforms FedAvg" in first.out
    assert first.out == second.out
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [
        "curves.csv",
        "curves.parquet",
        "figures",
        "progress.json",
        "report.html",
        "results.json",
        "runs",
        "summary.md",
        "tuning.csv",
    ]
    for name in ("curves.csv", "curves.parquet", "figures/run.png", "results.json", "summary.md", "tuning.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    page = (tmp_path / "a" / "report.html").read_text()
    assert "FedIPS outperforms FedAvg" in page
    other = fultr("run", *small, "--out", tmp_path / "a", "--seed", "1")
    assert other.code == 2
    assert "holds results of another configuration (they differ in their settings); give another --out" in other.err
    assert fultr("run", *small, "--out", tmp_path / "a", "--seed", "1", "--overwrite", "--json").code == 0
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
    assert fultr("run", "--data", tmp_path / "a" / "set", *small).code == 0
    assert fultr("run", "--data", tmp_path / "a" / "set", *small).code == 0
    done = fultr("run", "--data", tmp_path / "b" / "set", *small)
    assert done.code == 2
    assert "they differ in their data" in done.err


def test_features_that_a_file_lacks_are_told(folder, trained, tmp_path):
    (tmp_path / "some.txt").write_text("1 qid:1 1:0.5 3:1\n0 qid:1 1:0.1 3:2\n")
    (tmp_path / "none.txt").write_text("1 qid:1 1000:0.5\n0 qid:1 1001:0.1\n")
    done = fultr("rank", trained / "ranker.json", tmp_path / "some.txt")
    assert done.code == 0
    assert "4 of the ranker's 6 features do not occur; they count as 0" in done.err
    done = fultr("rank", trained / "ranker.json", tmp_path / "none.txt")
    assert done.code == 2
    assert "has none of the 6 features that the ranker was trained on" in done.err


@pytest.mark.process
def test_writing_to_a_device_leaves_it_in_place(folder, trained, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True)
    done = fultr("rank", trained / "ranker.json", folder / "test.txt", "-o", tmp_path / "pipe")
    assert done.code == 0, done.err
    assert reader.communicate()[0] == fultr("rank", trained / "ranker.json", folder / "test.txt").out
    assert (tmp_path / "pipe").is_fifo()
    for bad in (".", "x" * 300, "some.txt/x"):
        (tmp_path / "some.txt").write_text("")
        done = fultr("rank", trained / "ranker.json", folder / "test.txt", "-o", bad, cwd=tmp_path)
        assert done.code == 2
        assert done.err.count("\n") == 1


def test_data_make_reads_back_identically(tmp_path):
    done = fultr("data", "make", "synthetic", "--out", tmp_path / "made", "--compress", "zst")
    assert done.code == 0, done.err
    from fultr.data.synthetic import generate

    for part, name in zip(generate("synthetic"), ("train", "vali", "test"), strict=True):
        again = read_letor(tmp_path / "made" / f"{name}.txt.zst")
        for array in ("features", "labels", "offsets", "query_ids", "feature_ids"):
            np.testing.assert_array_equal(getattr(again, array), getattr(part, array))


def test_data_inspect(folder):
    shown = fultr("data", "inspect", folder)
    assert "train" in shown.out
    assert "No published counts to compare with" in shown.out
    result = json.loads(fultr("data", "inspect", folder, "--json").out)
    assert [row["queries"] for row in result["counts"]] == [120, 40, 40, 200]


def test_inspect_real_mq2008_agrees_with_its_page(real_data):
    result = json.loads(fultr("data", "inspect", real_data("mq2008"), "--json").out)
    assert result["compared_with"] == "MQ2008"
    assert all(row["agrees"] for row in result["comparisons"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["simulate", "--gama", "2"], "No such option"),
        (["simulate", "--gamma", "two"], '--gamma: expected a number, at least 0, found "two"'),
        (["simulate", "--gamma", "-1"], "gamma: expected a number, at least 0, found -1"),
        (["simulate", "--gamma", "nan"], "--gamma: expected a number, at least 0, found nan"),
        (["simulate", "--server", "adm"], '--server: expected one of sgd, momentum, adagrad, adam, yogi; found "adm"'),
        (["simulate", "--propensity", "1,2"], "propensity: expected"),
        (
            ["simulate", "--cross-fit"],
            "--cross-fit makes no difference to this run: it needs an estimated --propensity",
        ),
        (["simulate", "--propensity", "guess"], "propensity: expected one of known, none, personal, pooled,"),
        (["simulate", "--data", "nowhere"], "nowhere"),
        (["simulate", "--data", "synthetic-yaho"], "unknown data set 'synthetic-yaho'; expected synthetic,"),
        (["simulate", "--users", "10"], "clients: expected a whole number, at most 10, found 2000"),
        (["run", "--gamma", "1;2"], "expected numbers with commas between them"),
        (["run", "--gamma", "1,1"], "gamma: expected one or more different numbers"),
        (["run", "--gamma", "1,-1"], "gamma: expected a number, at least 0, found -1"),
        (["run", "--seed", "1" + "0" * 30], "seed: expected a whole number, at least 0, at most 500,000"),
        (["simulate", "--seed", "1" + "0" * 30], "seed: expected a whole number"),
        (["simulate", "--rounds", "1" + "0" * 400], "rounds"),
        (["simulate", "--displayed", "10000000000"], "displayed: expected a whole number, at least 1, at most 1,000"),
        (["simulate", "--sampling", "poisson"], "--sampling makes no difference to this run: it needs --users"),
        (["simulate", "--fold", "4"], "fold: generated data sets have only fold 1, found 4"),
        (["run", "--repeats", "0"], "repeats: expected a whole number, at least 1"),
        (["reproduce"], "Name experiments, such as all, or a --figure; --list shows what there is."),
        (["reproduce", "figure-3"], "no experiment is called 'figure-3'; there are all, figure-1,"),
        (["reproduce", "mine.toml"], "mine.toml: cannot be read: No such file"),
        (["reproduce", "--figure", "3"], "'3' is not one of '1', '2'"),
        (["reproduce", "all", "--data", "yahoo="], "--data: expected NAME=FOLDER, found 'yahoo='"),
        (["reproduce", "all", "--data", "yahoo=nowhere"], "nowhere"),
        (["reproduce", "--status"], "out/paper: fultr reproduce was never run there"),
        (["rank", "none.json", "x"], "none.json: cannot be read: No such file"),
        (["evaluate", "none.json", "synthetic"], "none.json: cannot be read"),
        (["data", "inspect", "nowhere"], "nowhere"),
        (["data", "make", "real"], "'real' is not one of"),
        (["nothing"], "No such command 'nothing'"),
    ],
)
def test_bad_usage_gets_one_line_and_code_2(arguments, text, tmp_path):
    done = fultr(*arguments, cwd=tmp_path)
    assert done.code == 2
    assert text in done.err
    assert done.err.count("\n") == 1, done.err
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_malformed_file_is_named_with_its_line(folder, tmp_path):
    for name in ("train", "vali", "test"):
        (tmp_path / f"{name}.txt").write_text((folder / f"{name}.txt").read_text())
    with (tmp_path / "vali.txt").open("a") as file:
        file.write("2 qid:7 1:x\n")
    done = fultr("simulate", "--data", tmp_path)
    assert done.code == 2
    assert "vali.txt, line 321: " in done.err
    assert "'1:x'" in done.err
    assert done.err.count("\n") == 1


def all_commands(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from all_commands(command.get_command(context, name), (*path, name))


@pytest.mark.parametrize("command", list(all_commands()), ids=" ".join)
def test_help_fits_a_terminal(command):
    done = fultr(*command, "--help", env={"COLUMNS": "80"})
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: {' '.join(('fultr', *command))} [OPTIONS]")
    assert max(map(len, done.out.splitlines())) <= 80
    listed = re.findall(r"^  [a-z]+  .*", done.out, re.MULTILINE)
    assert not [line for line in listed if line.endswith("...")]  # a summary is short enough to be read


def test_the_list_of_commands_names_what_there_is():
    """It is written without importing them."""
    for name, entry in cli.entries().items():
        command = cli.get_command(click.Context(cli), name)
        assert command.name == name
        assert entry.summary.endswith(".")


def test_help_teaches():
    assert "fultr simulate --propensity none" in fultr("simulate", "-h").out
    assert fultr("--version").out.startswith("fultr ")
    assert fultr().code == 0
    assert "Did you mean" in fultr("simulat").err


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    assert "_FULTR_COMPLETE" in fultr("completion", shell).out
    for words, word, found in (
        ("fultr sim", "1", "simulate"),
        ("fultr deploy st", "2", "start status stop"),
        ("fultr simulate --prop", "2", "--propensity"),
        ("fultr simulate --server ada", "3", "adagrad adam"),
        ("fultr --ver", "1", "--version"),
    ):
        env = {"COMP_WORDS": words, "COMP_CWORD": word, "_FULTR_COMPLETE": f"{shell}_complete"}
        if shell == "fish":
            env["COMP_CWORD"] = words.split()[-1]
        shown = fultr(env=env).out.split()
        assert [name for name in found.split() if not any(name in text for text in shown)] == [], words


@pytest.mark.parametrize(
    ("stop", "word", "code"), [(KeyboardInterrupt, "interrupted", 130), (Terminated, "terminated", 143)]
)
def test_an_interrupted_training_of_devices_continues_and_is_found_again(monkeypatch, stop, word, code):
    """But for one of the demo, which stops what it started."""

    def follow(*_: object) -> None:
        raise stop

    monkeypatch.setattr("fultr.deploy.training.follow", follow)
    monkeypatch.setattr("fultr.cli.deploy._submitted", lambda folder: (7, True))
    done = fultr("deploy", "train", "my fed")
    stays = "run 7 continues until fultr deploy stop 'my fed', and the same command follows it again"
    assert done == (code, b"", f"fultr: {word}; {stays}: fultr deploy train 'my fed'\n")
    monkeypatch.setattr("fultr.cli.deploy._demo", lambda folder, *_: deploy._followed(folder, 7, True))
    assert fultr("deploy", "demo") == (code, b"", f"fultr: {word}\n")


def test_a_call_leaves_the_process_as_it_was():
    before = (warnings.showwarning, signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), sys.stdout)
    assert [fultr("--version").code, fultr("simulate", "--gamma", "-1").code] == [0, 2]
    assert before == (
        warnings.showwarning,
        signal.getsignal(signal.SIGTERM),
        signal.getsignal(signal.SIGINT),
        sys.stdout,
    )


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
    assert done.code == 0, done.err
    [result] = json.loads(done.out)["results"]
    assert (result["experiment"], result["data"]) == ("mine", "toy")
    [verdict] = result["verdicts"]
    assert verdict["answer"] in ("holds", "does not hold", "inconclusive")
    again = fultr("reproduce", "mine.toml", "--data", f"toy={folder}", "--out", "out", cwd=tmp_path)
    assert "FedIPS is better" in again.out
    assert "\x1b" not in again.out
    assert "All 4 runs were in the store" in (tmp_path / "out" / "report.html").read_text()
    status = fultr("reproduce", "--status", "--out", "out", cwd=tmp_path)
    assert "4 of 4 runs done" in status.out
    assert json.loads(fultr("reproduce", "--status", "--out", "out", "--json", cwd=tmp_path).out)["runs"] == 4


def test_an_unknown_colour_is_refused_before_any_work(folder, tmp_path):
    (tmp_path / "mine.toml").write_text(MINE.replace('propensity = "none"', 'colour = "beige"'), encoding="utf-8")
    done = fultr("reproduce", "mine.toml", "--data", folder, cwd=tmp_path)
    assert done.code == 2
    assert "beige" in done.err
    assert not (tmp_path / "out" / "paper" / "runs").exists()


def test_the_list_names_every_experiment_and_its_cost(tmp_path):
    done = fultr("reproduce", "--list", "--quick", "--json", cwd=tmp_path)
    listed = json.loads(done.out)
    assert [entry["name"] for entry in listed][:3] == ["figure-1", "figure-2-left", "figure-2-right"]
    assert all(entry["runs"] > 0 and entry["seconds"] >= 0 and entry["repeats"] == 3 for entry in listed)


def test_two_different_experiments_of_one_name_are_refused(tmp_path):
    for place, repeats in (("a", "2"), ("b", "3")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "mine.toml").write_text(MINE.replace("repeats = 2", f"repeats = {repeats}"), "utf-8")
    done = fultr("reproduce", "a/mine.toml", "b/mine.toml", cwd=tmp_path)
    assert done.code == 2
    assert "two different experiments are called 'mine'" in done.err


def test_folders_of_data_are_found_from_anywhere(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    source = Source(folder.name)
    assert source.where == str(folder)
    assert str(source) == folder.name
    assert Source("synthetic").where == "synthetic"


LONG = "x" * 3000  # no file system has such a name


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--out", LONG),
        ("simulate", "--data", LONG),
        ("evaluate", LONG, "synthetic"),
        ("reproduce", LONG),
        ("data", "inspect", LONG),
        ("device", "simulate", "--dir", LONG),
    ],
)
def test_a_path_that_cannot_be_one_is_wrong_input(arguments):
    done = fultr(*arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert re.fullmatch(r"fultr: \S*xxx\S*: (cannot be read: )?File name too long\n", done.err)


def test_a_relevant_grade_of_0_is_refused(folder, trained):
    done = fultr("evaluate", trained / "ranker.json", folder, "--relevant-grade", "0")
    assert (done.code, done.err) == (
        2,
        "fultr: relevant grade: expected a whole number, at least 1, at most 30, found 0\n",
    )


def test_a_ranker_trained_elsewhere_is_evaluated(folder, trained, tmp_path):
    """What a ranker's file says of its training is anyone's."""
    content = json.loads((trained / "ranker.json").read_text())
    for training in ({}, {"click_model": None}, {"click_model": 3}, {"click_model": {"relevant_grade": None}}):
        (tmp_path / "ranker.json").write_text(json.dumps({**content, "training": training}))
        assert fultr("evaluate", tmp_path / "ranker.json", folder, "--json").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seed", "-1"), "seed: expected a whole number, at least 0, at most 1,099,511,627,776, found -1"),
        (
            ("--rounds", "1" + "0" * 30),
            "rounds: expected a whole number, at least 1, at most 1,000,000,000, found 1000",
        ),
    ],
)
def test_a_demonstration_begins_with_settings_that_can_be_used(tmp_path, arguments, message):
    done = fultr("deploy", "demo", tmp_path / "new", *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err
    assert not (tmp_path / "new").exists()


def test_devices_are_simulated_with_a_seed_that_can_be_used(tmp_path):
    done = fultr("device", "simulate", "--dir", tmp_path / "new", "--seed", "-1")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "seed: expected a whole number, at least 0" in done.err
    assert not (tmp_path / "new").exists()
