"""What privacy takes in a federation: noise that is settled before it starts, who may still take part, what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fultr.federated.federation import FederationSettings
from fultr.federated.fedips import Server
from fultr.federated.judging import Judgement, noised
from fultr.federated.privacy.accountant import Guarantee, settled, spent
from fultr.federated.privacy.private import PrivateSum
from fultr.federated.privacy.settings import Privacy
from fultr.federated.privacy.stage import stage_of
from fultr.rankers.model import Model, model_named


def model_of(settings: FederationSettings) -> Model:
    """The model of the federation's ranker."""
    return model_named(settings.model, settings.features)


def private_settings(settings: FederationSettings) -> FederationSettings:
    """The same, with the noise of all rounds settled, if there is any; a run that exceeds its budget is an error."""
    privacy = settings.algorithm().privacy
    if privacy is None:
        return settings
    size = model_of(settings).update_size
    privacy = settled(privacy, cohort=settings.cohort, rounds=settings.rounds, size=size)
    return replace(settings, stage=replace(settings.stage, privacy=privacy))


def cost_of(settings: FederationSettings, rounds: int) -> Guarantee | None:
    """What this many rounds cost; None without privacy."""
    privacy = settings.algorithm().privacy
    if privacy is None:
        return None
    return spent(privacy, cohort=settings.cohort, rounds=rounds, summed=settings.secure_sums)


def noised_judgement(settings: FederationSettings, server: Server) -> Judgement | None:
    """What the noised sums of the last round say of the weights before it."""
    stage = stage_of(settings.algorithm().stage)
    if "judged" not in server.stage or not isinstance(stage, PrivateSum):
        return None
    return noised(server.stage["judged"], stage.judged_deviation(server.stage, settings.cohort), settings.cohort)


def willing(privacy: Privacy, clients: Sequence[int], repliers: Sequence[Sequence[int]]) -> list[int]:
    """Which devices may still take part in the round after those whose repliers are given.

    >>> limited = Privacy("correlated", epsilon=1, participations=2, rounds_apart=2)
    >>> willing(limited, range(4), [[0, 1], [2]]), willing(limited, range(4), [[0], [1], [0], [2]])
    ([0, 1, 3], [1, 3])
    """
    recent = {client for who in repliers[max(0, len(repliers) + 1 - privacy.rounds_apart) :] for client in who}
    often = Counter(client for who in repliers for client in who)
    return [client for client in clients if client not in recent and often[client] < privacy.participations]
