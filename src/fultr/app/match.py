"""Where the words of a query stand in a text: counts, nearness, phrases, and the passage to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fultr.app.text import Query

_MOST_PLACES = 20  # of one word in one text
_PASSAGE = 220  # characters
_NEAR = 60  # characters after which words are no longer near each other


class Place(NamedTuple):
    """Where a word stands: from and to, in characters; which word of the query; and whether it ends there."""

    start: int
    end: int
    word: int
    whole: bool


@dataclass(frozen=True)
class Match:
    """The words of a query in a text.

    Attributes:
        places: in order; of each word the first ones.
        counts: of each word of the query, how often it stands there (20 at most).
        length: of the text, in characters.
    """

    places: tuple[Place, ...]
    counts: tuple[int, ...]
    length: int

    @property
    def covered(self) -> float:
        """The share of the query's words that are there."""
        return sum(count > 0 for count in self.counts) / max(1, len(self.counts))

    @property
    def nearness(self) -> float:
        """From 1, if all words stand side by side, to 0, if not all are there; a half if 60 characters are between."""
        if len(self.counts) < 2 or not all(self.counts):
            return 0.0
        latest: dict[int, Place] = {}
        best = float("inf")
        for place in self.places:
            latest[place.word] = place
            if len(latest) == len(self.counts):
                covered = sum(one.end - one.start for one in latest.values()) + len(latest) - 1
                span = max(one.end for one in latest.values()) - min(one.start for one in latest.values())
                best = min(best, max(0, span - covered))
        return 1 / (1 + best / _NEAR)

    @property
    def phrase(self) -> float:
        """Do the words stand side by side in the query's order?"""
        if len(self.counts) < 2:
            return 0.0
        run, before = 0, None
        for place in self.places:
            follows = before is not None and place.word == before.word + 1 and place.start - before.end <= 2
            run = run + 1 if follows else 1 if place.word == 0 else 0
            if run == len(self.counts):
                return 1.0
            before = place
        return 0.0

    @property
    def early(self) -> float:
        """From 1, if a word stands at the very beginning, to 0, if there is none; a half after 500 characters."""
        return 1 / (1 + self.places[0].start / 500) if self.places else 0.0


def match(query: Query, folded: str) -> Match:
    """Find the words of a query in a folded text.

    >>> found = match(Query.of("tax return"), "the tax return, and the returns of 2023")
    >>> found.counts, found.covered, found.phrase, found.nearness
    ((1, 2), 1.0, 1.0, 1.0)
    """
    places: list[Place] = []
    counts = []
    for number, word in enumerate(query.words):
        forms = query.forms(number)
        begins = query.unfinished and number == len(query.words) - 1
        found = _places(folded, word, number, forms, begins)
        if not found and len(forms) == 2 and forms[1] != f"{word}s":  # the singular of what was asked for
            found = _places(folded, forms[1], number, forms, False)
        counts.append(len(found))
        places += found
    return Match(tuple(sorted(places)), tuple(counts), len(folded))


def _places(text: str, word: str, number: int, forms: tuple[str, ...], begins: bool) -> list[Place]:
    """Where a word begins in a text and is complete, one of its forms, or, if it may, the beginning of a longer one."""
    found: list[Place] = []
    at = text.find(word)
    while at >= 0 and len(found) < _MOST_PLACES:
        end = at + len(word)
        if at == 0 or not text[at - 1].isalnum():
            last = end
            while last < len(text) and last - at < 40 and text[last].isalnum():
                last += 1
            if last == end or begins or text[at:last] in forms:
                found.append(Place(at, last, number, last == end))
        at = text.find(word, end)
    return found


class Passage(NamedTuple):
    """A piece of a text, and which parts of it to highlight, in characters of the piece."""

    text: str
    marks: list[tuple[int, int]]


def passage(found: Match, text: str) -> Passage:
    """The passage of a text with the most different words of the query, on one line.

    >>> text = "one two three four"
    >>> passage(match(Query.of("three"), text), text)
    Passage(text='one two three four', marks=[(8, 13)])
    """
    places = found.places
    best, most = 0, -1.0
    for first, place in enumerate(places):
        inside = [one for one in places[first : first + 20] if one.end <= place.start + _PASSAGE]
        worth = len({one.word for one in inside}) + 0.01 * len(inside)
        if worth > most:
            best, most = place.start, worth
    start = max(0, best - 40)
    if start:  # at the beginning of a word
        start = min((text.find(sign, start, best) + 1 or best for sign in " \n"), default=best)
    end = min(len(text), start + _PASSAGE)
    marks = [(one.start - start, one.end - start) for one in places if one.start >= start and one.end <= end]
    line = text[start:end].replace("\n", " ")
    if not line.isprintable():
        line = "".join(" " if sign.isspace() or not sign.isprintable() else sign for sign in line)
    return Passage(line, marks)
