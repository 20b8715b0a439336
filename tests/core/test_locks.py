"""Locks, and the package where the system has no `fcntl` (Windows)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


WITHOUT = """
import fcntl, importlib, pkgutil, sys, types
system = fcntl
sys.modules["fcntl"] = sys.modules["resource"] = None  # importing them fails, as it does on Windows
import fultr
for module in pkgutil.walk_packages(fultr.__path__, "fultr."):
    if not module.name.startswith(("fultr.deploy.superlink", "fultr.cli.bench", "fultr.__main__")):
        importlib.import_module(module.name)
from fultr.core.files import locked
from pathlib import Path
windows = sys.modules["msvcrt"] = types.ModuleType("msvcrt")
windows.LK_NBLCK = 2
windows.locking = lambda number, mode, size: system.lockf(number, system.LOCK_EX | system.LOCK_NB, size)
with locked(Path(sys.argv[1])):
    print("locked")
"""


@pytest.mark.process
def test_everything_but_servers_and_benchmarks_loads_without_fcntl(tmp_path):
    made = subprocess.run(
        [sys.executable, "-c", WITHOUT, tmp_path / "lock"], capture_output=True, text=True, timeout=300
    )
    assert made.stdout == "locked\n", made.stderr
    assert Path(tmp_path / "lock").exists()
