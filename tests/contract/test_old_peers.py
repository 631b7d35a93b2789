"""Peers of a release and peers of today work with each other: every call, and the same placements.

`old_peer` makes a plugin of today one of the release to the host, and the host one of it to the plugin.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from host.app.test_both_transports import configuration, run
from protocheck import compiler, released
from support.hosts import World, node, pod
from support.old_peer import OldPeer
from support.places import ROOT
from support.plugin_processes import plugin_process

RELEASES = [pytest.param(release, id=release.name) for release in released.releases(ROOT / "proto")]
OLD_PLUGIN = Path(__file__).parent / "plugins" / "maintenance_1_0.py"


async def through(release: FileDescriptorSet, folder: Path) -> tuple[Any, Counter[str], OldPeer]:
    """Run the workload of every point with a relay of the release between host and plugin."""
    folder.mkdir()
    log = folder / "plugin.log"
    async with plugin_process(folder / "p.sock", "support.everything:Everything") as process:
        relay = OldPeer(release, process.endpoint, folder)
        with relay.serving():
            outcome, asked = await run(configuration(log, f"endpoint: '{relay.target}'"), log)
    return outcome, asked, relay


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
async def test_peers_of_a_release_and_of_today_place_the_same(
    release: released.Release, tmp_path: Path
) -> None:
    log = tmp_path / "inside.log"
    wanted = await run(configuration(log, "inProcess: support.everything:Everything"), log)
    outcome, asked, relay = await through(release.describe(), tmp_path / "old")
    assert (outcome, asked) == wanted
    assert {"SyncState", "Reconcile", "Unreserve", "PreBind", "DecideWaitingPods"} <= relay.calls


@pytest.mark.long
@pytest.mark.slow
async def test_relay_drops_what_its_release_does_not_know(
    contract: FileDescriptorSet, tmp_path: Path
) -> None:
    # A release without the words of a status.
    older = FileDescriptorSet.FromString(contract.SerializeToString())
    for file in older.file:
        for message in file.message_type:
            for i in reversed(range(len(message.field))):
                if (message.name, message.field[i].name) == ("PluginStatus", "reasons"):
                    del message.field[i]
    outcome, _, relay = await through(older, tmp_path / "older")
    assert relay.dropped
    assert outcome["a-plain"][0]
    assert "reserve says no" not in outcome["h-reserve"][1]


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
async def test_plugin_built_from_a_release_serves_a_host_of_today(
    release: released.Release, tmp_path: Path
) -> None:
    stubs = tmp_path / "stubs"
    for name, text in compiler.generate(release.root).items():
        path = stubs / "berth_sdk" / name
        for folder in (path.parent, path.parent.parent):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "__init__.py").touch()
        path.write_text(text)
    (stubs / "berth_sdk" / "__init__.py").touch()
    endpoint = f"unix://{tmp_path / 'p.sock'}"
    environment = {**os.environ, "PYTHONPATH": str(stubs), "BERTH_PLUGIN_ENDPOINT": endpoint}
    process = await asyncio.create_subprocess_exec(
        sys.executable, OLD_PLUGIN, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert b"berth/1" in await process.stdout.readline()
        text = (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            "profiles:\n- plugins: {filter: {enabled: [{name: Maintenance}]}}\n"
            "  pluginConfig: [{name: Maintenance, args: {nodes: [n0]}}]\n"
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
            f"plugins: [{{name: Maintenance, endpoint: '{endpoint}'}}]\n"
        )
        async with World([node("n0"), node("n1")], configuration=text) as world:
            world.server.create(pod("web"))
            await world.settle()
            assert world.node_of("web") == "n1"
            assert world.host.plugin_stats()["Maintenance"].violations == 0
    finally:
        process.kill()
        await process.wait()
