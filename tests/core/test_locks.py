"""Locks between processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fultr.core.errors import FultrError
from fultr.core.files import locked
from fultr.core.locks import lock

HOLD = "import sys; from fultr.core.locks import lock; f = open(sys.argv[1], 'w'); print(lock(f), flush=True); input()"


@pytest.mark.process
def test_a_lock_keeps_other_processes_out_and_ends_with_its_process(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "True\n"
    with path.open("w") as file:
        assert not lock(file)
    with pytest.raises(FultrError, match="busy"), locked(path, "busy"):
        pass
    holder.kill()
    holder.communicate()
    with path.open("w") as file:
        assert lock(file, wait=True)
