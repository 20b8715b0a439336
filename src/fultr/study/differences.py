"""Answers from differences that must be above 0, paired over repeats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from fultr.core.arrays import Float64s
from fultr.study.statistics import Estimate, estimate, exact

Answer: TypeAlias = Literal["holds", "does not hold", "inconclusive", "not run"]
_FORMATS = {"NDCG": "+.4f", "times": ".2f", "of the way": ".0%"}


def answer_of(yes: bool, no: bool) -> Answer:
    """The answer to a claim that is surely true, surely not, or neither."""
    return "holds" if yes else "does not hold" if no else "inconclusive"


class Difference(NamedTuple):
    """A difference that must be above 0: what it is in words, its values by repeat, and the least that matters."""

    what: str
    values: Float64s
    matters: float

    def too_small(self, high: float) -> bool:
        """Is it surely less than what matters, if it is surely not above `high`? Then it may be surely above 0."""
        return high <= 0 or high < self.matters

    def judged(self, among: int = 1) -> tuple[Answer, Estimate]:
        """The answer to a claim that takes so many differences.

        Every one of them must be above 0, by its own interval. As any of them refutes the claim, none does so by its
        own interval: each has its share of the 2.5% in which chance alone may refute a claim that is true.
        """
        found = estimate(exact(self.values))
        low, high = found.interval
        return answer_of(low > 0 and not self.too_small(high), self.too_small(found.highest(among))), found


class Least(NamedTuple):
    """The difference least in favour of a claim: the claim's answer, the difference and its estimate.

    Attributes:
        answer: to the claim.
        difference: the one least in favour.
        found: its mean and interval.
        reserve: why the claim is not refuted, though the interval of this difference alone would; mostly "".
    """

    answer: Answer
    difference: Difference
    found: Estimate
    reserve: str


def least_of(differences: Sequence[Difference]) -> Least:
    """The difference least in favour, where all must be above 0 (an intersection-union test).

    The worst answer decides, then the smallest difference, so that the figures agree with the answer.
    """
    worst_first, among = ("does not hold", "inconclusive", "holds"), len(differences)
    judged = [(*one.judged(among), one) for one in differences]
    answer, found, one = min(judged, key=lambda item: (worst_first.index(item[0]), item[1].mean))
    reserve = ""
    if answer == "inconclusive" and one.too_small(found.interval[1]):
        level = f"{100 * (1 - 0.05 / among):.4g}%"
        reserve = f"; as one of {among} comparisons, it refutes the claim only if its {level} interval does so, too"
    return Least(answer, one, found, reserve)


def in_words(numbers: tuple[float, float, float], unit: str, p: float) -> str:
    """An effect with the ends of its interval and its p value, where there are any.

    >>> in_words((0.02, 0.01, 0.03), "NDCG", 0.004)
    '+0.0200 NDCG (95% interval +0.0100 to +0.0300, p = 0.004)'
    """
    effect, low, high = (format(number, _FORMATS[unit]).replace("inf%", "∞").replace("inf", "∞") for number in numbers)
    interval = "no interval" if math.isnan(numbers[1]) else f"95% interval {low} to {high}"
    return f"{effect} {unit} ({interval}{'' if math.isnan(p) else f', p = {p:.2g}'})"
