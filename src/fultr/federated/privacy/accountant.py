"""What privacy costs: epsilon from noise, noise from epsilon; and the statement that goes with every figure.

The unit is a device with all that it ever sends; data sets are adjacent if one has a device more (add or remove). Costs
are computed by `dp-accounting`. Where the server adds the noise, its discrete Gaussian is so fine that it is taken for
the continuous one, whose cost is known exactly; with secret cohorts it comes from privacy loss distributions. Where
devices add it, it comes from Rényi divergences, for which discrete Gaussians and their sums have the bound of the
continuous one (Canonne et al. 2020, Kairouz et al. 2021).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from fultr.core.checks import SettingError
from fultr.core.errors import FultrError
from fultr.federated.privacy.factorisation import sensitivity
from fultr.federated.privacy.secure_sum import DEGREE, FULL, hidden_among
from fultr.federated.privacy.settings import MOST_ROUNDS, Privacy, noise_of

LEAST_COHORT = 100
"""Devices of a round below which noise drowns whatever they have to say."""

_PRECISION = 1e-4  # of a noise multiplier, relative
_FINE = 1e-10  # of an epsilon, relative
_LEAST_LOG_NOISE, _MOST_LOG_NOISE = math.log(1e-3), math.log(1e6)
_TRUST = {
    "gaussian": "the server is trusted: it sees what devices send, adds the noise, and discloses only what follows",
    "correlated": "the server is trusted: it sees what devices send, adds the noise, and discloses only what follows",
    "distributed": "the server must see only sums, each with the share of the noise of at least {honest} devices",
}
_TRUST_SUMMED = {
    "gaussian": "the server is trusted to add the noise and disclose only what follows; it sees sums alone",
    "correlated": "the server is trusted to add the noise and disclose only what follows; it sees sums alone",
    "distributed": "the server sees sums alone, of {honest} or more devices that add a share of the noise, {cheats}",
}


@dataclass(frozen=True)
class Guarantee:
    """An epsilon, with all that it depends on.

    Attributes:
        epsilon: of all rounds so far.
        delta: likewise.
        noise_multiplier: z.
        rounds: so far.
        cohort: devices expected in a round.
        population: devices in all.
        participations: of a device, at most; None if that is not limited, but random.
        rounds_apart: between them.
        mode: of the noise.
        unit: what is hidden.
        adjacency: between what data sets.
        trust: who must be trusted with what.
    """

    epsilon: float
    delta: float
    noise_multiplier: float
    rounds: int
    cohort: int
    population: int
    participations: int | None
    rounds_apart: int
    mode: str
    unit: str
    adjacency: str
    trust: str

    def __str__(self) -> str:
        return (
            f"epsilon {self.epsilon:.3f}, delta {self.delta:.2g}, per {self.unit}, {self.adjacency}; "
            f"{self.mode} noise, z = {self.noise_multiplier:.4g}; {self.trust}"
        )

    def as_mapping(self) -> dict[str, Any]:
        """Everything by name, ready for JSON."""
        return asdict(self)


def delta_of(privacy: Privacy) -> float:
    """Delta: as given, or N ** -1.1.

    >>> round(delta_of(Privacy("gaussian", epsilon=1, population=100_000)) * 1e6, 2)
    3.16
    """
    return privacy.delta if privacy.delta is not None else population_of(privacy) ** -1.1


def population_of(privacy: Privacy) -> int:
    """N, once it is settled."""
    if privacy.population is None:
        raise SettingError("population", "expected how many devices could take part, found nothing")
    return privacy.population


def spent(privacy: Privacy, *, cohort: int, rounds: int, summed: bool = False) -> Guarantee:
    """What this many rounds have cost.

    Args:
        privacy: the settings.
        cohort: devices expected in a round.
        rounds: so far.
        summed: does the server see secure sums alone? That is part of what is said of trust.

    >>> settings = Privacy("gaussian", noise_multiplier=2.374, population=100_000, secret_cohorts=True)
    >>> round(spent(settings, cohort=2000, rounds=200).epsilon, 2)
    0.5
    """
    noise, delta = noise_of(privacy), delta_of(privacy)
    if rounds == 0:
        epsilon = 0.0
    elif privacy.secret_cohorts:
        epsilon = sampled_epsilon(noise, cohort / population_of(privacy), rounds, delta)
    else:
        moved = moved_by(privacy, rounds)
        epsilon = (
            _renyi_epsilon(noise / moved, delta) if privacy.mode == "distributed" else _epsilon(noise / moved, delta)
        )
    return Guarantee(
        epsilon,
        delta,
        noise,
        rounds,
        cohort,
        population_of(privacy),
        None if privacy.secret_cohorts else privacy.participations,
        privacy.rounds_apart,
        privacy.mode,
        "device",
        "add or remove one",
        _trust(privacy, cohort, summed)
        + ("; cohorts are drawn by Poisson sampling and stay secret" if privacy.secret_cohorts else ""),
    )


def _trust(privacy: Privacy, cohort: int, summed: bool) -> str:
    """Who must be trusted with what, in words."""
    if not summed:
        return _TRUST[privacy.mode].format(honest=privacy.honest)
    hidden = hidden_among(cohort if cohort <= FULL else DEGREE + 1)
    cheats = (
        "if it tells all the same of who dropped out"
        if (privacy.honest or 0) > hidden
        else "whatever it tells them of who dropped out"
    )
    return _TRUST_SUMMED[privacy.mode].format(honest=privacy.honest, cheats=cheats)


def moved_by(privacy: Privacy, rounds: int) -> float:
    """How far one device moves what the noise is added to in this many rounds, in units of its bound.

    >>> moved_by(Privacy("gaussian", epsilon=1, participations=4, rounds_apart=10), 25) == math.sqrt(3)
    True
    """
    if privacy.mode == "correlated":
        return sensitivity(privacy.participations, privacy.rounds_apart, rounds)
    return math.sqrt(min(privacy.participations, 1 + (rounds - 1) // privacy.rounds_apart))


def settled(privacy: Privacy, *, cohort: int, rounds: int, size: int) -> Privacy:
    """The settings of a run, with noise, delta and honest devices as numbers; or an error that says why there is none.

    Args:
        privacy: the settings.
        cohort: devices expected in a round.
        rounds: of the run.
        size: numbers in an update.

    >>> wanted = Privacy("correlated", epsilon=1, population=10**6)
    >>> round(settled(wanted, cohort=2000, rounds=200, size=519).noise_multiplier, 1)
    7.5
    """
    population = population_of(privacy)
    if cohort < LEAST_COHORT:
        raise FultrError(
            f"privacy: expected at least {LEAST_COHORT} devices in a round, better thousands, found {cohort}: noise "
            "that hides one of so few drowns the others too"
        )
    if cohort > population:
        raise SettingError("population", f"expected at least the {cohort} devices of a round, found {population}")
    if rounds > MOST_ROUNDS:
        raise SettingError("rounds", f"expected at most {MOST_ROUNDS} with privacy, found {rounds}")
    if delta_of(privacy) >= 1 / population:
        raise SettingError(
            "delta", f"expected below 1 / population: {delta_of(privacy):g} would allow to publish a device's clicks"
        )
    _check_participations(privacy, cohort, rounds)
    honest = max(1, cohort * 9 // 10) if privacy.honest is None else privacy.honest
    if honest > cohort:
        raise SettingError("honest", f"expected at most the {cohort} devices of a round, found {honest}")
    privacy = replace(privacy, delta=delta_of(privacy), honest=honest if privacy.mode == "distributed" else None)
    if privacy.noise_multiplier is None:
        assert privacy.epsilon is not None
        privacy = replace(privacy, noise_multiplier=_noise_for(privacy, cohort, rounds))
    found = spent(privacy, cohort=cohort, rounds=rounds).epsilon
    if privacy.epsilon is not None and found > privacy.epsilon:
        raise FultrError(f"privacy: the run would cost epsilon {found:.3f}, and its budget is {privacy.epsilon:g}")
    if noise_of(privacy) * math.sqrt(size) > cohort:
        raise FultrError(
            f"privacy: of no use: the noise in the mean of {cohort} devices would be longer than any update may be; "
            "have more devices in a round, fewer rounds, or a larger epsilon"
        )
    return privacy


def _check_participations(privacy: Privacy, cohort: int, rounds: int) -> None:
    """Refuse a run for which there are not enough devices, each taking part no more often than it may."""
    if privacy.secret_cohorts:
        return
    often = min(privacy.participations, 1 + (rounds - 1) // privacy.rounds_apart)
    needed = max(math.ceil(cohort * rounds / often), cohort * min(privacy.rounds_apart, rounds) if often > 1 else 0)
    if needed > population_of(privacy):
        raise FultrError(
            f"privacy: {rounds} rounds of {cohort} devices, each in at most {often} and {privacy.rounds_apart} apart, "
            f"take {needed:,} devices, and the population is {population_of(privacy):,}"
        )


def _noise_for(privacy: Privacy, cohort: int, rounds: int) -> float:
    """The least noise multiplier that keeps to epsilon, a little rounded up."""
    from scipy.optimize import brentq

    wanted = privacy.epsilon
    assert wanted is not None

    def cost(noise: float) -> float:
        return spent(replace(privacy, noise_multiplier=noise, epsilon=None), cohort=cohort, rounds=rounds).epsilon

    def excess(log_noise: float) -> float:  # nearly a straight line
        return math.log(min(max(cost(math.exp(log_noise)), 1e-12), 1e12) / wanted)

    low = high = 0.0
    while excess(high) > 0:
        low, high = high, high + math.log(2)
        if high > _MOST_LOG_NOISE:
            raise FultrError(f"privacy: no noise keeps to epsilon {wanted:g} with delta {delta_of(privacy):.2g}")
    while excess(low) <= 0:
        low, high = low - math.log(2), low
        if low < _LEAST_LOG_NOISE:
            return math.exp(high)
    noise = math.exp(brentq(excess, low, high, xtol=_PRECISION / 2) + _PRECISION / 2)
    while cost(noise) > wanted:
        noise *= 1 + _PRECISION
    return noise


@lru_cache(maxsize=256)
def _epsilon(noise: float, delta: float) -> float:
    """Of one Gaussian release with sensitivity 1: the exact divergence (Balle and Wang 2018), solved for epsilon."""
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
    from scipy.optimize import brentq

    loss = GaussianPrivacyLoss(noise)

    def excess(epsilon: float) -> float:
        return float(loss.get_delta_for_epsilon(epsilon)) / delta - 1

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    epsilon = float(brentq(excess, 0.0, high, rtol=_FINE)) * (1 + 2 * _FINE)
    return epsilon if excess(epsilon) <= 0 else high


@lru_cache(maxsize=1024)
def sampled_epsilon(noise: float, rate: float, rounds: int, delta: float) -> float:
    """Of rounds whose cohorts are drawn in secret, every device with the same probability."""
    if rate >= 1:  # rounds that all have everyone are one release with less noise
        return _epsilon(noise / math.sqrt(rounds), delta)
    import dp_accounting
    from dp_accounting import pld

    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    return float(accountant.compose(event, rounds).get_epsilon(delta))


@lru_cache(maxsize=256)
def _renyi_epsilon(noise: float, delta: float) -> float:
    import dp_accounting
    from dp_accounting import rdp

    orders = [1 + i / 20 for i in range(1, 200)] + list(range(11, 512))
    accountant = rdp.RdpAccountant(orders, dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    return float(accountant.compose(dp_accounting.GaussianDpEvent(noise)).get_epsilon(delta))
