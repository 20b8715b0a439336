"""Progress on terminals of several widths, and elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from numba import njit

from fultr.cli.console import compiling, folded, progress_bar, round_bar, work_bar, working
from fultr.study.reproduce import Progress

LATEST = "a data set with a long name, a line with a name that is longer: best NDCG@5 on validation so far 0.4321"


class Terminal(io.StringIO):
    """Text that is shown to somebody."""

    def isatty(self) -> bool:
        return True


def last_frame(stderr: io.StringIO) -> list[str]:
    """The lines that are on the screen before the bar is removed."""
    frames = re.split(r"\x1b\[\?25l|(?:\x1b\[1A)+|\r\x1b\[2K", stderr.getvalue())
    lines = [line for frame in frames for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frame).splitlines()]
    return [line for line in lines if line.strip()]


@pytest.fixture
def screen(monkeypatch):
    def of(columns: int) -> Terminal:
        stderr = Terminal()
        monkeypatch.setattr(sys, "stderr", stderr)
        for name, value in {"TERM": "xterm", "COLUMNS": str(columns), "LINES": "24"}.items():
            monkeypatch.setenv(name, value)
        return stderr

    return of


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_bar_count_and_time_left_of_long_work_are_never_cut(screen, columns):
    stderr = screen(columns)
    with work_bar() as show:
        show(Progress(runs=12_345, cost=100.0))
        show(
            Progress(12_345, 1_234, "an-experiment-of-my-own-with-a-long-name", "tuning", LATEST, 100.0, 10.0, 9.0, 7e4)
        )
    *_, line, below = last_frame(stderr)
    assert re.fullmatch(r"[━╸╺]{9,} 1,234/12,345 runs 0:00:00 left 19 h 27 min *", line)
    assert below.startswith("an-experiment-of-my-own-with-a-long-name, tuning: a ")
    assert len(below) == columns
    assert below.endswith("…")


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_bar_count_and_time_left_of_rounds_are_never_cut(screen, columns):
    stderr = screen(columns)
    with progress_bar(100_000, "Training") as done:
        done(99_998)
        done()
    line = last_frame(stderr)[-1]
    assert len(line) <= columns
    assert re.fullmatch(r"Training   [━╸╺]{9,} +99999/100000 \d:\d\d:\d\d left [-:\d]+ *", line)


@pytest.mark.parametrize("shown", [io.StringIO, Terminal])
def test_rounds_are_a_bar_on_a_terminal_and_lines_elsewhere(screen, monkeypatch, shown):
    screen(80)
    stderr = shown()
    monkeypatch.setattr(sys, "stderr", stderr)
    with round_bar() as tell:
        tell(3, 10, None)  # some were done before anybody looked
        tell(4, 10, 72.0)
    if shown is io.StringIO:
        assert stderr.getvalue() == "round 3 of 10\nround 4 of 10, 72 s left\n"
    else:
        assert re.fullmatch(r"Training   [━╸╺]{20,} 4/10 \d:\d\d:\d\d left 72 s *", last_frame(stderr)[-1])


def test_compiling_is_announced_once_above_what_is_under_way_and_on_a_terminal_only(screen, capsys):
    def compiled() -> None:
        njit(lambda x: x + 1)(2)

    with compiling(7):
        compiled()
    assert capsys.readouterr().err == ""
    stderr = screen(80)
    with compiling(7), working("Training"):
        compiled()
        compiled()
    assert stderr.getvalue().count("Compiling, once after an installation: about 7 s, more if busy\n") == 1
    stderr = screen(80)
    with compiling(7):
        pass
    assert stderr.getvalue() == ""


@pytest.mark.process
@pytest.mark.slow
def test_a_first_command_after_an_installation_says_that_it_compiles(tmp_path):
    """And a second one, whose code is in the cache, does not."""
    pty = pytest.importorskip("pty")
    rng = np.random.default_rng(0)
    pages = [
        f"q{i % 50}\t{a},{b}\t{rng.integers(2)},{rng.integers(2)}" for i in range(300) for a, b in [rng.permutation(2)]
    ]
    (tmp_path / "log.tsv").write_text("\n".join(pages))
    given = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "TERM": "dumb"}

    def said() -> str:
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "fultr", "estimate", "log.tsv", "--bootstrap", "20"]
        done = subprocess.run(command, cwd=tmp_path, env=given, stdout=subprocess.DEVNULL, stderr=slave, check=False)
        os.close(slave)
        text = b""
        with contextlib.suppress(OSError), os.fdopen(master, "rb", 0) as screen:  # which ends with an error on Linux
            while block := screen.read(4096):
                text += block
        assert done.returncode == 0, text
        return text.decode()

    assert said().count("Compiling, once after an installation: about 2 s") == 1
    assert "Compiling" not in said()


def test_long_lines_are_folded_between_words_on_a_terminal_only(monkeypatch):
    text = "– not run: one two three four"
    assert folded(text, "  ") == text
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "20")
    assert folded(text, "  ") == "– not run: one two\n  three four"
