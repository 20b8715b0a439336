"""A round with each model against a round with linear rankers, and training against the same step by other software.

Neural rankers are compared with the same steps in NumPy, a client at a time as they must be made, and in JAX, if it is
installed: a scan over a client's clicks, mapped over clients, gradients by autodiff.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from fultr.cli.bench.speed import clicked_bytes, memory_bandwidth
from fultr.cli.console import say
from fultr.clicks.log import ClickLog, Display, Records
from fultr.clicks.models.position_based import PositionBased, examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.arrays import Float32s, Float64s
from fultr.data.load import load
from fultr.data.ranking import RankingData
from fultr.federated.fedips import Broadcast
from fultr.federated.settings import FedIPS, LocalTraining
from fultr.rankers.mlp import MLP
from fultr.rankers.model import MODELS, Model, ModelSettings, model_named
from fultr.rankers.plain import parts_of
from fultr.rankers.training import training_with
from fultr.study.policy import display, train_policy
from fultr.study.rounds import Simulated, collect
from fultr.study.settings import FreshUsers
from fultr.study.users import attraction, cohorts

_CLIENTS, _TIMES = 2000, 9
_RATE = 0.01
_UNITS = 32  # where neural rankers are compared with other software


def models() -> list[tuple[str, float, str, str]]:
    """Name, value, unit and what is wanted, of each figure."""
    figures = []
    for name in ("synthetic", "synthetic-yahoo"):
        say(f"models: loading {name}")
        train = load(name).train
        shown = display(train, train_policy(train))
        figures += _rounds(name, train, shown)
        figures += _others(name, train, shown)
    return figures


def _rounds(name: str, train: RankingData, shown: Display) -> list[tuple[str, float, str, str]]:
    """Rounds of every model, the clicks of users included, and reading the features once; all threads."""
    click_model = ClickModel()
    users = cohorts(FreshUsers(), train, click_model, _CLIENTS, 0)
    attracted = attraction(train, shown, click_model)
    everyone, rounds = np.arange(_CLIENTS), count()
    reading = clicked_bytes(_clicks(train, shown), shown, train.width) / memory_bandwidth()

    def a_round(model: Model) -> Callable[[], object]:
        algorithm = FedIPS(LocalTraining(_RATE, "softmax"))
        sent = Broadcast(model.initial(), {}, {})
        run = Simulated(algorithm, model, shown, PositionBased(), attracted, users, Sessions(), 0, None)
        return lambda: collect([run], next(rounds), [sent], everyone)

    kinds = {kind: model_named(ModelSettings(kind, linear_rounds=0), train.width) for kind in MODELS}
    seconds = _in_turn({kind: a_round(model) for kind, model in kinds.items()}, time.perf_counter)
    figures = [(f"round of 2,000 clients, linear, {name}", seconds["linear"] * 1e3, "ms", "")]
    for kind, model in kinds.items():
        if kind != "linear":
            figures += [
                (f"  {kind} / linear", seconds[kind] / seconds["linear"], "", ""),
                (f"  {kind}: weights / features", model.size / train.width, "", ""),
                (f"  {kind}: a client's update", model.update_size * 4 / 1000, "kB", ""),
            ]
        figures.append((f"  {kind} / reading the clicked queries' features once", seconds[kind] / reading, "", ""))
    return figures


def _others(name: str, train: RankingData, shown: Display) -> list[tuple[str, float, str, str]]:
    """Training of neural rankers alone against other software that makes the same steps, in CPU time of all threads."""
    log, model = _clicks(train, shown), MLP(train.width, _UNITS, 1)
    weights = model.initial(0)
    weights[-_UNITS:] = 0.1  # of the output: else hidden layers would not change in the first step
    training = training_with("softmax", "rank", _RATE, 1)
    ours, records = np.zeros((1, model.size)), Records(log, shown)

    def own() -> None:
        ours[:] = 0
        model.add_updates(records, log.clicks.astype(np.float64), weights, training, ours, np.zeros((1, 1)))

    clicks = _steps(log, shown)
    work: dict[str, Callable[[], object]] = {"fultr": own}
    found: dict[str, Float64s] = {}
    for other, makes in (("NumPy", _numpy_update), ("JAX", _jax_update)):
        update = makes(model, weights, shown, clicks)
        if update is None:
            say(f"models: {other} is not installed")
            continue
        own()
        found[other] = update()
        work[other] = update
    seconds = _in_turn(work, time.process_time, 3)
    figures = [(f"training of 2,000 clients, {_UNITS} units, {name}", seconds["fultr"] * 1e3, "ms of CPU time", "")]
    for other, theirs in found.items():
        difference = float(np.abs(theirs - ours[0]).max() / np.abs(ours).max())
        figures.append((f"  {other} / fultr", seconds[other] / seconds["fultr"], "", "above 1"))
        figures.append((f"  {other}: largest difference of updates, relative", difference, "", "rounding"))
    return figures


def _clicks(train: RankingData, shown: Display) -> ClickLog:
    """A cohort's."""
    click_model, everyone = ClickModel(), np.arange(_CLIENTS)
    users = cohorts(FreshUsers(), train, click_model, _CLIENTS, 0)
    examined = examination(users.severities(0, everyone), shown.ranks)
    attracted = attraction(train, shown, click_model)
    return simulate_clicks(PositionBased(), attracted, examined, everyone, sessions=Sessions(), seed=0, round_=0)


