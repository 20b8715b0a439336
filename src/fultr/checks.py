"""Checks of settings: each failure is one line that names the setting, what was expected and what was found."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real

from fultr.errors import FultrError


def check_number(
    name: str,
    value: float,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    whole: bool = False,
) -> None:
    """Refuse a number that is not finite, not whole where it must be, or out of bounds.

    >>> check_number("rounds", -1, least=0, whole=True)
    Traceback (most recent call last):
    fultr.errors.FultrError: rounds: expected a whole number, at least 0, found -1
    """
    bounds = {"at least": least, "above": above, "at most": most, "below": below}
    wanted = ["a whole number" if whole else "a number"]
    wanted += [f"{word} {bound:,}" for word, bound in bounds.items() if bound is not None]
    good = (
        isinstance(value, Integral if whole else Real)
        and (whole or math.isfinite(value))
        and (least is None or value >= least)
        and (above is None or value > above)
        and (most is None or value <= most)
        and (below is None or value < below)
    )
    if not good:
        raise FultrError(f"{name}: expected {', '.join(wanted)}, found {str(value)[:40]}")


def check_seed(seed: int) -> None:
    """Refuse what is not a whole number from 0 to 2**40."""
    check_number("seed", seed, least=0, most=2**40, whole=True)


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Refuse a value that is not one of the choices.

    >>> check_choice("loss", "hnge", ("hinge", "logistic"))
    Traceback (most recent call last):
    fultr.errors.FultrError: loss: expected one of hinge, logistic; found 'hnge'
    """
    if value not in choices:
        raise FultrError(f"{name}: expected one of {', '.join(choices)}; found {value!r}")
