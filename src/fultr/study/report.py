"""The output of experiments: figures, tables of every number, and one self-contained page."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from markupsafe import Markup

from fultr.core.drawing import rendered
from fultr.core.files import make_folder, written_whole
from fultr.core.page import Curve, Reading, page_template, plot
from fultr.study.claims import Verdict
from fultr.study.experiment import RATES, Choice, Experiment, Line, Outcome, Panel
from fultr.study.figures import draw, draw_panel, metric, panels_of, series
from fultr.study.origins import Origin, machine, versions
from fultr.study.saved import CURVES
from fultr.study.statistics import Measured, estimate, expected_by_chance
from fultr.study.summary import (
    MARKS,
    WIDER,
    counted,
    effect_and_interval,
    mark,
    markdown,
    more,
    repeats_of,
    span,
    table,
)

_RATES = tuple(name for names in RATES.values() for name in names)
_RATE_NAMES = {
    "client_rate": Markup("client’s η<sub>l</sub>"),
    "server_rate": Markup("server’s η<sub>g</sub>"),
    "lambda_rate": "λLinear’s rate",
}


def write_report(outcomes: Sequence[Outcome], folder: Path, *, took: str, notes: Sequence[str] = ()) -> list[Path]:
    """Write page, summary, results.json, tables and figures to a folder; each appears whole or not at all.

    Args:
        outcomes: of one or several experiments, each on one or several data sets.
        folder: created if missing; files of the same names are replaced.
        took: how long it took, in words.
        notes: sentences on what is missing.

    Returns:
        The files, the page first.
    """
    experiments: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        experiments.setdefault(outcome.experiment.name, []).append(outcome)
    ordered = [outcome for group in experiments.values() for outcome in group]
    curves = _curves(ordered)
    contents: dict[str, bytes] = {}
    for name, group in experiments.items():
        figure = draw(group)
        contents |= {f"figures/{name}.{kind}": rendered(figure, kind) for kind in ("pdf", "svg", "png")}
    contents["tuning.csv"] = _csv(_tuning(ordered))
    contents[f"{CURVES}.parquet"] = _parquet(curves)
    contents["curves.csv"] = _csv(zip(*([name, *values] for name, values in curves.items()), strict=True))
    contents["results.json"] = _json(results(ordered, notes))
    contents["summary.md"] = markdown(list(experiments.values()), notes).encode()
    contents["report.html"] = _page(list(experiments.values()), took, notes).encode()
    make_folder(folder / "figures")
    for path, content in contents.items():
        with written_whole(folder / path) as temporary:
            temporary.write_bytes(content)
    return [folder / path for path in reversed(contents)]


# Tables.


def _curves(outcomes: Sequence[Outcome]) -> dict[str, list[Any]]:
    """Every number measured, in columns."""
    columns: dict[str, list[Any]] = {name: [] for name in ("experiment", "data", "line", "repeat", "round", "ndcg")}
    for outcome in outcomes:
        wider = {f"{name}, {WIDER}": measured for name, measured in outcome.wider_lines.items()}
        for name, measured in (outcome.lines | wider).items():
            repeats, points = measured.ndcg.shape
            size = repeats * points
            columns["experiment"] += [outcome.experiment.name] * size
            columns["data"] += [outcome.data] * size
            columns["line"] += [name] * size
            columns["repeat"] += np.repeat(measured.numbers, points).tolist()
            columns["round"] += np.tile(measured.rounds, repeats).tolist()
            columns["ndcg"] += measured.ndcg.ravel().tolist()
    return columns


def _parquet(columns: dict[str, list[Any]]) -> bytes:
    kinds = {"repeat": pa.int64(), "round": pa.int64(), "ndcg": pa.float64()}
    arrays = {name: pa.array(values, kinds.get(name, pa.string())) for name, values in columns.items()}
    buffer = io.BytesIO()
    pq.write_table(pa.table(arrays), buffer, compression="zstd")
    return buffer.getvalue()


def _tuning(outcomes: Sequence[Outcome]) -> Iterable[Sequence[Any]]:
    """Every combination of rates that was tried, NDCG on validation, and whether it was chosen.

    Those of a wider grid follow with the line's name extended.
    """
    yield ["experiment", "data", "line", *_RATES, "validation_ndcg", "chosen"]
    for outcome in outcomes:
        for name, choice in _all_choices(outcome):
            for rates, score in choice.grid:
                tried = [rates.get(rate, "") for rate in _RATES]
                yield [outcome.experiment.name, outcome.data, name, *tried, score, str(rates == choice.rates).lower()]


def _all_choices(outcome: Outcome) -> Iterator[tuple[str, Choice]]:
    """The choices of all lines, each followed by that of a wider grid, if there is one."""
    for name, choice in outcome.choices.items():
        yield name, choice
        if name in outcome.wider:
            yield f"{name}, {WIDER}", outcome.wider[name]


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)  # floats as repr writes them: with all their digits
    return text.getvalue().encode()


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def asked(experiment: Experiment, fingerprints: Sequence[str]) -> dict[str, Any]:
    """Everything that the numbers depend on, ready for JSON."""
    return {**experiment.configuration(), "fingerprints": list(fingerprints)}


def results(outcomes: Sequence[Outcome], notes: Sequence[str] = ()) -> dict[str, Any]:
    """What was asked and what was found, without the curves, ready for JSON: the same on every run."""
    return {
        "asked": [asked(outcome.experiment, outcome.fingerprints) for outcome in outcomes],
        "results": [_result(outcome) for outcome in outcomes],
        "notes": list(notes),
        "judged_with": versions(),
    }


def _result(outcome: Outcome) -> dict[str, Any]:
    lines = {}
    for line in outcome.experiment.lines:
        name = line.name
        if name in outcome.lines:
            choice, wider = outcome.choices.get(name), outcome.wider.get(name)
            lines[name] = {
                **_line(line, outcome.lines[name], choice),
                "wider": wider and _line(line, outcome.wider_lines.get(name, outcome.lines[name]), wider),
            }
    return {
        "experiment": outcome.experiment.name,
        "title": outcome.experiment.title,
        "data": outcome.data,
        "lines": lines,
        "computed_by": [{**asdict(origin), "runs": runs} for origin, runs in sorted(outcome.origins.items())],
        "verdicts": [verdict.as_dict() for verdict in outcome.verdicts()],
    }


def _line(line: Line, measured: Measured, choice: Choice | None) -> dict[str, Any]:
    mean = estimate(measured.final)
    return {
        "settings": {**line.settings.relevant(), **(choice.rates if choice else {})},
        "repeats": list(measured.numbers),
        "final": measured.final.tolist(),
        "mean": mean.mean,
        "standard_error": _finite(mean.standard_error),
        "choice": choice
        and {
            "rates": choice.rates,
            "at_edge": choice.at_edge,
            "validation_ndcg": _finite(choice.score),
            "grid": [{**rates, "validation_ndcg": _finite(score)} for rates, score in choice.grid],
        },
    }


# The page.


def _page(experiments: list[list[Outcome]], took: str, notes: Sequence[str]) -> str:
    first = [group[0].experiment for group in experiments]
    claims = [  # each with its verdict on every data set
        (
            group[0].experiment.title,
            [_verdict(outcome.data, verdict) for outcome, verdict in zip(group, one, strict=True)],
        )
        for group in experiments
        for one in zip(*(outcome.verdicts() for outcome in group), strict=True)
    ]
    found = [verdict for group in experiments for outcome in group for verdict in outcome.verdicts()]
    judged = sum(verdict.answer != "not run" for verdict in found)
    return page_template("fultr.study", "report.html").render(
        title=first[0].title if len(first) == 1 else f"{len(first)} experiments in federated unbiased learning to rank",
        lead=_lead(experiments),
        notes=notes,
        counts=_counts(found),
        claims=claims,
        verdicts=judged,
        by_chance=expected_by_chance(judged),
        experiments=[_section(group, number) for number, group in enumerate(experiments, 1)],
        origins=_origins([outcome for group in experiments for outcome in group]),
        here={**machine(), **versions()},
        took=took,
    )


def _origins(outcomes: Sequence[Outcome]) -> list[str]:
    """What computed the runs, and how many each, most first."""
    counted: Counter[Origin] = Counter()
    for outcome in outcomes:
        counted.update(outcome.origins)
    return [f"{runs:,} runs by {origin}" for origin, runs in counted.most_common()]


def _counts(verdicts: Sequence[Verdict]) -> list[tuple[str, str, str]]:
    """How many verdicts there are of each conclusion, in a fixed order, plain answers first: style, symbol, words."""
    numbers = Counter(verdict.conclusion for verdict in verdicts)
    ordered = [*(answer for answer in MARKS if numbers[answer]), *sorted(numbers.keys() - MARKS.keys())]
    return [(*mark(conclusion), counted(numbers[conclusion], conclusion)) for conclusion in ordered]


def _lead(experiments: list[list[Outcome]]) -> str:
    data = list(dict.fromkeys(outcome.data for group in experiments for outcome in group))
    repeats = sorted({number for group in experiments for number in repeats_of(group)})
    chosen = sorted({group[0].experiment.tuning_repeats for group in experiments if any(one.choices for one in group)})
    names = " and ".join(filter(None, (", ".join(data[:-1]), data[-1])))
    return (
        f"NDCG on the test queries of {names}. Number of repeats: {span(repeats)}; repeats differ in the sample of "
        "queries that the logging policy was trained on, and in the users, their queries and their clicks, not in the "
        "test queries: how others would turn out, intervals do not cover."
        + (f" Learning rates were chosen on the validation queries of {more(chosen)}." if chosen else "")
        + (" Intervals do not cover how that choice turned out." if chosen else "")
    )


def _verdict(data: str, verdict: Verdict) -> dict[str, Any]:
    style, symbol = mark(verdict.conclusion)
    effect, interval = effect_and_interval(verdict)
    p = verdict.p_value
    return {
        "says": verdict.claim.says,
        "data": data,
        "answer": verdict.answer,
        "style": style,
        "symbol": symbol,
        "effect": effect,
        "interval": interval,
        "test": verdict.test + ("" if math.isnan(p) else ", p < 0.0001" if p < 1e-4 else f", p = {p:.2g}"),
        "detail": verdict.detail,
        "conclusion": verdict.conclusion,
        "edges": ", ".join(verdict.edges),
        "unfinished": ", ".join(verdict.unfinished),
        "wider": None if verdict.wider is None else _verdict(data, verdict.wider),
    }


def _section(outcomes: Sequence[Outcome], number: int) -> dict[str, Any]:
    """What the page shows about an experiment."""
    experiment, panels = outcomes[0].experiment, panels_of(outcomes[0].experiment)
    tuned = [(outcome, name, choice) for outcome in outcomes for name, choice in _all_choices(outcome)]
    rates = [rate for rate in _RATES if any(rate in choice.rates for _, _, choice in tuned)]
    return {
        "id": f"experiment-{number}",
        "experiment": experiment,
        "repeats": span(repeats_of(outcomes)),
        "thinned": any(line.thinned for line in experiment.lines),
        "rows": [
            (outcome.data, [_panel(outcome, panel, f"p{number}-{row}-{i}-") for i, panel in enumerate(panels)])
            for row, outcome in enumerate(outcomes)
        ],
        "table": table(outcomes),
        "rates": [_RATE_NAMES[rate] for rate in rates],
        "tuning": [
            {
                "line": name,
                "data": outcome.data,
                "rates": [(_number(choice.rates.get(rate)), rate in choice.at_edge) for rate in rates],
                "score": f"{choice.score:.4f}",
                "grid": _heat(choice),
            }
            for outcome, name, choice in tuned
        ],
        "configuration": _configuration(experiment),
        "fingerprints": [(outcome.data, outcome.fingerprints) for outcome in outcomes],
    }


def _panel(outcome: Outcome, panel: Panel, prefix: str) -> dict[str, Any]:
    """A panel's drawing, and what the page's script needs to read numbers off it."""
    horizontal, entries = series(outcome, panel)
    several = max(len(line.ndcg) for line in outcome.lines.values()) > 1
    label = f"{outcome.data}: {panel.title or metric(outcome.experiment)}"
    ticks = tuple(zip(horizontal.ticks, horizontal.names, strict=True))
    curves = [Curve(one.name, one.colour, one.x, one.mean, one.error if several else None) for one in entries]
    return plot(draw_panel(outcome, panel), label, Reading(horizontal.label, horizontal.log, ticks), curves, prefix)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _heat(choice: Choice) -> dict[str, Any]:
    """The grid as a table: the first rate downwards, the second, if there is one, to the right."""
    down, *right = choice.rates
    scores = [score for _, score in choice.grid if math.isfinite(score)]
    low, high = min(scores, default=0.0), max(scores, default=1.0)
    columns = _sorted_rates(choice, right[0]) if right else [0.0]
    rows: dict[float, dict[float, tuple[str, str, bool]]] = {value: {} for value in _sorted_rates(choice, down)}
    for rates, score in choice.grid:
        heat = f"{0.55 * ((score - low) / (high - low or 1.0)) ** 2:.3f}" if math.isfinite(score) else "0"
        rows[rates[down]][rates[right[0]] if right else 0.0] = (f"{score:.4f}", heat, rates == choice.rates)
    return {
        "down": _RATE_NAMES[down],
        "right": _RATE_NAMES[right[0]] if right else "",
        "columns": [_number(value) for value in columns] if right else [],
        "rows": [
            (_number(value), [cells.get(column, ("", "0", False)) for column in columns])
            for value, cells in rows.items()
        ],
    }


def _sorted_rates(choice: Choice, name: str) -> list[float]:
    return sorted({rates[name] for rates, _ in choice.grid})


def _configuration(experiment: Experiment) -> dict[str, Any]:
    """Settings that all lines have in common, and those in which they differ."""
    settings = {
        line.name: {**line.settings.relevant(), **{name: "tuned" for name, _ in line.grid}} for line in experiment.lines
    }
    names = list(dict.fromkeys(name for own in settings.values() for name in own))
    values = {name: {str(own[name]) for own in settings.values() if name in own} for name in names}
    differ = [name for name in names if len(values[name]) > 1 or name == "algorithm"]
    return {
        "common": [(name, next(iter(values[name]))) for name in names if name not in differ],
        "differ": differ,
        "lines": [(line, [str(own.get(name, "")) for name in differ]) for line, own in settings.items()],
    }
