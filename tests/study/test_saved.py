"""Finished runs in compact files: what they hold, what is made of them, and that they come out the same again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fultr.cli.main import main
from fultr.core.errors import FultrError
from fultr.study.checking import Checked
from fultr.study.experiment import Experiment, Outcome
from fultr.study.experiment_files import read_experiment
from fultr.study.origins import Origin, this_origin
from fultr.study.reproduce import Plan, outcomes, reproduce, save
from fultr.study.saved import Saved, SavedRun
from fultr.study.settings import RunSettings
from fultr.study.store import Source, Store, Task, run_key

RESULTS = Path(__file__).parents[2] / "results"
FILE = """\
title = "Small"
repeats = 3

[settings]
clients = 50
rounds = 6
evaluate_every = 3

[tuning]
client_rate = [0.001, 0.01]
steps = 2

[[line]]
name = "FedIPS"

[[line]]
name = "FedAvg"
propensity = "none"

[[line]]
name = "refreshed"
refresh = 3
client_rate = 0.01

[[claim]]
says = "FedIPS is better"
kind = "ends-above"
lines = ["FedIPS"]
than = ["FedAvg"]

[[claim]]
says = "Users see nothing worse"
kind = "shows-no-worse"
lines = ["refreshed"]
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, Outcome]:
    """A folder with the file, a finished store and saved runs; and what came out."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "small.toml").write_text(FILE, encoding="utf-8")
    plan = Plan([experiment(folder)], folder / "out", workers=1)
    [[outcome]] = reproduce(plan)
    save(experiment(folder), plan, folder / "results")
    return folder, outcome


def experiment(folder: Path) -> Experiment:
    return read_experiment(folder / "small.toml")


def fultr(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


def test_saved_runs_give_the_same_bits_without_data_or_training(done, tmp_path, monkeypatch):
    folder, outcome = done
    monkeypatch.setattr("fultr.study.store.load", lambda *_, **__: pytest.fail("data were loaded"))
    monkeypatch.setattr("fultr.study.store.perform_all", lambda *_, **__: pytest.fail("a run was done"))
    plan = Plan([experiment(folder)], tmp_path, saved=folder / "results", from_saved=True)
    [again] = outcomes(experiment(folder), plan)
    assert again.choices == outcome.choices
    assert again.wider == outcome.wider
    assert again.fingerprints == outcome.fingerprints
    for name, line in outcome.lines.items():
        assert again.lines[name].ndcg.tobytes() == line.ndcg.tobytes()
        assert line.shown is not None
        np.testing.assert_array_equal(again.lines[name].shown, line.shown)
    assert [v.as_dict() for v in again.verdicts()] == [v.as_dict() for v in outcome.verdicts()]


def test_the_command_redraws_the_figure_and_the_verdicts(done, tmp_path, capsys):
    folder, _ = done
    file = folder / "small.toml"
    assert fultr("reproduce", file, "--out", folder / "out", "--finished") == 0
    assert fultr("reproduce", file, "--from", folder / "results", "--out", tmp_path / "again", "--json") == 0
    told = json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""]))
    assert {verdict["claim"]["says"] for verdict in told["results"][0]["verdicts"]} == {
        "FedIPS is better", "Users see nothing worse",
    }  # fmt: skip
    for name in ("figures/small.png", "figures/small.svg", "results.json", "curves.csv", "tuning.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / "out" / name).read_bytes(), name


def test_runs_keep_what_computed_them_wherever_they_are_saved(done, tmp_path, capsys):
    folder, _ = done
    runs = Saved.read(folder / "results", "small").runs
    assert {run.result.origin for run in runs.values()} == {this_origin()}
    older = Origin("0.1.0", "another processor")
    Saved(tmp_path / "old" / "small.parquet").add(
        replace(run, result=replace(run.result, origin=older)) for run in runs.values()
    )
    options = ("--from", tmp_path / "old", "--save", tmp_path / "new", "--out", tmp_path / "out")
    assert fultr("reproduce", folder / "small.toml", *options) == 0
    assert {run.result.origin for run in Saved.read(tmp_path / "new", "small").runs.values()} == {older}
    told = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert told["results"][0]["computed_by"] == [{"fultr": "0.1.0", "platform": "another processor", "runs": len(runs)}]


def test_a_sample_is_computed_again_and_a_forged_run_is_found(done, tmp_path, capsys):
    folder, _ = done
    file, results = folder / "small.toml", folder / "results"
    assert fultr("reproduce", file, "--check", results, "--sample", 4, "--seed", 1, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["difference"] for one in told["checked"]] == [0.0] * 4
    runs = Saved.read(results, "small").runs.values()
    for name, number, off, origin, said in (
        ("a", 1, 1e-15, this_origin(), "NOT the same"),
        ("b", 1, 9e-4, Origin("0.3.0"), "rounding, if it was on another platform, which was not recorded"),
        ("c", 1, 9e-4, replace(this_origin(), platform="another"), "as rounding may by another platform"),
        ("d", 1, 9e-4, replace(this_origin(), fultr="0.1.0"), "as rounding may by another version"),
        ("e", 3, 9e-4, Origin("0.3.0"), "in the same direction, which rounding would not do: they are NOT the same"),
        ("f", 1, 0.015, Origin("0.3.0"), "NOT the same"),
    ):
        forged = [
            replace(run, result=replace(run.result, ndcg={run.split: run.result.ndcg[run.split] + off}, origin=origin))
            for run in runs
        ]
        Saved(tmp_path / name / "small.parquet").add(forged)
        code = fultr("reproduce", file, "--check", tmp_path / name, "--sample", number, "--seed", 1)
        captured = capsys.readouterr()
        assert code == ("NOT" in said)
        assert said in captured.out + captured.err
        assert f"Saved by {origin}. Computed again by {this_origin()}." in captured.err
    assert fultr("reproduce", file, "--rounds", 12, "--check", results) == 2
    assert "no finished runs of these experiments with these settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("difference", "shift", "agrees"),
    [(0.015, 0.001, True), (0.03, 0.001, False), (0.015, -0.012, False), (0.009, 0.009, True)],
)
def test_elsewhere_a_point_may_be_further_off_than_the_mean(difference, shift, agrees, done):
    folder, _ = done
    run = next(iter(Saved.read(folder / "results", "small").runs.values()))
    assert Checked("small", run, Origin("0.3.0", "elsewhere"), difference, shift).agrees is agrees
    assert not Checked("small", run, run.result.origin, difference, shift).agrees


def test_an_experiment_is_completed_in_sittings(done, tmp_path, capsys):
    """One line, fewer repeats, then the rest; each sitting in a folder of its own, with the saved runs alone kept."""
    folder, outcome = done
    file, results = folder / "small.toml", tmp_path / "results"
    options = ("--save", results, "--workers", 1, "--json")
    assert fultr("reproduce", file, "--lines", "FedIPS", "--repeats", 2, "--out", tmp_path / "1", *options) == 0
    told = json.loads(capsys.readouterr().out)["results"][0]
    assert list(told["lines"]) == ["FedIPS"]
    assert [verdict["answer"] for verdict in told["verdicts"]] == ["not run", "not run"]
    before = Saved.read(results, "small").runs.keys()
    assert fultr("reproduce", file, "--out", tmp_path / "2", *options) == 0
    assert not {path.stem for path in (tmp_path / "2" / "runs").glob("*.json")} & before  # none was done twice
    assert (results / "small.parquet").read_bytes() == (folder / "results" / "small.parquet").read_bytes()
    told = json.loads(capsys.readouterr().out)["results"][0]
    assert told["lines"]["FedAvg"]["final"] == outcome.lines["FedAvg"].final.tolist()


def test_what_was_saved_for_another_experiment_is_not_done_again(done, tmp_path, monkeypatch):
    folder, outcome = done
    other = replace(experiment(folder), name="other")
    shutil.copytree(folder / "results", tmp_path / "results")
    monkeypatch.setattr("fultr.study.store.perform_all", lambda *_, **__: pytest.fail("a run was done"))
    [[again]] = reproduce(Plan([other], tmp_path / "out", workers=1, saved=tmp_path / "results"))
    assert again.lines["FedIPS"].ndcg.tobytes() == outcome.lines["FedIPS"].ndcg.tobytes()
    # What is judged without running anything is what was saved for the experiment itself.
    plan = Plan([other], tmp_path / "out", saved=tmp_path / "results", from_saved=True)
    assert outcomes(other, plan) == []
    save(other, replace(plan, from_saved=False), tmp_path / "results")
    other_file, own_file = (tmp_path / "results" / f"{name}.parquet" for name in ("other", "small"))
    assert other_file.read_bytes() == own_file.read_bytes()


def test_rates_are_chosen_on_more_repeats_when_asked(done, tmp_path, capsys):
    """The run of the one tuning repeat counts again; what decides is the median of all, which `--from` finds too."""
    folder, _ = done
    shutil.copytree(folder / "results", tmp_path / "results")
    asked = ("reproduce", folder / "small.toml", "--tuning-repeats", 3, "--json")
    assert fultr(*asked, "--save", tmp_path / "results", "--workers", 1, "--out", tmp_path / "1") == 0
    told = json.loads(capsys.readouterr().out)["results"][0]["lines"]
    assert fultr(*asked, "--from", tmp_path / "results", "--out", tmp_path / "2") == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["lines"] == told
    wanted = replace(experiment(folder), tuning_repeats=3)
    saved = Saved.read(tmp_path / "results", "small").runs
    source = Source("synthetic")
    for line in wanted.lines[:2]:
        for rates in told[line.name]["choice"]["grid"]:
            score, settings = rates.pop("validation_ndcg"), line.settings.but(rates)
            keys = [Task(settings, s, ("valid",), source, source.fingerprints()).key for s in wanted.tuning_seeds]
            assert len(set(keys)) == 3
            assert score == np.median([saved[key].result.ndcg["valid"][-1] for key in keys])


def test_finished_runs_of_an_unfinished_experiment_are_saved(done, tmp_path):
    folder, _ = done
    whole = Plan([experiment(folder)], folder / "out", workers=1)
    shutil.copytree(folder / "out" / "runs", tmp_path / "out" / "runs")
    part = Plan([experiment(folder)], tmp_path / "out", workers=1)
    [line] = [line for line in experiment(folder).lines if line.name == "refreshed"]
    seeds = experiment(folder).seeds
    source = Source("synthetic")
    task = Task(line.settings, seeds[1], ("test",), source, source.fingerprints())
    (tmp_path / "out" / "runs" / f"{task.key}.json").unlink()
    save(experiment(folder), part, tmp_path / "results")
    saved = Plan([experiment(folder)], tmp_path, saved=tmp_path / "results", from_saved=True)
    [outcome] = outcomes(experiment(folder), saved)
    assert outcome.lines["refreshed"].numbers == (0, 2)
    assert outcome.lines["FedIPS"].numbers == (0, 1, 2)
    assert save(experiment(folder), whole, tmp_path / "results") == 1  # what was missing


def test_what_is_missing_is_said_on_the_terminal_the_page_and_the_summary(done, tmp_path, capsys):
    """An experiment without a file, a data set without runs, lines of other settings, and runs that nothing uses."""
    folder, _ = done
    changed = FILE.replace("refresh = 3", "refresh = 2")
    more = changed.replace("repeats = 3", 'repeats = 3\ndata = ["synthetic-yahoo", "synthetic"]')
    (tmp_path / "small.toml").write_text(more, encoding="utf-8")
    (tmp_path / "other.toml").write_text(FILE, encoding="utf-8")
    saved = (tmp_path / "small.toml", tmp_path / "other.toml", "--from", folder / "results")
    assert fultr("reproduce", *saved, "--out", tmp_path / "out") == 0
    wanted = [
        "Not run yet: small [synthetic-yahoo]: all lines are missing",
        "Not run yet: small [synthetic]: 1 of 3 lines is missing",
        "Not run yet: other: all of it",
        "Left out: small: 3 saved runs of other settings or repeats than asked for",
    ]
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith(("Not run", "Left"))] == wanted
    for name in ("report.html", "summary.md"):
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert all(line in text for line in wanted)
    assert json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["notes"] == wanted


def test_saved_runs_of_an_experiment_that_is_not_known_are_mentioned(done, tmp_path, capsys):
    """Without names, the experiments that come with fultr are judged; here one of them in three repeats of many."""
    folder, _ = done
    shutil.copy(RESULTS / "trees.parquet", tmp_path)
    shutil.copy(folder / "results" / "small.parquet", tmp_path)
    assert fultr("reproduce", "--from", tmp_path, "--repeats", 100, "--out", tmp_path / "out") == 0
    told = capsys.readouterr().err
    assert "Left out: small: give its TOML file" in told
    assert "Not run yet: trees [synthetic]: some lines have 10 of 100 repeats" in told
    assert "Mean ± standard error over 10 repeats." in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_change_of_one_line_leaves_the_runs_of_the_others(done, tmp_path):
    folder, _ = done
    (tmp_path / "small.toml").write_text(FILE.replace("refresh = 3", "refresh = 2"), encoding="utf-8")
    plan = Plan([experiment(tmp_path)], tmp_path, saved=folder / "results", from_saved=True)
    [outcome] = outcomes(experiment(tmp_path), plan)
    assert set(outcome.lines) == {"FedIPS", "FedAvg"}


def test_new_settings_leave_runs_what_they_are_and_other_values_do_not(done):
    folder, _ = done
    settings = RunSettings().relevant()
    older = {name: value for name, value in settings.items() if name != "averaged"}  # before there was such a thing
    key = run_key(settings, 0, ["test"], ["a"])
    assert key == run_key(older, 0, ["test"], ["a"])
    assert key != run_key({**settings, "averaged": 0.5}, 0, ["test"], ["a"])
    assert key != run_key({**settings, "once_there": 1}, 0, ["test"], ["a"])
    for other in ((1, ["test"], ["a"]), (0, ["valid"], ["a"]), (0, ["test"], ["b"])):
        assert key != run_key(settings, *other)
    store, source = Store(folder / "out" / "runs"), Source("synthetic")
    [line] = [line for line in experiment(folder).lines if line.name == "refreshed"]
    task = Task(line.settings, experiment(folder).seeds[0], ("test",), source, source.fingerprints())
    path = folder / "out" / "runs" / f"{task.key}.json"
    content = path.read_text(encoding="utf-8")
    told = json.loads(content)
    try:
        for name, value, found in (("averaged", None, True), ("gamma", 7.0, False)):  # missing; another default once
            run = json.loads(content)["run"]
            del run["settings"][name]
            if value is not None:
                run["settings"][name] = value
            path.write_text(json.dumps({**told, "run": run}), encoding="utf-8")
            assert (store.load(task) is not None) == found
    finally:
        path.write_text(content, encoding="utf-8")


def test_other_data_of_the_same_name_are_refused(done, tmp_path):
    folder, _ = done
    shutil.copy(folder / "results" / "small.parquet", tmp_path)
    saved = Saved.read(tmp_path, "small")
    run = next(iter(saved.runs.values()))
    with pytest.raises(FultrError, match=r"has runs of other data called 'synthetic'; give the data another name"):
        saved.add([replace(run, fingerprints=("other",))])


def test_other_data_of_the_same_name_are_refused_before_any_work(done, tmp_path, monkeypatch, capsys):
    folder, _ = done
    saved = Saved.read(folder / "results", "small")
    other = [replace(run, fingerprints=("other",)) for run in saved.runs.values()]
    Saved(tmp_path / "results" / "small.parquet").add(other)
    monkeypatch.setattr("fultr.study.store.perform_all", lambda *_, **__: pytest.fail("a run was done"))
    options = ("--save", tmp_path / "results", "--out", tmp_path / "out", "--workers", 1)
    assert fultr("reproduce", folder / "small.toml", *options) == 2
    assert "has runs of other data called 'synthetic'" in capsys.readouterr().err


def test_reports_and_damaged_files_beside_saved_runs_are_passed_over(done, tmp_path, monkeypatch, capsys):
    folder, _ = done
    shutil.copytree(folder / "results", tmp_path / "both")
    (tmp_path / "both" / "broken.parquet").write_bytes(b"PAR1 nothing")
    monkeypatch.setattr("fultr.study.store.perform_all", lambda *_, **__: pytest.fail("a run was done"))
    for _ in range(2):  # the first writes a report, with a Parquet file of its own
        options = ("--save", tmp_path / "both", "--out", tmp_path / "both", "--workers", 1)
        assert fultr("reproduce", folder / "small.toml", *options) == 0
    assert (tmp_path / "both" / "curves.parquet").exists()
    capsys.readouterr()
    shutil.copy(folder / "small.toml", tmp_path / "curves.toml")
    assert fultr("reproduce", tmp_path / "curves.toml", *options) == 2
    assert "the report there has a file curves.parquet, as this experiment would" in capsys.readouterr().err


def test_runs_that_rates_are_chosen_by_are_saved_before_any_line_is_measured(done, tmp_path, capsys):
    folder, _ = done
    store, again = Store(folder / "out" / "runs"), Store(tmp_path / "out" / "runs")
    again.folder.mkdir(parents=True)
    of, source = experiment(folder), Source("synthetic")
    [(_, settings), *_] = of.lines[0].candidates()
    task = Task(settings, of.tuning_seeds[0], ("valid",), source, source.fingerprints())
    shutil.copy(store.folder / f"{task.key}.json", again.folder)
    options = ("--finished", "--save", tmp_path / "results", "--out", tmp_path / "out")
    assert fultr("reproduce", folder / "small.toml", *options) == 2
    assert "no finished runs of these experiments" in (said := capsys.readouterr().err)
    assert f"; 1 that rates are chosen by are new in {tmp_path / 'results'}" in said
    assert Saved.read(tmp_path / "results", "small").runs.keys() == {task.key}


def test_rounds_in_which_nobody_searched_are_saved_and_read(tmp_path, capsys):
    """With Poisson sampling of few users a cohort may be empty: then there is nothing that users were shown."""
    (tmp_path / "few.toml").write_text(
        "repeats = 2\n[settings]\nclients = 1\nusers = 10\nsampling = 'poisson'\nrounds = 10\nevaluate_every = 1\n"
        "[[line]]\nname = 'few'\n",
        encoding="utf-8",
    )
    options = ("--out", tmp_path / "out", "--json")
    assert fultr("reproduce", tmp_path / "few.toml", "--save", tmp_path / "results", "--workers", 1, *options) == 0
    told = json.loads(capsys.readouterr().out)["results"][0]["lines"]["few"]["final"]
    saved = Saved.read(tmp_path / "results", "few").runs.values()
    assert any(np.isnan(run.result.online["shown"]).any() for run in saved)
    assert fultr("reproduce", tmp_path / "few.toml", "--from", tmp_path / "results", *options) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["lines"]["few"]["final"] == told


def test_a_small_file_of_very_long_curves_is_refused_unread(tmp_path, capsys):
    column = pa.array([np.zeros(6_000_000)], pa.list_(pa.float64()))
    table = pa.table({"fingerprints": ["[]"], "settings": ["{}"], "seed": [0], "split": ["test"], "ndcg": column})
    pq.write_table(table, tmp_path / "figure-1.parquet", compression="zstd")
    assert (tmp_path / "figure-1.parquet").stat().st_size < 100_000
    assert fultr("reproduce", "--from", tmp_path) == 2
    assert "it holds 6,000,000 numbers, expected at most 5,000,000" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"ndcg": [0.1, 0.2, 0.3]},
        {"ndcg": {}},
        {"ndcg": {"test": [0.1, 0.2]}},
        {"ndcg": {"test": [0.1, 0.2, 55.0]}},
        {"ndcg": {"test": [0.1, float("nan"), 0.3]}},
        {"rounds": [0, 3, float("inf")]},
        {"online": {"x": [1]}},
        {"online": {}},
        {"platform": {"a": 1}, "rounds": None},
        {"run": None},
    ],
)
def test_the_run_of_a_damaged_file_is_none(change, done):
    folder, _ = done
    store, source = Store(folder / "out" / "runs"), Source("synthetic")
    line = experiment(folder).lines[2]
    task = Task(line.settings, experiment(folder).seeds[0], ("test",), source, source.fingerprints())
    path = store.folder / f"{task.key}.json"
    content = path.read_text(encoding="utf-8")
    assert store.load(task) is not None
    try:
        path.write_text(json.dumps({**json.loads(content), **change}), encoding="utf-8")
        assert store.load(task) is None
        path.write_text("[" * 100_000, encoding="utf-8")
        assert store.load(task) is None
    finally:
        path.write_text(content, encoding="utf-8")


def test_what_cannot_be_read_is_one_line(tmp_path, done, capsys):
    folder, _ = done
    (tmp_path / "small.parquet").write_bytes(b"PAR1 nothing")
    assert fultr("reproduce", folder / "small.toml", "--from", tmp_path) == 2
    assert capsys.readouterr().err.startswith(f"fultr: {tmp_path / 'small.parquet'}: cannot be read as saved runs")
    assert fultr("reproduce", "figure-1", "--from", tmp_path) == 2
    assert "has no runs of figure-1" in capsys.readouterr().err
    assert fultr("reproduce", "--from", tmp_path / "nowhere") == 2
    assert "expected a folder of saved runs" in capsys.readouterr().err
    assert fultr("reproduce", folder / "small.toml", "--lines", "nothing*") == 2
    assert "no line of small matches 'nothing*'" in capsys.readouterr().err


def test_a_bit_that_changes_is_noticed(done, tmp_path):
    """Wherever it is: in a page, in the file's own tables, in a name. What is read is what was written, or nothing."""
    folder, _ = done
    path = folder / "results" / "small.parquet"
    good, content = Saved.read(path.parent, "small").runs, path.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for place in random.choice(len(content), 150, replace=False):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(random.integers(8))
        (tmp_path / "small.parquet").write_bytes(damaged)
        try:
            found = Saved.read(tmp_path, "small").runs
        except FultrError:
            refused += 1
            continue
        assert found.keys() == good.keys()
        assert all(_content(found[key]) == _content(run) for key, run in good.items())
    assert refused > 20  # much of a file as small as this makes no difference


