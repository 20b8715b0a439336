"""The settings of FedIPS; a module of settings alone, quick to import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from fultr.core.checks import SettingError, number_fits, written
from fultr.core.settings import check, either, setting
from fultr.federated.combining import Aggregation, StageSettings, check_aggregation
from fultr.federated.credit import CLIP_RULES, CREDITS
from fultr.federated.estimators import ESTIMATORS, WITH_CONSTANTS, WITH_RELEVANCE
from fultr.federated.optimisers import OPTIMISERS, USUAL_RATES
from fultr.federated.privacy.settings import Privacy
from fultr.rankers.losses import BOUND_NO_RANK, LOSSES
from fultr.rankers.model import TREES, ModelSettings, model_setting

Propensity: TypeAlias = Literal["known", "none"] | tuple[float, ...]
"""What clicks are divided by, where that is not estimated.

"known": each user's own examination probabilities, as the paper assumes. "none": 1 for every rank, which makes FedIPS
the FedAvg baseline. Numbers: the same given propensities, one per rank, for every client.
"""


RATE_OF_A_FEATURE = 0.64
"""What `LocalTraining.rate_for` divides by the number of features."""

LEAST_CONTRAST = 0.01
"""By how much clicks on relevant documents must be more likely than on others: affine credit divides by it."""


def _each_rank(numbers: tuple[float, ...], ranks: int) -> tuple[float, ...]:
    return numbers * ranks if len(numbers) == 1 else numbers


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains.

    Attributes:
        client_rate: eta_l; None: by the number of features, see `rate_for`.
        loss: what bounds "d' ranks above d": "hinge", max(0, 1 - x), or "logistic", log2(1 + exp(-x)), x being the
            score of d minus the score of d'. Both are 1 at x = 0 and at least 1 below. Or "softmax", minus the
            logarithm of the clicked document's share of exp(score), or "lambda-pairs", logistic losses weighted by
            what swapping d and d' would change of DCG; these bound no rank.
        metric: the additive metric g of Eq. 2 that is optimised: "rank", g(r) = r (the paper's), or "dcg",
            g(r) = -1 / log2(1 + r). As 1 + h bounds the rank of d, g(1 + h) bounds g(rank) for both, and a
            step's gradient is g'(1 + h) times the gradient of h.
        clip: weights of clicks above this count as this; None: no clipping, which keeps the estimate unbiased.
        epochs: passes over the log.
        credit: what a click is worth, and what a document that was not clicked. "ips", 1 / propensity; "none", 1,
            whatever the propensity; "affine", (c - beta) / alpha, which undoes click noise and trust; "policy-aware",
            1 / mean propensity over the versions of the logging policy; "doubly-robust", IPS with what the clip takes
            away put back by the estimator's relevance function; "self-normalised", IPS that is 1 on average over each
            client's clicks.
        clip_rule: "given": by `clip`; or the server chooses one that is at most that: "last-rank", 1 / (mean propensity
            of rank K), or "effective", the largest with which clicks have an effective sample size of half of their
            number.
        credit_other: probability of a click on a document that is examined and not relevant, as affine credit has it:
            one number, or one per rank.
        credit_relevant: likewise on one that is relevant.
    """

    client_rate: float | None = setting(
        0.01, "Learning rate of clients, eta_l.", above=0, zero=f"{RATE_OF_A_FEATURE:g} / number of features"
    )
    loss: str = setting("hinge", "Loss of a clicked document among those it is compared with.", choices=LOSSES)
    metric: Literal["rank", "dcg"] = setting("rank", "Additive metric that the loss bounds.")
    clip: float | None = setting(None, "Largest weight of a click.", above=0, zero="no limit")
    epochs: int = setting(1, "Passes of a client over its log.", least=1)
    credit: str = setting(
        "ips", "What a click is worth: 1 / propensity (ips), 1 (none); others: docs/learning-more.md.", choices=CREDITS
    )
    clip_rule: str = setting("given", "The clip is as given, or chosen from the clients' sums.", choices=CLIP_RULES)
    credit_other: tuple[float, ...] = setting(
        (0.1,),
        "Clicks on an examined document that is not relevant, one number or one per rank (affine).",
        least=0,
        most=1,
    )
    credit_relevant: tuple[float, ...] = setting(
        (1.0,), "Clicks on an examined document that is relevant, one number or one per rank (affine).", above=0, most=1
    )

    def __post_init__(self) -> None:
        check(self)
        ranks = max(len(self.credit_other), len(self.credit_relevant))
        for name in ("credit_other", "credit_relevant"):
            if len(getattr(self, name)) not in (1, ranks):
                raise SettingError(name, f"expected 1 or {ranks} numbers, found {len(getattr(self, name))}")
        pairs = zip(_each_rank(self.credit_other, ranks), _each_rank(self.credit_relevant, ranks), strict=True)
        for rank, (other, relevant) in enumerate(pairs, start=1):
            if relevant - other < LEAST_CONTRAST:
                found = f"{written(other)} and {written(relevant)} at rank {rank}"
                raise SettingError(
                    "credit_other", f"expected to be below credit_relevant by {LEAST_CONTRAST:g} or more; found {found}"
                )
        if self.metric == "dcg" and self.loss in BOUND_NO_RANK:
            raise SettingError("metric", f"expected rank with the {self.loss} loss, which bounds no rank; found dcg")

    def rate_for(self, features: int) -> float:
        """eta_l for documents with this many features.

        A step along x moves the score of x by the rate times its squared length, which grows with the number of
        features where these are scaled to [0, 1]; dividing by it makes steps alike for any number (normalised least
        mean squares, Nagumo and Noda 1967).

        >>> LocalTraining(None).rate_for(64), LocalTraining(0.1).rate_for(64)
        (0.01, 0.1)
        """
        return RATE_OF_A_FEATURE / features if self.client_rate is None else self.client_rate


