"""The host as plugins' handles see it: implements `handle.HandleBackend` over the host's parts.

Made by `parts`, for the handles of plugins in process and for the server of the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass

from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import ObjectRef
from berth_sdk.results import (
    Cancellation,
    Decision,
    NodeScores,
    NominatedPod,
    Nomination,
    PostFilterResult,
    WaitingPod,
)
from berth_sdk.tables import NodeTable

from berth_host.app.late_parts import LateParts
from berth_host.app.open_calls import OpenCalls
from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.log import get_logger
from berth_host.queue.events import PluginRequest
from berth_host.scheduler.pod_status import PodStatusWriter

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSeams:
    """The parts of the host that a plugin may ask, or set going."""

    objects: ObjectStores
    cache: Cache
    snapshot: Snapshot
    waiting_pods: WaitingPods
    status: PodStatusWriter
    open_calls: OpenCalls
    later: LateParts


class Backend:
    """`handle.HandleBackend` of one host."""

    def __init__(self, seams: BackendSeams) -> None:
        self._seams = seams
        self._later = seams.later

    def waiting_pods(self, plugin: str, only_mine: bool) -> list[WaitingPod]:
        """Pods held at Permit."""
        return self._seams.waiting_pods.list(plugin if only_mine else None)

    def allow(self, plugin: str, uid: str, cycle_id: str, holder: str) -> Decision:
        """End the wait of `holder`; empty: the plugin's own."""
        return self._seams.waiting_pods.allow(plugin, uid, cycle_id, holder)

    def reject(self, plugin: str, uid: str, cycle_id: str, message: str) -> Decision:
        """Send the pod back, whichever part holds it."""
        return self._seams.waiting_pods.reject(plugin, uid, cycle_id, message)

    def cancel_binding(self, plugin: str, uid: str, cycle_id: str, message: str) -> Cancellation:
        """Take the node from a pod while its PreBind plugins run."""
        reason = f'cancelled by plugin "{plugin}"'
        return self._later.binding.cancel(uid, cycle_id, f"{reason}: {message}" if message else reason)

    def objects(self, resource: str) -> ObjectReader:
        """The objects of a resource."""
        return self._seams.objects.of_resource(resource)

    def snapshot(self) -> NodeTable:
        """The snapshot as it stands."""
        return self._seams.snapshot.nodes

    def evaluate_preemption(
        self, plugin: str, cycle_id: str, percentage: int, absolute: int
    ) -> Awaitable[PostFilterResult]:
        """The node on which to make room for the pod of a cycle, and the victims."""
        return self._seams.open_calls.evaluate_preemption(plugin, cycle_id, percentage, absolute)

    def run_scores(self, plugin: str, cycle_id: str, node_names: Sequence[str]) -> Awaitable[NodeScores]:
        """How good these nodes are for the pod of a cycle."""
        return self._seams.open_calls.run_scores(plugin, cycle_id, node_names)

    def nominated_pods(self, plugin: str, node_names: Iterable[str] | None) -> list[NominatedPod]:
        """The pods that are promised one of these nodes, or any."""
        nominator = self._later.queue.nominator
        names = sorted(nominator.by_node()) if node_names is None else dict.fromkeys(node_names)
        return [NominatedPod(pod=pod, node_name=name) for name in names for pod in nominator.on_node(name)]

    def nominate(self, plugin: str, uid: str, node_name: str | None) -> Nomination:
        """Promise a pending pod a node."""
        seams, queue = self._seams, self._later.queue
        pod = seams.objects.pod_by_uid(uid)
        # An assumed pod counts on its node already. The end of another scheduler's pod would not be heard of.
        if (
            pod is None
            or pod.node_name
            or pod.scheduler_name not in self._later.scheduler.profiles
            or seams.cache.is_assumed(uid)
        ):
            return Nomination.NOT_PENDING
        if node_name and seams.objects.node(node_name) is None:
            return Nomination.UNKNOWN_NODE
        queue.nominate(pod, node_name)
        log.info("pod.nominated_by_plugin", pod=pod.key, plugin=plugin, node=queue.nominator.node_of(uid))
        return Nomination.APPLIED

    def requeue(
        self, plugin: str, uids: Iterable[str] | None, reason: str, skip_backoff: bool, asking: str = ""
    ) -> int:
        """Try these pods again, and drop what is kept of the plugin's answers; how many moved."""
        self._later.clients.forget(plugin, asking)
        wanted = None if uids is None else frozenset(uids)
        return self._later.queue.requeue(PluginRequest(plugin=plugin, uids=wanted, skip_backoff=skip_backoff))

    def invalidate_sort_keys(self, plugin: str, uids: Iterable[str] | None) -> None:
        """The sort keys of these pods are stale."""
        self._later.queue.invalidate_sort_keys(None if uids is None else frozenset(uids))

    def record_event(
        self, plugin: str, regarding: ObjectRef, type: str, reason: str, action: str, note: str
    ) -> bool:
        """Write an event in the background."""
        pod = self._seams.objects.pod_by_uid(regarding.uid) or self._seams.objects.pod(regarding.key)
        if pod is None:
            return False
        self._seams.status.event(pod, type, reason, action, note)
        return True
