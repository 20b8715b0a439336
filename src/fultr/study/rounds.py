"""A round of a simulation: users click, clients train on their clicks, and what they send is added up.

What clients and server do is `fultr.federated.fedips`; here is where their records come from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fultr.clicks.log import Display, Records
from fultr.clicks.models.model import Model as ClickModel
from fultr.clicks.models.position_based import examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import Sessions
from fultr.core.arrays import Float32s, Float64s, Int64s
from fultr.core.threads import run_chunks
from fultr.federated.aggregate import parts_of
from fultr.federated.fedips import Broadcast, Server, broadcast, client_round, nothing, server_round
from fultr.federated.privacy.stage import Sums
from fultr.federated.settings import FedIPS
from fultr.rankers.model import Model
from fultr.study.adversaries import adversarial, poison
from fultr.study.seeded import SeededRandomness
from fultr.study.settings import Adversaries
from fultr.study.users import Cohorts

_BLOCK = 128  # clients whose clicks are held at a time, by each thread


@dataclass(frozen=True, eq=False)
class Simulated:
    """What stays the same from round to round.

    `evidence` [users, numbers] is what the devices of a finite population remember of earlier rounds; it changes.
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


def run_round(run: Simulated, t: int, server: Server, *, watch: bool = False) -> tuple[Server, Float64s]:
    """Round t: Algorithm 1, lines 2 to 11; returns what the server knows after it, and what `weighed` tells."""
    cohort = run.users.cohort(t)  # line 2
    sent = broadcast(run.algorithm, server)  # line 3
    replies, weighed = collect(run, t, sent, cohort, watch=watch)  # lines 4 to 10
    random = SeededRandomness(run.seed)
    return server_round(run.algorithm, server, replies, run.users.expected, random), weighed  # line 11


def collect(run: Simulated, t: int, sent: Broadcast, cohort: Int64s, *, watch: bool = False) -> tuple[Sums, Float64s]:
    """Each client's clicks and local training: what they send, each in a row if that is needed, else by parts.

    Args:
        run: what stays the same.
        t: the round.
        sent: what the server broadcast.
        cohort: the clients, by number.
        watch: tell what clicks were divided by, see `weighed`.
    """
    parts = parts_of(cohort.size)
    singly = run.adversaries is not None or run.algorithm.aggregation.aggregation != "mean"
    rows = cohort.size if singly else len(parts)
    replies = nothing(run.algorithm, run.model, run.display.ranks, rows)
    watched = np.zeros((len(parts), 5, run.display.ranks))
    needed = watch or run.algorithm.propensity == "known"
    random, privacy = SeededRandomness(run.seed), run.algorithm.privacy
    noised = privacy is not None and privacy.mode == "distributed"

    def work(i: int) -> None:
        begin, end = parts[i]
        for block in range(begin, end, _BLOCK):
            until = min(block + _BLOCK, end)
            clients, own = cohort[block:until], slice(block, until) if singly else slice(i, i + 1)
            total = {name: array[own] for name, array in replies.items()}
            base, records = clicked(run, t, clients)
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

    run_chunks(work, len(parts), run.threads)
    if run.adversaries is not None:
        poison(run.adversaries, replies, adversarial(run.adversaries, run.seed, cohort))
    return replies, watched.sum(axis=0)


def clicked(run: Simulated, t: int, clients: Int64s) -> tuple[Float64s, Records]:
    """How some clients examine ranks if they have clicked nothing above, [clients, K]; and what they do in round t."""
    base = examination(run.users.severities(t, clients), run.display.ranks)
    log = simulate_clicks(
        run.click_model,
        run.attraction,
        base,
        clients,
        sessions=run.sessions,
        seed=run.seed,
        round_=t,
        pools=run.users.pools,
        versions=run.display.versions,
    )
    return base, Records(log, run.display)


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
