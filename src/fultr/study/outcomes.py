"""What the finished runs of an experiment come to, all of them or those that there are so far."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from fultr.study.experiment import Experiment, Line, Outcome
from fultr.study.run import Result
from fultr.study.settings import RunSettings
from fultr.study.statistics import Measured
from fultr.study.store import Source, Task
from fultr.study.tuning import Lookup, Tuning, tuned


def measuring_tasks(
    experiment: Experiment, line: Line, source: Source, tuning: Tuning
) -> tuple[list[Task], list[Task]]:
    """The runs of a line with the rates that its grid chose, and those with the rates of a wider one, if others.

    None as long as the rates are not chosen.
    """

    def tasks(settings: RunSettings, repeats: range) -> list[Task]:
        prints = source.fingerprints()
        return [Task(settings, experiment.repeat_seed(i), ("test",), source, prints) for i in repeats]

    if not line.grid:
        return tasks(line.settings, range(experiment.repeats)), []
    if tuning.first is None:
        return [], []
    first = tasks(line.settings.but(tuning.first.rates), range(experiment.repeats))
    if tuning.widest is None or tuning.widest.rates == tuning.first.rates:
        return first, []
    return first, tasks(line.settings.but(tuning.widest.rates), experiment.wider_repeats)


def outcome_of(experiment: Experiment, source: Source, finished: Lookup) -> Outcome:
    """What the finished runs on one data set come to; lines of which there are none are missing."""
    outcome = Outcome(experiment, str(source), source.fingerprints(), {})
    counted: set[str] = set()
    for line in experiment.lines:
        tuning = tuned(experiment, line, source, finished)
        measuring = measuring_tasks(experiment, line, source, tuning)
        first, wider = (_measured(tasks, finished) for tasks in measuring)
        for task in itertools.chain(*tuning.steps, *measuring):
            if task.key not in counted and (result := finished(task)) is not None:
                counted.add(task.key)
                outcome.origins[result.origin] += 1
        if first is None:
            continue
        outcome.lines[line.name] = first
        if tuning.first is not None:
            outcome.choices[line.name] = tuning.first
            if tuning.widest is not None and (wider is not None or tuning.widest.rates == tuning.first.rates):
                outcome.wider[line.name] = tuning.widest
        if wider is not None:
            outcome.wider_lines[line.name] = wider
    return outcome


def runs_of(experiment: Experiment, source: Source, finished: Lookup) -> Iterator[tuple[Task, Result]]:
    """The finished runs on one data set that the outcome follows from, and those that rates will be chosen by."""
    for line in experiment.lines:
        tuning = tuned(experiment, line, source, finished)
        for tasks in (*tuning.steps, *measuring_tasks(experiment, line, source, tuning)):
            for task in tasks:
                if (result := finished(task)) is not None:
                    yield task, result


def _measured(tasks: list[Task], finished: Lookup) -> Measured | None:
    found = {repeat: result for repeat, task in enumerate(tasks) if (result := finished(task)) is not None}
    if not found:
        return None
    runs = list(found.values())
    shown = [run.online["displayed"] - run.online["policy"] for run in runs if run.online]
    repeats = None if len(found) == len(tasks) else tuple(found)
    ndcg = np.stack([run.ndcg["test"] for run in runs])
    return Measured(runs[0].rounds, ndcg, np.stack(shown) if shown else None, repeats)
