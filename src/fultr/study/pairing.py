"""Claims are judged by the repeats that all of their lines have."""

from __future__ import annotations

from dataclasses import replace

from fultr.study.claims import KINDS, Claim, Verdict, judge
from fultr.study.stretches import Lines

_NAN = float("nan")


def judge_paired(claim: Claim, lines: Lines, chosen_on: int = 0) -> Verdict:
    """Judge a claim by the repeats that all of its lines have.

    Args:
        claim: what is claimed.
        lines: by name; a claim about one that is missing is "not run".
        chosen_on: on how many repeats rates were chosen, which intervals do not cover; 0: none were.
    """
    names = (*claim.lines, *claim.than)
    absent = [name for name in names if name not in lines]
    common = set.intersection(*(set(lines[name].numbers) for name in names)) if not absent else set()
    if not common:
        why = f"{' and '.join(absent)} {'was' if len(absent) == 1 else 'were'} not run." if absent else ""
        detail = why or f"{' and '.join(names)} have no repeat in common."
        return Verdict(claim, "not run", _NAN, _NAN, _NAN, KINDS[claim.kind].unit, "none", _NAN, detail)
    verdict = judge(claim, {name: lines[name].only(sorted(common)) for name in names})
    if chosen_on and verdict.test != "none":
        several = f"the median of {chosen_on} others" if chosen_on > 1 else "one other repeat"
        verdict = replace(verdict, test=f"{verdict.test}; rates chosen on {several}")
    return verdict
