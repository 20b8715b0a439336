"""Finished runs in compact files that can be kept beside the code: one Parquet file an experiment, a row a run.

A row has what the run depends on (data, settings, seed, version of fultr) and what it measured: the curve on test
queries, to the last bit; of runs that rates were chosen by, the last point on validation queries. Rows are sorted, so
that the same runs give the same bytes in whatever order they were done. Pages have checksums, and every row a digest of
what it says: a bit that changes is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fultr.core.errors import FultrError, one_line
from fultr.core.files import make_folder, written_whole
from fultr.study.origins import Origin
from fultr.study.run import Result
from fultr.study.store import Source, Task, run_key

_NUMBERS = pa.list_(pa.float64())
_SCHEMA = pa.schema(
    {
        "data": pa.string(),  # what the data set is called
        "fingerprints": pa.string(),  # of its parts, as JSON
        "fultr": pa.string(),  # version
        "settings": pa.string(),  # as JSON, those that make a difference
        "seed": pa.int64(),
        "split": pa.string(),  # "test" or "valid"
        "rounds": pa.list_(pa.int32()),
        "ndcg": _NUMBERS,
        "shown": _NUMBERS,  # what users were shown minus what the first logging policy shows; null: nothing
        "platform": pa.string(),  # that computed it; null: not recorded, as in older files
        "digest": pa.string(),  # of all the others; null: in older files
    }
)
_TEXTS = ["data", "fingerprints", "fultr", "settings", "split", "platform"]
_CURVES = ("ndcg", "shown")
_COUNTS = ["seed", "rounds.list.element"]
CURVES = "curves"  # no name for an experiment: what a report calls a Parquet file of its own
_MOST_NUMBERS = 5_000_000  # points of curves in a file: 100,000 runs of 50


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A finished run: what it depends on, and what it measured."""

    data: str
    fingerprints: tuple[str, ...]
    settings: Mapping[str, Any]
    seed: int
    split: str
    result: Result

    @classmethod
    def of(cls, task: Task, result: Result) -> SavedRun:
        """The run of a task, with as much of its result as judging needs."""
        identity, [split] = task.identity, task.splits
        keep = slice(None) if split == "test" else slice(-1, None)
        online = result.online if split == "test" else {}
        shown = {"shown": online["displayed"] - online["policy"]} if online else {}
        short = Result(result.rounds[keep], {split: result.ndcg[split][keep]}, shown, result.origin)
        return cls(str(task.source), task.fingerprints, identity["settings"], task.seed, split, short)

    def check(self) -> None:
        """Raise ValueError if it is none that could have been finished, or whose data have no name to print."""
        self.result.check(self.settings, last=self.split == "valid")
        name = one_line(self.data)
        if not name or name != self.data:
            raise ValueError(f"its data have no name that can be printed: {name!r}")

    @cached_property
    def key(self) -> str:
        """Its name, that of its task."""
        return run_key(self.settings, self.seed, (self.split,), self.fingerprints)


@dataclass(frozen=True)
class Saved:
    """The saved runs of one experiment, in a file that need not exist."""

    path: Path
    runs: Mapping[str, SavedRun] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, folder: Path, experiment: str) -> Saved:
        """The runs of an experiment that are saved in a folder."""
        path = folder / f"{experiment}.parquet"
        if not path.is_file():
            return cls(path)
        about = path.stat()
        return cls(path, _read(path, (about.st_mtime_ns, about.st_size, about.st_ino)))

    def load(self, task: Task) -> Result | None:
        """The result of a task; None if it is not there. Another version of fultr may have computed it."""
        run = self.runs.get(task.key)
        if run is None:
            return None
        shown = run.result.online.get("shown")
        online = {} if shown is None else {"displayed": shown, "policy": np.zeros_like(shown)}
        return replace(run.result, online=online)

    def sources(self, first: Iterable[str] = ()) -> list[Source]:
        """The data sets that there are runs of: those named first, then the others by name."""
        found = {run.data: Source(run.data, run.data, known=run.fingerprints) for run in self.runs.values()}
        names = [name for name in first if name in found]
        return [found[name] for name in (*names, *sorted(found.keys() - set(names)))]

    def add(self, runs: Iterable[SavedRun]) -> int:
        """Write these runs in addition to those that are there; how many are new."""
        every, prints = dict(self.runs), dict(self._prints)
        for run in runs:
            self._same(run.data, prints.setdefault(run.data, run.fingerprints), run.fingerprints)
            run.check()
            every[run.key] = run
        if every:
            make_folder(self.path.parent)
            _write(self.path, every)
        return len(every) - len(self.runs)

    def check_data(self, name: str, fingerprints: tuple[str, ...]) -> None:
        """Refuse data whose name other data have here."""
        self._same(name, self._prints.get(name, fingerprints), fingerprints)

    def _same(self, name: str, known: tuple[str, ...], found: tuple[str, ...]) -> None:
        if known != found:
            raise FultrError(
                f"{self.path}: has runs of other data called {name!r}; give the data another name "
                "(--data NAME=FOLDER), or remove the file"
            )

    @cached_property
    def _prints(self) -> dict[str, tuple[str, ...]]:
        return {run.data: run.fingerprints for run in self.runs.values()}


