"""From a click log to a ranker: what `UnbiasedRanker` and `fultr train` have in common."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fultr.clicks.canonical import canonical
from fultr.clicks.diagnosis import doubts
from fultr.clicks.examination.methods import METHODS
from fultr.clicks.feature_names import numbers_in
from fultr.clicks.fingerprint import fingerprint
from fultr.clicks.impressions import ImpressionLog
from fultr.core.arrays import Float64s, Int64s
from fultr.core.checks import check_choice, check_number, check_seed
from fultr.core.errors import FultrError
from fultr.federated.settings import Estimator
from fultr.learn.as_federation import chosen_algorithm, federated_weights
from fultr.learn.pooled import Pooled
from fultr.learn.propensities import examination_for
from fultr.learn.report import Report
from fultr.learn.training import Fitted, fit_linear, fit_mlp, fit_trees, folds_of, telling_queries
from fultr.rankers.ranker import WITHOUT_IDS, Ranker

FITS = {"trees": fit_trees, "linear": fit_linear, "mlp": fit_mlp}
"""What can be trained, by name; the best first."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A ranker, the examination of each rank that clicks were corrected by, and how both came about.

    Attributes:
        ranker: with the features in the order of their ids.
        examination: [K].
        report: in words.
        fitted: how settings were chosen; None for a federation.
        columns: the log's column of each of the ranker's features.
    """

    ranker: Ranker
    examination: Float64s
    report: Report
    fitted: Fitted | None
    columns: Int64s


def train_on_log(
    log: ImpressionLog,
    *,
    model: str = "trees",
    propensity: Any = "auto",
    normalised: bool = False,
    folds: int = 5,
    seed: int = 0,
    threads: int | None = None,
    federated: bool = False,
    ordered: bool = True,
) -> Trained:
    """Train a ranker on a click log with features.

    Features called f7 or feature_7 throughout have the ids that their names say; without names, ids are 1, 2, ...;
    under other names they have none, and the ranker scores no LETOR data.

    Args:
        log: the click log.
        model: "trees", "linear" or "mlp".
        propensity: see `examination_for`.
        normalised: are the log's features scaled to [0, 1] within each query? Others are refused then.
        folds: parts into which queries are cut, each of which is held out in turn.
        seed: of folds and of whatever is drawn.
        threads: how many to use; all cores if None.
        federated: train as the devices of the log's users would together, see `fultr.learn.as_federation`.
        ordered: are the pages of each query in the order in which they happened? Only the check of the propensities
            asks, see `fultr.diagnose`.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.random((500, 3, 2))
    >>> clicks = rng.random((500, 3)) < x[:, :, 0] / [1, 2, 3]
    >>> documents = np.arange(1500).reshape(500, 3)
    >>> log = ImpressionLog.from_arrays(np.arange(500), documents, clicks, features=x)
    >>> trained = train_on_log(log, model="linear")
    >>> trained.ranker, trained.report.propensity
    (Ranker(linear, 2 features), 'regression')
    """
    check_choice("model", model, tuple(FITS))
    check_number("folds", folds, least=2, most=100, whole=True)
    check_seed(seed)
    log, columns, ids, without_ids = _by_id(canonical(log))
    if not log.clicks.any():
        raise FultrError("click log: no document was clicked, so there is nothing to train on; collect more clicks")
    if normalised:
        _check_normalised(log)
    if federated:
        trained = _trained_as_federation(log, model, propensity, normalised, seed)
    else:
        trained = _trained(log, model, propensity, normalised, folds, seed, threads, ordered)
    given = trained.ranker
    names = tuple(log.feature_names or ())
    ranker = replace(given, feature_ids=ids, feature_names=names, training={**given.training, **without_ids})
    return replace(trained, ranker=ranker, columns=columns)


def _by_id(log: ImpressionLog) -> tuple[ImpressionLog, Int64s, Int64s, dict[str, bool]]:
    """A log with features in the order of their ids, the columns that these were, the ids, and if there are none."""
    if log.features is None:
        raise FultrError("click log: expected features of the documents, to train on; found none")
    columns = np.arange(log.features.shape[1])
    if log.feature_names is None:
        return log, columns, columns + 1, {}
    ids = numbers_in(log.feature_names)
    if ids is None:
        return log, columns, columns + 1, {WITHOUT_IDS: True}
    order = np.argsort(ids)
    if not np.array_equal(order, columns):
        features = np.ascontiguousarray(log.features[:, order])
        log = replace(log, features=features, feature_names=tuple(log.feature_names[i] for i in order))
    return log, order, ids[order], {}


def _check_normalised(log: ImpressionLog) -> None:
    """Refuse features that cannot have been scaled to [0, 1] within each query."""
    assert log.features is not None
    bad = np.argwhere((log.features < 0) | (log.features > 1))
    if bad.size:
        pair, column = bad[0]
        name = log.feature_names[column] if log.feature_names else column + 1
        raise FultrError(
            "click log: expected features that are scaled to [0, 1] within each query, as it is said that they are; "
            f"found {log.features[pair, column]:.6g} in feature {name}"
        )


def _trained(
    log: ImpressionLog,
    model: str,
    propensity: Any,
    normalised: bool,
    folds: int,
    seed: int,
    threads: int | None,
    ordered: bool,
) -> Trained:
    """Train on the whole log."""
    examination, how, why = examination_for(log, propensity)
    pooled = Pooled.of(log, examination)
    parts = folds_of(pooled, folds, seed)
    fitted = FITS[model](pooled, parts, threads, seed)
    held = parts[0][1].size > 0
    found = doubts(log, how, examination, ordered=ordered) if how in METHODS else ()
    report = Report(
        rows=int(log.shown.sum()),
        impressions=log.impressions,
        queries=int(np.unique(log.queries).size),
        pairs=log.pairs,
        users=None if log.users is None else int(np.unique(log.users).size),
        clicks=int(log.clicks.sum()),
        propensity=how,
        why=why,
        trust=(found[0].answer if found else "trust") if how in METHODS else None,
        doubts=tuple(one.reason for one in found if one.answer != "trust"),
        examination=tuple(examination.tolist()),
        model=model,
        chosen=fitted.chosen,
        folds=len(parts) if held else 0,
        held_out=None if fitted.held_out is None else (fitted.held_out[0] - fitted.held_out[1]) / math.log(2),
        notes=() if held else (_why_none_is_held_out(pooled),),
    )
    training = {
        "estimator": "UnbiasedRanker",
        "model": model,
        "propensity": how,
        "examination": list(report.examination),
        "clicks": report.clicks,
        "impressions": report.impressions,
        "log_fingerprint": fingerprint(log),
        "chosen": fitted.chosen,
        "held_out_bits": report.held_out,
        "seed": seed,
    }
    columns = np.arange(pooled.features.shape[1])
    ranker = Ranker(fitted.weights, columns + 1, normalised, training, fitted.model)
    return Trained(ranker, examination, report, fitted, columns)


def _why_none_is_held_out(pooled: Pooled) -> str:
    if telling_queries(pooled).size:
        return "There are too few queries with clicks on one of several documents to hold any out."
    return "No query with clicks has several documents, so clicks told none from others: nothing was learnt from them."


def _trained_as_federation(log: ImpressionLog, model: str, propensity: Any, normalised: bool, seed: int) -> Trained:
    """Train as the devices of the log's users would, with what held-out impressions say is best."""
    assert log.features is not None
    algorithm, rounds, judged = chosen_algorithm(log, model, propensity, seed)
    weights, examination = federated_weights(log, algorithm, rounds, seed)
    clients = 1 if log.users is None else int(np.unique(log.users).size)
    source = algorithm.propensity
    how = source.kind if isinstance(source, Estimator) else source if isinstance(source, str) else "given"
    rate = algorithm.training.rate_for(log.features.shape[1])
    clip = algorithm.training.clip_rule if algorithm.training.clip_rule != "given" else algorithm.training.clip
    report = Report(
        rows=int(log.shown.sum()),
        impressions=log.impressions,
        queries=int(np.unique(log.queries).size),
        pairs=log.pairs,
        users=None if log.users is None else clients,
        clicks=int(log.clicks.sum()),
        propensity=how,
        why="As on devices: estimated in the rounds of training." if isinstance(source, Estimator) else "As given.",
        examination=tuple(examination.tolist()),
        model=algorithm.model.kind,
        chosen={"rounds": rounds, "client rate": rate},
        folds=0,
        held_out=None,
        notes=(
            f"Trained as {clients} clients of a federation; clip: {clip}.",
            f"Held-out clicks (a fifth of the impressions): DCG per relevant document {judged:.4f}.",
        ),
    )
    training = {
        "estimator": "UnbiasedRanker, federated",
        "algorithm": asdict(algorithm),
        "rounds": rounds,
        "clients": clients,
        "clicks": report.clicks,
        "impressions": report.impressions,
        "log_fingerprint": fingerprint(log),
        "seed": seed,
    }
    columns = np.arange(log.features.shape[1])
    ranker = Ranker(weights, columns + 1, normalised, training, algorithm.model)
    return Trained(ranker, examination, report, None, columns)