def _steps(log: ClickLog, shown: Display) -> list[list[tuple[int, int, int]]]:
    """Of each client, in order: the rows of each clicked query, first and end, and the clicked one among them."""
    steps: list[list[tuple[int, int, int]]] = []
    for u in range(log.clients):
        steps.append([])
        for i in range(log.offsets[u], log.offsets[u + 1]):
            q = log.queries[i]
            first, end = int(shown.offsets[q]), int(shown.offsets[q + 1])
            steps[u] += [(first, end, int(shown.shown[q, rank]) - first) for rank in np.flatnonzero(log.clicks[i])]
    return steps


def _in_turn(
    work: dict[str, Callable[[], object]], clock: Callable[[], float], times: int = _TIMES
) -> dict[str, float]:
    """Median seconds of each by a clock, in turn, as the machine's speed varies; once before that."""

    def seconds(one: Callable[[], object]) -> float:
        begun = clock()
        one()
        return clock() - begun

    for one in work.values():
        one()
    taken = [[seconds(one) for one in work.values()] for _ in range(times)]
    return dict(zip(work, np.median(taken, axis=0).tolist(), strict=True))


def _numpy_update(
    model: MLP, weights: Float32s, shown: Display, clicks: list[list[tuple[int, int, int]]]
) -> Callable[[], Float64s]:
    """The sum of the clients' updates, by matrix products of NumPy."""

    def update() -> Float64s:
        total = np.zeros(model.size)
        for steps in clicks:
            local = weights.copy()
            w, hidden, bias, output = parts_of(model.plain, local).values()
            for first, end, clicked in steps:
                x = shown.features[first:end, : model.features]
                units = np.maximum(0, x @ hidden.T + bias)
                scores = x @ w + units @ output
                shares = np.exp(scores - scores.max())
                pulls = -shares / shares.sum()
                pulls[clicked] += 1
                pulls *= np.float32(_RATE / np.log(2))
                changes = pulls[:, np.newaxis] * output * (units > 0)
                output += pulls @ units
                w += pulls @ x
                hidden += changes.T @ x
                bias += changes.sum(axis=0)
            total += local - weights
        return total

    return update


def _jax_update(
    model: MLP, weights: Float32s, shown: Display, clicks: list[list[tuple[int, int, int]]]
) -> Callable[[], Float64s] | None:
    """The same by JAX; None if it is not installed. Shorter logs and lists are padded: a step of credit 0 is none."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return None
    most = max(map(len, clicks))
    rows = np.zeros((len(clicks), most, shown.ranks), np.int32)
    there, chosen = np.zeros(rows.shape, bool), np.zeros(rows.shape[:2], np.int32)
    there[..., 0] = True
    credit = np.zeros(rows.shape[:2], np.float32)
    for u, steps in enumerate(clicks):
        for i, (first, end, clicked) in enumerate(steps):
            rows[u, i, : end - first] = np.arange(first, end)
            there[u, i, : end - first] = True
            chosen[u, i], credit[u, i] = clicked, 1
    plain, features = model.plain, shown.features[:, : model.features]

    def loss(w: Any, x: Any, among: Any, clicked: Any) -> Any:
        part = parts_of(plain, w)
        scores = x @ part["weights"] + jax.nn.relu(x @ part["hidden"].T + part["hidden_bias"]) @ part["output"]
        return -jax.nn.log_softmax(jnp.where(among, scores, -jnp.inf))[clicked] / jnp.log(2)

    def client(given: Any, table: Any, *steps: Any) -> Any:
        def step(w: Any, one: Any) -> Any:
            row, among, clicked, worth = one
            return w - _RATE * worth * jax.grad(loss)(w, table[row], among, clicked), None

        return jax.lax.scan(step, given, steps)[0] - given

    everyone = jax.jit(lambda w, table, *steps: jax.vmap(client, (None, None, 0, 0, 0, 0))(w, table, *steps).sum(0))
    given = [jnp.asarray(a) for a in (weights, features, rows, there, chosen, credit)]
    return lambda: np.asarray(everyone(*given), np.float64)
