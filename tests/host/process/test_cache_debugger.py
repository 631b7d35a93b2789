"""The dump of a running host, and what it says where the cache differs from the watches."""

from __future__ import annotations

import json

from berth_host.process.cache_debugger import dump
from berth_sdk.pod import Pod
from structlog.testing import capture_logs
from support.hosts import World, node, pod


async def test_dump_shows_nodes_and_queue_and_no_secret() -> None:
    secret = pod("secret", labels={"app": "vault"})
    secret["metadata"]["annotations"] = {"token": "hunter2"}
    secret["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "hunter2"}]
    async with World([node("n0"), secret, pod("huge", cpu="64")]) as world:
        await world.settle()
        with capture_logs() as lines:
            await dump(world.host)
    assert [line["message"] for line in lines] == [
        "Cache comparer started",
        "Cache comparer finished",
        "Dump of cached NodeInfo",
        "Dump of scheduling queue",
    ]
    shown, queue = lines[2], lines[3]
    assert (shown["node"], shown["deleted"], shown["requested"]["cpu"]) == ("n0", False, 100)
    assert [text.split(",")[0] for text in shown["scheduled_pods"]] == ["name: secret"]
    assert queue["summary"] == "activeQ:0; backoffQ:0; unschedulablePods:1"
    assert [text.split(",")[0] for text in queue["unschedulable"]] == ["name: huge"]
    assert "hunter2" not in json.dumps(lines, default=str)


async def test_mismatch_names_what_is_missed_and_what_is_redundant() -> None:
    async with World([node("n0"), node("n1"), pod("web"), pod("elsewhere", schedulerName="other")]) as world:
        await world.settle()
        host = world.host
        lost = host.objects.pod("default/web")
        assert lost is not None
        host.cache.remove_pod(lost)
        host.cache.assume(Pod(name="ghost", uid="uid-ghost", node_name="n1"))
        host.objects.remove_node("n1")
        with capture_logs() as lines:
            await dump(host)
    mismatches = [line for line in lines if line["message"] == "Cache mismatch"]
    assert [line["log_level"] for line in mismatches] == ["warning", "warning"]
    assert (mismatches[0]["missed_nodes"], mismatches[0]["redundant_nodes"]) == ([], ["n1"])
    assert (mismatches[1]["missed_pods"], mismatches[1]["redundant_pods"]) == (
        ["default/web"],
        ["default/ghost"],
    )
