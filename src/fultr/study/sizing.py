"""Experiments in other sizes: fewer repeats or rounds, and all of them small enough to be done in minutes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from fultr.core.checks import check_number
from fultr.study.experiment import Experiment, Line
from fultr.study.settings import RunSettings

QUICK_DATA = "synthetic"
QUICK_REPEATS, QUICK_ROUNDS = 3, 100
_QUICK_CLIENTS = 0.2  # of those of a line
_ROUNDS = ("rounds", "evaluate_every", "decay_rounds", "estimate_decay", "linear_rounds", "tree_rounds")
"""Settings that are numbers of rounds, and keep their ratio."""


def resized(
    experiment: Experiment,
    *,
    rounds: int | None = None,
    repeats: int | None = None,
    tuning_repeats: int | None = None,
) -> Experiment:
    """The same with other numbers of repeats, and of rounds of most lines; others keep the ratio to these."""
    counted = Counter(line.settings.rounds for line in experiment.lines if line.settings.algorithm == "federated")
    usual = max(counted, key=lambda number: (counted[number], number), default=1)
    wanted = usual if rounds is None else rounds
    check_number("rounds", wanted, least=1, most=10**8, whole=True)

    def of(line: Line) -> Line:
        flat = line.settings.relevant()
        changes = {name: max(1, flat[name] * wanted // usual) for name in _ROUNDS if flat.get(name)}
        tuned_at = tuple((n, max(1, v * wanted // usual) if n in _ROUNDS and v else v) for n, v in line.tuned_at)
        settings = line.settings.but(changes) if wanted != usual else line.settings
        return replace(line, tuned_at=tuned_at, settings=settings)

    lines = tuple(of(line) for line in experiment.lines)
    return replace(
        experiment,
        repeats=experiment.repeats if repeats is None else repeats,
        tuning_repeats=experiment.tuning_repeats if tuning_repeats is None else tuning_repeats,
        lines=lines,
    )


def quick(experiment: Experiment) -> Experiment:
    """The experiment with all its lines and claims, but smaller: less to tune, smaller cohorts, no wider grids."""

    def clients(number: int) -> int:
        return min(number, max(20, round(number * _QUICK_CLIENTS)))

    def of(line: Line) -> Line:
        settings: RunSettings = line.settings
        if settings.algorithm == "federated":
            settings = replace(settings, clients=clients(settings.clients))
        tuned_at = tuple((name, clients(value) if name == "clients" else value) for name, value in line.tuned_at)
        thinned = tuple((name, _thinned(values)) for name, values in line.grid)
        return replace(line, settings=settings, tuned_at=tuned_at, thinned=thinned)

    return replace(experiment, lines=tuple(of(line) for line in experiment.lines), tuning_steps=0, tuning_repeats=1)


def _thinned(values: tuple[float, ...]) -> tuple[float, ...]:
    """Two values of a grid: in the middle, and three quarters up, as fewer rounds need larger rates.

    >>> _thinned((1e-5, 1e-4, 1e-3, 1e-2, 1e-1)), _thinned((0.05, 0.5, 1.0, 2.0)), _thinned((1.0,))
    ((0.001, 0.01), (0.5, 2.0), (1.0,))
    """
    ordered, last = sorted(values), len(values) - 1
    return tuple(dict.fromkeys((ordered[last // 2], ordered[math.ceil(last * 0.75)])))
