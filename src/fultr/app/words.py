"""The inverted index: which documents hold which words. Tantivy's, in a folder of its own.

What it answers is ids of the catalogue's documents. A document that only one of the two knows, because a process was
killed between their commits, does not show: the next update replaces it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import tantivy
from tantivy import Filter, Occur, TextAnalyzerBuilder, Tokenizer
from tantivy import Query as Matches

from fultr.app.text import LONGEST_WORD, Query
from fultr.core.errors import FultrError

FIELDS = {"name": 4.0, "title": 3.0, "folders": 1.5, "body": 1.0}
"""The fields of a document, and how much a word in each counts when candidates are found."""

_HEAP = 64_000_000  # bytes that tantivy gathers before it writes a segment
_COMPLETIONS = 12  # of an unfinished word, the most frequent ones
_LEAST_PREFIX = 2  # letters from which a word is completed
_FAR = 2**62  # seconds: before or after everything
_ENOUGH = 30  # documents with all words: then those with some are not looked for


@dataclass(frozen=True)
class Narrowed:
    """Which documents are looked for.

    Attributes:
        kinds: only these; empty: all.
        since: only documents changed at this time or later, in seconds since 1970.
        until: only documents changed before it.
    """

    kinds: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None


class Words:
    """The index of words in a folder. Threads may share one."""

    def __init__(self, folder: Path) -> None:
        """Open it, or create it."""
        builder = tantivy.SchemaBuilder()
        builder.add_integer_field("id", stored=False, indexed=True, fast=True)
        builder.add_integer_field("time", stored=False, indexed=True, fast=True)
        builder.add_text_field("kind", tokenizer_name="raw", index_option="basic")
        for field in FIELDS:
            builder.add_text_field(field, tokenizer_name="words")
        self._folder = folder
        self._lock = threading.Lock()
        self._seen = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._schema = builder.build()
            self._index = tantivy.Index(self._schema, path=str(folder))
        except (ValueError, OSError) as error:
            raise FultrError(
                f"{folder}: is damaged ({' '.join(str(error).split())[:100]}): delete its folder, and index again"
            ) from None
        analyser = TextAnalyzerBuilder(Tokenizer.regex(r"[\p{L}\p{N}]+"))
        self._index.register_tokenizer("words", analyser.filter(Filter.remove_long(LONGEST_WORD + 1)).build())

    def writer(self) -> Writer:
        """What changes the index; one at a time."""
        return Writer(self._index, self._folder)

    def _searcher(self) -> tantivy.Searcher:
        """A view of the last commit, of whichever process."""
        try:
            seen = (self._folder / "meta.json").stat().st_mtime_ns
        except OSError:
            seen = 0
        with self._lock:
            if seen != self._seen:
                self._index.reload()
                self._seen = seen
            return self._index.searcher()

    def __len__(self) -> int:
        return self._searcher().num_docs

    def candidates(self, query: Query, narrowed: Narrowed, most: int) -> dict[int, float]:
        """The documents that match best, by id, with their scores: those with all words, then those with some."""
        if not query.words:
            return {}
        searcher = self._searcher()
        groups = [self._group(searcher, query, i) for i in range(len(query.words))]
        limits = [(Occur.Must, limit) for limit in self._limits(narrowed)]
        found = self._found(searcher, [(Occur.Must, group) for group in groups] + limits, most)
        if len(found) < _ENOUGH and len(groups) > 1:
            some = Matches.boolean_query([(Occur.Should, group) for group in groups])
            for id_, score in self._found(searcher, [(Occur.Must, some), *limits], most - len(found)).items():
                found.setdefault(id_, score)
        return found

    def frequencies(self, query: Query, field: str) -> list[int]:
        """How many documents hold each word of a query in a field."""
        searcher = self._searcher()
        return [max(searcher.doc_freq(field, form) for form in query.forms(i)) for i in range(len(query.words))]

    def _group(self, searcher: tantivy.Searcher, query: Query, i: int) -> Matches:
        """Documents with a word in any field, in any form; the last word may be the beginning of a longer one."""
        any_of: list[Matches] = []
        completes = query.unfinished and i == len(query.words) - 1
        for field, weight in FIELDS.items():
            forms = set(query.forms(i))
            any_of += [self._term(field, form, weight if form == query.words[i] else weight * 0.8) for form in forms]
            if completes and len(query.words[i]) >= _LEAST_PREFIX:
                longer = searcher.terms_with_prefix(field, query.words[i], limit=_COMPLETIONS)
                any_of += [self._term(field, term, weight * 0.5) for term, _ in longer if term not in forms]
        return Matches.disjunction_max_query(any_of, 0.3)

    def _term(self, field: str, term: str, weight: float) -> Matches:
        return Matches.boost_query(Matches.term_query(self._schema, field, term), weight)

    def _limits(self, narrowed: Narrowed) -> list[Matches]:
        """What every document must meet besides; it adds nothing to the score."""
        limits = []
        if narrowed.kinds:
            limits.append(Matches.term_set_query(self._schema, "kind", list(narrowed.kinds)))
        if narrowed.since is not None or narrowed.until is not None:
            since = -_FAR if narrowed.since is None else int(narrowed.since)
            until = _FAR if narrowed.until is None else int(narrowed.until)
            limits.append(
                Matches.range_query(self._schema, "time", tantivy.FieldType.Integer, since, until, include_upper=False)
            )
        return [Matches.const_score_query(limit, 0.0) for limit in limits]

    def _found(
        self, searcher: tantivy.Searcher, clauses: Sequence[tuple[Occur, Matches]], most: int
    ) -> dict[int, float]:
        if most <= 0:
            return {}
        hits = searcher.search(Matches.boolean_query(list(clauses)), most, count=False).hits
        ids = searcher.fast_field_values("id", [address for _, address in hits])
        return {int(id_): float(score) for (score, _), id_ in zip(hits, ids, strict=True) if id_ is not None}


class Writer:
    """Changes to the index, which count from `commit` on."""

    def __init__(self, index: tantivy.Index, folder: Path) -> None:
        """Made by `Words.writer`."""
        self._folder = folder
        with self._errors():
            self._writer = index.writer(_HEAP, 1)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the engine into one clear line: mostly, the disk is full."""
        try:
            yield
        except (ValueError, OSError, RuntimeError) as error:
            cause = " ".join(str(error).split())[:120]
            raise FultrError(f"{self._folder}: cannot be written ({cause}): is the disk full? Index again") from None

    def put(self, id_: int, name: str, title: str, folders: str, body: str, kind: str, time: float) -> None:
        """Index a document, in place of the one with this id. Its texts are folded already."""
        document = tantivy.Document(
            id=id_, name=name, title=title, folders=folders, body=body, kind=kind, time=int(time)
        )
        with self._errors():
            self._writer.delete_documents_by_term("id", id_)
            self._writer.add_document(document)

    def drop(self, ids: Iterable[int]) -> None:
        """Remove documents."""
        with self._errors():
            for id_ in ids:
                self._writer.delete_documents_by_term("id", id_)

    def commit(self) -> None:
        """Have all changes on disk."""
        with self._errors():
            self._writer.commit()

    def close(self) -> None:
        """Wait for segments that are being merged, and let others write; what was not committed is dropped."""
        with suppress(ValueError, OSError, RuntimeError):  # of a writer that failed before: that was said then
            self._writer.wait_merging_threads()
