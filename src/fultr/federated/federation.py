"""The settings of a federation, and the TOML file that they stand in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fultr.core.checks import SettingError, written
from fultr.core.errors import FultrError
from fultr.core.files import written_whole
from fultr.core.settings import REQUIRED, build, check, flatten, leaves, setting
from fultr.core.settings_file import plain_names, read_settings
from fultr.core.toml import parse_toml, read_text
from fultr.federated.combining import Aggregation, StageSettings, check_aggregation, check_summable
from fultr.federated.privacy.settings import Privacy
from fultr.federated.settings import (
    Estimator,
    FedIPS,
    LocalTraining,
    Propensity,
    ServerOptimiser,
    check_credit,
    check_model,
    check_ranks,
    propensity_setting,
)
from fultr.rankers.model import ModelSettings, model_setting
from fultr.rankers.schema import schema_digest, schema_text


@dataclass(frozen=True)
class Waiting:
    """How patient the server is; none of it changes what a round that succeeds comes to."""

    least_devices: int = setting(2, "A round begins when this many devices are connected.", least=1)
    least_replies: int = setting(2, "With fewer accepted replies a round is repeated.", least=1)
    attempts: int = setting(3, "Attempts at a round, before the run is given up.", least=1)
    timeout: float = setting(60.0, "Seconds that devices have to reply.", above=0)
    patience: float = setting(300.0, "Seconds that the server waits for devices to connect.", above=0)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Replay:
    """Rounds that take one period of logs each: round t begins at begin + t x period, t from 0.

    For logs on one's own machine: what a device of others trains on is for that device to say.

    Attributes:
        begin: of the first period, in seconds since 1970.
        period: seconds.
    """

    begin: float
    period: float

    def span(self, t: int) -> tuple[float, float]:
        """From when to when the impressions of round t are.

        >>> Replay(begin=100.0, period=10.0).span(2)
        (120.0, 130.0)
        """
        since = self.begin + t * self.period
        return since, since + self.period


@dataclass(frozen=True)
class FederationSettings:
    """What a federation of devices depends on, besides the devices.

    Attributes:
        features: of a document.
        feature_names: in the order of the devices' logs, separated by commas; empty: they have none.
        displayed: K, the ranks that count.
        rounds: T.
        cohort: devices asked in a round, drawn at random; 0: all that are connected.
        waiting: how patient the server is.
        propensity: what clicks are divided by: an `Estimator`, "none", or one number per rank.
        training: what each device does.
        server: what the server does.
        aggregation: how it combines what devices send.
        judge: are devices asked to judge the ranker by impressions that they keep from training?
        norm_limit: of an update: one with a larger norm is refused.
        normalised: are the features that devices log scaled to [0, 1] within each query?
        stage: what happens to replies between device and server.
        secure_sums: does the server see only the sum of what devices send?
        model: what the ranker's weights mean.
        seed: of cohorts, and of what is random in w_0.
    """

    features: int = setting(REQUIRED, "Features of a document.", least=1)
    feature_names: str = setting("", "Their names in the devices' logs, in order, with commas between; empty: none.")
    displayed: int = setting(10, "Ranks that count, K.", least=1, most=1000)
    rounds: int = setting(10, "Rounds, T.", least=1)
    cohort: int = setting(0, "Devices asked in a round, drawn at random; 0: all that are connected.", least=0)
    waiting: Waiting = Waiting()
    propensity: Propensity | Estimator = propensity_setting(Estimator(), ("none",), without=("remember",))
    training: LocalTraining = LocalTraining()
    server: ServerOptimiser = ServerOptimiser()
    aggregation: Aggregation = Aggregation("clipped")
    judge: bool = setting(True, "Devices judge the ranker by impressions that they keep from training.")
    norm_limit: float = setting(100.0, "Updates with a larger norm are refused.", above=0)
    normalised: bool = setting(True, "Are the features in the devices' logs scaled to [0, 1] within each query?")
    stage: StageSettings = StageSettings()
    secure_sums: bool = setting(False, "The server sees only the sum of what devices send.")
    model: ModelSettings = model_setting()
    seed: int = setting(0, "Cohorts, and first weights that are random, follow from it.", least=0, most=2**40)

    def __post_init__(self) -> None:
        check(self)
        check_ranks(self.training, self.propensity, self.displayed)
        check_credit(self.training, self.propensity)
        if self.feature_names and (len({*self.names} - {""}) != self.features or len(self.names) != self.features):
            found = f"{len(self.names)} texts, {len({*self.names} - {''})} of them different names"
            raise SettingError("feature_names", f"expected {self.features} different names, found {found}")
        from fultr.rankers.plain import plain_size  # loads NumPy

        plain_size(self.model, self.features)  # refuses too many weights
        check_model(self.model, self.server, self.normalised)
        check_aggregation(self.aggregation, self.stage)
        if self.secure_sums:
            check_summable(self.aggregation)
        least = self.waiting.least_replies
        if self.cohort and self.cohort < least:
            raise SettingError("cohort", f"expected at least least_replies = {least}, found {self.cohort}")
        if isinstance(self.stage.privacy, Privacy):
            if not self.cohort:
                raise SettingError(
                    "cohort", "expected a number with privacy: what is divided by must not depend on who replies"
                )
            if self.stage.privacy.mode == "distributed" and not self.secure_sums:
                raise SettingError(
                    "secure_sums", "expected true with distributed noise, of which a single vector has a share alone"
                )
            if self.stage.privacy.secret_cohorts:
                raise SettingError(
                    "secret_cohorts", "expected false: reports and checkpoints of a federation name who took part"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features; empty if they have none."""
        return tuple(name.strip() for name in self.feature_names.split(",")) if self.feature_names else ()

    @property
    def schema(self) -> str:
        """Digest of the features that devices must have."""
        return schema_digest(schema_text(self.names or self.features, self.normalised))

    def algorithm(self) -> FedIPS:
        """The algorithm that these settings describe."""
        return FedIPS(
            self.training,
            self.server,
            self.propensity,
            model=self.model,
            stage=self.stage,
            aggregation=self.aggregation,
        )

    def as_mapping(self) -> dict[str, Any]:
        """Every setting that makes a difference, by name, as federation.toml has it."""
        known = leaves(type(self))
        return {name: known[name].write(value) for name, value in flatten(self).items()}

    @classmethod
    def of(cls, given: Mapping[str, object]) -> FederationSettings:
        """From names and values; a name may have hyphens.

        >>> FederationSettings.of({"features": 5, "client-rate": 0.1}).training.client_rate
        0.1
        >>> FederationSettings.of({"features": 5, "client_rat": 0.1})
        Traceback (most recent call last):
        fultr.core.checks.UnknownNameError: unknown setting 'client_rat'; did you mean client_rate?
        """
        plain = plain_names(given)
        if isinstance(names := plain.get("feature_names"), list):
            plain["feature_names"] = _joined(names)
        return build(cls, plain)

    @classmethod
    def read(cls, path: str | Path, *, besides: tuple[str, ...] = ()) -> FederationSettings:
        """From a TOML file; what is wrong with it is one line that names the file, the line and the cause.

        Args:
            path: the file.
            besides: names in it that are none of these settings.
        """
        return read_settings(cls, path, besides=besides, of=cls.of)


