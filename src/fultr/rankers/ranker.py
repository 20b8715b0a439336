"""A trained ranker: its model and weights, scores and rankings, and a file that holds it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fultr.core.arrays import Float32s, Int64s
from fultr.core.checks import SettingError
from fultr.core.errors import FultrError, one_line
from fultr.core.files import written_whole
from fultr.core.settings import build
from fultr.rankers.model import ModelSettings, model_named, own_settings
from fultr.rankers.plain import PLAIN, PlainRanker, plain_size

if TYPE_CHECKING:
    from fultr.data.ranking import RankingData

FORMAT = "fultr ranker 1"
WITHOUT_IDS = "without_letor_ids"
"""What a ranker's training says if its features are known by their names alone: ids are then mere places."""


@dataclass(frozen=True, eq=False)
class Ranker:
    """A model with its weights, f_w.

    Attributes:
        weights: float32 [size of the model].
        feature_ids: int64 [features]: the ids that the features have in a LETOR file.
        normalised: was it trained on features scaled to [0, 1] within each query?
        training: how it was trained, for people to read.
        model: what the weights mean.
        feature_names: what the features are called, all differently; those that were given no names have their ids.

    >>> from fultr.data.ranking import RankingData
    >>> ranker = Ranker(np.float32([1, 0]), np.array([1, 2]))
    >>> data = RankingData.from_arrays([[0.1, 5.0], [0.7, 1.0]], labels=[0, 1], query_ids=[1, 1])
    >>> ranker.rank(data).tolist()
    [1, 0]
    >>> ranker.feature_names, ranker.named
    (('1', '2'), False)
    """

    weights: Float32s
    feature_ids: Int64s
    normalised: bool = True
    training: dict[str, Any] = field(default_factory=dict)
    model: ModelSettings = ModelSettings()
    feature_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        features, names = self.feature_ids.size, self.feature_names
        size = plain_size(self.model, features)
        if self.weights.dtype != np.float32 or self.weights.shape != (size,):
            raise ValueError(f"weights: expected {size} float32 for {features} feature ids")
        if not names:
            object.__setattr__(self, "feature_names", self._ids())
        elif len(names) != features or not all(isinstance(name, str) for name in names) or len(set(names)) < features:
            raise ValueError(f"feature_names: expected {features} different names, one per feature")

    def __repr__(self) -> str:
        return f"Ranker({self.model.kind}, {self.feature_ids.size} features)"

    def _ids(self) -> tuple[str, ...]:
        return tuple(str(i) for i in self.feature_ids.tolist())

    @property
    def named(self) -> bool:
        """Were the features given names?"""
        return self.feature_names != self._ids()

    def score(self, data: RankingData | Any) -> Float32s:
        """The score of each document; higher is better.

        Args:
            data: queries with their documents; or an array or a data frame with a row for each document and a column
                for each of the ranker's features: in their order, or by their names if both have names.
        """
        if not hasattr(data, "feature_ids"):
            return self._score_rows(data)
        self.check_ids()
        if not np.array_equal(data.feature_ids, self.feature_ids):
            raise FultrError(
                f"the ranker was trained on {self.feature_ids.size} features and the data has {data.width}, or their "
                "ids differ: read the data with feature_ids=ranker.feature_ids"
            )
        return model_named(self.model, data.width).scores(self.weights[np.newaxis], data.features)[:, 0]

    def check_ids(self) -> None:
        """Refuse to read a ranker's features from LETOR data if it knows them by their names alone."""
        if self.training.get(WITHOUT_IDS):
            raise FultrError(
                f"the ranker knows its features by the names in its click log ({self.feature_names[0]!r}, ...), and "
                "LETOR data have numbers alone; train it on columns that are called f1, f2, ... by these numbers"
            )

    def _score_rows(self, table: Any) -> Float32s:
        from fultr.clicks.frames import features_of

        values, names = features_of(table)
        if names is not None and self.named:
            missing = [name for name in self.feature_names if name not in names]
            if missing:
                raise FultrError(f"features: expected a column {missing[0]}, which the ranker scores by; found none")
            values = np.ascontiguousarray(values[:, [names.index(name) for name in self.feature_names]])
        if values.shape[1] != self.feature_ids.size:
            raise FultrError(f"features: expected the ranker's {self.feature_ids.size}, found {values.shape[1]}")
        return self.plain.scores(values)

    @cached_property
    def plain(self) -> PlainRanker:
        """The same ranker in NumPy alone, which needs no compiler."""
        return PlainRanker.of(self.model, self.feature_ids.size, self.weights)

    def rank(self, data: RankingData) -> Int64s:
        """Rows of `data`, query by query, best document first; equal scores in a fixed random order."""
        if not hasattr(data, "feature_ids"):
            found = type(data).__name__
            raise FultrError(
                f"rank: expected queries with their documents, such as fultr.load(...).test; found {found}. To rank "
                "the rows of an array, sort by Ranker.score"
            )
        from fultr.rankers.metrics import ranking  # compiled

        return ranking(self.score(data), data)

    def to_content(self) -> dict[str, Any]:
        """The ranker as JSON types, for a file; `from_content` restores it to the last bit."""
        if not np.isfinite(self.weights).all():
            raise FultrError("the ranker's weights are not finite: training diverged; lower the learning rates")
        own = {name: getattr(self.model, name) for name in own_settings(PLAIN[self.model.kind])}
        return {
            "format": FORMAT,
            "model": self.model.kind,
            **({"model_settings": own} if own else {}),
            "normalised": self.normalised,
            "feature_ids": self.feature_ids.tolist(),
            "feature_names": list(self.feature_names),
            "weights": [float(str(w)) for w in self.weights],  # the shortest digits that restore the float32
            "training": self.training,
        }

    @classmethod
    def from_content(cls, content: dict[str, Any], path: str | Path) -> Ranker:
        """The ranker in a file's content; `path` is for error messages."""
        try:
            given = content["feature_ids"]
            if not _are(content["weights"], int, float):
                raise ValueError("weights: expected a list of numbers")
            if not _are(given, int):
                raise ValueError("feature_ids: expected ascending whole numbers")
            if not isinstance(content.get("feature_names", []), list):
                raise ValueError("feature_names: expected a list of texts")
            if not isinstance(content["training"], dict):
                raise ValueError("training: expected a table")
            with np.errstate(over="ignore"):
                weights = np.array(content["weights"], np.float32)
            feature_ids = np.array(given, np.int64)
            if feature_ids.tolist() != given or np.any(np.diff(feature_ids) <= 0) or feature_ids.size == 0:
                raise ValueError("feature_ids: expected ascending whole numbers")
            if not isinstance(content["normalised"], bool):
                raise ValueError("normalised: expected true or false")
            if not np.isfinite(weights).all():
                raise ValueError("a weight is not finite")
            names = tuple(content.get("feature_names", ()))
            training, model = content["training"], _model_in(content)
            ranker = cls(weights, feature_ids, content["normalised"], training, model, names)
        except KeyError as error:
            raise FultrError(f"{path}: damaged ranker file: {error.args[0]} is missing") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise FultrError(f"{path}: damaged ranker file: {one_line(str(error))}") from None
        return ranker

    def save(self, path: str | Path) -> None:
        """Write the ranker to a JSON file; reading it back gives the same weights to the last bit."""
        content = self.to_content()
        with written_whole(Path(path)) as temporary:
            temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Ranker:
        """Read a ranker that `save` wrote, or the one of a version's file."""
        return cls.from_content(read_content(path), path)


