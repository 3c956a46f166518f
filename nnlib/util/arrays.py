"""Names for the arrays that are used everywhere."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Floats = NDArray[Any]  # float32, in tests float64
