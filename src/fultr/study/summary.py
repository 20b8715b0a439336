"""What experiments came to, in few words: a table of every line, and the verdict on every claim, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fultr.study.claims import Verdict
from fultr.study.experiment import Experiment, Outcome
from fultr.study.figures import metric
from fultr.study.statistics import Measured, estimate

WIDER = "wider grid"
_EFFECTS = {"NDCG": "{:+.4f}", "times": "{:.2f}", "of the way": "{:.0%}"}


def table(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """NDCG after the last round, mean ± standard error: one row per line, one column per data set of an experiment.

    A data set on which lines were tuned to the edge of their grid has a second column: with rates of a wider one.
    """
    experiment = outcomes[0].experiment
    columns: list[tuple[str, dict[str, Measured]]] = []
    for outcome in outcomes:
        columns.append((outcome.data, outcome.lines))
        if outcome.wider_lines:
            columns.append((f"{outcome.data}, {WIDER}", outcome.wider_lines))
    rows = [
        [line.name, *(_cell(lines.get(line.name), experiment) for _, lines in columns)] for line in experiment.lines
    ]
    return [[metric(experiment), *(name for name, _ in columns)], *rows]


def _cell(measured: Measured | None, experiment: Experiment) -> str:
    if measured is None:
        return "–"
    repeats = len(measured.ndcg)
    few = f" ({repeats} repeat{'s' if repeats > 1 else ''})" if repeats < experiment.repeats else ""
    return f"{estimate(measured.final)}{few}"


def effect_and_interval(verdict: Verdict) -> tuple[str, str]:
    """The size of an effect with its unit, and its interval; "" for what there is not.

    >>> from fultr.study.claims import Claim
    >>> claim = Claim("It helps", "ends-above", ("a",), ("b",))
    >>> effect_and_interval(Verdict(claim, "holds", 0.02, 0.01, 0.03, "NDCG", "by eye", 0.01, ""))
    ('+0.0200 NDCG', '+0.0100 to +0.0300')
    """
    form = _EFFECTS.get(verdict.unit, "{:.4g}")
    effect = "" if math.isnan(verdict.effect) else f"{form.format(verdict.effect)} {verdict.unit}"
    interval = "" if math.isnan(verdict.low) else f"{form.format(verdict.low)} to {form.format(verdict.high)}"
    return effect, interval


def markdown(experiments: Sequence[Sequence[Outcome]]) -> str:
    """A section for each experiment, given with its outcomes on all data sets."""
    return "\n".join(_section(outcomes) for outcomes in experiments)


def _section(outcomes: Sequence[Outcome]) -> str:
    experiment = outcomes[0].experiment
    parts = [f"## {experiment.title}", experiment.about.strip(), f"`fultr reproduce {experiment.name}`"]
    parts.append(_as_markdown(table(outcomes)))
    verdicts = [outcome.verdicts() for outcome in outcomes]
    if experiment.claims:
        heads = ["claim", *(outcome.data for outcome in outcomes)]
        claims = [[claim.says, *map(_said, one)] for claim, *one in zip(experiment.claims, *verdicts, strict=True)]
        parts.append(_as_markdown([heads, *claims]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _said(verdict: Verdict) -> str:
    if verdict.answer == "not run":
        return "–"
    return f"**{verdict.conclusion}**{_in_figures(verdict)}" + (
        f"; {WIDER}{_in_figures(verdict.wider)}" if verdict.wider else ""
    )


def _in_figures(verdict: Verdict) -> str:
    effect, interval = effect_and_interval(verdict)
    return (f": {effect}" if effect else "") + (f" ({interval})" if interval else "")


def _as_markdown(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
