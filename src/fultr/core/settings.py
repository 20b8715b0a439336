"""Settings: frozen dataclasses, nested, whose fields declare once their default, help and what is allowed.

Python is nested, `RunSettings(model=ClickModel(gamma=2.0))`; files, command lines and records are flat, `gamma = 2`: no
two settings of a tree have the same name. A field that is not declared by `setting` or `either`, and is no record of
settings itself, can be set in Python alone.

>>> @dataclass(frozen=True)
... class Training:
...     client_rate: float = setting(0.01, "Learning rate of clients, eta_l.", above=0)
...     clip: float | None = setting(None, "Largest weight of a click.", above=0, zero="no limit")
...
...     def __post_init__(self) -> None:
...         check(self)
>>> build(Training, {"client_rate": 1, "clip": 0})
Training(client_rate=1.0, clip=None)
>>> flatten(Training(clip=3))
{'client_rate': 0.01, 'clip': 3.0}
>>> build(Training, {"clip": -1})
Traceback (most recent call last):
fultr.core.checks.SettingError: clip: expected a number, above 0, or 0: no limit; found -1
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fultr.core.checks import SettingError, UnknownNameError, number_fits, number_words, written

REQUIRED = MISSING
"""The default of a setting that has none."""

_LARGEST = 10**9  # of a whole number that has no other bound: beyond it counts and sizes overflow
_KEY = "setting"
_T = TypeVar("_T")
_hints = cache(get_type_hints)


@dataclass(frozen=True)
class _Declared:
    """What a field says of itself; a leaf is that with its name, type and place."""

    help: str
    bounds: tuple[tuple[str, float], ...] = ()
    zero: str = ""
    choices: Collection[str] = ()
    reads: Callable[[Any], Any] | None = None
    expected: str = ""
    record: Any = None
    by: str = ""
    name: str = ""
    without: tuple[str, ...] = ()


def setting(
    default: Any,
    help: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    zero: str = "",
    choices: Collection[str] = (),
) -> Any:
    """Declare a field; its annotation says what it may be: float, int, bool, str or a Literal of texts, or also None.

    With `tuple[str, ...]` it is a list of some of the choices, with `tuple[float, ...]` one number or several.

    Args:
        default: its value if nothing is said; `REQUIRED` if something must be.
        help: one sentence.
        least: the smallest number that is allowed; above, most and below are likewise.
        above: see least.
        most: see least.
        below: see least.
        zero: for numbers that may be None: what that means; files and options write it 0.
        choices: the texts that are allowed, such as the names of a table; empty: those of the annotation.
    """
    bounds = {"least": least, "above": above, "most": most, "below": below}
    given = tuple((name, bound) for name, bound in bounds.items() if bound is not None)
    return field(default=default, metadata={_KEY: _Declared(help, given, zero, choices)})


def either(
    default: Any,
    help: str,
    record: type,
    by: str,
    *,
    name: str,
    zero: str = "",
    reads: Callable[[Any], Any] | None = None,
    expected: str = "",
    without: tuple[str, ...] = (),
) -> Any:
    """Declare a field that is a record of settings, or a plain value that takes its place.

    One setting chooses: if its value is one that the record's field `by` allows, there is such a record, and the
    record's other settings are those of the tree; else the field is that value, and they make no difference.

    Args:
        default: of the field.
        help: one sentence about the choice.
        record: the class of the record.
        by: its field that chooses.
        name: what the choice is called.
        zero: as for `setting`.
        reads: turns what is written into the value that is kept, or raises ValueError.
        expected: what `reads` takes, in words.
        without: the record's settings that are none of this tree.
    """
    declared = _Declared(help, (), zero, (), reads, expected, record, by, name, without)
    return field(default=default, metadata={_KEY: declared})


@dataclass(frozen=True)
class Leaf:
    """One setting of a tree.

    Attributes:
        name: in files, options and messages.
        path: the fields that lead to it.
        kind: float, int, bool, str, or tuple: a list of texts, or without choices of numbers.
        choices: the texts that are allowed; empty: any, or `kind` is another.
        default: in the tree; `REQUIRED` if it must be given.
        help: one sentence.
        bounds: of a number, by the words of `number_words`.
        zero: what 0 stands for, where that means None.
        reads: of a type of its own: turns what is written into what is kept.
        words: what is allowed, where `reads` says it.
        record: what stands at its place if it chooses a record, see `either`.
        by: the record's field of the same meaning.
    """

    name: str
    path: tuple[str, ...]
    kind: type
    choices: Collection[str]
    default: Any
    help: str
    bounds: tuple[tuple[str, float], ...] = ()
    zero: str = ""
    reads: Callable[[Any], Any] | None = None
    words: str = ""
    record: Any = None
    by: str = ""

    @property
    def expected(self) -> str:
        """What is allowed, in words."""
        if self.words:
            return self.words
        if self.choices:
            return f"{'a list of some' if self.kind is tuple else 'one'} of {', '.join(self.choices)}"
        if self.kind in (int, float):
            number = number_words(whole=self.kind is int, **dict(self.bounds))
            return f"{number}, or 0: {self.zero}" if self.zero else number
        if self.kind is tuple:
            return f"{number_words(whole=False, **dict(self.bounds))}, or several, with commas between"
        return "true or false" if self.kind is bool else "a text"

    def read(self, value: object) -> Any:
        """The value as it is kept, whole numbers as floats where any number will do; or an error that says why not."""
        if self.zero and (value is None or (number_fits(value, whole=False) and value == 0)):
            return None
        if self.reads is not None:
            try:
                return self.reads(value)
            except ValueError:
                raise self.refusal(value) from None
        if self.kind in (int, float):
            bounds = dict(self.bounds)
            if self.kind is int and "most" not in bounds and number_fits(value, whole=True, above=_LARGEST):
                return replace(self, bounds=(*self.bounds, ("most", _LARGEST))).read(value)
            if number_fits(value, whole=self.kind is int, **bounds):
                number: Any = value
                return self.kind(number)
        elif self.kind is tuple and not self.choices:
            if (numbers := self._numbers(value)) is not None:
                return numbers
        elif self.kind is tuple:
            parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
            if isinstance(parts, list | tuple) and all(part in tuple(self.choices) for part in parts):
                return tuple(dict.fromkeys(parts))
        elif isinstance(value, self.kind) and (not self.choices or value in self.choices):
            return value
        raise self.refusal(value)

    def _numbers(self, value: Any) -> tuple[float, ...] | None:
        """One number or several, within the bounds; None if that is not what it is."""
        if isinstance(value, str):
            try:
                value = [float(part) for part in value.split(",")]
            except ValueError:
                return None
        several = value if isinstance(value, list | tuple) else [value]
        fit = several and all(number_fits(number, whole=False, **dict(self.bounds)) for number in several)
        return tuple(float(number) for number in several) if fit else None

    def parse(self, text: str) -> Any:
        """The value that a text on a command line stands for."""
        if self.kind not in (int, float) or self.reads is not None:
            return self.read(text)
        try:
            return self.read(self.kind(text))
        except ValueError:
            raise self.refusal(text, text_expected=True) from None

    def write(self, value: Any) -> str | int | float | bool:
        """A kept value as a text, a number, true or false, which every kind of file has."""
        if value is None:
            return 0
        if isinstance(value, tuple):
            return ",".join(part if isinstance(part, str) else repr(part) for part in value)
        return value

    def refusal(self, value: object, *, text_expected: bool = False) -> SettingError:
        """What is said of a value that is not allowed."""
        between = ";" if self.words or self.choices or self.zero else ","
        found = written(value, text_expected=text_expected or self.kind is str)
        return SettingError(self.name, f"expected {self.expected}{between} found {found}")


def leaves(tree: type) -> dict[str, Leaf]:
    """All settings of a class and of the records in it, by name, in their order."""
    return dict(_leaves(tree))


@cache
def _leaves(tree: Any) -> dict[str, Leaf]:
    found: dict[str, Leaf] = {}
    for leaf in _walk(tree, (), None):
        if leaf.name in found:
            raise TypeError(f"{tree.__name__}: two settings are called {leaf.name}")
        found[leaf.name] = leaf
    return found


@cache
def _own_leaves(tree: Any) -> dict[str, Leaf]:
    """The settings that are fields of the class itself, by field."""
    return {leaf.path[0]: leaf for leaf in _leaves(tree).values() if len(leaf.path) == 1}


def _walk(tree: type, path: tuple[str, ...], usual: Any) -> Iterator[Leaf]:
    """The settings of a class that stands at a place; `usual` has their defaults there, None: those of the class."""
    hints = _hints(tree)
    for each in fields(tree):
        declared = cast(_Declared | None, each.metadata.get(_KEY))
        default, place = (each.default if usual is None else getattr(usual, each.name)), (*path, each.name)
        if declared is None:
            if is_dataclass(hints[each.name]):
                yield from _walk(hints[each.name], place, None if default is MISSING else default)
        elif declared.record is None:
            kind, choices = _kind(hints[each.name])
            yield Leaf(
                each.name,
                place,
                kind,
                declared.choices or choices,
                default,
                declared.help,
                declared.bounds,
                declared.zero,
            )
        else:
            inner = leaves(declared.record)
            chooser, chosen = inner[declared.by], isinstance(default, declared.record)
            yield replace(
                chooser,
                name=declared.name,
                path=place,
                default=getattr(default, declared.by) if chosen else default,
                help=declared.help,
                zero=declared.zero,
                reads=declared.reads,
                words=declared.expected,
                record=declared.record,
                by=declared.by,
            )
            for leaf in _walk(declared.record, place, default if chosen else None):
                if leaf.name != declared.by and leaf.name not in declared.without:
                    yield leaf


def _kind(hint: Any) -> tuple[type, tuple[str, ...]]:
    """The type of a setting's values, None aside, and the choices that it leaves."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is tuple:
        return tuple, ()
    return (str, get_args(hint)) if get_origin(hint) is Literal else (hint, ())


