"""Verdicts on claims about learning curves: from the numbers, paired over repeats, with 95% intervals.

A claim names lines of an experiment and a kind, see `KINDS`, which says how it is judged. One that its interval neither
confirms nor refutes is "inconclusive".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from fultr.core.checks import SettingError, check_choice, check_number, written
from fultr.core.errors import FultrError
from fultr.study.differences import Answer, Difference, answer_of, in_words, least_of
from fultr.study.statistics import Estimate, Measured, arrivals, estimate, exact, fieller, fluctuation, reached
from fultr.study.stretches import InconclusiveError, Lines, common, halves, judged_pages

_NAN = float("nan")
_STILL = 1e-6  # a smaller fluctuation of NDCG is none; keeps ratios of fluctuations finite


@dataclass(frozen=True)
class Claim:
    """A claim about lines of an experiment, as an experiment file states it.

    Attributes:
        says: the claim in words.
        kind: how it is judged, a key of `KINDS`.
        lines: the lines it is about; their roles depend on the kind.
        than: the lines they are compared with.
        margin: the smallest difference that matters, the smallest share and so on; None: the kind's default.
        since: a share of the rounds, for kinds that use one; None: the kind's default.

    >>> Claim("FedIPS beats FedAvg", "beats", ("FedIPS",), ("FedAvg",))
    Traceback (most recent call last):
    fultr.core.checks.SettingError: kind: expected one of ends-above, gains-little, ...; found "beats"
    """

    says: str
    kind: str
    lines: tuple[str, ...]
    than: tuple[str, ...] = ()
    margin: float | None = None
    since: float | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, tuple(KINDS))
        kind = KINDS[self.kind]
        for key, names, (least, most) in (("lines", self.lines, kind.lines), ("than", self.than, kind.than)):
            if not least <= len(names) <= most:
                number = f"{least}" if least == most else f"{least} or more"
                raise SettingError(key, f"expected {number} for a claim of kind {self.kind}, found {len(names)}")
        if self.margin is not None:
            check_number("margin", self.margin, least=kind.margins[0], most=kind.margins[1])
        if self.since is not None and kind.since is None:
            found = written(self.since)
            raise SettingError("since", f"expected none for a claim of kind {self.kind}, found {found}")
        if self.since is not None:
            check_number("since", self.since, least=0, below=1)
        for name in () if kind.shares else self.lines:
            if name in self.than:
                raise SettingError("than", f"expected other lines than the claim's own, found {written(name)}")


@dataclass(frozen=True)
class Verdict:
    """What the numbers say about a claim.

    Attributes:
        claim: the claim judged.
        answer: the verdict.
        effect: its size; with several comparisons, that of the one least in favour of the claim.
        low: lower end of its 95% interval; NaN if there is none.
        high: upper end.
        unit: of the effect.
        test: how it was tested, in words.
        p_value: two-sided; NaN where there is none.
        detail: one sentence with the figures.
        edges: the lines that were tuned to the edge of their grid, so that better rates may lie beyond it.
        wider: the verdict with the rates that a wider grid chooses for these lines; None if that was not tried.
        unfinished: those of the lines that a wider grid is to be tried for, and not all runs of it are finished.

    >>> claim = Claim("It grows to the end", "keeps-growing", ("FedIPS",))
    >>> verdict = Verdict(claim, "holds", 0.02, 0.01, 0.03, "NDCG", "by eye", float("nan"), "FedIPS grows.")
    >>> verdict.as_dict()["high"], verdict.as_dict()["p_value"]
    (0.03, None)
    """

    claim: Claim
    answer: Answer
    effect: float
    low: float
    high: float
    unit: str
    test: str
    p_value: float
    detail: str
    edges: tuple[str, ...] = ()
    wider: Verdict | None = None
    unfinished: tuple[str, ...] = ()

    @property
    def conclusion(self) -> str:
        """The answer, qualified where it comes from rates at the edge of a grid.

        >>> claim = Claim("It grows to the end", "keeps-growing", ("FedIPS",))
        >>> wider = Verdict(claim, "inconclusive", 0.0, -0.01, 0.01, "NDCG", "by eye", 1.0, "FedIPS grows.")
        >>> first = Verdict(claim, "holds", 0.02, 0.01, 0.03, "NDCG", "by eye", 0.1, "", ("FedIPS",), wider)
        >>> first.conclusion
        'holds; inconclusive on a wider grid'
        """
        if not self.edges:
            return self.answer
        if self.unfinished:
            return f"{self.answer}; wider grid unfinished"
        if self.wider is None or (self.wider.answer == self.answer and self.wider.edges):
            return f"{self.answer} at the grid's edge"
        if self.wider.answer == self.answer:
            return f"{self.answer}, on a wider grid too"
        if {self.answer, self.wider.answer} == {"holds", "does not hold"}:
            return "depends on the grid"
        return f"{self.answer}; {self.wider.answer} on a wider grid"

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON: a number that is NaN or infinite is None."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        told = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()}
        wider = None if self.wider is None else self.wider.as_dict()
        return {**told, "claim": asdict(self.claim), "wider": wider, "conclusion": self.conclusion}


@dataclass(frozen=True)
class Kind:
    """How claims of one kind are judged.

    Attributes:
        judge: the function that judges; its docstring says in one line what such a claim states.
        margin: the default.
        lines: how many it takes, at least and at most.
        than: likewise.
        margins: the range of `margin`.
        since: the default, None if the kind does not use it.
        unit: of the effect.
        test: in words.
        shares: may `lines` and `than` have lines in common?

    >>> KINDS["gains-little"].does
    'The line ends less than `margin` above the other.'
    """

    judge: Callable[[Claim, Lines], Verdict]
    margin: float
    lines: tuple[int, float] = (1, 1)
    than: tuple[int, float] = (1, 1)
    margins: tuple[float, float] = (0.0, 1.0)
    since: float | None = None
    unit: str = "NDCG"
    test: str = "paired t test"
    shares: bool = False

    @property
    def does(self) -> str:
        """What such a claim states, in one line."""
        return self.judge.__doc__ or ""


def judge(claim: Claim, lines: Lines) -> Verdict:
    """Judge a claim by the lines it names, repeat by repeat.

    >>> rounds = np.array([0, 100])
    >>> lines = {
    ...     "FedIPS": Measured(rounds, np.array([[0.40, 0.52], [0.41, 0.54], [0.39, 0.53]])),
    ...     "FedAvg": Measured(rounds, np.array([[0.40, 0.50], [0.41, 0.51], [0.39, 0.51]])),
    ... }
    >>> verdict = judge(Claim("FedIPS beats FedAvg", "ends-above", ("FedIPS",), ("FedAvg",)), lines)
    >>> verdict.answer, verdict.test
    ('holds', 'paired t test over 3 repeats')
    >>> print(verdict.detail)
    FedIPS minus FedAvg after the last round is +0.0233 NDCG (95% interval +0.0090 to +0.0377, p = 0.02).
    """
    names = (*claim.lines, *claim.than)
    for name in names:
        if name not in lines:
            raise FultrError(f"claim {claim.says!r}: there is no line {name!r}")
        found, wanted = len(lines[name].ndcg), len(lines[names[0]].ndcg)
        if found != wanted:
            raise FultrError(f"claim {claim.says!r}: {names[0]} has {wanted} repeats, but {name} has {found}")
    kind = KINDS[claim.kind]
    try:
        return kind.judge(claim, lines)
    except InconclusiveError as why:
        return Verdict(claim, answer_of(False, False), _NAN, _NAN, _NAN, kind.unit, "none", _NAN, str(why))


def _verdict(
    claim: Claim,
    answer: Answer,
    numbers: tuple[float, float, float],
    found: Estimate,
    lead: str,
    tail: str = "",
    tested: bool = True,
) -> Verdict:
    """A verdict; `numbers` are the effect and the ends of its interval, and come from what was `found`."""
    kind, p = KINDS[claim.kind], found.p_value if tested else _NAN
    detail = f"{lead} {in_words(numbers, kind.unit, p)}{tail}."
    if found.is_skewed:
        detail += f" Repeats differ very unevenly (skewness {found.skewness:+.1f}): the interval may be far from 95%."
    test = f"{kind.test} over {found.repeats} repeats" if found.repeats > 1 else "none: a single repeat"
    return Verdict(claim, answer, *numbers, kind.unit, test, p, detail)


def _margin(claim: Claim) -> float:
    return KINDS[claim.kind].margin if claim.margin is None else claim.margin


def _since(claim: Claim) -> float:
    return (KINDS[claim.kind].since or 0.0) if claim.since is None else claim.since


def _beyond(excess: Estimate, margin: float) -> tuple[float, float, float]:
    """A difference and the ends of its interval, from what it is beyond a margin."""
    mean, low, high = exact(np.array([excess.mean, *excess.interval]) + margin).tolist()
    return mean, low, high


def _greater(claim: Claim, differences: Sequence[Difference], tail: str = "") -> Verdict:
    answer, one, least, reserve = least_of(differences)
    if answer == "does not hold" and least.interval[1] > 0:
        tail = f", less than the {one.matters:g} that would matter{tail}"
    return _verdict(claim, answer, (least.mean, *least.interval), least, f"{one.what} is", tail + reserve)


def _ends_above(claim: Claim, lines: Lines) -> Verdict:
    """The line ends above each of the others."""
    name, final, margin = claim.lines[0], lines[claim.lines[0]].final, _margin(claim)
    gaps = [Difference(f"{name} minus {b} after the last round", final - lines[b].final, margin) for b in claim.than]
    return _greater(claim, gaps)


def _keeps_growing(claim: Claim, lines: Lines) -> Verdict:
    """The line gains more than `margin` in each half of the rounds from `since` on."""
    name, line, margin = claim.lines[0], lines[claim.lines[0]], _margin(claim)
    gains = [
        Difference(
            f"{name}'s growth from round {line.rounds[first]} to {line.rounds[last]}",
            line.ndcg[:, last] - line.ndcg[:, first] - margin,
            0.0,
        )
        for first, last in halves(name, lines, _since(claim))
    ]
    answer, one, least, reserve = least_of(gains)
    numbers, tail = _beyond(least, margin), f"; more than {margin:g} counts as growth{reserve}"
    return _verdict(claim, answer, numbers, least, f"{one.what} is", tail)


def _grows_less(claim: Claim, lines: Lines) -> Verdict:
    """The line grows less than the other from `since` to the end, between rounds at which both were measured."""
    name, other = claim.lines[0], claim.than[0]
    rounds, curves = common((name, other), lines, _since(claim), needed=2)
    less, more = (curve[:, -1] - curve[:, 0] for curve in curves)
    what = f"{other}'s growth from round {rounds[0]} to {rounds[-1]} minus {name}'s"
    tail = f"; the two are {more.mean():+.4f} and {less.mean():+.4f}"
    return _greater(claim, [Difference(what, more - less, _margin(claim))], tail)


def _drops_less(claim: Claim, lines: Lines) -> Verdict:
    """NDCG drops less from the first line to each of the rest than from the first to the last of the others."""
    (first, *rest), than = claim.lines, claim.than
    more = lines[than[0]].final - lines[than[-1]].final
    drops = {name: lines[first].final - lines[name].final for name in rest}
    gaps = [
        Difference(
            f"The drop from {than[0]} to {than[-1]} minus that from {first} to {name}", more - drop, _margin(claim)
        )
        for name, drop in drops.items()
    ]
    largest = max(drop.mean() for drop in drops.values())
    return _greater(claim, gaps, f"; the drops are {more.mean():+.4f} and at most {largest:+.4f}")


def _matters_more(claim: Claim, lines: Lines) -> Verdict:
    """NDCG gains more from the first of the lines to the second than from the first of the others to the second."""
    more, less = (lines[high].final - lines[low].final for low, high in (claim.lines, claim.than))
    what = f"The gain from {claim.lines[0]} to {claim.lines[1]} minus that from {claim.than[0]} to {claim.than[1]}"
    tail = f"; the gains are {more.mean():+.4f} and {less.mean():+.4f}"
    return _greater(claim, [Difference(what, more - less, _margin(claim))], tail)


def _fluctuates_more(claim: Claim, lines: Lines) -> Verdict:
    """Each of the lines is noisier than the other from `since` on, by a factor of at least `margin` to matter."""
    rounds, curves = common((*claim.lines, *claim.than), lines, _since(claim), _FOR_NOISE)
    *logs, base = (np.log(np.maximum(fluctuation(rounds, curve), _STILL)) for curve in curves)
    matters = math.log(_margin(claim))
    differences = [Difference(n, log - base, matters) for n, log in zip(claim.lines, logs, strict=True)]
    answer, one, least, reserve = least_of(differences)
    effect, low, high = np.exp([least.mean, *least.interval]).tolist()
    tail = f" as much as {claim.than[0]} from round {rounds[0]} on{reserve}"
    return _verdict(claim, answer, (effect, low, high), least, f"{one.what} fluctuates", tail)


def _gains_little(claim: Claim, lines: Lines) -> Verdict:
    """The line ends less than `margin` above the other."""
    name, other, margin = claim.lines[0], claim.than[0], _margin(claim)
    beyond = estimate(exact(lines[name].final - lines[other].final - margin))
    low, high = beyond.interval
    answer, numbers = answer_of(high < 0, low >= 0), _beyond(beyond, margin)
    lead, tail = f"{name} minus {other} after the last round is", f"; less than {margin:g} counts as little"
    return _verdict(claim, answer, numbers, beyond, lead, tail)


def _goes_part(claim: Claim, lines: Lines) -> Verdict:
    """The line ends at least `margin` of the way from the first of the others to the second."""
    name, (start, end), margin = claim.lines[0], claim.than, _margin(claim)
    part, whole = exact(lines[name].final - lines[start].final), exact(lines[end].final - lines[start].final)
    way = estimate(whole)
    if way.mean == 0:
        raise InconclusiveError(f"{end} ends where {start} does: there is no gap between them.")
    share, low, high = float(part.mean()) / way.mean, _NAN, _NAN
    if is_way := way.interval[0] > 0:
        low, high = fieller(part, whole)
    short = estimate(exact(part - margin * whole))  # the interval inverts this test
    no_way = way.interval[1] < 0  # more repeats would not change that
    answer, numbers = answer_of(low >= margin, high < margin or no_way), (share, low, high)
    tail = f" from {start} to {end}, a distance of {way} NDCG"
    return _verdict(claim, answer, numbers, short, f"{name} goes", tail, tested=is_way)


def _crosses(claim: Claim, lines: Lines) -> Verdict:
    """The line is below the other at half of `since` of the rounds, and above at twice that and at the end."""
    name, other = claim.lines[0], claim.than[0]
    rounds, (above, below) = common((name, other), lines, since=0.0, needed=2)
    line, rival = Measured(rounds, above), Measured(rounds, below)
    claimed, last = _since(claim) * int(rounds[-1]), int(rounds[-1])
    early, late = claimed / 2, min(claimed * 2, last)
    differences = [
        Difference(f"{other} minus {name} at round {early:.0f}", rival.at(early) - line.at(early), 0.0),
        Difference(f"{name} minus {other} at round {late:.0f}", line.at(late) - rival.at(late), 0.0),
        Difference(f"{name} minus {other} after the last round", line.final - rival.final, _margin(claim)),
    ]
    gaps = exact((above - below).mean(axis=0))
    stays = int(np.logical_and.accumulate(gaps[::-1] > 0).sum())  # number of points
    found = f"from round {rounds[rounds.size - stays]} on" if stays else "never to the end"
    tail = f"; on average {name} is above {other} {found}, where the claim says about {claimed:.0f} of {last}"
    return _greater(claim, differences, tail)


def _reaches_sooner(claim: Claim, lines: Lines) -> Verdict:
    """The line is at the other's end in less than `margin` of the rounds that the other takes, to within .002 NDCG."""
    (name, line), (other, slow) = ((key, lines[key]) for key in (*claim.lines, *claim.than))
    if slow.rounds[-1] == 0:
        raise InconclusiveError(f"{other} is not a curve: it has no rounds to compare with.")
    goals, share = slow.final - _LITTLE, _margin(claim)
    early, itself, late = arrivals(slow, goals)
    if min(early, itself) == 0:
        where = "is" if itself == 0 else "may be"
        raise InconclusiveError(f"{other} {where} at its end from the beginning: there is nothing to reach sooner.")
    first, usual, last = (estimate(exact(line.at(share * t) - goals)) for t in (early, itself, late))
    low, high = np.minimum(first.interval[0], usual.mean), np.maximum(last.interval[1], usual.mean)
    quick = float(reached(line.rounds, line.ndcg.mean(axis=0)[None], goals.mean()[None])[0])
    lead = f"At round {share * itself:.0f}, {share:.0%} of what {other} takes to its end, {name} minus that end is"
    when = f"in {quick:.0f}" if quick < math.inf else f"not within its {line.rounds[-1]}"
    between = f" (95% interval {early:.0f} to {late:.0f})" if usual.repeats > 1 else ""
    tail = f"; on average {name} is there {when} rounds, {other} itself in {itself:.0f}{between}"
    numbers = usual.mean, float(low), float(high)
    return _verdict(claim, answer_of(low > 0, high <= 0), numbers, usual, lead, tail, tested=False)


