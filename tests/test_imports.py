"""Data goes one way: the modules' imports form no cycle, and lower layers never reach up."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fultr"
# From the ground up; a module imports only from lines above its own.
LAYERS = [
    ["errors", "types"],
    ["checks", "files", "prefetch", "streams", "threads", "device_file"],
    ["data"],
    ["linear"],
    ["cache", "metrics"],
    ["letor_files", "letor_text", "impressions"],
    ["click_files", "harvesting", "document_em"],
    ["resampling", "prediction"],
    ["trust"],
    ["diagnostics"],
    ["letor_write"],
    ["letor"],
    ["layouts", "synthetic"],
    ["datasets", "rankers", "supervised"],
    ["policy"],
    ["clicks"],
    ["device_values", "device_upkeep"],
    ["device_training"],
    ["device_view"],
    ["device"],
    ["population", "propensity", "client", "server", "checkpoint"],
    ["estimation_kernels", "estimation"],
    ["client_estimation"],
    ["rounds"],
    ["simulation", "baselines"],
    ["runs", "estimates"],
    ["store", "engine", "claims"],
    ["experiments", "accuracy"],
    ["experiment_files", "comparisons", "reproduction", "figures"],
    ["report", "estimate_figure"],
    ["__init__"],
    ["console"],
    ["bench_flower", "bench_device"],
    ["bench", "commands", "experiment_commands", "estimate_commands"],
    ["cli_options"],
    ["cli_experiments", "cli_estimate"],
    ["cli"],
]


def imported(module: str) -> set[str]:
    tree = ast.parse((SOURCE / f"{module}.py").read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fultr."):
            found.add(node.module.split(".")[1])
        if isinstance(node, ast.ImportFrom) and node.module == "fultr":
            found.add("__init__")
        if isinstance(node, ast.Import):
            found |= {"__init__" for name in node.names if name.name.split(".")[0] == "fultr"}
    return found


def test_every_module_has_its_layer():
    named = [module for layer in LAYERS for module in layer]
    assert sorted(named) == sorted(path.stem for path in SOURCE.glob("*.py"))


def test_modules_import_from_below_only():
    below: set[str] = set()
    for layer in LAYERS:
        for module in layer:
            assert imported(module) <= below, f"{module} imports {imported(module) - below} from its own layer or above"
        below |= set(layer)


def test_modules_are_short():
    for path in SOURCE.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 420, path.name
