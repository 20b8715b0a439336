"""Names that say a feature's number: f7 or feature_7, as click logs call the feature with id 7 of LETOR files."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from fultr.core.arrays import Int64s

TITLE = "features"
_NUMBERED = re.compile(r"f(?:eature)?_?(\d{1,18})", re.IGNORECASE)


def number_in(name: str) -> int | None:
    """The number of a feature that is called by it.

    >>> number_in("f7"), number_in("Feature_12"), number_in("freshness")
    (7, 12, None)
    """
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[1])


def numbers_in(names: Sequence[str]) -> Int64s | None:
    """The numbers of features that are all called by theirs, all different; else None.

    >>> numbers_in(["f5", "f2"]).tolist(), numbers_in(["f5", "age"])
    ([5, 2], None)
    """
    numbers = [number_in(name) for name in names]
    found = [number for number in numbers if number is not None]
    return np.array(found, np.int64) if found and len(set(found)) == len(numbers) else None


def numbered_names(features: int) -> tuple[str, ...]:
    """The names of features with ids 1, 2, ...: f1, f2, ..."""
    return tuple(f"f{i + 1}" for i in range(features))


def title_of(names: Sequence[str] | None, features: int) -> str:
    """What a table with a row for each page calls its one column of features; their names are in it, if need be.

    >>> title_of(["f1", "f2"], 2), title_of(["f2", "age"], 2)
    ('features', 'features: f2, age')
    """
    plain = names is None or tuple(names) == numbered_names(features)
    return TITLE if plain or names is None else f"{TITLE}: {', '.join(names)}"


def is_title(title: str) -> bool:
    """Is it what a table calls its column of features?"""
    return title.partition(":")[0].strip().lower() == TITLE


def names_in(title: str) -> tuple[str, ...] | None:
    """The names in such a title; None if there are none.

    >>> names_in("features: f2, age"), names_in("features")
    (('f2', 'age'), None)
    """
    _, colon, names = title.partition(":")
    return tuple(name.strip() for name in names.split(",")) if colon else None
