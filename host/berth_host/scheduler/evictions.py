"""Executes a nomination: evicts the victims that a PostFilter plugin named.

Called by the scheduling cycle after PostFilter answered SUCCESS; the relay has checked that every victim
is on the nominated node and of lower priority than the pod.
Source: kube-scheduler `framework/preemption/executor.go`, v1.36 (condition, delete, event).
"""

from __future__ import annotations

from berth_sdk.pod import Pod
from berth_sdk.results import PostFilterResult

from berth_host.cache.cache import Cache
from berth_host.errors.cluster import ClusterError, NotFoundError
from berth_host.framework.cycle import Cycle
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.log import get_logger
from berth_host.scheduler.cluster_calls import ClusterCalls
from berth_host.scheduler.pod_status import PodStatusWriter

log = get_logger()


class Evictions:
    """`preempted_by` remembers, by victim uid, who took the place; for reports."""

    def __init__(
        self, cluster: ClusterCalls, cache: Cache, waiting_pods: WaitingPods, status: PodStatusWriter
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._waiting_pods = waiting_pods
        self._status = status
        self.preempted_by: dict[str, str] = {}

    async def nominate(self, cycle: Cycle, plugin: str, result: PostFilterResult) -> str:
        """The nominated node, once its victims are on their way out."""
        for ref in result.victims:
            victim = self._cache.get_pod(ref.uid)
            # Gone meanwhile, or on its way: nothing to evict.
            if victim is not None and not victim.terminating:
                await self._evict(cycle, plugin, victim)
        return result.nominated_node

    async def _evict(self, cycle: Cycle, plugin: str, victim: Pod) -> None:
        preemptor = cycle.pod
        note = f"Preempted by pod {preemptor.uid} on node {victim.node_name}"
        self.preempted_by[victim.uid] = preemptor.key
        if self._waiting_pods.preempt(victim.uid, plugin, "preempted"):
            note += " (in kube-scheduler memory)."
        else:
            try:
                await self._mark_and_delete(preemptor, victim)
            except NotFoundError:
                pass  # gone meanwhile: as good as evicted
            except ClusterError as err:
                log.warning("victim.refused", pod=preemptor.key, plugin=plugin, problem=str(err))
                return
        log.info("victim.evicted", pod=victim.key, node=victim.node_name, preemptor=preemptor.key)
        await self._status.event(victim, "Normal", "Preempted", "Preempting", note)

    async def _mark_and_delete(self, preemptor: Pod, victim: Pod) -> None:
        now = await self._cluster.get("pods", victim.ref)
        if now is None:
            return
        conditions = [
            item for item in now.get("status.conditions", []) if item.get("type") != "DisruptionTarget"
        ]
        conditions.append(
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": f"{preemptor.scheduler_name}: preempting to accommodate a higher priority pod",
            }
        )
        await self._cluster.patch(
            "pods", victim.ref, {"status": {"conditions": conditions}}, subresource="status"
        )
        await self._cluster.delete("pods", victim.ref)
