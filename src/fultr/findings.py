"""What a comparison shows: a table, and sentences that say it, each from the numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from fultr.experiments import Outcome
from fultr.types import Float64s


@dataclass(frozen=True)
class Estimate:
    """A mean over repeats and its standard error (NaN if there is one repeat only).

    Attributes:
        mean: over repeats.
        standard_error: of the mean.
        repeats: how many there are.

    >>> print(estimate(np.array([0.50, 0.52, 0.54])))
    0.5200 ± 0.0115
    """

    mean: float
    standard_error: float
    repeats: int

    def __str__(self) -> str:
        error = f" ± {self.standard_error:.4f}" if np.isfinite(self.standard_error) else ""
        return f"{self.mean:.4f}{error}"

    @property
    def errors_from_zero(self) -> float:
        """The mean in units of its standard error: Student's t."""
        return self.mean / self.standard_error if self.standard_error > 0 else float("nan")

    @property
    def p_value(self) -> float:
        """How likely a mean this far from 0, either way, would be if there were no difference (Student's t test)."""
        return float(2 * stdtr(self.repeats - 1, -abs(self.errors_from_zero)))


def estimate(values: Float64s) -> Estimate:
    """Mean and standard error of one number a repeat."""
    spread = float(values.std(ddof=1)) if values.size > 1 else float("nan")
    return Estimate(float(values.mean()), spread / values.size**0.5, values.size)


def table(outcome: Outcome) -> list[tuple[str, list[str]]]:
    """One row a method: NDCG@k on test at each gamma, mean ± standard error over repeats."""
    gammas = outcome.settings.gammas
    rows = [
        ("random ranking", [str(estimate(outcome.random))] * len(gammas)),
        ("logging policy", [str(estimate(outcome.policy))] * len(gammas)),
    ]
    for name in ("FedAvg", "FedIPS"):
        rows.append((name, [str(estimate(outcome.final(name, gamma))) for gamma in gammas]))
    rows.append(("λLinear (all grades known)", [str(estimate(outcome.lambda_linear))] * len(gammas)))
    return rows


def _gap(difference: Estimate) -> str:
    """A paired difference in words: how large, and how sure."""
    errors, p = difference.errors_from_zero, difference.p_value
    if not np.isfinite(errors):
        return f"{difference.mean:+.4f}, from a single repeat: too little to tell"
    sure = "clear" if p < 0.01 else "weak evidence" if p < 0.05 else "not distinguishable from 0"
    size = f"{abs(errors):.1f}" if abs(errors) < 100 else "over 100"
    return f"{difference.mean:+.4f} ± {difference.standard_error:.4f} ({size} standard errors, p = {p:.2g}: {sure})"


def sentences(outcome: Outcome) -> list[str]:
    """What was found, in words; comparisons are paired over repeats."""
    settings = outcome.settings
    said = []
    for gamma in settings.gammas:
        ips, avg = outcome.final("FedIPS", gamma), outcome.final("FedAvg", gamma)
        text = f"At γ = {gamma:g}, FedIPS minus FedAvg is {_gap(estimate(ips - avg))}"
        way = outcome.lambda_linear.mean() - avg.mean()
        if way > 0:
            text += f"; FedIPS goes {(ips.mean() - avg.mean()) / way:.0%} of the way from FedAvg to λLinear"
        said.append(text + ".")
    if len(settings.gammas) > 1:
        low, high = min(settings.gammas), max(settings.gammas)
        drop = {name: outcome.final(name, low) - outcome.final(name, high) for name in ("FedAvg", "FedIPS")}
        said.append(
            f"From γ = {low:g} to γ = {high:g}, FedAvg loses {estimate(drop['FedAvg'])} and FedIPS "
            f"{estimate(drop['FedIPS'])}: FedAvg's loss minus FedIPS's is "
            f"{_gap(estimate(drop['FedAvg'] - drop['FedIPS']))}."
        )
    policy, ceiling = estimate(outcome.policy), estimate(outcome.lambda_linear)
    said.append(
        f"The logging policy that the clicks were made with reaches {policy}, a random ranking "
        f"{estimate(outcome.random)}, and λLinear, trained on the grades themselves, {ceiling}."
    )
    edges = [f"{c.algorithm} at γ = {c.gamma:g} ({' and '.join(c.at_edge)})" for c in outcome.choices if c.at_edge]
    if edges:
        said.append(
            f"A learning rate at the edge of its grid was chosen for {', '.join(edges)}: a better one may lie beyond."
        )
    return said
