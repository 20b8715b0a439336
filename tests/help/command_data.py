"""Data and a ranker for the tests of the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from help.commands import fultr

from fultr.data.letor.writer import write_letor
from fultr.data.ranking import RankingData


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A small data set in LETOR files, with document names in half of the comments."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for i, (name, queries) in enumerate((("train", 120), ("vali", 40), ("test", 40))):
        x = rng.random((queries * 8, 6)).astype(np.float32)
        grades = np.clip((x[:, 0] + x[:, 2] + 0.4 * rng.standard_normal(queries * 8)) * 2, 0, 4).astype(int)
        data = RankingData.from_arrays(x, grades, np.repeat(np.arange(queries) + 1000 * i, 8))
        write_letor(data, root / f"{name}.txt")
    lines = (root / "test.txt").read_text().splitlines()
    lines = [f"{line} #docid = D{i} inc = 1" if i % 2 else line for i, line in enumerate(lines)]
    (root / "test.txt").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="session")
def trained(folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("sim") / "run"
    cache = {"FULTR_CACHE": str(tmp_path_factory.mktemp("cache"))}
    done = fultr("simulate", "--data", folder, "--clients", 60, "--rounds", 6, "--out", out, env=cache)
    assert done.code == 0, done.err
    return out
