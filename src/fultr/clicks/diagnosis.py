"""Examination estimated from a log, with the evidence for and against it, and a conclusion in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Literal

import numpy as np

from fultr.clicks.any_log import click_log
from fultr.clicks.bootstrap import Draws, Unit, bootstrap
from fultr.clicks.canonical import canonical
from fultr.clicks.cascade_check import Stopping, stopping
from fultr.clicks.examination.affine import AffineModel, affine_em
from fultr.clicks.examination.methods import METHODS, Method, examination_by
from fultr.clicks.feedback_check import Feedback, feedback
from fultr.clicks.findings import (
    ANSWERS,
    DEEP,
    Answer,
    Finding,
    on_data,
    on_feedback,
    on_intervals,
    on_stopping,
    on_trust,
    on_weights,
)
from fultr.clicks.identifiability import Identifiability, identifiability
from fultr.clicks.impressions import Cells, ImpressionLog
from fultr.clicks.trust_check import TrustBias, trust_bias
from fultr.clicks.weights import Weights, weights_of
from fultr.core.arrays import Float64s
from fultr.core.checks import check_choice
from fultr.core.errors import FultrError

_LIMITS = (
    "Documents that were never displayed have no clicks, and no propensity can supply any.",
    "A document is assumed to change its rank for reasons other than past clicks on it, and to have the same relevance "
    "all the time, for all users.",
    "Users and queries may differ in how far they look; the curve is an average, right for none of them exactly.",
)


@dataclass(frozen=True)
class Conclusion:
    """Whether to trust an estimate.

    Attributes:
        answer: in a few words.
        reasons: for it, the gravest first.
        advice: what to do.
        limits: what no propensity can fix.
        findings: what the checks found, in the order of the reasons.
    """

    answer: Answer
    reasons: tuple[str, ...]
    advice: tuple[str, ...]
    limits: tuple[str, ...]
    findings: tuple[Finding, ...]


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
        feedback: whether rank changes follow clicks; None if no document changed its rank, or the log has no order.
        trust_bias: None if it cannot be measured.
        stopping: whether users stop at clicks; None if it cannot be measured.
        affine: clicks as an affine function of relevance; None if documents have too few clicks.
        ordered: are the pages in the order in which they happened?
    """

    method: Method
    examination: Float64s
    draws: Draws
    others: dict[Method, Float64s]
    gaps: dict[Method, tuple[Float64s, Float64s]]
    weights: Weights
    identifiability: Identifiability
    feedback: Feedback | None
    trust_bias: TrustBias | None
    stopping: Stopping | None
    affine: AffineModel | None
    ordered: bool

    @cached_property
    def conclusion(self) -> Conclusion:
        """Whether to trust it."""
        ranks, known = self.examination.size, self.identifiability
        found = _gravest_first(
            on_data(self.method, ranks, self.weights, known),
            on_feedback(self.feedback, self.ordered) if known.moved else (),
            on_trust(self.trust_bias, self.affine is not None),
            on_stopping(self.stopping),
            on_intervals(self.method, self.examination, self.draws, known, self.others, self.gaps),
            on_weights(self.weights),
        )
        limits: tuple[str, ...] = _LIMITS
        if self.trust_bias is None:
            limits = (*limits, "This log cannot show trust bias: whether users trust high ranks.")
        elif ranks > 1 and not self.trust_bias.reversed:
            limits = (*limits, _on_slips(self.trust_bias.hidden_slips))
        if self.stopping is None and ranks > 1:
            limits = (*limits, "This log cannot show whether users stop at clicks.")
        return Conclusion(
            found[0].answer if found else "trust",
            tuple(one.reason for one in found) or ("No check found a reason against it.",),
            tuple(dict.fromkeys(one.advice for one in found if one.advice)),
            limits,
            found,
        )


def _gravest_first(*findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(chain(*findings), key=lambda one: -ANSWERS.index(one.answer)))


def _on_slips(hidden: float | None) -> str:
    """What clicks on results that nobody examined would do."""
    large = ", however large" if hidden is None else f" of up to {hidden:.0%}"
    return (
        "Clicks on what was not examined, by bots or by accident, make low ranks too high; this log could not have "
        f"shown an error due to them{large}."
    )


def doubts(
    log: ImpressionLog, method: Method, examination: Float64s, *, ordered: bool = True, seed: int = 0
) -> tuple[Finding, ...]:
    """What speaks against an estimate, the gravest first, as far as it takes no bootstrap.

    Args:
        log: the click log.
        method: how the estimate was found.
        examination: the estimate, [K].
        ordered: are the pages of each query in the order in which they happened?
        seed: of the halves of the check for trust bias.

    >>> log = ImpressionLog.from_arrays([1] * 4, [[7, 8], [8, 7]] * 2, [[1, 0], [1, 0], [1, 1], [1, 0]])
    >>> [one.reason for one in doubts(log, "all-pairs", np.array([1, 0.5]))][:1]
    ['There are only 5 clicks.']
    """
    cells = log.cells()
    known = identifiability(cells, examination, method)
    return _gravest_first(
        on_data(method, log.ranks, weights_of(cells.by_rank()[1], examination), known),
        on_feedback(feedback(log) if ordered else None, ordered) if known.moved else (),
        on_trust(trust_bias(log, examination, seed=seed)),
        on_stopping(stopping(log)),
    )


def diagnose(
    log: ImpressionLog,
    method: Method | Literal["auto"] = "auto",
    *,
    over: Unit | None = None,
    draws: int = 200,
    seed: int = 0,
    ordered: bool = True,
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
        ordered: are the pages of each query in the order in which they happened? If not, it cannot be checked whether
            documents moved because of clicks.
        on_draw: called after each draw.

    >>> log = ImpressionLog.from_arrays([1] * 4, [[7, 8], [8, 7]] * 2, [[1, 0], [1, 0], [1, 1], [1, 0]])
    >>> found = diagnose(log)
    >>> found.method, found.conclusion.answer, found.conclusion.reasons[0]
    ('all-pairs', 'do not trust', 'There are only 5 clicks.')
    """
    check_choice("method", method, ("auto", *METHODS))
    log = canonical(click_log(log))
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
    deep = known.clicks_per_document >= DEEP
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
        feedback(log) if ordered and known.moved else None,
        trust_bias(log, found[chosen], seed=seed),
        stopping(log),
        _affine(cells) if deep and not known.unreachable and log.ranks > 1 else None,
        ordered,
    )


def _affine(cells: Cells) -> AffineModel | None:
    try:
        return affine_em(cells)
    except FultrError:
        return None
