"""A pod with a nominated node uses the kept answers about equal pods, if the plugins do not sign the
nomination.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from berth_host.config.berth.points import FailurePolicy, PointPolicy
from berth_host.framework.filtering import Rows
from berth_host.framework.framework import Framework, all_rows
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NOBODY, NominatedPods
from berth_host.rpc.route import ClientSettings
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.handle import Handle
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeColumns, NodeTable
from berth_sdk.tables.node_columns import NodeUsage
from support.asking import NO_HANDLE
from support.frameworks import cycle_of, framework_of

FULL = Status.unschedulable("full")
NOT_PROMISED = Status.unschedulable("another node is promised")


class AtMostOnePod(Plugin):
    """A plugin that allows one pod per node, and counts its calls and their nodes."""

    depends_on: DependsOn | None = DependsOn.ROW

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.pre_filtered = 0
        self.asked: list[int] = []

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Sign all pods as equal, with any nomination."""
        return ()

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Count the call."""
        self.pre_filtered += 1
        return SUCCESS

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Reject nodes with a pod."""
        self.asked.append(len(nodes))
        return Verdicts.reject_where(nodes.pod_count > 0, FULL)


class KeepsPromises(Plugin):
    """A plugin that keeps a pod on its nominated node, and signs the whole pod with its nomination."""

    depends_on: DependsOn | None = DependsOn.NODE

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Reject the nodes other than the nominated node."""
        others = np.array([bool(pod.nominated_node) and name != pod.nominated_node for name in nodes.names])
        return Verdicts.reject_where(others, NOT_PROMISED)


def at_most_one_pod() -> AtMostOnePod:
    return AtMostOnePod({}, NO_HANDLE)


def columns_of(count: int) -> NodeColumns:
    columns = NodeColumns()
    for i in range(count):
        columns.add(Node(name=f"n{i}"))
    return columns


async def known(plugin: AtMostOnePod, columns: NodeColumns, *others: Plugin) -> Framework:
    """Return a framework after a first pod of the kind, so that answers about the next pod are kept."""
    framework = framework_of([plugin, *others])
    await judged(framework, columns, "")
    assert plugin.pre_filtered == 1
    plugin.asked.clear()
    return framework


async def judged(
    framework: Framework,
    columns: NodeColumns,
    nominated_node: str,
    rows: Rows | None = None,
    others: Mapping[str, Sequence[Pod]] | None = None,
    marks: Sequence[int] | None = None,
) -> list[str]:
    """Run Filter; return the message of each row's verdict, "" if it passed. `others`: nominated pods by
    node. `marks`: identify the nominated pods of each row, so that verdicts with them are kept.
    """
    pod = Pod(name="p", uid="p", nominated_node=nominated_node)
    cycle = cycle_of(pod, NodeTable(columns), f"cycle of {nominated_node}")
    assert (await framework.run_pre_filter(cycle)).status.is_success
    statuses = NodeStatuses(cycle.nodes)
    rows = all_rows(cycle.nodes) if rows is None else rows
    nominated = NOBODY if others is None else NominatedPods.of(cycle.nodes, others)
    if marks is not None:
        nominated.marks = np.array(marks, dtype=np.int64)
    passed = set((await framework.run_filter(cycle, statuses, rows, nominated)).tolist())
    texts = [statuses.statuses[group].message for group in statuses.groups.tolist()]
    assert passed == {row for row in rows.tolist() if not texts[row]}
    return [texts[row] for row in rows.tolist()]


async def test_attempt_with_a_nomination_uses_the_answers_of_the_first_attempt() -> None:
    plugin, columns = at_most_one_pod(), columns_of(3)
    framework = await known(plugin, columns)
    assert await judged(framework, columns, "") == ["", "", ""]
    assert await judged(framework, columns, "n1", np.array([1])) == [""]
    assert (plugin.pre_filtered, plugin.asked) == (1, [3])


@pytest.mark.parametrize("pod_count", [0, 2])
async def test_only_a_changed_nominated_node_is_judged_again(pod_count: int) -> None:
    plugin, columns = at_most_one_pod(), columns_of(3)
    for slot in range(3):
        columns.set_usage(slot, NodeUsage(pod_count=1))
    framework = await known(plugin, columns)
    assert await judged(framework, columns, "") == ["full", "full", "full"]
    for slot in (0, 1):
        columns.set_usage(slot, NodeUsage(pod_count=pod_count))
        columns.touch(slot, 1 + slot)
    wanted = "full" if pod_count else ""
    assert await judged(framework, columns, "n1", np.array([1])) == [wanted]
    assert await judged(framework, columns, "n1") == [wanted, wanted, "full"]
    # The nominated node was judged alone, the other changed node in the call about all nodes.
    assert (plugin.pre_filtered, plugin.asked) == (1, [3, 1, 1])


async def test_node_that_is_full_with_nominated_pods_is_not_judged_without_them() -> None:
    plugin, columns = at_most_one_pod(), columns_of(3)
    framework = await known(plugin, columns)
    promised = {"n1": [Pod(name="other", uid="other")]}
    assert await judged(framework, columns, "", others=promised) == ["", "full", ""]
    assert plugin.asked == [1, 2]
    columns.touch(1, 1)
    assert await judged(framework, columns, "", others=promised) == ["", "full", ""]
    assert plugin.asked == [1, 2, 1]
    # Without a nominated pod the node is feasible.
    assert await judged(framework, columns, "") == ["", "", ""]
    assert plugin.asked == [1, 2, 1, 1]
    columns.set_usage(1, NodeUsage(pod_count=1))
    columns.touch(1, 2)
    assert await judged(framework, columns, "", others=promised) == ["", "full", ""]
    assert await judged(framework, columns, "") == ["", "full", ""]
    assert plugin.asked == [1, 2, 1, 1, 1, 1]


async def test_plugin_that_signs_nominations_is_called_again() -> None:
    plugin, columns = at_most_one_pod(), columns_of(3)
    framework = await known(plugin, columns, KeepsPromises({}, NO_HANDLE))
    away = NOT_PROMISED.message
    assert await judged(framework, columns, "") == ["", "", ""]
    assert await judged(framework, columns, "n1") == [away, "", away]
    assert await judged(framework, columns, "n2") == [away, away, ""]
    assert await judged(framework, columns, "") == ["", "", ""]
    assert plugin.pre_filtered == 1


async def test_passes_by_a_policy_are_not_kept_after_a_later_call_succeeded() -> None:
    class FailsOnce(AtMostOnePod):
        """A plugin whose next call about nodes with nominated pods fails, and no later one."""

        fails = False

        def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Verdicts:
            """Reject nodes with two pods or more. Raises RuntimeError."""
            fails, self.fails = self.fails, False
            if fails:
                raise RuntimeError("out of order")
            return Verdicts.reject_where(scenarios.nodes.pod_count > 1, FULL)

    plugin, columns = FailsOnce({}, NO_HANDLE), columns_of(3)
    ignoring = ClientSettings(points={"filter": PointPolicy(policy=FailurePolicy.IGNORE)})
    framework = framework_of([plugin], settings=ignoring)
    for number in range(3):
        await judged(framework, columns, "" if number else "none")
    two = [Pod(name=name, uid=name) for name in ("x", "y")]
    promised, marks = {"n0": two, "n1": two}, (1, 1, 0)
    # The pods on n0 have changed, and the Node object n1: there are two calls, and the first one fails.
    columns.touch(0, 1)
    columns.set_node(1, Node(name="n1", labels={"new": "yes"}))
    columns.touch(1, 2)
    plugin.fails = True
    assert await judged(framework, columns, "", others=promised, marks=marks) == ["", "full", ""]
    assert await judged(framework, columns, "", others=promised, marks=marks) == ["full", "full", ""]
