"""Rates are chosen from the grid as it stands, and from wider ones as long as the choice is at the edge."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fultr.study.experiment import Experiment, Line, Panel
from fultr.study.run import Result
from fultr.study.settings import RunSettings
from fultr.study.sizing import quick
from fultr.study.store import Source, Task
from fultr.study.tuning import Lookup, tuned

SOURCE = Source("made-up", known=("a", "b", "c"))
PAPER = (("client_rate", (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)), ("server_rate", (0.05, 0.5, 1.0, 2.0)))


def experiment(steps: int = 6, repeats: int = 1) -> tuple[Experiment, Line]:
    line = Line("FedIPS", RunSettings(), PAPER)
    panels = (Panel("", ("FedIPS",)),)
    mine = Experiment("e", "", "", "", ("d",), (line,), panels, tuning_repeats=repeats, tuning_steps=steps)
    return mine, line


def best_at(client: float, server: float, noise: dict[int, float] | None = None) -> Lookup:
    """Every run is finished; validation NDCG falls with the distance from some rates, in powers of ten."""

    def finished(task: Task) -> Result:
        training, optimiser = task.settings.fedips.training, task.settings.fedips.server
        assert optimiser.server_rate is not None
        off = abs(math.log10(training.client_rate / client)) + abs(math.log10(optimiser.server_rate / server))
        score = 0.6 - 0.05 * off + (noise or {}).get(task.seed, 0.0) * math.log10(training.client_rate)
        return Result(np.array([0, 500]), {"valid": np.array([0.3, score])})

    return finished


@pytest.mark.parametrize(
    ("client", "server", "chosen", "tried"),
    [
        (1e-2, 1.0, (1e-2, 1.0), 20),  # inside: nothing else is tried
        (1e-2, 2.1, (1e-2, 2.0), 20 + 3),  # 4 is worse
        (1e-3, 16.0, (1e-3, 16.0), 20 + 4 * 3),  # 4, 8, 16, 32
        (1.0, 1.0, (1.0, 1.0), 20 + 2 * 3),  # 1 and 10
        (1.0, 0.005, (1.0, 0.005), 20 + 2 * 5),  # a corner: one row and one column each time
    ],
)
def test_the_grid_grows_until_the_choice_lies_inside(client, server, chosen, tried):
    found = tuned(*experiment(), SOURCE, best_at(client, server))
    last = found.widest or found.first
    assert last is not None
    assert tuple(last.rates.values()) == pytest.approx(chosen)
    assert (last.at_edge, len(last.grid)) == ((), tried)
    assert len({tuple(rates.items()) for rates, _ in last.grid}) == tried
    assert found.first is not None
    assert len(found.first.grid) == 20  # the paper's own grid stays the first answer
    assert sum(map(len, found.steps)) == tried


def test_growth_is_bounded_and_says_so():
    found = tuned(*experiment(steps=3), SOURCE, best_at(1e-3, 1e9))
    assert found.widest is not None
    assert found.widest.rates == {"client_rate": 1e-3, "server_rate": 16.0}
    assert found.widest.at_edge == ("server_rate",)
    assert tuned(*experiment(steps=0), SOURCE, best_at(1e-3, 1e9)).widest is None


def test_runs_that_are_missing_are_asked_for_step_by_step():
    everything = best_at(1e-3, 16.0)

    def up_to(largest: float) -> Lookup:
        return lambda task: everything(task) if (task.settings.fedips.server.server_rate or 0) <= largest else None

    nothing = tuned(*experiment(), SOURCE, up_to(0.0))
    assert (nothing.first, nothing.finished, len(nothing.steps)) == (None, False, 1)
    grid = tuned(*experiment(), SOURCE, up_to(2.0))
    assert grid.first is not None
    assert (grid.widest, grid.finished, len(grid.steps)) == (None, False, 2)
    further = tuned(*experiment(), SOURCE, up_to(16.0))
    assert (further.widest, further.finished, len(further.steps)) == (None, False, 5)


def test_one_odd_repeat_of_three_does_not_decide():
    mine, line = experiment(repeats=3)
    noise = {mine.tuning_seeds[0]: -1.0}  # in it the smallest client rate looks best by far
    found = tuned(mine, line, SOURCE, best_at(1e-2, 1.0, noise))
    assert found.first is not None
    assert found.first.rates == {"client_rate": 1e-2, "server_rate": 1.0}


def test_edges_are_those_of_what_was_tried():
    """Two of five and two of four rates: whichever is best, nothing beyond it was tried."""
    mine, line = experiment()
    (small,) = quick(replace(mine, lines=(line,))).lines
    found = tuned(replace(mine, tuning_steps=0), small, SOURCE, best_at(1e-3, 1.0))
    assert found.first is not None
    assert found.first.rates == {"client_rate": 1e-3, "server_rate": 0.5}
    assert found.first.at_edge == ("client_rate", "server_rate")
