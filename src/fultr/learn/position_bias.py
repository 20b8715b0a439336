"""`PositionBias`: how strongly rank biases the clicks of a log in a table, and whether to trust the estimate."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from fultr.clicks.bootstrap import Unit
from fultr.clicks.diagnosis import diagnose
from fultr.clicks.frames import pages_of
from fultr.core.compiled import announced
from fultr.core.errors import FultrError
from fultr.learn.tables import check_given, input_errors, seed_of, table_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

try:
    from sklearn.base import BaseEstimator, clone
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise FultrError("scikit-learn: not installed; pip install 'fultr[learn]'") from None


class PositionBias(BaseEstimator):  # type: ignore[misc]
    """The examination of each rank, estimated from a click log: one row for each displayed document.

    It takes the same table as `UnbiasedRanker`, whose `propensity` its `examination_` can be. Features are used only if
    too few documents were shown at several ranks.

    Args:
        method: "auto", or a method of `fultr estimate`: "all-pairs", "adjacent", "regression", "em".
        over: what the bootstrap resamples: "users", "queries" or "pages"; None: the first of which there are several.
        draws: of the bootstrap.
        ordered: are the pages of each query in the order in which they happened? If not, nobody can tell whether
            documents moved because of clicks, see `fultr.diagnose`.
        random_state: its seed, see `UnbiasedRanker`.

    Attributes:
        examination_: of each rank, relative to rank 1.
        interval_: lower and upper ends of 95% intervals, [2, ranks]; None if there are too few draws.
        method_: that was used.
        answer_: "trust", "trust with care" or "do not trust".
        reasons_: for the answer, the gravest first.
        advice_: what to do.
        diagnosis_: all that was found, see `fultr.diagnose`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rank = np.tile([1, 2], 4000)
    >>> document = (rng.integers(2, size=(4000, 1)) + [0, 1]).ravel() % 2  # one of two documents is on top, by chance
    >>> clicks = (rng.random(8000) < np.where(document, 0.6, 0.3) / rank).astype(int)
    >>> bias = PositionBias(draws=50).fit(np.c_[document], clicks, query=np.zeros(8000), rank=rank)
    >>> bias.examination_.round(1).tolist(), bias.method_, bias.answer_
    ([1.0, 0.5], 'all-pairs', 'trust')
    """

    def __init__(
        self,
        method: str = "auto",
        *,
        over: Unit | None = None,
        draws: int = 200,
        ordered: bool = True,
        random_state: Any = 0,
    ) -> None:
        self.method = method
        self.over = over
        self.draws = draws
        self.ordered = ordered
        self.random_state = random_state

    @input_errors()
    @announced(2)
    def fit(
        self,
        X: Any,  # noqa: N803
        clicks: Any,
        *,
        query: Any = None,
        rank: Any = None,
        user: Any = None,
        session: Any = None,
        document: Any = None,
    ) -> PositionBias:
        """Estimate from a click log; the arguments are those of `UnbiasedRanker.fit`."""
        values = table_of(self, X, reset=True)
        check_given(len(values), clicks=clicks, query=query, rank=rank)
        log = pages_of(values, clicks, query=query, rank=rank, user=user, session=session, document=document).log
        found = diagnose(
            log,
            self.method,  # type: ignore[arg-type]
            over=self.over,
            draws=self.draws,
            seed=seed_of(self.random_state),
            ordered=self.ordered,
        )
        interval = found.draws.interval()
        shown, clicked = log.cells().by_rank()
        self.click_rate_ = clicked / np.maximum(shown, 1)
        self.diagnosis_ = found
        self.method_ = found.method
        self.examination_ = found.examination
        self.interval_ = None if interval is None else np.stack(interval)
        self.answer_ = found.conclusion.answer
        self.reasons_ = found.conclusion.reasons
        self.advice_ = found.conclusion.advice
        return self

    def plot(self) -> Figure:
        """The figure of `fultr estimate`: examination by rank with its interval, other methods, and click rates."""
        from fultr.clicks.figure import draw_estimate

        check_is_fitted(self)
        return draw_estimate(self.diagnosis_, self.click_rate_)

    def __str__(self) -> str:
        """What was found, in a few lines."""
        if not hasattr(self, "diagnosis_"):
            return super().__repr__()
        spans = (
            [""] * self.examination_.size
            if self.interval_ is None
            else [f" ({a:.3f} to {b:.3f})" for a, b in self.interval_.T]
        )
        lines = [f"rank {k + 1}: {p:.3f}{spans[k] if k else ''}" for k, p in enumerate(self.examination_)]
        return "\n".join([f"Examination by {self.method_}", *lines, f"Conclusion: {self.answer_}", *self.reasons_])

    def __sklearn_clone__(self) -> PositionBias:
        """A copy, fitted if this one is: scikit-learn's searches copy what a ranker is given as its `propensity`."""
        copied = copy(self)
        for name, value in self.get_params().items():
            setattr(copied, name, clone(value, safe=False))
        return copied

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn's tools should know: clicks are needed, and sparse features will do."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags
