"""Choosing learning rates: the best of a grid on validation queries, and what lies beyond the grid's edge.

The grid as it stands gives the first answer. If its choice is the smallest or largest value of a rate, the grid is made
wider in that direction, one value at a time, as long as the best choice is at the edge of all that was tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fultr.study.experiment import Choice, Experiment, Line, Rates, best_of
from fultr.study.run import Result
from fultr.study.store import Source, Task

Lookup: TypeAlias = Callable[[Task], Result | None]
"""The result of a task, None if it is not finished."""

_LEAST_RATIO = 2.0  # of a value beyond the edge to the one at it


def tuning_tasks(experiment: Experiment, line: Line, source: Source, tried: list[Rates]) -> list[Task]:
    """Every combination of rates on every tuning repeat, measured on validation queries alone."""
    return [
        Task(line.settings.but({**dict(line.tuned_at), **rates}), seed, ("valid",), source, source.fingerprints())
        for rates in tried
        for seed in experiment.tuning_seeds
    ]


@dataclass(frozen=True)
class Tuning:
    """How far the tuning of a line has come.

    Attributes:
        steps: the runs of its grid, then those of each step beyond; the last need not be finished.
        finished: are they?
        first: what the grid as it stands chooses; None if its runs are not finished.
        widest: what all that was tried chooses; None if nothing beyond the grid was, or is not finished.
    """

    steps: tuple[tuple[Task, ...], ...]
    finished: bool = False
    first: Choice | None = None
    widest: Choice | None = None


def tuned(experiment: Experiment, line: Line, source: Source, finished: Lookup) -> Tuning:
    """How far the tuning of a line has come, by the runs that are finished."""
    tried: list[Rates] = []
    scores: list[float] = []
    steps: list[tuple[Task, ...]] = []
    found: list[Choice] = []
    more = [rates for rates, _ in line.candidates()] if line.grid else []
    complete = True
    while more and len(steps) <= experiment.tuning_steps:
        tasks = tuning_tasks(experiment, line, source, more)
        steps.append(tuple(tasks))
        results = [result for task in tasks if (result := finished(task)) is not None]
        complete = len(results) == len(tasks)
        if not complete:
            break
        table = np.reshape([result.ndcg["valid"][-1] for result in results], (len(more), -1))
        scores += np.median(table, axis=1).tolist()  # a row per combination of rates, a column per repeat
        tried += more
        found.append(best_of(tried, scores))
        more = beyond(found[-1])
    first = found[0] if found else None
    widest = found[-1] if len(found) > 1 and complete else None
    return Tuning(tuple(steps), complete, first, widest)


def beyond(choice: Choice) -> list[Rates]:
    """What to try next: one value beyond each edge that the choice is at, with the neighbours of its other rates.

    The ratio to the value at the edge is that of the last two values before it, at least 2.

    >>> tried = [{"client_rate": a, "server_rate": b} for a in (0.01, 0.1, 1.0) for b in (1.0, 2.0)]
    >>> choice = best_of(tried, [0.3, 0.4, 0.4, 0.5, 0.2, 0.1])
    >>> choice.rates, choice.at_edge
    ({'client_rate': 0.1, 'server_rate': 2.0}, ('server_rate',))
    >>> [(rates["client_rate"], rates["server_rate"]) for rates in beyond(choice)]
    [(0.01, 4.0), (0.1, 4.0), (1.0, 4.0)]
    """
    near: dict[str, list[float]] = {}
    new: dict[str, float] = {}
    for name, best in choice.rates.items():
        values = sorted({rates[name] for rates, _ in choice.grid})
        place = values.index(best)
        near[name] = values[max(0, place - 1) : place + 2]
        if name in choice.at_edge:
            at, before = (values[-1], values[-2]) if best == values[-1] else (values[0], values[1])
            ratio = at / before
            ratio = max(ratio, _LEAST_RATIO) if ratio > 1 else min(ratio, 1 / _LEAST_RATIO)
            new[name] = float(f"{at * ratio:.6g}")
            near[name].append(new[name])
    combinations = [dict(zip(near, values, strict=True)) for values in itertools.product(*near.values())]
    return [rates for rates in combinations if any(rates[name] == value for name, value in new.items())]
