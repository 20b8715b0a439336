"""Searching: candidates from the index, ranked by the current ranker, with passages to show."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TypeAlias

from fultr.app.catalogue import LEAD
from fultr.app.features import DEFAULT, FEATURES, Candidate, Habits
from fultr.app.home import Home
from fultr.app.index import Index
from fultr.app.match import Passage, match, passage
from fultr.app.text import Query, fold, path_words
from fultr.app.words import FIELDS, Narrowed
from fultr.device.search import Results, Search

DISPLAYED = 10
"""Results on the page: what an impression holds."""

CHOICES = {"personal": "on", "exploration": "off"}
"""What the user can switch on and off, and how it is before."""

PAUSED = "paused"
"""The setting that is "yes" while nothing is logged."""

EXPLORATION = 0.1
"""The share of searches with swapped neighbours, if exploration is on."""

CANDIDATES = 60
"""Documents that the engine hands to the ranker."""

_K1, _B = 1.2, 0.75  # of BM25
_USUAL = {"name": 3.0, "title": 6.0, "folders": 8.0, "body": 500.0}  # words: the length that BM25 compares with
Found: TypeAlias = Results[Candidate]


class Finder:
    """Search over an index with the current ranker; keeps the log. Threads may share one.

    Attributes:
        index: that is searched.
        search: ranks, and logs what is shown and clicked.
    """

    def __init__(self, home: Home, *, logs: bool = True) -> None:
        """Open the index and the log of an application's folder.

        Args:
            home: the folder.
            logs: will results be logged? If not, nothing is explored.
        """
        self._logs = logs
        self.index = Index(home)
        self.search = Search(
            home.log, FEATURES, rankers=home.rankers, default=DEFAULT, displayed=DISPLAYED, hold_text=True
        )
        self.apply_choices()

    def __enter__(self) -> Finder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the log and the index."""
        self.search.close()
        self.index.close()

    def choose(self, name: str, on: bool) -> None:
        """Switch one of `CHOICES` on or off; without the personal layer, what was learnt of it is deleted."""
        self.index.catalogue.set(name, "on" if on else "off")
        self.apply_choices()
        if name == "personal" and not on:
            self.search.forget_personal()

    def apply_choices(self) -> None:
        """Have the search do what the user chose, here or in another window: nothing is explored that is not logged."""
        logs = self._logs and self.index.catalogue.setting(PAUSED, "") != "yes"
        self.search.personal = self.chosen("personal")
        self.search.exploration = EXPLORATION if logs and self.chosen("exploration") else 0.0

    def chosen(self, name: str) -> bool:
        """Is one of `CHOICES` on?"""
        return self.index.catalogue.setting(name, CHOICES[name]) == "on"

    def find(self, text: str, narrowed: Narrowed = Narrowed(), now: float | None = None) -> Found:
        """Rank the documents that match; nothing is logged until the results are shown (`Results.shown`)."""
        self.apply_choices()
        query = Query.of(text)
        scores = self.index.words.candidates(query, narrowed, CANDIDATES)
        return self.search.rank(normal(text), self._candidates(query, scores, now), shown=False)

    def _candidates(self, query: Query, scores: dict[int, float], now: float | None) -> list[Candidate]:
        ids = list(scores)
        documents = self.index.catalogue.documents(ids)
        leads = self.index.catalogue.leads(ids)
        habits = self._habits(normal(query.text))
        rarity = {field: self._rarity(query, field) for field in FIELDS}
        moment = time.time() if now is None else now
        found = []
        for id_ in ids:
            if id_ not in documents or id_ not in leads:
                continue  # just removed
            document = documents[id_]
            path = path_words(document.path)
            texts = {"name": path.name, "title": fold(document.title), "folders": path.folders, "body": leads[id_]}
            matches = {field: match(query, text) for field, text in texts.items()}
            bm25 = {
                field: sum(
                    weight * (1 + _K1) * count / (count + _K1 * (1 - _B + _B * len(texts[field]) / 6 / _USUAL[field]))
                    for weight, count in zip(rarity[field], one.counts, strict=True)
                )
                for field, one in matches.items()
            }
            found.append(Candidate(query, document, path, scores[id_], bm25, **matches, habits=habits, now=moment))
        return found

    def _rarity(self, query: Query, field: str) -> list[float]:
        """The inverse document frequency of each word, as in BM25."""
        total = len(self.index.words)
        held = self.index.words.frequencies(query, field)
        return [math.log(1 + (total - min(total, count) + 0.5) / (count + 0.5)) for count in held]

    def _habits(self, query: str) -> Habits:
        times: defaultdict[int, list[float]] = defaultdict(list)
        for_query: Counter[int] = Counter()
        folders: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        for document, when, asked, path, kind in self.index.catalogue.opens():
            times[document].append(when)
            for_query[document] += asked == query
            folders[path_words(path).folder] += 1
            kinds[kind] += 1
        total = max(1, kinds.total())
        return Habits(
            dict(times),
            dict(for_query),
            {folder: count / total for folder, count in folders.items()},
            {kind: count / total for kind, count in kinds.items()},
        )

    def shown_passage(self, candidate: Candidate) -> Passage:
        """The passage of a result that is shown, from wherever in its text the words are."""
        id_ = candidate.document.id
        text = self.index.catalogue.texts([id_]).get(id_, "")
        found = candidate.body
        if not found.places and len(text) > LEAD:
            found = match(candidate.query, fold(text))
        return passage(found, text)

    def forget(self, query: str | None = None) -> int:
        """Delete what was logged of a query, or everything: impressions, clicks, and what was opened."""
        self.index.catalogue.forget_opens(query)
        return self.search.log.forget(all=True) if query is None else self.search.log.forget(query=query)


def normal(text: str) -> str:
    """A query as it is logged: what differs in case and spaces only is the same.

    >>> normal("  Tax   return ")
    'tax return'
    """
    return " ".join(text.lower().split())[:200]


@dataclass(frozen=True)
class Reason:
    """Why a result is where it is: a feature, what it adds to the score, and its sentence."""

    name: str
    adds: float
    says: str


def reasons(results: Found, index: int) -> list[Reason]:
    """Why a result is where it is, the weightiest first."""
    return [
        Reason(name, share, " ".join((FEATURES[name].__doc__ or "").split()))
        for name, share in results.contributions(index).items()
    ]
