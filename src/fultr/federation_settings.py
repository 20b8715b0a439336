"""The settings of a federation of devices: one flat record, whose names are those of its TOML file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from fultr.checks import check_number
from fultr.client import LocalTraining
from fultr.errors import FultrError
from fultr.estimation import KINDS, Estimator
from fultr.files import written_whole
from fultr.propensity import check_propensity, given_propensity
from fultr.replies import Limits
from fultr.rounds import FedIPS
from fultr.server import ServerOptimiser


@dataclass(frozen=True)
class FederationSettings:
    """What a federation of devices depends on, besides the devices.

    Attributes:
        features: of a document.
        displayed: K, the ranks that count.
        rounds: T.
        cohort: devices asked in a round, drawn at random; 0: all that are connected.
        least_devices: a round begins when so many are connected.
        least_replies: with fewer accepted replies a round is repeated.
        attempts: at a round, before the run is given up.
        timeout: seconds that devices have to reply.
        patience: seconds that the server waits for devices to connect.
        propensity: what clicks are divided by: an estimator ("shrunk", "pooled", "personal", "power-law",
            "harvested"), "none", or one number a rank such as "1,0.5,0.33".
        client_rate: eta_l; loss, metric, clip (0: none) and epochs are those of `LocalTraining`.
        server_rate: eta_g; server, beta1, beta2 and tau are those of `ServerOptimiser`.
        estimate_rate: learning rate of the estimator's relevance function; estimate_start, estimate_iterations,
            estimate_floor, estimate_memory and cross_fit are those of `Estimator`.
        held_out: share of each device's impressions that only judge the ranker.
        least_clicks: a device with fewer sends no update.
        most_counted: devices tell their number of clicks up to this; 0: not at all.
        norm_limit: updates with a larger norm are refused.
        begin: together with period: round t takes the impressions from begin + t x period on, one period long.
            Seconds since 1970.
        period: seconds; 0: every round takes all impressions that a device has.
        normalised: are the features that devices log scaled to [0, 1] within each query? It is noted in the ranker.
        seed: of cohorts and held-out impressions.
    """

    features: int
    displayed: int = 10
    rounds: int = 10
    cohort: int = 0
    least_devices: int = 2
    least_replies: int = 2
    attempts: int = 3
    timeout: float = 60.0
    patience: float = 300.0
    propensity: str = "shrunk"
    client_rate: float = LocalTraining.learning_rate
    server_rate: float = ServerOptimiser.learning_rate
    server: Literal["sgd", "momentum", "adagrad", "adam", "yogi"] = ServerOptimiser.kind
    beta1: float = ServerOptimiser.beta1
    beta2: float = ServerOptimiser.beta2
    tau: float = ServerOptimiser.tau
    loss: Literal["hinge", "logistic"] = LocalTraining.loss
    metric: Literal["rank", "dcg"] = LocalTraining.metric
    clip: float = 0.0
    epochs: int = LocalTraining.epochs
    estimate_rate: float = Estimator.relevance.learning_rate
    estimate_start: float = Estimator.start
    estimate_iterations: int = Estimator.iterations
    estimate_floor: float = Estimator.floor
    estimate_memory: float = Estimator.memory
    cross_fit: bool = Estimator.cross_fit
    held_out: float = 0.2
    least_clicks: int = 1
    most_counted: int = 100
    norm_limit: float = Limits.norm
    begin: float = 0.0
    period: float = 0.0
    normalised: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("features", self.features, least=1, whole=True)
        check_number("displayed", self.displayed, least=1, most=1000, whole=True)
        check_number("rounds", self.rounds, least=1, whole=True)
        check_number("cohort", self.cohort, least=0, whole=True)
        check_number("least_devices", self.least_devices, least=1, whole=True)
        check_number("least_replies", self.least_replies, least=1, whole=True)
        check_number("attempts", self.attempts, least=1, whole=True)
        check_number("timeout", self.timeout, above=0)
        check_number("patience", self.patience, above=0)
        check_number("clip", self.clip, least=0)
        check_number("held_out", self.held_out, least=0, below=1)
        check_number("least_clicks", self.least_clicks, least=0, whole=True)
        check_number("most_counted", self.most_counted, least=0, whole=True)
        check_number("norm_limit", self.norm_limit, above=0)
        check_number("period", self.period, least=0)
        check_number("seed", self.seed, least=0, whole=True)
        if self.cohort and self.cohort < self.least_replies:
            raise FultrError(f"cohort: expected at least least_replies = {self.least_replies}, found {self.cohort}")
        self.algorithm()  # refuses what is wrong in the rest

    def algorithm(self) -> FedIPS:
        """The algorithm that these settings describe."""
        return FedIPS(
            LocalTraining(
                learning_rate=self.client_rate,
                loss=self.loss,
                metric=self.metric,
                clip=self.clip or None,
                epochs=self.epochs,
            ),
            ServerOptimiser(self.server, self.server_rate, self.beta1, self.beta2, self.tau),
            self._propensity(),
        )

    def _propensity(self) -> Any:
        if self.propensity == "none":
            return "none"
        if self.propensity in KINDS:
            return Estimator(
                self.propensity,
                ServerOptimiser("adam", self.estimate_rate),
                self.estimate_start,
                self.estimate_iterations,
                self.estimate_floor,
                self.cross_fit,
                self.estimate_memory,
            )
        given = given_propensity(self.propensity, ("none", *KINDS))
        check_propensity(given, self.displayed)
        return given

    def limits(self) -> Limits:
        """What replies must keep to."""
        return Limits(norm=self.norm_limit)

    def as_mapping(self) -> dict[str, Any]:
        """Every setting by name."""
        return asdict(self)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FederationSettings:
        """From names and values; a name may have hyphens.

        >>> FederationSettings.of({"features": 5, "client-rate": 0.1}).client_rate
        0.1
        >>> FederationSettings.of({"features": 5, "client_rat": 0.1})
        Traceback (most recent call last):
        fultr.errors.FultrError: client_rat: there is no such setting; did you mean client_rate?
        """
        values = {name.replace("-", "_"): value for name, value in given.items()}
        known = {field.name: field for field in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise FultrError(f"{name}: there is no such setting{_nearest(name, known)}")
            values[name] = _as_type(name, value, str(known[name].type))
        if "features" not in values:
            raise FultrError("features: expected the number of a document's features, found nothing")
        return cls(**values)

    @classmethod
    def read(cls, path: str | Path) -> FederationSettings:
        """From a TOML file."""
        text = _text(path)
        try:
            return cls.of(_named(text))
        except FultrError as error:
            raise FultrError(f"{path}: {error}") from None


def fill_in(path: Path, values: Mapping[str, int], *, replace: bool = False, write: bool = True) -> list[str]:
    """Set whole numbers in a settings file, and leave every other line as it is.

    A setting that is there as a comment ("# features = 519") is set in that line, one that is missing in a new line.

    Args:
        path: the TOML file.
        values: the settings, by name.
        replace: take the place of other values; otherwise these are an error, and the file stays as it is.
        write: else only tell what would be set.

    Returns:
        The names of those that were not as they should be.
    """
    text = _text(path)
    try:
        before = _named(text)
    except FultrError as error:
        raise FultrError(f"{path}: {error}") from None
    lines = text.split("\n")
    missing = [name for name, value in values.items() if before.get(name) != value]
    for name in missing:
        top = next((i for i, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines) - (not lines[-1]))
        pattern = rf"(\s*){'' if name in before else '#'}\s*{name.replace('_', '[-_]')}\s*=\s*[^\s#]+(\s*(#.*)?)"
        found = [(i, match) for i, line in enumerate(lines[:top]) if (match := re.fullmatch(pattern, line))]
        if name in before and not replace:
            where = f", line {found[0][0] + 1}" if found else ""
            raise FultrError(
                f"{path}{where}: expected {name} = {values[name]}, found {before[name]}; "
                "change that line, if no log depends on it"
            )
        if found:
            at, match = found[0]
            lines[at] = f"{match[1]}{name} = {values[name]}{match[2]}"
        else:
            lines.insert(top, f"{name} = {values[name]}")
    changed = "\n".join(lines)
    if _named(changed) != {**before, **values}:
        raise FultrError(f"{path}: {', '.join(missing)}: found no place for it; set it by hand")
    if missing and write:
        with written_whole(path) as temporary:
            temporary.write_bytes(changed.encode())
            temporary.chmod(path.stat().st_mode & 0o777)
    return missing


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_bytes().decode()  # with its line ends as they are
    except OSError as error:
        raise FultrError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise FultrError(f"{path}: expected TOML: {error}") from None


def _named(text: str) -> dict[str, Any]:
    """What TOML says, by names without hyphens."""
    try:
        return {name.replace("-", "_"): value for name, value in tomllib.loads(text).items()}
    except tomllib.TOMLDecodeError as error:
        raise FultrError(f"expected TOML: {error}") from None


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _as_type(name: str, value: Any, kind: str) -> Any:
    """The value, if it is of the setting's type; whole numbers will do where any number is asked for."""
    if kind == "float" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind not in ("float", "int", "bool") and isinstance(value, str):
        return value
    words = {"float": "a number", "int": "a whole number", "bool": "true or false"}
    raise FultrError(f"{name}: expected {words.get(kind, 'a text')}, found {value!r}")
