"""A membership attack on what a server sees: did this user, whose clicks the attacker knows, take part?

Whoever knows a user's clicks knows what their device sends, v. In each trial, what other devices send is seen once
without v and once with it, and the attack scores both by their likelihood ratio (Neyman and Pearson's best test;
Carlini et al. 2022). Among single updates, v itself is looked for. For a sum, an attacker who has simulated such users
knows the mean and the covariance of what one device sends; for one who knows the clicks of all other devices, only
noise hides v. Noise that is (ε, δ)-private keeps every attack below: true positives <= e^ε false positives + δ.

`python -m fultr.study.membership FIGURE.png` prints the tables of docs/what-leaves-a-device.md and draws their
figure; it takes some minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fultr.clicks.models.model import click_model_of
from fultr.core.arrays import Float64s, Int64s
from fultr.core.files import written_whole
from fultr.core.streams import Purpose, generator
from fultr.data.load import load
from fultr.data.ranking import Splits
from fultr.federated.fedips import Server, broadcast, client_round, nothing
from fultr.federated.privacy import PRIVACY
from fultr.federated.privacy.accountant import delta_of, settled
from fultr.federated.privacy.settings import Privacy, noise_of
from fultr.federated.privacy.stage import Sums
from fultr.federated.privacy.vector import packed
from fultr.rankers.model import model_named
from fultr.study.policy import display, train_policy
from fultr.study.rounds import Simulated, clicked, run_round
from fultr.study.seeded import SeededRandomness
from fultr.study.settings import FreshUsers, RunSettings
from fultr.study.users import attraction, cohorts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = "synthetic"
SETTINGS = RunSettings.of({"client_rate": 1e-3, "server": "adam", "server_rate": 0.03, "rounds": 20})
COHORTS = (10, 100, 1000)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
TRIALS = 10_000
POOL = 100_000  # users from whom the other devices of a trial are drawn, and as many that the attacker has simulated
_PRIVATE, _ROUNDS, _POPULATION = 100, 200, 100_000  # with privacy: the fewest devices in a round that there may be
_FALSE = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # false positives at which an attack is held against the bound
_BLOCK = 500
_ALIKE, _ALL = "such users", "all others"  # what an attacker knows besides the user's clicks
_SMALLEST = 1e-9  # of a covariance's eigenvalues, relative to the largest


@dataclass(frozen=True, eq=False)
class Scores:
    """What an attack thinks of its trials: the higher, the surer that the user took part.

    Attributes:
        away: [trials] scores where the user did not take part.
        there: [trials] scores where the user did.

    >>> found = Scores(away=np.array([0.0, 1.0, 2.0, 3.0]), there=np.array([2.5, 3.5, 4.5, 5.5]))
    >>> found.found(0.25), found.advantage
    (1.0, 0.75)
    """

    away: Float64s
    there: Float64s

    def found(self, false: float) -> float:
        """True positives where at most this share of the others is taken for one: P(score > threshold)."""
        return float((self.there > self._threshold(false)).mean())

    def _threshold(self, false: float) -> float:
        """The lowest score with at most this share of `away` above it."""
        return float(np.sort(self.away)[::-1][int(false * self.away.size)])

    @property
    def curve(self) -> tuple[Float64s, Float64s]:
        """False and true positives at every threshold, ascending."""
        thresholds = np.unique(np.concatenate([self.away, self.there]))[::-1]
        counts = [np.searchsorted(np.sort(part), thresholds, side="left") for part in (self.away, self.there)]
        return 1 - counts[0] / self.away.size, 1 - counts[1] / self.there.size

    @property
    def advantage(self) -> float:
        """The largest difference between true and false positives: 0 for guessing, 1 for certainty."""
        false, true = self.curve
        return float(max((true - false).max(), 0))

    @property
    def area(self) -> float:
        """Under the curve: how often a user who took part has the higher score of two, .5 for guessing."""
        false, true = self.curve
        return float(np.trapezoid(np.r_[0, true], np.r_[0, false]))

    def __add__(self, other: Scores) -> Scores:
        """Of both together: log likelihood ratios of independent rounds add up."""
        return Scores(self.away + other.away, self.there + other.there)

    def excess(self, epsilon: float, delta: float) -> float:
        """By how many standard errors the attack is above what (epsilon, delta) allows, at the most."""
        found = []
        for share in _FALSE:
            threshold = self._threshold(share)
            true, false = self.there > threshold, self.away > threshold
            error = np.sqrt(true.var() / true.size + np.exp(2 * epsilon) * false.var() / false.size)
            if error > 0:
                found.append((true.mean() - np.exp(epsilon) * false.mean() - delta) / error)
        return float(max(found, default=-np.inf))


def allowed(epsilon: float, delta: float, false: Float64s) -> Float64s:
    """The most true positives that any attack on an (epsilon, delta)-private release has (Kairouz et al. 2015).

    >>> allowed(np.log(2), 0.0, np.array([0.1, 0.25, 0.9])).tolist()
    [0.2, 0.5, 0.95]
    """
    most = np.minimum(np.exp(epsilon) * false + delta, 1 - np.exp(-epsilon) * (1 - delta - false))
    return np.asarray(np.clip(most, 0, 1))


def allowed_advantage(epsilon: float, delta: float) -> float:
    """The most that the true positives of any attack exceed the false ones by.

    >>> round(allowed_advantage(np.log(3), 0.0), 9)
    0.5
    """
    return float((np.exp(epsilon) - 1 + 2 * delta) / (np.exp(epsilon) + 1))


def replies(settings: RunSettings, data: Splits, users: Sequence[int], seed: int = 0) -> list[Sums]:
    """What users send after `settings.rounds` rounds of training: several groups of this size, a row each.

    >>> [some] = replies(SETTINGS.but({"rounds": 1, "clients": 50}), load("synthetic", cache=False), [3])
    >>> some["update"].shape
    (3, 64)
    """
    train, algorithm = data.train, settings.fedips
    shown = display(train, train_policy(train, settings.policy, seed), displayed=settings.displayed, seed=seed)
    model = model_named(algorithm.model, train.width)
    run = Simulated(
        algorithm,
        model,
        shown,
        click_model_of(settings.click_model),
        attraction(train, shown, settings.click_model),
        cohorts(FreshUsers(), train, settings.click_model, settings.clients, seed),
        settings.sessions,
        seed,
        threads=None,
    )
    server = Server.initial(algorithm, model, model.initial(), settings.displayed)
    for t in range(settings.rounds):
        [(server, _)] = run_round([run], t, [server])
    sent, first, found = broadcast(algorithm, server), 0, []
    for group in users:
        sums = nothing(algorithm, model, settings.displayed, group)
        for begin in range(0, group, _BLOCK):
            end = min(begin + _BLOCK, group)
            base, records, _ = clicked(run, settings.rounds, np.arange(first + begin, first + end))
            known = run.click_model.examination_given_clicks(base, records.log)
            rows = {name: each[begin:end] for name, each in sums.items()}
            client_round(algorithm, model, sent, records, rows, known=known)
        first += group
        found.append(sums)
    return found


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise in the sums of trials, in parts of the bound.

    Attributes:
        drawn: [trials, size].
        variance: of each number, as privacy claims it.
    """

    drawn: Float64s
    variance: float

    @classmethod
    def of(cls, privacy: Privacy, trials: int, size: int, seed: int = 0) -> Noise:
        """As the code of the mode draws it; where devices add it, the shares of those that can be relied on."""
        mode, random, found = PRIVACY[privacy.mode], SeededRandomness(seed), np.zeros((trials, size))
        for t in range(trials):
            shares = [random.client(t, device) for device in range(privacy.honest or 0)]
            total = mode.client(privacy, np.zeros((len(shares), size)), shares).sum(axis=0) if shares else found[t]
            found[t] = mode.server(privacy, mode.init(privacy, size), total, random.server(t))[1]
        return cls(found / mode.scale(privacy), noise_of(privacy) ** 2)


