"""How the commands talk: progress and tables for people, JSON for programs.

Rich, which draws, is imported when there is something to draw.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import ProgressColumn

    from fultr.study.reproduce import Progress

_BAR_WIDTH = 26  # with the count, the time since the start and the time left beside it, it fits 80 columns


def say(text: str) -> None:
    """Print a line for people on stderr, so that stdout holds results alone."""
    print(text, file=sys.stderr)


def folded(text: str, indent: str = "") -> str:
    """The same text, in lines between words as wide as the terminal that stdout is; elsewhere as it is.

    Args:
        text: a paragraph.
        indent: of its second line and the following ones.
    """
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def print_json(value: Any) -> None:
    """Print one JSON object on stdout; numbers that are not finite, for which JSON has no word, are null."""
    print(json.dumps(_plain(value), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case float() if not math.isfinite(value):
            return None
    return value


def print_table(rows: Sequence[Sequence[str]], title: str = "", left: int = 1, words: str = "") -> None:
    """Print rows on stdout, the first of which is the heading.

    Args:
        rows: of cells.
        title: above the table.
        left: this many columns are to the left, others to the right.
        words: the heading of a column that is to the left wherever it stands, and takes the room that there is.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None, title_justify="left", title_style="bold", header_style="bold", box=box.SIMPLE_HEAD
    )
    for i, name in enumerate(rows[0]):
        folds = not words or name == words
        table.add_column(
            name, justify="left" if i < left or name == words else "right", overflow="fold", no_wrap=not folds
        )
    for row in rows[1:]:
        table.add_row(*map(Text, row))  # never markup: some of it comes from other machines
    Console(highlight=False, width=None if sys.stdout.isatty() else 200).print(table)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show on a terminal that something is under way whose length is not known."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextmanager
def compiling(seconds: int) -> Iterator[None]:
    """`announced` on a terminal; elsewhere nothing, and a command that compiles nothing need not load what does."""
    if not sys.stderr.isatty():
        yield
        return
    from fultr.core.compiled import announced

    with announced(seconds):
        yield


class Done(Protocol):
    """Called when one more unit of work is done, or with how many are done in all."""

    def __call__(self, count: int | None = None) -> None:
        """Move the bar."""


@contextmanager
def progress_bar(total: int, text: str) -> Iterator[Done]:
    """A bar with count and time left on stderr, on a terminal only; yields what to call when work is done."""
    if not sys.stderr.isatty():
        yield lambda count=None: None
        return
    from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(compact=True))
    with _bars(*columns, before=f"{text:<10}") as bar:
        task = bar.add_task("", total=total)

        def done(count: int | None = None) -> None:
            bar.update(task, completed=count, advance=1 if count is None else None)

        yield done


@contextmanager
def work_bar() -> Iterator[Callable[[Progress], None]]:
    """Two lines for work that consists of runs, on a terminal only: bar, count and times; then what is under way.

    Yields what to call with the progress of the work. A terminal too narrow for the second line shows its beginning.
    """
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.progress import TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.fields[count]}"), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    with _bars(*columns) as bar:
        task = bar.add_task("", total=None, count="", left="", below="Preparing")

        def show(progress: Progress) -> None:
            under_way = f"{progress.experiment}, {progress.stage}" if progress.stage else "Preparing"
            bar.update(
                task,
                total=progress.cost,
                completed=progress.cost_done,
                count=f"{progress.done:,}/{progress.runs:,} runs",
                left=_left(progress.seconds_left),
                below=f"{under_way}: {progress.latest}" if progress.latest else under_way,
            )

        yield show


class RoundDone(Protocol):
    """Called with rounds done, rounds in all, seconds left, and lines for people about what happened."""

    def __call__(self, done: int, total: int | None, seconds: float | None, lines: Sequence[str] = ()) -> None:
        """Move the bar."""


@contextmanager
def round_bar() -> Iterator[RoundDone]:
    """A bar for rounds that others do, on a terminal, with lines above it; a line per round, and these, elsewhere.

    Yields what to call with the rounds that are done, how many there are in all, and the seconds left.
    """

    def tell(done: int, total: int | None, seconds: float | None, lines: Sequence[str] = ()) -> None:
        left = "" if seconds is None else f", {spoken_time(seconds)} left"
        say(f"round {done}{f' of {total}' if total else ''}{left}")
        for line in lines:
            say(line)

    if not sys.stderr.isatty():
        yield tell
        return
    from rich.progress import TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.fields[rounds]}"), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    with _bars(*columns, before="Training  ") as bar:
        task = bar.add_task("", total=None, rounds="first round", left=_left(None))

        def show(done: int, total: int | None, seconds: float | None, lines: Sequence[str] = ()) -> None:
            rounds = f"{done:,}/{total:,}" if total else f"round {done:,}"
            bar.update(task, completed=done, total=total, rounds=rounds, left=_left(seconds))
            for line in lines:
                bar.console.print(line, markup=False, highlight=False, soft_wrap=False)

        yield show


def _bars(*columns: ProgressColumn, before: str = "") -> Bars:
    """A bar on stderr with columns beside it, which are never cut: where there is little room, the bar is shorter.

    A task's field `below` is a line of its own, of which as much is shown as there is room for.
    """
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.table import Column
    from rich.text import Text

    class TwoLines(Bars):
        def get_renderables(self) -> Iterator[RenderableType]:
            yield self.make_tasks_table(self.tasks)
            for task in self.tasks:
                if below := task.fields.get("below"):
                    yield Text(below, style="dim", no_wrap=True, overflow="ellipsis")

    for column in columns:
        column._table_column = Column(no_wrap=True)
    bar = BarColumn(bar_width=_BAR_WIDTH)
    start = [TextColumn(before, markup=False)] if before else []
    return TwoLines(*start, bar, *columns, console=Console(stderr=True), transient=True)


def _left(seconds: float | None) -> str:
    return f"left {'…' if seconds is None else spoken_time(seconds)}"


def spoken_time(seconds: float) -> str:
    """A time for people.

    >>> spoken_time(4000)
    '1 h 7 min'
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
