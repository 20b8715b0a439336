"""Federated unbiased learning to rank: rankers trained from biased clicks that never leave the users' devices.

>>> import fultr
>>> data = fultr.load("synthetic", cache=False)
>>> run = fultr.simulate(data, fultr.FedIPS(), clients=200, rounds=5, seed=0)
>>> run.ranker
LinearRanker(64 features)
"""

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