@dataclass(frozen=True, eq=False)
class Trials:
    """What attacks are tried on: vectors of all that a device sends.

    Attributes:
        users: [trials, size] of the users whose clicks the attacker knows.
        pool: [devices, size] of others, of whom the cohorts are drawn.
        simulated: [devices, size] of users whom the attacker has simulated.
    """

    users: Float64s
    pool: Float64s
    simulated: Float64s

    @classmethod
    def of(cls, groups: Sequence[Sums], privacy: Privacy | None = None) -> Trials:
        """Of three groups' replies: as they are, or in parts of the bound that privacy has."""
        if privacy is None:  # "trained" says the same of all devices that have anything to say
            plain = [{name: rows for name, rows in sums.items() if name != "trained"} for sums in groups]
            return cls(*(np.concatenate([rows.reshape(len(rows), -1) for rows in s.values()], axis=1) for s in plain))
        scale = PRIVACY[privacy.mode].scale(privacy)
        return cls(*(packed(privacy, sums, privacy.update_bound, scale) / scale for sums in groups))

    def single(self, devices: int, seed: int = 0) -> Scores:
        """On single updates: is any of them the user's own?"""
        away = np.empty(len(self.users))
        for i, (user, cohort) in enumerate(zip(self.users, self._drawn(devices, seed), strict=True)):
            away[i] = -np.sqrt(((self.pool[cohort] - user) ** 2).sum(axis=1).min())
        return Scores(away, np.zeros_like(away))  # where the user took part, nothing is nearer than their own

    def sums(self, devices: int, noise: Noise | None = None, seed: int = 0) -> Scores:
        """On the sum of a cohort: by an attacker who has simulated such users, but knows none of the others' clicks."""
        seen = np.stack([self.pool[cohort].sum(axis=0) for cohort in self._drawn(devices, seed)])
        mean, covariance = self.simulated.mean(axis=0), np.cov(self.simulated.T) * devices
        if noise is not None:
            seen += noise.drawn
            covariance += noise.variance * np.eye(len(mean))
        precision = np.linalg.pinv(covariance, rcond=_SMALLEST, hermitian=True)
        return _ratios(self.users, seen - devices * mean, self.users @ precision)

    def noise_alone(self, noise: Noise) -> Scores:
        """On a sum with noise: by an attacker who knows the clicks of all others, whoever and how many they are."""
        return _ratios(self.users, noise.drawn, self.users / noise.variance)

    def _drawn(self, devices: int, seed: int) -> Iterator[Int64s]:
        random = generator(seed, Purpose.COHORT, devices)
        return (random.integers(len(self.pool), size=devices) for _ in self.users)


