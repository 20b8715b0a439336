"""Which of two rankers would have got more clicks, from a click log alone.

Examination is estimated from the log, in every draw of the bootstrap anew, so that intervals know that it is not known.
Where the estimate is not to be trusted, there is no answer, but the reason why not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fultr.clicks.any_log import click_log
from fultr.clicks.bootstrap import Unit, bootstrap, usual_unit
from fultr.clicks.diagnosis import diagnose
from fultr.clicks.evaluated import Difference, Estimator, Evaluation, Examined, Metric
from fultr.clicks.evaluation import MOST_UNSEEN, check_rankers, evaluate_from_clicks, numbers_of
from fultr.clicks.examination.methods import Method, examination_by
from fultr.clicks.impressions import Cells, ImpressionLog
from fultr.core.arrays import Float64s
from fultr.core.errors import FultrError

LOGGED = "displayed"  # what an evaluation calls the order that users saw


@dataclass(frozen=True, eq=False)
class Comparison:
    """Is the second of two rankers better than the first?

    Attributes:
        difference: of the second to the first, paired, with its 95% interval and the answer.
        evaluation: what both, and the order that users saw, would have got; why the log cannot tell, if it cannot.
        examination: of each rank, that clicks were weighted by.
        method: how it was estimated; None: it was given.
        trust: whether that estimate is to be trusted; None: it was given.
    """

    difference: Difference
    evaluation: Evaluation
    examination: Float64s
    method: str | None
    trust: str | None


def compare_rankers(
    log: ImpressionLog,
    rankers: Mapping[str, ArrayLike | None],
    *,
    examination: ArrayLike | None = None,
    method: Literal["auto", "all-pairs", "adjacent", "regression", "em"] = "auto",
    metric: Metric = "clicks",
    estimator: Estimator = "ips",
    cutoff: int | None = None,
    clip: float | None = None,
    most_unseen: float = MOST_UNSEEN,
    over: Unit | None = None,
    draws: int = 500,
    seed: int = 0,
    ordered: bool = True,
    on_draw: Callable[[], None] = lambda: None,
) -> Comparison:
    """Which of two rankers would have got more clicks on the pages of a log?

    Args:
        log: the click log.
        rankers: two, by name: the score of each (query, document) pair of the log; None for the order that users saw.
        examination: of each rank, if it is known; None: it is estimated from the log.
        method: how it is estimated, see `fultr.diagnose`.
        metric: what counts, see `fultr.evaluate_from_clicks`; by default the clicks on a page.
        estimator: how, likewise.
        cutoff: ranks below it count nothing.
        clip: the largest weight of a click.
        most_unseen: refuse to answer if a larger share of what a ranker would have shown was not on the page.
        over: what the bootstrap resamples: users if they are known, else queries, else pages.
        draws: of the bootstrap.
        seed: of the draws.
        ordered: are the pages of each query in the order in which they happened? See `fultr.diagnose`.
        on_draw: called after each draw.

    >>> rng = np.random.default_rng(0)
    >>> clicks = rng.random((2000, 2)) < [0.8, 0.1]  # the first document is the better one
    >>> log = ImpressionLog.from_arrays(rng.integers(50, size=2000), [[7, 8]] * 2000, clicks)
    >>> swapped = np.where(log.document_names == 8, 1.0, 0.0)
    >>> found = compare_rankers(log, {"now": None, "swapped": swapped}, examination=[1, 0.5], draws=100)
    >>> found.difference.answer  # is swapped better than now?
    'no'
    """
    log = click_log(log)
    check_rankers(rankers)
    if len(rankers) != 2:
        raise FultrError(f"rankers: expected two, found {len(rankers)}")
    over = over or usual_unit(log)
    drawn: Float64s | None = None
    said, used, reasons = None, None, ""
    if examination is None:
        found = diagnose(log, method, over=over, draws=draws, seed=seed, ordered=ordered, on_draw=on_draw)
        said, used, values = found.conclusion.answer, found.method, found.examination
        reasons = " ".join(found.conclusion.reasons)
        drawn = found.draws.values
        if found.draws.failed:
            drawn = _aligned(log, found.method, values, over, draws, seed)
    else:
        values = numbers_of("examination", examination)
    named = {name: LOGGED if scores is None else name for name, scores in rankers.items()}
    if len(set(named.values())) < 2:
        raise FultrError("rankers: expected two different ones; both are the order that users saw")
    evaluated = evaluate_from_clicks(
        log,
        {name: scores for name, scores in rankers.items() if scores is not None},
        Examined(values, draws=drawn if drawn is not None and len(drawn) else None),
        metric=metric,
        estimator=estimator,
        cutoff=cutoff,
        clip=clip,
        most_unseen=most_unseen,
        over=over,
        draws=draws,
        seed=seed,
    )
    if said == "do not trust":
        refusal = f"The examination of ranks cannot be estimated from this log: {reasons}"
        evaluated = replace(evaluated, refusal=evaluated.refusal or refusal)
    first, second = named.values()
    return Comparison(evaluated.better(second, first), evaluated, values, used, said)


def _aligned(log: ImpressionLog, method: Method, whole: Float64s, over: Unit, draws: int, seed: int) -> Float64s:
    """Examination in every draw, [draws, K]; NaN in those where it cannot be estimated."""

    def estimated(cells: Cells) -> Float64s:
        try:
            return examination_by(method, cells, start=whole)
        except FultrError:
            return np.full(log.ranks, np.nan)

    return bootstrap(log, estimated, over=over, draws=draws, seed=seed).values
