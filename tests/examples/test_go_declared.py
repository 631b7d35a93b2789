"""The plugin in Go is built from the contract alone, and the host keeps its answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.examples import EXAMPLES
from support.hosts import World, enabling, node, pod

FOLDER = EXAMPLES / "go"
CALLS = ("PreFilter", "Filter", "PreScore", "Score")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return the plugin, built for this test."""
    built = tmp_path / "declared"
    environment = {**os.environ, "PROTOC": f"{sys.executable} -m grpc_tools.protoc"}
    subprocess.run([str(FOLDER / "build.sh"), str(tmp_path), "declared"], env=environment, check=True)
    return built


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not on PATH")
async def test_go_plugin_is_asked_about_a_kind_of_pods_and_not_about_each_pod(program: Path) -> None:
    text = enabling(
        ["NameRank"],
        "  pluginConfig: [{name: NameRank, args: {closedTens: 10}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: NameRank\n  command: [{program}]\n",
    )
    nodes = [node(f"node-{number}") for number in (3, 10, 13, 18)]
    async with World(nodes, configuration=text) as world:
        stats = world.host.clients.stats["NameRank"]
        for number in range(2):
            world.server.create(pod(f"p{number}"))
            await world.settle()
        calls = [stats.of(call).calls for call in CALLS]
        for number in range(2, 6):
            world.server.create(pod(f"p{number}"))
            await world.settle()
        # node-3 is closed: its tens are 0. Of the others, node-10 has the highest rank.
        assert {world.node_of(f"p{number}") for number in range(6)} == {"node-10"}
        assert [stats.of(call).calls for call in CALLS] == calls
        world.server.create(node("node-21"))
        world.server.create(pod("after"))
        await world.settle()
        assert stats.of("Filter").calls == calls[CALLS.index("Filter")] + 1  # about the new node
