"""One plugin in a `World`, in process and served: where it runs, and a configuration that enables it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.plugin_processes import plugin_process

WAYS = ("in process", "served")


@asynccontextmanager
async def running(cls: str, way: str, folder: Path) -> AsyncIterator[str]:
    """Run the class (`module:Class`) in one of WAYS; yield its place as BerthConfiguration says it."""
    if way == "in process":
        yield f"inProcess: '{cls}'"
        return
    async with plugin_process(folder / "p.sock", cls) as process:
        yield f"endpoint: '{process.endpoint}'"


def configuration(name: str, point: str, where: str, policy: str = "") -> str:
    """Return a configuration that enables the plugin at one point. `where`: see `running`."""
    chosen = f", policy: {policy}" if policy else ""
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins: {{{point}: {{enabled: [{{name: {name}}}]}}}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: {name}\n  {where}\n  points: {{{point}: {{deadline: 10s{chosen}}}}}\n"
    )
