"""Checks to make before trusting propensities: weights, identifiability, intervals, and a conclusion in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from fultr.clicks.any_log import click_log
from fultr.clicks.bootstrap import Draws, Unit, bootstrap
from fultr.clicks.examination.document_em import document_em
from fultr.clicks.examination.harvesting import pair_counts, unreachable_ranks
from fultr.clicks.examination.methods import METHODS, Method, examination_by
from fultr.clicks.examination.regression import feature_model
from fultr.clicks.impressions import Cells, ImpressionLog
from fultr.clicks.trust_check import TrustBias, trust_bias
from fultr.core.arrays import Float64s
from fultr.core.checks import check_choice
from fultr.core.errors import FultrError

Answer: TypeAlias = Literal["trust", "trust with care", "do not trust"]
ANSWERS: tuple[Answer, ...] = ("trust", "trust with care", "do not trust")

# The limits of trust, and of trust with care. Each is a round number with a reason; none was fitted.
LEAST_CLICKS = 100  # fewer, and even one click rate is uncertain by a fifth of itself
WIDE = 2.0  # upper over lower end of an interval: a click's weight may be off by a factor of 1.4 either way
VERY_WIDE = 4.0  # by a factor of 2 either way: 1 / rank is as good a guess
FEW_EFFECTIVE = 0.5  # effective over actual clicks: unequal weights cost half the log
VERY_FEW_EFFECTIVE = 0.1  # they cost nine tenths
HEAVY = 0.1  # share of the total weight that the heaviest hundredth of clicks has: ten times its number
FEW_MOVED = 0.05  # share of displayed documents that were shown at several ranks: the others contribute nothing
FEW_UNITS = 20  # effective units of a bootstrap: with fewer, its intervals are too narrow (Cameron and Miller 2015)
FAILED = 0.05  # share of draws without an estimate: the outermost twentieth of the interval is unknown
APART = 0.1  # methods differ by this share, beyond chance: one of them is wrong by as much or more
SHALLOW = 10  # clicks per clicked document: below, EM overstates low ranks by several per cent (docs/estimating.md)
VERY_SHALLOW = 3  # EM overstates low ranks by tens of per cent
FOLLOWS_START = 0.02  # EM ends this far apart from two starting points: the clicks do not decide
LEAST_IMPRESSIONS = 20  # of a document whose relevance is correlated with its rank
LEAST_DOCUMENTS = 10  # such documents, to correlate at all

_RANDOMISE = "Randomise a little: swap two neighbours on some pages, or mix two versions of the ranker at random."
_LOG_MORE = "Collect more clicks."
_LIMITS = (
    "Documents that were never displayed have no clicks, and no propensity can supply any.",
    "Each rank is assumed to be examined equally often by all users, for all queries and on all pages.",
)


@dataclass(frozen=True)
class Weights:
    """The weights 1 / examination of a log's clicks.

    Attributes:
        clicks: how many there are.
        effective: the effective sample size, (sum of weights)^2 / sum of squared weights.
        largest: the largest weight.
        largest_rank: where it occurs, from 1.
        heaviest_share: share of the total weight held by the heaviest hundredth of clicks.
        click_share: share of all clicks, by rank.
        weight_share: share of the total weight, by rank.
        infinite: clicks at ranks whose examination is estimated as 0; they are left out of the rest.
        clip: a limit on the weights that keeps the effective sample size above half the clicks; None if none is needed.
    """

    clicks: int
    effective: float
    largest: float
    largest_rank: int
    heaviest_share: float
    click_share: tuple[float, ...]
    weight_share: tuple[float, ...]
    infinite: int
    clip: float | None


def weights_of(clicks: Float64s, examination: Float64s) -> Weights:
    """Summarise the weights of clicks, given how many there are at each rank.

    >>> found = weights_of(np.array([80.0, 20.0]), np.array([1.0, 0.25]))
    >>> found.effective, found.weight_share  # (80 + 80)^2 / (80 + 20 x 16)
    (64.0, (0.5, 0.5))
    """
    usable = (examination > 0) & (clicks > 0)
    weight = np.divide(1.0, examination, out=np.zeros_like(examination), where=usable)
    counted = np.where(usable, clicks, 0.0)
    mass = counted * weight
    total, top = float(mass.sum()) or 1.0, int(np.argmax(weight))
    order = np.argsort(-weight)
    heaviest = np.clip(0.01 * counted.sum() - np.r_[0, np.cumsum(counted[order])[:-1]], 0, counted[order])
    enough = FEW_EFFECTIVE * counted.sum()
    limits = [w for w in sorted(weight[usable], reverse=True) if _effective(counted, np.minimum(weight, w)) >= enough]
    return Weights(
        int(clicks.sum()),
        _effective(counted, weight),
        float(weight[top]),
        top + 1,
        float((heaviest * weight[order]).sum() / total),
        tuple((clicks / (clicks.sum() or 1.0)).tolist()),
        tuple((mass / total).tolist()),
        int(clicks[~usable].sum()),
        float(limits[0]) if limits and limits[0] < weight[top] else None,
    )


def _effective(clicks: Float64s, weight: Float64s) -> float:
    squares = float((clicks * weight**2).sum())
    return float((clicks * weight).sum()) ** 2 / squares if squares else 0.0


@dataclass(frozen=True)
class Identifiability:
    """Can the clicks in this log separate rank from relevance?

    Attributes:
        documents: (query, document) pairs.
        moved: how many of them were shown at more than one rank.
        moved_impressions: their share of all displayed documents.
        unreachable: ranks, from 1, that no chain of clicked documents links to rank 1.
        relevance_by_rank: Spearman's correlation of documents' estimated relevance with their mean rank. Near -1 the
            ranking was good: rank and relevance are confounded, except for documents that moved. None: too few.
        clicks_per_document: mean clicks of a document that was clicked.
        start_gap: how far apart EM (or regression) ends when started from 1 / rank and from 1 everywhere.
    """

    documents: int
    moved: int
    moved_impressions: float
    unreachable: tuple[int, ...]
    relevance_by_rank: float | None
    clicks_per_document: float
    start_gap: float

    @property
    def moved_share(self) -> float:
        """Share of documents that were shown at more than one rank."""
        return self.moved / self.documents


def identifiability(cells: Cells, examination: Float64s, method: Method = "em") -> Identifiability:
    """Assess what a log can identify.

    Args:
        cells: its counts.
        examination: an estimate, used to estimate the documents' relevance.
        method: "regression" if relevance is modelled by features.
    """
    cells.check_clicks()
    shown, clicked = cells.by_pair()
    moved = cells.ranks_of_pair() > 1
    starts = (np.ones(cells.ranks), 1 / np.arange(1.0, cells.ranks + 1))
    fit = feature_model if method == "regression" else document_em
    ends = [fit(cells, start=start) for start in starts]
    return Identifiability(
        int((shown > 0).sum()),
        int(moved.sum()),
        float(shown[moved].sum() / shown.sum()),
        tuple(unreachable_ranks(pair_counts(cells)).tolist()) if cells.ranks > 1 else (),
        _relevance_by_rank(cells, examination, ends[0].relevance if method == "regression" else None),
        float(clicked.sum() / (clicked > 0).sum()),
        float(np.abs(ends[0].examination - ends[1].examination).max()),
    )


def _relevance_by_rank(cells: Cells, examination: Float64s, relevance: Float64s | None) -> float | None:
    """Spearman's correlation; relevance is taken from the clicks if it is not given."""
    shown, clicked = cells.by_pair()
    examined = cells.sum_by_pair(cells.impressions * examination[cells.rank])
    mean_rank = cells.sum_by_pair(cells.impressions * cells.rank) / np.maximum(shown, 1)
    kept = shown > 0
    if relevance is None:
        kept = (shown >= LEAST_IMPRESSIONS) & (examined > 0)
        relevance = np.divide(clicked, examined, out=np.zeros_like(clicked), where=kept)
    if kept.sum() < LEAST_DOCUMENTS:
        return None
    first, second = _ranked(relevance[kept]), _ranked(mean_rank[kept])
    if not np.ptp(first) or not np.ptp(second):
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _ranked(values: Float64s) -> Float64s:
    """Ranks of values; equal ones share the mean of theirs.

    >>> _ranked(np.array([0.5, 0.1, 0.5])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Float64s = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


@dataclass(frozen=True)
class Conclusion:
    """Whether to trust an estimate.

    Attributes:
        answer: in a few words.
        reasons: for it, the gravest first.
        advice: what to do.
        limits: what no propensity can fix.
    """

    answer: Answer
    reasons: tuple[str, ...]
    advice: tuple[str, ...]
    limits: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Examination estimated from a log, with the evidence for and against it.

    Attributes:
        method: the method that estimated it.
        examination: [K], relative to rank 1.
        draws: of the bootstrap.
        others: what other methods found, [K].
        gaps: 95% intervals of other methods' estimates minus this one's, from the same draws, for methods that should
            agree with it: EM if documents have enough clicks; none for regression.
        weights: of the clicks.
        identifiability: of rank and relevance.
        trust_bias: None if it cannot be measured.
    """

    method: Method
    examination: Float64s
    draws: Draws
    others: dict[Method, Float64s]
    gaps: dict[Method, tuple[Float64s, Float64s]]
    weights: Weights
    identifiability: Identifiability
    trust_bias: TrustBias | None

    @cached_property
    def conclusion(self) -> Conclusion:
        """Whether to trust it."""
        found = sorted((*_on_data(self), *_on_intervals(self), *_on_weights(self)), key=lambda one: -one[0])
        limits: tuple[str, ...] = _LIMITS
        if self.trust_bias is None:
            limits = (*limits, "This log cannot show trust bias: whether users trust high ranks.")
        answer = ANSWERS[found[0][0] if found else 0]
        return Conclusion(
            answer,
            tuple(reason for _, reason, _ in found) or ("No check found a reason against it.",),
            tuple(dict.fromkeys(advice for _, _, advice in found if advice)),
            limits,
        )


