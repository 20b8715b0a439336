"""The settings of what happens to clients' replies on their way, and of how they are combined."""

from __future__ import annotations

from dataclasses import dataclass

from fultr.core.checks import SettingError
from fultr.core.settings import check, setting
from fultr.federated.aggregation import AGGREGATIONS, OF_SUMS
from fultr.federated.privacy import STAGES
from fultr.federated.privacy.settings import NoPrivacy, Privacy, privacy_setting


@dataclass(frozen=True)
class StageSettings:
    """What happens to all that clients send, between client and server.

    Attributes:
        stage: "none": replies are added up as they are.
        privacy: "none", or a `Privacy`: noise that hides single devices.
    """

    stage: str = setting("none", "What happens to replies between client and server.", choices=STAGES)
    privacy: Privacy | NoPrivacy = privacy_setting()

    def __post_init__(self) -> None:
        check(self)
        if self.privacy != "none" and self.stage != "none":
            raise SettingError("stage", f"expected none with privacy, which is a stage itself; found {self.stage}")


@dataclass(frozen=True)
class Aggregation:
    """How the server combines what clients send.

    Attributes:
        aggregation: "mean", the paper's; "clipped", the mean of updates that count the less the further they are beyond
            a multiple of the usual norm; "trimmed", per coordinate, the mean without the largest and the smallest;
            "grouped", per coordinate, the median of the means of groups. docs/poisoning.md says what each protects
            against.
        clip_multiple: of the running median norm.
        step_multiple: likewise, of the mean over clients of a secure sum, which is all that the server sees then.
        trim: left out at each end; at least this share, as long as some remain.
        groups: with as many as clients it is their median.
    """

    aggregation: str = setting("mean", "How what clients send is combined.", choices=AGGREGATIONS)
    clip_multiple: float = setting(
        1.0, "Largest norm that counts in full, as a multiple of the running median (clipped).", above=0
    )
    step_multiple: float = setting(
        3.0, "Largest mean of a secure sum that counts in full, as a multiple of the running median (clipped).", above=0
    )
    trim: float = setting(
        0.2, "Share of clients left out at each end, coordinate by coordinate (trimmed).", least=0, below=0.5
    )
    groups: int = setting(10, "Groups of clients whose means the median is taken of (grouped).", least=1)

    def __post_init__(self) -> None:
        check(self)


def check_aggregation(aggregation: Aggregation, stage: StageSettings) -> None:
    """Refuse a rule that a stage cannot go with: what it adds, hides or promises is about the plain sum.

    >>> check_aggregation(Aggregation("trimmed"), StageSettings("none"))
    """
    found = aggregation.aggregation
    if found != "mean" and stage.stage != "none":
        raise SettingError(
            "aggregation", f"expected mean with the stage {stage.stage}, which is about sums; found {found}"
        )
    if found != "mean" and stage.privacy != "none":
        raise SettingError("aggregation", f"expected mean with privacy, which is about sums; found {found}")


def check_summable(aggregation: Aggregation) -> None:
    """Refuse a rule that secure sums do not go with: it would need single replies.

    >>> check_summable(Aggregation("trimmed"))
    Traceback (most recent call last):
    fultr.core.checks.SettingError: aggregation: expected mean or clipped with secure_sums, which show only a sum; ...
    """
    if (found := aggregation.aggregation) not in OF_SUMS:
        raise SettingError(
            "aggregation", f"expected {' or '.join(OF_SUMS)} with secure_sums, which show only a sum; found {found}"
        )
