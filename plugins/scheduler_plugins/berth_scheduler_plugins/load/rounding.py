"""Rounding of scores as the original plugins round: to the nearest whole number, halves away from zero."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def rounded(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return int64[n] for float64[n] of at least 0."""
    whole = np.floor(values)
    return (whole + (values - whole >= 0.5)).astype(np.int64)
