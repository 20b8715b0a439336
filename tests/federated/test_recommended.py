"""The recommended settings: what experiments report of them, they have."""

from __future__ import annotations

import pytest

from fultr.core.errors import FultrError
from fultr.federated.recommended import recommended
from fultr.study.experiment_files import packaged
from fultr.study.settings import RunSettings

REPORTED = [
    ("refreshed", "recommended, shrunk, γ = 2", RunSettings.recommended(200)),
    ("refreshed", "recommended, in 30 rounds, γ = 2", RunSettings.recommended(30)),
    ("trees", "random trees, shrunk, γ = 2", RunSettings.recommended(300, "random-trees")),
    ("neural", "neural, shrunk, γ = 2", RunSettings.recommended(200, "mlp")),
]


@pytest.mark.parametrize(("experiment", "line", "settings"), REPORTED)
def test_experiments_report_what_is_recommended(experiment, line, settings):
    """But for what they vary, measure, or tune: the bias severity, points of the curve, a server rate."""
    lines = {each.name: each for one in packaged() if one.name == experiment for each in one.lines}
    found = lines[line]
    tuned = {rate: found.settings.relevant()[rate] for rate, _ in found.grid}
    wanted = settings.but({"gamma": 2.0, "evaluate_every": found.settings.evaluate_every, **tuned})
    differing = {
        name: (value, found.settings.relevant()[name])
        for name, value in wanted.relevant().items()
        if name not in ("update_bound",) and found.settings.relevant()[name] != value
    }
    assert differing == {}


def test_an_unknown_model_is_one_line():
    with pytest.raises(FultrError, match="model: expected one of linear, mlp, random-trees, histogram-trees"):
        recommended(model="forest")
