"""What an estimator chose for itself, and why, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fultr.clicks.findings import Answer


@dataclass(frozen=True)
class Report:
    """How a ranker was trained.

    Attributes:
        rows: displayed documents in the log.
        impressions: pages.
        queries: that the pages are of.
        pairs: different documents of queries.
        users: None if the log does not say who searched.
        clicks: in all.
        propensity: how examination was found.
        why: a sentence about it.
        trust: whether to trust it, by the checks of `fultr estimate` that take no bootstrap; None if it was not
            estimated from this log.
        doubts: the reasons, the gravest first; none if it can be trusted.
        examination: of each rank, relative to rank 1.
        model: what was trained.
        chosen: settings that were chosen on held-out clicks, by name.
        folds: parts of the queries that were held out in turn; 0: none was.
        held_out: how much better than chance the clicks of held-out queries are told: the gain of log-likelihood per
            click, in bits; None if nothing was held out. Choices were made by the same queries, so it is a little too
            high.
        notes: what else the reader should know.
    """

    rows: int
    impressions: int
    queries: int
    pairs: int
    users: int | None
    clicks: int
    propensity: str
    why: str
    examination: tuple[float, ...]
    model: str
    chosen: dict[str, Any]
    folds: int
    held_out: float | None
    trust: Answer | None = None
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The report as a few lines of text."""
        who = "" if self.users is None else f" by {self.users:,} users"
        lines = [
            f"{self.clicks:,} clicks on {self.impressions:,} pages of {self.queries:,} queries{who}: "
            f"{self.pairs:,} different documents of queries in {self.rows:,} rows.",
            f"Propensities: {self.propensity}. {self.why}",
            *self._trust(),
            "Examination by rank: " + " ".join(f"{value:.3f}" for value in self.examination),
            f"Model: {self.model}; chosen: {_listed(self.chosen)}.",
        ]
        if self.held_out is not None:
            told = f"{self.held_out:+.3f} bits per click, compared with a random order"
            lines.append(
                f"Clicks of held-out queries ({self.folds} folds): {told}; a little too high, since the same queries "
                "made the choices."
            )
        return "\n".join([*lines, *self.notes])

    def _trust(self) -> list[str]:
        if self.trust is None:
            return []
        return [f"Whether to trust them: {self.trust}.", *(f"  - {reason}" for reason in self.doubts)]


def _listed(chosen: dict[str, Any]) -> str:
    def said(value: Any) -> str:
        return " + ".join(map(str, value)) if isinstance(value, list) else f"{value:g}"

    return ", ".join(f"{name} {said(value)}" for name, value in chosen.items()) or "nothing"
