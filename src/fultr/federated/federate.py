"""The rounds of a federation of devices: who is asked, what is accepted, what is kept; Algorithm 1 on real logs.

Where the devices are is for a `Devices` to know: in this process (`fultr.device.answer`), or behind Flower.
After every round the server's state is written whole; a run that was stopped anywhere resumes after the last complete
round, and the round that was interrupted is asked again from its beginning.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fultr.core.arrays import Float32s
from fultr.core.checkpoint import load_checkpoint, save_checkpoint
from fultr.core.errors import FultrError, one_line
from fultr.core.settings import leaves
from fultr.core.streams import Purpose, generator
from fultr.federated.budget import cost_of, model_of, noised_judgement, private_settings, willing
from fultr.federated.events import Event
from fultr.federated.federation import FederationSettings, Waiting
from fultr.federated.fedips import Server, broadcast, server_round
from fultr.federated.judging import Comparison, Judgement, combined, compared, of_sum
from fultr.federated.messages import Limits, Reply, Task, check_update_size, objection, rows_of
from fultr.federated.privacy.accountant import Guarantee
from fultr.federated.privacy.randomness import SYSTEM, Randomness
from fultr.federated.privacy.stage import Sums
from fultr.federated.reports import FailedAttempt, RoundReport, append, drop_reports
from fultr.federated.stopping import fewest_trees
from fultr.federated.summing import ask_sum
from fultr.rankers.model import TREES

_MOST_ROUNDS = 2**40  # more than there can be: another attempt at a round draws another cohort


class Devices(Protocol):
    """The devices of a federation, by their numbers."""

    @property
    def answered(self) -> Mapping[int, float]:
        """Seconds that each device that answered the last question took, as far as that is known."""

    def connected(self) -> list[int]:
        """The numbers of the devices that can be asked now, ascending."""

    def ask(self, task: Task, clients: list[int], timeout: float) -> dict[int, Reply | str]:
        """Ask these devices; the replies of those that answered in time, or in words why one is of no use."""

    def enrolment(self) -> bytes:
        """The signed list of the devices' keys for secure sums."""

    def post(self, contents: Mapping[int, bytes], t: int, timeout: float) -> dict[int, bytes | str]:
        """Send a message of round t to each of some devices; the replies that came in time, or why one is of no use."""


@dataclass(frozen=True, eq=False)
class Trained:
    """How a federation ended.

    Attributes:
        weights: float32 [size of the model].
        rounds: that were done.
        judged: the final weights, by held-out clicks; with privacy, those before the last round.
        privacy: what all rounds cost; None without privacy.
    """

    weights: Float32s
    rounds: int
    judged: Judgement | None
    privacy: Guarantee | None = None


@dataclass(eq=False)
class _State:
    """Where a federation stands, and where that is written.

    `start` is another whenever it is read; `training` is the number that devices know it by.
    """

    folder: Path
    settings: FederationSettings
    server: Server
    done: int = 0
    repliers: list[list[int]] = field(default_factory=list)
    start: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    training: int = field(default_factory=lambda: 1 + secrets.randbits(50))

    def save(self) -> None:
        who = np.array(json.dumps(self.repliers))
        counts = {"done": np.array(self.done), "repliers": who, "training": np.array(self.training)}
        arrays = {**self.server.as_arrays(), **counts}
        save_checkpoint(self.folder / "checkpoint.npz", _identity(self.settings), arrays)

    @classmethod
    def load(cls, folder: Path, settings: FederationSettings, first: Float32s) -> _State:
        path = folder / "checkpoint.npz"
        if not path.exists():
            algorithm, model = settings.algorithm(), model_of(settings)
            server = Server.initial(algorithm, model, first, settings.displayed, judge=settings.judge)
            return cls(folder, settings, server)
        arrays = load_checkpoint(path, _identity(settings))
        done, repliers = int(arrays.pop("done")), json.loads(str(arrays.pop("repliers")))
        training = int(arrays.pop("training"))
        return cls(folder, settings, Server.from_arrays(arrays), done, repliers, training=training)


def _first(settings: FederationSettings) -> Float32s:
    """The weights of the first round."""
    return model_of(settings).initial(settings.seed)


def _identity(settings: FederationSettings) -> dict[str, Any]:
    """The settings that must not change when a run is resumed: not its length, and not how patient it is."""
    free = (
        {*leaves(Waiting)} if settings.algorithm().privacy else {"rounds", *leaves(Waiting)}
    )  # noise is for all rounds
    return {name: value for name, value in settings.as_mapping().items() if name not in free}


