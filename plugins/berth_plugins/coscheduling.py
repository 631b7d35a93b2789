"""Coscheduling: pod groups as scheduler-plugins' coscheduling has them, for users of its PodGroup API.

A pod names its group with the label `scheduling.x-k8s.io/pod-group`. The group is a PodGroup of
`scheduling.x-k8s.io/v1alpha1` with minMember, minResources and scheduleTimeoutSeconds. The host schedules the
group as it does a PodGroup of Kubernetes: as one entry of the queue, in one cycle, all of its minimum or
nothing. So members never wait for each other with nodes reserved. The host also writes the group's status.

The class has the points at which profiles for coscheduling enable it. Some have nothing to do here: the
number of members is judged at PlacementFeasible, which needs no entry of a profile.
Source: scheduler-plugins `pkg/coscheduling`, v0.31; its KEP-42.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest, Hint
from berth_sdk.gang_policy import POLICY_KEY, GangPolicy
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_group import COSCHEDULING, PodGroup
from berth_sdk.results import NodeRejections, PreFilterResult, QueuedPod
from berth_sdk.sort_keys import descending, integer, join, time
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable

from berth_plugins.args.findings import Findings, mapping
from berth_plugins.args.findings import integer as integer_arg
from berth_plugins.args.gates import KEY
from berth_plugins.gang_scheduling import GangScheduling

PERMIT_WAIT: Final = "permitWaitingTimeSeconds"
BACKOFF: Final = "podGroupBackoffSeconds"
_ARGUMENTS: Final = frozenset({PERMIT_WAIT, BACKOFF, KEY, POLICY_KEY, "apiVersion", "kind"})
_DEFAULT_WAIT_S: Final = 60
_PODS: Final = "pods"
_GAP: Final = "gap"


class Coscheduling(GangScheduling):
    """Holds the pods of a PodGroup back until `minMember` of them exist and have a node.

    Arguments: `permitWaitingTimeSeconds` (60), the longest wait at Permit, for a group without
    scheduleTimeoutSeconds; `podGroupBackoffSeconds` (0), accepted: the queue backs off with the group.
    The host adds the arguments of GangScheduling, if the profile has any.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({COSCHEDULING})
    minimum: ClassVar[str] = "minMember"
    follows_kubernetes: ClassVar[bool] = False
    needs: Sequence[Need] = (Need.nodes(), Need.objects("scheduling.x-k8s.io/podgroups"))
    events: Sequence[EventInterest] | None = (
        EventInterest("Pod", ("add",), Hint.ASK_PLUGIN),
        EventInterest("podgroups.v1alpha1.scheduling.x-k8s.io", ("add", "update"), Hint.ASK_PLUGIN),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """Read the arguments. Raises PluginArgsError."""
        super().__init__(args, handle)
        self._policy = GangPolicy.of(mapping(args, POLICY_KEY, POLICY_KEY) or {})
        findings = Findings()
        wait = args.get(PERMIT_WAIT)
        self._wait_s = _DEFAULT_WAIT_S if wait is None else integer_arg(args, PERMIT_WAIT, PERMIT_WAIT)
        if self._wait_s < 0:
            findings.invalid(PERMIT_WAIT, self._wait_s, "must be greater than or equal to 0")
        backoff = integer_arg(args, BACKOFF, BACKOFF)
        if backoff < 0:
            findings.invalid(BACKOFF, backoff, "must be greater than or equal to 0")
        for name in sorted(args.keys() - _ARGUMENTS):
            findings.forbidden(name, f"is no argument: leave it out, or use one of {PERMIT_WAIT}, {BACKOFF}")
        findings.check()

    def sort_key(self, pod: QueuedPod) -> bytes:
        """Return the priority, descending, then when the group was created, or the pod entered the queue."""
        group = pod.group
        made_s = pod.added_at_s if group is None or group.created_s is None else group.created_s
        return join(descending(integer(pod.pod.priority)), time(made_s))

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult | Status:
        """Reject the members while all nodes together lack what minResources asks for; else SKIP."""
        if not self._is_mine(pod.group_key) or state.placement is None:
            return Status.skip()
        # Once for all members of a trial: those that get a node take from what is free.
        gap = state.placement.get(_GAP)
        if gap is None:
            gap = self._gap(pod.group_key, nodes)
            state.placement.write(_GAP, gap)
        return Status.unschedulable(gap) if gap else Status.skip()

    def post_filter(self, state: CycleState, pod: Pod, rejections: NodeRejections) -> Status:
        """Return UNSCHEDULABLE: nothing waits that would have to be rejected."""
        return Status.unschedulable()

    def waiting_s(self, group: PodGroup) -> float:
        """Return the longest wait at Permit, in seconds."""
        configured_s = self._wait_s if group.wait_s is None else group.wait_s
        return replace(self._policy, timeout_s=configured_s).for_group(group)[0].timeout_s

    def _gap(self, key: str, nodes: NodeTable) -> str:
        """Return which of minResources the nodes lack; "" for none."""
        groups = self.handle.pod_groups()
        group, members = groups.object(key), groups.state(key)
        if group is None or members is None or group.min_resources is None:
            return ""
        there = (*members.assumed.values(), *members.assigned.values())
        lacking: list[str] = []
        for resource, amount in sorted({**group.min_resources, _PODS: group.min_count}.items()):
            used = nodes.pod_count if resource == _PODS else nodes.requested(resource)
            free = int((nodes.allocatable(resource) - used).clip(0).sum())
            # What members have already is theirs.
            free += sum(1 if resource == _PODS else pod.requests.get(resource, 0) for pod in there)
            if free < amount:
                lacking.append(f"{resource} {amount - free}{'m' if resource == 'cpu' else ''}")
        return f"resource gap: {', '.join(lacking)}" if lacking else ""
