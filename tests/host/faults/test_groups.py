"""Rows 36 and 37 of the failure table, with real processes: a plugin dies or answers wrongly."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.faults import (
    FailingProcess,
    as_time_passes,
    attached,
    configuration,
    in_time,
    metric,
    running,
    served_cluster,
)
from support.groups import GROUPS, condition_of, members, message_of, nodes_of, pod_group
from support.hosts import World, node, pod

pytestmark = pytest.mark.slow

COUNT = 3
POINTS = (
    *("filter", "reserve", "permit", "placementGenerate", "placementScore", "podGroupPostFilter"),
    "multiPoint",  # for PlacementFeasible, which has no list
)
GROUP_OF_THREE = [pod_group("g", least=COUNT), *members("g", COUNT)]
NODES = [node("n0"), node("n1")]


class GroupingProcess(FailingProcess):
    """`support.grouping_plugin`."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "support.grouping_plugin", "--listen", self.endpoint]

    def held(self) -> Counter[str]:
        """Return how often each cycle has a reservation: those taken without those given back."""
        taken = Counter(cycle for cycle, _ in self.did("reserve"))
        for cycle, _ in self.did("unreserve"):
            taken[cycle] = 0
        return +taken


def world(plugin: GroupingProcess, *objects: Mapping[str, Any]) -> World:
    text = configuration(plugin, Failing=" ".join(POINTS)).replace("    multiPoint: {deadline: 10s}\n", "")
    return World([*NODES, *objects], configuration=text, gates=GROUPS)


@pytest.mark.long
async def test_group_is_placed_in_the_best_placement_with_few_calls(tmp_path: Path) -> None:
    plugin = GroupingProcess(tmp_path)
    async with running(plugin), world(plugin, *GROUP_OF_THREE) as host:
        await in_time(lambda: attached(host))
        await in_time(lambda: len(nodes_of(host, "g")) == COUNT)
        assert set(nodes_of(host, "g").values()) == {"n1"}
        assert condition_of(host, "g") == ("True", "Scheduled", "")
        calls = Counter(rpc for rpc, *_ in plugin.lines("asked"))
        trials = 2
        assert calls["PlacementGenerate"] == 1
        assert calls["PlacementScore"] == calls["PlacementFeasible"] == trials
        assert len(plugin.did("tentative")) == trials * COUNT
        assert [where for _, where in plugin.did("good")] == ["n1"] * COUNT
        assert set(plugin.held()) == {cycle for cycle, _ in plugin.did("good")}


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize(
    ("rpc", "kind"),
    [
        pytest.param("PlacementGenerate", "die", id="before the first placement"),
        pytest.param("PlacementFeasible", "die", id="before the first member"),
        pytest.param("Filter", "die", id="at a member"),
        pytest.param("Reserve", "die-after", id="with a tentative reservation"),
        pytest.param("Unreserve", "die", id="before a trial is given back"),
        pytest.param("Unreserve", "die-after", id="after a trial was given back"),
        pytest.param("PlacementScore", "die", id="between two placements"),
        pytest.param("Permit", "die", id="with a reservation for good"),
    ],
)
async def test_row_36_group_whose_plugin_dies_is_placed_later_and_nothing_stays_reserved(
    rpc: str, kind: str, tmp_path: Path
) -> None:
    plugin = GroupingProcess(tmp_path)
    plugin.arm(rpc, kind)
    async with running(plugin), world(plugin, *GROUP_OF_THREE) as host:
        await plugin.ended()
        await in_time(lambda: not attached(host))
        await plugin.start()
        await as_time_passes(host, lambda: len(nodes_of(host, "g")) == COUNT)
        # Unreserves that the dead process did not acknowledge have reached the next one.
        await in_time(lambda: len(plugin.held()) == COUNT)
        assert plugin.has_fired
        assert set(nodes_of(host, "g").values()) == {"n1"}
        tentative = {cycle for cycle, _ in plugin.did("tentative")}
        assert not tentative & set(plugin.held())
        assert host.host.snapshot.mark() == 0


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("rpc", ["PlacementGenerate", "PlacementFeasible", "PlacementScore"])
async def test_row_37_wrong_answer_about_a_group_is_a_violation_that_the_group_names(
    rpc: str, tmp_path: Path
) -> None:
    plugin = GroupingProcess(tmp_path)
    plugin.arm(rpc, "invalid")
    async with running(plugin), world(plugin, *GROUP_OF_THREE) as host:
        await in_time(lambda: condition_of(host, "g")[0] == "False")
        status, reason, message = condition_of(host, "g")
        assert (status, reason) == ("False", "SchedulerError") and 'plugin "Failing"' in message
        assert await metric(host, "berth_plugin_violations_total", "Failing") == 1
        await as_time_passes(host, lambda: len(nodes_of(host, "g")) == COUNT)
        await in_time(lambda: len(plugin.held()) == COUNT)


@pytest.mark.long
async def test_row_11_next_host_leaves_nothing_of_the_trial_that_a_killed_host_was_in(tmp_path: Path) -> None:
    plugin = GroupingProcess(tmp_path / "plugin")
    plugin.arm("Reserve", "hang-after")
    text = configuration(plugin, Failing=" ".join(POINTS)).replace("    multiPoint: {deadline: 10s}\n", "")
    async with running(plugin), served_cluster(*NODES, *GROUP_OF_THREE) as cluster:
        killed = cluster.host(tmp_path / "one", text, name="one", gates="GenericWorkload=true")
        await killed.begin()
        await in_time(lambda: bool(plugin.did("tentative")) and plugin.has_fired)
        (left,) = plugin.held()
        await killed.kill()
        await cluster.host(tmp_path / "two", text, name="two", gates="GenericWorkload=true").begin()
        await cluster.bound(*(f"g-{number}" for number in range(COUNT)))
        await in_time(lambda: len(plugin.held()) == COUNT)
        assert left not in plugin.held()
        assert not {cycle for cycle, _ in plugin.did("tentative")} & set(plugin.held())


@pytest.mark.long
async def test_what_if_of_a_group_is_answered_over_the_way_back(tmp_path: Path) -> None:
    plugin = GroupingProcess(tmp_path)
    full = [pod(f"full-{number}", cpu="4", nodeName=f"n{number}") for number in range(2)]
    async with running(plugin), world(plugin, *full, *GROUP_OF_THREE) as host:
        await in_time(lambda: bool(plugin.did("tried")))
        assert plugin.did("tried")[0] == ["SUCCESS", "n1"], "without the pods on the nodes the group fits"
        await in_time(lambda: condition_of(host, "g")[0] == "False")
        assert message_of(host, "g-0") and not nodes_of(host, "g")
        assert not plugin.held()
