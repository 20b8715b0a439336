"""The settings of differential privacy; a module of settings alone, quick to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fultr.core.checks import SettingError
from fultr.core.errors import FultrError
from fultr.core.settings import check, either, setting
from fultr.federated.privacy import PRIVACY

MOST_ROUNDS = 10_000
"""Of a run with privacy."""


@dataclass(frozen=True)
class Privacy:
    """User-level differential privacy: what one device sends in all rounds, added or removed, is hidden in noise.

    All that a device sends in a round is one vector of blocks: the update; the estimator's gradient; its counts of
    examinations and impressions, or of pairs of ranks; its marginals; the judgement; whether the update was clipped.
    Each block is scaled down to its bound, and has a share of the whole vector's norm. docs/privacy.md says what each
    mode guarantees to whom.

    Attributes:
        mode: "gaussian", the server adds independent noise in each round; "correlated", noise that later rounds take
            back in part; "distributed", each device adds its share of the noise.
        epsilon: the run's budget. Without `noise_multiplier`, the noise is the least that keeps to it.
        noise_multiplier: z: the noise's standard deviation, as a multiple of the largest norm of a device's vector.
        delta: of (epsilon, delta).
        population: N, all devices that could take part.
        participations: rounds that a device takes part in, at most.
        rounds_apart: a device that took part in round t does so again in round t + rounds_apart at the earliest.
        secret_cohorts: every device of a round is drawn with the same probability, independently, and nobody but the
            server ever learns who was: then, and only then, does the draw itself hide devices (amplification).
        honest: devices of a cohort that are sure to add their share of the noise ("distributed").
        update_bound: of an update's norm.
        clip_quantile: the bound follows this quantile of the updates' norms (Andrew et al. 2021).
        gradient_bound: of the norm of an estimator's gradient.
        counts_bound: of the norm of its counts.
        marginals_bound: of the norm of its marginals.
        judged_bound: of the weight of a device's held-out clicks.
        counts_memory: the server's sums of counts are multiplied by this in every round.

    >>> Privacy("correlated")
    Traceback (most recent call last):
    fultr.core.checks.SettingError: epsilon: expected a budget, or a noise_multiplier; found neither
    """

    mode: str = setting("correlated", "Noise of differential privacy.", choices=PRIVACY)
    epsilon: float | None = setting(
        None, "Budget of a run with privacy.", above=0, most=100, zero="follows from noise_multiplier"
    )
    noise_multiplier: float | None = setting(
        None, "Noise, as a multiple of the largest norm of what a device sends.", above=0, zero="follows from epsilon"
    )
    delta: float | None = setting(None, "Delta of the budget.", above=0, below=1, zero="population ** -1.1")
    population: int | None = setting(
        None, "Devices that could take part, N.", least=1, zero="the users of a simulation's fixed population"
    )
    participations: int = setting(1, "Rounds that a device takes part in, at most.", least=1)
    rounds_apart: int = setting(1, "Rounds from one participation of a device to the next, at least.", least=1)
    secret_cohorts: bool = setting(
        False, "Cohorts are drawn by Poisson sampling and never disclosed, which the budget counts on (gaussian)."
    )
    honest: int | None = setting(
        None, "Devices of a cohort that are relied on to add noise (distributed).", least=1, zero="nine tenths of it"
    )
    update_bound: float = setting(0.1, "Largest norm of an update, with privacy; longer ones are scaled down.", above=0)
    clip_quantile: float | None = setting(
        None, "Quantile of the updates' norms that update_bound follows.", above=0, below=1, zero="it is fixed"
    )
    gradient_bound: float = setting(100.0, "Largest norm of an estimator's gradient, with privacy.", above=0)
    counts_bound: float = setting(100.0, "Largest norm of an estimator's counts, with privacy.", above=0)
    marginals_bound: float = setting(2.0, "Largest norm of an estimator's marginals, with privacy.", above=0)
    judged_bound: float = setting(20.0, "Largest weight of a device's held-out clicks, with privacy.", above=0)
    counts_memory: float = setting(
        0.9, "Share of the noised counts that is kept from round to round.", least=0, below=1
    )

    def __post_init__(self) -> None:
        check(self)
        if self.epsilon is None and self.noise_multiplier is None:
            raise SettingError("epsilon", "expected a budget, or a noise_multiplier; found neither")
        if self.secret_cohorts and self.mode != "gaussian":
            raise SettingError(
                "secret_cohorts", f"expected false with {self.mode} noise, whose budget counts participations"
            )


def privacy_setting() -> Any:
    """Declare the choice between no privacy and a `Privacy`."""
    names = ("none", *PRIVACY)

    def read(value: Any) -> Any:
        if value not in names:
            raise ValueError
        return value

    return either(
        "none",
        f"Differential privacy per device: {', '.join(names)}.",
        Privacy,
        "mode",
        name="privacy",
        reads=read,
        expected=f"one of {', '.join(names)}",
    )


NoPrivacy = Literal["none"]


def noise_of(privacy: Privacy) -> float:
    """The noise multiplier z, once it is settled."""
    if privacy.noise_multiplier is None:
        raise FultrError("noise_multiplier: is settled when a run starts")
    return privacy.noise_multiplier
