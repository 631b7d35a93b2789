"""Read-only views of arrays, and longer copies of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view of `array` that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view


def extended(array: NDArray[Any], more: int) -> NDArray[Any]:
    """Return `array` with `more` zeros after its last axis."""
    padding = np.zeros((*array.shape[:-1], more), dtype=array.dtype)
    return np.concatenate([array, padding], axis=-1)