def diagnose(
    log: ImpressionLog,
    method: Method | Literal["auto"] = "auto",
    *,
    over: Unit | None = None,
    draws: int = 200,
    seed: int = 0,
    on_draw: Callable[[], None] = lambda: None,
) -> Diagnosis:
    """Estimate examination from a log, and assess whether to trust the estimate.

    Args:
        log: the click log; or a data frame or file that `fultr.click_log` makes one of.
        method: "auto" harvests all pairs of ranks if they are linked; else it takes regression if the log has features,
            and EM if not.
        over: what the bootstrap resamples: users, queries or pages; by default the first of which the log has several.
        draws: number of bootstrap draws; below 20 there are no intervals.
        seed: of the bootstrap.
        on_draw: called after each draw; there are two bootstraps.

    >>> log = ImpressionLog.from_arrays([1] * 4, [[7, 8], [8, 7]] * 2, [[1, 0], [1, 0], [1, 1], [1, 0]])
    >>> found = diagnose(log)
    >>> found.method, found.conclusion.answer, found.conclusion.reasons[0]
    ('all-pairs', 'do not trust', 'There are only 5 clicks.')
    """
    check_choice("method", method, ("auto", *METHODS))
    log = click_log(log)
    cells = log.cells()
    found: dict[Method, Float64s] = {}
    for one in METHODS:
        try:
            found[one] = examination_by(one, cells)
        except FultrError:
            if one in (method, "em"):
                raise
    chosen: Method = next(iter(found)) if method == "auto" else method
    known = identifiability(cells, found[chosen], chosen)
    unsaid = (chosen, "adjacent", "em") if known.unreachable else (chosen, "adjacent")
    others = {one: values for one, values in found.items() if one not in unsaid}
    deep = known.clicks_per_document >= SHALLOW
    compared = [one for one in others if one != "regression" and (deep or "em" not in (one, chosen))]

    def estimates(resampled: Cells) -> Float64s:
        return np.concatenate([examination_by(one, resampled, start=found.get(one)) for one in (chosen, *compared)])

    if chosen == "em" and known.unreachable:
        draws = 0  # an estimate that merely repeats the start and the prior has no spread
    drawn = bootstrap(log, estimates, over=over, draws=draws, seed=seed, on_draw=on_draw)
    own, *rest = np.split(drawn.values, 1 + len(compared), axis=1)
    gaps = {one: replace(drawn, values=part - own).interval() for one, part in zip(compared, rest, strict=True)}
    return Diagnosis(
        chosen,
        found[chosen],
        replace(drawn, values=own),
        others,
        {one: gap for one, gap in gaps.items() if gap is not None},
        weights_of(cells.by_rank()[1], found[chosen]),
        known,
        trust_bias(log, found[chosen], over=over, draws=draws, seed=seed, on_draw=on_draw),
    )


