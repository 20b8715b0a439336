"""Data goes one way: the modules' imports form no cycle, and lower layers never reach up."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fultr

SOURCE = Path(__file__).parents[1] / "src" / "fultr"
# From the ground up; a module imports only from lines above its own.
LAYERS = [
    ["errors", "types"],
    ["checks", "files", "prefetch", "streams", "threads", "device_file"],
    ["processes", "deployment_keys", "deployment_superlink"],
    ["deployment"],
    ["deployment_control"],
    ["deployment_processes", "deployment_train"],
    ["data"],
    ["linear"],
    ["cache", "metrics"],
    ["letor_files", "letor_text", "impressions"],
    ["click_files", "harvesting", "document_em"],
    ["regression"],
    ["resampling", "prediction"],
    ["trust"],
    ["diagnostics"],
    ["letor_write"],
    ["letor"],
    ["layouts", "synthetic"],
    ["datasets", "rankers", "supervised"],
    ["policy", "versions"],
    ["clicks", "export"],
    ["device_values", "device_upkeep"],
    ["device_training"],
    ["device_view"],
    ["device"],
    ["population", "propensity", "client", "server", "checkpoint"],
    ["estimation_kernels", "estimation", "device_simulation"],
    ["client_estimation"],
    ["rounds"],
    ["simulation", "baselines", "replies"],
    ["runs", "estimates", "federation_settings"],
    ["store", "engine", "claims", "federation"],
    ["experiments", "accuracy", "flower.messages"],
    ["experiment_files", "comparisons", "reproduction", "figures", "flower.client_app", "flower.server_app"],
    ["report", "estimate_figure"],
    ["__init__"],
    ["console"],
    ["bench_flower", "bench_device", "bench_deployment"],
    ["bench", "commands", "experiment_commands", "estimate_commands", "deploy_commands", "device_commands"],
    ["deploy_demo"],
    ["cli_options"],
    ["cli_experiments", "cli_estimate", "cli_deploy", "cli_device", "cli_export"],
    ["cli"],
]
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts): path
    for path in SOURCE.rglob("*.py")
    if path.name != "__init__.py" or path.parent == SOURCE
}


def imported(module: str) -> set[str]:
    tree = ast.parse(MODULES[module].read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fultr."):
            found.add((node.module or "").removeprefix("fultr."))
        if isinstance(node, ast.ImportFrom) and node.module == "fultr":
            found.add("__init__")
        if isinstance(node, ast.Import):
            found |= {"__init__" for name in node.names if name.name.split(".")[0] == "fultr"}
    return found


def test_every_module_has_its_layer():
    named = [module for layer in LAYERS for module in layer]
    assert sorted(named) == sorted(MODULES)


def test_modules_import_from_below_only():
    below: set[str] = set()
    for layer in LAYERS:
        for module in layer:
            assert imported(module) <= below, f"{module} imports {imported(module) - below} from its own layer or above"
        below |= set(layer)


def test_modules_are_short():
    for path in MODULES.values():
        assert len(path.read_text().splitlines()) <= 420, path.name


def test_public_names_are_where_they_are_said_to_be():
    """Each is listed three times: for users, for type checkers, and with the module that it is imported from."""
    tree = ast.parse(MODULES["__init__"].read_text())
    typed = {
        alias.name: (node.module or "").removeprefix("fultr.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fultr.")
        for alias in node.names
    }
    assert typed == fultr._HOMES
    assert sorted(typed) == sorted(fultr.__all__)
    for name in fultr.__all__:
        assert getattr(fultr, name) is not None
    with pytest.raises(AttributeError):
        fultr.nothing_of_the_kind  # noqa: B018


def test_a_device_imports_little():
    """What a node loads for every message: not what draws, reads data sets or runs experiments."""
    loaded = "import sys, fultr.federation; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.split()
    assert not {"matplotlib", "pyarrow", "joblib", "scipy.cluster", "scipy.stats", "pandas"} & set(found)
