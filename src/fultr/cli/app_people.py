"""People for the demonstration of the search application: files of their own, habits, and what they look for.

Files are real text that is on any machine with Python (sources of the standard library, manual pages where there are),
notes and mail are generated. What somebody looks for is a known item: a document that they have in mind, and words of
it that they remember, drawn as by Azzopardi, de Rijke and Balog (2007): mostly words that are frequent in the document
and rare elsewhere, and some that are not in it at all.
"""

from __future__ import annotations

import math
import os
import sysconfig
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fultr.app.catalogue import Catalogue
from fultr.app.text import path_words, words_of

_DAY = 86_400.0
_CODE, _MANUALS, _NOTES, _MAILS = 120, 60, 80, 60  # files of a person, and messages
_FIRST = ("Ada", "Bela", "Chen", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivan", "Jana")
_ABOUT = ("plan", "budget", "minutes", "draft", "idea", "list", "review", "travel", "recipe", "invoice", "contract",
          "schedule", "report", "question")  # fmt: skip
_MISREMEMBERED = 0.1  # the share of words that come from elsewhere


@dataclass(frozen=True)
class Item:
    """A document that somebody may look for: its id, its words by place, and how likely they look for it."""

    document: int
    named: list[str]
    words: list[str]
    weights: list[float]


@dataclass(frozen=True)
class Person:
    """Somebody with files and habits.

    Attributes:
        items: what they may look for.
        likely: how likely each is.
        gamma: how strongly they favour the top: examination is (1 / rank) ** gamma.
        vocabulary: words of all their files.
    """

    items: list[Item]
    likely: list[float]
    gamma: float
    vocabulary: list[str]

    def query(self, item: Item, random: np.random.Generator) -> str:
        """Words of an item as they are remembered."""
        count = int(random.choice([1, 2, 3, 4], p=[0.15, 0.35, 0.3, 0.2]))
        chosen: list[str] = []
        for _ in range(count):
            if random.random() < _MISREMEMBERED:
                word = self.vocabulary[random.integers(len(self.vocabulary))]
            elif item.named and random.random() < 0.35:
                word = item.named[random.integers(len(item.named))]
            else:
                word = item.words[random.choice(len(item.words), p=item.weights)]
            chosen.append(word)
        return " ".join(dict.fromkeys(chosen))

    def target(self, random: np.random.Generator) -> Item:
        """What they look for now."""
        return self.items[random.choice(len(self.items), p=self.likely)]


def write_files(folder: Path, number: int, random: np.random.Generator) -> None:
    """Write the files of a person, of all ages."""
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")) + sorted(
        path
        for path in Path(sysconfig.get_path("stdlib")).glob("*/*.py")
        if path.parent.name not in ("test", "tests", "site-packages", "idlelib", "lib2to3", "__pycache__")
    )
    manuals = sorted(Path("/usr/share/man/man1").glob("*.1.gz"))
    for kind, found, count in (("code", sources, _CODE), ("manuals", manuals, _MANUALS)):
        own = found[number::5]
        for at in random.permutation(len(own))[:count]:
            target = folder / kind / own[at].parent.name / own[at].name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(own[at].read_bytes())
    rare = _rare_words([path.read_text(errors="replace") for path in (folder / "code").rglob("*.py")])
    for i in range(_NOTES):
        about, topics = str(random.choice(_ABOUT)), [str(word) for word in random.choice(rare, 3)]
        note = folder / "notes" / f"{about} {topics[0]} {i}.md"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(f"# {about.title()}: {topics[0]} and {topics[1]}\n\n{_sentences(rare, topics, random)}\n")
    mails = []
    for _ in range(_MAILS):
        topics = [str(word) for word in random.choice(rare, 3)]
        days = float(random.exponential(200))
        sent = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(time.time() - days * _DAY))
        sender = f"{random.choice(_FIRST)} <{random.choice(_FIRST).lower()}@example.org>"
        head = f"From: {sender}\nSubject: {random.choice(_ABOUT)} {topics[0]} {topics[1]}\nDate: {sent}"
        mails.append(f"From demo\n{head}\n\n{_sentences(rare, topics, random)}\n")
    (folder / "mail").mkdir()
    (folder / "mail" / "inbox.mbox").write_text("\n".join(mails))
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            when = time.time() - float(random.exponential(200)) * _DAY
            os.utime(path, (when, when))


def _rare_words(texts: list[str]) -> list[str]:
    """Words of a few files each, to write about."""
    held = Counter(word for text in texts for word in set(words_of(text)))
    return sorted(word for word, count in held.items() if 2 <= count <= 12 and word.isalpha() and 4 < len(word) < 14)


def _sentences(rare: list[str], topics: list[str], random: np.random.Generator) -> str:
    lines = []
    for _ in range(int(random.integers(3, 12))):
        words = [*random.choice(rare, int(random.integers(3, 7))), *random.choice(topics, 2)]
        lines.append("The " + " ".join(str(word) for word in words) + ".")
    return " ".join(lines)


def person_of(catalogue: Catalogue, random: np.random.Generator) -> Person:
    """Somebody whose files are indexed: with favourite kinds, and a preference for what is recent."""
    rows = catalogue.documents(catalogue.all_documents())
    texts = catalogue.leads(list(rows))
    bags = {id_: Counter(word for word in words_of(text) if 2 < len(word) < 20) for id_, text in texts.items()}
    held: Counter[str] = Counter(word for bag in bags.values() for word in bag)
    favourite = dict(zip(sorted({row.kind for row in rows.values()}), random.dirichlet([0.7] * 9), strict=False))
    items, likely = [], []
    for id_, row in rows.items():
        bag = bags[id_]
        if not bag:
            continue
        words = list(bag)
        weights = np.array([math.log1p(bag[word]) * math.log(len(rows) / held[word] + 1) ** 2 for word in words])
        named = [word for word in path_words(row.path).stem.split() + words_of(row.title) if len(word) > 2]
        items.append(Item(id_, named if row.part == 0 else words_of(row.title), words, list(weights / weights.sum())))
        age = (time.time() - row.time) / _DAY
        likely.append((0.03 + favourite[row.kind]) * (0.05 + math.exp(-age / 60)))
    total = sum(likely)
    gamma = float(np.clip(random.normal(1.0, 0.3), 0.3, 2))
    return Person(items, [one / total for one in likely], gamma, sorted(held))
