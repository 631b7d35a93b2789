"""The calls to the cluster for one victim: its DisruptionTarget condition, then its deletion.

Called by `evictions`. Source: kube-scheduler `framework/preemption/executor.go` (PreemptPod), v1.36.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
from berth_sdk.pod import Pod

from berth_host.errors.cluster import NotFoundError
from berth_host.model.clock import Clock, rfc3339
from berth_host.scheduler.cluster_calls import ClusterCalls
from berth_host.scheduler.preemption.eligibility import DISRUPTION_TARGET, PREEMPTED, preemption_mark
from berth_host.scheduler.status_patch import condition_patch, patch_status


class VictimCalls:
    """Both raise ClusterError; a victim that is gone already is as good as evicted."""

    def __init__(self, cluster: ClusterCalls, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    @property
    def side_by_side(self) -> bool:
        """Whether concurrent calls are faster than sequential ones."""
        return not self._cluster.answers_at_once

    async def mark(self, victim: Pod, preemptor: Pod) -> None:
        """Write the condition that says why the pod will go."""
        patch = self._condition(victim, preemptor)
        if patch is not None:
            with suppress(NotFoundError):
                await patch_status(self._cluster, victim.ref, patch)

    async def delete(self, victim: Pod) -> None:
        """Delete the pod, with the grace that it asks for."""
        with suppress(NotFoundError):
            await self._cluster.delete("pods", victim.ref)

    def _condition(self, victim: Pod, preemptor: Pod) -> dict[str, Any] | None:
        """The patch that marks the victim; None where it is marked so already."""
        known = victim.object
        if known is not None:
            # A bound pod is known by its bytes, which were written by the same library.
            known.parse(orjson.loads)
        wanted = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": PREEMPTED,
            "message": mark_message(preemptor.scheduler_name),
            "observedGeneration": known.get("metadata.generation") if known else None,
        }
        conditions = known.get("status.conditions", []) if known else []
        return condition_patch(conditions, wanted, rfc3339(self._clock.now_s()))


def is_marked_for(victim: Pod, scheduler_name: str) -> bool:
    """Whether a pod has been marked as the victim of a preemption by this scheduler."""
    return preemption_mark(victim) == mark_message(scheduler_name)


def mark_message(scheduler_name: str) -> str:
    """The message of the condition."""
    return f"{scheduler_name}: preempting to accommodate a higher priority pod"
