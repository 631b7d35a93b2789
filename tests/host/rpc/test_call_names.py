"""Every gRPC call of a host names attachment and plugin in its metadata, as its request does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from berth_sdk.wire.call_names import ATTACHMENT_KEY, PLUGIN_KEY
from support.hosts import World, node, pod
from support.scripted_plugin import WAYS, ScriptedPlugin, descriptor

POINTS = {"FILTER": "filter", "RESERVE": "reserve", "POST_BIND": "postBind"}
UNARY = {"Handshake", "Configure", "SyncState", "Reconcile", "Probe", "PostBind", "Drain"}
CYCLE = {"Filter", "Reserve"}


def configuration(path: Path) -> str:
    enabled = "".join(f"    {point}: {{enabled: [{{name: Demo}}]}}\n" for point in POINTS.values())
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n{enabled}"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins:\n- name: Demo\n  endpoint: unix://{path}\n  required: true\n"
    )


def named(request: Any) -> dict[str, str]:
    """Return the metadata that a request is due."""
    if isinstance(request, list):
        request = request[0]
    whom = request.ctx if "ctx" in request.DESCRIPTOR.fields_by_name else request
    fields = {ATTACHMENT_KEY: "attachment_id", PLUGIN_KEY: "plugin"}
    return {
        key: getattr(whom, field) for key, field in fields.items() if field in whom.DESCRIPTOR.fields_by_name
    }


@pytest.mark.parametrize("way", WAYS)
async def test_metadata_of_every_call_names_what_the_request_names(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedPlugin, "features", WAYS[way])
    plugin, path = ScriptedPlugin(descriptor("Demo", *POINTS)), tmp_path / "p.sock"
    async with (
        plugin.serving(path),
        World([node("n1"), pod("web")], configuration=configuration(path)) as world,
    ):
        await world.settle()
        assert world.node_of("web") == "n1"
    assert {rpc for rpc, _ in plugin.asked} >= UNARY | CYCLE
    calls = dict.fromkeys(rpc for rpc, _ in plugin.metadata)
    assert set(calls) >= (UNARY | CYCLE if way == "unary" else UNARY)
    for rpc in calls:
        told = [
            {key: value for key, value in metadata.items() if key in (ATTACHMENT_KEY, PLUGIN_KEY)}
            for name, metadata in plugin.metadata
            if name == rpc
        ]
        if len(told) == len(plugin.requests(rpc)):  # not where some calls of it came in frames
            assert told == [named(request) for request in plugin.requests(rpc)], rpc
        assert all(told), rpc