def federate(
    devices: Devices,
    settings: FederationSettings,
    folder: str | Path,
    *,
    first: Float32s | None = None,
    tell: Callable[[Event], object] = lambda event: None,
    random: Randomness = SYSTEM,
) -> Trained:
    """Run the rounds that are left, and write a checkpoint after each.

    Args:
        devices: who is asked.
        settings: of the federation.
        folder: where the server keeps checkpoint.npz; progress.jsonl, a `RoundReport` in JSON per line; and
            attempts.jsonl, a `FailedAttempt` per line.
        first: w_0; that of a linear ranker with zero weights if None.
        tell: called with everything that happens.
        random: where the server's noise comes from; only a simulation has anything but the operating system.
    """
    settings = private_settings(settings)
    check_update_size(model_of(settings))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = _State.load(folder, settings, _first(settings) if first is None else first)
    if state.done:
        tell(Event("resumed", f"resuming after round {state.done} of {settings.rounds}", state.done))
    drop_reports(folder / "progress.jsonl", state.done)
    while state.done < settings.rounds:
        report = _one_round(devices, state, tell, random)
        state.save()
        append(folder / "progress.jsonl", report)
        for event in report.events():
            tell(event)
    judged, cost = None, cost_of(settings, state.done)
    final = replace(state.server, weights=_stopped(devices, state, tell))
    if cost is not None:
        judged = noised_judgement(settings, state.server)
    elif settings.judge:
        task = replace(task_of(settings, state.done, final), train=False)
        judged = _answers(devices, state, task, devices.connected(), 1).judged  # whoever is there
    return Trained(final.weights, state.done, judged, cost)


def _stopped(devices: Devices, state: _State, tell: Callable[[Event], object]) -> Float32s:
    """The ranker after the last round; of one with trees, as many as held-out clicks speak for."""
    settings, ranker = state.settings, state.server.ranker
    kind = settings.algorithm().model
    if kind.kind not in TREES or not settings.judge or settings.secure_sums or settings.algorithm().privacy is not None:
        return ranker

    def found(candidate: Float32s, stable: Float32s) -> Comparison | None:
        return _judged_together(devices, state, candidate, stable, lambda event: None)

    kept, words = fewest_trees(ranker, settings.features, kind.depth, found)
    if words:
        tell(Event("trees", words, state.done))
    return kept


def compare(
    devices: Devices,
    settings: FederationSettings,
    folder: Path,
    candidate: Float32s,
    stable: Float32s,
    *,
    tell: Callable[[Event], object] = lambda event: None,
) -> Comparison | None:
    """What devices find that judge two rankers by the same held-out clicks; None if too few do.

    Args:
        devices: who is asked: all that are connected.
        settings: of the federation.
        folder: where the server keeps its state, which says how clicks are weighed.
        candidate: weights of the one ranker.
        stable: weights of the other.
        tell: called with everything that happens.
    """
    if settings.secure_sums:
        tell(Event("compared", "comparison: not possible with secure_sums, which show no device's own clicks"))
        return None
    if settings.algorithm().privacy is not None:
        tell(Event("compared", "comparison: none with privacy, whose budget covers training alone"))
        return None
    return _judged_together(devices, _State.load(folder, settings, _first(settings)), candidate, stable, tell)


def _judged_together(
    devices: Devices, state: _State, candidate: Float32s, stable: Float32s, tell: Callable[[Event], object]
) -> Comparison | None:
    """What all connected devices find that judge two rankers by the same held-out clicks; None if too few do."""
    settings, server = state.settings, replace(state.server, weights=candidate)
    task = replace(task_of(settings, state.done, server), train=False, judge=True, rival=stable)
    accepted, refused, silent = _ask(devices, task, _connected(devices, settings, tell), settings)
    counts = f"{len(accepted)} devices judged, {len(refused)} refused or were refused, {len(silent)} were silent"
    tell(Event("compared", f"comparison: {counts}"))
    return compared([accepted[client].sums["judged"] for client in sorted(accepted)])


def task_of(settings: FederationSettings, t: int, server: Server, training: int = 0) -> Task:
    """What devices are asked in round t, from 0."""
    algorithm = settings.algorithm()
    return Task(
        t,
        algorithm,
        broadcast(algorithm, server),
        settings.schema,
        settings.features,
        settings.displayed,
        judge=settings.judge,
        training=training,
    )


@dataclass(frozen=True, eq=False)
class _Answers:
    """What a cohort answered: rows of what was accepted, None if there is too little; the rest as in `RoundReport`."""

    rows: Sums | None
    judged: Judgement | None
    accepted: list[int]
    refused: dict[int, str]
    silent: list[int]
    answered: dict[int, float]
    why: str = ""
    liars: frozenset[int] = frozenset()


def _answers(devices: Devices, state: _State, task: Task, cohort: list[int], attempt: int) -> _Answers:
    """Ask a cohort, each device in the clear or all in a secure sum."""
    settings, least = state.settings, state.settings.waiting.least_replies
    if settings.secure_sums:
        found = ask_sum(devices, task, cohort, settings.waiting.timeout, state.start, attempt)
        who, total = (found.accepted, found.refused, found.silent, found.answered), found.total
        if total is None or len(found.accepted) < least:
            return _Answers(None, None, *who, found.why, found.liars)
        judged = of_sum(total["judged"], len(found.accepted)) if "judged" in total else None
        return _Answers({name: array[np.newaxis] for name, array in total.items()}, judged, *who)
    replies, refused, silent = _ask(devices, task, cohort, settings)
    told = [replies[client].sums["judged"] for client in sorted(replies) if "judged" in replies[client].sums]
    judged = combined(told) if told else None
    enough = len(replies) >= least and task.train
    rows = rows_of(task, replies) if enough else None
    return _Answers(rows, judged, sorted(replies), refused, silent, dict(devices.answered))


