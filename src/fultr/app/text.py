"""Text as the index and the ranker see it: folded, cut into words; and queries."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath

_WORD = re.compile(r"[^\W_]+")
_ACCENTED = re.compile(r"[^\x00-\x7f]")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # between the words of a name such as readFile
_FOLDERS = 4  # the nearest ones, whose names are searched
_MOST_WORDS = 12  # of a query
LONGEST_WORD = 40
"""Longer words are not indexed: they are keys, digests and encoded data."""


class _Folded(dict[int, str]):
    """By the number of a character, it in lower case and without accents, if that is one character."""

    def __missing__(self, number: int) -> str:
        sign = chr(number)
        plain = unicodedata.normalize("NFKD", sign)[0].lower()
        self[number] = plain if len(plain) == 1 else sign
        return self[number]


_FOLDED = _Folded()


def fold(text: str) -> str:
    """Lower case, without accents, of the same length: what is found here is at the same place in the text.

    >>> fold("Über Café"), len(fold("İß"))
    ('uber cafe', 2)
    """
    lower = text.lower()
    if lower.isascii():
        return lower
    if len(lower) != len(text):  # such as "İ"
        return text.translate(_FOLDED)
    return _ACCENTED.sub(lambda found: _FOLDED[ord(found[0])], lower)


def words_of(text: str) -> list[str]:
    """The words of a text, folded, in their order.

    >>> words_of("The budget, v2")
    ['the', 'budget', 'v2']
    """
    return _WORD.findall(fold(text))


def words_of_name(name: str) -> list[str]:
    """The words of a file's or folder's name, with its ending; of joined words also the parts.

    >>> words_of_name("readFile_v2.py")
    ['readfile', 'read', 'file', 'v2', 'py']
    """
    found = []
    for whole in _WORD.findall(name):
        parts = _HUMP.split(whole)
        found += [fold(whole)] + ([fold(part) for part in parts] if len(parts) > 1 else [])
    return found


@dataclass(frozen=True)
class Query:
    """What somebody typed.

    Attributes:
        text: as it was typed, without spaces around it.
        words: folded, each once, in order.
        unfinished: may the last word be the beginning of a longer one?
    """

    text: str
    words: tuple[str, ...]
    unfinished: bool

    @classmethod
    def of(cls, text: str) -> Query:
        """From what was typed.

        >>> Query.of("Tax re")
        Query(text='Tax re', words=('tax', 're'), unfinished=True)
        >>> Query.of("tax 2024 ").unfinished
        False
        """
        words = [word for word in words_of(text) if len(word) <= LONGEST_WORD]
        distinct = tuple(dict.fromkeys(words))[:_MOST_WORDS]
        unfinished = bool(words) and text[-1:].isalnum() and distinct[-1] == words[-1]
        return cls(text.strip(), distinct, unfinished)

    def forms(self, i: int) -> tuple[str, ...]:
        """The word at i, and its English plural or singular.

        >>> Query.of("reports").forms(0), Query.of("tax").forms(0)
        (('reports', 'report'), ('tax', 'taxs', 'taxes'))
        """
        return _forms(self.words[i])


@lru_cache(maxsize=256)
def _forms(word: str) -> tuple[str, ...]:
    if len(word) < 3 or not word.isalpha():
        return (word,)
    if word.endswith("es") and word[:-2].endswith(("s", "x", "z", "ch", "sh")):
        return (word, word[:-2])
    if word.endswith("s") and not word.endswith("ss"):
        return (word, word[:-1])
    return (word, f"{word}s", f"{word}es") if word.endswith(("s", "x", "z", "ch", "sh")) else (word, f"{word}s")


@dataclass(frozen=True)
class PathWords:
    """The words of a path.

    Attributes:
        folder: the path of its folder.
        name: the file's name, in words, with its ending.
        stem: the name without its ending.
        ending: of the name, such as "pdf".
        folders: the names of the nearest folders, in words.
        depth: how many folders it is deep.
    """

    folder: str
    name: str
    stem: str
    ending: str
    folders: str
    depth: int


@lru_cache(maxsize=4096)
def path_words(path: str) -> PathWords:
    """The words of a path.

    >>> words = path_words("/home/me/taxes/Return 2024.pdf")
    >>> words.stem, words.ending, words.folders, words.depth
    ('return 2024', 'pdf', 'home me taxes', 3)
    """
    pure = PurePath(path)
    folders = pure.parent.parts[1:]
    return PathWords(
        str(pure.parent),
        " ".join(words_of_name(pure.name)),
        " ".join(words_of(pure.stem)),
        fold(pure.suffix[1:]),
        " ".join(word for part in folders[-_FOLDERS:] for word in words_of_name(part)),
        len(folders),
    )


def shown(text: str) -> str:
    r"""A path or another text from outside as it can be sent and displayed: bytes that are no UTF-8 become "�".

    >>> shown("caf\udce9")
    'caf�'
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
