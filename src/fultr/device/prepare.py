"""Compiles what trains before the first task comes, in a process of its own: the node stays small until then.

Compiled code is kept on disk, beside the modules or in NUMBA_CACHE_DIR; this happens once after an installation.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import fultr

_SECONDS = 900.0  # that it may take: 20 s of processor time, of which a busy machine gives little
_MODULE = Path(fultr.__file__).parent / "federated" / "estimators" / "expectations.py"  # of what a first task needs


def prepared() -> bool:
    """Was everything compiled, of the version that is installed? A compilation that was interrupted does not count."""
    try:
        return _mark().stat().st_mtime > _MODULE.stat().st_mtime
    except OSError:
        return False


def _mark() -> Path:
    """A file beside the compiled code that says that it is complete, for this Python and this Numba."""
    return _cache() / f"fultr-prepared.{sys.implementation.cache_tag}.numba-{version('numba')}"


def _cache() -> Path:
    """Where Numba keeps what it compiled; found without loading it."""
    if not (chosen := os.environ.get("NUMBA_CACHE_DIR")):
        return _MODULE.parent / "__pycache__"
    return Path(chosen) / f"{_MODULE.parent.name}_{hashlib.sha1(str(_MODULE.parent).encode()).hexdigest()}"


def prepare() -> bool:
    """Compile what the usual task needs, with every loss; False if that failed: then the first task takes longer."""
    try:
        done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    if done.returncode == 0:
        with contextlib.suppress(OSError):  # where it cannot be written, the next node compiles, or loads, again
            _mark().touch()
    return done.returncode == 0


def _answer_all() -> None:
    """Answer the usual task with every loss, from logs of no user's."""
    import numpy as np

    from fultr.device.answer import answer
    from fultr.device.log import DeviceLog
    from fultr.device.policy import DevicePolicy
    from fultr.federated.budget import model_of
    from fultr.federated.federate import task_of
    from fultr.federated.federation import FederationSettings
    from fultr.federated.fedips import Server
    from fultr.federated.messages import Reply
    from fultr.rankers.losses import LOSSES

    for loss in LOSSES:
        settings = FederationSettings.of({"features": 2, "displayed": 2, "propensity": "shrunk", "loss": loss})
        model = model_of(settings)
        task = task_of(settings, 0, Server.initial(settings.algorithm(), model, model.initial(), settings.displayed))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "device.db"
            with DeviceLog.open(path, features=2) as log:
                for i in range(100):
                    log.log_click(log.log_impression(i, np.eye(2, dtype=np.float32)), 1 + i % 2)
            assert isinstance(answer(path, task, DevicePolicy()), Reply)


if __name__ == "__main__":
    _answer_all()
