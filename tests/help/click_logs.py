"""Simulated click logs with known truth, and plain versions of the estimates, to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np

from fultr.clicks.examination.document_em import document_em
from fultr.clicks.examination.harvesting import adjacent_pairs, all_pairs, pair_counts
from fultr.clicks.impressions import ImpressionLog
from fultr.study.click_scenarios import Scenario

POOL = 8  # documents that a query has

CLEAN = Scenario(versions=5)
"""A log that follows the position-based model; what follows are logs that do not, each in one way."""
LEARNT = Scenario(learning=1.0, updates=50)
"""Clicks move documents up."""
LEARNT_ONCE = Scenario(learning=1.0, updates=1, queries=1000)
"""A ranker was replaced by one that had learnt from the clicks on it."""
TRUSTING = Scenario(versions=5, trust=0.4)
"""Users trust high ranks."""
CASCADING = Scenario(versions=5, scans=True, continues=0.6)
"""Users scan down, and stop at four in ten clicks."""
UNEVEN = Scenario(versions=5, contrast=0.5)
"""Users look further down for some queries than for others: the curve is right on average."""


def simulated_log(
    seed: int,
    *,
    examination: np.ndarray[Any, Any],
    queries: int = 50,
    pages: int = 20_000,
    versions: int = 2,
    trust: float = 0.0,
    users: int | None = None,
) -> ImpressionLog:
    """A log of a search engine that ranks well, in several versions, one of which is drawn for each page."""
    return simulated_versions(
        seed, examination=examination, queries=queries, pages=pages, versions=versions, trust=trust, users=users
    )[0]


def simulated_versions(
    seed: int,
    *,
    examination: np.ndarray[Any, Any],
    queries: int,
    pages: int,
    versions: int,
    trust: float = 0.0,
    users: int | None = None,
) -> tuple[ImpressionLog, np.ndarray[Any, Any]]:
    """The log, and at which rank each version has each displayed document, [pages, K, versions]."""
    rng = np.random.default_rng(seed)
    relevance = rng.beta(0.5, 1.5, (queries, POOL))
    quality = relevance + 0.3 * rng.standard_normal((queries, POOL))  # so relevance is confounded with rank
    scores = quality + 0.25 * rng.standard_normal((versions, queries, POOL))
    orders = np.argsort(-scores, axis=2)
    query, version = rng.integers(queries, size=pages), rng.integers(versions, size=pages)
    shown = orders[version, query, : examination.size]
    attraction = relevance[query[:, np.newaxis], shown]
    chance = examination * (attraction + trust * examination * (1 - attraction))
    clicks = (rng.random(shown.shape) < chance).astype(np.uint8)
    who = None if users is None else rng.integers(users, size=pages)
    rank_in = np.argsort(orders, axis=2)[:, query[:, np.newaxis], shown].transpose(1, 2, 0)
    return ImpressionLog.from_arrays(query, shown, clicks, who), rank_in


def random_log(seed: int, queries: int = 6, pages: int = 60, ranks: int = 4) -> ImpressionLog:
    """Pages in random order, some of them short, with many clicks."""
    rng = np.random.default_rng(seed)
    documents = np.array([rng.permutation(ranks + 2)[:ranks] for _ in range(pages)])
    lengths = rng.integers(1, ranks + 1, pages)
    documents[np.arange(ranks) >= lengths[:, np.newaxis]] = -1
    clicks = (rng.random(documents.shape) < 0.5) & (documents >= 0)
    return ImpressionLog.from_arrays(rng.integers(queries, size=pages), documents, clicks.astype(np.uint8))


def plain_counts(log: ImpressionLog) -> dict[tuple[int, int], list[int]]:
    """Impressions and clicks of each (pair, rank)."""
    found: dict[tuple[int, int], list[int]] = {}
    for pairs, clicks in zip(log.documents.tolist(), log.clicks.tolist(), strict=True):
        for rank, (pair, click) in enumerate(zip(pairs, clicks, strict=True)):
            if pair >= 0:
                cell = found.setdefault((pair, rank), [0, 0])
                cell[0] += 1
                cell[1] += click
    return found


def plain_pair_counts(log: ImpressionLog, weighting: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Clicks and impressions of the documents shown at both ranks of a pair, with weights v / n."""
    counts = plain_counts(log)
    clicks, impressions = np.zeros((log.ranks, log.ranks)), np.zeros((log.ranks, log.ranks))
    for (pair, k), (n, c) in counts.items():
        for j in range(log.ranks):
            if j != k and (pair, j) in counts:
                other = counts[pair, j][0]
                v = 1.0 if weighting == "equal" else n * other / (n + other)
                clicks[k, j] += v * c / n
                impressions[k, j] += v
    return clicks, impressions


