"""Settings in a TOML file: what is wrong with one is a line that names the file, the line and the cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from fultr.core.checks import SettingError, UnknownNameError, written
from fultr.core.errors import FultrError
from fultr.core.settings import build, leaves
from fultr.core.toml import line_of, parse_toml, read_text

_T = TypeVar("_T")


def read_settings(
    tree: type[_T],
    path: str | Path,
    *,
    table: str = "",
    besides: tuple[str, ...] = (),
    of: Callable[[Mapping[str, object]], _T] | None = None,
) -> _T:
    """Settings of a class from a TOML file; names may have hyphens, and what is not said has its default.

    Args:
        tree: the class.
        path: the file.
        table: the name of the table that they stand in; empty: at the top, outside of tables.
        besides: names there that are none of these settings.
        of: makes the settings from names and values, if the class has a way of its own.
    """
    text = read_text(Path(path))
    given: object = parse_toml(text, str(path))
    lines = text.splitlines()
    try:
        if table:
            given = plain_names(given).get(table, {})  # type: ignore[arg-type]
        if not isinstance(given, Mapping):
            raise SettingError(table, f"expected a table, found {written(given)}")
        known = {name: value for name, value in plain_names(given).items() if name not in besides}
        for name in known:
            if name not in leaves(tree):
                raise UnknownNameError(name, (*leaves(tree), *besides))
        return build(tree, known) if of is None else of(known)
    except SettingError as error:
        line = line_of(lines, error.name, [_place(lines, table), (0, len(lines))])
        raise FultrError(f"{path}{'' if line is None else f':{line}'}: {error}") from None


def plain_names(given: Mapping[str, object]) -> dict[str, object]:
    """By names without hyphens.

    >>> plain_names({"client-rate": 1})
    {'client_rate': 1}
    """
    found: dict[str, object] = {}
    for name, value in given.items():
        plain = name.replace("-", "_")
        if plain in found:
            raise SettingError(plain, "expected once, found with a hyphen and without")
        found[plain] = value
    return found


def _place(lines: list[str], table: str) -> tuple[int, int]:
    """From which line to before which a table stands; at the top there are the lines before the first heading."""
    headings = [i for i, line in enumerate(lines) if re.match(r"\s*\[", line)]
    if not table:
        return 0, headings[0] if headings else len(lines)
    pattern = rf"""\s*\[\s*["']?{re.escape(table).replace("_", "[-_]")}["']?\s*\]"""
    begin = next((i for i in headings if re.match(pattern, lines[i])), None)
    if begin is None:
        return 0, 0
    return begin, next((i for i in headings if i > begin), len(lines))
