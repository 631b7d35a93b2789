"""What a plugin holds with `Reservations` comes back on a host, whatever tells the plugin of the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from berth_sdk.kube_object import ObjectRef
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process


def configuration(name: str, points: str, where: str) -> str:
    enabled = "".join(f"    {point}: {{enabled: [{{name: {name}}}]}}\n" for point in points.split())
    patient = ", ".join(f"{point}: {{deadline: 10s}}" for point in points.split())
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n{enabled}"
        f"  pluginConfig: [{{name: {name}, args: {{seats: 1}}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
        f"plugins:\n- name: {name}\n  {where}\n  required: true\n  points: {{{patient}}}\n"
    )


@asynccontextmanager
async def hosted(name: str, points: str, folder: Path, *, served: bool) -> AsyncIterator[World]:
    nodes = [node("n0"), node("n1")]
    if not served:
        where = f"inProcess: support.seats:{name}"
        async with World(nodes, configuration=configuration(name, points, where)) as world:
            yield world
        return
    async with plugin_process(folder / "p.sock", f"support.seats:{name}"):
        where = f"endpoint: unix://{folder / 'p.sock'}"
        async with World(nodes, configuration=configuration(name, points, where)) as world:
            yield world


@pytest.mark.parametrize(
    "served", [pytest.param(False, id="in process"), pytest.param(True, id="served", marks=pytest.mark.long)]
)
@pytest.mark.parametrize(
    ("name", "points"),
    [("SeatsWithPostBind", "reserve preBind postBind"), ("Seats", "reserve preBind")],
    ids=["PostBind", "an end BOUND"],
)
async def test_seat_goes_from_one_pod_to_the_next(
    name: str, points: str, tmp_path: Path, *, served: bool
) -> None:
    async with hosted(name, points, tmp_path, served=served) as world:
        for pod_name in ("a", "b", "c"):
            world.server.create(pod(pod_name))
        for _ in range(3):
            await world.settle()
            (holder,) = [pod_name for pod_name in ("a", "b", "c") if world.node_of(pod_name)]
            await world.cluster.delete("pods", ObjectRef(namespace="default", name=holder))
        await world.settle()
        assert world.host.plugin_stats()[name].violations == 0
