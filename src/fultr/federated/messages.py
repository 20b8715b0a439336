"""What the server asks of a device in a round, what the device replies, and what the server accepts.

These are plain values and functions. In one process or over a network, the same functions make a reply from a device's
records and put replies into the order of the devices' numbers, so that the same logs give the same weights to the last
bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.clicks.log import Records
from fultr.core.arrays import Float32s
from fultr.core.checks import SettingError, check_number
from fultr.core.errors import FultrError, one_line
from fultr.federated.fedips import Broadcast, Server, broadcast, client_round, judgement, nothing
from fultr.federated.privacy.private import vector_objection
from fultr.federated.privacy.randomness import Words, system_words
from fultr.federated.privacy.settings import noise_of
from fultr.federated.privacy.stage import Sums, stage_of
from fultr.federated.settings import Estimator, FedIPS, check_ranks
from fultr.rankers.model import Model, model_named
from fultr.rankers.plain import MOST_WEIGHTS, plain_size

_LARGEST_MARGINAL = 700.0  # logarithms of likelihoods, which are kept at 1e-300 or above
_BETWEEN = {
    **dict.fromkeys(("pooled", "grid", "priors", "chosen", "constants"), (0.0, 1.0)),
    "credit clip": (0.0, np.inf),
}
"""What a server can send, where names say that it is probabilities: with others, what a device expects of a document is
no probability either, and one impression could outweigh all the others in its sums."""

_SHOWN = 40  # characters of a type: one with fields can be of any length


@dataclass(frozen=True, eq=False)
class Task:
    """What a device needs to know to take part in a round.

    Which of its impressions an answer is made from is not for the server to say: a device decides that itself, see
    `fultr.device.policy`.

    Attributes:
        round: t, from 0.
        algorithm: what it does with its clicks.
        sent: what the server broadcast, w_t included.
        schema: digest of the features, see `schema_digest`: a device whose log has others does not take part.
        features: of a document.
        displayed: K.
        train: is an update asked for, with the estimator's sums?
        judge: is a judgement of w_t by held-out clicks asked for?
        rival: weights of a second ranker, to be judged by the same clicks.
        training: a number of the training, which stays the same if that is interrupted and resumed; by it a device
            counts how often it took part. 0: there is none.
    """

    round: int
    algorithm: FedIPS
    sent: Broadcast
    schema: str
    features: int
    displayed: int
    train: bool = True
    judge: bool = False
    rival: Float32s | None = None
    training: int = 0

    @property
    def model(self) -> Model:
        """Of the ranker."""
        return model_named(self.algorithm.model, self.features)

    def arrays(self) -> dict[str, tuple[tuple[int, ...], type]]:
        """All that a reply holds, by name: its shape and type."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.train:
            sums = nothing(self.algorithm, self.model, self.displayed, judge=self.judge)
            shapes = {name: rows.shape[1:] for name, rows in sums.items()}
        if self.judge and self.algorithm.privacy is None:
            shapes["judged"] = (3,) if self.rival is None else (4,)
        return {name: (shape, np.float32 if name == "update" else np.float64) for name, shape in shapes.items()}


def check_update_size(model: Model) -> None:
    """Refuse a model whose clients would send too much; memory for it is not asked for.

    >>> check_update_size(model_named("histogram-trees", 10**5))
    Traceback (most recent call last):
    fultr.core.checks.SettingError: model: expected updates of at most 1,000,000 numbers, found 25,600,000
    """
    if model.update_size > MOST_WEIGHTS:
        found = f"{model.update_size:,}"
        raise SettingError("model", f"expected updates of at most {MOST_WEIGHTS:,} numbers, found {found}")


def check_said(task: Task) -> None:
    """Refuse a task whose plain values cannot be one's; that costs nothing, whatever they are: not even weights."""
    check_number("round", task.round, least=0, most=2**53, whole=True)
    check_number("features", task.features, least=1, most=10**6, whole=True)
    check_number("displayed", task.displayed, least=1, most=1000, whole=True)
    plain_size(task.algorithm.model, task.features)
    check_update_size(task.model)
    if not isinstance(task.schema, str):
        raise FultrError("schema: expected a digest")
    for name, asked in (("train", task.train), ("judge", task.judge)):
        if not isinstance(asked, bool):
            raise FultrError(f"{name}: expected true or false")
    if not (task.train or task.judge) or (task.rival is not None and not task.judge):
        raise FultrError("the task asks for nothing")
    check_number("training", task.training, least=0, most=2**53, whole=True)


