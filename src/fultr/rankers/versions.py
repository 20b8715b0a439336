"""A folder of versions: every ranker that devices were given, with its configuration, its parent and its quality.

A device stores the name of the version that made an impression. After the ranker is replaced, the name still leads
to the logging policy f_0 that decided what was displayed and at which rank, to the last bit; clicks are then divided by
the propensities of what was displayed, not of what would be displayed today.

A version's file is a ranker's file with a section "version" and a digest of all that it holds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, is_dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version as version_of
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from fultr.core.errors import FultrError, one_line
from fultr.core.files import locked, make_folder, written_whole
from fultr.rankers.ranker import Ranker, content_of, digest_of, read_content

_NAME = re.compile(r"v(\d{4,12})-([0-9a-f]{6})")


@dataclass(frozen=True, eq=False)
class Version:
    """A ranker as it was given to devices.

    Attributes:
        name: such as "v0003-1f2ab9": its number in the folder and the beginning of its digest.
        ranker: the ranker itself, with the names of its features.
        parent: the name of the version that its training started from, or None.
        configuration: how it was made.
        metrics: its quality: under each name a "mean", its "standard_error" (None if unknown), and whatever else was
            given.
        note: for people.
        made: when, in UTC.
        fultr: the version of this software that made it.
        digest: SHA-256 of all of the above.
    """

    name: str
    ranker: Ranker
    parent: str | None
    configuration: dict[str, Any]
    metrics: dict[str, dict[str, Any]]
    note: str
    made: str
    fultr: str
    digest: str

    def __repr__(self) -> str:
        return f"Version({self.name}, {self.ranker!r})"


@dataclass(frozen=True)
class Versions:
    """The versions in a folder, one file each, which are written once and never changed.

    Any number of processes may read and write at once. A version's name may be shortened to its number if unique:
    "v0003"; "latest" is the one with the highest number.

    >>> import tempfile, numpy as np
    >>> versions = Versions(tempfile.mkdtemp())
    >>> ranker = Ranker(np.float32([1, 0.25]), np.array([1, 2]))
    >>> first = versions.write(ranker, parent=None, configuration={"rounds": 10}, metrics={"NDCG@5": 0.5})
    >>> second = versions.write(ranker, parent=first.name, configuration={"rounds": 20}, metrics={}, note="trained on")
    >>> [name[:5] for name in versions.list()]
    ['v0001', 'v0002']
    >>> versions.read("latest").parent == first.name, versions.read("v0001").metrics
    (True, {'NDCG@5': {'mean': 0.5, 'standard_error': None}})
    >>> [version.configuration["rounds"] for version in versions.lineage("latest")]
    [20, 10]
    """

    folder: str | Path

    def write(
        self,
        ranker: Ranker,
        *,
        parent: str | None,
        configuration: Mapping[str, Any],
        metrics: Mapping[str, Any],
        note: str = "",
        feature_names: Sequence[str] | None = None,
    ) -> Version:
        """Write a ranker as the next version.

        Args:
            ranker: what devices are given.
            parent: the version that its training started from, of this folder; None if there is none.
            configuration: how it was made, such as `Simulation.settings`.
            metrics: how good it is: under each name a `Summary`, an `Estimate`, a mapping with a "mean" and a
                "standard_error", or a bare number, whose standard error then is unknown.
            note: for people.
            feature_names: one per feature; None: the ranker's own, or those of a parent with the same features.
        """
        before = None if parent is None else self.read(parent)
        section = {
            "parent": None if before is None else before.name,
            "configuration": dict(configuration),
            "metrics": {name: _metric(name, value) for name, value in metrics.items()},
            "note": note,
            "made": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "fultr": version_of("fultr"),
        }
        named = _named(ranker, before, feature_names)
        try:  # from here on as a reader will see it: lists for tuples, strings as keys
            content = json.loads(json.dumps({**named.to_content(), "version": section}, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise FultrError(
                f"{self.folder}: the configuration, metrics or note cannot be written as JSON: {error}; "
                "use numbers that are finite, texts, true and false, lists, and dictionaries with texts as keys"
            ) from None
        make_folder(Path(self.folder))
        with locked(Path(self.folder) / ".lock"):
            content["version"]["number"] = 1 + max((_number(name) for name in self.list()), default=0)
            content["digest"] = digest_of(content)
            file = Path(self.folder) / f"{_name_of(content)}.json"
            with written_whole(file) as temporary:
                temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        with suppress(OSError):
            file.chmod(0o444)  # against accidental changes
        return _read_version(file)

    def list(self) -> tuple[str, ...]:
        """The names of all versions, oldest first; empty if there is no such folder yet."""
        try:
            names = [path.stem for path in Path(self.folder).iterdir() if path.suffix == ".json"]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise FultrError(f"{self.folder}: cannot be read as a folder of versions: {error.strerror}") from None
        return tuple(sorted((n for n in names if _NAME.fullmatch(n)), key=lambda name: (_number(name), name)))

    def read(self, name: str = "latest") -> Version:
        """Read a version by its name, by its number such as "v0003", or the latest one."""
        return _read_version(Path(self.folder) / f"{self._find(name)}.json", named=True)

    def lineage(self, name: str = "latest") -> tuple[Version, ...]:
        """A version, the one that its training started from, the one before that, and so on to the first."""
        line = [self.read(name)]
        while (parent := line[-1].parent) is not None:
            try:
                line.append(self.read(parent))
            except FultrError as error:
                raise FultrError(f"lineage of {line[0].name}, parent of {line[-1].name}: {error}") from None
        return tuple(line)

    def _find(self, name: str) -> str:
        names = self.list()
        if not names:
            missing = "" if Path(self.folder).is_dir() else ": there is no such folder"
            raise FultrError(f"{self.folder}: expected a folder of versions, found none{missing}")
        if name == "latest":
            return names[-1]
        found = [n for n in names if name in (n, n.partition("-")[0])]
        if len(found) == 1:
            return found[0]
        if found:
            raise FultrError(f"{self.folder}: version {name!r} is ambiguous: {' or '.join(found)}; give the full name")
        shown = ", ".join(names if len(names) <= 6 else (*names[:2], "...", *names[-3:]))
        raise FultrError(f"{self.folder}: no version {name!r}; expected latest, {shown}")


def read_ranker(where: str | Path) -> tuple[Ranker, Version | None]:
    """The ranker that a user names, and its version, if it is one.

    Args:
        where: the file of a ranker or of a version; or FOLDER@NAME, a version in a folder of versions, such as
            "out/versions@latest", "out/versions@v0003".
    """
    path = Path(where)
    folder, at, name = str(where).rpartition("@")
    if at and "/" not in name and not path.exists():
        found = Versions(folder or ".").read(name)
        return found.ranker, found
    if path.is_dir():
        raise FultrError(f"{where}: is a folder; to use one of its versions, name it: {where}@latest")
    content = read_content(path)
    if "version" not in content:
        return Ranker.from_content(content, path), None
    found = _version_from(content, path)
    return found.ranker, found


def version_of_bytes(data: bytes, where: str) -> Version:
    """The version in the bytes of its file; `where` they come from is for error messages."""
    return _version_from(content_of(data, where), where)


def is_version_name(name: object) -> bool:
    """Could it be the whole name of a version? Such a name is also safe as a file's.

    >>> is_version_name("v0003-1f2ab9"), is_version_name("v0003"), is_version_name("../v0003-1f2ab9")
    (True, False, False)
    """
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _read_version(file: Path, named: bool = False) -> Version:
    version = _version_from(read_content(file), file)
    if named and version.name != file.stem:
        raise FultrError(f"{file}: holds version {version.name}: the file was renamed; rename it back")
    return version


def _version_from(content: dict[str, Any], path: str | Path) -> Version:
    ranker = Ranker.from_content(content, path)
    try:
        section = content["version"]
        if type(section["number"]) is not int or section["number"] < 1:
            raise ValueError("number: expected a whole number from 1")
        parent = section["parent"]
        if parent is not None and (not _NAME.fullmatch(parent) or _number(parent) >= section["number"]):
            raise ValueError("parent: expected the name of an earlier version")
        return Version(
            name=_name_of(content),
            ranker=ranker,
            parent=parent,
            configuration=dict(section["configuration"]),
            metrics={name: dict(value) for name, value in section["metrics"].items()},
            note=str(section["note"]),
            made=str(section["made"]),
            fultr=str(section["fultr"]),
            digest=content["digest"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FultrError(f"{path}: damaged version file: {one_line(str(error))}") from None


def _name_of(content: dict[str, Any]) -> str:
    return f"v{content['version']['number']:04}-{content['digest'][:6]}"


def _number(name: str) -> int:
    return int(name[1:].partition("-")[0])


def _metric(name: str, value: Any) -> dict[str, Any]:
    """A metric for the file; unknown values (NaN) become None."""
    if isinstance(value, Real):
        given: dict[str, Any] = {"mean": value, "standard_error": None}
    elif is_dataclass(value) and not isinstance(value, type):
        given = asdict(value)
    else:
        given = dict(value) if isinstance(value, Mapping) else {}
    if not {"mean", "standard_error"} <= given.keys():
        raise FultrError(
            f"metrics: {name}: expected a number, or a mean with its standard_error as fultr.summarise gives; "
            f"found {str(value)[:40]}"
        )
    plain = {key: float(v) if isinstance(v, Real) and not isinstance(v, int) else v for key, v in given.items()}
    return {key: None if isinstance(v, float) and math.isnan(v) else v for key, v in plain.items()}


def _named(ranker: Ranker, parent: Version | None, given: Sequence[str] | None) -> Ranker:
    """The ranker, its features called by the names that a version of it has."""
    if given is not None:
        with suppress(ValueError):
            if given and not isinstance(given, str):
                return replace(ranker, feature_names=tuple(given))
        count = ranker.feature_ids.size
        raise FultrError(f"feature_names: expected {count} different names, one per feature, found {str(given)[:40]}")
    if not ranker.named and parent is not None and np.array_equal(parent.ranker.feature_ids, ranker.feature_ids):
        return replace(ranker, feature_names=parent.ranker.feature_names)
    return ranker
