"""Generated data sets in the shape of the ones the paper uses, for work without a download.

A document has a few hidden factors. They determine its relevance, and its features measure them, each with its own
distortion. What a ranker can learn is therefore limited by what the features show of the factors, by the noise in
relevance, and, for a linear ranker, by the part of relevance that is not linear. `docs/synthetic.md` says how the
settings were chosen and what rankers reach.

Every number comes from the stream of its own query or document (see `streams`), so the data depend only on the settings
and the seed. Memory: the feature arrays that are returned, plus 20 bytes per document and a few rows per thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.special import ndtri

from fultr.core.arrays import Bools, Float32s, Float64s, Int32s, Int64s
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, advance, below, generator, mix, start
from fultr.core.threads import chunk_bounds, run_chunks
from fultr.data.ranking import RankingData, Splits

GRID = 10_000.0  # features are whole multiples of 1 / GRID: four decimals represent them exactly
_PLAIN, _SATURATED, _HEAVY = 0, 1, 2
_SYNTHETIC = int(Purpose.SYNTHETIC)
_S16, _S32, _S48 = np.uint64(16), np.uint64(32), np.uint64(48)
_NORMAL_MEAN, _NORMAL_DEVIATION = 4 * (2**16 - 1) / 2, math.sqrt(4 * (2**32 - 1) / 12)


@dataclass(frozen=True)
class Settings:
    """The properties of a generated data set.

    Relevance has variance 1 among the documents of a query on average: the shares `linear`, `typed` and `curved` of it
    come from the factors, the rest is noise that no feature shows.

    Attributes:
        name: of the data set.
        queries: how many, for training, validation and test.
        documents_per_query: on average, in each of the three; exact up to the rounding of the number of documents.
        fewest: smallest number of documents per query.
        most: largest number of documents per query.
        size_spread: standard deviation of the logarithm of documents per query, before `fewest` and `most`.
        features: how many features a document has.
        grade_shares: shares of the grades 0, 1, ... among the documents for training.
        factors: number of hidden factors that determine relevance.
        nuisance_factors: number of hidden factors that have nothing to do with it.
        decay: weight of a factor in the linear part, relative to the factor before it.
        linear: share of relevance that is the same weighted sum of factors for every query.
        typed: share that is a weighted sum of factors with weights of the query's type.
        curved: share made of products of two factors, which strengthen each other, minus squares: too much of such a
            factor is as bad as too little.
        types: how many types of queries there are.
        query_spread: standard deviation of the offset that a query adds to the relevance of all its documents.
        query_share: share of a factor's variance that lies between queries, not between documents of one query.
        irrelevant: share of the features that show only nuisance factors.
        sparse: share of the features that are 0 below a threshold.
        absent: chance that a feature is 0 for all queries of a type.
        nuisance: largest weight that a nuisance factor has in a feature; the factor it shows has weight 1.
        feature_noise: typical weight that noise has in a feature.
    """

    name: str
    queries: tuple[int, int, int]
    documents_per_query: float
    fewest: int
    most: int
    size_spread: float
    features: int
    grade_shares: tuple[float, ...]
    factors: int = 16
    nuisance_factors: int = 8
    decay: float = 0.8
    linear: float = 0.5
    typed: float = 0.05
    curved: float = 0.3
    types: int = 4
    query_spread: float = 0.8
    query_share: float = 0.2
    irrelevant: float = 0.5
    sparse: float = 0.5
    absent: float = 0.1
    nuisance: float = 1.0
    feature_noise: float = 0.9

    def __post_init__(self) -> None:
        def check(name: str, right: bool, expected: str) -> None:
            if not right:
                raise FultrError(f"{name}: expected {expected}, found {getattr(self, name)}")

        check("queries", len(self.queries) == 3 and min(self.queries) >= 1, "three numbers, each at least 1")
        check("fewest", 2 <= self.fewest <= self.most, f"2 to `most` ({self.most})")
        check("documents_per_query", self.fewest <= self.documents_per_query <= self.most, "`fewest` to `most`")
        check("grade_shares", len(self.grade_shares) >= 2 and min(self.grade_shares) > 0, "two or more, each above 0")
        check("grade_shares", abs(sum(self.grade_shares) - 1) < 1e-9, "numbers that add up to 1")
        for name, least in (("features", 1), ("factors", 2), ("nuisance_factors", 1), ("types", 2)):
            check(name, getattr(self, name) >= least, f"at least {least}")
        for name in ("size_spread", "decay", "query_spread", "nuisance", "feature_noise"):
            check(name, getattr(self, name) >= 0, "0 or more")
        for name in ("linear", "typed", "curved", "irrelevant", "sparse", "absent"):
            check(name, 0 <= getattr(self, name) <= 1, "0 to 1")
        check("query_share", 0 <= self.query_share < 1, "0 or more, below 1")
        check("noise", self.noise >= -1e-9, "`linear`, `typed` and `curved` to add up to at most 1, leaving noise")

    @property
    def noise(self) -> float:
        """Share of relevance that no feature shows."""
        return 1 - self.linear - self.typed - self.curved


_NAMED = (
    Settings(
        name="synthetic",
        queries=(3_000, 750, 1_250),
        documents_per_query=25,
        fewest=8,
        most=80,
        size_spread=0.5,
        features=64,
        grade_shares=(0.40, 0.30, 0.18, 0.09, 0.03),
    ),
    # Filtering leaves the paper's 14,377 of Yahoo's 19,944 training queries; 2,994 and 6,983 are cut in proportion.
    Settings(
        name="synthetic-yahoo",
        queries=(14_377, 2_158, 5_034),
        documents_per_query=32.51,
        fewest=5,
        most=139,
        size_spread=0.65,
        features=519,
        grade_shares=(0.26, 0.36, 0.28, 0.08, 0.02),
        factors=32,
        decay=0.9,
        query_spread=1.0,
        feature_noise=1.8,
    ),
    # Filtering leaves the paper's 32,625 of Istella-S's 33,018 queries, which are 19,245, 7,211 and 6,562.
    Settings(
        name="synthetic-istella",
        queries=(19_016, 7_125, 6_484),
        documents_per_query=103.73,
        fewest=10,
        most=182,
        size_spread=0.35,
        features=220,
        grade_shares=(0.885, 0.02, 0.04, 0.033, 0.022),
        factors=32,
        nuisance_factors=16,
        linear=0.6,
        typed=0.03,
        curved=0.33,
        query_spread=0.3,
        query_share=0.1,
        nuisance=2.0,
        feature_noise=0.4,
    ),
)
SETTINGS: Mapping[str, Settings] = MappingProxyType({settings.name: settings for settings in _NAMED})


def generate(name: str, *, seed: int = 0, threads: int | None = None) -> Splits:
    """One of the named data sets: filtered, normalised, in three splits.

    Args:
        name: a key of `SETTINGS`.
        seed: which of the data sets with these settings.
        threads: how many threads to use, all cores if None; the data do not depend on it.

    >>> generate("synthetic").train
    RankingData(3,000 queries, 75,000 documents, 64 features)
    """
    if name not in SETTINGS:
        raise FultrError(f"unknown generated data set {name!r}; expected {', '.join(SETTINGS)}")
    return generate_from(SETTINGS[name], seed=seed, threads=threads)


def generate_from(settings: Settings, *, seed: int = 0, threads: int | None = None) -> Splits:
    """A data set with your own settings.

    >>> from dataclasses import replace
    >>> splits = generate_from(replace(SETTINGS["synthetic"], queries=(20, 5, 5), features=8))
    >>> [part.queries for part in splits], splits.train.width
    ([20, 5, 5], 8)
    """
    if seed < 0:
        raise FultrError(f"seed: expected 0 or more, found {seed}")
    world = _draw_world(settings, generator(seed, Purpose.SYNTHETIC, 0))
    parts, thresholds, first_query = [], None, 0
    for part, queries in enumerate(settings.queries):
        sizes = _draw_sizes(settings, queries, generator(seed, Purpose.SYNTHETIC, 1 + part))
        offsets = np.r_[0, np.cumsum(sizes)]
        features, relevance = _draw_documents(world, seed, first_query, offsets, threads)
        if thresholds is None:  # the training documents determine the thresholds of the grades
            thresholds = np.quantile(relevance, np.cumsum(settings.grade_shares)[:-1])
        labels = _grade(relevance, thresholds, offsets)
        ids = first_query + np.arange(1, queries + 1)
        parts.append(RankingData(features, labels, offsets, ids, np.arange(1, settings.features + 1)))
        first_query += queries
    return Splits(parts[0], parts[1], parts[2], settings.name)


def _draw_sizes(settings: Settings, queries: int, random: np.random.Generator) -> Int64s:
    """Documents of each query: quantiles of a log-normal distribution in random order, with the given mean."""
    skewed = np.exp(settings.size_spread * ndtri((np.arange(queries) + 0.5) / queries))
    total = round(queries * settings.documents_per_query)

    def rounded(scale: float) -> Int64s:
        return np.clip(scale * skewed, settings.fewest, settings.most).astype(np.int64)

    low, high = 0.0, settings.most / skewed[0]
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if rounded(middle).sum() <= total else (low, middle)
    sizes = random.permutation(rounded(low))
    room = np.flatnonzero(sizes < settings.most)
    sizes[room[: total - sizes.sum()]] += 1
    return sizes


class _World(NamedTuple):
    """What is drawn once for a data set with F features, R relevant factors, T types of queries and P products."""

    weights: Float64s  # [T, R] weights of the factors in relevance, for each type of query
    pairs: Int64s  # [P, 2] factors whose product counts (its square, if twice the same)
    pair_weights: Float64s  # [P]
    noise: float  # standard deviation of the noise in relevance
    query_spread: float
    query_share: float
    sources: Int64s  # [F, 2] the factors that a feature shows
    loadings: Float64s  # [F, 3] how much it shows of them, and of noise
    shapes: Int64s  # [F] _PLAIN, _SATURATED or _HEAVY
    steepness: Float64s  # [F] of a saturated or heavy-tailed feature
    sparse: Bools  # [F] whether a feature is 0 below its threshold
    thresholds: Float64s  # [F]
    present: Bools  # [T, F] whether queries of a type have a feature
    factors: int  # relevant ones, then nuisance ones


def _draw_world(settings: Settings, random: np.random.Generator) -> _World:
    relevant, width = settings.factors, settings.features
    within = 1 - settings.query_share  # variance of a factor among the documents of a query

    # Relevance: the linear part has falling weights; the parts of the types add up to nothing over the types.
    common = settings.decay ** np.arange(relevant)
    common *= np.sqrt(settings.linear / within / np.sum(common**2))
    typed = random.standard_normal((settings.types, relevant))
    typed -= typed.mean(axis=0)
    typed *= np.sqrt(settings.typed / within / np.mean(np.sum(typed**2, axis=1)))

    # The leading factors are multiplied two by two, and one of each two is squared.
    ones = np.arange(0, min(relevant, 6) - 1, 2)
    pairs = np.r_[np.c_[ones, ones + 1], np.c_[ones, ones]]
    # Within a query a product varies by 1 - query_share**2, a square by twice that.
    variance = (1 - settings.query_share**2) * 3 * ones.size

    # Features: each shows a factor of its own, the relevant ones in turn, mixed with a nuisance factor and noise.
    informative = width - round(settings.irrelevant * width)
    turn = np.arange(width)
    main = np.where(turn < informative, turn % relevant, relevant + turn % settings.nuisance_factors)
    other = relevant + random.integers(settings.nuisance_factors, size=width)
    loadings = np.c_[
        random.choice([1.0, 1.0, 1.0, -1.0], width),
        random.uniform(-settings.nuisance, settings.nuisance, width),
        settings.feature_noise * np.exp(0.5 * random.standard_normal(width)),
    ]
    loadings /= np.linalg.norm(loadings, axis=1, keepdims=True)
    column = random.permutation(width)  # kinds of features are in random order
    return _World(
        weights=common + typed,
        pairs=pairs,
        pair_weights=np.sqrt(settings.curved / variance) * np.repeat([1.0, -1.0], ones.size),
        noise=math.sqrt(max(settings.noise, 0.0)),
        query_spread=settings.query_spread,
        query_share=settings.query_share,
        sources=np.c_[main, other][column],
        loadings=loadings[column],
        shapes=random.choice([_PLAIN, _SATURATED, _HEAVY], width),
        steepness=random.uniform(0.8, 1.6, width),
        sparse=random.random(width) < settings.sparse,
        thresholds=random.uniform(-0.5, 1.0, width),
        present=random.random((settings.types, width)) >= settings.absent,
        factors=relevant + settings.nuisance_factors,
    )


def _draw_documents(
    world: _World, seed: int, first: int, offsets: Int64s, threads: int | None
) -> tuple[Float32s, Float32s]:
    """Features and relevance of all documents of a split, whose queries are numbered from `first`."""
    features = np.empty((offsets[-1], world.shapes.size), np.float32)
    relevance = np.empty(offsets[-1], np.float32)
    bounds = chunk_bounds(offsets.size - 1, 256)
    run_chunks(
        lambda i: _draw_queries(world, seed, first, offsets, *bounds[i], features, relevance), len(bounds), threads
    )
    return features, relevance


@njit(nogil=True, cache=True)
def _draw_queries(
    world: _World, seed: int, first: int, offsets: Int64s, begin: int, end: int, features: Float32s, relevance: Float32s
) -> None:
    for q in range(begin, end):
        rows = slice(offsets[q], offsets[q + 1])
        _draw_query(world, seed, first + q, features[rows], relevance[rows])
        _normalise_to_grid(features[rows])


@njit(cache=True)
def _normal(word: np.uint64) -> float:
    """Nearly a standard Gaussian number: the sum of the word's four 16-bit parts, scaled."""
    part = np.uint64(0xFFFF)
    total = (word & part) + ((word >> _S16) & part) + ((word >> _S32) & part) + (word >> _S48)
    return (np.float64(total) - _NORMAL_MEAN) / _NORMAL_DEVIATION