def check_task(task: Task) -> None:
    """Refuse a task that cannot be one: compiled code reads what was sent without looking at its length again."""
    check_said(task)
    check_ranks(task.algorithm.training, task.algorithm.propensity, task.displayed)
    if task.algorithm.privacy is not None:
        if not task.train or task.rival is not None:
            raise FultrError("privacy: a judgement without an update is not accounted for")
        noise_of(task.algorithm.privacy)
    sent = {"weights": task.sent.weights, **task.sent.estimation}
    sent |= {f"stage {name}": array for name, array in task.sent.stage.items()}
    sent |= {f"credit {name}": array for name, array in task.sent.credit.items()}
    wanted = dict(_sent_arrays(task.algorithm, task.features, task.displayed))
    if task.rival is not None:
        sent["rival"], wanted["rival"] = task.rival, wanted["weights"]
    if sent.keys() != wanted.keys():
        raise FultrError(f"the task has {', '.join(sorted(sent))} instead of {', '.join(sorted(wanted))}")
    for name, values in sent.items():
        found = _objection_to(name, values, *wanted[name], np.inf)
        if found:
            raise FultrError(found)
        if name in _BETWEEN and not ((values >= _BETWEEN[name][0]) & (values <= _BETWEEN[name][1])).all():
            least, most = _BETWEEN[name]
            raise FultrError(f"{name}: expected numbers from {least:g} to {most:g}")
    if "constants" in sent and not (sent["constants"][0] <= sent["constants"][1]).all():
        raise FultrError("constants: expected clicks on relevant documents to be the likelier ones")


@lru_cache(maxsize=8)
def _sent_arrays(algorithm: FedIPS, features: int, displayed: int) -> dict[str, tuple[tuple[int, ...], type]]:
    """What the server sends, by name: shape and type."""
    model = model_named(algorithm.model, features)
    sent = broadcast(algorithm, Server.initial(algorithm, model, np.zeros(model.size, np.float32), displayed))
    arrays = {"weights": sent.weights, **sent.estimation}
    arrays |= {f"stage {name}": array for name, array in sent.stage.items()}
    arrays |= {f"credit {name}": array for name, array in sent.credit.items()}
    return {name: (array.shape, array.dtype.type) for name, array in arrays.items()}


@dataclass(frozen=True, eq=False)
class Reply:
    """All that leaves a device in a round.

    Attributes:
        round: t, as it was asked.
        sums: by name, see `Task.arrays`: "update", float32; "trained", whether it had any credit; what its estimator of
            examination sends; "weighed", what a clip is chosen by; "judged", see `judge_order`, zero without enough
            held-out clicks.
    """

    round: int
    sums: Mapping[str, NDArray[Any]]


def reply_to(
    task: Task,
    records: Records,
    held_out: Records | None,
    words: Words = system_words,
    heaviest: float = np.inf,
) -> Reply:
    """What a device with these records replies: lines 4 to 9 of Algorithm 1 on its own log.

    Args:
        task: what it was asked.
        records: what it trains on.
        held_out: what it judges the ranker by, if it is asked to and has enough.
        words: where its own noise comes from.
        heaviest: the largest weight of a click in training, whatever the task says.
    """
    total = {name: np.zeros((1, *shape)) for name, (shape, _) in task.arrays().items()}
    if task.train:
        judged_by = held_out if task.judge else None
        client_round(
            task.algorithm,
            task.model,
            task.sent,
            records,
            total,
            held_out=judged_by,
            rival=task.rival,
            judge=task.judge,
            draws=[words],
            heaviest=heaviest,
        )
    elif held_out is not None:
        total["judged"] += judgement(task.algorithm, task.model, task.sent, records, held_out, task.rival)
    sums = {name: rows[0] for name, rows in total.items()}
    if "update" in sums:
        sums["update"] = sums["update"].astype(np.float32)  # one device's: without loss
    return Reply(task.round, sums)


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
    """Why a reply is refused, in words; None if it is not. Anything may be in a reply."""
    if type(reply.round) is not int or abs(reply.round - task.round) > 10**18:
        return f"it is not about round {task.round}"
    if reply.round != task.round:
        return f"it is about round {reply.round}, not {task.round}"
    wanted, sums = task.arrays(), reply.sums
    if not isinstance(sums, Mapping) or not all(isinstance(name, str) for name in sums):
        return "it holds no named arrays"
    if unknown := sorted(set(sums) - set(wanted)):
        return f"{one_line(unknown[0], _SHOWN)}: not asked for"
    if missing := sorted(set(wanted) - set(sums)):
        return f"{missing[0]}: missing"
    norms = {"update": limits.norm, "gradient": limits.norm * limits.impressions}
    for name, values in sums.items():
        found = _objection_to(name, values, *wanted[name], norms.get(name, np.inf))
        if found:
            return found
    if "vector" in sums:
        return vector_objection(stage_of(task.algorithm.stage), sums["vector"])
    return _objection_to_counts(task, sums, limits)


