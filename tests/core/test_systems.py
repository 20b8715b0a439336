"""Linux, macOS and Windows: what some system lacks is named in few places, and fultr's commands go without it."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from help.windows.missing import MISSING, MODULES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fultr"
WINDOWS = ROOT / "tests" / "help" / "windows"
# Where names may stand that some system lacks. Processes of a server are run on Linux and macOS alone, and say so.
PORTABLE = {"core/locks.py", "core/system.py", "deploy/processes.py"}
GUARDED = {  # further ones: (file, name), where the line itself asks whether there is such a thing
    ("core/threads.py", "os.sched_getaffinity"),
    ("device/ledger.py", "time.clock_gettime"),
    ("deploy/services.py", "/bin/sh"),  # after require_processes
    ("device/log.py", "os.register_at_fork"),
    ("cli/chromium.py", "os.geteuid"),
    ("cli/bench/flower.py", "/tmp"),  # on macOS
    ("cli/app_people.py", "/usr/share/man/man1"),  # a demonstration's texts, where there are manual pages
}


def named_in(path: Path) -> set[str]:
    """What a file names that some system lacks."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} & MODULES
            found |= {
                f"{node.module}.{alias.name}" for alias in node.names if alias.name in MISSING.get(node.module, ())
            }
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in MISSING.get(node.value.id, ()):
                found.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            place = re.match(r"/(proc|sys|dev|tmp|etc|bin|usr|var)(/\S*)?$", node.value)
            found |= {node.value} if place else set()
        elif isinstance(node, ast.keyword) and node.arg in ("preexec_fn", "pass_fds", "dir_fd"):
            found.add(node.arg)
    return found


def test_what_some_system_lacks_is_named_in_few_places():
    found = {
        (path.relative_to(SOURCE).as_posix(), name)
        for path in SOURCE.rglob("*.py")
        for name in named_in(path)
        if path.relative_to(SOURCE).as_posix() not in PORTABLE
    }
    assert found == GUARDED


def test_the_search_for_such_names_finds_them(tmp_path):
    file = tmp_path / "one.py"
    file.write_text("import fcntl\nimport os, signal\nos.fork()\nsignal.SIGKILL\nopen('/proc/self/stat')\n", "utf-8")
    assert named_in(file) == {"fcntl", "os.fork", "signal.SIGKILL", "/proc/self/stat"}


def on_windows(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python where fultr's code sees a system like Windows: its modules, its names, and its encoding of output."""
    environment = {
        **os.environ, "PYTHONPATH": str(WINDOWS), "PYTHONIOENCODING": "cp1252", "FULTR_CACHE": str(folder / "cache"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=folder, capture_output=True, encoding="cp1252", timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done


EVERYTHING = """
import importlib, pkgutil
import fultr
for module in pkgutil.walk_packages(fultr.__path__, "fultr."):
    if module.name != "fultr.__main__":
        importlib.import_module(module.name)

import fultr.core.system, fultr.core.locks, fultr.cli.stopping, fultr.deploy.processes
assert fultr.core.system.resource is None and fultr.core.locks.fcntl is None
assert fultr.core.system.peak_memory() == fultr.core.system.installed_memory() == 0
assert fultr.core.system.boot_id() == "" and fultr.core.system.available_memory() == float("inf")
for hidden in ("SIGKILL", "pthread_kill"):
    assert not hasattr(fultr.cli.stopping.signal, hidden)

import signal, threading, time
threading.Timer(0.2, fultr.core.system.signal_main_thread, (signal.SIGINT,)).start()
try:
    for _ in range(100):
        time.sleep(0.1)
except KeyboardInterrupt:
    print("interrupted")

from fultr.core.errors import FultrError
from fultr.core.files import locked
from pathlib import Path
try:
    with locked(Path("lock")), locked(Path("lock"), "busy"):
        pass
except FultrError as error:
    print(error)
try:
    fultr.deploy.processes.process_now(1)
except FultrError as error:
    print(error)

from fultr.app.api import _is_program
print([_is_program(name) for name in ("letter.docx", "run.EXE", "macro.vbs", "link.lnk")])

with fultr.DeviceLog.open("device.db", features=["match"]) as log:
    assert log.log_click(log.log_impression("pizza", [[1.0], [0.5]]), rank=2)
    assert log.records().log.clicks.tolist() == [[0, 1]]

from fultr.cli.main import main
for command in ("simulate --clients 20 --rounds 2 --out sim", "estimate clicks.tsv", "device show device.db"):
    try:
        main(command.split())
    except SystemExit as ended:
        print(command.split()[0], ended.code)
"""


@pytest.mark.process
def test_every_module_loads_and_commands_go_without(tmp_path):
    rows = [f"q{q}\t{a},{b}\t{int(q % 3 == 0)},{int(q % 5 == 0)}" for q in range(40) for a, b in ((1, 2), (2, 1))]
    (tmp_path / "clicks.tsv").write_text("\n".join(rows), encoding="utf-8")
    printed = on_windows("-c", EVERYTHING, folder=tmp_path).stdout.splitlines()
    assert printed[:4] == [
        "interrupted",
        "busy",
        "a federation's server runs on Linux or macOS; on Windows, run nodes: fultr node DIR",
        "[False, True, True, True]",
    ]
    assert {"simulate 0", "estimate 0", "device 0"} <= set(printed)
    assert json.loads((tmp_path / "sim" / "ranker.json").read_text(encoding="utf-8"))


@pytest.mark.process
@pytest.mark.skipif(importlib.util.find_spec("tantivy") is None, reason="without fultr[app]")
def test_indexing_and_searching_ones_files(tmp_path):
    for name in ("pizza", "pasta"):
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files" / f"{name}.txt").write_text(f"How to bake {name}", encoding="utf-8")
    home = ("--json", "--dir", tmp_path / "home")
    first = on_windows("-m", "fultr", "search", "index", *home, tmp_path / "files", folder=tmp_path)
    again = on_windows("-m", "fultr", "search", "index", *home, folder=tmp_path)
    found = on_windows("-m", "fultr", "search", "find", *home, "bake pizza", folder=tmp_path)
    assert json.loads(first.stdout)["read"] == json.loads(again.stdout)["unchanged"] == 2
    assert [Path(result["path"]).name for result in json.loads(found.stdout)["results"]] == ["pizza.txt", "pasta.txt"]
