"""The ways to estimate examination from the counts of a click log, by name."""

from __future__ import annotations

from typing import Literal

from fultr.clicks.examination.document_em import document_em
from fultr.clicks.examination.harvesting import adjacent_pairs, all_pairs, pair_counts
from fultr.clicks.examination.regression import feature_model
from fultr.clicks.impressions import Cells
from fultr.core.arrays import Float64s
from fultr.core.checks import check_choice

Method = Literal["all-pairs", "regression", "em", "adjacent"]


METHODS: tuple[Method, ...] = ("all-pairs", "regression", "em", "adjacent")  # the best first


def examination_by(method: Method, cells: Cells, *, start: Float64s | None = None) -> Float64s:
    """Examination relative to rank 1, [K], estimated by a method.

    Args:
        method: "all-pairs" or "adjacent" harvest interventions, "regression" fits a relevance
            modelled by features, "em" one relevance per document.
        cells: counts of the log.
        start: where "em" and "regression" start; with one, as from another draw, "em" stops a little earlier.

    >>> from fultr.clicks.impressions import ImpressionLog
    >>> log = ImpressionLog.from_arrays([1] * 4, [[7, 8], [8, 7]] * 2, [[1, 0], [1, 0], [1, 1], [1, 0]])
    >>> examination_by("all-pairs", log.cells()).round(6).tolist()
    [1.0, 0.25]
    """
    check_choice("method", method, METHODS)
    cells.check_clicks()
    if method == "em":
        return document_em(cells, start=start, tolerance=1e-6 if start is None else 1e-5, most=1000).examination
    if method == "regression":
        return feature_model(cells, start=start).examination
    counts = pair_counts(cells)
    return adjacent_pairs(counts) if method == "adjacent" else all_pairs(counts)
