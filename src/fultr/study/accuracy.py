"""How well examination is estimated where the truth is known: the tables of docs/estimating.md.

`python -m fultr.study.accuracy` prints them; it takes some minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from fultr.core.arrays import Float64s
from fultr.core.threads import default_threads
from fultr.data.load import load
from fultr.data.ranking import Splits
from fultr.federated.estimators import ESTIMATORS as KINDS
from fultr.study.engine import each_finished
from fultr.study.run import perform, train
from fultr.study.settings import RunSettings

GAMMAS = (0.5, 1.0, 2.0)
DISPLAYED = (5, 10)
CLICKS = (5, 10, 20)
WEAK, STRONG = 0.001, 0.01  # learning rates of the logging policy; on `synthetic` its NDCG@5 is .393 and .549
RATES = (1.0, 0.1, 0.01, 0.003, 0.001)
REPEATS = 3
DATA = "synthetic"
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

    >>> small = RunSettings.of({"propensity": "pooled", "clients": 50, "rounds": 20, "evaluate_every": 5})
    >>> accuracy(small, load("synthetic", cache=False), seed=0).used.shape
    (5,)
    """
    weighing = train(settings, data, seed=seed, splits=(), threads=1).weighing
    used, true, mass = (values[-_TAIL:].mean(axis=0) for values in (weighing.used, weighing.true, weighing.mass))
    return Accuracy(used, true, mass)


@lru_cache(maxsize=1)
def _data() -> Splits:
    return load(DATA)


def _of(task: tuple[RunSettings, int]) -> Accuracy:
    return accuracy(task[0], _data(), task[1])


def _each(settings: Iterable[RunSettings], repeats: int = REPEATS) -> list[list[Accuracy]]:
    """Several runs of each of the settings, on all cores."""
    tasks = [(setting, seed) for setting in settings for seed in range(repeats)]
    found: dict[int, Accuracy] = {}
    for i, result, _ in each_finished(_of, tasks, workers=default_threads()):
        found[i] = result
    return [[found[i + r] for r in range(repeats)] for i in range(0, len(tasks), repeats)]


def _settings(kind: Any, **others: Any) -> RunSettings:
    common = {"rounds": 100, "evaluate_every": 10, "client_rate": 0.001, "policies": 2 if kind == "harvested" else 1}
    return RunSettings.of({**common, "propensity": kind, **others})


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def errors() -> list[str]:
    """Error of every estimator: a row per setting."""
    grid = list(itertools.product((WEAK, STRONG), GAMMAS, DISPLAYED, CLICKS))
    runs = _each(
        _settings(kind, policy_rate=rate, gamma=gamma, displayed=displayed, clicks=clicks)
        for rate, gamma, displayed, clicks in grid
        for kind in KINDS
    )
    found = np.array([np.mean([a.error for a in same]) for same in runs]).reshape(len(grid), len(KINDS))
    lines = [_row(["policy", "γ", "K", "m", *KINDS]), "|---" * (4 + len(KINDS)) + "|"]
    for (rate, *setting), values in zip(grid, found, strict=True):
        named = ("weak" if rate == WEAK else "strong", *(f"{value:g}" for value in setting))
        lines.append(_row([*named, *(f"{value:.0%}" for value in values)]))
    return [*lines, _row(["mean", "", "", "", *(f"{value:.0%}" for value in found.mean(axis=0))])]


def masses() -> list[str]:
    """Weight of the clicks at each rank as a share of its due, for every estimator."""
    names: dict[str, RunSettings] = {
        "none": _settings("none"),
        "personal": _settings("personal"),
        "personal, cross-fitted": _settings("personal", cross_fit=True),
        "the same, floor .1": _settings("personal", cross_fit=True, estimate_floor=0.1),
        **{kind: _settings(kind) for kind in list(KINDS)[1:]},
    }
    runs = _each(settings.but({"gamma": gamma}) for settings in names.values() for gamma in (1.0, 2.0))
    lines = [_row(["", *(f"γ = {g}, rank {k}" for g in (1, 2) for k in range(2, 6))]), "|---" * 9 + "|"]
    for i, name in enumerate(names):
        cells = np.concatenate([np.mean([a.mass[1:] for a in same], axis=0) for same in runs[2 * i : 2 * i + 2]])
        lines.append(_row([name, *(f"{value:.2f}" for value in cells)]))
    return lines


def biases() -> list[str]:
    """What pooled and harvested estimates tend to, as a share of the truth, by strength of the logging policy."""
    kinds = ("pooled", "harvested")
    settings = [_settings(kind, policy_rate=rate) for rate in RATES for kind in kinds]
    runs = _each(replace(s, rounds=1000, evaluate_every=50) for s in settings)
    strength = [np.mean([_policy_ndcg(rate, seed) for seed in range(REPEATS)]) for rate in RATES]
    lines = [_row(["policy's NDCG@5", *(f"{kind}, rank {k}" for kind in kinds for k in range(2, 6))]), "|---" * 9 + "|"]
    for i, value in enumerate(strength):
        cells = np.concatenate([np.mean([a.used / a.true for a in s], axis=0)[1:] for s in runs[2 * i : 2 * i + 2]])
        lines.append(_row([f"{value:.3f}", *(f"{cell:.2f}" for cell in cells)]))
    return lines


def _policy_ndcg(rate: float, seed: int) -> float:
    settings = RunSettings.of({"algorithm": "logging-policy", "policy_rate": rate})
    return float(perform(settings, _data(), seed=seed, splits=("test",)).ndcg["test"][-1])


def main() -> None:
    """Print all tables."""
    for made in (errors, masses, biases):
        print("\n".join(made()), end="\n\n", flush=True)


if __name__ == "__main__":
    import_module("fultr.study.accuracy").main()  # under its own name, which the processes of the runs know
