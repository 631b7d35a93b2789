"""A plugin that rejects each pod once, and waits for a change of the kinds that no default plugin owns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable


class SecondTry(Plugin):
    """Rejects a pod at its first attempt."""

    events: Sequence[EventInterest] | None = tuple(
        map(
            EventInterest,
            (
                "Service",
                "ReplicationController",
                "apps/ReplicaSet",
                "apps/StatefulSet",
                "policy/PodDisruptionBudget",
                "scheduling.k8s.io/PriorityClass",
            ),
        )
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._seen: set[str] = set()

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """See the module."""
        if pod.uid in self._seen:
            return Status.success()
        self._seen.add(pod.uid)
        return Status.unschedulable("not at the first try")
