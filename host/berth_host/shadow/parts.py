"""The parts of a shadow in place of a host's that write: no status, no eviction, no binding cycle.

`shadow.host` makes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.results import PostFilterResult

from berth_host.attempt.call_record import Changes
from berth_host.attempt.cycle import Cycle, CycleEnd
from berth_host.cycle.attempt import Attempt, Failure
from berth_host.cycle.pod_status import PodStatusWriter
from berth_host.cycle.schedule_one import BindingCycle
from berth_host.explain.diagnosis import Outcome
from berth_host.groups.group_status import GroupStatusWriter
from berth_host.plugins.clients import PointPlugins
from berth_host.preemption.evictions import Evictions, EvictionSeams
from berth_host.preemption.preemptor import Preemptor
from berth_host.preemption.victim_calls import VictimCalls
from berth_host.shadow.record import ShadowRecord

_ACTING: Final = frozenset(
    {
        ExtensionPoint.RESERVE,
        ExtensionPoint.PERMIT,
        ExtensionPoint.PRE_BIND,
        ExtensionPoint.BIND,
        ExtensionPoint.POST_BIND,
    }
)
"""The points that act on a decision. Unreserve belongs to Reserve, PreBindPreFlight to PreBind."""


def deciding_plugins(plugins: Mapping[str, PointPlugins]) -> dict[str, PointPlugins]:
    """Return the plugins by schedulerName and point, without those at points that act on a decision."""
    return {
        name: {point: [] if point in _ACTING else listed for point, listed in points.items()}
        for name, points in plugins.items()
    }


class SilentStatus(PodStatusWriter):
    """Writes no condition, no nomination and no event."""

    def attempt_failed(self, pod: Pod, failure: Failure) -> None:
        """Do nothing."""

    def refused(self, pod: Pod, message: str) -> None:
        """Do nothing."""

    def event(
        self,
        pod: Pod,
        type: str,
        reason: str,
        action: str,
        note: str,
        related: ObjectRef | None = None,
        related_kind: str = "Pod",
    ) -> None:
        """Do nothing."""

    async def nominate(self, pod: Pod, node_name: str) -> None:
        """Do nothing."""


class SilentGroupStatus(GroupStatusWriter):
    """Writes no condition of a group."""

    def attempted(self, group: PodGroup, *, placed: bool, reason: str, message: str) -> None:
        """Do nothing."""


class ImaginedEvictions(Evictions):
    """Evicts nobody; `record` gets the victims."""

    def __init__(
        self, calls: VictimCalls, status: PodStatusWriter, seams: EvictionSeams, record: ShadowRecord
    ) -> None:
        super().__init__(calls, status, seams)
        self._record = record

    def nominate(self, cycle: Cycle, plugin: str, result: PostFilterResult) -> None:
        """Note the victims; leave the pod's nomination as it is."""
        self.evict(Preemptor.of_pod(cycle.pod, result.nominated_node), plugin, result.victims)

    def evict(
        self,
        preemptor: Preemptor,
        plugin: str,
        victims: Iterable[ObjectRef],
        changes: asyncio.Future[None] | None = None,
        *,
        disruptions: Mapping[str, int] = MappingProxyType({}),
        budget_violations: int = 0,
    ) -> None:
        """Note the victims."""
        named = tuple(ref.key for ref in victims)
        for pod in preemptor.pods:
            self._record.victims[pod.uid] = named

    def change(self, pods: Sequence[Pod], changes: Sequence[Changes]) -> None:
        """Do nothing: the changes that plugins ask for are writes."""


class Deciding(BindingCycle):
    """The end of attempts without a binding cycle: a pod with a node stays assumed until the real outcome."""

    def __init__(self, *parts: Any, passed_over: Callable[[str], None]) -> None:
        """Make it of the `parts` of a BindingCycle. `passed_over`: called with the uid of a pod for which no
        attempt is made.
        """
        super().__init__(*parts)
        self._passed_over = passed_over

    def start(self, attempt: Attempt) -> None:
        """Record the decision, and end the cycle at the plugins."""
        self._queue.done(attempt.pod.uid)
        attempt.framework.end_cycle(attempt, CycleEnd.ABORTED)
        self._record(attempt, Outcome.DECIDED, "")
        self._observer.ended(attempt)

    def skip_deleting(self, pod: Pod) -> None:
        """Note the end of an attempt that was not made: the pod is being deleted."""
        self._passed_over(pod.uid)
