"""The calls to the cluster for one victim: its DisruptionTarget condition, then its deletion.

Called by `evictions` and `group_repair`.
Source: kube-scheduler `framework/preemption/executor.go` (PreemptPod), v1.37.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
from berth_sdk.pod import Pod
from berth_sdk.rfc3339 import format_time

from berth_host.cluster.port import ClusterCalls
from berth_host.cycle.status_patch import condition_patch, patch_status
from berth_host.errors.cluster import ConflictError, NotFoundError
from berth_host.model.clock import Clock
from berth_host.preemption.eligibility import DISRUPTION_TARGET, PREEMPTED, preemption_mark
from berth_host.preemption.preemptor import POD, Preemptor


@dataclass(frozen=True, slots=True)
class Mark:
    """The reason and the message of the condition that marks a victim."""

    reason: str
    message: str

    @staticmethod
    def of_preemption(preemptor: Preemptor) -> Mark:
        """Return the mark of the victims of a preemptor."""
        return Mark(PREEMPTED, mark_message(preemptor.scheduler_name, preemptor.type))


class VictimCalls:
    """The two calls raise ClusterError. A victim that is gone already counts as evicted."""

    def __init__(self, cluster: ClusterCalls, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    @property
    def side_by_side(self) -> bool:
        """True if concurrent calls are faster than sequential ones."""
        return not self._cluster.answers_at_once

    async def mark(self, victim: Pod, mark: Mark) -> None:
        """Write the condition with the reason for the pod's deletion."""
        patch = self._condition(victim, mark)
        if patch is not None:
            with suppress(NotFoundError):
                await patch_status(self._cluster, victim.ref, patch)

    async def delete(self, victim: Pod) -> None:
        """Delete the pod, with its own grace period."""
        with suppress(NotFoundError):
            await self._cluster.delete("pods", victim.ref)

    async def delete_only(self, victim: Pod) -> None:
        """Delete the pod, but not one that took its name meanwhile, as the pods of a StatefulSet do."""
        with suppress(NotFoundError, ConflictError):
            await self._cluster.delete("pods", victim.ref, same_uid=True)

    def _condition(self, victim: Pod, mark: Mark) -> dict[str, Any] | None:
        """Return the patch that marks the victim; None if the victim has this mark already."""
        known = victim.object
        if known is not None:
            # A bound pod is kept as bytes that orjson wrote.
            known.parse(orjson.loads)
        wanted = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": mark.reason,
            "message": mark.message,
            "observedGeneration": known.get("metadata.generation") if known else None,
        }
        conditions = known.get("status.conditions", []) if known else []
        return condition_patch(conditions, wanted, format_time(self._clock.now_s()))


def is_marked_for(victim: Pod, preemptor: Preemptor) -> bool:
    """Return True if the preemptor's scheduler has marked the pod as a victim of a preemptor of this
    type.
    """
    return preemption_mark(victim) == mark_message(preemptor.scheduler_name, preemptor.type)


def mark_message(scheduler_name: str, type: str = POD) -> str:
    """Return the message of the condition that marks a victim. `type`: that of the preemptor."""
    return f"{scheduler_name}: preempting to accommodate a higher priority {type}"
