"""`UnbiasedRanker`: a scikit-learn estimator that trains a ranker on a click log in a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fultr.clicks.evaluated import Examined
from fultr.clicks.evaluation import new_places, numbers_of
from fultr.clicks.frames import Pages, coarse_columns, column_of, numbered, pages_of
from fultr.core.arrays import Float32s, Float64s, Int64s
from fultr.core.checks import check_choice, check_number
from fultr.core.compiled import announced
from fultr.core.errors import FultrError
from fultr.core.threads import run_ranges
from fultr.learn.propensities import examination_for
from fultr.learn.tables import check_given, input_errors, places, seed_of, table_of
from fultr.learn.whole_log import train_on_log
from fultr.rankers.forest import read_forest
from fultr.rankers.plain import rows_times, scaled_within
from fultr.rankers.ranker import Ranker
from fultr.rankers.tree_kernels import add_tree_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise FultrError("scikit-learn: not installed; pip install 'fultr[learn]'") from None


class UnbiasedRanker(BaseEstimator):  # type: ignore[misc]
    """A ranker trained on a click log: one row for each displayed document, its features, and whether it was clicked.

    Clicks are biased: a document at the top is clicked partly because it is at the top. How often each rank is examined
    is estimated from the log. All impressions of a document for a query are then added up: its clicks, and how often
    it was examined. The ranker is the one that makes the clicks most likely, given how often documents were examined
    (`fultr.learn.pooled`).

    Args:
        model: "trees": boosted trees, the default and mostly the best; "linear"; or "mlp", a small neural network.
        propensity: "auto": estimated from the log, by documents that were shown at several ranks if they link all
            ranks, else by a model of relevance from features; a method of `fultr estimate` ("all-pairs", "adjacent",
            "regression", "em"); a `fultr.PositionBias`; one number per rank; or "none": clicks are taken as they are.
            If federated, "auto" is what the recommended settings estimate with, and in place of a method there is an
            estimator of federations (`fultr.Estimator`) or its name ("pooled", "shrunk", ...).
        normalise: "none": features are used as they are, whatever their scale (linear and neural rankers scale them to
            mean 0 and variance 1 in training, and the weights back afterwards); "query": each is scaled to [0, 1]
            within a query's rows, also when ranking, which then needs to know the query; "auto": "query" if federated,
            else "none".
        federated: train as a federation of the users' devices would, with FedIPS, to the same weights as their device
            logs give; a log without users is that of one device. Features are then scaled page by page, since a device
            knows no others. For studying a federation: what it costs in quality has not been measured.
        folds: parts into which queries are cut, each of which is held out in turn to make choices; the ranker is the
            mean of those trained without a part.
        ordered: are the pages of each query in the order in which they happened? Only the check of propensities asks:
            that a ranker learnt from these very clicks shows in their order alone.
        random_state: seed of folds and of whatever is drawn: a whole number, or a generator to draw it from; None is 0.
        n_jobs: threads; all cores if None or -1. The result does not depend on it.

    Attributes:
        ranker_: the trained `fultr.Ranker`, to save, serve, export or compare.
        examination_: of each rank, relative to rank 1.
        report_: what was chosen and why; print it.
        n_features_in_: columns of the table.
        feature_names_in_: their names, if all are texts.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((4000, 3))  # a row for each displayed document
    >>> rank = np.tile([1, 2, 3, 4], 1000)
    >>> clicks = (rng.random(4000) < X[:, 0] / rank).astype(int)  # rank k is examined with probability 1 / k
    >>> query = np.repeat(np.arange(1000), 4)
    >>> ranker = UnbiasedRanker("linear").fit(X, clicks, query=query, rank=rank)
    >>> ranker.examination_.round(1).tolist()
    [1.0, 0.5, 0.3, 0.2]
    >>> ranker.rank([[0.1, 0.5, 0.5], [0.9, 0.5, 0.5]], query=["a", "a"]).tolist()
    [2, 1]
    """

    def __init__(
        self,
        model: Literal["trees", "linear", "mlp"] = "trees",
        *,
        propensity: Any = "auto",
        normalise: Literal["auto", "none", "query"] = "auto",
        federated: bool = False,
        folds: int = 5,
        ordered: bool = True,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.model = model
        self.propensity = propensity
        self.normalise = normalise
        self.federated = federated
        self.folds = folds
        self.ordered = ordered
        self.random_state = random_state
        self.n_jobs = n_jobs

    @input_errors()
    @announced(5)
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
    ) -> UnbiasedRanker:
        """Train on a click log.

        Args:
            X: features, a row for each displayed document: a NumPy array, a pandas, polars or Arrow table, or a sparse
                matrix.
            clicks: 0 or 1 of each row.
            query: an id of each row's query, of any type.
            rank: at which the document was displayed, from 1.
            user: an id of who searched, of any type; None: that is not known.
            session: an id that tells impressions apart; rows may then be in any order. Without it, the rows of a page
                follow each other in the order of their ranks.
            document: an id; None: documents of a query with the same features are the same.
        """
        check_choice("normalise", self.normalise, ("auto", "none", "query"))
        values = table_of(self, X, reset=True)
        notes = coarse_columns(X, values)
        check_given(len(values), clicks=clicks, query=query, rank=rank)
        scaled = self.normalise == "query" or (self.normalise == "auto" and self.federated)
        given = {"query": query, "rank": rank, "user": user, "session": session, "document": document}
        log = self._pages(values, clicks, given, scaled).log
        names = tuple(map(str, getattr(self, "feature_names_in_", ()))) or None
        trained = train_on_log(
            replace(log, feature_names=names),
            model=self.model,
            propensity=self.propensity,
            normalised=scaled,
            federated=self.federated,
            folds=self.folds,
            ordered=self.ordered,
            seed=seed_of(self.random_state),
            threads=self._threads(),
        )
        self.ranker_ = trained.ranker
        self.examination_ = trained.examination
        self.report_ = replace(trained.report, notes=(*trained.report.notes, *notes))
        self.trained_ = trained
        return self

    def _pages(self, values: Float32s, clicks: Any, given: dict[str, Any], scaled: bool) -> Pages:
        """A table as pages, with features scaled by query, or, as devices scale them, by page, if they are to be."""
        if scaled and not self.federated:
            values = scaled_within(values, numbered("query", given["query"], len(values))[1])
        pages = pages_of(values, clicks, **given)
        if not scaled or not self.federated:
            return pages
        page = np.empty(len(values), np.int64)
        page[pages.rows[pages.rows >= 0]] = np.nonzero(pages.rows >= 0)[0]
        return pages_of(scaled_within(values, page), clicks, **{**given, "session": page, "document": None})

    def _threads(self) -> int | None:
        if self.n_jobs is None or self.n_jobs == -1:
            return None
        check_number("n_jobs", self.n_jobs, least=1, most=1024, whole=True)
        return self.n_jobs

    def plot(self) -> Figure:
        """The figure of `fultr train`: examination by rank, and what held-out clicks said about every choice."""
        from fultr.learn.figure import draw_training

        check_is_fitted(self)
        return draw_training(self.trained_)

    @input_errors()
    def predict(self, X: Any, *, query: Any = None) -> Float64s:  # noqa: N803
        """The score of each row; among rows of a query, a higher one is better.

        Args:
            X: features, as for `fit`.
            query: an id of each row's query; only needed with normalise="query", or if federated: then of its page,
                within which devices scale features.
        """
        check_is_fitted(self)
        values = table_of(self, X, reset=False)
        if self.ranker_.normalised:
            if query is None:
                raise FultrError("query: expected an id for each row, to normalise features by query; found none")
            values = scaled_within(values, numbered("query", query, len(values))[1])
        return self._scores(values)

    def rank(self, X: Any, query: Any) -> Int64s:  # noqa: N803
        """The rank of each row among the rows of its query, from 1: 1 is the best.

        Args:
            X: features, as for `fit`.
            query: an id of each row's query, of any type.
        """
        scores = self.predict(X, query=query)
        with input_errors():
            return places(scores, query)

    @input_errors()
    def score(
        self,
        X: Any,  # noqa: N803
        clicks: Any,
        *,
        query: Any = None,
        rank: Any = None,
        user: Any = None,
        session: Any = None,
        document: Any = None,
        propensity: Any = "auto",
        sample_weight: Any = None,
    ) -> float:
        """How well the ranker orders the pages of another log, by its clicks alone; higher is better.

        Every click counts 1 over the examination of its rank, times 1 / log2(1 + the rank that the ranker gives to the
        document among those of its page), divided by what all clicks count: the self-normalised estimate of DCG per
        relevant document (`fultr.evaluate_from_clicks`). No judged documents are needed.

        Args:
            X: features, as for `fit`.
            clicks: as for `fit`, and so are the following.
            query: ids.
            rank: from 1.
            user: ids.
            session: ids.
            document: ids.
            propensity: how examination is found, as for the estimator. "auto" finds it in the log that is given,
                whatever this ranker was trained with: so rankers of different propensities have the same measure.
            sample_weight: how often each row's click counts; once if None.
        """
        check_is_fitted(self)
        values = table_of(self, X, reset=False)
        check_given(len(values), clicks=clicks, query=query, rank=rank)
        given = {"query": query, "rank": rank, "user": user, "session": session, "document": document}
        pages = self._pages(values, clicks, given, self.ranker_.normalised)
        log, times = pages.log, np.ones(len(values))
        log.cells().check_clicks()
        if sample_weight is not None:
            times = numbers_of("sample_weight", column_of("sample_weight", sample_weight, len(values)))
        assert log.features is not None
        place = new_places(log, self._scores(log.features))
        weights = Examined(examination_for(log, propensity)[0]).weights()
        worth = np.where(log.shown, log.clicks * times[pages.rows], 0.0) * weights
        if not (np.isfinite(worth).all() and worth.min() >= 0 and worth.sum() > 0):
            raise FultrError("sample_weight: expected numbers from 0, some above 0 for a row with a click")
        return float((worth / np.log2(2 + place)).sum() / worth.sum())

    def _scores(self, values: Float32s) -> Float64s:
        """Scores of rows whose columns are those that were fitted."""
        columns = self.trained_.columns
        if not np.array_equal(columns, np.arange(columns.size)):
            values = np.ascontiguousarray(values[:, columns])
        return scores_of(self.ranker_, values, self._threads())

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn's tools should know: clicks are needed, and sparse features will do."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags


def scores_of(ranker: Ranker, features: Float32s, threads: int | None = None) -> Float64s:
    """Scores in float64: features of any scale keep what tells them apart."""
    width = ranker.feature_ids.size
    if not ranker.model.kind.endswith("trees"):
        return ranker.plain.model.sums(ranker.plain.parts, features.astype(np.float64))
    forest = read_forest(ranker.weights, width, ranker.model.depth)
    scores = rows_times(features.astype(np.float64), forest.linear.astype(np.float64))
    trees = slice(0, forest.grown)
    asked, thresholds, values = forest.features[trees], forest.thresholds[trees], forest.values[trees]
    rows = np.ascontiguousarray(features)

    def work(begin: int, end: int) -> None:
        add_tree_scores(rows, asked, thresholds, values, np.unique(asked), begin, end, scores[begin:end])

    run_ranges(work, len(rows), threads)
    return scores
