"""The results that come with the source: they can be judged, drawn and computed again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fultr.core.drawing import rendered
from fultr.data.load import load
from fultr.study.checking import recompute
from fultr.study.experiment_files import packaged
from fultr.study.figures import draw
from fultr.study.missing import left_out, missing_parts
from fultr.study.reproduce import Plan, outcomes
from fultr.study.run import cost
from fultr.study.saved import Saved, SavedRun, saved_experiments
from fultr.study.settings import RunSettings
from fultr.study.store import Source
from fultr.study.summary import section

RESULTS = Path(__file__).parents[2] / "results"
PAGE = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
EXPERIMENTS = {experiment.name: experiment for experiment in packaged()}


@pytest.mark.parametrize("name", saved_experiments(RESULTS))
def test_they_are_complete_and_can_be_judged_and_drawn(name, tmp_path, monkeypatch):
    monkeypatch.setattr("fultr.study.store.perform_all", lambda *_, **__: pytest.fail("a run was done"))
    experiment = EXPERIMENTS[name]
    plan = Plan([experiment], tmp_path, saved=RESULTS, from_saved=True)
    found = outcomes(experiment, plan)
    own = [outcome for outcome in found if outcome.data in experiment.data]  # real data sets have some of the lines
    assert [outcome.data for outcome in own] == list(experiment.data)
    assert [missing_parts(outcome) for outcome in own] == [[]] * len(own)
    assert left_out(plan) == []
    assert sum(outcome.origins.total() for outcome in found) == len(Saved.read(RESULTS, name).runs)
    verdicts = [verdict for outcome in own for verdict in outcome.verdicts()]
    assert len(verdicts) == len(experiment.claims) * len(own)
    assert all(verdict.answer != "not run" and np.isfinite(verdict.effect) for verdict in verdicts)
    assert rendered(draw(found), "png").startswith(b"\x89PNG")
    assert section(found) in PAGE, "fultr reproduce --from results writes out/saved/summary.md, which belongs there"


def test_the_page_with_all_results_has_these_and_no_others():
    titles = [experiment.title for name, experiment in EXPERIMENTS.items() if name in saved_experiments(RESULTS)]
    assert [line.removeprefix("## ") for line in PAGE.splitlines() if line.startswith("## ")] == titles


@pytest.mark.parametrize("algorithm", ["lambda-linear", "federated"])
def test_the_cheapest_run_of_an_algorithm_comes_out_as_it_was_saved(algorithm):
    data = load("synthetic")

    def seconds(run: SavedRun) -> float:
        return cost(RunSettings.of(run.settings), data, (run.split,))

    runs = [
        (name, run)
        for name in saved_experiments(RESULTS)
        for run in Saved.read(RESULTS, name).runs.values()
        if (run.data, run.split, run.settings["algorithm"]) == ("synthetic", "test", algorithm)
    ]
    name, cheapest = min(runs, key=lambda entry: seconds(entry[1]))
    checked = recompute(name, cheapest, {"synthetic": Source("synthetic")})
    assert checked.agrees, checked.words
