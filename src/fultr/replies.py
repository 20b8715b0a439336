"""What the server asks of a device in a round, what the device replies, and what the server accepts.

These are plain values and functions. In one process or over a network, the same functions make a reply from a device's
log and add replies up, in the order of the devices' numbers, so that the same logs give the same weights to the last
bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fultr.clicks import ClickLog
from fultr.client import LocalTraining, add_updates
from fultr.client_estimation import estimate_clients
from fultr.device_training import TrainingLog
from fultr.estimation import Broadcast, Estimator, Sums, no_sums
from fultr.linear import score
from fultr.policy import Display
from fultr.rounds import Collected, sum_bounds
from fultr.types import Float32s, Float64s


@dataclass(frozen=True, eq=False)
class Task:
    """What a device needs to know to take part in a round.

    Attributes:
        round: t, from 0.
        weights: w_t, float32 [features].
        displayed: K; what was displayed below counts neither for clicks nor for pairs.
        training: what it does with its clicks.
        propensity: what clicks are divided by: None for 1, one number a rank, or an estimator.
        sent: what the estimator needs to know.
        since: only impressions from then on, in seconds since 1970; None: all that the log has.
        until: only impressions before then.
        held_out: share of the impressions that is kept from training, to judge w_t by.
        seed: of the choice of held-out impressions.
        least_clicks: a device with fewer clicks sends no update.
        most_counted: the number of clicks is told up to this; 0: not at all.
    """

    round: int
    weights: Float32s
    displayed: int
    training: LocalTraining
    propensity: tuple[float, ...] | Estimator | None = None
    sent: Broadcast | None = None
    since: float | None = None
    until: float | None = None
    held_out: float = 0.0
    seed: int = 0
    least_clicks: int = 1
    most_counted: int = 100


@dataclass(frozen=True, eq=False)
class Reply:
    """All that leaves a device in a round.

    Attributes:
        round: t, as it was asked.
        update: float32 [features]; None if the device has too few clicks.
        clicks: how many it trained on, up to the limit; None if that is not told.
        sums: what its estimator of propensities sends; None if there is none, or too few clicks.
        judged: [3] over the held-out clicks, sums of their weights 1 / propensity, and of weight times gain with the
            documents ordered by w_t and as displayed; None if nothing is held out.
    """

    round: int
    update: Float32s | None
    clicks: int | None
    sums: Sums | None
    judged: Float64s | None


def reply_to(task: Task, records: TrainingLog) -> Reply:
    """What a device with these records replies: lines 4 to 9 of Algorithm 1 on its own log."""
    kept, held = records.split(task.held_out, task.seed) if task.held_out else (records, None)
    clicks = int(kept.log.clicks.sum())
    enough = clicks >= task.least_clicks
    sums, divisors = None, np.ones((1, 1, task.displayed))
    if isinstance(task.propensity, Estimator):
        assert task.sent is not None
        # Impressions without a click tell about examination too: they are counted unless more clicks are asked for.
        sums = no_sums(task.propensity, task.weights.size, task.displayed)
        divisors = estimate_clients(task.propensity, task.sent, kept.log, kept.display, sums)
        if not enough and task.least_clicks > 1:
            sums = None
    elif task.propensity is not None:
        divisors = np.array(task.propensity)[np.newaxis, np.newaxis]
    update = None
    if enough and clicks:
        total = np.zeros(task.weights.size)
        add_updates(kept.log, kept.display, divisors, task.weights, task.training, total)
        update = total.astype(np.float32)  # one device's: without loss
    judged = None
    if held is not None:
        judged = judge_order(task.weights, held.log, held.display, divisors.mean(axis=1)[0])
    told = min(clicks, task.most_counted) if task.most_counted else None
    return Reply(task.round, update, told, sums, judged)


def judge_order(weights: Float32s, log: ClickLog, display: Display, propensities: Float64s) -> Float64s:
    """How high a ranker puts what was clicked: sums over clicks, each with weight 1 / propensity of its rank.

    A clicked document at rank r gains 1 / log2(1 + r), so that 1 is best. Only displayed documents are ordered, those
    with equal scores as displayed.

    Returns:
        [3]: sum of weights, and of weight x gain in the ranker's order and in the displayed one.
    """
    result = np.zeros(3)
    if not log.queries.size:
        return result
    scores = score(display.features[:, : weights.size], weights[np.newaxis])[:, 0]
    shown = display.shown[log.queries]
    values = np.where(shown >= 0, scores[shown], -np.inf)
    order = np.argsort(-values, axis=1, kind="stable")
    ranks = np.argsort(order, axis=1) + 1
    weight = log.clicks / propensities
    result[0] = weight.sum()
    result[1] = (weight / np.log2(1 + ranks)).sum()
    result[2] = (weight / np.log2(1 + np.arange(1, shown.shape[1] + 1))).sum()
    return result


@dataclass(frozen=True)
class Limits:
    """What a reply must keep to.

    Attributes:
        norm: of an update, and of a gradient.
        impressions: of one device.
    """

    norm: float = 100.0
    impressions: float = 100_000


def objection(task: Task, reply: Reply, limits: Limits = Limits()) -> str | None:
    """Why a reply is refused, in words; None if it is not."""
    if reply.round != task.round:
        return f"it is about round {reply.round}, not {task.round}"
    if reply.update is not None:
        found = _objection_to("update", reply.update, task.weights.shape, np.float32, limits.norm)
        if found:
            return found
    if reply.clicks is not None and not 0 <= reply.clicks <= task.most_counted:
        return f"{reply.clicks} clicks, where 0 to {task.most_counted} are told"
    if reply.judged is not None:
        found = _objection_to("judgement", reply.judged, (3,), np.float64, np.inf)
        if found or not task.held_out:
            return found or "a judgement that was not asked for"
        weight, ranked, displayed = reply.judged
        if not (0 <= ranked <= weight * (1 + 1e-9) and 0 <= displayed <= weight * (1 + 1e-9)):
            return "a judgement above the best"
    if reply.sums is not None:
        return _objection_to_sums(task, reply.sums, limits)
    return None


def _objection_to_sums(task: Task, sums: Sums, limits: Limits) -> str | None:
    if not isinstance(task.propensity, Estimator):
        return "sums that were not asked for"
    for name, expected in vars(no_sums(task.propensity, task.weights.size, task.displayed)).items():
        bound = limits.norm * limits.impressions if name == "gradient" else np.inf
        found = _objection_to(name, getattr(sums, name), expected.shape, np.float64, bound)
        if found:
            return found
    if not (sums.impressions >= 0).all() or sums.impressions.max(initial=0) > limits.impressions:
        return f"impressions: expected at most {limits.impressions:g} a rank"
    slack = 1 + 1e-9
    if (sums.examined < 0).any() or (sums.examined > sums.impressions * slack).any():
        return "examined: expected between 0 and the impressions"
    made, shown = sums.pairs
    if (sums.pairs < 0).any() or (made > shown * slack).any() or shown.max(initial=0) > 100 * limits.impressions:
        return "pairs: expected clicks between 0 and impressions"
    return None


def _objection_to(
    name: str, values: Float32s | Float64s, shape: tuple[int, ...], dtype: type, norm: float
) -> str | None:
    if values.dtype != dtype or values.shape != shape:
        return f"{name}: expected {np.dtype(dtype)} {shape}, found {values.dtype} {values.shape}"
    if not np.isfinite(values).all():
        return f"{name}: not finite"
    length = float(np.linalg.norm(values.astype(np.float64).ravel()))
    if length > norm:
        return f"{name}: its norm is {length:.3g}, and {norm:g} is the limit"
    return None


def add_up(task: Task, replies: Mapping[int, Reply]) -> Collected:
    """Replies that were accepted, by the devices' numbers: their sum, always in the order of these."""
    ordered = [replies[client] for client in sorted(replies)]
    bounds = sum_bounds(len(ordered))
    totals = np.zeros((len(bounds), task.weights.size))
    estimator = task.propensity if isinstance(task.propensity, Estimator) else None
    added: Sums | None = None
    for i, (begin, end) in enumerate(bounds):
        part = None if estimator is None else no_sums(estimator, task.weights.size, task.displayed)
        for reply in ordered[begin:end]:
            if reply.update is not None:
                totals[i] += reply.update
            if part is not None and reply.sums is not None:
                part = part + reply.sums
        added = part if added is None or part is None else added + part
    repliers = sum(reply.update is not None for reply in ordered)
    return Collected(totals.sum(axis=0), repliers, added, np.zeros((5, task.displayed)))


