"""The settings of a run; a module of settings alone, quick to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.checks import SettingError, check_number
from fultr.core.settings import build, changed, check, either, flatten, leaves, setting
from fultr.federated.combining import check_summable
from fultr.federated.recommended import recommended, recommended_refresh
from fultr.federated.settings import FedIPS, check_ranks
from fultr.rankers.settings import LambdaLinear


@dataclass(frozen=True)
class FreshUsers:
    """Every round has new users, whose queries come from the whole training set (the paper's setting)."""


@dataclass(frozen=True)
class FiniteUsers:
    """A fixed population from which each round samples a cohort.

    Each user keeps one bias severity and one pool of queries, distinct ones unless the user's clusters have too few.
    Queries are clustered by the mean of their documents' features (k-means); a user's shares of the clusters are drawn
    from a Dirichlet distribution whose parameters add up to `concentration` times the number of clusters, in proportion
    to the clusters' sizes. A small concentration gives users who care for one or two clusters each, a large one gives
    users who are all alike.

    Where the data say who asked each query (AOL4FOLTR), the users are these, drawn without replacement, and a pool
    holds queries that its user asked: `clusters` and `concentration` make no difference. If there are fewer of them
    than `users`, all are taken, and then again; a user with fewer queries than `pool` has them several times.

    A cohort has exactly `clients` users, drawn "uniform"ly without replacement; or each user takes part independently
    of the others with probability `clients / users` ("poisson"), and the average update is the sum over `clients`, the
    expected size.
    """

    users: int = setting(10_000, "Users of a fixed population.", least=1)
    pool: int = setting(50, "Queries in each user's pool.", least=1)
    clusters: int = setting(20, "Clusters of the query space.", least=1)
    concentration: float = setting(0.1, "Small: each user asks about a few clusters; large: users are alike.", above=0)
    sampling: Literal["uniform", "poisson"] = setting(
        "uniform", "A round has a fixed number of users, or each takes part independently."
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class PolicySettings:
    """How the logging policy is trained, by SGD on at least one query."""

    policy_fraction: float = setting(
        0.01, "Share of the training queries that the logging policy sees.", above=0, most=1
    )
    policy_epochs: int = setting(50, "Passes of the logging policy's training over them.", least=0)
    policy_batch: int = setting(16, "Queries in a step of the logging policy's training.", least=1)
    policy_rate: float = setting(0.1, "Learning rate of the logging policy.", above=0)
    policy_initial: Literal["zero", "random"] = setting(
        "random", "Weights that the logging policy starts from; random: from a standard Gaussian."
    )
    policy_reduction: Literal["sum", "mean"] = setting(
        "sum", "The logging policy's loss of a query is the sum or the mean over its pairs."
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Adversaries:
    """Clients that attack the ranker.

    Attributes:
        share: each client is one with this probability.
        attack: "flip", minus the client's own update; "collude", minus the sum of all adversaries' updates, which is
            the same direction for all of them.
        strength: the norm that it is scaled to.
    """

    share: float = setting(0.2, "Share of clients that are adversaries.", above=0, most=1)
    attack: Literal["flip", "collude"] = setting(
        "flip", "flip: each sends its own update negated; collude: all send the negated sum of theirs."
    )
    strength: float | None = setting(None, "Norm of what an adversary sends.", above=0, zero="that of its own update")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Showing:
    """How what users are shown changes in the course of training.

    Attributes:
        refresh: after every so many rounds the ranker becomes the logging policy of the next ones, in the place of the
            oldest version in use; None: never, as in the paper.
        exploration: each client is shown, for each of its queries in a round, the "plackett-luce" order, sampled
            without replacement with probabilities in proportion to exp(score / temperature), over all documents of the
            query; or, of what is displayed, neighbouring "pairs" from rank 1 or from rank 2 on, at random, each in
            random order (Radlinski and Joachims 2006). With "none", the same for all.
        temperature: of the Plackett-Luce distribution, as a multiple of the standard deviation of the query's scores.
    """

    refresh: int | None = setting(
        None, "Rounds after which the ranker becomes the logging policy.", least=1, zero="never"
    )
    exploration: Literal["none", "plackett-luce", "pairs"] = setting(
        "none", "How what is displayed differs from client to client."
    )
    temperature: float = setting(
        0.3, "Temperature of plackett-luce, in standard deviations of a query's scores.", above=0
    )

    def __post_init__(self) -> None:
        check(self)


def check_sums(algorithm: FedIPS, secure_sums: bool, dropouts: float) -> None:
    """Refuse what does not go with secure sums, or without.

    >>> check_sums(FedIPS(), secure_sums=False, dropouts=0.1)
    Traceback (most recent call last):
    fultr.core.checks.SettingError: dropouts: expected 0 without secure_sums, found 0.1
    """
    check_number("dropouts", dropouts, least=0, below=1)
    if secure_sums:
        check_summable(algorithm.aggregation)
    elif dropouts:
        raise SettingError("dropouts", f"expected 0 without secure_sums, found {dropouts:g}")


Algorithm = Literal["federated", "lambda-linear", "lightgbm", "logging-policy", "random-ranking"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


@dataclass(frozen=True)
class RunSettings:
    """What a run depends on, besides the data and the seed.

    Attributes:
        algorithm: "federated" (FedIPS; with propensity "none" FedAvg), "lambda-linear" (λLinear), or to compare with:
            "lightgbm", LambdaMART on all grades, the "logging-policy" itself, or a "random-ranking".
        fedips: the algorithm of a federated run.
        click_model: how users examine and click.
        sessions: how many queries and clicks a client has.
        population: a fixed population; None: new users every round.
        adversaries: clients that attack; None: there are none.
        policy: how the logging policy is trained.
        lambda_linear: how λLinear is trained.
        clients: |U|.
        rounds: T.
        displayed: K.
        policies: versions of the logging policy.
        showing: how what users are shown changes.
        secure_sums: are clients added up as devices are in secure sums, in whole numbers?
        dropouts: share of the clients of such a sum that drop out of it, by chance.
        evaluate_every: rounds between two points of the curve.
        k: NDCG@k.

    >>> RunSettings.of({"gamma": 2, "propensity": "none", "rounds": 100}).click_model.gamma
    2.0
    >>> RunSettings.of({"client_rat": 0.1})
    Traceback (most recent call last):
    fultr.core.checks.UnknownNameError: unknown setting 'client_rat'; did you mean client_rate?
    """

    algorithm: Algorithm = setting("federated", "What is trained: FedIPS, or something to compare it with.")
    fedips: FedIPS = FedIPS()
    click_model: ClickModel = ClickModel()
    sessions: Sessions = Sessions()
    population: FiniteUsers | None = either(
        None, "Users of a fixed population.", FiniteUsers, "users", name="users", zero="new users every round"
    )
    adversaries: Adversaries | None = either(
        None, "Share of clients that are adversaries.", Adversaries, "share", name="adversaries", zero="none"
    )
    policy: PolicySettings = PolicySettings()
    lambda_linear: LambdaLinear = LambdaLinear()
    clients: int = setting(2000, "Clients in a round, |U|.", least=1)
    rounds: int = setting(500, "Rounds, T.", least=1)
    displayed: int = setting(5, "Documents displayed for a query, K.", least=1, most=1000)
    policies: int = setting(1, "Versions of the logging policy, in use at random.", least=1, most=1000)
    showing: Showing = Showing()
    secure_sums: bool = setting(False, "Clients are added up as in secure sums: in whole numbers.")
    dropouts: float = setting(0.0, "Share of the clients that drop out of a secure sum.", least=0, below=1)
    evaluate_every: int = setting(10, "Rounds between two points of the curve.", least=1)
    k: int = setting(5, "Cutoff of NDCG@k.", least=1)

    def __post_init__(self) -> None:
        check(self)
        check_ranks(self.fedips.training, self.fedips.propensity, self.displayed)
        check_sums(self.fedips, self.secure_sums, self.dropouts)
        if self.population is not None:
            check_number("clients", self.clients, most=self.population.users, whole=True)

    @classmethod
    def of(cls, given: Mapping[str, object]) -> RunSettings:
        """From names and values as experiment files have them; the others have their defaults."""
        return build(cls, given)

    @classmethod
    def recommended(cls, rounds: int = 200, model: str = "linear") -> RunSettings:
        """A run with the recommended algorithm, whose ranker takes the logging policy's place on the way.

        >>> RunSettings.recommended(300, "random-trees").showing.refresh
        10
        """
        showing = Showing(recommended_refresh(rounds))
        return cls(fedips=recommended(rounds, model=model), showing=showing, rounds=rounds)

    def but(self, given: Mapping[str, object]) -> RunSettings:
        """The same with other values of some settings.

        >>> RunSettings(rounds=10).but({"gamma": 2.0, "propensity": "shrunk"}).fedips.propensity.kind
        'shrunk'
        """
        return changed(self, given)

    def relevant(self) -> dict[str, Any]:
        """The settings that make a difference to a run of this algorithm; two runs that agree in them are the same."""
        every = flatten(self)
        names = {
            "federated": every.keys() - leaves(LambdaLinear).keys(),
            "lambda-linear": {*leaves(LambdaLinear), "k"},
            "lightgbm": {"k"},
            "logging-policy": {*leaves(PolicySettings), "k"},
            "random-ranking": {"k"},
        }[self.algorithm]
        return {name: value for name, value in every.items() if name == "algorithm" or name in names}
