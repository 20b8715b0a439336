"""Which measured points of learning curves a claim looks at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from fultr.core.arrays import Float64s, Int64s
from fultr.study.statistics import Measured

Lines: TypeAlias = Mapping[str, Measured]


class InconclusiveError(Exception):
    """Why a claim cannot be judged, whatever the number of repeats, in one sentence."""


def growth(name: str, lines: Lines, since: float) -> Float64s:
    """From the measured point nearest to a share of the rounds to the end, [repeats].

    >>> growth("a", {"a": Measured(np.array([0, 5, 10]), np.array([[0.25, 0.5, 0.625]]))}, 0.5).tolist()
    [0.125]
    """
    line = lines[name]
    begin = int(np.argmin(np.abs(line.rounds - since * line.rounds[-1])))
    if begin == line.rounds.size - 1:
        raise InconclusiveError(f"{name} was not measured about {since:.0%} of the way through its rounds.")
    return line.final - line.ndcg[:, begin]


def halves(name: str, lines: Lines, since: float) -> list[tuple[int, int]]:
    """The measured points at which each half of the rounds from `since` on begins and ends.

    A half begins at the first point in it, never before: a curve that stops rising where the half begins gains nothing.

    >>> halves("a", {"a": Measured(np.array([0, 4, 6, 7, 9, 10]), np.zeros((1, 6)))}, 0.5)
    [(2, 4), (4, 5)]
    """
    rounds = lines[name].rounds
    begin, middle = (int(np.searchsorted(rounds, at * rounds[-1] - 1e-9)) for at in (since, (since + 1) / 2))
    end = rounds.size - 1
    if not begin < middle < end:
        raise InconclusiveError(f"{name} was not measured within both halves of its rounds from {since:.0%} on.")
    return [(begin, middle), (middle, end)]


def common(names: tuple[str, ...], lines: Lines, since: float, needed: int) -> tuple[Int64s, list[Float64s]]:
    """The rounds from `since` on at which all of the lines were measured, and the NDCG of each line there.

    >>> a, b = (Measured(np.array(rounds), np.array([rounds]) / 10) for rounds in ([0, 4, 6, 10], [0, 6, 8, 10]))
    >>> rounds, curves = common(("a", "b"), {"a": a, "b": b}, since=0.5, needed=2)
    >>> rounds.tolist(), curves[0].tolist()
    ([6, 10], [[0.6, 1.0]])
    """
    curves = [lines[name] for name in names]
    rounds = curves[0].rounds
    for curve in curves[1:]:
        rounds = np.intersect1d(rounds, curve.rounds)
    rounds = rounds[rounds >= round(since * rounds.max(initial=0))]
    if rounds.size < needed:
        where = f"{' and '.join(names)} have {rounds.size} measured rounds in common since {since:.0%} of them"
        raise InconclusiveError(f"{where}; {needed} are needed.")
    return rounds, [curve.ndcg[:, np.isin(curve.rounds, rounds)] for curve in curves]
