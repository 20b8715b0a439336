"""What an estimator chose for itself, and why, in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
        examination: of each rank, relative to rank 1.
        model: what was trained.
        chosen: settings that were chosen on held-out clicks, by name.
        folds: parts of the queries that were held out in turn; 0: none was.
        held_out: how much better than chance the clicks of held-out queries are told: the gain of log-likelihood per
            click, in bits; None if nothing was held out.
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
    notes: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        """The report as a few lines of text."""
        who = "" if self.users is None else f" by {self.users:,} users"
        lines = [
            f"{self.clicks:,} clicks on {self.impressions:,} pages of {self.queries:,} queries{who}: "
            f"{self.pairs:,} different documents of queries in {self.rows:,} rows.",
            f"Propensities: {self.propensity}. {self.why}",
            "Examination by rank: " + " ".join(f"{value:.3f}" for value in self.examination),
            f"Model: {self.model}; chosen: {_listed(self.chosen)}.",
        ]
        if self.held_out is not None:
            told = f"{self.held_out:+.3f} bits per click over documents in random order"
            lines.append(f"Clicks of held-out queries ({self.folds} folds): {told}.")
        return "\n".join([*lines, *self.notes])


def _listed(chosen: dict[str, Any]) -> str:
    def said(value: Any) -> str:
        return " + ".join(map(str, value)) if isinstance(value, list) else f"{value:g}"

    return ", ".join(f"{said(value)} {name}" for name, value in chosen.items()) or "nothing"
