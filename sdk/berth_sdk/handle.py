"""`Handle`: the calls that a plugin may make to the host, the same in process and remote.

Given to the plugin's `__init__`. Remote, each call is one short unary call to the host's HandleService
(waiting pods, requeue, events) or reads the synchronised copy (objects, snapshot).
Source: kube-scheduler `framework/interface.go` Handle, v1.36; there is no API proxy: effects are results.
"""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Iterable
from typing import Protocol

from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
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


class ObjectReader(Protocol):
    """The objects of one declared resource. `version` moves with any change of them."""

    @property
    def version(self) -> int:
        """Equal numbers: the same objects."""
        ...

    def get(self, name: str, namespace: str = "") -> KubeObject | None:
        """One object, or None."""
        ...

    def moved_since(self, version: int) -> builtins.list[tuple[str, str]] | None:
        """(namespace, name) of every object that came, changed or went after `version`, repeats included;
        None: that is too long ago, or of another store, so that everything may have changed.
        """
        ...

    def list(self, namespace: str | None = None) -> builtins.list[KubeObject]:
        """All objects, or one namespace's, by key."""
        ...


class Handle(Protocol):
    """Calls back to the host. All raise HandleError when the host cannot be reached."""

    def waiting_pods(self, *, only_mine: bool = False) -> list[WaitingPod]:
        """Pods held at Permit; `only_mine`: only pods that this plugin holds."""
        ...

    def allow(self, waiting: WaitingPod, plugin: str = "") -> Decision:
        """End the wait of one plugin; the pod goes on when no other plugin holds it (kube-scheduler:
        WaitingPod.Allow).

        `plugin`: whose wait, one of `waiting.pending_plugins`; empty: this plugin's own. NOT_PERMITTED: that
        plugin does not hold the pod, or `handle.permit` of the configuration does not name it.
        """
        ...

    def reject(self, waiting: WaitingPod, message: str = "") -> Decision:
        """Send the pod back to the queue: the waits of all plugins end (kube-scheduler: WaitingPod.Reject).

        NOT_PERMITTED: this plugin does not hold the pod, and the operator does not let it end the waits of
        all plugins that do (`handle.permit`).
        """
        ...

    def cancel_binding(self, pod: Pod, message: str = "", *, cycle_id: str = "") -> Cancellation:
        """Take the node from a pod whose PreBind plugins (this or others) are at work: its reservations are
        given back, and the pod is tried again after its backoff. `message`: why, for its owner; `cycle_id`:
        the cycle that is meant, empty: whichever is under way.
        """
        ...

    def objects(self, resource: str) -> ObjectReader:
        """The objects of a resource declared with Need.objects. Raises UndeclaredError for others."""
        ...

    def snapshot(self) -> NodeTable:
        """Every node as the current cycle sees it."""
        ...

    def evaluate_preemption(
        self,
        state: CycleState,
        *,
        min_candidate_nodes_percentage: int = 0,
        min_candidate_nodes_absolute: int = 0,
    ) -> PostFilterResult | Awaitable[PostFilterResult]:
        """The host's own preemption, for `post_filter`: which node becomes feasible by evicting which pods.

        It evicts no pod: `post_filter` returns this result, or another one. In process it is to be
        awaited, or returned as it is. `min_candidate_nodes_percentage` and `min_candidate_nodes_absolute`:
        candidates to find, the larger counts; both 0: 10 % and 100. Raises HandleError where no
        `post_filter` of this plugin is open.
        """
        ...

    def run_scores(self, state: CycleState, node_names: Iterable[str]) -> NodeScores | Awaitable[NodeScores]:
        """How good these nodes are for the cycle's pod: PreScore and Score of every Score plugin, this one
        too, over these nodes and no others, whether or not their Filters pass them (kube-scheduler:
        RunPreScorePlugins and RunScorePlugins).

        For `post_filter`, `reserve` and `permit`; in process it is to be awaited. Raises HandleError where
        none of these of this plugin is open, where scores are being run already, and for unknown nodes.
        """
        ...

    def list_nominated_pods(self, node_names: Iterable[str] | None = None) -> list[NominatedPod]:
        """The pods that are promised one of these nodes, or (None) any: node by node, on each in the order of
        nomination (kube-scheduler: NominatedPodsForNode).
        """
        ...

    def nominate(self, pod: Pod, node_name: str | None) -> Nomination:
        """Promise a pending pod a node in place of any other; None: the node that its status names; "": no
        node (kube-scheduler: AddNominatedPod, DeleteNominatedPodIfExists).

        It counts from the next cycle on, as if PostFilter had nominated the pod, until that is assumed on a
        node, bound or deleted, or an attempt for it fails, which has an outcome of its own. It stands in the
        host's memory alone: `status.nominatedNodeName` stays as it is, and wins when the pod is updated. For
        a lasting nomination answer it from `post_filter`. No pod is tried again because of it; see `requeue`.
        """
        ...

    def requeue(self, pods: Iterable[Pod] = (), *, reason: str = "", skip_backoff: bool = False) -> int:
        """Something this plugin depends on changed: try these pods again; none given: all that it
        rejected. Answers how many moved. What is kept of the plugin's answers is dropped.
        """
        ...

    def invalidate_sort_keys(self, pods: Iterable[Pod] = ()) -> None:
        """The keys given to these pods are stale; none given: all keys."""
        ...

    def record_event(
        self,
        regarding: ObjectRef,
        reason: str,
        note: str,
        *,
        action: str = "",
        type: str = "Normal",
    ) -> None:
        """Write a Kubernetes event about a pod."""
        ...
