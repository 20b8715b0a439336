"""How simulated users examine and click; a module of settings alone, quick to import."""

from __future__ import annotations

from dataclasses import dataclass

from fultr.clicks.models import CLICK_MODELS
from fultr.core.checks import MAX_GRADE, SettingError
from fultr.core.settings import check, setting


@dataclass(frozen=True)
class ClickModel:
    """How users examine and click.

    Bias severities are drawn from a Gaussian that is truncated at 0; gamma is its mean before truncation. The paper
    writes N(gamma, 0.1); read as a variance, the usual notation, that is the default of gamma_sd, sqrt(0.1). Read as a
    standard deviation it is 0.1.
    """

    gamma: float = setting(1.0, "Bias severity: examination is (1 / rank) ** gamma.", least=0)
    gamma_sd: float = setting(
        0.1**0.5, "Standard deviation of users' bias severity; the paper's variance is 0.1.", least=0
    )
    relevant_grade: int | None = setting(
        None, "Lowest grade that counts as relevant.", least=1, most=MAX_GRADE, zero="3 of grades 0..4, 1 of 0..2"
    )
    relevant_click: float = setting(
        1.0, "Probability of a click on a relevant document that is examined.", least=0, most=1
    )
    other_click: float = setting(0.1, "Probability of a click on any other document that is examined.", least=0, most=1)
    click_model: str = setting(
        "position-based",
        "How users examine and click: by rank alone, or in other ways.",
        choices=CLICK_MODELS,
    )
    continues: float = setting(
        0.0,
        "How likely users continue after a click, relative to without one (cascade; dependent-click: at rank 1).",
        least=0,
        most=1,
    )
    trust: float = setting(
        0.5,
        "Share of users who click whatever they examine at rank 1; at rank r it is trust / r (trust).",
        least=0,
        most=1,
    )
    contrast: float = setting(
        0.5,
        "Severity is (1 - contrast) or (1 + contrast) times the user's, by the query (contextual).",
        least=0,
        most=1,
    )

    def __post_init__(self) -> None:
        check(self)
        if self.click_model == "trust" and not (self.other_click and self.relevant_click):
            name = "relevant_click" if self.other_click else "other_click"
            raise SettingError(name, "expected above 0 with the click model trust, for which 0 is no document; found 0")


@dataclass(frozen=True)
class Sessions:
    """What one client does in a round.

    Each session shows a randomly chosen one of its queries. Sessions go on until there are `clicks` clicks; the session
    under way is finished and all its clicks are kept: stopping at the m-th click would take clicks from low ranks.

    Attributes:
        queries: how many it has.
        clicks: m.
        most_sessions: a client stops after this many sessions even if it has fewer clicks; with a large m, all clients
            have this many.
        replacement: may the queries that a client draws be the same one twice? By default they are distinct.
    """

    queries: int = setting(5, "Queries of a client in a round.", least=1, most=10**6)
    clicks: int = setting(10, "Clicks of a client in a round, m.", least=1, most=10**6)
    most_sessions: int = setting(1000, "Sessions of a client in a round, at most.", least=1, most=10**6)
    replacement: bool = False

    def __post_init__(self) -> None:
        check(self)
