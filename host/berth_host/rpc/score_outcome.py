"""`ScoreOutcome`: the scores of one plugin for some nodes, and the messages for scoring that failed.

Made by `PluginClient.score`. Source of the messages: kube-scheduler `framework/runtime/framework.go`, v1.36.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from berth_sdk.status import SUCCESS, Code, Status
from numpy.typing import NDArray

from berth_host.errors.plugins import PluginError
from berth_host.rpc.call_rules import Policy
from berth_host.rpc.validate import ScoreRangeError


@dataclass(frozen=True, slots=True, eq=False)
class ScoreOutcome:
    """int64[n] each: the answer of Score, and the same normalised, before the weight.

    A `status` other than SUCCESS ends the cycle; its text is complete. `skipped`: the plugin said with its
    verdicts that it does not score this pod; its zeros mean nothing.
    """

    status: Status
    raw: NDArray[np.int64]
    normalized: NDArray[np.int64]
    skipped: bool = False


def zeros(count: int, *, skipped: bool = False) -> ScoreOutcome:
    """The same score for all nodes."""
    none = np.zeros(count, dtype=np.int64)
    return ScoreOutcome(SUCCESS, none, none, skipped)


def no_scores(plugin: str, count: int, policy: Policy, failure: PluginError, step: str) -> ScoreOutcome:
    """The outcome that stands in, by policy, for scores that did not come. `step`: `Score` or `Normalize`."""
    if policy is not Policy.FAIL:
        return zeros(count)
    if isinstance(failure, ScoreRangeError):
        text = f"applying score defaultWeights on Score plugins: {failure.text}"
        return _failed(count, Status(Code.ERROR, (text,), plugin))
    return score_error(plugin, count, step, failure.text)


def score_error(plugin: str, count: int, step: str, text: str) -> ScoreOutcome:
    """kube-scheduler's message for a plugin that failed in a step of scoring."""
    where = "Score plugins" if step == "Score" else "Normalize on Score plugins"
    reason = f'running {where}: plugin "{plugin}" failed with: {text}'
    return _failed(count, Status(Code.ERROR, (reason,), plugin))


def _failed(count: int, status: Status) -> ScoreOutcome:
    none = zeros(count)
    return ScoreOutcome(status, none.raw, none.normalized)
