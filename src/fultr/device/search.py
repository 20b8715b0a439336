"""Search on a device, as its application sees it: results in the ranker's order, and a log of what was clicked."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar, overload

import numpy as np

from fultr.core.arrays import Float32s, Float64s, Int64s
from fultr.core.checks import UnknownNameError, check_number, number_fits, written
from fultr.core.errors import FultrError
from fultr.device.current import Stamp, read_current, stamp
from fultr.device.exploration import drawn, orders_for, ranks_in_orders
from fultr.device.features import LARGEST, Column, Feature, Features
from fultr.device.log import DeviceLog
from fultr.device.personal import PersonalLayer, clicked_of, drop_layer, extent_of, keep_layer, layer_of, read_layer
from fultr.rankers.plain import rows_times, scaled
from fultr.rankers.ranker import Ranker

Document = TypeVar("Document")
_logger = logging.getLogger("fultr.search")
_LEAST_EXPLORATION = 0.02  # below it an impression would take more space for the orders than for the documents


class Search:
    """Ranks candidates with the current version of the ranker, and logs what is displayed and clicked.

    Threads may share one. Neither a damaged version nor a log that cannot be written stops a search: the logger
    "fultr.search" gets a warning, and the previous ranker stays in use.

    Attributes:
        log: where impressions and clicks are stored.
        displayed: how many documents are displayed at most.
        normalised: are features scaled to [0, 1] within each query?
        personal: may a layer of the device's own weights be fitted and used? It can be changed at any time.
        exploration: the share of impressions with swapped neighbours.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> features = {"length": lambda query, text: len(text), "match": lambda query, text: query in text}
    >>> with Search(folder / "search.db", features, default={"match": 1.0, "length": -0.1}) as search:
    ...     results = search.rank("pizza", ["the best pasta", "a pizza oven", "pizza"])
    ...     results[0], len(results), results.clicked(1)
    ('pizza', 3, True)
    """

    def __init__(
        self,
        log: DeviceLog | str | os.PathLike[str],
        features: Mapping[str, Feature] = MappingProxyType({}),
        *,
        columns: Mapping[str, Column] = MappingProxyType({}),
        rankers: str | os.PathLike[str] | None = None,
        default: Ranker | Mapping[str, float] | None = None,
        displayed: int = 10,
        normalised: bool = True,
        hold_text: bool = False,
        personal: bool = False,
        exploration: float = 0.0,
    ) -> None:
        """Open the log, and look for the current version.

        Args:
            log: the path of a log, which is opened with these features, or created; or an open log that has them.
            features: by name, functions of the query and one candidate that return a number.
            columns: likewise, functions of the query and the list of all candidates that return one number each.
            rankers: a folder of versions in which a node names the current one (`fultr.device.current`).
            default: ranks until the first version arrives: a ranker, or weights by the features' names, 0 for those
                left out. None: candidates keep the order in which they are given.
            displayed: how many documents the application displays at most.
            normalised: features are scaled to [0, 1] within each query, before they are logged and before they are
                scored; a ranker must have been trained on such features. The federation's settings must say the same.
            hold_text: keep the text of queries in a log that is given by its path.
            personal: use the personal layer that `personalise` has fitted, where it is surely no worse than the shared
                ranker. It stays on the device.
            exploration: the share of impressions, up to 2/3, in which neighbours are swapped, every other pair of them.
                The log says so, and the estimator "harvested" learns examination from it. It is rounded to 2 / n, n
                being a whole number.
        """
        check_number("exploration", exploration, least=0, most=2 / 3)
        if exploration and exploration < _LEAST_EXPLORATION:
            raise FultrError(f"exploration: expected 0, or {_LEAST_EXPLORATION} to 2/3; found {exploration}")
        if not isinstance(personal, bool):
            raise FultrError(f"personal: expected true or false, found {written(personal)}")
        self.exploration, self.personal = exploration, personal
        check_number("displayed", displayed, least=1, most=1000, whole=True)
        self.displayed, self.normalised = displayed, normalised
        self._features = Features.of(features, columns)
        if isinstance(log, DeviceLog):
            if hold_text:
                raise FultrError("hold_text: expected a log given by its path; open the log itself with hold_text=True")
            self._features = self._features.in_order_of(log)
        self._in_use = self._default(default)
        self._opens = not isinstance(log, DeviceLog)
        self.log = (
            log if isinstance(log, DeviceLog)
            else DeviceLog.open(log, features=self._features.names, normalised=normalised, hold_text=hold_text)
        )  # fmt: skip
        self._rankers = None if rankers is None else Path(rankers)
        self._lock = threading.Lock()
        self._seen: Stamp = None
        self._said = ""
        self._layer: PersonalLayer | None = None
        self._current()

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the log, unless it was given open."""
        if self._opens:
            self.log.close()

    @property
    def version(self) -> str:
        """The name of the version in use, which impressions are logged with; "default" before the first."""
        return self._current().name

    def rank(
        self, query: str | bytes | int, candidates: Iterable[Document], *, shown: bool = True
    ) -> Results[Document]:
        """Rank a query's candidates, best first, equal ones in the order given; log what is to be displayed.

        Each call is an impression, except where there are no candidates.

        Args:
            query: what was searched for.
            candidates: objects that the features are functions of.
            shown: are the results displayed? False: nothing is logged until `Results.shown` is called, as when results
                change with every letter that is typed.
        """
        if isinstance(query, bool) or not isinstance(query, str | bytes | int | np.integer):
            raise FultrError(f"query: expected text, bytes or a whole number, found {type(query).__name__}")
        documents = list(candidates)
        if not documents:
            return Results(self, query, [], self._in_use, np.zeros((0, len(self._features.names)), np.float32))
        matrix = self._features.matrix(query, documents)
        if self.normalised:
            matrix = scaled(matrix)
        ranker = self._with_layer(self._current())
        order, ranks = ranker.order(matrix), None
        first = min(len(order), self.displayed)
        if self.exploration and first > 1:
            orders = orders_for(self.exploration)
            changed = drawn(orders, first)
            order[:first], ranks = order[changed], ranks_in_orders(changed, orders)
        results = Results(self, query, [documents[i] for i in order], ranker, matrix[order], ranks)
        if shown:
            results.shown()
        return results

    def personalise(self, *, now: bool = False) -> PersonalLayer | None:
        """Fit the personal layer to the clicks of the log, and judge it: for a moment when nobody waits.

        Does nothing if the last layer is for the current version and the log has got few clicks since: less than a
        fifth more, and 10.

        Args:
            now: do it anyway.

        Returns:
            The layer that the log has then, used or not; None: `personal` is off, there is no ranker that it could be
            on top of, or something was forgotten meanwhile.
        """
        ranker = self._current()
        if not self.personal or ranker.ranker is None:
            return None
        before = self._kept_layer()
        with self.log._reader() as connection:
            clicks = connection.execute("SELECT count(*) FROM clicks").fetchone()[0]
            if not now and before is not None and before.version == ranker.name and clicks < 1.2 * before.clicks + 10:
                return before
            extent = extent_of(connection)
            numbers = dict(connection.execute("SELECT id, query FROM impressions").fetchall())
        records, names = self.log.records(), self._features.names
        assert records.impressions is not None
        queries = np.array([int.from_bytes(numbers.get(id_, b"")[:7], "big") for id_ in records.impressions.tolist()])
        features = records.display.features[:, : len(names)]
        clicked = clicked_of(records, features, ranker.scores(features), queries.astype(np.int64))
        layer = layer_of(clicked, names, self.normalised, ranker.name, clicks, time.time())
        with self.log._connected() as connection:
            return layer if keep_layer(connection, layer, extent) else None

    @property
    def layer(self) -> PersonalLayer | None:
        """The personal layer for the current version, as it was last fitted and judged, used or not."""
        layer = self._kept_layer() if self.personal else None
        return layer if layer is not None and layer.version == self._current().name else None

    def forget_personal(self) -> None:
        """Delete the personal layer; `DeviceLog.forget` does so, too."""
        with self.log._connected() as connection:
            drop_layer(connection)

    def _kept_layer(self) -> PersonalLayer | None:
        """The layer in the log, which another process may have replaced or deleted."""
        with self.log._connected() as connection:
            row = connection.execute("SELECT made FROM personal").fetchone()
            if row is None:
                self._layer = None
            elif self._layer is None or self._layer.made != row[0]:
                self._layer = read_layer(connection)
            return self._layer

    def _with_layer(self, ranker: _InUse) -> _InUse:
        """The ranker with the personal layer on top, if there is one for it that may be used."""
        if not self.personal or ranker.ranker is None:
            return ranker
        try:
            layer = self._kept_layer()
        except FultrError as error:
            self._say(f"the personal layer is not used: {error}")
            return ranker
        if layer is None or layer.version != ranker.name or not layer.used:
            return ranker
        weights = np.array([layer.weights.get(name, 0.0) for name in self._features.names])
        return replace(ranker, name=f"{ranker.name}+personal", layer=weights)

    def _current(self) -> _InUse:
        """The ranker to use now; reads the folder again if `current` has been replaced."""
        if self._rankers is not None and stamp(self._rankers) != self._seen:
            with self._lock:
                seen = stamp(self._rankers)  # before reading: what changes meanwhile is noticed next time
                if seen != self._seen:
                    self._in_use, self._seen = self._read(self._rankers), seen
        return self._in_use

    def _read(self, folder: Path) -> _InUse:
        try:
            version = read_current(folder)
            if version is None:
                raise FultrError(f"{folder / 'current'}: is no longer there")
            return self._fitted(version.ranker, version.name, f"{folder}: version {version.name}")
        except FultrError as error:
            _logger.warning("%s; %s stays in use", error, self._in_use.name)
            return self._in_use

    def _default(self, default: Ranker | Mapping[str, float] | None) -> _InUse:
        names = self._features.names
        if default is None:
            return _InUse("default", None, np.arange(len(names)))
        if not isinstance(default, Ranker | Mapping):
            raise FultrError(f"default: expected a ranker, weights by name, or None; found {written(default)}")
        if not isinstance(default, Ranker):
            weights = np.zeros(len(names), np.float32)
            for name, weight in default.items():
                if name not in names:
                    raise UnknownNameError(str(name), names, "feature in default:")
                check_number(f"default: {name}", weight, least=-LARGEST, most=LARGEST)
                weights[names.index(name)] = weight
            default = Ranker(weights, np.arange(1, len(names) + 1), self.normalised, feature_names=tuple(names))
        return self._fitted(default, "default", "default")

    def _fitted(self, ranker: Ranker, name: str, place: str) -> _InUse:
        """The ranker with the columns that it takes, found by the names of features.

        Features without names are those of the log it was trained on: all of them, in the same order.
        """
        if ranker.normalised != self.normalised:
            kinds = {True: "normalised features", False: "features that are not normalised"}
            raise FultrError(
                f"{place}: expected a ranker for {kinds[self.normalised]}, found one for {kinds[ranker.normalised]}"
            )
        names = self._features.names
        if not ranker.named and ranker.feature_ids.tolist() == list(range(1, len(names) + 1)):
            return _InUse(name, ranker, np.arange(len(names)))
        missing = [repr(feature) for feature in ranker.feature_names if feature not in names]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise FultrError(f"{place}: needs {', '.join(missing[:3])}{more}, not among the features of this search")
        return _InUse(name, ranker, np.array([names.index(feature) for feature in ranker.feature_names]))

    def _log_impression(
        self, query: str | bytes | int, shown: Float32s, version: str, ranks: Int64s | None
    ) -> int | None:
        try:
            text = query if isinstance(query, str) else None
            return self.log.log_impression(query, shown, version=version, text=text, other_ranks=ranks)
        except FultrError as error:
            self._say(f"an impression was not logged: {error}")
            return None

    def _log_click(self, impression: int, rank: int) -> bool:
        try:
            return self.log.log_click(impression, rank)
        except FultrError as error:
            self._say(f"a click was not logged: {error}")
            return False

    def _say(self, warning: str) -> None:
        """Once, while the same thing happens again and again."""
        if warning != self._said:
            self._said = warning
            _logger.warning("%s", warning)


