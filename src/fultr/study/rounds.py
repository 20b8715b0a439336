"""A round of a simulation: users click, clients train on their clicks, and what they send is added up.

What clients and server do is `fultr.federated.fedips`; here is where their records come from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fultr.clicks.log import ClickLog, Display, Records
from fultr.clicks.models.model import Model as ClickModel
from fultr.clicks.models.position_based import examination
from fultr.clicks.sessions import check_queries, drawn_queries, simulate_clicks
from fultr.clicks.settings import Sessions
from fultr.core.arrays import Float32s, Float64s, Int64s
from fultr.core.threads import run_chunks
from fultr.federated.aggregate import parts_of
from fultr.federated.fedips import Broadcast, Server, broadcast, client_round, nothing, server_round
from fultr.federated.privacy.stage import Sums
from fultr.federated.settings import FedIPS
from fultr.rankers.model import Model
from fultr.study.adversaries import adversarial, poison
from fultr.study.exploration import online_sums
from fultr.study.seeded import SeededRandomness
from fultr.study.settings import Adversaries, Showing
from fultr.study.shown import Shown
from fultr.study.sums import secure_total, survivors
from fultr.study.users import Cohorts, attraction

_BLOCK = 128  # clients whose clicks are held at a time, by each thread


@dataclass(frozen=True, eq=False)
class Simulated:
    """What stays the same from round to round.

    `evidence` [users, numbers] is what the devices of a finite population remember of earlier rounds; it changes.
    `shown` is what `display` and `attraction` come from, and `before` the quality of what the first logging policy
    displays, [versions x queries]; without them nobody asks how good it is, and there is no exploration.
    """

    algorithm: FedIPS
    model: Model
    display: Display
    click_model: ClickModel
    attraction: Float64s
    users: Cohorts
    sessions: Sessions
    seed: int
    threads: int | None
    evidence: Float32s | None = None
    adversaries: Adversaries | None = None
    showing: Showing = Showing()
    shown: Shown | None = None
    before: Float64s | None = None
    secure_sums: bool = False
    dropouts: float = 0.0

    def showing_now(self, shown: Shown) -> Simulated:
        """The same with something else displayed."""
        return replace(self, shown=shown, display=shown.display, attraction=shown.attraction)


class Watched(NamedTuple):
    """What was watched in a round, as sums over its impressions: see `weighed` and `online_sums`."""

    weighed: Float64s
    online: Float64s


def run_round(run: Simulated, t: int, server: Server, *, watch: bool = False) -> tuple[Server, Watched]:
    """Round t: Algorithm 1, lines 2 to 11; returns what the server knows after it, and what was watched."""
    cohort = run.users.cohort(t)  # line 2
    sent = broadcast(run.algorithm, server)  # line 3
    replies, watched = collect(run, t, sent, cohort, watch=watch)  # lines 4 to 10
    random, expected, privacy = SeededRandomness(run.seed), run.users.expected, run.algorithm.privacy
    if run.secure_sums:
        there = survivors(run.dropouts, run.seed, t, cohort, privacy)
        replies = secure_total(run.algorithm.stage, replies, there, run.threads)
        expected -= 0 if privacy else int((~there).sum())  # with privacy, who replied must not show
    after = server_round(  # line 11
        run.algorithm, run.model, server, replies, expected, random, summed=run.secure_sums
    )
    return after, watched


def collect(run: Simulated, t: int, sent: Broadcast, cohort: Int64s, *, watch: bool = False) -> tuple[Sums, Watched]:
    """Each client's clicks and local training: what they send, each in a row if that is needed, else by parts.

    Args:
        run: what stays the same.
        t: the round.
        sent: what the server broadcast.
        cohort: the clients, by number.
        watch: tell what clicks were divided by, and how good what was displayed is.
    """
    parts = parts_of(cohort.size)
    robust = run.algorithm.aggregation.aggregation != "mean"
    singly = run.secure_sums or run.adversaries is not None or robust
    rows = cohort.size if singly else len(parts)
    replies = nothing(run.algorithm, run.model, run.display.ranks, rows)
    watched, online = np.zeros((len(parts), 5, run.display.ranks)), np.zeros((len(parts), 3))
    needed = watch or run.algorithm.propensity == "known"
    random, privacy = SeededRandomness(run.seed), run.algorithm.privacy
    noised = privacy is not None and privacy.mode == "distributed"

    def work(i: int) -> None:
        begin, end = parts[i]
        for block in range(begin, end, _BLOCK):
            until = min(block + _BLOCK, end)
            clients, own = cohort[block:until], slice(block, until) if singly else slice(i, i + 1)
            total = {name: array[own] for name, array in replies.items()}
            base, records, drawn = clicked(run, t, clients)
            true = run.click_model.examination_given_clicks(base, records.log) if needed else None
            remembered = None if run.evidence is None else run.evidence[clients]
            draws = [random.client(t, client) for client in clients.tolist()] if noised else None
            used = client_round(
                run.algorithm, run.model, sent, records, total, known=true, evidence=remembered, draws=draws
            )
            if run.evidence is not None and remembered is not None:
                run.evidence[clients] = remembered
            if watch and true is not None:
                watched[i] += weighed(records, used, true)
            if watch and run.shown is not None and run.before is not None:
                quality = run.shown.quality
                if drawn is not None:
                    quality = run.shown.judged.ndcg(records.display.documents, drawn)
                online[i] += online_sums(quality, run.before, records.log.queries, drawn)

    run_chunks(work, len(parts), run.threads)
    if run.adversaries is not None:
        poison(run.adversaries, replies, adversarial(run.adversaries, run.seed, cohort))
    return replies, Watched(watched.sum(axis=0), online.sum(axis=0))


def clicked(run: Simulated, t: int, clients: Int64s) -> tuple[Float64s, Records, Int64s | None]:
    """What some clients do in round t.

    Returns:
        How they examine ranks if they have clicked nothing above, [clients, K]; their records; and, if they explore,
        the query of the data that each of their own display's is.
    """
    base = examination(run.users.severities(t, clients), run.display.ranks)
    display, attracted, pools, sessions, drawn = run.display, run.attraction, run.users.pools, run.sessions, None
    if run.shown is not None and run.shown.scores is not None:
        queries = _drawn(run, t, clients)
        display = run.shown.explored(run.showing, queries, clients, run.seed, t)
        attracted, drawn = attraction(run.shown.data, display, run.shown.click_model), queries.ravel()
        pools = np.empty((clients.max() + 1, sessions.queries), np.int32)  # rows of other clients are never read
        pools[clients] = np.arange(drawn.size).reshape(queries.shape)
        sessions = replace(sessions, replacement=False)
    log = simulate_clicks(
        run.click_model,
        attracted,
        base,
        clients,
        sessions=sessions,
        seed=run.seed,
        round_=t,
        pools=pools,
        versions=display.versions,
    )
    return base, Records(log, display, versions=_made_by(run, log)), drawn


def _drawn(run: Simulated, t: int, clients: Int64s) -> Int64s:
    """[clients, queries] the queries of some clients in round t."""
    pools, sessions, queries = run.users.pools, run.sessions, run.display.queries
    available = pools.shape[1] if pools.size else queries
    check_queries(sessions, available)
    return drawn_queries(clients, pools, queries, sessions.queries, sessions.replacement, run.seed, t)


def _made_by(run: Simulated, log: ClickLog) -> tuple[str, ...]:
    """The version that made each impression."""
    if run.shown is None:
        return ()
    names = run.shown.names
    if len(names) == 1:
        return names * log.queries.size
    return tuple(names[version] for version in (log.queries // run.shown.data.queries).tolist())


def weighed(records: Records, used: Float64s, true: Float64s) -> Float64s:
    """Sums over impressions of 1, propensity and examination, and over clicks of the inverses of the two: [5, K]."""
    log, there = records.log, records.display.shown[records.log.queries] >= 0
    clicked = log.clicks > 0  # where nothing can have been examined, there is no click to divide
    return np.stack(
        [
            there.sum(axis=0),
            (used * there).sum(axis=0),
            (true * there).sum(axis=0),
            np.divide(1, used, out=np.zeros_like(used), where=clicked).sum(axis=0),
            np.divide(1, true, out=np.zeros_like(true), where=clicked).sum(axis=0),
        ]
    )
