"""What experiments came to, in few words: a table of every line, and the verdict on every claim, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fultr.study.claims import Verdict
from fultr.study.experiment import Experiment, Outcome
from fultr.study.figures import metric
from fultr.study.statistics import Measured, estimate, expected_by_chance

WIDER = "wider grid"
MARKS = {
    "holds": ("yes", "✓"),
    "does not hold": ("no", "✗"),
    "inconclusive": ("unsure", "?"),
    "not run": ("unsure", "–"),
}
"""For each answer, its style and its symbol."""

_SEVERAL = {"holds": "hold", "does not hold": "do not hold", "depends": "depend"}
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


def mark(conclusion: str) -> tuple[str, str]:
    """The style and the symbol of a conclusion: those of its answer, unless a wider grid puts that in doubt.

    >>> mark("holds, on a wider grid too"), mark("depends on the grid")
    (('yes', '✓'), ('unsure', '!'))
    """
    return MARKS.get(conclusion.removesuffix(", on a wider grid too"), ("unsure", "!"))


def counted(number: int, conclusion: str) -> str:
    """How many verdicts have a conclusion, in words.

    >>> counted(1, "does not hold"), counted(7, "does not hold, on a wider grid too")
    ('1 does not hold', '7 do not hold, on a wider grid too')
    """
    several = next((f"{b}{conclusion.removeprefix(a)}" for a, b in _SEVERAL.items() if conclusion.startswith(a)), "")
    return f"{number} {conclusion if number == 1 or not several else several}"


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


def repeats_of(outcomes: Sequence[Outcome]) -> list[int]:
    """The numbers of repeats that lines of an experiment have, ascending."""
    return sorted({len(line.ndcg) for outcome in outcomes for line in outcome.lines.values()})


def span(numbers: Sequence[int]) -> str:
    """The first and the last of some numbers.

    >>> span([3, 5, 10]), span([3])
    ('3 to 10', '3')
    """
    return " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))


def more(repeats: Sequence[int]) -> str:
    """This many repeats in addition, in words.

    >>> more([1]), more([1, 5])
    ('one more repeat', '1 to 5 more repeats')
    """
    return "one more repeat" if span(repeats) == "1" else f"{span(repeats)} more repeats"


def markdown(experiments: Sequence[Sequence[Outcome]], notes: Sequence[str] = ()) -> str:
    """A section for each experiment, given with its outcomes on all data sets.

    Before them stands what is missing, after them how many verdicts would be "holds" by chance.
    """
    missing = ["".join(f"- {line}.\n" for line in notes)] if notes else []
    verdicts = [verdict for group in experiments for outcome in group for verdict in outcome.verdicts()]
    judged = sum(verdict.answer != "not run" for verdict in verdicts)
    chance = f"If none of the claims were true, about {expected_by_chance(judged)} of these {judged} verdicts would "
    last = [f"{chance}still be “holds”.\n"] if judged > 1 else []
    return "\n".join([*missing, *(section(outcomes) for outcomes in experiments), *last])


def section(outcomes: Sequence[Outcome]) -> str:
    """What an experiment came to on all its data sets: what it is about, its lines, the verdicts on its claims."""
    experiment = outcomes[0].experiment
    parts = [f"## {experiment.title}", experiment.about.strip(), f"`fultr reproduce {experiment.name}`"]
    parts.append(as_markdown(table(outcomes)))
    repeats = span(repeats_of(outcomes))
    said = "A single repeat." if repeats == "1" else f"Means ± standard errors over {repeats} repeats."
    if any(outcome.choices for outcome in outcomes):
        said += f" Rates were chosen on the validation queries of {more([experiment.tuning_repeats])}; intervals do "
        said += "not cover how that choice turned out."
    parts.append(said)
    verdicts = [outcome.verdicts() for outcome in outcomes]
    if experiment.claims:
        heads = ["claim", *(outcome.data for outcome in outcomes)]
        claims = [[claim.says, *map(_said, one)] for claim, *one in zip(experiment.claims, *verdicts, strict=True)]
        parts.append(as_markdown([heads, *claims]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _said(verdict: Verdict) -> str:
    if verdict.answer == "not run":
        return "–"
    if not verdict.edges:
        return f"**{verdict.conclusion}**{_in_figures(verdict)}"
    wider = f"; {WIDER} {verdict.wider.answer}{_in_figures(verdict.wider)}" if verdict.wider else ""
    return f"**{verdict.conclusion}**; as the grid stands {verdict.answer}{_in_figures(verdict)}{wider}"


def _in_figures(verdict: Verdict) -> str:
    effect, interval = effect_and_interval(verdict)
    return (f": {effect}" if effect else "") + (f" ({interval})" if interval else "")


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the first of which is the heading, as a table."""
    lines = ["| " + " | ".join(" ".join(cell.splitlines()).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
