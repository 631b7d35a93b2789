"""`NoHost`: the backend of handles where no host runs: a framework alone, a configuration being checked.

Reads work on the snapshot; there are no waiting pods and no queue, and events go nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod_group import PodGroupReader
from berth_sdk.results import (
    Cancellation,
    Decision,
    NodeScores,
    NominatedPod,
    Nomination,
    PostFilterResult,
    WaitingPod,
)
from berth_sdk.scenarios import Scenario
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable

from berth_host.cache.pod_groups import GroupReader
from berth_host.handle.backend import NoOpenCallError


class Objects(Protocol):
    """The objects of the cluster, by resource."""

    def of_resource(self, resource: str) -> ObjectReader:
        """Return the objects of a resource."""
        ...


class NoHost:
    """A `HandleBackend` without a host."""

    def __init__(
        self, objects: Objects, nodes: Callable[[], NodeTable], groups: PodGroupReader | None = None
    ) -> None:
        """Read from these objects, nodes and groups. `groups` None: there are none."""
        self._objects = objects
        self._nodes = nodes
        self._groups = GroupReader() if groups is None else groups

    def waiting_pods(self, plugin: str, only_mine: bool) -> list[WaitingPod]:
        """Return no pods."""
        return []

    def allow(self, plugin: str, uid: str, cycle_id: str, holder: str) -> Decision:
        """Return NOT_WAITING."""
        return Decision.NOT_WAITING

    def reject(self, plugin: str, uid: str, cycle_id: str, message: str) -> Decision:
        """Return NOT_WAITING."""
        return Decision.NOT_WAITING

    def cancel_binding(self, plugin: str, uid: str, cycle_id: str, message: str) -> Cancellation:
        """Return NOT_IN_PRE_BIND."""
        return Cancellation.NOT_IN_PRE_BIND

    def objects(self, resource: str) -> ObjectReader:
        """Return the objects of any resource."""
        return self._objects.of_resource(resource)

    def snapshot(self) -> NodeTable:
        """Return the nodes of the snapshot."""
        return self._nodes()

    def pod_groups(self) -> PodGroupReader:
        """Return the pod groups."""
        return self._groups

    async def evaluate_preemption(
        self, plugin: str, cycle_id: str, percentage: int, absolute: int
    ) -> PostFilterResult:
        """Raise NoOpenCallError: there is no cycle."""
        raise NoOpenCallError(f"no PostFilter of {plugin} is open: no host runs")

    async def run_filters(self, plugin: str, cycle_id: str, scenarios: Sequence[Scenario]) -> list[Status]:
        """Raise NoOpenCallError: there is no cycle."""
        raise NoOpenCallError(f"no PostFilter of {plugin} is open: no host runs")

    async def run_scores(self, plugin: str, cycle_id: str, node_names: Sequence[str]) -> NodeScores:
        """Raise NoOpenCallError: there is no cycle."""
        raise NoOpenCallError(f"no call of {plugin} is open: no host runs")

    def nominated_pods(self, plugin: str, node_names: Iterable[str] | None) -> list[NominatedPod]:
        """Return no pods."""
        return []

    def nominate(self, plugin: str, uid: str, node_name: str | None) -> Nomination:
        """No pod is pending."""
        return Nomination.NOT_PENDING

    def requeue(
        self, plugin: str, uids: Iterable[str] | None, reason: str, skip_backoff: bool, asking: str = ""
    ) -> int:
        """There is no queue."""
        return 0

    def invalidate_sort_keys(self, plugin: str, uids: Iterable[str] | None) -> None:
        """There is no queue."""

    def record_event(
        self, plugin: str, regarding: ObjectRef, type: str, reason: str, action: str, note: str
    ) -> bool:
        """Drop the event."""
        return False
