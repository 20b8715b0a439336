"""A data set by its name or its path."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from fultr.core.checks import check_seed
from fultr.core.errors import FultrError
from fultr.data.cache import cached
from fultr.data.layouts import Sentinel, load_path
from fultr.data.ranking import Splits
from fultr.data.synthetic import SETTINGS, generate

_GENERATOR = 1  # raise it when the generator's output changes: cached data sets are then generated again


def load(
    source: str | os.PathLike[str] = "synthetic",
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
    """Load a data set for training, validation and test.

    Args:
        source: "synthetic", "synthetic-yahoo" or "synthetic-istella" for a generated data set; or a folder with Yahoo
            LTRC set 1, Istella-S, MSLR-WEB, MQ2007/8, AOL4FOLTR or any train, vali and test files in LETOR format; or
            one LETOR file, whose queries are split 60/20/20.
        fold: which fold to take, where a folder has folds.
        normalise: scale each feature to [0, 1] within each query.
        filter: drop the queries whose documents all have the same grade.
        merge: allow a query to reappear later in a file.
        sentinel: texts that stand for "no value" and become 0; "auto": Istella's for Istella-S, nan for
            AOL4FOLTR, none for others.
        cache: keep the result on disk, and map it from there when nothing has changed.
        seed: of a generated data set, or of the split of a single file.
        threads: how many threads to use; all cores if None.

    >>> load("synthetic", cache=False).train.width
    64
    """
    name = os.fspath(source)
    if name not in SETTINGS:
        if name.startswith("synthetic") and not Path(name).exists():
            raise FultrError(f"unknown data set {name!r}; expected {', '.join(SETTINGS)}, or a path")
        return load_path(
            source,
            fold=fold,
            normalise=normalise,
            filter=filter,
            merge=merge,
            sentinel=sentinel,
            cache=cache,
            seed=seed,
            threads=threads,
        )
    if fold != 1:
        raise FultrError(f"fold: generated data sets have only fold 1, found {fold}")
    check_seed(seed)
    key = {"kind": name, "generator": _GENERATOR, "seed": seed, "settings": asdict(SETTINGS[name])}
    train, valid, test = (
        cached(key, lambda: list(generate(name, seed=seed, threads=threads)))
        if cache
        else generate(name, seed=seed, threads=threads)
    )
    return Splits(train, valid, test, name)
