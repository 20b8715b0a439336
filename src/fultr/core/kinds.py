"""Tables of what can be chosen by name, such as losses: where each kind is, loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from fultr.core.checks import check_choice


class Kinds(Mapping[str, Any]):
    """What a setting may name: names that cost nothing, and what they stand for, which may take long to import.

    Args:
        what: what the kinds are of, for the line that refuses an unknown name.
        places: by name, a "module", whose functions are the kind, or a "module:attribute".

    >>> shapes = Kinds("shape", {"ordered": "collections:OrderedDict", "counted": "collections:Counter"})
    >>> list(shapes), shapes["counted"]("aab")["a"]
    (['ordered', 'counted'], 2)
    >>> shapes["countd"]
    Traceback (most recent call last):
    fultr.core.checks.SettingError: shape: expected one of ordered, counted; found "countd"
    """

    def __init__(self, what: str, places: dict[str, str]) -> None:
        self._what, self._places = what, places
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            check_choice(self._what, name, self._places)
            module, _, attribute = self._places[name].partition(":")
            found = import_module(module)
            self._loaded[name] = getattr(found, attribute) if attribute else found
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
