"""Plugins of public reports about kube-scheduler, for `tests/sim/commands/test_reported.py`."""

from __future__ import annotations

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable, NodeView


class Counter(Plugin):
    """Skips in PreFilter and keeps nothing; everything after PreFilter would need what it kept."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        return Status.skip()

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        state.read("counter")
        return Status.success()

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeView) -> Status:
        state.read("counter")
        return Status.success()

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeView) -> Status:
        state.read("counter")
        return Status.success()


class Bouncer(Plugin):
    """Rejects in PreFilter while any pod runs anywhere; preemption may remove that pod."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        if nodes.pod_count.sum() > 0:
            return Status.unschedulable("a low pod is in the house")
        return Status.success()

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        return Status.success()
