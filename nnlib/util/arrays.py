"""Names for the arrays that are used everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]  # float32, in tests float64
Longs = NDArray[np.int64]
