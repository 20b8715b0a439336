"""Answers from differences that must be above 0, paired over repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from fultr.core.arrays import Float64s
from fultr.study.statistics import Estimate, estimate, exact

Answer: TypeAlias = Literal["holds", "does not hold", "inconclusive", "not run"]


def answer_of(yes: bool, no: bool) -> Answer:
    """The answer to a claim that is surely true, surely not, or neither."""
    return "holds" if yes else "does not hold" if no else "inconclusive"


class Difference(NamedTuple):
    """A difference that must be above 0: what it is in words, its values by repeat, and the least that matters."""

    what: str
    values: Float64s
    matters: float

    def judged(self) -> tuple[Answer, Estimate]:
        """One that is surely less than what matters is not one, even if it is surely above 0."""
        found = estimate(exact(self.values))
        low, high = found.interval
        too_small = high <= 0 or high < self.matters
        return answer_of(low > 0 and not too_small, too_small), found


def least_of(differences: Sequence[Difference]) -> tuple[Answer, Difference, Estimate]:
    """The difference least in favour, where all must be above 0 (an intersection-union test).

    The worst answer decides, then the smallest difference, so that the figures agree with the answer.
    """
    worst_first = ("does not hold", "inconclusive", "holds")
    found = [(*one.judged(), one) for one in differences]
    answer, least, one = min(found, key=lambda item: (worst_first.index(item[0]), item[1].mean))
    return answer, one, least
