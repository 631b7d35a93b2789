"""Row 29 of the failure table, with real processes: a pod goes, or changes, while a plugin is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from support.faults import FailingProcess, RawPlugin, configuration, in_time, running
from support.hosts import World, node, pod
from support.raw_plugin import HOLD
from support.scripted_plugin import descriptor
from support.waiting import until

pytestmark = pytest.mark.slow
WEB = ObjectRef(namespace="default", name="web")


@pytest.mark.parametrize("rpc", ["Reserve", "Permit", "PreBind"])
async def test_row_29_a_deleted_pod_ends_its_cycle_everywhere(tmp_path: Path, rpc: str) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "RESERVE", "PERMIT", "PRE_BIND"))
    plugin.on(rpc, HOLD)
    text = configuration(plugin, Raw="reserve permit preBind")
    async with running(plugin), World([node("n0"), pod("web")], configuration=text) as world:
        await until(lambda: bool(plugin.requests(rpc)))
        await world.cluster.delete("pods", WEB)
        await until(lambda: bool(plugin.requests(f"cancelled-{rpc}")))
        await until(lambda: bool(plugin.requests("EndCycles")))
        reserved = plugin.requests("Reserve")[0].ctx.cycle_id
        assert [item.cycle_id for item in plugin.requests("Unreserve")[0].items] == [reserved]
        (end,) = plugin.requests("EndCycles")[0].ended
        assert (end.cycle_id, end.outcome) == (reserved, pb.CycleEnd.OUTCOME_ABORTED)
        assert world.host.cache.pod_count == 0
        assert world.everything_is_accounted_for()


async def test_row_29_a_pod_that_changes_while_it_waits_is_ordered_anew(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="queueSort")
    async with running(plugin), World([node("n0"), pod("web", cpu="8")], configuration=text) as world:
        await in_time(lambda: world.message_of("web"))
        await world.settle()
        assert {words[1] for words in plugin.asked("SortKeys")} == {"web"}
        ordered = len(plugin.asked("SortKeys"))
        await world.cluster.patch("pods", WEB, {"metadata": {"labels": {"tier": "gold"}}})
        world.server.create(node("large", cpu="16"))
        await in_time(lambda: world.node_of("web") == "large")
        assert plugin.asked("SortKeys")[ordered:] == [["SortKeys", "web"]]
