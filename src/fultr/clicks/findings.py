"""What an estimate's checks say in words: findings, each with how far it limits trust, its reason and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, TypeAlias

import numpy as np

from fultr.clicks.bootstrap import Draws
from fultr.clicks.cascade_check import Stopping
from fultr.clicks.examination.methods import Method
from fultr.clicks.feedback_check import Feedback
from fultr.clicks.identifiability import Identifiability
from fultr.clicks.trust_check import TrustBias
from fultr.clicks.weights import FEW_EFFECTIVE, Weights
from fultr.core.arrays import Float64s

Answer: TypeAlias = Literal["trust", "trust with care", "do not trust"]
ANSWERS: tuple[Answer, ...] = ("trust", "trust with care", "do not trust")
About: TypeAlias = Literal[
    "clicks", "interventions", "em", "intervals", "order", "units", "methods", "weights",
    "feedback", "trust bias", "cascade", "power",
]  # fmt: skip

# The limits of trust, and of trust with care. Round numbers with a reason. Two were set after some logs had
# been seen: 30 clicks a document (simulated ones) and the third of the curve (the first file of Yandex).
LEAST_CLICKS = 100  # fewer, and even one click rate is uncertain by a fifth of itself
WIDE = 2.0  # upper over lower end of an interval: a click's weight may be off by a factor of 1.4 either way
VERY_WIDE = 4.0  # by a factor of 2 either way: 1 / rank is as good a guess
VERY_FEW_EFFECTIVE = 0.1  # effective over actual clicks: unequal weights cost nine tenths of the log
HEAVY = 0.1  # share of the total weight that the heaviest hundredth of clicks has: ten times its number
FEW_MOVED = 0.05  # share of displayed documents that were shown at several ranks: the others contribute nothing
FEW_UNITS = 20  # effective units of a bootstrap: with fewer, its intervals are too narrow (Cameron and Miller 2015)
FAILED = 0.05  # share of draws without an estimate: the outermost twentieth of the interval is unknown
APART = 0.1  # methods differ by this share, beyond chance: one of them is wrong by as much or more
SHALLOW = 10  # clicks per clicked document: below, EM overstates low ranks by several per cent (docs/estimating.md)
DEEP = 30  # clicks per clicked document: from here on, EM errs by less than 2%, so that a larger difference means more
VERY_SHALLOW = 3  # EM overstates low ranks by tens of per cent
FOLLOWS_START = 0.02  # EM ends this far apart from two starting points: the clicks do not decide
ALARMS = 0.01  # share of logs in which ranks are found to be out of order though none is
HARMLESS = 0.05  # an error of the curve that is small beside its intervals in nearly all logs
LARGE = 0.25  # an error of the curve of which a log should have been able to show that it is not there
TOO_LARGE = 1 / 3  # clicks at the worst rank weigh 1.5 times, or two thirds of, what they should
OFTEN = 0.5  # users stop after every other click: examination is off by a factor of 2 on some pages
MOSTLY_ONCE = 0.5  # share of comparisons in which a document moved once: the others no longer decide the curve

_RANDOMISE = "Randomise a little: swap two neighbours on some pages, or mix two versions of the ranker at random."
_LOG_MORE = "Collect more clicks."
_BOTS = "Leave out bots, and compare with a log in which the ranking was randomised."


@dataclass(frozen=True)
class Finding:
    """Something that a check found.

    Attributes:
        about: what it concerns.
        answer: the most that can be said of the estimate because of it.
        reason: what was found.
        advice: what to do; empty if nothing.
    """

    about: About
    answer: Answer
    reason: str
    advice: str = ""


def on_data(method: Method, ranks: int, weights: Weights, known: Identifiability) -> Iterator[Finding]:
    """Findings about the log itself."""
    em, features = method == "em", method == "regression"
    if weights.clicks < LEAST_CLICKS:
        yield Finding("clicks", "do not trust", f"There are only {weights.clicks} clicks.", _LOG_MORE)
    if ranks == 1:
        yield Finding("clicks", "trust", "Pages have only one rank: there is nothing to correct.")
        return
    if features and known.unreachable:
        told = "only features separate rank from relevance, and whatever they leave unexplained counts as examination."
        reason = f"Documents shown at several ranks do not link all ranks: {told}"
        yield Finding("interventions", "trust with care", reason, _RANDOMISE)
    elif not known.moved:
        reason = "No document was shown at more than one rank: rank and relevance cannot be separated."
        yield Finding("interventions", "do not trust", reason, _RANDOMISE)
    elif known.unreachable:
        listed = ", ".join(map(str, known.unreachable))
        reason = f"Ranks {listed}: no clicked documents shown at several ranks link them to rank 1."
        yield Finding("interventions", "do not trust", reason, _RANDOMISE)
    elif known.moved_impressions < FEW_MOVED:
        share = f"{known.moved_impressions:.1%}"
        reason = f"Only {share} of the displayed results are documents that were shown at several ranks."
        yield Finding("interventions", "trust with care", reason, _RANDOMISE)
    if (em or features) and known.start_gap > FOLLOWS_START:
        name = "EM" if em else "Regression"
        reason = f"{name} depends on its start: from two of them it ends {known.start_gap:.2f} apart."
        yield Finding("em", "do not trust", reason, _RANDOMISE)
    if em and known.clicks_per_document < SHALLOW:
        grave: Answer = "do not trust" if known.clicks_per_document < VERY_SHALLOW else "trust with care"
        reason = f"A clicked document has {known.clicks_per_document:.1f} clicks on average: EM overstates low ranks."
        yield Finding(
            "em", grave, reason, "Use all-pairs (harvesting) instead." if not known.unreachable else _LOG_MORE
        )


def on_feedback(found: Feedback | None, ordered: bool) -> Iterator[Finding]:
    """Findings about rank changes that follow clicks."""
    separate = "To find examination, randomise: mix in a version of the ranker that did not see these clicks."
    if not ordered:
        reason = "Without the order of the pages, it cannot be checked that documents did not move because of clicks."
        yield Finding("power", "trust with care", reason, "Estimate from a log that is in the order of time.")
    elif found is not None and found.compared and found.size >= HARMLESS:
        yield Finding("feedback", "do not trust", _moved(found), separate)
    elif found is not None and found.selected:
        reason = (
            "Clicks on documents vary less before they moved to another rank than after, as if documents had been "
            "selected by their clicks: rank changes follow clicks, so the curve is wrong, too high at low ranks."
        )
        yield Finding("feedback", "do not trust", reason, separate)
    elif found is not None and found.compared:
        yield Finding("feedback", "trust with care", _moved(found), separate)
    elif found is not None and found.once > MOSTLY_ONCE and (found.hidden is None or found.hidden > LARGE):
        reason = (
            f"{found.once:.0%} of what is compared are documents that changed rank once and never back: this log "
            f"cannot show whether clicks moved them, and if they did, low ranks are overstated."
        )
        yield Finding("power", "trust with care", reason, separate)


def _moved(found: Feedback) -> str:
    """In what way rank changes follow clicks."""
    first, last = found.ahead
    pages = f"{first} page" if last == 1 else f"{first} to {last} pages"
    whose = "the same user and query" if found.of_user else "the query"
    likely = f"{'more' if found.z > 0 else 'less'} likely"
    if found.ratio is not None:
        likely = f"{found.ratio:.2g} times as likely"
    high = ", too high at low ranks" if found.z > 0 and not found.of_user else ""
    return (
        f"At the same rank, a document was {likely} to be clicked if it was higher {pages} of {whose} later than if it "
        f"was lower: rank changes follow clicks, so the curve is wrong{high}."
    )


def _size(error: float) -> str:
    """How far a curve is off."""
    if not math.isfinite(error):
        return "more than this check can measure"
    return f"about {error:.0%}" if error < TOO_LARGE else "more than a third"


def on_trust(found: TrustBias | None, affine: bool = True) -> Iterator[Finding]:
    """Findings about clicks that a high rank attracts whatever is there; is there an affine estimate to use instead?"""
    if found is None:
        return
    if found.reversed:
        reason = (
            f"From a higher to a lower rank, clicks on less relevant documents fall {-found.more:.0%} less than clicks "
            f"on others. Users' trust in high ranks would do the opposite; documents that moved because of "
            f"clicks, or whose relevance changed, can do this, and break the estimate; so do clicks on what was not "
            f"examined, by bots or by accident: the curve would then be off by {_size(found.slips)}."
        )
        yield Finding("trust bias", "do not trust", reason, _BOTS)
    elif found.maybe_reversed and found.slips > LARGE:
        reason = (
            f"From a higher to a lower rank, clicks on less relevant documents fall {-found.more:.0%} less than clicks "
            f"on others, which is rare by chance. If it is due to clicks on what was not examined, by bots or by "
            f"accident, the curve is off by {_size(found.slips)}."
        )
        yield Finding("power", "trust with care", reason, _BOTS)
    elif found.seen:
        reason = (
            f"From a higher to a lower rank, clicks on less relevant documents fall {found.more:.0%} further than "
            f"clicks on others of the same query, as where users trust high ranks. The curve is then off by "
            f"{_size(found.error)}."
        )
        values = ", (click - beta) / alpha, with alpha and beta from the table."
        if not affine:
            values = "; to estimate its alpha and beta, documents need more clicks."
        if found.error < HARMLESS:
            yield Finding("trust bias", "trust", reason, "The error is small: no need to correct it.")
        elif found.error < TOO_LARGE:
            advice = "Expect documents at high ranks to remain overrated by as much, or use affine credit"
            yield Finding("trust bias", "trust with care", reason, advice + values)
        else:
            yield Finding("trust bias", "do not trust", reason, "Use affine credit" + values)
    elif found.hidden is None or found.hidden > LARGE:
        size = (
            "any trust bias" if found.hidden is None else f"a trust bias that puts the curve off by {found.hidden:.0%}"
        )
        reason = f"This log could not have shown {size}{' or less' if found.hidden else ''}."
        yield Finding("power", "trust with care", reason, _LOG_MORE)


def on_stopping(found: Stopping | None) -> Iterator[Finding]:
    """Findings about users who stop at a click."""
    if found is None:
        return
    if found.seen:
        reason = (
            f"After a click users look at what is below only {found.continues:.0%} as often as without it: a cascade. "
            f"The curve is an average over pages with and without clicks above, and right for neither."
        )
        advice = "Divide a click below another by less: by its examination times that share for each click above."
        if found.interval[0] > 1 - HARMLESS:
            yield Finding("cascade", "trust", reason, "The effect is small: no need to correct it.")
        else:
            yield Finding("cascade", "do not trust" if found.continues < OFTEN else "trust with care", reason, advice)
    elif found.together and found.continues > 1 + HARMLESS:
        reason = (
            f"A click is {found.continues:.2f} times as likely if there is another above it: pages differ in how much "
            f"users look at or click. The curve is their average; whether users stop at clicks cannot be seen."
        )
        yield Finding("power", "trust with care", reason)
    elif found.hidden > LARGE:
        reason = f"This log could not have shown users who stop at less than {found.hidden:.0%} of their clicks."
        yield Finding("power", "trust with care", reason, _LOG_MORE)


def on_intervals(
    method: Method,
    examination: Float64s,
    draws: Draws,
    known: Identifiability,
    others: Mapping[Method, Float64s],
    gaps: Mapping[Method, tuple[Float64s, Float64s]],
) -> Iterator[Finding]:
    """Findings about how certain the estimate is."""
    tried = len(draws.values) + draws.failed
    if examination.size == 1:
        return
    if tried and draws.failed > FAILED * tried:
        reason = f"{draws.failed} of {tried} bootstrap draws gave no estimate."
        half = draws.failed > 0.5 * tried
        yield Finding("intervals", "do not trust" if half else "trust with care", reason, _LOG_MORE)
    interval = draws.interval()
    if interval is None and method == "em" and known.unreachable:
        return
    if interval is None:
        reason = "There are no intervals: too few bootstrap draws."
        yield Finding("intervals", "trust with care", reason, "Use at least 200 draws (--bootstrap).")
        return
    low, high = interval
    ratio = np.divide(high, low, out=np.where(high > 0, np.inf, 1.0), where=low > 0)
    worst = int(np.argmax(ratio))
    if ratio[worst] > WIDE:
        reason = f"Rank {worst + 1}: the interval, {low[worst]:.3f} to {high[worst]:.3f}, is wide."
        very = ratio[worst] > VERY_WIDE
        yield Finding("intervals", "do not trust" if very else "trust with care", reason, _LOG_MORE)
    limit = NormalDist().inv_cdf(1 - ALARMS / (examination.size - 1))  # of several comparisons
    rise = np.flatnonzero(np.diff(examination) > limit * np.diff(draws.values, axis=1).std(axis=0, ddof=1))
    if rise.size:
        rank = int(rise[0]) + 1
        reason = f"Rank {rank + 1} is examined significantly more than rank {rank}."
        yield Finding("order", "trust with care", reason, "Check the layout of the page.")
    if draws.effective_units < FEW_UNITS:
        number = f"{draws.effective_units:.1f}"
        reason = f"The {draws.over}, given their sizes, count as only {number}: the intervals are too narrow."
        advice = f"Collect clicks from more {draws.over}, or leave the largest out and compare."
        yield Finding("units", "trust with care", reason, advice)
    for name, (below, above) in gaps.items():
        gap = others[name] - examination
        apart = (below > 0) | (above < 0)
        share = np.where(apart, np.abs(gap) / np.maximum(examination, 1e-9), 0)
        if share.max() > APART:
            rank = int(share.argmax())
            reason = f"At rank {rank + 1} {name} differs significantly, by {share[rank]:.0%}."
            yield Finding("methods", "trust with care", reason, "Compare the two.")


def on_weights(weights: Weights) -> Iterator[Finding]:
    """Findings about what the weights would do to training."""
    clip = f"Clip weights at {weights.clip:.3g}." if weights.clip else "Clip weights."
    if weights.infinite:
        reason = f"{weights.infinite} clicks are at ranks whose examination is estimated as 0."
        yield Finding("weights", "do not trust", reason, "Leave these ranks out, or collect more clicks.")
    share = weights.effective / max(weights.clicks - weights.infinite, 1)
    if share < FEW_EFFECTIVE:
        reason = f"After weighting, {weights.clicks} clicks count as {weights.effective:.0f}."
        few = share < VERY_FEW_EFFECTIVE
        yield Finding("weights", "do not trust" if few else "trust with care", reason, clip)
    if weights.heaviest_share > HEAVY:
        reason = f"The heaviest 1% of clicks hold {weights.heaviest_share:.0%} of the weight."
        yield Finding("weights", "trust with care", reason, clip)
