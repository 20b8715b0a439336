"""`fultr bench practitioner`: `UnbiasedRanker` against LightGBM and XGBoost on the same click logs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fultr.cli.console import print_json, print_table, say, working
from fultr.core.errors import FultrError
from fultr.data.load import load
from fultr.study.practitioner import cases, measure
from fultr.study.practitioner_methods import METHODS


def practitioner(
    data: Sequence[str],
    clicks: Sequence[int],
    gammas: Sequence[float],
    policies: Sequence[int],
    repeats: int,
    tuned: bool,
    lines: Path,
    as_json: bool,
) -> None:
    """Measure what is missing, and print the means.

    Args:
        data: names of data sets, or NAME=FOLDER.
        clicks: sizes of logs.
        gammas: bias severities of the users.
        policies: how many logging policies made a log.
        repeats: logs of each kind.
        tuned: also other software whose settings are chosen.
        lines: file of measurements, added to.
        as_json: print the means as JSON.
    """
    places = {one.partition("=")[0]: one.partition("=")[2] or one for one in data}
    with working("Loading"):
        loaded = {name: load(place) for name, place in places.items()}
    methods = [name for name in METHODS if tuned or not name.endswith("tuned")]
    for module, word in (("lightgbm", "LightGBM"), ("xgboost", "XGBoost")):
        if find_spec(module) is None:
            if module == "lightgbm":
                raise FultrError("lightgbm: not installed; pip install lightgbm")
            say(f"{word} is not installed, and left out")
            methods = [name for name in methods if not name.startswith(word)]
    wanted = list(cases(list(places), list(gammas), list(policies), list(clicks), repeats))
    found = measure(loaded, wanted, methods, lines, say)
    kept = {(case.repeat, case.clicks, case.data, case.gamma, case.policies) for case in wanted}
    rows = table_of([line for line in found if _key(line) in kept])
    if as_json:
        print_json({"lines": str(lines), "means": rows})
        return
    heads = ["data", "clicks", "gamma", "policies", "method", "logs", "NDCG@5", "fultr ahead by", "processor time"]
    print_table(
        [heads, *([_said(row[name]) for name in row] for row in rows)],
        title="Means over logs; paired differences ± their standard errors",
    )


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("repeat", "clicks", "data", "gamma", "policies"))


def table_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the logs of a kind: NDCG@5, by how much fultr is ahead (paired), and seconds to fit.

    >>> case = {"repeat": 0, "data": "a", "clicks": 10, "gamma": 1.0, "policies": 1, "cpu": 2.0}
    >>> made = [{**case, "method": "fultr", "ndcg": 0.5}, {**case, "method": "LightGBM", "ndcg": 0.25}]
    >>> [(row["method"], row["ahead"]) for row in table_of(made)]
    [('fultr', ''), ('LightGBM', '+0.2500')]
    """
    groups: dict[tuple[Any, ...], dict[str, dict[int, dict[str, Any]]]] = {}
    for line in lines:
        kind = tuple(line[name] for name in ("data", "clicks", "gamma", "policies"))
        groups.setdefault(kind, {}).setdefault(line["method"], {})[line["repeat"]] = line
    rows = []
    for kind, methods in sorted(groups.items()):
        ours = methods.get("fultr", {})
        for method, by_repeat in methods.items():
            gaps = np.array([ours[r]["ndcg"] - line["ndcg"] for r, line in by_repeat.items() if r in ours])
            said = ""
            if method != "fultr" and gaps.size:
                error = f" ± {gaps.std(ddof=1) / gaps.size**0.5:.4f}" if gaps.size > 1 else ""
                said = f"{gaps.mean():+.4f}{error}"
            rows.append(
                {
                    **dict(zip(("data", "clicks", "gamma", "policies"), kind, strict=True)),
                    "method": method,
                    "logs": len(by_repeat),
                    "ndcg": float(np.mean([line["ndcg"] for line in by_repeat.values()])),
                    "ahead": said,
                    "cpu": float(np.mean([line["cpu"] for line in by_repeat.values()])),
                }
            )
    return rows


def _said(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
