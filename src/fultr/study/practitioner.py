"""`UnbiasedRanker` and other software on the same click logs: what rankers reach on judged queries, at what cost.

Simulated users click on pages of one logging policy, or of three that are used at random (`practitioner_logs`); how
each method is trained is in `practitioner_methods`. A method with several candidates is tuned on the first log of a
kind, as learning rates of experiments are; the other logs of this kind use what was chosen there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fultr.core.arrays import Float32s
from fultr.core.errors import FultrError
from fultr.data.ranking import Splits
from fultr.rankers.metrics import ndcg
from fultr.study.lightgbm_ceiling import lightgbm_ndcg
from fultr.study.practitioner_logs import DISPLAYED, Case, Table, divided, made_log
from fultr.study.practitioner_methods import METHODS, Candidate

_FEW = 1000  # test queries: with fewer, each repeat divides all queries anew
_FIRST_PAGES = 1000  # of a log, to compile with


def cases(data: list[str], gammas: list[float], policies: list[int], clicks: list[int], repeats: int) -> Iterator[Case]:
    """All logs, repeat by repeat, small ones first."""
    for repeat, size, name, gamma, several in product(range(repeats), sorted(clicks), data, gammas, policies):
        yield Case(repeat, size, name, gamma, several)


def measure(
    loaded: dict[str, Splits],
    wanted: list[Case],
    methods: list[str],
    path: Path,
    tell: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Measure every method on every log, a line of JSON each; what is in the file already is not measured again.

    Returns:
        All lines of the file: a case's fields, the method, NDCG@5 on the test queries, and seconds of processor time
        (all threads) and of the clock to fit.
    """
    found, compiled = read_lines(path), False
    done = {(*_case_of(line), line["method"]) for line in found}
    for case in wanted:
        key = tuple(asdict(case).values())
        missing = [name for name in ("policy", "grades", *methods) if (*key, name) not in done]
        if not missing:
            continue
        splits = loaded[case.data]
        few = splits.test.queries < _FEW
        splits = divided(splits, case.repeat) if few else splits
        told = [line for line in found if line["data"] == case.data and (line["repeat"] == case.repeat or not few)]
        table, policies = made_log(splits.train, case)
        if not compiled:  # what is compiled on first use, or loaded, is not part of fitting
            for name in (name for name in missing if name.startswith("fultr")):
                METHODS[name].fit(table.take(table.page < _FIRST_PAGES), splits.valid, {})
            compiled = True
        for name in missing:
            if name in METHODS:
                reached = _trained(name, _candidates(name, case, found), splits, table)
            else:
                reached = _compared_with(name, splits, policies, told)
            line = {**asdict(case), "method": name, **reached}
            found.append(line)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
            tell(f"{case}: {name} {line['ndcg']:.4f}, {line['cpu']:.1f} s of processor time")
    return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What was measured before; a last line that was cut off is dropped."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    found = []
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            found.append(json.loads(line))
            _case_of(found[-1]), found[-1]["method"], found[-1]["ndcg"], found[-1]["cpu"]
        except (ValueError, KeyError, TypeError):
            raise FultrError(f"{path}, line {number}: expected a measurement, found {line[:40]!r}") from None
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return found


def _case_of(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("repeat", "clicks", "data", "gamma", "policies"))


def _candidates(name: str, case: Case, found: list[dict[str, Any]]) -> Sequence[Candidate]:
    """What is tried on a log: all there is, or what the first log of its kind, repeat 0, chose of it."""
    kind = _case_of({**asdict(case), "repeat": 0})
    chosen = [
        line["candidate"] for line in found if _case_of(line) == kind and line["method"] == name and "candidate" in line
    ]
    return chosen[:1] or METHODS[name].candidates


def _level(scores: Any, splits: Splits) -> float:
    return float(np.nanmean(ndcg(np.asarray(scores, np.float32), splits.test, k=DISPLAYED)))


def _trained(name: str, candidates: Sequence[Candidate], splits: Splits, table: Table) -> dict[str, Any]:
    """What a method reaches with the best of the candidates."""
    processor, clock = time.process_time(), time.perf_counter()
    fitted = [METHODS[name].fit(table, splits.valid, candidate) for candidate in candidates]
    seconds = {"cpu": time.process_time() - processor, "clock": time.perf_counter() - clock}
    best = max(range(len(fitted)), key=lambda i: fitted[i].valid)
    chosen = {"candidate": candidates[best]} if METHODS[name].candidates[0] else {}
    return {"ndcg": _level(fitted[best].score(splits.test.features), splits), **seconds, **chosen}


def _compared_with(name: str, splits: Splits, policies: Float32s, told: list[dict[str, Any]]) -> dict[str, float]:
    """What the logging policies reach, or training on grades; `told` are lines of the same queries."""
    if name == "policy":
        levels = [_level(splits.test.features @ policy, splits) for policy in policies]
        return {"ndcg": float(np.mean(levels)), "cpu": 0.0, "clock": 0.0}
    for line in told:  # the same for every log of the same queries
        if line["method"] == name:
            return {part: line[part] for part in ("ndcg", "cpu", "clock")}
    processor, clock = time.process_time(), time.perf_counter()
    reached = float(lightgbm_ndcg(splits, ["test"], k=DISPLAYED)["test"][0])
    return {"ndcg": reached, "cpu": time.process_time() - processor, "clock": time.perf_counter() - clock}