@njit(nogil=True, cache=True)
def _draw_query(world: _World, seed: int, query: int, features: Float32s, relevance: Float32s) -> None:
    """Fill in the features, not yet normalised, and the relevance of one query's documents."""
    documents, width = features.shape

    # The query: its type, how relevant its documents are in general, and where they lie in the space of the factors.
    state = start(seed, _SYNTHETIC, query, 0)
    kind = below(state, world.weights.shape[0])
    state = advance(state)
    offset = world.query_spread * _normal(mix(state))
    centre = np.empty(world.factors)
    for k in range(world.factors):
        state = advance(state)
        centre[k] = math.sqrt(world.query_share) * _normal(mix(state))

    factors = np.empty(world.factors)
    for d in range(documents):
        state = start(seed, _SYNTHETIC, query, 1 + d)
        for k in range(world.factors):
            factors[k] = centre[k] + math.sqrt(1 - world.query_share) * _normal(mix(state))
            state = advance(state)

        # Its relevance: the query's offset, noise, the weighted sum of factors and the products of two.
        value = offset + world.noise * _normal(mix(state))
        for k in range(world.weights.shape[1]):
            value += world.weights[kind, k] * factors[k]
        for p in range(world.pairs.shape[0]):
            value += world.pair_weights[p] * factors[world.pairs[p, 0]] * factors[world.pairs[p, 1]]
        relevance[d] = value

        # Its features: what each shows of its factors, put through the feature's own shape.
        for f in range(width):
            state = advance(state)
            shown = (
                world.loadings[f, 0] * factors[world.sources[f, 0]]
                + world.loadings[f, 1] * factors[world.sources[f, 1]]
                + world.loadings[f, 2] * _normal(mix(state))
            )
            if world.sparse[f]:
                shown = max(shown - world.thresholds[f], 0.0)
            if world.shapes[f] == _SATURATED:
                shown = math.tanh(world.steepness[f] * shown)
            elif world.shapes[f] == _HEAVY:
                shown = math.expm1(world.steepness[f] * shown)
            features[d, f] = shown if world.present[kind, f] else 0.0