@dataclass(frozen=True)
class ServerOptimiser:
    """How the server turns the average update Delta into the next weights.

    Attributes:
        server: "sgd", w + eta_g Delta, is the paper's; "momentum" is FedAvgM (Hsu et al. 2019), m <- beta1 m + Delta,
            w + eta_g m; "adagrad", "adam" and "yogi" are FedAdagrad, FedAdam and FedYogi (Reddi et al. 2021,
            Algorithm 2; FedAdagrad without momentum, none with bias correction).
        server_rate: eta_g; None: the optimiser's own, see `rate`.
        beta1: decay of the average of updates (momentum, adam, yogi).
        beta2: decay of the average of squared updates (adam, yogi).
        tau: degree of adaptivity: added to the root of the squared updates, which start at tau squared.
        decay_rounds: round t, from 0, has the rate eta_g (1 - t / decay_rounds), and those after the last none.
        decay: that is "linear"; "cosine" is eta_g (1 + cos(pi t / decay_rounds)) / 2.
        weight_decay: the weights are multiplied by 1 - rate x this in every round, rate being eta_g or what is left of
            it, before the update is added (decoupled from the optimiser: Loshchilov and Hutter 2019). The server does
            it, not the clients: it needs no clicks, costs no privacy, and a client's update stays what its clicks say.
        averaged: the ranker is a mean of the weights after each round, those after round t with the weight
            t ** (2 / averaged - 2), which is as old as a mean over this share of the rounds (1: all of them). It needs
            no number of rounds beforehand (Shamir and Zhang 2013). Clients train from the last weights all the same.
    """

    server: str = setting("sgd", "Server optimiser.", choices=OPTIMISERS)
    server_rate: float | None = setting(
        None,
        "Learning rate of the server, eta_g.",
        above=0,
        zero=", ".join(f"{rate:g} ({name})" for name, rate in USUAL_RATES.items()),
    )
    beta1: float = setting(0.9, "Decay of the average of updates (momentum, adam, yogi).", least=0, below=1)
    beta2: float = setting(0.99, "Decay of the average of squared updates (adam, yogi).", least=0, below=1)
    tau: float = setting(0.001, "Degree of adaptivity (adagrad, adam, yogi).", above=0)
    decay_rounds: int | None = setting(
        None, "Rounds over which the server's rate falls to zero.", least=1, zero="it stays"
    )
    decay: Literal["linear", "cosine"] = setting("linear", "How the server's rate falls.")
    weight_decay: float = setting(0.0, "Share of the weights taken off in a round, times the server's rate.", least=0)
    averaged: float | None = setting(
        None,
        "The ranker is the mean over this last share of the rounds.",
        above=0,
        most=1,
        zero="the last weights",
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def rate(self) -> float:
        """eta_g.

        >>> ServerOptimiser().rate, ServerOptimiser("adam").rate, ServerOptimiser("adam", 0.1).rate
        (1.0, 0.03, 0.1)
        """
        return USUAL_RATES[self.server] if self.server_rate is None else self.server_rate


@dataclass(frozen=True)
class Estimator:
    """How examination is estimated.

    Attributes:
        kind: docs/estimating.md says why "shrunk" is the default.
        estimate_rate: of the server optimiser of F, which is Adam.
        estimate_start: examination of every rank below the first, before anything is known.
        estimate_iterations: of EM on a client ("personal").
        estimate_floor: estimates below this count as this: the largest weight of a click is 1 / floor.
        cross_fit: estimate on one half of a client's impressions and reweight the other, and the other way round, so
            that no click is divided by an estimate that it has a share in.
        estimate_memory: the server's sums of marginal likelihoods and of pairs of ranks are multiplied by this in every
            round.
        remember: a client that comes back still knows what it counted; fresh users remember nothing.
        estimate_decay: as `decay_rounds` of the server, for F.
    """

    kind: str = setting("shrunk", "Estimator.", choices=ESTIMATORS)
    estimate_rate: float = setting(0.03, "Learning rate of the estimator's relevance function.", above=0)
    estimate_start: float = setting(0.5, "Examination below rank 1 before anything is known.", above=0, most=1)
    estimate_iterations: int = setting(10, "Iterations of EM on a client (personal).", least=1, most=10_000)
    estimate_floor: float = setting(0.01, "Smallest estimate of examination.", above=0, most=1)
    cross_fit: bool = setting(False, "Estimate on one half of a client's log, reweight the other.")
    estimate_memory: float = setting(
        0.9, "Share of the server's sums that is kept from round to round.", least=0, below=1
    )
    remember: bool = setting(False, "Clients that come back keep what they counted before.")
    estimate_decay: int | None = setting(
        None, "Rounds over which the rate of the relevance function falls to zero.", least=1, zero="it stays"
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def constants(self) -> bool:
        """Does it estimate the constants of affine credit, too?"""
        return self.kind in WITH_CONSTANTS

    @property
    def relevance(self) -> ServerOptimiser:
        """The server optimiser of the relevance function F."""
        return ServerOptimiser("adam", self.estimate_rate, decay_rounds=self.estimate_decay)


def propensity_setting(default: Any, named: tuple[str, ...], without: tuple[str, ...] = ()) -> Any:
    """Declare what clicks are divided by: an estimator, one of some names, or one number per rank.

    Args:
        default: if nothing is said.
        named: what there is beside estimators.
        without: the settings of `Estimator` that do not apply.
    """
    names = (*named, *ESTIMATORS)
    said = ", ".join(f"{name} (FedAvg)" if name == "none" else name for name in named)
    return either(
        default,
        f"What clicks are divided by: {said}, one number per rank (1,0.5,...), or estimated from the clicks: "
        f"{', '.join(ESTIMATORS)}.",
        Estimator,
        "kind",
        name="propensity",
        reads=_propensity_of(names),
        expected=f"one of {', '.join(names)}, or one number per rank",
        without=without,
    )


def _propensity_of(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """Reads one of some names, or numbers in a list or with commas between them."""

    def read(value: Any) -> Any:
        if isinstance(value, str):
            if value in names:
                return value
            value = [float(part) for part in value.split(",")]
        if isinstance(value, Mapping | Set) or not isinstance(value, Iterable):
            raise ValueError
        given = tuple(value)
        if not given or not all(number_fits(number, whole=False) for number in given):
            raise ValueError
        for rank, number in enumerate(given, start=1):
            if not 0 < number <= 1:
                found = f"{written(number)} at rank {rank}"
                raise SettingError("propensity", f"expected numbers above 0, at most 1; found {found}")
        return tuple(float(number) for number in given)

    return read


def check_propensity(source: Propensity, ranks: int) -> None:
    """Refuse given propensities that are not one per rank.

    >>> check_propensity((1.0, 0.5), ranks=3)
    Traceback (most recent call last):
    fultr.core.checks.SettingError: propensity: expected 3 numbers, one per displayed rank; found 2
    """
    if not isinstance(source, str) and len(source) != ranks:
        raise SettingError("propensity", f"expected {ranks} numbers, one per displayed rank; found {len(source)}")


def check_ranks(training: LocalTraining, source: Propensity | Estimator, ranks: int) -> None:
    """Refuse given propensities, and constants of affine credit, that are not one per rank.

    >>> check_ranks(LocalTraining(credit_other=(0.3, 0.1)), "known", ranks=3)
    Traceback (most recent call last):
    fultr.core.checks.SettingError: credit_other: expected 1 or 3 numbers, one per displayed rank; found 2
    """
    if not isinstance(source, Estimator):
        check_propensity(source, ranks)
    for name in ("credit_other", "credit_relevant"):
        found = len(getattr(training, name))
        if found not in (1, ranks):
            raise SettingError(name, f"expected 1 or {ranks} numbers, one per displayed rank; found {found}")


def check_credit(training: LocalTraining, source: Propensity | Estimator) -> None:
    """Refuse a kind of credit without what it is made from.

    >>> check_credit(LocalTraining(credit="doubly-robust", clip=5), Estimator("harvested"))
    Traceback (most recent call last):
    fultr.core.checks.SettingError: credit: doubly-robust needs an estimator with a relevance function: ...
    """
    if training.credit != "doubly-robust":
        return
    if not isinstance(source, Estimator) or source.kind not in WITH_RELEVANCE:
        raise SettingError(
            "credit", f"doubly-robust needs an estimator with a relevance function: {', '.join(WITH_RELEVANCE)}"
        )
    if training.clip is None and training.clip_rule == "given":
        raise SettingError("credit", "doubly-robust needs a clip, or a clip_rule: without one it is the same as ips")


def check_model(model: ModelSettings, server: ServerOptimiser, normalised: bool) -> None:
    """Refuse what trees cannot go with: they split values from 0 to 1, and grow on top of the weights themselves.

    >>> check_model(ModelSettings("random-trees"), ServerOptimiser(averaged=0.5), normalised=True)
    Traceback (most recent call last):
    fultr.core.checks.SettingError: averaged: expected none with random-trees, which grow on the last weights
    """
    if model.kind in TREES and server.averaged is not None:
        raise SettingError("averaged", f"expected none with {model.kind}, which grow on the last weights")
    if model.kind in TREES and not normalised:
        raise SettingError("model", f"expected features scaled to [0, 1] within each query for {model.kind}")


@dataclass(frozen=True)
class FedIPS:
    """The algorithm: local training, server optimiser, and what the paper leaves open.

    Attributes:
        training: what each client does, eta_l included.
        server: what the server does, eta_g included.
        propensity: what clicks are divided by: "known", "none" (which makes it `FedAvg`), one number per rank, or an
            `Estimator`, which estimates it from the clicks; its kind will do, such as "shrunk".
        pairs: the documents D_q that a clicked one is compared with: "displayed" or "retrieved".
        initial: the linear ranker that w_0 ranks like: "zero"; the logging "policy"; "unit-policy", the same order from
            weights of norm 1, which training soon outweighs; or "random" (Gaussian with variance 1 / features).
        average_over: the sum of updates is divided by the size of the "cohort", clients without clicks included, as in
            the paper; or by the number of "repliers", the clients that had a click.
        model: what the weights mean; the model's name will do.
        stage: what happens to replies between client and server.
        aggregation: how the server combines replies.

    >>> FedIPS(propensity="guess")
    Traceback (most recent call last):
    fultr.core.checks.SettingError: propensity: expected one of known, none, personal, pooled, shrunk, power-law, ...
    """

    training: LocalTraining = LocalTraining()
    server: ServerOptimiser = ServerOptimiser()
    propensity: Propensity | Estimator = propensity_setting("known", ("known", "none"))
    pairs: Literal["displayed", "retrieved"] = setting("displayed", "Documents that a clicked one is compared with.")
    initial: Literal["zero", "policy", "unit-policy", "random"] = setting(
        "zero", "Weights that training starts from, w_0."
    )
    average_over: Literal["cohort", "repliers"] = setting(
        "cohort", "Updates are averaged over all clients of the round, or over those with a click."
    )
    model: ModelSettings = model_setting()
    stage: StageSettings = StageSettings()
    aggregation: Aggregation = Aggregation()

    def __post_init__(self) -> None:
        check(self)
        check_model(self.model, self.server, normalised=True)
        check_aggregation(self.aggregation, self.stage)
        check_credit(self.training, self.propensity)
        if self.stage.privacy != "none" and self.average_over == "repliers":
            raise SettingError("average_over", "expected cohort with privacy: who had a click must not show")

    @property
    def privacy(self) -> Privacy | None:
        """The settings of differential privacy; None without."""
        return self.stage.privacy if isinstance(self.stage.privacy, Privacy) else None


FedAvg = partial(FedIPS, propensity="none")
"""FedIPS without the correction: every click counts 1 (McMahan et al. 2017)."""
