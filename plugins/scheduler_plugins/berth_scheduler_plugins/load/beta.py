"""The regularised incomplete beta function over columns: the distribution of a node's load.

Source: the continued fraction of DLMF 8.17.22, evaluated with the method of Lentz.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
_TERMS: Final = 300
_CLOSE: Final = 1e-15
_TINY: Final = 1e-300


def distribution(x: Column, mean: Column, variance: Column) -> Column:
    """Return float64[n]: how probable a load of at most `x` is, by a beta distribution.

    `mean` is between 0 and 1, and `variance` is above 0 and less than mean * (1 - mean). All float64[n].
    """
    spread = mean * (1 - mean) / variance - 1
    a, b = mean * spread, (1 - mean) * spread
    inside = (x > 0) & (x < 1)
    z = np.where(inside, x, 0.5)
    # The fraction converges quickly on one side of the mean; the other side is the complement.
    swapped = z > (a + 1) / (a + b + 2)
    a, b, z = np.where(swapped, b, a), np.where(swapped, a, b), np.where(swapped, 1 - z, z)
    front = np.exp(_log_gamma(a + b) - _log_gamma(a) - _log_gamma(b) + a * np.log(z) + b * np.log1p(-z))
    part = np.clip(front * _fraction(a, b, z) / a, 0.0, 1.0)
    found = np.where(swapped, 1 - part, part)
    return np.where(inside, found, np.where(x <= 0, 0.0, 1.0))


def _fraction(a: Column, b: Column, x: Column) -> Column:
    """Return the continued fraction of the incomplete beta function."""
    c, d = np.ones_like(x), _not_zero(1 - (a + b) * x / (a + 1))
    d = 1 / d
    total = d.copy()
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _not_zero(1 + even * d), _not_zero(1 + even / c)
        total = total * d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / _not_zero(1 + odd * d), _not_zero(1 + odd / c)
        step = d * c
        total = total * step
        if np.abs(step - 1).max(initial=0.0) < _CLOSE:
            break
    return total


def _not_zero(values: Column) -> Column:
    return np.where(np.abs(values) < _TINY, _TINY, values)


def _log_gamma(values: Column) -> Column:
    return np.array([math.lgamma(one) for one in values.tolist()])
