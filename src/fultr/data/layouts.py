"""The folder layouts of public data sets.

Memory: `load_path` needs the feature arrays once; filtering and normalising work in place. A single file is copied
when it is split, which takes its feature array once more.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fultr.core.compressed import SUFFIXES, unpack
from fultr.core.errors import FultrError
from fultr.data.cache import cached, file_identity
from fultr.data.letor.reader import read_letor_files
from fultr.data.ranking import RankingData, Splits

PARTS = ("train", "valid", "test")
ISTELLA_SENTINEL = "1.79769313486232e+308"
_SHARES = (0.6, 0.2, 0.2)
_YAHOO_NAMES = ("set1.train.txt", "set1.valid.txt", "set1.test.txt")
_PLAIN_NAMES = (
    ("train.txt", "vali.txt", "test.txt"),
    ("train.txt", "valid.txt", "test.txt"),
    ("train.txt", "test.txt"),
)
_HELD_BACK = 0.2  # of the training queries, for validation, where there is no file for it

Sentinel = str | Sequence[str] | None


@dataclass(frozen=True)
class Layout:
    """Where the files of a data set are.

    Attributes:
        name: "yahoo", "istella", or the name of the folder or file.
        files: train, valid and test; train and test, where there is no file for validation; or one file, to be split.
        fold: which of several folds this is; None if there are no folds.
    """

    name: str
    files: tuple[Path, ...]
    fold: int | None = None


def find_layout(source: str | os.PathLike[str], *, fold: int = 1) -> Layout:
    """Recognise a data set by its file names.

    Args:
        source: a LETOR file, or a folder with set1.train.txt, set1.valid.txt and set1.test.txt (Yahoo), or train.txt,
            vali.txt (or valid.txt) and test.txt, directly, in `sample/` (Istella-S) or in `Fold1/` to `Fold5/` (MSLR,
            MQ2007, MQ2008); each file may end in .gz, .xz, .bz2 or .zst.
        fold: which fold to take, where there are folds.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("train.txt", "vali.txt.gz", "test.txt"):
    ...         _ = Path(folder, name).write_text("")
    ...     [file.name for file in find_layout(folder).files]
    ['train.txt', 'vali.txt.gz', 'test.txt']
    """
    path = Path(source)
    folds = any((path / f"Fold{i}").is_dir() for i in range(1, 6))
    if not path.exists():
        raise FultrError(f"{path}: no such file or folder")
    if fold != 1 and not folds:
        raise FultrError(f"{path}: expected a folder Fold{fold}, found no folds")
    if not path.is_dir():
        return Layout(path.name, (path,))
    name = path.resolve().name
    if files := _find(path, _YAHOO_NAMES):
        return Layout("yahoo", files)
    if folds:
        chosen = path / f"Fold{fold}"
        for names in _PLAIN_NAMES:
            if files := _find(chosen, names):
                return Layout(f"{name}/Fold{fold}", files, fold)
        raise FultrError(f"{chosen}: expected train.txt, vali.txt (or valid.txt) and test.txt")
    for names in _PLAIN_NAMES:
        if files := _find(path / "sample", names):
            return Layout("istella", files)
        if files := _find(path, names):
            istella = "istella" in name.lower() or name == "sample" or _last_feature(files[0]) == b"220"
            number = re.fullmatch(r"Fold([1-5])", name)
            return Layout("istella" if istella else name, files, int(number[1]) if number else None)
    raise FultrError(
        f"{path}: expected {', '.join(_YAHOO_NAMES)}, or train.txt, vali.txt (or valid.txt) and test.txt, there or in "
        f"sample/ or Fold1/ to Fold5/, each optionally with {', '.join(SUFFIXES[1:])}; found no such files"
    )


def _find(folder: Path, names: Sequence[str]) -> tuple[Path, ...]:
    """The files of the given names, each with the first suffix that exists; empty if one is missing."""
    candidates = [[folder / (name + suffix) for suffix in SUFFIXES] for name in names]
    found = [next((file for file in files if file.is_file()), None) for files in candidates]
    return tuple(file for file in found if file) if all(found) else ()


def _last_feature(path: Path) -> bytes:
    """The id of the last feature in the first line of a file, b"" if there is no such thing."""
    try:
        with path.open("rb") as file:
            start = b"".join(islice(unpack(file, path.suffix if path.suffix in SUFFIXES else ""), 1))
    except Exception:  # a damaged file: the reader will report it
        return b""
    line = start.partition(b"\n")[0].partition(b"#")[0]
    return line.split()[-1].partition(b":")[0] if line.split() else b""


def load_path(
    source: str | os.PathLike[str],
    *,
    fold: int = 1,
    normalise: bool = True,
    filter: bool = True,
    merge: bool = False,
    sentinel: Sentinel = "auto",
    cache: bool = True,
    seed: int = 0,
    threads: int | None = None,
) -> Splits:
    r"""Load a data set from its folder (see `find_layout`), or a single LETOR file, split 60/20/20 by query.

    Args:
        source: the folder or file.
        fold: which fold to take, where there are folds.
        normalise: scale each feature to [0, 1] within each query.
        filter: drop the queries whose documents all have the same grade.
        merge: allow a query to reappear later in a file.
        sentinel: texts that mean "no value" and become 0; "auto" is 1.79769313486232e+308 for Istella-S and
            nothing for others.
        cache: keep the result in the on-disk cache, and take it from there if nothing has changed.
        seed: decides how a single file is split.
        threads: how many threads to use; all cores if None.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "five.txt")
    ...     _ = file.write_text("".join(f"{grade} qid:{q} 1:{q + grade}\n" for q in range(5) for grade in (0, 2)))
    ...     load_path(file, cache=False)
    Splits(five.txt: train RankingData(3 queries, 6 documents, 1 feature),
        valid RankingData(1 query, 2 documents, 1 feature), test RankingData(1 query, 2 documents, 1 feature))
    """
    layout = find_layout(source, fold=fold)
    sentinels = _sentinels(layout, sentinel)
    identities = [file_identity(file) for file in layout.files]
    if len(layout.files) == 2:
        warnings.warn(
            f"{source}: there is no vali.txt or valid.txt; {_HELD_BACK:.0%} of the training queries are taken for it",
            stacklevel=3,
        )

    def make() -> list[RankingData]:
        parts = read_letor_files(layout.files, merge=merge, sentinel=sentinels, threads=threads)
        if [file_identity(file) for file in layout.files] != identities:
            raise FultrError(f"{source}: changed while it was being read")
        for i, file in enumerate(layout.files):
            try:
                parts[i] = parts[i].filter(overwrite=True) if filter else parts[i]
            except FultrError as error:
                raise FultrError(f"{file}: {error}") from error
            parts[i] = parts[i].normalise(overwrite=True, threads=threads) if normalise else parts[i]
        if len(parts) > 2:
            return parts
        try:
            if len(parts) == 2:
                return [*parts[0].split((1 - _HELD_BACK, _HELD_BACK), seed), parts[1]]
            return list(parts[0].split(_SHARES, seed))
        except FultrError as error:
            raise FultrError(f"{source}: {error}") from error

    key = {
        "kind": "letor",
        "files": identities,
        "normalise": normalise,
        "filter": filter,
        "merge": merge,
        "sentinels": sentinels,
        "seed": seed if len(layout.files) < len(PARTS) else None,
    }
    train, valid, test = cached(key, make) if cache else make()
    return Splits(train, valid, test, Path(source).resolve().name, normalise)


def _sentinels(layout: Layout, given: Sentinel) -> list[str]:
    if given == "auto":
        return [ISTELLA_SENTINEL] if layout.name == "istella" else []
    return [given] if isinstance(given, str) else list(given or ())
