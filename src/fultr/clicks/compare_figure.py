"""The figure of `fultr compare`: two rankers with intervals, and their paired difference."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fultr.clicks.compare import Comparison
from fultr.core.drawing import PALETTE, STYLE

_COLOURS = ("grey", "blue")
_ANSWERS = {"yes": "yes", "no": "no", "inconclusive": "inconclusive"}


def draw_comparison(found: Comparison, names: Mapping[str, str], unit: str) -> Figure:
    """Draw what two rankers would have got, and by how much the second is better.

    Args:
        found: the comparison.
        names: of the two rankers: in the evaluation, and for people.
        unit: what is measured.
    """
    with mpl.rc_context({**STYLE, "font.size": 9}):
        figure = Figure(figsize=(7.2, 1.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        values = {value.name: value for value in found.evaluation.values}
        for i, (own, name) in enumerate(names.items()):
            value = values[own]
            _interval(left, -i, value.mean, value.low, value.high, _COLOURS[i])
            left.annotate(_short(name), (value.mean, -i), xytext=(0, 8), textcoords="offset points", ha="center")
        left.set_ylim(-1.6, 0.7)
        left.set_title(f"{unit[:1].upper()}{unit[1:]}", loc="left")
        gap = found.difference
        _interval(right, 0, gap.mean, gap.low, gap.high, "blue")
        right.axvline(0, color=PALETTE["grey"], linestyle=":")
        right.set_ylim(-1.6, 0.7)
        first, second = (_short(name) for name in names.values())
        right.set_title(f"Is {second} better than {first}? {_ANSWERS[gap.answer]}", loc="left")
        right.set_xlabel("difference, paired; 95% interval")
        left.set_xlabel("95% intervals")
        for axes in (left, right):
            axes.set_yticks([])
            axes.margins(x=0.2)
    return figure


def _interval(axes: Axes, at: float, mean: float, low: float, high: float, colour: str) -> None:
    axes.plot([low, high], [at, at], color=PALETTE[colour], linewidth=2, solid_capstyle="butt")
    axes.plot([mean], [at], color=PALETTE[colour], marker="o", markersize=6)


def _short(name: str) -> str:
    return name if len(name) <= 28 else f"…{name[-27:]}"