def _shows_no_worse(claim: Claim, lines: Lines) -> Verdict:
    """On the way, users are never shown worse than by the first logging policy, by more than `margin`."""
    name, margin = claim.lines[0], _margin(claim)
    rounds, shown = judged_pages(name, lines[name])
    points = zip(rounds, shown.T, strict=True)
    answer, one, worst, reserve = least_of([Difference(f"in round {t},", values + margin, 0.0) for t, values in points])
    lead = f"What {name} shows minus what the first logging policy shows is, at its worst {one.what}"
    tail = f"; in the last one it is {estimate(shown[:, -1])}{reserve}"
    return _verdict(claim, answer, _beyond(worst, -margin), worst, lead, tail)


_LITTLE = 0.002  # NDCG; smaller differences do not matter
_FOR_NOISE = 10  # points: with fewer, four in a row are so far apart that a trend may not be a parabola there

KINDS = {
    "ends-above": Kind(_ends_above, _LITTLE, than=(1, math.inf)),
    "gains-little": Kind(_gains_little, 0.01, test="paired t test against the margin"),
    "goes-part": Kind(_goes_part, 0.8, than=(2, 2), unit="of the way", test="Fieller's interval, paired,"),
    "keeps-growing": Kind(_keeps_growing, 0.001, than=(0, 0), since=0.5, test="paired t test against the margin"),
    "grows-less": Kind(_grows_less, _LITTLE, since=0.5),
    "drops-less": Kind(_drops_less, _LITTLE, lines=(2, math.inf), than=(2, math.inf), shares=True),
    "fluctuates-more": Kind(
        _fluctuates_more, 1.1, (1, math.inf), (1, 1), (1.0, 100.0), 0.5, "times", "paired t test of log ratios"
    ),
    "crosses": Kind(_crosses, _LITTLE, since=0.2),
    "reaches-sooner": Kind(_reaches_sooner, 1.0, test="paired t tests at the other's earliest and latest arrival"),
    "matters-more": Kind(_matters_more, _LITTLE, lines=(2, 2), than=(2, 2), shares=True),
    "shows-no-worse": Kind(_shows_no_worse, 0.005, than=(0, 0), test="paired t test of the worst round"),
}
"""The kinds of claims. Unless stated otherwise, a difference that is surely less than `margin` is too small to matter,
and a claim that it exists does not hold."""
