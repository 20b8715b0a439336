"""`fultr reproduce --check`: a random sample of saved runs, computed again."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from fultr.cli.console import print_json, print_table, progress_bar, say, working
from fultr.core.errors import FultrError

if TYPE_CHECKING:
    from fultr.study.reproduce import Plan
    from fultr.study.store import Source


def check_saved(plan: Plan, given: Sequence[Source], number: int, seed: int | None, *, as_json: bool) -> None:
    """Compute some of the saved runs that experiments are judged by again; exit code 1 if one comes out differently.

    Args:
        plan: the experiments, with the folder of saved runs.
        given: data sets that are not generated, under the names that they have there.
        number: of runs.
        seed: chooses them; None: by chance.
        as_json: print one JSON object.
    """
    from fultr.study.checking import AT_A_POINT, ON_AVERAGE, recompute, sampled, shifted, sources_at_hand
    from fultr.study.outcomes import runs_of
    from fultr.study.saved import Saved

    runs = []
    with working("Reading the saved runs"):
        for experiment in plan.experiments:
            saved, finished = Saved.read(plan.folder_of_saved, experiment.name), plan.finished(experiment)
            keys = {
                task.key for source in plan.sources_of(experiment) for task, _ in runs_of(experiment, source, finished)
            }
            runs += [(experiment.name, saved.runs[key]) for key in sorted(keys)]
    if not runs:
        raise FultrError(f"{plan.saved}: no finished runs of these experiments with these settings")
    sources = sources_at_hand((run for _, run in runs), given)
    possible = [(name, run) for name, run in runs if run.data in sources]
    if not possible:
        names = ", ".join(sorted({run.data for _, run in runs}))
        raise FultrError(f"{plan.saved}: none of its data are at hand; give them as --data NAME=FOLDER ({names})")
    seed = secrets.randbelow(10**6) if seed is None else seed
    chosen = sampled(possible, number, seed)
    checked = []
    with progress_bar(len(chosen), "Computing saved runs again") as done:
        for name, run in chosen:
            checked.append(recompute(name, run, sources))
            done()
    one_way = shifted(checked)
    agree = all(one.agrees for one in checked) and not one_way
    if as_json:
        print_json(
            {
                "runs": len(runs),
                "seed": seed,
                "agree": agree,
                "one_way": one_way,
                "computed_again_by": asdict(checked[0].again),
                "checked": [
                    {
                        "experiment": one.experiment,
                        "data": one.run.data,
                        "computed_by": asdict(one.run.result.origin),
                        "seed": one.run.seed,
                        "split": one.run.split,
                        "settings": dict(one.run.settings),
                        "agrees": one.agrees,
                        "difference": one.difference if one.difference < float("inf") else None,
                    }
                    for one in checked
                ],
            }
        )
    else:
        rows = [
            [one.experiment, run.data, run.settings["algorithm"], f"{run.seed}", run.split, one.words]
            for one in checked
            for run in (one.run,)
        ]
        print_table([["experiment", "data", "algorithm", "seed", "queries", "computed again"], *rows], left=6)
        before = "; ".join(sorted({str(run.result.origin) for _, run in chosen}))
        say(f"Saved by {before}. Computed again by {checked[0].again}.")
        rest = len(runs) - len(possible)
        few = f"; {rest:,} more are of data that are not at hand" if rest else ""
        say(f"{len(checked)} of {len(runs):,} runs, chosen by --seed {seed}{few}.")
        far = f"by up to {AT_A_POINT:g} at a point, and {ON_AVERAGE:g} in the mean of a curve"
        say(f"The same version on the same platform must give the same bits; others may differ {far}.")
        if one_way:
            say("The runs differ in the same direction, which rounding would not do: they are NOT the same.")
    if not agree:
        sys.exit(1)
