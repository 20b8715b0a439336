"""A device's answer to a task: made from its log, within its policy, and entered in its ledger before it leaves."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.core.errors import FultrError
from fultr.device.batches import Chosen, Shape, choose, close_batches, read_chosen
from fultr.device.ledger import (
    Asked,
    Entry,
    Moment,
    Outcome,
    complete,
    enter,
    move_clock,
    over_limit,
    over_participation,
    spoil,
)
from fultr.device.policy import DevicePolicy
from fultr.device.records import Window, read_window
from fultr.device.sqlite import clear_errors, open_file, transaction
from fultr.device.view import current_schema
from fultr.federated.messages import Reply, Task, check_said, check_task, least_divisor, reply_to
from fultr.federated.privacy.distributed import least_survivors
from fultr.federated.privacy.settings import noise_of
from fultr.federated.settings import Estimator
from fultr.rankers.schema import schema_digest


@dataclass(frozen=True)
class Refusal:
    """What is answered instead of a reply: always the same, whatever the reason. That is in the ledger.

    >>> Refusal() == Refusal()
    True
    """


REFUSAL = Refusal()


def answer(
    path: str | Path,
    task: Task,
    policy: DevicePolicy,
    *,
    run: int = 0,
    now: Moment | None = None,
    tell: Callable[[str], object] = lambda reason: None,
    admit: Callable[[sqlite3.Connection], str] | None = None,
    first: Callable[[sqlite3.Connection], None] | None = None,
) -> Reply | Refusal:
    """A device's answer to a task, from the closed batches of its log.

    Whatever keeps it from answering, it answers with the same `Refusal`.

    Args:
        path: of the log. How much that keeps, and how long, is for the application to say.
        task: what the device is asked.
        policy: what its owner lets it answer.
        run: the number of the run, as the server tells it: only entered in the ledger.
        now: what the clocks say; None: ask them.
        tell: called with the reason of a refusal, for the owner.
        admit: called in the transaction that enters the answer, if it will leave in a secure sum: says so in words, or
            refuses it by a `FultrError`. None: it will leave in the clear.
        first: called before that, in a transaction of its own: what it notes stays, whatever becomes of the task.
    """
    try:
        with closing(open_log(path)) as connection, clear_errors(Path(path)):
            return _answer(connection, Path(path), task, policy, run, now or Moment.now(), tell, admit, first)
    except Exception as error:  # of any kind: a server must not learn of it
        tell(str(error) if isinstance(error, FultrError) else f"{type(error).__name__}: {error}")
        return REFUSAL


def note_nonsense(path: str | Path, reason: str, *, run: int = 0, now: Moment | None = None) -> None:
    """Enter in the ledger that something came that is not a task."""
    with closing(open_log(path)) as connection, clear_errors(Path(path)):
        refuse(connection, now or Moment.now(), "not a task", reason, Asked(run))


def open_log(path: str | Path) -> sqlite3.Connection:
    """A connection to a log whose writes are on the disk when they are done: a power cut gives no answer away."""
    connection = open_file(Path(path).resolve(), create=False)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def refuse(connection: sqlite3.Connection, now: Moment, outcome: Outcome, reason: str, asked: Asked) -> None:
    """Enter in the ledger that there was no answer, and why."""
    with transaction(connection):
        enter(connection, Entry(now.time, outcome, reason, asked), move_clock(connection, now))


def _answer(
    connection: sqlite3.Connection,
    path: Path,
    task: Task,
    policy: DevicePolicy,
    run: int,
    now: Moment,
    tell: Callable[[str], object],
    admit: Callable[[sqlite3.Connection], str] | None,
    first: Callable[[sqlite3.Connection], None] | None,
) -> Reply | Refusal:
    asked = Asked(run)
    outcome: Outcome = "not a task"
    try:
        check_said(task)
        asked, outcome = asked_by(task, run), "refused"
        if first is not None:
            with transaction(connection):
                first(connection)
        shape = _shape(connection, path, task, policy)  # before anything that costs time
        outcome = "not a task"
        check_task(task)
        outcome = "refused"
        _check_willing(asked, task, policy)
        if admit is None and policy.only_sums:
            raise FultrError("the policy allows no answer in the clear")
        if admit is None and least_survivors(task.algorithm.privacy):
            raise FultrError("privacy: a vector with a share of the noise is not sent in the clear")
        with transaction(connection):
            note = "" if admit is None else admit(connection)
            number, training, held_out = _admitted(connection, task, policy, shape, asked, now, note)
    except FultrError as error:
        refuse(connection, now, outcome, str(error), asked)
        tell(str(error))
        return REFUSAL
    try:
        reply = _reply(connection, path, task, policy, shape, training, held_out)
    except Exception as error:
        spoil(connection, number, f"nothing was sent: {error or type(error).__name__}")
        raise
    complete(connection, number, reply.sums)
    return reply


def _reply(
    connection: sqlite3.Connection,
    path: Path,
    task: Task,
    policy: DevicePolicy,
    shape: Shape,
    training: Chosen | None,
    held_out: Chosen | None,
) -> Reply:
    """What is sent: with privacy, zeros if there is nothing to train on."""
    if training is None:
        none = read_window(
            connection,
            path,
            schema=shape.schema,
            width=shape.width,
            displayed=shape.displayed,
            window=Window(0, 0, 0, 0),
        )
        return reply_to(task, none, None)
    records = read_chosen(connection, path, training, shape, policy)
    judged_by = None if held_out is None else read_chosen(connection, path, held_out, shape, policy)
    reply = reply_to(task, records, judged_by, heaviest=1 / policy.least_propensity)
    return reply if task.algorithm.privacy else bounded(reply, training, held_out, policy)  # it has bounds of its own


def asked_by(task: Task, run: int = 0) -> Asked:
    """What a task asks for, in the policy's words; with privacy, a run that is resumed is the same run."""
    source = task.algorithm.propensity
    run = task.training if task.algorithm.privacy and task.training else run
    kinds = []
    if task.train:
        kinds += ["update", "examination"] if isinstance(source, Estimator) else ["update"]
        kinds += ["weights"] if task.algorithm.training.clip_rule != "given" else []
    if task.judge:
        kinds.append("judgement")
    return Asked(run, task.round, tuple(kinds), source.kind if isinstance(source, Estimator) else "")


