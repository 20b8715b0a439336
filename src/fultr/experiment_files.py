"""Experiment files: TOML that a person can read and copy. Every key is checked; docs/experiments.md lists them."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from fultr.checks import check_number
from fultr.claims import Claim
from fultr.errors import FultrError
from fultr.experiments import RATES, Experiment, Line, Panel
from fultr.runs import RunSettings

_SETTINGS = {field.name for field in fields(RunSettings)}
_T = TypeVar("_T")


def packaged() -> list[Experiment]:
    """The experiments that come with fultr: the paper's figures first, then its text, then beyond it.

    >>> [experiment.name for experiment in packaged()][:2]
    ['figure-1', 'figure-2-left']
    """
    folder = files("fultr").joinpath("catalogue")
    texts = {
        entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".toml")
    }
    return [parse_experiment(texts[name], name.split("-", 1)[1].removesuffix(".toml")) for name in sorted(texts)]


def read_experiment(path: Path) -> Experiment:
    """Read an experiment file; what is wrong with it is one line that names the file, the line and the cause."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FultrError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return parse_experiment(text, path.stem, str(path))


def parse_experiment(text: str, name: str, source: str = "") -> Experiment:
    r"""An experiment from the text of its file.

    >>> parse_experiment("title = 'Mine'\nlines = 3", "mine", "mine.toml")
    Traceback (most recent call last):
    fultr.errors.FultrError: mine.toml:2: unknown key 'lines'; expected one of title, about, ...
    """
    source = source or name
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(error))
        where, what = (f"{source}:{found[2]}", found[1]) if found else (source, str(error))
        raise FultrError(f"{where}: not valid TOML: {what}") from None
    return _Reader(text, source).experiment(content, name)


