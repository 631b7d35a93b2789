"""What a running host says of its plugins, in process and attached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from berth_host.app import Host
from berth_host.cli.rendering.running_plugins import running_plugins_text
from berth_host.endpoints.plugins import plugins_answer
from support.holding_world import holding_world
from support.hosts import World, pod


def plugin(host: Host, name: str) -> dict[str, Any]:
    found = [item for item in plugins_answer(host)["plugins"] if item["name"] == name]
    assert len(found) == 1
    value: dict[str, Any] = found[0]
    return value


async def test_plugin_in_process_has_points_and_calls(tmp_path: Path) -> None:
    async with holding_world("in_process", tmp_path) as world:
        found = plugin(world.host, "Holding")
        assert (found["runs"], found["available"], found["attachment"]) == ("inProcess", True, None)
        assert found["profiles"] == [
            {"schedulerName": "default-scheduler", "points": ["preEnqueue", "permit"], "failing": False}
        ]
        calls = {item["call"]: item["calls"] for item in found["calls"]}
        assert calls["Permit"] == 2


async def test_attached_plugin_is_listed_with_its_place_and_with_the_reason_of_its_loss(
    tmp_path: Path,
) -> None:
    async with holding_world("socket", tmp_path) as world:
        found = plugin(world.host, "Holding")
        assert (found["runs"], found["available"], found["required"]) == ("attached", True, True)
        place = found["attachment"]
        assert (place["place"], place["state"]) == (f"unix://{tmp_path}/p.sock", "Active")
        assert (place["transport"], bool(place["instance"])) == ("framed", True)
        rows = running_plugins_text(plugins_answer(world.host)).splitlines()
        assert rows[1].split()[:4] == ["Holding", place["place"], "Active", "framed"]
        assert found["policies"] == {"permit": {"deadlineMs": 10000.0, "policy": "Fail"}}
        calls = {item["call"]: item for item in found["calls"]}
        assert calls["Permit"]["calls"] == 2
        assert calls["Permit"]["bytesSent"] > 0


async def test_plugin_that_never_came_says_so(tmp_path: Path) -> None:
    configuration = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {permit: {enabled: [{name: Away}]}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins: [{{name: Away, endpoint: 'unix://{tmp_path}/nobody.sock'}}]\n"
    )
    async with World([pod("web")], configuration=configuration) as world:
        found = plugin(world.host, "Away")
        assert not found["available"]
        assert found["attachment"]["state"] in ("BackOff", "Connecting")
        assert found["attachment"]["reason"]
        assert found["attachment"]["transport"] == ""
