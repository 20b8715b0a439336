"""Bias and variance of every kind of credit under every click model, where the truth is known.

`python -m fultr.study.credit_accuracy` prints the tables of docs/learning-more.md; it takes some minutes.

What credit means to a ranker is a contrast: how much more a relevant document gets than another that is displayed. So
displayed documents are sorted into cells, by rank and by whether they are relevant, and the mean credit of the cells is
compared with a + b r, r being 1 for relevant documents and 0 for others, with the a and b that fit best: these change
the scale of training, not what is learnt. The bias is how far the means are from that (root of the mean square over
cells, less what chance adds), the noise is the standard deviation of one document's credit about its cell's mean, both
as shares of b.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from fultr.clicks.log import Records
from fultr.clicks.models import CLICK_MODELS
from fultr.clicks.models.model import click_model_of
from fultr.clicks.models.position_based import examination
from fultr.clicks.sessions import simulate_clicks
from fultr.core.arrays import Bools, Float64s
from fultr.core.threads import default_threads
from fultr.data.load import load
from fultr.data.ranking import Splits
from fultr.federated.credit import CREDITS
from fultr.federated.credit.given import Given
from fultr.federated.fedips import Server, broadcast, client_round, nothing, server_round
from fultr.federated.settings import Estimator
from fultr.rankers.model import model_named
from fultr.study.engine import each_finished
from fultr.study.policy import display, train_policy
from fultr.study.settings import FreshUsers, RunSettings
from fultr.study.users import attraction, cohorts

DATA = "synthetic"
TRUST = 0.5
USERS: dict[str, Any] = {"gamma": 1.0, "continues": 0.5, "trust": TRUST, "contrast": 0.5, "clients": 500}
CASES: dict[str, dict[str, Any]] = {
    "none": {"credit": "none"},
    "ips": {"credit": "ips"},
    "ips, clip of the last rank": {"clip_rule": "last-rank"},
    "ips, effective clip": {"clip_rule": "effective"},
    "self-normalised": {"credit": "self-normalised"},
    "affine": {"credit": "affine"},
    "affine, constants by rank": {"credit": "affine", "credit_other": [0.1 + 0.9 * TRUST / r for r in range(1, 6)]},
    "ips, shrunk": {"propensity": "shrunk"},
    "affine, estimated": {"credit": "affine", "propensity": "trust"},
    "doubly-robust, shrunk": {"credit": "doubly-robust", "propensity": "shrunk", "clip_rule": "last-rank"},
}
_FIRST, _MEASURED = 40, 40  # rounds that estimates and clips are learnt in, and those that are then measured


@dataclass(frozen=True)
class Errors:
    """Of a kind of credit, as shares of what a relevant document gets more than another.

    Attributes:
        bias: how far the means of cells are from what relevance alone makes of them.
        chance: what chance adds to the bias, before it is taken off.
        noise: standard deviation of one document's credit.
    """

    bias: float
    chance: float
    noise: float


def errors_of(cells: Float64s) -> Errors:
    """Bias and noise, from sums over the documents of each cell.

    Args:
        cells: [3, 2, K] how many documents, and the sums of their credit and of its square; the second axis is
            relevance.

    >>> found = errors_of(np.array([[[50.0, 50.0], [50.0, 50.0]], [[0.0, 0.0], [50.0, 100.0]], [[0, 0], [50, 200]]]))
    >>> round(found.bias, 4), found.noise  # means 0, 0, 1 and 2: b = 1.5, and the latter are .5 from it
    (0.2357, 0.0)
    """
    count, total, squares = cells
    means = total / count
    variances = np.maximum(squares / count - means**2, 0)
    fitted = means.mean(axis=1, keepdims=True)  # a, and a + b: the means over ranks
    gain = float(fitted[1, 0] - fitted[0, 0])
    chance = (variances / count).mean()
    far = ((means - fitted) ** 2).mean() - chance
    return Errors(*(float(np.sqrt(max(x, 0)) / abs(gain)) for x in (far, chance, variances.mean())))


def credit_errors(
    settings: RunSettings, data: Splits, seed: int, first: int = _FIRST, measured: int = _MEASURED
) -> Errors:
    """Bias and noise of the credit that settings ask for, under their click model.

    >>> small = RunSettings.of({"clients": 200})
    >>> credit_errors(small, load("synthetic", cache=False), seed=0, first=1, measured=2).noise > 1
    True
    """
    train, algorithm, users = data.train, settings.fedips, settings.click_model
    shown = display(
        train, train_policy(train, settings.policy, seed), displayed=settings.displayed, seed=seed, threads=1
    )
    plain = replace(users, relevant_click=1.0, other_click=0.0, click_model="position-based")
    relevant = attraction(train, shown, plain) > 0
    attracted, clicks = attraction(train, shown, users), click_model_of(users, train.query_ids)
    who = cohorts(FreshUsers(), train, users, settings.clients, seed)
    model = model_named(algorithm.model, train.width)
    server = Server.initial(algorithm, model, model.initial(), settings.displayed)
    cells = np.zeros((3, 2, settings.displayed))
    learns = isinstance(algorithm.propensity, Estimator) or algorithm.training.clip_rule != "given"
    for t in range(0 if learns else first, first + measured):
        clients = who.cohort(t)
        base = examination(who.severities(t, clients), settings.displayed)
        log = simulate_clicks(clicks, attracted, base, clients, sessions=settings.sessions, seed=seed, round_=t)
        records, sent = Records(log, shown), broadcast(algorithm, server)
        replies = nothing(algorithm, model, settings.displayed)
        known = clicks.examination_given_clicks(base, log)
        used = client_round(algorithm, model, sent, records, replies, known=known)
        if t >= first:
            worth = CREDITS[algorithm.training.credit].credit(
                records, used, Given.of(algorithm, sent.estimation, sent.credit)
            )
            cells += _cells(worth, relevant[log.queries], shown.shown[log.queries] >= 0)
        server = server_round(algorithm, model, server, replies, clients.size)
    return errors_of(cells)


def _cells(worth: Float64s, relevant: Bools, there: Bools) -> Float64s:
    sums = [
        [np.where(kind & there, value, 0.0).sum(axis=0) for kind in (~relevant, relevant)]
        for value in (np.ones_like(worth), worth, worth**2)
    ]
    return np.array(sums)


@lru_cache(maxsize=1)
def _data() -> Splits:
    return load(DATA)


def _of(settings: RunSettings) -> Errors:
    return credit_errors(settings, _data(), seed=0)


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def tables() -> Iterator[str]:
    """Bias and noise of each credit, a row each, and a column for each click model."""
    grid = [
        RunSettings.of({**USERS, **case, "client_rate": 1e-6, "click_model": users})
        for case in CASES.values()
        for users in CLICK_MODELS
    ]
    found: dict[int, Errors] = {}
    for i, errors, _ in each_finished(_of, grid, workers=default_threads()):
        found[i] = errors
    yield _row(["credit", *CLICK_MODELS])
    yield "|---" * (1 + len(CLICK_MODELS)) + "|"
    for i, name in enumerate(CASES):
        of = [found[i * len(CLICK_MODELS) + j] for j in range(len(CLICK_MODELS))]
        yield _row([name, *(f"{errors.bias:.2f} / {errors.noise:.1f}" for errors in of)])
    yield ""
    yield f"Chance adds up to {max(errors.chance for errors in found.values()):.3f} to a bias before it is taken off."


def main() -> None:
    """Print the table."""
    for line in tables():
        print(line, flush=True)


if __name__ == "__main__":
    import_module("fultr.study.credit_accuracy").main()  # under its own name, which the processes of the runs know
