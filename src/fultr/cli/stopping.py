"""Ctrl-C and SIGTERM: a command stops in good order, and says how to resume where that is possible."""

from __future__ import annotations

import contextlib
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from fultr.core.system import signal_main_thread

_AGAIN = (
    15.0  # seconds after which an interruption that seems lost is raised again; stopping in good order takes 1 or 2
)


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised where Ctrl-C would be: whatever cleans up after the one cleans up after the other."""


_RAISED: dict[signal.Signals, tuple[Any, type[KeyboardInterrupt]]] = {
    signal.SIGINT: (signal.default_int_handler, KeyboardInterrupt),
    signal.SIGTERM: (signal.SIG_DFL, Terminated),
}
"""What each signal's handler is unless the program that called us wants something else, and what we raise instead."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Within the block Ctrl-C and SIGTERM raise an exception: again after a while, should the first have got lost.

    Python drops exceptions that are raised in a destructor or in a callback from C, and a signal may arrive there.
    """
    main = threading.current_thread() is threading.main_thread()
    ours = [number for number, (usual, _) in _RAISED.items() if main and signal.getsignal(number) == usual]
    timers: list[threading.Timer] = []

    def stop(number: int, frame: FrameType | None) -> None:
        timer = threading.Timer(_AGAIN, signal_main_thread, (signal.Signals(number),))
        timer.daemon = True
        timers.append(timer)
        timer.start()
        raise _RAISED[signal.Signals(number)][1]

    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, _RAISED[number][0])
        for timer in timers:
            timer.cancel()


@contextlib.contextmanager
def resumable(kept: Callable[[], str]) -> Iterator[None]:
    """When the block is interrupted, the last line says what is kept and how to resume.

    Args:
        kept: says so, in words that the command itself can follow; asked when the block is interrupted. If it is "",
            nothing is said.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        if text := kept():
            stopped.add_note(text)
        raise


def last_words(stopped: BaseException | None, arguments: Sequence[str]) -> tuple[str, int]:
    """What to say of a command that was interrupted, and its exit code.

    >>> with contextlib.suppress(KeyboardInterrupt), resumable(lambda: "the same command resumes"):
    ...     raise (stopped := Terminated())
    >>> last_words(stopped, ["run", "--out", "a b"])
    ("terminated; the same command resumes: fultr run --out 'a b'", 143)
    """
    word, number = ("terminated", signal.SIGTERM) if isinstance(stopped, Terminated) else ("interrupted", signal.SIGINT)
    notes = getattr(stopped, "__notes__", [])
    hint = f"; {'; '.join(notes)}: {shlex.join(['fultr', *arguments])}" if notes else ""
    return f"{word}{hint}", 128 + number