class Results(Sequence[Document], Generic[Document]):
    """Documents in the order of display, best first: all candidates, of which the first few are displayed.

    Attributes:
        version: the name of the version that ranked them, with "+personal" if the personal layer did so, too.
    """

    def __init__(
        self,
        search: Search,
        query: str | bytes | int,
        documents: list[Document],
        ranker: _InUse,
        features: Float32s,
        ranks: Int64s | None = None,
    ) -> None:
        """Made by `Search.rank`."""
        self.version = ranker.name
        self._search, self._query, self._documents = search, query, documents
        self._ranker, self._features, self._ranks = ranker, features, ranks
        self._displayed = min(len(documents), search.displayed)
        self._impression: int | None = None
        self._tried = False
        self._lock = threading.Lock()

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        return self._documents[index]

    def __len__(self) -> int:
        return len(self._documents)

    def __repr__(self) -> str:
        return f"Results({len(self)} documents, {self._displayed} displayed, {self.version})"

    def shown(self) -> int | None:
        """Log the impression, unless that was done before.

        Returns:
            Its number in the log; None if it could not be logged, or there is nothing to log.
        """
        with self._lock:
            if not self._tried and self._displayed:
                self._tried = True
                first = self._features[: self._displayed]
                self._impression = self._search._log_impression(self._query, first, self.version, self._ranks)
            return self._impression

    def contributions(self, index: int) -> dict[str, float]:
        """What each feature adds to the score of the document at an index: why it is where it is.

        The largest come first; those of a linear ranker add up to the score, of another they are what the score would
        lose without the feature. Features that add nothing are left out.
        """
        ranker = self._ranker.ranker
        if ranker is None:
            return {}
        columns = self._ranker.columns
        shares = np.zeros(len(self._features[index]))
        shares[columns] = ranker.plain.contributions(self._features[index, columns])
        if self._ranker.layer is not None:
            shares += self._ranker.layer * self._features[index]
        names = self._search._features.names
        named = [(name, float(share)) for name, share in zip(names, shares, strict=True) if share]
        return dict(sorted(named, key=lambda pair: -abs(pair[1])))

    def clicked(self, index: int) -> bool:
        """Log a click on the document at an index, from 0. A second click on it changes nothing.

        What is clicked has been displayed: the impression is logged too, if it is not yet.

        Returns:
            Whether the log has it. False: the impression could not be logged, or has been forgotten.
        """
        if not number_fits(index, whole=True, least=0, most=self._displayed - 1):
            wanted = f"0 to {self._displayed - 1}, a displayed document" if self._displayed else "no click: no results"
            raise FultrError(f"clicked: expected {wanted}; found {written(index)}")
        impression = self.shown()
        return impression is not None and self._search._log_click(impression, int(index) + 1)


@dataclass(frozen=True, eq=False)
class _InUse:
    """A ranker that fits the search; None: documents stay in the order given. Perhaps with a personal layer on top."""

    name: str
    ranker: Ranker | None
    columns: Int64s
    layer: Float64s | None = None

    def order(self, features: Float32s) -> Int64s:
        """Rows of the features, best first; equal scores in the order given."""
        if self.ranker is None:
            return np.arange(len(features))
        return np.argsort(-self.scores(features), kind="stable")

    def scores(self, features: Float32s) -> Float64s:
        """The sums of the ranker's scores and the layer's."""
        assert self.ranker is not None
        scores: Float64s = self.ranker.plain.scores(features[:, self.columns]).astype(np.float64)
        return scores if self.layer is None else scores + rows_times(features.astype(np.float64), self.layer)
