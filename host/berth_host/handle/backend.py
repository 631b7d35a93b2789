"""`HandleBackend`: the host as handles see it. Implemented by `host_backend.Backend`.

Every call is made on the loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Protocol

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

from berth_host.errors import HostError


class NoOpenCallError(HostError):
    """None of the calls of that plugin in which it may ask so is open in that cycle."""


class QuestionUnderWayError(HostError):
    """The plugin asks the same already."""


class UnknownNodesError(HostError):
    """A node was asked for that the snapshot does not have."""


class HandleBackend(Protocol):
    """One host. `plugin` is always the caller's name; a handle cannot speak for another plugin."""

    def waiting_pods(self, plugin: str, only_mine: bool) -> list[WaitingPod]:
        """Pods held at Permit, in the order in which they began to wait."""
        ...

    def allow(self, plugin: str, uid: str, cycle_id: str, holder: str) -> Decision:
        """End the wait of `holder`; empty: the plugin's own."""
        ...

    def reject(self, plugin: str, uid: str, cycle_id: str, message: str) -> Decision:
        """Send the pod back; the plugins that hold it are overruled."""
        ...

    def cancel_binding(self, plugin: str, uid: str, cycle_id: str, message: str) -> Cancellation:
        """Take the node from a pod while its PreBind plugins run. An empty `cycle_id` means any cycle."""
        ...

    def objects(self, resource: str) -> ObjectReader:
        """The objects of a resource. The SDK hands a plugin those that it declared."""
        ...

    def snapshot(self) -> NodeTable:
        """The snapshot as it stands."""
        ...

    def evaluate_preemption(
        self, plugin: str, cycle_id: str, percentage: int, absolute: int
    ) -> Awaitable[PostFilterResult]:
        """The node to make room on for the pod of a cycle, and the victims; both limits 0: the defaults.

        Raises NoOpenCallError.
        """
        ...

    def run_scores(self, plugin: str, cycle_id: str, node_names: Sequence[str]) -> Awaitable[NodeScores]:
        """How good these nodes are for the pod of a cycle.

        Raises NoOpenCallError, QuestionUnderWayError and UnknownNodesError.
        """
        ...

    def nominated_pods(self, plugin: str, node_names: Iterable[str] | None) -> list[NominatedPod]:
        """The pods that are promised one of these nodes, or (None) any; node by node."""
        ...

    def nominate(self, plugin: str, uid: str, node_name: str | None) -> Nomination:
        """Promise a pending pod a node that exists; None: the one in its status; "": none."""
        ...

    def requeue(
        self, plugin: str, uids: Iterable[str] | None, reason: str, skip_backoff: bool, asking: str = ""
    ) -> int:
        """Try these pods again, or (None) all that the plugin rejected; how many moved. `asking`: the
        attachment of the instance that asks; empty: the plugin is in the host.
        """
        ...

    def invalidate_sort_keys(self, plugin: str, uids: Iterable[str] | None) -> None:
        """The plugin's sort keys of these pods, or (None) of all, are stale."""
        ...

    def record_event(
        self, plugin: str, regarding: ObjectRef, type: str, reason: str, action: str, note: str
    ) -> bool:
        """Write an event about a pod in the background; False if it was dropped."""
        ...
