"""What differential privacy takes and costs: noise for a budget, a bound for updates, and the loss in simulation."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fultr.core.errors import FultrError
from fultr.data.ranking import Splits
from fultr.federated.combining import Aggregation, StageSettings
from fultr.federated.privacy.accountant import Guarantee, settled, spent
from fultr.federated.privacy.factorisation import summed_deviation
from fultr.federated.privacy.settings import Privacy, noise_of
from fultr.study.run import train
from fultr.study.settings import RunSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""The budgets that a figure is drawn for."""

_SCHEMES = (
    ("gaussian", False),
    ("gaussian", True),
    ("correlated", False),
    ("distributed", False),
)
_NO_NOISE = 0.05  # a noise multiplier that changes nothing, and protects nobody
_BOUND = 0.7  # of the median norm: what the bound of updates is set to
_SOME_ROUNDS = 20


@dataclass(frozen=True)
class Planned:
    """One way to keep to a budget.

    Attributes:
        name: of the mode, and whether cohorts are to stay secret.
        privacy: the settings, settled; None if there is no such run.
        guarantee: what it guarantees.
        share: length of the noise in the sum of all rounds' mean updates, as a share of the longest that it can be.
        refused: why there is no such run.
        ndcg: at the end of a simulated run; None if none was asked for.
    """

    name: str
    privacy: Privacy | None
    guarantee: Guarantee | None
    share: float | None
    refused: str = ""
    ndcg: float | None = None


def plan(privacy: Privacy, *, cohort: int, rounds: int, features: int) -> list[Planned]:
    """Every mode's way to keep to a budget.

    Args:
        privacy: the budget, population and participation; its mode makes no difference.
        cohort: devices expected in a round.
        rounds: of the run.
        features: of a document.

    >>> found = plan(Privacy("gaussian", epsilon=1, population=10**6), cohort=2000, rounds=200, features=519)
    >>> [(one.name, round(one.privacy.noise_multiplier, 1)) for one in found][:3]
    [('gaussian', 4.5), ('gaussian, secret cohorts', 0.8), ('correlated', 7.5)]
    """
    found = []
    for mode, secret in _SCHEMES:
        name = f"{mode}, secret cohorts" if secret else mode
        try:
            wanted = replace(privacy, mode=mode, secret_cohorts=secret)
            chosen = settled(wanted, cohort=cohort, rounds=rounds, size=features)
        except FultrError as error:
            found.append(Planned(name, None, None, None, str(error)))
            continue
        share = noise_of(chosen) * _summed(chosen, rounds) * math.sqrt(features) / (cohort * rounds)
        found.append(Planned(name, chosen, spent(chosen, cohort=cohort, rounds=rounds), share))
    return found


def _summed(privacy: Privacy, rounds: int) -> float:
    """The noise's deviation in the sum of all rounds, as a multiple of the noise multiplier."""
    if privacy.mode == "correlated":
        return summed_deviation(privacy.participations, privacy.rounds_apart, rounds)
    return math.sqrt(rounds)


def usual_bound(settings: RunSettings, data: Splits, seed: int) -> float:
    """A bound for updates: .7 times the median norm in some rounds without privacy."""
    fedips = replace(settings.fedips, stage=StageSettings(), aggregation=Aggregation("clipped"))
    short = replace(settings, fedips=fedips, rounds=min(_SOME_ROUNDS, settings.rounds))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.npz"
        train(short, data, seed=seed, splits=(), checkpoint=path)
        with np.load(path) as stored:
            return float(_BOUND * np.median(stored["aggregation_update"]))


def simulated(settings: RunSettings, data: Splits, privacy: Privacy, *, seed: int, threads: int | None) -> float:
    """NDCG@k on the test queries after a run with this privacy."""
    fedips = replace(settings.fedips, stage=StageSettings(privacy=privacy))
    run = train(replace(settings, fedips=fedips), data, seed=seed, splits=("test",), threads=threads)
    return float(run.curve.ndcg["test"][-1])


def without_noise(settings: RunSettings, data: Splits, bound: float, *, seed: int, threads: int | None) -> float:
    """NDCG@k after a run that clips in the same way, with next to no noise: what losses are losses from."""
    privacy = Privacy("gaussian", noise_multiplier=_NO_NOISE, population=10**8, update_bound=bound)
    return simulated(settings, data, privacy, seed=seed, threads=threads)


def curves(
    settings: RunSettings,
    data: Splits,
    privacy: Privacy,
    *,
    seed: int,
    threads: int | None,
    epsilons: Sequence[float] = EPSILONS,
    done: Callable[[], object] = lambda: None,
) -> dict[str, list[tuple[float, float]]]:
    """(epsilon, NDCG@k) of every mode, by name; epsilons that a mode cannot keep to are left out."""
    found: dict[str, list[tuple[float, float]]] = {}
    for epsilon in epsilons:
        wanted = replace(privacy, epsilon=epsilon, noise_multiplier=None)
        width = data.train.width
        for one in plan(wanted, cohort=settings.clients, rounds=settings.rounds, features=width):
            if one.privacy is not None:
                ndcg = simulated(settings, data, one.privacy, seed=seed, threads=threads)
                found.setdefault(one.name, []).append((epsilon, ndcg))
            done()
    return found


def draw(lines: dict[str, list[tuple[float, float]]], reference: float, title: str) -> Figure:
    """NDCG against epsilon, a line for each mode, and what there is without noise."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from fultr.core.drawing import PALETTE, STYLE

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.axhline(reference, color=PALETTE["grey"], linestyle=":", label="clipping, no noise")
        looks = zip(("blue", "sky", "vermillion", "green"), "osD^", strict=True)
        for (name, points), (colour, marker) in zip(lines.items(), looks, strict=False):
            axes.plot(*zip(*points, strict=True), color=PALETTE[colour], marker=marker, label=name)
        ticks = sorted({epsilon for points in lines.values() for epsilon, _ in points}) or [1.0]
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xlabel("ε per device, for all rounds")
        axes.set_ylabel("NDCG@5")
        axes.set_title(title, loc="left")
        axes.legend(frameon=False)
    return figure
