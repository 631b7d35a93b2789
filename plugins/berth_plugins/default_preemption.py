"""DefaultPreemption: makes room for a pod or a pod group without a place, by evicting pods of lower priority.

Called at PostFilter, PodGroupPostFilter and PreEnqueue. The host does the search
(`Handle.evaluate_preemption`, `Tries.preempt`) and calls every Filter plugin with what-if questions. The host
evicts the victims, and sets `QueuedPod.victims_pending` meanwhile.

Source: `pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go`, v1.37.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ASSIGNED_POD, ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import Answer, DependsOn, Plugin
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_group import GroupView
from berth_sdk.results import NodeRejections, PodGroupPostFilterResult, PostFilterResult, QueuedPod, Tries
from berth_sdk.status import Status

from berth_plugins.args.findings import Findings, integer
from berth_plugins.args.gates import PLACEMENT_MESSAGE, is_on

WAITING: Final = Status.unresolvable("waiting for the preemption for this pod to be finished")
GROUP_WAITING: Final = Status.unresolvable("waiting for the preemption for this pod group to be finished")
_PERCENTAGE: Final = "minCandidateNodesPercentage"
_ABSOLUTE: Final = "minCandidateNodesAbsolute"
_DEFAULTS: Final = {_PERCENTAGE: 10, _ABSOLUTE: 100}


class DefaultPreemption(Plugin):
    """Nominates the node with the least harm, and gates the pod while its victims are evicted."""

    needs: Sequence[Need] = ()
    depends_on: DependsOn | None = DependsOn.OTHER
    # The hint never returns True: the event only makes the queue run PreEnqueue of a gated pod again.
    events: Sequence[EventInterest] | None = (EventInterest(ASSIGNED_POD, ("delete",), Hint.ASK_PLUGIN),)
    deadlines: ClassVar[Mapping[str, float]] = {"postFilter": 10.0}

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: DefaultPreemptionArgs. Raises PluginArgsError with every error in the arguments."""
        super().__init__(args, handle)
        given = {**_DEFAULTS, **{key: value for key, value in args.items() if value is not None}}
        self._percentage = integer(given, _PERCENTAGE, _PERCENTAGE)
        self._absolute = integer(given, _ABSOLUTE, _ABSOLUTE)
        findings = Findings()
        if not 0 <= self._percentage <= 100:
            findings.invalid(_PERCENTAGE, self._percentage, "not in valid range [0, 100]")
        if self._absolute < 0:
            findings.invalid(_ABSOLUTE, self._absolute, "not in valid range [0, inf)")
        if self._percentage == self._absolute == 0:
            findings.invalid(_PERCENTAGE, 0, f"cannot be zero at the same time as {_ABSOLUTE}")
            findings.invalid(_ABSOLUTE, 0, f"cannot be zero at the same time as {_PERCENTAGE}")
        findings.check()
        self._names_placement = is_on(args, PLACEMENT_MESSAGE, default=True)

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        """Return UNSCHEDULABLE_AND_UNRESOLVABLE while the host evicts pods for this one or its group."""
        if not pod.victims_pending:
            return Status.success()
        return GROUP_WAITING if pod.pod.group_key else WAITING

    def post_filter(
        self, state: CycleState, pod: Pod, rejections: NodeRejections
    ) -> Answer[PostFilterResult]:
        """Return the result of the host's preemption, with `preemption: ` before its message."""
        found = self.handle.evaluate_preemption(
            state,
            min_candidate_nodes_percentage=self._percentage,
            min_candidate_nodes_absolute=self._absolute,
        )
        return self._signed_later(found) if inspect.isawaitable(found) else self._signed(found)

    def pod_group_post_filter(
        self, state: CycleState, group: GroupView, tries: Tries
    ) -> Answer[PodGroupPostFilterResult | Status | None]:
        """Return the result of the host's preemption, with `pod group preemption: ` before its message."""
        found = tries.preempt()
        return _group_signed_later(found) if inspect.isawaitable(found) else _group_signed(found)

    def sign_queue(self, pod: Pod) -> Hashable:
        """Return whether the pod has a group: only that and the eviction of victims counts."""
        return bool(pod.group_key)

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return False: the plugins that rejected the pod decide whether room helps the pod."""
        return False

    async def _signed_later(self, found: Awaitable[PostFilterResult]) -> PostFilterResult:
        return self._signed(await found)

    def _signed(self, found: PostFilterResult) -> PostFilterResult:
        message = found.status.message
        if self._names_placement and found.status.is_success:
            message = (
                f"found a potential placement for pod on node {found.nominated_node}, "
                f"preempting {len(found.victims)} victims"
            )
        if not message:
            return found
        status = Status(found.status.code, (f"preemption: {message}",))
        return PostFilterResult(status, found.nominated_node, found.clear_nomination, found.victims)


async def _group_signed_later(found: Awaitable[PodGroupPostFilterResult]) -> PodGroupPostFilterResult:
    return _group_signed(await found)


def _group_signed(found: PodGroupPostFilterResult) -> PodGroupPostFilterResult:
    if not found.status.message:
        return found
    text = f"pod group preemption: {found.status.message}"
    return replace(found, status=Status(found.status.code, (text,)))
