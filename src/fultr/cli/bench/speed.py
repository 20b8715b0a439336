"""Speed as ratios, each measured against the machine's limit or another program in the same run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count, cycle
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from fultr.cli.console import say
from fultr.clicks.log import ClickLog, Display
from fultr.clicks.models.position_based import PositionBased, examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.arrays import Float32s
from fultr.core.errors import FultrError
from fultr.core.system import peak_memory
from fultr.core.threads import default_threads, run_ranges
from fultr.data.layouts import load_path
from fultr.data.letor.reader import read_letor
from fultr.data.letor.writer import write_letor
from fultr.data.load import load
from fultr.data.ranking import RankingData
from fultr.federated.estimators import ESTIMATORS as KINDS
from fultr.federated.fedips import Broadcast, Server, broadcast
from fultr.federated.settings import Estimator, FedIPS
from fultr.rankers.linear import Linear
from fultr.rankers.linear_kernels import FAST
from fultr.rankers.metrics import ndcg_of_rankers
from fultr.study.policy import best_documents, display, train_policy
from fultr.study.rounds import Simulated, collect
from fultr.study.settings import FreshUsers, Showing
from fultr.study.shown import Shown
from fultr.study.users import attraction, cohorts


@dataclass(frozen=True)
class Figure:
    """One measured number, and what it should be."""

    name: str
    value: float
    unit: str
    wanted: str = ""

    def row(self) -> list[str]:
        """For a table."""
        return [self.name, f"{self.value:,.4g} {self.unit}".strip(), self.wanted]


def _best(work: Callable[[], object], times: int) -> float:
    """The shortest of several runs, in seconds."""
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


@njit(nogil=True, cache=True, fastmath=FAST)
def _sum(values: Float32s) -> np.float32:
    total = np.float32(0)
    for i in range(values.size):
        total += values[i]
    return total


def memory_bandwidth(threads: int | None = None) -> float:
    """Bytes a second: the best of five sums over 1.2 GB by all threads, or by this many."""
    values = np.ones(300_000_000, np.float32)
    _sum(values[:10])
    return values.nbytes / _best(lambda: run_ranges(lambda a, b: _sum(values[a:b]), values.size, threads), 5)


def clicked_bytes(log: ClickLog, shown: Display, width: int) -> int:
    """Size of the displayed features of the distinct queries that each client clicked in."""
    clicked = log.clicks.any(axis=1)
    client = np.repeat(np.arange(log.clients), np.diff(log.offsets))[clicked]
    distinct = np.unique(np.stack([client, log.queries[clicked]]), axis=1)[1]
    return int((shown.shown[distinct] >= 0).sum()) * width * 4


def _bench_round() -> list[Figure]:
    """A round of federated training, click simulation included, against reading what it must read."""
    say("round: loading synthetic-yahoo")
    data = load("synthetic-yahoo")
    shown = display(data.train, train_policy(data.train))
    model, sessions = ClickModel(), Sessions()
    linear = Linear(data.train.width)
    sent = Broadcast(linear.initial(), {}, {})

    def simulated(clients: int) -> Simulated:
        users = cohorts(FreshUsers(), data.train, model, clients, 0)
        attracted = attraction(data.train, shown, model)
        return Simulated(FedIPS(), linear, shown, PositionBased(), attracted, users, sessions, 0, None)

    def a_round(clients: int) -> Callable[[], object]:
        setting, cohort, rounds = simulated(clients), np.arange(clients), count()
        return lambda: collect([setting], next(rounds), [sent], cohort)  # never the same clicks twice

    everyone = np.arange(2000)
    examined = examination(simulated(2000).users.severities(0, everyone), shown.ranks)
    attracted = attraction(data.train, shown, model)
    log = simulate_clicks(PositionBased(), attracted, examined, everyone, sessions=sessions, seed=0, round_=0)
    a_round(10)()
    bandwidth = memory_bandwidth()
    small = _best(a_round(2000), 9)
    memory = peak_memory()
    large = _best(a_round(62_500), 3)
    grown = peak_memory() - memory
    reading = clicked_bytes(log, shown, data.train.width) / bandwidth
    operations = 2 * 2 * log.clicks.sum() * shown.ranks * data.train.width  # score and change, multiply and add
    return [
        Figure("memory bandwidth", bandwidth / 1e9, "GB/s"),
        Figure("round of 2,000 clients, synthetic-yahoo", small * 1e3, "ms"),
        Figure("  speed of training", operations / small / 1e9, "GFLOP/s"),
        Figure("  reading the clicked queries' features once", reading * 1e3, "ms"),
        Figure("  round / reading", small / reading, "", "at most 3, target 2"),
        Figure("round of 62,500 clients", large * 1e3, "ms"),
        Figure("  time per client against 2,000 clients", large / small * 2000 / 62_500, "", "at most 1"),
        Figure("  memory beyond that of 2,000 clients", grown / 1e6, "MB", "none"),
    ]


def _bench_estimate() -> list[Figure]:
    """What estimation of propensities adds to a round against what training takes of it, on one thread."""
    say("estimate: loading synthetic and synthetic-yahoo")
    figures = []
    for name in ("synthetic", "synthetic-yahoo"):
        train = load(name).train
        seconds = _round_seconds(train)
        trained = seconds["known"] - seconds["clicks"]
        figures.append(Figure(f"training in a round of 2,000 clients, {name}", trained * 1e3, "ms"))
        for kind in KINDS:
            added = seconds[kind] - seconds["known, 2 versions" if kind == "harvested" else "known"]
            figures.append(Figure(f"  {kind}: added by estimation / training", added / trained, "", "at most 1"))
    return figures


def _round_seconds(train: RankingData, clients: int = 2000, times: int = 41) -> dict[str, float]:
    """Median seconds of the simulation of clicks, and of rounds by what clicks are divided by; no clicks come twice."""
    model, cohort, rounds = ClickModel(), np.arange(clients), count()
    users, linear = cohorts(FreshUsers(), train, model, clients, 0), Linear(train.width)
    shown = {n: display(train, np.stack([train_policy(train, version=v) for v in range(n)])) for n in (1, 2)}
    attracted = {n: attraction(train, shown[n], model) for n in shown}
    examined = examination(users.severities(0, cohort), shown[1].ranks)
    work: dict[str, Callable[[], object]] = {
        "clicks": lambda: simulate_clicks(
            PositionBased(), attracted[1], examined, cohort, sessions=Sessions(), seed=0, round_=next(rounds)
        )
    }

    def a_round(algorithm: FedIPS, versions: int) -> Callable[[], object]:
        run = Simulated(
            algorithm, linear, shown[versions], PositionBased(), attracted[versions], users, Sessions(), 0, threads=1
        )
        sent = broadcast(algorithm, Server.initial(algorithm, linear, linear.initial(), examined.shape[1]))
        return lambda: collect([run], next(rounds), [sent], cohort)

    work["known"] = a_round(FedIPS(), 1)
    work["known, 2 versions"] = a_round(FedIPS(), 2)
    for kind in KINDS:
        work[kind] = a_round(FedIPS(propensity=Estimator(kind)), 2 if kind == "harvested" else 1)
    seconds = [[_best(one, 1) for one in work.values()] for _ in range(times)]  # in turn, as the machine's speed varies
    return dict(zip(work, np.median(seconds, axis=0).tolist(), strict=True))


def _bench_beside() -> list[Figure]:
    """A round of several runs whose users click the same against their rounds one by one, on one thread."""
    say("beside: loading synthetic-yahoo")
    train, model, cohort, rounds = load("synthetic-yahoo").train, ClickModel(), np.arange(2000), count()
    users, linear = cohorts(FreshUsers(), train, model, cohort.size, 0), Linear(train.width)
    shown = display(train, train_policy(train))
    attracted = attraction(train, shown, model)
    examined = examination(users.severities(0, cohort), shown.ranks)
    log = simulate_clicks(PositionBased(), attracted, examined, cohort, sessions=Sessions(), seed=0, round_=0)
    reading = clicked_bytes(log, shown, train.width) / memory_bandwidth(threads=1)

    def a_round(algorithm: FedIPS, runs: int) -> Callable[[], object]:
        one = Simulated(algorithm, linear, shown, PositionBased(), attracted, users, Sessions(), 0, threads=1)
        sent = broadcast(algorithm, Server.initial(algorithm, linear, linear.initial(), shown.ranks))
        return lambda: collect([replace(one) for _ in range(runs)], next(rounds), [sent] * runs, cohort)

    algorithms = {"known": FedIPS(), "shrunk": FedIPS(propensity=Estimator("shrunk"))}
    work = {(name, runs): a_round(algorithm, runs) for name, algorithm in algorithms.items() for runs in (1, 5, 10)}
    seconds = [[_best(one, 1) for one in work.values()] for _ in range(12)]  # in turn, as the machine's speed varies
    took = dict(zip(work, np.min(seconds, axis=0).tolist(), strict=True))
    figures = [Figure("reading the clicked queries' features once, one thread", reading * 1e3, "ms")]
    for name in algorithms:
        alone = took[name, 1]
        figures.append(Figure(f"round of 2,000 clients, synthetic-yahoo, one thread, {name}", alone * 1e3, "ms"))
        for runs in (5, 10):
            share = took[name, runs] / runs
            figures.append(Figure(f"  round of {runs} runs side by side, for each", share * 1e3, "ms"))
            figures.append(Figure("    alone / side by side", alone / share, ""))
            figures.append(Figure("    side by side / reading", share / reading, ""))
    return figures


def _bench_refresh() -> list[Figure]:
    """A ranker that becomes the logging policy, and exploration, against a round; on one thread."""
    say("refresh: loading synthetic-yahoo")
    train, model, cohort, rounds = load("synthetic-yahoo").train, ClickModel(), np.arange(2000), count()
    users, linear = cohorts(FreshUsers(), train, model, cohort.size, 0), Linear(train.width)
    weights = train_policy(train)
    scores = np.empty(train.documents, np.float32)
    best_documents(train, linear, weights, scores=scores)
    shown = Shown.first(train, display(train, weights), model, 5, 0, scores)
    other = (weights * (1 + 0.1 * np.random.default_rng(0).standard_normal(train.width))).astype(np.float32)
    sent, rankers = Broadcast(linear.initial(), {}, {}), cycle([other, weights])

    def a_round(showing: Showing, first: Shown) -> Callable[[], object]:
        fixed = (FedIPS(), linear, shown.display, PositionBased(), shown.attraction, users, Sessions(), 0, 1)
        run = Simulated(*fixed, showing=showing, shown=first, before=shown.quality)
        return lambda: collect([run], next(rounds), [sent], cohort)

    work = {
        "round": a_round(Showing(), replace(shown, scores=None)),
        "refresh": lambda: shown.refreshed(0, linear, next(rankers), "again", threads=1),
        "pairs": a_round(Showing(exploration="pairs"), shown),
        "plackett-luce": a_round(Showing(exploration="plackett-luce"), shown),
        "reading": lambda: _sum(train.features.reshape(-1)),
    }
    seconds = [[_best(one, 1) for one in work.values()] for _ in range(12)]  # in turn, as the machine's speed varies
    took = dict(zip(work, np.min(seconds, axis=0).tolist(), strict=True))
    return [
        Figure("round of 2,000 clients, synthetic-yahoo, one thread", took["round"] * 1e3, "ms"),
        Figure("refresh: all documents scored, what changed is copied", took["refresh"] * 1e3, "ms"),
        Figure("  refresh / reading all features once", took["refresh"] / took["reading"], ""),
        Figure("  refresh / round", took["refresh"] / took["round"], ""),
        Figure("  refresh every 10 rounds / round", took["refresh"] / took["round"] / 10, "", "at most 1.5"),
        Figure("round with pairs in random order / round", took["pairs"] / took["round"], ""),
        Figure("round with Plackett-Luce exploration / round", took["plackett-luce"] / took["round"], ""),
    ]


def _bench_evaluate() -> list[Figure]:
    """NDCG of 32 rankers against NDCG of one."""
    say("evaluate: loading synthetic-yahoo")
    data = load("synthetic-yahoo").train
    weights = np.random.default_rng(0).standard_normal((32, data.width)).astype(np.float32)
    linear = Linear(data.width)
    ndcg_of_rankers(linear, weights[:1], data)
    one = _best(lambda: ndcg_of_rankers(linear, weights[:1], data), 7)
    many = _best(lambda: ndcg_of_rankers(linear, weights, data), 5)
    return [
        Figure("NDCG of 1 ranker, synthetic-yahoo's training queries", one * 1e3, "ms"),
        Figure("NDCG of 32 rankers", many * 1e3, "ms"),
        Figure("  32 rankers / 1 ranker", many / one, "", "at most 8"),
    ]


def _bench_read() -> list[Figure]:
    """A plain LETOR file against scikit-learn's reader, and the cache against reading the text."""
    load_svmlight_file = _scikit_learn_reader()
    say("read: writing a LETOR file")
    train = load("synthetic-yahoo").train
    part = train.take(np.arange(2000))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "part.txt"
        write_letor(part, file)
        size = file.stat().st_size
        read_letor(file)
        ours = _best(lambda: read_letor(file), 3)
        say("read: scikit-learn")
        theirs = _best(lambda: load_svmlight_file(str(file), dtype=np.float32, query_id=True), 2)

        def from_cache() -> None:
            for loaded in load_path(file, normalise=False, filter=False):
                _pass(loaded)

        from_cache()
        cached = _best(from_cache, 5)
    return [
        Figure("size of the LETOR file", size / 1e6, "MB", "at least 200"),
        Figure("reading it", ours, "s"),
        Figure("  speed", size / ours / 1e6, f"MB/s, {default_threads()} threads"),
        Figure("scikit-learn's load_svmlight_file", theirs, "s"),
        Figure("  scikit-learn / fultr", theirs / ours, "", "at least 5"),
        Figure("loading it from the cache, with a pass over the features", cached, "s"),
        Figure("  cache / reading", cached / ours, "", "under 0.05"),
    ]


def _pass(data: RankingData) -> None:
    flat = data.features.reshape(-1)
    run_ranges(lambda a, b: _sum(flat[a:b]), flat.size)


def _scikit_learn_reader() -> Callable[..., Any]:
    try:
        from sklearn.datasets import load_svmlight_file
    except ImportError:
        raise FultrError("fultr bench read compares with scikit-learn: pip install scikit-learn") from None
    return load_svmlight_file


BENCHMARKS: dict[str, Callable[[], list[Figure]]] = {
    "round": _bench_round,
    "beside": _bench_beside,
    "estimate": _bench_estimate,
    "refresh": _bench_refresh,
    "evaluate": _bench_evaluate,
    "read": _bench_read,
}