def _objection_to_counts(task: Task, sums: Mapping[str, NDArray[Any]], limits: Limits) -> str | None:
    """Why counts cannot be what a device counted."""
    slack = 1 + 1e-9
    if "trained" in sums and not 0 <= sums["trained"][0] <= 1:
        return f"trained: expected 0 to 1, found {sums['trained'][0]:g}"
    if "judged" in sums:
        weight, *gains = sums["judged"]
        heaviest = limits.impressions * task.displayed / least_propensity(task.algorithm) * slack
        if weight > heaviest:
            return f"judged: clicks of weight {weight:.3g} in all, and {heaviest:.3g} is the limit"
        if not all(0 <= gain <= weight * slack for gain in gains):
            return "a judgement above the best"
    if "impressions" in sums:
        shown = sums["impressions"]
        if not (shown >= 0).all() or shown.max(initial=0) > limits.impressions:
            return f"impressions: expected at most {limits.impressions:g} per rank"
        if (sums["examined"] < 0).any() or (sums["examined"] > shown * slack).any():
            return "examined: expected between 0 and the impressions"
    if "weighed" in sums:
        most = limits.impressions * task.displayed
        if (sums["weighed"] < 0).any() or sums["weighed"].sum() > most:
            return f"weighed: expected numbers of at least 0, of at most {most:g} in all"
    if "marginals" in sums and np.abs(sums["marginals"]).max(initial=0) > _LARGEST_MARGINAL:
        return f"marginals: expected numbers from -{_LARGEST_MARGINAL:g} to {_LARGEST_MARGINAL:g}"
    if "affine" in sums:
        shown, clicked, relevant, both = sums["affine"]
        ordered = (both <= np.minimum(clicked, relevant) * slack) & (np.maximum(clicked, relevant) <= shown * slack)
        if (both < 0).any() or not ordered.all() or shown.max(initial=0) > limits.impressions:
            return "affine: expected clicks of relevant documents within clicks, and those within impressions"
    if "pairs" in sums:
        made, shown = sums["pairs"]
        over = shown.max(initial=0) > 100 * limits.impressions
        if over or (sums["pairs"] < 0).any() or (made > shown * slack).any():
            return "pairs: expected clicks between 0 and impressions"
    return None


def least_propensity(algorithm: FedIPS) -> float:
    """A click counts 1 / propensity: the smallest that a device may divide by."""
    source = algorithm.propensity
    if isinstance(source, Estimator):
        return source.estimate_floor
    return 1.0 if isinstance(source, str) else min(source)


def least_divisor(algorithm: FedIPS) -> float:
    """The least that a click is divided by in training: with affine credit, less than its propensity.

    With policy-aware credit, what a click is divided by depends on the versions that display its document, which the
    device knows and a task does not: see `heaviest` of `reply_to`.

    >>> from fultr.federated.settings import LocalTraining
    >>> training = LocalTraining(credit="affine", credit_other=0.25)
    >>> least_divisor(FedIPS(training, propensity=(1.0, 0.5)))
    0.375
    """
    training, least = algorithm.training, least_propensity(algorithm)
    if training.credit != "affine" or (isinstance(algorithm.propensity, Estimator) and algorithm.propensity.constants):
        return least  # where the estimator has constants, the divisor is what it keeps at the floor
    return least * min(np.subtract(training.credit_relevant, training.credit_other).tolist())


def _objection_to(name: str, values: Any, shape: tuple[int, ...], dtype: type, norm: float) -> str | None:
    if type(values) is not np.ndarray:
        return f"{name}: expected an array"
    if values.dtype != dtype or values.shape != shape:
        return f"{name}: expected {np.dtype(dtype)} {shape}, found {str(values.dtype)[:_SHOWN]} {values.shape}"
    if not np.isfinite(values).all():
        return f"{name}: not finite"
    with np.errstate(over="ignore"):  # beyond every limit
        length = float(np.linalg.norm(values.astype(np.float64).ravel()))
    if length > norm:
        return f"{name}: its norm is {length:.3g}, and {norm:g} is the limit"
    return None


def rows_of(task: Task, replies: Mapping[int, Reply]) -> Sums:
    """Replies that were accepted, by the devices' numbers: a row each, always in the order of these."""
    rows = nothing(task.algorithm, task.model, task.displayed, len(replies), judge=task.judge)
    for i, client in enumerate(sorted(replies)):
        for name, array in replies[client].sums.items():
            if name in rows:
                rows[name][i] = array
    rows.pop("judged", None)  # it is combined by other rules
    return rows
