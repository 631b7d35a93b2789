"""Answers are kept from pod to pod only where the class declares `depends_on`, and until it requeues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.handle import Handle
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.serve.server import PluginServer
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from support.hosts import World, enabling, node, pod
from support.waiting import until


class ReadsAFile(Plugin):
    """No node fits until the file `open` exists. Says nothing of what its answers depend on."""

    folder: ClassVar[Path]
    handles: ClassVar[list[Handle]] = []
    asked: ClassVar[int] = 0

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        type(self).handles.append(handle)

    def filter(self, state: CycleState, pod: Pod, node: Node) -> Status:
        """By the file."""
        type(self).asked += 1
        return Status.success() if (self.folder / "open").exists() else Status.unschedulable("closed")


class ReadsAFileForTheTable(ReadsAFile):
    """The same over the table."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """By the file."""
        closed = np.full(len(nodes), not (self.folder / "open").exists())
        return Verdicts.reject_where(closed, Status.unschedulable("closed"))


class DeclaresNode(ReadsAFile):
    """Promises that only the Node object counts, which holds as long as it requeues when the file changes."""

    depends_on = DependsOn.NODE
    sign_fields = ()


class DeclaresTable(ReadsAFile):
    """The same for the whole table."""

    depends_on = DependsOn.TABLE


@pytest.fixture(params=["in process", "served"])
def configure(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Yield a function from a class to the world in which it runs, in process or served."""
    with ExitStack() as stack:

        def world(cls: type[ReadsAFile]) -> World:
            cls.folder, cls.handles, cls.asked = tmp_path, [], 0
            if request.param == "in process":
                return World([node("a")], [cls])
            server = stack.enter_context(PluginServer({cls.__name__: cls}))
            server.listen(f"unix:{tmp_path / 'p.sock'}")
            place = (
                "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\nplugins:\n"
                f"- name: {cls.__name__}\n  endpoint: unix://{tmp_path / 'p.sock'}\n"
            )
            return World([node("a")], configuration=enabling([cls.__name__], place))

        yield world


@pytest.mark.parametrize("cls", [ReadsAFile, ReadsAFileForTheTable])
async def test_class_without_depends_on_is_called_for_every_pod(
    configure: Any, cls: type[ReadsAFile], tmp_path: Path
) -> None:
    async with configure(cls) as world:
        for name in ("one", "two", "three"):
            world.server.create(pod(name))
            await world.settle()
            assert world.message_of(name).startswith("0/1 nodes are available: 1 closed.")
        (tmp_path / "open").touch()
        world.server.create(pod("four"))
        await world.settle()
        assert world.node_of("four") == "a"


@pytest.mark.parametrize("cls", [DeclaresNode, DeclaresTable])
async def test_requeue_drops_the_kept_answers_of_the_plugin(
    configure: Any, cls: type[ReadsAFile], tmp_path: Path
) -> None:
    async with configure(cls) as world:
        for name in ("one", "two", "three"):
            world.server.create(pod(name))
            await world.settle()
        asked = cls.asked
        world.server.create(pod("four"))
        await world.settle()
        assert cls.asked == asked, "the answer was not kept"
        (tmp_path / "open").touch()
        await asyncio.to_thread(cls.handles[-1].requeue)
        await world.settle()
        assert [world.node_of(name) for name in ("one", "two", "three", "four")] == ["a"] * 4


async def test_requeue_of_one_instance_drops_the_kept_answers_of_another(tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    DeclaresNode.folder, DeclaresNode.handles, DeclaresNode.asked = tmp_path, [], 0
    text = enabling(
        ["DeclaresNode"],
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"socketFolder: {folder}\nplugins:\n- name: DeclaresNode\n",
    )
    with PluginServer({"DeclaresNode": DeclaresNode}) as older:
        older.listen(f"unix:{folder / 'older.sock'}")
        async with World([node("a")], configuration=text) as world:
            plugin = world.host.attachments.attached_places.plugins["DeclaresNode"]
            await until(lambda: plugin.is_attached)
            for name in ("one", "two", "three"):
                world.server.create(pod(name))
                await world.settle()
                assert world.message_of(name).startswith("0/1 nodes are available: 1 closed.")
            with PluginServer({"DeclaresNode": DeclaresNode}) as newer:
                newer.listen(f"unix:{folder / 'newer.sock'}")
                await until(lambda: len(plugin.offers) == 2)
                (tmp_path / "open").touch()
                await asyncio.to_thread(DeclaresNode.handles[-1].requeue)
                await world.settle()
                assert [world.node_of(name) for name in ("one", "two", "three")] == ["a"] * 3
            await until(lambda: len(plugin.offers) == 1)
            # The older one is asked again, which rejected such pods when the file was not there.
            world.server.create(pod("four"))
            await world.settle()
            assert world.node_of("four") == "a"
