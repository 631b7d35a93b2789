"""A Service that changes while a served plugin is awaited: no answer is kept for pods that are not equal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.kube_object import ObjectRef
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.serve.server import PluginServer
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from support.hosts import World, enabling, node, pod
from support.scripted_plugin import ScriptedPlugin, descriptor
from support.waiting import PATIENCE_S, until


class KeepsOut(Plugin):
    """No node takes a pod that a Service selects. Equal are pods that the same Services select."""

    needs: Sequence[Need] = (Need.nodes(), Need.objects("services"))
    depends_on: DependsOn | None = DependsOn.TABLE
    arrived: ClassVar[threading.Event] = threading.Event()
    goes_on: ClassVar[threading.Event] = threading.Event()
    asked: ClassVar[list[str]] = []

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the names of the Services that select the pod."""
        services = self.handle.objects("services").list(pod.namespace)
        return tuple(
            one.ref.name for one in services if pod.labels.get("app") == one.get("spec.selector.app")
        )

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """All nodes or none, as the Services are now."""
        type(self).asked.append(pod.name)
        kept_out = np.full(len(nodes), bool(self.sign(pod, nodes)))
        self.arrived.set()
        assert self.goes_on.wait(PATIENCE_S)
        return Verdicts.reject_where(kept_out, Status.unschedulable("a Service selects it"))


class KeepsOutByRow(KeepsOut):
    """The same, kept row by row."""

    depends_on = DependsOn.NODE


class KeepsOutByTable(KeepsOut):
    """The same, kept by table."""


BOTH = pytest.mark.parametrize("cls", [KeepsOutByRow, KeepsOutByTable])


@pytest.fixture(autouse=True)
def fresh() -> None:
    KeepsOut.asked.clear()
    KeepsOut.arrived.clear()
    KeepsOut.goes_on.set()


OWN = "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\nplugins:\n"

PATIENT = "points: {filter: {deadline: 10s}}"


def service(app: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "front", "namespace": "default"},
        "spec": {"selector": {"app": app}, "ports": [{"port": 80}]},
    }


async def decided(world: World, name: str) -> str:
    """Return the node of a pod, or the message that says why it has none."""
    await until(lambda: bool(world.node_of(name) or world.message_of(name)))
    return world.node_of(name) or world.message_of(name).split(". ")[0]


async def come(world: World, *names: str) -> list[str]:
    found = []
    for name in names:
        world.server.create(pod(name, labels={"app": name.partition("-")[0]}))
        found.append(await decided(world, name))
    return found


KEPT_OUT = "0/2 nodes are available: 2 a Service selects it"


@asynccontextmanager
async def beside_a_served_filter(path: Path, cls: type) -> AsyncIterator[tuple[World, ScriptedPlugin]]:
    """Yield a host with `cls` in process, after a served Filter plugin."""
    elsewhere = ScriptedPlugin(descriptor("Elsewhere", "FILTER"))
    place = (
        f"{OWN}- {{name: Elsewhere, endpoint: 'unix://{path}', {PATIENT}}}\n"
        f"- {{name: {cls.__name__}, inProcess: '{cls.__module__}:{cls.__name__}'}}\n"
    )
    text = enabling(["Elsewhere", cls.__name__], place)
    async with elsewhere.serving(path), World([node("n0"), node("n1")], configuration=text) as world:
        yield world, elsewhere


@pytest.mark.parametrize("equal_before", [0, 1, 2, 3])
@BOTH
async def test_in_process_answer_is_not_kept_under_an_older_signature_of_the_pod(
    cls: type, equal_before: int, tmp_path: Path
) -> None:
    async with beside_a_served_filter(tmp_path / "p.sock", cls) as (world, elsewhere):
        assert (
            await come(world, *(f"c-{i}" for i in range(equal_before))) == ["n0", "n1", "n0"][:equal_before]
        )

        async def appear(_request: Any) -> None:
            world.server.create(service("a"))
            await asyncio.sleep(0)
            await until(lambda: world.host.objects.get("Service", "front", "default") is not None)

        elsewhere.once("Filter", appear)
        assert await come(world, "a-0") == [KEPT_OUT]
        # No Service selects these, as none did select a-0 when its cycle began.
        placed = await come(world, "b-0", "b-1", "b-2")
        assert all(name.startswith("n") for name in placed), placed
        assert await come(world, "a-1") == [KEPT_OUT]


@contextmanager
def served(path: Path, cls: type) -> Iterator[str]:
    """Yield the configuration for `cls` in its own server."""
    server = PluginServer({cls.__name__: cls})
    server.listen(f"unix:{path}")
    try:
        yield enabling(
            [cls.__name__],
            f"{OWN}- {{name: {cls.__name__}, endpoint: 'unix://{path}', {PATIENT}}}\n",
        )
    finally:
        server.stop(0)


async def changed_meanwhile(world: World, change: Callable[[], object]) -> None:
    """Change something while the served plugin is asked about the next pod, and let it answer."""
    KeepsOut.goes_on.clear()
    KeepsOut.arrived.clear()
    await until(KeepsOut.arrived.is_set)
    change()
    await asyncio.sleep(0)
    KeepsOut.goes_on.set()


@BOTH
async def test_served_answer_is_not_kept_for_services_created_during_the_call(
    cls: type, tmp_path: Path
) -> None:
    with served(tmp_path / "p.sock", cls) as text:
        async with World([node("n0"), node("n1")], configuration=text) as world:
            world.server.create(service("a"))
            assert await come(world, "a-0") == [KEPT_OUT]
            changing = asyncio.ensure_future(
                changed_meanwhile(
                    world,
                    lambda: world.server.delete("services", ObjectRef(namespace="default", name="front")),
                )
            )
            await asyncio.sleep(0)
            # A change of the table, which ends what is kept: the plugin is asked about a-1.
            world.server.create(node("n2"))
            await come(world, "a-1")
            await changing
            # Whatever it said of a-1: there is no Service any more.
            placed = await come(world, "a-2", "b-0", "a-3")
            assert all(name.startswith("n") for name in placed), placed
