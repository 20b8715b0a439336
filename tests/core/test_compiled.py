"""Kinds of one's own must not spoil the cache of compiled code for processes that do not have them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OWN = """
from typing import NamedTuple
import numpy as np
from fultr.core.compiled import implements
from fultr.rankers.losses.loss import loss_and_pulls

class Flat(NamedTuple):
    pass

@implements(loss_and_pulls, Flat)
def _pulls(loss, scores, documents, clicked, pulls):
    pulls[:documents] = np.float32(0)
    pulls[clicked] = np.float32(2)
    return 1.0
"""
TRAIN = """
import sys
import numpy as np
from fultr.clicks.log import ClickLog, Display, Records
from fultr.rankers.linear import Linear
from fultr.rankers.training import Training
from fultr.rankers.losses import LOSSES
if sys.argv[1] == "own":
    from own_loss import Flat as Loss
else:
    Loss = LOSSES[sys.argv[1]]
shown = np.array([[0, 1]])
display = Display(np.eye(2, dtype=np.float32), np.array([0, 2]), shown, shown)
records = Records(ClickLog(np.zeros(1, np.int32), np.uint8([[1, 0]]), np.array([0, 1])), display)
total = np.zeros((1, 2))
how = Training(Loss(), False, 0.5, 1)
Linear(2).add_updates(records, np.array([[1.0, 0.0]]), np.zeros(2, np.float32), how, total, np.zeros((1, 1)))
print(total[0].tolist())
"""


@pytest.mark.slow
def test_a_loss_of_ones_own_works_and_others_do_not_need_it(tmp_path):
    (tmp_path / "own_loss.py").write_text(OWN)

    def trained(loss: str, folder: Path | None) -> str:
        path = os.pathsep.join(filter(None, [str(folder or ""), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", TRAIN, loss]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert trained("own", tmp_path) == "[1.0, 0.0]"
    assert trained("hinge", None) == trained("hinge", None) == "[0.5, -0.5]"
