"""What experiments have not run yet, and which saved runs they make no use of, in words."""

from __future__ import annotations

from collections.abc import Sequence

from fultr.study.experiment import Outcome
from fultr.study.outcomes import runs_of
from fultr.study.reproduce import Plan
from fultr.study.saved import Saved
from fultr.study.store import Source


def missing_runs(plan: Plan, outcomes: Sequence[Outcome]) -> list[str]:
    """What has not been run yet: a line for each experiment and data set of which something is missing.

    Args:
        plan: the experiments that were asked for. From saved runs alone, each should have its own data sets.
        outcomes: what there is of them.
    """
    said = []
    for experiment in plan.experiments:
        found = {outcome.data: outcome for outcome in outcomes if outcome.experiment.name == experiment.name}
        if not found:
            said.append(f"Not run yet: {experiment.name}: all of it")
            continue
        own = [str(Source(where)) for where in experiment.data] if plan.from_saved else []
        for data in dict.fromkeys([*own, *map(str, plan.sources_of(experiment))]):
            parts = missing_parts(found[data]) if data in found else ["all lines are missing"]
            if parts:
                said.append(f"Not run yet: {experiment.name} [{data}]: {'; '.join(parts)}")
    return said


def missing_parts(outcome: Outcome) -> list[str]:
    """What is missing of an experiment on one data set, with some lines there."""
    experiment, lines = outcome.experiment, outcome.lines
    least = min(len(line.ndcg) for line in lines.values())
    absent, unfinished = len(experiment.lines) - len(lines), len(outcome.unfinished)
    parts = [f"{absent} of {len(experiment.lines)} lines {_are(absent)} missing"] if absent else []
    parts += [f"some lines have {least} of {experiment.repeats} repeats"] if least < experiment.repeats else []
    parts += [f"the wider grid{'s' * (unfinished > 1)} of {unfinished} line{'s' * (unfinished > 1)} "
              f"{_are(unfinished)} unfinished"] if unfinished else []  # fmt: skip
    return parts


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def left_out(plan: Plan) -> list[str]:
    """How many saved runs of each experiment are of other settings or repeats than it has."""
    said = []
    for experiment in plan.experiments:
        saved, finished = Saved.read(plan.folder_of_saved, experiment.name), plan.finished(experiment)
        used = {task.key for source in plan.sources_of(experiment) for task, _ in runs_of(experiment, source, finished)}
        if rest := len(saved.runs) - len(used):
            said.append(f"Left out: {experiment.name}: {rest:,} saved runs of other settings or repeats than asked for")
    return said