def _joined(names: list[object]) -> str:
    """A list of names as the one text that messages and options have."""
    for name in names:
        if not isinstance(name, str) or not name.strip() or "," in name:
            raise SettingError("feature_names", f"expected texts without a comma, found {written(name)}")
    return ",".join(str(name) for name in names)


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
    text = read_text(path)
    before = plain_names(parse_toml(text, str(path)))
    lines = text.split("\n")
    missing = [name for name, value in values.items() if before.get(name) != value]
    for name in missing:
        top = next((i for i, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines) - (not lines[-1]))
        pattern = rf"(\s*){'' if name in before else '#'}\s*{name.replace('_', '[-_]')}\s*=\s*[^\s#]+(\s*(#.*)?)"
        found = [(i, match) for i, line in enumerate(lines[:top]) if (match := re.fullmatch(pattern, line))]
        if name in before and not replace:
            where = f":{found[0][0] + 1}" if found else ""
            raise FultrError(
                f"{path}{where}: expected {name} = {values[name]}, found {written(before[name])}; "
                "change that line, if no log depends on it"
            )
        if found:
            at, match = found[0]
            lines[at] = f"{match[1]}{name} = {values[name]}{match[2]}"
        else:
            lines.insert(top, f"{name} = {values[name]}")
    changed = "\n".join(lines)
    if plain_names(parse_toml(changed, str(path))) != {**before, **values}:
        raise FultrError(f"{path}: {', '.join(missing)}: cannot be set here; set it by hand")
    if missing and write:
        with written_whole(path) as temporary:
            temporary.write_bytes(changed.encode())
            temporary.chmod(path.stat().st_mode & 0o777)
    return missing
