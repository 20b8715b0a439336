"""Tasks and replies as Flower's records, and back. What is not named here does not travel."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from fultr.client import LocalTraining
from fultr.estimation import SENT, Broadcast, Estimator, Sums, no_sums
from fultr.replies import Reply, Task

_TRAINING = ("learning_rate", "loss", "metric", "epochs")
_ESTIMATOR = ("kind", "start", "iterations", "floor", "cross_fit", "memory")
_SCALARS = ("round", "displayed", "held_out", "seed", "least_clicks", "most_counted")
_FAILURES = ("the device's log cannot be used", "training failed")


def task_record(task: Task) -> RecordDict:
    """What the server sends to a device."""
    arrays: dict[str, NDArray[Any]] = {"weights": task.weights}
    config: dict[str, Any] = {name: getattr(task, name) for name in _SCALARS}
    config |= {f"training_{name}": getattr(task.training, name) for name in _TRAINING}
    for name, value in (("since", task.since), ("until", task.until), ("clip", task.training.clip)):
        if value is not None:
            config[name] = float(value)
    if isinstance(task.propensity, Estimator):
        config |= {f"estimator_{name}": getattr(task.propensity, name) for name in _ESTIMATOR}
        arrays |= {f"sent_{name}": value for name, value in vars(task.sent).items()}
    elif task.propensity is not None:
        arrays["propensity"] = np.array(task.propensity)
    return RecordDict({"arrays": _pack(arrays), "task": ConfigRecord(config)})


def read_task(content: RecordDict) -> Task:
    """What a device was sent."""
    arrays, config = _unpack(content.array_records["arrays"]), dict(content.config_records["task"])
    training = LocalTraining(
        **{name: config[f"training_{name}"] for name in _TRAINING},  # type: ignore[arg-type]
        clip=config.get("clip"),  # type: ignore[arg-type]
    )
    propensity: Any = None
    sent = None
    if "estimator_kind" in config:
        propensity = Estimator(**{name: config[f"estimator_{name}"] for name in _ESTIMATOR})  # type: ignore[arg-type]
        sent = Broadcast(**{field.name: arrays[f"sent_{field.name}"] for field in fields(Broadcast)})
    elif "propensity" in arrays:
        propensity = tuple(arrays["propensity"].tolist())
    scalars: dict[str, Any] = {name: config[name] for name in _SCALARS}
    return Task(
        weights=arrays["weights"],
        training=training,
        propensity=propensity,
        sent=sent,
        since=config.get("since"),  # type: ignore[arg-type]
        until=config.get("until"),  # type: ignore[arg-type]
        **scalars,
    )


def reply_record(task: Task, reply: Reply) -> RecordDict:
    """What a device sends: its update, its estimator's sums, and a few numbers."""
    arrays: dict[str, NDArray[Any]] = {}
    if reply.update is not None:
        arrays["update"] = reply.update
    if reply.judged is not None:
        arrays["judged"] = reply.judged
    if reply.sums is not None and isinstance(task.propensity, Estimator):
        arrays |= {f"sums_{name}": getattr(reply.sums, name) for name in SENT[task.propensity.kind]}
    config: dict[str, Any] = {"round": reply.round}
    if reply.clicks is not None:
        config["clicks"] = reply.clicks
    return RecordDict({"arrays": _pack(arrays), "reply": ConfigRecord(config)})


def failure_record(because_of_the_log: bool) -> RecordDict:
    """What a device sends that could not train: one of two sentences, never a cause that may quote its log."""
    return RecordDict({"failed": ConfigRecord({"why": _FAILURES[0 if because_of_the_log else 1]})})


def read_reply(task: Task, content: RecordDict) -> Reply | str:
    """What a device sent, or in words why it is of no use; anything may have arrived."""
    try:
        if "failed" in content:
            why = content.config_records["failed"].get("why")
            return why if why in _FAILURES else "it failed"
        arrays, config = _unpack(content.array_records["arrays"]), content.config_records["reply"]
        allowed = {"update", "judged"}
        sums = None
        if isinstance(task.propensity, Estimator):
            names = SENT[task.propensity.kind]
            allowed |= {f"sums_{name}" for name in names}
            if any(f"sums_{name}" in arrays for name in names):
                empty = vars(no_sums(task.propensity, task.weights.size, task.displayed))
                sums = Sums(**{**empty, **{name: arrays[f"sums_{name}"] for name in names}})
        if set(arrays) - allowed or set(content) != {"arrays", "reply"}:
            return "it sent what was not asked for"
        round_, clicks = config["round"], config.get("clicks")
        if type(round_) is not int or not (clicks is None or type(clicks) is int):
            return "its numbers are not whole numbers"
        return Reply(round_, arrays.get("update"), clicks, sums, arrays.get("judged"))
    except Exception as error:
        return f"its reply cannot be read ({type(error).__name__})"


def _pack(arrays: dict[str, NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.ascontiguousarray(value)) for name, value in arrays.items()})


def _unpack(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    return {name: array.numpy() for name, array in record.items()}
