"""`ScoreOutcome`: what scoring some nodes with one plugin came to, and the words for one that failed.

Made by `PluginClient.score`. Source of the words: kube-scheduler `framework/runtime/framework.go`, v1.36.
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
    """int64[n] each: what Score said, and after normalisation, before the weight.

    A `status` other than SUCCESS ends the cycle; its text is complete. `skipped`: the plugin opted out
    together with its verdicts, its zeros mean nothing.
    """

    status: Status
    raw: NDArray[np.int64]
    normalized: NDArray[np.int64]
    skipped: bool = False


def zeros(count: int, *, skipped: bool = False) -> ScoreOutcome:
    """All nodes alike."""
    none = np.zeros(count, dtype=np.int64)
    return ScoreOutcome(SUCCESS, none, none, skipped)


def no_scores(plugin: str, count: int, policy: Policy, failure: PluginError, step: str) -> ScoreOutcome:
    """What the policy puts in the place of scores that did not come. `step`: `Score` or `Normalize`."""
    if policy is not Policy.FAIL:
        return zeros(count)
    if isinstance(failure, ScoreRangeError):
        text = f"applying score defaultWeights on Score plugins: {failure.text}"
        return _failed(count, Status(Code.ERROR, (text,), plugin))
    return score_error(plugin, count, step, failure.text)


def score_error(plugin: str, count: int, step: str, text: str) -> ScoreOutcome:
    """kube-scheduler's words for a plugin that failed in a step of scoring."""
    where = "Score plugins" if step == "Score" else "Normalize on Score plugins"
    reason = f'running {where}: plugin "{plugin}" failed with: {text}'
    return _failed(count, Status(Code.ERROR, (reason,), plugin))


def _failed(count: int, status: Status) -> ScoreOutcome:
    none = zeros(count)
    return ScoreOutcome(status, none.raw, none.normalized)
