"""Checks of settings: each failure is one line with the setting, what was expected and what was found."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from datetime import date, datetime, time
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

from fultr.core.errors import FultrError

MAX_GRADE = 30  # gains are 2**grade - 1
_SHOWN = 60  # characters of a wrong value


class SettingError(FultrError):
    """A setting that is wrong: its name, for whoever knows where it was written, and the whole line.

    >>> SettingError("gamma", "expected a number, found true").name
    'gamma'
    """

    def __init__(self, name: str, says: str) -> None:
        super().__init__(f"{name}: {says}")
        self.name = name


class UnknownNameError(SettingError):
    """A name that means nothing here, with the one that was probably meant.

    >>> raise UnknownNameError("client_rat", ["client_rate", "server_rate"])
    Traceback (most recent call last):
    fultr.core.checks.UnknownNameError: unknown setting 'client_rat'; did you mean client_rate?
    """

    def __init__(self, name: str, known: Iterable[str], what: str = "setting") -> None:
        known = list(known)
        close = get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
        FultrError.__init__(self, f"unknown {what} {_short(repr(name))}; {hint}")
        self.name = name


def written(value: object, *, text_expected: bool = False) -> str:
    """A value as a person would write it in a file, and of what type it is where that may be the mistake.

    >>> written("2"), written("2", text_expected=True), written(True), written([1, "a"])
    ('the text "2"', '"2"', 'true', 'the list [1, "a"]')
    """
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            quoted = _short(json.dumps(value, ensure_ascii=False))
            return quoted if text_expected else f"the text {quoted}"
        case datetime():
            return f"the date and time {value.isoformat(' ')}"
        case date():
            return f"the date {value.isoformat()}"
        case time():
            return f"the time {value.isoformat()}"
        case list() | tuple():
            return f"the list {_short(_inside(value))}"
        case Mapping():
            return "a table"
        case _:
            return _short(_inside(value))


def _inside(value: object) -> str:
    """A value as it stands in a list."""
    match value:
        case list() | tuple():
            return f"[{', '.join(_inside(entry) for entry in value[:_SHOWN])}]"
        case int() if not isinstance(value, bool) and abs(value) >= 10**_SHOWN:
            return f"a number of about {int(value.bit_length() * math.log10(2)) + 1} digits"
        case float() | int() if not isinstance(value, bool):
            return repr(value)
        case None | bool() | str() | date() | time() | Mapping():
            return written(value, text_expected=True)
        case Real():
            return str(value)
        case _:
            return " ".join(str(value).split())


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def number_words(
    *,
    whole: bool,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> str:
    """What a number must be, in words.

    >>> number_words(whole=True, least=1, most=1000)
    'a whole number, at least 1, at most 1,000'
    """
    bounds = {"at least": least, "above": above, "at most": most, "below": below}
    wanted = ["a whole number" if whole else "a number"]
    return ", ".join(wanted + [f"{word} {bound:,}" for word, bound in bounds.items() if bound is not None])


def number_fits(
    value: object,
    *,
    whole: bool,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> bool:
    """Is it a number (true and false are none), finite, whole where it must be, and within bounds?"""
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        return False
    number: Any = value
    try:
        finite = whole or math.isfinite(number)
    except OverflowError:  # a whole number beyond every float
        return False
    return (
        finite
        and (least is None or number >= least)
        and (above is None or number > above)
        and (most is None or number <= most)
        and (below is None or number < below)
    )


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
    """Refuse what is no number, not finite, not whole where it must be, or out of bounds.

    >>> check_number("rounds", -1, least=0, whole=True)
    Traceback (most recent call last):
    fultr.core.checks.SettingError: rounds: expected a whole number, at least 0, found -1
    """
    if not number_fits(value, whole=whole, least=least, above=above, most=most, below=below):
        wanted = number_words(whole=whole, least=least, above=above, most=most, below=below)
        raise SettingError(name, f"expected {wanted}, found {written(value)}")


def check_seed(seed: int) -> None:
    """Refuse what is not a whole number from 0 to 2**40."""
    check_number("seed", seed, least=0, most=2**40, whole=True)


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Refuse a value that is not one of the choices.

    >>> check_choice("loss", "hnge", ("hinge", "logistic"))
    Traceback (most recent call last):
    fultr.core.checks.SettingError: loss: expected one of hinge, logistic; found "hnge"
    """
    if not isinstance(value, str) or value not in choices:
        found = written(value, text_expected=True)
        raise SettingError(name, f"expected one of {', '.join(choices)}; found {found}")
