"""Boosted trees from pooled records, document by document, to compare the federated ones with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from plain import LOSSES

Array = np.ndarray[Any, Any]


class Tree(NamedTuple):
    """A feature and a threshold per level, and a value per leaf."""

    splits: list[tuple[int, float]]
    values: list[float]


class Document(NamedTuple):
    """A displayed document: its features, gradient and curvature."""

    x: Array
    g: float
    h: float


def leaf_of(x: Array, splits: list[tuple[int, float]]) -> int:
    """The answers to the questions, as bits."""
    leaf = 0
    for feature, threshold in splits:
        leaf = 2 * leaf + int(x[feature] > threshold)
    return leaf


def score(x: Array, linear: Array, trees: list[Tree]) -> float:
    """What a ranker gives a document."""
    return float(x.astype(np.float64) @ linear) + sum(tree.values[leaf_of(x, tree.splits)] for tree in trees)


def documents(
    lists: list[tuple[Array, list[tuple[int, float]]]], linear: Array, trees: list[Tree], loss: str, limit: float
) -> list[Document]:
    """Gradient and curvature of everything displayed: of each impression the features, and (place, credit) pairs."""
    found = []
    for features, credits in lists:
        scores = np.array([score(x, linear, trees) for x in features])
        g, h = np.zeros(len(features)), np.zeros(len(features))
        for place, credit in credits:
            slopes = LOSSES[loss][1](scores[place] - scores, place)
            pulls = -slopes
            pulls[place] += slopes.sum()
            g += credit * pulls
            h += np.abs(credit * pulls)
        scale = min(1.0, limit / h.max()) if h.any() else 1.0
        found += [Document(x, scale * one, scale * other) for x, one, other in zip(features, g, h, strict=True)]
    return found


def _step(part: list[Document], total: float, penalty: float, least: float) -> tuple[float, float]:
    """A leaf's Newton step, and what it gains."""
    g, h = sum(d.g for d in part), sum(d.h for d in part)
    if h < least * total or h == 0:
        return 0.0, 0.0
    return g / (h + penalty * total), g * g / (h + penalty * total)


def fitted(
    given: list[Document], splits: list[tuple[int, float]], shrinkage: float, penalty: float, least: float
) -> Tree:
    """A tree with these splits."""
    total = sum(d.h for d in given)
    parts: list[list[Document]] = [[] for _ in range(2 ** len(splits))]
    for d in given:
        parts[leaf_of(d.x, splits)].append(d)
    return Tree(splits, [shrinkage * _step(part, total, penalty, least)[0] for part in parts])


def best_split(
    given: list[Document],
    splits: list[tuple[int, float]],
    columns: list[int],
    bounds: list[float],
    penalty: float,
    least: float,
) -> tuple[int, float]:
    """The split of the next level that gains most, every candidate tried on all documents."""
    total = sum(d.h for d in given)

    def gain(split: tuple[int, float]) -> float:
        parts: list[list[Document]] = [[] for _ in range(2 ** (len(splits) + 1))]
        for d in given:
            parts[leaf_of(d.x, [*splits, split])].append(d)
        return sum(_step(part, total, penalty, least)[1] for part in parts)

    return max(((column, bound) for column in columns for bound in bounds), key=gain)
