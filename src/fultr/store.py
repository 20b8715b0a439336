"""Finished runs, one file each, under a key made of everything that they depend on.

A file holds no time and no place: the same run gives the same bytes wherever, whenever and beside whatever it is done.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fultr.data import Splits
from fultr.datasets import load
from fultr.errors import FultrError
from fultr.files import make_folder, written_whole
from fultr.layouts import Sentinel
from fultr.runs import Result, RunSettings, cost, perform

_CHECKPOINT_SECONDS = 2  # about so long between two checkpoints of a run; shorter runs leave none


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, in a form that other processes and machines can follow.

    Attributes:
        where: its name or path, see `load`; so are fold, merge and sentinel.
        label: what it is called in figures and tables; "": the last part of `where`.
    """

    where: str
    label: str = ""
    fold: int = 1
    merge: bool = False
    sentinel: Sentinel = "auto"

    def __post_init__(self) -> None:
        path = Path(self.where).expanduser()
        if path.exists():  # other processes and machines may stand in other folders
            object.__setattr__(self, "where", str(path.absolute()))

    def __str__(self) -> str:
        return self.label or Path(self.where).name

    def load(self) -> Splits:
        """The data set; asked again, the same one, mapped from the cache and not copied."""
        return _loaded(self)

    def fingerprints(self) -> tuple[str, ...]:
        """What tells the data set's three parts from other data."""
        return tuple(part.fingerprint() for part in self.load())


@lru_cache(maxsize=4)
def _loaded(source: Source) -> Splits:
    return load(source.where, fold=source.fold, merge=source.merge, sentinel=source.sentinel)


@dataclass(frozen=True)
class Task:
    """One run to be done: its settings, seed and data, and the queries that it is measured on."""

    settings: RunSettings
    seed: int
    splits: tuple[str, ...]
    source: Source
    fingerprints: tuple[str, ...]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that the result depends on."""
        content = {
            "fultr": version("fultr"),
            "data": list(self.fingerprints),
            "settings": self.settings.relevant(),
            "seed": self.seed,
            "splits": list(self.splits),
        }
        return json.loads(json.dumps(content))

    @cached_property
    def key(self) -> str:
        """A name for the identity."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Store:
    """A folder of finished runs and of checkpoints of those under way."""

    folder: Path

    def load(self, task: Task) -> Result | None:
        """The result of a task; None if it is not there."""
        try:
            content = json.loads(self._file(task).read_text(encoding="utf-8"))
            if content["run"] != task.identity:
                return None
            ndcg = {split: np.array(values, np.float64) for split, values in content["ndcg"].items()}
            return Result(np.array(content["rounds"], np.int64), ndcg)
        except (OSError, ValueError, KeyError, TypeError):
            return None  # a damaged file is done anew

    def save(self, task: Task, result: Result) -> None:
        """Store a result; a kill at any moment leaves all of it or nothing."""
        content = {
            "run": task.identity,
            "rounds": result.rounds.tolist(),
            "ndcg": {split: values.tolist() for split, values in result.ndcg.items()},
        }
        with written_whole(self._file(task)) as temporary:
            temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")

    def checkpoint(self, task: Task) -> Path:
        """Where the task's run leaves its checkpoints."""
        return self.folder / f"{task.key}.checkpoint.npz"

    def _file(self, task: Task) -> Path:
        return self.folder / f"{task.key}.json"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep others from working in the same folder; released by the system when this process ends in any way."""
        make_folder(self.folder)
        with (self.folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise FultrError(
                    f"{self.folder}: another fultr is at work in this folder; see fultr reproduce --status"
                ) from None
            yield

    def is_busy(self) -> bool:
        """Is some process at work in this folder?"""
        try:
            with (self.folder / ".lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False


def do(task: Task, folder: Path) -> Result:
    """Do a task on one thread, from its checkpoint if it was interrupted, and store its result.

    On a machine that does not see the folder nothing is written: the result travels back to whoever asked for it.
    """
    store = Store(folder)
    here = folder.is_dir()
    stored = store.load(task) if here else None
    if stored is not None:
        return stored
    data = task.source.load()
    if task.source.fingerprints() != task.fingerprints:
        raise FultrError(f"{task.source.where}: the data differ from those that the work was planned with")
    seconds = cost(task.settings, data, task.splits)
    result = perform(
        task.settings,
        data,
        seed=task.seed,
        splits=task.splits,
        checkpoint=store.checkpoint(task) if here and seconds > _CHECKPOINT_SECONDS else None,
        checkpoint_every=max(1, int(task.settings.rounds * _CHECKPOINT_SECONDS / seconds)),
    )
    if here:
        store.save(task, result)
        store.checkpoint(task).unlink(missing_ok=True)
    return result
