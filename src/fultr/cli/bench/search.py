"""The application's search: indexing 100,000 generated files, and answering as somebody types."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from fultr.app.api import Api
from fultr.app.background import Background
from fultr.app.collector import Collector
from fultr.app.home import Home
from fultr.app.ranking import Finder
from fultr.app.visits import Visits
from fultr.cli.console import progress_bar
from fultr.core.system import peak_memory

_FILES = 100_000
_VOCABULARY = 200_000
_QUERIES = 400
_LETTERS = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))


def search(files: int = _FILES) -> list[tuple[str, float, str, str]]:
    """Rows of what was measured: its name, its value, the unit, and what is wanted."""
    random = np.random.default_rng(0)
    words = _words(random)
    with tempfile.TemporaryDirectory(prefix="fultr-bench-") as made:
        folder = Path(made)
        size = _write(folder / "files", words, files, random)
        with Finder(Home.at(folder / "home")) as finder:
            finder.index.add([folder / "files"])
            started = time.perf_counter()
            with progress_bar(files, "Indexing") as done:
                finder.index.update(on_progress=lambda progress: done(progress.done))
            first = time.perf_counter() - started
            started = time.perf_counter()
            finder.index.update()
            again = time.perf_counter() - started
            stored = sum(file.stat().st_size for file in (folder / "home").rglob("*") if file.is_file())
            elapsed, processor = _answers(finder, words, random)
    memory = peak_memory() / 1e6
    reading = peak_memory(children=True) / 1e6
    half, nearly = np.quantile(elapsed, [0.5, 0.99]) * 1000
    return [
        (f"search: indexing {files:,} files, {size / 1e6:.0f} MB", first, "s", ""),
        ("search: looking for changes when there are none", again, "s", ""),
        ("search: index", stored / 1e6, "MB", ""),
        ("search: memory of the process that indexes and answers", memory, "MB", ""),
        ("search: memory of the largest process that reads", reading, "MB", ""),
        ("search: answer as somebody types, median", half, "ms", ""),
        ("search: answer as somebody types, 99th percentile", nearly, "ms", "at most 50"),
        ("search: processor time of that, 99th percentile", float(np.quantile(processor, 0.99)) * 1000, "ms", ""),
    ]


def _words(random: np.random.Generator) -> list[str]:
    """Words, the frequent ones short, as in a language."""
    lengths = 2 + random.integers(0, 4, _VOCABULARY) + 3 * (np.arange(_VOCABULARY) > 200)
    letters = np.minimum(25, random.exponential(6, (_VOCABULARY, 8)).astype(int))
    return ["".join(_LETTERS[row[:length]]) for row, length in zip(letters, lengths, strict=True)]


def _drawn(words: list[str], count: int, random: np.random.Generator) -> list[str]:
    """Words by Zipf's law: of rank r with a probability of about 1 / r."""
    ranks = np.exp(random.random(count) * np.log(_VOCABULARY)).astype(int) - 1
    return [words[rank] for rank in ranks]


def _write(folder: Path, words: list[str], files: int, random: np.random.Generator) -> int:
    """Write files of some 300 words in folders of 100; returns their size."""
    total = 0
    for i in range(files):
        name = _drawn(words, 2, random)
        text = " ".join(_drawn(words, int(min(5000, random.lognormal(5.3, 1))), random))
        within = folder / f"folder {i // 10_000}" / f"{words[i // 100]} {i // 100}"
        if i % 100 == 0:
            within.mkdir(parents=True)
        (within / f"{name[0]}-{name[1]} {i}.txt").write_text(text)
        total += len(text)
    return total


def _answers(finder: Finder, words: list[str], random: np.random.Generator) -> tuple[list[float], list[float]]:
    """Seconds that answers take, and of them processor time: queries of one to three words, half of them unfinished."""
    collector = Collector()
    api = Api(finder, Visits(finder), Background(finder.index.home), collector)
    elapsed, processor = [], []
    with collector.at_work():  # as the page's server does
        for i in range(_QUERIES + 20):
            typed = " ".join(_drawn(words, int(random.integers(1, 4)), random))
            typed = typed[: max(2, len(typed) - int(random.integers(0, 4)))] if i % 2 else f"{typed} "
            started, worked = time.perf_counter(), time.process_time()
            api.search({"q": typed})
            elapsed.append(time.perf_counter() - started)
            processor.append(time.process_time() - worked)
    return elapsed[20:], processor[20:]  # the first ones read what the system then keeps in memory