_Finding: TypeAlias = tuple[int, str, str]  # severity (an index of ANSWERS), the reason, and what to do


def _on_data(found: Diagnosis) -> Iterator[_Finding]:
    """Findings about the log itself."""
    known, em, features = found.identifiability, found.method == "em", found.method == "regression"
    if found.weights.clicks < LEAST_CLICKS:
        yield 2, f"There are only {found.weights.clicks} clicks.", _LOG_MORE
    if found.examination.size == 1:
        yield 0, "Pages have only one rank: there is nothing to correct.", ""
        return
    if features and known.unreachable:
        told = "only features separate rank from relevance, and whatever they leave unexplained counts as examination."
        yield 1, f"Documents shown at several ranks do not link all ranks: {told}", _RANDOMISE
    elif not known.moved:
        yield 2, "No document was shown at more than one rank: rank and relevance cannot be separated.", _RANDOMISE
    elif known.unreachable:
        ranks = ", ".join(map(str, known.unreachable))
        yield 2, f"Ranks {ranks}: no clicked documents shown at several ranks link them to rank 1.", _RANDOMISE
    elif known.moved_impressions < FEW_MOVED:
        share = f"{known.moved_impressions:.1%}"
        yield 1, f"Only {share} of the displayed results are documents that were shown at several ranks.", _RANDOMISE
    if (em or features) and known.start_gap > FOLLOWS_START:
        name = "EM" if em else "Regression"
        yield 2, f"{name} depends on its start: from two of them it ends {known.start_gap:.2f} apart.", _RANDOMISE
    if em and known.clicks_per_document < SHALLOW:
        grave = 2 if known.clicks_per_document < VERY_SHALLOW else 1
        reason = f"A clicked document has {known.clicks_per_document:.1f} clicks on average: EM overstates low ranks."
        yield grave, reason, "Use all-pairs (harvesting) instead." if not known.unreachable else _LOG_MORE
    if found.trust_bias is not None and found.trust_bias.seen:
        yield (
            1,
            f"From a higher to a lower rank, clicks on less relevant documents fall {found.trust_bias.more:.0%} "
            f"further than clicks on others, which no position-based model explains: users may trust high ranks.",
            "Expect documents at high ranks to remain slightly overrated even after the correction.",
        )