@njit(nogil=True, cache=True)
def _normalise_to_grid(features: Float32s) -> None:
    """Scale each feature to [0, 1] within the query, rounded to whole multiples of 1 / GRID."""
    documents, width = features.shape
    low, high = features[0].copy(), features[0].copy()
    for d in range(1, documents):
        for f in range(width):
            low[f] = min(low[f], features[d, f])
            high[f] = max(high[f], features[d, f])
    for d in range(documents):
        for f in range(width):
            span = np.float64(high[f]) - np.float64(low[f])
            scaled = (np.float64(features[d, f]) - low[f]) / (span if span > 0 else 1.0)
            features[d, f] = np.rint(scaled * GRID) / GRID


def _grade(relevance: Float32s, thresholds: Float64s, offsets: Int64s) -> Int32s:
    """Grades by thresholds of relevance; a query with only one grade has its best document raised by one.

    If that grade is the highest, its worst document is lowered instead.
    """
    labels = np.searchsorted(thresholds, relevance, side="right").astype(np.int32)
    low = np.minimum.reduceat(labels, offsets[:-1])
    high = np.maximum.reduceat(labels, offsets[:-1])
    for query in np.flatnonzero(low == high):
        values = relevance[offsets[query] : offsets[query + 1]]
        step = 1 if high[query] < thresholds.size else -1
        labels[offsets[query] + np.argmax(step * values)] += step
    return labels
