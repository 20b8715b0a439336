"""What `fultr bench practitioner` measured: a row for each kind of log, as numbers, as Markdown and as a figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fultr.core.arrays import Float64s
from fultr.core.drawing import PALETTE, STYLE
from fultr.study.statistics import Estimate, estimate
from fultr.study.summary import as_markdown

OURS = "fultr"
_REFERENCES = ("policy", "grades")  # neither ours nor other software trained on clicks
_COLUMNS = {  # of the table
    "LightGBM": "LightGBM",
    "LightGBM position": "with `position`",
    "XGBoost unbiased": "XGBoost, unbiased",
    "LightGBM tuned": "LightGBM tuned",
    "LightGBM position tuned": "with `position`, tuned",
    "XGBoost unbiased tuned": "XGBoost tuned",
}
_LOOKS: dict[str, tuple[str, str, dict[str, Any]]] = {  # of the figure: name, colour, marker
    "policy": ("logging policy", "grey", {"marker": "|"}),
    "LightGBM": ("LightGBM", "orange", {"marker": "s"}),
    "LightGBM tuned": ("LightGBM, tuned", "orange", {"marker": "s", "markerfacecolor": "white"}),
    "LightGBM position": ("LightGBM with position", "vermillion", {"marker": "D"}),
    "LightGBM position tuned": (
        "LightGBM with position, tuned",
        "vermillion",
        {"marker": "D", "markerfacecolor": "white"},
    ),
    "XGBoost unbiased": ("XGBoost, unbiased", "purple", {"marker": "^"}),
    "XGBoost unbiased tuned": ("XGBoost, unbiased, tuned", "purple", {"marker": "^", "markerfacecolor": "white"}),
    "fultr": ("UnbiasedRanker", "blue", {"marker": "o", "markersize": 7}),
    "grades": ("LightGBM on all grades", "green", {"marker": "|"}),
}
_ROW, _ROOM, _WIDE = 0.21, 0.75, 4.1  # inches: a row, what is above and below the rows, a panel


@dataclass(frozen=True, eq=False)
class Kind:
    """What was measured on logs of one kind.

    Attributes:
        data: name of the data set.
        clicks: of a log.
        gamma: bias severity of the users.
        policies: how many logging policies made a log.
        lines: the measurements, by method and repeat.
    """

    data: str
    clicks: int
    gamma: float
    policies: int
    lines: Mapping[str, Mapping[int, Mapping[str, Any]]]

    @property
    def about(self) -> str:
        """The kind in words, but for the data.

        >>> Kind("synthetic", 100_000, 2.0, 1, {}).about
        '10⁵ clicks, γ 2, 1 policy'
        """
        policies = "1 policy" if self.policies == 1 else f"{self.policies} policies"
        return f"{_power(self.clicks)} clicks, γ {self.gamma:g}, {policies}"

    def mean(self, method: str, what: str = "ndcg") -> float:
        """The mean of what was measured over logs; NaN if nothing was."""
        found = self.lines.get(method, {})
        return float(np.mean([line[what] for line in found.values()])) if found else float("nan")

    def ahead(self, method: str) -> Estimate | None:
        """By how much our NDCG is above a method's on the same logs; None if there is none that both trained on."""
        ours, theirs = self.lines.get(OURS, {}), self.lines.get(method, {})
        gaps = [line["ndcg"] - theirs[repeat]["ndcg"] for repeat, line in ours.items() if repeat in theirs]
        return estimate(np.array(gaps)) if gaps else None

    def others(self) -> dict[str, Estimate]:
        """By how much ours is ahead of each other software that learnt from clicks."""
        gaps = {name: self.ahead(name) for name in self.lines if name in _COLUMNS}
        return {name: gap for name, gap in gaps.items() if gap is not None}


def kinds(lines: Iterable[Mapping[str, Any]]) -> list[Kind]:
    """Measurements by kind of log: small logs first, of each size one data set after the other.

    >>> case = {"repeat": 0, "data": "a", "clicks": 10, "gamma": 1.0, "policies": 1, "cpu": 2.0}
    >>> (kind,) = kinds([{**case, "method": "fultr", "ndcg": 0.5}, {**case, "method": "LightGBM", "ndcg": 0.25}])
    >>> kind.mean("fultr"), kind.others()["LightGBM"].mean
    (0.5, 0.25)
    """
    found: dict[tuple[Any, ...], dict[str, dict[int, Mapping[str, Any]]]] = {}
    for line in lines:
        key = (line["clicks"], line["data"], line["gamma"], line["policies"])
        found.setdefault(key, {}).setdefault(line["method"], {})[line["repeat"]] = line
    return [
        Kind(data, clicks, gamma, policies, methods)
        for (clicks, data, gamma, policies), methods in sorted(found.items())
    ]