def _ratios(users: Float64s, seen: Float64s, directions: Float64s) -> Scores:
    """Log likelihood ratios of normal distributions with the means 0 and v, where directions are v times precision."""
    half = (users * directions).sum(axis=1) / 2
    away = (seen * directions).sum(axis=1) - half
    return Scores(away, away + 2 * half)


@dataclass(frozen=True)
class Row:
    """An attack of the table: what the server sees, who attacks, what came out, and what ε allows."""

    sees: str
    knows: str
    scores: Scores
    epsilon: float | None = None
    delta: float = 0.0

    def __str__(self) -> str:
        cells = [self.sees, self.knows, *(f"{value:.3f}" for value in (self.scores.area, self.scores.advantage))]
        cells += [f"{self.scores.found(share):.1%}" for share in (0.01, 0.001)]
        if self.epsilon is None:
            return f"| {' | '.join([*cells, '', ''])} |"
        most = allowed_advantage(self.epsilon, self.delta)
        at = float(allowed(self.epsilon, self.delta, np.array([0.01]))[0])
        return f"| {' | '.join([*cells, f'{most:.3f}', f'{at:.1%}'])} |"


def without_noise(data: Splits, trials: int = TRIALS, pool: int = POOL) -> list[Row]:
    """Attacks on single updates and on plain sums."""
    rows = []
    for sends, propensity in (("updates", "known"), ("updates and estimates", "shrunk")):
        tried = Trials.of(replies(SETTINGS.but({"propensity": propensity}), data, [trials, pool, pool]))
        if propensity == "known":
            rows.append(Row("single updates of 1,000 devices", "nothing", tried.single(1000)))
        rows += [Row(f"sum of {devices:,} {sends}", _ALIKE, tried.sums(devices)) for devices in COHORTS]
        ten = sum((tried.sums(100, seed=seed) for seed in range(1, 10)), tried.sums(100))
        rows.append(Row(f"sums of 100 {sends}, in 10 rounds", _ALIKE, ten))
    return rows


def with_noise(data: Splits, mode: str, trials: int = TRIALS, pool: int = POOL) -> list[Row]:
    """Attacks on sums with noise, for every ε: by who knows all others, and by who has simulated such users."""
    groups, rows = replies(SETTINGS, data, [trials, pool, pool]), []
    bound = 0.7 * float(np.median(np.linalg.norm(groups[1]["update"], axis=1)))
    for epsilon in EPSILONS:
        wanted = Privacy(mode, epsilon=epsilon, population=_POPULATION, update_bound=bound)
        privacy = settled(wanted, cohort=_PRIVATE, rounds=_ROUNDS, size=data.train.width)
        tried, delta = Trials.of(groups, privacy), delta_of(privacy)
        noise = Noise.of(privacy, trials, data.train.width)
        sees = f"sum of {_PRIVATE} updates, {mode} noise, ε = {epsilon:g}"
        rows.append(Row(sees, _ALL, tried.noise_alone(noise), epsilon, delta))
        rows.append(Row(sees, _ALIKE, tried.sums(_PRIVATE, noise), epsilon, delta))
    return rows


