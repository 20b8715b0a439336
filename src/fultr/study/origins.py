"""What computed a run: the version of fultr, and the platform, which decides the last bits of its numbers."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fultr.core.system import installed_memory, processor_name


@dataclass(frozen=True, order=True)
class Origin:
    """What computed a run.

    Attributes:
        fultr: the version of fultr; "" if that was not recorded.
        platform: see `this_platform`; "" if that was not recorded.
    """

    fultr: str = ""
    platform: str = ""

    def __str__(self) -> str:
        return (
            f"fultr {self.fultr or '(version not recorded)'} on {self.platform or 'a platform that was not recorded'}"
        )


@lru_cache
def this_version() -> str:
    """The version of fultr; the system is asked for it once."""
    return version("fultr")


@lru_cache
def this_platform() -> str:
    """The processor as code is compiled for it, the system's library, and the packages that compute.

    Where these are the same, a run has the same result to the last bit. Compiled code adds up in as many parts as a
    vector of the processor holds, so elsewhere the last digits differ.
    """
    import llvmlite.binding as llvm
    import numba

    set_by_hand: Any = numba.config
    features = set_by_hand.CPU_FEATURES or llvm.get_host_cpu_features().flatten()
    processor = set_by_hand.CPU_NAME or llvm.get_host_cpu_name()
    able = hashlib.sha256(features.encode()).hexdigest()[:8]
    system = f"{platform.system()} {' '.join(filter(None, platform.libc_ver())) or platform.release()}"
    packages = []
    for name in ("numpy", "scipy", "numba", "llvmlite", "lightgbm"):
        with suppress(PackageNotFoundError):
            packages.append(f"{name} {version(name)}")
    return ", ".join((f"{platform.machine()} {processor} ({able})", system, *packages))


def this_origin() -> Origin:
    """What computes runs here."""
    return Origin(this_version(), this_platform())


def versions() -> dict[str, str]:
    """The software in use here."""
    packages = ("fultr", "numpy", "numba", "scipy", "joblib", "pyarrow")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def machine() -> dict[str, str]:
    """This machine, without anything that identifies its owner.

    >>> list(machine())
    ['processor', 'cores', 'memory', 'system']
    """
    memory = installed_memory()
    return {
        "processor": processor_name() or platform.processor() or platform.machine() or "unknown",
        "cores": str(os.cpu_count() or "unknown"),
        "memory": f"{memory / 2**30:.0f} GiB" if memory else "unknown",
        "system": f"{platform.system()}, {platform.machine()}",
    }
