"""Tasks and replies as Flower's records, and back. What is not named here does not travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from fultr.core.settings import build, flatten, leaves
from fultr.federated.fedips import Broadcast
from fultr.federated.messages import Reply, Task, check_task
from fultr.federated.settings import FedIPS, ServerOptimiser

_SCALARS = ("round", "features", "displayed", "held_out", "seed", "least_clicks", "most_counted")
_FAILURES = ("the device's log cannot be used", "training failed")
_KNOWN = leaves(FedIPS)
_SERVERS_OWN = {*leaves(ServerOptimiser), "pairs", "initial", "average_over"}  # of FedIPS; clients have no use for them


def task_record(task: Task) -> RecordDict:
    """What the server sends to a device."""
    arrays: dict[str, NDArray[Any]] = {"weights": task.sent.weights}
    arrays |= {f"estimation_{name}": value for name, value in task.sent.estimation.items()}
    arrays |= {f"stage_{name}": value for name, value in task.sent.stage.items()}
    config: dict[str, Any] = {name: getattr(task, name) for name in _SCALARS}
    for name, value in flatten(task.algorithm).items():
        if name not in _SERVERS_OWN:
            config[f"algorithm_{name}"] = _KNOWN[name].write(value)
    for name, time in (("since", task.since), ("until", task.until)):
        if time is not None:
            config[name] = float(time)
    return RecordDict({"arrays": _pack(arrays), "task": ConfigRecord(config)})


def read_task(content: RecordDict) -> Task:
    """What a device was sent; what is wrong with it is an error."""
    arrays, config = _unpack(content.array_records["arrays"]), dict(content.config_records["task"])
    scalars: dict[str, Any] = {name: config[name] for name in _SCALARS}
    task = Task(
        algorithm=build(FedIPS, _named(config, "algorithm_")),
        sent=Broadcast(arrays["weights"], _named(arrays, "estimation_"), _named(arrays, "stage_")),
        since=config.get("since"),  # type: ignore[arg-type]
        until=config.get("until"),  # type: ignore[arg-type]
        **scalars,
    )
    check_task(task)
    return task


def _named(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def reply_record(reply: Reply) -> RecordDict:
    """What a device sends: named arrays, and the round that they belong to."""
    return RecordDict({"arrays": _pack(dict(reply.sums)), "reply": ConfigRecord({"round": reply.round})})


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
        if set(arrays) - set(task.arrays()) or set(content) != {"arrays", "reply"}:
            return "it sent what was not asked for"
        if type(config["round"]) is not int:
            return "its round is not a whole number"
        return Reply(config["round"], arrays)
    except Exception as error:
        return f"its reply cannot be read ({type(error).__name__})"


def _pack(arrays: dict[str, NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.ascontiguousarray(value)) for name, value in arrays.items()})


def _unpack(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    arrays = {name: array.numpy() for name, array in record.items()}
    if not all(type(array) is np.ndarray for array in arrays.values()):
        raise TypeError("expected arrays")  # NumPy reads an archive of arrays without a word too
    return arrays
