"""Saved runs, computed again: do they come out as they were saved?"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fultr.core.errors import FultrError
from fultr.data.synthetic import SETTINGS as GENERATED
from fultr.study.origins import Origin
from fultr.study.run import perform
from fultr.study.saved import SavedRun
from fultr.study.settings import RunSettings
from fultr.study.statistics import estimate
from fultr.study.store import Source, Task

AT_A_POINT, ON_AVERAGE = 0.02, 0.01
"""How far NDCG may be from what another platform computed, at one point of a curve and in the mean of its points. Sums
in another order change the last digits of weights, these the order of two documents, that what is displayed and
clicked, and so on: the difference grows with the rounds. Code compiled without AVX was up to .013 from code with
AVX-512, and the mean of a curve up to .003."""
ONE_WAY = 0.001
"""Rounding moves runs either way. If their mean difference is surely not 0, with this p value, it is not rounding."""


@dataclass(frozen=True)
class Checked:
    """A run that was computed again.

    Attributes:
        experiment: that it belongs to.
        run: as it was saved.
        again: what computed it again.
        difference: the largest of NDCG, over the points of the curve.
        shift: the mean over the points of the curve, with its sign.
    """

    experiment: str
    run: SavedRun
    again: Origin
    difference: float
    shift: float

    @property
    def agrees(self) -> bool:
        """Is it the same to the last bit, or within rounding where another version or platform computed it?"""
        if self.again == self.run.result.origin:
            return self.difference == 0
        return self.difference <= AT_A_POINT and abs(self.shift) <= ON_AVERAGE

    @property
    def words(self) -> str:
        """How far they agree."""
        if self.difference == 0:
            return "the same to the last bit"
        before, differs = self.run.result.origin, f"differs by up to {self.difference:.1e}"
        if not self.agrees:
            return f"{differs}: NOT the same"
        if not before.platform:
            return f"{differs}: rounding, if it was on another platform, which was not recorded"
        other = "platform" if before.platform != self.again.platform else "version"
        return f"{differs}, as rounding may by another {other}"


def shifted(checked: Sequence[Checked]) -> bool:
    """Do runs that rounding could explain one by one differ in the same direction, as rounding would not?"""
    shifts = np.array([one.shift for one in checked if one.agrees and one.difference])
    return shifts.size > 1 and estimate(shifts).p_value < ONE_WAY


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
    task = Task(settings, run.seed, (run.split,), source, run.fingerprints)
    result = perform(settings, source.load(), seed=run.seed, splits=(run.split,))
    again, saved = SavedRun.of(task, result).result, run.result
    if not np.array_equal(again.rounds, saved.rounds):
        return Checked(experiment, run, result.origin, float("inf"), float("nan"))
    pairs = [(again.ndcg[run.split], saved.ndcg[run.split])]
    pairs += [(again.online[name], values) for name, values in saved.online.items()]
    differences = [float(np.abs(new - old).max()) for new, old in pairs if old.size]
    shift = float((again.ndcg[run.split] - saved.ndcg[run.split]).mean())
    return Checked(experiment, run, result.origin, max(differences), shift)
