"""Takes the pictures of the page for the docs, with Chromium: `python tests/docs/ui_pictures.py`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_bench.ui.chromium import Page, chromium, opened
from berth_host.endpoints.loopback import LoopbackServer
from berth_host.endpoints.pages import Answers
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeView
from support.groups import grouped, members, pod_group
from support.hosts import enabling, node, pod
from support.places import ROOT
from support.plugin_processes import plugin_process
from support.serving import FakeProcess

IMAGES: Final = ROOT / "docs/images"
ZONE: Final = "topology.kubernetes.io/zone"
VIEWS: Final = {
    "ui-queue": ("#/queue", "document.querySelectorAll('.scroll tbody a').length > 5", False),
    "ui-pod": ("#/pods/shop/report-3", "document.querySelector('.timeline li')", False),
    "ui-scores": ("#/pods/shop/web-7", "document.querySelector('.bars i')", False),
    "ui-nodes": ("#/nodes", "document.querySelectorAll('.scroll tbody a').length > 5", False),
    "ui-nodes-pod": (
        "#/nodes?pod=shop%2Fweb-7",
        "document.querySelector('.answer').innerText.startsWith('The pod would go to ')",
        True,
    ),
    "ui-plugins": ("#/plugins", "document.querySelector('main table tbody tr')", False),
    "ui-groups": ("#/groups", "document.querySelectorAll('.scroll tbody a').length > 1", True),
}
"""The pictures: the view, when it is ready, and whether it is dark."""


class Budget(Plugin):
    """A served plugin, which prefers the cheapest zone."""

    version = "1.4.0"

    def score(self, state: CycleState, pod: Pod, node: NodeView) -> int:
        return 100 if node.labels.get(ZONE) == "zone-a" else 40


def cluster() -> list[dict[str, Any]]:
    """Return nodes of three zones and kinds, and pods that wait for different reasons."""
    found: list[dict[str, Any]] = []
    for index in range(240):
        zone = f"zone-{'abc'[index % 3]}"
        taints = [{"key": "team", "value": "ml", "effect": "NoSchedule"}] if index % 10 == 9 else []
        labels = {ZONE: zone, "kubernetes.io/hostname": f"node-{index}"}
        found.append(node(f"node-{index}", cpu=str(4 + 4 * (index % 4)), labels=labels, taints=taints))
    for index in range(600):
        found.append(pod(f"web-{index}", namespace="shop", cpu=f"{300 + 150 * (index % 9)}m"))
    found += [pod(f"report-{index}", namespace="shop", cpu="24") for index in range(40)]
    wants: dict[str, Any] = {"nodeSelector": {"accelerator": "gpu"}}
    found += [pod(f"train-{index}", namespace="ml", cpu="2", **wants) for index in range(60)]
    gate: dict[str, Any] = {"schedulingGates": [{"name": "example.com/quota"}]}
    found += [pod(f"batch-{index}", namespace="ml", **gate) for index in range(25)]
    found += [pod_group("solver", least=200), *members("solver", 200, cpu="10")]
    return [*found, pod_group("index", least=4), *members("index", 4)]


async def take(page: Page, url: str) -> None:
    """Write a picture of each view."""
    for name, (view, ready, is_dark) in VIEWS.items():
        await page.dark(on=is_dark)
        await page.open("about:blank")
        await page.open(f"{url}{view}")
        await page.until(ready)
        await page.value("new Promise((done) => setTimeout(done, 1500))")
        print(name, flush=True)
        await page.screenshot(IMAGES / f"{name}.png")


async def main(address: str) -> None:
    """Schedule the cluster, and take the pictures."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        served = await stack.enter_async_context(plugin_process(folder / "p.sock", "docs.ui_pictures:Budget"))
        text = (
            f"{enabling(['Budget'])}---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
            f"cycleBudget: 30s\nplugins:\n- name: Budget\n  endpoint: '{served.endpoint}'\n  required: true\n"
            "  points: {score: {deadline: 10s}}\n"
        )
        world = await stack.enter_async_context(grouped(cluster(), configuration=text))
        await world.settle()
        server = LoopbackServer(Answers(FakeProcess(world.host.configuration, world.host)).answer)
        await server.start(0)
        try:
            async with opened(address) as page:
                await take(page, server.url)
        finally:
            await server.stop()


if __name__ == "__main__":
    with chromium() as devtools:
        asyncio.run(main(devtools))