def plain_em(log: ImpressionLog, prior: tuple[float, float], steps: int) -> np.ndarray[Any, Any]:
    """Examination after so many EM steps from 1 / rank; one page and rank at a time."""
    p = [1 / (k + 1) for k in range(log.ranks)]
    r = [0.5] * log.pairs
    for _ in range(steps):
        examined, shown = [0.0] * log.ranks, [0] * log.ranks
        relevant, seen = [prior[0]] * log.pairs, [sum(prior)] * log.pairs
        for (pair, k), (n, c) in plain_counts(log).items():
            no_click = 1 - p[k] * r[pair]
            examined[k] += c + (n - c) * p[k] * (1 - r[pair]) / no_click
            relevant[pair] += c + (n - c) * r[pair] * (1 - p[k]) / no_click
            shown[k] += n
            seen[pair] += n
        p = [1.0] + [e / n for e, n in zip(examined[1:], shown[1:], strict=True)]
        r = [a / n for a, n in zip(relevant, seen, strict=True)]
    return np.array(p)


def _log(queries: Any, documents: Any, clicks: Any) -> ImpressionLog:
    return ImpressionLog.from_arrays(queries, np.array(documents), np.array(clicks, np.uint8))


BAD_LOGS = {
    "no clicks": _log([1] * 4, [[1, 2, 3], [2, 1, 3], [3, 2, 1], [1, 3, 2]], np.zeros((4, 3))),
    "one impression, no click": _log([1], [[1, 2, 3]], [[0, 0, 0]]),
    "one impression": _log([1], [[1, 2, 3]], [[0, 1, 0]]),
    "one short page": _log([1], [[1, -1, -1]], [[1, 0, 0]]),
    "all clicks at rank 1": _log([1, 1, 2, 2], [[1, 2, 3], [3, 1, 2], [1, 3, 2], [2, 1, 3]], [[1, 0, 0]] * 4),
    "all clicks at the last rank": _log([1, 1, 1], [[1, 2, 3], [2, 3, 1], [3, 1, 2]], [[0, 0, 1]] * 3),
    "everything clicked": _log([1, 1, 2, 2], [[1, 2, 3], [2, 3, 1], [1, 3, 2], [3, 2, 1]], np.ones((4, 3))),
    "everything clicked, always the same": _log([1] * 5, [[1, 2, 3]] * 5, np.ones((5, 3))),
    "one deterministic ranking a query": _log(
        [1, 1, 2, 2], [[1, 2, 3], [1, 2, 3], [4, 5, 6], [4, 5, 6]], [[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 1]]
    ),
    "one query": _log([1] * 3, [[1, 2, 3], [2, 1, 3], [3, 1, 2]], [[1, 0, 0], [1, 1, 0], [0, 1, 1]]),
    "one rank": _log([1, 1, 2], [[1], [2], [1]], [[1], [0], [1]]),
    "one rank, no click": _log([1, 1, 2], [[1], [2], [1]], [[0], [0], [0]]),
    "ranks 3 and 4 apart": _log(
        [1] * 4,
        [[1, 2, 3, 4], [2, 1, 4, 3], [1, 2, 4, 3], [2, 1, 3, 4]],
        [[1, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1]],
    ),
    "no click at rank 1": _log([1] * 3, [[1, 2, 3], [2, 1, 3], [3, 1, 2]], [[0, 1, 0], [0, 1, 1], [0, 1, 1]]),
}
"""Logs that no estimate can do much with: a clear answer or a clear error, never NaN."""

_HARVESTED = {
    "all clicks at rank 1": {"all-pairs", "adjacent"},
    "everything clicked": {"all-pairs", "adjacent"},
    "one query": {"all-pairs"},
    "one rank": {"all-pairs", "adjacent"},
}


def answers(name: str, method: str) -> bool:
    """Does a method answer such a log? EM and regression do whenever there is a click."""
    return bool(BAD_LOGS[name].clicks.any()) and (
        method in ("em", "regression", "auto") or method in _HARVESTED.get(name, ())
    )


def bias_table(logs: int = 40) -> None:
    """Print how far estimates are from the truth, by pages a query (docs/estimating.md)."""
    truth, pages = 1 / np.arange(1.0, 6), 20_000
    print("| pages a query | clicks a clicked document | all-pairs | adjacent | em |\n|---|---|---|---|---|")
    for each in (400, 100, 40, 20, 10, 5, 2, 1):
        found: dict[str, list[np.ndarray[Any, Any]]] = {"all-pairs": [], "adjacent": [], "em": []}
        clicks = []
        for seed in range(logs):
            cells = simulated_log(seed, examination=truth, queries=pages // each).cells()
            clicked = cells.by_pair()[1]
            clicks.append(clicked.sum() / (clicked > 0).sum())
            counts = pair_counts(cells)
            found["all-pairs"].append(all_pairs(counts))
            found["adjacent"].append(adjacent_pairs(counts))
            found["em"].append(document_em(cells).examination)
        columns = []
        for values in found.values():
            ratio = np.array(values)[:, [1, 4]] / truth[[1, 4]]
            mean, error = ratio.mean(axis=0), ratio.std(axis=0, ddof=1) / logs**0.5
            columns.append(", ".join(f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)))
        print(f"| {each} | {np.mean(clicks):.1f} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    bias_table()
