"""Where a run stands, all that a checkpoint holds, and what it comes to: curves over the measured rounds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.core.arrays import Float32s, Float64s, Int64s
from fultr.data.ranking import Splits
from fultr.federated.fedips import Server
from fultr.rankers.metrics import mean_over_queries, ndcg_of_rankers
from fultr.rankers.model import Model
from fultr.study.rounds import Simulated, Watched

_SCORED_TOGETHER = 32  # rankers evaluated in one pass over the features


@dataclass(frozen=True, eq=False)
class Curve:
    """Mean NDCG@k over the queries of a split ("valid", "test") after some rounds."""

    rounds: Int64s
    ndcg: dict[str, Float64s]


@dataclass(frozen=True, eq=False)
class Weighing:
    """What clicks were divided by in the rounds that led to the measured ones, beside the truth.

    Attributes:
        rounds: [points], from the first that clicks led to.
        used: [points, K] mean propensity of each rank over impressions.
        true: [points, K] mean examination of each rank over impressions.
        mass: [points, K] sum of the clicks' weights at each rank, as a share of what it is with true examination.
    """

    rounds: Int64s
    used: Float64s
    true: Float64s
    mass: Float64s


@dataclass(frozen=True, eq=False)
class Online:
    """How good was what users were shown in the rounds that led to the measured ones: mean NDCG@k over impressions.

    Attributes:
        rounds: [points], from the first that clicks led to.
        displayed: [points] of what was displayed.
        policy: [points] of what the first logging policy displays for the same impressions' queries.
    """

    rounds: Int64s
    displayed: Float64s
    policy: Float64s


@dataclass(eq=False)
class Standing:
    """Where a run stands; all that a checkpoint holds.

    `policies` are the latest rankers that became logging policies, as many as there are versions in use.
    """

    done: int
    server: Server
    evidence: Float32s | None
    measured: list[int]
    kept: list[Float32s]
    weighed: list[Float64s]
    online: list[Float64s]
    policies: list[Float32s] = field(default_factory=list)

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything by name, for a checkpoint."""
        arrays = {
            "done": np.array(self.done),
            **self.server.as_arrays(),
            "measured": np.array(self.measured),
            "kept": np.stack(self.kept),
            "weighed": np.stack(self.weighed),
            "online": np.stack(self.online),
        }
        if self.policies:
            arrays["policies"] = np.stack(self.policies)
        if self.evidence is not None:
            arrays["evidence"] = self.evidence
        return arrays

    def keep(self, watched: Watched) -> None:
        """Keep the ranker of this round, to be measured."""
        self.measured.append(self.done)
        self.kept.append(self.server.ranker)
        self.weighed.append(watched.weighed)
        self.online.append(watched.online)

    def wanted(self, rounds: int, evaluate_every: int) -> NDArray[np.bool_]:
        """Which of the kept weights are to be measured: not those that only a shorter run kept, at its end."""
        measured = np.array(self.measured)
        return (measured % evaluate_every == 0) | (measured == rounds)

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Standing:
        """What `as_arrays` wrote."""
        return cls(
            int(arrays["done"]),
            Server.from_arrays(arrays),
            arrays.get("evidence"),
            arrays["measured"].tolist(),
            list(arrays["kept"]),
            list(arrays["weighed"]),
            list(arrays["online"]),
            list(arrays.get("policies", ())),
        )


@dataclass(frozen=True)
class Refreshes:
    """When rankers become logging policies: each in the place of the oldest version in use.

    Attributes:
        every: so many rounds; None: never.
        versions: in use at a time.
    """

    every: int | None
    versions: int

    def due(self, run: Simulated, progress: Standing) -> Simulated:
        """The run with what is displayed in the next round."""
        if self.every is None or progress.done == 0 or progress.done % self.every:
            return run
        progress.policies = [*progress.policies, progress.server.ranker][-self.versions :]
        return self._made(run, progress.policies[-1], progress.done // self.every)

    def again(self, run: Simulated, progress: Standing) -> Simulated:
        """The run with what was displayed in the round that a checkpoint was written after."""
        if self.every is None or progress.done == 0:
            return run
        latest = (progress.done - 1) // self.every
        for i, weights in enumerate(progress.policies):
            run = self._made(run, weights, latest - len(progress.policies) + 1 + i)
        return run

    def _made(self, run: Simulated, weights: Float32s, number: int) -> Simulated:
        """After the refresh of this number, from 1."""
        assert run.shown is not None
        assert self.every is not None
        name, version = f"round {number * self.every}", (number - 1) % self.versions
        return run.showing_now(run.shown.refreshed(version, run.model, weights, name, run.threads))


def unwatched(displayed: int) -> Watched:
    """Of a round that nobody watched."""
    return Watched(np.zeros((5, displayed)), np.zeros(3))


def curve_of(
    progress: Standing,
    model: Model,
    wanted: NDArray[np.bool_],
    data: Splits,
    k: int,
    splits: Collection[str],
    threads: int | None,
) -> Curve:
    """NDCG@k of the kept weights."""
    kept = np.stack(progress.kept)[wanted]
    ndcg = {}
    for split in splits:
        blocks = [kept[i : i + _SCORED_TOGETHER] for i in range(0, len(kept), _SCORED_TOGETHER)]
        part = getattr(data, split)
        means = [mean_over_queries(ndcg_of_rankers(model, b, part, k=k, threads=threads)) for b in blocks]
        ndcg[split] = np.concatenate(means)
    return Curve(np.array(progress.measured)[wanted], ndcg)


def weighing_of(progress: Standing, wanted: NDArray[np.bool_]) -> Weighing:
    """What the sums kept in the measured rounds say; NaN where there was nothing to add."""
    shows, used, true, weights, due = np.moveaxis(np.stack(progress.weighed)[wanted][1:], 1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Weighing(np.array(progress.measured)[wanted][1:], used / shows, true / shows, weights / due)


def online_of(progress: Standing, wanted: NDArray[np.bool_]) -> Online:
    """What the sums kept in the measured rounds say; NaN where there was nothing to add."""
    displayed, policy, impressions = np.stack(progress.online)[wanted][1:].T
    with np.errstate(invalid="ignore"):
        return Online(np.array(progress.measured)[wanted][1:], displayed / impressions, policy / impressions)
