"""The house: a package imports only from those in its row, modules form no cycle, and what a device loads is small."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import fultr

SOURCE = Path(__file__).parents[1] / "src" / "fultr"
# What each package may import from.
PACKAGES = {
    "core": set(),
    "data": {"core"},
    "clicks": {"core", "data"},
    "rankers": {"core", "data", "clicks"},
    "federated": {"core", "rankers", "clicks"},
    "device": {"core", "rankers", "clicks", "federated"},
    "learn": {"core", "rankers", "clicks", "federated", "device"},
    "app": {"core", "rankers", "clicks", "device"},
    "study": {"core", "data", "rankers", "clicks", "federated", "device", "learn"},
    "deploy": {"core", "rankers", "clicks", "federated", "device"},
    "cli": {"core", "data", "rankers", "clicks", "federated", "device", "learn", "app", "study", "deploy"},
}
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
    if path.parent != SOURCE
}


def imported(module: str) -> set[str]:
    """The modules of fultr that a module imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fultr":
            name = (node.module or "").removeprefix("fultr").removeprefix(".")
            inside = {f"{name}.{alias.name}" for alias in node.names} & set(MODULES)
            found |= inside or {name}
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("fultr.") for alias in node.names if alias.name.startswith("fultr.")}
    return found


def loaded_by(code: str) -> set[str]:
    """All that a fresh process has loaded after some code."""
    told = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules, sep='\\n')"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return set(told.stdout.split("\n"))


def test_every_module_is_in_a_package():
    assert {module.split(".")[0] for module in MODULES} == set(PACKAGES)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_packages_import_only_from_their_row(module):
    package = module.split(".")[0]
    others = {name.split(".")[0] for name in imported(module)} - {package}
    assert others <= PACKAGES[package]


def test_modules_form_no_cycle():
    TopologicalSorter({module: imported(module) & set(MODULES) for module in MODULES}).prepare()


def test_modules_are_short():
    for path in MODULES.values():
        assert len(path.read_text().splitlines()) <= 420, path.name


def test_public_names_are_there():
    """They are listed once, in the stub that type checkers and the lazy loader both read."""
    assert "FedIPS" in fultr.__all__
    for name in fultr.__all__:
        assert getattr(fultr, name) is not None
    with pytest.raises(AttributeError):
        fultr.nothing_of_the_kind  # noqa: B018


@pytest.mark.process
def test_a_device_loads_little():
    """What a node needs to answer: nothing that reads data sets, runs experiments or draws."""
    found = loaded_by("import fultr.device.answer")
    assert not {"matplotlib", "pyarrow", "joblib", "scipy.cluster", "scipy.stats", "pandas"} & found
    ours = {name.removeprefix("fultr.").split(".")[0] for name in found if name.startswith("fultr.")}
    assert ours <= {"core", "data", "rankers", "clicks", "federated", "device"}
    assert {name for name in found if name.startswith("fultr.data.")} <= {"fultr.data.ranking"}


SEARCH = """
import tempfile
from pathlib import Path
import fultr
from fultr.device.current import write_current
import numpy as np

folder = Path(tempfile.mkdtemp())
ranker = fultr.Ranker(np.float32([1]), np.array([1]), feature_names=("match",))
version = fultr.Versions(folder).write(ranker, parent=None, configuration={}, metrics={})
write_current(folder, version.name)
with fultr.Search(folder / "search.db", {"match": lambda query, text: query in text}, rankers=folder) as search:
    results = search.rank("pizza", ["pasta", "pizza"])
    assert results[0] == "pizza" and results.version == version.name
    assert results.clicked(0)
with fultr.DeviceLog.open(folder / "search.db", features=["match"]) as log:
    assert log.log_click(log.log_impression("pizza", [[1.0]]), rank=1)
    assert log.records().log.clicks.tolist() == [[1, 0], [1, 0]]
"""


@pytest.mark.process
def test_an_application_that_searches_loads_numpy_and_nothing_else_that_is_large():
    found = loaded_by(SEARCH)
    large = {"numba", "llvmlite", "scipy", "pyarrow", "matplotlib", "flwr", "joblib", "pandas", "rich", "click"}
    assert not large & found
    ours = {name.removeprefix("fultr.").split(".")[0] for name in found if name.startswith("fultr.")}
    assert ours == {"core", "clicks", "rankers", "device"}


@pytest.mark.process
def test_the_search_application_loads_no_compiler_and_its_readers_no_numpy():
    found = loaded_by("import fultr.app.server")
    assert "starlette" in found
    assert not {"numba", "scipy", "pyarrow", "matplotlib", "flwr", "pandas", "pypdf"} & found
    ours = {name.removeprefix("fultr.").split(".")[0] for name in found if name.startswith("fultr.")}
    assert ours == {"core", "clicks", "rankers", "device", "app"}
    assert not {"numpy", "tantivy", "starlette"} & loaded_by("import fultr.app.worker")


@pytest.mark.process
def test_a_waiting_node_loads_no_compiler():
    """What trains is loaded with the first task."""
    found = loaded_by("import fultr.deploy.flower.node")
    assert "flwr" in found
    assert not {"numba", "scipy", "ray", "matplotlib", "pyarrow", "fultr.federated.fedips"} & found


HELP = """
import contextlib, io, os, sys
import click

def call(*arguments):
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*arguments])
    return out.buffer.getvalue().decode()

from fultr.cli.main import cli, main
assert "Usage: fultr " in call("--help")
assert call("--version").startswith("fultr ")
os.environ.update(_FULTR_COMPLETE="bash_complete", COMP_WORDS="fultr sim", COMP_CWORD="1")
assert "simulate" in call()
ours = sorted(name for name in sys.modules if name.startswith("fultr.") and name.split(".")[1] != "core")
assert ours == ["fultr.cli", "fultr.cli.lazy", "fultr.cli.main", "fultr.cli.stopping"], ours

def walk(command, path):
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            walk(command.get_command(context, name), [*path, name])
    os.environ.pop("_FULTR_COMPLETE", None)
    assert f"Usage: {' '.join(['fultr', *path])} " in call(*path, "--help")
    words = ["fultr", *path, "--he"]
    os.environ.update(_FULTR_COMPLETE="bash_complete", COMP_WORDS=" ".join(words), COMP_CWORD=str(len(words) - 1))
    assert "--help" in call(), path
    slow = {"numba", "numpy", "scipy", "matplotlib", "pyarrow", "joblib", "rich", "flwr"} & set(sys.modules)
    assert not slow, (path, slow)

walk(cli, [])
"""


@pytest.mark.process
def test_help_version_and_completion_load_nothing_that_takes_long():
    """Of the command as a whole not even the modules of single commands; of each command, no library that computes."""
    found = loaded_by(HELP)
    assert {f"fultr.cli.{name}" for name in ("bench.command", "deploy", "estimate", "simulate")} <= found
