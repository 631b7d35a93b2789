"""Normalisation of raw scores where the SDK stands in for the host: `testing` and `serve.extender`.

The host has its own, for scores of all plugins. Source: kube-scheduler
`framework/plugins/helper/normalize_score.go` and `framework/plugins/interpodaffinity/scoring.go`, v1.36.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from berth_sdk.extension_points import ScoreNormalization
from berth_sdk.status import MAX_NODE_SCORE


def normalized(raw: NDArray[np.int64], how: ScoreNormalization) -> NDArray[np.int64]:
    """Return the scores that the host would use for raw scores, int64[n].

    >>> normalized(np.array([0, 5, 10]), ScoreNormalization.HOST_MAX_REVERSED).tolist()
    [100, 50, 0]
    """
    if not len(raw) or how in (ScoreNormalization.NONE, ScoreNormalization.PLUGIN):
        return raw
    if how is ScoreNormalization.HOST_MIN_MAX:
        low, high = int(raw.min()), int(raw.max())
        if low == high:
            return np.zeros_like(raw)
        return (100.0 * ((raw - low) / float(high - low))).astype(np.int64)
    high = max(0, int(raw.max()))
    reverse = how is ScoreNormalization.HOST_MAX_REVERSED
    if high == 0:
        return np.full_like(raw, MAX_NODE_SCORE) if reverse else raw
    # Truncated towards zero, as Go divides integers.
    scaled: NDArray[np.int64] = np.sign(raw) * (np.abs(raw) * MAX_NODE_SCORE // high)
    return MAX_NODE_SCORE - scaled if reverse else scaled
