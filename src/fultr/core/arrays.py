"""Names for the array types in function signatures."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Float32s: TypeAlias = NDArray[np.float32]
Float64s: TypeAlias = NDArray[np.float64]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
UInt8s: TypeAlias = NDArray[np.uint8]
UInt64s: TypeAlias = NDArray[np.uint64]
Bools: TypeAlias = NDArray[np.bool_]
Arrays: TypeAlias = dict[str, NDArray[Any]]
"""Arrays by name: what an optimiser, an estimator or a stage knows, sends or remembers."""
