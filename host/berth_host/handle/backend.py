"""`HandleBackend`: the host as handles see it. Implemented by `host_backend.Backend`.

Every call is made on the loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
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

from berth_host.errors import HostError


class NoOpenCallError(HostError):
    """No call of the plugin in which this question is allowed is open in that cycle."""


class QuestionUnderWayError(HostError):
    """Raised for a question that the host is already answering for the plugin."""


class UnknownNodesError(HostError):
    """The snapshot does not have a node that the question names."""


class UnknownPodError(HostError):
    """No node of the snapshot has a pod that the question names."""


class ScenarioError(HostError):
    """A scenario names what the snapshot lacks, or a new node that it has or that is not complete."""


class HandleBackend(Protocol):
    """One host. `plugin` is always the caller's name; a handle cannot speak for another plugin."""

    def waiting_pods(self, plugin: str, only_mine: bool) -> list[WaitingPod]:
        """Return the pods held at Permit, in the order in which they began to wait. `only_mine`: those that
        the plugin holds.
        """
        ...

    def allow(self, plugin: str, uid: str, cycle_id: str, holder: str) -> Decision:
        """End the wait of `holder`; empty: the plugin's own."""
        ...

    def reject(self, plugin: str, uid: str, cycle_id: str, message: str) -> Decision:
        """Send the pod back to the queue, whichever plugins hold it."""
        ...

    def cancel_binding(self, plugin: str, uid: str, cycle_id: str, message: str) -> Cancellation:
        """Cancel the binding cycle of a pod while its PreBind plugins run. An empty `cycle_id` means any
        cycle.
        """
        ...

    def objects(self, resource: str) -> ObjectReader:
        """Return the objects of a resource. The SDK lets a plugin read those that it declared."""
        ...

    def snapshot(self) -> NodeTable:
        """Return the nodes of the snapshot."""
        ...

    def pod_groups(self) -> PodGroupReader:
        """Return the groups of pods and their members now."""
        ...

    def evaluate_preemption(
        self, plugin: str, cycle_id: str, percentage: int, absolute: int
    ) -> Awaitable[PostFilterResult]:
        """Return the node on which to preempt for the pod of a cycle, and the victims. Both limits 0: the
        defaults.

        Raises NoOpenCallError.
        """
        ...

    def run_filters(
        self, plugin: str, cycle_id: str, scenarios: Sequence[Scenario]
    ) -> Awaitable[list[Status]]:
        """Return per scenario SUCCESS or the first rejection of the other plugins.

        The awaitable raises NoOpenCallError and ScenarioError.
        """
        ...

    def run_scores(self, plugin: str, cycle_id: str, node_names: Sequence[str]) -> Awaitable[NodeScores]:
        """Return the scores of these nodes for the pod of a cycle.

        Raises NoOpenCallError, QuestionUnderWayError and UnknownNodesError.
        """
        ...

    def nominated_pods(self, plugin: str, node_names: Iterable[str] | None) -> list[NominatedPod]:
        """Return the pods that are nominated to one of these nodes, or (None) to any, node by node."""
        ...

    def nominate(self, plugin: str, uid: str, node_name: str | None) -> Nomination:
        """Nominate a pending pod to an existing node. None: to the node in its status; empty: to no node."""
        ...

    def requeue(
        self, plugin: str, uids: Iterable[str] | None, reason: str, skip_backoff: bool, asking: str = ""
    ) -> int:
        """Requeue these pods, or (None) all pods that the plugin rejected; return how many moved. `asking`:
        the attachment of the instance that asks; empty: an in-process plugin asks.
        """
        ...

    def invalidate_sort_keys(self, plugin: str, uids: Iterable[str] | None) -> None:
        """Drop the plugin's sort keys of these pods, or (None) of all pods."""
        ...

    def record_event(
        self, plugin: str, regarding: ObjectRef, type: str, reason: str, action: str, note: str
    ) -> bool:
        """Write a Kubernetes Event about a pod in the background; return False if it was dropped."""
        ...
