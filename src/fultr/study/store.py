"""Finished runs, one file each, under a key derived from everything that they depend on.

A file holds no times and no host names: on the same platform a run gives the same bytes wherever and whenever it is
done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fultr.core.errors import FultrError
from fultr.core.files import locked, make_folder, written_whole
from fultr.core.locks import lock
from fultr.core.settings import leaves
from fultr.data.layouts import Sentinel, title_of
from fultr.data.load import load
from fultr.data.ranking import Splits
from fultr.study.origins import Origin, this_version
from fultr.study.run import Result, cost, perform_all
from fultr.study.settings import RunSettings

_CHECKPOINT_SECONDS = 2  # between two checkpoints of a run, roughly; shorter runs write none


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, in a form that other processes and machines can follow.

    Attributes:
        where: its name or path; see `load`, also for fold, merge and sentinel.
        label: what it is called in figures and tables; "": the last part of `where`, see `title_of`.
        known: its fingerprints, where they are known without the data, as for saved runs.
    """

    where: str
    label: str = ""
    fold: int = 1
    merge: bool = False
    sentinel: Sentinel = "auto"
    known: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.known:
            return
        with suppress(OSError, RuntimeError, ValueError):  # no such user, or no path at all: `load` says so
            path = Path(self.where).expanduser()
            if path.exists():  # other processes may have other working directories
                object.__setattr__(self, "where", str(path.absolute()))

    def __str__(self) -> str:
        return self.label or title_of(self.where)

    def load(self) -> Splits:
        """The data set; later calls return the same object, mapped from the cache and not copied."""
        return _loaded(self)

    def fingerprints(self) -> tuple[str, ...]:
        """What distinguishes the data set's three parts from other data."""
        return self.known or tuple(part.fingerprint() for part in self.load())


@lru_cache(maxsize=4)
def _loaded(source: Source) -> Splits:
    return load(source.where, fold=source.fold, merge=source.merge, sentinel=source.sentinel)


@lru_cache
def _defaults() -> dict[str, Any]:
    return json.loads(json.dumps({name: leaf.default for name, leaf in leaves(RunSettings).items()}))


def run_key(settings: Mapping[str, Any], seed: int, splits: Sequence[str], fingerprints: Sequence[str]) -> str:
    """A name for a run: two that are the same have the same.

    Settings that have their default value make no difference to it, so that runs stay what they are when a new setting
    comes, whose default is what was done before.

    >>> run_key({"gamma": 1.0, "k": 10}, 0, ["test"], []) == run_key({"k": 10}, 0, ["test"], [])
    True
    """
    defaults, absent = _defaults(), object()
    told = {name: value for name, value in settings.items() if value != defaults.get(name, absent)}
    content = [told, seed, list(splits), list(fingerprints)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _is_same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Are two runs the same? Settings that the one found does not know must have their defaults."""
    settings = {**{name: _defaults()[name] for name in wanted["settings"]}, **found["settings"]}
    return {**found, "settings": settings} == wanted


@dataclass(frozen=True)
class Task:
    """One run to do: its settings, seed and data, and the queries it is measured on."""

    settings: RunSettings
    seed: int
    splits: tuple[str, ...]
    source: Source
    fingerprints: tuple[str, ...]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that the result depends on."""
        content = {
            "fultr": this_version(),
            "data": list(self.fingerprints),
            "settings": self.settings.relevant(),
            "seed": self.seed,
            "splits": list(self.splits),
        }
        return json.loads(json.dumps(content))

    @cached_property
    def key(self) -> str:
        """A name for the run, see `run_key`."""
        return run_key(self.identity["settings"], self.seed, self.splits, self.fingerprints)


@dataclass(frozen=True)
class Store:
    """A folder of finished runs, and of checkpoints of unfinished ones."""

    folder: Path

    def load(self, task: Task) -> Result | None:
        """The result of a task; None if there is none."""
        try:
            content = json.loads(self._file(task).read_text(encoding="utf-8"))
            if not _is_same(content["run"], task.identity):
                return None
            ndcg = {split: np.array(values, np.float64) for split, values in content["ndcg"].items()}
            online = {name: np.array(values, np.float64) for name, values in content["online"].items()}
            origin = Origin(str(content["run"]["fultr"]), str(content.get("platform", "")))
            result = Result(np.array(content["rounds"], np.int64), ndcg, online, origin)
            if ndcg.keys() != set(task.splits) or (online and online.keys() != {"displayed", "policy"}):
                return None
            result.check(task.identity["settings"])
            return result
        except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
            return None  # the run of a damaged file is repeated

    def save(self, task: Task, result: Result) -> None:
        """Store a result; a kill at any moment leaves all of it or nothing."""
        content = {
            "run": task.identity,
            "rounds": result.rounds.tolist(),
            "ndcg": {split: values.tolist() for split, values in result.ndcg.items()},
            "online": {name: values.tolist() for name, values in result.online.items()},
            "platform": result.origin.platform,
        }
        with written_whole(self._file(task)) as temporary:
            temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")

    def checkpoint(self, task: Task) -> Path:
        """Where the task's run writes its checkpoints."""
        return self.folder / f"{task.key}.checkpoint.npz"

    def _file(self, task: Task) -> Path:
        return self.folder / f"{task.key}.json"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep others from working in the same folder; the system releases the lock however this process ends."""
        make_folder(self.folder)
        busy = f"{self.folder}: another fultr process is using this folder; see fultr reproduce --status"
        with locked(self.folder / ".lock", busy):
            yield

    def is_busy(self) -> bool:
        """Is a process working in this folder?"""
        try:
            with (self.folder / ".lock").open("r+") as file:
                return not lock(file)
        except FileNotFoundError:
            return False
        except OSError:
            return True


def do(tasks: Sequence[Task], folder: Path) -> list[Result]:
    """Do tasks on the same data side by side, on one thread, from checkpoints if they were interrupted; store results.

    On a machine that cannot see the folder nothing is written: the results are returned to the caller.
    """
    store, first = Store(folder), tasks[0]
    here = folder.is_dir()
    found = {task.key: stored for task in tasks if here and (stored := store.load(task)) is not None}
    missing = [task for task in tasks if task.key not in found]
    if missing:
        data = first.source.load()
        if first.source.fingerprints() != first.fingerprints:
            raise FultrError(f"{first.source.where}: the data differ from those on the machine that started the work")
        seconds = sum(cost(task.settings, data, task.splits, beside=i > 0) for i, task in enumerate(missing))
        writes = here and seconds > _CHECKPOINT_SECONDS
        for i, result in perform_all(
            [task.settings for task in missing],
            data,
            seed=first.seed,
            splits=first.splits,
            checkpoints=[store.checkpoint(task) if writes else None for task in missing],
            checkpoint_every=max(1, round(first.settings.rounds * _CHECKPOINT_SECONDS / seconds)),
        ):
            task = missing[i]
            found[task.key] = result
            if here:
                store.save(task, result)
                store.checkpoint(task).unlink(missing_ok=True)
    return [found[task.key] for task in tasks]
