"""The features of a query's candidates, from an application's functions: numbers that can be logged and scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fultr.core.arrays import Float32s
from fultr.core.checks import number_fits, written
from fultr.core.errors import FultrError
from fultr.device.log import DeviceLog

Feature: TypeAlias = Callable[[Any, Any], float]
"""Of a query and one candidate."""

Column: TypeAlias = Callable[[Any, Any], ArrayLike]
"""Of a query and the list of all candidates: one number each."""

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Features:
    """Functions by the names of features, in the order of the log; each with whether it takes all candidates at once.

    >>> features = Features.of({"length": lambda query, text: len(text)}, {"place": lambda query, all: range(len(all))})
    >>> features.matrix("pizza", ["oven", "dough"]).tolist()
    [[4.0, 0.0], [5.0, 1.0]]
    """

    functions: dict[str, tuple[Callable[[Any, Any], Any], bool]]

    @classmethod
    def of(cls, features: Mapping[str, Feature], columns: Mapping[str, Column]) -> Features:
        """From functions of one candidate, and functions of all of them."""
        twice = [name for name in features if name in columns]
        if twice:
            raise FultrError(f"feature {twice[0]!r}: expected in features or in columns, found in both")
        functions = {name: (f, False) for name, f in features.items()} | {
            name: (f, True) for name, f in columns.items()
        }
        for name, (function, _) in functions.items():
            if not callable(function):
                raise FultrError(f"feature {name!r}: expected a function, found {written(function)}")
        if not functions:
            raise FultrError("features: expected at least one, found none")
        return cls(functions)

    @property
    def names(self) -> list[str]:
        """In order."""
        return list(self.functions)

    def in_order_of(self, log: DeviceLog) -> Features:
        """In the order in which an open log has them; refuses a log with others."""
        schema = next(schema for schema in log.schemas() if schema.current)
        names = schema.names or ()
        if set(names) != set(self.functions):
            has = ", ".join(names) if names else f"{schema.count} without names"
            raise FultrError(f"{log.path}: expected a log opened with features {', '.join(self.names)}; found {has}")
        return Features({name: self.functions[name] for name in names})

    def matrix(self, query: object, candidates: list[Any]) -> Float32s:
        """[candidates, features], finite. Errors name a candidate by its index, since it may be private."""
        columns = [
            _checked(name, (_at_once if whole else _one_by_one)(name, function, query, candidates), len(candidates))
            for name, (function, whole) in self.functions.items()
        ]
        return np.stack(columns, axis=1)


def _one_by_one(name: str, function: Feature, query: object, candidates: list[Any]) -> list[float]:
    values: list[float] = []
    try:
        for candidate in candidates:
            values.append(function(query, candidate))
    except Exception as error:
        raise FultrError(f"feature {name!r}, candidate {len(values)}: {_in_one_line(error)}") from error
    return values


def _at_once(name: str, function: Column, query: object, candidates: list[Any]) -> ArrayLike:
    try:
        return function(query, candidates)
    except Exception as error:
        raise FultrError(f"feature {name!r}, all candidates: {_in_one_line(error)}") from error


def _in_one_line(error: Exception) -> str:
    return " ".join(f"its function failed with {type(error).__name__}: {error}".split())[:200]


def _checked(name: str, values: Any, count: int) -> Float32s:
    """A feature of all candidates as float32."""
    try:
        given = np.asarray(values)
    except ValueError:  # lists of different lengths
        given = np.asarray(values, object)
    if given.shape[:1] != (count,):
        raise FultrError(f"feature {name!r}: expected {count} numbers, one per candidate; found shape {given.shape}")
    if given.ndim == 1 and given.dtype.kind in "biuf":
        with np.errstate(over="ignore"):
            column = given.astype(np.float32)
        if np.isfinite(column).all():
            return column
    for i, value in enumerate(values):
        fits = number_fits(value, whole=False, least=-LARGEST, most=LARGEST) or isinstance(value, bool | np.bool_)
        if not fits:
            raise FultrError(
                f"feature {name!r}, candidate {i}: expected a finite number within float32, found {written(value)}"
            )
    raise FultrError(f"feature {name!r}: expected numbers, found {given.dtype}")
