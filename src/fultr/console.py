"""How the commands talk: progress and tables for people, JSON for programs, one line for errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from fultr.reproduction import Progress


def say(text: str) -> None:
    """Print a line for people on stderr, so that stdout holds results alone."""
    Console(stderr=True, highlight=False).print(text, soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    print(json.dumps(value, indent=1, allow_nan=False))


def print_table(rows: Sequence[Sequence[str]], title: str = "", left: int = 1) -> None:
    """Print rows on stdout, the first of which is the heading; `left` columns to the left, others to the right."""
    table = Table(
        title=title or None, title_justify="left", title_style="bold", header_style="bold", box=box.SIMPLE_HEAD
    )
    for i, name in enumerate(rows[0]):
        table.add_column(name, justify="left" if i < left else "right", overflow="fold")
    for row in rows[1:]:
        table.add_row(*row)
    Console(highlight=False, width=None if sys.stdout.isatty() else 200).print(table)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show on a terminal that something is under way whose length is not known."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(text):
        yield


@contextmanager
def progress_bar(total: int, text: str) -> Iterator[Callable[[str | None], None]]:
    """A bar with time left on stderr, on a terminal only; yields what to call when one unit of work is done."""
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
    )
    with Bar(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task(text, total=total)

        def done(stage: str | None = None) -> None:
            bar.update(task, advance=1, description=stage)

        yield done


@contextmanager
def work_bar() -> Iterator[Callable[[Progress], None]]:
    """A bar for work that consists of runs, on a terminal only; yields what to call with the progress of the work."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[runs]} runs"),
        TimeElapsedColumn(),
        TextColumn("left {task.fields[left]}"),
        TextColumn("{task.fields[latest]}", markup=False, style="dim"),
    )
    with Bar(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task("Preparing", total=None, runs="", left="", latest="")

        def show(progress: Progress) -> None:
            seconds = progress.seconds_left
            bar.update(
                task,
                description=f"{progress.experiment}, {progress.stage}" if progress.stage else "Preparing",
                total=progress.cost,
                completed=progress.cost_done,
                runs=f"{progress.done:,}/{progress.runs:,}",
                left="…" if seconds is None else spoken_time(seconds),
                latest=progress.latest,
            )

        yield show


@contextmanager
def round_bar() -> Iterator[Callable[[int, int | None, float | None], None]]:
    """A bar for rounds that others do, on a terminal; a line a round elsewhere.

    Yields what to call with the rounds that are done, how many there are in all, and the seconds left.
    """

    def tell(done: int, total: int | None, seconds: float | None) -> None:
        left = "" if seconds is None else f", {spoken_time(seconds)} left"
        say(f"round {done}{f' of {total}' if total else ''}{left}")

    if not sys.stderr.isatty():
        yield tell
        return
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TextColumn("{task.fields[rounds]}"),
        TimeElapsedColumn(),
        TextColumn("left {task.fields[left]}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Training", total=None, rounds="first round", left="…")

        def show(done: int, total: int | None, seconds: float | None) -> None:
            rounds = f"{done}/{total}" if total else f"round {done}"
            left = "…" if seconds is None else spoken_time(seconds)
            bar.update(task, completed=done, total=total, rounds=rounds, left=left)

        yield show


def spoken_time(seconds: float) -> str:
    """A time for people.

    >>> spoken_time(4000)
    '1 h 7 min'
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
