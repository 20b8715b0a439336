"""A trained ranker: scores, rankings, and a file that holds it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fultr.data import RankingData
from fultr.errors import FultrError
from fultr.files import written_whole
from fultr.linear import score
from fultr.metrics import ranking
from fultr.types import Float32s, Int64s

FORMAT = "fultr ranker 1"


@dataclass(frozen=True, eq=False)
class LinearRanker:
    """f_w(q, d) = w . x (Section 4, Baselines).

    Attributes:
        weights: float32 [features].
        feature_ids: int64 [features]: the ids that the features have in a LETOR file.
        normalised: was it trained on features scaled to [0, 1] within each query?
        training: how it was trained, for people to read.

    >>> ranker = LinearRanker(np.float32([1, 0]), np.array([1, 2]))
    >>> data = RankingData.from_arrays([[0.1, 5.0], [0.7, 1.0]], labels=[0, 1], query_ids=[1, 1])
    >>> ranker.rank(data).tolist()
    [1, 0]
    """

    weights: Float32s
    feature_ids: Int64s
    normalised: bool = True
    training: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.weights.dtype != np.float32 or self.weights.shape != self.feature_ids.shape:
            raise ValueError("weights: expected float32, one a feature id")

    def __repr__(self) -> str:
        return f"LinearRanker({self.weights.size} features)"

    def score(self, data: RankingData) -> Float32s:
        """The score of each document; higher is better."""
        if not np.array_equal(data.feature_ids, self.feature_ids):
            raise FultrError(
                f"the ranker was trained on {self.feature_ids.size} features and the data has {data.width}, or their "
                "ids differ: read the data with feature_ids=ranker.feature_ids"
            )
        return score(data.features, self.weights[np.newaxis])[:, 0]

    def rank(self, data: RankingData) -> Int64s:
        """Rows of `data`, query by query, best document first; equal scores in a fixed random order."""
        return ranking(self.score(data), data)

    def to_content(self) -> dict[str, Any]:
        """What a file holds of the ranker, as JSON's types; `from_content` gives it back to the last bit."""
        if not np.isfinite(self.weights).all():
            raise FultrError("the ranker's weights are not finite: training diverged; lower the learning rates")
        return {
            "format": FORMAT,
            "normalised": self.normalised,
            "feature_ids": self.feature_ids.tolist(),
            "weights": [float(str(w)) for w in self.weights],  # the shortest digits that give back the float32
            "training": self.training,
        }

    @classmethod
    def from_content(cls, content: dict[str, Any], path: str | Path) -> LinearRanker:
        """The ranker that the content of a file holds; `path` is for the line that says what is wrong with it."""
        try:
            with np.errstate(over="ignore"):
                weights = np.array(content["weights"], np.float32)
            given = content["feature_ids"]
            feature_ids = np.array(given, np.int64)
            if feature_ids.tolist() != given or np.any(np.diff(feature_ids) <= 0) or feature_ids.size == 0:
                raise ValueError("feature_ids: expected ascending whole numbers")
            if not isinstance(content["normalised"], bool):
                raise ValueError("normalised: expected true or false")
            if not np.isfinite(weights).all():
                raise ValueError("a weight is not finite")
            ranker = cls(weights, feature_ids, content["normalised"], dict(content["training"]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FultrError(f"{path}: damaged ranker file: {error}") from None
        return ranker

    def save(self, path: str | Path) -> None:
        """Write the ranker to a JSON file; reading it back gives the same weights to the last bit."""
        content = self.to_content()
        with written_whole(Path(path)) as temporary:
            temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> LinearRanker:
        """Read a ranker that `save` wrote, or the one of a version's file."""
        return cls.from_content(read_content(path), path)


def read_content(path: str | Path) -> dict[str, Any]:
    """The content of a ranker's file; if it has a digest, that fits."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        digest = digest_of(content) if isinstance(content, dict) else ""
    except OSError as error:
        raise FultrError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise FultrError(f"{path}: expected a ranker saved by fultr, found no JSON: {str(error)[:80]}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise FultrError(f"{path}: expected a ranker saved by fultr, with format {FORMAT!r}")
    if content.get("digest", digest) != digest:
        raise FultrError(
            f"{path}: damaged ranker file: its content has digest {digest[:12]}... and not the one that it was written "
            f"with, {str(content['digest'])[:12]}...; restore it from a copy"
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