def _one_round(devices: Devices, state: _State, tell: Callable[[Event], object], random: Randomness) -> RoundReport:
    settings, before, begun = state.settings, state.server.weights, time.monotonic()
    waiting, spent, liars = settings.waiting, set[int](), set[int]()
    for attempt in range(1, waiting.attempts + 1):
        asked = time.monotonic()
        cohort = _cohort(devices, state, tell, spent, liars, attempt)
        task = task_of(settings, state.done, state.server, state.training)
        answers = _answers(devices, state, task, cohort, attempt)
        if answers.rows is not None:
            break
        failed = FailedAttempt(
            state.done + 1,
            attempt,
            waiting.attempts,
            round(time.time(), 3),
            waiting.least_replies,
            len(cohort),
            answers.accepted,
            answers.refused,
            answers.silent,
            answers.answered,
            round(time.monotonic() - asked, 3),
            answers.why,
        )
        spent.update(answers.accepted, answers.silent)
        liars.update(answers.liars)
        append(state.folder / "attempts.jsonl", failed)
        for event in failed.events():
            tell(event)
    else:
        few = f"fewer than {waiting.least_replies} devices sent a usable reply"
        raise FultrError(
            f"round {state.done + 1}: {f'no secure sum ({answers.why})' if answers.why else few} in "
            f"{waiting.attempts} attempts; earlier rounds are kept, and the same command resumes after them"
        )
    algorithm = settings.algorithm()
    trained = {name: rows for name, rows in answers.rows.items() if name != "judged"}
    private = algorithm.privacy is not None
    expected = settings.cohort if private else len(answers.accepted)
    model = model_of(settings)
    state.server = server_round(algorithm, model, state.server, trained, expected, random, summed=settings.secure_sums)
    state.done += 1
    state.repliers.append(sorted(spent.union(answers.accepted)))
    believed = broadcast(algorithm, state.server).estimation.get("pooled")
    return RoundReport(
        state.done,
        settings.rounds,
        len(cohort),
        answers.accepted,
        answers.refused,
        answers.silent,
        answers.answered,
        float(np.linalg.norm(state.server.weights - before)),
        noised_judgement(settings, state.server) if private else answers.judged,
        [] if believed is None else believed.tolist(),
        round(time.monotonic() - begun, 3),
        attempt,
        None if (cost := cost_of(settings, state.done)) is None else cost.as_mapping(),
    )


def _cohort(
    devices: Devices,
    state: _State,
    tell: Callable[[Event], object],
    spent: set[int],
    liars: set[int],
    attempt: int,
) -> list[int]:
    """The devices that are asked in the next round, once enough are connected; another cohort in each attempt.

    With privacy, those that answered an attempt which came to nothing have spent their part in the round, and so may
    those whose answer was lost have. Whoever lied in one is not asked in the next.
    """
    settings, t = state.settings, state.done
    there = [client for client in _connected(devices, settings, tell) if client not in liars]
    if (privacy := settings.algorithm().privacy) is not None:
        there = [client for client in willing(privacy, there, state.repliers) if client not in spent]
    if not settings.cohort or settings.cohort >= len(there):
        return there
    drawn = generator(settings.seed, Purpose.COHORT, t + _MOST_ROUNDS * (attempt - 1)).choice(
        len(there), settings.cohort, replace=False
    )
    return sorted(there[i] for i in drawn)


def _connected(devices: Devices, settings: FederationSettings, tell: Callable[[Event], object]) -> list[int]:
    """The devices that are connected, once there are enough."""
    waiting = settings.waiting
    deadline, told = time.monotonic() + waiting.patience, -1
    while len(there := devices.connected()) < waiting.least_devices:
        if len(there) != told:
            told = len(there)
            words = f"waiting for devices: {told} of {waiting.least_devices} are connected"
            tell(Event("waiting", words))
        if time.monotonic() > deadline:
            raise FultrError(
                f"{len(there)} of {waiting.least_devices} devices are connected after {waiting.patience:g} s; "
                "start more, or lower least_devices"
            )
        time.sleep(0.5)
    return there


def _ask(
    devices: Devices, task: Task, cohort: list[int], settings: FederationSettings
) -> tuple[dict[int, Reply], dict[int, str], list[int]]:
    """Replies that are accepted, why others are refused, and who was silent."""
    accepted, refused = {}, {}
    for client, reply in devices.ask(task, cohort, settings.waiting.timeout).items():
        why = reply if isinstance(reply, str) else objection(task, reply, Limits(settings.norm_limit))
        if why is None and isinstance(reply, Reply):
            accepted[client] = reply
        else:
            refused[client] = one_line(str(why))
    return accepted, refused, [client for client in cohort if client not in accepted and client not in refused]