def _check_willing(asked: Asked, task: Task, policy: DevicePolicy) -> None:
    for kind in asked.kinds:
        if kind not in policy.sends:
            raise FultrError(f"{kind}: is not sent, by the policy")
    if asked.estimator and asked.estimator not in policy.estimators:
        raise FultrError(f"estimator {asked.estimator}: is not used, by the policy")
    if task.algorithm.training.epochs > policy.most_epochs:
        raise FultrError(
            f"epochs: the task asks for {task.algorithm.training.epochs}, the policy allows {policy.most_epochs}"
        )
    smallest = least_divisor(task.algorithm)
    if smallest < policy.least_propensity:
        raise FultrError(f"propensity: {smallest:g} may occur, and {policy.least_propensity:g} is the least")
    privacy = task.algorithm.privacy
    added = privacy is not None and privacy.mode == "distributed"  # by devices themselves
    noise = noise_of(privacy) if privacy is not None and added else 0.0
    if noise < policy.least_noise:
        raise FultrError(f"privacy: devices add noise of multiplier {noise:g}, and {policy.least_noise:g} is the least")


def _shape(connection: sqlite3.Connection, path: Path, task: Task, policy: DevicePolicy) -> Shape:
    """Which impressions count, if the task's are of their kind."""
    schema, width, text = current_schema(path, connection)
    if schema_digest(text) != task.schema or width != task.features:
        raise FultrError("features: the task's are not the log's")
    longest = connection.execute("SELECT max(documents) FROM impressions WHERE schema = ?", (schema,)).fetchone()[0]
    displayed = policy.displayed or longest or (task.displayed if task.algorithm.privacy else None)
    if displayed is None:
        raise FultrError("the log has no impressions")
    if displayed != task.displayed:
        raise FultrError(f"displayed: the task counts {task.displayed} ranks, and the device {displayed}")
    return Shape(schema, width, displayed)


def _admitted(
    connection: sqlite3.Connection,
    task: Task,
    policy: DevicePolicy,
    shape: Shape,
    asked: Asked,
    now: Moment,
    note: str,
) -> tuple[int, Chosen | None, Chosen | None]:
    """Enter an answer, if there may be one; returns its number in the ledger, and what it is made from.

    With privacy, a device that has too little to train on sends zeros: whether it has is nobody's business.
    """
    ticks, privacy = move_clock(connection, now), task.algorithm.privacy
    most, apart = policy.participations, policy.rounds_apart
    if privacy is not None:
        most, apart = min(most, privacy.participations), max(apart, privacy.rounds_apart)
    reason = over_limit(connection, policy, ticks) or over_participation(connection, asked, most, apart)
    if reason is not None:
        raise FultrError(reason)
    try:
        training, held_out = choose(connection, "training", shape, policy), None
    except FultrError as error:
        if privacy is None:
            raise
        return enter(connection, Entry(now.time, "answered", f"zeros: {error}", asked), ticks), None, None
    if task.judge:
        try:
            held_out = choose(connection, "held out", shape, policy)
        except FultrError:
            if not task.train:
                raise  # else there is still an update, with a judgement of zeros
    used = [part for part in (training, held_out) if part is not None]
    for part in used:
        close_batches(connection, part)
    judged = held_out is not None or not task.judge
    entry = Entry(
        now.time,
        "answered",
        "; ".join(filter(None, (note, "" if judged else "without a judgement: too few held-out clicks"))),
        asked,
        impressions=sum(part.impressions for part in used),
        clicks=sum(part.clicks for part in used),
        batch=training.window.end_batch,
    )
    return enter(connection, entry, ticks), training, held_out


def bounded(reply: Reply, training: Chosen, held_out: Chosen | None, policy: DevicePolicy) -> Reply:
    """A reply within the policy's largest norm.

    The update is scaled down to it; the estimator's sums are, all by the same factor, so that none has a norm above the
    largest one times the impressions behind them; and so is the judgement, which keeps what it says of the rankers.
    """
    most = policy.largest_norm
    judged = {"judged": most * (held_out.impressions if held_out else 0)}
    beside = ("update", "trained", "judged")
    sums: dict[str, NDArray[Any]] = dict(reply.sums)
    for name, array in sums.items():
        if not np.isfinite(array).all():  # zeros: a refusal would tell for which weights that is so
            sums[name] = np.zeros_like(array)
    estimated = {name: most * training.impressions for name in sums if name not in beside}
    for limits in ({"update": most}, estimated, judged):
        there = {name: limit for name, limit in limits.items() if name in sums}
        norms = {name: float(np.linalg.norm(sums[name].astype(np.float64))) for name in there}
        factor = min((there[name] / norm for name, norm in norms.items() if norm > there[name]), default=1.0)
        if factor < 1.0:
            for name in there:
                sums[name] = (sums[name] * factor).astype(sums[name].dtype)
    return replace(reply, sums=sums)
