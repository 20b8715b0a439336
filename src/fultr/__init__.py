"""Federated unbiased learning to rank: rankers trained from biased clicks that never leave the users' devices.

>>> import fultr
>>> data = fultr.load("synthetic", cache=False)
>>> run = fultr.simulate(data, fultr.FedIPS(), clients=200, rounds=5, seed=0)
>>> run.ranker
LinearRanker(64 features)
"""

from fultr.baselines import LambdaLinear, LambdaLinearResult, train_lambda_linear
from fultr.cache import cache_folder, clear_cache
from fultr.clicks import ClickLog, ClickModel, Sessions
from fultr.client import LocalTraining
from fultr.data import Description, RankingData, Splits
from fultr.datasets import load
from fultr.errors import FultrError
from fultr.layouts import inspect
from fultr.letor import read_letor
from fultr.letor_write import write_letor
from fultr.metrics import Summary, average_relevant_position, mrr, ndcg, precision, summarise
from fultr.policy import PolicySettings, train_policy
from fultr.population import FiniteUsers, FreshUsers
from fultr.rankers import LinearRanker
from fultr.server import ServerOptimiser
from fultr.simulation import Curve, FedAvg, FedIPS, Simulation, simulate

__all__ = [
    "ClickLog",
    "ClickModel",
    "Curve",
    "Description",
    "FedAvg",
    "FedIPS",
    "FiniteUsers",
    "FreshUsers",
    "FultrError",
    "LambdaLinear",
    "LambdaLinearResult",
    "LinearRanker",
    "LocalTraining",
    "PolicySettings",
    "RankingData",
    "ServerOptimiser",
    "Sessions",
    "Simulation",
    "Splits",
    "Summary",
    "average_relevant_position",
    "cache_folder",
    "clear_cache",
    "inspect",
    "load",
    "mrr",
    "ndcg",
    "precision",
    "read_letor",
    "simulate",
    "summarise",
    "train_lambda_linear",
    "train_policy",
    "write_letor",
]
