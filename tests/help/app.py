"""An index over some files, for tests of the application."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fultr.app.features import Candidate
from fultr.app.home import Home
from fultr.app.ranking import Finder


@contextmanager
def finder_over(folder: Path, texts: Mapping[str, str]) -> Iterator[Finder]:
    """A finder over files of some texts, in a folder "files" beside its "home"."""
    for name, text in texts.items():
        path = folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with Finder(Home.at(folder / "home")) as finder:
        finder.index.add([folder / "files"])
        finder.index.update(processes=1)
        yield finder


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a page over the index in a folder's "home", served by a process of its own."""
    command = [sys.executable, "-m", "fultr", "search", "--dir", str(folder / "home"), "--no-browser"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process.stderr.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        process.stderr.close()


def file_of(candidate: Candidate) -> str:
    """The name of a result's file."""
    return Path(candidate.document.path).name