def _are(values: object, *kinds: type) -> bool:
    """Is it a list of values of these types? True and false are no numbers."""
    return isinstance(values, list) and all(type(value) in kinds for value in values)


def _model_in(content: dict[str, Any]) -> ModelSettings:
    """The model that a file names, with exactly the settings that it takes."""
    kind, given = content["model"], content.get("model_settings", {})
    if not isinstance(kind, str) or kind not in PLAIN:
        raise ValueError(f"model: expected one of {', '.join(PLAIN)}; found {str(kind)[:40]!r}")
    own = own_settings(PLAIN[kind])
    if not isinstance(given, dict) or sorted(given) != sorted(own):
        raise ValueError(f"model_settings: expected {', '.join(own) or 'none'} for the model {kind}")
    try:
        return build(ModelSettings, {"kind": kind, **given})
    except SettingError as error:
        raise ValueError(str(error)) from None


def read_content(path: str | Path) -> dict[str, Any]:
    """The content of a ranker's file; its digest, if it has one, is checked."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise FultrError(f"{path}: cannot be read: {error.strerror}") from None
    return content_of(data, path)


def content_of(data: bytes, path: str | Path) -> dict[str, Any]:
    """The content of a ranker's file from its bytes; `path` is for error messages."""
    try:
        content = json.loads(data.decode("utf-8"))
        digest = digest_of(content) if isinstance(content, dict) else ""
    except (ValueError, RecursionError) as error:
        raise FultrError(
            f"{path}: expected a ranker saved by fultr, found no JSON: {one_line(str(error), 80)}"
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise FultrError(f"{path}: expected a ranker saved by fultr, with format {FORMAT!r}")
    if content.get("digest", digest) != digest:
        raise FultrError(
            f"{path}: damaged ranker file: its content has digest {digest[:12]}... instead of the one it was written "
            f"with, {one_line(str(content['digest']), 12)}...; restore it from a backup"
        )
    return content


def digest_of(content: dict[str, Any]) -> str:
    """SHA-256 of a file's content, whatever the order of its keys; the key "digest" itself is left out.

    >>> digest_of({"a": 1, "b": 0.5}) == digest_of({"b": 0.5, "a": 1, "digest": "..."})
    True
    """
    rest = {key: value for key, value in content.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
