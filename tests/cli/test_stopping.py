"""Interruptions that get lost are raised again."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from fultr.cli import stopping


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    """As in a process of our own: other tests' libraries, such as Ray, may have handlers of theirs."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        if handler is not None:  # one that was not installed from Python cannot be put back
            signal.signal(number, handler)


class Swallows:
    """Python drops what is raised in a destructor."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self.number)
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, stopping.Terminated)]
)
def test_an_interruption_that_gets_lost_is_raised_again(number, raised, monkeypatch):
    monkeypatch.setattr(stopping, "_AGAIN", 0.3)
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]

    def work() -> None:
        thing = Swallows(number)
        del thing
        assert len(dropped) == 1
        time.sleep(10)

    with pytest.raises(raised), stopping.stoppable():
        work()
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_after_the_block_nothing_is_raised_again(monkeypatch):
    monkeypatch.setattr(stopping, "_AGAIN", 0.2)
    with pytest.raises(KeyboardInterrupt), stopping.stoppable():
        signal.raise_signal(signal.SIGINT)
    time.sleep(0.4)