def rows(kind: Kind) -> list[dict[str, Any]]:
    """Every method on logs of a kind: means over logs, and how far ours is ahead; with a 95% interval of 2 or more."""
    found = []
    for method, lines in kind.lines.items():
        gap = kind.ahead(method) if method != OURS else None
        low, high = gap.interval if gap is not None and gap.repeats > 1 else (None, None)
        row = {"data": kind.data, "clicks": kind.clicks, "gamma": kind.gamma, "policies": kind.policies}
        row |= {"method": method, "logs": len(lines), "ndcg": kind.mean(method), "cpu": kind.mean(method, "cpu")}
        found.append(row | {"ahead": None if gap is None else gap.mean, "ahead_low": low, "ahead_high": high})
    return found


def markdown(measured: Sequence[Kind]) -> str:
    """A table with a row for each kind of log; times are of the methods that nobody tuned."""
    heads = ["data", "clicks", "γ", "policies", "logs", "logging policy", "`UnbiasedRanker`", *_COLUMNS.values()]
    heads += ["ahead of the best other one by", "LightGBM on all grades"]
    return as_markdown([heads, *(_row(kind) for kind in measured if OURS in kind.lines)])


def _power(number: int) -> str:
    digits = len(str(number)) - 1
    return f"10{'⁰¹²³⁴⁵⁶⁷⁸⁹'[digits]}" if number == 10**digits and digits < 10 else f"{number:,}"


def _row(kind: Kind) -> list[str]:
    tuned = max((len(lines) for method, lines in kind.lines.items() if method.endswith("tuned")), default=0)
    gaps = kind.others().values()
    return [
        kind.data if not kind.data.startswith("synthetic") else f"`{kind.data}`",
        _power(kind.clicks),
        f"{kind.gamma:g}",
        f"{kind.policies}",
        f"{len(kind.lines[OURS])}, {tuned}",
        _decimals(kind.mean("policy")),
        *(_cell(kind, method) for method in (OURS, *_COLUMNS)),
        _said(min(gaps, key=lambda gap: gap.mean)) if gaps else "",
        _decimals(kind.mean("grades")),
    ]


def _cell(kind: Kind, method: str) -> str:
    if method not in kind.lines:
        return ""
    seconds = "" if method.endswith("tuned") else f", {kind.mean(method, 'cpu'):.1f} s"
    return _decimals(kind.mean(method)) + seconds


def _decimals(value: float, sign: str = "") -> str:
    return "" if np.isnan(value) else f"{value:{sign}.3f}".replace("0.", ".", 1).replace("-", "−")


def _said(gap: Estimate) -> str:
    """A difference with its 95% interval, if there is more than one log.

    >>> _said(estimate(np.array([0.01, 0.02, 0.03]))), _said(estimate(np.array([0.02])))
    ('+.020 (−.005 to +.045)', '+.020')
    """
    if gap.repeats == 1:
        return _decimals(gap.mean, "+")
    low, high = gap.interval
    return f"{_decimals(gap.mean, '+')} ({_decimals(low, '+')} to {_decimals(high, '+')})"


def draw(measured: Sequence[Kind]) -> Figure:
    """A panel for each data set, a row for each kind of log, a mark for each method at its mean."""
    drawn = [kind for kind in measured if OURS in kind.lines]
    names = sorted({kind.data for kind in drawn})
    columns = min(2, len(names))
    stacked = [names[first : first + columns] for first in range(0, len(names), columns)]
    most = [max(sum(kind.data == name for kind in drawn) for name in line) for line in stacked]
    heights = [_ROW * rows + _ROOM for rows in most]
    with mpl.rc_context({**STYLE, "font.size": 9}):
        size = (_WIDE * columns, sum(heights) + 0.7)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(stacked), columns, squeeze=False, height_ratios=heights)
        for axes, name in zip(grid.flat, names, strict=False):
            _panel(axes, name, [kind for kind in drawn if kind.data == name])
        for axes in grid.flat[len(names) :]:
            axes.remove()
        legends = [axes.get_legend_handles_labels() for axes in grid.flat]
        entries = {text: mark for marks, texts in legends for mark, text in zip(marks, texts, strict=True)}
        figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _panel(axes: Axes, name: str, drawn: Sequence[Kind]) -> None:
    for method, (label, colour, looks) in _LOOKS.items():
        values: Float64s = np.array([kind.mean(method) for kind in drawn])
        usual: dict[str, Any] = {"linestyle": "", "markersize": 5, "markeredgewidth": 1.3, **looks}
        if looks["marker"] == "|":
            usual["markersize"] = 11
        if np.isfinite(values).any():
            axes.plot(values, -np.arange(len(drawn)), color=PALETTE[colour], label=label, **usual)
    axes.set_yticks(-np.arange(len(drawn)), [kind.about for kind in drawn])
    axes.set_ylim(-len(drawn) + 0.4, 0.6)
    axes.set_title(name, loc="left")
    axes.set_xlabel("NDCG@5 on judged test queries")