def check(settings: Any) -> None:
    """Check a record's own settings and put them into the form that they are kept in; called in `__post_init__`."""
    tree: Any = type(settings)
    hints = _hints(tree)
    for each in fields(settings):
        value = getattr(settings, each.name)
        if _KEY not in each.metadata:
            kind = hints[each.name]
            if is_dataclass(kind) and not isinstance(value, cast(type, kind)):
                name = cast(type, kind).__name__
                raise SettingError(each.name, f"expected a value of type {name}, found {written(value)}")
            continue
        leaf = _own_leaves(tree)[each.name]
        if leaf.record is None or not isinstance(value, leaf.record):
            object.__setattr__(settings, each.name, _chosen(leaf, leaf.read(value), {}, None))


def build(tree: type[_T], given: Mapping[str, object]) -> _T:
    """Settings of a class from names and values; the others have their defaults."""
    return cast(_T, _filled(tree, _read(tree, given), None))


def changed(settings: _T, given: Mapping[str, object]) -> _T:
    """The same settings with other values of some."""
    return cast(_T, _filled(type(settings), _read(type(settings), given), settings))


def _read(tree: type, given: Mapping[str, object]) -> dict[str, Any]:
    known = _leaves(tree)
    for name in given:
        if name not in known:
            raise UnknownNameError(name, known)
    return {name: known[name].read(value) for name, value in given.items()}


