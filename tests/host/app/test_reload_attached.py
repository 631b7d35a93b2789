"""A new configuration while plugins in other processes are attached: they are let go, and attached anew."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from berth_host.app.reload import reload
from berth_host.attach.child import Child
from berth_host.config.loading import load_configuration
from support.hosts import World, node, pod
from support.patience import with_patience
from support.plugin_processes import PluginProcess, plugin_environment
from support.waiting import until

pytestmark = pytest.mark.slow

ECHO = "support.echo_plugin:Echo"
ROUNDS = 4


def configuration(folder: Path) -> str:
    """Echo in a folder of sockets, the one that the process launches by itself, and one at an endpoint."""
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    filter: {enabled: [{name: Echo}, {name: Licences}]}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"socketFolder: {folder}\nplugins:\n- {{name: Echo, required: true}}\n"
        "- name: Licences\n  required: true\n"
        f'  command: [{sys.executable}, -m, berth_sdk, serve, "support.licences:Licences"]\n'
    )


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def placed(world: World, name: str) -> None:
    await until(lambda: bool(world.node_of(name)))


async def test_every_reload_attaches_again_and_closes_the_old_attachments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[Child] = []
    launch = Child.launch

    async def counted(*args: object, **options: object) -> Child:
        launched.append(await launch(*args, **options))  # type: ignore[arg-type]  # handed through
        return launched[-1]

    monkeypatch.setattr(Child, "launch", staticmethod(counted))
    monkeypatch.setenv("PYTHONPATH", plugin_environment({})["PYTHONPATH"])
    folder = tmp_path / "sockets"
    folder.mkdir()
    echo = PluginProcess(folder / "echo.sock", ECHO)
    await echo.start()
    text = configuration(folder)
    try:
        async with World([node(f"n{i}") for i in range(10)], configuration=text) as world:
            seen = []
            for number in range(ROUNDS):
                world.server.create(pod(f"p{number}"))
                await placed(world, f"p{number}")
                await asyncio.sleep(0)
                seen.append((len(asyncio.all_tasks()), descriptors()))
                world.host = await reload(
                    world.host, with_patience(load_configuration(text, source="new.yaml"))
                )
            # The first host's own start leaves its marks; what one reload leaves, the next one leaves again.
            assert seen[-1][0] <= seen[1][0], [task.get_name() for task in asyncio.all_tasks()]
            assert seen[-1][1] <= seen[1][1] + 2, seen
            assert len(launched) == ROUNDS + 1
            ended = [child for child in launched if not Path(f"/proc/{child.pid}").exists()]
            assert len(ended) == ROUNDS
    finally:
        await echo.kill()
