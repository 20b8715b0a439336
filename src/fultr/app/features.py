"""The features by which results are ranked: each is one function, with a name and a sentence.

`FEATURES` has them in the order of the log. Adding, removing or reordering one makes a new schema of the log: earlier
impressions are then left out of training. Values are scaled to [0, 1] among the candidates of a query before anything
else sees them, so only their differences count; one that is the same for all candidates adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from fultr.app.catalogue import Stored
from fultr.app.match import Match
from fultr.app.text import PathWords, Query, words_of

DAY = 86_400.0


@dataclass(frozen=True)
class Habits:
    """What was opened: what features know about the person.

    Attributes:
        times: when each document was opened, the latest first.
        for_query: how often each was opened from the results of this very query.
        folders: the share of openings that were in each folder.
        kinds: the share of openings that were of each kind.
    """

    times: dict[int, list[float]] = field(default_factory=dict)
    for_query: dict[int, int] = field(default_factory=dict)
    folders: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """A document that may be shown for a query, with all that features look at.

    Attributes:
        query: what was searched for.
        document: of the catalogue.
        path: the words of its path.
        score: the engine's, BM25 over all fields.
        bm25: by field: "name", "title", "folders", "body".
        name: the query's words in the file's name.
        title: in the title.
        folders: in the names of the nearest folders.
        body: in the beginning of the text.
        habits: what was opened.
        now: seconds since 1970.
    """

    query: Query
    document: Stored
    path: PathWords
    score: float
    bm25: dict[str, float]
    name: Match
    title: Match
    folders: Match
    body: Match
    habits: Habits
    now: float


Function = Callable[[str, Candidate], float]
FEATURES: dict[str, Function] = {}
"""All features by name."""


def feature(name: str) -> Callable[[Function], Function]:
    """Put a function into the table under a name."""

    def put(function: Function) -> Function:
        FEATURES[name] = function
        return function

    return put


# How well the words match


@feature("words match")
def _(query: str, it: Candidate) -> float:
    """The engine's score: BM25 over all fields."""
    return it.score


@feature("words in the name")
def _(query: str, it: Candidate) -> float:
    """BM25 of the file's name."""
    return it.bm25["name"]


@feature("words in the title")
def _(query: str, it: Candidate) -> float:
    """BM25 of the title: a heading, a subject, a page's or document's own title."""
    return it.bm25["title"]


@feature("words in the folders")
def _(query: str, it: Candidate) -> float:
    """BM25 of the names of the nearest folders."""
    return it.bm25["folders"]


@feature("words in the text")
def _(query: str, it: Candidate) -> float:
    """BM25 of the text."""
    return it.bm25["body"]


@feature("all words in the name")
def _(query: str, it: Candidate) -> float:
    """The share of the query's words that the name has."""
    return it.name.covered


@feature("all words in the title")
def _(query: str, it: Candidate) -> float:
    """The share of the query's words that the title has."""
    return it.title.covered


@feature("all words in the text")
def _(query: str, it: Candidate) -> float:
    """The share of the query's words that the text has."""
    return it.body.covered


@feature("all words somewhere")
def _(query: str, it: Candidate) -> float:
    """The share of the query's words that the document has anywhere."""
    counts = zip(it.name.counts, it.title.counts, it.folders.counts, it.body.counts, strict=True)
    return sum(any(word) for word in counts) / max(1, len(it.query.words))


@feature("whole words")
def _(query: str, it: Candidate) -> float:
    """The share of places where a word stands as it was typed, not in another form or as a beginning."""
    places = it.body.places + it.name.places + it.title.places
    return sum(place.whole for place in places) / max(1, len(places))


@feature("phrase in the name")
def _(query: str, it: Candidate) -> float:
    """Does the name have the words side by side?"""
    return it.name.phrase


@feature("phrase in the title")
def _(query: str, it: Candidate) -> float:
    """Does the title have the words side by side?"""
    return it.title.phrase


@feature("phrase in the text")
def _(query: str, it: Candidate) -> float:
    """Does the text have the words side by side?"""
    return it.body.phrase


@feature("words near each other")
def _(query: str, it: Candidate) -> float:
    """How near each other all words stand in the text."""
    return it.body.nearness


@feature("early in the text")
def _(query: str, it: Candidate) -> float:
    """How early the first of the words stands in the text."""
    return it.body.early


@feature("often in the text")
def _(query: str, it: Candidate) -> float:
    """How often the words stand in the text, on a logarithmic scale."""
    return math.log1p(sum(it.body.counts))


@feature("dense in the text")
def _(query: str, it: Candidate) -> float:
    """How often the words stand in 1,000 characters."""
    return min(20.0, 1000 * sum(it.body.counts) / max(300, it.body.length))


@feature("the name itself")
def _(query: str, it: Candidate) -> float:
    """Is the query the whole name, without its ending?"""
    return float(" ".join(it.query.words) == it.path.stem)


