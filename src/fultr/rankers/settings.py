"""How λLinear is trained; a module of settings alone, quick to import."""

from __future__ import annotations

from dataclasses import dataclass

from fultr.core.settings import check, setting

PAPER_LEARNING_RATES = (0.001, 0.005, 0.01, 0.03, 0.05, 0.07, 0.09, 0.1, 0.3, 0.5, 0.7, 0.9)
"""Section 4, Baselines: {0.001, 0.005, 0.01, 0.03, ..., 0.09, 0.1, 0.3, ..., 0.9}."""


@dataclass(frozen=True)
class LambdaLinear:
    """How λLinear is trained; the best epoch on validation is kept."""

    lambda_rate: float = setting(0.1, "Learning rate of λLinear.", above=0)
    lambda_epochs: int = setting(20, "Passes of λLinear over the training queries.", least=1)
    lambda_batch: int = setting(16, "Queries in a step of λLinear.", least=1)

    def __post_init__(self) -> None:
        check(self)
