"""Saved runs, computed again: do they come out as they were saved?"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fultr.core.errors import FultrError
from fultr.data.synthetic import SETTINGS as GENERATED
from fultr.study.run import perform
from fultr.study.saved import SavedRun
from fultr.study.settings import RunSettings
from fultr.study.store import Source

ROUNDING = 1e-3
"""How far NDCG may be from what another processor computed: sums in another order change the last digits of weights,
and now and then the order of two documents."""


@dataclass(frozen=True)
class Checked:
    """A run that was computed again.

    Attributes:
        experiment: that it belongs to.
        run: as it was saved.
        difference: the largest of NDCG, over the points of the curve.
    """

    experiment: str
    run: SavedRun
    difference: float

    @property
    def agrees(self) -> bool:
        """Is it the same to the last bit, or within rounding?"""
        return self.difference <= ROUNDING

    @property
    def words(self) -> str:
        """How far they agree."""
        if self.difference == 0:
            return "the same to the last bit"
        return f"differs by at most {self.difference:.1e}: {'rounding' if self.agrees else 'NOT the same'}"


def sources_at_hand(runs: Iterable[SavedRun], given: Sequence[Source]) -> dict[str, Source]:
    """The data sets of runs that can be loaded, by name: generated ones, and those given under the same name."""
    known = {str(source): source for source in given}
    names = {run.data for run in runs}
    return {name: known.get(name, Source(name)) for name in sorted(names) if name in known or name in GENERATED}


def sampled(runs: Sequence[tuple[str, SavedRun]], number: int, seed: int) -> list[tuple[str, SavedRun]]:
    """Some of the runs, by chance; each with its experiment."""
    return random.Random(seed).sample(list(runs), min(number, len(runs)))


def recompute(experiment: str, run: SavedRun, sources: Mapping[str, Source]) -> Checked:
    """Compute a saved run again, and compare."""
    source = sources[run.data]
    if source.fingerprints() != run.fingerprints:
        raise FultrError(f"{run.data}: the data differ from those that the saved runs were computed on")
    settings = RunSettings.of(run.settings)
    result = perform(settings, source.load(), seed=run.seed, splits=(run.split,))
    points = np.isin(result.rounds, run.result.rounds)
    values, saved = result.ndcg[run.split][points], run.result.ndcg[run.split]
    if values.shape != saved.shape:
        return Checked(experiment, run, float("inf"))
    differences = [values - saved]
    if "shown" in run.result.online:
        differences.append(result.online["displayed"] - result.online["policy"] - run.result.online["shown"])
    return Checked(experiment, run, max(float(np.abs(each).max()) for each in differences))