@dataclass(frozen=True)
class Judgement:
    """How high clicked documents stand: mean gain over devices' held-out clicks, and its standard error.

    Attributes:
        ranked: in the order of w_t.
        displayed: in the order in which they were displayed.
        ranked_error: standard error over devices; None with fewer than two.
        displayed_error: likewise.
        devices: with held-out clicks.
    """

    ranked: float
    displayed: float
    ranked_error: float | None
    displayed_error: float | None
    devices: int


def combine_judgements(replies: Mapping[int, Reply]) -> Judgement | None:
    """The ratio of all devices' sums, each device as drawn from many; None without held-out clicks.

    >>> one, two = (Reply(0, None, None, None, np.array(sums)) for sums in ([2.0, 1.0, 1.0], [2.0, 2.0, 1.0]))
    >>> found = combine_judgements({1: one, 2: two})
    >>> found.ranked, found.displayed, round(found.ranked_error, 4), found.displayed_error
    (0.75, 0.5, 0.25, 0.0)
    """
    rows = [replies[client].judged for client in sorted(replies)]
    sums = np.array([row for row in rows if row is not None and row[0] > 0]).reshape(-1, 3)
    if not len(sums):
        return None
    weight = sums[:, 0].sum()
    means = sums[:, 1:].sum(axis=0) / weight
    left = sums[:, 1:] - means * sums[:, :1]
    n = len(sums)
    if n == 1:
        return Judgement(float(means[0]), float(means[1]), None, None, 1)
    errors = np.sqrt((left**2).sum(axis=0) * n / (n - 1)) / weight
    return Judgement(float(means[0]), float(means[1]), float(errors[0]), float(errors[1]), n)