def _filled(tree: type, values: Mapping[str, Any], base: Any) -> Any:
    """A record with some values; what they leave open is as in `base`, or by default if that is None."""
    if base is not None and values.keys().isdisjoint(_leaves(tree)):
        return base
    parts: dict[str, Any] = {}
    hints = _hints(tree)
    for each in fields(tree):
        declared = cast(_Declared | None, each.metadata.get(_KEY))
        before = each.default if base is None else getattr(base, each.name)
        if declared is None:
            if is_dataclass(hints[each.name]):
                parts[each.name] = _filled(cast(type, hints[each.name]), values, None if before is MISSING else before)
        elif declared.record is not None:
            leaf = _leaves(tree)[declared.name]
            plain = getattr(before, declared.by) if isinstance(before, declared.record) else before
            parts[each.name] = _chosen(leaf, values.get(leaf.name, plain), values, before)
        elif each.name in values:
            parts[each.name] = values[each.name]
        elif before is MISSING:
            raise SettingError(each.name, f"expected {_leaves(tree)[each.name].expected}, found nothing")
    return tree(**parts) if base is None else replace(base, **parts)


def _chosen(leaf: Leaf, value: Any, values: Mapping[str, Any], before: Any) -> Any:
    """The record that a value chooses, or the value itself."""
    if leaf.record is None:
        return value
    try:
        kept = _leaves(leaf.record)[leaf.by].read(value)
    except SettingError:
        return value
    base = before if isinstance(before, leaf.record) else None
    return _filled(leaf.record, {**values, leaf.by: kept}, base)


def flatten(settings: Any) -> dict[str, Any]:
    """All settings that make a difference, by name; ready for JSON, and for `build`."""
    tree: Any = type(settings)
    found = {}
    for leaf in _leaves(tree).values():
        value = settings
        for name in leaf.path:
            value = getattr(value, name, MISSING)
        if leaf.record is not None and isinstance(value, leaf.record):
            value = getattr(value, leaf.by)
        if value is not MISSING:  # a setting of a record that is not there
            found[leaf.name] = value
    return found
