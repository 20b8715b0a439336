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
from fultr.data.aol import NOT_A_NUMBER, aol_files, parts_by_time, read_results
from fultr.data.cache import cached, file_identity
from fultr.data.letor.reader import read_letor_files
from fultr.data.ranking import RankingData, Splits

PARTS = ("train", "valid", "test")
ISTELLA_SENTINEL = "1.79769313486232e+308"
_YAHOO_NAMES = ("set1.train.txt", "set1.valid.txt", "set1.test.txt")
_PLAIN_NAMES = (
    ("train.txt", "vali.txt", "test.txt"),
    ("train.txt", "valid.txt", "test.txt"),
    ("train.txt", "test.txt"),
)
_ISTELLA_FOLDERS = ("sample", "full")  # of Istella-S and of Istella
_VAGUE = re.compile(r"Fold[1-5]|sample|full|set1|dataset")  # names that say little without the folder's above
_ARCHIVE = re.compile(r".*\.(tgz|tar(\.\w+)?|zip|rar|7z)", re.IGNORECASE)
_DEPTH = 2  # how far below a folder data sets are searched for
_HELD_BACK = 0.2  # of the training queries, for validation, where there is no file for it

Sentinel = str | Sequence[str] | None


@dataclass(frozen=True)
class Layout:
    """Where the files of a data set are.

    Attributes:
        name: "yahoo", "istella", "aol", or the name of the folder or file.
        files: train, valid and test; train and test, where there is no file for validation; or one file, to be split.
        fold: which of several folds this is; None if there are no folds.
        searches: of AOL4FOLTR, the file that says who searched, and when; None for other data sets.
    """

    name: str
    files: tuple[Path, ...]
    fold: int | None = None
    searches: Path | None = None


def find_layout(source: str | os.PathLike[str], *, fold: int = 1) -> Layout:
    """Recognise a data set by its file names.

    Args:
        source: a LETOR file, or a folder with set1.train.txt, set1.valid.txt and set1.test.txt (Yahoo), or letor.txt
            and metadata.csv (AOL4FOLTR), or train.txt, vali.txt (or valid.txt) and test.txt, directly, in `sample/`
            (Istella-S) or `full/` (Istella), or in `Fold1/` to `Fold5/` (MSLR, MQ2007, MQ2008); or a folder above the
            one that has them. Each file may end in .gz, .xz, .bz2 or .zst.
        fold: which fold to take, where there are folds.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("train.txt", "vali.txt.gz", "test.txt"):
    ...         _ = Path(folder, name).write_text("")
    ...     [file.name for file in find_layout(folder).files]
    ['train.txt', 'vali.txt.gz', 'test.txt']
    """
    path = Path(source)
    if not path.exists():
        raise FultrError(f"{path}: no such file or folder")
    layout = (_layout_in(path, fold) or _layout_below(path, fold)) if path.is_dir() else _layout_of_file(path)
    if fold not in (1, layout.fold):
        raise FultrError(f"{path}: expected a folder Fold{fold}, found no folds")
    return layout


def title_of(source: str | os.PathLike[str]) -> str:
    """What to call the data set at a path: the last part of it, with the one before if it says little by itself.

    >>> title_of("data/MQ2007"), title_of("data/MSLR-WEB10K/Fold2"), title_of("istella-s/sample")
    ('MQ2007', 'MSLR-WEB10K/Fold2', 'istella-s/sample')
    """
    path = Path(source)
    return "/".join(path.parts[-2:]) if _VAGUE.fullmatch(path.name) else path.name


def _layout_of_file(path: Path) -> Layout:
    if _ARCHIVE.fullmatch(path.name):
        raise FultrError(f"{path}: expected a LETOR file or a folder, found an archive: unpack it, and give its folder")
    if files := aol_files(path):
        return Layout("aol", files[:1], searches=files[1])
    return Layout(path.name, (path,))


def _layout_in(path: Path, fold: int) -> Layout | None:
    """The data set whose folder this is; None if it is no data set's."""
    name = title_of(path.resolve())
    if files := _find(path, _YAHOO_NAMES):
        return Layout("yahoo", files)
    if aol := aol_files(path):
        return Layout("aol", aol[:1], searches=aol[1])
    if any((path / f"Fold{i}").is_dir() for i in range(1, 6)):
        chosen = path / f"Fold{fold}"
        if files := _find_plain(chosen):
            return Layout(f"{name}/Fold{fold}", files, fold)
        raise FultrError(f"{chosen}: expected train.txt, vali.txt (or valid.txt) and test.txt")
    for inside in _ISTELLA_FOLDERS:
        if files := _find_plain(path / inside):
            return Layout("istella", files)
    if files := _find_plain(path):
        istella = "istella" in name.lower() or path.name in _ISTELLA_FOLDERS or _last_feature(files[0]) == b"220"
        number = re.fullmatch(r"Fold([1-5])", path.resolve().name)
        return Layout("istella" if istella else name, files, int(number[1]) if number else None)
    return None


