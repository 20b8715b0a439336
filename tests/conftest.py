"""What several tests need, and what holds of all of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest_plugins = ["help.command_data"]
collect_ignore = ["help/windows"]  # looking for doctests would import it, and take from this process what Windows lacks

MARKS = ("slow", "process", "deployment")  # what `make check` leaves out
started: list[str] = []  # the processes that the test at hand has started


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
        started.append(f"{event} {arguments[0] if arguments else ''}".strip())


sys.addaudithook(_note)


def pytest_configure() -> None:
    """A shell that starts the tests in the background makes them, and all that they start, ignore Ctrl-C: undo that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first, for two workers to end together, and two real federations far apart."""
    slow, process, deployment = ({item.path for item in items if item.get_closest_marker(mark)} for mark in MARKS)

    def place(item: pytest.Item) -> int:
        if item.path in deployment:
            return 0 if item.path in slow else 3
        return 1 if item.path in slow else 2 if item.path in process else 4

    items.sort(key=place)


@pytest.fixture(autouse=True)
def own_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that starts a process says so."""
    started.clear()
    yield
    if started and not any(map(request.node.get_closest_marker, MARKS)):
        pytest.fail(f"this test starts a process ({started[0]}): mark it with pytest.mark.process")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("FULTR_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """The folder of a real data set; the test is skipped where it is not to be had."""

    def folder(name: str) -> Path:
        given = os.environ.get("FULTR_DATA")
        root = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"
        if not (root / name).is_dir():
            pytest.skip(f"real data set {name} is not here: set FULTR_DATA to the folder that holds it")
        return root / name

    return folder
