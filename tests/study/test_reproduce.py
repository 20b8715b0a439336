"""Experiments done by processes: the same numbers however the work was split or interrupted, and none done twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fultr.cli.main import main
from fultr.core.errors import FultrError
from fultr.data.letor.writer import write_letor
from fultr.data.load import load
from fultr.data.ranking import RankingData
from fultr.study.comparison import comparison
from fultr.study.experiment import Experiment, Line, Panel
from fultr.study.reproduce import Plan, read_progress, reproduce
from fultr.study.run import cost, perform
from fultr.study.settings import RunSettings
from fultr.study.store import Source, Store, Task

SYNTHETIC = Source("synthetic")


def small(repeats: int = 2) -> Experiment:
    """An experiment that takes a second or two, with grids that are as they stand."""
    common = RunSettings.of({"clients": 50, "rounds": 6, "evaluate_every": 3, "lambda_epochs": 1})
    experiment = comparison(
        common,
        gammas=(1.0,),
        repeats=repeats,
        client_rates=(0.01, 0.1),
        server_rates=(1.0,),
        lambda_rates=(0.01, 0.1),
    )
    return replace(experiment, tuning_steps=0)


def stored(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "runs").glob("*.json"))}


def done(experiment: Experiment, folder: Path, **options) -> list:
    [outcomes] = reproduce(Plan([experiment], folder, [SYNTHETIC], **options))
    return outcomes


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The small experiment, done by one process."""
    folder = tmp_path_factory.mktemp("plain")
    [outcome] = done(small(), folder, workers=1)
    return folder, outcome


def test_curves_are_those_of_single_runs_with_the_chosen_rates(plain):
    _, outcome = plain
    experiment, data = outcome.experiment, SYNTHETIC.load()
    for line in experiment.lines:
        rates = outcome.choices[line.name].rates if line.grid else {}
        for repeat, seed in enumerate(experiment.seeds):
            run = perform(line.settings.but(rates), data, seed=seed, splits=("test",))
            np.testing.assert_array_equal(outcome.lines[line.name].ndcg[repeat], run.ndcg["test"])


def test_rates_are_the_best_on_validation_of_the_whole_grid(plain):
    _, outcome = plain
    data = SYNTHETIC.load()
    for line in outcome.experiment.lines:
        if not line.grid:
            continue
        choice = outcome.choices[line.name]
        seed = outcome.experiment.tuning_seeds[0]
        scores = [
            perform(settings, data, seed=seed, splits=("valid",)).ndcg["valid"][-1] for _, settings in line.candidates()
        ]
        assert [score for _, score in choice.grid] == scores
        assert choice.rates == line.candidates()[int(np.argmax(scores))][0]
        assert set(choice.at_edge) == {name for name, values in line.grid if len(values) > 1}  # of two, each is an end


def test_repeats_and_tuning_share_no_seed():
    experiment = replace(small(), repeats=1000, tuning_repeats=5)
    other = replace(experiment, seed=1)
    seeds = [*experiment.seeds, *experiment.tuning_seeds, *other.seeds, *other.tuning_seeds]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.process
def test_two_processes_give_what_one_gives(plain, tmp_path):
    done(small(), tmp_path, workers=2)
    assert stored(tmp_path) == stored(plain[0])


def test_what_is_stored_is_not_done_again(plain, tmp_path, monkeypatch):
    shutil.copytree(plain[0], tmp_path / "copy")
    monkeypatch.delattr("fultr.study.store.perform_all")  # whatever is done now fails
    [outcome] = done(small(), tmp_path / "copy", workers=1)
    assert outcome.lines["FedIPS, γ = 1"].ndcg.tolist() == plain[1].lines["FedIPS, γ = 1"].ndcg.tolist()
    progress, busy = read_progress(tmp_path / "copy")
    assert (progress.done, progress.performed, busy) == (progress.runs, 0, False)


def test_more_repeats_do_only_the_new_ones_and_a_damaged_file_is_done_anew(plain, tmp_path):
    shutil.copytree(plain[0], tmp_path / "copy")
    before = stored(tmp_path / "copy")
    damaged = next(iter(before))
    (tmp_path / "copy" / "runs" / damaged).write_bytes(b'{"run"')
    done(small(repeats=3), tmp_path / "copy", workers=1)
    progress, _ = read_progress(tmp_path / "copy")
    assert progress.performed == len(small().lines) + 1
    assert before.items() <= stored(tmp_path / "copy").items()


def test_a_result_of_other_settings_is_not_taken(plain):
    store = Store(plain[0] / "runs")
    [line] = [line for line in small().lines if line.name == "random ranking"]
    task = Task(line.settings, 0, ("test",), SYNTHETIC, SYNTHETIC.fingerprints())
    assert store.load(task) is not None
    for other in (replace(task, seed=7), replace(task, splits=("valid",)), replace(task, fingerprints=("a", "b", "c"))):
        assert other.key != task.key
        assert store.load(other) is None


