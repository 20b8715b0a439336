"""A round of a simulation: users click, clients train on their clicks, and what they send is added up.

What clients and server do is `fultr.federated.fedips`; here is where their records come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fultr.clicks.log import ClickLog, Display, Records
from fultr.clicks.models.model import Model as ClickModel
from fultr.clicks.models.position_based import examination
from fultr.clicks.sessions import check_queries, drawn_queries, simulate_clicks
from fultr.clicks.settings import Sessions
from fultr.core.arrays import Arrays, Float32s, Float64s, Int64s
from fultr.core.threads import run_chunks
from fultr.federated.aggregate import parts_of
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.fedips import Broadcast, Server, broadcast, client_round, nothing, server_round
from fultr.federated.privacy.stage import Sums, single_replies
from fultr.federated.settings import Estimator, FedIPS
from fultr.rankers.model import TREES, Model
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


def run_round(
    runs: Sequence[Simulated], t: int, servers: Sequence[Server], *, watch: bool = False
) -> list[tuple[Server, Watched]]:
    """Round t of a run, or of several whose users click the same (`alike`): Algorithm 1, lines 2 to 11.

    Returns:
        For each run what its server knows after it, and what was watched.
    """
    cohort = runs[0].users.cohort(t)  # line 2
    sent = [broadcast(run.algorithm, server) for run, server in zip(runs, servers, strict=True)]  # line 3
    collected = collect(runs, t, sent, cohort, watch=watch)  # lines 4 to 10
    return [
        (_stepped(run, t, server, cohort, replies), watched)  # line 11
        for run, server, (replies, watched) in zip(runs, servers, collected, strict=True)
    ]


def _stepped(run: Simulated, t: int, server: Server, cohort: Int64s, replies: Sums) -> Server:
    random, expected, privacy = SeededRandomness(run.seed), run.users.expected, run.algorithm.privacy
    if run.secure_sums:
        there = survivors(run.dropouts, run.seed, t, cohort, privacy)
        replies = secure_total(run.algorithm.stage, replies, there, run.threads)
        expected -= 0 if privacy else int((~there).sum())  # with privacy, who replied must not show
    return server_round(run.algorithm, run.model, server, replies, expected, random, summed=run.secure_sums)


def keeps_to_itself(algorithm: FedIPS) -> bool:
    """Is a run apart from all others, although its users may click the same?

    Where clients have secrets or memories, or their replies are looked at one by one; and with trees, which remember
    the scores of what is displayed as long as they alone are asked for them.
    """
    source = algorithm.propensity
    return (
        algorithm.model.kind in TREES
        or algorithm.aggregation.aggregation != "mean"
        or single_replies(algorithm.stage)
        or (isinstance(source, Estimator) and source.remember)
    )


def alike(one: Simulated, other: Simulated) -> bool:
    """Do the users of two runs see and click the same, so that a round of both needs their clicks only once?"""
    if one is other:
        return True
    told, others = ((run.seed, run.sessions, run.showing) for run in (one, other))
    parts = ("display", "attraction", "users", "click_model", "shown")
    return (
        told == others
        and all(getattr(one, part) is getattr(other, part) for part in parts)
        and not any(
            run.secure_sums or run.adversaries is not None or keeps_to_itself(run.algorithm) for run in (one, other)
        )
    )


def collect(
    runs: Sequence[Simulated], t: int, sent: Sequence[Broadcast], cohort: Int64s, *, watch: bool = False
) -> list[tuple[Sums, Watched]]:
    """Each client's clicks and local training: what they send, each in a row if that is needed, else by parts.

    Runs whose users click the same share the clicks, and estimates that would be the same; while one trains on them,
    the features that they are about are at hand for the next.

    Args:
        runs: what stays the same.
        t: the round.
        sent: what the server of each run broadcast.
        cohort: the clients, by number.
        watch: tell what clicks were divided by, and how good what was displayed is.
    """
    parts, first = parts_of(cohort.size), runs[0]
    replies = [
        nothing(run.algorithm, run.model, run.display.ranks, cohort.size if _singly(run) else len(parts))
        for run in runs
    ]
    leaders, estimated = _leaders(runs, sent), [_estimated(run) for run in runs]
    watched, online = np.zeros((len(runs), len(parts), 5, first.display.ranks)), np.zeros((len(parts), 3))
    needed = watch or any(run.algorithm.propensity == "known" for run in runs)

    def work(i: int) -> None:
        for begin in range(*parts[i], _BLOCK):
            end = min(begin + _BLOCK, parts[i][1])
            clients = cohort[begin:end]
            base, records, drawn = clicked(first, t, clients)
            true = first.click_model.examination_given_clicks(base, records.log) if needed else None
            used: list[Float64s] = []
            for j, run in enumerate(runs):
                rows = slice(begin, end) if _singly(run) else slice(i, i + 1)
                total = {name: array[rows] for name, array in replies[j].items()}
                if leaders[j] == j:
                    used.append(_train(run, t, sent[j], clients, records, total, true))
                else:
                    for name in estimated[j]:
                        total[name][:] = replies[leaders[j]][name][rows]
                    shared = used[leaders[j]]
                    client_round(run.algorithm, run.model, sent[j], records, total, known=shared, estimated=True)
                    used.append(shared)
                if watch and true is not None:
                    watched[j, i] += weighed(records, used[j], true)
            if watch and first.shown is not None and first.before is not None:
                quality = first.shown.quality
                if drawn is not None:
                    quality = first.shown.judged.ndcg(records.display.documents, drawn)
                online[i] += online_sums(quality, first.before, records.log.queries, drawn)

    run_chunks(work, len(parts), first.threads)
    for run, sums in zip(runs, replies, strict=True):
        if run.adversaries is not None:
            poison(run.adversaries, sums, adversarial(run.adversaries, run.seed, cohort))
    return [(sums, Watched(of.sum(axis=0), online.sum(axis=0))) for sums, of in zip(replies, watched, strict=True)]


def _train(
    run: Simulated, t: int, sent: Broadcast, clients: Int64s, records: Records, total: Sums, known: Float64s | None
) -> Float64s:
    """Some clients' training; what they send is added to `total`. Returns what clicks were divided by."""
    random, privacy = SeededRandomness(run.seed), run.algorithm.privacy
    noised = privacy is not None and privacy.mode == "distributed"
    draws = [random.client(t, client) for client in clients.tolist()] if noised else None
    remembered = None if run.evidence is None else run.evidence[clients]
    used = client_round(run.algorithm, run.model, sent, records, total, known=known, evidence=remembered, draws=draws)
    if run.evidence is not None and remembered is not None:
        run.evidence[clients] = remembered
    return used


def _singly(run: Simulated) -> bool:
    """Must each client's reply have a row of its own?"""
    return run.secure_sums or run.adversaries is not None or run.algorithm.aggregation.aggregation != "mean"


def _leaders(runs: Sequence[Simulated], sent: Sequence[Broadcast]) -> list[int]:
    """For each run the first one whose clients estimate the same, and send the same of it; or itself."""

    def same(i: int, j: int) -> bool:
        source = runs[j].algorithm.propensity
        return (
            isinstance(source, Estimator)
            and runs[i].algorithm.propensity == source
            and _same_arrays(sent[i].estimation, sent[j].estimation)
        )

    return [next((i for i in range(j) if same(i, j)), j) for j in range(len(runs))]


def _same_arrays(some: Arrays, others: Arrays) -> bool:
    return some.keys() == others.keys() and all(np.array_equal(some[name], others[name]) for name in some)


def _estimated(run: Simulated) -> Iterable[str]:
    """Names of what a run's estimator has clients send."""
    source = run.algorithm.propensity
    if not isinstance(source, Estimator):
        return ()
    return ESTIMATORS[source.kind].nothing(source, run.model.features, run.display.ranks, 1).keys()


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
