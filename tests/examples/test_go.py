"""The plugins in Go are built from the contract alone: how often the host asks them."""

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


pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not on PATH"),
]


def configuration(plugin: str, name: str, folder: Path, more: str = "") -> str:
    """Return a configuration with a plugin of the folder `name`, which is built into `folder`."""
    environment = {**os.environ, "PROTOC": f"{sys.executable} -m grpc_tools.protoc"}
    subprocess.run([str(FOLDER / "build.sh"), str(folder), name], env=environment, check=True)
    return enabling(
        [plugin],
        f"{more}---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: {plugin}\n  command: [{folder / name}]\n",
    )


async def test_declared_plugin_is_asked_about_a_kind_of_pods_and_not_about_each_pod(tmp_path: Path) -> None:
    arguments = "  pluginConfig: [{name: NameRank, args: {closedTens: 10}}]\n"
    text = configuration("NameRank", "declared", tmp_path, arguments)
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


async def test_undeclared_plugin_gets_one_call_for_each_pod(tmp_path: Path) -> None:
    nodes = [node(f"node-{number}") for number in range(3)]
    text = configuration("FreeCpu", "bitmaps", tmp_path)
    async with World(nodes, configuration=text) as world:
        for number in range(3):
            world.server.create(pod(f"p{number}"))
            await world.settle()
        # Each pod goes where most cpu is free.
        assert {world.node_of(f"p{number}") for number in range(3)} == {"node-0", "node-1", "node-2"}
        stats = world.host.clients.stats["FreeCpu"]
        assert {call: stats.of(call).messages for call in CALLS if stats.of(call).messages} == {"Filter": 3}