def test_runs_that_agree_in_what_matters_are_one():
    a = RunSettings.of({"algorithm": "lambda-linear", "gamma": 1.0})
    b = RunSettings.of({"algorithm": "lambda-linear", "gamma": 2.0, "clients": 7})
    assert a.relevant() == b.relevant()
    assert RunSettings.of({"concentration": 0.5}).relevant() == RunSettings().relevant()
    assert (
        RunSettings.of({"users": 5000, "concentration": 0.5}).relevant() != RunSettings.of({"users": 5000}).relevant()
    )
    assert RunSettings.of({"policy_rate": 0.5}).relevant() != RunSettings().relevant()


def test_a_run_costs_more_with_clicks_and_with_queries_that_are_estimated_from():
    data = load("synthetic")

    def seconds(**settings: Any) -> float:
        return cost(RunSettings.of(settings), data)

    assert seconds(clicks=5) < seconds(clicks=20) < seconds(clicks=20, epochs=2)
    assert seconds(queries=20) == seconds(queries=5)
    assert seconds(queries=5) < seconds(queries=5, propensity="pooled") < seconds(queries=10, propensity="pooled")
    assert seconds(propensity="pooled", rounds=1000) == pytest.approx(2 * seconds(propensity="pooled"), rel=0.05)


def test_tuning_never_reads_test_labels(tmp_path):
    """The same data with every grade of the test part turned around: the choices and their grids stay the same."""
    data = load("synthetic", cache=False)
    test = data.test
    turned = RankingData.from_arrays(
        test.features, test.labels.max() - test.labels, np.repeat(test.query_ids, np.diff(test.offsets))
    )
    choices, finals = [], []
    for name, part in (("true", test), ("poisoned", turned)):
        folder = tmp_path / name
        folder.mkdir()
        for file, queries in (("train", data.train), ("vali", data.valid), ("test", part)):
            write_letor(queries, folder / f"{file}.txt")
        [[outcome]] = reproduce(Plan([small()], tmp_path / f"out-{name}", [Source(str(folder))], workers=1))
        choices.append(outcome.choices)
        finals.append(outcome.lines["FedIPS, γ = 1"].final)
    assert choices[0] == choices[1]
    assert not np.array_equal(*finals)


def test_two_at_once_in_one_folder_are_refused(tmp_path):
    with Store(tmp_path / "runs").alone(), pytest.raises(FultrError, match="another fultr process is using"):
        done(small(), tmp_path, workers=1)


@pytest.mark.process
def test_an_error_of_a_run_is_one_line_wherever_it_happens(tmp_path):
    line = Line(
        "too many", RunSettings.of({"clients": 10, "rounds": 1, "users": 20, "queries": 60})
    )  # a pool has 50 queries
    broken = Experiment("broken", "", "", "", ("synthetic",), (line,), (Panel("", ("too many",)),), repeats=2)
    for workers in (1, 2):
        with pytest.raises(FultrError) as caught:
            done(broken, tmp_path / str(workers), workers=workers)
        assert "\n" not in str(caught.value)


SLOW = """\
title = "Slow enough to be killed"
repeats = 3

[settings]
clients = 3000
rounds = 400
evaluate_every = 100

[[line]]
name = "FedIPS"

[[line]]
name = "FedAvg"
propensity = "none"

[[line]]
name = "λLinear"
algorithm = "lambda-linear"
lambda_epochs = 2
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from fultr.cli.main import main; main()", *arguments]


@pytest.mark.process
def test_killing_the_whole_tree_and_starting_again_gives_the_same_files(tmp_path, capsys):
    file = tmp_path / "slow.toml"
    file.write_text(SLOW, encoding="utf-8")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command("reproduce", str(file), "--out", str(whole)), check=True, capture_output=True)
    kills = 0
    while kills < 3:
        process = subprocess.Popen(
            command("reproduce", str(file), "--out", str(killed)),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before, deadline = len(stored(killed)), time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            under_way = list((killed / "runs").glob("*.checkpoint.npz"))
            if under_way and len(stored(killed)) > before:
                break
            time.sleep(0.01)
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
        assert len(stored(killed)) < len(stored(whole))
        with pytest.raises(SystemExit, match="0"):
            main(["reproduce", "--status", "--out", str(killed)])
        assert "Not running; the same command resumes." in capsys.readouterr().out
    assert kills
    assert list((killed / "runs").glob("*.checkpoint.npz"))
    again = subprocess.run(
        command("reproduce", str(file), "--out", str(killed), "--json"), check=True, capture_output=True, text=True
    )
    assert stored(killed) == stored(whole)
    assert not list((killed / "runs").glob("*.checkpoint.npz"))
    for name in ("curves.csv", "curves.parquet", "results.json", "tuning.csv", "figures/slow.png"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name
    assert json.loads(again.stdout)["files"]
