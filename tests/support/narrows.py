"""Plugins whose PreFilter decides about nodes as a label of the pod says, and which have no Filter.

The label has the plugin's name. Values: `skip`; `none` (no node is eligible); `no` and `never` (the pod is
rejected, as UNSCHEDULABLE and for good); `crowded` (UNSCHEDULABLE while more than one pod runs); else the
eligible nodes, joined by dots.
"""

from __future__ import annotations

from collections.abc import Sequence

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.results import PreFilterResult
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable


class Left(Plugin):
    """Requeued by new nodes alone."""

    events: Sequence[EventInterest] | None = (EventInterest("Node", ("add",)),)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult | Status:
        """See the module."""
        told = pod.labels.get(type(self).__name__, "")
        if told == "skip":
            return Status.skip()
        if told == "no" or (told == "crowded" and int(nodes.pod_count.sum()) > 1):
            return Status.unschedulable(f"{type(self).__name__} says no")
        if told == "never":
            return Status.unresolvable(f"{type(self).__name__} says never")
        if told in ("", "crowded"):
            return Status.success()
        return PreFilterResult(eligible=frozenset(() if told == "none" else told.split(".")))


class Right(Left):
    """The same, behind it; requeued by pods that leave as well."""

    events: Sequence[EventInterest] | None = (
        EventInterest("Node", ("add",)),
        EventInterest("Pod", ("delete",)),
    )
