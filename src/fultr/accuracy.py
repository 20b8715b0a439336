"""How well examination is estimated where the truth is known: the table of docs/estimating.md.

`python -m fultr.accuracy` prints it; it takes some minutes.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from fultr.data import Splits
from fultr.datasets import load
from fultr.engine import each_finished
from fultr.estimation import KINDS
from fultr.runs import RunSettings, train
from fultr.threads import default_threads
from fultr.types import Float64s

GAMMAS = (0.5, 1.0, 2.0)
DISPLAYED = (5, 10)
CLICKS = (5, 10, 20)
POLICIES = {"weak": 0.1, "strong": 0.003}  # their learning rates
REPEATS = 3
_TAIL = 5  # the last measured rounds, over which estimates are averaged


@dataclass(frozen=True, eq=False)
class Accuracy:
    """What a run used in its last rounds, beside the truth.

    Attributes:
        used: [K] mean propensity of each rank.
        true: [K] mean examination of each rank.
        mass: [K] weight of the clicks at each rank, as a share of its due.
    """

    used: Float64s
    true: Float64s
    mass: Float64s

    @property
    def error(self) -> float:
        """Mean over the ranks below the first of how far the estimate is from the truth, as a share of it."""
        return float(np.abs(self.used / self.true - 1)[1:].mean())


def accuracy(settings: RunSettings, data: Splits, seed: int) -> Accuracy:
    """Run a federation and see what it divided its clicks by.

    >>> small = RunSettings(propensity="pooled", clients=50, rounds=20, evaluate_every=5)
    >>> accuracy(small, load("synthetic", cache=False), seed=0).used.shape
    (5,)
    """
    weighing = train(settings, data, seed=seed, splits=(), threads=1).weighing
    used, true, mass = (values[-_TAIL:].mean(axis=0) for values in (weighing.used, weighing.true, weighing.mass))
    return Accuracy(used, true, mass)


@lru_cache(maxsize=1)
def _data(name: str) -> Splits:
    return load(name)


def _of(task: tuple[RunSettings, int], name: str) -> Accuracy:
    return accuracy(task[0], _data(name), task[1])


def table(name: str = "synthetic", rounds: int = 100) -> list[str]:
    """The lines of a Markdown table: a row a setting, a column an estimator."""
    common = RunSettings(rounds=rounds, evaluate_every=10, client_rate=0.001)
    grid = list(itertools.product(POLICIES, GAMMAS, DISPLAYED, CLICKS))
    tasks = [
        (
            replace(
                common,
                propensity=kind,
                policies=2 if kind == "harvested" else 1,
                policy_rate=POLICIES[policy],
                gamma=gamma,
                displayed=displayed,
                clicks=clicks,
            ),
            seed,
        )
        for policy, gamma, displayed, clicks in grid
        for kind in KINDS
        for seed in range(REPEATS)
    ]
    found: list[Accuracy | None] = [None] * len(tasks)
    for i, result, _ in each_finished(partial(_of, name=name), tasks, workers=default_threads()):
        found[i] = result
    lines = [f"| policy | γ | K | m | {' | '.join(KINDS)} |", "|---" * (4 + len(KINDS)) + "|"]
    per_setting = np.array([[a.error, a.mass[-1]] for a in found if a is not None]).reshape(
        len(grid), len(KINDS), REPEATS, 2
    )
    for setting, values in zip(grid, per_setting.mean(axis=2), strict=True):
        cells = (f"{error:.0%} ({mass:.2f})" for error, mass in values)
        named = (value if isinstance(value, str) else f"{value:g}" for value in setting)
        lines.append(f"| {' | '.join(named)} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table(sys.argv[1] if len(sys.argv) > 1 else "synthetic")))
