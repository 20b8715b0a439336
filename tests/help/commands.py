"""The command, called in this process or run as a user runs it."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from fultr.cli.main import main

FULTR = str(Path(sys.executable).parent / "fultr")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    bytes: bytes
    err: str

    @property
    def out(self) -> str:
        return self.bytes.decode()


def fultr(*arguments: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> Done:
    """Call the command in this process; nothing that it says is shown to a terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: object = None
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        chdir(cwd) if cwd else nullcontext(),
        patch.dict(os.environ, env or {}),
    ):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    said, told = (stream.buffer.getvalue() for stream in (out, err))  # type: ignore[attr-defined]
    return Done(code, said, told.decode())


def process(*arguments: object, **options: object) -> subprocess.Popen[str]:
    """Start the command as a process at the head of a group of its own; what it says is for us to read."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return subprocess.Popen([FULTR, *map(str, arguments)], **{**pipes, **options})  # type: ignore[call-overload]


def members(group: int) -> list[str]:
    """The processes of a group that still run: a dead one that nobody has asked about is not one of them."""
    shown = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(maxsplit=2) for line in shown.splitlines())
    return [row[2] for row in rows if int(row[0]) == group and not row[1].startswith("Z")]


def wait_until(ready: Callable[[], object], seconds: float = 60) -> bool:
    """Whether something came true in time."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Terminal:
    """A command on a terminal: what it shows, line by line, and keys to be pressed."""

    def __init__(self, child: subprocess.Popen[bytes], screen: int) -> None:
        self._child, self._screen, self._text = child, screen, ""

    def lines(self) -> list[str]:
        """All lines shown so far, each time they were drawn, without colours and movements."""
        while select.select([self._screen], [], [], 0)[0]:
            try:
                self._text += os.read(self._screen, 65_536).decode(errors="replace")
            except OSError:  # Linux says so when the other end is closed
                break
        return [line for line in re.split(r"[\r\n]+", _ESCAPES.sub("", self._text)) if line]

    def press(self, key: str) -> None:
        os.write(self._screen, key.encode())

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        # Read on: a full screen would hold the command up.
        assert wait_until(lambda: (self.lines(), self._child.poll() is not None)[1]), self.lines()[-5:]
        return self._child.returncode


@contextmanager
def terminal(*arguments: object, columns: int = 80) -> Iterator[Terminal]:
    """Run the command on a terminal of its own."""
    screen, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    begin = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", begin, FULTR, *map(str, arguments)]
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    child = subprocess.Popen(
        command, stdin=end, stdout=end, stderr=end, start_new_session=True, env={**env, "TERM": "xterm-256color"}
    )
    os.close(end)
    try:
        yield Terminal(child, screen)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        os.close(screen)
