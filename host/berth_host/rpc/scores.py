"""Normalisation of scores by the host, and the substitute for scores that did not come.

Called by `PluginClient.score`, with the nodes that are scored.
Source: kube-scheduler `framework/plugins/helper/normalize_score.go` (HOST_MAX, HOST_MAX_REVERSED),
`framework/plugins/interpodaffinity/scoring.go` (HOST_MIN_MAX) and `framework/runtime/framework.go` (the
messages), v1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from berth_sdk.extension_points import ScoreNormalization
from berth_sdk.status import MAX_NODE_SCORE, SUCCESS, Code, Status
from numpy.typing import NDArray

from berth_host.errors.plugins import PluginError
from berth_host.rpc.call_rules import Policy
from berth_host.rpc.validate import ScoreRangeError

Scores = NDArray[np.int64]


def normalize(how: ScoreNormalization, scores: Scores) -> Scores:
    """Return the normalised scores (int64[n]). Scores of PLUGIN, NONE and RPC are final already."""
    if how is ScoreNormalization.HOST_MAX:
        return host_max(scores)
    if how is ScoreNormalization.HOST_MAX_REVERSED:
        return host_max_reversed(scores)
    if how is ScoreNormalization.HOST_MIN_MAX:
        return host_min_max(scores)
    return scores


def host_max(scores: Scores) -> Scores:
    """Return score * 100 / max, truncated towards zero; the same scores if none is above 0."""
    highest = int(scores.max(initial=0))
    if highest == 0:
        return scores
    return _of_values(scores, highest, lambda values: _truncated(values * MAX_NODE_SCORE, highest))


def host_max_reversed(scores: Scores) -> Scores:
    """Return 100 - score * 100 / max; 100 for all nodes if no score is above 0."""
    highest = int(scores.max(initial=0))
    if highest == 0:
        return np.full(len(scores), MAX_NODE_SCORE, dtype=np.int64)
    return _of_values(
        scores, highest, lambda values: MAX_NODE_SCORE - _truncated(values * MAX_NODE_SCORE, highest)
    )


def host_min_max(scores: Scores) -> Scores:
    """Return 100.0 * ((score - min) / (max - min)), truncated; 0 for all nodes if all scores are equal."""
    if not len(scores):
        return scores
    lowest, highest = int(scores.min()), int(scores.max())
    if lowest == highest:
        return np.zeros(len(scores), dtype=np.int64)

    def normalized(values: Scores) -> Scores:
        # Divided first and multiplied after, in doubles, as upstream: the other order rounds differently.
        share = (values - lowest).astype(np.float64) / float(highest - lowest)
        return (float(MAX_NODE_SCORE) * share).astype(np.int64)

    return _of_values(scores, highest, normalized)


def _of_values(scores: Scores, highest: int, normalized: Callable[[Scores], Scores]) -> Scores:
    """Return the normalised scores, none of which is above `highest`.

    Most scores lie close together. Each value between the extremes is then normalised once, and looked up
    for each node: with 50 000 nodes that takes a third of the time.
    """
    lowest = int(scores.min())
    if highest - lowest >= len(scores):
        return normalized(scores)
    return normalized(lowest + np.arange(highest - lowest + 1, dtype=np.int64)).take(scores - lowest)


def _truncated(numerators: Scores, divisor: int) -> Scores:
    quotients = numerators // divisor
    below = (numerators < 0) & (quotients * divisor != numerators)
    return quotients + below if below.any() else quotients


@dataclass(frozen=True, slots=True, eq=False)
class ScoreOutcome:
    """The scores of one plugin (int64[n]): as answered, and after normalisation, without the weight.

    A `status` other than SUCCESS ends the cycle; its text is complete. `skipped`: the plugin
    answered with its verdicts that it does not score this pod, so its zeros do not count. `stands_in`: the
    plugin gave no answer, and its failure policy put zeros in the place.
    """

    status: Status
    raw: NDArray[np.int64]
    normalized: NDArray[np.int64]
    skipped: bool = False
    stands_in: bool = False

    @property
    def is_answer(self) -> bool:
        """True for scores of the plugin itself: they may stand beside its earlier scores of other nodes."""
        return self.status.is_success and not (self.skipped or self.stands_in)


def zeros(count: int, *, skipped: bool = False, stands_in: bool = False) -> ScoreOutcome:
    """Return the score 0 for all nodes."""
    none = np.zeros(count, dtype=np.int64)
    return ScoreOutcome(SUCCESS, none, none, skipped, stands_in)


def no_scores(plugin: str, count: int, policy: Policy, failure: PluginError, step: str) -> ScoreOutcome:
    """Return the substitute, by policy, for scores that did not come. `step`: `Score` or `Normalize`."""
    if policy is not Policy.FAIL:
        return zeros(count, stands_in=True)
    if isinstance(failure, ScoreRangeError):
        text = f"applying score defaultWeights on Score plugins: {failure.text}"
        return _failed(count, Status(Code.ERROR, (text,), plugin))
    return score_error(plugin, count, step, failure.text)


def score_error(plugin: str, count: int, step: str, text: str) -> ScoreOutcome:
    """Return an error with kube-scheduler's message for a plugin that failed in a step of scoring."""
    where = "Score plugins" if step == "Score" else "Normalize on Score plugins"
    reason = f'running {where}: plugin "{plugin}" failed with: {text}'
    return _failed(count, Status(Code.ERROR, (reason,), plugin))


def _failed(count: int, status: Status) -> ScoreOutcome:
    none = zeros(count)
    return ScoreOutcome(status, none.raw, none.normalized)
