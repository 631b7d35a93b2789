"""Coscheduling: pod groups as scheduler-plugins' coscheduling has them, for users of its PodGroup API.

A pod names its group with the label `scheduling.x-k8s.io/pod-group`. The group is a PodGroup of
`scheduling.x-k8s.io/v1alpha1` with minMember, minResources and scheduleTimeoutSeconds. The host schedules the
group as it does a PodGroup of Kubernetes: as one entry of the queue, in one cycle, all of its minimum or
nothing. So members never wait for each other with nodes reserved. The host also writes the group's status.

The class has the points at which profiles for coscheduling enable it. Most of them have nothing to do here:
the group is judged at PlacementFeasible.
Source: scheduler-plugins `pkg/coscheduling`, v0.31; its KEP-42.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest, Hint
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_group import COSCHEDULING, GroupView, PlacementProgress, PodGroup
from berth_sdk.results import NodeRejections, PreFilterResult, QueuedPod
from berth_sdk.sort_keys import descending, integer, join, time
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable

from berth_plugins.args.findings import Findings
from berth_plugins.args.findings import integer as integer_arg
from berth_plugins.gang_scheduling import GangScheduling

PERMIT_WAIT: Final = "permitWaitingTimeSeconds"
BACKOFF: Final = "podGroupBackoffSeconds"
_DEFAULT_WAIT_S: Final = 60
_PODS: Final = "pods"


class Coscheduling(GangScheduling):
    """Holds the pods of a PodGroup back until `minMember` of them exist and have a node.

    Arguments: `permitWaitingTimeSeconds` (60), the longest wait at Permit, for a group without
    scheduleTimeoutSeconds; `podGroupBackoffSeconds` (0), accepted: the queue backs off with the group.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({COSCHEDULING})
    minimum: ClassVar[str] = "minMember"
    needs: ClassVar[Sequence[Need]] = (Need.nodes(), Need.objects("scheduling.x-k8s.io/podgroups"))
    events: ClassVar[Sequence[EventInterest] | None] = (
        EventInterest("Pod", ("add",), Hint.ASK_PLUGIN),
        EventInterest("podgroups.v1alpha1.scheduling.x-k8s.io", ("add", "update"), Hint.ASK_PLUGIN),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """Read the arguments. Raises PluginArgsError."""
        super().__init__(args, handle)
        findings = Findings()
        wait = args.get(PERMIT_WAIT)
        self._wait_s = _DEFAULT_WAIT_S if wait is None else integer_arg(args, PERMIT_WAIT, PERMIT_WAIT)
        if self._wait_s < 0:
            findings.invalid(PERMIT_WAIT, self._wait_s, "must be greater than or equal to 0")
        backoff = integer_arg(args, BACKOFF, BACKOFF)
        if backoff < 0:
            findings.invalid(BACKOFF, backoff, "must be greater than or equal to 0")
        findings.check()

    def sort_key(self, pod: QueuedPod) -> bytes:
        """Return the priority, descending, then when the group was created, or the pod entered the queue."""
        group = pod.group
        made_s = pod.added_at_s if group is None or group.created_s is None else group.created_s
        return join(descending(integer(pod.pod.priority)), time(made_s))

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult | Status:
        """Return SKIP: a member is tried only in the cycle of its group."""
        return Status.skip()

    def post_filter(self, state: CycleState, pod: Pod, rejections: NodeRejections) -> Status:
        """Return UNSCHEDULABLE: nothing waits that would have to be rejected."""
        return Status.unschedulable()

    def placement_feasible(self, state: CycleState, group: GroupView, progress: PlacementProgress) -> Status:
        """Judge the number of members as GangScheduling does; before the first one also minResources."""
        status = super().placement_feasible(state, group, progress)
        if group.group.kind in self.kinds and progress.remaining == len(group.pods):
            lacks = self._lacking(group)
            if lacks:
                return Status.unschedulable(lacks)
        return status

    def waiting_s(self, group: PodGroup) -> float:
        """Return the longest wait at Permit, in seconds."""
        return self._wait_s if group.wait_s is None else group.wait_s

    def _lacking(self, group: GroupView) -> str:
        """Return which of minResources all nodes together lack; "" for none."""
        wanted = group.group.min_resources
        if wanted is None:
            return ""
        nodes = self.handle.snapshot()
        gap: list[str] = []
        for resource, amount in sorted({**wanted, _PODS: group.group.min_count}.items()):
            if resource == _PODS:
                free = nodes.allocatable(_PODS) - nodes.pod_count
            else:
                free = nodes.allocatable(resource) - nodes.requested(resource)
            there = int(free.clip(0).sum())
            # What members have already is theirs.
            there += sum(1 if resource == _PODS else pod.requests.get(resource, 0) for pod in group.scheduled)
            if there < amount:
                unit = "m" if resource == "cpu" else ""
                gap.append(f"{resource} {amount - there}{unit}")
        return f"resource gap: {', '.join(gap)}" if gap else ""