class _Reader:
    """Turns the content of a file into an experiment, and knows where in the file everything stands."""

    def __init__(self, text: str, source: str) -> None:
        self._lines, self._source = text.splitlines(), source

    def experiment(self, content: dict[str, Any], name: str) -> Experiment:
        known = ("title", "about", "figure", "data", "repeats", "seed", "settings", "tuning", "line", "panel", "claim")
        self._known(content, known)
        shared = self._table(content, "settings")
        self._known(shared, _SETTINGS, "settings")
        tuning = self._table(content, "tuning")
        self._known(tuning, ("repeats", *itertools.chain(*RATES.values())), "tuning")
        for key in ("title", "about", "figure"):
            self._typed(content.get(key, ""), str, "a text", key)
        data = content.get("data", ["synthetic"])
        self._texts(data, "data")
        lines: list[Line] = []
        for i, entry in enumerate(self._tables(content, "line")):
            lines += self._expanded(entry, i, shared, tuning)
        names = [line.name for line in lines]
        panels = [self._panel(entry, i, names) for i, entry in enumerate(self._tables(content, "panel"))]
        claims = [self._claim(entry, i, names) for i, entry in enumerate(self._tables(content, "claim"))]
        return self._made(
            lambda: Experiment(
                name,
                content.get("title", name),
                content.get("about", ""),
                content.get("figure", ""),
                tuple(data),
                tuple(lines),
                tuple(panels) or (Panel("", tuple(names)),),
                tuple(claims),
                content.get("repeats", Experiment.repeats),
                tuning.get("repeats", Experiment.tuning_repeats),
                content.get("seed", Experiment.seed),
            )
        )

    def _expanded(
        self, entry: dict[str, Any], index: int, shared: Mapping[str, Any], tuning: Mapping[str, Any]
    ) -> list[Line]:
        """The lines that a [[line]] stands for: one for each combination of what it varies."""
        self._known(entry, ("name", "colour", "vary", "tuned_at", "tuning", *sorted(_SETTINGS)), "line", index)
        for key in ("name", "colour"):
            self._typed(entry.get(key, ""), str, "a text", key, "line", index)
        vary = self._table(entry, "vary", "line", index)
        self._known(vary, _SETTINGS, "line", index)
        tuned_at = self._table(entry, "tuned_at", "line", index)
        self._known(tuned_at, _SETTINGS, "line", index)
        own_tuning = self._table(entry, "tuning", "line", index)
        self._known(own_tuning, tuple(itertools.chain(*RATES.values())), "line", index)
        for key, values in vary.items():
            if not isinstance(values, list) or not values:
                raise self._error(f"vary.{key}: expected a list of values, found {values!r}", key, "line", index)
        own = {key: value for key, value in entry.items() if key in _SETTINGS}
        expanded = []
        for values in itertools.product(*vary.values()):
            given = {**shared, **own, **dict(zip(vary, values, strict=True))}
            settings = self._made(partial(RunSettings, **given), "line", index)
            self._made(partial(replace, settings, **tuned_at), "line", index)
            grid = [
                (rate, self._rates({**tuning, **own_tuning}[rate], rate, index))
                for rate in RATES.get(settings.algorithm, ())
                if rate not in given and (rate in own_tuning or rate in tuning)
            ]
            spoken = {f.name: _spoken(getattr(settings, f.name)) for f in fields(settings)}
            name = self._formatted(entry.get("name", settings.algorithm), spoken, index)
            expanded.append(Line(name, settings, tuple(grid), tuple(tuned_at.items()), entry.get("colour", "")))
        return expanded

    def _formatted(self, name: str, spoken: dict[str, str], index: int) -> str:
        try:
            return name.format(**spoken)
        except (KeyError, ValueError, IndexError):
            raise self._error(f"name: {name!r} names an unknown setting in braces", "name", "line", index) from None

    def _rates(self, values: Any, rate: str, index: int) -> tuple[float, ...]:
        if not isinstance(values, list) or not values or len(set(values)) != len(values):
            raise self._error(f"tuning.{rate}: expected different numbers in a list, found {values!r}", rate, "tuning")
        for value in values:
            self._made(partial(check_number, rate, value, above=0), "line", index)
        return tuple(values)

    def _panel(self, entry: dict[str, Any], index: int, names: list[str]) -> Panel:
        self._known(entry, ("title", "lines", "against"), "panel", index)
        for key in ("title", "against"):
            self._typed(entry.get(key, ""), str, "a text", key, "panel", index)
        if entry.get("against") and entry["against"] not in _SETTINGS:
            raise self._error(f"against: {entry['against']!r} is not a setting", "against", "panel", index)
        lines = self._matching(entry.get("lines", ["*"]), names, "lines", "panel", index)
        return Panel(entry.get("title", ""), lines, entry.get("against", ""))

    def _claim(self, entry: dict[str, Any], index: int, names: list[str]) -> Claim:
        self._known(entry, tuple(field.name for field in fields(Claim)), "claim", index)
        for key in ("says", "kind"):
            self._typed(entry.get(key), str, "a text", key, "claim", index)
        chosen = {key: self._matching(entry.get(key, []), names, key, "claim", index) for key in ("lines", "than")}
        return self._made(lambda: Claim(**{**entry, **chosen}), "claim", index)

    def _matching(self, patterns: Any, names: list[str], key: str, table: str, index: int) -> tuple[str, ...]:
        """The lines with the given names, in which * stands for anything."""
        self._texts(patterns, key, table, index)
        found: list[str] = []
        for pattern in patterns:
            matches = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
            if not matches:
                raise self._error(f"{key}: there is no line {pattern!r}; there are {names}", key, table, index)
            found += [name for name in matches if name not in found]
        return tuple(found)

    def _table(self, content: dict[str, Any], key: str, table: str = "", index: int = 0) -> dict[str, Any]:
        return self._typed(content.get(key, {}), dict, "a table", key, table, index)

    def _tables(self, content: dict[str, Any], key: str) -> list[dict[str, Any]]:
        entries = content.get(key, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self._error(f"{key}: expected tables headed [[{key}]]", key)
        return entries

    def _texts(self, value: Any, key: str, table: str = "", index: int = 0) -> None:
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise self._error(f"{key}: expected a list of texts, found {value!r}", key, table, index)

    def _typed(self, value: Any, kind: type, words: str, key: str, table: str = "", index: int = 0) -> Any:
        if not isinstance(value, kind):
            raise self._error(f"{key}: expected {words}, found {value!r}", key, table, index)
        return value

    def _known(self, content: Iterable[str], known: Iterable[str], table: str = "", index: int = 0) -> None:
        for key in content:
            if key not in known:
                expected = ", ".join(known if isinstance(known, tuple) else sorted(known))
                raise self._error(f"unknown key {key!r}; expected one of {expected}", key, table, index)

    def _made(self, make: Callable[[], _T], table: str = "", index: int = 0) -> _T:
        """What `make` returns; what it refuses is said with the place in the file."""
        try:
            return make()
        except FultrError as error:
            raise self._error(str(error), str(error).split(":")[0], table, index) from None
        except TypeError as error:
            raise self._error(str(error), "", table, index) from None

    def _error(self, text: str, key: str, table: str = "", index: int = 0) -> FultrError:
        """What is wrong, with the line of the key: in the given table, or in those whose values it takes over."""
        begin, end = self._extent(table, index)
        places = [(begin, end), *(self._extent(shared, 0) for shared in ("settings", "tuning") if table == "line")]
        named = re.escape(key)
        pattern = re.compile(rf"""\s*(\w+\s*\.\s*)?["']?{named}["']?\s*[=.]|\s*\[+\s*{named}\s*\]""")
        found = (i for place in places for i in range(*place) if pattern.match(self._lines[i]))
        return FultrError(f"{self._source}:{next(found, begin) + 1}: {text}")

    def _extent(self, table: str, index: int) -> tuple[int, int]:
        """The lines of the index-th table of a name, from its heading; "": all lines."""
        headings = [i for i, line in enumerate(self._lines) if re.match(r"\s*\[+[^.\]]*\]", line)]
        own = [i for i in headings if re.match(rf"\s*\[+\s*{table}\s*\]", self._lines[i])]
        if not table or not own:
            return 0, len(self._lines)
        begin = own[min(index, len(own) - 1)]
        return begin, min((i for i in headings if i > begin), default=len(self._lines))


def _spoken(value: Any) -> str:
    """A setting's value as it stands in a line's name."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