def draw(plain: Sequence[Row], noised: Sequence[Row], shared: Sequence[Row]) -> Figure:
    """True against false positives without and with noise, and the advantage against ε; bounds are dashed.

    Args:
        plain: without noise.
        noised: with the server's noise.
        shared: with noise that devices add.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from fultr.core.drawing import PALETTE, STYLE

    ground = np.geomspace(_FALSE[0], 1, 200)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 3.7), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        shown = [row for row in plain if "estimates" not in row.sees and "rounds" not in row.sees]
        for row, colour in zip(shown, ("black", "vermillion", "orange", "purple"), strict=True):
            left.plot(*_steps(row.scores), color=PALETTE[colour], label=row.sees)
        left.set_title("no noise; knows what such users do", loc="left")
        drawn = [row for row in noised if row.knows == _ALL and row.epsilon in (1, 2, 4)]
        for row, colour in zip(drawn, ("blue", "green", "sky"), strict=True):
            assert row.epsilon is not None
            middle.plot(*_steps(row.scores), color=PALETTE[colour], label=f"ε = {row.epsilon:g}")
            bound = allowed(row.epsilon, row.delta, ground)
            middle.plot(ground, bound, color=PALETTE[colour], linestyle="--", label=f"bound, ε = {row.epsilon:g}")
        middle.set_title("gaussian noise; knows all other devices' clicks", loc="left")
        for axes in (left, middle):
            axes.plot(ground, ground, color=PALETTE["grey"], linestyle=":", label="guessing")
            axes.set(xscale="log", yscale="log", xlim=(_FALSE[0], 1), ylim=(_FALSE[0], 1.2), xlabel="false positives")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_ticks([0.001, 0.01, 0.1, 1], ["0.1%", "1%", "10%", "100%"])
            axes.minorticks_off()
            axes.legend(frameon=False, loc="lower right", fontsize=7)
        left.set_ylabel("true positives")
        epsilons = np.geomspace(EPSILONS[0], EPSILONS[-1], 100)
        most = [allowed_advantage(epsilon, noised[0].delta) for epsilon in epsilons]
        right.plot(epsilons, most, color=PALETTE["blue"], linestyle="--", label="bound")
        [alike] = [row.scores.advantage for row in shown if f"sum of {_PRIVATE} " in row.sees]
        right.axhline(alike, color=PALETTE["orange"], label="no noise; knows such users")
        looks = (
            (noised, _ALL, "black", "o", "gaussian; knows all others"),
            (shared, _ALL, "grey", "s", "distributed; knows all others"),
            (noised, _ALIKE, "vermillion", "^", "gaussian; knows such users"),
        )
        for rows, knows, colour, marker, label in looks:
            points = [(row.epsilon, row.scores.advantage) for row in rows if row.knows == knows]
            right.plot(*zip(*points, strict=True), color=PALETTE[colour], marker=marker, linewidth=1, label=label)
        right.set(xscale="log", ylim=(0, 1.45), yticks=np.linspace(0, 1, 6), xlabel="ε per device, for all rounds")
        right.set_ylabel("advantage: true minus false positives")
        right.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        right.minorticks_off()
        right.set_title(f"sums of {_PRIVATE} updates", loc="left")
        right.legend(frameon=False, loc="upper left", fontsize=7)
    return figure


def _steps(scores: Scores) -> tuple[Float64s, Float64s]:
    """A curve for logarithmic axes: from false positives of about ten trials up, below which there is only chance."""
    false = np.geomspace(max(10 / scores.away.size, _FALSE[0]), 1, 200, endpoint=False)
    return np.r_[false, 1.0], np.array([*map(scores.found, false), 1.0])


def main(path: Path | None) -> None:
    """Print the table, and draw the figure if it is given a file."""
    from fultr.core.drawing import rendered

    data = load(DATA)
    plain, noised = without_noise(data), with_noise(data, "gaussian")
    shared = with_noise(data, "distributed", trials=TRIALS // 5)
    print("| the server sees | attacker knows | area | advantage | at 1% | at .1% | advantage allowed | at 1% |")
    print("|---|---|---|---|---|---|---|---|", *plain, *noised, *shared, sep="\n")
    excess = [row.scores.excess(row.epsilon, row.delta) for row in (*noised, *shared) if row.epsilon is not None]
    print(f"largest excess over the bound: {max(excess):.1f} standard errors")
    if path is not None:
        with written_whole(path) as temporary:
            temporary.write_bytes(rendered(draw(plain, noised, shared), "png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