def _layout_below(path: Path, fold: int) -> Layout:
    """The only data set in the folders below one; refused in words if there is none, or are several."""
    wanted = {*_YAHOO_NAMES, "letor.txt", "metadata.csv", *(name for names in _PLAIN_NAMES for name in names)}
    names = sorted(file.name for file in path.iterdir())
    some = [name for name in names if any(name.removesuffix(suffix) in wanted for suffix in SUFFIXES)]
    for depth in range(1, 1 + _DEPTH) if not some else ():
        folders = sorted(folder for folder in path.glob("*/" * depth) if not folder.name.startswith("."))
        found = {folder: layout for folder in folders if (layout := _layout_in(folder, fold)) is not None}
        if len(found) > 1:
            there = ", ".join(str(folder.relative_to(path)) for folder in found)
            raise FultrError(f"{path}: expected the folder of one data set, found {len(found)} in it: {there}")
        if found:
            return next(iter(found.values()))
    packed = next((name for name in names if _ARCHIVE.fullmatch(name)), None)
    there = f"only {', '.join(some)}" if some else "no such files"
    raise FultrError(
        f"{path}: expected {', '.join(_YAHOO_NAMES)}, or letor.txt and metadata.csv, or train.txt, vali.txt (or "
        f"valid.txt) and test.txt, there or in sample/, full/ or Fold1/ to Fold5/, each optionally with "
        f"{', '.join(SUFFIXES[1:])}; found {there}{f'; unpack {packed} first' if packed else ''}"
    )


def _find_plain(folder: Path) -> tuple[Path, ...]:
    """The files for training, validation, if there is one, and test; empty if there are none."""
    return next((files for names in _PLAIN_NAMES if (files := _find(folder, names))), ())


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

    AOL4FOLTR's searches are split 60/20/20 by time, and keep their users (`fultr.data.aol`).

    Args:
        source: the folder or file.
        fold: which fold to take, where there are folds.
        normalise: scale each feature to [0, 1] within each query.
        filter: drop the queries whose documents all have the same grade.
        merge: allow a query to reappear later in a file; in AOL4FOLTR it always may.
        sentinel: texts that mean "no value" and become 0; "auto" is 1.79769313486232e+308 for Istella-S, nan for
            AOL4FOLTR and nothing for others.
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
    used = [*layout.files, *([layout.searches] if layout.searches else [])]
    identities = [file_identity(file) for file in used]
    if len(layout.files) == 2:
        warnings.warn(
            f"{source}: there is no vali.txt or valid.txt; {_HELD_BACK:.0%} of the training queries are taken for it",
            stacklevel=3,
        )

    def make() -> list[RankingData]:
        if layout.searches is None:
            parts = read_letor_files(layout.files, merge=merge, sentinel=sentinels, threads=threads)
        else:
            _, data = read_results(layout.files[0], copies=2, sentinel=sentinels, threads=threads)
            parts = parts_by_time(data, layout.files[0], layout.searches)
        if [file_identity(file) for file in used] != identities:
            raise FultrError(f"{source}: changed while it was being read")
        for i in range(len(parts)):
            try:
                parts[i] = parts[i].filter(overwrite=True) if filter else parts[i]
            except FultrError as error:
                raise FultrError(f"{layout.files[min(i, len(layout.files) - 1)]}: {error}") from error
            parts[i] = parts[i].normalise(overwrite=True, threads=threads) if normalise else parts[i]
        if len(parts) > 2:
            return parts
        try:
            if len(parts) == 2:
                return [*parts[0].split((1 - _HELD_BACK, _HELD_BACK), seed), parts[1]]
            return list(parts[0].split(seed=seed))
        except FultrError as error:
            raise FultrError(f"{source}: {error}") from error

    key = {
        "kind": "letor" if layout.searches is None else "aol",
        "files": identities,
        "normalise": normalise,
        "filter": filter,
        "merge": merge,
        "sentinels": sentinels,
        "seed": seed if len(layout.files) < len(PARTS) and layout.searches is None else None,
    }
    train, valid, test = cached(key, make) if cache else make()
    return Splits(train, valid, test, layout.name, normalise)


def _sentinels(layout: Layout, given: Sentinel) -> list[str]:
    if given == "auto":
        if layout.searches is not None:
            return [*NOT_A_NUMBER]
        return [ISTELLA_SENTINEL] if layout.name == "istella" else []
    return [given] if isinstance(given, str) else list(given or ())
