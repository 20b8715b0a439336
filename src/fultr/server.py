"""The server: from the average update to the next weights (Algorithm 1, line 11; FedOpt, Reddi et al. 2021).

A server optimiser is a value with two functions: `initial_state` and `step`; state goes in, state comes out. All
arithmetic is float64; weights are float32, as they travel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fultr.checks import check_choice, check_number
from fultr.types import Float32s, Float64s

KINDS = ("sgd", "momentum", "adagrad", "adam", "yogi")


@dataclass(frozen=True)
class ServerOptimiser:
    """How the server turns the average update Delta into the next weights.

    Attributes:
        kind: "sgd", w + eta_g Delta, is the paper's; "momentum" is FedAvgM (Hsu et al. 2019), m <- beta1 m + Delta,
            w + eta_g m; "adagrad", "adam" and "yogi" are FedAdagrad, FedAdam and FedYogi (Reddi et al. 2021,
            Algorithm 2; FedAdagrad without momentum, none with bias correction).
        learning_rate: eta_g.
        beta1: decay of the average of updates (momentum, adam, yogi).
        beta2: decay of the average of squared updates (adam, yogi).
        tau: degree of adaptivity: added to the root of the squared updates, which start at tau squared.
    """

    kind: Literal["sgd", "momentum", "adagrad", "adam", "yogi"] = "sgd"
    learning_rate: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 0.001

    def __post_init__(self) -> None:
        check_choice("server optimiser", self.kind, KINDS)
        check_number("server learning rate", self.learning_rate, above=0)
        check_number("beta1", self.beta1, least=0, below=1)
        check_number("beta2", self.beta2, least=0, below=1)
        check_number("tau", self.tau, above=0)


@dataclass(frozen=True, eq=False)
class ServerState:
    """What a server optimiser remembers between rounds; two float64 arrays [features], ready to be saved."""

    momentum: Float64s
    squares: Float64s


def initial_state(optimiser: ServerOptimiser, features: int) -> ServerState:
    """The state before the first round."""
    return ServerState(np.zeros(features), np.full(features, optimiser.tau**2))


def step(
    optimiser: ServerOptimiser, state: ServerState, weights: Float32s, update: Float64s
) -> tuple[Float32s, ServerState]:
    """The next weights, and the optimiser's next state.

    >>> optimiser = ServerOptimiser("sgd", learning_rate=0.5)
    >>> weights, _ = step(optimiser, initial_state(optimiser, 1), np.float32([1]), np.array([4.0]))
    >>> weights.tolist()
    [3.0]
    """
    momentum, squares = state.momentum, state.squares
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is measured like any other
        match optimiser.kind:
            case "sgd":
                direction = update
            case "momentum":
                direction = momentum = optimiser.beta1 * momentum + update
            case "adagrad":
                squares = squares + update**2
                direction = update / (np.sqrt(squares) + optimiser.tau)
            case "adam" | "yogi":
                momentum = optimiser.beta1 * momentum + (1 - optimiser.beta1) * update
                if optimiser.kind == "adam":
                    squares = optimiser.beta2 * squares + (1 - optimiser.beta2) * update**2
                else:
                    squares = squares - (1 - optimiser.beta2) * update**2 * np.sign(squares - update**2)
                direction = momentum / (np.sqrt(squares) + optimiser.tau)
        moved = weights + optimiser.learning_rate * direction
        return moved.astype(np.float32), ServerState(momentum, squares)


def average(total: Float64s, clients: float) -> Float64s:
    """The pseudo-gradient: the sum of the clients' updates over their number; zero if there is no client.

    >>> average(np.array([6.0]), 3).tolist()
    [2.0]
    """
    return total / clients if clients else np.zeros_like(total)
