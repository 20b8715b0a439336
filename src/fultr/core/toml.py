"""TOML files that people write: what is wrong with one is said with its name and line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fultr.core.errors import FultrError


def read_text(path: Path) -> str:
    """A file's text, with its line ends as they are, without the mark that some editors put at its beginning."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise FultrError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise FultrError(f"{path}: cannot be read: expected text in UTF-8: {error}") from None


def parse_toml(text: str, source: str) -> dict[str, Any]:
    r"""What a TOML text says; `source` is what it is called where it is wrong.

    >>> parse_toml("a = 1\nb = ", "mine.toml")
    Traceback (most recent call last):
    fultr.core.errors.FultrError: mine.toml:2: not valid TOML: Invalid value
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error), re.DOTALL)
        what = found[1] if found else str(error)
        line = (found[2] if found else None) or str(max(1, len(text.splitlines())))
        raise FultrError(f"{source}:{line}: not valid TOML: {what}") from None
    except ValueError as error:  # a number of thousands of digits, a day that no calendar has
        raise FultrError(f"{source}: not valid TOML: {error}") from None
    except RecursionError:
        raise FultrError(f"{source}: not valid TOML: lists or tables are nested too deeply") from None


def line_of(lines: Sequence[str], key: str, places: Sequence[tuple[int, int]]) -> int | None:
    """Where a key or a heading stands, from 1: the first found in the places, each from a line to before another.

    >>> line_of(["[settings]", "client-rate = 1"], "client_rate", [(0, 2)])
    2
    """
    named = re.escape(key).replace("_", "[-_]")
    pattern = re.compile(rf"""\s*(\w+\s*\.\s*)?["']?{named}["']?\s*[=.]|\s*\[+\s*{named}\s*\]""")
    return next((i + 1 for place in places for i in range(*place) if pattern.match(lines[i])), None)
