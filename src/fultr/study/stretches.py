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
    rounds = rounds[rounds >= since * rounds.max(initial=0) - 1e-9]
    if rounds.size < needed:
        where = f"{' and '.join(names)} have {rounds.size} measured rounds in common since {since:.0%} of them"
        raise InconclusiveError(f"{where}; {needed} are needed.")
    return rounds, [curve.ndcg[:, np.isin(curve.rounds, rounds)] for curve in curves]


def judged_pages(name: str, line: Measured) -> tuple[Int64s, Float64s]:
    """The rounds in which users can be shown something else than by the first policy, and what `shown` is there.

    Before the ranker first becomes the logging policy all repeats have a difference of exactly 0; if there is nothing
    else, the last round is left. Points for which a repeat has no number, as nobody took part, are left out.

    >>> shown = np.array([[0.0, 0.0, np.nan, 0.25], [0.0, 0.5, 0.5, 0.5]])
    >>> rounds, differences = judged_pages("a", Measured(np.array([0, 5, 10, 15, 20]), np.zeros((2, 5)), shown))
    >>> rounds.tolist(), differences.tolist()
    ([10, 20], [[0.0, 0.25], [0.5, 0.5]])
    """
    if line.shown is None or not line.shown.size:
        raise InconclusiveError(f"{name} has no rounds in which users were shown anything.")
    known = np.isfinite(line.shown).all(axis=0)
    if not known.any():
        raise InconclusiveError(f"{name} has no point at which users of every repeat were shown something.")
    rounds, shown = line.rounds[1:][known], line.shown[:, known]
    alike = int(np.logical_and.accumulate((shown == 0).all(axis=0)).sum())
    first = min(alike, rounds.size - 1)
    return rounds[first:], shown[:, first:]
