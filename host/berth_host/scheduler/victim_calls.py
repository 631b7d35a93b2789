"""What the cluster is told of one victim: its DisruptionTarget condition, then its deletion.

Called by `evictions`. Source: kube-scheduler `framework/preemption/executor.go` (PreemptPod), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import orjson
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod

from berth_host.errors.cluster import ConflictError, NotFoundError
from berth_host.model.clock import Clock, rfc3339
from berth_host.scheduler.cluster_calls import ClusterCalls
from berth_host.scheduler.preemption.eligibility import DISRUPTION_TARGET, PREEMPTED, preemption_mark

_TRIES: Final = 4


class VictimCalls:
    """Both raise ClusterError; a victim that is gone already is as good as evicted."""

    def __init__(self, cluster: ClusterCalls, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    @property
    def side_by_side(self) -> bool:
        """Whether several calls at the same time are faster than one after the other."""
        return not self._cluster.answers_at_once

    async def mark(self, victim: Pod, preemptor: Pod) -> None:
        """Write the condition that says why the pod will go."""
        known = victim.object
        for tries_left in reversed(range(_TRIES)):
            if known is None:
                known = await self._cluster.get("pods", victim.ref)
            if known is None:
                return
            try:
                await self._cluster.patch(
                    "pods",
                    victim.ref,
                    {"status": {"conditions": self._conditions(known, preemptor)}},
                    subresource="status",
                    expected_resource_version=known.ref.resource_version,
                )
            except NotFoundError:
                return
            except ConflictError:
                # A merge patch replaces the whole list: it must be made of the one that is there.
                known = None
                if not tries_left:
                    raise
            else:
                return

    async def delete(self, victim: Pod) -> None:
        """Delete the pod, with the grace that it asks for."""
        with suppress(NotFoundError):
            await self._cluster.delete("pods", victim.ref)

    def _conditions(self, victim: KubeObject, preemptor: Pod) -> list[Mapping[str, Any]]:
        # A bound pod is known by its bytes, which were written by the same library.
        victim.parse(orjson.loads)
        conditions = [
            item for item in victim.get("status.conditions", []) if item.get("type") != DISRUPTION_TARGET
        ]
        conditions.append(
            {
                "type": DISRUPTION_TARGET,
                "status": "True",
                "reason": PREEMPTED,
                "message": mark_message(preemptor.scheduler_name),
                "lastTransitionTime": rfc3339(self._clock.now_s()),
            }
        )
        return conditions


def is_marked_for(victim: Pod, scheduler_name: str) -> bool:
    """Whether a pod has been marked as the victim of a preemption by that scheduler."""
    return preemption_mark(victim) == mark_message(scheduler_name)


def mark_message(scheduler_name: str) -> str:
    """The message of the condition."""
    return f"{scheduler_name}: preempting to accommodate a higher priority pod"
