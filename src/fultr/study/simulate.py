"""Federated training on simulated users, as a function."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.arrays import Float32s
from fultr.data.load import load
from fultr.data.ranking import Splits
from fultr.federated.settings import FedIPS
from fultr.study.asked import Asked
from fultr.study.course import Simulation, course
from fultr.study.settings import Adversaries, FiniteUsers, FreshUsers, PolicySettings, Showing
from fultr.study.together import together


def simulate(
    data: Splits | str | Path,
    algorithm: FedIPS = FedIPS(),
    *,
    clients: int = 2000,
    rounds: int = 500,
    seed: int = 0,
    policy: PolicySettings | Float32s = PolicySettings(),
    policies: int = 1,
    showing: Showing = Showing(),
    displayed: int = 5,
    click_model: ClickModel = ClickModel(),
    sessions: Sessions = Sessions(),
    population: FreshUsers | FiniteUsers = FreshUsers(),
    adversaries: Adversaries | None = None,
    secure_sums: bool = False,
    dropouts: float = 0.0,
    evaluate_every: int = 10,
    k: int = 5,
    splits: Collection[str] = ("valid", "test"),
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 50,
    threads: int | None = None,
    on_round: Callable[[int], object] | None = None,
) -> Simulation:
    """Train a ranker from the clicks of simulated users (Algorithm 1), and measure it on the way.

    The result depends on the arguments down to `splits` alone: not on threads, checkpoints or interruptions.

    Memory: the data, a copy of the displayed documents' features (none with pairs="retrieved"), and some MB, for any
    number of clients; with adversaries, secure sums, or an aggregation other than the mean, what each client sends too.

    Args:
        data: a data set, or its name or path; training queries are displayed to users, the others measured.
        algorithm: `FedIPS(...)` or `FedAvg(...)`.
        clients: |U|, clients per round.
        rounds: T.
        seed: of users, queries and clicks, and of the logging policy.
        policy: how the logging policy is trained; or its weights.
        policies: versions of the logging policy, trained on samples of their own, one of which, at random, makes each
            impression.
        showing: when the ranker takes the logging policy's place, and exploration.
        displayed: K, documents displayed per query.
        click_model: how users examine and click.
        sessions: how many queries and clicks a client has.
        population: who takes part.
        adversaries: clients that attack the ranker.
        secure_sums: add clients up as devices are in secure sums, in whole numbers: the same bits as a federation.
        dropouts: share of the clients that drop out of such a sum, by chance; too few left is an error.
        evaluate_every: NDCG is measured after every so many rounds, and after round 0 and the last.
        k: NDCG@k.
        splits: where it is measured.
        checkpoint: a file to continue from if it is there, and to write on the way and at the end.
        checkpoint_every: rounds between two writes.
        threads: how many threads to use; all cores if None.
        on_round: called after each round with the number of rounds done.

    >>> import fultr
    >>> data = fultr.load("synthetic", cache=False)
    >>> run = simulate(data, FedIPS(), clients=50, rounds=4, evaluate_every=2)
    >>> run.curve.rounds.tolist()
    [0, 2, 4]
    """
    asked = Asked(
        data=load(data) if isinstance(data, (str, Path)) else data,
        algorithm=algorithm,
        clients=clients,
        rounds=rounds,
        seed=seed,
        policy=policy,
        policies=policies,
        showing=showing,
        displayed=displayed,
        click_model=click_model,
        sessions=sessions,
        population=population,
        adversaries=adversaries,
        secure_sums=secure_sums,
        dropouts=dropouts,
        evaluate_every=evaluate_every,
        k=k,
        splits=tuple(splits),
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        threads=threads,
        on_round=on_round,
    )
    [(_, run)] = together([course(asked, {})])
    return run
