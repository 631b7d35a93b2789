"""Raw scores -> 0..100 for plugins that leave the last step to the host.

Called by `PluginClient.score`, over the nodes that are scored in the end.
Source: kube-scheduler `framework/plugins/helper/normalize_score.go` (HOST_MAX, HOST_MAX_REVERSED) and
`framework/plugins/interpodaffinity/scoring.go` (HOST_MIN_MAX), v1.36.
"""

from __future__ import annotations

import numpy as np
from berth_sdk.extension_points import ScoreNormalization
from berth_sdk.status import MAX_NODE_SCORE
from numpy.typing import NDArray

Scores = NDArray[np.int64]


def normalize(how: ScoreNormalization, scores: Scores) -> Scores:
    """int64[n] -> int64[n]. PLUGIN, NONE and RPC are final as they come."""
    if how is ScoreNormalization.HOST_MAX:
        return host_max(scores)
    if how is ScoreNormalization.HOST_MAX_REVERSED:
        return host_max_reversed(scores)
    if how is ScoreNormalization.HOST_MIN_MAX:
        return host_min_max(scores)
    return scores


def host_max(scores: Scores) -> Scores:
    """score * 100 / max, truncated towards zero; unchanged where no score is above 0."""
    highest = int(scores.max(initial=0))
    return scores if highest == 0 else _truncated(scores * MAX_NODE_SCORE, highest)


def host_max_reversed(scores: Scores) -> Scores:
    """100 - score * 100 / max; 100 for all where no score is above 0."""
    highest = int(scores.max(initial=0))
    if highest == 0:
        return np.full(len(scores), MAX_NODE_SCORE, dtype=np.int64)
    return MAX_NODE_SCORE - _truncated(scores * MAX_NODE_SCORE, highest)


def host_min_max(scores: Scores) -> Scores:
    """100.0 * ((score - min) / (max - min)), truncated; 0 for all where all are equal."""
    if not len(scores):
        return scores
    lowest, highest = int(scores.min()), int(scores.max())
    if lowest == highest:
        return np.zeros(len(scores), dtype=np.int64)
    # Divided first and multiplied after, in doubles, as upstream does: the other order rounds differently.
    share = (scores - lowest).astype(np.float64) / float(highest - lowest)
    return (float(MAX_NODE_SCORE) * share).astype(np.int64)


def _truncated(numerators: Scores, divisor: int) -> Scores:
    quotients = numerators // divisor
    below = (numerators < 0) & (quotients * divisor != numerators)
    return quotients + below if below.any() else quotients
