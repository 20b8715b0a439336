"""How the commands talk: progress and tables for people, JSON for programs, one line for errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table


def say(text: str) -> None:
    """Print a line for people on stderr, so that stdout holds results alone."""
    Console(stderr=True, highlight=False).print(text, soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    print(json.dumps(value, indent=1, allow_nan=False))


def print_table(rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print rows on stdout, the first of which is the heading; the first column to the left, others to the right."""
    table = Table(
        title=title or None, title_justify="left", title_style="bold", header_style="bold", box=box.SIMPLE_HEAD
    )
    for i, name in enumerate(rows[0]):
        table.add_column(name, justify="left" if i == 0 else "right", overflow="fold")
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
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task(text, total=total)

        def done(stage: str | None = None) -> None:
            bar.update(task, advance=1, description=stage)

        yield done
