"""NodePorts: a host port can be used once per node and address. Called at PreFilter and Filter.

Source: `pkg/scheduler/framework/plugins/nodeports/node_ports.go` and `HostPortInfo` in
`pkg/scheduler/framework/types.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ASSIGNED_POD, ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import Account, DependsOn, NoConcern, NodeColumn, Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable, PodTable
from berth_sdk.tables.pod_changes import PORTS_COLUMN, normalized_ports
from berth_sdk.tables.used_ports import UsedPorts
from numpy.typing import NDArray

from berth_plugins.objects.of_events import as_pod, holds_place

REASON: Final = Status.unschedulable("node(s) didn't have free ports for the requested pod ports")


class NodePorts(Plugin):
    """Rejects nodes where a port that the pod claims is in use."""

    # A what-if question leaves pods on the node, whose priorities count: see `filter_scenarios`.
    needs: Sequence[Need] = (Need.nodes(), Need.pods())
    accounts: ClassVar[Sequence[Account]] = (Account.HOST_PORTS,)
    depends_on: DependsOn | None = DependsOn.ROW
    reads: Sequence[NodeColumn] | None = (NodeColumn.HOST_PORTS,)
    sign_fields: Sequence[PodField] | None = (PodField.HOST_PORTS, PodField.PRIORITY)
    events: Sequence[EventInterest] | None = (
        EventInterest(ASSIGNED_POD, ("delete",), Hint.ASK_PLUGIN),
        EventInterest("Node", ("add",)),
    )

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return the ports, and the priority: a what-if question tells by it which pods might hold the ports
        again.
        """
        return (pod.host_ports, pod.priority) if pod.host_ports else NoConcern.CYCLE

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Return SKIP for a pod without host ports."""
        return Status.success() if pod.host_ports else Status.skip()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Return unschedulable where a port conflicts with a port in use."""
        return Verdicts.reject_where(_taken(pod, nodes), REASON)

    def count_copies(self, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n]: one pod for each node, as the next one claims the same ports."""
        return np.ones(len(nodes), dtype=np.int64)

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Verdicts:
        """Return the verdicts of Filter for changed nodes.

        A removed pod frees its ports even if another pod also uses them, as in kube-scheduler's NodeInfo. But
        a preemption removes every pod of lower priority and then adds some of them again, which use their
        ports again.
        """
        taken = _taken(pod, scenarios.nodes)
        if len(scenarios.removed):
            taken |= _held_by_lower(pod, scenarios)
        return Verdicts.reject_where(taken, REASON)

    def sign_queue(self, pod: Pod) -> Hashable:
        """Return the ports."""
        return pod.host_ports

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if a pod that occupied a node, or was nominated, was deleted and this pod claims one of
        its ports.
        """
        gone = as_pod(event.old)
        if not holds_place(gone):
            return False
        return UsedPorts(gone.host_ports).conflict_with(pod.host_ports)


def _taken(pod: Pod, nodes: NodeTable) -> NDArray[np.bool_]:
    """Return bool[n]: where a port that the pod claims conflicts with a port in use."""
    # A copy: `filter_scenarios` adds to it.
    return nodes.ports_taken({port.normalized for port in pod.host_ports}).copy()


def _held_by_lower(pod: Pod, scenarios: Scenarios) -> NDArray[np.bool_]:
    """Return bool[m]: where a remaining pod of lower priority has a port in conflict."""
    pods, rows = scenarios.pods, scenarios.nodes.slots
    in_conflict = np.flatnonzero(_in_conflict(pod, pods))
    held = np.bincount(pods.node_index[in_conflict], minlength=int(rows.max(initial=-1)) + 1)[rows]
    removed = scenarios.removed
    leaving = removed.total(_in_conflict(pod, removed.table).astype(np.int64))
    stays: NDArray[np.bool_] = held > leaving
    return stays


def _in_conflict(pod: Pod, pods: PodTable) -> NDArray[np.bool_]:
    """Return bool[p]: the pods of lower priority with a port in conflict with a port of `pod`."""
    codes, sets = pods.encoded(PORTS_COLUMN, normalized_ports)
    wanted = UsedPorts(pod.host_ports)
    clash = sets.where(wanted.conflict_with)
    found: NDArray[np.bool_] = clash.take(codes) & (pods.priority < pod.priority)
    return found