def saved_experiments(folder: Path) -> list[str]:
    """The experiments of which a folder has runs, and files that nothing can be said of, since they are damaged."""
    if not folder.is_dir():
        raise FultrError(f"{folder}: expected a folder of saved runs, found none")
    return sorted(path.stem for path in folder.glob("*.parquet") if not _is_other(path))


def _is_other(path: Path) -> bool:
    """Is a file a Parquet file of something else, such as the curves of a report?"""
    try:
        return not {"fingerprints", "settings", "seed", "split"} <= set(pq.read_schema(path).names)
    except (pa.ArrowException, OSError, ValueError):
        return False


def _write(path: Path, runs: Mapping[str, SavedRun]) -> None:
    def order(key: str) -> tuple[Any, ...]:
        run = runs[key]
        return run.data, run.split, json.dumps(dict(run.settings), sort_keys=True), run.seed

    rows = [_row(runs[key]) for key in sorted(runs, key=order)]
    with written_whole(path) as temporary:
        pq.write_table(
            pa.Table.from_pylist(rows, _SCHEMA),
            temporary,
            compression="zstd",
            compression_level=19,
            use_dictionary=_TEXTS,
            column_encoding=dict.fromkeys(_COUNTS, "DELTA_BINARY_PACKED")
            | {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in _CURVES},
            store_schema=False,
            write_page_checksum=True,
        )


def _row(run: SavedRun) -> dict[str, Any]:
    row = {
        "data": run.data,
        "fingerprints": json.dumps(list(run.fingerprints)),
        "fultr": run.result.origin.fultr,
        "settings": json.dumps(dict(run.settings), sort_keys=True),
        "seed": run.seed,
        "split": run.split,
        "rounds": run.result.rounds,
        "ndcg": run.result.ndcg[run.split],
        "shown": run.result.online.get("shown"),
        "platform": run.result.origin.platform or None,
    }
    return {**row, "digest": _digest(row)}


def _digest(row: Mapping[str, Any]) -> str:
    """A digest of all that a row says."""
    curves = [None if row[name] is None else np.asarray(row[name], np.float64).tobytes().hex() for name in _CURVES]
    words = [row[name] for name in (*_TEXTS, "seed")]
    content = json.dumps([words, np.asarray(row["rounds"]).tolist(), curves])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _length(lists: pa.ChunkedArray) -> int:
    """How many numbers a column of lists has in all."""
    return sum(len(chunk.flatten()) for chunk in lists.chunks)


@lru_cache(maxsize=64)
def _read(path: Path, state: tuple[int, ...]) -> Mapping[str, SavedRun]:
    """The runs of a file, which is read again when its state, from `stat`, is another."""
    try:
        table = pq.read_table(path, schema=_SCHEMA, page_checksum_verification=True)
        numbers = max(_length(table.column(name)) for name in ("rounds", *_CURVES))
        if numbers > _MOST_NUMBERS:  # a few bytes can stand for millions
            raise ValueError(f"it holds {numbers:,} numbers, expected at most {_MOST_NUMBERS:,}")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FultrError(f"{path}: cannot be read as saved runs: {str(error).splitlines()[0]}") from None
    runs: dict[str, SavedRun] = {}
    for number in range(table.num_rows):
        try:
            run = _run({name: table.column(name)[number].as_py() for name in _SCHEMA.names})
            if run.key in runs:
                raise ValueError("it is there twice")
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            raise FultrError(f"{path}: run {number}: cannot be read: {error}") from None
        runs[run.key] = run
    return runs


def _run(row: Mapping[str, Any]) -> SavedRun:
    if row["digest"] is not None and row["digest"] != _digest(row):
        raise ValueError("it is damaged: it is not what was written")
    prints, settings = _parsed(row["fingerprints"]), _parsed(row["settings"])
    whole = isinstance(prints, list) and isinstance(settings, dict)
    if not whole or row["split"] not in ("test", "valid") or None in (row["seed"], row["data"]):
        raise ValueError("its parts do not fit together")
    shown = {} if row["shown"] is None else {"shown": np.array(row["shown"], np.float64)}
    origin = Origin(row["fultr"] or "", row["platform"] or "")
    ndcg = {row["split"]: np.array(row["ndcg"], np.float64)}
    result = Result(np.array(row["rounds"], np.int64), ndcg, shown, origin)
    run = SavedRun(row["data"], tuple(prints), settings, row["seed"], row["split"], result)
    run.check()
    return run


@lru_cache(maxsize=10_000)
def _parsed(text: str) -> Any:
    """What a JSON text says; texts are few."""
    return json.loads(text)