@feature("the name begins so")
def _(query: str, it: Candidate) -> float:
    """Does the name begin with what was typed?"""
    return float(it.path.stem.startswith(" ".join(it.query.words)))


@feature("the title begins so")
def _(query: str, it: Candidate) -> float:
    """Does the title begin with what was typed?"""
    return float(" ".join(words_of(it.document.title)).startswith(" ".join(it.query.words)))


@feature("little else in the name")
def _(query: str, it: Candidate) -> float:
    """The share of the name's words that the query has."""
    words = it.path.stem.split()
    return min(1.0, sum(count > 0 for count in it.name.counts) / max(1, len(words)))


@feature("type named")
def _(query: str, it: Candidate) -> float:
    """Does the query name the file's ending, as in "budget xlsx"?"""
    return float(it.path.ending in it.query.words)


@feature("name for a short query")
def _(query: str, it: Candidate) -> float:
    """The share of words in the name, if the query is one word: such queries are mostly for names."""
    return it.name.covered if len(it.query.words) == 1 else 0.0


@feature("text for a long query")
def _(query: str, it: Candidate) -> float:
    """The share of words in the text, if the query has three words or more: such queries are mostly for contents."""
    return it.body.covered if len(it.query.words) > 2 else 0.0


# What the document is


@feature("recently changed")
def _(query: str, it: Candidate) -> float:
    """How recently it was changed or sent: 1 now, a half after a month."""
    return 1 / (1 + max(0.0, it.now - it.document.time) / (30 * DAY))


@feature("changed this week")
def _(query: str, it: Candidate) -> float:
    """Was it changed or sent within a week?"""
    return float(it.now - it.document.time < 7 * DAY)


@feature("near the top")
def _(query: str, it: Candidate) -> float:
    """How few folders it is deep."""
    return 1 / (1 + it.path.depth)


@feature("short")
def _(query: str, it: Candidate) -> float:
    """How short its text is, on a logarithmic scale."""
    return -math.log1p(it.document.length)


@feature("copy or leftover")
def _(query: str, it: Candidate) -> float:
    """Does the name look like a copy, a backup, a test or something generated?"""
    words = set(it.path.name.split())
    return float(bool(words & {"copy", "backup", "bak", "old", "orig", "tmp", "temp", "min", "lock", "test", "tests"}))


@feature("is a document")
def _(query: str, it: Candidate) -> float:
    """Is it a PDF or Office document?"""
    return float(it.document.kind == "document")


@feature("is a note")
def _(query: str, it: Candidate) -> float:
    """Is it plain text or Markdown?"""
    return float(it.document.kind == "note")


@feature("is mail")
def _(query: str, it: Candidate) -> float:
    """Is it a message?"""
    return float(it.document.kind == "mail")


@feature("is code")
def _(query: str, it: Candidate) -> float:
    """Is it source code?"""
    return float(it.document.kind == "code")


@feature("is data")
def _(query: str, it: Candidate) -> float:
    """Is it a table, a settings file, a log, or something without text?"""
    return float(it.document.kind in ("data", "other"))


# What its user does


@feature("recently opened")
def _(query: str, it: Candidate) -> float:
    """How recently it was opened: 1 now, a half after a week, 0 never."""
    times = it.habits.times.get(it.document.id)
    return 1 / (1 + max(0.0, it.now - times[0]) / (7 * DAY)) if times else 0.0


@feature("often opened")
def _(query: str, it: Candidate) -> float:
    """How often it was opened, on a logarithmic scale."""
    return math.log1p(len(it.habits.times.get(it.document.id, ())))


@feature("opened for this query")
def _(query: str, it: Candidate) -> float:
    """How often it was opened from the results of this very query, on a logarithmic scale."""
    return math.log1p(it.habits.for_query.get(it.document.id, 0))


@feature("folder in use")
def _(query: str, it: Candidate) -> float:
    """The share of openings that were in its folder."""
    return it.habits.folders.get(it.path.folder, 0.0)


@feature("type in use")
def _(query: str, it: Candidate) -> float:
    """The share of openings that were of its kind."""
    return it.habits.kinds.get(it.document.kind, 0.0)


DEFAULT = {
    "words match": 3.0,
    "words in the name": 1.0,
    "words in the title": 0.6,
    "words in the text": 0.6,
    "all words in the name": 0.6,
    "all words in the title": 0.4,
    "all words somewhere": 1.5,
    "phrase in the name": 0.4,
    "phrase in the title": 0.4,
    "phrase in the text": 0.5,
    "words near each other": 0.4,
    "the name itself": 1.0,
    "the name begins so": 0.4,
    "type named": 0.5,
    "recently changed": 0.3,
    "copy or leftover": -0.3,
    "recently opened": 0.8,
    "often opened": 0.4,
    "opened for this query": 2.0,
}
"""The weights before any training: set by hand, mostly the engine's score, and never tuned on anybody's clicks."""