def _content(run: SavedRun) -> tuple[object, ...]:
    shown = run.result.online.get("shown")
    curves = (
        run.result.rounds.tolist(),
        run.result.ndcg[run.split].tolist(),
        None if shown is None else shown.tolist(),
    )
    return (run.data, run.fingerprints, run.settings, run.seed, run.split, run.result.origin, curves)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of the saved runs as older files have them: without platforms and digests."""
    table = pq.read_table(folder / "results" / "small.parquet").drop_columns(["platform", "digest"])
    return table.to_pylist()


def test_files_without_platforms_and_digests_stay_readable(done, tmp_path):
    folder, _ = done
    pq.write_table(pa.Table.from_pylist(rows_of(folder)), tmp_path / "small.parquet")
    good, found = (Saved.read(place, "small").runs for place in (folder / "results", tmp_path))
    assert found.keys() == good.keys()
    assert {run.result.origin for run in found.values()} == {replace(this_origin(), platform="")}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shown": None}, "what users were shown has no points, expected 2"),
        ({"shown": [0.1]}, "what users were shown has 1 points, expected 2"),
        ({"ndcg": [0.1, float("nan"), 0.3]}, "its NDCG is not from 0 to 1"),
        ({"ndcg": [0.1, 0.3]}, "its curve has more rounds than values, or fewer"),
        ({"ndcg": [0.1, 0.2, 55.0]}, "its NDCG is not from 0 to 1"),
        ({"rounds": [0, 6, 3]}, "its curve has other rounds than its settings say"),
        ({"settings": "[" * 100_000}, ""),
        ({"data": "a\x1b[31mb"}, "its data have no name that can be printed: 'a?[31mb'"),
        ({"data": ""}, "its data have no name that can be printed: ''"),
        ({"rounds": [0, 6], "ndcg": [0.1, 0.3], "shown": [0.1]}, "its curve has 2 points, expected 3"),
        ({"seed": None}, "its parts do not fit together"),
        ({"settings": "{"}, "Expecting property name"),
        ({"split": b"t\xff"}, "'utf-8' codec can't decode"),
        ({"digest": "0123456789abcdef"}, "it is damaged: it is not what was written"),
        (None, "it is there twice"),
    ],
)
def test_a_run_that_cannot_be_read_is_one_line_with_file_and_run(change, said, done, tmp_path, capsys):
    folder, _ = done
    rows = rows_of(folder)
    tests = [number for number, row in enumerate(rows) if row["split"] == "test"]
    number = next(n for n in reversed(tests) if rows[n - 1]["settings"] == rows[n]["settings"])
    rows[number] = rows[number - 1] if change is None else {**rows[number], **change}
    columns = {name: [row.get(name) for row in rows] for name in [*rows[0], "digest"]}
    texts = [v.encode() if isinstance(v, str) else v for v in columns["split"]]
    arrays = {**columns, "split": pa.array(texts, pa.binary()).view(pa.string())}
    pq.write_table(pa.table(arrays), tmp_path / "small.parquet")
    assert fultr("reproduce", folder / "small.toml", "--from", tmp_path) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"fultr: {tmp_path / 'small.parquet'}: run {number}: cannot be read: {said}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--from", "RESULTS", "--list"), "--list makes no difference with --from"),
        (("--from", "RESULTS", "--lines", "nosuch"), "--lines makes no difference with --from"),
        (("--from", "RESULTS", "--data", "a=b"), "--data makes no difference with --from"),
        (("--from", "RESULTS", "--merge"), "--merge makes no difference with --from"),
        (("--status", "--from", "RESULTS"), "--from makes no difference with --status"),
        (("--check", "RESULTS", "--save", "there"), "--save makes no difference with --check"),
        (("--check", "RESULTS", "--lines", "nosuch"), "--lines makes no difference with --check"),
        (("--check", "RESULTS", "--finished"), "--finished makes no difference with --check"),
        (("--finished", "--lines", "FedIPS"), "--lines makes no difference with --finished"),
    ],
)
def test_an_option_that_would_make_no_difference_is_refused(options, said, done, capsys):
    folder, _ = done
    given = [folder / "results" if option == "RESULTS" else option for option in options]
    assert fultr("reproduce", folder / "small.toml", *given) == 2
    assert said in capsys.readouterr().err


def test_a_run_takes_little_room(done):
    """51 points of 8 bytes are 408; names and settings of hundreds of runs are stored once."""
    folder, _ = done
    saved = Saved.read(folder / "results", "small")
    run = next(run for run in saved.runs.values() if run.split == "test")
    random = np.random.default_rng(0)
    many = [
        replace(
            run,
            seed=seed,
            settings={**run.settings, "rounds": 500, "evaluate_every": 10},
            result=replace(
                run.result,
                rounds=np.arange(0, 501, 10),
                ndcg={"test": 0.5 + 0.1 * random.random(51)},
                online={"shown": np.zeros(50)} if run.result.online else {},
            ),
        )
        for seed in range(1000)
    ]
    path = folder / "room" / "many.parquet"
    Saved(path).add(many)
    assert path.stat().st_size < 1000 * 408
    back = Saved.read(path.parent, "many")
    assert all(back.runs[one.key].result.ndcg["test"].tobytes() == one.result.ndcg["test"].tobytes() for one in many)
