"""Speed as ratios, each measured against the machine's limit or another program in the same run."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from fultr.bench_deployment import deployment_rounds
from fultr.bench_device import device_log
from fultr.bench_flower import flower_round
from fultr.clicks import ClickLog, ClickModel, Sessions, attraction, examination, simulate_clicks
from fultr.console import print_json, print_table, say
from fultr.data import RankingData
from fultr.datasets import load
from fultr.errors import FultrError
from fultr.estimation import KINDS, Estimator, broadcast, initial
from fultr.layouts import load_path
from fultr.letor import read_letor
from fultr.letor_write import write_letor
from fultr.linear import FAST
from fultr.metrics import ndcg_of_rankers
from fultr.policy import Display, display, train_policy
from fultr.population import FreshUsers, cohorts
from fultr.rounds import Federation, FedIPS, collect
from fultr.threads import default_threads, run_ranges
from fultr.types import Float32s


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


def run_benchmarks(names: Sequence[str], as_json: bool) -> None:
    """Measure and print."""
    benchmarks = {
        "round": _bench_round,
        "estimate": _bench_estimate,
        "evaluate": _bench_evaluate,
        "read": _bench_read,
        "device": _bench_device,
        "flower": _bench_flower,
        "deployment": _bench_deployment,
    }
    figures = [figure for name in names for figure in benchmarks[name]()]
    if as_json:
        print_json({"figures": [figure.__dict__ for figure in figures]})
        return
    print_table([["measured", "value", "wanted"], *(figure.row() for figure in figures)])


def _bench_flower() -> list[Figure]:
    """A round against the same round in Flower's simulation engine."""
    return [Figure(*row) for row in flower_round()]


def _bench_deployment() -> list[Figure]:
    """Rounds of federations of 3, 5 and 10 nodes."""
    return [Figure(*row) for row in deployment_rounds()]


def _bench_device() -> list[Figure]:
    """Logging on a device against appending to a file."""
    return [Figure(*row) for row in device_log()]


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


def _bandwidth() -> float:
    """Bytes a second: the best of five sums over 1.2 GB by all threads."""
    values = np.ones(300_000_000, np.float32)
    _sum(values[:10])
    return values.nbytes / _best(lambda: run_ranges(lambda a, b: _sum(values[a:b]), values.size), 5)


def _clicked_bytes(log: ClickLog, shown: Display, width: int) -> int:
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
    weights = np.zeros(data.train.width, np.float32)

    def federation(clients: int) -> Federation:
        users = cohorts(FreshUsers(), data.train, model, clients, 0)
        return Federation(FedIPS(), shown, attraction(data.train, shown, model), users, sessions, 0, None)

    def a_round(clients: int) -> Callable[[], object]:
        setting, cohort, rounds = federation(clients), np.arange(clients), count()
        return lambda: collect(setting, next(rounds), weights, cohort)  # never the same clicks twice

    everyone = np.arange(2000)
    examined = examination(federation(2000).users.severities(0, everyone), shown.ranks)
    log = simulate_clicks(attraction(data.train, shown, model), examined, everyone, sessions=sessions, seed=0, round_=0)
    a_round(10)()
    bandwidth = _bandwidth()
    small = _best(a_round(2000), 9)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    large = _best(a_round(62_500), 3)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    reading = _clicked_bytes(log, shown, data.train.width) / bandwidth
    operations = 2 * 2 * log.clicks.sum() * shown.ranks * data.train.width  # score and change, multiply and add
    return [
        Figure("memory bandwidth", bandwidth / 1e9, "GB/s"),
        Figure("round of 2,000 clients, synthetic-yahoo", small * 1e3, "ms"),
        Figure("  speed of training", operations / small / 1e9, "GFLOP/s"),
        Figure("  reading the clicked queries' features once", reading * 1e3, "ms"),
        Figure("  round / reading", small / reading, "", "at most 3, target 2"),
        Figure("round of 62,500 clients", large * 1e3, "ms"),
        Figure("  time per client against 2,000 clients", large / small * 2000 / 62_500, "", "at most 1"),
        Figure("  memory beyond that of 2,000 clients", grown / 1024, "MB", "none"),
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
    users, weights = cohorts(FreshUsers(), train, model, clients, 0), np.zeros(train.width, np.float32)
    shown = {n: display(train, np.stack([train_policy(train, version=v) for v in range(n)])) for n in (1, 2)}
    attracted = {n: attraction(train, shown[n], model) for n in shown}
    examined = examination(users.severities(0, cohort), shown[1].ranks)
    work: dict[str, Callable[[], object]] = {
        "clicks": lambda: simulate_clicks(
            attracted[1], examined, cohort, sessions=Sessions(), seed=0, round_=next(rounds)
        )
    }

    def a_round(algorithm: FedIPS, versions: int) -> Callable[[], object]:
        federation = Federation(algorithm, shown[versions], attracted[versions], users, Sessions(), 0, threads=1)
        estimator = federation.estimator
        sent = None if estimator is None else broadcast(estimator, initial(estimator, train.width, examined.shape[1]))
        return lambda: collect(federation, next(rounds), weights, cohort, sent)

    work["known"] = a_round(FedIPS(), 1)
    work["known, 2 versions"] = a_round(FedIPS(), 2)
    for kind in KINDS:
        work[kind] = a_round(FedIPS(propensity=Estimator(kind)), 2 if kind == "harvested" else 1)
    seconds = [[_best(one, 1) for one in work.values()] for _ in range(times)]  # in turn, as the machine's speed varies
    return dict(zip(work, np.median(seconds, axis=0).tolist(), strict=True))


def _bench_evaluate() -> list[Figure]:
    """NDCG of 32 rankers against NDCG of one."""
    say("evaluate: loading synthetic-yahoo")
    data = load("synthetic-yahoo").train
    weights = np.random.default_rng(0).standard_normal((32, data.width)).astype(np.float32)
    ndcg_of_rankers(weights[:1], data)
    one = _best(lambda: ndcg_of_rankers(weights[:1], data), 7)
    many = _best(lambda: ndcg_of_rankers(weights, data), 5)
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
