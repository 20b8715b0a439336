"""Federated unbiased learning to rank: rankers trained from biased clicks that never leave the users' devices.

>>> import fultr
>>> data = fultr.load("synthetic", cache=False)
>>> run = fultr.simulate(data, fultr.FedIPS(), clients=200, rounds=5, seed=0)
>>> run.ranker
LinearRanker(64 features)
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fultr.baselines import LambdaLinear, LambdaLinearResult, train_lambda_linear
    from fultr.cache import cache_folder, clear_cache
    from fultr.claims import Claim, Verdict, judge
    from fultr.click_files import read_click_log
    from fultr.clicks import ClickLog, ClickModel, Sessions
    from fultr.client import LocalTraining
    from fultr.comparisons import comparison
    from fultr.data import Description, RankingData, Splits
    from fultr.datasets import load
    from fultr.device import DeviceLog
    from fultr.device_training import TrainingLog
    from fultr.device_upkeep import Retention
    from fultr.diagnostics import Diagnosis, diagnose
    from fultr.errors import FultrError
    from fultr.estimates import Estimate, Measured, estimate
    from fultr.estimation import Estimator
    from fultr.experiment_files import packaged, read_experiment
    from fultr.experiments import Choice, Experiment, Line, Outcome, Panel
    from fultr.export import to_json, to_onnx
    from fultr.impressions import ImpressionLog
    from fultr.layouts import inspect
    from fultr.letor import read_letor
    from fultr.letor_write import write_letor
    from fultr.metrics import Summary, average_relevant_position, mrr, ndcg, precision, summarise
    from fultr.policy import PolicySettings, train_policy
    from fultr.population import FiniteUsers, FreshUsers
    from fultr.rankers import LinearRanker
    from fultr.reproduction import Plan, reproduce
    from fultr.rounds import FedAvg, FedIPS
    from fultr.runs import RunSettings
    from fultr.server import ServerOptimiser
    from fultr.simulation import Curve, Simulation, Weighing, simulate
    from fultr.store import Source
    from fultr.versions import Version, Versions, read_ranker

_HOMES = {
    "Choice": "experiments",
    "Claim": "claims",
    "ClickLog": "clicks",
    "ClickModel": "clicks",
    "Curve": "simulation",
    "Description": "data",
    "DeviceLog": "device",
    "Diagnosis": "diagnostics",
    "Estimate": "estimates",
    "Estimator": "estimation",
    "Experiment": "experiments",
    "FedAvg": "rounds",
    "FedIPS": "rounds",
    "FiniteUsers": "population",
    "FreshUsers": "population",
    "FultrError": "errors",
    "ImpressionLog": "impressions",
    "LambdaLinear": "baselines",
    "LambdaLinearResult": "baselines",
    "Line": "experiments",
    "LinearRanker": "rankers",
    "LocalTraining": "client",
    "Measured": "estimates",
    "Outcome": "experiments",
    "Panel": "experiments",
    "Plan": "reproduction",
    "PolicySettings": "policy",
    "RankingData": "data",
    "Retention": "device_upkeep",
    "RunSettings": "runs",
    "ServerOptimiser": "server",
    "Sessions": "clicks",
    "Simulation": "simulation",
    "Source": "store",
    "Splits": "data",
    "Summary": "metrics",
    "TrainingLog": "device_training",
    "Verdict": "claims",
    "Version": "versions",
    "Versions": "versions",
    "Weighing": "simulation",
    "average_relevant_position": "metrics",
    "cache_folder": "cache",
    "clear_cache": "cache",
    "comparison": "comparisons",
    "diagnose": "diagnostics",
    "estimate": "estimates",
    "inspect": "layouts",
    "judge": "claims",
    "load": "datasets",
    "mrr": "metrics",
    "ndcg": "metrics",
    "packaged": "experiment_files",
    "precision": "metrics",
    "read_click_log": "click_files",
    "read_experiment": "experiment_files",
    "read_letor": "letor",
    "read_ranker": "versions",
    "reproduce": "reproduction",
    "simulate": "simulation",
    "summarise": "metrics",
    "to_json": "export",
    "to_onnx": "export",
    "train_lambda_linear": "baselines",
    "train_policy": "policy",
    "write_letor": "letor_write",
}
"""Where each public name is defined. Modules are imported when they are first used: a device needs few of them."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"fultr.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and find_spec(f"fultr.{name}") is not None:
        return import_module(f"fultr.{name}")
    raise AttributeError(f"module 'fultr' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Choice",
    "Claim",
    "ClickLog",
    "ClickModel",
    "Curve",
    "Description",
    "DeviceLog",
    "Diagnosis",
    "Estimate",
    "Estimator",
    "Experiment",
    "FedAvg",
    "FedIPS",
    "FiniteUsers",
    "FreshUsers",
    "FultrError",
    "ImpressionLog",
    "LambdaLinear",
    "LambdaLinearResult",
    "Line",
    "LinearRanker",
    "LocalTraining",
    "Measured",
    "Outcome",
    "Panel",
    "Plan",
    "PolicySettings",
    "RankingData",
    "Retention",
    "RunSettings",
    "ServerOptimiser",
    "Sessions",
    "Simulation",
    "Source",
    "Splits",
    "Summary",
    "TrainingLog",
    "Verdict",
    "Version",
    "Versions",
    "Weighing",
    "average_relevant_position",
    "cache_folder",
    "clear_cache",
    "comparison",
    "diagnose",
    "estimate",
    "inspect",
    "judge",
    "load",
    "mrr",
    "ndcg",
    "packaged",
    "precision",
    "read_click_log",
    "read_experiment",
    "read_letor",
    "read_ranker",
    "reproduce",
    "simulate",
    "summarise",
    "to_json",
    "to_onnx",
    "train_lambda_linear",
    "train_policy",
    "write_letor",
]
