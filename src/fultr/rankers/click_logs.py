"""Rankers on click logs: the scores that a ranker gives to the documents of a log."""

from __future__ import annotations

import numpy as np

from fultr.clicks.any_log import click_log
from fultr.clicks.feature_names import number_in
from fultr.clicks.fingerprint import fingerprint
from fultr.clicks.impressions import ImpressionLog
from fultr.core.arrays import Float32s, Int64s
from fultr.core.errors import FultrError
from fultr.rankers.plain import scaled_within
from fultr.rankers.ranker import Ranker


def score_pairs(ranker: Ranker, log: ImpressionLog, *, scale: bool = False) -> Float32s:
    """The score of each (query, document) pair of a log, [pairs].

    Features are matched by name, where a log's f7 or feature_7 is also what a ranker without names has as id 7; if the
    log has no names, by their order.

    Args:
        ranker: the ranker, or a fitted `fultr.UnbiasedRanker`.
        log: with features; or what holds one, see `fultr.click_log`.
        scale: scale each feature to [0, 1] over the documents that the log has of a query, as a ranker wants them that
            was trained on such features.

    >>> log = ImpressionLog.from_arrays([1], [[7, 8]], [[0, 1]], features=[[[0.2, 1.0], [0.5, 0.0]]])
    >>> score_pairs(Ranker(np.float32([1, 0]), np.array([1, 2])), log).tolist()
    [0.20000000298023224, 0.5]
    """
    ranker, log = getattr(ranker, "ranker_", ranker), click_log(log)
    if log.features is None:
        raise FultrError("click log: expected features of the documents, for a ranker to score; found none")
    values = log.features[:, _columns(ranker, log)]
    if scale:
        values = scaled_within(np.ascontiguousarray(values), log.query_of_pair)
    elif ranker.normalised and (values.min() < 0 or values.max() > 1):
        raise FultrError(
            "click log: the ranker was trained on features scaled to [0, 1] within each query, found "
            f"{values.min():.3g} to {values.max():.3g}: have them scaled"
        )
    return ranker.plain.scores(np.ascontiguousarray(values))


def trained_on(ranker: Ranker, log: ImpressionLog) -> bool | None:
    """Was a ranker trained on this very log? None if its file does not say on what.

    Such a ranker looks better on the log than it would on new clicks. `fultr train` and `fultr.UnbiasedRanker` keep
    the log's fingerprint with the ranker: queries, and the ranks of their clicks, in whatever layout and order.

    >>> log = ImpressionLog.from_arrays([1], [[7, 8]], [[0, 1]])
    >>> trained_on(Ranker(np.float32([1]), np.array([1]), training={"log_fingerprint": fingerprint(log)}), log)
    True
    """
    ranker, log = getattr(ranker, "ranker_", ranker), click_log(log)
    known = ranker.training.get("log_fingerprint")
    return known == fingerprint(log) if isinstance(known, str) else None


def _columns(ranker: Ranker, log: ImpressionLog) -> Int64s:
    """The log's column of each of the ranker's features."""
    assert log.features is not None
    width, wanted = log.features.shape[1], ranker.feature_ids.size
    if log.feature_names is not None:
        at = {name: i for i, name in enumerate(log.feature_names)}
        numbers = {number: i for name, i in at.items() if (number := number_in(name)) is not None}
        places = [
            at.get(name, numbers.get(id_, -1) if name == str(id_) or number_in(name) == id_ else -1)
            for name, id_ in zip(ranker.feature_names, ranker.feature_ids.tolist(), strict=True)
        ]
        if min(places) >= 0:
            return np.array(places)
        if ranker.named:
            missing = ranker.feature_names[places.index(-1)]
            raise FultrError(f"click log: expected the ranker's feature {missing!r}, found no such column")
    if width != wanted:
        raise FultrError(f"click log: expected the ranker's {wanted} features, found {width}")
    return np.arange(width)