def _on_intervals(found: Diagnosis) -> Iterator[_Finding]:
    """Findings about how certain the estimate is."""
    size = found.examination.size
    tried = len(found.draws.values) + found.draws.failed
    if size == 1:
        return
    if tried and found.draws.failed > FAILED * tried:
        reason = f"{found.draws.failed} of {tried} bootstrap draws gave no estimate."
        yield 2 if found.draws.failed > 0.5 * tried else 1, reason, _LOG_MORE
    interval = found.draws.interval()
    if interval is None and found.method == "em" and found.identifiability.unreachable:
        return
    if interval is None:
        yield 1, "There are no intervals: too few bootstrap draws.", "Use at least 200 draws (--bootstrap)."
        return
    low, high = interval
    ratio = np.divide(high, low, out=np.where(high > 0, np.inf, 1.0), where=low > 0)
    worst = int(np.argmax(ratio))
    if ratio[worst] > WIDE:
        reason = f"Rank {worst + 1}: the interval, {low[worst]:.3f} to {high[worst]:.3f}, is wide."
        yield 2 if ratio[worst] > VERY_WIDE else 1, reason, _LOG_MORE
    rise = np.flatnonzero(np.percentile(np.diff(found.draws.values, axis=1), 2.5, axis=0) > 0)
    if rise.size:
        rank = int(rise[0]) + 1
        yield 1, f"Rank {rank + 1} is examined significantly more than rank {rank}.", "Check the layout of the page."
    if found.draws.effective_units < FEW_UNITS:
        number = f"{found.draws.effective_units:.1f}"
        reason = f"The {found.draws.over}, given their sizes, count as only {number}: the intervals are too narrow."
        yield 1, reason, f"Collect clicks from more {found.draws.over}, or leave the largest out and compare."
    for name, (below, above) in found.gaps.items():
        gap = found.others[name] - found.examination
        apart = (below > 0) | (above < 0)
        share = np.where(apart, np.abs(gap) / np.maximum(found.examination, 1e-9), 0)
        if share.max() > APART:
            rank = int(share.argmax())
            yield 1, f"At rank {rank + 1} {name} differs significantly, by {share[rank]:.0%}.", "Compare the two."


def _on_weights(found: Diagnosis) -> Iterator[_Finding]:
    """Findings about what the weights would do to training."""
    weights = found.weights
    clip = f"Clip weights at {weights.clip:.3g}." if weights.clip else "Clip weights."
    if weights.infinite:
        reason = f"{weights.infinite} clicks are at ranks whose examination is estimated as 0."
        yield 2, reason, "Leave these ranks out, or collect more clicks."
    share = weights.effective / max(weights.clicks - weights.infinite, 1)
    if share < FEW_EFFECTIVE:
        reason = f"After weighting, {weights.clicks} clicks count as {weights.effective:.0f}."
        yield 2 if share < VERY_FEW_EFFECTIVE else 1, reason, clip
    if weights.heaviest_share > HEAVY:
        yield 1, f"The heaviest 1% of clicks hold {weights.heaviest_share:.0%} of the weight.", clip
