"""Click logs of search engines and users of which the truth is known, to see what is said of an estimate from them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fultr.clicks.impressions import ImpressionLog
from fultr.core.arrays import Float64s


class Simulated(NamedTuple):
    """A log, and the share of its pages on which each rank was examined, relative to rank 1."""

    log: ImpressionLog
    truth: Float64s


@dataclass(frozen=True)
class Scenario:
    """A search engine that ranks well, and its users.

    Attributes:
        pages: how many.
        queries: how many.
        skew: query number i is asked in proportion to i ** -skew: with 2, one query has 62% of the pages.
        versions: of the ranker; one is drawn for each page.
        in_turn: each version is used for one part of the time instead.
        ranks: documents on a page.
        pool: documents of a query.
        gamma: examination is (1 / rank) ** gamma.
        contrast: half of the queries have (1 - contrast) gamma instead, half (1 + contrast) gamma.
        patience: standard deviation of the logarithm of a page's own factor on gamma: users differ.
        trust: at rank 1; users click what they examine at rank k with probability trust / k whatever it is.
        slips: probability of a click on any result, examined or not.
        scans: users examine all ranks down to the last, instead of each rank by itself.
        continues: how likely users who scan continue after a click, relative to without one.
        learning: how much a document's click rate so far counts in its score, beside a noisy quality; the ranker then
            has one version, which learns.
        updates: how many times it learns.
        delay: how many updates later a click first counts.
        users: how many there are; 0: nobody knows who searches. If any, the ranker learns for each of them.
        taste: standard deviation of the logarithm of a user's own factor on a document's relevance.
    """

    pages: int = 20_000
    queries: int = 100
    skew: float = 0.0
    versions: int = 3
    in_turn: bool = False
    ranks: int = 5
    pool: int = 8
    gamma: float = 1.0
    contrast: float = 0.0
    patience: float = 0.0
    trust: float = 0.0
    slips: float = 0.0
    scans: bool = False
    continues: float = 1.0
    learning: float = 0.0
    updates: int = 0
    delay: int = 0
    users: int = 0
    taste: float = 0.0

    def drawn(self, seed: int) -> Simulated:
        """One log.

        >>> log, truth = Scenario(pages=100, continues=0.0, scans=True).drawn(0)
        >>> log.documents.shape, int(log.clicks.sum(axis=1).max()), float(truth[0])
        ((100, 5), 1, 1.0)
        """
        rng = np.random.default_rng(seed)
        relevance = rng.beta(0.5, 1.5, (self.queries, self.pool))
        quality = relevance + 0.3 * rng.standard_normal(relevance.shape)  # so relevance is confounded with rank
        scores = quality + 0.25 * rng.standard_normal((self.versions, *relevance.shape))
        asked = np.arange(1.0, self.queries + 1) ** -self.skew
        query = rng.choice(self.queries, size=self.pages, p=asked / asked.sum())
        version = rng.integers(self.versions, size=self.pages)
        if self.in_turn:
            version = np.arange(self.pages) * self.versions // self.pages
        kind = np.where(rng.random(self.queries) < 0.5, 1 - self.contrast, 1 + self.contrast)
        power = self.gamma * kind[query] * np.exp(self.patience * rng.standard_normal(self.pages))
        examination = (1 / np.arange(1.0, self.ranks + 1)) ** power[:, np.newaxis]
        documents = np.empty((self.pages, self.ranks), np.int64)
        clicks = np.empty((self.pages, self.ranks), bool)
        examined = np.empty((self.pages, self.ranks), bool)
        who = rng.integers(self.users, size=self.pages) if self.users else np.zeros(self.pages, np.int64)
        if self.users:
            own = np.exp(self.taste * rng.standard_normal((self.users, *relevance.shape)) - self.taste**2 / 2)
            relevance = np.minimum(relevance * own, 1.0)
        relevance = np.broadcast_to(relevance, (max(self.users, 1), *quality.shape))
        made, shown = np.zeros(relevance.shape), np.zeros(relevance.shape)
        if self.learning:
            scores, version = np.broadcast_to(quality, relevance.shape), who
        ready = deque([scores], maxlen=self.delay + 1)  # rankers; the oldest is in use
        for part in np.array_split(np.arange(self.pages), self.updates + 1):
            if self.learning:
                ready.append(quality + self.learning * (made + 0.5) / (shown + 2.5))
            order = np.argsort(-ready[0], axis=2)[version[part], query[part], : self.ranks]
            attraction = relevance[who[part, np.newaxis], query[part, np.newaxis], order]
            trusted = self.trust / np.arange(1.0, self.ranks + 1)
            clicks[part], examined[part] = self._clicked(rng, examination[part], trusted + (1 - trusted) * attraction)
            documents[part] = order
            places = (who[part, np.newaxis], query[part, np.newaxis], order)
            np.add.at(made, places, clicks[part])
            np.add.at(shown, places, 1)
        log = ImpressionLog.from_arrays(query, documents, clicks, who if self.users else None)
        return Simulated(log, examined.mean(axis=0) / examined[:, 0].mean())

    def _clicked(
        self, rng: np.random.Generator, examination: Float64s, attraction: Float64s
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which documents were clicked, and which were examined."""
        drawn = rng.random(attraction.shape)
        if self.scans:
            drawn = np.broadcast_to(drawn[:, :1], drawn.shape)  # one patience for the page
        tempted = rng.random(attraction.shape) < attraction
        clicked, examined = np.empty(attraction.shape, bool), np.empty(attraction.shape, bool)
        reach = np.ones(len(attraction))
        for k in range(self.ranks):
            examined[:, k] = drawn[:, k] < reach * examination[:, k]
            clicked[:, k] = examined[:, k] & tempted[:, k]
            reach = np.where(clicked[:, k], self.continues * reach, reach)
        if self.slips:
            clicked |= rng.random(attraction.shape) < self.slips
        return clicked, examined
