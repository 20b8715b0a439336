"""Experiment files: TOML that a person can read and copy. Every key is checked; docs/experiments.md lists them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from fultr.core.checks import SettingError, UnknownNameError, written
from fultr.core.errors import FultrError, one_line
from fultr.core.settings import Leaf, flatten, leaves
from fultr.core.toml import line_of, parse_toml, read_text
from fultr.study.claims import KINDS, Claim
from fultr.study.experiment import RATES, Experiment, Line, Panel
from fultr.study.settings import RunSettings

_SETTINGS = leaves(RunSettings)
_RATES = tuple(itertools.chain(*RATES.values()))
_T = TypeVar("_T")


def packaged() -> list[Experiment]:
    """The experiments that come with fultr: the paper's figures first, then its text, then beyond it.

    >>> [experiment.name for experiment in packaged()][:2]
    ['figure-1', 'figure-2-left']
    """
    folder = files("fultr.study").joinpath("catalogue")
    texts = {
        entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".toml")
    }
    return [parse_experiment(texts[name], name.split("-", 1)[1].removesuffix(".toml")) for name in sorted(texts)]


def read_experiment(path: Path) -> Experiment:
    """Read an experiment file; what is wrong with it is one line that names the file, the line and the cause."""
    return parse_experiment(read_text(path), path.stem, str(path))


def parse_experiment(text: str, name: str, source: str = "") -> Experiment:
    r"""An experiment from the text of its file.

    >>> parse_experiment("title = 'Mine'\nlines = 3", "mine", "mine.toml")
    Traceback (most recent call last):
    fultr.core.errors.FultrError: mine.toml:2: unknown key 'lines'; did you mean line?
    """
    source = source or name
    return _Reader(text, source).experiment(parse_toml(text, source), name)


class _Reader:
    """Turns the content of a file into an experiment, and knows where in the file everything stands."""

    def __init__(self, text: str, source: str) -> None:
        self._lines, self._source = text.splitlines(), source

    def experiment(self, content: dict[str, Any], name: str) -> Experiment:
        known = ("title", "about", "figure", "data", "repeats", "seed", "settings", "tuning", "line", "panel", "claim")
        self._known(content, known)
        shared = self._table(content, "settings")
        self._known(shared, _SETTINGS, "settings", what="setting")
        self._settings(shared, "settings")
        tuning = self._table(content, "tuning")
        self._known(tuning, ("repeats", "steps", *_RATES), "tuning")
        for rate in tuning:
            if rate in _RATES:
                self._rates(tuning[rate], rate, "tuning")
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
                tuning.get("steps", Experiment.tuning_steps),
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
        self._known(vary, _SETTINGS, "line", index, what="setting")
        tuned_at = self._table(entry, "tuned_at", "line", index)
        self._known(tuned_at, _SETTINGS, "line", index, what="setting")
        own_tuning = self._table(entry, "tuning", "line", index)
        self._known(own_tuning, _RATES, "line", index, what="rate")
        for key, values in vary.items():
            if not isinstance(values, list) or not values:
                found = f"vary.{key}: expected a list of values, found {written(values)}"
                raise self._error(found, key, "line", index)
        own = {key: value for key, value in entry.items() if key in _SETTINGS}
        self._settings(own, "line", index)
        changes = self._settings(tuned_at, "line", index)
        rates = {**tuning, **own_tuning}
        expanded = []
        for values in itertools.product(*vary.values()):
            given = {**shared, **own, **dict(zip(vary, values, strict=True))}
            settings = self._made(partial(RunSettings.of, given), "line", index)
            self._made(partial(settings.but, changes), "line", index)
            grid = [
                (rate, self._rates(rates[rate], rate, "line", index))
                for rate in RATES.get(settings.algorithm, ())
                if rate not in given and rate in rates
            ]
            name = self._spelt(entry.get("name", settings.algorithm), settings, index)
            expanded.append(Line(name, settings, tuple(grid), tuple(changes.items()), entry.get("colour", "")))
        return expanded

    def _settings(self, given: Mapping[str, Any], table: str, index: int = 0) -> dict[str, Any]:
        """The values of settings that are known by name, as they are kept."""
        return {name: self._made(partial(_SETTINGS[name].read, value), table, index) for name, value in given.items()}

    def _spelt(self, name: str, settings: RunSettings, index: int) -> str:
        """A line's name, with the values of the settings that it has in braces."""
        values = flatten(settings)

        def value(found: re.Match[str]) -> str:
            leaf = _SETTINGS.get(found[1])
            if leaf is None:
                unknown = UnknownNameError(found[1], _SETTINGS)
                raise self._error(f"name: {unknown}", "name", "line", index)
            return _spoken(leaf, values.get(leaf.name, leaf.default))

        return re.sub(r"\{([^{}]*)\}", value, name)

    def _rates(self, values: Any, rate: str, table: str, index: int = 0) -> tuple[float, ...]:
        """A grid of rates."""
        if not isinstance(values, list) or not values:
            found = f"tuning.{rate}: expected different numbers in a list, found {written(values)}"
            raise self._error(found, rate, table, index)
        read = tuple(self._made(partial(_SETTINGS[rate].read, value), table, index) for value in values)
        if None in read:  # 0, which stands for a rule
            raise self._error(f"tuning.{rate}: expected numbers above 0, found {written(values)}", rate, table, index)
        if len(set(read)) < len(read):
            found = f"tuning.{rate}: expected different numbers in a list, found {written(values)}"
            raise self._error(found, rate, table, index)
        return read

    def _panel(self, entry: dict[str, Any], index: int, names: list[str]) -> Panel:
        self._known(entry, ("title", "lines", "against"), "panel", index)
        for key in ("title", "against"):
            self._typed(entry.get(key, ""), str, "a text", key, "panel", index)
        if entry.get("against") and entry["against"] not in _SETTINGS:
            unknown = UnknownNameError(entry["against"], _SETTINGS)
            raise self._error(f"against: {unknown}", "against", "panel", index)
        lines = self._matching(entry.get("lines", ["*"]), names, "lines", "panel", index)
        return Panel(entry.get("title", ""), lines, entry.get("against", ""))

    def _claim(self, entry: dict[str, Any], index: int, names: list[str]) -> Claim:
        self._known(entry, tuple(field.name for field in fields(Claim)), "claim", index)
        for key in ("says", "kind"):
            self._typed(entry.get(key), str, "a text", key, "claim", index)
        kind, than = KINDS.get(entry["kind"]), entry.get("than", [])
        self._texts(than, "than", "claim", index)
        alone = kind is not None and not kind.shares  # a pattern does not stand for the line that is compared
        lines = self._matching(entry.get("lines", []), names, "lines", "claim", index, than if alone else ())
        than = self._matching(than, names, "than", "claim", index, lines if alone else ())
        return self._made(lambda: Claim(**{**entry, "lines": lines, "than": than}), "claim", index)

    def _matching(
        self, patterns: Any, names: list[str], key: str, table: str, index: int, without: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """The lines with the given names, in which * stands for anything but the names in `without`."""
        self._texts(patterns, key, table, index)
        found: list[str] = []
        others = [name for name in names if name not in without]
        for pattern in patterns:
            matches = [pattern] if pattern in names else [name for name in others if fnmatchcase(name, pattern)]
            if not matches:
                there = one_line(", ".join(others), 800) or "none"
                other = "other line" if len(others) < len(names) else "line"
                raise self._error(f"{key}: there is no {other} {pattern[:60]!r}; there are {there}", key, table, index)
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
            raise self._error(f"{key}: expected a list of texts, found {written(value)}", key, table, index)

    def _typed(self, value: Any, kind: type, words: str, key: str, table: str = "", index: int = 0) -> Any:
        if not isinstance(value, kind):
            raise self._error(f"{key}: expected {words}, found {written(value)}", key, table, index)
        return value

    def _known(
        self, content: Iterable[str], known: Iterable[str], table: str = "", index: int = 0, what: str = "key"
    ) -> None:
        for key in content:
            if key not in known:
                raise self._error(str(UnknownNameError(key, known, what)), key, table, index)

    def _made(self, make: Callable[[], _T], table: str = "", index: int = 0) -> _T:
        """What `make` returns; what it refuses is said with the place in the file."""
        try:
            return make()
        except FultrError as error:
            raise self._error(str(error), error.name if isinstance(error, SettingError) else "", table, index) from None

    def _error(self, text: str, key: str, table: str = "", index: int = 0) -> FultrError:
        """What is wrong, with the line of the key: in the given table, or in those whose values it takes over."""
        if "." in key:  # such as tuning.repeats
            table, _, key = key.rpartition(".")
        begin, end = self._extent(table, index)
        places = [(begin, end), *(self._extent(shared, 0) for shared in ("settings", "tuning") if table == "line")]
        line = line_of(self._lines, key, places) if key else None
        return FultrError(f"{self._source}:{line or begin + 1}: {text}")

    def _extent(self, table: str, index: int) -> tuple[int, int]:
        """The lines of the index-th table of a name, from its heading; "": all lines."""
        headings = [i for i, line in enumerate(self._lines) if re.match(r"\s*\[+[^.\]]*\]", line)]
        own = [i for i in headings if re.match(rf"\s*\[+\s*{table}\s*\]", self._lines[i])]
        if not table or not own:
            return 0, len(self._lines)
        begin = own[min(index, len(own) - 1)]
        return begin, min((i for i in headings if i > begin), default=len(self._lines))


def _spoken(leaf: Leaf, value: Any) -> str:
    """A setting's value as it stands in a line's name."""
    if value is None:
        return leaf.zero
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    if isinstance(value, tuple):
        return ", ".join(f"{number:g}" for number in value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
