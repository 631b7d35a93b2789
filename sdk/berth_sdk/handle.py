"""`Handle`: the calls that a plugin may make to the host, the same for in-process and served plugins.

The plugin's `__init__` gets the handle. For a served plugin, each call is one short unary RPC to the host's
HandleService (waiting pods, requeue, events), or reads the plugin's synchronised copy (objects, snapshot).
The handle has no API proxy: a plugin returns effects as results.

Source: kube-scheduler `framework/interface.go` Handle, v1.36.
"""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Iterable
from typing import Protocol

from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
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


class ObjectReader(Protocol):
    """The objects of one declared resource. `version` increases with every change of the objects."""

    @property
    def version(self) -> int:
        """The version of the objects. Equal versions mean equal objects."""
        ...

    def get(self, name: str, namespace: str = "") -> KubeObject | None:
        """Return one object, or None."""
        ...

    def moved_since(self, version: int) -> builtins.list[tuple[str, str]] | None:
        """Return (namespace, name) of every object added, changed or deleted after `version`, with repeats.

        None: `version` is too old, or from another store, so any object may have changed.
        """
        ...

    def list(self, namespace: str | None = None) -> builtins.list[KubeObject]:
        """Return all objects, or the objects of one namespace, sorted by key."""
        ...


class Handle(Protocol):
    """A plugin's calls to the host. All methods raise HandleError when the host cannot be reached."""

    def waiting_pods(self, *, only_mine: bool = False) -> list[WaitingPod]:
        """Return the pods that wait at Permit. `only_mine`: only the pods that this plugin holds."""
        ...

    def allow(self, waiting: WaitingPod, plugin: str = "") -> Decision:
        """End the wait of one plugin (kube-scheduler: WaitingPod.Allow).

        The pod continues when no other plugin holds it. `plugin`: the plugin whose wait ends, one of
        `waiting.pending_plugins`; empty: this plugin. NOT_PERMITTED: that plugin does not hold the pod, or
        `handle.permit` of the configuration does not name that plugin.
        """
        ...

    def reject(self, waiting: WaitingPod, message: str = "") -> Decision:
        """End the waits of all plugins and send the pod back to the queue (kube-scheduler:
        WaitingPod.Reject).

        NOT_PERMITTED: this plugin does not hold the pod, and `handle.permit` of the configuration does not
        let this plugin end the waits of all plugins that hold the pod.
        """
        ...

    def cancel_binding(self, pod: Pod, message: str = "", *, cycle_id: str = "") -> Cancellation:
        """Cancel the binding of a pod while PreBind plugins (this one or others) work on the pod.

        The host undoes the pod's reservations and tries the pod again after its backoff. `message`: the
        reason, shown to the pod's owner. `cycle_id`: the cycle to cancel; empty: the current one.
        """
        ...

    def objects(self, resource: str) -> ObjectReader:
        """Return the objects of a resource declared with Need.objects. Raises UndeclaredError for other
        resources.
        """
        ...

    def snapshot(self) -> NodeTable:
        """Return the table of all nodes, as the current cycle sees them."""
        ...

    def pod_groups(self) -> PodGroupReader:
        """Return the groups of pods and their members as the host knows them now, not as the cycle sees them.

        For all points, PreEnqueue among them (kube-scheduler: PodGroupManager).
        """
        ...

    def evaluate_preemption(
        self,
        state: CycleState,
        *,
        min_candidate_nodes_percentage: int = 0,
        min_candidate_nodes_absolute: int = 0,
    ) -> PostFilterResult | Awaitable[PostFilterResult]:
        """Run the host's own preemption, for `post_filter`: find a node that evicting pods would make
        feasible.

        The host evicts no pod until `post_filter` returns this result or another one. In process, await the
        result or return it as it is. `min_candidate_nodes_percentage` and `min_candidate_nodes_absolute`: the
        number of candidates to find, the larger one counts; both 0: 10 % and 100. Raises HandleError outside
        of a `post_filter` call of this plugin.
        """
        ...

    def run_filters(
        self, state: CycleState, scenarios: Iterable[Scenario]
    ) -> list[Status] | Awaitable[list[Status]]:
        """Ask the Filter plugins of the profile, except this one, about scenarios, for `post_filter`.

        Returns one status per scenario: SUCCESS, or the first rejection in the configured order of the
        plugins (kube-scheduler: RunFilterPluginsWithNominatedPods). A scenario is a node of the snapshot
        without some pods and with others, or a node that does not exist (`Scenario.node`), which is judged as
        if the cluster had it. In process, await the result. Raises HandleError outside of a `post_filter`
        call of this plugin, for nodes and pods that the snapshot lacks, and for a new node that it has.
        """
        ...

    def run_scores(self, state: CycleState, node_names: Iterable[str]) -> NodeScores | Awaitable[NodeScores]:
        """Score these nodes for the cycle's pod with every Score plugin, this one included.

        The host runs PreScore and Score over these nodes and no others, whether or not their Filters pass
        them (kube-scheduler: RunPreScorePlugins and RunScorePlugins). For `post_filter`, `reserve` and
        `permit`; in process, await the result. Raises HandleError outside of these calls of this plugin,
        while another `run_scores` runs, and for unknown nodes.
        """
        ...

    def list_nominated_pods(self, node_names: Iterable[str] | None = None) -> list[NominatedPod]:
        """Return the pods nominated to these nodes, or (None) to any node.

        The list is sorted by node, on each node in the order of nomination (kube-scheduler:
        NominatedPodsForNode).
        """
        ...

    def nominate(self, pod: Pod, node_name: str | None) -> Nomination:
        """Nominate a pending pod to a node, in place of any other node (kube-scheduler: AddNominatedPod,
        DeleteNominatedPodIfExists).

        `node_name`: None: the node in the pod's status; "": no node. The nomination counts from the next
        cycle on, as if PostFilter had nominated the pod. It ends when the pod is assumed on a node, bound or
        deleted, or when an attempt for the pod fails: a failed attempt makes its own nomination. Only the
        host's memory holds the nomination: `status.nominatedNodeName` does not change, and wins when the pod
        is updated. For a lasting nomination, return it from `post_filter`. A nomination requeues no pod; see
        `requeue`.
        """
        ...

    def requeue(self, pods: Iterable[Pod] = (), *, reason: str = "", skip_backoff: bool = False) -> int:
        """Requeue these pods, because something that this plugin depends on has changed.

        No pods given: all pods that this plugin rejected. The host drops the plugin's kept answers. Returns
        how many pods moved.
        """
        ...

    def invalidate_sort_keys(self, pods: Iterable[Pod] = ()) -> None:
        """Mark the sort keys of these pods as stale. No pods given: all keys."""
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
        """Write a Kubernetes Event about a pod."""
        ...
